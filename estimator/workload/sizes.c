/* Dimensions of a graph as numbers. */
#include "estimator/workload/workload_int.h"

void weft_sizes__begin(weft_graph *g, const int64_t *symbol, weft_arena *arena, weft_diag *diag,
                       weft_sizes *out)
{
    weft_module *m = weft_graph_module(g);
    weft_dimpool *pool = weft_module_dims(m);
    weft_sizes s = {
        .m = m, .g = g, .arena = arena, .diag = diag, .n_value = weft_dim_symbol_count(pool)};
    s.value = weft_arena_array(arena, (size_t)s.n_value + 1, sizeof *s.value);
    for (uint32_t i = 0; i < s.n_value; i++)
        s.value[i] = -1;
    for (uint32_t i = 0; i < weft_graph_symbol_count(g); i++) {
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(g, i));
        if (at < s.n_value)
            s.value[at] = symbol[i];
    }
    *out = s;
}

bool weft_sizes__eval(const weft_sizes *s, const weft_ttype *type, int64_t *dim)
{
    for (uint32_t i = 0; i < type->rank; i++) {
        dim[i] = type->dim[i];
        if (!weft_dim_is_const(type->dim[i]) &&
            !weft_dim_eval(weft_module_dims(s->m), type->dim[i], s->value, s->n_value, &dim[i]))
            return false;
        if (dim[i] < 0)
            return false;
    }
    return weft_numel(dim, type->rank) >= 0;
}
