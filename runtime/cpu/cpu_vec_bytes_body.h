/* Part of cpu_vec_body.h: bytes to floats, and floats to bytes. */
#ifndef WEFT_RUNTIME_CPU_CPU_VEC_BYTES_BODY_H
#define WEFT_RUNTIME_CPU_CPU_VEC_BYTES_BODY_H

typedef uint8_t vu8 __attribute__((vector_size(VEC_LANES), aligned(1), may_alias));
typedef int8_t vi8 __attribute__((vector_size(VEC_LANES), aligned(1), may_alias));

/* LANES bytes, widened. gcc 12 converts one element after the other without the instructions. */
#if VEC_LANES == 16
INLINE vi widen_u8(const uint8_t *x)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}
INLINE vi widen_i8(const int8_t *x)
{
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}
#elif VEC_LANES == 8
INLINE vi widen_u8(const uint8_t *x)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
INLINE vi widen_i8(const int8_t *x)
{
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}
#else
INLINE vi widen_u8(const uint8_t *x)
{
    return __builtin_convertvector(*(const vu8 *)x, vi);
}
INLINE vi widen_i8(const int8_t *x)
{
    return __builtin_convertvector(*(const vi8 *)x, vi);
}
#endif

static void from_u8(float *y, const uint8_t *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, __builtin_convertvector(widen_u8(x + i), vf));
    for (; i < n; i++)
        y[i] = x[i];
}

static void from_i8(float *y, const int8_t *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, __builtin_convertvector(widen_i8(x + i), vf));
    for (; i < n; i++)
        y[i] = x[i];
}

#if VEC_LANES == 16
/* 64 look-ups at a time: in either half of the table, chosen by the highest bit. */
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static void
map_vectors(uint8_t *y, const uint8_t *x, const uint8_t *table, size_t n)
{
    __m512i a = _mm512_loadu_si512(table), b = _mm512_loadu_si512(table + 64);
    __m512i c = _mm512_loadu_si512(table + 128), d = _mm512_loadu_si512(table + 192);
    for (size_t i = 0; i + 64 <= n; i += 64) {
        __m512i at = _mm512_loadu_si512(x + i);
        __m512i low = _mm512_permutex2var_epi8(a, at, b), high = _mm512_permutex2var_epi8(c, at, d);
        _mm512_storeu_si512(y + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
}
#endif

static void map_bytes(uint8_t *y, const uint8_t *x, const uint8_t *table, size_t n)
{
    size_t i = 0;
#if VEC_LANES == 16
    if (__builtin_cpu_supports("avx512vbmi")) {
        map_vectors(y, x, table, n);
        i = n / 64 * 64;
    }
#endif
    for (; i < n; i++)
        y[i] = table[x[i]];
}

/* The low bytes of LANES whole numbers. */
#if VEC_LANES == 8
INLINE void store_bytes(uint8_t *y, vf x)
{
    __m256i i = _mm256_and_si256(_mm256_cvttps_epi32((__m256)x), _mm256_set1_epi32(255));
    __m128i w = _mm_packus_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    _mm_storel_epi64((__m128i *)(void *)y, _mm_packus_epi16(w, w));
}
#else
INLINE void store_bytes(uint8_t *y, vf x)
{
    *(vu8 *)y = __builtin_convertvector(__builtin_convertvector(x, vi), vu8);
}
#endif

static void to_bytes(uint8_t *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store_bytes(y + i, load(x + i));
    for (; i < n; i++)
        y[i] = (uint8_t)(int32_t)x[i];
}

#define QUANTIZE(name, fn)                                                                    \
    static void name(uint8_t *y, const float *x, float scale, float zero, float lo, float hi, \
                     size_t n)                                                                \
    {                                                                                         \
        size_t i = 0;                                                                         \
        for (; i + LANES <= n; i += LANES) {                                                  \
            store_bytes(y + i, fn(load(x + i), splat(scale), splat(zero), lo, hi));           \
        }                                                                                     \
        if (i < n) {                                                                          \
            float t[LANES];                                                                   \
            store(t, fn(load_part(x + i, n - i, 0), splat(scale), splat(zero), lo, hi));      \
            to_bytes(y + i, t, n - i);                                                        \
        }                                                                                     \
    }
QUANTIZE(quantize, quantize_v)
QUANTIZE(quantize_sum, quantize_sum_v)

#endif
