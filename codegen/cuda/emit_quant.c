/* Emits linear quantisation: a thread computes an element; scales are per tensor, per index of an
 * axis, or per block of an axis. GEMMs of 8-bit integers have a plain kernel with i32 sums. */
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

/* The first kernel finds the ranges of as many parts as a block has threads; each block of the
 * second kernel reduces them to one range. */
weft_err weft_cuda_emit_dynamic_quantize(weft_cuda *cu, weft_node n)
{
    (void)n;
    static const char *const name[] = {"y", "scale", "zero"};
    const weft_ttype *x = weft_cuda__in_type(cu, 0);
    const char *arg[3];
    weft_dim range = weft_cuda__scratch_bytes(cu, 2 * THREADS * 4);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "find_range", THREADS);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__scratch(k, "range", WEFT_DTYPE_F32, range, false);
    weft_buf_printf(weft_cuda__body(k), "    find_range<%d, %d>(x, %s, range);\n", THREADS, THREADS,
                    weft_cuda__long(k, x, 0, x->rank));
    weft_cuda__launch(k, THREADS, 1, 1, 0);
    k = weft_cuda__kernel(cu, "quantize_range", THREADS);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__scratch(k, "range", WEFT_DTYPE_F32, range, true);
    for (uint32_t i = 0; i < 3; i++) {
        arg[i] = weft_cuda__out_type(cu, i) ? name[i] : "0";
        if (weft_cuda__out_type(cu, i))
            weft_cuda__out(k, name[i], i);
    }
    weft_buf_printf(weft_cuda__body(k), "    quantize_range<%d>(x, %s, range, %s, %s, %s);\n",
                    THREADS, weft_cuda__long(k, x, 0, x->rank), arg[0], arg[1], arg[2]);
    weft_dim blocks = weft_cuda__packs(cu, weft_cuda__numel(cu, x), 1, THREADS);
    weft_cuda__launch(k, weft_dim_max(weft_cuda__dims(cu), blocks, 1), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* -- GEMMs of bytes ---------------------------------------------------------------------------- */

/* Operand indices: factors, zero points, and for qlinear_matmul the scales and the result's scale
 * and zero point. */
typedef struct gemm {
    uint32_t b, zero_a, zero_b, scale_a, scale_b, scale, zero;
} gemm;

/* An expression for the offset of the matrix of operand t that belongs to matrix `batch` of the
 * result. */
static const char *matrix_text(weft_cuda_kernel *k, const weft_ttype *t, const weft_ttype *y)
{
    weft_dim own[WEFT_RANK_MAX], stride[WEFT_RANK_MAX] = {0};
    uint32_t n = y->rank - 2u, lead = y->rank - t->rank;
    weft_cuda__strides(weft_cuda__of(k), t, own);
    for (uint32_t d = lead; d < n; d++)
        stride[d] = t->dim[d - lead] == 1 ? 0 : own[d - lead];
    return weft_cuda__offset(k, "batch", y->dim, stride, n);
}

/* An expression for the element of operand `in` for row or column `i` of `rows` in matrix `stack`;
 * "0" if the operand is omitted. */
static const char *pick_text(weft_cuda_kernel *k, uint32_t in, const char *name, const char *rows,
                             const char *stack, const char *i)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *t = weft_cuda__in_type(cu, in);
    if (!t)
        return "0";
    weft_cuda__in(k, name, in);
    return weft_arena_printf(weft_cuda__arena(cu), "%s[pick(%s, %s, %s, %s)]", name,
                             weft_cuda__long(k, t, 0, t->rank), rows, stack, i);
}

static void print_dot(weft_cuda_kernel *k, const gemm *p)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *a = weft_cuda__in_type(cu, 0), *b = weft_cuda__in_type(cu, p->b);
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    weft_buf *body = weft_cuda__body(k);
    weft_cuda__each(k, y->dim, y->rank);
    weft_buf_printf(body,
                    "    const size_t m = %s, n = %s, k = %s;\n"
                    "    const size_t col = at %% n, row = at / n %% m, batch = at / (n * m);\n"
                    "    const size_t at_a = %s, at_b = %s;\n",
                    weft_cuda__long(k, y, y->rank - 2u, y->rank - 1u),
                    weft_cuda__long(k, y, y->rank - 1u, y->rank),
                    weft_cuda__long(k, a, a->rank - 1u, a->rank), matrix_text(k, a, y),
                    matrix_text(k, b, y));
    const char *zero_a = pick_text(k, p->zero_a, "zero_a", "m", "at_a / (m * k)", "row");
    const char *zero_b = pick_text(k, p->zero_b, "zero_b", "n", "at_b / (k * n)", "col");
    weft_buf_printf(
        body, "    const i32 sum = dot(a + at_a + row * k, b + at_b + col, (int)k, n, %s, %s);\n",
        zero_a, zero_b);
}

static weft_err emit_gemm(weft_cuda *cu, const char *stem, const gemm *p)
{
    const weft_ttype *a = weft_cuda__in_type(cu, 0), *b = weft_cuda__in_type(cu, p->b);
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    if (a->rank < 2 || b->rank < 2)
        return weft_cuda__unsup(cu, "a GEMM of vectors");
    weft_cuda_kernel *k = weft_cuda__kernel(cu, stem, THREADS);
    weft_cuda__include(k, "quant.cuh");
    weft_cuda__in(k, "a", 0);
    weft_cuda__in(k, "b", p->b);
    weft_cuda__out(k, "y", 0);
    print_dot(k, p);
    if (p->scale) {
        const char *scale_a = pick_text(k, p->scale_a, "scale_a", "m", "batch", "row");
        const char *scale_b = pick_text(k, p->scale_b, "scale_b", "n", "batch", "col");
        weft_cuda__in(k, "scale", p->scale);
        weft_cuda__in(k, "zero", p->zero);
        weft_buf_printf(weft_cuda__body(k),
                        "    const f32 s = convert<f32>(%s) * convert<f32>(%s) / "
                        "convert<f32>(*scale);\n"
                        "    y[at] = convert<%s>(rintf((f32)sum * s) + (f32)*zero);\n",
                        scale_a, scale_b, weft_dtype_name((weft_dtype)y->dtype));
    } else {
        weft_buf_puts(weft_cuda__body(k), "    y[at] = sum;\n");
    }
    weft_cuda__launch(k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

weft_err weft_cuda_emit_matmul_integer(weft_cuda *cu, weft_node n)
{
    (void)n;
    const gemm p = {.b = 1, .zero_a = 2, .zero_b = 3};
    return emit_gemm(cu, "matmul_integer", &p);
}

weft_err weft_cuda_emit_qlinear_matmul(weft_cuda *cu, weft_node n)
{
    if (!weft_cuda__in_type(cu, 7) || weft_node_in_count(weft_cuda__module(cu), n) > 8)
        return weft_cuda__unsup(cu, "a bias, an epilogue or a result of floats");
    const gemm p = {
        .b = 3, .zero_a = 2, .zero_b = 5, .scale_a = 1, .scale_b = 4, .scale = 6, .zero = 7};
    return emit_gemm(cu, "qlinear_matmul", &p);
}
