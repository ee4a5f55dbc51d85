/* Part of cpu_vec_body.h: products of a few rows by columns, which stay in registers, and
 * transposition. */

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
    /* A vector by name: the compiler would make the few elements of a feature the vector. */
    typedef float column __attribute__((vector_size(WEFT_VEC_ROWS * sizeof(float))));
    for (size_t f = 0; f < n; f++) {
        column a = {0}, from;
        for (int32_t i = first[f]; i < first[f + 1]; i++) {
            memcpy(&from, x + (size_t)tap[i] * WEFT_VEC_ROWS, sizeof from);
            a += from * value[i];
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
