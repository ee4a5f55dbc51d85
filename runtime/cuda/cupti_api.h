/* The part of CUPTI (libcupti.so.13 or .12) that Weft uses, declared here like the driver API in
 * cuda_api.h. unit/cuda_api compares the declarations with cupti.h where that is installed. Records
 * have only the fields that all versions from CUDA 9 to 13 share. */
#ifndef WEFT_RUNTIME_CUDA_CUPTI_API_H
#define WEFT_RUNTIME_CUDA_CUPTI_API_H

#include "runtime/cuda/cuda_api.h"

typedef unsigned weft_cupti_result; /* CUptiResult */

/* X(name, value) */
#define WEFT_CUPTI_VALUES(X)                        \
    X(CUPTI_SUCCESS, 0)                             \
    X(CUPTI_ERROR_NOT_SUPPORTED, 27)                \
    X(CUPTI_ERROR_MAX_LIMIT_REACHED, 12)            \
    X(CUPTI_ACTIVITY_KIND_MEMCPY, 1)                \
    X(CUPTI_ACTIVITY_KIND_MEMSET, 2)                \
    X(CUPTI_ACTIVITY_KIND_DRIVER, 4)                \
    X(CUPTI_ACTIVITY_KIND_RUNTIME, 5)               \
    X(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 10)    \
    X(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, 39) \
    X(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 3)

enum {
#define X(name, value) WEFT_##name = (value),
    WEFT_CUPTI_VALUES(X)
#undef X
};

/* The first field of every record. */
typedef struct weft_cupti_activity {
    uint32_t kind;
} weft_cupti_activity;

/* Work on a device, times in ns: a kernel, and (shorter) a copy or a fill. */
typedef struct weft_cupti_kernel {
    uint32_t kind, config[3];
    uint64_t start, end;
    uint32_t between[15];
    uint32_t correlationId;
} weft_cupti_kernel;

typedef struct weft_cupti_move {
    uint32_t kind, config[3];
    uint64_t start, end;
    uint32_t between[3];
    uint32_t correlationId;
} weft_cupti_move;

/* A driver call made under an external correlation id. */
typedef struct weft_cupti_external {
    uint32_t kind, externalKind;
    uint64_t externalId;
    uint32_t correlationId, reserved;
} weft_cupti_external;

typedef void (*weft_cupti_request)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*weft_cupti_complete)(weft_cu_context ctx, uint32_t stream, uint8_t *buffer,
                                    size_t bytes, size_t valid_bytes);

/* Pointers to all functions, under their names in cupti.h. */
typedef struct weft_cupti_api {
#define CUPTI_SYM(name, args) weft_cupti_result(*name) args;
#include "runtime/cuda/cupti_syms.def"
#undef CUPTI_SYM
} weft_cupti_api;

#endif
