/* Part of cpu_vec_body.h: sums of products of bytes without a sign and bytes with one. Four
 * products at a time are added in 32 bits (VNNI), without saturation: exact. */
#if VEC_LANES == 16
/* Adds quad `at` of R rows times the panel to their sums. */
#define BYTE_ROWS_QUAD(R, k, at)                                                           \
    do {                                                                                   \
        __m512i b0 = _mm512_loadu_si512(w + (at)*4 * WEFT_VEC_PANEL);                      \
        __m512i b1 = _mm512_loadu_si512(w + (at)*4 * WEFT_VEC_PANEL + 64);                 \
        UNROLL_16                                                                          \
        for (int r = 0; r < R; r++) {                                                      \
            int32_t quad;                                                                  \
            memcpy(&quad, q + (size_t)r * x->stride + 4 * (at), sizeof quad);              \
            acc[r][k][0] = _mm512_dpbusd_epi32(acc[r][k][0], _mm512_set1_epi32(quad), b0); \
            acc[r][k][1] = _mm512_dpbusd_epi32(acc[r][k][1], _mm512_set1_epi32(quad), b1); \
        }                                                                                  \
    } while (0)

/* R rows by a panel of columns. Each result has SUMS sums, so that additions do not wait for each
 * other. The sum of (x - x_zero) (w - w_zero) is that of x w, less x_zero times that of w, less
 * w_zero times that of x - x_zero. */
#define BYTE_ROWS(R, SUMS)                                                           \
    VNNI INLINE void byte_rows_##R(int32_t *out, const weft_vec_rows *x, size_t row, \
                                   const int8_t *w, const weft_vec_panel *panel)     \
    {                                                                                \
        __m512i acc[R][SUMS][2];                                                     \
        const uint8_t *q = x->q + row * x->stride;                                   \
        size_t at = 0;                                                               \
        UNROLL_16                                                                    \
        for (int r = 0; r < R; r++)                                                  \
            UNROLL_16                                                                \
        for (int k = 0; k < SUMS; k++)                                               \
            acc[r][k][0] = acc[r][k][1] = _mm512_setzero_si512();                    \
        for (; at + SUMS <= x->quads; at += SUMS) {                                  \
            UNROLL_16                                                                \
            for (int k = 0; k < SUMS; k++)                                           \
                BYTE_ROWS_QUAD(R, k, at + (size_t)k);                                \
        }                                                                            \
        for (; SUMS > 1 && at < x->quads; at++)                                      \
            BYTE_ROWS_QUAD(R, 0, at);                                                \
        for (int v = 0; v < 2; v++) {                                                \
            vi less = x->zero * *(const vi_mem *)(panel->sum + 16 * v);              \
            vi zero = *(const vi_mem *)(panel->zero + 16 * v);                       \
            UNROLL_16                                                                \
            for (int r = 0; r < R; r++) {                                            \
                UNROLL_16                                                            \
                for (int k = 1; k < SUMS; k++)                                       \
                    acc[r][0][v] = _mm512_add_epi32(acc[r][0][v], acc[r][k][v]);     \
                *(vi_mem *)(out + (row + (size_t)r) * WEFT_VEC_PANEL + 16 * v) =     \
                    (vi)acc[r][0][v] - less - x->whole[row + (size_t)r] * zero;      \
            }                                                                        \
        }                                                                            \
    }
BYTE_ROWS(8, 1)
BYTE_ROWS(2, 4)
BYTE_ROWS(1, 4)

VNNI static void byte_rows(int32_t *out, const weft_vec_rows *x, size_t rows, const int8_t *w,
                           const weft_vec_panel *panel)
{
    size_t r = 0;
    for (; r + 8 <= rows; r += 8)
        byte_rows_8(out, x, r, w, panel);
    for (; r + 2 <= rows; r += 2)
        byte_rows_2(out, x, r, w, panel);
    for (; r < rows; r++)
        byte_rows_1(out, x, r, w, panel);
}
#endif
