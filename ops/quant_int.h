/* Private to ops/: rounding and saturation of the quantised operators, and what the products of
 * bytes share. */
#ifndef WEFT_OPS_QUANT_INT_H
#define WEFT_OPS_QUANT_INT_H

#include "ops/ops.h"

#include <stdint.h>

/* x, already rounded, clamped to the range of an 8 or 16-bit integer type (others: i32). NaN gives
 * the lowest number. */
int64_t weft_quantize__saturate(weft_dtype dtype, double x);

/* y = x quantised to u8 by the range of its n elements, as dynamic_quantize_linear does, and
 * dequantised. y may be x. */
void weft_quantize__by_range(float *y, const float *x, int64_t n);

/* -- qlinear_matmul and qlinear_conv: qlinear.c --------------------------------------------- */

/* Sums of products in memory: [...][rows][cols][inner]. */
typedef struct weft_qlinear {
    int64_t rows, cols, inner;
} weft_qlinear;

/* Element types of the operands, the bias and the epilogue, and the element type of the result,
 * whose dims are in *out; `cols`: its columns or channels. */
weft_err weft_qlinear__infer(weft_infer_ctx *cx, weft_dim cols, weft_ttype *out);
/* The result from the exact sums. */
weft_err weft_qlinear__finish(weft_eval_ctx *cx, const int64_t *acc, weft_qlinear shape);
/* Index into a zero point or scale of `n` elements for row (or column) `i` of matrix `stack`: there
 * is one for all, one per row, or one per row of every matrix. */
static inline int64_t weft_qlinear__pick(int64_t n, int64_t rows, int64_t stack, int64_t i)
{
    return n == 1 ? 0 : n == rows ? i : (stack * rows + i) % n;
}

#endif
