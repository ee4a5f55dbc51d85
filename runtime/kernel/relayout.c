/* Copies of tensors between layouts (ops/ops.h, weft_layout), one line of elements at a time. */
#include "runtime/kernel/kernel.h"

#include <string.h>

#define COPY_LOOP(type)             \
    for (int64_t i = 0; i < n; i++) \
    ((type *)(void *)dst)[i * ds] = ((const type *)(const void *)src)[i * ss]

void weft_relayout__line(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, size_t size)
{
    if (ds == 1 && ss == 1) {
        memcpy(dst, src, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        COPY_LOOP(uint8_t);
        break;
    case 2:
        COPY_LOOP(uint16_t);
        break;
    case 4:
        COPY_LOOP(uint32_t);
        break;
    default:
        COPY_LOOP(uint64_t);
        break;
    }
}

/* Strides, in elements, of an image, a channel, and a position within a channel. */
static void layout_strides(weft_layout layout, int64_t channels, int64_t plane, int64_t *stride)
{
    int64_t block = weft_layout_block(layout);
    int64_t padded = (channels + block - 1) / block * block;
    stride[0] = padded * plane;
    stride[1] = layout == WEFT_LAYOUT_NHWC ? 1 : plane; /* per channel */
    stride[2] = layout == WEFT_LAYOUT_NHWC ? channels : block;
}

void weft_relayout__tensor(void *dst, weft_layout to, const void *src, weft_layout from,
                           const int64_t *dim, int32_t rank, size_t size)
{
    int64_t images = dim[0], channels = dim[1], plane = 1, s[3], d[3];
    for (int32_t i = 2; i < rank; i++)
        plane *= dim[i];
    layout_strides(from, channels, plane, s);
    layout_strides(to, channels, plane, d);
    int64_t sb = weft_layout_block(from), db = weft_layout_block(to);
    if (channels % db)
        memset(dst, 0, (size_t)(images * d[0]) * size);
    for (int64_t n = 0; n < images; n++)
        for (int64_t c = 0; c < channels; c++)
            weft_relayout__line(
                (char *)dst + (size_t)(n * d[0] + c / db * db * d[1] + c % db) * size, d[2],
                (const char *)src + (size_t)(n * s[0] + c / sb * sb * s[1] + c % sb) * size, s[2],
                plane, size);
}
