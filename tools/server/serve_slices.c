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

static bool is_on_cpu(const weft_slice_groups *groups)
{
    return weft_device_type_is_cpu(groups->at[0].first->type);
}

static weft_err read_plan(const weft_slices_options *options, weft_arena *arena, weft_diag *diag,
                          weft_slices *out)
{
    char *text = NULL;
    size_t len = 0;
    weft_plan plan;
    weft_slice_groups groups;
    if (options->plan_text)
        WEFT_TRY(weft_plan_from_json(options->plan_text, strlen(options->plan_text), "state", arena,
                                     diag, &plan));
    else
        WEFT_TRY(weft_file_read(options->plan, (uint64_t)256 << 20, diag, &text, &len));
    weft_err err =
        text ? weft_plan_from_json(text, len, options->plan, arena, diag, &plan) : WEFT_ERR_OK;
    free(text);
    WEFT_TRY(err);
    WEFT_TRY(weft_slices__group(options, &plan, arena, diag, &groups));
    return is_on_cpu(&groups) ? on_cpus(options, &groups, diag, out)
                              : weft_slices__on_gpus(options, &plan, &groups, arena, diag, out);
}

/* Slices of GPUs that nothing runs on. */
static weft_err remake_gpus(weft_slices *slices, const weft_plan *plan, weft_arena *arena,
                            weft_diag *diag, const weft_serve_slice **out, uint32_t *out_n)
{
    uint32_t n_step;
    WEFT_TRY(weft_slices_steps.plan(slices, plan, arena, diag, out, out_n, &n_step));
    WEFT_TRY(weft_slices_steps.prepare(slices, n_step - 1, arena, diag, out, out_n));
    weft_slices_steps.reached(slices, n_step - 1);
    return WEFT_ERR_OK;
}

weft_err weft_slices_remake(weft_slices *slices, const weft_plan *plan, weft_arena *arena,
                            weft_diag *diag, const weft_serve_slice **out, uint32_t *out_n)
{
    weft_slice_groups groups;
    weft_slices *made = weft_arena_array(arena, 1, sizeof *made);
    WEFT_TRY(weft_slices__group(slices->options, plan, arena, diag, &groups));
    if (is_on_cpu(&groups) == (slices->gpus != NULL))
        return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){0},
                               "the plan is for %s, the server serves on %s: start it with the "
                               "new plan",
                               slices->gpus ? "CPUs" : "GPUs", slices->gpus ? "GPUs" : "CPUs");
    if (slices->gpus)
        return remake_gpus(slices, plan, arena, diag, out, out_n);
    find_cpus(made);
    WEFT_TRY(on_cpus(slices->options, &groups, diag, made));
    *out = made->at;
    *out_n = made->n;
    return WEFT_ERR_OK;
}

weft_err weft_slices_make(const weft_slices_options *options, weft_arena *arena, weft_diag *diag,
                          weft_slices *out)
{
    uint32_t at = 0;
    out->options = options;
    find_cpus(out);
    if (options->plan)
        return read_plan(options, arena, diag, out);
    for (size_t i = 0; i < options->n_cores; i++)
        WEFT_TRY(cut(out, options->cores[i], &at, diag));
    return WEFT_ERR_OK;
}

void weft_slices_end(weft_slices *slices, weft_diag *diag)
{
    for (uint32_t i = 0; i < slices->daemons.n; i++)
        weft_mps_stop(slices->daemons.at[i].mps, diag);
    slices->daemons.n = 0;
    weft_slices__end(slices->gpus);
    slices->gpus = NULL;
}
