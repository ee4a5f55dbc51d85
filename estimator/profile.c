/* Profiles: estimates of a graph over slices, batches and numbers of processes, for the scheduler.
 *
 * The kernels of a graph depend only on the batch: they are found once for each batch and predicted
 * for each slice. Times of several processes follow from the prediction for one by the queue of
 * contention.c. */
#include "estimator/estimator_int.h"

#include <math.h>
#include <stdio.h>

static const uint32_t one_process = 1;

/* Estimates of the runs on one slice, by number of processes. */
typedef struct slice_times {
    const weft_workload *work;
    const weft_estimate_options *options;
    const uint32_t *procs;
    uint32_t batch;
    size_t n_procs;
} slice_times;

/* What an execution uses over time, as parts of the whole device; zeroes if it takes no time. */
static weft_usehist make_use(const weft_slice *slice, const weft_estimate *e)
{
    weft_usehist_time sum = {{{0}}};
    for (size_t i = 0; i < e->n; i++) {
        const weft_cost *c = &e->kernel[i].cost;
        weft_usehist_add(&sum, c->creq, c->bandwidth_gbps / slice->gpu->bandwidth_gbps, c->time_us);
    }
    weft_usehist_add(&sum, 0, 0, e->total.time_us - e->device_us);
    weft_usehist use = {{{0}}};
    (void)weft_usehist_make(&sum, &use);
    return use;
}

static weft_err make_point(const weft_slice *slice, uint32_t batch, uint32_t procs,
                           const weft_estimate *e, const weft_contender *alone, weft_diag *diag,
                           weft_profile_point *out)
{
    *out = (weft_profile_point){
        .share = slice->share, .batch = batch, .procs = procs, .cost = e->total};
    snprintf(out->device, sizeof out->device, "%s", slice->gpu->name);
    snprintf(out->slice, sizeof out->slice, "%s", slice->name);
    if (procs == 1)
        return WEFT_ERR_OK;
    double per_s = 0;
    WEFT_TRY(weft_contention_procs(alone, procs, diag, &out->cost.time_us, &per_s));
    out->cost.time_p5_us *= out->cost.time_us / e->total.time_us;
    out->cost.time_p95_us *= out->cost.time_us / e->total.time_us;
    out->throughput_per_s = per_s * batch;
    /* creq and bandwidth are those of all processes together; the energy of one execution stays the
     * same. */
    double faster = per_s * e->total.time_us * 1e-6;
    double creq = e->total.creq * faster, gbps = e->total.bandwidth_gbps * faster;
    out->cost.creq = creq < slice->share ? creq : slice->share;
    out->cost.bandwidth_gbps = gbps < slice->bandwidth_gbps ? gbps : slice->bandwidth_gbps;
    return WEFT_ERR_OK;
}

/* Points of one slice, alone on it or beside others that use their parts. */
static weft_err make_points(const slice_times *t, const weft_slice *slice, weft_arena *arena,
                            weft_diag *diag, weft_profile_point *out)
{
    weft_estimate e;
    weft_arena_mark mark = weft_arena_get_mark(arena);
    WEFT_TRY(weft_estimate_workload(t->work, slice, t->options, arena, diag, &e));
    weft_contender alone = weft_contention_demand(&e, slice);
    weft_usehist use = make_use(slice, &e);
    for (size_t p = 0; p < t->n_procs; p++) {
        WEFT_TRY(make_point(slice, t->batch, t->procs[p], &e, &alone, diag, &out[p]));
        if (t->procs[p] == 1)
            out[p].use = use;
    }
    weft_arena_reset(arena, mark);
    return WEFT_ERR_OK;
}

/* Adds time and use with the rest of the device idle to the points of a crowded slice. */
static weft_err add_idle(const slice_times *t, const weft_slice *slice, weft_arena *arena,
                         weft_diag *diag, weft_profile_point *point)
{
    weft_slice idle;
    weft_arena_mark mark = weft_arena_get_mark(arena);
    weft_profile_point *beside = weft_arena_array(arena, t->n_procs, sizeof *beside);
    WEFT_TRY(weft_slice_make(slice->gpu->name, slice->name, diag, &idle));
    WEFT_TRY(make_points(t, &idle, arena, diag, beside));
    for (size_t p = 0; p < t->n_procs; p++) {
        point[p].idle_us = fmin(beside[p].cost.time_us, point[p].cost.time_us);
        point[p].use = beside[p].use;
    }
    weft_arena_reset(arena, mark);
    return WEFT_ERR_OK;
}

weft_err weft_estimate_profile(weft_graph *g, const weft_slice *slice, size_t n_slice,
                               const uint32_t *batch, size_t n_batch, const uint32_t *procs,
                               size_t n_procs, const weft_estimate_options *options,
                               weft_arena *arena, weft_diag *diag, weft_profile *out)
{
    if (n_procs == 0) {
        procs = &one_process;
        n_procs = 1;
    }
    size_t n = n_slice * n_batch * n_procs;
    weft_profile_point *point = weft_arena_array(arena, n + 1, sizeof *point);
    int64_t *symbol =
        weft_arena_array(arena, (size_t)weft_graph_symbol_count(g) + 1, sizeof *symbol);
    for (size_t b = 0; b < n_batch; b++) {
        weft_workload work;
        weft_arena_mark mark = weft_arena_get_mark(arena);
        WEFT_TRY(weft_estimate_symbols(g, batch[b], diag, symbol));
        WEFT_TRY(weft_workload_make(g, symbol, options, arena, diag, &work));
        const slice_times t = {&work, options, procs, batch[b], n_procs};
        for (size_t s = 0; s < n_slice; s++) {
            weft_profile_point *to = &point[(s * n_batch + b) * n_procs];
            WEFT_TRY(make_points(&t, &slice[s], arena, diag, to));
            if (slice[s].crowded)
                WEFT_TRY(add_idle(&t, &slice[s], arena, diag, to));
        }
        weft_arena_reset(arena, mark);
    }
    *out = (weft_profile){.point = point, .n = n};
    return WEFT_ERR_OK;
}
