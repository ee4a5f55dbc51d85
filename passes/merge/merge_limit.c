/* Whether a joint graph is built at all, and up to which size it is run.
 *
 * Two tests. The first looks at GEMMs only: super-GEMMs must save a certain share of the time of
 * all GEMMs, and sizes at which they take longer than the models' own GEMMs are beyond the limit.
 * The second estimates the whole joint graph and the models. Strategies are chosen by the times of
 * GEMMs, but if GEMMs take only microseconds, the nodes between them and the slices, copies and
 * sums that strategies add decide, and these are known once the graph is built.
 *
 * The number of cores is not known when a bundle is compiled, so a joint graph must lose neither on
 * one core nor on two. */
#include "passes/merge/merge_int.h"

#include <math.h>

/* Apart / joint time below which a joint graph counts as losing; smaller losses cannot be measured.
 */
static const double loss = 0.98;
/* The least share of the time of all GEMMs at the small size that a joint graph must save. */
static const double least_saved = 0.02;

/* -- GEMMs ------------------------------------------------------------------------------------ */

/* The time of the groups of GEMMs, joined and each model by itself. false: the estimator does not
 * know. */
static bool time_gemms(weft_merger *g, const weft_merge_sizes *at, double *joint_us,
                       double *apart_us)
{
    *joint_us = *apart_us = 0;
    for (uint32_t i = 0; i < g->groups.len; i++) {
        weft_merge_group p = g->groups.at[i];
        double joint = 0, apart = 0;
        if (p.column.n < 2 || !weft_merge__is_gemm(g->m, weft_merge__first(g, &p.column)))
            continue;
        if (!weft_merge__group_us(g, &p, at, &joint))
            return false;
        p.strategy = &weft_merge_strategy_none;
        p.copied = 0;
        if (!weft_merge__group_us(g, &p, at, &apart))
            return false;
        *joint_us += joint;
        *apart_us += apart;
    }
    return true;
}

bool weft_merge__is_worth_it(weft_merger *g)
{
    double joint = 0, apart = 0, all = 0;
    if (g->cx->options->merge != WEFT_MERGE_AUTO)
        return true;
    if (!g->sized || !time_gemms(g, &g->small, &joint, &apart))
        return false;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        WEFT_FOREACH_NODE (g->m, g->columns.model[i], n)
            if (weft_merge__is_gemm(g->m, n) && !weft_merge__node_us(&g->small, g->m, n, &all))
                return false;
    return apart - joint >= least_saved * all;
}

static double count_inputs(weft_merger *g, const weft_merge_sizes *at)
{
    double n = 0;
    for (uint32_t k = 0; k < weft_graph_input_count(g->joint); k++)
        weft_merge__count(at, g->m, weft_graph_input(g->joint, k), &n);
    return n;
}

static double find_gemm_limit(weft_merger *g)
{
    double limit = INFINITY;
    for (int64_t batch = 1; batch <= WEFT_MERGE_LARGE_BATCH; batch *= 2)
        for (int64_t other = 1; other <= WEFT_MERGE_LARGE_OTHER; other *= 2) {
            weft_merge_sizes at;
            double joint = 0, apart = 0;
            if (weft_merge__sizes(g, batch, other, &at) && time_gemms(g, &at, &joint, &apart) &&
                joint > apart)
                limit = fmin(limit, count_inputs(g, &at) - 1);
        }
    return limit;
}

/* -- The whole graph -------------------------------------------------------------------------- */

/* Changes f32 kernels to the 16-bit type in which f32 is computed: half of the bytes. */
static void halve(const weft_merge_sizes *at, weft_arena *scratch, weft_workload *work)
{
    weft_graph_kernel *kernel = weft_arena_array(scratch, work->n + 1, sizeof *kernel);
    for (size_t i = 0; i < work->n; i++) {
        kernel[i] = work->kernel[i];
        weft_kernel *k = &kernel[i].kernel;
        if (k->dtype != WEFT_DTYPE_F32)
            continue;
        k->dtype = at->half;
        k->work.bytes_read /= 2;
        k->work.bytes_written /= 2;
        k->work.weight_bytes /= 2;
    }
    work->kernel = kernel;
    work->graph = NULL; /* whose kernels are of the other type */
}

/* The kernels that the graph runs at these sizes and in their element type. */
static bool make_workload(weft_merger *g, const weft_merge_sizes *at, weft_graph *graph,
                          const weft_estimate_options *strategy, weft_workload *out)
{
    weft_arena *scratch = g->cx->scratch;
    uint32_t n = weft_graph_symbol_count(graph);
    int64_t *symbol = weft_arena_array(scratch, (size_t)n + 1, sizeof *symbol);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = weft_dim_as_symbol(g->dims, weft_graph_symbol_dim(graph, i));
        symbol[i] = s < at->n ? at->value[s] : -1;
    }
    if (weft_workload_make(graph, symbol, strategy, scratch, NULL, out) != WEFT_ERR_OK)
        return false;
    if (at->half != WEFT_DTYPE_NONE)
        halve(at, scratch, out);
    return true;
}

/* Adds the time of one execution if `all_bytes` of weights are touched between two executions, or
 * those of the graph if they are more. *out_bytes: weights of the graph. false: the estimator does
 * not know. */
static bool predict_graph(weft_merger *g, const weft_merge_sizes *at, weft_graph *graph,
                          uint64_t all_bytes, double *us, uint64_t *out_bytes)
{
    weft_arena *scratch = g->cx->scratch;
    weft_arena_mark mark = weft_arena_get_mark(scratch);
    weft_estimate_options how = {.exact_f32 = at->exact_f32};
    weft_estimate e = {0};
    weft_workload work = {0};
    bool known = make_workload(g, at, graph, &how, &work);
    if (known && all_bytes > work.weight_bytes) {
        how.beside_bytes = all_bytes - work.weight_bytes;
        known = make_workload(g, at, graph, &how, &work);
    }
    known =
        known && weft_estimate_workload(&work, &at->slice, &how, scratch, NULL, &e) == WEFT_ERR_OK;
    *us += e.total.time_us;
    *out_bytes = work.weight_bytes;
    weft_arena_reset(scratch, mark);
    return known && isfinite(*us);
}

/* Whether the models by themselves, one after the other, are predicted to be faster. Between two
 * runs of one model all others touch their weights, which may be many more than those of the joint
 * graph. */
static bool loses(weft_merger *g, const weft_merge_sizes *at)
{
    double apart = 0, joint = 0;
    uint64_t all = 0, own = 0;
    if (!predict_graph(g, at, g->joint, 0, &joint, &all))
        return false;
    if (at->reuse_bytes > (double)all)
        all = (uint64_t)at->reuse_bytes;
    for (uint32_t i = 0; i < g->columns.n_model; i++)
        if (!predict_graph(g, at, g->columns.model[i], all, &apart, &own))
            return false;
    return apart < loss * joint;
}

static double find_whole_limit(weft_merger *g)
{
    static const int64_t others[] = {1, 8, WEFT_MERGE_LARGE_OTHER};
    double limit = INFINITY, before = 0;
    for (int64_t batch = 1; batch <= WEFT_MERGE_LARGE_BATCH; batch *= 2)
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            weft_merge_sizes at;
            if (!weft_merge__sizes(g, batch, others[i], &at))
                return limit;
            weft_merge_sizes one = at;
            double elements = count_inputs(g, &at);
            if (weft_slice_make(at.slice.gpu->name, "", NULL, &one.slice) != WEFT_ERR_OK)
                return limit;
            if (elements != before && elements <= limit && (loses(g, &at) || loses(g, &one)))
                limit = elements - 1;
            before = elements;
        }
    return limit;
}

uint64_t weft_merge__find_limit(weft_merger *g)
{
    if (g->cx->options->merge != WEFT_MERGE_AUTO)
        return 0;
    double gemms = find_gemm_limit(g), limit = fmin(gemms, find_whole_limit(g));
    return isfinite(limit) && limit >= 1 ? (uint64_t)limit : 0;
}
