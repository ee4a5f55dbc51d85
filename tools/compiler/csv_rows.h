/* Comma-separated values (RFC 4180) of any origin, one row at a time. */
#ifndef WEFT_TOOLS_CSV_ROWS_H
#define WEFT_TOOLS_CSV_ROWS_H

#include "base/diag.h"
#include "base/str.h"

#include <stdbool.h>

enum { WEFT_CSV_FIELDS_MAX = 256, WEFT_CSV_ROW_MAX = 1 << 16 };

/* Zero-initialise, then set file, at and end. Fields of the row just read: text without quotes, NUL
 * behind it, in `text`. */
typedef struct weft_csv_rows {
    const char *file; /* for messages */
    const char *at, *end;
    uint32_t line, next_line; /* where the row starts, from 1 */
    const char *raw;          /* the row as it stands, without its line end */
    size_t raw_len;
    const char *field[WEFT_CSV_FIELDS_MAX];
    size_t n_field;
    char text[WEFT_CSV_ROW_MAX + WEFT_CSV_FIELDS_MAX];
} weft_csv_rows;

/* Reads the next row; *more is false behind the last. Empty lines and lines that start with # are
 * no rows. INPUT: a quote that does not end, text behind one, a NUL, a row of more than
 * WEFT_CSV_ROW_MAX bytes or WEFT_CSV_FIELDS_MAX fields. */
WEFT_MUST_USE weft_err weft_csv_rows_next(weft_csv_rows *rows, weft_diag *diag, bool *more);

/* Adds a field, in quotes where it needs them. */
void weft_csv_put(weft_buf *buf, const char *text);

#endif
