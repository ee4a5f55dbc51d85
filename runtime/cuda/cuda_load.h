/* Private to runtime/: libcuda.so.1, libcublasLt.so, libcudnn.so and libcupti.so, loaded at run
 * time, as tables of their functions. The door of runtime/cuda for runtime/machine. */
#ifndef WEFT_RUNTIME_CUDA_CUDA_LOAD_H
#define WEFT_RUNTIME_CUDA_CUDA_LOAD_H

#include "base/diag.h"
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/cudnn_api.h"
#include "runtime/cuda/cupti_api.h"

#include <stdbool.h>

/* The oldest supported CUDA version of a driver. */
enum { WEFT_CUDA_VERSION_MIN = 12000 };

typedef struct weft_libcuda {
    weft_cu_api api;
    int version; /* CUDA version of the driver: 13000 is 13.0 */
    bool graphs; /* all functions that graphs need are present */
    bool green;  /* all functions that green contexts need are present */
} weft_libcuda;

typedef struct weft_libcublaslt {
    weft_cublaslt_api api;
    size_t version;
} weft_libcublaslt;

/* The oldest cuDNN with descriptors of devices, and the first that is another interface. */
enum { WEFT_CUDNN_VERSION_MIN = 90800, WEFT_CUDNN_VERSION_END = 100000 };

typedef struct weft_libcudnn {
    weft_cudnn_api api;
    size_t version; /* 91900 is 9.19.0 */
} weft_libcudnn;

/* Loads the library at the first successful call and keeps it until the process ends. NODEV with
 * the names tried, or with the version found and the version needed. Thread-safe. */
WEFT_MUST_USE weft_err weft_libcuda__get(weft_diag *diag, const weft_libcuda **out);
WEFT_MUST_USE weft_err weft_libcublaslt__get(weft_diag *diag, const weft_libcublaslt **out);
WEFT_MUST_USE weft_err weft_libcudnn__get(weft_diag *diag, const weft_libcudnn **out);

/* NULL: CUPTI is not installed (searched once). Thread-safe. */
const weft_cupti_api *weft_libcupti__get(void);

#endif
