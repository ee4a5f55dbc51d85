/* Convolution as im2col and GEMM, a strip of result rows at a time; transposed convolution by
 * scattering (col2im). For float, double and 64-bit integers. */
#include "ops/gemm_int.h"
#include "ops/quant_int.h"
#include "ops/window_int.h"

#include <math.h>
#include <string.h>

/* -- Plan ----------------------------------------------------------------------------------- */

enum { STRIP_ELEMENTS = 1 << 18 }; /* of the column buffer: 1 MiB of f32, in L2 */

typedef struct plan {
    weft_window win;
    int64_t batch, group, c, m; /* c, m: channels per group of input and result */
    int64_t in[WEFT_SPATIAL_MAX], out[WEFT_SPATIAL_MAX], pad[WEFT_SPATIAL_MAX];
    int64_t n_in, n_out, n_kernel; /* products of spatial dims */
} plan;

static weft_err fill_plan(weft_eval_ctx *cx, const weft_tensor *w, bool transposed, plan *p)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    memset(p, 0, sizeof *p);
    if (x->rank < 3 || w->rank != x->rank || out->rank != x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "ranks do not fit");
    const char *wrong = weft_window__read(cx->attrs, (uint32_t)x->rank - 2, w->dim + 2, &p->win);
    if (wrong != NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    p->group = weft_attrs_int(cx->attrs, WEFT_ATTR_GROUP, 1);
    if (p->group < 1 || x->dim[1] % p->group != 0 || out->dim[1] % p->group != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "channels do not fit %lld groups",
                         (long long)p->group);
    p->batch = x->dim[0];
    p->c = x->dim[1] / p->group;
    p->m = out->dim[1] / p->group;
    if (transposed ? w->dim[0] != x->dim[1] || w->dim[1] != p->m
                   : w->dim[1] != p->c || w->dim[0] != out->dim[1])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "channels of the weight do not fit");
    p->n_in = p->n_out = p->n_kernel = 1;
    for (uint32_t i = 0; i < p->win.n; i++) {
        p->in[i] = x->dim[2 + i];
        p->out[i] = out->dim[2 + i];
        p->n_in *= p->in[i];
        p->n_out *= p->out[i];
        p->n_kernel *= p->win.kernel[i];
        p->pad[i] = weft_window__pad_lo(&p->win, i, p->in[i], p->out[i]);
    }
    return WEFT_ERR_OK;
}

/* Offset of the input row that output row `row` (all dims but the last) reads at kernel position k;
 * -1 if that row is padding. */
static int64_t row_offset(const plan *p, int64_t row, const int64_t *k)
{
    int64_t at = 0, scale = p->in[p->win.n - 1];
    for (int32_t i = (int32_t)p->win.n - 2; i >= 0; i--) {
        int64_t o = row % p->out[i];
        row /= p->out[i];
        int64_t pos = o * p->win.stride[i] - p->pad[i] + k[i] * p->win.dilation[i];
        if (pos < 0 || pos >= p->in[i])
            return -1;
        at += pos * scale;
        scale *= p->in[i];
    }
    return at;
}

/* -- Convolution ---------------------------------------------------------------------------- */

/* im2col: columns[c * kernel][rows * width] has the input elements that each weight is multiplied
 * with. */
#define DEFINE_CONV(name, T)                                                                  \
    static void unfold_##name(const plan *p, const T *x, int64_t first, int64_t rows, T *col) \
    {                                                                                         \
        uint32_t last = p->win.n - 1;                                                         \
        int64_t width = p->out[last], s = p->win.stride[last], len = p->in[last];             \
        for (int64_t c = 0; c < p->c; c++, x += p->n_in) {                                    \
            int64_t k[WEFT_SPATIAL_MAX] = {0};                                                \
            do {                                                                              \
                int64_t shift = k[last] * p->win.dilation[last] - p->pad[last];               \
                for (int64_t r = 0; r < rows; r++, col += width) {                            \
                    int64_t at = row_offset(p, first + r, k);                                 \
                    for (int64_t j = 0; j < width; j++) {                                     \
                        int64_t pos = j * s + shift;                                          \
                        col[j] = at >= 0 && pos >= 0 && pos < len ? x[at + pos] : 0;          \
                    }                                                                         \
                }                                                                             \
            } while (weft_index__next(k, p->win.kernel, (int32_t)p->win.n));                  \
        }                                                                                     \
    }                                                                                         \
                                                                                              \
    static void conv_##name(weft_eval_ctx *cx, const plan *p, const T *x, const T *w, T *out) \
    {                                                                                         \
        int64_t width = p->out[p->win.n - 1], depth = p->c * p->n_kernel, row;                \
        if (p->n_out == 0 || p->batch == 0 || p->m == 0)                                      \
            return;                                                                           \
        /* Unwinds if not even one row fits. */                                               \
        if (!weft_i64_mul(depth, width, &row) || row > WEFT_NUMEL_MAX)                        \
            weft_arena_array(cx->scratch, SIZE_MAX, sizeof(T));                               \
        int64_t total = p->n_out / width;                                                     \
        int64_t strip = STRIP_ELEMENTS / (row + 1);                                           \
        strip = strip < 1 ? 1 : strip > total ? total : strip;                                \
        T *col = weft_arena_array(cx->scratch, (size_t)(strip * row) + 1, sizeof *col);       \
        for (int64_t g = 0; g < p->batch * p->group; g++) {                                   \
            const T *wg = w + g % p->group * p->m * depth;                                    \
            for (int64_t first = 0; first < total; first += strip) {                          \
                int64_t rows = total - first < strip ? total - first : strip;                 \
                unfold_##name(p, x + g * p->c * p->n_in, first, rows, col);                   \
                weft_gemm__##name(p->m, rows *width, depth, wg, depth, 1, col,                \
                                  out + g * p->m * p->n_out + first * width, p->n_out);       \
            }                                                                                 \
        }                                                                                     \
    }

DEFINE_CONV(f32, float)
DEFINE_CONV(f64, double)
DEFINE_CONV(u64, uint64_t)

#define DEFINE_BIAS(name, T)                                                      \
    static void bias_##name(const plan *p, const T *bias, T *out)                 \
    {                                                                             \
        for (int64_t i = 0; i < p->batch * p->group * p->m; i++, out += p->n_out) \
            for (int64_t j = 0; j < p->n_out; j++)                                \
                out[j] += bias[i % (p->group * p->m)];                            \
    }
DEFINE_BIAS(f32, float)
DEFINE_BIAS(f64, double)

/* The result as f32 or f64: its own memory or scratch. */
static weft_tensor accumulator(weft_eval_ctx *cx)
{
    weft_tensor acc = cx->out[0];
    acc.dtype = acc.dtype == WEFT_DTYPE_F64 ? WEFT_DTYPE_F64 : WEFT_DTYPE_F32;
    if (acc.dtype != cx->out[0].dtype)
        acc.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(&acc) + 1, 4);
    return acc;
}

static weft_err check_bias(weft_eval_ctx *cx, uint32_t in, const plan *p)
{
    const weft_tensor *bias = weft_eval__in(cx, in);
    if (bias != NULL && weft_tensor_numel(bias) != p->group * p->m)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the bias does not fit");
    return WEFT_ERR_OK;
}

/* Weights as [m, c, k...]; with `trans_w` the operand is [m, k..., c]. */
static const weft_tensor *weights_of(weft_eval_ctx *cx)
{
    const weft_tensor *w = cx->in[1];
    if (weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_W, 0) == 0 || w->rank < 3)
        return w;
    weft_tensor *to = weft_arena_alloc(cx->scratch, sizeof *to);
    size_t size = weft_dtype_size(w->dtype), n = (size_t)weft_tensor_numel(w);
    size_t c = (size_t)w->dim[w->rank - 1], taps = 1;
    char *data = weft_arena_array(cx->scratch, n + 1, size);
    *to = *w;
    to->data = data;
    to->dim[1] = w->dim[w->rank - 1];
    for (int32_t i = 2; i < w->rank; i++) {
        to->dim[i] = w->dim[i - 1];
        taps *= (size_t)w->dim[i - 1];
    }
    for (size_t i = 0; i < n; i++) {
        size_t at = i / (taps * c) * taps * c + i % c * taps + i / c % taps;
        memcpy(data + at * size, (const char *)w->data + i * size, size);
    }
    return to;
}

weft_err weft_eval_conv(weft_eval_ctx *cx)
{
    plan p;
    const weft_tensor *w = weights_of(cx);
    WEFT_TRY(fill_plan(cx, w, false, &p));
    WEFT_TRY(check_bias(cx, 2, &p));
    const weft_tensor *bias = weft_eval__in(cx, 2), *out = &cx->out[0];
    weft_tensor acc = accumulator(cx);
    if (acc.dtype == WEFT_DTYPE_F64) {
        conv_f64(cx, &p, weft_eval__f64(cx, cx->in[0]), weft_eval__f64(cx, w), acc.data);
        if (bias != NULL)
            bias_f64(&p, weft_eval__f64(cx, bias), acc.data);
    } else {
        conv_f32(cx, &p, weft_eval__f32(cx, cx->in[0]), weft_eval__f32(cx, w), acc.data);
        if (bias != NULL)
            bias_f32(&p, weft_eval__f32(cx, bias), acc.data);
    }
    if (weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL)
        return weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &acc, out);
    if (acc.data != out->data)
        weft_eval__store_f32(out, 0, 1, weft_tensor_numel(out), acc.data);
    return WEFT_ERR_OK;
}

/* -- Integers ------------------------------------------------------------------------------- */

/* The elements minus a zero point: one for the tensor, or one for each index of dim 0. */
static weft_err center(weft_eval_ctx *cx, uint32_t in, uint32_t in_zero, const uint64_t **out)
{
    const weft_tensor *t = cx->in[in], *zero = weft_eval__in(cx, in_zero);
    int64_t n = weft_tensor_numel(t), n_zero = zero != NULL ? weft_tensor_numel(zero) : 0;
    int64_t *x = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *x);
    weft_eval__load_i64(t, 0, 1, n, x);
    *out = (const uint64_t *)x;
    if (n_zero == 0 || n == 0)
        return WEFT_ERR_OK;
    if (n_zero != 1 && n_zero != t->dim[0])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u: zero point has %lld elements", in_zero,
                         (long long)n_zero);
    const int64_t *z = weft_eval__i64(cx, zero);
    int64_t per = n / t->dim[0];
    for (int64_t i = 0; i < n; i++)
        x[i] -= z[n_zero == 1 ? 0 : i / per];
    return WEFT_ERR_OK;
}

static weft_err eval_centered(weft_eval_ctx *cx, uint32_t iw, uint32_t x_zero, uint32_t w_zero,
                              plan *p, int64_t **out)
{
    const uint64_t *x, *w;
    WEFT_TRY(fill_plan(cx, cx->in[iw], false, p));
    WEFT_TRY(center(cx, 0, x_zero, &x));
    WEFT_TRY(center(cx, iw, w_zero, &w));
    size_t n = (size_t)weft_tensor_numel(&cx->out[0]);
    *out = weft_arena_array(cx->scratch, n + 1, sizeof **out);
    conv_u64(cx, p, x, w, (uint64_t *)*out);
    return WEFT_ERR_OK;
}

weft_err weft_eval_conv_integer(weft_eval_ctx *cx)
{
    plan p;
    int64_t *acc;
    WEFT_TRY(eval_centered(cx, 1, 2, 3, &p, &acc));
    weft_eval__store_i64(&cx->out[0], 0, 1, weft_tensor_numel(&cx->out[0]), acc);
    return WEFT_ERR_OK;
}

weft_err weft_eval_qlinear_conv(weft_eval_ctx *cx)
{
    plan p;
    int64_t *acc;
    WEFT_TRY(eval_centered(cx, 3, 2, 5, &p, &acc));
    return weft_qlinear__finish(cx, acc,
                                (weft_qlinear){.rows = 1, .cols = p.group * p.m, .inner = p.n_out});
}

/* -- Transposed ----------------------------------------------------------------------------- */

/* Adds x * w for one kernel position to the result plane. */
#define DEFINE_SCATTER(name, T)                                                                  \
    static void scatter_##name(const plan *p, const T *x, T w, const int64_t *k, T *out)         \
    {                                                                                            \
        int64_t idx[WEFT_SPATIAL_MAX] = {0};                                                     \
        do {                                                                                     \
            int64_t at = 0;                                                                      \
            bool inside = true;                                                                  \
            for (uint32_t i = 0; i < p->win.n && inside; i++) {                                  \
                int64_t pos = idx[i] * p->win.stride[i] + k[i] * p->win.dilation[i] - p->pad[i]; \
                inside = pos >= 0 && pos < p->out[i];                                            \
                at = at * p->out[i] + pos;                                                       \
            }                                                                                    \
            if (inside)                                                                          \
                out[at] += *x * w;                                                               \
            x++;                                                                                 \
        } while (weft_index__next(idx, p->in, (int32_t)p->win.n));                               \
    }                                                                                            \
                                                                                                 \
    static void transpose_##name(const plan *p, const T *x, const T *w, T *out)                  \
    {                                                                                            \
        memset(out, 0, (size_t)(p->batch * p->group * p->m * p->n_out) * sizeof *out);           \
        if (p->n_in == 0)                                                                        \
            return;                                                                              \
        for (int64_t g = 0; g < p->batch * p->group; g++) {                                      \
            const T *wg = w + g % p->group * p->c * p->m * p->n_kernel;                          \
            for (int64_t c = 0; c < p->c; c++, x += p->n_in) {                                   \
                for (int64_t m = 0; m < p->m; m++) {                                             \
                    const T *wk = wg + (c * p->m + m) * p->n_kernel;                             \
                    int64_t k[WEFT_SPATIAL_MAX] = {0};                                           \
                    do                                                                           \
                        scatter_##name(p, x, *wk++, k, out + (g * p->m + m) * p->n_out);         \
                    while (weft_index__next(k, p->win.kernel, (int32_t)p->win.n));               \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
    }

DEFINE_SCATTER(f32, float)
DEFINE_SCATTER(f64, double)

/* With SAME or an explicit output shape, the padding follows from the size of the result. */
static void transposed_padding(weft_eval_ctx *cx, plan *p)
{
    uint32_t n_extra, n_shape;
    const int64_t *extra = weft_attrs_ints(cx->attrs, WEFT_ATTR_OUTPUT_PADDING, &n_extra);
    const int64_t *shape = weft_attrs_ints(cx->attrs, WEFT_ATTR_OUTPUT_SHAPE, &n_shape);
    for (uint32_t i = 0; i < p->win.n; i++) {
        p->pad[i] = p->win.pad_lo[i];
        if (shape == NULL && p->win.auto_pad < WEFT_PAD_SAME_UPPER)
            continue;
        int64_t reach = (p->win.kernel[i] - 1) * p->win.dilation[i] + 1;
        int64_t total = p->win.stride[i] * (p->in[i] - 1) + reach - p->out[i];
        if (i < n_extra)
            total += extra[i];
        if (total < 0)
            total = 0;
        p->pad[i] = p->win.auto_pad == WEFT_PAD_SAME_UPPER ? total / 2 : total - total / 2;
    }
}

weft_err weft_eval_conv_transpose(weft_eval_ctx *cx)
{
    plan p;
    WEFT_TRY(fill_plan(cx, cx->in[1], true, &p));
    WEFT_TRY(check_bias(cx, 2, &p));
    transposed_padding(cx, &p);
    const weft_tensor *bias = weft_eval__in(cx, 2), *out = &cx->out[0];
    weft_tensor acc = accumulator(cx);
    if (acc.dtype == WEFT_DTYPE_F64) {
        transpose_f64(&p, weft_eval__f64(cx, cx->in[0]), weft_eval__f64(cx, cx->in[1]), acc.data);
        if (bias != NULL)
            bias_f64(&p, weft_eval__f64(cx, bias), acc.data);
    } else {
        transpose_f32(&p, weft_eval__f32(cx, cx->in[0]), weft_eval__f32(cx, cx->in[1]), acc.data);
        if (bias != NULL)
            bias_f32(&p, weft_eval__f32(cx, bias), acc.data);
    }
    if (acc.data != out->data)
        weft_eval__store_f32(out, 0, 1, weft_tensor_numel(out), acc.data);
    return WEFT_ERR_OK;
}
