/* The router: holds each request until it is answered, and hands queued requests to idle workers.
 *
 * Whenever a request arrives or a worker becomes idle, every idle worker gets a batch of the model
 * whose first request is due first among the models that it serves, unless a model with overdue
 * requests has had more than its share, so that no model starves. Requests that cannot be
 * answered in time are refused or dropped (admission.c). A batch is sent at once unless the options
 * ask for a delay. Where the bundle has a joint program, the batches of all its models that have
 * requests are sent together (router_joint.c); no request waits for requests of another model.
 *
 * The requests of a worker that dies return to where they stood in their queues. A request that was
 * in a dying worker runs alone from then on, so that a request that kills workers does not harm
 * others, and is answered with an error after ATTEMPTS_MAX deaths. Every request has a deadline and
 * is answered when it passes, whatever its worker does. A worker without a pulse gets no requests,
 * and those that it has move to another worker that serves them; a batch that takes much longer
 * than others moves once to an idle worker. A worker is killed when it has no pulse for long, when
 * a batch takes longer than any request may wait, or when it has not prepared its models in time:
 * never because of the deadline that a client gave. */
#include "runtime/server/router_int.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Places for new workers, beside as many as there are; places for models. */
enum { SPARE_WORKERS = 16, SPARE_PER_SLICE = 4, MODELS_MAX = 8192 };

static const uint64_t scan_every_ns = 20000000, pulse_every_ns = 100000000;
static const uint64_t hung_grace_ns = 5000000000u;
/* An answer at its deadline waits so long while the worker takes its request, which would have to
 * be copied. */
static const uint64_t taken_by_ns = 100000000u;
static const char client_gone[] = "the client is gone";
/* A batch is late after this time and this multiple of its model's mean time. */
static const uint64_t late_ns = 1000000000u, late_times = 10;

/* -- Requests ------------------------------------------------------------------------------- */

static const char *const answer_names[] = {[WEFT_ANSWER_OK] = "ok",
                                           [WEFT_ANSWER_INVALID] = "invalid",
                                           [WEFT_ANSWER_NOT_FOUND] = "not found",
                                           [WEFT_ANSWER_UNSUPPORTED] = "unsupported",
                                           [WEFT_ANSWER_UNAVAILABLE] = "unavailable",
                                           [WEFT_ANSWER_OVERLOADED] = "overloaded",
                                           [WEFT_ANSWER_INTERNAL] = "internal"};

static void log_request(const weft_router *router, const weft_request *r, uint64_t took_ns)
{
    const weft_origin *o = &r->origin;
    char trace[2 * WEFT_TRACE_ID_BYTES + 1];
    if (!weft_log__is_on(WEFT_LOG_ACCESS))
        return;
    weft_spans__put_hex(o->context.trace, sizeof o->context.trace, trace);
    WEFT_LOG(WEFT_LOG_ACCESS, "request",
             {.key = "model", .text = weft_bundle_served(router->model[r->model].program)},
             {.key = "version", .text = router->model[r->model].version},
             {.key = "adapter", .text = r->adapter}, {.key = "id", .text = r->id ? r->id : ""},
             {.key = "trace", .text = trace}, {.key = "peer", .text = o->peer},
             {.key = "over", .text = o->over ? o->over : ""}, {.key = "key", .text = o->key},
             {.key = "answer", .text = answer_names[r->answer]}, {.key = "why", .text = r->message},
             {.key = "rows", .number = (double)r->rows},
             {.key = "batch_rows", .number = (double)r->batch_rows},
             {.key = "attempts", .number = r->attempts},
             {.key = "queue_us", .number = (double)(r->queue_ns / 1000)},
             {.key = "compute_us", .number = (double)(r->compute_infer_ns / 1000)},
             {.key = "total_us", .number = (double)(took_ns / 1000)});
}

/* Ends a request: counts it and calls `done`, which may submit. */
static void finish(weft_router *router, weft_request *request)
{
    if (request->left)
        weft_request__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "%s", client_gone);
    uint64_t took_ns = weft_clock__now_ns() - request->arrived_ns;
    weft_batch__count_end(&router->model[request->model].stats, request, took_ns);
    router->n_pending--;
    if (request->live)
        weft_live__count(request->live, request->answer == WEFT_ANSWER_OK);
    weft_live__release(request->live);
    request->live = NULL;
    weft_served_app__count(router, request, took_ns);
    log_request(router, request, took_ns);
    weft_spans__write(router->spans, request,
                      weft_bundle_served(router->model[request->model].program),
                      request->arrived_ns + took_ns);
    request->done(request);
}

/* Moves a request from its queue to a list by `next` of those that end together. The `done` of one
 * may abandon another. */
static void set_aside(router_model *model, weft_request *r, weft_request **list)
{
    weft_batch__remove(model, r);
    r->ending = true;
    r->next = *list;
    *list = r;
}

/* Ends the requests of such a list. */
static void finish_all(weft_router *router, weft_request *list)
{
    while (list) {
        weft_request *r = list;
        list = r->next;
        r->next = NULL;
        finish(router, r);
    }
}

static void dispatch(weft_router *router);

/* Whether the request joins the queue; false: its answer is set. */
static bool admit(weft_router *router, router_model *model, weft_request *request)
{
    uint64_t late_by_ns = 0;
    if (!weft_batch__admit(model, request))
        return false;
    if (!request->promised ||
        weft_admission__can_meet(router, request, request->arrived_ns, &late_by_ns))
        return true;
    model->stats.refused++;
    request->retry_after_ns = late_by_ns;
    weft_request__set_answer(request, WEFT_ANSWER_OVERLOADED,
                             "the request would be answered %.0f ms late",
                             ceil((double)late_by_ns / 1e6));
    return false;
}

/* Puts the request into the queue of its model; false: its answer is set. */
static bool enqueue(weft_router *router, weft_request *request)
{
    router_model *model = &router->model[request->model];
    weft_admission__promise(router, request);
    if (!weft_router__serves(router, request->model))
        weft_request__set_answer(request, WEFT_ANSWER_NOT_FOUND,
                                 "the plan places model '%s' elsewhere",
                                 weft_bundle_served(model->program));
    else if (model->n_queued >= QUEUE_MAX)
        weft_request__set_answer(request, WEFT_ANSWER_OVERLOADED, "the queue of model '%s' is full",
                                 weft_bundle_served(model->program));
    else if (admit(router, model, request)) {
        weft_admission__enter(router, model);
        weft_batch__push(model, request);
        return true;
    }
    return false;
}

void weft_router__submit(weft_router *router, weft_request *request)
{
    router_model *model = &router->model[request->model];
    request->arrived_ns = weft_clock__now_ns();
    uint64_t timeout_ns = request->timeout_us && request->timeout_us < router->timeout_ns / 1000
                              ? request->timeout_us * 1000
                              : router->timeout_ns;
    request->deadline_ns = request->arrived_ns + timeout_ns;
    model->own.arrivals++;
    model->stats.pending++;
    router->n_pending++;
    if (router->draining)
        weft_request__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "the server is shutting down");
    else if ((!model->app || weft_served_app__choose(router, request)) &&
             enqueue(router, request)) {
        uint32_t at = request->model; /* the variant of an app; the request may end in dispatch() */
        dispatch(router);
        weft_router__send_ahead(router, at);
        return;
    }
    finish(router, request);
}

/* -- Requests that leave their batch -------------------------------------------------------- */

/* Takes request i out of a batch that runs: its rows are computed for nobody. Its data is copied if
 * the worker has not got it all. */
static weft_request *detach(router_worker *w, router_batch *batch, uint32_t i)
{
    weft_request *r = batch->request[i];
    batch->request[i] = NULL;
    weft_batch__keep_adapter(batch, r);
    if (!weft_wire__own(&w->process.tx))
        w->broken = true; /* the message cannot be completed */
    return r;
}

/* Ends the worker if its message lost its data. */
static void end_broken(router_worker *w)
{
    if (w->broken)
        weft_worker__fail(&w->process);
}

/* Takes the request out of the batches that the worker runs or has answered; false: not there. */
static bool take_out(router_worker *w, const weft_request *request)
{
    for (uint32_t k = 0; k < weft_router__count_batches(w); k++) {
        router_batch *batch = weft_router__batch(w, k);
        for (uint32_t i = 0; i < batch->n; i++)
            if (batch->request[i] == request)
                return detach(w, batch, i) != NULL;
    }
    for (uint32_t k = 0; k < w->n_answered; k++)
        for (uint32_t i = 0; i < w->answered[k].n; i++)
            if (w->answered[k].request[i] == request) {
                w->answered[k].request[i] = NULL;
                return true;
            }
    return false;
}

/* Whether it is in the batch of a large message that the worker is taking: it is marked, stays
 * there and ends with the batch, also when the worker has taken the message long before. */
static bool leaves_later(const router_worker *w, weft_request *request)
{
    if (!weft_worker__is_taking(&w->process, weft_clock__now_ns()))
        return false;
    for (uint32_t k = 0; k < w->n_part; k++)
        for (uint32_t i = 0; i < w->part[k].n; i++)
            request->left = request->left || w->part[k].request[i] == request;
    return request->left;
}

void weft_router__abandon(weft_router *router, weft_request *request)
{
    router_worker *from = NULL;
    bool queued = request->queued;
    if (request->ending)
        return;
    if (queued)
        weft_batch__remove(&router->model[request->model], request);
    for (uint32_t i = 0; i < router->n_worker && !queued && !from; i++) {
        router_worker *w = &router->worker[i];
        if (leaves_later(w, request))
            return;
        from = take_out(w, request) ? w : NULL;
    }
    weft_request__set_answer(request, WEFT_ANSWER_UNAVAILABLE, "%s", client_gone);
    finish(router, request);
    if (from)
        end_broken(from);
}

/* -- Dispatch ------------------------------------------------------------------------------- */

static bool can_take(const router_worker *w)
{
    return w->process.state == WORKER_IDLE && w->process.stall_ns == 0 && !w->retiring;
}

/* Largest time that a batch waits for more requests. */
static double delay_us(const weft_router *router)
{
    return router->draining ? 0 : router->options->max_queue_delay_us;
}

/* The model to run next. */
static router_model *first_due(weft_router *router, const router_worker *worker, uint64_t now_ns)
{
    router_model *best = NULL;
    const router_bundle *b = worker->bundle;
    for (uint32_t i = b->first; i < b->first + b->bundle->n_program; i++) {
        router_model *m = &router->model[i];
        if (worker->serves[i] && m->head && weft_batch__is_due(m, delay_us(router), now_ns) &&
            (!best || weft_admission__goes_first(m, best, now_ns)))
            best = m;
    }
    return best;
}

/* Moves requests that would be late from the queue to `late`, a list by `next`. Returns the rows of
 * the batch to take; 0: the queue is empty. */
static int64_t drop_late(router_model *m, int64_t most, uint64_t now_ns, weft_request **late)
{
    weft_line_choice choice = weft_admission__choose(m, most, now_ns);
    for (; choice.drop > 0; choice.drop--) {
        weft_request *r = m->head;
        set_aside(m, r, late);
        weft_request__set_answer(r, WEFT_ANSWER_OVERLOADED,
                                 "the request would be answered too late");
        m->stats.dropped++;
    }
    return m->head ? choice.most : 0;
}

/* The requests of the batches that were taken wait again. */
static void put_back(weft_router *router, router_worker *w)
{
    for (uint32_t k = 0; k < w->n_part; k++)
        weft_batch__put_back(&router->model[w->part[k].model], &w->part[k]);
    w->n_part = 0;
}

/* Whether the packed batch that was taken should run; if not, its requests go back. */
static bool keep_packed(weft_router *router, router_worker *w)
{
    if (weft_gain__keeps_packed(router, w))
        return true;
    put_back(router, w);
    return false;
}

/* Takes a packed batch of the model's family, or of the model if its requests differ in length.
 * false: neither. */
static bool take_packed(weft_router *router, router_worker *w, const joint_query *query,
                        int64_t most)
{
    router_model *m = &router->model[query->must];
    w->packed = m->family;
    w->n_part = m->family ? m->family->n_part : 0;
    if (m->family && weft_batch__take_family(m->family, query, router->model, w->part) &&
        keep_packed(router, w))
        return true;
    w->packed = m->packed;
    w->n_part = 1;
    w->part[0] = (router_batch){.model = query->must, .sent_ns = query->now_ns};
    return m->packed && weft_batch__take_packed(m->packed, m, most, &w->part[0]) &&
           keep_packed(router, w);
}

/* Takes a batch of the model, and requests to other heads about the same inputs. false: there are
 * none. */
static bool take_heads(weft_router *router, router_worker *w, const joint_query *query,
                       int64_t most)
{
    w->packed = NULL;
    w->heads = router->model[query->must].heads;
    w->n_part = w->heads ? w->heads->n_head : 0;
    if (w->heads && weft_batch__take_heads(w->heads, query, router->model, most, w->part)) {
        if (weft_gain__keeps_heads(router, w))
            return true;
        put_back(router, w);
    }
    w->heads = NULL;
    return false;
}

/* Takes a batch of the model for the worker, a packed one if its requests differ in length, and, by
 * a program of several models, batches of others. */
static void take_batches(weft_router *router, router_worker *w, router_model *m, int64_t most,
                         uint64_t now_ns)
{
    joint_part part[JOINT_PARTS_MAX] = {{.rows = most}};
    uint32_t model = (uint32_t)(m - router->model);
    const joint_query query = {.model = router->model,
                               .worker = router->worker,
                               .n_worker = router->n_worker,
                               .at = (uint32_t)(w - router->worker),
                               .must = model,
                               .delay_us = delay_us(router),
                               .now_ns = now_ns};
    w->joint = NULL;
    w->heads = NULL;
    if (take_heads(router, w, &query, most) || take_packed(router, w, &query, most)) {
        for (uint32_t k = 0; k < w->n_part; k++)
            if (w->part[k].n > 0)
                weft_admission__charge(router, &router->model[w->part[k].model],
                                       w->part[k].padded_rows);
        return;
    }
    w->packed = NULL;
    w->joint = weft_joint__find(&w->bundle->joints, &query, part);
    if (!w->joint || !weft_gain__keeps_joint(router, w, part)) {
        w->joint = NULL;
        part[0] = (joint_part){.rows = most};
    }
    w->n_part = w->joint ? w->joint->program->n_part : 1;
    for (uint32_t k = 0; k < w->n_part; k++) {
        uint32_t at = w->joint ? w->joint->first + w->joint->program->part[k].program : model;
        w->part[k] = (router_batch){.model = at, .sent_ns = now_ns};
        if (part[k].rows > 0)
            weft_batch__take(&router->model[at], part[k].rows, &w->part[k]);
        if (w->part[k].n > 0)
            weft_admission__charge(router, &router->model[at], w->part[k].padded_rows);
    }
    if (w->gain && !w->joint)
        w->size = weft_gain__size(m, w->part[0].request[0], w->part[0].rows);
}

/* The program that the worker's batches run by. */
static const weft_bundle_program *program_of(const weft_router *router, const router_worker *w)
{
    return w->packed  ? w->packed
           : w->heads ? w->heads
           : w->joint ? w->joint->program
                      : router->model[w->part[0].model].program;
}

static void send_message(weft_router *router, router_worker *w, const weft_bundle_program *program,
                         weft_wire_out *message)
{
    message->head.id = ++router->next_id;
    message->head.model = (uint32_t)(program - w->bundle->bundle->program);
    weft_worker__send(&w->process, message);
}

static void send_batches(weft_router *router, router_worker *w)
{
    weft_wire_out message;
    bool composed = w->packed ? weft_batch__compose_packed(w->packed, w->part, w->places, &message)
                    : w->heads
                        ? weft_batch__compose_heads(w->heads, router->model, w->part, &message)
                        : weft_batch__compose(router->model, w->part, w->n_part,
                                              w->joint ? w->joint->empty : NULL, &message);
    if (composed)
        send_message(router, w, program_of(router, w), &message);
    else
        put_back(router, w); /* no memory: for the next turn */
}

/* Makes the worker prepare a combination of sizes. */
static void send_sizes(weft_router *router, router_worker *w, router_joint *j,
                       const joint_size *size)
{
    uint32_t n = j->program->n_input;
    weft_wire_out message;
    if (!weft_wire__begin(&message, WEFT_WIRE_PREPARE, n, 0))
        return; /* it is tried again */
    memcpy(message.tensor, size->in, n * sizeof *message.tensor);
    memcpy(w->prepare_in, size->in, n * sizeof *w->prepare_in);
    w->prepares = true;
    w->prepare_by_ns = weft_clock__now_ns() + w->process.start_timeout_ns;
    w->joint = j;
    send_message(router, w, j->program, &message);
}

static bool any_waits(const weft_router *router)
{
    for (uint32_t i = 0; i < router->n_model; i++)
        if (router->model[i].head)
            return true;
    return false;
}

/* While no request waits, idle workers prepare combinations that requests have had. */
static void prepare_sizes(weft_router *router)
{
    for (uint32_t i = 0; i < router->n_worker && !router->draining; i++) {
        router_worker *w = &router->worker[i];
        router_joint *joint = NULL;
        const joint_size *size =
            can_take(w) ? weft_joint__unprepared(&w->bundle->joints, w, i, &joint) : NULL;
        if (size && any_waits(router))
            return;
        if (size)
            send_sizes(router, w, joint, size);
    }
}

/* Sends batches to idle workers: after every event that adds a request or an idle worker. */
static void dispatch(weft_router *router)
{
    uint64_t now_ns = weft_clock__now_ns();
    weft_request *late = NULL;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        router_worker *w = &router->worker[i];
        router_model *m = can_take(w) ? first_due(router, w, now_ns) : NULL;
        int64_t most = 0;
        while (m && (most = drop_late(m, w->most[m - router->model], now_ns, &late)) == 0)
            m = first_due(router, w, now_ns);
        if (!m)
            continue;
        take_batches(router, w, m, most, now_ns);
        send_batches(router, w);
    }
    prepare_sizes(router);
    finish_all(router, late); /* last: `done` may submit */
}

/* -- Events of workers ---------------------------------------------------------------------- */

static void end_preparation(router_worker *w, bool done)
{
    if (w->prepares)
        weft_joint__set_prepared(w->joint, (uint32_t)(w - w->router->worker), w->prepare_in, done);
    w->prepares = false;
}

static void on_ready(void *user)
{
    router_worker *w = user;
    weft_joint__reset_worker(&w->bundle->joints, w, (uint32_t)(w - w->router->worker));
    dispatch(w->router);
}

/* Hands the outputs to the batches: the message has the outputs of one part after the other. */
static void give_outputs(router_worker *w, const weft_wire_head *head,
                         const weft_wire_tensor *tensor, const uint8_t *payload)
{
    uint32_t left = head->n_tensor;
    uint64_t now_ns = weft_clock__now_ns();
    weft_payload *rx = w->process.rx_payload; /* has an answer that came over the socket */
    weft_payload *owner = rx && weft_payload__at(rx) == payload ? rx : NULL;
    w->router->adapter_reads += head->adapted;
    /* An answer with another number of tensors fits no part. */
    bool several = w->joint || w->heads;
    bool fits = !several || head->n_tensor == program_of(w->router, w)->n_output;
    if (w->packed)
        weft_batch__give_packed(w->packed, w->part, tensor, head->n_tensor, payload);
    for (uint32_t k = 0; k < w->n_part; k++) {
        router_model *model = &w->router->model[w->part[k].model];
        uint32_t n = model->program->n_output;
        n = fits && n <= left ? n : 0;
        if (!w->packed && w->part[k].n > 0)
            weft_batch__give(model, &w->part[k], tensor, several ? n : head->n_tensor, payload,
                             owner);
        if (w->part[k].n > 0) {
            weft_batch__count(model, &w->part[k], head, now_ns);
            weft_admission__learn(model, w->part[k].padded_rows,
                                  weft_batch__took_ns(&w->part[k], head, now_ns));
        }
        for (uint32_t i = 0; i < n; i++)
            payload += (size_t)weft_numel(tensor[i].dim, tensor[i].rank) *
                       weft_dtype_size((weft_dtype)tensor[i].dtype);
        tensor += n;
        left -= n;
    }
}

static void count_execution(router_worker *w)
{
    uint64_t rows = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->n_part; k++) {
        n += w->part[k].n > 0;
        rows += (uint64_t)w->part[k].rows;
    }
    w->router->joint_executions += n > 1;
    w->router->joint_rows += n > 1 ? rows : 0;
    w->router->packed_executions += w->packed != NULL;
    w->router->heads_executions += w->heads != NULL;
    if (w->gain && w->size > 0)
        weft_gain__learn(weft_gain__of(w, program_of(w->router, w)), w->size,
                         (double)(weft_clock__now_ns() - w->part[0].sent_ns));
}

static void on_answer(void *user, const weft_wire_head *head, const weft_wire_tensor *tensor,
                      const uint8_t *payload)
{
    router_worker *w = user;
    uint32_t n_request = 0;
    weft_answer answer = head->err == WEFT_ERR_INPUT ? WEFT_ANSWER_INVALID : WEFT_ANSWER_INTERNAL;
    if (w->prepares) {
        end_preparation(w, head->err == WEFT_ERR_OK);
        return;
    }
    if (head->err == WEFT_ERR_OK) {
        give_outputs(w, head, tensor, payload);
        count_execution(w);
        return;
    }
    for (uint32_t k = 0; k < w->n_part; k++) {
        for (uint32_t i = 0; i < w->part[k].n; i++) {
            weft_request *r = w->part[k].request[i];
            n_request += r != NULL;
            if (r)
                weft_request__set_answer(r, answer, "%s", (const char *)payload);
        }
    }
    /* Too much memory for all may be enough for each. */
    bool may_fit = answer == WEFT_ANSWER_INVALID || head->err == WEFT_ERR_NOMEM;
    w->separate = may_fit && n_request > 1;
}

/* Finishes the requests of an answered batch. `separate`: one of them may have made the whole batch
 * invalid, so each is queued again to run alone. */
static void finish_batch(weft_router *router, router_batch *batch, bool separate)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        batch->request[i] = NULL;
        if (!r)
            continue;
        if (separate && r->answer != WEFT_ANSWER_OK && !r->left) {
            r->attempts++;
            weft_batch__push(&router->model[batch->model], r);
        } else {
            finish(router, r);
        }
    }
    weft_batch__end(batch);
}

static void on_worker_idle(void *user)
{
    router_worker *w = user;
    weft_router *router = w->router;
    bool separate = w->separate;
    w->separate = false;
    weft_router__advance(w, weft_clock__now_ns());
    router_batch *answered = w->answered;
    uint32_t n_answered = w->n_answered;
    /* The next batch is sent before the answers are written, so that the worker does not wait. */
    dispatch(router);
    if (n_answered > 0)
        weft_router__send_ahead(router, answered[0].model);
    for (uint32_t k = 0; k < n_answered; k++)
        finish_batch(router, &answered[k], separate);
    w->n_answered = 0;
    if (separate)
        dispatch(router);
}

/* Returns the requests of a worker that ended to their queue, or ends those that may not run again.
 * `begun`: the worker may have run them. */
static void take_back(weft_router *router, router_batch *batch, bool begun)
{
    for (uint32_t i = batch->n; i-- > 0;) {
        weft_request *r = batch->request[i];
        batch->request[i] = NULL;
        if (!r)
            continue;
        r->attempts += begun;
        if (r->attempts < ATTEMPTS_MAX && !r->left) {
            weft_batch__push(&router->model[batch->model], r);
            continue;
        }
        weft_request__set_answer(r, WEFT_ANSWER_INTERNAL,
                                 "%d workers ended while running this request", ATTEMPTS_MAX);
        finish(router, r);
    }
    weft_batch__end(batch);
}

static void on_end(void *user, bool starting)
{
    router_worker *w = user;
    weft_router *router = w->router;
    if (starting && router->failure[0] == '\0')
        snprintf(router->failure, sizeof router->failure, "%s", w->process.why);
    end_preparation(w, false);
    router->restarts++;
    w->broken = false;
    for (uint32_t k = 0; k < weft_router__count_batches(w); k++)
        take_back(router, weft_router__batch(w, k), weft_router__has_begun(w, k));
    w->n_part = w->n_ahead = 0;
}

static const worker_events worker_handlers = {
    .on_ready = on_ready, .on_answer = on_answer, .on_idle = on_worker_idle, .on_end = on_end};

/* -- Time ----------------------------------------------------------------------------------- */

/* In one pass, and then those that were found: `done` may change the queue. */
static void expire_queued(weft_router *router, router_model *model, uint64_t now_ns)
{
    weft_request *expired = NULL;
    for (weft_request *r = model->head, *next; r; r = next) {
        next = r->next;
        if (r->deadline_ns > now_ns)
            continue;
        set_aside(model, r, &expired);
        weft_request__set_answer(r, WEFT_ANSWER_UNAVAILABLE,
                                 "the deadline passed while the request was waiting");
    }
    finish_all(router, expired);
}

/* Answers the requests of a running batch whose deadline passed; the worker goes on. */
static void expire_running(router_worker *w, uint64_t now_ns)
{
    bool taking = weft_worker__is_taking(&w->process, now_ns);
    for (uint32_t k = 0; k < weft_router__count_batches(w); k++)
        for (uint32_t i = 0; k < weft_router__count_batches(w) && i < weft_router__batch(w, k)->n;
             i++) {
            router_batch *batch = weft_router__batch(w, k);
            weft_request *r = batch->request[i];
            if (!r || r->deadline_ns > now_ns || (taking && now_ns - r->deadline_ns < taken_by_ns))
                continue;
            detach(w, batch, i);
            weft_request__set_answer(r, WEFT_ANSWER_UNAVAILABLE,
                                     "the deadline passed while the model was running");
            finish(w->router, r);
        }
    end_broken(w);
}

/* Whether another worker with a pulse serves the model; `idle`: one that does nothing. */
static bool has_other(const router_worker *w, uint32_t model, bool idle)
{
    const weft_router *router = w->router;
    for (uint32_t i = 0; i < router->n_worker; i++) {
        const router_worker *other = &router->worker[i];
        if (other != w && other->serves[model] &&
            (can_take(other) ||
             (!idle && other->process.state == WORKER_BUSY && other->process.stall_ns == 0)))
            return true;
    }
    return false;
}

/* Whether the batch takes much longer than those before it. */
static bool is_late(const router_worker *w, const router_batch *batch, uint64_t now_ns)
{
    const weft_duration *mean = &w->router->model[batch->model].stats.compute_infer;
    uint64_t usual_ns = mean->count ? mean->ns / mean->count : now_ns;
    uint64_t took_ns = now_ns > batch->sent_ns ? now_ns - batch->sent_ns : 0;
    return took_ns > late_ns && took_ns / late_times > usual_ns;
}

/* Moves the requests of a worker without pulse, or of a late batch, back to their queues where
 * another worker can run them. The first answer counts: here, that of the other worker. */
static void move_requests(router_worker *w, uint64_t now_ns)
{
    bool stalled = w->process.stall_ns != 0, moved = false;
    for (uint32_t k = 0; k < weft_router__count_batches(w); k++) {
        router_batch *batch = weft_router__batch(w, k);
        if (!stalled && !is_late(w, batch, now_ns))
            continue;
        for (uint32_t i = 0; i < batch->n; i++) {
            weft_request *r = batch->request[i];
            if (!r || r->left || (r->moved && !stalled) || !has_other(w, batch->model, !stalled))
                continue;
            detach(w, batch, i);
            r->moved = true;
            weft_batch__push(&w->router->model[batch->model], r);
            moved = true;
        }
    }
    end_broken(w);
    if (moved)
        dispatch(w->router);
}

/* The longest time that a batch may run: no request waits so long. */
static bool is_hung(const router_worker *w, uint64_t now_ns)
{
    if (w->process.state == WORKER_STARTING)
        return w->process.ready_by_ns <= now_ns;
    if (w->prepares)
        return w->prepare_by_ns <= now_ns;
    return w->process.state == WORKER_BUSY && w->n_part > 0 &&
           w->part[0].sent_ns + w->router->timeout_ns + hung_grace_ns < now_ns;
}

static void scan_worker(router_worker *w, uint64_t now_ns)
{
    if (!weft_worker__check_pulse(&w->process, now_ns) || is_hung(w, now_ns)) {
        weft_worker__expire(&w->process);
        return;
    }
    expire_running(w, now_ns);
    move_requests(w, now_ns);
}

/* Time until a worker that is not ready has to be started or counts as hung. */
static uint64_t time_left(const worker_process *w, uint64_t now_ns)
{
    uint64_t at_ns = w->state == WORKER_WAITING    ? w->start_ns
                     : w->state == WORKER_STARTING ? w->ready_by_ns
                                                   : UINT64_MAX;
    return at_ns == UINT64_MAX ? at_ns : at_ns > now_ns ? at_ns - now_ns : scan_every_ns;
}

static uint64_t on_idle(void *user)
{
    weft_router *router = user;
    weft_router__take_shared(router);
    uint64_t now_ns = weft_clock__now_ns(),
             wait_ns = router->n_pending ? scan_every_ns : pulse_every_ns;
    if (now_ns >= router->next_scan_ns) {
        router->next_scan_ns = now_ns + scan_every_ns;
        for (uint32_t i = 0; i < router->n_model; i++)
            expire_queued(router, &router->model[i], now_ns);
        for (uint32_t i = 0; i < router->n_worker; i++)
            scan_worker(&router->worker[i], now_ns);
    }
    bool starts = false; /* one in a turn: to fork takes a millisecond */
    for (uint32_t i = 0; i < router->n_worker; i++) {
        worker_process *w = &router->worker[i].process;
        bool due = w->state == WORKER_WAITING && w->start_ns <= now_ns;
        if (due && !starts)
            weft_worker__start(w);
        uint64_t left_ns = due && starts ? 0 : time_left(w, now_ns);
        wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
        starts = starts || due;
    }
    /* Requests of a worker that ended, and queues whose delay is over. */
    if (router->n_pending)
        dispatch(router);
    if (router->options->max_queue_delay_us > 0 && router->n_pending)
        wait_ns = wait_ns < 1000000 ? wait_ns : 1000000;
    return wait_ns;
}

/* -- Life ----------------------------------------------------------------------------------- */

/* Opens the bundles of the options and gives their models places. */
static weft_err open_bundles(weft_router *router, weft_diag *diag)
{
    const weft_serve_options *o = router->options;
    for (uint32_t i = 0; i < o->n_bundle; i++) {
        const weft_serve_bundle *from = &o->bundle[i];
        router_bundle *b = NULL;
        WEFT_TRY(weft_router__read_bundle(from, o, diag, &b));
        weft_err err = weft_router__add_bundle(router, b, from, diag);
        if (err != WEFT_ERR_OK) {
            weft_router__free_bundle(router, b);
            return err;
        }
        WEFT_TRY(weft_router__show(router, b, diag));
    }
    return WEFT_ERR_OK;
}

static weft_err create_workers(weft_router *router, weft_diag *diag)
{
    const weft_serve_options *o = router->options;
    const router_slices *known = o->state || o->plans_ahead ? &router->slices : NULL;
    WEFT_TRY(weft_router__check_slices(router, &router->slices, known, diag));
    for (uint32_t i = 0; i < router->slices.n; i++)
        for (router_bundle *b = router->bundles; b; b = b->next) {
            if (!weft_router__has_place(router, &router->slices, i, b))
                continue;
            if (router->n_worker == router->worker_room)
                return WEFT_ERR_BUG;
            WEFT_TRY(weft_router__open_worker(router, &router->worker[router->n_worker++],
                                              &router->slices, i, b, diag));
        }
    return WEFT_ERR_OK;
}

/* Sets how many models and workers there may be. */
static weft_err make_room(weft_router *router)
{
    const weft_serve_options *o = router->options;
    uint32_t n = router->slices.n * (o->n_bundle ? o->n_bundle : 1);
    uint32_t spare = SPARE_PER_SLICE * router->slices.n;
    bool changes = o->control.path || o->repository;
    router->worker_room = changes ? 2 * n + (spare > SPARE_WORKERS ? spare : SPARE_WORKERS) : n;
    router->model_room = MODELS_MAX;
    router->worker = calloc(router->worker_room, sizeof *router->worker);
    router->model = calloc(router->model_room, sizeof *router->model);
    router->key = calloc(router->model_room, sizeof *router->key);
    router->shares = calloc(router->model_room, sizeof *router->shares);
    router->line = calloc(router->model_room, sizeof *router->line);
    bool ok = router->worker && router->model && router->key && router->shares && router->line;
    return ok ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

weft_err weft_router__create(const weft_serve_options *options, weft_loop *loop, weft_diag *diag,
                             weft_router **out)
{
    weft_router *router = calloc(1, sizeof *router);
    if (!router)
        return WEFT_ERR_NOMEM;
    double timeout_s = options->request_timeout_s > 0 ? options->request_timeout_s : 30;
    *router = (weft_router){.options = options,
                            .loop = loop,
                            .events = &worker_handlers,
                            .timeout_ns = (uint64_t)(timeout_s * 1e9),
                            .slices = {.at = &weft_router__whole, .n = 1}};
    if (options->n_slice)
        router->slices = (router_slices){.at = options->slice, .n = options->n_slice};
    weft_err err = make_room(router);
    if (err == WEFT_ERR_OK && (options->control.path || options->adapters || options->state))
        err = weft_live__create(options, diag, &router->live);
    if (err == WEFT_ERR_OK)
        err = open_bundles(router, diag);
    if (err == WEFT_ERR_OK)
        err = create_workers(router, diag);
    if (err == WEFT_ERR_OK)
        weft_router__limit_batches(router);
    if (err == WEFT_ERR_OK && !weft_loop__idle(loop, on_idle, router))
        err = WEFT_ERR_BUG;
    weft_router__watch_channels(router);
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
    /* All sockets are closed first, so that the processes end side by side. */
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].process.fd >= 0)
            shutdown(router->worker[i].process.fd, SHUT_RDWR);
    for (uint32_t i = 0; i < router->n_worker; i++)
        weft_router__close_worker(&router->worker[i]);
    while (router->bundles)
        weft_router__remove_bundle(router, router->bundles);
    weft_live__destroy(router->live);
    free(router->worker);
    free(router->model);
    free(router->key);
    free(router->shares);
    free(router->line);
    free(router);
}

void weft_router__leave(weft_router *router)
{
    router->leaving = true;
}

void weft_router__drain(weft_router *router)
{
    if (router->draining)
        return;
    router->draining = true;
    dispatch(router);
}

void weft_router__give_up(weft_router *router)
{
    router->draining = true;
    for (uint32_t i = 0; i < router->n_worker; i++)
        if (router->worker[i].process.state == WORKER_BUSY)
            weft_worker__fail(&router->worker[i].process);
    for (uint32_t i = 0; i < router->n_model; i++)
        while (router->model[i].head) {
            weft_request *r = router->model[i].head;
            weft_batch__remove(&router->model[i], r);
            weft_request__set_answer(r, WEFT_ANSWER_UNAVAILABLE, "the server is shutting down");
            finish(router, r);
        }
}
