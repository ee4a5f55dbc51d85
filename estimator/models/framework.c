/* Time that an eager framework adds to the kernels it launches.
 *
 * One thread issues the operators, host_us each; a kernel starts when it has been issued and the
 * previous one has ended:
 *
 *   issue(i) = issue(i-1) + host_us launches(i)     end(i) = max(end(i-1), issue(i)) + time(i)
 *   total    = inputs / in_rate + end(last) + outputs / out_rate
 *
 * Small batches are bound by the host, large ones by the device. frameworks.def has the constants
 * and their sources. O(kernels). */
#include "estimator/models/models.h"

#include "estimator/device/device.h"

#include <math.h>
#include <string.h>

static const weft_framework table[] = {
#define FRAMEWORK(name_, ...) {.name = name_, __VA_ARGS__},
#include "estimator/models/frameworks.def"
#undef FRAMEWORK
};

const weft_framework *weft_framework_at(size_t i)
{
    return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}

const weft_framework *weft_framework_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

weft_kernel weft_framework__adapt(const weft_framework *framework, const weft_kernel *kernel,
                                  const weft_slice *slice, bool exact_f32)
{
    weft_kernel k = *kernel;
    if (k.kind == WEFT_KERNEL_CONV && !slice->gpu->is_cpu &&
        !weft_peak__is_plain(slice, kernel, exact_f32)) {
        k.work.bytes_read *= framework->conv_traffic;
        k.work.bytes_written *= framework->conv_traffic;
        k.flop_saving = framework->conv_eff / weft_conv_eff;
    }
    return k;
}

double weft_framework__time_us(const weft_framework *framework, const weft_workload *work,
                               const weft_kernel_cost *kernel)
{
    double issued_us = 0, end_us = 0;
    for (size_t i = 0; i < work->n; i++) {
        issued_us += framework->host_us * kernel[i].launches;
        end_us = fmax(end_us, issued_us) + kernel[i].cost.time_us;
    }
    return end_us + (double)work->in_bytes / (framework->in_gbps * 1e3) +
           (double)work->out_bytes / (framework->out_gbps * 1e3);
}
