/* Numbers about kernels: how long, how much of a device, how much memory, how much energy.
 *
 * Three layers that never mix: work (ops/, device independent) -> device row (gpus.def, sliced) ->
 * model (rows of models.def). Every number says which model made it and how far off it is expected
 * to be. Unknown is unknown: a device, slice or shape that is not known is refused, never guessed.
 * README.md has every formula.
 *
 * Pure functions of their arguments; thread-compatible. */
#ifndef WEFT_ESTIMATOR_ESTIMATOR_H
#define WEFT_ESTIMATOR_ESTIMATOR_H

#include "base/device.h"
#include "ir/cost.h"
#include "ir/ir.h"

/* -- Devices -------------------------------------------------------------------------------- */

/* What a device does in a second; row of gpus.def, of the same name as in base/devices.def. Rates
 * are dense peaks of the whole GPU, or of one core of a CPU. 0: not known. */
typedef struct weft_gpu {
    const char *name;
    double f64_gflops, f32_gflops, tf32_gflops, f16_gflops, bf16_gflops, i8_gflops;
    double bandwidth_gbps; /* memory, 1e9 bytes per second; of a CPU: one core alone */
    double cache_gbps;     /* last-level cache */
    uint64_t cache_bytes;
    double clock_mhz;
    double launch_us;       /* least time of a kernel */
    double power_w, idle_w; /* of a CPU: of one core */
    uint64_t context_bytes; /* of a process before it has loaded anything */
    const char *source;
} weft_gpu;

const weft_gpu *weft_gpu_find(const char *name); /* NULL when unknown */
const weft_gpu *weft_gpu_at(size_t i);           /* NULL behind the last */

/* A part of a device, as numbers. */
typedef struct weft_slice {
    const weft_gpu *gpu;
    char name[WEFT_SLICE_NAME_MAX]; /* "": whole device */
    uint32_t units;                 /* SMs, or cores */
    uint32_t all_units;             /* of the device; of a CPU: those of the slice */
    double share;                   /* units / all_units */
    double bandwidth_gbps, cache_gbps;
    uint64_t cache_bytes;
    uint64_t mem_bytes; /* 0: not known */
} weft_slice;

/* `slice`: "" (a GPU as a whole), "1g.18gb" (MIG), "40%" (MPS: SMs and, since the rest of the
 * device may be busy, bandwidth in proportion), "2core" (CPU; "" is one core). INPUT when the
 * device or the slice is unknown. */
WEFT_MUST_USE weft_err weft_slice_make(const char *gpu, const char *slice, weft_diag *diag,
                                       weft_slice *out);

/* -- Kernels -------------------------------------------------------------------------------- */

typedef enum weft_kernel_class {
    WEFT_KERNEL_SIMPLE, /* element-wise, movement, reductions: flops on plain units */
    WEFT_KERNEL_GEMM    /* matrix product or convolution: flops on matrix units */
} weft_kernel_class;

/* The problem of one kernel. GEMM: `batch` products of m x k by k x n. */
typedef struct weft_kernel {
    weft_kernel_class cls;
    weft_dtype dtype; /* of the operands */
    weft_work work;
    double batch, m, n, k;
    bool is_conv;
    double flop_saving; /* algorithm needs flops / this (Winograd); 0: 1 */
} weft_kernel;

/* Zero-initialised: the defaults. */
typedef struct weft_estimate_options {
    bool exact_f32;       /* f32 products on plain units, not as TF32 */
    uint64_t arena_bytes; /* peak of intermediate values, from the planner; 0: see estimate_graph */
    const char *model;    /* row of models.def to use; NULL: the first that supports the kernel */
} weft_estimate_options;

/* mreq_bytes is 0: a kernel has no memory of its own. *out_model: the row that was used. */
WEFT_MUST_USE weft_err weft_estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                                            const weft_estimate_options *options, weft_diag *diag,
                                            weft_cost *out, const char **out_model);

/* -- Graphs --------------------------------------------------------------------------------- */

typedef struct weft_kernel_cost {
    weft_node node;
    const char *op;
    weft_kernel kernel;
    const char *model; /* row of models.def */
    weft_cost cost;
} weft_kernel_cost;

typedef struct weft_estimate {
    const weft_kernel_cost *kernel; /* in order of execution */
    size_t n;
    weft_cost total;
    uint64_t weight_bytes, arena_bytes, io_bytes, context_bytes; /* mreq_bytes is their sum */
} weft_estimate;

/* Values of the graph's symbols (by index) for one batch size: the batch symbol gets `batch`,
 * others their upper bound, or 128 where they have none. UNSUP: batch over 1 without a batch
 * symbol. INPUT: outside the bounds. `out` has room for weft_graph_symbol_count. */
WEFT_MUST_USE weft_err weft_estimate_symbols(weft_graph *g, uint32_t batch, weft_diag *diag,
                                             int64_t *out);

/* One execution of a kernel- or plan-stage graph, kernel after kernel. Peak of intermediate values:
 * options, else the bucket of these symbols, else what is alive at once. UNSUP: a shape that only
 * data tells, naming the node. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_estimate_graph(weft_graph *g, const int64_t *symbol,
                                           const weft_slice *slice,
                                           const weft_estimate_options *options, weft_arena *arena,
                                           weft_diag *diag, weft_estimate *out);

/* The profile of a graph: one point for each slice (as weft_slice_make) and batch, in the order of
 * the arguments, also where the slice's memory is too small (the scheduler says so by name). */
WEFT_MUST_USE weft_err weft_estimate_profile(weft_graph *g, const weft_slice *slice, size_t n_slice,
                                             const uint32_t *batch, size_t n_batch,
                                             const weft_estimate_options *options,
                                             weft_arena *arena, weft_diag *diag, weft_profile *out);

#endif
