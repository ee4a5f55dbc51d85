/* A connection as a state machine: head, body, router, answer, and the next request.
 *
 * advance() takes as many steps as the bytes at hand allow. It is called when bytes have arrived or
 * can be sent, when the router has answered, and when a connection had more to do than one turn
 * allows. A connection is freed only there, after its last step, or by close_connection() when no
 * step is under way.
 *
 * The next head is read when the answer before is sent. Until then bytes of pipelined requests stay
 * in the kernel, apart from those that came with the head. */
#include "runtime/server/http_conn_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TURN_STEPS_MAX = 8, /* of one connection: two to a request */
    TURN_READS_MAX = 8,
    LAST_READS_MAX = 64, /* when the server ends */
    TURN_SENT_MAX = 1 << 20,
    LATE_SENT_MAX = 64 << 10, /* in a turn that is late */
    LATE_READ_MAX = 4 << 10,  /* of a head or of chunks, which may be of a byte each */
    LATE_BODY_MAX = 16 << 10,
    READ_MAX = 64 << 10,   /* of a body, at once */
    DROP_MAX = 64 << 10,   /* rest of a refused body for which the connection is kept */
    LINGER_MAX = 64 << 20, /* bytes dropped after the last answer */
    EVICTIONS_MAX = 64     /* for one body */
};

static const uint64_t linger_more_ns = 2000000000u, linger_longest_ns = 10000000000u;
static const uint64_t turn_ns = 2000000; /* for pipelined requests */
static const uint64_t read_ns = 200000;  /* for bodies */
static const uint64_t first_head_ns = 10000000000u;

static void advance(http_connection *c);
static void receive(http_connection *c);

/* -- End ------------------------------------------------------------------------------------ */

static void drop_exchange(http_connection *c)
{
    http_exchange *x = c->x;
    c->x = NULL;
    if (!x)
        return;
    if (!x->waiting) {
        weft_http__free_exchange(x);
        return;
    }
    weft_http__abandon(x);
}

static void add_runnable(http_connection *c)
{
    weft_http *http = c->http;
    if (c->runnable)
        return;
    c->runnable = true;
    c->next_runnable = NULL;
    *(http->runnable ? &http->last_runnable->next_runnable : &http->runnable) = c;
    http->last_runnable = c;
    http->n_runnable++;
}

static void remove_runnable(http_connection *c)
{
    weft_http *http = c->http;
    http_connection *before = NULL, *at = http->runnable;
    if (!c->runnable)
        return;
    for (; at != c; at = at->next_runnable)
        before = at;
    *(before ? &before->next_runnable : &http->runnable) = c->next_runnable;
    if (http->last_runnable == c)
        http->last_runnable = before;
    http->n_runnable--;
    c->runnable = false;
}

/* Frees the connection, or leaves that to advance() where it is running. */
static void close_connection(http_connection *c)
{
    weft_http *http = c->http;
    c->closing = true;
    if (c->advancing)
        return;
    c->advancing = true; /* nothing below advances it again */
    drop_exchange(c);
    remove_runnable(c);
    weft_timer__cancel(http->loop, &c->timer);
    weft_loop__unwatch(http->loop, c->stream.fd);
    weft_stream__close(&c->stream);
    weft_http__unlink(c);
    c->port->n--;
    if (c->peer)
        c->peer->n_connection--;
    weft_peers__release(&http->peers, c->peer);
    free(c->kept);
    free(c);
}

/* Closes with a reset, so that the kernel drops what the client does not read. */
static void reset(http_connection *c)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->stream.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close_connection(c);
}

bool weft_http__evict(http_port *port)
{
    http_connection *c = weft_http__least_missed(port);
    if (!c)
        return false;
    port->http->counts.evicted++;
    if (c->state == HTTP_IDLE)
        close_connection(c);
    else
        reset(c);
    return true;
}

void weft_http__evict_slow(weft_http *http, uint64_t bytes)
{
    uint64_t until = bytes < http->held_bytes ? http->held_bytes - bytes : 0;
    http_connection *c;
    /* Small ones are left: closing many of them would take long and free little. */
    while (http->held_bytes > until &&
           (c = weft_http__slowest(&http->api, bytes / EVICTIONS_MAX + 1))) {
        http->counts.evicted++;
        reset(c);
    }
}

/* -- Answer --------------------------------------------------------------------------------- */

static void start_answer(http_connection *c)
{
    http_exchange *x = c->x;
    if (weft_router__is_draining(c->http->router)) {
        c->lingers = c->lingers || !c->ends;
        c->ends = true;
    }
    const char *option = c->ends ? "close" : c->head.minor == 0 ? "keep-alive" : "";
    c->out_len = weft_http__write_head(x, option, c->out, sizeof c->out);
    c->sent = 0;
    weft_http__enter(c, HTTP_SENDING);
    if (c->out_len == 0)
        c->closing = true;
}

/* Bytes of the body that are sent. */
static size_t body_bytes(const http_exchange *x)
{
    return x->method == HTTP1_HEAD || !x->reply ? 0 : x->reply_len;
}

/* Answers an error and ends the connection: the bytes that follow belong to no request. */
static void refuse(http_connection *c, unsigned status, const char *text)
{
    if (!c->x)
        c->x = weft_http__begin_error(c, status, text);
    else
        weft_http__fail(c->x, status, "%s", text);
    c->ends = c->lingers = true;
    c->in_len = 0;
    if (c->x)
        start_answer(c);
    else
        c->closing = true;
}

/* false: the socket takes no more for now, or failed, or the rest of a large answer is for the next
 * turn. */
static bool send_answer(http_connection *c)
{
    const http_exchange *x = c->x;
    size_t body_len = body_bytes(x), most = TURN_SENT_MAX;
    if (body_len > LATE_SENT_MAX && weft_loop__is_late(c->http->loop))
        most = LATE_SENT_MAX;
    size_t until = c->sent + most;
    while (c->sent < c->out_len + body_len) {
        if (c->sent >= until)
            return false;
        size_t in_body = c->sent > c->out_len ? c->sent - c->out_len : 0;
        struct iovec part[2] = {{.iov_base = c->out + c->sent, .iov_len = c->out_len - c->sent},
                                {.iov_base = x->reply, .iov_len = body_len}};
        int first = c->sent >= c->out_len; /* 1: the head is sent */
        if (first)
            part[1] = (struct iovec){.iov_base = x->reply + in_body, .iov_len = body_len - in_body};
        if (part[1].iov_len > most)
            part[1].iov_len = most;
        ssize_t n = weft_stream__write(&c->stream, part + first, 2 - first);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->closing = errno != EAGAIN && errno != EWOULDBLOCK;
            return false;
        }
        c->sent += (size_t)n;
        weft_http__count_bytes(c, (size_t)n);
    }
    return true;
}

/* The answer is sent. */
static void end_answer(http_connection *c)
{
    c->http->counts.requests++;
    weft_http__log(c->x);
    drop_exchange(c);
    c->served = true;
    c->head = (http1_head){0};
    if (!c->ends) {
        weft_http__enter(c, HTTP_IDLE);
    } else if (c->lingers || c->in_len) {
        /* Closed now, the kernel would send a reset for the bytes that were not read, and the
         * client could lose the answer. */
        weft_stream__end(&c->stream);
        weft_http__enter(c, HTTP_LINGERING);
    } else
        c->closing = true;
}

/* -- Request -------------------------------------------------------------------------------- */

static void on_answered(http_exchange *x)
{
    http_connection *c = x->connection;
    start_answer(c);
    advance(c);
}

/* The body is whole. */
static void run_exchange(http_connection *c)
{
    http_exchange *x = c->x;
    x->resume = on_answered;
    if (x->status == 0)
        weft_http__run(x);
    if (x->waiting)
        weft_http__enter(c, HTTP_RUNNING);
    else
        start_answer(c);
}

/* The request has its error before its body is whole. A short rest is read and dropped, so that the
 * connection can be kept. false: the error is answered now. */
static bool drops_rest(http_connection *c)
{
    bool comes = !c->head.expects_continue || c->in_len;
    weft_http__drop_body(c->x);
    if (!c->head.chunked && c->left <= DROP_MAX && comes)
        return true;
    c->ends = c->lingers = true;
    start_answer(c);
    return false;
}

static void ask_for_body(http_connection *c)
{
    static char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const struct iovec part = {.iov_base = text, .iov_len = sizeof text - 1};
    /* The socket is empty: all answers before are sent. If it takes nothing, the client sends the
     * body after a while without being asked. */
    ssize_t n = weft_stream__write(&c->stream, &part, 1);
    if (n != (ssize_t)part.iov_len && (n >= 0 || c->stream.ssl || errno != EAGAIN))
        c->closing = true; /* a part is sent, or kept by TLS */
}

/* A head is whole. */
static void begin_request(http_connection *c)
{
    http_exchange *x = c->x = weft_http__begin_exchange(c);
    bool has_body = c->head.chunked || c->head.length;
    c->in += c->head.size;
    c->in_len -= c->head.size;
    c->ends = !c->head.keep_alive;
    c->lingers = false;
    c->left = c->head.length;
    c->chunks = (http1_chunks){.limit = c->http->max_body};
    if (!x) {
        c->closing = true;
        return;
    }
    if (c->reserved)
        c->ends = true;
    if (!has_body) {
        run_exchange(c);
        return;
    }
    if (x->status && !drops_rest(c))
        return;
    weft_http__enter(c, HTTP_BODY);
    if (!x->status && c->head.expects_continue && !c->in_len)
        ask_for_body(c);
}

static bool step_head(http_connection *c)
{
    if (c->in_len == 0)
        return false;
    switch (weft_http1__read_head(&c->head, c->in, c->in_len)) {
    case HTTP1_MORE:
        if (c->state == HTTP_IDLE)
            weft_http__enter(c, HTTP_HEAD);
        return false;
    case HTTP1_BAD:
        c->http->counts.malformed++;
        refuse(c, c->head.status, c->head.error);
        return true;
    default:
        begin_request(c);
        return true;
    }
}

/* Adds bytes of the body, or drops them if the request has its error. false: it was answered. */
static bool take_body(http_connection *c, const char *at, size_t len)
{
    http_exchange *x = c->x;
    return x->status || weft_http__add_body(x, at, len) || drops_rest(c);
}

static bool step_length(http_connection *c)
{
    size_t n = c->in_len < c->left ? c->in_len : (size_t)c->left;
    const char *at = c->in;
    c->in += n;
    c->in_len -= n;
    c->left -= n;
    if (n && !take_body(c, at, n))
        return true;
    if (c->left)
        return false;
    run_exchange(c);
    return true;
}

static bool step_chunks(http_connection *c)
{
    while (c->in_len) {
        size_t used = 0, len = 0;
        const char *at;
        http1_result result =
            weft_http1__read_chunk(&c->chunks, c->in, c->in_len, &used, &at, &len);
        c->in += used;
        c->in_len -= used;
        if (len && !take_body(c, at, len))
            return true;
        if (result == HTTP1_DONE) {
            run_exchange(c);
            return true;
        }
        if (result == HTTP1_BAD && c->chunks.status == 413) {
            weft_http__fail_size(c->x);
            drops_rest(c);
            return true;
        }
        if (result == HTTP1_BAD) {
            c->http->counts.malformed++;
            refuse(c, c->chunks.status, c->chunks.error);
            return true;
        }
    }
    return false;
}

/* -- Steps ---------------------------------------------------------------------------------- */

/* false: the connection waits. */
static bool step(http_connection *c)
{
    if (c->closing)
        return false;
    switch (c->state) {
    case HTTP_IDLE:
    case HTTP_HEAD:
        return step_head(c);
    case HTTP_BODY:
        return c->head.chunked ? step_chunks(c) : step_length(c);
    case HTTP_SENDING:
        if (!send_answer(c))
            return false;
        end_answer(c);
        return true;
    case HTTP_LINGERING:
        c->in_len = 0;
        return false;
    default:
        return false;
    }
}

/* Keeps the bytes that are left for the next time. */
static void keep_input(http_connection *c)
{
    if (c->in_len == 0) {
        free(c->kept);
        c->kept = NULL;
        c->in = NULL;
        return;
    }
    if (!c->kept)
        c->kept = malloc(HTTP1_HEAD_MAX);
    if (!c->kept) {
        c->closing = true;
        return;
    }
    memmove(c->kept, c->in, c->in_len);
    c->in = c->kept;
}

/* EPOLLIN stays on while the router works: turned off only for clients that send meanwhile, it
 * costs most requests no system call. */
static void watch(http_connection *c)
{
    uint32_t events = c->state == HTTP_SENDING   ? EPOLLOUT
                      : c->state == HTTP_RUNNING ? c->events & (EPOLLIN | EPOLLRDHUP)
                                                 : EPOLLIN | EPOLLRDHUP;
    /* TLS may have to write before it can read, and the reverse. */
    if (c->stream.read_wants_write)
        events |= EPOLLOUT;
    if (c->stream.write_wants_read && c->state == HTTP_SENDING)
        events = EPOLLIN;
    if (events == 0)
        events = EPOLLRDHUP;
    if (events == c->events)
        return;
    c->events = events;
    if (!weft_loop__change(c->http->loop, c->stream.fd, events))
        c->closing = true;
}

/* Whether bytes of the client are waited for. */
static bool is_reading(const http_connection *c)
{
    return c->state == HTTP_IDLE || c->state == HTTP_HEAD || c->state == HTTP_BODY;
}

static void advance(http_connection *c)
{
    int n = 0;
    if (c->advancing)
        return;
    c->advancing = true;
    while (n < TURN_STEPS_MAX && step(c))
        n++;
    if (!c->closing)
        keep_input(c);
    if (!c->closing)
        watch(c);
    c->advancing = false;
    if (c->closing)
        close_connection(c);
    else if (n == TURN_STEPS_MAX || (is_reading(c) && weft_stream__has_pending(&c->stream)))
        add_runnable(c);
}

void weft_http__run_runnable(weft_http *http)
{
    uint64_t until_ns = weft_clock__now_ns() + turn_ns;
    for (uint32_t n = http->n_runnable; n && http->runnable; n--) {
        if (weft_clock__now_ns() > until_ns)
            break;
        http_connection *c = http->runnable;
        remove_runnable(c);
        if (is_reading(c) && weft_stream__has_pending(&c->stream)) {
            c->advancing = true;
            receive(c);
            c->advancing = false;
        }
        advance(c);
    }
}

/* -- Events --------------------------------------------------------------------------------- */

/* Whether the connection goes on after recv() returned n. */
static bool took(http_connection *c, ssize_t n)
{
    if (n > 0) {
        weft_http__count_bytes(c, (size_t)n);
        if (c->state == HTTP_BODY)
            c->http->read_ns = weft_clock__now_ns();
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        c->closing = true;
    return false;
}

/* Receives into the body itself. false: nothing more for now, or the exchange has its error. */
static bool receive_body(http_connection *c)
{
    http_exchange *x = c->x;
    size_t room = 0;
    uint64_t most = weft_loop__is_late(c->http->loop) ? LATE_BODY_MAX : READ_MAX;
    uint64_t want = c->left < most ? c->left : most;
    if (!weft_http__body_room(x, want, &room)) {
        drops_rest(c);
        return false;
    }
    ssize_t n = weft_stream__read(&c->stream, x->body + x->len, room);
    if (!took(c, n))
        return false;
    x->len += (size_t)n;
    c->left -= (uint64_t)n;
    return c->left > 0 && (size_t)n == room && most == READ_MAX;
}

/* Memory that is used for the first time makes this slow: a connection has a short time in a turn.
 */
static void receive_bodies(http_connection *c)
{
    uint64_t until_ns = weft_clock__now_ns() + read_ns;
    for (int i = 0; i < TURN_READS_MAX && receive_body(c); i++)
        if (weft_clock__now_ns() > until_ns)
            return;
}

static void receive_input(http_connection *c)
{
    size_t have = c->in_len, room = HTTP1_HEAD_MAX - have;
    char *to = c->kept ? c->kept + have : c->http->scratch;
    if (room == 0)
        return;
    if (room > LATE_READ_MAX && weft_loop__is_late(c->http->loop))
        room = LATE_READ_MAX;
    ssize_t n = weft_stream__read(&c->stream, to, room);
    if (!took(c, n))
        return;
    if (!c->kept)
        c->in = c->http->scratch;
    c->in_len += (size_t)n;
}

static void drop_input(http_connection *c)
{
    uint64_t now_ns = weft_clock__now_ns();
    for (int i = 0; i < TURN_READS_MAX; i++) {
        ssize_t n = recv(c->stream.fd, c->http->scratch, sizeof c->http->scratch, 0);
        if (!took(c, n))
            return;
        c->lingered += (uint64_t)n;
        if (weft_loop__is_late(c->http->loop))
            break;
    }
    if (c->lingered > LINGER_MAX || now_ns - c->since_ns > linger_longest_ns)
        c->closing = true;
    else
        weft_timer__set(c->http->loop, &c->timer, now_ns + linger_more_ns);
}

static void receive(http_connection *c)
{
    if (c->state == HTTP_LINGERING)
        drop_input(c);
    else if (c->state == HTTP_BODY && !c->head.chunked && !c->in_len && !c->x->status)
        receive_bodies(c);
    else
        receive_input(c);
}

static void on_event(void *user, uint32_t events)
{
    http_connection *c = user;
    bool gone = events & (EPOLLERR | EPOLLHUP) ||
                (events & EPOLLRDHUP && weft_stream__is_fresh(&c->stream));
    if (c->state == HTTP_RUNNING && !gone) {
        /* A client that has closed its side counts as gone: most have given up, and a queue of such
         * requests would delay those of others. Bytes of a pipelined request wait. */
        gone = events & EPOLLRDHUP;
        c->events = EPOLLRDHUP;
        gone = gone || !weft_loop__change(c->http->loop, c->stream.fd, c->events);
    } else if (!gone && c->state != HTTP_SENDING) {
        c->advancing = true;
        receive(c);
        c->advancing = false;
    }
    if (gone)
        close_connection(c);
    else
        advance(c);
}

static void on_timer(void *user)
{
    http_connection *c = user;
    if (weft_http__is_fast_enough(c))
        return;
    if (c->state == HTTP_IDLE || c->state == HTTP_LINGERING) {
        close_connection(c);
        return;
    }
    c->http->counts.timeouts++;
    if (c->state == HTTP_SENDING) {
        reset(c);
        return;
    }
    if (c->x)
        weft_http__drop_body(c->x);
    refuse(c, 408, "the request arrives too slowly");
    advance(c);
}

/* -- Life ----------------------------------------------------------------------------------- */

void weft_http__add_connection(http_port *port, int fd, weft_peer *peer)
{
    int on = 1;
    weft_http *http = port->http;
    http_connection *c = calloc(1, sizeof *c);
    weft_stream stream = {.fd = fd};
    if (!c || !weft_stream__open(&stream, port->tls, fd, peer) ||
        !weft_loop__watch(http->loop, fd, EPOLLIN | EPOLLRDHUP, on_event, c)) {
        weft_peers__release(&http->peers, peer);
        weft_stream__close(&stream);
        free(c);
        return;
    }
    /* On UNIX sockets these do nothing. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    uint64_t now_ns = weft_clock__now_ns();
    *c = (http_connection){.http = http,
                           .port = port,
                           .peer = peer,
                           .stream = stream,
                           .state = HTTP_IDLE,
                           .timer = {.fn = on_timer, .user = c},
                           .since_ns = now_ns,
                           .events = EPOLLIN | EPOLLRDHUP};
    weft_http__link(c);
    port->n++;
    c->reserved = port->n > port->limit;
    if (peer)
        peer->n_connection++;
    http->counts.connections++;
    if (!weft_timer__set(http->loop, &c->timer, now_ns + first_head_ns)) {
        close_connection(c);
        return;
    }
    /* Most clients have sent their request already. Handshakes wait for their turn behind those of
     * connections that came before: a turn has a short time for all. */
    if (!c->stream.ssl)
        on_event(c, EPOLLIN);
}

void weft_http__close_all(http_port *port)
{
    for (int s = 0; s < HTTP_STATES; s++)
        while (port->list[s].first) {
            http_connection *c = port->list[s].first;
            /* A reset instead of a FIN could destroy answers in flight. */
            weft_stream__end(&c->stream);
            for (int i = 0; i < LAST_READS_MAX; i++)
                if (recv(c->stream.fd, port->http->scratch, sizeof port->http->scratch,
                         MSG_DONTWAIT) != (ssize_t)sizeof port->http->scratch)
                    break;
            close_connection(c);
        }
}
