/* GEMMs of equal weights whose epilogues differ, because another node of one model stands behind
 * the GEMM: the residual of the base is fused, that of a sibling is added behind its adapter.
 *
 *   @base:    %1 = matmul %x, $w, $b, %x {epilogue = ["add acc i3"]}
 *   @adapted: %1 = matmul %x, $w, $b;  %2 = matmul %1, $down;  ...
 *
 * While such models are merged, the GEMM and its epilogue are two nodes in each of them, so that
 * the GEMMs are equal and run as one:
 *
 *   @base:    %1 = matmul %x, $w, $b;  %2 = ew %1, %x {steps = ["add i0 i1"]}
 *
 * Afterwards the models' own graphs are as before; the joint graph keeps both nodes. Not where
 * every bit must stay (WEFT_MERGE_EXACT): kernels compute some steps in an epilogue in another way
 * than alone. O(nodes). */
#include "base/hash.h"
#include "passes/merge/merge_int.h"

enum { FIRST = 3 /* operand of an epilogue */ };

typedef struct split {
    weft_graph *graph;
    weft_node gemm, rest;
    weft_attr epilogue;
    weft_val in[WEFT_MERGE_OPERANDS_MAX]; /* of the GEMM */
    uint32_t n_in;
} split;

struct weft_merge_splits {
    WEFT_VEC(split) done;
};

/* -- Which ------------------------------------------------------------------------------------ */

static const weft_attr *epilogue_of(const weft_module *m, weft_node n)
{
    return weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_EPILOGUE);
}

static bool can_split(const weft_merger *g, weft_node n)
{
    return weft_merge__is_gemm(g->m, n) && !weft_merge__refuse_node(g, n);
}

/* Nodes whose operator, weight and bias are the same have one key. */
static uint64_t key_of(const weft_module *m, weft_node n)
{
    uint64_t h = weft_hash_mix(weft_node_op(m, n), weft_node_in(m, n, 1).i);
    return weft_hash_mix(h, weft_node_in(m, n, 2).i);
}

/* In place of a node: GEMMs of this key have different epilogues. */
static const uint64_t differs = UINT64_MAX;

/* Notes the first GEMM of each key, or that a later one has another epilogue. */
static void note_gemms(const weft_merger *g, const weft_graph *graph, weft_map *first)
{
    WEFT_FOREACH_NODE (g->m, graph, n) {
        uint64_t key, one;
        if (!can_split(g, n))
            continue;
        key = key_of(g->m, n);
        if (!weft_map_get(first, key, &one)) {
            weft_map_put(first, key, n.i);
        } else if (one != differs) {
            const weft_attr *a = epilogue_of(g->m, (weft_node){(uint32_t)one});
            const weft_attr *b = epilogue_of(g->m, n);
            if (a && b ? !weft_attr_equal(a, b) : a != b)
                weft_map_put(first, key, differs);
        }
    }
}

/* -- There and back --------------------------------------------------------------------------- */

/* A node behind `n` that applies its epilogue; the users of `n` use it instead. */
static weft_node append_rest(weft_merger *g, weft_graph *graph, weft_node n)
{
    uint32_t n_in = weft_node_in_count(g->m, n), n_own = 1, operand[WEFT_MERGE_OPERANDS_MAX] = {0};
    weft_val y = weft_node_out(g->m, n, 0), in[WEFT_MERGE_OPERANDS_MAX] = {0};
    const char *steps[WEFT_STEPS_MAX];
    for (uint32_t k = FIRST; k < n_in; k++) {
        operand[k] = n_own;
        if (weft_node_in(g->m, n, k).i)
            in[n_own++] = weft_node_in(g->m, n, k);
    }
    weft_attr attr =
        WEFT_ATTR_OF_STRS(STEPS, steps, weft_merge__add_epilogue(g, n, operand, "i0", steps, 0));
    weft_type type = weft_val_type(g->m, y);
    weft_node next = weft_node_next(g->m, n);
    weft_node_spec spec = {.op = WEFT_OP_EW,
                           .in = in,
                           .n_in = n_own,
                           .out = &type,
                           .n_out = 1,
                           .attr = &attr,
                           .n_attr = 1,
                           .loc = weft_node_loc(g->m, n)};
    weft_node rest =
        next.i ? weft_node_insert_before(graph, next, &spec) : weft_node_append(graph, &spec);
    weft_rewrite__replace_result(graph, n, 0, weft_node_out(g->m, rest, 0));
    weft_node_set_in(g->m, rest, 0, y);
    return rest;
}

static split split_node(weft_merger *g, weft_graph *graph, weft_node n)
{
    split s = {.graph = graph,
               .gemm = n,
               .epilogue = *epilogue_of(g->m, n),
               .n_in = weft_node_in_count(g->m, n)};
    for (uint32_t k = 0; k < s.n_in; k++)
        s.in[k] = weft_node_in(g->m, n, k);
    s.rest = append_rest(g, graph, n);
    for (uint32_t k = FIRST; k < s.n_in; k++)
        weft_node_set_in(g->m, n, k, (weft_val){0});
    weft_node_trim_in(g->m, n);
    weft_node_drop_attr(g->m, n, WEFT_ATTR_EPILOGUE);
    return s;
}

weft_merge_splits *weft_merge__split_epilogues(weft_passctx *cx, weft_graph *const *model,
                                               uint32_t n)
{
    weft_merger g = {.cx = cx, .m = weft_graph_module(model[0])};
    weft_merge_splits *out = weft_arena_alloc(cx->scratch, sizeof *out);
    weft_map *first = weft_map_create(cx->scratch);
    if (cx->options->merge == WEFT_MERGE_EXACT)
        return out;
    for (uint32_t i = 0; i < n; i++)
        note_gemms(&g, model[i], first);
    for (uint32_t i = 0; i < n; i++) {
        WEFT_FOREACH_NODE (g.m, model[i], node) {
            uint64_t one;
            if (!can_split(&g, node) || !epilogue_of(g.m, node) ||
                !weft_map_get(first, key_of(g.m, node), &one) || one != differs)
                continue;
            split s = split_node(&g, model[i], node);
            WEFT_VEC_PUSH(cx->scratch, &out->done, s);
        }
    }
    return out;
}

void weft_merge__join_epilogues(weft_module *m, const weft_merge_splits *splits)
{
    /* From last to first: an operand can be the result of an earlier one's epilogue. */
    for (uint32_t i = splits->done.len; i-- > 0;) {
        const split *s = &splits->done.at[i];
        weft_rewrite__replace_result(s->graph, s->rest, 0, weft_node_out(m, s->gemm, 0));
        weft_node_remove(s->graph, s->rest);
        for (uint32_t k = FIRST; k < s->n_in; k++)
            weft_node_grow_in(m, s->gemm, k, s->in[k]);
        weft_node_set_attr(m, s->gemm, &s->epilogue);
    }
}
