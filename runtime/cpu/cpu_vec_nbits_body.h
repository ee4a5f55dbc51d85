/* Part of cpu_vec_body.h: products with weights of 2, 4 or 8 bits (weft_vec_nbits in cpu_vec.h).
 *
 * 16 words of 32 bits of a row of weights are a group. Word d holds elements d * per .. + per - 1,
 * per = 32 / bits, low bits first, so that shifting all words by bits * j gives elements d * per +
 * j: the order in which `order` stores x. A block is 2^shift words; each lane has the scale of its
 * word. Weights are counted from the middle of their range. */

/* The sanitizers keep gcc from unrolling, which it warns of. */
#if defined __SANITIZE_ADDRESS__
#define UNROLL_16
#else
#define UNROLL_16 _Pragma("GCC unroll 16")
#endif
typedef vf lanes16[GROUP];

/* Elements j of the words, minus 2^(bits - 1). */
INLINE vf nbits_take(vi v, int bits, int j)
{
#if VEC_LANES == 16
    if (bits < 8) { /* the permutation looks at 4 bits */
        const __m512 four = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        const __m512 two = _mm512_setr_ps(-2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1);
        return (vf)_mm512_permutexvar_ps((__m512i)(v >> (bits * j)), bits == 4 ? four : two);
    }
#endif
    vi q = (v >> (bits * j)) & ((1 << bits) - 1);
    return __builtin_convertvector(q - (1 << (bits - 1)), vf);
}

/* Lane d of group g gets p[(16 g + d) >> shift], 0 behind the last block. */
INLINE void nbits_lanes(const weft_vec_nbits *s, lanes16 out, const float *p, size_t g)
{
    size_t first = g * 16 >> s->shift, n = s->shift < 4 ? 16u >> s->shift : 1;
    if (s->shift >= 4) {
        for (int i = 0; i < GROUP; i++)
            out[i] = splat(p[first]);
        return;
    }
    n = s->blocks - first < n ? s->blocks - first : n;
#if VEC_LANES == 16
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 t = _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p + first);
    out[0] = (vf)_mm512_permutexvar_ps(_mm512_srli_epi32(lane, s->shift), t);
#else
    float t[16];
    for (size_t d = 0; d < 16; d++)
        t[d] = d >> s->shift < n ? p[first + (d >> s->shift)] : 0;
    for (int i = 0; i < GROUP; i++)
        out[i] = load(t + i * LANES);
#endif
}

/* 0 in the lanes of words behind the last element: a scale may be infinite. */
INLINE void nbits_cut(const weft_vec_nbits *s, lanes16 by, size_t g)
{
    if (g * 16 + 16 <= s->used)
        return;
    float t[16];
    for (int i = 0; i < GROUP; i++)
        store(t + i * LANES, by[i]);
    for (size_t d = s->used > g * 16 ? s->used - g * 16 : 0; d < 16; d++)
        t[d] = 0;
    for (int i = 0; i < GROUP; i++)
        by[i] = load(t + i * LANES);
}

/* The words of a group of a row, 0 behind its end. */
INLINE void nbits_words(const weft_vec_nbits *s, vi out[GROUP], const uint8_t *row, size_t g)
{
    size_t left = s->words - g * 16;
    if (left >= 16) {
        for (int i = 0; i < GROUP; i++)
            out[i] = *(const vi_mem *)(const void *)(row + g * 64 + (size_t)i * LANES * 4);
        return;
    }
    int32_t t[16] = {0};
    memcpy(t, row + g * 64, left * 4);
    for (int i = 0; i < GROUP; i++)
        out[i] = *(const vi_mem *)(t + i * LANES);
}

/* R rows of x with C rows of weights. */
INLINE void nbits_tile(const weft_vec_nbits *s, int bits, int R, int C, float *out,
                       size_t out_stride, const float *x, const uint8_t *b, const float *scale,
                       const float *zero)
{
    const int per = 32 / bits;
    vf acc[4][4];
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            acc[r][c] = splat(0);
    for (size_t g = 0; g < s->groups; g++) {
        const float *at = x + g * 16 * (size_t)(per + 1);
        for (int c = 0; c < C; c++) {
            vi words[GROUP];
            lanes16 by, from;
            nbits_words(s, words, b + (size_t)c * s->words * 4, g);
            nbits_lanes(s, by, scale + (size_t)c * s->blocks, g);
            nbits_cut(s, by, g);
            if (zero)
                nbits_lanes(s, from, zero + (size_t)c * s->blocks, g);
            for (int i = 0; i < GROUP; i++) {
                vf part[4];
                for (int r = 0; r < R; r++)
                    part[r] = splat(0);
                if (zero) {
                    vf z = splat((float)(1 << (bits - 1))) - from[i];
                    for (int r = 0; r < R; r++)
                        part[r] = z * load(at + (size_t)r * s->x_stride + per * 16 + i * LANES);
                }
                UNROLL_16
                for (int j = 0; j < per; j++) {
                    vf w = nbits_take(words[i], bits, j);
                    for (int r = 0; r < R; r++)
                        part[r] += w * load(at + (size_t)r * s->x_stride + j * 16 + i * LANES);
                }
                for (int r = 0; r < R; r++)
                    acc[r][c] += part[r] * by[i];
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int c = 0; c < C; c++)
            out[(size_t)r * out_stride + (size_t)c] = sum_v(acc[r][c]);
}

#define NBITS_TILES(bits)                                                                        \
    static void nbits_dots_##bits(const weft_vec_nbits *s, float *out, size_t out_stride,        \
                                  const float *x, size_t rows, const uint8_t *b,                 \
                                  const float *scale, const float *zero, size_t cols)            \
    {                                                                                            \
        for (size_t c = 0, wide; c < cols; c += wide) {                                          \
            const uint8_t *w = b + c * s->words * 4;                                             \
            const float *by = scale + c * s->blocks, *from = zero ? zero + c * s->blocks : NULL; \
            size_t r = 0;                                                                        \
            wide = c + 2 <= cols ? 2 : 1;                                                        \
            for (; r + 4 <= rows && wide == 2; r += 4)                                           \
                nbits_tile(s, bits, 4, 2, out + r * out_stride + c, out_stride,                  \
                           x + r * s->x_stride, w, by, from);                                    \
            for (; r < rows && wide == 2; r++)                                                   \
                nbits_tile(s, bits, 1, 2, out + r * out_stride + c, out_stride,                  \
                           x + r * s->x_stride, w, by, from);                                    \
            for (; r < rows; r++)                                                                \
                nbits_tile(s, bits, 1, 1, out + r * out_stride + c, out_stride,                  \
                           x + r * s->x_stride, w, by, from);                                    \
        }                                                                                        \
    }
NBITS_TILES(2)
NBITS_TILES(4)
NBITS_TILES(8)

static void nbits_dots(const weft_vec_nbits *s, float *out, size_t out_stride, const float *x,
                       size_t rows, const uint8_t *b, const float *scale, const float *zero,
                       size_t cols)
{
    if (s->bits == 2)
        nbits_dots_2(s, out, out_stride, x, rows, b, scale, zero, cols);
    else if (s->bits == 4)
        nbits_dots_4(s, out, out_stride, x, rows, b, scale, zero, cols);
    else
        nbits_dots_8(s, out, out_stride, x, rows, b, scale, zero, cols);
}

static void nbits_order(const weft_vec_nbits *s, float *y, const float *x, size_t k)
{
    const size_t per = 32 / (size_t)s->bits;
    for (size_t g = 0; g < s->groups; g++, y += 16 * (per + 1)) {
        const float *from = x + g * 16 * per;
        size_t left = k > g * 16 * per ? k - g * 16 * per : 0;
        float *sum = y + per * 16;
        for (size_t d = 0; d < 16; d++)
            sum[d] = 0;
        for (size_t j = 0; j < per; j++)
            for (size_t d = 0; d < 16; d++) {
                float f = d * per + j < left ? from[d * per + j] : 0;
                y[j * 16 + d] = f;
                sum[d] += f;
            }
    }
}

/* -- Panels of columns, for many rows of x: [k][WEFT_VEC_PANEL], k in the order of x -- */

INLINE void nbits_unpack_of(int bits, float *w, const uint32_t *word, const float *scale,
                            const float *zero, size_t n)
{
    for (size_t k = 0; k < n; k++, w += WEFT_VEC_PANEL) {
        const uint32_t *from = word + k / (32 / (size_t)bits) * WEFT_VEC_PANEL;
        int shift = (int)(k % (32 / (size_t)bits)) * bits;
        for (size_t c = 0; c < WEFT_VEC_PANEL; c += LANES) {
            vi v = *(const vi_mem *)(const void *)(from + c);
            vi q = (v >> shift) & ((1 << bits) - 1);
            store(w + c, (__builtin_convertvector(q, vf) - load(zero + c)) * load(scale + c));
        }
    }
}

static void nbits_unpack(int bits, float *w, const uint32_t *word, const float *scale,
                         const float *zero, size_t n)
{
    if (bits == 2)
        nbits_unpack_of(2, w, word, scale, zero, n);
    else if (bits == 4)
        nbits_unpack_of(4, w, word, scale, zero, n);
    else
        nbits_unpack_of(8, w, word, scale, zero, n);
}
