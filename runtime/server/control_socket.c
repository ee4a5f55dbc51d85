/* The control socket: one JSON object a line each way, over a UNIX socket of mode 0600; requests of
 * a connection are answered in order. docs/serving.md has the requests.
 *
 * Input is bounded: lines of 4 MiB, 16 connections (above, the one used longest ago is closed),
 * unknown keys are refused by name. What a client does not read waits in memory only for the one
 * answer that is being written. */
#include "runtime/server/deployment_int.h"

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
    weft_deployment *deployment;
    weft_loop *loop;
    weft_listener listener;
    connection at[CONNECTIONS_MAX];
    char *note; /* last text of the controller; NULL: none */
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

static json_t *model_status(const weft_ctl *c, uint32_t model)
{
    const weft_model_ref ref = weft_router__model(c->router, model);
    weft_offered own = weft_router__offered(c->router, model);
    char why[512];
    weft_router__explain(c->router, model, why, sizeof why);
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model", ref.program->name,
        "bundle", weft_router__bundle_path(c->router, model), "version", ref.version, "weight",
        weft_router__weight(c->router, model), "ready", weft_router__is_ready(c->router, model),
        "why", why, "queue", (json_int_t)weft_router__queued(c->router, model), "arrivals",
        (json_int_t)own.arrivals, "answered", (json_int_t)own.answered, "late",
        (json_int_t)own.late, "refused", (json_int_t)own.refused, "failed", (json_int_t)own.failed);
}

static json_t *worker_status(const weft_worker_status *s)
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
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:b, s:s}", "slice", name, "bundle", s->bundle,
                     "models", models, "state", s->state, "pid", (json_int_t)s->pid, "restarts",
                     (json_int_t)s->restarts, "draining", s->retiring, "why", s->why);
}

static json_t *missing_bundles(const weft_ctl *c)
{
    uint32_t n;
    const weft_missing_bundle *b = weft_deployment__missing(c->deployment, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "bundle", b[i].path, "version",
                                              b[i].version, "why", b[i].why));
    return list;
}

/* What tells of operations and of the state. */
static void add_operations(const weft_ctl *c, json_t *out)
{
    weft_operation_status s = weft_deployment__status(c->deployment);
    json_object_set_new(out, "waiting", json_integer(s.n_waiting));
    if (s.last)
        json_object_set_new(out, "last_operation",
                            json_pack("{s:I, s:b, s:s}", "operation", (json_int_t)s.last, "ok",
                                      s.ok, "error", s.error));
    if (!c->options->state)
        return;
    json_object_set_new(out, "state_error", json_string(s.state_error));
    json_object_set_new(out, "missing", missing_bundles(c));
}

static json_t *status(weft_ctl *c, const json_t *request)
{
    (void)request;
    weft_change_status change = weft_router__change_status(c->router);
    json_t *models = json_array(), *workers = json_array();
    for (uint32_t i = 0; i < weft_router__model_count(c->router); i++)
        if (weft_router__is_shown(c->router, i) && weft_router__serves(c->router, i))
            json_array_append_new(models, model_status(c, i));
    for (uint32_t i = 0; i < weft_router__worker_count(c->router); i++) {
        weft_worker_status s = weft_router__worker_status(c->router, i);
        if (!s.retired)
            json_array_append_new(workers, worker_status(&s));
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
    if (out)
        add_operations(c, out);
    return out;
}

/* -- Changes ---------------------------------------------------------------------------------- */

static json_t *apply(weft_ctl *c, const json_t *request)
{
    char *text = json_dumps(json_object_get(request, "plan"), JSON_COMPACT);
    weft_diag *diag = weft_diag_create();
    uint64_t generation = 0;
    weft_err err = text && diag ? weft_deployment__apply(c->deployment, text, diag, &generation)
                                : WEFT_ERR_NOMEM;
    json_t *answer = err == WEFT_ERR_OK
                         ? json_pack("{s:b, s:I}", "ok", 1, "generation", (json_int_t)generation)
                         : refuse_by(diag, "there is no memory for the plan");
    free(text);
    weft_diag_destroy(diag);
    return answer;
}

static json_t *tell_plan(weft_ctl *c, const json_t *request)
{
    (void)request;
    const char *text = weft_deployment__plan(c->deployment);
    json_t *plan = text ? json_loads(text, 0, NULL) : NULL;
    return plan ? json_pack("{s:b, s:o}", "ok", 1, "plan", plan)
                : refuse("the plan of the start is in force");
}

static const char *text_of(const json_t *request, const char *key)
{
    return json_string_value(json_object_get(request, key));
}

static json_t *tell_number(uint64_t number)
{
    return number ? json_pack("{s:b, s:I}", "ok", 1, "operation", (json_int_t)number)
                  : refuse("too many changes wait");
}

/* NULL: version and weight can be used. */
static json_t *check_version(const json_t *request)
{
    const char *version = text_of(request, "version");
    const json_t *weight = json_object_get(request, "weight");
    if (version && !weft_serve_is_version(version))
        return refuse("wrong version '%.64s': versions are numbers from 1 on", version);
    if (weight && !(json_number_value(weight) >= 0 && json_number_value(weight) <= 1e6))
        return refuse("a weight is a number from 0 to 1000000");
    return NULL;
}

static json_t *load(weft_ctl *c, const json_t *request)
{
    json_t *wrong = check_version(request);
    const json_t *weight = json_object_get(request, "weight");
    const weft_serve_bundle as = {.path = text_of(request, "bundle"),
                                  .version = text_of(request, "version"),
                                  .has_weight = weight != NULL,
                                  .weight = json_number_value(weight)};
    if (!wrong && as.path[0] != '/')
        wrong = refuse("'%.200s' is no absolute path", as.path);
    return wrong ? wrong : tell_number(weft_deployment__load(c->deployment, &as, false, NULL));
}

/* A bundle by its path, else a model. */
static json_t *unload(weft_ctl *c, const json_t *request)
{
    json_t *wrong = check_version(request);
    const char *name = text_of(request, "name"), *path = text_of(request, "path");
    bool is_bundle = false;
    for (uint32_t i = 0; i < weft_router__model_count(c->router) && path && !is_bundle; i++)
        is_bundle = weft_router__is_shown(c->router, i) &&
                    strcmp(weft_router__bundle_file(c->router, i), path) == 0;
    return wrong ? wrong
                 : tell_number(weft_deployment__unload(c->deployment, is_bundle ? path : NULL,
                                                       is_bundle ? NULL : name,
                                                       text_of(request, "version"), NULL));
}

static json_t *weigh(weft_ctl *c, const json_t *request)
{
    json_t *wrong = check_version(request);
    return wrong ? wrong
                 : tell_number(weft_deployment__weigh(
                       c->deployment, text_of(request, "model"), text_of(request, "version"),
                       json_number_value(json_object_get(request, "weight")), NULL));
}

/* -- Requests --------------------------------------------------------------------------------- */

static json_t *take_note(weft_ctl *c, const json_t *request)
{
    char *copy = strdup(text_of(request, "text"));
    if (!copy)
        return refuse("there is no memory for the note");
    copy[strnlen(copy, NOTE_BYTES_MAX)] = '\0';
    free(c->note);
    c->note = copy;
    return json_pack("{s:b}", "ok", 1);
}

static json_t *explain(weft_ctl *c, const json_t *request)
{
    (void)request;
    return json_pack("{s:b, s:s}", "ok", 1, "text", c->note ? c->note : "nothing was decided yet");
}

static json_t *drain(weft_ctl *c, const json_t *request)
{
    (void)c;
    (void)request;
    /* serve.c reads the signal */
    return kill(getpid(), SIGTERM) == 0 ? json_pack("{s:b}", "ok", 1) : refuse("no signal");
}

static json_t *replan(weft_ctl *c, const json_t *request)
{
    (void)request;
    c->replans++;
    return json_pack("{s:b}", "ok", 1);
}

/* What a request takes beside "do". */
typedef struct request_key {
    const char *name;
    json_type type; /* JSON_REAL: any number */
    bool optional;
} request_key;

enum { KEYS_MAX = 3 };

static const struct request_row {
    const char *name;
    json_t *(*run)(weft_ctl *c, const json_t *request);
    request_key key[KEYS_MAX];
} requests[] = {
    {"status", status, {{0}}},
    {"plan", tell_plan, {{0}}},
    {"explain", explain, {{0}}},
    {"replan", replan, {{0}}},
    {"drain", drain, {{0}}},
    {"note", take_note, {{"text", JSON_STRING, false}}},
    {"apply", apply, {{"plan", JSON_OBJECT, false}}},
    {"load",
     load,
     {{"bundle", JSON_STRING, false}, {"version", JSON_STRING, true}, {"weight", JSON_REAL, true}}},
    {"unload",
     unload,
     {{"name", JSON_STRING, false}, {"path", JSON_STRING, true}, {"version", JSON_STRING, true}}},
    {"weigh",
     weigh,
     {{"model", JSON_STRING, false},
      {"version", JSON_STRING, false},
      {"weight", JSON_REAL, false}}},
};
enum { REQUESTS = sizeof requests / sizeof requests[0] };

static const request_key *find_key(const struct request_row *row, const char *name)
{
    for (size_t i = 0; i < KEYS_MAX && row->key[i].name; i++)
        if (strcmp(row->key[i].name, name) == 0)
            return &row->key[i];
    return NULL;
}

static bool has_type(const json_t *value, json_type type)
{
    return type == JSON_REAL ? json_is_number(value) : json_typeof(value) == type;
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
        const request_key *k = find_key(row, key);
        if (strcmp(key, "do") != 0 && !k)
            return refuse("%s: unknown key '%.64s'", what, key);
        if (k && !has_type(value, k->type))
            return refuse("%s: '%s' is missing or of another kind", what, key);
    }
    for (size_t i = 0; i < KEYS_MAX && row->key[i].name; i++)
        if (!row->key[i].optional && !json_object_get(request, row->key[i].name))
            return refuse("%s: '%s' is missing or of another kind", what, row->key[i].name);
    return row->run(c, request);
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
    *c = (weft_ctl){.options = options, .router = router, .deployment = deployment, .loop = loop};
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
    free(c);
}
