/* The log of merge-models' decisions: a row for the corresponding GEMMs of some models, with the
 * chosen strategy and all candidates. */
#include "passes/merge/beam_search.h"

#include <string.h>

static uint64_t weight_bytes(const weft_merger *g, const weft_column *c)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        weft_val w = c->node[i].i ? weft_node_in(g->m, c->node[i], 1) : (weft_val){0};
        bool seen = !w.i;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = c->node[k].i && weft_node_in(g->m, c->node[k], 1).i == w.i;
        if (!seen)
            bytes += weft_weight_get(g->m, weft_val_weight(g->m, w))->bytes;
    }
    return bytes;
}

static const char *explain_choice(const weft_merger *g, const weft_candidate *x)
{
    if (g->cx->options->merge == WEFT_MERGE_STRATEGY)
        return "asked for";
    return x->small_only ? "gains at small sizes, is not run at large ones"
                         : "gains at small sizes, loses at none";
}

/* Why a candidate was not taken. */
static const char *explain_refusal(const weft_merger *g, const weft_candidate *x,
                                   const weft_candidate *chosen)
{
    if (*x->reason)
        return x->reason;
    if (g->cx->options->merge == WEFT_MERGE_STRATEGY)
        return "not asked for";
    return chosen ? "another saves more" : "copies would cost more than it gains";
}

static weft_merge_candidate describe(weft_merger *g, const weft_candidate *x, const char *reason)
{
    weft_merge_candidate one = {.strategy = x->group.strategy->name,
                                .fits = x->fits,
                                .gain_small = x->gain_small,
                                .gain_large = x->gain_large,
                                .reason = weft_arena_strdup(g->log->arena, reason)};
    if (!x->fits)
        return one;
    one.read_bytes = weight_bytes(g, &x->group.column);
    if (x->group.strategy->bytes)
        x->group.strategy->bytes(g, &x->group, &one.read_bytes, &one.made_bytes);
    return one;
}

/* Sets the gains over the baseline, with the copies that the group needs. */
static void count_copies(weft_merger *g, const weft_merge_group *p, const weft_candidate *x,
                         weft_merge_row *row)
{
    double small_us = 0, large_us = 0;
    if (!x->known || !weft_merge__group_us(g, p, &g->small, &small_us) ||
        !weft_merge__group_us(g, p, &g->large, &large_us))
        return;
    row->gain_small = x->baseline_small_us / small_us;
    row->gain_large = x->baseline_large_us / large_us;
}

static weft_merge_row *add_row(weft_merger *g, const weft_merge_group *p, const char *strategy,
                               const char *reason)
{
    weft_arena *arena = g->log->arena;
    weft_node first = weft_merge__first(g, &p->column);
    const char *item = weft_node_loc(g->m, first).item;
    const char **model = weft_arena_array(arena, p->column.n, sizeof *model);
    weft_merge_row row = {.op = weft_node_opdef(g->m, first)->name,
                          .item = weft_arena_strdup(arena, item ? item : ""),
                          .model = model,
                          .weight_bytes = weight_bytes(g, &p->column),
                          .gain_small = 1,
                          .gain_large = 1,
                          .strategy = strategy,
                          .reason = weft_arena_strdup(arena, reason)};
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (p->column.node[i].i)
            model[row.n_model++] = weft_arena_strdup(arena, weft_graph_name(g->columns.model[i]));
    WEFT_VEC_PUSH(arena, &g->log->rows, row);
    return &g->log->rows.at[g->log->rows.len - 1];
}

/* A row for GEMMs by the same weights that run in turn: their gain is not known. */
static void note_interleaved(weft_merger *g, const weft_merge_group *p, const weft_candidate *joint)
{
    const char *why = "a super-GEMM may round differently";
    const char *reason = joint->fits ? why : joint->reason;
    weft_merge_row *row = add_row(g, p, p->strategy->name, reason);
    weft_merge_candidate list[] = {describe(g, joint, reason),
                                   {.strategy = p->strategy->name,
                                    .fits = true,
                                    .reason = "",
                                    .read_bytes = row->weight_bytes}};
    row->candidate = memcpy(weft_arena_alloc(g->log->arena, sizeof list), list, sizeof list);
    row->n_candidate = 2;
}

void weft_merge__log_group(weft_merger *g, const weft_merge_group *p,
                           const weft_candidate *const *candidate, uint32_t n,
                           const weft_candidate *chosen)
{
    if (p->strategy == &weft_merge_strategy_interleaved) {
        note_interleaved(g, p, candidate[0]);
        return;
    }
    chosen = chosen && weft_candidate__is_joint(chosen) ? chosen : NULL;
    const char *reason = chosen   ? explain_choice(g, chosen)
                         : n != 1 ? "the weights differ, and no strategy for unequal weights gains"
                                  : explain_refusal(g, candidate[0], NULL);
    weft_merge_row *row = add_row(g, p, chosen ? chosen->group.strategy->name : "none", reason);
    weft_merge_candidate *list = weft_arena_array(g->log->arena, n, sizeof *list);
    double most = 0;
    for (uint32_t i = 0; i < n; i++) {
        double gain = candidate[i]->gain_small * candidate[i]->gain_large;
        list[i] = describe(g, candidate[i],
                           candidate[i] == chosen ? "" : explain_refusal(g, candidate[i], chosen));
        if (gain <= most || chosen)
            continue;
        most = gain;
        row->gain_small = candidate[i]->gain_small;
        row->gain_large = candidate[i]->gain_large;
    }
    row->candidate = list;
    row->n_candidate = n;
    row->joined = chosen;
    if (chosen)
        count_copies(g, p, chosen, row);
}
