/* Classes of nodes at three levels of strictness (weft_column_kind): equal weights; weights of
 * equal shapes; GEMMs and look-ups whose weights have different numbers of rows or columns. Where
 * the activations come from does not matter. Two nodes are in one class if and only if their class
 * numbers are equal, so that comparing nodes costs nothing later.
 *
 * Dims of different models are compared as follows: constants by value; the batch symbol of one
 * model equals the batch symbol of the other; all other symbolic dims are equal. Hash collisions do
 * not matter: a node joins a class only if it equals the class's first node in all that was hashed.
 */
#include "passes/merge/align.h"

#include "base/hash.h"
#include "base/map.h"

#include <string.h>

struct weft_node_classes {
    weft_arena *arena;
    const weft_module *m;
    weft_map *number[WEFT_COLUMN_KINDS];          /* hash -> class */
    WEFT_VEC(weft_item) first[WEFT_COLUMN_KINDS]; /* by class: its first item */
};

/* -- What may differ -------------------------------------------------------------------------- */

uint32_t weft_align__main_weight(const weft_module *m, weft_node n)
{
    if (weft_merge__is_gemm(m, n))
        return 1;
    weft_val v = weft_node_in(m, n, 0);
    bool table = weft_node_op(m, n) == WEFT_OP_GATHER && v.i &&
                 weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT && weft_val_ttype(m, v)->rank == 2;
    return table ? 0 : UINT32_MAX;
}

/* The dim of a result that counts features. */
static uint32_t feature_dim(const weft_module *m, weft_node n, uint32_t rank)
{
    weft_op_id op = weft_node_op(m, n);
    bool last = op == WEFT_OP_MATMUL || op == WEFT_OP_GATHER || rank < 2;
    return last ? rank - 1 : 1;
}

/* Whether nodes of one class at this level agree in dim k of a weight. */
static bool weight_dim_counts(weft_column_kind kind, uint32_t k)
{
    return kind == WEFT_COLUMN_SHAPE || k >= 2;
}

/* Level SIZE is level SHAPE for nodes that are neither GEMMs nor look-ups. */
static weft_column_kind effective(const weft_module *m, weft_node n, weft_column_kind kind)
{
    bool same = kind == WEFT_COLUMN_SIZE && weft_align__main_weight(m, n) == UINT32_MAX;
    return same ? WEFT_COLUMN_SHAPE : kind;
}

/* -- Hashes ----------------------------------------------------------------------------------- */

/* A dim in a form that is comparable between models: a constant, the batch, or anything else. */
static int64_t plain_dim(weft_dim d, weft_dim batch)
{
    if (weft_dim_is_const(d))
        return d;
    return d == batch ? INT64_MIN : INT64_MIN + 1;
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return weft_hash_mix(h, weft_hash64(s, strlen(s), 0));
}

static uint64_t hash_attr(uint64_t h, const weft_attr *a, weft_dim batch)
{
    h = weft_hash_mix(weft_hash_mix(h, a->key), a->kind);
    uint64_t bits = 0;
    switch ((weft_attr_kind)a->kind) {
    case WEFT_KIND_INT:
        return weft_hash_mix(h, (uint64_t)a->u.i);
    case WEFT_KIND_FLOAT:
        memcpy(&bits, &a->u.f, sizeof bits);
        return weft_hash_mix(h, bits);
    case WEFT_KIND_STR:
        return hash_text(h, a->u.s);
    case WEFT_KIND_DTYPE:
        return weft_hash_mix(h, a->u.dtype);
    default:
        break;
    }
    h = weft_hash_mix(h, a->n);
    for (uint32_t i = 0; i < a->n; i++) {
        if (a->kind == WEFT_KIND_INTS)
            h = weft_hash_mix(h, (uint64_t)a->u.ints[i]);
        else if (a->kind == WEFT_KIND_FLOATS)
            h = weft_hash_mix(h, weft_hash64(&a->u.floats[i], sizeof a->u.floats[i], 0));
        else if (a->kind == WEFT_KIND_STRS)
            h = hash_text(h, a->u.strs[i]);
        else if (a->kind == WEFT_KIND_DIMS)
            h = weft_hash_mix(h, (uint64_t)plain_dim(a->u.dims[i], batch));
    }
    return h;
}

static uint64_t hash_weight(uint64_t h, const weft_module *m, weft_val v, weft_column_kind kind)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    if (kind == WEFT_COLUMN_EQUAL)
        return weft_hash_mix(h, v.i);
    h = weft_hash_mix(weft_hash_mix(h, t->dtype), t->rank);
    for (uint32_t k = 0; k < t->rank; k++)
        if (weight_dim_counts(kind, k))
            h = weft_hash_mix(h, (uint64_t)t->dim[k]);
    return h;
}

static uint64_t hash_node(const weft_module *m, weft_node n, weft_dim batch, weft_column_kind kind)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    uint32_t n_in = weft_node_in_count(m, n), n_out = weft_node_out_count(m, n);
    uint64_t h = weft_hash_mix(weft_hash_mix(weft_node_op(m, n), n_in), n_out);
    kind = effective(m, n, kind);
    for (uint32_t i = 0; i < attrs.n; i++)
        h = hash_attr(h, &attrs.at[i], batch);
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val v = weft_node_in(m, n, i);
        h = weft_merge__is_weight(m, v) ? hash_weight(h, m, v, kind)
                                        : weft_hash_mix(h, UINT64_MAX - (v.i == 0));
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *t = weft_val_ttype(m, weft_node_out(m, n, i));
        h = weft_hash_mix(weft_hash_mix(h, t->dtype), weft_hash_mix(t->layout, t->rank));
        for (uint32_t k = 0; k < t->rank; k++)
            if (kind != WEFT_COLUMN_SIZE || k != feature_dim(m, n, t->rank))
                h = weft_hash_mix(h, (uint64_t)plain_dim(t->dim[k], batch));
    }
    return h;
}

/* -- Comparison ------------------------------------------------------------------------------- */

static bool same_attr(const weft_attr *a, weft_dim batch_a, const weft_attr *b, weft_dim batch_b)
{
    if (a->kind != WEFT_KIND_DIMS)
        return weft_attr_equal(a, b);
    bool same = a->key == b->key && a->kind == b->kind && a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = plain_dim(a->u.dims[i], batch_a) == plain_dim(b->u.dims[i], batch_b);
    return same;
}

static bool same_weight(const weft_module *m, weft_val v, weft_val w, weft_column_kind kind)
{
    const weft_ttype *s = weft_val_ttype(m, v), *t = weft_val_ttype(m, w);
    if (kind == WEFT_COLUMN_EQUAL)
        return v.i == w.i;
    if (s->dtype != t->dtype || s->rank != t->rank)
        return false;
    for (uint32_t k = 0; k < s->rank; k++)
        if (weight_dim_counts(kind, k) && s->dim[k] != t->dim[k])
            return false;
    return true;
}

static bool same_operands(const weft_module *m, weft_node a, weft_node b, weft_column_kind kind)
{
    for (uint32_t i = 0; i < weft_node_in_count(m, a); i++) {
        weft_val v = weft_node_in(m, a, i), w = weft_node_in(m, b, i);
        bool weight = weft_merge__is_weight(m, v);
        if ((v.i == 0) != (w.i == 0) || weight != weft_merge__is_weight(m, w) ||
            (weight && !same_weight(m, v, w, kind)))
            return false;
    }
    return true;
}

static bool same_node(const weft_module *m, const weft_item *a, const weft_item *b,
                      weft_column_kind kind)
{
    weft_attrs x = weft_node_attrs(m, a->node), y = weft_node_attrs(m, b->node);
    uint32_t n_out = weft_node_out_count(m, a->node);
    kind = effective(m, a->node, kind);
    if (weft_node_op(m, a->node) != weft_node_op(m, b->node) ||
        weft_node_in_count(m, a->node) != weft_node_in_count(m, b->node) ||
        n_out != weft_node_out_count(m, b->node) || x.n != y.n ||
        kind != effective(m, b->node, kind))
        return false;
    for (uint32_t i = 0; i < x.n; i++)
        if (!same_attr(&x.at[i], a->batch, &y.at[i], b->batch))
            return false;
    if (!same_operands(m, a->node, b->node, kind))
        return false;
    for (uint32_t i = 0; i < n_out; i++) {
        const weft_ttype *s = weft_val_ttype(m, weft_node_out(m, a->node, i));
        const weft_ttype *t = weft_val_ttype(m, weft_node_out(m, b->node, i));
        if (s->dtype != t->dtype || s->layout != t->layout || s->rank != t->rank)
            return false;
        for (uint32_t k = 0; k < s->rank; k++)
            if ((kind != WEFT_COLUMN_SIZE || k != feature_dim(m, a->node, s->rank)) &&
                plain_dim(s->dim[k], a->batch) != plain_dim(t->dim[k], b->batch))
                return false;
    }
    return true;
}

/* -- Numbers ---------------------------------------------------------------------------------- */

weft_node_classes *weft_align__make_classes(const weft_module *m, weft_arena *arena)
{
    weft_node_classes *c = weft_arena_alloc(arena, sizeof *c);
    c->arena = arena;
    c->m = m;
    for (int k = 0; k < WEFT_COLUMN_KINDS; k++)
        c->number[k] = weft_map_create(arena);
    return c;
}

static uint32_t find_class(weft_node_classes *c, const weft_item *item, weft_column_kind kind)
{
    uint64_t h = hash_node(c->m, item->node, item->batch, kind), number = 0;
    while (weft_map_get(c->number[kind], h, &number)) {
        if (same_node(c->m, &c->first[kind].at[number], item, kind))
            return (uint32_t)number;
        h = weft_hash_mix(h, 1);
    }
    number = c->first[kind].len;
    weft_map_put(c->number[kind], h, number);
    WEFT_VEC_PUSH(c->arena, &c->first[kind], *item);
    return (uint32_t)number;
}

weft_item weft_align__make_item(weft_node_classes *c, weft_node n, weft_dim batch)
{
    weft_item item = {.node = n, .batch = batch, .is_gemm = weft_merge__is_gemm(c->m, n)};
    for (uint32_t i = 0; i < weft_node_in_count(c->m, n); i++) {
        weft_val v = weft_node_in(c->m, n, i);
        if (weft_merge__is_weight(c->m, v) &&
            weft_weight_get(c->m, weft_val_weight(c->m, v))->bytes >= WEFT_ANCHOR_BYTES)
            item.anchors = true;
    }
    for (int k = 0; k < WEFT_COLUMN_KINDS; k++)
        item.class[k] = find_class(c, &item, (weft_column_kind)k);
    return item;
}
