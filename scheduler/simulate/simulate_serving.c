/* Serving in virtual time: requests wait in queues, processes take batches from them, slices open
 * and close.
 *
 * A placement alone on its slice has `procs` processes, each of which runs one batch at a time; the
 * placements of a shared slice have one process together. An idle process takes a batch as
 * runtime/server/batch.c does: oldest requests first, up to the batch of the placement; the batch
 * is filled up to the next size of the profile where less than a third of it is then padding, else
 * cut to the size below.
 *
 *   router    requests wait                 an idle process takes
 *   pull      in one queue a model, as in   the batch of the model whose turn it is
 *             runtime/server/router.c       (simulate_dispatch.c); the process with the least
 *                                           number is first
 *   shares    in one queue a placement;     from the queue of its placement; the placements of a
 *             stride scheduling gives each  shared slice take turns
 *             its part of the requests
 *   least     in one queue a placement,     the same
 *             where load over planned rate
 *             is least
 *
 * Stride scheduling: C. Waldspurger, W. Weihl, MIT/LCS/TM-528, 1995.
 *
 * A batch leaves as soon as a process is idle, or (`fill`) when it is full or its oldest request
 * has waited for the flush time of slo.c. A request is dropped when its queue is full, and when it
 * has waited for the timeout.
 *
 * Cost of a request: O(log processes) for its timers. */
#include "scheduler/simulate/simulate_int.h"

#include <math.h>
#include <string.h>

/* -- Queues ----------------------------------------------------------------------------------- */

/* The request was in the queue, or would have come into it. */
static void drop(sim_world *w, const sim_queue *q, const sim_request *r)
{
    sim_service *s = &w->service[r->service];
    weft_sim__settle(w, r, (uint32_t)(q - w->queue.at), false);
    if (r->time_ns < w->warm_ns)
        return;
    s->count.dropped++;
    s->bucket.dropped++;
}

static void push(sim_world *w, sim_queue *q, sim_request r)
{
    if (q->len >= w->queue_max) {
        drop(w, q, &r);
        return;
    }
    if (q->len == q->room) {
        uint32_t room = q->room ? 2 * q->room : 16;
        sim_request *at = weft_arena_array(w->arena, room, sizeof *at);
        for (uint32_t i = 0; i < q->len; i++)
            at[i] = q->at[(q->head + i) & (q->room - 1)];
        q->at = at;
        q->head = 0;
        q->room = room;
    }
    uint32_t i = q->len++;
    for (; i > 0 && weft_sim__waiting(q, i - 1)->due_ns > r.due_ns; i--)
        *weft_sim__waiting(q, i) = *weft_sim__waiting(q, i - 1);
    *weft_sim__waiting(q, i) = r;
}

static sim_request *head(const sim_queue *q)
{
    return &q->at[q->head];
}

static sim_request pop(sim_queue *q)
{
    sim_request r = q->at[q->head];
    q->head = (q->head + 1) & (q->room - 1);
    q->len--;
    return r;
}

static void unload(sim_world *w, uint32_t replica, uint32_t n)
{
    if (replica != UINT32_MAX)
        w->replica.at[replica].load -= n;
}

/* The replica whose own queue this is: that of the queue's first lane. UINT32_MAX: the queue
 * belongs to a service. */
static uint32_t owner(const sim_world *w, const sim_queue *q)
{
    if (w->o->router == WEFT_SIM_PULL || q->server.len == 0)
        return UINT32_MAX;
    const sim_server *server = &w->server.at[q->server.at[0]];
    const sim_slice *slice = &w->slice.at[server->slice];
    for (uint32_t i = 0; i < slice->n_lane; i++)
        if (&w->queue.at[server->lane[i].queue] == q)
            return server->lane[i].replica;
    return UINT32_MAX;
}

static void expire(sim_world *w, sim_queue *q)
{
    while (q->len > 0 && head(q)->time_ns + w->timeout_ns <= w->now_ns) {
        sim_request r = pop(q);
        unload(w, owner(w, q), 1);
        drop(w, q, &r);
    }
}

uint32_t weft_sim__add_queue(sim_world *w)
{
    WEFT_VEC_PUSH(w->arena, &w->queue, ((sim_queue){0}));
    return w->queue.len - 1;
}

/* -- Batches ---------------------------------------------------------------------------------- */

static void set_idle(sim_world *w, const sim_server *server, bool idle)
{
    const sim_slice *slice = &w->slice.at[server->slice];
    for (uint32_t i = 0; i < slice->n_lane; i++) {
        const sim_lane *lane = &server->lane[i];
        uint64_t *word = &w->queue.at[lane->queue].idle[lane->pos / 64];
        uint64_t bit = (uint64_t)1 << lane->pos % 64;
        *word = idle ? *word | bit : *word & ~bit;
    }
}

static bool is_due(const sim_world *w, const sim_queue *q, const sim_replica *replica)
{
    return q->len >= replica->batch || w->now_ns - head(q)->time_ns >= replica->hold_ns;
}

/* Sets a timer for the time at which the oldest request may wait no longer. */
static void arm(sim_world *w, uint32_t queue, const sim_replica *replica)
{
    sim_queue *q = &w->queue.at[queue];
    if (q->armed || q->len == 0 || replica->hold_ns == 0)
        return;
    q->armed = true;
    weft_sim__set_timer(w, head(q)->time_ns + replica->hold_ns, SIM_TIMER_FLUSH, queue);
}

/* Drops requests that would be late. Returns the rows of the batch to take; 0: the queue is
 * empty. */
static uint32_t drop_late(sim_world *w, const sim_lane *lane)
{
    const sim_replica *replica = &w->replica.at[lane->replica];
    sim_queue *q = &w->queue.at[lane->queue];
    if (w->o->router != WEFT_SIM_PULL || !head(q)->promised)
        return replica->batch;
    weft_line_choice choice = weft_sim__choose(w, lane->queue, replica);
    for (; choice.drop > 0; choice.drop--) {
        sim_request r = pop(q);
        drop(w, q, &r);
    }
    return q->len > 0 ? (uint32_t)choice.most : 0;
}

/* A batch of at most `most` requests. */
static void start_batch(sim_world *w, sim_server *server, const sim_lane *lane, uint32_t most)
{
    sim_queue *q = &w->queue.at[lane->queue];
    sim_replica *replica = &w->replica.at[lane->replica];
    sim_slice *slice = &w->slice.at[server->slice];
    uint32_t rows = q->len < most ? q->len : most;
    sim_size *size = weft_sim__size(replica, &rows);
    if (w->o->router == WEFT_SIM_PULL)
        weft_sim__charge(w, lane->queue, replica, rows);
    for (uint32_t i = 0; i < rows; i++)
        server->run[i] = pop(q);
    server->n_run = rows;
    server->replica = lane->replica;
    server->size = size;
    server->busy = true;
    server->start_ns = server->seen_ns = w->now_ns;
    server->end_ns = w->now_ns + size->exec_ns;
    server->pace_ns = size->exec_ns;
    server->paced_ns = w->now_ns;
    server->left = 1;
    if (w->now_ns >= w->warm_ns) {
        sim_service *s = &w->service[replica->service];
        s->batches++;
        s->padded += size->batch - rows;
        slice->batches++;
        slice->requests += rows;
    }
    set_idle(w, server, false);
    weft_sim__set_timer(w, server->end_ns, SIM_TIMER_DONE, (uint32_t)(server - w->server.at));
    weft_sim__pace(w, slice->device);
    if (q->len > 0)
        arm(w, lane->queue, replica);
}

/* The lane that an idle process takes a batch from; NULL: no lane has a batch that may leave. */
static const sim_lane *choose_lane(sim_world *w, const sim_server *server)
{
    sim_slice *slice = &w->slice.at[server->slice];
    const sim_lane *best = NULL;
    bool in_turn = w->o->router != WEFT_SIM_PULL;
    for (uint32_t k = 0; k < slice->n_lane; k++) {
        uint32_t i = in_turn ? (slice->turn + k) % slice->n_lane : k;
        const sim_lane *lane = &server->lane[i];
        sim_queue *q = &w->queue.at[lane->queue];
        if (q->len > 0)
            expire(w, q);
        if (q->len == 0 || !is_due(w, q, &w->replica.at[lane->replica]))
            continue;
        if (in_turn) {
            slice->turn = (i + 1) % slice->n_lane;
            return lane;
        }
        if (!best || weft_sim__goes_first(w, q, &w->queue.at[best->queue]))
            best = lane;
    }
    return best;
}

/* An idle process takes a batch; if there is none, timers make sure that it is asked again. */
static void take_or_wait(sim_world *w, sim_server *server)
{
    const sim_lane *lane = choose_lane(w, server);
    const sim_slice *slice = &w->slice.at[server->slice];
    uint32_t most = 0;
    while (lane && (most = drop_late(w, lane)) == 0)
        lane = choose_lane(w, server);
    if (lane)
        start_batch(w, server, lane, most);
    for (uint32_t i = 0; i < slice->n_lane && !lane; i++)
        arm(w, server->lane[i].queue, &w->replica.at[server->lane[i].replica]);
}

static const sim_lane *lane_of(const sim_world *w, const sim_server *server, uint32_t queue)
{
    const sim_slice *slice = &w->slice.at[server->slice];
    for (uint32_t i = 0; i < slice->n_lane; i++)
        if (server->lane[i].queue == queue)
            return &server->lane[i];
    return NULL;
}

/* A request has come to the queue, or its oldest one may wait no longer: idle processes take
 * batches from it, the process with the least number first. */
static void dispatch(sim_world *w, uint32_t queue)
{
    sim_queue *q = &w->queue.at[queue];
    const sim_replica *waiting = NULL;
    if (q->len > 0)
        expire(w, q);
    for (uint32_t i = 0; i < q->n_word && q->len > 0; i++) {
        for (uint64_t word = q->idle[i]; word && q->len > 0; word &= word - 1) {
            uint32_t pos = i * 64 + (uint32_t)__builtin_ctzll(word);
            sim_server *server = &w->server.at[q->server.at[pos]];
            const sim_lane *lane = lane_of(w, server, queue);
            uint32_t most = is_due(w, q, &w->replica.at[lane->replica]) ? drop_late(w, lane) : 0;
            if (q->len == 0)
                break;
            if (most > 0)
                start_batch(w, server, lane, most);
            else if (!waiting || w->replica.at[lane->replica].hold_ns < waiting->hold_ns)
                waiting = &w->replica.at[lane->replica];
        }
    }
    if (waiting)
        arm(w, queue, waiting);
}

/* -- Routing ---------------------------------------------------------------------------------- */

static uint32_t choose_replica(sim_world *w, const sim_service *s)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < s->route.len; i++) {
        sim_replica *r = &w->replica.at[s->route.at[i]];
        if (w->slice.at[r->slice].state != SIM_ON)
            continue;
        const sim_replica *b = best == UINT32_MAX ? NULL : &w->replica.at[best];
        bool better =
            !b || (w->o->router == WEFT_SIM_SHARES ? r->pass < b->pass
                                                   : r->load * b->weight < b->load * r->weight);
        if (better)
            best = s->route.at[i];
    }
    if (best != UINT32_MAX)
        w->replica.at[best].pass += w->replica.at[best].stride;
    return best;
}

static bool is_served(const sim_world *w, const sim_service *s)
{
    for (uint32_t i = 0; i < s->route.len; i++)
        if (w->slice.at[w->replica.at[s->route.at[i]].slice].state == SIM_ON)
            return true;
    return false;
}

void weft_sim__drop_unserved(sim_world *w)
{
    for (uint32_t i = 0; i < w->n_service; i++)
        while (w->queue.at[i].len > 0 && !is_served(w, &w->service[i])) {
            sim_request r = pop(&w->queue.at[i]);
            drop(w, &w->queue.at[i], &r);
        }
}

static void route(sim_world *w, sim_request r)
{
    uint32_t queue = r.service; /* of the service: for pulling, or until a replica is there */
    if (w->o->router == WEFT_SIM_PULL) {
        if (!weft_sim__admit(w, &r, &queue)) {
            drop(w, &w->queue.at[queue], &r);
            return;
        }
        if (w->queue.at[queue].len == 0)
            w->queue.at[queue].virtual_ns = fmax(w->queue.at[queue].virtual_ns, w->virtual_ns);
    } else {
        uint32_t replica = choose_replica(w, &w->service[r.service]);
        if (replica != UINT32_MAX) {
            queue = w->replica.at[replica].queue;
            if (w->queue.at[queue].len < w->queue_max)
                w->replica.at[replica].load++;
        }
    }
    push(w, &w->queue.at[queue], r);
    dispatch(w, queue);
}

void weft_sim__arrive(sim_world *w, const weft_arrival *a)
{
    sim_service *s = &w->service[a->service];
    s->seen++;
    if (a->time_ns >= w->warm_ns) {
        s->count.requests++;
        s->bucket.requests++;
    }
    route(w, (sim_request){
                 .time_ns = a->time_ns, .due_ns = (uint64_t)a->time_ns, .service = a->service});
}

/* -- Slices ----------------------------------------------------------------------------------- */

static void join_queue(sim_world *w, uint32_t server, sim_lane *lane)
{
    sim_queue *q = &w->queue.at[lane->queue];
    lane->pos = q->server.len;
    WEFT_VEC_PUSH(w->arena, &q->server, server);
    if (lane->pos / 64 == q->n_word) {
        q->idle = weft_arena_grow(w->arena, q->idle, q->n_word * sizeof *q->idle,
                                  (q->n_word * 2 + 1) * sizeof *q->idle);
        memset(q->idle + q->n_word, 0, (q->n_word + 1) * sizeof *q->idle);
        q->n_word = q->n_word * 2 + 1;
    }
}

void weft_sim__open_slice(sim_world *w, uint32_t slice)
{
    sim_slice *s = &w->slice.at[slice];
    s->state = SIM_ON;
    for (uint32_t i = 0; i < s->n_server; i++)
        for (uint32_t k = 0; k < s->n_lane; k++)
            join_queue(w, s->first_server + i, &w->server.at[s->first_server + i].lane[k]);
    for (uint32_t i = 0; i < s->n_server; i++)
        set_idle(w, &w->server.at[s->first_server + i], true);
    for (uint32_t i = 0; i < s->n_replica; i++) {
        /* The replica starts at the greatest pass of those that serve already; with pass 0 it would
         * get all requests until it has caught up. */
        sim_replica *own = &w->replica.at[s->first_replica + i];
        const sim_service *service = &w->service[own->service];
        for (uint32_t k = 0; k < service->route.len; k++) {
            const sim_replica *r = &w->replica.at[service->route.at[k]];
            if (r != own && w->slice.at[r->slice].state == SIM_ON && r->pass > own->pass)
                own->pass = r->pass;
        }
    }
    for (uint32_t i = 0; i < s->n_server; i++)
        take_or_wait(w, &w->server.at[s->first_server + i]);
    /* Requests that came while the service had no replica. */
    for (uint32_t i = 0; i < w->n_service && w->o->router != WEFT_SIM_PULL; i++) {
        sim_queue *q = &w->queue.at[i];
        if (q->len == 0 || !is_served(w, &w->service[i]))
            continue;
        expire(w, q);
        for (uint32_t n = q->len; n > 0; n--)
            route(w, pop(q));
    }
}

static void try_free(sim_world *w, sim_slice *slice)
{
    if (slice->state != SIM_OFF)
        return;
    for (uint32_t i = 0; i < slice->n_server; i++)
        if (w->server.at[slice->first_server + i].busy)
            return;
    weft_sim__account_devices(w);
    slice->state = SIM_GONE;
    w->live_share -= slice->share;
    sim_device *d = &w->device.at[slice->device];
    uint32_t index = (uint32_t)(slice - w->slice.at), n = 0;
    for (uint32_t i = 0; i < d->slice.len; i++)
        if (d->slice.at[i] != index)
            d->slice.at[n++] = d->slice.at[i];
    d->slice.len = n;
    if (n == 0)
        weft_sim__use_device(w, d, false);
}

/* Removes the replica from the routes of its model and of the apps that the model serves. */
static void forget_route(sim_world *w, uint32_t replica)
{
    uint32_t model = w->replica.at[replica].service;
    for (uint32_t i = model; i < w->n_service; i = i < w->n_model ? w->n_model : i + 1) {
        uint32_t n = 0, *at = w->service[i].route.at;
        for (uint32_t k = 0; k < w->service[i].route.len; k++)
            if (at[k] != replica)
                at[n++] = at[k];
        w->service[i].route.len = n;
    }
}

/* Requests to apps that wait for a model which nobody serves any more go to another variant. */
static void choose_again(sim_world *w, uint32_t model)
{
    sim_queue *q = &w->queue.at[model];
    if (w->o->router != WEFT_SIM_PULL || is_served(w, &w->service[model]))
        return;
    for (uint32_t n = q->len; n > 0; n--) {
        sim_request r = pop(q);
        if (!w->service[r.service].app) {
            push(w, q, r);
            continue;
        }
        weft_sim__settle(w, &r, model, false);
        route(w, r);
    }
}

void weft_sim__close_slice(sim_world *w, uint32_t slice)
{
    sim_slice *s = &w->slice.at[slice];
    bool served = s->state == SIM_ON;
    s->state = SIM_OFF;
    s->off_ns = w->now_ns;
    for (uint32_t i = 0; i < s->n_server && served; i++)
        set_idle(w, &w->server.at[s->first_server + i], false);
    for (uint32_t i = 0; i < s->n_replica; i++) {
        forget_route(w, s->first_replica + i);
        choose_again(w, w->replica.at[s->first_replica + i].service);
        uint32_t queue = w->replica.at[s->first_replica + i].queue;
        while (queue != UINT32_MAX && w->queue.at[queue].len > 0) {
            sim_request r = pop(&w->queue.at[queue]);
            w->replica.at[s->first_replica + i].load--;
            route(w, r);
        }
    }
    try_free(w, &w->slice.at[slice]);
}

/* -- Events ----------------------------------------------------------------------------------- */

static void end_batch(sim_world *w, sim_server *server)
{
    const sim_replica *replica = &w->replica.at[server->replica];
    weft_sim__account_server(w, server);
    for (uint32_t i = 0; i < server->n_run; i++) {
        weft_sim__settle(w, &server->run[i], replica->service, true);
        weft_sim__count_answer(w, &server->run[i], server);
    }
    if (replica->queue != UINT32_MAX)
        unload(w, server->replica, server->n_run);
    weft_line_learn(&server->size->learnt, (double)(w->now_ns - server->start_ns));
    server->busy = false;
    server->n_run = 0;
    sim_slice *slice = &w->slice.at[server->slice];
    if (slice->state != SIM_ON) {
        try_free(w, slice);
    } else {
        set_idle(w, server, true);
        take_or_wait(w, server);
    }
    if (!server->busy)
        weft_sim__pace(w, slice->device);
}

void weft_sim__fire(sim_world *w)
{
    uint32_t key = w->timer[0].key, index = key & ((1u << SIM_TIMER_SHIFT) - 1);
    weft_timer__pop(w->timer, w->n_timer--);
    switch (key >> SIM_TIMER_SHIFT) {
    case SIM_TIMER_DONE:
        if (w->server.at[index].busy && w->server.at[index].end_ns == w->now_ns)
            end_batch(w, &w->server.at[index]);
        break;
    case SIM_TIMER_FLUSH:
        w->queue.at[index].armed = false;
        dispatch(w, index);
        break;
    case SIM_TIMER_ON:
        if (w->slice.at[index].state == SIM_STARTING) {
            weft_sim__account_devices(w);
            weft_sim__open_slice(w, index);
        }
        break;
    default:
        if (w->slice.at[index].leaves && w->slice.at[index].leave_ns == w->now_ns &&
            (w->slice.at[index].state == SIM_ON || w->slice.at[index].state == SIM_STARTING))
            weft_sim__close_slice(w, index);
    }
}

void weft_sim__expire(sim_world *w)
{
    for (uint32_t i = 0; i < w->queue.len; i++)
        expire(w, &w->queue.at[i]);
}
