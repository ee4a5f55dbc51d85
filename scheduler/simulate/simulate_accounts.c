/* The accounts of the simulator: latencies, use, devices, energy, carbon and cost, over the whole
 * run and by time bucket.
 *
 * Latencies are counted in histograms with logarithmic buckets (G. Tene, HdrHistogram): 128 buckets
 * an octave for the whole run, 32 for a time bucket. A percentile is the middle of its bucket, so
 * its error is below 0.4 % and 1.6 %. Mean and maximum are exact.
 *
 * Energy. A device in use draws its idle power. An execution adds its energy by the profile minus
 * the idle power of its part of the device; where the profile has no energy, it adds (busy - idle)
 * power of that part. Carbon is energy times carbon intensity, interval by interval.
 *
 * Sums grow at events only: account_server adds the time of one process since it was seen last,
 * account_devices that of everything else. Before a rate changes (a slice opens, an interval of
 * carbon intensity ends), the sums are brought up to date. */
#include "scheduler/simulate/simulate_int.h"

#include "base/log_bins.h"

#include <string.h>

/* -- Histograms ------------------------------------------------------------------------------- */

/* Nearest-rank percentile, us, of a histogram with `n` values, fine or coarse; the other one is
 * NULL. 0 without values. */
static double find_rank(const uint64_t *fine, const uint32_t *coarse, uint64_t n, double part)
{
    uint64_t rank = weft_log_rank(n, part), sum = 0;
    if (n == 0)
        return 0;
    for (uint32_t i = 0; i < (fine ? WEFT_LOG_FINE_N : WEFT_LOG_COARSE_N); i++) {
        sum += fine ? fine[i] : coarse[i];
        if (sum >= rank)
            return weft_log_middle(i, fine ? WEFT_LOG_FINE_BITS : WEFT_LOG_COARSE_BITS) / 1e3;
    }
    return 0;
}

double weft_sim__percentile_us(const sim_service *s, double part)
{
    return find_rank(s->fine, NULL, s->count.answered, part);
}

void weft_sim__add_histogram(weft_arena *arena, sim_service *to, const sim_service *from)
{
    if (!to->fine)
        to->fine = weft_arena_array(arena, WEFT_LOG_FINE_N, sizeof *to->fine);
    for (uint32_t i = 0; i < WEFT_LOG_FINE_N && from->fine; i++)
        to->fine[i] += from->fine[i];
}

/* -- Answers ---------------------------------------------------------------------------------- */

void weft_sim__count_answer(sim_world *w, const sim_request *r, const sim_server *server)
{
    sim_service *s = &w->service[r->service];
    int64_t ns = w->now_ns - r->time_ns + //
                 w->service[w->replica.at[server->replica].service].host_ns;
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
        s->fine = weft_arena_array(w->arena, WEFT_LOG_FINE_N, sizeof *s->fine);
    s->fine[weft_log_bin(ns, WEFT_LOG_FINE_BITS)]++;
    if (w->next_bucket_ns < sim_never_ns) {
        if (!s->coarse)
            s->coarse = weft_arena_array(w->arena, WEFT_LOG_COARSE_N, sizeof *s->coarse);
        s->coarse[weft_log_bin(ns, WEFT_LOG_COARSE_BITS)]++;
    }
    for (uint32_t i = 0; i < s->n_variant; i++)
        if (s->variant[i] == w->replica.at[server->replica].service)
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
        joules =
            server->size->energy_j * dt / (double)server->pace_ns - d->idle_w * part * dt / 1e9;
    slice->busy_ns += w->now_ns - from;
    w->busy_share_ns += dt * part;
    w->bucket_busy += dt * part;
    w->pending_energy_j += joules;
}

/* Counted time of a device: of its earlier uses and, with `in_use`, of the present one. */
static int64_t sum_use(const sim_world *w, const sim_device *d, bool in_use)
{
    int64_t from = d->since_ns > w->warm_ns ? d->since_ns : w->warm_ns;
    return d->used_ns + (in_use && w->now_ns > from ? w->now_ns - from : 0);
}

int64_t weft_sim__used_ns(const sim_world *w, const sim_device *d)
{
    return sum_use(w, d, d->slice.len > 0);
}

void weft_sim__use_device(sim_world *w, sim_device *d, bool in_use)
{
    int sign = in_use ? 1 : -1;
    if (in_use)
        d->since_ns = w->now_ns;
    else
        d->used_ns = sum_use(w, d, true);
    w->n_device = in_use ? w->n_device + 1 : w->n_device - 1;
    w->idle_w += sign * d->idle_w;
    w->price_per_hour += sign * d->price_per_hour;
}

void weft_sim__account_devices(sim_world *w)
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
    w->pending_energy_j += w->idle_w * dt / 1e9;
}

double weft_sim__intensity(const sim_world *w, int64_t ns)
{
    const weft_carbon *c = w->o->carbon;
    if (!c)
        return w->o->problem->carbon_g_per_kwh;
    double i = (double)ns / 1e9 / c->period_s;
    return c->g_per_kwh[i < (double)c->n ? (size_t)i : c->n - 1];
}

/* Brings all sums up to date. The energy since the last call is billed at the intensity of the
 * time `ns`. */
static void settle(sim_world *w, int64_t ns)
{
    double pue = w->o->pue > 0 ? w->o->pue : 1;
    for (uint32_t i = 0; i < w->server.len; i++)
        if (w->server.at[i].busy)
            weft_sim__account_server(w, &w->server.at[i]);
    weft_sim__account_devices(w);
    double joules = w->pending_energy_j * pue;
    double grams = joules / 3.6e6 * weft_sim__intensity(w, ns);
    w->pending_energy_j = 0;
    w->energy_j += joules;
    w->carbon_g += grams;
    w->bucket_energy_j += joules;
    w->bucket_carbon_g += grams;
}

/* -- Time buckets ----------------------------------------------------------------------------- */

void weft_sim__open_accounts(sim_world *w)
{
    const weft_sim_options *o = w->o;
    w->bucket_start_ns = w->warm_ns;
    w->next_bucket_ns = w->next_carbon_ns = sim_never_ns;
    if (o->bucket_s > 0)
        w->next_bucket_ns = w->warm_ns + (int64_t)(o->bucket_s * 1e9);
    if (o->carbon)
        w->next_carbon_ns = (int64_t)(o->carbon->period_s * 1e9);
}

static void close_bucket(sim_world *w)
{
    weft_sim_counts *count = weft_arena_array(w->arena, w->n_service, sizeof *count);
    double *p99 = weft_arena_array(w->arena, w->n_service, sizeof *p99);
    for (uint32_t i = 0; i < w->n_service; i++) {
        sim_service *s = &w->service[i];
        count[i] = s->bucket;
        count[i].good = s->bucket.answered - s->bucket.late;
        if (s->bucket.answered > 0) {
            p99[i] = find_rank(NULL, s->coarse, s->bucket.answered, 0.99);
            memset(s->coarse, 0, WEFT_LOG_COARSE_N * sizeof *s->coarse);
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
                         .carbon_g_per_kwh = weft_sim__intensity(w, w->bucket_start_ns)};
    WEFT_VEC_PUSH(w->arena, &w->bucket, b);
    w->bucket_busy = w->bucket_share = w->bucket_energy_j = w->bucket_carbon_g = 0;
    w->bucket_start_ns = w->now_ns;
}

int64_t weft_sim__next_boundary(const sim_world *w)
{
    return w->next_bucket_ns < w->next_carbon_ns ? w->next_bucket_ns : w->next_carbon_ns;
}

weft_err weft_sim__pass_boundary(sim_world *w)
{
    bool bucket = w->now_ns >= w->next_bucket_ns, carbon = w->now_ns >= w->next_carbon_ns;
    if (bucket || carbon)
        settle(w, w->now_ns - 1);
    if (bucket) {
        if (w->bucket.len + 1 >= SIM_BUCKETS_MAX ||
            (w->bucket.len + 1) * (uint64_t)w->n_service > SIM_CELLS_MAX)
            return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                                   "over %u time buckets for %u models: make the buckets longer",
                                   w->bucket.len, w->n_service);
        close_bucket(w);
        w->next_bucket_ns += (int64_t)(w->o->bucket_s * 1e9);
    }
    if (carbon) {
        int64_t period_ns = (int64_t)(w->o->carbon->period_s * 1e9);
        bool last = (uint64_t)(w->now_ns / period_ns) >= w->o->carbon->n;
        w->next_carbon_ns = last ? sim_never_ns : w->next_carbon_ns + period_ns;
    }
    return WEFT_ERR_OK;
}

void weft_sim__close_accounts(sim_world *w)
{
    settle(w, w->now_ns > 0 ? w->now_ns - 1 : 0);
    if (w->next_bucket_ns < sim_never_ns && w->now_ns > w->bucket_start_ns)
        close_bucket(w);
}
