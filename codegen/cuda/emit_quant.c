/* Emits linear quantisation: a thread computes an element; scales are per tensor, per index of an
 * axis, or per block of an axis. Products of bytes: emit_int8.c. */
#include "codegen/cuda/cuda_int.h"

enum { THREADS = 256 };

/* An expression for the index of the scale of element `at`. */
static const char *scale_text(weft_cuda_kernel *k)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_arena *arena = weft_cuda__arena(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *scale = weft_cuda__in_type(cu, 1);
    int64_t block = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_BLOCK_SIZE, 0);
    if (weft_cuda__numel(cu, scale) == 1)
        return "0";
    uint32_t d = weft_cuda__axis(cu, 1, x->rank);
    const char *inner = weft_cuda__long(k, x, d + 1, x->rank);
    const char *len = weft_cuda__long(k, x, d, d + 1);
    const char *along = weft_arena_printf(arena, "at / %s %% %s", inner, len);
    if (block == 0)
        return along;
    return weft_arena_printf(arena, "(at / (%s * %s) * %s + %s / %lld) * %s + at %% %s", inner, len,
                             weft_cuda__long(k, scale, d, d + 1), along, (long long)block, inner,
                             inner);
}

/* Emits y[at] = VALUE, to which the zero point and a closing parenthesis are appended. VALUE may
 * use x[at], scale[i] and the type Y. */
static weft_err emit(weft_cuda *cu, const char *stem, const char *value)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    const char *type = weft_dtype_name((weft_dtype)y->dtype);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, stem, THREADS);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "scale", 1);
    if (weft_cuda__in_type(cu, 2))
        weft_cuda__in(k, "zero", 2);
    weft_cuda__out(k, "y", 0);
    weft_cuda__each(k, y->dim, y->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    typedef %s Y;\n"
                    "    const size_t i = %s;\n"
                    "    y[at] = %s%s);\n",
                    type, scale_text(k), value, weft_cuda__in_type(cu, 2) ? "zero[i]" : "0");
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_quantize(weft_cuda *cu, weft_node n)
{
    (void)n;
    weft_dtype precision =
        weft_attrs_dtype(weft_cuda__attrs(cu), WEFT_ATTR_PRECISION, WEFT_DTYPE_F32);
    if (precision != WEFT_DTYPE_F32)
        return weft_cuda__unsup(cu, "precision of %s", weft_dtype_name(precision));
    if (weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_ZERO_FIRST, 0))
        return emit(cu, "quantize",
                    "quantized_sum<Y>(convert<f32>(x[at]), convert<f32>(scale[i]), (f32)");
    return emit(cu, "quantize", "quantized<Y>(convert<f32>(x[at]), convert<f32>(scale[i]), (f32)");
}

weft_err weft_cuda_emit_dequantize(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit(cu, "dequantize", "dequantized<Y>(x[at], convert<f64>(scale[i]), ");
}

/* The number of elements of x up to the end of the longest sequence, as an expression. */
static const char *used_inputs(weft_cuda *cu, weft_cuda_kernel *k, const weft_ttype *x,
                               uint32_t lens)
{
    weft_cuda__include(k, "recurrent.cuh");
    weft_cuda__in(k, "len", lens);
    const char *steps = weft_cuda__int(k, x->dim[0]), *batch = weft_cuda__int(k, x->dim[1]);
    return weft_arena_printf(weft_cuda__arena(cu), "used_inputs(len, %s, %s, %s)", steps, batch,
                             weft_cuda__int(k, x->dim[2]));
}

/* The first kernel finds the ranges of as many parts as a block has threads; each block of the
 * second kernel reduces them to one range. */
void weft_cuda__quantize_by_range(weft_cuda *cu, const weft_bundle_arg to[3], uint32_t lens)
{
    static const char *const name[] = {"y", "scale", "zero"};
    static const weft_dtype type[] = {WEFT_DTYPE_U8, WEFT_DTYPE_F32, WEFT_DTYPE_U8};
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    const char *arg[3];
    weft_dim range = weft_cuda__scratch_bytes(cu, 2 * THREADS * 4);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "find_range", THREADS);
    weft_cuda__share_sizes(k);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__scratch(k, "range", WEFT_DTYPE_F32, range, false);
    const char *n = lens ? used_inputs(cu, k, x, lens) : weft_cuda__long(k, x, 0, x->rank);
    weft_buf_printf(weft_cuda__body(k), "    find_range<%d, %d>(x, %s, range);\n", THREADS, THREADS,
                    n);
    weft_cuda__launch(k, THREADS, 1, 1, 0);
    k = weft_cuda__kernel(cu, "quantize_range", THREADS);
    weft_cuda__share_sizes(k);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__scratch(k, "range", WEFT_DTYPE_F32, range, true);
    for (uint32_t i = 0; i < 3; i++) {
        bool is_there = to[i].kind != WEFT_COMMAND_ARG_NONE;
        arg[i] = is_there ? name[i] : "0";
        if (is_there)
            weft_cuda__pointer(k, name[i], type[i], false, to[i]);
    }
    weft_buf_printf(weft_cuda__body(k), "    quantize_range<%d>(x, %s, range, %s, %s, %s);\n",
                    THREADS, weft_cuda__long(k, x, 0, x->rank), arg[0], arg[1], arg[2]);
    weft_dim blocks = weft_cuda__packs(cu, weft_cuda__numel(cu, x), 1, THREADS);
    weft_cuda__launch(k, weft_dim_max(weft_cuda__dims(cu), blocks, 1), 1, 1, 0);
}

weft_err weft_cuda_emit_dynamic_quantize(weft_cuda *cu, weft_node n)
{
    (void)n;
    weft_bundle_arg to[3] = {{0}};
    for (uint32_t i = 0; i < 3; i++)
        if (weft_cuda__out_type(cu, i))
            to[i] = weft_cuda__at_out(i, 0);
    weft_cuda__quantize_by_range(cu, to, 0);
    return WEFT_ERR_OK;
}
