/* Windows of convolutions and pools: strides, dilations and padding from attributes. */
#include "runtime/cpu/cpu_window.h"

#include <string.h>

bool weft_cpu__read_ints(weft_attrs attrs, weft_attr_key key, uint32_t n, int64_t low, int64_t *out)
{
    uint32_t len;
    const int64_t *list = weft_attrs_ints(attrs, key, &len);
    if (!list)
        return true;
    if (len != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        if (list[i] < low || list[i] > INT32_MAX)
            return false;
        out[i] = list[i];
    }
    return true;
}

bool weft_cpu__window(const weft_prep *p, const int64_t *kernel, weft_cpu_window *w)
{
    const weft_tensor *in = &p->in[0].tensor, *out = &p->out[0].tensor;
    const char *auto_pad = weft_attrs_str(p->attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    int64_t pads[2 * WEFT_RANK_MAX] = {0};
    uint32_t n = (uint32_t)in->rank - 2;
    if (in->rank < 3 || out->rank != in->rank ||
        weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_W, 0) != 0)
        return false;
    memset(w, 0, sizeof *w);
    w->n = n;
    for (uint32_t i = 0; i < n; i++)
        w->stride[i] = w->dilation[i] = w->kernel[i] = 1;
    if (kernel)
        memcpy(w->kernel, kernel, n * sizeof *kernel);
    else if (!weft_cpu__read_ints(p->attrs, WEFT_ATTR_KERNEL_SHAPE, n, 1, w->kernel))
        return false;
    if (!weft_cpu__read_ints(p->attrs, WEFT_ATTR_STRIDES, n, 1, w->stride) ||
        !weft_cpu__read_ints(p->attrs, WEFT_ATTR_DILATIONS, n, 1, w->dilation) ||
        !weft_cpu__read_ints(p->attrs, WEFT_ATTR_PADS, 2 * n, 0, pads))
        return false;
    bool same = strncmp(auto_pad, "SAME_", 5) == 0, lower = strcmp(auto_pad, "SAME_LOWER") == 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t extent = (w->kernel[i] - 1) * w->dilation[i] + 1;
        int64_t total = (out->dim[i + 2] - 1) * w->stride[i] + extent - in->dim[i + 2];
        w->before[i] = pads[i];
        w->after[i] = pads[n + i];
        if (same) {
            total = total > 0 ? total : 0;
            w->before[i] = lower ? (total + 1) / 2 : total / 2;
            w->after[i] = total - w->before[i];
        } else if (strcmp(auto_pad, "VALID") == 0) {
            w->before[i] = w->after[i] = 0;
        }
        int64_t room = in->dim[i + 2] + w->before[i] + w->after[i] - extent;
        w->reaches_out = w->reaches_out || room / w->stride[i] + 1 < out->dim[i + 2];
        if (room < 0 || room / w->stride[i] + 1 != out->dim[i + 2]) {
            /* ceil_mode: the last window extends past the padding. */
            w->after[i] =
                (out->dim[i + 2] - 1) * w->stride[i] + extent - in->dim[i + 2] - w->before[i];
            if (w->after[i] < 0 || w->after[i] >= extent + w->stride[i])
                return false;
        }
    }
    return true;
}
