/* Emits the kernels of conv_last.cuh: convolutions with channels innermost.
 *
 * - conv_depthwise_last: one input channel per group, at most two spatial dims, small kernels.
 * - conv_last: all others, as implicit GEMM of the windows and the weights. If the channels of a
 * group fill copies of 16 bytes, windows are copied asynchronously, else element by element. */
#include "codegen/cuda/cuda_conv_int.h"
#include "codegen/cuda/cuda_gemm_int.h"

enum {
    COPY_BYTES = 16,
    GROUP = 8, /* elements of weights that are copied at once */
    DEPTHWISE_THREADS = 128,
    DEPTHWISE_EACH = 4,    /* pixels of a thread */
    DEPTHWISE_WIDTH = 4,   /* most channels of a thread */
    DEPTHWISE_FACTORS = 64 /* most weights of a thread, in registers, with several channels */
};

static weft_err emit_tiled(weft_cuda *cu, const weft_cuda_conv *p, int64_t depth,
                           const weft_cuda_variant *v)
{
    weft_arena *arena = weft_cuda__arena(cu);
    const char *type = weft_dtype_name(p->dtype), *post = "no_post{}";
    weft_cuda_tiled tiled =
        weft_cuda__begin_tiled(cu, v, v->tile, weft_arena_printf(arena, "conv_last_%s", type));
    weft_cuda_kernel *k = tiled.kernel;
    weft_cuda__add_conv_operands(k, p);
    weft_cuda__add_result(&tiled);
    weft_cuda__print_conv(k, p, true);
    if (v->parts == 1)
        WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, -1, 1, 1, UINT32_MAX, &post));
    bool eights = weft_cuda__in_is_weight(cu, 1) && depth % GROUP == 0;
    bool whole = p->c % (COPY_BYTES / (int64_t)weft_dtype_size(p->dtype)) == 0;
    const char *bias = v->parts == 1 && weft_cuda__has_bias(cu)
                           ? "bias"
                           : weft_arena_printf(arena, "(const %s *)0", type);
    weft_buf_printf(
        weft_cuda__body(k), "    conv_last<%s, %s, %s, %s>(x, w, %s, y + %s, s, %s, %s);\n", type,
        weft_cuda__tile_text(cu, v->tile), eights ? "true" : "false", whole ? "true" : "false",
        bias, tiled.first, weft_cuda__part_text(&tiled), post);
    return weft_cuda__end_tiled(&tiled, -1, weft_cuda__has_bias(cu), 1, 1, UINT32_MAX);
}

/* Channels of a thread: a vector that divides them, of few enough weights. */
static int64_t depthwise_width(const weft_cuda_conv *p)
{
    int64_t n = p->m == 1 ? DEPTHWISE_WIDTH : 1;
    while (n > 1 && (p->group % n != 0 || n * p->kernel[1] * p->kernel[2] > DEPTHWISE_FACTORS))
        n /= 2;
    return n;
}

static weft_err emit_depthwise(weft_cuda *cu, const weft_cuda_conv *p)
{
    const char *post;
    int64_t width = depthwise_width(p), channels = p->group * p->m;
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "conv_depthwise_last", DEPTHWISE_THREADS);
    weft_cuda__add_conv_operands(k, p);
    weft_cuda__out(k, "y", 0);
    weft_cuda__print_conv(k, p, true);
    WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, -1, 1, 1, UINT32_MAX, &post));
    weft_buf_printf(weft_cuda__body(k),
                    "    conv_depthwise_last<%lld, %lld, %lld, %lld, %d, %lld>(x, w, bias, y, s, "
                    "%s);\n",
                    (long long)p->kernel[1], (long long)p->kernel[2], (long long)p->stride[2],
                    (long long)p->dilation[2], DEPTHWISE_EACH, (long long)width, post);
    weft_dim rows = weft_cuda__mul(cu, p->images, p->out[1]);
    weft_dim threads = weft_cuda__mul(cu, rows, weft_cuda__ceil_div(cu, p->out[2], DEPTHWISE_EACH));
    threads = weft_cuda__mul(cu, threads, channels / width);
    weft_cuda__launch(k, weft_cuda__ceil_div(cu, threads, DEPTHWISE_THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda__emit_conv_last(weft_cuda *cu, weft_cuda_conv *p)
{
    if (p->c < 1)
        return weft_cuda__unsup(cu, "no input channels");
    if (weft_cuda__is_depthwise(p))
        return emit_depthwise(cu, p);
    p->columns = weft_cuda__mul(cu, p->pixels, p->images);
    int64_t depth = p->c * p->kernel[0] * p->kernel[1] * p->kernel[2];
    const weft_cuda_extent e = {p->dtype, &p->columns, 1, p->m, p->group, depth};
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    uint32_t count = weft_cuda__tiles(cu, &e, 1, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, p, depth, &v[i]));
    return WEFT_ERR_OK;
}
