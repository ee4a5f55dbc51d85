/* qlinear_conv by oneDNN: images of bytes with channels innermost, a weight of i8. */
#include "runtime/cpu/cpu_dnnl_qproduct_int.h"
#include "runtime/cpu/cpu_window.h"

#include "base/num.h"

#include <string.h>

typedef struct qconv {
    qproduct q;
    weft_cpu_window window;
    const weft_dnnl_md *x, *w, *w_any, *y; /* of the launch */
    const weft_dnnl_pd *pd;
} qconv;

static bool describe(weft_prep *p, qconv *c)
{
    const weft_slot *x = &p->in[WEFT_QLINEAR_A], *w = &p->in[WEFT_QLINEAR_B], *y = &p->out[0];
    int32_t rank = x->tensor.rank;
    int64_t group = weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1), m = w->tensor.dim[0];
    dnnl_dims_t dim;
    int n = 0;
    if (rank < 3 || rank > 5 || w->tensor.rank != rank || y->tensor.rank != rank || group < 1 ||
        m % group != 0 || w->tensor.dim[1] * group != x->tensor.dim[1] || m != y->tensor.dim[1] ||
        !weft_cpu__window(p, w->tensor.dim + 2, &c->window) ||
        !weft_qproduct__read(p, &c->q, m, 1, 0) || c->q.adds_bias)
        return false;
    if (group > 1)
        dim[n++] = group;
    dim[n++] = m / group;
    for (int32_t d = 1; d < rank; d++)
        dim[n++] = w->tensor.dim[d];
    c->x = weft_dnnl__md(&c->q.scope, x);
    c->y = weft_dnnl__md(&c->q.scope, y);
    c->w = weft_dnnl__md_by_tag(&c->q.scope, n, dim, dnnl_s8, weft_dnnl__tag(WEFT_LAYOUT_PLAIN, n));
    c->w_any = weft_dnnl__md_by_tag(&c->q.scope, n, dim, dnnl_s8, dnnl_format_tag_any);
    return c->x && c->y && c->w && c->w_any;
}

/* Finds an implementation; activations in the launch's layouts, or in those it prefers. */
static bool find(qconv *c, bool any)
{
    const weft_dnnl_md *x = c->x, *y = c->y;
    weft_dnnl_window window;
    for (uint32_t i = 0; i < c->window.n; i++) {
        window.stride[i] = c->window.stride[i];
        window.dilation[i] = c->window.dilation[i] - 1;
        window.before[i] = c->window.before[i];
        window.after[i] = c->window.after[i];
    }
    if (any) {
        x = weft_dnnl__md_by_tag(&c->q.scope, x->rank, x->dim, x->type, dnnl_format_tag_any);
        y = weft_dnnl__md_by_tag(&c->q.scope, y->rank, y->dim, y->type, dnnl_format_tag_any);
    }
    c->pd = weft_dnnl__conv(&c->q.scope, &c->q.epilogue.attr, dnnl_convolution_direct, 0, &window,
                            x, c->w_any, c->q.bias ? c->q.bias_md : NULL, y);
    return c->pd && !weft_dnnl__is_slow(c->pd);
}

/* Scratch memory: reordered images, the reordered result, the primitive's own scratch memory. */
static weft_err bind_images(weft_prep *p, qconv *c, dnnl_kernel *k, dnnl_call **out)
{
    uint32_t scratch = p->n_in + p->n_out;
    const weft_dnnl_md *x = weft_dnnl__pd_md(&c->q.scope, c->pd, dnnl_query_src_md, 0);
    const weft_dnnl_md *y = weft_dnnl__pd_md(&c->q.scope, c->pd, dnnl_query_dst_md, 0);
    const weft_dnnl_md *w = weft_dnnl__pd_md(&c->q.scope, c->pd, dnnl_query_weights_md, 0);
    if (!x || !y || !w)
        return WEFT_ERR_UNSUP;
    bool x_moves = !weft_dnnl__md_equal(x, c->x), y_moves = !weft_dnnl__md_equal(y, c->y);
    uint64_t x_bytes = x_moves ? weft_align_up(weft_dnnl__md_bytes(x), 64) : 0;
    uint64_t y_bytes = y_moves ? weft_align_up(weft_dnnl__md_bytes(y), 64) : 0;
    /* Operands of the epilogue and an element-wise pass have the layout of the launch. */
    if (y_moves && (c->q.epilogue.n_operand > 0 || !c->q.epilogue.fused))
        return WEFT_ERR_UNSUP;
    p->scratch_bytes = x_bytes + y_bytes;
    if (x_moves && !weft_dnnl__add_reorder(k, c->x, WEFT_QLINEAR_A, 0, x, scratch, 0))
        return WEFT_ERR_UNSUP;
    dnnl_call *s = weft_dnnl__add(k, c->pd);
    if (!s ||
        !weft_dnnl__bind(k, s, DNNL_ARG_SRC, x, x_moves ? scratch : (uint32_t)WEFT_QLINEAR_A, 0) ||
        !weft_dnnl__bind(k, s, DNNL_ARG_DST, y, y_moves ? scratch : p->n_in,
                         y_moves ? x_bytes : 0) ||
        !weft_dnnl__bind_scratch(p, k, s, c->pd, x_bytes + y_bytes))
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, WEFT_QLINEAR_B, c->w, w));
    if (y_moves && !weft_dnnl__add_reorder(k, y, scratch, x_bytes, c->y, p->n_in, 0))
        return WEFT_ERR_UNSUP;
    *out = s;
    return WEFT_ERR_OK;
}

static weft_err build(weft_prep *p, qconv *c)
{
    dnnl_kernel *k = weft_dnnl__create(p);
    dnnl_call *s = NULL;
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = bind_images(p, c, k, &s);
    if (err == WEFT_ERR_OK)
        return weft_qproduct__finish(p, &c->q, k, s, c->pd);
    weft_dnnl__destroy(k);
    p->scratch_bytes = 0;
    return err;
}

static weft_err prepare(weft_prep *p, qconv *c)
{
    if (!describe(p, c))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_qproduct__epilogue(p, &c->q, false));
    bool is_f32 = p->out[0].tensor.dtype == WEFT_DTYPE_F32;
    if (!c->q.epilogue.fused && !is_f32)
        return WEFT_ERR_OK;
    if (!find(c, false) && !find(c, true)) {
        weft_dnnl_quant quant = c->q.epilogue.attr.quant;
        if (!is_f32 || c->q.epilogue.n_step == 0)
            return WEFT_ERR_OK;
        weft_dnnl__unfuse(&c->q.epilogue);
        c->q.epilogue.attr.quant = quant;
        if (!find(c, false))
            return WEFT_ERR_OK;
    }
    return build(p, c);
}

weft_err weft_cpu__prepare_qlinear_conv(weft_prep *p)
{
    qconv c = {.q.scope = weft_dnnl__scope(p->engine)};
    weft_err err = prepare(p, &c);
    weft_qproduct__destroy(&c.q);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}
