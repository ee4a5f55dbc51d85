/* NVML by dlopen: open, close, and its results in words. */
#include "runtime/machine/machine_int.h"

#include <stdio.h>
#include <string.h>

static const weft_dynlib_symbol symbols[] = {
#define NVML_SYM(name, need, args) {#name, offsetof(weft_nvml_syms, name), need},
#include "runtime/machine/nvml_syms.def"
#undef NVML_SYM
};

static const struct {
    weft_nvml_result result;
    const char *text;
} texts[] = {
    {WEFT_NVML_SUCCESS, "success (0)"},
    {WEFT_NVML_UNINITIALIZED, "not initialised (1)"},
    {WEFT_NVML_INVALID_ARGUMENT, "invalid argument (2)"},
    {WEFT_NVML_NOT_SUPPORTED, "not supported (3)"},
    {WEFT_NVML_NO_PERMISSION, "no permission (4)"},
    {WEFT_NVML_NOT_FOUND, "not found (6)"},
    {WEFT_NVML_INSUFFICIENT_SIZE, "insufficient size (7)"},
    {WEFT_NVML_DRIVER_NOT_LOADED, "the driver is not loaded (9)"},
    {WEFT_NVML_FUNCTION_NOT_FOUND, "the driver lacks the function (13)"},
    {WEFT_NVML_GPU_IS_LOST, "the GPU is lost (15)"},
    {WEFT_NVML_LIB_RM_VERSION_MISMATCH, "library and kernel module are of different drivers (18)"},
    {WEFT_NVML_IN_USE, "in use (19)"},
    {WEFT_NVML_INSUFFICIENT_RESOURCES, "insufficient resources (23)"},
};

const char *weft_nvml__text(weft_nvml_result result)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].result == result)
            return texts[i].text;
    return "an unknown error";
}

weft_err weft_nvml__error(weft_diag *diag, const char *call, const char *on,
                          weft_nvml_result result)
{
    return weft_diag_error(diag, WEFT_ERR_NODEV, (weft_where){.item = on}, "%s: %s", call,
                           weft_nvml__text(result));
}

weft_err weft_nvml__open(weft_diag *diag, weft_nvml *out)
{
    static const char *const names[] = {"libnvidia-ml.so.1"};
    weft_nvml nvml = {0};
    WEFT_TRY(weft_dynlib_open("NVML", names, 1, diag, &nvml.lib));
    weft_err err =
        weft_dynlib_resolve(nvml.lib, symbols, sizeof symbols / sizeof symbols[0], &nvml.fn, diag);
    if (err == WEFT_ERR_OK) {
        weft_nvml_result result = nvml.fn.nvmlInit_v2();
        if (result != WEFT_NVML_SUCCESS)
            err = weft_nvml__error(diag, "nvmlInit", NULL, result);
    }
    if (err != WEFT_ERR_OK) {
        weft_dynlib_close(nvml.lib);
        return err;
    }
    *out = nvml;
    return WEFT_ERR_OK;
}

void weft_nvml__close(weft_nvml *nvml)
{
    if (nvml->fn.nvmlShutdown)
        nvml->fn.nvmlShutdown();
    weft_dynlib_close(nvml->lib);
    *nvml = (weft_nvml){0};
}
