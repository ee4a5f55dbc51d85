/* Roofline: a kernel takes the longer of its arithmetic and its memory traffic, plus a launch.
 *
 *   time = launch + max(flops / (P eff), traffic)
 *
 * Williams, Waterman, Patterson, "Roofline: an insightful visual performance model" (2009). P is
 * the peak of the slice for the kernel's element type; eff is the part of it that is reached: 0.85
 * for GEMMs (on a CPU times how well the shape fills vectors), 0.25 for other kernels, whose
 * exponentials and divisions cost more than the one flop they count as. Traffic counts every
 * operand once.
 *
 * Error of the plain roofline: 19 to 33 % on 107 thousand bf16 GEMMs (H200, H100, A100), 10 to 17 %
 * on element-wise kernels (V100, A100), up to 45 % and mostly below 25 % on whole networks on a CPU
 * (README.md). Expected error: on GPUs 70 % for convolutions and 50 % for other kernels, on CPUs
 * 35 %. The units needed are the fewest that keep the time within 5 %, found by bisection: O(log
 * units). */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>

static const double simple_eff = 0.25;
static const double gpu_error = 0.5, gpu_conv_error = 0.7, cpu_error = 0.35;

enum { CPU_LANES = 16, CPU_SHORT_K = 16 };

/* On a CPU short inner products and narrow results leave vector lanes empty. */
static double shape_eff(const weft_kernel *kernel, const weft_slice *slice)
{
    if (!weft_kernel_uses_matrix_units(kernel->kind) || !slice->gpu->is_cpu)
        return 1;
    double wide = fmax(kernel->m, kernel->n);
    double lanes = wide / (ceil(wide / CPU_LANES) * CPU_LANES);
    return lanes * kernel->k / (kernel->k + CPU_SHORT_K);
}

static bool supports(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    return weft_peak__flops_per_us(slice, kernel, exact_f32) > 0;
}

static weft_timing predict(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    bool cpu = slice->gpu->is_cpu;
    double peak = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double eff = weft_kernel_uses_matrix_units(kernel->kind)
                     ? weft_gemm_eff * shape_eff(kernel, slice)
                     : simple_eff;
    double flops = kernel->work.flops / (kernel->flop_saving > 1 ? kernel->flop_saving : 1);
    double compute_us = flops / (peak * eff);
    double traffic_us = weft_traffic__us(slice, kernel, slice->units);
    double body_us = fmax(compute_us, traffic_us);
    /* Fewer units slow down the arithmetic in proportion, and the traffic by far less. */
    double total_us = slice->gpu->launch_us + body_us;
    double most_us = 1.05 * total_us - slice->gpu->launch_us, lo = 1, hi = slice->units;
    while (lo < hi) {
        double fewer = floor((lo + hi) / 2);
        bool enough = compute_us * slice->units / fewer <= most_us &&
                      weft_traffic__us(slice, kernel, fewer) <= most_us;
        if (enough)
            hi = fewer;
        else
            lo = fewer + 1;
    }
    double error = kernel->kind == WEFT_KERNEL_CONV ? gpu_conv_error : gpu_error;
    return (weft_timing){
        .time_us = total_us, .units = hi, .expected_error = cpu ? cpu_error : error};
}

const weft_model weft_model_roofline = {
    .name = "roofline",
    .brief = "longer of arithmetic and memory traffic",
    .supports = supports,
    .predict = predict,
};
