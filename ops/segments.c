/* What low_rank_matmul and patched_matmul share: a GEMM by one weight for the rows of several
 * models, and a correction of each segment of the rows. Segment i begins at row starts[i] and ends
 * where the next one begins; the last one ends at the last row. Its `width` operands (from number 3
 * on) are all there or all omitted. */
#include "ops/segments_int.h"
#include "ops/gemm_int.h"
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

uint32_t weft_segments__count(weft_attrs attrs)
{
    const weft_attr *starts = weft_attrs_find(attrs, WEFT_ATTR_STARTS);
    return starts != NULL ? starts->n : 0;
}

uint32_t weft_epilogue_first(weft_op_id op, weft_attrs attrs)
{
    uint32_t n = weft_segments__count(attrs);
    return op == WEFT_OP_LOW_RANK_MATMUL                                ? weft_low_rank_u(n)
           : op == WEFT_OP_PATCHED_MATMUL                               ? weft_patch_value(n)
           : op == WEFT_OP_ROUTED_MATMUL                                ? WEFT_ROUTED_OPERANDS
           : op == WEFT_OP_QLINEAR_MATMUL || op == WEFT_OP_QLINEAR_CONV ? WEFT_QLINEAR_OPERANDS
                                                                        : 3;
}

/* x, w and the u of each segment: the factors of the GEMMs that matrix units run; (x u) v is
 * computed without rounding the factors. */
bool weft_op_is_factor(weft_op_id op, weft_attrs attrs, uint32_t in)
{
    switch (op) {
    case WEFT_OP_MATMUL:
    case WEFT_OP_GEMM:
    case WEFT_OP_CONV:
    case WEFT_OP_PATCHED_MATMUL:
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
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u segments, expected 1 to %d", n,
                         WEFT_LOW_RANK_SEGMENTS);
    for (uint32_t i = 0; i < n; i++) {
        weft_dim from = start[i], to = i + 1 < n ? start[i + 1] : rows;
        if (i == 0 && from != 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the first segment starts at row %s, expected 0",
                             weft_infer__text(cx, from));
        weft_dim own = weft_dim_sub(cx->pool, to, from);
        if (weft_dim_is_const(own) && own < 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "segment %u is row %s up to row %s", i,
                             weft_infer__text(cx, from), weft_infer__text(cx, to));
    }
    return WEFT_ERR_OK;
}

weft_err weft_segments__infer(weft_infer_ctx *cx, uint32_t width, weft_segment_check check)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    uint32_t end = 3 + width * weft_segments__count(cx->attrs);
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
    for (uint32_t in = 3; in < end; in += width)
        WEFT_TRY(check(cx, in, out));
    if (cx->n_in > end && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

/* -- Work ----------------------------------------------------------------------------------- */

double weft_segments__share(const weft_work_ctx *cx, uint32_t i)
{
    const int64_t *start, rows = cx->out[0].dim[0];
    uint32_t n;
    if (!weft_low_rank_starts(cx->attrs, rows, &start, &n))
        return 1.0 / fmax(1, weft_segments__count(cx->attrs));
    return (double)((i + 1 < n ? start[i + 1] : rows) - start[i]) / fmax(1, (double)rows);
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* Rows whose numbers exceed this, or are no numbers, are multiplied by the corrected weight: the
 * sum of two products is NaN where both are infinite, and inexact where they nearly cancel. */
static const float tame = 1e9f;

static bool is_tame(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= tame))
            return false;
    return true;
}

/* The weight [k, n] with the correction of a segment added. */
static weft_err correct_weight(weft_eval_ctx *cx, bool trans_b, weft_segment_add add, uint32_t in,
                               float *out)
{
    int64_t k = cx->in[0]->dim[1], n = cx->out[0].dim[1];
    const float *w = weft_eval__f32(cx, cx->in[1]);
    float *one = weft_arena_array(cx->scratch, (size_t)(k * k) + 1, sizeof *one);
    for (int64_t i = 0; i < k; i++) {
        one[i * k + i] = 1;
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] = trans_b ? w[j * k + i] : w[i * n + j];
    }
    return add(cx, in, one, k, out);
}

/* Rows that are not tame again, by the corrected weight. */
static weft_err redo_rows(weft_eval_ctx *cx, weft_segment_add add, uint32_t in,
                          const weft_segment_rows *rows)
{
    int64_t k = cx->in[0]->dim[1], n = rows->acc->dim[1];
    bool trans_b = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    const float *x = weft_eval__f32(cx, cx->in[0]);
    if (is_tame(x + rows->from * k, (rows->to - rows->from) * k))
        return WEFT_ERR_OK;
    weft_tensor all = *rows->acc, weight = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {k, n}};
    all.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(&all) + 1, sizeof(float));
    weight.data = weft_arena_array(cx->scratch, (size_t)(k * n) + 1, sizeof(float));
    WEFT_TRY(correct_weight(cx, trans_b, add, in, weight.data));
    const weft_tensor *const operand[] = {cx->in[0], &weight, weft_eval__in(cx, 2)};
    weft_eval_ctx own = *cx;
    own.in = operand;
    own.n_in = 3;
    WEFT_TRY(weft_gemm__eval_f32(&own, false, &all));
    for (int64_t row = rows->from; row < rows->to; row++)
        if (!is_tame(x + row * k, k))
            memcpy((float *)rows->acc->data + row * n, (const float *)all.data + row * n,
                   (size_t)n * sizeof(float));
    return WEFT_ERR_OK;
}

weft_err weft_segments__add(weft_eval_ctx *cx, weft_segment_add add, uint32_t in,
                            const weft_segment_rows *rows)
{
    const float *x = weft_eval__f32(cx, cx->in[0]);
    float *y = rows->acc->data;
    WEFT_TRY(add(cx, in, x + rows->from * cx->in[0]->dim[1], rows->to - rows->from,
                 y + rows->from * rows->acc->dim[1]));
    return redo_rows(cx, add, in, rows);
}

weft_err weft_segments__eval(weft_eval_ctx *cx, uint32_t width, weft_segment_add add)
{
    const weft_tensor *out = &cx->out[0];
    weft_tensor acc = *out;
    const int64_t *start;
    uint32_t n;
    bool trans_b = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    if (!weft_low_rank_starts(cx->attrs, out->dim[0], &start, &n))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "segments do not fit %lld rows",
                         (long long)out->dim[0]);
    acc.dtype = WEFT_DTYPE_F32;
    acc.data = weft_arena_array(cx->scratch, (size_t)weft_tensor_numel(out) + 1, sizeof(float));
    WEFT_TRY(weft_gemm__eval_f32(cx, trans_b, &acc));
    for (uint32_t i = 0; i < n; i++) {
        weft_segment_rows rows = {&acc, start[i], i + 1 < n ? start[i + 1] : out->dim[0]};
        if (weft_eval__in(cx, 3 + width * i) != NULL)
            WEFT_TRY(weft_segments__add(cx, add, 3 + width * i, &rows));
    }
    if (weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL)
        return weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &acc, out);
    weft_eval__store_f32(out, 0, 1, weft_tensor_numel(out), acc.data);
    return WEFT_ERR_OK;
}
