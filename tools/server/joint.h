/* Measures joint programs against the models that they contain: answers and times. */
#ifndef WEFT_TOOLS_JOINT_H
#define WEFT_TOOLS_JOINT_H

#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"

/* Median times of one execution of all models, one after the other and as a joint program; the runs
 * alternate. */
typedef struct weft_joint_timing {
    double apart_ms, joint_ms;
    double difference; /* largest difference of an output / the output's largest element */
    size_t n_runs;
} weft_joint_timing;

/* The nodes of one ONNX name in all models and in the joint program, including the copies there
 * that concatenate operands. */
typedef struct weft_joint_node {
    const char *item;
    double apart_us, joint_us; /* out: medians */
} weft_joint_node;

/* Runs every model of the joint program with `batch` rows of synthetic inputs, apart and joint, for
 * `seconds`, and for half of that again to time the nodes. Different answers are no error, but are
 * reported in out->difference. */
WEFT_MUST_USE weft_err weft_tool_time_joint(weft_engine *engine, const weft_bundle_program *joint,
                                            int64_t batch, const weft_tool_dim *dim, size_t n_dim,
                                            double seconds, weft_diag *diag, weft_joint_node *node,
                                            size_t n_node, weft_joint_timing *out);

#endif
