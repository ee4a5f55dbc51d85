/* Attention with a cache (ops/cached.h). Keys are read where they are, without packing: the work
 * of a step with one query is reading the cache. With one query a sequence, the heads that share
 * keys are the rows of one product; otherwise up to 8 queries of one head are. */
#include "base/num.h"
#include "ops/cached.h"
#include "runtime/cpu/cpu_int.h"

#include <math.h>

/* -- cache_append ----------------------------------------------------------------------------- */

typedef struct append_kernel {
    weft_cache size;
    uint32_t threads, n_in;
    bool wide; /* total is i64 */
    void *const *arg;
} append_kernel;

static void append_heads(void *cx, int64_t begin, int64_t end)
{
    const append_kernel *k = cx;
    const int32_t *last = k->arg[2];
    for (int64_t i = begin; i < end; i++)
        weft_cache_copy_head(&k->size, i, last[i / k->size.heads], k->arg[k->n_in], k->arg[0],
                             k->arg[1]);
}

static weft_err run_append(void *state, void *const *arg)
{
    append_kernel *k = state;
    int64_t total = -1;
    k->arg = arg;
    if (k->n_in > 3)
        total = k->wide ? *(const int64_t *)arg[3] : *(const int32_t *)arg[3];
    if (!weft_cache_fits(&k->size, arg[2], total))
        return WEFT_ERR_INPUT;
    double head_ns = (double)(k->size.all * k->size.size) * (double)k->size.bytes * 0.05;
    weft_par_for(k->threads, k->size.batch * k->size.heads, head_ns, append_heads, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_cache_append(weft_prep *p)
{
    const weft_tensor *past = &p->in[0].tensor, *new = &p->in[1].tensor;
    const weft_tensor *out = &p->out[0].tensor;
    if (p->n_in < 3 || p->n_in > 4 || (p->n_in == 4 && !p->in[3].present) || past->rank != 4 ||
        new->rank != 3 || out->rank != 4 || p->in[0].layout || p->in[1].layout || p->out[0].layout)
        return WEFT_ERR_OK;
    append_kernel k = {.threads = weft_cpu__of(p)->threads, .n_in = p->n_in};
    k.size = weft_cache_of(past, new, out);
    weft_dtype total = p->n_in > 3 ? p->in[3].tensor.dtype : WEFT_DTYPE_I32;
    k.wide = total == WEFT_DTYPE_I64;
    if ((!k.wide && total != WEFT_DTYPE_I32) || past->dtype != new->dtype ||
        past->dtype != out->dtype || !weft_slot_is(&p->in[2], WEFT_DTYPE_I32, WEFT_LAYOUT_PLAIN) ||
        (p->n_in > 3 && weft_slot_numel(&p->in[3]) != 1) ||
        weft_slot_numel(&p->in[2]) != k.size.batch ||
        weft_slot_numel(&p->in[1]) != k.size.batch * k.size.length *k.size.heads *k.size.size ||
        weft_slot_numel(&p->out[0]) != k.size.batch *k.size.heads *k.size.all *k.size.size)
        return WEFT_ERR_OK;
    return weft_cpu__set_kernel(p, run_append, &k, sizeof k, "cache_append");
}

/* -- cached_attention ------------------------------------------------------------------------- */

enum { Q, KEYS, VALUES, ENDS, BIAS, SINK, N_OPERANDS };

typedef struct cached_kernel {
    weft_cached size;
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool has_bias, has_sink;
    int64_t part_floats; /* scratch memory per thread */
    void *const *arg;
} cached_kernel;

/* Rows of one product: row r is query first_query + r * query_step of head first_head + r *
 * head_step. */
typedef struct rows {
    int64_t batch, first_head, head_step, first_query, query_step, n;
} rows;

/* Scores s of n keys from position `from` on ==> their exponentials; returns one over the sum. */
static float softmax(const cached_kernel *k, float *s, int64_t from, size_t n, const rows *w,
                     int64_t r)
{
    const weft_cached *c = &k->size;
    int64_t head = w->first_head + r * w->head_step, query = w->first_query + r * w->query_step;
    float max, sum;
    const float cap = (float)c->cap, scale = (float)c->scale;
    k->vec->affine(s, s, cap > 0 ? scale / cap : scale, 0, n);
    if (cap > 0) {
        const float *const arg[1] = {s};
        k->vec->step[WEFT_STEP_TANH](s, arg, n);
        k->vec->affine(s, s, cap, 0, n);
    }
    if (k->has_bias)
        k->vec->accumulate(s,
                           (const float *)k->arg[BIAS] + w->batch * c->bias_batch +
                               head * c->bias_head + query * c->columns + from,
                           n);
    sum = k->vec->exp_shift(s, n, &max);
    if (k->has_sink)
        sum += expf(((const float *)k->arg[SINK])[head] - max);
    return 1.0f / sum;
}

static void run_rows(const cached_kernel *k, const rows *w, float *score)
{
    const weft_cached *c = &k->size;
    int64_t last = ((const int32_t *)k->arg[ENDS])[w->batch], group = c->heads / c->kv;
    int64_t cache = (w->batch * c->kv + w->first_head / group) * c->all;
    int64_t at = (w->batch * c->length + w->first_query) * c->heads + w->first_head;
    int64_t step = w->query_step * c->heads + w->head_step;
    weft_cached_keys all = weft_cached_range(c, last, w->first_query);
    all.to = weft_cached_range(c, last, w->first_query + (w->n - 1) * w->query_step).to;
    int64_t n = all.to - all.from;
    float factor[WEFT_VEC_ROWS];
    k->vec->dots(score, (size_t)c->all, (const float *)k->arg[Q] + at * c->size,
                 (size_t)(step * c->size), (size_t)w->n,
                 (const float *)k->arg[KEYS] + (cache + all.from) * c->size, (size_t)c->size,
                 (size_t)n, (size_t)c->size);
    for (int64_t r = 0; r < w->n; r++) {
        weft_cached_keys see = weft_cached_range(c, last, w->first_query + r * w->query_step);
        float *s = score + r * c->all;
        int64_t from = see.from - all.from, to = see.to - all.from;
        factor[r] = softmax(k, s + from, see.from, (size_t)(to - from), w, r);
        memset(s, 0, (size_t)from * sizeof *s);
        memset(s + to, 0, (size_t)(n - to) * sizeof *s);
    }
    k->vec->pv((float *)k->arg[k->n_in] + at * c->value_size, (size_t)(step * c->value_size), score,
               (size_t)c->all, (size_t)w->n,
               (const float *)k->arg[VALUES] + (cache + all.from) * c->value_size,
               (size_t)c->value_size, (size_t)n, (size_t)c->value_size, factor);
}

/* Heads of keys of all sequences, with one query each. */
static void run_steps(void *cx, int64_t begin, int64_t end)
{
    const cached_kernel *k = cx;
    int64_t group = k->size.heads / k->size.kv;
    float *score = (float *)k->arg[k->n_in + 1] + weft_par_self() * k->part_floats;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < group; j += WEFT_VEC_ROWS) {
            const rows w = {.batch = i / k->size.kv,
                            .first_head = i % k->size.kv * group + j,
                            .head_step = 1,
                            .n = group - j < WEFT_VEC_ROWS ? group - j : WEFT_VEC_ROWS};
            run_rows(k, &w, score);
        }
}

/* Heads of queries of all sequences. */
static void run_heads(void *cx, int64_t begin, int64_t end)
{
    const cached_kernel *k = cx;
    float *score = (float *)k->arg[k->n_in + 1] + weft_par_self() * k->part_floats;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < k->size.length; j += WEFT_VEC_ROWS) {
            int64_t left = k->size.length - j;
            const rows w = {.batch = i / k->size.heads,
                            .first_head = i % k->size.heads,
                            .first_query = j,
                            .query_step = 1,
                            .n = left < WEFT_VEC_ROWS ? left : WEFT_VEC_ROWS};
            run_rows(k, &w, score);
        }
}

static weft_err run_attention(void *state, void *const *arg)
{
    cached_kernel *k = state;
    const weft_cached *c = &k->size;
    k->arg = arg;
    if (!weft_cached_fits(c, arg[ENDS]))
        return WEFT_ERR_INPUT;
    double head_ns = (double)(c->length * c->all) * (double)(c->size + c->value_size) * 0.05;
    if (c->length == 1)
        weft_par_for(k->threads, c->batch * c->kv, head_ns * (double)(c->heads / c->kv), run_steps,
                     k);
    else
        weft_par_for(k->threads, c->batch * c->heads, head_ns, run_heads, k);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_cached_attention(weft_prep *p)
{
    const weft_tensor *in[N_OPERANDS] = {NULL};
    cached_kernel k = {
        .vec = weft_cpu__of(p)->vec, .threads = weft_cpu__of(p)->threads, .n_in = p->n_in};
    uint64_t bytes;
    for (uint32_t i = 0; i < p->n_in && i < N_OPERANDS; i++) {
        weft_dtype dtype = i == ENDS ? WEFT_DTYPE_I32 : WEFT_DTYPE_F32;
        if (p->in[i].present && !weft_slot_is(&p->in[i], dtype, WEFT_LAYOUT_PLAIN))
            return WEFT_ERR_OK;
        if (p->in[i].present)
            in[i] = &p->in[i].tensor;
    }
    for (uint32_t i = Q; i <= ENDS; i++)
        if (!in[i] || in[i]->rank != (i == Q ? 3 : i == ENDS ? 1 : 4))
            return WEFT_ERR_OK;
    if ((in[BIAS] && in[BIAS]->rank != 4) || (in[SINK] && in[SINK]->rank != 1) ||
        !weft_cached_make(p->attrs, in, &k.size) ||
        !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        weft_slot_numel(&p->out[0]) !=
            k.size.batch * k.size.length * k.size.heads * k.size.value_size)
        return WEFT_ERR_OK;
    k.has_bias = in[BIAS] != NULL;
    k.has_sink = in[SINK] != NULL;
    k.part_floats = WEFT_VEC_ROWS * k.size.all;
    if (!weft_size_mul((uint64_t)k.part_floats * sizeof(float), k.threads, &bytes))
        return WEFT_ERR_OK;
    p->scratch_bytes = bytes;
    return weft_cpu__set_kernel(p, run_attention, &k, sizeof k, "cached_attention");
}
