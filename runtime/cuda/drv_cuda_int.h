/* Private to runtime/: the CUDA driver.
 *
 *   cuda_load.c       libcuda.so.1, libcublasLt.so and libcupti.so, found at run time
 *   drv_cuda.c        the driver's record; devices, partitions, faults
 *   drv_cuda_mem.c    weights, activations, queues and copies
 *   drv_cuda_code.c   images of the bundle into kernels; launches into calls
 *   drv_cuda_gemm.c   products by cuBLASLt
 *   drv_cuda_algo.c   by which of its algorithms: stored, measured, or asked for
 *   drv_cuda_graph.c  all launches of a specialisation as one graph; their times by events
 *   drv_cuda_trace.c  their times by CUPTI
 *
 * Device addresses are `void *` or weft_cu_deviceptr; nobody follows them. */
#ifndef WEFT_RUNTIME_CUDA_DRV_CUDA_INT_H
#define WEFT_RUNTIME_CUDA_DRV_CUDA_INT_H

#include "runtime/cuda/cublaslt_api.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/cupti_api.h"
#include "runtime/session/command_int.h"

/* -- Libraries ------------------------------------------------------------------------------ */

/* First CUDA whose driver will do. */
enum { WEFT_CUDA_VERSION_MIN = 12000 };

typedef struct weft_cuda_lib {
    weft_cu_api api;
    int version; /* of CUDA, that the driver is for: 13000 is 13.0 */
    bool graphs; /* has all that graphs need */
    bool green;  /* has all that partitions need */
} weft_cuda_lib;

typedef struct weft_cublaslt_lib {
    weft_cublaslt_api api;
    size_t version;
} weft_cublaslt_lib;

/* Loaded once and kept until the process ends. NODEV with what was looked for, or with the version
 * that is needed and the one found. Thread-safe. */
WEFT_MUST_USE weft_err weft_cuda_lib__get(weft_diag *diag, const weft_cuda_lib **out);
WEFT_MUST_USE weft_err weft_cublaslt_lib__get(weft_diag *diag, const weft_cublaslt_lib **out);

/* NULL: not here; looked for once. Thread-safe. */
const weft_cupti_api *weft_cupti_lib__get(void);

/* -- Devices -------------------------------------------------------------------------------- */

enum { WEFT_GPU_TEXT_MAX = 256 };

/* What weights of one session's model were loaded into. */
typedef struct weft_gpu_chunk {
    struct weft_gpu_chunk *next;
    weft_cu_deviceptr at;
    uint64_t bytes;
} weft_gpu_chunk;

/* engine->device */
typedef struct weft_gpu {
    const weft_cu_api *cu;
    const weft_cuda_lib *lib;
    weft_cu_device device;
    weft_cu_context primary; /* memory is its, and it is current where calls are made */
    weft_cu_context ctx;     /* nodes of graphs run in it: the primary one, or that of `green` */
    weft_cu_green_ctx green; /* NULL: the whole device; calls that name it are under the lock */
    weft_cu_stream load;     /* for weights and zeros; under the lock */
    char name[WEFT_GPU_TEXT_MAX];
    int cc;       /* 90: compute capability 9.0 */
    uint32_t sms; /* of the partition */
    uint64_t mem_bytes;
    pthread_mutex_t lock;
    /* Code, by module and by kernel of the bundle; under the lock. */
    uint32_t arch;  /* of machine code; n_arch: PTX */
    char image[16]; /* name of the images that are used, "sm_90" */
    weft_command_limits limits;
    weft_cu_library *module;
    uint32_t n_module;
    weft_cu_kernel *kernel;
    /* By weight of the bundle, 0: not loaded; under the lock. */
    weft_cu_deviceptr *weight;
    weft_gpu_chunk *chunk;
    _Atomic uint64_t weight_bytes; /* both read without the lock */
    _Atomic uint64_t arena_bytes;
    /* Made when the first product is prepared; under the lock. */
    const weft_cublaslt_lib *lt;
    weft_cublaslt_handle lt_handle;
    const weft_bundle_tuning *tuning; /* of the bundle, for this device; NULL: none */
    /* Why it cannot be used any more; the text is written before the flag, under its own lock. */
    pthread_mutex_t lost_lock;
    _Atomic bool is_lost;
    char lost[WEFT_GPU_TEXT_MAX];
} weft_gpu;

typedef struct weft_gpu_queue {
    weft_cu_stream stream;
    weft_cu_event *event;
    uint32_t n_event;
} weft_gpu_queue;

static inline weft_gpu *weft_gpu__of(const weft_engine *engine)
{
    return engine->device;
}

/* Makes its primary context the thread's: a green one may be current to one thread at a time, and
 * is reached through its streams and nodes. What it may answer, the next call answers too. */
static inline void weft_gpu__enter(weft_gpu *g)
{
    (void)g->cu->cuCtxSetCurrent(g->primary);
}

/* What `result` of the function `call` comes to; OK for success. NOMEM: out of memory; NODEV: the
 * device is lost, and is noted as such, or cannot be had; BUG: a call that we should not have made.
 */
WEFT_MUST_USE weft_err weft_gpu__check(weft_gpu *g, weft_cu_result result, const char *call,
                                       weft_diag *diag);

/* -- Memory: hooks of the driver ------------------------------------------------------------ */

weft_err weft_gpu__alloc(weft_engine *e, uint64_t bytes, weft_diag *diag, void **out);
void weft_gpu__free(weft_engine *e, void *data, uint64_t bytes);
weft_err weft_gpu__load_weights(weft_engine *e, const uint32_t *weight, uint32_t n,
                                weft_diag *diag);
void *weft_gpu__weight(weft_engine *e, uint32_t weight);
uint64_t weft_gpu__weight_bytes(weft_engine *e);
void weft_gpu__free_weights(weft_engine *e);
void weft_gpu__note_memory(weft_engine *e, weft_diag *diag);
weft_err weft_gpu__host_alloc(weft_engine *e, uint64_t bytes, void **out);
void weft_gpu__host_free(weft_engine *e, void *data, uint64_t bytes);
weft_err weft_gpu__open_stream(weft_gpu *g, weft_diag *diag, weft_cu_stream *out);
weft_err weft_gpu__open_queue(weft_engine *e, weft_diag *diag, void **out);
void weft_gpu__close_queue(weft_engine *e, void *queue);
weft_err weft_gpu__copy_in(weft_engine *e, void *queue, void *to, const void *from, uint64_t bytes,
                           weft_diag *diag);
weft_err weft_gpu__copy_out(weft_engine *e, void *queue, void *to, const void *from, uint64_t bytes,
                            weft_diag *diag);
weft_err weft_gpu__wait(weft_engine *e, void *queue, weft_diag *diag);

/* -- Code ----------------------------------------------------------------------------------- */

typedef struct weft_gpu_product weft_gpu_product;

/* State of a launch that is ready to run. */
typedef struct weft_gpu_launch {
    weft_gpu *gpu;
    weft_command_list *commands;
    weft_cu_kernel *kernel; /* by command */
    const weft_bundle_kernel **row;
    weft_gpu_product **product; /* by command */
    uint64_t workspace_offset;  /* in scratch memory */
    /* Arguments of the kernel at hand. */
    void **param;
    uint64_t *word;
} weft_gpu_launch;

/* Which images of the bundle this device takes; NODEV when it has none for it. */
WEFT_MUST_USE weft_err weft_gpu__choose_images(weft_engine *e, weft_diag *diag);
void weft_gpu__unload_images(weft_gpu *g);
weft_err weft_gpu__prepare(weft_prep *p);
/* Address of an argument. */
static inline weft_cu_deviceptr weft_gpu__address(void *const *arg, weft_command_ref ref)
{
    return (weft_cu_deviceptr)(uintptr_t)arg[ref.at] + ref.offset;
}
/* Arguments of command i in launch->param. */
void weft_gpu__set_params(weft_gpu_launch *l, uint32_t i, void *const *arg);
/* Before command i is captured. */
WEFT_MUST_USE weft_err weft_gpu__warm_command(weft_gpu_launch *l, uint32_t i, void *const *arg,
                                              weft_cu_stream stream, weft_diag *diag);
/* Puts command i into a stream. */
WEFT_MUST_USE weft_err weft_gpu__run_command(weft_gpu_launch *l, uint32_t i, void *const *arg,
                                             weft_cu_stream stream, weft_diag *diag);

/* -- Products ------------------------------------------------------------------------------- */

struct weft_gpu_product {
    weft_gpu *gpu;
    const weft_cublaslt_api *lt;
    const weft_command_gemm *now; /* of the launch's commands */
    weft_cublaslt_desc desc;
    weft_cublaslt_layout a, b, c, d; /* cuBLASLt's A and B */
    weft_cublaslt_algo algo;
    size_t workspace;
    bool warm;
};

/* Where the operands of a product are, in the order of its own: b of the command is its A. */
typedef struct weft_gpu_operands {
    weft_cu_deviceptr a, b, c, d, bias, workspace; /* c, bias: of no meaning where there is none */
} weft_gpu_operands;

/* Chooses an algorithm of cuBLASLt. *workspace: bytes that it takes, from a multiple of
 * WEFT_GPU_WORKSPACE_ALIGN on. `bare`: what finishes the product is there; set when cuBLASLt has no
 * algorithm with c, bias and act, and the command's product is without them now. */
enum { WEFT_GPU_WORKSPACE_ALIGN = 256 };
WEFT_MUST_USE weft_err weft_gpu__make_product(weft_gpu *g, const weft_prep *p,
                                              const weft_command_list *commands, uint32_t command,
                                              bool *bare, weft_gpu_product **out,
                                              uint64_t *workspace);
void weft_gpu__free_product(weft_gpu_product *product);
/* Errors of cuBLASLt in words. */
WEFT_MUST_USE weft_err weft_gpu__check_blas(weft_gpu *g, weft_cublas_status status,
                                            const char *call, weft_diag *diag);
WEFT_MUST_USE weft_err weft_gpu__set_bias(weft_gpu_product *product, weft_cu_deviceptr at,
                                          weft_diag *diag);
/* Sets the product's algorithm and workspace; *found false: there is none. */
WEFT_MUST_USE weft_err weft_gpu__choose_algo(weft_gpu_product *product, const weft_prep *p,
                                             const weft_command_list *commands, bool *found);
/* What of the bundle's tunings is for this device and library. */
void weft_gpu__find_tuning(weft_gpu *g, const weft_bundle *bundle);
WEFT_MUST_USE weft_err weft_gpu__multiply(weft_gpu_product *product, const weft_gpu_operands *at,
                                          weft_cu_stream stream, weft_diag *diag);
WEFT_MUST_USE weft_err weft_gpu__run_product(weft_gpu_product *product, void *const *arg,
                                             weft_cu_deviceptr workspace, weft_cu_stream stream,
                                             weft_diag *diag);
/* Runs it once, on whatever its operands hold, unless that was done: the library loads code when it
 * is first used, which must not happen in a capture. */
WEFT_MUST_USE weft_err weft_gpu__warm_product(weft_gpu_product *product, void *const *arg,
                                              weft_cu_deviceptr workspace, weft_cu_stream stream,
                                              weft_diag *diag);
void weft_gpu__close_products(weft_gpu *g);

/* -- Graphs: hooks of the driver ------------------------------------------------------------ */

weft_err weft_gpu__record_graph(weft_engine *e, void *queue, const weft_bound_list *list,
                                weft_diag *diag, void **inout);
void weft_gpu__free_graph(weft_engine *e, void *graph);
weft_err weft_gpu__run_graph(weft_engine *e, void *queue, void *graph, weft_diag *diag);
weft_err weft_gpu__run_graph_timed(weft_engine *e, void *queue, void *graph, double *time_us,
                                   weft_diag *diag);
weft_err weft_gpu__time_graph(weft_engine *e, void *queue, void *graph, uint32_t n, double *out_us,
                              weft_diag *diag);

/* Puts a launch into the queue's stream. */
WEFT_MUST_USE weft_err weft_gpu__run_launch(weft_gpu_queue *queue, const weft_bound *launch,
                                            weft_diag *diag);
/* Times by CUPTI; false: it is not here, or refuses. After true, launches are run by what follows,
 * one after the other, and the trace is ended: there is one at a time. */
bool weft_gpu__trace_begin(void);
WEFT_MUST_USE weft_err weft_gpu__trace_launch(weft_gpu_queue *queue, const weft_bound_list *list,
                                              uint32_t i, weft_diag *diag);
/* True: it told the time on the device of each, and they were added to time_us[bound.launch]. */
bool weft_gpu__trace_end(const weft_bound_list *list, double *time_us);

#endif
