/* Our declarations of the CUDA driver API, of cuBLASLt and of CUPTI against NVIDIA's headers, where
 * a toolkit of CUDA 12.8 or later is installed: values, sizes, offsets and prototypes, at compile
 * time. Structures that later toolkits extended must begin like ours; Weft clears the bytes behind.
 * conform/cuda_headers compiles this file with the headers of every toolkit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef WEFT_CUDA_HEADERS
#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/cupti_api.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#ifdef WEFT_CUBLASLT_HEADERS
#include <cublasLt.h>
#endif
#ifdef WEFT_CUPTI_HEADERS
#include <cupti.h>
#endif

#define X(name, value) _Static_assert((unsigned)(name) == (value), #name);
WEFT_CU_RESULTS(X)
WEFT_CU_VALUES(X)
#undef X

#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define FIELD(ours, theirs, field)                                             \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, field) &&         \
                       sizeof((ours *)0)->field == sizeof((theirs *)0)->field, \
                   #theirs "." #field)
/* Of a union that has no name there. It has room for their field, which may be longer than ours. */
#define MEMBER(ours, theirs, field)                                        \
    _Static_assert(offsetof(ours, u.field) == offsetof(theirs, field) &&   \
                       sizeof((theirs *)0)->field <= sizeof((ours *)0)->u, \
                   #theirs "." #field)

SIZE(weft_cu_result, CUresult);
SIZE(weft_cu_uuid, CUuuid);

SIZE(weft_cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v3);
#define F(field) FIELD(weft_cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v3, field)
F(func);
F(gridDimX);
F(gridDimY);
F(gridDimZ);
F(blockDimX);
F(blockDimY);
F(blockDimZ);
F(sharedMemBytes);
F(kernelParams);
F(extra);
F(kern);
F(ctx);
#undef F

SIZE(weft_cu_memcpy3d, CUDA_MEMCPY3D);
#define F(field) FIELD(weft_cu_memcpy3d, CUDA_MEMCPY3D, field)
F(srcXInBytes);
F(srcY);
F(srcZ);
F(srcLOD);
F(srcMemoryType);
F(srcHost);
F(srcDevice);
F(srcArray);
F(srcPitch);
F(srcHeight);
F(dstXInBytes);
F(dstY);
F(dstZ);
F(dstLOD);
F(dstMemoryType);
F(dstHost);
F(dstDevice);
F(dstArray);
F(dstPitch);
F(dstHeight);
F(WidthInBytes);
F(Height);
F(Depth);
#undef F

SIZE(weft_cu_memcpy_node, CUDA_MEMCPY_NODE_PARAMS);
#define F(field) FIELD(weft_cu_memcpy_node, CUDA_MEMCPY_NODE_PARAMS, field)
F(flags);
F(copyCtx);
F(copyParams);
#undef F

SIZE(weft_cu_memset_node, CUDA_MEMSET_NODE_PARAMS_v2);
#define F(field) FIELD(weft_cu_memset_node, CUDA_MEMSET_NODE_PARAMS_v2, field)
F(dst);
F(pitch);
F(value);
F(elementSize);
F(width);
F(height);
F(ctx);
#undef F

SIZE(weft_cu_node_params, CUgraphNodeParams);
FIELD(weft_cu_node_params, CUgraphNodeParams, type);
MEMBER(weft_cu_node_params, CUgraphNodeParams, reserved1);
MEMBER(weft_cu_node_params, CUgraphNodeParams, kernel);
MEMBER(weft_cu_node_params, CUgraphNodeParams, memcpy);
MEMBER(weft_cu_node_params, CUgraphNodeParams, memset);
MEMBER(weft_cu_node_params, CUgraphNodeParams, eventRecord);

SIZE(weft_cu_exec_update, CUgraphExecUpdateResultInfo);
FIELD(weft_cu_exec_update, CUgraphExecUpdateResultInfo, result);
FIELD(weft_cu_exec_update, CUgraphExecUpdateResultInfo, errorNode);
FIELD(weft_cu_exec_update, CUgraphExecUpdateResultInfo, errorFromNode);

SIZE(weft_cu_resource, CUdevResource);
FIELD(weft_cu_resource, CUdevResource, type);
MEMBER(weft_cu_resource, CUdevResource, sm);
FIELD(weft_cu_sm_resource, CUdevSmResource, smCount);
#if CUDA_VERSION >= 13000
FIELD(weft_cu_sm_resource, CUdevSmResource, minSmPartitionSize);
FIELD(weft_cu_sm_resource, CUdevSmResource, smCoscheduledAlignment);
#endif

FIELD(weft_cu_event_node, CUDA_EVENT_RECORD_NODE_PARAMS, event);

#ifdef WEFT_CUBLASLT_HEADERS
#define X(name, value) _Static_assert((unsigned)(name) == (value), #name);
WEFT_CUBLASLT_VALUES(X)
#undef X
SIZE(weft_cublas_status, cublasStatus_t);
SIZE(weft_cublaslt_algo, cublasLtMatmulAlgo_t);
SIZE(weft_cublaslt_heuristic, cublasLtMatmulHeuristicResult_t);
#define F(field) FIELD(weft_cublaslt_heuristic, cublasLtMatmulHeuristicResult_t, field)
F(algo);
F(workspaceSize);
F(state);
F(wavesCount);
#undef F
#endif

#ifdef WEFT_CUPTI_HEADERS
#define X(name, value) _Static_assert((unsigned)(name) == (value), #name);
WEFT_CUPTI_VALUES(X)
#undef X
#define F(ours, theirs)         \
    FIELD(ours, theirs, start); \
    FIELD(ours, theirs, end);   \
    FIELD(ours, theirs, kind);  \
    FIELD(ours, theirs, correlationId)
#if CUDA_VERSION >= 13000
F(weft_cupti_kernel, CUpti_ActivityKernel10);
#else
F(weft_cupti_kernel, CUpti_ActivityKernel9);
#endif
F(weft_cupti_move, CUpti_ActivityMemcpy6);
F(weft_cupti_move, CUpti_ActivityMemset4);
#undef F
SIZE(weft_cupti_external, CUpti_ActivityExternalCorrelation);
FIELD(weft_cupti_external, CUpti_ActivityExternalCorrelation, externalKind);
FIELD(weft_cupti_external, CUpti_ActivityExternalCorrelation, externalId);
FIELD(weft_cupti_external, CUpti_ActivityExternalCorrelation, correlationId);
#endif

/* Prototypes: the tables' with NVIDIA's structures in the place of ours. */
#define weft_cu_uuid        CUuuid
#define weft_cu_node_params CUgraphNodeParams
#define weft_cu_edge_data   CUgraphEdgeData
#define weft_cu_exec_update CUgraphExecUpdateResultInfo
#define weft_cu_resource    CUdevResource
#define CUDA_SYM(name, version, need, args)                                                       \
    _Static_assert(__builtin_types_compatible_p(PFN_##name##_v##version, weft_cu_result(*) args), \
                   #name);
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
_Static_assert(__builtin_types_compatible_p(PFN_cuGetProcAddress_v12000, weft_cu_get_proc),
               "cuGetProcAddress_v2");

#ifdef WEFT_CUBLASLT_HEADERS
#define weft_cublaslt_layout    cublasLtMatrixLayout_t
#define weft_cublaslt_desc      cublasLtMatmulDesc_t
#define weft_cublaslt_pref      cublasLtMatmulPreference_t
#define weft_cublaslt_algo      cublasLtMatmulAlgo_t
#define weft_cublaslt_heuristic cublasLtMatmulHeuristicResult_t
#define CUBLASLT_SYM(result, name, args) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) args), #name);
#include "runtime/cuda/cublaslt_syms.def"
#undef CUBLASLT_SYM
#endif

#ifdef WEFT_CUPTI_HEADERS
#define weft_cupti_activity CUpti_Activity
#define CUPTI_SYM(name, args)                                                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), weft_cupti_result(*) args), \
                   #name);
#include "runtime/cuda/cupti_syms.def"
#undef CUPTI_SYM
#endif

/* What was compared is compared when this file compiles; here the number of it. */
static void test_cuda_api__equals_nvidias_headers(void **state)
{
    (void)state;
    int n = 0;
#define CUDA_SYM(name, version, need, args) n++;
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
    print_message("%d functions of CUDA %d.%d\n", n, CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10);
    assert_true(n > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuda_api__equals_nvidias_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    print_message("skipped: no folder has cuda.h and cudaTypedefs.h of CUDA 12.8 or "
                  "later\n");
    return 77;
}
#endif
