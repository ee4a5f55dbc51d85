/* Sequences and optionals: hooks of the operators that make, change and read them. No operator of
 * ours has sequences. One whose elements are known is a list of values; one whose length is not
 * known is a tensor with the elements side by side (weft_onnx_list). The parts of a split, what
 * exporters write for chunk and unbind, and lists to which a loop appends are of these kinds. */
#include "frontend/onnx_build.h"

#include <string.h>

weft_val weft_onnx__sequence_add(weft_onnx_ctx *cx, const weft_onnx_sequence *s)
{
    WEFT_VEC_PUSH(cx->arena, &cx->sequences, *s);
    return (weft_val){WEFT_ONNX_SEQUENCE | (cx->sequences.len - 1)};
}

weft_onnx_sequence weft_onnx__sequence_get(const weft_onnx_ctx *cx, weft_val v)
{
    return cx->sequences.at[v.i & ~WEFT_ONNX_SEQUENCE];
}

weft_val weft_onnx__sequence(weft_onnx_ctx *cx, const weft_val *at, uint32_t n)
{
    weft_onnx_sequence s = {.kind = WEFT_ONNX_LIST, .n = n};
    s.at = weft_arena_array(cx->arena, (size_t)n + 1, sizeof *s.at);
    if (n)
        memcpy(s.at, at, n * sizeof *at);
    return weft_onnx__sequence_add(cx, &s);
}

static weft_err get_sequence(const weft_onnx_call *c, uint32_t in, weft_onnx_sequence *out)
{
    if (in >= c->n_in || !weft_onnx__is_sequence(c->in[in]))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is no sequence", in);
    *out = weft_onnx__sequence_get(c->cx, c->in[in]);
    return WEFT_ERR_OK;
}

static weft_err refuse_kind(const weft_onnx_call *c, const weft_onnx_sequence *s)
{
    return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                           s->kind == WEFT_ONNX_APPENDED
                               ? "a list that a loop carries may only be appended to in the loop: "
                                 "keep what it reads in a tensor"
                           : s->kind == WEFT_ONNX_JOINED
                               ? "elements of a list of unknown length that is also concatenated"
                               : "a sequence of unknown length: fix the size with `dims:`");
}

/* The tensor that operand `in` is. */
static weft_err get_tensor(const weft_onnx_call *c, uint32_t in, weft_val *out)
{
    if (in >= c->n_in || !c->in[in].i || weft_onnx__is_sequence(c->in[in]))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is no tensor", in);
    *out = c->in[in];
    return WEFT_ERR_OK;
}

/* The position that operand `in` holds, counted from the front; `otherwise` if it is omitted. It
 * must be in 0 .. limit. */
static weft_err get_position(weft_onnx_call *c, uint32_t in, uint32_t n, int64_t limit,
                             int64_t otherwise, uint32_t *out)
{
    double x = (double)otherwise;
    if (in < c->n_in && c->in[in].i) {
        weft_val v;
        WEFT_TRY(get_tensor(c, in, &v));
        if (!weft_onnx__known(c->cx, v, &x))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "the position depends on data: sequences are read at constant "
                                   "positions");
        x += x < 0 ? n : 0;
    }
    if (!(x >= 0 && x <= (double)limit))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "position %g of a sequence of %u", x, n);
    *out = (uint32_t)x;
    return WEFT_ERR_OK;
}

weft_err weft_onnx_hook_sequence_construct(weft_onnx_call *c)
{
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    for (uint32_t i = 0; i < c->n_in; i++) {
        weft_val unused;
        WEFT_TRY(get_tensor(c, i, &unused));
    }
    c->out[0] = weft_onnx__sequence(c->cx, c->in, c->n_in);
    return WEFT_ERR_OK;
}

weft_err weft_onnx_hook_sequence_empty(weft_onnx_call *c)
{
    weft_onnx__ignore(c, "dtype");
    return weft_onnx_hook_sequence_construct(c);
}

/* -- Elements at positions that data tells ---------------------------------------------------- */

/* Size of x along an axis, i64[1]. */
static weft_val size_of(weft_onnx_build *b, weft_val x, uint32_t axis)
{
    const weft_attr attr = WEFT_ATTR_OF_INT(AXIS, 0);
    const weft_val in[2] = {weft_onnx__make1(b, WEFT_OP_SHAPE, x),
                            weft_onnx__i64s(b, &(int64_t){axis}, &(int64_t){1}, 1)};
    return weft_onnx__make(b, WEFT_OP_GATHER, in, 2, &attr, 1);
}

/* Number of slices, i64[1]. */
static weft_val count_slices(weft_onnx_build *b, const weft_onnx_sequence *s)
{
    weft_val n = size_of(b, s->whole, s->axis);
    if (s->chunk == 1)
        return n;
    n = weft_onnx__make2(b, WEFT_OP_ADD, n, weft_onnx__number(b, n, (double)(s->chunk - 1)));
    return weft_onnx__make2(b, WEFT_OP_DIV, n, weft_onnx__number(b, n, (double)s->chunk));
}

/* whole[position * chunk .. + chunk] */
static weft_val slice_at(weft_onnx_build *b, const weft_onnx_sequence *s, weft_val position)
{
    static const int64_t one = 1;
    const weft_attr axis0 = WEFT_ATTR_OF_INT(AXIS, 0), axis = WEFT_ATTR_OF_INT(AXIS, s->axis);
    weft_val at = weft_onnx__reshape(b, position, &one, s->squeeze ? 0 : 1);
    if (s->chunk == 1)
        return weft_onnx__make(b, WEFT_OP_GATHER, (weft_val[2]){s->whole, at}, 2, &axis, 1);
    /* A gather from 0, 1, .. counts negative positions from the end, and refuses others. */
    weft_val range[3] = {weft_onnx__scalar(b, WEFT_DTYPE_I64, 0),
                         weft_onnx__reshape(b, count_slices(b, s), NULL, 0),
                         weft_onnx__scalar(b, WEFT_DTYPE_I64, 1)};
    weft_val all = weft_onnx__make(b, WEFT_OP_RANGE, range, 3, NULL, 0);
    at = weft_onnx__make(b, WEFT_OP_GATHER, (weft_val[2]){all, at}, 2, &axis0, 1);
    weft_val start =
        weft_onnx__make2(b, WEFT_OP_MUL, at, weft_onnx__number(b, at, (double)s->chunk));
    weft_val end =
        weft_onnx__make2(b, WEFT_OP_ADD, start, weft_onnx__number(b, at, (double)s->chunk));
    weft_val in[4] = {s->whole, start, end, weft_onnx__i64s(b, &(int64_t){s->axis}, &one, 1)};
    return weft_onnx__make(b, WEFT_OP_SLICE, in, 4, NULL, 0);
}

/* A list as a tensor; its elements must have one shape. */
static weft_onnx_sequence stack_list(weft_onnx_build *b, const weft_onnx_sequence *list)
{
    weft_onnx_sequence s = {.kind = WEFT_ONNX_SLICES, .chunk = 1, .squeeze = true};
    weft_val *part = weft_arena_array(b->c->cx->arena, (size_t)list->n + 1, sizeof *part);
    for (uint32_t i = 0; i < list->n; i++)
        part[i] = weft_onnx__unsqueeze(b, list->at[i], 0);
    s.whole = weft_onnx__concat(b, part, list->n, 0);
    return s;
}

weft_err weft_onnx_hook_sequence_at(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    weft_onnx_sequence s;
    weft_val position;
    double unused;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(get_tensor(c, 1, &position));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    if (s.kind == WEFT_ONNX_LIST && (s.n == 0 || weft_onnx__known(c->cx, position, &unused))) {
        WEFT_TRY(get_position(c, 1, s.n, (int64_t)s.n - 1, -1, &at));
        c->out[0] = s.at[at];
        return WEFT_ERR_OK;
    }
    if (s.kind == WEFT_ONNX_LIST)
        s = stack_list(&b, &s);
    if (s.kind != WEFT_ONNX_SLICES)
        return refuse_kind(c, &s);
    c->out[0] = slice_at(&b, &s, position);
    return b.err;
}

weft_err weft_onnx_hook_sequence_length(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    weft_onnx_sequence s;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    if (s.kind != WEFT_ONNX_LIST && s.kind != WEFT_ONNX_SLICES)
        return refuse_kind(c, &s);
    c->out[0] = s.kind == WEFT_ONNX_LIST
                    ? weft_onnx__const(c, WEFT_DTYPE_I64, NULL, 0, &(int64_t){s.n})
                    : weft_onnx__reshape(&b, count_slices(&b, &s), NULL, 0);
    return b.err;
}

/* -- Changes ---------------------------------------------------------------------------------- */

static weft_err append_slice(weft_onnx_call *c, weft_onnx_sequence *s, weft_val x)
{
    weft_onnx_build b = {.c = c};
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    const weft_val part[2] = {s->whole, weft_onnx__unsqueeze(&b, x, s->axis)};
    s->whole = weft_onnx__concat(&b, part, 2, s->axis);
    c->out[0] = weft_onnx__sequence_add(c->cx, s);
    return b.err;
}

weft_err weft_onnx_hook_sequence_insert(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    weft_val x;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(get_tensor(c, 1, &x));
    bool is_last = c->n_in < 3 || !c->in[2].i;
    if (s.kind == WEFT_ONNX_SLICES && s.squeeze && is_last)
        return append_slice(c, &s, x);
    if (s.kind != WEFT_ONNX_LIST && (s.kind != WEFT_ONNX_APPENDED || !is_last))
        return refuse_kind(c, &s);
    WEFT_TRY(get_position(c, 2, s.n, s.n, s.n, &at));
    if (s.n >= WEFT_ONNX_SEQUENCE_MAX)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "more than %d elements are not supported",
                               WEFT_ONNX_SEQUENCE_MAX);
    weft_val *all = weft_arena_array(c->cx->arena, (size_t)s.n + 1, sizeof *all);
    for (uint32_t i = 0; i <= s.n; i++)
        all[i] = i < at ? s.at[i] : i == at ? x : s.at[i - 1];
    s.at = all;
    s.n++;
    c->out[0] = weft_onnx__sequence_add(c->cx, &s);
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_sequence_erase(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    if (s.kind != WEFT_ONNX_LIST)
        return refuse_kind(c, &s);
    WEFT_TRY(get_position(c, 1, s.n, (int64_t)s.n - 1, (int64_t)s.n - 1, &at));
    weft_val *all = weft_arena_array(c->cx->arena, s.n, sizeof *all);
    for (uint32_t i = 0; i + 1 < s.n; i++)
        all[i] = s.at[i < at ? i : i + 1];
    c->out[0] = weft_onnx__sequence(c->cx, all, s.n - 1);
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

/* -- Between tensors and sequences ------------------------------------------------------------ */

/* The axis of slices moves to `axis` of the result. */
static weft_val move_axis(weft_onnx_build *b, const weft_onnx_sequence *s, uint32_t axis)
{
    uint32_t rank = weft_onnx__of(b, s->whole)->rank;
    int64_t perm[WEFT_RANK_MAX];
    for (uint32_t i = 0, from = 0; i < rank; i++) {
        from += i != axis && from == s->axis;
        perm[i] = i == axis ? s->axis : from++;
    }
    return s->axis == axis ? s->whole : weft_onnx__transpose(b, s->whole, perm);
}

/* Slices of a tensor, stacked or joined again. `rank`: of an element. */
static weft_val concat_slices(weft_onnx_build *b, const weft_onnx_sequence *s, int64_t axis,
                              bool is_new)
{
    const weft_ttype *t = weft_onnx__of(b, s->whole);
    uint32_t rank = t->rank - s->squeeze;
    axis += axis < 0 ? (int64_t)rank + is_new : 0;
    bool in_range = axis >= 0 && axis < (int64_t)rank + is_new;
    if (!in_range)
        weft_onnx__stop(b, WEFT_ERR_INPUT, "axis %lld of elements of rank %u", (long long)axis,
                        rank);
    else if (!is_new && !s->squeeze && axis == s->axis)
        return s->whole;
    else if (!s->squeeze)
        weft_onnx__stop(b, WEFT_ERR_UNSUP,
                        "parts of a sequence of unknown length, joined along another axis: fix the "
                        "size with `dims:`");
    if (b->err != WEFT_ERR_OK)
        return (weft_val){0};
    weft_val moved = move_axis(b, s, (uint32_t)axis);
    if (is_new)
        return moved;
    /* [.., n, size, ..] ==> [.., n * size, ..] */
    weft_dim dim[WEFT_RANK_MAX];
    const weft_ttype *m = weft_onnx__of(b, moved);
    for (uint32_t i = 0, k = 0; i < m->rank; i++) {
        if (i == (uint32_t)axis + 1)
            continue;
        dim[k++] = i == (uint32_t)axis ? weft_onnx__times(b, m->dim[i], m->dim[i + 1]) : m->dim[i];
    }
    return weft_onnx__reshape(b, moved, dim, rank);
}

/* concat_from_sequence(s) ==> concat of its elements, with a new axis if asked for */
weft_err weft_onnx_hook_concat_from_sequence(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    weft_onnx_sequence s;
    int64_t axis, is_new;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(weft_onnx__get_int(c, "axis", 0, &axis));
    WEFT_TRY(weft_onnx__get_int(c, "new_axis", 0, &is_new));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    if (s.kind == WEFT_ONNX_JOINED && !is_new) {
        c->out[0] = s.whole;
        axis += axis < 0 ? weft_onnx__type(c, s.whole)->rank : 0;
        return axis == (int64_t)s.axis ? WEFT_ERR_OK : refuse_kind(c, &s);
    }
    if (s.kind == WEFT_ONNX_SLICES) {
        c->out[0] = concat_slices(&b, &s, axis, is_new != 0);
        return b.err;
    }
    if (s.kind != WEFT_ONNX_LIST)
        return refuse_kind(c, &s);
    if (s.n == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the sequence is empty");
    weft_val *part = weft_arena_array(c->cx->arena, s.n, sizeof *part);
    for (uint32_t i = 0; i < s.n; i++)
        part[i] = is_new ? weft_onnx__unsqueeze(&b, s.at[i], axis) : s.at[i];
    c->out[0] = weft_onnx__concat(&b, part, s.n, axis);
    return b.err;
}

/* Sizes of the parts of `len` along the axis; *out NULL: parts of *out_chunk, nobody knows how
 * many.
 */
static weft_err get_sizes(weft_onnx_call *c, weft_dim len, weft_dim **out, uint32_t *out_n,
                          int64_t *out_chunk)
{
    uint32_t n = 0;
    const weft_dim *given = NULL;
    int64_t chunk = 1;
    if (c->n_in > 1) {
        given = weft_contents_get(c->cx->contents, c->in[1], &n);
        if (!given)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "sizes of parts that depend on data: fix the input that they "
                                   "depend on with `values:` of a set file");
        if (weft_onnx__type(c, c->in[1])->rank == 0)
            chunk = n == 1 && weft_dim_is_const(given[0]) ? given[0] : 0;
    }
    bool is_list = given && weft_onnx__type(c, c->in[1])->rank > 0;
    if (!is_list && chunk < 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "parts of no elements, or of sizes not known");
    *out_chunk = chunk;
    if (!is_list && !weft_dim_is_const(len))
        return WEFT_ERR_OK;
    int64_t count = is_list ? n : (len + chunk - 1) / chunk;
    if (count > WEFT_ONNX_SEQUENCE_MAX)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "%lld parts, %d are supported", (long long)count,
                               WEFT_ONNX_SEQUENCE_MAX);
    weft_dim *size = weft_arena_array(c->cx->arena, (size_t)count + 1, sizeof *size);
    for (int64_t i = 0; i < count; i++)
        size[i] = is_list ? given[i] : len - i * chunk < chunk ? len - i * chunk : chunk;
    *out = size;
    *out_n = (uint32_t)count;
    return WEFT_ERR_OK;
}

/* split_to_sequence(x) ==> the results of one split */
weft_err weft_onnx_hook_split_to_sequence(weft_onnx_call *c)
{
    weft_val x;
    int64_t axis, keep, chunk;
    weft_dim *size = NULL;
    uint32_t n = 0;
    WEFT_TRY(get_tensor(c, 0, &x));
    WEFT_TRY(weft_onnx__get_int(c, "axis", 0, &axis));
    WEFT_TRY(weft_onnx__get_int(c, "keepdims", 1, &keep));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    const weft_ttype *t = weft_onnx__type(c, x);
    int64_t at = axis + (axis < 0 ? t->rank : 0);
    if (at < 0 || at >= t->rank)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld of a tensor of rank %u",
                               (long long)axis, t->rank);
    WEFT_TRY(get_sizes(c, t->dim[at], &size, &n, &chunk));
    /* onnxruntime, and PyTorch's unbind: a scalar split of 1 is squeezed too. */
    bool squeeze = !keep && (c->n_in < 2 || weft_onnx__type(c, c->in[1])->rank == 0);
    if (squeeze && chunk != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "keepdims = 0 of parts of %lld",
                               (long long)chunk);
    if (!size) {
        c->out[0] = weft_onnx__sequence_add(c->cx, &(weft_onnx_sequence){.kind = WEFT_ONNX_SLICES,
                                                                         .whole = x,
                                                                         .axis = (uint32_t)at,
                                                                         .chunk = chunk,
                                                                         .squeeze = squeeze});
        return WEFT_ERR_OK;
    }
    weft_val *part = weft_arena_array(c->cx->arena, (size_t)n + 1, sizeof *part);
    const weft_attr attr[2] = {WEFT_ATTR_OF_INT(AXIS, at), WEFT_ATTR_OF_DIMS(SPLIT, size, n)};
    if (n > 0)
        WEFT_TRY(weft_onnx__emit(c, WEFT_OP_SPLIT, &x, 1, attr, 2, part, n));
    for (uint32_t i = 0; i < n && squeeze; i++)
        WEFT_TRY(weft_onnx__emit_dims(c, WEFT_OP_SQUEEZE, part[i], WEFT_ATTR_AXES, &(weft_dim){at},
                                      1, &part[i]));
    c->out[0] = weft_onnx__sequence(c->cx, part, n);
    return WEFT_ERR_OK;
}

/* -- Optionals -------------------------------------------------------------------------------- */

/* An optional that has an element is this element; one that has none does not exist as a value. */
weft_err weft_onnx_hook_optional(weft_onnx_call *c)
{
    weft_onnx__ignore(c, "type");
    if (c->n_in != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "empty optionals are not supported");
    c->out[0] = c->in[0];
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_optional_has_element(weft_onnx_call *c)
{
    uint8_t has = c->n_in > 0 && c->in[0].i;
    c->out[0] = weft_onnx__const(c, WEFT_DTYPE_BOOL, NULL, 0, &has);
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_identity(weft_onnx_call *c)
{
    if (c->n_in != 1 || !weft_onnx__is_sequence(c->in[0]))
        return weft_onnx_hook_plain(c);
    c->out[0] = c->in[0];
    return WEFT_ERR_OK;
}

/* -- Which hooks take sequences --------------------------------------------------------------- */

weft_err weft_onnx__check_sequences(const weft_onnx_call *c)
{
    static const weft_onnx_hook takes[] = {
        weft_onnx_hook_sequence_at,          weft_onnx_hook_sequence_length,
        weft_onnx_hook_sequence_insert,      weft_onnx_hook_sequence_erase,
        weft_onnx_hook_concat_from_sequence, weft_onnx_hook_optional,
        weft_onnx_hook_optional_has_element, weft_onnx_hook_identity};
    bool taken = c->row->op == WEFT_OP_LOOP;
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++)
        taken = taken || takes[i] == c->row->hook;
    if (taken)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (weft_onnx__is_sequence(c->in[i]))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "input %u is a sequence, which only operators "
                                   "of sequences take",
                                   i);
    return WEFT_ERR_OK;
}
