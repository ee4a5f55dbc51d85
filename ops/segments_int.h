/* Private to ops/: a GEMM by one weight for the rows of several models, with a correction for each
 * model's rows. */
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

/* Rows [from, to) of x w + bias, [rows, n] in f32. */
typedef struct weft_segment_rows {
    const weft_tensor *acc;
    int64_t from, to;
} weft_segment_rows;
/* Adds the correction of a segment to some rows; those that are not tame are computed anew.
 * Operands 0 and 1 are x [rows, k] and w, operand 2 is the bias. */
weft_err weft_segments__add(weft_eval_ctx *cx, weft_segment_add add, uint32_t in,
                            const weft_segment_rows *rows);

uint32_t weft_segments__count(weft_attrs attrs);
/* Fraction of the rows in segment i; if `starts` is not constant, all segments count as equal. */
double weft_segments__share(const weft_work_ctx *cx, uint32_t i);

#endif
