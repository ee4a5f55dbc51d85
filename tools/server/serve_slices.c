/* CPU slices, and the groups of placements that make up the slices of a plan. */
#include "tools/server/serve_slices.h"

#include "base/file.h"
#include "tools/common/tools.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void find_cpus(weft_slices *out)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (uint32_t i = 0; i < CPU_SETSIZE && out->n_cpu < WEFT_SLICE_CPUS_MAX; i++)
        if (CPU_ISSET(i, &set))
            out->cpu[out->n_cpu++] = i;
}

/* Adds a slice of the next `cores` CPUs; *at: number of CPUs in use. */
static weft_err cut(weft_slices *out, int64_t cores, uint32_t *at, weft_diag *diag)
{
    if (cores > (int64_t)(out->n_cpu - *at))
        return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){0},
                               "the slices need more than the %u cores that this process may use",
                               out->n_cpu);
    out->at[out->n++] = (weft_serve_slice){.cpu = &out->cpu[*at], .n_cpu = (uint32_t)cores};
    *at += (uint32_t)cores;
    return WEFT_ERR_OK;
}

/* -- The plan ------------------------------------------------------------------------------- */

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

static weft_err on_cpus(const weft_slices_options *options, const weft_slice_groups *groups,
                        weft_diag *diag, weft_slices *out)
{
    const weft_where where = {.file = options->plan};
    uint32_t at = 0;
    for (uint32_t i = 0; i < groups->len; i++) {
        const weft_slice_group *g = &groups->at[i];
        if (g->device != groups->at[0].device)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "the plan has several nodes; choose one with --devices");
        long cores = g->first->slice[0] ? strtol(g->first->slice, NULL, 10) : (long)out->n_cpu;
        if (cores < 1)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "'%s' is no slice of a CPU",
                                   g->first->slice);
        WEFT_TRY(cut(out, cores, &at, diag));
        out->at[out->n - 1].model = g->model;
        out->at[out->n - 1].batch = g->batch;
        out->at[out->n - 1].n_model = g->n_model;
    }
    return WEFT_ERR_OK;
}

/* *cpu: the slices are those of a CPU, and were made. */
static weft_err group_plan(const weft_slices_options *options, const weft_plan *plan,
                           weft_arena *arena, weft_diag *diag, weft_slice_groups *out, bool *cpu)
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
    *cpu = weft_device_type_is_cpu(groups.at[0].first->type);
    for (uint32_t i = 1; i < groups.len; i++)
        if (weft_device_type_is_cpu(groups.at[i].first->type) != *cpu)
            return weft_diag_error(
                diag, WEFT_ERR_INPUT, where,
                "the plan has CPUs and GPUs, a bundle is for one of them: choose with --devices");
    *out = groups;
    return WEFT_ERR_OK;
}

static weft_err read_plan(const weft_slices_options *options, weft_arena *arena, weft_diag *diag,
                          weft_slices *out)
{
    char *text = NULL;
    size_t len = 0;
    weft_plan plan;
    weft_slice_groups groups;
    bool cpu;
    WEFT_TRY(weft_file_read(options->plan, (uint64_t)256 << 20, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, options->plan, arena, diag, &plan);
    free(text);
    WEFT_TRY(err);
    WEFT_TRY(group_plan(options, &plan, arena, diag, &groups, &cpu));
    return cpu ? on_cpus(options, &groups, diag, out)
               : weft_slices__on_gpus(options, &plan, &groups, arena, diag, out);
}

weft_err weft_slices_remake(const weft_slices_options *options, const weft_plan *plan,
                            weft_arena *arena, weft_diag *diag, const weft_serve_slice **out,
                            uint32_t *out_n)
{
    weft_slice_groups groups;
    bool cpu;
    weft_slices *made = weft_arena_array(arena, 1, sizeof *made);
    WEFT_TRY(group_plan(options, plan, arena, diag, &groups, &cpu));
    if (!cpu)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "the plan has GPUs: only CPU slices change while serving; start the "
                               "server with the new plan");
    find_cpus(made);
    WEFT_TRY(on_cpus(options, &groups, diag, made));
    *out = made->at;
    *out_n = made->n;
    return WEFT_ERR_OK;
}

weft_err weft_slices_make(const weft_slices_options *options, weft_arena *arena, weft_diag *diag,
                          weft_slices *out)
{
    uint32_t at = 0;
    find_cpus(out);
    if (options->plan)
        return read_plan(options, arena, diag, out);
    for (size_t i = 0; i < options->n_cores; i++)
        WEFT_TRY(cut(out, options->cores[i], &at, diag));
    return WEFT_ERR_OK;
}

void weft_slices_end(weft_slices *slices, weft_diag *diag)
{
    for (uint32_t i = 0; i < slices->n_mps; i++)
        weft_mps_stop(slices->mps[i], diag);
    slices->n_mps = 0;
}
