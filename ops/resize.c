/* resize and upsample. All modes are separable: along each axis, an element of the result is a
 * weighted sum of a few elements of the operand, so eval makes one table of taps per axis and
 * passes over the data once for each axis that changes. Nearest only picks, and works on any
 * element type. */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

/* -- Parameters ----------------------------------------------------------------------------- */

static bool is_upsample(const weft_op *op)
{
    return op->id == WEFT_OP_UPSAMPLE;
}

/* Operand numbers: operand 1 is the scales of upsample, the region of resize. */
enum { ROI = 1, SCALES = 2, SIZES = 3 };

static uint32_t scales_operand(const weft_op *op)
{
    return is_upsample(op) ? 1 : SCALES;
}

/* Axis of entry i of scales or sizes: lists without `axes` have an entry for every axis. */
static bool entry_axis(weft_attrs attrs, uint32_t i, uint32_t n, uint32_t rank, uint32_t *out)
{
    uint32_t n_axes;
    const int64_t *axes = weft_attrs_ints(attrs, WEFT_ATTR_AXES, &n_axes);
    if (!axes) {
        *out = i;
        return n == rank;
    }
    return n == n_axes && weft_axis__fix(axes[i], rank, out);
}

typedef enum aspect { STRETCH, NOT_LARGER, NOT_SMALLER } aspect;

static aspect get_aspect(weft_attrs attrs)
{
    const char *s = weft_attrs_str(attrs, WEFT_ATTR_KEEP_ASPECT_RATIO_POLICY, "stretch");
    return strcmp(s, "not_larger") == 0    ? NOT_LARGER
           : strcmp(s, "not_smaller") == 0 ? NOT_SMALLER
                                           : STRETCH;
}

/* x as a dim, clamped so that it stays out of range if it is (above the limit, or negative). */
static weft_dim to_dim(double x)
{
    if (!(x > -1))
        return -1;
    return x < (double)WEFT_NUMEL_MAX ? (weft_dim)x : WEFT_NUMEL_MAX + 1;
}

/* floor(d * scale) with a scale that is not an integer: as a quotient p / q when it is one. */
static weft_dim scale_dim(weft_dimpool *pool, weft_dim d, double scale)
{
    if (weft_dim_is_const(d)) {
        /* In single precision, as all implementations do: 0.7f * 10 is 7. */
        return to_dim(floor((double)((float)d * (float)scale)));
    }
    for (int64_t q = 1; q <= 64; q++) {
        double p = nearbyint(scale * (double)q);
        if (p >= 1 && p < 1 << 20 && (float)(p / (double)q) == (float)scale)
            return weft_dim_floordiv(pool, weft_dim_mul(pool, d, (int64_t)p), q);
    }
    return weft_dim_fresh(pool);
}

static weft_err infer_scales(weft_infer_ctx *cx, const double *scales, uint32_t n, weft_ttype *out)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t axis;
        if (!entry_axis(cx->attrs, i, n, out->rank, &axis))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u scales for rank %u", n, out->rank);
        if (!(scales[i] > 0) || scales[i] > 1e9)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale %u is %g", i, scales[i]);
        out->dim[axis] = scale_dim(cx->pool, cx->in[0].type.dim[axis], scales[i]);
    }
    return WEFT_ERR_OK;
}

/* The common scale that preserves the aspect ratio. */
static double aspect_scale(aspect keep, const double *ratio, uint32_t n)
{
    double scale = n > 0 ? ratio[0] : 1;
    for (uint32_t i = 1; i < n; i++)
        if (keep == NOT_LARGER ? ratio[i] < scale : ratio[i] > scale)
            scale = ratio[i];
    return scale;
}

static weft_err infer_sizes(weft_infer_ctx *cx, const weft_dim *sizes, uint32_t n, weft_ttype *out)
{
    const weft_ttype *x = &cx->in[0].type;
    aspect keep = get_aspect(cx->attrs);
    double ratio[WEFT_RANK_MAX];
    uint32_t at[WEFT_RANK_MAX];
    bool known = true;
    if (n > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u sizes for rank %u", n, x->rank);
    for (uint32_t i = 0; i < n; i++) {
        if (!entry_axis(cx->attrs, i, n, x->rank, &at[i]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u sizes for rank %u", n, x->rank);
        out->dim[at[i]] = sizes[i];
        known = known && weft_dim_is_const(sizes[i]) && weft_dim_is_const(x->dim[at[i]]);
        ratio[i] = known && x->dim[at[i]] > 0 ? (double)sizes[i] / (double)x->dim[at[i]] : 1;
    }
    double scale = aspect_scale(keep, ratio, n);
    for (uint32_t i = 0; i < n && keep != STRETCH; i++)
        out->dim[at[i]] =
            known ? to_dim(floor((double)x->dim[at[i]] * scale + 0.5)) : weft_dim_fresh(cx->pool);
    return WEFT_ERR_OK;
}

/* Words that an attribute may have, the default first. */
static const struct {
    weft_attr_key key;
    const char *words[8];
} choices[] = {
    {WEFT_ATTR_MODE, {"nearest", "linear", "bilinear", "cubic"}},
    {WEFT_ATTR_COORDINATE_TRANSFORMATION_MODE,
     {"half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
      "tf_half_pixel_for_nn", "tf_crop_and_resize"}},
    {WEFT_ATTR_NEAREST_MODE,
     {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "by_direction"}},
    {WEFT_ATTR_KEEP_ASPECT_RATIO_POLICY, {"stretch", "not_larger", "not_smaller"}},
};

static weft_err check_choices(weft_infer_ctx *cx)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const char *word = weft_attrs_str(cx->attrs, choices[i].key, choices[i].words[0]);
        size_t k = 0;
        while (choices[i].words[k] && strcmp(choices[i].words[k], word) != 0)
            k++;
        if (!choices[i].words[k])
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s \"%s\"", weft_attr_key_name(choices[i].key),
                             word);
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_resize(weft_infer_ctx *cx)
{
    const weft_dim *sizes;
    const double *scales;
    uint32_t n_sizes = 0, n_scales;
    WEFT_TRY(check_choices(cx));
    weft_infer__copy(cx, 0, 0);
    weft_ttype *out = &cx->out[0];
    weft_given given_sizes = WEFT_GIVEN_NOT;
    if (!is_upsample(cx->op))
        given_sizes = weft_param__dims(cx, SIZES, WEFT_ATTR_SIZES, &sizes, &n_sizes);
    if (given_sizes == WEFT_GIVEN_KNOWN && n_sizes > 0)
        return infer_sizes(cx, sizes, n_sizes, out);
    weft_given given =
        weft_param__floats(cx, scales_operand(cx->op), WEFT_ATTR_SCALES, &scales, &n_scales);
    if (given_sizes == WEFT_GIVEN_NOT && given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "neither scales nor sizes are given");
    if (given == WEFT_GIVEN_KNOWN && n_scales > 0)
        return infer_scales(cx, scales, n_scales, out);
    uint32_t n_axes, axis;
    const int64_t *axes = weft_attrs_ints(cx->attrs, WEFT_ATTR_AXES, &n_axes);
    if (!axes)
        weft_infer__fresh(cx, out);
    for (uint32_t i = 0; axes && i < n_axes; i++) {
        WEFT_TRY(weft_infer__axis(cx, axes[i], out->rank, &axis));
        out->dim[axis] = weft_dim_fresh(cx->pool);
    }
    return WEFT_ERR_OK;
}

weft_work weft_work_resize(const weft_work_ctx *cx)
{
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "nearest");
    double taps = mode[0] == 'c' ? 16 : mode[0] == 'l' ? 4 : 0;
    return weft_work__bytes(cx, 2 * taps * weft_work__numel(&cx->out[0]));
}

/* -- Taps ----------------------------------------------------------------------------------- */

/* Element j of the result along one axis is sum(weight[j][k] * x[index[j][k]]); index < 0 stands
 * for the extrapolation value. */
typedef struct weft_taps {
    int64_t n_out;
    int32_t n; /* taps of one element */
    int64_t *index;
    double *weight;
} weft_taps;

typedef struct weft_resize {
    char mode; /* 'n', 'l', 'c' */
    const char *coords, *nearest;
    double cubic_a;
    bool exclude_outside, antialias, crop;
} weft_resize;

/* One axis: lengths, scale and region. */
typedef struct weft_resize_axis {
    int64_t n_in, n_out;
    double scale, start, end;
} weft_resize_axis;

/* Position in the operand that element j of the result corresponds to. In single precision, as all
 * implementations do: the last bit decides what is nearest. */
static double original(const weft_resize *r, const weft_resize_axis *a, int64_t j)
{
    const char *s = r->coords;
    float x = (float)j, n_in = (float)a->n_in, scale = (float)a->scale, n_out = n_in * scale;
    float start = (float)a->start, end = (float)a->end;
    if (strcmp(s, "align_corners") == 0)
        return n_out == 1 || a->n_out == 1 ? 0 : x * (n_in - 1) / (n_out - 1);
    if (strcmp(s, "asymmetric") == 0)
        return x / scale;
    if (strcmp(s, "tf_half_pixel_for_nn") == 0)
        return (x + 0.5f) / scale;
    if (strcmp(s, "pytorch_half_pixel") == 0 && a->n_out == 1)
        return 0;
    if (r->crop)
        return a->n_out > 1
                   ? start * (n_in - 1) + x * (end - start) * (n_in - 1) / ((float)a->n_out - 1)
                   : 0.5f * (start + end) * (n_in - 1);
    float at = (x + 0.5f) / scale - 0.5f;
    if (strcmp(s, "half_pixel_symmetric") == 0)
        at += n_in / 2 * (1 - (float)a->n_out / n_out);
    return at;
}

static double pick_nearest(const char *mode, double x)
{
    if (strcmp(mode, "floor") == 0)
        return floor(x);
    if (strcmp(mode, "ceil") == 0)
        return ceil(x);
    if (strcmp(mode, "round_prefer_ceil") == 0)
        return floor(x + 0.5);
    return ceil(x - 0.5);
}

/* Mode "by_direction" of opset 10: down along an axis that grows, up along one that shrinks. */
static const char *nearest_of(const weft_resize *r, const weft_resize_axis *a)
{
    return strcmp(r->nearest, "by_direction") != 0 ? r->nearest : a->scale < 1 ? "ceil" : "floor";
}

static double cubic_weight(double a, double x)
{
    x = fabs(x);
    if (x <= 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static int64_t clamp(double x, int64_t n)
{
    return !(x > 0) ? 0 : x >= (double)(n - 1) ? n - 1 : (int64_t)x; /* not a number: 0 */
}

/* Taps of element j around position x. The left neighbour is at most 1 away and never at x itself.
 */
static void fill_taps(const weft_resize *r, const weft_resize_axis *a, double x, int32_t first,
                      int32_t n, int64_t *index, double *weight)
{
    double base = ceil(x) - 1, scale = r->antialias && a->scale < 1 ? a->scale : 1, sum = 0;
    for (int32_t k = 0; k < n; k++) {
        double at = base + first + k, d = (at - x) * scale;
        double w = r->mode == 'c' ? cubic_weight(r->cubic_a, d) : fabs(d) < 1 ? 1 - fabs(d) : 0;
        if (r->exclude_outside && (at < 0 || at >= (double)a->n_in))
            w = 0;
        index[k] = clamp(at, a->n_in);
        weight[k] = w;
        sum += w;
    }
    for (int32_t k = 0; k < n && sum != 0; k++)
        weight[k] /= sum;
}

static weft_err make_taps(weft_eval_ctx *cx, const weft_resize *r, const weft_resize_axis *a,
                          weft_taps *out)
{
    double reach = r->mode == 'c' ? 2 : 1;
    double wide = r->mode != 'n' && r->antialias && a->scale < 1 ? reach / a->scale : reach;
    if (wide > 1 << 20)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "scale %g is too small", a->scale);
    int32_t first = (int32_t)floor(-wide) + 1;
    weft_taps t = {.n_out = a->n_out, .n = r->mode == 'n' ? 1 : 2 - 2 * first};
    t.index = weft_arena_array(cx->scratch, (size_t)a->n_out, (size_t)t.n * sizeof *t.index);
    t.weight = weft_arena_array(cx->scratch, (size_t)a->n_out, (size_t)t.n * sizeof *t.weight);
    for (int64_t j = 0; j < a->n_out; j++) {
        double x = original(r, a, j);
        int64_t *index = t.index + j * t.n;
        double *weight = t.weight + j * t.n;
        if (r->crop && (x < 0 || x > (double)(a->n_in - 1))) {
            index[0] = -1;
        } else if (r->mode == 'n') {
            index[0] = clamp(pick_nearest(nearest_of(r, a), x), a->n_in);
        } else {
            fill_taps(r, a, x, first, t.n, index, weight);
        }
    }
    *out = t;
    return WEFT_ERR_OK;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

static weft_resize get_resize(const weft_eval_ctx *cx)
{
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "nearest");
    bool old = is_upsample(cx->op);
    weft_resize r = {
        .mode = mode[0],
        .coords = weft_attrs_str(cx->attrs, WEFT_ATTR_COORDINATE_TRANSFORMATION_MODE,
                                 old ? "asymmetric" : "half_pixel"),
        .nearest =
            weft_attrs_str(cx->attrs, WEFT_ATTR_NEAREST_MODE, old ? "floor" : "round_prefer_floor"),
        .cubic_a = weft_attrs_float(cx->attrs, WEFT_ATTR_CUBIC_COEFF_A, -0.75),
        .exclude_outside = weft_attrs_int(cx->attrs, WEFT_ATTR_EXCLUDE_OUTSIDE, 0) != 0,
        .antialias = weft_attrs_int(cx->attrs, WEFT_ATTR_ANTIALIAS, 0) != 0,
    };
    r.crop = strcmp(r.coords, "tf_crop_and_resize") == 0;
    if (r.mode == 'b')
        r.mode = 'l';
    return r;
}

/* Floats of an operand or attribute; NULL when absent. */
static const double *get_floats(weft_eval_ctx *cx, uint32_t in, weft_attr_key key, uint32_t *out_n)
{
    const weft_attr *attr = weft_attrs_find(cx->attrs, key);
    const weft_tensor *t = weft_eval__in(cx, in);
    *out_n = 0;
    if (attr && attr->kind == WEFT_KIND_FLOATS) {
        *out_n = attr->n;
        return attr->u.floats;
    }
    if (!t || !weft_dtype_is_float(t->dtype))
        return NULL;
    *out_n = (uint32_t)weft_tensor_numel(t);
    return *out_n > 0 ? weft_eval__f64(cx, t) : NULL;
}

/* Scale and region of every axis. Scales as given; otherwise they follow from the dims. */
static weft_err get_axes(weft_eval_ctx *cx, weft_resize_axis *axes)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    uint32_t n_scales, n_roi, axis, rank = (uint32_t)x->rank;
    const double *roi = NULL,
                 *scales = get_floats(cx, scales_operand(cx->op), WEFT_ATTR_SCALES, &n_scales);
    if (!is_upsample(cx->op))
        roi = get_floats(cx, ROI, WEFT_ATTR_NONE, &n_roi);
    if (out->rank != x->rank || out->dtype != x->dtype)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand and result differ in rank or type");
    for (uint32_t d = 0; d < rank; d++) {
        axes[d] = (weft_resize_axis){x->dim[d], out->dim[d], 1, 0, 1};
        if (x->dim[d] != 0)
            axes[d].scale = (double)out->dim[d] / (double)x->dim[d];
        else if (out->dim[d] != 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %u is empty", d);
    }
    for (uint32_t i = 0; i < n_scales && scales; i++) {
        if (!entry_axis(cx->attrs, i, n_scales, rank, &axis) || !(scales[i] > 0))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u scales for rank %u", n_scales, rank);
        axes[axis].scale = scales[i];
    }
    const int64_t *sizes;
    uint32_t n_sizes;
    aspect keep = get_aspect(cx->attrs);
    if (keep != STRETCH && weft_eval_param(cx, SIZES, WEFT_ATTR_SIZES, &sizes, &n_sizes)) {
        double ratio[WEFT_RANK_MAX];
        for (uint32_t i = 0; i < n_sizes; i++) {
            if (!entry_axis(cx->attrs, i, n_sizes, rank, &axis))
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u sizes for rank %u", n_sizes, rank);
            ratio[i] = (double)sizes[i] / (double)(x->dim[axis] > 0 ? x->dim[axis] : 1);
        }
        double scale = aspect_scale(keep, ratio, n_sizes);
        for (uint32_t i = 0; i < n_sizes; i++)
            if (entry_axis(cx->attrs, i, n_sizes, rank, &axis) && scale > 0)
                axes[axis].scale = scale;
    }
    for (uint32_t i = 0; roi && i < n_roi / 2; i++)
        if (entry_axis(cx->attrs, i, n_roi / 2, rank, &axis)) {
            axes[axis].start = roi[i];
            axes[axis].end = roi[n_roi / 2 + i];
        }
    return WEFT_ERR_OK;
}

static void resize_nearest(const weft_tensor *x, const weft_tensor *out, const weft_taps *taps,
                           const void *outside)
{
    int64_t stride[WEFT_RANK_MAX], idx[WEFT_RANK_MAX] = {0};
    int32_t last = x->rank - 1;
    int64_t rows = weft_dims__product(out->dim, 0, last), cols = out->dim[last];
    size_t elem = weft_dtype_size(x->dtype);
    weft_dims__strides(x->dim, x->rank, stride);
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = 0;
        bool inside = true;
        for (int32_t d = 0; d < last; d++) {
            at += taps[d].index[idx[d]] * stride[d];
            inside = inside && taps[d].index[idx[d]] >= 0;
        }
        char *dst = weft_data__at(out, row * cols);
        const char *src = inside ? weft_data__at(x, at) : NULL;
        const int64_t *col = taps[last].index;
        for (int64_t j = 0; j < cols; j++) {
            const void *from = inside && col[j] >= 0 ? src + (int64_t)elem * col[j] : outside;
            if (elem == 4)
                memcpy(dst + 4 * j, from, 4);
            else
                memcpy(dst + (int64_t)elem * j, from, elem);
        }
        weft_index__next(idx, out->dim, last);
    }
}

/* One axis of [outer, n, inner]. */
#define RESIZE_AXIS(T)                                                                          \
    static void resize_axis_##T(const T *x, T *out, int64_t outer, int64_t n_in, int64_t inner, \
                                const weft_taps *t, T outside)                                  \
    {                                                                                           \
        for (int64_t o = 0; o < outer; o++)                                                     \
            for (int64_t j = 0; j < t->n_out; j++) {                                            \
                T *dst = out + (o * t->n_out + j) * inner;                                      \
                const int64_t *index = t->index + j * t->n;                                     \
                const double *weight = t->weight + j * t->n;                                    \
                for (int64_t i = 0; i < inner; i++)                                             \
                    dst[i] = index[0] < 0 ? outside : 0;                                        \
                for (int32_t k = 0; k < t->n && index[0] >= 0; k++) {                           \
                    const T *src = x + (o * n_in + index[k]) * inner;                           \
                    T w = (T)weight[k];                                                         \
                    for (int64_t i = 0; i < inner; i++)                                         \
                        dst[i] += w * src[i];                                                   \
                }                                                                               \
            }                                                                                   \
    }                                                                                           \
    /* All axes that change, from the last. */                                                  \
    static const T *resize_all_##T(weft_eval_ctx *cx, const T *x, const weft_taps *taps,        \
                                   const bool *same, T outside)                                 \
    {                                                                                           \
        int64_t dim[WEFT_RANK_MAX];                                                             \
        int32_t rank = cx->in[0]->rank;                                                         \
        memcpy(dim, cx->in[0]->dim, sizeof dim);                                                \
        for (int32_t d = rank - 1; d >= 0; d--) {                                               \
            int64_t outer = weft_dims__product(dim, 0, d);                                      \
            int64_t inner = weft_dims__product(dim, d + 1, rank);                               \
            if (same[d])                                                                        \
                continue;                                                                       \
            T *next = weft_arena_array(cx->scratch, (size_t)(outer * inner),                    \
                                       (size_t)taps[d].n_out * sizeof *next);                   \
            resize_axis_##T(x, next, outer, dim[d], inner, &taps[d], outside);                  \
            dim[d] = taps[d].n_out;                                                             \
            x = next;                                                                           \
        }                                                                                       \
        return x;                                                                               \
    }

RESIZE_AXIS(float)
RESIZE_AXIS(double)

weft_err weft_eval_resize(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    weft_resize r = get_resize(cx);
    weft_resize_axis axes[WEFT_RANK_MAX];
    weft_taps taps[WEFT_RANK_MAX];
    bool same[WEFT_RANK_MAX];
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(get_axes(cx, axes));
    int64_t n = weft_tensor_numel(out);
    if (n == 0 || x->rank == 0) {
        if (n > 0)
            memcpy(out->data, x->data, weft_tensor_bytes(out));
        return WEFT_ERR_OK;
    }
    for (int32_t d = 0; d < x->rank; d++) {
        same[d] = axes[d].n_in == axes[d].n_out && axes[d].scale == 1 && axes[d].start == 0 &&
                  axes[d].end == 1;
        WEFT_TRY(make_taps(cx, &r, &axes[d], &taps[d]));
    }
    double outside = weft_attrs_float(cx->attrs, WEFT_ATTR_EXTRAPOLATION_VALUE, 0);
    if (r.mode == 'n') {
        uint64_t bits = 0;
        weft_eval__store_f64(&(weft_tensor){.dtype = out->dtype, .data = &bits}, 0, 1, 1, &outside);
        resize_nearest(x, out, taps, &bits);
    } else if (x->dtype == WEFT_DTYPE_F64) {
        weft_eval__store_f64(out, 0, 1, n,
                             resize_all_double(cx, weft_eval__f64(cx, x), taps, same, outside));
    } else {
        weft_eval__store_f32(
            out, 0, 1, n, resize_all_float(cx, weft_eval__f32(cx, x), taps, same, (float)outside));
    }
    return WEFT_ERR_OK;
}
