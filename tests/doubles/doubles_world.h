/* For tests that load the doubles: a context, kernels, and the mistakes found. */
#ifndef WEFT_TESTS_DOUBLES_WORLD_H
#define WEFT_TESTS_DOUBLES_WORLD_H

#include "double.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cudnn_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct doubles {
    void *cuda, *nvrtc, *cublaslt, *cudnn;
    weft_cu_api api;
    weft_cublaslt_api lt;
    weft_cudnn_api dnn;
    unsigned (*mistakes)(const char **text); /* of libcuda, of cuBLASLt, and of cuDNN */
    unsigned (*lt_mistakes)(const char **text);
    unsigned (*dnn_mistakes)(const char **text);
    void (*reset)(void), (*lt_reset)(void), (*dnn_reset)(void);
    unsigned (*calls)(void);
    weft_cu_context ctx;
    weft_cu_stream stream;
} doubles;

static inline void *doubles_open(const char *name)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib || !dlsym(lib, "weft_double_reset"))
        fail_msg("%s is not a test double: LD_LIBRARY_PATH must name the folder of the doubles",
                 name);
    return lib;
}

static inline void doubles_resolve(doubles *d)
{
    weft_cu_get_proc get;
    *(void **)&get = dlsym(d->cuda, "cuGetProcAddress_v2");
    unsigned status;
#define CUDA_SYM(name, version, need, args)                                      \
    assert_int_equal(get(#name, (void **)&d->api.name, version, 0, &status), 0); \
    assert_int_equal(status, 0);
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
#define CUBLASLT_SYM(result, name, args) *(void **)&d->lt.name = dlsym(d->cublaslt, #name);
#include "runtime/cuda/cublaslt_syms.def"
#undef CUBLASLT_SYM
#define CUDNN_SYM(result, name, args) *(void **)&d->dnn.name = dlsym(d->cudnn, #name);
#include "runtime/cuda/cudnn_syms.def"
#undef CUDNN_SYM
}

static inline void doubles_open_all(doubles *d)
{
    memset(d, 0, sizeof *d);
    d->cuda = doubles_open("libcuda.so.1");
    d->nvrtc = doubles_open("libnvrtc.so.13");
    d->cublaslt = doubles_open("libcublasLt.so.13");
    d->cudnn = doubles_open("libcudnn.so.9");
    *(void **)&d->mistakes = dlsym(d->cuda, "weft_double_mistakes");
    *(void **)&d->lt_mistakes = dlsym(d->cublaslt, "weft_double_mistakes");
    *(void **)&d->reset = dlsym(d->cuda, "weft_double_reset");
    *(void **)&d->lt_reset = dlsym(d->cublaslt, "weft_double_reset");
    *(void **)&d->dnn_mistakes = dlsym(d->cudnn, "weft_double_mistakes");
    *(void **)&d->dnn_reset = dlsym(d->cudnn, "weft_double_reset");
    *(void **)&d->calls = dlsym(d->cuda, "weft_double_calls");
}

/* As doubles_open_all, and resolves the functions. */
static inline void doubles_load(doubles *d)
{
    doubles_open_all(d);
    doubles_resolve(d);
}

/* Creates a current context and a stream. */
static inline void doubles_start(doubles *d)
{
    d->reset();
    assert_int_equal(d->api.cuInit(0), 0);
    assert_int_equal(d->api.cuDevicePrimaryCtxRetain(&d->ctx, 0), 0);
    assert_int_equal(d->api.cuCtxSetCurrent(d->ctx), 0);
    assert_int_equal(d->api.cuStreamCreate(&d->stream, WEFT_CU_STREAM_NON_BLOCKING), 0);
}

/* Destroys both; fails if there was a mistake or something is left. */
static inline void doubles_end(doubles *d)
{
    const char *text;
    assert_int_equal(d->api.cuStreamDestroy(d->stream), 0);
    assert_int_equal(d->api.cuDevicePrimaryCtxRelease(0), 0);
    if (d->mistakes(&text))
        fail_msg("mistakes: %s", text);
    if (d->lt_mistakes(&text))
        fail_msg("mistakes: %s", text);
    if (d->dnn_mistakes(&text))
        fail_msg("mistakes: %s", text);
}

static inline void doubles_close(doubles *d)
{
    dlclose(d->cudnn);
    dlclose(d->cublaslt);
    dlclose(d->nvrtc);
    dlclose(d->cuda);
}

/* Fails unless a mistake was found whose text contains `part`. */
static inline void doubles_found(doubles *d, const char *part)
{
    const char *text, *more, *most;
    unsigned n = d->mistakes(&text) + d->lt_mistakes(&more) + d->dnn_mistakes(&most);
    if (!n || (!strstr(text, part) && !strstr(more, part) && !strstr(most, part)))
        fail_msg("not found: %s; but: %s%s%s", part, text, more, most);
}

/* Compiles CUDA C++ into an image, which the caller frees. Skips the test without a C++ compiler.
 */
static inline void *doubles_compile(const doubles *d, const char *source, const char *arch)
{
    if (system("c++ --version >/dev/null 2>&1") != 0) {
        print_message("no C++ compiler: c++\n");
        skip();
    }
    struct {
#define SYM(need, name, params) int(*name) params;
#include "codegen/cuda/nvrtc_syms.def"
#undef SYM
    } rtc;
#define SYM(need, name, params) *(void **)&rtc.name = dlsym(d->nvrtc, #name);
#include "codegen/cuda/nvrtc_syms.def"
#undef SYM
    void *program;
    char option[64];
    const char *options[] = {option};
    size_t bytes;
    snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
    assert_int_equal(rtc.nvrtcCreateProgram(&program, source, "x", 0, NULL, NULL), 0);
    if (rtc.nvrtcCompileProgram(program, 1, options) != 0) {
        assert_int_equal(rtc.nvrtcGetProgramLogSize(program, &bytes), 0);
        char *log = malloc(bytes);
        rtc.nvrtcGetProgramLog(program, log);
        fail_msg("%s", log);
    }
    assert_int_equal(rtc.nvrtcGetCUBINSize(program, &bytes), 0);
    void *image = malloc(bytes);
    assert_int_equal(rtc.nvrtcGetCUBIN(program, image), 0);
    assert_int_equal(rtc.nvrtcDestroyProgram(&program), 0);
    return image;
}

static inline weft_cu_kernel doubles_kernel(doubles *d, weft_cu_library lib, const char *name)
{
    weft_cu_kernel k;
    assert_int_equal(d->api.cuLibraryGetKernel(&k, lib, name), 0);
    return k;
}

static inline weft_cu_deviceptr doubles_alloc(doubles *d, size_t bytes)
{
    weft_cu_deviceptr p;
    assert_int_equal(d->api.cuMemAlloc(&p, bytes), 0);
    return p;
}

#endif
