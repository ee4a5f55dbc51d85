/* Attention with a cache of keys and values: GroupQueryAttention of com.microsoft in two operators.
 *
 *   cache_append      past [b, heads, room, size], new [b, length, heads * size], last i32[b]
 *                     ==> [b, heads, all, size]
 *   cached_attention  q [b, length, heads * size], keys, values [b, kv, all, size], last
 *                     ==> [b, length, heads * size]
 *
 * last[i] is the position of the last key of sequence i, so that it has last + 1 keys; its rows of
 * `new` and of q are right-padded: the first min(length, last + 1) count and are the last of its
 * keys. Rows of the cache behind the last key are zeros. */
#include "ops/cached.h"

#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- cache_append ----------------------------------------------------------------------------- */

enum { PAST, NEW, LAST, TOTAL };

/* Rows of the result by attribute `mode`: "grow": those of the past and the new ones; "keep": those
 * of the past; "most": the larger of those of the past and of `total`, which is data. */
static weft_err infer_rows(weft_infer_ctx *cx, weft_dim room, weft_dim length, weft_dim *out)
{
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "grow");
    const weft_dim *total = NULL;
    uint32_t n = 0;
    if (weft_infer__has(cx, TOTAL))
        WEFT_TRY(weft_infer__dtype(cx, TOTAL, WEFT_M_INDEX));
    if (!weft_infer__has(cx, TOTAL) || !weft_infer__content(cx, TOTAL, &total, &n) || n != 1)
        total = NULL;
    if (strcmp(mode, "keep") == 0) {
        *out = room;
    } else if (strcmp(mode, "most") == 0) {
        bool known = total && weft_dim_is_const(total[0]) && weft_dim_is_const(room);
        *out = !known ? weft_dim_fresh(cx->pool) : total[0] > room ? total[0] : room;
    } else {
        *out = weft_dim_add(cx->pool, room, length);
        if (total)
            return weft_infer__agree(cx, total[0], *out,
                                     "total_sequence_length and the lengths of past and new keys");
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_cache_append(weft_infer_ctx *cx)
{
    const weft_ttype *past = &cx->in[PAST].type, *new = &cx->in[NEW].type;
    weft_dim rows;
    WEFT_TRY(weft_infer__same_dtype(cx, PAST, NEW));
    WEFT_TRY(weft_infer__rank(cx, PAST, 4, 4));
    WEFT_TRY(weft_infer__rank(cx, NEW, 3, 3));
    WEFT_TRY(weft_infer__dtype(cx, LAST, 1u << WEFT_DTYPE_I32));
    WEFT_TRY(weft_infer__rank(cx, LAST, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, past->dim[0], new->dim[0], "batch of the cache"));
    WEFT_TRY(weft_infer__agree(cx, cx->in[LAST].type.dim[0], new->dim[0], "batch of the lengths"));
    WEFT_TRY(weft_infer__agree(cx, weft_dim_mul(cx->pool, past->dim[1], past->dim[3]), new->dim[2],
                               "columns of the cache"));
    WEFT_TRY(infer_rows(cx, past->dim[2], new->dim[1], &rows));
    weft_infer__copy(cx, 0, PAST);
    cx->out[0].dim[0] = new->dim[0];
    cx->out[0].dim[2] = rows;
    return WEFT_ERR_OK;
}

bool weft_cache_fits(const weft_cache *c, const int32_t *last, int64_t total)
{
    bool grows = c->all != c->room;
    if (total >= 0 && (grows ? total != c->all : total > c->all))
        return false;
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t n = (int64_t)last[b] + 1;
        if (n < 0 || n > c->all || weft_cache_start(n, c->length) > c->room)
            return false;
    }
    return true;
}

void weft_cache_copy_head(const weft_cache *c, int64_t head, int64_t last, char *out,
                          const char *past, const char *fresh)
{
    int64_t b = head / c->heads, h = head % c->heads, n = last + 1;
    int64_t start = weft_cache_start(n, c->length);
    size_t row = (size_t)c->size * c->bytes;
    char *to = out + (size_t)(head * c->all) * row;
    const char *from = fresh + (size_t)(b * c->length * c->heads + h) * row;
    if (row == 0)
        return;
    if (start > 0)
        memcpy(to, past + (size_t)(head * c->room) * row, (size_t)start * row);
    for (int64_t i = start; i < n; i++)
        memcpy(to + (size_t)i * row, from + (size_t)((i - start) * c->heads) * row, row);
    if (n < c->all)
        memset(to + (size_t)n * row, 0, (size_t)(c->all - n) * row);
}

weft_err weft_eval_cache_append(weft_eval_ctx *cx)
{
    const weft_tensor *past = cx->in[PAST], *new = cx->in[NEW], *total = weft_eval__in(cx, TOTAL);
    const weft_tensor *out = &cx->out[0];
    const weft_cache c = weft_cache_of(past, new, out);
    const int32_t *last = cx->in[LAST]->data;
    if (past->dtype != new->dtype || out->dtype != past->dtype ||
        weft_tensor_numel(cx->in[LAST]) != c.batch ||
        weft_tensor_numel(new) != c.batch * c.length *c.heads *c.size ||
        weft_tensor_numel(out) != c.batch *c.heads *c.all *c.size ||
        !weft_cache_fits(&c, last, total ? weft_tensor_get_i64(total, 0) : -1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                         "seqlens_k or total_sequence_length do not fit a cache of %lld and %lld "
                         "new keys",
                         (long long)c.room, (long long)c.length);
    for (int64_t i = 0; i < c.batch * c.heads; i++)
        weft_cache_copy_head(&c, i, last[i / c.heads], out->data, past->data, new->data);
    return WEFT_ERR_OK;
}

/* -- cached_attention ------------------------------------------------------------------------- */

enum { Q, KEYS, VALUES, ENDS, BIAS, SINK };

weft_err weft_infer_cached_attention(weft_infer_ctx *cx)
{
    const weft_ttype *q = &cx->in[Q].type, *k = &cx->in[KEYS].type, *v = &cx->in[VALUES].type;
    int64_t heads = weft_attrs_int(cx->attrs, WEFT_ATTR_HEADS, 0);
    for (uint32_t i = Q; i <= VALUES; i++) {
        WEFT_TRY(weft_infer__dtype(cx, i, WEFT_M_F32));
        WEFT_TRY(weft_infer__rank(cx, i, i == Q ? 3 : 4, i == Q ? 3 : 4));
    }
    WEFT_TRY(weft_infer__dtype(cx, ENDS, 1u << WEFT_DTYPE_I32));
    WEFT_TRY(weft_infer__rank(cx, ENDS, 1, 1));
    WEFT_TRY(weft_infer__agree(cx, cx->in[ENDS].type.dim[0], q->dim[0], "batch of the lengths"));
    if (heads < 1 || heads > INT16_MAX || !weft_dim_is_const(k->dim[1]) || k->dim[1] < 1 ||
        heads % k->dim[1] != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld heads of queries, %s of keys", (long long)heads,
                         weft_infer__text(cx, k->dim[1]));
    WEFT_TRY(weft_infer__agree(cx, weft_dim_mul(cx->pool, k->dim[3], heads), q->dim[2],
                               "columns of the queries"));
    for (uint32_t d = 0; d < 3; d++)
        WEFT_TRY(weft_infer__agree(cx, k->dim[d], v->dim[d], "keys and values"));
    WEFT_TRY(weft_infer__agree(cx, k->dim[0], q->dim[0], "batch of the cache"));
    if (weft_infer__has(cx, BIAS)) {
        const weft_dim want[3] = {q->dim[0], heads, q->dim[1]};
        WEFT_TRY(weft_infer__dtype(cx, BIAS, WEFT_M_F32));
        WEFT_TRY(weft_infer__rank(cx, BIAS, 4, 4));
        for (uint32_t d = 0; d < 3; d++)
            if (d == 2 || cx->in[BIAS].type.dim[d] != 1)
                WEFT_TRY(weft_infer__agree(cx, cx->in[BIAS].type.dim[d], want[d], "the bias"));
    }
    if (weft_infer__has(cx, SINK)) {
        WEFT_TRY(weft_infer__dtype(cx, SINK, WEFT_M_F32));
        WEFT_TRY(weft_infer__rank(cx, SINK, 1, 1));
        WEFT_TRY(weft_infer__agree(cx, cx->in[SINK].type.dim[0], heads, "sinks"));
    }
    weft_infer__copy(cx, 0, Q);
    cx->out[0].dim[2] = weft_dim_mul(cx->pool, v->dim[3], heads);
    return WEFT_ERR_OK;
}

weft_work weft_work_cached_attention(const weft_work_ctx *cx)
{
    double keys = (double)cx->in[KEYS].dim[2], size = (double)cx->in[VALUES].dim[3];
    double columns = weft_work__numel(&cx->in[Q]);
    return weft_work__bytes(cx, 2 * keys * columns +
                                    (size > 0 ? 2 * keys * weft_work__numel(&cx->out[0]) : 0));
}

bool weft_cached_make(weft_attrs attrs, const weft_tensor *const *in, weft_cached *out)
{
    const weft_tensor *q = in[Q], *k = in[KEYS], *v = in[VALUES], *bias = in[BIAS];
    int64_t heads = weft_attrs_int(attrs, WEFT_ATTR_HEADS, 0);
    *out = (weft_cached){.batch = q->dim[0],
                         .length = q->dim[1],
                         .heads = heads,
                         .kv = k->dim[1],
                         .all = k->dim[2],
                         .size = k->dim[3],
                         .value_size = v->dim[3],
                         .window = weft_attrs_int(attrs, WEFT_ATTR_WINDOW, 0),
                         .causal = weft_attrs_int(attrs, WEFT_ATTR_CAUSAL, 1) != 0,
                         .scale = weft_attrs_float(attrs, WEFT_ATTR_SCALE, 1),
                         .cap = weft_attrs_float(attrs, WEFT_ATTR_CAP, 0),
                         .columns = INT64_MAX};
    if (heads < 1 || out->kv < 1 || heads % out->kv != 0 || out->window < 0 ||
        q->dim[2] != heads * out->size || k->dim[0] != out->batch || v->dim[0] != out->batch ||
        v->dim[1] != out->kv || v->dim[2] != out->all ||
        weft_tensor_numel(in[ENDS]) != out->batch || (in[SINK] && in[SINK]->dim[0] != heads))
        return false;
    if (!bias)
        return true;
    out->columns = bias->dim[3];
    out->bias_head = bias->dim[1] == 1 ? 0 : out->length * out->columns;
    out->bias_batch = bias->dim[0] == 1 ? 0 : bias->dim[1] * out->length * out->columns;
    return (bias->dim[0] == 1 || bias->dim[0] == out->batch) &&
           (bias->dim[1] == 1 || bias->dim[1] == heads) && bias->dim[2] == out->length;
}

bool weft_cached_fits(const weft_cached *c, const int32_t *last)
{
    for (int64_t b = 0; b < c->batch; b++)
        if (last[b] < 0 || last[b] >= c->all || last[b] >= c->columns)
            return false;
    return true;
}

/* One row of queries of one head. */
static void attend(const weft_cached *c, weft_cached_keys keys, const double *q, const double *k,
                   const double *v, const double *bias, const double *sink, double *score,
                   double *y)
{
    double max = sink ? *sink : -(double)INFINITY, sum = 0;
    for (int64_t j = keys.from; j < keys.to; j++) {
        double s = 0;
        for (int64_t e = 0; e < c->size; e++)
            s += q[e] * k[j * c->size + e];
        s *= c->scale;
        if (c->cap > 0)
            s = c->cap * tanh(s / c->cap);
        score[j] = s + (bias ? bias[j] : 0);
        max = score[j] > max ? score[j] : max;
    }
    if (sink)
        sum = exp(*sink - max);
    for (int64_t j = keys.from; j < keys.to; j++)
        sum += score[j] = exp(score[j] - max);
    for (int64_t e = 0; e < c->value_size; e++) {
        y[e] = 0;
        for (int64_t j = keys.from; j < keys.to; j++)
            y[e] += score[j] / sum * v[j * c->value_size + e];
    }
}

weft_err weft_eval_cached_attention(weft_eval_ctx *cx)
{
    const weft_tensor *in[SINK + 1];
    weft_cached c;
    for (uint32_t i = 0; i <= SINK; i++)
        in[i] = weft_eval__in(cx, i);
    const int32_t *last = in[ENDS]->data;
    if (!weft_cached_make(cx->attrs, in, &c) || !weft_cached_fits(&c, last))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "seqlens_k or attention_bias do not fit %lld keys",
                         (long long)c.all);
    const double *q = weft_eval__f64(cx, in[Q]), *k = weft_eval__f64(cx, in[KEYS]);
    const double *v = weft_eval__f64(cx, in[VALUES]);
    const double *bias = in[BIAS] ? weft_eval__f64(cx, in[BIAS]) : NULL;
    const double *sink = in[SINK] ? weft_eval__f64(cx, in[SINK]) : NULL;
    double *score = weft_arena_array(cx->scratch, (size_t)c.all + 1, sizeof *score);
    double *y = weft_arena_array(cx->scratch, (size_t)c.value_size + 1, sizeof *y);
    for (int64_t i = 0; i < c.batch * c.length * c.heads; i++) {
        int64_t h = i % c.heads, row = i / c.heads % c.length, b = i / c.heads / c.length;
        int64_t cache = (b * c.kv + h / (c.heads / c.kv)) * c.all;
        const double *added =
            bias ? bias + b * c.bias_batch + h * c.bias_head + row * c.columns : NULL;
        attend(&c, weft_cached_range(&c, last[b], row), q + i * c.size, k + cache * c.size,
               v + cache * c.value_size, added, sink ? sink + h : NULL, score, y);
        weft_eval__store_f64(&cx->out[0], i * c.value_size, 1, c.value_size, y);
    }
    return WEFT_ERR_OK;
}
