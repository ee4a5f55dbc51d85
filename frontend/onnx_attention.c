/* Attention of opsets 23 to 25 as GEMMs, a softmax and what masks need. Exporters' spelt-out
 * attention has the same form, so fuse-attention finds it where no cache and no groups of heads are
 * involved.
 *
 *     y = softmax(mask(softcap(q k^T scale))) v
 *
 * Heads that share keys (grouped queries) become rows of one GEMM: q [b, kv*g, s, e] is read as
 * [b, kv, g*s, e] without a copy. Masks are combined as truth values, broadcast as far as they
 * differ; a row that may attend to nothing gives zeros. */
#include "frontend/onnx_build.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, VALID, N_INPUTS };
enum { Y, PRESENT_KEY, PRESENT_VALUE, SCORES, N_OUTPUTS };
/* What output SCORES holds. */
enum { MODE_RAW, MODE_CAPPED, MODE_MASKED, MODE_SOFTMAX };

typedef struct attention {
    weft_onnx_build b;
    weft_val in[N_INPUTS];
    int64_t causal, mode, left, right, q_heads, kv_heads;
    double scale, cap;
    weft_dtype dtype, precision;               /* of q; of the softmax */
    bool flat;                                 /* operands [batch, length, heads * size] */
    weft_dim batch, heads, groups, rows, cols; /* scores are [batch, heads, rows, cols] */
    weft_dim past;                             /* length of the cache */
    weft_val allowed, bias; /* bool: not masked; added to the scores. None: all, nothing */
    weft_val scores, live;  /* output SCORES; bool: the row attends to something, or none: all do */
} attention;

static weft_err read_attrs(attention *a)
{
    weft_onnx_call *c = a->b.c;
    int64_t precision;
    WEFT_TRY(weft_onnx__get_int(c, "is_causal", 0, &a->causal));
    WEFT_TRY(weft_onnx__get_int(c, "qk_matmul_output_mode", 0, &a->mode));
    WEFT_TRY(weft_onnx__get_int(c, "left_window_size", -1, &a->left));
    WEFT_TRY(weft_onnx__get_int(c, "right_window_size", -1, &a->right));
    WEFT_TRY(weft_onnx__get_int(c, "q_num_heads", 0, &a->q_heads));
    WEFT_TRY(weft_onnx__get_int(c, "kv_num_heads", 0, &a->kv_heads));
    WEFT_TRY(weft_onnx__get_int(c, "softmax_precision", 0, &precision));
    WEFT_TRY(weft_onnx__get_float(c, "scale", 0, &a->scale));
    WEFT_TRY(weft_onnx__get_float(c, "softcap", 0, &a->cap));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY)); /* refuses all others */
    if (a->mode < MODE_RAW || a->mode > MODE_SOFTMAX)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "qk_matmul_output_mode %lld, expected 0 to 3",
                               (long long)a->mode);
    if (a->left < -1 || a->right < -1 || a->left > INT32_MAX || a->right > INT32_MAX)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "windows of %lld and %lld", (long long)a->left,
                               (long long)a->right);
    a->precision = precision ? weft_onnx__dtype(precision, NULL) : a->dtype;
    if (!weft_dtype_is_float(a->precision) || weft_dtype_is_narrow(a->precision))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "softmax_precision %lld", (long long)precision);
    return WEFT_ERR_OK;
}

static weft_err check_operands(attention *a)
{
    weft_onnx_call *c = a->b.c;
    for (uint32_t i = 0; i < N_INPUTS && i < c->n_in; i++)
        a->in[i] = c->in[i];
    if (c->n_in > N_INPUTS || c->n_out > N_OUTPUTS || !a->in[Q].i || !a->in[K].i || !a->in[V].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "%u inputs and %u outputs, expected 3 to %d and 1 "
                               "to %d",
                               c->n_in, c->n_out, N_INPUTS, N_OUTPUTS);
    uint32_t rank = weft_onnx__type(c, a->in[Q])->rank;
    for (uint32_t i = Q; i <= V; i++)
        if (weft_onnx__type(c, a->in[i])->rank != rank || rank < 3 || rank > 4)
            return weft_onnx__fail(c, WEFT_ERR_INPUT,
                                   "input %u has rank %u, expected 3 or 4 as all", i,
                                   weft_onnx__type(c, a->in[i])->rank);
    if (!a->in[PAST_KEY].i != !a->in[PAST_VALUE].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "past_key and past_value go together");
    if (a->in[PAST_KEY].i && a->in[VALID].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "past_key and nonpad_kv_seqlen exclude each other");
    for (uint32_t i = PAST_KEY; i <= PAST_VALUE; i++)
        if (a->in[i].i && weft_onnx__type(c, a->in[i])->rank != 4)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u has rank %u, expected 4", i,
                                   weft_onnx__type(c, a->in[i])->rank);
    if (a->in[MASK].i && weft_onnx__type(c, a->in[MASK])->rank < 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the mask is a scalar");
    if (a->in[VALID].i && weft_onnx__type(c, a->in[VALID])->rank != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "nonpad_kv_seqlen has rank %u, expected 1",
                               weft_onnx__type(c, a->in[VALID])->rank);
    a->flat = rank == 3;
    a->dtype = (weft_dtype)weft_onnx__type(c, a->in[Q])->dtype;
    return WEFT_ERR_OK;
}

/* [b, s, h*d] ==> [b, h, s, d] */
static weft_err split_heads(attention *a, uint32_t in, int64_t heads)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    const weft_ttype x = *weft_onnx__of(&a->b, a->in[in]);
    if (heads < 1 || !weft_dim_is_const(x.dim[2]) || x.dim[2] % heads != 0)
        return weft_onnx__fail(a->b.c, WEFT_ERR_INPUT,
                               "input %u: %lld columns, %lld heads (q_num_heads, kv_num_heads)", in,
                               (long long)x.dim[2], (long long)heads);
    const weft_dim dim[4] = {x.dim[0], x.dim[1], heads, x.dim[2] / heads};
    a->in[in] = weft_onnx__transpose(&a->b, weft_onnx__reshape(&a->b, a->in[in], dim, 4), perm);
    return a->b.err;
}

/* Operands of rank 4, keys and values behind those of the cache; sizes. */
static weft_err arrange(attention *a)
{
    if (a->flat) {
        WEFT_TRY(split_heads(a, Q, a->q_heads));
        WEFT_TRY(split_heads(a, K, a->kv_heads));
        WEFT_TRY(split_heads(a, V, a->kv_heads));
    }
    for (uint32_t i = 0; i < 2 && a->in[PAST_KEY].i; i++) {
        const weft_val parts[2] = {a->in[PAST_KEY + i], a->in[K + i]};
        a->past = weft_onnx__of(&a->b, parts[0])->dim[2];
        a->in[K + i] = weft_onnx__concat(&a->b, parts, 2, 2);
    }
    WEFT_TRY(a->b.err);
    const weft_ttype *q = weft_onnx__of(&a->b, a->in[Q]), *k = weft_onnx__of(&a->b, a->in[K]);
    a->batch = q->dim[0];
    a->heads = q->dim[1];
    a->rows = q->dim[2];
    a->cols = k->dim[2];
    bool known = weft_dim_is_const(a->heads) && weft_dim_is_const(k->dim[1]) && a->heads > 0 &&
                 k->dim[1] > 0;
    if (a->heads != k->dim[1] && (!known || a->heads % k->dim[1] != 0))
        return weft_onnx__fail(a->b.c, WEFT_ERR_INPUT, "%lld heads of queries, %lld of keys",
                               (long long)a->heads, (long long)k->dim[1]);
    a->groups = a->heads == k->dim[1] ? 1 : a->heads / k->dim[1];
    if (a->scale == 0) {
        if (!weft_dim_is_const(q->dim[3]) || q->dim[3] < 1)
            return weft_onnx__fail(a->b.c, WEFT_ERR_UNSUP,
                                   "heads of unknown size: fix it with `dims:`");
        a->scale = 1 / sqrt((double)q->dim[3]);
    }
    return a->b.err;
}

/* -- Masks ------------------------------------------------------------------------------------ */

static void allow(attention *a, weft_val condition)
{
    a->allowed =
        a->allowed.i ? weft_onnx__make2(&a->b, WEFT_OP_AND, a->allowed, condition) : condition;
}

/* A mask whose last dim is shorter covers the first keys; the others are masked. */
static weft_val lengthen(attention *a, weft_val mask)
{
    const weft_ttype t = *weft_onnx__of(&a->b, mask);
    weft_dim have = t.rank ? t.dim[t.rank - 1] : 1;
    if (have == a->cols || a->b.err != WEFT_ERR_OK)
        return mask;
    const weft_dim axis = t.rank - 1, pads[2] = {0, weft_onnx__minus(&a->b, a->cols, have)};
    const weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(PADS, pads, 2), WEFT_ATTR_OF_DIMS(AXES, &axis, 1)};
    bool is_bool = t.dtype == WEFT_DTYPE_BOOL;
    const weft_val in[3] = {
        mask, {0}, weft_onnx__scalar(&a->b, (weft_dtype)t.dtype, is_bool ? 0 : -(double)INFINITY)};
    return weft_onnx__make(&a->b, WEFT_OP_PAD, in, 3, attr, 2);
}

/* nonpad_kv_seqlen as [b, 1, 1, 1] */
static weft_val valid_lengths(attention *a)
{
    const weft_dim dim[4] = {weft_onnx__of(&a->b, a->in[VALID])->dim[0], 1, 1, 1};
    return weft_onnx__reshape(&a->b, weft_onnx__cast(&a->b, a->in[VALID], WEFT_DTYPE_I64), dim, 4);
}

/* Positions of queries minus those of keys: [rows, cols], or [b, 1, rows, cols] where the number of
 * keys before the queries differs within the batch. */
static weft_val distances(attention *a)
{
    weft_onnx_build *b = &a->b;
    weft_val row;
    if (a->in[VALID].i) {
        weft_dim before = weft_onnx__minus(b, 0, a->rows);
        row = weft_onnx__unsqueeze(b, weft_onnx__iota(b, before, 0), 1);
        row = weft_onnx__make2(b, WEFT_OP_ADD, row, valid_lengths(a));
    } else {
        weft_dim end = weft_onnx__plus(b, a->past, a->rows);
        row = weft_onnx__unsqueeze(b, weft_onnx__iota(b, a->past, end), 1);
    }
    return weft_onnx__make2(b, WEFT_OP_SUB, row, weft_onnx__iota(b, 0, a->cols));
}

static weft_val compare(attention *a, weft_op_id op, weft_val x, double number)
{
    return weft_onnx__make2(&a->b, op, x, weft_onnx__scalar(&a->b, WEFT_DTYPE_I64, number));
}

static void combine_masks(attention *a)
{
    weft_onnx_build *b = &a->b;
    if (a->in[MASK].i) {
        weft_val mask = lengthen(a, a->in[MASK]);
        if (weft_onnx__of(b, mask)->dtype == WEFT_DTYPE_BOOL)
            allow(a, mask);
        else
            a->bias = weft_onnx__cast(b, mask, a->dtype);
    }
    if (a->causal || a->left >= 0 || a->right >= 0) {
        weft_val d = distances(a);
        if (a->causal)
            allow(a, compare(a, WEFT_OP_GREATER_OR_EQUAL, d, 0));
        if (a->left >= 0)
            allow(a, compare(a, WEFT_OP_LESS_OR_EQUAL, d, (double)a->left));
        if (a->right >= 0)
            allow(a, compare(a, WEFT_OP_GREATER_OR_EQUAL, d, -(double)a->right));
    }
    if (a->in[VALID].i) {
        weft_val lengths = valid_lengths(a);
        allow(a, weft_onnx__make2(b, WEFT_OP_LESS, weft_onnx__iota(b, 0, a->cols), lengths));
    }
    /* Causal masks alone leave the first key, or the diagonal, to each row. */
    bool keeps_one = !a->in[MASK].i && !a->in[VALID].i && a->left < 0 && a->right < 0;
    if (keeps_one)
        return;
    weft_val live = a->allowed;
    if (a->bias.i) {
        weft_dtype dtype = (weft_dtype)weft_onnx__of(b, a->bias)->dtype;
        weft_val some = weft_onnx__make2(b, WEFT_OP_EQUAL, a->bias,
                                         weft_onnx__scalar(b, dtype, -(double)INFINITY));
        some = weft_onnx__make1(b, WEFT_OP_NOT, some);
        live = live.i ? weft_onnx__make2(b, WEFT_OP_AND, live, some) : some;
    }
    const weft_dim last = -1;
    const weft_attr attr[2] = {WEFT_ATTR_OF_INT(KEEPDIMS, 1), WEFT_ATTR_OF_DIMS(AXES, &last, 1)};
    a->live = weft_onnx__make(b, WEFT_OP_REDUCE_MAX, &live, 1, attr, 2);
}

/* -- The computation -------------------------------------------------------------------------- */

/* x times `scale`; in f16 and bf16 the factors are scaled by its root, so that products stay in
 * range. */
static weft_val scaled(attention *a, weft_val x, bool is_query)
{
    bool half = a->dtype == WEFT_DTYPE_F16 || a->dtype == WEFT_DTYPE_BF16;
    if (!half && !is_query)
        return x;
    double factor = half ? sqrt(a->scale) : a->scale;
    return weft_onnx__make2(&a->b, WEFT_OP_MUL, x, weft_onnx__scalar(&a->b, a->dtype, factor));
}

/* [b, heads, rows, n] ==> [b, kv, groups * rows, n]; back with `join` */
static weft_val regroup(attention *a, weft_val x, bool join)
{
    if (a->groups == 1)
        return x;
    weft_dim n = weft_onnx__of(&a->b, x)->rank == 4 ? weft_onnx__of(&a->b, x)->dim[3] : 0;
    const weft_dim apart[4] = {a->batch, a->heads, a->rows, n};
    const weft_dim joined[4] = {a->batch, a->heads / a->groups,
                                weft_onnx__times(&a->b, a->groups, a->rows), n};
    return weft_onnx__reshape(&a->b, x, join ? joined : apart, 4);
}

static weft_val make_scores(attention *a)
{
    weft_onnx_build *b = &a->b;
    const weft_attr trans_b = WEFT_ATTR_OF_INT(TRANS_B, 1);
    const weft_val in[2] = {regroup(a, scaled(a, a->in[Q], true), true),
                            scaled(a, a->in[K], false)};
    weft_val s = regroup(a, weft_onnx__make(b, WEFT_OP_MATMUL, in, 2, &trans_b, 1), false);
    if (a->mode == MODE_RAW)
        a->scores = s;
    if (a->cap > 0) {
        weft_val cap = weft_onnx__scalar(b, a->dtype, a->cap);
        s = weft_onnx__make1(b, WEFT_OP_TANH, weft_onnx__make2(b, WEFT_OP_DIV, s, cap));
        s = weft_onnx__make2(b, WEFT_OP_MUL, s, cap);
    }
    if (a->mode == MODE_CAPPED)
        a->scores = s;
    if (a->bias.i)
        s = weft_onnx__make2(b, WEFT_OP_ADD, s, a->bias);
    if (a->allowed.i)
        s = weft_onnx__make3(b, WEFT_OP_WHERE, a->allowed, s,
                             weft_onnx__scalar(b, a->dtype, -(double)INFINITY));
    if (a->mode == MODE_MASKED)
        a->scores = s;
    /* A mask may have constant dims where the operands have symbolic ones. */
    const weft_ttype *t = weft_onnx__of(b, s);
    a->batch = t->dim[0];
    a->rows = t->dim[2];
    return s;
}

/* where(live, x, 0): rows that attend to nothing hold NaN. */
static weft_val guard(attention *a, weft_val x, weft_val live)
{
    return weft_onnx__make3(&a->b, WEFT_OP_WHERE, live, x, weft_onnx__scalar(&a->b, a->dtype, 0));
}

/* `live` of [b, 1, s, 1] for results [b, s, n]: none if it differs by head. */
static weft_val flat_live(attention *a)
{
    const weft_ttype t = *weft_onnx__of(&a->b, a->live);
    if (t.rank > 2 && t.dim[t.rank - 3] != 1)
        return (weft_val){0};
    const weft_dim dim[3] = {t.rank > 3 ? t.dim[0] : 1, t.rank > 1 ? t.dim[t.rank - 2] : 1, 1};
    return weft_onnx__reshape(&a->b, a->live, dim, 3);
}

static weft_val make_result(attention *a)
{
    static const int64_t perm[4] = {0, 2, 1, 3};
    weft_onnx_build *b = &a->b;
    const weft_attr last = WEFT_ATTR_OF_INT(AXIS, -1);
    weft_val p = weft_onnx__cast(b, make_scores(a), a->precision);
    p = weft_onnx__cast(b, weft_onnx__make(b, WEFT_OP_SOFTMAX, &p, 1, &last, 1), a->dtype);
    bool wanted = b->c->n_out > SCORES && b->c->wanted[SCORES];
    /* Outside the pattern of fused attention if possible. */
    weft_val late = a->live.i && a->flat ? flat_live(a) : (weft_val){0};
    if (a->live.i && (!late.i || (wanted && a->mode == MODE_SOFTMAX))) {
        p = guard(a, p, a->live);
        late = (weft_val){0};
    }
    if (a->mode == MODE_SOFTMAX)
        a->scores = p;
    weft_val y = weft_onnx__make2(b, WEFT_OP_MATMUL, regroup(a, p, true), a->in[V]);
    y = regroup(a, y, false);
    if (!a->flat)
        return y;
    const weft_dim size = weft_onnx__of(b, y)->rank == 4 ? weft_onnx__of(b, y)->dim[3] : 0;
    const weft_dim dim[3] = {a->batch, a->rows, weft_onnx__times(b, a->heads, size)};
    y = weft_onnx__reshape(b, weft_onnx__transpose(b, y, perm), dim, 3);
    return late.i ? guard(a, y, late) : y;
}

weft_err weft_onnx_hook_attention(weft_onnx_call *c)
{
    attention a = {.b = {.c = c}};
    WEFT_TRY(check_operands(&a));
    WEFT_TRY(read_attrs(&a));
    WEFT_TRY(arrange(&a));
    combine_masks(&a);
    weft_val y = make_result(&a);
    WEFT_TRY(a.b.err);
    const weft_val out[N_OUTPUTS] = {y, a.in[K], a.in[V], a.scores};
    memcpy(c->out, out, c->n_out * sizeof *out);
    return WEFT_ERR_OK;
}
