/* Private to ops/: the sliding windows of convolution and pooling. */
#ifndef WEFT_OPS_WINDOW_INT_H
#define WEFT_OPS_WINDOW_INT_H

#include "ops/op_int.h"

enum { WEFT_SPATIAL_MAX = WEFT_RANK_MAX - 2 };

typedef enum weft_auto_pad {
    WEFT_PAD_NOTSET,
    WEFT_PAD_VALID,
    WEFT_PAD_SAME_UPPER,
    WEFT_PAD_SAME_LOWER
} weft_auto_pad;

/* n spatial dims. pad_lo and pad_hi are those of the attribute; for SAME they depend on the size
 * (weft_window__fit). */
typedef struct weft_window {
    uint32_t n;
    int64_t kernel[WEFT_SPATIAL_MAX], stride[WEFT_SPATIAL_MAX], dilation[WEFT_SPATIAL_MAX];
    int64_t pad_lo[WEFT_SPATIAL_MAX], pad_hi[WEFT_SPATIAL_MAX];
    weft_auto_pad auto_pad;
    bool ceil;
} weft_window;

/* Reads the attributes. `kernel`, from the weight, stands in for `kernel_shape` or must equal it.
 * Returns NULL, or a text that says what is wrong. */
const char *weft_window__read(weft_attrs attrs, uint32_t n, const int64_t *kernel,
                              weft_window *out);
/* Sets the spatial dims of *out for those of x. INPUT where x is smaller than a window. */
weft_err weft_window__sizes(weft_infer_ctx *cx, const weft_window *w, const weft_ttype *x,
                            weft_ttype *out);
/* Padding before spatial dim i for an input of size `in` and a result of size `out`. */
int64_t weft_window__pad_lo(const weft_window *w, uint32_t i, int64_t in, int64_t out);

#endif
