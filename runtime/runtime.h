/* Bundles into answers: drivers, sessions, and the server.
 *
 * A node (weft_engine) holds a bundle and a driver on one slice; a session runs one model of it.
 * An engine is thread-compatible; a session is single-thread and may be used on another thread
 * than its siblings. */
#ifndef WEFT_RUNTIME_RUNTIME_H
#define WEFT_RUNTIME_RUNTIME_H

#include "base/arena.h"
#include "base/device_type.h"
#include "base/tensor.h"
#include "ir/bundle.h"

/* -- Drivers -------------------------------------------------------------------------------- */

typedef struct weft_driver weft_driver; /* rows of drivers.def */
const weft_driver *weft_driver_find(const char *name);
const weft_driver *weft_driver_at(size_t i); /* NULL behind the last */
const char *weft_driver_name(const weft_driver *driver);
const char *weft_driver_brief(const weft_driver *driver);

/* -- Engines -------------------------------------------------------------------------------- */

/* Zero-initialised: the defaults. */
typedef struct weft_engine_options {
    const char *driver;  /* NULL: that of the bundle's target */
    uint32_t threads;    /* 0: CPUs of the slice */
    const uint32_t *cpu; /* CPU set of the slice; NULL: inherited */
    uint32_t n_cpu;
    uint32_t gpu; /* ordinal among the GPUs that this process sees */
    /* A partition of its multiprocessors (a green context): so many, from the first on; n_sm 0:
     * all. Rounded to what the GPU can do. */
    uint32_t sm_first, n_sm;
    uint64_t mem_limit_bytes; /* of arenas, results, and weights on a GPU; 0: none */
    /* Sessions have their activations in one place: no two of them run at the same time, the
     * outputs of a run stay until any of them runs or is made ready, and are no inputs of such a
     * run. Ignored on GPUs. */
    bool share_memory;
} weft_engine_options;

typedef struct weft_engine weft_engine;

WEFT_MUST_USE weft_err weft_engine_open(const char *bundle_path, const weft_engine_options *options,
                                        weft_diag *diag, weft_engine **out);
void weft_engine_close(weft_engine *engine);
const weft_bundle *weft_engine_bundle(const weft_engine *engine);
/* Why the device cannot be used any more, as long as this engine is open: a kernel failed, it was
 * taken away. NULL: it works. Other engines of the process on this device share the fate. */
const char *weft_engine_lost(const weft_engine *engine);

/* -- Sessions ------------------------------------------------------------------------------- */

typedef struct weft_session weft_session;

/* Prepares a model or a joint program: checks and packs its weights (shared with the engine's other
 * sessions where equal). */
WEFT_MUST_USE weft_err weft_session_open(weft_engine *engine, const char *model, weft_diag *diag,
                                         weft_session **out);
void weft_session_close(weft_session *session);
const weft_bundle_program *weft_session_program(const weft_session *session);

/* Makes ready for a bucket, so that the first request of that size is not slower. Outputs of the
 * last run are gone. */
WEFT_MUST_USE weft_err weft_session_warm(weft_session *session, uint32_t bucket, weft_diag *diag);

/* The same for inputs of these dims; their data is not looked at. */
WEFT_MUST_USE weft_err weft_session_prepare(weft_session *session, const weft_tensor *in,
                                            uint32_t n_in, weft_diag *diag);

/* Runs the model. `in` are in the program's input order with any dims inside the symbols' ranges
 * (bucket sizes are fastest, others are prepared on first use and kept in a small cache). `out`
 * gets the outputs in order; their data belongs to the session until it runs, or is made ready,
 * again. INPUT when dims or dtypes do not fit; NOMEM over the limit. */
WEFT_MUST_USE weft_err weft_session_run(weft_session *session, const weft_tensor *in, uint32_t n_in,
                                        weft_diag *diag, weft_tensor *out, uint32_t n_out);

/* What a launch took, mean over runs since profiling was switched on. */
typedef struct weft_launch_time {
    uint32_t launch;     /* of the program */
    const char *variant; /* "onednn:jit_avx512...", "ew", "ref" */
    double time_us;
} weft_launch_time;
void weft_session_profile(weft_session *session, bool on);
/* Borrowed until the next run. */
const weft_launch_time *weft_session_times(weft_session *session, uint32_t *out_n);

/* Whether it runs on a device with memory of its own. */
bool weft_session_has_device(const weft_session *session);
/* Runs what ran last again, n times one behind the other, on what its inputs were: the time of one
 * on the device, without copies. UNSUP on CPUs. */
WEFT_MUST_USE weft_err weft_session_time_device(weft_session *session, uint32_t n, weft_diag *diag,
                                                double *out_us);

/* Memory of a session, of the sizes it ran last (0 before). */
typedef struct weft_session_memory {
    bool planned;           /* values lie where the bundle says */
    uint64_t arena_bytes;   /* of values; the bundle's arena when `planned` */
    uint64_t total_bytes;   /* with scratch memory and copies of outputs */
    uint64_t packed_bytes;  /* weights that the driver packed, of all sessions of the engine */
    uint64_t touched_bytes; /* distinct bytes of the arena that a run writes, when measured; on a
                             * device with inputs and scratch memory in its gaps */
    uint64_t high_bytes;    /* 1 + the last of them */
} weft_session_memory;

/* What a process takes that runs one model at one size once, and nothing else. */
typedef struct weft_memory_plan {
    uint64_t arena_bytes;   /* values */
    uint64_t scratch_bytes; /* scratch memory that does not fit into gaps of the arena */
    uint64_t packed_bytes;  /* weights in the layout that kernels want */
    uint64_t file_bytes;    /* weights that are used where they lie in the file */
    uint64_t input_bytes;
    uint64_t
        start_bytes; /* packed ones and those in the file, at most, while the model is prepared */
    uint64_t process_bytes;    /* the program, its libraries, and what it knows of the model */
    uint64_t peak_bytes;       /* resident, of all of it */
    uint32_t n_kernel, n_conv; /* convolutions among them */
} weft_memory_plan;

/* Nothing is run and no weight is read: kernels are chosen as they would be on this machine, and
 * what they want is counted. `symbol`: values of the program's symbols. program_bytes: resident of
 * the program, with its libraries, before it has done anything. */
WEFT_MUST_USE weft_err weft_memory_plan_make(weft_bundle *bundle, const char *model,
                                             const int64_t *symbol,
                                             const weft_engine_options *options,
                                             uint64_t program_bytes, weft_diag *diag,
                                             weft_memory_plan *out);

/* Measures cuBLASLt's algorithms for the products of all programs at the sizes of their buckets, on
 * the GPU that `options` mean. *out, in `arena`, is for weft_bundle.tuning of such a bundle; n_algo
 * 0: it has no products, or is for CPUs. Figures are of operands that may be in the GPU's cache,
 * and differ from run to run. */
WEFT_MUST_USE weft_err weft_tune_gemms(weft_bundle *bundle, const weft_engine_options *options,
                                       weft_arena *arena, weft_diag *diag, weft_bundle_tuning *out);

void weft_session_get_memory(const weft_session *session, weft_session_memory *out);
/* Also runs the model twice over memory filled with two patterns and finds what was written. */
WEFT_MUST_USE weft_err weft_session_measure_memory(weft_session *session, const weft_tensor *in,
                                                   uint32_t n_in, weft_diag *diag,
                                                   weft_session_memory *out);

#endif
