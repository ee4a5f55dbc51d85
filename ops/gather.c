/* Reading and writing at indices: the families of gather and scatter. Indices may be negative.
 * Indices out of range are an INPUT error, found before any element is read. */
#include "ops/data_int.h"

#include <string.h>

/* The indices of a tensor, fixed to [0, limit); a copy in scratch. */
static weft_err fix_indices(weft_eval_ctx *cx, const weft_tensor *t, int64_t limit,
                            const int64_t **out)
{
    int64_t n = weft_tensor_numel(t);
    int64_t *list = weft_arena_array(cx->scratch, (size_t)n, sizeof *list);
    weft_eval__load_i64(t, 0, 1, n, list);
    for (int64_t i = 0; i < n; i++) {
        if (list[i] < -limit || list[i] >= limit)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "index %lld of %lld", (long long)list[i],
                             (long long)limit);
        if (list[i] < 0)
            list[i] += limit;
    }
    *out = list;
    return WEFT_ERR_OK;
}

/* -- gather --------------------------------------------------------------------------------- */

weft_err weft_infer_gather(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *index = &cx->in[1].type;
    uint32_t axis;
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    uint32_t rank = x->rank + index->rank - 1u;
    if (rank > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", rank, WEFT_RANK_MAX);
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, rank);
    uint32_t at = 0;
    for (uint32_t d = 0; d < axis; d++)
        out->dim[at++] = x->dim[d];
    for (uint32_t d = 0; d < index->rank; d++)
        out->dim[at++] = index->dim[d];
    for (uint32_t d = axis + 1; d < x->rank; d++)
        out->dim[at++] = x->dim[d];
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_gather(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *index = cx->in[1];
    weft_tensor *out = weft_eval__out(cx, 0);
    uint32_t axis;
    const int64_t *at;
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    WEFT_TRY(fix_indices(cx, index, x->dim[axis], &at));
    int64_t outer = weft_dims__product(x->dim, 0, (int32_t)axis);
    int64_t inner = weft_dims__product(x->dim, (int32_t)axis + 1, x->rank);
    int64_t n = weft_tensor_numel(index), limit = x->dim[axis];
    if (outer * n * inner != weft_tensor_numel(out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result does not fit the operands");
    size_t row = (size_t)inner * weft_dtype_size(x->dtype);
    char *dst = out->data;
    if (row == 0)
        return WEFT_ERR_OK;
    for (int64_t o = 0; o < outer; o++) {
        const char *src = weft_data__at(x, o * limit * inner);
        for (int64_t i = 0; i < n; i++, dst += row)
            memcpy(dst, src + at[i] * (int64_t)row, row);
    }
    return WEFT_ERR_OK;
}

/* -- gather_elements ------------------------------------------------------------------------ */

weft_err weft_infer_gather_elements(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t axis;
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    WEFT_TRY(weft_infer__rank(cx, 1, x->rank, x->rank));
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    weft_infer__copy(cx, 0, 1);
    cx->out[0].dtype = x->dtype;
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

/* INPUT unless `part` (indices) is at most as large as `whole` in all dims but the axis. */
static weft_err check_inside(weft_eval_ctx *cx, const weft_tensor *part, const weft_tensor *whole,
                             uint32_t axis)
{
    if (part->rank != whole->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the indices have rank %d, the data %d", part->rank,
                         whole->rank);
    for (int32_t d = 0; d < part->rank; d++)
        if (d != (int32_t)axis && part->dim[d] > whole->dim[d])
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %d: %lld indices for %lld elements", d,
                             (long long)part->dim[d], (long long)whole->dim[d]);
    return WEFT_ERR_OK;
}

/* Offset in `whole` of the element that an index at position `pos` picks. */
static int64_t picked(const int64_t *pos, const int64_t *stride, int32_t rank, uint32_t axis,
                      int64_t index)
{
    int64_t at = index * stride[axis];
    for (int32_t d = 0; d < rank; d++)
        if (d != (int32_t)axis)
            at += pos[d] * stride[d];
    return at;
}

weft_err weft_eval_gather_elements(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *index = cx->in[1];
    weft_tensor *out = weft_eval__out(cx, 0);
    uint32_t axis;
    const int64_t *at;
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    WEFT_TRY(check_inside(cx, index, x, axis));
    WEFT_TRY(weft_eval__check_dims(cx, 0, index->dim, index->rank));
    WEFT_TRY(fix_indices(cx, index, x->dim[axis], &at));
    int64_t stride[WEFT_RANK_MAX], pos[WEFT_RANK_MAX] = {0}, n = weft_tensor_numel(index);
    size_t elem = weft_dtype_size(x->dtype);
    weft_dims__strides(x->dim, x->rank, stride);
    for (int64_t i = 0; i < n; i++) {
        memcpy(weft_data__at(out, i), weft_data__at(x, picked(pos, stride, x->rank, axis, at[i])),
               elem);
        weft_index__next(pos, index->dim, index->rank);
    }
    return WEFT_ERR_OK;
}

/* -- gather_nd ------------------------------------------------------------------------------ */

weft_err weft_infer_gather_nd(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *index = &cx->in[1].type;
    int64_t batch = weft_attrs_int(cx->attrs, WEFT_ATTR_BATCH_DIMS, 0);
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    WEFT_TRY(weft_infer__rank(cx, 0, 1, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, 1, WEFT_RANK_MAX));
    weft_dim depth = index->dim[index->rank - 1];
    if (!weft_dim_is_const(depth))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "the rank of the result is not known" WEFT_REMEDY);
    if (batch < 0 || batch >= x->rank || batch >= index->rank || depth < 1 ||
        depth > x->rank - batch)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld indices and %lld batch dimensions for rank %u",
                         (long long)depth, (long long)batch, x->rank);
    uint32_t tail = (uint32_t)(x->rank - batch - depth);
    if (index->rank - 1u + tail > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", index->rank - 1u + tail,
                         WEFT_RANK_MAX);
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, index->rank - 1u + tail);
    for (uint32_t d = 0; d < index->rank - 1u; d++)
        out->dim[d] = index->dim[d];
    for (uint32_t d = 0; d < (uint32_t)batch; d++)
        WEFT_TRY(weft_infer__unify(cx, index->dim[d], x->dim[d], "batch dimension", &out->dim[d]));
    for (uint32_t d = 0; d < tail; d++)
        out->dim[index->rank - 1u + d] = x->dim[x->rank - tail + d];
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

/* Offsets, in elements, of the slices that rows of `depth` indices pick in dims [from, from+depth).
 */
static weft_err slice_offsets(weft_eval_ctx *cx, const weft_tensor *x, const weft_tensor *index,
                              int64_t batch, const int64_t **out_at, int64_t *out_n)
{
    int64_t depth = index->rank > 0 ? index->dim[index->rank - 1] : 0;
    if (index->rank < 1 || depth < 1 || batch + depth > x->rank || batch >= index->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the indices do not fit rank %d", x->rank);
    int64_t stride[WEFT_RANK_MAX], n = weft_dims__product(index->dim, 0, index->rank - 1);
    int64_t rows = weft_dims__product(index->dim, (int32_t)batch, index->rank - 1);
    int64_t batches = weft_dims__product(x->dim, 0, (int32_t)batch);
    int64_t pitch = weft_dims__product(x->dim, (int32_t)batch, x->rank);
    if (n != batches * rows)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the batch dimensions differ");
    int64_t *at = weft_arena_array(cx->scratch, (size_t)n, sizeof *at);
    const int64_t *list = weft_eval__i64(cx, index);
    weft_dims__strides(x->dim, x->rank, stride);
    for (int64_t i = 0; i < n; i++) {
        at[i] = i / (rows > 0 ? rows : 1) * pitch;
        for (int64_t k = 0; k < depth; k++) {
            int64_t v = list[i * depth + k], limit = x->dim[batch + k];
            if (v < -limit || v >= limit)
                return WEFT_FAIL(cx, WEFT_ERR_INPUT, "index %lld of %lld", (long long)v,
                                 (long long)limit);
            at[i] += (v < 0 ? v + limit : v) * stride[batch + k];
        }
    }
    *out_at = at;
    *out_n = n;
    return WEFT_ERR_OK;
}

weft_err weft_eval_gather_nd(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *index = cx->in[1];
    weft_tensor *out = weft_eval__out(cx, 0);
    int64_t batch = weft_attrs_int(cx->attrs, WEFT_ATTR_BATCH_DIMS, 0), n;
    const int64_t *at;
    if (!out)
        return WEFT_ERR_OK;
    if (batch < 0 || batch > x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "batch_dims is %lld", (long long)batch);
    WEFT_TRY(slice_offsets(cx, x, index, batch, &at, &n));
    int64_t depth = index->dim[index->rank - 1];
    int64_t inner = weft_dims__product(x->dim, (int32_t)(batch + depth), x->rank);
    size_t row = (size_t)inner * weft_dtype_size(x->dtype);
    if (n * inner != weft_tensor_numel(out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result does not fit the operands");
    for (int64_t i = 0; i < n && row > 0; i++)
        memcpy((char *)out->data + (size_t)i * row, weft_data__at(x, at[i]), row);
    return WEFT_ERR_OK;
}

/* -- scatter -------------------------------------------------------------------------------- */

typedef enum scatter_mode { SET, ADD, MUL, MIN, MAX } scatter_mode;

static bool scatter_parse(weft_attrs attrs, scatter_mode *out)
{
    static const char *const names[] = {"none", "add", "mul", "min", "max"};
    const char *name = weft_attrs_str(attrs, WEFT_ATTR_REDUCTION, "none");
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (scatter_mode)i;
            return true;
        }
    return false;
}

/* NaN if an operand is NaN, as in NumPy. */
static double combine_f64(scatter_mode mode, double a, double b)
{
    switch (mode) {
    case ADD:
        return a + b;
    case MUL:
        return a * b;
    case MIN:
        return a < b || a != a ? a : b;
    case MAX:
        return a > b || a != a ? a : b;
    default:
        return b;
    }
}

static int64_t combine_i64(scatter_mode mode, int64_t a, int64_t b, bool is_unsigned)
{
    bool less = is_unsigned ? (uint64_t)a < (uint64_t)b : a < b;
    switch (mode) {
    case ADD:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case MUL:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case MIN:
        return less ? a : b;
    case MAX:
        return less ? b : a;
    default:
        return b;
    }
}

/* n elements of `out` at `at` combined with those of `from` at `first`. */
static void scatter_run(const weft_tensor *out, int64_t at, const weft_tensor *from, int64_t first,
                        int64_t n, scatter_mode mode)
{
    if (mode == SET) {
        if (n > 0)
            memcpy(weft_data__at(out, at), weft_data__at(from, first),
                   (size_t)n * weft_dtype_size(out->dtype));
        return;
    }
    bool exact = !weft_dtype_is_float(out->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (exact) {
            int64_t a, b;
            weft_eval__load_i64(out, at + i, 1, 1, &a);
            weft_eval__load_i64(from, first + i, 1, 1, &b);
            a = combine_i64(mode, a, b, weft_dtype_get_class(out->dtype) == WEFT_CLASS_UNSIGNED);
            weft_eval__store_i64(out, at + i, 1, 1, &a);
        } else {
            double a, b;
            weft_eval__load_f64(out, at + i, 1, 1, &a);
            weft_eval__load_f64(from, first + i, 1, 1, &b);
            a = combine_f64(mode, a, b);
            weft_eval__store_f64(out, at + i, 1, 1, &a);
        }
    }
}

static weft_err infer_scatter(weft_infer_ctx *cx)
{
    scatter_mode mode;
    if (!scatter_parse(cx->attrs, &mode))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "reduction \"%s\"",
                         weft_attrs_str(cx->attrs, WEFT_ATTR_REDUCTION, ""));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
    weft_infer__copy(cx, 0, 0);
    /* A reduction does arithmetic, so it cannot run on handles of dims. */
    if (mode == SET)
        weft_infer__move_content(cx, 1u << 0 | 1u << 2);
    return WEFT_ERR_OK;
}

weft_err weft_infer_scatter_elements(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t axis;
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    WEFT_TRY(weft_infer__rank(cx, 1, x->rank, x->rank));
    WEFT_TRY(weft_infer__rank(cx, 2, x->rank, x->rank));
    for (uint32_t d = 0; d < x->rank; d++)
        WEFT_TRY(weft_infer__agree(cx, cx->in[1].type.dim[d], cx->in[2].type.dim[d], "dimension"));
    return infer_scatter(cx);
}

/* The result starts as a copy of the data. */
static weft_err scatter_start(weft_eval_ctx *cx, scatter_mode *out_mode)
{
    const weft_tensor *x = cx->in[0];
    if (!scatter_parse(cx->attrs, out_mode))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "unknown reduction");
    if (cx->in[2]->dtype != x->dtype)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "data and updates differ in type");
    WEFT_TRY(weft_eval__check_dims(cx, 0, x->dim, x->rank));
    if (weft_tensor_bytes(x) > 0)
        memcpy(cx->out[0].data, x->data, weft_tensor_bytes(x));
    return WEFT_ERR_OK;
}

weft_err weft_eval_scatter_elements(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *index = cx->in[1], *from = cx->in[2];
    weft_tensor *out = weft_eval__out(cx, 0);
    scatter_mode mode;
    uint32_t axis;
    const int64_t *at;
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    WEFT_TRY(check_inside(cx, index, x, axis));
    WEFT_TRY(fix_indices(cx, index, x->dim[axis], &at));
    int64_t n = weft_tensor_numel(index);
    if (weft_tensor_numel(from) != n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "updates and indices differ in number");
    WEFT_TRY(scatter_start(cx, &mode));
    int64_t stride[WEFT_RANK_MAX], pos[WEFT_RANK_MAX] = {0};
    weft_dims__strides(x->dim, x->rank, stride);
    for (int64_t i = 0; i < n; i++) {
        scatter_run(out, picked(pos, stride, x->rank, axis, at[i]), from, i, 1, mode);
        weft_index__next(pos, index->dim, index->rank);
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_scatter_nd(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *index = &cx->in[1].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 1, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, 1, WEFT_RANK_MAX));
    weft_dim depth = index->dim[index->rank - 1];
    if (weft_dim_is_const(depth)) {
        if (depth < 1 || depth > x->rank)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld indices for rank %u", (long long)depth,
                             x->rank);
        uint32_t rank = index->rank - 1u + x->rank - (uint32_t)depth;
        WEFT_TRY(weft_infer__rank(cx, 2, rank, rank));
    }
    return infer_scatter(cx);
}

weft_err weft_eval_scatter_nd(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *index = cx->in[1], *from = cx->in[2];
    weft_tensor *out = weft_eval__out(cx, 0);
    scatter_mode mode;
    const int64_t *at;
    int64_t n;
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(slice_offsets(cx, x, index, 0, &at, &n));
    int64_t depth = index->dim[index->rank - 1];
    int64_t inner = weft_dims__product(x->dim, (int32_t)depth, x->rank);
    if (n * inner != weft_tensor_numel(from))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the updates do not fit the indices");
    WEFT_TRY(scatter_start(cx, &mode));
    for (int64_t i = 0; i < n; i++)
        scatter_run(out, at[i], from, i * inner, inner, mode);
    return WEFT_ERR_OK;
}
