/* Sizes of the loop nest of an operator (ops/work.h), by its form. Forms are a column of the table;
 * where a row has none, its traits tell. Wrong or missing dimensions give sizes of 0 or 1, never a
 * fault: types have been checked by inference. */
#include "ops/window_int.h"

#include <math.h>
#include <string.h>

static double dim_at(const weft_work_operand *t, uint32_t i)
{
    return i < t->rank ? (double)t->dim[i] : 1;
}

static double product(const weft_work_operand *t, uint32_t from, uint32_t to)
{
    double p = 1;
    for (uint32_t i = from; i < to && i < t->rank; i++)
        p *= (double)t->dim[i];
    return p;
}

static double at_least_1(double x)
{
    return x >= 1 ? x : 1;
}

/* -- GEMMs ------------------------------------------------------------------------------------ */

/* The second factor: the first later operand of rank > 1 whose elements have the size of operand
 * 0's (this skips scales, which are floats, and zero points, which are vectors); else operand 1. */
static const weft_work_operand *find_factor(const weft_work_ctx *cx)
{
    size_t size = weft_dtype_size((weft_dtype)cx->in[0].dtype);
    for (uint32_t i = 1; i < cx->n_in; i++)
        if (cx->in[i].present && cx->in[i].rank > 1 &&
            weft_dtype_size((weft_dtype)cx->in[i].dtype) == size)
            return &cx->in[i];
    return &cx->in[cx->n_in > 1 ? 1 : 0];
}

static void find_gemm(const weft_work_ctx *cx, weft_nest *out)
{
    const weft_work_operand *a = &cx->in[0], *b = find_factor(cx), *y = &cx->out[0];
    if (cx->op->id == WEFT_OP_EINSUM) {
        weft_einsum__nest(cx, out);
        return;
    }
    bool trans = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_A, 0) != 0 ||
                 weft_attrs_int(cx->attrs, WEFT_ATTR_TRANSA, 0) != 0;
    double numel = weft_work__numel(y);
    out->k = a->rank < 1 ? 1 : dim_at(a, a->rank - (trans && a->rank > 1 ? 2u : 1u));
    out->n = b->rank > 1 && y->rank > 0 ? dim_at(y, y->rank - 1u) : 1;
    /* If all matrices of a batch share b, the batch is one GEMM with more rows. */
    out->batch = 1;
    if (b->rank > 2 && product(b, 0, b->rank - 2u) > 1 && y->rank > 2)
        out->batch = product(y, 0, y->rank - 2u);
    out->m = numel / at_least_1(out->n * out->batch);
    if (cx->op->id == WEFT_OP_LOW_RANK_MATMUL)
        out->delta = weft_low_rank__delta(cx);
    if (cx->op->id == WEFT_OP_ROUTED_MATMUL)
        out->delta = weft_routed__delta(cx);
    if (cx->op->id == WEFT_OP_PATCHED_MATMUL)
        out->delta = weft_patched__delta(cx);
}

/* -- Convolutions ----------------------------------------------------------------------------- */

static void fold_spatial(const double *of, uint32_t n, double *out_h, double *out_w)
{
    *out_w = n > 0 ? of[n - 1] : 1;
    *out_h = 1;
    for (uint32_t i = 0; i + 1 < n; i++)
        *out_h *= of[i];
}

static void read_conv(const weft_work_ctx *cx, const weft_work_operand *w, weft_conv_shape *c)
{
    const weft_work_operand *x = &cx->in[0], *y = &cx->out[0];
    uint32_t n = x->rank > 2 ? x->rank - 2u : 0;
    double in[WEFT_RANK_MAX] = {0}, out[WEFT_RANK_MAX] = {0}, kernel[WEFT_RANK_MAX] = {0};
    double stride[WEFT_RANK_MAX] = {0}, pad[WEFT_RANK_MAX] = {0};
    int64_t taps[WEFT_RANK_MAX];
    weft_window win;
    uint32_t first = weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_W, 0) != 0 ? 1 : 2;
    for (uint32_t i = 0; i < n; i++)
        taps[i] = i + 2 < w->rank ? w->dim[i + first] : 1;
    bool known = weft_window__read(cx->attrs, n, taps, &win) == NULL;
    for (uint32_t i = 0; i < n; i++) {
        in[i] = dim_at(x, i + 2);
        out[i] = dim_at(y, i + 2);
        kernel[i] = (double)taps[i];
        stride[i] = known ? (double)win.stride[i] : 1;
        if (known)
            pad[i] = (double)weft_window__pad_lo(&win, i, x->dim[i + 2],
                                                 i + 2 < y->rank ? y->dim[i + 2] : 1);
    }
    int64_t groups = weft_attrs_int(cx->attrs, WEFT_ATTR_GROUP, 1);
    *c = (weft_conv_shape){.images = dim_at(x, 0),
                           .in_channels = dim_at(x, 1),
                           .out_channels = dim_at(y, 1),
                           .groups = groups > 0 ? (double)groups : 1};
    fold_spatial(in, n, &c->in_h, &c->in_w);
    fold_spatial(out, n, &c->out_h, &c->out_w);
    fold_spatial(kernel, n, &c->kernel_h, &c->kernel_w);
    fold_spatial(stride, n, &c->stride_h, &c->stride_w);
    fold_spatial(pad, n, &c->pad_h, &c->pad_w);
}

static void find_conv(const weft_work_ctx *cx, weft_nest *out)
{
    const weft_work_operand *w = &cx->in[cx->n_in > 1 ? 1 : 0];
    for (uint32_t i = 1; i < cx->n_in && w->rank != cx->in[0].rank; i++)
        w = &cx->in[i];
    weft_conv_shape *c = &out->conv;
    read_conv(cx, w, c);
    out->batch = c->groups;
    out->n = at_least_1(c->out_channels / c->groups);
    out->k = at_least_1(product(w, 1, w->rank));
    out->m = c->images * c->out_h * c->out_w;
    if (cx->op->id == WEFT_OP_CONV_TRANSPOSE) {
        /* Transposed: each input element is multiplied with every tap of its channel's filters. */
        out->k = at_least_1(c->in_channels / c->groups);
        out->n = at_least_1(product(w, 1, w->rank));
        out->m = c->images * c->in_h * c->in_w;
    }
    /* Sizes as a loop over elements, for depthwise convolutions. */
    out->cols = c->out_h * c->out_w;
    out->rows = c->images * c->out_channels;
}

/* -- Attention and recurrent layers ----------------------------------------------------------- */

static void find_attention(const weft_work_ctx *cx, weft_nest *out)
{
    double heads = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_HEADS, 1);
    out->batch = dim_at(&cx->in[0], 0) * at_least_1(heads);
    out->m = dim_at(&cx->in[0], 1);
    out->n = cx->n_in > 1 ? dim_at(&cx->in[1], 1) : 1;
    out->k = at_least_1((double)weft_attrs_int(cx->attrs, WEFT_ATTR_HEAD_DIM, 1));
    if (cx->n_in > 4 && cx->in[4].present) /* packed sequences of equal lengths */
        out->n = at_least_1(floor(out->n / at_least_1(dim_at(&cx->in[4], 0))));
}

/* x [steps, images, input] or, with layout 1, [images, steps, input]; r [directions, n, hidden] */
static void find_recurrent(const weft_work_ctx *cx, weft_nest *out)
{
    const weft_work_operand *x = &cx->in[0], *r = &cx->in[cx->n_in > 2 ? 2 : 0];
    bool batch_first = weft_attrs_int(cx->attrs, WEFT_ATTR_LAYOUT, 0) != 0;
    out->batch = dim_at(r, 0);
    out->rows = dim_at(x, batch_first);
    out->m = dim_at(x, !batch_first);
    out->n = dim_at(r, 1);
    out->k = dim_at(r, 2);
    out->cols = dim_at(x, 2);
}

/* -- Rows ------------------------------------------------------------------------------------- */

static void find_elements(const weft_work_ctx *cx, weft_nest *out)
{
    const weft_work_operand *y = &cx->out[0];
    double numel = weft_work__numel(y);
    out->cols = y->rank > 0 ? (double)y->dim[y->rank - 1] : 1;
    out->rows = numel / at_least_1(out->cols);
}

static void find_reduced(const weft_work_ctx *cx, weft_nest *out)
{
    double in = weft_work__numel(&cx->in[0]), left = weft_work__numel(&cx->out[0]);
    out->rows = left;
    out->cols = in / at_least_1(left);
}

/* Elements of x that are normalised together. */
static double row_elements(const weft_work_ctx *cx, const weft_work_operand *x)
{
    uint32_t n = 0, axis = x->rank - 1u;
    const int64_t *axes = weft_attrs_ints(cx->attrs, WEFT_ATTR_AXES, &n);
    double groups = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_GROUPS, 1), len = 1;
    if (!weft_axis__fix(weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis))
        axis = x->rank - 1u;
    switch ((weft_row)cx->op->row) {
    case WEFT_ROW_AXIS:
        return dim_at(x, axis);
    case WEFT_ROW_FROM_AXIS:
        return product(x, axis, x->rank);
    case WEFT_ROW_AXES:
        for (uint32_t i = 0; axes != NULL && i < n; i++)
            if (weft_axis__fix(axes[i], x->rank, &axis))
                len *= dim_at(x, axis);
        return axes != NULL ? len : weft_work__numel(x) / at_least_1(dim_at(x, 1));
    case WEFT_ROW_CHANNEL:
        return weft_work__numel(x) / at_least_1(dim_at(x, 1));
    case WEFT_ROW_IMAGE:
        return product(x, 2, x->rank);
    case WEFT_ROW_GROUP:
        return product(x, 1, x->rank) / at_least_1(groups);
    default:
        return dim_at(x, x->rank - 1u);
    }
}

static void find_rows(const weft_work_ctx *cx, weft_nest *out)
{
    const weft_work_operand *x = &cx->in[0];
    double numel = weft_work__numel(x);
    out->cols = x->rank > 0 ? row_elements(cx, x) : 1;
    out->rows = numel / at_least_1(out->cols);
    if (cx->op->row == WEFT_ROW_CHANNEL)
        out->batch = dim_at(x, 0);
}

/* -- The table -------------------------------------------------------------------------------- */

static void (*const find_fn[WEFT_FORM_COUNT])(const weft_work_ctx *cx, weft_nest *out) = {
    [WEFT_FORM_OTHER] = find_elements,      [WEFT_FORM_EW] = find_elements,
    [WEFT_FORM_MOVE] = find_elements,       [WEFT_FORM_REDUCE] = find_reduced,
    [WEFT_FORM_NORM] = find_rows,           [WEFT_FORM_SOFTMAX] = find_rows,
    [WEFT_FORM_POOL] = find_elements,       [WEFT_FORM_GEMM] = find_gemm,
    [WEFT_FORM_CONV] = find_conv,           [WEFT_FORM_ATTENTION] = find_attention,
    [WEFT_FORM_RECURRENT] = find_recurrent,
};

weft_form weft_op_form(const weft_op *op)
{
    static const struct {
        uint32_t trait;
        weft_form form;
    } by_trait[] = {
        {WEFT_T_GEMM, WEFT_FORM_GEMM},
        {WEFT_T_EW, WEFT_FORM_EW},
        {WEFT_T_REDUCE, WEFT_FORM_REDUCE},
        {WEFT_T_MOVE, WEFT_FORM_MOVE},
    };
    if (op->form != WEFT_FORM_OTHER)
        return (weft_form)op->form;
    for (size_t i = 0; i < sizeof by_trait / sizeof by_trait[0]; i++)
        if (op->traits & by_trait[i].trait)
            return by_trait[i].form;
    return WEFT_FORM_OTHER;
}

weft_nest weft_op_nest(const weft_work_ctx *cx)
{
    weft_nest p = {.form = weft_op_form(cx->op)};
    if (cx->n_out > 0 && cx->out[0].present && (cx->n_in > 0 || p.form < WEFT_FORM_REDUCE))
        find_fn[p.form](cx, &p);
    return p;
}
