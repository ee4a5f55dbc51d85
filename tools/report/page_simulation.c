/* The section of a simulation: latencies against SLOs, violations, how busy slices were, and how
 * all of it changed. */
#include "tools/report/chart.h"

#include <math.h>

enum { ROWS_MAX = 60 };

/* The name of a model or an app. */
static const char *name_of(weft_page *page, const json_t *model)
{
    const char *app = json_string_value(json_object_get(model, "app"));
    return app ? app : weft_page_word(page, model, "model");
}

/* -- Latencies --------------------------------------------------------------------------------- */

static const struct {
    const char *key, *name;
} quantiles[] = {{"p50_us", "half"}, {"p95_us", "95 %"}, {"p99_us", "99 %"}, {"max_us", "all"}};

enum { QUANTILES = sizeof quantiles / sizeof quantiles[0] };

static void draw_latencies(weft_page *page, const json_t *models)
{
    size_t n = json_array_size(models) < ROWS_MAX ? json_array_size(models) : ROWS_MAX;
    weft_axis axis = {.name = "latency", .format = weft_page_time, .log = true};
    weft_chart chart;
    char title[128], buf[WEFT_PAGE_NUMBER_MAX];
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(models, i);
        weft_axis_cover(&axis, weft_page_number(page, one, "slo_us"));
        weft_axis_cover(&axis, weft_page_number(page, one, "mean_us"));
        for (size_t q = 0; q < QUANTILES; q++)
            weft_axis_cover(&axis, weft_page_number(page, one, quantiles[q].key));
    }
    weft_chart_begin_rows(&chart, page, "Latencies of each model, and its SLO", axis, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(models, i);
        double slo = weft_page_number(page, one, "slo_us"), before = chart.x.lo;
        weft_chart_row(&chart, name_of(page, one));
        for (size_t q = 0; q < QUANTILES; q++) {
            double at = weft_page_number(page, one, quantiles[q].key);
            snprintf(title, sizeof title, "%s of the answers within %s", quantiles[q].name,
                     weft_page_time(at, buf));
            if (at > 0)
                weft_chart_bar(&chart, before, at, (uint32_t)q, title);
            before = fmax(at, before);
        }
        if (slo > 0) {
            snprintf(title, sizeof title, "SLO %s", weft_page_time(slo, buf));
            weft_chart_limit(&chart, slo, title);
        }
    }
    weft_chart_end(&chart, "Bars end where a part of the answers is given. The upright line is the "
                           "SLO. The axis is logarithmic.");
    weft_chart_legend(page, (const char *const[]){"half", "95 %", "99 %", "all"}, QUANTILES);
}

static void put_models(weft_page *page, const json_t *models)
{
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Answers of each model",
                    "Model|#Requests|#Within "
                    "SLO|#Late|#Dropped|Violations|#Mean|#Waiting|#p50|#p95|#p99|#Maximum|#SLO");
    for (size_t i = 0; i < json_array_size(models); i++) {
        static const char *const counts[] = {"requests", "good", "late", "dropped"};
        static const char *const times[] = {"mean_us", "mean_wait_us", "p50_us",
                                            "p95_us",  "p99_us",       "max_us"};
        const json_t *one = json_array_get(models, i);
        double violations = weft_page_number(page, one, "violations"),
               slo = weft_page_number(page, one, "slo_us");
        weft_page_row(page);
        weft_page_cell(page, "%s", name_of(page, one));
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
            weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, counts[k]));
        weft_page_meter(page, violations, violations > 0.01);
        for (size_t k = 0; k < sizeof times / sizeof times[0]; k++)
            weft_page_cell(page, "%s", weft_page_time(weft_page_number(page, one, times[k]), buf));
        weft_page_cell(page, "%s", slo > 0 ? weft_page_time(slo, buf) : "none");
    }
    weft_page_end_table(page);
}

static void find_late(weft_page *page, const json_t *models)
{
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX], c[WEFT_PAGE_NUMBER_MAX];
    size_t late = 0;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *one = json_array_get(models, i);
        double violations = weft_page_number(page, one, "violations"),
               mean = weft_page_number(page, one, "mean_us");
        double wait = weft_page_number(page, one, "mean_wait_us");
        if (!(violations > 0.01))
            continue;
        late++;
        weft_page_find(
            page, WEFT_PAGE_BAD,
            "%s answers %s of its requests late or not at all: of %s on average, %s are waiting. "
            "%s.",
            name_of(page, one), weft_page_percent(violations, a), weft_page_time(mean, b),
            weft_page_time(wait, c),
            wait > mean / 2
                ? "Its slices are too full: weft plan --rule queue, or a higher rate in the set"
                : "The execution takes most of it: a larger slice or a smaller batch");
    }
    if (json_array_size(models) > 0 && !late)
        weft_page_find(page, WEFT_PAGE_GOOD,
                       "Every model answers at least 99 %% of its requests within its SLO.");
}

/* -- Slices and time --------------------------------------------------------------------------- */

static void draw_slices(weft_page *page, const json_t *slices)
{
    size_t n = json_array_size(slices) < ROWS_MAX ? json_array_size(slices) : ROWS_MAX;
    weft_axis axis = {.name = "busy part of the time", .format = weft_page_percent, .hi = 0.96};
    weft_chart chart;
    weft_chart_begin_rows(&chart, page, "How busy each slice was", axis, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(slices, i);
        const char *slice = weft_page_word(page, one, "slice");
        double busy = weft_page_number(page, one, "utilisation");
        char label[512], buf[WEFT_PAGE_NUMBER_MAX];
        snprintf(label, sizeof label, "%s %llu %s: %s", weft_page_word(page, one, "type"),
                 (unsigned long long)weft_page_count(page, one, "device"), *slice ? slice : "whole",
                 weft_page_word(page, one, "models"));
        weft_chart_row(&chart, label);
        weft_chart_bar(&chart, 0, busy, busy > 0.95 ? 5 : 0, weft_page_percent(busy, buf));
    }
    weft_chart_end(&chart, "Slices that are busy all the time have a queue that grows.");
}

static void draw_time(weft_page *page, const json_t *time)
{
    weft_axis x = {.name = "seconds from the start", .format = weft_page_plain};
    weft_axis y = {.name = "p99", .format = weft_page_time, .log = true};
    weft_chart chart;
    size_t n = json_array_size(time);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(time, i), *models = weft_page_list(page, one, "models");
        weft_axis_cover(&x, weft_page_number(page, one, "start_s"));
        for (size_t k = 0; k < json_array_size(models); k++)
            weft_axis_cover(&y, weft_page_number(page, json_array_get(models, k), "p99_us"));
    }
    if (y.hi == 0)
        return;
    weft_page_heading(page, "Over time");
    weft_chart_begin_points(&chart, page, "Latency of 99 % of the answers over time", x, y);
    const char *legend[WEFT_PAGE_COLORS];
    uint32_t n_legend = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(time, i), *models = weft_page_list(page, one, "models");
        double at = weft_page_number(page, one, "start_s");
        for (size_t k = 0; k < json_array_size(models); k++) {
            const json_t *model = json_array_get(models, k);
            double p99 = weft_page_number(page, model, "p99_us");
            char title[256], buf[WEFT_PAGE_NUMBER_MAX], when[WEFT_PAGE_NUMBER_MAX];
            snprintf(title, sizeof title, "%s at %s: %s", weft_page_word(page, model, "name"),
                     weft_page_time(1e6 * at, when), weft_page_time(p99, buf));
            if (p99 > 0)
                weft_chart_point(&chart, at, p99, (uint32_t)k, title);
            if (i == 0 && k < WEFT_PAGE_COLORS)
                legend[n_legend++] = weft_page_word(page, model, "name");
        }
    }
    weft_chart_end(&chart, "A point for each model and time bucket.");
    weft_chart_legend(page, legend, n_legend);
}

static void put_changes(weft_page *page, const json_t *changes)
{
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Changes of the plan", "#At|Policy|#Devices|#Kept|#Started|#Stopped|Why");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *one = json_array_get(changes, i);
        const char *why = json_string_value(json_object_get(one, "why"));
        bool refused = json_is_true(json_object_get(one, "refused"));
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_time(1e6 * weft_page_number(page, one, "at_s"), buf));
        weft_page_cell(page, "%s%s", weft_page_word(page, one, "policy"),
                       refused ? ", refused" : "");
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "gpus"));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "kept"));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "started"));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "stopped"));
        weft_page_cell(page, "%s", why ? why : "");
    }
    weft_page_end_table(page);
}

void weft_page_add_simulation(weft_page *page, const json_t *simulation)
{
    const json_t *models = weft_page_list(page, simulation, "models"),
                 *slices = weft_page_list(page, simulation, "slices");
    const json_t *time = weft_page_list(page, simulation, "time"),
                 *changes = weft_page_list(page, simulation, "changes");
    const json_t *total = weft_page_object(page, simulation, "total");
    double energy = weft_page_number(page, simulation, "energy_j");
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX], c[WEFT_PAGE_NUMBER_MAX],
        d[WEFT_PAGE_NUMBER_MAX];
    char joules[WEFT_PAGE_NUMBER_MAX + 4];
    snprintf(joules, sizeof joules, "%s%s", weft_page_plain(energy, a), isnan(energy) ? "" : " J");
    weft_page_open(page, "Simulation");
    weft_page_paragraph(page,
                        "%s simulated: %s requests a second are answered within their SLOs, %s of "
                        "all are not; the slices are "
                        "busy %s of the time. Energy: %s.",
                        weft_page_time(1e6 * weft_page_number(page, simulation, "simulated_s"), a),
                        weft_page_plain(weft_page_number(page, total, "goodput_per_s"), b),
                        weft_page_percent(weft_page_number(page, total, "violations"), c),
                        weft_page_percent(weft_page_number(page, simulation, "utilisation"), d),
                        joules);
    if (json_array_size(models) > 0) {
        draw_latencies(page, models);
        put_models(page, models);
    }
    find_late(page, models);
    if (json_array_size(slices) > 0)
        draw_slices(page, slices);
    if (json_array_size(time) > 0)
        draw_time(page, time);
    if (json_array_size(changes) > 0)
        put_changes(page, changes);
    weft_page_close(page);
}
