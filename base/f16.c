/* Conversions by integer arithmetic, without tables. Steps that use floating-point arithmetic have
 * normal operands and results, so they are right where subnormals are flushed to zero. */
#include "base/f16.h"

#include <string.h>

static uint32_t to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float widen_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t u = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t exp = u & 0x0f800000u;
    u += 112u << 23; /* from the bias of 15 to that of 127 */
    /* Infinity and NaN: the exponent field is all ones in both formats. */
    u += exp == 0x0f800000u ? 112u << 23 : 0;
    /* Subnormal: mantissa * 2^-24 is (2^-14 + mantissa * 2^-24) - 2^-14. */
    uint32_t sub = to_bits(from_bits(u + (1u << 23)) - from_bits(113u << 23));
    return from_bits((exp == 0 ? sub : u) | sign);
}

static inline uint16_t narrow_f16(float f)
{
    uint32_t u = to_bits(f);
    uint32_t sign = u >> 16 & 0x8000u;
    u &= 0x7fffffffu;
    uint32_t h;
    if (u >= 0x47800000u) { /* 65536 and more, infinity, NaN (kept quiet) */
        h = u > 0x7f800000u ? 0x7e00u | (u >> 13 & 0x3ffu) : 0x7c00u;
    } else if (u < 0x38800000u) { /* below 2^-14: 0.5 has the step of the subnormals, 2^-24 */
        h = to_bits(from_bits(u) + 0.5f) - 0x3f000000u;
    } else {
        h = (u - (112u << 23) + 0xfffu + (u >> 13 & 1)) >> 13;
    }
    return (uint16_t)(h | sign);
}

static inline float widen_bf16(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

static inline uint16_t narrow_bf16(float f)
{
    uint32_t u = to_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

float weft_f16_to_f32(uint16_t h)
{
    return widen_f16(h);
}

uint16_t weft_f16_from_f32(float f)
{
    return narrow_f16(f);
}

float weft_bf16_to_f32(uint16_t h)
{
    return widen_bf16(h);
}

uint16_t weft_bf16_from_f32(float f)
{
    return narrow_bf16(f);
}

float weft_tf32_from_f32(float f)
{
    uint32_t u = to_bits(f);
    if ((u & 0x7f800000u) == 0x7f800000u) /* infinities and NaN stay */
        return f;
    return from_bits((u + 0xfffu + (u >> 13 & 1)) & 0xffffe000u);
}

/* Chunks of a known length: compilers then use vector instructions at -O2 as well. Elements are
 * copied first, because those of `src` may be at any address. */
enum { CHUNK = 16 };

#define CONVERT_ARRAY(name, from, to, one)                          \
    static inline to name##_at(const uint8_t *src, size_t i)        \
    {                                                               \
        from x;                                                     \
        memcpy(&x, src + i * sizeof x, sizeof x);                   \
        return one(x);                                              \
    }                                                               \
    void name(const void *restrict src, to *restrict dst, size_t n) \
    {                                                               \
        size_t i = 0;                                               \
        for (; n - i >= CHUNK; i += CHUNK)                          \
            for (size_t j = 0; j < CHUNK; j++)                      \
                dst[i + j] = name##_at(src, i + j);                 \
        for (; i < n; i++)                                          \
            dst[i] = name##_at(src, i);                             \
    }

CONVERT_ARRAY(weft_f16_to_f32_array, uint16_t, float, widen_f16)
CONVERT_ARRAY(weft_bf16_to_f32_array, uint16_t, float, widen_bf16)
CONVERT_ARRAY(weft_f16_from_f32_array, float, uint16_t, narrow_f16)
CONVERT_ARRAY(weft_bf16_from_f32_array, float, uint16_t, narrow_bf16)
