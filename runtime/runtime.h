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

/* -- The machine: what it has --------------------------------------------------------------- */

enum { WEFT_MACHINE_NAME_MAX = 96 };

/* A way to cut a GPU by MIG, as its driver tells. */
typedef struct weft_machine_profile {
    char name[WEFT_MACHINE_NAME_MAX]; /* "1g.18gb"; "1g.18gb+me": with the media engines */
    uint32_t id;                      /* of NVML */
    uint32_t count;                   /* instances at most */
    uint32_t gpcs;                    /* compute slots */
    uint32_t slots;                   /* memory slots, 0: not told */
    uint32_t starts; /* bit i: may start at slot i; 0: not told (needs privileges) */
    uint32_t sms;
    uint64_t mem_bytes;
} weft_machine_profile;

/* A MIG instance: a compute instance over the whole or a part of a GPU instance. */
typedef struct weft_machine_mig {
    char uuid[WEFT_MACHINE_NAME_MAX];
    char profile[WEFT_MACHINE_NAME_MAX]; /* of the GPU instance; "2c.3g.71gb": a part of it */
    uint32_t gi, ci;                     /* ids */
    int32_t start;                       /* first memory slot, -1: not told */
    uint32_t sms;
    uint64_t mem_bytes, mem_used_bytes;
} weft_machine_mig;

typedef struct weft_machine_gpu {
    char uuid[WEFT_MACHINE_NAME_MAX], name[WEFT_MACHINE_NAME_MAX];
    char why_not[64];             /* it cannot be read, and nothing else is known: "lost" */
    const weft_device_type *type; /* NULL: not in the table of devices */
    uint32_t index;               /* NVML's */
    int cc_major, cc_minor;       /* 0: not told */
    uint32_t sms;                 /* 0: not told */
    uint64_t mem_bytes, mem_used_bytes;
    bool mig_capable, mig_on, mig_pending; /* mode now, and after the next reset */
    bool prohibited, exclusive;            /* compute mode */
    bool gpm;                              /* counts the activity of its SMs */
    double power_w, power_limit_w;         /* 0: not told */
    uint32_t sm_mhz, sm_max_mhz, mem_mhz;  /* 0: not told */
    double busy;                           /* part of the time with a kernel, -1: not told */
    uint32_t part_min, part_step;          /* SMs of a green context: at least, and multiples of */
    const weft_machine_profile *profile;
    uint32_t n_profile;
    const weft_machine_mig *mig;
    uint32_t n_mig;
} weft_machine_gpu;

typedef struct weft_machine {
    char why_no_gpu[256]; /* empty: NVML answers */
    char driver[WEFT_MACHINE_NAME_MAX];
    int cuda_version;      /* that the driver supports: 13000 is 13.0; 0: not told */
    char mps_control[256]; /* path of nvidia-cuda-mps-control; empty: there is none */
    const weft_machine_gpu *gpu;
    uint32_t n_gpu;
    const uint32_t *cpu; /* that this process may use */
    uint32_t n_cpu;
} weft_machine;

/* Reads all of it; changes nothing. A machine without NVML has no GPUs, which is no error. */
WEFT_MUST_USE weft_err weft_machine_read(weft_arena *arena, weft_diag *diag, weft_machine *out);
/* Lines on how the GPU differs from our table of devices. */
void weft_machine_differences(const weft_machine_gpu *gpu, weft_arena *arena,
                              const char *const **out, size_t *out_n);

/* Makes a GPU's instances those that are wanted: destroys others, creates the missing ones. The one
 * function that changes a GPU; needs root and MIG mode, and instances that nobody uses. What it did
 * goes to `diag` as notes. */
typedef struct weft_machine_mig_want {
    const char *profile; /* "3g.71gb" */
    uint32_t start;      /* memory slot */
} weft_machine_mig_want;
WEFT_MUST_USE weft_err weft_machine_set_mig(uint32_t gpu, const weft_machine_mig_want *want,
                                            uint32_t n, weft_diag *diag);

/* Reads a GPU, or a MIG instance, again and again. Thread-compatible. */
typedef struct weft_meter weft_meter;

/* Negative: not told. */
typedef struct weft_meter_reading {
    double power_w, power_limit_w;
    double energy_j; /* since the driver was loaded */
    double mem_bytes, mem_used_bytes;
    double busy; /* part of the time with some kernel, of the last moment */
    /* Mean since the reading before, of counters: part of the SMs with work, of their warps, of the
     * tensor cores, of the memory's bandwidth. */
    double sms, warps, tensor, bandwidth;
} weft_meter_reading;

/* `uuid` NULL: the GPU, or MIG instance, that is number `ordinal` to CUDA in this process. NODEV
 * when it is not here. Owned. */
WEFT_MUST_USE weft_err weft_meter_open(const char *uuid, uint32_t ordinal, weft_diag *diag,
                                       weft_meter **out);
void weft_meter_close(weft_meter *meter); /* NULL is fine */
const char *weft_meter_uuid(const weft_meter *meter);
/* The row of the table of devices of a whole GPU; NULL: none, or a MIG instance. */
const weft_device_type *weft_meter_type(const weft_meter *meter);
void weft_meter_read(weft_meter *meter, weft_meter_reading *out);

/* A daemon of NVIDIA's MPS for one GPU or MIG instance (by UUID), of this process alone. Clients
 * find it by CUDA_MPS_PIPE_DIRECTORY. Owned; ends with stop, which warns when it cannot be ended.
 * `control`: path of nvidia-cuda-mps-control. */
typedef struct weft_mps weft_mps;
WEFT_MUST_USE weft_err weft_mps_start(const char *control, const char *visible, weft_diag *diag,
                                      weft_mps **out);
const char *weft_mps_pipe_dir(const weft_mps *mps);
void weft_mps_stop(weft_mps *mps, weft_diag *diag); /* NULL is fine */

/* -- Serving -------------------------------------------------------------------------------- */

/* Zero-initialised: the defaults. */
typedef struct weft_serve_slice {
    const uint32_t *cpu; /* CPU set; NULL: inherited */
    uint32_t n_cpu;
    const char *const *model; /* models this slice serves; n_model 0: all */
    uint32_t n_model;
    const char *name;       /* in messages and metrics: "gpu 0, 1g.18gb at slot 4"; NULL: none */
    const char *gpu;        /* UUID of the whole GPU; NULL: no GPU */
    const char *mig;        /* UUID of the MIG instance on it; NULL: none */
    const char *const *env; /* "NAME=value": set for the worker; "NAME": not for the worker */
    uint32_t n_env;
    uint32_t sm_first, n_sm;  /* as of weft_engine_options */
    uint64_t mem_limit_bytes; /* likewise */
    uint64_t plan_bytes;      /* what the plan counts on, for messages; 0: not known */
} weft_serve_slice;

typedef struct weft_serve_options {
    const char *bundle;  /* path */
    const char *exe;     /* this program, run again as `exe --worker` for each slice */
    const char *address; /* NULL: 127.0.0.1 */
    int http_port;       /* 0: any free port; < 0: off; the chosen ones go to on_ready */
    int grpc_port, metrics_port;
    const weft_serve_slice *slice; /* n_slice 0: one slice with all CPUs */
    uint32_t n_slice;
    uint64_t max_request_bytes; /* 0: 64 MiB */
    double max_queue_delay_us;  /* without an SLO; 0: a batch leaves as soon as a worker is idle */
    double request_timeout_s;   /* 0: 30 */
    double drain_timeout_s;     /* 0: 30 */
    double start_timeout_s;     /* a worker prepares its models within this; 0: 300 */
    bool nv_metrics;            /* also Triton's metric names */
    /* Called once when all models are ready; ports as bound (-1: off). */
    void (*on_ready)(void *user, int http_port, int grpc_port, int metrics_port);
    void *user;
} weft_serve_options;

/* Runs the router until SIGTERM or SIGINT, then drains: no new requests, those accepted are
 * answered, workers end. Owns the process's signals while it runs. */
WEFT_MUST_USE weft_err weft_serve(const weft_serve_options *options, weft_diag *diag);

/* The worker's side: serves one slice over the socket it inherited; returns an exit code. */
enum { WEFT_WORKER_FAILED = 1, WEFT_WORKER_MISUSED, WEFT_WORKER_LOST /* its device */ };
int weft_worker_main(int argc, char **argv);

#endif
