/* Building expressions, with an error that sticks. */
#include "frontend/onnx_build.h"

#include <stdarg.h>
#include <stdio.h>

const weft_ttype *weft_onnx__of(const weft_onnx_build *b, weft_val v)
{
    static const weft_ttype none = {0};
    return v.i ? weft_onnx__type(b->c, v) : &none;
}

weft_dtype weft_onnx__dtype_of(const weft_onnx_build *b, weft_val v)
{
    return (weft_dtype)weft_onnx__of(b, v)->dtype;
}

void weft_onnx__stop(weft_onnx_build *b, weft_err err, const char *fmt, ...)
{
    char text[400];
    if (b->err != WEFT_ERR_OK)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    b->err = weft_onnx__fail(b->c, err, "%s", text);
}

weft_val weft_onnx__make(weft_onnx_build *b, weft_op_id op, const weft_val *in, uint32_t n_in,
                         const weft_attr *attr, uint32_t n_attr)
{
    weft_val out = {0};
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__emit(b->c, op, in, n_in, attr, n_attr, &out, 1);
    return b->err == WEFT_ERR_OK ? out : (weft_val){0};
}

void weft_onnx__make_many(weft_onnx_build *b, weft_op_id op, const weft_val *in, uint32_t n_in,
                          const weft_attr *attr, uint32_t n_attr, weft_val *out, uint32_t n_out)
{
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = (weft_val){0};
    if (b->err == WEFT_ERR_OK)
        b->err = weft_onnx__emit(b->c, op, in, n_in, attr, n_attr, out, n_out);
}

weft_val weft_onnx__make_dims(weft_onnx_build *b, weft_op_id op, weft_val x, weft_attr_key key,
                              const weft_dim *dim, uint32_t n)
{
    const weft_attr attr = {
        .key = (uint16_t)key, .kind = WEFT_KIND_DIMS, .n = n, .u = {.dims = dim}};
    return weft_onnx__make(b, op, &x, 1, &attr, 1);
}

weft_val weft_onnx__make1(weft_onnx_build *b, weft_op_id op, weft_val x)
{
    return weft_onnx__make(b, op, &x, 1, NULL, 0);
}

weft_val weft_onnx__make2(weft_onnx_build *b, weft_op_id op, weft_val x, weft_val y)
{
    const weft_val in[2] = {x, y};
    return weft_onnx__make(b, op, in, 2, NULL, 0);
}

weft_val weft_onnx__make3(weft_onnx_build *b, weft_op_id op, weft_val x, weft_val y, weft_val z)
{
    const weft_val in[3] = {x, y, z};
    return weft_onnx__make(b, op, in, 3, NULL, 0);
}

weft_val weft_onnx__reshape(weft_onnx_build *b, weft_val x, const weft_dim *dim, uint32_t n)
{
    const weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(SHAPE, dim, n), WEFT_ATTR_OF_INT(ALLOWZERO, 1)};
    return weft_onnx__make(b, WEFT_OP_RESHAPE, &x, 1, attr, 2);
}

weft_val weft_onnx__transpose(weft_onnx_build *b, weft_val x, const int64_t *perm)
{
    const weft_attr attr = {.key = WEFT_ATTR_PERM,
                            .kind = WEFT_KIND_INTS,
                            .n = weft_onnx__of(b, x)->rank,
                            .u = {.ints = perm}};
    return weft_onnx__make(b, WEFT_OP_TRANSPOSE, &x, 1, &attr, 1);
}

weft_val weft_onnx__cast(weft_onnx_build *b, weft_val x, weft_dtype to)
{
    const weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, to);
    if (weft_onnx__of(b, x)->dtype == to)
        return x;
    return weft_onnx__make(b, WEFT_OP_CAST, &x, 1, &attr, 1);
}

weft_val weft_onnx__slice(weft_onnx_build *b, weft_val x, uint32_t axis, weft_dim start,
                          weft_dim end)
{
    const weft_dim at = (weft_dim)axis;
    const weft_attr attr[3] = {WEFT_ATTR_OF_DIMS(STARTS, &start, 1),
                               WEFT_ATTR_OF_DIMS(ENDS, &end, 1), WEFT_ATTR_OF_DIMS(AXES, &at, 1)};
    return weft_onnx__make(b, WEFT_OP_SLICE, &x, 1, attr, 3);
}

weft_val weft_onnx__concat(weft_onnx_build *b, const weft_val *x, uint32_t n, int64_t axis)
{
    const weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    return n == 1 ? x[0] : weft_onnx__make(b, WEFT_OP_CONCAT, x, n, &attr, 1);
}

weft_val weft_onnx__unsqueeze(weft_onnx_build *b, weft_val x, int64_t axis)
{
    const weft_dim at = axis;
    const weft_attr attr = WEFT_ATTR_OF_DIMS(AXES, &at, 1);
    return weft_onnx__make(b, WEFT_OP_UNSQUEEZE, &x, 1, &attr, 1);
}

weft_val weft_onnx__squeeze(weft_onnx_build *b, weft_val x, int64_t axis)
{
    return weft_onnx__make_dims(b, WEFT_OP_SQUEEZE, x, WEFT_ATTR_AXES, &axis, 1);
}

weft_val weft_onnx__reduce(weft_onnx_build *b, weft_op_id op, weft_val x, int64_t axis)
{
    const weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(AXES, &axis, 1), WEFT_ATTR_OF_INT(KEEPDIMS, 1)};
    return weft_onnx__make(b, op, &x, 1, attr, 2);
}

weft_val weft_onnx__softmax(weft_onnx_build *b, weft_val x, int64_t axis)
{
    const weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
    return weft_onnx__make(b, WEFT_OP_SOFTMAX, &x, 1, &attr, 1);
}

weft_val weft_onnx__matmul(weft_onnx_build *b, weft_val x, weft_val y, bool trans, double alpha)
{
    weft_attr attr[2];
    uint32_t n = 0;
    if (trans)
        attr[n++] = WEFT_ATTR_OF_INT(TRANS_B, 1);
    if (alpha != 1.0)
        attr[n++] = WEFT_ATTR_OF_FLOAT(ALPHA, alpha);
    const weft_val in[2] = {x, y};
    return weft_onnx__make(b, WEFT_OP_MATMUL, in, 2, attr, n);
}

weft_val weft_onnx__scalar(weft_onnx_build *b, weft_dtype dtype, double x)
{
    uint64_t element = 0;
    if (b->err != WEFT_ERR_OK)
        return (weft_val){0};
    weft_tensor t = {.dtype = dtype, .data = &element};
    weft_tensor_set_f64(&t, 0, x);
    return weft_onnx__const(b->c, dtype, NULL, 0, &element);
}

weft_val weft_onnx__number(weft_onnx_build *b, weft_val like, double x)
{
    return weft_onnx__scalar(b, weft_onnx__dtype_of(b, like), x);
}

weft_val weft_onnx__f32s(weft_onnx_build *b, const float *x, const int64_t *dim, int32_t rank)
{
    if (b->err != WEFT_ERR_OK)
        return (weft_val){0};
    return weft_onnx__const(b->c, WEFT_DTYPE_F32, dim, rank, x);
}

weft_val weft_onnx__i64s(weft_onnx_build *b, const int64_t *x, const int64_t *dim, int32_t rank)
{
    if (b->err != WEFT_ERR_OK)
        return (weft_val){0};
    return weft_onnx__const(b->c, WEFT_DTYPE_I64, dim, rank, x);
}

weft_val weft_onnx__iota(weft_onnx_build *b, weft_dim start, weft_dim limit)
{
    const weft_dim one = 1;
    const weft_attr attr[4] = {
        WEFT_ATTR_OF_DIMS(START, &start, 1), WEFT_ATTR_OF_DIMS(LIMIT, &limit, 1),
        WEFT_ATTR_OF_DIMS(DELTA, &one, 1), WEFT_ATTR_OF_DTYPE(DTYPE, WEFT_DTYPE_I64)};
    return weft_onnx__make(b, WEFT_OP_RANGE, NULL, 0, attr, 4);
}

weft_dim weft_onnx__times(const weft_onnx_build *b, weft_dim x, weft_dim y)
{
    return weft_dim_mul(weft_module_dims(b->c->cx->m), x, y);
}

weft_dim weft_onnx__plus(const weft_onnx_build *b, weft_dim x, weft_dim y)
{
    return weft_dim_add(weft_module_dims(b->c->cx->m), x, y);
}

weft_dim weft_onnx__minus(const weft_onnx_build *b, weft_dim x, weft_dim y)
{
    return weft_dim_sub(weft_module_dims(b->c->cx->m), x, y);
}
