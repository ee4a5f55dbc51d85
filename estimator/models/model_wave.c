/* Wave model: a GEMM on a GPU is divided into tiles; as many tiles run at once as there are SMs.
 *
 *   time       = launch + min over tile and split of (longer + overlap shorter + reduce_us)
 *   longer, shorter = of arithmetic and traffic
 *   arithmetic = max(waves tile_us, tile_bytes / (tile_clock clock min(blocks, SMs)))
 *   waves      = ceil(blocks / SMs); blocks = tiles split
 *   tile_us    = 2 tm tn (k / split) / (P held part / SMs 0.85 eff) + wave_us
 *   traffic    = weights / d(SMs that draw weights) + values / d(SMs that draw values)
 *   held part  = min(1, held base clock / boost clock)
 *
 * The last wave may be nearly empty and takes as long as a full one (wave quantisation), which a
 * roofline does not model. Splitting k fills the device if there are few tiles, at the cost of
 * adding the partial results (reduce_us: split m n 4 bytes at 2.25 times the memory rate, since
 * they are in the cache). Each tile reads its operands from the last-level cache: tile_bytes.
 * Weights and values come from memory, or at cache_clock bytes a clock and SM from the last-level
 * cache where it holds them: weights if it holds what is used between two uses of them; of kernels
 * that are repeated alone, `copies` times the weights. A part x of the SMs draws d(x) = 1.2 x /
 * (x + 0.2) of the bandwidth that all draw. Under load the power limit holds the clock
 * between base and boost clock (L40S: 2,520 MHz boost, 1,110 base; it reaches 0.73 of its peak).
 *
 * Times do not fall when rows or batch grow, nor when SMs or clocks get fewer: blocks that are rows
 * of tiles draw values, whose bytes grow at least as fast as their rate; weights are drawn by the
 * blocks of one row of tiles, whose number does not depend on the rows. The second factor of a
 * product of two values counts as weights there.
 *
 * The constants are one least-error fit to bf16 GEMMs of ten campaigns on six devices
 * (tests/regress/wave_gemms.c, which has the errors, also of devices that are left out of the fit:
 * 11 to 16 %, the roofline 15 to 32 %; fp8 22 to 30, nvfp4 40). The small tiles stand for the
 * efficiency of GEMMs that do not fill large ones; a library would not choose them.
 *
 * Errors on other data that was not fitted (README.md): f32 GEMMs 6 to 17 %, convolutions 66 to
 * 83 %. Hence the expected error: 15 % for f16 and bf16 GEMMs on the devices of the fit, 70 % for
 * convolutions, 50 % otherwise. O(tiles * splits) a prediction, times the logarithm of the SMs for
 * the need. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

typedef struct tile {
    double m, n;
} tile;

static const tile tiles[WEFT_WAVE_TILES] = {{128, 128}, {128, 64}, {64, 64},
                                            {64, 32},   {32, 32},  {16, 128}};
static const double splits[] = {1, 2, 4, 8, 16};

static const double shortest_split_k = 256;
static const double fitted_error = 0.15, conv_error = 0.7, other_error = 0.5;
/* Rate at which partial sums are added, over the memory's: they are in the cache. */
static const double reduce_rate = 2.25;

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

/* What does not depend on tiles: rates, and times of the traffic while all units draw it. */
typedef struct rates {
    double unit_flops;            /* of one unit, flops/us */
    double unit_bytes;            /* of one unit from the last-level cache to its tiles, bytes/us */
    double columns_us, values_us; /* traffic of the factor with the columns, and of other values */
    double reduce_us;             /* adding one partial result of each element */
    double taps, size;
} rates;

static rates find_rates(const weft_wave_constants *c, const weft_kernel *kernel,
                        const weft_slice *slice, bool exact_f32)
{
    const weft_gpu *gpu = slice->gpu;
    weft_moved moved = weft_traffic__moved(c, slice, kernel);
    double clock = fmax(1, gpu->clock_mhz), memory = slice->bandwidth_gbps * 1e3 * c->memory_eff;
    double cache = c->cache_clock * clock * slice->all_units * c->memory_eff * slice->cache_gbps /
                   gpu->cache_gbps;
    cache = fmax(cache, memory);
    /* Of a product of two values, the second is read as weights are. */
    double values_us = moved.memory_values / memory + moved.cache_values / cache;
    double size = weft_kernel_value_bytes(kernel->dtype), all = kernel->work.bytes_read;
    double second = kernel->work.weight_bytes > 0 || kernel->kind != WEFT_KERNEL_GEMM
                        ? 0
                        : fmin(all, kernel->batch * kernel->k * kernel->n * size);
    double second_us = second > 0 ? values_us * second / (all + kernel->work.bytes_written) : 0;
    return (rates){.unit_flops = weft_peak__flops_per_us(slice, kernel, exact_f32) / slice->units *
                                 weft_gemm_eff * weft_peak__held_part(c, gpu),
                   .unit_bytes = c->tile_clock * clock,
                   .columns_us =
                       moved.memory_weights / memory + moved.cache_weights / cache + second_us,
                   .values_us = values_us - second_us,
                   .reduce_us = kernel->batch * kernel->m * kernel->n * 4 /
                                (slice->bandwidth_gbps * reduce_rate * 1e3),
                   .taps = kernel->k + kernel->delta.rank * (kernel->k + kernel->n) / kernel->n,
                   .size = size};
}

/* Time without the launch, on `units` SMs of the slice, by one tile and one split. Nothing in it
 * falls when m or the batch grows: the units that draw weights do not depend on m, and the values
 * grow at least as fast as the units that draw them. */
static double tile_body_us(const weft_wave_constants *c, const rates *r, const weft_kernel *kernel,
                           const weft_slice *slice, double units, size_t t, double split, bool even)
{
    const tile *of = &tiles[t];
    double k = ceil(r->taps / split), columns = kernel->batch * ceil(kernel->n / of->n) * split;
    double blocks = (even ? fmax(1, kernel->m / of->m) : row_tiles(kernel, of->m)) * columns,
           drawing = kernel->m / of->m * columns;
    double tile_us =
        2 * of->m * of->n * k / (r->unit_flops * c->eff[t]) + (of->m < 32 ? c->few_us : c->wave_us);
    double full = fmax(1, blocks / units);
    double compute_us = fmax((even ? full : ceil(blocks / units)) * tile_us,
                             full * (of->m + of->n) * k * r->size / r->unit_bytes);
    double traffic_us = r->columns_us / weft_traffic__draw(slice, fmin(columns, units)) +
                        r->values_us / weft_traffic__draw(slice, fmin(drawing, units));
    return fmax(compute_us, traffic_us) + c->overlap * fmin(compute_us, traffic_us) +
           (split > 1 ? split * r->reduce_us : 0);
}

static double body_us(const weft_wave_constants *c, const rates *r, const weft_kernel *kernel,
                      const weft_slice *slice, double units, bool even)
{
    double best = INFINITY;
    for (size_t t = 0; t < WEFT_WAVE_TILES; t++)
        for (size_t s = 0; s < sizeof splits / sizeof splits[0]; s++) {
            if (splits[s] > 1 && ceil(r->taps / splits[s]) < shortest_split_k)
                break;
            best = fmin(best, tile_body_us(c, r, kernel, slice, units, t, splits[s], even));
        }
    return best;
}

double weft_model__wave_time_us(const weft_wave_constants *c, const weft_kernel *kernel,
                                const weft_slice *slice, bool exact_f32, bool even)
{
    rates r = find_rates(c, kernel, slice, exact_f32);
    return slice->gpu->launch_us + body_us(c, &r, kernel, slice, slice->units, even);
}

double weft_model__wave_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                           bool even)
{
    return weft_model__wave_time_us(&weft_model__wave_fitted, kernel, slice, exact_f32, even);
}

static bool is_fitted(const weft_kernel *kernel, const weft_slice *slice)
{
    static const char *const names[] = {"a100-80", "b200", "h100", "h200", "l40s", "rtx-pro-6000"};
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
    const weft_wave_constants *c = &weft_model__wave_fitted;
    rates r = find_rates(c, kernel, slice, exact_f32);
    double launch_us = slice->gpu->launch_us;
    double time_us = launch_us + body_us(c, &r, kernel, slice, slice->units, false);
    /* Bisection: time does not grow with the number of SMs. */
    double lo = 1, hi = slice->units;
    while (lo < hi) {
        double mid = floor((lo + hi) / 2);
        if (launch_us + body_us(c, &r, kernel, slice, mid, false) <= 1.05 * time_us)
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
