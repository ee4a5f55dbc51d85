/* `weft estimate --kernels`: a table of kernels in, the same table with predictions out. */
#ifndef WEFT_TOOLS_ESTIMATE_KERNELS_H
#define WEFT_TOOLS_ESTIMATE_KERNELS_H

#include "estimator/estimator.h"

#include <stdbool.h>

typedef struct weft_tool_kernels {
    const char *input;  /* CSV; "-": standard input */
    const char *output; /* NULL or "-": standard output */
    const char *gpu;    /* of rows that name none; NULL: every row must */
    const char *slice;  /* of rows that name none; NULL or "": the whole device */
    const char *model;  /* row of the estimator's models; NULL: the best one */
    bool no_dispatch;   /* kernels alone, without the call of a framework that f32 tables contain */
    bool features;      /* what the trees see instead of predictions: for training them */
    /* Called for each row instead of predicting it, when set: nothing is written. measured_us: of
     * the row, which must have it. */
    weft_err (*on_row)(void *user, const weft_kernel *kernel, const weft_slice *slice, bool exact,
                       double measured_us, weft_diag *diag);
    void *user;
} weft_tool_kernels;

/* The device that a usual name stands for (H100-SXM-80GB); a name that is not known stays. */
const char *weft_tool_find_device(const char *name);
/* Nothing is written unless every row is good. */
WEFT_MUST_USE weft_err weft_tool_estimate_kernels(const weft_tool_kernels *options,
                                                  weft_diag *diag);

#endif
