/* Pages: texts, tables, findings, and the frame around sections. */
#include "tools/report/page.h"

#include "base/file.h"
#include "base/page_style.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void weft_page_finish(weft_page *page)
{
    weft_buf_finish(&page->body);
    weft_buf_finish(&page->nav);
    weft_buf_finish(&page->findings);
}

/* -- Members of objects ------------------------------------------------------------------------ */

/* The member if `is` holds for it, else NULL after a note. */
static const json_t *member(weft_page *page, const json_t *object, const char *key,
                            bool (*is)(const json_t *))
{
    const json_t *at = json_object_get(object, key);
    if (at && is(at))
        return at;
    if (!page->missing[0]) {
        snprintf(page->missing, sizeof page->missing, "%s", key);
        page->missing_file = page->file;
    }
    return NULL;
}

/* A number that pages can compute with. */
static bool is_number(const json_t *at)
{
    return json_is_null(at) || (json_is_number(at) && fabs(json_number_value(at)) <= 1e100);
}

static bool is_count(const json_t *at)
{
    return json_is_integer(at) && json_integer_value(at) >= 0;
}

static bool is_word(const json_t *at)
{
    return json_is_string(at);
}

static bool is_list(const json_t *at)
{
    return json_is_array(at);
}

static bool is_object(const json_t *at)
{
    return json_is_object(at);
}

double weft_page_number(weft_page *page, const json_t *object, const char *key)
{
    const json_t *at = member(page, object, key, is_number);
    return json_is_number(at) ? json_number_value(at) : NAN;
}

uint64_t weft_page_count(weft_page *page, const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(member(page, object, key, is_count));
}

const char *weft_page_word(weft_page *page, const json_t *object, const char *key)
{
    const char *text = json_string_value(member(page, object, key, is_word));
    return text ? text : "";
}

const json_t *weft_page_list(weft_page *page, const json_t *object, const char *key)
{
    return member(page, object, key, is_list);
}

const json_t *weft_page_object(weft_page *page, const json_t *object, const char *key)
{
    return member(page, object, key, is_object);
}

/* -- Numbers ----------------------------------------------------------------------------------- */

const char *weft_page_plain(double x, char *buf)
{
    if (isnan(x))
        return strcpy(buf, "not known");
    snprintf(buf, WEFT_PAGE_NUMBER_MAX, fabs(x) >= 1000 && fabs(x) < 1e9 ? "%.0f" : "%.3g", x);
    return buf;
}

/* x in the largest of n units, each 1000 times the one before, of which it is at least 1. */
static const char *in_units(double x, const char *const *unit, int n, char *buf)
{
    if (isnan(x))
        return strcpy(buf, "not known");
    int u = 0;
    for (; fabs(x) >= 999.5 && u + 1 < n; u++)
        x /= 1000;
    weft_page_plain(x, buf);
    size_t len = strlen(buf);
    snprintf(buf + len, WEFT_PAGE_NUMBER_MAX - len, " %s", unit[u]);
    return buf;
}

const char *weft_page_time(double us, char *buf)
{
    static const char *const unit[] = {"us", "ms", "s"};
    return in_units(us, unit, 3, buf);
}

const char *weft_page_bytes(double bytes, char *buf)
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB"};
    return in_units(bytes, unit, 5, buf);
}

const char *weft_page_percent(double part, char *buf)
{
    if (isnan(part))
        return strcpy(buf, "not known");
    snprintf(buf, WEFT_PAGE_NUMBER_MAX, fabs(part) < 0.0995 && part != 0 ? "%.2g %%" : "%.0f %%",
             part * 100);
    return buf;
}

const char *weft_page_factor(double x, char *buf)
{
    if (isnan(x))
        return strcpy(buf, "not known");
    snprintf(buf, WEFT_PAGE_NUMBER_MAX, fabs(x) < 1e9 ? "%.2fx" : "%.3gx", x);
    return buf;
}

/* -- Texts ------------------------------------------------------------------------------------- */

/* Formatted text, escaped. */
static void put_escaped(weft_buf *out, const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    char *text = len >= 0 ? malloc((size_t)len + 1) : NULL;
    if (text) {
        vsnprintf(text, (size_t)len + 1, fmt, args);
        weft_buf_put_xml(out, text);
    } else {
        out->failed = true;
    }
    free(text);
}

void weft_page_open(weft_page *page, const char *title)
{
    uint32_t id = ++page->n_section;
    weft_buf_printf(&page->nav, "<li><a href=\"#s%u\">", id);
    weft_buf_put_xml(&page->nav, title);
    weft_buf_puts(&page->nav, "</a></li>\n");
    weft_buf_printf(&page->body, "<section aria-labelledby=\"s%u\">\n<h2 id=\"s%u\">", id, id);
    weft_buf_put_xml(&page->body, title);
    weft_buf_puts(&page->body, "</h2>\n<p class=\"soft\">From ");
    weft_buf_put_xml(&page->body, page->file);
    weft_buf_puts(&page->body, "</p>\n");
}

void weft_page_close(weft_page *page)
{
    weft_buf_puts(&page->body, "</section>\n");
}

void weft_page_heading(weft_page *page, const char *text)
{
    if (page->is_picture)
        return;
    weft_buf_puts(&page->body, "<h3>");
    weft_buf_put_xml(&page->body, text);
    weft_buf_puts(&page->body, "</h3>\n");
}

void weft_page_paragraph(weft_page *page, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    weft_buf_puts(&page->body, "<p>");
    put_escaped(&page->body, fmt, args);
    weft_buf_puts(&page->body, "</p>\n");
    va_end(args);
}

void weft_page_find(weft_page *page, weft_page_weight weight, const char *fmt, ...)
{
    static const char *const kind[] = {[WEFT_PAGE_GOOD] = "good\">Good: ",
                                       [WEFT_PAGE_NOTE] = "note\">Note: ",
                                       [WEFT_PAGE_BAD] = "bad\">Problem: "};
    va_list args;
    va_start(args, fmt);
    weft_buf_printf(&page->findings, "<li class=\"%s", kind[weight]);
    put_escaped(&page->findings, fmt, args);
    weft_buf_puts(&page->findings, "</li>\n");
    va_end(args);
}

/* -- Tables ------------------------------------------------------------------------------------ */

void weft_page_table(weft_page *page, const char *caption, const char *columns)
{
    weft_buf *out = &page->body;
    weft_buf_puts(out, "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"");
    weft_buf_put_xml(out, caption);
    weft_buf_puts(out, "\">\n<table>\n<caption>");
    weft_buf_put_xml(out, caption);
    weft_buf_puts(out, "</caption>\n<thead><tr>");
    page->numeric = 0;
    for (uint32_t i = 0; *columns; i++) {
        size_t len = strcspn(columns, "|");
        bool numeric = *columns == '#';
        page->numeric |= numeric && i < 32 ? 1u << i : 0;
        weft_buf_printf(out, "<th scope=\"col\"%s>%.*s</th>", numeric ? " class=\"n\"" : "",
                        (int)(len - numeric), columns + numeric);
        columns += len + (columns[len] == '|');
    }
    weft_buf_puts(out, "</tr></thead>\n<tbody>");
    page->column = UINT32_MAX;
}

void weft_page_row(weft_page *page)
{
    weft_buf_puts(&page->body, page->column == UINT32_MAX ? "\n<tr>" : "</tr>\n<tr>");
    page->column = 0;
}

static void open_cell(weft_page *page)
{
    bool numeric = page->column < 32 && page->numeric >> page->column & 1;
    weft_buf_puts(&page->body, numeric ? "<td class=\"n\">" : "<td>");
    page->column++;
}

void weft_page_cell(weft_page *page, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    open_cell(page);
    put_escaped(&page->body, fmt, args);
    weft_buf_puts(&page->body, "</td>");
    va_end(args);
}

void weft_page_meter(weft_page *page, double part, bool high)
{
    char text[WEFT_PAGE_NUMBER_MAX];
    open_cell(page);
    if (!isnan(part))
        weft_buf_printf(
            &page->body,
            "<span class=\"meter\" aria-hidden=\"true\"><i%s style=\"width:%.1f%%\"></i></span>",
            high ? " class=\"high\"" : "", fmin(fmax(part, 0), 1) * 100);
    weft_buf_printf(&page->body, "%s</td>", weft_page_percent(part, text));
}

void weft_page_end_table(weft_page *page)
{
    weft_buf_puts(&page->body, page->column == UINT32_MAX ? "</tbody>\n</table>\n</div>\n"
                                                          : "</tr>\n</tbody>\n</table>\n</div>\n");
}

/* -- The page ---------------------------------------------------------------------------------- */

weft_err weft_page_save(const weft_page *page, const char *title, const char *path, weft_diag *diag)
{
    if (page->missing[0])
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = page->missing_file},
                               "has no `%s`, or one that is of another kind or size",
                               page->missing);
    weft_buf out = {0};
    weft_buf_puts(&out,
                  "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                  "<link rel=\"icon\" href=\"data:,\"/>\n<title>");
    weft_buf_put_xml(&out, title);
    weft_buf_printf(&out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<header>\n<h1>",
                    weft_page_style);
    weft_buf_put_xml(&out, title);
    weft_buf_printf(
        &out, "</h1>\n<nav aria-label=\"Sections\">\n<ul>\n%s</ul>\n</nav>\n</header>\n<main>\n",
        page->nav.at ? page->nav.at : "");
    if (page->findings.at)
        weft_buf_printf(&out,
                        "<section aria-labelledby=\"found\">\n<h2 id=\"found\">What bounds it, and "
                        "what to do next"
                        "</h2>\n<ul class=\"findings\">\n%s</ul>\n</section>\n",
                        page->findings.at);
    weft_buf_puts(&out, page->body.at ? page->body.at : "");
    weft_buf_puts(&out, "</main>\n</body>\n</html>\n");
    bool failed = out.failed || page->body.failed || page->nav.failed || page->findings.failed;
    weft_err err = failed ? WEFT_ERR_NOMEM : weft_file_write(path, out.at, out.len, diag);
    weft_buf_finish(&out);
    return err;
}
