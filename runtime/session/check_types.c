/* Kernels trust the dims that they are given, and a bundle with right checksums may still lie about
 * them. So before a launch is prepared, inference at its concrete dims must agree with the types
 * that the program states. */
#include "runtime/session/session_int.h"

#include <string.h>

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

/* Dims that depend on data of operands not known yet agree with any; kernels take each operand and
 * result in the layout that it has. */
static bool agrees(const weft_slot *slot, const weft_ttype *t)
{
    if (slot->tensor.dtype != (weft_dtype)t->dtype || slot->tensor.rank != t->rank)
        return false;
    for (uint32_t d = 0; d < t->rank; d++)
        if (weft_dim_is_const(t->dim[d]) && slot->tensor.dim[d] != t->dim[d])
            return false;
    return true;
}

weft_err weft_specialisation__check_types(const weft_prep *prep, weft_arena *scratch)
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
                                   "%s: result %u does not have the type the program says",
                                   cx.op->name, k);
    return WEFT_ERR_OK;
}
