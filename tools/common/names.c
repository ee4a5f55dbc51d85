/* Names from files. */
#include "tools/common/names.h"

#include <stdlib.h>
#include <string.h>

json_t *weft_tool_json_name(const char *s)
{
    json_t *text = json_string(s);
    if (text)
        return text;
    char *copy = strdup(s);
    for (char *c = copy; copy && *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    text = copy ? json_string(copy) : NULL;
    free(copy);
    return text;
}

void weft_tool_put_name(weft_buf *buf, const char *s)
{
    for (const unsigned char *at = (const unsigned char *)s; *at;) {
        size_t n = weft_utf8_size((const char *)at, 4);
        bool control = *at < 0x20 || *at == 0x7f || (n == 2 && at[0] == 0xc2 && at[1] < 0xa0);
        n = n ? n : 1;
        if (control || (n == 1 && *at >= 0x80))
            for (size_t i = 0; i < n; i++)
                weft_buf_printf(buf, "\\x%02x", at[i]);
        else
            weft_buf_add(buf, at, n);
        at += n;
    }
}
