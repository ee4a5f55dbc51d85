/* dedup: deduplicates weights and nodes.
 *
 * Weights of all models with equal type and content become one; then nodes of a graph with the same
 * operator, operands and attributes become one (global value numbering on SSA, as in Click, "Global
 * code motion / global value numbering", 1995, without the motion). Only weights with a type and
 * size that occur twice are hashed; weights with equal hashes are compared byte by byte. Random
 * operators are left unchanged. O(nodes + bytes hashed). */
#include "passes/passes_int.h"

#include "base/map.h"

#include <string.h>

/* -- Weights -------------------------------------------------------------------------------- */

static uint64_t shape_key(const weft_weight_info *info)
{
    return weft_hash_mix(info->type.i, info->bytes);
}

static void replace_everywhere(weft_module *m, weft_val old, weft_val with)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        weft_val_replace(weft_graph_at(m, i), old, with);
}

static bool share_weights(weft_passctx *cx, weft_module *m)
{
    uint32_t n = weft_weight_count(m);
    weft_map *shapes = weft_map_create(cx->scratch); /* type and size -> number of weights */
    for (uint32_t w = 1; w <= n; w++) {
        uint64_t key = shape_key(weft_weight_get(m, (weft_weight){w})), count = 0;
        weft_map_get(shapes, key, &count);
        weft_map_put(shapes, key, count + 1);
    }
    weft_map *first = weft_map_create(cx->scratch); /* content -> first weight */
    bool changed = false;
    for (uint32_t i = 1; i <= n; i++) {
        weft_weight w = {i};
        uint64_t count = 0, seen = 0;
        weft_val v = weft_weight_val(m, w);
        weft_map_get(shapes, shape_key(weft_weight_get(m, w)), &count);
        if (count < 2)
            continue;
        uint64_t key = weft_hash_mix(weft_weight_hash(m, w).lo, weft_weight_hash(m, w).hi);
        if (!weft_map_get(first, key, &seen)) {
            weft_map_put(first, key, i);
            continue;
        }
        weft_weight original = {(uint32_t)seen};
        if (!weft_weight_equal(m, original, w) || !weft_rewrite__allow(cx))
            continue;
        replace_everywhere(m, v, weft_weight_val(m, original));
        changed = true;
    }
    return changed;
}

/* -- Nodes ---------------------------------------------------------------------------------- */

static size_t payload_bytes(const weft_attr *a, const void **out)
{
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INTS:
        *out = a->u.ints;
        return a->n * sizeof *a->u.ints;
    case WEFT_KIND_FLOATS:
        *out = a->u.floats;
        return a->n * sizeof *a->u.floats;
    case WEFT_KIND_DIMS:
        *out = a->u.dims;
        return a->n * sizeof *a->u.dims;
    case WEFT_KIND_STR:
        *out = a->u.s;
        return strlen(a->u.s);
    default:
        *out = &a->u;
        return a->kind == WEFT_KIND_DTYPE ? sizeof a->u.dtype : sizeof a->u.i;
    }
}

static bool same_node(const weft_module *m, weft_node a, weft_node b)
{
    if (!weft_rewrite__is_like(m, a, b))
        return false;
    for (uint32_t i = 0; i < weft_node_in_count(m, a); i++)
        if (weft_node_in(m, a, i).i != weft_node_in(m, b, i).i)
            return false;
    return true;
}

static uint64_t node_key(const weft_module *m, weft_node n)
{
    uint64_t h = weft_node_op(m, n);
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++)
        h = weft_hash_mix(h, weft_node_in(m, n, i).i);
    weft_attrs attrs = weft_node_attrs(m, n);
    for (uint32_t i = 0; i < attrs.n; i++) {
        h = weft_hash_mix(h, attrs.at[i].key);
        if (attrs.at[i].kind == WEFT_KIND_STRS)
            continue;
        const void *bytes = NULL;
        size_t len = payload_bytes(&attrs.at[i], &bytes);
        h = weft_hash64(bytes, len, h);
    }
    return h;
}

static bool share_nodes(weft_passctx *cx, weft_module *m, weft_graph *g)
{
    weft_map *seen = weft_map_create(cx->scratch);
    bool changed = false;
    WEFT_FOREACH_NODE (m, g, n) {
        if (weft_node_opdef(m, n)->traits & WEFT_T_RANDOM)
            continue;
        uint64_t key = node_key(m, n), other = 0;
        if (!weft_map_get(seen, key, &other)) {
            weft_map_put(seen, key, n.i);
            continue;
        }
        weft_node original = {(uint32_t)other};
        if (!same_node(m, original, n) || !weft_rewrite__allow(cx))
            continue;
        for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
            weft_rewrite__replace_result(g, n, i, weft_node_out(m, original, i));
        weft_node_remove(g, n);
        changed = true;
    }
    return changed;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    *changed = share_weights(cx, m);
    for (uint32_t i = 0; i < weft_graph_count(m); i++)
        *changed |= share_nodes(cx, m, weft_graph_at(m, i));
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_dedup = {
    .name = "dedup",
    .brief = "equal weights of all models become one, equal nodes too",
    .any_stage = true,
    .run = run,
};
