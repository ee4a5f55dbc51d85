/* Energy of a kernel: the power of the slice, by how busy it is, times the kernel's time.
 *
 *   power = part * idle_w + (power_w - idle_w) * part * min(1, level)
 *   level = busy_part busy^busy_power + compute_part compute + memory_part memory
 *
 *   busy     units at work over units of the slice, mean over time (weft_usage.sm_active)
 *   compute  arithmetic over the peak of the slice; memory: traffic over its bandwidth
 *   part     units of the slice over units of the device; CPU: cores
 *
 * The constants are fitted to the board power of 116 thousand GEMMs and attention kernels on H200
 * and B200 (aiconfigurator; tests/regress/board_power.c has the fit and the errors). A few units at
 * work already raise clocks and voltage of the whole device, hence the power of `busy`. Only
 * memory_part is not from there: the optimum is flat between 0 and 0.5, and 0.4 is nearest to 32
 * training jobs on an A100 (miso/util_collection; an idle job draws 36 W of 250 W), by the driver's
 * counters of busy time and memory use (unit/energy: mean error under 15 %). A slice pays its part
 * of the idle power, so that the slices of a device add up to the whole. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>

const weft_energy_constants weft_energy__fitted = {
    .busy_part = 0.55, .busy_power = 0.7, .compute_part = 0.66, .memory_part = 0.4};

double weft_energy__idle_w(const weft_slice *slice)
{
    return slice->gpu->idle_w * weft_slice_parts(slice);
}

double weft_energy__power_w(const weft_energy_constants *c, const weft_kernel *kernel,
                            const weft_slice *slice, bool exact_f32, double time_us,
                            const weft_usage *usage)
{
    const weft_gpu *gpu = slice->gpu;
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double peak = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double compute = kernel->work.flops / saving / (peak * time_us);
    double memory =
        weft_traffic__memory_bytes(slice, kernel) / (slice->bandwidth_gbps * 1e3 * time_us);
    double busy = fmin(1, usage->sm_active / slice->share);
    double level = c->busy_part * pow(busy, c->busy_power) + c->compute_part * compute +
                   c->memory_part * memory;
    return weft_energy__idle_w(slice) +
           (gpu->power_w - gpu->idle_w) * weft_slice_parts(slice) * fmin(1, level);
}

double weft_energy__kernel_j(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                             double time_us, const weft_usage *usage)
{
    return weft_energy__power_w(&weft_energy__fitted, kernel, slice, exact_f32, time_us, usage) *
           time_us * 1e-6;
}
