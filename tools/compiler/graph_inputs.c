/* Synthetic inputs of graphs; see graph_inputs.h. */
#include "tools/compiler/graph_inputs.h"

#include "tools/common/sample_tensors.h"

int64_t *weft_tool_smallest_symbols(const weft_graph *g, weft_arena *arena)
{
    const weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    uint32_t n = weft_graph_symbol_count(g);
    int64_t *symbol = weft_arena_array(arena, (size_t)n + 1, sizeof *symbol);
    for (uint32_t i = 0; i < n; i++) {
        int64_t lo = 1, hi = 1;
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i));
        if (at < weft_dim_symbol_count(pool))
            weft_dim_symbol_range(pool, at, &lo, &hi);
        symbol[i] = lo > 1 ? lo : 1;
    }
    return symbol;
}

weft_err weft_tool_make_graph_inputs(weft_graph *g, const int64_t *symbol, weft_arena *arena,
                                     weft_diag *diag, weft_tensor *in)
{
    weft_module *m = weft_graph_module(g);
    const weft_dimpool *pool = weft_module_dims(m);
    uint32_t n = weft_dim_symbol_count(pool);
    int64_t *value = weft_arena_array(arena, (size_t)n + 1, sizeof *value);
    for (uint32_t i = 0; i < n; i++)
        value[i] = -1;
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i));
        if (at < n)
            value[at] = symbol[i];
    }
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++) {
        const weft_ttype *type = weft_val_ttype(m, weft_graph_input(g, i));
        in[i] = (weft_tensor){.dtype = (weft_dtype)type->dtype, .rank = type->rank};
        bool known = true;
        for (uint32_t k = 0; k < type->rank && known; k++)
            known = weft_dim_eval(pool, type->dim[k], value, n, &in[i].dim[k]);
        if (!known || weft_numel(in[i].dim, in[i].rank) < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "input '%s' has no size",
                                   weft_graph_input_name(g, i));
        in[i].data = weft_arena_alloc(arena, weft_tensor_bytes(&in[i]));
        weft_tool_fill_tensor(&in[i]);
    }
    return WEFT_ERR_OK;
}
