/* Private to ops/: a GEMM by one weight for the rows of several models, with a correction for each
 * model's segment of the rows. */
#ifndef WEFT_OPS_SEGMENTS_INT_H
#define WEFT_OPS_SEGMENTS_INT_H

#include "ops/ops.h"

/* Checks a segment's operands, from number `in` on, against the type of the result. */
typedef weft_err (*weft_segment_check)(weft_infer_ctx *cx, uint32_t in, const weft_ttype *out);
/* y [rows, n] += x [rows, k] times the correction of a segment, operands from number `in` on. */
typedef weft_err (*weft_segment_add)(weft_eval_ctx *cx, uint32_t in, const float *x, int64_t rows,
                                     float *y);

/* Inference and evaluation where each segment has `width` operands. */
weft_err weft_segments__infer(weft_infer_ctx *cx, uint32_t width, weft_segment_check check);
weft_err weft_segments__eval(weft_eval_ctx *cx, uint32_t width, weft_segment_add add);

uint32_t weft_segments__count(weft_attrs attrs);
/* Fraction of the rows in segment i; if `starts` is not constant, all segments count as equal. */
double weft_segments__share(const weft_work_ctx *cx, uint32_t i);

#endif
