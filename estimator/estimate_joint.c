/* Estimates of a joint graph and, for comparison, of its models one after the other. */
#include "estimator/estimator.h"

#include <string.h>

static weft_err estimate_at(weft_graph *g, const int64_t *value, uint32_t n_value,
                            const weft_slice *slice, uint64_t beside_bytes, weft_arena *arena,
                            weft_diag *diag, weft_estimate *out)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    const weft_estimate_options how = {.beside_bytes = beside_bytes};
    uint32_t n = weft_graph_symbol_count(g);
    int64_t *symbol = weft_arena_array(arena, (size_t)n + 1, sizeof *symbol);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i));
        symbol[i] = at < n_value ? value[at] : -1;
    }
    return weft_estimate_graph(g, symbol, slice, &how, arena, diag, out);
}

/* Bytes of the weights that the graph reads and that `seen` does not contain; adds them to
 * `seen`. */
static uint64_t sum_weights(const weft_module *m, const weft_graph *g, bool *seen)
{
    uint64_t bytes = 0;
    WEFT_FOREACH_NODE (m, g, n)
        for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
            weft_val v = weft_node_in(m, n, i);
            weft_weight w = v.i ? weft_val_weight(m, v) : (weft_weight){0};
            bytes += w.i && !seen[w.i] ? weft_weight_get(m, w)->bytes : 0;
            seen[w.i] = true;
        }
    return bytes;
}

weft_err weft_estimate_joint(weft_graph *joint, const int64_t *value, uint32_t n_value,
                             const weft_slice *slice, weft_arena *arena, weft_diag *diag,
                             weft_joint_estimate *out)
{
    weft_module *m = weft_graph_module(joint);
    weft_joint_estimate e = {.n_part = weft_graph_part_count(joint)};
    weft_estimate *part = weft_arena_array(arena, (size_t)e.n_part + 1, sizeof *part);
    weft_graph **model = weft_arena_array(arena, (size_t)e.n_part + 1, sizeof(weft_graph *));
    bool *seen = weft_arena_array(arena, (size_t)weft_weight_count(m) + 1, sizeof *seen);
    uint64_t all = 0;
    for (uint32_t i = 0; i < e.n_part; i++) {
        const char *name = weft_graph_part(joint, i)->model;
        model[i] = weft_graph_find(m, name);
        if (!model[i])
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = name},
                                   "the module has a joint graph of this model, but not the model");
        all += sum_weights(m, model[i], seen);
    }
    WEFT_TRY(estimate_at(joint, value, n_value, slice, 0, arena, diag, &e.joint));
    for (uint32_t i = 0; i < e.n_part; i++) {
        memset(seen, 0, ((size_t)weft_weight_count(m) + 1) * sizeof *seen);
        uint64_t beside = all - sum_weights(m, model[i], seen);
        WEFT_TRY(estimate_at(model[i], value, n_value, slice, beside, arena, diag, &part[i]));
        e.apart_us += part[i].total.time_us;
    }
    e.part = part;
    *out = e;
    return WEFT_ERR_OK;
}
