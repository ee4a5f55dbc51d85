/* Messages of inference and evaluation. */
#include "ops/op_int.h"

#include <stdarg.h>
#include <stdio.h>

weft_err weft_op__fail(const weft_op *op, weft_diag *diag, weft_where where, weft_err err,
                       const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return weft_diag_error(diag, err, where, "%s: %s", op->name, text);
}
