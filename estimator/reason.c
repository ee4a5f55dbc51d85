/* The terms of a predicted time, for reports: peaks, traffic, launch, correction by the trees. */
#include "estimator/estimator_int.h"

#include <math.h>

void weft_estimate_explain(const weft_kernel *kernel, const weft_slice *slice,
                           const weft_estimate_options *options, double time_us,
                           weft_kernel_reason *out)
{
    bool exact_f32 = options && options->exact_f32;
    double saving = kernel->flop_saving > 1 ? kernel->flop_saving : 1;
    double rate = weft_peak__flops_per_us(slice, kernel, exact_f32);
    weft_features features;
    weft_features_find(kernel, slice, options, &features);
    *out = (weft_kernel_reason){.peak_gflops = rate * 1e-3,
                                .saving = saving,
                                .compute_us = rate > 0 ? kernel->work.flops / saving / rate : 0,
                                .bytes = kernel->work.bytes_read + kernel->work.bytes_written +
                                         kernel->work.weight_bytes,
                                .memory_bytes = weft_traffic__memory_bytes(slice, kernel),
                                .traffic_us = weft_traffic__us(slice, kernel, slice->units),
                                .launch_us = slice->gpu->launch_us,
                                .family = features.family,
                                .base_us = features.base_us,
                                .floor_us = features.floor_us};
    weft_timing t;
    const weft_model *model;
    if (weft_model__predict(kernel, slice, options, NULL, &t, &model) == WEFT_ERR_OK) {
        if (options && options->calibration)
            weft_calibration__apply(options->calibration, kernel, slice, exact_f32, &t);
        out->widened = t.widened;
    }
    out->roofline_us = out->launch_us + fmax(out->compute_us, out->traffic_us);
    out->correction = features.base_us > 0 ? time_us / features.base_us : 1;
}
