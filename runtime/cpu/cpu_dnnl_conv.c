/* Convolutions by oneDNN. Activations keep the layouts that the compiler chose; weights are packed
 * into the layout that the implementation prefers. If only oneDNN's reference implementation
 * supports these layouts, the activations are reordered for a fast implementation. Winograd is used
 * where the compiler asks for it and oneDNN supports it. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

#include "base/num.h"

#include <string.h>

typedef struct conv_plan {
    weft_cpu_window window;
    int64_t group;
    dnnl_memory_desc_t x, w, w_any, b, y, x_any, y_any;
    bool has_bias;
    dnnl_epilogue epilogue;
    dnnl_primitive_desc_t pd;
} conv_plan;

static bool describe(weft_prep *p, conv_plan *c)
{
    const weft_slot *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    int32_t rank = x->tensor.rank;
    dnnl_dims_t dims, bias = {y->tensor.dim[1]};
    int n = 0;

    if (rank < 3 || rank > 5 || w->tensor.rank != rank || w->layout != WEFT_LAYOUT_PLAIN ||
        w->tensor.dtype != WEFT_DTYPE_F32 || !weft_cpu__window(p, w->tensor.dim + 2, &c->window) ||
        !weft_dnnl__md(x, &c->x) || !weft_dnnl__md(y, &c->y))
        return false;
    c->group = weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1);
    if (c->group < 1 || w->tensor.dim[0] % c->group != 0 ||
        w->tensor.dim[1] * c->group != x->tensor.dim[1] || w->tensor.dim[0] != y->tensor.dim[1] ||
        x->tensor.dim[0] != y->tensor.dim[0])
        return false;
    if (c->group > 1) {
        dims[n++] = c->group;
        dims[n++] = w->tensor.dim[0] / c->group;
    } else {
        dims[n++] = w->tensor.dim[0];
    }
    for (int32_t d = 1; d < rank; d++)
        dims[n++] = w->tensor.dim[d];
    c->has_bias = p->n_in > 2 && p->in[2].present;
    if (c->has_bias &&
        (p->in[2].tensor.dtype != WEFT_DTYPE_F32 || weft_slot_numel(&p->in[2]) != y->tensor.dim[1]))
        return false;
    return dnnl_memory_desc_init_by_tag(&c->w, n, dims, dnnl_f32,
                                        weft_dnnl__tag(WEFT_LAYOUT_PLAIN, n)) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&c->w_any, n, dims, dnnl_f32, dnnl_format_tag_any) ==
               dnnl_success &&
           dnnl_memory_desc_init_by_tag(&c->x_any, rank, c->x.dims, dnnl_f32,
                                        dnnl_format_tag_any) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&c->y_any, rank, c->y.dims, dnnl_f32,
                                        dnnl_format_tag_any) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&c->b, 1, bias, dnnl_f32, dnnl_a) == dnnl_success;
}

/* Finds an implementation for these formats of activations; drops the fused epilogue if no
 * implementation supports it. */
static bool find(weft_prep *p, conv_plan *c, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *x,
                 const dnnl_memory_desc_t *y, dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;
    dnnl_dims_t stride, dilation, before, after;
    for (uint32_t i = 0; i < c->window.n; i++) {
        stride[i] = c->window.stride[i];
        dilation[i] = c->window.dilation[i] - 1;
        before[i] = c->window.before[i];
        after[i] = c->window.after[i];
    }
    if (dnnl_dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_inference, alg, x, p->in[1].weight ? &c->w_any : &c->w,
            c->has_bias ? &c->b : NULL, y, stride, dilation, before, after) != dnnl_success ||
        dnnl_primitive_desc_create(out, &desc, c->epilogue.attr, weft_dnnl__engine(p), NULL) !=
            dnnl_success)
        return false;
    return true;
}

static bool set_attr(dnnl_epilogue *e)
{
    return dnnl_primitive_attr_set_post_ops(e->attr, e->ops) == dnnl_success;
}

/* As find, but rejects the reference implementation and, unless allowed, GEMM over unfolded images
 * (im2col). */
static bool find_fast(weft_prep *p, conv_plan *c, dnnl_alg_kind_t alg, const dnnl_memory_desc_t *x,
                      const dnnl_memory_desc_t *y, bool unfolding)
{
    const char *name = NULL;
    if (!find(p, c, alg, x, y, &c->pd))
        return false;
    (void)dnnl_primitive_desc_query(c->pd, dnnl_query_impl_info_str, 0, &name);
    if (!weft_dnnl__is_slow(c->pd) && (unfolding || !strstr(name, "gemm")))
        return true;
    dnnl_primitive_desc_destroy(c->pd);
    c->pd = NULL;
    return false;
}

static bool find_direct(weft_prep *p, conv_plan *c, bool unfolding)
{
    return find_fast(p, c, dnnl_convolution_direct, &c->x, &c->y, unfolding) ||
           find_fast(p, c, dnnl_convolution_direct, &c->x_any, &c->y_any, unfolding);
}

/* In order of preference: Winograd, with a separate epilogue if it cannot be fused; the given
 * layouts; reorders to the layouts that oneDNN prefers; no fused epilogue; any implementation. */
static bool choose(weft_prep *p, conv_plan *c)
{
    const char *algo = weft_attrs_str(p->attrs, WEFT_ATTR_ALGO, "");
    bool winograd = strcmp(algo, "winograd") == 0;
    if (!set_attr(&c->epilogue))
        return false;
    if (winograd && find_fast(p, c, dnnl_convolution_winograd, &c->x, &c->y, false))
        return true;
    if (winograd && c->epilogue.fused && c->epilogue.n_step > 0) {
        weft_dnnl__unfuse(&c->epilogue);
        if (find_fast(p, c, dnnl_convolution_winograd, &c->x, &c->y, false))
            return true;
        if (weft_dnnl__epilogue(p, &c->epilogue, false, NULL, 0) != WEFT_ERR_OK ||
            !set_attr(&c->epilogue))
            return false;
    }
    if (find_direct(p, c, false) || find_direct(p, c, true))
        return true;
    if (c->epilogue.n_step > 0 && c->epilogue.fused) {
        weft_dnnl__unfuse(&c->epilogue);
        if (find_direct(p, c, false) || find_direct(p, c, true))
            return true;
    }
    return find(p, c, dnnl_convolution_direct, &c->x, &c->y, &c->pd);
}

/* Scratch memory: reordered input, reordered result, the primitive's own scratch memory. */
static weft_err build(weft_prep *p, conv_plan *c, dnnl_kernel *k)
{
    uint32_t scratch = p->n_in + p->n_out;
    const dnnl_memory_desc_t *x = dnnl_primitive_desc_query_md(c->pd, dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *y = dnnl_primitive_desc_query_md(c->pd, dnnl_query_dst_md, 0);
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(c->pd, dnnl_query_weights_md, 0);
    bool x_moves = !dnnl_memory_desc_equal(x, &c->x), y_moves = !dnnl_memory_desc_equal(y, &c->y);
    uint64_t x_bytes = x_moves ? weft_align_up(dnnl_memory_desc_get_size(x), 64) : 0;
    uint64_t y_bytes = y_moves ? weft_align_up(dnnl_memory_desc_get_size(y), 64) : 0;

    p->scratch_bytes = x_bytes + y_bytes;
    /* When the result is computed in another layout, an operand of the epilogue in the result's
     * layout cannot be used. */
    if (y_moves && c->epilogue.n_operand > 0)
        for (uint32_t i = 0; i < c->epilogue.n_operand; i++)
            if (dnnl_memory_desc_equal(&c->epilogue.md[i], &c->y))
                return WEFT_ERR_UNSUP;
    if (x_moves && !weft_dnnl__add_reorder(k, &c->x, 0, 0, x, scratch, 0))
        return WEFT_ERR_UNSUP;
    dnnl_call *s = weft_dnnl__add(k, c->pd);
    if (!s || !weft_dnnl__bind(k, s, DNNL_ARG_SRC, x, x_moves ? scratch : 0, 0) ||
        !weft_dnnl__bind(k, s, DNNL_ARG_DST, y, y_moves ? scratch : p->n_in,
                         y_moves ? x_bytes : 0) ||
        (c->has_bias && !weft_dnnl__bind(k, s, DNNL_ARG_BIAS, &c->b, 2, 0)) ||
        !weft_dnnl__bind_scratch(p, k, s, c->pd, x_bytes + y_bytes))
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, 1, &c->w, w));
    if (!weft_dnnl__bind_epilogue(p, k, s, &c->epilogue))
        return WEFT_ERR_UNSUP;
    if (y_moves && !weft_dnnl__add_reorder(k, y, scratch, x_bytes, &c->y, p->n_in, 0))
        return WEFT_ERR_UNSUP;
    return WEFT_ERR_OK;
}

static weft_err try_build(weft_prep *p, conv_plan *c)
{
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = build(p, c, k);
    if (err != WEFT_ERR_OK) {
        weft_dnnl__destroy(k);
        p->scratch_bytes = 0;
        return err;
    }
    weft_dnnl__set(p, k, c->pd);
    return WEFT_ERR_OK;
}

weft_err weft_cpu__prepare_dnnl_conv(weft_prep *p)
{
    conv_plan c = {0};
    if (!describe(p, &c))
        return WEFT_ERR_OK;
    weft_err err = weft_dnnl__epilogue(p, &c.epilogue, false, NULL, 0);
    if (err == WEFT_ERR_OK && choose(p, &c)) {
        err = try_build(p, &c);
        if (err == WEFT_ERR_UNSUP && c.epilogue.n_operand > 0) {
            dnnl_primitive_desc_destroy(c.pd);
            c.pd = NULL;
            weft_dnnl__unfuse(&c.epilogue);
            if (choose(p, &c))
                err = try_build(p, &c);
        }
    }
    if (c.pd)
        dnnl_primitive_desc_destroy(c.pd);
    weft_dnnl__epilogue_finish(&c.epilogue);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}
