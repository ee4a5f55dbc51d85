/* A port for probes that is answered by a thread of its own: whatever the router's loop is busy
 * with, and however many clients there are. The loop gives signs of life (weft_health__beat); live
 * means that the last one is recent, ready what it said.
 *
 * The thread has its own event loop. A connection sends one small request and is closed behind its
 * answer. The kernel keeps back connections that have sent nothing, and a request that is there is
 * answered before the next connection is accepted, so that a flood of connections does not close
 * those of probes; of slow ones the oldest is closed when there are too many. */
#include "runtime/server/http1_parse.h"
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { REQUEST_MAX = 2048, TURN_ACCEPTS = 64, DEFER_S = 1 };

static const uint64_t probe_ns = 5000000000u; /* for a request */

typedef struct probe {
    weft_health *health;
    struct probe *prev, *next; /* oldest first */
    int fd;
    weft_timer timer;
    http1_head head;
    size_t len;
    char in[REQUEST_MAX];
} probe;

struct weft_health {
    weft_loop *loop;
    weft_listener listener;
    uint64_t patience_ns;
    int stop; /* eventfd */
    bool ends;
    probe *first, *last;
    uint32_t n;
    pthread_t thread;
    bool has_thread;
    /* Of the router's loop. */
    _Atomic uint64_t beat_ns;
    _Atomic bool ready;
};

/* -- Probes --------------------------------------------------------------------------------- */

static void close_probe(probe *p)
{
    weft_health *h = p->health;
    *(p->prev ? &p->prev->next : &h->first) = p->next;
    *(p->next ? &p->next->prev : &h->last) = p->prev;
    h->n--;
    weft_timer__cancel(h->loop, &p->timer);
    weft_loop__unwatch(h->loop, p->fd);
    close(p->fd);
    free(p);
}

static bool is_path(const http1_path *path, const char *last)
{
    static const char *const first[] = {"v2", "health"};
    if (path->n != 3 || strlen(last) != path->len[2] || memcmp(path->at[2], last, path->len[2]))
        return false;
    for (int i = 0; i < 2; i++)
        if (strlen(first[i]) != path->len[i] || memcmp(path->at[i], first[i], path->len[i]))
            return false;
    return true;
}

/* Status and body of the answer to the head that was read. */
static unsigned answer(const probe *p, const char **out_body)
{
    const weft_health *h = p->health;
    char text[REQUEST_MAX];
    http1_path path;
    bool get = p->head.method == HTTP1_GET || p->head.method == HTTP1_HEAD;
    bool live = weft_clock__now_ns() - atomic_load(&h->beat_ns) < h->patience_ns;
    bool ready = live && atomic_load(&h->ready);
    const char *why =
        weft_http1__split_path(p->in + p->head.path.at, p->head.path.len, text, &path);
    *out_body = "{\"error\":\"Not Found\"}";
    if (p->head.asterisk || why || !get)
        return p->head.asterisk || why ? 400 : 405;
    if (is_path(&path, "live")) {
        *out_body = live ? "{\"live\":true}" : "{\"live\":false}";
        return live ? 200 : 503;
    }
    if (is_path(&path, "ready")) {
        *out_body = ready ? "{\"ready\":true}" : "{\"ready\":false}";
        return ready ? 200 : 400;
    }
    return 404;
}

/* The answer is so small that the socket takes it at once, or the client is gone. */
static void send_answer(const probe *p, unsigned status, const char *body)
{
    char text[256];
    const char *reason = status == 200   ? "OK"
                         : status == 404 ? "Not Found"
                         : status == 405 ? "Method Not Allowed"
                         : status == 503 ? "Service Unavailable"
                                         : "Bad Request";
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                     "%sConnection: close\r\n\r\n%s",
                     status, reason, strlen(body), status == 405 ? "Allow: GET, HEAD\r\n" : "",
                     p->head.method == HTTP1_HEAD ? "" : body);
    ssize_t sent = send(p->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
    shutdown(p->fd, SHUT_WR);
}

static void on_probe(void *user, uint32_t events)
{
    static const char bad[] = "{\"error\":\"Bad Request\"}";
    probe *p = user;
    const char *body = bad;
    unsigned status = 400;
    (void)events;
    ssize_t n = recv(p->fd, p->in + p->len, sizeof p->in - p->len, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    p->len += n > 0 ? (size_t)n : 0;
    http1_result result = n > 0 ? weft_http1__read_head(&p->head, p->in, p->len) : HTTP1_BAD;
    if (result == HTTP1_MORE && p->len < sizeof p->in)
        return;
    if (result == HTTP1_DONE)
        status = answer(p, &body);
    if (n > 0)
        send_answer(p, status, body);
    close_probe(p);
}

static void on_timer(void *user)
{
    close_probe(user);
}

static void add_probe(weft_health *h, int fd)
{
    probe *p = calloc(1, sizeof *p);
    if (!p) {
        close(fd);
        return;
    }
    p->health = h;
    p->fd = fd;
    p->timer = (weft_timer){.fn = on_timer, .user = p};
    if (!weft_loop__watch(h->loop, fd, EPOLLIN, on_probe, p)) {
        close(fd);
        free(p);
        return;
    }
    p->prev = h->last;
    *(h->last ? &h->last->next : &h->first) = p;
    h->last = p;
    h->n++;
    if (h->n > WEFT_HEALTH_PROBES_MAX)
        close_probe(h->first);
    if (!weft_timer__set(h->loop, &p->timer, weft_clock__now_ns() + probe_ns))
        close_probe(p);
    else
        on_probe(p, EPOLLIN);
}

static void on_listen(void *user, uint32_t events)
{
    weft_health *h = user;
    bool full;
    (void)events;
    for (int i = 0; i < TURN_ACCEPTS; i++) {
        int fd = weft_listener__accept(&h->listener, NULL, &full);
        if (full && h->first)
            close_probe(h->first);
        if (fd < 0)
            return;
        add_probe(h, fd);
    }
}

/* -- Life ----------------------------------------------------------------------------------- */

static void on_stop(void *user, uint32_t events)
{
    weft_health *h = user;
    (void)events;
    h->ends = true;
}

static void *answer_probes(void *user)
{
    weft_health *h = user;
    while (!h->ends && weft_loop__turn(h->loop))
        ;
    return NULL;
}

/* On UNIX sockets this does nothing. */
static void defer_accept(const weft_listener *l)
{
    const int s = DEFER_S;
    for (uint32_t i = 0; i < l->n; i++)
        setsockopt(l->fd[i], IPPROTO_TCP, TCP_DEFER_ACCEPT, &s, sizeof s);
}

static bool start_thread(weft_health *h)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->has_thread = pthread_create(&h->thread, NULL, answer_probes, h) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return h->has_thread;
}

weft_err weft_health__create(const char *address, const weft_serve_port *where,
                             uint64_t patience_ns, weft_diag *diag, weft_health **out)
{
    *out = NULL;
    if (!weft_listen__is_on(where))
        return WEFT_ERR_OK;
    weft_health *h = calloc(1, sizeof *h);
    if (!h)
        return WEFT_ERR_NOMEM;
    h->patience_ns = patience_ns;
    h->listener.port = -1;
    h->stop = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    h->loop = weft_loop__create();
    weft_err err =
        h->stop >= 0 && h->loop && weft_loop__watch(h->loop, h->stop, EPOLLIN, on_stop, h)
            ? WEFT_ERR_OK
            : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK)
        err = weft_listener__open(&h->listener, h->loop, address, where, on_listen, h, diag);
    if (err == WEFT_ERR_OK)
        defer_accept(&h->listener);
    weft_health__beat(h, false);
    if (err == WEFT_ERR_OK && !start_thread(h))
        err = WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK) {
        weft_health__destroy(h);
        return err;
    }
    *out = h;
    return WEFT_ERR_OK;
}

int weft_health__port(const weft_health *h)
{
    return h ? h->listener.port : -1;
}

void weft_health__beat(weft_health *h, bool ready)
{
    if (!h)
        return;
    atomic_store(&h->ready, ready);
    atomic_store(&h->beat_ns, weft_clock__now_ns());
}

void weft_health__destroy(weft_health *h)
{
    const uint64_t one = 1;
    if (!h)
        return;
    if (h->has_thread) {
        ssize_t written = write(h->stop, &one, sizeof one);
        (void)written; /* a new eventfd takes it */
        pthread_join(h->thread, NULL);
    }
    while (h->first)
        close_probe(h->first);
    if (h->loop)
        weft_listener__close(&h->listener);
    if (h->stop >= 0) {
        if (h->loop)
            weft_loop__unwatch(h->loop, h->stop);
        close(h->stop);
    }
    weft_loop__destroy(h->loop);
    free(h);
}
