/* The control socket: one JSON object a line each way, over a UNIX socket of mode 0600; requests of
 * a connection are answered in order (control_requests.c).
 *
 * Input is bounded: lines of 4 MiB, 16 connections (above, the one used longest ago is closed).
 * What a client does not read waits in memory only for the one answer that is being written. */
#include "runtime/server/control_requests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 16,
    LINE_BYTES_MAX = 4 << 20,
    READ_BYTES = 65536,
    TURN_LINES = 16 /* of one connection, in one turn of the loop */
};

typedef struct connection {
    weft_ctl *control;
    int fd; /* -1: free */
    char *in;
    size_t n_in;
    char *out;
    size_t n_out, at_out;
    uint64_t used_ns;
} connection;

struct weft_ctl {
    ctl_service service;
    weft_loop *loop;
    weft_listener listener;
    connection at[CONNECTIONS_MAX];
};

/* -- Connections ------------------------------------------------------------------------------ */

static void close_connection(connection *at)
{
    if (at->fd < 0)
        return;
    weft_loop__unwatch(at->control->loop, at->fd);
    close(at->fd);
    free(at->in);
    free(at->out);
    *at = (connection){.control = at->control, .fd = -1};
}

/* Writes what the socket takes. false: the client is gone. */
static bool write_out(connection *at)
{
    while (at->at_out < at->n_out) {
        ssize_t n =
            send(at->fd, at->out + at->at_out, at->n_out - at->at_out, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0)
            at->at_out += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return weft_loop__change(at->control->loop, at->fd, EPOLLOUT);
        else if (errno != EINTR)
            return false;
    }
    free(at->out);
    at->out = NULL;
    at->n_out = at->at_out = 0;
    return weft_loop__change(at->control->loop, at->fd, EPOLLIN);
}

/* Answers the line of `len` bytes at the start of the input. false: the client is gone. */
static bool answer_line(connection *at, size_t len)
{
    char *text = weft_ctl__answer(&at->control->service, at->in, len);
    at->n_in -= len + 1;
    memmove(at->in, at->in + len + 1, at->n_in);
    if (!text)
        return false;
    at->n_out = strlen(text);
    at->at_out = 0;
    at->out = realloc(text, at->n_out + 2);
    if (!at->out) {
        free(text);
        return false;
    }
    at->out[at->n_out++] = '\n';
    return write_out(at);
}

/* Reads what has come, up to one line more than can be answered. false: the client is gone, or its
 * line is too long. */
static bool read_in(connection *at)
{
    char *more = realloc(at->in, at->n_in + READ_BYTES);
    if (!more)
        return false;
    at->in = more;
    ssize_t n = recv(at->fd, at->in + at->n_in, READ_BYTES, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    at->n_in += n > 0 ? (size_t)n : 0;
    return n > 0 && at->n_in <= LINE_BYTES_MAX + (size_t)READ_BYTES;
}

static void on_event(void *user, uint32_t events)
{
    connection *at = user;
    char *end = NULL;
    bool alive = (events & (EPOLLERR | EPOLLHUP)) == 0 || !at->out;
    at->used_ns = weft_clock__now_ns();
    if (alive && at->out)
        alive = write_out(at);
    else if (alive && !(events & EPOLLOUT))
        alive = read_in(at);
    for (int n = 0; alive && !at->out && at->n_in > 0; n++) {
        end = memchr(at->in, '\n', at->n_in);
        if (!end)
            alive = at->n_in <= LINE_BYTES_MAX;
        if (!end || n == TURN_LINES)
            break;
        alive = answer_line(at, (size_t)(end - at->in));
    }
    if (alive && !at->out && at->n_in > 0 && end) /* the rest in the next turn */
        alive = weft_loop__change(at->control->loop, at->fd, EPOLLOUT);
    if (!alive)
        close_connection(at);
}

/* A place for a connection: a free one, or that of the connection used longest ago. */
static connection *make_place(weft_ctl *c)
{
    connection *oldest = &c->at[0];
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (c->at[i].fd < 0)
            return &c->at[i];
        if (c->at[i].used_ns < oldest->used_ns)
            oldest = &c->at[i];
    }
    close_connection(oldest);
    return oldest;
}

static void on_connection(void *user, uint32_t events)
{
    weft_ctl *c = user;
    bool full;
    (void)events;
    int fd = weft_listener__accept(&c->listener, NULL, &full);
    if (fd < 0)
        return;
    connection *at = make_place(c);
    *at = (connection){.control = c, .fd = fd, .used_ns = weft_clock__now_ns()};
    if (!weft_loop__watch(c->loop, fd, EPOLLIN, on_event, at)) {
        close(fd);
        at->fd = -1;
    }
}

/* -- Life ------------------------------------------------------------------------------------- */

weft_err weft_ctl__create(const weft_serve_options *options, weft_router *router,
                          struct weft_deployment *deployment, weft_loop *loop, weft_diag *diag,
                          weft_ctl **out)
{
    *out = NULL;
    if (!options->control.path)
        return WEFT_ERR_OK;
    weft_ctl *c = calloc(1, sizeof *c);
    if (!c)
        return WEFT_ERR_NOMEM;
    const weft_serve_port where = {.port = -1, .path = options->control.path, .is_private = true};
    *c = (weft_ctl){.service = {.options = options, .router = router, .deployment = deployment},
                    .loop = loop};
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        c->at[i] = (connection){.control = c, .fd = -1};
    weft_err err = weft_listener__open(&c->listener, loop, NULL, &where, on_connection, c, diag);
    if (err != WEFT_ERR_OK) {
        weft_listener__close(&c->listener);
        free(c);
        return err;
    }
    *out = c;
    return WEFT_ERR_OK;
}

void weft_ctl__destroy(weft_ctl *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        close_connection(&c->at[i]);
    weft_listener__close(&c->listener);
    free(c->service.note);
    free(c);
}
