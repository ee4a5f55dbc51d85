#include "base/shorten.h"

/* Start of the character that is `n` characters behind `s`, which is never in one; bytes that are
 * no UTF-8 count as characters. */
static const char *skip_characters(const char *s, size_t n)
{
    for (size_t len; n > 0 && *s; n--) {
        len = weft_utf8_size(s, 4);
        s += len ? len : 1;
    }
    return s;
}

void weft_buf_put_short(weft_buf *buf, const char *s, size_t most)
{
    size_t n = 0;
    for (const char *at = s; *at; n++)
        at = skip_characters(at, 1);
    if (n <= most) {
        weft_buf_puts(buf, s);
        return;
    }
    if (most == 0)
        return;
    size_t tail = (most - 1) / 2;
    weft_buf_add(buf, s, (size_t)(skip_characters(s, most - 1 - tail) - s));
    weft_buf_puts(buf, "\xe2\x80\xa6");
    weft_buf_puts(buf, skip_characters(s, n - tail));
}
