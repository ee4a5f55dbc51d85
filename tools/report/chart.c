/* Charts as SVG. */
#include "tools/report/chart.h"

#include "base/page_style.h"
#include "base/shorten.h"

#include <math.h>
#include <string.h>

/* What a logarithmic axis can have, and the least length of another one. */
static const double small = 1e-30;

enum {
    WIDTH = 960,
    LEFT = 210,
    RIGHT = 24,
    ROW = 26,
    BAR = 16,
    TOP = 8,
    AXIS = 42,
    POINTS = 380,
    LABEL_MAX = 28,
    LEGEND_ROW = 24
};

void weft_axis_cover(weft_axis *axis, double x)
{
    if (!isfinite(x) || (axis->log && x < small))
        return;
    bool none = axis->lo == 0 && axis->hi == 0;
    axis->lo = none || x < axis->lo ? x : axis->lo;
    axis->hi = none || x > axis->hi ? x : axis->hi;
}

/* Leaves room at the ends; an axis that is not logarithmic begins at 0 if it may. The ends are so
 * far apart that ticks differ. */
static weft_axis widen(weft_axis axis)
{
    if (axis.log) {
        if (axis.lo <= 0)
            axis.lo = axis.hi = 1;
        axis.lo /= 1.3;
        axis.hi *= 1.3;
        return axis;
    }
    axis.lo = fmin(axis.lo, 0);
    axis.hi *= 1.04;
    if (!(axis.hi - axis.lo > 1e-9 * fabs(axis.lo) + small))
        axis.hi = axis.lo + fmax(fabs(axis.lo), 1);
    return axis;
}

static double place(const weft_axis *axis, double x, double from, double to)
{
    double part = axis->log ? log(fmax(x, axis->lo) / axis->lo) / log(axis->hi / axis->lo)
                            : (x - axis->lo) / (axis->hi - axis->lo);
    return from + fmin(fmax(part, 0), 1) * (to - from);
}

static double place_x(const weft_chart *c, double x)
{
    return place(&c->x, x, c->left, c->right);
}

static double place_y(const weft_chart *c, double y)
{
    return place(&c->y, y, c->bottom, c->top);
}

/* The tick after x. A logarithmic axis of some decades has 1, 10, 100, ...; a short one 1, 2, 5,
 * 10, ...; `step` of another axis: the distance of its ticks. */
static double next_tick(const weft_axis *axis, double step, double x)
{
    if (!axis->log)
        return x + step;
    double decades = log10(axis->hi / axis->lo);
    if (decades > 1.5)
        return x * (decades > 8 ? 100 : 10);
    double first = x / pow(10, floor(log10(x * 1.01)));
    return first < 1.5 ? x * 2 : first < 3 ? x * 2.5 : x * 2;
}

/* The first tick at or above the axis' low end. */
static double first_tick(const weft_axis *axis, double *out_step)
{
    double rough = (axis->hi - axis->lo) / 6, power = pow(10, floor(log10(rough)));
    double step = rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10;
    *out_step = step * power;
    if (!axis->log)
        return ceil(axis->lo / *out_step) * *out_step;
    double low = pow(10, floor(log10(axis->lo)));
    while (low < axis->lo)
        low = next_tick(axis, 0, low);
    return low;
}

static void put_x_axis(const weft_chart *c)
{
    char text[WEFT_PAGE_NUMBER_MAX];
    double step;
    for (double x = first_tick(&c->x, &step); x <= c->x.hi; x = next_tick(&c->x, step, x)) {
        double at = place_x(c, x);
        weft_buf_printf(c->out,
                        "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                        at, c->top, at, c->bottom);
        weft_buf_printf(
            c->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
            at, c->bottom + 15, c->x.format(x, text));
    }
    weft_buf_printf(c->out,
                    "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                    c->right, c->bottom + 32, c->x.name);
}

static void put_y_axis(const weft_chart *c)
{
    char text[WEFT_PAGE_NUMBER_MAX];
    double step;
    for (double y = first_tick(&c->y, &step); y <= c->y.hi; y = next_tick(&c->y, step, y)) {
        double at = place_y(c, y);
        weft_buf_printf(c->out,
                        "<line class=\"grid\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                        c->left, at, c->right, at);
        weft_buf_printf(
            c->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
            c->left - 6, at + 4, c->y.format(y, text));
    }
    weft_buf_printf(c->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", 4.0,
                    c->top + 4, c->y.name);
}

static void begin(weft_chart *c, weft_page *page, const char *name, double height)
{
    uint32_t id = ++page->n_chart;
    c->out = &page->body;
    c->is_picture = page->is_picture;
    if (page->is_picture) {
        page->legend_at = height;
        weft_buf_printf(c->out,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\"",
                        WIDTH, height + LEGEND_ROW);
        height += LEGEND_ROW;
    } else {
        weft_buf_puts(c->out, "<figure>\n<svg");
    }
    weft_buf_printf(c->out,
                    " viewBox=\"0 0 %d %.0f\" role=\"img\" "
                    "aria-labelledby=\"g%u\"><title id=\"g%u\">",
                    WIDTH, height, id, id);
    weft_buf_put_xml(c->out, name);
    weft_buf_puts(c->out, "</title>\n");
    if (page->is_picture)
        weft_buf_printf(c->out,
                        "<style>\n%ssvg{font-family:sans-serif}.paper{fill:var(--paper)}</style>\n"
                        "<rect class=\"paper\" width=\"100%%\" height=\"100%%\"/>\n",
                        weft_page_style);
}

/* The title that browsers show, in an element that is open. */
static void put_title(const weft_chart *c, const char *title)
{
    weft_buf_puts(c->out, "<title>");
    weft_buf_put_xml(c->out, title);
    weft_buf_puts(c->out, "</title>");
}

/* -- Rows -------------------------------------------------------------------------------------- */

void weft_chart_begin_rows(weft_chart *chart, weft_page *page, const char *name, weft_axis x,
                           uint32_t n)
{
    *chart = (weft_chart){.x = widen(x), .left = LEFT, .right = WIDTH - RIGHT, .top = TOP};
    chart->bottom = TOP + (double)n * ROW;
    begin(chart, page, name, chart->bottom + AXIS);
    put_x_axis(chart);
}

static double middle(const weft_chart *c)
{
    return c->top + ((double)c->row - 0.5) * ROW;
}

void weft_chart_row(weft_chart *chart, const char *label)
{
    weft_buf text = {0};
    chart->row++;
    weft_buf_printf(chart->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", chart->left - 8,
                    middle(chart) + 4);
    weft_buf_put_short(&text, label, LABEL_MAX);
    weft_buf_put_xml(chart->out, text.at ? text.at : "");
    if (text.at && strcmp(text.at, label) != 0)
        put_title(chart, label);
    weft_buf_puts(chart->out, "</text>\n");
    weft_buf_finish(&text);
}

void weft_chart_bar(weft_chart *chart, double from, double to, uint32_t color, const char *title)
{
    double x0 = place_x(chart, from), x1 = place_x(chart, to);
    weft_buf_printf(
        chart->out, "<rect class=\"c%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">",
        color % WEFT_PAGE_COLORS, x0, middle(chart) - BAR / 2.0, fmax(x1 - x0, 0.5), BAR);
    put_title(chart, title);
    weft_buf_puts(chart->out, "</rect>\n");
}

void weft_chart_whisker(weft_chart *chart, double from, double to)
{
    double x0 = place_x(chart, from), x1 = place_x(chart, to), y = middle(chart);
    weft_buf_printf(chart->out,
                    "<path class=\"ink\" d=\"M%.1f %.1fv8M%.1f %.1fv8M%.1f %.1fH%.1f\"/>\n", x0,
                    y - 4, x1, y - 4, x0, y, x1);
}

static void put_dot(const weft_chart *c, double x, double y, double radius, uint32_t color,
                    const char *title)
{
    weft_buf_printf(c->out, "<circle class=\"c%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\">",
                    color % WEFT_PAGE_COLORS, x, y, radius);
    put_title(c, title);
    weft_buf_puts(c->out, "</circle>\n");
}

void weft_chart_dot(weft_chart *chart, double at, uint32_t color, const char *title)
{
    put_dot(chart, place_x(chart, at), middle(chart), 5, color, title);
}

void weft_chart_limit(weft_chart *chart, double at, const char *title)
{
    weft_buf_printf(chart->out, "<path class=\"limit\" stroke-width=\"2\" d=\"M%.1f %.1fv%d\">",
                    place_x(chart, at), middle(chart) - ROW / 2.0 + 1, ROW - 2);
    put_title(chart, title);
    weft_buf_puts(chart->out, "</path>\n");
}

/* -- Points ------------------------------------------------------------------------------------ */

void weft_chart_begin_points(weft_chart *chart, weft_page *page, const char *name, weft_axis x,
                             weft_axis y)
{
    *chart = (weft_chart){
        .x = widen(x), .y = widen(y), .left = 90, .right = WIDTH - RIGHT, .top = TOP + 12};
    chart->bottom = chart->top + POINTS;
    begin(chart, page, name, chart->bottom + AXIS);
    put_x_axis(chart);
    put_y_axis(chart);
}

void weft_chart_point(weft_chart *chart, double x, double y, uint32_t color, const char *title)
{
    put_dot(chart, place_x(chart, x), place_y(chart, y), 4, color, title);
}

void weft_chart_line(weft_chart *chart, double x0, double y0, double x1, double y1,
                     const char *label)
{
    double left = place_x(chart, x0), right = place_x(chart, x1), low = place_y(chart, y0),
           up = place_y(chart, y1);
    weft_buf_printf(chart->out,
                    "<path class=\"ink\" stroke-width=\"2\" d=\"M%.1f %.1fL%.1f %.1f\"/>", left,
                    low, right, up);
    /* Above the end of a level line, left above the middle of a rising one. */
    bool level = up == low;
    weft_buf_printf(chart->out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                    level ? right - 4 : (left + right) / 2 - 8, (low + up) / 2 - 6);
    weft_buf_put_xml(chart->out, label);
    weft_buf_puts(chart->out, "</text>\n");
}

/* -- Ends -------------------------------------------------------------------------------------- */

void weft_chart_end(weft_chart *chart, const char *caption)
{
    if (chart->is_picture)
        return;
    weft_buf_puts(chart->out, "</svg>\n<figcaption>");
    weft_buf_put_xml(chart->out, caption);
    weft_buf_puts(chart->out, "</figcaption>\n</figure>\n");
}

void weft_chart_legend(weft_page *page, const char *const *name, uint32_t n)
{
    const int columns = 4, row = 20;
    if (page->is_picture)
        weft_buf_printf(&page->body, "<g transform=\"translate(0 %.0f)\">\n", page->legend_at);
    else
        weft_buf_printf(&page->body,
                        "<svg viewBox=\"0 0 %d %u\" role=\"img\" aria-label=\"Colours\">\n", WIDTH,
                        (n + (uint32_t)columns - 1) / (uint32_t)columns * (uint32_t)row + 4);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t x = i % (uint32_t)columns * (WIDTH / (uint32_t)columns),
                 y = i / (uint32_t)columns * (uint32_t)row;
        weft_buf_printf(&page->body,
                        "<rect class=\"c%u\" x=\"%u\" y=\"%u\" width=\"12\" height=\"12\"/><text "
                        "x=\"%u\" y=\"%u\">",
                        i % WEFT_PAGE_COLORS, x, y + 2, x + 18, y + 13);
        weft_buf_put_xml(&page->body, name[i]);
        weft_buf_puts(&page->body, "</text>\n");
    }
    weft_buf_puts(&page->body, page->is_picture ? "</g>\n</svg>\n" : "</svg>\n");
}
