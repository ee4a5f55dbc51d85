/* The section of a compile report: corresponding GEMMs, strategies with their gains and reasons,
 * joint programs. */
#include "tools/report/chart.h"

#include <math.h>
#include <string.h>

enum { CHART_ROWS_MAX = 30, MERGES_MAX = 200 };

static void put_candidates(weft_page *page, const json_t *list)
{
    weft_buf *out = &page->body;
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_buf_printf(out, "<td><details><summary>%zu tried</summary><ul>", json_array_size(list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const json_t *small = json_object_get(one, "gain_small"),
                     *large = json_object_get(one, "gain_large");
        const char *reason = weft_page_word(page, one, "reason");
        weft_buf_puts(out, "<li>");
        weft_buf_put_xml(out, weft_page_word(page, one, "strategy"));
        if (json_is_number(small))
            weft_buf_printf(out, ": %s small",
                            weft_page_factor(weft_page_number(page, one, "gain_small"), buf));
        if (json_is_number(large))
            weft_buf_printf(out, ", %s large",
                            weft_page_factor(weft_page_number(page, one, "gain_large"), buf));
        if (*reason) {
            weft_buf_puts(out, ": ");
            weft_buf_put_xml(out, reason);
        }
        weft_buf_puts(out, "</li>");
    }
    weft_buf_puts(out, "</ul></details></td>");
    page->column++;
}

static void put_merges(weft_page *page, const json_t *merges)
{
    char buf[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(
        page, "Corresponding GEMMs of several models",
        "Node|Models|#Weights|Strategy|#Gain, small|#Gain, large|Joined|Reason|Candidates");
    for (size_t i = 0; i < json_array_size(merges) && i < MERGES_MAX; i++) {
        const json_t *one = json_array_get(merges, i), *joined = json_object_get(one, "joined");
        weft_page_row(page);
        weft_page_cell(page, "%s %s", weft_page_word(page, one, "op"),
                       weft_page_word(page, one, "item"));
        weft_page_cell(page, "%zu", json_array_size(weft_page_list(page, one, "models")));
        weft_page_cell(page, "%s",
                       weft_page_bytes((double)weft_page_count(page, one, "weight_bytes"), buf));
        weft_page_cell(page, "%s", weft_page_word(page, one, "strategy"));
        weft_page_cell(page, "%s",
                       weft_page_factor(weft_page_number(page, one, "gain_small"), buf));
        weft_page_cell(page, "%s",
                       weft_page_factor(weft_page_number(page, one, "gain_large"), buf));
        weft_page_cell(page, "%s", json_is_true(joined) ? "yes" : "no");
        weft_page_cell(page, "%s", weft_page_word(page, one, "reason"));
        put_candidates(page, weft_page_list(page, one, "candidates"));
    }
    weft_page_end_table(page);
    if (json_array_size(merges) > MERGES_MAX)
        weft_page_paragraph(page, "%zu more are left out here; the report has them.",
                            json_array_size(merges) - MERGES_MAX);
}

static void draw_gains(weft_page *page, const json_t *merges)
{
    weft_axis axis = {.name = "time apart / time joined", .format = weft_page_factor, .log = true};
    weft_chart chart;
    size_t n = json_array_size(merges) < CHART_ROWS_MAX ? json_array_size(merges) : CHART_ROWS_MAX;
    weft_axis_cover(&axis, 1);
    for (size_t i = 0; i < n; i++) {
        weft_axis_cover(&axis, weft_page_number(page, json_array_get(merges, i), "gain_small"));
        weft_axis_cover(&axis, weft_page_number(page, json_array_get(merges, i), "gain_large"));
    }
    weft_chart_begin_rows(&chart, page, "Predicted gain of each group of GEMMs", axis, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(merges, i);
        double small = weft_page_number(page, one, "gain_small"),
               large = weft_page_number(page, one, "gain_large");
        char title[96], buf[WEFT_PAGE_NUMBER_MAX];
        weft_chart_row(&chart, weft_page_word(page, one, "item"));
        weft_chart_limit(&chart, 1, "no gain");
        snprintf(title, sizeof title, "%s at small sizes", weft_page_factor(small, buf));
        weft_chart_dot(&chart, small, 0, title);
        snprintf(title, sizeof title, "%s at large sizes", weft_page_factor(large, buf));
        weft_chart_dot(&chart, large, 1, title);
    }
    weft_chart_end(&chart, n < json_array_size(merges)
                               ? "The first groups only. Line: no gain."
                               : "Line: no gain. Right of it joining is faster.");
    weft_chart_legend(page, (const char *const[]){"batch 1", "batch 8"}, 2);
}

void weft_page_put_joint(weft_page *page, const json_t *list, bool measured)
{
    weft_page_table(page,
                    measured ? "Joint programs, measured against their models"
                             : "Joint programs, as estimated",
                    "Program|#Batch|#Apart|#Joint|#Gain");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX];
        double gain = weft_page_number(page, one, "gain");
        unsigned long long batch = weft_page_count(page, one, "batch");
        const char *name = weft_page_word(page, one, "joint");
        weft_page_row(page);
        weft_page_cell(page, "%s", name);
        weft_page_cell(page, "%llu", batch);
        weft_page_cell(page, "%s",
                       weft_page_time(1e3 * weft_page_number(page, one, "apart_ms"), a));
        weft_page_cell(page, "%s",
                       weft_page_time(1e3 * weft_page_number(page, one, "joint_ms"), b));
        weft_page_cell(page, "%s", weft_page_factor(gain, a));
        if (measured && gain < 0.98)
            weft_page_find(page, WEFT_PAGE_BAD,
                           "Joint program %s is slower than its models at batch %llu (%.2fx, "
                           "measured): weft calibrate "
                           "fits the estimates to this machine, --merge off builds none.",
                           name, batch, gain);
    }
    weft_page_end_table(page);
}

/* Counts what is joined, and finds the reason that most of the others have. */
static void find_reasons(weft_page *page, const json_t *merges)
{
    size_t joined = 0, most = 0, n = json_array_size(merges);
    const char *reason = "";
    for (size_t i = 0; i < n; i++) {
        const char *one = weft_page_word(page, json_array_get(merges, i), "reason");
        size_t same = 0;
        bool is_joined = json_is_true(json_object_get(json_array_get(merges, i), "joined"));
        joined += is_joined;
        for (size_t k = 0; k < n && !is_joined && n <= 1000; k++)
            same += !json_is_true(json_object_get(json_array_get(merges, k), "joined")) &&
                    strcmp(one, weft_page_word(page, json_array_get(merges, k), "reason")) == 0;
        if (same > most) {
            most = same;
            reason = one;
        }
    }
    if (joined > 0)
        weft_page_find(page, WEFT_PAGE_GOOD, "%zu of %zu groups of corresponding GEMMs are joined.",
                       joined, n);
    if (most > 0)
        weft_page_find(page, WEFT_PAGE_NOTE,
                       "%zu of %zu groups of GEMMs are not joined; reason of %zu: %s.", n - joined,
                       n, most, reason);
}

void weft_page_add_merges(weft_page *page, const json_t *report)
{
    const json_t *merges = weft_page_list(page, report, "merges"),
                 *measured = json_object_get(report, "joint");
    const json_t *expected = weft_page_list(page, report, "expected");
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX];
    weft_page_open(page, "Merges");
    weft_page_paragraph(
        page, "%s of weights, each content once; %s more if every model had its own copies.",
        weft_page_bytes((double)weft_page_count(page, report, "weight_bytes"), a),
        weft_page_bytes((double)weft_page_count(page, report, "bytes_saved"), b));
    if (json_array_size(merges) > 0) {
        draw_gains(page, merges);
        put_merges(page, merges);
        find_reasons(page, merges);
    } else {
        weft_page_paragraph(page,
                            "No two models have corresponding GEMMs: there is nothing to merge.");
    }
    if (json_array_size(measured) > 0)
        weft_page_put_joint(page, measured, true);
    else if (json_array_size(expected) > 0)
        weft_page_put_joint(page, expected, false);
    weft_page_close(page);
}
