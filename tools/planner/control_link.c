/* Requests and answers over a control socket. Reads and writes do not block longer than asked. */
#include "tools/planner/control_link.h"

#include "tools/common/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 64 << 20, READ_BYTES = 65536 };

/* -- The connection --------------------------------------------------------------------------- */

static weft_err connect_to(const char *path, weft_diag *diag, int *out)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const weft_where where = {.file = path};
    if (strlen(path) >= sizeof to.sun_path)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "path of a socket is too long");
    strcpy(to.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        weft_err err =
            weft_diag_error(diag, WEFT_ERR_IO, where, "cannot connect: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    *out = fd;
    return WEFT_ERR_OK;
}

weft_err weft_link_open(const char *path, int fd, weft_diag *diag, weft_control_link *out)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof name;
    if (path)
        WEFT_TRY(connect_to(path, diag, &fd));
    else if (getsockname(fd, (struct sockaddr *)&name, &len) != 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "descriptor %d is no socket: %s",
                               fd, strerror(errno));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *out = (weft_control_link){.fd = fd};
    return WEFT_ERR_OK;
}

void weft_link_close(weft_control_link *link)
{
    free(link->at);
    if (link->fd >= 0)
        close(link->fd);
    *link = (weft_control_link){.fd = -1};
}

/* -- Lines ------------------------------------------------------------------------------------ */

/* Waits for an event; false: the time is over. */
static bool wait_for(int fd, short events, double until_ms)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double left_ms = until_ms - weft_tool_now_ms();
        int n = poll(&p, 1, left_ms > 0 ? (int)fmin(left_ms + 1, 1e9) : 0);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

static weft_link_end fail(weft_diag *diag, const char *text)
{
    (void)weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0}, "control socket: %s", text);
    return WEFT_LINK_FAILED;
}

static weft_link_end send_line(weft_control_link *link, const char *text, size_t len,
                               double until_ms, weft_diag *diag)
{
    while (len > 0) {
        ssize_t n = send(link->fd, text, len, MSG_NOSIGNAL);
        if (n > 0) {
            text += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(link->fd, POLLOUT, until_ms))
                return fail(diag, "the router takes no request");
        } else if (errno != EINTR) {
            return WEFT_LINK_CLOSED;
        }
    }
    return WEFT_LINK_OK;
}

/* Reads until a line is complete; *out: its length, the newline included. */
static weft_link_end read_line(weft_control_link *link, double until_ms, weft_diag *diag,
                               size_t *out)
{
    size_t seen = 0;
    for (;;) {
        char *end = link->len > seen ? memchr(link->at + seen, '\n', link->len - seen) : NULL;
        if (end) {
            *out = (size_t)(end - link->at) + 1;
            return WEFT_LINK_OK;
        }
        seen = link->len;
        if (link->len >= LINE_MAX_BYTES)
            return fail(diag, "an answer of over 64 MiB");
        if (link->cap - link->len < READ_BYTES) {
            char *more = realloc(link->at, link->cap * 2 + READ_BYTES);
            if (!more)
                return fail(diag, "no memory for an answer");
            link->at = more;
            link->cap = link->cap * 2 + READ_BYTES;
        }
        ssize_t n = recv(link->fd, link->at + link->len, READ_BYTES, 0);
        if (n > 0)
            link->len += (size_t)n;
        else if (n == 0)
            return WEFT_LINK_CLOSED;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(link->fd, POLLIN, until_ms))
                return fail(diag, "the router does not answer");
        } else if (errno != EINTR)
            return WEFT_LINK_CLOSED;
    }
}

weft_link_end weft_link_call(weft_control_link *link, json_t *request, double timeout_s,
                             weft_diag *diag, json_t **out)
{
    double until_ms = weft_tool_now_ms() + timeout_s * 1e3;
    size_t len;
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    if (!text)
        return fail(diag, "no memory for a request");
    weft_link_end end = send_line(link, text, strlen(text), until_ms, diag);
    free(text);
    if (end == WEFT_LINK_OK)
        end = send_line(link, "\n", 1, until_ms, diag);
    if (end == WEFT_LINK_OK)
        end = read_line(link, until_ms, diag, &len);
    if (end != WEFT_LINK_OK)
        return end;
    json_t *answer = json_loadb(link->at, len, JSON_REJECT_DUPLICATES, NULL);
    link->len -= len;
    memmove(link->at, link->at + len, link->len);
    if (!json_is_object(answer)) {
        json_decref(answer);
        return fail(diag, "an answer that is no JSON object");
    }
    *out = answer;
    return WEFT_LINK_OK;
}

bool weft_link_sleep(weft_control_link *link, double seconds)
{
    char byte;
    double until_ms = weft_tool_now_ms() + seconds * 1e3;
    /* Between requests the router says nothing: what can be read is its end. */
    if (!wait_for(link->fd, POLLIN, until_ms))
        return true;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

/* -- Answers ---------------------------------------------------------------------------------- */

bool weft_link_is_ok(const json_t *answer, const char **out_error)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    *out_error = error ? error : "the router gives no reason";
    return json_is_true(json_object_get(answer, "ok"));
}

static bool read_count(const json_t *object, const char *key, bool needed, uint64_t *out)
{
    const json_t *x = json_object_get(object, key);
    if (!x && !needed)
        return true;
    if (!json_is_integer(x) || json_integer_value(x) < 0)
        return false;
    *out = (uint64_t)json_integer_value(x);
    return true;
}

static weft_err wrong(weft_diag *diag, const char *what)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                           "status of the router: %s is missing or wrong", what);
}

static weft_err read_models(const json_t *models, weft_arena *arena, weft_diag *diag,
                            weft_router_status *out)
{
    size_t n = json_array_size(models), used = 0;
    weft_control_count *at = weft_arena_array(arena, n + 1, sizeof *at);
    for (size_t i = 0; i < n; i++) {
        const json_t *m = json_array_get(models, i);
        const char *name = json_string_value(json_object_get(m, "model"));
        uint64_t arrivals, answered, late, refused = 0, queue;
        if (!name || !read_count(m, "arrivals", true, &arrivals) ||
            !read_count(m, "answered", true, &answered) || !read_count(m, "late", true, &late) ||
            !read_count(m, "refused", false, &refused) || !read_count(m, "queue", true, &queue))
            return wrong(diag, name ? name : "a model");
        size_t k = 0;
        while (k < used && strcmp(at[k].name, name) != 0)
            k++;
        used += k == used;
        at[k].name = name;
        at[k].arrivals += arrivals;
        at[k].answered += answered;
        at[k].missed += late + refused;
        at[k].queue += queue;
    }
    out->count = at;
    out->n_count = used;
    return WEFT_ERR_OK;
}

weft_err weft_link_read_status(const json_t *answer, weft_arena *arena, weft_diag *diag,
                               weft_router_status *out)
{
    const json_t *now = json_object_get(answer, "now_s");
    const char *state = json_string_value(json_object_get(answer, "state"));
    const json_t *models = json_object_get(answer, "models");
    const json_t *last = json_object_get(answer, "last_change");
    *out = (weft_router_status){.now_s = json_number_value(now), .last_error = ""};
    if (!json_is_number(now) || !(out->now_s >= 0 && out->now_s < 9e9))
        return wrong(diag, "now_s");
    if (!read_count(answer, "generation", true, &out->generation))
        return wrong(diag, "generation");
    if (!read_count(answer, "replans", false, &out->replans))
        return wrong(diag, "replans");
    if (!state)
        return wrong(diag, "state");
    out->draining = strcmp(state, "draining") == 0;
    out->changing = strcmp(state, "serving") != 0;
    if (!json_is_array(models))
        return wrong(diag, "models");
    if (json_is_object(last)) {
        const char *error = json_string_value(json_object_get(last, "error"));
        if (!read_count(last, "generation", true, &out->last_generation))
            return wrong(diag, "last_change");
        out->last_ok = json_is_true(json_object_get(last, "ok"));
        out->last_error = error ? error : "";
        out->last_took_s = json_number_value(json_object_get(last, "took_s"));
    }
    return read_models(models, arena, diag, out);
}
