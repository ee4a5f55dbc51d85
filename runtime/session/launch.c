/* Checks and attributes of one launch, shared by prepared launches (specialisation.c) and launches
 * of dynamic shape (dynamic_shape.c).
 *
 * Kernels do not check the dims that they are given, and a bundle with correct checksums may still
 * state wrong types. So before a launch is prepared, its concrete types must agree with shape
 * inference. */
#include "runtime/session/session_int.h"

#include <string.h>

/* A kernel returns INPUT for wrong values of its operands, mostly indices, which a check of types
 * cannot find. */
weft_err weft_launch__fail(weft_op_id op, weft_where where, weft_err err, weft_diag *diag)
{
    if (weft_op_get(op)->traits & WEFT_T_BODY)
        return err; /* said so itself */
    return weft_diag_error(diag, err, where, "%s: %s", weft_op_get(op)->name,
                           err == WEFT_ERR_INPUT ? "a value of an input is out of range"
                                                 : "the kernel failed");
}

weft_err weft_launch__bind_attrs(const weft_bundle_program *program,
                                 const weft_bundle_launch *launch, const int64_t *symbol,
                                 uint32_t n_symbol, weft_arena *arena, weft_diag *diag,
                                 weft_attrs *out)
{
    const weft_attr *bad =
        weft_attrs_bind(launch->attrs, program->dims, symbol, n_symbol, arena, out);
    if (!bad)
        return WEFT_ERR_OK;
    return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = launch->item},
                           "%s: %s has no value for these inputs", weft_op_get(launch->op)->name,
                           weft_attr_key_name((weft_attr_key)bad->key));
}

void weft_launch__to_operand(const weft_slot *slot, weft_operand *out)
{
    memset(out, 0, sizeof *out);
    out->present = slot->present;
    if (!slot->present)
        return;
    out->type.dtype = (uint8_t)slot->tensor.dtype;
    out->type.layout = slot->layout;
    out->type.rank = (uint8_t)slot->tensor.rank;
    for (int32_t d = 0; d < slot->tensor.rank; d++)
        out->type.dim[d] = slot->tensor.dim[d];
    out->data = slot->layout == WEFT_LAYOUT_PLAIN ? slot->tensor.data : NULL;
}

/* A dim that depends on data not known yet agrees with any dim. Layouts need no check: kernels take
 * operands and results in the layout that they have. */
static bool agrees(const weft_slot *slot, const weft_ttype *t)
{
    if (slot->tensor.dtype != (weft_dtype)t->dtype || slot->tensor.rank != t->rank)
        return false;
    for (uint32_t d = 0; d < t->rank; d++)
        if (weft_dim_is_const(t->dim[d]) && slot->tensor.dim[d] != t->dim[d])
            return false;
    return true;
}

weft_err weft_launch__check_types(const weft_prep *prep, weft_arena *scratch)
{
    weft_operand *in = weft_arena_array(scratch, prep->n_in, sizeof *in);
    weft_ttype *type = weft_arena_array(scratch, prep->n_out, sizeof *type);
    const weft_dim **content = weft_arena_array(scratch, prep->n_out, sizeof *content);
    for (uint32_t k = 0; k < prep->n_in; k++)
        weft_launch__to_operand(&prep->in[k], &in[k]);
    weft_infer_ctx cx = {.op = weft_op_get(prep->op),
                         .attrs = prep->attrs,
                         .pool = weft_dimpool_create(scratch),
                         .arena = scratch,
                         .in = in,
                         .n_in = prep->n_in,
                         .out = type,
                         .out_content = content,
                         .n_out = prep->n_out,
                         .diag = prep->diag,
                         .where = prep->where};
    WEFT_TRY(weft_op_infer(&cx));
    for (uint32_t k = 0; k < prep->n_out; k++)
        if (prep->out[k].present && !agrees(&prep->out[k], &type[k]))
            return weft_diag_error(prep->diag, WEFT_ERR_INPUT, prep->where,
                                   "%s: the type of result %u differs from the type in the bundle",
                                   cx.op->name, k);
    return WEFT_ERR_OK;
}
