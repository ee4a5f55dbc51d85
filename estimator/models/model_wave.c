/* Wave model: a GEMM on a GPU is divided into tiles; as many tiles run at once as there are SMs.
 *
 *   time  = launch + min over tile and split of max(waves * tile_us, traffic) + reduce_us
 *   waves = ceil(tiles * split / SMs)
 *   tile_us = 2 tm tn (k / split) / (P / SMs * 0.85 * eff_tile) + wave_us
 *
 * The last wave may be nearly empty and takes as long as a full one (wave quantisation), which a
 * roofline does not model. Splitting k fills the device if there are few tiles, at the cost of
 * adding the partial results (reduce_us: split * m * n * 4 bytes at three times the memory rate,
 * since they are in the cache). Traffic is bounded by the SMs at work: a part x of them draws 1.2 x
 * / (x + 0.2) of the bandwidth that all draw.
 *
 * The constants (efficiency of each tile but the last, wave_us, 0.85, 0.75) are one least-error fit
 * over every 23rd row of three public sets of bf16 GEMMs (aiconfigurator: H200, H100, A100, 107
 * thousand rows); mean error over all rows 12.2, 11.2 and 15.6 %, against 22, 19 and 33 % of the
 * roofline. The small tiles stand for the efficiency of GEMMs that do not fill large ones; a
 * library would not choose them. The last tile, of few rows, and the law of the traffic are chosen
 * so that language models on MPS shares of an A100 slow down as measured (muxserve: README.md,
 * Slices); without them the errors above are 12.4, 11.2 and 15.4 %.
 *
 * Errors on data that was not fitted (README.md): f32 GEMMs 10 to 24 %, batched GEMMs 21 to 54 %,
 * convolutions 66 to 83 %. Hence the expected error: 15 % for f16 and bf16 GEMMs on the three
 * devices of the fit, 70 % for convolutions, 50 % otherwise. O(tiles * splits) a prediction, times
 * the logarithm of the SMs for the need. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

typedef struct tile {
    double m, n, eff, wave_us;
} tile;

static const tile tiles[] = {{128, 128, 0.97, 0.19}, {128, 64, 0.31, 0.19}, {64, 64, 0.28, 0.19},
                             {64, 32, 0.16, 0.19},   {32, 32, 0.11, 0.19},  {16, 128, 0.3, 1.0}};
static const double splits[] = {1, 2, 4, 8, 16};

static const double shortest_split_k = 256;
static const double fitted_error = 0.15, conv_error = 0.7, other_error = 0.5;

static bool supports(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    /* Attention is two GEMMs whose scores are not written to memory: tiles of m x n do not
     * apply. */
    return weft_kernel_uses_matrix_units(kernel->kind) && kernel->kind != WEFT_KERNEL_ATTENTION &&
           !slice->gpu->is_cpu && kernel->m >= 1 && kernel->n >= 1 && kernel->k >= 1 &&
           kernel->batch >= 1 && weft_peak__flops_per_us(slice, kernel, exact_f32) > 0;
}

/* Tiles of `rows` rows; a tile does not span two segments. */
static double row_tiles(const weft_kernel *kernel, double rows)
{
    return kernel->delta.segments > 1 ? floor(kernel->m / rows) + kernel->delta.segments
                                      : ceil(kernel->m / rows);
}

/* Time without the launch, on `units` SMs of the slice. even: the last wave takes its part of a
 * wave. */
static double body_us(const weft_kernel *kernel, const weft_slice *slice, double units,
                      double flops_per_us, bool even)
{
    double per_unit = flops_per_us / slice->units * weft_gemm_eff;
    double best = INFINITY;
    double taps = kernel->k + kernel->delta.rank * (kernel->k + kernel->n) / kernel->n;
    for (size_t t = 0; t < sizeof tiles / sizeof tiles[0]; t++) {
        double count = kernel->batch * row_tiles(kernel, tiles[t].m) * ceil(kernel->n / tiles[t].n);
        for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
            double k = ceil(taps / splits[s]);
            if (splits[s] > 1 && k < shortest_split_k)
                break;
            double blocks = count * splits[s];
            double tile_us =
                2 * tiles[t].m * tiles[t].n * k / (per_unit * tiles[t].eff) + tiles[t].wave_us;
            double waves = even ? fmax(1, blocks / units) : ceil(blocks / units);
            double compute_us = waves * tile_us;
            double traffic_us = weft_traffic__us(slice, kernel, fmin(blocks, units));
            double reduce_us = splits[s] > 1 ? splits[s] * kernel->batch * kernel->m * kernel->n *
                                                   4 / (slice->bandwidth_gbps * 0.75 * 3 * 1e3)
                                             : 0;
            best = fmin(best, fmax(compute_us, traffic_us) + reduce_us);
        }
    }
    return best;
}

double weft_model__wave_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                           bool even)
{
    double rate = weft_peak__flops_per_us(slice, kernel, exact_f32);
    return slice->gpu->launch_us + body_us(kernel, slice, slice->units, rate, even);
}

static bool is_fitted(const weft_kernel *kernel, const weft_slice *slice)
{
    static const char *const names[] = {"h200", "h100", "a100-80"};
    if (kernel->kind == WEFT_KERNEL_CONV ||
        (kernel->dtype != WEFT_DTYPE_BF16 && kernel->dtype != WEFT_DTYPE_F16))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(slice->gpu->name, names[i]) == 0)
            return slice->units == slice->all_units;
    return false;
}

static weft_timing predict(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    double rate = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double launch_us = slice->gpu->launch_us;
    double time_us = launch_us + body_us(kernel, slice, slice->units, rate, false);
    /* Bisection: time does not grow with the number of SMs. */
    double lo = 1, hi = slice->units;
    while (lo < hi) {
        double mid = floor((lo + hi) / 2);
        if (launch_us + body_us(kernel, slice, mid, rate, false) <= 1.05 * time_us)
            hi = mid;
        else
            lo = mid + 1;
    }
    double error = kernel->kind == WEFT_KERNEL_CONV ? conv_error : other_error;
    return (weft_timing){.time_us = time_us,
                         .units = hi,
                         .expected_error = is_fitted(kernel, slice) ? fitted_error : error};
}

const weft_model weft_model_wave = {
    .name = "wave",
    .brief = "tiles of a GEMM in waves over the SMs",
    .supports = supports,
    .predict = predict,
};
