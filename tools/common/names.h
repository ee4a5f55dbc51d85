/* Names from files in what people and programs read: hostile bytes must not reach a terminal, and
 * JSON takes UTF-8 only. */
#ifndef WEFT_TOOLS_NAMES_H
#define WEFT_TOOLS_NAMES_H

#include "base/str.h"

#include <jansson.h>

/* What is not UTF-8 loses the bytes that make it so. NULL: no memory. */
json_t *weft_tool_json_name(const char *s);
/* Control characters (C0, DEL, C1) and bytes that are not UTF-8 as \xHH. */
void weft_tool_put_name(weft_buf *buf, const char *s);

#endif
