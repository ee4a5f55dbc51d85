/* Appends nodes for the hooks. Types are inferred at once, so that later hooks know ranks, dims and
 * contents. */
#include "frontend/onnx_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

weft_err weft_onnx__fail(const weft_onnx_call *c, weft_err err, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return weft_diag_error(c->cx->diag, err, c->where, "%s: %s", c->op_type, text);
}

const weft_ttype *weft_onnx__type(const weft_onnx_call *c, weft_val v)
{
    return weft_val_ttype(c->cx->m, v);
}

static weft_err check_counts(const weft_onnx_call *c, const weft_op *op, uint32_t n_in,
                             uint32_t n_out)
{
    if (n_in < op->in_min || (op->in_max != WEFT_VARIADIC && n_in > op->in_max))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected %u to %u", n_in, op->in_min,
                               op->in_max);
    if (op->out_max != WEFT_VARIADIC && n_out > op->out_max)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%u outputs, %u are supported", n_out,
                               op->out_max);
    return WEFT_ERR_OK;
}

weft_err weft_onnx__emit(weft_onnx_call *c, weft_op_id op_id, const weft_val *in, uint32_t n_in,
                         const weft_attr *attr, uint32_t n_attr, weft_val *out, uint32_t n_out)
{
    weft_onnx_ctx *cx = c->cx;
    const weft_op *op = weft_op_get(op_id);
    while (n_in > 0 && !in[n_in - 1].i)
        n_in--;
    WEFT_TRY(check_counts(c, op, n_in, n_out));
    for (uint32_t i = 0; i < op->in_min; i++)
        if (!in[i].i)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing", i);
    uint32_t n = n_out > op->out_min ? n_out : op->out_min;
    weft_type *untyped = weft_arena_array(cx->arena, n, sizeof *untyped);
    for (uint32_t i = 0; i < n; i++)
        untyped[i] = weft_type_make(cx->m, WEFT_DTYPE_NONE, NULL, 0);
    weft_node_spec spec = {.op = op_id,
                           .in = in,
                           .n_in = n_in,
                           .out = untyped,
                           .n_out = n,
                           .attr = attr,
                           .n_attr = n_attr,
                           .loc = c->loc};
    weft_node node = weft_node_append(cx->g, &spec);
    weft_ttype *type = weft_arena_array(cx->arena, n, sizeof *type);
    weft_err err = weft_node_infer_new(cx->g, node, cx->contents, c->op_type, cx->diag, type, n);
    if (err != WEFT_ERR_OK) {
        weft_node_remove(cx->g, node);
        return err;
    }
    for (uint32_t i = 0; i < n; i++) {
        weft_val v = weft_node_out(cx->m, node, i);
        weft_val_set_type(cx->m, v, weft_type_intern(cx->m, &type[i]));
        if (i < n_out)
            out[i] = v;
    }
    return WEFT_ERR_OK;
}

weft_err weft_onnx__finish(weft_onnx_call *c)
{
    return weft_onnx__emit(c, c->row->op, c->in, c->n_in, c->attr, c->n_attr, c->out, c->n_out);
}

weft_err weft_onnx__emit_dims(weft_onnx_call *c, weft_op_id op, weft_val in, weft_attr_key key,
                              const weft_dim *dim, uint32_t n, weft_val *out)
{
    weft_attr attr[2] = {
        WEFT_ATTR_OF_INT(ALLOWZERO, 1),
        {.key = (uint16_t)key, .kind = WEFT_KIND_DIMS, .n = n, .u = {.dims = dim}}};
    bool zero = false; /* not "as in the operand" */
    for (uint32_t i = 0; i < n; i++)
        zero = zero || (op == WEFT_OP_RESHAPE && dim[i] == 0);
    return weft_onnx__emit(c, op, &in, 1, zero ? attr : attr + 1, zero ? 2 : 1, out, 1);
}

weft_val weft_onnx__const(weft_onnx_call *c, weft_dtype dtype, const int64_t *dim, int32_t rank,
                          const void *elements)
{
    weft_onnx_ctx *cx = c->cx;
    size_t bytes = (size_t)weft_numel(dim, rank) * weft_dtype_size(dtype);
    void *data = weft_arena_alloc(weft_module_arena(cx->m), bytes);
    if (bytes)
        memcpy(data, elements, bytes);
    weft_weight_info info = {.type = weft_type_make(cx->m, dtype, dim, (uint32_t)rank),
                             .name = c->loc.item,
                             .data = data,
                             .bytes = bytes};
    return weft_weight_val(cx->m, weft_weight_add(cx->m, &info));
}
