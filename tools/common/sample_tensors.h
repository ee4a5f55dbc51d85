/* Generated inputs for programs that are measured, and the difference of two answers. */
#ifndef WEFT_TOOLS_SAMPLE_TENSORS_H
#define WEFT_TOOLS_SAMPLE_TENSORS_H

#include "base/tensor.h"
#include "ir/bundle.h"

/* A symbol of a program given on the command line: NAME=VALUE. */
typedef struct weft_tool_dim {
    const char *name;
    int64_t value;
} weft_tool_dim;

/* Made-up elements: floats uniform in [-1, 1); integers 0 or 1, which every index accepts. */
void weft_tool_fill_tensor(weft_tensor *t);
/* Made-up inputs of the bucket with that batch size, and with the symbols of `dim` (those that the
 * program has) at their values. */
WEFT_MUST_USE weft_err weft_tool_make_inputs(const weft_bundle_program *p, int64_t batch,
                                             const weft_tool_dim *dim, size_t n_dim,
                                             weft_arena *arena, weft_diag *diag, weft_tensor *in);

/* Largest difference of two tensors of one type, over the largest element of `a`; INFINITY when
 * shapes differ or just one of two elements is a number. */
double weft_tool_difference(const weft_tensor *a, const weft_tensor *b);

#endif
