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

bool weft_tool_same_shape(const weft_tensor *a, const weft_tensor *b);
/* Returns the largest difference of two tensors, divided by the largest finite magnitude of `want`
 * (at least 1e-6). NaN equals NaN, an infinity only itself; INFINITY if types or shapes differ, or
 * one of two elements is not finite. */
double weft_tool_difference(const weft_tensor *want, const weft_tensor *got);

#endif
