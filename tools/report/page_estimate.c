/* The section of an estimate: times with their bands, memory, what bounds each model, and a
 * roofline of its kernels. */
#include "estimator/estimator.h"
#include "base/file.h"
#include "tools/report/chart.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = 40, POINTS_MAX = 4000, ROOFLINES_MAX = 8 };

/* A 90 % band of the time where one is known, else the expected error. */
static void find_band(weft_page *page, const json_t *entry, double *out_lo, double *out_hi)
{
    double time = weft_page_number(page, entry, "time_us"),
           error = weft_page_number(page, entry, "expected_error");
    double lo = NAN, hi = NAN;
    if (json_object_get(entry, "time_p5_us")) {
        lo = weft_page_number(page, entry, "time_p5_us");
        hi = weft_page_number(page, entry, "time_p95_us");
    }
    *out_lo = isnan(lo) ? time / (1 + error) : lo;
    *out_hi = isnan(hi) ? time * (1 + error) : hi;
}

static void draw_times(weft_page *page, const json_t *models)
{
    size_t n = json_array_size(models) < ROWS_MAX ? json_array_size(models) : ROWS_MAX;
    weft_axis axis = {.name = "time of a batch", .format = weft_page_time, .log = true};
    weft_chart chart;
    double lo, hi;
    uint32_t color = 0;
    for (size_t i = 0; i < n; i++) {
        find_band(page, json_array_get(models, i), &lo, &hi);
        weft_axis_cover(&axis, lo);
        weft_axis_cover(&axis, hi);
        weft_axis_cover(&axis, weft_page_number(page, json_array_get(models, i), "time_us"));
    }
    weft_chart_begin_rows(&chart, page, "Estimated time of each model", axis, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(models, i);
        char label[256], buf[WEFT_PAGE_NUMBER_MAX];
        double time = weft_page_number(page, one, "time_us");
        snprintf(label, sizeof label, "%s, batch %llu", weft_page_word(page, one, "name"),
                 (unsigned long long)weft_page_count(page, one, "batch"));
        find_band(page, one, &lo, &hi);
        /* A model has one colour, whatever its batches. */
        color += i > 0 && !json_equal(json_object_get(one, "name"),
                                      json_object_get(json_array_get(models, i - 1), "name"));
        weft_chart_row(&chart, label);
        weft_chart_bar(&chart, chart.x.lo, time, color, weft_page_time(time, buf));
        weft_chart_whisker(&chart, lo, hi);
    }
    weft_chart_end(
        &chart,
        "Whiskers: where 90 % of measurements are expected, or the expected error. The axis is "
        "logarithmic.");
}

static void put_times(weft_page *page, const json_t *models)
{
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Estimates",
                    "Model|Device|#Batch|#Time|#Requests/s|Compute units in "
                    "use|#Memory|Fits|#Energy, J|Source|#Error");
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *one = json_array_get(models, i), *fits = json_object_get(one, "fits");
        double batch = (double)weft_page_count(page, one, "batch");
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_word(page, one, "name"));
        weft_page_cell(page, "%s %s", weft_page_word(page, one, "device"),
                       weft_page_word(page, one, "slice"));
        weft_page_cell(page, "%.0f", batch);
        weft_page_cell(page, "%s", weft_page_time(weft_page_number(page, one, "time_us"), buf));
        weft_page_cell(page, "%s",
                       weft_page_plain(weft_page_number(page, one, "throughput_per_s"), buf));
        weft_page_meter(page, weft_page_number(page, one, "creq"), false);
        weft_page_cell(page, "%s",
                       weft_page_bytes((double)weft_page_count(page, one, "mreq_bytes"), buf));
        weft_page_cell(page, "%s",
                       json_is_boolean(fits) ? json_is_true(fits) ? "yes" : "no" : "not known");
        weft_page_cell(page, "%s", weft_page_plain(weft_page_number(page, one, "energy_j"), buf));
        weft_page_cell(page, "%s", weft_page_word(page, one, "source"));
        weft_page_cell(page, "%s",
                       weft_page_percent(weft_page_number(page, one, "expected_error"), buf));
        if (json_is_false(fits))
            weft_page_find(
                page, WEFT_PAGE_BAD,
                "%s at batch %.0f does not fit into %s %s: a larger slice, or a smaller batch.",
                weft_page_word(page, one, "name"), batch, weft_page_word(page, one, "device"),
                weft_page_word(page, one, "slice"));
    }
    weft_page_end_table(page);
}

/* What bounds most of the time, of how many estimates, and what helps. */
static void find_bounds(weft_page *page, const json_t *models)
{
    static const struct {
        const char *key, *what, *help;
    } bounds[] = {
        {"launch", "launches of kernels",
         "larger batches, or joint programs of several models, do more in a kernel"},
        {"memory", "reading and writing memory",
         "larger batches reuse weights; --precision halves the bytes"},
        {"compute", "arithmetic", "a larger slice is faster; --precision uses faster units"}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        size_t n = 0;
        double most = 0;
        const json_t *worst = NULL;
        for (size_t k = 0; k < json_array_size(models); k++) {
            const json_t *one = json_array_get(models, k), *bound = json_object_get(one, "bound");
            /* Estimates in a bundle do not tell. */
            double part = bound ? weft_page_number(page, bound, bounds[i].key) : 0;
            n += part >= 0.5;
            worst = part > most ? one : worst;
            most = fmax(most, part);
        }
        if (n > 0)
            weft_page_find(
                page, WEFT_PAGE_NOTE,
                "%zu of %zu estimates are bound by %s for most of their time (%s at batch "
                "%llu: %.0f %%): %s.",
                n, json_array_size(models), bounds[i].what, weft_page_word(page, worst, "name"),
                (unsigned long long)weft_page_count(page, worst, "batch"), most * 100,
                bounds[i].help);
    }
}

/* -- Roofline ---------------------------------------------------------------------------------- */

/* A kernel as a point: operations per byte, and operations per second (1e9). */
static bool find_point(weft_page *page, const json_t *kernel, double *out_x, double *out_y)
{
    double flops = weft_page_number(page, kernel, "flops"),
           bytes = weft_page_number(page, kernel, "bytes");
    double time = weft_page_number(page, kernel, "time_us");
    double launches = (double)weft_page_count(page, kernel, "launches");
    *out_x = flops / bytes;
    *out_y = flops * launches / time * 1e-3;
    return flops > 0 && bytes > 0 && time > 0;
}

static bool is_on_slice(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "device"), json_object_get(b, "device")) &&
           json_equal(json_object_get(a, "slice"), json_object_get(b, "slice"));
}

/* The highest peak that `--explain` tells of; 0: it was not given. */
static double find_peak(weft_page *page, const json_t *kernels)
{
    double peak = 0;
    for (size_t i = 0; i < json_array_size(kernels); i++) {
        const json_t *explain = json_object_get(json_array_get(kernels, i), "explain");
        if (explain)
            peak = fmax(peak, weft_page_number(page, explain, "peak_gflops"));
    }
    return peak;
}

static void draw_roofs(weft_chart *chart, double peak, double bandwidth)
{
    const double lo = chart->x.lo, hi = chart->x.hi;
    double ridge = peak > 0 && bandwidth > 0 ? peak / bandwidth : hi;
    double end = fmin(fmax(ridge, lo), hi);
    char label[64], buf[WEFT_PAGE_NUMBER_MAX];
    if (bandwidth > 0 && ridge > lo) {
        snprintf(label, sizeof label, "memory: %s GB/s", weft_page_plain(bandwidth, buf));
        weft_chart_line(chart, lo, lo * bandwidth, end, end * bandwidth, label);
    }
    if (peak > 0 && ridge < hi) {
        snprintf(label, sizeof label, "arithmetic: %s GFLOP/s", weft_page_plain(peak, buf));
        weft_chart_line(chart, fmax(ridge, lo), peak, hi, peak, label);
    }
}

static const json_t *kernels_of(const json_t *entry)
{
    const json_t *all = json_object_get(entry, "kernels");
    return all ? all : json_object_get(entry, "dearest");
}

/* Calls for each kernel of the entries on the slice of `first`; with a chart it draws points, else
 * it widens the axes and the peak. */
static void each_kernel(weft_page *page, const json_t *models, const json_t *first, weft_axis *x,
                        weft_axis *y, double *peak, weft_chart *chart)
{
    size_t drawn = 0;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *entry = json_array_get(models, i), *kernels = kernels_of(entry);
        if (!is_on_slice(entry, first))
            continue;
        *peak = fmax(*peak, find_peak(page, kernels));
        for (size_t k = 0; k < json_array_size(kernels) && drawn < POINTS_MAX; k++) {
            const json_t *kernel = json_array_get(kernels, k);
            const char *bound = weft_page_word(page, kernel, "bound");
            char title[768], buf[WEFT_PAGE_NUMBER_MAX];
            double px, py;
            if (!find_point(page, kernel, &px, &py))
                continue;
            drawn++;
            weft_axis_cover(x, px);
            weft_axis_cover(y, py);
            if (!chart)
                continue;
            snprintf(title, sizeof title, "%s, batch %llu: %s (%s), %s, bound by %s",
                     weft_page_word(page, entry, "name"),
                     (unsigned long long)weft_page_count(page, entry, "batch"),
                     weft_page_word(page, kernel, "name"), weft_page_word(page, kernel, "op"),
                     weft_page_time(weft_page_number(page, kernel, "time_us"), buf), bound);
            weft_chart_point(chart, px, py, *bound == 'c' ? 0 : *bound == 'm' ? 1 : 2, title);
        }
    }
}

/* The roofline of all entries on the slice of `first`. */
static void draw_roofline(weft_page *page, const json_t *models, const json_t *first)
{
    weft_axis x = {.name = "operations per byte", .format = weft_page_plain, .log = true};
    weft_axis y = {.name = "GFLOP/s", .format = weft_page_plain, .log = true};
    const char *device = weft_page_word(page, first, "device"),
               *slice_name = weft_page_word(page, first, "slice");
    double peak = 0;
    weft_slice slice = {0};
    weft_diag *diag = weft_diag_create();
    /* A device that this build does not know has no memory roof. */
    if (diag && weft_slice_make(device, slice_name, diag, &slice) != WEFT_ERR_OK)
        slice.bandwidth_gbps = 0;
    weft_diag_destroy(diag);
    each_kernel(page, models, first, &x, &y, &peak, NULL);
    if (x.hi == 0)
        return;
    weft_axis_cover(&y, peak);
    if (peak > 0 && slice.bandwidth_gbps > 0)
        weft_axis_cover(&x, peak / slice.bandwidth_gbps);
    weft_chart chart;
    char title[256];
    snprintf(title, sizeof title, "Roofline of the kernels on %s %s", device,
             *slice_name ? slice_name : "(whole)");
    weft_page_heading(page, title);
    weft_chart_begin_points(&chart, page, title, x, y);
    draw_roofs(&chart, peak, slice.bandwidth_gbps);
    each_kernel(page, models, first, &x, &y, &peak, &chart);
    weft_chart_end(
        &chart,
        peak > 0
            ? "Each point is a kernel. The lines are what the slice can reach; kernels that read "
              "from "
              "the cache may be above the memory's line."
            : "Each point is a kernel. weft estimate --explain adds the peak of the arithmetic.");
    weft_chart_legend(
        page, (const char *const[]){"bound by arithmetic", "bound by memory", "bound by launches"},
        3);
}

/* Whether an entry has kernels and none before it is on the same slice. */
static bool begins_slice(const json_t *models, size_t at)
{
    const json_t *entry = json_array_get(models, at);
    if (json_array_size(kernels_of(entry)) == 0)
        return false;
    for (size_t i = 0; i < at; i++)
        if (is_on_slice(json_array_get(models, i), entry) &&
            json_array_size(kernels_of(json_array_get(models, i))) > 0)
            return false;
    return true;
}

weft_err weft_page_draw_estimate(const json_t *estimate, const char *path, weft_diag *diag)
{
    weft_page page = {.is_picture = true};
    const json_t *models = weft_page_list(&page, estimate, "models");
    size_t i = 0;
    while (i < json_array_size(models) && !begins_slice(models, i))
        i++;
    draw_roofline(&page, models, json_array_get(models, i));
    weft_err err = page.body.failed ? WEFT_ERR_NOMEM : WEFT_ERR_OK;
    if (err == WEFT_ERR_OK && page.n_chart == 0)
        err = weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.file = path},
                              "there are no kernels to draw");
    if (err == WEFT_ERR_OK)
        err = weft_file_write(path, page.body.at, page.body.len, diag);
    weft_page_finish(&page);
    return err;
}

void weft_page_add_estimate(weft_page *page, const json_t *estimate)
{
    const json_t *models = weft_page_list(page, estimate, "models");
    size_t rooflines = 0;
    weft_page_open(page, "Estimates");
    if (json_array_size(models) > 0) {
        draw_times(page, models);
        put_times(page, models);
        find_bounds(page, models);
    }
    for (size_t i = 0; i < json_array_size(models) && rooflines < ROOFLINES_MAX; i++)
        if (begins_slice(models, i)) {
            draw_roofline(page, models, json_array_get(models, i));
            rooflines++;
        }
    weft_page_close(page);
}
