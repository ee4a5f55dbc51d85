/* Private to frontend/: chains of nodes for hooks that expand an operator into several. The first
 * error stays in `err`, and from then on every call returns no value; the hook returns `err` at the
 * end. An omitted operand is the value {0}. */
#ifndef WEFT_FRONTEND_ONNX_CHAIN_H
#define WEFT_FRONTEND_ONNX_CHAIN_H

#include "frontend/onnx_int.h"

typedef struct weft_chain {
    weft_onnx_call *c;
    weft_err err;
} weft_chain;

/* Operator with operands and attributes; one result, or n results into out[]. */
weft_val weft_chain__op(weft_chain *k, weft_op_id op, const weft_val *in, uint32_t n_in,
                        const weft_attr *attr, uint32_t n_attr);
void weft_chain__many(weft_chain *k, weft_op_id op, const weft_val *in, uint32_t n_in,
                      const weft_attr *attr, uint32_t n_attr, weft_val *out, uint32_t n_out);
weft_val weft_chain__one(weft_chain *k, weft_op_id op, weft_val x);
weft_val weft_chain__two(weft_chain *k, weft_op_id op, weft_val a, weft_val b);
weft_val weft_chain__three(weft_chain *k, weft_op_id op, weft_val a, weft_val b, weft_val c);
/* x with attribute `key` of dims. */
weft_val weft_chain__dims(weft_chain *k, weft_op_id op, weft_val x, weft_attr_key key,
                          const weft_dim *dim, uint32_t n);

weft_val weft_chain__cast(weft_chain *k, weft_val x, weft_dtype to); /* x if it is `to` */
weft_val weft_chain__reshape(weft_chain *k, weft_val x, const weft_dim *dim, uint32_t n);
weft_val weft_chain__transpose(weft_chain *k, weft_val x, const int64_t *perm, uint32_t n);
weft_val weft_chain__unsqueeze(weft_chain *k, weft_val x, int64_t axis);
weft_val weft_chain__squeeze(weft_chain *k, weft_val x, int64_t axis);
/* [begin, end) of an axis. */
weft_val weft_chain__slice(weft_chain *k, weft_val x, int64_t axis, weft_dim begin, weft_dim end);
weft_val weft_chain__concat(weft_chain *k, const weft_val *in, uint32_t n, int64_t axis);
/* A reduction along one axis, which is kept with size 1. */
weft_val weft_chain__reduce(weft_chain *k, weft_op_id op, weft_val x, int64_t axis);
weft_val weft_chain__softmax(weft_chain *k, weft_val x, int64_t axis);
/* x @ y, y transposed in its last two dims if `trans`, times alpha. */
weft_val weft_chain__matmul(weft_chain *k, weft_val x, weft_val y, bool trans, double alpha);

/* A scalar of type `dtype`; `number` in the element type of `like`. */
weft_val weft_chain__scalar(weft_chain *k, weft_dtype dtype, double x);
weft_val weft_chain__number(weft_chain *k, weft_val like, double x);
/* Arrays of constants, which are copied. */
weft_val weft_chain__f32(weft_chain *k, const float *x, const int64_t *dim, int32_t rank);
weft_val weft_chain__i64(weft_chain *k, const int64_t *x, const int64_t *dim, int32_t rank);

/* Type of a value; a dummy after an error. */
const weft_ttype *weft_chain__type(const weft_chain *k, weft_val v);
weft_dtype weft_chain__dtype(const weft_chain *k, weft_val v);
/* Stores the error of a message. */
void weft_chain__fail(weft_chain *k, weft_err err, const char *fmt, ...) WEFT_PRINTF(3, 4);

#endif
