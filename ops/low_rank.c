/* low_rank_matmul: one GEMM for the rows of several models, plus a low-rank correction of each
 * model.
 *
 *     %y = low_rank_matmul %x, $w, $bias, $u0, $v0, -, -, $u2, $v2, %r
 *              {starts = [0, ?b, ?b + ?c], trans_b = 1, epilogue = ["add acc i9", "gelu acc"]}
 *
 *     y[rows of segment i] = epilogue(x w + bias + (x[rows of segment i] u_i) v_i)
 *
 * x [rows, k]; w [k, n], or [n, k] with trans_b; the factors u_i [k, r_i] and v_i [r_i, n] are
 * omitted if segment i uses w unchanged. Segment i begins at row starts[i] and ends where the next
 * segment begins; the last one ends at the last row. Weights with low-rank differences come from
 * low-rank adaptation (Hu et al., "LoRA", 2021); one launch for the adapters of many requests is
 * the segmented GEMM of Chen et al., "Punica", 2023. Arithmetic is f32 for every element type. */
#include "ops/gemm_int.h"
#include "ops/op_int.h"
#include "ops/segments_int.h"

/* -- Inference ------------------------------------------------------------------------------ */

static weft_err check_thin(weft_infer_ctx *cx, uint32_t u, const weft_ttype *out)
{
    weft_dim k = cx->in[0].type.dim[1], n = out->dim[1];
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
    return weft_segments__infer(cx, 2, check_thin);
}

/* -- Work ----------------------------------------------------------------------------------- */

weft_delta weft_low_rank__delta(const weft_work_ctx *cx)
{
    weft_delta delta = {.segments = weft_segments__count(cx->attrs)};
    for (uint32_t i = 0; i < delta.segments && weft_low_rank_u(i) < cx->n_in; i++) {
        const weft_work_operand *u = &cx->in[weft_low_rank_u(i)];
        if (!u->present)
            continue;
        delta.rank += weft_segments__share(cx, i) * (double)u->dim[1];
        delta.ranks += (double)u->dim[1];
    }
    return delta;
}

weft_work weft_work_low_rank(const weft_work_ctx *cx)
{
    weft_work w = weft_work_matmul(cx);
    double k = (double)cx->in[0].dim[1], n = (double)cx->out[0].dim[1];
    w.flops += 2 * (double)cx->out[0].dim[0] * weft_low_rank__delta(cx).rank * (k + n);
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* y += (x u) v */
static weft_err add_thin(weft_eval_ctx *cx, uint32_t u, const float *x, int64_t rows, float *y)
{
    const weft_tensor *first = weft_eval__in(cx, u), *second = weft_eval__in(cx, u + 1);
    int64_t k = cx->in[0]->dim[1], n = cx->out[0].dim[1];
    if (first == NULL || second == NULL)
        return WEFT_ERR_OK;
    int64_t rank = first->dim[1];
    if (first->dim[0] != k || second->dim[0] != rank || second->dim[1] != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "shapes of operands %u and %u do not fit", u, u + 1);
    float *xu = weft_arena_array(cx->scratch, (size_t)(rows * rank) + 1, sizeof *xu);
    float *own = weft_arena_array(cx->scratch, (size_t)(rows * n) + 1, sizeof *own);
    weft_gemm__f32(rows, rank, k, x, k, 1, weft_eval__f32(cx, first), xu, rank);
    weft_gemm__f32(rows, n, rank, xu, rank, 1, weft_eval__f32(cx, second), own, n);
    for (int64_t i = 0; i < rows * n; i++)
        y[i] += own[i];
    return WEFT_ERR_OK;
}

weft_err weft_eval_low_rank(weft_eval_ctx *cx)
{
    return weft_segments__eval(cx, 2, add_thin);
}
