/* Private to nvrtc*.c: access to NVRTC; compiling one module for one architecture, in this process
 * or in another; results of earlier runs. */
#ifndef WEFT_CODEGEN_CUDA_NVRTC_INT_H
#define WEFT_CODEGEN_CUDA_NVRTC_INT_H

#include "base/dynlib.h"
#include "codegen/cuda/cuda_int.h"

#include <sys/types.h>

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
/* `arch`: "sm_80"; "compute_80" gives PTX only, in less than half of the time. */
void weft_nvrtc__compile(const weft_nvrtc *api, const char *text, const char *arch,
                         weft_nvrtc__result *r);

/* A process that compiles; zeroed: not started. For one thread. */
typedef struct weft_nvrtc__worker {
    pid_t pid; /* 0: none */
    int fd;    /* its standard input and output */
} weft_nvrtc__worker;

/* weft_nvrtc__compile in a process that runs `program`, which is started for the first job. */
void weft_nvrtc__delegate(const char *program, weft_nvrtc__worker *w, const char *text,
                          const char *arch, weft_nvrtc__result *r);
/* Waits for the end of the process; returns its exit code or the signal that ended it. */
int weft_nvrtc__end_worker(weft_nvrtc__worker *w);

/* What NVRTC is asked for besides the architecture, separated by blanks. */
#define WEFT_NVRTC_OPTIONS "--std=c++17 --no-source-include"

/* -- Results of earlier runs (nvrtc_cache.c) --------------------------------------------------- */

typedef struct weft_nvrtc__cache weft_nvrtc__cache;

/* Opens a folder, which is made if it is missing. `compiler` names everything that results depend
 * on besides text and architecture. NULL: the folder cannot be used; *why is then the reason,
 * static or of strerror. Close with weft_nvrtc__cache_close. */
weft_nvrtc__cache *weft_nvrtc__cache_open(const char *folder, uint64_t limit_bytes,
                                          const char *compiler, const char **why);
/* Removes the results that were used the longest time ago if all together exceed the limit; accepts
 * NULL. */
void weft_nvrtc__cache_close(weft_nvrtc__cache *cache);
/* Thread-safe. False: there is no such result, or what is there is damaged. Without a cache (NULL)
 * there is none. */
bool weft_nvrtc__cache_find(const weft_nvrtc__cache *cache, const char *text, const char *arch,
                            weft_nvrtc__result *r);
/* Keeps a result if that is possible. Thread-safe; accepts NULL. */
void weft_nvrtc__cache_keep(weft_nvrtc__cache *cache, const char *text, const char *arch,
                            const weft_nvrtc__result *r);

#endif
