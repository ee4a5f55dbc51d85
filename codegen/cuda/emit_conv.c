/* Emits convolutions. cuDNN computes all but depthwise ones, where the runtime finds it and it has
 * a plan: conv(x, w) [+ bias], or [+ residual] + bias [+ ReLU], the epilogues that it has compiled
 * kernels for. Of other epilogues it does the bias, and a pass over the result the rest. With
 * channels innermost, windows of one pixel are products (emit_gemm.c), and emit_conv_last.c has the
 * kernels that run without cuDNN. With planes of pixels one of these runs, in order of preference:
 *
 * - conv_depthwise: one input channel per group, at most two spatial dims, small kernels. A thread
 *   computes several neighbouring pixels of a row.
 * - conv_pointwise: kernel 1, stride 1, no padding, and rows of pixels that can be loaded as
 * vectors. One GEMM per image.
 * - conv: all others, as implicit GEMM over the windows of all images.
 *
 * All three apply bias and epilogue. cuBLASLt is not used for planes, because its bias is along the
 * other dimension of the GEMM. A deep GEMM with few blocks is split along the depth (emit_tile.c).
 */
#include "codegen/cuda/cuda_conv_int.h"
#include "codegen/cuda/cuda_gemm_int.h"

#include <string.h>

enum { DEPTHWISE_THREADS = 128, DEPTHWISE_EACH = 4 };

typedef weft_cuda_conv problem;

static weft_err read_problem(weft_cuda *cu, bool transposed, problem *p)
{
    weft_dtype dtype = (weft_dtype)weft_cuda__in_type(cu, 0)->dtype;
    if (dtype != WEFT_DTYPE_F32 && dtype != WEFT_DTYPE_F16 && dtype != WEFT_DTYPE_BF16)
        return weft_cuda__unsup(cu, "element type %s", weft_dtype_name(dtype));
    return weft_cuda__read_conv(cu, 1, transposed, p);
}

/* Elements that a kernel copies at once, and drivers align weights to more; the most channels that
 * it reads at once, and one more. */
enum { GROUP = 8, NEAR_CHANNELS = 17 };

/* -- Kernels ----------------------------------------------------------------------------------- */

/* A pass over the result: the epilogue. */
static weft_err emit_pass(weft_cuda *cu, const problem *p)
{
    enum { THREADS = 256, EACH = 4 };
    const char *post;
    const char *name = p->last ? "finish_rows" : "finish_planes", *pixels = "";
    weft_cuda_kernel *k = weft_cuda__kernel(cu, name, THREADS);
    weft_cuda__include(k, "conv.cuh");
    weft_cuda__out(k, "y", 0);
    const char *n = weft_cuda__own_number(k, weft_cuda__numel(cu, weft_cuda__out_type(cu, 0)));
    if (!p->last)
        pixels =
            weft_arena_printf(weft_cuda__arena(cu), "%s, ", weft_cuda__own_number(k, p->pixels));
    WEFT_TRY(
        weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, p->last ? -1 : 1, 1, 1, UINT32_MAX, &post));
    weft_buf_printf(weft_cuda__body(k), "    %s(y, %s, %s%lld, %s);\n", name, n, pixels,
                    (long long)(p->group * p->m), post);
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, all, THREADS * EACH), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* Emits cuDNN's convolution and what follows it. */
static weft_err emit_library(weft_cuda *cu, const problem *p)
{
    weft_cuda_tail tail;
    weft_bundle_conv c = {.dtype = p->dtype,
                          .flags = (weft_cuda__has_bias(cu) ? WEFT_CONV_BIAS : 0) |
                                   (p->last ? WEFT_CONV_LAST : 0),
                          .dim = {[WEFT_CONV_IMAGES] = p->images,
                                  [WEFT_CONV_CHANNELS] = p->c * p->group,
                                  [WEFT_CONV_FEATURES] = p->m * p->group,
                                  [WEFT_CONV_GROUPS] = p->group},
                          .x = weft_cuda__at_in(0, 0),
                          .w = weft_cuda__at_in(1, 0),
                          .y = weft_cuda__at_out(0, 0)};
    if (weft_cuda__has_bias(cu))
        c.bias = weft_cuda__at_in(2, 0);
    for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++) {
        c.dim[WEFT_CONV_IN + i] = p->in[i];
        c.dim[WEFT_CONV_OUT + i] = p->out[i];
        c.dim[WEFT_CONV_PAD + i] = p->pad[i];
        c.dim[WEFT_CONV_KERNEL + i] = p->kernel[i];
        c.dim[WEFT_CONV_STRIDE + i] = p->stride[i];
        c.dim[WEFT_CONV_DILATION + i] = p->dilation[i];
    }
    WEFT_TRY(weft_cuda__read_tail(cu, true, &tail));
    bool none = tail.residual == UINT32_MAX && tail.act == WEFT_GEMM_ACT_NONE;
    bool fused =
        tail.is_all && (none || weft_cuda__has_bias(cu)) && tail.act != WEFT_GEMM_ACT_GELU_TANH;
    if (fused && tail.residual != UINT32_MAX) {
        c.flags |= WEFT_CONV_Z;
        c.z = weft_cuda__at_in(tail.residual, 0);
    }
    if (fused && tail.act == WEFT_GEMM_ACT_RELU)
        c.flags |= WEFT_CONV_RELU;
    weft_cuda__conv(cu, &c);
    uint32_t first = weft_cuda__command_count(cu);
    if (!fused)
        WEFT_TRY(emit_pass(cu, p));
    weft_cuda__depends(cu, first, WEFT_COMMAND_AFTER);
    return WEFT_ERR_OK;
}

static weft_err emit_tiled(weft_cuda *cu, const problem *p, const char *fn,
                           const weft_cuda_variant *v)
{
    const weft_cuda_tile *t = v->tile;
    weft_arena *arena = weft_cuda__arena(cu);
    const char *type = weft_dtype_name(p->dtype), *post = "no_post{}";
    weft_cuda_tiled tiled =
        weft_cuda__begin_tiled(cu, v, t, weft_arena_printf(arena, "%s_%s", fn, type));
    weft_cuda_kernel *k = tiled.kernel;
    weft_cuda__add_conv_operands(k, p);
    weft_cuda__add_result(&tiled);
    weft_cuda__print_conv(k, p, true);
    if (v->parts == 1)
        WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, 1, 1, 1, UINT32_MAX, &post));
    bool biased = weft_cuda__has_bias(cu) && v->parts == 1;
    weft_dim depth = weft_cuda__mul(cu, p->c, p->kernel[0] * p->kernel[1] * p->kernel[2]);
    weft_dim plane = weft_cuda__mul(cu, weft_cuda__mul(cu, p->in[0], p->in[1]), p->in[2]);
    int64_t least, most;
    weft_dim_bounds(weft_cuda__dims(cu), plane, &least, &most);
    bool eights = weft_cuda__in_is_weight(cu, 1) && weft_dim_is_const(depth) && depth % GROUP == 0;
    bool near = most <= INT32_MAX / NEAR_CHANNELS;
    weft_buf_printf(weft_cuda__body(k),
                    "    %s<%s, %s, %s, %s>(x, w, %s%s%s, y + %s, s, %s, %s);\n", fn, type,
                    weft_cuda__tile_text(cu, t), eights ? "true" : "false", near ? "true" : "false",
                    biased ? "" : "(const ", biased ? "bias" : type, biased ? "" : " *)0",
                    tiled.first, weft_cuda__part_text(&tiled), post);
    return weft_cuda__end_tiled(&tiled, 1, weft_cuda__has_bias(cu), 1, 1, UINT32_MAX);
}

static weft_err emit_depthwise(weft_cuda *cu, const problem *p)
{
    const char *post;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "conv_depthwise", DEPTHWISE_THREADS);
    weft_cuda__add_conv_operands(k, p);
    weft_cuda__out(k, "y", 0);
    weft_cuda__print_conv(k, p, true);
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
    for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++)
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
    if (weft_cuda__is_depthwise(&p))
        return p.last ? weft_cuda__emit_conv_last(cu, &p) : emit_depthwise(cu, &p);
    if (weft_cuda__is_product(&p))
        return weft_cuda__emit_pixels(cu, &p);
    WEFT_TRY(emit_library(cu, &p));
    uint32_t first = weft_cuda__command_count(cu);
    if (p.last) {
        WEFT_TRY(weft_cuda__emit_conv_last(cu, &p));
        weft_cuda__depends(cu, first, WEFT_COMMAND_INSTEAD);
        return WEFT_ERR_OK;
    }
    bool pointwise = is_pointwise(&p);
    p.columns = pointwise ? p.pixels : weft_cuda__mul(cu, p.pixels, p.images);
    weft_dim batch = pointwise ? weft_cuda__mul(cu, p.images, p.group) : p.group;
    const weft_dim rows = p.m, depth = p.c * p.kernel[0] * p.kernel[1] * p.kernel[2];
    const weft_cuda_extent e = {p.dtype, &rows, 1, p.columns, batch, depth};
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    uint32_t count = weft_cuda__tiles(cu, &e, 1, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, &p, pointwise ? "conv_pointwise" : "conv", &v[i]));
    weft_cuda__depends(cu, first, WEFT_COMMAND_INSTEAD);
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
    weft_cuda__add_conv_operands(k, &p);
    weft_cuda__out(k, "y", 0);
    weft_cuda__print_conv(k, &p, false);
    weft_buf_puts(weft_cuda__body(k), "    conv_transposed(x, w, bias, y, s);\n");
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, all, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
