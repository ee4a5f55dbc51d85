/* adapter_delta of f32: the low-rank products of the adapters that the rows of a run use.
 *
 * Successive parts of the batch with one adapter are a segment. Blocks of rows of one segment are
 * distributed over the threads: x a^T by dot products, which stay in the L1 cache, then their
 * product with b. Sites share x, so the second and third of q, k and v find it in the cache. */
#include "base/num.h"
#include "ops/adapter_rows.h"
#include "runtime/cpu/cpu_int.h"

typedef struct segment {
    int64_t first, rows;
    int64_t block; /* index of its first block of rows */
    const weft_adapter *adapter;
} segment;

typedef struct adapter_kernel {
    const weft_cpu *cpu;
    const weft_adapter_rows *run;
    int64_t rows, k, n; /* n: columns of the result */
    uint32_t n_site;
    uint32_t *site; /* numbers; UINT32_MAX: the program has none of the name */
    int64_t *width;
    uint64_t part_bytes; /* scratch memory for x a^T, per thread; then segments */
    uint32_t n_segment;
    const float *x;
    float *y;
    char *scratch;
} adapter_kernel;

/* -- Running -------------------------------------------------------------------------------- */

static segment *segments_of(const adapter_kernel *k)
{
    return (segment *)(void *)(k->scratch + k->part_bytes * k->cpu->threads);
}

static void run_block(const adapter_kernel *k, const segment *s, int64_t block, float *part)
{
    static const float ones[WEFT_VEC_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const weft_cpu_vec *vec = k->cpu->vec;
    int64_t from = (block - s->block) * WEFT_VEC_ROWS, left = s->rows - from;
    size_t rows = (size_t)(left < WEFT_VEC_ROWS ? left : WEFT_VEC_ROWS), all = (size_t)k->n;
    const float *x = k->x + (s->first + from) * k->k;
    float *y = k->y + (s->first + from) * k->n;
    const weft_adapter_rows one = {.of = &s->adapter, .n = 1};
    for (uint32_t i = 0; i < k->n_site; y += k->width[i++]) {
        const weft_adapter_factors *f =
            weft_adapter_factors_of(&one, 0, k->site[i], k->k, k->width[i]);
        size_t cols = (size_t)k->width[i], taps = (size_t)k->k;
        size_t rank = f ? (size_t)f->rank : 0;
        for (size_t r = 0; !f && r < rows; r++)
            memset(y + r * all, 0, cols * sizeof *y);
        if (!f)
            continue;
        vec->dots(part, rank, x, taps, rows, f->a, taps, rank, taps);
        vec->pv(y, all, part, rank, rows, f->b, cols, rank, cols, ones);
    }
}

static void run_blocks(void *cx, int64_t begin, int64_t end)
{
    const adapter_kernel *k = cx;
    const segment *at = segments_of(k);
    float *part = (float *)(void *)(k->scratch + weft_par_self() * k->part_bytes);
    uint32_t s = 0;
    for (int64_t i = begin; i < end; i++) {
        while (s + 1 < k->n_segment && at[s + 1].block <= i)
            s++;
        run_block(k, &at[s], i, part);
    }
}

/* Divides the rows; returns the number of blocks. */
static int64_t make_segments(adapter_kernel *k, int64_t parts)
{
    segment *at = segments_of(k);
    int64_t each = k->rows / parts, blocks = 0;
    k->n_segment = 0;
    for (int64_t p = 0; p < parts; p++) {
        const weft_adapter *adapter = p < k->run->n ? k->run->of[p] : NULL;
        segment *last = k->n_segment ? &at[k->n_segment - 1] : NULL;
        if (last && last->adapter == adapter) {
            last->rows += each;
            continue;
        }
        at[k->n_segment++] = (segment){.first = p * each, .rows = each, .adapter = adapter};
    }
    for (uint32_t i = 0; i < k->n_segment; i++) {
        at[i].block = blocks;
        blocks += (at[i].rows + WEFT_VEC_ROWS - 1) / WEFT_VEC_ROWS;
    }
    return blocks;
}

static weft_err run_adapter(void *state, void *const *arg)
{
    static const double multiply_ns = 0.02, usual_rank = 8;
    adapter_kernel *k = state;
    int64_t parts = k->run->n > 0 ? k->run->n : 1;
    if (k->rows % parts != 0)
        return WEFT_ERR_INPUT;
    k->x = arg[0];
    k->y = arg[1];
    k->scratch = arg[2];
    int64_t blocks = make_segments(k, parts);
    weft_par_for(k->cpu->threads, blocks,
                 WEFT_VEC_ROWS * multiply_ns * usual_rank * (double)(k->k + k->n), run_blocks, k);
    return WEFT_ERR_OK;
}

/* -- Preparing ------------------------------------------------------------------------------ */

static void destroy_adapter(void *state)
{
    adapter_kernel *k = state;
    free(k->site);
    free(k->width);
    free(k);
}

static weft_err read_sites(const weft_prep *p, adapter_kernel *k)
{
    const weft_attr *sites = weft_attrs_find(p->attrs, WEFT_ATTR_SITES);
    const int64_t *width = weft_attrs_ints(p->attrs, WEFT_ATTR_WIDTHS, &k->n_site);
    k->site = calloc(k->n_site + 1, sizeof *k->site);
    k->width = calloc(k->n_site + 1, sizeof *k->width);
    if (!k->site || !k->width)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < k->n_site; i++) {
        k->site[i] = weft_adapter_site(p->adapters, sites->u.strs[i]);
        k->width[i] = width[i];
    }
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_adapter(weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor, *y = &p->out[0].tensor;
    uint64_t parts = 0, bytes = 0;
    if (!p->adapters || x->dim[x->rank - 1] == 0 ||
        !weft_slot_is(&p->in[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN))
        return WEFT_ERR_OK;
    adapter_kernel *k = calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->cpu = weft_cpu__of(p);
    k->run = p->adapters;
    k->k = x->dim[x->rank - 1];
    k->n = y->dim[y->rank - 1];
    k->rows = weft_slot_numel(&p->in[0]) / k->k;
    k->part_bytes = WEFT_VEC_ROWS * WEFT_ADAPTER_RANK_MAX * sizeof(float);
    weft_err err = read_sites(p, k);
    if (err == WEFT_ERR_OK && (!weft_size_mul((uint64_t)k->rows, sizeof(segment), &bytes) ||
                               !weft_size_add(bytes, k->part_bytes * k->cpu->threads, &parts)))
        err = WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK) {
        destroy_adapter(k);
        return err;
    }
    p->run = run_adapter;
    p->state = k;
    p->destroy = destroy_adapter;
    p->variant = "adapter";
    p->scratch_bytes = parts;
    return WEFT_ERR_OK;
}
