/* Emits resize and upsample: a thread computes an element; axes that keep their size need no
 * interpolation (resize.cuh). Scales are attributes, weights, or quotients of dims. */
#include "codegen/cuda/cuda_int.h"

#include <string.h>

enum { THREADS = 256, ROI = 1, SCALES = 2, SCALES_OF_UPSAMPLE = 1 };

typedef struct resize {
    weft_cuda *cu;
    weft_cuda_kernel *k;
    weft_attrs attrs;
    char mode;                    /* nearest, linear, cubic: 'n', 'l', 'c' */
    const char *coords, *nearest; /* structures of resize.cuh */
    bool crop;                    /* coordinates may be outside of the operand */
    double scale[WEFT_RANK_MAX];  /* 0: the quotient of the dims */
    double start[WEFT_RANK_MAX], end[WEFT_RANK_MAX];
    uint32_t axis[WEFT_RANK_MAX], n_axis; /* axes whose size changes */
} resize;

/* -- Parameters -------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text;
} coordinates[] = {
    {"half_pixel", "HALF_PIXEL"},
    {"align_corners", "ALIGN_CORNERS"},
    {"asymmetric", "ASYMMETRIC"},
    {"tf_half_pixel_for_nn", "HALF_PIXEL_NN"},
    {"pytorch_half_pixel", "PYTORCH_HALF_PIXEL"},
    {"half_pixel_symmetric", "HALF_PIXEL_SYMMETRIC"},
    {"tf_crop_and_resize", "CROP_AND_RESIZE"},
};

static const struct {
    const char *name, *text;
} roundings[] = {
    {"round_prefer_floor", "d"},
    {"round_prefer_ceil", "u"},
    {"floor", "f"},
    {"ceil", "c"},
};

static weft_err read_modes(resize *r, bool old)
{
    const char *mode = weft_attrs_str(r->attrs, WEFT_ATTR_MODE, "nearest");
    const char *coords = weft_attrs_str(r->attrs, WEFT_ATTR_COORDINATE_TRANSFORMATION_MODE,
                                        old ? "asymmetric" : "half_pixel");
    const char *nearest =
        weft_attrs_str(r->attrs, WEFT_ATTR_NEAREST_MODE, old ? "floor" : "round_prefer_floor");
    const char *keep = weft_attrs_str(r->attrs, WEFT_ATTR_KEEP_ASPECT_RATIO_POLICY, "stretch");
    const weft_ttype *x = weft_cuda__in_type(r->cu, 0);
    r->mode = mode[0] == 'b' ? 'l' : mode[0];
    for (size_t i = 0; i < sizeof coordinates / sizeof coordinates[0]; i++)
        if (strcmp(coords, coordinates[i].name) == 0)
            r->coords = coordinates[i].text;
    for (size_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++)
        if (strcmp(nearest, roundings[i].name) == 0)
            r->nearest = roundings[i].text;
    r->crop = strcmp(coords, "tf_crop_and_resize") == 0;
    if (!strchr("nlc", r->mode) || !r->coords || !r->nearest)
        return weft_cuda__unsup(r->cu, "mode \"%s\", \"%s\", \"%s\"", mode, coords, nearest);
    if (strcmp(keep, "stretch") != 0)
        return weft_cuda__unsup(r->cu, "keep_aspect_ratio_policy \"%s\"", keep);
    if (r->mode != 'n' && weft_attrs_int(r->attrs, WEFT_ATTR_ANTIALIAS, 0) != 0)
        return weft_cuda__unsup(r->cu, "antialias");
    if (r->mode != 'n' &&
        (!weft_dtype_is_float((weft_dtype)x->dtype) || x->dtype == WEFT_DTYPE_F64))
        return weft_cuda__unsup(r->cu, "mode \"%s\" of %s", mode,
                                weft_dtype_name((weft_dtype)x->dtype));
    return WEFT_ERR_OK;
}

/* The axis of entry i of a list of n entries; -1: none. */
static int64_t entry_axis(const resize *r, uint32_t i, uint32_t n)
{
    uint32_t n_axes, rank = weft_cuda__in_type(r->cu, 0)->rank;
    const int64_t *axes = weft_attrs_ints(r->attrs, WEFT_ATTR_AXES, &n_axes);
    int64_t axis = axes && i < n_axes ? axes[i] : (int64_t)i;
    axis += axis < 0 ? rank : 0;
    if (n != (axes ? n_axes : rank) || axis < 0 || axis >= rank)
        return -1;
    return weft_cuda__memory_axis(r->cu, axis, rank);
}

/* Reads numbers from an attribute or a weight; *out_n is 0 if both are absent. */
static weft_err read_floats(const resize *r, uint32_t in, weft_attr_key key, const double **out,
                            uint32_t *out_n)
{
    const weft_attr *a = weft_attrs_find(r->attrs, key);
    weft_tensor t;
    *out_n = 0;
    if (a && a->kind == WEFT_KIND_FLOATS) {
        *out = a->u.floats;
        *out_n = a->n;
    }
    if (a || !weft_cuda__in_type(r->cu, in))
        return WEFT_ERR_OK;
    if (!weft_cuda__in_tensor(r->cu, in, &t))
        return weft_cuda__unsup(r->cu, "only running tells operand %u", in);
    double *list =
        weft_arena_array(weft_cuda__arena(r->cu), (size_t)weft_tensor_numel(&t) + 1, sizeof *list);
    for (*out_n = 0; *out_n < weft_tensor_numel(&t); ++*out_n)
        list[*out_n] = weft_tensor_get_f64(&t, *out_n);
    *out = list;
    return WEFT_ERR_OK;
}

static weft_err read_axes(resize *r, bool old)
{
    const weft_ttype *x = weft_cuda__in_type(r->cu, 0), *y = weft_cuda__out_type(r->cu, 0);
    const double *scales = NULL, *roi = NULL;
    uint32_t n_scales, n_roi = 0;
    WEFT_TRY(
        read_floats(r, old ? SCALES_OF_UPSAMPLE : SCALES, WEFT_ATTR_SCALES, &scales, &n_scales));
    if (r->crop)
        WEFT_TRY(read_floats(r, ROI, WEFT_ATTR_NONE, &roi, &n_roi));
    for (uint32_t d = 0; d < x->rank; d++)
        r->end[d] = 1;
    for (uint32_t i = 0; i < n_scales; i++) {
        int64_t axis = entry_axis(r, i, n_scales);
        if (axis < 0)
            return weft_cuda__unsup(r->cu, "%u scales for rank %u", n_scales, x->rank);
        r->scale[axis] = scales[i];
    }
    for (uint32_t i = 0; i < n_roi / 2; i++) {
        int64_t axis = entry_axis(r, i, n_roi / 2);
        if (axis < 0)
            return weft_cuda__unsup(r->cu, "a region of %u numbers for rank %u", n_roi, x->rank);
        r->start[axis] = roi[i];
        r->end[axis] = roi[n_roi / 2 + i];
    }
    for (uint32_t d = 0; d < x->rank; d++)
        if (x->dim[d] != y->dim[d] || (r->scale[d] != 0 && r->scale[d] != 1) || r->start[d] != 0 ||
            r->end[d] != 1)
            r->axis[r->n_axis++] = d;
    return WEFT_ERR_OK;
}

/* -- The kernel -------------------------------------------------------------------------------- */

/* Prints "p<D>": the coordinate in the operand along axis d. */
static void print_place(const resize *r, uint32_t d)
{
    const weft_ttype *x = weft_cuda__in_type(r->cu, 0), *y = weft_cuda__out_type(r->cu, 0);
    weft_arena *arena = weft_cuda__arena(r->cu);
    weft_buf *body = weft_cuda__body(r->k);
    const char *in = weft_cuda__int(r->k, x->dim[d]), *out = weft_cuda__int(r->k, y->dim[d]);
    const char *scale = r->scale[d] > 0 ? weft_cuda__f32_text(r->cu, (float)r->scale[d])
                                        : weft_arena_printf(arena, "(f32)%s / (f32)%s", out, in);
    const char *stride = weft_cuda__long(r->k, y, d + 1, y->rank);
    const char *size = weft_cuda__long(r->k, y, d, d + 1);
    weft_buf_printf(body,
                    "    const resize_axis a%u = {%s, %s, %s, %s, %s};\n"
                    "    const f32 p%u = resize_place<%s>(a%u, (int)(at / %s %% %s));\n",
                    d, in, out, scale, weft_cuda__f32_text(r->cu, (float)r->start[d]),
                    weft_cuda__f32_text(r->cu, (float)r->end[d]), d, r->coords, d, stride, size);
    if (r->crop)
        weft_buf_printf(body, "    outside = outside || resize_outside(p%u, a%u.n_in);\n", d, d);
    if (r->mode == 'n')
        weft_buf_printf(body, "    const int i%u = resize_nearest<'%s'>(p%u, a%u.n_in);\n", d,
                        r->nearest, d, d);
    else
        weft_buf_printf(
            body, "    const resize_taps<%d, %s> t%u(p%u, a%u.n_in, %s);\n", r->mode == 'c' ? 4 : 2,
            weft_attrs_int(r->attrs, WEFT_ATTR_EXCLUDE_OUTSIDE, 0) ? "true" : "false", d, d, d,
            weft_cuda__f32_text(r->cu,
                                (float)weft_attrs_float(r->attrs, WEFT_ATTR_CUBIC_COEFF_A, -0.75)));
}

/* An expression for the index in the operand: the result's index along axes that keep their size,
 * "i<D>" or "t<D>.index[k<D>]" along others. */
static const char *source_text(const resize *r)
{
    const weft_ttype *x = weft_cuda__in_type(r->cu, 0), *y = weft_cuda__out_type(r->cu, 0);
    weft_arena *arena = weft_cuda__arena(r->cu);
    const char *sum = "0";
    for (uint32_t d = 0, i = 0; d < x->rank; d++) {
        const char *own;
        if (i < r->n_axis && r->axis[i] == d) {
            i++;
            own = r->mode == 'n' ? weft_arena_printf(arena, "(size_t)i%u", d)
                                 : weft_arena_printf(arena, "(size_t)t%u.index[k%u]", d, d);
        } else {
            const char *stride = weft_cuda__long(r->k, y, d + 1, y->rank);
            const char *size = weft_cuda__long(r->k, y, d, d + 1);
            own = weft_arena_printf(arena, "at / %s %% %s", stride, size);
        }
        sum = weft_arena_printf(arena, "%s +\n        %s * %s", sum, own,
                                weft_cuda__long(r->k, x, d + 1, x->rank));
    }
    return sum;
}

/* Prints nested sums over the taps of each axis, the last axis innermost. */
static void print_sums(const resize *r, const char *source)
{
    weft_buf *body = weft_cuda__body(r->k);
    uint32_t last = r->axis[r->n_axis - 1];
    for (uint32_t i = 0; i < r->n_axis; i++)
        weft_buf_printf(body,
                        "    f32 s%u = 0;\n"
                        "    for (int k%u = 0; k%u < %d; k%u++) {\n",
                        r->axis[i], r->axis[i], r->axis[i], r->mode == 'c' ? 4 : 2, r->axis[i]);
    weft_buf_printf(body, "    s%u += t%u.weight[k%u] * convert<f32>(x[%s]);\n", last, last, last,
                    source);
    for (uint32_t i = r->n_axis - 1; i > 0; i--)
        weft_buf_printf(body, "    }\n    s%u += t%u.weight[k%u] * s%u;\n", r->axis[i - 1],
                        r->axis[i - 1], r->axis[i - 1], r->axis[i]);
    weft_buf_puts(body, "    }\n");
}

static weft_err emit(resize *r, const char *stem)
{
    const weft_ttype *y = weft_cuda__out_type(r->cu, 0);
    const char *type = weft_dtype_name((weft_dtype)y->dtype);
    r->k = weft_cuda__kernel(r->cu, stem, THREADS);
    weft_buf *body = weft_cuda__body(r->k);
    weft_cuda__include(r->k, "resize.cuh");
    weft_cuda__in(r->k, "x", 0);
    weft_cuda__out(r->k, "y", 0);
    weft_cuda__each(r->k, y->dim, y->rank);
    if (r->crop)
        weft_buf_puts(body, "    bool outside = false;\n");
    for (uint32_t i = 0; i < r->n_axis; i++)
        print_place(r, r->axis[i]);
    if (r->crop)
        weft_buf_printf(
            body, "    if (outside) {\n        y[at] = convert<%s>(%s);\n        return;\n    }\n",
            type,
            weft_cuda__f32_text(
                r->cu, (float)weft_attrs_float(r->attrs, WEFT_ATTR_EXTRAPOLATION_VALUE, 0)));
    const char *source = source_text(r);
    if (r->mode == 'n' || r->n_axis == 0) {
        weft_buf_printf(body, "    y[at] = x[%s];\n", source);
    } else {
        print_sums(r, source);
        weft_buf_printf(body, "    y[at] = convert<%s>(s%u);\n", type, r->axis[0]);
    }
    weft_cuda__launch(r->k, weft_cuda__packs(r->cu, weft_cuda__numel(r->cu, y), 1, THREADS), 1, 1,
                      0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_resize(weft_cuda *cu, weft_node n)
{
    bool old = weft_node_op(weft_cuda__module(cu), n) == WEFT_OP_UPSAMPLE;
    resize r = {.cu = cu, .attrs = weft_cuda__attrs(cu)};
    WEFT_TRY(read_modes(&r, old));
    WEFT_TRY(read_axes(&r, old));
    return emit(&r, "resize");
}
