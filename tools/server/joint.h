/* Joint programs beside the models that they run: are the answers the same, and what is gained? */
#ifndef WEFT_TOOLS_JOINT_H
#define WEFT_TOOLS_JOINT_H

#include "runtime/runtime.h"
#include "tools/common/sample_tensors.h"

/* Medians of one execution of all models, one after the other and at once, alternating. */
typedef struct weft_joint_timing {
    double apart_ms, joint_ms;
    double difference; /* largest of all outputs, over the largest element of the output */
    size_t n_runs;
} weft_joint_timing;

/* Nodes of one name (of the ONNX file), in all models and in the joint program, where copies that
 * bring operands together have it too. */
typedef struct weft_joint_node {
    const char *item;
    double apart_us, joint_us; /* out: medians */
} weft_joint_node;

/* Runs every model of the joint program with `batch` rows of made-up inputs, apart and joint, for
 * `seconds`, and half of that again for the nodes. DIFFERS is not an error: `difference` says how
 * far the answers are apart. */
WEFT_MUST_USE weft_err weft_tool_time_joint(weft_engine *engine, const weft_bundle_program *joint,
                                            int64_t batch, const weft_tool_dim *dim, size_t n_dim,
                                            double seconds, weft_diag *diag, weft_joint_node *node,
                                            size_t n_node, weft_joint_timing *out);

#endif
