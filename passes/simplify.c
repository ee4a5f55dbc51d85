/* simplify: local algebraic rewrites, repeated until nothing changes.
 *
 * Each rule is a function and a row of simplify.def. A rule matches one node and keeps the type of
 * its result. The loop terminates because every rule removes a node, or replaces an operator by one
 * that is greater in the order
 *
 *     squeeze, unsqueeze, flatten, transpose  <  reshape, concat
 *     gemm  <  matmul
 *     pow, div  <  mul, square  <  dequantize_linear
 *
 * Rules never change a floating-point result by more than the order of rounding. Each sweep is
 * O(nodes); at most SWEEPS_MAX sweeps. */
#include "passes/match.h"

#include <math.h>
#include <string.h>

enum { SWEEPS_MAX = 16 };

/* Argument of a rule, which sets `with` to replace result 0 of the node, or `changed` if it rewrote
 * the node in place. */
typedef struct match {
    weft_passctx *cx;
    weft_graph *g;
    weft_module *m;
    weft_node n;
    weft_val with;
    bool changed;
} match;

typedef weft_err rule_fn(match *k);

enum { INTERLEAVED_MAX = 16 };

static weft_val in(const match *k, uint32_t i)
{
    return weft_node_in(k->m, k->n, i);
}

static weft_val result(const match *k)
{
    return weft_node_out(k->m, k->n, 0);
}

static weft_attrs attrs(const match *k)
{
    return weft_node_attrs(k->m, k->n);
}

static const weft_ttype *type_of(const match *k, weft_val v)
{
    return weft_val_ttype(k->m, v);
}

static bool same_type(const match *k, weft_val a, weft_val b)
{
    return weft_val_type(k->m, a).i == weft_val_type(k->m, b).i;
}

static weft_err replace(match *k, weft_val with)
{
    if (weft_rewrite__allow(k->cx))
        k->with = with;
    return WEFT_ERR_OK;
}

static weft_err replace_by_new(match *k, weft_op_id op, const weft_val *operand, uint32_t n_in,
                               const weft_attr *attr, uint32_t n_attr)
{
    if (!weft_rewrite__allow(k->cx))
        return WEFT_ERR_OK;
    return weft_rewrite__emit(k->cx, k->g, k->n, op, operand, n_in, attr, n_attr,
                              weft_node_loc(k->m, k->n), &k->with);
}

static bool dims_are_data(const match *k, const weft_ttype *type)
{
    for (uint32_t i = 0; i < type->rank; i++)
        if (weft_dim_is_data(weft_module_dims(k->m), type->dim[i]))
            return true;
    return false;
}

/* -- Copies and views ----------------------------------------------------------------------- */

/* identity x ==> x; dropout x ==> x if the mask is unused */
static weft_err drop_identity(match *k)
{
    for (uint32_t i = 1; i < weft_node_out_count(k->m, k->n); i++) {
        weft_val extra = weft_node_out(k->m, k->n, i);
        if (weft_val_use_count(k->m, extra) || weft_val_is_output(k->g, extra))
            return WEFT_ERR_OK;
    }
    if (weft_attrs_int(attrs(k), WEFT_ATTR_TRAINING_MODE, 0) ||
        (weft_node_in_count(k->m, k->n) > 2))
        return WEFT_ERR_OK;
    return replace(k, in(k, 0));
}

/* cast x {to = its type} ==> x; the same for reshape and expand to the same shape */
static weft_err drop_same_type(match *k)
{
    return same_type(k, in(k, 0), result(k)) ? replace(k, in(k, 0)) : WEFT_ERR_OK;
}

/* cast_like x y ==> cast x {to = type of y} */
static weft_err cast_like_to_cast(match *k)
{
    weft_attrs kept = weft_node_attrs(k->m, k->n);
    weft_attr *attr = weft_arena_array(k->cx->scratch, kept.n + 1, sizeof *attr);
    for (uint32_t i = 0; i < kept.n; i++)
        attr[i] = kept.at[i];
    attr[kept.n] = WEFT_ATTR_OF_DTYPE(TO, (weft_dtype)type_of(k, result(k))->dtype);
    weft_val x = in(k, 0);
    return replace_by_new(k, WEFT_OP_CAST, &x, 1, attr, kept.n + 1);
}

/* perm of a transpose, counted from the front; the default reverses */
static void get_perm(const match *k, weft_node n, int64_t *out, uint32_t rank)
{
    uint32_t count = 0;
    const int64_t *perm = weft_attrs_ints(weft_node_attrs(k->m, n), WEFT_ATTR_PERM, &count);
    for (uint32_t i = 0; i < rank; i++)
        out[i] = !perm || i >= count ? (int64_t)(rank - 1 - i) : perm[i] + (perm[i] < 0 ? rank : 0);
}

static bool is_identity_perm(const int64_t *perm, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (perm[i] != (int64_t)i)
            return false;
    return true;
}

/* transpose x {perm = [0, 1, 2]} ==> x */
static weft_err drop_transpose(match *k)
{
    int64_t perm[WEFT_RANK_MAX];
    uint32_t rank = type_of(k, in(k, 0))->rank;
    get_perm(k, k->n, perm, rank);
    return is_identity_perm(perm, rank) ? replace(k, in(k, 0)) : WEFT_ERR_OK;
}

/* transpose (transpose x {p}) {q} ==> transpose x {p[q]} */
static weft_err join_transposes(match *k)
{
    weft_node first = weft_match__maker(k->m, in(k, 0), WEFT_OP_TRANSPOSE);
    if (!first.i)
        return WEFT_ERR_OK;
    uint32_t rank = type_of(k, in(k, 0))->rank;
    int64_t p[WEFT_RANK_MAX], q[WEFT_RANK_MAX], joined[WEFT_RANK_MAX];
    get_perm(k, first, p, rank);
    get_perm(k, k->n, q, rank);
    for (uint32_t i = 0; i < rank; i++)
        joined[i] = p[q[i]];
    weft_val x = weft_node_in(k->m, first, 0);
    weft_attr perm = WEFT_ATTR_OF_INTS(PERM, joined, rank);
    return replace_by_new(k, WEFT_OP_TRANSPOSE, &x, 1, &perm, 1);
}

static weft_err to_reshape(match *k, weft_val x)
{
    const weft_ttype *type = type_of(k, result(k));
    if (dims_are_data(k, type))
        return WEFT_ERR_OK;
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, type->dim, type->rank);
    return replace_by_new(k, WEFT_OP_RESHAPE, &x, 1, &shape, 1);
}

/* transpose that moves only dims of size 1 ==> reshape */
static weft_err transpose_to_reshape(match *k)
{
    const weft_ttype *type = type_of(k, in(k, 0));
    int64_t perm[WEFT_RANK_MAX], before = -1;
    get_perm(k, k->n, perm, type->rank);
    for (uint32_t i = 0; i < type->rank; i++) {
        if (type->dim[perm[i]] == 1)
            continue;
        if (perm[i] < before)
            return WEFT_ERR_OK;
        before = perm[i];
    }
    return to_reshape(k, in(k, 0));
}

/* The concat that r = reshape(concat) splits again into its operands, as dims `axis` and axis + 1
 * of the result, [.., operands, dim of each, ..]; none: there is no such concat of this reshape
 * alone. */
static weft_node split_concat(const match *k, weft_val r, uint32_t axis)
{
    weft_node reshape = weft_match__maker(k->m, r, WEFT_OP_RESHAPE), none = {0};
    weft_val joined = reshape.i ? weft_node_in(k->m, reshape, 0) : (weft_val){0};
    weft_node concat = weft_match__maker(k->m, joined, WEFT_OP_CONCAT);
    if (!concat.i || weft_rewrite__sole_user(k->g, r).i == 0 ||
        weft_rewrite__sole_user(k->g, joined).i == 0)
        return none;
    const weft_ttype *split = type_of(k, r), *whole = type_of(k, joined);
    int64_t at = weft_attrs_int(weft_node_attrs(k->m, concat), WEFT_ATTR_AXIS, 0);
    at += at < 0 ? whole->rank : 0;
    if (at != (int64_t)axis || split->rank != whole->rank + 1 ||
        split->dim[axis] != weft_node_in_count(k->m, concat) || dims_are_data(k, split))
        return none;
    for (uint32_t i = 0; i < whole->rank; i++)
        if (i != axis && split->dim[i < axis ? i : i + 1] != whole->dim[i])
            return none;
    for (uint32_t i = 0; i < weft_node_in_count(k->m, concat); i++)
        if (type_of(k, weft_node_in(k->m, concat, i))->dim[axis] != split->dim[axis + 1])
            return none;
    return concat;
}

/* The shuffle of channels: transpose (reshape (concat a b {axis}) to [.., 2, c, ..]) that exchanges
 * these two dims ==> concat (reshape a to [.., c, 1, ..]) (reshape b ..) {axis + 1}: one copy. */
static weft_err interleave_concat(match *k)
{
    int64_t perm[WEFT_RANK_MAX];
    weft_val operand[INTERLEAVED_MAX];
    uint32_t rank = type_of(k, in(k, 0))->rank, axis = 0;
    get_perm(k, k->n, perm, rank);
    while (axis < rank && perm[axis] == (int64_t)axis)
        axis++;
    if (axis + 1 >= rank || perm[axis] != (int64_t)axis + 1 || perm[axis + 1] != (int64_t)axis)
        return WEFT_ERR_OK;
    for (uint32_t i = axis + 2; i < rank; i++)
        if (perm[i] != (int64_t)i)
            return WEFT_ERR_OK;
    weft_node concat = split_concat(k, in(k, 0), axis);
    uint32_t n = concat.i ? weft_node_in_count(k->m, concat) : 0;
    if (n < 2 || n > INTERLEAVED_MAX || !weft_rewrite__allow(k->cx))
        return WEFT_ERR_OK;
    weft_ttype part = *type_of(k, result(k));
    part.dim[axis + 1] = 1;
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, part.dim, part.rank);
    weft_attr along = WEFT_ATTR_OF_INT(AXIS, axis + 1);
    weft_loc loc = weft_node_loc(k->m, k->n);
    for (uint32_t i = 0; i < n; i++) {
        weft_val x = weft_node_in(k->m, concat, i);
        WEFT_TRY(weft_rewrite__emit(k->cx, k->g, k->n, WEFT_OP_RESHAPE, &x, 1, &shape, 1, loc,
                                    &operand[i]));
    }
    return weft_rewrite__emit(k->cx, k->g, k->n, WEFT_OP_CONCAT, operand, n, &along, 1, loc,
                              &k->with);
}

/* squeeze, unsqueeze, flatten ==> reshape */
static weft_err view_to_reshape(match *k)
{
    return to_reshape(k, in(k, 0));
}

/* reshape (reshape x) ==> reshape x */
static weft_err join_reshapes(match *k)
{
    weft_node first = weft_match__maker(k->m, in(k, 0), WEFT_OP_RESHAPE);
    if (!first.i || weft_node_in(k->m, k->n, 1).i)
        return WEFT_ERR_OK;
    return to_reshape(k, weft_node_in(k->m, first, 0));
}

/* reshape (matmul (reshape x [a, b, k] to [a*b, k]) w) to [a, b, n] ==> matmul x w */
static weft_err drop_flat_rows(match *k)
{
    weft_node gemm = weft_match__maker(k->m, in(k, 0), WEFT_OP_MATMUL);
    weft_val flat = gemm.i ? weft_node_in(k->m, gemm, 0) : (weft_val){0};
    weft_node first = flat.i ? weft_match__maker(k->m, flat, WEFT_OP_RESHAPE) : (weft_node){0};
    if (!first.i || weft_rewrite__sole_user(k->g, in(k, 0)).i == 0)
        return WEFT_ERR_OK;
    weft_val x = weft_node_in(k->m, first, 0), w = weft_node_in(k->m, gemm, 1);
    const weft_ttype *from = type_of(k, x), *to = type_of(k, result(k));
    weft_attrs kept = weft_node_attrs(k->m, gemm);
    if (type_of(k, flat)->rank != 2 || from->rank < 3 || from->rank != to->rank ||
        memcmp(from->dim, to->dim, (from->rank - 1) * sizeof from->dim[0]) != 0 ||
        from->dim[from->rank - 1] != type_of(k, flat)->dim[1] ||
        to->dim[to->rank - 1] != type_of(k, in(k, 0))->dim[1] || type_of(k, w)->rank != 2 ||
        weft_attrs_int(kept, WEFT_ATTR_TRANS_A, 0) ||
        (weft_node_in(k->m, gemm, 2).i && type_of(k, weft_node_in(k->m, gemm, 2))->rank > 1))
        return WEFT_ERR_OK;
    weft_val operand[3] = {x, w, weft_node_in(k->m, gemm, 2)};
    return replace_by_new(k, WEFT_OP_MATMUL, operand, operand[2].i ? 3 : 2, kept.at, kept.n);
}

/* slice that takes everything ==> x: same type, and all steps forward */
static weft_err drop_whole_slice(match *k)
{
    uint32_t n = 0;
    if (!same_type(k, in(k, 0), result(k)) || weft_node_in_count(k->m, k->n) > 1)
        return WEFT_ERR_OK;
    const int64_t *steps = weft_attrs_ints(attrs(k), WEFT_ATTR_STEPS, &n);
    for (uint32_t i = 0; i < n; i++)
        if (steps[i] != 1)
            return WEFT_ERR_OK;
    if (weft_attrs_find(attrs(k), WEFT_ATTR_STEPS) && !steps)
        return WEFT_ERR_OK;
    /* Equal size on every axis with step 1: starts are 0. */
    return replace(k, in(k, 0));
}

/* pad by nothing ==> x */
static weft_err drop_zero_pad(match *k)
{
    uint32_t n = 0;
    const int64_t *pads = weft_attrs_ints(attrs(k), WEFT_ATTR_PADS, &n);
    if (!pads || !same_type(k, in(k, 0), result(k)))
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < n; i++)
        if (pads[i] != 0)
            return WEFT_ERR_OK;
    return replace(k, in(k, 0));
}

/* concat x ==> x */
static weft_err drop_single_concat(match *k)
{
    return weft_node_in_count(k->m, k->n) == 1 ? replace(k, in(k, 0)) : WEFT_ERR_OK;
}

/* -- Arithmetic ----------------------------------------------------------------------------- */

/* min x, max x, mean x ==> x */
static weft_err drop_single_operand(match *k)
{
    return weft_node_in_count(k->m, k->n) == 1 ? replace(k, in(k, 0)) : WEFT_ERR_OK;
}

/* sum x ==> x; sum x y ==> add x y */
static weft_err single_or_add(match *k)
{
    weft_val operand[2] = {in(k, 0), in(k, 1)};
    if (weft_node_in_count(k->m, k->n) == 2)
        return replace_by_new(k, WEFT_OP_ADD, operand, 2, NULL, 0);
    return drop_single_operand(k);
}

/* x + 0, 0 + x, x - 0, x * 1, 1 * x, x / 1 ==> x, where the type stays. x + 0 turns -0 into +0;
 * the rewrite keeps -0, which is equal as a number. */
static weft_err drop_neutral(match *k)
{
    weft_op_id op = weft_node_op(k->m, k->n);
    double neutral = op == WEFT_OP_ADD || op == WEFT_OP_SUB ? 0 : 1, x = 0;
    if (weft_rewrite__scalar(k->m, in(k, 1), &x) && x == neutral &&
        same_type(k, in(k, 0), result(k)))
        return replace(k, in(k, 0));
    if ((op == WEFT_OP_ADD || op == WEFT_OP_MUL) && weft_rewrite__scalar(k->m, in(k, 0), &x) &&
        x == neutral && same_type(k, in(k, 1), result(k)))
        return replace(k, in(k, 1));
    return WEFT_ERR_OK;
}

/* x / 2^e ==> x * 2^-e, exact for floats */
static weft_err div_to_mul(match *k)
{
    double x = 0;
    int exponent = 0;
    const weft_ttype *type = type_of(k, in(k, 1));
    if (type->dtype != WEFT_DTYPE_F32 || !weft_rewrite__scalar(k->m, in(k, 1), &x) ||
        fabs(frexp(x, &exponent)) != 0.5 || exponent < -60 || exponent > 60)
        return WEFT_ERR_OK;
    float inverse = (float)(1 / x);
    int64_t dim[WEFT_RANK_MAX];
    for (uint32_t i = 0; i < type->rank; i++)
        dim[i] = 1;
    weft_val operand[2] = {in(k, 0), weft_rewrite__constant(k->m, WEFT_DTYPE_F32, dim, type->rank,
                                                            &inverse, "reciprocal")};
    return replace_by_new(k, WEFT_OP_MUL, operand, 2, NULL, 0);
}

/* Whether no element can be negative, nor -0: squares and their sums and means, sums with positive
 * numbers. */
static bool is_positive(const match *k, weft_val v)
{
    double c = 0;
    weft_node n = weft_val_node(k->m, v);
    for (int depth = 0; n.i && depth < 4; depth++, n = weft_val_node(k->m, v)) {
        weft_val a = weft_node_in(k->m, n, 0);
        switch (weft_node_op(k->m, n)) {
        case WEFT_OP_SQUARE:
        case WEFT_OP_ABS:
        case WEFT_OP_EXP:
        case WEFT_OP_SIGMOID:
        case WEFT_OP_REDUCE_SUM_SQUARE:
            return true;
        case WEFT_OP_MUL:
            return weft_node_in(k->m, n, 1).i == a.i;
        case WEFT_OP_ADD:
            if (weft_rewrite__scalar(k->m, weft_node_in(k->m, n, 1), &c))
                v = a;
            else if (weft_rewrite__scalar(k->m, a, &c))
                v = weft_node_in(k->m, n, 1);
            if (!(c > 0))
                return false;
            break;
        case WEFT_OP_REDUCE_MEAN:
        case WEFT_OP_REDUCE_SUM:
            v = a;
            break;
        default:
            return false;
        }
    }
    return false;
}

/* pow x 2 ==> square x; pow x 1 ==> x; pow x 0.5 ==> sqrt x if x is not negative: of -inf and -0
 * they differ */
static weft_err pow_to_square(match *k)
{
    double x = 0;
    weft_val base = in(k, 0);
    if (!weft_dtype_is_float((weft_dtype)type_of(k, base)->dtype) ||
        !same_type(k, base, result(k)) || !weft_rewrite__scalar(k->m, in(k, 1), &x))
        return WEFT_ERR_OK;
    if (x == 1)
        return replace(k, base);
    if (x == 2)
        return replace_by_new(k, WEFT_OP_SQUARE, &base, 1, NULL, 0);
    if (x == 0.5 && is_positive(k, base))
        return replace_by_new(k, WEFT_OP_SQRT, &base, 1, NULL, 0);
    return WEFT_ERR_OK;
}

/* The axis of `like` along which the elements of `type` change, -1 if it has one element; false:
 * they change along several. */
static bool find_axis(const weft_ttype *type, const weft_ttype *like, int64_t *axis)
{
    *axis = -1;
    if (type->rank > like->rank)
        return false;
    for (uint32_t i = 0; i < type->rank; i++) {
        uint32_t at = like->rank - type->rank + i;
        if (type->dim[i] == 1)
            continue;
        if (*axis >= 0 || type->dim[i] != like->dim[at])
            return false;
        *axis = at;
    }
    return true;
}

/* mul (cast $w {to = f32}) $s ==> dequantize_linear $w $s for a weight of bytes and scales along
 * one axis: fold-weights knows it */
static weft_err scaled_bytes_to_dequantize(match *k)
{
    for (uint32_t i = 0; i < 2; i++) {
        weft_node cast = weft_match__maker(k->m, in(k, i), WEFT_OP_CAST);
        weft_val w = cast.i ? weft_node_in(k->m, cast, 0) : (weft_val){0}, by = in(k, !i);
        int64_t axis;
        if (!w.i || weft_val_get_kind(k->m, w) != WEFT_VAL_WEIGHT ||
            weft_val_get_kind(k->m, by) != WEFT_VAL_WEIGHT ||
            (type_of(k, w)->dtype != WEFT_DTYPE_I8 && type_of(k, w)->dtype != WEFT_DTYPE_U8) ||
            type_of(k, by)->dtype != WEFT_DTYPE_F32 || !same_type(k, in(k, i), result(k)) ||
            !find_axis(type_of(k, by), type_of(k, w), &axis))
            continue;
        weft_weight_info scale = *weft_weight_get(k->m, weft_val_weight(k->m, by));
        weft_ttype flat = {.dtype = WEFT_DTYPE_F32, .rank = axis >= 0};
        if (axis >= 0)
            flat.dim[0] = type_of(k, w)->dim[axis];
        scale.type = weft_type_intern(k->m, &flat);
        const weft_val operand[] = {w, weft_weight_val(k->m, weft_weight_add(k->m, &scale))};
        const weft_attr attr = WEFT_ATTR_OF_INT(AXIS, axis);
        return replace_by_new(k, WEFT_OP_DEQUANTIZE_LINEAR, operand, 2, &attr, axis >= 0);
    }
    return WEFT_ERR_OK;
}

/* -(-x) ==> x */
static weft_err drop_double_neg(match *k)
{
    weft_node first = weft_match__maker(k->m, in(k, 0), WEFT_OP_NEG);
    return first.i ? replace(k, weft_node_in(k->m, first, 0)) : WEFT_ERR_OK;
}

/* -- GEMMs ---------------------------------------------------------------------------------- */

/* gemm a b c {alpha, beta = 1} ==> matmul a b c {alpha, trans}, also without c */
static weft_err gemm_to_matmul(match *k)
{
    if (in(k, 2).i && weft_attrs_float(attrs(k), WEFT_ATTR_BETA, 1) != 1)
        return WEFT_ERR_OK;
    if (!weft_dtype_is_float((weft_dtype)type_of(k, result(k))->dtype))
        return WEFT_ERR_OK;
    weft_attr attr[3];
    uint32_t n = 0;
    double alpha = weft_attrs_float(attrs(k), WEFT_ATTR_ALPHA, 1);
    if (weft_attrs_int(attrs(k), WEFT_ATTR_TRANSA, 0))
        attr[n++] = WEFT_ATTR_OF_INT(TRANS_A, 1);
    if (weft_attrs_int(attrs(k), WEFT_ATTR_TRANSB, 0))
        attr[n++] = WEFT_ATTR_OF_INT(TRANS_B, 1);
    if (alpha != 1)
        attr[n++] = WEFT_ATTR_OF_FLOAT(ALPHA, alpha);
    weft_val operand[3] = {in(k, 0), in(k, 1), in(k, 2)};
    return replace_by_new(k, WEFT_OP_MATMUL, operand, in(k, 2).i ? 3 : 2, attr, n);
}

static bool swaps_last_two(const match *k, weft_node n)
{
    uint32_t rank = type_of(k, weft_node_in(k->m, n, 0))->rank;
    int64_t perm[WEFT_RANK_MAX];
    if (rank < 2)
        return false;
    get_perm(k, n, perm, rank);
    if (perm[rank - 1] != (int64_t)rank - 2 || perm[rank - 2] != (int64_t)rank - 1)
        return false;
    return is_identity_perm(perm, rank - 2);
}

/* matmul a (transpose b) ==> matmul a b {trans_b = 1}; the same for a */
static weft_err fold_transpose(match *k)
{
    for (uint32_t i = 0; i < 2; i++) {
        weft_attr_key key = i == 0 ? WEFT_ATTR_TRANS_A : WEFT_ATTR_TRANS_B;
        weft_node t = weft_match__maker(k->m, in(k, i), WEFT_OP_TRANSPOSE);
        if (!t.i || !swaps_last_two(k, t) || !weft_rewrite__allow(k->cx))
            continue;
        weft_attr flag = {.key = (uint16_t)key,
                          .kind = WEFT_KIND_INT,
                          .u = {.i = !weft_attrs_int(attrs(k), key, 0)}};
        weft_node_set_attr(k->m, k->n, &flag);
        weft_node_set_in(k->m, k->n, i, weft_node_in(k->m, t, 0));
        k->changed = true;
    }
    return WEFT_ERR_OK;
}

/* reduce_mean x {axes = all spatial} ==> global_average_pool x, and a reshape without keepdims */
static weft_err mean_to_pool(match *k)
{
    const weft_ttype *type = type_of(k, in(k, 0));
    uint32_t n = 0, seen = 0;
    const int64_t *axes = weft_attrs_ints(attrs(k), WEFT_ATTR_AXES, &n);
    if (!axes || type->rank != 4 || n != 2 || type->dtype != WEFT_DTYPE_F32 ||
        weft_node_in_count(k->m, k->n) > 1)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < n; i++)
        seen |= 1u << (axes[i] < 0 ? axes[i] + 4 : axes[i]);
    if (seen != 0xc)
        return WEFT_ERR_OK;
    weft_val x = in(k, 0);
    const weft_ttype *flat = type_of(k, result(k));
    bool keeps = weft_attrs_int(attrs(k), WEFT_ATTR_KEEPDIMS, 1);
    if (!keeps && dims_are_data(k, flat))
        return WEFT_ERR_OK;
    WEFT_TRY(replace_by_new(k, WEFT_OP_GLOBAL_AVERAGE_POOL, &x, 1, NULL, 0));
    if (!k->with.i || keeps)
        return WEFT_ERR_OK;
    weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, flat->dim, flat->rank);
    weft_val pooled = k->with;
    return weft_rewrite__emit(k->cx, k->g, k->n, WEFT_OP_RESHAPE, &pooled, 1, &shape, 1,
                              weft_node_loc(k->m, k->n), &k->with);
}

/* -- The loop ------------------------------------------------------------------------------- */

static const struct {
    weft_op_id op;
    rule_fn *fn;
} rules[] = {
#define RULE(op, fn) {WEFT_OP_##op, fn},
#include "passes/simplify.def"
#undef RULE
};

static weft_err try_rules(match *k, bool *changed)
{
    weft_op_id op = weft_node_op(k->m, k->n);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (rules[i].op != op)
            continue;
        WEFT_TRY(rules[i].fn(k));
        *changed |= k->changed;
        if (!k->with.i)
            continue;
        *changed = true;
        weft_rewrite__replace_result(k->g, k->n, 0, k->with);
        weft_rewrite__remove_dead(k->g, k->n);
        return WEFT_ERR_OK;
    }
    return WEFT_ERR_OK;
}

static weft_err sweep(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            match k = {.cx = cx, .g = g, .m = m, .n = n};
            if (weft_rewrite__is_live(g, n))
                WEFT_TRY(try_rules(&k, changed));
        }
    }
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    bool again = true;
    for (uint32_t i = 0; i < SWEEPS_MAX && again; i++) {
        again = false;
        WEFT_TRY(sweep(cx, m, &again));
        *changed |= again;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_simplify = {
    .name = "simplify",
    .brief = "local algebra: drop what does nothing, fewer kinds of operator",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
