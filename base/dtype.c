/* The rows of WEFT_DTYPE_MAP as a table, and look-ups in it. */
#include "base/dtype.h"

#include <string.h>

typedef struct row {
    const char *name, *oip, *npy;
    unsigned bits;
    weft_dtype_class cls;
} row;

static const row rows[WEFT_DTYPE_COUNT] = {[WEFT_DTYPE_NONE] = {"none", "", "", 0, WEFT_CLASS_NONE},
#define X(id, text, bits_of_value, kind, oip_name, npy_name) \
    [WEFT_DTYPE_##id] = {text, oip_name, npy_name, bits_of_value, WEFT_CLASS_##kind},
                                           WEFT_DTYPE_MAP(X)
#undef X
};

static const row *get_row(weft_dtype dtype)
{
    return &rows[(unsigned)dtype < WEFT_DTYPE_COUNT ? dtype : WEFT_DTYPE_NONE];
}

size_t weft_dtype_size(weft_dtype dtype)
{
    return (get_row(dtype)->bits + 7) / 8;
}

unsigned weft_dtype_bits(weft_dtype dtype)
{
    return get_row(dtype)->bits;
}

weft_dtype_class weft_dtype_get_class(weft_dtype dtype)
{
    return get_row(dtype)->cls;
}

const char *weft_dtype_name(weft_dtype dtype)
{
    return get_row(dtype)->name;
}

const char *weft_dtype_oip_name(weft_dtype dtype)
{
    return get_row(dtype)->oip;
}

const char *weft_dtype_npy_name(weft_dtype dtype)
{
    return get_row(dtype)->npy;
}

weft_dtype weft_dtype_parse(const char *text)
{
    for (int i = WEFT_DTYPE_NONE + 1; i < WEFT_DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, text) == 0)
            return (weft_dtype)i;
    return WEFT_DTYPE_NONE;
}

weft_dtype weft_dtype_from_oip(const char *text)
{
    for (int i = WEFT_DTYPE_NONE + 1; i < WEFT_DTYPE_COUNT; i++)
        if (strcmp(rows[i].oip, text) == 0)
            return (weft_dtype)i;
    return WEFT_DTYPE_NONE;
}

weft_dtype weft_dtype_from_npy(const char *text)
{
    for (int i = WEFT_DTYPE_NONE + 1; i < WEFT_DTYPE_COUNT; i++)
        if (rows[i].npy[0] && strcmp(rows[i].npy, text) == 0)
            return (weft_dtype)i;
    return WEFT_DTYPE_NONE;
}
