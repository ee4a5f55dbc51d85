/* Transposed convolutions by oneDNN. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

#include "base/num.h"

#include <string.h>

typedef struct deconv_plan {
    uint32_t n; /* spatial dims */
    weft_dnnl_window window;
    bool has_bias;
    weft_dnnl_scope scope;
    const weft_dnnl_md *x, *y, *x_any, *y_any, *w, *w_any, *b;
    const weft_dnnl_pd *pd;
} deconv_plan;

/* The padding before the image is ONNX's; the padding after it follows from the size of the result.
 */
static bool describe_window(const weft_prep *p, deconv_plan *c)
{
    const weft_tensor *x = &p->in[0].tensor, *w = &p->in[1].tensor, *y = &p->out[0].tensor;
    const char *auto_pad = weft_attrs_str(p->attrs, WEFT_ATTR_AUTO_PAD, "NOTSET");
    int64_t stride[WEFT_RANK_MAX], dilation[WEFT_RANK_MAX], pads[2 * WEFT_RANK_MAX] = {0};
    int64_t extra[WEFT_RANK_MAX] = {0};
    bool upper = strcmp(auto_pad, "SAME_UPPER") == 0, lower = strcmp(auto_pad, "SAME_LOWER") == 0;
    bool sized = weft_attrs_find(p->attrs, WEFT_ATTR_OUTPUT_SHAPE) != NULL;

    c->n = (uint32_t)x->rank - 2;
    for (uint32_t i = 0; i < c->n; i++)
        stride[i] = dilation[i] = 1;
    if (!weft_cpu__read_ints(p->attrs, WEFT_ATTR_STRIDES, c->n, 1, stride) ||
        !weft_cpu__read_ints(p->attrs, WEFT_ATTR_DILATIONS, c->n, 1, dilation) ||
        !weft_cpu__read_ints(p->attrs, WEFT_ATTR_OUTPUT_PADDING, c->n, 0, extra) ||
        !weft_cpu__read_ints(p->attrs, WEFT_ATTR_PADS, 2 * c->n, 0, pads))
        return false;
    for (uint32_t i = 0; i < c->n; i++) {
        int64_t extent = (w->dim[i + 2] - 1) * dilation[i] + 1;
        int64_t full = (x->dim[i + 2] - 1) * stride[i] + extent;
        int64_t total = full + extra[i] - y->dim[i + 2];
        c->window.stride[i] = stride[i];
        c->window.dilation[i] = dilation[i] - 1;
        c->window.before[i] = pads[i];
        if (sized || upper || lower) {
            total = total > 0 ? total : 0;
            c->window.before[i] = upper ? total / 2 : total - total / 2;
        }
        c->window.after[i] = full - c->window.before[i] - y->dim[i + 2];
    }
    return true;
}

static bool describe(weft_prep *p, deconv_plan *c)
{
    const weft_slot *x = &p->in[0], *w = &p->in[1], *y = &p->out[0];
    int32_t rank = x->tensor.rank;
    int64_t group = weft_attrs_int(p->attrs, WEFT_ATTR_GROUP, 1), at = 1;
    dnnl_dims_t dims = {0}, stride = {0}, bias = {y->tensor.dim[1]};
    int n = 0;

    if (rank < 3 || rank > 5 || w->tensor.rank != rank || y->tensor.rank != rank || group < 1 ||
        !weft_slot_is(w, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
        w->tensor.dim[0] != x->tensor.dim[1] || w->tensor.dim[0] % group != 0 ||
        w->tensor.dim[1] * group != y->tensor.dim[1] || x->tensor.dim[0] != y->tensor.dim[0] ||
        !describe_window(p, c))
        return false;
    c->has_bias = p->n_in > 2 && p->in[2].present;
    if (c->has_bias && (!weft_slot_is(&p->in[2], WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN) ||
                        weft_slot_numel(&p->in[2]) != y->tensor.dim[1]))
        return false;
    /* ONNX stores weights as [in][out / group][k...]; oneDNN's dims are out, in. */
    int64_t taps = weft_slot_count(w, 2, rank), out = w->tensor.dim[1];
    if (group > 1) {
        dims[n] = group;
        stride[n++] = w->tensor.dim[0] / group * out * taps;
    }
    dims[n] = out;
    stride[n++] = taps;
    dims[n] = w->tensor.dim[0] / group;
    stride[n++] = out * taps;
    for (int32_t d = rank - 1; d >= 2; d--) {
        dims[n + d - 2] = w->tensor.dim[d];
        stride[n + d - 2] = at;
        at *= w->tensor.dim[d];
    }
    n += rank - 2;
    c->x = weft_dnnl__md(&c->scope, x);
    c->y = weft_dnnl__md(&c->scope, y);
    c->x_any = weft_dnnl__md_any(&c->scope, rank, x->tensor.dim);
    c->y_any = weft_dnnl__md_any(&c->scope, rank, y->tensor.dim);
    c->w = weft_dnnl__md_by_strides(&c->scope, n, dims, dnnl_f32, stride);
    c->w_any = weft_dnnl__md_any(&c->scope, n, dims);
    c->b = weft_dnnl__md_plain(&c->scope, 1, bias);
    return c->x && c->y && c->x_any && c->y_any && c->w && c->w_any && c->b;
}

static bool find(deconv_plan *c)
{
    c->pd = weft_dnnl__deconv(&c->scope, NULL, &c->window, c->x_any, c->w_any,
                              c->has_bias ? c->b : NULL, c->y_any);
    return c->pd != NULL;
}

/* Scratch memory: reordered operand, reordered result, the primitive's own scratch memory. */
static weft_err build(weft_prep *p, deconv_plan *c, dnnl_kernel *k)
{
    uint32_t scratch = p->n_in + p->n_out;
    const weft_dnnl_md *x = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_src_md, 0);
    const weft_dnnl_md *y = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_dst_md, 0);
    const weft_dnnl_md *w = weft_dnnl__pd_md(&c->scope, c->pd, dnnl_query_weights_md, 0);
    uint64_t x_bytes = weft_align_up(weft_dnnl__md_bytes(x), 64);
    uint64_t y_bytes = weft_align_up(weft_dnnl__md_bytes(y), 64);

    if (!x || !y || !w || !weft_dnnl__add_reorder(k, c->x, 0, 0, x, scratch, 0))
        return WEFT_ERR_UNSUP;
    dnnl_call *s = weft_dnnl__add(k, c->pd);
    p->scratch_bytes = x_bytes + y_bytes;
    if (!s || !weft_dnnl__bind(k, s, DNNL_ARG_SRC, x, scratch, 0) ||
        !weft_dnnl__bind(k, s, DNNL_ARG_DST, y, scratch, x_bytes) ||
        (c->has_bias && !weft_dnnl__bind(k, s, DNNL_ARG_BIAS, c->b, 2, 0)) ||
        !weft_dnnl__bind_scratch(p, k, s, c->pd, x_bytes + y_bytes))
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, 1, c->w, w));
    return weft_dnnl__add_reorder(k, y, scratch, x_bytes, c->y, p->n_in, 0) ? WEFT_ERR_OK
                                                                            : WEFT_ERR_UNSUP;
}

weft_err weft_cpu__prepare_dnnl_deconv(weft_prep *p)
{
    deconv_plan c = {.scope = weft_dnnl__scope(p->engine)};
    weft_err err = WEFT_ERR_OK;
    if (p->in[1].weight && describe(p, &c) && find(&c)) {
        dnnl_kernel *k = weft_dnnl__create(p);
        err = k ? build(p, &c, k) : WEFT_ERR_NOMEM;
        if (err == WEFT_ERR_OK) {
            weft_dnnl__set(p, k, c.pd);
        } else {
            weft_dnnl__destroy(k);
            p->scratch_bytes = 0;
        }
    }
    weft_dnnl__scope_finish(&c.scope);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}
