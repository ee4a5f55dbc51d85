/* The section of a plan: devices with their slices, how loaded each is, and how far from its SLO.
 */
#include "tools/report/chart.h"

#include "base/shorten.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 960, LEFT = 120, ROW = 74, BOX = 62, DEVICES_MAX = 200 };

/* -- Demands ----------------------------------------------------------------------------------- */

/* The SLO of a placement's model; 0: none. */
static double find_slo(weft_page *page, const json_t *plan, const char *model)
{
    const json_t *models = weft_page_list(page, plan, "models");
    for (size_t i = 0; i < json_array_size(models); i++)
        if (strcmp(weft_page_word(page, json_array_get(models, i), "model"), model) == 0)
            return weft_page_number(page, json_array_get(models, i), "slo_us");
    return 0;
}

/* The part of the capacity that is in use. */
static double find_load(weft_page *page, const json_t *place)
{
    double capacity = weft_page_number(page, place, "capacity_per_s");
    return capacity > 0 ? weft_page_number(page, place, "rate_per_s") / capacity : NAN;
}

/* The part of the SLO that the latency leaves; NAN: there is no SLO. */
static double find_headroom(weft_page *page, const json_t *plan, const json_t *place)
{
    double slo = find_slo(page, plan, weft_page_word(page, place, "model"));
    return slo > 0 ? 1 - weft_page_number(page, place, "latency_us") / slo : NAN;
}

/* -- Devices ----------------------------------------------------------------------------------- */

static const char *name_slice(const char *slice)
{
    return *slice ? slice : "whole";
}

/* Letters that fit into a box (px), at about 6.6 each. */
static size_t find_room(double width)
{
    return width > 14 ? (size_t)((width - 8) / 6.6) : 0;
}

/* A name, shortened to the width of its box. */
static void put_name(weft_buf *out, double x, double y, double width, const char *text)
{
    weft_buf fitting = {0};
    if (find_room(width) < 3)
        return;
    weft_buf_put_short(&fitting, text, find_room(width));
    weft_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", x, y);
    weft_buf_put_xml(out, fitting.at ? fitting.at : "");
    weft_buf_puts(out, "</text>");
    weft_buf_finish(&fitting);
}

/* A number with its word, or alone; nothing where that does not fit, as a part would be another
 * number. */
static void put_value(weft_buf *out, double x, double y, double width, const char *word,
                      const char *value)
{
    bool both = strlen(word) + 1 + strlen(value) <= find_room(width);
    if (!both && strlen(value) > find_room(width))
        return;
    weft_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">%s%s%s</text>", x, y, both ? word : "",
                    both ? " " : "", value);
}

/* Draws the slice of placements[first .. first + n - 1], which share it. */
static void draw_slice(weft_page *page, const json_t *plan, const json_t *places, size_t first,
                       size_t n, double x, double y, double width)
{
    weft_buf *out = &page->body, title = {0};
    const json_t *one = json_array_get(places, first);
    const char *slice = name_slice(weft_page_word(page, one, "slice"));
    double load = 0, headroom = NAN;
    char text[256], a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX];
    weft_buf_puts(&title, slice);
    for (size_t i = first; i < first + n; i++) {
        const json_t *place = json_array_get(places, i);
        double part = find_load(page, place), left = find_headroom(page, plan, place);
        load = fmax(load, part);
        headroom = isnan(headroom) ? left : fmin(headroom, isnan(left) ? headroom : left);
        weft_buf_printf(&title, "; %s: load %s, SLO headroom %s",
                        weft_page_word(page, place, "model"), weft_page_percent(part, a),
                        isnan(left) ? "none asked" : weft_page_percent(left, b));
    }
    weft_buf_printf(out,
                    "<g><rect class=\"box\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>",
                    x, y, width, BOX);
    weft_buf_printf(out,
                    "<rect class=\"c%d\" fill-opacity=\"0.35\" x=\"%.1f\" y=\"%.1f\" "
                    "width=\"%.1f\" height=\"%d\"/>",
                    load > 0.95 ? 5 : 4, x, y, width * fmin(load, 1), BOX);
    weft_buf_puts(out, "<title>");
    weft_buf_put_xml(out, title.at ? title.at : "");
    weft_buf_puts(out, "</title>");
    snprintf(text, sizeof text, "%s%s", weft_page_word(page, one, "model"),
             n > 1 ? " and others" : "");
    put_name(out, x + 4, y + 15, width, text);
    put_name(out, x + 4, y + 29, width, slice);
    put_value(out, x + 4, y + 43, width, "load", weft_page_percent(load, a));
    if (!isnan(headroom))
        put_value(out, x + 4, y + 57, width, "headroom", weft_page_percent(headroom, b));
    weft_buf_puts(out, "</g>\n");
    weft_buf_finish(&title);
}

static bool is_of_slice(weft_page *page, const json_t *a, const json_t *b)
{
    return weft_page_count(page, a, "device") == weft_page_count(page, b, "device") &&
           weft_page_count(page, a, "slice_id") == weft_page_count(page, b, "slice_id");
}

static double share_of(weft_page *page, const json_t *place)
{
    return fmin(fmax(weft_page_number(page, place, "share"), 0), 1);
}

/* What the slices of the device of placements[first] sum to, at least 1: MPS shares may be more
 * than the device. */
static double sum_shares(weft_page *page, const json_t *places, size_t first)
{
    double sum = 0;
    const json_t *place = json_array_get(places, first), *last = NULL;
    uint64_t device = weft_page_count(page, place, "device");
    for (size_t i = first; i < json_array_size(places); i++) {
        const json_t *one = json_array_get(places, i);
        if (weft_page_count(page, one, "device") != device)
            break;
        sum += last && is_of_slice(page, last, one) ? 0 : share_of(page, one);
        last = one;
    }
    return fmax(sum, 1);
}

/* Placements are sorted by device and slice. */
static void draw_devices(weft_page *page, const json_t *plan, const json_t *places)
{
    weft_buf *out = &page->body;
    size_t n = json_array_size(places), devices = 0;
    uint64_t last = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        uint64_t device = weft_page_count(page, json_array_get(places, i), "device");
        devices += device != last;
        last = device;
    }
    bool cut = devices > DEVICES_MAX;
    devices = cut ? DEVICES_MAX : devices;
    weft_buf_printf(out,
                    "<figure>\n<svg viewBox=\"0 0 %d %zu\" role=\"img\" aria-label=\"Devices with "
                    "their slices, load and "
                    "SLO headroom\">\n",
                    WIDTH, devices * ROW + 4);
    double x = LEFT, y = 2 - ROW, whole = 1;
    size_t row = 0;
    last = UINT64_MAX;
    for (size_t i = 0, same; i < n; i += same) {
        const json_t *place = json_array_get(places, i);
        uint64_t device = weft_page_count(page, place, "device");
        for (same = 1; i + same < n && is_of_slice(page, place, json_array_get(places, i + same));
             same++)
            continue;
        if (device != last) {
            if (row++ == devices)
                break;
            y += ROW;
            x = LEFT;
            last = device;
            whole = sum_shares(page, places, i);
            weft_buf_printf(out,
                            "<rect class=\"edge\" stroke-dasharray=\"3 3\" x=\"%d\" y=\"%.1f\" "
                            "width=\"%d\" height=\"%d\"/>"
                            "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                            LEFT, y, WIDTH - LEFT - 4, BOX, LEFT - 8, y + BOX / 2.0 + 4);
            weft_buf_put_xml(out, weft_page_word(page, place, "type"));
            weft_buf_printf(out, " %llu</text>\n", (unsigned long long)device);
        }
        double width = share_of(page, place) / whole * (WIDTH - LEFT - 4);
        draw_slice(page, plan, places, i, same, x, y, width);
        x += width;
    }
    weft_buf_printf(
        out,
        "</svg>\n<figcaption>%sEach row is a device, each box a slice as wide as its part of the "
        "device; the "
        "filled part is the load. What no box covers is free.</figcaption>\n</figure>\n",
        cut ? "The first devices only. " : "");
}

static void put_placements(weft_page *page, const json_t *plan, const json_t *places)
{
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX], c[WEFT_PAGE_NUMBER_MAX];
    weft_page_table(page, "Placements",
                    "Model|Device|Slice|#Batch|#Processes|#Requests/"
                    "s|#Capacity|Load|#Latency|#SLO|Headroom|#Memory|#Error");
    for (size_t i = 0; i < json_array_size(places); i++) {
        const json_t *one = json_array_get(places, i);
        double load = find_load(page, one), headroom = find_headroom(page, plan, one);
        double slo = find_slo(page, plan, weft_page_word(page, one, "model"));
        double memory = (double)weft_page_count(page, one, "mem_bytes");
        weft_page_row(page);
        weft_page_cell(page, "%s", weft_page_word(page, one, "model"));
        weft_page_cell(page, "%s %llu", weft_page_word(page, one, "type"),
                       (unsigned long long)weft_page_count(page, one, "device"));
        weft_page_cell(page, "%s", name_slice(weft_page_word(page, one, "slice")));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "batch"));
        weft_page_cell(page, "%llu", (unsigned long long)weft_page_count(page, one, "procs"));
        weft_page_cell(page, "%s", weft_page_plain(weft_page_number(page, one, "rate_per_s"), a));
        weft_page_cell(page, "%s",
                       weft_page_plain(weft_page_number(page, one, "capacity_per_s"), b));
        weft_page_meter(page, load, load > 0.95);
        weft_page_cell(page, "%s", weft_page_time(weft_page_number(page, one, "latency_us"), a));
        weft_page_cell(page, "%s", slo > 0 ? weft_page_time(slo, b) : "none");
        weft_page_meter(page, headroom, headroom < 0.1);
        weft_page_cell(page, "%s", memory > 0 ? weft_page_bytes(memory, c) : "not known");
        weft_page_cell(page, "%s",
                       weft_page_percent(weft_page_number(page, one, "expected_error"), c));
    }
    weft_page_end_table(page);
}

/* -- Findings ---------------------------------------------------------------------------------- */

static void find_limits(weft_page *page, const json_t *plan, const json_t *places)
{
    size_t full = 0, tight = 0;
    const char *full_name = "", *tight_name = "";
    char a[WEFT_PAGE_NUMBER_MAX];
    double most = 0, least = 1;
    for (size_t i = 0; i < json_array_size(places); i++) {
        const json_t *one = json_array_get(places, i);
        double load = find_load(page, one), headroom = find_headroom(page, plan, one);
        const char *name = weft_page_word(page, one, "model");
        full += load > 0.95;
        full_name = load > most ? name : full_name;
        most = fmax(most, load);
        tight += headroom < 0.1;
        tight_name = headroom < least ? name : tight_name;
        least = fmin(least, headroom);
    }
    if (full)
        weft_page_find(page, WEFT_PAGE_BAD,
                       "%zu of %zu placements are loaded above 95 %% of their capacity (%s most): "
                       "requests that come at random "
                       "will queue. weft plan --rule queue keeps room for them.",
                       full, json_array_size(places), full_name);
    else if (most > 0)
        weft_page_find(page, WEFT_PAGE_GOOD,
                       "No slice is loaded above %s of its capacity; the fullest has %s.",
                       weft_page_percent(most, a), full_name);
    if (tight)
        weft_page_find(page, WEFT_PAGE_NOTE,
                       "%zu placements have less than 10 %% of their SLO left (%s least): the "
                       "expected error of the estimates may "
                       "be more. weft plan --confidence 0.9 plans for it.",
                       tight, tight_name);
}

static void find_gap(weft_page *page, const json_t *plan)
{
    double gap = json_object_get(plan, "gap") ? weft_page_number(page, plan, "gap") : 0;
    char a[WEFT_PAGE_NUMBER_MAX];
    if (json_is_true(json_object_get(plan, "proven")))
        weft_page_find(page, WEFT_PAGE_GOOD,
                       "No plan within the rules is cheaper: that is proven.");
    else if (gap > 0)
        weft_page_find(
            page, WEFT_PAGE_NOTE,
            "The plan may cost up to %s more than the best one; weft plan --compare shows what "
            "other policies find.",
            weft_page_percent(gap, a));
}

void weft_page_add_plan(weft_page *page, const json_t *plan)
{
    const json_t *places = weft_page_list(page, plan, "placements");
    double cost = weft_page_number(page, plan, "cost_per_hour");
    char a[WEFT_PAGE_NUMBER_MAX], b[WEFT_PAGE_NUMBER_MAX];
    weft_page_open(page, "Plan");
    weft_page_paragraph(page,
                        "Policy %s, goal %s, latency rule %s. Devices: %llu, at %s dollars an "
                        "hour; they carry %s requests a second.",
                        weft_page_word(page, plan, "policy"), weft_page_word(page, plan, "goal"),
                        weft_page_word(page, weft_page_object(page, plan, "rules"), "latency"),
                        (unsigned long long)weft_page_count(page, plan, "gpus"),
                        weft_page_plain(cost, a),
                        weft_page_plain(weft_page_number(page, plan, "goodput_per_s"), b));
    if (json_array_size(places) > 0) {
        draw_devices(page, plan, places);
        put_placements(page, plan, places);
        find_limits(page, plan, places);
    }
    find_gap(page, plan);
    weft_page_close(page);
}
