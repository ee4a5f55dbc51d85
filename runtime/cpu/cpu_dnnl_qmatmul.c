/* qlinear_matmul by oneDNN: operand a of bytes, a weight of i8, computed as one GEMM whatever the
 * batch dims of a. */
#include "runtime/cpu/cpu_dnnl_qproduct_int.h"

typedef struct qmatmul {
    qproduct q;
    const weft_dnnl_md *a, *b, *b_any, *y;
    const weft_dnnl_pd *pd;
} qmatmul;

static bool is_plain(const weft_slot *s)
{
    return s->layout == WEFT_LAYOUT_PLAIN;
}

static bool describe(weft_prep *p, qmatmul *m)
{
    const weft_slot *a = &p->in[WEFT_QLINEAR_A], *b = &p->in[WEFT_QLINEAR_B], *y = &p->out[0];
    int32_t ra = a->tensor.rank, ry = y->tensor.rank;
    if (weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_B, 0) != 0)
        return false; /* only GPUs get such weights */
    if (ra < 2 || b->tensor.rank != 2 || ry != ra || !is_plain(a) || !is_plain(y) ||
        weft_dnnl__type(y) == dnnl_data_type_undef)
        return false;
    int64_t rows = weft_slot_count(a, 0, ra - 1), k = a->tensor.dim[ra - 1];
    int64_t cols = b->tensor.dim[1];
    if (b->tensor.dim[0] != k || y->tensor.dim[ry - 1] != cols ||
        weft_slot_count(y, 0, ry - 1) != rows || !weft_qproduct__read(p, &m->q, cols, 2, 1))
        return false;
    const int64_t a_dim[2] = {rows, k}, b_dim[2] = {k, cols}, y_dim[2] = {rows, cols};
    weft_dnnl_scope *scope = &m->q.scope;
    m->a = weft_dnnl__md_by_tag(scope, 2, a_dim, weft_dnnl__type(a), dnnl_ab);
    m->b = weft_dnnl__md_by_tag(scope, 2, b_dim, dnnl_s8, dnnl_ab);
    m->b_any = weft_dnnl__md_by_tag(scope, 2, b_dim, dnnl_s8, dnnl_format_tag_any);
    m->y = weft_dnnl__md_by_tag(scope, 2, y_dim, weft_dnnl__type(y), dnnl_ab);
    return m->a && m->b && m->b_any && m->y;
}

static bool find(qmatmul *m)
{
    m->pd = weft_dnnl__matmul(&m->q.scope, &m->q.epilogue.attr, m->a, m->b_any,
                              m->q.bias ? m->q.bias_md : NULL, m->y);
    return m->pd && !weft_dnnl__is_slow(m->pd);
}

static weft_err build(weft_prep *p, qmatmul *m)
{
    const weft_dnnl_md *b = weft_dnnl__pd_md(&m->q.scope, m->pd, dnnl_query_weights_md, 0);
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    dnnl_call *s = weft_dnnl__add(k, m->pd);
    weft_err err = WEFT_ERR_UNSUP;
    if (s && b && weft_dnnl__bind(k, s, DNNL_ARG_SRC, m->a, WEFT_QLINEAR_A, 0) &&
        weft_dnnl__bind(k, s, DNNL_ARG_DST, m->y, p->n_in, 0) &&
        weft_dnnl__bind_scratch(p, k, s, m->pd, 0))
        err = weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, WEFT_QLINEAR_B, m->b, b);
    if (err == WEFT_ERR_OK)
        return weft_qproduct__finish(p, &m->q, k, s, m->pd);
    weft_dnnl__destroy(k);
    p->scratch_bytes = 0;
    return err;
}

static weft_err prepare(weft_prep *p, qmatmul *m)
{
    if (!describe(p, m))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_qproduct__epilogue(p, &m->q, true));
    bool is_f32 = p->out[0].tensor.dtype == WEFT_DTYPE_F32;
    if (!m->q.epilogue.fused && !is_f32)
        return WEFT_ERR_OK;
    if (!find(m)) {
        weft_dnnl_quant quant = m->q.epilogue.attr.quant;
        if (!is_f32 || m->q.epilogue.n_step == 0)
            return WEFT_ERR_OK;
        weft_dnnl__unfuse(&m->q.epilogue);
        m->q.epilogue.attr.quant = quant;
        if (!find(m))
            return WEFT_ERR_OK;
    }
    return build(p, m);
}

weft_err weft_cpu__prepare_qlinear_matmul(weft_prep *p)
{
    qmatmul m = {.q.scope = weft_dnnl__scope(p->engine)};
    weft_err err = prepare(p, &m);
    weft_qproduct__destroy(&m.q);
    return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
}
