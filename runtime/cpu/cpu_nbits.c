/* matmul_nbits: a few rows of weights at a time are unpacked into the cache, then multiplied with
 * all rows of x by dot products. Weights stay packed in memory, so a product with one row reads an
 * eighth (4 bits) of the bytes that f32 weights have. Threads share rows of weights. */
#include "base/num.h"
#include "ops/nbits.h"
#include "runtime/cpu/cpu_int.h"

enum { NBITS_ROWS = 16 }; /* of weights, unpacked together */
static const double unpack_ns = 0.1, multiply_ns = 0.05;

typedef struct nbits_kernel {
    weft_nbits size;
    const weft_cpu_vec *vec;
    uint32_t threads, n_in;
    bool has_zeros;
    int64_t rows;
    uint64_t thread_bytes; /* of scratch memory: weights, then the numbers of a block */
    void *const *arg;
} nbits_kernel;

static void unpack_row(const nbits_kernel *k, int64_t row, uint8_t *q, float *w)
{
    const weft_nbits *s = &k->size;
    const uint8_t *b = (const uint8_t *)k->arg[1] + row * s->blocks * s->block_bytes;
    const float *scale = (const float *)k->arg[2] + row * s->blocks;
    const float *zero = k->has_zeros ? (const float *)k->arg[3] + row * s->blocks : NULL;
    for (int64_t i = 0; i < s->blocks; i++) {
        int64_t from = i * s->block, n = s->k - from < s->block ? s->k - from : s->block;
        float z = zero ? zero[i] : (float)(1 << (s->bits - 1));
        weft_nbits_split(q, b + i * s->block_bytes, s->bits, n);
        k->vec->from_u8(w + from, q, (size_t)n);
        k->vec->affine(w + from, w + from, scale[i], -z * scale[i], (size_t)n);
    }
}

/* Groups [begin, end) of rows of weights. */
static void run_groups(void *cx, int64_t begin, int64_t end)
{
    const nbits_kernel *k = cx;
    const weft_nbits *s = &k->size;
    float *w = (float *)((char *)k->arg[k->n_in + 1] + weft_par_self() * k->thread_bytes);
    uint8_t *q = (uint8_t *)(w + NBITS_ROWS * s->k);
    const float *x = k->arg[0];
    float *y = k->arg[k->n_in];
    size_t taps = (size_t)s->k, cols = (size_t)s->n;
    for (int64_t g = begin; g < end; g++) {
        int64_t from = g * NBITS_ROWS, n = s->n - from < NBITS_ROWS ? s->n - from : NBITS_ROWS;
        for (int64_t i = 0; i < n; i++)
            unpack_row(k, from + i, q, w + i * s->k);
        for (int64_t r = 0; r < k->rows; r += WEFT_VEC_ROWS) {
            size_t rows = (size_t)(k->rows - r < WEFT_VEC_ROWS ? k->rows - r : WEFT_VEC_ROWS);
            k->vec->dots(y + r * s->n + from, cols, x + r * s->k, taps, rows, w, taps, (size_t)n,
                         taps);
        }
    }
}

static weft_err run_nbits(void *state, void *const *arg)
{
    nbits_kernel *k = state;
    k->arg = arg;
    double row_ns = (double)k->size.k * (unpack_ns + multiply_ns * (double)k->rows);
    weft_par_for(k->threads, (k->size.n + NBITS_ROWS - 1) / NBITS_ROWS, NBITS_ROWS * row_ns,
                 run_groups, k);
    return WEFT_ERR_OK;
}

static bool is_plain(const weft_slot *s, weft_dtype dtype, int64_t numel)
{
    return weft_slot_is(s, dtype, WEFT_LAYOUT_PLAIN) && weft_slot_numel(s) == numel;
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
    uint64_t bytes = (uint64_t)s->k * NBITS_ROWS * sizeof(float) + (uint64_t)s->block;
    k.thread_bytes = weft_align_up(bytes, 64);
    if (!weft_size_mul(k.thread_bytes, k.threads, &scratch))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_cpu__set_kernel(p, run_nbits, &k, sizeof k, "nbits"));
    p->scratch_bytes = scratch;
    return WEFT_ERR_OK;
}
