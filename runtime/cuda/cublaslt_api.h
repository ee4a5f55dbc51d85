/* The part of cuBLASLt (libcublasLt.so.13 or .12) that Weft uses, declared here like the driver API
 * in cuda_api.h. unit/cuda_api compares the declarations with cublasLt.h. */
#ifndef WEFT_RUNTIME_CUDA_CUBLASLT_API_H
#define WEFT_RUNTIME_CUDA_CUBLASLT_API_H

#include "runtime/cuda/cuda_api.h"

typedef unsigned weft_cublas_status; /* cublasStatus_t */

/* X(name, value) */
#define WEFT_CUBLASLT_VALUES(X)                       \
    X(CUBLAS_STATUS_SUCCESS, 0)                       \
    X(CUBLAS_STATUS_NOT_INITIALIZED, 1)               \
    X(CUBLAS_STATUS_ALLOC_FAILED, 3)                  \
    X(CUBLAS_STATUS_INVALID_VALUE, 7)                 \
    X(CUBLAS_STATUS_ARCH_MISMATCH, 8)                 \
    X(CUBLAS_STATUS_EXECUTION_FAILED, 13)             \
    X(CUBLAS_STATUS_INTERNAL_ERROR, 14)               \
    X(CUBLAS_STATUS_NOT_SUPPORTED, 15)                \
    X(CUBLAS_OP_N, 0)                                 \
    X(CUBLAS_OP_T, 1)                                 \
    X(CUBLAS_COMPUTE_32F, 68)                         \
    X(CUBLAS_COMPUTE_32I, 72)                         \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)               \
    X(CUDA_R_32F, 0)                                  \
    X(CUDA_R_16F, 2)                                  \
    X(CUDA_R_8I, 3)                                   \
    X(CUDA_R_32I, 10)                                 \
    X(CUDA_R_16BF, 14)                                \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)          \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                 \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                 \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)               \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)           \
    X(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 15)       \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)    \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)  \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)  \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)  \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)  \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                   \
    X(CUBLASLT_EPILOGUE_RELU, 2)                      \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                      \
    X(CUBLASLT_EPILOGUE_RELU_BIAS, 6)                 \
    X(CUBLASLT_EPILOGUE_GELU, 32)                     \
    X(CUBLASLT_EPILOGUE_GELU_BIAS, 36)

enum {
#define X(name, value) WEFT_##name = (value),
    WEFT_CUBLASLT_VALUES(X)
#undef X
};

typedef struct cublasLtContext *weft_cublaslt_handle;
/* Opaque objects, created and destroyed by the library. */
typedef struct weft_cublaslt_layout_opaque *weft_cublaslt_layout; /* cublasLtMatrixLayout_t */
typedef struct weft_cublaslt_desc_opaque *weft_cublaslt_desc;     /* cublasLtMatmulDesc_t */
typedef struct weft_cublaslt_pref_opaque *weft_cublaslt_pref;     /* cublasLtMatmulPreference_t */

/* Opaque; valid for one version of the library and one kind of device. */
typedef struct weft_cublaslt_algo {
    uint64_t data[8];
} weft_cublaslt_algo;

typedef struct weft_cublaslt_heuristic {
    weft_cublaslt_algo algo;
    size_t workspaceSize;
    weft_cublas_status state;
    float wavesCount;
    int reserved[4];
} weft_cublaslt_heuristic;

/* Pointers to all functions, under their names in cublasLt.h. */
typedef struct weft_cublaslt_api {
#define CUBLASLT_SYM(result, name, args) result(*name) args;
#include "runtime/cuda/cublaslt_syms.def"
#undef CUBLASLT_SYM
} weft_cublaslt_api;

#endif
