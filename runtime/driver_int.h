/* Private to runtime/: engines, drivers, and the kernels that drivers prepare.
 *
 * A session asks the driver to turn each launch of a program, at concrete dims, into a kernel: a
 * function, its state, and an array of addresses. Preparation may be slow (code generation, packing
 * of weights); a run does no look-up and no allocation. The addresses are
 *
 *   arg:  in[0] .. in[n_in-1]  out[0] .. out[n_out-1]  scratch
 *
 * The address of an omitted operand is NULL. Addresses of values may change between runs. */
#ifndef WEFT_RUNTIME_DRIVER_INT_H
#define WEFT_RUNTIME_DRIVER_INT_H

#include "ops/adapter_rows.h"
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdatomic.h>

typedef weft_err (*weft_kernel_fn)(void *state, void *const *arg);

/* A value at concrete dims. */
typedef struct weft_slot {
    bool present;
    uint8_t layout;     /* weft_layout */
    uint32_t weight;    /* index + 1 in the bundle; 0: none */
    uint32_t align;     /* alignment of its address on a device; 0: unknown */
    weft_tensor tensor; /* data: of a verified weight, or of a value known now; else NULL */
} weft_slot;

/* The input and the result of preparing one launch. A kernel copies what it needs of the input: it
 * may outlive all of it but the bundle and the engine. */
typedef struct weft_prep {
    weft_engine *engine;
    weft_op_id op;
    weft_attrs attrs; /* dims in attributes are constant */
    const weft_slot *in, *out;
    uint32_t n_in, n_out;
    weft_diag *diag;
    weft_where where;
    /* The launch in the bundle, and the values of its symbols: a GPU driver evaluates the launch's
     * commands with them. */
    const weft_bundle_program *program;
    const weft_bundle_launch *launch;
    const int64_t *symbol;
    uint32_t n_symbol;
    /* The kernel must keep special values to the results that depend on them even if it becomes
     * slower: see lost_nan. */
    bool keep_nan;
    /* Which rows of the session's runs use which adapters; a kernel may keep it. NULL: none do. */
    const weft_adapter_rows *adapters;
    /* Set by the driver. */
    weft_kernel_fn run; /* NULL: this function does not support the launch */
    void *state;
    void (*destroy)(void *state); /* may be NULL: free() */
    const char *variant;          /* valid as long as `state` */
    uint64_t scratch_bytes;       /* scratch memory for one run, 64-byte aligned */
} weft_prep;

/* A prepared launch and the addresses that it runs on. */
typedef struct weft_bound {
    uint32_t launch;  /* index in the program */
    void *state;      /* weft_prep.state */
    void *const *arg; /* as for a kernel; addresses of the device */
} weft_bound;

typedef struct weft_bound_list {
    const weft_bundle_program *program;
    const weft_bound *at; /* in order of execution; launches without work are left out */
    uint32_t n;
} weft_bound_list;

/* Additional operations of a driver whose device has memory of its own. The host never dereferences
 * addresses of that memory. `prepare` of such a driver need not set `run`. Launches of dynamic
 * shape are refused.
 *
 * A queue belongs to one session. Operations put into a queue execute in order and asynchronously;
 * `wait` waits for all of them and reports their errors. After a fault that the device cannot
 * recover from, every call fails and `lost` returns the reason. */
typedef struct weft_device_ops {
    /* Copies these weights (verified, each listed once) to the device unless they are already
     * there. They stay until the engine is closed. NOMEM with the device's figures. */
    weft_err (*load_weights)(weft_engine *engine, const uint32_t *weight, uint32_t n,
                             weft_diag *diag);
    /* Device address of a loaded weight. */
    void *(*weight)(weft_engine *engine, uint32_t weight);
    weft_err (*open_queue)(weft_engine *engine, weft_diag *diag, void **out);
    void (*close_queue)(weft_engine *engine, void *queue);
    /* Host memory for copies to and from the device. */
    weft_err (*host_alloc)(weft_engine *engine, uint64_t bytes, void **out);
    void (*host_free)(weft_engine *engine, void *data, uint64_t bytes);
    weft_err (*copy_in)(weft_engine *engine, void *queue, void *to, const void *from,
                        uint64_t bytes, weft_diag *diag);
    weft_err (*copy_out)(weft_engine *engine, void *queue, void *to, const void *from,
                         uint64_t bytes, weft_diag *diag);
    /* Records all launches as one graph. Launches may run concurrently unless one writes memory
     * that the other reads or writes. *inout: NULL, or the graph recorded for the same program at
     * other sizes or addresses, which is updated or replaced. Reads addresses now; the list must
     * outlive the graph. */
    weft_err (*record_graph)(weft_engine *engine, void *queue, const weft_bound_list *list,
                             weft_diag *diag, void **inout);
    void (*free_graph)(weft_engine *engine, void *graph);
    weft_err (*run_graph)(weft_engine *engine, void *queue, void *graph, weft_diag *diag);
    /* Runs the graph's launches one after the other and adds the time of each to
     * time_us[bound.launch], then waits. The gap before a launch, in which the device starts it,
     * counts as that launch's time unless the device reports kernel times. */
    weft_err (*run_graph_timed)(weft_engine *engine, void *queue, void *graph, double *time_us,
                                weft_diag *diag);
    /* Runs the graph n times back to back; returns the device time of one run. Waits. */
    weft_err (*time_graph)(weft_engine *engine, void *queue, void *graph, uint32_t n,
                           double *out_us, weft_diag *diag);
    weft_err (*wait)(weft_engine *engine, void *queue, weft_diag *diag);
    /* Adds a note with the device's free memory and this engine's part of the rest. */
    void (*note_memory)(weft_engine *engine, weft_diag *diag);
    const char *(*lost)(const weft_engine *engine); /* NULL: the device works */
} weft_device_ops;

struct weft_driver {
    const char *name, *brief;
    /* Writes the library that the driver runs on and its version. May be NULL: none. */
    void (*tell_library)(char *out, size_t room);
    /* Sets engine->device. */
    weft_err (*open)(weft_engine *engine, weft_diag *diag);
    void (*close)(weft_engine *engine);
    /* Memory for activations: 64-byte aligned, zeroed. */
    weft_err (*alloc)(weft_engine *engine, uint64_t bytes, weft_diag *diag, void **out);
    void (*free)(weft_engine *engine, void *data, uint64_t bytes);
    /* UNSUP, with a message, for a launch that the driver does not support. */
    weft_err (*prepare)(weft_prep *prep);
    /* Called before and after the launches of a run, on the thread that runs them. May be NULL. */
    void (*begin)(weft_engine *engine);
    void (*end)(weft_engine *engine);
    /* Asked on the same thread before `end`: whether a kernel since `begin` or the last call may
     * have met NaN or infinities and lost them, or spread them to results that do not depend on
     * them, so that the run must be repeated by kernels prepared with keep_nan. May be NULL: no
     * kernel does. */
    bool (*lost_nan)(weft_engine *engine);
    /* Bytes of packed or loaded weights. May be NULL: none. */
    uint64_t (*packed_bytes)(weft_engine *engine);
    const weft_device_ops *device_ops; /* NULL: activations are in host memory */
    bool slices_batches; /* large batches run a few rows at a time: kernels share a cache */
};

/* Counters of weight memory while a model is prepared without reading or packing weights
 * (weft_memory_plan_make). */
typedef struct weft_weight_count {
    bool *in_file;         /* by weight: its pages of the file are resident */
    uint64_t file_bytes;   /* sum over in_file */
    uint64_t packed_bytes; /* packed weights */
    uint64_t peak_bytes;   /* maximum of the sum of both */
} weft_weight_count;

/* An arena for activations and results; it grows and never shrinks. */
typedef struct weft_memory {
    void *at;
    uint64_t bytes;
} weft_memory;

/* Kernels by what they depend on (session/shared_kernel.c). */
typedef struct weft_kernel_table {
    struct weft_shared_kernel **first; /* chains */
    uint32_t n, room;
} weft_kernel_table;

/* The fastest algorithms found so far (tune_gemms.c). */
typedef struct weft_tuner {
    char device[256];
    uint32_t sms;
    uint64_t version;
    weft_bundle_algo *algo; /* owned */
    uint32_t n;
} weft_tuner;

struct weft_engine {
    weft_tuner *tuner;        /* not NULL: measure GEMM algorithms and record them there */
    weft_weight_count *count; /* not NULL: count weight memory; do not read or pack weights */
    weft_bundle *bundle;
    bool owns_bundle;
    const weft_driver *driver;
    void *device;    /* the driver's state */
    uint64_t serial; /* unique in this process; distinguishes engines that reuse an address */
    uint32_t threads;
    uint32_t *cpu;
    uint32_t n_cpu;
    uint32_t gpu;            /* ordinal among the GPUs visible to this process */
    uint32_t sm_first, n_sm; /* green context; n_sm 0: the whole GPU */
    double time_limit_s;     /* of a run, checked before each round of a loop; 0: none */
    uint64_t mem_limit_bytes;
    _Atomic uint64_t mem_bytes; /* in use: arenas, results, and weights on a device */
    _Atomic bool has_dynamic;   /* launches of dynamic shape ran */
    bool share_memory;          /* sessions place activations in `memory`, and share kernels */
    bool share_cpus;            /* see weft_engine_options */
    weft_memory memory;
    weft_kernel_table kernels;
    pthread_mutex_t lock; /* protects what sessions share: `checked` and the driver's tables */
    uint8_t *checked;     /* [w]: the checksum of weight w was verified */
};

/* An engine of this driver; the bundle is borrowed and outlives the engine. options: NULL for the
 * defaults; `driver` of them is not read. */
WEFT_MUST_USE weft_err weft_engine__create(weft_bundle *bundle, const weft_driver *driver,
                                           const weft_engine_options *options, weft_diag *diag,
                                           weft_engine **out);
/* Verifies the checksum of weight w at the first call for it. */
WEFT_MUST_USE weft_err weft_engine__check_weight(weft_engine *engine, uint32_t w, weft_diag *diag);
/* Counts the packing of weight w (only with engine->count): `room` bytes packed, and `beside` bytes
 * of file pages and scratch memory in use during the packing. The pages of the file are not needed
 * afterwards. */
void weft_engine__count_pack(weft_engine *engine, uint32_t w, uint64_t room, uint64_t beside);
/* Reserves memory against the limit; NOMEM with a message when the limit would be exceeded. */
WEFT_MUST_USE weft_err weft_engine__take(weft_engine *engine, uint64_t bytes, weft_diag *diag);
void weft_engine__give(weft_engine *engine, uint64_t bytes);
/* Frees the arena and returns its bytes to the limit; *memory is empty afterwards. */
void weft_engine__release(weft_engine *engine, weft_memory *memory);

#endif
