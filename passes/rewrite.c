/* The rewrites that passes share; passes_int.h. */
#include "passes/passes_int.h"

bool weft_rewrite__allow(weft_passctx *cx)
{
    if (cx->options->rewrite_limit && cx->n_rewrites >= cx->options->rewrite_limit)
        return false;
    cx->n_rewrites++;
    return true;
}

void weft_rewrite__replace_result(weft_graph *g, weft_node n, uint32_t i, weft_val with)
{
    weft_val_replace(g, weft_node_out(weft_graph_module(g), n, i), with);
}

bool weft_rewrite__is_live(const weft_graph *g, weft_node n)
{
    const weft_module *m = weft_graph_module(g);
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        weft_val v = weft_node_out(m, n, i);
        if (weft_val_use_count(m, v) > 0 || weft_val_is_output(g, v))
            return true;
    }
    return false;
}

void weft_rewrite__remove_dead(weft_graph *g, weft_node n)
{
    weft_module *m = weft_graph_module(g);
    weft_arena *arena = weft_module_arena(m);
    WEFT_VEC(weft_node) work = {0};
    WEFT_VEC_PUSH(arena, &work, n);
    while (work.len) {
        weft_node dead = work.at[--work.len];
        if (weft_rewrite__is_live(g, dead))
            continue;
        for (uint32_t i = 0; i < weft_node_in_count(m, dead); i++) {
            weft_val v = weft_node_in(m, dead, i);
            weft_node maker = v.i ? weft_val_node(m, v) : (weft_node){0};
            /* A node is in the work list at most once, because it may be removed when it is
             * visited. */
            bool seen = maker.i == 0;
            for (uint32_t k = 0; k < work.len && !seen; k++)
                seen = work.at[k].i == maker.i;
            if (!seen)
                WEFT_VEC_PUSH(arena, &work, maker);
        }
        weft_node_remove(g, dead);
    }
}

bool weft_rewrite__is_like(const weft_module *m, weft_node a, weft_node b)
{
    if (weft_node_op(m, a) != weft_node_op(m, b) ||
        weft_node_in_count(m, a) != weft_node_in_count(m, b) ||
        weft_node_out_count(m, a) != weft_node_out_count(m, b))
        return false;
    for (uint32_t i = 0; i < weft_node_out_count(m, a); i++)
        if (weft_val_type(m, weft_node_out(m, a, i)).i !=
            weft_val_type(m, weft_node_out(m, b, i)).i)
            return false;
    return weft_attrs_equal(weft_node_attrs(m, a), weft_node_attrs(m, b));
}

weft_node weft_rewrite__sole_user(const weft_graph *g, weft_val v)
{
    const weft_module *m = weft_graph_module(g);
    if (weft_val_use_count(m, v) != 1 || weft_val_is_output(g, v))
        return (weft_node){0};
    return weft_val_use(m, v, 0).node;
}

weft_val weft_rewrite__append(weft_graph *g, weft_op_id op, const weft_val *in, uint32_t n_in,
                              const weft_attr *attr, uint32_t n_attr, const weft_ttype *type,
                              weft_loc loc)
{
    weft_module *m = weft_graph_module(g);
    weft_type out = weft_type_intern(m, type);
    weft_node_spec spec = {.op = op,
                           .in = in,
                           .n_in = n_in,
                           .out = &out,
                           .n_out = 1,
                           .attr = attr,
                           .n_attr = n_attr,
                           .loc = loc};
    return weft_node_out(m, weft_node_append(g, &spec), 0);
}

weft_err weft_rewrite__emit(weft_passctx *cx, weft_graph *g, weft_node before, weft_op_id op,
                            const weft_val *in, uint32_t n_in, const weft_attr *attr,
                            uint32_t n_attr, weft_loc loc, weft_val *out)
{
    weft_module *m = weft_graph_module(g);
    /* Inference needs the node to exist: a placeholder type is replaced by the inferred one. */
    weft_type unknown = weft_type_make(m, WEFT_DTYPE_F32, NULL, 0);
    weft_node_spec spec = {.op = op,
                           .in = in,
                           .n_in = n_in,
                           .out = &unknown,
                           .n_out = 1,
                           .attr = attr,
                           .n_attr = n_attr,
                           .loc = loc};
    weft_node n = weft_node_insert_before(g, before, &spec);
    weft_ttype type = {0};
    WEFT_TRY(weft_node_infer(g, n, cx->contents, cx->diag, &type, 1));
    weft_val result = weft_node_out(m, n, 0);
    weft_val_set_type(m, result, weft_type_intern(m, &type));
    *out = result;
    return WEFT_ERR_OK;
}

weft_val weft_rewrite__constant(weft_module *m, weft_dtype dtype, const int64_t *dim, uint32_t rank,
                                const void *bytes, const char *name)
{
    weft_dim dims[WEFT_RANK_MAX];
    for (uint32_t i = 0; i < rank; i++)
        dims[i] = dim[i];
    uint64_t size = (uint64_t)weft_numel(dim, (int32_t)rank) * weft_dtype_size(dtype);
    weft_weight_info info = {
        .type = weft_type_make(m, dtype, dims, rank), .name = name, .data = bytes, .bytes = size};
    return weft_weight_val(m, weft_weight_add_copy(m, &info));
}

bool weft_rewrite__scalar(const weft_module *m, weft_val v, double *out)
{
    if (!v.i || weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    weft_tensor t = weft_weight_tensor(m, weft_val_weight(m, v));
    if (weft_tensor_numel(&t) != 1)
        return false;
    *out = weft_tensor_get_f64(&t, 0);
    return true;
}
