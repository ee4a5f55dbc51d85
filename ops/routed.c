/* routed_matmul: one GEMM for the rows of several models, plus a low-rank correction by the model
 * of each row.
 *
 *     %y = routed_matmul %x, $w, $bias, %model, $u, $v, %r
 *              {starts = [0, 4, 4], trans_b = 1, epilogue = ["add acc i6", "gelu acc"]}
 *
 *     y[row] = epilogue(x[row] w + bias + (x[row] u_m) v_m), m = model[row]
 *
 * x [1.., rows, k]; w [k, n], or [n, k] with trans_b; model i64[rows]. The factors of all models
 * stand side by side: those of model m are the columns of u [k, ranks] and the rows of v [ranks, n]
 * from starts[m] on, up to where those of the next model begin; none if model m uses w unchanged.
 * low_rank_matmul knows the rows of each model before the run; here the requests of models come in
 * any order. f32. */
#include "ops/gemm_int.h"
#include "ops/op_int.h"
#include "ops/segments_int.h"

#include <math.h>
#include <string.h>

/* -- Inference ------------------------------------------------------------------------------ */

static weft_err check_factors(weft_infer_ctx *cx, const weft_ttype *out)
{
    uint32_t u = WEFT_ROUTED_U, v = WEFT_ROUTED_V, n;
    const int64_t *start;
    weft_dim k = cx->in[0].type.dim[out->rank - 1], ranks = cx->in[u].type.dim[1];
    WEFT_TRY(weft_infer__rank(cx, u, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, v, 2, 2));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, u));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, v));
    WEFT_TRY(weft_infer__agree(cx, cx->in[u].type.dim[0], k, "rows of u and inner dimension"));
    WEFT_TRY(weft_infer__agree(cx, ranks, cx->in[v].type.dim[0], "ranks of u and v"));
    WEFT_TRY(weft_infer__agree(cx, cx->in[v].type.dim[1], out->dim[out->rank - 1],
                               "columns of v and of the result"));
    if (!weft_dim_is_const(ranks) || !weft_low_rank_starts(cx->attrs, ranks, &start, &n))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts do not fit %s ranks",
                         weft_infer__text(cx, ranks));
    return WEFT_ERR_OK;
}

weft_err weft_infer_routed(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    for (uint32_t i = WEFT_ROUTED_MODEL; i < WEFT_ROUTED_OPERANDS; i++)
        if (!weft_infer__has(cx, i))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_F32));
    WEFT_TRY(weft_infer__dtype(cx, WEFT_ROUTED_MODEL, 1u << WEFT_DTYPE_I64));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, 2, 2));
    WEFT_TRY(weft_infer__rank(cx, WEFT_ROUTED_MODEL, 1, 1));
    WEFT_TRY(weft_gemm__infer(cx, 0, 1, false, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0,
                              out));
    for (uint32_t i = 0; i + 2 < out->rank; i++)
        WEFT_TRY(weft_infer__agree(cx, out->dim[i], 1, "leading dimensions"));
    WEFT_TRY(weft_infer__agree(cx, cx->in[WEFT_ROUTED_MODEL].type.dim[0], out->dim[out->rank - 2],
                               "models and rows"));
    if (weft_infer__has(cx, 2)) {
        WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
        WEFT_TRY(weft_gemm__check_addend(cx, 2, out));
    }
    WEFT_TRY(check_factors(cx, out));
    if (cx->n_in > WEFT_ROUTED_OPERANDS && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

/* -- Work ----------------------------------------------------------------------------------- */

weft_delta weft_routed__delta(const weft_work_ctx *cx)
{
    if (cx->n_in < WEFT_ROUTED_OPERANDS)
        return (weft_delta){0};
    double ranks = (double)cx->in[WEFT_ROUTED_U].dim[1];
    uint32_t n = weft_segments__count(cx->attrs);
    return (weft_delta){.segments = n, .rank = ranks / (n > 0 ? n : 1), .ranks = ranks};
}

weft_work weft_work_routed(const weft_work_ctx *cx)
{
    weft_work w = weft_work_matmul(cx);
    double k = (double)cx->in[0].dim[cx->in[0].rank - 1], numel = weft_work__numel(&cx->out[0]);
    double n = fmax(1, (double)cx->out[0].dim[cx->out[0].rank - 1]);
    w.flops += 2 * numel / n * weft_routed__delta(cx).rank * (k + n);
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* y += (x u_m) v_m, m the segment's number. */
static weft_err add_own(weft_eval_ctx *cx, uint32_t m, const float *x, int64_t rows, float *y)
{
    const weft_tensor *u = weft_eval__in(cx, WEFT_ROUTED_U), *v = weft_eval__in(cx, WEFT_ROUTED_V);
    int64_t k = u->dim[0], ranks = u->dim[1], n = v->dim[1];
    const int64_t *start;
    uint32_t models;
    if (!weft_low_rank_starts(cx->attrs, ranks, &start, &models) || v->dim[0] != ranks)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts do not fit");
    int64_t from = start[m], own = (m + 1 < models ? start[m + 1] : ranks) - from;
    const float *factor = weft_eval__f32(cx, u);
    float *mine = weft_arena_array(cx->scratch, (size_t)(k * own) + 1, sizeof *mine);
    float *xu = weft_arena_array(cx->scratch, (size_t)(rows * own) + 1, sizeof *xu);
    float *term = weft_arena_array(cx->scratch, (size_t)(rows * n) + 1, sizeof *term);
    for (int64_t i = 0; i < k * own; i++)
        mine[i] = factor[i / own * ranks + from + i % own];
    weft_gemm__f32(rows, own, k, x, k, 1, mine, xu, own);
    weft_gemm__f32(rows, n, own, xu, own, 1, weft_eval__f32(cx, v) + from * n, term, n);
    for (int64_t i = 0; i < rows * n; i++)
        y[i] += term[i];
    return WEFT_ERR_OK;
}

weft_err weft_eval_routed(weft_eval_ctx *cx)
{
    if (cx->n_in < WEFT_ROUTED_OPERANDS)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands", cx->n_in);
    const weft_tensor *model = cx->in[WEFT_ROUTED_MODEL], *out = &cx->out[0];
    int64_t rows = weft_tensor_numel(model), k = cx->in[0]->dim[cx->in[0]->rank - 1];
    uint32_t models = weft_segments__count(cx->attrs);
    const int64_t *m = weft_eval__i64(cx, model);
    weft_tensor x = {.dtype = cx->in[0]->dtype, .rank = 2, .dim = {rows, k}}, acc = x;
    weft_segment_rows part = {.acc = &acc};
    x.data = cx->in[0]->data;
    acc.dim[1] = out->dim[out->rank - 1];
    acc.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(out) + 1, sizeof(float));
    const weft_tensor *const in[] = {
        &x, cx->in[1], weft_eval__in(cx, 2), model, cx->in[WEFT_ROUTED_U], cx->in[WEFT_ROUTED_V]};
    weft_eval_ctx own = *cx;
    own.in = in;
    own.n_in = WEFT_ROUTED_OPERANDS;
    own.out = &acc;
    WEFT_TRY(weft_gemm__eval_f32(&own, weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0, &acc));
    for (; part.from < rows; part.from = part.to) {
        int64_t of = m[part.from];
        if (of < 0 || of >= models)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "model %lld of row %lld, expected 0 to %u",
                             (long long)of, (long long)part.from, models - 1);
        for (part.to = part.from; part.to < rows && m[part.to] == of;)
            part.to++;
        WEFT_TRY(weft_segments__add(&own, add_own, (uint32_t)of, &part));
    }
    acc.rank = out->rank;
    memcpy(acc.dim, out->dim, sizeof acc.dim);
    if (weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL)
        return weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &acc, out);
    memcpy(out->data, acc.data, weft_tensor_bytes(out));
    return WEFT_ERR_OK;
}
