/* Requirements of a graph: sizes that have to agree at run time. */
#include "base/hash.h"
#include "ir/ir_int.h"

bool weft_graph_add_require(weft_graph *g, const weft_graph_require *require)
{
    weft_arena *arena = g->m->arena;
    uint64_t key = weft_hash_mix(weft_hash_mix((uint64_t)require->a, (uint64_t)require->b),
                                 weft_hash_mix(require->kind, (uint64_t)require->guard));
    uint64_t found;
    if (!g->require_of)
        g->require_of = weft_map_create(arena);
    if (weft_map_get(g->require_of, key, &found)) {
        const weft_graph_require *r = &g->requires.at[found];
        if (r->a == require->a && r->b == require->b && r->kind == require->kind &&
            r->guard == require->guard)
            return true;
    }
    if (g->requires.len == WEFT_GRAPH_REQUIRES_MAX)
        return false;
    weft_map_put(g->require_of, key, g->requires.len);
    weft_graph_require copy = *require;
    copy.item = weft_module__name(g->m, require->item);
    copy.what = weft_module__name(g->m, require->what);
    WEFT_VEC_PUSH(arena, &g->requires, copy);
    return true;
}

uint32_t weft_graph_require_count(const weft_graph *g)
{
    return g->requires.len;
}

const weft_graph_require *weft_graph_require_at(const weft_graph *g, uint32_t i)
{
    return &g->requires.at[i];
}

const weft_graph_require *weft_graph_find_broken(const weft_graph *g, const weft_dimpool *dims,
                                                 const int64_t *value, uint32_t n)
{
    for (uint32_t i = 0; i < g->requires.len; i++) {
        const weft_graph_require *r = &g->requires.at[i];
        int64_t guard, a, b;
        if (weft_dim_eval(dims, r->guard, value, n, &guard) && guard != 0 &&
            weft_dim_eval(dims, r->a, value, n, &a) && weft_dim_eval(dims, r->b, value, n, &b) &&
            !weft_require_holds(r->kind, a, b))
            return r;
    }
    return NULL;
}
