/* What bounds a kernel on a slice: the peak rate of its arithmetic, and its memory traffic.
 * README.md, Traffic. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"
#include "estimator/workload/workload.h"

#include <math.h>

/* -- Peak rates ------------------------------------------------------------------------------- */

static double gemm_gflops(const weft_gpu *gpu, weft_dtype dtype, bool exact_f32)
{
    switch (dtype) {
    case WEFT_DTYPE_F64:
        return gpu->f64_matrix_gflops > 0 ? gpu->f64_matrix_gflops : gpu->f64_gflops;
    case WEFT_DTYPE_F32:
        return gpu->tf32_gflops > 0 && !exact_f32 ? gpu->tf32_gflops : gpu->f32_gflops;
    /* Without such a unit the operands are converted, and computed as f32. */
    case WEFT_DTYPE_F16:
        return gpu->f16_gflops > 0 ? gpu->f16_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_BF16:
        return gpu->bf16_gflops > 0 ? gpu->bf16_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_I8:
    case WEFT_DTYPE_U8:
        return gpu->i8_gflops > 0 ? gpu->i8_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_F8E4M3FN:
    case WEFT_DTYPE_F8E5M2:
        return gpu->f8_gflops > 0 ? gpu->f8_gflops : gpu->f32_gflops;
    case WEFT_DTYPE_F4E2M1: /* as in NVFP4: only units for it take the scales of its blocks */
        return gpu->f4_gflops;
    default: /* no matrix unit has the other integers */
        return gpu->f32_gflops;
    }
}

double weft_peak__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32)
{
    const weft_gpu *gpu = slice->gpu;
    double gflops = kernel->dtype == WEFT_DTYPE_F64 ? gpu->f64_gflops : gpu->f32_gflops;
    if (weft_kernel_uses_matrix_units(kernel->kind))
        gflops = gemm_gflops(gpu, kernel->dtype, exact_f32);
    return gflops * weft_slice_parts(slice) * 1e3;
}

bool weft_peak__is_plain(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32)
{
    return weft_peak__flops_per_us(slice, kernel, exact_f32) <=
           slice->gpu->f32_gflops * weft_slice_parts(slice) * 1e3 * (1 + 1e-9);
}

/* Part of the activations of the previous kernel that the last-level cache no longer holds: nothing
 * up to three eighths of it, all from five eighths on. */
static double missed_part(const weft_slice *slice, double bytes)
{
    static const double kept = 0.375, lost = 0.625;
    double part = bytes / (double)slice->cache_bytes;
    return part <= kept ? 0 : part >= lost ? 1 : (part - kept) / (lost - kept);
}

/* Part of the weights that the last-level cache no longer holds when the kernel runs again. */
static double missed_weights(const weft_wave_constants *c, const weft_slice *slice,
                             const weft_kernel *kernel)
{
    if (slice->gpu->is_cpu)
        return weft_model__cpu_missed(&weft_model__cpu_fitted, slice, kernel->reuse_bytes);
    double copies = kernel->is_alone ? c->copies * kernel->work.weight_bytes : INFINITY;
    return missed_part(slice, kernel->reuse_bytes > 0 ? kernel->reuse_bytes : copies);
}

weft_moved weft_traffic__moved(const weft_wave_constants *c, const weft_slice *slice,
                               const weft_kernel *kernel)
{
    double values = kernel->work.bytes_read + kernel->work.bytes_written;
    double weights = kernel->work.weight_bytes, missed = missed_part(slice, values);
    double memory_weights = weights > 0 ? weights * missed_weights(c, slice, kernel) : 0;
    return (weft_moved){.memory_weights = memory_weights,
                        .cache_weights = weights - memory_weights,
                        .memory_values = values * missed,
                        .cache_values = values * (1 - missed)};
}

double weft_traffic__memory_bytes(const weft_slice *slice, const weft_kernel *kernel)
{
    weft_moved moved = weft_traffic__moved(&weft_model__wave_fitted, slice, kernel);
    return moved.memory_weights + moved.memory_values;
}

double weft_traffic__draw(const weft_slice *slice, double units)
{
    double all = slice->units, part = 1;
    if (slice->bandwidth_units > slice->units) {
        all = slice->bandwidth_units;
        part /= weft_slice__draw_part(slice->units / all);
    }
    return units < all ? part * weft_slice__draw_part(units / all) : part;
}

double weft_traffic__us(const weft_slice *slice, const weft_kernel *kernel, double units)
{
    /* Fitted (README.md, Traffic); the CPU's rates are measured, not those of a data sheet. */
    static const double gpu_memory_eff = 0.75, cpu_memory_eff = 0.95;
    bool cpu = slice->gpu->is_cpu;
    double drawn = (cpu ? cpu_memory_eff : gpu_memory_eff) * weft_traffic__draw(slice, units) * 1e3;
    double cache_gbps = fmax(slice->cache_gbps, slice->bandwidth_gbps);
    double values = kernel->work.bytes_read + kernel->work.bytes_written;
    double missed = missed_part(slice, values);
    return (kernel->work.weight_bytes + missed * values) / (slice->bandwidth_gbps * drawn) +
           (1 - missed) * values / (cache_gbps * drawn);
}

double weft_traffic__staging_us(const weft_kernel *kernel, const weft_slice *slice)
{
    const weft_staging *s = &kernel->staging;
    double bytes = s->packed_bytes + s->sum_bytes;
    double gbps = bytes <= (double)slice->cache_bytes / 2
                      ? slice->gpu->cache_gbps * slice->bandwidth_gbps / slice->gpu->bandwidth_gbps
                      : slice->bandwidth_gbps;
    if (slice->gpu->is_cpu || !(gbps > 0))
        return 0;
    return s->launches * slice->gpu->launch_us + 2 * bytes / (gbps * 1e3);
}

/* -- Bounds ----------------------------------------------------------------------------------- */

double weft_peak__held_part(const weft_wave_constants *c, const weft_gpu *gpu)
{
    return gpu->base_mhz > 0 ? fmin(1, c->held * gpu->base_mhz / gpu->clock_mhz) : 1;
}

double weft_peak__floor_us(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32)
{
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    if (kernel->kind == WEFT_KERNEL_CONV && weft_kernel__is_fast_conv(kernel) &&
        weft_peak__is_plain(slice, kernel, exact_f32))
        saving = fmax(saving, 4); /* F(4x4,3x3): 36 multiplications instead of 144 */
    double flops = kernel->work.flops / saving;
    double busy_us =
        fmax(flops / weft_peak__flops_per_us(slice, kernel, exact_f32),
             weft_traffic__memory_bytes(slice, kernel) / (slice->bandwidth_gbps * 1e3));
    static const double rounding =
        1 + 1e-12; /* a rate computed from this time stays below the peak */
    return fmax(slice->gpu->launch_us, busy_us * rounding);
}

const char *weft_peak_bound(const weft_kernel *kernel, const weft_slice *slice,
                            const weft_estimate_options *options)
{
    bool exact_f32 = options && options->exact_f32;
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double compute_us =
        kernel->work.flops / saving / weft_peak__flops_per_us(slice, kernel, exact_f32);
    double memory_us = weft_traffic__us(slice, kernel, slice->units);
    if (fmax(compute_us, memory_us) <= slice->gpu->launch_us)
        return "launch";
    return compute_us > memory_us ? "compute" : "memory";
}
