/* The report of a run, made from its accounts. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>

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
    out->p50_us = weft_sim__percentile_us(s, 0.5);
    out->p95_us = weft_sim__percentile_us(s, 0.95);
    out->p99_us = weft_sim__percentile_us(s, 0.99);
    out->accuracy = s->app ? s->sum_accuracy / n : 0;
}

static void report_services(sim_world *w, weft_sim_report *out)
{
    weft_sim_service *list = weft_arena_array(w->arena, w->n_service + 1, sizeof *list);
    sim_service all = {0};
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
        weft_sim__add_histogram(w->arena, &all, s);
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
        /* The last batch may end after off_ns. */
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
        list[i] = (weft_sim_device){.device = i,
                                    .type = w->device.at[i].type,
                                    .used_s = (double)weft_sim__used_ns(w, &w->device.at[i]) / 1e9};
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
    weft_sim__close_accounts(w);
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
