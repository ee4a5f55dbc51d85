/* What the control socket is asked, and the answers: a table of requests, each with the keys that
 * it takes; unknown keys are refused by name. docs/serving.md has the requests. */
#include "runtime/server/control_requests.h"

#include "runtime/server/json_dump.h"
#include "runtime/server/live_int.h"

#include "scheduler/scheduler.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOTE_BYTES_MAX = 65536 };

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

static json_t *model_status(const ctl_service *c, uint32_t model)
{
    const weft_model_ref ref = weft_router__model(c->router, model);
    weft_offered own = weft_router__offered(c->router, model);
    char why[512];
    weft_router__explain(c->router, model, why, sizeof why);
    return json_pack(
        "{s:s, s:s, s:s, s:f, s:b, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model",
        weft_bundle_served(ref.program), "bundle", weft_router__bundle_path(c->router, model),
        "version", ref.version, "weight", weft_router__weight(c->router, model), "ready",
        weft_router__is_ready(c->router, model), "why", why, "queue",
        (json_int_t)weft_router__queued(c->router, model), "arrivals", (json_int_t)own.arrivals,
        "answered", (json_int_t)own.answered, "late", (json_int_t)own.late, "refused",
        (json_int_t)own.refused, "failed", (json_int_t)own.failed);
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

static json_t *missing_bundles(const ctl_service *c)
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
static void add_operations(const ctl_service *c, json_t *out)
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

static json_t *status(ctl_service *c, const json_t *request)
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
    if (out && change.n_past)
        json_object_set_new(out, "last_change",
                            json_pack("{s:I, s:b, s:s, s:f}", "generation",
                                      (json_int_t)change.past->generation, "ok", change.past->ok,
                                      "error", change.past->error, "took_s", change.past->took_s));
    if (out && change.in_steps)
        json_object_set_new(out, "change",
                            json_pack("{s:I, s:b}", "steps_done", (json_int_t)change.n_step, "back",
                                      change.is_back));
    if (out)
        add_operations(c, out);
    return out;
}

/* -- Changes ---------------------------------------------------------------------------------- */

static json_t *apply(ctl_service *c, const json_t *request)
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

static json_t *tell_plan(ctl_service *c, const json_t *request)
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

static json_t *load(ctl_service *c, const json_t *request)
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
static json_t *unload(ctl_service *c, const json_t *request)
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

/* Loads, or without a path unloads, an adapter. */
static json_t *adapt(ctl_service *c, const json_t *request, const char *path)
{
    const char *name = text_of(request, "adapter");
    if (!weft_set_name_valid(name))
        return refuse("no adapter can have the name '%.64s'", name);
    return tell_number(
        weft_deployment__adapt(c->deployment, text_of(request, "model"), name, NULL, path, NULL));
}

static json_t *load_adapter(ctl_service *c, const json_t *request)
{
    const char *path = text_of(request, "path");
    return path[0] == '/' ? adapt(c, request, path) : refuse("'%.200s' is no absolute path", path);
}

static json_t *unload_adapter(ctl_service *c, const json_t *request)
{
    return adapt(c, request, NULL);
}

static json_t *describe_adapter(const weft_live_adapter *a)
{
    return json_pack("{s:s, s:s, s:s, s:s?, s:I, s:I, s:I}", "model", a->base, "adapter", a->name,
                     "from", a->number ? "folder" : "removed", "path", a->path, "bytes",
                     (json_int_t)a->bytes, "answered", (json_int_t)a->n_ok, "failed",
                     (json_int_t)a->n_failed);
}

/* Those that models were compiled with, without those that others stand for. */
static void add_compiled(const ctl_service *c, uint32_t model, json_t *list)
{
    uint32_t program;
    const weft_bundle *b = weft_router__bundle_of(c->router, model, &program);
    const char *base = weft_bundle_served(weft_router__model(c->router, model).program);
    for (uint32_t i = 0; i < b->n_adapter; i++) {
        const char *name = b->adapter[i].name;
        if (b->adapter[i].program == program &&
            !weft_live__find(weft_router__live(c->router), base, strlen(base), name, strlen(name)))
            json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "model", base, "adapter",
                                                  name, "from", "bundle", "version",
                                                  weft_router__model(c->router, model).version));
    }
}

static json_t *list_adapters(ctl_service *c, const json_t *request)
{
    (void)request;
    json_t *list = json_array();
    const weft_live_adapter *a;
    for (uint32_t i = 0; (a = weft_live__at(weft_router__live(c->router), i)); i++)
        json_array_append_new(list, describe_adapter(a));
    for (uint32_t i = 0; i < weft_router__model_count(c->router); i++)
        if (weft_router__is_shown(c->router, i) && !weft_router__is_app(c->router, i))
            add_compiled(c, i, list);
    return json_pack("{s:b, s:o}", "ok", 1, "adapters", list);
}

static json_t *weigh(ctl_service *c, const json_t *request)
{
    json_t *wrong = check_version(request);
    return wrong ? wrong
                 : tell_number(weft_deployment__weigh(
                       c->deployment, text_of(request, "model"), text_of(request, "version"),
                       json_number_value(json_object_get(request, "weight")), NULL));
}

/* -- Requests --------------------------------------------------------------------------------- */

static json_t *take_note(ctl_service *c, const json_t *request)
{
    char *copy = strdup(text_of(request, "text"));
    if (!copy)
        return refuse("there is no memory for the note");
    copy[strnlen(copy, NOTE_BYTES_MAX)] = '\0';
    free(c->note);
    c->note = copy;
    return json_pack("{s:b}", "ok", 1);
}

static json_t *explain(ctl_service *c, const json_t *request)
{
    (void)request;
    return json_pack("{s:b, s:s}", "ok", 1, "text", c->note ? c->note : "nothing was decided yet");
}

static json_t *drain(ctl_service *c, const json_t *request)
{
    (void)c;
    (void)request;
    /* serve.c reads the signal */
    return kill(getpid(), SIGTERM) == 0 ? json_pack("{s:b}", "ok", 1) : refuse("no signal");
}

static json_t *replan(ctl_service *c, const json_t *request)
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
    json_t *(*run)(ctl_service *c, const json_t *request);
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
    {"load_adapter",
     load_adapter,
     {{"model", JSON_STRING, false},
      {"adapter", JSON_STRING, false},
      {"path", JSON_STRING, false}}},
    {"unload_adapter",
     unload_adapter,
     {{"model", JSON_STRING, false}, {"adapter", JSON_STRING, false}}},
    {"adapters", list_adapters, {{0}}},
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

static json_t *answer_to(ctl_service *c, json_t *request)
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

char *weft_ctl__answer(ctl_service *c, const char *line, size_t len)
{
    json_t *request = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    json_t *answer = answer_to(c, request);
    json_decref(request);
    return weft_json__dump(answer, JSON_COMPACT);
}
