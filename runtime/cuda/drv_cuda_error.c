/* Errors of the CUDA driver and of cuBLASLt as a weft_err with a message. An error after which the
 * device is unusable is recorded as such. */
#include "runtime/cuda/drv_cuda_int.h"

#include <stdio.h>

/* Errors after which every call on the context fails. */
static bool is_sticky(weft_cu_result result)
{
    static const weft_cu_result table[] = {WEFT_CUDA_ERROR_DEINITIALIZED,
                                           WEFT_CUDA_ERROR_DEVICE_UNAVAILABLE,
                                           WEFT_CUDA_ERROR_ECC_UNCORRECTABLE,
                                           WEFT_CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                           WEFT_CUDA_ERROR_CONTAINED,
                                           WEFT_CUDA_ERROR_ILLEGAL_ADDRESS,
                                           WEFT_CUDA_ERROR_LAUNCH_TIMEOUT,
                                           WEFT_CUDA_ERROR_CONTEXT_IS_DESTROYED,
                                           WEFT_CUDA_ERROR_ASSERT,
                                           WEFT_CUDA_ERROR_HARDWARE_STACK_ERROR,
                                           WEFT_CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                           WEFT_CUDA_ERROR_MISALIGNED_ADDRESS,
                                           WEFT_CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                           WEFT_CUDA_ERROR_INVALID_PC,
                                           WEFT_CUDA_ERROR_LAUNCH_FAILED,
                                           WEFT_CUDA_ERROR_MPS_RPC_FAILURE,
                                           WEFT_CUDA_ERROR_MPS_CLIENT_TERMINATED,
                                           WEFT_CUDA_ERROR_UNKNOWN};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i] == result)
            return true;
    return false;
}

/* Errors for a device that is not available. */
static bool is_absent(weft_cu_result result)
{
    static const weft_cu_result table[] = {
        WEFT_CUDA_ERROR_NOT_INITIALIZED,         WEFT_CUDA_ERROR_NO_DEVICE,
        WEFT_CUDA_ERROR_INVALID_DEVICE,          WEFT_CUDA_ERROR_STUB_LIBRARY,
        WEFT_CUDA_ERROR_NOT_PERMITTED,           WEFT_CUDA_ERROR_NOT_SUPPORTED,
        WEFT_CUDA_ERROR_SYSTEM_NOT_READY,        WEFT_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        WEFT_CUDA_ERROR_MPS_CONNECTION_FAILED,   WEFT_CUDA_ERROR_MPS_SERVER_NOT_READY,
        WEFT_CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, WEFT_CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i] == result)
            return true;
    return false;
}

/* "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory" */
static weft_err describe(weft_cudev *g, weft_cu_result result, const char *call, char *text)
{
    const char *name = NULL, *what = NULL;
    if (g->cu->cuGetErrorName(result, &name) != WEFT_CUDA_SUCCESS || !name)
        name = "an error unknown to the driver";
    if (g->cu->cuGetErrorString(result, &what) != WEFT_CUDA_SUCCESS || !what)
        what = "";
    snprintf(text, WEFT_CUDEV_TEXT_MAX, "%s: %s (%u)%s%s", call, name, result, *what ? ": " : "",
             what);
    if (is_sticky(result)) {
        pthread_mutex_lock(&g->lost_lock);
        if (!g->is_lost)
            snprintf(g->lost, sizeof g->lost, "%s", text);
        g->is_lost = true;
        pthread_mutex_unlock(&g->lost_lock);
        return WEFT_ERR_NODEV;
    }
    if (result == WEFT_CUDA_ERROR_OUT_OF_MEMORY)
        return WEFT_ERR_NOMEM;
    return is_absent(result) ? WEFT_ERR_NODEV : WEFT_ERR_BUG;
}

weft_err weft_cudev__check(weft_cudev *g, weft_cu_result result, const char *call, weft_diag *diag)
{
    char text[WEFT_CUDEV_TEXT_MAX];
    if (result == WEFT_CUDA_SUCCESS)
        return WEFT_ERR_OK;
    weft_err err = describe(g, result, call, text);
    return weft_diag_error(diag, err, (weft_where){.file = g->name[0] ? g->name : "CUDA"}, "%s%s",
                           g->is_lost ? "the GPU is lost: " : "", text);
}

weft_err weft_cudev__check_blas(weft_cudev *g, weft_cublas_status status, const char *call,
                                weft_diag *diag)
{
    if (status == WEFT_CUBLAS_STATUS_SUCCESS)
        return WEFT_ERR_OK;
    /* cuBLASLt's errors do not show that the device is lost; a call of the driver does. */
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
                           text ? text : "an error unknown to cuBLASLt", status);
}
