/* The sizes of a convolution, and what its emitters share. */
#include "codegen/cuda/cuda_conv_int.h"

#include <string.h>

enum { AREA_MAX = 64 }; /* most taps of a thread of a depthwise kernel */

/* Padding before spatial dim i: from attribute `pads`, or computed from the sizes for `auto_pad`.
 */
static weft_dim find_pad(weft_cuda *cu, const weft_cuda_conv *p, uint32_t i, uint32_t spatial)
{
    weft_dimpool *pool = weft_cuda__dims(cu);
    weft_attrs attrs = weft_cuda__attrs(cu);
    const char *automatic = weft_attrs_str(attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    uint32_t n, own = i + spatial - WEFT_CUDA_SPATIAL;
    const int64_t *pads = weft_attrs_ints(attrs, WEFT_ATTR_PADS, &n);
    if (strcmp(automatic, "VALID") == 0)
        return 0;
    if (strncmp(automatic, "SAME_", 5) != 0)
        return pads ? pads[own] : 0;
    int64_t reach = (p->kernel[i] - 1) * p->dilation[i] + 1 - p->stride[i];
    weft_dim total = weft_dim_sub(
        pool, weft_cuda__add(cu, weft_cuda__mul(cu, p->out[i], p->stride[i]), reach), p->in[i]);
    total = weft_dim_max(pool, total, 0);
    bool lower = strcmp(automatic, "SAME_LOWER") == 0;
    return weft_dim_floordiv(pool, weft_cuda__add(cu, total, lower), 2);
}

/* Whether result and weights have channels innermost if the images have, and only then. */
static bool is_even(const weft_cuda *cu, bool last)
{
    bool trans_w = weft_attrs_int(weft_cuda__attrs(cu), WEFT_ATTR_TRANS_W, 0) != 0;
    return weft_cuda__gives_last(cu) == last && trans_w == last;
}

weft_err weft_cuda__read_conv(weft_cuda *cu, uint32_t w_in, bool transposed, weft_cuda_conv *p)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *w = weft_cuda__in_type(cu, w_in);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    uint32_t spatial = x->rank - 2u, n;
    if (spatial > WEFT_CUDA_SPATIAL)
        return weft_cuda__unsup(cu, "%u spatial dims, at most %d", spatial, WEFT_CUDA_SPATIAL);
    bool last = weft_cuda__is_last(cu, 0);
    uint32_t first = last ? 1 : 2; /* spatial dim */
    if (!is_even(cu, last))
        return weft_cuda__unsup(cu, "operands and result of different layouts");
    p->last = last;
    p->dtype = (weft_dtype)x->dtype;
    for (uint32_t i = 1; i < w->rank; i++)
        if (!weft_dim_is_const(w->dim[i]) || !weft_dim_is_const(w->dim[0]))
            return weft_cuda__unsup(cu, "weights with a symbolic dim");
    const int64_t *stride = weft_attrs_ints(attrs, WEFT_ATTR_STRIDES, &n);
    const int64_t *dilation = weft_attrs_ints(attrs, WEFT_ATTR_DILATIONS, &n);
    p->group = weft_attrs_int(attrs, WEFT_ATTR_GROUP, 1);
    p->c = transposed ? w->dim[0] / p->group : w->dim[last ? w->rank - 1u : 1];
    p->m = transposed ? w->dim[1] : w->dim[0] / p->group;
    p->images = x->dim[0];
    p->pixels = weft_cuda__product(cu, o, first, first + spatial);
    p->columns = p->pixels;
    for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++) {
        bool is_there = i + spatial >= WEFT_CUDA_SPATIAL;
        uint32_t own = is_there ? i + spatial - WEFT_CUDA_SPATIAL : 0;
        p->kernel[i] = is_there ? w->dim[own + first] : 1;
        p->stride[i] = is_there && stride ? stride[own] : 1;
        p->dilation[i] = is_there && dilation ? dilation[own] : 1;
        p->in[i] = is_there ? x->dim[own + first] : 1;
        p->out[i] = is_there ? o->dim[own + first] : 1;
        p->pad[i] = is_there ? find_pad(cu, p, i, spatial) : 0;
    }
    return WEFT_ERR_OK;
}

void weft_cuda__print_conv(weft_cuda_kernel *k, const weft_cuda_conv *p, bool shared)
{
    enum { KERNEL, STRIDE, DILATION, PAD };
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *text = "";
    const int64_t *const known[] = {p->kernel, p->stride, p->dilation};
    const weft_dim *const dims[] = {p->pad, p->in, p->out};
    const weft_dim other[] = {p->images, p->group, p->c, p->m, p->columns};
    for (uint32_t g = 0; g < 6; g++) {
        const char *size = "";
        for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++) {
            weft_dim d = g < PAD ? known[g][i] : dims[g - PAD][i];
            bool own = shared && p->in[i] != 1 && g != KERNEL && (d != 1 || g == STRIDE);
            bool is_square = own && i > 0 && p->in[i - 1] != 1 &&
                             d == (g < PAD ? known[g][i - 1] : dims[g - PAD][i - 1]);
            if (!is_square)
                size = own ? weft_cuda__own_number(k, d) : weft_cuda__int(k, d);
            text = weft_arena_printf(arena, "%s%s, ", text, size);
        }
    }
    for (uint32_t i = 0; i < sizeof other / sizeof other[0]; i++)
        text = weft_arena_printf(arena, "%s%s%s", text, i ? ", " : "",
                                 shared && other[i] != 1 ? weft_cuda__own_number(k, other[i])
                                                         : weft_cuda__int(k, other[i]));
    weft_buf_printf(weft_cuda__body(k), "    const conv_shape s = {%s};\n", text);
}

bool weft_cuda__is_depthwise(const weft_cuda_conv *p)
{
    return p->c == 1 && p->group > 1 && p->kernel[0] == 1 && p->in[0] == 1 && p->out[0] == 1 &&
           p->kernel[1] * p->kernel[2] <= AREA_MAX && p->stride[2] <= 4 && p->dilation[2] <= 4;
}

bool weft_cuda__is_product(const weft_cuda_conv *p)
{
    for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++)
        if (p->kernel[i] != 1 || p->stride[i] != 1 || p->pad[i] != 0 || p->in[i] != p->out[i])
            return false;
    return p->last && p->group == 1;
}

bool weft_cuda__has_bias(const weft_cuda *cu)
{
    return weft_cuda__in_type(cu, 2) != NULL;
}

void weft_cuda__add_conv_operands(weft_cuda_kernel *k, const weft_cuda_conv *p)
{
    weft_cuda__include(k, p->last ? "conv_last.cuh" : "conv.cuh");
    weft_cuda__in(k, "x", 0);
    weft_cuda__in(k, "w", 1);
    if (weft_cuda__has_bias(weft_cuda__of(k)))
        weft_cuda__in(k, "bias", 2);
    else
        weft_buf_printf(weft_cuda__body(k), "    const %s *bias = 0;\n", weft_dtype_name(p->dtype));
}
