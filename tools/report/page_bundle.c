/* The section of a bundle: its models, what weights they share, joint programs, recorded estimates.
 */
#include "tools/report/chart.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 40, SHARES_MAX = 64, BATCHES_MAX = 6 };

static void put_ports(weft_page *page, const json_t *model, const char *key)
{
    const json_t *list = weft_page_list(page, model, key);
    weft_buf text = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *port = json_array_get(list, i), *shape = weft_page_list(page, port, "shape");
        weft_buf_printf(&text, "%s%s %s[", i ? ", " : "", weft_page_word(page, port, "name"),
                        weft_page_word(page, port, "dtype"));
        for (size_t k = 0; k < json_array_size(shape); k++) {
            const json_t *dim = json_array_get(shape, k);
            if (json_is_integer(dim))
                weft_buf_printf(&text, "%s%lld", k ? "," : "", (long long)json_integer_value(dim));
            else
                weft_buf_printf(&text, "%s%s", k ? "," : "",
                                json_is_string(dim) ? json_string_value(dim) : "?");
        }
        weft_buf_puts(&text, "]");
    }
    weft_page_cell(page, "%s", text.at ? text.at : "");
    weft_buf_finish(&text);
}

static void put_models(weft_page *page, const json_t *models)
{
    char buf[WEFT_PAGE_NUMBER_MAX], other[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Models of the bundle",
                    "Model|Inputs|Outputs|#Launches|#Weights|#SLO|#Requests/s");
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i);
        double slo = weft_page_number(page, model, "slo_us"),
               rate = weft_page_number(page, model, "rate_per_s");
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_word(page, model, "name"));
        put_ports(page, model, "inputs");
        put_ports(page, model, "outputs");
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, model, "nodes"));
        weft_page_cell(page, "%s",
                       weft_page_bytes((double)weft_page_count(
                                           page, weft_page_object(page, model, "weights"), "bytes"),
                                       buf));
        weft_page_cell(page, "%s", slo > 0 ? weft_page_time(slo, buf) : "none");
        weft_page_cell(page, "%s", rate > 0 ? weft_page_plain(rate, other) : "none");
    }
    weft_page_end_table(page);
}

/* -- Shared weights ---------------------------------------------------------------------------- */

/* The names of a list, not escaped. */
static void put_names(weft_buf *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        weft_buf_puts(out, i ? ", " : "");
        weft_buf_puts(out, name ? name : "?");
    }
}

static bool has_name(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

static void draw_model(weft_chart *chart, weft_page *page, const json_t *model,
                       const json_t *shared)
{
    const char *name = weft_page_word(page, model, "name");
    char buf[WEFT_PAGE_NUMBER_MAX];
    double at = 0,
           all = (double)weft_page_count(page, weft_page_object(page, model, "weights"), "bytes");
    weft_chart_row(chart, name);
    for (size_t i = 0; i < json_array_size(shared); i++) {
        const json_t *one = json_array_get(shared, i), *users = weft_page_list(page, one, "models");
        double bytes = (double)weft_page_count(page, one, "bytes");
        if (!has_name(users, name))
            continue;
        weft_buf title = {0};
        weft_buf_printf(&title, "%s shared by ", weft_page_bytes(bytes, buf));
        put_names(&title, users);
        weft_chart_bar(chart, at, at + bytes, (uint32_t)i + 1, title.at ? title.at : "");
        weft_buf_finish(&title);
        at += bytes;
    }
    if (all > at) {
        char title[WEFT_PAGE_NUMBER_MAX + 32];
        snprintf(title, sizeof title, "%s of its own", weft_page_bytes(all - at, buf));
        weft_chart_bar(chart, at, all, 0, title);
    }
}

static void draw_sharing(weft_page *page, const json_t *models, const json_t *shared)
{
    size_t n = json_array_size(models) < ROWS_MAX ? json_array_size(models) : ROWS_MAX;
    weft_axis axis = {.name = "weights", .format = weft_page_bytes};
    weft_chart chart;
    const char *legend[WEFT_PAGE_COLORS];
    weft_buf names[WEFT_PAGE_COLORS] = {{0}};
    uint32_t n_name = 1;
    for (size_t i = 0; i < n; i++)
        weft_axis_cover(
            &axis,
            (double)weft_page_count(
                page, weft_page_object(page, json_array_get(models, i), "weights"), "bytes"));
    weft_chart_begin_rows(&chart, page, "Weights of each model, its own and shared", axis,
                          (uint32_t)n);
    for (size_t i = 0; i < n; i++)
        draw_model(&chart, page, json_array_get(models, i), shared);
    weft_chart_end(
        &chart,
        n < json_array_size(models)
            ? "The first models only. Weights that several models use are stored and loaded once."
            : "Weights that several models use are stored and loaded once.");
    weft_buf_puts(&names[0], "of one model");
    for (size_t i = 0; i < json_array_size(shared) && n_name < WEFT_PAGE_COLORS; i++) {
        const json_t *users = weft_page_list(page, json_array_get(shared, i), "models");
        weft_buf_printf(&names[n_name++], "set %zu: %zu models", i + 1, json_array_size(users));
    }
    for (uint32_t i = 0; i < n_name; i++)
        legend[i] = names[i].at ? names[i].at : "";
    weft_chart_legend(page, legend, n_name);
    for (uint32_t i = 0; i < n_name; i++)
        weft_buf_finish(&names[i]);
}

static void put_shared(weft_page *page, const json_t *shared)
{
    char buf[WEFT_PAGE_NUMBER_MAX], other[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Sets of models that use the same weights",
                    "#Set|Models|#Weights|#Size|#Saved");
    for (size_t i = 0; i < json_array_size(shared) && i < SHARES_MAX; i++) {
        const json_t *one = json_array_get(shared, i);
        weft_buf names = {0};
        put_names(&names, weft_page_list(page, one, "models"));
        weft_page_row(page);
        weft_page_cell(page, "%zu", i + 1);
        weft_page_cell(page, "%s", names.at ? names.at : "");
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "count"));
        weft_page_cell(page, "%s",
                       weft_page_bytes((double)weft_page_count(page, one, "bytes"), buf));
        weft_page_cell(page, "%s",
                       weft_page_bytes((double)weft_page_count(page, one, "saved_bytes"), other));
        weft_buf_finish(&names);
    }
    weft_page_end_table(page);
}

static void put_joint(weft_page *page, const json_t *joint)
{
    weft_page_table(page, "Joint programs, which run several models at once",
                    "Program|Models|#Launches|#Launches of its models apart|#Up to input elements");
    for (size_t i = 0; i < json_array_size(joint); i++) {
        const json_t *one = json_array_get(joint, i), *models = weft_page_list(page, one, "models");
        unsigned long long limit = weft_page_count(page, one, "limit");
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_word(page, one, "name"));
        weft_page_cell(page, "%zu", json_array_size(models));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "launches"));
        weft_page_cell(page, "%llu",
                       (unsigned long long)weft_page_count(page, one, "launches_apart"));
        if (limit)
            weft_page_cell(page, "%llu", limit);
        else
            weft_page_cell(page, "any");
    }
    weft_page_end_table(page);
}

/* -- Estimates --------------------------------------------------------------------------------- */

/* Whether a point is of the slice that the first point has, and of one process. */
static bool is_shown(const json_t *point, const json_t *first)
{
    return json_equal(json_object_get(point, "device"), json_object_get(first, "device")) &&
           json_equal(json_object_get(point, "slice"), json_object_get(first, "slice")) &&
           json_integer_value(json_object_get(point, "procs")) == 1;
}

/* Calls for each point that is shown; with a chart it draws them, else it widens the axis. Returns
 * their number. */
static uint32_t each_point(weft_page *page, const json_t *models, const json_t *first,
                           weft_axis *axis, weft_chart *chart)
{
    uint32_t rows = 0;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i),
                     *profile = weft_page_list(page, model, "profile");
        uint32_t of_model = 0;
        for (size_t k = 0;
             k < json_array_size(profile) && rows < ROWS_MAX && of_model < BATCHES_MAX; k++) {
            const json_t *point = json_array_get(profile, k);
            double time = weft_page_number(page, point, "time_us"),
                   error = weft_page_number(page, point, "expected_error");
            char label[160], buf[WEFT_PAGE_NUMBER_MAX];
            if (!is_shown(point, first))
                continue;
            rows++;
            of_model++;
            weft_axis_cover(axis, time * (1 + error));
            weft_axis_cover(axis, time / (1 + error));
            if (!chart)
                continue;
            snprintf(label, sizeof label, "%s, batch %llu", weft_page_word(page, model, "name"),
                     (unsigned long long)weft_page_count(page, point, "batch"));
            weft_chart_row(chart, label);
            weft_chart_bar(chart, chart->x.lo, time, (uint32_t)i, weft_page_time(time, buf));
            weft_chart_whisker(chart, time / (1 + error), time * (1 + error));
        }
    }
    return rows;
}

static void draw_profiles(weft_page *page, const json_t *models)
{
    const json_t *first = NULL;
    for (size_t i = 0; i < json_array_size(models) && !first; i++)
        first = json_array_get(weft_page_list(page, json_array_get(models, i), "profile"), 0);
    if (!first) {
        weft_page_find(
            page, WEFT_PAGE_NOTE,
            "The bundle has no estimates: compile it with --gpu NAME to plan and to report times.");
        return;
    }
    char title[160];
    const char *slice = weft_page_word(page, first, "slice");
    weft_axis axis = {.name = "time of a batch", .format = weft_page_time, .log = true};
    weft_chart chart;
    uint32_t n = each_point(page, models, first, &axis, NULL);
    snprintf(title, sizeof title, "Estimated times on %s %s", weft_page_word(page, first, "device"),
             *slice ? slice : "(whole)");
    weft_page_heading(page, title);
    weft_chart_begin_rows(&chart, page, title, axis, n);
    each_point(page, models, first, &axis, &chart);
    weft_chart_end(
        &chart, "Whiskers: the expected relative error of each estimate. The axis is logarithmic.");
}

void weft_page_add_bundle(weft_page *page, const json_t *inspected)
{
    const json_t *models = weft_page_list(page, inspected, "models"),
                 *shared = weft_page_list(page, inspected, "shared");
    const json_t *joint = weft_page_list(page, inspected, "joint"),
                 *weights = weft_page_object(page, inspected, "weights");
    double stored = (double)weft_page_count(page, weights, "bytes");
    double saved = (double)weft_page_count(page, weights, "saved_bytes");
    double size = (double)weft_page_count(page, inspected, "bytes");
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX], c[WEFT_PAGE_NUMBER_MAX];
    weft_page_open(page, "Models and shared weights");
    weft_page_paragraph(
        page, "%zu models for %s, %s, made by %s. %s of weights are stored; sharing saves %s.",
        json_array_size(models), weft_page_word(page, inspected, "target"),
        weft_page_bytes(size, a), weft_page_word(page, inspected, "tool"),
        weft_page_bytes(stored, b), weft_page_bytes(saved, c));
    put_models(page, models);
    if (json_array_size(models) > 0)
        draw_sharing(page, models, shared);
    if (json_array_size(shared) > 0)
        put_shared(page, shared);
    if (json_array_size(joint) > 0)
        put_joint(page, joint);
    if (saved > 0)
        weft_page_find(page, WEFT_PAGE_GOOD, "Sharing weights saves %s of %s (%s).",
                       weft_page_bytes(saved, a), weft_page_bytes(stored + saved, b),
                       weft_page_percent(saved / (stored + saved), c));
    else if (json_array_size(models) > 1)
        weft_page_find(
            page, WEFT_PAGE_NOTE,
            "No two models have a weight in common: nothing is stored once for several.");
    draw_profiles(page, models);
    weft_page_close(page);
}
