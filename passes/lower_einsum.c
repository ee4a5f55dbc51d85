/* lower-einsum: an einsum becomes sums, transposes and matrix products of two operands at a time,
 * from left to right, so that it is fused, merged, batched and computed as those are.
 *
 * Labels of two operands are batch dims (in both and needed later), rows (of the first one),
 * columns (of the second one), or the inner dim (in both and not needed later); a label of one
 * operand that is not needed later is summed first. Without an inner dim the operands are
 * multiplied element by element.
 *
 * An einsum stays as it is (loops over all labels) with a label twice in one operand, with sizes of
 * a label that are not known to be equal or that depend on data, and if its elements are not
 * floats. */
#include "ops/einsum.h"
#include "passes/passes_int.h"

#include <string.h>

typedef struct operand {
    weft_val v;
    weft_einsum_term t;
} operand;

typedef struct rewriter {
    weft_passctx *cx;
    weft_graph *g;
    weft_module *m;
    weft_node n;
    weft_einsum eq;
    weft_dim dim[WEFT_EINSUM_LABELS];
} rewriter;

/* Labels in the order in which they are pushed. */
static void push(weft_einsum_term *t, uint32_t label)
{
    t->label[t->rank++] = (uint8_t)label;
}

static void append(weft_einsum_term *t, const weft_einsum_term *more)
{
    for (uint32_t i = 0; i < more->rank; i++)
        push(t, more->label[i]);
}

/* Whether the result or an operand from `from` on has the label. */
static bool is_needed(const rewriter *r, uint32_t label, uint32_t from)
{
    bool needed = weft_einsum_has(&r->eq.out, label);
    for (uint32_t i = from; i < r->eq.n_in; i++)
        needed = needed || weft_einsum_has(&r->eq.in[i], label);
    return needed;
}

/* -- Nodes ---------------------------------------------------------------------------------- */

static weft_err emit(const rewriter *r, weft_op_id op, const weft_val *in, uint32_t n_in,
                     const weft_attr *attr, uint32_t n_attr, weft_val *out)
{
    return weft_rewrite__emit(r->cx, r->g, r->n, op, in, n_in, attr, n_attr,
                              weft_node_loc(r->m, r->n), out);
}

/* Brings the dims into the order of `to`, which has the same labels. */
static weft_err transpose(const rewriter *r, operand *x, const weft_einsum_term *to)
{
    int64_t perm[WEFT_RANK_MAX];
    bool same = true;
    for (uint32_t i = 0; i < to->rank; i++)
        for (uint32_t k = 0; k < to->rank; k++)
            if (x->t.label[k] == to->label[i]) {
                perm[i] = k;
                same = same && i == k;
            }
    x->t = *to;
    weft_attr attr = WEFT_ATTR_OF_INTS(PERM, perm, to->rank);
    return same ? WEFT_ERR_OK : emit(r, WEFT_OP_TRANSPOSE, &x->v, 1, &attr, 1, &x->v);
}

static weft_err reshape(const rewriter *r, weft_val *v, const weft_dim *dim, uint32_t rank)
{
    const weft_ttype *type = weft_val_ttype(r->m, *v);
    if (type->rank == rank && memcmp(type->dim, dim, rank * sizeof *dim) == 0)
        return WEFT_ERR_OK;
    weft_attr attr[2] = {WEFT_ATTR_OF_DIMS(SHAPE, dim, rank), WEFT_ATTR_OF_INT(ALLOWZERO, 1)};
    return emit(r, WEFT_OP_RESHAPE, v, 1, attr, 2, v);
}

/* Sums over the labels that neither `other` nor what follows has. */
static weft_err sum_rest(const rewriter *r, operand *x, const weft_einsum_term *other,
                         uint32_t from)
{
    int64_t axis[WEFT_RANK_MAX];
    uint32_t n = 0;
    weft_einsum_term left = {.rank = 0};
    for (uint32_t i = 0; i < x->t.rank; i++) {
        uint32_t label = x->t.label[i];
        if (weft_einsum_has(other, label) || is_needed(r, label, from))
            push(&left, label);
        else
            axis[n++] = i;
    }
    x->t = left;
    if (n == 0)
        return WEFT_ERR_OK;
    weft_attr attr[2] = {WEFT_ATTR_OF_INTS(AXES, axis, n), WEFT_ATTR_OF_INT(KEEPDIMS, 0)};
    return emit(r, WEFT_OP_REDUCE_SUM, &x->v, 1, attr, 2, &x->v);
}

/* -- Two operands --------------------------------------------------------------------------- */

/* The labels of two operands by what they are in the product. */
typedef struct parts {
    weft_einsum_term batch, rows, cols, inner;
} parts;

/* Pushes label if one or both operands have it. */
static void sort_label(const rewriter *r, parts *p, const operand *a, const operand *b,
                       uint32_t label, uint32_t from)
{
    bool in_a = weft_einsum_has(&a->t, label), in_b = weft_einsum_has(&b->t, label);
    if (in_a && in_b)
        push(is_needed(r, label, from) ? &p->batch : &p->inner, label);
    else if (in_a || in_b)
        push(in_a ? &p->rows : &p->cols, label);
}

/* Labels of the result come in its order, then the others. */
static parts sort_labels(const rewriter *r, const operand *a, const operand *b, uint32_t from)
{
    parts p = {.batch = {.rank = 0}};
    for (uint32_t i = 0; i < r->eq.out.rank; i++)
        sort_label(r, &p, a, b, r->eq.out.label[i], from);
    for (uint32_t i = 0; i < a->t.rank; i++)
        if (!weft_einsum_has(&r->eq.out, a->t.label[i]))
            sort_label(r, &p, a, b, a->t.label[i], from);
    for (uint32_t i = 0; i < b->t.rank; i++)
        if (!weft_einsum_has(&r->eq.out, b->t.label[i]) && !weft_einsum_has(&a->t, b->t.label[i]))
            sort_label(r, &p, a, b, b->t.label[i], from);
    return p;
}

/* Appends the sizes of the labels. */
static uint32_t add_dims(const rewriter *r, weft_dim *dim, uint32_t rank, const weft_einsum_term *t)
{
    for (uint32_t i = 0; i < t->rank; i++)
        dim[rank++] = r->dim[t->label[i]];
    return rank;
}

static weft_dim product(const rewriter *r, const weft_einsum_term *t)
{
    weft_dim d = 1;
    for (uint32_t i = 0; i < t->rank; i++)
        d = weft_dim_mul(weft_module_dims(r->m), d, r->dim[t->label[i]]);
    return d;
}

static uint32_t add_ones(weft_dim *dim, uint32_t rank, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        dim[rank++] = 1;
    return rank;
}

/* a [batch, rows, 1 ..] * b [batch, 1 .., cols] */
static weft_err multiply(const rewriter *r, operand *a, const operand *b, const parts *p)
{
    weft_dim dim[WEFT_RANK_MAX];
    weft_val in[2] = {a->v, b->v};
    uint32_t rank = add_dims(r, dim, add_dims(r, dim, 0, &p->batch), &p->rows);
    WEFT_TRY(reshape(r, &in[0], dim, add_ones(dim, rank, p->cols.rank)));
    rank = add_ones(dim, add_dims(r, dim, 0, &p->batch), p->rows.rank);
    WEFT_TRY(reshape(r, &in[1], dim, add_dims(r, dim, rank, &p->cols)));
    return emit(r, WEFT_OP_MUL, in, 2, NULL, 0, &a->v);
}

/* [batch, rows, inner] [batch, inner, columns]; without batch dims, rows need not become one dim.
 */
static weft_err multiply_matrices(const rewriter *r, operand *a, const operand *b, const parts *p)
{
    weft_dim dim[WEFT_RANK_MAX];
    weft_val in[2] = {a->v, b->v};
    bool flat = p->batch.rank > 0 || p->rows.rank == 0;
    uint32_t rank = add_dims(r, dim, 0, &p->batch);
    if (flat)
        dim[rank++] = product(r, &p->rows);
    else
        rank = add_dims(r, dim, rank, &p->rows);
    dim[rank++] = product(r, &p->inner);
    WEFT_TRY(reshape(r, &in[0], dim, rank));
    rank = add_dims(r, dim, 0, &p->batch);
    dim[rank++] = product(r, &p->inner);
    dim[rank++] = product(r, &p->cols);
    WEFT_TRY(reshape(r, &in[1], dim, rank));
    WEFT_TRY(emit(r, WEFT_OP_MATMUL, in, 2, NULL, 0, &a->v));
    rank = add_dims(r, dim, add_dims(r, dim, 0, &p->batch), &p->rows);
    return reshape(r, &a->v, dim, add_dims(r, dim, rank, &p->cols));
}

/* a = a * b with all labels that are needed from operand `from` on. *done: false if a result has
 * too many dims or a size overflows, and before a further operand if there is no common label: all
 * products of two elements would have to be kept. */
static weft_err contract(const rewriter *r, operand *a, operand *b, uint32_t from, bool *done)
{
    WEFT_TRY(sum_rest(r, a, &b->t, from));
    WEFT_TRY(sum_rest(r, b, &a->t, from));
    /* The operand whose label comes first in the result has the rows. */
    for (uint32_t i = 0; i < r->eq.out.rank; i++) {
        bool in_a = weft_einsum_has(&a->t, r->eq.out.label[i]),
             in_b = weft_einsum_has(&b->t, r->eq.out.label[i]);
        if (in_a == in_b)
            continue;
        if (in_b) {
            operand other = *a;
            *a = *b;
            *b = other;
        }
        break;
    }
    parts p = sort_labels(r, a, b, from);
    weft_dimpool *pool = weft_module_dims(r->m);
    bool is_outer = p.batch.rank + p.inner.rank == 0 && p.rows.rank > 0 && p.cols.rank > 0;
    *done = !(is_outer && from < r->eq.n_in) &&
            p.batch.rank + p.rows.rank + p.cols.rank <= WEFT_RANK_MAX &&
            p.batch.rank + 2 <= WEFT_RANK_MAX && p.rows.rank + 1 <= WEFT_RANK_MAX &&
            !weft_dim_is_data(pool, product(r, &p.rows)) &&
            !weft_dim_is_data(pool, product(r, &p.cols)) &&
            !weft_dim_is_data(pool, product(r, &p.inner));
    if (!*done)
        return WEFT_ERR_OK;
    weft_einsum_term first = p.batch, second = p.batch, whole = p.batch;
    append(&first, &p.rows);
    append(&first, &p.inner);
    append(&second, &p.inner);
    append(&second, &p.cols);
    append(&whole, &p.rows);
    append(&whole, &p.cols);
    WEFT_TRY(transpose(r, a, &first));
    WEFT_TRY(transpose(r, b, &second));
    a->t = whole;
    return p.inner.rank ? multiply_matrices(r, a, b, &p) : multiply(r, a, b, &p);
}

/* -- One einsum ----------------------------------------------------------------------------- */

/* Reads the equation and the sizes of its labels; false: the einsum stays. */
static bool read_labels(rewriter *r)
{
    uint8_t rank[WEFT_EINSUM_TERMS_MAX];
    uint32_t n_in = weft_node_in_count(r->m, r->n);
    const char *text = weft_attrs_str(weft_node_attrs(r->m, r->n), WEFT_ATTR_EQUATION, "");
    weft_dtype dtype = (weft_dtype)weft_val_ttype(r->m, weft_node_in(r->m, r->n, 0))->dtype;
    if (n_in > WEFT_EINSUM_TERMS_MAX || !weft_dtype_is_float(dtype) || weft_dtype_size(dtype) < 2)
        return false;
    for (uint32_t i = 0; i < n_in; i++)
        rank[i] = weft_val_ttype(r->m, weft_node_in(r->m, r->n, i))->rank;
    if (!weft_einsum_read(text, rank, n_in, &r->eq))
        return false;
    bool known[WEFT_EINSUM_LABELS] = {false};
    for (uint32_t i = 0; i < n_in; i++) {
        const weft_ttype *type = weft_val_ttype(r->m, weft_node_in(r->m, r->n, i));
        const weft_einsum_term *t = &r->eq.in[i];
        for (uint32_t k = 0; k < t->rank; k++) {
            weft_dim *d = &r->dim[t->label[k]];
            for (uint32_t j = 0; j < k; j++)
                if (t->label[j] == t->label[k])
                    return false;
            if ((known[t->label[k]] && *d != type->dim[k]) ||
                weft_dim_is_data(weft_module_dims(r->m), type->dim[k]))
                return false;
            *d = type->dim[k];
            known[t->label[k]] = true;
        }
    }
    return true;
}

/* *out: the result; none: the einsum stays. */
static weft_err lower(rewriter *r, weft_val *out)
{
    static const weft_einsum_term none = {.rank = 0};
    *out = (weft_val){0};
    operand x = {weft_node_in(r->m, r->n, 0), r->eq.in[0]};
    bool done = true;
    for (uint32_t i = 1; done && i < r->eq.n_in; i++) {
        operand next = {weft_node_in(r->m, r->n, i), r->eq.in[i]};
        WEFT_TRY(contract(r, &x, &next, i + 1, &done));
    }
    if (!done)
        return WEFT_ERR_OK;
    WEFT_TRY(sum_rest(r, &x, &none, r->eq.n_in));
    WEFT_TRY(transpose(r, &x, &r->eq.out));
    weft_val old = weft_node_out(r->m, r->n, 0);
    if (weft_val_type(r->m, x.v).i == weft_val_type(r->m, old).i)
        *out = x.v;
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        weft_node next;
        for (weft_node n = weft_graph_first(g); n.i; n = next) {
            rewriter r = {.cx = cx, .g = g, .m = m, .n = n};
            weft_val with;
            next = weft_node_next(m, n);
            if (weft_node_op(m, n) != WEFT_OP_EINSUM || !read_labels(&r) ||
                !weft_rewrite__allow(cx))
                continue;
            WEFT_TRY(lower(&r, &with));
            *changed = true;
            if (!with.i)
                continue;
            weft_rewrite__replace_result(g, n, 0, with);
            weft_rewrite__remove_dead(g, n);
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_lower_einsum = {
    .name = "lower-einsum",
    .brief = "an einsum becomes products of matrices",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES,
    .run = run,
};
