/* Which corresponding nodes may become one joint node, whether or not that pays.
 *
 * Rows: a node whose result rows depend only on the same rows of its operands can take the rows of
 * several models at once: a GEMM by a weight, normalisation and softmax over the last dim, and
 * element-wise chains.
 * Images: any other node that is computed image by image (that is what makes a model batchable) can
 * take the images of several models if their other dims are equal constants. */
#include "passes/merge/merge.h"

#include <string.h>

bool weft_merge__is_alone(const weft_pass_options *options, const weft_graph *g)
{
    for (size_t i = 0; i < options->n_alone; i++)
        if (strcmp(options->alone[i], weft_graph_name(g)) == 0)
            return true;
    return !weft_graph_is_model(g);
}

weft_dim weft_merge__batch(const weft_graph *g)
{
    uint32_t which = weft_graph_batch_symbol(g);
    return which == UINT32_MAX ? 0 : weft_graph_symbol_dim(g, which);
}

bool weft_merge__is_weight(const weft_module *m, weft_val v)
{
    return v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT;
}

bool weft_merge__is_gemm(const weft_module *m, weft_node n)
{
    return weft_node_opdef(m, n)->traits & WEFT_T_GEMM && weft_node_in_count(m, n) >= 2 &&
           !weft_merge__is_weight(m, weft_node_in(m, n, 0)) &&
           weft_merge__is_weight(m, weft_node_in(m, n, 1));
}

/* -- Level ------------------------------------------------------------------------------------ */

static uint32_t results_wanted(const weft_module *m, weft_node n)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++)
        wanted += weft_val_ttype(m, weft_node_out(m, n, i))->dtype != WEFT_DTYPE_NONE;
    return wanted;
}

/* A weight that is broadcast along rows: one element, or one row. */
static bool is_row_weight(const weft_module *m, weft_val v, weft_dim cols)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    for (uint32_t k = 0; k + 1 < t->rank; k++)
        if (t->dim[k] != 1)
            return false;
    return t->rank <= 2 &&
           (t->rank == 0 || t->dim[t->rank - 1] == 1 || t->dim[t->rank - 1] == cols);
}

/* The last dim is a constant other than 0, so that all other dims can be flattened to rows. */
static bool has_rows(const weft_module *m, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    return t->rank >= 2 && t->layout == WEFT_LAYOUT_PLAIN &&
           weft_dim_is_const(t->dim[t->rank - 1]) && t->dim[t->rank - 1] != 0;
}

/* Each operand from `first` on has the shape of the result or is a weight that is the same for all
 * rows. */
static bool row_operands(const weft_module *m, weft_node n, uint32_t first)
{
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    for (uint32_t i = first; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i)
            continue;
        const weft_ttype *t = weft_val_ttype(m, v);
        if (weft_merge__is_weight(m, v)
                ? !is_row_weight(m, v, y->dim[y->rank - 1])
                : t->rank != y->rank || memcmp(t->dim, y->dim, sizeof y->dim) != 0)
            return false;
    }
    return true;
}

static bool normalises_rows(const weft_module *m, weft_node n)
{
    int64_t rank = weft_val_ttype(m, weft_node_in(m, n, 0))->rank;
    int64_t axis = weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_AXIS, -1);
    return axis == -1 || axis == rank - 1;
}

static bool is_row_wise(const weft_module *m, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    if (results_wanted(m, n) != 1 || weft_node_out_count(m, n) < 1)
        return false;
    weft_val x = weft_node_in(m, n, 0), y = weft_node_out(m, n, 0), w = weft_node_in(m, n, 1);
    switch (weft_node_opdef(m, n)->join) {
    case WEFT_JOIN_GEMM:
        return has_rows(m, x) && has_rows(m, y) && weft_merge__is_weight(m, w) &&
               weft_val_ttype(m, w)->rank == 2 && !weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) &&
               row_operands(m, n, 2);
    case WEFT_JOIN_EW:
        return has_rows(m, y) && !weft_merge__is_weight(m, x) && row_operands(m, n, 0);
    case WEFT_JOIN_NORM:
        return has_rows(m, x) && normalises_rows(m, n) && row_operands(m, n, 1);
    case WEFT_JOIN_NONE:
        break;
    }
    return false;
}

/* A value of shape [batch, constants...]. */
static bool has_images(const weft_module *m, weft_val v, weft_dim batch)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    if (t->rank < 1 || t->dim[0] != batch)
        return false;
    for (uint32_t k = 1; k < t->rank; k++)
        if (!weft_dim_is_const(t->dim[k]))
            return false;
    return true;
}

static bool is_image_wise(const weft_graph *g, weft_node n, weft_dim batch)
{
    const weft_module *m = weft_graph_module(g);
    const weft_op *op = weft_node_opdef(m, n);
    weft_attrs attrs = weft_node_attrs(m, n);
    uint32_t activations = 0;
    if (op->traits & (WEFT_T_RANDOM | WEFT_T_DATA | WEFT_T_PER_RUN))
        return false;
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (!weft_dim_is_const(attrs.at[i].u.dims[k]) &&
                !(weft_node_op(m, n) == WEFT_OP_VIEW && k == 0 && attrs.at[i].u.dims[k] == batch))
                return false;
    for (uint32_t i = 0; i < weft_node_in_count(m, n); i++) {
        weft_val v = weft_node_in(m, n, i);
        if (!v.i || weft_merge__is_weight(m, v))
            continue;
        activations++;
        if (!has_images(m, v, batch))
            return false;
    }
    for (uint32_t i = 0; i < weft_node_out_count(m, n); i++) {
        weft_val v = weft_node_out(m, n, i);
        if (weft_val_ttype(m, v)->dtype != WEFT_DTYPE_NONE && !has_images(m, v, batch))
            return false;
    }
    return activations > 0;
}

/* Whether the operands of the two nodes can be concatenated along images. Equal shapes of the
 * results do not imply that: a convolution of stride 2 makes 4 x 4 of 7 x 7 and of 8 x 8. The
 * channels of operand 0 of a GEMM are not compared; its weight determines them. */
static bool have_like_images(const weft_module *m, weft_node a, weft_node b)
{
    for (uint32_t i = 0; i < weft_node_in_count(m, a); i++) {
        weft_val v = weft_node_in(m, a, i), w = weft_node_in(m, b, i);
        if (!v.i || !w.i || weft_merge__is_weight(m, v) || weft_merge__is_weight(m, w))
            continue;
        const weft_ttype *s = weft_val_ttype(m, v), *t = weft_val_ttype(m, w);
        bool like = s->rank == t->rank;
        for (uint32_t k = i == 0 && weft_merge__is_gemm(m, a) ? 2 : 1; like && k < s->rank; k++)
            like = s->dim[k] == t->dim[k];
        if (!like)
            return false;
    }
    return true;
}

weft_joint_level weft_merge__level(const weft_columns *c, const weft_column *column)
{
    bool rows = true, images = true;
    weft_node first = {0};
    for (uint32_t i = 0; i < c->n_model; i++) {
        weft_dim batch = weft_merge__batch(c->model[i]);
        if (!column->node[i].i)
            continue;
        rows = rows && is_row_wise(weft_graph_module(c->model[i]), column->node[i]);
        images = images && batch != 0 && is_image_wise(c->model[i], column->node[i], batch);
        first = first.i ? first : column->node[i];
        images = images && have_like_images(weft_graph_module(c->model[i]), first, column->node[i]);
    }
    return rows ? WEFT_JOINT_ROWS : images ? WEFT_JOINT_IMAGES : WEFT_JOINT_NONE;
}
