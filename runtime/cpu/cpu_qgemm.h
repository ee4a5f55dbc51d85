/* Private to runtime/cpu: factors of bytes, packed for weft_cpu_vec.words. */
#ifndef WEFT_RUNTIME_CPU_CPU_QGEMM_H
#define WEFT_RUNTIME_CPU_CPU_QGEMM_H

#include "runtime/cpu/cpu_dnnl.h"

/* The format of weights [parts, cols, inner] of bytes minus their zero points, one in all, or one a
 * column of each part: [part][panel of 32 columns][pair][32][2]. */
weft_cpu_format weft_cpu__words(int64_t parts, int64_t cols, int64_t inner, const weft_slot *zero);

#endif
