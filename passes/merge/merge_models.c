/* merge-models: models that share weights get a joint graph, in which a weight is read once for all
 * of them. A GEMM of the joint graph that serves several models is a super-GEMM; the program that a
 * bundle holds for the joint graph is a joint program.
 *
 *   graph @a (%x : f32[?b,768])            graph @a+b (%x "a/x", %y "b/x") {
 *     %1 = matmul %x, $w                     part @a 1 1
 *     %2 = matmul %1, $head_a                part @b 1 1
 *                                            %1 : f32[?b + ?c,768] = concat %x, %y {axis = 0}
 *   graph @b (%x : f32[?c,768])      ==>     %2 = matmul %1, $w
 *     %1 = matmul %x, $w                     %3 = slice %2 {0 .. ?b};  %4 = matmul %3, $head_a
 *     %2 = matmul %1, $head_b                %5 = slice %2 {?b .. };   %6 = matmul %5, $head_b
 *
 * The models' own graphs stay as they are; the server runs the joint program when several of its
 * models have requests. Any part may be empty (its batch is 0), so no request waits for another
 * model.
 *
 * group_models.c decides which models are merged with each other, within the sets of a plan if
 * there is one. align.c finds their corresponding nodes. beam_search.c decides which of these run
 * together and by which strategy; strategies are rows of strategies.def, each with a test whether
 * it applies, a predicted time (merge_cost.c) and the nodes that it emits. merge_emit.c builds the
 * joint graph, and merge_limit.c finds the size up to which it pays. A model's node that runs by
 * itself takes its part of a joint value as a slice. Slices along the outermost dim and the views
 * around them need no copy, and the memory planner places values that are concatenated next to each
 * other (ops/place.h), so that most joint graphs copy little.
 *
 * With `merge` = WEFT_MERGE_EXACT nothing is joined: corresponding nodes run in turn (interleaved),
 * so that the weight may still be in the cache, and every bit of the results is that of the models
 * alone.
 *
 * O(nodes^2) for the alignment, O(nodes) for all else. */
#include "passes/merge/merge_int.h"

#include <string.h>

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

/* Adds models without a joint program to the log. */
static void note_apart(weft_passctx *cx, weft_graph *const *model, uint32_t n, const char *reason)
{
    weft_merge_log *log = cx->options->merge_log;
    if (!log)
        return;
    const char **name = weft_arena_array(log->arena, n, sizeof *name);
    for (uint32_t i = 0; i < n; i++)
        name[i] = weft_arena_strdup(log->arena, weft_graph_name(model[i]));
    weft_merge_apart one = {{name, n}, reason};
    WEFT_VEC_PUSH(log->arena, &log->apart, one);
}

static bool merge_models(weft_passctx *cx, const weft_merge_set *set, weft_graph *const *model,
                         uint32_t n)
{
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    weft_merge_splits *splits = weft_merge__split_epilogues(cx, model, n);
    weft_merger g = weft_merge__open(cx, model, n);
    g.set = set;
    uint32_t gemm_columns = 0;
    double saved_us = 0;
    uint32_t fewer = weft_beam__search(&g, 0, &saved_us, &gemm_columns);
    const char *why = gemm_columns == 0          ? "no GEMMs of theirs correspond in shape and type"
                      : weft_merge__is_exact(&g) ? NULL
                      : fewer == 0 ? "no strategy gains for any of their corresponding GEMMs"
                      : weft_merge__is_worth_it(&g)
                          ? NULL
                          : "too little is saved of the time of all their GEMMs";
    if (why)
        note_apart(cx, model, n, why);
    bool wanted = !why && weft_rewrite__allow(cx);
    if (wanted)
        weft_merge__build(&g);
    weft_merge__join_epilogues(g.m, splits);
    if (wanted)
        weft_graph_set_limit(g.joint, weft_merge__find_limit(&g));
    weft_arena_reset(cx->scratch, mark);
    return wanted;
}

/* A body is run by one node, so a joint graph cannot have a copy of that node. */
static bool has_bodies(const weft_graph *g)
{
    const weft_module *m = weft_graph_module(g);
    WEFT_FOREACH_NODE (m, g, n)
        if (weft_node_body_count(m, n) > 0)
            return true;
    return false;
}

/* What a run of the pass works on. */
typedef struct merging {
    weft_passctx *cx;
    weft_graph **model; /* those that can be merged */
    uint32_t n;
    WEFT_VEC(weft_model_group) done; /* merged, or not worth it */
    bool *grouped;                   /* by graph: matched with other models */
    bool changed;
} merging;

static bool are_equal(const weft_model_group *a, const weft_model_group *b)
{
    return a->n == b->n && memcmp(a->model, b->model, a->n * sizeof(weft_graph *)) == 0;
}

/* Merges a group that no earlier set had. Whether there is a joint graph of it. */
static bool merge_group(merging *x, const weft_merge_set *set, weft_model_group group)
{
    for (size_t i = 0; i < x->done.len; i++)
        if (are_equal(&x->done.at[i], &group))
            return true;
    for (uint32_t i = 0; i < group.n; i++)
        x->grouped[weft_graph_index(group.model[i])] |= group.n > 1;
    bool merged = group.n > 1 && merge_models(x->cx, set, group.model, group.n);
    WEFT_VEC_PUSH(x->cx->scratch, &x->done, group);
    x->changed = x->changed || merged;
    return merged;
}

static void merge_any(merging *x, const weft_merge_set *set, weft_graph **model, uint32_t n)
{
    weft_model_groups groups = weft_merge__group_models(x->cx, model, n);
    for (uint32_t i = 0; i < groups.n; i++)
        (void)merge_group(x, set, groups.at[i]);
}

static bool has_model(const weft_merge_set *set, const char *name)
{
    for (size_t i = 0; i < set->n_model; i++)
        if (strcmp(set->model[i], name) == 0)
            return true;
    return false;
}

static void merge_set(merging *x, const weft_merge_set *set)
{
    weft_graph **model = weft_arena_array(x->cx->scratch, (size_t)x->n + 1, sizeof *model);
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->n; i++)
        if (has_model(set, weft_graph_name(x->model[i])))
            model[n++] = x->model[i];
    if (!set->as_one) {
        merge_any(x, set, model, n);
        return;
    }
    const char *why = n < set->n_model            ? "some of them cannot be merged"
                      : n > WEFT_MERGE_MODELS_MAX ? "they are too many"
                                                  : "nothing is gained by it";
    if (n < set->n_model || n > WEFT_MERGE_MODELS_MAX ||
        !merge_group(x, set, (weft_model_group){.model = model, .n = n}))
        weft_diag_warn(x->cx->diag, (weft_where){.item = set->model[0]},
                       "the plan places it and %zu others as one, but %s: they run in turn",
                       set->n_model - 1, why);
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    const weft_pass_options *o = cx->options;
    uint32_t n = weft_graph_count(m);
    bool measures = o->merge_log && o->merge_log->want_pairs;
    if (weft_graph_model_count(m) > 1 && !o->assignment && (measures || o->merge != WEFT_MERGE_OFF))
        return weft_diag_error(
            cx->diag, WEFT_ERR_UNSUP, (weft_where){0},
            "merge-models: %u models, but this program has no assignment solver to "
            "match them with; merge them with `weft compile`",
            weft_graph_model_count(m));
    weft_merge__measure_pairs(cx, m);
    if (o->merge == WEFT_MERGE_OFF)
        return WEFT_ERR_OK;
    merging x = {.cx = cx};
    x.model = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *x.model);
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *one = weft_graph_at(m, i);
        const char *why = weft_merge__is_alone(o, one) ? "it has the heads of other models"
                          : has_bodies(one)            ? "it has If, Loop or Scan"
                          : weft_merge__batch(one) == 0
                              ? "its requests cannot be batched: its outputs are not known to have "
                                "a row for each row of its inputs"
                              : NULL;
        if (!why)
            x.model[x.n++] = one;
        else if (weft_graph_is_model(one))
            note_apart(cx, &one, 1, why);
    }
    x.grouped = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *x.grouped);
    for (size_t i = 0; o->set && i < o->n_set; i++)
        merge_set(&x, &o->set[i]);
    if (!o->set)
        merge_any(&x, NULL, x.model, x.n);
    for (uint32_t i = 0; i < x.n; i++)
        if (!x.grouped[weft_graph_index(x.model[i])])
            note_apart(cx, &x.model[i], 1,
                       o->set ? "the plan places no model on its slice that is like it"
                              : "no other model has like operators with related weights, nor a "
                                "GEMM by a weight of it");
    *changed = x.changed;
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_merge_models = {
    .name = "merge-models",
    .brief = "run GEMMs by shared weights once for several models",
    .from = WEFT_STAGE_KERNEL,
    .to = WEFT_STAGE_KERNEL,
    .breaks = WEFT_FACT_ALL,
    .run = run,
};
