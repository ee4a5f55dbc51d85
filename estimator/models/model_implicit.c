/* Convolutions on GPUs: implicit GEMMs; depthwise convolutions by their arithmetic and traffic.
 *
 *   time    = launch + max(min over tile of waves * tile_us, traffic)
 *   waves   = ceil(groups ceil(m / tm) ceil(n / tn) / SMs)
 *   tile_us = 2 tm tn (k + 32) / (P / SMs * eff * eff_tile)
 *
 * m = images * positions, n = filters of a group, k = taps of a filter; 32 is one step of k to fill
 * the pipeline. eff_tile: a narrow tile loads more operands for each multiplication. eff: part of
 * the peak that long convolutions reach; on matrix units it is the only fitted constant (to whole
 * networks, see frameworks.def), on plain units it is that of GEMMs.
 *
 * cuDNN computes f32 convolutions of 3 x 3 filters at stride 1 on plain units by Winograd F(2,3): a
 * tile of 2 x 2 results takes 4 x 4 multiplications instead of 2 x 2 x 9.
 *
 * A depthwise convolution has no reuse between filters. It runs on plain units at 4.6 % of their
 * peak or at the speed of its traffic: fitted to the stride-1 layers of MobileNet v2 in Orion's
 * V100 profile (orion/profiles/mobilenetv2_4_fwd_new.csv, 25 us for a million results of 9 taps).
 *
 * The error is known for whole networks on five MIG slices of an A100 (README.md, Whole models); no
 * available set has single layers on matrix units. O(tiles) a prediction, times the logarithm of
 * the SMs for the need. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"
#include "estimator/workload/workload.h"

#include <math.h>

static const struct {
    double m, n, eff;
} tiles[] = {{128, 128, 1.0}, {128, 64, 0.8}, {64, 64, 0.6}, {64, 32, 0.35}};

static const double fill_k = 32;
static const double depthwise_eff = 0.046;
static const double expected_error = 0.2; /* single convolutions on a V100: 0.14 */
static const double winograd_saving = 2.25;

static bool supports(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    bool conv = kernel->kind == WEFT_KERNEL_CONV && kernel->m >= 1 && kernel->n >= 1 &&
                kernel->k >= 1 && kernel->batch >= 1;
    return (conv || kernel->kind == WEFT_KERNEL_DEPTHWISE) && !slice->gpu->is_cpu &&
           weft_peak__flops_per_us(slice, kernel, exact_f32) > 0;
}

/* Arithmetic on `units` of the slice's SMs. even: the last wave takes its part of a wave. */
static double compute_us(const weft_kernel *kernel, const weft_slice *slice, double units,
                         bool exact_f32, bool even)
{
    double peak = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double best = INFINITY;
    if (kernel->kind == WEFT_KERNEL_DEPTHWISE)
        return kernel->work.flops / (peak / slice->units * units * depthwise_eff);
    bool plain = weft_peak__is_plain(slice, kernel, exact_f32);
    double saving = kernel->flop_saving > 0 ? kernel->flop_saving : 1;
    if (plain && kernel->dtype == WEFT_DTYPE_F32 && kernel->flop_saving == 0 &&
        weft_kernel__is_fast_conv(kernel))
        saving = winograd_saving;
    double per_unit = peak / slice->units * (plain ? weft_gemm_eff : weft_conv_eff);
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        double blocks = kernel->batch * ceil(kernel->m / tiles[i].m) * ceil(kernel->n / tiles[i].n);
        double tile_us =
            2 * tiles[i].m * tiles[i].n * (kernel->k + fill_k) / (per_unit * tiles[i].eff);
        best = fmin(best, (even ? fmax(1, blocks / units) : ceil(blocks / units)) * tile_us);
    }
    return best / saving;
}

static double body_us(const weft_kernel *kernel, const weft_slice *slice, double units,
                      bool exact_f32, bool even)
{
    return fmax(compute_us(kernel, slice, units, exact_f32, even),
                weft_traffic__us(slice, kernel, units));
}

double weft_model__implicit_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                               bool even)
{
    return slice->gpu->launch_us + body_us(kernel, slice, slice->units, exact_f32, even);
}

static weft_timing predict(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    double launch_us = slice->gpu->launch_us;
    double time_us = launch_us + body_us(kernel, slice, slice->units, exact_f32, false);
    /* Bisection: time does not grow with the number of SMs. */
    double lo = 1, hi = slice->units;
    while (lo < hi) {
        double mid = floor((lo + hi) / 2);
        if (launch_us + body_us(kernel, slice, mid, exact_f32, false) <= 1.05 * time_us)
            hi = mid;
        else
            lo = mid + 1;
    }
    return (weft_timing){.time_us = time_us, .units = hi, .expected_error = expected_error};
}

const weft_model weft_model_implicit = {
    .name = "implicit",
    .brief = "convolutions as implicit GEMMs, tiles in waves over the SMs",
    .supports = supports,
    .predict = predict,
};
