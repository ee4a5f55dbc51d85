/* Models that run at the same time on MPS shares of one GPU.
 *
 * Each model alone has its share's SMs and what these draw of the bandwidth while the rest of the
 * device is idle (estimator/README.md, Slices). Beside others it waits for memory and cache, and
 * for SMs if the shares add up to more than the device: the queue of estimator/models/contention.c,
 * with one process of each model that executes again and again. */
#include "tools/compiler/estimate.h"

weft_err weft_tool_slow_down(weft_tool_finding *f, size_t n, weft_diag *diag)
{
    weft_contender demand[WEFT_CONTENTION_MAX];
    double factor[WEFT_CONTENTION_MAX], share = 0, mem_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const weft_slice *s = f[i].slice;
        demand[i] = weft_contention_demand(&f[i].e, s);
        /* From parts of what the share alone draws to parts of the device. */
        demand[i].memory *= s->bandwidth_gbps / s->gpu->bandwidth_gbps;
        demand[i].cache *= s->cache_gbps / s->gpu->cache_gbps;
        share += s->share;
        mem_bytes += (double)f[i].cost.mreq_bytes;
    }
    WEFT_TRY(weft_contention_factors(WEFT_CONTENTION_QUEUE, demand, (uint32_t)n, share <= 1, diag,
                                     factor));
    for (size_t i = 0; i < n; i++) {
        weft_cost *c = &f[i].cost;
        f[i].slow_down = factor[i];
        f[i].fits = f[i].fits_known && mem_bytes <= (double)f[i].slice->mem_bytes;
        f[i].throughput_per_s /= factor[i];
        f[i].price_per_million *= factor[i];
        c->bandwidth_gbps /= factor[i];
        c->time_us *= factor[i];
        c->time_p5_us *= factor[i];
        c->time_p95_us *= factor[i];
    }
    return WEFT_ERR_OK;
}
