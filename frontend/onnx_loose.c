/* Values of one element whose rank depends on data: 0 in one branch of an If or round of a loop, 1
 * in the other, as exporters write flags and counters. Here they have rank 1. Element-wise
 * operators with an operand of rank 1 or more, conditions, and reshapes give the same result for
 * both; element-wise operators on scalars give such a value again; all others are refused. */
#include "frontend/onnx_build.h"

#include <string.h>

bool weft_onnx__is_loose(const weft_onnx_ctx *cx, weft_val v)
{
    uint64_t unused;
    return v.i && !weft_onnx__is_sequence(v) && weft_map_get(cx->loose, v.i, &unused);
}

void weft_onnx__set_loose(weft_onnx_ctx *cx, weft_val v)
{
    weft_map_put(cx->loose, v.i, 1);
}

bool weft_onnx__is_single(const weft_onnx_ctx *cx, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(cx->m, v);
    return t->rank == 0 || (t->rank == 1 && t->dim[0] == 1);
}

weft_err weft_onnx__make_loose(weft_onnx_call *c, weft_val *v)
{
    weft_onnx_build b = {.c = c};
    const weft_dim one = 1;
    if (weft_onnx__of(&b, *v)->rank == 0 || weft_val_get_kind(c->cx->m, *v) == WEFT_VAL_WEIGHT)
        *v = weft_onnx__reshape(&b, *v, &one, 1);
    if (b.err == WEFT_ERR_OK)
        weft_onnx__set_loose(c->cx, *v);
    return b.err;
}

/* A reshape to a shape that does not copy dims of the operand. */
static bool sets_shape(const weft_onnx_call *c)
{
    uint32_t n = 0;
    const weft_dim *shape = c->n_in > 1 ? weft_contents_get(c->cx->contents, c->in[1], &n) : NULL;
    for (uint32_t i = 0; shape && i < n; i++)
        if (shape[i] == 0)
            return false;
    return shape && !weft_onnx__is_loose(c->cx, c->in[1]);
}

/* A sum or the like of all elements, of rank 0. */
static bool reduces_all(const weft_onnx_call *c)
{
    bool keeps = true;
    for (uint32_t i = 0; i < c->n_proto; i++) {
        keeps = keeps && (strcmp(c->proto[i]->name, "keepdims") != 0 || c->proto[i]->i != 0);
        if (strcmp(c->proto[i]->name, "axes") == 0)
            return false;
    }
    return c->row->op && (weft_op_get(c->row->op)->traits & WEFT_T_REDUCE) && c->n_in == 1 &&
           !keeps;
}

weft_err weft_onnx__check_loose(weft_onnx_call *c, bool *out)
{
    const weft_onnx_ctx *cx = c->cx;
    weft_op_id op = c->row->op;
    bool any = false, settled = false, is_ew = op && (weft_op_get(op)->traits & WEFT_T_EW);
    uint32_t which = 0;
    *out = false;
    for (uint32_t i = 0; i < c->n_in; i++) {
        bool loose = weft_onnx__is_loose(cx, c->in[i]);
        which = loose && !any ? i : which;
        any = any || loose;
        settled = settled || (!loose && c->in[i].i && !weft_onnx__is_sequence(c->in[i]) &&
                              weft_onnx__type(c, c->in[i])->rank > 0);
    }
    bool is_condition = (op == WEFT_OP_IF && which == 0) || (op == WEFT_OP_LOOP && which < 2);
    bool is_carried = op == WEFT_OP_LOOP && which >= 2;
    if (!any || is_condition || is_carried || reduces_all(c) ||
        (op == WEFT_OP_RESHAPE && which == 0 && sets_shape(c)))
        return WEFT_ERR_OK;
    if (op == WEFT_OP_CAST_LIKE && which > 0) /* only its type is read */
        return WEFT_ERR_OK;
    *out = !settled || (op == WEFT_OP_CAST_LIKE && which == 0);
    is_ew = is_ew || op == WEFT_OP_CAST_LIKE;
    if (is_ew || op == WEFT_OP_IDENTITY)
        return WEFT_ERR_OK;
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           "operand %u has rank 0 in one branch or round and rank 1 in another: "
                           "reshape it in the model",
                           which);
}
