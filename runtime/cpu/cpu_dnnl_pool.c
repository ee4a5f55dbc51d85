/* Pooling by oneDNN. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

static weft_dnnl_window window_of(const weft_cpu_window *w)
{
    weft_dnnl_window out;
    for (uint32_t i = 0; i < w->n; i++) {
        out.kernel[i] = w->kernel[i];
        out.stride[i] = w->stride[i];
        out.dilation[i] = w->dilation[i] - 1;
        out.before[i] = w->before[i];
        out.after[i] = w->after[i];
    }
    return out;
}

/* A window over padding only has no average and no maximum. */
static bool reaches_data(const weft_cpu_window *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->before[i] >= w->kernel[i] * w->dilation[i] ||
            w->after[i] >= w->kernel[i] * w->dilation[i])
            return false;
    return true;
}

static void prepare(weft_prep *p, weft_dnnl_scope *scope, dnnl_alg_kind_t alg,
                    const weft_cpu_window *w)
{
    const weft_dnnl_window window = window_of(w);
    const weft_dnnl_md *x = weft_dnnl__md(scope, &p->in[0]), *y = weft_dnnl__md(scope, &p->out[0]);
    const weft_dnnl_pd *pd = weft_dnnl__pool(scope, alg, &window, x, y);
    dnnl_kernel *k = pd ? weft_dnnl__create(p) : NULL;
    dnnl_call *s = k ? weft_dnnl__add(k, pd) : NULL;
    if (k)
        k->loses_nan = alg == dnnl_pooling_max;
    if (s && weft_dnnl__bind(k, s, DNNL_ARG_SRC, x, 0, 0) &&
        weft_dnnl__bind(k, s, DNNL_ARG_DST, y, p->n_in, 0) &&
        weft_dnnl__bind_scratch(p, k, s, pd, 0))
        weft_dnnl__set(p, k, pd);
    else
        weft_dnnl__destroy(k);
}

weft_err weft_cpu__prepare_dnnl_pool(weft_prep *p)
{
    weft_cpu_window w;
    bool max = p->op == WEFT_OP_MAX_POOL;
    bool counted = weft_attrs_int(p->attrs, WEFT_ATTR_COUNT_INCLUDE_PAD, 0) != 0;
    dnnl_alg_kind_t alg = max       ? dnnl_pooling_max
                          : counted ? dnnl_pooling_avg_include_padding
                                    : dnnl_pooling_avg_exclude_padding;

    if ((max && weft_cpu__keeps_nan(p)) || (p->n_out > 1 && p->out[1].present) ||
        p->in[0].tensor.rank > 5 || !weft_cpu__window(p, NULL, &w) ||
        (!max && counted && w.reaches_out) || !reaches_data(&w))
        return WEFT_ERR_OK;
    weft_dnnl_scope scope = weft_dnnl__scope(p->engine);
    prepare(p, &scope, alg, &w);
    weft_dnnl__scope_finish(&scope);
    return WEFT_ERR_OK;
}
