/* Private helpers of the operators that move elements: parameters of inference, contents of
 * shape arithmetic, and the strided copy that most of their eval functions are made of. */
#ifndef WEFT_OPS_DATA_INT_H
#define WEFT_OPS_DATA_INT_H

#include "ops/op_int.h"

/* -- Inference ------------------------------------------------------------------------------ */

typedef enum weft_given { WEFT_GIVEN_NOT, WEFT_GIVEN_KNOWN, WEFT_GIVEN_LATER } weft_given;

/* A parameter: NOT given, KNOWN, or given but known only at run time (LATER). */
weft_given weft_param__dims(weft_infer_ctx *cx, uint32_t in, weft_attr_key key,
                            const weft_dim **out, uint32_t *out_n);
/* As above; KNOWN only when all values are constant. */
weft_given weft_param__ints(weft_infer_ctx *cx, uint32_t in, weft_attr_key key, const int64_t **out,
                            uint32_t *out_n);
/* Floating-point parameter: attribute (FLOATS, FLOAT) or the operand's data. */
weft_given weft_param__floats(weft_infer_ctx *cx, uint32_t in, weft_attr_key key,
                              const double **out, uint32_t *out_n);

/* Contents of all results, if they are small and all operands are known: runs the operator's eval
 * on handles of dims instead of numbers. Only for operators that copy elements. Bit i of `moved` is
 * set if operand i is copied; the other operands must be constant. */
void weft_infer__move_content(weft_infer_ctx *cx, uint32_t moved);

/* All dims of *out become fresh symbols. */
void weft_infer__fresh(weft_infer_ctx *cx, weft_ttype *out);
/* Two dims that must be equal: *out is the constant one, else one that does not depend on data.
 * INPUT if they cannot be equal. */
weft_err weft_infer__unify(weft_infer_ctx *cx, weft_dim a, weft_dim b, const char *what,
                           weft_dim *out);
/* A set of axes: bit a of the mask is set for axis a. INPUT: out of range, or named twice. */
weft_err weft_infer__axes(weft_infer_ctx *cx, const int64_t *axes, uint32_t n, uint32_t rank,
                          uint32_t *out_mask);
/* max(d, 0); d itself if its bounds exclude negative values. */
weft_dim weft_infer__not_negative(weft_dimpool *pool, weft_dim d);
/* Rounded-up quotient. */
weft_dim weft_infer__ceil_div(weft_dimpool *pool, weft_dim a, weft_dim b);

/* -- Evaluation ----------------------------------------------------------------------------- */

/* INPUT unless the result has exactly these dims, by which eval functions write. */
weft_err weft_eval__check_dims(weft_eval_ctx *cx, uint32_t out, const int64_t *dim, int32_t rank);

enum { WEFT_WALK_MAX = 2 * WEFT_RANK_MAX };

/* A copy of prod(dim) elements; strides in elements, may be 0 (src) or negative. */
typedef struct weft_walk {
    int32_t rank;
    int64_t dim[WEFT_WALK_MAX], dst[WEFT_WALK_MAX], src[WEFT_WALK_MAX];
} weft_walk;

void weft_walk__push(weft_walk *w, int64_t dim, int64_t dst, int64_t src);
void weft_walk__copy(const weft_walk *w, void *dst, const void *src, size_t elem);
/* dst[0..n) = the element at `one`. */
void weft_data__fill(void *dst, int64_t n, const void *one, size_t elem);

static inline char *weft_data__at(const weft_tensor *t, int64_t i)
{
    return (char *)t->data + i * (int64_t)weft_dtype_size(t->dtype);
}

#endif
