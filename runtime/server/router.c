/* The router: holds each request until it is answered, and keeps the workers busy.
 *
 * Whenever a request arrives or a worker falls idle, each idle worker gets a batch of the model
 * whose oldest request has waited longest among those that it serves: no model can starve another.
 * A batch leaves at once (a delay only where the options ask for one). Where the bundle has a joint
 * program, batches of all its models that have requests leave together (router_joint.c); none waits
 * for another. A worker that dies takes its
 * batch back to the front of the queue; a request that was in ATTEMPTS_MAX dying workers is
 * answered with an error, and after its first it runs alone, so that a poisonous one does not take
 * others with it. Every request has a deadline, after which it is answered in any case; a worker
 * that holds one for longer is taken for hung and killed, as is one that does not get ready. */
#include "runtime/server/router_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const uint64_t scan_every_ns = 20000000;
static const uint64_t hung_grace_ns = 5000000000u;

/* -- Requests ------------------------------------------------------------------------------- */

weft_request *weft_request__create(const weft_bundle *bundle, uint32_t model)
{
    const weft_bundle_program *p = &bundle->program[model];
    weft_request *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->model = model;
    r->in = calloc(p->n_input + 1, sizeof *r->in);
    r->out = calloc(p->n_output + 1, sizeof *r->out);
    if (!r->in || !r->out) {
        weft_request__destroy(r);
        return NULL;
    }
    return r;
}

void weft_request__destroy(weft_request *request)
{
    if (!request)
        return;
    free(request->in);
    free(request->out);
    free(request->out_data);
    free(request);
}

void weft_router__set_answer(weft_request *request, weft_answer answer, const char *fmt, ...)
{
    va_list ap;
    request->answer = answer;
    va_start(ap, fmt);
    vsnprintf(request->message, sizeof request->message, fmt, ap);
    va_end(ap);
}

void weft_router__finish(weft_router *router, weft_request *request)
{
    weft_model_stats *stats = &router->model[request->model].stats;
    uint64_t took_ns = weft_clock__now_ns() - request->arrived_ns;
    weft_duration *d = request->answer == WEFT_ANSWER_OK ? &stats->success : &stats->fail;
    d->count++;
    d->ns += took_ns;
    stats->rejected += request->answer == WEFT_ANSWER_UNAVAILABLE;
    stats->pending--;
    router->n_pending--;
    request->done(request);
}

void weft_router__submit(weft_router *router, weft_request *request)
{
    router_model *model = &router->model[request->model];
    request->arrived_ns = weft_clock__now_ns();
    uint64_t timeout_ns = request->timeout_us && request->timeout_us < router->timeout_ns / 1000
                              ? request->timeout_us * 1000
                              : router->timeout_ns;
    request->deadline_ns = request->arrived_ns + timeout_ns;
    model->stats.pending++;
    router->n_pending++;
    if (router->draining)
        weft_router__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "the server is shutting down");
    else if (model->n_queued >= QUEUE_MAX)
        weft_router__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "the queue of model '%s' is full",
                                model->program->name);
    else if (weft_batch__admit(router, request)) {
        weft_batch__push(model, request, false);
        weft_router__dispatch(router);
        return;
    }
    weft_router__finish(router, request);
}

void weft_router__abandon(weft_router *router, weft_request *request)
{
    request->abandoned = true;
    if (!request->queued)
        return; /* it runs: done is called when the batch ends */
    weft_batch__remove(&router->model[request->model], request);
    weft_router__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "the client is gone");
    weft_router__finish(router, request);
}

/* -- Dispatch ------------------------------------------------------------------------------- */

/* May the model's queue be sent now? Not while a configured delay may still bring a fuller batch.
 */
bool weft_router__is_due(const weft_router *router, const router_model *model, uint64_t now_ns)
{
    double delay_us = router->options->max_queue_delay_us;
    if (delay_us <= 0 || model->largest_bucket <= 1 || router->draining)
        return true;
    if (model->program->slo_us > 0 && delay_us > model->program->slo_us / 4)
        delay_us = model->program->slo_us / 4;
    return (int64_t)model->n_queued >= model->largest_bucket ||
           (double)(now_ns - model->head->arrived_ns) >= delay_us * 1e3;
}

static router_model *oldest_model(weft_router *router, const router_worker *worker, uint64_t now_ns)
{
    router_model *best = NULL;
    for (uint32_t i = 0; i < router->bundle->n_program; i++) {
        router_model *m = &router->model[i];
        if (worker->serves[i] && m->head && weft_router__is_due(router, m, now_ns) &&
            (!best || m->head->arrived_ns < best->head->arrived_ns))
            best = m;
    }
    return best;
}

/* Fills the worker's batches: of the model, or of it and others that have requests too. */
static void fill_worker(weft_router *router, router_worker *w, router_model *m, uint64_t now_ns)
{
    joint_part part[JOINT_PARTS_MAX] = {{.rows = m->largest_bucket}};
    uint32_t model = (uint32_t)(m - router->model);
    w->batch_id = ++router->next_id;
    w->joint = weft_joint__find(router, w, model, now_ns, part);
    w->n_part = w->joint ? w->joint->program->n_part : 1;
    for (uint32_t k = 0; k < w->n_part; k++) {
        uint32_t at = w->joint ? w->joint->program->part[k].program : model;
        w->part[k] = (router_batch){.model = at, .sent_ns = now_ns};
        if (part[k].rows > 0)
            weft_batch__take(&router->model[at], part[k].rows, &w->part[k]);
    }
}

/* Workers that have nothing to do while no model waits for one. */
static void prepare_idle(weft_router *router)
{
    for (uint32_t i = 0; i < router->bundle->n_program; i++)
        if (router->model[i].head)
            return;
    for (uint32_t i = 0; i < router->n_worker && !router->draining; i++) {
        router_worker *w = &router->worker[i];
        router_joint *joint = NULL;
        const joint_size *size =
            w->state == WORKER_IDLE ? weft_joint__unready(router, w, &joint) : NULL;
        if (size)
            weft_worker__prepare(w, joint, size);
    }
}

void weft_router__dispatch(weft_router *router)
{
    uint64_t now_ns = weft_clock__now_ns();
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        router_model *m = w->state == WORKER_IDLE ? oldest_model(router, w, now_ns) : NULL;
        if (!m)
            continue;
        fill_worker(router, w, m, now_ns);
        weft_worker__send(w);
    }
    prepare_idle(router);
}

/* -- Time ----------------------------------------------------------------------------------- */

/* Takes them all off the queue before any is answered: `done` may submit, which moves the queue. */
static void expire_queued(weft_router *router, router_model *model, uint64_t now_ns)
{
    weft_request *expired = NULL, **end = &expired, *next;
    for (weft_request *r = model->head; r; r = next) {
        next = r->next;
        if (r->deadline_ns > now_ns)
            continue;
        weft_batch__remove(model, r);
        *end = r;
        end = &r->next;
    }
    for (weft_request *r = expired; r; r = next) {
        next = r->next;
        r->next = NULL;
        weft_router__set_answer(r, WEFT_ANSWER_UNAVAILABLE,
                                "the deadline passed while the request was waiting");
        weft_router__finish(router, r);
    }
}

static bool is_hung(const router_worker *worker, uint64_t now_ns)
{
    if (worker->state == WORKER_STARTING || worker->prepares)
        return worker->ready_by_ns <= now_ns;
    if (worker->state != WORKER_BUSY)
        return false;
    for (uint32_t k = 0; k < worker->n_part; k++)
        for (uint32_t i = 0; i < worker->part[k].n; i++)
            if (worker->part[k].request[i]->deadline_ns + hung_grace_ns > now_ns)
                return false;
    return true;
}

/* Until something has to be done for a worker that does not answer requests. */
static uint64_t time_left(const router_worker *w, uint64_t now_ns)
{
    uint64_t at_ns = w->state == WORKER_WAITING    ? w->start_ns
                     : w->state == WORKER_STARTING ? w->ready_by_ns
                                                   : UINT64_MAX;
    return at_ns == UINT64_MAX ? at_ns : at_ns > now_ns ? at_ns - now_ns : scan_every_ns;
}

static uint64_t on_idle(void *user)
{
    weft_router *router = user;
    uint64_t now_ns = weft_clock__now_ns(),
             wait_ns = router->n_pending ? scan_every_ns : UINT64_MAX;
    if (now_ns >= router->next_scan_ns) {
        router->next_scan_ns = now_ns + scan_every_ns;
        for (uint32_t i = 0; i < router->bundle->n_program; i++)
            expire_queued(router, &router->model[i], now_ns);
        for (uint32_t i = 0; i < router->n_worker; i++)
            if (is_hung(&router->worker[i], now_ns))
                weft_worker__expire(&router->worker[i]);
    }
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        if (w->state == WORKER_WAITING && w->start_ns <= now_ns)
            weft_worker__start(w);
        uint64_t left_ns = time_left(w, now_ns);
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
    }
    /* What a dead worker gave back, and queues whose delay is over. */
    if (router->n_pending)
        weft_router__dispatch(router);
    if (router->options->max_queue_delay_us > 0 && router->n_pending)
        wait_ns = wait_ns < 1000000 ? wait_ns : 1000000;
    return wait_ns;
}

/* -- Life ----------------------------------------------------------------------------------- */

static weft_err set_served(weft_router *router, router_worker *worker, weft_diag *diag)
{
    for (uint32_t i = 0; i < worker->slice->n_model; i++) {
        const char *name = worker->slice->model[i];
        uint32_t at = weft_router__find(router, name, strlen(name));
        if (at == UINT32_MAX)
            return weft_diag_error(diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = router->options->bundle},
                                   "the bundle has no model '%s'", name);
        worker->serves[at] = true;
    }
    for (uint32_t i = 0; i < router->bundle->n_program && worker->slice->n_model == 0; i++)
        worker->serves[i] = true;
    return WEFT_ERR_OK;
}

/* Batches that a worker may hold at once: the most parts of a joint program. */
static uint32_t count_parts(const weft_bundle *b)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < b->n_joint; i++)
        if (b->program[b->n_program + i].n_part > most)
            most = b->program[b->n_program + i].n_part;
    return most;
}

static weft_err create_workers(weft_router *router, weft_diag *diag)
{
    uint32_t parts = count_parts(router->bundle);
    static const weft_serve_slice whole = {0};
    const weft_serve_options *o = router->options;
    uint32_t n = o->n_slice ? o->n_slice : 1;
    router->worker = calloc(n, sizeof *router->worker);
    if (!router->worker)
        return WEFT_ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        router_worker *w = &router->worker[i];
        *w = (router_worker){
            .router = router, .slice = o->n_slice ? &o->slice[i] : &whole, .fd = -1};
        router->n_worker++;
        w->serves = calloc(router->bundle->n_program + 1, sizeof *w->serves);
        w->part = calloc(parts, sizeof *w->part);
        w->done = calloc(parts, sizeof *w->done);
        if (!w->serves || !w->part || !w->done)
            return WEFT_ERR_NOMEM;
        WEFT_TRY(set_served(router, w, diag));
    }
    return WEFT_ERR_OK;
}

weft_err weft_router__create(const weft_serve_options *options, weft_loop *loop, weft_diag *diag,
                             weft_router **out)
{
    weft_router *router = calloc(1, sizeof *router);
    if (!router)
        return WEFT_ERR_NOMEM;
    double timeout_s = options->request_timeout_s > 0 ? options->request_timeout_s : 30;
    double start_s = options->start_timeout_s > 0 ? options->start_timeout_s : 300;
    *router = (weft_router){.options = options,
                            .loop = loop,
                            .timeout_ns = (uint64_t)(timeout_s * 1e9),
                            .start_timeout_ns = (uint64_t)(start_s * 1e9)};
    weft_err err = weft_bundle_open(options->bundle, diag, &router->bundle);
    if (err == WEFT_ERR_OK) {
        router->model = calloc(router->bundle->n_program + 1, sizeof *router->model);
        err = router->model ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    }
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < router->bundle->n_program; i++) {
        router->model[i].program = &router->bundle->program[i];
        int64_t largest = weft_batch__largest(router->model[i].program);
        router->model[i].largest_bucket = largest > 0 ? largest : 1;
    }
    if (err == WEFT_ERR_OK)
        err = create_workers(router, diag);
    if (err == WEFT_ERR_OK)
        err = weft_joint__create(router);
    if (err == WEFT_ERR_OK && !weft_loop__idle(loop, on_idle, router))
        err = WEFT_ERR_BUG;
    if (err != WEFT_ERR_OK) {
        weft_router__destroy(router);
        return err;
    }
    *out = router;
    return WEFT_ERR_OK;
}

void weft_router__destroy(weft_router *router)
{
    if (!router)
        return;
    /* They end side by side. */
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].fd >= 0)
            shutdown(router->worker[i].fd, SHUT_RDWR);
    for (uint32_t i = 0; i < router->n_worker; i++) {
        weft_worker__stop(&router->worker[i]);
        free(router->worker[i].serves);
        free(router->worker[i].part);
        free(router->worker[i].done);
    }
    free(router->worker);
    free(router->model);
    weft_joint__destroy(router);
    weft_bundle_close(router->bundle);
    free(router);
}

void weft_router__drain(weft_router *router)
{
    router->draining = true;
    weft_router__dispatch(router);
}

void weft_router__give_up(weft_router *router)
{
    router->draining = true;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].state == WORKER_BUSY)
            weft_worker__fail(&router->worker[i]);
    for (uint32_t i = 0; i < router->bundle->n_program; i++)
        while (router->model[i].head) {
            weft_request *r = router->model[i].head;
            weft_batch__remove(&router->model[i], r);
            weft_router__set_answer(r, WEFT_ANSWER_UNAVAILABLE, "the server is shutting down");
            weft_router__finish(router, r);
        }
}

/* -- Questions ------------------------------------------------------------------------------ */

const weft_bundle *weft_router__bundle(const weft_router *router)
{
    return router->bundle;
}

uint32_t weft_router__find(const weft_router *router, const char *name, size_t len)
{
    for (uint32_t i = 0; i < router->bundle->n_program; i++) {
        const char *model = router->bundle->program[i].name;
        if (strlen(model) == len && memcmp(model, name, len) == 0)
            return i;
    }
    return UINT32_MAX;
}

bool weft_router__is_ready(const weft_router *router, uint32_t model)
{
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *w = &router->worker[i];
        if (w->serves[model] && (w->state == WORKER_IDLE || w->state == WORKER_BUSY))
            return true;
    }
    return false;
}

bool weft_router__all_ready(const weft_router *router)
{
    for (uint32_t i = 0; i < router->bundle->n_program; i++)
        if (!weft_router__is_ready(router, i))
            return false;
    return true;
}

const char *weft_router__failure(const weft_router *router)
{
    return router->failure[0] ? router->failure : NULL;
}

const weft_model_stats *weft_router__stats(const weft_router *router, uint32_t model)
{
    return &router->model[model].stats;
}

uint32_t weft_router__worker_count(const weft_router *router)
{
    return router->n_worker;
}

weft_worker_status weft_router__worker_status(const weft_router *router, uint32_t worker)
{
    const router_worker *w = &router->worker[worker];
    return (weft_worker_status){.name = w->slice->name,
                                .gpu = w->slice->gpu,
                                .mig = w->slice->mig,
                                .ready = w->state == WORKER_IDLE || w->state == WORKER_BUSY,
                                .lost = w->lost,
                                .why = w->why,
                                .restarts = w->restarts,
                                .losses = w->losses};
}

uint64_t weft_router__joint_executions(const weft_router *router)
{
    return router->joint_executions;
}

uint64_t weft_router__restarts(const weft_router *router)
{
    return router->restarts;
}

bool weft_router__is_draining(const weft_router *router)
{
    return router->draining;
}

bool weft_router__is_idle(const weft_router *router)
{
    return router->n_pending == 0;
}
