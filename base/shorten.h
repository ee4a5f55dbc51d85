/* Names that are shortened to the room that a picture has for them. */
#ifndef WEFT_BASE_SHORTEN_H
#define WEFT_BASE_SHORTEN_H

#include "base/str.h"

/* Appends `s`, at most so many characters of it: a longer one loses its middle, where "…" stands,
 * as names often differ at their end. */
void weft_buf_put_short(weft_buf *buf, const char *s, size_t most);

#endif
