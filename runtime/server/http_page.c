/* The page at the root of the metrics port: what the server does now, for people. It is written
 * whole by the server and asks for itself again; it needs no script and no network.
 *
 * Rates and percentiles are of the last seconds: of each model the page keeps the counts of an
 * earlier view, at least SAMPLE_NS old, and shows what has come since. */
#include "runtime/server/http_int.h"
#include "runtime/server/oip_int.h"

#include "base/page_style.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 16, REFRESH_S = 5 };

static const uint64_t sample_ns = 2000000000u;

/* Counts of a model at a time; zeroed: when the server started. */
typedef struct sample {
    uint64_t at_ns, failed, rows, batches, count[WEFT_HISTOGRAM_MAX + 1];
} sample;

struct weft_http_page {
    uint64_t start_ns;
    uint32_t n;
    struct {
        sample before, last;
    } * model; /* by place of the router */
};

weft_http_page *weft_http__open_page(void)
{
    weft_http_page *page = calloc(1, sizeof *page);
    if (page)
        page->start_ns = weft_clock__now_ns();
    return page;
}

void weft_http__close_page(weft_http_page *page)
{
    if (page)
        free(page->model);
    free(page);
}

/* -- Counts --------------------------------------------------------------------------------- */

static bool make_room(weft_http_page *page, uint32_t n)
{
    if (n <= page->n)
        return true;
    void *grown = realloc(page->model, n * sizeof *page->model);
    if (!grown)
        return false;
    page->model = grown;
    memset(&page->model[page->n], 0, (n - page->n) * sizeof *page->model);
    page->n = n;
    return true;
}

static sample take(const weft_model_stats *s)
{
    sample now = {.at_ns = weft_clock__now_ns(),
                  .failed = s->fail.count,
                  .rows = s->inference_count,
                  .batches = s->execution_count};
    memcpy(now.count, s->duration.count, sizeof now.count);
    return now;
}

/* Whether a count is below that of an earlier view: another model has the place. */
static bool fell(const sample *now, const sample *last)
{
    bool is_below =
        now->rows < last->rows || now->failed < last->failed || now->batches < last->batches;
    for (uint32_t i = 0; i <= WEFT_HISTOGRAM_MAX; i++)
        is_below = is_below || now->count[i] < last->count[i];
    return is_below;
}

/* *since: what has come, in *out_s seconds. */
static void look(weft_http_page *page, uint32_t model, const weft_model_stats *s, sample *since,
                 double *out_s)
{
    sample *before = &page->model[model].before, *last = &page->model[model].last, now = take(s);
    if (fell(&now, last))
        *before = *last = (sample){0};
    if (now.at_ns - last->at_ns >= sample_ns) {
        *before = *last;
        *last = now;
    }
    uint64_t from_ns = before->at_ns ? before->at_ns : page->start_ns;
    *since = now;
    since->failed -= before->failed;
    since->rows -= before->rows;
    since->batches -= before->batches;
    for (uint32_t i = 0; i <= WEFT_HISTOGRAM_MAX; i++)
        since->count[i] -= before->count[i];
    *out_s = (double)(now.at_ns - from_ns) * 1e-9;
}

static uint64_t answered(const sample *since)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i <= WEFT_HISTOGRAM_MAX; i++)
        all += since->count[i];
    return all;
}

/* By interpolation in the bucket, as Prometheus has it; -1: nothing was answered. */
static double quantile_s(const weft_histogram *h, const sample *since, double q)
{
    uint64_t all = answered(since);
    if (all == 0)
        return -1;
    double rank = q * (double)all, below = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        double low = i ? h->bound_s[i - 1] : 0, n = (double)since->count[i];
        if (below + n >= rank)
            return low + (h->bound_s[i] - low) * (n > 0 ? (rank - below) / n : 0);
        below += n;
    }
    return h->bound_s[h->n - 1];
}

#define NOTHING "<td class=\"n\">–</td>"

/* -- Models --------------------------------------------------------------------------------- */

static void put_ms(weft_buf *out, double s)
{
    if (s < 0)
        weft_buf_puts(out, NOTHING);
    else
        weft_buf_printf(out, "<td class=\"n\">%.*f ms</td>", s < 0.1 ? 2 : 0, s * 1e3);
}

/* p99 over the SLO, as a bar. */
static void put_slo(weft_buf *out, double p99_s, double slo_us)
{
    double part = p99_s * 1e6 / slo_us;
    if (!(slo_us > 0)) {
        weft_buf_puts(out, "<td>none</td>");
        return;
    }
    weft_buf_puts(out, "<td>");
    if (p99_s >= 0)
        weft_buf_printf(out,
                        "<span class=\"meter\" aria-hidden=\"true\"><i%s style=\"width:%.0f%%\">"
                        "</i></span>%.0f %% of ",
                        part > 1 ? " class=\"high\"" : "", part < 1 ? part * 100 : 100, part * 100);
    weft_buf_printf(out, "%.4g ms</td>", slo_us / 1e3);
}

static void put_model(weft_http_page *page, const weft_router *router, uint32_t at, weft_buf *out)
{
    const weft_model_ref ref = weft_router__model(router, at);
    const weft_model_stats *s = weft_router__stats(router, at);
    bool ready = weft_router__is_ready(router, at);
    sample since;
    double took_s;
    look(page, at, s, &since, &took_s);
    double p99_s = quantile_s(&s->duration, &since, 0.99), per_s = took_s > 0 ? 1 / took_s : 0;
    weft_buf_puts(out, "<tr><td>");
    weft_buf_put_xml(out, weft_bundle_served(ref.program));
    weft_buf_printf(out, "</td><td class=\"n\">%s</td><td%s>", ref.version,
                    ready ? "" : " class=\"bad\"");
    if (ready)
        weft_buf_puts(out, "ready");
    else {
        char why[512];
        weft_router__explain(router, at, why, sizeof why);
        weft_buf_put_xml(out, why[0] ? why : "not ready");
    }
    weft_buf_printf(out,
                    "</td><td class=\"n\">%.1f/s</td><td class=\"n\">%.1f/s</td>"
                    "<td class=\"n\">%u</td>",
                    (double)answered(&since) * per_s, (double)since.failed * per_s,
                    weft_router__queued(router, at));
    if (since.batches)
        weft_buf_printf(out, "<td class=\"n\">%.1f</td>",
                        (double)since.rows / (double)since.batches);
    else
        weft_buf_puts(out, NOTHING);
    put_ms(out, quantile_s(&s->duration, &since, 0.5));
    put_ms(out, p99_s);
    put_slo(out, p99_s, ref.program->slo_us);
    weft_buf_puts(out, "</tr>\n");
}

/* -- The rest ------------------------------------------------------------------------------- */

static void put_heads(weft_buf *out, const char *caption, const char *const *head, size_t n)
{
    weft_buf_printf(out, "<div class=\"wide\"><table><caption>%s</caption><thead><tr>", caption);
    for (size_t i = 0; i < n; i++)
        weft_buf_printf(out, "<th scope=\"col\">%s</th>", head[i]);
    weft_buf_puts(out, "</tr></thead><tbody>\n");
}

static void put_slice(const weft_serve_slice *slice, weft_buf *out)
{
    if (slice->name)
        weft_buf_put_xml(out, slice->name);
    else if (slice->n_cpu)
        for (uint32_t i = 0; i < slice->n_cpu; i++)
            weft_buf_printf(out, "%s%u", i ? "," : "cpu ", slice->cpu[i]);
    else
        weft_buf_puts(out, "all CPUs");
}

static void put_worker(const weft_worker_status *w, weft_buf *out)
{
    weft_buf_puts(out, "<tr><td>");
    put_slice(w->slice, out);
    weft_buf_printf(out, "</td><td%s>", w->ready ? "" : " class=\"bad\"");
    weft_buf_put_xml(out, w->state);
    weft_buf_printf(out, "</td><td class=\"n\">%lld</td><td class=\"n\">%llu</td><td>",
                    (long long)w->pid, (unsigned long long)w->restarts);
    for (uint32_t i = 0; i < w->slice->n_model && i < AT_ONCE; i++) {
        weft_buf_puts(out, i ? ", " : "");
        weft_buf_put_xml(out, w->slice->model[i]);
    }
    weft_buf_puts(out, w->slice->n_model == 0 ? "all" : w->slice->n_model > AT_ONCE ? ", ..." : "");
    weft_buf_puts(out, "</td><td>");
    weft_buf_put_xml(out, w->why ? w->why : "");
    weft_buf_puts(out, "</td></tr>\n");
}

static void put_workers(const weft_router *router, weft_buf *out)
{
    static const char *const head[] = {"slice", "state", "process", "restarts", "models", "why"};
    put_heads(out, "Workers, one on each slice", head, sizeof head / sizeof head[0]);
    for (uint32_t i = 0; i < weft_router__worker_count(router); i++) {
        weft_worker_status w = weft_router__worker_status(router, i);
        if (!w.retired)
            put_worker(&w, out);
    }
    weft_buf_puts(out, "</tbody></table></div>\n");
}

static void put_past(const weft_past_change *past, uint64_t now_ms, weft_buf *out)
{
    double ago_s = now_ms > past->ended_ms ? (double)(now_ms - past->ended_ms) * 1e-3 : 0;
    weft_buf_printf(out,
                    "<tr><td class=\"n\">%llu</td><td class=\"n\">%.0f s ago</td>"
                    "<td class=\"n\">%.2f s</td><td class=\"n\">%u</td><td%s>",
                    (unsigned long long)past->generation, ago_s, past->took_s, past->n_started,
                    past->ok ? "" : " class=\"bad\"");
    weft_buf_put_xml(out, past->ok ? "came into force" : past->error);
    weft_buf_puts(out, "</td></tr>\n");
}

static void put_plan(const weft_router *router, weft_buf *out)
{
    static const char *const head[] = {"plan", "when", "took", "new workers", "result"};
    weft_change_status c = weft_router__change_status(router);
    uint64_t now_ms = weft_clock__wall_ms();
    weft_buf_printf(out, "<p>Plan %llu is %s.</p>\n", (unsigned long long)c.generation,
                    c.changing ? "being brought into force" : "in force");
    if (c.n_past) {
        put_heads(out, "Changes of plan and bundles, the last one first", head,
                  sizeof head / sizeof head[0]);
        for (uint32_t i = 0; i < c.n_past; i++)
            put_past(&c.past[i], now_ms, out);
        weft_buf_puts(out, "</tbody></table></div>\n");
    }
    weft_buf_printf(out, "<p>Joint programs ran %llu times, packed ones %llu times.</p>\n",
                    (unsigned long long)weft_router__joint_executions(router),
                    (unsigned long long)weft_router__packed_executions(router));
}

static void begin(const weft_http_page *page, const weft_router *router, weft_buf *out)
{
    static const char *const head[] = {"model",  "version",       "state",           "answered",
                                       "failed", "queued",        "rows in a batch", "p50",
                                       "p99",    "p99 of the SLO"};
    bool draining = weft_router__is_draining(router), ready = weft_router__all_ready(router);
    weft_buf_printf(out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\" />"
                    "<meta name=\"viewport\" content=\"width=device-width\" />"
                    "<meta http-equiv=\"refresh\" content=\"%d\" />"
                    "<link rel=\"icon\" href=\"data:,\" /><title>Weft</title>\n<style>\n%s.bad{"
                    "color:var(--bad)}</style>\n</head>\n<body>\n<header><h1>Weft</h1>\n<p>%s, for "
                    "%.0f s. This page is written anew every %d s; what machines read is at "
                    "<a href=\"metrics\">metrics</a>.</p></header>\n<main>\n<h2>Models</h2>\n",
                    REFRESH_S, weft_page_style,
                    draining ? "Draining"
                    : ready  ? "Serving"
                             : "Not all models are ready",
                    (double)(weft_clock__now_ns() - page->start_ns) * 1e-9, REFRESH_S);
    put_heads(out, "Models, with rates and times of the last seconds", head,
              sizeof head / sizeof head[0]);
}

static void end(const weft_router *router, weft_buf *out)
{
    weft_buf_puts(out, "</tbody></table></div>\n<h2>Workers</h2>\n");
    put_workers(router, out);
    weft_buf_puts(out, "<h2>Plan and merging</h2>\n");
    put_plan(router, out);
    weft_buf_puts(out, "</main>\n</body></html>\n");
}

bool weft_http__write_page(weft_http_page *page, const weft_router *router, weft_list_place *at,
                           weft_buf *out)
{
    uint32_t n = weft_router__model_count(router);
    if (out->len == 0)
        begin(page, router, out);
    out->failed = out->failed || !make_room(page, n);
    for (int k = 0; k < AT_ONCE && at->model < n && !out->failed; at->model++)
        if (weft_router__is_shown(router, at->model)) {
            put_model(page, router, at->model, out);
            k++;
        }
    if (at->model < n && !out->failed)
        return true;
    end(router, out);
    return false;
}
