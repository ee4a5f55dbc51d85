/* Names from untrusted files, for terminals and JSON: control bytes must not reach a terminal,
 * and JSON accepts UTF-8 only. */
#ifndef WEFT_TOOLS_NAMES_H
#define WEFT_TOOLS_NAMES_H

#include "base/str.h"

#include <jansson.h>

/* Makes a JSON string; bytes that are not UTF-8 become '?'. NULL: out of memory. */
json_t *weft_tool_json_name(const char *s);
/* Appends the name with control characters (C0, DEL, C1) and bytes that are not UTF-8 as \xHH. */
void weft_tool_put_name(weft_buf *buf, const char *s);

#endif
