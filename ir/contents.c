/* Known contents of small integer values. */
#include "ir/ir_int.h"

#include <string.h>

weft_contents *weft_contents_create(weft_module *m, weft_arena *arena)
{
    weft_contents *c = weft_arena_alloc(arena, sizeof *c);
    c->m = m;
    c->arena = arena;
    c->entry = weft_map_create(arena);
    return c;
}

static void put_content(weft_contents *c, weft_val v, weft_content x)
{
    uint64_t i;
    if (weft_map_get(c->entry, v.i, &i)) {
        c->entries.at[i] = x;
        return;
    }
    weft_map_put(c->entry, v.i, c->entries.len);
    WEFT_VEC_PUSH(c->arena, &c->entries, x);
}

const void *weft_contents__align(weft_arena *arena, const weft_weight_info *info, weft_dtype dtype,
                                 uint64_t limit)
{
    size_t size = weft_dtype_size(dtype);
    if (info->bytes == 0 || (uintptr_t)info->data % size == 0)
        return info->data;
    if (info->bytes > limit)
        return NULL;
    void *copy = weft_arena_alloc(arena, info->bytes);
    memcpy(copy, info->data, info->bytes);
    return copy;
}

static weft_content read_weight(weft_contents *c, weft_weight w)
{
    weft_content none = {NULL, 0};
    weft_tensor t = weft_weight_tensor(c->m, w);
    int64_t n = weft_tensor_numel(&t);
    bool fits = !weft_dtype_is_float(t.dtype) && t.dtype != WEFT_DTYPE_U64;
    if (!fits || n < 0 || n > WEFT_FOLLOW_MAX)
        return none;
    const void *data =
        weft_contents__align(c->arena, weft_weight_get(c->m, w), t.dtype, WEFT_UNALIGNED_MAX);
    memcpy(&t.data, &data, sizeof data);
    weft_dim *dim = weft_arena_array(c->arena, (size_t)n, sizeof *dim);
    for (int64_t i = 0; i < n; i++)
        dim[i] = weft_dim_of_number(weft_tensor_get_i64(&t, i));
    return (weft_content){dim, (uint32_t)n};
}

const weft_dim *weft_contents_get(weft_contents *c, weft_val v, uint32_t *out_n)
{
    weft_content x = {NULL, 0};
    uint64_t i;
    if (weft_map_get(c->entry, v.i, &i)) {
        x = c->entries.at[i];
    } else if (weft_val_get_kind(c->m, v) == WEFT_VAL_WEIGHT) {
        x = read_weight(c, weft_val_weight(c->m, v));
        put_content(c, v, x);
    }
    *out_n = x.n;
    return x.dim;
}

void weft_contents_set(weft_contents *c, weft_val v, const weft_dim *dim, uint32_t n)
{
    put_content(c, v, (weft_content){dim, n});
}
