/* Helpers for matching sub-graphs from a result towards its operands. */
#ifndef WEFT_PASSES_MATCH_H
#define WEFT_PASSES_MATCH_H

#include "passes/passes_int.h"

/* The node that defines `v`, if its operator is `op`; none otherwise. */
weft_node weft_match__maker(const weft_module *m, weft_val v, weft_op_id op);
/* Matches v = op(x, c) with a constant c of one element; also op(c, x) if `commutes`. */
bool weft_match__with_scalar(const weft_module *m, weft_val v, weft_op_id op, bool commutes,
                             weft_val *out_x, double *out_c);
/* Matches v = op(x, other) or op(other, x). */
bool weft_match__with_value(const weft_module *m, weft_val v, weft_op_id op, weft_val x,
                            weft_val *out_other);
/* |a - b| <= 1e-6 * |b|, wide enough for constants stored in f32. */
bool weft_match__near(double a, double b);
bool weft_match__is_f32(const weft_module *m, weft_val v);

#endif
