/* patched_matmul: one GEMM for the rows of several models, plus a sparse correction of each model.
 *
 *     %y = patched_matmul %x, $w, $bias, $value0, $tap0, $first0, -, -, -, %r
 *              {starts = [0, ?b], trans_b = 1, epilogue = ["add acc i9", "gelu acc"]}
 *
 *     y[rows of segment i] = epilogue(x w + bias + x[rows of segment i] p_i)
 *
 * As low_rank_matmul, but p_i [k, n] is a sparse matrix in compressed column form (CSC): elements
 * first[f] .. first[f + 1] - 1 belong to feature f, and element j is value[j] at input tap[j].
 * Value: the type of x, [elements]; tap: i32, [elements]; first: i32, [n + 1]. Fine-tuning that
 * changes few elements leaves such differences (Guo et al., "Parameter-efficient transfer learning
 * with diff pruning", 2021). Arithmetic is f32 for every element type. */
#include "ops/op_int.h"
#include "ops/segments_int.h"

bool weft_patch_is_sound(const int32_t *tap, const int32_t *first, int64_t elements, int64_t taps,
                         int64_t features)
{
    if (first[0] != 0 || first[features] != elements)
        return false;
    for (int64_t f = 0; f < features; f++)
        if (first[f] > first[f + 1])
            return false;
    for (int64_t i = 0; i < elements; i++)
        if (tap[i] < 0 || tap[i] >= taps)
            return false;
    return true;
}

/* -- Inference ------------------------------------------------------------------------------ */

static weft_err check_patch(weft_infer_ctx *cx, uint32_t in, const weft_ttype *out)
{
    const uint32_t given =
        weft_infer__has(cx, in) + weft_infer__has(cx, in + 1) + weft_infer__has(cx, in + 2);
    if (given == 0)
        return WEFT_ERR_OK;
    if (given < WEFT_PATCH_OPERANDS)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands %u to %u: %u of them are missing", in,
                         in + 2, WEFT_PATCH_OPERANDS - given);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, in));
    for (uint32_t i = in; i < in + WEFT_PATCH_OPERANDS; i++) {
        WEFT_TRY(weft_infer__rank(cx, i, 1, 1));
        if (i > in)
            WEFT_TRY(weft_infer__dtype(cx, i, 1u << WEFT_DTYPE_I32));
    }
    WEFT_TRY(weft_infer__agree(cx, cx->in[in].type.dim[0], cx->in[in + 1].type.dim[0],
                               "elements and their taps"));
    return weft_infer__agree(cx, cx->in[in + 2].type.dim[0], weft_dim_add(cx->pool, out->dim[1], 1),
                             "features and one");
}

weft_err weft_infer_patched(weft_infer_ctx *cx)
{
    return weft_segments__infer(cx, WEFT_PATCH_OPERANDS, check_patch);
}

/* -- Work ----------------------------------------------------------------------------------- */

weft_delta weft_patched__delta(const weft_work_ctx *cx)
{
    weft_delta delta = {.segments = weft_segments__count(cx->attrs)};
    for (uint32_t i = 0; i < delta.segments && weft_patch_value(i) < cx->n_in; i++) {
        double n = weft_work__numel(&cx->in[weft_patch_value(i)]);
        delta.elements += n;
        delta.element += n * weft_segments__share(cx, i);
    }
    return delta;
}

weft_work weft_work_patched(const weft_work_ctx *cx)
{
    weft_work w = weft_work_matmul(cx);
    w.flops += 2 * (double)cx->out[0].dim[0] * weft_patched__delta(cx).element;
    return w;
}

/* -- Evaluation ----------------------------------------------------------------------------- */

static weft_err add_patch(weft_eval_ctx *cx, uint32_t in, const float *x, int64_t rows, float *y)
{
    const weft_tensor *values = weft_eval__in(cx, in), *taps = weft_eval__in(cx, in + 1);
    const weft_tensor *firsts = weft_eval__in(cx, in + 2);
    int64_t k = cx->in[0]->dim[1], n = cx->out[0].dim[1];
    if (values == NULL || taps == NULL || firsts == NULL)
        return WEFT_ERR_OK;
    const float *value = weft_eval__f32(cx, values);
    const int32_t *tap = taps->data, *first = firsts->data;
    if (firsts->dim[0] != n + 1 || taps->dim[0] != values->dim[0] ||
        !weft_patch_is_sound(tap, first, values->dim[0], k, n))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands %u to %u are no sparse matrix", in, in + 2);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t f = 0; f < n; f++)
            for (int32_t i = first[f]; i < first[f + 1]; i++)
                y[row * n + f] += x[row * k + tap[i]] * value[i];
    return WEFT_ERR_OK;
}

weft_err weft_eval_patched(weft_eval_ctx *cx)
{
    return weft_segments__eval(cx, WEFT_PATCH_OPERANDS, add_patch);
}
