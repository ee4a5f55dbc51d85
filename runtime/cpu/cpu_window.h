/* Private to runtime/cpu: windows of convolutions and pools. */
#ifndef WEFT_RUNTIME_CPU_CPU_WINDOW_H
#define WEFT_RUNTIME_CPU_CPU_WINDOW_H

#include "runtime/driver_int.h"

typedef struct weft_cpu_window {
    uint32_t n; /* spatial dims */
    int64_t kernel[WEFT_RANK_MAX], stride[WEFT_RANK_MAX], dilation[WEFT_RANK_MAX];
    int64_t before[WEFT_RANK_MAX], after[WEFT_RANK_MAX];
    bool reaches_out; /* a window extends past the padding (ceil_mode) */
} weft_cpu_window;

/* Reads an attribute of exactly n integers between low and INT32_MAX; an absent one leaves `out`
 * unchanged. false: the attribute is not valid. */
bool weft_cpu__read_ints(weft_attrs attrs, weft_attr_key key, uint32_t n, int64_t low,
                         int64_t *out);
/* The window of p, whose operand 0 and result 0 are images. `kernel`, unless NULL, replaces the
 * attribute. false: the attributes are not valid. */
bool weft_cpu__window(const weft_prep *p, const int64_t *kernel, weft_cpu_window *out);

#endif
