/* The door of runtime/: running bundles. The server and the machine have doors of their own
 * (runtime/server/server.h, runtime/machine/machine.h).
 *
 * An engine (weft_engine) is a bundle opened by a driver on one slice of a device; a session runs
 * one model of an engine. An engine is thread-compatible. A session is single-thread; sessions of
 * one engine may run on different threads. */
#ifndef WEFT_RUNTIME_RUNTIME_H
#define WEFT_RUNTIME_RUNTIME_H

#include "base/arena.h"
#include "base/device_type.h"
#include "base/sm_limits.h"
#include "base/tensor.h"
#include "ir/bundle.h"
#include "ops/adapter_rows.h"

/* -- Drivers -------------------------------------------------------------------------------- */

typedef struct weft_driver weft_driver; /* rows of drivers.def */
const weft_driver *weft_driver_find(const char *name);
const weft_driver *weft_driver_at(size_t i); /* NULL: i is past the last row */
const char *weft_driver_name(const weft_driver *driver);
const char *weft_driver_brief(const weft_driver *driver);
/* Writes the library that the driver runs on and its version, as "oneDNN 2.6.3"; "": none. */
void weft_driver_library(const weft_driver *driver, char *out, size_t room);

/* -- Engines -------------------------------------------------------------------------------- */

/* Zero-initialised: the defaults. */
typedef struct weft_engine_options {
    const char *driver;  /* NULL: the driver for the bundle's target */
    uint32_t threads;    /* 0: one for each CPU of the slice */
    const uint32_t *cpu; /* CPU set of the slice; NULL: inherited */
    uint32_t n_cpu;
    uint32_t gpu; /* ordinal among the GPUs visible to this process */
    /* A green context of n_sm multiprocessors, starting at multiprocessor sm_first; n_sm 0: the
     * whole GPU. Both are rounded to the partition size that the GPU supports. */
    uint32_t sm_first, n_sm;
    double time_limit_s; /* a run that takes longer ends before the next round of a loop; 0: none */
    uint64_t mem_limit_bytes; /* limit for arenas, results, and weights on a GPU; 0: none */
    /* All sessions share one arena of activations, and kernels. Two sessions then must not run or
     * be prepared at the same time, the outputs of a run are valid only until any session runs or
     * is warmed, and they must not be passed as inputs to such a run. Ignored on GPUs. */
    bool share_memory;
    /* Other threads need the same CPUs, as those of a server do: kernels that take less than about
     * 30 us use one thread each. Ignored on GPUs. */
    bool share_cpus;
} weft_engine_options;

typedef struct weft_engine weft_engine;

WEFT_MUST_USE weft_err weft_engine_open(const char *bundle_path, const weft_engine_options *options,
                                        weft_diag *diag, weft_engine **out);
/* The same from a descriptor, which stays open; `name` is for messages. */
WEFT_MUST_USE weft_err weft_engine_open_fd(int fd, const char *name,
                                           const weft_engine_options *options, weft_diag *diag,
                                           weft_engine **out);
/* The same for a borrowed bundle that outlives the engine. */
WEFT_MUST_USE weft_err weft_engine_open_bundle(weft_bundle *bundle,
                                               const weft_engine_options *options, weft_diag *diag,
                                               weft_engine **out);
void weft_engine_close(weft_engine *engine);
const weft_bundle *weft_engine_bundle(const weft_engine *engine);
/* The error after which the device is unusable for the life of this engine: a kernel fault, or the
 * device was removed. NULL: the device works. Other engines of the process on the same device are
 * affected as well. */
const char *weft_engine_lost(const weft_engine *engine);

/* -- Sessions ------------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

/* Opens a model or a joint program: verifies the checksums of its weights and packs them. Equal
 * weights are shared between the sessions of the engine. */
WEFT_MUST_USE weft_err weft_session_open(weft_engine *engine, const char *model, weft_diag *diag,
                                         weft_session **out);
void weft_session_close(weft_session *session);
const weft_bundle_program *weft_session_program(const weft_session *session);

/* Prepares the specialisation of a bucket in advance, so that the first request of that size takes
 * no longer than later ones. Invalidates the outputs of the last run. */
WEFT_MUST_USE weft_err weft_session_warm(weft_session *session, uint32_t bucket, weft_diag *diag);

/* As weft_session_warm for inputs of these dims; their data is not read. */
WEFT_MUST_USE weft_err weft_session_prepare(weft_session *session, const weft_tensor *in,
                                            uint32_t n_in, weft_diag *diag);

/* Runs the model. `in` has the program's inputs in order, with any dims within the bounds of its
 * symbols. Bucket sizes are fastest; other sizes are prepared at first use and kept in a small
 * cache. `out` receives the outputs in order; the session owns their data until it next runs or is
 * warmed. INPUT: dims or dtypes do not fit. NOMEM: the memory limit is exceeded. */
WEFT_MUST_USE weft_err weft_session_run(weft_session *session, const weft_tensor *in, uint32_t n_in,
                                        weft_diag *diag, weft_tensor *out, uint32_t n_out);

/* The next runs need not compute these outputs, bit i for output i (those from 64 on are always
 * computed): launches that no other output needs do not run, and run() gives tensors without
 * elements for them. Devices with memory of their own compute them nevertheless. 0: all are wanted.
 */
enum { WEFT_SKIPPED_OUTPUTS_MAX = 64 };
void weft_session_skip(weft_session *session, uint64_t outputs);

/* -- Adapters (LoRA): docs/adapters.md ------------------------------------------------------- */

/* Number of GEMMs of the model to which adapters may add; 0: it takes none. */
uint32_t weft_session_site_count(const weft_session *session);

/* Adapters have numbers: those of the bundle that of weft_bundle_find_adapter, others one above
 * UINT32_MAX that the caller gives, together with the factors, which stay where they are until the
 * session forgets the adapter. INPUT: a part has no site of the model, or one of other sizes. */
WEFT_MUST_USE weft_err weft_session_add_adapter(weft_session *session, uint64_t number,
                                                const weft_adapter_part *part, uint32_t n,
                                                weft_diag *diag);
/* An adapter that is used no more, or not for a while: of one of the bundle the memory is given
 * back, and read again when it is used. No row of the last run's batch has it afterwards. */
void weft_session_forget_adapter(weft_session *session, uint64_t number);

/* The adapters of the next runs: adapter[i], a number, 0: none, of row i of the batch of n rows;
 * n 1: of all rows; n 0: no row has one. INPUT: an adapter is not one of this model's; no row then
 * has one. */
WEFT_MUST_USE weft_err weft_session_adapt(weft_session *session, const uint64_t *adapter,
                                          uint32_t n, weft_diag *diag);

/* Mean time of a launch over the runs since profiling was switched on. */
typedef struct weft_launch_time {
    uint32_t launch;     /* index in the program */
    const char *variant; /* "onednn:jit_avx512...", "ew", "ref" */
    double time_us;
} weft_launch_time;
void weft_session_profile(weft_session *session, bool on);
/* Borrowed until the next run. */
const weft_launch_time *weft_session_times(weft_session *session, uint32_t *out_n);

/* Whether the session runs on a device with memory of its own. */
bool weft_session_has_device(const weft_session *session);
/* Repeats the last run n times back to back on its inputs and measures the device time of one run,
 * without copies. UNSUP on CPUs. */
WEFT_MUST_USE weft_err weft_session_time_device(weft_session *session, uint32_t n, weft_diag *diag,
                                                double *out_us);

/* Memory of a session at the sizes of its last run; zero before the first run. */
typedef struct weft_session_memory {
    int64_t rows;           /* of the batch that ran at a time; 0: all */
    bool planned;           /* the bundle's offsets are used */
    uint64_t arena_bytes;   /* of values; the bundle's figure when `planned` */
    uint64_t total_bytes;   /* arena_bytes plus scratch memory, copies of outputs, and bodies */
    uint64_t packed_bytes;  /* weights packed by the driver, for all sessions of the engine */
    uint64_t touched_bytes; /* measured: distinct bytes of the arena that a run writes; on a device
                               this includes inputs and scratch memory placed in its gaps */
    uint64_t high_bytes;    /* measured: index + 1 of the last byte written */
} weft_session_memory;

/* Predicted memory of a process that runs one model once at one size and does nothing else. */
typedef struct weft_memory_plan {
    uint64_t arena_bytes;   /* values */
    uint64_t scratch_bytes; /* scratch memory that does not fit into gaps of the arena, and memory
                               of branches and loop bodies */
    uint64_t packed_bytes;  /* weights packed into the layout that the kernels need */
    uint64_t file_bytes;    /* weights used in place, from the mapped file */
    uint64_t input_bytes;
    uint64_t start_bytes;      /* peak of packed_bytes + file_bytes while the model is prepared */
    uint64_t process_bytes;    /* the program, its libraries, and its data about the model */
    uint64_t peak_bytes;       /* peak resident memory of the process */
    uint32_t n_kernel, n_conv; /* kernels, and convolutions among them */
} weft_memory_plan;

/* Chooses kernels as on this machine and counts their memory, without running a kernel or reading a
 * weight. `symbol`: values of the program's symbols. program_bytes: resident memory of the program
 * and its libraries at start. */
WEFT_MUST_USE weft_err weft_memory_plan_make(weft_bundle *bundle, const char *model,
                                             const int64_t *symbol,
                                             const weft_engine_options *options,
                                             uint64_t program_bytes, weft_diag *diag,
                                             weft_memory_plan *out);

/* Measures cuBLASLt's algorithms for every GEMM of every program at its bucket sizes, on the GPU
 * selected by `options`. *out, allocated in `arena`, is the value for weft_bundle.tuning; n_algo is
 * 0 when the bundle has no GEMMs or is for CPUs. Times vary between runs, and are for operands that
 * may be in the GPU's cache. */
WEFT_MUST_USE weft_err weft_tune_gemms(weft_bundle *bundle, const weft_engine_options *options,
                                       weft_arena *arena, weft_diag *diag, weft_bundle_tuning *out);

/* A device that cuDNN's plans are made for. */
typedef struct weft_conv_target {
    const char *device; /* its name in the bundle */
    uint32_t arch;      /* of the bundle */
    const weft_sm_limits *sm;
    uint32_t sms;
    uint64_t mem_bytes;
} weft_conv_target;

typedef struct weft_conv_planning {
    const weft_bundle_conv_plans *plans; /* for weft_bundle.conv_plans; none without cuDNN */
    uint32_t n_plans;
    uint32_t n_conv;   /* distinct convolutions for cuDNN at the bucket sizes of all programs */
    char why_not[256]; /* why the first of them has no plan; "": all have */
} weft_conv_planning;

/* Chooses cuDNN's plan for each convolution of every program at its bucket sizes, for each target,
 * where cuDNN is installed; a GPU is not needed. Targets are by rising `arch`. Memory of *out is of
 * `arena`. The same library, bundle and targets make the same plans. */
WEFT_MUST_USE weft_err weft_convs_plan(const weft_bundle *bundle, const weft_conv_target *target,
                                       uint32_t n, weft_arena *arena, weft_conv_planning *out);

void weft_session_get_memory(const weft_session *session, weft_session_memory *out);
/* As weft_session_get_memory, and measures touched_bytes and high_bytes: runs the model over two
 * fill patterns and compares the arena with the pattern. */
WEFT_MUST_USE weft_err weft_session_measure_memory(weft_session *session, const weft_tensor *in,
                                                   uint32_t n_in, weft_diag *diag,
                                                   weft_session_memory *out);

#endif
