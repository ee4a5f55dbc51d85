/* CSV as RFC 4180 has it: fields may be in quotes, "" is a quote inside one, a quoted field may
 * hold commas and line ends. Lines end with LF or CRLF. Every byte is hostile. */
#include "tools/compiler/csv_rows.h"

#include <string.h>

static weft_err refuse(const weft_csv_rows *r, weft_diag *diag, const char *what)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = r->file, .line = r->line},
                           "column %zu: %s", r->n_field + 1, what);
}

/* A quoted field, `at` behind its first quote. */
static weft_err read_quoted(weft_csv_rows *r, weft_diag *diag, char **to, const char *limit)
{
    for (;; r->at++) {
        if (r->at == r->end)
            return refuse(r, diag, "the quote does not end");
        if (r->at >= limit)
            return refuse(r, diag, "the row is longer than 65536 bytes");
        if (*r->at == 0)
            return refuse(r, diag, "a NUL byte");
        if (*r->at == '"') {
            if (r->end - r->at < 2 || r->at[1] != '"')
                break;
            r->at++;
        }
        if (*r->at == '\n')
            r->next_line++;
        *(*to)++ = *r->at;
    }
    r->at++;
    bool ends = r->at == r->end || *r->at == ',' || *r->at == '\n' ||
                (*r->at == '\r' && (r->end - r->at < 2 || r->at[1] == '\n'));
    return ends ? WEFT_ERR_OK : refuse(r, diag, "text behind the closing quote");
}

static weft_err read_plain(weft_csv_rows *r, weft_diag *diag, char **to, const char *limit)
{
    while (r->at < r->end && *r->at != ',' && *r->at != '\n') {
        if (r->at >= limit)
            return refuse(r, diag, "the row is longer than 65536 bytes");
        if (*r->at == 0)
            return refuse(r, diag, "a NUL byte");
        if (*r->at == '"')
            return refuse(r, diag, "a quote inside a field that does not start with one");
        if (*r->at == '\r' && (r->end - r->at < 2 || r->at[1] == '\n'))
            break;
        *(*to)++ = *r->at++;
    }
    return WEFT_ERR_OK;
}

/* Skips what is no row. */
static void skip_lines(weft_csv_rows *r)
{
    while (r->at < r->end) {
        const char *p = r->at;
        if (*p == '#') {
            const char *line_end = memchr(p, '\n', (size_t)(r->end - p));
            p = line_end ? line_end : r->end;
        } else if (*p == '\r' && r->end - p >= 2 && p[1] == '\n') {
            p++;
        } else if (*p != '\n') {
            return;
        }
        r->at = p < r->end ? p + 1 : p;
        r->next_line++;
    }
}

weft_err weft_csv_rows_next(weft_csv_rows *r, weft_diag *diag, bool *more)
{
    if (r->next_line == 0)
        r->next_line = 1;
    skip_lines(r);
    *more = r->at < r->end;
    if (!*more)
        return WEFT_ERR_OK;
    r->line = r->next_line;
    r->raw = r->at;
    r->n_field = 0;
    size_t left = (size_t)(r->end - r->at);
    const char *limit = r->at + (left < WEFT_CSV_ROW_MAX ? left : WEFT_CSV_ROW_MAX);
    char *to = r->text;
    for (;;) {
        if (r->n_field == WEFT_CSV_FIELDS_MAX)
            return refuse(r, diag, "more than 256 columns");
        char *start = to;
        if (r->at < r->end && *r->at == '"') {
            r->at++;
            WEFT_TRY(read_quoted(r, diag, &to, limit));
        } else {
            WEFT_TRY(read_plain(r, diag, &to, limit));
        }
        *to++ = 0;
        r->field[r->n_field++] = start;
        if (r->at == r->end || *r->at != ',')
            break;
        r->at++;
    }
    r->raw_len = (size_t)(r->at - r->raw);
    if (r->at < r->end && *r->at == '\r')
        r->at++;
    if (r->at < r->end)
        r->at++;
    r->next_line++;
    return WEFT_ERR_OK;
}

void weft_csv_put(weft_buf *buf, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        weft_buf_puts(buf, text);
        return;
    }
    weft_buf_putc(buf, '"');
    for (; *text; text++) {
        if (*text == '"')
            weft_buf_putc(buf, '"');
        weft_buf_putc(buf, *text);
    }
    weft_buf_putc(buf, '"');
}
