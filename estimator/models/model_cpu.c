/* Time of kernels of the CPU driver: GEMMs by oneDNN, other kernels by the driver's own loops.
 *
 *   GEMM      time = call + enter + missed cold + max(c, mem) + overlap min(c, mem) + low_rank
 *     c          = max(flops / (u P) (m + m0) / m, weights / (u R))    arithmetic, or the cache
 *     mem        = missed weights / M
 *     overlap    = o m^2 / (m^2 + mo^2)
 *     low_rank   = segments t0 + (its flops / P + its weights / R + 2 results / R) / u
 *   convolution  time = call + enter + max(flops / (u P) (m + mc) / m, missed / M) + move / u
 *   attention    time = loop + enter + heads (h0 + h1 queries + flops / P) / u
 *   depthwise    time = loop + enter + max(flops / P, move) / u
 *   pool         time = loop + enter + move / u
 *   others       time = loop + enter + bytes / (u R of the kind)
 *     move       = (1 - far) bytes / (R of the kind) + far bytes / (M of one core * act_eff)
 *
 * u: cores at work, at most as many as there are blocks of work. enter: time to start the team of
 * threads, if u > 1. R of GEMMs is the rate of the second-level cache if a core's part of the
 * reused bytes fits in it, else that of the last level. Features are rounded up to whole vectors of
 * 16, positions of Winograd convolutions to whole tiles of 4 x 4.
 *
 * far: part of the activations that has left the cache before it is used, by their size: 0 up to
 * act_kept times the last-level cache, 1 from act_lost times it on, logarithmic in between. A core
 * whose windows read such activations while it writes others moves less than half of the bytes
 * that it reads of weights alone.
 *
 * overlap: part of the shorter of arithmetic and memory traffic that is not hidden by the longer.
 * With one row most of it is hidden; with many rows the next block of weights is not prefetched.
 * low_rank: the GEMMs by low-rank factors, or the multiplications by few elements (at a hundredth
 * of the peak), are written to the result first, which is read and written once more.
 *
 * missed: part of the weights that has to come from memory. It depends on their stack distance
 * (weft_kernel.reuse_bytes): 0 up to `kept` times the last-level cache, 1 from `lost` times the
 * cache on, logarithmic in between; 1 if the distance is not known. Merging saves this time: one
 * reading of a weight serves several models.
 *
 * The constants are one least-error fit (tests/regress/cpu_kernels.c --fit) to single kernels that
 * tests/bench/bench_kernels measured on the machine of the CPU row; README.md has the errors on
 * held-out shapes. Those of activations (act_) are chosen on convolutions and pools of nine
 * networks at batch 8, which took up to 3.7 times the predicted time without them. Those of
 * low-rank GEMMs are a least-squares fit to 400 shapes of the kernel beside its base GEMM. Rates
 * are relative to those of the row, so that another row scales them. Types other than f32 were not
 * measured: same constants, their own peaks. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>

enum { LANES = 16, BLOCK_FEATURES = 64, BLOCK_ROWS = 12, BLOCKS_EVEN = 16, WINOGRAD_TILE = 4 };

static const double fitted_error = 0.15, simple_error = 0.35, enter_worth_us = 8;

/* The driver's own loops: on one core if the work is too short to start the team of threads. */
static double spread(const weft_model_cpu_constants *c, double work_us, double cores)
{
    if (cores <= 1 || work_us < enter_worth_us)
        return c->loop_us + work_us;
    return c->loop_us + c->enter_us + work_us / cores;
}

/* -- GEMMs --------------------------------------------------------------------------------- */

static double pad(double n, double unit)
{
    return ceil(n / unit) * unit;
}

static double low_rank_weights(const weft_kernel *k)
{
    double size = (double)weft_dtype_size(k->dtype);
    return k->delta.ranks * (k->k + k->n) * size + k->delta.elements * (size + sizeof(int32_t));
}

static double low_rank_us(const weft_model_cpu_constants *c, const weft_kernel *k,
                          const weft_slice *s, double cores, double flops_per_us)
{
    double core_gbps = s->cache_gbps / s->units * 1e3;
    double results = k->m * k->n * (double)weft_dtype_size(k->dtype);
    double flops = 2 * k->m * k->delta.rank * (k->k + k->n);
    if (!(k->delta.segments > 0))
        return 0;
    return spread(c,
                  k->delta.segments * c->low_rank_us +
                      flops / (flops_per_us / s->units * c->low_rank_eff) +
                      2 * k->m * k->delta.element / (flops_per_us / s->units * c->element_eff) +
                      low_rank_weights(k) / (core_gbps * c->low_rank_cache_eff) +
                      2 * results / (core_gbps * c->low_rank_result_eff),
                  cores);
}

static double gemm_us(const weft_model_cpu_constants *c, const weft_kernel *k, const weft_slice *s,
                      double cores, double flops_per_us)
{
    double own = k->work.weight_bytes - low_rank_weights(k);
    double size = own > 0 && k->n * k->k * k->batch > 0 ? own / (k->batch * k->n * k->k)
                                                        : (double)weft_dtype_size(k->dtype);
    double n = pad(k->n, LANES), weights = k->batch * n * k->k * size;
    double blocks = k->batch * ceil(k->n / BLOCK_FEATURES) * fmax(1, floor(k->m / BLOCK_ROWS));
    double u = fmin(cores, blocks);
    /* Few blocks do not divide evenly among the cores. */
    double uneven = blocks > BLOCKS_EVEN ? 1 : ceil(blocks / u) * u / blocks;
    double reused = k->reuse_bytes > 0 ? k->reuse_bytes : weights;
    double far = fmin(1, fmax(0, reused / u / c->near_bytes - 1));
    double core_gbps = s->cache_gbps / s->units * 1e3;
    double cache_us =
        weights / u * uneven / core_gbps * (far / c->cache_eff + (1 - far) / c->near_eff);
    double flops = 2 * k->batch * k->m * n * k->k;
    double compute_us =
        flops / u * uneven / (flops_per_us / s->units * c->gemm_eff) * (k->m + c->gemm_rows) / k->m;
    double near_us = fmax(cache_us, compute_us);
    double missed = k->work.weight_bytes > 0 ? weft_model__cpu_missed(c, s, k->reuse_bytes) : 0;
    double drawn =
        u < s->units ? fmin(s->bandwidth_gbps, s->gpu->bandwidth_gbps * u) : s->bandwidth_gbps;
    double memory_us = missed * (weights + low_rank_weights(k)) / (drawn * 1e3 * c->memory_eff);
    double rows = k->m * k->m, half = c->overlap_rows * c->overlap_rows;
    double overlap = c->overlap * rows / (rows + half);
    return c->call_us + (u > 1 ? c->enter_us : 0) + missed * c->cold_us + fmax(near_us, memory_us) +
           overlap * fmin(near_us, memory_us) + low_rank_us(c, k, s, cores, flops_per_us);
}

/* Part of `bytes` of activations that has left the cache. */
static double far_part(const weft_model_cpu_constants *c, const weft_slice *s, double bytes)
{
    double at = log(fmax(1, bytes) / (double)s->cache_bytes / c->act_kept);
    return fmin(1, fmax(0, at / log(c->act_lost / c->act_kept)));
}

/* Time of one core that moves `bytes` of activations, at `eff` of the cache's rate where it holds
 * them. */
static double move_us(const weft_model_cpu_constants *c, const weft_slice *s, double bytes,
                      double eff)
{
    double far = far_part(c, s, bytes);
    return bytes * ((1 - far) / (s->cache_gbps / s->units * 1e3 * eff) +
                    far / (s->gpu->bandwidth_gbps * 1e3 * c->act_eff));
}

/* Positions of the result, including the discarded ones of partial Winograd tiles. */
static double positions(const weft_kernel *k)
{
    if (!(k->flop_saving > 1) || !(k->conv.out_h > 0) || !(k->conv.out_w > 0))
        return k->m;
    return k->conv.images * pad(k->conv.out_h, WINOGRAD_TILE) * pad(k->conv.out_w, WINOGRAD_TILE);
}

static double conv_us(const weft_model_cpu_constants *c, const weft_kernel *k, const weft_slice *s,
                      double cores, double flops_per_us)
{
    double saving = k->flop_saving > 1 ? 4 * c->winograd_eff : 1;
    double waste = k->m > 0 ? positions(k) / k->m * pad(k->n, LANES) / k->n : 1;
    double compute_us = k->work.flops * waste / saving / (flops_per_us * cores / s->units) /
                        c->conv_eff * (k->m + c->conv_rows) / fmax(1, k->m);
    /* Transformed weights of Winograd: 36 numbers for 9. */
    double weights = k->work.weight_bytes * (k->flop_saving > 1 ? 4 : 1);
    double memory_us = weft_model__cpu_missed(c, s, k->reuse_bytes) * weights /
                       (s->bandwidth_gbps * 1e3 * c->memory_eff);
    double bytes = k->work.bytes_read + k->work.bytes_written;
    return c->call_us + (cores > 1 ? c->enter_us : 0) + fmax(compute_us, memory_us) +
           move_us(c, s, bytes, c->move_eff) / cores;
}

/* -- The rest --------------------------------------------------------------------------------- */

static double attention_us(const weft_model_cpu_constants *c, const weft_kernel *k,
                           const weft_slice *s, double cores, double flops_per_us)
{
    double keys = pad(k->n, LANES), flops = 4 * k->m * keys * k->k;
    double head_us =
        c->head_us + c->query_us * k->m + flops / (flops_per_us / s->units * c->attention_eff);
    return spread(c, k->batch * head_us, fmin(cores, k->batch));
}

static double loop_us(const weft_model_cpu_constants *c, const weft_kernel *k, const weft_slice *s,
                      double cores, double flops_per_us)
{
    static const double plain_eff = 0.25; /* of the peak, for loops bound by arithmetic */
    double bytes = k->work.bytes_read + k->work.bytes_written + k->work.weight_bytes;
    double eff = c->move_eff;
    switch (k->kind) {
    case WEFT_KERNEL_EW:
        eff = c->ew_eff;
        break;
    case WEFT_KERNEL_NORM:
    case WEFT_KERNEL_SOFTMAX:
        eff = c->norm_eff;
        break;
    case WEFT_KERNEL_POOL:
        eff = c->pool_eff;
        break;
    case WEFT_KERNEL_REDUCE:
        eff = c->reduce_eff;
        break;
    default:
        break;
    }
    double moved_us = bytes / (s->cache_gbps / s->units * 1e3 * eff);
    if (k->kind == WEFT_KERNEL_DEPTHWISE || k->kind == WEFT_KERNEL_POOL)
        moved_us = move_us(c, s, bytes, eff);
    double compute_us = k->work.flops / (flops_per_us / s->units * plain_eff);
    if (k->kind == WEFT_KERNEL_DEPTHWISE)
        compute_us = k->work.flops / (flops_per_us / s->units * c->depthwise_eff);
    double us = spread(c, fmax(moved_us, compute_us), cores);
    return fmax(us, weft_traffic__memory_bytes(s, k) / (s->bandwidth_gbps * 1e3));
}

double weft_model__cpu_time_us(const weft_model_cpu_constants *c, const weft_kernel *k,
                               const weft_slice *s, double cores, bool exact_f32)
{
    double rate = weft_peak__flops_per_us(s, k, exact_f32), us;
    switch (k->kind) {
    case WEFT_KERNEL_GEMM:
        us = gemm_us(c, k, s, cores, rate);
        break;
    case WEFT_KERNEL_CONV:
        us = conv_us(c, k, s, cores, rate);
        break;
    case WEFT_KERNEL_ATTENTION:
        us = attention_us(c, k, s, cores, rate);
        break;
    default:
        us = loop_us(c, k, s, cores, rate);
    }
    double saving = k->flop_saving > 1 ? 4 : 1;
    double bytes = k->work.bytes_read + k->work.bytes_written + k->work.weight_bytes;
    double memory_bytes = weft_traffic__memory_bytes(s, k);
    double peak_us = fmax(fmax(k->work.flops / saving / (rate * cores / s->units),
                               memory_bytes / (s->bandwidth_gbps * 1e3)),
                          (bytes - memory_bytes) / (s->cache_gbps * 1e3));
    static const double rounding =
        1 + 1e-12; /* a rate computed from this time stays below the peak */
    return fmax(fmax(us, peak_us * rounding), s->gpu->launch_us);
}

/* -- The model -------------------------------------------------------------------------------- */

static bool supports(const weft_kernel *k, const weft_slice *slice, bool exact_f32)
{
    bool is_gemm = k->kind == WEFT_KERNEL_GEMM || k->kind == WEFT_KERNEL_ATTENTION;
    return slice->gpu->is_cpu && k->kind != WEFT_KERNEL_OTHER &&
           weft_peak__flops_per_us(slice, k, exact_f32) > 0 &&
           (!is_gemm || (k->m >= 1 && k->n >= 1 && k->k >= 1 && k->batch >= 1));
}

static weft_timing predict(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    const weft_model_cpu_constants *c = &weft_model__cpu_fitted;
    double time_us = weft_model__cpu_time_us(c, kernel, slice, slice->units, exact_f32);
    double lo = 1, hi = slice->units;
    while (lo < hi) {
        double fewer = floor((lo + hi) / 2);
        if (weft_model__cpu_time_us(c, kernel, slice, fewer, exact_f32) <= 1.05 * time_us)
            hi = fewer;
        else
            lo = fewer + 1;
    }
    bool fitted = kernel->dtype == WEFT_DTYPE_F32 &&
                  (kernel->kind == WEFT_KERNEL_GEMM || kernel->kind == WEFT_KERNEL_CONV);
    return (weft_timing){
        .time_us = time_us, .units = hi, .expected_error = fitted ? fitted_error : simple_error};
}

const weft_model weft_model_cpu = {
    .name = "cpu",
    .brief = "GEMMs and loops of the CPU driver, by what the cache keeps",
    .supports = supports,
    .predict = predict,
};
