/* Hooks of onnx_ops.def: convert operators of older opsets to the newest form. */
#include "frontend/onnx_build.h"

#include <math.h>
#include <string.h>

/* Opsets that changed an operator. */
enum {
    OPSET_CONCAT_AXIS = 4,    /* Concat's axis is required */
    OPSET_NO_CONSUMED = 6,    /* consumed_inputs is gone */
    OPSET_BROADCAST = 7,      /* NumPy broadcasting */
    OPSET_SOFTMAX_AXIS = 13,  /* one axis instead of two flattened halves */
    OPSET_GROUP_CHANNELS = 21 /* scale and bias of GroupNormalization per channel */
};

weft_err weft_onnx_hook_plain(weft_onnx_call *c)
{
    if (c->opset < OPSET_NO_CONSUMED)
        weft_onnx__ignore(c, "consumed_inputs");
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    return weft_onnx__finish(c);
}

/* One element of the operand's type. */
static weft_val scalar_like(weft_onnx_call *c, weft_val like, double x)
{
    uint64_t element = 0;
    weft_tensor t = {.dtype = (weft_dtype)weft_onnx__type(c, like)->dtype, .data = &element};
    weft_tensor_set_f64(&t, 0, x);
    return weft_onnx__const(c, t.dtype, NULL, 0, &element);
}

/* Sum, Max, Min and Mean of any number of inputs: each of our nodes takes CHUNK of them, from left
 * to right. */
weft_err weft_onnx_hook_variadic(weft_onnx_call *c)
{
    enum { CHUNK = 32 };
    if (c->opset < OPSET_NO_CONSUMED)
        weft_onnx__ignore(c, "consumed_inputs");
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    if (c->n_in <= CHUNK)
        return weft_onnx__finish(c);
    weft_op_id op = c->row->op == WEFT_OP_MEAN ? WEFT_OP_SUM : c->row->op;
    weft_val part[CHUNK] = {c->in[0]}, all = c->in[0];
    for (uint32_t i = 1, n = 1; i < c->n_in; i++) {
        part[n++] = c->in[i];
        if (n < CHUNK && i + 1 < c->n_in)
            continue;
        WEFT_TRY(weft_onnx__emit(c, op, part, n, NULL, 0, &all, 1));
        part[0] = all;
        n = 1;
    }
    if (c->row->op != WEFT_OP_MEAN) {
        c->out[0] = all;
        return WEFT_ERR_OK;
    }
    weft_val quotient[2] = {all, scalar_like(c, all, c->n_in)};
    return weft_onnx__emit(c, WEFT_OP_DIV, quotient, 2, NULL, 0, c->out, 1);
}

/* -- Constants -------------------------------------------------------------------------------- */

static weft_err constant_ints(weft_onnx_call *c, const Onnx__AttributeProto *a, bool is_list)
{
    int64_t n = is_list ? (int64_t)a->n_ints : 1;
    c->out[0] = weft_onnx__const(c, WEFT_DTYPE_I64, &n, is_list ? 1 : 0, is_list ? a->ints : &a->i);
    return WEFT_ERR_OK;
}

static weft_err constant_floats(weft_onnx_call *c, const Onnx__AttributeProto *a, bool is_list)
{
    int64_t n = is_list ? (int64_t)a->n_floats : 1;
    c->out[0] =
        weft_onnx__const(c, WEFT_DTYPE_F32, &n, is_list ? 1 : 0, is_list ? a->floats : &a->f);
    return WEFT_ERR_OK;
}

/* Constant ==> a weight. */
weft_err weft_onnx_hook_constant(weft_onnx_call *c)
{
    if (c->n_proto != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u attributes, expected 1", c->n_proto);
    const Onnx__AttributeProto *a = c->proto[0];
    int type = weft_onnx__attr_type(a);
    if (strcmp(a->name, "value") == 0 && type == WEFT_ONNX_ATTR_TENSOR && a->t)
        return weft_onnx__weight(c->cx, a->t, c->loc.item, c->where, &c->out[0]);
    if (strcmp(a->name, "sparse_value") == 0 && a->sparse_tensor)
        return weft_onnx__sparse(c->cx, a->sparse_tensor, c->loc.item, c->where, &c->out[0]);
    if (strcmp(a->name, "value_int") == 0 && type == WEFT_ONNX_ATTR_INT)
        return constant_ints(c, a, false);
    if (strcmp(a->name, "value_ints") == 0 && type == WEFT_ONNX_ATTR_INTS)
        return constant_ints(c, a, true);
    if (strcmp(a->name, "value_float") == 0 && type == WEFT_ONNX_ATTR_FLOAT)
        return constant_floats(c, a, false);
    if (strcmp(a->name, "value_floats") == 0 && type == WEFT_ONNX_ATTR_FLOATS)
        return constant_floats(c, a, true);
    return weft_onnx__fail(c, WEFT_ERR_UNSUP, "attribute \"%s\" is not supported", a->name);
}

/* An integer that is not exact as double ==> expand of a weight. */
static weft_err expand_constant(weft_onnx_call *c, const weft_tensor *value)
{
    weft_val in[2] = {weft_onnx__const(c, value->dtype, value->dim, 0, value->data),
                      c->n_in > 0 ? c->in[0] : (weft_val){0}};
    return weft_onnx__emit(c, WEFT_OP_EXPAND, in, 2, NULL, 0, c->out, 1);
}

weft_err weft_onnx_hook_constant_of_shape(weft_onnx_call *c)
{
    const Onnx__AttributeProto *a = weft_onnx__attr(c, "value");
    weft_attr value = WEFT_ATTR_OF_FLOAT(VALUE, 0.0);
    weft_attr dtype = WEFT_ATTR_OF_DTYPE(DTYPE, WEFT_DTYPE_F32);
    if (a) {
        if (!a->t)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "attribute \"value\" holds no tensor");
        weft_onnx_data data;
        WEFT_TRY(weft_onnx__tensor(c->cx, a->t, c->cx->arena, c->where, &data));
        if (data.bytes != weft_dtype_size(data.dtype))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "\"value\" has %llu bytes, not one element",
                                   (unsigned long long)data.bytes);
        uint8_t element[8] = {0};
        memcpy(element, data.at, data.bytes);
        uint64_t aligned;
        memcpy(&aligned, element, sizeof aligned);
        weft_tensor t = {.dtype = data.dtype, .data = &aligned};
        value.u.f = weft_tensor_get_f64(&t, 0);
        dtype.u.dtype = data.dtype;
        bool is_exact = fabs(value.u.f) <= 0x1p53;
        if (!weft_dtype_is_float(data.dtype) && !is_exact)
            return expand_constant(c, &t);
    }
    weft_onnx__put(c, value);
    weft_onnx__put(c, dtype);
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    return weft_onnx__finish(c);
}

/* -- Element-wise ----------------------------------------------------------------------------- */

/* x[a, b, c] + y[b], axis 1 ==> x + y[b, 1] */
static weft_err align_right(weft_onnx_call *c, int64_t axis, weft_val *y)
{
    int64_t rank_x = weft_onnx__type(c, c->in[0])->rank, rank_y = weft_onnx__type(c, *y)->rank;
    if (axis < 0)
        axis += rank_x;
    int64_t missing = rank_x - axis - rank_y;
    if (axis < 0 || missing < 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld, ranks %lld and %lld", (long long)axis,
                               (long long)rank_x, (long long)rank_y);
    if (missing == 0)
        return WEFT_ERR_OK;
    weft_dim axes[WEFT_RANK_MAX];
    for (int64_t i = 0; i < missing; i++)
        axes[i] = rank_y + i;
    return weft_onnx__emit_dims(c, WEFT_OP_UNSQUEEZE, *y, WEFT_ATTR_AXES, axes, (uint32_t)missing,
                                y);
}

/* Before opset 7 the second operand was aligned at `axis`, or with the last dims. */
weft_err weft_onnx_hook_binary(weft_onnx_call *c)
{
    if (c->opset < OPSET_BROADCAST) {
        int64_t broadcast, axis;
        WEFT_TRY(weft_onnx__get_int(c, "broadcast", 0, &broadcast));
        bool has_axis = weft_onnx__attr(c, "axis") != NULL;
        WEFT_TRY(weft_onnx__get_int(c, "axis", 0, &axis));
        if (broadcast && has_axis && c->n_in == 2 && c->in[0].i && c->in[1].i)
            WEFT_TRY(align_right(c, axis, &c->in[1]));
    }
    return weft_onnx_hook_plain(c);
}

/* Before opset 7 a slope of rank 1 had an element per channel. */
weft_err weft_onnx_hook_prelu(weft_onnx_call *c)
{
    bool old = c->opset < OPSET_BROADCAST && c->n_in == 2 && c->in[0].i && c->in[1].i;
    if (old && weft_onnx__type(c, c->in[1])->rank == 1 &&
        weft_onnx__type(c, c->in[1])->dim[0] != 1 && weft_onnx__type(c, c->in[0])->rank > 1)
        WEFT_TRY(align_right(c, 1, &c->in[1]));
    return weft_onnx_hook_plain(c);
}

/* Before opset 6 the target was the type's name. */
weft_err weft_onnx_hook_cast(weft_onnx_call *c)
{
    if (c->opset < OPSET_NO_CONSUMED) {
        const char *to;
        WEFT_TRY(weft_onnx__get_str(c, "to", "", &to));
        char lower[16] = "";
        for (size_t i = 0; to[i] && i < sizeof lower - 1; i++)
            lower[i] = (char)(to[i] >= 'A' && to[i] <= 'Z' ? to[i] - 'A' + 'a' : to[i]);
        weft_dtype dtype = WEFT_DTYPE_NONE;
        for (int64_t i = 1; i <= ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16; i++) {
            const char *name;
            weft_dtype d = weft_onnx__dtype(i, &name);
            if (strcmp(name, lower) == 0)
                dtype = d;
        }
        if (dtype == WEFT_DTYPE_NONE)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "to \"%s\" is not supported", to);
        weft_onnx__put(c, WEFT_ATTR_OF_DTYPE(TO, dtype));
    }
    return weft_onnx_hook_plain(c);
}

/* -- GEMMs and normalisation ------------------------------------------------------------------ */

/* Before opset 7 C was broadcast only if an attribute said so; now it always is. */
weft_err weft_onnx_hook_gemm(weft_onnx_call *c)
{
    if (c->opset < OPSET_BROADCAST)
        weft_onnx__ignore(c, "broadcast");
    return weft_onnx_hook_plain(c);
}

/* Before opset 9 statistics could be those of each element instead of each channel:
 * (x - mean) * (scale / sqrt(var + epsilon)) + b */
static weft_err norm_elements(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    double epsilon;
    WEFT_TRY(weft_onnx__get_float(c, "epsilon", 1e-5, &epsilon));
    weft_onnx__ignore(c, "momentum");
    weft_onnx__ignore(c, "consumed_inputs");
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    bool whole = c->n_in == 5 && c->n_out == 1;
    for (uint32_t i = 0; whole && i < 5; i++)
        whole = c->in[i].i;
    if (!whole)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 5", c->n_in);
    weft_dtype dtype = (weft_dtype)weft_onnx__of(&b, c->in[4])->dtype;
    weft_val var =
        weft_onnx__make2(&b, WEFT_OP_ADD, c->in[4], weft_onnx__scalar(&b, dtype, epsilon));
    weft_val factor =
        weft_onnx__make2(&b, WEFT_OP_DIV, c->in[1], weft_onnx__make1(&b, WEFT_OP_SQRT, var));
    weft_val x = weft_onnx__make2(&b, WEFT_OP_SUB, c->in[0], c->in[3]);
    x = weft_onnx__make2(&b, WEFT_OP_MUL, x, factor);
    c->out[0] = weft_onnx__make2(&b, WEFT_OP_ADD, x, c->in[2]);
    return b.err;
}

weft_err weft_onnx_hook_batch_norm(weft_onnx_call *c)
{
    enum { OPSET_TRAINING_MODE = 14 };
    int64_t spatial, is_test;
    WEFT_TRY(weft_onnx__get_int(c, "spatial", 1, &spatial));
    if (c->opset < OPSET_BROADCAST) {
        WEFT_TRY(weft_onnx__get_int(c, "is_test", 0, &is_test));
        if (!is_test)
            return weft_onnx__fail(c, WEFT_ERR_UNSUP, "attribute \"is_test\" = 0 is not supported");
    }
    if (c->opset < OPSET_TRAINING_MODE && c->n_out > 1)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "outputs of training are not supported");
    return spatial ? weft_onnx_hook_plain(c) : norm_elements(c);
}

/* Before opset 21 scale and bias had one element a group:
 * s[g] ==> reshape(expand(reshape(s, [g, 1]), [g, c / g]), [c]) */
static weft_err spread_groups(weft_onnx_call *c, weft_dim groups, weft_dim channels, weft_val *s)
{
    weft_dimpool *pool = weft_module_dims(c->cx->m);
    weft_dim column[2] = {groups, 1};
    weft_dim full[2] = {groups, weft_dim_floordiv(pool, channels, groups)};
    WEFT_TRY(weft_onnx__emit_dims(c, WEFT_OP_RESHAPE, *s, WEFT_ATTR_SHAPE, column, 2, s));
    WEFT_TRY(weft_onnx__emit_dims(c, WEFT_OP_EXPAND, *s, WEFT_ATTR_SHAPE, full, 2, s));
    return weft_onnx__emit_dims(c, WEFT_OP_RESHAPE, *s, WEFT_ATTR_SHAPE, &channels, 1, s);
}

weft_err weft_onnx_hook_group_norm(weft_onnx_call *c)
{
    int64_t groups;
    WEFT_TRY(weft_onnx__get_int(c, "num_groups", 0, &groups));
    weft_onnx__put(c, WEFT_ATTR_OF_INT(NUM_GROUPS, groups));
    if (c->opset < OPSET_GROUP_CHANNELS && c->n_in == 3 && c->in[0].i && c->in[1].i && c->in[2].i) {
        const weft_ttype *x = weft_onnx__type(c, c->in[0]);
        if (x->rank < 2 || groups < 1 || groups > INT32_MAX)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "rank %u, %lld groups", x->rank,
                                   (long long)groups);
        weft_dim channels = x->dim[1];
        WEFT_TRY(spread_groups(c, groups, channels, &c->in[1]));
        WEFT_TRY(spread_groups(c, groups, channels, &c->in[2]));
    }
    return weft_onnx_hook_plain(c);
}

/* Before opset 13 the operand was seen as a matrix, split before `axis`:
 * softmax(x) ==> reshape(softmax(reshape(x, [before, after]), axis 1), shape of x) */
weft_err weft_onnx_hook_softmax(weft_onnx_call *c)
{
    if (c->opset >= OPSET_SOFTMAX_AXIS || c->n_in != 1)
        return weft_onnx_hook_plain(c);
    int64_t axis;
    WEFT_TRY(weft_onnx__get_int(c, "axis", 1, &axis));
    weft_ttype x = *weft_onnx__type(c, c->in[0]);
    if (axis < -(int64_t)x.rank || axis > x.rank)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld of a tensor of rank %u",
                               (long long)axis, x.rank);
    axis += axis < 0 ? x.rank : 0;
    if (axis + 1 == x.rank) {
        weft_onnx__put(c, WEFT_ATTR_OF_INT(AXIS, axis));
        return weft_onnx_hook_plain(c);
    }
    weft_dimpool *pool = weft_module_dims(c->cx->m);
    weft_dim half[2] = {1, 1};
    for (uint32_t i = 0; i < x.rank; i++)
        half[i >= axis] = weft_dim_mul(pool, half[i >= axis], x.dim[i]);
    weft_val v = c->in[0];
    WEFT_TRY(weft_onnx__emit_dims(c, WEFT_OP_RESHAPE, v, WEFT_ATTR_SHAPE, half, 2, &v));
    weft_attr last = WEFT_ATTR_OF_INT(AXIS, 1);
    WEFT_TRY(weft_onnx__emit(c, c->row->op, &v, 1, &last, 1, &v, 1));
    return weft_onnx__emit_dims(c, WEFT_OP_RESHAPE, v, WEFT_ATTR_SHAPE, x.dim, x.rank, c->out);
}

/* -- Movement --------------------------------------------------------------------------------- */

weft_err weft_onnx_hook_concat(weft_onnx_call *c)
{
    if (c->opset < OPSET_CONCAT_AXIS)
        weft_onnx__put(c, WEFT_ATTR_OF_INT(AXIS, 1));
    return weft_onnx_hook_plain(c);
}

/* Results without a name count as well: the number of parts is the number of results. */
weft_err weft_onnx_hook_split(weft_onnx_call *c)
{
    c->n_out = c->n_listed;
    return weft_onnx_hook_plain(c);
}

/* Before opset 11 the amounts and the value were attributes. */
weft_err weft_onnx_hook_pad(weft_onnx_call *c)
{
    enum { OPSET_PADS = 2, OPSET_PAD_INPUTS = 11 };
    if (c->opset >= OPSET_PAD_INPUTS || c->n_in != 1)
        return weft_onnx_hook_plain(c);
    double value;
    const int64_t *pads;
    uint32_t n;
    WEFT_TRY(weft_onnx__get_float(c, "value", 0.0, &value));
    WEFT_TRY(weft_onnx__get_ints(c, c->opset < OPSET_PADS ? "paddings" : "pads", &pads, &n));
    weft_dim *dims = weft_arena_array(c->cx->arena, n, sizeof *dims);
    for (uint32_t i = 0; i < n; i++)
        dims[i] = weft_dim_of_number(pads[i]);
    weft_onnx__put_dims(c, WEFT_ATTR_PADS, dims, n);
    weft_val in[3] = {c->in[0], {0}, {0}};
    in[2] = scalar_like(c, c->in[0], value);
    c->in = in;
    c->n_in = value != 0.0 ? 3 : 1;
    return weft_onnx_hook_plain(c);
}

/* slice and pad of sizes that only running tells: of what is too much or too little, one half at
 * each end. */
static weft_val crop_and_pad(weft_onnx_build *b, weft_val x, weft_val want, const int64_t *axis,
                             uint32_t n)
{
    const weft_attr first = WEFT_ATTR_OF_INT(AXIS, 0);
    weft_val axes = weft_onnx__i64s(b, axis, &(int64_t){n}, 1);
    weft_val in[4] = {weft_onnx__make1(b, WEFT_OP_SHAPE, x), axes};
    weft_val have = weft_onnx__make(b, WEFT_OP_GATHER, in, 2, &first, 1);
    weft_val zero = weft_onnx__number(b, have, 0), two = weft_onnx__number(b, have, 2);
    want = weft_onnx__cast(b, want, WEFT_DTYPE_I64);
    weft_val over = weft_onnx__make2(b, WEFT_OP_SUB, have, want);
    weft_val start =
        weft_onnx__make2(b, WEFT_OP_DIV, weft_onnx__make2(b, WEFT_OP_MAX, over, zero), two);
    weft_val kept = weft_onnx__make2(b, WEFT_OP_MIN, have, want);
    weft_val end = weft_onnx__make2(b, WEFT_OP_ADD, start, kept);
    weft_val more = weft_onnx__make2(b, WEFT_OP_SUB, want, kept);
    weft_val before = weft_onnx__make2(b, WEFT_OP_DIV, more, two);
    weft_val pads[2] = {before, weft_onnx__make2(b, WEFT_OP_SUB, more, before)};
    weft_val cut[4] = {x, start, end, axes};
    weft_val put[4] = {weft_onnx__make(b, WEFT_OP_SLICE, cut, 4, NULL, 0),
                       weft_onnx__concat(b, pads, 2, 0), (weft_val){0}, axes};
    return weft_onnx__make(b, WEFT_OP_PAD, put, 4, NULL, 0);
}

/* Whether all sizes are numbers: of x along the axes, and those wanted. */
static bool crops_by_numbers(const weft_ttype *x, const int64_t *axis, const weft_dim *shape,
                             uint32_t n)
{
    bool known = shape != NULL;
    for (uint32_t i = 0; i < n && known; i++)
        known = weft_dim_is_const(x->dim[axis[i]]) && weft_dim_is_const(shape[i]);
    return known;
}

/* center_crop_pad(x, shape) ==> pad(slice(x)), both centred; an odd element goes to the end. */
weft_err weft_onnx_hook_center_crop_pad(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    if (c->n_in != 2 || !c->in[0].i || !c->in[1].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 2", c->n_in);
    weft_ttype x = *weft_onnx__type(c, c->in[0]), want = *weft_onnx__type(c, c->in[1]);
    const int64_t *axes;
    uint32_t n, n_shape;
    WEFT_TRY(weft_onnx__get_ints(c, "axes", &axes, &n));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    n = axes ? n : x.rank;
    if (n > WEFT_RANK_MAX || want.rank != 1 || (weft_dim_is_const(want.dim[0]) && want.dim[0] != n))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u axes and other sizes, rank %u", n, x.rank);
    int64_t axis[WEFT_RANK_MAX];
    for (uint32_t i = 0; i < n; i++) {
        axis[i] = axes ? axes[i] + (axes[i] < 0 ? x.rank : 0) : (int64_t)i;
        if (axis[i] < 0 || axis[i] >= x.rank)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "axis %lld, rank %u", (long long)axis[i],
                                   x.rank);
    }
    const weft_dim *shape = weft_contents_get(c->cx->contents, c->in[1], &n_shape);
    if (!crops_by_numbers(&x, axis, shape, n)) {
        c->out[0] = crop_and_pad(&b, c->in[0], c->in[1], axis, n);
        return b.err;
    }
    weft_dim on[WEFT_RANK_MAX], start[WEFT_RANK_MAX], end[WEFT_RANK_MAX], pads[2 * WEFT_RANK_MAX];
    for (uint32_t i = 0; i < n; i++) {
        int64_t have = x.dim[axis[i]], size = shape[i];
        if (size < 0 || size > WEFT_NUMEL_MAX)
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "size %lld", (long long)size);
        int64_t more = size > have ? size - have : 0;
        on[i] = axis[i];
        start[i] = size < have ? (have - size) / 2 : 0;
        end[i] = start[i] + (size < have ? size : have);
        pads[i] = more / 2;
        pads[n + i] = more - more / 2;
    }
    weft_attr cut[3] = {WEFT_ATTR_OF_DIMS(STARTS, start, n), WEFT_ATTR_OF_DIMS(ENDS, end, n),
                        WEFT_ATTR_OF_DIMS(AXES, on, n)};
    weft_attr put[2] = {WEFT_ATTR_OF_DIMS(PADS, pads, 2 * n), WEFT_ATTR_OF_DIMS(AXES, on, n)};
    weft_val middle;
    WEFT_TRY(weft_onnx__emit(c, WEFT_OP_SLICE, c->in, 1, cut, 3, &middle, 1));
    return weft_onnx__emit(c, WEFT_OP_PAD, &middle, 1, put, 2, c->out, 1);
}

/* -- Resampling ------------------------------------------------------------------------------- */

/* A tensor without elements stands for an omitted operand. */
static void drop_empty(weft_onnx_call *c, uint32_t in)
{
    if (in < c->n_in && c->in[in].i && weft_onnx__type(c, c->in[in])->rank == 1 &&
        weft_onnx__type(c, c->in[in])->dim[0] == 0)
        c->in[in] = (weft_val){0};
}

/* Rounding of mode nearest in opset 10, which does not specify it: its tests and later opsets round
 * down along an axis that grows, up along one that shrinks. */
static const char *old_nearest_mode(weft_onnx_call *c, weft_val scales)
{
    bool grows = false, shrinks = false;
    weft_weight w = weft_val_weight(c->cx->m, scales);
    if (!w.i || weft_weight_get(c->cx->m, w)->bytes > WEFT_ONNX_COPY_MAX)
        return "by_direction";
    weft_tensor t = weft_weight_tensor(c->cx->m, w);
    for (int64_t i = 0; i < weft_tensor_numel(&t); i++) {
        double x = weft_tensor_get_f64(&t, i);
        grows |= x > 1.0;
        shrinks |= x < 1.0;
    }
    return grows && shrinks ? "by_direction" : shrinks ? "ceil" : "floor";
}

/* Opset 10 had the coordinates of Upsample, and no operand for the region. */
weft_err weft_onnx_hook_resize(weft_onnx_call *c)
{
    enum { OPSET_RESIZE_ROI = 11 };
    for (uint32_t i = 1; i < c->n_in; i++)
        drop_empty(c, i);
    if (c->opset >= OPSET_RESIZE_ROI || c->n_in != 2)
        return weft_onnx_hook_plain(c);
    weft_val in[3] = {c->in[0], {0}, c->in[1]};
    const char *nearest = old_nearest_mode(c, c->in[1]);
    c->in = in;
    c->n_in = 3;
    weft_onnx__put(c, WEFT_ATTR_OF_STR(COORDINATE_TRANSFORMATION_MODE, "asymmetric"));
    weft_onnx__put(c, WEFT_ATTR_OF_STR(NEAREST_MODE, nearest));
    return weft_onnx_hook_plain(c);
}

/* Opset 1 named the scales of the two spatial axes. */
weft_err weft_onnx_hook_upsample(weft_onnx_call *c)
{
    enum { OPSET_UPSAMPLE_SCALES = 7 };
    if (c->opset >= OPSET_UPSAMPLE_SCALES)
        return weft_onnx_hook_plain(c);
    double *scales = weft_arena_array(c->cx->arena, 4, sizeof *scales);
    scales[0] = scales[1] = 1.0;
    WEFT_TRY(weft_onnx__get_float(c, "height_scale", 1.0, &scales[2]));
    WEFT_TRY(weft_onnx__get_float(c, "width_scale", 1.0, &scales[3]));
    weft_onnx__put(
        c, (weft_attr){
               .key = WEFT_ATTR_SCALES, .kind = WEFT_KIND_FLOATS, .n = 4, .u = {.floats = scales}});
    return weft_onnx_hook_plain(c);
}

/* Before opset 16 the coordinates were not shifted by half a pixel. */
weft_err weft_onnx_hook_roi_align(weft_onnx_call *c)
{
    enum { OPSET_HALF_PIXEL = 16 };
    if (c->opset < OPSET_HALF_PIXEL)
        weft_onnx__put(c, WEFT_ATTR_OF_STR(COORDINATE_TRANSFORMATION_MODE, "output_half_pixel"));
    return weft_onnx_hook_plain(c);
}

/* Before opset 20 the axis was an attribute, 1 unless given. */
weft_err weft_onnx_hook_dft(weft_onnx_call *c)
{
    enum { OPSET_AXIS_INPUT = 20 };
    int64_t axis;
    if (c->opset < OPSET_AXIS_INPUT) {
        WEFT_TRY(weft_onnx__get_int(c, "axis", 1, &axis));
        weft_dim *dim = weft_arena_alloc(c->cx->arena, sizeof *dim);
        *dim = weft_dim_is_const(axis) ? axis : 0;
        weft_onnx__put_dims(c, WEFT_ATTR_AXIS, dim, 1);
    }
    return weft_onnx_hook_plain(c);
}

/* Before opset 7 an attribute selected training; now the number of wanted results does. */
weft_err weft_onnx_hook_recurrent(weft_onnx_call *c)
{
    if (c->opset < OPSET_BROADCAST)
        weft_onnx__ignore(c, "output_sequence");
    return weft_onnx_hook_plain(c);
}
