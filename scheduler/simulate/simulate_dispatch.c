/* What the router decides in the simulation: the server's own functions (scheduler/dispatch) on
 * simulated queues and processes.
 *
 * The server measures the times of batches and learns them; so it is here, from those of the
 * profile on. A model with replicas of different speeds is forecast by the first one that
 * serves. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>

/* -- Batches ---------------------------------------------------------------------------------- */

sim_size *weft_sim__size(const sim_replica *replica, uint32_t *rows)
{
    uint32_t i = 0;
    if (replica->n_size == 1)
        return replica->size;
    while (replica->size[i].batch < *rows)
        i++;
    uint32_t above = replica->size[i].batch;
    if (above == *rows || i == 0 || 3 * (above - *rows) <= above)
        return &replica->size[i];
    *rows = replica->size[i - 1].batch;
    return &replica->size[i - 1];
}

/* -- Queues as lines -------------------------------------------------------------------------- */

sim_request *weft_sim__waiting(const sim_queue *q, uint32_t i)
{
    return &q->at[(q->head + i) & (q->room - 1)];
}

static uint64_t to_unsigned(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

static const void *next_waiting(const void *of, const void *at, weft_waiting *out)
{
    const sim_queue *q = ((const sim_line *)of)->queue;
    uint32_t i = 0;
    if (at)
        i = (uint32_t)(((const sim_request *)at - q->at + q->room - q->head) & (q->room - 1)) + 1;
    if (i >= q->len)
        return NULL;
    const sim_request *r = weft_sim__waiting(q, i);
    *out = (weft_waiting){.due_ns = r->due_ns, .rows = 1, .promised = r->promised};
    return r;
}

static weft_batch_time time_of(const void *of, int64_t rows)
{
    const sim_replica *r = ((const sim_line *)of)->replica;
    uint32_t n = rows < 1 ? 1 : rows > r->batch ? r->batch : (uint32_t)rows;
    return weft_sim__size(r, &n)->learnt;
}

static int64_t size_at(const void *of, uint32_t i)
{
    return ((const sim_line *)of)->replica->size[i].batch;
}

static weft_line make_line(const sim_line *of)
{
    return (weft_line){.of = of,
                       .next = next_waiting,
                       .time = time_of,
                       .size = size_at,
                       .n_size = of->replica->n_size,
                       .most_rows = of->replica->batch};
}

/* The first replica of a model that serves; NULL: none. */
static const sim_replica *first_replica(const sim_world *w, uint32_t model)
{
    const sim_service *s = &w->service[model];
    for (uint32_t i = 0; i < s->route.len; i++) {
        const sim_replica *r = &w->replica.at[s->route.at[i]];
        if (w->slice.at[r->slice].state == SIM_ON)
            return r;
    }
    return NULL;
}

/* -- Promises --------------------------------------------------------------------------------- */

/* When the batch has to end that a model runs for the request. */
static uint64_t due_ns(const sim_world *w, const sim_request *r, uint32_t model)
{
    return weft_line_due_ns(to_unsigned(r->time_ns), w->service[r->service].slo_us,
                            (double)w->service[model].host_ns * 1e-3);
}

void weft_sim__promise(const sim_world *w, uint32_t model, sim_request *r)
{
    bool asks = w->o->admission == WEFT_SIM_ADMIT_SLO ||
                (w->o->admission == WEFT_SIM_ADMIT_MODEL && w->demand[model]->admit_by_slo);
    r->due_ns = due_ns(w, r, model);
    r->promised = asks && w->service[r->service].slo_ns > 0;
}

/* -- On arrival ------------------------------------------------------------------------------- */

static double left_ns(const sim_world *w, const sim_server *s)
{
    return s->busy && s->end_ns > w->now_ns ? (double)(s->end_ns - w->now_ns) : 0;
}

/* The processes that serve a model; marks the other queues that they serve. */
static weft_crew look_at_servers(sim_world *w, uint32_t model, bool mark)
{
    const sim_queue *q = &w->queue.at[model];
    weft_crew crew = {.soonest_ns = HUGE_VAL};
    for (uint32_t i = 0; i < q->server.len; i++) {
        const sim_server *s = &w->server.at[q->server.at[i]];
        const sim_slice *slice = &w->slice.at[s->slice];
        if (slice->state != SIM_ON)
            continue;
        crew.n++;
        crew.any_idle = crew.any_idle || !s->busy;
        crew.soonest_ns = fmin(crew.soonest_ns, left_ns(w, s));
        for (uint32_t k = 0; k < slice->n_lane; k++)
            w->queue.at[s->lane[k].queue].marked = mark;
    }
    return crew;
}

static weft_forecast forecast(sim_world *w, uint32_t model, const sim_replica *replica,
                              uint64_t due)
{
    weft_crew crew = look_at_servers(w, model, true);
    sim_line *other = w->other;
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_model; i++) {
        const sim_queue *q = &w->queue.at[i];
        const sim_replica *r = q->marked && i != model && q->len > 0 ? first_replica(w, i) : NULL;
        if (!r)
            continue;
        other[n] = (sim_line){q, r};
        w->line[n] = make_line(&other[n]);
        n++;
    }
    look_at_servers(w, model, false);
    const sim_line of = {&w->queue.at[model], replica};
    weft_line line = make_line(&of);
    const weft_waiting r = {.due_ns = due, .rows = 1};
    return weft_line_forecast(&line, w->line, n, &r, &crew, to_unsigned(w->now_ns));
}

/* The variant that answers a request to an app; UINT32_MAX: none. */
static uint32_t pick_variant(sim_world *w, const sim_request *r)
{
    sim_service *app = &w->service[r->service];
    for (uint32_t i = 0; i < app->n_variant; i++) {
        uint32_t model = app->variant[i];
        const sim_replica *replica = first_replica(w, model);
        w->variant[i] = (weft_pick_variant){.accuracy = app->accuracy[i]};
        if (!replica || w->queue.at[model].len >= w->queue_max)
            continue;
        weft_forecast f = forecast(w, model, replica, due_ns(w, r, model));
        const sim_size *most = &replica->size[replica->n_size - 1];
        w->variant[i].ready = true;
        w->variant[i].wait_us = f.start_ns * 1e-3;
        w->variant[i].finish_us = (f.finish_ns + (double)w->service[model].host_ns) * 1e-3;
        w->variant[i].cost =
            most->learnt.mean_ns * 1e-6 / most->batch * w->slice.at[replica->slice].share;
    }
    const weft_pick_query query = {.latency_us = app->slo_us, .mean = app->mean};
    weft_pick p = weft_pick_choose(w->variant, app->n_variant, &query);
    if (p.reason == WEFT_PICK_NONE)
        return UINT32_MAX;
    weft_pick_begin(&app->mean, app->accuracy[p.variant]);
    return app->variant[p.variant];
}

void weft_sim__settle(sim_world *w, const sim_request *r, uint32_t model, bool answered)
{
    sim_service *app = &w->service[r->service];
    for (uint32_t i = 0; i < app->n_variant; i++)
        if (app->variant[i] == model)
            weft_pick_end(&app->mean, app->accuracy[i], answered);
}

bool weft_sim__admit(sim_world *w, sim_request *r, uint32_t *out_model)
{
    uint32_t model = w->service[r->service].app ? pick_variant(w, r) : r->service;
    if (model == UINT32_MAX)
        return false;
    *out_model = model;
    weft_sim__promise(w, model, r);
    const sim_replica *replica = r->promised ? first_replica(w, model) : NULL;
    if (!replica)
        return true;
    weft_forecast f = forecast(w, model, replica, r->due_ns);
    return !(weft_forecast_late_ns(&f, r->due_ns, to_unsigned(w->now_ns)) > 0);
}

/* -- When a process is idle ------------------------------------------------------------------- */

bool weft_sim__goes_first(const sim_world *w, const sim_queue *a, const sim_queue *b)
{
    const weft_line_turn turn[] = {{weft_sim__waiting(a, 0)->due_ns, a->virtual_ns},
                                   {weft_sim__waiting(b, 0)->due_ns, b->virtual_ns}};
    return weft_line_goes_first(&turn[0], &turn[1], to_unsigned(w->now_ns));
}

weft_line_choice weft_sim__choose(const sim_world *w, uint32_t queue, const sim_replica *replica)
{
    const sim_line of = {&w->queue.at[queue], replica};
    weft_line line = make_line(&of);
    return weft_line_choose(&line, replica->batch, to_unsigned(w->now_ns));
}

void weft_sim__charge(sim_world *w, uint32_t queue, const sim_replica *replica, uint32_t rows)
{
    sim_queue *q = &w->queue.at[queue];
    const sim_line of = {q, replica};
    weft_line line = make_line(&of);
    w->virtual_ns = q->virtual_ns;
    q->virtual_ns += weft_line_charge(&line, rows);
}
