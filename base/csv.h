/* Comma-separated values (RFC 4180), one row at a time. The input may be hostile. Single-thread. */
#ifndef WEFT_BASE_CSV_H
#define WEFT_BASE_CSV_H

#include "base/diag.h"
#include "base/str.h"

#include <stdbool.h>

/* 0: 65536 bytes, 256 fields. */
typedef struct weft_csv_limits {
    size_t row_bytes, fields;
} weft_csv_limits;

/* The reader shows the row that it read last; all pointers are valid until the next row is read. */
typedef struct weft_csv {
    weft_where where; /* for messages: file and item as given, the row's first line from 1 */
    const char *const *field; /* without quotes; ends with NUL */
    size_t n_field;
    const char *raw; /* the row as it is in the input, without its line end; ends with NUL */
    size_t raw_len;
} weft_csv;

/* The caller owns the result; NULL when out of memory. The text, and the strings of `where`, must
 * outlive the reader. */
weft_csv *weft_csv_create(const char *text, size_t len, weft_where where, weft_csv_limits limits);
/* Reads from the descriptor, a chunk at a time: memory does not grow with the input. The caller
 * closes the descriptor. */
weft_csv *weft_csv_create_fd(int fd, weft_where where, weft_csv_limits limits);
void weft_csv_destroy(weft_csv *csv);

/* Reads the next row; *out_more is false at the end. Rows end with LF or CRLF; a field may be in
 * quotes, and then hold commas, line ends, and "" for a quote. Skipped: empty lines, lines that
 * start with #, a byte order mark at the start. INPUT: a quote that does not end, text behind a
 * closing quote, a quote or NUL inside a field, a row over the limits; IO: the descriptor. */
WEFT_MUST_USE weft_err weft_csv_next(weft_csv *csv, weft_diag *diag, bool *out_more);

/* Appends `text` as one field, in quotes where it needs them. */
void weft_csv_put(weft_buf *buf, const char *text);

#endif
