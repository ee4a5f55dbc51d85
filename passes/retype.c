/* Casts and inference for passes that change the element type of values: see retype.h. */
#include "passes/retype.h"

weft_val weft_retype__cast(weft_graph *g, weft_node user, weft_val v, weft_dtype dtype,
                           weft_map *known)
{
    weft_module *m = weft_graph_module(g);
    uint64_t found = 0;
    if (weft_map_get(known, v.i, &found))
        return (weft_val){(uint32_t)found};
    weft_ttype type = *weft_val_ttype(m, v);
    type.dtype = (uint8_t)dtype;
    weft_type result = weft_type_intern(m, &type);
    weft_node maker = weft_val_node(m, v);
    weft_attr attr = WEFT_ATTR_OF_DTYPE(TO, dtype);
    weft_node_spec spec = {.op = WEFT_OP_CAST,
                           .in = &v,
                           .n_in = 1,
                           .out = &result,
                           .n_out = 1,
                           .attr = &attr,
                           .n_attr = 1};
    if (maker.i)
        spec.loc = weft_node_loc(m, maker);
    else if (user.i)
        spec.loc = weft_node_loc(m, user);
    weft_node n = user.i ? weft_node_insert_before(g, user, &spec) : weft_node_append(g, &spec);
    weft_val out = weft_node_out(m, n, 0);
    weft_map_put(known, v.i, out.i);
    return out;
}

bool weft_retype__infer(weft_passctx *cx, weft_graph *g, weft_node n, weft_contents *contents)
{
    weft_module *m = weft_graph_module(g);
    uint32_t n_out = weft_node_out_count(m, n);
    weft_ttype *type = weft_arena_array(cx->scratch, n_out, sizeof *type);
    if (weft_node_infer(g, n, contents, NULL, type, n_out) != WEFT_ERR_OK)
        return false;
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val v = weft_node_out(m, n, i);
        weft_ttype now = *weft_val_ttype(m, v);
        if (now.dtype == WEFT_DTYPE_NONE)
            continue;
        now.dtype = type[i].dtype;
        weft_val_set_type(m, v, weft_type_intern(m, &now));
    }
    return true;
}
