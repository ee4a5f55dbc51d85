/* How values depend on one symbol along an axis, and by it the symbol along which requests may be
 * batched: weft_graph_batch_symbol. pack-sequences follows the length of sequences by it, too.
 *
 * A forward data-flow analysis. The state of a value is NONE (independent of the batch), AXIS (the
 * batch is on one axis, and index i of that axis depends only on index i of the operands' batch
 * axes), or MIXED. After a reshape the axis may hold more than the batch: [b, s, h] as [b * s, h],
 * or, where sequences come first, [s, b, h] as [s * b, h]. It is then `outer * batch * inner`, and
 * its index (o * batch + b) * inner + i belongs to request b. A node without a matching rule makes
 * its results MIXED; a graph with a MIXED output cannot be batched. */
#include "base/map.h"
#include "ir/ir_int.h"

#include <string.h>

typedef weft_spread spread;

typedef struct weft_spreads {
    weft_module *m;
    const weft_graph *g;
    weft_arena *arena;
    weft_dimpool *dims; /* a copy: the module must not change */
    weft_dim batch;
    spread *of;         /* by value */
    weft_map *mentions; /* by dim */
} analysis;

/* The node to which a rule is applied. */
typedef struct view {
    analysis *a;
    weft_node n;
    const spread *in; /* of operands; omitted ones are WEFT_SPREAD_NONE */
    const weft_ttype *const *type;
    uint32_t n_in;
    weft_attrs attrs;
    const weft_ttype *out; /* of the first result that is wanted */
    const spread *first;   /* of the first operand with the batch */
    uint32_t first_in;     /* which */
} view;

/* Changes `at`, where the batch is in the first operand with it, to where it is in the results;
 * false: they are MIXED. */
typedef bool (*rule_fn)(const view *v, spread *at);

/* -- Dims ------------------------------------------------------------------------------------- */

static bool mentions_batch(analysis *a, weft_dim d)
{
    if (weft_dim_is_const(d))
        return false;
    uint64_t known;
    if (weft_map_get(a->mentions, (uint64_t)d, &known))
        return known;
    weft_buf text = {0}, name = {0};
    weft_dim_print(a->dims, d, &text);
    weft_dim_print(a->dims, a->batch, &name);
    bool found = text.failed || name.failed;
    for (const char *at = text.at; at && !found && (at = strstr(at, name.at)); at++)
        found = !weft_text__is_name(at[name.len]);
    weft_buf_finish(&text);
    weft_buf_finish(&name);
    weft_map_put(a->mentions, (uint64_t)d, found);
    return found;
}

static bool type_mentions(analysis *a, const weft_ttype *t)
{
    for (uint32_t k = 0; k < t->rank; k++)
        if (mentions_batch(a, t->dim[k]))
            return true;
    return false;
}

/* true when the type has outer * batch * inner on the axis and the batch nowhere else. */
static bool fits(analysis *a, const weft_ttype *t, const spread *at)
{
    weft_dim each = weft_dim_mul(a->dims, at->outer, at->inner);
    if (at->axis >= t->rank || t->dim[at->axis] != weft_dim_mul(a->dims, a->batch, each))
        return false;
    for (uint32_t k = 0; k < t->rank; k++)
        if (k != at->axis && mentions_batch(a, t->dim[k]))
            return false;
    return !mentions_batch(a, at->outer) && !mentions_batch(a, at->inner);
}

/* -- Parameters ------------------------------------------------------------------------------- */

static bool fix_axis(int64_t axis, uint32_t rank, uint32_t *out)
{
    if (axis < 0)
        axis += rank;
    *out = (uint32_t)axis;
    return axis >= 0 && axis < (int64_t)rank;
}

static uint32_t rank_in(const view *v, uint32_t i)
{
    return i < v->n_in && v->type[i] ? v->type[i]->rank : 0;
}

static bool has_in(const view *v, uint32_t i)
{
    return i < v->n_in && v->type[i];
}

static bool is_none(const view *v, uint32_t i)
{
    return i >= v->n_in || v->in[i].kind == WEFT_SPREAD_NONE;
}

/* Constant integers of attribute `key` or of operand `i`. true with NULL when neither is there. */
static bool get_ints(const view *v, uint32_t i, weft_attr_key key, const int64_t **out, uint32_t *n)
{
    *out = NULL;
    *n = 0;
    if (weft_attrs_find(v->attrs, key)) {
        *out = weft_attrs_ints(v->attrs, key, n);
        return *out || *n == 0;
    }
    if (!has_in(v, i))
        return true;
    weft_weight w = weft_val_weight(v->a->m, weft_node_in(v->a->m, v->n, i));
    if (!w.i)
        return false;
    weft_tensor t = weft_weight_tensor(v->a->m, w);
    int64_t count = weft_tensor_numel(&t);
    if (!weft_dtype_is_int(t.dtype) || count > WEFT_FOLLOW_MAX)
        return false;
    uint64_t aligned[WEFT_FOLLOW_MAX];
    if (count)
        memcpy(aligned, t.data, weft_tensor_bytes(&t));
    t.data = aligned;
    int64_t *list = weft_arena_array(v->a->arena, (size_t)count, sizeof *list);
    for (int64_t k = 0; k < count; k++)
        list[k] = weft_tensor_get_i64(&t, k);
    *out = list;
    *n = (uint32_t)count;
    return true;
}

/* true when `axis` of operand 0 is known not to be in the list of axes. */
static bool is_outside(const view *v, const int64_t *axes, uint32_t n, uint32_t axis)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t fixed;
        if (!fix_axis(axes[i], rank_in(v, 0), &fixed) || fixed == axis)
            return false;
    }
    return true;
}

/* No operand from number `from` on depends on the batch. */
static bool rest_is_none(const view *v, uint32_t from)
{
    for (uint32_t i = from; i < v->n_in; i++)
        if (!is_none(v, i))
            return false;
    return true;
}

/* Operand i has the batch on the same axis, in the same order of indices. */
static bool is_at(const view *v, uint32_t i, uint32_t axis, const spread *at)
{
    if (i >= v->n_in)
        return false;
    const spread *s = &v->in[i];
    return s->kind == WEFT_SPREAD_AXIS && s->axis == axis &&
           (s->constant || (s->outer == at->outer && s->inner == at->inner));
}

/* Operand i, broadcast to a result of `rank` axes, has the batch where `at` says or is constant
 * along that axis. */
static bool broadcasts(const view *v, uint32_t i, uint32_t rank, const spread *at)
{
    if (!has_in(v, i))
        return true;
    uint32_t own = rank_in(v, i), before = rank - own;
    if (own > rank)
        return false;
    if (v->in[i].kind == WEFT_SPREAD_AXIS)
        return at->axis >= before && is_at(v, i, at->axis - before, at);
    return v->in[i].kind == WEFT_SPREAD_NONE &&
           (at->axis < before || v->type[i]->dim[at->axis - before] == 1);
}

/* Moves the axis as a broadcast of the first operand with the batch to `rank` axes does. */
static bool shift_axis(const view *v, uint32_t rank, spread *at)
{
    uint32_t own = rank_in(v, v->first_in);
    at->axis = (uint8_t)(at->axis + rank - own);
    return own <= rank;
}

/* -- Rules ------------------------------------------------------------------------------------ */

static bool rule_ew(const view *v, spread *at)
{
    if (!shift_axis(v, v->out->rank, at))
        return false;
    at->constant = v->first->constant;
    for (uint32_t i = v->first_in; at->constant && i < v->n_in; i++)
        if (v->in[i].kind == WEFT_SPREAD_AXIS && !v->in[i].constant) {
            at->constant = false;
            at->outer = v->in[i].outer;
            at->inner = v->in[i].inner;
        }
    for (uint32_t i = 0; i < v->n_in; i++)
        if (!broadcasts(v, i, v->out->rank, at))
            return false;
    return true;
}

/* Each element depends on one element of operand 0; the other operands are parameters. */
static bool rule_first(const view *v, spread *at)
{
    (void)at;
    return v->first_in == 0 && rest_is_none(v, 1);
}

/* Each row of the result depends on the same row of operand 0, a matrix. */
static bool rule_rows(const view *v, spread *at)
{
    return rule_first(v, at) && at->axis == 0;
}

/* Rows are told apart by the part of the batch to which they belong: it must be the outermost axis,
 * and all of operand 0's rows must have it. */
static bool rule_outermost(const view *v, spread *at)
{
    return rule_rows(v, at) && at->outer == 1;
}

/* Images: everything but axis 0 may mix. Operands from 3 on are those of the epilogue. */
static bool rule_images(const view *v, spread *at)
{
    if (v->first_in != 0 || at->axis != 0 || !is_none(v, 1) || !is_none(v, 2))
        return false;
    if (weft_attrs_int(v->attrs, WEFT_ATTR_TRAINING_MODE, 0))
        return false;
    for (uint32_t i = 3; i < v->n_in; i++)
        if (weft_attrs_find(v->attrs, WEFT_ATTR_EPILOGUE) ? !broadcasts(v, i, v->out->rank, at)
                                                          : !is_none(v, i))
            return false;
    return true;
}

/* The node computes along one axis, which must not be the batch axis. */
static bool rule_along(const view *v, int64_t along, const spread *at)
{
    uint32_t fixed;
    return v->first_in == 0 && rest_is_none(v, 1) && fix_axis(along, rank_in(v, 0), &fixed) &&
           fixed != at->axis;
}

static bool rule_axis_last(const view *v, spread *at)
{
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), at);
}

static bool rule_axis_first(const view *v, spread *at)
{
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), at);
}

/* A scale for the whole tensor, or one for each element along an axis. */
static bool rule_quantize(const view *v, spread *at)
{
    if (rank_in(v, 1) == 0)
        return rule_first(v, at);
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 1), at);
}

static bool rule_cum_sum(const view *v, spread *at)
{
    const int64_t *along;
    uint32_t n;
    return get_ints(v, 1, WEFT_ATTR_AXIS, &along, &n) && n == 1 && rule_along(v, along[0], at);
}

static bool rule_layer_norm(const view *v, spread *at)
{
    uint32_t from;
    return rule_first(v, at) &&
           fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), rank_in(v, 0), &from) &&
           at->axis < from;
}

static bool rule_mean_variance_norm(const view *v, spread *at)
{
    const int64_t *axes;
    uint32_t n;
    return rule_first(v, at) && get_ints(v, UINT32_MAX, WEFT_ATTR_AXES, &axes, &n) && n &&
           is_outside(v, axes, n, at->axis);
}

static bool drop_axes(const view *v, const int64_t *axes, uint32_t n, bool keep, spread *at)
{
    uint32_t before = 0;
    if (!n || !is_outside(v, axes, n, at->axis))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t fixed = 0;
        before += fix_axis(axes[i], rank_in(v, 0), &fixed) && fixed < at->axis;
    }
    at->axis = (uint8_t)(at->axis - (keep ? 0 : before));
    return true;
}

static bool rule_reduce(const view *v, spread *at)
{
    const int64_t *axes;
    uint32_t n;
    return v->first_in == 0 && get_ints(v, 1, WEFT_ATTR_AXES, &axes, &n) &&
           drop_axes(v, axes, n, weft_attrs_int(v->attrs, WEFT_ATTR_KEEPDIMS, 1), at);
}

static bool rule_arg(const view *v, spread *at)
{
    int64_t along = weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0);
    return drop_axes(v, &along, 1, weft_attrs_int(v->attrs, WEFT_ATTR_KEEPDIMS, 1), at);
}

/* Where a GEMM's result has the batch: from operand 0 in its rows or batch dims, from operand 1 in
 * its columns or batch dims; the other operand must not depend on the batch. */
static bool follow_gemm(const view *v, bool trans_a, bool trans_b, spread *at)
{
    uint32_t rank = v->out->rank, i = v->first_in;
    uint32_t ra = rank_in(v, 0), rb = rank_in(v, 1), own = rank_in(v, i);
    if (i > 1 || ra < 2 || rb < 1 || (i == 1 && rb < 2))
        return false;
    uint32_t from_end = own - at->axis; /* 1: last axis */
    if (rb == 1)
        return i == 0 && from_end >= 2 && !trans_a && is_none(v, 1);
    if (from_end <= 2) {
        bool swapped = i == 0 ? trans_a : trans_b;
        bool is_last = (from_end == 1) != swapped;
        at->axis = (uint8_t)(i == 0 ? rank - 2 : rank - 1);
        /* Rows of operand 0, columns of operand 1; the sum over the inner dim mixes. */
        return is_last == (i == 1) && is_none(v, 1 - i);
    }
    return shift_axis(v, rank, at) && broadcasts(v, 1 - i, rank, at);
}

static bool rule_matmul(const view *v, spread *at)
{
    if (!follow_gemm(v, weft_attrs_int(v->attrs, WEFT_ATTR_TRANS_A, 0),
                     weft_attrs_int(v->attrs, WEFT_ATTR_TRANS_B, 0), at))
        return false;
    for (uint32_t i = 2; i < v->n_in; i++)
        if (!broadcasts(v, i, v->out->rank, at))
            return false;
    return true;
}

/* One segment: a GEMM, whose other weights are the same for all requests. The rows of a request may
 * be in any of several segments. */
static bool rule_segments(const view *v, spread *at)
{
    const weft_attr *starts = weft_attrs_find(v->attrs, WEFT_ATTR_STARTS);
    uint32_t end = weft_epilogue_first(weft_node_op(v->a->m, v->n), v->attrs);
    if (!starts || starts->n != 1 ||
        !follow_gemm(v, false, weft_attrs_int(v->attrs, WEFT_ATTR_TRANS_B, 0), at))
        return false;
    for (uint32_t i = 2; i < v->n_in; i++)
        if (i > 2 && i < end ? !is_none(v, i) : !broadcasts(v, i, v->out->rank, at))
            return false;
    return true;
}

static bool rule_gemm(const view *v, spread *at)
{
    return follow_gemm(v, weft_attrs_int(v->attrs, WEFT_ATTR_TRANSA, 0),
                       weft_attrs_int(v->attrs, WEFT_ATTR_TRANSB, 0), at) &&
           broadcasts(v, 2, 2, at);
}

static bool rule_matmul_integer(const view *v, spread *at)
{
    return rank_in(v, 2) == 0 && rank_in(v, 3) == 0 && rest_is_none(v, 2) &&
           follow_gemm(v, false, false, at);
}

/* One element, or omitted. */
static bool is_single(const view *v, uint32_t i)
{
    return !has_in(v, i) || rank_in(v, i) == 0 || (rank_in(v, i) == 1 && v->type[i]->dim[0] == 1);
}

/* As of a GEMM or convolution of operands 0 and 3; the scales, zero points and the bias are the
 * same for all requests. */
static bool rule_qlinear_matmul(const view *v, spread *at)
{
    uint32_t from_end = rank_in(v, 0) - at->axis;
    if (v->first_in != 0 || rank_in(v, 0) < 2 || from_end < 2)
        return false;
    bool batched = rank_in(v, 3) > 2 && from_end > 2;
    if (!shift_axis(v, v->out->rank, at) || !is_single(v, WEFT_QLINEAR_A_SCALE) ||
        !is_single(v, WEFT_QLINEAR_A_ZERO))
        return false;
    for (uint32_t i = 1; i < v->n_in; i++)
        if (i >= WEFT_QLINEAR_OPERANDS || (i == 3 && batched) ? !broadcasts(v, i, v->out->rank, at)
                                                              : !is_none(v, i))
            return false;
    return rank_in(v, 3) >= 2;
}

static bool rule_qlinear_conv(const view *v, spread *at)
{
    if (v->first_in != 0 || at->axis != 0)
        return false;
    for (uint32_t i = 1; i < v->n_in; i++)
        if (i < WEFT_QLINEAR_OPERANDS ? !is_none(v, i) : !broadcasts(v, i, v->out->rank, at))
            return false;
    return true;
}

static bool rule_attention(const view *v, spread *at)
{
    for (uint32_t i = 0; i < 3; i++)
        if (!is_at(v, i, 0, at))
            return false;
    at->axis = 0;
    return !has_in(v, 4) && broadcasts(v, 3, 4, at);
}

/* A reshape keeps row-major order: as many indices come before the batch in the result, those of
 * the outer dims and `outer`, as in the operand. */
static bool rule_reshape(const view *v, spread *at)
{
    weft_dimpool *dims = v->a->dims;
    weft_dim before = at->outer, each;
    uint32_t k = 0;
    if (v->first_in != 0 || !rest_is_none(v, 1))
        return false;
    for (uint32_t i = 0; i < at->axis; i++)
        before = weft_dim_mul(dims, before, v->type[0]->dim[i]);
    weft_dim seen = 1;
    for (; k < v->out->rank && !mentions_batch(v->a, v->out->dim[k]); k++)
        seen = weft_dim_mul(dims, seen, v->out->dim[k]);
    at->axis = (uint8_t)k;
    return k < v->out->rank && weft_dim_div_exact(dims, before, seen, &at->outer) &&
           weft_dim_div_exact(dims, v->out->dim[k], v->a->batch, &each) &&
           weft_dim_div_exact(dims, each, at->outer, &at->inner);
}

static bool rule_transpose(const view *v, spread *at)
{
    const int64_t *perm;
    uint32_t n, rank = rank_in(v, 0), from = at->axis;
    if (!get_ints(v, UINT32_MAX, WEFT_ATTR_PERM, &perm, &n))
        return false;
    at->axis = (uint8_t)(rank - 1 - from);
    for (uint32_t k = 0; k < n; k++)
        if (perm[k] == from || perm[k] + rank == from)
            at->axis = (uint8_t)k;
    return n == 0 || n == rank;
}

static bool rule_concat(const view *v, spread *at)
{
    uint32_t along;
    if (!fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), v->out->rank, &along) ||
        along == at->axis)
        return false;
    for (uint32_t i = 0; i < v->n_in; i++)
        if (!is_at(v, i, at->axis, at))
            return false;
    return true;
}

static bool rule_slice(const view *v, spread *at)
{
    const int64_t *axes, *starts;
    uint32_t n, n_start;
    if (!rule_first(v, at) || !get_ints(v, 3, WEFT_ATTR_AXES, &axes, &n))
        return false;
    if (axes)
        return is_outside(v, axes, n, at->axis);
    /* Without axes, the first ones. */
    return get_ints(v, 1, WEFT_ATTR_STARTS, &starts, &n_start) && n_start <= at->axis;
}

static bool rule_pad(const view *v, spread *at)
{
    const int64_t *pads, *axes;
    uint32_t n, n_axes, rank = rank_in(v, 0);
    if (!rule_first(v, at) || !get_ints(v, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        return false;
    if (axes)
        return is_outside(v, axes, n_axes, at->axis);
    return get_ints(v, 1, WEFT_ATTR_PADS, &pads, &n) && n == 2 * rank && pads[at->axis] == 0 &&
           pads[at->axis + rank] == 0;
}

static bool rule_gather(const view *v, spread *at)
{
    uint32_t along, from = at->axis;
    if (!fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), rank_in(v, 0), &along))
        return false;
    if (v->first_in == 1) {
        at->axis = (uint8_t)(along + from);
        return true;
    }
    at->axis = (uint8_t)(from < along ? from : from + rank_in(v, 1) - 1);
    return from != along && is_none(v, 1);
}

static bool rule_gather_elements(const view *v, spread *at)
{
    uint32_t along;
    return is_at(v, 0, at->axis, at) && is_at(v, 1, at->axis, at) &&
           fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), rank_in(v, 0), &along) &&
           along != at->axis;
}

static bool rule_gather_nd(const view *v, spread *at)
{
    int64_t batch_dims = weft_attrs_int(v->attrs, WEFT_ATTR_BATCH_DIMS, 0);
    if (batch_dims == 0)
        return is_none(v, 0) && at->axis + 1u < rank_in(v, 1);
    return at->axis < batch_dims && is_at(v, 0, at->axis, at) && is_at(v, 1, at->axis, at);
}

static bool rule_one_hot(const view *v, spread *at)
{
    uint32_t along;
    if (v->first_in != 0 || !rest_is_none(v, 1) ||
        !fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), v->out->rank, &along))
        return false;
    at->axis = (uint8_t)(at->axis + (at->axis >= along));
    return true;
}

/* A tile keeps the batch only if it repeats that axis once, which the check of the result's type
 * ensures. */
static bool rule_expand(const view *v, spread *at)
{
    return rule_first(v, at) && shift_axis(v, v->out->rank, at);
}

static bool rule_trilu(const view *v, spread *at)
{
    return rule_first(v, at) && at->axis + 2u < rank_in(v, 0);
}

/* Operands and results are [..., batch, features]: the batch is the last but one axis. */
static bool rule_recurrent(const view *v, spread *at)
{
    if (v->first_in != 0 || at->axis != 1 || v->out->rank < 2 ||
        weft_attrs_int(v->attrs, WEFT_ATTR_QUANTIZE_STATE, 0))
        return false;
    for (uint32_t i = 1; i < v->n_in; i++) {
        bool state = i == 5 || i == 6;
        if (!is_none(v, i) && !(i == 4 && is_at(v, i, 0, at)) && !(state && is_at(v, i, 1, at)))
            return false;
    }
    at->axis = (uint8_t)(v->out->rank - 2);
    return true;
}

/* Axis 0 numbers samples that do not mix; operands without it are parameters of all of them. */
static bool rule_samples(const view *v, spread *at)
{
    for (uint32_t i = 0; i < v->n_in; i++)
        if (has_in(v, i) && !is_none(v, i) && !is_at(v, i, 0, at))
            return false;
    at->axis = 0;
    return true;
}

/* By column BATCH of ops.def. */
static const rule_fn rules[WEFT_BATCH_COUNT] = {
#define R(rule, name) [WEFT_BATCH_##rule] = rule_##name,
#include "ops/batch_rules.def"
#undef R
};

/* -- Nodes ------------------------------------------------------------------------------------ */

/* A result of WEFT_T_FILL whose operands do not depend on the batch: constant along the axis. */
static spread spread_fill(const view *v, const weft_op *op)
{
    analysis *a = v->a;
    spread s = {.kind = WEFT_SPREAD_AXIS, .constant = true, .outer = 1};
    while (s.axis < v->out->rank && !mentions_batch(a, v->out->dim[s.axis]))
        s.axis++;
    if (s.axis >= v->out->rank ||
        !weft_dim_div_exact(a->dims, v->out->dim[s.axis], a->batch, &s.inner) ||
        (op->in_min > 0 && !broadcasts(v, 0, v->out->rank, &s)))
        s.kind = WEFT_SPREAD_MIXED;
    return s;
}

static bool attrs_mention(analysis *a, weft_attrs attrs)
{
    for (uint32_t i = 0; i < attrs.n; i++)
        for (uint32_t k = 0; attrs.at[i].kind == WEFT_KIND_DIMS && k < attrs.at[i].n; k++)
            if (mentions_batch(a, attrs.at[i].u.dims[k]))
                return true;
    return false;
}

static spread spread_node(const view *v)
{
    analysis *a = v->a;
    const spread none = {.kind = WEFT_SPREAD_NONE}, mixed = {.kind = WEFT_SPREAD_MIXED};
    const weft_op *op = weft_node_opdef(a->m, v->n);
    for (uint32_t i = 0; i < v->n_in; i++)
        if (v->in[i].kind == WEFT_SPREAD_MIXED)
            return mixed;
    if (!v->first) {
        if (op->traits & (WEFT_T_RANDOM | WEFT_T_PER_RUN))
            return mixed;
        if ((op->traits & WEFT_T_FILL) && type_mentions(a, v->out))
            return spread_fill(v, op);
        return attrs_mention(a, v->attrs) || type_mentions(a, v->out) ? mixed : none;
    }
    rule_fn rule = rules[op->batch];
    spread at = *v->first;
    at.constant = false;
    if (!rule || (op->traits & WEFT_T_RANDOM) || v->n_in < op->in_min || !rule(v, &at))
        return mixed;
    return at;
}

static void visit(analysis *a, weft_node n)
{
    uint32_t n_in = weft_node_in_count(a->m, n);
    spread *in = weft_arena_array(a->arena, n_in, sizeof *in);
    const weft_ttype **type = weft_arena_array(a->arena, n_in, sizeof *type);
    view v = {.a = a, .n = n, .in = in, .type = type, .n_in = n_in};
    v.attrs = weft_node_attrs(a->m, n);
    uint32_t n_out = weft_node_out_count(a->m, n);
    for (uint32_t i = n_out; i-- > 0;) {
        const weft_ttype *t = weft_val_ttype(a->m, weft_node_out(a->m, n, i));
        if (t->dtype != WEFT_DTYPE_NONE || !v.out)
            v.out = t;
    }
    if (!v.out)
        return;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val val = weft_node_in(a->m, n, i);
        if (!val.i)
            continue;
        in[i] = a->of[val.i];
        type[i] = weft_val_ttype(a->m, val);
        if (in[i].kind == WEFT_SPREAD_AXIS && !v.first) {
            v.first = &in[i];
            v.first_in = i;
        }
    }
    spread s = spread_node(&v);
    for (uint32_t i = 0; i < n_out; i++) {
        weft_val out = weft_node_out(a->m, n, i);
        const weft_ttype *t = weft_val_ttype(a->m, out);
        spread *to = &a->of[out.i];
        *to = s;
        /* In results of other ranks the batch axis has the same distance from the last axis. */
        to->axis = (uint8_t)(s.axis + t->rank - v.out->rank);
        if ((s.kind == WEFT_SPREAD_AXIS && !fits(a, t, to)) ||
            (s.kind == WEFT_SPREAD_NONE && type_mentions(a, t)))
            to->kind = WEFT_SPREAD_MIXED;
    }
}

/* -- The door --------------------------------------------------------------------------------- */

weft_spreads *weft_spreads_create(const weft_graph *g, weft_dim symbol, weft_arena *arena)
{
    analysis *a = weft_arena_alloc(arena, sizeof *a);
    *a = (analysis){.m = weft_graph_module(g), .g = g, .arena = arena, .batch = symbol};
    a->dims = weft_dimpool_clone(weft_module_dims(a->m), arena);
    a->of = weft_arena_array(arena, weft_val_count(a->m) + (size_t)1, sizeof *a->of);
    a->mentions = weft_map_create(arena);
    return a;
}

void weft_spreads_set(weft_spreads *s, weft_val v, const weft_spread *of)
{
    s->of[v.i] = *of;
}

weft_spread weft_spreads_get(const weft_spreads *s, weft_val v)
{
    return s->of[v.i];
}

void weft_spreads_visit(weft_spreads *s, weft_node n)
{
    visit(s, n);
}

bool weft_spreads_mention(weft_spreads *s, weft_dim d)
{
    return mentions_batch(s, d);
}

/* -- The graph -------------------------------------------------------------------------------- */

static bool starts_with_batch(const analysis *a, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(a->m, v);
    return t->rank && t->dim[0] == a->batch;
}

static bool is_batchable(analysis *a)
{
    for (uint32_t i = 0; i < weft_graph_input_count(a->g); i++) {
        weft_val v = weft_graph_input(a->g, i);
        spread *at = &a->of[v.i];
        *at = (spread){.kind = WEFT_SPREAD_AXIS, .outer = 1, .inner = 1};
        if (!starts_with_batch(a, v) || !fits(a, weft_val_ttype(a->m, v), at))
            return false;
    }
    WEFT_FOREACH_NODE (a->m, a->g, n)
        visit(a, n);
    for (uint32_t i = 0; i < weft_graph_output_count(a->g); i++) {
        weft_val v = weft_graph_output(a->g, i);
        spread s = a->of[v.i];
        if (s.kind != WEFT_SPREAD_AXIS || s.axis != 0 || s.outer != 1 || s.inner != 1 ||
            !starts_with_batch(a, v))
            return false;
    }
    return true;
}

/* false: out of memory. */
static bool find_batch(const weft_graph *g, weft_arena *arena, uint32_t *out)
{
    jmp_buf env;
    *out = UINT32_MAX;
    weft_arena_guard(arena, &env);
    if (setjmp(env))
        return false;
    weft_dim first = weft_val_ttype(weft_graph_module(g), weft_graph_input(g, 0))->dim[0];
    uint32_t i = 0;
    while (i < weft_graph_symbol_count(g) && weft_graph_symbol_dim(g, i) != first)
        i++;
    if (i < weft_graph_symbol_count(g) && is_batchable(weft_spreads_create(g, first, arena)))
        *out = i;
    return true;
}

uint32_t weft_graph_batch_symbol(const weft_graph *g)
{
    if (weft_graph_input_count(g) == 0 || weft_graph_output_count(g) == 0)
        return UINT32_MAX;
    weft_arena *arena = weft_arena_create(0);
    uint32_t symbol = UINT32_MAX;
    bool found = arena && find_batch(g, arena, &symbol);
    weft_arena_destroy(arena);
    /* Not NONE, with which the model would never be batched. */
    if (!found)
        weft_arena_exhaust(weft_module_arena(weft_graph_module(g)));
    return symbol;
}
