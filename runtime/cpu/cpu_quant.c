/* Dynamic quantisation: the range of the data, then the data by it. */
#include "runtime/cpu/cpu_int.h"

#include <math.h>

enum { PART = 4096 };

typedef struct dynamic_quantize {
    const weft_cpu_vec *vec;
    uint32_t threads;
    int64_t n;
    float scale, zero;
    void *const *arg;
} dynamic_quantize;

/* The range of each thread's part, in scratch memory. */
static void find_ranges(void *cx, int64_t begin, int64_t end)
{
    const dynamic_quantize *k = cx;
    const float *x = k->arg[0];
    float *range = (float *)k->arg[4] + 2 * weft_par_self();
    int64_t from = begin * PART, to = end * PART < k->n ? end * PART : k->n;
    k->vec->range(x + from, (size_t)(to - from), &range[0], &range[1]);
}

static void quantize_part(void *cx, int64_t begin, int64_t end)
{
    const dynamic_quantize *k = cx;
    int64_t from = begin * PART, to = end * PART < k->n ? end * PART : k->n;
    k->vec->quantize((uint8_t *)k->arg[1] + from, (const float *)k->arg[0] + from, k->scale,
                     k->zero, 0, 255, (size_t)(to - from));
}

static weft_err run_dynamic_quantize(void *state, void *const *arg)
{
    static const double range_ns = 0.03, quantize_ns = 0.15;
    dynamic_quantize *k = state;
    int64_t parts = (k->n + PART - 1) / PART;
    float *range = arg[4], lo = 0, hi = 0;
    k->arg = arg;
    memset(range, 0, 2 * k->threads * sizeof *range);
    weft_par_for(k->threads, parts, range_ns * PART, find_ranges, k);
    for (uint32_t t = 0; t < k->threads; t++) {
        lo = fminf(lo, range[2 * t]);
        hi = fmaxf(hi, range[2 * t + 1]);
    }
    weft_quantize_by_range(lo, hi, &k->scale, &k->zero);
    if (arg[1])
        weft_par_for(k->threads, parts, quantize_ns * PART, quantize_part, k);
    if (arg[2])
        *(float *)arg[2] = k->scale;
    if (arg[3])
        *(uint8_t *)arg[3] = (uint8_t)k->zero;
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_dynamic_quantize(weft_prep *p)
{
    dynamic_quantize k = {.vec = weft_cpu__of(p)->vec,
                          .threads = weft_cpu__of(p)->threads,
                          .n = weft_slot_numel(&p->in[0])};
    if (p->n_in != 1 || p->n_out != 3 || p->in[0].tensor.dtype != WEFT_DTYPE_F32 ||
        weft_layout_block(p->in[0].layout) != 1)
        return WEFT_ERR_OK;
    p->scratch_bytes = 2 * k.threads * sizeof(float);
    return weft_cpu__set_kernel(p, run_dynamic_quantize, &k, sizeof k, "dynamic_quantize");
}
