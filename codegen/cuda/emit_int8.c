/* Emits products of bytes: matmul_integer, qlinear_matmul, conv_integer, qlinear_conv.
 *
 * cuBLASLt multiplies, with i8 factors and i32 sums on tensor cores. It asks for both factors in
 * rows of words along the depth (weft_bundle_gemm), so kernels write them to scratch memory in that
 * form: pack_rows copies rows, gather_windows takes windows of images (im2col) or transposes a
 * matrix. Weights of i8 that already have the form are read in place; transpose-bytes brings those
 * of qlinear_matmul into it. A last kernel, finish_sums, subtracts zero points, applies scales,
 * bias and epilogue, and quantises.
 *
 *   matmul   sums[row][column] = a[row] . b[column], for each matrix of a batch
 *   conv     sums[channel][pixel of all images] = w[channel] . window[pixel], for each group
 *
 * Without the library:
 *
 *   multiply_rows   a matmul of few rows with a weight in rows along the depth: a warp for each
 * column dot             a matmul with several zero points, broadcast batches, or few rows: a
 * thread for each element window_sum      a convolution with few channels per group: a thread for
 * each element
 *
 * The choice by the number of rows is made at run time if it depends on symbols, as in emit_tile.c.
 * Products whose sums might not fit 32 bits are refused. */
#include "codegen/cuda/cuda_conv_int.h"
#include "codegen/cuda/cuda_gemm_int.h"

enum {
    THREADS = 256,
    ROWS_ALIGN = 16, /* bytes of rows in scratch memory */
    FEW_ROWS = 16,   /* up to so many rows the library is not used */
    WARP_ROWS = 8,   /* rows of a warp of multiply_rows */
    FEW_CHANNELS = 8,
    GATHER_PIXELS = 32, /* of int8.cuh */
    GATHER_DEPTH = 64
};

/* -- Operands ---------------------------------------------------------------------------------- */

/* Operand numbers; operand 0 is the left factor or the image. */
typedef struct operands {
    uint32_t a_zero, b, b_zero;
    bool is_qlinear; /* has scales and what follows them (WEFT_QLINEAR_...) */
} operands;

static const operands of_integer = {.a_zero = 2, .b = 1, .b_zero = 3};
static const operands of_qlinear = {.a_zero = WEFT_QLINEAR_A_ZERO,
                                    .b = WEFT_QLINEAR_B,
                                    .b_zero = WEFT_QLINEAR_B_ZERO,
                                    .is_qlinear = true};

static weft_dtype dtype_of(weft_cuda *cu, uint32_t operand)
{
    return (weft_dtype)weft_cuda__in_type(cu, operand)->dtype;
}

/* Whether a zero point is known to be 0, after the shift of u8 to i8. */
static bool is_centred(weft_cuda *cu, uint32_t zero, weft_dtype dtype)
{
    weft_tensor t;
    int64_t want = dtype == WEFT_DTYPE_U8 ? 128 : 0;
    if (!weft_cuda__in_type(cu, zero))
        return want == 0;
    if (!weft_cuda__in_tensor(cu, zero, &t))
        return false;
    for (int64_t i = 0; i < weft_tensor_numel(&t); i++)
        if (weft_tensor_get_i64(&t, i) != want)
            return false;
    return true;
}

/* Whether the zero point is one for all, or one for each of `n`. */
static bool is_one_or(weft_cuda *cu, uint32_t zero, weft_dim n)
{
    const weft_ttype *t = weft_cuda__in_type(cu, zero);
    weft_dim all = t ? weft_cuda__numel(cu, t) : 1;
    return all == 1 || all == n;
}

/* A sum has `depth` terms of at most 255 * 255, or 255 * 128 if the right factor is i8 without a
 * zero point. */
static weft_err check_depth(weft_cuda *cu, const operands *o, weft_dim depth)
{
    weft_dtype b = dtype_of(cu, o->b);
    bool narrow = b == WEFT_DTYPE_I8 && is_centred(cu, o->b_zero, b);
    int64_t lo, hi, most = INT32_MAX / (255 * (narrow ? 128 : 255));
    weft_dim_bounds(weft_cuda__dims(cu), depth, &lo, &hi);
    if (hi <= most || !o->is_qlinear)
        return WEFT_ERR_OK;
    if (weft_dim_is_const(depth))
        return weft_cuda__unsup(cu,
                                "sums of %lld products of bytes, at most %lld fit 32 bits; compile "
                                "with --target cpu",
                                (long long)depth, (long long)most);
    return weft_cuda__unsup(
        cu,
        "sums of any number of products of bytes, at most %lld fit 32 bits; bound "
        "the inner dimension with `dims:`, or compile with --target cpu",
        (long long)most);
}

/* Adds operand `in` as a parameter. The expression of its element `index`, as it is multiplied if
 * `centred`; an omitted zero point is 0. */
static const char *element_text(weft_cuda_kernel *k, uint32_t in, weft_dtype dtype,
                                const char *name, const char *index)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    if (!weft_cuda__in_type(weft_cuda__of(k), in))
        return weft_arena_printf(arena, "centred((%s)0)", weft_dtype_name(dtype));
    weft_cuda__in(k, name, in);
    return weft_arena_printf(arena, "centred(%s[%s])", name, index);
}

/* The index of a scale or zero point for row or column `i` of `n` in matrix `stack`. */
static const char *pick_text(weft_cuda_kernel *k, uint32_t in, const char *n, const char *stack,
                             const char *i)
{
    weft_cuda *cu = weft_cuda__of(k);
    const weft_ttype *t = weft_cuda__in_type(cu, in);
    if (!t || weft_cuda__numel(cu, t) == 1)
        return "0";
    return weft_arena_printf(weft_cuda__arena(cu), "pick(%s, %s, %s, %s)",
                             weft_cuda__long(k, t, 0, t->rank), n, stack, i);
}

/* -- From sums to results --------------------------------------------------------------------- */

/* Prints y[at] = VALUE for `sum`, with `col`, the column or channel; the scales are elements
 * `pick_a` and `pick_b`. */
static weft_err print_result(weft_cuda_kernel *k, const operands *o, const char *pick_a,
                             const char *pick_b, int32_t axis)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_arena *arena = weft_cuda__arena(cu);
    weft_buf *body = weft_cuda__body(k);
    const weft_ttype *bias = weft_cuda__in_type(cu, WEFT_QLINEAR_BIAS);
    bool quantises = weft_cuda__in_type(cu, WEFT_QLINEAR_Y_SCALE) != NULL;
    bool steps = weft_attrs_find(weft_cuda__attrs(cu), WEFT_ATTR_EPILOGUE) != NULL;
    if (!o->is_qlinear) {
        weft_buf_puts(body, "    y[at] = sum;\n");
        return WEFT_ERR_OK;
    }
    bool whole = bias && bias->dtype == WEFT_DTYPE_I32;
    const char *type = weft_dtype_name((weft_dtype)weft_cuda__out_type(cu, 0)->dtype);
    const char *post = NULL;
    weft_cuda__in(k, "a_scale", WEFT_QLINEAR_A_SCALE);
    weft_cuda__in(k, "b_scale", WEFT_QLINEAR_B_SCALE);
    if (quantises) {
        weft_cuda__in(k, "y_scale", WEFT_QLINEAR_Y_SCALE);
        weft_cuda__in(k, "y_zero", WEFT_QLINEAR_Y_ZERO);
    }
    if (bias)
        weft_cuda__in(k, "bias", WEFT_QLINEAR_BIAS);
    weft_buf_printf(body,
                    "    const f32 scale = times(convert<f32>(a_scale[%s]), "
                    "convert<f32>(b_scale[%s]));\n"
                    "    const f32 total = (f32)%s;\n",
                    pick_a, pick_b, whole ? "((i64)sum + bias[col])" : "sum");
    if (quantises && !steps && (!bias || whole)) {
        weft_buf_printf(body,
                        "    y[at] = requantized<%s>(total, scale / convert<f32>(*y_scale), "
                        "(f32)*y_zero);\n",
                        type);
        return WEFT_ERR_OK;
    }
    const char *value = weft_arena_printf(arena, "plus(times(total, scale), %s)",
                                          bias && !whole ? "bias[col]" : "0.0f");
    if (steps) {
        WEFT_TRY(weft_cuda__epilogue(k, WEFT_ATTR_EPILOGUE, axis, &post));
        value = weft_arena_printf(arena, "%s(%s, at, (int)(col))", post, value);
    }
    if (quantises)
        value = weft_arena_printf(arena, "quantized<%s>(%s, convert<f32>(*y_scale), (f32)*y_zero)",
                                  type, value);
    weft_buf_printf(body, "    y[at] = %s;\n", value);
    return WEFT_ERR_OK;
}

/* -- The library ------------------------------------------------------------------------------ */

/* A factor in rows along the depth: `batch` matrices of `all` rows, a multiple of 4, `ld` apart. */
typedef struct factor {
    weft_bundle_arg at;
    weft_dim all, ld, stride;
    bool ones; /* a row of ones follows the rows */
} factor;

/* Both factors, their product, and whether it is needed (1) or not (0). */
typedef struct product {
    weft_dim rows, cols, depth, batch, taken;
    factor left, right;
    weft_dim sums; /* offset in scratch memory: i32 [batch][left.all][right.all] */
} product;

static weft_dim round_up(weft_cuda *cu, weft_dim n, int64_t to)
{
    return weft_cuda__mul(cu, weft_cuda__ceil_div(cu, n, to), to);
}

/* Scratch memory for a factor of `rows` rows and, if there is a zero point opposite, ones. */
static void reserve(weft_cuda *cu, const product *p, weft_dim rows, bool ones, factor *f)
{
    f->ones = ones;
    f->all = round_up(cu, weft_cuda__add(cu, rows, ones), WEFT_GEMM_BYTES_STEP);
    f->ld = round_up(cu, p->depth, ROWS_ALIGN);
    f->stride = weft_cuda__mul(cu, f->all, f->ld);
    f->at = weft_cuda__at_scratch(
        weft_cuda__scratch_bytes(cu, weft_cuda__mul(cu, f->stride, p->batch)));
}

/* Reads `rows` rows of operand `in` in place if they have the form; false: they have not. */
static bool read_in_place(weft_cuda *cu, const product *p, uint32_t in, weft_dim rows, bool ones,
                          factor *f)
{
    if (ones || dtype_of(cu, in) != WEFT_DTYPE_I8 || !weft_cuda__in_is_weight(cu, in) ||
        !weft_dim_is_const(rows) || rows % WEFT_GEMM_BYTES_STEP != 0 ||
        !weft_dim_is_const(p->depth) || p->depth % WEFT_GEMM_BYTES_STEP != 0)
        return false;
    *f = (factor){.at = weft_cuda__at_in(in, 0),
                  .all = rows,
                  .ld = p->depth,
                  .stride = weft_cuda__mul(cu, rows, p->depth)};
    return true;
}

/* Copies the rows of operand `in`, whose batch dims are contiguous. */
static void pack(weft_cuda *cu, const product *p, uint32_t in, weft_dim rows, bool ones, factor *f)
{
    reserve(cu, p, rows, ones, f);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "pack_rows", THREADS);
    weft_cuda__include(k, "int8.cuh");
    weft_cuda__in(k, "x", in);
    weft_cuda__scratch(k, "to", WEFT_DTYPE_I8, f->at.dim, false);
    weft_dim groups = weft_cuda__ceil_div(cu, p->depth, ROWS_ALIGN);
    const char *n = weft_cuda__number(k, rows), *batch = weft_cuda__number(k, p->batch);
    const char *n_all = weft_cuda__number(k, f->all), *depth = weft_cuda__number(k, p->depth);
    const char *n_groups = weft_cuda__number(k, groups);
    weft_buf_printf(
        weft_cuda__body(k),
        "    pack_rows(x, to, (size_t)blockIdx.x * %d + threadIdx.x, %s, %s, %s, %s, %s, "
        "%s);\n",
        THREADS, batch, n, ones ? n : "-1", n_all, depth, n_groups);
    weft_dim all = weft_cuda__mul(cu, weft_cuda__mul(cu, f->all, groups), p->batch);
    weft_cuda__launch(k, weft_cuda__mul(cu, weft_cuda__packs(cu, all, 1, THREADS), p->taken), 1, 1,
                      0);
}

/* Gathers the windows of operand `in`; `zero`: its zero point, which padding has. */
static weft_err gather(weft_cuda *cu, const product *p, uint32_t in, uint32_t zero,
                       const weft_cuda_conv *shape, factor *f)
{
    enum { GRID_MAX = 65535 };
    int64_t lo, hi;
    reserve(cu, p, shape->columns, true, f);
    weft_dim tiles = weft_cuda__ceil_div(cu, f->ld, GATHER_DEPTH);
    weft_dim_bounds(weft_cuda__dims(cu), p->batch, &lo, &hi);
    if (weft_dim_is_const(p->batch) && hi > GRID_MAX)
        return weft_cuda__unsup(cu, "%lld groups, at most %d; compile with --target cpu",
                                (long long)hi, GRID_MAX);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "gather_windows", THREADS);
    weft_cuda__include(k, "int8.cuh");
    weft_cuda__in(k, "x", in);
    weft_cuda__scratch(k, "to", WEFT_DTYPE_I8, f->at.dim, false);
    const char *outside = "0";
    if (zero != UINT32_MAX)
        outside = element_text(k, zero, dtype_of(cu, in), "zero", "0");
    weft_cuda__print_conv(k, shape, true);
    const char *all = weft_cuda__number(k, f->all), *ld = weft_cuda__number(k, f->ld);
    weft_buf_printf(weft_cuda__body(k), "    gather_windows<%d>(x, to, s, %s, %s, %s);\n", THREADS,
                    all, ld, outside);
    weft_dim blocks = weft_cuda__ceil_div(cu, f->all, GATHER_PIXELS);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, p->taken), tiles, p->batch, 0);
    return WEFT_ERR_OK;
}

static void multiply(weft_cuda *cu, product *p)
{
    const factor *a = &p->left, *b = &p->right;
    weft_dim each = weft_cuda__mul(cu, a->all, b->all);
    p->sums =
        weft_cuda__scratch_bytes(cu, weft_cuda__mul(cu, weft_cuda__mul(cu, each, 4), p->batch));
    /* A factor that is read in place has no padding, so the depth has none. */
    weft_dim depth = a->at.kind == WEFT_COMMAND_ARG_IN ? a->ld : b->ld;
    const weft_bundle_gemm g = {.dtype = WEFT_DTYPE_I8,
                                .trans_b = true,
                                .m = weft_cuda__mul(cu, a->all, p->taken),
                                .n = b->all,
                                .k = depth,
                                .batch = p->batch,
                                .a = a->at,
                                .b = b->at,
                                .d = weft_cuda__at_scratch(p->sums),
                                .lda = a->ld,
                                .ldb = b->ld,
                                .ldc = b->all,
                                .ldd = b->all,
                                .stride_a = a->stride,
                                .stride_b = b->stride,
                                .stride_d = each,
                                .alpha = 1};
    weft_cuda__gemm(cu, &g);
}

/* An expression for the sum of `row` and `col` (expressions) of matrix `batch`. */
static const char *sum_text(weft_cuda_kernel *k, const product *p, const char *batch,
                            const char *row, const char *col, const char *left_zero,
                            const char *right_zero)
{
    weft_cuda *cu = weft_cuda__of(k);
    const char *ld = weft_cuda__number(k, p->right.all);
    const char *left_all = weft_cuda__number(k, p->left.all);
    const char *rows = weft_cuda__number(k, p->rows), *cols = weft_cuda__number(k, p->cols);
    const char *depth = weft_cuda__number(k, p->depth);
    return weft_arena_printf(
        weft_cuda__arena(cu),
        "subtract_zeros<%s, %s>(sums + %s * ((size_t)%s * %s), %s, %s, %s, %s, %s, %s, %s, %s)",
        p->left.ones ? "true" : "false", p->right.ones ? "true" : "false", batch, left_all, ld, ld,
        row, col, rows, cols, depth, left_zero, right_zero);
}

/* -- GEMMs ------------------------------------------------------------------------------------ */

typedef struct matmul {
    operands o;
    weft_dim m, n, k; /* of one matrix of the result */
    weft_dim lines;   /* rows of all matrices of operand a */
    weft_dim batch;   /* matrices of operand b if `stacked` */
    bool trans_b;
    bool joined;  /* b is one matrix: all matrices of a are one */
    bool stacked; /* a and b have the same batch dims */
    bool regular; /* one zero point of a, and one of b or one for each column */
} matmul;

static weft_err read_matmul(weft_cuda *cu, const operands *o, matmul *p)
{
    const weft_ttype *a = weft_cuda__in_type(cu, 0), *b = weft_cuda__in_type(cu, o->b);
    if (a->rank < 2 || b->rank < 2)
        return weft_cuda__unsup(cu, "a GEMM of vectors; compile with --target cpu");
    *p = (matmul){.o = *o};
    p->trans_b = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_TRANS_B, 0) != 0;
    p->m = a->dim[a->rank - 2];
    p->k = a->dim[a->rank - 1];
    p->n = b->dim[b->rank - (p->trans_b ? 2 : 1)];
    p->lines = weft_cuda__product(cu, a, 0, a->rank - 1u);
    p->batch = weft_cuda__product(cu, b, 0, b->rank - 2u);
    p->joined = p->batch == 1 && b->rank <= a->rank;
    p->stacked = a->rank == b->rank;
    for (uint32_t i = 0; p->stacked && i + 2u < a->rank; i++)
        p->stacked = a->dim[i] == b->dim[i];
    p->regular = is_one_or(cu, o->a_zero, 1) && is_one_or(cu, o->b_zero, p->n);
    return check_depth(cu, o, p->k);
}

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

static void print_zeros(weft_cuda_kernel *k, const matmul *p, const char *stack_a,
                        const char *stack_b)
{
    weft_cuda *cu = weft_cuda__of(k);
    const operands *o = &p->o;
    const char *i = pick_text(k, o->a_zero, "m", stack_a, "row");
    const char *j = pick_text(k, o->b_zero, "n", stack_b, "col");
    const char *a = element_text(k, o->a_zero, dtype_of(cu, 0), "a_zero", i);
    const char *b = element_text(k, o->b_zero, dtype_of(cu, o->b), "b_zero", j);
    weft_buf_printf(weft_cuda__body(k), "    const i32 za = %s, zb = %s;\n", a, b);
}

static weft_err print_matmul_result(weft_cuda_kernel *k, const matmul *p)
{
    const char *i = pick_text(k, WEFT_QLINEAR_A_SCALE, "m", "batch", "row");
    const char *j = pick_text(k, WEFT_QLINEAR_B_SCALE, "n", "batch", "col");
    return print_result(k, &p->o, i, j, -1);
}

static weft_cuda_kernel *begin_matmul(weft_cuda *cu, const matmul *p, const char *stem)
{
    weft_cuda_kernel *k = weft_cuda__kernel(cu, stem, THREADS);
    weft_cuda__include(k, "int8.cuh");
    const char *m = weft_cuda__number(k, p->m), *n = weft_cuda__number(k, p->n);
    weft_buf_printf(weft_cuda__body(k), "    const size_t m = %s, n = %s;\n", m, n);
    return k;
}

/* One thread for each element. */
static weft_err emit_dots(weft_cuda *cu, const matmul *p, weft_dim taken)
{
    const weft_ttype *a = weft_cuda__in_type(cu, 0), *b = weft_cuda__in_type(cu, p->o.b);
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    weft_cuda_kernel *k = begin_matmul(cu, p, "dot_bytes");
    weft_cuda__in(k, "a", 0);
    weft_cuda__in(k, "b", p->o.b);
    weft_cuda__out(k, "y", 0);
    weft_cuda__each(k, y->dim, y->rank);
    const char *depth = weft_cuda__number(k, p->k);
    const char *at_a = matrix_text(k, a, y), *at_b = matrix_text(k, b, y);
    weft_buf_printf(
        weft_cuda__body(k),
        "    const size_t k = %s, col = at %% n, row = at / n %% m, batch = at / (n * m);\n"
        "    const size_t at_a = %s, at_b = %s;\n",
        depth, at_a, at_b);
    print_zeros(k, p, "at_a / (m * k)", "at_b / (k * n)");
    weft_buf_printf(weft_cuda__body(k),
                    "    const i32 sum = dot(a + at_a + row * k, b + at_b + col%s, (int)k, %s, za, "
                    "zb);\n",
                    p->trans_b ? " * k" : "", p->trans_b ? "1" : "n");
    WEFT_TRY(print_matmul_result(k, p));
    weft_dim blocks = weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* One warp for each column of up to WARP_ROWS rows. */
static weft_err emit_warps(weft_cuda *cu, const matmul *p, weft_dim taken)
{
    weft_buf *body;
    bool right = !is_centred(cu, p->o.b_zero, dtype_of(cu, p->o.b));
    weft_cuda_kernel *k = begin_matmul(cu, p, "multiply_rows");
    body = weft_cuda__body(k);
    weft_cuda__in(k, "a", 0);
    weft_cuda__in(k, "b", p->o.b);
    weft_cuda__out(k, "y", 0);
    const char *depth = weft_cuda__number(k, p->k), *lines = weft_cuda__number(k, p->lines);
    weft_buf_printf(body,
                    "    const size_t k = %s, lines = %s, first = blockIdx.y * (size_t)%d;\n"
                    "    const size_t col = (size_t)blockIdx.x * %d + threadIdx.x / 32;\n"
                    "    if (col >= n)\n        return;\n",
                    depth, lines, WARP_ROWS, THREADS / 32);
    print_zeros(k, p, "0", "0");
    weft_buf_printf(
        body,
        "    const int left = (int)(lines - first < %d ? lines - first : %d);\n"
        "    i32 all[%d];\n"
        "    multiply_rows<%d, %s>(all, a + first * k, b + col * k, left, (int)k, za, zb);\n"
        "#pragma unroll\n"
        "    for (int r = 0; r < %d; r++) {\n"
        "    if (threadIdx.x %% 32 != r || r >= left)\n        continue;\n"
        "    const size_t line = first + r, row = line %% m, batch = line / m;\n"
        "    const size_t at = line * n + col;\n"
        "    const i32 sum = all[r];\n",
        WARP_ROWS, WARP_ROWS, WARP_ROWS, WARP_ROWS, right ? "true" : "false", WARP_ROWS);
    WEFT_TRY(print_matmul_result(k, p));
    weft_buf_puts(body, "    }\n");
    weft_dim blocks = weft_cuda__ceil_div(cu, p->n, THREADS / 32);
    weft_dim down = weft_dim_min(weft_cuda__dims(cu), weft_cuda__ceil_div(cu, p->lines, WARP_ROWS),
                                 FEW_ROWS / WARP_ROWS);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), down, 1, 0);
    return WEFT_ERR_OK;
}

/* The right factor: in place, copied, or transposed. */
static weft_err arrange_right(weft_cuda *cu, const matmul *p, product *q)
{
    bool ones = !is_centred(cu, p->o.b_zero, dtype_of(cu, p->o.b));
    if (p->trans_b) {
        if (!read_in_place(cu, q, p->o.b, p->n, ones, &q->right))
            pack(cu, q, p->o.b, p->n, ones, &q->right);
        return WEFT_ERR_OK;
    }
    const weft_cuda_conv shape = {.kernel = {1, 1, 1},
                                  .stride = {1, 1, 1},
                                  .dilation = {1, 1, 1},
                                  .in = {1, 1, p->n},
                                  .out = {1, 1, p->n},
                                  .images = 1,
                                  .columns = p->n,
                                  .group = 1,
                                  .c = p->k,
                                  .m = 1};
    WEFT_TRY(gather(cu, q, p->o.b, UINT32_MAX, &shape, &q->right));
    q->right.ones = ones;
    return WEFT_ERR_OK;
}

static weft_err emit_library(weft_cuda *cu, const matmul *p, weft_dim taken)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    product q = {.rows = p->joined ? p->lines : p->m,
                 .cols = p->n,
                 .depth = p->k,
                 .batch = p->joined ? 1 : p->batch,
                 .taken = taken};
    pack(cu, &q, 0, q.rows, !is_centred(cu, p->o.a_zero, dtype_of(cu, 0)), &q.left);
    /* Left has ones where a's zero point is not 0: they sum the columns of b. */
    WEFT_TRY(arrange_right(cu, p, &q));
    multiply(cu, &q);
    weft_cuda_kernel *k = begin_matmul(cu, p, "finish_sums");
    weft_cuda__scratch(k, "sums", WEFT_DTYPE_I32, q.sums, true);
    weft_cuda__out(k, "y", 0);
    weft_cuda__each(k, y->dim, y->rank);
    weft_buf_puts(weft_cuda__body(k),
                  "    const size_t col = at % n, row = at / n % m, batch = at / (n * m);\n");
    print_zeros(k, p, "batch", "batch");
    const char *sum =
        sum_text(k, &q, p->joined ? "0" : "batch", p->joined ? "at / n" : "row", "col", "za", "zb");
    weft_buf_printf(weft_cuda__body(k), "    const i32 sum = %s;\n", sum);
    WEFT_TRY(print_matmul_result(k, p));
    weft_dim blocks = weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), 1, 1, 0);
    return WEFT_ERR_OK;
}

static weft_err emit_matmul(weft_cuda *cu, const operands *o)
{
    matmul p;
    int64_t lo, hi;
    WEFT_TRY(read_matmul(cu, o, &p));
    weft_dim_bounds(weft_cuda__dims(cu), p.k, &lo, &hi);
    bool fits = p.regular && (p.joined || p.stacked) && lo >= 1;
    weft_dim library = fits ? weft_cuda__enough(cu, p.lines, FEW_ROWS + 1) : 0;
    weft_dim left = fits ? weft_cuda__fewer(cu, p.lines, FEW_ROWS + 1) : 1;
    if (library != 0)
        WEFT_TRY(emit_library(cu, &p, library));
    if (library == 1)
        return WEFT_ERR_OK;
    return fits && p.trans_b && p.joined ? emit_warps(cu, &p, left) : emit_dots(cu, &p, left);
}

weft_err weft_cuda_emit_matmul_integer(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_matmul(cu, &of_integer);
}

weft_err weft_cuda_emit_qlinear_matmul(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_matmul(cu, &of_qlinear);
}

/* -- Convolutions ------------------------------------------------------------------------------ */

/* One zero point and one scale of the image; of weights one, or one for each output channel. */
static weft_err check_conv(weft_cuda *cu, const operands *o, const weft_cuda_conv *s)
{
    weft_dim channels = s->group * s->m;
    if (!is_one_or(cu, o->a_zero, 1) || !is_one_or(cu, o->b_zero, channels))
        return weft_cuda__unsup(cu, "several zero points of the image; compile with --target cpu");
    if (o->is_qlinear &&
        (!is_one_or(cu, WEFT_QLINEAR_A_SCALE, 1) || !is_one_or(cu, WEFT_QLINEAR_B_SCALE, channels)))
        return weft_cuda__unsup(cu, "several scales of the image; compile with --target cpu");
    return WEFT_ERR_OK;
}

static bool is_single(weft_cuda *cu, uint32_t in)
{
    const weft_ttype *t = weft_cuda__in_type(cu, in);
    return !t || weft_cuda__numel(cu, t) == 1;
}

/* Begins a kernel with a thread for each element: pixel, channel `col`, image. */
static weft_cuda_kernel *begin_conv(weft_cuda *cu, const operands *o, const weft_cuda_conv *s,
                                    const char *stem)
{
    const weft_ttype *y = weft_cuda__out_type(cu, 0);
    weft_cuda_kernel *k = weft_cuda__kernel(cu, stem, THREADS);
    weft_cuda__include(k, "int8.cuh");
    weft_cuda__out(k, "y", 0);
    const char *pixels = weft_cuda__number(k, s->pixels);
    const char *channels = weft_cuda__number(k, s->group * s->m);
    weft_cuda__each(k, y->dim, y->rank);
    weft_buf_printf(weft_cuda__body(k),
                    "    const u32 pixel = at %% %s, col = at / %s %% %s;\n"
                    "    const size_t image = at / %s / %s;\n",
                    pixels, pixels, channels, pixels, channels);
    const char *zx = element_text(k, o->a_zero, dtype_of(cu, 0), "x_zero", "0");
    const char *zw = element_text(k, o->b_zero, dtype_of(cu, o->b), "w_zero",
                                  is_single(cu, o->b_zero) ? "0" : "col");
    weft_buf_printf(weft_cuda__body(k), "    const i32 zx = %s, zw = %s;\n", zx, zw);
    return k;
}

static weft_err finish_conv(weft_cuda_kernel *k, const operands *o)
{
    weft_cuda *cu = weft_cuda__of(k);
    WEFT_TRY(print_result(k, o, "0", is_single(cu, WEFT_QLINEAR_B_SCALE) ? "0" : "col", 1));
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda__launch(k, weft_cuda__packs(cu, all, 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}

static weft_err emit_window_sums(weft_cuda *cu, const operands *o, const weft_cuda_conv *s)
{
    weft_cuda_kernel *k = begin_conv(cu, o, s, "window_sums");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "w", o->b);
    weft_cuda__print_conv(k, s, false);
    weft_buf_puts(
        weft_cuda__body(k),
        "    const i32 sum = window_sum(x, w, s, (int)image, (int)col, (int)pixel, zx, zw);\n");
    return finish_conv(k, o);
}

static weft_err emit_windows(weft_cuda *cu, const operands *o, weft_cuda_conv *s, weft_dim depth)
{
    s->columns = weft_cuda__mul(cu, s->pixels, s->images);
    product q = {.rows = s->m, .cols = s->columns, .depth = depth, .batch = s->group, .taken = 1};
    bool ones = !is_centred(cu, o->b_zero, dtype_of(cu, o->b));
    if (!read_in_place(cu, &q, o->b, s->m, ones, &q.left))
        pack(cu, &q, o->b, s->m, ones, &q.left);
    WEFT_TRY(gather(cu, &q, 0, o->a_zero, s, &q.right));
    q.right.ones = !is_centred(cu, o->a_zero, dtype_of(cu, 0));
    multiply(cu, &q);
    weft_cuda_kernel *k = begin_conv(cu, o, s, "finish_windows");
    weft_cuda__scratch(k, "sums", WEFT_DTYPE_I32, q.sums, true);
    const char *m = weft_cuda__number(k, s->m);
    weft_arena *arena = weft_cuda__arena(cu);
    const char *sum =
        sum_text(k, &q, weft_arena_printf(arena, "(size_t)(col / %s)", m),
                 weft_arena_printf(arena, "col %% %s", m),
                 weft_arena_printf(arena, "image * %s + pixel", weft_cuda__number(k, s->pixels)),
                 "zw", "zx");
    weft_buf_printf(weft_cuda__body(k), "    const i32 sum = %s;\n", sum);
    return finish_conv(k, o);
}

static weft_err emit_conv(weft_cuda *cu, const operands *o)
{
    weft_cuda_conv s = {0};
    WEFT_TRY(weft_cuda__read_conv(cu, o->b, false, &s));
    weft_dim depth = s.c * s.kernel[0] * s.kernel[1] * s.kernel[2];
    WEFT_TRY(check_conv(cu, o, &s));
    WEFT_TRY(check_depth(cu, o, depth));
    if (depth < 1 || (s.group > 1 && (s.c < FEW_CHANNELS || s.m < FEW_CHANNELS)))
        return emit_window_sums(cu, o, &s);
    return emit_windows(cu, o, &s, depth);
}

weft_err weft_cuda_emit_conv_integer(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_conv(cu, &of_integer);
}

weft_err weft_cuda_emit_qlinear_conv(weft_cuda *cu, weft_node n)
{
    (void)n;
    return emit_conv(cu, &of_qlinear);
}
