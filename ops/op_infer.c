/* What inference functions share: messages, broadcasting of symbolic dims, contents of small
 * integer tensors, parameters. */
#include "ops/op_int.h"

#include <string.h>

/* -- Checks --------------------------------------------------------------------------------- */

bool weft_infer__given(const weft_infer_ctx *cx, uint32_t in, weft_attr_key key)
{
    return weft_infer__has(cx, in) || weft_attrs_find(cx->attrs, key) != NULL;
}

const char *weft_infer__text(weft_infer_ctx *cx, weft_dim d)
{
    if (weft_dim_is_const(d))
        return weft_arena_printf(cx->arena, "%lld", (long long)d);
    weft_buf buf = {0};
    weft_dim_print(cx->pool, d, &buf);
    return weft_buf_keep(&buf, cx->arena);
}

weft_err weft_infer__axis(weft_infer_ctx *cx, int64_t axis, uint32_t rank, uint32_t *out)
{
    if (!weft_axis__fix(axis, rank, out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %lld of a tensor of rank %u", (long long)axis,
                         rank);
    return WEFT_ERR_OK;
}

weft_ttype *weft_infer__out(weft_infer_ctx *cx, uint32_t out, weft_dtype dtype, uint32_t rank)
{
    weft_ttype *t =
        out < cx->n_out ? &cx->out[out] : weft_arena_alloc(cx->arena, sizeof(weft_ttype));
    memset(t, 0, sizeof *t);
    t->dtype = (uint8_t)dtype;
    t->rank = (uint8_t)rank;
    return t;
}

void weft_infer__copy(weft_infer_ctx *cx, uint32_t out, uint32_t in)
{
    if (out >= cx->n_out)
        return;
    cx->out[out] = cx->in[in].type;
    cx->out[out].layout = WEFT_LAYOUT_PLAIN;
}

weft_err weft_infer__rank(weft_infer_ctx *cx, uint32_t in, uint32_t lo, uint32_t hi)
{
    uint32_t rank = cx->in[in].type.rank;
    if (rank >= lo && rank <= hi)
        return WEFT_ERR_OK;
    if (lo == hi)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has rank %u, expected %u", in, rank, lo);
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has rank %u, expected %u to %u", in, rank, lo,
                     hi);
}

weft_err weft_infer__same_dtype(weft_infer_ctx *cx, uint32_t a, uint32_t b)
{
    if (cx->in[a].type.dtype == cx->in[b].type.dtype)
        return WEFT_ERR_OK;
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is %s, operand %u is %s", a,
                     weft_dtype_name((weft_dtype)cx->in[a].type.dtype), b,
                     weft_dtype_name((weft_dtype)cx->in[b].type.dtype));
}

weft_err weft_infer__dtype(weft_infer_ctx *cx, uint32_t in, uint32_t mask)
{
    if (mask >> cx->in[in].type.dtype & 1)
        return WEFT_ERR_OK;
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u cannot be %s", in,
                     weft_dtype_name((weft_dtype)cx->in[in].type.dtype));
}

void weft_infer__require(weft_infer_ctx *cx, weft_require_kind kind, weft_dim a, weft_dim b,
                         const char *what)
{
    /* Dims that depend on data are compared by the launches that compute with them. */
    int64_t lo, hi;
    if (!cx->require || a == b || weft_dim_is_data(cx->pool, a) || weft_dim_is_data(cx->pool, b))
        return;
    weft_dim_bounds(cx->pool, a, &lo, &hi);
    if (kind == WEFT_REQUIRE_DIFFER && weft_dim_is_const(b) && (b < lo || b > hi))
        return;
    weft_require r = {.kind = kind, .a = a, .b = b, .what = what};
    WEFT_VEC_PUSH(cx->arena, &cx->require->list, r);
}

/* ?s against min(?s, 1024), as where positions are sliced to the length of the sequence: the two
 * are equal only if ?s <= 1024. This becomes a bound of the symbol: types inferred later have plain
 * ?s, and the bound refuses longer requests. */
static bool bound_symbol(weft_infer_ctx *cx, weft_dim symbol, weft_dim other, int64_t hi)
{
    uint32_t idx = weft_dim_as_symbol(cx->pool, symbol);
    if (idx == UINT32_MAX || weft_dim_symbol_is_data(cx->pool, idx) ||
        weft_dim_min(cx->pool, symbol, hi) != other)
        return false;
    weft_dim_symbol(cx->pool, weft_dim_symbol_name(cx->pool, idx), 0, hi);
    return true;
}

weft_err weft_infer__agree(weft_infer_ctx *cx, weft_dim a, weft_dim b, const char *what)
{
    if (a == b)
        return WEFT_ERR_OK;
    if (!weft_dim_is_const(a) || !weft_dim_is_const(b)) {
        int64_t lo, hi_a, hi_b;
        weft_dim_bounds(cx->pool, a, &lo, &hi_a);
        weft_dim_bounds(cx->pool, b, &lo, &hi_b);
        if (!bound_symbol(cx, a, b, hi_b) && !bound_symbol(cx, b, a, hi_a))
            weft_infer__require(cx, WEFT_REQUIRE_EQUAL, a, b, what);
        return WEFT_ERR_OK;
    }
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s: %lld and %lld differ", what, (long long)a,
                     (long long)b);
}

/* -- Broadcasting --------------------------------------------------------------------------- */

/* The result of broadcasting two dims that differ, one of them symbolic. */
static weft_dim choose_broadcast(weft_infer_ctx *cx, weft_dim a, weft_dim b)
{
    int64_t lo_a, hi_a, lo_b, hi_b;
    weft_dim_bounds(cx->pool, a, &lo_a, &hi_a);
    weft_dim_bounds(cx->pool, b, &lo_b, &hi_b);
    if (weft_dim_is_const(a) || weft_dim_is_const(b))
        return weft_dim_is_const(a) ? a : b;
    if (bound_symbol(cx, a, b, hi_b))
        return a;
    if (bound_symbol(cx, b, a, hi_a) || hi_a <= 1)
        return b;
    if (hi_b <= 1)
        return a;
    if (lo_a > 1 && lo_b <= 1)
        return a;
    if (lo_b > 1 && lo_a <= 1)
        return b;
    if (!weft_dim_is_data(cx->pool, a))
        return a;
    /* Of two sizes that only data tells, either may be the 1. */
    return weft_dim_is_data(cx->pool, b) ? weft_dim_fresh(cx->pool) : b;
}

weft_err weft_infer__broadcast_dim(weft_infer_ctx *cx, weft_dim a, weft_dim b, weft_dim *out)
{
    if (a == b || b == 1) {
        *out = a;
        return WEFT_ERR_OK;
    }
    if (a == 1) {
        *out = b;
        return WEFT_ERR_OK;
    }
    bool ca = weft_dim_is_const(a), cb = weft_dim_is_const(b);
    if (ca && cb)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimensions %lld and %lld do not broadcast",
                         (long long)a, (long long)b);
    *out = choose_broadcast(cx, a, b);
    weft_infer__require(cx, WEFT_REQUIRE_FITS, *out, *out == a ? b : a, "dimension");
    return WEFT_ERR_OK;
}

weft_err weft_infer__broadcast(weft_infer_ctx *cx, const weft_ttype *a, const weft_ttype *b,
                               weft_ttype *out)
{
    uint32_t rank = a->rank > b->rank ? a->rank : b->rank;
    weft_dim dim[WEFT_RANK_MAX] = {0};
    for (uint32_t i = 0; i < rank; i++) {
        weft_dim da = i + a->rank >= rank ? a->dim[i + a->rank - rank] : 1;
        weft_dim db = i + b->rank >= rank ? b->dim[i + b->rank - rank] : 1;
        WEFT_TRY(weft_infer__broadcast_dim(cx, da, db, &dim[i]));
    }
    out->rank = (uint8_t)rank;
    memcpy(out->dim, dim, sizeof dim);
    return WEFT_ERR_OK;
}

/* -- Contents and parameters ---------------------------------------------------------------- */

bool weft_infer__tensor(weft_infer_ctx *cx, uint32_t in, weft_tensor *out)
{
    if (!weft_infer__has(cx, in))
        return false;
    const weft_operand *op = &cx->in[in];
    weft_tensor t = {.dtype = (weft_dtype)op->type.dtype, .rank = op->type.rank};
    for (uint32_t i = 0; i < op->type.rank; i++) {
        if (!weft_dim_is_const(op->type.dim[i]))
            return false;
        t.dim[i] = op->type.dim[i];
    }
    int64_t n = weft_numel(t.dim, t.rank);
    if (n < 0 || (op->data == NULL && n > 0))
        return false;
    /* Users only read through the view. */
    union {
        const void *in;
        void *out;
    } data = {.in = op->data};
    t.data = data.out;
    *out = t;
    return true;
}

/* Integers of the operand's data, at most `limit`. Those of u64 are none: they may exceed a dim. */
static bool content_of_data(weft_infer_ctx *cx, uint32_t in, int64_t limit, const weft_dim **out,
                            uint32_t *out_n)
{
    weft_tensor t;
    if (!weft_infer__tensor(cx, in, &t) || weft_dtype_is_float(t.dtype) ||
        t.dtype == WEFT_DTYPE_U64)
        return false;
    int64_t n = weft_tensor_numel(&t);
    if (n > limit)
        return false;
    weft_dim *dim = weft_arena_array(cx->arena, (size_t)n + 1, sizeof *dim);
    for (int64_t i = 0; i < n; i++) {
        dim[i] = weft_dim_of_number(weft_tensor_get_i64(&t, i));
    }
    *out = dim;
    *out_n = (uint32_t)n;
    return true;
}

bool weft_infer__content(weft_infer_ctx *cx, uint32_t in, const weft_dim **out, uint32_t *out_n)
{
    if (!weft_infer__has(cx, in))
        return false;
    const weft_operand *op = &cx->in[in];
    if (op->content != NULL && op->n_content <= WEFT_CONTENT_MAX &&
        !weft_dtype_is_float((weft_dtype)op->type.dtype)) {
        *out = op->content;
        *out_n = op->n_content;
        return true;
    }
    return content_of_data(cx, in, WEFT_CONTENT_MAX, out, out_n);
}

weft_dim *weft_infer__set_content(weft_infer_ctx *cx, uint32_t out, uint32_t n)
{
    if (out >= cx->n_out || cx->out_content == NULL)
        return NULL;
    weft_dim *dim = weft_arena_array(cx->arena, (size_t)n + 1, sizeof *dim);
    cx->out_content[out] = dim;
    return dim;
}

/* Integers as dims; in a copy, values beyond the range of dims become its lowest value. */
static const weft_dim *as_dims(weft_arena *arena, const int64_t *list, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && weft_dim_is_const(list[i]))
        i++;
    if (i == n)
        return list;
    weft_dim *copy = weft_arena_array(arena, n, sizeof *copy);
    for (i = 0; i < n; i++)
        copy[i] = weft_dim_of_number(list[i]);
    return copy;
}

bool weft_infer_param(weft_infer_ctx *cx, uint32_t in, weft_attr_key key, const weft_dim **out,
                      uint32_t *out_n)
{
    enum { PARAM_MAX = 1 << 20 };
    *out = NULL;
    *out_n = 0;
    const weft_attr *a = weft_attrs_find(cx->attrs, key);
    if (a != NULL) {
        switch (a->kind) {
        case WEFT_KIND_DIMS:
            *out = a->u.dims;
            *out_n = a->n;
            break;
        case WEFT_KIND_INTS:
            *out = as_dims(cx->arena, a->u.ints, a->n);
            *out_n = a->n;
            break;
        case WEFT_KIND_INT:
            *out = as_dims(cx->arena, &a->u.i, 1);
            *out_n = 1;
            break;
        default:
            return false;
        }
        /* An empty list is a known value; a NULL list would mean that it is absent. */
        if (*out == NULL)
            *out = weft_arena_alloc(cx->arena, sizeof **out);
        return true;
    }
    if (!weft_infer__has(cx, in))
        return false;
    const weft_operand *op = &cx->in[in];
    if (op->content != NULL && !weft_dtype_is_float((weft_dtype)op->type.dtype)) {
        *out = op->content;
        *out_n = op->n_content;
        return true;
    }
    return content_of_data(cx, in, PARAM_MAX, out, out_n);
}
