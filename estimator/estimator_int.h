/* What the files of estimator/ share: the interface of a model. */
#ifndef WEFT_ESTIMATOR_ESTIMATOR_INT_H
#define WEFT_ESTIMATOR_ESTIMATOR_INT_H

#include "estimator/estimator.h"

/* What a model says of one kernel. */
typedef struct weft_timing {
    double time_us;
    double units;          /* fewest units that run it within 5 % of that time */
    double expected_error; /* relative, of time_us */
    bool learned;          /* from measurements of such kernels on this device */
} weft_timing;

/* Row of models.def. */
typedef struct weft_model {
    const char *name;
    const char *brief;
    bool (*supports)(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
    weft_timing (*predict)(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
} weft_model;

#define MODEL(name) extern const weft_model weft_model_##name;
#include "estimator/models/models.def"
#undef MODEL

/* How many times the rates and the power of the device's row the slice has: cores of a CPU, whose
 * row is one core, the share of a GPU. */
double weft_slice__parts(const weft_slice *slice);
/* Peak rate of the slice for this kernel, flops per us; 0: not known. */
double weft_peak__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* True when that rate is no more than what the plain units do in f32: where matrix units
 * are no faster (A10G, f32), libraries take kernels of either. */
bool weft_peak__is_plain(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* Part of the peak that a long GEMM reaches: 790 of 989 TFLOP/s sustained on an H200 and 0.85 by
 * the fit in README.md; on a CPU 231 of 272 GFLOP/s on ResNet-50 and VGG-16. */
static const double weft_gemm_eff = 0.85;
/* The same for convolutions on matrix units, fitted to whole networks (frameworks.def). */
static const double weft_conv_eff = 0.648;
/* Time of the memory traffic, us, when `units` units are at work. Never faster than the peaks. */
double weft_traffic__us(const weft_slice *slice, const weft_kernel *kernel, double units);
/* Part of the traffic that reaches memory, bytes. */
double weft_traffic__memory_bytes(const weft_slice *slice, const weft_kernel *kernel);
bool weft_gpu__is_cpu(const weft_gpu *gpu);

/* -- model_cpu.c -- */

/* Times of a call and parts of the CPU row's rates; model_cpu.c says what they stand for. All
 * doubles, so that a fit can walk over them. */
typedef struct weft_model_cpu_constants {
    double call_us, loop_us, cold_us, enter_us;
    double gemm_eff, gemm_rows, cache_eff, near_eff, near_bytes, memory_eff;
    double overlap, overlap_rows, kept, lost;
    double conv_eff, conv_rows, winograd_eff;
    double head_us, query_us, attention_eff;
    double ew_eff, norm_eff, pool_eff, reduce_eff, move_eff, depthwise_eff;
    double low_rank_us, low_rank_eff, low_rank_cache_eff, low_rank_result_eff, element_eff;
} weft_model_cpu_constants;

extern const weft_model_cpu_constants weft_model__cpu_fitted;
/* Part of the weights that the last-level cache has lost, 0..1. */
double weft_model__cpu_missed(const weft_model_cpu_constants *c, const weft_slice *slice,
                              double reuse_bytes);
/* On so many of the slice's cores. */
double weft_model__cpu_time_us(const weft_model_cpu_constants *c, const weft_kernel *kernel,
                               const weft_slice *slice, double cores, bool exact_f32);

/* -- usage.c -- */

/* The launch that a library is likely to choose; all 0 on a CPU. */
weft_launch weft_usage__launch(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
/* How the kernel uses the units while it runs for time_us, launch included. need_units: fewest that
 * keep its time (weft_timing.units); 0: by waves of blocks. All in [0, 1] of the device;
 * 0 < sm_need <= sm_peak <= share of the slice, occ_elapsed <= sm_active <= sm_peak,
 * occ_elapsed <= occ_active <= occ_theory. */
weft_usage weft_usage__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                            double time_us, double need_units);

/* -- energy.c -- */

/* Power of the slice while nothing runs on it. */
double weft_energy__idle_w(const weft_slice *slice);
/* Of one execution; between idle and full power of the slice over time_us. */
double weft_energy__kernel_j(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                             double time_us, const weft_usage *usage);

/* -- Graphs: kernels.c, memory.c, timeline.c -- */

/* A graph and the values of all symbols of the pool, -1 where not given. */
typedef struct weft_sizes {
    weft_module *m;
    weft_graph *g;
    weft_arena *arena;
    weft_diag *diag;
    int64_t *value;
    uint32_t n_value;
} weft_sizes;

void weft_sizes__begin(weft_graph *g, const int64_t *symbol, weft_arena *arena, weft_diag *diag,
                       weft_sizes *out);
/* false: a dimension is not known. */
bool weft_sizes__eval(const weft_sizes *s, const weft_ttype *type, int64_t *dim);
/* Fills reuse_bytes of the kernels: what is touched between two uses of their weights. */
void weft_workload__find_reuse(const weft_sizes *s, const weft_estimate_options *options,
                               weft_workload *out);
/* Fills the bytes of the workload. */
WEFT_MUST_USE weft_err weft_workload__count_memory(const weft_sizes *s, const int64_t *symbol,
                                                   const weft_estimate_options *options,
                                                   weft_workload *out);
/* Fills the bytes of the estimate. */
void weft_workload__sum_memory(const weft_workload *work, const weft_slice *slice,
                               weft_estimate *out);
/* The kernel as a framework runs it: more traffic for convolutions on matrix units. */
weft_kernel weft_framework__adapt(const weft_framework *framework, const weft_kernel *kernel,
                                  const weft_slice *slice, bool exact_f32);
/* Time of one execution by a framework: its host, the kernels, copies of inputs and outputs. */
double weft_framework__time_us(const weft_framework *framework, const weft_workload *work,
                               const weft_kernel_cost *kernel);
/* Fills start_us and end_us of the kernels, and the need of the graph over time. */
void weft_workload__schedule(const weft_workload *work, weft_kernel_cost *kernel,
                             weft_arena *scratch, weft_creq *out);
/* Time of a GEMM by the wave model, without the search for the units it needs. */
double weft_model__wave_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);

/* -- calibrate.c -- */

void weft_calibration__apply(const weft_calibration *calibration, const weft_kernel *kernel,
                             const weft_slice *slice, bool exact_f32, weft_timing *t);

#endif
