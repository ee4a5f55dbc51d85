/* GroupQueryAttention of com.microsoft: rotary embedding, cache_append for keys and values, and
 * cached_attention (ops/cached.c).
 *
 * onnxruntime's present has max(past, total_sequence_length) rows. Here a cache whose length is a
 * symbol grows by the new rows, so that total_sequence_length has to be the sum; one whose length
 * is fixed (a buffer for the longest sequence) keeps it, and total_sequence_length may be less.
 * Both are checked at run time. Where the past is fixed and total_sequence_length is known at run
 * time only, the length is that of onnxruntime. */
#include "frontend/onnx_build.h"

#include <math.h>
#include <string.h>

enum {
    QUERY,
    KEY,
    VALUE,
    PAST_KEY,
    PAST_VALUE,
    LAST,
    TOTAL,
    COS,
    SIN,
    POSITIONS,
    BIAS,
    SINK,
    N_READ,
    N_INPUTS = 17
};

typedef struct group_query {
    weft_onnx_build b;
    weft_val in[N_READ];
    weft_val last; /* i32[batch] */
    weft_dim batch, length;
    int64_t heads, kv, size, value_size;
    int64_t rotary, interleaved, window, causal, smooth;
    double scale, cap;
    weft_dtype dtype;
} group_query;

/* Attributes of features that are not there must have the value that turns them off. */
static weft_err refuse_features(weft_onnx_call *c)
{
    static const struct {
        const char *name;
        int64_t off;
    } ints[] = {{"qk_output", 0}, {"sliding_window_cache", 0}, {"kv_cache_bit_width", 0}};
    static const char *const types[] = {"k_quant_type", "v_quant_type"};
    static const char *const inputs[] = {"k_scale", "v_scale", "q_norm_weight", "k_norm_weight",
                                         "query_seqlens"};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        int64_t x;
        WEFT_TRY(weft_onnx__get_int(c, ints[i].name, ints[i].off, &x));
        if (x != ints[i].off)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%s %lld is not supported", ints[i].name,
                                   (long long)x);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const char *text;
        WEFT_TRY(weft_onnx__get_str(c, types[i], "NONE", &text));
        if (strcmp(text, "NONE") != 0)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "%s \"%s\": export the model with a cache of floats", types[i],
                                   text);
    }
    for (uint32_t i = N_READ; i < c->n_in && i < N_INPUTS; i++)
        if (c->in[i].i)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "input \"%s\" is not supported",
                                   inputs[i - N_READ]);
    weft_onnx__ignore(c, "q_norm_epsilon");
    weft_onnx__ignore(c, "k_norm_epsilon");
    weft_onnx__ignore(c, "qk_norm_epsilon");
    if (c->n_in > N_INPUTS || c->n_out > 3)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%u inputs and %u results, expected %d and 3",
                               c->n_in, c->n_out, N_INPUTS);
    return WEFT_ERR_OK;
}

static weft_err read_attrs(group_query *a)
{
    weft_onnx_call *c = a->b.c;
    WEFT_TRY(refuse_features(c));
    WEFT_TRY(weft_onnx__get_int(c, "num_heads", 0, &a->heads));
    WEFT_TRY(weft_onnx__get_int(c, "kv_num_heads", 0, &a->kv));
    WEFT_TRY(weft_onnx__get_int(c, "do_rotary", 0, &a->rotary));
    WEFT_TRY(weft_onnx__get_int(c, "rotary_interleaved", 0, &a->interleaved));
    WEFT_TRY(weft_onnx__get_int(c, "local_window_size", -1, &a->window));
    WEFT_TRY(weft_onnx__get_int(c, "causal", 1, &a->causal));
    WEFT_TRY(weft_onnx__get_int(c, "smooth_softmax", 0, &a->smooth));
    WEFT_TRY(weft_onnx__get_float(c, "scale", 0, &a->scale));
    WEFT_TRY(weft_onnx__get_float(c, "softcap", 0, &a->cap));
    WEFT_TRY(weft_onnx__no_more_attrs(c));
    if (a->heads < 1 || a->kv < 1 || a->heads > INT16_MAX || a->heads % a->kv != 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%lld heads of queries, %lld of keys",
                               (long long)a->heads, (long long)a->kv);
    if (a->window < -1 || a->window > INT32_MAX || (a->window >= 0 && !a->causal) || a->window == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "local_window_size %lld", (long long)a->window);
    if (a->cap < 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "softcap %g", a->cap);
    return WEFT_ERR_OK;
}

/* Queries, keys and values apart, each [batch, length, heads * size]. */
static weft_err take_operands(group_query *a)
{
    weft_onnx_call *c = a->b.c;
    for (uint32_t i = 0; i < N_READ && i < c->n_in; i++)
        a->in[i] = c->in[i];
    if (!a->in[QUERY].i || !a->in[LAST].i || !a->in[TOTAL].i || !a->in[KEY].i != !a->in[VALUE].i ||
        !a->in[PAST_KEY].i != !a->in[PAST_VALUE].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT,
                               "query, seqlens_k and total_sequence_length are needed; key and "
                               "value, and past_key and past_value go together");
    const weft_ttype q = *weft_onnx__type(c, a->in[QUERY]);
    int64_t parts = a->heads + (a->in[KEY].i ? 0 : 2 * a->kv);
    if (q.rank != 3 || !weft_dim_is_const(q.dim[2]) || q.dim[2] % parts != 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "query of rank %u with %lld columns, %lld heads",
                               q.rank, (long long)q.dim[q.rank ? q.rank - 1 : 0], (long long)parts);
    a->size = a->value_size = q.dim[2] / parts;
    a->dtype = (weft_dtype)q.dtype;
    a->batch = q.dim[0];
    a->length = q.dim[1];
    if (!a->in[KEY].i) {
        weft_dim from = a->heads * a->size, width = a->kv * a->size;
        weft_val all = a->in[QUERY];
        a->in[QUERY] = weft_onnx__slice(&a->b, all, 2, 0, from);
        a->in[KEY] = weft_onnx__slice(&a->b, all, 2, from, from + width);
        a->in[VALUE] = weft_onnx__slice(&a->b, all, 2, from + width, from + 2 * width);
        return a->b.err;
    }
    const weft_ttype *v = weft_onnx__type(c, a->in[VALUE]);
    if (v->rank != 3 || !weft_dim_is_const(v->dim[2]) || v->dim[2] % a->kv != 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "value of rank %u does not have %lld heads",
                               v->rank, (long long)a->kv);
    a->value_size = v->dim[2] / a->kv;
    return WEFT_ERR_OK;
}

/* Positions [batch, length] of the queries. */
static weft_val positions(group_query *a)
{
    weft_onnx_build *b = &a->b;
    if (a->in[POSITIONS].i)
        return a->in[POSITIONS];
    /* max(last + 1 - length, 0) + row */
    weft_val last = weft_onnx__unsqueeze(b, weft_onnx__cast(b, a->last, WEFT_DTYPE_I64), 1);
    weft_val back = weft_onnx__iota(b, weft_onnx__minus(b, 1, a->length), 1);
    weft_val row = weft_onnx__iota(b, 0, a->length);
    return weft_onnx__make2(b, WEFT_OP_MAX, weft_onnx__make2(b, WEFT_OP_ADD, last, back), row);
}

static void rotate(group_query *a)
{
    weft_onnx_build *b = &a->b;
    const weft_ttype *cos = weft_onnx__of(b, a->in[COS]);
    if (!a->in[COS].i || !a->in[SIN].i || cos->rank != 2 || !weft_dim_is_const(cos->dim[1])) {
        weft_onnx__stop(b, WEFT_ERR_INPUT, "do_rotary needs cos_cache and sin_cache of rank 2");
        return;
    }
    const int64_t heads[2] = {a->heads, a->kv};
    int64_t rotated = 2 * cos->dim[1];
    weft_val at = positions(a);
    for (uint32_t i = 0; i < 2; i++) {
        const weft_attr attr[3] = {
            WEFT_ATTR_OF_INT(INTERLEAVED, a->interleaved), WEFT_ATTR_OF_INT(NUM_HEADS, heads[i]),
            WEFT_ATTR_OF_INT(ROTARY_EMBEDDING_DIM, rotated == a->size ? 0 : rotated)};
        const weft_val in[4] = {a->in[QUERY + i], a->in[COS], a->in[SIN], at};
        a->in[QUERY + i] = weft_onnx__make(b, WEFT_OP_ROTARY_EMBEDDING, in, 4, attr, 3);
    }
}

/* How long present is: attribute `mode` of cache_append. */
static const char *cache_mode(group_query *a, weft_val past)
{
    uint32_t n = 0;
    const weft_dim *total = weft_contents_get(a->b.c->cx->contents, a->in[TOTAL], &n);
    weft_dim room = weft_onnx__of(&a->b, past)->dim[2];
    if (!weft_dim_is_const(room) || room == 0 ||
        (total && n == 1 && total[0] == weft_onnx__plus(&a->b, room, a->length)))
        return "grow";
    return total ? "keep" : "most";
}

/* The cache `past` with the new keys or values. */
static weft_val append(group_query *a, weft_val past, weft_val new, int64_t size)
{
    weft_onnx_build *b = &a->b;
    const weft_dim none[4] = {a->batch, a->kv, 0, size};
    if (!past.i)
        past = weft_onnx__make_dims(b, WEFT_OP_EXPAND, weft_onnx__scalar(b, a->dtype, 0),
                                    WEFT_ATTR_SHAPE, none, 4);
    if (weft_onnx__of(b, past)->rank != 4) {
        weft_onnx__stop(b, WEFT_ERR_INPUT, "past of rank %u, expected 4",
                        weft_onnx__of(b, past)->rank);
        return past;
    }
    const weft_attr mode = WEFT_ATTR_OF_STR(MODE, cache_mode(a, past));
    const weft_val in[4] = {past, new, a->last, a->in[TOTAL]};
    return weft_onnx__make(b, WEFT_OP_CACHE_APPEND, in, 4, &mode, 1);
}

/* One number for each head that takes part in the softmax, or none. */
static weft_val sink(group_query *a)
{
    if (a->in[SINK].i || !a->smooth)
        return a->in[SINK];
    return weft_onnx__make_dims(&a->b, WEFT_OP_EXPAND, weft_onnx__scalar(&a->b, a->dtype, 0),
                                WEFT_ATTR_SHAPE, &(weft_dim){a->heads}, 1);
}

static weft_val as_f32(group_query *a, weft_val x)
{
    return x.i ? weft_onnx__cast(&a->b, x, WEFT_DTYPE_F32) : x;
}

weft_err weft_onnx_hook_ms_group_query_attention(weft_onnx_call *c)
{
    group_query a = {.b = {.c = c}};
    weft_onnx_build *b = &a.b;
    WEFT_TRY(read_attrs(&a));
    WEFT_TRY(take_operands(&a));
    /* i32[batch], or [batch, 1] in older files */
    a.last = weft_onnx__cast(b, a.in[LAST], WEFT_DTYPE_I32);
    if (weft_onnx__of(b, a.last)->rank != 1)
        a.last = weft_onnx__reshape(b, a.last, &a.batch, 1);
    if (a.rotary)
        rotate(&a);
    weft_val k = append(&a, a.in[PAST_KEY], a.in[KEY], a.size);
    weft_val v = append(&a, a.in[PAST_VALUE], a.in[VALUE], a.value_size);
    const weft_attr attr[5] = {
        WEFT_ATTR_OF_FLOAT(CAP, a.cap), WEFT_ATTR_OF_INT(CAUSAL, a.causal),
        WEFT_ATTR_OF_INT(HEADS, a.heads),
        WEFT_ATTR_OF_FLOAT(SCALE, a.scale != 0 ? a.scale : 1 / sqrt((double)a.size)),
        WEFT_ATTR_OF_INT(WINDOW, a.window < 0 ? 0 : a.window)};
    const weft_val in[6] = {as_f32(&a, a.in[QUERY]), as_f32(&a, k),       as_f32(&a, v), a.last,
                            as_f32(&a, a.in[BIAS]),  as_f32(&a, sink(&a))};
    uint32_t n = in[5].i ? 6 : in[4].i ? 5 : 4;
    weft_val y = weft_onnx__make(b, WEFT_OP_CACHED_ATTENTION, in, n, attr, 5);
    const weft_val out[3] = {weft_onnx__cast(b, y, a.dtype), k, v};
    memcpy(c->out, out, c->n_out * sizeof *out);
    return b->err;
}
