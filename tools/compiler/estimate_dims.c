/* --dim of `weft estimate`: values of symbolic dimensions. */
#include "tools/compiler/estimate.h"

#include "base/num.h"

#include <string.h>

/* A name of --dim that no graph has, or that is the batch of one, is a mistake. */
weft_err weft_tool_estimate_check_dims(weft_tool_estimate *o, weft_module *m, weft_diag *diag)
{
    weft_where where = {.file = o->file[0]};
    for (size_t i = 0; i < o->n_dim; i++) {
        bool found = false;
        size_t len = (size_t)(strchr(o->dim[i], '=') - o->dim[i]);
        for (uint32_t k = 0; k < weft_graph_count(m); k++) {
            const weft_graph *g = weft_graph_at(m, k);
            if (weft_graph_is_body(g))
                continue;
            for (uint32_t s = 0; s < weft_graph_symbol_count(g); s++) {
                const char *name = weft_graph_symbol_name(g, s);
                if (strlen(name) != len || strncmp(name, o->dim[i], len) != 0)
                    continue;
                found = true;
                o->usage = o->usage || s == weft_graph_batch_symbol(g);
            }
        }
        if (o->usage)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "--dim %s: '%.*s' is the batch, which --batch sets", o->dim[i],
                                   (int)len, o->dim[i]);
        o->usage = !found;
        if (!found)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "--dim %s: no model has a symbolic dimension '%.*s'", o->dim[i],
                                   (int)len, o->dim[i]);
    }
    return WEFT_ERR_OK;
}

/* Applies the values of --dim. Names that this graph does not have belong to other graphs. */
static weft_err set_dims(const weft_tool_estimate *o, const weft_graph *g, int64_t *symbol,
                         weft_diag *diag)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(g));
    for (size_t i = 0; i < o->n_dim; i++) {
        const char *equals = strchr(o->dim[i], '=');
        size_t len = (size_t)(equals - o->dim[i]);
        for (uint32_t k = 0; k < weft_graph_symbol_count(g); k++) {
            const char *name = weft_graph_symbol_name(g, k);
            int64_t lo, hi, value = 0;
            if (strlen(name) != len || strncmp(name, o->dim[i], len) != 0)
                continue;
            weft_dim_bounds(pool, weft_graph_symbol_dim(g, k), &lo, &hi);
            if (!weft_parse_i64(equals + 1, &value) || value < lo || value > hi)
                return weft_diag_error(
                    diag, WEFT_ERR_INPUT, (weft_where){.item = weft_graph_name(g)},
                    "--dim %s is outside [%lld, %lld]", o->dim[i], (long long)lo, (long long)hi);
            symbol[k] = value;
        }
    }
    return WEFT_ERR_OK;
}

weft_err weft_tool_estimate_symbols(const weft_tool_estimate *o, weft_graph *g, int64_t batch,
                                    weft_diag *diag, int64_t *out)
{
    WEFT_TRY(weft_estimate_symbols(g, (uint32_t)batch, diag, out));
    return set_dims(o, g, out, diag);
}
