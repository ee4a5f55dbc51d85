/* Private to ops/: GEMMs, which matmul, convolutions and segmented GEMMs share. */
#ifndef WEFT_OPS_GEMM_INT_H
#define WEFT_OPS_GEMM_INT_H

#include "ops/ops.h"

/* c = a b. a[i, k] is a[i * a_m + k * a_k]; b is [k, n] without gaps; rows of c are ldc apart. */
void weft_gemm__f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_m, int64_t a_k,
                    const float *b, float *c, int64_t ldc);
void weft_gemm__f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_m, int64_t a_k,
                    const double *b, double *c, int64_t ldc);
void weft_gemm__u64(int64_t m, int64_t n, int64_t k, const uint64_t *a, int64_t a_m, int64_t a_k,
                    const uint64_t *b, uint64_t *c, int64_t ldc);

/* Shape of operand ia @ operand ib by NumPy's rules; trans: with the last two dims swapped. */
weft_err weft_gemm__infer(weft_infer_ctx *cx, uint32_t ia, uint32_t ib, bool trans_a, bool trans_b,
                          weft_ttype *out);
/* INPUT if the operand that is added would broadcast the result to a larger shape. */
weft_err weft_gemm__check_addend(weft_infer_ctx *cx, uint32_t in, const weft_ttype *out);
/* Operand 0 @ operand 1 + operand 2, if there is one, in f32. */
weft_err weft_gemm__eval_f32(weft_eval_ctx *cx, bool trans_b, const weft_tensor *out);

#endif
