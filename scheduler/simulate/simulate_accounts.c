/* The accounts of the simulator: latencies, busy time, devices, energy, carbon, cost, over the
 * whole run and over time.
 *
 * Latencies go into histograms of logarithmic buckets (G. Tene, HdrHistogram): 128 steps an octave
 * for the whole run, 32 for a time bucket; a percentile is the middle of its bucket, so that it is
 * off by less than 0.4 and 1.6 %. Mean and maximum are exact.
 *
 * Energy: a device in use draws its idle power; an execution adds its energy from the profile less
 * the idle power of its part of the device, or, where the profile has none, (busy - idle) power in
 * that part. Carbon is energy times intensity, hour by hour. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>
#include <string.h>

/* -- Histograms ------------------------------------------------------------------------------- */

static uint32_t slot_of(int64_t ns, int bits)
{
    uint64_t v = ns > 0 ? (uint64_t)ns : 0;
    if (v >> SIM_TOP_BITS)
        v = ((uint64_t)1 << SIM_TOP_BITS) - 1;
    int shift = v >> bits ? 63 - __builtin_clzll(v) - bits : 0;
    return ((uint32_t)shift << bits) + (uint32_t)(v >> shift);
}

static double middle_of(uint32_t slot, int bits)
{
    uint32_t shift = slot >> bits;
    if (shift <= 1)
        return slot;
    shift--;
    uint64_t low = (uint64_t)(slot - (shift << bits)) << shift;
    return (double)low + (double)((uint64_t)1 << shift) / 2;
}

/* Nearest rank; 0 without values. */
static double percentile_us(const uint64_t *fine, const uint32_t *coarse, uint64_t n, double part)
{
    uint64_t rank = (uint64_t)(part * (double)n), sum = 0;
    if ((double)rank < part * (double)n)
        rank++;
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < (fine ? SIM_FINE_N : SIM_COARSE_N); i++) {
        sum += fine ? fine[i] : coarse[i];
        if (sum >= rank)
            return middle_of(i, fine ? SIM_FINE_BITS : SIM_COARSE_BITS) / 1e3;
    }
    return 0;
}

/* -- Answers ---------------------------------------------------------------------------------- */

void weft_sim__count_answer(sim_world *w, const sim_request *r, const sim_server *server,
                            const sim_replica *replica)
{
    sim_service *s = &w->service[r->service];
    int64_t ns = w->now_ns - r->time_ns;
    if (w->o->on_answer)
        w->o->on_answer(w->o->user, server->replica, r->service, r->time_ns, server->start_ns,
                        w->now_ns);
    if (r->time_ns < w->warm_ns)
        return;
    bool late = s->slo_ns > 0 && ns > s->slo_ns;
    s->count.answered++;
    s->bucket.answered++;
    s->count.late += late;
    s->bucket.late += late;
    s->sum_ns += (double)ns;
    s->wait_ns += (double)(server->start_ns - r->time_ns);
    if (ns > s->max_ns)
        s->max_ns = ns;
    if (!s->fine)
        s->fine = weft_arena_array(w->arena, SIM_FINE_N, sizeof *s->fine);
    s->fine[slot_of(ns, SIM_FINE_BITS)]++;
    if (w->next_bucket_ns < sim_never_ns) {
        if (!s->coarse)
            s->coarse = weft_arena_array(w->arena, SIM_COARSE_N, sizeof *s->coarse);
        s->coarse[slot_of(ns, SIM_COARSE_BITS)]++;
    }
    for (uint32_t i = 0; i < s->n_variant; i++)
        if (s->variant[i] == replica->service)
            s->sum_accuracy += s->accuracy[i];
}

/* -- Time and energy -------------------------------------------------------------------------- */

void weft_sim__account_server(sim_world *w, sim_server *server)
{
    int64_t from = server->seen_ns > w->warm_ns ? server->seen_ns : w->warm_ns;
    server->seen_ns = w->now_ns;
    if (from >= w->now_ns)
        return;
    sim_slice *slice = &w->slice.at[server->slice];
    const sim_device *d = &w->device.at[slice->device];
    double dt = (double)(w->now_ns - from), part = slice->share / slice->n_server;
    double joules = (d->busy_w - d->idle_w) * part * dt / 1e9;
    if (server->size->energy_j > 0)
        joules = server->size->energy_j * dt / (double)server->size->exec_ns -
                 d->idle_w * part * dt / 1e9;
    slice->busy_ns += w->now_ns - from;
    w->busy_share_ns += dt * part;
    w->bucket_busy += dt * part;
    w->tick_energy_j += joules;
}

/* Counted time that the device was in use, until now if it is. */
static int64_t counted_ns(const sim_world *w, const sim_device *d, bool in_use)
{
    int64_t from = d->since_ns > w->warm_ns ? d->since_ns : w->warm_ns;
    return d->used_ns + (in_use && w->now_ns > from ? w->now_ns - from : 0);
}

void weft_sim__use_device(sim_world *w, sim_device *d, bool in_use)
{
    int sign = in_use ? 1 : -1;
    if (in_use)
        d->since_ns = w->now_ns;
    else
        d->used_ns = counted_ns(w, d, true);
    w->n_device = in_use ? w->n_device + 1 : w->n_device - 1;
    w->idle_w += sign * d->idle_w;
    w->price_per_hour += sign * d->price_per_hour;
}

void weft_sim__account(sim_world *w)
{
    int64_t from = w->seen_ns > w->warm_ns ? w->seen_ns : w->warm_ns;
    w->seen_ns = w->now_ns;
    if (from >= w->now_ns)
        return;
    double dt = (double)(w->now_ns - from);
    w->share_ns += dt * w->live_share;
    w->bucket_share += dt * w->live_share;
    w->device_ns += dt * w->n_device;
    w->cost += w->price_per_hour * dt / 3.6e12;
    w->tick_energy_j += w->idle_w * dt / 1e9;
}

static double intensity_at(const sim_world *w, int64_t ns)
{
    const weft_carbon *c = w->o->carbon;
    if (!c)
        return w->o->problem->carbon_g_per_kwh;
    double i = (double)ns / 1e9 / c->period_s;
    return c->g_per_kwh[i < (double)c->n ? (size_t)i : c->n - 1];
}

/* Everything that goes on, up to now; energy of the time since the last call at `g_per_kwh`. */
static void settle(sim_world *w, double g_per_kwh)
{
    double pue = w->o->pue > 0 ? w->o->pue : 1;
    for (uint32_t i = 0; i < w->server.len; i++)
        if (w->server.at[i].busy)
            weft_sim__account_server(w, &w->server.at[i]);
    weft_sim__account(w);
    double joules = w->tick_energy_j * pue, grams = joules / 3.6e6 * g_per_kwh;
    w->tick_energy_j = 0;
    w->energy_j += joules;
    w->carbon_g += grams;
    w->bucket_energy_j += joules;
    w->bucket_carbon_g += grams;
}

/* -- Ticks ------------------------------------------------------------------------------------ */

static void close_bucket(sim_world *w)
{
    weft_sim_counts *count = weft_arena_array(w->arena, w->n_service, sizeof *count);
    double *p99 = weft_arena_array(w->arena, w->n_service, sizeof *p99);
    for (uint32_t i = 0; i < w->n_service; i++) {
        sim_service *s = &w->service[i];
        count[i] = s->bucket;
        count[i].good = s->bucket.answered - s->bucket.late;
        if (s->bucket.answered > 0) {
            p99[i] = percentile_us(NULL, s->coarse, s->bucket.answered, 0.99);
            memset(s->coarse, 0, SIM_COARSE_N * sizeof *s->coarse);
        }
        s->bucket = (weft_sim_counts){0};
    }
    weft_sim_bucket b = {.start_s = (double)w->bucket_start_ns / 1e9,
                         .length_s = (double)(w->now_ns - w->bucket_start_ns) / 1e9,
                         .count = count,
                         .p99_us = p99,
                         .busy = w->bucket_share > 0 ? w->bucket_busy / w->bucket_share : 0,
                         .gpus = w->n_device,
                         .energy_j = w->bucket_energy_j,
                         .carbon_g = w->bucket_carbon_g,
                         .carbon_g_per_kwh = intensity_at(w, w->bucket_start_ns)};
    WEFT_VEC_PUSH(w->arena, &w->bucket, b);
    w->bucket_busy = w->bucket_share = w->bucket_energy_j = w->bucket_carbon_g = 0;
    w->bucket_start_ns = w->now_ns;
}

int64_t weft_sim__next_tick(const sim_world *w)
{
    int64_t t = w->next_bucket_ns < w->next_carbon_ns ? w->next_bucket_ns : w->next_carbon_ns;
    t = w->next_step_ns < t ? w->next_step_ns : t;
    return w->next_period_ns < t ? w->next_period_ns : t;
}

weft_err weft_sim__tick(sim_world *w)
{
    bool bucket = w->now_ns >= w->next_bucket_ns, hour = w->now_ns >= w->next_carbon_ns;
    if (bucket || hour)
        settle(w, intensity_at(w, w->now_ns - 1));
    if (bucket) {
        if (w->bucket.len + 1 >= SIM_BUCKETS_MAX ||
            (w->bucket.len + 1) * (uint64_t)w->n_service > SIM_CELLS_MAX)
            return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "over %u buckets of time for %u models: make them longer",
                                   w->bucket.len, w->n_service);
        close_bucket(w);
        w->next_bucket_ns += (int64_t)(w->o->bucket_s * 1e9);
    }
    if (hour) {
        int64_t period_ns = (int64_t)(w->o->carbon->period_s * 1e9);
        bool last = (uint64_t)(w->now_ns / period_ns) >= w->o->carbon->n;
        w->next_carbon_ns = last ? sim_never_ns : w->next_carbon_ns + period_ns;
    }
    return weft_sim__replan(w);
}

/* -- Report ----------------------------------------------------------------------------------- */

static void count_in_flight(const sim_world *w, weft_sim_service *list)
{
    for (uint32_t i = 0; i < w->queue.len; i++) {
        const sim_queue *q = &w->queue.at[i];
        for (uint32_t k = 0; k < q->len; k++) {
            const sim_request *r = &q->at[(q->head + k) & (q->room - 1)];
            list[r->service].in_flight += r->time_ns >= w->warm_ns;
        }
    }
    for (uint32_t i = 0; i < w->server.len; i++)
        for (uint32_t k = 0; k < w->server.at[i].n_run; k++) {
            const sim_request *r = &w->server.at[i].run[k];
            list[r->service].in_flight += r->time_ns >= w->warm_ns;
        }
}

static void finish_service(const sim_service *s, weft_sim_service *out)
{
    double n = (double)s->count.answered;
    out->count = s->count;
    out->count.good = s->count.answered - s->count.late;
    out->batches = s->batches;
    out->padded_rows = s->padded;
    out->slo_us = s->slo_us;
    if (s->count.answered == 0)
        return;
    out->mean_us = s->sum_ns / n / 1e3;
    out->mean_wait_us = s->wait_ns / n / 1e3;
    out->max_us = (double)s->max_ns / 1e3;
    out->p50_us = percentile_us(s->fine, NULL, s->count.answered, 0.5);
    out->p95_us = percentile_us(s->fine, NULL, s->count.answered, 0.95);
    out->p99_us = percentile_us(s->fine, NULL, s->count.answered, 0.99);
    out->accuracy = s->app ? s->sum_accuracy / n : 0;
}

static void report_services(sim_world *w, weft_sim_report *out)
{
    weft_sim_service *list = weft_arena_array(w->arena, w->n_service + 1, sizeof *list);
    sim_service all = {.fine = weft_arena_array(w->arena, SIM_FINE_N, sizeof *all.fine)};
    for (uint32_t i = 0; i < w->n_service; i++) {
        sim_service *s = &w->service[i];
        list[i] = (weft_sim_service){.name = s->name, .app = s->app};
        finish_service(s, &list[i]);
        all.count.requests += s->count.requests;
        all.count.answered += s->count.answered;
        all.count.late += s->count.late;
        all.count.dropped += s->count.dropped;
        all.batches += s->batches;
        all.padded += s->padded;
        all.sum_ns += s->sum_ns;
        all.wait_ns += s->wait_ns;
        if (s->max_ns > all.max_ns)
            all.max_ns = s->max_ns;
        for (uint32_t k = 0; k < SIM_FINE_N && s->fine; k++)
            all.fine[k] += s->fine[k];
    }
    finish_service(&all, &out->total);
    count_in_flight(w, list);
    for (uint32_t i = 0; i < w->n_service; i++)
        out->total.in_flight += list[i].in_flight;
    out->service = list;
    out->n_service = w->n_service;
}

static void report_slices(sim_world *w, weft_sim_report *out)
{
    weft_sim_slice *list = weft_arena_array(w->arena, w->slice.len + 1, sizeof *list);
    for (uint32_t i = 0; i < w->slice.len; i++) {
        const sim_slice *s = &w->slice.at[i];
        int64_t from = s->on_ns > w->warm_ns ? s->on_ns : w->warm_ns;
        int64_t to = s->off_ns < w->now_ns ? s->off_ns : w->now_ns;
        double wide = to > from ? (double)(to - from) * s->n_server : 0;
        list[i] = (weft_sim_slice){.device = s->device,
                                   .type = w->device.at[s->device].type,
                                   .slice = s->name,
                                   .slice_id = s->slice_id,
                                   .mig_start = s->mig_start,
                                   .models = s->models,
                                   .from_s = (double)s->on_ns / 1e9,
                                   .to_s = (double)(to > s->on_ns ? to : s->on_ns) / 1e9,
                                   .batches = s->batches,
                                   .requests = s->requests};
        /* A slice that is to end still runs its last batch. */
        list[i].busy = wide > 0 ? (double)s->busy_ns / wide : 0;
        if (list[i].busy > 1)
            list[i].busy = 1;
    }
    out->slice = list;
    out->n_slice = w->slice.len;
}

static void report_devices(sim_world *w, weft_sim_report *out)
{
    weft_sim_device *list = weft_arena_array(w->arena, w->device.len + 1, sizeof *list);
    for (uint32_t i = 0; i < w->device.len; i++)
        list[i] = (weft_sim_device){
            .device = i,
            .type = w->device.at[i].type,
            .used_s = (double)counted_ns(w, &w->device.at[i], w->device.at[i].live > 0) / 1e9};
    for (uint32_t i = 0; i < w->slice.len; i++) {
        const sim_slice *s = &w->slice.at[i];
        list[s->device].busy += (double)s->busy_ns / 1e9 * s->share / s->n_server;
    }
    for (uint32_t i = 0; i < w->device.len; i++)
        list[i].busy = list[i].used_s > 0 ? fmin(1, list[i].busy / list[i].used_s) : 0;
    out->device = list;
    out->n_device = w->device.len;
}

void weft_sim__report(sim_world *w, weft_sim_report *out)
{
    settle(w, intensity_at(w, w->now_ns > 0 ? w->now_ns - 1 : 0));
    if (w->next_bucket_ns < sim_never_ns && w->now_ns > w->bucket_start_ns)
        close_bucket(w);
    *out = (weft_sim_report){
        .simulated_s = w->now_ns > w->warm_ns ? (double)(w->now_ns - w->warm_ns) / 1e9 : 0,
        .events = w->events,
        .bucket = w->bucket.at,
        .n_bucket = w->bucket.len,
        .change = w->change.at,
        .n_change = w->change.len,
        .busy = w->share_ns > 0 ? w->busy_share_ns / w->share_ns : 0,
        .device_s = w->device_ns / 1e9,
        .cost = w->cost,
        .has_energy = !w->no_watts,
        .has_carbon = !w->no_watts && (w->o->carbon || w->o->problem->carbon_g_per_kwh > 0),
        .energy_j = w->energy_j,
        .carbon_g = w->carbon_g};
    report_services(w, out);
    report_slices(w, out);
    report_devices(w, out);
}
