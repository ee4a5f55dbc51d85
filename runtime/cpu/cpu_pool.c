/* Pooling of values in blocks of 16 channels where oneDNN has only its reference implementation:
 * its kernels need vectors as wide as the block, and lose NaN in a maximum. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

enum { DIMS = 3, BLOCK = 16, TAPS_MAX = 1024 };
static const double ns_per_tap = 2;

typedef struct pool_kernel {
    const weft_cpu_vec *vec;
    uint32_t threads;
    bool max, counts_padding;
    int64_t planes; /* images times blocks of channels */
    int64_t in[DIMS], out[DIMS];
    int64_t kernel[DIMS], stride[DIMS], dilation[DIMS], before[DIMS], after[DIMS];
    void *const *arg; /* of the current run */
} pool_kernel;

/* The part of a window inside the image: kernel positions [first, end) of each dimension. */
typedef struct pool_view {
    int64_t first[DIMS], end[DIMS];
    int64_t counted[DIMS]; /* positions with padding */
} pool_view;

typedef struct pool_taps {
    pool_view of;
    bool known;
    int32_t at[TAPS_MAX]; /* distances in floats from the window's position 0 */
    size_t n;
    float count; /* of what is averaged, at least 1 */
} pool_taps;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Positions of a dilated kernel below `room`. */
static int64_t positions(int64_t room, int64_t dilation, int64_t kernel)
{
    return room <= 0 ? 0 : least((room + dilation - 1) / dilation, kernel);
}

/* The part of dimension d for result o; returns where the window begins. */
static int64_t place(const pool_kernel *k, int d, int64_t o, pool_view *v)
{
    int64_t start = o * k->stride[d] - k->before[d];
    v->first[d] = positions(-start, k->dilation[d], k->kernel[d]);
    v->end[d] = positions(k->in[d] - start, k->dilation[d], k->kernel[d]);
    v->counted[d] = positions(k->in[d] + k->after[d] - start, k->dilation[d], k->kernel[d]);
    return start;
}

static void list_taps(const pool_kernel *k, const pool_view *v, pool_taps *t)
{
    if (t->known && memcmp(&t->of, v, sizeof *v) == 0)
        return;
    t->of = *v;
    t->known = true;
    t->n = 0;
    for (int64_t z = v->first[0]; z < v->end[0]; z++)
        for (int64_t y = v->first[1]; y < v->end[1]; y++)
            for (int64_t x = v->first[2]; x < v->end[2]; x++)
                t->at[t->n++] =
                    (int32_t)((((z * k->dilation[0] * k->in[1]) + y * k->dilation[1]) * k->in[2] +
                               x * k->dilation[2]) *
                              BLOCK);
    double n = (double)t->n;
    if (k->counts_padding)
        n = (double)(v->counted[0] * v->counted[1] * v->counted[2]);
    t->count = n > 1 ? (float)n : 1;
}

/* A task is a row of results. */
static void pool_rows(void *cx, int64_t begin, int64_t end)
{
    const pool_kernel *k = cx;
    int64_t in_plane = k->in[0] * k->in[1] * k->in[2] * BLOCK;
    pool_taps taps = {.known = false};
    pool_view v;
    for (int64_t r = begin; r < end; r++) {
        int64_t row = r % (k->out[0] * k->out[1]);
        int64_t z = place(k, 0, row / k->out[1], &v), y = place(k, 1, row % k->out[1], &v);
        const float *plane = (const float *)k->arg[0] + r / (k->out[0] * k->out[1]) * in_plane;
        float *to = (float *)k->arg[1] + r * k->out[2] * BLOCK;
        for (int64_t o = 0; o < k->out[2]; o++, to += BLOCK) {
            int64_t x = place(k, 2, o, &v);
            int64_t from = ((z * k->in[1] + y) * k->in[2] + x) * BLOCK;
            list_taps(k, &v, &taps);
            if (k->max)
                k->vec->max16(to, plane, from, taps.at, taps.n);
            else
                k->vec->mean16(to, plane, from, taps.at, taps.n, taps.count);
        }
    }
}

static weft_err run_pool(void *state, void *const *arg)
{
    pool_kernel *k = state;
    int64_t taps = k->kernel[0] * k->kernel[1] * k->kernel[2];
    k->arg = arg;
    weft_par_for(k->threads, k->planes * k->out[0] * k->out[1],
                 (double)(k->out[2] * taps) * ns_per_tap, pool_rows, k);
    return WEFT_ERR_OK;
}

/* Dimensions before the first of the image have size 1. */
static void set_dims(const weft_prep *p, const weft_cpu_window *w, pool_kernel *k)
{
    for (uint32_t d = 0; d < DIMS; d++) {
        k->in[d] = k->out[d] = k->kernel[d] = k->stride[d] = k->dilation[d] = 1;
        k->before[d] = k->after[d] = 0;
    }
    for (uint32_t i = 0; i < w->n; i++) {
        uint32_t d = DIMS - w->n + i;
        k->in[d] = p->in[0].tensor.dim[2 + i];
        k->out[d] = p->out[0].tensor.dim[2 + i];
        k->kernel[d] = w->kernel[i];
        k->stride[d] = w->stride[i];
        k->dilation[d] = w->dilation[i];
        k->before[d] = w->before[i];
        k->after[d] = w->after[i];
    }
}

/* Whether the window has few taps, and distances in an image fit 32 bits. */
static bool fits(const pool_kernel *k)
{
    int64_t taps = 1, extent = BLOCK;
    for (uint32_t d = 0; d < DIMS; d++) {
        int64_t reach = (k->kernel[d] - 1) * k->dilation[d] + 1;
        if (k->kernel[d] > TAPS_MAX || k->in[d] > INT32_MAX || reach > INT32_MAX)
            return false;
        taps *= k->kernel[d];
        extent *= k->in[d] > reach ? k->in[d] : reach;
        if (taps > TAPS_MAX || extent > INT32_MAX)
            return false;
    }
    return true;
}

weft_err weft_cpu__prepare_pool(weft_prep *p)
{
    weft_cpu_window w;
    bool max = p->op == WEFT_OP_MAX_POOL;
    bool counted = weft_attrs_int(p->attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) != 0;
    bool needed = !weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core) || (max && weft_cpu__keeps_nan(p));
    if (!needed || (p->n_out > 1 && p->out[1].present) ||
        !weft_slot_is(&p->in[0], WEFT_DTYPE_F32, WEFT_LAYOUT_C16) ||
        !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_C16) ||
        p->in[0].tensor.rank > 2 + DIMS || !weft_cpu__window(p, NULL, &w) ||
        (!max && counted && w.reaches_out))
        return WEFT_ERR_OK;
    pool_kernel k = {.vec = weft_cpu__of(p)->vec,
                     .threads = weft_cpu__of(p)->threads,
                     .max = max,
                     .counts_padding = counted,
                     .planes =
                         p->out[0].tensor.dim[0] * ((p->out[0].tensor.dim[1] + BLOCK - 1) / BLOCK)};
    set_dims(p, &w, &k);
    return fits(&k) ? weft_cpu__set_kernel(p, run_pool, &k, sizeof k, "pool") : WEFT_ERR_OK;
}
