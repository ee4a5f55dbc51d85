/* Text IR for several element types: T stands for the type. */
#ifndef WEFT_TESTS_SUPPORT_TYPED_TEXT_H
#define WEFT_TESTS_SUPPORT_TYPED_TEXT_H

#include "base/str.h"

/* Writes `text` with `type` for T in "T[2,3]", and in names such as "conv_T_". */
static inline void put_typed(weft_buf *out, const char *text, const char *type)
{
    for (; *text; text++) {
        if (text[0] == 'T' && (text[1] == '[' || text[1] == '_'))
            weft_buf_puts(out, type);
        else
            weft_buf_putc(out, *text);
    }
}

#endif
