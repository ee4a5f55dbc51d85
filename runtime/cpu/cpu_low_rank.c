/* low_rank_matmul, routed_matmul and patched_matmul of f32. First each segment's own term (a
 * low-rank product or a sparse correction) is written to the result by loops of this file; then
 * oneDNN adds the base GEMM of all rows, with bias and epilogue.
 *
 * A low-rank product is little arithmetic on two small weights; as calls of a library it would take
 * longer than the base GEMM of a few rows. Blocks of rows of one segment are distributed over the
 * threads: x u, which stays in the L1 cache, by dot products with the rows of u transposed (packed
 * at load), then its product with v. A sparse correction reads elements of a single row in place,
 * or columns of a block of rows that was transposed for it. Of a routed_matmul only the run tells
 * the segments: within a block they are found by the models of its rows.
 *
 * The sum of the two products is NaN where both are infinite. So a run with such rows is repeated
 * (cpu_nan.c), with the reference kernel, which multiplies them by the corrected weight. */
#include "base/num.h"
#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/cpu_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALAR_ROWS = 2 };
static const double multiply_ns = 0.02, element_ns = 0.3;

/* The term of a segment: a low-rank product, sparse elements, or nothing. */
typedef struct segment_term {
    int64_t first, rows;
    int64_t block; /* index of its first block of rows */
    int64_t rank;
    weft_cpu_pack *u; /* [rank, k] */
    uint32_t v;       /* index in args: [rank, n] */
    uint32_t
        value; /* index in args; 0: no sparse elements. The next two args are `tap` and `first` */
} segment_term;

/* The factors of a routed_matmul. */
typedef struct routed_terms {
    uint32_t models; /* 0: it is none */
    int64_t start[WEFT_LOW_RANK_SEGMENTS + 1];
    weft_cpu_pack *u; /* [ranks, k] */
} routed_terms;

typedef struct low_rank_kernel {
    weft_engine *engine;
    int64_t k, n, blocks, rows;
    double row_ns; /* of the most expensive segment */
    uint32_t out;  /* index in args */
    uint32_t n_segment;
    segment_term segment[WEFT_LOW_RANK_SEGMENTS];
    routed_terms routed;
    uint64_t term_offset,
        term_bytes; /* scratch memory for x u, or for a transposed block of x; per thread */
    weft_kernel_fn run_base;
    void *base;
    void (*destroy_base)(void *base);
    char variant[64];
    void *const *arg;
} low_rank_kernel;

/* -- Running -------------------------------------------------------------------------------- */

/* y = (x u) v; nothing where the rank is 0. */
static void run_factors(const low_rank_kernel *k, const float *x, float *y, size_t rows,
                        const float *u, const float *v, size_t rank, float *part)
{
    static const float ones[WEFT_VEC_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const weft_cpu_vec *vec = ((const weft_cpu *)k->engine->device)->vec;
    size_t taps = (size_t)k->k, cols = (size_t)k->n;
    if (rank == 0) {
        memset(y, 0, rows * cols * sizeof *y);
        return;
    }
    vec->dots(part, rank, x, taps, rows, u, taps, rank, taps);
    vec->pv(y, cols, part, rank, rows, v, cols, rank, cols, ones);
}

static void run_routed(const low_rank_kernel *k, int64_t block, float *part)
{
    const routed_terms *r = &k->routed;
    const int64_t *model = k->arg[WEFT_ROUTED_MODEL];
    const float *u = weft_cpu__pack_data(r->u), *v = k->arg[WEFT_ROUTED_V];
    int64_t from = block * WEFT_VEC_ROWS, left = k->rows - from;
    int64_t end = from + (left < WEFT_VEC_ROWS ? left : WEFT_VEC_ROWS);
    for (int64_t to; from < end; from = to) {
        int64_t m = model[from], first = r->start[m];
        for (to = from; to < end && model[to] == m;)
            to++;
        run_factors(k, (const float *)k->arg[0] + from * k->k,
                    (float *)k->arg[k->out] + from * k->n, (size_t)(to - from), u + first * k->k,
                    v + first * k->n, (size_t)(r->start[m + 1] - first), part);
    }
}

static void run_patch(const low_rank_kernel *k, const segment_term *s, const float *x, float *y,
                      size_t rows, float *part)
{
    const weft_cpu_vec *vec = ((const weft_cpu *)k->engine->device)->vec;
    const float *value = k->arg[s->value];
    const int32_t *tap = k->arg[s->value + 1], *first = k->arg[s->value + 2];
    size_t taps = (size_t)k->k, cols = (size_t)k->n;
    if (rows > SCALAR_ROWS) {
        vec->transpose(part, WEFT_VEC_ROWS, x, taps, rows, taps);
        vec->patch(y, cols, rows, part, value, tap, first, cols);
        return;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t f = 0; f < cols; f++) {
            float sum = 0;
            for (int32_t i = first[f]; i < first[f + 1]; i++)
                sum += x[r * taps + (size_t)tap[i]] * value[i];
            y[r * cols + f] = sum;
        }
}

static void run_block(const low_rank_kernel *k, const segment_term *s, int64_t block, float *part)
{
    int64_t from = (block - s->block) * WEFT_VEC_ROWS, left = s->rows - from;
    size_t rows = (size_t)(left < WEFT_VEC_ROWS ? left : WEFT_VEC_ROWS);
    const float *x = (const float *)k->arg[0] + (s->first + from) * k->k;
    float *y = (float *)k->arg[k->out] + (s->first + from) * k->n;
    if (s->value)
        run_patch(k, s, x, y, rows, part);
    else
        run_factors(k, x, y, rows, s->rank ? weft_cpu__pack_data(s->u) : NULL,
                    s->rank ? k->arg[s->v] : NULL, (size_t)s->rank, part);
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const low_rank_kernel *k = cx;
    char *scratch = (char *)k->arg[k->out + 1] + k->term_offset;
    float *part = (float *)(scratch + weft_par_self() * k->term_bytes);
    uint32_t s = 0;
    for (int64_t i = begin; i < end && k->routed.models > 0; i++)
        run_routed(k, i, part);
    for (int64_t i = begin; i < end && k->routed.models == 0; i++) {
        while (s + 1 < k->n_segment && k->segment[s + 1].block <= i)
            s++;
        run_block(k, &k->segment[s], i, part);
    }
}

static bool are_models(const low_rank_kernel *k, const int64_t *model)
{
    for (int64_t i = 0; i < k->rows; i++)
        if (model[i] < 0 || model[i] >= k->routed.models)
            return false;
    return true;
}

static weft_err run_low_rank(void *state, void *const *arg)
{
    low_rank_kernel *k = state;
    k->arg = arg;
    if (k->routed.models > 0 && !are_models(k, arg[WEFT_ROUTED_MODEL]))
        return WEFT_ERR_INPUT;
    weft_cpu__need_tame(k->engine->device, arg[0], k->rows * k->k);
    weft_par_for(((const weft_cpu *)k->engine->device)->threads, k->blocks,
                 WEFT_VEC_ROWS * k->row_ns, run_blocks, k);
    return k->run_base(k->base, arg);
}

/* -- Preparing ------------------------------------------------------------------------------ */

static void destroy_low_rank(void *state)
{
    low_rank_kernel *k = state;
    for (uint32_t i = 0; i < k->n_segment; i++)
        if (k->segment[i].u)
            weft_cpu__put_pack(k->engine, k->segment[i].u);
    if (k->routed.u)
        weft_cpu__put_pack(k->engine, k->routed.u);
    k->destroy_base(k->base);
    free(k);
}

static bool is_matrix(const weft_prep *p, uint32_t in, int64_t rows, int64_t cols)
{
    const weft_slot *s = &p->in[in];
    return weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) && s->tensor.rank == 2 &&
           s->tensor.dim[0] == rows && s->tensor.dim[1] == cols;
}

/* Raises the cost per row and the scratch memory per thread to those of a segment. */
static void widen(low_rank_kernel *k, double row_ns, int64_t row_floats)
{
    uint64_t bytes = (uint64_t)row_floats * WEFT_VEC_ROWS * sizeof(float);
    k->row_ns = row_ns > k->row_ns ? row_ns : k->row_ns;
    k->term_bytes = bytes > k->term_bytes ? bytes : k->term_bytes;
}

/* Reads the low-rank factors of a segment; false: not supported here. */
static bool read_low_rank(const weft_prep *p, low_rank_kernel *k, uint32_t u, segment_term *s)
{
    s->rank = p->in[u].tensor.dim[1];
    s->v = u + 1;
    if (!is_matrix(p, u, k->k, s->rank) || !p->in[u].weight || u + 1 >= p->n_in ||
        !is_matrix(p, u + 1, s->rank, k->n))
        return false;
    widen(k, multiply_ns * (double)s->rank * (double)(k->k + k->n), s->rank);
    return s->rank < INT32_MAX;
}

static bool is_vector(const weft_slot *s, weft_dtype dtype, int64_t n)
{
    return weft_slot_is(s, dtype, WEFT_LAYOUT_PLAIN) && s->weight && s->tensor.rank == 1 &&
           s->tensor.dim[0] == n;
}

/* Reads the sparse elements of a segment. */
static bool read_patch(const weft_prep *p, low_rank_kernel *k, uint32_t value, segment_term *s)
{
    if (value + 2 >= p->n_in)
        return false;
    const weft_slot *in = &p->in[value];
    int64_t n = in[0].tensor.rank == 1 ? in[0].tensor.dim[0] : -1;
    s->value = value;
    if (!is_vector(&in[0], WEFT_DTYPE_F32, n) || !is_vector(&in[1], WEFT_DTYPE_I32, n) ||
        !is_vector(&in[2], WEFT_DTYPE_I32, k->n + 1))
        return false;
    /* The data are NULL when weights are only counted. */
    if (in[1].tensor.data && in[2].tensor.data &&
        !weft_patch_is_sound(in[1].tensor.data, in[2].tensor.data, n, k->k, k->n))
        return false;
    widen(k, element_ns * (double)n, k->k);
    return k->k < INT32_MAX;
}

/* Reads the segments; false: not supported here. */
static bool read_segments(const weft_prep *p, low_rank_kernel *k)
{
    const int64_t *start;
    int64_t rows = p->out[0].tensor.dim[0];
    if (!weft_low_rank_starts(p->attrs, rows, &start, &k->n_segment))
        return false;
    for (uint32_t i = 0; i < k->n_segment; i++) {
        bool patched = p->op == WEFT_OP_PATCHED_MATMUL;
        uint32_t in = patched ? weft_patch_value(i) : weft_low_rank_u(i);
        segment_term *s = &k->segment[i];
        *s = (segment_term){.first = start[i], .block = k->blocks};
        s->rows = (i + 1 < k->n_segment ? start[i + 1] : rows) - start[i];
        k->blocks += (s->rows + WEFT_VEC_ROWS - 1) / WEFT_VEC_ROWS;
        if (in < p->n_in && p->in[in].present &&
            !(patched ? read_patch(p, k, in, s) : read_low_rank(p, k, in, s)))
            return false;
    }
    return true;
}

/* Reads the factors of a routed_matmul; false: not supported here. */
static bool read_routed(const weft_prep *p, low_rank_kernel *k)
{
    const weft_slot *u = &p->in[WEFT_ROUTED_U], *model = &p->in[WEFT_ROUTED_MODEL];
    routed_terms *r = &k->routed;
    if (p->n_in < WEFT_ROUTED_OPERANDS)
        return false;
    int64_t ranks = u->tensor.rank == 2 ? u->tensor.dim[1] : -1, most = 0;
    const int64_t *start;
    if (!u->weight || !is_matrix(p, WEFT_ROUTED_U, k->k, ranks) ||
        !is_matrix(p, WEFT_ROUTED_V, ranks, k->n) || ranks >= INT32_MAX ||
        !weft_slot_is(model, WEFT_DTYPE_I64, WEFT_LAYOUT_PLAIN) || model->tensor.rank != 1 ||
        model->tensor.dim[0] != k->rows ||
        !weft_slot_is(&p->in[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        !weft_low_rank_starts(p->attrs, ranks, &start, &r->models))
        return false;
    for (uint32_t m = 0; m < r->models; m++) {
        r->start[m] = start[m];
        r->start[m + 1] = ranks;
        int64_t own = (m + 1 < r->models ? start[m + 1] : ranks) - start[m];
        most = own > most ? own : most;
    }
    k->blocks = (k->rows + WEFT_VEC_ROWS - 1) / WEFT_VEC_ROWS;
    widen(k, multiply_ns * (double)most * (double)(k->k + k->n), most);
    return true;
}

static weft_err pack_segments(weft_prep *p, low_rank_kernel *k)
{
    if (k->routed.models > 0)
        return weft_cpu__pack_transposed(p, WEFT_ROUTED_U, &k->routed.u);
    for (uint32_t i = 0; i < k->n_segment; i++)
        if (k->segment[i].rank)
            WEFT_TRY(weft_cpu__pack_transposed(p, weft_low_rank_u(i), &k->segment[i].u));
    return WEFT_ERR_OK;
}

/* Wraps the kernel of the base GEMM that p already has: the terms of the segments run first. */
static weft_err wrap(weft_prep *p, low_rank_kernel *k, uint64_t scratch_bytes)
{
    k->run_base = p->run;
    k->base = p->state;
    k->destroy_base = p->destroy;
    k->term_offset = weft_align_up(p->scratch_bytes, 64);
    snprintf(k->variant, sizeof k->variant, "%s+%s", k->routed.models ? "routed" : "low_rank",
             p->variant);
    weft_err err = pack_segments(p, k);
    if (err == WEFT_ERR_OK && !weft_size_add(k->term_offset, scratch_bytes, &scratch_bytes))
        err = WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK) {
        p->run = NULL;
        destroy_low_rank(k);
        return err;
    }
    p->run = run_low_rank;
    p->state = k;
    p->destroy = destroy_low_rank;
    p->variant = k->variant;
    p->scratch_bytes = scratch_bytes;
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_low_rank(weft_prep *p)
{
    const weft_tensor *y = &p->out[0].tensor;
    uint64_t bytes = 0;
    bool routed = p->op == WEFT_OP_ROUTED_MATMUL;
    if (p->in[0].tensor.rank != y->rank || (!routed && y->rank != 2) || p->keep_nan)
        return WEFT_ERR_OK;
    low_rank_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->engine = p->engine;
    k->k = p->in[0].tensor.dim[y->rank - 1];
    k->n = y->dim[y->rank - 1];
    k->rows = y->dim[y->rank - 2]; /* dims before are 1 */
    k->out = p->n_in;
    bool fits = (routed ? read_routed(p, k) : read_segments(p, k)) &&
                weft_size_mul(k->term_bytes, weft_cpu__of(p)->threads, &bytes);
    weft_err err = fits ? weft_cpu__prepare_dnnl_onto(p) : WEFT_ERR_OK;
    if (p->run)
        return wrap(p, k, bytes);
    free(k);
    return err;
}
