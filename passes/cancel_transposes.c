/* cancel-transposes: a transpose and its inverse go, with all that is computed row by row between
 * them.
 *
 *     transpose (softmax (matmul (transpose x {p}) w)) {inverse of p}
 *   ==>
 *     softmax (matmul x w)
 *
 * Rows are the last dim, which both transposes keep; the order of the other dims does not matter to
 * GEMMs by a weight, normalisation over rows and element-wise operators with weights. Exporters
 * write this around nn.MultiheadAttention, whose sequences come before the batch. Only chains whose
 * values have no other use are changed, in place. O(nodes * CHAIN_MAX). */
#include "passes/match.h"

#include <string.h>

enum { CHAIN_MAX = 16 }; /* nodes */

/* A weight that is the same for all rows: one element, or one row. */
static bool is_row_weight(const weft_module *m, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    if (weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    for (uint32_t k = 0; k + 1 < t->rank; k++)
        if (t->dim[k] != 1)
            return false;
    return true;
}

/* Whether node n computes the rows of operand `i` one by one, all other operands being weights. */
static bool is_row_wise(const weft_module *m, weft_node n, uint32_t i)
{
    const weft_op *op = weft_node_opdef(m, n);
    weft_attrs attrs = weft_node_attrs(m, n);
    const weft_ttype *x = weft_val_ttype(m, weft_node_in(m, n, i));
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, n, 0));
    bool is_gemm = op->join == WEFT_JOIN_GEMM && op->id == WEFT_OP_MATMUL;
    int64_t axis = weft_attrs_int(attrs, WEFT_ATTR_AXIS, -1);
    if (weft_node_out_count(m, n) != 1 || y->rank != x->rank)
        return false;
    for (uint32_t k = 0; k < weft_node_in_count(m, n); k++) {
        weft_val w = weft_node_in(m, n, k);
        bool is_weight = w.i && weft_val_get_kind(m, w) == WEFT_VAL_WEIGHT;
        if (w.i && k != i &&
            !(is_gemm && k == 1 ? is_weight && weft_val_ttype(m, w)->rank == 2
                                : is_weight && is_row_weight(m, w)))
            return false;
    }
    if (is_gemm)
        return i == 0 && !weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0);
    if (op->join == WEFT_JOIN_NORM)
        return i == 0 && (axis == -1 || axis == (int64_t)x->rank - 1);
    return (op->traits & WEFT_T_EW) != 0;
}

/* perm of a transpose that keeps the last of its dims, all given; NULL: it does not. */
static const int64_t *get_perm(const weft_module *m, weft_node n, uint32_t *out_rank)
{
    const int64_t *perm = weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_PERM, out_rank);
    uint32_t rank = *out_rank;
    if (weft_attrs_find(weft_node_attrs(m, n), WEFT_ATTR_LAYOUT) || !perm || rank < 3 ||
        perm[rank - 1] != (int64_t)rank - 1)
        return NULL;
    for (uint32_t i = 0; i < rank; i++)
        if (perm[i] < 0)
            return NULL;
    return perm;
}

static bool are_inverse(const weft_module *m, weft_node a, weft_node b)
{
    uint32_t rank_a = 0, rank_b = 0;
    const int64_t *p = get_perm(m, a, &rank_a), *q = get_perm(m, b, &rank_b);
    if (!p || !q || rank_a != rank_b)
        return false;
    for (uint32_t i = 0; i < rank_a; i++)
        if (p[q[i]] != (int64_t)i)
            return false;
    return true;
}

typedef struct chain {
    weft_node node[CHAIN_MAX]; /* from the last */
    uint32_t operand[CHAIN_MAX];
    uint32_t n;
    weft_node first; /* the transpose before them */
} chain;

/* Finds the chain that ends at transpose `last`. */
static bool find_chain(const weft_graph *g, weft_node last, chain *c)
{
    const weft_module *m = weft_graph_module(g);
    weft_val v = weft_node_in(m, last, 0);
    for (c->n = 0;; c->n++) {
        weft_node n = weft_val_node(m, v);
        if (!n.i)
            return false;
        if (weft_node_op(m, n) == WEFT_OP_TRANSPOSE && are_inverse(m, n, last)) {
            c->first = n;
            return true;
        }
        uint32_t i = 0, n_in = weft_node_in_count(m, n);
        if (c->n == CHAIN_MAX || !weft_rewrite__sole_user(g, v).i)
            return false;
        while (i < n_in && !(weft_node_in(m, n, i).i && is_row_wise(m, n, i)))
            i++;
        if (i == n_in)
            return false;
        c->node[c->n] = n;
        c->operand[c->n] = i;
        v = weft_node_in(m, n, i);
    }
}

/* Gives `v` the type that the transpose would give it. */
static void permute_type(weft_module *m, weft_val v, const int64_t *perm)
{
    weft_ttype type = *weft_val_ttype(m, v), from = type;
    for (uint32_t i = 0; i < type.rank; i++)
        type.dim[i] = from.dim[perm[i]];
    weft_val_set_type(m, v, weft_type_intern(m, &type));
}

static void cancel(weft_graph *g, weft_node last, const chain *c)
{
    weft_module *m = weft_graph_module(g);
    weft_val x = weft_node_in(m, c->first, 0);
    uint32_t rank;
    const int64_t *perm = get_perm(m, last, &rank);
    for (uint32_t i = c->n; i-- > 0;) {
        weft_node_set_in(m, c->node[i], c->operand[i], x);
        x = weft_node_out(m, c->node[i], 0);
        permute_type(m, x, perm);
    }
    weft_rewrite__replace_result(g, last, 0, x);
    weft_rewrite__remove_dead(g, last);
    if (c->n > 0 && !weft_rewrite__is_live(g, c->first))
        weft_rewrite__remove_dead(g, c->first);
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            chain c;
            if (weft_node_op(m, n) != WEFT_OP_TRANSPOSE || !weft_rewrite__is_live(g, n) ||
                !find_chain(g, n, &c) || !weft_rewrite__allow(cx))
                continue;
            cancel(g, n, &c);
            *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_cancel_transposes = {
    .name = "cancel-transposes",
    .brief = "a transpose and its inverse go, with row by row operators between them",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
