/* level-schedule: sorts nodes by level, for devices that run launches concurrently.
 *
 *   a1 a2 a3 b1 b2 b3   ==>   a1 b1 | a2 b2 | a3 b3
 *
 * The level of a node is the length of the longest path from an input to it; views, which run
 * nothing, do not count. Nodes of a level are independent. plan-memory gives values of a level
 * disjoint memory, so that reuse of memory adds no dependency between nodes of a level. The order
 * within a level is kept. O(nodes). */
#include "passes/passes_int.h"

#include <string.h>

typedef struct levels {
    weft_module *m;
    uint32_t *distance; /* by value, weft_val.i */
    uint32_t longest;
} levels;

static uint32_t distance_of(levels *w, weft_node n)
{
    uint32_t d = 0;
    for (uint32_t i = 0; i < weft_node_in_count(w->m, n); i++) {
        weft_val v = weft_node_in(w->m, n, i);
        if (v.i && w->distance[v.i] > d)
            d = w->distance[v.i];
    }
    return d + (weft_node_op(w->m, n) != WEFT_OP_VIEW);
}

static void note(levels *w, weft_node n, uint32_t d)
{
    for (uint32_t i = 0; i < weft_node_out_count(w->m, n); i++) {
        weft_val v = weft_node_out(w->m, n, i);
        if (v.i)
            w->distance[v.i] = d;
    }
    if (d > w->longest)
        w->longest = d;
}

/* Counting sort by level; then the nodes are relinked in that order. */
static bool sort(weft_passctx *cx, levels *w, weft_graph *g)
{
    uint32_t n = weft_graph_node_count(g), i = 0;
    weft_node *node = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *node);
    weft_node *sorted = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *sorted);
    uint32_t *far = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *far);
    WEFT_FOREACH_NODE (w->m, g, x) {
        node[i] = x;
        far[i] = distance_of(w, x);
        note(w, x, far[i++]);
    }
    uint32_t *start = weft_arena_array(cx->scratch, (size_t)w->longest + 2, sizeof *start);
    bool in_order = true;
    for (i = 0; i < n; i++) {
        start[far[i] + 1]++;
        in_order = in_order && (i == 0 || far[i] >= far[i - 1]);
    }
    if (in_order || !weft_rewrite__allow(cx))
        return false;
    for (i = 1; i <= w->longest; i++)
        start[i] += start[i - 1];
    for (i = 0; i < n; i++)
        sorted[start[far[i]]++] = node[i];
    for (i = n - 1; i-- > 0;)
        weft_node_move_before(g, sorted[i], sorted[i + 1]);
    return true;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    levels w = {.m = m};
    w.distance = weft_arena_array(cx->scratch, (size_t)weft_val_count(m) + 1, sizeof *w.distance);
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        w.longest = 0;
        *changed = sort(cx, &w, weft_graph_at(m, i)) || *changed;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_level_schedule = {
    .name = "level-schedule",
    .brief = "put nodes that do not need each other side by side",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .run = run,
};
