/* Names and values of files in messages and reports. */
#ifndef WEFT_BASE_ESCAPE_H
#define WEFT_BASE_ESCAPE_H

#include "base/arena.h"

#include <stddef.h>

/* Copies `s` with control characters (C0, DEL, and C1 in UTF-8) as \xHH, so that it cannot move the
 * cursor of a terminal or begin a line of its own. As snprintf: returns the length of the whole
 * result, writes at most `size` bytes with the NUL. */
size_t weft_escape_controls(const char *s, char *out, size_t size);
/* The same in `arena`. */
const char *weft_escaped(weft_arena *arena, const char *s);

#endif
