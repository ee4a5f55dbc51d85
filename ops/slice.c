/* slice, pad and center_crop_pad. */
#include "ops/data_int.h"

#include <string.h>

/* -- slice ---------------------------------------------------------------------------------- */

void weft_op_slice_range(int64_t d, int64_t start, int64_t end, int64_t step, int64_t *out_first,
                         int64_t *out_count)
{
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? d : d - 1;
    *out_first = *out_count = 0;
    if (d <= 0)
        return;
    start = start >= 0 ? (start < hi ? start : hi) : start < -d ? 0 : start + d;
    end = end >= 0 ? (end < hi ? end : hi) : end < -d ? lo : end + d;
    *out_first = start;
    if (step > 0 && start < end)
        *out_count = (end - start - 1) / step + 1;
    else if (step < 0 && start > end)
        *out_count = step == INT64_MIN ? 1 : (start - end - 1) / -step + 1;
}

/* -1: never positive, and so counted from the end (x[-n:]); 1: never negative; 0: open. */
static int sign_of(const weft_dimpool *pool, weft_dim i)
{
    int64_t least, most;
    weft_dim_bounds(pool, i, &least, &most);
    return least >= 0 ? 1 : most <= 0 ? -1 : 0;
}

/* An index given as a dim, clipped as above. Where the sign of a symbolic index is open, it counts
 * from the front. */
static weft_dim clip_index(weft_dimpool *pool, weft_dim i, weft_dim d, weft_dim lo, weft_dim hi)
{
    if (sign_of(pool, i) >= 0)
        return weft_dim_min(pool, i, hi);
    /* Beyond any dim: clamped before the sum overflows. */
    if (weft_dim_is_const(i) && i < -WEFT_NUMEL_MAX)
        return lo;
    return weft_dim_max(pool, weft_dim_add(pool, d, i), lo);
}

/* The same for indices of any sign: d is added where i < 0. */
static weft_dim clip_exactly(weft_dimpool *pool, weft_dim i, weft_dim d, weft_dim lo, weft_dim hi)
{
    weft_dim from_end = weft_dim_min(pool, 1, weft_dim_max(pool, weft_dim_sub(pool, 0, i), 0));
    i = weft_dim_add(pool, i, weft_dim_mul(pool, d, from_end));
    return weft_dim_max(pool, weft_dim_min(pool, i, hi), lo);
}

static weft_dim count_steps(weft_dimpool *pool, weft_dim from, weft_dim to, int64_t step)
{
    weft_dim span = step > 0 ? weft_dim_sub(pool, to, from) : weft_dim_sub(pool, from, to);
    span = weft_infer__not_negative(pool, span);
    if (step == 1 || step == -1)
        return span;
    return weft_infer__ceil_div(pool, span, step > 0 ? step : -step);
}

static bool needs_check(const weft_dimpool *pool, weft_dim i)
{
    return !weft_dim_is_const(i) && sign_of(pool, i) <= 0;
}

/* Number of elements; sizes for which an index has another sign than is assumed are refused. */
static weft_dim slice_count(weft_infer_ctx *cx, weft_dim d, weft_dim start, weft_dim end,
                            int64_t step)
{
    weft_dimpool *pool = cx->pool;
    if (weft_dim_is_const(d) && weft_dim_is_const(start) && weft_dim_is_const(end)) {
        int64_t first, count;
        weft_op_slice_range(d, start, end, step, &first, &count);
        return count;
    }
    weft_dim lo = step > 0 ? 0 : -1, hi = step > 0 ? d : weft_dim_sub(pool, d, 1);
    weft_dim from = clip_index(pool, start, d, 0, hi), to = clip_index(pool, end, d, lo, hi);
    weft_dim count = count_steps(pool, from, to, step);
    if (needs_check(pool, start) || needs_check(pool, end)) {
        if (needs_check(pool, start))
            from = clip_exactly(pool, start, d, 0, hi);
        if (needs_check(pool, end))
            to = clip_exactly(pool, end, d, lo, hi);
        weft_infer__require(cx, WEFT_REQUIRE_EQUAL, count, count_steps(pool, from, to, step),
                            "length of a slice");
    }
    return count;
}

weft_err weft_infer_slice(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *starts, *ends;
    const int64_t *axes, *steps;
    uint32_t n = 0, n_ends, n_axes, n_steps, seen = 0;
    weft_given given_starts = weft_param__dims(cx, 1, WEFT_ATTR_STARTS, &starts, &n);
    weft_given given_ends = weft_param__dims(cx, 2, WEFT_ATTR_ENDS, &ends, &n_ends);
    weft_given given_axes = weft_param__ints(cx, 3, WEFT_ATTR_AXES, &axes, &n_axes);
    weft_given given_steps = weft_param__ints(cx, 4, WEFT_ATTR_STEPS, &steps, &n_steps);
    if (given_starts == WEFT_GIVEN_NOT || given_ends == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts and ends are wanted");
    weft_infer__copy(cx, 0, 0);
    weft_ttype *out = &cx->out[0];
    if (given_axes == WEFT_GIVEN_LATER) {
        weft_infer__fresh(cx, out);
        return WEFT_ERR_OK;
    }
    bool known = given_starts == WEFT_GIVEN_KNOWN && given_ends == WEFT_GIVEN_KNOWN;
    if (given_starts != WEFT_GIVEN_KNOWN)
        n = n_ends;
    if (!known && given_axes != WEFT_GIVEN_KNOWN && n == 0) {
        weft_infer__fresh(cx, out);
        return WEFT_ERR_OK;
    }
    if (given_axes == WEFT_GIVEN_KNOWN && n == 0)
        n = known ? 0 : n_axes;
    if ((given_ends == WEFT_GIVEN_KNOWN && n_ends != n) ||
        (given_axes == WEFT_GIVEN_KNOWN && n_axes != n) ||
        (given_steps == WEFT_GIVEN_KNOWN && n_steps != n) || n > x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts, ends, axes and steps differ in number");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t axis;
        WEFT_TRY(weft_infer__axis(cx, given_axes == WEFT_GIVEN_KNOWN ? axes[i] : (int64_t)i,
                                  x->rank, &axis));
        if (seen >> axis & 1)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %u is given twice", axis);
        seen |= 1u << axis;
        int64_t step = given_steps == WEFT_GIVEN_KNOWN ? steps[i] : 1;
        if (step == 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "step %u is 0", i);
        if (!known || given_steps == WEFT_GIVEN_LATER)
            out->dim[axis] = weft_dim_fresh(cx->pool);
        else
            out->dim[axis] = slice_count(cx, x->dim[axis], starts[i], ends[i], step);
    }
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_slice(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    const int64_t *starts, *ends, *axes = NULL, *steps = NULL;
    uint32_t n, n_ends, n_axes, n_steps;
    if (!out)
        return WEFT_ERR_OK;
    if (!weft_eval_param(cx, 1, WEFT_ATTR_STARTS, &starts, &n) ||
        !weft_eval_param(cx, 2, WEFT_ATTR_ENDS, &ends, &n_ends))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts and ends are wanted");
    if (!weft_eval_param(cx, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        n_axes = n;
    if (!weft_eval_param(cx, 4, WEFT_ATTR_STEPS, &steps, &n_steps))
        n_steps = n;
    if (n != n_ends || n != n_axes || n != n_steps || (int64_t)n > x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "starts, ends, axes and steps differ in number");
    int64_t dim[WEFT_RANK_MAX], from[WEFT_RANK_MAX], to[WEFT_RANK_MAX], offset = 0;
    memcpy(dim, x->dim, sizeof dim);
    weft_dims__strides(x->dim, x->rank, from);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t axis;
        int64_t first;
        WEFT_TRY(weft_eval__axis(cx, axes ? axes[i] : (int64_t)i, x->rank, &axis));
        int64_t step = steps ? steps[i] : 1;
        if (step == 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "step %u is 0", i);
        weft_op_slice_range(x->dim[axis], starts[i], ends[i], step, &first, &dim[axis]);
        offset += first * from[axis];
        /* A step larger than the dim takes one element. */
        from[axis] *= dim[axis] > 1 ? step : 1;
    }
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, x->rank));
    if (weft_tensor_numel(out) == 0)
        return WEFT_ERR_OK;
    weft_dims__strides(dim, x->rank, to);
    weft_walk w = {0};
    for (int32_t d = 0; d < x->rank; d++)
        weft_walk__push(&w, dim[d], to[d], from[d]);
    weft_walk__copy(&w, out->data, weft_data__at(x, offset), weft_dtype_size(x->dtype));
    return WEFT_ERR_OK;
}

/* -- pad ------------------------------------------------------------------------------------ */

weft_err weft_infer_pad(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *pads;
    const int64_t *axes;
    uint32_t n, n_axes, seen = 0;
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "constant");
    if (strcmp(mode, "constant") != 0 && strcmp(mode, "reflect") != 0 &&
        strcmp(mode, "edge") != 0 && strcmp(mode, "wrap") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "mode \"%s\"", mode);
    if (weft_infer__has(cx, 2))
        WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_PADS, &pads, &n);
    weft_given given_axes = weft_param__ints(cx, 3, WEFT_ATTR_AXES, &axes, &n_axes);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no pads are given");
    weft_infer__copy(cx, 0, 0);
    weft_ttype *out = &cx->out[0];
    if (given_axes == WEFT_GIVEN_LATER) {
        weft_infer__fresh(cx, out);
        return WEFT_ERR_OK;
    }
    if (given_axes == WEFT_GIVEN_NOT)
        n_axes = x->rank;
    if (given == WEFT_GIVEN_KNOWN && n != 2 * n_axes)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u pads for %u axes", n, n_axes);
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t axis = i;
        if (given_axes == WEFT_GIVEN_KNOWN)
            WEFT_TRY(weft_infer__axis(cx, axes[i], x->rank, &axis));
        if (seen >> axis & 1)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "axis %u is given twice", axis);
        seen |= 1u << axis;
        if (given == WEFT_GIVEN_LATER)
            out->dim[axis] = weft_dim_fresh(cx->pool);
        else
            out->dim[axis] = weft_dim_add(cx->pool, weft_dim_add(cx->pool, x->dim[axis], pads[i]),
                                          pads[n_axes + i]);
    }
    weft_infer__move_content(cx, 1u << 0 | 1u << 2);
    return WEFT_ERR_OK;
}

/* Pads before each dimension; the ones behind follow from the result. */
static weft_err pads_before(weft_eval_ctx *cx, int64_t *before)
{
    const weft_tensor *x = cx->in[0];
    const int64_t *pads, *axes = NULL;
    uint32_t n, n_axes;
    int64_t dim[WEFT_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    memset(before, 0, WEFT_RANK_MAX * sizeof *before);
    if (!weft_eval_param(cx, 1, WEFT_ATTR_PADS, &pads, &n))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no pads are given");
    if (!weft_eval_param(cx, 3, WEFT_ATTR_AXES, &axes, &n_axes))
        n_axes = (uint32_t)x->rank;
    if (n != 2 * n_axes)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u pads for %u axes", n, n_axes);
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t axis;
        WEFT_TRY(weft_eval__axis(cx, axes ? axes[i] : (int64_t)i, x->rank, &axis));
        int64_t after = pads[n_axes + i];
        if (pads[i] > WEFT_NUMEL_MAX || pads[i] < -WEFT_NUMEL_MAX || after > WEFT_NUMEL_MAX ||
            after < -WEFT_NUMEL_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the pads are too large");
        before[axis] = pads[i];
        dim[axis] += pads[i] + after;
    }
    return weft_eval__check_dims(cx, 0, dim, x->rank);
}

/* The operand with before[d] elements added (removed, if negative) at the front of each dim, and
 * cut or filled at the end to the dims of the result. */
static void place(weft_eval_ctx *cx, const int64_t *before, const void *fill)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = &cx->out[0];
    size_t elem = weft_dtype_size(x->dtype);
    weft_data__fill(out->data, weft_tensor_numel(out), fill, elem);
    int64_t from[WEFT_RANK_MAX], to[WEFT_RANK_MAX], at_from = 0, at_to = 0;
    weft_dims__strides(x->dim, x->rank, from);
    weft_dims__strides(out->dim, out->rank, to);
    weft_walk w = {0};
    for (int32_t d = 0; d < x->rank; d++) {
        /* The overlap, in coordinates of the operand. */
        int64_t first = before[d] < 0 ? -before[d] : 0;
        int64_t end = out->dim[d] - before[d] < x->dim[d] ? out->dim[d] - before[d] : x->dim[d];
        if (end <= first)
            return;
        at_from += first * from[d];
        at_to += (first + before[d]) * to[d];
        weft_walk__push(&w, end - first, to[d], from[d]);
    }
    weft_walk__copy(&w, weft_data__at(out, at_to), weft_data__at(x, at_from), elem);
}

static void pad_constant(weft_eval_ctx *cx, const int64_t *before)
{
    const weft_tensor *value = weft_eval__in(cx, 2);
    uint64_t zero = 0;
    place(cx, before, value && weft_tensor_numel(value) == 1 ? value->data : &zero);
}

/* Index of the operand for index i, which may be outside [0, d). */
static int64_t mirror_index(int64_t i, int64_t d, char mode)
{
    if (mode == 'e')
        return i < 0 ? 0 : i >= d ? d - 1 : i;
    int64_t period = mode == 'w' ? d : d > 1 ? 2 * (d - 1) : 1;
    i %= period;
    i = i < 0 ? i + period : i;
    return i < d ? i : period - i;
}

static weft_err pad_mirror(weft_eval_ctx *cx, const int64_t *before, char mode)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = &cx->out[0];
    int64_t *map[WEFT_RANK_MAX], from[WEFT_RANK_MAX], idx[WEFT_RANK_MAX] = {0};
    size_t elem = weft_dtype_size(x->dtype);
    weft_dims__strides(x->dim, x->rank, from);
    for (int32_t d = 0; d < x->rank; d++) {
        if (x->dim[d] == 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %d is empty, mode needs elements", d);
        map[d] = weft_arena_array(cx->scratch, (size_t)out->dim[d], sizeof(int64_t));
        for (int64_t i = 0; i < out->dim[d]; i++)
            map[d][i] = mirror_index(i - before[d], x->dim[d], mode) * from[d];
    }
    int32_t last = x->rank - 1;
    int64_t rows = weft_dims__product(out->dim, 0, last), cols = out->dim[last];
    for (int64_t row = 0; row < rows; row++) {
        int64_t at = 0;
        for (int32_t d = 0; d < last; d++)
            at += map[d][idx[d]];
        char *dst = weft_data__at(out, row * cols);
        const char *src = weft_data__at(x, at);
        for (int64_t j = 0; j < cols; j++)
            memcpy(dst + j * (int64_t)elem, src + map[last][j] * (int64_t)elem, elem);
        weft_index__next(idx, out->dim, last);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_pad(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "constant");
    int64_t before[WEFT_RANK_MAX];
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(pads_before(cx, before));
    if (weft_tensor_numel(out) == 0)
        return WEFT_ERR_OK;
    if (mode[0] == 'c' || x->rank == 0)
        pad_constant(cx, before);
    else
        return pad_mirror(cx, before, mode[0]);
    return WEFT_ERR_OK;
}

/* -- center_crop_pad ------------------------------------------------------------------------ */

weft_err weft_infer_center_crop_pad(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *shape;
    uint32_t n, n_axes, axis;
    const int64_t *axes = weft_attrs_ints(cx->attrs, WEFT_ATTR_AXES, &n_axes);
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_SHAPE, &shape, &n);
    if (!axes)
        n_axes = x->rank;
    if (given == WEFT_GIVEN_NOT || (given == WEFT_GIVEN_KNOWN && n != n_axes))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a shape of %u entries is wanted", n_axes);
    weft_infer__copy(cx, 0, 0);
    for (uint32_t i = 0; i < n_axes; i++) {
        WEFT_TRY(weft_infer__axis(cx, axes ? axes[i] : (int64_t)i, x->rank, &axis));
        cx->out[0].dim[axis] = given == WEFT_GIVEN_KNOWN ? shape[i] : weft_dim_fresh(cx->pool);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_center_crop_pad(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    int64_t before[WEFT_RANK_MAX];
    uint64_t zero = 0;
    if (!out || weft_tensor_numel(out) == 0)
        return WEFT_ERR_OK;
    if (out->rank != x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand and result differ in rank");
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t more = out->dim[d] - x->dim[d];
        before[d] = more >= 0 ? more / 2 : -(-more / 2);
    }
    place(cx, before, &zero);
    return WEFT_ERR_OK;
}
