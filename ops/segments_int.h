/* Private to ops/: products by one weight for the rows of several models, with something of each
 * model's own on top of its segment of the rows. */
#ifndef WEFT_OPS_SEGMENTS_INT_H
#define WEFT_OPS_SEGMENTS_INT_H

#include "ops/ops.h"

/* Operands from `in` on of a segment against the type of the result. */
typedef weft_err (*weft_segment_check)(weft_infer_ctx *cx, uint32_t in, const weft_ttype *out);
/* Adds what a segment has more to rows [from, to) of *y, f32. */
typedef weft_err (*weft_segment_add)(weft_eval_ctx *cx, const weft_tensor *y, uint32_t in,
                                     int64_t from, int64_t to);

/* Inference and evaluation where each segment has `width` operands. */
weft_err weft_segments__infer(weft_infer_ctx *cx, uint32_t width, weft_segment_check check);
weft_err weft_segments__eval(weft_eval_ctx *cx, uint32_t width, weft_segment_add add);

uint32_t weft_segments__count(weft_attrs attrs);
/* Part of the rows that are segment i's; where the first rows are not known, all have as many. */
double weft_segments__share(const weft_work_ctx *cx, uint32_t i);

#endif
