/* Facts of a GPU that estimates rest on, as JSON: limits, green contexts, bandwidth and matrix rate
 * by number of SMs, and what cuBLASLt's heuristics choose. Changes nothing.
 * nvcc -arch sm_90 facts.cu -lcuda -lcublasLt */
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
    do {                                                                                \
        int result_ = (int)(call);                                                      \
        if (result_ != 0) {                                                             \
            fprintf(stderr, "%s: %d (line %d)\n", #call, result_, __LINE__);            \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

static const size_t copy_bytes = (size_t)1 << 30, workspace_bytes = (size_t)32 << 20;

__global__ void copy(float4 *to, const float4 *from, size_t n)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        to[i] = from[i];
}

static float median_of_five(CUstream stream, void (*work)(CUstream, void *), void *data)
{
    float best[5];
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    work(stream, data);
    for (int i = 0; i < 5; i++) {
        CHECK(cudaEventRecord(begin, stream));
        work(stream, data);
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&best[i], begin, end));
    }
    for (int i = 0; i < 5; i++)
        for (int k = i + 1; k < 5; k++)
            if (best[k] < best[i]) {
                float t = best[i];
                best[i] = best[k];
                best[k] = t;
            }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    return best[2];
}

struct copying {
    float4 *to, *from;
    int blocks;
};

static void do_copy(CUstream stream, void *data)
{
    const copying *c = (const copying *)data;
    copy<<<c->blocks, 512, 0, stream>>>(c->to, c->from, copy_bytes / sizeof(float4));
    CHECK(cudaGetLastError());
}

struct product {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t chosen;
    void *pa, *pb, *pc, *workspace;
};

static void do_product(CUstream stream, void *data)
{
    const product *p = (const product *)data;
    float one = 1, zero = 0;
    CHECK(cublasLtMatmul(p->handle, p->desc, &one, p->pa, p->a, p->pb, p->b, &zero, p->pc, p->c, p->pc,
                         p->c, &p->chosen.algo, p->workspace, workspace_bytes, stream));
}

/* y[m,n] = x[m,k] W[n,k]^T in bf16; false: the heuristics have nothing. */
static bool make_product(cublasLtHandle_t handle, int m, int n, int k, int sms, product *p)
{
    cublasOperation_t t = CUBLAS_OP_T;
    cublasLtMatmulPreference_t pref;
    int found = 0;
    size_t most = workspace_bytes;
    p->handle = handle;
    CHECK(cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t));
    CHECK(cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, &sms,
                                         sizeof sms));
    CHECK(cublasLtMatrixLayoutCreate(&p->a, CUDA_R_16BF, k, n, k));
    CHECK(cublasLtMatrixLayoutCreate(&p->b, CUDA_R_16BF, k, m, k));
    CHECK(cublasLtMatrixLayoutCreate(&p->c, CUDA_R_16BF, n, m, n));
    CHECK(cublasLtMatmulPreferenceCreate(&pref));
    CHECK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                               sizeof most));
    cublasLtMatmulAlgoGetHeuristic(handle, p->desc, p->a, p->b, p->c, p->c, pref, 1, &p->chosen, &found);
    cublasLtMatmulPreferenceDestroy(pref);
    return found == 1;
}

static void free_product(product *p)
{
    cublasLtMatrixLayoutDestroy(p->a);
    cublasLtMatrixLayoutDestroy(p->b);
    cublasLtMatrixLayoutDestroy(p->c);
    cublasLtMatmulDescDestroy(p->desc);
}

static int config(const product *p, cublasLtMatmulAlgoConfigAttributes_t attr)
{
    int value = -1;
    size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&p->chosen.algo, attr, &value, sizeof value, &written) !=
        CUBLAS_STATUS_SUCCESS)
        return -1;
    return attr == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? value & 0xffff : value;
}

static void put_limits(CUdevice device)
{
    static const struct {
        const char *name;
        CUdevice_attribute attr;
    } rows[] = {{"sms", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
                {"l2_bytes", CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
                {"persisting_l2_bytes", CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE},
                {"window_bytes", CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE},
                {"shared_bytes_per_block", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
                {"shared_bytes_per_sm", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
                {"mps", CU_DEVICE_ATTRIBUTE_MPS_ENABLED}};
    printf(" \"limits\": {");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int value = -1;
        cuDeviceGetAttribute(&value, rows[i].attr, device);
        printf("%s\"%s\": %d", i ? ", " : "", rows[i].name, value);
    }
    printf("},\n");
}

/* Rates of a partition of the first groups of 8 SMs. */
static void put_partitions(CUdevice device, cublasLtHandle_t handle, void *a, void *b, void *c,
                           void *workspace)
{
    CUdevResource all, rest;
    unsigned int n = 0;
    CHECK(cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK(cuDevSmResourceSplitByCount(NULL, &n, &all, &rest, 0, 8));
    std::vector<CUdevResource> group(n);
    CHECK(cuDevSmResourceSplitByCount(group.data(), &n, &all, &rest, 0, 8));
    printf(" \"green\": {\"groups\": %u, \"group_sms\": %u, \"rest_sms\": %u, \"rates\": [", n,
           group[0].sm.smCount, rest.sm.smCount);
    for (unsigned int used = 1; used <= n; used = used < 4 ? used + 1 : used + 2) {
        CUdevResourceDesc desc;
        CUgreenCtx green;
        CUstream stream;
        CHECK(cuDevResourceGenerateDesc(&desc, group.data(), used));
        CHECK(cuGreenCtxCreate(&green, desc, device, CU_GREEN_CTX_DEFAULT_STREAM));
        CHECK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
        int sms = (int)(used * group[0].sm.smCount);
        copying copied = {(float4 *)b, (float4 *)a, sms * 4};
        float copy_ms = median_of_five(stream, do_copy, &copied);
        product p;
        p.pa = a, p.pb = b, p.pc = c, p.workspace = workspace;
        float product_ms = 0;
        if (make_product(handle, 4096, 4096, 4096, sms, &p))
            product_ms = median_of_five(stream, do_product, &p);
        free_product(&p);
        printf("%s{\"sms\": %d, \"copy_gbps\": %.1f, \"bf16_tflops\": %.1f}", used == 1 ? "" : ", ", sms,
               2e-6 * (double)copy_bytes / copy_ms,
               product_ms > 0 ? 2e-9 * 4096. * 4096. * 4096. / product_ms : 0.);
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuStreamDestroy(stream));
        CHECK(cuGreenCtxDestroy(green));
    }
    printf("]},\n");
}

static void put_heuristics(cublasLtHandle_t handle)
{
    static const int ms[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
    static const int nk[][2] = {{768, 768},   {3072, 768},  {768, 3072},  {1024, 1024}, {4096, 1024},
                                {1024, 4096}, {4096, 4096}, {11008, 4096}, {4096, 11008}, {1000, 2048}};
    static const int targets[] = {132, 64, 32, 8};
    bool first = true;
    printf(" \"heuristics\": [\n");
    for (int target : targets)
        for (const int *shape : nk)
            for (int m : ms) {
                product p;
                if (make_product(handle, m, shape[0], shape[1], target, &p)) {
                    printf("%s[%d, %d, %d, %d, %d, %d, %d, %d, %d, %.3f, %zu]", first ? "  " : ",\n  ", target,
                           m, shape[0], shape[1], config(&p, CUBLASLT_ALGO_CONFIG_ID),
                           config(&p, CUBLASLT_ALGO_CONFIG_TILE_ID), config(&p, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                           config(&p, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
                           config(&p, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), (double)p.chosen.wavesCount,
                           p.chosen.workspaceSize);
                    first = false;
                }
                free_product(&p);
            }
    printf("],\n \"heuristics_columns\": [\"sms\", \"m\", \"n\", \"k\", \"algorithm\", \"tile\", "
           "\"stages\", \"cluster\", \"split_k\", \"waves\", \"workspace_bytes\"]\n");
}

int main()
{
    CUdevice device;
    cublasLtHandle_t handle;
    void *a, *b, *c, *workspace;
    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(0));
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cudaMalloc(&a, copy_bytes));
    CHECK(cudaMalloc(&b, copy_bytes));
    CHECK(cudaMalloc(&c, copy_bytes));
    CHECK(cudaMalloc(&workspace, workspace_bytes));
    CHECK(cudaMemset(a, 1, copy_bytes));
    CHECK(cudaMemset(b, 1, copy_bytes));
    CHECK(cublasLtCreate(&handle));
    printf("{\"cublaslt\": %zu,\n", cublasLtGetVersion());
    put_limits(device);
    put_partitions(device, handle, a, b, c, workspace);
    put_heuristics(handle);
    printf("}\n");
    return 0;
}
