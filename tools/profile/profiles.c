/* Estimated profiles of models over slices and batch sizes. */
#include "tools/profile/profiles.h"

#include "tools/profile/set_import.h"

#include <string.h>

enum { BATCHES_MAX = 64, CPU_SLICES = 3, MPS_STEP = 10 };
static const uint32_t default_procs[] = {1, 2, 3};

/* -- Slices ----------------------------------------------------------------------------------- */

typedef struct slice_list {
    weft_arena *arena;
    weft_diag *diag;
    WEFT_VEC(weft_slice) slices;
} slice_list;

static weft_err add_slice(slice_list *list, const char *gpu, const char *name)
{
    weft_slice slice;
    WEFT_TRY(weft_slice_make(gpu, name, list->diag, &slice));
    weft_slice_crowd(&slice); /* plans use the rest of the device for others */
    for (uint32_t i = 0; i < list->slices.len; i++)
        if (list->slices.at[i].gpu == slice.gpu && strcmp(list->slices.at[i].name, slice.name) == 0)
            return WEFT_ERR_OK;
    WEFT_VEC_PUSH(list->arena, &list->slices, slice);
    return WEFT_ERR_OK;
}

/* Adds the whole GPU and, as wanted, each MIG profile and MPS shares in steps of 10 %. */
static weft_err add_gpu(slice_list *list, const char *gpu, bool mig, bool mps)
{
    const weft_device_type *type = weft_device_type_find(gpu);
    WEFT_TRY(add_slice(list, gpu, ""));
    for (size_t i = 0; mig && type && i < type->n_mig; i++)
        WEFT_TRY(add_slice(list, gpu, type->mig[i].name));
    for (int percent = MPS_STEP; mps && !(type && type->is_foreign) && percent < 100;
         percent += MPS_STEP)
        WEFT_TRY(add_slice(list, gpu, weft_arena_printf(list->arena, "%d%%", percent)));
    return WEFT_ERR_OK;
}

static weft_err add_cores(slice_list *list, const char *cpu, uint32_t cores)
{
    return add_slice(list, cpu, weft_arena_printf(list->arena, "%ucore", cores));
}

weft_err weft_tool_fleet_slices(const weft_fleet *fleet, weft_arena *arena, weft_diag *diag,
                                const weft_slice **out, size_t *out_n)
{
    slice_list list = {.arena = arena, .diag = diag};
    for (size_t i = 0; i < fleet->n_device; i++) {
        const weft_fleet_device *row = &fleet->device[i];
        if (!weft_device_type_is_cpu(row->type)) {
            WEFT_TRY(add_gpu(&list, row->type, row->mig, row->mps));
            continue;
        }
        if (row->n_slice == 0)
            WEFT_TRY(add_cores(&list, row->type, row->cores));
        for (size_t k = 0; k < row->n_slice; k++)
            WEFT_TRY(add_cores(&list, row->type, row->slice_cores[k]));
    }
    *out = list.slices.at;
    *out_n = list.slices.len;
    return WEFT_ERR_OK;
}

/* -- Graphs ----------------------------------------------------------------------------------- */

/* Lists the batch sizes of the memory plan; 1 for a model without batch dimension. */
static size_t find_batches(const weft_graph *g, uint32_t *out)
{
    uint32_t which = weft_graph_batch_symbol(g);
    size_t n = 0;
    for (uint32_t i = 0; which != UINT32_MAX && i < weft_graph_bucket_count(g); i++) {
        const weft_bucket *bucket = weft_graph_bucket(g, i);
        bool seen = which >= bucket->n_symbol || bucket->symbol[which] < 1 ||
                    bucket->symbol[which] > UINT32_MAX;
        for (size_t k = 0; k < n && !seen; k++)
            seen = out[k] == bucket->symbol[which];
        if (!seen && n < BATCHES_MAX)
            out[n++] = (uint32_t)bucket->symbol[which];
    }
    if (n == 0)
        out[n++] = 1;
    return n;
}

/* Profiles slices of one device. Several processes may share a GPU, but not a CPU slice. */
static weft_err profile_device(weft_graph *g, const weft_slice *slice, size_t n_slice,
                               const uint32_t *batch, size_t n_batch,
                               const weft_tool_profile_options *options, weft_arena *arena,
                               weft_diag *diag, weft_profile *out)
{
    const weft_calibration *c = options->calibration;
    weft_estimate_options how = {.exact_f32 = options->exact_f32};
    if (c && strcmp(c->gpu, slice->gpu->name) == 0)
        how.calibration = c;
    return weft_estimate_profile(
        g, slice, n_slice, batch, n_batch, default_procs,
        slice->gpu->is_cpu ? 1 : sizeof default_procs / sizeof default_procs[0], &how, arena, diag,
        out);
}

static weft_err profile_all(weft_graph *g, const weft_slice *slice, size_t n_slice,
                            const uint32_t *batch, size_t n_batch,
                            const weft_tool_profile_options *options, weft_arena *arena,
                            weft_diag *diag, weft_profile *out)
{
    WEFT_VEC(weft_profile_point) all = {0};
    for (size_t i = 0; i < n_slice;) {
        size_t n = 1;
        weft_profile part;
        while (i + n < n_slice && slice[i + n].gpu == slice[i].gpu)
            n++;
        WEFT_TRY(profile_device(g, &slice[i], n, batch, n_batch, options, arena, diag, &part));
        for (size_t k = 0; k < part.n; k++)
            WEFT_VEC_PUSH(arena, &all, part.point[k]);
        i += n;
    }
    *out = (weft_profile){.point = all.at, .n = all.len};
    return WEFT_ERR_OK;
}

/* Batch sizes of a profile; a graph that cannot be estimated gives a warning and no points. */
static weft_err profile_batches(weft_graph *g, const weft_slice *slice, size_t n_slice,
                                const uint32_t *batch, size_t n_batch,
                                const weft_tool_profile_options *options, weft_arena *arena,
                                weft_diag *diag, weft_profile *out)
{
    static const weft_tool_profile_options defaults;
    weft_diag *why = weft_diag_create();
    weft_err err = profile_all(g, slice, n_slice, batch, n_batch, options ? options : &defaults,
                               arena, why, out);
    if (err == WEFT_ERR_UNSUP || err == WEFT_ERR_INPUT) {
        const weft_message *msg = why && weft_diag_count(why) > 0 ? weft_diag_at(why, 0) : NULL;
        weft_diag_warn(diag, (weft_where){.item = weft_graph_name(g)}, "no estimate: %s",
                       msg ? msg->text : weft_err_text(err));
        *out = (weft_profile){0};
        err = WEFT_ERR_OK;
    }
    weft_diag_destroy(why);
    return err;
}

weft_err weft_tool_profile_graph(weft_graph *g, const weft_slice *slice, size_t n_slice,
                                 const weft_tool_profile_options *options, weft_arena *arena,
                                 weft_diag *diag, weft_profile *out)
{
    uint32_t batch[BATCHES_MAX];
    size_t n_batch = find_batches(g, batch);
    return profile_batches(g, slice, n_slice, batch, n_batch, options, arena, diag, out);
}

/* -- Joint graphs ----------------------------------------------------------------------------- */

static const weft_profile_point *find_point(const weft_profile *p, const weft_profile_point *like,
                                            uint32_t batch)
{
    for (size_t i = 0; i < p->n; i++) {
        const weft_profile_point *at = &p->point[i];
        if (at->batch == batch && at->procs == like->procs && strcmp(at->slice, like->slice) == 0 &&
            strcmp(at->device, like->device) == 0)
            return at;
    }
    return NULL;
}

/* Gives a point the cost of n models one after the other where they take less time. */
static void take_apart(weft_profile_point *joint, const weft_profile *const *model, uint32_t n)
{
    double rounds_s = 0; /* to serve the batch once, by all processes together */
    double idle_us = 0;
    bool has_idle = true;
    weft_cost sum = {0};
    for (uint32_t i = 0; i < n; i++) {
        const weft_profile_point *p = find_point(model[i], joint, joint->batch / n);
        if (!p)
            return;
        const weft_cost *c = &p->cost;
        double time_us = sum.time_us + c->time_us, part = c->time_us / time_us;
        sum.creq += (c->creq - sum.creq) * part;
        sum.bandwidth_gbps += (c->bandwidth_gbps - sum.bandwidth_gbps) * part;
        sum.expected_error += (c->expected_error - sum.expected_error) * part;
        sum.energy_j += c->energy_j;
        sum.time_p5_us += c->time_p5_us;
        sum.time_p95_us += c->time_p95_us;
        sum.time_us = time_us;
        idle_us += p->idle_us;
        has_idle = has_idle && p->idle_us > 0;
        rounds_s += p->throughput_per_s > 0 ? p->batch / p->throughput_per_s : 0;
    }
    if (!(sum.time_us < joint->cost.time_us))
        return;
    sum.mreq_bytes = joint->cost.mreq_bytes;
    memcpy(sum.source, joint->cost.source, sizeof sum.source);
    joint->cost = sum;
    joint->idle_us = has_idle ? idle_us : 0;
    joint->throughput_per_s = rounds_s > 0 ? joint->batch / rounds_s : 0;
}

weft_err weft_tool_profile_joint(weft_graph *joint, const weft_profile *const *model,
                                 const weft_slice *slice, size_t n_slice,
                                 const weft_tool_profile_options *options, weft_arena *arena,
                                 weft_diag *diag, weft_profile *out)
{
    uint32_t batch[BATCHES_MAX], n = weft_graph_part_count(joint);
    const weft_graph *first =
        weft_graph_find(weft_graph_module(joint), weft_graph_part(joint, 0)->model);
    size_t n_batch = find_batches(first, batch);
    for (size_t i = 0; i < n_batch; i++)
        batch[i] *= n;
    WEFT_TRY(profile_batches(joint, slice, n_slice, batch, n_batch, options, arena, diag, out));
    weft_profile_point *point = weft_arena_array(arena, out->n + 1, sizeof *point);
    for (size_t i = 0; i < out->n; i++) {
        point[i] = out->point[i];
        take_apart(&point[i], model, n);
    }
    out->point = point;
    return WEFT_ERR_OK;
}

/* -- Models of a set -------------------------------------------------------------------------- */

static weft_err lower_model(const weft_tool_pipeline *pipeline, const weft_set_model *model,
                            const weft_gpu *gpu, weft_arena *arena, weft_diag *diag, weft_module *m,
                            weft_graph **out)
{
    WEFT_TRY(weft_tool_import_model(m, model, &(weft_import_options){0}, arena, diag, out));
    return weft_tool_pipeline_lower(pipeline, m, gpu, diag);
}

/* Slices of devices of one kind, which get the same kernels. */
static weft_err profile_kind(const weft_tool_pipeline *pipeline, const weft_set_model *model,
                             const weft_slice *slice, size_t n_slice,
                             const weft_tool_profile_options *options, weft_arena *arena,
                             weft_diag *diag, weft_profile *out)
{
    weft_graph *g = NULL;
    weft_module *m = weft_module_create(0);
    if (!m)
        return WEFT_ERR_NOMEM;
    weft_err err = lower_model(pipeline, model, slice->gpu, arena, diag, m, &g);
    if (err == WEFT_ERR_OK)
        err = weft_tool_profile_graph(g, slice, n_slice, options, arena, diag, out);
    weft_module_destroy(m);
    return err;
}

weft_err weft_tool_profile_model(const weft_tool_pipeline *pipeline, const weft_set_model *model,
                                 const weft_slice *slice, size_t n_slice,
                                 const weft_tool_profile_options *options, weft_arena *arena,
                                 weft_diag *diag, weft_profile *out)
{
    WEFT_VEC(weft_profile_point) all = {0};
    for (size_t i = 0, n = 0; i < n_slice; i += n) {
        weft_profile part = {0};
        for (n = 1; i + n < n_slice; n++)
            if (slice[i + n].gpu->is_cpu != slice[i].gpu->is_cpu)
                break;
        WEFT_TRY(profile_kind(pipeline, model, &slice[i], n, options, arena, diag, &part));
        for (size_t k = 0; k < part.n; k++)
            WEFT_VEC_PUSH(arena, &all, part.point[k]);
    }
    *out = (weft_profile){.point = all.at, .n = all.len};
    return WEFT_ERR_OK;
}

/* -- Slices of one device --------------------------------------------------------------------- */

weft_err weft_tool_gpu_slices(const char *gpu, weft_arena *arena, weft_diag *diag,
                              const weft_slice **out, size_t *out_n)
{
    slice_list list = {.arena = arena, .diag = diag};
    if (weft_device_type_is_cpu(gpu))
        for (uint32_t i = 0; i < CPU_SLICES; i++)
            WEFT_TRY(add_cores(&list, gpu, 1u << i));
    else
        WEFT_TRY(add_gpu(&list, gpu, true, true));
    *out = list.slices.at;
    *out_n = list.slices.len;
    return WEFT_ERR_OK;
}
