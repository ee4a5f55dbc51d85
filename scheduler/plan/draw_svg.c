/* Draws a plan as SVG: a row for each device, with its slices as boxes coloured by model, which
 * carry their names, loads and what is left of the SLOs, lines at MIG slots, a tooltip for each box
 * and a legend. Texts are escaped. Numbers have two decimals, so equal plans give equal bytes. */
#include "scheduler/plan/draw_int.h"

#include "base/shorten.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LEFT = 130,
    WIDTH = 840,
    ROW = 62,
    BOX = 54,
    TOP = 46,
    LINE = 15,
    LEGEND_COLUMNS = 4,
    LEGEND_ROW = 20
};

static const double letter = 6.6; /* width of a letter of 11 px */

/* Hues are a golden angle apart, and light enough for black text. */
static void put_color(weft_buf *buf, uint32_t color)
{
    double hue = fmod(color * 137.508, 360) / 60, light = color % 2 ? 0.82 : 0.72;
    double chroma = (1 - fabs(2 * light - 1)) * 0.62, x = chroma * (1 - fabs(fmod(hue, 2) - 1));
    double rgb[6][3] = {{chroma, x, 0}, {x, chroma, 0}, {0, chroma, x},
                        {0, x, chroma}, {x, 0, chroma}, {chroma, 0, x}};
    int sector = (int)hue % 6, part[3];
    for (int i = 0; i < 3; i++)
        part[i] = (int)((rgb[sector][i] + light - chroma / 2) * 255 + 0.5);
    weft_buf_printf(buf, "#%02x%02x%02x", part[0], part[1], part[2]);
}

static void put_title(weft_buf *buf, const weft_box *box)
{
    weft_buf_printf(buf, "<title>");
    for (uint32_t i = 0; i < box->n_place; i++) {
        const weft_placement *p = box->place[i];
        if (i > 0)
            weft_buf_printf(buf, "&#10;");
        weft_buf_put_xml(buf, p->model);
        weft_buf_printf(buf, ": ");
        weft_buf_put_xml(buf, p->slice[0] ? p->slice : "whole device");
        weft_buf_printf(buf, ", batch %u x %u, %.6g of %.6g/s, %.6g ms", p->batch, p->procs,
                        p->rate_per_s, p->capacity_per_s, p->latency_us / 1e3);
    }
    weft_buf_printf(buf, "</title>");
}

/* Letters that fit in a box. */
static size_t find_room(double width)
{
    return width > 8 ? (size_t)((width - 8) / letter) : 0;
}

static void put_short(weft_buf *buf, const char *text, size_t room)
{
    weft_buf fitting = {0};
    weft_buf_put_short(&fitting, text, room);
    weft_buf_put_xml(buf, fitting.at ? fitting.at : "");
    buf->failed = buf->failed || fitting.failed;
    weft_buf_finish(&fitting);
}

/* Writes what fits of a name, then the number: alone where both do not fit, as a part of it would
 * be another number. */
static void put_line(weft_buf *buf, const char *name, const char *number, int line, double x,
                     double y, double width)
{
    size_t room = find_room(width), len = strlen(number);
    if (room < 2 || room < len)
        return;
    weft_buf_printf(buf, "<text x=\"%.2f\" y=\"%.2f\">", x + 4, y + LINE * line);
    if (len == 0 || room > len + 3)
        put_short(buf, name, room - len);
    weft_buf_puts(buf, len == 0 || room > len + 3 ? number : number + (*number == ' '));
    weft_buf_printf(buf, "</text>");
}

/* The part of the SLO that the latency leaves; NAN: there is no SLO. */
static double find_headroom(const weft_demands *demands, const weft_placement *p)
{
    for (size_t i = 0; demands && i < demands->n; i++)
        if (strcmp(demands->at[i].model, p->model) == 0)
            return demands->at[i].slo_us > 0 ? 1 - p->latency_us / demands->at[i].slo_us : NAN;
    return NAN;
}

/* Three lines: models, slice and load, and what is left of the tightest SLO. */
static void put_lines(weft_buf *buf, const weft_box *box, const weft_demands *demands, double x,
                      double y, double width)
{
    char number[32] = "";
    const weft_placement *p = box->place[0];
    double load = 0, headroom = NAN;
    for (uint32_t i = 0; i < box->n_place; i++) {
        const weft_placement *one = box->place[i];
        load = one->capacity_per_s > 0 ? fmax(load, one->rate_per_s / one->capacity_per_s) : load;
        headroom = fmin(headroom, find_headroom(demands, one)); /* ignores NAN */
    }
    if (box->n_place > 1)
        snprintf(number, sizeof number, " +%u", box->n_place - 1);
    else if (p->procs > 1)
        snprintf(number, sizeof number, " x%u", p->procs);
    put_line(buf, p->model, number, 1, x, y, width);
    snprintf(number, sizeof number, " %.0f%%", 100 * load);
    put_line(buf, p->slice[0] ? p->slice : "whole", number, 2, x, y, width);
    if (isnan(headroom))
        return;
    snprintf(number, sizeof number, " %.0f%%", 100 * headroom);
    bool is_wide = find_room(width) >= strlen("headroom") + strlen(number);
    put_line(buf, is_wide ? "headroom" : "left", number, 3, x, y, width);
}

static void put_device(weft_buf *buf, const weft_drawn_device *d, const weft_demands *demands,
                       double y)
{
    weft_buf_printf(buf, "<text x=\"8\" y=\"%.2f\" class=\"head\">", y + BOX / 2.0 + 4);
    weft_buf_put_xml(buf, d->type);
    weft_buf_printf(buf, " %u</text>\n", d->number);
    weft_buf_printf(buf,
                    "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%d\" class=\"device\"/>\n",
                    LEFT, y, WIDTH, BOX);
    for (uint32_t i = 1; i < d->slots; i++)
        weft_buf_printf(
            buf, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" class=\"slot\"/>\n",
            LEFT + (double)WIDTH * i / d->slots, y, LEFT + (double)WIDTH * i / d->slots, y + BOX);
    for (uint32_t i = 0; i < d->n_box; i++) {
        const weft_box *box = &d->box[i];
        double x = LEFT + WIDTH * box->from, width = WIDTH * (box->to - box->from);
        weft_buf_printf(buf,
                        "<g><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\" rx=\"3\" "
                        "class=\"box\" fill=\"",
                        x + 0.5, y + 0.5, fmax(0, width - 1), BOX - 1);
        put_color(buf, box->color);
        weft_buf_printf(buf, "\">");
        put_title(buf, box);
        weft_buf_printf(buf, "</rect>");
        put_lines(buf, box, demands, x, y, width);
        weft_buf_printf(buf, "</g>\n");
    }
}

/* Columns of the legend: as many as the longest name leaves room for. */
static uint32_t count_columns(const weft_drawing *d)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < d->n_model; i++)
        longest = strlen(d->model[i]) > longest ? strlen(d->model[i]) : longest;
    double n = (LEFT + WIDTH) / (34 + letter * (double)longest);
    return n >= LEGEND_COLUMNS ? LEGEND_COLUMNS : n >= 1 ? (uint32_t)n : 1;
}

static void put_legend(weft_buf *buf, const weft_drawing *d, uint32_t columns, double y)
{
    for (uint32_t i = 0; i < d->n_model; i++) {
        double x = 8 + (double)(i % columns) * (LEFT + WIDTH) / columns;
        double line = y + (double)(i / columns) * LEGEND_ROW;
        weft_buf_printf(
            buf, "<rect x=\"%.2f\" y=\"%.2f\" width=\"12\" height=\"12\" class=\"box\" fill=\"", x,
            line);
        put_color(buf, i);
        weft_buf_printf(buf, "\"/><text x=\"%.2f\" y=\"%.2f\">", x + 18, line + 10);
        put_short(buf, d->model[i], (size_t)((LEFT + WIDTH - 26) / letter));
        weft_buf_printf(buf, "</text>\n");
    }
}

static void draw_svg(weft_buf *buf, const weft_plan *plan, const weft_drawing *d,
                     const weft_draw_options *options, weft_arena *arena)
{
    (void)arena;
    double legend = TOP + (double)d->n_device * ROW + 12;
    uint32_t columns = count_columns(d), lines = (d->n_model + columns - 1) / columns;
    double height = legend + (double)lines * LEGEND_ROW + 8;
    weft_buf_printf(buf,
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
                    "viewBox=\"0 0 %d %.0f\">\n"
                    "<style>text{font:11px monospace}.head{font-weight:bold}.title{font-size:14px}"
                    ".device{fill:#f4f4f4;stroke:#888}.slot{stroke:#ccc}"
                    ".box{stroke:#444;stroke-width:0.7}</style>\n"
                    "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                    "<text x=\"8\" y=\"24\" class=\"title\">",
                    LEFT + WIDTH + 12, height, LEFT + WIDTH + 12, height);
    weft_buf_put_xml(buf, plan->policy ? plan->policy : "plan");
    weft_buf_printf(buf, ": %u device%s, $%.2f/h, %.6g requests/s</text>\n", plan->gpus,
                    plan->gpus == 1 ? "" : "s", plan->cost_per_hour, plan->goodput_per_s);
    for (uint32_t i = 0; i < d->n_device; i++)
        put_device(buf, &d->device[i], options->demands, TOP + (double)i * ROW);
    put_legend(buf, d, columns, legend);
    weft_buf_printf(buf, "</svg>\n");
}

weft_err weft_plan_draw_svg(const weft_plan *plan, const weft_draw_options *options, char **out)
{
    return weft_drawing__write(plan, draw_svg, options, out);
}
