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

/* Returns the length of the UTF-8 sequence at `s`; 0: the bytes are no UTF-8 (overlong and
 * surrogate forms included). */
static size_t sequence(const unsigned char *s)
{
    size_t n = s[0] < 0x80                    ? 1
               : s[0] >= 0xc2 && s[0] <= 0xdf ? 2
               : s[0] >= 0xe0 && s[0] <= 0xef ? 3
               : s[0] >= 0xf0 && s[0] <= 0xf4 ? 4
                                              : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool outside = (s[0] == 0xed && s[1] >= 0xa0) || (s[0] == 0xf4 && s[1] >= 0x90);
    return n > 1 && (overlong || outside) ? 0 : n;
}

void weft_tool_put_name(weft_buf *buf, const char *s)
{
    for (const unsigned char *at = (const unsigned char *)s; *at;) {
        size_t n = sequence(at);
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
