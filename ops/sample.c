/* Sampling images at computed positions: grid_sample, affine_grid, roi_align; and col2im, which
 * sums patches into an image. */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

enum { SPACE_MAX = 3, TAPS_MAX = 4 };

/* -- grid_sample ---------------------------------------------------------------------------- */

weft_err weft_infer_grid_sample(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *grid = &cx->in[1].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, SPACE_MAX + 2));
    WEFT_TRY(weft_infer__rank(cx, 1, x->rank, x->rank));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__agree(cx, grid->dim[grid->rank - 1], x->rank - 2, "coordinates"));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank);
    WEFT_TRY(weft_infer__unify(cx, x->dim[0], grid->dim[0], "batch", &out->dim[0]));
    out->dim[1] = x->dim[1];
    for (uint32_t d = 2; d < x->rank; d++)
        out->dim[d] = grid->dim[d - 1];
    return WEFT_ERR_OK;
}

weft_work weft_work_sample(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 16 * weft_work__numel(&cx->out[0]));
}

typedef struct weft_sampler {
    char mode, padding; /* 'n' 'l' 'c'; 'z' 'b' 'r' */
    bool align;
    bool narrow; /* positions are computed in f32, which decides ties between neighbours */
} weft_sampler;

/* x reflected at both edges until it is between them. */
static double reflect(double x, double lo, double hi)
{
    double range = hi - lo;
    if (!(range > 0))
        return lo;
    double off = fmod(fabs(x - lo), 2 * range);
    return off <= range ? lo + off : hi - (off - range);
}

static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* The index that replaces a tap outside [0, n), or -1 for zero. */
static int64_t tap_index(const weft_sampler *s, double at, int64_t n)
{
    double lo = s->align ? 0 : -0.5, hi = s->align ? (double)n - 1 : (double)n - 0.5;
    if (at >= 0 && at <= (double)n - 1)
        return (int64_t)at;
    if (s->padding == 'z' || n == 0 || isnan(at))
        return -1;
    if (s->padding == 'b')
        return (int64_t)clamp(at, 0, (double)n - 1);
    return (int64_t)clamp(nearbyint(reflect(at, lo, hi)), 0, (double)n - 1);
}

/* The position in an image of n pixels of the coordinate g in [-1, 1]. */
static double position_of(const weft_sampler *s, double g, int64_t n)
{
    if (!s->narrow)
        return s->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - 1) / 2;
    float shifted = (float)g + 1;
    if (s->align)
        return shifted / 2 * (float)(n - 1);
    float scaled = shifted * (float)n;
    return (scaled - 1) / 2;
}

/* Taps along one dim for the coordinate g in [-1, 1]; returns their number. */
static int sample_taps(const weft_sampler *s, double g, int64_t n, int64_t *index, double *weight)
{
    double lo = s->align ? 0 : -0.5, hi = s->align ? (double)n - 1 : (double)n - 0.5;
    double x = position_of(s, g, n);
    if (s->mode == 'n')
        x = nearbyint(x);
    /* Cubic taps are reflected or clamped individually. */
    if (s->mode != 'c' && (x < lo || x > hi)) {
        if (s->padding == 'b')
            x = clamp(x, 0, (double)n - 1);
        else if (s->padding == 'r')
            x = reflect(x, lo, hi);
    }
    int count = s->mode == 'n' ? 1 : s->mode == 'l' ? 2 : 4;
    double first = s->mode == 'n' ? nearbyint(x) : s->mode == 'l' ? floor(x) : floor(x) - 1;
    for (int k = 0; k < count; k++) {
        double d = fabs(x - (first + k)), a = -0.75;
        index[k] = tap_index(s, first + k, n);
        if (s->mode == 'n')
            weight[k] = 1;
        else if (s->mode == 'l')
            weight[k] = 1 - d;
        else
            weight[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                               : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
    return count;
}

/* Offsets within one channel and their weights for one point; returns how many. */
static int point_taps(const weft_sampler *s, const double *point, const int64_t *dim, int n_space,
                      int64_t *at, double *weight)
{
    int n = 1;
    at[0] = 0;
    weight[0] = 1;
    for (int d = 0; d < n_space; d++) {
        int64_t index[TAPS_MAX], next_at[64];
        double w[TAPS_MAX], next_weight[64];
        int count = sample_taps(s, point[n_space - 1 - d], dim[d], index, w), m = 0;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < count; k++) {
                if (index[k] < 0)
                    continue;
                next_at[m] = at[i] * dim[d] + index[k];
                next_weight[m++] = weight[i] * w[k];
            }
        n = m;
        memcpy(at, next_at, (size_t)n * sizeof *at);
        memcpy(weight, next_weight, (size_t)n * sizeof *weight);
    }
    return n;
}

weft_err weft_eval_grid_sample(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *grid = cx->in[1];
    weft_tensor *out = weft_eval__out(cx, 0);
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "linear");
    const char *padding = weft_attrs_str(cx->attrs, WEFT_ATTR_PADDING_MODE, "zeros");
    weft_sampler s = {.mode = mode[0],
                      .padding = padding[0],
                      .align = weft_attrs_int(cx->attrs, WEFT_ATTR_ALIGN_CORNERS, 0) != 0,
                      .narrow = grid->dtype != WEFT_DTYPE_F64};
    if (!out)
        return WEFT_ERR_OK;
    if (strcmp(mode, "bilinear") == 0 || strcmp(mode, "bicubic") == 0)
        s.mode = mode[2]; /* the older names */
    int n_space = x->rank - 2;
    if ((s.mode != 'n' && s.mode != 'l' && s.mode != 'c') ||
        (s.padding != 'z' && s.padding != 'b' && s.padding != 'r'))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "mode \"%s\", padding \"%s\"", mode, padding);
    if (n_space < 1 || n_space > SPACE_MAX || grid->rank != x->rank || grid->dim[0] != x->dim[0] ||
        grid->dim[x->rank - 1] != n_space)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand and grid do not fit");
    int64_t size = weft_dims__product(x->dim, 2, x->rank), c = x->dim[1];
    int64_t points = weft_dims__product(grid->dim, 1, grid->rank - 1);
    if (weft_tensor_numel(out) != x->dim[0] * c * points)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result does not fit the grid");
    const double *from = weft_eval__f64(cx, x), *g = weft_eval__f64(cx, grid);
    for (int64_t i = 0; i < x->dim[0] * points; i++) {
        int64_t at[64], n = i / points;
        double weight[64];
        int taps = point_taps(&s, g + i * n_space, x->dim + 2, n_space, at, weight);
        for (int64_t k = 0; k < c; k++) {
            double sum = 0;
            for (int t = 0; t < taps; t++)
                sum += weight[t] * from[(n * c + k) * size + at[t]];
            weft_tensor_set_f64(out, (n * c + k) * points + i % points, sum);
        }
    }
    return WEFT_ERR_OK;
}

/* -- affine_grid ---------------------------------------------------------------------------- */

weft_err weft_infer_affine_grid(weft_infer_ctx *cx)
{
    const weft_ttype *theta = &cx->in[0].type;
    const weft_dim *size;
    uint32_t n;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, 3));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    weft_dim space = theta->dim[1];
    if (!weft_dim_is_const(space))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
    if (space != 2 && space != 3)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "theta has %s rows, not 2 or 3",
                         weft_infer__text(cx, space));
    WEFT_TRY(weft_infer__agree(cx, theta->dim[2], space + 1, "columns of theta"));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)theta->dtype, (uint32_t)space + 2);
    weft_infer__fresh(cx, out);
    out->dim[0] = theta->dim[0];
    out->dim[space + 1] = space;
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_SIZE, &size, &n);
    if (given == WEFT_GIVEN_NOT || (given == WEFT_GIVEN_KNOWN && n != (uint32_t)space + 2))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the size needs %lld entries", (long long)space + 2);
    for (weft_dim d = 0; d < space && given == WEFT_GIVEN_KNOWN; d++)
        out->dim[1 + d] = size[2 + d];
    return WEFT_ERR_OK;
}

/* Coordinate of place i of n in [-1, 1]. */
static double grid_coordinate(int64_t i, int64_t n, bool align)
{
    if (align)
        return n > 1 ? -1 + 2 * (double)i / (double)(n - 1) : 0;
    return (2 * (double)i + 1) / (double)n - 1;
}

weft_err weft_eval_affine_grid(weft_eval_ctx *cx)
{
    const weft_tensor *theta = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    bool align = weft_attrs_int(cx->attrs, WEFT_ATTR_ALIGN_CORNERS, 0) != 0;
    int32_t space = out->rank - 2;
    if (space < 2 || space > SPACE_MAX || theta->rank != 3 || out->dim[0] != theta->dim[0] ||
        theta->dim[1] != space || theta->dim[2] != space + 1 || out->dim[space + 1] != space)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "theta does not fit the result");
    const double *m = weft_eval__f64(cx, theta);
    int64_t points = weft_dims__product(out->dim, 1, space + 1), idx[SPACE_MAX] = {0};
    for (int64_t i = 0; i < out->dim[0] * points; i++) {
        const double *row = m + i / points * space * (space + 1);
        for (int32_t r = 0; r < space; r++) {
            double sum = row[r * (space + 1) + space];
            for (int32_t k = 0; k < space; k++) {
                int32_t d = space - 1 - k;
                sum += row[r * (space + 1) + k] * grid_coordinate(idx[d], out->dim[1 + d], align);
            }
            weft_tensor_set_f64(out, i * space + r, sum);
        }
        weft_index__next(idx, out->dim + 1, space);
    }
    return WEFT_ERR_OK;
}

/* -- roi_align ------------------------------------------------------------------------------ */

weft_err weft_infer_roi_align(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 4, 4));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, 2, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, cx->in[1].type.dim[1], 4, "coordinates of a region"));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, 4);
    WEFT_TRY(weft_infer__unify(cx, cx->in[1].type.dim[0], cx->in[2].type.dim[0], "regions",
                               &out->dim[0]));
    out->dim[1] = x->dim[1];
    out->dim[2] = weft_attrs_int(cx->attrs, WEFT_ATTR_OUTPUT_HEIGHT, 1);
    out->dim[3] = weft_attrs_int(cx->attrs, WEFT_ATTR_OUTPUT_WIDTH, 1);
    return WEFT_ERR_OK;
}

typedef struct weft_roi {
    double start[2], bin[2]; /* y, x */
    int64_t grid[2];
} weft_roi;

/* false if the region is NaN or so large that its points cannot be visited. */
static bool get_roi(weft_attrs attrs, const double *box, const int64_t *pooled, weft_roi *out)
{
    enum { GRID_MAX = 1 << 10 };
    const char *coords =
        weft_attrs_str(attrs, WEFT_ATTR_COORDINATE_TRANSFORMATION_MODE, "half_pixel");
    bool half = strcmp(coords, "half_pixel") == 0;
    double scale = weft_attrs_float(attrs, WEFT_ATTR_SPATIAL_SCALE, 1);
    int64_t ratio = weft_attrs_int(attrs, WEFT_ATTR_SAMPLING_RATIO, 0);
    weft_roi roi;
    for (int d = 0; d < 2; d++) {
        double lo = box[1 - d] * scale - (half ? 0.5 : 0), hi = box[3 - d] * scale;
        double size = hi - (half ? 0.5 : 0) - lo;
        if (!half && size < 1)
            size = 1;
        roi.start[d] = lo;
        roi.bin[d] = size / (double)pooled[d];
        double grid = ratio > 0 ? (double)ratio : ceil(size / (double)pooled[d]);
        if (!(grid <= GRID_MAX))
            return false;
        roi.grid[d] = grid >= 1 ? (int64_t)grid : 0;
    }
    *out = roi;
    return true;
}

/* The four neighbours of a point in an image, clamped at the edge; false when it is outside. */
static bool corners(double y, double x, const int64_t *dim, int64_t at[4], double weight[4])
{
    double p[2] = {y, x}, frac[2];
    int64_t lo[2], hi[2];
    for (int d = 0; d < 2; d++) {
        if (!(p[d] >= -1 && p[d] <= (double)dim[d]))
            return false;
        p[d] = p[d] < 0 ? 0 : p[d];
        lo[d] = (int64_t)p[d];
        if (lo[d] >= dim[d] - 1) {
            lo[d] = hi[d] = dim[d] - 1;
            p[d] = (double)lo[d];
        } else {
            hi[d] = lo[d] + 1;
        }
        frac[d] = p[d] - (double)lo[d];
    }
    for (int k = 0; k < 4; k++) {
        at[k] = (k < 2 ? lo[0] : hi[0]) * dim[1] + (k % 2 ? hi[1] : lo[1]);
        weight[k] = (k < 2 ? 1 - frac[0] : frac[0]) * (k % 2 ? frac[1] : 1 - frac[1]);
    }
    return true;
}

/* One element: the points of its bin, averaged or the largest. */
static double pool_bin(const double *image, const int64_t *dim, const weft_roi *roi, int64_t py,
                       int64_t px, bool max)
{
    double sum = 0, best = -INFINITY;
    for (int64_t iy = 0; iy < roi->grid[0]; iy++)
        for (int64_t ix = 0; ix < roi->grid[1]; ix++) {
            int64_t at[4] = {0};
            double weight[4] = {0}, value[4];
            double y = roi->start[0] +
                       roi->bin[0] * ((double)py + ((double)iy + 0.5) / (double)roi->grid[0]);
            double x = roi->start[1] +
                       roi->bin[1] * ((double)px + ((double)ix + 0.5) / (double)roi->grid[1]);
            bool inside = corners(y, x, dim, at, weight);
            for (int k = 0; k < 4; k++) {
                value[k] = inside ? weight[k] * image[at[k]] : 0;
                sum += value[k];
                best = value[k] > best || value[k] != value[k] ? value[k] : best;
            }
        }
    double count = (double)(roi->grid[0] * roi->grid[1]);
    if (count == 0)
        return 0;
    return max ? best : sum / count;
}

weft_err weft_eval_roi_align(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *rois = cx->in[1], *batch = cx->in[2];
    weft_tensor *out = weft_eval__out(cx, 0);
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "avg");
    if (!out)
        return WEFT_ERR_OK;
    if (strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "mode \"%s\"", mode);
    int64_t n = weft_tensor_numel(batch), c = x->rank == 4 ? x->dim[1] : 0;
    if (x->rank != 4 || out->rank != 4 || weft_tensor_numel(rois) != 4 * n || out->dim[0] != n ||
        out->dim[1] != c || x->dim[2] == 0 || x->dim[3] == 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "image, regions and result do not fit");
    const double *from = weft_eval__f64(cx, x), *box = weft_eval__f64(cx, rois);
    int64_t size = x->dim[2] * x->dim[3], pooled = out->dim[2] * out->dim[3];
    for (int64_t i = 0; i < n; i++) {
        int64_t b = weft_tensor_get_i64(batch, i);
        if (b < 0 || b >= x->dim[0])
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "batch index %lld of %lld", (long long)b,
                             (long long)x->dim[0]);
        weft_roi roi;
        if (!get_roi(cx->attrs, box + 4 * i, out->dim + 2, &roi))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "region %lld is too large", (long long)i);
        for (int64_t k = 0; k < c; k++)
            for (int64_t p = 0; p < pooled; p++)
                weft_tensor_set_f64(out, (i * c + k) * pooled + p,
                                    pool_bin(from + (b * c + k) * size, x->dim + 2, &roi,
                                             p / out->dim[3], p % out->dim[3], mode[0] == 'm'));
    }
    return WEFT_ERR_OK;
}

/* -- col2im --------------------------------------------------------------------------------- */

/* Window of one dim: patches = (image + pads - dilation * (block - 1) - 1) / stride + 1. */
typedef struct weft_patch {
    int64_t image, block, stride, dilation, before, patches;
} weft_patch;

/* false: the values are an INPUT error. */
static bool get_patches(weft_attrs attrs, const int64_t *image, const int64_t *block, uint32_t n,
                        weft_patch *out)
{
    uint32_t n_stride, n_dilation, n_pads;
    const int64_t *strides = weft_attrs_ints(attrs, WEFT_ATTR_STRIDES, &n_stride);
    const int64_t *dilations = weft_attrs_ints(attrs, WEFT_ATTR_DILATIONS, &n_dilation);
    const int64_t *pads = weft_attrs_ints(attrs, WEFT_ATTR_PADS, &n_pads);
    if ((strides && n_stride != n) || (dilations && n_dilation != n) || (pads && n_pads != 2 * n))
        return false;
    for (uint32_t d = 0; d < n; d++) {
        weft_patch p = {.image = image[d],
                        .block = block[d],
                        .stride = strides ? strides[d] : 1,
                        .dilation = dilations ? dilations[d] : 1,
                        .before = pads ? pads[d] : 0};
        int64_t after = pads ? pads[n + d] : 0, most = 1 << 30;
        if (p.image < 1 || p.block < 1 || p.stride < 1 || p.dilation < 1 || p.before < 0 ||
            after < 0 || p.image > most || p.block > most || p.stride > most || p.dilation > most ||
            p.before > most || after > most)
            return false;
        int64_t room = p.image + p.before + after - p.dilation * (p.block - 1) - 1;
        p.patches = room < 0 ? 0 : room / p.stride + 1;
        out[d] = p;
    }
    return true;
}

weft_err weft_infer_col2im(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *image;
    const int64_t *block;
    uint32_t n, n_block;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, 3));
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_IMAGE_SHAPE, &image, &n);
    weft_given given_block = weft_param__ints(cx, 2, WEFT_ATTR_BLOCK_SHAPE, &block, &n_block);
    if (given == WEFT_GIVEN_NOT || given_block == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no image shape or block shape is given");
    if (given == WEFT_GIVEN_LATER || given_block == WEFT_GIVEN_LATER) {
        const weft_ttype *s = &cx->in[given == WEFT_GIVEN_LATER ? 1 : 2].type;
        if (s->rank != 1 || !weft_dim_is_const(s->dim[0]) || s->dim[0] < 1 ||
            s->dim[0] > WEFT_RANK_MAX - 2)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
        weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, (uint32_t)s->dim[0] + 2);
        weft_infer__fresh(cx, out);
        out->dim[0] = x->dim[0];
        return WEFT_ERR_OK;
    }
    if (n != n_block || n < 1 || n > WEFT_RANK_MAX - 2)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "image of rank %u, block of rank %u", n, n_block);
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, n + 2);
    weft_dim patch = 1;
    for (uint32_t d = 0; d < n; d++) {
        patch = weft_dim_mul(cx->pool, patch, block[d]);
        out->dim[d + 2] = image[d];
    }
    out->dim[0] = x->dim[0];
    if (!weft_dim_div_exact(cx->pool, x->dim[1], patch, &out->dim[1])) {
        if (weft_dim_is_const(x->dim[1]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s rows are no multiple of the block",
                             weft_infer__text(cx, x->dim[1]));
        out->dim[1] = weft_dim_floordiv(cx->pool, x->dim[1], patch);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_col2im(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    const int64_t *image, *block;
    uint32_t n, n_block;
    weft_patch p[WEFT_RANK_MAX];
    if (!out)
        return WEFT_ERR_OK;
    if (!weft_eval_param(cx, 1, WEFT_ATTR_IMAGE_SHAPE, &image, &n) ||
        !weft_eval_param(cx, 2, WEFT_ATTR_BLOCK_SHAPE, &block, &n_block) || n != n_block || n < 1 ||
        n > WEFT_RANK_MAX - 2 || !get_patches(cx->attrs, image, block, n, p) || x->rank != 3)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "image, block and their attributes do not fit");
    int64_t cells = 1, places = 1, dim[WEFT_RANK_MAX], count[WEFT_RANK_MAX];
    for (uint32_t d = 0; d < n; d++) {
        cells *= block[d];
        places *= p[d].patches;
        dim[2 + d] = image[d];
        count[d] = p[d].patches;
        if (cells > WEFT_NUMEL_MAX >> 8 || places > WEFT_NUMEL_MAX >> 8)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "too many patches");
    }
    if (x->dim[1] % cells != 0 || x->dim[2] != places)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld columns for %lld patches", (long long)x->dim[2],
                         (long long)places);
    dim[0] = x->dim[0];
    dim[1] = x->dim[1] / cells;
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, (int32_t)n + 2));
    const double *from = weft_eval__f64(cx, x);
    int64_t size = weft_dims__product(dim, 2, (int32_t)n + 2), cell[WEFT_RANK_MAX] = {0};
    double *sum = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(out), sizeof *sum);
    for (int64_t row = 0; row < x->dim[0] * x->dim[1]; row++) {
        int64_t place[WEFT_RANK_MAX] = {0};
        for (int64_t i = 0; i < places; i++) {
            int64_t at = 0;
            bool inside = true;
            for (uint32_t d = 0; d < n; d++) {
                int64_t y = place[d] * p[d].stride + cell[d] * p[d].dilation - p[d].before;
                inside = inside && y >= 0 && y < p[d].image;
                at = at * p[d].image + y;
            }
            if (inside)
                sum[row / cells * size + at] += from[row * places + i];
            weft_index__next(place, count, (int32_t)n);
        }
        weft_index__next(cell, block, (int32_t)n);
    }
    weft_eval__store_f64(out, 0, 1, weft_tensor_numel(out), sum);
    return WEFT_ERR_OK;
}
