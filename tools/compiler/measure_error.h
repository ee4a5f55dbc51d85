/* Measured differences of outputs on synthetic inputs: the rows for the report of `weft
 * compile`, and the measurement of a lower precision. */
#ifndef WEFT_TOOLS_MEASURE_ERROR_H
#define WEFT_TOOLS_MEASURE_ERROR_H

#include "passes/passes.h"
#include "tools/common/tools.h"

/* One output of one model: the largest difference over all inputs, divided by the output's
 * largest element. */
typedef struct weft_tool_change {
    const char *model, *output;
    double difference;
    uint32_t runs;   /* number of inputs */
    const char *why; /* reason why it was not measured; NULL: it was */
} weft_tool_change;

typedef struct weft_tool_changes {
    weft_tool_change *at;
    uint32_t n;
} weft_tool_changes;

/* Measures --precision while passes run: the reference implementations evaluate the graphs just
 * before and just after the pass lower-precision, at the smallest sizes. The caller sets the
 * members up to diag; `changes` stays empty if the pass does not run. */
typedef struct weft_tool_precision {
    const char *name; /* "f16", "bf16", "tf32" */
    bool is_default;  /* --precision is not given: a lower limit of work */
    weft_arena *arena;
    weft_diag *diag; /* gets a note for each model */
    weft_tool_changes changes;
    /* state during the measurement */
    double work;                   /* work of the models so far */
    struct weft_tool_trial *trial; /* by graph */
    weft_arena *tensors;           /* inputs and outputs */
} weft_tool_precision;

/* Hook for weft_passes_run; `user` is the weft_tool_precision. */
weft_pass_hook weft_tool_precision_watch;
/* Frees the state that a failed pipeline leaves. */
void weft_tool_precision_finish(weft_tool_precision *p);

#endif
