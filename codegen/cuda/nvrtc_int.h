/* Private to nvrtc*.c: access to NVRTC; compiling one module for one architecture, in this process
 * or in another. */
#ifndef WEFT_CODEGEN_CUDA_NVRTC_INT_H
#define WEFT_CODEGEN_CUDA_NVRTC_INT_H

#include "base/dynlib.h"
#include "codegen/cuda/cuda_int.h"

typedef struct weft_nvrtc {
#define SYM(need, name, params) int(*name) params;
#include "codegen/cuda/nvrtc_syms.def"
#undef SYM
    weft_dynlib *lib;
} weft_nvrtc;

/* NODEV: reports the names of the libraries that were tried. Close with weft_nvrtc__close. */
WEFT_MUST_USE weft_err weft_nvrtc__open(weft_diag *diag, weft_nvrtc *out);
void weft_nvrtc__close(weft_nvrtc *api);

/* The result of a job; its members are allocated with malloc. */
typedef struct weft_nvrtc__result {
    char *cubin, *ptx, *log;
    size_t cubin_bytes, ptx_bytes, log_bytes;
    const char *failed; /* name of the function that failed, static; NULL: success */
    int code;
} weft_nvrtc__result;

void weft_nvrtc__free(weft_nvrtc__result *r);
void weft_nvrtc__compile(const weft_nvrtc *api, const char *text, const char *arch, bool want_ptx,
                         weft_nvrtc__result *r);
/* The same in a process that runs `worker`. */
void weft_nvrtc__delegate(const char *worker, const char *text, const char *arch, bool want_ptx,
                          weft_nvrtc__result *r);

#endif
