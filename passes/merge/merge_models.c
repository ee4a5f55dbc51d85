/* merge-models: models that share weights get a joint graph in which one pass over a weight serves
 * all of them.
 *
 *   graph @a (%x : f32[?b,768])            graph @a+b (%x "a/x", %y "b/x") {
 *     %1 = matmul %x, $w                     part @a 1 1
 *     %2 = matmul %1, $head_a                part @b 1 1
 *                                            %1 : f32[?b + ?c,768] = concat %x, %y {axis = 0}
 *   graph @b (%x : f32[?c,768])      ==>     %2 = matmul %1, $w
 *     %1 = matmul %x, $w                     %3 = slice %2 {0 .. ?b};  %4 = matmul %3, $head_a
 *     %2 = matmul %1, $head_b                %5 = slice %2 {?b .. };   %6 = matmul %5, $head_b
 *
 * The models' own graphs stay as they are; the joint graph is one more program of the bundle, for
 * when several of them have requests. Any part may be empty (its batch 0), so no request waits for
 * another model.
 *
 * Steps. group_models.c says which models are matched with which, align.c finds which of their
 * nodes correspond, in an order that suits all models. beam_search.c decides what is run together
 * and how: the ways are rows of strategies.def, each saying where it may be used, how long it would
 * take (merge_cost.c) and what it puts into the joint graph. merge_emit.c builds that graph,
 * merge_limit.c says up to which size it is run. What is not run together takes its part of a
 * joined value as a slice. Slices along the outermost dim and the views around them need no copy,
 * and the planner computes what is joined next to each other (ops/place.h), so that mostly nothing
 * is copied at all.
 *
 * With `merge` = "exact" nothing is joined: corresponding nodes run one after the other
 * (interleaved), so that a weight that the first has read is still in the cache for the next, and
 * every bit of the results is that of the models alone. O(nodes^2) for aligning, O(nodes) else. */
#include "passes/merge/merge_int.h"

/* -- The pass --------------------------------------------------------------------------------- */

weft_merger weft_merge__open(weft_passctx *cx, weft_graph *const *model, uint32_t n)
{
    weft_module *m = weft_graph_module(model[0]);
    weft_merger g = {.cx = cx, .m = m, .dims = weft_module_dims(m), .log = cx->options->merge_log};
    g.columns = weft_merge__match(cx, model, n);
    g.memo = weft_map_create(cx->scratch);
    g.n_place = weft_val_count(m) + 1;
    g.place = weft_arena_array(cx->scratch, g.n_place, sizeof *g.place);
    return g;
}

static bool merge_models(weft_passctx *cx, weft_graph *const *model, uint32_t n)
{
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    weft_merger g = weft_merge__open(cx, model, n);
    uint32_t gemm_columns = 0;
    double saved_us = 0;
    uint32_t fewer = weft_beam__search(&g, 0, &saved_us, &gemm_columns);
    bool wanted =
        weft_merge__is_exact(&g) ? gemm_columns > 0 : fewer > 0 && weft_merge__is_worth_it(&g);
    wanted = wanted && weft_rewrite__allow(cx);
    if (wanted) {
        weft_merge__build(&g);
        weft_graph_set_limit(g.joint, weft_merge__find_limit(&g));
    }
    weft_arena_reset(cx->scratch, mark);
    return wanted;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    uint32_t n = weft_graph_count(m), kept = 0;
    const weft_merge_log *log = cx->options->merge_log;
    bool measures = log && log->want_pairs;
    if (n > 1 && !cx->options->assignment && (measures || cx->options->merge != WEFT_MERGE_OFF))
        return weft_diag_error(
            cx->diag, WEFT_ERR_UNSUP, (weft_where){0},
            "merge-models: %u models, but this program has no assignment solver to "
            "match them with; merge them with `weft compile`",
            n);
    weft_merge__measure_pairs(cx, m);
    if (cx->options->merge == WEFT_MERGE_OFF)
        return WEFT_ERR_OK;
    weft_graph **model = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *model);
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *one = weft_graph_at(m, i);
        if (weft_graph_part_count(one) == 0 && weft_merge__batch(one) != 0)
            model[kept++] = one;
    }
    weft_model_groups groups = weft_merge__group_models(cx, model, kept);
    for (uint32_t i = 0; i < groups.n; i++)
        if (groups.at[i].n > 1)
            *changed = merge_models(cx, groups.at[i].model, groups.at[i].n) || *changed;
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_merge_models = {
    .name = "merge-models",
    .brief = "run products by shared weights once for several models",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .breaks = WEFT_FACT_ALL,
    .run = run,
};
