/* How far answers are from what they should be, measured on made-up inputs: the rows that the
 * report of `weft compile` has, and what a lower precision does to the outputs of the models. */
#ifndef WEFT_TOOLS_MEASURE_ERROR_H
#define WEFT_TOOLS_MEASURE_ERROR_H

#include "passes/passes.h"
#include "tools/common/tools.h"

/* One output of one model: the largest difference over all inputs tried, over its largest element.
 */
typedef struct weft_tool_change {
    const char *model, *output;
    double difference;
    uint32_t runs;   /* inputs that were tried */
    const char *why; /* it was not measured; NULL: it was */
} weft_tool_change;

typedef struct weft_tool_changes {
    weft_tool_change *at;
    uint32_t n;
} weft_tool_changes;

/* Measures --precision while passes run: the models' graphs are evaluated by the reference
 * implementations just before the pass lower-precision and just after it, at the smallest sizes.
 * The caller gives the first three; `changes` stays empty when the pass does not run. */
typedef struct weft_tool_precision {
    const char *name; /* "f16", "bf16", "tf32" */
    weft_arena *arena;
    weft_diag *diag; /* gets a note for each model */
    weft_tool_changes changes;
    /* While it measures. */
    double work;                   /* of the models so far */
    struct weft_tool_trial *trial; /* by graph */
    weft_arena *tensors;           /* inputs and answers */
} weft_tool_precision;

/* A hook for weft_passes_run; `user` is the weft_tool_precision. */
weft_pass_hook weft_tool_precision_watch;
/* Frees what a pipeline that failed has left. */
void weft_tool_precision_finish(weft_tool_precision *p);

#endif
