/* Small floats and integers: conversions by way of double, which represents all of them exactly. */
#include "base/narrow.h"

#include <math.h>

/* A float of 1 sign bit, exponent and mantissa. Codes above `largest` (without the sign) are the
 * infinity and NaNs. */
typedef struct format {
    uint8_t mantissa, bias, largest;
    uint8_t infinity, nan; /* codes; 0: there is none */
    bool unsigned_zero;    /* the code of -0 is NaN */
} format;

static const format formats[WEFT_DTYPE_COUNT] = {
    [WEFT_DTYPE_F8E4M3FN] = {.mantissa = 3, .bias = 7, .largest = 0x7e, .nan = 0x7f},
    [WEFT_DTYPE_F8E4M3FNUZ] =
        {.mantissa = 3, .bias = 8, .largest = 0x7f, .nan = 0x80, .unsigned_zero = true},
    [WEFT_DTYPE_F8E5M2] =
        {.mantissa = 2, .bias = 15, .largest = 0x7b, .infinity = 0x7c, .nan = 0x7f},
    [WEFT_DTYPE_F8E5M2FNUZ] =
        {.mantissa = 2, .bias = 16, .largest = 0x7f, .nan = 0x80, .unsigned_zero = true},
    [WEFT_DTYPE_F6E2M3] = {.mantissa = 3, .bias = 1, .largest = 0x1f},
    [WEFT_DTYPE_F6E3M2] = {.mantissa = 2, .bias = 3, .largest = 0x1f},
    [WEFT_DTYPE_F4E2M1] = {.mantissa = 1, .bias = 1, .largest = 0x7},
};

enum { E8M0_NAN = 0xff, E8M0_BIAS = 127 };

static uint8_t mask_of(weft_dtype dtype)
{
    return (uint8_t)((1u << weft_dtype_bits(dtype)) - 1);
}

double weft_narrow_to_f64(weft_dtype dtype, uint8_t code)
{
    if (dtype == WEFT_DTYPE_F8E8M0)
        return code == E8M0_NAN ? (double)NAN : ldexp(1.0, code - E8M0_BIAS);
    const format *f = &formats[dtype];
    uint8_t sign = (uint8_t)(1u << (weft_dtype_bits(dtype) - 1));
    code &= mask_of(dtype);
    unsigned magnitude = code & (sign - 1u);
    if (f->unsigned_zero ? code == sign : magnitude > f->largest)
        return !f->infinity || magnitude != f->infinity ? (double)NAN
               : code & sign                            ? -(double)INFINITY
                                                        : (double)INFINITY;
    int exponent = (int)(magnitude >> f->mantissa);
    unsigned fraction = magnitude & ((1u << f->mantissa) - 1);
    if (exponent > 0)
        fraction |= 1u << f->mantissa;
    double x = ldexp((double)fraction, (exponent > 0 ? exponent : 1) - f->bias - f->mantissa);
    return code & sign ? -x : x;
}

uint8_t weft_narrow_from_f64(weft_dtype dtype, double x, bool saturate)
{
    if (dtype == WEFT_DTYPE_F8E8M0)
        return weft_e8m0_from_f64(x, saturate, WEFT_E8M0_UP);
    const format *f = &formats[dtype];
    uint8_t sign = (uint8_t)(1u << (weft_dtype_bits(dtype) - 1));
    uint8_t negative = signbit(x) ? sign : 0;
    if (isnan(x))
        return f->nan ? (f->unsigned_zero ? f->nan : (uint8_t)(f->nan | negative)) : sign;
    unsigned code = f->largest + 1u;
    int lowest = 1 - f->bias; /* exponent of the smallest normal number */
    if (!isinf(x) && fabs(x) < ldexp(2.0, 17)) {
        int exponent = x != 0 ? ilogb(x) : lowest;
        exponent = exponent > lowest ? exponent : lowest;
        /* In units of the last place; a carry into the next exponent gives the right code too. */
        double units = rint(ldexp(fabs(x), f->mantissa - exponent));
        code = ((unsigned)(exponent - lowest) << f->mantissa) + (unsigned)units;
    }
    if (code > f->largest) {
        if (saturate || (!f->nan && !f->infinity))
            code = f->largest;
        else if (f->infinity)
            code = f->infinity;
        else
            return f->unsigned_zero ? f->nan : (uint8_t)(f->nan | negative);
    }
    return code == 0 && f->unsigned_zero ? 0 : (uint8_t)(code | negative);
}

uint8_t weft_e8m0_from_f64(double x, bool saturate, weft_e8m0_round round)
{
    if (isnan(x) || x < 0)
        return E8M0_NAN;
    if (x < 0x1p-127)
        return saturate ? 0 : E8M0_NAN;
    if (x > 0x1p127)
        return saturate ? E8M0_NAN - 1 : E8M0_NAN;
    int exponent;
    double fraction = 2 * frexp(x, &exponent); /* in [1, 2) */
    exponent--;
    if (round == WEFT_E8M0_UP ? fraction > 1 : round == WEFT_E8M0_NEAREST && fraction >= 1.5)
        exponent++;
    return (uint8_t)(exponent + E8M0_BIAS);
}

int64_t weft_narrow_to_int(weft_dtype dtype, uint8_t code)
{
    unsigned bits = weft_dtype_bits(dtype);
    if (bits == 0)
        return 0;
    int value = code & mask_of(dtype), sign = 1 << (bits - 1);
    if (weft_dtype_get_class(dtype) == WEFT_CLASS_SIGNED && value & sign)
        value -= 2 * sign;
    return value;
}

uint8_t weft_narrow_from_int(weft_dtype dtype, int64_t x)
{
    return (uint8_t)weft_narrow_to_int(dtype, (uint8_t)x);
}

uint64_t weft_narrow_packed_bytes(weft_dtype dtype, uint64_t n)
{
    uint64_t bits = weft_dtype_bits(dtype);
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

void weft_narrow_unpack(weft_dtype dtype, const uint8_t *packed, uint64_t n, uint8_t *out)
{
    unsigned bits = weft_dtype_bits(dtype), held = 0;
    uint32_t window = 0;
    bool is_int = weft_dtype_is_int(dtype);
    for (uint64_t i = 0; i < n; i++) {
        if (held < bits) {
            window |= (uint32_t)*packed++ << held;
            held += 8;
        }
        uint8_t code = (uint8_t)(window & mask_of(dtype));
        out[i] = is_int ? weft_narrow_from_int(dtype, code) : code;
        window >>= bits;
        held -= bits;
    }
}
