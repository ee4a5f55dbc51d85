/* HTTP: libmicrohttpd driven by the event loop, one exchange for each request.
 *
 * An exchange collects the body up to a size limit and is routed when the body is whole
 * (http_routes.c). It is answered at once or, for an inference, suspended until the router calls
 * back. Answers are not chunked; errors are {"error": text}. A second daemon serves the metrics on
 * their own port. */
#include "runtime/server/http_int.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 2048,
    IDLE_TIMEOUT_S = 120,
    CONNECTION_MEMORY_BYTES = 32768,
    HELD_BODIES_MAX = 16,
    HELD_BYTES_MIN = 64 << 20
};

static const uint64_t read_patience_ns = 1000000000u, poll_every_ns = 500000000u;

/* -- Exchanges ------------------------------------------------------------------------------ */

static http_exchange *begin_exchange(weft_http *http, struct MHD_Connection *connection)
{
    http_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (http_exchange){.http = http, .connection = connection};
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    if (length && strtoull(length, NULL, 10) > http->max_body)
        weft_http__fail(x, 400, "the request is larger than %llu bytes",
                        (unsigned long long)http->max_body);
    http->n_reading++;
    http->read_ns = weft_clock__now_ns();
    return x;
}

static void end_exchange(void *user, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    weft_http *http = user;
    http_exchange *x = *state;
    (void)connection;
    (void)code;
    *state = NULL;
    if (!x)
        return;
    (*(x->routed ? &http->n_active : &http->n_reading))--;
    if (x->waiting) {
        /* The request belongs to the router: the exchange is freed when `done` is called. */
        x->connection = NULL;
        weft_router__abandon(http->router, x->infer->request);
        return;
    }
    weft_http__free_exchange(x);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **state)
{
    weft_http *http = user;
    http_exchange *x = *state;
    (void)version;
    if (!x) {
        x = begin_exchange(http, connection);
        *state = x;
        return x ? MHD_YES : MHD_NO;
    }
    if (*upload_len > 0) {
        /* The rest of a refused body is read and dropped: if the connection were closed before the
         * client has sent it, the client could lose the answer. */
        if (x->status == 0 && !weft_http__add_body(x, upload, *upload_len))
            weft_http__drop_body(x);
        http->read_ns = weft_clock__now_ns();
        *upload_len = 0;
        return MHD_YES;
    }
    if (!x->routed) {
        x->routed = true;
        http->n_reading--;
        http->n_active++;
        if (x->status == 0 && weft_http__decode_body(x))
            weft_http__route(x, method, url);
        if (x->waiting) {
            MHD_suspend_connection(connection);
            return MHD_YES;
        }
    }
    return x->waiting ? MHD_YES : weft_http__send(x);
}

static enum MHD_Result on_metrics(void *user, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **state)
{
    weft_http *http = user;
    weft_buf text = {0};
    static int seen;
    (void)version;
    (void)upload;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_len > 0) {
        *upload_len = 0;
        return MHD_YES;
    }
    bool found = strcmp(url, "/metrics") == 0 || strcmp(url, "/metrics/") == 0;
    bool get = strcmp(method, "GET") == 0;
    if (found && get) {
        weft_metrics__write(http->router, http->options->nv_metrics, &text);
        weft_metrics__write_gpus(http->meters, http->router, http->options->nv_metrics, &text);
    } else
        weft_buf_puts(&text, found ? "Method Not Allowed\n" : "Not Found\n");
    struct MHD_Response *r =
        text.failed ? NULL
                    : MHD_create_response_from_buffer(text.len, text.at, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        weft_buf_finish(&text);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    enum MHD_Result queued = MHD_queue_response(connection,
                                                found && get ? 200
                                                : found      ? 405
                                                             : 404,
                                                r);
    MHD_destroy_response(r);
    return queued;
}

/* -- Loop ----------------------------------------------------------------------------------- */

static void on_api_event(void *user, uint32_t events)
{
    weft_http *http = user;
    (void)events;
    MHD_run(http->api);
}

static void on_metrics_event(void *user, uint32_t events)
{
    weft_http *http = user;
    (void)events;
    MHD_run(http->metrics);
}

static uint64_t timeout_of(struct MHD_Daemon *daemon)
{
    MHD_UNSIGNED_LONG_LONG ms = 0;
    if (!daemon || MHD_get_timeout(daemon, &ms) != MHD_YES)
        return UINT64_MAX;
    if (ms == 0)
        MHD_run(daemon);
    return ms * 1000000u;
}

static uint64_t on_idle(void *user)
{
    weft_http *http = user;
    uint64_t now_ns = weft_clock__now_ns();
    /* When descriptors run out, libmicrohttpd stops listening until an MHD_run after a connection
     * has closed. No event leads to that call when the last connection has closed. */
    if (now_ns - http->polled_ns >= poll_every_ns) {
        http->polled_ns = now_ns;
        if (http->api)
            MHD_run(http->api);
        if (http->metrics)
            MHD_run(http->metrics);
    }
    /* MHD_get_timeout ignores resumed connections, and no event wakes the loop for them. */
    if (http->resumed) {
        http->resumed = false;
        MHD_run(http->api);
        /* MHD_run may have submitted a pipelined request after the router's idle function told how
         * long to wait: the next round must not wait. */
        return 0;
    }
    uint64_t api_ns = timeout_of(http->api), metrics_ns = timeout_of(http->metrics);
    uint64_t wait_ns = api_ns < metrics_ns ? api_ns : metrics_ns;
    return wait_ns < poll_every_ns ? wait_ns : poll_every_ns;
}

/* -- Life ----------------------------------------------------------------------------------- */

static weft_err start(weft_http *http, int port, MHD_AccessHandlerCallback handler,
                      MHD_RequestCompletedCallback completed, weft_loop_fn *on_event,
                      weft_diag *diag, struct MHD_Daemon **out)
{
    const char *address = http->options->address ? http->options->address : "127.0.0.1";
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = address},
                               "is not an IPv4 address");
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, (uint16_t)port, NULL, NULL, handler, http,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&to, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_END);
    if (!d)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "cannot listen on %s:%d: %s",
                               address, port, strerror(errno));
    *out = d;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d, MHD_DAEMON_INFO_EPOLL_FD);
    if (!info || !weft_loop__watch(http->loop, info->epoll_fd, EPOLLIN, on_event, http))
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "cannot watch port %d", port);
    return WEFT_ERR_OK;
}

static int port_of(struct MHD_Daemon *daemon)
{
    const union MHD_DaemonInfo *info =
        daemon ? MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT) : NULL;
    return info ? info->port : -1;
}

weft_err weft_http__create(const weft_serve_options *options, weft_router *router, weft_loop *loop,
                           weft_diag *diag, weft_http **out)
{
    weft_http *http = calloc(1, sizeof *http);
    weft_err err = WEFT_ERR_OK;
    if (!http)
        return WEFT_ERR_NOMEM;
    *http = (weft_http){.options = options,
                        .router = router,
                        .loop = loop,
                        .max_body = options->max_request_bytes ? options->max_request_bytes
                                                               : (uint64_t)64 << 20};
    uint64_t most = UINT64_MAX / HELD_BODIES_MAX, least = HELD_BYTES_MIN / HELD_BODIES_MAX;
    http->held_max = http->max_body > most    ? UINT64_MAX
                     : http->max_body < least ? HELD_BYTES_MIN
                                              : HELD_BODIES_MAX * http->max_body;
    *out = http;
    if (options->http_port >= 0)
        err = start(http, options->http_port, on_request, end_exchange, on_api_event, diag,
                    &http->api);
    if (err == WEFT_ERR_OK && options->metrics_port >= 0)
        err = start(http, options->metrics_port, on_metrics, NULL, on_metrics_event, diag,
                    &http->metrics);
    if (err == WEFT_ERR_OK && options->metrics_port >= 0) {
        http->meters = weft_metrics__open_meters(options);
        err = http->meters ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
    }
    if (err == WEFT_ERR_OK && !weft_loop__idle(loop, on_idle, http))
        err = WEFT_ERR_BUG;
    return err;
}

int weft_http__port(const weft_http *http)
{
    return port_of(http->api);
}

int weft_http__metrics_port(const weft_http *http)
{
    return port_of(http->metrics);
}

void weft_http__drain(weft_http *http)
{
    MHD_socket listening = http->api ? MHD_quiesce_daemon(http->api) : MHD_INVALID_SOCKET;
    if (listening != MHD_INVALID_SOCKET)
        close(listening);
}

bool weft_http__is_idle(const weft_http *http)
{
    /* A client that stopped in the middle of its body may be gone without a word. */
    bool reading = http->n_reading && weft_clock__now_ns() - http->read_ns < read_patience_ns;
    return http->n_active == 0 && !reading;
}

static void stop(weft_http *http, struct MHD_Daemon *daemon)
{
    if (!daemon)
        return;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD);
    if (info)
        weft_loop__unwatch(http->loop, info->epoll_fd);
    MHD_stop_daemon(daemon);
}

void weft_http__destroy(weft_http *http)
{
    if (!http)
        return;
    /* Suspended connections would block the stop: their requests are answered first. */
    if (http->n_active)
        weft_router__give_up(http->router);
    stop(http, http->api);
    stop(http, http->metrics);
    weft_metrics__close_meters(http->meters);
    free(http);
}
