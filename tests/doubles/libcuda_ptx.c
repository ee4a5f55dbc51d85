/* Test double of libcuda.so.1: images that are PTX, as NVRTC makes it, run by the interpreter of
 * tests/ptx. */
#include "libcuda_double.h"

#include "tests/ptx/ptx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_MAX = 4096 };

/* A module and what the launches of its kernels need to know. */
struct weft_cuda_ptx {
    ptx_module *module;
    weft_double_kernel *kernel; /* ends with name NULL */
    weft_double_param *param;   /* of all kernels */
};

bool weft_ptx__is(const void *image)
{
    return memcmp(image, "//", 2) == 0 || memcmp(image, ".version", 8) == 0;
}

void weft_ptx__unload(weft_cuda_ptx *p)
{
    if (!p)
        return;
    ptx_unload(p->module);
    free(p->kernel);
    free(p->param);
    free(p);
}

static weft_cu_result list_kernels(weft_cuda_ptx *p)
{
    size_t n = ptx_kernels(p->module), n_param = 0;
    ptx_kernel_info info;
    for (size_t i = 0; i < n; i++) {
        ptx_kernel_at(p->module, i, &info);
        n_param += info.n_param;
    }
    p->kernel = calloc(n + 1, sizeof *p->kernel);
    p->param = calloc(n_param + 1, sizeof *p->param);
    if (!p->kernel || !p->param)
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    weft_double_param *param = p->param;
    for (size_t i = 0; i < n; i++) {
        ptx_kernel_at(p->module, i, &info);
        p->kernel[i] = (weft_double_kernel){
            .name = info.name, .threads = info.threads, .n_param = info.n_param, .param = param};
        for (unsigned k = 0; k < info.n_param; k++, param++) {
            param->bytes = (unsigned short)ptx_kernel_param(p->module, i, k);
            /* PTX does not tell which pointers are written: all of 64 bits are read, at least. */
            param->kind = param->bytes == 8 ? WEFT_DOUBLE_POINTER_IN : WEFT_DOUBLE_VALUE;
        }
    }
    return 0;
}

weft_cu_result weft_ptx__load(const char *text, int capability, weft_cuda_ptx **out)
{
    char why[300];
    int arch;
    const char *target = strstr(text, ".target sm_");
    if (!target || sscanf(target, ".target sm_%d", &arch) != 1)
        return WEFT_CUDA_ERROR_INVALID_PTX;
    if (arch > capability)
        return WEFT_CUDA_ERROR_NO_BINARY_FOR_GPU;
    weft_cuda_ptx *p = calloc(1, sizeof *p);
    if (!p)
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    p->module = ptx_load(text, why, sizeof why);
    weft_cu_result r = p->module ? list_kernels(p) : WEFT_CUDA_ERROR_INVALID_PTX;
    if (!p->module)
        weft_double_mistake("PTX: %s", why);
    if (r) {
        weft_ptx__unload(p);
        return r;
    }
    *out = p;
    return 0;
}

const weft_double_kernel *weft_ptx__kernels(const weft_cuda_ptx *p)
{
    return p->kernel;
}

const char *weft_ptx__run(weft_cuda_ptx *p, const weft_work *w, void **param)
{
    static weft_double_span span[MEMORY_MAX];
    static ptx_memory memory[MEMORY_MAX];
    static uint64_t launches;
    size_t n = weft_memory__live(span, MEMORY_MAX);
    for (size_t i = 0; i < n; i++)
        memory[i] = (ptx_memory){span[i].at, span[i].bytes};
    return ptx_run(p->module,
                   &(ptx_launch){.kernel = w->kernel->of->name,
                                 .grid = {w->grid[0], w->grid[1], w->grid[2]},
                                 .threads = w->threads,
                                 .shared_bytes = w->shared_bytes,
                                 .param = param,
                                 .memory = memory,
                                 .n_memory = n,
                                 .seed = ++launches,
                                 .skip_global_races = !weft_double_number("PTX_RACES", 0)});
}
