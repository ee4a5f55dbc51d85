/* Private to runtime/cpu: weights of 3 x 3 convolutions transformed for oneDNN's Winograd. */
#ifndef WEFT_RUNTIME_CPU_CPU_WINOGRAD_H
#define WEFT_RUNTIME_CPU_CPU_WINOGRAD_H

#include "runtime/cpu/dnnl_api.h"

/* Whether weft_cpu__winograd_pack can write this format. */
bool weft_cpu__winograd_fits(const weft_dnnl_winograd *f);
/* Transforms output channels [begin, end) of weights [oc, ic, 3, 3]; both are multiples of
 * f->oc_block, or end is the padded number. Channels from oc and ic on count as zeros. */
void weft_cpu__winograd_pack(const weft_dnnl_winograd *f, const float *src, int64_t oc, int64_t ic,
                             int64_t begin, int64_t end, uint32_t threads, float *dst);

#endif
