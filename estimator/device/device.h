/* What the rest of estimator/ knows of devices beside the public part (estimator.h): nothing here
 * knows kernels. */
#ifndef WEFT_ESTIMATOR_DEVICE_DEVICE_H
#define WEFT_ESTIMATOR_DEVICE_DEVICE_H

#include "estimator/estimator.h"

/* The whole device that a slice is a part of. */
weft_slice weft_slice__whole(const weft_slice *slice);

/* Bandwidth that a part of the units draws, over the bandwidth that all of them reach: d(x) of
 * README.md, Traffic. Inline: called for every tile of every kernel. */
static inline double weft_slice__draw_part(double units_part)
{
    static const double half = 0.2;
    return units_part < 1 ? (1 + half) * units_part / (units_part + half) : 1;
}

#endif
