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

#include "base/device_type.h"
#include "ir/cost.h"
#include "ir/ir.h"

/* -- Devices -------------------------------------------------------------------------------- */

/* What a device does in a second; row of gpus.def, of the same name as in base/devices.def. Rates
 * are dense peaks of the whole GPU, or of one core of a CPU. 0: not known. */
typedef struct weft_gpu {
    const char *name;
    uint32_t capability; /* 10 * major + minor; 0: no GPU */
    double f64_gflops, f32_gflops, tf32_gflops, f16_gflops, bf16_gflops, f8_gflops, i8_gflops;
    double f64_matrix_gflops;
    double bandwidth_gbps; /* memory, 1e9 bytes per second; of a CPU: one core alone */
    double cache_gbps;     /* last-level cache */
    uint64_t cache_bytes;
    double base_mhz, clock_mhz; /* rates are those at clock_mhz */
    double launch_us;           /* least time of a kernel */
    double power_w, idle_w;     /* of a CPU: of one core */
    uint64_t context_bytes;     /* of a process before it has loaded anything */
    const char *source;
} weft_gpu;

const weft_gpu *weft_gpu_find(const char *name); /* NULL when unknown */
const weft_gpu *weft_gpu_at(size_t i);           /* NULL behind the last */

/* A part of a device, as numbers. */
typedef struct weft_slice {
    const weft_gpu *gpu;
    char name[WEFT_SLICE_NAME_MAX];    /* "": whole device */
    uint32_t units;                    /* SMs, or cores */
    uint32_t all_units;                /* of the device; of a CPU: those of the slice */
    double share;                      /* units / all_units */
    double bandwidth_gbps, cache_gbps; /* what its units draw while nobody else does */
    uint32_t bandwidth_units;          /* of which it may have a part; 0: `units` have all of it */
    uint64_t cache_bytes;
    uint64_t mem_bytes; /* 0: not known */
} weft_slice;

/* `slice`: "" (a GPU as a whole), "1g.18gb" (MIG), "40%" (MPS: so many of the SMs and what they
 * draw of the bandwidth while nobody else does), "3g.71gb/40%" (MPS in a MIG instance), "2core"
 * (CPU; "" is one core). INPUT when the device or the slice is unknown. */
WEFT_MUST_USE weft_err weft_slice_make(const char *gpu, const char *slice, weft_diag *diag,
                                       weft_slice *out);

/* Of an MPS share: what is left of bandwidth and cache when the rest of the device (or of its
 * instance) takes its own part: what a plan may count on. Other slices stay as they are. */
void weft_slice_crowd(weft_slice *slice);

/* -- Kernels -------------------------------------------------------------------------------- */

/* What a kernel computes, as far as its time depends on it. Rows of kinds.def. */
typedef enum weft_kernel_kind {
    WEFT_KERNEL_OTHER, /* nothing is known but its work */
#define KIND(name, text, brief, uses_matrix_units) WEFT_KERNEL_##name,
#include "estimator/workload/kinds.def"
#undef KIND
    WEFT_KERNEL_COUNT
} weft_kernel_kind;

const char *weft_kernel_kind_name(weft_kernel_kind kind);
/* Runs on matrix units. */
bool weft_kernel_uses_matrix_units(weft_kernel_kind kind);

/* The problem of one kernel. What does not apply is 0.
 *
 *   GEMM       batch GEMMs of m x k by k x n
 *   CONV       the same as an implicit GEMM: batch = groups, m = images * positions, n = filters
 *              of a group, k = taps of a filter; and `conv`
 *   DEPTHWISE  `conv`, rows, cols
 *   ATTENTION  batch = images * heads, m queries, n keys, k head size
 *   the rest   rows x cols elements of the result; what is reduced or normalised is a row; a batch
 *              norm has channels as rows, and batch = images */
typedef struct weft_kernel {
    weft_kernel_kind kind;
    weft_dtype dtype; /* of the operands */
    const char *fn;   /* "gelu", "layer_norm"...; NULL: not one function */
    weft_work work;
    double batch, m, n, k;
    double rows, cols;
    weft_conv_shape conv;
    weft_delta delta;   /* GEMM: what is added to it by segments of its rows */
    double flop_saving; /* algorithm needs flops / this (Winograd); 0: 1 */
    /* What the program touches between two uses of this kernel's weights: a cache of that size
     * still has them. 0: not known, they come from memory. */
    double reuse_bytes;
} weft_kernel;

/* Kernels by their sizes, with the work that follows from them.
 *   gemm       is_weight: the second operand is a weight
 *   conv       DEPTHWISE where each group has one filter
 *   rows       element-wise functions, normalisations, softmax: `operands` of rows x cols elements
 *   attention  sizes of one head; k and v of `keys` rows */
weft_kernel weft_kernel_make_gemm(weft_dtype dtype, double batch, double m, double n, double k,
                                  bool is_weight);
/* Adds to a GEMM what is added to it by segments of its rows. */
void weft_kernel_add_delta(weft_kernel *gemm, const weft_delta *delta);
weft_kernel weft_kernel_make_conv(weft_dtype dtype, const weft_conv_shape *shape);
weft_kernel weft_kernel_make_rows(weft_kernel_kind kind, const char *fn, weft_dtype dtype,
                                  double operands, double rows, double cols);
weft_kernel weft_kernel_make_attention(weft_dtype dtype, double images, double heads,
                                       double queries, double keys, double head);

/* What the learned model looks at: for training it. `family` names the trees that correct such a
 * kernel, "none" where there are none; what they correct is base_us, and no prediction is below
 * floor_us. Names are those of features.def. */
enum { WEFT_FEATURES_MAX = 96 };
typedef struct weft_features {
    const char *family;
    double base_us, floor_us;
    size_t n;
    const char *name[WEFT_FEATURES_MAX];
    float value[WEFT_FEATURES_MAX];
} weft_features;

/* Which kernels a graph becomes. */
typedef enum weft_lowering {
    WEFT_LOWERING_FUSED,    /* one for each node of the kernel stage: what Weft launches */
    WEFT_LOWERING_FRAMEWORK /* what an eager framework launches for the same network */
} weft_lowering;

/* An eager framework; row of frameworks.def. */
typedef struct weft_framework {
    const char *name;
    double host_us;           /* of one operator, on the thread that issues them */
    double in_gbps, out_gbps; /* copies of inputs and outputs */
    double conv_eff;          /* part of their peak that convolutions reach on matrix units */
    double conv_traffic;      /* bytes of such a convolution, over what it needs */
} weft_framework;

const weft_framework *weft_framework_find(const char *name); /* NULL when unknown */
const weft_framework *weft_framework_at(size_t i);           /* NULL behind the last */

typedef struct weft_calibration weft_calibration;

/* Zero-initialised: the defaults. */
typedef struct weft_estimate_options {
    bool exact_f32;       /* f32 GEMMs on plain units, not as TF32 */
    uint64_t arena_bytes; /* peak of intermediate values, from the planner; 0: see estimate_graph */
    const char *model;    /* row of models.def to use; NULL: the first that supports the kernel */
    weft_lowering lowering;
    const weft_framework *framework; /* NULL: the first row */
    bool folded_norm; /* FRAMEWORK: biases of convolutions stand for batch norms that were folded */
    uint64_t beside_bytes;               /* what others touch between two executions of the graph */
    const weft_calibration *calibration; /* of the slice's device; NULL: none */
} weft_estimate_options;

/* mreq_bytes is 0: a kernel has no memory of its own. *out_model: the row that was used. */
WEFT_MUST_USE weft_err weft_estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                                            const weft_estimate_options *options, weft_diag *diag,
                                            weft_cost *out, const char **out_model);

/* Names of the rows of models.def; NULL behind the last. */
const char *weft_model_name_at(size_t i);

/* "compute", "memory" or "launch": which of them takes longest at the slice's peaks. */
const char *weft_peak_bound(const weft_kernel *kernel, const weft_slice *slice,
                            const weft_estimate_options *options);
/* Time from the call of such an operator in an eager framework to the start of its kernel, which
 * published times of single f32 operators contain; 0 for other types and on CPUs. */
double weft_trees_dispatch_us(const weft_kernel *kernel, const weft_slice *slice);
void weft_features_find(const weft_kernel *kernel, const weft_slice *slice,
                        const weft_estimate_options *options, weft_features *out);

/* -- Compute units over time ---------------------------------------------------------------- */

/* What one block of a kernel takes. Zero is the default everywhere but `threads`. */
typedef struct weft_thread_block {
    uint32_t threads, regs;               /* registers of a thread */
    uint32_t static_bytes, dynamic_bytes; /* shared memory */
    bool opt_in;                          /* may have more than 48 KiB: ... */
    uint32_t dynamic_max_bytes;           /* ... so many dynamic ones */
    bool has_carveout;                    /* asks for a split of shared memory and L1: ... */
    uint32_t carveout_percent;            /* ... so much shared memory, 0..100 */
    uint32_t barriers, virtual_resources;
} weft_thread_block;

enum { WEFT_OCCUPANCY_UNLIMITED = INT32_MAX };

typedef struct weft_occupancy {
    uint32_t blocks, warps; /* on a multiprocessor at once; 0: the block cannot run */
    double share;           /* warps of those it can hold, 0..1 */
    uint32_t limit_warps, limit_blocks, limit_regs, limit_shared, limit_barriers, limit_resources;
    uint32_t block_regs, block_shared_bytes; /* allocated */
} weft_occupancy;

/* UNSUP: capability unknown. INPUT: no block at all. */
WEFT_MUST_USE weft_err weft_occupancy_find(uint32_t capability, const weft_thread_block *block,
                                           weft_diag *diag, weft_occupancy *out);

/* How a kernel is launched, as far as occupancy depends on it. */
typedef struct weft_launch {
    double blocks;
    uint32_t threads, regs, shared_bytes; /* of a block; registers of a thread */
} weft_launch;

/* How a kernel uses the units of a slice; shares are of the whole device, 0..1.
 *
 *   sm_need      fewest units that run it within 5 % of its time
 *   sm_peak      units that have a block at once
 *   occ_theory   warps that fit on a unit, of those it could hold
 *   occ_active   mean warps on a unit that has any ("achieved occupancy")
 *   occ_elapsed  the same over all units and the whole time
 *   sm_active    mean part of the units that have a block */
typedef struct weft_usage {
    weft_launch launch;
    double sm_need, sm_peak, occ_theory, occ_active, occ_elapsed, sm_active;
} weft_usage;

enum { WEFT_CREQ_BINS = 20 };

/* Share of the device that a graph needs over its time: sum of sm_need over the kernels that run
 * together when each starts as soon as those it reads from have ended. */
typedef struct weft_creq {
    double max, mean, p95;
    double bin[WEFT_CREQ_BINS]; /* part of the time at a need in (i / BINS, (i + 1) / BINS] */
    double span_us;             /* time of the longest chain */
} weft_creq;

/* -- Graphs --------------------------------------------------------------------------------- */

/* One kernel of a graph, on no device yet. */
typedef struct weft_graph_kernel {
    weft_node node;
    const char *op;
    weft_kernel kernel;
    uint32_t launches; /* equal ones, one after the other */
} weft_graph_kernel;

/* One node: its kernels, which run one after the other, wait for the steps that its edges name. */
typedef struct weft_graph_step {
    uint32_t first_kernel, n_kernel; /* none: views, shapes and sizes */
    uint32_t first_edge, n_edge;
} weft_graph_step;

/* The kernels of a graph at given sizes: what weft_estimate_graph finds before it looks at the
 * device, to be used for many slices. */
typedef struct weft_workload {
    const weft_graph_kernel *kernel; /* in order of execution */
    size_t n;
    const weft_graph_step *step;
    size_t n_step;
    const uint32_t *edge; /* numbers of earlier steps */
    weft_lowering lowering;
    uint32_t n_beside; /* GEMMs that may run at the same time, at most */
    uint64_t weight_bytes, arena_bytes, in_bytes, out_bytes;
} weft_workload;

typedef struct weft_kernel_cost {
    weft_node node;
    const char *op;
    weft_kernel kernel;
    uint32_t launches; /* `cost` is of all of them */
    const char *model; /* row of models.def */
    const char *bound; /* "compute", "memory", "launch": what takes most of its time */
    weft_cost cost;
    weft_usage usage;
    double start_us, end_us; /* when each kernel starts as early as its operands allow */
} weft_kernel_cost;

typedef struct weft_estimate {
    const weft_kernel_cost *kernel; /* in order of execution */
    size_t n;
    weft_cost total;
    double device_us; /* sum over the kernels; total.time_us also has what a framework adds */
    weft_creq creq;
    /* mreq_bytes is their sum */
    uint64_t weight_bytes, arena_bytes, workspace_bytes, io_bytes, context_bytes;
} weft_estimate;

/* A kernel's share of the device from when to when. */
typedef struct weft_interval {
    double start_us, end_us, need;
} weft_interval;

/* Sums the needs of those that overlap, [start, end), over the whole time. */
void weft_creq_sweep(const weft_interval *interval, size_t n, weft_arena *scratch, weft_creq *out);
/* As the USHER paper does: the largest sum over kernels whose starts lie within tau_us of the
 * first of them. Misses kernels that overlap but start apart; for comparison only. */
double weft_creq_usher(const weft_interval *interval, size_t n, double tau_us, weft_arena *scratch);

/* Values of the graph's symbols (by index) for one batch size: the batch symbol gets `batch`,
 * others their upper bound, or 128 where they have none. UNSUP: batch over 1 without a batch
 * symbol. INPUT: outside the bounds. `out` has room for weft_graph_symbol_count. */
WEFT_MUST_USE weft_err weft_estimate_symbols(weft_graph *g, uint32_t batch, weft_diag *diag,
                                             int64_t *out);

/* The kernels of a kernel- or plan-stage graph. Peak of intermediate values: options, else the
 * bucket of these symbols, else what is alive at once. UNSUP: a shape that only data tells, naming
 * the node. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_workload_make(weft_graph *g, const int64_t *symbol,
                                          const weft_estimate_options *options, weft_arena *arena,
                                          weft_diag *diag, weft_workload *out);
/* One execution of them, kernel after kernel. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_estimate_workload(const weft_workload *work, const weft_slice *slice,
                                              const weft_estimate_options *options,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_estimate *out);
/* Both. */
WEFT_MUST_USE weft_err weft_estimate_graph(weft_graph *g, const int64_t *symbol,
                                           const weft_slice *slice,
                                           const weft_estimate_options *options, weft_arena *arena,
                                           weft_diag *diag, weft_estimate *out);

/* A joint graph, and the models that are its parts by themselves. */
typedef struct weft_joint_estimate {
    weft_estimate joint;
    const weft_estimate *part; /* in order of the parts */
    uint32_t n_part;
    double apart_us; /* of the parts, one after the other */
} weft_joint_estimate;

/* One execution of each. Models that run one after the other find the caches as the others leave
 * them, who read all of their weights, shared ones once, in between. `value`: of the module's
 * symbols, as weft_dim_as_symbol counts them. INPUT: a part's model is not there. Lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_estimate_joint(weft_graph *joint, const int64_t *value,
                                           uint32_t n_value, const weft_slice *slice,
                                           weft_arena *arena, weft_diag *diag,
                                           weft_joint_estimate *out);

/* -- Profiles ------------------------------------------------------------------------------- */

/* The profile of a graph: one point for each slice (as weft_slice_make), batch and number of
 * processes (n_procs 0: one), in the order of the arguments, also where the slice's memory is too
 * small (the scheduler says so by name). mreq_bytes are those of one process. */
WEFT_MUST_USE weft_err weft_estimate_profile(weft_graph *g, const weft_slice *slice, size_t n_slice,
                                             const uint32_t *batch, size_t n_batch,
                                             const uint32_t *procs, size_t n_procs,
                                             const weft_estimate_options *options,
                                             weft_arena *arena, weft_diag *diag, weft_profile *out);

/* What the time of a kernel is made of. */
typedef struct weft_kernel_reason {
    double peak_gflops;  /* of the slice, for its element type */
    double saving;       /* fewer flops by its algorithm */
    double compute_us;   /* flops / saving / peak */
    double bytes;        /* read and written */
    double memory_bytes; /* those that miss the cache */
    double traffic_us;   /* at the bandwidth that is reached */
    double launch_us;
    double roofline_us; /* launch + the longer of compute and traffic */
    const char *family; /* trees that correct it, "none" */
    double base_us;     /* what they correct */
    double correction;  /* time / base */
    double floor_us;    /* nothing is faster */
} weft_kernel_reason;

void weft_estimate_explain(const weft_kernel *kernel, const weft_slice *slice,
                           const weft_estimate_options *options, double time_us,
                           weft_kernel_reason *out);

/* -- Calibration ---------------------------------------------------------------------------- */

/* Constants of a device that measurements can tell; calibrate.c. */
typedef enum weft_calibration_constant {
    WEFT_CALIBRATION_LAUNCH,
    WEFT_CALIBRATION_GEMM, /* bound by arithmetic, as the next two */
    WEFT_CALIBRATION_CONV,
    WEFT_CALIBRATION_VECTOR,
    WEFT_CALIBRATION_MEMORY, /* bound by traffic */
    WEFT_CALIBRATION_CONSTANTS
} weft_calibration_constant;

enum { WEFT_CALIBRATION_ROWS_MIN = 8 };

struct weft_calibration {
    char gpu[WEFT_DEVICE_NAME_MAX];
    double scale[WEFT_CALIBRATION_CONSTANTS]; /* of times; 1: as the device's row has it */
    bool fitted[WEFT_CALIBRATION_CONSTANTS];  /* false: too few rows, kept */
    size_t rows[WEFT_CALIBRATION_CONSTANTS];  /* that say something of it */
    size_t n_rows;
    /* Mean relative errors: of the device's row, of the fit on its own rows, and of fits on shapes
     * that they had not seen (if there were enough). */
    double error_before, error_fitted, error_after;
    bool held_out;
};

/* One measurement: a kernel, or all kernels of a model. */
typedef struct weft_calibration_row {
    double launch_us;                           /* predicted: of all launches, */
    double body_us[WEFT_CALIBRATION_CONSTANTS]; /* and of the rest, by constant */
    double measured_us;
    uint64_t shape; /* rows of one shape are never both fitted and tested */
} weft_calibration_row;

const char *weft_calibration_name(weft_calibration_constant c); /* NULL: no such */
/* Adds what is predicted for a kernel, or a workload, to a row. */
WEFT_MUST_USE weft_err weft_calibration_add_kernel(const weft_kernel *kernel, double launches,
                                                   const weft_slice *slice,
                                                   const weft_estimate_options *options,
                                                   weft_diag *diag, weft_calibration_row *row);
WEFT_MUST_USE weft_err weft_calibration_add_workload(const weft_workload *work,
                                                     const weft_slice *slice,
                                                     const weft_estimate_options *options,
                                                     weft_diag *diag, weft_calibration_row *row);
/* INPUT: fewer than WEFT_CALIBRATION_ROWS_MIN rows, or times that are none. */
WEFT_MUST_USE weft_err weft_calibration_fit(const weft_calibration_row *row, size_t n,
                                            const weft_gpu *gpu, weft_diag *diag,
                                            weft_calibration *out);

/* -- Contention ----------------------------------------------------------------------------- */

/* What one execution takes of a slice on which it runs alone; parts are means over its time, 0..1.
 * Zero is a model that takes nothing but time. */
typedef struct weft_contender {
    double time_us;
    double busy;          /* of the bottleneck: units, or traffic */
    double cache, memory; /* bandwidth of the last-level cache, of the memory */
    double launches;
} weft_contender;

weft_contender weft_contention_demand(const weft_estimate *one, const weft_slice *slice);

/* `procs` processes, each of which executes it again and again on the same slice: time of one
 * execution, and executions a second of all together. INPUT: procs is 0 or over 1024, or no such
 * demand. */
WEFT_MUST_USE weft_err weft_contention_procs(const weft_contender *one, uint32_t procs,
                                             weft_diag *diag, double *out_latency_us,
                                             double *out_throughput_per_s);

enum { WEFT_CONTENTION_MAX = 8 };

typedef enum weft_contention {
    WEFT_CONTENTION_QUEUE, /* best on the data there is; see contention.c */
    WEFT_CONTENTION_GPULET,
    WEFT_CONTENTION_IGNITER
} weft_contention;

/* How many times as long each of `n` models takes next to the others as alone, at least 1; demands
 * on the same device. own_units: their MPS shares do not overlap (the queue knows the difference).
 * INPUT: n is 0 or over 8, or no such demand. */
WEFT_MUST_USE weft_err weft_contention_factors(weft_contention form, const weft_contender *demand,
                                               uint32_t n, bool own_units, weft_diag *diag,
                                               double *out_factor);

#endif
