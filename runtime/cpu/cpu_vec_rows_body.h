/* Part of cpu_vec_body.h: limits, sums, maxima, normalisations and softmax of rows of floats. */

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

/* By the bits: the limit's less those of a magnitude that is not tame are negative. */
static bool are_tame(const float *x, size_t n)
{
    static const float most = WEFT_TAME_MOST;
    int32_t limit;
    memcpy(&limit, &most, sizeof limit);
    vi a = {0}, b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a |= limit - as_i(abs_v(load(x + i)));
        b |= limit - as_i(abs_v(load(x + i + LANES)));
    }
    for (; i < n; i += LANES)
        a |= limit - as_i(abs_v(n - i < LANES ? load_part(x + i, n - i, 0) : load(x + i)));
    a |= b;
    int32_t all = 0;
    for (int l = 0; l < LANES; l++)
        all |= a[l];
    return all >= 0;
}

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

static void max16(float *y, const float *x, int64_t at, const int32_t *tap, size_t n)
{
    for (int g = 0; g < GROUP; g++, at += LANES) {
        vf a = splat(-INFINITY);
        for (size_t i = 0; i < n; i++) {
            vf v = load(x + at + tap[i]);
            a = pick((v > a) | (v != v), v, a);
        }
        store(y + g * LANES, a);
    }
}

static void mean16(float *y, const float *x, int64_t at, const int32_t *tap, size_t n, float count)
{
    for (int g = 0; g < GROUP; g++, at += LANES) {
        vf a = splat(0);
        for (size_t i = 0; i < n; i++)
            a += load(x + at + tap[i]);
        store(y + g * LANES, a / count);
    }
}

/* The mean of n > 0 numbers. Their differences from the first one are summed: the mean of equal
 * numbers is exact, so that normalisation does not enlarge its rounding. */
static float mean_of(const float *x, size_t n)
{
    float first = x[0];
    vf a = splat(0), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a += load(x + i) - first;
        b += load(x + i + LANES) - first;
    }
    for (; i + LANES <= n; i += LANES)
        a += load(x + i) - first;
    if (i < n)
        b += load_part(x + i, n - i, first) - first;
    return first + sum_v(a + b) / (float)n;
}

static void layer_norm(float *y, const float *x, const float *scale, const float *bias, float eps,
                       size_t n)
{
    float mean = n ? mean_of(x, n) : 0;
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
