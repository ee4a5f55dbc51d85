/* Layouts of tensors: names, blocks, and the bytes that a tensor takes in a layout. */
#include "base/num.h"
#include "ops/ops.h"

#include <string.h>

static const struct {
    const char *name;
    uint32_t block;
} layouts[WEFT_LAYOUT_COUNT] = {
#define X(name, text, block) [WEFT_LAYOUT_##name] = {text, block},
    WEFT_LAYOUT_MAP(X)
#undef X
};

const char *weft_layout_name(weft_layout layout)
{
    return (unsigned)layout < WEFT_LAYOUT_COUNT ? layouts[layout].name : "?";
}

bool weft_layout_parse(const char *text, weft_layout *out)
{
    for (int i = 0; i < WEFT_LAYOUT_COUNT; i++) {
        if (strcmp(layouts[i].name, text) == 0) {
            *out = (weft_layout)i;
            return true;
        }
    }
    return false;
}

uint32_t weft_layout_block(weft_layout layout)
{
    return (unsigned)layout < WEFT_LAYOUT_COUNT ? layouts[layout].block : 1;
}

weft_dim weft_ttype_numel(weft_dimpool *pool, const weft_ttype *type)
{
    weft_dim n = 1;
    for (uint32_t i = 0; i < type->rank; i++)
        n = weft_dim_mul(pool, n, type->dim[i]);
    return n;
}

bool weft_layout_bytes(weft_dtype dtype, weft_layout layout, const int64_t *dim, int32_t rank,
                       uint64_t *out)
{
    uint64_t block = weft_layout_block(layout);
    uint64_t bytes = weft_dtype_size(dtype);
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] < 0)
            return false;
        uint64_t d = (uint64_t)dim[i];
        if (i == 1 && block > 1)
            d = weft_align_up(d, block);
        if (!weft_size_mul(bytes, d, &bytes))
            return false;
    }
    *out = bytes;
    return true;
}
