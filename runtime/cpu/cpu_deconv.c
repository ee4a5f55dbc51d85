/* Transposed convolutions whose windows do not overlap (kernel = stride, no padding), as in
 * decoders that double an image. Each pixel gives a patch of its own:
 *
 *     y[co][s h + kh][s w + kw] = sum over ci of x[ci][h][w] * weight[ci][co][kh][kw]
 *
 * For a line of pixels and one output channel this is a product of a [kh * kw, ci] matrix and
 * [ci, w]; its rows are interleaved into the lines of the result. */
#include "runtime/cpu/cpu_dnnl.h"
#include "runtime/cpu/cpu_int.h"
#include "runtime/cpu/cpu_memory.h"
#include "runtime/cpu/cpu_window.h"

enum { CHUNK = 256, ROWS = 8, TAPS_MAX = 64, WIDE = 64, NARROW = 16 };

typedef struct deconv_kernel {
    const weft_cpu_vec *vec;
    weft_engine *engine;
    uint32_t threads, n_in;
    bool has_bias;
    int64_t images, in, out, lines, cols; /* lines and cols of x */
    int64_t kh, kw;
    weft_cpu_pack *pack; /* [out * kh * kw][in] */
    void *const *arg;
} deconv_kernel;

/* y[kw * i + j] = x[j][i] + bias */
static void interleave(float *y, const float *x, int64_t n, int64_t kw, float bias)
{
    if (kw == 2) {
        for (int64_t i = 0; i < n; i++) {
            y[2 * i] = x[i] + bias;
            y[2 * i + 1] = x[CHUNK + i] + bias;
        }
        return;
    }
    for (int64_t j = 0; j < kw; j++)
        for (int64_t i = 0; i < n; i++)
            y[kw * i + j] = x[j * CHUNK + i] + bias;
}

/* part[t][0..n) = row t of w times x[in][0..n); the last window overlaps the one before it, so that
 * all have whole vectors. */
static void multiply(const deconv_kernel *k, float (*part)[CHUNK], const float *w, const float *x,
                     int64_t n)
{
    static const float one[ROWS] = {1, 1, 1, 1, 1, 1, 1, 1};
    int64_t taps = k->kh * k->kw, width = n >= WIDE ? WIDE : n >= NARROW ? NARROW : n;
    for (int64_t t = 0; t < taps; t += ROWS)
        for (int64_t at = 0; at < n; at += width) {
            int64_t from = at + width <= n ? at : n - width;
            k->vec->pv(part[t] + from, CHUNK, w + t * k->in, (size_t)k->in,
                       (size_t)(taps - t < ROWS ? taps - t : ROWS), x + from,
                       (size_t)(k->lines * k->cols), (size_t)k->in, (size_t)width, one);
        }
}

/* Line `line` of an image and output channel `co`. */
static void run_line(const deconv_kernel *k, int64_t image, int64_t line, int64_t co)
{
    float part[TAPS_MAX][CHUNK];
    int64_t taps = k->kh * k->kw;
    const float *x = (const float *)k->arg[0] + (image * k->in * k->lines + line) * k->cols;
    const float *w = (const float *)weft_cpu__pack_data(k->pack) + co * taps * k->in;
    float bias = k->has_bias ? ((const float *)k->arg[2])[co] : 0;
    float *y =
        (float *)k->arg[k->n_in] + ((image * k->out + co) * k->lines + line) * taps * k->cols;
    for (int64_t at = 0; at < k->cols; at += CHUNK) {
        int64_t n = k->cols - at < CHUNK ? k->cols - at : CHUNK;
        multiply(k, part, w, x + at, n);
        for (int64_t i = 0; i < k->kh; i++)
            interleave(y + (i * k->cols + at) * k->kw, part[i * k->kw], n, k->kw, bias);
    }
}

static void run_lines(void *cx, int64_t begin, int64_t end)
{
    const deconv_kernel *k = cx;
    for (int64_t i = begin; i < end; i++)
        run_line(k, i / k->out / k->lines, i / k->out % k->lines, i % k->out);
}

static weft_err run_deconv(void *state, void *const *arg)
{
    deconv_kernel *k = state;
    k->arg = arg;
    weft_par_for(k->threads, k->images * k->lines * k->out,
                 (double)(k->cols * k->kh * k->kw * (k->in + 8)) * 0.015, run_lines, k);
    return WEFT_ERR_OK;
}

static void destroy_deconv(void *state)
{
    deconv_kernel *k = state;
    if (k->pack)
        weft_cpu__put_pack(k->engine, k->pack);
    free(k);
}

static bool all_equal(const weft_prep *p, weft_attr_key key, uint32_t n, int64_t otherwise,
                      const int64_t *want)
{
    int64_t got[2 * WEFT_RANK_MAX];
    for (uint32_t i = 0; i < n; i++)
        got[i] = otherwise;
    if (!weft_cpu__read_ints(p->attrs, key, n, 0, got))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (got[i] != (want ? want[i] : otherwise))
            return false;
    return true;
}

/* One dim or two; the size of the result leaves no room for other windows. */
static bool is_disjoint(const weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor, *w = &p->in[1].tensor, *y = &p->out[0].tensor;
    uint32_t n = (uint32_t)x->rank - 2;
    bool has_bias = p->n_in > 2 && p->in[2].present;
    if (p->n_in < 2 || p->n_in > 3 || (x->rank != 3 && x->rank != 4) || w->rank != x->rank ||
        y->rank != x->rank || !weft_slot_is(&p->in[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        !weft_slot_is(&p->in[1], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) || !p->in[1].weight ||
        !weft_slot_is(&p->out[0], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) || w->dim[0] != x->dim[1] ||
        w->dim[1] != y->dim[1] || x->dim[0] != y->dim[0] ||
        weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1) != 1 ||
        weft_slot_count(&p->in[1], 2, w->rank) > TAPS_MAX)
        return false;
    if (has_bias && (!weft_slot_is(&p->in[2], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
                     weft_slot_numel(&p->in[2]) != y->dim[1]))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (y->dim[2 + i] != x->dim[2 + i] * w->dim[2 + i])
            return false;
    return all_equal(p, WEFT_ATTR_STRIDES, n, 1, w->dim + 2) &&
           all_equal(p, WEFT_ATTR_DILATIONS, n, 1, NULL) &&
           all_equal(p, WEFT_ATTR_PADS, 2 * n, 0, NULL) &&
           all_equal(p, WEFT_ATTR_OUTPUT_PADDING, n, 0, NULL);
}

weft_err weft_cpu__prepare_deconv(weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor, *w = &p->in[1].tensor;
    if (!is_disjoint(p))
        return WEFT_ERR_OK;
    deconv_kernel *k = weft_cpu__calloc(1, sizeof *k);
    if (!k)
        return WEFT_ERR_NOMEM;
    bool is_2d = x->rank == 4;
    k->vec = weft_cpu__of(p)->vec;
    k->engine = p->engine;
    k->threads = weft_cpu__of(p)->threads;
    k->n_in = p->n_in;
    k->has_bias = p->n_in > 2 && p->in[2].present;
    k->images = x->dim[0];
    k->in = x->dim[1];
    k->out = w->dim[1];
    k->lines = is_2d ? x->dim[2] : 1;
    k->cols = x->dim[x->rank - 1];
    k->kh = is_2d ? w->dim[2] : 1;
    k->kw = w->dim[w->rank - 1];
    weft_slot in[2] = {p->in[0], p->in[1]};
    in[1].tensor.rank = 2;
    in[1].tensor.dim[1] = k->out * k->kh * k->kw;
    weft_prep matrix = *p;
    matrix.in = in;
    weft_err err = weft_cpu__pack_transposed(&matrix, 1, &k->pack);
    if (err != WEFT_ERR_OK) {
        destroy_deconv(k);
        return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
    }
    p->run = run_deconv;
    p->state = k;
    p->destroy = destroy_deconv;
    p->variant = "deconv";
    return WEFT_ERR_OK;
}
