/* Tests of the doubles themselves: they execute work, and find each planted mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "doubles_world.h"

#include <pthread.h>

static doubles d;
static weft_cu_api *api;

static const char source[] =
    "extern \"C\" __global__ void __launch_bounds__(64)\n"
    "scale(const float *__restrict__ x, float *__restrict__ y, float by, int n)\n"
    "{\n"
    "    int i = blockIdx.x * 64 + threadIdx.x;\n"
    "    if (i < n)\n"
    "        y[i] = by * x[i];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(64, 2)\n"
    "reversed(float *x)\n"
    "{\n"
    "    __shared__ float s[64];\n"
    "    s[threadIdx.x] = x[threadIdx.x];\n"
    "    __syncthreads();\n"
    "    x[threadIdx.x] = s[63 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void __launch_bounds__(64)\n"
    "half_waits(float *x)\n"
    "{\n"
    "    if (threadIdx.x < 32)\n"
    "        __syncthreads();\n"
    "    x[0] = 1;\n"
    "}\n";

static weft_cu_library lib; /* the source above, loaded into the current context */
static void *image;

static int start(void **state)
{
    (void)state;
    unsetenv("WEFT_DOUBLE_FAIL");
    unsetenv("WEFT_DOUBLE_MEM");
    doubles_start(&d);
    return 0;
}

/* Resets the doubles after a test that leaves objects on purpose. */
static int forget(void **state)
{
    (void)state;
    const char *text;
    d.mistakes(&text);
    d.lt_mistakes(&text);
    d.reset();
    return 0;
}

static void load_source(void)
{
    free(image);
    image = doubles_compile(&d, source, "sm_90");
    assert_int_equal(api->cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0), 0);
}

typedef struct scale_args {
    weft_cu_deviceptr x, y;
    float by;
    int n;
    void *at[4];
} scale_args;

static void **fill(scale_args *a, weft_cu_deviceptr x, weft_cu_deviceptr y, float by, int n)
{
    *a = (scale_args){.x = x, .y = y, .by = by, .n = n};
    a->at[0] = &a->x;
    a->at[1] = &a->y;
    a->at[2] = &a->by;
    a->at[3] = &a->n;
    return a->at;
}

static weft_cu_result launch(const char *name, unsigned grid, unsigned threads, void **param)
{
    return api->cuLaunchKernel((weft_cu_function)doubles_kernel(&d, lib, name), grid, 1, 1, threads,
                               1, 1, 0, d.stream, param, NULL);
}

/* -- Execution ------------------------------------------------------------------------------- */

static void test_doubles__run_kernels(void **state)
{
    (void)state;
    load_source();
    weft_cu_deviceptr x = doubles_alloc(&d, 400), y = doubles_alloc(&d, 400);
    float host[100], back[100];
    for (int i = 0; i < 100; i++)
        host[i] = (float)i;
    scale_args a;
    assert_int_equal(api->cuMemcpyHtoDAsync(x, host, sizeof host, d.stream), 0);
    host[3] = 77; /* the pageable source was copied when enqueued */
    assert_int_equal(launch("scale", 2, 64, fill(&a, x, y, 3, 100)), 0);
    assert_int_equal(launch("reversed", 1, 64, (void *[]){&y}), 0);
    assert_int_equal(api->cuMemcpyDtoHAsync(back, y, sizeof back, d.stream), 0);
    assert_int_equal(api->cuStreamSynchronize(d.stream), 0);
    for (int i = 0; i < 100; i++)
        assert_true(back[i] == 3 * (float)(i < 64 ? 63 - i : i));
    assert_int_equal(api->cuMemFree(x), 0);
    assert_int_equal(api->cuMemFree(y), 0);
    assert_int_equal(api->cuLibraryUnload(lib), 0);
    doubles_end(&d);
}

static void test_doubles__run_work_when_it_is_waited_for(void **state)
{
    (void)state;
    weft_cu_deviceptr x = doubles_alloc(&d, 16);
    float *pinned;
    assert_int_equal(api->cuMemHostAlloc((void **)&pinned, 32, 0), 0);
    pinned[0] = 1;
    pinned[4] = 0;
    assert_int_equal(api->cuMemcpyHtoDAsync(x, pinned, 16, d.stream), 0);
    assert_int_equal(api->cuMemcpyDtoHAsync(pinned + 4, x, 16, d.stream), 0);
    assert_true(pinned[4] == 0);
    pinned[0] = 2; /* changed too early */
    assert_int_equal(api->cuStreamSynchronize(d.stream), 0);
    assert_true(pinned[4] == 2);
    assert_int_equal(api->cuMemFree(x), 0);
    assert_int_equal(api->cuMemFreeHost(pinned), 0);
    doubles_end(&d);
}

static weft_cu_node_params kernel_node(const char *name, unsigned grid, void **param)
{
    weft_cu_node_params p;
    memset(&p, 0, sizeof p);
    p.type = WEFT_CU_GRAPH_NODE_TYPE_KERNEL;
    p.u.kernel.kern = doubles_kernel(&d, lib, name);
    p.u.kernel.gridDimX = grid;
    p.u.kernel.gridDimY = p.u.kernel.gridDimZ = 1;
    p.u.kernel.blockDimX = 64;
    p.u.kernel.blockDimY = p.u.kernel.blockDimZ = 1;
    p.u.kernel.kernelParams = param;
    return p;
}

/* Runs x -> scale 2 -> y -> scale 5 -> z as a graph, with or without its edge. */
static void run_chain(bool edge, float out[64])
{
    load_source();
    weft_cu_deviceptr x = doubles_alloc(&d, 256), y = doubles_alloc(&d, 256);
    weft_cu_deviceptr z = doubles_alloc(&d, 256);
    float ones[64];
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    assert_int_equal(api->cuMemcpyHtoDAsync(x, ones, sizeof ones, d.stream), 0);
    weft_cu_graph g;
    weft_cu_graph_node n[2];
    weft_cu_graph_exec exec;
    scale_args a, b;
    assert_int_equal(api->cuGraphCreate(&g, 0), 0);
    weft_cu_node_params p = kernel_node("scale", 1, fill(&a, x, y, 2, 64));
    assert_int_equal(api->cuGraphAddNode(&n[0], g, NULL, 0, &p), 0);
    p = kernel_node("scale", 1, fill(&b, y, z, 5, 64));
    assert_int_equal(api->cuGraphAddNode(&n[1], g, n, edge ? 1 : 0, &p), 0);
    assert_int_equal(api->cuGraphInstantiateWithFlags(&exec, g, 0), 0);
    assert_int_equal(api->cuGraphDestroy(g), 0);
    assert_int_equal(api->cuGraphUpload(exec, d.stream), 0);
    assert_int_equal(api->cuGraphLaunch(exec, d.stream), 0);
    assert_int_equal(api->cuMemcpyDtoHAsync(out, z, 256, d.stream), 0);
    assert_int_equal(api->cuStreamSynchronize(d.stream), 0);
    assert_int_equal(api->cuGraphExecDestroy(exec), 0);
    assert_int_equal(api->cuMemFree(x), 0);
    assert_int_equal(api->cuMemFree(y), 0);
    assert_int_equal(api->cuMemFree(z), 0);
    assert_int_equal(api->cuLibraryUnload(lib), 0);
}

static void test_doubles__run_graphs(void **state)
{
    (void)state;
    float out[64];
    run_chain(true, out);
    assert_true(out[63] == 10);
    doubles_end(&d);
}

static void test_doubles__find_a_missing_edge(void **state)
{
    (void)state;
    float out[64];
    run_chain(false, out);
    assert_true(out[63] != 10);
    const char *watch = getenv("WEFT_DOUBLE_WATCH");
    if (watch && *watch == '1') /* otherwise only wrong results show it */
        doubles_found(&d, "no edge between kernel scale and kernel scale");
}

/* -- Planted mistakes ------------------------------------------------------------------------- */

static void test_doubles__find_uses_after_free(void **state)
{
    (void)state;
    load_source();
    weft_cu_deviceptr x = doubles_alloc(&d, 256), y = doubles_alloc(&d, 256);
    scale_args a;
    float host[64];
    assert_int_equal(api->cuMemFree(x), 0);
    assert_int_not_equal(api->cuMemcpyDtoHAsync(host, x, 256, d.stream), 0);
    doubles_found(&d, "were freed before");
    assert_int_not_equal(launch("scale", 1, 64, fill(&a, x, y, 1, 64)), 0);
    doubles_found(&d, "argument 0: 0 bytes at");
    assert_int_not_equal(api->cuMemFree(x), 0);
    doubles_found(&d, "was freed before");
}

static void test_doubles__find_dead_handles(void **state)
{
    (void)state;
    load_source();
    weft_cu_kernel k = doubles_kernel(&d, lib, "reversed");
    weft_cu_deviceptr x = doubles_alloc(&d, 256);
    weft_cu_stream other;
    assert_int_equal(api->cuLibraryUnload(lib), 0);
    assert_int_not_equal(api->cuLaunchKernel((weft_cu_function)k, 1, 1, 1, 64, 1, 1, 0, d.stream,
                                             (void *[]){&x}, NULL),
                         0);
    doubles_found(&d, "kernel 1 was destroyed before");
    assert_int_equal(api->cuStreamCreate(&other, WEFT_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api->cuStreamDestroy(other), 0);
    assert_int_not_equal(api->cuStreamSynchronize(other), 0);
    doubles_found(&d, "stream 2 was destroyed before");
    assert_int_not_equal(api->cuStreamSynchronize((weft_cu_stream)&other), 0);
    doubles_found(&d, "is not a stream");
}

static void test_doubles__find_offsets_out_of_bounds(void **state)
{
    (void)state;
    load_source();
    weft_cu_deviceptr x = doubles_alloc(&d, 250), y = doubles_alloc(&d, 4096);
    scale_args a;
    char host[512];
    assert_int_not_equal(api->cuMemcpyDtoHAsync(host, x + 16, 240, d.stream), 0);
    doubles_found(&d, "are not inside the 250 bytes");
    assert_int_not_equal(api->cuMemsetD8Async(x, 0, 251, d.stream), 0);
    doubles_found(&d, "are not inside the 250 bytes");
    assert_int_not_equal(launch("scale", 1, 64, fill(&a, x + 2, y, 1, 64)), 0);
    doubles_found(&d, "is not a multiple of 4");
    assert_int_not_equal(launch("scale", 1, 64, fill(&a, (uintptr_t)host, y, 1, 64)), 0);
    doubles_found(&d, "is not a device address");
    /* The kernel accesses memory out of bounds: the fault occurs when it runs, and is sticky. */
    assert_int_equal(launch("scale", 20, 64, fill(&a, x, y, 1, 1280)), 0);
    assert_int_equal(api->cuStreamSynchronize(d.stream), WEFT_CUDA_ERROR_ILLEGAL_ADDRESS);
    doubles_found(&d, "scale: block 1,0,0 thread 0: access outside memory");
    assert_int_equal(api->cuStreamSynchronize(d.stream), WEFT_CUDA_ERROR_ILLEGAL_ADDRESS);
    size_t free_bytes, total;
    assert_int_equal(api->cuMemGetInfo(&free_bytes, &total), WEFT_CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void test_doubles__find_wrong_launches(void **state)
{
    (void)state;
    load_source();
    weft_cu_deviceptr x = doubles_alloc(&d, 256);
    scale_args a;
    assert_int_not_equal(launch("scale", 1, 65, fill(&a, x, x, 1, 64)), 0);
    doubles_found(&d, "a block size it was not compiled for");
    assert_int_not_equal(launch("scale", 0, 64, fill(&a, x, x, 1, 64)), 0);
    doubles_found(&d, "an empty grid");
    assert_int_not_equal(launch("scale", 1, 64, NULL), 0);
    doubles_found(&d, "takes 4 arguments");
    assert_int_not_equal(api->cuLaunchKernel((weft_cu_function)doubles_kernel(&d, lib, "reversed"),
                                             1, 1, 1, 64, 1, 1, 49153, d.stream, (void *[]){&x},
                                             NULL),
                         0);
    doubles_found(&d, "more shared memory than requested");
    assert_int_equal(launch("half_waits", 1, 64, (void *[]){&x}), 0);
    assert_int_not_equal(api->cuStreamSynchronize(d.stream), 0);
    doubles_found(&d, "half_waits");
}

static void test_doubles__find_what_is_left(void **state)
{
    (void)state;
    doubles_alloc(&d, 1000);
    assert_int_equal(api->cuDevicePrimaryCtxRelease(0), 0);
    const char *text;
    assert_int_equal(d.mistakes(&text), 2);
    assert_non_null(strstr(text, "stream 1 was not destroyed"));
    assert_non_null(strstr(text, "1000 bytes of its memory"));
}

static void test_doubles__find_streams_that_meet(void **state)
{
    (void)state;
    weft_cu_deviceptr x = doubles_alloc(&d, 256);
    weft_cu_stream other;
    assert_int_equal(api->cuStreamCreate(&other, WEFT_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(api->cuMemsetD8Async(x, 1, 200, d.stream), 0);
    assert_int_equal(api->cuStreamSynchronize(d.stream), 0);
    assert_int_equal(api->cuMemsetD8Async(x, 1, 200, other), 0);
    assert_int_equal(api->cuStreamSynchronize(other), 0);
    assert_int_equal(d.mistakes(NULL), 0);
    assert_int_equal(api->cuMemsetD8Async(x, 1, 200, d.stream), 0);
    assert_int_equal(api->cuMemsetD8Async(x + 199, 1, 1, other), 0);
    assert_int_equal(api->cuStreamSynchronize(other), 0);
    assert_int_equal(api->cuStreamSynchronize(d.stream), 0);
    doubles_found(&d, "may run at the same time");
}

static void test_doubles__find_wrong_order(void **state)
{
    (void)state;
    load_source();
    weft_cu_graph g;
    weft_cu_graph_node n;
    weft_cu_deviceptr x = doubles_alloc(&d, 256);
    assert_int_equal(api->cuGraphCreate(&g, 0), 0);
    assert_int_equal(api->cuStreamBeginCaptureToGraph(d.stream, g, NULL, NULL, 0,
                                                      WEFT_CU_STREAM_CAPTURE_MODE_RELAXED),
                     0);
    assert_int_not_equal(api->cuStreamSynchronize(d.stream), 0);
    doubles_found(&d, "is being captured");
    weft_cu_graph same;
    assert_int_equal(api->cuStreamEndCapture(d.stream, &same),
                     WEFT_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(same);
    assert_int_not_equal(api->cuGraphDestroy(g), 0);
    doubles_found(&d, "was destroyed before"); /* destroyed by the failed capture */
    assert_int_not_equal(api->cuStreamEndCapture(d.stream, &same), 0);
    doubles_found(&d, "is not captured");
    weft_cu_node_params p = kernel_node("reversed", 1, (void *[]){&x});
    p.reserved0[1] = 1;
    assert_int_equal(api->cuGraphCreate(&g, 0), 0);
    assert_int_not_equal(api->cuGraphAddNode(&n, g, NULL, 0, &p), 0);
    doubles_found(&d, "unused bytes");
    assert_int_equal(api->cuCtxSetCurrent(NULL), 0);
    assert_int_not_equal(api->cuMemAlloc(&x, 1), 0);
    doubles_found(&d, "without a context");
}

/* -- Injected errors ------------------------------------------------------------------------- */

static void test_doubles__fail_on_demand(void **state)
{
    (void)state;
    weft_cu_deviceptr x, y, z;
    setenv("WEFT_DOUBLE_FAIL", "cuMemAlloc:2=2,cuMemFree:1=719", 1);
    setenv("WEFT_DOUBLE_MEM", "1000", 1);
    doubles_start(&d);
    assert_int_equal(api->cuMemAlloc(&x, 600), 0);
    assert_int_equal(api->cuMemAlloc(&y, 100), WEFT_CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(api->cuMemAlloc(&y, 401), WEFT_CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(api->cuMemAlloc(&z, 400), 0);
    assert_int_equal(api->cuMemFree(x), WEFT_CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(api->cuMemFree(z), WEFT_CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(api->cuStreamDestroy(d.stream), WEFT_CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(api->cuDevicePrimaryCtxRelease(0), WEFT_CUDA_ERROR_LAUNCH_FAILED);
    const char *text;
    if (d.mistakes(&text))
        fail_msg("%s", text);
}

static void test_doubles__refuse_bad_images(void **state)
{
    (void)state;
    load_source();
    assert_int_equal(api->cuLibraryUnload(lib), 0);
    weft_double_image *head = image;
    ((char *)image)[head->bytes / 2] ^= 1;
    assert_int_equal(api->cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0),
                     WEFT_CUDA_ERROR_INVALID_IMAGE);
    ((char *)image)[head->bytes / 2] ^= 1;
    memcpy(head->arch, "sm_80", 6);
    assert_int_equal(api->cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0),
                     WEFT_CUDA_ERROR_NO_BINARY_FOR_GPU);
    head->magic[1] = 'X';
    assert_int_equal(api->cuLibraryLoadData(&lib, image, NULL, NULL, 0, NULL, NULL, 0),
                     WEFT_CUDA_ERROR_INVALID_IMAGE);
    doubles_end(&d);
}

/* -- GEMMs ------------------------------------------------------------------------------------ */

enum { M = 5, N = 3, KK = 4 };

typedef struct gemm {
    weft_cublaslt_handle handle;
    weft_cublaslt_desc desc;
    weft_cublaslt_layout a, b, d;
    weft_cublaslt_pref pref;
    weft_cublaslt_heuristic found;
    weft_cu_deviceptr at[4]; /* a, b, d, workspace */
} gemm;

static void make_gemm(gemm *p)
{
    weft_cublaslt_api *lt = &d.lt;
    int n, trans = WEFT_CUBLAS_OP_T;
    uint64_t room = 8192;
    assert_int_equal(lt->cublasLtCreate(&p->handle), 0);
    assert_int_equal(
        lt->cublasLtMatmulDescCreate(&p->desc, WEFT_CUBLAS_COMPUTE_32F, WEFT_CUDA_R_32F), 0);
    assert_int_equal(lt->cublasLtMatmulDescSetAttribute(p->desc, WEFT_CUBLASLT_MATMUL_DESC_TRANSA,
                                                        &trans, sizeof trans),
                     0);
    assert_int_equal(lt->cublasLtMatrixLayoutCreate(&p->a, WEFT_CUDA_R_32F, KK, M, KK), 0);
    assert_int_equal(lt->cublasLtMatrixLayoutCreate(&p->b, WEFT_CUDA_R_32F, KK, N, KK), 0);
    assert_int_equal(lt->cublasLtMatrixLayoutCreate(&p->d, WEFT_CUDA_R_32F, M, N, M), 0);
    assert_int_equal(lt->cublasLtMatmulPreferenceCreate(&p->pref), 0);
    assert_int_equal(
        lt->cublasLtMatmulPreferenceSetAttribute(
            p->pref, WEFT_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room),
        0);
    assert_int_equal(lt->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->a, p->b, p->d, p->d,
                                                        p->pref, 1, &p->found, &n),
                     0);
    assert_int_equal(n, 1);
    const size_t bytes[4] = {M * KK * 4, KK * N * 4, M * N * 4, p->found.workspaceSize};
    for (int i = 0; i < 4; i++)
        p->at[i] = doubles_alloc(&d, bytes[i]);
}

static weft_cublas_status run_gemm(gemm *p)
{
    const float one = 1, zero = 0;
    return d.lt.cublasLtMatmul(
        p->handle, p->desc, &one, (void *)(uintptr_t)p->at[0], p->a, (void *)(uintptr_t)p->at[1],
        p->b, &zero, (void *)(uintptr_t)p->at[2], p->d, (void *)(uintptr_t)p->at[2], p->d,
        &p->found.algo, (void *)(uintptr_t)p->at[3], p->found.workspaceSize, d.stream);
}

static void end_gemm(gemm *p)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(api->cuMemFree(p->at[i]), 0);
    assert_int_equal(d.lt.cublasLtMatmulDescDestroy(p->desc), 0);
    assert_int_equal(d.lt.cublasLtMatrixLayoutDestroy(p->a), 0);
    assert_int_equal(d.lt.cublasLtMatrixLayoutDestroy(p->b), 0);
    assert_int_equal(d.lt.cublasLtMatrixLayoutDestroy(p->d), 0);
    assert_int_equal(d.lt.cublasLtMatmulPreferenceDestroy(p->pref), 0);
    assert_int_equal(d.lt.cublasLtDestroy(p->handle), 0);
}

/* The GEMM is captured into a graph, which is run. */
static void test_doubles__capture_products(void **state)
{
    (void)state;
    gemm p;
    make_gemm(&p);
    float a[M * KK], b[KK * N], out[M * N];
    for (int i = 0; i < M * KK; i++)
        a[i] = (float)(i % 7) - 3;
    for (int i = 0; i < KK * N; i++)
        b[i] = (float)(i % 5);
    weft_cu_graph g, same;
    weft_cu_graph_exec exec;
    assert_int_equal(api->cuGraphCreate(&g, 0), 0);
    assert_int_equal(api->cuStreamBeginCaptureToGraph(d.stream, g, NULL, NULL, 0,
                                                      WEFT_CU_STREAM_CAPTURE_MODE_RELAXED),
                     0);
    assert_int_equal(run_gemm(&p), 0);
    unsigned status;
    const weft_cu_graph_node *last;
    size_t n_last;
    assert_int_equal(api->cuStreamGetCaptureInfo(d.stream, &status, NULL, &same, &last, &n_last),
                     0);
    assert_int_equal(n_last, 1);
    assert_int_equal(api->cuStreamEndCapture(d.stream, &same), 0);
    assert_ptr_equal(same, g);
    assert_int_equal(api->cuGraphInstantiateWithFlags(&exec, g, 0), 0);
    assert_int_equal(api->cuMemcpyHtoDAsync(p.at[0], a, sizeof a, d.stream), 0);
    assert_int_equal(api->cuMemcpyHtoDAsync(p.at[1], b, sizeof b, d.stream), 0);
    assert_int_equal(api->cuGraphLaunch(exec, d.stream), 0);
    assert_int_equal(api->cuMemcpyDtoHAsync(out, p.at[2], sizeof out, d.stream), 0);
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            float sum = 0;
            for (int k = 0; k < KK; k++)
                sum += a[i * KK + k] * b[j * KK + k];
            assert_true(out[j * M + i] == sum);
        }
    assert_int_equal(api->cuGraphExecDestroy(exec), 0);
    assert_int_equal(api->cuGraphDestroy(g), 0);
    end_gemm(&p);
    doubles_end(&d);
}

static void test_doubles__find_wrong_products(void **state)
{
    (void)state;
    gemm p;
    make_gemm(&p);
    weft_cu_deviceptr a = p.at[0];
    p.at[0] = a + 4;
    assert_int_not_equal(run_gemm(&p), 0);
    doubles_found(&d, "A at");
    p.at[0] = a + 256;
    assert_int_not_equal(run_gemm(&p), 0);
    doubles_found(&d, "are not inside");
    p.at[0] = a;
    unsigned epilogue = WEFT_CUBLASLT_EPILOGUE_RELU;
    assert_int_equal(d.lt.cublasLtMatmulDescSetAttribute(p.desc, WEFT_CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                         &epilogue, sizeof epilogue),
                     0);
    assert_int_not_equal(run_gemm(&p), 0);
    doubles_found(&d, "the algorithm was not returned for this GEMM");
    assert_int_equal(d.lt.cublasLtMatrixLayoutDestroy(p.a), 0);
    assert_int_not_equal(run_gemm(&p), 0);
    doubles_found(&d, "was destroyed before");
    assert_int_equal(d.lt.cublasLtDestroy(p.handle), 0);
    doubles_found(&d, "a layout still exists");
}

/* -- Partitions ------------------------------------------------------------------------------- */

static void test_doubles__split_multiprocessors(void **state)
{
    (void)state;
    weft_cu_resource all, group[4], rest;
    unsigned n = 4;
    weft_cu_resource_desc desc;
    weft_cu_green_ctx green;
    weft_cu_stream stream;
    assert_int_equal(api->cuDeviceGetDevResource(0, &all, WEFT_CU_DEV_RESOURCE_TYPE_SM), 0);
    assert_int_equal(all.u.sm.smCount, 132);
    assert_int_equal(api->cuDevSmResourceSplitByCount(group, &n, &all, &rest, 0, 30), 0);
    assert_int_equal(n, 4);
    assert_int_equal(group[0].u.sm.smCount, 32);
    assert_int_equal(rest.u.sm.smCount, 4);
    assert_int_equal(api->cuDevResourceGenerateDesc(&desc, group, 2), 0);
    assert_int_equal(api->cuGreenCtxCreate(&green, desc, 0, WEFT_CU_GREEN_CTX_DEFAULT_STREAM), 0);
    assert_int_equal(api->cuGreenCtxStreamCreate(&stream, green, WEFT_CU_STREAM_NON_BLOCKING, 0),
                     0);
    assert_int_equal(api->cuStreamDestroy(stream), 0);
    assert_int_equal(api->cuGreenCtxDestroy(green), 0);
    doubles_end(&d);
}

static weft_cu_green_ctx make_green(weft_cu_context *out)
{
    weft_cu_resource all, group[1];
    weft_cu_resource_desc desc;
    weft_cu_green_ctx green;
    unsigned n = 1;
    assert_int_equal(api->cuDeviceGetDevResource(0, &all, WEFT_CU_DEV_RESOURCE_TYPE_SM), 0);
    assert_int_equal(api->cuDevSmResourceSplitByCount(group, &n, &all, NULL, 0, 8), 0);
    assert_int_equal(api->cuDevResourceGenerateDesc(&desc, group, 1), 0);
    assert_int_equal(api->cuGreenCtxCreate(&green, desc, 0, WEFT_CU_GREEN_CTX_DEFAULT_STREAM), 0);
    assert_int_equal(api->cuCtxFromGreenCtx(out, green), 0);
    return green;
}

static void *take_ctx(void *ctx)
{
    (void)api->cuCtxSetCurrent(ctx);
    return NULL;
}

static void test_doubles__find_green_contexts_of_two_threads(void **state)
{
    (void)state;
    weft_cu_context ctx;
    pthread_t thread;
    (void)make_green(&ctx);
    assert_int_equal(api->cuCtxSetCurrent(ctx), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_ctx, ctx), 0);
    pthread_join(thread, NULL);
    doubles_found(&d, "is current on another thread");
}

/* A copy in the primary context between nodes in a partition's context. */
static void test_doubles__find_nodes_of_two_contexts(void **state)
{
    (void)state;
    weft_cu_context ctx;
    weft_cu_graph g;
    weft_cu_graph_node n;
    (void)make_green(&ctx);
    weft_cu_node_params set = {.type = WEFT_CU_GRAPH_NODE_TYPE_MEMSET};
    set.u.memset = (weft_cu_memset_node){
        .dst = doubles_alloc(&d, 16), .elementSize = 1, .width = 16, .height = 1, .ctx = ctx};
    assert_int_equal(api->cuGraphCreate(&g, 0), 0);
    assert_int_equal(api->cuGraphAddNode(&n, g, NULL, 0, &set), 0);
    set.u.memset.ctx = d.ctx;
    (void)api->cuGraphAddNode(&n, g, &n, 1, &set);
    doubles_found(&d, "runs in context");
}

static int load_all(void **state)
{
    (void)state;
    doubles_load(&d);
    api = &d.api;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    free(image);
    doubles_close(&d);
    return 0;
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_doubles__##name, start, forget)
    const struct CMUnitTest tests[] = {
        T(run_kernels),
        T(run_work_when_it_is_waited_for),
        T(run_graphs),
        T(find_a_missing_edge),
        T(find_uses_after_free),
        T(find_dead_handles),
        T(find_offsets_out_of_bounds),
        T(find_wrong_launches),
        T(find_what_is_left),
        T(find_streams_that_meet),
        T(find_wrong_order),
        T(fail_on_demand),
        T(refuse_bad_images),
        T(capture_products),
        T(find_wrong_products),
        T(split_multiprocessors),
        T(find_green_contexts_of_two_threads),
        T(find_nodes_of_two_contexts),
    };
    return cmocka_run_group_tests(tests, load_all, close_all);
}
