/* What qlinear_matmul and qlinear_conv share: the types of their operands, and the way from exact
 * sums of products to the result. */
#include "ops/op_int.h"
#include "ops/quant_int.h"

#include <math.h>

/* -- Inference ------------------------------------------------------------------------------ */

static weft_err check_bias(weft_infer_ctx *cx, weft_dim cols)
{
    if (!weft_infer__has(cx, WEFT_QLINEAR_BIAS))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_BIAS, WEFT_M_F32 | 1u << WEFT_DTYPE_I32));
    WEFT_TRY(weft_infer__rank(cx, WEFT_QLINEAR_BIAS, 1, 1));
    return weft_infer__agree(cx, cx->in[WEFT_QLINEAR_BIAS].type.dim[0], cols,
                             "bias and output channels");
}

weft_err weft_qlinear__infer(weft_infer_ctx *cx, weft_dim cols, weft_ttype *out)
{
    bool has_scale = weft_infer__has(cx, WEFT_QLINEAR_Y_SCALE);
    WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_A, WEFT_M_BYTE));
    WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_A_SCALE, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, WEFT_QLINEAR_A, WEFT_QLINEAR_A_ZERO));
    WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_B, WEFT_M_BYTE));
    WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_B_SCALE, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, WEFT_QLINEAR_B, WEFT_QLINEAR_B_ZERO));
    if (has_scale != weft_infer__has(cx, WEFT_QLINEAR_Y_ZERO))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                         "scale without zero point of the result, or the reverse");
    out->dtype = WEFT_DTYPE_F32;
    if (has_scale) {
        WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_Y_SCALE, WEFT_M_FLOAT));
        WEFT_TRY(weft_infer__dtype(cx, WEFT_QLINEAR_Y_ZERO, WEFT_M_BYTE));
        out->dtype = cx->in[WEFT_QLINEAR_Y_ZERO].type.dtype;
    }
    WEFT_TRY(check_bias(cx, cols));
    if (cx->n_in > WEFT_QLINEAR_OPERANDS && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

/* -- Evaluation ----------------------------------------------------------------------------- */

typedef struct scaling {
    weft_qlinear shape;
    const float *a, *b;
    int64_t n_a, n_b;
    const weft_tensor *bias; /* NULL: none */
    int64_t n_bias;
} scaling;

static weft_err read_scaling(weft_eval_ctx *cx, weft_qlinear shape, scaling *s)
{
    const weft_tensor *y_scale = weft_eval__in(cx, WEFT_QLINEAR_Y_SCALE);
    const weft_tensor *y_zero = weft_eval__in(cx, WEFT_QLINEAR_Y_ZERO);
    *s = (scaling){.shape = shape,
                   .n_a = weft_tensor_numel(cx->in[WEFT_QLINEAR_A_SCALE]),
                   .n_b = weft_tensor_numel(cx->in[WEFT_QLINEAR_B_SCALE]),
                   .bias = weft_eval__in(cx, WEFT_QLINEAR_BIAS)};
    s->n_bias = s->bias != NULL ? weft_tensor_numel(s->bias) : 0;
    bool by_channel = cx->op->id == WEFT_OP_QLINEAR_CONV;
    if (s->n_a < 1 || s->n_b < 1 ||
        (by_channel && (s->n_a != 1 || (s->n_b != 1 && s->n_b != shape.cols))))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "a scale does not fit");
    if (s->bias != NULL && s->n_bias != shape.cols)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the bias does not fit");
    if ((y_scale == NULL) != (y_zero == NULL) ||
        (y_scale != NULL && (weft_tensor_numel(y_scale) != 1 || weft_tensor_numel(y_zero) != 1)))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale or zero point of the result does not fit");
    s->a = weft_eval__f32(cx, cx->in[WEFT_QLINEAR_A_SCALE]);
    s->b = weft_eval__f32(cx, cx->in[WEFT_QLINEAR_B_SCALE]);
    return WEFT_ERR_OK;
}

/* Scale of sum i, and the index of its column. */
static float scale_of(const scaling *s, int64_t i, int64_t *out_col)
{
    int64_t row = i / s->shape.inner / s->shape.cols, col = i / s->shape.inner % s->shape.cols;
    int64_t stack = row / s->shape.rows;
    *out_col = col;
    return s->a[weft_qlinear__pick(s->n_a, s->shape.rows, stack, row % s->shape.rows)] *
           s->b[weft_qlinear__pick(s->n_b, s->shape.cols, stack, col)];
}

/* Sums straight to bytes, in f32 as inference engines do: the rounding of the scaled sum decides
 * ties. */
static void requantize(const scaling *s, const int64_t *acc, const int64_t *bias, float y_scale,
                       int64_t zero, const weft_tensor *out)
{
    int64_t n = weft_tensor_numel(out), col;
    for (int64_t i = 0; i < n; i++) {
        float scale = scale_of(s, i, &col) / y_scale;
        int64_t sum = acc[i] + (bias != NULL ? bias[col] : 0);
        double y = (double)rintf((float)sum * scale) + (double)zero;
        weft_tensor_set_i64(out, i, weft_quantize__saturate(out->dtype, y));
    }
}

weft_err weft_qlinear__finish(weft_eval_ctx *cx, const int64_t *acc, weft_qlinear shape)
{
    const weft_tensor *out = &cx->out[0], *y_scale = weft_eval__in(cx, WEFT_QLINEAR_Y_SCALE);
    int64_t n = weft_tensor_numel(out), col;
    bool steps = weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) != NULL;
    scaling s;
    if (n == 0)
        return WEFT_ERR_OK;
    WEFT_TRY(read_scaling(cx, shape, &s));
    bool whole_bias = s.bias != NULL && s.bias->dtype == WEFT_DTYPE_I32;
    const int64_t *whole = whole_bias ? weft_eval__i64(cx, s.bias) : NULL;
    const float *real = s.bias != NULL && !whole_bias ? weft_eval__f32(cx, s.bias) : NULL;
    float scale = y_scale != NULL ? (float)weft_tensor_get_f64(y_scale, 0) : 1;
    int64_t zero = y_scale != NULL ? weft_tensor_get_i64(cx->in[WEFT_QLINEAR_Y_ZERO], 0) : 0;
    if (y_scale != NULL && real == NULL && !steps) {
        requantize(&s, acc, whole, scale, zero, out);
        return WEFT_ERR_OK;
    }
    weft_tensor value = *out;
    value.dtype = WEFT_DTYPE_F32;
    if (out->dtype != WEFT_DTYPE_F32)
        value.data = weft_arena_array(cx->scratch, (size_t)n, sizeof(float));
    float *y = value.data;
    for (int64_t i = 0; i < n; i++) {
        float by = scale_of(&s, i, &col);
        y[i] = (float)(acc[i] + (whole != NULL ? whole[col] : 0)) * by +
               (real != NULL ? real[col] : 0);
    }
    if (steps)
        WEFT_TRY(weft_steps__eval(cx, WEFT_ATTR_EPILOGUE, &value, &value));
    for (int64_t i = 0; y_scale != NULL && i < n; i++)
        weft_tensor_set_i64(
            out, i,
            weft_quantize__saturate(out->dtype, (double)rintf(y[i] / scale) + (double)zero));
    return WEFT_ERR_OK;
}
