/* The next batch of a worker, sent while it runs one: it finds it in the shared memory when it has
 * answered, and neither sleeps nor waits for the router, which is writing answers then.
 *
 * What is sent ahead is decided early, so it is sent only where waiting for the worker would decide
 * the same: a full batch of short requests without a promise, while no other model waits. What
 * comes meanwhile is delayed by ahead_most_ns at most. */
#include "runtime/server/router_int.h"

enum { MODELS_MAX = 16 /* of the bundle, each of which is looked at */ };

/* Longer batches gain nothing: to wake a worker takes 5 to 60 us. */
static const uint64_t ahead_most_ns = 1000000;

uint32_t weft_router__count_batches(const router_worker *w)
{
    return w->n_part + w->n_ahead;
}

router_batch *weft_router__batch(const router_worker *w, uint32_t i)
{
    return i < w->n_part ? &w->part[i] : &w->ahead[i - w->n_part];
}

bool weft_router__has_begun(const router_worker *w, uint32_t i)
{
    return i < w->n_part || weft_channel__has(w->process.channel);
}

/* Whether no other model of the worker's bundle has requests. */
static bool waits_alone(const weft_router *router, const router_worker *w, const router_model *m)
{
    const router_bundle *b = w->bundle;
    for (uint32_t i = b->first; i < b->first + b->bundle->n_program; i++)
        if (&router->model[i] != m && router->model[i].head)
            return false;
    return true;
}

/* Whether the queue has a batch to which no further request could be added. */
static bool is_full(const router_model *m, int64_t most)
{
    int64_t rows = 0;
    for (const weft_request *r = m->head; r && r->attempts == 0 && r->rows > 0; r = r->next) {
        rows += r->rows;
        if (rows >= most)
            return true;
    }
    return false;
}

/* Whether a batch of `most` rows of the model, whose queue is not empty, may be sent now. */
static bool may_send(const weft_router *router, const router_worker *w, const router_model *m,
                     int64_t most)
{
    const router_bundle *b = w->bundle;
    uint64_t took_ns = weft_admission__batch_ns(m, most);
    return b->joints.n == 0 && !m->packed && !m->family && !m->heads &&
           b->bundle->n_program <= MODELS_MAX && !m->head->promised && most > 1 &&
           is_full(m, most) && took_ns > 0 && took_ns <= ahead_most_ns && waits_alone(router, w, m);
}

static void send_to(weft_router *router, router_worker *w, uint32_t model)
{
    router_model *m = &router->model[model];
    uint64_t now_ns = weft_clock__now_ns();
    weft_wire_out message;
    w->ahead[0] = (router_batch){.model = model, .sent_ns = now_ns, .ahead_ns = now_ns};
    weft_batch__take(m, w->most[model], &w->ahead[0]);
    bool sent = weft_batch__compose(router->model, w->ahead, 1, NULL, &message);
    if (sent) {
        message.head.id = ++router->next_id;
        message.head.model = (uint32_t)(m->program - w->bundle->bundle->program);
        w->n_ahead = 1; /* on_end takes it back */
        sent = weft_worker__send_ahead(&w->process, &message);
    }
    if (sent) {
        weft_admission__charge(router, m, w->ahead[0].padded_rows);
        return;
    }
    w->n_ahead = 0;
    weft_batch__put_back(m, &w->ahead[0]);
}

void weft_router__send_ahead(weft_router *router, uint32_t model)
{
    router_model *m = &router->model[model];
    for (uint32_t i = 0; i < router->n_worker && m->head; i++) {
        router_worker *w = &router->worker[i];
        if (weft_worker__takes_ahead(&w->process) && !w->retiring && w->process.stall_ns == 0 &&
            w->serves[model] && may_send(router, w, m, w->most[model]))
            send_to(router, w, model);
    }
}

void weft_router__advance(router_worker *w, uint64_t now_ns)
{
    router_batch *answered = w->part, *spare = w->answered;
    w->answered = answered;
    w->n_answered = w->n_part;
    w->part = w->n_ahead ? w->ahead : spare;
    w->ahead = w->n_ahead ? spare : w->ahead;
    w->n_part = w->n_ahead;
    w->n_ahead = 0;
    if (w->n_part == 0)
        return;
    w->part[0].sent_ns = now_ns;
    w->joint = NULL;
    w->packed = w->heads = NULL;
    w->size = 0; /* only models that run with no other are sent ahead */
}
