/* Metrics of models and of the server in Prometheus text format 0.0.4. Weft's names pass `promtool
 * check metrics`; Triton's names are optional. */
#include "runtime/server/live_int.h"
#include "runtime/server/oip_int.h"

static const struct {
    const char *name, *type, *help, *nv_name;
} metrics[] = {
#define METRIC(name, type, help, nv_name, value, nv_value) {name, type, help, nv_name},
#include "runtime/server/metrics.def"
#undef METRIC
};

static double value_of(const weft_model_stats *s, size_t which, bool nv)
{
    const double values[][2] = {
#define METRIC(name, type, help, nv_name, value, nv_value) {value, nv_value},
#include "runtime/server/metrics.def"
#undef METRIC
    };
    return values[which][nv];
}

/* Some of the models. */
typedef struct model_range {
    uint32_t from, to;
} model_range;

static void put_family(const weft_router *router, size_t which, bool nv, model_range models,
                       weft_buf *out)
{
    const char *name = nv ? metrics[which].nv_name : metrics[which].name;
    if (models.from == 0)
        weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, metrics[which].help, name,
                        metrics[which].type);
    for (uint32_t i = models.from; i < models.to; i++) {
        const weft_model_ref ref = weft_router__model(router, i);
        if (!weft_router__is_shown(router, i) || weft_router__is_app(router, i))
            continue;
        /* Model names consist of [A-Za-z0-9_.-]: no character needs an escape. */
        weft_buf_printf(out, "%s{model=\"%s\",version=\"%s\"} ", name,
                        weft_bundle_served(ref.program), ref.version);
        weft_buf_put_f64(out, value_of(weft_router__stats(router, i), which, nv));
        weft_buf_putc(out, '\n');
    }
}

/* Counts are of all durations up to a boundary. */
static void put_histogram(const char *name, const weft_model_ref *ref, const weft_histogram *h,
                          weft_buf *out)
{
    const char *model = weft_bundle_served(ref->program), *version = ref->version;
    uint64_t n = 0;
    for (uint32_t i = 0; i <= h->n; i++) {
        n += h->count[i];
        weft_buf_printf(out, "%s_bucket{model=\"%s\",version=\"%s\",le=\"", name, model, version);
        if (i < h->n)
            weft_buf_put_f64(out, h->bound_s[i]);
        else
            weft_buf_puts(out, "+Inf");
        weft_buf_printf(out, "\"} %llu\n", (unsigned long long)n);
    }
    weft_buf_printf(out, "%s_sum{model=\"%s\",version=\"%s\"} ", name, model, version);
    weft_buf_put_f64(out, (double)h->sum_ns * 1e-9);
    weft_buf_printf(out, "\n%s_count{model=\"%s\",version=\"%s\"} %llu\n", name, model, version,
                    (unsigned long long)n);
}

static void put_histograms(const weft_router *router, bool queued, model_range models,
                           weft_buf *out)
{
    const char *name = queued ? "weft_queue_duration_seconds" : "weft_request_duration_seconds";
    if (models.from == 0)
        weft_buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name,
                        queued ? "Time of successful requests in the queue"
                               : "Time from arrival to answer of successful requests",
                        name);
    for (uint32_t i = models.from; i < models.to; i++) {
        const weft_model_stats *s = weft_router__stats(router, i);
        const weft_model_ref ref = weft_router__model(router, i);
        if (weft_router__is_shown(router, i) && !weft_router__is_app(router, i))
            put_histogram(name, &ref, queued ? &s->queued : &s->duration, out);
    }
}

static void put_app(const weft_model_ref *app, const weft_app_counts *c, weft_buf *out)
{
    static const char *const results[] = {"answered", "late", "rejected", "failed"};
    const uint64_t count[] = {c->count.answered, c->count.late, c->count.refused, c->count.failed};
    for (size_t r = 0; r < sizeof count / sizeof count[0]; r++)
        weft_buf_printf(out,
                        "weft_app_requests_total{app=\"%s\",version=\"%s\",variant=\"%s\","
                        "result=\"%s\"} %llu\n",
                        weft_bundle_served(app->program), app->version, c->variant, results[r],
                        (unsigned long long)count[r]);
}

/* Requests to apps are also those of the models that answered them: they have a family of their
 * own, by variant. */
static void put_apps(const weft_router *router, weft_buf *out)
{
    bool any = false;
    for (uint32_t i = 0; i < weft_router__model_count(router); i++) {
        if (!weft_router__is_shown(router, i) || !weft_router__is_app(router, i))
            continue;
        if (!any)
            weft_buf_puts(out, "# HELP weft_app_requests_total Requests to an app that ended, by "
                               "result (late ones are answered, too) and variant\n"
                               "# TYPE weft_app_requests_total counter\n");
        any = true;
        const weft_model_ref ref = weft_router__model(router, i);
        weft_app_counts none = {.variant = "", .count = weft_router__offered(router, i)};
        for (uint32_t k = 0; k < weft_router__app_variants(router, i); k++) {
            const weft_app_counts c = weft_router__app_counts(router, i, k);
            put_app(&ref, &c, out);
            none.count.answered -= c.count.answered;
            none.count.late -= c.count.late;
            none.count.refused -= c.count.refused;
            none.count.failed -= c.count.failed;
        }
        put_app(&ref, &none, out);
    }
}

/* What measured times decided, by program of several models or lengths, and worker. */
static void put_together(const weft_router *router, weft_buf *out)
{
    static const struct {
        const char *name, *type, *help;
    } family[] = {
        {"weft_together_gain", "gauge", "Time of requests apart by that together, 0: not measured"},
        {"weft_apart_total", "counter", "Choices to run requests apart, which was faster"},
        {"weft_together_trials_total", "counter", "Choices of the slower way, to measure it"}};
    weft_together t;
    for (uint32_t k = 0; k < 3 && weft_router__together(router, 0, &t); k++) {
        weft_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", family[k].name, family[k].help,
                        family[k].name, family[k].type);
        for (uint32_t i = 0; weft_router__together(router, i, &t); i++) {
            weft_buf_printf(out, "%s{program=\"%s\",worker=\"%u\"} ", family[k].name, t.program,
                            t.worker);
            weft_buf_put_f64(out, k == 0 ? t.gain : (double)(k == 1 ? t.apart : t.trials));
            weft_buf_puts(out, "\n");
        }
    }
}

static void put_adapters(const weft_router *router, weft_buf *out)
{
    const weft_live_counts c = weft_live__counts(weft_router__live(router));
    weft_buf_printf(out,
                    "# HELP weft_adapters_loaded Adapters loaded while the server runs\n"
                    "# TYPE weft_adapters_loaded gauge\nweft_adapters_loaded %u\n"
                    "# HELP weft_adapters_loaded_bytes Bytes of their factors\n"
                    "# TYPE weft_adapters_loaded_bytes gauge\nweft_adapters_loaded_bytes %llu\n"
                    "# HELP weft_adapter_changes_total Adapters loaded, replaced or removed\n"
                    "# TYPE weft_adapter_changes_total counter\nweft_adapter_changes_total %llu\n"
                    "# HELP weft_adapter_reads_total Times that a worker did not have an adapter "
                    "in memory\n"
                    "# TYPE weft_adapter_reads_total counter\nweft_adapter_reads_total %llu\n",
                    c.n, (unsigned long long)c.bytes, (unsigned long long)c.changes,
                    (unsigned long long)weft_router__adapter_reads(router));
}

static void put_server(const weft_router *router, weft_buf *out)
{
    put_apps(router, out);
    weft_buf_printf(out,
                    "# HELP weft_workers Worker processes\n# TYPE weft_workers gauge\n"
                    "weft_workers %u\n",
                    weft_router__live_workers(router));
    weft_buf_printf(out,
                    "# HELP weft_worker_restarts_total Workers started again\n"
                    "# TYPE weft_worker_restarts_total counter\nweft_worker_restarts_total %llu\n",
                    (unsigned long long)weft_router__restarts(router));
    weft_buf_printf(out,
                    "# HELP weft_joint_executions_total Executions of several models at once\n"
                    "# TYPE weft_joint_executions_total counter\n"
                    "weft_joint_executions_total %llu\n"
                    "# HELP weft_joint_rows_total Rows in executions of several models at once\n"
                    "# TYPE weft_joint_rows_total counter\nweft_joint_rows_total %llu\n",
                    (unsigned long long)weft_router__joint_executions(router),
                    (unsigned long long)weft_router__joint_rows(router));
    weft_buf_printf(out,
                    "# HELP weft_packed_executions_total Executions of packed programs\n"
                    "# TYPE weft_packed_executions_total counter\n"
                    "weft_packed_executions_total %llu\n"
                    "# HELP weft_heads_executions_total Executions for several heads of a model\n"
                    "# TYPE weft_heads_executions_total counter\n"
                    "weft_heads_executions_total %llu\n",
                    (unsigned long long)weft_router__packed_executions(router),
                    (unsigned long long)weft_router__heads_executions(router));
    put_adapters(router, out);
    put_together(router, out);
}

bool weft_metrics__write_part(const weft_router *router, bool nv_names, weft_list_place *at,
                              weft_buf *out)
{
    enum { AT_ONCE = 16, FAMILIES = sizeof metrics / sizeof metrics[0] };
    uint32_t n = weft_router__model_count(router), which = at->part / 2;
    bool second = at->part % 2;
    /* There may be fewer models than when the part before was written. */
    uint32_t from = at->model < n ? at->model : n;
    const model_range models = {from, n - from > AT_ONCE ? from + AT_ONCE : n};
    if (which > FAMILIES) {
        put_server(router, out);
        return false;
    }
    if (which == FAMILIES)
        put_histograms(router, second, models, out);
    else if (!second || (nv_names && metrics[which].nv_name[0]))
        put_family(router, which, second, models, out);
    at->model = models.to;
    if (at->model >= n) {
        at->model = 0;
        at->part++;
    }
    return true;
}
