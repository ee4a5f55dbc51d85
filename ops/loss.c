/* Losses of classification: nll_loss on log-probabilities, softmax_cross_entropy on scores. Scores
 * are [n, c, d...], labels [n, d...]. */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

typedef enum loss_reduction { LOSS_NONE, LOSS_SUM, LOSS_MEAN } loss_reduction;

static bool get_reduction(weft_attrs attrs, loss_reduction *out)
{
    static const char *const names[] = {"none", "sum", "mean"};
    const char *s = weft_attrs_str(attrs, WEFT_ATTR_REDUCTION, "mean");
    for (int i = 0; i < 3; i++)
        if (strcmp(s, names[i]) == 0) {
            *out = (loss_reduction)i;
            return true;
        }
    return false;
}

weft_err weft_infer_loss(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *label = &cx->in[1].type;
    loss_reduction reduction;
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, x->rank - 1u, x->rank - 1u));
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    if (!get_reduction(cx->attrs, &reduction))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "unknown reduction");
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, label->rank);
    for (uint32_t d = 0; d < label->rank; d++)
        WEFT_TRY(
            weft_infer__unify(cx, x->dim[d + (d > 0)], label->dim[d], "dimension", &out->dim[d]));
    if (weft_infer__has(cx, 2))
        WEFT_TRY(weft_infer__rank(cx, 2, 1, 1));
    if (reduction != LOSS_NONE)
        weft_infer__out(cx, 0, (weft_dtype)x->dtype, 0);
    if (cx->n_out > 1)
        weft_infer__copy(cx, 1, 0);
    return WEFT_ERR_OK;
}

weft_work weft_work_loss(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 4 * weft_work__numel(&cx->in[0]));
}

/* x becomes log(softmax(x)) along dim 1. */
static void log_softmax(double *x, int64_t n, int64_t c, int64_t inner)
{
    for (int64_t i = 0; i < n * inner; i++) {
        double *at = x + i / inner * c * inner + i % inner, max = -INFINITY, sum = 0;
        for (int64_t k = 0; k < c; k++)
            max = fmax(max, at[k * inner]);
        for (int64_t k = 0; k < c; k++)
            sum += exp(at[k * inner] - max);
        for (int64_t k = 0; k < c; k++)
            at[k * inner] = at[k * inner] - max - log(sum);
    }
}

static weft_err eval_loss(weft_eval_ctx *cx, const double *log_prob)
{
    const weft_tensor *x = cx->in[0], *labels = cx->in[1], *weights = weft_eval__in(cx, 2);
    weft_tensor *out = weft_eval__out(cx, 0);
    const weft_attr *ignore = weft_attrs_find(cx->attrs, WEFT_ATTR_IGNORE_INDEX);
    loss_reduction reduction;
    if (!out)
        return WEFT_ERR_OK;
    int64_t n = weft_tensor_numel(labels), c = x->dim[1];
    int64_t inner = weft_dims__product(x->dim, 2, x->rank);
    if (!get_reduction(cx->attrs, &reduction) || n * c != weft_tensor_numel(x) ||
        (weights && weft_tensor_numel(weights) != c) ||
        weft_tensor_numel(out) != (reduction == LOSS_NONE ? n : 1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scores, labels and weights do not fit");
    double sum = 0, total = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t label = weft_tensor_get_i64(labels, i);
        bool skip = ignore && label == ignore->u.i;
        if (!skip && (label < 0 || label >= c))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "label %lld of %lld classes", (long long)label,
                             (long long)c);
        double weight = skip ? 0 : weights ? weft_tensor_get_f64(weights, label) : 1;
        double loss = skip ? 0 : -log_prob[(i / inner * c + label) * inner + i % inner] * weight;
        sum += loss;
        total += weight;
        if (reduction == LOSS_NONE)
            weft_tensor_set_f64(out, i, loss);
    }
    if (reduction != LOSS_NONE)
        weft_tensor_set_f64(out, 0, reduction == LOSS_MEAN ? sum / total : sum);
    return WEFT_ERR_OK;
}

weft_err weft_eval_nll_loss(weft_eval_ctx *cx)
{
    return eval_loss(cx, weft_eval__f64(cx, cx->in[0]));
}

weft_err weft_eval_softmax_cross_entropy(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    int64_t n = weft_tensor_numel(x);
    if (x->rank < 2)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "needs scores of rank 2 or more");
    double *log_prob = weft_arena_array(cx->scratch, (size_t)n, sizeof *log_prob);
    weft_eval__load_f64(x, 0, 1, n, log_prob);
    log_softmax(log_prob, x->dim[0], x->dim[1], weft_dims__product(x->dim, 2, x->rank));
    if (cx->n_out > 1 && weft_eval__out(cx, 1)) {
        WEFT_TRY(weft_eval__check_dims(cx, 1, x->dim, x->rank));
        weft_eval__store_f64(&cx->out[1], 0, 1, n, log_prob);
    }
    return eval_loss(cx, log_prob);
}
