/* Part of cpu_vec_body.h: products of weights of 2, 4 or 8 bits with rows of x that are rounded to
 * bytes, each block with a scale of its own. A word of four bytes times a word of four is added in
 * 32 bits (VNNI), without saturation. */

/* y[i] = x[i] / scale rounded to even, where the largest magnitude becomes 127. */
static bool nbits_quantise(int8_t *y, float *scale, float *sum, const float *x, size_t n)
{
    float most = 0, none = 0;
    int32_t total = 0;
    for (size_t i = 0; i < n; i++) {
        float f = fabsf(x[i]);
        most = f <= most ? most : f;
        none += f - f; /* NaN for NaN and infinities */
    }
    if (none != 0 || (most > 0 && most < 1e-30f))
        return false;
    float by = most > 0 ? 127 / most : 0;
    for (size_t i = 0; i < n; i++) {
        int32_t q = (int32_t)(x[i] * by + 12582912.0f - 12582912.0f); /* 1.5 2^23: rounds to even */
        y[i] = (int8_t)q;
        total += q;
    }
    *scale = most / 127;
    *sum = *scale * (float)total;
    return true;
}

#if VEC_LANES == 16
#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,avx512vnni")))
#define NBITS_BYTES(R)                                                                       \
    VNNI INLINE void nbits_bytes_##R(float *out, size_t out_stride, const weft_vec_bytes *x, \
                                     size_t row, const uint32_t *w, const float *scale,      \
                                     const float *zero, size_t blocks, size_t words)         \
    {                                                                                        \
        vf sum[R][2];                                                                        \
        UNROLL_16                                                                            \
        for (int r = 0; r < R; r++)                                                          \
            sum[r][0] = sum[r][1] = splat(0);                                                \
        const int8_t *at = x->q + row * x->stride;                                           \
        const float *by = x->scale + row * blocks, *total = x->sum + row * blocks;           \
        for (size_t b = 0; b < blocks; b++, at += 4 * words) {                               \
            __m512i acc[R][2];                                                               \
            UNROLL_16                                                                        \
            for (int r = 0; r < R; r++)                                                      \
                acc[r][0] = acc[r][1] = _mm512_setzero_si512();                              \
            for (size_t i = 0; i < words; i++, w += WEFT_VEC_PANEL) {                        \
                __m512i lo = _mm512_loadu_si512(w), hi = _mm512_loadu_si512(w + LANES);      \
                UNROLL_16                                                                    \
                for (int r = 0; r < R; r++) {                                                \
                    int32_t four;                                                            \
                    memcpy(&four, at + (size_t)r * x->stride + 4 * i, sizeof four);          \
                    __m512i v = _mm512_set1_epi32(four);                                     \
                    acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], lo, v);                       \
                    acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], hi, v);                       \
                }                                                                            \
            }                                                                                \
            UNROLL_16                                                                        \
            for (int c = 0; c < 2; c++) {                                                    \
                vf s = load(scale + b * WEFT_VEC_PANEL + c * LANES);                         \
                vf z = load(zero + b * WEFT_VEC_PANEL + c * LANES);                          \
                UNROLL_16                                                                    \
                for (int r = 0; r < R; r++) {                                                \
                    vf dot = (vf)_mm512_cvtepi32_ps(acc[r][c]);                              \
                    float f = by[(size_t)r * blocks + b], t = total[(size_t)r * blocks + b]; \
                    sum[r][c] += (dot * f - z * t) * s;                                      \
                }                                                                            \
            }                                                                                \
        }                                                                                    \
        UNROLL_16                                                                            \
        for (int r = 0; r < R; r++)                                                          \
            UNROLL_16                                                                        \
        for (int c = 0; c < 2; c++)                                                          \
            store(out + (size_t)r * out_stride + (size_t)c * LANES, sum[r][c]);              \
    }
NBITS_BYTES(6)
NBITS_BYTES(4)
NBITS_BYTES(2)
NBITS_BYTES(1)

VNNI static void nbits_bytes(float *out, size_t out_stride, const weft_vec_bytes *x, size_t rows,
                             const uint32_t *w, const float *scale, const float *zero,
                             size_t blocks, size_t words)
{
    size_t r = 0;
    for (; r + 6 <= rows; r += 6)
        nbits_bytes_6(out + r * out_stride, out_stride, x, r, w, scale, zero, blocks, words);
    for (; r + 4 <= rows; r += 4)
        nbits_bytes_4(out + r * out_stride, out_stride, x, r, w, scale, zero, blocks, words);
    for (; r + 2 <= rows; r += 2)
        nbits_bytes_2(out + r * out_stride, out_stride, x, r, w, scale, zero, blocks, words);
    for (; r < rows; r++)
        nbits_bytes_1(out + r * out_stride, out_stride, x, r, w, scale, zero, blocks, words);
}

/* -- Few rows: bytes in the order of the bits (weft_vec_nbits in cpu_vec.h) -- */

/* Lane scales or zero points of group g; blocks of 16 words and more have one in all lanes. */
INLINE vf nbits_byte_lanes(const weft_vec_nbits *s, bool long_blocks, const float *p, size_t g)
{
    lanes16 v;
    if (long_blocks)
        return splat(p[g >> (s->shift - 4)]);
    nbits_lanes(s, v, p, g);
    return v[0];
}

/* Adds group g of R rows of x by C rows of weights. */
VNNI INLINE void nbits_byte_group(const weft_vec_nbits *s, int bits, int R, int C, bool long_blocks,
                                  bool is_last, vf acc[4][4], const float *at, const uint8_t *b,
                                  const float *scale, const float *zero, size_t g)
{
    const int parts = 8 / bits;
    const __m512i mask = _mm512_set1_epi8((char)((1 << bits) - 1));
    __m512i q[4][4];
    vf by[4], from[4];
    UNROLL_16
    for (int c = 0; c < C; c++) {
        vi words[1];
        lanes16 lanes = {nbits_byte_lanes(s, long_blocks, scale + (size_t)c * s->blocks, g)};
        from[c] = zero ? nbits_byte_lanes(s, long_blocks, zero + (size_t)c * s->blocks, g)
                       : splat((float)(1 << (bits - 1)));
        if (is_last) {
            nbits_words(s, words, b + (size_t)c * s->words * 4, g);
            nbits_cut(s, lanes, g);
        } else {
            words[0] = *(const vi_mem *)(const void *)(b + (size_t)c * s->words * 4 + g * 64);
        }
        by[c] = lanes[0];
        UNROLL_16
        for (int j = 0; j < parts; j++)
            q[c][j] =
                _mm512_and_si512(_mm512_srli_epi32((__m512i)words[0], (unsigned)(bits * j)), mask);
    }
    UNROLL_16
    for (int r = 0; r < R; r++) {
        const float *row = at + (size_t)r * s->x_stride;
        vf factor = load(row + parts * 16), total = load(row + parts * 16 + 16);
        UNROLL_16
        for (int c = 0; c < C; c++) {
            __m512i sum = _mm512_setzero_si512();
            UNROLL_16
            for (int j = 0; j < parts; j++)
                sum = _mm512_dpbusd_epi32(sum, q[c][j], _mm512_loadu_si512(row + j * 16));
            vf dot = (vf)_mm512_cvtepi32_ps(sum) * factor;
            acc[r][c] += (dot - from[c] * total) * by[c];
        }
    }
}

VNNI INLINE void nbits_byte_tile(const weft_vec_nbits *s, int bits, int R, int C, bool long_blocks,
                                 float *out, size_t out_stride, const float *x, const uint8_t *b,
                                 const float *scale, const float *zero)
{
    const size_t step = (size_t)(8 / bits + 2) * 16;
    vf acc[4][4];
    size_t g = 0;
    UNROLL_16
    for (int r = 0; r < R; r++)
        UNROLL_16
    for (int c = 0; c < C; c++)
        acc[r][c] = splat(0);
    for (; g + 1 < s->groups; g++)
        nbits_byte_group(s, bits, R, C, long_blocks, false, acc, x + g * step, b, scale, zero, g);
    nbits_byte_group(s, bits, R, C, long_blocks, true, acc, x + g * step, b, scale, zero, g);
    UNROLL_16
    for (int r = 0; r < R; r++)
        UNROLL_16
    for (int c = 0; c < C; c++)
        out[(size_t)r * out_stride + (size_t)c] = sum_v(acc[r][c]);
}

#define NBITS_BYTE_ROWS(bits, C, long_blocks, zero)                                   \
    for (; r + 4 <= rows && C > 1; r += 4)                                            \
        nbits_byte_tile(s, bits, 4, C, long_blocks, out + r * out_stride, out_stride, \
                        x + r * s->x_stride, b, scale, zero);                         \
    for (; r < rows; r++)                                                             \
    nbits_byte_tile(s, bits, 1, C, long_blocks, out + r * out_stride, out_stride,     \
                    x + r * s->x_stride, b, scale, zero)
/* C columns. */
#define NBITS_BYTE_TILES(bits, C)                                                            \
    VNNI static void nbits_byte_dots_##bits##_##C(                                           \
        const weft_vec_nbits *s, float *out, size_t out_stride, const float *x, size_t rows, \
        const uint8_t *b, const float *scale, const float *zero)                             \
    {                                                                                        \
        size_t r = 0;                                                                        \
        if (s->shift >= 4 && zero) {                                                         \
            NBITS_BYTE_ROWS(bits, C, true, zero);                                            \
        } else if (s->shift >= 4) {                                                          \
            NBITS_BYTE_ROWS(bits, C, true, NULL);                                            \
        } else if (zero) {                                                                   \
            NBITS_BYTE_ROWS(bits, C, false, zero);                                           \
        } else {                                                                             \
            NBITS_BYTE_ROWS(bits, C, false, NULL);                                           \
        }                                                                                    \
    }
NBITS_BYTE_TILES(2, 4)
NBITS_BYTE_TILES(2, 1)
NBITS_BYTE_TILES(4, 4)
NBITS_BYTE_TILES(4, 1)
NBITS_BYTE_TILES(8, 4)
NBITS_BYTE_TILES(8, 1)

static void nbits_byte_dots(const weft_vec_nbits *s, float *out, size_t out_stride, const float *x,
                            size_t rows, const uint8_t *b, const float *scale, const float *zero,
                            size_t cols)
{
    void (*four)(const weft_vec_nbits *, float *, size_t, const float *, size_t, const uint8_t *,
                 const float *, const float *) = s->bits == 2   ? nbits_byte_dots_2_4
                                                 : s->bits == 4 ? nbits_byte_dots_4_4
                                                                : nbits_byte_dots_8_4;
    void (*one)(const weft_vec_nbits *, float *, size_t, const float *, size_t, const uint8_t *,
                const float *, const float *) = s->bits == 2   ? nbits_byte_dots_2_1
                                                : s->bits == 4 ? nbits_byte_dots_4_1
                                                               : nbits_byte_dots_8_1;
    for (size_t c = 0, n; c < cols; c += n) {
        n = cols - c >= 4 ? 4 : 1;
        (n == 4 ? four : one)(s, out + c, out_stride, x, rows, b + c * s->words * 4,
                              scale + c * s->blocks, zero ? zero + c * s->blocks : NULL);
    }
}
#endif

static void nbits_byte_order(const weft_vec_nbits *s, float *y, const int8_t *q, const float *scale)
{
    const size_t parts = 8 / (size_t)s->bits;
    for (size_t g = 0; g < s->groups; g++, y += (parts + 2) * 16) {
        int8_t t[256] = {0};
        int32_t sum[16] = {0};
        size_t left = s->words * 4 - g * 64, n = left < 64 ? left : 64;
        const int8_t *from = q + g * 64 * parts;
        for (size_t p = 0; p < n; p++)
            for (size_t j = 0; j < parts; j++) {
                t[j * 64 + p] = from[p * parts + j];
                sum[p / 4] += from[p * parts + j];
            }
        memcpy(y, t, parts * 64);
        for (size_t d = 0; d < 16; d++) {
            float by = g * 16 + d < s->words ? scale[(g * 16 + d) >> s->shift] : 0;
            y[parts * 16 + d] = by;
            y[parts * 16 + 16 + d] = by * (float)sum[d];
        }
    }
}

/* Spreads the elements of words over the bytes of 32 / bits / 4 words. */
static void nbits_spread(int bits, uint32_t *to, const uint32_t *word, size_t words)
{
    for (size_t i = 0; i < words; i++, word += WEFT_VEC_PANEL)
        for (int part = 0; part < 8 / bits; part++, to += WEFT_VEC_PANEL)
            for (size_t c = 0; c < WEFT_VEC_PANEL; c++) {
                uint32_t v = word[c] >> part * 4 * bits;
                if (bits == 4) {
                    v = ((v & 0xffff) | v << 8) & 0x00ff00ff;
                    v = (v | v << 4) & 0x0f0f0f0f;
                } else if (bits == 2) {
                    v = ((v & 0xff) | v << 12) & 0x000f000f;
                    v = (v | v << 6) & 0x03030303;
                }
                to[c] = v;
            }
}
