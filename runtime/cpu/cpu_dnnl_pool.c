/* Pooling by oneDNN. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

static bool find(weft_prep *p, dnnl_alg_kind_t alg, const weft_cpu_window *w,
                 const dnnl_memory_desc_t *x, const dnnl_memory_desc_t *y,
                 dnnl_primitive_desc_t *out)
{
    dnnl_pooling_v2_desc_t desc;
    dnnl_primitive_attr_t attr;
    dnnl_dims_t kernel, stride, dilation, before, after;
    for (uint32_t i = 0; i < w->n; i++) {
        kernel[i] = w->kernel[i];
        stride[i] = w->stride[i];
        dilation[i] = w->dilation[i] - 1;
        before[i] = w->before[i];
        after[i] = w->after[i];
    }
    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return false;
    bool found =
        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success &&
        dnnl_pooling_v2_forward_desc_init(&desc, dnnl_forward_inference, alg, x, y, stride, kernel,
                                          dilation, before, after) == dnnl_success &&
        dnnl_primitive_desc_create(out, &desc, attr, weft_dnnl__engine(p), NULL) == dnnl_success;
    dnnl_primitive_attr_destroy(attr);
    return found;
}

weft_err weft_cpu__prepare_dnnl_pool(weft_prep *p)
{
    weft_cpu_window w;
    dnnl_memory_desc_t x, y;
    dnnl_primitive_desc_t pd;
    bool max = p->op == WEFT_OP_MAX_POOL;
    bool counted = weft_attrs_int(p->attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) != 0;
    dnnl_alg_kind_t alg = max       ? dnnl_pooling_max
                          : counted ? dnnl_pooling_avg_include_padding
                                    : dnnl_pooling_avg_exclude_padding;

    if ((p->n_out > 1 && p->out[1].present) || !weft_dnnl__md(&p->in[0], &x) ||
        !weft_dnnl__md(&p->out[0], &y) || p->in[0].tensor.rank > 5 ||
        !weft_cpu__window(p, NULL, &w) || (!max && counted && w.reaches_out))
        return WEFT_ERR_OK;
    /* A window over padding only has no average and no maximum. */
    for (uint32_t i = 0; i < w.n; i++)
        if (w.before[i] >= w.kernel[i] * w.dilation[i] || w.after[i] >= w.kernel[i] * w.dilation[i])
            return WEFT_ERR_OK;
    if (!find(p, alg, &w, &x, &y, &pd))
        return WEFT_ERR_OK;
    dnnl_kernel *k = weft_dnnl__create(p);
    dnnl_call *s = k ? weft_dnnl__add(k, pd) : NULL;
    if (s && weft_dnnl__bind(k, s, DNNL_ARG_SRC, &x, 0, 0) &&
        weft_dnnl__bind(k, s, DNNL_ARG_DST, &y, p->n_in, 0) &&
        weft_dnnl__bind_scratch(p, k, s, pd, 0))
        weft_dnnl__set(p, k, pd);
    else
        weft_dnnl__destroy(k);
    dnnl_primitive_desc_destroy(pd);
    return WEFT_ERR_OK;
}
