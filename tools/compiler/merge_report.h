/* What `weft compile` writes about merging: reports, the similarity of every two models, a picture.
 */
#ifndef WEFT_TOOLS_MERGE_REPORT_H
#define WEFT_TOOLS_MERGE_REPORT_H

#include "estimator/estimator.h"
#include "ir/bundle.h"
#include "passes/passes.h"
#include "runtime/runtime.h"
#include "tools/compiler/measure_error.h"

/* Measured effects of the options that change answers; zero-initialised: none was measured. */
typedef struct weft_tool_measured {
    double tolerance;
    weft_deltas deltas;
    weft_tool_changes by_weights;    /* of both */
    const weft_conv_planning *convs; /* without convolutions for cuDNN: not reported */
    const char *precision;
    weft_tool_changes by_precision;
} weft_tool_measured;

/* Estimated times of one execution of a joint program, and of its models one after the other. */
typedef struct weft_tool_expectation {
    const char *joint;
    int64_t batch; /* of every model */
    double apart_us, joint_us;
} weft_tool_expectation;
typedef WEFT_VEC(weft_tool_expectation) weft_tool_expectations;

/* joint_expected.c: estimates every joint program at every bucket for the device of the options, as
 * far as the estimator knows. The module must be at the plan stage. */
void weft_tool_expect_joint(const weft_module *m, const weft_pass_options *options,
                            weft_arena *arena, weft_tool_expectations *out);

/* docs/compile-report.md has the keys. */
WEFT_MUST_USE weft_err weft_tool_write_report(const weft_bundle *bundle, const weft_merge_log *log,
                                              const weft_tool_expectations *expected,
                                              const weft_tool_measured *measured, const char *path,
                                              bool json, weft_diag *diag);
/* Writes the pairs of the log as CSV. */
WEFT_MUST_USE weft_err weft_tool_write_pairs(const weft_merge_log *log, const char *path,
                                             weft_diag *diag);

/* merge_picture.c: draws the joint graphs and the models that are in none: as text for graphviz,
 * or, if `path` ends in .svg, by graphviz's program `dot`. */
WEFT_MUST_USE weft_err weft_tool_write_picture(weft_module *m, const char *path, weft_diag *diag);

#endif
