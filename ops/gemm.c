/* GEMMs: matmul with fused bias and epilogue, gemm, and their integer variants.
 *
 * All are one loop nest over strided matrices, instantiated for float, double and 64-bit integers;
 * 16-bit floats compute in f32. */
#include "ops/gemm_int.h"
#include "ops/op_int.h"
#include "ops/quant_int.h"

#include <math.h>
#include <string.h>

/* -- Inference ------------------------------------------------------------------------------ */

weft_err weft_gemm__infer(weft_infer_ctx *cx, uint32_t ia, uint32_t ib, bool trans_a, bool trans_b,
                          weft_ttype *out)
{
    const weft_ttype *a = &cx->in[ia].type, *b = &cx->in[ib].type;
    WEFT_TRY(weft_infer__rank(cx, ia, 1, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, ib, 1, WEFT_RANK_MAX));
    bool vec_a = a->rank == 1, vec_b = b->rank == 1;
    if ((vec_a && trans_a) || (vec_b && trans_b))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "cannot transpose a vector");
    weft_dim ka = a->dim[a->rank - (trans_a ? 2 : 1)];
    weft_dim kb = vec_b ? b->dim[0] : b->dim[b->rank - (trans_b ? 1 : 2)];
    WEFT_TRY(weft_infer__agree(cx, ka, kb, "inner dimensions"));

    weft_ttype batch_a = *a, batch_b = *b, batch = {0};
    batch_a.rank = (uint8_t)(vec_a ? 0 : a->rank - 2);
    batch_b.rank = (uint8_t)(vec_b ? 0 : b->rank - 2);
    WEFT_TRY(weft_infer__broadcast(cx, &batch_a, &batch_b, &batch));
    memset(out->dim, 0, sizeof out->dim);
    memcpy(out->dim, batch.dim, batch.rank * sizeof *out->dim);
    out->rank = batch.rank;
    if (!vec_a)
        out->dim[out->rank++] = a->dim[a->rank - (trans_a ? 1 : 2)];
    if (!vec_b)
        out->dim[out->rank++] = b->dim[b->rank - (trans_b ? 2 : 1)];
    return WEFT_ERR_OK;
}

weft_err weft_gemm__check_addend(weft_infer_ctx *cx, uint32_t in, const weft_ttype *out)
{
    weft_ttype wide = *out;
    const weft_ttype *t = &cx->in[in].type;
    WEFT_TRY(weft_infer__broadcast(cx, out, t, &wide));
    if (wide.rank != out->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has rank %u, the result %u", in, t->rank,
                         out->rank);
    for (uint32_t i = 0; i < out->rank; i++)
        WEFT_TRY(weft_infer__agree(cx, wide.dim[i], out->dim[i], "bias and result"));
    return WEFT_ERR_OK;
}

weft_err weft_infer_matmul(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    WEFT_TRY(weft_gemm__infer(cx, 0, 1, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_A, 0) != 0,
                              weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0, out));
    if (weft_infer__has(cx, 2)) {
        WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
        WEFT_TRY(weft_gemm__check_addend(cx, 2, out));
    }
    if (cx->n_in > 3 && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

weft_err weft_infer_gemm(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_gemm__infer(cx, 0, 1, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSA, 0) != 0,
                              weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSB, 0) != 0, out));
    if (!weft_infer__has(cx, 2))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
    return weft_gemm__check_addend(cx, 2, out);
}

weft_err weft_infer_matmul_integer(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_I32, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_BYTE));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_BYTE));
    return weft_gemm__infer(cx, 0, 1, false, false, out);
}

weft_err weft_infer_qlinear_matmul(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_NONE, 0);
    bool trans_b = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    WEFT_TRY(weft_gemm__infer(cx, 0, 3, false, trans_b, out));
    if (out->rank == 0)
        return weft_qlinear__infer(cx, 1, out);
    return weft_qlinear__infer(cx, out->dim[out->rank - 1], out);
}

/* -- Work ----------------------------------------------------------------------------------- */

weft_work weft_work_matmul(const weft_work_ctx *cx)
{
    const weft_work_operand *a = &cx->in[0];
    bool trans = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_A, 0) != 0 ||
                 weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSA, 0) != 0;
    double k = 1;
    if (a->rank > 0)
        k = (double)(trans && a->rank > 1 ? a->dim[a->rank - 2] : a->dim[a->rank - 1]);
    double extra = weft_steps__flops(cx->attrs, WEFT_ATTR_EPILOGUE);
    if (cx->n_in > 2 && cx->in[2].present)
        extra += 1;
    return weft_work__bytes(cx, (2 * k + extra) * weft_work__numel(&cx->out[0]));
}

weft_work weft_work_qlinear_matmul(const weft_work_ctx *cx)
{
    const weft_work_operand *a = &cx->in[0];
    double k = a->rank > 0 ? (double)a->dim[a->rank - 1] : 1;
    double extra = 2 + weft_steps__flops(cx->attrs, WEFT_ATTR_EPILOGUE);
    return weft_work__bytes(cx, (2 * k + extra) * weft_work__numel(&cx->out[0]));
}

/* -- The loop nest -------------------------------------------------------------------------- */

/* A batch of GEMMs: strides in elements, 0 where broadcast. */
typedef struct gemm_batch {
    int64_t m, n, k;
    int64_t a_m, a_k, b_k, b_n;
    int32_t rank; /* of the batch */
    int64_t dim[WEFT_RANK_MAX], a_stack[WEFT_RANK_MAX], b_stack[WEFT_RANK_MAX];
} gemm_batch;

/* c[m, n] = a b, row by row: the inner loop runs along a row of b, which is contiguous; four rows
 * of a share one pass over b. Rows of c are ldc apart. */
#define DEFINE_GEMM(name, T)                                                                      \
    void weft_gemm__##name(int64_t m, int64_t n, int64_t k, const T *a, int64_t a_m, int64_t a_k, \
                           const T *b, T *c, int64_t ldc)                                         \
    {                                                                                             \
        int64_t i = 0;                                                                            \
        for (int64_t r = 0; r < m; r++)                                                           \
            memset(c + r * ldc, 0, (size_t)n * sizeof *c);                                        \
        for (; i + 4 <= m; i += 4) {                                                              \
            T *c0 = c + i * ldc, *c1 = c0 + ldc, *c2 = c1 + ldc, *c3 = c2 + ldc;                  \
            for (int64_t kk = 0; kk < k; kk++) {                                                  \
                const T *row = b + kk * n, *col = a + i * a_m + kk * a_k;                         \
                const T x0 = col[0], x1 = col[a_m], x2 = col[2 * a_m], x3 = col[3 * a_m];         \
                for (int64_t j = 0; j < n; j++) {                                                 \
                    const T y = row[j];                                                           \
                    c0[j] += x0 * y;                                                              \
                    c1[j] += x1 * y;                                                              \
                    c2[j] += x2 * y;                                                              \
                    c3[j] += x3 * y;                                                              \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        for (; i < m; i++) {                                                                      \
            T *ci = c + i * ldc;                                                                  \
            for (int64_t kk = 0; kk < k; kk++) {                                                  \
                const T *row = b + kk * n;                                                        \
                const T x = a[i * a_m + kk * a_k];                                                \
                for (int64_t j = 0; j < n; j++)                                                   \
                    ci[j] += x * row[j];                                                          \
            }                                                                                     \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    /* All GEMMs of a batch; b is packed if its rows are not contiguous. */                       \
    static void stack_##name(weft_arena *scratch, const gemm_batch *p, const T *a, const T *b,    \
                             T *c)                                                                \
    {                                                                                             \
        if (p->m == 0 || p->n == 0)                                                               \
            return;                                                                               \
        bool packed = p->b_n == 1 && p->b_k == p->n;                                              \
        T *pack =                                                                                 \
            packed ? NULL : weft_arena_array(scratch, (size_t)(p->k * p->n) + 1, sizeof *pack);   \
        const T *last = NULL;                                                                     \
        int64_t idx[WEFT_RANK_MAX] = {0};                                                         \
        for (int32_t d = 0; d < p->rank; d++)                                                     \
            if (p->dim[d] == 0)                                                                   \
                return;                                                                           \
        do {                                                                                      \
            const T *ai = a, *bi = b;                                                             \
            for (int32_t d = 0; d < p->rank; d++) {                                               \
                ai += idx[d] * p->a_stack[d];                                                     \
                bi += idx[d] * p->b_stack[d];                                                     \
            }                                                                                     \
            for (int64_t k = 0; !packed && bi != last && k < p->k; k++)                           \
                for (int64_t j = 0; j < p->n; j++)                                                \
                    pack[k * p->n + j] = bi[k * p->b_k + j * p->b_n];                             \
            last = bi;                                                                            \
            weft_gemm__##name(p->m, p->n, p->k, ai, p->a_m, p->a_k, packed ? bi : pack, c, p->n); \
            c += p->m * p->n;                                                                     \
        } while (weft_index__next(idx, p->dim, p->rank));                                         \
    }

DEFINE_GEMM(f32, float)
DEFINE_GEMM(f64, double)
/* Unsigned: overflow wraps around, as the operators specify. */
DEFINE_GEMM(u64, uint64_t)

/* Fills *p for a @ b; false when the shapes do not fit `out`. */
static bool plan_gemms(gemm_batch *p, const weft_tensor *a, const weft_tensor *b,
                       const weft_tensor *out, bool trans_a, bool trans_b)
{
    memset(p, 0, sizeof *p);
    int64_t sa[WEFT_RANK_MAX], sb[WEFT_RANK_MAX];
    weft_dims__strides(a->dim, a->rank, sa);
    weft_dims__strides(b->dim, b->rank, sb);
    int32_t ra = a->rank, rb = b->rank;
    if (ra < 1 || rb < 1)
        return false;
    p->m = p->n = 1;
    int32_t am = trans_a ? ra - 1 : ra - 2, ak = trans_a ? ra - 2 : ra - 1;
    int32_t bk = trans_b ? rb - 1 : rb - 2, bn = trans_b ? rb - 2 : rb - 1;
    if (ra == 1)
        ak = 0;
    if (rb == 1)
        bk = 0;
    p->k = a->dim[ak];
    p->a_k = sa[ak];
    p->b_k = sb[bk];
    if (b->dim[bk] != p->k)
        return false;
    if (ra > 1) {
        p->m = a->dim[am];
        p->a_m = sa[am];
    }
    if (rb > 1) {
        p->n = b->dim[bn];
        p->b_n = sb[bn];
    } else {
        p->b_n = 1;
    }
    p->rank = out->rank - (ra > 1) - (rb > 1);
    if (p->rank < 0 || p->rank < ra - 2 || p->rank < rb - 2)
        return false;
    for (int32_t d = 0; d < p->rank; d++) {
        int32_t da = d + ra - 2 - p->rank, db = d + rb - 2 - p->rank;
        p->dim[d] = out->dim[d];
        if (ra > 2 && da >= 0 && a->dim[da] != 1) {
            p->a_stack[d] = sa[da];
            if (a->dim[da] != p->dim[d])
                return false;
        }
        if (rb > 2 && db >= 0 && b->dim[db] != 1) {
            p->b_stack[d] = sb[db];
            if (b->dim[db] != p->dim[d])
                return false;
        }
    }
    return weft_dims__product(p->dim, 0, p->rank) * p->m * p->n == weft_tensor_numel(out);
}

/* -- Floats --------------------------------------------------------------------------------- */

/* acc = acc * alpha + beta * addend */
typedef struct scaled_sum {
    double alpha, beta;
    bool has_addend;
} scaled_sum;

#define DEFINE_SUM(name, T)                                                    \
    static void name(const void *state, const T *const *in, T *out, int64_t n) \
    {                                                                          \
        const scaled_sum *s = state;                                           \
        const T alpha = (T)s->alpha, beta = (T)s->beta;                        \
        for (int64_t i = 0; i < n; i++)                                        \
            out[i] = in[0][i] * alpha + (s->has_addend ? in[1][i] * beta : 0); \
    }
DEFINE_SUM(sum_f32, float)
DEFINE_SUM(sum_f64, double)

static uint64_t whole_factor(double x)
{
    return fabs(x) < 0x1p62 ? (uint64_t)(int64_t)x : 0;
}

/* Overflow wraps around, as in the GEMM. */
static void sum_i64(const void *state, const int64_t *const *in, int64_t *out, int64_t n)
{
    const scaled_sum *s = state;
    const uint64_t alpha = whole_factor(s->alpha), beta = whole_factor(s->beta);
    for (int64_t i = 0; i < n; i++)
        out[i] =
            (int64_t)((uint64_t)in[0][i] * alpha + (s->has_addend ? (uint64_t)in[1][i] * beta : 0));
}

/* out = alpha * a @ b + beta * addend, then the epilogue. */
static weft_err eval_gemm(weft_eval_ctx *cx, bool trans_a, bool trans_b, scaled_sum sum,
                          const weft_tensor *addend)
{
    const weft_tensor *out = &cx->out[0];
    gemm_batch p;
    if (!plan_gemms(&p, cx->in[0], cx->in[1], out, trans_a, trans_b))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes do not fit");
    weft_arith arith = weft_eval__arith(out->dtype);
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F64, WEFT_DTYPE_I64,
                                       WEFT_DTYPE_I64};
    weft_tensor acc = *out;
    acc.dtype = types[arith];
    if (acc.dtype != out->dtype)
        acc.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(out) + 1, 8);
    sum.has_addend = addend != NULL;
    const weft_tensor *in[2] = {&acc, addend};
    int32_t n = addend != NULL ? 2 : 1;
    bool more = weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL;
    bool plain = sum.alpha == 1 && addend == NULL;
    const weft_tensor *to = more ? &acc : out;
    switch (arith) {
    case WEFT_ARITH_F32:
        stack_f32(cx->scratch, &p, weft_eval__f32(cx, cx->in[0]), weft_eval__f32(cx, cx->in[1]),
                  acc.data);
        if (!plain || to != &acc)
            WEFT_TRY(weft_eval__map_f32(cx, to, in, n, sum_f32, &sum));
        break;
    case WEFT_ARITH_F64:
        stack_f64(cx->scratch, &p, weft_eval__f64(cx, cx->in[0]), weft_eval__f64(cx, cx->in[1]),
                  acc.data);
        if (!plain)
            WEFT_TRY(weft_eval__map_f64(cx, to, in, n, sum_f64, &sum));
        break;
    default:
        stack_u64(cx->scratch, &p, (const uint64_t *)weft_eval__i64(cx, cx->in[0]),
                  (const uint64_t *)weft_eval__i64(cx, cx->in[1]), acc.data);
        return weft_eval__map_i64(cx, out, in, n, sum_i64, &sum);
    }
    return more ? weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &acc, out) : WEFT_ERR_OK;
}

weft_err weft_gemm__eval_f32(weft_eval_ctx *cx, bool trans_b, const weft_tensor *out)
{
    const weft_tensor *in[2] = {out, weft_eval__in(cx, 2)};
    scaled_sum sum = {.alpha = 1, .beta = 1, .has_addend = true};
    gemm_batch p;
    if (!plan_gemms(&p, cx->in[0], cx->in[1], out, false, trans_b))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes do not fit");
    stack_f32(cx->scratch, &p, weft_eval__f32(cx, cx->in[0]), weft_eval__f32(cx, cx->in[1]),
              out->data);
    return in[1] == NULL ? WEFT_ERR_OK : weft_eval__map_f32(cx, out, in, 2, sum_f32, &sum);
}

weft_err weft_eval_matmul(weft_eval_ctx *cx)
{
    scaled_sum sum = {.alpha = weft_attrs_float(cx->attrs, WEFT_ATTR_ALPHA, 1), .beta = 1};
    return eval_gemm(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_A, 0) != 0,
                     weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0, sum,
                     weft_eval__in(cx, 2));
}

weft_err weft_eval_gemm(weft_eval_ctx *cx)
{
    scaled_sum sum = {.alpha = weft_attrs_float(cx->attrs, WEFT_ATTR_ALPHA, 1),
                      .beta = weft_attrs_float(cx->attrs, WEFT_ATTR_BETA, 1)};
    return eval_gemm(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSA, 0) != 0,
                     weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSB, 0) != 0, sum,
                     weft_eval__in(cx, 2));
}

/* -- Integers with zero points -------------------------------------------------------------- */

/* The elements of t minus their zero points, one per row in memory, or one per column. */
static const uint64_t *center(weft_eval_ctx *cx, const weft_tensor *t, const weft_tensor *zero,
                              bool by_column)
{
    int64_t n = weft_tensor_numel(t), r = t->rank;
    int64_t *x = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *x);
    weft_eval__load_i64(t, 0, 1, n, x);
    int64_t n_zero = zero != NULL ? weft_tensor_numel(zero) : 0;
    if (n_zero > 0) {
        const int64_t *z = weft_eval__i64(cx, zero);
        int64_t cols = t->dim[r - 1], rows = r > 1 ? t->dim[r - 2] : 1;
        for (int64_t i = 0; i < n; i++) {
            int64_t col = i % cols, row = i / cols % rows, stack = i / (cols * rows);
            x[i] -= z[by_column ? weft_qlinear__pick(n_zero, cols, stack, col)
                                : weft_qlinear__pick(n_zero, rows, stack, row)];
        }
    }
    return (const uint64_t *)x;
}

static weft_err eval_centered(weft_eval_ctx *cx, uint32_t b, uint32_t a_zero, uint32_t b_zero,
                              bool trans_b, gemm_batch *p, int64_t **out)
{
    if (!plan_gemms(p, cx->in[0], cx->in[b], &cx->out[0], false, trans_b))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes do not fit");
    size_t n = (size_t)weft_tensor_numel(&cx->out[0]);
    *out = weft_arena_array(cx->scratch, n + 1, sizeof **out);
    stack_u64(cx->scratch, p, center(cx, cx->in[0], weft_eval__in(cx, a_zero), false),
              center(cx, cx->in[b], weft_eval__in(cx, b_zero), !trans_b), (uint64_t *)*out);
    return WEFT_ERR_OK;
}

weft_err weft_eval_matmul_integer(weft_eval_ctx *cx)
{
    gemm_batch p;
    int64_t *acc;
    WEFT_TRY(eval_centered(cx, 1, 2, 3, false, &p, &acc));
    weft_eval__store_i64(&cx->out[0], 0, 1, weft_tensor_numel(&cx->out[0]), acc);
    return WEFT_ERR_OK;
}

weft_err weft_eval_qlinear_matmul(weft_eval_ctx *cx)
{
    gemm_batch p;
    int64_t *acc;
    bool trans_b = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    WEFT_TRY(eval_centered(cx, 3, 2, 5, trans_b, &p, &acc));
    return weft_qlinear__finish(cx, acc, (weft_qlinear){.rows = p.m, .cols = p.n, .inner = 1});
}
