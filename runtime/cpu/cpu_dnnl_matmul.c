/* GEMM and matmul by oneDNN. A matmul with a two-dimensional second operand is computed as one
 * GEMM, whatever the batch dims of the first operand; weights are packed once. Other matmuls run
 * over broadcast batch dims. */
#include "runtime/cpu/cpu_dnnl_int.h"

#include <string.h>

typedef struct gemm {
    bool trans_a, trans_b, collapsed;
    float alpha, beta;
    int rank; /* rank of the oneDNN problem */
    dnnl_dims_t a, b, y, a_stride, b_stride;
    weft_dnnl_scope scope;
    const weft_dnnl_md *a_md, *b_md, *b_any, *bias_md, *y_md;
    uint32_t bias; /* operand passed as oneDNN's bias; 0: none */
    dnnl_epilogue epilogue;
    const weft_dnnl_pd *pd;
} gemm;

/* Dims and element strides of a plain operand as a batch of matrices of rank `rank`. */
static void as_matrices(const weft_tensor *t, bool trans, int rank, dnnl_dims_t dim,
                        dnnl_dims_t stride)
{
    int64_t at = 1;
    int shift = rank - t->rank;
    for (int d = 0; d < shift; d++)
        dim[d] = 1;
    for (int d = rank - 1; d >= shift; d--) {
        dim[d] = t->dim[d - shift];
        stride[d] = at;
        at *= dim[d];
    }
    for (int d = 0; d < shift; d++)
        stride[d] = at;
    if (trans) {
        int64_t x = dim[rank - 1], s = stride[rank - 1];
        dim[rank - 1] = dim[rank - 2];
        stride[rank - 1] = stride[rank - 2];
        dim[rank - 2] = x;
        stride[rank - 2] = s;
    }
}

static bool plain_f32(const weft_slot *s)
{
    return weft_slot_is(s, WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN);
}

static bool shape(weft_prep *p, gemm *m)
{
    const weft_tensor *a = &p->in[0].tensor, *b = &p->in[1].tensor, *y = &p->out[0].tensor;
    if (!plain_f32(&p->in[0]) || !plain_f32(&p->in[1]) || !plain_f32(&p->out[0]) || a->rank < 2 ||
        b->rank < 2 || y->rank != (a->rank > b->rank ? a->rank : b->rank) || y->rank > 6)
        return false;
    m->collapsed = b->rank == 2 && (a->rank == 2 || !m->trans_a);
    m->rank = m->collapsed ? 2 : y->rank;
    if (m->collapsed) {
        weft_tensor flat = {.rank = 2};
        flat.dim[1] = a->dim[a->rank - 1];
        flat.dim[0] = weft_slot_count(&p->in[0], 0, a->rank - 1);
        as_matrices(&flat, m->trans_a, 2, m->a, m->a_stride);
        m->y[0] = weft_slot_count(&p->out[0], 0, y->rank - 1);
        m->y[1] = y->dim[y->rank - 1];
    } else {
        as_matrices(a, m->trans_a, m->rank, m->a, m->a_stride);
        for (int d = 0; d < m->rank; d++)
            m->y[d] = y->dim[d];
    }
    as_matrices(b, m->trans_b, m->rank, m->b, m->b_stride);
    int r = m->rank;
    if (m->a[r - 1] != m->b[r - 2] || m->a[r - 2] != m->y[r - 2] || m->b[r - 1] != m->y[r - 1])
        return false;
    for (int d = 0; d < r - 2; d++)
        if ((m->a[d] != 1 && m->a[d] != m->y[d]) || (m->b[d] != 1 && m->b[d] != m->y[d]))
            return false;
    return true;
}

static bool describe(gemm *m)
{
    dnnl_dims_t bias;
    for (int d = 0; d < m->rank; d++)
        bias[d] = d == m->rank - 1 ? m->y[d] : 1;
    m->a_md = weft_dnnl__md_by_strides(&m->scope, m->rank, m->a, dnnl_f32, m->a_stride);
    m->b_md = weft_dnnl__md_by_strides(&m->scope, m->rank, m->b, dnnl_f32, m->b_stride);
    m->b_any = weft_dnnl__md_any(&m->scope, m->rank, m->b);
    m->bias_md = weft_dnnl__md_plain(&m->scope, m->rank, bias);
    m->y_md = weft_dnnl__md_plain(&m->scope, m->rank, m->y);
    return m->a_md && m->b_md && m->b_any && m->bias_md && m->y_md;
}

/* Steps before the epilogue, for what oneDNN's arguments cannot express: alpha, or a bias of
 * another shape. */
static bool read_front(weft_prep *p, gemm *m, weft_step *front, uint32_t *out_n)
{
    const weft_slot *bias = p->n_in > 2 && p->in[2].present ? &p->in[2] : NULL;
    uint32_t n = 0;
    if (bias && !plain_f32(bias))
        return false;
    if (m->alpha != 1.0f) {
        front[n] = (weft_step){.op = WEFT_STEP_MUL, .n_args = 2};
        front[n].arg[0].kind = WEFT_ARG_ACC;
        front[n].arg[1].kind = WEFT_ARG_NUMBER;
        front[n++].arg[1].number = m->alpha;
    }
    m->bias = bias && n == 0 && bias->tensor.rank >= 1 &&
                      weft_slot_numel(bias) == m->y[m->rank - 1] &&
                      bias->tensor.dim[bias->tensor.rank - 1] == m->y[m->rank - 1]
                  ? 2
                  : 0;
    if (bias && m->beta != 1.0f)
        return false;
    if (bias && !m->bias) {
        front[n] = (weft_step){.op = WEFT_STEP_ADD, .n_args = 2};
        front[n].arg[0].kind = WEFT_ARG_ACC;
        front[n].arg[1].kind = WEFT_ARG_INPUT;
        front[n++].arg[1].idx = 2;
    }
    *out_n = n;
    return true;
}

static bool find(const weft_prep *p, gemm *m)
{
    m->pd = weft_dnnl__matmul(&m->scope, &m->epilogue.attr, m->a_md,
                              p->in[1].weight ? m->b_any : m->b_md, m->bias ? m->bias_md : NULL,
                              m->y_md);
    return m->pd != NULL;
}

static weft_err build(weft_prep *p, gemm *m, dnnl_kernel *k)
{
    const weft_dnnl_md *b = weft_dnnl__pd_md(&m->scope, m->pd, dnnl_query_weights_md, 0);
    dnnl_call *s = weft_dnnl__add(k, m->pd);
    if (!s || !b || !weft_dnnl__bind(k, s, DNNL_ARG_SRC, m->a_md, 0, 0) ||
        !weft_dnnl__bind(k, s, DNNL_ARG_DST, m->y_md, p->n_in, 0) ||
        (m->bias && !weft_dnnl__bind(k, s, DNNL_ARG_BIAS, m->bias_md, m->bias, 0)) ||
        !weft_dnnl__bind_scratch(p, k, s, m->pd, 0))
        return WEFT_ERR_UNSUP;
    WEFT_TRY(weft_dnnl__bind_weight(p, k, s, DNNL_ARG_WEIGHTS, 1, m->b_md, b));
    return weft_dnnl__bind_epilogue(p, k, s, &m->epilogue) ? WEFT_ERR_OK : WEFT_ERR_UNSUP;
}

static weft_err prepare(weft_prep *p, gemm *m)
{
    dnnl_kernel *k = weft_dnnl__create(p);
    if (!k)
        return WEFT_ERR_NOMEM;
    weft_err err = build(p, m, k);
    if (err != WEFT_ERR_OK) {
        weft_dnnl__destroy(k);
        return err == WEFT_ERR_UNSUP ? WEFT_ERR_OK : err;
    }
    weft_dnnl__set(p, k, m->pd);
    return WEFT_ERR_OK;
}

static weft_err choose_and_prepare(weft_prep *p, gemm *m)
{
    weft_step front[2];
    uint32_t n_front;
    if (!shape(p, m) || !describe(m) || !read_front(p, m, front, &n_front))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_dnnl__epilogue(p, &m->scope, &m->epilogue, m->collapsed, front, n_front));
    int64_t n = 1;
    for (int d = 0; d < m->rank; d++)
        n *= m->y[d];
    if (weft_dnnl__is_costly(&m->epilogue, n))
        weft_dnnl__unfuse(&m->epilogue);
    bool found = find(p, m);
    if ((!found || weft_dnnl__is_slow(m->pd)) && m->epilogue.n_step > 0 && m->epilogue.fused) {
        weft_dnnl__unfuse(&m->epilogue);
        found = find(p, m);
    }
    return found ? prepare(p, m) : WEFT_ERR_OK;
}

static weft_err prepare_gemm(weft_prep *p, gemm *m)
{
    m->scope = weft_dnnl__scope(p->engine);
    weft_err err = choose_and_prepare(p, m);
    weft_dnnl__scope_finish(&m->scope);
    return err;
}

static weft_err prepare_matmul(weft_prep *p, bool onto)
{
    gemm m = {.epilogue.onto = onto,
              .trans_a = weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_A, 0) != 0,
              .trans_b = weft_attrs_int(p->attrs, WEFT_ATTR_TRANS_B, 0) != 0,
              .alpha = (float)weft_attrs_float(p->attrs, WEFT_ATTR_ALPHA, 1),
              .beta = 1.0f};
    return prepare_gemm(p, &m);
}

weft_err weft_cpu__prepare_dnnl_matmul(weft_prep *p)
{
    return prepare_matmul(p, false);
}

weft_err weft_cpu__prepare_dnnl_onto(weft_prep *p)
{
    return prepare_matmul(p, true);
}

weft_err weft_cpu__prepare_dnnl_gemm(weft_prep *p)
{
    gemm m = {.trans_a = weft_attrs_int(p->attrs, WEFT_ATTR_TRANSA, 0) != 0,
              .trans_b = weft_attrs_int(p->attrs, WEFT_ATTR_TRANSB, 0) != 0,
              .alpha = (float)weft_attrs_float(p->attrs, WEFT_ATTR_ALPHA, 1),
              .beta = (float)weft_attrs_float(p->attrs, WEFT_ATTR_BETA, 1)};
    return prepare_gemm(p, &m);
}
