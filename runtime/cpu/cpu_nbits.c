/* matmul_nbits: weights stay packed in memory, so that a product with few rows reads an eighth (4
 * bits) of the bytes that f32 weights have.
 *
 * Rows of x are first brought into the order of the packed bits (cpu_vec_nbits_body.h). With few
 * rows weights are unpacked in registers; with many, 16 rows of weights at a time are unpacked into
 * the cache, and all rows of x are multiplied by them. Threads share rows of weights. */
#include "base/num.h"
#include "ops/nbits.h"
#include "runtime/cpu/cpu_int.h"

/* From MANY rows of x on, weights are unpacked into the cache. */
enum { MANY = 12, COLUMNS = 16, GROUP_WORDS = 16 };
static const double read_ns = 0.02, multiply_ns = 0.03, order_ns = 0.3;

typedef struct nbits_kernel {
    weft_nbits size;
    weft_vec_nbits form;
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool has_zeros;
    int64_t rows;
    uint64_t thread_floats; /* of scratch memory behind the ordered rows */
    void *const *arg;
} nbits_kernel;

static const float *zeros_of(const nbits_kernel *k, int64_t row)
{
    return k->has_zeros ? (const float *)k->arg[3] + row * k->size.blocks : NULL;
}

static const uint8_t *weights_of(const nbits_kernel *k, int64_t row)
{
    return (const uint8_t *)k->arg[1] + row * k->size.blocks * k->size.block_bytes;
}

static void order_rows(void *cx, int64_t begin, int64_t end)
{
    const nbits_kernel *k = cx;
    float *to = k->arg[k->n_in + 1];
    for (int64_t r = begin; r < end; r++)
        k->vec->nbits_order(&k->form, to + (size_t)r * k->form.x_stride,
                            (const float *)k->arg[0] + r * k->size.k, (size_t)k->size.k);
}

/* Groups of COLUMNS rows of weights, for few rows of x. */
static void run_few(void *cx, int64_t begin, int64_t end)
{
    const nbits_kernel *k = cx;
    int64_t from = begin * COLUMNS, to = end * COLUMNS < k->size.n ? end * COLUMNS : k->size.n;
    k->vec->nbits_dots(&k->form, (float *)k->arg[k->n_in] + from, (size_t)k->size.n,
                       k->arg[k->n_in + 1], (size_t)k->rows, weights_of(k, from),
                       (const float *)k->arg[2] + from * k->size.blocks, zeros_of(k, from),
                       (size_t)(to - from));
}

/* Rows [from, from + n) of the weights as f32, in the order of x; zeros where x has its sums. */
static void unpack_rows(const nbits_kernel *k, int64_t from, int64_t n, float *w)
{
    size_t taps = (size_t)GROUP_WORDS * 32 / (size_t)k->form.bits;
    for (int64_t i = 0; i < n; i++)
        for (size_t g = 0; g < k->form.groups; g++, w += taps + GROUP_WORDS) {
            k->vec->nbits_unpack(&k->form, w, weights_of(k, from + i),
                                 (const float *)k->arg[2] + (from + i) * k->size.blocks,
                                 zeros_of(k, from + i), g);
            memset(w + taps, 0, GROUP_WORDS * sizeof *w);
        }
}

/* Groups of COLUMNS rows of weights, for many rows of x. */
static void run_many(void *cx, int64_t begin, int64_t end)
{
    const nbits_kernel *k = cx;
    const float *x = k->arg[k->n_in + 1];
    size_t taps = k->form.x_stride;
    float *w =
        (float *)k->arg[k->n_in + 1] + (size_t)k->rows * taps + weft_par_self() * k->thread_floats;
    for (int64_t g = begin; g < end; g++) {
        int64_t from = g * COLUMNS, n = k->size.n - from < COLUMNS ? k->size.n - from : COLUMNS;
        unpack_rows(k, from, n, w);
        k->vec->dots((float *)k->arg[k->n_in] + from, (size_t)k->size.n, x, taps, (size_t)k->rows,
                     w, taps, (size_t)n, taps);
    }
}

static weft_err run_nbits(void *state, void *const *arg)
{
    nbits_kernel *k = state;
    double taps = (double)k->size.k, rows = (double)k->rows;
    k->arg = arg;
    weft_par_for(k->threads, k->rows, taps * order_ns, order_rows, k);
    weft_par_for(k->threads, (k->size.n + COLUMNS - 1) / COLUMNS,
                 COLUMNS * taps * (read_ns + multiply_ns * rows),
                 k->rows < MANY ? run_few : run_many, k);
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
    f->x_stride = f->groups * GROUP_WORDS * (32 / (size_t)s->bits + 1);
}

/* Bytes of the ordered rows, and of what each thread has; false: too many. */
static bool size_scratch(nbits_kernel *k, uint64_t *out)
{
    uint64_t rows, threads = 0;
    k->thread_floats = k->rows < MANY ? 0 : COLUMNS * k->form.x_stride;
    return weft_size_mul((uint64_t)k->rows, k->form.x_stride * sizeof(float), &rows) &&
           weft_size_mul(k->thread_floats * sizeof(float), k->threads, &threads) &&
           weft_size_add(rows, threads, out);
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
    set_form(&k);
    if (!size_scratch(&k, &scratch))
        return WEFT_ERR_OK;
    p->scratch_bytes = scratch;
    return weft_cpu__set_kernel(p, run_nbits, &k, sizeof k, "nbits");
}
