/* Part of cpu_vec_body.h: pointwise convolutions of values in blocks of channels. */

#if VEC_LANES >= 8
/* R pixels times C blocks of channels; w: columns of a panel. */
#define POINTWISE(R, C)                                                                    \
    INLINE void pointwise_step_##R##_##C(vf a[R][C], const float *x, const float *w)       \
    {                                                                                      \
        for (int r = 0; r < R; r++)                                                        \
            for (int c = 0; c < C; c++)                                                    \
                a[r][c] += load(w + c * LANES) * x[(size_t)r * LANES];                     \
    }                                                                                      \
    INLINE void pointwise_##R##_##C(const weft_vec_pointwise *s, float *y, const float *x, \
                                    const float *w, const float *bias, const float *add)   \
    {                                                                                      \
        vf a[R][C];                                                                        \
        const vf lo = splat(s->lo), hi = splat(s->hi);                                     \
        size_t at = 0;                                                                     \
        for (int r = 0; r < R; r++)                                                        \
            for (int c = 0; c < C; c++)                                                    \
                a[r][c] = load(bias + c * LANES);                                          \
        for (; at + LANES <= s->in; at += LANES, x += s->x_block)                          \
            for (size_t k = 0; k < LANES; k += 2, w += 2 * WEFT_VEC_PANEL) {               \
                pointwise_step_##R##_##C(a, x + k, w);                                     \
                pointwise_step_##R##_##C(a, x + k + 1, w + WEFT_VEC_PANEL);                \
            }                                                                              \
        for (size_t k = 0; at + k < s->in; k++, w += WEFT_VEC_PANEL)                       \
            pointwise_step_##R##_##C(a, x + k, w);                                         \
        for (int r = 0; r < R; r++)                                                        \
            for (int c = 0; c < C; c++) {                                                  \
                size_t to = (size_t)r * LANES + (size_t)c * s->y_block;                    \
                vf v = a[r][c];                                                            \
                if (add)                                                                   \
                    v += load(add + to);                                                   \
                store(y + to, min_v(max_v(v, lo), hi));                                    \
            }                                                                              \
    }
/* One pixel and C blocks, with four sums for each so that they hide the latency of a product. */
#define POINTWISE_ONE(C)                                                                \
    INLINE void pointwise_1_##C(const weft_vec_pointwise *s, float *y, const float *x,  \
                                const float *w, const float *bias, const float *add)    \
    {                                                                                   \
        vf a[4][C];                                                                     \
        size_t at = 0;                                                                  \
        for (int u = 0; u < 4; u++)                                                     \
            for (int c = 0; c < C; c++)                                                 \
                a[u][c] = u ? splat(0) : load(bias + c * LANES);                        \
        for (; at + LANES <= s->in; at += LANES, x += s->x_block)                       \
            for (size_t k = 0; k < LANES; k += 4, w += 4 * WEFT_VEC_PANEL)              \
                for (size_t u = 0; u < 4; u++)                                          \
                    for (int c = 0; c < C; c++)                                         \
                        a[u][c] += load(w + u * WEFT_VEC_PANEL + c * LANES) * x[k + u]; \
        for (size_t k = 0; at + k < s->in; k++, w += WEFT_VEC_PANEL)                    \
            for (int c = 0; c < C; c++)                                                 \
                a[0][c] += load(w + c * LANES) * x[k];                                  \
        for (int c = 0; c < C; c++) {                                                   \
            size_t to = (size_t)c * s->y_block;                                         \
            vf v = (a[0][c] + a[1][c]) + (a[2][c] + a[3][c]);                           \
            if (add)                                                                    \
                v += load(add + to);                                                    \
            store(y + to, min_v(max_v(v, splat(s->lo)), splat(s->hi)));                 \
        }                                                                               \
    }
#define POINTWISE_RUN(R, C)            \
    for (; i + R <= s->pixels; i += R) \
    pointwise_##R##_##C(s, y + i * LANES, x + i * LANES, w, bias, add ? add + i * LANES : NULL)

#if VEC_LANES == 16
POINTWISE(14, 2)
POINTWISE(7, 2)
POINTWISE(14, 1)
#else
POINTWISE(6, 2)
POINTWISE(12, 1)
#endif
POINTWISE(3, 2)
POINTWISE_ONE(2)
POINTWISE(4, 1)
POINTWISE_ONE(1)

static void pointwise_pair(const weft_vec_pointwise *s, float *y, const float *x, const float *w,
                           const float *bias, const float *add)
{
    size_t i = 0;
#if VEC_LANES == 16
    POINTWISE_RUN(14, 2);
    POINTWISE_RUN(7, 2);
#else
    POINTWISE_RUN(6, 2);
#endif
    POINTWISE_RUN(3, 2);
    POINTWISE_RUN(1, 2);
}

static void pointwise_single(const weft_vec_pointwise *s, float *y, const float *x, const float *w,
                             const float *bias, const float *add)
{
    size_t i = 0;
#if VEC_LANES == 16
    POINTWISE_RUN(14, 1);
#else
    POINTWISE_RUN(12, 1);
#endif
    POINTWISE_RUN(4, 1);
    POINTWISE_RUN(1, 1);
}

static void pointwise(float *y, const float *x, const float *w, const weft_vec_pointwise *s)
{
    for (size_t b = 0; b < s->blocks; b += 2) {
        size_t to = b * s->y_block;
        (b + 1 < s->blocks ? pointwise_pair : pointwise_single)(
            s, y + to, x, w + b * LANES, s->bias + b * LANES, s->add ? s->add + to : NULL);
    }
}
#endif
