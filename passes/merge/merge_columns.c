/* Columns, sets of their models (bit i: model i), and the merge groups that such sets make. */
#include "passes/merge/merge_int.h"

weft_node weft_merge__first(const weft_merger *g, const weft_column *c)
{
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (c->node[i].i)
            return c->node[i];
    return (weft_node){0};
}

bool weft_merge__same_weights(const weft_merger *g, weft_node a, weft_node b)
{
    uint32_t n = weft_node_in_count(g->m, a);
    for (uint32_t k = 0; k < n; k++) {
        weft_val x = weft_node_in(g->m, a, k), y = weft_node_in(g->m, b, k);
        if ((weft_merge__is_weight(g->m, x) || weft_merge__is_weight(g->m, y)) && x.i != y.i)
            return false;
    }
    return n == weft_node_in_count(g->m, b);
}

uint32_t weft_merge__models(const weft_merger *g, const weft_column *c)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        set |= (uint32_t)(c->node[i].i != 0) << i;
    return set;
}

uint32_t weft_merge__lowest(uint32_t set)
{
    uint32_t i = 0;
    while (i < 31 && !(set >> i & 1))
        i++;
    return i;
}

uint32_t weft_merge__equal_to_first(const weft_merger *g, const weft_column *c, uint32_t set)
{
    weft_node first = c->node[weft_merge__lowest(set)];
    uint32_t equal = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (set >> i & 1 && weft_merge__same_weights(g, first, c->node[i]))
            equal |= 1u << i;
    return equal;
}

weft_merge_group weft_merge__make_group(const weft_merger *g, const weft_column *c, uint32_t set,
                                        const weft_merge_strategy *strategy)
{
    uint32_t n = g->columns.n_model;
    weft_merge_group p = {.strategy = strategy};
    p.column.node = weft_arena_array(g->cx->scratch, n, sizeof *p.column.node);
    for (uint32_t i = 0; i < n; i++)
        if (set >> i & 1 && c->node[i].i) {
            p.column.node[i] = c->node[i];
            p.column.n++;
        }
    p.level = p.column.n ? weft_merge__level(&g->columns, &p.column) : WEFT_JOINT_NONE;
    return p;
}

uint32_t weft_merge__run(uint32_t set, uint32_t same, uint32_t whole, uint32_t i)
{
    uint32_t run = 1u << i;
    while (i < 31 && set >> (i + 1) && whole >> (i + 1)) {
        uint32_t next = i + 1 + weft_merge__lowest(set >> (i + 1));
        if (!(same >> next & 1) || next != i + 1 + weft_merge__lowest(whole >> (i + 1)))
            break;
        run |= 1u << next;
        i = next;
    }
    return run;
}
