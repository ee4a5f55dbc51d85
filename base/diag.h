/* Diagnostics: a list of messages with locations, filled by libraries and printed by tools.
 *
 * Message form: `resnet.onnx:Conv_12: conv: weight has 3 input channels, the input has 4`:
 * lower case, no period, both values shown. Single-thread: one list belongs to one caller. */
#ifndef WEFT_BASE_DIAG_H
#define WEFT_BASE_DIAG_H

#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

typedef enum weft_severity { WEFT_SEV_ERROR, WEFT_SEV_WARNING, WEFT_SEV_NOTE } weft_severity;

/* Where a message points: any field may be NULL or 0. Strings are copied. */
typedef struct weft_where {
    const char *file;
    const char *item; /* ONNX node, key of a set file, ... */
    uint32_t line;
} weft_where;

typedef struct weft_message {
    weft_severity severity;
    weft_err err; /* OK for warnings and notes */
    const char *file, *item, *text;
    uint32_t line;
} weft_message;

typedef struct weft_diag weft_diag;

/* Owned; NULL when out of memory. Keeps at most 100 messages and counts the rest. */
weft_diag *weft_diag_create(void);
void weft_diag_destroy(weft_diag *diag);
void weft_diag_clear(weft_diag *diag);
/* Removes the messages that were added after the list had `count`. */
void weft_diag_cut(weft_diag *diag, size_t count);

/* Adds a message and returns `err`, so that `return weft_diag_error(...)` is one line.
 * A NULL `diag` drops the text. */
weft_err weft_diag_error(weft_diag *diag, weft_err err, weft_where where, const char *fmt, ...)
    WEFT_PRINTF(4, 5);
void weft_diag_warn(weft_diag *diag, weft_where where, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* A note belongs to the message before it. */
void weft_diag_note(weft_diag *diag, weft_where where, const char *fmt, ...) WEFT_PRINTF(3, 4);

/* Messages kept; when some found no room, the last one is a note that counts them. An error takes
 * the place of a warning or note in a full list. NULL, a list that there was no memory for, has
 * none. */
size_t weft_diag_count(const weft_diag *diag);
/* Borrowed until the next message is added or the list is cleared. */
const weft_message *weft_diag_at(const weft_diag *diag, size_t i);
/* "file:line: item: text" without newline, cut to `size`. Returns the length that it would have. */
size_t weft_diag_format(const weft_message *msg, char *buf, size_t size);

#endif
