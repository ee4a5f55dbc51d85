/* Private to runtime/: engines, drivers, and the kernels that drivers prepare.
 *
 * A session turns each launch of a program, at concrete dimensions, into a kernel: a function, its
 * state, and an array of addresses. Preparing may be slow (code generation, packing of weights);
 * running does no look-up and no allocation:
 *
 *   arg:  in[0] .. in[n_in-1]  out[0] .. out[n_out-1]  scratch
 *
 * An omitted operand has a NULL address. Addresses of values may change between runs. */
#ifndef WEFT_RUNTIME_DRIVER_INT_H
#define WEFT_RUNTIME_DRIVER_INT_H

#include "runtime/runtime.h"

#include <pthread.h>
#include <stdatomic.h>

typedef weft_err (*weft_kernel_fn)(void *state, void *const *arg);

/* A value at concrete dimensions. */
typedef struct weft_slot {
    bool present;
    uint8_t layout;     /* weft_layout */
    uint32_t weight;    /* of the bundle; 0: none */
    uint32_t align;     /* its address on a device is a multiple of this; 0: not told */
    weft_tensor tensor; /* data: of a weight (checked), or known at this moment; else NULL */
} weft_slot;

/* A launch on its way to a kernel. */
typedef struct weft_prep {
    weft_engine *engine;
    weft_op_id op;
    weft_attrs attrs; /* DIMS are constant */
    const weft_slot *in, *out;
    uint32_t n_in, n_out;
    weft_diag *diag;
    weft_where where;
    /* Where it stands in the bundle, and the symbols' values: for its commands. */
    const weft_bundle_program *program;
    const weft_bundle_launch *launch;
    const int64_t *symbol;
    uint32_t n_symbol;
    /* Set by the driver. */
    weft_kernel_fn run; /* NULL: declined */
    void *state;
    void (*destroy)(void *state); /* may be NULL: free() */
    const char *variant;          /* lives as long as the state */
    uint64_t scratch_bytes;       /* 64-byte aligned memory for one run */
} weft_prep;

/* A launch with the addresses that it runs on. */
typedef struct weft_bound {
    uint32_t launch;  /* of the program */
    void *state;      /* of its weft_prep */
    void *const *arg; /* as of a kernel, addresses of the device */
} weft_bound;

typedef struct weft_bound_list {
    const weft_bundle_program *program;
    const weft_bound *at; /* in order of execution, without those that need not run */
    uint32_t n;
} weft_bound_list;

/* What a driver has beside when its device has memory of its own. Addresses of that memory are
 * handed on and never followed. Such a driver's `prepare` need not set `run`; launches that only
 * running tells (dynamic shapes) are refused.
 *
 * A queue is one session's: what is put into it happens in order, and later; `wait` waits for all
 * of it and reports what went wrong. Faults that the device does not recover from make every call
 * fail from then on, and `lost` say why. */
typedef struct weft_device_ops {
    /* Brings these weights (of the bundle, each once, checked) to the device, those that are not
     * there yet, and keeps them until the engine is closed. NOMEM with the device's numbers. */
    weft_err (*load_weights)(weft_engine *engine, const uint32_t *weight, uint32_t n,
                             weft_diag *diag);
    /* Address of one that was loaded. */
    void *(*weight)(weft_engine *engine, uint32_t weight);
    weft_err (*open_queue)(weft_engine *engine, weft_diag *diag, void **out);
    void (*close_queue)(weft_engine *engine, void *queue);
    /* Memory of the host that is copied from and to. */
    weft_err (*host_alloc)(weft_engine *engine, uint64_t bytes, void **out);
    void (*host_free)(weft_engine *engine, void *data, uint64_t bytes);
    weft_err (*copy_in)(weft_engine *engine, void *queue, void *to, const void *from,
                        uint64_t bytes, weft_diag *diag);
    weft_err (*copy_out)(weft_engine *engine, void *queue, void *to, const void *from,
                         uint64_t bytes, weft_diag *diag);
    /* One thing to run for all launches, which may run at the same time where neither reads or
     * writes what the other writes. *inout: NULL, or what was made of the same program at other
     * sizes or addresses, which is changed or replaced. Addresses are read now; the list lives as
     * long as what is made of it. */
    weft_err (*record_graph)(weft_engine *engine, void *queue, const weft_bound_list *list,
                             weft_diag *diag, void **inout);
    void (*free_graph)(weft_engine *engine, void *graph);
    weft_err (*run_graph)(weft_engine *engine, void *queue, void *graph, weft_diag *diag);
    /* Runs its launches one after the other and adds the time of each to time_us[bound.launch]. The
     * time between two, which the device takes to start one, counts to the second, unless the
     * device tells better. Waits. */
    weft_err (*run_graph_timed)(weft_engine *engine, void *queue, void *graph, double *time_us,
                                weft_diag *diag);
    /* Runs it n times, one behind the other: the time on the device of one. Waits. */
    weft_err (*time_graph)(weft_engine *engine, void *queue, void *graph, uint32_t n,
                           double *out_us, weft_diag *diag);
    weft_err (*wait)(weft_engine *engine, void *queue, weft_diag *diag);
    /* Adds a note on the device's memory and what this engine has of it. */
    void (*note_memory)(weft_engine *engine, weft_diag *diag);
    const char *(*lost)(const weft_engine *engine); /* NULL: it works */
} weft_device_ops;

struct weft_driver {
    const char *name, *brief;
    /* Makes engine->device. */
    weft_err (*open)(weft_engine *engine, weft_diag *diag);
    void (*close)(weft_engine *engine);
    /* Memory of activations, 64-byte aligned, zeroed. */
    weft_err (*alloc)(weft_engine *engine, uint64_t bytes, weft_diag *diag, void **out);
    void (*free)(weft_engine *engine, void *data, uint64_t bytes);
    /* UNSUP with a message names what the driver lacks. */
    weft_err (*prepare)(weft_prep *prep);
    /* Around the launches of a run, on the thread that runs them. May be NULL. */
    void (*begin)(weft_engine *engine);
    void (*end)(weft_engine *engine);
    /* Bytes of the weights it packed or loaded. May be NULL: none. */
    uint64_t (*packed_bytes)(weft_engine *engine);
    const weft_device_ops *device_ops; /* NULL: activations are in the host's memory */
};

/* Memory of weights while a model is prepared, counted and not used. */
typedef struct weft_weight_count {
    bool *in_file;         /* by weight: its pages in the file are resident */
    uint64_t file_bytes;   /* of those */
    uint64_t packed_bytes; /* of packed ones */
    uint64_t peak_bytes;   /* the most of both at a time */
} weft_weight_count;

/* Memory of activations and results; grows, never shrinks. */
typedef struct weft_memory {
    void *at;
    uint64_t bytes;
} weft_memory;

/* What products were measured to be fastest by (tune_gemms.c). */
typedef struct weft_tuner {
    char device[256];
    uint32_t sms;
    uint64_t version;
    weft_bundle_algo *algo; /* of malloc */
    uint32_t n;
} weft_tuner;

struct weft_engine {
    weft_tuner *tuner;        /* not NULL: algorithms of products are measured, and noted there */
    weft_weight_count *count; /* not NULL: weights are neither read nor packed, only counted */
    weft_bundle *bundle;
    bool owns_bundle;
    const weft_driver *driver;
    void *device;    /* of the driver */
    uint64_t serial; /* of this process; tells engines apart that had the same address */
    uint32_t threads;
    uint32_t *cpu;
    uint32_t n_cpu;
    uint32_t gpu;            /* ordinal among those that this process sees */
    uint32_t sm_first, n_sm; /* multiprocessors of the slice; n_sm 0: all */
    uint64_t mem_limit_bytes;
    _Atomic uint64_t mem_bytes; /* in use by arenas and results, and weights on a device */
    bool share_memory;          /* sessions use `memory`, not their own */
    weft_memory memory;
    pthread_mutex_t lock; /* of what sessions share: checked, and the driver's tables */
    uint8_t *checked;     /* weight w was compared with its checksum */
};

/* An engine of this driver; the bundle is borrowed and outlives the engine. options: NULL for the
 * defaults; `driver` of them is not read. */
WEFT_MUST_USE weft_err weft_engine__create(weft_bundle *bundle, const weft_driver *driver,
                                           const weft_engine_options *options, weft_diag *diag,
                                           weft_engine **out);
/* As weft_engine_open on a bundle that is borrowed and outlives the engine. */
WEFT_MUST_USE weft_err weft_engine__open_bundle(weft_bundle *bundle,
                                                const weft_engine_options *options, weft_diag *diag,
                                                weft_engine **out);
/* Compares a weight with its checksum, once. */
WEFT_MUST_USE weft_err weft_engine__check_weight(weft_engine *engine, uint32_t w, weft_diag *diag);
/* To be called, with a count, where weight w is packed: into `room` bytes, with `beside` bytes more
 * (of the file, and scratch memory) until that is done. The file's are not needed any more. */
void weft_engine__count_pack(weft_engine *engine, uint32_t w, uint64_t room, uint64_t beside);
/* Takes memory from the limit; NOMEM with a message when it is over. */
WEFT_MUST_USE weft_err weft_engine__take(weft_engine *engine, uint64_t bytes, weft_diag *diag);
void weft_engine__give(weft_engine *engine, uint64_t bytes);
/* Frees it and gives it back; it is empty then. */
void weft_engine__release(weft_engine *engine, weft_memory *memory);

#endif
