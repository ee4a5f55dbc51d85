/* fuse-siblings: GEMMs of one value by several weights become one GEMM.
 *
 *     q = matmul x $wq $bq;  k = matmul x $wk $bk;  v = matmul x $wv $bv;  y = attention q k v
 *   ==>
 *     qkv = matmul x [$wq $wk $wv] [$bq $bk $bv];   y = attention qkv qkv qkv {offsets}
 *
 * x is read once, and one large GEMM replaces three. Only if all results are operands of attention,
 * which takes offsets, so that the parts need not be copied. The concatenated weight is a new
 * weight; dedup shares it among models with equal weights. Where adapters add to the parts
 * (add-adapters), one adapter_delta adds to the whole. O(nodes + bytes of the weights). */
#include "passes/match.h"

#include <string.h>

enum { SIBLINGS_MAX = 8 };

typedef struct siblings {
    weft_node first; /* of them in the graph */
    weft_node node[SIBLINGS_MAX];
    weft_node delta[SIBLINGS_MAX]; /* what adapters add; none: nothing */
    int64_t cols[SIBLINGS_MAX];
    uint32_t n;
    int64_t rows; /* of the weights: the length of x's last dim */
    bool trans_b, has_bias;
} siblings;

static bool used_by_attention_only(const weft_graph *g, weft_val v)
{
    const weft_module *m = weft_graph_module(g);
    if (weft_val_use_count(m, v) == 0 || weft_val_is_output(g, v))
        return false;
    WEFT_FOREACH_USE (m, v, use)
        if (weft_node_op(m, use.node) != WEFT_OP_ATTENTION || use.idx > 2)
            return false;
    return true;
}

/* The result of a GEMM, with what adapters add to it: *out_delta, or none. */
static weft_val result_of(const weft_graph *g, weft_node n, weft_node *out_delta)
{
    const weft_module *m = weft_graph_module(g);
    weft_val y = weft_node_out(m, n, 0), delta;
    weft_node sum = weft_rewrite__sole_user(g, y);
    *out_delta = (weft_node){0};
    if (!sum.i || weft_node_op(m, sum) != WEFT_OP_ADD ||
        !weft_match__with_value(m, weft_node_out(m, sum, 0), WEFT_OP_ADD, y, &delta))
        return y;
    weft_node maker = weft_match__maker(m, delta, WEFT_OP_ADAPTER_DELTA);
    if (!maker.i || weft_node_in(m, maker, 0).i != weft_node_in(m, n, 0).i)
        return y;
    *out_delta = maker;
    return weft_node_out(m, sum, 0);
}

/* Number of columns of a GEMM of `x` by a weight whose result is an operand of attention; 0: no
 * such node. */
static int64_t sibling_cols(const weft_graph *g, weft_node n, weft_val x)
{
    const weft_module *m = weft_graph_module(g);
    weft_val w = weft_node_in(m, n, 1), b = weft_node_in(m, n, 2);
    weft_attrs attrs = weft_node_attrs(m, n);
    weft_node delta;
    if (weft_node_op(m, n) != WEFT_OP_MATMUL || weft_node_in(m, n, 0).i != x.i ||
        weft_val_get_kind(m, w) != WEFT_VAL_WEIGHT || !weft_match__is_f32(m, w) ||
        weft_val_ttype(m, w)->rank != 2 || weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) ||
        weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1) != 1 ||
        weft_attrs_find(attrs, WEFT_ATTR_EPILOGUE) ||
        !used_by_attention_only(g, result_of(g, n, &delta)))
        return 0;
    int64_t cols = weft_val_ttype(m, w)->dim[weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) ? 0 : 1];
    if (b.i && (weft_val_get_kind(m, b) != WEFT_VAL_WEIGHT || weft_val_ttype(m, b)->rank != 1 ||
                weft_val_ttype(m, b)->dim[0] != cols))
        return 0;
    return cols;
}

static bool same_form(const weft_module *m, weft_node n, const siblings *s)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    return (weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) != 0) == s->trans_b &&
           (weft_node_in(m, n, 2).i != 0) == s->has_bias;
}

/* Which operand of attention a sibling is first. */
static uint32_t operand_of(const weft_graph *g, weft_node n)
{
    const weft_module *m = weft_graph_module(g);
    uint32_t least = 3;
    weft_node delta;
    WEFT_FOREACH_USE (m, result_of(g, n, &delta), use)
        least = use.idx < least ? use.idx : least;
    return least;
}

/* Puts a sibling behind those that are the same operand or an earlier one: the order of the joined
 * columns does not depend on that of the nodes, so that the same model exported twice has the same
 * weight. */
static void put_in_order(const weft_graph *g, siblings *s, weft_node n, int64_t cols)
{
    uint32_t at = s->n++;
    for (; at > 0 && operand_of(g, s->node[at - 1]) > operand_of(g, n); at--) {
        s->node[at] = s->node[at - 1];
        s->delta[at] = s->delta[at - 1];
        s->cols[at] = s->cols[at - 1];
    }
    s->node[at] = n;
    s->cols[at] = cols;
    result_of(g, n, &s->delta[at]);
}

static siblings collect(const weft_graph *g, weft_node first)
{
    const weft_module *m = weft_graph_module(g);
    weft_val x = weft_node_in(m, first, 0);
    siblings s = {.first = first,
                  .trans_b = weft_attrs_int(weft_node_attrs(m, first), WEFT_ATTR_TRANS_B, 0) != 0,
                  .has_bias = weft_node_in(m, first, 2).i != 0};
    s.rows = weft_val_ttype(m, weft_node_in(m, first, 1))->dim[s.trans_b ? 1 : 0];
    for (weft_node n = first; n.i && s.n < SIBLINGS_MAX; n = weft_node_next(m, n)) {
        int64_t cols = sibling_cols(g, n, x);
        if (cols == 0 || !same_form(m, n, &s))
            continue;
        put_in_order(g, &s, n, cols);
    }
    return s;
}

static weft_val join_weights(weft_passctx *cx, weft_module *m, const siblings *s, int64_t total)
{
    float *y = weft_arena_array(cx->scratch, (size_t)(s->rows * total) + 1, sizeof *y);
    int64_t at = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        const uint8_t *w =
            weft_weight_get(m, weft_val_weight(m, weft_node_in(m, s->node[i], 1)))->data;
        size_t cols = (size_t)s->cols[i], rows = (size_t)s->rows;
        if (s->trans_b) /* [cols, rows]: one after the other */
            memcpy(y + at * s->rows, w, cols * rows * sizeof *y);
        for (size_t r = 0; !s->trans_b && r < rows; r++)
            memcpy(y + (int64_t)r * total + at, w + r * cols * sizeof *y, cols * sizeof *y);
        at += s->cols[i];
    }
    int64_t dim[2] = {s->trans_b ? total : s->rows, s->trans_b ? s->rows : total};
    return weft_rewrite__constant(m, WEFT_DTYPE_F32, dim, 2, y, "joined");
}

static weft_val join_biases(weft_passctx *cx, weft_module *m, const siblings *s, int64_t total)
{
    if (!s->has_bias)
        return (weft_val){0};
    float *y = weft_arena_array(cx->scratch, (size_t)total + 1, sizeof *y);
    int64_t at = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        weft_weight b = weft_val_weight(m, weft_node_in(m, s->node[i], 2));
        memcpy(y + at, weft_weight_get(m, b)->data, (size_t)s->cols[i] * sizeof *y);
        at += s->cols[i];
    }
    return weft_rewrite__constant(m, WEFT_DTYPE_F32, &total, 1, y, "joined");
}

/* Every use of `old` as q, k or v of attention becomes `with`, shifted by `offset` columns. */
static void redirect(weft_graph *g, weft_val old, weft_val with, int64_t offset)
{
    static const weft_attr_key keys[3] = {WEFT_ATTR_Q_OFFSET, WEFT_ATTR_K_OFFSET,
                                          WEFT_ATTR_V_OFFSET};
    weft_module *m = weft_graph_module(g);
    while (weft_val_use_count(m, old)) {
        weft_use use = weft_val_use(m, old, 0);
        weft_attr attr = {.key = (uint16_t)keys[use.idx], .kind = WEFT_KIND_INT};
        attr.u.i = weft_attrs_int(weft_node_attrs(m, use.node), keys[use.idx], 0) + offset;
        weft_node_set_attr(m, use.node, &attr);
        weft_node_set_in(m, use.node, use.idx, with);
    }
}

/* Adds what adapters add to the parts, if there is any. */
static weft_err join_deltas(weft_passctx *cx, weft_graph *g, const siblings *s, weft_val *inout)
{
    weft_module *m = weft_graph_module(g);
    weft_val x = weft_node_in(m, s->node[0], 0), in[2] = {*inout};
    const char *site[SIBLINGS_MAX];
    bool any = false;
    for (uint32_t i = 0; i < s->n; i++) {
        site[i] = "";
        if (s->delta[i].i)
            site[i] = weft_attrs_find(weft_node_attrs(m, s->delta[i]), WEFT_ATTR_SITES)->u.strs[0];
        any = any || s->delta[i].i;
    }
    if (!any)
        return WEFT_ERR_OK;
    const weft_attr attr[2] = {WEFT_ATTR_OF_STRS(SITES, site, s->n),
                               WEFT_ATTR_OF_INTS(WIDTHS, s->cols, s->n)};
    weft_loc loc = weft_node_loc(m, s->first);
    WEFT_TRY(
        weft_rewrite__emit(cx, g, s->first, WEFT_OP_ADAPTER_DELTA, &x, 1, attr, 2, loc, &in[1]));
    return weft_rewrite__emit(cx, g, s->first, WEFT_OP_ADD, in, 2, NULL, 0, loc, inout);
}

static weft_err join(weft_passctx *cx, weft_graph *g, const siblings *s)
{
    weft_module *m = weft_graph_module(g);
    int64_t total = 0, at = 0;
    for (uint32_t i = 0; i < s->n; i++)
        total += s->cols[i];
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    weft_val operand[3] = {weft_node_in(m, s->node[0], 0), join_weights(cx, m, s, total),
                           join_biases(cx, m, s, total)};
    weft_arena_reset(cx->scratch, mark);
    weft_attr trans_b = WEFT_ATTR_OF_INT(TRANS_B, 1);
    weft_val with;
    WEFT_TRY(weft_rewrite__emit(cx, g, s->first, WEFT_OP_MATMUL, operand, s->has_bias ? 3 : 2,
                                &trans_b, s->trans_b ? 1 : 0, weft_node_loc(m, s->first), &with));
    WEFT_TRY(join_deltas(cx, g, s, &with));
    for (uint32_t i = 0; i < s->n; i++) {
        weft_node delta;
        redirect(g, result_of(g, s->node[i], &delta), with, at);
        at += s->cols[i];
    }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            if (weft_node_op(m, n) != WEFT_OP_MATMUL ||
                sibling_cols(g, n, weft_node_in(m, n, 0)) == 0)
                continue;
            siblings s = collect(g, n);
            if (s.n < 2 || !weft_rewrite__allow(cx))
                continue;
            WEFT_TRY(join(cx, g, &s));
            *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_siblings = {
    .name = "fuse-siblings",
    .brief = "q, k and v projections become one GEMM",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .run = run,
};
