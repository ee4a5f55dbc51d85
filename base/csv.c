/* CSV; csv.h. A row is read in two steps: its bytes are collected up to the line end that is not
 * inside quotes, then they are cut into fields. The first step is the only one that sees where the
 * bytes come from. */
#include "base/csv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 1 << 16, ROW_BYTES = 1 << 16, FIELDS = 256 };

typedef struct reader {
    weft_csv csv; /* first: what the caller sees */
    weft_csv_limits limits;
    const char *at, *end; /* bytes at hand */
    int fd;               /* -1: no more bytes than those at hand */
    int io_errno;
    bool started;
    uint32_t next_line;
    char *chunk, *raw, *text; /* bytes of `fd`; the row; the row's fields */
    const char **field;
} reader;

/* -- Bytes ------------------------------------------------------------------------------------ */

/* The next byte, which stays the next one; -1 at the end or on a read error. */
static int peek(reader *r)
{
    if (r->at < r->end)
        return (unsigned char)*r->at;
    if (r->fd < 0)
        return -1;
    ssize_t n;
    do
        n = read(r->fd, r->chunk, CHUNK_BYTES);
    while (n < 0 && errno == EINTR);
    if (n <= 0) {
        r->io_errno = n < 0 ? errno : 0;
        r->fd = -1;
        return -1;
    }
    r->at = r->chunk;
    r->end = r->chunk + n;
    return (unsigned char)*r->at;
}

static void skip_mark(reader *r)
{
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf};
    for (size_t i = 0; i < sizeof mark && peek(r) == mark[i]; i++)
        r->at++;
}

/* -- Rows ------------------------------------------------------------------------------------- */

static weft_err refuse(const reader *r, weft_diag *diag, const char *what)
{
    return weft_diag_error(diag, WEFT_ERR_INPUT, r->csv.where, "column %zu: %s", r->csv.n_field + 1,
                           what);
}

static void skip_line(reader *r)
{
    for (int c = peek(r); c >= 0; c = peek(r)) {
        r->at++;
        if (c == '\n')
            break;
    }
}

/* Collects the bytes of a line, or of several where quotes hold line ends; its own line end goes.
 */
static weft_err collect(reader *r, weft_diag *diag)
{
    enum { START, PLAIN, QUOTED, QUOTE } state = START; /* QUOTE: a quote inside a quoted field */
    size_t n = 0;
    int c;
    r->csv.where.line = r->next_line;
    while ((c = peek(r)) >= 0) {
        r->at++;
        r->next_line += c == '\n';
        if (c == '\n' && state != QUOTED)
            break;
        if (n == r->limits.row_bytes)
            return weft_diag_error(diag, WEFT_ERR_INPUT, r->csv.where,
                                   "the row is longer than %zu bytes", r->limits.row_bytes);
        if (c == 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, r->csv.where, "the row holds a NUL byte");
        r->raw[n++] = (char)c;
        if (state == QUOTED)
            state = c == '"' ? QUOTE : QUOTED;
        else if (c == '"' && state != PLAIN)
            state = QUOTED;
        else
            state = c == ',' ? START : PLAIN;
    }
    if (n > 0 && r->raw[n - 1] == '\r' && state != QUOTED)
        n--;
    r->raw[n] = 0;
    r->csv.raw_len = n;
    return WEFT_ERR_OK;
}

/* A quoted field, *at behind its first quote. */
static weft_err cut_quoted(const reader *r, weft_diag *diag, const char **at, char **to)
{
    const char *p = *at;
    for (; *p != '"' || p[1] == '"'; *(*to)++ = *p++) {
        if (*p == 0)
            return refuse(r, diag, "the quote does not end");
        p += *p == '"';
    }
    *at = p + 1;
    return **at == 0 || **at == ',' ? WEFT_ERR_OK
                                    : refuse(r, diag, "text behind the closing quote");
}

static weft_err cut_plain(const reader *r, weft_diag *diag, const char **at, char **to)
{
    size_t len = strcspn(*at, ",\"");
    memcpy(*to, *at, len);
    *to += len;
    *at += len;
    return **at == '"' ? refuse(r, diag, "a quote inside a field that does not start with one")
                       : WEFT_ERR_OK;
}

static weft_err cut_fields(reader *r, weft_diag *diag)
{
    const char *at = r->raw;
    char *to = r->text;
    r->csv.n_field = 0;
    for (;; at++) {
        if (r->csv.n_field == r->limits.fields)
            return weft_diag_error(diag, WEFT_ERR_INPUT, r->csv.where, "more than %zu columns",
                                   r->limits.fields);
        r->field[r->csv.n_field] = to;
        if (*at == '"') {
            at++;
            WEFT_TRY(cut_quoted(r, diag, &at, &to));
        } else {
            WEFT_TRY(cut_plain(r, diag, &at, &to));
        }
        *to++ = 0;
        r->csv.n_field++;
        if (*at == 0)
            return WEFT_ERR_OK;
    }
}

weft_err weft_csv_next(weft_csv *csv, weft_diag *diag, bool *out_more)
{
    reader *r = (reader *)csv;
    if (!r->started)
        skip_mark(r);
    r->started = true;
    r->csv.n_field = r->csv.raw_len = 0;
    while (peek(r) >= 0) {
        if (peek(r) == '#') {
            skip_line(r);
            r->csv.where.line = r->next_line++;
            continue;
        }
        WEFT_TRY(collect(r, diag));
        if (r->csv.raw_len > 0)
            break;
    }
    if (r->io_errno)
        return weft_diag_error(diag, WEFT_ERR_IO,
                               (weft_where){.file = csv->where.file, .item = csv->where.item},
                               "cannot be read: %s", strerror(r->io_errno));
    *out_more = r->csv.raw_len > 0;
    return *out_more ? cut_fields(r, diag) : WEFT_ERR_OK;
}

/* -- Life ------------------------------------------------------------------------------------- */

static weft_csv *create(reader init, weft_where where, weft_csv_limits limits)
{
    reader *r = malloc(sizeof *r);
    if (!r)
        return NULL;
    *r = init;
    r->limits.row_bytes = limits.row_bytes ? limits.row_bytes : ROW_BYTES;
    r->limits.fields = limits.fields ? limits.fields : FIELDS;
    r->next_line = 1;
    r->chunk = r->fd < 0 ? NULL : malloc(CHUNK_BYTES);
    r->raw = malloc(r->limits.row_bytes + 1);
    r->text = malloc(r->limits.row_bytes + 1);
    r->field = malloc(r->limits.fields * sizeof *r->field);
    r->csv = (weft_csv){.where = where, .field = r->field, .raw = r->raw};
    r->csv.where.line = 0;
    if ((r->chunk || r->fd < 0) && r->raw && r->text && r->field)
        return &r->csv;
    weft_csv_destroy(&r->csv);
    return NULL;
}

weft_csv *weft_csv_create(const char *text, size_t len, weft_where where, weft_csv_limits limits)
{
    return create((reader){.at = text, .end = text + len, .fd = -1}, where, limits);
}

weft_csv *weft_csv_create_fd(int fd, weft_where where, weft_csv_limits limits)
{
    return create((reader){.fd = fd}, where, limits);
}

void weft_csv_destroy(weft_csv *csv)
{
    reader *r = (reader *)csv;
    if (!r)
        return;
    free(r->chunk);
    free(r->raw);
    free(r->text);
    free(r->field);
    free(r);
}

/* -- Writing ---------------------------------------------------------------------------------- */

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
