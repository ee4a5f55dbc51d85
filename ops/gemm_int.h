/* Private to ops/: the matrix product that matmul, gemm and convolution share. */
#ifndef WEFT_OPS_GEMM_INT_H
#define WEFT_OPS_GEMM_INT_H

#include <stdint.h>

/* c = a b. a[i, k] is a[i * a_m + k * a_k]; b is [k, n] without gaps; rows of c are ldc apart. */
void weft_gemm__f32(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_m, int64_t a_k,
                    const float *b, float *c, int64_t ldc);
void weft_gemm__f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t a_m, int64_t a_k,
                    const double *b, double *c, int64_t ldc);
void weft_gemm__u64(int64_t m, int64_t n, int64_t k, const uint64_t *a, int64_t a_m, int64_t a_k,
                    const uint64_t *b, uint64_t *c, int64_t ldc);

#endif
