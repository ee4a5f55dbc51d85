/* The simulated world: services that requests name, and slices made from the placements of a plan.
 *
 * A placement becomes a replica, a slice of the plan a slice with its replicas and processes. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Services --------------------------------------------------------------------------------- */

static int order_demands(const void *a, const void *b)
{
    const weft_demand *const *p = a, *const *q = b;
    return strcmp((*p)->model, (*q)->model);
}

static int order_apps(const void *a, const void *b)
{
    const weft_set_app *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

/* The models of the demands by name, and the apps by name: the order of services. */
static void sort_all(const weft_problem *problem, weft_arena *arena, const weft_demand ***demands,
                     const weft_set_app ***apps)
{
    size_t n = problem->demands->n;
    *demands = weft_arena_array(arena, n + 1, sizeof **demands);
    *apps = weft_arena_array(arena, problem->n_app + 1, sizeof **apps);
    for (size_t i = 0; i < n; i++)
        (*demands)[i] = &problem->demands->at[i];
    for (size_t i = 0; i < problem->n_app; i++)
        (*apps)[i] = &problem->app[i];
    qsort(*demands, n, sizeof **demands, order_demands);
    qsort(*apps, problem->n_app, sizeof **apps, order_apps);
}

void weft_sim_services(const weft_problem *problem, weft_arena *arena, const weft_service **out,
                       size_t *out_n)
{
    const weft_demand **demand;
    const weft_set_app **app;
    size_t n = problem->demands->n;
    sort_all(problem, arena, &demand, &app);
    weft_service *list = weft_arena_array(arena, n + problem->n_app + 1, sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = (weft_service){demand[i]->model, demand[i]->rate_per_s};
    for (size_t i = 0; i < problem->n_app; i++)
        list[n + i] = (weft_service){app[i]->name, app[i]->rate_per_s};
    *out = list;
    *out_n = n + problem->n_app;
}

uint32_t weft_sim__find_model(const sim_world *w, const char *model)
{
    size_t lo = 0, hi = w->n_model;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(w->service[mid].name, model);
        if (c == 0)
            return (uint32_t)mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return UINT32_MAX;
}

static weft_err init_app(sim_world *w, const weft_set_app *app, sim_service *s)
{
    double *accuracy = weft_arena_array(w->arena, app->n_variant + 1, sizeof *accuracy);
    s->app = true;
    s->slo_us = app->slo_us;
    s->mean.least = app->accuracy;
    s->variant = weft_arena_array(w->arena, app->n_variant + 1, sizeof *s->variant);
    for (size_t k = 0; k < app->n_variant; k++) {
        uint32_t m = weft_sim__find_model(w, app->variant[k].model);
        if (m == UINT32_MAX)
            return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){.item = app->name},
                                   "variant '%s' is not among the models", app->variant[k].model);
        s->variant[s->n_variant] = m;
        s->mean.most = fmax(s->mean.most, app->variant[k].accuracy);
        accuracy[s->n_variant++] = app->variant[k].accuracy;
        double slo_us = w->service[m].slo_us;
        if (slo_us > 0 && !(app->slo_us > 0) && (s->slo_us == 0 || slo_us < s->slo_us))
            s->slo_us = slo_us;
    }
    s->accuracy = accuracy;
    return WEFT_ERR_OK;
}

weft_err weft_sim__init_services(sim_world *w)
{
    const weft_problem *problem = w->o->problem;
    const weft_service *names;
    const weft_demand **demand;
    const weft_set_app **app;
    size_t n;
    WEFT_TRY(weft_demands__check(problem->demands, w->diag));
    if (problem->demands->n + problem->n_app > WEFT_ARRIVAL_SERVICES_MAX)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0}, "over %d models",
                               WEFT_ARRIVAL_SERVICES_MAX);
    weft_sim_services(problem, w->arena, &names, &n);
    sort_all(problem, w->arena, &demand, &app);
    w->n_service = (uint32_t)n;
    w->n_model = (uint32_t)problem->demands->n;
    w->demand = demand;
    w->service = weft_arena_array(w->arena, n + 1, sizeof *w->service);
    w->line = weft_arena_array(w->arena, n + 1, sizeof *w->line);
    w->other = weft_arena_array(w->arena, n + 1, sizeof *w->other);
    w->variant = weft_arena_array(w->arena, n + 1, sizeof *w->variant);
    for (uint32_t i = 0; i < n; i++) {
        sim_service *s = &w->service[i];
        s->name = names[i].name;
        if (i < w->n_model) {
            s->slo_us = demand[i]->slo_us;
            s->host_ns = (int64_t)(fmin(demand[i]->profile.host_us, 1e12) * 1e3);
        } else {
            WEFT_TRY(init_app(w, app[i - w->n_model], s));
        }
        s->slo_ns = s->slo_us < 1e15 ? (int64_t)(s->slo_us * 1e3 + 0.5) : sim_never_ns;
        weft_sim__add_queue(w);
    }
    return WEFT_ERR_OK;
}

/* -- Execution times -------------------------------------------------------------------------- */

weft_err weft_sim__refuse(const sim_world *w, const weft_placement *p, const char *text)
{
    return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){.item = p->model},
                           "device %u slice '%s' batch %u procs %u: %s", p->device, p->slice,
                           p->batch, p->procs, text);
}

/* `idle`: the time with the rest of the device idle over that with it busy. */
static weft_err add_size(sim_world *w, const weft_placement *p, sim_size *size, uint32_t *n,
                         uint32_t batch, double exec_us, double idle,
                         const weft_profile_point *point)
{
    uint32_t i = *n;
    if (!(exec_us > 0) || !(exec_us < 1e12))
        return weft_sim__refuse(w, p, "execution time is not between 0 and 1e6 s");
    while (i > 0 && size[i - 1].batch > batch) {
        size[i] = size[i - 1];
        i--;
    }
    int64_t ns = (int64_t)(exec_us * 1e3 + 0.5), idle_ns = (int64_t)(exec_us * idle * 1e3 + 0.5);
    ns = ns > 0 ? ns : 1;
    size[i] = (sim_size){.batch = batch,
                         .id = ++w->n_size,
                         .exec_ns = ns,
                         .idle_ns = idle_ns > 0 ? idle_ns : 1,
                         .learnt = {.mean_ns = (double)ns}};
    if (point) {
        const weft_fleet *fleet = w->o->problem->fleet;
        size[i].energy_j = point->cost.energy_j;
        size[i].use =
            weft_point__pressure(fleet ? weft_fleet__row(fleet, point->device) : NULL, point);
    }
    (*n)++;
    return WEFT_ERR_OK;
}

/* The execution time that the capacity and the latency of the plan imply: the formulas of slo.c
 * solved for it. */
static double exec_of_plan(const weft_placement *p, bool alone)
{
    if (p->exec_us > 0)
        return p->exec_us;
    if (!(p->capacity_per_s > 0))
        return 0;
    double cycle_us = (double)p->batch * p->procs * 1e6 / p->capacity_per_s;
    return alone ? cycle_us : p->latency_us - cycle_us;
}

static weft_err make_sizes(sim_world *w, const weft_placement *p, bool alone, sim_replica *r)
{
    const weft_profile *profile = &w->demand[r->service]->profile;
    if (profile->n == 0) {
        sim_size *size = weft_arena_array(w->arena, 1, sizeof *size);
        r->size = size;
        double exec_us = exec_of_plan(p, alone);
        if (!(exec_us > 0))
            return weft_sim__refuse(
                w, p, "no execution time: there is no profile, and the plan has no capacity");
        return add_size(w, p, size, &r->n_size, p->batch, exec_us, 1, NULL);
    }
    sim_size *size = weft_arena_array(w->arena, profile->n, sizeof *size);
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *q = &profile->point[i];
        if (q->procs != p->procs || q->batch > p->batch || !weft_point__usable(q) ||
            strcmp(q->slice, p->slice) != 0 || strcmp(q->device, p->type) != 0)
            continue;
        bool twice = false;
        for (uint32_t k = 0; k < r->n_size; k++)
            twice = twice || size[k].batch == q->batch;
        /* Where the profile has both, throughput is measured more exactly than time. */
        double exec_us = q->throughput_per_s > 0
                             ? (double)q->batch * q->procs * 1e6 / q->throughput_per_s
                             : q->cost.time_us;
        bool apart = p->mig_start >= 0 || !(q->idle_us > 0);
        double idle = apart ? 1 : q->idle_us / q->cost.time_us;
        if (!twice)
            WEFT_TRY(add_size(w, p, size, &r->n_size, q->batch, exec_us, idle, q));
    }
    r->size = size;
    if (r->n_size == 0 || size[r->n_size - 1].batch != p->batch)
        return weft_sim__refuse(w, p, "the profile has no point for this slice, batch and procs");
    return WEFT_ERR_OK;
}

static int64_t hold_of(const sim_world *w, const sim_replica *r, const weft_placement *p,
                       bool alone)
{
    double slo_us = w->service[r->service].slo_us, exec_us = 0;
    if (!w->fill) {
        double delay_us = w->o->queue_delay_us;
        if (slo_us > 0 && delay_us > slo_us / 4)
            delay_us = slo_us / 4;
        return (int64_t)(delay_us * 1e3);
    }
    if (!alone || !(slo_us > 0) || !(p->rate_per_s > 0))
        return 0;
    for (uint32_t i = 0; i < r->n_size; i++)
        exec_us = fmax(exec_us, (double)r->size[i].exec_ns / 1e3);
    double flush_us = slo_us - exec_us - 0.05 * slo_us;
    return flush_us > 0 && flush_us < 1e15 ? (int64_t)(flush_us * 1e3) : 0;
}

/* -- Devices ---------------------------------------------------------------------------------- */

uint32_t weft_sim__add_device(sim_world *w, const weft_plan *plan, const char *type)
{
    const weft_fleet *fleet = w->o->problem->fleet;
    const weft_fleet_device *row = fleet ? weft_fleet__row(fleet, type) : NULL;
    sim_device d = {.type = weft_arena_strdup(w->arena, type), .idle_w = -1};
    if (row)
        d.price_per_hour = weft_fleet__price(row);
    else if (plan->gpus > 0)
        d.price_per_hour = plan->cost_per_hour / plan->gpus;
    for (size_t i = 0; i < w->o->n_power; i++)
        if (strcmp(w->o->power[i].type, type) == 0) {
            d.idle_w = w->o->power[i].idle_w;
            d.busy_w = w->o->power[i].busy_w;
        }
    if (d.idle_w < 0) {
        d.idle_w = 0;
        w->no_watts = true;
    }
    WEFT_VEC_PUSH(w->arena, &w->device, d);
    return w->device.len - 1;
}

/* -- Making slices ---------------------------------------------------------------------------- */

static weft_err take_room(sim_world *w, uint64_t requests)
{
    w->room += requests;
    if (w->room > SIM_ENTRIES_MAX)
        return weft_diag_error(w->diag, WEFT_ERR_NOMEM, (weft_where){0},
                               "batches of all processes hold over %d requests", SIM_ENTRIES_MAX);
    return WEFT_ERR_OK;
}

static bool serves_app(const sim_service *app, uint32_t model)
{
    for (uint32_t i = 0; i < app->n_variant; i++)
        if (app->variant[i] == model)
            return true;
    return false;
}

static void set_rate(sim_replica *r, double rate_per_s)
{
    double stride = 1e12 / rate_per_s;
    r->weight = rate_per_s;
    r->stride = stride < 1 ? 1 : stride < 1e12 ? (uint64_t)stride : (uint64_t)1000000000000;
}

void weft_sim__set_weight(sim_replica *r, const weft_placement *p)
{
    double rate = p->rate_per_s > 0 ? p->rate_per_s : p->capacity_per_s;
    if (rate > 0)
        set_rate(r, rate);
}

/* Makes a replica and adds it to the routes of its model and of the apps that the model serves. */
static weft_err add_replica(sim_world *w, const weft_placement *p, uint32_t slice, bool alone)
{
    sim_replica r = {.slice = slice,
                     .service = weft_sim__find_model(w, p->model),
                     .batch = p->batch,
                     .procs = alone ? p->procs : 1,
                     .queue = UINT32_MAX};
    WEFT_TRY(make_sizes(w, p, alone, &r));
    r.hold_ns = hold_of(w, &r, p, alone);
    set_rate(&r, (double)r.batch * r.procs * 1e9 / (double)r.size[r.n_size - 1].exec_ns);
    weft_sim__set_weight(&r, p);
    if (w->o->router != WEFT_SIM_PULL)
        r.queue = weft_sim__add_queue(w);
    uint32_t index = w->replica.len;
    WEFT_VEC_PUSH(w->arena, &w->replica, r);
    WEFT_VEC_PUSH(w->arena, &w->service[r.service].route, index);
    for (uint32_t i = w->n_model; i < w->n_service; i++)
        if (serves_app(&w->service[i], r.service))
            WEFT_VEC_PUSH(w->arena, &w->service[i].route, index);
    return WEFT_ERR_OK;
}

/* Lanes of a slice: the queues of its replicas or, when pulling, those of their models. */
static uint32_t make_lanes(sim_world *w, const sim_slice *s, sim_lane **out)
{
    sim_lane *lane = weft_arena_array(w->arena, s->n_replica, sizeof *lane);
    for (uint32_t i = 0; i < s->n_replica; i++) {
        const sim_replica *r = &w->replica.at[s->first_replica + i];
        lane[i] = (sim_lane){.queue = r->queue == UINT32_MAX ? r->service : r->queue,
                             .replica = s->first_replica + i};
    }
    *out = lane;
    return s->n_replica;
}

/* Whether the times of its batches depend on its neighbours. */
static bool is_paced(const sim_slice *s, const sim_replica *r)
{
    if (s->among)
        return true;
    for (uint32_t i = 0; i < r->n_size; i++)
        if (r->size[i].idle_ns < r->size[i].exec_ns)
            return true;
    return false;
}

static const char *join_models(sim_world *w, const sim_group *g)
{
    const char *text = weft_arena_strdup(w->arena, g->at[0]->model);
    for (uint32_t i = 1; i < g->n; i++)
        text = weft_arena_printf(w->arena, "%s+%s", text, g->at[i]->model);
    return text;
}

/* Whether interference slows the slice down. Times that follow from the plan include it. */
static bool has_neighbours(const sim_world *w, const weft_placement *p)
{
    return weft_interference__any(&w->o->problem->rules.interference) && strchr(p->slice, '%') &&
           w->demand[weft_sim__find_model(w, p->model)]->profile.n > 0;
}

weft_err weft_sim__add_slice(sim_world *w, const sim_group *g)
{
    const weft_placement *p = g->at[0];
    bool alone = g->n == 1;
    sim_slice s = {.device = g->device,
                   .slice_id = p->slice_id,
                   .mig_start = p->mig_start,
                   .share = p->share > 0 ? fmin(p->share, 1) : 1,
                   .among = has_neighbours(w, p),
                   .state = SIM_STARTING,
                   .off_ns = sim_never_ns,
                   .first_replica = w->replica.len,
                   .n_replica = g->n,
                   .first_server = w->server.len,
                   .n_server = alone ? p->procs : 1,
                   .models = join_models(w, g),
                   .key = g->key};
    snprintf(s.name, sizeof s.name, "%s", p->slice);
    s.placement = weft_arena_array(w->arena, g->n, sizeof *s.placement);
    for (uint32_t i = 0; i < g->n; i++) {
        s.placement[i] = *g->at[i];
        weft_placement_own(&s.placement[i], w->arena); /* plans of the controller end */
    }
    uint32_t batch = 0, slice = w->slice.len;
    for (uint32_t i = 0; i < g->n; i++) {
        WEFT_TRY(add_replica(w, g->at[i], slice, alone));
        batch = g->at[i]->batch > batch ? g->at[i]->batch : batch;
    }
    WEFT_TRY(take_room(w, (uint64_t)batch * s.n_server));
    for (uint32_t i = 0; i < s.n_server; i++) {
        sim_server server = {.slice = slice};
        server.run = weft_arena_array(w->arena, batch, sizeof *server.run);
        s.n_lane = make_lanes(w, &s, &server.lane);
        WEFT_VEC_PUSH(w->arena, &w->server, server);
    }
    if (w->server.len >> (SIM_TIMER_SHIFT - 1))
        return weft_diag_error(w->diag, WEFT_ERR_NOMEM, (weft_where){0}, "too many processes");
    WEFT_VEC_PUSH(w->arena, &w->slice, s);
    weft_sim__account_devices(w);
    w->live_share += s.share;
    sim_device *d = &w->device.at[s.device];
    WEFT_VEC_PUSH(w->arena, &d->slice, slice);
    if (d->slice.len == 1)
        weft_sim__use_device(w, d, true);
    for (uint32_t i = s.first_replica; i < w->replica.len; i++)
        d->paced = d->paced || is_paced(&s, &w->replica.at[i]);
    return WEFT_ERR_OK;
}
