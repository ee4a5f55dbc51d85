/* Constants of the model wave, of the clocks and of the cache of GPUs: model_wave.c says what they
 * mean, tests/regress/wave_gemms.c finds them (--fit). */
#include "estimator/models/models.h"

const weft_wave_constants weft_model__wave_fitted = {
    .eff = {0.932, 1.04, 0.131, 0.139, 0.061, 1.08},
    .wave_us = 0.283,
    .few_us = 2.01,
    .memory_eff = 0.845,
    .cache_clock = 6.88,
    .tile_clock = 80,
    .overlap = 0.266,
    .held = 1.57,
    .copies = 2.94};
