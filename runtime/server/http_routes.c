/* Routes of the Open Inference Protocol over HTTP, with Triton's extensions. All paths are rows of
 * one table, so that the same checks apply to each. */
#include "runtime/server/classes.h"
#include "runtime/server/http_int.h"
#include "runtime/server/regions.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What a route answers: the model is UINT32_MAX where the route names none. */
typedef struct target {
    http_exchange *x;
    weft_router *router;
    uint32_t model;
    bool any_version;
} target;

typedef void route_fn(const target *t);

/* Patterns of the models that the client may know of; NULL: all. */
static const char *visible(const http_exchange *x)
{
    return weft_access__models(x->http->front.access, &x->presented);
}

/* -- Health and metadata -------------------------------------------------------------------- */

static void reply_json(const target *t, char *text)
{
    weft_http__reply(t->x, 200, text, "application/json");
}

static void get_live(const target *t)
{
    reply_json(t, strdup("{\"live\":true}"));
}

static void get_ready(const target *t)
{
    bool ready = weft_router__all_ready(t->router) && !weft_router__is_draining(t->router);
    weft_http__reply(t->x, ready ? 200 : 400,
                     weft_oip__server_ready(t->router, ready, !visible(t->x)), "application/json");
}

static void get_server(const target *t)
{
    reply_json(t, weft_oip__server_metadata(&t->x->http->front));
}

static void get_model(const target *t)
{
    reply_json(t, weft_oip__model_metadata(t->router, t->model));
}

static void get_model_ready(const target *t)
{
    bool ready = (t->any_version ? weft_router__versions_ready(t->router, t->model)
                                 : weft_router__is_ready(t->router, t->model)) &&
                 !weft_router__is_draining(t->router);
    weft_http__reply(t->x, ready ? 200 : 400, weft_oip__model_ready(t->router, t->model, ready),
                     "application/json");
}

static void get_model_config(const target *t)
{
    reply_json(t, weft_oip__model_config(weft_router__model(t->router, t->model).program));
}

static void get_stats(const target *t)
{
    weft_http__begin_list(t->x, HTTP_LIST_STATS, false);
}

static void post_index(const target *t)
{
    weft_http__list_models(t->x);
}

static void post_load(const target *t)
{
    weft_http__change_model(t->x, true);
}

static void post_unload(const target *t)
{
    weft_http__change_model(t->x, false);
}

static void get_trace_setting(const target *t)
{
    weft_http__settings(t->x, false, false);
}

static void post_trace_setting(const target *t)
{
    weft_http__settings(t->x, false, true);
}

static void get_log_settings(const target *t)
{
    weft_http__settings(t->x, true, false);
}

static void post_log_settings(const target *t)
{
    weft_http__settings(t->x, true, true);
}

static void get_regions(const target *t)
{
    weft_http__list_regions(t->x);
}

static void post_register(const target *t)
{
    weft_http__register_region(t->x);
}

static void post_unregister(const target *t)
{
    weft_http__unregister_regions(t->x);
}

static void refuse_unsupported(const target *t)
{
    weft_http__fail(t->x, 501, "this extension is not supported");
}

/* Regions of CUDA cannot be registered, so there are none; Triton's clients clear them before they
 * register others. */
static void list_no_regions(const target *t)
{
    weft_http__reply(t->x, 200, strdup("[]"), "application/json");
}

static void unregister_nothing(const target *t)
{
    weft_http__reply(t->x, 200, strdup("{}"), "application/json");
}

/* -- Inference ------------------------------------------------------------------------------ */

/* Larger JSON is read, JSON of larger tensors is written, and what unpacks to more is unpacked
 * beside the loop, where each would take more than about 0.05 ms: a few packed bytes may take
 * milliseconds. */
enum {
    INLINE_BYTES = 8 << 10,
    INLINE_TENSOR_BYTES = 4 << 10,
    INLINE_PLAIN_BYTES = 32 << 10,
    HEAVY_BYTES = 1 << 20
};

static void write_answer(http_exchange *x)
{
    weft_request *r = x->infer->request;
    weft_buf out = {0};
    size_t json_len = 0;
    if (r->answer != WEFT_ANSWER_OK) {
        weft_http__fail(x, weft_http__status_of(r->answer), "%s", r->message);
        if (r->answer == WEFT_ANSWER_OVERLOADED) {
            uint64_t s = r->retry_after_ns / 1000000000u + 1;
            snprintf(x->retry, sizeof x->retry, "Retry-After: %llu\r\n", (unsigned long long)s);
            x->field = x->retry;
        }
        return;
    }
    if (!weft_oip__write_infer(x->infer, &out, &json_len, &r->answer, r->message)) {
        weft_buf_finish(&out);
        weft_http__fail(x, weft_http__status_of(r->answer), "%s", r->message);
        return;
    }
    bool binary = json_len != out.len;
    x->status = 200;
    x->reply = out.at;
    x->reply_len = out.len;
    x->reply_type = binary ? "application/octet-stream" : "application/json";
    /* A binary output without elements adds no byte after the JSON. */
    for (uint32_t i = 0; i < x->infer->n_output; i++)
        binary = binary || x->infer->output[i].binary;
    x->json_len = binary ? json_len : 0;
}

/* -- Large JSON, beside the loop -------------------------------------------------------------- */

static http_exchange *exchange_of(weft_job *job)
{
    return (http_exchange *)((char *)job - offsetof(http_exchange, job));
}

/* `bytes`: of the work. */
static void offload(http_exchange *x, size_t bytes, void (*run)(weft_job *),
                    void (*done)(weft_job *))
{
    weft_http *http = x->http;
    x->waiting = x->offloaded = true;
    x->job = (weft_job){.run = run, .done = done};
    weft_offload__submit(bytes > HEAVY_BYTES ? http->heavy : http->offload, &x->job);
}

/* The exchange is back from the other thread. false: its client is gone. */
static bool take_back(http_exchange *x)
{
    x->offloaded = false;
    if (x->resume)
        return true;
    weft_http__free_exchange(x);
    return false;
}

void weft_http__abandon(http_exchange *x)
{
    x->resume = NULL;
    x->connection = NULL;
    if (x->operation.operation || x->list.listing.waits) {
        weft_deployment__forget(&x->operation);
        weft_http__free_exchange(x);
    } else if (!x->offloaded)
        weft_router__abandon(x->http->router, x->infer->request);
}

/* -- Answers of inference --------------------------------------------------------------------- */

/* Bytes of the outputs by what it costs to write them: JSON takes a hundred times as long, and
 * classes are written as text in any case. */
static size_t answer_bytes(const weft_oip_infer *infer)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < infer->n_output; i++) {
        const weft_oip_output *o = &infer->output[i];
        const weft_tensor *t = &infer->request->out[o->at];
        if (o->n_class)
            bytes += weft_classes__work(infer->program, t, o->n_class);
        else
            bytes += o->binary ? weft_tensor_bytes(t) / 64 : weft_tensor_bytes(t);
    }
    return bytes;
}

static void run_write(weft_job *job)
{
    write_answer(exchange_of(job));
}

static void done_write(weft_job *job)
{
    http_exchange *x = exchange_of(job);
    if (!take_back(x))
        return;
    x->waiting = false;
    x->resume(x);
}

static void on_done(weft_request *request)
{
    http_exchange *x = request->user;
    bool was_waiting = x->waiting;
    weft_http__end_use(x);
    x->waiting = false;
    if (was_waiting && !x->resume) {
        weft_http__free_exchange(x);
        return;
    }
    bool ok = request->answer == WEFT_ANSWER_OK, held = !ok || weft_http__hold_outputs(x);
    bool is_long =
        ok && (answer_bytes(x->infer) > INLINE_TENSOR_BYTES || weft_regions__has_outputs(request));
    if (held && is_long && x->http->offload) {
        offload(x, answer_bytes(x->infer), run_write, done_write);
        return;
    }
    if (held)
        write_answer(x);
    if (was_waiting)
        x->resume(x);
}

/* -- Requests of inference -------------------------------------------------------------------- */

/* Length of the JSON in the body; *out_raw: the body is the raw data of one input. false: the
 * header is present and not a valid length. */
static bool read_json_len(http_exchange *x, size_t *out_len, bool *out_raw)
{
    *out_len = x->len;
    *out_raw = false;
    if (!x->has_json_len)
        return true;
    if (x->given_json_len > x->len)
        return false;
    *out_len = (size_t)x->given_json_len;
    *out_raw = *out_len == 0;
    return true;
}

/* Hands the request to the router. */
static void submit(http_exchange *x)
{
    x->infer->request->user = x;
    x->infer->request->id = x->infer->id;
    x->infer->request->origin = x->origin;
    x->infer->request->by_weight = x->any_version;
    x->infer->request->done = on_done;
    weft_router__submit(x->http->router, x->infer->request);
}

/* Gives the request the adapter that the path names. false: it names another one; the exchange has
 * its error. */
static bool take_adapter(http_exchange *x)
{
    if (!x->adapter || weft_request__set_adapter(x->infer->request, x->adapter, strlen(x->adapter)))
        return true;
    weft_http__fail(x, 400, "parameter 'adapter' names another adapter than the path");
    return false;
}

/* The request was read. false: it was not, or holds too much; the exchange has its error. */
static bool take_request(http_exchange *x)
{
    if (!x->infer)
        x->status = weft_http__status_of(x->answer);
    else if (weft_regions__input_bytes(x->infer->request) > x->http->max_body)
        weft_http__fail_size(x);
    else if (take_adapter(x) && weft_http__hold_inputs(x))
        return true;
    weft_http__drop_infer(x);
    return false;
}

/* Reads the body into a request; x->infer is NULL on an error. */
static void read_body(http_exchange *x)
{
    const weft_model_ref *m = &x->reads;
    size_t json_len;
    bool raw;
    read_json_len(x, &json_len, &raw);
    bool ok = raw ? weft_oip__read_raw(m, x->body, x->len, &x->answer, x->error, &x->infer)
                  : weft_oip__read_infer(m, x->http->front.regions, x->body, x->len, json_len,
                                         &x->answer, x->error, &x->infer);
    if (!ok)
        x->infer = NULL;
}

/* Chooses the version that answers, now that the body is here: the model may have been replaced
 * since its path was read. false: it has been unloaded; the exchange has its error. */
static bool choose_model(http_exchange *x)
{
    weft_router *router = x->http->router;
    const weft_model_ref was = weft_router__model(router, x->model);
    uint32_t at = weft_router__find(router, weft_bundle_served(was.program),
                                    strlen(weft_bundle_served(was.program)), was.version,
                                    x->any_version ? 0 : strlen(was.version));
    if (at == UINT32_MAX) {
        weft_http__fail(x, 404, "model '%.128s' has been unloaded",
                        weft_bundle_served(was.program));
        return false;
    }
    at = x->any_version ? weft_router__choose(router, at) : at;
    weft_router__hold(router, at);
    weft_router__release(router, x->model);
    x->model = at;
    weft_router__begin_use(router, at);
    x->in_use = true;
    x->reads = weft_router__model(router, at);
    return true;
}

static void run_load(weft_job *job)
{
    http_exchange *x = exchange_of(job);
    x->answer = weft_regions__load(x->infer->request, x->error);
}

static void done_load(weft_job *job)
{
    http_exchange *x = exchange_of(job);
    if (!take_back(x))
        return;
    if (x->answer == WEFT_ANSWER_OK) {
        submit(x);
        return;
    }
    x->status = weft_http__status_of(x->answer);
    weft_http__end_use(x);
    x->waiting = false;
    x->resume(x);
}

/* Inputs in shared memory are copied beside the loop, then the request is handed to the router. */
static void load(http_exchange *x)
{
    x->answer = WEFT_ANSWER_UNAVAILABLE;
    snprintf(x->error, sizeof x->error, "the server is shutting down");
    offload(x, weft_regions__input_bytes(x->infer->request), run_load, done_load);
}

static void run_read(weft_job *job)
{
    read_body(exchange_of(job));
}

static void done_read(weft_job *job)
{
    http_exchange *x = exchange_of(job);
    if (!take_back(x))
        return;
    if (take_request(x)) {
        if (weft_regions__has_inputs(x->infer->request))
            load(x);
        else
            submit(x);
        return;
    }
    weft_http__end_use(x);
    x->waiting = false;
    x->resume(x);
}

static void post_infer(const target *t)
{
    http_exchange *x = t->x;
    size_t json_len;
    bool raw;
    if (!read_json_len(x, &json_len, &raw)) {
        weft_http__fail(x, 400, "wrong Inference-Header-Content-Length");
        return;
    }
    if (!choose_model(x))
        return;
    if (!raw && json_len > INLINE_BYTES && x->http->offload) {
        offload(x, json_len, run_read, done_read);
        return;
    }
    read_body(x);
    if (!take_request(x)) {
        weft_http__end_use(x);
        return;
    }
    if (weft_regions__has_inputs(x->infer->request)) {
        load(x);
        return;
    }
    /* `done` may be called inside submit; it then sets the status, and there is nothing to wait
     * for.
     */
    x->status = 0;
    submit(x);
    x->waiting = x->status == 0;
}

/* -- Metrics -------------------------------------------------------------------------------- */

/* Scrapers that ask all the time get at most a tenth of the loop's time. true: it is spent. */
static bool is_spent(http_scrapes *s)
{
    enum { SHARE = 10 };
    uint64_t now_ns = weft_clock__now_ns(), paid_ns = (now_ns - s->at_ns) / SHARE;
    s->spent_ns = s->spent_ns > paid_ns ? s->spent_ns - paid_ns : 0;
    s->at_ns = now_ns;
    return s->spent_ns > HTTP_SCRAPES_BURST_NS;
}

/* Above it, the text that was written last. */
static void get_metrics(const target *t)
{
    http_scrapes *s = &t->x->http->scrapes;
    if (!is_spent(s) || !s->last)
        weft_http__begin_list(t->x, HTTP_LIST_METRICS, false);
    else
        weft_http__reply(t->x, 200, strdup(s->last), "text/plain; version=0.0.4; charset=utf-8");
}

static void get_page(const target *t)
{
    if (is_spent(&t->x->http->scrapes))
        weft_http__fail(t->x, 503, "the page is asked for too often");
    else
        weft_http__begin_list(t->x, HTTP_LIST_PAGE, false);
}

/* -- The table ------------------------------------------------------------------------------ */

struct http_route {
    http1_method method; /* GET is HEAD as well */
    weft_api_group group;
    const char *pattern;
    route_fn *fn;
    unsigned ports;
};

/* "*" matches a model, "#" its version, "?" any one segment. The first one is by far the most
 * frequent. */
static const http_route routes[] = {
    {HTTP1_POST, WEFT_API_INFERENCE, "v2/models/*/infer", post_infer, HTTP_API},
    {HTTP1_GET, WEFT_API_HEALTH, "v2/health/live", get_live,
     HTTP_API | HTTP_METRICS | HTTP_RESERVED},
    {HTTP1_GET, WEFT_API_HEALTH, "v2/health/ready", get_ready,
     HTTP_API | HTTP_METRICS | HTTP_RESERVED},
    {HTTP1_GET, WEFT_API_HEALTH, "metrics", get_metrics, HTTP_METRICS},
    {HTTP1_GET, WEFT_API_HEALTH, "", get_page, HTTP_METRICS},
    {HTTP1_GET, WEFT_API_METADATA, "v2", get_server, HTTP_API},
    {HTTP1_GET, WEFT_API_STATISTICS, "v2/models/stats", get_stats, HTTP_API},
    {HTTP1_GET, WEFT_API_METADATA, "v2/models/*", get_model, HTTP_API},
    {HTTP1_GET, WEFT_API_HEALTH, "v2/models/*/ready", get_model_ready, HTTP_API},
    {HTTP1_GET, WEFT_API_MODEL_CONFIG, "v2/models/*/config", get_model_config, HTTP_API},
    {HTTP1_GET, WEFT_API_STATISTICS, "v2/models/*/stats", get_stats, HTTP_API},
    {HTTP1_GET, WEFT_API_METADATA, "v2/models/*/versions/#", get_model, HTTP_API},
    {HTTP1_GET, WEFT_API_HEALTH, "v2/models/*/versions/#/ready", get_model_ready, HTTP_API},
    {HTTP1_GET, WEFT_API_MODEL_CONFIG, "v2/models/*/versions/#/config", get_model_config, HTTP_API},
    {HTTP1_GET, WEFT_API_STATISTICS, "v2/models/*/versions/#/stats", get_stats, HTTP_API},
    {HTTP1_POST, WEFT_API_INFERENCE, "v2/models/*/versions/#/infer", post_infer, HTTP_API},
    {HTTP1_POST, WEFT_API_MODEL_REPOSITORY, "v2/repository/index", post_index, HTTP_API},
    {HTTP1_POST, WEFT_API_MODEL_REPOSITORY, "v2/repository/?/index", post_index, HTTP_API},
    {HTTP1_POST, WEFT_API_MODEL_REPOSITORY, "v2/repository/models/?/load", post_load, HTTP_API},
    {HTTP1_POST, WEFT_API_MODEL_REPOSITORY, "v2/repository/models/?/unload", post_unload, HTTP_API},
    {HTTP1_POST, WEFT_API_INFERENCE, "v2/models/*/generate", refuse_unsupported, HTTP_API},
    {HTTP1_POST, WEFT_API_INFERENCE, "v2/models/*/generate_stream", refuse_unsupported, HTTP_API},
    {HTTP1_GET, WEFT_API_SHARED_MEMORY, "v2/systemsharedmemory/status", get_regions, HTTP_API},
    {HTTP1_GET, WEFT_API_SHARED_MEMORY, "v2/systemsharedmemory/region/?/status", get_regions,
     HTTP_API},
    {HTTP1_GET, WEFT_API_SHARED_MEMORY, "v2/cudasharedmemory/status", list_no_regions, HTTP_API},
    {HTTP1_GET, WEFT_API_SHARED_MEMORY, "v2/cudasharedmemory/region/?/status", list_no_regions,
     HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/systemsharedmemory/region/?/register", post_register,
     HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/systemsharedmemory/region/?/unregister",
     post_unregister, HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/systemsharedmemory/unregister", post_unregister,
     HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/cudasharedmemory/region/?/register",
     refuse_unsupported, HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/cudasharedmemory/region/?/unregister",
     unregister_nothing, HTTP_API},
    {HTTP1_POST, WEFT_API_SHARED_MEMORY, "v2/cudasharedmemory/unregister", unregister_nothing,
     HTTP_API},
    {HTTP1_GET, WEFT_API_TRACE, "v2/trace/setting", get_trace_setting, HTTP_API},
    {HTTP1_POST, WEFT_API_TRACE, "v2/trace/setting", post_trace_setting, HTTP_API},
    {HTTP1_GET, WEFT_API_TRACE, "v2/models/*/trace/setting", get_trace_setting, HTTP_API},
    {HTTP1_POST, WEFT_API_TRACE, "v2/models/*/trace/setting", post_trace_setting, HTTP_API},
    {HTTP1_GET, WEFT_API_LOGGING, "v2/logging", get_log_settings, HTTP_API},
    {HTTP1_POST, WEFT_API_LOGGING, "v2/logging", post_log_settings, HTTP_API},
};

enum { N_ROUTES = sizeof routes / sizeof routes[0] };

static bool matches(const http1_path *p, const char *pattern, int *out_model, int *out_version,
                    int *out_name)
{
    uint32_t i = 0;
    *out_model = *out_version = *out_name = -1;
    for (; *pattern; i++) {
        size_t len = strcspn(pattern, "/");
        if (i == p->n)
            return false;
        bool wild = len == 1 && strchr("*#?", *pattern);
        if (!wild && (p->len[i] != len || memcmp(p->at[i], pattern, len) != 0))
            return false;
        if (*pattern == '*')
            *out_model = (int)i;
        if (*pattern == '#')
            *out_version = (int)i;
        if (*pattern == '?')
            *out_name = (int)i;
        pattern += len;
        pattern += *pattern == '/';
    }
    return i == p->n;
}

/* The gate in front of all routes of the API. false: the exchange has its error. */
static bool is_admitted(http_exchange *x, unsigned port, const http_route *r)
{
    char text[WEFT_REQUEST_MESSAGE_MAX];
    if (port != HTTP_API)
        return true;
    weft_admission got =
        weft_access__admit(x->http->front.access, WEFT_OVER_HTTP, &x->presented, r->group, text);
    if (got == WEFT_ADMISSION_ADMITTED)
        return true;
    weft_http__fail(x, weft_admission__http(got), "%s", text);
    x->field = weft_admission__field(got);
    return false;
}

/* Sets the model of the target. false: no such model or version, or none that the client may know
 * of; the exchange has its error. */
static bool find_target(target *t, const http1_path *p, int model, int version)
{
    if (model < 0)
        return true;
    const char *name = p->at[model], *patterns = visible(t->x);
    size_t len = p->len[model], version_len = version < 0 ? 0 : p->len[version];
    int shown = len < 128 ? (int)len : 128;
    uint32_t at = weft_router__find(t->router, name, len, NULL, 0);
    if (at == UINT32_MAX ||
        (patterns &&
         !weft_key__names_model(patterns,
                                weft_bundle_served(weft_router__model(t->router, at).program)))) {
        weft_http__fail(t->x, 404, WEFT_UNKNOWN_MODEL, shown, name);
        return false;
    }
    t->any_version = version < 0;
    if (version >= 0 && version_len > 0)
        at = weft_router__find(t->router, name, len, p->at[version], version_len);
    if (at == UINT32_MAX || (version >= 0 && version_len == 0)) {
        weft_http__fail(t->x, 404, "model '%.*s' has no version '%.*s'", shown, name,
                        version_len < 32 ? (int)version_len : 32, p->at[version]);
        return false;
    }
    t->model = at;
    bool named;
    const char *adapter =
        weft_router__adapter_in(weft_router__model(t->router, at).program, name, len, &named);
    t->x->adapter = adapter ? strndup(adapter, (size_t)(name + len - adapter)) : NULL;
    if (adapter && !t->x->adapter)
        weft_http__fail(t->x, 503, "out of memory");
    return !adapter || t->x->adapter;
}

/* The methods of a path that has no route of the method asked for. */
static const char *allowed_methods(bool get, bool post)
{
    return get ? (post ? "GET, HEAD, POST" : "GET, HEAD") : "POST";
}

void weft_http__find_route(http_exchange *x, unsigned port, const char *path, size_t len)
{
    http1_path p;
    bool get = false, post = false;
    http1_method method = x->method == HTTP1_HEAD ? HTTP1_GET : x->method;
    /* Triton's metrics are at /metrics/ as well, and the protocol's OpenAPI file has /v2/. */
    bool is_root = len == 4 && memcmp(path, "/v2/", 4) == 0;
    len -= is_root || (port == HTTP_METRICS && len > 1 && path[len - 1] == '/');
    const char *why = weft_http1__split_path(path, len, x->http->path, &p);
    if (why) {
        weft_http__fail(x, 400, "%s", why);
        return;
    }
    for (size_t i = 0; i < N_ROUTES && p.n <= HTTP1_SEGMENTS_MAX; i++) {
        const http_route *r = &routes[i];
        target t = {.x = x, .router = x->http->router, .model = UINT32_MAX};
        int model, version, name;
        if (!(r->ports & port) || !matches(&p, r->pattern, &model, &version, &name))
            continue;
        get = get || r->method == HTTP1_GET;
        post = post || r->method == HTTP1_POST;
        if (r->method != method)
            continue;
        if (is_admitted(x, port, r) && find_target(&t, &p, model, version)) {
            x->route = r;
            x->model = t.model;
            x->any_version = t.any_version;
            x->name = name < 0 ? NULL : strndup(p.at[name], p.len[name]);
            if (t.model != UINT32_MAX)
                weft_router__hold(t.router, t.model);
        }
        return;
    }
    if (get || post) {
        x->allow = allowed_methods(get, post);
        weft_http__fail(x, 405, "Method Not Allowed");
    } else
        weft_http__fail(x, 404, "Not Found");
}

void weft_http__log(const http_exchange *x)
{
    char trace[2 * WEFT_TRACE_ID_BYTES + 1];
    const weft_origin *o = &x->origin;
    if (!o->known || x->infer || !weft_log__is_on(WEFT_LOG_ACCESS))
        return;
    weft_spans__put_hex(o->context.trace, sizeof o->context.trace, trace);
    WEFT_LOG(
        WEFT_LOG_ACCESS, "http", {.key = "route", .text = x->route ? x->route->pattern : ""},
        {.key = "status", .number = x->status}, {.key = "trace", .text = trace},
        {.key = "peer", .text = o->peer}, {.key = "key", .text = o->key},
        {.key = "why", .text = x->error},
        {.key = "total_us", .number = (double)((weft_clock__now_ns() - o->received_ns) / 1000)});
}

bool weft_http__is_reserved(const http_route *route)
{
    return route && (route->ports & HTTP_RESERVED);
}

static void run_route(http_exchange *x)
{
    const target t = {
        .x = x, .router = x->http->router, .model = x->model, .any_version = x->any_version};
    x->route->fn(&t);
}

static void run_decode(weft_job *job)
{
    (void)weft_http__decode(exchange_of(job)); /* the limit is the largest */
}

static void done_decode(weft_job *job)
{
    http_exchange *x = exchange_of(job);
    if (!take_back(x))
        return;
    x->waiting = false;
    if (weft_http__end_decode(x))
        run_route(x);
    if (!x->waiting)
        x->resume(x);
}

void weft_http__run(http_exchange *x)
{
    if (!x->compressed || x->len == 0) {
        run_route(x);
        return;
    }
    if (!weft_http__begin_decode(x, x->http->offload ? (size_t)INLINE_PLAIN_BYTES : SIZE_MAX))
        return;
    if (!weft_http__decode(x)) {
        if (weft_http__begin_decode(x, SIZE_MAX))
            offload(x, x->plain_max, run_decode, done_decode);
        return;
    }
    if (weft_http__end_decode(x))
        run_route(x);
}
