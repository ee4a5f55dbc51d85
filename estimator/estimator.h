/* Estimates for kernels and graphs: time, share of a device, memory, energy.
 *
 * Three separate layers: work (ops/, independent of the device) -> device (a row of gpus.def, or a
 * slice of it) -> model (rows of models.def). Every estimate names the model that made it and its
 * expected relative error. A device, slice or shape that is not known is refused, never guessed.
 * README.md has every formula.
 *
 * Pure functions of their arguments; thread-compatible. */
#ifndef WEFT_ESTIMATOR_ESTIMATOR_H
#define WEFT_ESTIMATOR_ESTIMATOR_H

#include "base/device_type.h"
#include "ir/cost.h"
#include "ir/ir.h"

/* -- Devices -------------------------------------------------------------------------------- */

/* Rates of a device; row of gpus.def, with the same name as in base/devices.def. Rates are dense
 * peaks of the whole GPU, or of one core of a CPU. 0: not known. */
typedef struct weft_gpu {
    const char *name;
    bool is_cpu;         /* a core of it */
    uint32_t capability; /* 10 * major + minor; 0: none of NVIDIA's */
    double f64_gflops, f32_gflops, tf32_gflops, f16_gflops, bf16_gflops, f8_gflops, f4_gflops,
        i8_gflops;
    double f64_matrix_gflops;
    double bandwidth_gbps; /* memory, 1e9 bytes per second; CPU: one core alone */
    double all_gbps;       /* memory, all cores of a CPU's socket; 0: not known, or a GPU */
    double cache_gbps;     /* last-level cache */
    uint64_t cache_bytes;
    double base_mhz, clock_mhz; /* the rates hold at clock_mhz */
    double launch_us;           /* time of an empty kernel */
    double power_w, idle_w;     /* CPU: of one core */
    uint64_t context_bytes;     /* memory of a process that has loaded nothing yet */
    const char *source;
} weft_gpu;

const weft_gpu *weft_gpu_find(const char *name); /* NULL when unknown */
const weft_gpu *weft_gpu_at(size_t i);           /* NULL behind the last */

/* A part of a device, as numbers. */
typedef struct weft_slice {
    const weft_gpu *gpu;
    char name[WEFT_SLICE_NAME_MAX];    /* "": whole device */
    uint32_t units;                    /* SMs, or cores */
    uint32_t all_units;                /* units of the device; CPU: same as units */
    double share;                      /* units / all_units */
    double bandwidth_gbps, cache_gbps; /* while the rest of the device is idle */
    uint32_t bandwidth_units; /* MPS share: units among which the bandwidth is shared; else 0 */
    uint64_t cache_bytes;
    uint64_t mem_bytes; /* 0: not known */
    bool crowded;       /* weft_slice_crowd has changed it */
} weft_slice;

/* Finds a slice by name: "" (the whole GPU), "1g.18gb" (MIG), "40%" (MPS: at most 40 % of the SMs,
 * and the bandwidth that these reach while the rest of the device is idle), "3g.71gb/40%" (MPS in a
 * MIG instance), "2core" (CPU; "" is one core). INPUT: the device or the slice is unknown. */
WEFT_MUST_USE weft_err weft_slice_make(const char *gpu, const char *slice, weft_diag *diag,
                                       weft_slice *out);

/* Reduces bandwidth and cache of an MPS share to its proportional part, which it has while the
 * other clients of the device (or of the MIG instance) use theirs: what a plan may count on. Other
 * slices stay as they are. */
void weft_slice_crowd(weft_slice *slice);

/* How many times the rates, the power and the price of the device's row the slice has: the cores of
 * a CPU, whose row is one core; the share of a GPU. */
double weft_slice_parts(const weft_slice *slice);

/* -- Kernels -------------------------------------------------------------------------------- */

/* Kind of a kernel, as far as its time depends on it; rows of kinds.def. */
typedef enum weft_kernel_kind {
    WEFT_KERNEL_OTHER, /* only its work is known */
#define KIND(name, text, brief, uses_matrix_units) WEFT_KERNEL_##name,
#include "estimator/workload/kinds.def"
#undef KIND
    WEFT_KERNEL_COUNT
} weft_kernel_kind;

const char *weft_kernel_kind_name(weft_kernel_kind kind);

/* Whose library launches a kernel; rows of launchers.def. */
typedef enum weft_launcher {
#define LAUNCHER(name, text, brief) WEFT_LAUNCHER_##name,
#include "estimator/workload/launchers.def"
#undef LAUNCHER
    WEFT_LAUNCHER_COUNT
} weft_launcher;

const char *weft_launcher_name(weft_launcher launcher);
weft_launcher weft_launcher_find(const char *name); /* WEFT_LAUNCHER_COUNT: unknown */
/* True for kinds whose arithmetic runs on matrix units where the device has them. */
bool weft_kernel_uses_matrix_units(weft_kernel_kind kind);

/* The problem that one kernel solves. Fields that do not apply are 0.
 *
 *   GEMM       batch GEMMs of m x k by k x n
 *   CONV       sizes of the implicit GEMM: batch = groups, m = images * positions, n = filters of a
 *              group, k = taps of a filter; and `conv`
 *   DEPTHWISE  `conv`, rows, cols
 *   ATTENTION  batch = images * heads, m queries, n keys, k head size; flop_saving: all pairs of
 *              query and key over those that are seen
 *   others     rows x cols elements of the result; a row is what is reduced or normalised together;
 *              batch norm: rows = channels, batch = images */
/* What GPUs add to a product of 8 and fewer bits: kernels that bring factors into the product's
 * form, and one from sums to results (Weft's: codegen/cuda/emit_int8.c; of floats, a framework's
 * that quantises the first factor). CPUs have none of it. */
typedef struct weft_staging {
    double launches;
    double packed_bytes; /* factors, written once and read once */
    double sum_bytes;    /* i32 sums, the same */
} weft_staging;

typedef struct weft_kernel {
    weft_kernel_kind kind;
    weft_dtype dtype; /* of the operands */
    weft_launcher launcher;
    const char *fn; /* "gelu", "layer_norm"...; NULL: several functions */
    weft_work work;
    double batch, m, n, k;
    double rows, cols;
    weft_conv_shape conv;
    weft_delta delta;   /* GEMM: additional work by segments of its rows */
    double flop_saving; /* the algorithm (Winograd) needs flops / flop_saving; 0: 1 */
    weft_staging staging;
    /* Stack distance of the weights: bytes that the program touches between two uses of them. A
     * cache of that size still holds the weights. 0: not known; they are read from memory. */
    double reuse_bytes;
    /* No program is around it: it is repeated, as benchmarks of GPUs do, with a few copies of its
     * weights in turn. A cache that holds all copies holds the weights. */
    bool is_alone;
} weft_kernel;

/* Make kernels from their sizes, with the work that follows from these.
 *
 *   gemm       is_weight: the second operand is a weight; results of f8 and f4 have 16 bits, as has
 *              the first factor before a kernel quantises it (staging)
 *   conv       DEPTHWISE if each group has one filter
 *   rows       element-wise functions, normalisations, softmax: `operands` of rows x cols elements
 *   attention  sizes of one head; k and v have `keys` rows */
weft_kernel weft_kernel_make_gemm(weft_dtype dtype, double batch, double m, double n, double k,
                                  bool is_weight);
/* Bytes that a value takes in memory, with its part of a scale (f4e2m1 as in NVFP4). */
double weft_kernel_value_bytes(weft_dtype dtype);
/* Adds the work of a delta (ops/work.h) to a GEMM. */
void weft_kernel_add_delta(weft_kernel *gemm, const weft_delta *delta);
weft_kernel weft_kernel_make_conv(weft_dtype dtype, const weft_conv_shape *shape);
weft_kernel weft_kernel_make_rows(weft_kernel_kind kind, const char *fn, weft_dtype dtype,
                                  double operands, double rows, double cols);
weft_kernel weft_kernel_make_attention(weft_dtype dtype, double images, double heads,
                                       double queries, double keys, double head);

/* Forms of attention: every query sees every key; the keys up to its own, which are the last; keys
 * and values of many sequences that no cache holds (one query for each). */
typedef enum weft_attention_form {
    WEFT_ATTENTION_FULL,
    WEFT_ATTENTION_PREFILL,
    WEFT_ATTENTION_DECODE
} weft_attention_form;
/* Gives an attention kernel its form; `shared` heads of queries have one head of keys and values.
 */
void weft_kernel_form_attention(weft_kernel *attention, weft_attention_form form, double shared);

/* Inputs of the learned model (model_trees.c), for training it. `family` names the trees that
 * correct such a kernel, or is "none"; the trees correct base_us, and no prediction is below
 * floor_us; staging_us is added to it. Names are those of features.def. */
enum { WEFT_FEATURES_MAX = 96 };
typedef struct weft_features {
    const char *family;
    double base_us, floor_us, staging_us;
    size_t n;
    const char *name[WEFT_FEATURES_MAX];
    float value[WEFT_FEATURES_MAX];
} weft_features;

/* Which kernels a graph becomes. */
typedef enum weft_lowering {
    WEFT_LOWERING_FUSED,    /* one kernel for each node of the kernel stage: what Weft launches */
    WEFT_LOWERING_FRAMEWORK /* what an eager framework launches for the same network */
} weft_lowering;

/* An eager framework; row of frameworks.def. */
typedef struct weft_framework {
    const char *name;
    double host_us;           /* host time of one operator on the thread that issues operators */
    double in_gbps, out_gbps; /* copies of inputs and outputs */
    double conv_eff;          /* part of the peak that convolutions reach on matrix units */
    double conv_traffic;      /* bytes that such a convolution moves, over those it needs */
} weft_framework;

const weft_framework *weft_framework_find(const char *name); /* NULL when unknown */
const weft_framework *weft_framework_at(size_t i);           /* NULL behind the last */

typedef struct weft_calibration weft_calibration;

/* Zero-initialised: the defaults. */
typedef struct weft_estimate_options {
    bool exact_f32;       /* f32 GEMMs run on plain units instead of as TF32 */
    uint64_t arena_bytes; /* peak of the intermediate values; 0: weft_workload_make finds it */
    const char *model;    /* row of models.def to use; NULL: the first that supports the kernel */
    weft_lowering lowering;
    const weft_framework *framework; /* NULL: the first row */
    bool folded_norm;      /* FRAMEWORK: a convolution's bias stands for a folded batch norm */
    uint64_t beside_bytes; /* bytes that other programs touch between two executions */
    const weft_calibration *calibration; /* of the slice's device; NULL: none */
} weft_estimate_options;

/* Estimates one kernel. mreq_bytes is 0: memory belongs to graphs. *out_model (may be NULL): the
 * row of models.def that was used. */
WEFT_MUST_USE weft_err weft_estimate_kernel(const weft_kernel *kernel, const weft_slice *slice,
                                            const weft_estimate_options *options, weft_diag *diag,
                                            weft_cost *out, const char **out_model);

/* Names of the rows of models.def; NULL behind the last. */
const char *weft_model_name_at(size_t i);

/* "compute", "memory" or "launch": the largest of the three times at the slice's peaks. */
const char *weft_peak_bound(const weft_kernel *kernel, const weft_slice *slice,
                            const weft_estimate_options *options);
/* Time from the call of an operator in an eager framework to the start of its kernel. Published
 * times of single f32 operators contain it; 0 for other types and on CPUs. */
double weft_trees_dispatch_us(const weft_kernel *kernel, const weft_slice *slice);
void weft_features_find(const weft_kernel *kernel, const weft_slice *slice,
                        const weft_estimate_options *options, weft_features *out);

/* -- Compute units over time ---------------------------------------------------------------- */

/* Resources of one thread block. Zero is the default for all fields but `threads`. */
typedef struct weft_thread_block {
    uint32_t threads, regs;               /* registers of a thread */
    uint32_t static_bytes, dynamic_bytes; /* shared memory */
    bool opt_in;                          /* the launch allows more than 48 KiB: ... */
    uint32_t dynamic_max_bytes;           /* ... up to this much dynamic memory */
    bool has_carveout;         /* the launch asks for a split of shared memory and L1: ... */
    uint32_t carveout_percent; /* ... with this part as shared memory, 0..100 */
    uint32_t barriers, virtual_resources;
} weft_thread_block;

enum { WEFT_OCCUPANCY_UNLIMITED = INT32_MAX };

typedef struct weft_occupancy {
    uint32_t blocks, warps; /* resident on a multiprocessor; 0: the block cannot run */
    double share;           /* resident warps over those a multiprocessor can hold, 0..1 */
    uint32_t limit_warps, limit_blocks, limit_regs, limit_shared, limit_barriers, limit_resources;
    uint32_t block_regs, block_shared_bytes; /* allocated */
} weft_occupancy;

/* UNSUP: unknown capability. INPUT: impossible block (no threads, sizes out of range). */
WEFT_MUST_USE weft_err weft_occupancy_find(uint32_t capability, const weft_thread_block *block,
                                           weft_diag *diag, weft_occupancy *out);

/* Launch of a kernel, as far as occupancy depends on it. */
typedef struct weft_launch {
    double blocks;
    uint32_t threads, regs, shared_bytes; /* of a block; registers of a thread */
} weft_launch;

/* How a kernel uses the units of a slice; shares of the whole device, 0..1.
 *
 *   sm_need      fewest units that run the kernel within 5 % of its time
 *   sm_peak      units that hold a block at once
 *   occ_theory   resident warps over the warps that a unit can hold
 *   occ_active   mean warps on the units that have any ("achieved occupancy"), over the same
 *   occ_elapsed  mean warps on all units over the whole time, over the same
 *   sm_active    mean part of the units that have a block */
typedef struct weft_usage {
    weft_launch launch;
    double sm_need, sm_peak, occ_theory, occ_active, occ_elapsed, sm_active;
} weft_usage;

enum { WEFT_CREQ_BINS = 20 };

/* Compute need of a graph over its time, as a share of the device: the sum of sm_need over the
 * kernels that run at the same time when each kernel starts as soon as its operands are ready. */
typedef struct weft_creq {
    double max, mean, p95;
    double bin[WEFT_CREQ_BINS]; /* part of the time in which the need is in (i / BINS, (i + 1) /
                                   BINS] */
    double span_us;             /* time of the longest chain */
} weft_creq;

/* -- Graphs --------------------------------------------------------------------------------- */

/* One kernel of a graph, independent of a device. */
typedef struct weft_graph_kernel {
    weft_node node;
    const char *op;
    weft_kernel kernel;
    uint32_t launches; /* number of equal launches, one after the other */
} weft_graph_kernel;

/* One node of a graph: its kernels run one after the other, and wait for the nodes that its edges
 * name. */
typedef struct weft_workload_node {
    uint32_t first_kernel, n_kernel; /* views, shapes and sizes have no kernels */
    uint32_t first_edge, n_edge;
} weft_workload_node;

/* The kernels of a graph at given sizes: the part of weft_estimate_graph that does not depend on
 * the device, made once for many slices. */
typedef struct weft_workload {
    const weft_graph_kernel *kernel; /* in order of execution */
    size_t n;
    const weft_workload_node *node; /* in the order of the graph */
    size_t n_node;
    const uint32_t *edge; /* indices of earlier nodes */
    weft_lowering lowering;
    uint32_t n_beside;      /* most GEMMs that may run at the same time */
    uint64_t staging_bytes; /* GPUs: most scratch memory of products of bytes at the same time */
    uint64_t weight_bytes, arena_bytes, in_bytes, out_bytes;
    /* Made from; graph NULL: weft_workload_divide changes nothing. */
    weft_graph *graph;
    const int64_t *symbol;
    uint64_t beside_bytes;
} weft_workload;

typedef struct weft_kernel_cost {
    weft_node node;
    const char *op;
    weft_kernel kernel;
    uint32_t launches; /* `cost` covers all of them */
    const char *model; /* row of models.def */
    const char *bound; /* "compute", "memory" or "launch": the largest part of the time */
    weft_cost cost;
    weft_usage usage;
    double start_us, end_us; /* if each kernel starts as early as its operands allow */
} weft_kernel_cost;

typedef struct weft_estimate {
    const weft_kernel_cost *kernel; /* in order of execution */
    size_t n;
    weft_cost total;
    double device_us; /* sum over the kernels; total.time_us adds the time of a framework */
    weft_creq creq;
    /* total.mreq_bytes is the sum of these. */
    uint64_t weight_bytes, arena_bytes, workspace_bytes, io_bytes, context_bytes;
} weft_estimate;

/* The share of the device that a kernel needs in [start_us, end_us). */
typedef struct weft_interval {
    double start_us, end_us, need;
} weft_interval;

/* Sums the needs of overlapping intervals over the whole time. */
void weft_creq_sweep(const weft_interval *interval, size_t n, weft_arena *scratch, weft_creq *out);
/* The estimate of the USHER paper, for comparison: the largest sum of needs over kernels whose
 * starts are within tau_us of the first of them. It misses kernels that overlap but start further
 * apart. */
double weft_creq_usher(const weft_interval *interval, size_t n, double tau_us, weft_arena *scratch);

enum { WEFT_ESTIMATE_PARTS_MAX = 64 };

/* Values of the graph's symbols (by index) for one batch size: the batch symbol gets `batch`, other
 * symbols their upper bound, or 128 if they have none. Of a joint graph of n models, each batch
 * symbol gets batch / n. `out` has room for weft_graph_symbol_count. UNSUP: batch over 1 for a
 * model without a batch symbol. INPUT: `batch` is outside the symbol's bounds, or not divisible
 * among the models. */
WEFT_MUST_USE weft_err weft_estimate_symbols(weft_graph *g, uint32_t batch, weft_diag *diag,
                                             int64_t *out);

/* Finds the kernels and the memory of a kernel- or plan-stage graph. The peak of the intermediate
 * values is that of the options, else of the graph's bucket for these symbols, else of a plan made
 * for them. UNSUP: a shape depends on data; the message names the node. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_workload_make(weft_graph *g, const int64_t *symbol,
                                          const weft_estimate_options *options, weft_arena *arena,
                                          weft_diag *diag, weft_workload *out);
/* The workload as a session runs it on the slice: on a CPU large batches run in slices of a few
 * rows (ops/batch_rows.h), whose kernels are launched once a slice. Lives in `arena`; *out may be
 * *work. */
WEFT_MUST_USE weft_err weft_workload_divide(const weft_workload *work, const weft_slice *slice,
                                            weft_arena *arena, weft_diag *diag, weft_workload *out);
/* Estimates one execution of a workload on a slice, kernel after kernel, divided first. Lives in
 * `arena`. */
WEFT_MUST_USE weft_err weft_estimate_workload(const weft_workload *work, const weft_slice *slice,
                                              const weft_estimate_options *options,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_estimate *out);
/* weft_workload_make, then weft_estimate_workload. */
WEFT_MUST_USE weft_err weft_estimate_graph(weft_graph *g, const int64_t *symbol,
                                           const weft_slice *slice,
                                           const weft_estimate_options *options, weft_arena *arena,
                                           weft_diag *diag, weft_estimate *out);

/* Estimates of a joint graph, and of each model in it on its own. */
typedef struct weft_joint_estimate {
    weft_estimate joint;
    const weft_estimate *part; /* in order of the parts */
    uint32_t n_part;
    double apart_us; /* sum over the parts, run one after the other */
} weft_joint_estimate;

/* Estimates one execution of the joint graph and of each part. Parts run in turns, so that between
 * two executions of one part the caches see all weights of the others, shared ones once. `value`:
 * values of the module's symbols, indexed as weft_dim_as_symbol. INPUT: the model of a part is not
 * in the module. Lives in `arena`. */
WEFT_MUST_USE weft_err weft_estimate_joint(weft_graph *joint, const int64_t *value,
                                           uint32_t n_value, const weft_slice *slice,
                                           weft_arena *arena, weft_diag *diag,
                                           weft_joint_estimate *out);

/* -- Profiles ------------------------------------------------------------------------------- */

/* The profile of a graph: one point for each slice (of weft_slice_make), batch and number of
 * processes (n_procs 0: one process), in the order of the arguments. Points whose slice has too
 * little memory are included; the scheduler rejects them by name. mreq_bytes is that of one
 * process. */
WEFT_MUST_USE weft_err weft_estimate_profile(weft_graph *g, const weft_slice *slice, size_t n_slice,
                                             const uint32_t *batch, size_t n_batch,
                                             const uint32_t *procs, size_t n_procs,
                                             const weft_estimate_options *options,
                                             weft_arena *arena, weft_diag *diag, weft_profile *out);

/* The terms of a kernel's predicted time. */
typedef struct weft_kernel_reason {
    double peak_gflops;  /* of the slice, for its element type */
    double saving;       /* factor by which the algorithm reduces the flops */
    double compute_us;   /* flops / saving / peak */
    double bytes;        /* read and written */
    double memory_bytes; /* bytes that miss the cache */
    double traffic_us;   /* time of the traffic at the reached bandwidth */
    double launch_us;
    double roofline_us;  /* launch_us + max(compute_us, traffic_us) */
    const char *family;  /* trees that correct base_us, or "none" */
    double base_us;      /* bound of physics that the trees correct */
    double correction;   /* time_us / base_us */
    double floor_us;     /* no kernel of this work is faster */
    const char *widened; /* why the 90 % band is wider than that of a measured device; NULL: not */
} weft_kernel_reason;

void weft_estimate_explain(const weft_kernel *kernel, const weft_slice *slice,
                           const weft_estimate_options *options, double time_us,
                           weft_kernel_reason *out);

/* -- Calibration ---------------------------------------------------------------------------- */

/* Constants of a device that a calibration fits; calibrate.c. */
typedef enum weft_calibration_constant {
    WEFT_CALIBRATION_LAUNCH,
    WEFT_CALIBRATION_GEMM, /* GEMM to VECTOR: on GPUs those bound by arithmetic */
    WEFT_CALIBRATION_ATTENTION,
    WEFT_CALIBRATION_CONV,
    WEFT_CALIBRATION_WINOGRAD,
    WEFT_CALIBRATION_DEPTHWISE,
    WEFT_CALIBRATION_POOL,
    WEFT_CALIBRATION_VECTOR,
    WEFT_CALIBRATION_MEMORY, /* bound by traffic; on CPUs only GEMMs */
    WEFT_CALIBRATION_CONSTANTS
} weft_calibration_constant;

enum { WEFT_CALIBRATION_ROWS_MIN = 8 };

struct weft_calibration {
    char gpu[WEFT_DEVICE_NAME_MAX];
    double scale[WEFT_CALIBRATION_CONSTANTS]; /* factor on the predicted time; 1: as predicted */
    bool fitted[WEFT_CALIBRATION_CONSTANTS];  /* false: too few rows; scale is 1 */
    size_t rows[WEFT_CALIBRATION_CONSTANTS];  /* rows whose time depends on the constant */
    size_t n_rows;
    /* Mean relative errors: without calibration, of the fit on its own rows, and of five-fold cross
     * validation (`held_out`: there were enough shapes for it). */
    double error_before, error_fitted, error_after;
    bool held_out;
    /* held_out, by class: mean relative error, and 5 % and 95 % of log2(measured / predicted). */
    double error[WEFT_CALIBRATION_CONSTANTS], edge[WEFT_CALIBRATION_CONSTANTS][2];
};

/* One measurement: a kernel, or all kernels of a model. */
typedef struct weft_calibration_row {
    double launch_us;                           /* predicted time of all launches */
    double body_us[WEFT_CALIBRATION_CONSTANTS]; /* predicted time of the rest, by constant */
    double measured_us;
    uint64_t shape; /* rows of one shape are in one fold of the cross validation */
} weft_calibration_row;

const char *weft_calibration_name(weft_calibration_constant c); /* NULL: no such constant */
/* Add the predicted times of a kernel, or of a workload, to a row. */
WEFT_MUST_USE weft_err weft_calibration_add_kernel(const weft_kernel *kernel, double launches,
                                                   const weft_slice *slice,
                                                   const weft_estimate_options *options,
                                                   weft_diag *diag, weft_calibration_row *row);
WEFT_MUST_USE weft_err weft_calibration_add_workload(const weft_workload *work,
                                                     const weft_slice *slice,
                                                     const weft_estimate_options *options,
                                                     weft_diag *diag, weft_calibration_row *row);
/* Fits the constants. INPUT: fewer than WEFT_CALIBRATION_ROWS_MIN rows, or times that are not
 * finite and positive. */
WEFT_MUST_USE weft_err weft_calibration_fit(const weft_calibration_row *row, size_t n,
                                            const weft_gpu *gpu, weft_diag *diag,
                                            weft_calibration *out);

/* -- Contention ----------------------------------------------------------------------------- */

/* What one execution uses of a slice on which it runs alone; parts are means over its time, 0..1.
 * Zero is a model that only takes time. */
typedef struct weft_contender {
    double time_us;
    double busy;          /* part of the bottleneck: units or traffic */
    double cache, memory; /* parts of the cache's and the memory's bandwidth */
    double launches;
} weft_contender;

weft_contender weft_contention_demand(const weft_estimate *one, const weft_slice *slice);

/* Latency and throughput of `procs` processes, each of which executes the model again and again on
 * the same slice. INPUT: procs is 0 or over 1024, or `one` is out of range. */
WEFT_MUST_USE weft_err weft_contention_procs(const weft_contender *one, uint32_t procs,
                                             weft_diag *diag, double *out_latency_us,
                                             double *out_throughput_per_s);

enum { WEFT_CONTENTION_MAX = 8 };

typedef enum weft_contention {
    WEFT_CONTENTION_QUEUE, /* lowest error on the available data; see contention.c */
    WEFT_CONTENTION_GPULET,
    WEFT_CONTENTION_IGNITER
} weft_contention;

/* Slow-down of each of `n` models on the same device: its time next to the others over its time
 * alone, at least 1. own_units: their MPS shares do not overlap (only the queue uses this). INPUT:
 * n is 0 or over 8, or a demand is out of range. */
WEFT_MUST_USE weft_err weft_contention_factors(weft_contention form, const weft_contender *demand,
                                               uint32_t n, bool own_units, weft_diag *diag,
                                               double *out_factor);

#endif
