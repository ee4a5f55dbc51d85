/* Matching helpers; see match.h. */
#include "passes/match.h"

#include <math.h>

weft_node weft_match__maker(const weft_module *m, weft_val v, weft_op_id op)
{
    weft_node n = v.i ? weft_val_node(m, v) : (weft_node){0};
    return n.i && weft_node_op(m, n) == op ? n : (weft_node){0};
}

bool weft_match__with_scalar(const weft_module *m, weft_val v, weft_op_id op, bool commutes,
                             weft_val *out_x, double *out_c)
{
    weft_node n = weft_match__maker(m, v, op);
    if (!n.i)
        return false;
    if (weft_rewrite__scalar(m, weft_node_in(m, n, 1), out_c)) {
        *out_x = weft_node_in(m, n, 0);
        return true;
    }
    if (commutes && weft_rewrite__scalar(m, weft_node_in(m, n, 0), out_c)) {
        *out_x = weft_node_in(m, n, 1);
        return true;
    }
    return false;
}

bool weft_match__with_value(const weft_module *m, weft_val v, weft_op_id op, weft_val x,
                            weft_val *out_other)
{
    weft_node n = weft_match__maker(m, v, op);
    if (!n.i)
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (weft_node_in(m, n, i).i == x.i) {
            *out_other = weft_node_in(m, n, 1 - i);
            return true;
        }
    return false;
}

bool weft_match__near(double a, double b)
{
    return fabs(a - b) <= 1e-6 * fabs(b);
}

bool weft_match__is_f32(const weft_module *m, weft_val v)
{
    return weft_val_ttype(m, v)->dtype == WEFT_DTYPE_F32;
}
