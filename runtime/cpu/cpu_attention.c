/* Fused attention of f32. For each head and 8 rows of queries at a time: scores, softmax, and the
 * weighted sum of the values, all in the L1 and L2 caches. Queries, keys and values may be columns
 * of a wider matrix; they are read in place, without a transposition. Packed sequences are computed
 * one by one, each head of each a piece of work of its own. */
#include "base/num.h"
#include "ops/packed.h"
#include "runtime/cpu/cpu_int.h"

#include <math.h>
#include <string.h>

typedef struct attention_kernel {
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    int64_t batch, heads, sq, sk, dim, keys; /* keys: sk rounded up to whole blocks */
    int64_t mask_positions; /* of a packed mask by position of keys: the longest sequence; else 0 */
    int64_t width[3], offset[3]; /* of q, k, v: columns per row, first column of head 0 */
    int64_t mask_stride[4];
    bool has_mask, bool_mask, is_packed, by_row;
    float scale, fill;
    int64_t part_floats; /* scratch memory per thread */
    int64_t n_starts;    /* packed */
    int64_t first_key;   /* of a packed mask by key */
    int64_t first_row;   /* of one by row */
    void *const *arg;
} attention_kernel;

typedef struct packed_run {
    const attention_kernel *kernel;
    weft_packed packed;
} packed_run;

static void pack_keys(const attention_kernel *k, const float *src, float *packed)
{
    for (int64_t j = 0; j < k->sk; j += WEFT_VEC_KEYS) {
        int64_t n = k->sk - j < WEFT_VEC_KEYS ? k->sk - j : WEFT_VEC_KEYS;
        float *to = packed + j * k->dim;
        if (n < WEFT_VEC_KEYS)
            memset(to, 0, (size_t)(WEFT_VEC_KEYS * k->dim) * sizeof *to);
        k->vec->transpose(to, WEFT_VEC_KEYS, src + j * k->width[1], (size_t)k->width[1], (size_t)n,
                          (size_t)k->dim);
    }
}

static void apply_mask(const attention_kernel *k, float *score, int64_t b, int64_t h, int64_t row)
{
    int64_t at = b * k->mask_stride[0] + h * k->mask_stride[1];
    at += (k->first_row + row) * k->mask_stride[2];
    int64_t step = k->mask_stride[3];
    at += k->first_key * step;
    if (k->bool_mask) {
        const uint8_t *m = (const uint8_t *)k->arg[3] + at;
        if (step == 1)
            k->vec->mask(score, m, k->fill, (size_t)k->sk);
        else if (!*m)
            for (int64_t j = 0; j < k->sk; j++)
                score[j] = k->fill;
        return;
    }
    const float *m = (const float *)k->arg[3] + at;
    if (step == 1)
        k->vec->accumulate(score, m, (size_t)k->sk);
    else
        k->vec->affine(score, score, 1.0f, *m, (size_t)k->sk);
}

/* from_q, from_k: the first rows of q and of k and v. */
static void run_head(const attention_kernel *k, int64_t b, int64_t h, int64_t from_q,
                     int64_t from_k, float *part)
{
    int64_t col = h * k->dim, width = k->heads * k->dim;
    const float *q = (const float *)k->arg[0] + from_q * k->width[0] + k->offset[0] + col;
    const float *key = (const float *)k->arg[1] + from_k * k->width[1] + k->offset[1] + col;
    const float *v = (const float *)k->arg[2] + from_k * k->width[2] + k->offset[2] + col;
    float *out = (float *)k->arg[k->n_in] + from_q * width + col;
    float *packed = part, *score = part + k->keys * k->dim;

    pack_keys(k, key, packed);
    for (int64_t i = 0; i < k->sq; i += WEFT_VEC_ROWS) {
        int64_t rows = k->sq - i < WEFT_VEC_ROWS ? k->sq - i : WEFT_VEC_ROWS;
        float factor[WEFT_VEC_ROWS], max;
        for (int64_t j = 0; j < k->keys; j += WEFT_VEC_KEYS)
            k->vec->qk(score + j, (size_t)k->keys, q + i * k->width[0], (size_t)k->width[0],
                       (size_t)rows, packed + j * k->dim, (size_t)k->dim, k->scale);
        for (int64_t r = 0; r < rows; r++) {
            if (k->has_mask)
                apply_mask(k, score + r * k->keys, b, h, i + r);
            factor[r] = 1.0f / k->vec->exp_shift(score + r * k->keys, (size_t)k->sk, &max);
        }
        k->vec->pv(out + i * width, (size_t)width, score, (size_t)k->keys, (size_t)rows, v,
                   (size_t)k->width[2], (size_t)k->sk, (size_t)k->dim, factor);
    }
}

static void run_heads(void *cx, int64_t begin, int64_t end)
{
    const attention_kernel *k = cx;
    float *part = (float *)k->arg[k->n_in + 1] + (int64_t)weft_par_self() * k->part_floats;
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / k->heads;
        run_head(k, b, i % k->heads, b * k->sq, b * k->sk, part);
    }
}

static void run_sequences(void *cx, int64_t begin, int64_t end)
{
    const packed_run *run = cx;
    const attention_kernel *k = run->kernel;
    float *part = (float *)k->arg[k->n_in + 1] + (int64_t)weft_par_self() * k->part_floats;
    for (int64_t i = begin; i < end; i++) {
        int64_t from = run->packed.start[i / k->heads];
        attention_kernel one = *k;
        one.first_key = k->mask_positions ? 0 : from;
        one.first_row = k->by_row ? from : 0;
        one.sq = one.sk = weft_packed_len(&run->packed, i / k->heads);
        one.keys = (one.sk + WEFT_VEC_KEYS - 1) / WEFT_VEC_KEYS * WEFT_VEC_KEYS;
        run_head(&one, 0, i % k->heads, from, from, part);
    }
}

static weft_err run_packed(attention_kernel *k)
{
    packed_run run = {.kernel = k};
    weft_tensor starts = {
        .dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {k->n_starts}, .data = k->arg[4]};
    if (!weft_packed_read(&starts, k->sq, k->mask_positions ? k->mask_positions : k->sq,
                          &run.packed))
        return WEFT_ERR_INPUT;
    double squares = 0;
    for (int64_t i = 0; i < run.packed.n; i++) {
        double len = (double)weft_packed_len(&run.packed, i);
        squares += len * len;
    }
    if (run.packed.n > 0)
        weft_par_for(k->threads, run.packed.n * k->heads,
                     squares / (double)run.packed.n * (double)k->dim * 0.03, run_sequences, &run);
    return WEFT_ERR_OK;
}

static weft_err run_attention(void *state, void *const *arg)
{
    attention_kernel *k = state;
    k->arg = arg;
    if (k->is_packed)
        return run_packed(k);
    weft_par_for(k->threads, k->batch * k->heads, (double)(k->sq * k->sk) * (double)k->dim * 0.03,
                 run_heads, k);
    return WEFT_ERR_OK;
}

static bool read_mask(const weft_prep *p, attention_kernel *k)
{
    const weft_slot *m = &p->in[3];
    int64_t score[4] = {k->batch, k->heads, k->sq, k->sk}, at = 1;
    k->has_mask = p->n_in > 3 && m->present;
    if (!k->has_mask)
        return true;
    k->bool_mask = m->tensor.dtype == WEFT_DTYPE_BOOL;
    k->by_row =
        k->is_packed && m->tensor.rank >= 2 && weft_attrs_int(p->attrs, WEFT_ATTR_BY_ROW, 0) != 0;
    if (k->by_row)
        k->mask_positions = score[3] = m->tensor.dim[m->tensor.rank - 1];
    else if (k->is_packed && m->tensor.rank >= 2 && m->tensor.dim[m->tensor.rank - 2] > 1)
        k->mask_positions = score[2] = score[3] = m->tensor.dim[m->tensor.rank - 2];
    if (m->layout != WEFT_LAYOUT_PLAIN || m->tensor.rank > 4 ||
        (!k->bool_mask && m->tensor.dtype != WEFT_DTYPE_F32))
        return false;
    for (int32_t d = m->tensor.rank - 1; d >= 0; d--) {
        int32_t to = d + 4 - m->tensor.rank;
        if (m->tensor.dim[d] != 1 && m->tensor.dim[d] != score[to])
            return false;
        k->mask_stride[to] = m->tensor.dim[d] == 1 ? 0 : at;
        at *= m->tensor.dim[d];
    }
    return true;
}

weft_err weft_cpu__prepare_attention(weft_prep *p)
{
    static const weft_attr_key offset[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                            WEFT_ATTR_V_OFFSET};
    attention_kernel k = {.vec = weft_cpu__of(p)->vec,
                          .threads = weft_cpu__of(p)->threads,
                          .n_in = p->n_in,
                          .heads = weft_attrs_int(p->attrs, WEFT_ATTR_HEADS, 0),
                          .dim = weft_attrs_int(p->attrs, WEFT_ATTR_HEAD_DIM, 0),
                          .scale = (float)weft_attrs_float(p->attrs, WEFT_ATTR_SCALE, 1.0),
                          .fill = (float)weft_attrs_float(p->attrs, WEFT_ATTR_FILL, -INFINITY)};
    uint64_t bytes;

    if (p->n_in < 3 || !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        k.heads < 1 || k.dim < 1 || k.heads > INT16_MAX || k.dim > INT16_MAX)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < 3; i++) {
        const weft_slot *s = &p->in[i];
        k.offset[i] = weft_attrs_int(p->attrs, offset[i], 0);
        if (!weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) || s->tensor.rank != 3 ||
            k.offset[i] < 0 || k.offset[i] > INT32_MAX ||
            k.offset[i] + k.heads * k.dim > s->tensor.dim[2] ||
            s->tensor.dim[0] != p->in[0].tensor.dim[0] ||
            s->tensor.dim[1] != p->in[i ? 1 : 0].tensor.dim[1])
            return WEFT_ERR_OK;
        k.width[i] = s->tensor.dim[2];
    }
    k.batch = p->in[0].tensor.dim[0];
    k.sq = p->in[0].tensor.dim[1];
    k.sk = p->in[1].tensor.dim[1];
    k.is_packed = p->n_in > 4 && p->in[4].present;
    if (k.is_packed) {
        k.n_starts = weft_slot_numel(&p->in[4]);
        if (k.batch != 1 || k.sq != k.sk || p->in[4].tensor.rank != 1 ||
            !weft_slot_is(&p->in[4], WEFT_DTYPE_I64, WEFT_LAYOUT_PLAIN))
            return WEFT_ERR_OK;
    }
    k.keys = (k.sk + WEFT_VEC_KEYS - 1) / WEFT_VEC_KEYS * WEFT_VEC_KEYS;
    k.part_floats = k.keys * (k.dim + WEFT_VEC_ROWS);
    if (weft_slot_numel(&p->out[0]) != k.batch * k.sq * k.heads * k.dim || !read_mask(p, &k) ||
        !weft_size_mul((uint64_t)k.part_floats * sizeof(float), k.threads, &bytes))
        return WEFT_ERR_OK;
    p->scratch_bytes = bytes;
    return weft_cpu__set_kernel(p, run_attention, &k, sizeof k, "attention");
}
