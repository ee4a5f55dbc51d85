/* What the files of estimator/ share: the interface of a model. */
#ifndef WEFT_ESTIMATOR_ESTIMATOR_INT_H
#define WEFT_ESTIMATOR_ESTIMATOR_INT_H

#include "estimator/estimator.h"

/* What a model says of one kernel. */
typedef struct weft_timing {
    double time_us;
    double units;          /* fewest units that run it within 5 % of that time */
    double expected_error; /* relative, of time_us */
} weft_timing;

/* Row of models.def. */
typedef struct weft_model {
    const char *name;
    const char *brief;
    bool (*supports)(const weft_kernel *kernel, const weft_slice *slice);
    weft_timing (*predict)(const weft_kernel *kernel, const weft_slice *slice, bool exact_f32);
} weft_model;

#define MODEL(name) extern const weft_model weft_model_##name;
#include "estimator/models.def"
#undef MODEL

/* Peak rate of the slice for this kernel, flops per us; 0: not known. */
double weft_slice__flops_per_us(const weft_slice *slice, const weft_kernel *kernel, bool exact_f32);
/* Part of the peak that a long product reaches: 790 of 989 TFLOP/s sustained on an H200 and 0.85 by
 * the fit in README.md; on a CPU 231 of 272 GFLOP/s on ResNet-50 and VGG-16. */
static const double weft_product_eff = 0.85;
/* Time of the memory traffic, us, when `units` units are at work. Never faster than the peaks. */
double weft_slice__traffic_us(const weft_slice *slice, const weft_kernel *kernel, double units);
/* Part of the traffic that reaches memory, bytes. */
double weft_slice__memory_bytes(const weft_slice *slice, const weft_kernel *kernel);
bool weft_gpu__is_cpu(const weft_gpu *gpu);

#endif
