/* The part of the CUDA driver API (libcuda.so.1) that Weft uses. The binary interface is declared
 * here, so that building needs no header of NVIDIA's. A type or value has its name in cuda.h with
 * the prefix weft_; functions are rows of cuda_syms.def. unit/cuda_api compares all of it with
 * cuda.h where that is installed. */
#ifndef WEFT_RUNTIME_CUDA_CUDA_API_H
#define WEFT_RUNTIME_CUDA_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

typedef unsigned weft_cu_result; /* CUresult */

/* X(name, value) of CUresult: the results that Weft tests for or explains. */
#define WEFT_CU_RESULTS(X)                            \
    X(CUDA_SUCCESS, 0)                                \
    X(CUDA_ERROR_INVALID_VALUE, 1)                    \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                    \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                  \
    X(CUDA_ERROR_DEINITIALIZED, 4)                    \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                    \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)              \
    X(CUDA_ERROR_NO_DEVICE, 100)                      \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                 \
    X(CUDA_ERROR_INVALID_IMAGE, 200)                  \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)              \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)              \
    X(CUDA_ERROR_INVALID_PTX, 218)                    \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220)           \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221)         \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222)        \
    X(CUDA_ERROR_CONTAINED, 226)                      \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                 \
    X(CUDA_ERROR_NOT_FOUND, 500)                      \
    X(CUDA_ERROR_NOT_READY, 600)                      \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)        \
    X(CUDA_ERROR_LAUNCH_TIMEOUT, 702)                 \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)           \
    X(CUDA_ERROR_ASSERT, 710)                         \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, 714)           \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715)            \
    X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)             \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717)          \
    X(CUDA_ERROR_INVALID_PC, 718)                     \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                  \
    X(CUDA_ERROR_NOT_PERMITTED, 800)                  \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                  \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802)               \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)         \
    X(CUDA_ERROR_MPS_CONNECTION_FAILED, 805)          \
    X(CUDA_ERROR_MPS_RPC_FAILURE, 806)                \
    X(CUDA_ERROR_MPS_SERVER_NOT_READY, 807)           \
    X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, 808)        \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED, 810)          \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)     \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910)      \
    X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915) \
    X(CUDA_ERROR_UNKNOWN, 999)

/* X(name, value) of all other constants. */
#define WEFT_CU_VALUES(X)                                        \
    X(CU_GET_PROC_ADDRESS_DEFAULT, 0)                            \
    X(CU_GET_PROC_ADDRESS_SUCCESS, 0)                            \
    X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                   \
    X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)             \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)              \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)          \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)          \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 97) \
    X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)        \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                               \
    X(CU_MEMORYTYPE_HOST, 1)                                     \
    X(CU_MEMORYTYPE_DEVICE, 2)                                   \
    X(CU_STREAM_NON_BLOCKING, 1)                                 \
    X(CU_EVENT_DEFAULT, 0)                                       \
    X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                          \
    X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                        \
    X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                   \
    X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                         \
    X(CU_GRAPH_NODE_TYPE_KERNEL, 0)                              \
    X(CU_GRAPH_NODE_TYPE_MEMCPY, 1)                              \
    X(CU_GRAPH_NODE_TYPE_MEMSET, 2)                              \
    X(CU_GRAPH_NODE_TYPE_EMPTY, 5)                               \
    X(CU_GRAPH_NODE_TYPE_EVENT_RECORD, 7)                        \
    X(CU_DEV_RESOURCE_TYPE_SM, 1)                                \
    X(CU_GREEN_CTX_DEFAULT_STREAM, 1)

enum {
#define X(name, value) WEFT_##name = (value),
    WEFT_CU_RESULTS(X) WEFT_CU_VALUES(X)
#undef X
};

/* -- Handles -------------------------------------------------------------------------------- */

typedef int weft_cu_device;
typedef unsigned long long weft_cu_deviceptr;
typedef struct CUctx_st *weft_cu_context;
typedef struct CUstream_st *weft_cu_stream;
typedef struct CUevent_st *weft_cu_event;
typedef struct CUlib_st *weft_cu_library;
typedef struct CUkern_st *weft_cu_kernel;
typedef struct CUfunc_st *weft_cu_function;
typedef struct CUgraph_st *weft_cu_graph;
typedef struct CUgraphNode_st *weft_cu_graph_node;
typedef struct CUgraphExec_st *weft_cu_graph_exec;
typedef struct CUgreenCtx_st *weft_cu_green_ctx;
typedef struct CUdevResourceDesc_st *weft_cu_resource_desc;

/* -- Structures ----------------------------------------------------------------------------- */

typedef struct weft_cu_uuid {
    char bytes[16];
} weft_cu_uuid;

/* Clear the whole structure first: unused bytes must be zero. */

typedef struct weft_cu_kernel_node {
    weft_cu_function func; /* NULL: `kern` is used */
    unsigned gridDimX, gridDimY, gridDimZ;
    unsigned blockDimX, blockDimY, blockDimZ;
    unsigned sharedMemBytes;
    void **kernelParams;
    void **extra;
    weft_cu_kernel kern;
    weft_cu_context ctx;
} weft_cu_kernel_node;

typedef struct weft_cu_memcpy3d {
    size_t srcXInBytes, srcY, srcZ, srcLOD;
    unsigned srcMemoryType;
    const void *srcHost;
    weft_cu_deviceptr srcDevice;
    void *srcArray;
    void *reserved0;
    size_t srcPitch, srcHeight;
    size_t dstXInBytes, dstY, dstZ, dstLOD;
    unsigned dstMemoryType;
    void *dstHost;
    weft_cu_deviceptr dstDevice;
    void *dstArray;
    void *reserved1;
    size_t dstPitch, dstHeight;
    size_t WidthInBytes, Height, Depth;
} weft_cu_memcpy3d;

typedef struct weft_cu_memcpy_node {
    int flags, reserved;
    weft_cu_context copyCtx;
    weft_cu_memcpy3d copyParams;
} weft_cu_memcpy_node;

typedef struct weft_cu_memset_node {
    weft_cu_deviceptr dst;
    size_t pitch;
    unsigned value, elementSize;
    size_t width, height;
    weft_cu_context ctx;
} weft_cu_memset_node;

/* CUDA_EVENT_RECORD_NODE_PARAMS */
typedef struct weft_cu_event_node {
    weft_cu_event event;
} weft_cu_event_node;

typedef struct weft_cu_node_params {
    unsigned type;
    int reserved0[3];
    union {
        long long reserved1[29];
        weft_cu_kernel_node kernel;
        weft_cu_memcpy_node memcpy;
        weft_cu_memset_node memset;
        weft_cu_event_node eventRecord;
    } u; /* an anonymous union in cuda.h */
    long long reserved2;
} weft_cu_node_params;

/* CUgraphExecUpdateResultInfo */
typedef struct weft_cu_exec_update {
    unsigned result; /* CUgraphExecUpdateResult, 0: updated */
    weft_cu_graph_node errorNode, errorFromNode;
} weft_cu_exec_update;

typedef struct weft_cu_edge_data weft_cu_edge_data; /* CUgraphEdgeData; always passed as NULL */

typedef struct weft_cu_sm_resource {
    unsigned smCount, minSmPartitionSize, smCoscheduledAlignment;
} weft_cu_sm_resource;

typedef struct weft_cu_resource {
    unsigned type;
    unsigned char internal[92];
    union {
        weft_cu_sm_resource sm;
        unsigned char room[48];
    } u; /* an anonymous union in cuda.h */
} weft_cu_resource;

/* -- Functions ------------------------------------------------------------------------------ */

/* Pointers to all functions, under their names in cuda.h. NULL: an optional function that the
 * driver lacks. */
typedef struct weft_cu_api {
#define CUDA_SYM(name, version, need, args) weft_cu_result(*name) args;
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
} weft_cu_api;

/* cuGetProcAddress_v2, the only symbol looked up by dlsym. */
typedef weft_cu_result (*weft_cu_get_proc)(const char *symbol, void **out, int version,
                                           uint64_t flags, unsigned *status);

#endif
