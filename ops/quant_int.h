/* Private to ops/: rounding and saturation of the quantised operators. */
#ifndef WEFT_OPS_QUANT_INT_H
#define WEFT_OPS_QUANT_INT_H

#include "base/dtype.h"

#include <stdint.h>

/* x, already rounded, clamped to the range of an 8 or 16-bit integer type (others: i32). */
int64_t weft_quantize__saturate(weft_dtype dtype, double x);

#endif
