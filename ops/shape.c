/* Operators about shapes: shape and size of a tensor, reshapes, and tensors generated from a shape.
 */
#include "ops/data_int.h"

#include <math.h>
#include <string.h>

/* Results with the bytes of operand 0. */
static weft_err copy_bytes(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    if (weft_tensor_numel(x) != weft_tensor_numel(out) || x->dtype != out->dtype)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand and result differ in size");
    if (weft_tensor_bytes(x) > 0)
        memcpy(out->data, x->data, weft_tensor_bytes(x));
    return WEFT_ERR_OK;
}

/* -- shape, size ---------------------------------------------------------------------------- */

/* Clips [start, end) to the dims of a tensor of that rank. */
static void shape_range(weft_attrs attrs, int64_t rank, int64_t *out_start, int64_t *out_end)
{
    int64_t start = weft_attrs_int(attrs, WEFT_ATTR_START, 0);
    int64_t end = weft_attrs_int(attrs, WEFT_ATTR_END, rank);
    start = start < -rank ? 0 : start < 0 ? start + rank : start > rank ? rank : start;
    end = end < -rank ? 0 : end < 0 ? end + rank : end > rank ? rank : end;
    *out_start = start;
    *out_end = end < start ? start : end;
}

weft_err weft_infer_shape(weft_infer_ctx *cx)
{
    int64_t start, end;
    const weft_ttype *x = &cx->in[0].type;
    shape_range(cx->attrs, x->rank, &start, &end);
    weft_infer__out(cx, 0, WEFT_DTYPE_I64, 1)->dim[0] = end - start;
    weft_dim *content = weft_infer__set_content(cx, 0, (uint32_t)(end - start));
    for (int64_t i = start; i < end && content; i++)
        content[i - start] = x->dim[i];
    return WEFT_ERR_OK;
}

weft_err weft_eval_shape(weft_eval_ctx *cx)
{
    int64_t start, end;
    shape_range(cx->attrs, cx->in[0]->rank, &start, &end);
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__check_dims(cx, 0, (int64_t[]){end - start}, 1));
    if (end > start)
        memcpy(out->data, cx->in[0]->dim + start, (size_t)(end - start) * sizeof(int64_t));
    return WEFT_ERR_OK;
}

weft_err weft_infer_size(weft_infer_ctx *cx)
{
    weft_infer__out(cx, 0, WEFT_DTYPE_I64, 0);
    weft_dim *content = weft_infer__set_content(cx, 0, 1);
    if (content)
        content[0] = weft_ttype_numel(cx->pool, &cx->in[0].type);
    return WEFT_ERR_OK;
}

weft_err weft_eval_size(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    if (out)
        *(int64_t *)out->data = weft_tensor_numel(cx->in[0]);
    return WEFT_ERR_OK;
}

/* -- reshape, view, flatten ----------------------------------------------------------------- */

/* Number of elements of x divided by that of the dims of `out` other than `hole`. Dims that both
 * have cancel first, which covers dims of 0 and most symbols. */
static weft_err fill_hole(weft_infer_ctx *cx, const weft_ttype *x, weft_ttype *out, uint32_t hole)
{
    bool used[WEFT_RANK_MAX] = {false};
    weft_dim rest = 1, all = 1;
    for (uint32_t i = 0; i < out->rank; i++) {
        uint32_t k = 0;
        while (k < x->rank && (used[k] || x->dim[k] != out->dim[i]))
            k++;
        if (i == hole)
            continue;
        if (k < x->rank)
            used[k] = true;
        else
            rest = weft_dim_mul(cx->pool, rest, out->dim[i]);
    }
    for (uint32_t k = 0; k < x->rank; k++)
        if (!used[k])
            all = weft_dim_mul(cx->pool, all, x->dim[k]);
    if (rest == 0) {
        out->dim[hole] = 0;
        return WEFT_ERR_OK;
    }
    if (weft_dim_div_exact(cx->pool, all, rest, &out->dim[hole]))
        return WEFT_ERR_OK;
    if (weft_dim_is_const(all) && weft_dim_is_const(rest))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s elements are no multiple of %s",
                         weft_infer__text(cx, all), weft_infer__text(cx, rest));
    out->dim[hole] = weft_dim_floordiv(cx->pool, all, rest);
    return weft_infer__agree(cx, all, weft_dim_mul(cx->pool, out->dim[hole], rest),
                             "number of elements");
}

static bool may_be_zero(weft_infer_ctx *cx, weft_dim d)
{
    int64_t lo, hi;
    weft_dim_bounds(cx->pool, d, &lo, &hi);
    return lo <= 0;
}

/* A symbol of the shape that is 0 in a run copies the operand's dim there, as the constant 0 does.
 * That changes a result that stays valid, which is one that is empty for another reason, too: of
 * another dim, or of the hole. Such sizes are refused. */
static void refuse_copies(weft_infer_ctx *cx, const weft_ttype *x, const weft_ttype *out,
                          uint32_t hole)
{
    for (uint32_t i = 0; i < out->rank && i < x->rank; i++) {
        bool matters = hole != UINT32_MAX;
        if (i == hole || weft_dim_is_const(out->dim[i]) || out->dim[i] == x->dim[i] ||
            !may_be_zero(cx, out->dim[i]))
            continue;
        for (uint32_t k = 0; k < out->rank && !matters; k++)
            matters = k != i && may_be_zero(cx, out->dim[k]);
        if (matters)
            weft_infer__require(cx, WEFT_REQUIRE_DIFFER, out->dim[i], 0,
                                "an entry of the shape, which would copy a dim");
    }
}

static weft_err reshape_dims(weft_infer_ctx *cx, const weft_ttype *x, const weft_dim *shape,
                             uint32_t n, weft_ttype *out)
{
    /* The shape of a view is the one of its result. */
    bool allow_zero =
        cx->op->id == WEFT_OP_VIEW || weft_attrs_int(cx->attrs, WEFT_ATTR_ALLOWZERO, 0) != 0;
    uint32_t hole = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        out->dim[i] = shape[i];
        if (!weft_dim_is_const(shape[i]) || shape[i] > 0 || (shape[i] == 0 && allow_zero))
            continue;
        if (shape[i] == 0) {
            if (i >= x->rank)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "entry %u is 0, the operand has rank %u", i,
                                 x->rank);
            out->dim[i] = x->dim[i];
        } else if (shape[i] == -1 && hole == UINT32_MAX) {
            hole = i;
        } else {
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "entry %u is %s", i,
                             weft_infer__text(cx, shape[i]));
        }
    }
    if (!allow_zero)
        refuse_copies(cx, x, out, hole);
    if (hole != UINT32_MAX)
        return fill_hole(cx, x, out, hole);
    weft_dim before = weft_ttype_numel(cx->pool, x), after = weft_ttype_numel(cx->pool, out);
    return weft_infer__agree(cx, before, after, "number of elements");
}

weft_err weft_infer_reshape(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *shape;
    uint32_t n;
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_SHAPE, &shape, &n);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no shape is given");
    if (given == WEFT_GIVEN_LATER) {
        const weft_ttype *s = &cx->in[1].type;
        if (s->rank != 1 || !weft_dim_is_const(s->dim[0]))
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
        if (s->dim[0] > WEFT_RANK_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank over %d", WEFT_RANK_MAX);
        weft_ttype *out = weft_infer__out(cx, 0, x->dtype, (uint32_t)s->dim[0]);
        weft_infer__fresh(cx, out);
        return WEFT_ERR_OK;
    }
    if (n > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", n, WEFT_RANK_MAX);
    WEFT_TRY(reshape_dims(cx, x, shape, n, weft_infer__out(cx, 0, x->dtype, n)));
    const weft_dim *content;
    uint32_t n_content;
    if (weft_infer__content(cx, 0, &content, &n_content)) {
        weft_dim *copy = weft_infer__set_content(cx, 0, n_content);
        if (copy && n_content > 0)
            memcpy(copy, content, n_content * sizeof *copy);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_reshape(weft_eval_ctx *cx)
{
    return copy_bytes(cx);
}

weft_err weft_infer_flatten(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    int64_t axis = weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 1);
    if (axis < -(int64_t)x->rank || axis > (int64_t)x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %lld of rank %u", (long long)axis, x->rank);
    if (axis < 0)
        axis += x->rank;
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, 2);
    out->dim[0] = out->dim[1] = 1;
    for (uint32_t i = 0; i < x->rank; i++) {
        weft_dim *side = &out->dim[(int64_t)i >= axis];
        *side = weft_dim_mul(cx->pool, *side, x->dim[i]);
    }
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_flatten(weft_eval_ctx *cx)
{
    return copy_bytes(cx);
}

/* -- squeeze, unsqueeze --------------------------------------------------------------------- */

/* The axes are known only at run time, but their number is known: the rank follows, the dims do
 * not.
 */
static weft_err infer_later_axes(weft_infer_ctx *cx, bool add)
{
    const weft_ttype *x = &cx->in[0].type, *axes = &cx->in[1].type;
    if (axes->rank > 1 || (axes->rank == 1 && !weft_dim_is_const(axes->dim[0])))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
    int64_t n = axes->rank == 1 ? axes->dim[0] : 1, rank = add ? x->rank + n : x->rank - n;
    if (rank < 0 || rank > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld axes for rank %u", (long long)n, x->rank);
    weft_infer__fresh(cx, weft_infer__out(cx, 0, x->dtype, (uint32_t)rank));
    return WEFT_ERR_OK;
}

/* Without axes, dims of constant 1 are removed. A symbolic dim stays and must not be 1 at run time:
 * the rank of a value is fixed when a model is compiled. */
weft_err weft_infer_squeeze(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const int64_t *axes;
    uint32_t n, mask = 0;
    weft_given given = weft_param__ints(cx, 1, WEFT_ATTR_AXES, &axes, &n);
    if (given == WEFT_GIVEN_LATER)
        return infer_later_axes(cx, false);
    if (given == WEFT_GIVEN_KNOWN)
        WEFT_TRY(weft_infer__axes(cx, axes, n, x->rank, &mask));
    for (uint32_t i = 0; i < x->rank; i++) {
        if (given == WEFT_GIVEN_NOT && x->dim[i] == 1)
            mask |= 1u << i;
        else if (given == WEFT_GIVEN_NOT)
            weft_infer__require(cx, WEFT_REQUIRE_DIFFER, x->dim[i], 1,
                                "a dimension of 1 needs a fixed size (`dims:`) to be squeezed");
        int64_t lo, hi;
        weft_dim_bounds(cx->pool, x->dim[i], &lo, &hi);
        if (mask >> i & 1 && (lo > 1 || hi < 1))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %u is %s, not 1", i,
                             weft_infer__text(cx, x->dim[i]));
        if (mask >> i & 1)
            WEFT_TRY(weft_infer__agree(cx, x->dim[i], 1, "squeezed dimension"));
    }
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, 0);
    for (uint32_t i = 0; i < x->rank; i++)
        if (!(mask >> i & 1))
            out->dim[out->rank++] = x->dim[i];
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_squeeze(weft_eval_ctx *cx)
{
    return copy_bytes(cx);
}

weft_err weft_infer_unsqueeze(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const int64_t *axes;
    uint32_t n, mask;
    weft_given given = weft_param__ints(cx, 1, WEFT_ATTR_AXES, &axes, &n);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no axes are given");
    if (given == WEFT_GIVEN_LATER)
        return infer_later_axes(cx, true);
    if (x->rank + n > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", x->rank + n, WEFT_RANK_MAX);
    WEFT_TRY(weft_infer__axes(cx, axes, n, x->rank + n, &mask));
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, x->rank + n);
    for (uint32_t i = 0, from = 0; i < out->rank; i++)
        out->dim[i] = mask >> i & 1 ? 1 : x->dim[from++];
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_unsqueeze(weft_eval_ctx *cx)
{
    return copy_bytes(cx);
}

/* -- expand --------------------------------------------------------------------------------- */

weft_err weft_infer_expand(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *shape;
    uint32_t n;
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_SHAPE, &shape, &n);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no shape is given");
    if (given == WEFT_GIVEN_LATER) {
        const weft_ttype *s = &cx->in[1].type;
        if (s->rank != 1 || !weft_dim_is_const(s->dim[0]) || s->dim[0] > WEFT_RANK_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
        uint32_t rank = s->dim[0] > x->rank ? (uint32_t)s->dim[0] : x->rank;
        weft_ttype *out = weft_infer__out(cx, 0, x->dtype, rank);
        weft_infer__fresh(cx, out);
        for (uint32_t k = 0; k < x->rank; k++) /* a size other than 1 stays */
            if (weft_dim_is_const(x->dim[k]) && x->dim[k] != 1)
                out->dim[rank - x->rank + k] = x->dim[k];
        return WEFT_ERR_OK;
    }
    if (n > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", n, WEFT_RANK_MAX);
    weft_ttype to = {.rank = (uint8_t)n};
    for (uint32_t i = 0; i < n; i++) {
        if (weft_dim_is_const(shape[i]) && shape[i] < 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "entry %u of the shape is %lld", i,
                             (long long)shape[i]);
        to.dim[i] = shape[i];
    }
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, 0);
    WEFT_TRY(weft_infer__broadcast(cx, &to, x, out)); /* where both fit, the shape wins */
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_expand(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    int64_t from[WEFT_RANK_MAX], to[WEFT_RANK_MAX];
    weft_dims__strides(x->dim, x->rank, from);
    weft_dims__strides(out->dim, out->rank, to);
    weft_walk w = {0};
    for (int32_t i = 0; i < out->rank; i++) {
        int32_t k = i - (out->rank - x->rank);
        int64_t dim = k >= 0 ? x->dim[k] : 1;
        if (x->rank > out->rank || (dim != 1 && dim != out->dim[i]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %d: %lld does not fit %lld", i,
                             (long long)dim, (long long)out->dim[i]);
        weft_walk__push(&w, out->dim[i], to[i], dim == 1 ? 0 : from[k]);
    }
    if (x->rank > out->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result has a smaller rank");
    weft_walk__copy(&w, out->data, x->data, weft_dtype_size(x->dtype));
    return WEFT_ERR_OK;
}

/* -- constant_of_shape, range --------------------------------------------------------------- */

/* One element as `dtype` in *out. */
static void constant_value(weft_attrs attrs, weft_dtype dtype, uint64_t *out)
{
    *out = 0;
    weft_tensor one = {.dtype = dtype, .rank = 0, .data = out};
    const weft_attr *a = weft_attrs_find(attrs, WEFT_ATTR_VALUE);
    if (a && a->kind == WEFT_KIND_INT)
        weft_eval__store_i64(&one, 0, 1, 1, &a->u.i);
    else if (a && a->kind == WEFT_KIND_FLOAT)
        weft_eval__store_f64(&one, 0, 1, 1, &a->u.f);
}

weft_err weft_infer_constant_of_shape(weft_infer_ctx *cx)
{
    weft_dtype dtype = weft_attrs_dtype(cx->attrs, WEFT_ATTR_DTYPE, WEFT_DTYPE_F32);
    const weft_dim *shape;
    uint32_t n;
    weft_given given = weft_param__dims(cx, 0, WEFT_ATTR_SHAPE, &shape, &n);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no shape is given");
    if (given == WEFT_GIVEN_LATER) {
        const weft_ttype *s = &cx->in[0].type;
        if (s->rank != 1 || !weft_dim_is_const(s->dim[0]) || s->dim[0] > WEFT_RANK_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
        weft_infer__fresh(cx, weft_infer__out(cx, 0, dtype, (uint32_t)s->dim[0]));
        return WEFT_ERR_OK;
    }
    if (n > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", n, WEFT_RANK_MAX);
    weft_ttype *out = weft_infer__out(cx, 0, dtype, n);
    for (uint32_t i = 0; i < n; i++)
        out->dim[i] = shape[i];
    weft_dim numel = weft_ttype_numel(cx->pool, out);
    if (!weft_dim_is_const(numel) || numel < 0 || numel > WEFT_CONTENT_MAX ||
        !(weft_dtype_is_int(dtype) || dtype == WEFT_DTYPE_BOOL))
        return WEFT_ERR_OK;
    weft_dim *content = weft_infer__set_content(cx, 0, (uint32_t)numel);
    uint64_t bits;
    constant_value(cx->attrs, dtype, &bits);
    weft_tensor one = {.dtype = dtype, .rank = 0, .data = &bits};
    int64_t value = weft_tensor_get_i64(&one, 0);
    for (int64_t i = 0; i < numel && content; i++)
        content[i] = weft_dim_of_number(value);
    return WEFT_ERR_OK;
}

weft_err weft_eval_constant_of_shape(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    uint64_t bits;
    constant_value(cx->attrs, out->dtype, &bits);
    weft_data__fill(out->data, weft_tensor_numel(out), &bits, weft_dtype_size(out->dtype));
    return WEFT_ERR_OK;
}

static const weft_attr_key range_keys[3] = {WEFT_ATTR_START, WEFT_ATTR_LIMIT, WEFT_ATTR_DELTA};

/* Elements of a range of floats; -1 when there are too many. */
static int64_t range_count(double start, double limit, double delta)
{
    double n = ceil((limit - start) / delta);
    if (!(n > 0))
        return 0;
    return n < (double)WEFT_NUMEL_MAX ? (int64_t)n : -1;
}

static weft_err infer_range_float(weft_infer_ctx *cx, weft_ttype *out)
{
    double value[3];
    for (uint32_t i = 0; i < 3; i++) {
        const double *v;
        uint32_t n;
        if (weft_param__floats(cx, i, range_keys[i], &v, &n) != WEFT_GIVEN_KNOWN || n != 1) {
            out->dim[0] = weft_dim_fresh(cx->pool);
            return WEFT_ERR_OK;
        }
        value[i] = v[0];
    }
    if (value[2] == 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the step is 0");
    out->dim[0] = range_count(value[0], value[1], value[2]);
    return WEFT_ERR_OK;
}

static weft_err infer_range_int(weft_infer_ctx *cx, weft_ttype *out)
{
    weft_dimpool *pool = cx->pool;
    weft_dim value[3];
    for (uint32_t i = 0; i < 3; i++) {
        const weft_dim *v;
        uint32_t n;
        if (weft_param__dims(cx, i, range_keys[i], &v, &n) != WEFT_GIVEN_KNOWN || n != 1) {
            out->dim[0] = weft_dim_fresh(pool);
            return WEFT_ERR_OK;
        }
        value[i] = v[0];
    }
    if (!weft_dim_is_const(value[2])) {
        out->dim[0] = weft_dim_fresh(pool);
        return WEFT_ERR_OK;
    }
    if (value[2] == 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the step is 0");
    weft_dim span = value[2] > 0 ? weft_dim_sub(pool, value[1], value[0])
                                 : weft_dim_sub(pool, value[0], value[1]);
    weft_dim step = value[2] > 0 ? value[2] : weft_dim_sub(pool, 0, value[2]);
    out->dim[0] = weft_infer__ceil_div(pool, weft_infer__not_negative(pool, span), step);
    /* In narrower types the numbers may wrap around. */
    if (!weft_dim_is_const(out->dim[0]) || out->dim[0] > WEFT_CONTENT_MAX ||
        out->dtype != WEFT_DTYPE_I64)
        return WEFT_ERR_OK;
    weft_dim *content = weft_infer__set_content(cx, 0, (uint32_t)out->dim[0]);
    for (int64_t i = 0; i < out->dim[0] && content; i++)
        content[i] = weft_dim_add(pool, value[0], weft_dim_mul(pool, value[2], i));
    return WEFT_ERR_OK;
}

weft_err weft_infer_range(weft_infer_ctx *cx)
{
    weft_dtype dtype = weft_infer__has(cx, 0)
                           ? (weft_dtype)cx->in[0].type.dtype
                           : weft_attrs_dtype(cx->attrs, WEFT_ATTR_DTYPE, WEFT_DTYPE_I64);
    weft_ttype *out = weft_infer__out(cx, 0, dtype, 1);
    for (uint32_t i = 0; i < 3; i++)
        if (!weft_infer__given(cx, i, range_keys[i]))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no %s is given",
                             weft_attr_key_name(range_keys[i]));
    if (weft_dtype_is_float(dtype))
        return infer_range_float(cx, out);
    return infer_range_int(cx, out);
}

static double range_float(const weft_eval_ctx *cx, uint32_t i)
{
    const weft_tensor *t = weft_eval__in(cx, i);
    if (!t || weft_tensor_numel(t) < 1)
        return weft_attrs_float(cx->attrs, range_keys[i], 0);
    return weft_tensor_get_f64(t, 0);
}

static weft_err range_int(weft_eval_ctx *cx, uint32_t i, int64_t *out)
{
    const int64_t *v;
    uint32_t n;
    if (!weft_eval_param(cx, i, range_keys[i], &v, &n) || n != 1)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no %s is given", weft_attr_key_name(range_keys[i]));
    *out = v[0];
    return WEFT_ERR_OK;
}

weft_err weft_eval_range(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    int64_t n = weft_tensor_numel(out);
    if (weft_dtype_is_float(out->dtype)) {
        double start = range_float(cx, 0), delta = range_float(cx, 2);
        for (int64_t i = 0; i < n; i++)
            weft_tensor_set_f64(out, i, start + (double)i * delta);
        return WEFT_ERR_OK;
    }
    int64_t start, delta;
    WEFT_TRY(range_int(cx, 0, &start));
    WEFT_TRY(range_int(cx, 2, &delta));
    for (int64_t i = 0; i < n; i++) {
        int64_t x = (int64_t)((uint64_t)start + (uint64_t)i * (uint64_t)delta);
        weft_eval__store_i64(out, i, 1, 1, &x);
    }
    return WEFT_ERR_OK;
}

/* -- eye_like ------------------------------------------------------------------------------- */

weft_err weft_infer_eye_like(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__rank(cx, 0, 2, 2));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype =
        (uint8_t)weft_attrs_dtype(cx->attrs, WEFT_ATTR_DTYPE, (weft_dtype)cx->in[0].type.dtype);
    return WEFT_ERR_OK;
}

weft_err weft_eval_eye_like(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out || weft_tensor_numel(out) == 0)
        return WEFT_ERR_OK;
    memset(out->data, 0, weft_tensor_bytes(out));
    int64_t k = weft_attrs_int(cx->attrs, WEFT_ATTR_K, 0);
    int64_t rows = out->dim[0], cols = out->dim[1];
    if (k <= -rows || k >= cols)
        return WEFT_ERR_OK;
    for (int64_t i = k < 0 ? -k : 0; i < rows && i + k < cols; i++)
        weft_tensor_set_i64(out, i * cols + i + k, 1);
    return WEFT_ERR_OK;
}
