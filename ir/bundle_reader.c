/* What bundle_read.c and bundle_read_code.c share; bundle_read_int.h. */
#include "ir/bundle_read_int.h"

#include <stdarg.h>
#include <stdio.h>

weft_err weft_bundle__refuse(weft_bundle__reader *r, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return weft_diag_error(r->diag, WEFT_ERR_INPUT, (weft_where){.file = r->path, .item = r->item},
                           "%s", text);
}

bool weft_bundle__get_dim(const weft_bundle__reader *r, int64_t code, weft_dim *out)
{
    if (code >= 0) {
        *out = code;
        return true;
    }
    uint64_t number = -(uint64_t)code;
    if (number > r->n_expr)
        return false;
    *out = r->expr[number - 1];
    return true;
}
