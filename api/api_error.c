/* Status and text of errors; names and sizes of types. */
#include "api/api_int.h"

#include <stdio.h>
#include <string.h>

#define WEFT_QUOTE_(x) #x
#define WEFT_QUOTE(x)  WEFT_QUOTE_(x)

const char *weft_version(void)
{
    return WEFT_QUOTE(WEFT_VERSION_MAJOR) "." WEFT_QUOTE(WEFT_VERSION_MINOR) "." WEFT_QUOTE(
        WEFT_VERSION_PATCH);
}

/* The public numbers of types are those of base/dtype.h. */
#define X(name, text, bits, cls, oip, npy) \
    _Static_assert((int)WEFT_##name == (int)WEFT_DTYPE_##name, "numbers of types are public");
WEFT_DTYPE_MAP(X)
#undef X
_Static_assert((int)WEFT_DIMS_MAX == (int)WEFT_RANK_MAX, "the highest rank is public");

size_t weft_size_of(weft_type type)
{
    return weft_dtype_size((weft_dtype)type);
}

const char *weft_name_of(weft_type type)
{
    return weft_dtype_name((weft_dtype)type);
}

static weft_status status_of(weft_err err)
{
    switch (err) {
    case WEFT_ERR_OK:
        return WEFT_OK;
    case WEFT_ERR_INPUT:
        return WEFT_INPUT;
    case WEFT_ERR_UNSUP:
        return WEFT_UNSUPPORTED;
    case WEFT_ERR_NOMEM:
        return WEFT_NO_MEMORY;
    case WEFT_ERR_NODEV:
        return WEFT_NO_DEVICE;
    case WEFT_ERR_IO:
        return WEFT_IO;
    default:
        return WEFT_INTERNAL;
    }
}

weft_status weft_embed__fail(weft_error *error, weft_err err, const weft_diag *diag)
{
    if (!error || err == WEFT_ERR_OK)
        return status_of(err);
    size_t at = 0;
    error->status = status_of(err);
    error->text[0] = '\0';
    for (size_t i = 0; i < weft_diag_count(diag) && at < sizeof error->text; i++) {
        const weft_message *m = weft_diag_at(diag, i);
        if (m->severity == WEFT_SEV_WARNING)
            continue;
        if (at > 0)
            at += (size_t)snprintf(error->text + at, sizeof error->text - at, "; ");
        if (at < sizeof error->text)
            at += weft_diag_format(m, error->text + at, sizeof error->text - at);
    }
    if (at == 0)
        snprintf(error->text, sizeof error->text, "%s", weft_err_text(err));
    return error->status;
}

weft_status weft_embed__say(weft_error *error, weft_status status, const char *fmt, ...)
{
    va_list args;
    if (!error)
        return status;
    error->status = status;
    va_start(args, fmt);
    vsnprintf(error->text, sizeof error->text, fmt, args);
    va_end(args);
    return status;
}
