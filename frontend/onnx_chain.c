/* Chains of nodes. */
#include "frontend/onnx_chain.h"

#include <stdarg.h>
#include <stdio.h>

void weft_chain__many(weft_chain *k, weft_op_id op, const weft_val *in, uint32_t n_in,
                      const weft_attr *attr, uint32_t n_attr, weft_val *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = (weft_val){0};
    if (k->err == WEFT_ERR_OK)
        k->err = weft_onnx__emit(k->c, op, in, n_in, attr, n_attr, out, n_out);
}

weft_val weft_chain__op(weft_chain *k, weft_op_id op, const weft_val *in, uint32_t n_in,
                        const weft_attr *attr, uint32_t n_attr)
{
    weft_val out;
    weft_chain__many(k, op, in, n_in, attr, n_attr, &out, 1);
    return out;
}

weft_val weft_chain__one(weft_chain *k, weft_op_id op, weft_val x)
{
    return weft_chain__op(k, op, &x, 1, NULL, 0);
}

weft_val weft_chain__two(weft_chain *k, weft_op_id op, weft_val a, weft_val b)
{
    return weft_chain__op(k, op, (weft_val[]){a, b}, 2, NULL, 0);
}

weft_val weft_chain__three(weft_chain *k, weft_op_id op, weft_val a, weft_val b, weft_val c)
{
    return weft_chain__op(k, op, (weft_val[]){a, b, c}, 3, NULL, 0);
}

weft_val weft_chain__dims(weft_chain *k, weft_op_id op, weft_val x, weft_attr_key key,
                          const weft_dim *dim, uint32_t n)
{
    weft_attr attr = {.key = (uint16_t)key, .kind = WEFT_KIND_DIMS, .n = n, .u = {.dims = dim}};
    return weft_chain__op(k, op, &x, 1, &attr, 1);
}

weft_val weft_chain__cast(weft_chain *k, weft_val x, weft_dtype to)
{
    if (k->err != WEFT_ERR_OK || weft_chain__dtype(k, x) == to)
        return x;
    weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, to);
    return weft_chain__op(k, WEFT_OP_CAST, &x, 1, &attr, 1);
}

weft_val weft_chain__reshape(weft_chain *k, weft_val x, const weft_dim *dim, uint32_t n)
{
    return weft_chain__dims(k, WEFT_OP_RESHAPE, x, WEFT_ATTR_SHAPE, dim, n);
}

weft_val weft_chain__transpose(weft_chain *k, weft_val x, const int64_t *perm, uint32_t n)
{
    weft_attr attr = WEFT_ATTR_OF_INTS(PERM, perm, n);
    return weft_chain__op(k, WEFT_OP_TRANSPOSE, &x, 1, &attr, 1);
}

weft_val weft_chain__unsqueeze(weft_chain *k, weft_val x, int64_t axis)
{
    return weft_chain__dims(k, WEFT_OP_UNSQUEEZE, x, WEFT_ATTR_AXES, &axis, 1);
}

weft_val weft_chain__squeeze(weft_chain *k, weft_val x, int64_t axis)
{
    return weft_chain__dims(k, WEFT_OP_SQUEEZE, x, WEFT_ATTR_AXES, &axis, 1);
}

weft_val weft_chain__slice(weft_chain *k, weft_val x, int64_t axis, weft_dim begin, weft_dim end)
{
    weft_attr attr[3] = {WEFT_ATTR_OF_DIMS(STARTS, &begin, 1), WEFT_ATTR_OF_DIMS(ENDS, &end, 1),
                         WEFT_ATTR_OF_DIMS(AXES, &axis, 1)};
    return weft_chain__op(k, WEFT_OP_SLICE, &x, 1, attr, 3);
}

weft_val weft_chain__concat(weft_chain *k, const weft_val *in, uint32_t n, int64_t axis)
{
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    return n == 1 ? in[0] : weft_chain__op(k, WEFT_OP_CONCAT, in, n, &attr, 1);
}

weft_val weft_chain__reduce(weft_chain *k, weft_op_id op, weft_val x, int64_t axis)
{
    weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_INT(KEEPDIMS, 1)};
    return weft_chain__op(k, op, &x, 1, attr, 2);
}

weft_val weft_chain__softmax(weft_chain *k, weft_val x, int64_t axis)
{
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    return weft_chain__op(k, WEFT_OP_SOFTMAX, &x, 1, &attr, 1);
}

weft_val weft_chain__matmul(weft_chain *k, weft_val x, weft_val y, bool trans, double alpha)
{
    weft_attr attr[2];
    uint32_t n = 0;
    if (trans)
        attr[n++] = WEFT_ATTR_OF_INT(TRANS_B, 1);
    if (alpha != 1.0)
        attr[n++] = WEFT_ATTR_OF_FLOAT(ALPHA, alpha);
    return weft_chain__op(k, WEFT_OP_MATMUL, (weft_val[]){x, y}, 2, attr, n);
}

weft_val weft_chain__scalar(weft_chain *k, weft_dtype dtype, double x)
{
    uint64_t element = 0;
    if (k->err != WEFT_ERR_OK)
        return (weft_val){0};
    weft_tensor t = {.dtype = dtype, .data = &element};
    weft_tensor_set_f64(&t, 0, x);
    return weft_onnx__const(k->c, dtype, NULL, 0, &element);
}

weft_val weft_chain__number(weft_chain *k, weft_val like, double x)
{
    return weft_chain__scalar(k, weft_chain__dtype(k, like), x);
}

weft_val weft_chain__f32(weft_chain *k, const float *x, const int64_t *dim, int32_t rank)
{
    if (k->err != WEFT_ERR_OK)
        return (weft_val){0};
    return weft_onnx__const(k->c, WEFT_DTYPE_F32, dim, rank, x);
}

weft_val weft_chain__i64(weft_chain *k, const int64_t *x, const int64_t *dim, int32_t rank)
{
    if (k->err != WEFT_ERR_OK)
        return (weft_val){0};
    return weft_onnx__const(k->c, WEFT_DTYPE_I64, dim, rank, x);
}

const weft_ttype *weft_chain__type(const weft_chain *k, weft_val v)
{
    static const weft_ttype none = {.dtype = WEFT_DTYPE_F32};
    return v.i ? weft_onnx__type(k->c, v) : &none;
}

weft_dtype weft_chain__dtype(const weft_chain *k, weft_val v)
{
    return (weft_dtype)weft_chain__type(k, v)->dtype;
}

void weft_chain__fail(weft_chain *k, weft_err err, const char *fmt, ...)
{
    char text[400];
    if (k->err != WEFT_ERR_OK)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    k->err = weft_onnx__fail(k->c, err, "%s", text);
}
