/* Small tools for recognising sub-graphs by walking from a result towards its operands. */
#ifndef WEFT_PASSES_MATCH_H
#define WEFT_PASSES_MATCH_H

#include "passes/passes_int.h"

/* The node of operator `op` that made `v`; none otherwise. */
weft_node weft_match__maker(const weft_module *m, weft_val v, weft_op_id op);
/* `v` was made by a binary `op` with a scalar constant on one side: the other side. With
 * `commutes` the constant may be on the left. */
bool weft_match__with_scalar(const weft_module *m, weft_val v, weft_op_id op, bool commutes,
                             weft_val *out_x, double *out_c);
/* `v` was made by commutative `op` and one operand is `x`: the other operand. */
bool weft_match__with_value(const weft_module *m, weft_val v, weft_op_id op, weft_val x,
                            weft_val *out_other);
/* |a - b| <= 1e-6 * |b|, wide enough for constants stored in f32. */
bool weft_match__near(double a, double b);
bool weft_match__is_f32(const weft_module *m, weft_val v);

#endif
