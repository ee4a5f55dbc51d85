/* The CUDA driver's products, by cuBLASLt.
 *
 * Its matrices are column-major, ours row-major: a row-major matrix is the transpose of the
 * column-major one with the same bytes. So it is asked for the transpose of the result,
 *
 *   d^T = act(alpha op(b)^T op(a)^T + beta c^T + bias)
 *
 * with our b as its A and our a as its B; the bias is then one of its rows, as it wants it. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- The library ---------------------------------------------------------------------------- */

weft_err weft_cudev__check_blas(weft_cudev *g, weft_cublas_status status, const char *call,
                                weft_diag *diag)
{
    if (status == WEFT_CUBLAS_STATUS_SUCCESS)
        return WEFT_ERR_OK;
    /* Its errors do not tell that the device is lost: the driver does. */
    if (status == WEFT_CUBLAS_STATUS_EXECUTION_FAILED ||
        status == WEFT_CUBLAS_STATUS_INTERNAL_ERROR)
        WEFT_TRY(
            weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load), "cuStreamSynchronize", diag));
    const char *text = g->lt->api.cublasLtGetStatusString(status);
    weft_err err = status == WEFT_CUBLAS_STATUS_ALLOC_FAILED       ? WEFT_ERR_NOMEM
                   : status == WEFT_CUBLAS_STATUS_NOT_SUPPORTED    ? WEFT_ERR_UNSUP
                   : status == WEFT_CUBLAS_STATUS_NOT_INITIALIZED  ? WEFT_ERR_NODEV
                   : status == WEFT_CUBLAS_STATUS_ARCH_MISMATCH    ? WEFT_ERR_NODEV
                   : status == WEFT_CUBLAS_STATUS_EXECUTION_FAILED ? WEFT_ERR_NODEV
                                                                   : WEFT_ERR_BUG;
    return weft_diag_error(diag, err, (weft_where){.file = g->name}, "%s: %s (%u)", call,
                           text ? text : "an error that cuBLASLt has no name for", status);
}

static weft_err open_library(weft_cudev *g, const weft_bundle *bundle, weft_diag *diag)
{
    weft_err err = WEFT_ERR_OK;
    pthread_mutex_lock(&g->lock);
    if (!g->lt_handle) {
        err = weft_libcublaslt__get(diag, &g->lt);
        if (err == WEFT_ERR_OK)
            err = weft_cudev__check_blas(g, g->lt->api.cublasLtCreate(&g->lt_handle),
                                         "cublasLtCreate", diag);
        if (err == WEFT_ERR_OK)
            weft_cudev__find_tuning(g, bundle);
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

void weft_cudev__close_gemms(weft_cudev *g)
{
    if (g->lt_handle)
        (void)g->lt->api.cublasLtDestroy(g->lt_handle);
    g->lt_handle = NULL;
}

/* -- Making --------------------------------------------------------------------------------- */

static unsigned data_type(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_F32   ? WEFT_CUDA_R_32F
           : dtype == WEFT_DTYPE_F16 ? WEFT_CUDA_R_16F
                                     : WEFT_CUDA_R_16BF;
}

/* A row-major matrix of `rows` x `cols`. */
static weft_err make_layout(weft_cudev_gemm *p, int64_t rows, int64_t cols, int64_t ld,
                            int64_t stride, weft_diag *diag, weft_cublaslt_layout *out)
{
    int32_t batch = (int32_t)p->now->batch;
    WEFT_TRY(weft_cudev__check_blas(p->gpu,
                                    p->lt->cublasLtMatrixLayoutCreate(out, data_type(p->now->dtype),
                                                                      (uint64_t)cols,
                                                                      (uint64_t)rows, ld),
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
    WEFT_TRY(make_layout(p, n->trans_b ? n->n : n->k, n->trans_b ? n->k : n->n, n->ldb, n->stride_b,
                         diag, &p->a));
    WEFT_TRY(make_layout(p, n->trans_a ? n->k : n->m, n->trans_a ? n->m : n->k, n->lda, n->stride_a,
                         diag, &p->b));
    WEFT_TRY(make_layout(p, n->m, n->n, n->ldd, n->stride_d, diag, &p->d));
    if (n->c.at == WEFT_COMMAND_NO_REF)
        return WEFT_ERR_OK;
    return make_layout(p, n->m, n->n, n->ldc, n->stride_c, diag, &p->c);
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
    bool tf32 = n->tf32 && n->dtype == WEFT_DTYPE_F32;
    WEFT_TRY(weft_cudev__check_blas(
        p->gpu,
        p->lt->cublasLtMatmulDescCreate(
            &p->desc, tf32 ? WEFT_CUBLAS_COMPUTE_32F_FAST_TF32 : WEFT_CUBLAS_COMPUTE_32F,
            WEFT_CUDA_R_32F),
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

static void free_handles(weft_cudev_gemm *p)
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

static weft_err make_handles(weft_cudev_gemm *p, weft_diag *diag)
{
    WEFT_TRY(make_desc(p, diag));
    return make_layouts(p, diag);
}

/* "f16 with bias and gelu" */
static const char *epilogue_text(const weft_command_gemm *n, char text[32])
{
    static const char *const act[WEFT_GEMM_ACTS] = {"", "relu", "gelu"};
    bool bias = n->bias.at != WEFT_COMMAND_NO_REF;
    snprintf(text, 32, "%s%s%s%s", bias || n->act ? " with " : "", bias ? "bias" : "",
             bias && n->act ? " and " : "", act[n->act]);
    return text;
}

static weft_err refuse(const weft_cudev_gemm *p, const weft_prep *prep)
{
    const weft_command_gemm *n = p->now;
    char text[32];
    return weft_diag_error(prep->diag, WEFT_ERR_UNSUP, prep->where,
                           "%s: cuBLASLt %zu has no algorithm for a product of %lld x %lld x "
                           "%lld in %s%s",
                           weft_op_get(prep->op)->name, p->gpu->lt->version, (long long)n->m,
                           (long long)n->n, (long long)n->k, weft_dtype_name(n->dtype),
                           epilogue_text(n, text));
}

/* The product by itself: something else does the rest. */
static void strip(weft_command_gemm *n)
{
    n->c.at = n->bias.at = WEFT_COMMAND_NO_REF;
    n->beta = 0;
    n->act = WEFT_GEMM_ACT_NONE;
}

static weft_err choose(weft_cudev_gemm *p, const weft_prep *prep, const weft_command_list *commands,
                       uint32_t command, bool *bare)
{
    bool found = false, may_strip = *bare;
    *bare = false;
    WEFT_TRY(make_handles(p, prep->diag));
    WEFT_TRY(weft_cudev__choose_algo(p, prep, commands, &found));
    if (!found && may_strip) {
        free_handles(p);
        strip(commands->at[command].gemm);
        *bare = true;
        WEFT_TRY(make_handles(p, prep->diag));
        WEFT_TRY(weft_cudev__choose_algo(p, prep, commands, &found));
    }
    return found ? WEFT_ERR_OK : refuse(p, prep);
}

weft_err weft_cudev__make_gemm(weft_cudev *g, const weft_prep *p, const weft_command_list *commands,
                               uint32_t command, bool *bare, weft_cudev_gemm **out,
                               uint64_t *workspace)
{
    WEFT_TRY(open_library(g, p->engine->bundle, p->diag));
    weft_cudev_gemm *to = calloc(1, sizeof *to);
    if (!to)
        return WEFT_ERR_NOMEM;
    to->gpu = g;
    to->lt = &g->lt->api;
    to->now = commands->at[command].gemm;
    weft_err err = choose(to, p, commands, command, bare);
    if (err != WEFT_ERR_OK) {
        weft_cudev__free_gemm(to);
        return err;
    }
    *out = to;
    *workspace = to->workspace;
    return WEFT_ERR_OK;
}

void weft_cudev__free_gemm(weft_cudev_gemm *gemm)
{
    if (!gemm)
        return;
    free_handles(gemm);
    free(gemm);
}

/* -- Running -------------------------------------------------------------------------------- */

weft_err weft_cudev__multiply(weft_cudev_gemm *gemm, const weft_cudev_operands *at,
                              weft_cu_stream stream, weft_diag *diag)
{
    weft_cudev_gemm *p = gemm;
    const weft_command_gemm *n = p->now;
    bool has_c = n->c.at != WEFT_COMMAND_NO_REF;
    if (n->bias.at != WEFT_COMMAND_NO_REF)
        WEFT_TRY(weft_cudev__set_bias(p, at->bias, diag));
    void *d = (void *)(uintptr_t)at->d;
    const void *a = (const void *)(uintptr_t)at->a, *b = (const void *)(uintptr_t)at->b;
    return weft_cudev__check_blas(
        p->gpu,
        p->lt->cublasLtMatmul(
            p->gpu->lt_handle, p->desc, &n->alpha, b, p->a, a, p->b, &n->beta,
            has_c ? (const void *)(uintptr_t)at->c : d, has_c ? p->c : p->d, d, p->d, &p->algo,
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
