/* fuse-quantised: products of dequantised operands become products of bytes.
 *
 *     %a = dequantize_linear %x, $sx, $zx
 *     %b = dequantize_linear $w, $sw, $zw     ==>  %y = qlinear_conv %x, $sx, $zx, $w, $sw, $zw,
 *     %c = dequantize_linear $i, $si                                 none, none, $bias
 *     %y = conv %a, %b, %c
 *
 *     %q, %s, %z = dynamic_quantize_linear %x
 *     %i = matmul_integer %q, $w, %z, $zw     ==>  %y = qlinear_matmul %q, %s, %z, $w, $sw, $zw
 *     %y = mul (cast %i), (mul %s, $sw)
 *
 * The result is f32; fuse-epilogue adds the steps behind it and the quantisation of the result.
 * What quantisers write around the products, and what onnxruntime writes as one operator (QLinear*,
 * which the importer expands), has the same form then. Besides:
 *
 *   - operators that only move elements, and max_pool, move bytes: op(dequantize(x)) ==>
 *     dequantize(op(x)); a concatenation that is quantised concatenates quantised parts;
 *   - quantize(dequantize(x)) with the same scale and zero point ==> x, which is exact;
 *   - u8 weights become i8: w - 128 with zero point - 128, because CPUs multiply u8 by i8.
 *
 * On GPUs a product stays in f32 if the second factor is not a weight, or the zero points of that
 * weight are not 0; a qlinear product of that kind is expanded.
 * Dequantised weights that remain are computed by fold-weights. One forward sweep, O(nodes). */
#include "passes/match.h"

#include <string.h>

/* -- Quantised values ----------------------------------------------------------------------- */

/* The operands of a dequantize_linear of bytes with constant scale and zero point. */
typedef struct quantised {
    weft_node node; /* none: not found */
    weft_val x, scale, zero;
    int64_t n; /* elements of the scale */
    int64_t axis;
} quantised;

typedef struct fuser {
    weft_passctx *cx;
    weft_graph *g;
    weft_module *m;
    bool changed;
} fuser;

static bool is_byte(const fuser *f, weft_val v)
{
    uint8_t dtype = weft_val_ttype(f->m, v)->dtype;
    return dtype == WEFT_DTYPE_U8 || dtype == WEFT_DTYPE_I8;
}

static bool is_weight(const fuser *f, weft_val v)
{
    return v.i && weft_val_get_kind(f->m, v) == WEFT_VAL_WEIGHT;
}

static int64_t weight_numel(const fuser *f, weft_val v)
{
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, v));
    return weft_tensor_numel(&t);
}

/* Scale and zero point of a quantize_linear or dequantize_linear; zero point none: 0. */
static bool read_params(const fuser *f, weft_node n, quantised *out)
{
    weft_val scale = weft_node_in(f->m, n, 1), zero = weft_node_in(f->m, n, 2);
    if (!is_weight(f, scale) || (zero.i && !is_weight(f, zero)) ||
        !weft_match__is_f32(f->m, scale) ||
        weft_attrs_int(weft_node_attrs(f->m, n), WEFT_ATTR_BLOCK_SIZE, 0) != 0 ||
        weft_attrs_find(weft_node_attrs(f->m, n), WEFT_ATTR_PRECISION))
        return false;
    *out = (quantised){.node = n,
                       .x = weft_node_in(f->m, n, 0),
                       .scale = scale,
                       .zero = zero,
                       .n = weight_numel(f, scale),
                       .axis = weft_attrs_int(weft_node_attrs(f->m, n), WEFT_ATTR_AXIS, 1)};
    uint8_t rank = weft_val_ttype(f->m, out->x)->rank;
    out->axis += out->axis < 0 ? rank : 0;
    return weft_val_ttype(f->m, scale)->rank <= 1 && out->n >= 1;
}

static quantised find_dequantize(const fuser *f, weft_val v)
{
    quantised q = {0};
    weft_node n = weft_match__maker(f->m, v, WEFT_OP_DEQUANTIZE_LINEAR);
    if (!n.i || !weft_match__is_f32(f->m, v) || !is_byte(f, weft_node_in(f->m, n, 0)) ||
        !read_params(f, n, &q))
        return (quantised){0};
    return q;
}

static int64_t zero_at(const fuser *f, weft_val zero, int64_t i)
{
    if (!zero.i)
        return 0;
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, zero));
    return weft_tensor_get_i64(&t, i);
}

/* Whether both have one scale and one zero point, and these are equal. */
static bool same_params(const fuser *f, const quantised *a, const quantised *b)
{
    double x, y;
    return a->n == 1 && b->n == 1 && weft_rewrite__scalar(f->m, a->scale, &x) &&
           weft_rewrite__scalar(f->m, b->scale, &y) && x == y &&
           zero_at(f, a->zero, 0) == zero_at(f, b->zero, 0);
}

/* The zero point as a weight in the type of `like`. */
static weft_val zero_of(fuser *f, weft_val zero, weft_val like)
{
    const int8_t none = 0;
    if (zero.i)
        return zero;
    return weft_rewrite__constant(f->m, (weft_dtype)weft_val_ttype(f->m, like)->dtype, NULL, 0,
                                  &none, "zero");
}

/* -- Weights -------------------------------------------------------------------------------- */

/* A copy of a weight of bytes, as i8 if it is u8: every element - 128. */
static weft_val shifted(fuser *f, weft_val w)
{
    weft_weight id = weft_val_weight(f->m, w);
    weft_tensor t = weft_weight_tensor(f->m, id);
    size_t n = (size_t)weft_tensor_numel(&t);
    const uint8_t *from = t.data;
    uint8_t *to = weft_arena_alloc(weft_module_arena(f->m), n + 1);
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] ^ 0x80;
    weft_ttype type = *weft_val_ttype(f->m, w);
    type.dtype = WEFT_DTYPE_I8;
    weft_weight_info info = {.type = weft_type_intern(f->m, &type),
                             .name = weft_weight_get(f->m, id)->name,
                             .data = to,
                             .bytes = n};
    return weft_weight_val(f->m, weft_weight_add(f->m, &info));
}

/* u8 weight ==> i8 weight, with its zero point. */
static void as_i8(fuser *f, weft_val *w, weft_val *zero)
{
    if (!is_weight(f, *w) || weft_val_ttype(f->m, *w)->dtype != WEFT_DTYPE_U8 ||
        !is_weight(f, *zero))
        return;
    *w = shifted(f, *w);
    *zero = shifted(f, *zero);
}

/* A matrix of bytes, transposed. */
static weft_val transposed(fuser *f, weft_val w)
{
    weft_weight id = weft_val_weight(f->m, w);
    weft_tensor t = weft_weight_tensor(f->m, id);
    int64_t rows = t.dim[0], cols = t.dim[1];
    const uint8_t *from = t.data;
    uint8_t *to = weft_arena_alloc(weft_module_arena(f->m), (size_t)(rows * cols) + 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[j * rows + i] = from[i * cols + j];
    weft_dim dim[2] = {cols, rows};
    weft_weight_info info = {.type = weft_type_make(f->m, t.dtype, dim, 2),
                             .name = weft_weight_get(f->m, id)->name,
                             .data = to,
                             .bytes = (uint64_t)(rows * cols)};
    return weft_weight_val(f->m, weft_weight_add(f->m, &info));
}

static bool on_gpu(const fuser *f)
{
    return weft_target_is_gpu(f->cx->options->target);
}

/* Whether the second factor is a weight with constant zero points; for GPUs of i8 with zero points
 * of 0, or of u8 with 128. */
static bool weight_fits(const fuser *f, weft_val w, weft_val zero)
{
    if (!is_weight(f, w) || (zero.i && !is_weight(f, zero)))
        return false;
    int64_t n = zero.i ? weight_numel(f, zero) : 1;
    int64_t want = weft_val_ttype(f->m, w)->dtype == WEFT_DTYPE_U8 ? 128 : 0;
    for (int64_t i = 0; i < n && on_gpu(f); i++)
        if (zero_at(f, zero, i) != want)
            return false;
    return n > 0;
}

static bool is_single(const fuser *f, weft_val v)
{
    const weft_ttype *t = weft_val_ttype(f->m, v);
    return t->rank == 0 || (t->rank == 1 && t->dim[0] == 1);
}

/* Whether there is a kernel for the second factor of a matmul with these scale and zero point: a
 * weight, or a matrix with one of each. */
static bool factor_fits(const fuser *f, weft_val b, weft_val scale, weft_val zero)
{
    if (is_weight(f, b) || on_gpu(f))
        return weight_fits(f, b, zero);
    return weft_val_ttype(f->m, b)->rank >= 2 && is_single(f, scale) &&
           (!zero.i || is_single(f, zero));
}

/* -- Bias ----------------------------------------------------------------------------------- */

/* The bias as a weight of f32 with `n` elements: a weight, or dequantised i32. */
static bool read_bias(fuser *f, weft_val v, int64_t n, weft_val *out)
{
    *out = (weft_val){0};
    if (!v.i)
        return true;
    weft_node dq = weft_match__maker(f->m, v, WEFT_OP_DEQUANTIZE_LINEAR);
    quantised q;
    weft_val x = dq.i ? weft_node_in(f->m, dq, 0) : v;
    const weft_ttype *t = weft_val_ttype(f->m, x);
    if (!is_weight(f, x) || t->rank < 1 || weight_numel(f, x) != n ||
        t->dim[t->rank - 1] != (weft_dim)n || !weft_match__is_f32(f->m, v))
        return false;
    if (!dq.i && t->rank == 1) {
        *out = v;
        return true;
    }
    if (dq.i && (!read_params(f, dq, &q) || (q.n != 1 && (q.n != n || t->rank != 1))))
        return false;
    weft_tensor values = weft_weight_tensor(f->m, weft_val_weight(f->m, x));
    weft_tensor scales = dq.i ? weft_weight_tensor(f->m, weft_val_weight(f->m, q.scale)) : values;
    float *bias = weft_arena_array(f->cx->scratch, (size_t)n + 1, sizeof *bias);
    for (int64_t i = 0; i < n; i++) {
        bias[i] = (float)weft_tensor_get_f64(&values, i);
        if (dq.i) {
            int64_t at = q.n == 1 ? 0 : i;
            double whole = (double)(weft_tensor_get_i64(&values, i) - zero_at(f, q.zero, at));
            bias[i] = (float)(whole * weft_tensor_get_f64(&scales, at));
        }
    }
    *out = weft_rewrite__constant(f->m, WEFT_DTYPE_F32, &n, 1, bias, "bias");
    return true;
}

/* -- Products ------------------------------------------------------------------------------- */

static weft_err replace(fuser *f, weft_node n, weft_op_id op, const weft_val *in,
                        const weft_attr *attr, uint32_t n_attr)
{
    weft_val y;
    uint32_t n_in = WEFT_QLINEAR_OPERANDS;
    while (!in[n_in - 1].i)
        n_in--;
    WEFT_TRY(
        weft_rewrite__emit(f->cx, f->g, n, op, in, n_in, attr, n_attr, weft_node_loc(f->m, n), &y));
    weft_rewrite__replace_result(f->g, n, 0, y);
    weft_rewrite__remove_dead(f->g, n);
    f->changed = true;
    return WEFT_ERR_OK;
}

static weft_err fuse_conv(fuser *f, weft_node n)
{
    quantised x = find_dequantize(f, weft_node_in(f->m, n, 0));
    quantised w = find_dequantize(f, weft_node_in(f->m, n, 1));
    weft_val bias;
    if (!x.node.i || !w.node.i || x.n != 1 || is_weight(f, x.x) || !weight_fits(f, w.x, w.zero) ||
        weft_node_in_count(f->m, n) > 3)
        return WEFT_ERR_OK;
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, w.x));
    if ((w.n != 1 && (w.axis != 0 || w.n != t.dim[0])) ||
        !read_bias(f, weft_node_in(f->m, n, 2), t.dim[0], &bias) || !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    w.zero = zero_of(f, w.zero, w.x);
    as_i8(f, &w.x, &w.zero);
    const weft_val in[WEFT_QLINEAR_OPERANDS] = {
        x.x, x.scale, zero_of(f, x.zero, x.x), w.x, w.scale, w.zero, {0}, {0}, bias};
    weft_attrs attrs = weft_node_attrs(f->m, n);
    return replace(f, n, WEFT_OP_QLINEAR_CONV, in, attrs.at, attrs.n);
}

/* The scale times alpha. */
static weft_val scaled(fuser *f, weft_val scale, double alpha)
{
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, scale));
    int64_t n = weft_tensor_numel(&t);
    float *by = weft_arena_array(f->cx->scratch, (size_t)n + 1, sizeof *by);
    if (alpha == 1)
        return scale;
    for (int64_t i = 0; i < n; i++)
        by[i] = (float)(weft_tensor_get_f64(&t, i) * alpha);
    return weft_rewrite__constant(f->m, WEFT_DTYPE_F32, t.dim, (uint32_t)t.rank, by, "scale");
}

/* Whether there is one scale, or one for each column of a weight. */
static bool scales_fit(const fuser *f, const quantised *b, bool trans_b)
{
    if (!is_weight(f, b->x))
        return b->n == 1 && !trans_b;
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, b->x));
    int32_t column = trans_b ? t.rank - 2 : t.rank - 1;
    return t.rank >= 2 && (!trans_b || t.rank == 2) &&
           (b->n == 1 || (b->axis == column && b->n == t.dim[column]));
}

static weft_err fuse_matmul(fuser *f, weft_node n)
{
    weft_attrs attrs = weft_node_attrs(f->m, n);
    quantised a = find_dequantize(f, weft_node_in(f->m, n, 0));
    quantised b = find_dequantize(f, weft_node_in(f->m, n, 1));
    bool trans_b = weft_attrs_int(attrs, WEFT_ATTR_TRANS_B, 0) != 0;
    weft_val bias = {0}, addend = weft_node_in(f->m, n, 2);
    if (!a.node.i || !b.node.i || a.n != 1 || is_weight(f, a.x) ||
        weft_val_ttype(f->m, a.x)->rank < 2 || weft_attrs_int(attrs, WEFT_ATTR_TRANS_A, 0) != 0 ||
        weft_node_in_count(f->m, n) > 3 || !factor_fits(f, b.x, b.scale, b.zero) ||
        !scales_fit(f, &b, trans_b))
        return WEFT_ERR_OK;
    const weft_ttype *y = weft_val_ttype(f->m, weft_node_out(f->m, n, 0));
    weft_dim cols = y->dim[y->rank - 1];
    if ((addend.i && (!weft_dim_is_const(cols) || !read_bias(f, addend, cols, &bias))) ||
        !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    b.zero = zero_of(f, b.zero, b.x);
    as_i8(f, &b.x, &b.zero);
    if (trans_b)
        b.x = transposed(f, b.x);
    const weft_val in[WEFT_QLINEAR_OPERANDS] = {
        a.x,
        scaled(f, a.scale, weft_attrs_float(attrs, WEFT_ATTR_ALPHA, 1)),
        zero_of(f, a.zero, a.x),
        b.x,
        b.scale,
        b.zero,
        {0},
        {0},
        bias};
    return replace(f, n, WEFT_OP_QLINEAR_MATMUL, in, NULL, 0);
}

/* The i32 bias of a product in f32. */
static bool real_bias(fuser *f, const weft_val *in, weft_val *out)
{
    weft_val bias = in[WEFT_QLINEAR_BIAS];
    double by;
    *out = bias;
    if (!bias.i || weft_match__is_f32(f->m, bias))
        return true;
    if (!is_weight(f, bias) || !weft_rewrite__scalar(f->m, in[WEFT_QLINEAR_A_SCALE], &by) ||
        !is_weight(f, in[WEFT_QLINEAR_B_SCALE]))
        return false;
    weft_tensor t = weft_weight_tensor(f->m, weft_val_weight(f->m, bias));
    weft_tensor s = weft_weight_tensor(f->m, weft_val_weight(f->m, in[WEFT_QLINEAR_B_SCALE]));
    int64_t n = weft_tensor_numel(&t), n_scale = weft_tensor_numel(&s);
    float *real = weft_arena_array(f->cx->scratch, (size_t)n + 1, sizeof *real);
    if (n_scale != 1 && n_scale != n)
        return false;
    for (int64_t i = 0; i < n; i++)
        real[i] = (float)(weft_tensor_get_f64(&t, i) * by *
                          weft_tensor_get_f64(&s, n_scale == 1 ? 0 : i));
    *out = weft_rewrite__constant(f->m, WEFT_DTYPE_F32, &n, 1, real, "bias");
    return true;
}

/* Whether dequantize_linear takes this scale and zero point: one element, or one for each index of
 * `axis`. */
static bool dequantises(const fuser *f, const weft_val *q, int64_t axis)
{
    const weft_ttype *x = weft_val_ttype(f->m, q[0]), *s = weft_val_ttype(f->m, q[1]);
    const weft_ttype *z = weft_val_ttype(f->m, q[2]);
    weft_dim n = s->rank == 0 ? 1 : s->dim[0], n_zero = z->rank == 0 ? 1 : z->dim[0];
    return s->rank <= 1 && z->rank <= 1 && n == n_zero && axis < x->rank &&
           (n == 1 || n == x->dim[axis]) && weft_match__is_f32(f->m, q[1]);
}

/* A qlinear product `op` with these operands, whose result is that of `n`, computed in f32. */
static weft_err expand(fuser *f, weft_node n, weft_op_id op, const weft_val *in, weft_attrs attrs)
{
    bool is_conv = op == WEFT_OP_QLINEAR_CONV;
    int64_t last = (int64_t)weft_val_ttype(f->m, in[WEFT_QLINEAR_B])->rank - 1;
    int64_t rows = (int64_t)weft_val_ttype(f->m, in[WEFT_QLINEAR_A])->rank - 2;
    const weft_attr axis = WEFT_ATTR_OF_INT(AXIS, is_conv ? 0 : last);
    const weft_attr a_axis = WEFT_ATTR_OF_INT(AXIS, is_conv || rows < 0 ? 0 : rows);
    weft_loc loc = weft_node_loc(f->m, n);
    weft_val v[3];
    if (!dequantises(f, in + WEFT_QLINEAR_A, a_axis.u.i) ||
        !dequantises(f, in + WEFT_QLINEAR_B, axis.u.i) || !real_bias(f, in, &v[2]))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_rewrite__emit(f->cx, f->g, n, WEFT_OP_DEQUANTIZE_LINEAR, in + WEFT_QLINEAR_A, 3,
                                &a_axis, 1, loc, &v[0]));
    WEFT_TRY(weft_rewrite__emit(f->cx, f->g, n, WEFT_OP_DEQUANTIZE_LINEAR, in + WEFT_QLINEAR_B, 3,
                                &axis, 1, loc, &v[1]));
    WEFT_TRY(weft_rewrite__emit(f->cx, f->g, n, is_conv ? WEFT_OP_CONV : WEFT_OP_MATMUL, v,
                                v[2].i ? 3 : 2, attrs.at, attrs.n, loc, &v[0]));
    v[1] = in[WEFT_QLINEAR_Y_SCALE];
    v[2] = in[WEFT_QLINEAR_Y_ZERO];
    if (v[1].i)
        WEFT_TRY(
            weft_rewrite__emit(f->cx, f->g, n, WEFT_OP_QUANTIZE_LINEAR, v, 3, NULL, 0, loc, &v[0]));
    weft_rewrite__replace_result(f->g, n, 0, v[0]);
    weft_rewrite__remove_dead(f->g, n);
    f->changed = true;
    return WEFT_ERR_OK;
}

/* qlinear_conv, qlinear_matmul: weights as i8, or no bytes at all. */
static weft_err settle_product(fuser *f, weft_node n)
{
    weft_val in[WEFT_QLINEAR_OPERANDS];
    for (uint32_t i = 0; i < WEFT_QLINEAR_OPERANDS; i++)
        in[i] = weft_node_in(f->m, n, i);
    weft_val w = in[WEFT_QLINEAR_B], zero = in[WEFT_QLINEAR_B_ZERO];
    bool is_conv = weft_node_op(f->m, n) == WEFT_OP_QLINEAR_CONV;
    bool fits =
        is_conv ? weight_fits(f, w, zero) : factor_fits(f, w, in[WEFT_QLINEAR_B_SCALE], zero);
    bool u8 = is_weight(f, w) && weft_val_ttype(f->m, w)->dtype == WEFT_DTYPE_U8;
    fits = fits && is_single(f, in[WEFT_QLINEAR_A_SCALE]) && is_single(f, in[WEFT_QLINEAR_A_ZERO]);
    if (weft_node_in_count(f->m, n) > WEFT_QLINEAR_OPERANDS || (fits && !u8) ||
        !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    if (!fits)
        return expand(f, n, weft_node_op(f->m, n), in, weft_node_attrs(f->m, n));
    as_i8(f, &w, &zero);
    weft_node_set_in(f->m, n, WEFT_QLINEAR_B, w);
    weft_node_set_in(f->m, n, WEFT_QLINEAR_B_ZERO, zero);
    f->changed = true;
    return WEFT_ERR_OK;
}

/* -- Integer products ----------------------------------------------------------------------- */

/* Splits the factor of an integer product into a scale of operand a, one element, and one of
 * operand b: one element, or a weight with one a column. */
static bool split_scale(fuser *f, weft_val v, int64_t cols, weft_val *a, weft_val *b)
{
    const float one = 1;
    weft_node mul = weft_match__maker(f->m, v, WEFT_OP_MUL);
    for (uint32_t i = 0; mul.i && i < 2; i++) {
        *a = weft_node_in(f->m, mul, i);
        *b = weft_node_in(f->m, mul, 1 - i);
        if (is_single(f, *a) && is_weight(f, *b) && weft_val_ttype(f->m, *b)->rank <= 1 &&
            (weight_numel(f, *b) == 1 || weight_numel(f, *b) == cols))
            return true;
    }
    *a = v;
    *b = weft_rewrite__constant(f->m, WEFT_DTYPE_F32, NULL, 0, &one, "scale");
    return is_single(f, v);
}

/* The integer product that is cast to f32 and multiplied: cast is operand `i` of `mul`. */
static weft_node find_product(const fuser *f, weft_node mul, uint32_t i)
{
    weft_node cast = weft_match__maker(f->m, weft_node_in(f->m, mul, i), WEFT_OP_CAST);
    if (!cast.i || !weft_match__is_f32(f->m, weft_node_out(f->m, cast, 0)) ||
        weft_rewrite__sole_user(f->g, weft_node_out(f->m, cast, 0)).i != mul.i)
        return (weft_node){0};
    weft_val v = weft_node_in(f->m, cast, 0);
    weft_node n = weft_match__maker(f->m, v, WEFT_OP_MATMUL_INTEGER);
    if (!n.i)
        n = weft_match__maker(f->m, v, WEFT_OP_CONV_INTEGER);
    return n.i && weft_rewrite__sole_user(f->g, v).i == cast.i ? n : (weft_node){0};
}

/* The addition of a bias to an integer product whose sum is cast to f32 and multiplied by `mul`:
 * the cast is operand `i`, the product operand *out_product of the addition. */
static weft_node find_biased(const fuser *f, weft_node mul, uint32_t i, uint32_t *out_product)
{
    weft_node cast = weft_match__maker(f->m, weft_node_in(f->m, mul, i), WEFT_OP_CAST);
    if (!cast.i || !weft_match__is_f32(f->m, weft_node_out(f->m, cast, 0)))
        return (weft_node){0};
    weft_val sum = weft_node_in(f->m, cast, 0);
    weft_node add = weft_match__maker(f->m, sum, WEFT_OP_ADD);
    if (!add.i || weft_rewrite__sole_user(f->g, sum).i != cast.i)
        return (weft_node){0};
    for (uint32_t k = 0; k < 2; k++) {
        weft_val v = weft_node_in(f->m, add, k);
        *out_product = k;
        if (weft_rewrite__sole_user(f->g, v).i == add.i &&
            weft_val_type(f->m, v).i == weft_val_type(f->m, sum).i &&
            (weft_match__maker(f->m, v, WEFT_OP_MATMUL_INTEGER).i ||
             weft_match__maker(f->m, v, WEFT_OP_CONV_INTEGER).i))
            return add;
    }
    return (weft_node){0};
}

/* mul(cast(add(integer product, bias)), scale) ==>
 *     add(mul(cast(integer product), scale), mul(cast(bias), scale))
 * *out is the first of both multiplications; none: not found. */
static weft_err split_bias(fuser *f, weft_node mul, weft_node *out)
{
    const weft_attr to = WEFT_ATTR_OF_DTYPE(TO, WEFT_DTYPE_F32);
    weft_loc loc = weft_node_loc(f->m, mul);
    uint32_t i = 0, product = 0;
    weft_node add = find_biased(f, mul, 0, &product);
    if (!add.i)
        add = find_biased(f, mul, i = 1, &product);
    *out = (weft_node){0};
    weft_val scale = weft_node_in(f->m, mul, 1 - i), part[2];
    if (!add.i || !weft_match__is_f32(f->m, scale) || !is_single(f, scale) ||
        !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    for (uint32_t k = 0; k < 2; k++) {
        weft_val x = weft_node_in(f->m, add, k == 0 ? product : 1 - product);
        weft_val in[2] = {{0}, scale};
        WEFT_TRY(weft_rewrite__emit(f->cx, f->g, mul, WEFT_OP_CAST, &x, 1, &to, 1, loc, &in[0]));
        WEFT_TRY(weft_rewrite__emit(f->cx, f->g, mul, WEFT_OP_MUL, in, 2, NULL, 0, loc, &part[k]));
    }
    weft_val y;
    WEFT_TRY(weft_rewrite__emit(f->cx, f->g, mul, WEFT_OP_ADD, part, 2, NULL, 0, loc, &y));
    weft_rewrite__replace_result(f->g, mul, 0, y);
    weft_rewrite__remove_dead(f->g, mul);
    f->changed = true;
    *out = weft_val_node(f->m, part[0]);
    return WEFT_ERR_OK;
}

/* mul(cast(integer product), scale) ==> qlinear product */
static weft_err fuse_integer(fuser *f, weft_node mul)
{
    weft_node n = find_product(f, mul, 0);
    weft_val scale = weft_node_in(f->m, mul, 1), a, b;
    if (!n.i) {
        n = find_product(f, mul, 1);
        scale = weft_node_in(f->m, mul, 0);
    }
    if (!n.i || !weft_match__is_f32(f->m, scale))
        return WEFT_ERR_OK;
    bool is_conv = weft_node_op(f->m, n) == WEFT_OP_CONV_INTEGER;
    weft_val x = weft_node_in(f->m, n, 0), w = weft_node_in(f->m, n, 1);
    weft_val x_zero = weft_node_in(f->m, n, 2), w_zero = weft_node_in(f->m, n, 3);
    const weft_ttype *t = weft_val_ttype(f->m, w);
    if (!is_weight(f, w) || (w_zero.i && !is_weight(f, w_zero)) || t->rank < 2 ||
        weft_val_ttype(f->m, x)->rank < 2 || (x_zero.i && !is_single(f, x_zero)) ||
        weft_val_type(f->m, weft_node_out(f->m, mul, 0)).i !=
            weft_val_type(f->m,
                          weft_node_in(f->m, mul, weft_node_in(f->m, mul, 1).i == scale.i ? 0 : 1))
                .i)
        return WEFT_ERR_OK;
    int64_t cols = is_conv ? 1 : t->dim[t->rank - 1];
    if (!split_scale(f, scale, cols, &a, &b) || !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    x_zero = zero_of(f, x_zero, x);
    w_zero = zero_of(f, w_zero, w);
    bool fits = weight_fits(f, w, w_zero);
    if (fits)
        as_i8(f, &w, &w_zero);
    weft_attrs attrs = weft_node_attrs(f->m, n);
    weft_op_id op = is_conv ? WEFT_OP_QLINEAR_CONV : WEFT_OP_QLINEAR_MATMUL;
    const weft_val in[WEFT_QLINEAR_OPERANDS] = {x, a, x_zero, w, b, w_zero};
    if (!fits)
        return expand(f, mul, op, in, attrs);
    return replace(f, mul, op, in, attrs.at, attrs.n);
}

/* -- Movement ------------------------------------------------------------------------------- */

/* Operators whose results have elements of operand 0 only, whatever these are. */
static bool only_moves(const fuser *f, weft_node n)
{
    uint32_t traits = weft_node_opdef(f->m, n)->traits;
    switch (weft_node_op(f->m, n)) {
    case WEFT_OP_MAX_POOL:
        return weft_node_out_count(f->m, n) == 1;
    case WEFT_OP_CONCAT:
    case WEFT_OP_PAD:
    case WEFT_OP_CENTER_CROP_PAD:
    case WEFT_OP_TRILU:
    case WEFT_OP_TILE:
        return false;
    default:
        return (traits & (WEFT_T_MOVE | WEFT_T_VIEW)) && !(traits & (WEFT_T_FILL | WEFT_T_DATA));
    }
}

static weft_err emit_dequantize(fuser *f, weft_node before, weft_val x, const quantised *q,
                                weft_val *out)
{
    const weft_val in[3] = {x, q->scale, q->zero};
    return weft_rewrite__emit(f->cx, f->g, before, WEFT_OP_DEQUANTIZE_LINEAR, in, q->zero.i ? 3 : 2,
                              NULL, 0, weft_node_loc(f->m, before), out);
}

/* op(dequantize(x)) ==> dequantize(op(x)) */
static weft_err move_bytes(fuser *f, weft_node n)
{
    quantised q = find_dequantize(f, weft_node_in(f->m, n, 0));
    if (!q.node.i || q.n != 1 || !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    uint32_t n_in = weft_node_in_count(f->m, n), n_out = weft_node_out_count(f->m, n);
    weft_val *in = weft_arena_array(f->cx->scratch, n_in, sizeof *in), y;
    weft_type *out = weft_arena_array(f->cx->scratch, n_out, sizeof *out);
    for (uint32_t i = 0; i < n_in; i++)
        in[i] = i == 0 ? q.x : weft_node_in(f->m, n, i);
    for (uint32_t i = 0; i < n_out; i++) {
        weft_ttype type = *weft_val_ttype(f->m, weft_node_out(f->m, n, i));
        type.dtype = weft_val_ttype(f->m, q.x)->dtype;
        out[i] = weft_type_intern(f->m, &type);
    }
    weft_attrs attrs = weft_node_attrs(f->m, n);
    weft_node_spec spec = {.op = weft_node_op(f->m, n),
                           .in = in,
                           .n_in = n_in,
                           .out = out,
                           .n_out = n_out,
                           .attr = attrs.at,
                           .n_attr = attrs.n,
                           .loc = weft_node_loc(f->m, n)};
    weft_node moved = weft_node_insert_before(f->g, n, &spec);
    for (uint32_t i = 0; i < n_out; i++) {
        WEFT_TRY(emit_dequantize(f, n, weft_node_out(f->m, moved, i), &q, &y));
        weft_rewrite__replace_result(f->g, n, i, y);
    }
    weft_rewrite__remove_dead(f->g, n);
    f->changed = true;
    return WEFT_ERR_OK;
}

/* quantize(dequantize(x)), same scale and zero point ==> x */
static bool drop_pair(fuser *f, weft_node n, const quantised *q)
{
    quantised x = find_dequantize(f, q->x);
    weft_val y = weft_node_out(f->m, n, 0);
    if (!x.node.i || !same_params(f, &x, q) ||
        weft_val_type(f->m, x.x).i != weft_val_type(f->m, y).i || !weft_rewrite__allow(f->cx))
        return false;
    weft_rewrite__replace_result(f->g, n, 0, x.x);
    weft_rewrite__remove_dead(f->g, n);
    f->changed = true;
    return true;
}

static weft_err emit_quantize(fuser *f, weft_node like, weft_val x, weft_val *out)
{
    weft_val in[3] = {x, weft_node_in(f->m, like, 1), weft_node_in(f->m, like, 2)};
    weft_attrs attrs = weft_node_attrs(f->m, like);
    return weft_rewrite__emit(f->cx, f->g, like, WEFT_OP_QUANTIZE_LINEAR, in, in[2].i ? 3 : 2,
                              attrs.at, attrs.n, weft_node_loc(f->m, like), out);
}

/* quantize(concat(a, b)) ==> concat(quantize(a), quantize(b)), if an operand was dequantised */
static weft_err quantise_parts(fuser *f, weft_node n)
{
    weft_node concat = weft_match__maker(f->m, weft_node_in(f->m, n, 0), WEFT_OP_CONCAT);
    uint32_t n_in = concat.i ? weft_node_in_count(f->m, concat) : 0;
    bool gains = false;
    for (uint32_t i = 0; i < n_in; i++)
        gains = gains || find_dequantize(f, weft_node_in(f->m, concat, i)).node.i;
    if (!gains || weft_rewrite__sole_user(f->g, weft_node_in(f->m, n, 0)).i != n.i ||
        !weft_rewrite__allow(f->cx))
        return WEFT_ERR_OK;
    weft_val *part = weft_arena_array(f->cx->scratch, n_in, sizeof *part), y;
    for (uint32_t i = 0; i < n_in; i++) {
        weft_val x = weft_node_in(f->m, concat, i);
        quantised q, from = find_dequantize(f, x);
        if (from.node.i && read_params(f, n, &q) && same_params(f, &from, &q) &&
            weft_val_ttype(f->m, from.x)->dtype ==
                weft_val_ttype(f->m, weft_node_out(f->m, n, 0))->dtype)
            part[i] = from.x;
        else
            WEFT_TRY(emit_quantize(f, n, x, &part[i]));
    }
    weft_attrs attrs = weft_node_attrs(f->m, concat);
    WEFT_TRY(weft_rewrite__emit(f->cx, f->g, n, WEFT_OP_CONCAT, part, n_in, attrs.at, attrs.n,
                                weft_node_loc(f->m, concat), &y));
    weft_rewrite__replace_result(f->g, n, 0, y);
    weft_rewrite__remove_dead(f->g, n);
    f->changed = true;
    return WEFT_ERR_OK;
}

static weft_err settle_quantize(fuser *f, weft_node n)
{
    quantised q;
    if (!is_byte(f, weft_node_out(f->m, n, 0)) || !read_params(f, n, &q) || q.n != 1)
        return WEFT_ERR_OK;
    return drop_pair(f, n, &q) ? WEFT_ERR_OK : quantise_parts(f, n);
}

/* -- The sweep ------------------------------------------------------------------------------ */

static weft_err settle(fuser *f, weft_node n)
{
    weft_node mul;
    switch (weft_node_op(f->m, n)) {
    case WEFT_OP_CONV:
        return fuse_conv(f, n);
    case WEFT_OP_MATMUL:
        return fuse_matmul(f, n);
    case WEFT_OP_MUL:
        WEFT_TRY(split_bias(f, n, &mul));
        return fuse_integer(f, mul.i ? mul : n);
    case WEFT_OP_QLINEAR_CONV:
    case WEFT_OP_QLINEAR_MATMUL:
        return settle_product(f, n);
    case WEFT_OP_QUANTIZE_LINEAR:
        return settle_quantize(f, n);
    default:
        return only_moves(f, n) ? move_bytes(f, n) : WEFT_ERR_OK;
    }
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        fuser f = {.cx = cx, .g = weft_graph_at(m, i), .m = m};
        /* Rewrites remove the node and nodes before it only. */
        WEFT_FOREACH_NODE (m, f.g, n)
            WEFT_TRY(settle(&f, n));
        *changed |= f.changed;
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fuse_quantised = {
    .name = "fuse-quantised",
    .brief = "products of dequantised operands become products of bytes",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
