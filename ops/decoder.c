/* Layers of language models that keep a state or know positions: rotary embedding, updates of a
 * cache, linear attention. ONNX's operators RotaryEmbedding, TensorScatter, LinearAttention. */
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- rotary_embedding: pairs of features turned by an angle of the position ------------------- */

/* x is [batch, heads, length, size] or [batch, length, heads * size]. */
typedef struct rotary {
    int64_t batch, heads, length, size, half;
    bool interleaved, flat;
} rotary;

weft_err weft_infer_rotary(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    int64_t heads = weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_HEADS, 0);
    int64_t rotated = weft_attrs_int(cx->attrs, WEFT_ATTR_ROTARY_EMBEDDING_DIM, 0);
    bool has_positions = weft_infer__has(cx, 3);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__rank(cx, 0, 3, 4));
    for (uint32_t i = 1; i < 3; i++) {
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        WEFT_TRY(weft_infer__rank(cx, i, has_positions ? 2 : 3, has_positions ? 2 : 3));
    }
    weft_dim size = x->dim[x->rank - 1];
    if (x->rank == 3) {
        if (heads < 1 || heads > INT32_MAX || (weft_dim_is_const(size) && size % heads != 0))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s columns, %lld heads (num_heads)",
                             weft_infer__text(cx, size), (long long)heads);
        size = weft_dim_floordiv(cx->pool, size, heads);
    }
    if (rotated < 0 || rotated > INT32_MAX || rotated % 2 != 0 ||
        (weft_dim_is_const(size) && rotated > size))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld of %s features are rotated", (long long)rotated,
                         weft_infer__text(cx, size));
    weft_dim half = rotated ? rotated / 2 : weft_dim_floordiv(cx->pool, size, 2);
    for (uint32_t i = 1; i < 3; i++) {
        const weft_ttype *t = &cx->in[i].type;
        WEFT_TRY(weft_infer__agree(cx, t->dim[t->rank - 1], half, "half of the rotated features"));
        for (uint32_t d = 0; !has_positions && d < 2; d++)
            WEFT_TRY(weft_infer__agree(cx, t->dim[d], x->dim[d && x->rank == 4 ? 2 : d],
                                       "angles and operand"));
    }
    if (has_positions) {
        WEFT_TRY(weft_infer__dtype(cx, 3, WEFT_M_INDEX));
        WEFT_TRY(weft_infer__rank(cx, 3, 2, 2));
        WEFT_TRY(weft_infer__agree(cx, cx->in[3].type.dim[0], x->dim[0], "batch of the positions"));
        WEFT_TRY(weft_infer__agree(cx, cx->in[3].type.dim[1], x->dim[x->rank == 4 ? 2 : 1],
                                   "positions"));
    }
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_work weft_work_rotary(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 3 * weft_work__numel(&cx->in[0]));
}

static weft_err plan_rotary(weft_eval_ctx *cx, rotary *r)
{
    const weft_tensor *x = cx->in[0], *c = cx->in[1], *s = cx->in[2];
    const weft_tensor *pos = weft_eval__in(cx, 3);
    int64_t heads = weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_HEADS, 0);
    r->flat = x->rank == 3;
    r->batch = x->dim[0];
    r->heads = r->flat ? heads : x->dim[1];
    r->length = x->dim[r->flat ? 1 : 2];
    r->interleaved = weft_attrs_int(cx->attrs, WEFT_ATTR_INTERLEAVED, 0) != 0;
    if (r->flat && (heads < 1 || x->dim[2] % heads != 0))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld columns, %lld heads", (long long)x->dim[2],
                         (long long)heads);
    r->size = r->flat ? x->dim[2] / heads : x->dim[3];
    int64_t rotated = weft_attrs_int(cx->attrs, WEFT_ATTR_ROTARY_EMBEDDING_DIM, 0);
    r->half = (rotated ? rotated : r->size) / 2;
    int64_t rows = pos ? -1 : r->batch * r->length;
    if (2 * r->half > r->size || c->dim[c->rank - 1] != r->half ||
        weft_tensor_numel(c) != weft_tensor_numel(s) || s->dim[s->rank - 1] != r->half ||
        (pos && weft_tensor_numel(pos) != r->batch * r->length) ||
        (rows >= 0 && weft_tensor_numel(c) != rows * r->half))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the angles do not fit");
    return WEFT_ERR_OK;
}

/* One head of one position, in place. */
static void turn(const rotary *r, double *x, const double *c, const double *s)
{
    int64_t step = r->interleaved ? 2 : 1, other = r->interleaved ? 1 : r->half;
    for (int64_t i = 0; i < r->half; i++) {
        double a = x[i * step], b = x[i * step + other];
        x[i * step] = c[i] * a - s[i] * b;
        x[i * step + other] = s[i] * a + c[i] * b;
    }
}

weft_err weft_eval_rotary(weft_eval_ctx *cx)
{
    rotary r;
    WEFT_TRY(plan_rotary(cx, &r));
    const weft_tensor *pos = weft_eval__in(cx, 3);
    const double *c = weft_eval__f64(cx, cx->in[1]), *s = weft_eval__f64(cx, cx->in[2]);
    int64_t table = r.half > 0 ? weft_tensor_numel(cx->in[1]) / r.half : 0;
    double *x = weft_arena_array(cx->scratch, (size_t)r.size + 1, sizeof *x);
    for (int64_t i = 0; i < r.batch * r.length; i++) {
        int64_t row = pos ? weft_tensor_get_i64(pos, i) : i;
        if (r.half > 0 && (row < 0 || row >= table))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "position %lld, the table has %lld",
                             (long long)row, (long long)table);
        for (int64_t h = 0; h < r.heads; h++) {
            int64_t at =
                r.flat ? i * r.heads + h : ((i / r.length) * r.heads + h) * r.length + i % r.length;
            weft_eval__load_f64(cx->in[0], at * r.size, 1, r.size, x);
            turn(&r, x, c + row * r.half, s + row * r.half);
            weft_eval__store_f64(&cx->out[0], at * r.size, 1, r.size, x);
        }
    }
    return WEFT_ERR_OK;
}

/* -- tensor_scatter: rows written into a cache ------------------------------------------------ */

weft_err weft_infer_tensor_scatter(weft_infer_ctx *cx)
{
    const weft_ttype *past = &cx->in[0].type, *update = &cx->in[1].type;
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "linear");
    uint32_t axis;
    if (strcmp(mode, "linear") != 0 && strcmp(mode, "circular") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "mode \"%s\"", mode);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, past->rank, past->rank));
    WEFT_TRY(
        weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -2), past->rank, &axis));
    if (axis == 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis 0 is the batch");
    for (uint32_t d = 0; d < past->rank; d++)
        if (d != axis)
            WEFT_TRY(weft_infer__agree(cx, past->dim[d], update->dim[d], "cache and update"));
    if (weft_infer__has(cx, 2)) {
        WEFT_TRY(weft_infer__dtype(cx, 2, WEFT_M_INDEX));
        WEFT_TRY(weft_infer__rank(cx, 2, 1, 1));
        WEFT_TRY(weft_infer__agree(cx, cx->in[2].type.dim[0], past->dim[0], "write indices"));
    }
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_err weft_eval_tensor_scatter(weft_eval_ctx *cx)
{
    const weft_tensor *past = cx->in[0], *update = cx->in[1], *at = weft_eval__in(cx, 2);
    uint32_t axis;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -2), past->rank, &axis));
    bool circular = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "linear"), "circular") == 0;
    int64_t outer = weft_dims__product(past->dim, 0, (int32_t)axis);
    int64_t inner = weft_dims__product(past->dim, (int32_t)axis + 1, past->rank);
    int64_t len = past->dim[axis], n = update->dim[axis];
    if (past->dtype != update->dtype || outer * n * inner != weft_tensor_numel(update) ||
        (at && weft_tensor_numel(at) != past->dim[0]) || past->dim[0] < 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the update does not fit");
    size_t row = (size_t)inner * weft_dtype_size(past->dtype);
    char *out = cx->out[0].data;
    if (weft_tensor_bytes(past) > 0)
        memcpy(out, past->data, weft_tensor_bytes(past));
    for (int64_t o = 0; o < outer && row > 0; o++) {
        int64_t first = at ? weft_tensor_get_i64(at, o / (outer / past->dim[0])) : 0;
        if (n > len || (circular ? first < 0 : first < 0 || first > len - n))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld rows at %lld of a cache of %lld",
                             (long long)n, (long long)first, (long long)len);
        for (int64_t i = 0; i < n; i++) {
            int64_t to = circular ? (first % len + i) % len : first + i;
            memcpy(out + (size_t)(o * len + to) * row,
                   (const char *)update->data + (size_t)(o * n + i) * row, row);
        }
    }
    return WEFT_ERR_OK;
}

/* -- linear_attention: a state [keys, values] for each head, updated token by token ----------- */

typedef struct linear {
    int64_t batch, length, heads, kv_heads, dk, dv;
    bool gated, delta, gate_per_key, beta_per_head;
    double scale;
} linear;

/* Which operands the update rule has; false: an unknown rule. */
static bool read_rule(weft_attrs attrs, bool *gated, bool *delta)
{
    const char *rule = weft_attrs_str(attrs, WEFT_ATTR_UPDATE_RULE, "gated_delta");
    *gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    *delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    return *gated || *delta || strcmp(rule, "linear") == 0;
}

enum { QUERY, KEY, VALUE, STATE, DECAY, BETA };

weft_err weft_infer_linear_attention(weft_infer_ctx *cx)
{
    int64_t heads = weft_attrs_int(cx->attrs, WEFT_ATTR_Q_NUM_HEADS, 0);
    int64_t kv = weft_attrs_int(cx->attrs, WEFT_ATTR_KV_NUM_HEADS, 0);
    bool gated, delta;
    if (!read_rule(cx->attrs, &gated, &delta))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "unknown update_rule");
    if (kv < 1 || heads < kv || heads % kv != 0 || heads > INT16_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld heads of queries, %lld of keys",
                         (long long)heads, (long long)kv);
    if (gated != weft_infer__has(cx, DECAY) || delta != weft_infer__has(cx, BETA))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "decay or beta is missing, or not of the update_rule");
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    const weft_ttype *q = &cx->in[QUERY].type;
    for (uint32_t i = QUERY; i <= BETA; i++) {
        if (!weft_infer__has(cx, i))
            continue;
        WEFT_TRY(weft_infer__dtype(cx, i, WEFT_M_FLOAT));
        WEFT_TRY(weft_infer__rank(cx, i, i == STATE ? 4 : 3, i == STATE ? 4 : 3));
        for (uint32_t d = 0; i != STATE && d < 2; d++)
            WEFT_TRY(weft_infer__agree(cx, cx->in[i].type.dim[d], q->dim[d], "batch or length"));
    }
    weft_dim dk = weft_dim_floordiv(cx->pool, cx->in[KEY].type.dim[2], kv);
    weft_dim dv = weft_dim_floordiv(cx->pool, cx->in[VALUE].type.dim[2], kv);
    WEFT_TRY(weft_infer__agree(cx, q->dim[2], weft_dim_mul(cx->pool, dk, heads), "q and k"));
    weft_ttype *y = weft_infer__out(cx, 0, (weft_dtype)q->dtype, 3);
    y->dim[0] = q->dim[0];
    y->dim[1] = q->dim[1];
    y->dim[2] = weft_dim_mul(cx->pool, dv, heads);
    bool has_state = weft_infer__has(cx, STATE);
    weft_ttype *state =
        weft_infer__out(cx, 1, (weft_dtype)(has_state ? cx->in[STATE].type.dtype : q->dtype), 4);
    const weft_dim dim[4] = {q->dim[0], kv, dk, dv};
    for (uint32_t d = 0; d < 4; d++) {
        state->dim[d] = dim[d];
        if (has_state)
            WEFT_TRY(weft_infer__agree(cx, cx->in[STATE].type.dim[d], dim[d], "the state"));
    }
    return WEFT_ERR_OK;
}

weft_work weft_work_linear_attention(const weft_work_ctx *cx)
{
    double kv = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_KV_NUM_HEADS, 1);
    double dk = (double)cx->in[KEY].dim[2] / kv;
    return weft_work__bytes(cx, 8 * weft_work__numel(&cx->in[VALUE]) * dk);
}

static weft_err plan_linear(weft_eval_ctx *cx, linear *p)
{
    const weft_tensor *q = cx->in[QUERY], *k = cx->in[KEY], *v = cx->in[VALUE];
    const weft_tensor *decay = weft_eval__in(cx, DECAY), *beta = weft_eval__in(cx, BETA);
    p->heads = weft_attrs_int(cx->attrs, WEFT_ATTR_Q_NUM_HEADS, 0);
    p->kv_heads = weft_attrs_int(cx->attrs, WEFT_ATTR_KV_NUM_HEADS, 0);
    bool known = read_rule(cx->attrs, &p->gated, &p->delta);
    p->batch = q->dim[0];
    p->length = q->dim[1];
    bool fits = known && p->kv_heads > 0 && p->heads >= p->kv_heads &&
                p->heads % p->kv_heads == 0 && k->dim[2] % p->kv_heads == 0 &&
                v->dim[2] % p->kv_heads == 0 && p->gated == (decay != NULL) &&
                p->delta == (beta != NULL);
    p->dk = fits ? k->dim[2] / p->kv_heads : 0;
    p->dv = fits ? v->dim[2] / p->kv_heads : 0;
    int64_t tokens = p->batch * p->length;
    fits = fits && q->dim[2] == p->dk * p->heads && k->dim[0] * k->dim[1] == tokens &&
           v->dim[0] * v->dim[1] == tokens;
    if (fits && decay) {
        p->gate_per_key = decay->dim[2] != p->kv_heads;
        fits = decay->dim[2] == p->kv_heads * (p->gate_per_key ? p->dk : 1) &&
               decay->dim[0] * decay->dim[1] == tokens;
    }
    if (fits && beta) {
        p->beta_per_head = beta->dim[2] != 1;
        fits = (beta->dim[2] == 1 || beta->dim[2] == p->kv_heads) &&
               beta->dim[0] * beta->dim[1] == tokens;
    }
    const weft_tensor *state = weft_eval__in(cx, STATE);
    if (!fits || (state && weft_tensor_numel(state) != p->batch * p->kv_heads * p->dk * p->dv))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the operands do not fit");
    p->scale = weft_attrs_float(cx->attrs, WEFT_ATTR_SCALE, 0);
    if (p->scale == 0)
        p->scale = 1 / sqrt((double)p->dk);
    return WEFT_ERR_OK;
}

/* state = exp(gate) * state + beta * key (value - state^T key); `gate` has one number, or one of
 * each key feature. */
static void update_state(const linear *p, double *state, const double *key, const double *value,
                         const double *gate, double beta, double *v)
{
    for (int64_t i = 0; p->gated && i < p->dk; i++) {
        double g = exp(gate[p->gate_per_key ? i : 0]);
        for (int64_t j = 0; j < p->dv; j++)
            state[i * p->dv + j] *= g;
    }
    memcpy(v, value, (size_t)p->dv * sizeof *v);
    for (int64_t i = 0; p->delta && i < p->dk; i++)
        for (int64_t j = 0; j < p->dv; j++)
            v[j] -= state[i * p->dv + j] * key[i];
    for (int64_t i = 0; i < p->dk; i++)
        for (int64_t j = 0; j < p->dv; j++)
            state[i * p->dv + j] += beta * key[i] * v[j];
}

/* One token of one head of keys: its state, and the results of the heads of queries that share it.
 */
static void run_token(const linear *p, int64_t token, int64_t h, const double *const *in,
                      double *state, double *v, double *y)
{
    int64_t head = token * p->kv_heads + h, group = p->heads / p->kv_heads;
    const double *gate = p->gated ? in[DECAY] + head * (p->gate_per_key ? p->dk : 1) : NULL;
    double beta = p->delta ? in[BETA][p->beta_per_head ? head : token] : 1;
    update_state(p, state, in[KEY] + head * p->dk, in[VALUE] + head * p->dv, gate, beta, v);
    for (int64_t g = 0; g < group; g++) {
        int64_t row = token * p->heads + h * group + g;
        const double *q = in[QUERY] + row * p->dk;
        double *out = y + row * p->dv;
        for (int64_t i = 0; i < p->dk; i++)
            for (int64_t j = 0; j < p->dv; j++)
                out[j] += p->scale * q[i] * state[i * p->dv + j];
    }
}

weft_err weft_eval_linear_attention(weft_eval_ctx *cx)
{
    linear p = {0};
    WEFT_TRY(plan_linear(cx, &p));
    const double *in[BETA + 1] = {NULL};
    for (uint32_t i = 0; i <= BETA; i++)
        if (weft_eval__in(cx, i))
            in[i] = weft_eval__f64(cx, cx->in[i]);
    int64_t states = p.batch * p.kv_heads, size = p.dk * p.dv;
    int64_t n = p.batch * p.length * p.heads * p.dv;
    double *state = weft_arena_array(cx->scratch, (size_t)(states * size) + 1, sizeof *state);
    double *y = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *y);
    double *v = weft_arena_array(cx->scratch, (size_t)p.dv + 1, sizeof *v);
    if (in[STATE])
        memcpy(state, in[STATE], (size_t)(states * size) * sizeof *state);
    for (int64_t s = 0; s < states; s++)
        for (int64_t t = 0; t < p.length; t++)
            run_token(&p, s / p.kv_heads * p.length + t, s % p.kv_heads, in, state + s * size, v,
                      y);
    if (weft_eval__out(cx, 0))
        weft_eval__store_f64(&cx->out[0], 0, 1, n, y);
    if (weft_eval__out(cx, 1))
        weft_eval__store_f64(&cx->out[1], 0, 1, states * size, state);
    return WEFT_ERR_OK;
}
