/* Operators that move elements: permute, concatenate, split, repeat. They depend on the size of an
 * element, not on its type; eval is one strided copy. */
#include "ops/data_int.h"

#include <string.h>

/* Each result element is read once and written once, however large operand 0 is. */
weft_work weft_work_move(const weft_work_ctx *cx)
{
    weft_work work = {0};
    for (uint32_t i = 0; i < cx->n_out; i++)
        if (cx->out[i].present)
            work.bytes_written +=
                weft_work__numel(&cx->out[i]) * (double)weft_dtype_size(cx->out[i].dtype);
    if (cx->n_in > 0 && cx->in[0].is_weight)
        work.weight_bytes = work.bytes_written;
    else
        work.bytes_read = work.bytes_written;
    return work;
}

/* -- transpose ------------------------------------------------------------------------------ */

/* perm as given, or the reversed order. false when it is no permutation. */
static bool get_perm(weft_attrs attrs, uint32_t rank, uint32_t *perm)
{
    uint32_t n, seen = 0;
    const int64_t *given = weft_attrs_ints(attrs, WEFT_ATTR_PERM, &n);
    if (!given) {
        for (uint32_t i = 0; i < rank; i++)
            perm[i] = rank - 1 - i;
        return true;
    }
    if (n != rank)
        return false;
    for (uint32_t i = 0; i < rank; i++) {
        if (!weft_axis__fix(given[i], rank, &perm[i]) || seen >> perm[i] & 1)
            return false;
        seen |= 1u << perm[i];
    }
    return true;
}

weft_err weft_infer_transpose(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t perm[WEFT_RANK_MAX];
    if (!get_perm(cx->attrs, x->rank, perm))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "perm is no permutation of %u dimensions", x->rank);
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, x->rank);
    for (uint32_t i = 0; i < x->rank; i++)
        out->dim[i] = x->dim[perm[i]];
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_transpose(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    uint32_t perm[WEFT_RANK_MAX];
    if (!out)
        return WEFT_ERR_OK;
    if (!get_perm(cx->attrs, (uint32_t)x->rank, perm))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "perm is no permutation");
    int64_t from[WEFT_RANK_MAX], to[WEFT_RANK_MAX], dim[WEFT_RANK_MAX];
    for (int32_t i = 0; i < x->rank; i++)
        dim[i] = x->dim[perm[i]];
    WEFT_TRY(weft_eval__check_dims(cx, 0, dim, x->rank));
    weft_dims__strides(x->dim, x->rank, from);
    weft_dims__strides(dim, x->rank, to);
    weft_walk w = {0};
    for (int32_t i = 0; i < x->rank; i++)
        weft_walk__push(&w, dim[i], to[i], from[perm[i]]);
    weft_walk__copy(&w, out->data, x->data, weft_dtype_size(x->dtype));
    return WEFT_ERR_OK;
}

/* -- tile ----------------------------------------------------------------------------------- */

weft_err weft_infer_tile(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *repeats;
    uint32_t n;
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_REPEATS, &repeats, &n);
    weft_ttype *out = weft_infer__out(cx, 0, x->dtype, x->rank);
    if (given == WEFT_GIVEN_NOT)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no repeats are given");
    if (given == WEFT_GIVEN_LATER) {
        weft_infer__fresh(cx, out);
        return WEFT_ERR_OK;
    }
    if (n != x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u repeats for %u dimensions", n, x->rank);
    for (uint32_t i = 0; i < n; i++) {
        if (weft_dim_is_const(repeats[i]) && repeats[i] < 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "repeat %u is %lld", i, (long long)repeats[i]);
        out->dim[i] = weft_dim_mul(cx->pool, x->dim[i], repeats[i]);
    }
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_tile(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out || weft_tensor_numel(out) == 0)
        return WEFT_ERR_OK;
    int64_t from[WEFT_RANK_MAX], to[WEFT_RANK_MAX];
    weft_dims__strides(x->dim, x->rank, from);
    weft_dims__strides(out->dim, out->rank, to);
    weft_walk w = {0};
    for (int32_t i = 0; i < x->rank; i++) {
        if (out->rank != x->rank || x->dim[i] < 1 || out->dim[i] % x->dim[i] != 0)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result is no multiple of the operand");
        weft_walk__push(&w, out->dim[i] / x->dim[i], to[i] * x->dim[i], 0);
        weft_walk__push(&w, x->dim[i], to[i], from[i]);
    }
    weft_walk__copy(&w, out->data, x->data, weft_dtype_size(x->dtype));
    return WEFT_ERR_OK;
}

/* -- concat --------------------------------------------------------------------------------- */

weft_err weft_infer_concat(weft_infer_ctx *cx)
{
    uint32_t axis;
    const weft_ttype *x = &cx->in[0].type;
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    weft_infer__copy(cx, 0, 0);
    weft_ttype *out = &cx->out[0];
    for (uint32_t i = 1; i < cx->n_in; i++) {
        const weft_ttype *y = &cx->in[i].type;
        if (!cx->in[i].present)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        WEFT_TRY(weft_infer__rank(cx, i, x->rank, x->rank));
        if (y->layout != x->layout || (x->layout != WEFT_LAYOUT_PLAIN && axis > 1))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operands have different layouts");
        for (uint32_t d = 0; d < x->rank; d++) {
            if (d == axis)
                out->dim[d] = weft_dim_add(cx->pool, out->dim[d], y->dim[d]);
            else
                WEFT_TRY(weft_infer__unify(cx, out->dim[d], y->dim[d], "dimension", &out->dim[d]));
        }
    }
    weft_infer__move_content(cx, UINT32_MAX);
    return WEFT_ERR_OK;
}

/* Copies between a whole tensor and one part of it along an axis. */
static void copy_part(const weft_tensor *whole, const weft_tensor *part, int32_t axis,
                      int64_t offset, bool into_whole)
{
    size_t elem = weft_dtype_size(whole->dtype);
    int64_t outer = weft_dims__product(whole->dim, 0, axis);
    int64_t inner = weft_dims__product(whole->dim, axis + 1, whole->rank);
    int64_t row = part->dim[axis] * inner * (int64_t)elem;
    int64_t pitch = whole->dim[axis] * inner * (int64_t)elem;
    if (row == 0)
        return;
    char *at = (char *)whole->data + offset * inner * (int64_t)elem;
    char *from = part->data;
    for (int64_t i = 0; i < outer; i++)
        if (into_whole)
            memcpy(at + i * pitch, from + i * row, (size_t)row);
        else
            memcpy(from + i * row, at + i * pitch, (size_t)row);
}

/* The part equals the whole in all dims but the axis, and is inside it. */
static bool part_fits(const weft_tensor *whole, const weft_tensor *part, int32_t axis,
                      int64_t offset)
{
    if (whole->rank != part->rank || whole->dtype != part->dtype ||
        part->dim[axis] > whole->dim[axis] - offset)
        return false;
    for (int32_t d = 0; d < whole->rank; d++)
        if (d != axis && whole->dim[d] != part->dim[d])
            return false;
    return true;
}

weft_err weft_eval_concat(weft_eval_ctx *cx)
{
    weft_tensor *out = weft_eval__out(cx, 0);
    uint32_t axis;
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), out->rank, &axis));
    int64_t offset = 0;
    for (uint32_t i = 0; i < cx->n_in; i++) {
        const weft_tensor *x = cx->in[i];
        if (!x || !part_fits(out, x, (int32_t)axis, offset))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u does not fit the result", i);
        copy_part(out, x, (int32_t)axis, offset, true);
        offset += x->dim[axis];
    }
    if (offset != out->dim[axis])
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the operands do not fill the result");
    return WEFT_ERR_OK;
}

/* -- split ---------------------------------------------------------------------------------- */

/* Part i of a split of `whole` into equal chunks; trailing parts may be empty. */
static weft_dim later_part(weft_dimpool *pool, weft_dim whole, weft_dim chunk, uint32_t i)
{
    weft_dim rest = weft_dim_sub(pool, whole, weft_dim_mul(pool, chunk, i));
    return weft_dim_min(pool, weft_dim_max(pool, rest, 0), chunk);
}

weft_err weft_infer_split(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t axis, n;
    const weft_dim *parts;
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_SPLIT, &parts, &n);
    if (given == WEFT_GIVEN_KNOWN && n != cx->n_out)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u parts for %u results", n, cx->n_out);
    int64_t wanted = weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_OUTPUTS, cx->n_out);
    if (given == WEFT_GIVEN_NOT && wanted != cx->n_out)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "num_outputs is %lld for %u results",
                         (long long)wanted, cx->n_out);
    weft_dim whole = x->dim[axis], sum = 0;
    weft_dim chunk = 0;
    /* Otherwise the last parts are smaller, possibly empty. */
    bool exact = weft_dim_div_exact(cx->pool, whole, cx->n_out, &chunk);
    if (!exact)
        chunk = weft_infer__ceil_div(cx->pool, whole, cx->n_out);
    for (uint32_t i = 0; i < cx->n_out; i++) {
        weft_infer__copy(cx, i, 0);
        if (given == WEFT_GIVEN_KNOWN)
            cx->out[i].dim[axis] = parts[i];
        else if (given == WEFT_GIVEN_LATER)
            cx->out[i].dim[axis] = weft_dim_fresh(cx->pool);
        else if (exact || i == 0)
            cx->out[i].dim[axis] = chunk;
        else
            cx->out[i].dim[axis] = later_part(cx->pool, whole, chunk, i);
        sum = weft_dim_add(cx->pool, sum, cx->out[i].dim[axis]);
    }
    WEFT_TRY(weft_infer__agree(cx, sum, whole, "sum of the parts"));
    weft_infer__move_content(cx, 1);
    return WEFT_ERR_OK;
}

weft_err weft_eval_split(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    uint32_t axis;
    int64_t offset = 0;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 0), x->rank, &axis));
    for (uint32_t i = 0; i < cx->n_out; i++) {
        if (!part_fits(x, &cx->out[i], (int32_t)axis, offset))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result %u does not fit the operand", i);
        if (weft_eval__out(cx, i))
            copy_part(x, &cx->out[i], (int32_t)axis, offset, false);
        offset += cx->out[i].dim[axis];
    }
    return WEFT_ERR_OK;
}

/* -- depth_to_space, space_to_depth --------------------------------------------------------- */

static weft_err check_block(weft_infer_ctx *cx, int64_t *out_block)
{
    WEFT_TRY(weft_infer__rank(cx, 0, 4, 4));
    int64_t block = weft_attrs_int(cx->attrs, WEFT_ATTR_BLOCKSIZE, 0);
    if (block < 1 || block > 1 << 15)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "blocksize is %lld", (long long)block);
    *out_block = block;
    return WEFT_ERR_OK;
}

static weft_err divide_dim(weft_infer_ctx *cx, uint32_t d, int64_t by, weft_dim *out)
{
    weft_dim dim = cx->in[0].type.dim[d];
    if (weft_dim_div_exact(cx->pool, dim, by, out))
        return WEFT_ERR_OK;
    if (weft_dim_is_const(dim))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "dimension %u is %lld, no multiple of %lld", d,
                         (long long)dim, (long long)by);
    *out = weft_dim_floordiv(cx->pool, dim, by);
    return WEFT_ERR_OK;
}

weft_err weft_infer_depth_to_space(weft_infer_ctx *cx)
{
    int64_t block;
    WEFT_TRY(check_block(cx, &block));
    weft_infer__copy(cx, 0, 0);
    WEFT_TRY(divide_dim(cx, 1, block * block, &cx->out[0].dim[1]));
    for (uint32_t d = 2; d < 4; d++)
        cx->out[0].dim[d] = weft_dim_mul(cx->pool, cx->in[0].type.dim[d], block);
    return WEFT_ERR_OK;
}

weft_err weft_infer_space_to_depth(weft_infer_ctx *cx)
{
    int64_t block;
    WEFT_TRY(check_block(cx, &block));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dim[1] = weft_dim_mul(cx->pool, cx->in[0].type.dim[1], block * block);
    for (uint32_t d = 2; d < 4; d++)
        WEFT_TRY(divide_dim(cx, d, block, &cx->out[0].dim[d]));
    return WEFT_ERR_OK;
}

/* Both directions are one strided copy between [n, b*b*c, h, w] and [n, c, h*b, w*b]. In mode DCR
 * the block index is the outer part of the channel index, in mode CRD the inner part. */
static weft_err move_blocks(weft_eval_ctx *cx, const weft_tensor *deep, const weft_tensor *wide,
                            bool crd, bool to_wide)
{
    int64_t b = weft_attrs_int(cx->attrs, WEFT_ATTR_BLOCKSIZE, 1);
    if (deep->rank != 4 || wide->rank != 4 || b < 1 || b > 1 << 15)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "needs rank 4 and a block size");
    int64_t c = wide->dim[1], h = deep->dim[2], w = deep->dim[3];
    if (deep->dim[0] != wide->dim[0] || deep->dim[1] != c * b * b || wide->dim[2] != h * b ||
        wide->dim[3] != w * b || deep->dtype != wide->dtype)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand and result do not fit");
    int64_t block = crd ? h * w : c * h * w, channel = crd ? b * b * h * w : h * w;
    const int64_t rows[6][3] = {
        {deep->dim[0], c * h * w * b * b, deep->dim[1] * h * w},
        {c, h * w * b * b, channel},
        {h, w * b * b, w},
        {b, w * b, b * block},
        {w, b, 1},
        {b, 1, block},
    };
    weft_walk walk = {0};
    for (int32_t i = 0; i < 6; i++)
        if (to_wide)
            weft_walk__push(&walk, rows[i][0], rows[i][1], rows[i][2]);
        else
            weft_walk__push(&walk, rows[i][0], rows[i][2], rows[i][1]);
    weft_walk__copy(&walk, to_wide ? wide->data : deep->data, to_wide ? deep->data : wide->data,
                    weft_dtype_size(deep->dtype));
    return WEFT_ERR_OK;
}

weft_err weft_eval_depth_to_space(weft_eval_ctx *cx)
{
    bool crd = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "DCR"), "CRD") == 0;
    if (!weft_eval__out(cx, 0))
        return WEFT_ERR_OK;
    return move_blocks(cx, cx->in[0], &cx->out[0], crd, true);
}

weft_err weft_eval_space_to_depth(weft_eval_ctx *cx)
{
    bool crd = strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_MODE, "DCR"), "CRD") == 0;
    if (!weft_eval__out(cx, 0))
        return WEFT_ERR_OK;
    return move_blocks(cx, &cx->out[0], cx->in[0], crd, false);
}

/* -- reverse_sequence ----------------------------------------------------------------------- */

weft_err weft_infer_reverse_sequence(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, 1, 1));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_INDEX));
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_err weft_eval_reverse_sequence(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *lens = cx->in[1];
    weft_tensor *out = weft_eval__out(cx, 0);
    int64_t batch_axis = weft_attrs_int(cx->attrs, WEFT_ATTR_BATCH_AXIS, 1);
    int64_t time_axis = weft_attrs_int(cx->attrs, WEFT_ATTR_TIME_AXIS, 0);
    if (!out)
        return WEFT_ERR_OK;
    if (x->rank < 2 || (batch_axis != 0 && batch_axis != 1) || time_axis != 1 - batch_axis)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "batch and time must be the axes 0 and 1");
    int64_t n_batch = x->dim[batch_axis], n_time = x->dim[time_axis];
    WEFT_TRY(weft_eval__check_dims(cx, 0, x->dim, x->rank));
    if (weft_tensor_numel(lens) != n_batch)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "one length for each of %lld sequences is wanted",
                         (long long)n_batch);
    int64_t inner = weft_dims__product(x->dim, 2, x->rank);
    int64_t batch_step = batch_axis == 0 ? n_time * inner : inner;
    int64_t time_step = batch_axis == 0 ? inner : n_batch * inner;
    size_t bytes = (size_t)inner * weft_dtype_size(x->dtype);
    for (int64_t b = 0; b < n_batch && bytes > 0; b++) {
        int64_t len = weft_tensor_get_i64(lens, b);
        if (len < 0 || len > n_time)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "length %lld of %lld steps", (long long)len,
                             (long long)n_time);
        for (int64_t t = 0; t < n_time; t++) {
            int64_t from = t < len ? len - 1 - t : t;
            memcpy(weft_data__at(out, b * batch_step + t * time_step),
                   weft_data__at(x, b * batch_step + from * time_step), bytes);
        }
    }
    return WEFT_ERR_OK;
}

/* -- trilu ---------------------------------------------------------------------------------- */

weft_err weft_infer_trilu(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_err weft_eval_trilu(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    if (!out)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_eval__check_dims(cx, 0, x->dim, x->rank));
    int64_t rows = x->dim[x->rank - 2], cols = x->dim[x->rank - 1];
    int64_t n = weft_dims__product(x->dim, 0, x->rank - 2) * rows;
    const int64_t *param;
    uint32_t n_param;
    int64_t k = 0;
    if (weft_eval_param(cx, 1, WEFT_ATTR_K, &param, &n_param) && n_param == 1)
        k = param[0];
    k = k > cols ? cols : k < -rows ? -rows : k;
    bool upper = weft_attrs_int(cx->attrs, WEFT_ATTR_UPPER, 1) != 0;
    size_t elem = weft_dtype_size(x->dtype);
    for (int64_t i = 0; i < n && cols > 0; i++) {
        /* Elements from `cut` on belong to the upper part. */
        int64_t cut = i % rows + (upper ? k : k + 1);
        cut = cut < 0 ? 0 : cut > cols ? cols : cut;
        int64_t first = upper ? cut : 0, len = upper ? cols - cut : cut;
        memset(weft_data__at(out, i * cols), 0, (size_t)cols * elem);
        memcpy(weft_data__at(out, i * cols + first), weft_data__at(x, i * cols + first),
               (size_t)len * elem);
    }
    return WEFT_ERR_OK;
}

/* -- one_hot -------------------------------------------------------------------------------- */

weft_err weft_infer_one_hot(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    const weft_dim *depth;
    uint32_t n, axis;
    if (!weft_infer__has(cx, 2))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand 2 is missing");
    if (x->rank + 1 > WEFT_RANK_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "rank %u is over %d", x->rank + 1, WEFT_RANK_MAX);
    WEFT_TRY(
        weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank + 1u, &axis));
    weft_given given = weft_param__dims(cx, 1, WEFT_ATTR_DEPTH, &depth, &n);
    weft_tensor t;
    weft_dim whole;
    if (given == WEFT_GIVEN_LATER && weft_infer__tensor(cx, 1, &t) && weft_tensor_numel(&t) == 1) {
        /* The depth may be of a floating-point type. */
        whole = weft_tensor_get_i64(&t, 0);
        depth = &whole;
        n = 1;
        given = WEFT_GIVEN_KNOWN;
    }
    if (given == WEFT_GIVEN_NOT || (given == WEFT_GIVEN_KNOWN && n != 1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "one depth is wanted");
    weft_ttype *out = weft_infer__out(cx, 0, cx->in[2].type.dtype, x->rank + 1u);
    for (uint32_t i = 0, from = 0; i < out->rank; i++) {
        if (i != axis)
            out->dim[i] = x->dim[from++];
        else
            out->dim[i] = given == WEFT_GIVEN_KNOWN ? depth[0] : weft_dim_fresh(cx->pool);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_one_hot(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *values = weft_eval__in(cx, 2);
    weft_tensor *out = weft_eval__out(cx, 0);
    uint32_t axis;
    if (!out)
        return WEFT_ERR_OK;
    if (!values || weft_tensor_numel(values) != 2 || values->dtype != out->dtype ||
        out->rank != x->rank + 1)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "two values of the result's type are wanted");
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), out->rank, &axis));
    int64_t depth = out->dim[axis], n = weft_tensor_numel(x);
    if (n * depth != weft_tensor_numel(out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result does not fit the indices");
    int64_t inner = weft_dims__product(out->dim, (int32_t)axis + 1, out->rank);
    size_t elem = weft_dtype_size(out->dtype);
    weft_data__fill(out->data, n * depth, values->data, elem);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = (int64_t)weft_tensor_get_f64(x, i);
        /* An index out of range gives a row of "off" values. */
        if (at < -depth || at >= depth)
            continue;
        at = at < 0 ? at + depth : at;
        memcpy(weft_data__at(out, (i / inner * depth + at) * inner + i % inner),
               weft_data__at(values, 1), elem);
    }
    return WEFT_ERR_OK;
}

/* -- dropout -------------------------------------------------------------------------------- */

/* Inference mode is the identity. Training mode, with its random mask, is supported only with ratio
 * 0, where both modes are equal. */
weft_err weft_infer_dropout(weft_infer_ctx *cx)
{
    if (weft_infer__has(cx, 2)) {
        const weft_dim *mode;
        uint32_t n;
        const double *ratio;
        uint32_t n_ratio;
        bool off = weft_infer__content(cx, 2, &mode, &n) && n == 1 && mode[0] == 0;
        bool none =
            weft_param__floats(cx, 1, WEFT_ATTR_RATIO, &ratio, &n_ratio) == WEFT_GIVEN_KNOWN &&
            n_ratio == 1 && ratio[0] == 0;
        if (!off && !none)
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "training mode is not supported");
    }
    weft_infer__copy(cx, 0, 0);
    if (cx->n_out > 1) {
        weft_infer__copy(cx, 1, 0);
        cx->out[1].dtype = WEFT_DTYPE_BOOL;
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_dropout(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0];
    weft_tensor *out = weft_eval__out(cx, 0);
    weft_tensor *mask = cx->n_out > 1 ? weft_eval__out(cx, 1) : NULL;
    if (out) {
        WEFT_TRY(weft_eval__check_dims(cx, 0, x->dim, x->rank));
        if (weft_tensor_bytes(x) > 0)
            memcpy(out->data, x->data, weft_tensor_bytes(x));
    }
    if (mask) {
        WEFT_TRY(weft_eval__check_dims(cx, 1, x->dim, x->rank));
        if (weft_tensor_bytes(mask) > 0)
            memset(mask->data, 1, weft_tensor_bytes(mask));
    }
    return WEFT_ERR_OK;
}
