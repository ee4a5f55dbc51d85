/* Private to runtime/cuda: the CUDA driver.
 *
 *   cuda_load.c       libcuda.so.1, libcublasLt.so, libcudnn.so and libcupti.so, loaded at run time
 *   drv_cuda.c        the driver's record; opening devices and partitions
 *   drv_cuda_error.c  errors, lost devices
 *   drv_cuda_mem.c    weights, activations, queues and copies
 *   drv_cuda_code.c   images and kernels of the bundle; commands
 *   drv_cuda_gemm.c   GEMMs by cuBLASLt
 *   drv_cuda_algo.c   the choice of their algorithm: stored, measured, or by heuristic
 *   drv_cuda_conv.c   convolutions by cuDNN
 *   cudnn_plan.c      cuDNN's plans for them, also for devices that are not here
 *   cudnn_graph.c     the graphs of operations that plans are made of
 *   drv_cuda_graph.c  a specialisation as one CUDA graph; times by events
 *   drv_cuda_trace.c  times by CUPTI
 *
 * Device addresses are `void *` or weft_cu_deviceptr; the host never dereferences them. */
#ifndef WEFT_RUNTIME_CUDA_DRV_CUDA_INT_H
#define WEFT_RUNTIME_CUDA_DRV_CUDA_INT_H

#include "runtime/cuda/cuda_load.h"
#include "runtime/kernel/kernel.h"

/* -- Devices -------------------------------------------------------------------------------- */

enum { WEFT_CUDEV_TEXT_MAX = 256 };

/* Device memory with the weights that one call of load_weights added. */
typedef struct weft_cudev_chunk {
    struct weft_cudev_chunk *next;
    weft_cu_deviceptr at;
    uint64_t bytes;
} weft_cudev_chunk;

typedef struct weft_cudev_dnn weft_cudev_dnn;

/* engine->device */
typedef struct weft_cudev {
    const weft_cu_api *cu;
    const weft_libcuda *lib;
    weft_cu_device device;
    weft_cu_context primary; /* owns all memory; current on every thread that makes calls */
    weft_cu_context ctx;     /* context of graph nodes: the primary one, or that of `green` */
    weft_cu_green_ctx green; /* NULL: the whole device; calls that name it hold the lock */
    weft_cu_stream load;     /* for uploads and fills; protected by the lock */
    char name[WEFT_CUDEV_TEXT_MAX];
    int cc;       /* compute capability; 90 is 9.0 */
    uint32_t sms; /* multiprocessors of the partition */
    uint64_t mem_bytes;
    pthread_mutex_t lock;
    /* Code, by module and by kernel of the bundle; protected by the lock. */
    uint32_t arch;  /* index of its architecture in the bundle; n_arch: PTX */
    char image[16]; /* architecture of the images in use, "sm_90" */
    weft_command_limits limits;
    weft_cu_library *module;
    uint32_t n_module;
    weft_cu_kernel *kernel;
    /* [weight]: its address, 0: not loaded; protected by the lock. */
    weft_cu_deviceptr *weight;
    weft_cudev_chunk *chunk;
    _Atomic uint64_t weight_bytes; /* both are read without the lock */
    _Atomic uint64_t arena_bytes;
    /* Set when the first GEMM is prepared; protected by the lock. */
    const weft_libcublaslt *lt;
    weft_cublaslt_handle lt_handle;
    const weft_bundle_tuning *tuning; /* the bundle's tuning for this device; NULL: none */
    /* Set when the first convolution is prepared; NULL: cuDNN cannot be used. */
    bool dnn_tried;
    weft_cudev_dnn *dnn;
    /* Why the device is lost. The text is written once, under lost_lock, before the flag. */
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

/* Makes the primary context current on this thread. A green context may be current on one thread
 * only, so it is used through its streams and nodes. An error here is reported again by the next
 * call. */
static inline void weft_cudev__enter(weft_cudev *g)
{
    (void)g->cu->cuCtxSetCurrent(g->primary);
}

/* Translates the result of `call`. OK: success. NOMEM: out of memory. NODEV: the device is lost,
 * which is recorded, or not available. BUG: an invalid call. */
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
typedef struct weft_cudev_conv weft_cudev_conv;

/* weft_prep.state of a launch. */
typedef struct weft_cudev_launch {
    weft_cudev *gpu;
    weft_command_list *commands;
    weft_cu_kernel *kernel; /* [command] */
    const weft_bundle_kernel **row;
    weft_cudev_gemm **gemm;    /* [command] */
    weft_cudev_conv **conv;    /* [command] */
    uint64_t workspace_offset; /* offset in scratch memory */
    /* Scratch: arguments of the current kernel. */
    void **param;
    uint64_t *word;
} weft_cudev_launch;

/* Chooses the images for this device; NODEV when the bundle has none. */
WEFT_MUST_USE weft_err weft_cudev__choose_images(weft_engine *e, weft_diag *diag);
void weft_cudev__unload_images(weft_cudev *g);
weft_err weft_cudev__prepare(weft_prep *p);
/* Device address of an argument. */
static inline weft_cu_deviceptr weft_cudev__address(void *const *arg, weft_command_ref ref)
{
    return (weft_cu_deviceptr)(uintptr_t)arg[ref.at] + ref.offset;
}
/* Alignment of such an address. */
static inline uint32_t weft_cudev__alignment(const weft_command_list *commands,
                                             weft_command_ref ref)
{
    uint64_t x = commands->align[ref.at] | ref.offset;
    return (uint32_t)(x & (~x + 1));
}
/* Writes the arguments of command i to launch->param. */
void weft_cudev__set_params(weft_cudev_launch *l, uint32_t i, void *const *arg);
/* Must be called before command i is captured. */
WEFT_MUST_USE weft_err weft_cudev__warm_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                                weft_cu_stream stream, weft_diag *diag);
/* Enqueues command i on a stream. */
WEFT_MUST_USE weft_err weft_cudev__run_command(weft_cudev_launch *l, uint32_t i, void *const *arg,
                                               weft_cu_stream stream, weft_diag *diag);

/* -- GEMMs ---------------------------------------------------------------------------------- */

struct weft_cudev_gemm {
    weft_cudev *gpu;
    const weft_cublaslt_api *lt;
    const weft_command_gemm *now; /* of the launch's command */
    weft_cublaslt_desc desc;
    weft_cublaslt_layout a, b, c, d; /* a and b are cuBLASLt's A and B: the command's b and a */
    weft_cublaslt_algo algo;
    size_t workspace;
    bool warm;
};

/* Device addresses of a GEMM's operands, named as in the command. */
typedef struct weft_cudev_operands {
    weft_cu_deviceptr a, b, c, d, bias,
        workspace; /* c and bias are ignored if the command has none */
} weft_cudev_operands;

/* Makes a GEMM and chooses its algorithm. *workspace: bytes needed, aligned to
 * WEFT_CUDEV_WORKSPACE_ALIGN. *bare: in, a FINISH command follows; out, cuBLASLt has no algorithm
 * with c, bias and act, and the GEMM was reduced to the product alone, so that the FINISH command
 * must run. */
enum { WEFT_CUDEV_WORKSPACE_ALIGN = 256 };
WEFT_MUST_USE weft_err weft_cudev__make_gemm(weft_cudev *g, const weft_prep *p,
                                             const weft_command_list *commands, uint32_t command,
                                             bool *bare, weft_cudev_gemm **out,
                                             uint64_t *workspace);
void weft_cudev__free_gemm(weft_cudev_gemm *gemm);
/* As weft_cudev__check for a status of cuBLASLt. */
WEFT_MUST_USE weft_err weft_cudev__check_blas(weft_cudev *g, weft_cublas_status status,
                                              const char *call, weft_diag *diag);
WEFT_MUST_USE weft_err weft_cudev__set_bias(weft_cudev_gemm *gemm, weft_cu_deviceptr at,
                                            weft_diag *diag);
/* Creates cuBLASLt's descriptors of the GEMM and its matrices. After an error some may exist;
 * close_handles destroys them. */
WEFT_MUST_USE weft_err weft_cudev__open_handles(weft_cudev_gemm *gemm, weft_diag *diag);
void weft_cudev__close_handles(weft_cudev_gemm *gemm);
WEFT_MUST_USE weft_err weft_cudev__multiply(weft_cudev_gemm *gemm, const weft_cudev_operands *at,
                                            weft_cu_stream stream, weft_diag *diag);
WEFT_MUST_USE weft_err weft_cudev__run_gemm(weft_cudev_gemm *gemm, void *const *arg,
                                            weft_cu_deviceptr workspace, weft_cu_stream stream,
                                            weft_diag *diag);
/* Runs the GEMM once, on the current contents of its operands, unless it ran before: the library
 * loads code at first use, which is not allowed during a capture. */
WEFT_MUST_USE weft_err weft_cudev__warm_gemm(weft_cudev_gemm *gemm, void *const *arg,
                                             weft_cu_deviceptr workspace, weft_cu_stream stream,
                                             weft_diag *diag);
void weft_cudev__close_gemms(weft_cudev *g);

/* -- Convolutions --------------------------------------------------------------------------- */

/* *out NULL: cuDNN does not compute the convolution, the commands instead of it run. *workspace as
 * of make_gemm. */
WEFT_MUST_USE weft_err weft_cudev__make_conv(weft_cudev *g, const weft_prep *p,
                                             const weft_command_list *commands, uint32_t command,
                                             weft_cudev_conv **out, uint64_t *workspace);
void weft_cudev__free_conv(weft_cudev_conv *conv);
WEFT_MUST_USE weft_err weft_cudev__run_conv(weft_cudev_conv *conv, void *const *arg,
                                            weft_cu_deviceptr workspace, weft_cu_stream stream,
                                            weft_diag *diag);
/* As weft_cudev__warm_gemm. */
WEFT_MUST_USE weft_err weft_cudev__warm_conv(weft_cudev_conv *conv, void *const *arg,
                                             weft_cu_deviceptr workspace, weft_cu_stream stream,
                                             weft_diag *diag);
void weft_cudev__close_convs(weft_cudev *g);

/* -- Graphs: hooks of the driver ------------------------------------------------------------ */

weft_err weft_cudev__record_graph(weft_engine *e, void *queue, const weft_bound_list *list,
                                  weft_diag *diag, void **inout);
void weft_cudev__free_graph(weft_engine *e, void *graph);
weft_err weft_cudev__run_graph(weft_engine *e, void *queue, void *graph, weft_diag *diag);
weft_err weft_cudev__run_graph_timed(weft_engine *e, void *queue, void *graph, double *time_us,
                                     weft_diag *diag);
weft_err weft_cudev__time_graph(weft_engine *e, void *queue, void *graph, uint32_t n,
                                double *out_us, weft_diag *diag);

/* Enqueues a launch on the queue's stream. */
WEFT_MUST_USE weft_err weft_cudev__run_launch(weft_cudev_queue *queue, const weft_bound *launch,
                                              weft_diag *diag);
/* Starts a trace of times by CUPTI; false: CUPTI is not available or refuses. After true, the
 * launches must be run one after the other by trace_launch, and the trace must be ended. One trace
 * at a time per process. */
bool weft_cudev__trace_begin(void);
WEFT_MUST_USE weft_err weft_cudev__trace_launch(weft_cudev_queue *queue,
                                                const weft_bound_list *list, uint32_t i,
                                                weft_diag *diag);
/* true: CUPTI reported the device time of every launch, and the times were added to
 * time_us[bound.launch]. */
bool weft_cudev__trace_end(const weft_bound_list *list, double *time_us);

#endif
