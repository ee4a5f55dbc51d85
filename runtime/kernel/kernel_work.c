/* Work of a launch at concrete sizes. */
#include "runtime/kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

static void to_operands(const weft_slot *slot, uint32_t n, weft_work_operand *out)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i].present = slot[i].present;
        out[i].is_weight = slot[i].weight != 0;
        out[i].dtype = (uint8_t)slot[i].tensor.dtype;
        out[i].rank = (uint8_t)slot[i].tensor.rank;
        memcpy(out[i].dim, slot[i].tensor.dim, sizeof out[i].dim);
    }
}

weft_err weft_prep__work(const weft_prep *p, weft_work *out)
{
    weft_work_operand *operand = calloc(p->n_in + p->n_out + 1, sizeof *operand);
    if (!operand)
        return WEFT_ERR_NOMEM;
    to_operands(p->in, p->n_in, operand);
    to_operands(p->out, p->n_out, operand + p->n_in);
    const weft_work_ctx cx = {.op = weft_op_get(p->op),
                              .attrs = p->attrs,
                              .in = operand,
                              .out = operand + p->n_in,
                              .n_in = p->n_in,
                              .n_out = p->n_out};
    *out = weft_op_work(&cx);
    free(operand);
    return WEFT_ERR_OK;
}
