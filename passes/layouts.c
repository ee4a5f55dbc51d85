/* Reorders between layouts: one for each value and layout, before its first user. */
#include "passes/layouts.h"

#include <string.h>

weft_layouts weft_layouts__start(weft_passctx *cx, weft_graph *g)
{
    return (weft_layouts){
        .g = g, .m = weft_graph_module(g), .reordered = weft_map_create(cx->scratch)};
}

weft_layout weft_layouts__layout_of(const weft_layouts *r, weft_val v)
{
    return (weft_layout)weft_val_ttype(r->m, v)->layout;
}

static weft_type with_layout(const weft_layouts *r, weft_val v, weft_layout layout)
{
    weft_ttype type = *weft_val_ttype(r->m, v);
    type.layout = (uint8_t)layout;
    return weft_type_intern(r->m, &type);
}

/* `v` in the layout given; inserts a reorder before `user` if needed. */
static weft_val in_layout(weft_layouts *r, weft_node user, weft_val v, weft_layout want)
{
    weft_layout have = weft_layouts__layout_of(r, v);
    if (have == want)
        return v;
    uint64_t key = (uint64_t)v.i << 8 | (uint64_t)want, found = 0;
    if (weft_map_get(r->reordered, key, &found))
        return (weft_val){(uint32_t)found};
    weft_type type = with_layout(r, v, want);
    weft_attr attr = WEFT_ATTR_OF_STR(LAYOUT, weft_layout_name(want));
    weft_node_spec spec = {.op = WEFT_OP_REORDER,
                           .in = &v,
                           .n_in = 1,
                           .out = &type,
                           .n_out = 1,
                           .attr = &attr,
                           .n_attr = 1,
                           .loc = weft_node_loc(r->m, user)};
    weft_node n = weft_node_insert_before(r->g, user, &spec);
    weft_val out = weft_node_out(r->m, n, 0);
    weft_map_put(r->reordered, key, out.i);
    /* The operand of the reorder is the value in its other layout. */
    weft_map_put(r->reordered, (uint64_t)out.i << 8 | (uint64_t)have, v.i);
    r->changed = true;
    return out;
}

void weft_layouts__ask(weft_layouts *r, weft_node n, uint32_t i, weft_layout want)
{
    weft_val v = weft_node_in(r->m, n, i);
    if (v.i && weft_layouts__layout_of(r, v) != want)
        weft_node_set_in(r->m, n, i, in_layout(r, n, v, want));
}

void weft_layouts__ask_plain(weft_layouts *r, weft_node n)
{
    for (uint32_t i = 0; i < weft_node_in_count(r->m, n); i++)
        weft_layouts__ask(r, n, i, WEFT_LAYOUT_PLAIN);
}

static void set_layout(weft_layouts *r, weft_val v, weft_layout layout)
{
    if (weft_layouts__layout_of(r, v) != layout) {
        weft_val_set_type(r->m, v, with_layout(r, v, layout));
        r->changed = true;
    }
}

void weft_layouts__give(weft_layouts *r, weft_node n, weft_layout layout)
{
    set_layout(r, weft_node_out(r->m, n, 0), layout);
    if (weft_layouts__layout_of(r, weft_node_in(r->m, n, 0)) != layout)
        weft_node_set_attr(r->m, n, &WEFT_ATTR_OF_STR(LAYOUT, weft_layout_name(layout)));
    else
        weft_node_drop_attr(r->m, n, WEFT_ATTR_LAYOUT);
}

void weft_layouts__give_all(weft_layouts *r, weft_node n, weft_layout layout)
{
    weft_layouts__give(r, n, layout);
    for (uint32_t i = 1; i < weft_node_out_count(r->m, n); i++) {
        weft_val v = weft_node_out(r->m, n, i);
        if (weft_val_ttype(r->m, v)->dtype != WEFT_DTYPE_NONE)
            set_layout(r, v, layout);
    }
}

void weft_layouts__finish(weft_layouts *r)
{
    for (uint32_t i = 0; i < weft_graph_output_count(r->g); i++) {
        weft_val v = weft_graph_output(r->g, i);
        if (weft_layouts__layout_of(r, v) == WEFT_LAYOUT_PLAIN)
            continue;
        weft_attr attr = WEFT_ATTR_OF_STR(LAYOUT, weft_layout_name(WEFT_LAYOUT_PLAIN));
        weft_type type = with_layout(r, v, WEFT_LAYOUT_PLAIN);
        weft_node_spec spec = {.op = WEFT_OP_REORDER,
                               .in = &v,
                               .n_in = 1,
                               .out = &type,
                               .n_out = 1,
                               .attr = &attr,
                               .n_attr = 1};
        weft_node n = weft_node_append(r->g, &spec);
        weft_graph_set_output(r->g, i, weft_node_out(r->m, n, 0));
        r->changed = true;
    }
}

/* -- Shapes --------------------------------------------------------------------------------- */

bool weft_layouts__is_full(const weft_layouts *r, weft_val v, weft_val like)
{
    const weft_ttype *a = weft_val_ttype(r->m, v), *b = weft_val_ttype(r->m, like);
    return a->rank == b->rank && memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

bool weft_layouts__is_gate(const weft_layouts *r, weft_val v, weft_val like)
{
    const weft_ttype *a = weft_val_ttype(r->m, v), *b = weft_val_ttype(r->m, like);
    if (a->rank != b->rank || a->dim[0] != b->dim[0] || a->dim[1] != b->dim[1])
        return false;
    for (uint32_t i = 2; i < a->rank; i++)
        if (a->dim[i] != 1)
            return false;
    return true;
}

bool weft_layouts__moves_channels(const weft_module *m, weft_node n, bool back)
{
    uint32_t rank = 0, last;
    const int64_t *perm = weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_PERM, &rank);
    if (!perm || rank < 3 || perm[0] != 0)
        return false;
    last = rank - 1;
    for (uint32_t i = 1; i < rank; i++)
        if (perm[i] != (back ? i == 1 ? last : i - 1 : i == last ? 1 : i + 1))
            return false;
    return true;
}
