/* The body of cpu_vec*.c: the same loops for each instruction set, written with the vector
 * extension of gcc and clang in vectors of VEC_LANES floats (4, 8 or 16). exp and log are the
 * polynomials of Cephes with a relative error of about 1e-7; tanh and erf are the rational
 * functions of Eigen (GenericPacketMathFunctions.h) with at most 4e-7. */
#include "runtime/cpu/cpu_vec.h"

#include <math.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
/* At O3, gcc takes four times as long for the sanitizers' checks around each access. */
#pragma GCC optimize("O1", "fp-contract=fast")
#elif defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "fp-contract=fast")
#else
#pragma clang fp contract(fast)
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * VEC_LANES)));
typedef int32_t vi __attribute__((vector_size(4 * VEC_LANES)));
typedef float vf_mem __attribute__((vector_size(4 * VEC_LANES), aligned(4), may_alias));
typedef int32_t vi_mem __attribute__((vector_size(4 * VEC_LANES), aligned(4), may_alias));

enum { LANES = VEC_LANES, GROUP = 16 / VEC_LANES };

/* -- Vectors -------------------------------------------------------------------------------- */

INLINE vf load(const float *p)
{
    return *(const vf_mem *)p;
}
INLINE void store(float *p, vf x)
{
    *(vf_mem *)p = x;
}
INLINE vf splat(float x)
{
    return x - (vf){0};
}
INLINE vf load_part(const float *p, size_t n, float fill)
{
    float t[LANES];
    for (size_t i = 0; i < LANES; i++)
        t[i] = i < n ? p[i] : fill;
    return load(t);
}
INLINE void store_part(float *p, vf x, size_t n)
{
    float t[LANES];
    store(t, x);
    for (size_t i = 0; i < n; i++)
        p[i] = t[i];
}
INLINE vf as_f(vi x)
{
    return (vf)x;
}
INLINE vi as_i(vf x)
{
    return (vi)x;
}
INLINE vf pick(vi mask, vf yes, vf no)
{
    return as_f((mask & as_i(yes)) | (~mask & as_i(no)));
}
/* x < y ? y : x, and x > y ? y : x. A NaN in x is kept, because comparisons with it are false. The
 * instructions give the second operand unless the first is greater or less. */
#if VEC_LANES == 16
INLINE vf max_v(vf x, vf y)
{
    return (vf)_mm512_max_ps((__m512)y, (__m512)x);
}
INLINE vf min_v(vf x, vf y)
{
    return (vf)_mm512_min_ps((__m512)y, (__m512)x);
}
#elif VEC_LANES == 8
INLINE vf max_v(vf x, vf y)
{
    return (vf)_mm256_max_ps((__m256)y, (__m256)x);
}
INLINE vf min_v(vf x, vf y)
{
    return (vf)_mm256_min_ps((__m256)y, (__m256)x);
}
#else
INLINE vf max_v(vf x, vf y)
{
    return pick(x < y, y, x);
}
INLINE vf min_v(vf x, vf y)
{
    return pick(x > y, y, x);
}
#endif
INLINE vf abs_v(vf x)
{
    return as_f(as_i(x) & 0x7fffffff);
}
/* x, which is not negative, with the sign of y; that of zero counts. */
INLINE vf with_sign(vf x, vf y)
{
    return as_f(as_i(x) | (as_i(y) & (int32_t)0x80000000));
}
INLINE vf sqrt_v(vf x)
{
    vf y = x;
    for (int i = 0; i < LANES; i++)
        y[i] = sqrtf(x[i]);
    return y;
}
INLINE float sum_v(vf x)
{
    float t[LANES], s = 0;
    store(t, x);
    for (int w = LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            t[i] += t[i + w];
    s = t[0];
    return s;
}
INLINE float max_of(vf x)
{
    float t[LANES], m;
    store(t, x);
    m = t[0];
    for (int i = 1; i < LANES; i++)
        m = t[i] > m ? t[i] : m;
    return m;
}

/* -- Functions ------------------------------------------------------------------------------ */

/* p * 2^n for whole n in [-126, 129] */
INLINE vf scale_v(vf p, vf n)
{
#if VEC_LANES == 16
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    /* Two factors, because 2^n may be out of range. */
    vi i = __builtin_convertvector(n, vi), h = i >> 1;
    return p * as_f((h + 127) << 23) * as_f((i - h + 127) << 23);
#endif
}

/* Results below the smallest normal number are 0: denormal ones are slow on some processors. */
INLINE vf exp_v(vf x)
{
    const vf magic = splat(12582912.0f), least = splat(-87.336544f);
    vf c = min_v(max_v(x, least), splat(89.0f));
    vf n = (c * 1.44269504f + magic) - magic;
    vf r = c - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + (r + 1.0f);
    return pick(x < least, splat(0.0f), scale_v(p, n));
}

INLINE vf log_v(vf x)
{
    vi bits = as_i(x);
    vi tiny = (x < 1.17549435e-38f);
    vf big = x * 8388608.0f;
    bits = (tiny & as_i(big)) | (~tiny & bits);
    vi e = ((bits >> 23) & 255) - 126 - (tiny & 23);
    vf m = as_f((bits & 0x007fffff) | 0x3f000000);
    vi low = m < 0.707106781f;
    e = e + low;
    m = pick(low, m + m, m) - 1.0f;
    vf z = m * m;
    vf p = splat(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    vf f = __builtin_convertvector(e, vf);
    vf y = m * z * p;
    y = y + f * -2.12194440e-4f - z * 0.5f;
    y = m + y + f * 0.693359375f;
    y = pick(x == 0.0f, splat(-INFINITY), y);
    y = pick(x < 0.0f, splat(NAN), y);
    y = pick(x == splat(INFINITY), x, y);
    return pick(x == x, y, x);
}

INLINE vf sigmoid_v(vf x)
{
    return 1.0f / (1.0f + exp_v(-x));
}

/* x itself where it is so small that the numerator would lose bits. */
INLINE vf tanh_v(vf x)
{
    const float most = 7.90531111f, least = 1e-4f;
    vf a = abs_v(x), c = min_v(max_v(x, splat(-most)), splat(most)), s = c * c;
    vf p = splat(-2.76076847742355e-16f);
    p = p * s + 2.00018790482477e-13f;
    p = p * s - 8.60467152213735e-11f;
    p = p * s + 5.12229709037114e-08f;
    p = p * s + 1.48572235717979e-05f;
    p = p * s + 6.37261928875436e-04f;
    p = p * s + 4.89352455891786e-03f;
    vf q = splat(1.19825839466702e-06f);
    q = q * s + 1.18534705686654e-04f;
    q = q * s + 2.26843463243900e-03f;
    q = q * s + 4.89352518554385e-03f;
    vf y = pick(a > most, with_sign(splat(1.0f), x), c * p / q);
    return pick(a < least, x, y);
}

INLINE vf erf_v(vf x)
{
    const float most = 3.92f, least = 1e-4f;
    vf a = abs_v(x), c = min_v(max_v(x, splat(-most)), splat(most)), s = c * c;
    vf p = splat(-2.72614225801306e-10f);
    p = p * s + 2.77068142495902e-08f;
    p = p * s - 2.10102402082508e-06f;
    p = p * s - 5.69250639462346e-05f;
    p = p * s - 7.34990630326855e-04f;
    p = p * s - 2.95459980854025e-03f;
    p = p * s - 1.60960333262415e-02f;
    vf q = splat(-1.45660718464996e-05f);
    q = q * s - 2.13374055278905e-04f;
    q = q * s - 1.68282697438203e-03f;
    q = q * s - 7.37332916720468e-03f;
    q = q * s - 1.42647390514189e-02f;
    vf y = pick(a > most, with_sign(splat(1.0f), x), c * p / q);
    return pick(a < least, x * 1.12837917f, y);
}

/* 0.5 * x * (1 + tanh(u)) = x / (1 + exp(-2u)), where u = sqrt(2 / pi) * (x + 0.044715 * x^3) */
INLINE vf gelu_tanh_v(vf x)
{
    vf u = x * (0.0713548163f * x * x + 1.59576912f);
    return x / (1.0f + exp_v(-u));
}

INLINE vf softplus_v(vf x)
{
    return max_v(x, splat(0.0f)) + log_v(1.0f + exp_v(-abs_v(x)));
}

/* Rounds half to even: adding and subtracting 1.5 * 2^23 rounds numbers below 2^22. */
INLINE vf round_v(vf x)
{
    const vf magic = splat(12582912.0f);
    return (x + magic) - magic;
}

/* As round_v, for numbers of any size. */
#if VEC_LANES == 16
INLINE vf round_any_v(vf x)
{
    return (vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif VEC_LANES == 8
INLINE vf round_any_v(vf x)
{
    return (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
INLINE vf round_any_v(vf x)
{
    return pick(abs_v(x) < 4194304.0f, round_v(x), x);
}
#endif

/* x / scale, rounded half to even, + zero, saturated; NaN gives lo. */
INLINE vf quantize_v(vf x, vf scale, vf zero, float lo, float hi)
{
    return min_v(max_v(splat(lo), round_any_v(x / scale) + zero), splat(hi));
}

/* As quantize_v, but zero is added before rounding. */
INLINE vf quantize_sum_v(vf x, vf scale, vf zero, float lo, float hi)
{
    return round_v(min_v(max_v(splat(lo), x / scale + zero), splat(hi)));
}

/* -- Loops by subject ----------------------------------------------------------------------- */

#include "runtime/cpu/cpu_vec_steps_body.h"
#include "runtime/cpu/cpu_vec_bytes_body.h"
#include "runtime/cpu/cpu_vec_words_body.h"
#include "runtime/cpu/cpu_vec_rows_body.h"
#include "runtime/cpu/cpu_vec_tiles_body.h"
#include "runtime/cpu/cpu_vec_compare_body.h"
#include "runtime/cpu/cpu_vec_pointwise_body.h"
#include "runtime/cpu/cpu_vec_nbits_body.h"
#include "runtime/cpu/cpu_vec_nbits_bytes_body.h"
#include "runtime/cpu/cpu_vec_byte_rows_body.h"

/* -- The table ------------------------------------------------------------------------------ */

const weft_cpu_vec VEC_TABLE = {
    .name = VEC_NAME,
    .step =
        {
            [WEFT_STEP_ADD] = step_add,
            [WEFT_STEP_SUB] = step_sub,
            [WEFT_STEP_MUL] = step_mul,
            [WEFT_STEP_DIV] = step_div,
            [WEFT_STEP_POW] = step_pow,
            [WEFT_STEP_MIN] = step_min,
            [WEFT_STEP_MAX] = step_max,
            [WEFT_STEP_RELU] = step_relu,
            [WEFT_STEP_CLIP] = step_clip,
            [WEFT_STEP_SIGMOID] = step_sigmoid,
            [WEFT_STEP_TANH] = step_tanh,
            [WEFT_STEP_GELU] = step_gelu,
            [WEFT_STEP_GELU_TANH] = step_gelu_tanh,
            [WEFT_STEP_SILU] = step_silu,
            [WEFT_STEP_ERF] = step_erf,
            [WEFT_STEP_EXP] = step_exp,
            [WEFT_STEP_LOG] = step_log,
            [WEFT_STEP_SQRT] = step_sqrt,
            [WEFT_STEP_RSQRT] = step_rsqrt,
            [WEFT_STEP_RECIPROCAL] = step_reciprocal,
            [WEFT_STEP_ABS] = step_abs,
            [WEFT_STEP_NEG] = step_neg,
            [WEFT_STEP_SQUARE] = step_square,
            [WEFT_STEP_LEAKY_RELU] = step_leaky_relu,
            [WEFT_STEP_ELU] = step_elu,
            [WEFT_STEP_HARD_SIGMOID] = step_hard_sigmoid,
            [WEFT_STEP_HARD_SWISH] = step_hard_swish,
            [WEFT_STEP_SOFTPLUS] = step_softplus,
            [WEFT_STEP_WHERE] = step_where,
            [WEFT_STEP_IDENTITY] = step_identity,
            [WEFT_STEP_QUANTIZE_U8] = step_quantize_u8,
            [WEFT_STEP_QUANTIZE_I8] = step_quantize_i8,
            [WEFT_STEP_DEQUANTIZE] = step_dequantize,
        },
    .step_by =
        {
            [WEFT_STEP_QUANTIZE_U8] = step_quantize_u8_by,
            [WEFT_STEP_QUANTIZE_I8] = step_quantize_i8_by,
            [WEFT_STEP_DEQUANTIZE] = step_dequantize_by,
            [WEFT_STEP_ADD] = step_add_by,
            [WEFT_STEP_SUB] = step_sub_by,
            [WEFT_STEP_MUL] = step_mul_by,
            [WEFT_STEP_DIV] = step_div_by,
        },
    .quantize_sum_u8_by = step_quantize_sum_u8_by,
    .quantize_sum_i8_by = step_quantize_sum_i8_by,
    .round_trip_u8_by = step_round_trip_u8_by,
    .round_trip_i8_by = step_round_trip_i8_by,
    .map_bytes = map_bytes,
    .from_u8 = from_u8,
    .from_i8 = from_i8,
    .to_bytes = to_bytes,
    .quantize = quantize,
    .quantize_sum = quantize_sum,
    .range = range,
    .words = words,
    .center = center,
    .depthwise = depthwise,
    .scale_sums = scale_sums,
    .multiply_add = step_multiply_add,
    .multiply_add_relu = step_multiply_add_relu,
    .are_tame = are_tame,
    .affine = affine,
    .affine16 = affine16,
    .affine16_relu = affine16_relu,
    .sum = sum,
    .max = max,
    .max_or_nan = max_or_nan,
    .compare = {{equal_f32, less_f32, less_equal_f32},
                {equal_i32, less_i32, less_equal_i32},
                {equal_i64, less_i64, less_equal_i64},
                {equal_u8, less_u8, less_equal_u8}},
    .dot = dot,
    .dots = dots,
    .patch = patch,
    .accumulate = accumulate,
    .axpy = axpy,
    .sum16 = sum16,
    .max16 = max16,
    .mean16 = mean16,
    .layer_norm = layer_norm,
    .rms_norm = rms_norm,
    .rotate = rotate,
    .softmax = softmax,
    .mask = mask,
    .exp_shift = exp_shift,
    .transpose = transpose,
    .qk = qk,
    .pv = pv,
    .panel = panel,
#if VEC_LANES >= 8
    .lanes = LANES,
    .pointwise = pointwise,
#endif

    .nbits_order = nbits_order,
    .nbits_dots = nbits_dots,
    .nbits_unpack = nbits_unpack,
    .nbits_spread = nbits_spread,
    .nbits_quantise = nbits_quantise,
    .nbits_byte_order = nbits_byte_order,
#if VEC_LANES == 16
    .byte_rows = byte_rows,
    .nbits_bytes = nbits_bytes,
    .nbits_byte_dots = nbits_byte_dots,
#endif
};
