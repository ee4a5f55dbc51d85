/* low_rank_matmul of f32: first the thin products of all segments into the result, by loops of our
 * own, then the base product of all rows by oneDNN on top of it, with bias and epilogue.
 *
 * A thin product is little arithmetic on two small weights: as calls of a library it would cost
 * more than the base product of few rows. Blocks of rows of one segment are shared out among the
 * threads: x u, which stays in the nearest cache, by sums along the rows of u transposed (once, at
 * load), then its product with v. */
#include "base/num.h"
#include "runtime/cpu_dnnl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct thin {
    int64_t first, rows, rank; /* rank 0: nothing is added to these rows */
    int64_t block;             /* number of its first block of rows */
    weft_cpu_pack *u;          /* [rank, k] */
    uint32_t v;                /* argument, [rank, n] */
} thin;

typedef struct low_rank_kernel {
    weft_engine *engine;
    int64_t k, n, blocks;
    double block_ns;
    uint32_t out; /* argument */
    uint32_t n_segment;
    thin segment[WEFT_LOW_RANK_SEGMENTS];
    uint64_t thin_offset, thin_bytes; /* scratch memory: x u of a block, for each thread */
    weft_kernel_fn run_base;
    void *base;
    void (*destroy_base)(void *base);
    char variant[64];
    void *const *arg;
} low_rank_kernel;

/* -- Running -------------------------------------------------------------------------------- */

static void run_block(const low_rank_kernel *k, const thin *s, int64_t block, float *part)
{
    static const float ones[WEFT_VEC_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const weft_cpu_vec *vec = ((const weft_cpu *)k->engine->device)->vec;
    int64_t from = (block - s->block) * WEFT_VEC_ROWS, left = s->rows - from;
    size_t rows = (size_t)(left < WEFT_VEC_ROWS ? left : WEFT_VEC_ROWS);
    size_t taps = (size_t)k->k, cols = (size_t)k->n, rank = (size_t)s->rank;
    const float *x = (const float *)k->arg[0] + (s->first + from) * k->k;
    float *y = (float *)k->arg[k->out] + (s->first + from) * k->n;
    if (rank == 0) {
        memset(y, 0, rows * cols * sizeof *y);
        return;
    }
    vec->dots(part, rank, x, taps, rows, weft_cpu__pack_data(s->u), taps, rank, taps);
    vec->pv(y, cols, part, rank, rows, k->arg[s->v], cols, rank, cols, ones);
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const low_rank_kernel *k = cx;
    char *scratch = (char *)k->arg[k->out + 1] + k->thin_offset;
    float *part = (float *)(scratch + weft_par_self() * k->thin_bytes);
    uint32_t s = 0;
    for (int64_t i = begin; i < end; i++) {
        while (s + 1 < k->n_segment && k->segment[s + 1].block <= i)
            s++;
        run_block(k, &k->segment[s], i, part);
    }
}

static weft_err run_low_rank(void *state, void *const *arg)
{
    low_rank_kernel *k = state;
    k->arg = arg;
    weft_par_for(((const weft_cpu *)k->engine->device)->threads, k->blocks, k->block_ns, run_blocks,
                 k);
    return k->run_base(k->base, arg);
}

/* -- Preparing ------------------------------------------------------------------------------ */

static void destroy_low_rank(void *state)
{
    low_rank_kernel *k = state;
    for (uint32_t i = 0; i < k->n_segment; i++)
        if (k->segment[i].u)
            weft_cpu__put_pack(k->engine, k->segment[i].u);
    k->destroy_base(k->base);
    free(k);
}

static bool is_matrix(const weft_prep *p, uint32_t in, int64_t rows, int64_t cols)
{
    const weft_slot *s = &p->in[in];
    return weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) && s->tensor.rank == 2 &&
           s->tensor.dim[0] == rows && s->tensor.dim[1] == cols;
}

/* Reads the segments; false: not for this kernel. */
static bool read_segments(const weft_prep *p, low_rank_kernel *k, int64_t *out_rank)
{
    const int64_t *start;
    int64_t rows = p->out[0].tensor.dim[0];
    if (!weft_low_rank_starts(p->attrs, rows, &start, &k->n_segment))
        return false;
    for (uint32_t i = 0; i < k->n_segment; i++) {
        uint32_t u = weft_low_rank_u(i);
        thin *s = &k->segment[i];
        *s = (thin){.first = start[i], .block = k->blocks, .v = u + 1};
        s->rows = (i + 1 < k->n_segment ? start[i + 1] : rows) - start[i];
        k->blocks += (s->rows + WEFT_VEC_ROWS - 1) / WEFT_VEC_ROWS;
        if (u >= p->n_in || !p->in[u].present)
            continue;
        s->rank = p->in[u].tensor.dim[1];
        if (!is_matrix(p, u, k->k, s->rank) || !p->in[u].weight || u + 1 >= p->n_in ||
            !is_matrix(p, u + 1, s->rank, k->n))
            return false;
        *out_rank = s->rank > *out_rank ? s->rank : *out_rank;
    }
    return true;
}

static weft_err pack_segments(weft_prep *p, low_rank_kernel *k)
{
    for (uint32_t i = 0; i < k->n_segment; i++)
        if (k->segment[i].rank)
            WEFT_TRY(weft_cpu__pack_transposed(p, weft_low_rank_u(i), &k->segment[i].u));
    return WEFT_ERR_OK;
}

/* Puts the thin products before the base product that p has already. */
static weft_err wrap(weft_prep *p, low_rank_kernel *k, uint64_t scratch_bytes)
{
    k->run_base = p->run;
    k->base = p->state;
    k->destroy_base = p->destroy;
    k->thin_offset = weft_align_up(p->scratch_bytes, 64);
    snprintf(k->variant, sizeof k->variant, "low_rank+%s", p->variant);
    weft_err err = pack_segments(p, k);
    if (err == WEFT_ERR_OK && !weft_size_add(k->thin_offset, scratch_bytes, &scratch_bytes))
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
    static const double multiply_ns = 0.02;
    const weft_tensor *y = &p->out[0].tensor;
    int64_t rank = 0;
    uint64_t bytes;
    if (p->in[0].tensor.rank != 2 || y->rank != 2)
        return WEFT_ERR_OK;
    low_rank_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->engine = p->engine;
    k->k = p->in[0].tensor.dim[1];
    k->n = y->dim[1];
    k->out = p->n_in;
    bool fits = read_segments(p, k, &rank) &&
                weft_size_mul((uint64_t)rank, WEFT_VEC_ROWS * sizeof(float), &k->thin_bytes) &&
                weft_size_mul(k->thin_bytes, weft_cpu__of(p)->threads, &bytes);
    k->block_ns = multiply_ns * WEFT_VEC_ROWS * (double)rank * (double)(k->k + k->n);
    weft_err err = fits ? weft_cpu__prepare_dnnl_onto(p) : WEFT_ERR_OK;
    if (p->run)
        return wrap(p, k, bytes);
    free(k);
    return err;
}
