/* The page of `weft report`: HTML in one file, without scripts and without anything from elsewhere.
 * Sections are made from the JSON that other verbs write, one function for each kind.
 * Single-thread. */
#ifndef WEFT_TOOLS_PAGE_H
#define WEFT_TOOLS_PAGE_H

#include "base/diag.h"
#include "base/str.h"

#include <jansson.h>
#include <stdbool.h>

enum { WEFT_PAGE_NUMBER_MAX = 48, WEFT_PAGE_COLORS = 8 };

/* How much a finding matters. */
typedef enum weft_page_weight { WEFT_PAGE_GOOD, WEFT_PAGE_NOTE, WEFT_PAGE_BAD } weft_page_weight;

/* Zero-initialisable; weft_page_finish releases it. */
typedef struct weft_page {
    weft_buf body, nav, findings;
    const char *file;         /* whose section is being written */
    char missing[64];         /* a key that a file lacks, or has with another kind */
    const char *missing_file; /* that file */
    uint32_t n_section, n_chart;
    uint32_t column, numeric; /* of a table: the next column; bit i: column i has numbers */
    /* The body is one chart and its legend, a picture by itself: headings and captions are left
     * out. */
    bool is_picture;
    double legend_at; /* of a picture: height of its chart */
} weft_page;

void weft_page_finish(weft_page *page);
/* Writes the page; INPUT: a key was missing in a file. */
WEFT_MUST_USE weft_err weft_page_save(const weft_page *page, const char *title, const char *path,
                                      weft_diag *diag);

/* -- Sections: each reads the JSON of one verb ------------------------------------------------ */

void weft_page_add_bundle(weft_page *page, const json_t *inspected);
void weft_page_add_merges(weft_page *page, const json_t *report);
void weft_page_add_estimate(weft_page *page, const json_t *estimate);
void weft_page_add_plan(weft_page *page, const json_t *plan);
void weft_page_add_simulation(weft_page *page, const json_t *simulation);
void weft_page_add_bench(weft_page *page, const json_t *bench);

/* The roofline of the first slice that has kernels, as an SVG. */
WEFT_MUST_USE weft_err weft_page_draw_estimate(const json_t *estimate, const char *path,
                                               weft_diag *diag);

/* -- Parts of sections ------------------------------------------------------------------------ */

/* Members of an object. A member that is not there, or of another kind or above 1e100, is noted as
 * missing. */
double weft_page_number(weft_page *page, const json_t *object, const char *key); /* null: NAN */
uint64_t weft_page_count(weft_page *page, const json_t *object, const char *key);
const char *weft_page_word(weft_page *page, const json_t *object, const char *key);
const json_t *weft_page_list(weft_page *page, const json_t *object, const char *key);
const json_t *weft_page_object(weft_page *page, const json_t *object, const char *key);

void weft_page_open(weft_page *page, const char *title);
void weft_page_close(weft_page *page);
void weft_page_heading(weft_page *page, const char *text);
void weft_page_paragraph(weft_page *page, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* A line of what bounds the models and what to do. */
void weft_page_find(weft_page *page, weft_page_weight weight, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* A table; names of columns have '|' between them and '#' before those with numbers. */
void weft_page_table(weft_page *page, const char *caption, const char *columns);
void weft_page_row(weft_page *page);
void weft_page_cell(weft_page *page, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* A part of 1 as a bar and as a number; `high`: it is drawn as a warning. NAN: not known. */
void weft_page_meter(weft_page *page, double part, bool high);
void weft_page_end_table(weft_page *page);

/* Joint programs beside their models, as measured or as estimated: rows of `joint` and `expected`
 * of a compile report. */
void weft_page_put_joint(weft_page *page, const json_t *list, bool measured);

/* Numbers as text in `buf` (WEFT_PAGE_NUMBER_MAX); return buf. NAN: "not known". */
const char *weft_page_plain(double x, char *buf);
const char *weft_page_time(double us, char *buf);
const char *weft_page_bytes(double bytes, char *buf);
const char *weft_page_percent(double part, char *buf);
const char *weft_page_factor(double x, char *buf); /* "1.25x" */

#endif
