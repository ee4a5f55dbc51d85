/* The control socket: one JSON object a line each way, over a UNIX socket of mode 0600; requests of
 * a connection are answered in order. docs/serving.md has the requests.
 *
 * Input is bounded: lines of 4 MiB, 16 connections (above, the one used longest ago is closed),
 * unknown keys are refused by name. What a client does not read waits in memory only for the one
 * answer that is being written. */
#include "runtime/server/serve_int.h"

#include "scheduler/scheduler.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 16,
    LINE_BYTES_MAX = 4 << 20,
    READ_BYTES = 65536,
    NOTE_BYTES_MAX = 65536,
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
    const weft_serve_options *options;
    weft_router *router;
    weft_loop *loop;
    weft_listener listener;
    connection at[CONNECTIONS_MAX];
    char *note; /* last text of the controller; NULL: none */
    char *plan; /* plan that was applied last, and is in force or comes into force; NULL: none */
    char *plan_before;
    uint64_t plan_generation;
    uint64_t replans;
};

/* -- Answers ---------------------------------------------------------------------------------- */

static json_t *refuse(const char *fmt, ...) WEFT_PRINTF(1, 2);

static json_t *refuse(const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return json_pack("{s:b, s:s}", "ok", 0, "error", text);
}

static json_t *refuse_by(const weft_diag *diag, const char *otherwise)
{
    const weft_message *m = weft_diag_count(diag) ? weft_diag_at(diag, 0) : NULL;
    if (!m)
        return refuse("%s", otherwise);
    return m->item ? refuse("%s: %s", m->item, m->text) : refuse("%s", m->text);
}

/* Answers within the histogram's boundary at the SLO are in time. */
static uint64_t late_answers(const weft_histogram *h, double slo_us)
{
    uint64_t late = 0;
    if (!(slo_us > 0))
        return 0;
    for (uint32_t i = 0; i <= h->n; i++)
        if (i == h->n || h->bound_s[i] > slo_us / 1e6 * (1 + 1e-9))
            late += h->count[i];
    return late;
}

static json_t *model_status(const weft_ctl *c, uint32_t model)
{
    const weft_bundle_program *p = &weft_router__bundle(c->router)->program[model];
    const weft_model_stats *s = weft_router__stats(c->router, model);
    char why[512];
    weft_router__explain(c->router, model, why, sizeof why);
    uint64_t arrivals = s->success.count + s->fail.count + s->pending;
    return json_pack("{s:s, s:s, s:s, s:i, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model",
                     p->name, "bundle", c->options->bundle, "version", WEFT_SERVE_MODEL_VERSION,
                     "weight", 1, "ready", weft_router__is_ready(c->router, model), "why", why,
                     "queue", (json_int_t)weft_router__queued(c->router, model), "arrivals",
                     (json_int_t)arrivals, "answered", (json_int_t)s->success.count, "late",
                     (json_int_t)late_answers(&s->duration, p->slo_us), "refused",
                     (json_int_t)s->rejected, "failed", (json_int_t)(s->fail.count - s->rejected));
}

static json_t *worker_status(const weft_ctl *c, const weft_worker_status *s)
{
    char name[128] = "", *end = name + sizeof name;
    json_t *models = json_array();
    if (s->slice->name)
        snprintf(name, sizeof name, "%s", s->slice->name);
    else if (s->slice->n_cpu) {
        char *at = name + snprintf(name, sizeof name, "cpu");
        for (uint32_t i = 0; i < s->slice->n_cpu && end - at > 16; i++)
            at += snprintf(at, (size_t)(end - at), "%c%u", i ? ',' : ' ', s->slice->cpu[i]);
    }
    for (uint32_t i = 0; i < s->slice->n_model; i++)
        json_array_append_new(models, json_string(s->slice->model[i]));
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:b, s:s}", "slice", name, "bundle",
                     c->options->bundle, "models", models, "state", s->state, "pid",
                     (json_int_t)s->pid, "restarts", (json_int_t)s->restarts, "draining",
                     s->retiring, "why", s->why);
}

static json_t *status(weft_ctl *c)
{
    weft_change_status change = weft_router__change_status(c->router);
    json_t *models = json_array(), *workers = json_array();
    for (uint32_t i = 0; i < weft_router__bundle(c->router)->n_program; i++)
        if (weft_router__serves(c->router, i))
            json_array_append_new(models, model_status(c, i));
    for (uint32_t i = 0; i < weft_router__worker_count(c->router); i++) {
        weft_worker_status s = weft_router__worker_status(c->router, i);
        if (!s.retired)
            json_array_append_new(workers, worker_status(c, &s));
    }
    const char *state = weft_router__is_draining(c->router) ? "draining"
                        : change.changing                   ? "changing"
                                                            : "serving";
    json_t *out = json_pack("{s:b, s:f, s:I, s:s, s:I, s:o, s:o}", "ok", 1, "now_s",
                            (double)weft_clock__now_ns() / 1e9, "generation",
                            (json_int_t)change.generation, "state", state, "replans",
                            (json_int_t)c->replans, "models", models, "workers", workers);
    if (out && change.last_generation)
        json_object_set_new(out, "last_change",
                            json_pack("{s:I, s:b, s:s, s:f}", "generation",
                                      (json_int_t)change.last_generation, "ok", change.last_ok,
                                      "error", change.last_error, "took_s", change.last_took_s));
    return out;
}

/* -- Plans ------------------------------------------------------------------------------------ */

/* Takes the arena on success. */
static weft_err change_plan(weft_ctl *c, const char *text, weft_arena *arena, weft_diag *diag)
{
    weft_plan plan;
    const weft_serve_slice *slice;
    uint32_t n;
    const weft_serve_control *o = &c->options->control;
    WEFT_TRY(weft_plan_from_json(text, strlen(text), "plan", arena, diag, &plan));
    WEFT_TRY(o->make_slices(o->user, &plan, arena, diag, &slice, &n));
    return weft_router__change(c->router, slice, n, arena, diag);
}

static json_t *apply(weft_ctl *c, const json_t *plan)
{
    if (!c->options->control.make_slices)
        return refuse("this server was not started with a plan of CPU slices");
    char *text = json_dumps(plan, JSON_COMPACT);
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_err err = WEFT_ERR_NOMEM;
    json_t *answer = NULL;
    if (text && arena && diag)
        err = change_plan(c, text, arena, diag);
    if (err == WEFT_ERR_OK) {
        c->plan_generation = weft_router__change_status(c->router).generation;
        free(c->plan_before);
        c->plan_before = c->plan;
        c->plan = text;
        answer = json_pack("{s:b, s:I}", "ok", 1, "generation", (json_int_t)c->plan_generation);
    } else {
        answer = refuse_by(diag, "there is no memory for the plan");
        weft_arena_destroy(arena);
        free(text);
    }
    weft_diag_destroy(diag);
    return answer;
}

static json_t *tell_plan(weft_ctl *c)
{
    weft_change_status s = weft_router__change_status(c->router);
    bool undone = s.last_generation == c->plan_generation && !s.last_ok && c->plan_generation;
    const char *text = undone ? c->plan_before : c->plan;
    json_t *plan = text ? json_loads(text, 0, NULL) : NULL;
    return plan ? json_pack("{s:b, s:o}", "ok", 1, "plan", plan)
                : refuse("the plan of the start is in force");
}

/* -- Requests --------------------------------------------------------------------------------- */

static json_t *take_note(weft_ctl *c, const json_t *text)
{
    char *copy = strdup(json_string_value(text));
    if (!copy)
        return refuse("there is no memory for the note");
    copy[strnlen(copy, NOTE_BYTES_MAX)] = '\0';
    free(c->note);
    c->note = copy;
    return json_pack("{s:b}", "ok", 1);
}

static json_t *explain(const weft_ctl *c)
{
    return json_pack("{s:b, s:s}", "ok", 1, "text", c->note ? c->note : "nothing was decided yet");
}

/* What a request takes beside "do"; NULL: nothing. */
static const struct request_row {
    const char *name, *key;
    json_type type;
} requests[] = {{"status", NULL, JSON_NULL},   {"plan", NULL, JSON_NULL},
                {"explain", NULL, JSON_NULL},  {"replan", NULL, JSON_NULL},
                {"note", "text", JSON_STRING}, {"apply", "plan", JSON_OBJECT},
                {"drain", NULL, JSON_NULL}};
enum { REQUESTS = sizeof requests / sizeof requests[0] };

static json_t *run(weft_ctl *c, const char *what, const json_t *value)
{
    if (strcmp(what, "status") == 0)
        return status(c);
    if (strcmp(what, "plan") == 0)
        return tell_plan(c);
    if (strcmp(what, "explain") == 0)
        return explain(c);
    if (strcmp(what, "note") == 0)
        return take_note(c, value);
    if (strcmp(what, "apply") == 0)
        return apply(c, value);
    if (strcmp(what, "drain") == 0) /* serve.c reads the signal */
        return kill(getpid(), SIGTERM) == 0 ? json_pack("{s:b}", "ok", 1) : refuse("no signal");
    c->replans++;
    return json_pack("{s:b}", "ok", 1);
}

static json_t *answer_to(weft_ctl *c, json_t *request)
{
    const char *what = json_string_value(json_object_get(request, "do")), *key;
    const struct request_row *row = NULL;
    json_t *value;
    for (size_t i = 0; what && i < REQUESTS; i++)
        if (strcmp(requests[i].name, what) == 0)
            row = &requests[i];
    if (!json_is_object(request) || !what)
        return refuse("a request is an object with the name of what to do in \"do\"");
    if (!row)
        return refuse("no request '%.64s'", what);
    json_object_foreach(request, key, value)
    {
        if (strcmp(key, "do") != 0 && !(row->key && strcmp(key, row->key) == 0))
            return refuse("%s: unknown key '%.64s'", what, key);
    }
    value = row->key ? json_object_get(request, row->key) : NULL;
    if (row->key && (!value || json_typeof(value) != row->type))
        return refuse("%s: '%s' is missing or of another kind", what, row->key);
    return run(c, what, value);
}

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
    json_t *request = json_loadb(at->in, len, JSON_REJECT_DUPLICATES, NULL);
    json_t *answer = answer_to(at->control, request);
    char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    json_decref(request);
    json_decref(answer);
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

weft_err weft_ctl__create(const weft_serve_options *options, weft_router *router, weft_loop *loop,
                          weft_diag *diag, weft_ctl **out)
{
    *out = NULL;
    if (!options->control.path)
        return WEFT_ERR_OK;
    weft_ctl *c = calloc(1, sizeof *c);
    if (!c)
        return WEFT_ERR_NOMEM;
    const weft_serve_port where = {.port = -1, .path = options->control.path, .is_private = true};
    *c = (weft_ctl){.options = options, .router = router, .loop = loop};
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
    free(c->note);
    free(c->plan);
    free(c->plan_before);
    free(c);
}
