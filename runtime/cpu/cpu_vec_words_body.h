/* Part of cpu_vec_body.h: sums of products of 16-bit words. Bytes minus their zero points have 9
 * bits and a sign, so a product of two fits a word times a word, and pairs of products are added
 * in 32 bits without saturation: exact on every processor. */
#ifndef WEFT_RUNTIME_CPU_CPU_VEC_WORDS_BODY_H
#define WEFT_RUNTIME_CPU_CPU_VEC_WORDS_BODY_H

#if VEC_LANES > 4
/* acc[i] + a[2i] * b[2i] + a[2i + 1] * b[2i + 1] */
INLINE vi add_pairs(vi acc, vi a, vi b)
{
#if VEC_LANES == 16
    return acc + (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#else
    return acc + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
}

#if VEC_LANES == 16
__attribute__((target("avx512f,avx512bw,avx512vnni"))) INLINE vi add_pairs_vnni(vi acc, vi a, vi b)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}
#endif

/* ROWS rows by VECTORS vectors of columns, from column vector `first` of a panel on. */
#define WORDS(name, rows, vectors, add)                                                      \
    INLINE void name(int32_t *out, const int16_t *x, const int32_t *row, const int32_t *tap, \
                     size_t n_tap, size_t pairs, const int16_t *w)                           \
    {                                                                                        \
        vi acc[rows][vectors];                                                               \
        for (int r = 0; r < rows; r++)                                                       \
            for (int v = 0; v < vectors; v++)                                                \
                acc[r][v] = (vi){0};                                                         \
        for (size_t t = 0; t < n_tap; t++) {                                                 \
            const int16_t *from[rows];                                                       \
            for (int r = 0; r < rows; r++)                                                   \
                from[r] = x + row[r] + tap[t];                                               \
            for (size_t k = 0; k < pairs; k++, w += 2 * WEFT_VEC_PANEL) {                    \
                vi b[vectors];                                                               \
                for (int v = 0; v < vectors; v++)                                            \
                    b[v] = *(const vi_mem *)(const void *)(w + 2 * LANES * v);               \
                for (int r = 0; r < rows; r++) {                                             \
                    int32_t pair;                                                            \
                    memcpy(&pair, from[r] + 2 * k, sizeof pair);                             \
                    vi a = pair - (vi){0};                                                   \
                    for (int v = 0; v < vectors; v++)                                        \
                        acc[r][v] = add(acc[r][v], a, b[v]);                                 \
                }                                                                            \
            }                                                                                \
        }                                                                                    \
        for (int r = 0; r < rows; r++)                                                       \
            for (int v = 0; v < vectors; v++)                                                \
                *(vi_mem *)(out + r * WEFT_VEC_PANEL + v * LANES) = acc[r][v];               \
    }
#if VEC_LANES == 16
enum { WORD_VECTORS = 2, WORD_ROWS = 8 };
__attribute__((target("avx512f,avx512bw,avx512vnni")))
WORDS(words_many_vnni, 8, 2, add_pairs_vnni) __attribute__((target("avx512f,avx512bw,avx512vnni")))
WORDS(words_one_vnni, 1, 2, add_pairs_vnni)
#else
enum { WORD_VECTORS = 2, WORD_ROWS = 4 };
#endif
    WORDS(words_many, WORD_ROWS, WORD_VECTORS, add_pairs) WORDS(words_one, 1, WORD_VECTORS,
                                                                add_pairs)

/* Rows in groups of WORD_ROWS, then one at a time; columns in groups of vectors. */
#define WORDS_PANEL(name, many, one)                                                          \
    static void name(int32_t *out, const int16_t *x, const int32_t *row, size_t rows,         \
                     const int32_t *tap, size_t n_tap, size_t pairs, const int16_t *w)        \
    {                                                                                         \
        for (size_t c = 0; c < WEFT_VEC_PANEL; c += WORD_VECTORS * LANES) {                   \
            size_t r = 0;                                                                     \
            for (; r + WORD_ROWS <= rows; r += WORD_ROWS)                                     \
                many(out + r * WEFT_VEC_PANEL + c, x, row + r, tap, n_tap, pairs, w + 2 * c); \
            for (; r < rows; r++)                                                             \
                one(out + r * WEFT_VEC_PANEL + c, x, row + r, tap, n_tap, pairs, w + 2 * c);  \
        }                                                                                     \
    }
#if VEC_LANES == 16
        __attribute__((target("avx512f,avx512bw,avx512vnni")))
        WORDS_PANEL(words_vnni, words_many_vnni, words_one_vnni)
            WORDS_PANEL(words_plain, words_many, words_one)

                static void words(int32_t *out, const int16_t *x, const int32_t *row, size_t rows,
                                  const int32_t *tap, size_t n_tap, size_t pairs, const int16_t *w)
{
    if (__builtin_cpu_supports("avx512vnni"))
        words_vnni(out, x, row, rows, tap, n_tap, pairs, w);
    else
        words_plain(out, x, row, rows, tap, n_tap, pairs, w);
}
#else
WORDS_PANEL(words, words_many, words_one)
#endif
#else
static void words(int32_t *out, const int16_t *x, const int32_t *row, size_t rows,
                  const int32_t *tap, size_t n_tap, size_t pairs, const int16_t *w)
{
    for (size_t r = 0; r < rows; r++) {
        const int16_t *b = w;
        int32_t *sum = out + r * WEFT_VEC_PANEL;
        memset(sum, 0, WEFT_VEC_PANEL * sizeof *sum);
        for (size_t t = 0; t < n_tap; t++)
            for (size_t k = 0; k < pairs; k++, b += 2 * WEFT_VEC_PANEL) {
                const int16_t *a = x + row[r] + tap[t] + 2 * k;
                for (size_t c = 0; c < WEFT_VEC_PANEL; c++)
                    sum[c] += a[0] * b[2 * c] + a[1] * b[2 * c + 1];
            }
    }
}
#endif

static void center(int16_t *y, const uint8_t *x, bool is_signed, int32_t zero, size_t n)
{
    const int16_t z = (int16_t)zero;
    if (is_signed)
        for (size_t i = 0; i < n; i++)
            y[i] = (int16_t)((int8_t)x[i] - z);
    else
        for (size_t i = 0; i < n; i++)
            y[i] = (int16_t)(x[i] - z);
}

static void depthwise(int32_t *out, const int16_t *x, const int32_t *tap, size_t n_tap,
                      const int16_t *w, size_t stride, size_t n)
{
    memset(out, 0, n * sizeof *out);
    for (size_t t = 0; t < n_tap; t++) {
        const int16_t *a = x + tap[t], *b = w + t * stride;
        for (size_t i = 0; i < n; i++)
            out[i] += a[i] * b[i];
    }
}

static void scale_sums(float *y, const int32_t *sum, const int32_t *whole, const float *mul,
                       const float *add, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(sum[i] + whole[i]) * mul[i] + add[i];
}

#endif
