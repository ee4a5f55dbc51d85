/* weft_serve: connects loop, router and transports, and shuts them down.
 *
 * SIGHUP reads keys and certificates again. The first SIGTERM or SIGINT drains: no new connections
 * are accepted, requests are answered until drain_timeout_s has passed, and the remaining ones get
 * 503. A second signal ends at once. */
#include "runtime/server/access_int.h"
#include "runtime/server/deployment_int.h"
#include "runtime/server/json_dump.h"
#include "runtime/server/oip_int.h"
#include "runtime/server/regions.h"
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { UNREAD_MAX = 100 };
static const uint64_t last_answers_ns = 500000000u;
static const uint64_t reload_pause_ns = 100000000u;
/* For the thread that answers probes: how often the loop tells of itself, and after how long
 * without it the server is not live. */
static const uint64_t beat_every_ns = 100000000u, patience_ns = 5000000000u;

typedef struct server {
    const weft_serve_options *options;
    weft_serve_options effective; /* `options` refers to them */
    weft_deployment *deployment;
    weft_rollout *rollout;
    weft_poll *poll;
    weft_loop *loop;
    weft_notify *notify;
    weft_health *health;
    weft_timer beat;
    weft_timer reload;
    uint64_t reloaded_ns;
    weft_front front;
    weft_reloaded keys;
    weft_router *router;
    weft_http *http;
    weft_grpc *grpc;
    weft_ctl *control;
    int signals;
    uint32_t n_signals; /* to end the server: the first drains it, the second ends it at once */
    bool has_unread;    /* one of them was counted, but could not be read */
    uint32_t n_unread;  /* attempts that failed, in a row */
    uint64_t drain_until_ns;
    bool was_ready;
} server;

static void read_again(void *user)
{
    server *s = user;
    s->reloaded_ns = weft_clock__now_ns();
    weft_notify__reloading(s->notify);
    weft_reload__all(s->front.reload);
    weft_spans__reopen(s->front.spans);
    if (s->was_ready)
        weft_notify__send(s->notify, "READY=1");
}

/* SIGHUP. Making a TLS context takes about a millisecond: signals in quick succession count as one.
 */
static void read_again_soon(server *s)
{
    uint64_t next_ns = s->reloaded_ns + reload_pause_ns;
    if (next_ns <= weft_clock__now_ns() || !weft_timer__set(s->loop, &s->reload, next_ns))
        read_again(s);
}

static void on_signal(void *user, uint32_t events)
{
    server *s = user;
    struct signalfd_siginfo info;
    (void)events;
    ssize_t n = 0;
    while ((n = read(s->signals, &info, sizeof info)) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGHUP && s->front.reload)
            read_again_soon(s);
        else if (info.ssi_signo != SIGHUP && s->has_unread)
            s->has_unread = false;
        else
            s->n_signals += info.ssi_signo != SIGHUP;
    /* A signal that cannot be read is one to end the server, but not at the first attempt: it may
     * be SIGHUP. It stays to be read, which must not end the draining that it begins. */
    s->n_unread = n < 0 && errno != EAGAIN && errno != EINTR ? s->n_unread + 1 : 0;
    if (s->n_unread == UNREAD_MAX && s->n_signals == 0) {
        s->has_unread = true;
        s->n_signals = 1;
    }
}

static void beat(server *s)
{
    weft_health__beat(s->health,
                      weft_router__all_ready(s->router) && !weft_router__is_draining(s->router));
}

static uint64_t on_idle(void *user)
{
    server *s = user;
    if (!s->was_ready && weft_router__all_ready(s->router)) {
        s->was_ready = true;
        beat(s);
        weft_notify__send(s->notify, "READY=1\nSTATUS=all models are ready");
        if (s->options->on_ready)
            s->options->on_ready(s->options->user, weft_http__port(s->http),
                                 weft_grpc__port(s->grpc), weft_http__metrics_port(s->http),
                                 weft_health__port(s->health));
    }
    /* While draining, run() checks every 5 ms whether all requests are answered. */
    return s->drain_until_ns ? 5000000 : UINT64_MAX;
}

static weft_err open_signals(server *s, weft_diag *diag)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signals < 0 || !weft_loop__watch(s->loop, s->signals, EPOLLIN, on_signal, s))
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "signalfd: %s", strerror(errno));
    return WEFT_ERR_OK;
}

static weft_err load_keys(void *user, weft_diag *diag)
{
    return weft_access__reload(user, diag);
}

static weft_err open_front(server *s, weft_diag *diag)
{
    const weft_serve_options *o = s->options;
    s->front.reload = weft_reload__create(s->loop);
    if (!s->front.reload)
        return WEFT_ERR_NOMEM;
    s->front.listings = weft_listing__open(s->loop);
    if (!s->front.listings)
        return WEFT_ERR_NOMEM;
    s->front.server_name = o->server_name;
    if (o->shared_memory && !(s->front.regions = weft_regions__open(o->shared_memory)))
        return WEFT_ERR_NOMEM;
    WEFT_TRY(weft_spans__create(o, diag, &s->front.spans));
    weft_router__set_spans(s->router, s->front.spans);
    s->keys =
        (weft_reloaded){.name = "keys", .path = {o->api_keys}, .n_path = 1, .load = load_keys};
    if (o->api_keys)
        weft_reload__look(&s->keys);
    WEFT_TRY(weft_access__create(o, s->router, diag, &s->front.access));
    s->keys.user = s->front.access;
    if (o->api_keys)
        weft_reload__add(s->front.reload, &s->keys);
    return WEFT_ERR_OK;
}

static void on_beat(void *user)
{
    server *s = user;
    beat(s);
    weft_timer__set(s->loop, &s->beat, weft_clock__now_ns() + beat_every_ns);
}

static weft_err open_health(server *s, weft_diag *diag)
{
    const weft_serve_options *o = s->options;
    WEFT_TRY(weft_health__create(o->address, &o->health, patience_ns, diag, &s->health));
    s->beat = (weft_timer){.fn = on_beat, .user = s};
    return !s->health || weft_timer__set(s->loop, &s->beat, 0) ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static weft_err open_server(server *s, weft_diag *diag)
{
    s->loop = weft_loop__create();
    if (!s->loop)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "epoll: %s", strerror(errno));
    WEFT_TRY(open_signals(s, diag));
    WEFT_TRY(weft_notify__create(s->loop, diag, &s->notify));
    WEFT_TRY(weft_deployment__open(s->options, diag, &s->effective, &s->deployment));
    s->options = &s->effective;
    WEFT_TRY(weft_router__create(s->options, s->loop, diag, &s->router));
    WEFT_TRY(weft_deployment__start(s->deployment, s->router, s->loop, diag));
    if (!s->options->keep_canary)
        WEFT_TRY(weft_rollout__start(s->router, s->deployment, s->loop, &s->rollout));
    WEFT_TRY(weft_poll__start(s->options, s->deployment, s->loop, &s->poll));
    WEFT_TRY(weft_ctl__create(s->options, s->router, s->deployment, s->loop, diag, &s->control));
    s->front.deployment = s->deployment;
    WEFT_TRY(open_health(s, diag));
    WEFT_TRY(open_front(s, diag));
    WEFT_TRY(weft_http__create(s->options, &s->front, s->router, s->loop, diag, &s->http));
    WEFT_TRY(weft_grpc__create(s->options, &s->front, s->router, s->loop, diag, &s->grpc));
    return weft_loop__idle(s->loop, on_idle, s) ? WEFT_ERR_OK : WEFT_ERR_BUG;
}

static void begin_drain(server *s)
{
    double drain_s = s->options->drain_timeout_s > 0 ? s->options->drain_timeout_s : 30;
    s->drain_until_ns = weft_clock__now_ns() + (uint64_t)(drain_s * 1e9);
    weft_notify__send(s->notify, "STOPPING=1\nSTATUS=answers the requests that it has accepted");
    weft_http__drain(s->http);
    weft_grpc__drain(s->grpc);
    weft_router__leave(s->router);
    weft_deployment__drain(s->deployment);
}

static bool is_drained(const server *s)
{
    return weft_grpc__is_closed(s->grpc) && weft_router__is_idle(s->router) &&
           weft_http__is_idle(s->http) && weft_grpc__is_idle(s->grpc);
}

/* Ends the remaining requests with 503 and waits up to last_answers_ns for those answers to be
 * sent. */
static weft_err give_up(server *s, weft_diag *diag)
{
    uint64_t until_ns = weft_clock__now_ns() + last_answers_ns;
    weft_router__give_up(s->router);
    while (!is_drained(s) && weft_clock__now_ns() < until_ns && weft_loop__turn(s->loop))
        ;
    return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0},
                           "requests were left when the drain timeout passed");
}

static weft_err run(server *s, weft_diag *diag)
{
    while (s->n_signals < 2) {
        if (!weft_loop__turn(s->loop))
            return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "epoll: %s",
                                   strerror(errno));
        const char *failure = weft_router__failure(s->router);
        if (failure && !s->was_ready)
            return weft_diag_error(
                diag, WEFT_ERR_INPUT,
                (weft_where){.file = s->options->n_bundle == 1 ? s->options->bundle->path : NULL},
                "%s", failure);
        if (s->n_signals == 1 && s->drain_until_ns == 0)
            begin_drain(s);
        /* Requests that are on their way when clients hear of the end are answered. */
        if (s->drain_until_ns && weft_grpc__is_closed(s->grpc))
            weft_router__drain(s->router);
        if (s->drain_until_ns && is_drained(s))
            return WEFT_ERR_OK;
        if (s->drain_until_ns && weft_clock__now_ns() > s->drain_until_ns)
            return give_up(s, diag);
    }
    return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "ended by a second signal");
}

weft_err weft_serve(const weft_serve_options *options, weft_diag *diag)
{
    server s = {.options = options, .signals = -1};
    s.reload = (weft_timer){.fn = read_again, .user = &s};
    weft_json__watch_memory();
    weft_log__configure(options->log_json, options->log_level);
    weft_err err = open_server(&s, diag);
    if (err == WEFT_ERR_OK)
        err = run(&s, diag);
    weft_health__destroy(s.health);
    weft_grpc__destroy(s.grpc);
    weft_http__destroy(s.http);
    weft_listing__close(s.front.listings);
    weft_access__destroy(s.front.access);
    weft_reload__destroy(s.front.reload);
    weft_ctl__destroy(s.control);
    weft_rollout__stop(s.rollout);
    weft_poll__stop(s.poll);
    weft_deployment__stop(s.deployment);
    weft_router__end_changes(s.router);
    weft_router__destroy(s.router);
    weft_deployment__close(s.deployment);
    weft_spans__destroy(s.front.spans);
    weft_regions__close(s.front.regions);
    weft_notify__destroy(s.notify);
    if (s.signals >= 0)
        close(s.signals);
    weft_loop__destroy(s.loop);
    return err;
}
