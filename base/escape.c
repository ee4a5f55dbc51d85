#include "base/escape.h"

#include <stdio.h>

/* Bytes of the control character that `s` begins with; 0: none. C1 is U+0080 to U+009F. */
static size_t control_bytes(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f)
        return 1;
    return s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0 ? 2 : 0;
}

size_t weft_escape_controls(const char *text, char *out, size_t size)
{
    size_t len = 0;
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t control = control_bytes(s), n = control ? control : 1;
        for (; n > 0; n--, s++) {
            char code[5] = {(char)*s};
            if (control)
                snprintf(code, sizeof code, "\\x%02x", *s);
            for (const char *c = code; *c; c++, len++)
                if (len + 1 < size)
                    out[len] = *c;
        }
    }
    if (size)
        out[len < size ? len : size - 1] = 0;
    return len;
}

const char *weft_escaped(weft_arena *arena, const char *s)
{
    size_t len = weft_escape_controls(s, NULL, 0);
    char *out = weft_arena_alloc(arena, len + 1);
    weft_escape_controls(s, out, len + 1);
    return out;
}
