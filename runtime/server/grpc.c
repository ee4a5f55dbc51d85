/* gRPC: connections over nghttp2 (HTTP/2 with prior knowledge or, over TLS, by ALPN), driven by the
 * event loop.
 *
 * Events and callbacks only mark a connection dirty. Before the loop waits, every dirty connection
 * is flushed, and closed if it is finished; connections are closed nowhere else, so that no
 * callback uses a connection that was freed during the callback. */
#include "runtime/server/grpc_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    STREAMS_MAX = 1024,
    STREAM_WINDOW_BYTES = 16 << 20,
    CONNECTION_WINDOW_BYTES = 64 << 20,
    FRAME_MAX_BYTES = 256 << 10,
    HEADER_LIST_MAX_BYTES = 16384,
    IN_BYTES = 256 << 10,
    READ_BYTES = 64 << 10, /* at once; fewer of a connection whose bytes are much work */
    READ_BYTES_MIN = 1 << 10,
    READ_RECORDS = 32 << 10, /* over TLS: whole records only, none of which then waits unread */
    QUEUED_MAX = 4 * STREAMS_MAX, /* frames that wait to be sent: above, no more is read */
    PARTS_MAX = 256,        /* requests of streams of messages that run: above, no more is read */
    SLOW_PER_S = 256 << 10, /* bytes: above, a connection is never closed for others */
    OUT_BYTES = 256 << 10,
    OUT_CHUNK_BYTES = 32 << 10, /* more than one nghttp2_session_mem_send returns */
    TURN_READS_MAX = 16,
    TURN_WRITES_MAX = 2,
    LATE_OUT_BYTES = 64 << 10, /* in a turn that is late */
    HELD_MESSAGES_MAX = 16,
    HEAVY_NICE = 10,    /* work that takes long gives way to the loop */
    RESET_BURST = 5000, /* streams that a client may reset at once, then per second */
    RESET_RATE_PER_S = 500
};

static const uint64_t read_ns = 200000; /* of one connection in a turn */
static const uint64_t work_ns = 50000;  /* of what is read at once */
static const uint64_t hello_ns = 10000000000u;
static const uint64_t fresh_ns = 1000000000u;  /* a connection has so long to show its rate */
static const uint64_t stuck_ns = 30000000000u; /* without any output taken */
static const uint64_t scan_every_ns = 1000000000u;
static const uint64_t notice_ns = 1000000000u; /* for clients to hear that the server ends */

static void on_connection_event(void *user, uint32_t events);

/* -- Connections ---------------------------------------------------------------------------- */

static void close_later(grpc_connection *c)
{
    c->grpc->n_closing += !c->closing;
    c->closing = true;
    weft_grpc__mark_dirty(c);
}

/* Takes the connection out of the order of use, or puts it in as the one used last. */
static void unlink_connection(grpc_connection *c)
{
    *(c->prev ? &c->prev->next : &c->grpc->connections) = c->next;
    *(c->next ? &c->next->prev : &c->grpc->oldest) = c->prev;
}

static void link_connection(grpc_connection *c)
{
    weft_grpc *grpc = c->grpc;
    c->prev = NULL;
    c->next = grpc->connections;
    *(c->next ? &c->next->prev : &grpc->oldest) = c;
    grpc->connections = c;
}

/* The connection must not be in the dirty list. */
static void destroy_connection(grpc_connection *c)
{
    weft_grpc *grpc = c->grpc;
    unlink_connection(c);
    grpc->n_connection--;
    grpc->n_closing -= c->closing;
    grpc->n_leaving -= c->leaving;
    while (c->streams)
        weft_grpc__drop_stream(c->streams);
    nghttp2_session_del(c->session);
    weft_loop__unwatch(grpc->loop, c->stream.fd);
    /* TCP sends a reset instead of a FIN when unread input is left, and the client could lose
     * answers in flight. */
    weft_stream__end(&c->stream);
    for (int i = 0; i < TURN_READS_MAX; i++)
        if (recv(c->stream.fd, grpc->in, IN_BYTES, MSG_DONTWAIT) != IN_BYTES)
            break;
    weft_stream__close(&c->stream);
    c->peer->n_connection--;
    weft_peers__release(&grpc->peers, c->peer);
    free(c->rest);
    free(c);
}

static bool open_session(grpc_connection *c)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, FRAME_MAX_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX_BYTES}};
    if (nghttp2_session_server_new2(&c->session, c->grpc->callbacks, c, c->grpc->option) != 0)
        return false;
    return nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings,
                                   sizeof settings / sizeof settings[0]) == 0 &&
           nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                 CONNECTION_WINDOW_BYTES) == 0;
}

static void add_connection(weft_grpc *grpc, int fd, weft_peer *peer)
{
    int on = 1;
    grpc_connection *c = calloc(1, sizeof *c);
    uint64_t now_ns = weft_clock__now_ns();
    if (!c) {
        weft_peers__release(&grpc->peers, peer);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    *c = (grpc_connection){.grpc = grpc,
                           .peer = peer,
                           .stream = {.fd = fd},
                           .hello_deadline_ns = now_ns + hello_ns,
                           .moved_ns = now_ns,
                           .read_bytes = READ_BYTES,
                           .events = EPOLLIN | (grpc->tls ? EPOLLRDHUP : 0u)};
    if (!weft_stream__open(&c->stream, grpc->tls, fd, peer) || !open_session(c) ||
        !weft_loop__watch(grpc->loop, fd, c->events, on_connection_event, c)) {
        nghttp2_session_del(c->session);
        weft_stream__close(&c->stream);
        weft_peers__release(&grpc->peers, peer);
        free(c);
        return;
    }
    peer->n_connection++;
    link_connection(c);
    grpc->n_connection++;
    weft_grpc__mark_dirty(c);
}

/* -- Input ---------------------------------------------------------------------------------- */

/* Whether the client has to take output before more of its input is read: it could make the server
 * owe it answers and resets without end. */
static bool owes_much(const grpc_connection *c)
{
    return nghttp2_session_get_outbound_queue_size(c->session) > QUEUED_MAX;
}

/* Whether requests have to be answered first, which they are whatever the client does. */
static bool runs_much(const grpc_connection *c)
{
    return c->n_part > PARTS_MAX;
}

/* Hands over what was read, and measures: 64 KiB may be a part of one message, or a thousand calls.
 */
static bool take_bytes(grpc_connection *c, size_t n)
{
    uint64_t start_ns = weft_clock__now_ns();
    if (nghttp2_session_mem_recv(c->session, c->grpc->in, n) != (ssize_t)n)
        return false;
    uint64_t took_ns = weft_clock__now_ns() - start_ns;
    if (took_ns > work_ns && c->read_bytes > (c->stream.ssl ? READ_RECORDS : READ_BYTES_MIN))
        c->read_bytes /= 2;
    else if (took_ns < work_ns / 4 && n == c->read_bytes && c->read_bytes < READ_BYTES)
        c->read_bytes *= 2;
    return true;
}

static void on_connection_event(void *user, uint32_t events)
{
    grpc_connection *c = user;
    weft_grpc__mark_dirty(c);
    bool gone = events & (EPOLLHUP | EPOLLERR) ||
                (events & EPOLLRDHUP && weft_stream__is_fresh(&c->stream));
    if (gone && !c->closing)
        close_later(c);
    if (c->closing || (!(events & EPOLLIN) && !c->stream.read_wants_write))
        return;
    unlink_connection(c);
    link_connection(c);
    uint64_t until_ns = weft_clock__now_ns() + read_ns;
    for (int i = 0; i < TURN_READS_MAX; i++) {
        size_t most = c->read_bytes;
        ssize_t n = weft_stream__read(&c->stream, c->grpc->in, most);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        /* A half-closed connection counts as closed: no gRPC client waits for answers on one. */
        if (n <= 0 || !take_bytes(c, (size_t)n)) {
            close_later(c);
            return;
        }
        if ((size_t)n < most || owes_much(c) || runs_much(c) || weft_clock__now_ns() > until_ns ||
            weft_loop__is_late(c->grpc->loop))
            return;
    }
}

/* -- Output --------------------------------------------------------------------------------- */

/* Fills the shared buffer with frames and returns their bytes; -1: the session failed. */
static ssize_t collect(grpc_connection *c, bool is_late)
{
    uint8_t *out = c->grpc->out;
    size_t len = 0, most = is_late ? LATE_OUT_BYTES : OUT_BYTES;
    while (len + OUT_CHUNK_BYTES <= most) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(c->session, &data);
        if (n < 0 || (size_t)n > OUT_BYTES - len)
            return -1;
        if (n == 0)
            break;
        memcpy(out + len, data, (size_t)n);
        len += (size_t)n;
    }
    return (ssize_t)len;
}

/* Returns the bytes taken; 0: the socket is full; -1: it failed. */
static ssize_t send_bytes(grpc_connection *c, const uint8_t *at, size_t len)
{
    const struct iovec part = {.iov_base = (void *)at, .iov_len = len};
    ssize_t n = weft_stream__write(&c->stream, &part, 1);
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : n;
}

static bool keep_rest(grpc_connection *c, const uint8_t *at, size_t len)
{
    c->rest = malloc(len);
    if (!c->rest)
        return false;
    memcpy(c->rest, at, len);
    c->rest_len = len;
    c->rest_at = 0;
    c->rest_ns = weft_clock__now_ns();
    return true;
}

static bool send_rest(grpc_connection *c)
{
    ssize_t n = send_bytes(c, c->rest + c->rest_at, c->rest_len - c->rest_at);
    if (n < 0)
        return false;
    c->rest_at += (size_t)n;
    c->rest_ns = n > 0 ? weft_clock__now_ns() : c->rest_ns;
    if (c->rest_at == c->rest_len) {
        free(c->rest);
        c->rest = NULL;
        c->rest_at = c->rest_len = 0;
    }
    return true;
}

static bool watch_output(grpc_connection *c, bool on)
{
    on = (on && !c->stream.write_wants_read) || c->stream.read_wants_write;
    bool reads = (!on || !owes_much(c)) && !runs_much(c);
    uint32_t events = (reads ? EPOLLIN : 0u) | (on ? EPOLLOUT : 0u);
    if (weft_stream__is_fresh(&c->stream))
        events |= EPOLLRDHUP;
    if (events == c->events)
        return true;
    c->events = events;
    return weft_loop__change(c->grpc->loop, c->stream.fd, events);
}

/* Writes what the socket takes. false: the connection is finished or failed. */
static bool flush(grpc_connection *c)
{
    if (c->rest && !send_rest(c))
        return false;
    bool is_late = weft_loop__is_late(c->grpc->loop);
    for (int i = 0; !c->rest && i < (is_late ? 1 : TURN_WRITES_MAX); i++) {
        ssize_t len = collect(c, is_late);
        if (len < 0)
            return false;
        if (len == 0)
            break;
        ssize_t n = send_bytes(c, c->grpc->out, (size_t)len);
        if (n < 0 || (n < len && !keep_rest(c, c->grpc->out + n, (size_t)(len - n))))
            return false;
    }
    bool more = nghttp2_session_want_write(c->session);
    return (c->rest || more || nghttp2_session_want_read(c->session)) &&
           watch_output(c, c->rest || more);
}

/* -- Time ----------------------------------------------------------------------------------- */

static void leave_all(weft_grpc *grpc)
{
    for (grpc_connection *c = grpc->connections; c; c = c->next)
        weft_grpc__leave(c);
}

static void scan_connection(grpc_connection *c, uint64_t now_ns)
{
    if ((c->hello_deadline_ns && c->hello_deadline_ns < now_ns) ||
        (c->rest && c->rest_ns + stuck_ns < now_ns))
        close_later(c);
    if (c->settings_deadline_ns && c->settings_deadline_ns < now_ns) {
        c->settings_deadline_ns = 0;
        (void)nghttp2_session_terminate_session(c->session, NGHTTP2_SETTINGS_TIMEOUT);
        weft_grpc__mark_dirty(c);
    }
    for (grpc_stream *s = c->streams; s; s = s->next) {
        bool talks = s->state == GRPC_TALKING;
        uint64_t deadline_ns = talks ? weft_grpc__talk_deadline(s) : s->deadline_ns;
        if (s->state == GRPC_RUNNING || deadline_ns > now_ns)
            continue;
        if (s->state == GRPC_SENDING && c->rest)
            close_later(c);
        else if (talks)
            weft_grpc__expire_talk(s, now_ns);
        else if (s->state == GRPC_RECEIVING)
            weft_grpc__refuse_stream(s, WEFT_GRPC_DEADLINE_EXCEEDED,
                                     "the request arrives too slowly");
        else
            nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
        weft_grpc__mark_dirty(c);
    }
}

static void flush_dirty(weft_grpc *grpc)
{
    while (grpc->dirty) {
        grpc_connection *c = grpc->dirty;
        grpc->dirty = c->next_dirty;
        c->is_dirty = false;
        if (c->closing || !flush(c))
            destroy_connection(c);
    }
}

static uint64_t on_idle(void *user)
{
    weft_grpc *grpc = user;
    uint64_t now_ns = weft_clock__now_ns();
    weft_tls__begin_turn(grpc->tls);
    if (now_ns >= grpc->next_scan_ns) {
        grpc->next_scan_ns = now_ns + scan_every_ns;
        for (grpc_connection *c = grpc->connections; c; c = c->next)
            scan_connection(c, now_ns);
    }
    if (grpc->leave_by_ns && grpc->leave_by_ns <= now_ns)
        leave_all(grpc);
    flush_dirty(grpc);
    weft_grpc__drop_waiting(grpc); /* what is answered and taken waits no longer */
    flush_dirty(grpc);
    if (weft_tls__has_waiting(grpc->tls))
        return 0;
    if (!grpc->connections)
        return UINT64_MAX;
    return grpc->next_scan_ns > now_ns ? grpc->next_scan_ns - now_ns : 0;
}

/* -- Listening ------------------------------------------------------------------------------ */

/* Whether the connection may be closed for a new one: nothing of it runs, and it is idle, or moves
 * its messages slowly. */
static bool is_missed_least(const grpc_connection *c, uint64_t now_ns)
{
    uint64_t took_ns = now_ns - c->moved_ns;
    bool slow = took_ns > fresh_ns && (double)c->moved < (double)took_ns * 1e-9 * SLOW_PER_S;
    return !c->closing && c->n_running == 0 && (c->n_stream == 0 || slow);
}

/* Closes the least recently used one of those, if there is one. */
static bool evict(weft_grpc *grpc)
{
    uint64_t now_ns = weft_clock__now_ns();
    for (grpc_connection *c = grpc->oldest; c; c = c->prev)
        if (is_missed_least(c, now_ns)) {
            close_later(c);
            return true;
        }
    return false;
}

/* Takes a new connection, or closes it at once: an address has its share only. */
static void admit(weft_grpc *grpc, int fd, const struct sockaddr_storage *address)
{
    weft_peer *peer = weft_peers__find(&grpc->peers, address);
    if (peer &&
        !weft_peers__is_full(peer, grpc->options->max_peer_connections, grpc->max_connections)) {
        add_connection(grpc, fd, peer);
        return;
    }
    weft_peers__release(&grpc->peers, peer);
    close(fd);
}

static void on_listen_event(void *user, uint32_t events)
{
    weft_grpc *grpc = user;
    (void)events;
    for (int i = 0; i < 64; i++) {
        struct sockaddr_storage address = {0};
        bool full = false;
        if (grpc->n_connection - grpc->n_closing >= grpc->max_connections && !evict(grpc)) {
            weft_listener__pause(&grpc->listener);
            return;
        }
        int fd = weft_listener__accept(&grpc->listener, &address, &full);
        if (full)
            (void)evict(grpc);
        if (fd < 0)
            return;
        admit(grpc, fd, &address);
    }
}

/* -- Life ----------------------------------------------------------------------------------- */

static weft_err prepare(weft_grpc *grpc)
{
    grpc->in = malloc(IN_BYTES);
    grpc->out = malloc(OUT_BYTES);
    grpc->offload = weft_offload__create(grpc->loop, 0);
    grpc->heavy = weft_offload__create(grpc->loop, HEAVY_NICE);
    if (!grpc->in || !grpc->out || !grpc->offload || !grpc->heavy ||
        !weft_peers__open(&grpc->peers) || nghttp2_session_callbacks_new(&grpc->callbacks) != 0 ||
        nghttp2_option_new(&grpc->option) != 0)
        return WEFT_ERR_NOMEM;
    weft_grpc__set_callbacks(grpc->callbacks);
    nghttp2_option_set_no_closed_streams(grpc->option, 1);
    nghttp2_option_set_stream_reset_rate_limit(grpc->option, RESET_BURST, RESET_RATE_PER_S);
    return WEFT_ERR_OK;
}

static weft_err start(weft_grpc *grpc, weft_diag *diag)
{
    const weft_serve_options *o = grpc->options;
    WEFT_TRY(prepare(grpc));
    if (!weft_listen__is_on(&o->grpc))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_listen__connections(o, weft_router__worker_room(grpc->router), diag,
                                      &grpc->max_connections));
    WEFT_TRY(weft_listener__open(&grpc->listener, grpc->loop, o->address, &o->grpc, on_listen_event,
                                 grpc, diag));
    WEFT_TRY(weft_tls__create(o, "h2", grpc->max_connections, grpc->loop, grpc->front.reload, diag,
                              &grpc->tls));
    return weft_loop__idle(grpc->loop, on_idle, grpc) ? WEFT_ERR_OK : WEFT_ERR_BUG;
}

weft_err weft_grpc__create(const weft_serve_options *options, const weft_front *front,
                           weft_router *router, weft_loop *loop, weft_diag *diag, weft_grpc **out)
{
    weft_grpc *grpc = calloc(1, sizeof *grpc);
    uint64_t max = options->max_request_bytes ? options->max_request_bytes : (uint64_t)64 << 20;
    if (!grpc)
        return WEFT_ERR_NOMEM;
    /* The length in the prefix of a message has 32 bits. */
    *grpc = (weft_grpc){.options = options,
                        .front = *front,
                        .router = router,
                        .loop = loop,
                        .listener = {.port = -1},
                        .max_message = max < UINT32_MAX ? (size_t)max : UINT32_MAX};
    grpc->held_max = HELD_MESSAGES_MAX * grpc->max_message;
    weft_err err = start(grpc, diag);
    if (err != WEFT_ERR_OK) {
        weft_grpc__destroy(grpc);
        return err;
    }
    *out = grpc;
    return WEFT_ERR_OK;
}

int weft_grpc__port(const weft_grpc *grpc)
{
    return grpc->listener.port;
}

/* A GOAWAY that names no last stream, then a PING: what the client sends before it acknowledges the
 * PING, it began before it knew. The second GOAWAY follows then (RFC 9113, section 6.8). */
void weft_grpc__drain(weft_grpc *grpc)
{
    grpc->leave_by_ns = weft_clock__now_ns() + notice_ns;
    weft_listener__close(&grpc->listener);
    for (grpc_connection *c = grpc->connections; c; c = c->next) {
        if (c->hello_deadline_ns || nghttp2_submit_shutdown_notice(c->session) != 0)
            weft_grpc__leave(c);
        weft_grpc__mark_dirty(c);
    }
}

bool weft_grpc__is_closed(const weft_grpc *grpc)
{
    return grpc->n_leaving == grpc->n_connection;
}

bool weft_grpc__is_idle(const weft_grpc *grpc)
{
    if (grpc->n_running > 0 || grpc->dirty)
        return false;
    for (const grpc_connection *c = grpc->connections; c; c = c->next)
        if (c->n_stream > 0 || c->rest)
            return false;
    return true;
}

void weft_grpc__destroy(weft_grpc *grpc)
{
    if (!grpc)
        return;
    grpc->dirty = NULL;
    while (grpc->connections)
        destroy_connection(grpc->connections);
    /* Orphaned calls still refer to `grpc`: they end here. */
    if (grpc->n_running > 0)
        weft_router__give_up(grpc->router);
    weft_offload__destroy(grpc->heavy); /* its jobs free memory by the other */
    weft_offload__destroy(grpc->offload);
    weft_listener__close(&grpc->listener);
    weft_tls__destroy(grpc->tls);
    weft_peers__close(&grpc->peers);
    nghttp2_session_callbacks_del(grpc->callbacks);
    nghttp2_option_del(grpc->option);
    free(grpc->in);
    free(grpc->out);
    free(grpc);
}
