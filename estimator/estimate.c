/* Estimates of kernels and of whole graphs: predicts, calibrates, and adds up time, memory and
 * energy. */
#include "estimator/estimator_int.h"

#include "estimator/device/device.h"
#include "estimator/workload/workload.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UNBOUNDED_DEFAULT = 128, TWINS_MAX = 1000 };

/* -- One kernel ------------------------------------------------------------------------------- */

static weft_err estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                                const weft_estimate_options *options, weft_diag *diag,
                                weft_cost *out, const char **out_model, weft_usage *out_usage)
{
    bool exact_f32 = options && options->exact_f32;
    weft_timing t;
    const weft_model *model;
    WEFT_TRY(weft_model__predict(kernel, slice, options, diag, &t, &model));
    bool calibrated = options && options->calibration;
    if (calibrated)
        weft_calibration__apply(options->calibration, kernel, slice, exact_f32, &t);
    weft_usage u = weft_usage__find(kernel, slice, exact_f32, t.time_us, t.units);
    *out =
        (weft_cost){.time_us = t.time_us,
                    .time_p5_us = t.time_us * exp2(t.edge[0]),
                    .time_p95_us = t.time_us * exp2(t.edge[1]),
                    .creq = u.sm_need,
                    .bandwidth_gbps = weft_traffic__memory_bytes(slice, kernel) / (t.time_us * 1e3),
                    .energy_j = weft_energy__kernel_j(kernel, slice, exact_f32, t.time_us, &u),
                    .expected_error = t.expected_error};
    snprintf(out->source, sizeof out->source, "%s", t.learned ? "learned" : "analytic");
    if (calibrated)
        snprintf(out->source, sizeof out->source, "calibrated");
    *out_model = model->name;
    *out_usage = u;
    return WEFT_ERR_OK;
}

weft_err weft_estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                              const weft_estimate_options *options, weft_diag *diag, weft_cost *out,
                              const char **out_model)
{
    const char *model;
    weft_usage usage;
    WEFT_TRY(estimate_kernel(kernel, slice, options, diag, out, &model, &usage));
    if (out_model)
        *out_model = model;
    return WEFT_ERR_OK;
}

/* -- Whole graphs ----------------------------------------------------------------------------- */

/* The batch symbol of a model; 0: it has none. */
static weft_dim batch_dim(const weft_graph *model)
{
    uint32_t which = model ? weft_graph_batch_symbol(model) : UINT32_MAX;
    return which == UINT32_MAX ? 0 : weft_graph_symbol_dim(model, which);
}

/* Lists the batch symbols of the models that the graph runs; false: one of them has none. */
static bool list_batch_dims(const weft_graph *g, weft_dim *out, uint32_t *n)
{
    uint32_t n_part = weft_graph_part_count(g);
    *n = n_part ? n_part : 1;
    bool all = true;
    for (uint32_t i = 0; i < *n; i++) {
        const weft_graph *model =
            n_part ? weft_graph_find(weft_graph_module(g), weft_graph_part(g, i)->model) : g;
        out[i] = batch_dim(model);
        all = all && out[i] != 0;
    }
    return all;
}

static bool contains(const weft_dim *list, uint32_t n, weft_dim d)
{
    while (n > 0)
        if (list[--n] == d)
            return true;
    return false;
}

weft_err weft_estimate_symbols(weft_graph *g, uint32_t batch, weft_diag *diag, int64_t *out)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    uint32_t n = weft_graph_symbol_count(g), n_model;
    weft_where where = {.item = weft_graph_name(g)};
    weft_dim dim[WEFT_ESTIMATE_PARTS_MAX];
    if (weft_graph_part_count(g) > WEFT_ESTIMATE_PARTS_MAX)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, where, "has over %d models",
                               WEFT_ESTIMATE_PARTS_MAX);
    if (!list_batch_dims(g, dim, &n_model) && batch != n_model)
        return weft_diag_error(diag, WEFT_ERR_UNSUP, where,
                               "batch %u: the model has no batch dimension", batch);
    if (batch % n_model != 0)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "batch %u is not divisible among %u models", batch, n_model);
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo, hi;
        weft_dim_bounds(pool, weft_graph_symbol_dim(g, i), &lo, &hi);
        out[i] = hi;
        if (contains(dim, n_model, weft_graph_symbol_dim(g, i)))
            out[i] = batch / n_model;
        else if (hi > INT32_MAX)
            out[i] = lo > UNBOUNDED_DEFAULT ? lo : UNBOUNDED_DEFAULT;
        if (out[i] < lo || out[i] > hi)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "batch %u is outside [%lld, %lld]",
                                   batch, (long long)lo, (long long)hi);
    }
    return WEFT_ERR_OK;
}

static void add_kernel(const weft_kernel_cost *k, weft_cost *total)
{
    double before_us = total->time_us, time_us = before_us + k->cost.time_us;
    double old = before_us / time_us, part = k->cost.time_us / time_us;
    total->creq = total->creq * old + k->cost.creq * part;
    total->bandwidth_gbps = total->bandwidth_gbps * old + k->cost.bandwidth_gbps * part;
    /* Errors of kernels on one device are correlated: they add up, and do not cancel. */
    total->expected_error = total->expected_error * old + k->cost.expected_error * part;
    total->energy_j += k->cost.energy_j;
    total->time_p5_us += k->cost.time_p5_us;
    total->time_p95_us += k->cost.time_p95_us;
    total->time_us = time_us;
}

/* What takes most of the predicted time: the launch; traffic, if its time is at least 0.7 of the
 * rest; else arithmetic. */
static const char *find_bound(const weft_kernel *kernel, const weft_slice *slice, double time_us)
{
    static const double most = 0.7;
    double body_us = time_us - slice->gpu->launch_us;
    if (body_us <= slice->gpu->launch_us)
        return "launch";
    double traffic_us = weft_traffic__us(slice, kernel, slice->units);
    return traffic_us >= most * body_us ? "memory" : "compute";
}

static const weft_framework *find_framework(const weft_estimate_options *options)
{
    return options && options->framework ? options->framework : weft_framework_at(0);
}

static weft_err estimate_one(const weft_workload *work, size_t i, const weft_slice *slice,
                             const weft_estimate_options *options, weft_diag *diag,
                             weft_kernel_cost *out)
{
    const weft_graph_kernel *from = &work->kernel[i];
    weft_kernel_cost k = {
        .node = from->node, .op = from->op, .kernel = from->kernel, .launches = from->launches};
    /* Winograd (algo of the node) is a choice of the CPU's pipeline; on a GPU the model of
     * convolutions makes its own choice. */
    if (!slice->gpu->is_cpu)
        k.kernel.flop_saving = 0;
    if (work->lowering == WEFT_LOWERING_FRAMEWORK)
        k.kernel = weft_framework__adapt(find_framework(options), &from->kernel, slice,
                                         options && options->exact_f32);
    weft_err err = estimate_kernel(&k.kernel, slice, options, diag, &k.cost, &k.model, &k.usage);
    if (err != WEFT_ERR_OK) {
        weft_diag_note(diag, (weft_where){.item = k.op}, "kernel %zu of the model", i + 1);
        return err;
    }
    k.bound = find_bound(&k.kernel, slice, k.cost.time_us);
    k.cost.time_us *= k.launches;
    k.cost.time_p5_us *= k.launches;
    k.cost.time_p95_us *= k.launches;
    k.cost.energy_j *= k.launches;
    *out = k;
    return WEFT_ERR_OK;
}

/* Adds the time in which no kernel runs: no units are used, idle power is drawn. */
static void add_idle(const weft_slice *slice, double time_us, weft_cost *total)
{
    double used = total->time_us / time_us;
    total->energy_j += weft_energy__idle_w(slice) * fmax(0, time_us - total->time_us) * 1e-6;
    total->creq *= used;
    total->bandwidth_gbps *= used;
    total->time_p5_us /= used;
    total->time_p95_us /= used;
    total->time_us = time_us;
}

/* The source of the kernels that take most of the time. */
static const char *find_source(const weft_kernel_cost *kernel, size_t n, double device_us)
{
    double other_us = 0;
    const char *other = "analytic";
    for (size_t i = 0; i < n; i++) {
        if (strcmp(kernel[i].cost.source, "analytic") == 0)
            continue;
        other = kernel[i].cost.source;
        other_us += kernel[i].cost.time_us;
    }
    return 2 * other_us > device_us ? other : "analytic";
}

/* Index of an equal kernel (same problem, same launches) among the last TWINS_MAX of the `n_first`
 * kernels that were predicted; SIZE_MAX: none. Networks repeat the same kernels, and one prediction
 * costs as much as a thousand comparisons, hence that limit. Padding bytes may make two equal
 * kernels compare as different, never the opposite. */
static size_t find_twin(const weft_workload *work, const size_t *first, size_t n_first, size_t i)
{
    const weft_graph_kernel *k = &work->kernel[i];
    size_t least = n_first > TWINS_MAX ? n_first - TWINS_MAX : 0;
    for (size_t f = n_first; f-- > least;) {
        const weft_graph_kernel *other = &work->kernel[first[f]];
        if (other->launches == k->launches &&
            memcmp(&other->kernel, &k->kernel, sizeof k->kernel) == 0)
            return first[f];
    }
    return SIZE_MAX;
}

/* Predicts each distinct kernel once. */
static weft_err estimate_all(const weft_workload *work, const weft_slice *slice,
                             const weft_estimate_options *options, weft_arena *arena,
                             weft_diag *diag, weft_kernel_cost *out)
{
    size_t n_first = 0, *first = weft_arena_array(arena, work->n + 1, sizeof *first);
    for (size_t i = 0; i < work->n; i++) {
        size_t twin = find_twin(work, first, n_first, i);
        if (twin == SIZE_MAX) {
            WEFT_TRY(estimate_one(work, i, slice, options, diag, &out[i]));
            first[n_first++] = i;
            continue;
        }
        out[i] = out[twin];
        out[i].node = work->kernel[i].node;
        out[i].op = work->kernel[i].op;
    }
    return WEFT_ERR_OK;
}

weft_err weft_estimate_workload(const weft_workload *work, const weft_slice *slice,
                                const weft_estimate_options *options, weft_arena *arena,
                                weft_diag *diag, weft_estimate *out)
{
    weft_workload divided;
    WEFT_TRY(weft_workload_divide(work, slice, arena, diag, &divided));
    work = &divided;
    weft_estimate e = {.n = work->n};
    weft_kernel_cost *kernel = weft_arena_array(arena, work->n + 1, sizeof *kernel);
    WEFT_TRY(estimate_all(work, slice, options, arena, diag, kernel));
    for (size_t i = 0; i < work->n; i++)
        add_kernel(&kernel[i], &e.total);
    e.kernel = kernel;
    if (e.n == 0) { /* a graph of views only: one launch copies its result */
        double launch_us = slice->gpu->launch_us;
        e.total = (weft_cost){.time_us = launch_us,
                              .time_p5_us = launch_us / 2,
                              .time_p95_us = launch_us * 2,
                              .expected_error = 1};
        e.total.creq = 1.0 / slice->all_units;
    }
    e.device_us = e.total.time_us;
    if (work->lowering == WEFT_LOWERING_FRAMEWORK && !slice->gpu->is_cpu && e.n > 0)
        add_idle(slice, weft_framework__time_us(find_framework(options), work, kernel), &e.total);
    weft_arena_mark mark = weft_arena_get_mark(arena);
    weft_workload__schedule(work, kernel, arena, &e.creq);
    weft_arena_reset(arena, mark);
    snprintf(e.total.source, sizeof e.total.source, "%s", find_source(kernel, e.n, e.device_us));
    weft_workload__sum_memory(work, slice, &e);
    *out = e;
    return WEFT_ERR_OK;
}

weft_err weft_estimate_graph(weft_graph *g, const int64_t *symbol, const weft_slice *slice,
                             const weft_estimate_options *options, weft_arena *arena,
                             weft_diag *diag, weft_estimate *out)
{
    weft_workload work;
    WEFT_TRY(weft_workload_make(g, symbol, options, arena, diag, &work));
    return weft_estimate_workload(&work, slice, options, arena, diag, out);
}
