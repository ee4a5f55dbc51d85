/* Energy of a kernel: the power of the slice, by how busy it is, times the kernel's time.
 *
 *   power = part * idle_w + (power_w - idle_w) * part * min(1, 0.61 busy + 0.57 use)
 *   busy  = units at work over units of the slice, mean over time (weft_usage.sm_active)
 *   use   = max(arithmetic / peak, memory traffic / bandwidth)
 *   part  = units of the slice over units of the device; CPU: cores
 *
 * The two constants are a least-squares fit to 32 training jobs on an A100 (miso/util_collection:
 * board power against the driver's counters of busy time and of memory use; an idle job draws 36 W
 * of 250 W): mean error of the power 8.8 %, 9.7 % for models left out of the fit; `busy` alone
 * gives 18 %. That arithmetic draws as much power as memory traffic is an assumption: that set has
 * no counter of arithmetic, and dense GEMMs are known to reach the power limit of the board. A
 * slice pays its part of the idle power, so that the slices of a device add up to the whole. */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>

static const double busy_part = 0.61, use_part = 0.57;

double weft_energy__idle_w(const weft_slice *slice)
{
    return slice->gpu->idle_w * weft_slice__parts(slice);
}

double weft_energy__kernel_j(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32,
                             double time_us, const weft_usage *usage)
{
    const weft_gpu *gpu = slice->gpu;
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double peak = weft_peak__flops_per_us(slice, kernel, exact_f32);
    double compute = kernel->work.flops / saving / (peak * time_us);
    double memory =
        weft_traffic__memory_bytes(slice, kernel) / (slice->bandwidth_gbps * 1e3 * time_us);
    double busy = fmin(1, usage->sm_active / slice->share);
    double level = fmin(1, busy_part * busy + use_part * fmax(compute, memory));
    double watts = weft_energy__idle_w(slice) +
                   (gpu->power_w - gpu->idle_w) * weft_slice__parts(slice) * level;
    return watts * time_us * 1e-6;
}
