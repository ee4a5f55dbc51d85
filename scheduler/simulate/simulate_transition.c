/* Plans become slices, processes and queues; and one plan becomes another while requests flow.
 *
 * A switch keeps every slice that the new plan has on the same device, in the same place, with the
 * same models, batches and processes. Devices of the new plan are those of the old one that carry
 * the same slices, else that have the same number, else any of the type. A new slice serves
 * start_s after the switch, MIG instances mig_s later still. A MIG instance that is in the way of
 * a new one (or of another way to split the device) stops at the switch, and the new one starts
 * when its last batch has ended; all other slices that the new plan lacks serve until the last new
 * one does, so that nothing is missing meanwhile.
 *
 * A policy is called with the rates of the last period: the very object and state that a server
 * would call. What it refuses leaves the plan in force. */
#include "scheduler/simulate/simulate_int.h"

#include "base/hash.h"

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

static uint32_t find_model(const weft_service *service, size_t n, const char *name)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(service[mid].name, name);
        if (c == 0)
            return (uint32_t)mid;
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return UINT32_MAX;
}

/* Models and apps in the order of services. */
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

static weft_err init_app(sim_world *w, const weft_service *names, const weft_set_app *app,
                         sim_service *s)
{
    double *accuracy = weft_arena_array(w->arena, app->n_variant + 1, sizeof *accuracy);
    s->app = true;
    s->slo_us = app->slo_us;
    s->variant = weft_arena_array(w->arena, app->n_variant + 1, sizeof *s->variant);
    for (size_t k = 0; k < app->n_variant; k++) {
        uint32_t m = find_model(names, w->n_model, app->variant[k].model);
        if (m == UINT32_MAX)
            return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){.item = app->name},
                                   "variant '%s' is no model", app->variant[k].model);
        s->variant[s->n_variant] = m;
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
    for (uint32_t i = 0; i < n; i++) {
        sim_service *s = &w->service[i];
        s->name = names[i].name;
        if (i < w->n_model)
            s->slo_us = demand[i]->slo_us;
        else
            WEFT_TRY(init_app(w, names, app[i - w->n_model], s));
        s->slo_ns = s->slo_us < 1e15 ? (int64_t)(s->slo_us * 1e3 + 0.5) : sim_never_ns;
        weft_sim__add_queue(w);
    }
    return WEFT_ERR_OK;
}

static uint32_t find_service(const sim_world *w, const char *model)
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

/* -- Execution times -------------------------------------------------------------------------- */

static weft_err fail(const sim_world *w, const weft_placement *p, const char *text)
{
    return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){.item = p->model},
                           "device %u slice '%s' batch %u procs %u: %s", p->device, p->slice,
                           p->batch, p->procs, text);
}

static weft_err add_size(const sim_world *w, const weft_placement *p, sim_size *size, uint32_t *n,
                         uint32_t batch, double exec_us, double energy_j)
{
    uint32_t i = *n;
    if (!(exec_us > 0) || !(exec_us < 1e12))
        return fail(w, p, "execution time is not between 0 and 1e6 s");
    while (i > 0 && size[i - 1].batch > batch) {
        size[i] = size[i - 1];
        i--;
    }
    int64_t ns = (int64_t)(exec_us * 1e3 + 0.5);
    size[i] = (sim_size){.batch = batch, .exec_ns = ns > 0 ? ns : 1, .energy_j = energy_j};
    (*n)++;
    return WEFT_ERR_OK;
}

/* What the numbers of the plan imply: slo.c, read backwards. */
static double exec_of_plan(const weft_placement *p, bool alone)
{
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
            return fail(w, p, "neither a profile nor the plan's capacity tells its time");
        return add_size(w, p, size, &r->n_size, p->batch, exec_us, 0);
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
        /* Throughput is the more exact of the two measurements, where there are both. */
        double exec_us = q->throughput_per_s > 0
                             ? (double)q->batch * q->procs * 1e6 / q->throughput_per_s
                             : q->cost.time_us;
        if (!twice)
            WEFT_TRY(add_size(w, p, size, &r->n_size, q->batch, exec_us, q->cost.energy_j));
    }
    r->size = size;
    if (r->n_size == 0 || size[r->n_size - 1].batch != p->batch)
        return fail(w, p, "the profile has no such point");
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

/* -- Plans as groups of placements ------------------------------------------------------------ */

/* The placements of one slice, in the order of models. */
typedef struct group {
    const weft_placement *const *at;
    uint32_t n, device; /* of the plan, then of the world */
    uint64_t key;
    uint32_t kept; /* slice that goes on, or UINT32_MAX */
} group;

static int order_placements(const void *a, const void *b)
{
    const weft_placement *p = *(const weft_placement *const *)a,
                         *q = *(const weft_placement *const *)b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->slice_id != q->slice_id)
        return p->slice_id < q->slice_id ? -1 : 1;
    return strcmp(p->model, q->model);
}

static weft_err check_placement(const sim_world *w, const weft_placement *p)
{
    if (find_service(w, p->model) == UINT32_MAX)
        return fail(w, p, "no such model among the demands");
    if (p->batch < 1 || p->batch > SIM_BATCH_MAX)
        return fail(w, p, "the runtime joins from 1 to 256 requests");
    if (p->procs < 1 || p->procs > WEFT_MPS_CLIENTS_MAX)
        return fail(w, p, "procs must be from 1 to 48");
    if (p->mig_start > 31 || p->mig_start < -1)
        return fail(w, p, "no such MIG slot");
    return WEFT_ERR_OK;
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return weft_hash64(text, strlen(text), h);
}

static weft_err make_groups(sim_world *w, const weft_plan *plan, weft_arena *arena, group **out,
                            uint32_t *out_n)
{
    const weft_placement **p = weft_arena_array(arena, plan->n + 1, sizeof *p);
    group *g = weft_arena_array(arena, plan->n + 1, sizeof *g);
    uint32_t n = 0;
    if (plan->n > WEFT_PLAN_PLACEMENTS_MAX)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "plan has more than %d placements", WEFT_PLAN_PLACEMENTS_MAX);
    for (size_t i = 0; i < plan->n; i++) {
        WEFT_TRY(check_placement(w, &plan->at[i]));
        p[i] = &plan->at[i];
    }
    qsort(p, plan->n, sizeof *p, order_placements);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *last = i ? p[i - 1] : NULL;
        bool same = last && last->device == p[i]->device && last->slice_id == p[i]->slice_id;
        if (last && last->device == p[i]->device && strcmp(last->type, p[i]->type) != 0)
            return fail(w, p[i], "the device has two types");
        if (same && (strcmp(last->slice, p[i]->slice) != 0 || last->mig_start != p[i]->mig_start))
            return fail(w, p[i], "the slice has two shapes");
        if (same && strcmp(last->model, p[i]->model) == 0)
            return fail(w, p[i], "the model is twice on the slice");
        if (!same)
            g[n++] = (group){.at = &p[i],
                             .device = p[i]->device,
                             .kept = UINT32_MAX,
                             .key = hash_text(hash_text(7, p[i]->type), p[i]->slice) +
                                    (uint64_t)(uint32_t)p[i]->mig_start};
        group *at = &g[n - 1];
        at->n++;
        at->key =
            weft_hash_mix(weft_hash_mix(hash_text(at->key, p[i]->model), p[i]->batch), p[i]->procs);
    }
    *out = g;
    *out_n = n;
    return WEFT_ERR_OK;
}

/* -- Devices ---------------------------------------------------------------------------------- */

static uint32_t add_device(sim_world *w, const weft_plan *plan, const char *type)
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

typedef struct marked {
    uint64_t mark;
    uint32_t device;
} marked;

static int order_marks(const void *a, const void *b)
{
    const marked *p = a, *q = b;
    if (p->mark != q->mark)
        return p->mark < q->mark ? -1 : 1;
    return p->device < q->device ? -1 : p->device > q->device;
}

/* Devices of the plan with the same slices as one of the world get that one. */
static void match_marks(sim_world *w, marked *now, uint32_t n_now, marked *old, uint32_t n_old,
                        uint32_t *to)
{
    qsort(now, n_now, sizeof *now, order_marks);
    qsort(old, n_old, sizeof *old, order_marks);
    for (uint32_t i = 0, k = 0; i < n_now && k < n_old;) {
        if (now[i].mark == old[k].mark) {
            to[now[i++].device] = old[k].device;
            w->device.at[old[k++].device].taken = true;
        } else if (now[i].mark < old[k].mark) {
            i++;
        } else {
            k++;
        }
    }
}

/* Gives each device of the plan (numbered as there) one of the world. */
static void map_devices(sim_world *w, const weft_plan *plan, group *g, uint32_t n,
                        weft_arena *arena)
{
    uint32_t n_plan = 0, n_old = w->device.len, *to;
    for (uint32_t i = 0; i < n; i++)
        n_plan += i == 0 || g[i].device != g[i - 1].device;
    to = weft_arena_array(arena, n_plan + 1, sizeof *to);
    marked *now = weft_arena_array(arena, n_plan + 1, sizeof *now);
    marked *old = weft_arena_array(arena, n_old + 1, sizeof *old);
    const char **type = weft_arena_array(arena, n_plan + 1, sizeof *type);
    uint32_t *number = weft_arena_array(arena, n_plan + 1, sizeof *number);
    uint32_t d = 0;
    for (uint32_t i = 0; i < n; i++) {
        d += i > 0 && g[i].device != g[i - 1].device;
        now[d].device = d;
        now[d].mark += g[i].key;
        type[d] = g[i].at[0]->type;
        number[d] = g[i].device;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        w->device.at[i].mark = 0;
        w->device.at[i].taken = false;
    }
    for (uint32_t i = 0; i < w->slice.len; i++)
        if (w->slice.at[i].state == SIM_ON || w->slice.at[i].state == SIM_STARTING)
            w->device.at[w->slice.at[i].device].mark += w->slice.at[i].key;
    for (uint32_t i = 0; i < n_old; i++)
        old[i] = (marked){w->device.at[i].mark, i};
    for (uint32_t i = 0; i < n_plan; i++)
        to[i] = UINT32_MAX;
    match_marks(w, now, n_plan, old, n_old, to);
    for (uint32_t i = 0; i < n_plan; i++) {
        uint32_t same = number[i];
        if (to[i] == UINT32_MAX && same < n_old && !w->device.at[same].taken &&
            strcmp(w->device.at[same].type, type[i]) == 0) {
            to[i] = same;
            w->device.at[same].taken = true;
        }
    }
    uint32_t next = 0;
    const char *next_type = NULL;
    for (uint32_t i = 0; i < n_plan; i++) {
        if (to[i] != UINT32_MAX)
            continue;
        if (!next_type || strcmp(next_type, type[i]) != 0)
            next = 0;
        next_type = type[i];
        while (next < n_old &&
               (w->device.at[next].taken || strcmp(w->device.at[next].type, type[i]) != 0))
            next++;
        to[i] = next < n_old ? next : add_device(w, plan, type[i]);
        w->device.at[to[i]].taken = true;
    }
    for (uint32_t i = n, at = n_plan; i-- > 0;) {
        /* The groups of a device are neighbours; from behind, so that g[i - 1] is still as it was.
         */
        if (i == n - 1 || g[i].device != number[at])
            at--;
        g[i].device = to[at];
    }
}

/* -- Making slices ---------------------------------------------------------------------------- */

static uint32_t mig_mask(const char *type, const char *slice, int32_t start)
{
    const weft_device_type *t = weft_device_type_find(type);
    if (start < 0)
        return 0;
    for (size_t i = 0; t && i < t->n_mig; i++)
        if (strcmp(t->mig[i].name, slice) == 0 && t->mig[i].slots < 32)
            return (((uint32_t)1 << t->mig[i].slots) - 1) << start;
    return (uint32_t)1 << start;
}

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

/* A replica, and which requests may come to it. */
static weft_err add_replica(sim_world *w, const weft_placement *p, uint32_t slice, bool alone)
{
    sim_replica r = {.slice = slice,
                     .service = find_service(w, p->model),
                     .batch = p->batch,
                     .procs = alone ? p->procs : 1,
                     .queue = UINT32_MAX};
    WEFT_TRY(make_sizes(w, p, alone, &r));
    r.hold_ns = hold_of(w, &r, p, alone);
    r.weight = p->rate_per_s > 0 ? p->rate_per_s : p->capacity_per_s;
    if (!(r.weight > 0))
        r.weight = (double)r.batch * r.procs * 1e9 / (double)r.size[r.n_size - 1].exec_ns;
    double stride = 1e12 / r.weight;
    r.stride = stride < 1 ? 1 : stride < 1e12 ? (uint64_t)stride : (uint64_t)1000000000000;
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

/* Lanes of a slice: its replicas' queues, or those of the models and apps that they serve. */
static uint32_t make_lanes(sim_world *w, const sim_slice *s, sim_lane **out)
{
    uint32_t n = 0, room = s->n_replica;
    for (uint32_t i = 0; i < s->n_replica && w->o->router == WEFT_SIM_PULL; i++)
        for (uint32_t k = w->n_model; k < w->n_service; k++)
            room += serves_app(&w->service[k], w->replica.at[s->first_replica + i].service);
    sim_lane *lane = weft_arena_array(w->arena, room, sizeof *lane);
    for (uint32_t i = 0; i < s->n_replica; i++) {
        uint32_t index = s->first_replica + i;
        const sim_replica *r = &w->replica.at[index];
        lane[n++] =
            (sim_lane){.queue = r->queue == UINT32_MAX ? r->service : r->queue, .replica = index};
        for (uint32_t k = w->n_model; k < w->n_service && r->queue == UINT32_MAX; k++)
            if (serves_app(&w->service[k], r->service))
                lane[n++] = (sim_lane){.queue = k, .replica = index};
    }
    *out = lane;
    return n;
}

static const char *join_models(sim_world *w, const group *g)
{
    const char *text = weft_arena_strdup(w->arena, g->at[0]->model);
    for (uint32_t i = 1; i < g->n; i++)
        text = weft_arena_printf(w->arena, "%s+%s", text, g->at[i]->model);
    return text;
}

static weft_err add_slice(sim_world *w, const group *g)
{
    const weft_placement *p = g->at[0];
    bool alone = g->n == 1;
    sim_slice s = {.device = g->device,
                   .slice_id = p->slice_id,
                   .mig_start = p->mig_start,
                   .mig_mask = mig_mask(p->type, p->slice, p->mig_start),
                   .share = p->share > 0 ? fmin(p->share, 1) : 1,
                   .state = SIM_STARTING,
                   .off_ns = sim_never_ns,
                   .first_replica = w->replica.len,
                   .n_replica = g->n,
                   .first_server = w->server.len,
                   .n_server = alone ? p->procs : 1,
                   .models = join_models(w, g),
                   .key = g->key};
    snprintf(s.name, sizeof s.name, "%s", p->slice);
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
    weft_sim__account(w);
    w->live_share += s.share;
    sim_device *d = &w->device.at[s.device];
    if (d->live++ == 0)
        weft_sim__use_device(w, d, true);
    return WEFT_ERR_OK;
}

/* -- Switching -------------------------------------------------------------------------------- */

/* Placements may carry other rates now. */
static void keep_slice(sim_world *w, const group *g, sim_slice *s)
{
    s->kept = true;
    for (uint32_t i = 0; i < g->n; i++) {
        sim_replica *r = &w->replica.at[s->first_replica + i];
        double rate = g->at[i]->rate_per_s > 0 ? g->at[i]->rate_per_s : g->at[i]->capacity_per_s;
        if (rate > 0) {
            r->weight = rate;
            double stride = 1e12 / rate;
            r->stride = stride < 1 ? 1 : stride < 1e12 ? (uint64_t)stride : 1000000000000u;
        }
    }
}

typedef struct live {
    uint64_t key;
    uint32_t device, slice;
} live;

static int order_live(const void *a, const void *b)
{
    const live *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->key != q->key)
        return p->key < q->key ? -1 : 1;
    return p->slice < q->slice ? -1 : p->slice > q->slice;
}

/* Finds the slices that go on; returns how many. */
static uint32_t keep_slices(sim_world *w, group *g, uint32_t n, weft_arena *arena)
{
    live *old = weft_arena_array(arena, w->slice.len + 1, sizeof *old);
    live *now = weft_arena_array(arena, n + 1, sizeof *now);
    uint32_t n_old = 0, kept = 0;
    for (uint32_t i = 0; i < w->slice.len; i++) {
        sim_slice *s = &w->slice.at[i];
        s->kept = false;
        if ((s->state == SIM_ON || s->state == SIM_STARTING))
            old[n_old++] = (live){s->key, s->device, i};
    }
    for (uint32_t i = 0; i < n; i++)
        now[i] = (live){g[i].key, g[i].device, i};
    qsort(old, n_old, sizeof *old, order_live);
    qsort(now, n, sizeof *now, order_live);
    for (uint32_t i = 0, k = 0; i < n && k < n_old;) {
        bool before = old[k].device < now[i].device ||
                      (old[k].device == now[i].device && old[k].key < now[i].key);
        if (old[k].device == now[i].device && old[k].key == now[i].key) {
            group *at = &g[now[i++].slice];
            at->kept = old[k++].slice;
            keep_slice(w, at, &w->slice.at[at->kept]);
            kept++;
        } else if (before) {
            k++;
        } else {
            i++;
        }
    }
    return kept;
}

/* Is the old slice in the way of the new one? */
static bool blocks(const sim_slice *old, const sim_slice *now)
{
    if (old->device != now->device)
        return false;
    if ((old->mig_start >= 0) != (now->mig_start >= 0))
        return true;
    return (old->mig_mask & now->mig_mask) != 0;
}

/* When a new slice serves: start_s and mig_s behind what stands in its way. */
static int64_t clear_way(sim_world *w, uint32_t slice, const uint32_t *on_device, uint32_t n)
{
    const sim_slice *s = &w->slice.at[slice];
    int64_t from = w->now_ns;
    for (uint32_t i = 0; i < n; i++) {
        sim_slice *old = &w->slice.at[on_device[i]];
        if (old->kept || on_device[i] == slice || !blocks(old, s))
            continue;
        for (uint32_t k = 0; k < old->n_server; k++) {
            const sim_server *server = &w->server.at[old->first_server + k];
            if (server->busy && server->end_ns > from)
                from = server->end_ns;
        }
        old->off_ns = w->now_ns;
    }
    double wait_s = w->o->start_s + (s->mig_start >= 0 ? w->o->mig_s : 0);
    return from + (int64_t)(wait_s * 1e9);
}

/* The slices of each device that are there before the switch: lists one behind the other. */
static uint32_t *list_by_device(const sim_world *w, uint32_t n_slice, weft_arena *arena,
                                uint32_t **first)
{
    uint32_t n = w->device.len, *at = weft_arena_array(arena, n + 2, sizeof *at);
    for (uint32_t i = 0; i < n_slice; i++)
        if (w->slice.at[i].state != SIM_GONE)
            at[w->slice.at[i].device + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        at[i] += at[i - 1];
    uint32_t *list = weft_arena_array(arena, at[n + 1] + 1, sizeof *list);
    for (uint32_t i = 0; i < n_slice; i++)
        if (w->slice.at[i].state != SIM_GONE)
            list[at[w->slice.at[i].device + 1]++] = i;
    *first = at;
    return list;
}

static weft_err switch_plan(sim_world *w, const weft_plan *plan, const char *policy,
                            weft_arena *scratch)
{
    group *g;
    uint32_t n, n_old = w->slice.len, *first;
    WEFT_TRY(make_groups(w, plan, scratch, &g, &n));
    map_devices(w, plan, g, n, scratch);
    weft_sim_change change = {.at_s = (double)w->now_ns / 1e9, .policy = policy};
    change.kept = keep_slices(w, g, n, scratch);
    const uint32_t *list = list_by_device(w, n_old, scratch, &first);
    int64_t ready_ns = w->now_ns;
    for (uint32_t i = 0; i < n; i++) {
        if (g[i].kept != UINT32_MAX)
            continue;
        uint32_t slice = w->slice.len, d = g[i].device;
        WEFT_TRY(add_slice(w, &g[i]));
        int64_t on_ns = clear_way(w, slice, &list[first[d]], first[d + 1] - first[d]);
        w->slice.at[slice].on_ns = on_ns;
        weft_sim__set_timer(w, on_ns, SIM_TIMER_ON, slice);
        ready_ns = on_ns > ready_ns ? on_ns : ready_ns;
        change.started++;
    }
    for (uint32_t i = 0; i < n_old; i++) {
        sim_slice *s = &w->slice.at[i];
        if (s->kept || (s->state != SIM_ON && s->state != SIM_STARTING))
            continue;
        change.stopped++;
        if (s->off_ns == w->now_ns || s->state == SIM_STARTING || ready_ns == w->now_ns)
            weft_sim__close_slice(w, i);
        else
            weft_sim__set_timer(w, ready_ns, SIM_TIMER_OFF, i);
    }
    change.gpus = plan->gpus;
    change.ready_s = (double)ready_ns / 1e9;
    WEFT_VEC_PUSH(w->arena, &w->change, change);
    w->plan = plan;
    return WEFT_ERR_OK;
}

weft_err weft_sim__switch(sim_world *w, const weft_plan *plan, const char *policy)
{
    weft_arena *scratch = weft_arena_create(0);
    if (!scratch)
        return WEFT_ERR_NOMEM;
    weft_err err = switch_plan(w, plan, policy, scratch);
    weft_arena_destroy(scratch);
    return err;
}

weft_err weft_sim__begin(sim_world *w, const weft_plan *plan)
{
    const weft_sim_options *o = w->o;
    group *g;
    uint32_t n;
    WEFT_TRY(make_groups(w, plan, w->arena, &g, &n));
    map_devices(w, plan, g, n, w->arena);
    for (uint32_t i = 0; i < n; i++)
        WEFT_TRY(add_slice(w, &g[i]));
    for (uint32_t i = 0; i < n; i++)
        weft_sim__open_slice(w, i);
    w->plan = plan;
    w->bucket_start_ns = w->warm_ns;
    w->next_bucket_ns = w->next_carbon_ns = w->next_period_ns = w->next_step_ns = sim_never_ns;
    if (o->bucket_s > 0)
        w->next_bucket_ns = w->warm_ns + (int64_t)(o->bucket_s * 1e9);
    if (o->carbon)
        w->next_carbon_ns = (int64_t)(o->carbon->period_s * 1e9);
    if (o->policy) {
        w->next_period_ns = (int64_t)(o->period_s * 1e9);
        w->policy_state = weft_arena_array(w->arena, 1, o->policy->state_size);
    }
    if (o->n_step > 0)
        w->next_step_ns = (int64_t)(o->step[0].at_s * 1e9);
    return WEFT_ERR_OK;
}

/* -- Policies that go along ------------------------------------------------------------------- */

/* Demands and apps with the rates of the last period. */
static void observe(sim_world *w, weft_arena *arena, weft_problem *problem, weft_demands *demands)
{
    const weft_problem *named = w->o->problem;
    double headroom = w->o->headroom > 0 ? w->o->headroom : 1;
    weft_demand *d = weft_arena_array(arena, named->demands->n + 1, sizeof *d);
    weft_set_app *app = weft_arena_array(arena, named->n_app + 1, sizeof *app);
    for (size_t i = 0; i < named->demands->n; i++) {
        d[i] = named->demands->at[i];
        d[i].rate_per_s =
            headroom * (double)w->service[find_service(w, d[i].model)].seen / w->o->period_s;
    }
    for (size_t i = 0; i < named->n_app; i++) {
        app[i] = named->app[i];
        for (uint32_t k = w->n_model; k < w->n_service; k++)
            if (strcmp(w->service[k].name, app[i].name) == 0)
                app[i].rate_per_s = headroom * (double)w->service[k].seen / w->o->period_s;
    }
    for (uint32_t i = 0; i < w->n_service; i++)
        w->service[i].seen = 0;
    *demands = (weft_demands){d, named->demands->n};
    problem->demands = demands;
    problem->app = app;
}

static double intensity_now(const sim_world *w)
{
    const weft_carbon *c = w->o->carbon;
    double i = c ? (double)w->now_ns / 1e9 / c->period_s : 0;
    return c ? c->g_per_kwh[i < (double)c->n ? (size_t)i : c->n - 1]
             : w->o->problem->carbon_g_per_kwh;
}

static weft_err call_policy(sim_world *w)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_err err = WEFT_ERR_NOMEM;
    if (arena && diag) {
        weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
        weft_problem problem = *w->o->problem;
        weft_demands demands;
        observe(w, arena, &problem, &demands);
        problem.previous = w->plan;
        problem.now_s = (double)w->now_ns / 1e9;
        problem.carbon_g_per_kwh = intensity_now(w);
        err = weft_plan_make(w->o->policy, w->policy_state, &problem, arena, diag, plan);
        if (err == WEFT_ERR_OK)
            err = weft_sim__switch(w, plan, w->o->policy->name);
        else if (weft_diag_count(diag) > 0 && err != WEFT_ERR_INFEASIBLE)
            (void)weft_diag_error(w->diag, err, (weft_where){.item = weft_diag_at(diag, 0)->item},
                                  "policy %s at %g s: %s", w->o->policy->name, problem.now_s,
                                  weft_diag_at(diag, 0)->text);
    }
    weft_diag_destroy(diag);
    if (err == WEFT_ERR_OK) {
        weft_arena_destroy(w->plan_arena);
        w->plan_arena = arena;
        return WEFT_ERR_OK;
    }
    weft_arena_destroy(arena);
    if (err != WEFT_ERR_INFEASIBLE)
        return err;
    weft_sim_change change = {.at_s = (double)w->now_ns / 1e9,
                              .policy = w->o->policy->name,
                              .gpus = w->plan->gpus,
                              .ready_s = (double)w->now_ns / 1e9,
                              .refused = true};
    WEFT_VEC_PUSH(w->arena, &w->change, change);
    return WEFT_ERR_OK;
}

weft_err weft_sim__replan(sim_world *w)
{
    const weft_sim_options *o = w->o;
    while (w->now_ns >= w->next_step_ns) {
        WEFT_TRY(weft_sim__switch(w, o->step[w->next_step++].plan, "plan"));
        w->next_step_ns =
            w->next_step < o->n_step ? (int64_t)(o->step[w->next_step].at_s * 1e9) : sim_never_ns;
    }
    if (w->now_ns < w->next_period_ns)
        return WEFT_ERR_OK;
    if (++w->calls > 1000000)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "over 1000000 calls of the policy: make the period longer");
    w->next_period_ns += (int64_t)(o->period_s * 1e9);
    return call_policy(w);
}
