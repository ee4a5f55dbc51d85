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

#include "runtime/cuda/cuda_load.h"
#include "runtime/kernel/kernel.h"

/* -- Devices -------------------------------------------------------------------------------- */

enum { WEFT_CUDEV_TEXT_MAX = 256 };

/* What weights of one session's model were loaded into. */
typedef struct weft_cudev_chunk {
    struct weft_cudev_chunk *next;
    weft_cu_deviceptr at;
    uint64_t bytes;
} weft_cudev_chunk;

/* engine->device */
typedef struct weft_cudev {
    const weft_cu_api *cu;
    const weft_libcuda *lib;
    weft_cu_device device;
    weft_cu_context primary; /* memory is its, and it is current where calls are made */
    weft_cu_context ctx;     /* nodes of graphs run in it: the primary one, or that of `green` */
    weft_cu_green_ctx green; /* NULL: the whole device; calls that name it are under the lock */
    weft_cu_stream load;     /* for weights and zeros; under the lock */
    char name[WEFT_CUDEV_TEXT_MAX];
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
    weft_cudev_chunk *chunk;
    _Atomic uint64_t weight_bytes; /* both read without the lock */
    _Atomic uint64_t arena_bytes;
    /* Made when the first product is prepared; under the lock. */
    const weft_libcublaslt *lt;
    weft_cublaslt_handle lt_handle;
    const weft_bundle_tuning *tuning; /* of the bundle, for this device; NULL: none */
    /* Why it cannot be used any more; the text is written before the flag, under its own lock. */
    pthread_mutex_t lost_lock;
    _Atomic bool is_lost;
    char lost[WEFT_CUDEV_TEXT_MAX];
} weft_cudev;

typedef struct weft_cudev_queue {
    weft_cu_stream stream;
    weft_cu_event *event;
    uint32_t n_event;
} weft_cudev_queue;

static inline weft_cudev *weft_cudev__of(const weft_engine *engine)
{
    return engine->device;
}

/* Makes its primary context the thread's: a green one may be current to one thread at a time, and
 * is reached through its streams and nodes. What it may answer, the next call answers too. */
static inline void weft_cudev__enter(weft_cudev *g)
{
    (void)g->cu->cuCtxSetCurrent(g->primary);
}

/* What `result` of the function `call` comes to; OK for success. NOMEM: out of memory; NODEV: the
 * device is lost, and is noted as such, or cannot be had; BUG: a call that we should not have made.
 */
WEFT_MUST_USE weft_err weft_cudev__check(weft_cudev *g, weft_cu_result result, const char *call,
                                         weft_diag *diag);

/* -- Memory: hooks of the driver ------------------------------------------------------------ */

weft_err weft_cudev__alloc(weft_engine *e, uint64_t bytes, weft_diag *diag, void **out);
void weft_cudev__free(weft_engine *e, void *data, uint64_t bytes);
weft_err weft_cudev__load_weights(weft_engine *e, const uint32_t *weight, uint32_t n,
                                  weft_diag *diag);
void *weft_cudev__weight(weft_engine *e, uint32_t weight);
uint64_t weft_cudev__weight_bytes(weft_engine *e);
void weft_cudev__free_weights(weft_engine *e);
void weft_cudev__note_memory(weft_engine *e, weft_diag *diag);
weft_err weft_cudev__host_alloc(weft_engine *e, uint64_t bytes, void **out);
void weft_cudev__host_free(weft_engine *e, void *data, uint64_t bytes);
weft_err weft_cudev__open_stream(weft_cudev *g, weft_diag *diag, weft_cu_stream *out);
weft_err weft_cudev__open_queue(weft_engine *e, weft_diag *diag, void **out);
void weft_cudev__close_queue(weft_engine *e, void *queue);
weft_err weft_cudev__copy_in(weft_engine *e, void *queue, void *to, const void *from,
                             uint64_t bytes, weft_diag *diag);
weft_err weft_cudev__copy_out(weft_engine *e, void *queue, void *to, const void *from,
                              uint64_t bytes, weft_diag *diag);
weft_err weft_cudev__wait(weft_engine *e, void *queue, weft_diag *diag);

/* -- Code ----------------------------------------------------------------------------------- */

typedef struct weft_cudev_gemm weft_cudev_gemm;

/* State of a launch that is ready to run. */
typedef struct weft_cudev_launch {
    weft_cudev *gpu;
    weft_command_list *commands;
    weft_cu_kernel *kernel; /* by command */
    const weft_bundle_kernel **row;
    weft_cudev_gemm **gemm;    /* by command */
    uint64_t workspace_offset; /* in scratch memory */
    /* Arguments of the kernel at hand. */
    void **param;
    uint64_t *word;
} weft_cudev_launch;

/* Which images of the bundle this device takes; NODEV when it has none for it. */
WEFT_MUST_USE weft_err weft_cudev__choose_images(weft_engine *e, weft_diag *diag);
void weft_cudev__unload_images(weft_cudev *g);
weft_err weft_cudev__prepare(weft_prep *p);
/* Address of an argument. */
static inline weft_cu_deviceptr weft_cudev__address(void *const *arg, weft_command_ref ref)
{
    return (weft_cu_deviceptr)(uintptr_t)arg[ref.at] + ref.offset;
}
/* Arguments of command i in launch->param. */
void weft_cudev__set_params(weft_cudev_launch *l, uint32_t i, void *const *arg);
/* Before command i is captured. */
WEFT_MUST_USE weft_err weft_cudev__warm_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                                weft_cu_stream stream, weft_diag *diag);
/* Puts command i into a stream. */
WEFT_MUST_USE weft_err weft_cudev__run_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                               weft_cu_stream stream, weft_diag *diag);

/* -- Products ------------------------------------------------------------------------------- */

struct weft_cudev_gemm {
    weft_cudev *gpu;
    const weft_cublaslt_api *lt;
    const weft_command_gemm *now; /* of the launch's commands */
    weft_cublaslt_desc desc;
    weft_cublaslt_layout a, b, c, d; /* cuBLASLt's A and B */
    weft_cublaslt_algo algo;
    size_t workspace;
    bool warm;
};

/* Where the operands of a product are, in the order of its own: b of the command is its A. */
typedef struct weft_cudev_operands {
    weft_cu_deviceptr a, b, c, d, bias, workspace; /* c, bias: of no meaning where there is none */
} weft_cudev_operands;

/* Chooses an algorithm of cuBLASLt. *workspace: bytes that it takes, from a multiple of
 * WEFT_CUDEV_WORKSPACE_ALIGN on. `bare`: what finishes the product is there; set when cuBLASLt has
 * no algorithm with c, bias and act, and the command's product is without them now. */
enum { WEFT_CUDEV_WORKSPACE_ALIGN = 256 };
WEFT_MUST_USE weft_err weft_cudev__make_gemm(weft_cudev *g, const weft_prep *p,
                                             const weft_command_list *commands, uint32_t command,
                                             bool *bare, weft_cudev_gemm **out,
                                             uint64_t *workspace);
void weft_cudev__free_gemm(weft_cudev_gemm *gemm);
/* Errors of cuBLASLt in words. */
WEFT_MUST_USE weft_err weft_cudev__check_blas(weft_cudev *g, weft_cublas_status status,
                                              const char *call, weft_diag *diag);
WEFT_MUST_USE weft_err weft_cudev__set_bias(weft_cudev_gemm *gemm, weft_cu_deviceptr at,
                                            weft_diag *diag);
/* cuBLASLt's descriptions of the GEMM and its matrices; open_handles may leave some on an error. */
WEFT_MUST_USE weft_err weft_cudev__open_handles(weft_cudev_gemm *gemm, weft_diag *diag);
void weft_cudev__close_handles(weft_cudev_gemm *gemm);
WEFT_MUST_USE weft_err weft_cudev__multiply(weft_cudev_gemm *gemm, const weft_cudev_operands *at,
                                            weft_cu_stream stream, weft_diag *diag);
WEFT_MUST_USE weft_err weft_cudev__run_gemm(weft_cudev_gemm *gemm, void *const *arg,
                                            weft_cu_deviceptr workspace, weft_cu_stream stream,
                                            weft_diag *diag);
/* Runs it once, on whatever its operands hold, unless that was done: the library loads code when it
 * is first used, which must not happen in a capture. */
WEFT_MUST_USE weft_err weft_cudev__warm_gemm(weft_cudev_gemm *gemm, void *const *arg,
                                             weft_cu_deviceptr workspace, weft_cu_stream stream,
                                             weft_diag *diag);
void weft_cudev__close_gemms(weft_cudev *g);

/* -- Graphs: hooks of the driver ------------------------------------------------------------ */

weft_err weft_cudev__record_graph(weft_engine *e, void *queue, const weft_bound_list *list,
                                  weft_diag *diag, void **inout);
void weft_cudev__free_graph(weft_engine *e, void *graph);
weft_err weft_cudev__run_graph(weft_engine *e, void *queue, void *graph, weft_diag *diag);
weft_err weft_cudev__run_graph_timed(weft_engine *e, void *queue, void *graph, double *time_us,
                                     weft_diag *diag);
weft_err weft_cudev__time_graph(weft_engine *e, void *queue, void *graph, uint32_t n,
                                double *out_us, weft_diag *diag);

/* Puts a launch into the queue's stream. */
WEFT_MUST_USE weft_err weft_cudev__run_launch(weft_cudev_queue *queue, const weft_bound *launch,
                                              weft_diag *diag);
/* Times by CUPTI; false: it is not here, or refuses. After true, launches are run by what follows,
 * one after the other, and the trace is ended: there is one at a time. */
bool weft_cudev__trace_begin(void);
WEFT_MUST_USE weft_err weft_cudev__trace_launch(weft_cudev_queue *queue,
                                                const weft_bound_list *list, uint32_t i,
                                                weft_diag *diag);
/* True: it told the time on the device of each, and they were added to time_us[bound.launch]. */
bool weft_cudev__trace_end(const weft_bound_list *list, double *time_us);

#endif
