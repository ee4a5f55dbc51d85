/* What a joint graph takes as a whole, beside its models: with everything that strategies add to it
 * (slices, copies, sums), and with what can be joined between products.
 *
 * Strategies are chosen product by product, by the time of the products. Where products take a
 * microsecond, what lies between them decides; the estimator knows that once the graph is there. A
 * bundle does not know how many cores it will have: a joint graph must not lose on one, nor on two.
 */
#include "passes/merge_int.h"

#include <math.h>

/* A joint graph may be predicted to lose so much before it is not run: less is no loss to measure.
 */
static const double loss = 0.98;

/* Time of one execution; `beside_bytes`: what others touch between two. false: not known. */
static bool predict_graph(weft_merger *g, const weft_merge_sizes *at, weft_graph *graph,
                          uint64_t beside_bytes, double *us, uint64_t *out_bytes)
{
    weft_arena_mark mark = weft_arena_get_mark(g->cx->scratch);
    uint32_t n = weft_graph_symbol_count(graph);
    int64_t *symbol = weft_arena_array(g->cx->scratch, (size_t)n + 1, sizeof *symbol);
    const weft_estimate_options how = {.beside_bytes = beside_bytes};
    weft_estimate e = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = weft_dim_as_symbol(g->dims, weft_graph_symbol_dim(graph, i));
        symbol[i] = s < at->n ? at->value[s] : -1;
    }
    bool known = weft_estimate_graph(graph, symbol, &at->slice, &how, g->cx->scratch, NULL, &e) ==
                 WEFT_ERR_OK;
    *us += e.total.time_us;
    *out_bytes = e.weight_bytes;
    weft_arena_reset(g->cx->scratch, mark);
    return known && isfinite(*us);
}

static double count_inputs(weft_merger *g, const weft_merge_sizes *at)
{
    double n = 0;
    for (uint32_t k = 0; k < weft_graph_input_count(g->joint); k++)
        weft_merge__count(at, g->m, weft_graph_input(g->joint, k), &n);
    return n;
}

/* Whether the models by themselves, one after the other, are predicted to be faster. */
static bool loses(weft_merger *g, const weft_merge_sizes *at)
{
    double apart = 0, joint = 0;
    uint64_t all = 0, own = 0;
    if (!predict_graph(g, at, g->joint, 0, &joint, &all))
        return false;
    for (uint32_t i = 0; i < g->columns.n_model; i++) {
        double once = 0;
        weft_graph *model = g->columns.model[i];
        if (!predict_graph(g, at, model, 0, &once, &own) ||
            !predict_graph(g, at, model, all > own ? all - own : 0, &apart, &own))
            return false;
    }
    return apart < loss * joint;
}

uint64_t weft_merge__whole_limit(weft_merger *g)
{
    static const int64_t others[] = {1, 8, WEFT_MERGE_LARGE_OTHER};
    double limit = INFINITY, before = 0;
    if (g->cx->options->merge != WEFT_MERGE_AUTO)
        return 0;
    for (int64_t batch = 1; batch <= WEFT_MERGE_LARGE_BATCH; batch *= 2)
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            weft_merge_sizes at;
            if (!weft_merge__sizes(g, batch, others[i], &at))
                return 0;
            weft_merge_sizes one = at;
            double elements = count_inputs(g, &at);
            if (weft_slice_make(at.slice.gpu->name, "", NULL, &one.slice) != WEFT_ERR_OK)
                return 0;
            if (elements != before && elements <= limit && (loses(g, &at) || loses(g, &one)))
                limit = elements - 1;
            before = elements;
        }
    return isfinite(limit) && limit >= 1 ? (uint64_t)limit : 0;
}
