/* matmul_nbits: weights stay packed in memory, so that a product with few rows reads an eighth (4
 * bits) of the bytes that f32 weights have.
 *
 * Few rows of x are brought into the order of the packed bits (cpu_vec_nbits_body.h), and weights
 * are unpacked in registers. For many rows, panels of 32 columns of weights are unpacked into the
 * cache, and all rows of x are multiplied by them: as f32, or where attribute accuracy_level allows
 * (4: int8) as bytes, each block of a row of x with a scale of its own. Rows that are not finite
 * are always multiplied as f32. Threads share panels. */
#include "base/num.h"
#include "ops/nbits.h"
#include "runtime/cpu/cpu_int.h"

#include <math.h>
#include <stdatomic.h>

/* From MANY rows of x on, weights are unpacked into the cache; as bytes from MANY_BYTES on. */
enum {
    MANY = 12,
    MANY_BYTES = 16,
    COLUMNS = 16,
    PANEL = WEFT_VEC_PANEL,
    TILE = 24,
    GROUP_WORDS = 16
};
enum { ACCURACY_INT8 = 4, BLOCK_MAX = 4096 }; /* sums of a block fit 32 bits */
static const double read_ns = 0.02, multiply_ns = 0.03, order_ns = 0.3;

typedef struct nbits_kernel {
    weft_nbits size;
    weft_vec_nbits form;
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool has_zeros, as_bytes, few;
    int64_t rows;
    /* Floats of scratch memory: rows of x in order or as bytes first, then what a thread has. */
    uint64_t row_floats, thread_floats;
    void *const *arg;
    atomic_bool irregular; /* x has numbers that the form of its rows cannot have */
} nbits_kernel;

static float *rows_of(const nbits_kernel *k)
{
    return k->arg[k->n_in + 1];
}

static const float *zeros_of(const nbits_kernel *k, int64_t row)
{
    return k->has_zeros ? (const float *)k->arg[3] + row * k->size.blocks : NULL;
}

static const uint8_t *weights_of(const nbits_kernel *k, int64_t row)
{
    return (const uint8_t *)k->arg[1] + row * k->size.blocks * k->size.block_bytes;
}

/* -- Few rows ------------------------------------------------------------------------------- */

/* With zero points, sums of x are multiplied by them: infinities would meet each other. */
static bool sums_are_finite(const nbits_kernel *k, const float *ordered)
{
    size_t taps = GROUP_WORDS * 32 / (size_t)k->form.bits;
    for (size_t g = 0; g < k->form.groups; g++)
        for (size_t d = 0; d < GROUP_WORDS; d++)
            if (!isfinite(ordered[g * (taps + GROUP_WORDS) + taps + d]))
                return false;
    return true;
}

static void order_rows(void *cx, int64_t begin, int64_t end)
{
    nbits_kernel *k = cx;
    for (int64_t r = begin; r < end; r++) {
        float *to = rows_of(k) + (size_t)r * k->form.x_stride;
        k->vec->nbits_order(&k->form, to, (const float *)k->arg[0] + r * k->size.k,
                            (size_t)k->size.k);
        if (k->has_zeros && !sums_are_finite(k, to))
            atomic_store(&k->irregular, true);
    }
}

/* Groups of COLUMNS rows of weights. */
static void run_few(void *cx, int64_t begin, int64_t end)
{
    const nbits_kernel *k = cx;
    int64_t from = begin * COLUMNS, to = end * COLUMNS < k->size.n ? end * COLUMNS : k->size.n;
    (k->as_bytes ? k->vec->nbits_byte_dots : k->vec->nbits_dots)(
        &k->form, (float *)k->arg[k->n_in] + from, (size_t)k->size.n, rows_of(k), (size_t)k->rows,
        weights_of(k, from), (const float *)k->arg[2] + from * k->size.blocks, zeros_of(k, from),
        (size_t)(to - from));
}

/* -- Panels --------------------------------------------------------------------------------- */

/* What a thread has: parts of PANEL columns each. */
typedef struct panel {
    float *weights;        /* elements [k], as f32 or four bytes in each */
    float *words;          /* [words] of the packed weights, as they are */
    float *scales, *zeros; /* [blocks] */
    float *tile;           /* [TILE] rows of results, where columns are missing */
} panel;

static panel panel_of(const nbits_kernel *k)
{
    size_t blocks = (size_t)k->size.blocks * PANEL;
    panel p = {.scales = rows_of(k) + k->row_floats + weft_par_self() * k->thread_floats};
    p.zeros = p.scales + blocks;
    p.words = p.zeros + blocks;
    p.tile = p.words + k->form.words * PANEL;
    p.weights = p.tile + (size_t)TILE * PANEL;
    return p;
}

static uint64_t floats_of_panel(const nbits_kernel *k)
{
    uint64_t blocks = (uint64_t)k->size.blocks;
    return PANEL * (2 * blocks + k->form.words + TILE + blocks * (uint64_t)k->size.block);
}

/* Words, scales and zero points of columns [from, from + n); 0 for those that are missing. */
static void read_panel(const nbits_kernel *k, const panel *p, int64_t from, size_t n)
{
    size_t blocks = (size_t)k->size.blocks;
    const float middle = (float)(1 << (k->size.bits - 1));
    if (n < PANEL)
        memset(p->scales, 0, PANEL * (2 * blocks + k->form.words) * sizeof(float));
    k->vec->transpose(p->words, PANEL, (const float *)(const void *)weights_of(k, from),
                      k->form.words, n, k->form.words);
    k->vec->transpose(p->scales, PANEL, (const float *)k->arg[2] + (size_t)from * blocks, blocks, n,
                      blocks);
    if (k->has_zeros)
        k->vec->transpose(p->zeros, PANEL, zeros_of(k, from), blocks, n, blocks);
    else
        for (size_t i = 0; i < blocks * PANEL; i++)
            p->zeros[i] = middle;
}

static void unpack_panel(const nbits_kernel *k, const panel *p)
{
    size_t block = (size_t)k->size.block, words = block * (size_t)k->size.bits / 32;
    for (size_t b = 0; b < (size_t)k->size.blocks; b++) {
        size_t left = (size_t)k->size.k - b * block;
        k->vec->nbits_unpack(k->size.bits, p->weights + b * block * PANEL,
                             (const uint32_t *)(const void *)(p->words + b * words * PANEL),
                             p->scales + b * PANEL, p->zeros + b * PANEL,
                             left < block ? left : block);
    }
}

/* Rows of x as bytes: [rows][blocks * block], then their scales and sums [rows][blocks], behind the
 * ordered rows of few. */
static weft_vec_bytes bytes_of(const nbits_kernel *k)
{
    size_t stride = (size_t)(k->size.blocks * k->size.block), rows = (size_t)k->rows;
    float *q = rows_of(k) + (k->few ? rows * k->form.x_stride : 0);
    float *scale = q + rows * stride / sizeof(float);
    return (weft_vec_bytes){.q = (const int8_t *)q,
                            .stride = stride,
                            .scale = scale,
                            .sum = scale + rows * (size_t)k->size.blocks};
}

static void quantise_rows(void *cx, int64_t begin, int64_t end)
{
    nbits_kernel *k = cx;
    weft_vec_bytes to = bytes_of(k);
    size_t block = (size_t)k->size.block, blocks = (size_t)k->size.blocks;
    int8_t *q = (int8_t *)rows_of(k) + (to.q - (const int8_t *)rows_of(k));
    float *scale = rows_of(k) + (to.scale - rows_of(k)), *sum = scale + (to.sum - to.scale);
    for (size_t r = (size_t)begin; r < (size_t)end; r++) {
        const float *x = (const float *)k->arg[0] + r * (size_t)k->size.k;
        for (size_t b = 0; b < blocks; b++) {
            size_t left = (size_t)k->size.k - b * block, n = left < block ? left : block;
            int8_t *at = q + r * to.stride + b * block;
            memset(at + n, 0, block - n);
            if (!k->vec->nbits_quantise(at, scale + r * blocks + b, sum + r * blocks + b,
                                        x + b * block, n))
                atomic_store(&k->irregular, true);
        }
        if (k->few)
            k->vec->nbits_byte_order(&k->form, rows_of(k) + r * k->form.x_stride, q + r * to.stride,
                                     scale + r * blocks);
    }
}

/* Rows [row, row + n) of the results of a panel. */
static void multiply_rows(const nbits_kernel *k, const panel *p, bool as_bytes, int64_t row,
                          int64_t n, float *out, size_t out_stride)
{
    size_t taps = (size_t)k->size.k, blocks = (size_t)k->size.blocks;
    if (!as_bytes) {
        k->vec->panel(out, out_stride, (const float *)k->arg[0] + (size_t)row * taps, taps,
                      (size_t)n, p->weights, taps);
        return;
    }
    weft_vec_bytes x = bytes_of(k);
    x.q += (size_t)row * x.stride;
    x.scale += (size_t)row * blocks;
    x.sum += (size_t)row * blocks;
    k->vec->nbits_bytes(out, out_stride, &x, (size_t)n, (const uint32_t *)(void *)p->weights,
                        p->scales, p->zeros, blocks, (size_t)k->size.block / 4);
}

static void run_panels(const nbits_kernel *k, bool as_bytes, int64_t begin, int64_t end)
{
    panel p = panel_of(k);
    size_t stride = (size_t)k->size.n;
    for (int64_t from = begin * PANEL; from < end * PANEL && from < k->size.n; from += PANEL) {
        int64_t n = k->size.n - from < PANEL ? k->size.n - from : PANEL;
        float *out = (float *)k->arg[k->n_in] + from;
        read_panel(k, &p, from, (size_t)n);
        if (as_bytes)
            k->vec->nbits_spread(k->size.bits, (uint32_t *)(void *)p.weights,
                                 (const uint32_t *)(const void *)p.words, k->form.words);
        else
            unpack_panel(k, &p);
        if (n == PANEL) {
            multiply_rows(k, &p, as_bytes, 0, k->rows, out, stride);
            continue;
        }
        for (int64_t r = 0; r < k->rows; r += TILE) {
            int64_t rows = k->rows - r < TILE ? k->rows - r : TILE;
            multiply_rows(k, &p, as_bytes, r, rows, p.tile, PANEL);
            for (int64_t i = 0; i < rows; i++)
                memcpy(out + (size_t)(r + i) * stride, p.tile + i * PANEL,
                       (size_t)n * sizeof(float));
        }
    }
}

static void run_floats(void *cx, int64_t begin, int64_t end)
{
    run_panels(cx, false, begin, end);
}

static void run_bytes(void *cx, int64_t begin, int64_t end)
{
    run_panels(cx, true, begin, end);
}

static weft_err run_nbits(void *state, void *const *arg)
{
    nbits_kernel *k = state;
    double taps = (double)k->size.k, rows = (double)k->rows, cost = read_ns + multiply_ns * rows;
    weft_par_fn fn = k->few ? run_few : k->as_bytes ? run_bytes : run_floats;
    k->arg = arg;
    atomic_store(&k->irregular, false);
    if (k->few || k->as_bytes)
        weft_par_for(k->threads, k->rows, taps * order_ns, k->as_bytes ? quantise_rows : order_rows,
                     k);
    if (atomic_load(&k->irregular))
        fn = run_floats;
    int64_t columns = fn == run_few ? COLUMNS : PANEL;
    weft_par_for(k->threads, (k->size.n + columns - 1) / columns, (double)columns * taps * cost, fn,
                 k);
    return WEFT_ERR_OK;
}

static bool is_plain(const weft_slot *s, weft_dtype dtype, int64_t numel)
{
    return weft_slot_is(s, dtype, WEFT_LAYOUT_PLAIN) && weft_slot_numel(s) == numel;
}

/* How the vector loops read the weights. A block has at least 16 elements of at least 2 bits: a
 * word or more. */
static void set_form(nbits_kernel *k)
{
    const weft_nbits *s = &k->size;
    weft_vec_nbits *f = &k->form;
    f->bits = s->bits;
    f->blocks = (size_t)s->blocks;
    f->words = (size_t)(s->blocks * s->block_bytes) / 4;
    f->groups = (f->words + GROUP_WORDS - 1) / GROUP_WORDS;
    while (INT64_C(4) << f->shift < s->block_bytes)
        f->shift++;
    f->used = ((size_t)s->k * (size_t)s->bits + 31) / 32;
    f->x_stride = f->groups * GROUP_WORDS *
                  (k->as_bytes ? 8 / (size_t)s->bits + 2 : 32 / (size_t)s->bits + 1);
}

/* Bytes of scratch memory; false: too many. */
static bool size_scratch(nbits_kernel *k, uint64_t *out)
{
    uint64_t rows = (uint64_t)k->rows, blocks = (uint64_t)k->size.blocks, row, threads, floats;
    k->thread_floats = floats_of_panel(k);
    row = k->few ? k->form.x_stride : 0;
    if (k->as_bytes)
        row += blocks * (uint64_t)k->size.block / sizeof(float) + 2 * blocks;
    if (!weft_size_mul(rows, row, &k->row_floats) ||
        !weft_size_mul(k->thread_floats, k->threads, &threads) ||
        !weft_size_add(k->row_floats, threads, &floats))
        return false;
    return weft_size_mul(floats, sizeof(float), out);
}

weft_err weft_cpu__prepare_nbits(weft_prep *p)
{
    const weft_slot *x = &p->in[0];
    nbits_kernel k = {.vec = weft_cpu__of(p)->vec,
                      .threads = weft_cpu__of(p)->threads,
                      .n_in = p->n_in,
                      .has_zeros = p->n_in > 3 && p->in[3].present};
    weft_nbits *s = &k.size;
    uint64_t scratch;
    if (!weft_nbits_make(weft_attrs_int(p->attrs, WEFT_ATTR_K, 0),
                         weft_attrs_int(p->attrs, WEFT_ATTR_N, 0),
                         weft_attrs_int(p->attrs, WEFT_ATTR_BITS, 4),
                         weft_attrs_int(p->attrs, WEFT_ATTR_BLOCK_SIZE, 0), s))
        return WEFT_ERR_OK;
    k.rows = weft_slot_numel(x) / s->k;
    if (!is_plain(x, WEFT_DTYPE_F32, k.rows * s->k) || x->tensor.rank < 1 ||
        x->tensor.dim[x->tensor.rank - 1] != s->k ||
        !is_plain(&p->in[1], WEFT_DTYPE_U8, s->n * s->blocks * s->block_bytes) ||
        !is_plain(&p->in[2], WEFT_DTYPE_F32, s->n * s->blocks) ||
        (k.has_zeros && !is_plain(&p->in[3], WEFT_DTYPE_F32, s->n * s->blocks)) ||
        !is_plain(&p->out[0], WEFT_DTYPE_F32, k.rows * s->n))
        return WEFT_ERR_OK;
    k.as_bytes = weft_attrs_int(p->attrs, WEFT_ATTR_ACCURACY_LEVEL, 0) == ACCURACY_INT8 &&
                 s->block <= BLOCK_MAX && weft_cpu__has_bytes(k.vec);
    k.few = k.rows < (k.as_bytes ? MANY_BYTES : MANY);
    set_form(&k);
    if (!size_scratch(&k, &scratch))
        return WEFT_ERR_OK;
    p->scratch_bytes = scratch;
    return weft_cpu__set_kernel(p, run_nbits, &k, sizeof k, "nbits");
}
