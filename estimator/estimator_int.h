/* What the files at the top of estimator/ share. */
#ifndef WEFT_ESTIMATOR_ESTIMATOR_INT_H
#define WEFT_ESTIMATOR_ESTIMATOR_INT_H

#include "estimator/models/models.h"

/* Scales a prediction by the calibration of the slice's device; calibrate.c. */
void weft_calibration__apply(const weft_calibration *calibration, const weft_kernel *kernel,
                             const weft_slice *slice, bool exact_f32, weft_timing *t);

#endif
