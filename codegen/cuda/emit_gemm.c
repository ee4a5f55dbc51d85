/* Emits GEMMs.
 *
 * cuBLASLt computes every GEMM that it can express, because it knows each GPU's fastest
 * instructions; the kernel of gemm.cuh computes all others in one pass. cuBLASLt can express a GEMM
 * of f32, f16 or bf16 whose matrices have one constant batch stride, with
 *
 *     d = act(alpha a b + beta c + bias)      act: none, ReLU, GELU by tanh
 *
 * where `bias` has one element for each column and c has the result's shape: an epilogue of at most
 * one sum with an operand of that shape, followed by at most one of those functions. gemm.cuh
 * computes GEMMs with erf GELU, sigmoids, other broadcast sums, longer epilogues, batches that are
 * broadcast along inner dims only, and depths that may be 0 (the library would leave the result
 * unchanged).
 *
 * For large, deep GEMMs the library's higher speed pays for a second pass over the result: from
 * LIBRARY_BLOCKS tiles of 128 x 128 and LIBRARY_DEPTH on, the library multiplies and a kernel
 * applies the rest of the epilogue in place (finish_rows). If the choice depends on symbols, it is
 * made at run time, as in emit_tile.c. f64 and integers have a plain kernel with one thread per
 * element.
 *
 * Some of the library's algorithms support epilogues of f16 and bf16 only for rows of a multiple of
 * 16 bytes. If the row length may be another, the pass over the result is emitted as a fallback.
 *
 * A convolution whose windows are single pixels, with channels innermost, is the product of the
 * pixels with the weights.
 *
 * If the right factor is one matrix for the whole batch, the batch dims are joined with the rows.
 */
#include "codegen/cuda/cuda_conv_int.h"
#include "codegen/cuda/cuda_gemm_int.h"

#include <string.h>

enum { LIBRARY_BLOCKS = 384, LIBRARY_DEPTH = 512, LIBRARY_TILE = 128 };

/* A batched GEMM: m x k times k x n for each index of the batch. */
typedef struct problem {
    weft_dtype dtype;
    weft_dim m, n, k;
    bool trans_a, trans_b;
    uint32_t n_batch;
    weft_dim batch[WEFT_RANK_MAX]; /* sizes, outermost first */
    weft_dim step_a[WEFT_RANK_MAX],
        step_b[WEFT_RANK_MAX]; /* batch strides in elements; 0: broadcast */
    uint32_t addend;           /* operand; UINT32_MAX: none */
    float alpha, beta;
} problem;

/* -- Shapes ------------------------------------------------------------------------------------ */

/* Stride in elements of batch dim `d` (of `rank`) of operand t. Where only the sizes of a run tell
 * whether the operand's dim is 1, the stride is a product with min(max(dim, 1), 2) - 1. */
static weft_dim find_step(weft_cuda *cu, const weft_ttype *t, uint32_t d, uint32_t rank,
                          weft_dim size)
{
    weft_dimpool *dims = weft_cuda__dims(cu);
    uint32_t own = t->rank < 2 ? 0 : t->rank - 2u;
    if (d + own < rank || t->dim[d + own - rank] == 1)
        return 0;
    uint32_t at = d + own - rank;
    weft_dim stride = weft_cuda__product(cu, t, at + 1, t->rank);
    if (t->dim[at] == size)
        return stride;
    weft_dim moves = weft_dim_min(dims, weft_dim_max(dims, t->dim[at], 1), 2);
    return weft_cuda__mul(cu, stride, weft_dim_sub(dims, moves, 1));
}

/* Joins neighbouring batch dims that are contiguous in both operands. */
static void join_batch(weft_cuda *cu, problem *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_batch; i++) {
        if (p->batch[i] == 1)
            continue;
        if (n > 0 && p->step_a[n - 1] == weft_cuda__mul(cu, p->step_a[i], p->batch[i]) &&
            p->step_b[n - 1] == weft_cuda__mul(cu, p->step_b[i], p->batch[i])) {
            p->batch[n - 1] = weft_cuda__mul(cu, p->batch[n - 1], p->batch[i]);
            p->step_a[n - 1] = p->step_a[i];
            p->step_b[n - 1] = p->step_b[i];
            continue;
        }
        p->batch[n] = p->batch[i];
        p->step_a[n] = p->step_a[i];
        p->step_b[n++] = p->step_b[i];
    }
    p->n_batch = n;
}

/* Joins the batch with the rows if there is one right factor and the left factors are contiguous.
 */
static void join_rows(weft_cuda *cu, problem *p)
{
    while (p->n_batch > 0 && !p->trans_a) {
        uint32_t last = p->n_batch - 1;
        if (p->step_b[last] != 0 || p->step_a[last] != weft_cuda__mul(cu, p->m, p->k))
            return;
        p->m = weft_cuda__mul(cu, p->m, p->batch[last]);
        p->n_batch--;
    }
}

static void read_problem(weft_cuda *cu, bool trans_a, bool trans_b, problem *p)
{
    const weft_ttype *a = weft_cuda__in_type(cu, 0), *b = weft_cuda__in_type(cu, 1);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    p->dtype = (weft_dtype)o->dtype;
    p->trans_a = trans_a && a->rank > 1;
    p->trans_b = trans_b || b->rank == 1; /* a vector is the only row of its transpose */
    p->m = a->rank < 2 ? 1 : a->dim[a->rank - (trans_a ? 1 : 2)];
    p->k = a->dim[a->rank - (p->trans_a ? 2 : 1)];
    p->n = b->rank < 2 ? 1 : b->dim[b->rank - (trans_b ? 2 : 1)];
    p->n_batch = o->rank - (a->rank > 1) - (b->rank > 1);
    for (uint32_t d = 0; d < p->n_batch; d++) {
        p->batch[d] = o->dim[d];
        p->step_a[d] = find_step(cu, a, d, p->n_batch, o->dim[d]);
        p->step_b[d] = find_step(cu, b, d, p->n_batch, o->dim[d]);
    }
    join_batch(cu, p);
    join_rows(cu, p);
}

/* -- The library ------------------------------------------------------------------------------- */

static bool same_shape(const weft_ttype *a, const weft_ttype *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

/* Whether an operand has one element for each column. */
static bool is_row(const weft_ttype *t, weft_dim n)
{
    for (uint32_t i = 0; i + 1 < t->rank; i++)
        if (t->dim[i] != 1)
            return false;
    return t->rank > 0 && t->dim[t->rank - 1] == n;
}

static bool is_last(const weft_step *s, uint32_t i, uint32_t arg)
{
    return s->arg[arg].kind == WEFT_ARG_ACC ||
           (i > 0 && s->arg[arg].kind == WEFT_ARG_STEP && s->arg[arg].idx == i - 1);
}

/* The operand of the result's shape that the step adds; UINT32_MAX: none. */
static uint32_t residual_of(weft_cuda *cu, const weft_step *s)
{
    for (uint32_t i = 0; i < 2 && s->op == WEFT_STEP_ADD; i++)
        if (is_last(s, 0, i) && s->arg[1 - i].kind == WEFT_ARG_INPUT) {
            uint32_t x = s->arg[1 - i].idx;
            if (same_shape(weft_cuda__in_type(cu, x), weft_cuda__out_type(cu, 0)))
                return x;
        }
    return UINT32_MAX;
}

weft_err weft_cuda__read_tail(weft_cuda *cu, bool adds, weft_cuda_tail *out)
{
    const weft_attr *a = weft_attrs_find(weft_cuda__attrs(cu), WEFT_ATTR_EPILOGUE);
    weft_step step[WEFT_STEPS_MAX];
    *out = (weft_cuda_tail){.residual = UINT32_MAX, .is_all = true};
    if (!a)
        return WEFT_ERR_OK;
    weft_node n = weft_cuda__node(cu);
    weft_module *m = weft_cuda__module(cu);
    WEFT_TRY(weft_steps_parse(a->u.strs, a->n, weft_node_in_count(m, n), weft_cuda__diag(cu),
                              weft_node_where(m, n), step));
    uint32_t i = 0;
    if (adds && a->n > 0)
        out->residual = residual_of(cu, &step[0]);
    i += out->residual != UINT32_MAX;
    if (i < a->n && step[i].n_args == 1 && is_last(&step[i], i, 0)) {
        if (step[i].op == WEFT_STEP_RELU)
            out->act = WEFT_GEMM_ACT_RELU;
        else if (step[i].op == WEFT_STEP_GELU_TANH)
            out->act = WEFT_GEMM_ACT_GELU_TANH;
        i += out->act != WEFT_GEMM_ACT_NONE;
    }
    out->is_all = i == a->n;
    return WEFT_ERR_OK;
}

/* Expresses the epilogue by c, beta and act of g; *out_fits is false if they cannot express it. */
static weft_err read_epilogue(weft_cuda *cu, weft_bundle_gemm *g, bool *out_fits)
{
    weft_cuda_tail tail;
    WEFT_TRY(weft_cuda__read_tail(cu, g->c.kind == WEFT_COMMAND_ARG_NONE, &tail));
    if (tail.residual != UINT32_MAX) {
        g->c = weft_cuda__at_in(tail.residual, 0);
        g->beta = 1;
    }
    g->act = tail.act;
    *out_fits = tail.is_all;
    return WEFT_ERR_OK;
}

/* Fills g for the library's GEMM without addend and epilogue; false if the library cannot do it. */
static bool fit_gemm(weft_cuda *cu, const problem *p, weft_bundle_gemm *g)
{
    int64_t k_lo, hi;
    weft_dim_bounds(weft_cuda__dims(cu), p->k, &k_lo, &hi);
    if ((p->dtype != WEFT_DTYPE_F32 && p->dtype != WEFT_DTYPE_F16 && p->dtype != WEFT_DTYPE_BF16) ||
        p->n_batch > 1 || k_lo < 1)
        return false;
    *g = (weft_bundle_gemm){.dtype = p->dtype,
                            .trans_a = p->trans_a,
                            .trans_b = p->trans_b,
                            .m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .batch = p->n_batch ? p->batch[0] : 1,
                            .a = weft_cuda__at_in(0, 0),
                            .b = weft_cuda__at_in(1, 0),
                            .d = weft_cuda__at_out(0, 0),
                            .lda = p->trans_a ? p->m : p->k,
                            .ldb = p->trans_b ? p->k : p->n,
                            .ldc = p->n,
                            .ldd = p->n,
                            .stride_a = p->n_batch ? p->step_a[0] : 0,
                            .stride_b = p->n_batch ? p->step_b[0] : 0,
                            .stride_c = p->n_batch ? weft_cuda__mul(cu, p->m, p->n) : 0,
                            .alpha = p->alpha};
    g->stride_d = g->stride_c;
    return true;
}

/* Makes the addend the bias or c of the GEMM; false if it can be neither. */
static bool fit_addend(weft_cuda *cu, const problem *p, weft_bundle_gemm *g)
{
    if (p->addend == UINT32_MAX)
        return true;
    const weft_ttype *t = weft_cuda__in_type(cu, p->addend);
    if (same_shape(t, weft_cuda__out_type(cu, 0))) {
        g->c = weft_cuda__at_in(p->addend, 0);
        g->beta = p->beta;
    } else if (is_row(t, p->n) && p->beta == 1) {
        g->bias = weft_cuda__at_in(p->addend, 0);
    } else {
        return false;
    }
    return true;
}

/* Whether the library can compute everything; *g is then complete. */
static weft_err fit_library(weft_cuda *cu, const problem *p, weft_bundle_gemm *g, bool *out_fits)
{
    *out_fits = fit_gemm(cu, p, g) && fit_addend(cu, p, g);
    return *out_fits ? read_epilogue(cu, g, out_fits) : WEFT_ERR_OK;
}

/* Emits a pass over the result of GEMM g that applies the addend (UINT32_MAX: already in the GEMM)
 * and the epilogue, if `taken` is 1. */
static weft_err emit_pass(weft_cuda *cu, const problem *p, const weft_bundle_gemm *g,
                          uint32_t addend, weft_dim taken)
{
    enum { THREADS = 256, EACH = 4 };
    const char *post;
    weft_dim all = weft_cuda__numel(cu, weft_cuda__out_type(cu, 0));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "finish_rows", THREADS);
    weft_cuda__include(k, "gemm.cuh");
    weft_cuda__out(k, "y", 0);
    const char *m = weft_cuda__own_number(k, p->m), *n = weft_cuda__own_number(k, p->n);
    const char *batch = weft_cuda__own_number(k, g->batch);
    WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, -1, 1, p->beta, addend, &post));
    weft_buf_printf(weft_cuda__body(k), "    finish_rows(y, (size_t)%s * %s * %s, %s, %s);\n", m, n,
                    batch, n, post);
    weft_dim blocks = weft_cuda__ceil_div(cu, all, THREADS * EACH);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, taken), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* Emits the library's GEMM and a pass over its result, if `taken` is 1. */
static weft_err emit_two_passes(weft_cuda *cu, const problem *p, weft_dim taken)
{
    weft_bundle_gemm g;
    if (!fit_gemm(cu, p, &g))
        return weft_cuda__unsup(cu, "the library has no such GEMM");
    bool added = fit_addend(cu, p, &g);
    g.m = weft_cuda__mul(cu, g.m, taken); /* 0 rows: skipped */
    weft_cuda__gemm(cu, &g);
    return emit_pass(cu, p, &g, added ? UINT32_MAX : p->addend, taken);
}

static bool has_words(weft_dim row)
{
    return weft_dim_is_const(row) && row % 8 == 0;
}

/* Emits one GEMM of the library that computes everything. */
static weft_err emit_library(weft_cuda *cu, const problem *p, const weft_bundle_gemm *g)
{
    weft_cuda__gemm(cu, g);
    if (p->dtype == WEFT_DTYPE_F32 ||
        (g->act == WEFT_GEMM_ACT_NONE && g->bias.kind == WEFT_COMMAND_ARG_NONE) ||
        (has_words(g->lda) && has_words(g->ldb) && has_words(g->ldd)))
        return WEFT_ERR_OK;
    WEFT_TRY(emit_pass(cu, p, g, p->addend, 1));
    weft_cuda__finishes(cu);
    return WEFT_ERR_OK;
}

/* Number of blocks from which two passes are faster than one kernel; 0: never. */
static weft_dim library_blocks(weft_cuda *cu, const problem *p)
{
    weft_bundle_gemm g;
    if (!weft_dim_is_const(p->k) || p->k < LIBRARY_DEPTH || !fit_gemm(cu, p, &g))
        return 0;
    weft_dim down = weft_cuda__ceil_div(cu, p->m, LIBRARY_TILE);
    weft_dim across = weft_cuda__ceil_div(cu, p->n, LIBRARY_TILE);
    return weft_cuda__mul(cu, weft_cuda__mul(cu, down, across), g.batch);
}

/* -- Our own ----------------------------------------------------------------------------------- */

/* An expression for the offset of the operand's matrix: the sum of index * stride over batch dims.
 */
static const char *offset_text(weft_cuda_kernel *k, const problem *p, const weft_dim *step,
                               const char *batch)
{
    weft_cuda *cu = weft_cuda__of(k);
    weft_arena *arena = weft_cuda__arena(cu);
    const char *text = "0", *below = NULL;
    for (uint32_t i = p->n_batch; i-- > 0;) {
        const char *size = weft_cuda__number(k, p->batch[i]);
        if (step[i] != 0) {
            const char *index = below ? weft_arena_printf(arena, "%s / (%s)", batch, below) : batch;
            if (i > 0)
                index = weft_arena_printf(arena, "%s %% %s", index, size);
            text = weft_arena_printf(arena, "%s + %s * (size_t)%s", text, index,
                                     weft_cuda__number(k, step[i]));
        }
        below = below ? weft_arena_printf(arena, "%s * %s", below, size)
                      : weft_arena_printf(arena, "(size_t)%s", size);
    }
    return text;
}

static weft_err emit_tiled(weft_cuda *cu, const problem *p, const weft_cuda_variant *v)
{
    const weft_cuda_tile *t = v->tile;
    weft_arena *arena = weft_cuda__arena(cu);
    const char *type = weft_dtype_name(p->dtype), *post = "no_post{}";
    weft_cuda_tiled tiled =
        weft_cuda__begin_tiled(cu, v, t, weft_arena_printf(arena, "gemm_%s", type));
    weft_cuda_kernel *k = tiled.kernel;
    weft_cuda__include(k, "gemm.cuh");
    weft_cuda__in(k, "a", 0);
    weft_cuda__in(k, "b", 1);
    weft_cuda__add_result(&tiled);
    const char *m = weft_cuda__own_number(k, p->m), *n = weft_cuda__own_number(k, p->n);
    const char *depth = weft_cuda__own_number(k, p->k);
    if (v->parts <= 1)
        WEFT_TRY(weft_cuda__sum_epilogue(k, WEFT_ATTR_EPILOGUE, -1, p->alpha, p->beta, p->addend,
                                         &post));
    const char *at_a = offset_text(k, p, p->step_a, "place.batch");
    const char *at_b = offset_text(k, p, p->step_b, "place.batch");
    weft_buf_printf(weft_cuda__body(k),
                    "    const gemm_place place(%s, %s, %u, %u);\n"
                    "    gemm<%s, %s, %s, %s>(a + (%s), %s, b + (%s), %s, y,\n"
                    "        %s + place.batch * (size_t)%s * %s, place, %s, %s, %s, %s, %s);\n",
                    m, n, t->bm, t->bn, type, weft_cuda__tile_text(cu, t),
                    p->trans_a ? "true" : "false", p->trans_b ? "true" : "false", at_a,
                    p->trans_a ? m : depth, at_b, p->trans_b ? depth : n, tiled.first, m, n, m, n,
                    depth, weft_cuda__part_text(&tiled), post);
    return weft_cuda__end_tiled(&tiled, -1, false, p->alpha, p->beta, p->addend);
}

/* Emits the plain kernel for f64 and integers. */
static weft_err emit_plain(weft_cuda *cu, const problem *p)
{
    enum { THREADS = 128 };
    if (p->addend != UINT32_MAX || p->alpha != 1 ||
        weft_attrs_find(weft_cuda__attrs(cu), WEFT_ATTR_EPILOGUE))
        return weft_cuda__unsup(cu, "a GEMM of %s with an addend or an epilogue",
                                weft_dtype_name(p->dtype));
    weft_cuda_kernel *k = weft_cuda__kernel(cu, "gemm_plain", THREADS);
    weft_cuda__include(k, "gemm.cuh");
    weft_cuda__in(k, "a", 0);
    weft_cuda__in(k, "b", 1);
    weft_cuda__out(k, "y", 0);
    const char *m = weft_cuda__int(k, p->m), *n = weft_cuda__int(k, p->n);
    const char *depth = weft_cuda__int(k, p->k);
    const char *at_a = offset_text(k, p, p->step_a, "batch");
    const char *at_b = offset_text(k, p, p->step_b, "batch");
    weft_dim size = weft_cuda__mul(cu, p->m, p->n), batch = 1;
    for (uint32_t i = 0; i < p->n_batch; i++)
        batch = weft_cuda__mul(cu, batch, p->batch[i]);
    weft_dim blocks = weft_cuda__ceil_div(cu, size, THREADS);
    const char *type = weft_dtype_name(p->dtype), *each = weft_cuda__int(k, blocks);
    weft_buf_printf(weft_cuda__body(k),
                    "    const size_t batch = blockIdx.x / (u32)%s;\n"
                    "    const size_t index = blockIdx.x %% (u32)%s * (size_t)%d + threadIdx.x;\n"
                    "    gemm_plain<%s>(a + (%s), %s, %s, b + (%s), %s, %s, y, "
                    "batch * (size_t)%s * %s, index, %s, %s, %s);\n",
                    each, each, THREADS, type, at_a, p->trans_a ? "1" : depth, p->trans_a ? m : "1",
                    at_b, p->trans_b ? "1" : n, p->trans_b ? depth : "1", m, n, m, n, depth);
    weft_cuda__launch(k, weft_cuda__mul(cu, blocks, batch), 1, 1, 0);
    return WEFT_ERR_OK;
}

/* Emits the kernel of gemm.cuh for f32, f16 and bf16. */
static weft_err emit_own(weft_cuda *cu, const problem *p)
{
    weft_dim batch = 1, blocks = library_blocks(cu, p);
    weft_dim library = weft_cuda__enough(cu, blocks, LIBRARY_BLOCKS);
    for (uint32_t i = 0; i < p->n_batch; i++)
        batch = weft_cuda__mul(cu, batch, p->batch[i]);
    if (library != 0)
        WEFT_TRY(emit_two_passes(cu, p, library));
    if (library == 1)
        return WEFT_ERR_OK;
    weft_cuda_variant v[WEFT_CUDA_VARIANTS_MAX];
    weft_dim left = weft_cuda__fewer(cu, blocks, LIBRARY_BLOCKS);
    const weft_cuda_extent e = {p->dtype, &p->m, 1, p->n, batch, p->k};
    uint32_t count = weft_cuda__tiles(cu, &e, left, v);
    for (uint32_t i = 0; i < count; i++)
        WEFT_TRY(emit_tiled(cu, p, &v[i]));
    return WEFT_ERR_OK;
}

static weft_err emit_gemm(weft_cuda *cu, problem *p)
{
    weft_bundle_gemm g;
    bool fits;
    WEFT_TRY(fit_library(cu, p, &g, &fits));
    if (fits)
        return emit_library(cu, p, &g);
    switch (p->dtype) {
    case WEFT_DTYPE_F32:
    case WEFT_DTYPE_F16:
    case WEFT_DTYPE_BF16:
        break;
    case WEFT_DTYPE_F64:
    case WEFT_DTYPE_I32:
    case WEFT_DTYPE_I64:
    case WEFT_DTYPE_U32:
    case WEFT_DTYPE_U64:
        return emit_plain(cu, p);
    default:
        return weft_cuda__unsup(cu, "a GEMM of %s", weft_dtype_name(p->dtype));
    }
    return emit_own(cu, p);
}

weft_err weft_cuda__emit_pixels(weft_cuda *cu, const weft_cuda_conv *p)
{
    problem product = {.dtype = p->dtype,
                       .m = weft_cuda__mul(cu, p->images, p->pixels),
                       .n = p->m,
                       .k = p->c,
                       .trans_b = true,
                       .addend = weft_cuda__has_bias(cu) ? 2 : UINT32_MAX,
                       .alpha = 1,
                       .beta = 1};
    return emit_gemm(cu, &product);
}

weft_err weft_cuda_emit_matmul(weft_cuda *cu, weft_node n)
{
    weft_attrs attrs = weft_cuda__attrs(cu);
    problem p = {.alpha = (float)weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1), .beta = 1};
    p.addend = weft_node_in(weft_cuda__module(cu), n, 2).i ? 2 : UINT32_MAX;
    read_problem(cu, weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) != 0,
                 weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) != 0, &p);
    return emit_gemm(cu, &p);
}

weft_err weft_cuda_emit_gemm(weft_cuda *cu, weft_node n)
{
    weft_attrs attrs = weft_cuda__attrs(cu);
    problem p = {.alpha = (float)weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1),
                 .beta = (float)weft_attrs_float(attrs, WEFT_ATTR_BETA, 1)};
    p.addend = weft_node_in(weft_cuda__module(cu), n, 2).i ? 2 : UINT32_MAX;
    read_problem(cu, weft_attrs_int(attrs, WEFT_ATTR_TRANSA, 0) != 0,
                 weft_attrs_int(attrs, WEFT_ATTR_TRANSB, 0) != 0, &p);
    return emit_gemm(cu, &p);
}
