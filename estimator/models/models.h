/* The models, for the files at the top of estimator/: the time of a kernel on a slice, what bounds
 * it, how it uses the units, what energy it takes, and what a framework adds. */
#ifndef WEFT_ESTIMATOR_MODELS_MODELS_H
#define WEFT_ESTIMATOR_MODELS_MODELS_H

#include "estimator/estimator.h"

/* -- Models of kernel time: models.def -------------------------------------------------------- */

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

/* The prediction of the model that the options name, else of the first that supports the kernel;
 * calibration is not applied. UNSUP: no such model supports it. INPUT: sizes or work that are not
 * finite and at least 0. */
WEFT_MUST_USE weft_err weft_model__predict(const weft_kernel *kernel, const weft_slice *slice,
                                           const weft_estimate_options *options, weft_diag *diag,
                                           weft_timing *out, const weft_model **out_model);
/* Time of a GEMM by the wave model, without the search for the units it needs. */
double weft_model__wave_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);

/* -- Bounds: rates.c -------------------------------------------------------------------------- */

/* Part of the peak that a long GEMM reaches: 790 of 989 TFLOP/s sustained on an H200 and 0.85 by
 * the fit in README.md; on a CPU 231 of 272 GFLOP/s on ResNet-50 and VGG-16. */
static const double weft_gemm_eff = 0.85;
/* The same for convolutions on matrix units, fitted to whole networks (frameworks.def). */
static const double weft_conv_eff = 0.648;

/* Peak rate of the slice for this kernel, flops per us; 0: not known. */
double weft_peak__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* True when that rate is no more than the f32 rate of the plain units: where matrix units are no
 * faster (A10G, f32), libraries choose kernels of either kind. */
bool weft_peak__is_plain(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* Time that no kernel of this work can beat on the slice: peaks, and a launch. */
double weft_peak__floor_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
/* Time of the memory traffic, us, when `units` units are at work. Never faster than the peaks. */
double weft_traffic__us(const weft_slice *slice, const weft_kernel *kernel, double units);
/* Part of the traffic that reaches memory, bytes. */
double weft_traffic__memory_bytes(const weft_slice *slice, const weft_kernel *kernel);

/* -- CPU: model_cpu.c ------------------------------------------------------------------------- */

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
/* Time on so many of the slice's cores. */
double weft_model__cpu_time_us(const weft_model_cpu_constants *c, const weft_kernel *kernel,
                               const weft_slice *slice, double cores, bool exact_f32);

/* -- Compute units: usage.c ------------------------------------------------------------------- */

/* The launch that a library is likely to choose; all 0 on a CPU. */
weft_launch weft_usage__launch(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
/* How the kernel uses the units while it runs for time_us, launch included. need_units: fewest that
 * keep its time (weft_timing.units); 0: by waves of blocks. All in [0, 1] of the device;
 * 0 < sm_need <= sm_peak <= share of the slice, occ_elapsed <= sm_active <= sm_peak,
 * occ_elapsed <= occ_active <= occ_theory. */
weft_usage weft_usage__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                            double time_us, double need_units);

/* -- Energy: energy.c ------------------------------------------------------------------------- */

/* Power of the slice while nothing runs on it. */
double weft_energy__idle_w(const weft_slice *slice);
/* Of one execution; between idle and full power of the slice over time_us. */
double weft_energy__kernel_j(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                             double time_us, const weft_usage *usage);

/* -- Frameworks: framework.c ------------------------------------------------------------------ */

/* The kernel as a framework runs it: more traffic for convolutions on matrix units. */
weft_kernel weft_framework__adapt(const weft_framework *framework, const weft_kernel *kernel,
                                  const weft_slice *slice, bool exact_f32);
/* Time of one execution by a framework: its host, the kernels, copies of inputs and outputs. */
double weft_framework__time_us(const weft_framework *framework, const weft_workload *work,
                               const weft_kernel_cost *kernel);

#endif
