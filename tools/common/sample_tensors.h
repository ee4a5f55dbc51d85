/* Synthetic inputs of programs, and the difference of two outputs. */
#ifndef WEFT_TOOLS_SAMPLE_TENSORS_H
#define WEFT_TOOLS_SAMPLE_TENSORS_H

#include "base/tensor.h"
#include "ir/bundle.h"

/* A symbol of a program given on the command line: NAME=VALUE. */
typedef struct weft_tool_dim {
    const char *name;
    int64_t value;
} weft_tool_dim;

/* Fills a tensor with synthetic elements: floats uniform in [-1, 1); integers 0 or 1, which are
 * valid as any index. */
void weft_tool_fill_tensor(weft_tensor *t);
/* Makes synthetic inputs with the sizes of the bucket of that batch size; symbols of the program
 * that `dim` names have the value given there. */
WEFT_MUST_USE weft_err weft_tool_make_inputs(const weft_bundle_program *p, int64_t batch,
                                             const weft_tool_dim *dim, size_t n_dim,
                                             weft_arena *arena, weft_diag *diag, weft_tensor *in);

/* Returns the largest difference of two tensors of one type, divided by the largest element of
 * `a`; INFINITY if the shapes differ or exactly one of two elements is NaN. */
double weft_tool_difference(const weft_tensor *a, const weft_tensor *b);

#endif
