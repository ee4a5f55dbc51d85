/* Attributes: names of keys, look-up by key, comparison, evaluation of dims. */
#include "ops/ops.h"

#include <string.h>

static const char *const attr_names[WEFT_ATTR_COUNT] = {
    [WEFT_ATTR_NONE] = "none",
#define A(name, text) [WEFT_ATTR_##name] = text,
#include "ops/attrs.def"
#undef A
};

const char *weft_attr_key_name(weft_attr_key key)
{
    return (unsigned)key < WEFT_ATTR_COUNT ? attr_names[key] : "?";
}

weft_attr_key weft_attr_key_parse(const char *text)
{
    for (int i = 1; i < WEFT_ATTR_COUNT; i++)
        if (strcmp(attr_names[i], text) == 0)
            return (weft_attr_key)i;
    return WEFT_ATTR_NONE;
}

bool weft_attr_equal(const weft_attr *a, const weft_attr *b)
{
    if (a->key != b->key || a->kind != b->kind)
        return false;
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INT:
        return a->u.i == b->u.i;
    case WEFT_KIND_FLOAT:
        return memcmp(&a->u.f, &b->u.f, sizeof a->u.f) == 0;
    case WEFT_KIND_STR:
        return strcmp(a->u.s, b->u.s) == 0;
    case WEFT_KIND_DTYPE:
        return a->u.dtype == b->u.dtype;
    default:
        break;
    }
    if (a->n != b->n)
        return false;
    for (uint32_t i = 0; i < a->n; i++) {
        bool same = true;
        if (a->kind == WEFT_KIND_INTS)
            same = a->u.ints[i] == b->u.ints[i];
        else if (a->kind == WEFT_KIND_FLOATS)
            same = memcmp(&a->u.floats[i], &b->u.floats[i], sizeof a->u.floats[i]) == 0;
        else if (a->kind == WEFT_KIND_STRS)
            same = strcmp(a->u.strs[i], b->u.strs[i]) == 0;
        else if (a->kind == WEFT_KIND_DIMS)
            same = a->u.dims[i] == b->u.dims[i];
        if (!same)
            return false;
    }
    return true;
}

bool weft_attrs_equal(weft_attrs a, weft_attrs b)
{
    if (a.n != b.n)
        return false;
    for (uint32_t i = 0; i < a.n; i++)
        if (!weft_attr_equal(&a.at[i], &b.at[i]))
            return false;
    return true;
}

const weft_attr *weft_attrs_find(weft_attrs attrs, weft_attr_key key)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        if (attrs.at[i].key == key)
            return &attrs.at[i];
    return NULL;
}

int64_t weft_attrs_int(weft_attrs attrs, weft_attr_key key, int64_t otherwise)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    return a != NULL && a->kind == WEFT_KIND_INT ? a->u.i : otherwise;
}

double weft_attrs_float(weft_attrs attrs, weft_attr_key key, double otherwise)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    if (a != NULL && a->kind == WEFT_KIND_INT)
        return (double)a->u.i;
    return a != NULL && a->kind == WEFT_KIND_FLOAT ? a->u.f : otherwise;
}

const char *weft_attrs_str(weft_attrs attrs, weft_attr_key key, const char *otherwise)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    return a != NULL && a->kind == WEFT_KIND_STR ? a->u.s : otherwise;
}

weft_dtype weft_attrs_dtype(weft_attrs attrs, weft_attr_key key, weft_dtype otherwise)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    return a != NULL && a->kind == WEFT_KIND_DTYPE ? a->u.dtype : otherwise;
}

const int64_t *weft_attrs_ints(weft_attrs attrs, weft_attr_key key, uint32_t *out_n)
{
    const weft_attr *a = weft_attrs_find(attrs, key);
    *out_n = 0;
    if (a == NULL || (a->kind != WEFT_KIND_INTS && a->kind != WEFT_KIND_DIMS))
        return NULL;
    if (a->kind == WEFT_KIND_INTS) {
        *out_n = a->n;
        return a->u.ints;
    }
    /* A constant dim is represented by its value. */
    for (uint32_t i = 0; i < a->n; i++)
        if (!weft_dim_is_const(a->u.dims[i]))
            return NULL;
    *out_n = a->n;
    return a->u.dims;
}

weft_attrs weft_attrs_copy(weft_attrs attrs, weft_arena *arena)
{
    weft_attr *at = weft_arena_array(arena, attrs.n, sizeof *at);
    for (uint32_t i = 0; i < attrs.n; i++) {
        at[i] = attrs.at[i];
        if (at[i].kind != WEFT_KIND_DIMS)
            continue; /* other lists belong to the module or the bundle */
        weft_dim *value = weft_arena_array(arena, at[i].n, sizeof *value);
        for (uint32_t k = 0; k < at[i].n; k++)
            value[k] = at[i].u.dims[k];
        at[i].u.dims = value;
    }
    return (weft_attrs){at, attrs.n};
}

const weft_attr *weft_attrs_bind(weft_attrs attrs, const weft_dimpool *dims, const int64_t *symbol,
                                 uint32_t n_symbol, weft_arena *arena, weft_attrs *out)
{
    weft_attr *at = weft_arena_array(arena, attrs.n, sizeof *at);
    for (uint32_t i = 0; i < attrs.n; i++) {
        at[i] = attrs.at[i];
        if (at[i].kind != WEFT_KIND_DIMS)
            continue;
        weft_dim *value = weft_arena_array(arena, at[i].n, sizeof *value);
        for (uint32_t k = 0; k < at[i].n; k++)
            if (!weft_dim_eval(dims, at[i].u.dims[k], symbol, n_symbol, &value[k]) ||
                !weft_dim_is_const(value[k]))
                return &attrs.at[i];
        at[i].u.dims = value;
    }
    *out = (weft_attrs){at, attrs.n};
    return NULL;
}
