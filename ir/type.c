/* Interned types: one record for each distinct type, found by hash. Type 0 has no element type and
 * stands for an omitted result. */
#include "ir/ir_int.h"

#include <string.h>

static uint64_t hash_type(const weft_ttype *t)
{
    uint64_t h = weft_hash_mix(t->dtype, ((uint64_t)t->layout << 8) | t->rank);
    for (uint32_t i = 0; i < t->rank; i++)
        h = weft_hash_mix(h, (uint64_t)t->dim[i]);
    return h;
}

static bool same_type(const weft_ttype *a, const weft_ttype *b)
{
    return a->dtype == b->dtype && a->layout == b->layout && a->rank == b->rank &&
           memcmp(a->dim, b->dim, a->rank * sizeof a->dim[0]) == 0;
}

weft_type weft_type_intern(weft_module *m, const weft_ttype *type)
{
    if (type->dtype == WEFT_DTYPE_NONE)
        return (weft_type){0};
    uint64_t hash = hash_type(type);
    uint64_t first = 0;
    weft_map_get(m->type_ids, hash, &first);
    for (uint32_t i = (uint32_t)first; i; i = m->types.at[i]->same_hash)
        if (same_type(&m->types.at[i]->type, type))
            return (weft_type){i};
    weft_type_rec *rec = weft_arena_alloc(m->arena, sizeof *rec);
    rec->type.dtype = type->dtype;
    rec->type.layout = type->layout;
    rec->type.rank = type->rank;
    memcpy(rec->type.dim, type->dim, type->rank * sizeof type->dim[0]);
    rec->hash = hash;
    rec->same_hash = (uint32_t)first;
    WEFT_VEC_PUSH(m->arena, &m->types, rec);
    weft_map_put(m->type_ids, hash, m->types.len - 1);
    return (weft_type){m->types.len - 1};
}

weft_type weft_type_make(weft_module *m, weft_dtype dtype, const weft_dim *dim, uint32_t rank)
{
    weft_ttype t = {.dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    if (rank)
        memcpy(t.dim, dim, rank * sizeof *dim);
    return weft_type_intern(m, &t);
}

const weft_ttype *weft_type_get(const weft_module *m, weft_type type)
{
    return &m->types.at[type.i]->type;
}

bool weft_type__bytes(const weft_module *m, weft_type type, uint64_t *out)
{
    const weft_ttype *t = weft_type_get(m, type);
    if (t->dtype == WEFT_DTYPE_NONE || t->layout != WEFT_LAYOUT_PLAIN)
        return false;
    for (uint32_t i = 0; i < t->rank; i++)
        if (!weft_dim_is_const(t->dim[i]) || t->dim[i] < 0)
            return false;
    int64_t n = weft_numel(t->dim, t->rank);
    if (n < 0)
        return false;
    *out = (uint64_t)n * weft_dtype_size((weft_dtype)t->dtype);
    return true;
}
