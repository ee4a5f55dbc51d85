/* Hooks of com.microsoft's quantised operators, as onnxruntime's quantiser writes them. An operator
 * on bytes becomes its float form between dequantisation and quantisation; GEMMs become
 * qlinear_matmul, whose sums are exact. */
#include "frontend/onnx_int.h"

/* A quantised tensor: the operands with its elements, scale and zero point. */
typedef struct quantized {
    weft_val x, scale, zero;
} quantized;

static weft_val operand(const weft_onnx_call *c, uint32_t i)
{
    return i < c->n_in ? c->in[i] : (weft_val){0};
}

/* Operands first (elements), first + 1 (scale) and first + 2 (zero point). */
static weft_err read_quantized(weft_onnx_call *c, uint32_t first, quantized *out)
{
    *out = (quantized){operand(c, first), operand(c, first + 1), operand(c, first + 2)};
    if (!out->x.i || !out->scale.i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing",
                               out->x.i ? first + 1 : first);
    return WEFT_ERR_OK;
}

/* A zero point of 0 in the type of `like`, if there is none. */
static weft_val zero_like(weft_onnx_call *c, weft_val zero, weft_val like)
{
    const int8_t none = 0;
    weft_dtype dtype = (weft_dtype)weft_onnx__type(c, like)->dtype;
    if (zero.i || weft_dtype_size(dtype) != 1)
        return zero;
    return weft_onnx__const(c, dtype, NULL, 0, &none);
}

static weft_err dequantize(weft_onnx_call *c, quantized q, weft_val *out)
{
    const weft_val in[3] = {q.x, q.scale, q.zero};
    return weft_onnx__emit(c, WEFT_OP_DEQUANTIZE_LINEAR, in, q.zero.i ? 3 : 2, NULL, 0, out, 1);
}

/* Quantises with operands `scale` and scale + 1 of the node; without that zero point, to the type
 * of `like`. */
static weft_err quantize(weft_onnx_call *c, weft_val x, uint32_t scale, weft_val like,
                         bool zero_first, weft_val *out)
{
    const weft_val in[3] = {x, operand(c, scale), zero_like(c, operand(c, scale + 1), like)};
    const weft_attr early = WEFT_ATTR_OF_INT(ZERO_FIRST, 1);
    if (!in[1].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u is missing", scale);
    return weft_onnx__emit(c, WEFT_OP_QUANTIZE_LINEAR, in, 3, &early, zero_first, out, 1);
}

static weft_err refuse_channels_last(weft_onnx_call *c)
{
    int64_t last;
    WEFT_TRY(weft_onnx__get_int(c, "channels_last", 0, &last));
    if (last)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "channels_last is not supported: export again without optimisation");
    return WEFT_ERR_OK;
}

/* -- Element by element, and pools ------------------------------------------------------------ */

/* f(x, x_scale, x_zero, y_scale, y_zero) ==> quantize(f(dequantize(x))) */
weft_err weft_onnx_hook_qlinear_unary(weft_onnx_call *c)
{
    quantized x;
    weft_val v;
    WEFT_TRY(read_quantized(c, 0, &x));
    WEFT_TRY(refuse_channels_last(c));
    WEFT_TRY(dequantize(c, x, &v));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    WEFT_TRY(weft_onnx__emit(c, c->row->op, &v, 1, c->attr, c->n_attr, &v, 1));
    return quantize(c, v, 3, x.x, false, &c->out[0]);
}

/* As above; attribute `opset` says which Softmax is meant. */
weft_err weft_onnx_hook_qlinear_softmax(weft_onnx_call *c)
{
    quantized x;
    weft_val v, *in = c->in;
    uint32_t n_in = c->n_in;
    WEFT_TRY(read_quantized(c, 0, &x));
    WEFT_TRY(weft_onnx__get_int(c, "opset", 0, &c->opset));
    WEFT_TRY(dequantize(c, x, &v));
    c->in = &v;
    c->n_in = 1;
    WEFT_TRY(weft_onnx_hook_softmax(c));
    c->in = in;
    c->n_in = n_in;
    return quantize(c, c->out[0], 3, x.x, false, &c->out[0]);
}

/* f(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero): the zero point is added before
 * rounding. */
weft_err weft_onnx_hook_qlinear_binary(weft_onnx_call *c)
{
    quantized a, b;
    weft_val v[2];
    WEFT_TRY(read_quantized(c, 0, &a));
    WEFT_TRY(read_quantized(c, 3, &b));
    WEFT_TRY(dequantize(c, a, &v[0]));
    WEFT_TRY(dequantize(c, b, &v[1]));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    WEFT_TRY(weft_onnx__emit(c, c->row->op, v, 2, NULL, 0, &v[0], 1));
    return quantize(c, v[0], 6, a.x, true, &c->out[0]);
}

/* where(condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero) */
weft_err weft_onnx_hook_qlinear_where(weft_onnx_call *c)
{
    quantized x, y;
    weft_val v[3] = {operand(c, 0)};
    WEFT_TRY(read_quantized(c, 1, &x));
    WEFT_TRY(read_quantized(c, 4, &y));
    WEFT_TRY(dequantize(c, x, &v[1]));
    WEFT_TRY(dequantize(c, y, &v[2]));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    WEFT_TRY(weft_onnx__emit(c, c->row->op, v, 3, NULL, 0, &v[0], 1));
    return quantize(c, v[0], 7, x.x, false, &c->out[0]);
}

/* concat(y_scale, y_zero, x0, x0_scale, x0_zero, x1, ...) */
weft_err weft_onnx_hook_qlinear_concat(weft_onnx_call *c)
{
    enum { FIRST = 2, EACH = 3 };
    uint32_t n = 0;
    weft_val *v = weft_arena_array(c->cx->arena, c->n_in / EACH + 1, sizeof *v), joined;
    for (uint32_t i = FIRST; i < c->n_in; i += EACH) {
        quantized x;
        WEFT_TRY(read_quantized(c, i, &x));
        WEFT_TRY(dequantize(c, x, &v[n++]));
    }
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    WEFT_TRY(weft_onnx__emit(c, c->row->op, v, n, c->attr, c->n_attr, &joined, 1));
    return quantize(c, joined, 0, operand(c, FIRST), false, &c->out[0]);
}

/* -- GEMMs ------------------------------------------------------------------------------------ */

/* `in` has the operands of qlinear_matmul; zero points that are missing are added. */
static weft_err emit_matmul(weft_onnx_call *c, weft_val *in, weft_val *out)
{
    in[WEFT_QLINEAR_A_ZERO] = zero_like(c, in[WEFT_QLINEAR_A_ZERO], in[WEFT_QLINEAR_A]);
    in[WEFT_QLINEAR_B_ZERO] = zero_like(c, in[WEFT_QLINEAR_B_ZERO], in[WEFT_QLINEAR_B]);
    return weft_onnx__emit(c, WEFT_OP_QLINEAR_MATMUL, in, WEFT_QLINEAR_OPERANDS, NULL, 0, out, 1);
}

/* matmul(a, b, a_scale, b_scale, a_zero, b_zero, bias): a result of floats */
weft_err weft_onnx_hook_matmul_integer_to_float(weft_onnx_call *c)
{
    weft_val in[WEFT_QLINEAR_OPERANDS] = {
        [WEFT_QLINEAR_A] = operand(c, 0),       [WEFT_QLINEAR_A_SCALE] = operand(c, 2),
        [WEFT_QLINEAR_A_ZERO] = operand(c, 4),  [WEFT_QLINEAR_B] = operand(c, 1),
        [WEFT_QLINEAR_B_SCALE] = operand(c, 3), [WEFT_QLINEAR_B_ZERO] = operand(c, 5),
        [WEFT_QLINEAR_BIAS] = operand(c, 6)};
    if (!in[WEFT_QLINEAR_A].i || !in[WEFT_QLINEAR_B].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input 0 or 1 is missing");
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_QLINEAR_MATMUL));
    return emit_matmul(c, in, &c->out[0]);
}

/* matmul(a of floats, b, b_scale, b_zero, bias): a is quantised by the range of its elements */
weft_err weft_onnx_hook_dynamic_quantize_matmul(weft_onnx_call *c)
{
    weft_val in[WEFT_QLINEAR_OPERANDS] = {[WEFT_QLINEAR_B] = operand(c, 1),
                                          [WEFT_QLINEAR_B_SCALE] = operand(c, 2),
                                          [WEFT_QLINEAR_B_ZERO] = operand(c, 3),
                                          [WEFT_QLINEAR_BIAS] = operand(c, 4)};
    if (!in[WEFT_QLINEAR_B].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input 1 is missing");
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_QLINEAR_MATMUL));
    WEFT_TRY(weft_onnx__emit(c, WEFT_OP_DYNAMIC_QUANTIZE_LINEAR, c->in, 1, NULL, 0, in, 3));
    return emit_matmul(c, in, &c->out[0]);
}

static weft_err transpose(weft_onnx_call *c, bool trans, weft_val *x)
{
    static const int64_t swapped[2] = {1, 0};
    weft_attr perm = WEFT_ATTR_OF_INTS(PERM, swapped, 2);
    if (!trans)
        return WEFT_ERR_OK;
    if (!x->i || weft_onnx__type(c, *x)->rank != 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "a factor is not a matrix");
    return weft_onnx__emit(c, WEFT_OP_TRANSPOSE, x, 1, &perm, 1, x, 1);
}

/* The addend C, i32 in units of a_scale * b_scale, as a vector of `cols`. *out_fits: it is one. */
static weft_err read_addend(weft_onnx_call *c, weft_dim cols, weft_val *v, bool *out_fits)
{
    const weft_ttype *t = weft_onnx__type(c, *v);
    bool row = t->rank == 2 && t->dim[0] == 1 && t->dim[1] == cols;
    *out_fits = t->dtype == WEFT_DTYPE_I32 && (row || (t->rank == 1 && t->dim[0] == cols));
    if (!*out_fits || !row)
        return WEFT_ERR_OK;
    return weft_onnx__emit_dims(c, WEFT_OP_RESHAPE, *v, WEFT_ATTR_SHAPE, &cols, 1, v);
}

/* qgemm(a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero): alpha multiplies a's scale */
weft_err weft_onnx_hook_qgemm(weft_onnx_call *c)
{
    enum { C = 6, Y_SCALE, Y_ZERO };
    quantized a, b;
    int64_t trans_a, trans_b;
    double alpha;
    bool fits = true;
    WEFT_TRY(read_quantized(c, 0, &a));
    WEFT_TRY(read_quantized(c, 3, &b));
    WEFT_TRY(weft_onnx__get_int(c, "transA", 0, &trans_a));
    WEFT_TRY(weft_onnx__get_int(c, "transB", 0, &trans_b));
    WEFT_TRY(weft_onnx__get_float(c, "alpha", 1, &alpha));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_QLINEAR_MATMUL));
    WEFT_TRY(transpose(c, trans_a != 0, &a.x));
    WEFT_TRY(transpose(c, trans_b != 0, &b.x));
    if (alpha != 1) {
        const float factor = (float)alpha;
        const weft_val in[2] = {a.scale, weft_onnx__const(c, WEFT_DTYPE_F32, NULL, 0, &factor)};
        WEFT_TRY(weft_onnx__emit(c, WEFT_OP_MUL, in, 2, NULL, 0, &a.scale, 1));
    }
    weft_val addend = operand(c, C);
    const weft_ttype *tb = weft_onnx__type(c, b.x);
    if (tb->rank != 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input 3 has rank %u, expected 2", tb->rank);
    if (addend.i)
        WEFT_TRY(read_addend(c, tb->dim[1], &addend, &fits));
    if (!fits)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP,
                               "input 6 is not i32 with one element a column: it is not supported");
    weft_val y_scale = operand(c, Y_SCALE);
    weft_val in[WEFT_QLINEAR_OPERANDS] = {
        a.x,     a.scale, a.zero,  b.x,
        b.scale, b.zero,  y_scale, y_scale.i ? zero_like(c, operand(c, Y_ZERO), a.x) : y_scale,
        addend};
    return emit_matmul(c, in, &c->out[0]);
}

/* -- Recurrent layers ------------------------------------------------------------------------- */

/* Constant operand `i` of the node; none: data is NULL. */
static weft_err read_constant(weft_onnx_call *c, uint32_t i, weft_tensor *out)
{
    weft_val v = operand(c, i);
    *out = (weft_tensor){0};
    if (!v.i)
        return WEFT_ERR_OK;
    if (weft_val_get_kind(c->cx->m, v) != WEFT_VAL_WEIGHT)
        return weft_onnx__fail(c, WEFT_ERR_UNSUP, "input %u is not constant: it is not supported",
                               i);
    *out = weft_weight_tensor(c->cx->m, weft_val_weight(c->cx->m, v));
    return WEFT_ERR_OK;
}

/* Weights of bytes [directions, k, gates] with a scale and a zero point a direction, or one a gate
 * row: the bytes as [directions, gates, k], and a scale and a zero point for each row. */
static weft_err read_recurrent(weft_onnx_call *c, uint32_t at, uint32_t scale_at, weft_val *out,
                               weft_val *out_scale, weft_val *out_zero)
{
    weft_tensor w, s, z;
    WEFT_TRY(read_constant(c, at, &w));
    WEFT_TRY(read_constant(c, scale_at, &s));
    WEFT_TRY(read_constant(c, scale_at + 1, &z));
    if (!w.data || !s.data || w.rank != 3 || weft_dtype_size(w.dtype) != 1 ||
        (z.data && z.dtype != w.dtype))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u or %u is missing or does not fit", at,
                               scale_at);
    int64_t dirs = w.dim[0], k = w.dim[1], gates = w.dim[2], n = weft_tensor_numel(&s);
    int64_t rows = dirs * gates;
    bool by_gate = n == rows && n != dirs;
    if ((n != dirs && !by_gate) || (z.data && weft_tensor_numel(&z) != n))
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input %u has %lld elements", scale_at,
                               (long long)n);
    const uint8_t *from = w.data;
    uint8_t *byte = weft_arena_alloc(c->cx->arena, (size_t)(rows * k) + 1);
    float *scale = weft_arena_array(c->cx->arena, (size_t)rows + 1, sizeof *scale);
    uint8_t *zero = weft_arena_alloc(c->cx->arena, (size_t)rows + 1);
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = by_gate ? r : r / gates;
        scale[r] = (float)weft_tensor_get_f64(&s, i);
        zero[r] = z.data ? ((const uint8_t *)z.data)[i] : 0;
        for (int64_t j = 0; j < k; j++)
            byte[r * k + j] = from[(r / gates * k + j) * gates + r % gates];
    }
    const int64_t dim[3] = {dirs, gates, k};
    *out = weft_onnx__const(c, w.dtype, dim, 3, byte);
    *out_scale = weft_onnx__const(c, WEFT_DTYPE_F32, &rows, 1, scale);
    *out_zero = weft_onnx__const(c, w.dtype, &rows, 1, zero);
    return WEFT_ERR_OK;
}

/* lstm(x, w, r, bias, lengths, h0, c0, peepholes, w_scale, w_zero, r_scale, r_zero): x is quantised
 * by its range, the state before every step by its own, in which a sequence that has ended counts
 * as in onnxruntime (weft_rnn_layer). */
weft_err weft_onnx_hook_dynamic_quantize_lstm(weft_onnx_call *c)
{
    enum { X, W, R, W_SCALE = 8, W_ZERO, R_SCALE, R_ZERO, OPERANDS };
    weft_val in[OPERANDS];
    for (uint32_t i = 0; i < OPERANDS; i++)
        in[i] = operand(c, i);
    if (!in[X].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "input 0 is missing");
    WEFT_TRY(read_recurrent(c, W, W_SCALE, &in[W], &in[W_SCALE], &in[W_ZERO]));
    WEFT_TRY(read_recurrent(c, R, R_SCALE, &in[R], &in[R_SCALE], &in[R_ZERO]));
    bool gives_y = c->wanted[0];
    weft_onnx__put(c, WEFT_ATTR_OF_INT(QUANTIZE_STATE, gives_y ? 2 : 1));
    WEFT_TRY(weft_onnx__map_attrs(c, c->row->op));
    return weft_onnx__emit(c, c->row->op, in, OPERANDS, c->attr, c->n_attr, c->out, c->n_out);
}
