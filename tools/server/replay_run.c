/* Sends requests at their planned times (open loop).
 *
 * One thread, one epoll set. A request whose time has come takes an idle connection; if there is
 * none, it waits, its clock running, while one more connection is opened, up to the limit. So a
 * slow server never slows the requests down, and latencies count from the planned time (G. Tene,
 * coordinated omission). Bodies of answers are counted and dropped.
 *
 * Events are edge-triggered: a connection is added to the set once. A read that does not fill the
 * buffer has emptied the socket. */
#include "tools/server/replay.h"

#include "base/arena.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 256,
    READ_BYTES = 65536,
    TICK_NS = 20 * 1000 * 1000, /* between looks for requests that are out of time */
    WAITING_MAX = 1 << 24,
    AHEAD_NS = 2000 * 1000 * 1000, /* for the first connections */
};

typedef enum link_state { LINK_FREE, LINK_CONNECTING, LINK_IDLE, LINK_BUSY } link_state;

typedef struct request {
    int64_t planned_ns;
    uint32_t service;
} request;

typedef struct conn {
    int fd;
    uint32_t turn; /* counts the uses of this place: events of earlier ones are ignored */
    link_state state;
    bool stacked; /* its number is in `idle` */
    request r;
    int64_t since_ns; /* sent, or begun to connect */
    const weft_buf *message;
    size_t n_sent;
    bool has_head;
    weft_replay_head head;
    uint64_t body_left;
    char *in; /* WEFT_REPLAY_HEAD_MAX */
    uint32_t n_in;
} conn;

typedef struct runner {
    const weft_replay_target *to;
    const weft_replay_run_options *o;
    weft_replay_report *report;
    weft_arena *arena;
    weft_arrivals *arrivals;
    weft_arrival next;
    bool more;
    int epoll, timer;
    int64_t base_ns, armed_ns, tick_ns;
    conn *conn;
    uint32_t *idle, *free;
    uint32_t n_idle, n_free, n_open, n_connecting, n_busy, max;
    request *waiting; /* ring */
    size_t first, n_waiting, room;
    char buffer[READ_BYTES];
} runner;

static int64_t now_ns(const runner *run)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - run->base_ns;
}

static void fail_request(runner *run, const request *r, weft_replay_fault fault)
{
    weft_replay_count_fault(run->report, r->service, r->planned_ns, fault);
}

/* -- Waiting requests ------------------------------------------------------------------------- */

static void push_waiting(runner *run, request r)
{
    if (run->n_waiting == run->room) {
        size_t room = run->room ? 2 * run->room : 1024;
        if (room > WAITING_MAX) {
            fail_request(run, &r, WEFT_REPLAY_TIMEOUT);
            return;
        }
        request *at = weft_arena_array(run->arena, room, sizeof *at);
        for (size_t i = 0; i < run->n_waiting; i++)
            at[i] = run->waiting[(run->first + i) & (run->room - 1)];
        run->waiting = at;
        run->room = room;
        run->first = 0;
    }
    run->waiting[(run->first + run->n_waiting++) & (run->room - 1)] = r;
}

static request pop_waiting(runner *run)
{
    request r = run->waiting[run->first];
    run->first = (run->first + 1) & (run->room - 1);
    run->n_waiting--;
    return r;
}

/* -- Connections ------------------------------------------------------------------------------ */

static void close_conn(runner *run, conn *c)
{
    run->n_connecting -= c->state == LINK_CONNECTING;
    run->n_busy -= c->state == LINK_BUSY;
    run->n_open--;
    close(c->fd);
    c->fd = -1;
    c->turn++;
    c->state = LINK_FREE;
    run->free[run->n_free++] = (uint32_t)(c - run->conn);
}

/* The connection is of no more use; its request, if it has one, fails. */
static void break_conn(runner *run, conn *c, weft_replay_fault fault)
{
    if (c->state == LINK_BUSY)
        fail_request(run, &c->r, fault);
    /* A server that cannot be reached must not hold requests back until they are out of time. */
    if (c->state == LINK_CONNECTING && run->n_waiting > 0) {
        request r = pop_waiting(run);
        fail_request(run, &r, WEFT_REPLAY_CONNECT);
    }
    close_conn(run, c);
}

static void become_idle(runner *run, conn *c)
{
    run->n_connecting -= c->state == LINK_CONNECTING;
    run->n_busy -= c->state == LINK_BUSY;
    c->state = LINK_IDLE;
    if (!c->stacked)
        run->idle[run->n_idle++] = (uint32_t)(c - run->conn);
    c->stacked = true;
}

/* NULL: none is idle. The one used last: its caches are warm, and the others may time out. */
static conn *take_idle(runner *run)
{
    while (run->n_idle > 0) {
        conn *c = &run->conn[run->idle[--run->n_idle]];
        c->stacked = false;
        if (c->state == LINK_IDLE)
            return c;
    }
    return NULL;
}

static bool open_socket(runner *run, conn *c)
{
    const struct sockaddr *address = (const struct sockaddr *)&run->to->address;
    c->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return false;
    if (address->sa_family != AF_UNIX)
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.u64 = (uint64_t)c->turn << 32 | (uint32_t)(c - run->conn)};
    if ((connect(c->fd, address, run->to->address_len) < 0 && errno != EINPROGRESS) ||
        epoll_ctl(run->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    return true;
}

/* false: no connection can be opened now. */
static bool open_conn(runner *run)
{
    conn *c = &run->conn[run->free[run->n_free - 1]];
    if (!open_socket(run, c)) {
        /* Without a descriptor, those that are open have to do. */
        if ((errno == EMFILE || errno == ENFILE) && run->n_open > 0)
            run->max = run->n_open;
        else if (run->n_waiting > 0) {
            request r = pop_waiting(run);
            fail_request(run, &r, WEFT_REPLAY_CONNECT);
        }
        return false;
    }
    run->n_free--;
    c->state = LINK_CONNECTING;
    c->since_ns = now_ns(run);
    c->n_in = 0;
    run->n_connecting++;
    run->n_open++;
    run->report->opened++;
    if (run->n_open > run->report->most_open)
        run->report->most_open = run->n_open;
    return true;
}

/* -- Requests and answers --------------------------------------------------------------------- */

static void send_more(runner *run, conn *c)
{
    while (c->n_sent < c->message->len) {
        ssize_t n =
            send(c->fd, c->message->at + c->n_sent, c->message->len - c->n_sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            /* The answer may be there already: EOF or an error comes when it is read. */
            if (errno != EAGAIN && errno != EPIPE && errno != ECONNRESET)
                break_conn(run, c, WEFT_REPLAY_CLOSED);
            return;
        }
        c->n_sent += (size_t)n;
    }
}

static void begin_request(runner *run, conn *c, request r)
{
    weft_replay_service *s = &run->report->service[r.service];
    c->state = LINK_BUSY;
    run->n_busy++;
    c->r = r;
    c->since_ns = now_ns(run);
    c->message = &s->message[s->next_message];
    s->next_message = (s->next_message + 1) % s->n_message;
    c->n_sent = 0;
    c->n_in = 0;
    c->has_head = false;
    send_more(run, c);
}

static void finish_answer(runner *run, conn *c)
{
    uint32_t status = c->head.status;
    if (status == 200)
        weft_replay_count_answer(run->arena, run->report, c->r.service, c->r.planned_ns,
                                 c->since_ns, now_ns(run));
    else
        fail_request(run, &c->r,
                     status == 429 || status == 503 ? WEFT_REPLAY_REFUSED : WEFT_REPLAY_STATUS);
    bool keep = !c->head.close && c->n_sent == c->message->len;
    become_idle(run, c);
    if (!keep)
        close_conn(run, c);
}

/* Takes bytes of an answer; false: the connection is broken or closed. */
static bool take_bytes(runner *run, conn *c, const char *at, size_t len)
{
    if (!c->has_head) {
        size_t room = WEFT_REPLAY_HEAD_MAX - c->n_in, n = len < room ? len : room;
        memcpy(c->in + c->n_in, at, n);
        size_t before = c->n_in;
        c->n_in += (uint32_t)n;
        weft_replay_read got = weft_replay_read_head(c->in, c->n_in, &c->head);
        if (got == WEFT_REPLAY_MORE)
            return true;
        if (got == WEFT_REPLAY_BAD) {
            break_conn(run, c, WEFT_REPLAY_PROTOCOL);
            return false;
        }
        c->has_head = true;
        c->body_left = c->head.length;
        at += c->head.size - before;
        len -= c->head.size - before;
    }
    if (len > c->body_left) {
        break_conn(run, c, WEFT_REPLAY_PROTOCOL);
        return false;
    }
    c->body_left -= len;
    if (c->body_left > 0)
        return true;
    uint32_t turn = c->turn;
    finish_answer(run, c);
    return c->turn == turn;
}

static void read_conn(runner *run, conn *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, run->buffer, sizeof run->buffer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            break_conn(run, c, WEFT_REPLAY_CLOSED);
            return;
        }
        if (c->state == LINK_IDLE) { /* nothing was asked */
            close_conn(run, c);
            return;
        }
        if (!take_bytes(run, c, run->buffer, (size_t)n))
            return;
        if ((size_t)n < sizeof run->buffer)
            return;
    }
}

static void handle_event(runner *run, const struct epoll_event *event)
{
    conn *c = &run->conn[(uint32_t)event->data.u64];
    uint32_t turn = (uint32_t)(event->data.u64 >> 32);
    if (c->turn != turn || c->state == LINK_FREE)
        return;
    if (c->state == LINK_CONNECTING) {
        int error = 0;
        socklen_t len = sizeof error;
        getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error || event->events & (EPOLLERR | EPOLLHUP)) {
            break_conn(run, c, WEFT_REPLAY_CONNECT);
            return;
        }
        if (!(event->events & EPOLLOUT))
            return;
        become_idle(run, c);
    }
    if (event->events & EPOLLOUT && c->state == LINK_BUSY)
        send_more(run, c);
    if (c->turn == turn && event->events & (EPOLLIN | EPOLLERR | EPOLLHUP))
        read_conn(run, c);
    /* The answer is read; what follows is the end. */
    if (c->turn == turn && event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        break_conn(run, c, WEFT_REPLAY_CLOSED);
}

/* -- The loop --------------------------------------------------------------------------------- */

static weft_err next_arrival(runner *run)
{
    WEFT_TRY(weft_arrivals_next(run->arrivals, &run->next, &run->more));
    if (run->o->duration_ns > 0 && run->more && run->next.time_ns >= run->o->duration_ns)
        run->more = false;
    return WEFT_ERR_OK;
}

/* Sends what is due. */
static weft_err send_due(runner *run, weft_diag *diag)
{
    int64_t now = now_ns(run);
    while (run->more && run->next.time_ns <= now) {
        request r = {run->next.time_ns, run->next.service};
        weft_replay_service *s = &run->report->service[r.service];
        if (s->n_message == 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = s->name}, "%s",
                                   s->why_none ? s->why_none : "has no inputs");
        weft_replay_close_buckets(run->arena, run->report, r.planned_ns, false);
        weft_replay_count_request(run->report, r.service, r.planned_ns);
        if (r.planned_ns >= run->report->warm_ns)
            weft_replay_add_time(run->arena, &run->report->lag, now - r.planned_ns);
        push_waiting(run, r);
        conn *c = take_idle(run);
        if (c)
            begin_request(run, c, pop_waiting(run));
        WEFT_TRY(next_arrival(run));
        now = now_ns(run);
    }
    return WEFT_ERR_OK;
}

static void send_waiting(runner *run)
{
    while (run->n_waiting > 0) {
        conn *c = take_idle(run);
        if (!c)
            break;
        request r = pop_waiting(run);
        if (r.planned_ns >= run->report->warm_ns)
            weft_replay_add_time(run->arena, &run->report->wait, now_ns(run) - r.planned_ns);
        begin_request(run, c, r);
    }
    while (run->n_connecting < run->n_waiting && run->n_open < run->max)
        if (!open_conn(run))
            break;
}

/* Gives up requests that are out of time. */
static void expire(runner *run)
{
    int64_t now = now_ns(run), limit = now - run->o->timeout_ns;
    while (run->n_waiting > 0 && run->waiting[run->first].planned_ns < limit) {
        request r = pop_waiting(run);
        fail_request(run, &r, WEFT_REPLAY_TIMEOUT);
    }
    if (now < run->tick_ns)
        return;
    run->tick_ns = now + TICK_NS;
    for (uint32_t i = 0; i < run->o->connections_max; i++) {
        conn *c = &run->conn[i];
        if ((c->state == LINK_BUSY && c->r.planned_ns < limit) ||
            (c->state == LINK_CONNECTING && c->since_ns < limit))
            break_conn(run, c, WEFT_REPLAY_TIMEOUT);
    }
}

static void arm_timer(runner *run)
{
    int64_t at = run->more && run->next.time_ns < run->tick_ns ? run->next.time_ns : run->tick_ns;
    if (at == run->armed_ns)
        return;
    run->armed_ns = at;
    int64_t clock = at + run->base_ns;
    struct itimerspec when = {
        .it_value = {.tv_sec = clock / 1000000000, .tv_nsec = clock % 1000000000}};
    timerfd_settime(run->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static weft_err run_loop(runner *run, weft_diag *diag)
{
    struct epoll_event event[EVENTS_MAX];
    weft_tool_progress("replaying to %s", run->to->text);
    while (run->more || run->n_waiting > 0 || run->n_busy > 0) {
        WEFT_TRY(send_due(run, diag));
        send_waiting(run);
        expire(run);
        arm_timer(run);
        int n = epoll_wait(run->epoll, event, EVENTS_MAX, -1);
        if (n < 0 && errno != EINTR)
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "epoll: %s",
                                   strerror(errno));
        weft_replay_close_buckets(run->arena, run->report, now_ns(run), false);
        weft_tool_advance((double)now_ns(run) * 1e-9, (double)run->o->duration_ns * 1e-9, "s");
        for (int i = 0; i < n; i++) {
            if (event[i].data.u64 != UINT64_MAX) {
                handle_event(run, &event[i]);
                continue;
            }
            uint64_t count;
            run->armed_ns = 0;
            if (read(run->timer, &count, sizeof count) < 0)
                continue;
        }
    }
    weft_tool_progress(NULL);
    run->report->end_ns = now_ns(run);
    if (run->report->end_ns < run->o->duration_ns)
        run->report->end_ns = run->o->duration_ns;
    weft_replay_close_buckets(run->arena, run->report, run->report->end_ns, true);
    return WEFT_ERR_OK;
}

/* -- Start and end ---------------------------------------------------------------------------- */

/* Opens the first connections; IO if there is none after a while. */
static weft_err open_ahead(runner *run, weft_diag *diag)
{
    struct epoll_event event[EVENTS_MAX];
    for (uint32_t i = 0; i < run->o->connections && i < run->max; i++)
        if (!open_conn(run))
            break;
    for (int64_t until = now_ns(run) + AHEAD_NS; run->n_connecting > 0 && now_ns(run) < until;) {
        int n = epoll_wait(run->epoll, event, EVENTS_MAX, 10);
        for (int i = 0; i < n; i++)
            if (event[i].data.u64 != UINT64_MAX)
                handle_event(run, &event[i]);
    }
    if (run->n_open == 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){.item = run->to->text},
                               "cannot connect");
    return WEFT_ERR_OK;
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static weft_err open_runner(runner *run, weft_diag *diag)
{
    uint32_t max = run->o->connections_max;
    run->conn = weft_arena_array(run->arena, max, sizeof *run->conn);
    run->idle = weft_arena_array(run->arena, max, sizeof *run->idle);
    run->free = weft_arena_array(run->arena, max, sizeof *run->free);
    for (uint32_t i = 0; i < max; i++) {
        run->conn[i].fd = -1;
        run->conn[i].in = weft_arena_alloc(run->arena, WEFT_REPLAY_HEAD_MAX);
        run->free[run->n_free++] = max - 1 - i;
    }
    run->epoll = epoll_create1(EPOLL_CLOEXEC);
    run->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    if (run->epoll < 0 || run->timer < 0 ||
        epoll_ctl(run->epoll, EPOLL_CTL_ADD, run->timer, &event) < 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "epoll: %s", strerror(errno));
    return WEFT_ERR_OK;
}

weft_err weft_replay_run(const weft_replay_target *to, const weft_replay_run_options *o,
                         weft_arrivals *arrivals, weft_arena *arena, weft_diag *diag,
                         weft_replay_report *r)
{
    runner *run = weft_arena_array(arena, 1, sizeof *run);
    *run = (runner){.to = to,
                    .o = o,
                    .report = r,
                    .arena = arena,
                    .arrivals = arrivals,
                    .epoll = -1,
                    .timer = -1,
                    .max = o->connections_max};
    raise_descriptors();
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    weft_err err = open_runner(run, diag);
    if (err == WEFT_ERR_OK)
        err = next_arrival(run);
    if (err == WEFT_ERR_OK)
        err = open_ahead(run, diag);
    run->base_ns = now_ns(run);
    for (uint32_t i = 0; i < o->connections_max; i++)
        run->conn[i].since_ns = 0;
    if (err == WEFT_ERR_OK)
        err = run_loop(run, diag);
    for (uint32_t i = 0; i < o->connections_max; i++)
        if (run->conn[i].fd >= 0)
            close(run->conn[i].fd);
    if (run->epoll >= 0)
        close(run->epoll);
    if (run->timer >= 0)
        close(run->timer);
    return err;
}
