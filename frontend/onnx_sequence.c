/* Sequences and optionals that are known at import: hooks of the operators that make, change and
 * read them. No operator of ours has sequences; a sequence is a list of values, and its elements
 * are read at constant positions. What exporters write for split, chunk and unbind is of this kind.
 */
#include "frontend/onnx_build.h"

#include <string.h>

weft_val weft_onnx__sequence(weft_onnx_ctx *cx, const weft_val *at, uint32_t n)
{
    weft_onnx_sequence s = {.n = n};
    s.at = weft_arena_array(cx->arena, (size_t)n + 1, sizeof *s.at);
    if (n)
        memcpy(s.at, at, n * sizeof *at);
    WEFT_VEC_PUSH(cx->arena, &cx->sequences, s);
    return (weft_val){WEFT_ONNX_SEQUENCE | (cx->sequences.len - 1)};
}

static weft_err get_sequence(const weft_onnx_call *c, uint32_t in, weft_onnx_sequence *out)
{
    if (in >= c->n_in || !weft_onnx__is_sequence(c->in[in]))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is no sequence", in);
    *out = c->cx->sequences.at[c->in[in].i & ~WEFT_ONNX_SEQUENCE];
    return WEFT_ERR_OK;
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

weft_err weft_onnx_hook_sequence_at(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(get_position(c, 1, s.n, (int64_t)s.n - 1, -1, &at));
    c->out[0] = s.at[at];
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_sequence_length(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    WEFT_TRY(get_sequence(c, 0, &s));
    c->out[0] = weft_onnx__const(c, WEFT_DTYPE_I64, NULL, 0, &(int64_t){s.n});
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_sequence_insert(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    weft_val x;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(get_tensor(c, 1, &x));
    WEFT_TRY(get_position(c, 2, s.n, s.n, s.n, &at));
    if (s.n >= WEFT_ONNX_SEQUENCE_MAX)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "more than %d elements are not supported",
                               WEFT_ONNX_SEQUENCE_MAX);
    weft_val *all = weft_arena_array(c->cx->arena, (size_t)s.n + 1, sizeof *all);
    for (uint32_t i = 0; i <= s.n; i++)
        all[i] = i < at ? s.at[i] : i == at ? x : s.at[i - 1];
    c->out[0] = weft_onnx__sequence(c->cx, all, s.n + 1);
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

weft_err weft_onnx_hook_sequence_erase(weft_onnx_call *c)
{
    weft_onnx_sequence s;
    uint32_t at;
    WEFT_TRY(get_sequence(c, 0, &s));
    WEFT_TRY(get_position(c, 1, s.n, (int64_t)s.n - 1, (int64_t)s.n - 1, &at));
    weft_val *all = weft_arena_array(c->cx->arena, s.n, sizeof *all);
    for (uint32_t i = 0; i + 1 < s.n; i++)
        all[i] = s.at[i < at ? i : i + 1];
    c->out[0] = weft_onnx__sequence(c->cx, all, s.n - 1);
    return weft_onnx__map_attrs(c, WEFT_OP_IDENTITY);
}

/* -- Between tensors and sequences ------------------------------------------------------------ */

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
    if (s.n == 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "the sequence is empty");
    weft_val *part = weft_arena_array(c->cx->arena, s.n, sizeof *part);
    for (uint32_t i = 0; i < s.n; i++)
        part[i] = is_new ? weft_onnx__unsqueeze(&b, s.at[i], axis) : s.at[i];
    c->out[0] = weft_onnx__concat(&b, part, s.n, axis);
    return b.err;
}

/* Sizes of the parts of `len` along the axis. */
static weft_err get_sizes(weft_onnx_call *c, weft_dim len, weft_dim **out, uint32_t *out_n)
{
    uint32_t n = 0;
    const weft_dim *given = NULL;
    int64_t chunk = 1;
    if (c->n_in > 1) {
        given = weft_contents_get(c->cx->contents, c->in[1], &n);
        if (!given)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "sizes of parts that depend on data");
        if (weft_onnx__type(c, c->in[1])->rank == 0)
            chunk = n == 1 && weft_dim_is_const(given[0]) ? given[0] : 0;
    }
    bool is_list = given && weft_onnx__type(c, c->in[1])->rank > 0;
    if (!is_list && (!weft_dim_is_const(len) || chunk < 1))
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "the number of parts is not known: fix the size with `dims:`");
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
    int64_t axis, keep;
    weft_dim *size;
    uint32_t n;
    WEFT_TRY(get_tensor(c, 0, &x));
    WEFT_TRY(weft_onnx__get_int(c, "axis", 0, &axis));
    WEFT_TRY(weft_onnx__get_int(c, "keepdims", 1, &keep));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    const weft_ttype *t = weft_onnx__type(c, x);
    int64_t at = axis + (axis < 0 ? t->rank : 0);
    if (at < 0 || at >= t->rank)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld of a tensor of rank %u",
                               (long long)axis, t->rank);
    WEFT_TRY(get_sizes(c, t->dim[at], &size, &n));
    weft_val *part = weft_arena_array(c->cx->arena, (size_t)n + 1, sizeof *part);
    const weft_attr attr[2] = {WEFT_ATTR_OF_INT(AXIS, at), WEFT_ATTR_OF_DIMS(SPLIT, size, n)};
    if (n > 0)
        WEFT_TRY(weft_onnx__emit(c, WEFT_OP_SPLIT, &x, 1, attr, 2, part, n));
    for (uint32_t i = 0; i < n && !keep && c->n_in < 2; i++)
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
    for (size_t i = 0; i < sizeof takes / sizeof takes[0]; i++)
        if (takes[i] == c->row->hook)
            return WEFT_ERR_OK;
    for (uint32_t i = 0; i < c->n_in; i++)
        if (weft_onnx__is_sequence(c->in[i]))
            return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                                   "input %u is a sequence, which only operators "
                                   "of sequences take",
                                   i);
    return WEFT_ERR_OK;
}
