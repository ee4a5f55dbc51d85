/* Charts of a page, as SVG: rows of bars and marks over one axis, and points over two. Each part
 * has a title that browsers show; the chart has a name and a description for those who do not see
 * it. */
#ifndef WEFT_TOOLS_CHART_H
#define WEFT_TOOLS_CHART_H

#include "tools/report/page.h"

/* An axis from lo to hi (lo < hi; log: both above 0). weft_axis_cover widens it. */
typedef struct weft_axis {
    const char *name;
    const char *(*format)(double x, char *buf);
    double lo, hi;
    bool log;
} weft_axis;

/* Widens an axis, which is zero-initialised but for name, format and log, so that it has x. */
void weft_axis_cover(weft_axis *axis, double x);

typedef struct weft_chart {
    weft_buf *out;
    weft_axis x, y;
    double left, right, top, bottom; /* of the area in which values are */
    uint32_t row;
    bool is_picture;
} weft_chart;

/* `n`: number of rows. */
void weft_chart_begin_rows(weft_chart *chart, weft_page *page, const char *name, weft_axis x,
                           uint32_t n);
void weft_chart_row(weft_chart *chart, const char *label);
/* Parts of the row begun last. `color`: any number. Titles are escaped. */
void weft_chart_bar(weft_chart *chart, double from, double to, uint32_t color, const char *title);
void weft_chart_whisker(weft_chart *chart, double from, double to);
void weft_chart_dot(weft_chart *chart, double at, uint32_t color, const char *title);
void weft_chart_limit(weft_chart *chart, double at, const char *title);

void weft_chart_begin_points(weft_chart *chart, weft_page *page, const char *name, weft_axis x,
                             weft_axis y);
void weft_chart_point(weft_chart *chart, double x, double y, uint32_t color, const char *title);
/* A line between two points, with a label. */
void weft_chart_line(weft_chart *chart, double x0, double y0, double x1, double y1,
                     const char *label);

/* `caption`: a sentence below the chart. A picture needs a legend to be complete. */
void weft_chart_end(weft_chart *chart, const char *caption);
/* Names of colours, below a chart: "name" of colour i for i below n. */
void weft_chart_legend(weft_page *page, const char *const *name, uint32_t n);

#endif
