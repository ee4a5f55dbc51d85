/* Answers with the text that says why. */
#include "runtime/server/serve_int.h"

#include <stdarg.h>
#include <stdio.h>

weft_answer weft_answer__refuse(weft_answer answer, char *text, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, WEFT_REQUEST_MESSAGE_MAX, fmt, ap);
    va_end(ap);
    return answer;
}
