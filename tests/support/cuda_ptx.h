/* Kernels of codegen/cuda on the host, as cuda_host.h launches them with WEFT_PTX defined: NVRTC
 * compiles them, tests/ptx interprets the PTX. PTX is kept in WEFT_KERNEL_CACHE by the hash of the
 * source, NVRTC's version and the architecture, which WEFT_PTX_ARCH names (sm_80). */
#ifndef WEFT_TESTS_SUPPORT_CUDA_PTX_H
#define WEFT_TESTS_SUPPORT_CUDA_PTX_H

#include "codegen/cuda/nvrtc_int.h"
#include "tests/ptx/ptx.h"

static inline const weft_nvrtc *cuda_ptx_nvrtc(void)
{
    static weft_nvrtc api;
    static int state; /* 1: open, -1: absent */
    if (state == 0)
        state = weft_nvrtc__open(NULL, &api) == WEFT_ERR_OK ? 1 : -1;
    return state > 0 ? &api : NULL;
}

static inline const char *cuda_host_missing(void)
{
    return cuda_ptx_nvrtc() ? NULL : "no NVRTC: skipped";
}

static inline const char *cuda_ptx_arch(void)
{
    const char *arch = getenv("WEFT_PTX_ARCH");
    return arch ? arch : "sm_80";
}

static inline char *cuda_ptx_read(const char *path)
{
    weft_file file = {0};
    weft_diag *diag = weft_diag_create();
    char *text = NULL;
    if (weft_file_map(path, diag, &file) == WEFT_ERR_OK) {
        text = calloc(file.len + 1, 1);
        assert_non_null(text);
        memcpy(text, file.at, file.len);
    }
    weft_file_unmap(&file);
    weft_diag_destroy(diag);
    return text;
}

static inline char *cuda_ptx_compile(const char *text, const char *path)
{
    weft_nvrtc__result result = {0};
    weft_buf making = {0};
    char arch[32]; /* without machine code, which takes NVRTC as long again */
    snprintf(arch, sizeof arch, "compute_%s", cuda_ptx_arch() + strlen("sm_"));
    weft_nvrtc__compile(cuda_ptx_nvrtc(), text, arch, &result);
    if (result.failed)
        fail_msg("%s: %.3000s", result.failed, result.log ? result.log : "");
    (void)mkdir(WEFT_KERNEL_CACHE, 0777);
    weft_buf_printf(&making, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(making.at, "w");
    assert_non_null(f);
    fputs(result.ptx, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(making.at, path), 0);
    weft_buf_finish(&making);
    char *ptx = strdup(result.ptx);
    weft_nvrtc__free(&result);
    return ptx;
}

/* The PTX of `text`, in memory of malloc. */
static inline char *cuda_ptx_text(const char *text)
{
    int version[2] = {0};
    weft_buf path = {0};
    (void)cuda_ptx_nvrtc()->nvrtcVersion(&version[0], &version[1]);
    weft_buf_printf(&path, WEFT_KERNEL_CACHE "/%016llx-%s-%d.%d.ptx",
                    (unsigned long long)cuda_host_hash(text), cuda_ptx_arch(), version[0],
                    version[1]);
    char *ptx = cuda_ptx_read(path.at);
    if (!ptx)
        ptx = cuda_ptx_compile(text, path.at);
    weft_buf_finish(&path);
    return ptx;
}

static inline cuda_host *cuda_host_build(const char *text)
{
    char why[300], *ptx = cuda_ptx_text(text);
    cuda_host *h = calloc(1, sizeof *h);
    assert_non_null(h);
    h->object = ptx_load(ptx, why, sizeof why);
    if (!h->object)
        fail_msg("%s", why);
    free(ptx);
    return h;
}

static inline void cuda_host_unload(cuda_host *h)
{
    ptx_unload(h->object);
}

static inline const char *cuda_host_try(cuda_host *h, const char *kernel, unsigned gx, unsigned gy,
                                        unsigned gz, unsigned threads, unsigned shared_bytes,
                                        void **params)
{
    ptx_memory memory[CUDA_HOST_BLOCKS];
    for (uint32_t i = 0; i < h->n_memory; i++)
        memory[i] = (ptx_memory){(uintptr_t)h->memory[i].at, h->memory[i].bytes};
    return ptx_run(h->object, &(ptx_launch){.kernel = kernel,
                                            .grid = {gx, gy, gz},
                                            .threads = threads,
                                            .shared_bytes = shared_bytes,
                                            .param = params,
                                            .memory = memory,
                                            .n_memory = h->n_memory,
                                            .seed = h->order});
}

#endif
