/* The groups of placements that make up the slices of a plan. */
#include "tools/server/serve_slices.h"

#include <stdlib.h>

static bool is_served(const weft_slices_options *options, uint32_t device)
{
    for (size_t i = 0; i < options->n_device; i++)
        if (options->device[i] == device)
            return true;
    return options->n_device == 0;
}

static weft_slice_group *find_group(weft_slice_groups *groups, const weft_placement *p)
{
    for (uint32_t i = 0; i < groups->len; i++)
        if (groups->at[i].device == p->device && groups->at[i].slice_id == p->slice_id)
            return &groups->at[i];
    return NULL;
}

static void add_placement(weft_slice_groups *groups, const weft_placement *p, weft_arena *arena)
{
    weft_slice_group *g = find_group(groups, p);
    bool known = p->mem_bytes > 0;
    if (!g) {
        WEFT_VEC_PUSH(arena, groups,
                      ((weft_slice_group){
                          .device = p->device, .slice_id = p->slice_id, .first = p, .procs = 1}));
        g = &groups->at[groups->len - 1];
    } else {
        known = known && g->mem_bytes > 0;
    }
    const char *const *model;
    size_t n = weft_family_models(p->model, arena, &model);
    g->model = weft_arena_grow(arena, g->model, g->n_model * sizeof *g->model,
                               (g->n_model + n) * sizeof *g->model);
    g->batch = weft_arena_grow(arena, g->batch, g->n_model * sizeof *g->batch,
                               (g->n_model + n) * sizeof *g->batch);
    for (size_t i = 0; i < n; i++) { /* a family's batch is that of all its models */
        g->batch[g->n_model] = p->batch / n > 0 ? p->batch / (uint32_t)n : 1;
        g->model[g->n_model++] = model[i];
    }
    g->procs = p->procs > g->procs ? p->procs : g->procs;
    g->mem_bytes = known ? g->mem_bytes + p->mem_bytes : 0;
}

static int by_slice(const void *a, const void *b)
{
    const weft_slice_group *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->slice_id > y->slice_id) - (x->slice_id < y->slice_id);
}

weft_err weft_slices__group(const weft_slices_options *options, const weft_plan *plan,
                            weft_arena *arena, weft_diag *diag, weft_slice_groups *out)
{
    weft_slice_groups groups = {0};
    const weft_where where = {.file = options->plan};
    for (size_t i = 0; i < plan->n; i++)
        if (is_served(options, plan->at[i].device))
            add_placement(&groups, &plan->at[i], arena);
    if (groups.len == 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "places no model on these devices");
    if (groups.len > WEFT_SLICES_MAX)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "over %d slices", WEFT_SLICES_MAX);
    qsort(groups.at, groups.len, sizeof *groups.at, by_slice);
    bool cpu = weft_device_type_is_cpu(groups.at[0].first->type);
    for (uint32_t i = 1; i < groups.len; i++)
        if (weft_device_type_is_cpu(groups.at[i].first->type) != cpu)
            return weft_diag_error(
                diag, WEFT_ERR_INPUT, where,
                "the plan has CPUs and GPUs, a bundle is for one of them: choose with --devices");
    *out = groups;
    return WEFT_ERR_OK;
}
