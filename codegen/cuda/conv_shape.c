/* The sizes of a convolution, for its emitters. */
#include "codegen/cuda/cuda_conv_int.h"

#include <string.h>

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

weft_err weft_cuda__read_conv(weft_cuda *cu, uint32_t w_in, bool transposed, weft_cuda_conv *p)
{
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *w = weft_cuda__in_type(cu, w_in);
    const weft_ttype *o = weft_cuda__out_type(cu, 0);
    weft_attrs attrs = weft_cuda__attrs(cu);
    uint32_t spatial = x->rank - 2u, n;
    if (spatial > WEFT_CUDA_SPATIAL)
        return weft_cuda__unsup(cu, "%u spatial dims, at most %d", spatial, WEFT_CUDA_SPATIAL);
    p->dtype = (weft_dtype)x->dtype;
    for (uint32_t i = 1; i < w->rank; i++)
        if (!weft_dim_is_const(w->dim[i]) || !weft_dim_is_const(w->dim[0]))
            return weft_cuda__unsup(cu, "weights with a symbolic dim");
    const int64_t *stride = weft_attrs_ints(attrs, WEFT_ATTR_STRIDES, &n);
    const int64_t *dilation = weft_attrs_ints(attrs, WEFT_ATTR_DILATIONS, &n);
    p->group = weft_attrs_int(attrs, WEFT_ATTR_GROUP, 1);
    p->c = transposed ? w->dim[0] / p->group : w->dim[1];
    p->m = transposed ? w->dim[1] : w->dim[0] / p->group;
    p->images = x->dim[0];
    p->pixels = weft_cuda__product(cu, o, 2, o->rank);
    p->columns = p->pixels;
    for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++) {
        bool is_there = i + spatial >= WEFT_CUDA_SPATIAL;
        uint32_t own = is_there ? i + spatial - WEFT_CUDA_SPATIAL : 0;
        p->kernel[i] = is_there ? w->dim[own + 2] : 1;
        p->stride[i] = is_there && stride ? stride[own] : 1;
        p->dilation[i] = is_there && dilation ? dilation[own] : 1;
        p->in[i] = is_there ? x->dim[own + 2] : 1;
        p->out[i] = is_there ? o->dim[own + 2] : 1;
        p->pad[i] = is_there ? find_pad(cu, p, i, spatial) : 0;
    }
    return WEFT_ERR_OK;
}

void weft_cuda__print_conv(weft_cuda_kernel *k, const weft_cuda_conv *p, bool shared)
{
    weft_arena *arena = weft_cuda__arena(weft_cuda__of(k));
    const char *text = "";
    const int64_t *const known[] = {p->kernel, p->stride, p->dilation};
    const weft_dim *const dims[] = {p->pad, p->in, p->out};
    const weft_dim other[] = {p->images, p->group, p->c, p->m, p->columns};
    for (uint32_t g = 0; g < 3; g++)
        for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++)
            text = weft_arena_printf(arena, "%s%lld, ", text, (long long)known[g][i]);
    for (uint32_t g = 0; g < 3; g++)
        for (uint32_t i = 0; i < WEFT_CUDA_SPATIAL; i++) {
            bool own = shared && g > 0 && dims[g][i] != 1;
            text = weft_arena_printf(arena, "%s%s, ", text,
                                     own ? weft_cuda__number(k, dims[g][i])
                                         : weft_cuda__int(k, dims[g][i]));
        }
    for (uint32_t i = 0; i < sizeof other / sizeof other[0]; i++)
        text = weft_arena_printf(arena, "%s%s%s", text, i ? ", " : "",
                                 shared && other[i] != 1 ? weft_cuda__number(k, other[i])
                                                         : weft_cuda__int(k, other[i]));
    weft_buf_printf(weft_cuda__body(k), "    const conv_shape s = {%s};\n", text);
}
