/* The section of a measurement: times of each model beside what was estimated, its longest kernels,
 * joint programs. */
#include "tools/report/chart.h"

#include <math.h>

enum { ROWS_MAX = 40, KERNELS_SHOWN = 5 };

static const char *label_of(weft_page *page, const json_t *one, char *buf, size_t size)
{
    snprintf(buf, size, "%s, batch %llu", weft_page_word(page, one, "model"),
             (unsigned long long)weft_page_count(page, one, "batch"));
    return buf;
}

/* The member of the estimate; NAN: there is none. */
static double estimated(weft_page *page, const json_t *one, const char *key)
{
    const json_t *estimate = json_object_get(one, "estimate");
    return json_is_object(estimate) ? weft_page_number(page, estimate, key) : NAN;
}

static void draw_times(weft_page *page, const json_t *results)
{
    size_t n = json_array_size(results) < ROWS_MAX ? json_array_size(results) : ROWS_MAX;
    weft_axis axis = {.name = "time of a batch", .format = weft_page_time, .log = true};
    weft_chart chart;
    uint32_t color = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(results, i);
        weft_axis_cover(&axis, 1e3 * weft_page_number(page, one, "min_ms"));
        weft_axis_cover(&axis, 1e3 * weft_page_number(page, one, "p99_ms"));
        weft_axis_cover(&axis, estimated(page, one, "time_us"));
    }
    weft_chart_begin_rows(&chart, page, "Measured time of each model", axis, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(results, i);
        char label[256], title[WEFT_PAGE_NUMBER_MAX + 16], buf[WEFT_PAGE_NUMBER_MAX];
        double median = 1e3 * weft_page_number(page, one, "median_ms"),
               estimate = estimated(page, one, "time_us");
        /* A model has one colour, whatever its batches. */
        color += i > 0 && !json_equal(json_object_get(one, "model"),
                                      json_object_get(json_array_get(results, i - 1), "model"));
        weft_chart_row(&chart, label_of(page, one, label, sizeof label));
        weft_chart_bar(&chart, chart.x.lo, median, color, weft_page_time(median, buf));
        weft_chart_whisker(&chart, 1e3 * weft_page_number(page, one, "min_ms"),
                           1e3 * weft_page_number(page, one, "p99_ms"));
        if (estimate > 0) {
            snprintf(title, sizeof title, "estimated %s", weft_page_time(estimate, buf));
            weft_chart_limit(&chart, estimate, title);
        }
    }
    weft_chart_end(&chart, "Bars: the median; whiskers: the shortest run and 99 % of all. The "
                           "upright line is the estimate. The axis is logarithmic.");
}

static void put_times(weft_page *page, const json_t *results)
{
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Measurements",
                    "Model|#Batch|#Requests/s|#Shortest|#Median|#p99|#First run|#Runs|#Estimate|"
                    "#Measured / estimate|#Energy, J");
    for (size_t i = 0; i < json_array_size(results); i++) {
        static const char *const times[] = {"min_ms", "median_ms", "p99_ms", "first_ms"};
        const json_t *one = json_array_get(results, i);
        double estimate = estimated(page, one, "time_us"),
               median = 1e3 * weft_page_number(page, one, "median_ms");
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_word(page, one, "model"));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "batch"));
        weft_page_cell(page, "%s",
                       weft_page_plain(weft_page_number(page, one, "throughput_per_s"), buf));
        for (size_t k = 0; k < sizeof times / sizeof times[0]; k++)
            weft_page_cell(page, "%s",
                           weft_page_time(1e3 * weft_page_number(page, one, times[k]), buf));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "runs"));
        weft_page_cell(page, "%s", weft_page_time(estimate, buf));
        weft_page_cell(page, "%s", weft_page_factor(estimate > 0 ? median / estimate : NAN, buf));
        weft_page_cell(page, "%s", weft_page_plain(weft_page_number(page, one, "energy_j"), buf));
    }
    weft_page_end_table(page);
}

/* How many measurements are outside of what the estimates promise. */
static void find_errors(weft_page *page, const json_t *results)
{
    char label[256], buf[WEFT_PAGE_NUMBER_MAX];
    size_t n = 0, outside = 0;
    double most = 1, factor = 1;
    const json_t *worst = NULL;
    for (size_t i = 0; i < json_array_size(results); i++) {
        const json_t *one = json_array_get(results, i);
        double estimate = estimated(page, one, "time_us"),
               error = estimated(page, one, "expected_error"),
               ratio = 1e3 * weft_page_number(page, one, "median_ms") / estimate;
        if (!(ratio > 0) || !isfinite(ratio) || !(error >= 0))
            continue;
        double off = fmax(ratio, 1 / ratio);
        n++;
        outside += off > 1 + error;
        if (off > most) {
            most = off;
            factor = ratio;
            worst = one;
        }
    }
    if (n > 0 && outside == 0)
        weft_page_find(page, WEFT_PAGE_GOOD, "All %zu measurements are within the expected error.",
                       n);
    if (outside > 0)
        weft_page_find(page, WEFT_PAGE_NOTE,
                       "%zu of %zu measurements are further from the estimate than its expected "
                       "error; %s takes %s the estimate: weft calibrate fits estimates to this "
                       "machine.",
                       outside, n, label_of(page, worst, label, sizeof label),
                       weft_page_factor(factor, buf));
}

/* The longest kernels of one measurement, which has them with --per-kernel. */
static void put_kernels(weft_page *page, const json_t *one)
{
    const json_t *kernels = weft_page_list(page, one, "kernels");
    size_t n = json_array_size(kernels);
    double all = 0, before = HUGE_VAL;
    char label[256], buf[WEFT_PAGE_NUMBER_MAX];
    for (size_t i = 0; i < n; i++)
        all += fmax(weft_page_number(page, json_array_get(kernels, i), "time_us"), 0);
    label_of(page, one, label, sizeof label);
    for (size_t shown = 0, last = n; shown < KERNELS_SHOWN && shown < n; shown++) {
        const json_t *longest = NULL;
        double most = -1;
        size_t at = n;
        /* The next one in the order of time, then of place. */
        for (size_t i = 0; i < n; i++) {
            double us = weft_page_number(page, json_array_get(kernels, i), "time_us");
            bool later = us < before || (us == before && i > last);
            if (later && us > most) {
                most = us;
                at = i;
                longest = json_array_get(kernels, i);
            }
        }
        if (!longest)
            return;
        before = most;
        last = at;
        weft_page_row(page);
        weft_page_cell(page, "%s", label);
        weft_page_cell(page, "%s", weft_page_word(page, longest, "item"));
        weft_page_cell(page, "%s", weft_page_word(page, longest, "operator"));
        weft_page_cell(page, "%s", weft_page_word(page, longest, "variant"));
        weft_page_cell(page, "%s", weft_page_time(most, buf));
        weft_page_meter(page, all > 0 ? most / all : NAN, false);
        if (shown == 0 && all > 0 && most > all / 2)
            weft_page_find(page, WEFT_PAGE_NOTE, "%s: %s (%s) takes %s of the time.", label,
                           weft_page_word(page, longest, "item"),
                           weft_page_word(page, longest, "operator"),
                           weft_page_percent(most / all, buf));
    }
}

void weft_page_add_bench(weft_page *page, const json_t *bench)
{
    const json_t *results = weft_page_list(page, bench, "results"),
                 *joint = weft_page_list(page, bench, "joint");
    bool has_kernels = false;
    weft_page_open(page, "Measurements");
    if (json_array_size(results) > 0) {
        draw_times(page, results);
        put_times(page, results);
        find_errors(page, results);
    }
    for (size_t i = 0; i < json_array_size(results); i++)
        has_kernels |= json_object_get(json_array_get(results, i), "kernels") != NULL;
    if (has_kernels) {
        weft_page_table(page, "Kernels that take longest", "Model|Node|Operator|Kernel|#Time|Part");
        for (size_t i = 0; i < json_array_size(results) && i < ROWS_MAX; i++)
            if (json_object_get(json_array_get(results, i), "kernels"))
                put_kernels(page, json_array_get(results, i));
        weft_page_end_table(page);
    }
    if (json_array_size(joint) > 0)
        weft_page_put_joint(page, joint, true);
    weft_page_close(page);
}
