/* Names and sentences of error codes, from the one list in err.h. */
#include "base/err.h"

#include <string.h>

const char *weft_err_name(weft_err err)
{
    switch (err) {
    case WEFT_ERR_OK:
        return "ok";
    case WEFT_ERR_INPUT:
        return "input";
    case WEFT_ERR_UNSUP:
        return "unsup";
    case WEFT_ERR_NOMEM:
        return "nomem";
    case WEFT_ERR_NODEV:
        return "nodev";
    case WEFT_ERR_IO:
        return "io";
    case WEFT_ERR_INFEASIBLE:
        return "infeasible";
    case WEFT_ERR_BUG:
        return "bug";
    case WEFT_ERR_COUNT:
        break;
    }
    return "unknown";
}

const char *weft_err_text(weft_err err)
{
    static const char *const text[] = {
#define X(name, sentence) [WEFT_ERR_##name] = (sentence),
        WEFT_ERR_MAP(X)
#undef X
    };
    return (unsigned)err < WEFT_ERR_COUNT ? text[err] : "unknown error";
}

const char *weft_errno_text(int code)
{
    const char *text = strerrordesc_np(code);
    return text ? text : "unknown error";
}
