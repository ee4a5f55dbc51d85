/* low_rank_matmul: rows of several models by one weight, and each model's own thin product on top.
 *
 *     %y = low_rank_matmul %x, $w, $bias, $u0, $v0, -, -, $u2, $v2, %r
 *              {starts = [0, ?b, ?b + ?c], trans_b = 1, epilogue = ["add acc i9", "gelu acc"]}
 *
 *     y[rows of segment i] = epilogue(x w + bias + (x[rows of segment i] u_i) v_i)
 *
 * x [rows, k]; w [k, n], or [n, k] with trans_b; u_i [k, r_i] and v_i [r_i, n], or neither where a
 * segment has w as it is. Segment i begins at row starts[i] and ends where the next one begins, the
 * last one at the last row. Weights that are one weight and little come from low-rank adaptation
 * (Hu et al., "LoRA", 2021); one launch for the adapters of many requests is the segmented product
 * of Chen et al., "Punica", 2023. Computed in f32 whatever the operands are. */
#include "ops/gemm_int.h"
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

uint32_t weft_epilogue_first(weft_op_id op, weft_attrs attrs)
{
    const weft_attr *starts = weft_attrs_find(attrs, WEFT_ATTR_STARTS);
    return op != WEFT_OP_LOW_RANK_MATMUL || starts == NULL ? 3 : weft_low_rank_u(starts->n);
}

/* x, w and the u of each segment; x u and v are multiplied as they are. */
bool weft_op_is_factor(weft_op_id op, weft_attrs attrs, uint32_t in)
{
    switch (op) {
    case WEFT_OP_MATMUL:
    case WEFT_OP_GEMM:
    case WEFT_OP_CONV:
        return in < 2;
    case WEFT_OP_LOW_RANK_MATMUL:
        return in < 2 || (in >= weft_low_rank_u(0) && in < weft_epilogue_first(op, attrs) &&
                          (in - weft_low_rank_u(0)) % 2 == 0);
    default:
        return false;
    }
}

bool weft_low_rank_starts(weft_attrs attrs, int64_t rows, const int64_t **out, uint32_t *out_n)
{
    uint32_t n;
    const int64_t *start = weft_attrs_ints(attrs, WEFT_ATTR_STARTS, &n);
    if (start == NULL || n < 1 || n > WEFT_LOW_RANK_SEGMENTS || start[0] != 0)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (start[i] > (i + 1 < n ? start[i + 1] : rows))
            return false;
    *out = start;
    *out_n = n;
    return true;
}

/* -- Inference ------------------------------------------------------------------------------ */

static weft_err check_starts(weft_infer_ctx *cx, weft_dim rows)
{
    const weft_dim *start;
    uint32_t n;
    if (!weft_infer_param(cx, UINT32_MAX, WEFT_ATTR_STARTS, &start, &n) || n < 1 ||
        n > WEFT_LOW_RANK_SEGMENTS)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u segments, wants 1 to %d", n,
                         WEFT_LOW_RANK_SEGMENTS);
    for (uint32_t i = 0; i < n; i++) {
        weft_dim from = start[i], to = i + 1 < n ? start[i + 1] : rows;
        if (i == 0 && from != 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the first segment starts at row %s, wants 0",
                             weft_infer__text(cx, from));
        weft_dim own = weft_dim_sub(cx->pool, to, from);
        if (weft_dim_is_const(own) && own < 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "segment %u is row %s up to row %s", i,
                             weft_infer__text(cx, from), weft_infer__text(cx, to));
    }
    return WEFT_ERR_OK;
}

static weft_err check_thin(weft_infer_ctx *cx, uint32_t u, weft_dim k, weft_dim n)
{
    uint32_t v = u + 1;
    if (!weft_infer__has(cx, u) && !weft_infer__has(cx, v))
        return WEFT_ERR_OK;
    if (!weft_infer__has(cx, u) || !weft_infer__has(cx, v))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands %u and %u: one is missing", u, v);
    const weft_ttype *first = &cx->in[u].type, *second = &cx->in[v].type;
    WEFT_TRY(weft_infer__same_dtype(cx, 0, u));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, v));
    WEFT_TRY(weft_infer__rank(cx, u, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, v, 2, 2));
    WEFT_TRY(weft_infer__agree(cx, first->dim[0], k, "rows of u and inner dimension"));
    WEFT_TRY(weft_infer__agree(cx, first->dim[1], second->dim[0], "ranks of u and v"));
    return weft_infer__agree(cx, second->dim[1], n, "columns of v and of the result");
}

weft_err weft_infer_low_rank(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    uint32_t end = weft_epilogue_first(WEFT_OP_LOW_RANK_MATMUL, cx->attrs);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT & ~(1u << WEFT_DTYPE_F64)));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_gemm__infer(cx, 0, 1, false, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0,
                              out));
    if (weft_infer__has(cx, 2)) {
        WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
        WEFT_TRY(weft_gemm__check_addend(cx, 2, out));
    }
    WEFT_TRY(check_starts(cx, out->dim[0]));
    for (uint32_t u = weft_low_rank_u(0); u < end; u += 2)
        WEFT_TRY(check_thin(cx, u, cx->in[0].type.dim[1], out->dim[1]));
    if (cx->n_in > end && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

/* -- Work ----------------------------------------------------------------------------------- */

/* Without known starts, all segments are as long. */
weft_thin weft_low_rank__thin(const weft_work_ctx *cx)
{
    const weft_attr *starts = weft_attrs_find(cx->attrs, WEFT_ATTR_STARTS);
    const int64_t *start = NULL, rows = cx->out[0].dim[0];
    weft_thin thin = {.segments = starts->n};
    uint32_t n = 0;
    bool known = weft_low_rank_starts(cx->attrs, rows, &start, &n);
    for (uint32_t i = 0; i < starts->n && weft_low_rank_u(i) < cx->n_in; i++) {
        const weft_work_operand *u = &cx->in[weft_low_rank_u(i)];
        double own = 1.0 / starts->n;
        if (known)
            own = (double)((i + 1 < n ? start[i + 1] : rows) - start[i]) / fmax(1, (double)rows);
        if (!u->present)
            continue;
        thin.rank += own * (double)u->dim[1];
        thin.ranks += (double)u->dim[1];
    }
    return thin;
}

weft_work weft_work_low_rank(const weft_work_ctx *cx)
{
    weft_work w = weft_work_matmul(cx);
    double k = (double)cx->in[0].dim[1], n = (double)cx->out[0].dim[1];
    w.flops += 2 * (double)cx->out[0].dim[0] * weft_low_rank__thin(cx).rank * (k + n);
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* Rows [from, to) of *y get their thin product added. */
static weft_err add_thin(weft_eval_ctx *cx, const weft_tensor *y, uint32_t u, int64_t from,
                         int64_t to)
{
    const weft_tensor *first = weft_eval__in(cx, u), *second = weft_eval__in(cx, u + 1);
    int64_t k = cx->in[0]->dim[1], n = y->dim[1], rows = to - from;
    if (first == NULL || second == NULL)
        return WEFT_ERR_OK;
    int64_t rank = first->dim[1];
    if (first->dim[0] != k || second->dim[0] != rank || second->dim[1] != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes of operands %u and %u do not fit", u, u + 1);
    const float *x = weft_eval__f32(cx, cx->in[0]);
    float *thin = weft_arena_array(cx->scratch, (size_t)(rows * rank) + 1, sizeof *thin);
    float *own = weft_arena_array(cx->scratch, (size_t)(rows * n) + 1, sizeof *own);
    weft_gemm__f32(rows, rank, k, x + from * k, k, 1, weft_eval__f32(cx, first), thin, rank);
    weft_gemm__f32(rows, n, rank, thin, rank, 1, weft_eval__f32(cx, second), own, n);
    for (int64_t i = 0; i < rows * n; i++)
        ((float *)y->data)[from * n + i] += own[i];
    return WEFT_ERR_OK;
}

weft_err weft_eval_low_rank(weft_eval_ctx *cx)
{
    const weft_tensor *out = &cx->out[0];
    weft_tensor acc = *out;
    const int64_t *start;
    uint32_t n;
    if (!weft_low_rank_starts(cx->attrs, out->dim[0], &start, &n))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "segments do not fit %lld rows",
                         (long long)out->dim[0]);
    acc.dtype = WEFT_DTYPE_F32;
    acc.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(out) + 1, sizeof(float));
    WEFT_TRY(weft_gemm__eval_f32(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0, &acc));
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(add_thin(cx, &acc, weft_low_rank_u(i), start[i],
                          i + 1 < n ? start[i + 1] : out->dim[0]));
    if (weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL)
        return weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &acc, out);
    weft_store__f32(out, 0, 1, weft_tensor_numel(out), acc.data);
    return WEFT_ERR_OK;
}
