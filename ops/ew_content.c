/* Arithmetic on the contents of small integer tensors, so that the chains of Shape, Gather, Mul and
 * Concat that exporters write fold into symbolic dimensions.
 *
 * A comparison of symbols is decided only where it holds for all their values. One element that
 * cannot be told leaves the whole result without content. */
#include "ops/op_int.h"

/* The sign of a - b: -1, 0 or 1; false if it differs between values of the symbols. */
static bool compare(weft_infer_ctx *cx, weft_dim a, weft_dim b, int *out)
{
    if (a == b) {
        *out = 0;
        return true;
    }
    if (weft_dim_is_const(a) && weft_dim_is_const(b)) {
        *out = a < b ? -1 : 1;
        return true;
    }
    int64_t lo, hi;
    weft_dim_bounds(cx->pool, weft_dim_sub(cx->pool, a, b), &lo, &hi);
    *out = lo > 0 ? 1 : -1;
    return lo > 0 || hi < 0;
}

static bool is_known_positive(weft_infer_ctx *cx, weft_dim d, int64_t least)
{
    int64_t lo, hi;
    weft_dim_bounds(cx->pool, d, &lo, &hi);
    return lo >= least;
}

static bool put(weft_dim x, weft_dim *out)
{
    *out = x;
    return true;
}

/* Integer division truncates, weft_dim_floordiv rounds down: the same where nothing is negative. */
static bool divide(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out)
{
    if (weft_dim_is_const(a) && weft_dim_is_const(b))
        return put(b == 0 ? 0 : b == -1 ? -a : a / b, out);
    if (weft_dim_div_exact(cx->pool, a, b, out))
        return true;
    if (!is_known_positive(cx, a, 0) || !is_known_positive(cx, b, 1))
        return false;
    return put(weft_dim_floordiv(cx->pool, a, b), out);
}

static bool modulo(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out)
{
    if (!is_known_positive(cx, b, 1))
        return false;
    if (weft_attrs_int(cx->attrs, WEFT_ATTR_FMOD, 0) != 0 && !is_known_positive(cx, a, 0))
        return false;
    weft_dim q = weft_dim_floordiv(cx->pool, a, b);
    return put(weft_dim_sub(cx->pool, a, weft_dim_mul(cx->pool, q, b)), out);
}

static bool power(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out)
{
    if (!weft_dim_is_const(b) || b < 0 || b > 8)
        return false;
    weft_dim r = 1;
    for (int64_t i = 0; i < b; i++)
        r = weft_dim_mul(cx->pool, r, a);
    return put(r, out);
}

static bool fold_two(weft_infer_ctx *cx, weft_op_id id, weft_dim a, weft_dim b, weft_dim *out)
{
    int order;
    bool consts = weft_dim_is_const(a) && weft_dim_is_const(b);
    switch (id) {
    case WEFT_OP_ADD:
    case WEFT_OP_SUM:
        return put(weft_dim_add(cx->pool, a, b), out);
    case WEFT_OP_SUB:
        return put(weft_dim_sub(cx->pool, a, b), out);
    case WEFT_OP_MUL:
        return put(weft_dim_mul(cx->pool, a, b), out);
    case WEFT_OP_DIV:
        return divide(cx, a, b, out);
    case WEFT_OP_MOD:
        return modulo(cx, a, b, out);
    case WEFT_OP_POW:
        return power(cx, a, b, out);
    case WEFT_OP_MIN:
        return put(weft_dim_min(cx->pool, a, b), out);
    case WEFT_OP_MAX:
        return put(weft_dim_max(cx->pool, a, b), out);
    case WEFT_OP_AND:
        return consts && put(a != 0 && b != 0, out);
    case WEFT_OP_OR:
        return consts && put(a != 0 || b != 0, out);
    case WEFT_OP_XOR:
        return consts && put((a != 0) != (b != 0), out);
    case WEFT_OP_EQUAL:
        return compare(cx, a, b, &order) && put(order == 0, out);
    case WEFT_OP_LESS:
        return compare(cx, a, b, &order) && put(order < 0, out);
    case WEFT_OP_LESS_OR_EQUAL:
        return compare(cx, a, b, &order) && put(order <= 0, out);
    case WEFT_OP_GREATER:
        return compare(cx, a, b, &order) && put(order > 0, out);
    case WEFT_OP_GREATER_OR_EQUAL:
        return compare(cx, a, b, &order) && put(order >= 0, out);
    default:
        return false;
    }
}

static bool fold_one(weft_infer_ctx *cx, weft_op_id id, weft_dim a, weft_dim *out)
{
    switch (id) {
    case WEFT_OP_IDENTITY:
    case WEFT_OP_ADD:
    case WEFT_OP_SUM:
    case WEFT_OP_MIN:
    case WEFT_OP_MAX:
    case WEFT_OP_MEAN:
        return put(a, out);
    case WEFT_OP_NEG:
        return put(weft_dim_sub(cx->pool, 0, a), out);
    case WEFT_OP_ABS:
    case WEFT_OP_RELU:
        if (is_known_positive(cx, a, 0))
            return put(a, out);
        return weft_dim_is_const(a) && put(id == WEFT_OP_ABS ? -a : 0, out);
    case WEFT_OP_SIGN:
        if (is_known_positive(cx, a, 1))
            return put(1, out);
        return weft_dim_is_const(a) && put(a < 0 ? -1 : 0, out);
    case WEFT_OP_NOT:
        return weft_dim_is_const(a) && put(a == 0, out);
    case WEFT_OP_CAST:
    case WEFT_OP_CAST_LIKE:
        if (cx->out[0].dtype != WEFT_DTYPE_BOOL)
            return put(a, out);
        if (is_known_positive(cx, a, 1))
            return put(1, out);
        return weft_dim_is_const(a) && put(a != 0, out);
    default:
        return false;
    }
}

/* Elements of the result, or 0 when contents do not line up (more than one dim over 1). */
static uint32_t count_result(weft_infer_ctx *cx, const uint32_t *n, uint32_t n_in)
{
    uint32_t most = 1;
    for (uint32_t j = 0; j < n_in; j++)
        if (n[j] > 1)
            most = n[j];
    weft_dim numel = weft_ttype_numel(cx->pool, &cx->out[0]);
    if (numel != (weft_dim)most)
        return 0;
    for (uint32_t j = 0; j < n_in; j++)
        if (n[j] != 1 && n[j] != most)
            return 0;
    return most;
}

static bool fold_element(weft_infer_ctx *cx, weft_op_id id, const weft_dim *x, uint32_t n_in,
                         weft_dim *out)
{
    if (id == WEFT_OP_WHERE)
        return weft_dim_is_const(x[0]) && put(x[0] != 0 ? x[1] : x[2], out);
    if (n_in == 1)
        return fold_one(cx, id, x[0], out);
    weft_dim acc = x[0];
    for (uint32_t j = 1; j < n_in; j++)
        if (!fold_two(cx, id, acc, x[j], &acc))
            return false;
    return put(acc, out);
}

/* Narrow and unsigned integers wrap, symbols do not. */
static bool is_shape_dtype(uint8_t dtype)
{
    return dtype == WEFT_DTYPE_I64 || dtype == WEFT_DTYPE_I32 || dtype == WEFT_DTYPE_BOOL;
}

static bool fits(uint8_t dtype, weft_dim d)
{
    return dtype == WEFT_DTYPE_I64 || !weft_dim_is_const(d) || (d >= INT32_MIN && d <= INT32_MAX);
}

void weft_content__fold(weft_infer_ctx *cx)
{
    enum { OPERANDS = 8 };
    const weft_dim *content[OPERANDS];
    uint32_t n[OPERANDS];
    weft_op_id id = cx->op->id;
    uint32_t n_in = id == WEFT_OP_CAST_LIKE ? 1 : cx->n_in;
    if (n_in > OPERANDS || cx->n_out == 0 || !is_shape_dtype(cx->out[0].dtype))
        return;
    for (uint32_t j = 0; j < n_in; j++)
        if (!weft_infer__content(cx, j, &content[j], &n[j]))
            return;
    uint32_t most = count_result(cx, n, n_in);
    weft_dim *out = most > 0 ? weft_infer__set_content(cx, 0, most) : NULL;
    if (out == NULL)
        return;
    for (uint32_t i = 0; i < most; i++) {
        weft_dim x[OPERANDS] = {0};
        for (uint32_t j = 0; j < n_in; j++)
            x[j] = content[j][n[j] == 1 ? 0 : i];
        bool known = true;
        for (uint32_t j = 0; j < n_in; j++)
            known = known && x[j] != WEFT_DIM_LOWEST;
        if (!known || !fold_element(cx, id, x, n_in, &out[i]) || !fits(cx->out[0].dtype, out[i])) {
            cx->out_content[0] = NULL;
            return;
        }
    }
}
