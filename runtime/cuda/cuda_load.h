/* Private to runtime/: libcuda.so.1, libcublasLt.so and libcupti.so, found at run time, as tables
 * of their functions. Also used by runtime/machine. */
#ifndef WEFT_RUNTIME_CUDA_CUDA_LOAD_H
#define WEFT_RUNTIME_CUDA_CUDA_LOAD_H

#include "base/diag.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/cupti_api.h"

#include <stdbool.h>

/* First CUDA whose driver will do. */
enum { WEFT_CUDA_VERSION_MIN = 12000 };

typedef struct weft_libcuda {
    weft_cu_api api;
    int version; /* of CUDA, that the driver is for: 13000 is 13.0 */
    bool graphs; /* has all that graphs need */
    bool green;  /* has all that partitions need */
} weft_libcuda;

typedef struct weft_libcublaslt {
    weft_cublaslt_api api;
    size_t version;
} weft_libcublaslt;

/* Loaded once and kept until the process ends. NODEV with what was looked for, or with the version
 * that is needed and the one found. Thread-safe. */
WEFT_MUST_USE weft_err weft_libcuda__get(weft_diag *diag, const weft_libcuda **out);
WEFT_MUST_USE weft_err weft_libcublaslt__get(weft_diag *diag, const weft_libcublaslt **out);

/* NULL: not here; looked for once. Thread-safe. */
const weft_cupti_api *weft_libcupti__get(void);

#endif
