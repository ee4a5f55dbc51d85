/* `weft estimate --kernels`: reads a table of kernels and writes it with predictions. */
#ifndef WEFT_TOOLS_ESTIMATE_KERNELS_H
#define WEFT_TOOLS_ESTIMATE_KERNELS_H

#include "estimator/estimator.h"

#include <stdbool.h>

typedef struct weft_tool_kernels {
    const char *input;  /* CSV; "-": standard input */
    const char *output; /* NULL or "-": standard output */
    const char *gpu;    /* device of rows that name none; NULL: every row must name one */
    const char *slice;  /* slice of rows that name none; NULL or "": the whole device */
    const char *model;  /* model of the estimator; NULL: the best one */
    const weft_calibration *calibration; /* for rows of the device that it names; NULL: none */
    bool no_dispatch; /* f32 without the time of a framework's call, which published tables contain
                       */
    bool features;    /* write the features of the trees, for training, instead of predictions */
    /* If set, called for each row, and nothing is written. measured_us: the measurement of the
     * row, which must have one. */
    weft_err (*on_row)(void *user, const weft_kernel *kernel, const weft_slice *slice, bool exact,
                       double measured_us, weft_diag *diag);
    void *user;
} weft_tool_kernels;

/* Nothing is written unless every row is valid. */
WEFT_MUST_USE weft_err weft_tool_estimate_kernels(const weft_tool_kernels *options,
                                                  weft_diag *diag);

#endif
