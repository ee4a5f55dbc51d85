/* Element access with conversion; slow. Evaluation converts whole runs (ops/op_eval.c). */
#include "base/tensor.h"

#include "base/f16.h"
#include "base/narrow.h"
#include "base/num.h"

#include <math.h>
#include <string.h>

int64_t weft_numel(const int64_t *dim, int32_t rank)
{
    int64_t n = 1;
    bool over = false;
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return -1;
        if (dim[i] == 0)
            n = 0;
    }
    /* A dimension of 0 makes the product 0 however large the others are. */
    for (int32_t i = 0; i < rank && n != 0 && !over; i++)
        over = !weft_i64_mul(n, dim[i], &n) || n > WEFT_NUMEL_MAX;
    return over ? -1 : n;
}

static int64_t saturate_i64(double x)
{
    if (isnan(x))
        return 0;
    if (x >= 0x1p63)
        return INT64_MAX;
    return x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

static uint64_t saturate_u64(double x)
{
    if (!(x > 0))
        return 0;
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

static int64_t clamp(int64_t x, int64_t lo, int64_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Rounds to odd: towards zero, with the last bit set if the result is inexact. Rounding the result
 * again, to fewer bits, is then equal to rounding x directly. */
static float round_odd(double x)
{
    float f = (float)x;
    if (isnan(x) || (double)f == x)
        return f;
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if (fabs((double)f) > fabs(x))
        u--;
    u |= 1;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Weights in mapped files may be unaligned. */
#define DEFINE_LOAD(name, type)                                                \
    static type name(const weft_tensor *t, int64_t i)                          \
    {                                                                          \
        type x;                                                                \
        memcpy(&x, (const uint8_t *)t->data + (size_t)i * sizeof x, sizeof x); \
        return x;                                                              \
    }
DEFINE_LOAD(load_f32, float)
DEFINE_LOAD(load_f64, double)
DEFINE_LOAD(load_i8, int8_t)
DEFINE_LOAD(load_i16, int16_t)
DEFINE_LOAD(load_i32, int32_t)
DEFINE_LOAD(load_i64, int64_t)
DEFINE_LOAD(load_u8, uint8_t)
DEFINE_LOAD(load_u16, uint16_t)
DEFINE_LOAD(load_u32, uint32_t)
DEFINE_LOAD(load_u64, uint64_t)
#undef DEFINE_LOAD

double weft_tensor_get_f64(const weft_tensor *t, int64_t i)
{
    if (weft_dtype_is_narrow(t->dtype) && weft_dtype_is_float(t->dtype))
        return weft_narrow_to_f64(t->dtype, load_u8(t, i));
    switch (t->dtype) {
    case WEFT_DTYPE_F32:
        return (double)load_f32(t, i);
    case WEFT_DTYPE_F64:
        return load_f64(t, i);
    case WEFT_DTYPE_F16:
        return (double)weft_f16_to_f32(load_u16(t, i));
    case WEFT_DTYPE_BF16:
        return (double)weft_bf16_to_f32(load_u16(t, i));
    case WEFT_DTYPE_U64:
        return (double)load_u64(t, i);
    default:
        return (double)weft_tensor_get_i64(t, i);
    }
}

int64_t weft_tensor_get_i64(const weft_tensor *t, int64_t i)
{
    if (weft_dtype_is_narrow(t->dtype))
        return weft_dtype_is_float(t->dtype)
                   ? saturate_i64(weft_narrow_to_f64(t->dtype, load_u8(t, i)))
                   : weft_narrow_to_int(t->dtype, load_u8(t, i));
    switch (t->dtype) {
    case WEFT_DTYPE_I8:
        return load_i8(t, i);
    case WEFT_DTYPE_I16:
        return load_i16(t, i);
    case WEFT_DTYPE_I32:
        return load_i32(t, i);
    case WEFT_DTYPE_I64:
        return load_i64(t, i);
    case WEFT_DTYPE_U8:
        return load_u8(t, i);
    case WEFT_DTYPE_U16:
        return load_u16(t, i);
    case WEFT_DTYPE_U32:
        return load_u32(t, i);
    case WEFT_DTYPE_U64:
        return load_u64(t, i) > INT64_MAX ? INT64_MAX : (int64_t)load_u64(t, i);
    case WEFT_DTYPE_BOOL:
        return load_u8(t, i) != 0;
    case WEFT_DTYPE_F32:
    case WEFT_DTYPE_F64:
    case WEFT_DTYPE_F16:
    case WEFT_DTYPE_BF16:
        return saturate_i64(weft_tensor_get_f64(t, i));
    default:
        return 0;
    }
}

#define PUT(type, value) (((type *)t->data)[i] = (type)(value))

void weft_tensor_set_f64(const weft_tensor *t, int64_t i, double x)
{
    if (weft_dtype_is_narrow(t->dtype) && weft_dtype_is_float(t->dtype)) {
        PUT(uint8_t, weft_narrow_from_f64(t->dtype, x, true));
        return;
    }
    switch (t->dtype) {
    case WEFT_DTYPE_F32:
        PUT(float, x);
        return;
    case WEFT_DTYPE_F64:
        PUT(double, x);
        return;
    case WEFT_DTYPE_F16:
        PUT(uint16_t, weft_f16_from_f32(round_odd(x)));
        return;
    case WEFT_DTYPE_BF16:
        PUT(uint16_t, weft_bf16_from_f32(round_odd(x)));
        return;
    case WEFT_DTYPE_U64:
        PUT(uint64_t, saturate_u64(x));
        return;
    case WEFT_DTYPE_BOOL:
        PUT(uint8_t, x != 0);
        return;
    default:
        weft_tensor_set_i64(t, i, saturate_i64(x));
        return;
    }
}

static void set_narrow(const weft_tensor *t, int64_t i, int64_t x)
{
    if (weft_dtype_is_float(t->dtype)) {
        PUT(uint8_t, weft_narrow_from_f64(t->dtype, (double)x, true));
        return;
    }
    int64_t values = (int64_t)1 << weft_dtype_bits(t->dtype);
    int64_t lo = weft_dtype_get_class(t->dtype) == WEFT_CLASS_SIGNED ? -values / 2 : 0;
    PUT(uint8_t, weft_narrow_from_int(t->dtype, clamp(x, lo, lo + values - 1)));
}

void weft_tensor_set_i64(const weft_tensor *t, int64_t i, int64_t x)
{
    if (weft_dtype_is_narrow(t->dtype)) {
        set_narrow(t, i, x);
        return;
    }
    switch (t->dtype) {
    case WEFT_DTYPE_I8:
        PUT(int8_t, clamp(x, INT8_MIN, INT8_MAX));
        return;
    case WEFT_DTYPE_I16:
        PUT(int16_t, clamp(x, INT16_MIN, INT16_MAX));
        return;
    case WEFT_DTYPE_I32:
        PUT(int32_t, clamp(x, INT32_MIN, INT32_MAX));
        return;
    case WEFT_DTYPE_I64:
        PUT(int64_t, x);
        return;
    case WEFT_DTYPE_U8:
        PUT(uint8_t, clamp(x, 0, UINT8_MAX));
        return;
    case WEFT_DTYPE_U16:
        PUT(uint16_t, clamp(x, 0, UINT16_MAX));
        return;
    case WEFT_DTYPE_U32:
        PUT(uint32_t, clamp(x, 0, UINT32_MAX));
        return;
    case WEFT_DTYPE_U64:
        PUT(uint64_t, x < 0 ? 0 : x);
        return;
    case WEFT_DTYPE_BOOL:
        PUT(uint8_t, x != 0);
        return;
    case WEFT_DTYPE_F32:
        PUT(float, x);
        return;
    case WEFT_DTYPE_F64:
        PUT(double, x);
        return;
    case WEFT_DTYPE_F16:
    case WEFT_DTYPE_BF16:
        weft_tensor_set_f64(t, i, (double)x);
        return;
    default:
        return;
    }
}

#undef PUT
