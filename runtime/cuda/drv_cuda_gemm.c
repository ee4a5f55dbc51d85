/* GEMMs by cuBLASLt: descriptors and execution. drv_cuda_algo.c chooses the algorithm.
 *
 * cuBLASLt's matrices are column-major, ours are row-major: a row-major matrix is the transpose of
 * the column-major matrix with the same bytes. So cuBLASLt computes the transpose of the result,
 *
 *   d^T = act(alpha op(b)^T op(a)^T + beta c^T + bias)
 *
 * with our b as its A and our a as its B. The bias then has one element per row, as cuBLASLt
 * requires. A GEMM of i8 is then of the form "TN" (A transposed, B not), the only one that cuBLASLt
 * has for integers on tensor cores; its factors alpha and beta are integers. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Making --------------------------------------------------------------------------------- */

static unsigned data_type(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_DTYPE_F32:
        return WEFT_CUDA_R_32F;
    case WEFT_DTYPE_F16:
        return WEFT_CUDA_R_16F;
    case WEFT_DTYPE_I8:
        return WEFT_CUDA_R_8I;
    case WEFT_DTYPE_I32:
        return WEFT_CUDA_R_32I;
    default:
        return WEFT_CUDA_R_16BF;
    }
}

/* Layout of a row-major matrix of `rows` x `cols`. */
static weft_err make_layout(weft_cudev_gemm *p, weft_dtype dtype, int64_t rows, int64_t cols,
                            int64_t ld, int64_t stride, weft_diag *diag, weft_cublaslt_layout *out)
{
    int32_t batch = (int32_t)p->now->batch;
    WEFT_TRY(weft_cudev__check_blas(p->gpu,
                                    p->lt->cublasLtMatrixLayoutCreate(
                                        out, data_type(dtype), (uint64_t)cols, (uint64_t)rows, ld),
                                    "cublasLtMatrixLayoutCreate", diag));
    if (batch == 1)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_cudev__check_blas(
        p->gpu,
        p->lt->cublasLtMatrixLayoutSetAttribute(*out, WEFT_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                &batch, sizeof batch),
        "cublasLtMatrixLayoutSetAttribute", diag));
    return weft_cudev__check_blas(
        p->gpu,
        p->lt->cublasLtMatrixLayoutSetAttribute(
            *out, WEFT_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "cublasLtMatrixLayoutSetAttribute", diag);
}

static weft_err make_layouts(weft_cudev_gemm *p, weft_diag *diag)
{
    const weft_command_gemm *n = p->now;
    weft_dtype in = n->dtype, out = weft_gemm_result(in);
    WEFT_TRY(make_layout(p, in, n->trans_b ? n->n : n->k, n->trans_b ? n->k : n->n, n->ldb,
                         n->stride_b, diag, &p->a));
    WEFT_TRY(make_layout(p, in, n->trans_a ? n->k : n->m, n->trans_a ? n->m : n->k, n->lda,
                         n->stride_a, diag, &p->b));
    WEFT_TRY(make_layout(p, out, n->m, n->n, n->ldd, n->stride_d, diag, &p->d));
    if (n->c.at == WEFT_COMMAND_NO_REF)
        return WEFT_ERR_OK;
    return make_layout(p, out, n->m, n->n, n->ldc, n->stride_c, diag, &p->c);
}

static uint32_t epilogue_of(const weft_command_gemm *n)
{
    bool bias = n->bias.at != WEFT_COMMAND_NO_REF;
    if (n->act == WEFT_GEMM_ACT_RELU)
        return bias ? WEFT_CUBLASLT_EPILOGUE_RELU_BIAS : WEFT_CUBLASLT_EPILOGUE_RELU;
    if (n->act == WEFT_GEMM_ACT_GELU_TANH)
        return bias ? WEFT_CUBLASLT_EPILOGUE_GELU_BIAS : WEFT_CUBLASLT_EPILOGUE_GELU;
    return bias ? WEFT_CUBLASLT_EPILOGUE_BIAS : WEFT_CUBLASLT_EPILOGUE_DEFAULT;
}

static weft_err set_desc(weft_cudev_gemm *p, unsigned attribute, const void *value, size_t bytes,
                         weft_diag *diag)
{
    return weft_cudev__check_blas(
        p->gpu, p->lt->cublasLtMatmulDescSetAttribute(p->desc, attribute, value, bytes),
        "cublasLtMatmulDescSetAttribute", diag);
}

static weft_err make_desc(weft_cudev_gemm *p, weft_diag *diag)
{
    const weft_command_gemm *n = p->now;
    int32_t a = n->trans_b ? WEFT_CUBLAS_OP_T : WEFT_CUBLAS_OP_N;
    int32_t b = n->trans_a ? WEFT_CUBLAS_OP_T : WEFT_CUBLAS_OP_N;
    uint32_t epilogue = epilogue_of(n);
    bool tf32 = n->tf32 && n->dtype == WEFT_DTYPE_F32 && p->gpu->cc >= 80,
         whole = n->dtype == WEFT_DTYPE_I8;
    unsigned compute = whole  ? WEFT_CUBLAS_COMPUTE_32I
                       : tf32 ? WEFT_CUBLAS_COMPUTE_32F_FAST_TF32
                              : WEFT_CUBLAS_COMPUTE_32F;
    WEFT_TRY(
        weft_cudev__check_blas(p->gpu,
                               p->lt->cublasLtMatmulDescCreate(
                                   &p->desc, compute, whole ? WEFT_CUDA_R_32I : WEFT_CUDA_R_32F),
                               "cublasLtMatmulDescCreate", diag));
    WEFT_TRY(set_desc(p, WEFT_CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a, diag));
    WEFT_TRY(set_desc(p, WEFT_CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b, diag));
    WEFT_TRY(set_desc(p, WEFT_CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue, diag));
    if (!p->gpu->green)
        return WEFT_ERR_OK;
    int32_t sms = (int32_t)p->gpu->sms;
    return set_desc(p, WEFT_CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms, sizeof sms, diag);
}

weft_err weft_cudev__set_bias(weft_cudev_gemm *gemm, weft_cu_deviceptr at, weft_diag *diag)
{
    return set_desc(gemm, WEFT_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at, sizeof at, diag);
}

void weft_cudev__close_handles(weft_cudev_gemm *p)
{
    const weft_cublaslt_layout layout[] = {p->a, p->b, p->c, p->d};
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (layout[i])
            (void)p->lt->cublasLtMatrixLayoutDestroy(layout[i]);
    if (p->desc)
        (void)p->lt->cublasLtMatmulDescDestroy(p->desc);
    p->a = p->b = p->c = p->d = NULL;
    p->desc = NULL;
}

weft_err weft_cudev__open_handles(weft_cudev_gemm *p, weft_diag *diag)
{
    WEFT_TRY(make_desc(p, diag));
    return make_layouts(p, diag);
}

void weft_cudev__free_gemm(weft_cudev_gemm *gemm)
{
    if (!gemm)
        return;
    weft_cudev__close_handles(gemm);
    free(gemm);
}

/* -- Running -------------------------------------------------------------------------------- */

weft_err weft_cudev__multiply(weft_cudev_gemm *gemm, const weft_cudev_operands *at,
                              weft_cu_stream stream, weft_diag *diag)
{
    weft_cudev_gemm *p = gemm;
    const weft_command_gemm *n = p->now;
    static const int32_t one = 1, zero = 0;
    bool has_c = n->c.at != WEFT_COMMAND_NO_REF, whole = n->dtype == WEFT_DTYPE_I8;
    if (n->bias.at != WEFT_COMMAND_NO_REF)
        WEFT_TRY(weft_cudev__set_bias(p, at->bias, diag));
    void *d = (void *)(uintptr_t)at->d;
    const void *a = (const void *)(uintptr_t)at->a, *b = (const void *)(uintptr_t)at->b;
    return weft_cudev__check_blas(
        p->gpu,
        p->lt->cublasLtMatmul(
            p->gpu->lt_handle, p->desc, whole ? (const void *)&one : &n->alpha, b, p->a, a, p->b,
            whole ? (const void *)&zero : &n->beta, has_c ? (const void *)(uintptr_t)at->c : d,
            has_c ? p->c : p->d, d, p->d, &p->algo,
            p->workspace ? (void *)(uintptr_t)at->workspace : NULL, p->workspace, stream),
        "cublasLtMatmul", diag);
}

static weft_cu_deviceptr address_of(void *const *arg, weft_command_ref ref)
{
    return ref.at == WEFT_COMMAND_NO_REF ? 0 : weft_cudev__address(arg, ref);
}

weft_err weft_cudev__run_gemm(weft_cudev_gemm *gemm, void *const *arg, weft_cu_deviceptr workspace,
                              weft_cu_stream stream, weft_diag *diag)
{
    const weft_command_gemm *n = gemm->now;
    const weft_cudev_operands at = {.a = address_of(arg, n->a),
                                    .b = address_of(arg, n->b),
                                    .c = address_of(arg, n->c),
                                    .d = address_of(arg, n->d),
                                    .bias = address_of(arg, n->bias),
                                    .workspace = workspace};
    return weft_cudev__multiply(gemm, &at, stream, diag);
}

weft_err weft_cudev__warm_gemm(weft_cudev_gemm *gemm, void *const *arg, weft_cu_deviceptr workspace,
                               weft_cu_stream stream, weft_diag *diag)
{
    if (gemm->warm)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_cudev__run_gemm(gemm, arg, workspace, stream, diag));
    gemm->warm = true;
    return WEFT_ERR_OK;
}
