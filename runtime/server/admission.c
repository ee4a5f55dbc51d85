/* What the router knows for the decisions of scheduler/dispatch: when requests are due, the times
 * of batches, and the workers and queues that a request shares.
 *
 * The time of a batch is measured, by bucket. */
#include "runtime/server/router_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -- Times of batches ------------------------------------------------------------------------- */

void weft_admission__learn(router_model *model, int64_t rows, uint64_t took_ns)
{
    uint32_t i = 0;
    double took = (double)took_ns;
    while (i < model->n_time && model->time[i].rows < rows)
        i++;
    if (i == model->n_time || model->time[i].rows != rows) {
        if (model->n_time == BATCH_TIMES_MAX)
            return;
        memmove(&model->time[i + 1], &model->time[i], (model->n_time - i) * sizeof model->time[0]);
        model->time[i] =
            (batch_time){.rows = rows, .took = {.mean_ns = took}, .least_ns = took, .first = true};
        model->n_time++;
        return;
    }
    batch_time *t = &model->time[i];
    if (t->first && took < t->took.mean_ns)
        t->took.mean_ns = took; /* the first run prepares what the others use */
    t->first = false;
    t->least_ns = fmin(t->least_ns, took);
    weft_line_learn(&t->took, took);
}

/* The time of a bucket that was not measured is in proportion to that of the nearest one that was.
 */
static batch_time time_of(const router_model *model, int64_t rows)
{
    const batch_time *best = NULL;
    for (uint32_t i = 0; i < model->n_time; i++) {
        const batch_time *t = &model->time[i];
        if (!best || llabs(t->rows - rows) < llabs(best->rows - rows))
            best = t;
    }
    if (!best)
        return (batch_time){.rows = rows};
    double part = best->rows > 0 ? (double)rows / (double)best->rows : 1;
    return (batch_time){.rows = rows,
                        .took = {best->took.mean_ns * part, best->took.dev_ns * part},
                        .least_ns = best->least_ns * part};
}

uint64_t weft_admission__least_ns(const router_model *model, int64_t rows)
{
    return (uint64_t)time_of(model, weft_batch__padded(model, rows)).least_ns;
}

uint64_t weft_admission__batch_ns(const router_model *model, int64_t rows)
{
    return (uint64_t)time_of(model, weft_batch__padded(model, rows)).took.mean_ns;
}

/* -- Queues as lines ------------------------------------------------------------------------- */

static const void *next_waiting(const void *of, const void *at, weft_waiting *out)
{
    const weft_request *r =
        at ? ((const weft_request *)at)->next : ((const router_model *)of)->head;
    if (r)
        *out = (weft_waiting){
            .due_ns = r->due_ns, .rows = r->rows, .promised = r->promised, .kept = r->attempts > 0};
    return r;
}

static weft_batch_time time_of_batch(const void *of, int64_t rows)
{
    return time_of(of, weft_batch__padded(of, rows)).took;
}

static int64_t size_at(const void *of, uint32_t i)
{
    const weft_bundle_program *p = ((const router_model *)of)->program;
    return p->bucket[i].symbol[p->batch_symbol];
}

weft_line weft_admission__line(const router_model *model)
{
    const weft_bundle_program *p = model->program;
    return (weft_line){.of = model,
                       .next = next_waiting,
                       .time = time_of_batch,
                       .size = size_at,
                       .n_size = p->batch_symbol < p->n_symbol ? p->n_bucket : 0,
                       .most_rows = model->largest_bucket};
}

/* -- Promises --------------------------------------------------------------------------------- */

/* Of a request to an app, that of the app; a bound of its own comes before either. */
static double slo_us_of(const weft_router *router, const weft_request *request)
{
    uint32_t of = request->chosen.name ? request->chosen.app : request->model;
    bool bound = request->chosen.name && request->need.latency_us > 0;
    return bound ? request->need.latency_us : router->model[of].program->slo_us;
}

void weft_admission__promise(const weft_router *router, weft_request *request)
{
    const weft_bundle_program *p = router->model[request->model].program;
    weft_admission_mode mode = router->options->admission;
    double slo_us = slo_us_of(router, request), host_us = p->profile.host_us;
    bool by_slo = slo_us > 0 && slo_us < 1e15 &&
                  (mode == WEFT_ADMISSION_SLO || (mode == WEFT_ADMISSION_MODEL && p->admit_by_slo));
    double timeout_us = (double)(request->deadline_ns - request->arrived_ns) * 1e-3;
    uint64_t end_ns = weft_line_due_ns(request->arrived_ns, timeout_us, host_us);
    request->due_ns = weft_line_due_ns(request->arrived_ns, slo_us, host_us);
    request->promised = by_slo;
    if (request->timeout_us > 0 && end_ns <= request->due_ns) {
        request->due_ns = end_ns;
        request->promised = mode != WEFT_ADMISSION_NONE;
    } else if (request->timeout_us > 0 && mode != WEFT_ADMISSION_NONE && !by_slo) {
        request->due_ns = end_ns;
        request->promised = true;
    }
}

/* -- Between models --------------------------------------------------------------------------- */

bool weft_admission__goes_first(const router_model *a, const router_model *b, uint64_t now_ns)
{
    const weft_line_turn turn[] = {{a->head->due_ns, a->virtual_ns},
                                   {b->head->due_ns, b->virtual_ns}};
    return weft_line_goes_first(&turn[0], &turn[1], now_ns);
}

void weft_admission__enter(const weft_router *router, router_model *model)
{
    if (!model->head && model->virtual_ns < router->virtual_ns)
        model->virtual_ns = router->virtual_ns;
}

void weft_admission__charge(weft_router *router, router_model *model, int64_t rows)
{
    weft_line line = weft_admission__line(model);
    router->virtual_ns = model->virtual_ns;
    model->virtual_ns += weft_line_charge(&line, rows);
}

/* -- On arrival ------------------------------------------------------------------------------- */

static bool run_together(const weft_router *router, uint32_t a, uint32_t b)
{
    const router_bundle *from = router->model[a].bundle;
    if (router->model[a].family && router->model[a].family == router->model[b].family)
        return true;
    for (uint32_t j = 0; from && from == router->model[b].bundle && j < from->joints.n; j++) {
        const weft_bundle_program *p = from->joints.at[j].program;
        bool has_a = false, has_b = false;
        for (uint32_t i = 0; i < p->n_part; i++) {
            has_a = has_a || from->first + p->part[i].program == a;
            has_b = has_b || from->first + p->part[i].program == b;
        }
        if (has_a && has_b)
            return true;
    }
    return false;
}

/* Time until the worker is idle; < 0: it takes no requests. */
static double busy_ns(const weft_router *router, const router_worker *w, uint64_t now_ns)
{
    if (w->process.stall_ns != 0 ||
        (w->process.state != WORKER_IDLE && w->process.state != WORKER_BUSY))
        return -1;
    double most = 0;
    for (uint32_t k = 0; k < w->n_part && w->process.state == WORKER_BUSY; k++) {
        const router_batch *b = &w->part[k];
        const router_model *m = &router->model[b->model];
        double left = b->n > 0
                          ? (double)b->sent_ns +
                                (double)weft_admission__batch_ns(m, b->padded_rows) - (double)now_ns
                          : 0;
        most = left > most ? left : most;
    }
    for (uint32_t k = 0; k < w->n_ahead; k++)
        most += (double)weft_admission__batch_ns(&router->model[w->ahead[k].model],
                                                 w->ahead[k].padded_rows);
    return most;
}

static weft_crew look_at_workers(const weft_router *router, uint32_t model, uint64_t now_ns,
                                 bool *shares)
{
    weft_crew crew = {.soonest_ns = HUGE_VAL};
    memset(shares, 0, router->n_model * sizeof *shares);
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        double left = w->serves[model] ? busy_ns(router, w, now_ns) : -1;
        if (left < 0)
            continue;
        crew.n++;
        crew.any_idle = crew.any_idle || w->process.state == WORKER_IDLE;
        crew.soonest_ns = left < crew.soonest_ns ? left : crew.soonest_ns;
        for (uint32_t k = 0; k < router->n_model; k++)
            shares[k] = shares[k] || w->serves[k];
    }
    return crew;
}

weft_forecast weft_admission__forecast(const weft_router *router, uint32_t model, uint64_t due_ns,
                                       int64_t rows, uint64_t now_ns)
{
    weft_crew crew = look_at_workers(router, model, now_ns, router->shares);
    uint32_t n = 0;
    for (uint32_t i = 0; i < router->n_model; i++)
        if (i != model && router->shares[i] && router->model[i].head &&
            !run_together(router, i, model))
            router->line[n++] = weft_admission__line(&router->model[i]);
    weft_line line = weft_admission__line(&router->model[model]);
    const weft_waiting waiting = {.due_ns = due_ns, .rows = rows};
    return weft_line_forecast(&line, router->line, n, &waiting, &crew, now_ns);
}

bool weft_admission__can_meet(const weft_router *router, const weft_request *request,
                              uint64_t now_ns, uint64_t *out_late_ns)
{
    weft_forecast f =
        weft_admission__forecast(router, request->model, request->due_ns, request->rows, now_ns);
    double late_ns = weft_forecast_late_ns(&f, request->due_ns, now_ns);
    if (late_ns > 0)
        *out_late_ns = (uint64_t)late_ns;
    return !(late_ns > 0);
}

weft_line_choice weft_admission__choose(const router_model *model, int64_t most, uint64_t now_ns)
{
    weft_line line = weft_admission__line(model);
    return weft_line_choose(&line, most, now_ns);
}
