/* GEMMs as in cuBLASLt, on the host; matrices are column-major. */
#ifndef WEFT_TESTS_DOUBLES_GEMM_DOUBLE_H
#define WEFT_TESTS_DOUBLES_GEMM_DOUBLE_H

#include "double.h"

enum { WEFT_GEMM_NONE, WEFT_GEMM_RELU, WEFT_GEMM_GELU };

/* d = act(alpha op(a) op(b) + beta c + bias), op(a) m x k, bias m; for each of `batch`. */
typedef struct weft_gemm {
    unsigned type;   /* cudaDataType of a and b */
    unsigned result; /* of c, d and bias: that of a, or CUDA_R_32I for CUDA_R_8I */
    int act;
    bool trans_a, trans_b;
    uint64_t m, n, k, batch;
    uint64_t ld[4], stride[4]; /* a, b, c, d; in elements */
    const void *a, *b, *c, *bias;
    void *d;
    float alpha, beta; /* of integers: 1 and 0 */
    double time_us;    /* simulated */
} weft_gemm;

/* Bytes of an element; 0: unknown type. */
size_t weft_gemm_bytes(unsigned type);
double weft_gemm_run(void *gemm); /* returns the simulated time */

#endif
