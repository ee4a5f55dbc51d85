/* Contention: slow-down of models that run on the same units at the same time.
 *
 * Processes of one model in one slice (MPS, or streams) are a closed queueing network: each process
 * alternates between time in which it uses nothing that is shared (launches, the framework, tails
 * of waves) and time in which it uses the bottleneck of the slice. `busy` is the bottleneck's part
 * of the time t of one execution alone. Exact mean value analysis of one queueing station and a
 * delay gives for p processes
 *
 *   q(0) = 0;   r(n) = busy (1 + q(n-1));   x(n) = n / (1 - busy + r(n));   q(n) = x(n) r(n)
 *   throughput = x(p) / t,   latency = p t / x(p)
 *
 * (Reiser, Lavenberg, "Mean-value analysis of closed multichain queuing networks", 1980). The
 * throughput grows up to p times while the bottleneck has room, and never beyond 1 / busy. `busy`
 * is a sum over the kernels: for each the larger of the units it needs and the traffic it makes,
 * and 0.6 of its launch, over its time.
 *
 * Different models are the same network with one process of each, solved exactly over the subsets
 * of the models. Where the models have units of their own (MPS shares that add up to at most
 * 100 %), they share only the memory and the cache.
 *
 * Two published models are included for comparison. Both use the demands of the models alone:
 *
 *   gpulet (Choi et al., ATC'22)   factor_1 = c1 cache_1 + c2 cache_2 + c3 memory_1 + c4 memory_2 +
 *                                  c5, at least 1; the demands of several neighbours add up
 *   iGniter (Xu et al., TPDS'23)   factor_1 = 1 + a launches_1 / t_1 neighbours +
 *                                  b busy_1 (sum of cache of the others): scheduling delay of each
 *                                  launch, and slow-down by the cache use of the others
 *
 * Both papers fit their constants on one machine each. The constants here are fitted to 2 to 5
 * processes of one model in a MIG instance of an A100 (tests/regress/mig_processes --fit: parvagpu,
 * resnet50, densenet121, vgg16) and tested on eight other networks of that set: median error of the
 * factor 11.3 % (gpulet) and 9.1 % (iGniter); the queue, which has one constant, 4.8 %. In that
 * data all neighbours have equal demands: c1 = c2 and c3 = c4 are assumptions. O(procs) and
 * O(2^models). */
#include "estimator/models/models.h"

#include <math.h>

enum { PROCS_MAX = 1024, STATIONS = 2 };

/* Part of a launch during which no other process makes progress; fitted like the other
 * constants. */
static const double launch_part = 0.6;
/* Fitted to 358 points, least relative error; README.md, Contention. */
static const double gpulet_cache = 0.469, gpulet_memory = 1.17, gpulet_fixed = 0.571;
static const double igniter_launch_us = 0.096, igniter_cache = 4.41;
/* Part of the peak bandwidth that kernels reach (README.md, Traffic). */
static const double traffic_eff = 0.75;

/* -- Demands ---------------------------------------------------------------------------------- */

weft_contender weft_contention_demand(const weft_estimate *one, const weft_slice *slice)
{
    weft_contender d = {.time_us = one->total.time_us};
    double bottleneck_us = 0, memory_us = 0, cache_us = 0;
    for (size_t i = 0; i < one->n; i++) {
        const weft_kernel_cost *k = &one->kernel[i];
        double launches = k->launches > 0 ? k->launches : 1;
        double body_us = fmax(0, k->cost.time_us - launches * slice->gpu->launch_us);
        double traffic_us = launches * weft_traffic__us(slice, &k->kernel, slice->units);
        double need = fmin(1, k->usage.sm_need / slice->share);
        bottleneck_us += fmax(body_us * need, fmin(body_us, traffic_us)) +
                         launch_part * (k->cost.time_us - body_us);
        const weft_work *w = &k->kernel.work;
        double bytes = w->bytes_read + w->bytes_written + w->weight_bytes;
        memory_us += k->cost.bandwidth_gbps * k->cost.time_us / slice->bandwidth_gbps;
        cache_us += launches * bytes / (slice->cache_gbps * 1e3);
        d.launches += launches;
    }
    if (d.time_us > 0) {
        d.busy = fmin(1, bottleneck_us / d.time_us);
        d.memory = fmin(1, memory_us / d.time_us);
        d.cache = fmin(1, cache_us / d.time_us);
    }
    return d;
}

/* -- Processes of one model ------------------------------------------------------------------- */

static weft_err check_demand(const weft_contender *d, weft_diag *diag)
{
    bool ok = isfinite(d->time_us) && d->time_us > 0 && d->busy >= 0 && d->busy <= 1 &&
              d->cache >= 0 && d->cache <= 1 && d->memory >= 0 && d->memory <= 1 &&
              isfinite(d->launches) && d->launches >= 0;
    return ok ? WEFT_ERR_OK
              : weft_diag_error(
                    diag, WEFT_ERR_INPUT, (weft_where){0},
                    "contention: the time of a demand must be above 0, its parts 0 to 1");
}

weft_err weft_contention_procs(const weft_contender *one, uint32_t procs, weft_diag *diag,
                               double *out_latency_us, double *out_throughput_per_s)
{
    WEFT_TRY(check_demand(one, diag));
    if (procs == 0 || procs > PROCS_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "%u processes: must be 1 to %d", procs, PROCS_MAX);
    double queue = 0, rate = 0;
    for (uint32_t n = 1; n <= procs; n++) {
        double stay = one->busy * (1 + queue);
        rate = n / (1 - one->busy + stay);
        queue = rate * stay;
    }
    *out_throughput_per_s = rate * 1e6 / one->time_us;
    *out_latency_us = procs * one->time_us / rate;
    return WEFT_ERR_OK;
}

/* -- Different models ------------------------------------------------------------------------- */

/* Time at each station over the time alone; the sum is at most 1. */
static void find_stations(const weft_contender *d, bool own_units, double out[STATIONS])
{
    out[0] = d->busy;
    out[1] = 0;
    if (own_units) {
        out[0] = fmin(1, d->memory / traffic_eff);
        out[1] = fmin(1 - out[0], d->cache / traffic_eff);
    }
}

/* Mean value analysis with one process of each model. queue[s][j][k] is the mean number of
 * processes of model j at station k while the models of set s run; an arriving process sees the
 * queue of the set without itself (arrival theorem). */
static void solve_queue(const weft_contender *demand, uint32_t n, bool own_units, double *out)
{
    double queue[1 << WEFT_CONTENTION_MAX][WEFT_CONTENTION_MAX][STATIONS] = {0};
    double need[WEFT_CONTENTION_MAX][STATIONS];
    for (uint32_t i = 0; i < n; i++)
        find_stations(&demand[i], own_units, need[i]);
    for (uint32_t set = 1; set < 1u << n; set++)
        for (uint32_t i = 0; i < n; i++) {
            if (!(set & 1u << i))
                continue;
            double stay[STATIONS], time = 1;
            for (uint32_t k = 0; k < STATIONS; k++) {
                double others = 0;
                for (uint32_t j = 0; j < n; j++)
                    others += queue[set & ~(1u << i)][j][k];
                /* In units of the model's own time; the stay of the other models does not depend on
                 * it. */
                stay[k] = need[i][k] * (1 + others);
                time += stay[k] - need[i][k];
            }
            for (uint32_t k = 0; k < STATIONS; k++)
                queue[set][i][k] = stay[k] / time;
            out[i] = time;
        }
}

static double add_neighbours(const weft_contender *demand, uint32_t n, uint32_t i,
                             double *out_memory)
{
    double cache = 0, memory = 0;
    for (uint32_t j = 0; j < n; j++) {
        cache += j == i ? 0 : demand[j].cache;
        memory += j == i ? 0 : demand[j].memory;
    }
    *out_memory = memory;
    return cache;
}

weft_err weft_contention_factors(weft_contention form, const weft_contender *demand, uint32_t n,
                                 bool own_units, weft_diag *diag, double *out_factor)
{
    if (n == 0 || n > WEFT_CONTENTION_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "%u models on one device: must be 1 to %d", n, WEFT_CONTENTION_MAX);
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(check_demand(&demand[i], diag));
    double factor[WEFT_CONTENTION_MAX];
    if (form == WEFT_CONTENTION_QUEUE)
        solve_queue(demand, n, own_units, factor);
    for (uint32_t i = 0; i < n; i++) {
        const weft_contender *d = &demand[i];
        double memory, cache = add_neighbours(demand, n, i, &memory);
        if (form == WEFT_CONTENTION_GPULET && n > 1)
            factor[i] = gpulet_cache * (d->cache + cache) + gpulet_memory * (d->memory + memory) +
                        gpulet_fixed;
        else if (form == WEFT_CONTENTION_IGNITER)
            factor[i] = 1 + igniter_launch_us * d->launches / d->time_us * (n - 1) +
                        igniter_cache * d->busy * cache;
        else if (form != WEFT_CONTENTION_QUEUE)
            factor[i] = 1;
        out_factor[i] = fmax(1, factor[i]);
    }
    return WEFT_ERR_OK;
}
