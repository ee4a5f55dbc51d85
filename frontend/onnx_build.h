/* Building expressions for hooks that expand an operator into several. The first error sticks: the
 * functions then return no value and do nothing, so that a hook checks once, at its end. */
#ifndef WEFT_FRONTEND_ONNX_BUILD_H
#define WEFT_FRONTEND_ONNX_BUILD_H

#include "frontend/onnx_int.h"

typedef struct weft_onnx_build {
    weft_onnx_call *c;
    weft_err err;
} weft_onnx_build;

/* Rank 0 when there is no value. */
const weft_ttype *weft_onnx__of(const weft_onnx_build *b, weft_val v);
weft_dtype weft_onnx__dtype_of(const weft_onnx_build *b, weft_val v);
/* The error of a message, unless there is one already. */
void weft_onnx__stop(weft_onnx_build *b, weft_err err, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* A node with one result. Operands of 2 and 3 may be none. */
weft_val weft_onnx__make(weft_onnx_build *b, weft_op_id op, const weft_val *in, uint32_t n_in,
                         const weft_attr *attr, uint32_t n_attr);
weft_val weft_onnx__make1(weft_onnx_build *b, weft_op_id op, weft_val x);
weft_val weft_onnx__make2(weft_onnx_build *b, weft_op_id op, weft_val x, weft_val y);
weft_val weft_onnx__make3(weft_onnx_build *b, weft_op_id op, weft_val x, weft_val y, weft_val z);
void weft_onnx__make_many(weft_onnx_build *b, weft_op_id op, const weft_val *in, uint32_t n_in,
                          const weft_attr *attr, uint32_t n_attr, weft_val *out, uint32_t n_out);
/* x with attribute `key` of dims. */
weft_val weft_onnx__make_dims(weft_onnx_build *b, weft_op_id op, weft_val x, weft_attr_key key,
                              const weft_dim *dim, uint32_t n);
weft_val weft_onnx__reshape(weft_onnx_build *b, weft_val x, const weft_dim *dim, uint32_t n);
/* perm has as many entries as x has dims. */
weft_val weft_onnx__transpose(weft_onnx_build *b, weft_val x, const int64_t *perm);
weft_val weft_onnx__cast(weft_onnx_build *b, weft_val x, weft_dtype to);
/* x[start .. end - 1] along an axis >= 0. */
weft_val weft_onnx__slice(weft_onnx_build *b, weft_val x, uint32_t axis, weft_dim start,
                          weft_dim end);
weft_val weft_onnx__concat(weft_onnx_build *b, const weft_val *x, uint32_t n, int64_t axis);
/* A dim of size 1 at `axis`, counted in the result. */
weft_val weft_onnx__unsqueeze(weft_onnx_build *b, weft_val x, int64_t axis);
weft_val weft_onnx__squeeze(weft_onnx_build *b, weft_val x, int64_t axis);
/* A reduction along one axis, which is kept with size 1. */
weft_val weft_onnx__reduce(weft_onnx_build *b, weft_op_id op, weft_val x, int64_t axis);
weft_val weft_onnx__softmax(weft_onnx_build *b, weft_val x, int64_t axis);
/* x y times alpha; y is transposed in its last two dims if `trans`. */
weft_val weft_onnx__matmul(weft_onnx_build *b, weft_val x, weft_val y, bool trans, double alpha);
/* A scalar of a type, or of the element type of a value. */
weft_val weft_onnx__scalar(weft_onnx_build *b, weft_dtype dtype, double x);
weft_val weft_onnx__number(weft_onnx_build *b, weft_val like, double x);
/* Constants, which are copied. */
weft_val weft_onnx__f32s(weft_onnx_build *b, const float *x, const int64_t *dim, int32_t rank);
weft_val weft_onnx__i64s(weft_onnx_build *b, const int64_t *x, const int64_t *dim, int32_t rank);
/* i64: start, start + 1, ..., limit - 1 */
weft_val weft_onnx__iota(weft_onnx_build *b, weft_dim start, weft_dim limit);
/* Product of dims. */
weft_dim weft_onnx__times(const weft_onnx_build *b, weft_dim x, weft_dim y);
weft_dim weft_onnx__plus(const weft_onnx_build *b, weft_dim x, weft_dim y);
weft_dim weft_onnx__minus(const weft_onnx_build *b, weft_dim x, weft_dim y);

#endif
