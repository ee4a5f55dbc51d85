/* Sampling at places that data tells: deformable convolution, and max pooling of regions. */
#include "ops/window_int.h"

#include <math.h>

/* -- deform_conv: evaluation; inference is that of conv (conv.c) ------------------------------ */

enum { X, W, OFFSET, BIAS, MASK };

typedef struct deform {
    int64_t images, in_channels, out_channels, height, width, out_height, out_width;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t group, offset_group;
    const double *x, *w, *offset, *bias, *mask;
} deform;

weft_work weft_work_deform_conv(const weft_work_ctx *cx)
{
    double per = 2;
    for (uint32_t i = 1; i < cx->in[W].rank; i++)
        per *= (double)cx->in[W].dim[i];
    /* Four multiplications for each sample, which all output channels share. */
    return weft_work__bytes(cx, per * weft_work__numel(&cx->out[0]) +
                                    8 * weft_work__numel(&cx->in[OFFSET]));
}

static weft_err plan_deform(weft_eval_ctx *cx, deform *d)
{
    const weft_tensor *x = cx->in[X], *w = cx->in[W], *out = &cx->out[0];
    weft_window win;
    if (x->rank != 4 || w->rank != 4 || out->rank != 4)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands of ranks %d and %d", x->rank, w->rank);
    const char *wrong = weft_window__read(cx->attrs, 2, w->dim + 2, &win);
    if (wrong)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    *d = (deform){.images = x->dim[0],
                  .in_channels = x->dim[1],
                  .out_channels = w->dim[0],
                  .height = x->dim[2],
                  .width = x->dim[3],
                  .out_height = out->dim[2],
                  .out_width = out->dim[3],
                  .group = weft_attrs_int(cx->attrs, WEFT_ATTR_GROUP, 1),
                  .offset_group = weft_attrs_int(cx->attrs, WEFT_ATTR_OFFSET_GROUP, 1)};
    for (uint32_t i = 0; i < 2; i++) {
        d->kernel[i] = win.kernel[i];
        d->stride[i] = win.stride[i];
        d->dilation[i] = win.dilation[i];
        d->pad[i] = win.pad_lo[i];
    }
    int64_t points = d->kernel[0] * d->kernel[1] * d->out_height * d->out_width * d->images;
    const weft_tensor *bias = weft_eval__in(cx, BIAS), *mask = weft_eval__in(cx, MASK);
    bool fits = d->group > 0 && d->offset_group > 0 && d->in_channels % d->offset_group == 0 &&
                d->out_channels % d->group == 0 && d->in_channels == w->dim[1] * d->group &&
                out->dim[0] == d->images && out->dim[1] == d->out_channels &&
                weft_tensor_numel(cx->in[OFFSET]) == 2 * d->offset_group * points &&
                (!mask || weft_tensor_numel(mask) == d->offset_group * points) &&
                (!bias || weft_tensor_numel(bias) == d->out_channels);
    if (!fits)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the operands do not fit");
    d->x = weft_eval__f64(cx, x);
    d->w = weft_eval__f64(cx, w);
    d->offset = weft_eval__f64(cx, cx->in[OFFSET]);
    d->bias = bias ? weft_eval__f64(cx, bias) : NULL;
    d->mask = mask ? weft_eval__f64(cx, mask) : NULL;
    return WEFT_ERR_OK;
}

/* Bilinear interpolation of a plane; zero outside. */
static double sample(const deform *d, const double *plane, double y, double x)
{
    if (!(y > -1 && x > -1 && y < (double)d->height && x < (double)d->width))
        return 0;
    int64_t y0 = (int64_t)floor(y), x0 = (int64_t)floor(x);
    double fy = y - (double)y0, fx = x - (double)x0, sum = 0;
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 2; j++) {
            bool inside = y0 + i >= 0 && y0 + i < d->height && x0 + j >= 0 && x0 + j < d->width;
            if (inside)
                sum += (i ? fy : 1 - fy) * (j ? fx : 1 - fx) * plane[(y0 + i) * d->width + x0 + j];
        }
    return sum;
}

/* The samples of one place of the result: column [in_channels][kernel]. */
static void gather_column(const deform *d, int64_t image, int64_t oy, int64_t ox, double *column)
{
    int64_t taps = d->kernel[0] * d->kernel[1], places = d->out_height * d->out_width;
    int64_t at = oy * d->out_width + ox, per = d->in_channels / d->offset_group;
    for (int64_t c = 0; c < d->in_channels; c++) {
        int64_t g = image * d->offset_group + c / per;
        const double *plane = d->x + (image * d->in_channels + c) * d->height * d->width;
        for (int64_t k = 0; k < taps; k++) {
            const double *shift = d->offset + (g * taps + k) * 2 * places + at;
            double y = (double)(oy * d->stride[0] - d->pad[0] + k / d->kernel[1] * d->dilation[0]);
            double x = (double)(ox * d->stride[1] - d->pad[1] + k % d->kernel[1] * d->dilation[1]);
            double v = sample(d, plane, y + shift[0], x + shift[places]);
            column[c * taps + k] = d->mask ? v * d->mask[(g * taps + k) * places + at] : v;
        }
    }
}

weft_err weft_eval_deform_conv(weft_eval_ctx *cx)
{
    deform d;
    WEFT_TRY(plan_deform(cx, &d));
    int64_t taps = d.kernel[0] * d.kernel[1], places = d.out_height * d.out_width;
    int64_t per_in = d.in_channels / d.group * taps, per_out = d.out_channels / d.group;
    double *column =
        weft_arena_array(cx->scratch, (size_t)(d.in_channels * taps) + 1, sizeof *column);
    for (int64_t i = 0; i < d.images * places; i++) {
        int64_t image = i / places, at = i % places;
        gather_column(&d, image, at / d.out_width, at % d.out_width, column);
        for (int64_t o = 0; o < d.out_channels; o++) {
            const double *w = d.w + o * per_in, *v = column + o / per_out * per_in;
            double sum = d.bias ? d.bias[o] : 0;
            for (int64_t k = 0; k < per_in; k++)
                sum += w[k] * v[k];
            weft_eval__store_f64(&cx->out[0], (image * d.out_channels + o) * places + at, 1, 1,
                                 &sum);
        }
    }
    return WEFT_ERR_OK;
}

/* -- max_roi_pool: regions [image, x1, y1, x2, y2], both ends included ------------------------ */

weft_err weft_infer_max_roi_pool(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *rois = &cx->in[1].type;
    uint32_t n;
    const int64_t *pooled = weft_attrs_ints(cx->attrs, WEFT_ATTR_POOLED_SHAPE, &n);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__rank(cx, 0, 4, 4));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_infer__agree(cx, rois->dim[1], 5, "numbers of a region"));
    if (!pooled || n != 2 || pooled[0] < 1 || pooled[1] < 1 || pooled[0] > INT16_MAX ||
        pooled[1] > INT16_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "pooled_shape needs two positive sizes");
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 4);
    out->dim[0] = rois->dim[0];
    out->dim[1] = x->dim[1];
    out->dim[2] = pooled[0];
    out->dim[3] = pooled[1];
    return WEFT_ERR_OK;
}

/* First and last but one index of cell `i` of `n` along an axis of `len`. */
static void cell_range(double start, double size, int64_t i, int64_t n, int64_t len, int64_t *lo,
                       int64_t *hi)
{
    double step = size / (double)n, most = (double)len;
    double a = floor((double)i * step) + start, b = ceil((double)(i + 1) * step) + start;
    *lo = (int64_t)(a < 0 ? 0 : a > most ? most : a);
    *hi = (int64_t)(b < 0 ? 0 : b > most ? most : b);
}

/* The largest element of a cell; 0 for an empty one. */
static double cell_max(const double *plane, int64_t width, const int64_t *lo, const int64_t *hi)
{
    double most = -(double)INFINITY;
    for (int64_t y = lo[0]; y < hi[0]; y++)
        for (int64_t x = lo[1]; x < hi[1]; x++)
            most = plane[y * width + x] > most ? plane[y * width + x] : most;
    return hi[0] <= lo[0] || hi[1] <= lo[1] ? 0 : most;
}

weft_err weft_eval_max_roi_pool(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    double scale = weft_attrs_float(cx->attrs, WEFT_ATTR_SPATIAL_SCALE, 1);
    const double *v = weft_eval__f64(cx, x), *roi = weft_eval__f64(cx, cx->in[1]);
    int64_t height = x->dim[2], width = x->dim[3], cells = out->dim[2] * out->dim[3];
    for (int64_t r = 0; r < out->dim[0]; r++, roi += 5) {
        double start[2], size[2];
        if (!(roi[0] >= 0 && roi[0] < (double)x->dim[0]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "region %lld is of image %g, there are %lld",
                             (long long)r, roi[0], (long long)x->dim[0]);
        for (int a = 0; a < 2; a++) {
            start[a] = round(roi[2 - a] * scale);
            double last = round(roi[4 - a] * scale);
            size[a] = last - start[a] + 1 >= 1 ? last - start[a] + 1 : 1;
            if (!(fabs(start[a]) < 1e9) || !(size[a] < 1e9))
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "region %lld is too far away", (long long)r);
        }
        for (int64_t i = 0; i < x->dim[1] * cells; i++) {
            int64_t c = i / cells, at = i % cells, lo[2], hi[2];
            const double *plane = v + ((int64_t)roi[0] * x->dim[1] + c) * height * width;
            cell_range(start[0], size[0], at / out->dim[3], out->dim[2], height, &lo[0], &hi[0]);
            cell_range(start[1], size[1], at % out->dim[3], out->dim[3], width, &lo[1], &hi[1]);
            double most = cell_max(plane, width, lo, hi);
            weft_eval__store_f64(out, r * x->dim[1] * cells + i, 1, 1, &most);
        }
    }
    return WEFT_ERR_OK;
}
