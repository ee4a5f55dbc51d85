/* What eval and work functions share: conversion of strided runs of elements, iteration with
 * broadcasting, parameters, bytes. */
#include "base/f16.h"
#include "base/narrow.h"
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- Parameters ----------------------------------------------------------------------------- */

weft_err weft_eval__axis(weft_eval_ctx *cx, int64_t axis, int32_t rank, uint32_t *out)
{
    if (!weft_axis__fix(axis, (uint32_t)rank, out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %lld of a tensor of rank %d", (long long)axis,
                         rank);
    return WEFT_ERR_OK;
}

bool weft_eval_param(weft_eval_ctx *cx, uint32_t in, weft_attr_key key, const int64_t **out,
                     uint32_t *out_n)
{
    *out = NULL;
    *out_n = 0;
    const weft_attr *a = weft_attrs_find(cx->attrs, key);
    if (a != NULL && a->kind == WEFT_KIND_INT) {
        *out = &a->u.i;
        *out_n = 1;
        return true;
    }
    if (a != NULL) {
        const int64_t *list = weft_attrs_ints(cx->attrs, key, out_n);
        if (list == NULL && a->n > 0)
            return false;
        *out = list != NULL ? list : weft_arena_alloc(cx->scratch, sizeof **out);
        return true;
    }
    const weft_tensor *t = weft_eval__in(cx, in);
    if (t == NULL || weft_dtype_is_float(t->dtype))
        return false;
    int64_t n = weft_tensor_numel(t);
    if (n < 0 || n > UINT32_MAX)
        return false;
    int64_t *list = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *list);
    weft_eval__load_i64(t, 0, 1, n, list);
    *out = list;
    *out_n = (uint32_t)n;
    return true;
}

/* -- Element conversion --------------------------------------------------------------------- */

/* Saturating, NaN to 0, towards zero. The bounds are exact powers of two in double. */
static int64_t to_i64(double x)
{
    if (x != x)
        return 0;
    if (x >= 9223372036854775808.0)
        return INT64_MAX;
    return x < -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

static uint64_t to_u64(double x)
{
    if (!(x > 0))
        return 0;
    return x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x;
}

#define SATURATE(x, lo, hi) ((x) != (x) ? 0 : (x) < (lo) ? (lo) : (x) > (hi) ? (hi) : (x))

static double narrow_value(weft_dtype dtype, uint8_t code)
{
    return weft_dtype_is_float(dtype) ? weft_narrow_to_f64(dtype, code)
                                      : (double)weft_narrow_to_int(dtype, code);
}

/* Floats round and saturate; integers keep the low bits, also of a float that was cut off. */
static uint8_t narrow_code(weft_dtype dtype, double x)
{
    return weft_dtype_is_float(dtype) ? weft_narrow_from_f64(dtype, x, true)
                                      : weft_narrow_from_int(dtype, to_i64(x));
}

/* Loads: one body for the three destination types. F16(x) converts the 16-bit floats. */
#define DEFINE_LOAD(name, D)                                                                    \
    void weft_eval__load_##name(const weft_tensor *t, int64_t first, int64_t stride, int64_t n, \
                                D *dst)                                                         \
    {                                                                                           \
        switch (t->dtype) {                                                                     \
            LOAD_CASE(F32, float, D, (D)p[i * stride])                                          \
            LOAD_CASE(F64, double, D, (D)p[i * stride])                                         \
            LOAD_CASE(F16, uint16_t, D, (D)weft_f16_to_f32(p[i * stride]))                      \
            LOAD_CASE(BF16, uint16_t, D, (D)weft_bf16_to_f32(p[i * stride]))                    \
            LOAD_CASE(I8, int8_t, D, (D)p[i * stride])                                          \
            LOAD_CASE(I16, int16_t, D, (D)p[i * stride])                                        \
            LOAD_CASE(I32, int32_t, D, (D)p[i * stride])                                        \
            LOAD_CASE(I64, int64_t, D, (D)p[i * stride])                                        \
            LOAD_CASE(U8, uint8_t, D, (D)p[i * stride])                                         \
            LOAD_CASE(U16, uint16_t, D, (D)p[i * stride])                                       \
            LOAD_CASE(U32, uint32_t, D, (D)p[i * stride])                                       \
            LOAD_CASE(U64, uint64_t, D, (D)p[i * stride])                                       \
            LOAD_CASE(BOOL, uint8_t, D, (D)(p[i * stride] != 0))                                \
        default: {                                                                              \
            const uint8_t *p = t->data;                                                         \
            for (int64_t i = 0; i < n; i++)                                                     \
                dst[i] = (D)narrow_value(t->dtype, p[first + i * stride]);                      \
        }                                                                                       \
        }                                                                                       \
    }
#define LOAD_CASE(DT, S, D, expr)                               \
    case WEFT_DTYPE_##DT: {                                     \
        const S *p = n > 0 ? (const S *)t->data + first : NULL; \
        for (int64_t i = 0; i < n; i++)                         \
            dst[i] = expr;                                      \
        break;                                                  \
    }

DEFINE_LOAD(f32, float)
DEFINE_LOAD(f64, double)

static void load_float_as_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                              int64_t *dst)
{
    for (int64_t i = 0; i < n; i++) {
        double x;
        weft_eval__load_f64(t, first + i * stride, 1, 1, &x);
        dst[i] = to_i64(x);
    }
}

static void load_narrow_as_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                               int64_t *dst)
{
    const uint8_t *p = t->data;
    for (int64_t i = 0; i < n; i++)
        dst[i] = weft_narrow_to_int(t->dtype, p[first + i * stride]);
}

void weft_eval__load_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                         int64_t *dst)
{
    switch (t->dtype) {
        LOAD_CASE(I8, int8_t, int64_t, p[i * stride])
        LOAD_CASE(I16, int16_t, int64_t, p[i * stride])
        LOAD_CASE(I32, int32_t, int64_t, p[i * stride])
        LOAD_CASE(I64, int64_t, int64_t, p[i * stride])
        LOAD_CASE(U8, uint8_t, int64_t, p[i * stride])
        LOAD_CASE(U16, uint16_t, int64_t, p[i * stride])
        LOAD_CASE(U32, uint32_t, int64_t, p[i * stride])
        LOAD_CASE(U64, uint64_t, int64_t, (int64_t)p[i * stride])
        LOAD_CASE(BOOL, uint8_t, int64_t, p[i * stride] != 0)
    default:
        if (weft_dtype_is_float(t->dtype))
            load_float_as_i64(t, first, stride, n, dst);
        else
            load_narrow_as_i64(t, first, stride, n, dst);
    }
}

#define STORE_CASE(DT, D, expr)                     \
    case WEFT_DTYPE_##DT: {                         \
        D *p = n > 0 ? (D *)t->data + first : NULL; \
        for (int64_t i = 0; i < n; i++)             \
            p[i * stride] = (D)(expr);              \
        break;                                      \
    }
/* A double goes to 16 bits by way of f32. */
#define DEFINE_STORE(name, S)                                                                    \
    void weft_eval__store_##name(const weft_tensor *t, int64_t first, int64_t stride, int64_t n, \
                                 const S *src)                                                   \
    {                                                                                            \
        switch (t->dtype) {                                                                      \
            STORE_CASE(F32, float, src[i])                                                       \
            STORE_CASE(F64, double, src[i])                                                      \
            STORE_CASE(F16, uint16_t, weft_f16_from_f32((float)src[i]))                          \
            STORE_CASE(BF16, uint16_t, weft_bf16_from_f32((float)src[i]))                        \
            STORE_CASE(I8, int8_t, SATURATE(src[i], -128, 127))                                  \
            STORE_CASE(I16, int16_t, SATURATE(src[i], -32768, 32767))                            \
            STORE_CASE(I32, int32_t, SATURATE((double)src[i], INT32_MIN, INT32_MAX))             \
            STORE_CASE(I64, int64_t, to_i64((double)src[i]))                                     \
            STORE_CASE(U8, uint8_t, SATURATE(src[i], 0, 255))                                    \
            STORE_CASE(U16, uint16_t, SATURATE(src[i], 0, 65535))                                \
            STORE_CASE(U32, uint32_t, SATURATE((double)src[i], 0, UINT32_MAX))                   \
            STORE_CASE(U64, uint64_t, to_u64((double)src[i]))                                    \
            STORE_CASE(BOOL, uint8_t, src[i] != 0)                                               \
        default: {                                                                               \
            uint8_t *p = t->data;                                                                \
            for (int64_t i = 0; i < n; i++)                                                      \
                p[first + i * stride] = narrow_code(t->dtype, (double)src[i]);                   \
        }                                                                                        \
        }                                                                                        \
    }

DEFINE_STORE(f32, float)
DEFINE_STORE(f64, double)

void weft_eval__store_i64(const weft_tensor *t, int64_t first, int64_t stride, int64_t n,
                          const int64_t *src)
{
    switch (t->dtype) {
        STORE_CASE(F32, float, src[i])
        STORE_CASE(F64, double, src[i])
        STORE_CASE(F16, uint16_t, weft_f16_from_f32((float)src[i]))
        STORE_CASE(BF16, uint16_t, weft_bf16_from_f32((float)src[i]))
        STORE_CASE(I8, int8_t, src[i])
        STORE_CASE(I16, int16_t, src[i])
        STORE_CASE(I32, int32_t, src[i])
        STORE_CASE(I64, int64_t, src[i])
        STORE_CASE(U8, uint8_t, src[i])
        STORE_CASE(U16, uint16_t, src[i])
        STORE_CASE(U32, uint32_t, src[i])
        STORE_CASE(U64, uint64_t, src[i])
        STORE_CASE(BOOL, uint8_t, src[i] != 0)
    default: {
        uint8_t *p = t->data;
        bool is_float = weft_dtype_is_float(t->dtype);
        for (int64_t i = 0; i < n; i++)
            p[first + i * stride] = is_float ? weft_narrow_from_f64(t->dtype, (double)src[i], true)
                                             : weft_narrow_from_int(t->dtype, src[i]);
    }
    }
}

#define DEFINE_WHOLE(name, D, DT)                                             \
    const D *weft_eval__##name(weft_eval_ctx *cx, const weft_tensor *t)       \
    {                                                                         \
        if (t->dtype == WEFT_DTYPE_##DT && t->data != NULL)                   \
            return t->data;                                                   \
        int64_t n = weft_tensor_numel(t);                                     \
        D *copy = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *copy); \
        weft_eval__load_##name(t, 0, 1, n, copy);                             \
        return copy;                                                          \
    }

DEFINE_WHOLE(f32, float, F32)
DEFINE_WHOLE(f64, double, F64)
DEFINE_WHOLE(i64, int64_t, I64)

weft_arith weft_eval__arith(weft_dtype dtype)
{
    if (weft_dtype_is_narrow(dtype))
        return weft_dtype_is_float(dtype) ? WEFT_ARITH_F32 : WEFT_ARITH_I64;
    switch (dtype) {
    case WEFT_DTYPE_F32:
    case WEFT_DTYPE_F16:
    case WEFT_DTYPE_BF16:
        return WEFT_ARITH_F32;
    case WEFT_DTYPE_F64:
        return WEFT_ARITH_F64;
    case WEFT_DTYPE_U64:
        return WEFT_ARITH_U64;
    default:
        return WEFT_ARITH_I64;
    }
}

/* -- Dims and iteration --------------------------------------------------------------------- */

void weft_dims__strides(const int64_t *dim, int32_t rank, int64_t *stride)
{
    int64_t s = 1;
    for (int32_t i = rank - 1; i >= 0; i--) {
        stride[i] = s;
        s *= dim[i];
    }
}

int64_t weft_dims__product(const int64_t *dim, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t i = from; i < to; i++)
        n *= dim[i];
    return n;
}

bool weft_index__next(int64_t *idx, const int64_t *dim, int32_t rank)
{
    for (int32_t i = rank - 1; i >= 0; i--) {
        if (++idx[i] < dim[i])
            return true;
        idx[i] = 0;
    }
    return false;
}

/* Dims k and k + 1 are one for every operand. */
static bool can_fuse(const weft_iter *it, int32_t k, int64_t next_dim,
                     const int64_t (*stride)[WEFT_RANK_MAX], int32_t next)
{
    for (int32_t j = 0; j < it->n; j++)
        if (it->stride[j][k] != stride[j][next] * next_dim)
            return false;
    return true;
}

void weft_iter__strided(weft_iter *it, const int64_t *dim, int32_t rank,
                        const int64_t (*stride)[WEFT_RANK_MAX], int32_t n)
{
    memset(it, 0, sizeof *it);
    it->n = n;
    int32_t r = 0;
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] == 0)
            it->done = true;
        if (dim[i] == 1)
            continue;
        if (r > 0 && can_fuse(it, r - 1, dim[i], stride, i)) {
            it->dim[r - 1] *= dim[i];
        } else {
            it->dim[r] = dim[i];
            r++;
        }
        for (int32_t j = 0; j < n; j++)
            it->stride[j][r - 1] = stride[j][i];
    }
    it->inner = 1;
    if (r > 0) {
        r--;
        it->inner = it->dim[r];
        for (int32_t j = 0; j < n; j++)
            it->inner_stride[j] = it->stride[j][r];
    }
    it->rank = r;
}

bool weft_iter__broadcast(weft_iter *it, const weft_tensor *out, const weft_tensor *const *in,
                          int32_t n)
{
    int64_t stride[WEFT_ITER_MAX][WEFT_RANK_MAX] = {{0}};
    if (n > WEFT_ITER_MAX)
        return false;
    for (int32_t j = 0; j < n; j++) {
        int64_t s = 1;
        int32_t lead = out->rank - in[j]->rank;
        if (lead < 0)
            return false;
        for (int32_t i = in[j]->rank - 1; i >= 0; i--) {
            int64_t d = in[j]->dim[i];
            if (d != 1 && d != out->dim[lead + i])
                return false;
            stride[j][lead + i] = d == 1 ? 0 : s;
            s *= d;
        }
    }
    weft_iter__strided(it, out->dim, out->rank, (const int64_t(*)[WEFT_RANK_MAX])stride, n);
    return true;
}

void weft_iter__next(weft_iter *it)
{
    for (int32_t i = it->rank - 1; i >= 0; i--) {
        it->idx[i]++;
        for (int32_t j = 0; j < it->n; j++)
            it->at[j] += it->stride[j][i];
        if (it->idx[i] < it->dim[i])
            return;
        for (int32_t j = 0; j < it->n; j++)
            it->at[j] -= it->stride[j][i] * it->dim[i];
        it->idx[i] = 0;
    }
    it->done = true;
}

/* -- Work ----------------------------------------------------------------------------------- */

double weft_work__numel(const weft_work_operand *t)
{
    if (!t->present)
        return 0;
    double n = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        n *= (double)t->dim[i];
    return n;
}

weft_work weft_work__bytes(const weft_work_ctx *cx, double flops)
{
    weft_work w = {.flops = flops};
    for (uint32_t i = 0; i < cx->n_in; i++) {
        double bytes =
            weft_work__numel(&cx->in[i]) * (double)weft_dtype_size((weft_dtype)cx->in[i].dtype);
        if (cx->in[i].is_weight)
            w.weight_bytes += bytes;
        else
            w.bytes_read += bytes;
    }
    for (uint32_t i = 0; i < cx->n_out; i++)
        w.bytes_written +=
            weft_work__numel(&cx->out[i]) * (double)weft_dtype_size((weft_dtype)cx->out[i].dtype);
    return w;
}
