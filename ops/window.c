/* Windows of convolution and pooling: attributes, sizes of results, paddings. */
#include "ops/window_int.h"

#include <string.h>

/* Beyond any real model; keeps the arithmetic below far from overflow. */
#define WINDOW_LIMIT ((int64_t)1 << 30)

static bool read_list(weft_attrs attrs, weft_attr_key key, uint32_t n, int64_t otherwise,
                      int64_t least, int64_t *out)
{
    uint32_t len;
    const int64_t *list = weft_attrs_ints(attrs, key, &len);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = otherwise;
        if (list == NULL)
            continue;
        if (len != n || list[i] < least || list[i] > WINDOW_LIMIT)
            return false;
        out[i] = list[i];
    }
    return true;
}

const char *weft_window__read(weft_attrs attrs, uint32_t n, const int64_t *kernel, weft_window *out)
{
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    memset(out, 0, sizeof *out);
    if (n < 1 || n > WEFT_SPATIAL_MAX)
        return "expected 1 to 6 spatial dimensions";
    out->n = n;
    uint32_t n_kernel;
    const int64_t *shape = weft_attrs_ints(attrs, WEFT_ATTR_KERNEL_SHAPE, &n_kernel);
    if (shape == NULL && kernel == NULL)
        return "`kernel_shape` is missing";
    if (shape != NULL && n_kernel != n)
        return "`kernel_shape` does not fit the rank";
    for (uint32_t i = 0; i < n; i++) {
        out->kernel[i] = kernel != NULL ? kernel[i] : shape[i];
        if (out->kernel[i] < 1 || out->kernel[i] > WINDOW_LIMIT)
            return "a kernel without elements";
        if (shape != NULL && shape[i] != out->kernel[i])
            return "`kernel_shape` and the weight differ";
    }
    if (!read_list(attrs, WEFT_ATTR_STRIDES, n, 1, 1, out->stride))
        return "`strides` does not fit";
    if (!read_list(attrs, WEFT_ATTR_DILATIONS, n, 1, 1, out->dilation))
        return "`dilations` does not fit";
    for (uint32_t i = 0; i < n; i++)
        if ((out->kernel[i] - 1) * out->dilation[i] > WINDOW_LIMIT)
            return "`dilations` does not fit";
    const char *name = weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    uint32_t mode = 0;
    while (mode < 4 && strcmp(names[mode], name) != 0)
        mode++;
    if (mode == 4)
        return "unknown `auto_pad`";
    out->auto_pad = (weft_auto_pad)mode;
    int64_t pads[2 * WEFT_SPATIAL_MAX];
    if (!read_list(attrs, WEFT_ATTR_PADS, 2 * n, 0, 0, pads))
        return "`pads` does not fit";
    for (uint32_t i = 0; i < n && mode == 0; i++) {
        out->pad_lo[i] = pads[i];
        out->pad_hi[i] = pads[n + i];
    }
    out->ceil = weft_attrs_int(attrs, WEFT_ATTR_CEIL_MODE, 0) != 0;
    return NULL;
}

/* Elements from the first to the last one of a window along spatial dim i. */
static int64_t reach_of(const weft_window *w, uint32_t i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

/* Size of the result along spatial dim i for an input of that size. */
static weft_dim size_of(weft_dimpool *pool, const weft_window *w, uint32_t i, weft_dim in)
{
    int64_t s = w->stride[i], reach = reach_of(w, i);
    if (w->auto_pad >= WEFT_PAD_SAME_UPPER)
        return weft_dim_floordiv(pool, weft_dim_add(pool, in, s - 1), s);
    int64_t slack = w->pad_lo[i] + w->pad_hi[i] - reach;
    if (!w->ceil) {
        weft_dim room = weft_dim_add(pool, in, slack);
        return weft_dim_add(pool, weft_dim_floordiv(pool, room, s), 1);
    }
    weft_dim room = weft_dim_add(pool, in, slack + s - 1);
    weft_dim most = weft_dim_add(pool, weft_dim_floordiv(pool, room, s), 1);
    /* A last window that would start in the trailing padding is dropped. */
    weft_dim start = weft_dim_add(pool, in, w->pad_lo[i] - 1);
    return weft_dim_min(pool, most, weft_dim_add(pool, weft_dim_floordiv(pool, start, s), 1));
}

/* Elements that the input must have for a first window: fewer would be an image that is too small,
 * and a result without elements, or one of negative size. */
static weft_err require_room(weft_infer_ctx *cx, const weft_window *w, uint32_t i, weft_dim in)
{
    int64_t reach = reach_of(w, i), lo, hi;
    int64_t need = reach - w->pad_lo[i] - w->pad_hi[i] - (w->ceil ? w->stride[i] - 1 : 0);
    if (w->auto_pad >= WEFT_PAD_SAME_UPPER || need <= 1)
        return WEFT_ERR_OK;
    weft_dim_bounds(cx->pool, in, &lo, &hi);
    if (lo >= need)
        return WEFT_ERR_OK;
    if (weft_dim_is_const(in))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                         "a window of %lld elements does not fit into %lld, padded by %lld and "
                         "%lld",
                         (long long)reach, (long long)in, (long long)w->pad_lo[i],
                         (long long)w->pad_hi[i]);
    weft_infer__require(cx, WEFT_REQUIRE_EQUAL, weft_dim_min(cx->pool, in, need), need,
                        "elements that a window needs at least");
    return WEFT_ERR_OK;
}

weft_err weft_window__sizes(weft_infer_ctx *cx, const weft_window *w, const weft_ttype *x,
                            weft_ttype *out)
{
    for (uint32_t i = 0; i < w->n; i++) {
        WEFT_TRY(require_room(cx, w, i, x->dim[2 + i]));
        out->dim[2 + i] = size_of(cx->pool, w, i, x->dim[2 + i]);
    }
    return WEFT_ERR_OK;
}

int64_t weft_window__pad_lo(const weft_window *w, uint32_t i, int64_t in, int64_t out)
{
    if (w->auto_pad < WEFT_PAD_SAME_UPPER)
        return w->pad_lo[i];
    int64_t reach = reach_of(w, i);
    int64_t total = (out - 1) * w->stride[i] + reach - in;
    if (total < 0)
        total = 0;
    return w->auto_pad == WEFT_PAD_SAME_UPPER ? total / 2 : total - total / 2;
}
