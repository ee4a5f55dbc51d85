/* Finds the symbol along which requests may be batched: weft_graph_batch_symbol.
 *
 * A forward data-flow analysis. The state of a value is NONE (independent of the batch), AXIS (the
 * batch is on one axis, and index i of that axis depends only on index i of the operands' batch
 * axes), or MIXED. After a reshape the axis may hold more than the batch, [b, s, h] as [b * s, h]:
 * it is then `batch * inner`, batch outermost. A node without a matching rule makes its results
 * MIXED; a graph with a MIXED output cannot be batched. */
#include "base/map.h"
#include "ir/ir_int.h"

#include <string.h>

typedef enum spread_kind { SPREAD_NONE, SPREAD_AXIS, SPREAD_MIXED } spread_kind;

typedef struct spread {
    uint8_t kind; /* spread_kind */
    uint8_t axis;
    weft_dim inner; /* dim[axis] == batch * inner */
} spread;

typedef struct analysis {
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
    const spread *in; /* of operands; omitted ones are SPREAD_NONE */
    const weft_ttype *const *type;
    uint32_t n_in;
    weft_attrs attrs;
    const weft_ttype *out; /* of the first result that is wanted */
    const spread *first;   /* of the first operand with the batch */
    uint32_t first_in;     /* which */
} view;

/* Computes the batch axis of the results; false: they are MIXED. `*inner` holds the operands'
 * value, which a rule may change. */
typedef bool (*rule_fn)(const view *v, uint32_t *axis, weft_dim *inner);

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

/* true when the type has batch * inner on `axis` and the batch nowhere else. */
static bool fits(analysis *a, const weft_ttype *t, uint32_t axis, weft_dim inner)
{
    if (axis >= t->rank || t->dim[axis] != weft_dim_mul(a->dims, a->batch, inner))
        return false;
    for (uint32_t k = 0; k < t->rank; k++)
        if (k != axis && mentions_batch(a, t->dim[k]))
            return false;
    return !mentions_batch(a, inner);
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
    return i >= v->n_in || v->in[i].kind == SPREAD_NONE;
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

/* Operand i, broadcast to a result of `rank` axes, has the batch on `axis` or is constant along it.
 */
static bool broadcasts(const view *v, uint32_t i, uint32_t rank, uint32_t axis, weft_dim inner)
{
    if (!has_in(v, i))
        return true;
    uint32_t own = rank_in(v, i);
    if (own > rank)
        return false;
    if (v->in[i].kind == SPREAD_AXIS)
        return v->in[i].axis + rank - own == axis && v->in[i].inner == inner;
    uint32_t before = rank - own;
    return v->in[i].kind == SPREAD_NONE && (axis < before || v->type[i]->dim[axis - before] == 1);
}

/* -- Rules ------------------------------------------------------------------------------------ */

static bool rule_ew(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t rank = v->out->rank, own = rank_in(v, v->first_in);
    if (own > rank)
        return false;
    *axis = v->first->axis + rank - own;
    for (uint32_t i = 0; i < v->n_in; i++)
        if (!broadcasts(v, i, rank, *axis, *inner))
            return false;
    return true;
}

/* Each element depends on one element of operand 0; the other operands are parameters. */
static bool rule_first(const view *v, uint32_t *axis, weft_dim *inner)
{
    (void)inner;
    *axis = v->in[0].axis;
    return v->first_in == 0 && rest_is_none(v, 1);
}

/* Each row of the result depends on the same row of operand 0, a matrix. */
static bool rule_rows(const view *v, uint32_t *axis, weft_dim *inner)
{
    return rule_first(v, axis, inner) && *axis == 0;
}

/* Images: everything but axis 0 may mix. Operands from 3 on are those of the epilogue. */
static bool rule_images(const view *v, uint32_t *axis, weft_dim *inner)
{
    *axis = 0;
    if (v->first_in != 0 || v->first->axis != 0 || !is_none(v, 1) || !is_none(v, 2))
        return false;
    if (weft_attrs_int(v->attrs, WEFT_ATTR_TRAINING_MODE, 0))
        return false;
    for (uint32_t i = 3; i < v->n_in; i++)
        if (weft_attrs_find(v->attrs, WEFT_ATTR_EPILOGUE)
                ? !broadcasts(v, i, v->out->rank, 0, *inner)
                : !is_none(v, i))
            return false;
    return true;
}

/* The node computes along one axis, which must not be the batch axis. */
static bool rule_along(const view *v, int64_t along, uint32_t *axis)
{
    uint32_t fixed;
    *axis = v->in[0].axis;
    return v->first_in == 0 && rest_is_none(v, 1) && fix_axis(along, rank_in(v, 0), &fixed) &&
           fixed != *axis;
}

static bool rule_axis_last(const view *v, uint32_t *axis, weft_dim *inner)
{
    (void)inner;
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), axis);
}

static bool rule_axis_first(const view *v, uint32_t *axis, weft_dim *inner)
{
    (void)inner;
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), axis);
}

/* A scale for the whole tensor, or one for each element along an axis. */
static bool rule_quantize(const view *v, uint32_t *axis, weft_dim *inner)
{
    if (rank_in(v, 1) == 0)
        return rule_first(v, axis, inner);
    return rule_along(v, weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 1), axis);
}

static bool rule_cum_sum(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *at;
    uint32_t n;
    (void)inner;
    return get_ints(v, 1, WEFT_ATTR_AXIS, &at, &n) && n == 1 && rule_along(v, at[0], axis);
}

static bool rule_layer_norm(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t from;
    (void)inner;
    *axis = v->in[0].axis;
    return v->first_in == 0 && rest_is_none(v, 1) &&
           fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), rank_in(v, 0), &from) &&
           *axis < from;
}

static bool rule_mean_variance_norm(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *axes;
    uint32_t n;
    return rule_first(v, axis, inner) && get_ints(v, UINT32_MAX, WEFT_ATTR_AXES, &axes, &n) && n &&
           is_outside(v, axes, n, *axis);
}

static bool drop_axes(const view *v, const int64_t *axes, uint32_t n, bool keep, uint32_t *axis)
{
    uint32_t before = 0;
    if (!n || !is_outside(v, axes, n, v->in[0].axis))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t fixed = 0;
        before += fix_axis(axes[i], rank_in(v, 0), &fixed) && fixed < v->in[0].axis;
    }
    *axis = v->in[0].axis - (keep ? 0 : before);
    return true;
}

static bool rule_reduce(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *axes;
    uint32_t n;
    (void)inner;
    return v->first_in == 0 && get_ints(v, 1, WEFT_ATTR_AXES, &axes, &n) &&
           drop_axes(v, axes, n, weft_attrs_int(v->attrs, WEFT_ATTR_KEEPDIMS, 1), axis);
}

static bool rule_arg(const view *v, uint32_t *axis, weft_dim *inner)
{
    int64_t along = weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0);
    (void)inner;
    return drop_axes(v, &along, 1, weft_attrs_int(v->attrs, WEFT_ATTR_KEEPDIMS, 1), axis);
}

/* Batch axis of a GEMM's result: from operand 0 its rows or batch dims, from operand 1 its columns
 * or batch dims; the other operand must not depend on the batch. */
static bool find_gemm_axis(const view *v, bool trans_a, bool trans_b, uint32_t *axis,
                           const weft_dim *inner)
{
    uint32_t rank = v->out->rank, i = v->first_in;
    uint32_t ra = rank_in(v, 0), rb = rank_in(v, 1), own = rank_in(v, i);
    if (i > 1 || ra < 2 || rb < 1 || (i == 1 && rb < 2))
        return false;
    uint32_t from_end = own - v->first->axis; /* 1: last axis */
    if (rb == 1) {
        *axis = v->first->axis;
        return i == 0 && from_end >= 2 && !trans_a && is_none(v, 1);
    }
    if (from_end <= 2) {
        bool swapped = i == 0 ? trans_a : trans_b;
        bool is_last = (from_end == 1) != swapped;
        *axis = i == 0 ? rank - 2 : rank - 1;
        /* Rows of operand 0, columns of operand 1; the sum over the inner dim mixes. */
        return is_last == (i == 1) && is_none(v, 1 - i);
    }
    *axis = v->first->axis + rank - own;
    return broadcasts(v, 1 - i, rank, *axis, *inner);
}

static bool rule_matmul(const view *v, uint32_t *axis, weft_dim *inner)
{
    if (!find_gemm_axis(v, weft_attrs_int(v->attrs, WEFT_ATTR_TRANS_A, 0),
                        weft_attrs_int(v->attrs, WEFT_ATTR_TRANS_B, 0), axis, inner))
        return false;
    for (uint32_t i = 2; i < v->n_in; i++)
        if (!broadcasts(v, i, v->out->rank, *axis, *inner))
            return false;
    return true;
}

static bool rule_gemm(const view *v, uint32_t *axis, weft_dim *inner)
{
    return find_gemm_axis(v, weft_attrs_int(v->attrs, WEFT_ATTR_TRANSA, 0),
                          weft_attrs_int(v->attrs, WEFT_ATTR_TRANSB, 0), axis, inner) &&
           broadcasts(v, 2, 2, *axis, *inner);
}

static bool rule_matmul_integer(const view *v, uint32_t *axis, weft_dim *inner)
{
    return rank_in(v, 2) == 0 && rank_in(v, 3) == 0 && rest_is_none(v, 2) &&
           find_gemm_axis(v, false, false, axis, inner);
}

/* One element, or omitted. */
static bool is_single(const view *v, uint32_t i)
{
    return !has_in(v, i) || rank_in(v, i) == 0 || (rank_in(v, i) == 1 && v->type[i]->dim[0] == 1);
}

/* As of a GEMM or convolution of operands 0 and 3; the scales, zero points and the bias are the
 * same for all requests. */
static bool rule_qlinear_matmul(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t from_end = rank_in(v, 0) - v->in[0].axis;
    if (v->first_in != 0 || rank_in(v, 0) < 2 || from_end < 2)
        return false;
    *axis = v->in[0].axis + v->out->rank - rank_in(v, 0);
    bool batched = rank_in(v, 3) > 2 && from_end > 2;
    if (!is_single(v, WEFT_QLINEAR_A_SCALE) || !is_single(v, WEFT_QLINEAR_A_ZERO))
        return false;
    for (uint32_t i = 1; i < v->n_in; i++)
        if (i >= WEFT_QLINEAR_OPERANDS || (i == 3 && batched)
                ? !broadcasts(v, i, v->out->rank, *axis, *inner)
                : !is_none(v, i))
            return false;
    return rank_in(v, 3) >= 2;
}

static bool rule_qlinear_conv(const view *v, uint32_t *axis, weft_dim *inner)
{
    *axis = 0;
    if (v->first_in != 0 || v->first->axis != 0)
        return false;
    for (uint32_t i = 1; i < v->n_in; i++)
        if (i < WEFT_QLINEAR_OPERANDS ? !is_none(v, i) : !broadcasts(v, i, v->out->rank, 0, *inner))
            return false;
    return true;
}

static bool rule_attention(const view *v, uint32_t *axis, weft_dim *inner)
{
    *axis = 0;
    for (uint32_t i = 0; i < 3; i++)
        if (v->in[i].kind != SPREAD_AXIS || v->in[i].axis != 0 || v->in[i].inner != *inner)
            return false;
    return broadcasts(v, 3, 4, 0, *inner);
}

/* A reshape keeps row-major order: the batch is the axis that has the same number of elements
 * before it (product of outer dims) as in the operand. */
static bool rule_reshape(const view *v, uint32_t *axis, weft_dim *inner)
{
    weft_dimpool *dims = v->a->dims;
    weft_dim outer = 1, seen = 1;
    if (v->first_in != 0 || !rest_is_none(v, 1))
        return false;
    for (uint32_t k = 0; k < v->first->axis; k++)
        outer = weft_dim_mul(dims, outer, v->type[0]->dim[k]);
    for (uint32_t k = 0; k < v->out->rank; k++) {
        weft_dim d = v->out->dim[k];
        if (seen == outer && mentions_batch(v->a, d)) {
            *axis = k;
            return weft_dim_div_exact(dims, d, v->a->batch, inner);
        }
        seen = weft_dim_mul(dims, seen, d);
    }
    return false;
}

static bool rule_transpose(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *perm;
    uint32_t n, rank = rank_in(v, 0);
    (void)inner;
    if (!get_ints(v, UINT32_MAX, WEFT_ATTR_PERM, &perm, &n))
        return false;
    *axis = rank - 1 - v->first->axis;
    for (uint32_t k = 0; k < n; k++)
        if (perm[k] == v->first->axis || perm[k] + rank == v->first->axis)
            *axis = k;
    return n == 0 || n == rank;
}

static bool rule_concat(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t along;
    *axis = v->first->axis;
    if (!fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), v->out->rank, &along) ||
        along == *axis)
        return false;
    for (uint32_t i = 0; i < v->n_in; i++)
        if (v->in[i].kind != SPREAD_AXIS || v->in[i].axis != *axis || v->in[i].inner != *inner)
            return false;
    return true;
}

static bool rule_slice(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *axes, *starts;
    uint32_t n, n_start;
    if (!rule_first(v, axis, inner) || !get_ints(v, 3, WEFT_ATTR_AXES, &axes, &n))
        return false;
    if (axes)
        return is_outside(v, axes, n, *axis);
    /* Without axes, the first ones. */
    return get_ints(v, 1, WEFT_ATTR_STARTS, &starts, &n_start) && n_start <= *axis;
}

static bool rule_pad(const view *v, uint32_t *axis, weft_dim *inner)
{
    const int64_t *pads, *axes;
    uint32_t n, n_axes, rank = rank_in(v, 0);
    if (!rule_first(v, axis, inner) || !get_ints(v, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        return false;
    if (axes)
        return is_outside(v, axes, n_axes, *axis);
    return get_ints(v, 1, WEFT_ATTR_PADS, &pads, &n) && n == 2 * rank && pads[*axis] == 0 &&
           pads[*axis + rank] == 0;
}

static bool rule_gather(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t along;
    (void)inner;
    if (!fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), rank_in(v, 0), &along))
        return false;
    if (v->first_in == 1) {
        *axis = along + v->first->axis;
        return true;
    }
    *axis = v->first->axis < along ? v->first->axis : v->first->axis + rank_in(v, 1) - 1;
    return v->first->axis != along && is_none(v, 1);
}

static bool rule_gather_elements(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t along;
    *axis = v->first->axis;
    return v->in[0].kind == SPREAD_AXIS && v->in[1].kind == SPREAD_AXIS && v->in[1].axis == *axis &&
           v->in[1].inner == *inner &&
           fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, 0), rank_in(v, 0), &along) &&
           along != *axis;
}

static bool rule_gather_nd(const view *v, uint32_t *axis, weft_dim *inner)
{
    int64_t batch_dims = weft_attrs_int(v->attrs, WEFT_ATTR_BATCH_DIMS, 0);
    *axis = v->first->axis;
    if (batch_dims == 0)
        return is_none(v, 0) && *axis + 1 < rank_in(v, 1);
    return *axis < batch_dims && v->in[0].kind == SPREAD_AXIS && v->in[1].kind == SPREAD_AXIS &&
           v->in[1].axis == *axis && v->in[1].inner == *inner;
}

static bool rule_one_hot(const view *v, uint32_t *axis, weft_dim *inner)
{
    uint32_t along;
    (void)inner;
    if (v->first_in != 0 || !rest_is_none(v, 1) ||
        !fix_axis(weft_attrs_int(v->attrs, WEFT_ATTR_AXIS, -1), v->out->rank, &along))
        return false;
    *axis = v->first->axis + (v->first->axis >= along);
    return true;
}

/* A tile keeps the batch only if it repeats that axis once, which the check of the result's type
 * ensures. */
static bool rule_expand(const view *v, uint32_t *axis, weft_dim *inner)
{
    (void)inner;
    if (v->first_in != 0 || !rest_is_none(v, 1) || rank_in(v, 0) > v->out->rank)
        return false;
    *axis = v->first->axis + v->out->rank - rank_in(v, 0);
    return true;
}

static bool rule_trilu(const view *v, uint32_t *axis, weft_dim *inner)
{
    return rule_first(v, axis, inner) && *axis + 2 < rank_in(v, 0);
}

/* Operands and results are [..., batch, features]: the batch is the last but one axis. */
static bool rule_recurrent(const view *v, uint32_t *axis, weft_dim *inner)
{
    *axis = v->out->rank - 2;
    if (v->first_in != 0 || v->first->axis != 1 || v->out->rank < 2 ||
        weft_attrs_int(v->attrs, WEFT_ATTR_QUANTIZE_STATE, 0))
        return false;
    for (uint32_t i = 1; i < v->n_in; i++) {
        bool state = i == 5 || i == 6;
        if (!is_none(v, i) && !((i == 4 && v->in[i].axis == 0) || (state && v->in[i].axis == 1)))
            return false;
        if (!is_none(v, i) && v->in[i].inner != *inner)
            return false;
    }
    return true;
}

/* Axis 0 numbers samples that do not mix; operands without it are parameters of all of them. */
static bool rule_samples(const view *v, uint32_t *axis, weft_dim *inner)
{
    *axis = 0;
    for (uint32_t i = 0; i < v->n_in; i++)
        if (has_in(v, i) && !is_none(v, i) &&
            (v->in[i].kind != SPREAD_AXIS || v->in[i].axis != 0 || v->in[i].inner != *inner))
            return false;
    return true;
}

/* By column BATCH of ops.def. */
static const rule_fn rules[WEFT_BATCH_COUNT] = {
#define R(rule, name) [WEFT_BATCH_##rule] = rule_##name,
#include "ops/batch_rules.def"
#undef R
};

/* -- Nodes ------------------------------------------------------------------------------------ */

/* A result of WEFT_T_FILL whose operands do not depend on the batch. */
static spread spread_fill(analysis *a, const weft_ttype *t)
{
    spread s = {.kind = SPREAD_AXIS, .inner = 1};
    while (s.axis < t->rank && !mentions_batch(a, t->dim[s.axis]))
        s.axis++;
    if (!fits(a, t, s.axis, 1))
        s.kind = SPREAD_MIXED;
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
    const spread none = {.kind = SPREAD_NONE}, mixed = {.kind = SPREAD_MIXED};
    const weft_op *op = weft_node_opdef(a->m, v->n);
    for (uint32_t i = 0; i < v->n_in; i++)
        if (v->in[i].kind == SPREAD_MIXED)
            return mixed;
    if (!v->first) {
        if (op->traits & WEFT_T_RANDOM)
            return mixed;
        if ((op->traits & WEFT_T_FILL) && type_mentions(a, v->out))
            return spread_fill(a, v->out);
        return attrs_mention(a, v->attrs) || type_mentions(a, v->out) ? mixed : none;
    }
    rule_fn rule = rules[op->batch];
    uint32_t axis = 0;
    weft_dim inner = v->first->inner;
    if (!rule || (op->traits & WEFT_T_RANDOM) || v->n_in < op->in_min || !rule(v, &axis, &inner))
        return mixed;
    return (spread){SPREAD_AXIS, (uint8_t)axis, inner};
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
        if (in[i].kind == SPREAD_AXIS && !v.first) {
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
        if ((s.kind == SPREAD_AXIS && !fits(a, t, to->axis, s.inner)) ||
            (s.kind == SPREAD_NONE && type_mentions(a, t)))
            to->kind = SPREAD_MIXED;
    }
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
        if (!starts_with_batch(a, v) || !fits(a, weft_val_ttype(a->m, v), 0, 1))
            return false;
        a->of[v.i] = (spread){SPREAD_AXIS, 0, 1};
    }
    WEFT_FOREACH_NODE (a->m, a->g, n)
        visit(a, n);
    for (uint32_t i = 0; i < weft_graph_output_count(a->g); i++) {
        weft_val v = weft_graph_output(a->g, i);
        spread s = a->of[v.i];
        if (s.kind != SPREAD_AXIS || s.axis != 0 || s.inner != 1 || !starts_with_batch(a, v))
            return false;
    }
    return true;
}

/* false: out of memory. */
static bool find_batch(analysis *a, uint32_t *out)
{
    jmp_buf env;
    *out = UINT32_MAX;
    weft_arena_guard(a->arena, &env);
    if (setjmp(env))
        return false;
    weft_dim first = weft_val_ttype(a->m, weft_graph_input(a->g, 0))->dim[0];
    a->dims = weft_dimpool_clone(weft_module_dims(a->m), a->arena);
    a->of = weft_arena_array(a->arena, weft_val_count(a->m) + (size_t)1, sizeof *a->of);
    a->mentions = weft_map_create(a->arena);
    for (uint32_t i = 0; i < weft_graph_symbol_count(a->g); i++) {
        a->batch = weft_graph_symbol_dim(a->g, i);
        if (a->batch == first && is_batchable(a))
            *out = i;
        if (a->batch == first)
            return true;
    }
    return true;
}

uint32_t weft_graph_batch_symbol(const weft_graph *g)
{
    if (weft_graph_input_count(g) == 0 || weft_graph_output_count(g) == 0)
        return UINT32_MAX;
    analysis a = {.m = weft_graph_module(g), .g = g, .arena = weft_arena_create(0)};
    uint32_t symbol = UINT32_MAX;
    bool found = a.arena && find_batch(&a, &symbol);
    weft_arena_destroy(a.arena);
    /* Not NONE, with which the model would never be batched. */
    if (!found)
        weft_arena_exhaust(weft_module_arena((weft_module *)(uintptr_t)a.m));
    return symbol;
}
