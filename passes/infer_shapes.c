/* infer-shapes: replaces operands that are known parameters by attributes.
 *
 * The runner has already inferred types and contents (facts TYPES and CONTENTS). A parameter
 * operand
 * (`.params` of the operator's row) with known content, constant or symbolic, becomes an attribute:
 *
 *     reshape %x, %shape           ==>  reshape %x {shape = dims[?b, 768]}
 *     clip %x, $lo, $hi            ==>  clip %x {max = 6.0, min = 0.0}
 *
 * The chain of Shape / Gather / Concat that computed it is then dead. A reshape gets the dims of
 * its result, which have no 0 and -1. O(nodes). */
#include "passes/passes_int.h"

enum { PARAM_ELEMS_MAX = 64 };

/* The attribute that replaces an operand of integers. Sizes that data tells stay operands: the
 * value whose dims they are may be dead once nobody asks for its shape. */
static bool dims_attr(weft_passctx *cx, weft_module *m, weft_val v, weft_attr_key key,
                      weft_attr *out)
{
    uint32_t n = 0;
    const weft_dim *content = weft_contents_get(cx->contents, v, &n);
    if (!content)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!weft_dim_is_const(content[i]) && weft_dim_is_data(weft_module_dims(m), content[i]))
            return false;
    *out =
        (weft_attr){.key = (uint16_t)key, .kind = WEFT_KIND_DIMS, .n = n, .u = {.dims = content}};
    return true;
}

/* The attribute that replaces an operand of floats, which must be a weight. */
static bool floats_attr(weft_passctx *cx, const weft_module *m, weft_val v, weft_attr_key key,
                        bool list, weft_attr *out)
{
    if (weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    weft_tensor t = weft_weight_tensor(m, weft_val_weight(m, v));
    int64_t n = weft_tensor_numel(&t);
    if (n > PARAM_ELEMS_MAX || (!list && n != 1))
        return false;
    double *x = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = weft_tensor_get_f64(&t, i);
    if (list)
        *out = (weft_attr){
            .key = (uint16_t)key, .kind = WEFT_KIND_FLOATS, .n = (uint32_t)n, .u = {.floats = x}};
    else
        *out = (weft_attr){.key = (uint16_t)key, .kind = WEFT_KIND_FLOAT, .u = {.f = x[0]}};
    return true;
}

/* Float parameters: bounds of a clip (one number each) and scales of a resize (a list). */
static bool param_attr(weft_passctx *cx, weft_module *m, weft_node n, weft_val v, weft_attr_key key,
                       weft_attr *out)
{
    weft_dtype dtype = (weft_dtype)weft_val_ttype(m, v)->dtype;
    bool bound = key == WEFT_ATTR_MIN || key == WEFT_ATTR_MAX;
    if (weft_dtype_is_float(dtype))
        return (bound || key == WEFT_ATTR_SCALES) && floats_attr(cx, m, v, key, !bound, out);
    /* The operands of a range determine its element type: only i64, the default, may be replaced.
     */
    if (bound || (weft_node_op(m, n) == WEFT_OP_RANGE && dtype != WEFT_DTYPE_I64))
        return false;
    return dims_attr(cx, m, v, key, out);
}

static bool move_params(weft_passctx *cx, weft_module *m, weft_node n)
{
    const weft_op *op = weft_node_opdef(m, n);
    bool changed = false;
    for (uint32_t i = 0; i < WEFT_OP_PARAM_MAX && op->params[i].key; i++) {
        const weft_param_def *param = &op->params[i];
        weft_val v = weft_node_in(m, n, param->in);
        weft_attr attr;
        if (!v.i || !param_attr(cx, m, n, v, (weft_attr_key)param->key, &attr) ||
            !weft_rewrite__allow(cx))
            continue;
        weft_node_set_attr(m, n, &attr);
        weft_node_set_in(m, n, param->in, (weft_val){0});
        changed = true;
    }
    if (changed)
        weft_node_trim_in(m, n);
    return changed;
}

/* reshape {shape = [0, -1]}  ==>  reshape {shape = dims of the result} */
static bool resolve_reshape(weft_module *m, weft_node n)
{
    if (weft_node_op(m, n) != WEFT_OP_RESHAPE || weft_node_in(m, n, 1).i)
        return false;
    const weft_ttype *type = weft_val_ttype(m, weft_node_out(m, n, 0));
    const weft_attr *shape = weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_SHAPE);
    bool same = shape && shape->kind == WEFT_KIND_DIMS && shape->n == type->rank;
    for (uint32_t i = 0; same && i < type->rank; i++)
        same = shape->u.dims[i] == type->dim[i];
    for (uint32_t i = 0; i < type->rank; i++)
        if (weft_dim_is_data(weft_module_dims(m), type->dim[i]))
            return false;
    if (same)
        return false;
    weft_node_set_attr(m, n, &WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank));
    return true;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            *changed |= move_params(cx, m, n);
            *changed |= resolve_reshape(m, n);
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_infer_shapes = {
    .name = "infer-shapes",
    .brief = "infer types; known shape parameters become attributes",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
