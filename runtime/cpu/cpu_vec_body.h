/* The body of cpu_vec*.c: the same loops for each instruction set, written with the vector
 * extension of gcc and clang in vectors of VEC_LANES floats (4, 8 or 16). exp and log are the
 * polynomials of Cephes with a relative error of about 1e-7; tanh and erf are the rational
 * functions of Eigen (GenericPacketMathFunctions.h) with at most 4e-7. */
#include "runtime/cpu/cpu_vec.h"

#include <math.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
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

/* x / scale, rounded half to even, + zero, saturated; NaN gives lo. */
INLINE vf quantize_v(vf x, vf scale, vf zero, float lo, float hi)
{
    const vf bound = splat(4e6f);
    vf y = round_v(min_v(max_v(-bound, x / scale), bound)) + zero;
    return min_v(max_v(y, splat(lo)), splat(hi));
}

/* As quantize_v, but zero is added before rounding. */
INLINE vf quantize_sum_v(vf x, vf scale, vf zero, float lo, float hi)
{
    return round_v(min_v(max_v(splat(lo), x / scale + zero), splat(hi)));
}

/* -- Steps ---------------------------------------------------------------------------------- */

#define STEP(name, expr)                                                   \
    static void step_##name(float *dst, const float *const *arg, size_t n) \
    {                                                                      \
        size_t i = 0;                                                      \
        for (; i + LANES <= n; i += LANES) {                               \
            LOAD(load(arg[k] + i))                                         \
            store(dst + i, expr);                                          \
        }                                                                  \
        if (i < n) {                                                       \
            LOAD(load_part(arg[k] + i, n - i, 1.0f))                       \
            store_part(dst + i, expr, n - i);                              \
        }                                                                  \
    }
#define GET(var, idx, from) \
    vf var;                 \
    {                       \
        enum { k = idx };   \
        var = from;         \
    }
#define LOAD(from) GET(x, 0, from)
STEP(relu, max_v(x, splat(0.0f)))
STEP(sigmoid, sigmoid_v(x))
STEP(tanh, tanh_v(x))
STEP(gelu, 0.5f * x * (1.0f + erf_v(x * 0.707106781f)))
STEP(gelu_tanh, gelu_tanh_v(x))
STEP(silu, x / (1.0f + exp_v(-x)))
STEP(erf, erf_v(x))
STEP(exp, exp_v(x))
STEP(log, log_v(x))
STEP(sqrt, sqrt_v(x))
STEP(rsqrt, 1.0f / sqrt_v(x))
STEP(reciprocal, 1.0f / x)
STEP(abs, abs_v(x))
STEP(neg, -x)
STEP(square, x *x)
STEP(hard_swish, x *min_v(max_v(x *(1.0f / 6.0f) + 0.5f, splat(0.0f)), splat(1.0f)))
STEP(softplus, softplus_v(x))
STEP(identity, x)
#undef LOAD
#define LOAD(from)  \
    GET(x, 0, from) \
    GET(y, 1, from)
STEP(add, x + y)
STEP(sub, x - y)
STEP(mul, x *y)
STEP(div, x / y)
STEP(min, pick(y == y, min_v(x, y), y))
STEP(max, pick(y == y, max_v(x, y), y))
STEP(leaky_relu, pick(x < 0.0f, x *y, x))
STEP(elu, pick(x < 0.0f, y *(exp_v(x) - 1.0f), x))
#undef LOAD
#define LOAD(from)  \
    GET(x, 0, from) \
    GET(y, 1, from) \
    GET(z, 2, from)
STEP(clip, min_v(max_v(x, y), z))
STEP(hard_sigmoid, min_v(max_v(x *y + z, splat(0.0f)), splat(1.0f)))
STEP(where, pick(x != 0.0f, y, z))
STEP(quantize_u8, quantize_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_i8, quantize_v(x, y, z, -128.0f, 127.0f))
STEP(dequantize, (x - z) * y)
STEP(multiply_add, x *y + z)
STEP(multiply_add_relu, max_v(x *y + z, splat(0.0f)))
#undef LOAD
/* As above, with one scale and one zero point for all elements. */
#define LOAD(from)               \
    GET(x, 0, from)              \
    const vf y = splat(*arg[1]); \
    const vf z = splat(*arg[2]);
STEP(quantize_u8_by, quantize_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_i8_by, quantize_v(x, y, z, -128.0f, 127.0f))
STEP(quantize_sum_u8_by, quantize_sum_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_sum_i8_by, quantize_sum_v(x, y, z, -128.0f, 127.0f))
STEP(dequantize_by, (x - z) * y)
STEP(round_trip_u8_by, (quantize_v(x, y, z, 0.0f, 255.0f) - z) * y)
STEP(round_trip_i8_by, (quantize_v(x, y, z, -128.0f, 127.0f) - z) * y)
#undef LOAD
#define LOAD(from)  \
    GET(x, 0, from) \
    const vf y = splat(*arg[1]);
STEP(add_by, x + y)
STEP(sub_by, x - y)
STEP(mul_by, x *y)
STEP(div_by, x / y)
#undef LOAD

static void step_pow(float *dst, const float *const *arg, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = arg[1][i] == 2.0f   ? arg[0][i] * arg[0][i]
                 : arg[1][i] == 3.0f ? arg[0][i] * arg[0][i] * arg[0][i]
                                     : powf(arg[0][i], arg[1][i]);
}

#include "runtime/cpu/cpu_vec_bytes_body.h"
#include "runtime/cpu/cpu_vec_words_body.h"

/* Four pairs of limits, so that each waits for its own last comparison only. */
static void range(const float *x, size_t n, float *lo, float *hi)
{
    enum { WAYS = 4 };
    vf a[WAYS], b[WAYS];
    size_t i = 0;
    for (int w = 0; w < WAYS; w++) {
        a[w] = splat(*lo);
        b[w] = splat(*hi);
    }
    for (; i + WAYS * LANES <= n; i += WAYS * LANES)
        for (int w = 0; w < WAYS; w++) {
            vf v = load(x + i + w * LANES);
            a[w] = min_v(a[w], v);
            b[w] = max_v(b[w], v);
        }
    for (; i < n; i += LANES) {
        vf v = n - i < LANES ? load_part(x + i, n - i, *lo) : load(x + i);
        a[0] = min_v(a[0], v);
        b[0] = max_v(b[0], v);
    }
    for (int w = 0; w < WAYS; w++)
        for (int l = 0; l < LANES; l++) {
            *lo = a[w][l] < *lo ? a[w][l] : *lo;
            *hi = b[w][l] > *hi ? b[w][l] : *hi;
        }
}

/* -- Rows ----------------------------------------------------------------------------------- */

static void affine(float *y, const float *x, float scale, float shift, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, load(x + i) * scale + shift);
    for (; i < n; i++)
        y[i] = x[i] * scale + shift;
}

#define AFFINE16(name, of)                                                                       \
    static void name(float *y, const float *x, const float *scale, const float *shift, size_t n) \
    {                                                                                            \
        vf a[GROUP], b[GROUP];                                                                   \
        for (int g = 0; g < GROUP; g++) {                                                        \
            a[g] = load(scale + g * LANES);                                                      \
            b[g] = load(shift + g * LANES);                                                      \
        }                                                                                        \
        for (size_t i = 0; i < n; i += 16)                                                       \
            for (int g = 0; g < GROUP; g++) {                                                    \
                vf v = load(x + i + g * LANES) * a[g] + b[g];                                    \
                store(y + i + g * LANES, of);                                                    \
            }                                                                                    \
    }
AFFINE16(affine16, v)
AFFINE16(affine16_relu, max_v(v, splat(0.0f)))

static float sum(const float *x, size_t n)
{
    vf a = splat(0), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        a += load(x + i);
        b += load(x + i + LANES);
        c += load(x + i + 2 * LANES);
        d += load(x + i + 3 * LANES);
    }
    for (; i + LANES <= n; i += LANES)
        a += load(x + i);
    if (i < n)
        b += load_part(x + i, n - i, 0);
    return sum_v((a + b) + (c + d));
}

static float max(const float *x, size_t n)
{
    vf a = splat(-INFINITY), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a = max_v(a, load(x + i));
        b = max_v(b, load(x + i + LANES));
    }
    for (; i + LANES <= n; i += LANES)
        a = max_v(a, load(x + i));
    if (i < n)
        b = max_v(b, load_part(x + i, n - i, -INFINITY));
    return max_of(max_v(a, b));
}

static float max_or_nan(const float *x, size_t n)
{
    vf a = splat(-INFINITY), sum = splat(0);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf v = load(x + i);
        a = max_v(a, v);
        sum += v * 0.0f; /* NaN of NaN and infinities */
    }
    if (i < n) {
        vf v = load_part(x + i, n - i, -INFINITY);
        a = max_v(a, v);
        sum += load_part(x + i, n - i, 0) * 0.0f;
    }
    float m = max_of(a), s = sum_v(sum);
    for (i = 0; i < n && s != s; i++)
        if (x[i] != x[i])
            return x[i];
    return m;
}

static float dot(const float *x, const float *y, size_t n)
{
    vf a = splat(0), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a += load(x + i) * load(y + i);
        b += load(x + i + LANES) * load(y + i + LANES);
    }
    for (; i + LANES <= n; i += LANES)
        a += load(x + i) * load(y + i);
    if (i < n)
        b += load_part(x + i, n - i, 0) * load_part(y + i, n - i, 0);
    return sum_v(a + b);
}

static void accumulate(float *y, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, load(y + i) + load(x + i));
    for (; i < n; i++)
        y[i] += x[i];
}

static void axpy(float *y, const float *x, float a, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, load(y + i) + load(x + i) * a);
    for (; i < n; i++)
        y[i] += x[i] * a;
}

static void sum16(float *y, const float *x, float factor, size_t n)
{
    for (int g = 0; g < GROUP; g++, x += LANES) {
        vf a = splat(0), b = a, c = a, d = a;
        size_t i = 0;
        for (; i + 4 <= n; i += 4) {
            a += load(x + i * 16);
            b += load(x + (i + 1) * 16);
            c += load(x + (i + 2) * 16);
            d += load(x + (i + 3) * 16);
        }
        for (; i < n; i++)
            a += load(x + i * 16);
        store(y + g * LANES, ((a + b) + (c + d)) * factor);
    }
}

static void layer_norm(float *y, const float *x, const float *scale, const float *bias, float eps,
                       size_t n)
{
    float mean = sum(x, n) / (float)n;
    vf a = splat(0), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vf u = load(x + i) - mean, v = load(x + i + LANES) - mean;
        a += u * u;
        b += v * v;
    }
    for (; i + LANES <= n; i += LANES) {
        vf u = load(x + i) - mean;
        a += u * u;
    }
    if (i < n) {
        vf u = load_part(x + i, n - i, mean) - mean;
        b += u * u;
    }
    float r = 1.0f / sqrtf(sum_v(a + b) / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES) {
        vf u = (load(x + i) - mean) * r * load(scale + i);
        store(y + i, bias ? u + load(bias + i) : u);
    }
    for (; i < n; i++)
        y[i] = (x[i] - mean) * r * scale[i] + (bias ? bias[i] : 0.0f);
}

static void rms_norm(float *y, const float *x, const float *scale, float eps, size_t n)
{
    float r = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, load(x + i) * r * load(scale + i));
    for (; i < n; i++)
        y[i] = x[i] * r * scale[i];
}

static void rotate(float *y, const float *x, const float *c, const float *s, size_t n)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf a = load(x + i), b = load(x + n + i), u = load(c + i), v = load(s + i);
        store(y + i, u * a - v * b);
        store(y + n + i, v * a + u * b);
    }
    for (; i < n; i++) {
        float a = x[i], b = x[n + i];
        y[i] = c[i] * a - s[i] * b;
        y[n + i] = s[i] * a + c[i] * b;
    }
}

static float exp_shift(float *x, size_t n, float *out_max)
{
    float m = max(x, n);
    vf a = splat(0), low = splat(m == -INFINITY ? 0.0f : m);
    size_t i = 0;
    *out_max = m;
    for (; i + LANES <= n; i += LANES) {
        vf e = exp_v(load(x + i) - low);
        store(x + i, e);
        a += e;
    }
    if (i < n) {
        vf e = exp_v(load_part(x + i, n - i, -INFINITY) - low);
        store_part(x + i, e, n - i);
        a += e;
    }
    return sum_v(a);
}

static void mask(float *x, const uint8_t *keep, float fill, size_t n)
{
    typedef uint8_t vb __attribute__((vector_size(VEC_LANES), aligned(1), may_alias));
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vi m = __builtin_convertvector(*(const vb *)(keep + i), vi);
        store(x + i, pick(m != 0, load(x + i), splat(fill)));
    }
    for (; i < n; i++)
        x[i] = keep[i] ? x[i] : fill;
}

static void softmax(float *y, const float *x, size_t n)
{
    float m;
    if (y != x)
        memmove(y, x, n * sizeof *y);
    float r = 1.0f / exp_shift(y, n, &m);
    affine(y, y, r, 0.0f, n);
}

/* -- Tiles ---------------------------------------------------------------------------------- */

static void transpose(float *dst, size_t dst_stride, const float *src, size_t src_stride,
                      size_t rows, size_t cols)
{
    enum { TILE = 16 };
    for (size_t r = 0; r < rows; r += TILE)
        for (size_t c = 0; c < cols; c += TILE) {
            size_t r_end = r + TILE < rows ? r + TILE : rows;
            size_t c_end = c + TILE < cols ? c + TILE : cols;
            for (size_t j = c; j < c_end; j++)
                for (size_t i = r; i < r_end; i++)
                    dst[j * dst_stride + i] = src[i * src_stride + j];
        }
}

/* Rows at a time: as many as the registers hold. */
#if VEC_LANES == 16
enum { QK_WIDE = 8 };
#else
enum { QK_WIDE = 2 };
#endif

#define QK_ROWS(NAME, R)                                                                        \
    INLINE void qk_##NAME(float *scores, size_t scores_stride, const float *q, size_t q_stride, \
                          const float *packed, size_t dim, float scale)                         \
    {                                                                                           \
        vf a[R][2 * GROUP];                                                                     \
        for (int r = 0; r < R; r++)                                                             \
            for (int g = 0; g < 2 * GROUP; g++)                                                 \
                a[r][g] = splat(0);                                                             \
        for (size_t d = 0; d < dim; d++) {                                                      \
            vf k[2 * GROUP];                                                                    \
            for (int g = 0; g < 2 * GROUP; g++)                                                 \
                k[g] = load(packed + d * 32 + (size_t)g * LANES);                               \
            for (int r = 0; r < R; r++) {                                                       \
                float x = q[(size_t)r * q_stride + d];                                          \
                for (int g = 0; g < 2 * GROUP; g++)                                             \
                    a[r][g] += k[g] * x;                                                        \
            }                                                                                   \
        }                                                                                       \
        for (int r = 0; r < R; r++)                                                             \
            for (int g = 0; g < 2 * GROUP; g++)                                                 \
                store(scores + (size_t)r * scores_stride + (size_t)g * LANES, a[r][g] * scale); \
    }
QK_ROWS(wide, QK_WIDE)
QK_ROWS(one, 1)

static void qk(float *scores, size_t scores_stride, const float *q, size_t q_stride, size_t rows,
               const float *packed, size_t dim, float scale)
{
    size_t r = 0;
    for (; r + QK_WIDE <= rows; r += QK_WIDE)
        qk_wide(scores + r * scores_stride, scores_stride, q + r * q_stride, q_stride, packed, dim,
                scale);
    for (; r < rows; r++)
        qk_one(scores + r * scores_stride, scores_stride, q + r * q_stride, q_stride, packed, dim,
               scale);
}

/* R x C sums at a time need R + C loads for R * C multiplications. */
#define DOTS(R, C)                                                                               \
    INLINE void dots_##R##_##C(float *out, size_t out_stride, const float *x, size_t x_stride,   \
                               const float *y, size_t y_stride, size_t n)                        \
    {                                                                                            \
        vf a[R][C];                                                                              \
        size_t i = 0;                                                                            \
        for (int r = 0; r < R; r++)                                                              \
            for (int c = 0; c < C; c++)                                                          \
                a[r][c] = splat(0);                                                              \
        for (; i + LANES <= n; i += LANES)                                                       \
            for (int r = 0; r < R; r++)                                                          \
                for (int c = 0; c < C; c++)                                                      \
                    a[r][c] +=                                                                   \
                        load(x + (size_t)r * x_stride + i) * load(y + (size_t)c * y_stride + i); \
        for (int r = 0; i < n && r < R; r++)                                                     \
            for (int c = 0; c < C; c++)                                                          \
                a[r][c] += load_part(x + (size_t)r * x_stride + i, n - i, 0) *                   \
                           load_part(y + (size_t)c * y_stride + i, n - i, 0);                    \
        for (int r = 0; r < R; r++)                                                              \
            for (int c = 0; c < C; c++)                                                          \
                out[(size_t)r * out_stride + (size_t)c] = sum_v(a[r][c]);                        \
    }
DOTS(4, 4)
DOTS(1, 4)
DOTS(4, 1)
DOTS(1, 1)

static void dots(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
                 const float *y, size_t y_stride, size_t cols, size_t n)
{
    for (size_t r = 0, step; r < rows; r += step) {
        float *to = out + r * out_stride;
        const float *row = x + r * x_stride;
        size_t c = 0;
        step = LANES == 16 && r + 4 <= rows ? 4 : 1;
        for (; c + 4 <= cols; c += 4)
            if (step == 4)
                dots_4_4(to + c, out_stride, row, x_stride, y + c * y_stride, y_stride, n);
            else
                dots_1_4(to + c, out_stride, row, x_stride, y + c * y_stride, y_stride, n);
        for (; c < cols; c++)
            if (step == 4)
                dots_4_1(to + c, out_stride, row, x_stride, y + c * y_stride, y_stride, n);
            else
                dots_1_1(to + c, out_stride, row, x_stride, y + c * y_stride, y_stride, n);
    }
}

static void patch(float *y, size_t y_stride, size_t rows, const float *x, const float *value,
                  const int32_t *tap, const int32_t *first, size_t n)
{
    for (size_t f = 0; f < n; f++) {
        float a[WEFT_VEC_ROWS] = {0};
        for (int32_t i = first[f]; i < first[f + 1]; i++) {
            const float *from = x + (size_t)tap[i] * WEFT_VEC_ROWS, by = value[i];
            for (int r = 0; r < WEFT_VEC_ROWS; r++)
                a[r] += from[r] * by;
        }
        for (size_t r = 0; r < rows; r++)
            y[r * y_stride + f] = a[r];
    }
}

#define PV_ROWS(R, C)                                                                         \
    INLINE void pv_##R##_##C(float *out, size_t out_stride, const float *p, size_t p_stride,  \
                             const float *v, size_t v_stride, size_t n, const float *factor)  \
    {                                                                                         \
        vf a[R][C];                                                                           \
        for (int r = 0; r < R; r++)                                                           \
            for (int c = 0; c < C; c++)                                                       \
                a[r][c] = splat(0);                                                           \
        for (size_t k = 0; k < n; k++) {                                                      \
            vf x[C];                                                                          \
            for (int c = 0; c < C; c++)                                                       \
                x[c] = load(v + k * v_stride + (size_t)c * LANES);                            \
            for (int r = 0; r < R; r++) {                                                     \
                float w = p[(size_t)r * p_stride + k];                                        \
                for (int c = 0; c < C; c++)                                                   \
                    a[r][c] += x[c] * w;                                                      \
            }                                                                                 \
        }                                                                                     \
        for (int r = 0; r < R; r++)                                                           \
            for (int c = 0; c < C; c++)                                                       \
                store(out + (size_t)r * out_stride + (size_t)c * LANES, a[r][c] * factor[r]); \
    }
PV_ROWS(4, 4)
PV_ROWS(8, 2)
PV_ROWS(8, 1)
PV_ROWS(1, 4)
PV_ROWS(1, 1)

static void pv(float *out, size_t out_stride, const float *p, size_t p_stride, size_t rows,
               const float *v, size_t v_stride, size_t n, size_t cols, const float *factor)
{
    size_t c = 0;
    for (; c + 4 * LANES <= cols; c += 4 * LANES) {
        size_t r = 0;
        for (; LANES == 16 && r + 4 <= rows; r += 4)
            pv_4_4(out + r * out_stride + c, out_stride, p + r * p_stride, p_stride, v + c,
                   v_stride, n, factor + r);
        for (; r < rows; r++)
            pv_1_4(out + r * out_stride + c, out_stride, p + r * p_stride, p_stride, v + c,
                   v_stride, n, factor + r);
    }
    for (; c + 2 * LANES <= cols && rows == 8; c += 2 * LANES)
        pv_8_2(out + c, out_stride, p, p_stride, v + c, v_stride, n, factor);
    for (; c + LANES <= cols; c += LANES) {
        size_t r = 0;
        for (; r + 8 <= rows; r += 8)
            pv_8_1(out + r * out_stride + c, out_stride, p + r * p_stride, p_stride, v + c,
                   v_stride, n, factor + r);
        for (; r < rows; r++)
            pv_1_1(out + r * out_stride + c, out_stride, p + r * p_stride, p_stride, v + c,
                   v_stride, n, factor + r);
    }
    for (; c < cols; c++)
        for (size_t r = 0; r < rows; r++) {
            float s = 0;
            for (size_t k = 0; k < n; k++)
                s += p[r * p_stride + k] * v[k * v_stride + c];
            out[r * out_stride + c] = s * factor[r];
        }
}

/* -- Panels --------------------------------------------------------------------------------- */

/* R rows times 2 vectors of columns, with U sums for each, so that 8 independent ones hide the
 * latency of a multiplication. */
#define PANEL(R, U)                                                                       \
    INLINE void panel_##R(float *out, size_t out_stride, const float *x, size_t x_stride, \
                          const float *w, size_t n)                                       \
    {                                                                                     \
        vf a[U][R][2];                                                                    \
        size_t i = 0;                                                                     \
        for (int u = 0; u < U; u++)                                                       \
            for (int r = 0; r < R; r++)                                                   \
                a[u][r][0] = a[u][r][1] = splat(0);                                       \
        for (; i + U <= n; i += U)                                                        \
            for (int u = 0; u < U; u++) {                                                 \
                const float *row = w + (i + (size_t)u) * WEFT_VEC_PANEL;                  \
                vf lo = load(row), hi = load(row + LANES);                                \
                for (int r = 0; r < R; r++) {                                             \
                    float f = x[(size_t)r * x_stride + i + (size_t)u];                    \
                    a[u][r][0] += lo * f;                                                 \
                    a[u][r][1] += hi * f;                                                 \
                }                                                                         \
            }                                                                             \
        for (; i < n; i++)                                                                \
            for (int r = 0; r < R; r++) {                                                 \
                float f = x[(size_t)r * x_stride + i];                                    \
                a[0][r][0] += load(w + i * WEFT_VEC_PANEL) * f;                           \
                a[0][r][1] += load(w + i * WEFT_VEC_PANEL + LANES) * f;                   \
            }                                                                             \
        for (int r = 0; r < R; r++)                                                       \
            for (int c = 0; c < 2; c++) {                                                 \
                vf s = a[0][r][c];                                                        \
                for (int u = 1; u < U; u++)                                               \
                    s += a[u][r][c];                                                      \
                store(out + (size_t)r * out_stride + (size_t)c * LANES, s);               \
            }                                                                             \
    }
PANEL(8, 1)
PANEL(4, 1)
PANEL(2, 2)
PANEL(1, 4)

static void panel(float *out, size_t out_stride, const float *x, size_t x_stride, size_t rows,
                  const float *packed, size_t n)
{
    for (size_t c = 0; c < WEFT_VEC_PANEL; c += 2 * LANES) {
        const float *w = packed + c;
        size_t r = 0;
        for (; LANES == 16 && r + 8 <= rows; r += 8)
            panel_8(out + r * out_stride + c, out_stride, x + r * x_stride, x_stride, w, n);
        for (; r + 4 <= rows; r += 4)
            panel_4(out + r * out_stride + c, out_stride, x + r * x_stride, x_stride, w, n);
        for (; r + 2 <= rows; r += 2)
            panel_2(out + r * out_stride + c, out_stride, x + r * x_stride, x_stride, w, n);
        for (; r < rows; r++)
            panel_1(out + r * out_stride + c, out_stride, x + r * x_stride, x_stride, w, n);
    }
}

#include "runtime/cpu/cpu_vec_compare_body.h"
#include "runtime/cpu/cpu_vec_pointwise_body.h"

#include "runtime/cpu/cpu_vec_nbits_body.h"

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
};
