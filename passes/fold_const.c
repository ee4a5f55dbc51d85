/* fold-const: constant folding. Nodes that depend on no input become weights.
 *
 *     %s = shape %x             (content known: [2, 3])   ==>  $w = dense [2, 3]
 *     %y = transpose $w {...}                             ==>  $w2
 *
 * A node is folded if inference found its small integer result to be constant (symbols may have
 * cancelled), or if all operands are weights: the reference implementation then computes it. A node
 * whose result is larger than RESULT_MAX and than all operands together is not folded (expanding a
 * scalar to a large tensor is cheaper at run time). One forward sweep, since operands come first.
 */
#include "passes/passes_int.h"

enum { RESULT_MAX_BYTES = 1 << 20 };

/* -- From contents -------------------------------------------------------------------------- */

static bool constant_content(weft_passctx *cx, const weft_module *m, weft_val v,
                             const weft_dim **out, uint32_t *out_n)
{
    const weft_ttype *type = weft_val_ttype(m, v);
    if (!weft_dtype_is_int((weft_dtype)type->dtype) && type->dtype != WEFT_DTYPE_BOOL)
        return false;
    *out = weft_contents_get(cx->contents, v, out_n);
    if (!*out)
        return false;
    for (uint32_t i = 0; i < *out_n; i++)
        if (!weft_dim_is_const((*out)[i]))
            return false;
    for (uint32_t i = 0; i < type->rank; i++)
        if (!weft_dim_is_const(type->dim[i]))
            return false;
    return true;
}

static weft_val weight_of_content(weft_passctx *cx, weft_module *m, weft_val v,
                                  const weft_dim *content, uint32_t n, const char *name)
{
    const weft_ttype *type = weft_val_ttype(m, v);
    weft_tensor t = {.dtype = (weft_dtype)type->dtype, .rank = type->rank};
    for (uint32_t i = 0; i < type->rank; i++)
        t.dim[i] = type->dim[i];
    t.data = weft_arena_array(cx->scratch, (size_t)n + 1, weft_dtype_size(t.dtype));
    for (uint32_t i = 0; i < n; i++)
        weft_tensor_set_i64(&t, i, content[i]);
    return weft_rewrite__constant(m, t.dtype, t.dim, type->rank, t.data, name);
}

static bool fold_content(weft_passctx *cx, weft_graph *g, weft_node n)
{
    weft_module *m = weft_graph_module(g);
    weft_val v = weft_node_out(m, n, 0);
    const weft_dim *content = NULL;
    uint32_t count = 0;
    if (weft_node_out_count(m, n) != 1 || !constant_content(cx, m, v, &content, &count) ||
        !weft_rewrite__allow(cx))
        return false;
    weft_val w = weight_of_content(cx, m, v, content, count, weft_node_opdef(m, n)->name);
    weft_rewrite__replace_result(g, n, 0, w);
    return true;
}

/* -- By running ----------------------------------------------------------------------------- */

static bool operands_are_weights(const weft_module *m, weft_node n, uint64_t *out_bytes)
{
    *out_bytes = 0;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            continue;
        if (weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
            return false;
        *out_bytes += weft_weight_get(m, weft_val_weight(m, v))->bytes;
    }
    return true;
}

/* All results have constant dims, and their size is below the limit. */
static bool results_fit(const weft_module *m, weft_node n, uint64_t in_bytes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        const weft_ttype *type = weft_val_ttype(m, weft_node_out(m, n, i));
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < type->rank; k++)
            if (!weft_dim_is_const(type->dim[k]))
                return false;
        if (!weft_layout_bytes((weft_dtype)type->dtype, WEFT_LAYOUT_PLAIN, type->dim, type->rank,
                               &bytes))
            return false;
        total += bytes;
    }
    return total <= RESULT_MAX_BYTES || total <= in_bytes;
}

static weft_err fold_by_running(weft_passctx *cx, weft_graph *g, weft_node n, bool *changed)
{
    weft_module *m = weft_graph_module(g);
    const weft_op *op = weft_node_opdef(m, n);
    uint64_t in_bytes = 0;
    if (!op->eval || (op->traits & WEFT_T_RANDOM) || !operands_are_weights(m, n, &in_bytes) ||
        !results_fit(m, n, in_bytes) || !weft_rewrite__allow(cx))
        return WEFT_ERR_OK;
    uint32_t n_out = weft_node_out_count(m, n);
    weft_tensor *out = weft_arena_array(cx->scratch, n_out, sizeof *out);
    WEFT_TRY(weft_node_eval(g, n, cx->diag, out, n_out));
    for (uint32_t i = 0; i < n_out; i++) {
        weft_ttype type = *weft_val_ttype(m, weft_node_out(m, n, i));
        weft_weight_info info = {.type = weft_type_intern(m, &type),
                                 .name = op->name,
                                 .data = out[i].data,
                                 .bytes = weft_tensor_bytes(&out[i])};
        weft_rewrite__replace_result(g, n, i, weft_weight_val(m, weft_weight_add(m, &info)));
    }
    *changed = true;
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            if (!weft_rewrite__is_live(g, n))
                continue;
            if (fold_content(cx, g, n))
                *changed = true;
            else
                WEFT_TRY(fold_by_running(cx, g, n, changed));
            if (!weft_rewrite__is_live(g, n))
                weft_node_remove(g, n);
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fold_const = {
    .name = "fold-const",
    .brief = "compute what depends on no input",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
