/* stack-members: what the members of an ensemble compute from one input becomes one computation.
 *
 *     a = relu (matmul x $v);  b = relu (matmul x $w);  y = mean a b
 *   ==>
 *     s = relu (matmul x [$v; $w]);                     y = reduce_mean s {axes = [0]}
 *
 * The values of the members are stacked along a new axis 0. From the operands of a mean, sum, max
 * or min towards the inputs, K values are a stack if they are made by K equal nodes that nobody
 * else uses, of element-wise operators, softmax and GEMMs; what all members have in common is not
 * stacked, and different weights become one weight. K GEMMs become a batched one, which reads the
 * input once. Where the nodes are others, the values are concatenated.
 *
 * The same bytes of weights are read, so what is gained are launches, and lost is that biases and
 * activations are no epilogues of a batched GEMM: with a CPU's two threads members take 1.3 to 4.4
 * times the time of the stack at one row, and 0.8 times at 256. So GEMMs of more than WORK_MAX
 * multiplications at the largest batch that is planned stay apart, as does all from where there
 * would be more concatenations than GEMMs. O(nodes + bytes of the stacked weights). */
#include "passes/match.h"

#include <string.h>

enum { MEMBERS_MAX = 64, DEPTH_MAX = 256, WORK_MAX = 1 << 17 };

typedef struct stacker {
    weft_passctx *cx;
    weft_graph *g;
    weft_module *m;
    weft_node before; /* the reduction */
    uint32_t n;       /* members */
    int64_t batch;    /* the largest that is planned */
    uint32_t gemms, copies;
    bool emits; /* else it only counts */
} stacker;

/* The values of the members. */
typedef struct tuple {
    weft_val at[MEMBERS_MAX];
} tuple;

static bool is_common(const stacker *k, const tuple *t)
{
    for (uint32_t i = 1; i < k->n; i++)
        if (t->at[i].i != t->at[0].i)
            return false;
    return true;
}

static bool have_one_type(const stacker *k, const tuple *t)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!t->at[i].i || weft_val_type(k->m, t->at[i]).i != weft_val_type(k->m, t->at[0]).i)
            return false;
    return true;
}

static bool are_weights(const stacker *k, const tuple *t)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (weft_val_get_kind(k->m, t->at[i]) != WEFT_VAL_WEIGHT)
            return false;
    return have_one_type(k, t);
}

static tuple operands(const stacker *k, const tuple *t, uint32_t operand)
{
    tuple in = {0};
    for (uint32_t i = 0; i < k->n; i++)
        in.at[i] = weft_node_in(k->m, weft_val_node(k->m, t->at[i]), operand);
    return in;
}

/* Whether the values are results of nodes that are alike but for their operands, for one user. */
static bool are_alike(const stacker *k, const tuple *t)
{
    for (uint32_t i = 0; i < k->n; i++) {
        if (weft_val_get_kind(k->m, t->at[i]) != WEFT_VAL_NODE ||
            weft_val_use_count(k->m, t->at[i]) != 1 || weft_val_is_output(k->g, t->at[i]))
            return false;
        weft_node n = weft_val_node(k->m, t->at[i]), first = weft_val_node(k->m, t->at[0]);
        if (weft_node_out_count(k->m, n) != 1 || !weft_rewrite__is_like(k->m, first, n))
            return false;
    }
    return true;
}

/* Whether a launch takes longer than to multiply x by the weight. */
static bool is_small(const stacker *k, weft_val x, const weft_ttype *w)
{
    const weft_ttype *type = weft_val_ttype(k->m, x);
    double work = (double)w->dim[0] * (double)w->dim[1] * (double)k->batch;
    for (uint32_t i = 1; i + 1 < type->rank; i++)
        work *= weft_dim_is_const(type->dim[i]) ? (double)type->dim[i] : 1;
    return work <= WORK_MAX;
}

/* A GEMM by weights of which a stack is a batched GEMM. */
static bool is_gemm(const stacker *k, const tuple *t)
{
    weft_node n = weft_val_node(k->m, t->at[0]);
    weft_attrs attrs = weft_node_attrs(k->m, n);
    if (weft_node_op(k->m, n) != WEFT_OP_MATMUL || weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) ||
        weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1) != 1 ||
        weft_attrs_find(attrs, WEFT_ATTR_EPILOGUE) ||
        weft_val_ttype(k->m, weft_node_in(k->m, n, 0))->rank < 2)
        return false;
    tuple w = operands(k, t, 1), b = operands(k, t, 2);
    if (is_common(k, &w) || !are_weights(k, &w) || !weft_match__is_f32(k->m, w.at[0]))
        return false;
    const weft_ttype *type = weft_val_ttype(k->m, w.at[0]);
    return type->rank == 2 && is_small(k, weft_node_in(k->m, n, 0), type) &&
           (!b.at[0].i || (are_weights(k, &b) && weft_val_ttype(k->m, b.at[0])->rank == 1));
}

/* Softmax along an axis, which is counted from the last one. */
static bool is_softmax(const stacker *k, const tuple *t)
{
    weft_op_id op = weft_node_op(k->m, weft_val_node(k->m, t->at[0]));
    return op == WEFT_OP_SOFTMAX || op == WEFT_OP_LOG_SOFTMAX;
}

/* An element-wise node whose operands broadcast to a stack as they do to the member's result. */
static bool is_ew(const stacker *k, const tuple *t)
{
    weft_node n = weft_val_node(k->m, t->at[0]);
    uint32_t rank = weft_val_ttype(k->m, t->at[0])->rank;
    if (!(weft_node_opdef(k->m, n)->traits & WEFT_T_EW))
        return false;
    for (uint32_t i = 0; i < weft_node_in_count(k->m, n); i++) {
        tuple in = operands(k, t, i);
        if (!have_one_type(k, &in) || !(is_common(k, &in) || are_weights(k, &in) ||
                                        weft_val_ttype(k->m, in.at[0])->rank == rank))
            return false;
    }
    return true;
}

/* -- Emission --------------------------------------------------------------------------------- */

static weft_err emit(stacker *k, weft_op_id op, const weft_val *in, uint32_t n_in,
                     const weft_attr *attr, uint32_t n_attr, weft_val *out)
{
    return weft_rewrite__emit(k->cx, k->g, k->before, op, in, n_in, attr, n_attr,
                              weft_node_loc(k->m, k->before), out);
}

/* The weights as one, of one axis more than `rank`. */
static weft_val stack_weights(stacker *k, const tuple *t, uint32_t rank)
{
    weft_tensor one = weft_weight_tensor(k->m, weft_val_weight(k->m, t->at[0]));
    size_t bytes = weft_tensor_bytes(&one);
    int64_t dim[WEFT_RANK_MAX];
    weft_arena_mark mark = weft_arena_get_mark(k->cx->scratch);
    uint8_t *all = weft_arena_array(k->cx->scratch, bytes + 1, k->n);
    for (uint32_t i = 0; i < k->n && bytes > 0; i++)
        memcpy(all + i * bytes, weft_weight_tensor(k->m, weft_val_weight(k->m, t->at[i])).data,
               bytes);
    dim[0] = k->n;
    for (uint32_t i = 0; i < rank; i++)
        dim[1 + i] = i + (uint32_t)one.rank < rank ? 1 : one.dim[i + (uint32_t)one.rank - rank];
    weft_val made = weft_rewrite__constant(k->m, one.dtype, dim, rank + 1, all, "stacked");
    weft_arena_reset(k->cx->scratch, mark);
    return made;
}

/* The members' values one after the other along a new axis. */
static weft_err concatenate(stacker *k, const tuple *t, weft_val *out)
{
    weft_val part[MEMBERS_MAX];
    const int64_t first[1] = {0};
    const weft_attr axes = WEFT_ATTR_OF_INTS(AXES, first, 1), axis = WEFT_ATTR_OF_INT(AXIS, 0);
    for (uint32_t i = 0; i < k->n; i++)
        WEFT_TRY(emit(k, WEFT_OP_UNSQUEEZE, &t->at[i], 1, &axes, 1, &part[i]));
    return emit(k, WEFT_OP_CONCAT, part, k->n, &axis, 1, out);
}

static weft_err stack(stacker *k, const tuple *t, uint32_t depth, weft_val *out);

/* An operand of a stacked node whose members' results have `rank` axes. */
static weft_err stack_operand(stacker *k, const tuple *in, uint32_t rank, uint32_t depth,
                              weft_val *out)
{
    *out = in->at[0];
    if (is_common(k, in))
        return WEFT_ERR_OK;
    if (!are_weights(k, in))
        return stack(k, in, depth, out);
    if (k->emits)
        *out = stack_weights(k, in, rank);
    return WEFT_ERR_OK;
}

static weft_err stack_gemm(stacker *k, const tuple *t, uint32_t depth, weft_val *out)
{
    tuple x = operands(k, t, 0), w = operands(k, t, 1), b = operands(k, t, 2);
    uint32_t rank = weft_val_ttype(k->m, t->at[0])->rank;
    weft_attr trans_b = WEFT_ATTR_OF_INT(TRANS_B, 1);
    bool turned = weft_attrs_int(weft_node_attrs(k->m, weft_val_node(k->m, t->at[0])),
                                 WEFT_ATTR_TRANS_B, 0) != 0;
    weft_val in[2], sum[2];
    k->gemms++;
    WEFT_TRY(stack_operand(k, &x, rank, depth, &in[0]));
    if (!k->emits)
        return WEFT_ERR_OK;
    in[1] = stack_weights(k, &w, rank);
    WEFT_TRY(emit(k, WEFT_OP_MATMUL, in, 2, &trans_b, turned, out));
    if (!b.at[0].i)
        return WEFT_ERR_OK;
    sum[0] = *out;
    WEFT_TRY(stack_operand(k, &b, rank, depth, &sum[1]));
    return emit(k, WEFT_OP_ADD, sum, 2, NULL, 0, out);
}

static weft_err stack_ew(stacker *k, const tuple *t, uint32_t depth, weft_val *out)
{
    weft_node n = weft_val_node(k->m, t->at[0]);
    weft_attrs attrs = weft_node_attrs(k->m, n);
    uint32_t rank = weft_val_ttype(k->m, t->at[0])->rank, n_in = weft_node_in_count(k->m, n);
    weft_val *in = weft_arena_array(k->cx->scratch, n_in, sizeof *in);
    weft_attr *attr = weft_arena_array(k->cx->scratch, attrs.n + 1, sizeof *attr);
    uint32_t n_attr = 0;
    for (uint32_t i = 0; i < n_in; i++) {
        tuple of = operands(k, t, i);
        WEFT_TRY(stack_operand(k, &of, rank, depth, &in[i]));
    }
    for (uint32_t i = 0; i < attrs.n; i++)
        if (!is_softmax(k, t) || attrs.at[i].key != WEFT_ATTR_AXIS)
            attr[n_attr++] = attrs.at[i];
    if (is_softmax(k, t)) {
        int64_t axis = weft_attrs_int(attrs, WEFT_ATTR_AXIS, -1);
        /* Of what is common there is no stack. */
        bool stacked = k->emits && weft_val_ttype(k->m, in[0])->rank > rank;
        attr[n_attr++] = WEFT_ATTR_OF_INT(AXIS, axis < 0 || !stacked ? axis : axis + 1);
    }
    return k->emits ? emit(k, weft_node_op(k->m, n), in, n_in, attr, n_attr, out) : WEFT_ERR_OK;
}

static weft_err stack(stacker *k, const tuple *t, uint32_t depth, weft_val *out)
{
    bool alike = depth < DEPTH_MAX && are_alike(k, t);
    *out = (weft_val){0};
    if (alike && is_gemm(k, t))
        return stack_gemm(k, t, depth + 1, out);
    if (alike && (is_ew(k, t) || is_softmax(k, t)))
        return stack_ew(k, t, depth + 1, out);
    k->copies++;
    return k->emits ? concatenate(k, t, out) : WEFT_ERR_OK;
}

/* -- Reductions ------------------------------------------------------------------------------- */

static weft_op_id reduction(weft_op_id op)
{
    return op == WEFT_OP_MEAN  ? WEFT_OP_REDUCE_MEAN
           : op == WEFT_OP_SUM ? WEFT_OP_REDUCE_SUM
           : op == WEFT_OP_MAX ? WEFT_OP_REDUCE_MAX
           : op == WEFT_OP_MIN ? WEFT_OP_REDUCE_MIN
                               : WEFT_OP_NONE;
}

/* The operands of the reduction, if they are of one shape. */
static bool take_members(stacker *k, tuple *out)
{
    k->n = weft_node_in_count(k->m, k->before);
    if (reduction(weft_node_op(k->m, k->before)) == WEFT_OP_NONE || k->n < 2 || k->n > MEMBERS_MAX)
        return false;
    for (uint32_t i = 0; i < k->n; i++)
        out->at[i] = weft_node_in(k->m, k->before, i);
    if (!have_one_type(k, out))
        return false;
    uint32_t rank = weft_val_ttype(k->m, out->at[0])->rank;
    return rank >= 2 && rank < WEFT_RANK_MAX && weft_match__is_f32(k->m, out->at[0]) &&
           !is_common(k, out);
}

static weft_err stack_all(stacker *k, const tuple *t, bool *changed)
{
    static const int64_t first[1] = {0};
    const weft_attr attr[2] = {WEFT_ATTR_OF_INTS(AXES, first, 1), WEFT_ATTR_OF_INT(KEEPDIMS, 0)};
    weft_val stacked, result;
    WEFT_TRY(stack(k, t, 0, &stacked));
    if (k->gemms == 0 || k->copies > k->gemms || !weft_rewrite__allow(k->cx))
        return WEFT_ERR_OK;
    k->emits = true;
    WEFT_TRY(stack(k, t, 0, &stacked));
    WEFT_TRY(emit(k, reduction(weft_node_op(k->m, k->before)), &stacked, 1, attr, 2, &result));
    weft_rewrite__replace_result(k->g, k->before, 0, result);
    *changed = true;
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        int64_t batch = weft_pass__most_batch(cx->options, weft_graph_name(g));
        WEFT_FOREACH_NODE (m, g, n) {
            stacker k = {.cx = cx, .g = g, .m = m, .before = n, .batch = batch};
            tuple t = {0};
            if (weft_rewrite__is_live(g, n) && take_members(&k, &t))
                WEFT_TRY(stack_all(&k, &t, changed));
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_stack_members = {
    .name = "stack-members",
    .brief = "GEMMs of the members of an ensemble become batched ones",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .run = run,
};
