/* The HTTP transport: an API port and a metrics port on the event loop, the limits of both, and the
 * drain.
 *
 * Both ports have the same connections (http_connection.c) and routes (http_routes.c). Health
 * routes are answered on both, and by connections above the limit. */
#include "runtime/server/http_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAVY_NICE = 10, /* work that takes long gives way to the loop */
    METRICS_CONNECTIONS = 64,
    RESERVED_CONNECTIONS = 16, /* above the limit, for health routes */
    TURN_ACCEPTS = 64,
    HELD_BODIES_MAX = 16,
    HELD_BYTES_MIN = 64 << 20
};

static const uint64_t read_patience_ns = 1000000000u;

/* -- Accepting ------------------------------------------------------------------------------ */

/* Takes a new connection, or closes it at once: an address has its share only. */
static void admit(http_port *port, int fd, const struct sockaddr_storage *address)
{
    weft_http *http = port->http;
    weft_peer *peer = weft_peers__find(&http->peers, address);
    if (!peer || (port->kind == HTTP_API &&
                  weft_peers__is_full(peer, http->options->max_peer_connections, port->limit))) {
        http->counts.refused++;
        weft_peers__release(&http->peers, peer);
        close(fd);
        return;
    }
    if (port->n >= port->limit)
        (void)weft_http__evict(port);
    weft_http__add_connection(port, fd, peer);
}

static void on_listen(void *user, uint32_t events)
{
    http_port *port = user;
    (void)events;
    for (int i = 0; i < TURN_ACCEPTS; i++) {
        struct sockaddr_storage address = {0};
        bool full = false;
        if (port->n >= port->limit + RESERVED_CONNECTIONS && !weft_http__evict(port)) {
            port->http->counts.refused++;
            weft_listener__pause(&port->listener);
            return;
        }
        int fd = weft_listener__accept(&port->listener, &address, &full);
        if (full)
            (void)weft_http__evict(port);
        if (fd < 0)
            return;
        admit(port, fd, &address);
    }
}

/* -- Life ----------------------------------------------------------------------------------- */

static uint64_t on_idle(void *user)
{
    weft_http *http = user;
    weft_tls__begin_turn(http->api.tls);
    if (!http->runnable)
        return weft_tls__has_waiting(http->api.tls) ? 0 : UINT64_MAX;
    weft_http__run_runnable(http);
    /* A request may have been submitted after the router told how long to wait. */
    return 0;
}

static weft_err open_port(weft_http *http, http_port *port, unsigned kind, uint32_t limit,
                          const weft_serve_port *where, weft_diag *diag)
{
    *port = (http_port){.http = http, .kind = kind, .limit = limit, .listener = {.port = -1}};
    if (!weft_listen__is_on(where))
        return WEFT_ERR_OK;
    return weft_listener__open(&port->listener, http->loop, http->options->address, where,
                               on_listen, port, diag);
}

static weft_err start(weft_http *http, weft_diag *diag)
{
    const weft_serve_options *o = http->options;
    uint32_t limit;
    WEFT_TRY(weft_listen__connections(o, weft_router__worker_room(http->router), diag, &limit));
    http->offload = weft_offload__create(http->loop, 0);
    http->heavy = weft_offload__create(http->loop, HEAVY_NICE);
    if (!http->offload || !http->heavy || !weft_peers__open(&http->peers))
        return WEFT_ERR_NOMEM;
    WEFT_TRY(open_port(http, &http->api, HTTP_API, limit, &o->http, diag));
    WEFT_TRY(weft_tls__create(o, "http/1.1 http/1.0", limit, http->loop, http->front.reload, diag,
                              &http->api.tls));
    limit = limit < METRICS_CONNECTIONS ? limit : METRICS_CONNECTIONS;
    WEFT_TRY(open_port(http, &http->metrics, HTTP_METRICS, limit, &o->metrics, diag));
    if (weft_listen__is_on(&o->metrics)) {
        http->meters = weft_metrics__open_meters(http->router);
        http->page = weft_http__open_page();
        if (!http->meters || !http->page)
            return WEFT_ERR_NOMEM;
    }
    return weft_loop__idle(http->loop, on_idle, http) ? WEFT_ERR_OK : WEFT_ERR_BUG;
}

weft_err weft_http__create(const weft_serve_options *options, const weft_front *front,
                           weft_router *router, weft_loop *loop, weft_diag *diag, weft_http **out)
{
    weft_http *http = calloc(1, sizeof *http);
    if (!http)
        return WEFT_ERR_NOMEM;
    *http = (weft_http){.options = options,
                        .front = *front,
                        .router = router,
                        .loop = loop,
                        .relieve = weft_http__evict_slow,
                        .max_body = options->max_request_bytes ? options->max_request_bytes
                                                               : (uint64_t)64 << 20};
    /* A length in a head is at most INT64_MAX; sums of a few do not wrap. */
    if (http->max_body > INT64_MAX / HELD_BODIES_MAX)
        http->max_body = INT64_MAX / HELD_BODIES_MAX;
    http->held_max = HELD_BODIES_MAX * http->max_body;
    if (http->held_max < HELD_BYTES_MIN)
        http->held_max = HELD_BYTES_MIN;
    *out = http;
    return start(http, diag);
}

int weft_http__port(const weft_http *http)
{
    return http->api.listener.port;
}

int weft_http__metrics_port(const weft_http *http)
{
    return http->metrics.listener.port;
}

void weft_http__drain(weft_http *http)
{
    weft_listener__close(&http->api.listener);
}

bool weft_http__is_idle(const weft_http *http)
{
    const http_port *p = &http->api;
    /* A client that stopped in the middle of its body may be gone without a word. */
    bool reading = p->list[HTTP_BODY].n && weft_clock__now_ns() - http->read_ns < read_patience_ns;
    return p->list[HTTP_RUNNING].n + p->list[HTTP_SENDING].n == 0 && !reading;
}

void weft_http__destroy(weft_http *http)
{
    if (!http)
        return;
    /* Requests that the router still has are answered first. */
    if (!weft_router__is_idle(http->router))
        weft_router__give_up(http->router);
    weft_listener__close(&http->api.listener);
    weft_listener__close(&http->metrics.listener);
    weft_http__close_all(&http->api);
    weft_http__close_all(&http->metrics);
    weft_offload__destroy(http->heavy); /* its jobs free memory by the other */
    weft_offload__destroy(http->offload);
    weft_peers__close(&http->peers);
    weft_tls__destroy(http->api.tls);
    weft_metrics__close_meters(http->meters);
    weft_http__close_page(http->page);
    free(http->scrapes.last);
    free(http);
}
