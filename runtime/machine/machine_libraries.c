/* NVIDIA's libraries that running a bundle needs, as they are found on this machine. */
#include "runtime/cuda/cuda_load.h"
#include "runtime/machine/machine_int.h"

#include <stdio.h>

/* Keeps the first message as the reason. */
static void take_reason(weft_diag *diag, weft_machine_library *out)
{
    weft_diag_format(weft_diag_at(diag, 0), out->why_not, sizeof out->why_not);
    weft_diag_clear(diag);
}

/* The devices that CUDA shows to this process. */
static void count_devices(const weft_libcuda *lib, weft_machine_libraries *out)
{
    const char *name = NULL, *text = NULL;
    int n = 0;
    weft_cu_result result = lib->api.cuInit(0);
    if (result == WEFT_CUDA_SUCCESS)
        result = lib->api.cuDeviceGetCount(&n);
    if (result == WEFT_CUDA_SUCCESS) {
        out->n_device = (uint32_t)n;
        return;
    }
    if (lib->api.cuGetErrorName(result, &name) != WEFT_CUDA_SUCCESS || !name)
        name = "an error unknown to the driver";
    if (lib->api.cuGetErrorString(result, &text) != WEFT_CUDA_SUCCESS || !text)
        text = "";
    snprintf(out->why_no_device, sizeof out->why_no_device, "cuInit: %s (%u)%s%s", name, result,
             *text ? ": " : "", text);
}

weft_err weft_machine_find_libraries(weft_machine_libraries *out)
{
    const weft_libcuda *cuda;
    const weft_libcublaslt *cublaslt;
    const weft_libcudnn *cudnn;
    weft_diag *diag = weft_diag_create();
    *out = (weft_machine_libraries){0};
    if (!diag)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_libcuda__get(diag, &cuda);
    if (err == WEFT_ERR_OK) {
        snprintf(out->cuda.version, sizeof out->cuda.version, "%d.%d", cuda->version / 1000,
                 cuda->version % 1000 / 10);
        out->green = cuda->green;
        out->graphs = cuda->graphs;
        count_devices(cuda, out);
    } else if (err == WEFT_ERR_NODEV) {
        take_reason(diag, &out->cuda);
        err = WEFT_ERR_OK;
    }
    if (err == WEFT_ERR_OK)
        err = weft_libcublaslt__get(diag, &cublaslt);
    if (err == WEFT_ERR_OK && cublaslt) {
        snprintf(out->cublaslt.version, sizeof out->cublaslt.version, "%zu", cublaslt->version);
    } else if (err == WEFT_ERR_NODEV) {
        take_reason(diag, &out->cublaslt);
        err = WEFT_ERR_OK;
    }
    if (err == WEFT_ERR_OK)
        err = weft_libcudnn__get(diag, &cudnn);
    if (err == WEFT_ERR_OK && cudnn) {
        snprintf(out->cudnn.version, sizeof out->cudnn.version, "%zu.%zu.%zu",
                 cudnn->version / 10000, cudnn->version / 100 % 100, cudnn->version % 100);
    } else if (err == WEFT_ERR_NODEV) {
        take_reason(diag, &out->cudnn);
        err = WEFT_ERR_OK;
    }
    if (!weft_libcupti__get())
        snprintf(out->cupti.why_not, sizeof out->cupti.why_not,
                 "CUPTI is not here, or lacks functions that are needed");
    weft_diag_destroy(diag);
    return err;
}
