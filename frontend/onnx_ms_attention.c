/* Attention and MultiHeadAttention of com.microsoft, in the form that fuse-attention finds:
 *
 *     y = softmax(q k^T scale + masks) v     heads apart, [batch, heads, length, size]
 *
 * Masks of padding add mask_filter_value; a row that is padding throughout is therefore no zero, as
 * in onnxruntime. The causal mask excludes. */
#include "frontend/onnx_build.h"

#include <math.h>
#include <string.h>

typedef struct ms_attention {
    weft_onnx_build b;
    int64_t heads, causal;
    double scale, filter;
    weft_val q, k, v;        /* [batch, heads, length, size] */
    weft_val past_k, past_v; /* or none */
    weft_val mask, bias;     /* of padding; added to the scores: or none */
} ms_attention;

/* -- Heads ------------------------------------------------------------------------------------ */

/* [b, s, h * e] ==> [b, h, s, e] */
static weft_val split_heads(ms_attention *a, weft_val x)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    const weft_ttype t = *weft_onnx__of(&a->b, x);
    if (a->b.err != WEFT_ERR_OK)
        return x;
    if (t.rank != 3 || !weft_dim_is_const(t.dim[2]) || a->heads < 1 || t.dim[2] % a->heads != 0) {
        weft_onnx__stop(&a->b, WEFT_ERR_INPUT, "rank %u, %lld columns, %lld heads", t.rank,
                        (long long)t.dim[t.rank ? t.rank - 1 : 0], (long long)a->heads);
        return x;
    }
    const weft_dim dim[4] = {t.dim[0], t.dim[1], a->heads, t.dim[2] / a->heads};
    return weft_onnx__transpose(&a->b, weft_onnx__reshape(&a->b, x, dim, 4), perm);
}

static weft_val join_heads(ms_attention *a, weft_val x)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    const weft_ttype t = *weft_onnx__of(&a->b, x);
    const weft_dim dim[3] = {t.dim[0], t.dim[2], weft_onnx__times(&a->b, t.dim[1], t.dim[3])};
    return weft_onnx__reshape(&a->b, weft_onnx__transpose(&a->b, x, perm), dim, 3);
}

/* -- Masks ------------------------------------------------------------------------------------ */

static weft_val choose(ms_attention *a, weft_val condition, double yes, double no)
{
    weft_onnx_build *b = &a->b;
    weft_val if_not = weft_onnx__number(b, a->q, no);
    return weft_onnx__make3(b, WEFT_OP_WHERE, condition, weft_onnx__number(b, a->q, yes), if_not);
}

/* Lengths i32[b], or ends and starts i32[2b]: keys outside are padding. */
static weft_val mask_of_lengths(ms_attention *a, weft_dim batch, weft_dim keys)
{
    weft_onnx_build *b = &a->b;
    const weft_dim dim[4] = {batch, 1, 1, 1};
    weft_val lengths = weft_onnx__cast(b, a->mask, WEFT_DTYPE_I64),
             at = weft_onnx__iota(b, 0, keys);
    weft_dim n = weft_onnx__of(b, a->mask)->dim[0];
    bool ranges = n != batch && n == weft_onnx__times(b, 2, batch);
    if (n != batch && !ranges)
        weft_onnx__stop(b, WEFT_ERR_UNSUP,
                        "a mask of rank 1 that is neither lengths [batch] nor ends and starts "
                        "[2 batch]: fix the batch with `dims:`");
    weft_val ends = ranges ? weft_onnx__slice(b, lengths, 0, 0, batch) : lengths;
    weft_val keep = weft_onnx__make2(b, WEFT_OP_LESS, at, weft_onnx__reshape(b, ends, dim, 4));
    if (ranges) {
        weft_val starts = weft_onnx__reshape(b, weft_onnx__slice(b, lengths, 0, batch, n), dim, 4);
        keep = weft_onnx__make2(b, WEFT_OP_AND, keep,
                                weft_onnx__make2(b, WEFT_OP_GREATER_OR_EQUAL, at, starts));
    }
    return choose(a, keep, 0, a->filter);
}

/* What padding adds to the scores. */
static weft_val padding(ms_attention *a, weft_dim keys)
{
    weft_onnx_build *b = &a->b;
    const weft_ttype t = *weft_onnx__of(b, a->mask);
    if (t.rank == 1)
        return mask_of_lengths(a, weft_onnx__of(b, a->q)->dim[0], keys);
    if (t.rank != 2 && t.rank != 3) {
        weft_onnx__stop(b, WEFT_ERR_UNSUP, "a mask of rank %u is not supported", t.rank);
        return a->mask;
    }
    const weft_dim dim[4] = {t.dim[0], 1, t.rank == 3 ? t.dim[1] : 1, t.dim[t.rank - 1]};
    weft_val mask = weft_onnx__reshape(b, a->mask, dim, 4);
    weft_val keep = weft_onnx__make2(b, WEFT_OP_GREATER, mask, weft_onnx__number(b, mask, 0));
    return choose(a, keep, 0, a->filter);
}

/* Query i sees key j <= i + past. */
static weft_val causal_mask(ms_attention *a, weft_dim rows, weft_dim keys)
{
    weft_onnx_build *b = &a->b;
    weft_dim past = weft_onnx__minus(b, keys, rows);
    weft_val row = weft_onnx__unsqueeze(b, weft_onnx__iota(b, past, keys), 1);
    weft_val keep = weft_onnx__make2(b, WEFT_OP_GREATER_OR_EQUAL, row, weft_onnx__iota(b, 0, keys));
    return choose(a, keep, 0, -(double)INFINITY);
}

/* -- The computation -------------------------------------------------------------------------- */

/* Result; k and v become those with the past. */
static weft_val attend(ms_attention *a)
{
    weft_onnx_build *b = &a->b;
    if (a->past_k.i) {
        const weft_val k[2] = {a->past_k, a->k}, v[2] = {a->past_v, a->v};
        a->k = weft_onnx__concat(b, k, 2, 2);
        a->v = weft_onnx__concat(b, v, 2, 2);
    }
    const weft_ttype q = *weft_onnx__of(b, a->q);
    weft_dim keys = weft_onnx__of(b, a->k)->dim[2];
    if (a->scale == 0 && !weft_dim_is_const(q.dim[3]))
        weft_onnx__stop(b, WEFT_ERR_UNSUP, "heads of unknown size: fix it with `dims:`");
    if (b->err != WEFT_ERR_OK)
        return a->q;
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)q.dim[3]);
    weft_val scaled = weft_onnx__make2(b, WEFT_OP_MUL, a->q, weft_onnx__number(b, a->q, scale));
    weft_val s = weft_onnx__matmul(b, scaled, a->k, true, 1.0), added = {0};
    if (a->mask.i)
        added = padding(a, keys);
    if (a->bias.i)
        added = added.i ? weft_onnx__make2(b, WEFT_OP_ADD, added, a->bias) : a->bias;
    if (a->causal) {
        weft_val causal = causal_mask(a, q.dim[2], keys);
        added = added.i ? weft_onnx__make2(b, WEFT_OP_ADD, added, causal) : causal;
    }
    if (added.i)
        s = weft_onnx__make2(b, WEFT_OP_ADD, s, added);
    weft_val p = weft_onnx__softmax(b, s, -1);
    return join_heads(a, weft_onnx__matmul(b, p, a->v, false, 1.0));
}

static weft_err read_common(ms_attention *a)
{
    weft_onnx_call *c = a->b.c;
    WEFT_TRY(weft_onnx__get_int(c, "num_heads", 0, &a->heads));
    WEFT_TRY(weft_onnx__get_int(c, "unidirectional", 0, &a->causal));
    WEFT_TRY(weft_onnx__get_float(c, "scale", 0, &a->scale));
    WEFT_TRY(weft_onnx__get_float(c, "mask_filter_value", -10000, &a->filter));
    if (a->heads < 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld heads", (long long)a->heads);
    return WEFT_ERR_OK;
}

/* UNSUP if operand i is there. */
static weft_err refuse_operand(weft_onnx_call *c, uint32_t i, const char *name)
{
    if (i >= c->n_in || !c->in[i].i)
        return WEFT_ERR_OK;
    return weft_onnx__fail(c, WEFT_ERR_UNSUP, "input \"%s\" is not supported", name);
}

static weft_val operand(const weft_onnx_call *c, uint32_t i)
{
    return i < c->n_in ? c->in[i] : (weft_val){0};
}

/* -- Attention -------------------------------------------------------------------------------- */

/* Columns of q, k and v in the joint projection. */
static weft_err read_widths(weft_onnx_call *c, weft_dim all, int64_t width[3])
{
    const int64_t *sizes;
    uint32_t n;
    WEFT_TRY(weft_onnx__get_ints(c, "qkv_hidden_sizes", &sizes, &n));
    if (!weft_dim_is_const(all) || (n != 0 && n != 3) || (n == 0 && all % 3 != 0))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "weights without the columns of q, k and v");
    for (uint32_t i = 0; i < 3; i++) {
        width[i] = n ? sizes[i] : all / 3;
        if (width[i] < 1 || width[i] > all)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld columns", (long long)width[i]);
    }
    if (width[0] != width[1] || width[0] + width[1] + width[2] != all)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld, %lld and %lld columns of %lld",
                               (long long)width[0], (long long)width[1], (long long)width[2],
                               (long long)all);
    return WEFT_ERR_OK;
}

/* past [2, b, h, p, e] */
static void take_past(ms_attention *a, weft_val past)
{
    if (!past.i)
        return;
    if (weft_onnx__of(&a->b, past)->rank != 5)
        weft_onnx__stop(&a->b, WEFT_ERR_INPUT, "past of rank %u, expected 5",
                        weft_onnx__of(&a->b, past)->rank);
    a->past_k = weft_onnx__squeeze(&a->b, weft_onnx__slice(&a->b, past, 0, 0, 1), 0);
    a->past_v = weft_onnx__squeeze(&a->b, weft_onnx__slice(&a->b, past, 0, 1, 2), 0);
}

/* Operands of Attention and QAttention beside the projection. */
typedef struct attention_operands {
    weft_val mask, past, score_bias; /* or none */
} attention_operands;

static weft_err read_attention(ms_attention *a)
{
    weft_onnx_call *c = a->b.c;
    int64_t rotary, share;
    WEFT_TRY(read_common(a));
    WEFT_TRY(weft_onnx__get_int(c, "do_rotary", 0, &rotary));
    WEFT_TRY(weft_onnx__get_int(c, "past_present_share_buffer", 0, &share));
    if (rotary || share)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "do_rotary and past_present_share_buffer are not "
                               "supported");
    if (!operand(c, 0).i || !operand(c, 1).i || weft_onnx__type(c, c->in[1])->rank != 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "needs an input and weights of rank 2");
    return WEFT_ERR_OK;
}

/* Attention on the joint projection x of q, k and v. */
static weft_err attend_joint(ms_attention *a, weft_val x, const int64_t width[3],
                             attention_operands from)
{
    weft_onnx_call *c = a->b.c;
    weft_val *part[3] = {&a->q, &a->k, &a->v};
    int64_t at = 0;
    for (uint32_t i = 0; i < 3; i++) {
        *part[i] = split_heads(a, weft_onnx__slice(&a->b, x, 2, at, at + width[i]));
        at += width[i];
    }
    a->mask = from.mask;
    a->bias = from.score_bias;
    take_past(a, from.past);
    weft_val y = attend(a);
    if (c->n_out > 1 && c->wanted[1]) {
        const weft_val both[2] = {weft_onnx__unsqueeze(&a->b, a->k, 0),
                                  weft_onnx__unsqueeze(&a->b, a->v, 0)};
        c->out[1] = weft_onnx__concat(&a->b, both, 2, 0);
    }
    c->out[0] = y;
    WEFT_TRY(a->b.err);
    return weft_onnx__no_more_attrs(c);
}

weft_err weft_onnx_hook_ms_attention(weft_onnx_call *c)
{
    enum { X, W, BIAS, MASK, PAST, SCORE_BIAS, PAST_LENGTH };
    ms_attention a = {.b = {.c = c}};
    int64_t width[3];
    WEFT_TRY(refuse_operand(c, PAST_LENGTH, "past_sequence_length"));
    WEFT_TRY(read_attention(&a));
    WEFT_TRY(read_widths(c, weft_onnx__type(c, c->in[W])->dim[1], width));
    weft_val x = weft_onnx__matmul(&a.b, c->in[X], c->in[W], false, 1.0);
    if (operand(c, BIAS).i)
        x = weft_onnx__make2(&a.b, WEFT_OP_ADD, x, c->in[BIAS]);
    return attend_joint(
        &a, x, width,
        (attention_operands){operand(c, MASK), operand(c, PAST), operand(c, SCORE_BIAS)});
}

/* The projection is a product of bytes; all else is as in Attention. */
weft_err weft_onnx_hook_ms_qattention(weft_onnx_call *c)
{
    enum { X, W, BIAS, X_SCALE, W_SCALE, MASK, X_ZERO, W_ZERO, PAST };
    const int8_t none = 0;
    ms_attention a = {.b = {.c = c}};
    int64_t width[3];
    weft_val in[WEFT_QLINEAR_OPERANDS] = {[WEFT_QLINEAR_A] = operand(c, X),
                                          [WEFT_QLINEAR_A_SCALE] = operand(c, X_SCALE),
                                          [WEFT_QLINEAR_A_ZERO] = operand(c, X_ZERO),
                                          [WEFT_QLINEAR_B] = operand(c, W),
                                          [WEFT_QLINEAR_B_SCALE] = operand(c, W_SCALE),
                                          [WEFT_QLINEAR_B_ZERO] = operand(c, W_ZERO),
                                          [WEFT_QLINEAR_BIAS] = operand(c, BIAS)};
    WEFT_TRY(read_attention(&a));
    if (!operand(c, X_SCALE).i || !operand(c, W_SCALE).i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "needs the scales of its input and weights");
    WEFT_TRY(read_widths(c, weft_onnx__type(c, c->in[W])->dim[1], width));
    for (uint32_t i = WEFT_QLINEAR_A; i <= WEFT_QLINEAR_B; i += WEFT_QLINEAR_B) {
        weft_dtype dtype = weft_onnx__dtype_of(&a.b, in[i]);
        if (dtype != WEFT_DTYPE_U8 && dtype != WEFT_DTYPE_I8)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is of %s, not of bytes", i != 0,
                                   weft_dtype_name(dtype));
        if (!in[i + 2].i)
            in[i + 2] = weft_onnx__const(c, dtype, NULL, 0, &none);
    }
    weft_val x = weft_onnx__make(&a.b, WEFT_OP_QLINEAR_MATMUL, in, WEFT_QLINEAR_OPERANDS, NULL, 0);
    return attend_joint(&a, x, width,
                        (attention_operands){operand(c, MASK), operand(c, PAST), {0}});
}

/* -- MultiHeadAttention ----------------------------------------------------------------------- */

/* Part i of [b, s, h, n, e] as [b, h, s, e]. */
static weft_val unpack(ms_attention *a, weft_val x, int64_t i)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    return weft_onnx__transpose(
        &a->b, weft_onnx__squeeze(&a->b, weft_onnx__slice(&a->b, x, 3, i, i + 1), 3), perm);
}

/* x + columns [from, from + width) of the bias, heads apart. */
static weft_val project(ms_attention *a, weft_val x, weft_val bias, weft_dim *from)
{
    weft_onnx_build *b = &a->b;
    const weft_ttype *t = weft_onnx__of(b, x);
    weft_dim width = t->rank == 3 ? t->dim[2] : 0;
    if (bias.i) {
        weft_dim end = weft_onnx__plus(b, *from, width);
        x = weft_onnx__make2(b, WEFT_OP_ADD, x, weft_onnx__slice(b, bias, 0, *from, end));
        *from = end;
    }
    return split_heads(a, x);
}

static void take_operands(ms_attention *a, weft_val query, weft_val key, weft_val value,
                          weft_val bias)
{
    weft_onnx_build *b = &a->b;
    weft_dim from = 0;
    uint32_t rank_q = weft_onnx__of(b, query)->rank, rank_k = weft_onnx__of(b, key)->rank;
    if (rank_q == 5 || rank_k == 5) {
        if (bias.i)
            weft_onnx__stop(b, WEFT_ERR_UNSUP, "a bias of packed operands is not supported");
        a->q = rank_q == 5 ? unpack(a, query, 0) : split_heads(a, query);
        a->k = unpack(a, rank_q == 5 ? query : key, rank_q == 5 ? 1 : 0);
        a->v = unpack(a, rank_q == 5 ? query : key, rank_q == 5 ? 2 : 1);
        return;
    }
    if (!key.i || !value.i) {
        weft_onnx__stop(b, WEFT_ERR_INPUT, "key or value is missing");
        return;
    }
    a->q = project(a, query, bias, &from);
    if (rank_k == 4) { /* of an encoder, heads apart already */
        a->k = key;
        a->v = value;
        return;
    }
    a->k = project(a, key, bias, &from);
    a->v = project(a, value, bias, &from);
}

weft_err weft_onnx_hook_ms_multi_head_attention(weft_onnx_call *c)
{
    enum { QUERY, KEY, VALUE, BIAS, MASK, SCORE_BIAS, PAST_KEY, PAST_VALUE, PAST_LENGTH, CACHE };
    ms_attention a = {.b = {.c = c}};
    WEFT_TRY(read_common(&a));
    WEFT_TRY(refuse_operand(c, PAST_LENGTH, "past_sequence_length"));
    WEFT_TRY(refuse_operand(c, CACHE, "cache_indirection"));
    if (!operand(c, QUERY).i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "query is missing");
    if (c->n_out > 3)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "result \"qk\" is not supported");
    if (!operand(c, PAST_KEY).i != !operand(c, PAST_VALUE).i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "past_key and past_value go together");
    take_operands(&a, operand(c, QUERY), operand(c, KEY), operand(c, VALUE), operand(c, BIAS));
    a.mask = operand(c, MASK);
    a.bias = operand(c, SCORE_BIAS);
    a.past_k = operand(c, PAST_KEY);
    a.past_v = operand(c, PAST_VALUE);
    weft_val y = attend(&a);
    const weft_val out[3] = {y, a.k, a.v};
    memcpy(c->out, out, c->n_out * sizeof *out);
    WEFT_TRY(a.b.err);
    return weft_onnx__no_more_attrs(c);
}
