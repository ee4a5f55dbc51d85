/* Pooling by oneDNN. It has no fast kernel for plain values: they are reordered into blocks of
 * channels and back. */
#include "runtime/cpu/cpu_dnnl_int.h"
#include "runtime/cpu/cpu_window.h"

#include "base/num.h"

enum { BYTES_LEAD = 64 };

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

typedef struct pool_plan {
    weft_dnnl_scope scope;
    dnnl_alg_kind_t alg;
    weft_dnnl_window window;
    const weft_dnnl_md *x, *y;           /* as the launch has them */
    const weft_dnnl_md *x_prim, *y_prim; /* as the primitive has them */
    bool moves;                          /* the primitive works in scratch memory */
    uint64_t lead;                       /* bytes of scratch memory before the operand */
    const weft_dnnl_pd *pd;
} pool_plan;

/* Blocks that hold the channels with little padding, where the CPU has a kernel for them. */
static weft_layout blocks_for(const weft_prep *p)
{
    bool wide = p->in[0].tensor.dim[1] > 8 && weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core);
    return wide ? WEFT_LAYOUT_C16 : WEFT_LAYOUT_C8;
}

/* For bytes of fewer channels than a vector, oneDNN's kernels without masks load the vector that
 * ends at the last channel: from before the first element, where no memory need be. */
static bool reads_before(const weft_prep *p)
{
    const weft_tensor *x = &p->in[0].tensor;
    return (x->dtype == WEFT_DTYPE_U8 || x->dtype == WEFT_DTYPE_I8) && x->dim[1] < BYTES_LEAD &&
           !weft_dnnl__has_isa(dnnl_cpu_isa_avx512_core);
}

static bool choose(const weft_prep *p, pool_plan *c)
{
    weft_slot x = p->in[0], y = p->out[0];
    c->x = c->x_prim = weft_dnnl__md(&c->scope, &x);
    c->y = c->y_prim = weft_dnnl__md(&c->scope, &y);
    c->pd = weft_dnnl__pool(&c->scope, c->alg, &c->window, c->x, c->y);
    if (!c->pd || !weft_dnnl__is_slow(c->pd) || x.layout != WEFT_LAYOUT_PLAIN ||
        y.layout != WEFT_LAYOUT_PLAIN)
        return c->pd != NULL;
    x.layout = y.layout = (uint8_t)blocks_for(p);
    const weft_dnnl_md *x_blocks = weft_dnnl__md(&c->scope, &x);
    const weft_dnnl_md *y_blocks = weft_dnnl__md(&c->scope, &y);
    const weft_dnnl_pd *fast = weft_dnnl__pool(&c->scope, c->alg, &c->window, x_blocks, y_blocks);
    if (fast && !weft_dnnl__is_slow(fast)) {
        c->pd = fast;
        c->x_prim = x_blocks;
        c->y_prim = y_blocks;
        c->moves = true;
    }
    return true;
}

/* Scratch memory: operand and result as the primitive has them, the primitive's own. */
static bool build(weft_prep *p, pool_plan *c, dnnl_kernel *k)
{
    uint32_t scratch = p->n_in + p->n_out;
    bool moves = c->moves;
    uint64_t x_end = weft_align_up(c->lead + weft_dnnl__md_bytes(c->x_prim), 64);
    uint64_t y_end = x_end + weft_align_up(weft_dnnl__md_bytes(c->y_prim), 64);
    p->scratch_bytes = moves ? y_end : 0;
    if (moves && !weft_dnnl__add_reorder(k, c->x, 0, 0, c->x_prim, scratch, c->lead))
        return false;
    dnnl_call *s = weft_dnnl__add(k, c->pd);
    return s && weft_dnnl__bind(k, s, DNNL_ARG_SRC, c->x_prim, moves ? scratch : 0, c->lead) &&
           weft_dnnl__bind(k, s, DNNL_ARG_DST, c->y_prim, moves ? scratch : p->n_in,
                           moves ? x_end : 0) &&
           weft_dnnl__bind_scratch(p, k, s, c->pd, p->scratch_bytes) &&
           (!moves || weft_dnnl__add_reorder(k, c->y_prim, scratch, x_end, c->y, p->n_in, 0));
}

static weft_err prepare(weft_prep *p, pool_plan *c)
{
    if (!choose(p, c))
        return WEFT_ERR_OK;
    if (reads_before(p)) {
        c->moves = true;
        c->lead = BYTES_LEAD;
    }
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    k->loses_nan = c->alg == dnnl_pooling_max;
    if (k->loses_nan && p->out[0].tensor.dtype == WEFT_DTYPE_F32) {
        k->tame_out = weft_cpu__slot_stored(&p->out[0]);
        k->out = p->n_in;
    }
    if (build(p, c, k)) {
        weft_dnnl__set(p, k, c->pd);
    } else {
        weft_dnnl__destroy(k);
        p->scratch_bytes = 0;
    }
    return WEFT_ERR_OK;
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
    pool_plan c = {.scope = weft_dnnl__scope(p->engine), .alg = alg, .window = window_of(&w)};
    weft_err err = prepare(p, &c);
    weft_dnnl__scope_finish(&c.scope);
    return err;
}
