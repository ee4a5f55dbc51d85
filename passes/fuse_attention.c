/* fuse-attention: the sub-graph that exporters write for multi-head attention becomes one operator.
 *
 *     q4 = transpose(reshape(q, [b, sq, h, d]), [0, 2, 1, 3])        k4, v4 alike
 *     s  = matmul(q4, transpose k4)     scaled by a constant before or after
 *     s  = s + mask     or     where(mask, s, fill)                  optional
 *     y  = reshape(transpose(matmul(softmax(s, -1), v4), [0, 2, 1, 3]), [b, sq, h*d])
 *   ==>
 *     y  = attention q k v mask {heads, head_dim, scale, fill}
 *
 * The result is equal up to rounding; transposes and the score matrix are eliminated. If q, k and v
 * are parts of one split along the last axis, or are gathered from one projection reshaped to
 * [b, s, 3, h, d], the operator takes the whole value with offsets, and the split or gather becomes
 * dead. O(nodes). */
#include "passes/match.h"

#include <string.h>

typedef struct attention {
    weft_val q, k, v, mask;
    int64_t heads, head_dim, q_offset, k_offset, v_offset;
    double scale, fill;
    bool has_fill;
} attention;

/* transpose of a rank-4 value with exactly this perm: its operand; none otherwise */
static weft_val transposed(const weft_module *m, weft_val v, const int64_t *want)
{
    weft_node n = weft_match__maker(m, v, WEFT_OP_TRANSPOSE);
    uint32_t count = 0;
    const int64_t *perm =
        n.i ? weft_attrs_ints(weft_node_attrs(m, n), WEFT_ATTR_PERM, &count) : NULL;
    if (!perm || count != 4 || memcmp(perm, want, 4 * sizeof *want) != 0)
        return (weft_val){0};
    return weft_node_in(m, n, 0);
}

static const int64_t swap_heads[4] = {0, 2, 1, 3};
static const int64_t swap_heads_and_last[4] = {0, 2, 3, 1};

/* reshape from [b, s, h*d] to [b, s, h, d] */
static weft_val unsplit_heads(const weft_module *m, weft_val v4, int64_t *out_heads,
                              int64_t *out_dim)
{
    weft_node n = v4.i ? weft_match__maker(m, v4, WEFT_OP_RESHAPE) : (weft_node){0};
    if (!n.i)
        return (weft_val){0};
    weft_val x = weft_node_in(m, n, 0);
    const weft_ttype *from = weft_val_ttype(m, x), *to = weft_val_ttype(m, v4);
    if (from->rank != 3 || to->rank != 4 || from->dim[0] != to->dim[0] ||
        from->dim[1] != to->dim[1] || !weft_dim_is_const(to->dim[2]) ||
        !weft_dim_is_const(to->dim[3]))
        return (weft_val){0};
    *out_heads = to->dim[2];
    *out_dim = to->dim[3];
    return x;
}

/* Matches part i of a joint projection: gather of index i along the first axis of
 *     transpose(reshape(x, [b, s, parts, h, d]), [2, 0, 3, 1, 4])
 * Returns x, and the offset of the part in its last dim. */
static weft_val gathered_part(const weft_module *m, weft_val v, int64_t *out_heads,
                              int64_t *out_dim, int64_t *out_offset)
{
    static const int64_t parts_first[5] = {2, 0, 3, 1, 4};
    weft_node gather = weft_match__maker(m, v, WEFT_OP_GATHER);
    double part = 0;
    uint32_t count = 0;
    if (!gather.i || weft_attrs_int(weft_node_attrs(m, gather), WEFT_ATTR_AXIS, 0) != 0 ||
        !weft_rewrite__scalar(m, weft_node_in(m, gather, 1), &part))
        return (weft_val){0};
    weft_node t = weft_match__maker(m, weft_node_in(m, gather, 0), WEFT_OP_TRANSPOSE);
    const int64_t *perm =
        t.i ? weft_attrs_ints(weft_node_attrs(m, t), WEFT_ATTR_PERM, &count) : NULL;
    weft_node r =
        t.i ? weft_match__maker(m, weft_node_in(m, t, 0), WEFT_OP_RESHAPE) : (weft_node){0};
    if (!perm || count != 5 || memcmp(perm, parts_first, sizeof parts_first) != 0 || !r.i)
        return (weft_val){0};
    weft_val x = weft_node_in(m, r, 0);
    const weft_ttype *from = weft_val_ttype(m, x);
    const weft_ttype *to = weft_val_ttype(m, weft_node_out(m, r, 0));
    if (from->rank != 3 || to->rank != 5 || from->dim[0] != to->dim[0] ||
        from->dim[1] != to->dim[1] || !weft_dim_is_const(to->dim[2]) ||
        !weft_dim_is_const(to->dim[3]) || !weft_dim_is_const(to->dim[4]) || part < 0 ||
        part >= (double)to->dim[2] || weft_val_ttype(m, v)->rank != 4)
        return (weft_val){0};
    *out_heads = to->dim[3];
    *out_dim = to->dim[4];
    *out_offset = (int64_t)part * to->dim[3] * to->dim[4];
    return x;
}

/* Matches a projection split into heads, [b, h, s, d], with the number of heads found before. */
static bool match_heads(const weft_module *m, weft_val v, const int64_t *perm, attention *a,
                        weft_val *out, int64_t *out_offset)
{
    int64_t heads = 0, dim = 0;
    *out = unsplit_heads(m, transposed(m, v, perm), &heads, &dim);
    if (!out->i && perm == swap_heads)
        *out = gathered_part(m, v, &heads, &dim, out_offset);
    if (!out->i || (a->heads && (heads != a->heads || dim != a->head_dim)))
        return false;
    a->heads = heads;
    a->head_dim = dim;
    return true;
}

/* Strips a multiplication by a constant from `v`; true if there was one. */
static bool take_scale(const weft_module *m, weft_val *v, double *scale)
{
    weft_val x;
    double c = 0;
    if (weft_match__with_scalar(m, *v, WEFT_OP_DIV, false, &x, &c) && c != 0) {
        *scale /= c;
    } else if (weft_match__with_scalar(m, *v, WEFT_OP_MUL, true, &x, &c)) {
        *scale *= c;
    } else {
        return false;
    }
    *v = x;
    return true;
}

static bool mask_broadcasts(const weft_module *m, weft_val mask, weft_val score)
{
    const weft_ttype *a = weft_val_ttype(m, mask), *s = weft_val_ttype(m, score);
    if (a->rank > 4)
        return false;
    for (uint32_t i = 0; i < a->rank; i++) {
        weft_dim d = a->dim[a->rank - 1 - i];
        if (d != 1 && d != s->dim[3 - i])
            return false;
    }
    return true;
}

/* add(score, mask) or where(mask, score, fill): returns the score and stores the mask */
static weft_val take_mask(const weft_module *m, weft_val v, attention *a)
{
    weft_node where = weft_match__maker(m, v, WEFT_OP_WHERE);
    if (where.i && weft_rewrite__scalar(m, weft_node_in(m, where, 2), &a->fill)) {
        a->mask = weft_node_in(m, where, 0);
        a->has_fill = true;
        return weft_node_in(m, where, 1);
    }
    weft_node add = weft_match__maker(m, v, WEFT_OP_ADD);
    for (uint32_t i = 0; add.i && i < 2; i++) {
        weft_val score = weft_node_in(m, add, i), x = score;
        double unused = 1;
        while (take_scale(m, &x, &unused))
            ;
        if (!weft_match__maker(m, x, WEFT_OP_MATMUL).i)
            continue;
        a->mask = weft_node_in(m, add, 1 - i);
        return score;
    }
    return v;
}

static bool is_plain_matmul(const weft_module *m, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(m, n);
    return !weft_node_in(m, n, 2).i && !weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) &&
           weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1) == 1 &&
           !weft_attrs_find(attrs, WEFT_ATTR_EPILOGUE);
}

static bool match_score(const weft_module *m, weft_val score, attention *a)
{
    a->scale = 1;
    weft_val s = take_mask(m, score, a);
    while (take_scale(m, &s, &a->scale))
        ;
    weft_node mm = weft_match__maker(m, s, WEFT_OP_MATMUL);
    if (!mm.i || !is_plain_matmul(m, mm) || weft_val_ttype(m, s)->rank != 4)
        return false;
    if (a->mask.i && (!mask_broadcasts(m, a->mask, s)))
        return false;
    bool trans_b = weft_attrs_int(weft_node_attrs(m, mm), WEFT_ATTR_TRANS_B, 0);
    weft_val q4 = weft_node_in(m, mm, 0), k4 = weft_node_in(m, mm, 1);
    while (take_scale(m, &q4, &a->scale) || take_scale(m, &k4, &a->scale))
        ;
    return match_heads(m, q4, swap_heads, a, &a->q, &a->q_offset) &&
           match_heads(m, k4, trans_b ? swap_heads : swap_heads_and_last, a, &a->k, &a->k_offset);
}

static bool match_attention(const weft_module *m, weft_node reshape, attention *a)
{
    weft_val context = transposed(m, weft_node_in(m, reshape, 0), swap_heads);
    weft_node mm = weft_match__maker(m, context, WEFT_OP_MATMUL);
    if (!context.i || !mm.i || !is_plain_matmul(m, mm) ||
        weft_attrs_int(weft_node_attrs(m, mm), WEFT_ATTR_TRANS_B, 0))
        return false;
    weft_node softmax = weft_match__maker(m, weft_node_in(m, mm, 0), WEFT_OP_SOFTMAX);
    int64_t axis = softmax.i ? weft_attrs_int(weft_node_attrs(m, softmax), WEFT_ATTR_AXIS, -1) : 0;
    if (!softmax.i || (axis != -1 && axis != 3) ||
        !match_heads(m, weft_node_in(m, mm, 1), swap_heads, a, &a->v, &a->v_offset) ||
        !match_score(m, weft_node_in(m, softmax, 0), a))
        return false;
    const weft_ttype *y = weft_val_ttype(m, weft_node_out(m, reshape, 0));
    const weft_ttype *q = weft_val_ttype(m, a->q);
    /* matmul broadcasts k and v over the batch; the operator does not. */
    return weft_val_ttype(m, a->k)->dim[0] == q->dim[0] &&
           weft_val_ttype(m, a->v)->dim[0] == q->dim[0] && y->rank == 3 && y->dim[0] == q->dim[0] &&
           y->dim[1] == q->dim[1] && y->dim[2] == a->heads * a->head_dim &&
           y->dtype == WEFT_DTYPE_F32;
}

/* -- Offsets into one value ------------------------------------------------------------------ */

/* v is part i of a split along the last axis into constant sizes: returns the operand of the split
 * and the offset of the part */
static void whole_of(const weft_module *m, weft_val *v, int64_t *offset)
{
    weft_node n = weft_match__maker(m, *v, WEFT_OP_SPLIT);
    if (!n.i)
        return;
    weft_val whole = weft_node_in(m, n, 0);
    int64_t rank = weft_val_ttype(m, whole)->rank, begin = 0;
    int64_t axis = weft_attrs_int(weft_node_attrs(m, n), WEFT_ATTR_AXIS, 0);
    if (axis != -1 && axis != rank - 1)
        return;
    for (uint32_t i = 0; i < weft_val_index(m, *v); i++) {
        weft_dim d = weft_val_ttype(m, weft_node_out(m, n, i))->dim[rank - 1];
        if (!weft_dim_is_const(d))
            return;
        begin += d;
    }
    *v = whole;
    *offset += begin;
}

static weft_err emit(weft_passctx *cx, weft_graph *g, weft_node last, attention *a)
{
    weft_module *m = weft_graph_module(g);
    whole_of(m, &a->q, &a->q_offset);
    whole_of(m, &a->k, &a->k_offset);
    whole_of(m, &a->v, &a->v_offset);
    weft_val operand[4] = {a->q, a->k, a->v, a->mask};
    weft_attr attr[7] = {
        WEFT_ATTR_OF_INT(HEADS, a->heads),       WEFT_ATTR_OF_INT(HEAD_DIM, a->head_dim),
        WEFT_ATTR_OF_INT(Q_OFFSET, a->q_offset), WEFT_ATTR_OF_INT(K_OFFSET, a->k_offset),
        WEFT_ATTR_OF_INT(V_OFFSET, a->v_offset), WEFT_ATTR_OF_FLOAT(SCALE, a->scale),
        WEFT_ATTR_OF_FLOAT(FILL, a->fill)};
    weft_val with;
    WEFT_TRY(weft_rewrite__emit(cx, g, last, WEFT_OP_ATTENTION, operand, a->mask.i ? 4 : 3, attr,
                                a->has_fill ? 7 : 6, weft_node_loc(m, last), &with));
    weft_rewrite__replace_result(g, last, 0, with);
    weft_rewrite__remove_dead(g, last);
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            attention a = {0};
            if (weft_node_op(m, n) != WEFT_OP_RESHAPE || !weft_rewrite__is_live(g, n) ||
                !match_attention(m, n, &a) || !weft_rewrite__allow(cx))
                continue;
            WEFT_TRY(emit(cx, g, n, &a));
            *changed = true;
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_attention = {
    .name = "fuse-attention",
    .brief = "spelt-out multi-head attention becomes one operator",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
