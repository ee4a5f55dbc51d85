/* The models: time of a kernel on a slice, its bounds, its use of the units, its energy, and the
 * time that a framework adds. */
#ifndef WEFT_ESTIMATOR_MODELS_MODELS_H
#define WEFT_ESTIMATOR_MODELS_MODELS_H

#include "estimator/estimator.h"

/* -- Models of kernel time: models.def -------------------------------------------------------- */

/* A model's prediction for one kernel. */
typedef struct weft_timing {
    double time_us;
    double units;          /* fewest units that run it within 5 % of that time */
    double expected_error; /* relative, of time_us */
    bool learned;          /* learned from measurements of such kernels on this device */
    /* 90 % band: 5 % and 95 % of log2(measured / time_us). Models leave it 0; then it follows from
     * expected_error. */
    double edge[2];
    const char *widened; /* why the band is wider than that of a measured device; NULL: it is not */
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
/* Bands of analytic models, and of the model of CPUs that were not calibrated; bands.c. */
void weft_band__analytic(const weft_gpu *gpu, weft_timing *t);
void weft_band__cpu(const weft_gpu *cpu, weft_timing *t);
/* Times by the models wave and implicit, without the search for the units needed. even: blocks
 * divide evenly among the units, so that the last wave takes only its part of a wave. */
double weft_model__wave_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                           bool even);
double weft_model__implicit_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                               bool even);

/* Constants of the model wave, of the clocks and of the cache of GPUs; model_wave.c says what they
 * mean. The fit (tests/regress/wave_gemms.c) iterates over them: all fields are doubles. */
enum { WEFT_WAVE_TILES = 6 };
typedef struct weft_wave_constants {
    double eff[WEFT_WAVE_TILES];
    double wave_us, few_us;
    double memory_eff, cache_clock, tile_clock;
    double overlap;
    double held;
    double copies;
} weft_wave_constants;

extern const weft_wave_constants weft_model__wave_fitted;
/* Time of the kernel by these constants, us; even: as above. */
double weft_model__wave_time_us(const weft_wave_constants *c, const weft_kernel *kernel,
                                const weft_slice *slice, bool exact_f32, bool even);

/* -- Bounds: rates.c -------------------------------------------------------------------------- */

/* Part of the peak that long GEMMs reach: 0.85 by the fit in README.md; 790 of 989 TFLOP/s
 * sustained on an H200, 231 of 272 GFLOP/s on a CPU (ResNet-50, VGG-16). */
static const double weft_gemm_eff = 0.85;
/* The same for convolutions on matrix units, fitted to whole networks (frameworks.def). */
static const double weft_conv_eff = 0.648;

/* Peak rate of the slice for this kernel, flops per us; 0: not known. */
double weft_peak__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* True when that rate is no more than the f32 rate of the plain units: where matrix units are no
 * faster (A10G, f32), libraries choose kernels of either kind. */
bool weft_peak__is_plain(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* Clock that a GPU holds under its power limit while all units compute, over the boost clock. */
double weft_peak__held_part(const weft_wave_constants *c, const weft_gpu *gpu);
/* Time that no kernel of this work can beat on the slice: peaks, and a launch. */
double weft_peak__floor_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
/* Time of the memory traffic with `units` units at work, us; at least the time at the peak
 * rates. */
double weft_traffic__us(const weft_slice *slice, const weft_kernel *kernel, double units);
/* Time of the kernels before and after a product of few bits on GPUs (weft_staging), us: launches,
 * and traffic of the last-level cache if it holds the scratch memory, else of memory. */
double weft_traffic__staging_us(const weft_kernel *kernel, const weft_slice *slice);
/* Bytes of a kernel that come from memory, and from the last-level cache. */
typedef struct weft_moved {
    double memory_weights, cache_weights, memory_values, cache_values;
} weft_moved;

weft_moved weft_traffic__moved(const weft_wave_constants *c, const weft_slice *slice,
                               const weft_kernel *kernel);
/* Part of the slice's bandwidth that `units` units draw. */
double weft_traffic__draw(const weft_slice *slice, double units);
/* Bytes of the traffic that miss the last-level cache. */
double weft_traffic__memory_bytes(const weft_slice *slice, const weft_kernel *kernel);

/* -- CPU: model_cpu.c ------------------------------------------------------------------------- */

/* Times and efficiencies (relative to the rates of the CPU row); model_cpu.c defines them. All
 * fields are doubles, so that a fit can iterate over them. */
typedef struct weft_model_cpu_constants {
    double call_us, loop_us, cold_us, enter_us;
    double gemm_eff, gemm_rows, cache_eff, near_eff, near_bytes, memory_eff;
    double overlap, overlap_rows, kept, lost;
    double conv_eff, conv_rows, winograd_eff;
    double head_us, query_us, attention_eff;
    double ew_eff, norm_eff, pool_eff, reduce_eff, move_eff, depthwise_eff;
    double act_kept, act_lost, act_eff;
    double low_rank_us, low_rank_eff, low_rank_cache_eff, low_rank_result_eff, element_eff;
} weft_model_cpu_constants;

extern const weft_model_cpu_constants weft_model__cpu_fitted;
/* Part of the weights that the last-level cache no longer holds, 0..1. */
double weft_model__cpu_missed(const weft_model_cpu_constants *c, const weft_slice *slice,
                              double reuse_bytes);
/* Time of the kernel on `cores` cores of the slice, us. */
double weft_model__cpu_time_us(const weft_model_cpu_constants *c, const weft_kernel *kernel,
                               const weft_slice *slice, double cores, bool exact_f32);

/* -- Compute units: usage.c ------------------------------------------------------------------- */

/* The launch that a library is likely to choose; all fields are 0 on a CPU. */
weft_launch weft_usage__launch(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
/* How the kernel uses the units during time_us (launch included). need_units: fewest units that
 * keep its time (weft_timing.units); 0: derived from the waves of blocks. All in [0, 1] of the
 * device; 0 < sm_need <= sm_peak <= share of the slice, occ_elapsed <= sm_active <= sm_peak,
 * occ_elapsed <= occ_active <= occ_theory. */
weft_usage weft_usage__find(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                            double time_us, double need_units);

/* -- Energy: energy.c ------------------------------------------------------------------------- */

/* Power of the idle slice, W. */
double weft_energy__idle_w(const weft_slice *slice);
/* Parts of the power between idle and full; energy.c. */
typedef struct weft_energy_constants {
    double busy_part, busy_power, compute_part, memory_part;
} weft_energy_constants;

extern const weft_energy_constants weft_energy__fitted;
/* Mean power over time_us, W; between idle and full power of the slice. */
double weft_energy__power_w(const weft_energy_constants *c, const weft_kernel *kernel,
                            const weft_slice *slice, bool exact_f32, double time_us,
                            const weft_usage *usage);
/* Energy of one execution, J. */
double weft_energy__kernel_j(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                             double time_us, const weft_usage *usage);

/* -- Frameworks: framework.c ------------------------------------------------------------------ */

/* The kernel as a framework runs it: convolutions on matrix units move more bytes. */
weft_kernel weft_framework__adapt(const weft_framework *framework, const weft_kernel *kernel,
                                  const weft_slice *slice, bool exact_f32);
/* Time of one execution by a framework: host, kernels, copies of inputs and outputs. */
double weft_framework__time_us(const weft_framework *framework, const weft_workload *work,
                               const weft_kernel_cost *kernel);

#endif
