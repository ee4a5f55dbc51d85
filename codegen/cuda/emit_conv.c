/* Emits convolutions. In order of preference:
 *
 * - conv_depthwise: one input channel per group, at most two spatial dims, small kernels. A thread
 *   computes several neighbouring pixels of a row.
 * - conv_pointwise: kernel 1, stride 1, no padding, and rows of pixels that can be loaded as
 * vectors. One GEMM per image.
 * - conv: all others, as implicit GEMM over the windows of all images.
 *
 * All three apply bias and epilogue. cuBLASLt is not used, because its bias is along the other
 * dimension of the GEMM. A deep GEMM with few blocks is split along the depth (emit_tile.c). */
#include "codegen/cuda/cuda_gemm_int.h"

#include <string.h>

enum { SPATIAL = 3, AREA_MAX = 64, DEPTHWISE_THREADS = 128, DEPTHWISE_EACH = 4 };

/* A convolution with three spatial dims; leading ones are 1 if there are fewer. */
typedef struct problem {
    weft_dtype dtype;
    int64_t kernel[SPATIAL], stride[SPATIAL], dilation[SPATIAL];
    weft_dim pad[SPATIAL], in[SPATIAL], out[SPATIAL];
    weft_dim images, pixels; /* pixels of an image of the result */
    weft_dim columns;        /* columns of the GEMM */
    int64_t group, c, m;     /* groups; input and output channels per group */
    bool has_bias;
} problem;

/* -- Shapes ------------------------------------------------------------------------------------ */

/* Padding before spatial dim i: from attribute `pads`, or computed from the sizes for `auto_pad`.
 */
static weft_dim find_pad(weft_cuda *cu, const problem *p, uint32_t i, uint32_t spatial)
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    weft_attrs attrs = weft_cuda__attrs(cu);
    const char *automatic = weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    uint32_t n, own = i + spatial - SPATIAL;
    const int64_t *pads = weft_attrs_ints(attrs, WEFT_ATTR_PADS, &n);
    if (strcmp(automatic, "VALID") == 0)
        return 0;
    if (strncmp(automatic, "SAME_", 5) != 0)
        return pads ? pads[own] : 0;
    int64_t reach = (p->kernel[i] - 1) * p->dilation[i] + 1 - p->stride[i];
    weft_dim total = weft_dim_sub(
        pool, weft_cuda__add(cu, weft_cuda__mul(cu, p->out[i], p->stride[i]), reach), p->in[i]);
    total = weft_dim_max(pool, total, 0);
    bool lower = strcmp(automatic, "SAME_LOWER") == 0;
    return weft_dim_floordiv(pool, weft_cuda__add(cu, total, lower), 2);
}

static weft_err read_problem(weft_cuda *cu, bool transposed, problem *p)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *w = weft_cuda__in_type(cu, 1);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    uint32_t spatial = x->rank - 2u, n;
    if (spatial > SPATIAL)
        return weft_cuda__unsup(cu, "%u spatial dims, at most %d", spatial, SPATIAL);
    p->dtype = (weft_dtype)x->dtype;
    if (p->dtype != WEFT_DTYPE_F32 && p->dtype != WEFT_DTYPE_F16 && p->dtype != WEFT_DTYPE_BF16)
        return weft_cuda__unsup(cu, "element type %s", weft_dtype_name(p->dtype));
    for (uint32_t i = 1; i < w->rank; i++)
        if (!weft_dim_is_const(w->dim[i]) || !weft_dim_is_const(w->dim[0]))
            return weft_cuda__unsup(cu, "weights with a symbolic dim");
    const int64_t *stride = weft_attrs_ints(attrs, WEFT_ATTR_STRIDES, &n);
    const int64_t *dilation = weft_attrs_ints(attrs, WEFT_ATTR_DILATIONS, &n);
    p->group = weft_attrs_int(attrs, WEFT_ATTR_GROUP, 1);
    p->c = transposed ? w->dim[0] / p->group : w->dim[1];
    p->m = transposed ? w->dim[1] : w->dim[0] / p->group;
    p->images = x->dim[0];
    p->pixels = weft_cuda__product(cu, o, 2, o->rank);
    p->columns = p->pixels;
    p->has_bias = weft_cuda__in_type(cu, 2) != NULL;
    for (uint32_t i = 0; i < SPATIAL; i++) {
        bool is_there = i + spatial >= SPATIAL;
        uint32_t own = is_there ? i + spatial - SPATIAL : 0;
        p->kernel[i] = is_there ? w->dim[own + 2] : 1;
        p->stride[i] = is_there && stride ? stride[own] : 1;
        p->dilation[i] = is_there && dilation ? dilation[own] : 1;
        p->in[i] = is_there ? x->dim[own + 2] : 1;
        p->out[i] = is_there ? o->dim[own + 2] : 1;
        p->pad[i] = is_there ? find_pad(cu, p, i, spatial) : 0;
    }
    return WEFT_ERR_OK;
}

/* -- Kernels ----------------------------------------------------------------------------------- */

/* Prints `const conv_shape s = {...};`. If `shared`, sizes are parameters, so that several
 * convolutions share a kernel; kernel size, strides, dilations and padding are always constants. */
static void print_shape(weft_cuda_kernel *k, const problem *p, bool shared)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *text = "";
    const int64_t *const known[] = {p->kernel, p->stride, p->dilation};
    const weft_dim *const dims[] = {p->pad, p->in, p->out};
    const weft_dim other[] = {p->images, p->group, p->c, p->m, p->columns};
    for (uint32_t g = 0; g < 3; g++)
        for (uint32_t i = 0; i < SPATIAL; i++)
            text = weft_arena_printf(arena, "%s%lld, ", text, (long long)known[g][i]);
    for (uint32_t g = 0; g < 3; g++)
        for (uint32_t i = 0; i < SPATIAL; i++) {
            bool own = shared && g > 0 && dims[g][i] != 1;
            text = weft_arena_printf(arena, "%s%s, ", text,
                                     own ? weft_cuda__number(k, dims[g][i])
                                         : weft_cuda__int(k, dims[g][i]));
        }
    for (uint32_t i = 0; i < sizeof other / sizeof other[0]; i++)
        text = weft_arena_printf(arena, "%s%s%s", text, i ? ", " : "",
                                 shared && other[i] != 1 ? weft_cuda__number(k, other[i])
                                                         : weft_cuda__int(k, other[i]));
    weft_buf_printf(weft_cuda__body(k), "    const conv_shape s = {%s};\n", text);
}

static void add_operands(weft_cuda_kernel *k, const problem *p)
{
    weft_cuda__include(k, "conv.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "w", 1);
    if (p->has_bias)
        weft_cuda__in(k, "bias", 2);
    else
        weft_buf_printf(weft_cuda__body(k), "    const %s *bias = 0;\n", weft_dtype_name(p->dtype));
}

static weft_err emit_tiled(weft_cuda *cu, const problem *p, const char *fn,
                           const weft_cuda_variant *v)
{
    const weft_cuda_tile *t = v->tile;
    weft_arena *arena = weft_cuda__arena(cu);
    const char *type = weft_dtype_name(p->dtype), *post = "no_post{}", *to = "y";
    weft_cuda_kernel *k =
        weft_cuda__kernel(cu, weft_arena_printf(arena, "%s_%s_%ux%u", fn, type, t->bm, t->bn),
                          weft_cuda__tile_threads(t));
    weft_dim scratch =
        v->parts > 1 ? weft_cuda__scratch_bytes(cu, weft_cuda__parts_bytes(cu, v)) : 0;
    weft_cuda__min_blocks(k, t->min_blocks);
    add_operands(k, p);
    if (v->parts > 1) {
        weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
        weft_cuda__scratch(k, "y", WEFT_DTYPE_F32, scratch, false);
        to = weft_arena_printf(arena, "y + blockIdx.y * (size_t)%s", weft_cuda__number(k, all));
    } else {
        weft_cuda__out(k, "y", 0);
    }
    print_shape(k, p, true);
    if (v->parts == 1)
        WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, 1, 1, 1, UINT32_MAX, &post));
    bool biased = p->has_bias && v->parts == 1;
    weft_buf_printf(weft_cuda__body(k), "    %s<%s, %s, %u>(x, w, %s%s%s, %s, s, %s);\n", fn, type,
                    weft_cuda__tile_text(cu, t), v->each, biased ? "" : "(const ",
                    biased ? "bias" : type, biased ? "" : " *)0", to, post);
    weft_cuda__launch(k, v->blocks, v->parts, 1, 0);
    return v->parts > 1 ? weft_cuda__sum_parts(cu, v, scratch, 1, p->has_bias, 1, 1, UINT32_MAX)
                        : WEFT_ERR_OK;
}

static bool is_depthwise(const problem *p)
{
    return p->c == 1 && p->group > 1 && p->kernel[0] == 1 && p->in[0] == 1 && p->out[0] == 1 &&
           p->kernel[1] * p->kernel[2] <= AREA_MAX && p->stride[2] <= 4 && p->dilation[2] <= 4;
}

static weft_err emit_depthwise(weft_cuda *cu, const problem *p)
{
    const char *post;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "conv_depthwise", DEPTHWISE_THREADS);
    add_operands(k, p);
    weft_cuda__out(k, "y", 0);
    print_shape(k, p, false);
    WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, 1, 1, 1, UINT32_MAX, &post));
    weft_buf_printf(weft_cuda__body(k),
                    "    conv_depthwise<%lld, %lld, %lld, %lld, %d>(x, w, bias, y, s, %s);\n",
                    (long long)p->kernel[1], (long long)p->kernel[2], (long long)p->stride[2],
                    (long long)p->dilation[2], DEPTHWISE_EACH, post);
    weft_dim rows = weft_cuda__mul(cu, weft_cuda__mul(cu, p->images, p->group * p->m), p->out[1]);
    weft_dim threads = weft_cuda__mul(cu, rows, weft_cuda__ceil_div(cu, p->out[2], DEPTHWISE_EACH));
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, threads, DEPTHWISE_THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

static bool is_pointwise(const problem *p)
{
    for (uint32_t i = 0; i < SPATIAL; i++)
        if (p->kernel[i] != 1 || p->stride[i] != 1 || p->pad[i] != 0 || p->in[i] != p->out[i])
            return false;
    int64_t together = p->dtype == WEFT_DTYPE_F32 ? 4 : 8;
    return weft_dim_is_const(p->pixels) && p->pixels % together == 0;
}

weft_err weft_cuda_emit_conv(weft_cuda *cu, weft_node n)
{
    (void)n;
    problem p = {0};
    WEFT_TRY(read_problem(cu, false, &p));
    if (is_depthwise(&p))
        return emit_depthwise(cu, &p);
    bool pointwise = is_pointwise(&p);
    p.columns = pointwise ? p.pixels : weft_cuda__mul(cu, p.pixels, p.images);
    weft_dim batch = pointwise ? weft_cuda__mul(cu, p.images, p.group) : p.group;
    const weft_dim rows = p.m, depth = p.c * p.kernel[0] * p.kernel[1] * p.kernel[2];
    const weft_cuda_extent e = {p.dtype, &rows, 1, p.columns, batch, depth};
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    uint32_t count = weft_cuda__tiles(cu, &e, 1, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, &p, pointwise ? "conv_pointwise" : "conv", &v[i]));
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_conv_transpose(weft_cuda *cu, weft_node n)
{
    enum { THREADS = 128 };
    (void)n;
    problem p = {0};
    weft_attrs attrs = weft_cuda__attrs(cu);
    if (strncmp(weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET"), "SAME_", 5) == 0)
        return weft_cuda__unsup(cu, "auto_pad SAME");
    if (weft_attrs_find(attrs, WEFT_ATTR_OUTPUT_SHAPE))
        return weft_cuda__unsup(cu, "output_shape");
    WEFT_TRY(read_problem(cu, true, &p));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "conv_transposed", THREADS);
    add_operands(k, &p);
    weft_cuda__out(k, "y", 0);
    print_shape(k, &p, false);
    weft_buf_puts(weft_cuda__body(k), "    conv_transposed(x, w, bias, y, s);\n");
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, all, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
