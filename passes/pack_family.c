/* pack-family: one packed program for all models of a family.
 *
 *     graph @a.packed (%ids, %position, %start)    graph @a+1.packed (%ids, %position, %start,
 *       %1 = gather $words, %ids                                      %model : i64[?rows])
 *       %2 = matmul %1, $w                           %1 = gather $words, %ids
 *       %3 = add %2, $bias_a                         %2 = matmul %1, $w
 *       %4 = gather %3, %start              ==>      %3 = gather [$bias_a; $bias_b], %model
 *       %5 = matmul %4, $head_a                      %4 = add %2, %3
 *     graph @b.packed (..)                           %5 = gather %4, %start
 *       .. with $bias_b, $head_b                     %6 = matmul %5, $head_a
 *                                                    %7 = matmul %5, $head_b
 *
 * The rows of all requests of all models stand one after the other; %model tells the model of each
 * row. So the only size of the program is the total of rows, however they are divided among the
 * models, and attention takes the sequences of all models in one launch.
 *
 * Nodes of different models are in one column if they have the same operator, attributes and types
 * and their operands are in the same columns. Where a column's nodes have equal weights, one node
 * serves all models. Where the weights differ:
 *
 *     element-wise, layer norm   the row of each weight is gathered by the model of the row
 *     matmul, differences of     routed_matmul: x w, and each row times the factors of its model
 *     low rank
 *     all else                   each distinct weight has a node, for all rows; where tokens
 *                                follow, the rows of each model are chosen from the results
 *
 * The last is right because no row depends on another outside attention (pack-sequences), and cheap
 * for heads, which take a row for each sequence. A node computes rows of models whose own graph
 * does not have it; therefore a node that indexes by data must be common to all models, whose
 * tables then have equal sizes, and an index that one model accepts is none that another refuses.
 *
 * Models are of one family if what their packed programs multiply by different weights, at
 * ROWS_MODEL rows, is at most `own_most` of what they multiply; greedily, with the first model of
 * each family. O(models x nodes), and a comparison of each two different weights. */
#include "passes/passes_int.h"

#include "base/map.h"
#include "passes/similarity/similar.h"

#include <string.h>

enum {
    MEMBERS_MAX = 24,
    OUTPUTS_MAX = 64, /* of all members: a request names those that it wants in a word */
    ROWS_MODEL = 128  /* rows of a typical run, for the work of GEMMs */
};

static const double own_most = 0.25;

/* Corresponding nodes of the members. */
typedef struct column {
    weft_node of[MEMBERS_MAX]; /* by member; none: the member has no such node */
    weft_node first;
    uint32_t next; /* 1 + the next column with its hash, 0: none */
} column;

typedef struct family {
    weft_graph *member[MEMBERS_MAX];
    uint32_t n, outputs;
} family;

typedef struct joiner {
    weft_passctx *cx;
    weft_module *m;
    const family *f;
    weft_dim rows; /* symbol of all members */
    WEFT_VEC(column) columns;
    weft_map *by_key;
    uint32_t *class; /* by value: column and result, or input; 0: not visited */
    weft_graph *to;
    weft_val *val;  /* by value of a member: value of `to` */
    weft_val model; /* i64[rows]: the member of each row */
} joiner;

/* -- Columns ---------------------------------------------------------------------------------- */

static bool is_weight(const weft_module *m, weft_val v)
{
    return v.i && weft_val_get_kind(m, v) == WEFT_VAL_WEIGHT;
}

/* Weights that may differ within a column; others, such as axes and epsilons, are equal. */
static bool may_differ(const weft_module *m, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(m, v);
    bool floating = t->dtype == WEFT_DTYPE_F32 || t->dtype == WEFT_DTYPE_F16 ||
                    t->dtype == WEFT_DTYPE_BF16 || t->dtype == WEFT_DTYPE_F64;
    return floating && weft_numel(t->dim, t->rank) > 1;
}

static bool same_weight(weft_module *m, weft_val a, weft_val b)
{
    return a.i == b.i || weft_weight_equal(m, weft_val_weight(m, a), weft_val_weight(m, b));
}

static bool same_operand(joiner *j, weft_val a, weft_val b)
{
    if (!a.i || !b.i)
        return a.i == b.i;
    if (is_weight(j->m, a) != is_weight(j->m, b))
        return false;
    if (!is_weight(j->m, a))
        return j->class[a.i] == j->class[b.i];
    return weft_val_type(j->m, a).i == weft_val_type(j->m, b).i &&
           (may_differ(j->m, a) || same_weight(j->m, a, b));
}

static bool corresponds(joiner *j, weft_node a, weft_node b)
{
    if (!weft_rewrite__is_like(j->m, a, b))
        return false;
    for (uint32_t i = 0; i < weft_node_in_count(j->m, a); i++)
        if (!same_operand(j, weft_node_in(j->m, a, i), weft_node_in(j->m, b, i)))
            return false;
    return true;
}

static bool has_equal_weights(joiner *j, weft_node a, weft_node b)
{
    for (uint32_t i = 0; i < weft_node_in_count(j->m, a); i++) {
        weft_val v = weft_node_in(j->m, a, i);
        if (is_weight(j->m, v) && !same_weight(j->m, v, weft_node_in(j->m, b, i)))
            return false;
    }
    return true;
}

static uint64_t hash_node(const joiner *j, weft_node n)
{
    uint64_t h = weft_node_op(j->m, n);
    for (uint32_t i = 0; i < weft_node_in_count(j->m, n); i++) {
        weft_val v = weft_node_in(j->m, n, i);
        h = weft_hash_mix(h, !v.i ? 0 : is_weight(j->m, v) ? 1 : j->class[v.i]);
    }
    for (uint32_t i = 0; i < weft_node_out_count(j->m, n); i++)
        h = weft_hash_mix(h, weft_val_type(j->m, weft_node_out(j->m, n, i)).i);
    return h;
}

/* The column of the member's node: one with equal weights, else the first that has no node of the
 * member, else a new one. */
static uint32_t find_column(joiner *j, weft_node n, uint32_t member)
{
    uint64_t key = hash_node(j, n), head = 0;
    uint32_t found = 0;
    weft_map_get(j->by_key, key, &head);
    for (uint32_t at = (uint32_t)head; at; at = j->columns.at[at - 1].next) {
        column *c = &j->columns.at[at - 1];
        if (c->of[member].i || !corresponds(j, c->first, n))
            continue;
        if (has_equal_weights(j, c->first, n))
            return at - 1;
        found = at;
    }
    if (found)
        return found - 1;
    column new = {.first = n, .next = (uint32_t)head};
    WEFT_VEC_PUSH(j->cx->scratch, &j->columns, new);
    weft_map_put(j->by_key, key, j->columns.len);
    return (uint32_t)j->columns.len - 1;
}

/* Puts the member's nodes into columns. The operands of a column's nodes are in earlier columns. */
static void match(joiner *j, uint32_t member)
{
    enum { RESULTS = 8 };
    const weft_graph *g = j->f->member[member];
    for (uint32_t i = 0; i < weft_graph_input_count(g); i++)
        j->class[weft_graph_input(g, i).i] = i + 1;
    WEFT_FOREACH_NODE (j->m, g, n) {
        uint32_t at = find_column(j, n, member);
        j->columns.at[at].of[member] = n;
        for (uint32_t i = 0; i < weft_node_out_count(j->m, n); i++)
            j->class[weft_node_out(j->m, n, i).i] =
                weft_graph_input_count(g) + 1 + at * RESULTS + (i < RESULTS ? i : RESULTS - 1);
    }
}

static joiner open_joiner(weft_passctx *cx, weft_module *m, const family *f)
{
    size_t n_val = weft_val_count(m) + (size_t)1;
    joiner j = {.cx = cx, .m = m, .f = f, .by_key = weft_map_create(cx->scratch)};
    j.rows = weft_graph_symbol_dim(f->member[0], 0);
    j.class = weft_arena_array(cx->scratch, n_val, sizeof *j.class);
    j.val = weft_arena_array(cx->scratch, n_val, sizeof *j.val);
    for (uint32_t k = 0; k < f->n; k++)
        match(&j, k);
    return j;
}

/* -- Work ------------------------------------------------------------------------------------- */

static bool has_rows(const joiner *j, weft_val v, uint32_t *out_axis)
{
    const weft_ttype *t = weft_val_ttype(j->m, v);
    for (uint32_t k = 0; k < t->rank; k++)
        if (t->dim[k] == j->rows) {
            *out_axis = k;
            return true;
        }
    return false;
}

/* Multiplications by the weight of the node at ROWS_MODEL rows; 0: it has none. */
static double work_of(const joiner *j, weft_node n)
{
    weft_val w = weft_node_in(j->m, n, 1);
    uint32_t axis;
    if (!(weft_node_opdef(j->m, n)->traits & WEFT_T_GEMM) || !is_weight(j->m, w))
        return 0;
    const weft_ttype *t = weft_val_ttype(j->m, w);
    return (double)weft_numel(t->dim, t->rank) *
           (has_rows(j, weft_node_out(j->m, n, 0), &axis) ? ROWS_MODEL : WEFT_PACKED_SEQUENCES);
}

/* A product of rows of f32 by a weight, with a bias or none. */
static bool is_product(const joiner *j, weft_node n)
{
    weft_val w = weft_node_in(j->m, n, 1), bias = weft_node_in(j->m, n, 2);
    weft_attrs attrs = weft_node_attrs(j->m, n);
    const weft_ttype *y = weft_val_ttype(j->m, weft_node_out(j->m, n, 0));
    uint32_t axis;
    for (uint32_t i = 0; i + 2 < y->rank; i++)
        if (y->dim[i] != 1)
            return false;
    return weft_node_op(j->m, n) == WEFT_OP_MATMUL &&
           attrs.n == (weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) == 1) &&
           weft_node_in_count(j->m, n) <= 3 && !is_weight(j->m, weft_node_in(j->m, n, 0)) &&
           is_weight(j->m, w) && (!bias.i || is_weight(j->m, bias)) &&
           weft_val_ttype(j->m, w)->rank == 2 && weft_val_ttype(j->m, w)->dtype == WEFT_DTYPE_F32 &&
           has_rows(j, weft_node_out(j->m, n, 0), &axis) && axis + 2 == y->rank;
}

static bool is_by_feature(const joiner *j, weft_node n)
{
    return weft_attrs_int(weft_node_attrs(j->m, n), WEFT_ATTR_TRANS_B, 0) == 1;
}

static weft_matrix matrix_of(const weft_module *m, weft_val w)
{
    const weft_weight_info *info = weft_weight_get(m, weft_val_weight(m, w));
    const weft_ttype *t = weft_type_get(m, info->type);
    return (weft_matrix){info->data, (uint32_t)t->dim[0], (uint32_t)t->dim[1], sizeof(float)};
}

/* Whether the weight of b is that of a plus a difference of low rank. */
static bool find_factors(const joiner *j, weft_node a, weft_node b, weft_factors *out)
{
    if (!is_product(j, a) || !is_product(j, b))
        return false;
    weft_matrix base = matrix_of(j->m, weft_node_in(j->m, a, 1));
    weft_matrix own = matrix_of(j->m, weft_node_in(j->m, b, 1));
    return weft_similar__factors(&own, &base, is_by_feature(j, a), j->cx->scratch, out);
}

/* Whether the node may compute rows of models that do not have it: no value makes it fail. */
static bool is_safe(const joiner *j, weft_node n)
{
    weft_op_id op = weft_node_op(j->m, n);
    const weft_op *def = weft_node_opdef(j->m, n);
    weft_val index = weft_node_in(j->m, n, 1);
    if (op == WEFT_OP_GATHER) /* first rows of sequences; nothing that depends on the data */
        return is_weight(j->m, index) ||
               j->class[index.i] == weft_graph_input_count(j->f->member[0]); /* the starts */
    return (def->traits & WEFT_T_EW) || op == WEFT_OP_MATMUL || op == WEFT_OP_GEMM ||
           op == WEFT_OP_LAYER_NORM || op == WEFT_OP_RMS_NORM || op == WEFT_OP_SOFTMAX ||
           op == WEFT_OP_LOG_SOFTMAX || op == WEFT_OP_RESHAPE || op == WEFT_OP_TRANSPOSE ||
           op == WEFT_OP_SLICE || op == WEFT_OP_CONCAT || op == WEFT_OP_SPLIT ||
           op == WEFT_OP_EXPAND;
}

/* Why the two members of `f` are no family; NULL: they are. */
static const char *find_difference(weft_passctx *cx, weft_module *m, const family *f)
{
    joiner j = open_joiner(cx, m, f);
    double all = 0, own = 0;
    for (size_t i = 0; i < j.columns.len; i++) {
        column *c = &j.columns.at[i];
        weft_factors factors;
        double work = work_of(&j, c->first);
        all += work;
        if ((!c->of[0].i || !c->of[1].i) && !is_safe(&j, c->first)) {
            const char *item = weft_node_loc(m, c->first).item;
            return weft_arena_printf(cx->scratch, "only one of them has %s%s%s",
                                     weft_node_opdef(m, c->first)->name, item ? " " : "",
                                     item ? item : "");
        }
        bool both = c->of[0].i && c->of[1].i;
        bool equal = both && work > 0 &&
                     same_weight(m, weft_node_in(m, c->of[0], 1), weft_node_in(m, c->of[1], 1));
        if (!(both ? equal || work <= 0 || find_factors(&j, c->of[0], c->of[1], &factors)
                   : c->of[0].i != 0))
            own += work;
    }
    return own <= own_most * all ? NULL
                                 : weft_arena_printf(cx->scratch,
                                                     "%.0f %% of their products have no weight in "
                                                     "common",
                                                     100 * own / all);
}

/* -- Nodes of the joint graph ----------------------------------------------------------------- */

static weft_val operand(const joiner *j, weft_node n, uint32_t i)
{
    weft_val v = weft_node_in(j->m, n, i);
    return !v.i || is_weight(j->m, v) ? v : j->val[v.i];
}

/* The node of a member, with operands of the joint graph but for `in` where it is one. */
static weft_node copy(joiner *j, weft_node n, const weft_val *in)
{
    uint32_t n_in = weft_node_in_count(j->m, n), n_out = weft_node_out_count(j->m, n);
    weft_val *with = weft_arena_array(j->cx->scratch, (size_t)n_in + 1, sizeof *with);
    weft_type *out = weft_arena_array(j->cx->scratch, (size_t)n_out + 1, sizeof *out);
    weft_attrs attrs = weft_node_attrs(j->m, n);
    for (uint32_t i = 0; i < n_in; i++)
        with[i] = in && in[i].i ? in[i] : operand(j, n, i);
    for (uint32_t i = 0; i < n_out; i++)
        out[i] = weft_val_type(j->m, weft_node_out(j->m, n, i));
    weft_node_spec spec = {.op = weft_node_op(j->m, n),
                           .in = with,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attrs.at,
                           .n_attr = attrs.n,
                           .loc = weft_node_loc(j->m, n)};
    return weft_node_append(j->to, &spec);
}

static void set_results(joiner *j, weft_node n, weft_node made)
{
    for (uint32_t i = 0; i < weft_node_out_count(j->m, n); i++)
        j->val[weft_node_out(j->m, n, i).i] = weft_node_out(j->m, made, i);
}

/* The same operands, weights compared by content. */
static bool has_same_operands(joiner *j, weft_node a, weft_node b)
{
    for (uint32_t i = 0; i < weft_node_in_count(j->m, a); i++)
        if (operand(j, a, i).i != operand(j, b, i).i &&
            !(is_weight(j->m, weft_node_in(j->m, a, i)) &&
              same_weight(j->m, weft_node_in(j->m, a, i), weft_node_in(j->m, b, i))))
            return false;
    return true;
}

static bool differs_in(joiner *j, const column *c, uint32_t operand_index)
{
    weft_val first = weft_node_in(j->m, c->first, operand_index);
    for (uint32_t k = 0; is_weight(j->m, first) && k < j->f->n; k++)
        if (c->of[k].i && !same_weight(j->m, first, weft_node_in(j->m, c->of[k], operand_index)))
            return true;
    return false;
}

/* Whether all nodes of the column have the same operands but for weights. */
static bool has_common_values(joiner *j, const column *c)
{
    for (uint32_t i = 0; i < weft_node_in_count(j->m, c->first); i++)
        for (uint32_t k = 0; k < j->f->n; k++)
            if (c->of[k].i && !is_weight(j->m, weft_node_in(j->m, c->first, i)) &&
                operand(j, c->of[k], i).i != operand(j, c->first, i).i)
                return false;
    return true;
}

static weft_val append(joiner *j, weft_op_id op, const weft_val *in, uint32_t n_in,
                       const weft_attr *attr, weft_dtype dtype, const weft_dim *dim, uint32_t rank,
                       weft_loc loc)
{
    weft_ttype type = {.dtype = dtype, .rank = (uint8_t)rank};
    memcpy(type.dim, dim, rank * sizeof *dim);
    return weft_rewrite__append(j->to, op, in, n_in, attr, attr ? 1 : 0, &type, loc);
}

/* -- Weights that differ ---------------------------------------------------------------------- */

/* Whether operand i of the element-wise node, a weight, is the same for all rows: its dims before
 * and at the axis of the rows are 1. */
static bool is_of_features(joiner *j, weft_node n, uint32_t i)
{
    weft_val w = weft_node_in(j->m, n, i), y = weft_node_out(j->m, n, 0);
    const weft_ttype *t = weft_val_ttype(j->m, w), *out = weft_val_ttype(j->m, y);
    uint32_t axis;
    if (!has_rows(j, y, &axis))
        return false;
    for (uint32_t k = 0; k < t->rank; k++)
        if (k + out->rank - t->rank <= axis && t->dim[k] != 1)
            return false;
    return true;
}

/* Operand i of each row, by the model of the row: [rows, features..] behind the axis of the rows of
 * `like`. */
static weft_val gather_by_model(joiner *j, const column *c, uint32_t i, weft_val like)
{
    weft_val w = weft_node_in(j->m, c->first, i);
    const weft_ttype *t = weft_val_ttype(j->m, w), *out = weft_val_ttype(j->m, like);
    uint64_t bytes = weft_weight_get(j->m, weft_val_weight(j->m, w))->bytes;
    uint8_t *all = weft_arena_array(j->cx->scratch, (size_t)(bytes * j->f->n), 1);
    weft_dim dim[WEFT_RANK_MAX] = {0};
    uint32_t axis = 0, rank = 1;
    (void)has_rows(j, like, &axis);
    for (uint32_t k = 0; k < j->f->n; k++) {
        weft_val own = c->of[k].i ? weft_node_in(j->m, c->of[k], i) : w;
        memcpy(all + k * bytes, weft_weight_get(j->m, weft_val_weight(j->m, own))->data, bytes);
    }
    dim[0] = j->f->n;
    for (uint32_t k = axis + 1; k < out->rank; k++, rank++)
        dim[rank] = k + t->rank >= out->rank ? t->dim[k + t->rank - out->rank] : 1;
    weft_val in[2] = {
        weft_rewrite__constant(j->m, (weft_dtype)t->dtype, dim, rank, all, "of each model"),
        j->model};
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, 0);
    dim[0] = j->rows;
    return append(j, WEFT_OP_GATHER, in, 2, &attr, (weft_dtype)t->dtype, dim, rank,
                  weft_node_loc(j->m, c->first));
}

static bool join_element_wise(joiner *j, const column *c, weft_node *out)
{
    uint32_t n_in = weft_node_in_count(j->m, c->first);
    weft_val *in = weft_arena_array(j->cx->scratch, (size_t)n_in + 1, sizeof *in);
    if (!(weft_node_opdef(j->m, c->first)->traits & WEFT_T_EW))
        return false;
    for (uint32_t i = 0; i < n_in; i++)
        if (differs_in(j, c, i) && !is_of_features(j, c->first, i))
            return false;
    for (uint32_t i = 0; i < n_in; i++)
        if (differs_in(j, c, i))
            in[i] = gather_by_model(j, c, i, weft_node_out(j->m, c->first, 0));
    *out = copy(j, c->first, in);
    return true;
}

/* layer_norm(x, scale, bias) ==> layer_norm(x, 1) scale[model] + bias[model] */
static bool join_layer_norm(joiner *j, const column *c, weft_node *out)
{
    weft_node n = c->first;
    weft_val y = weft_node_out(j->m, n, 0), scale = weft_node_in(j->m, n, 1);
    const weft_ttype *t = weft_val_ttype(j->m, y);
    uint32_t axis;
    if (weft_node_op(j->m, n) != WEFT_OP_LAYER_NORM || weft_node_out_count(j->m, n) != 1 ||
        !is_weight(j->m, scale) || t->dtype != WEFT_DTYPE_F32 || !has_rows(j, y, &axis) ||
        axis + 2 != t->rank || weft_val_ttype(j->m, scale)->rank != 1 ||
        !weft_dim_is_const(t->dim[axis + 1]) ||
        (weft_node_in(j->m, n, 2).i && !is_weight(j->m, weft_node_in(j->m, n, 2))))
        return false;
    int64_t width = t->dim[axis + 1];
    float *one = weft_arena_array(j->cx->scratch, (size_t)width, sizeof *one);
    for (int64_t i = 0; i < width; i++)
        one[i] = 1;
    weft_attrs attrs = weft_node_attrs(j->m, n);
    weft_loc loc = weft_node_loc(j->m, n);
    weft_val in[2] = {operand(j, n, 0),
                      weft_rewrite__constant(j->m, WEFT_DTYPE_F32, &width, 1, one, "ones")};
    weft_val made =
        weft_rewrite__append(j->to, WEFT_OP_LAYER_NORM, in, 2, attrs.at, attrs.n, t, loc);
    for (uint32_t i = 1; i < 3 && weft_node_in(j->m, n, i).i; i++) {
        weft_val then[2] = {made, gather_by_model(j, c, i, y)};
        made = weft_rewrite__append(j->to, i == 1 ? WEFT_OP_MUL : WEFT_OP_ADD, then, 2, NULL, 0, t,
                                    loc);
    }
    *out = weft_val_node(j->m, made);
    return true;
}

/* The factors of all members, side by side: u [taps, ranks], v [ranks, features]; those of member k
 * begin at start[k]. */
typedef struct all_factors {
    int64_t taps, features, ranks, start[MEMBERS_MAX];
    float *u, *v;
} all_factors;

/* false: the difference of some member is not of low rank. */
static bool collect_factors(joiner *j, const column *c, all_factors *out)
{
    weft_factors of[MEMBERS_MAX] = {{0}};
    weft_val w = weft_node_in(j->m, c->first, 1);
    weft_matrix base = matrix_of(j->m, w);
    bool by_feature = is_by_feature(j, c->first);
    *out = (all_factors){.taps = by_feature ? base.cols : base.rows,
                         .features = by_feature ? base.rows : base.cols};
    for (uint32_t k = 0; k < j->f->n; k++) {
        if (!c->of[k].i || same_weight(j->m, w, weft_node_in(j->m, c->of[k], 1)))
            continue;
        if (!find_factors(j, c->first, c->of[k], &of[k]))
            return false;
        out->ranks += of[k].rank;
    }
    size_t ranks = (size_t)out->ranks, taps = (size_t)out->taps, at = 0;
    size_t features = (size_t)out->features;
    out->u = weft_arena_array(j->cx->scratch, taps * ranks + 1, sizeof *out->u);
    out->v = weft_arena_array(j->cx->scratch, ranks * features + 1, sizeof *out->v);
    for (uint32_t k = 0; k < j->f->n; at += of[k++].rank) {
        out->start[k] = (int64_t)at;
        for (size_t r = 0; r < of[k].rank; r++) {
            for (size_t i = 0; i < taps; i++)
                out->u[i * ranks + at + r] = of[k].first[i * of[k].rank + r];
            memcpy(out->v + (at + r) * features, of[k].second + r * features,
                   features * sizeof(float));
        }
    }
    return true;
}

/* x w + bias and the factors of each row's model; `in` has x, w and the bias. */
static weft_val multiply_routed(joiner *j, weft_node n, const all_factors *all, weft_val *in)
{
    const weft_dim u_dim[2] = {all->taps, all->ranks}, v_dim[2] = {all->ranks, all->features};
    weft_attr attr[2] = {WEFT_ATTR_OF_INTS(STARTS, all->start, j->f->n),
                         WEFT_ATTR_OF_INT(TRANS_B, 1)};
    in[WEFT_ROUTED_MODEL] = j->model;
    in[WEFT_ROUTED_U] = weft_rewrite__constant(j->m, WEFT_DTYPE_F32, u_dim, 2, all->u, "u");
    in[WEFT_ROUTED_V] = weft_rewrite__constant(j->m, WEFT_DTYPE_F32, v_dim, 2, all->v, "v");
    return weft_rewrite__append(
        j->to, WEFT_OP_ROUTED_MATMUL, in, WEFT_ROUTED_OPERANDS, attr, is_by_feature(j, n) ? 2 : 1,
        weft_val_ttype(j->m, weft_node_out(j->m, n, 0)), weft_node_loc(j->m, n));
}

/* x w + bias, with weights that differ by factors of low rank, and biases gathered by model where
 * they differ. */
static bool join_product(joiner *j, const column *c, weft_node *out)
{
    weft_node n = c->first;
    const weft_ttype *type = weft_val_ttype(j->m, weft_node_out(j->m, n, 0));
    all_factors all;
    if (!is_product(j, n) || !collect_factors(j, c, &all))
        return false;
    weft_loc loc = weft_node_loc(j->m, n);
    weft_val in[WEFT_ROUTED_OPERANDS] = {operand(j, n, 0), operand(j, n, 1), operand(j, n, 2)};
    bool own_bias = in[2].i && differs_in(j, c, 2);
    if (own_bias)
        in[2] = (weft_val){0};
    weft_val sum = all.ranks > 0 ? multiply_routed(j, n, &all, in)
                                 : weft_rewrite__append(j->to, WEFT_OP_MATMUL, in, in[2].i ? 3 : 2,
                                                        weft_node_attrs(j->m, n).at,
                                                        weft_node_attrs(j->m, n).n, type, loc);
    if (own_bias) {
        weft_val with[2] = {sum, gather_by_model(j, c, 2, weft_node_out(j->m, n, 0))};
        sum = weft_rewrite__append(j->to, WEFT_OP_ADD, with, 2, NULL, 0, type, loc);
    }
    *out = weft_val_node(j->m, sum);
    return true;
}

/* -- Columns into nodes ----------------------------------------------------------------------- */

/* Chooses the rows of the members in `mask` from `with`, the others from `value`. */
static weft_val choose_rows(joiner *j, weft_val value, weft_val with, uint32_t mask, uint32_t axis,
                            weft_loc loc)
{
    const weft_ttype *t = weft_val_ttype(j->m, value);
    uint8_t own[MEMBERS_MAX] = {0};
    weft_dim dim[WEFT_RANK_MAX] = {j->f->n};
    for (uint32_t k = 0; k < j->f->n; k++)
        own[k] = mask >> k & 1;
    for (uint32_t k = axis + 1; k < t->rank; k++)
        dim[k - axis] = 1;
    weft_attr attr = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_val in[2] = {
        weft_rewrite__constant(j->m, WEFT_DTYPE_BOOL, dim, t->rank - axis, own, "own rows"),
        j->model};
    dim[0] = j->rows;
    weft_val choice[3] = {
        append(j, WEFT_OP_GATHER, in, 2, &attr, WEFT_DTYPE_BOOL, dim, t->rank - axis, loc), with,
        value};
    return weft_rewrite__append(j->to, WEFT_OP_WHERE, choice, 3, NULL, 0, t, loc);
}

/* A node for each distinct set of operands; where tokens follow, one value again. */
static void copy_each(joiner *j, const column *c)
{
    uint32_t axis, left = 0;
    weft_val joined = {0};
    bool tokens = weft_node_out_count(j->m, c->first) == 1 && has_common_values(j, c) &&
                  has_rows(j, weft_node_out(j->m, c->first, 0), &axis);
    for (uint32_t k = 0; k < j->f->n; k++)
        left |= c->of[k].i ? 1u << k : 0;
    uint32_t all = left;
    for (uint32_t k = 0; k < j->f->n; k++) {
        uint32_t same = 0;
        for (uint32_t i = k; left >> k & 1 && i < j->f->n; i++)
            if (left >> i & 1 && has_same_operands(j, c->of[k], c->of[i]))
                same |= 1u << i;
        if (!same)
            continue;
        weft_node made = copy(j, c->of[k], NULL);
        for (uint32_t i = k; i < j->f->n; i++)
            if (same >> i & 1)
                set_results(j, c->of[i], made);
        weft_val v = weft_node_out(j->m, made, 0);
        if (tokens)
            joined =
                joined.i ? choose_rows(j, joined, v, same, axis, weft_node_loc(j->m, made)) : v;
        left &= ~same;
    }
    for (uint32_t k = 0; tokens && k < j->f->n; k++)
        if (all >> k & 1)
            j->val[weft_node_out(j->m, c->of[k], 0).i] = joined;
}

static void emit(joiner *j, const column *c)
{
    weft_node made = {0};
    bool equal = true;
    for (uint32_t k = 0; k < j->f->n; k++)
        equal = equal && (!c->of[k].i || has_same_operands(j, c->first, c->of[k]));
    if (equal)
        made = copy(j, c->first, NULL);
    else if (!has_common_values(j, c) ||
             !(join_element_wise(j, c, &made) || join_layer_norm(j, c, &made) ||
               join_product(j, c, &made))) {
        copy_each(j, c);
        return;
    }
    for (uint32_t k = 0; k < j->f->n; k++)
        if (c->of[k].i)
            set_results(j, c->of[k], made);
}

/* -- The graph -------------------------------------------------------------------------------- */

static void add_inputs(joiner *j)
{
    const weft_graph *first = j->f->member[0];
    weft_graph_share_symbol(j->to, "rows", j->rows);
    for (uint32_t i = 0; i < weft_graph_input_count(first); i++) {
        weft_val v = weft_graph_add_input(j->to, weft_graph_input_name(first, i),
                                          weft_val_type(j->m, weft_graph_input(first, i)));
        for (uint32_t k = 0; k < j->f->n; k++)
            j->val[weft_graph_input(j->f->member[k], i).i] = v;
    }
    j->model = weft_graph_add_input(j->to, "packed.model",
                                    weft_type_make(j->m, WEFT_DTYPE_I64, &j->rows, 1));
}

static void add_outputs(joiner *j)
{
    for (uint32_t k = 0; k < j->f->n; k++) {
        const weft_graph *g = j->f->member[k];
        const weft_part *part = weft_graph_part(g, 0);
        for (uint32_t i = 0; i < weft_graph_output_count(g); i++) {
            const char *name = weft_arena_printf(j->cx->scratch, "%s/%s", part->model,
                                                 weft_graph_output_name(g, i));
            weft_val v = weft_graph_output(g, i);
            weft_graph_add_output(j->to, name, is_weight(j->m, v) ? v : j->val[v.i]);
        }
        weft_graph_add_part(j->to, part);
    }
    weft_graph_set_packed(j->to);
}

static void build(weft_passctx *cx, weft_module *m, const family *f)
{
    const char *name = weft_arena_printf(cx->scratch, "%s+%u.packed",
                                         weft_graph_part(f->member[0], 0)->model, f->n - 1);
    const char *unique = name;
    for (uint32_t k = 2; weft_graph_find(m, unique); k++)
        unique = weft_arena_printf(cx->scratch, "%s.%u", name, k);
    joiner j = open_joiner(cx, m, f);
    j.to = weft_graph_create(m, unique);
    add_inputs(&j);
    for (size_t i = 0; i < j.columns.len; i++)
        emit(&j, &j.columns.at[i]);
    add_outputs(&j);
}

/* -- Families --------------------------------------------------------------------------------- */

static bool is_listed(const weft_merge_set *set, const weft_graph *packed)
{
    for (size_t i = 0; i < set->n_model; i++)
        if (strcmp(set->model[i], weft_graph_part(packed, 0)->model) == 0)
            return true;
    return false;
}

/* Whether the plan, if there is one, places both models on one slice. */
static bool may_meet(const weft_pass_options *o, const weft_graph *a, const weft_graph *b)
{
    for (size_t i = 0; i < o->n_set; i++)
        if (is_listed(&o->set[i], a) && is_listed(&o->set[i], b))
            return true;
    return !o->set;
}

static bool same_inputs(const weft_graph *a, const weft_graph *b)
{
    const weft_module *m = weft_graph_module(a);
    if (weft_graph_input_count(a) != weft_graph_input_count(b))
        return false;
    for (uint32_t i = 0; i < weft_graph_input_count(a); i++)
        if (weft_val_type(m, weft_graph_input(a, i)).i !=
                weft_val_type(m, weft_graph_input(b, i)).i ||
            strcmp(weft_graph_input_name(a, i), weft_graph_input_name(b, i)) != 0)
            return false;
    return true;
}

/* Why the graph is of no family with the first member of `f`; NULL: it is. */
static const char *find_reason(weft_passctx *cx, const family *f, weft_graph *g)
{
    weft_graph *first = f->member[0];
    const family pair = {.member = {first, g}, .n = 2};
    if (f->n == MEMBERS_MAX || f->outputs + weft_graph_output_count(g) > OUTPUTS_MAX)
        return "the family has as many models or outputs as one program can have";
    if (!may_meet(cx->options, first, g))
        return "the plan places them on different slices";
    if (!same_inputs(first, g))
        return "their inputs or their longest sequences differ";
    return find_difference(cx, weft_graph_module(g), &pair);
}

static void log_family(weft_passctx *cx, const family *f)
{
    weft_merge_log *log = cx->options->merge_log;
    for (size_t i = 0; log && f->n > 1 && i < log->packs.len; i++)
        for (uint32_t k = 0; k < f->n; k++)
            if (strcmp(log->packs.at[i].model, weft_graph_part(f->member[k], 0)->model) == 0)
                log->packs.at[i].together_with = f->n - 1;
}

static void log_reason(weft_passctx *cx, const weft_graph *g, const weft_graph *first,
                       const char *reason)
{
    weft_merge_log *log = cx->options->merge_log;
    for (size_t i = 0; log && i < log->packs.len; i++)
        if (strcmp(log->packs.at[i].model, weft_graph_part(g, 0)->model) == 0)
            log->packs.at[i].apart = weft_arena_printf(log->arena, "from %s: %s",
                                                       weft_graph_part(first, 0)->model, reason);
}

static bool is_alone(const weft_pass_options *o, const weft_graph *packed)
{
    for (size_t i = 0; i < o->n_alone; i++)
        if (strcmp(o->alone[i], weft_graph_part(packed, 0)->model) == 0)
            return true;
    return false;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    uint32_t n = weft_graph_count(m);
    WEFT_VEC(family) families = {0};
    if (cx->options->merge == WEFT_MERGE_OFF || cx->options->merge == WEFT_MERGE_EXACT)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        weft_graph *g = weft_graph_at(m, i);
        if (!weft_graph_is_packed(g) || is_alone(cx->options, g))
            continue;
        const char *reason = NULL;
        size_t k = 0;
        while (k < families.len && (reason = find_reason(cx, &families.at[k], g)) != NULL)
            k++;
        if (reason && k == families.len)
            log_reason(cx, g, families.at[k - 1].member[0], reason);
        if (k == families.len)
            WEFT_VEC_PUSH(cx->scratch, &families, (family){0});
        family *f = &families.at[k];
        f->member[f->n++] = g;
        f->outputs += weft_graph_output_count(g);
    }
    for (size_t k = 0; k < families.len; k++) {
        if (families.at[k].n < 2 || !weft_rewrite__allow(cx))
            continue;
        build(cx, m, &families.at[k]);
        log_family(cx, &families.at[k]);
        *changed = true;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_pack_family = {
    .name = "pack-family",
    .brief = "one packed program for all models of a family",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES,
    .breaks = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
