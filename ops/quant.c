/* Linear quantisation: per tensor, per axis, or per block of an axis. Rounds half to even. */
#include "base/f16.h"
#include "base/narrow.h"
#include "ops/op_int.h"
#include "ops/quant_int.h"

#include <math.h>
#include <string.h>

int64_t weft_quantize__saturate(weft_dtype dtype, double x)
{
    static const struct {
        double lo, hi;
    } range[WEFT_DTYPE_COUNT] = {
        [WEFT_DTYPE_I8] = {-128, 127},      [WEFT_DTYPE_U8] = {0, 255},
        [WEFT_DTYPE_I16] = {-32768, 32767}, [WEFT_DTYPE_U16] = {0, 65535},
        [WEFT_DTYPE_I4] = {-8, 7},          [WEFT_DTYPE_U4] = {0, 15},
        [WEFT_DTYPE_I2] = {-2, 1},          [WEFT_DTYPE_U2] = {0, 3},
    };
    double lo = range[dtype].lo, hi = range[dtype].hi;
    if (hi == 0) {
        lo = INT32_MIN;
        hi = INT32_MAX;
    }
    return x != x || x < lo ? (int64_t)lo : x > hi ? (int64_t)hi : (int64_t)x;
}

/* -- Inference ------------------------------------------------------------------------------ */

/* Scale: a scalar, one element, a vector along `axis`, or blocks of it. */
static weft_err check_scale(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *s = &cx->in[1].type;
    int64_t block = weft_attrs_int(cx->attrs, WEFT_ATTR_BLOCK_SIZE, 0);
    uint32_t axis = 0;
    if (block < 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "blocks of %lld", (long long)block);
    if (block > 0 && s->rank != x->rank)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "blocks: scale has rank %u, the operand %u", s->rank,
                         x->rank);
    if (block == 0 && s->rank > 1)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale has rank %u", s->rank);
    if (weft_infer__has(cx, 2)) {
        weft_dim scales = weft_ttype_numel(cx->pool, s);
        weft_dim zeros = weft_ttype_numel(cx->pool, &cx->in[2].type);
        WEFT_TRY(weft_infer__agree(cx, scales, zeros, "scale and zero point"));
    }
    if (s->rank == 0 || (block == 0 && s->dim[0] == 1))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 1), x->rank, &axis));
    if (block == 0)
        return weft_infer__agree(cx, s->dim[0], x->dim[axis], "scale and axis");
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis)
            WEFT_TRY(weft_infer__agree(cx, s->dim[i], x->dim[i], "scale and operand"));
    return WEFT_ERR_OK;
}

weft_err weft_infer_quantize(weft_infer_ctx *cx)
{
    enum { PRECISIONS = WEFT_M_FLOAT & ~(1u << WEFT_DTYPE_F64) };
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT | 1u << WEFT_DTYPE_I32));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_FLOAT | 1u << WEFT_DTYPE_I32 | WEFT_M_SCALE_ONLY));
    weft_dtype precision = weft_attrs_dtype(cx->attrs, WEFT_ATTR_PRECISION, WEFT_DTYPE_NONE);
    if (precision != WEFT_DTYPE_NONE && !((unsigned)PRECISIONS >> precision & 1))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "precision of %s", weft_dtype_name(precision));
    WEFT_TRY(check_scale(cx));
    weft_dtype to = weft_attrs_dtype(cx->attrs, WEFT_ATTR_OUTPUT_DTYPE, WEFT_DTYPE_NONE);
    if (weft_infer__has(cx, 2)) {
        weft_dtype zero = (weft_dtype)cx->in[2].type.dtype;
        if (to != WEFT_DTYPE_NONE && to != zero)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "zero point is %s, `output_dtype` %s",
                             weft_dtype_name(zero), weft_dtype_name(to));
        to = zero;
    }
    if (to == WEFT_DTYPE_NONE)
        to = WEFT_DTYPE_U8;
    if (!((unsigned)WEFT_M_QUANTISED >> to & 1))
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "result of %s", weft_dtype_name(to));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = (uint8_t)to;
    return WEFT_ERR_OK;
}

weft_err weft_infer_dequantize(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_QUANTISED | 1u << WEFT_DTYPE_I32));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_FLOAT | WEFT_M_SCALE_ONLY));
    if (weft_infer__has(cx, 2))
        WEFT_TRY(weft_infer__same_dtype(cx, 0, 2));
    WEFT_TRY(check_scale(cx));
    weft_dtype to =
        weft_attrs_dtype(cx->attrs, WEFT_ATTR_OUTPUT_DTYPE, (weft_dtype)cx->in[1].type.dtype);
    if (!((unsigned)WEFT_M_FLOAT >> to & 1))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "result of %s: `output_dtype` must name a float",
                         weft_dtype_name(to));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = (uint8_t)to;
    return WEFT_ERR_OK;
}

weft_err weft_infer_dynamic_quantize(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_F32));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = WEFT_DTYPE_U8;
    (void)weft_infer__out(cx, 1, WEFT_DTYPE_F32, 0);
    (void)weft_infer__out(cx, 2, WEFT_DTYPE_U8, 0);
    return WEFT_ERR_OK;
}

/* Three operations per element: minimum, maximum, scale. */
weft_work weft_work_dynamic_quantize(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 3 * weft_work__numel(&cx->in[0]));
}

/* -- Evaluation ----------------------------------------------------------------------------- */

/* How an element of the operand maps to its scale; see scale_index. */
typedef struct scales {
    int64_t n;                  /* elements of the scale */
    int64_t len, inner, blocks; /* axis, elements after it, scales along it */
    int64_t block;
    bool blocked;
} scales;

static weft_err find_scales(weft_eval_ctx *cx, scales *s)
{
    const weft_tensor *x = cx->in[0], *scale = cx->in[1], *zero = weft_eval__in(cx, 2);
    memset(s, 0, sizeof *s);
    s->n = weft_tensor_numel(scale);
    s->block = weft_attrs_int(cx->attrs, WEFT_ATTR_BLOCK_SIZE, 0);
    s->blocked = s->block > 0;
    s->len = s->inner = s->blocks = 1;
    if (zero != NULL && weft_tensor_numel(zero) != s->n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale and zero point differ in size");
    if (s->n == 1)
        return WEFT_ERR_OK;
    uint32_t axis;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, 1), x->rank, &axis));
    s->len = x->dim[axis];
    s->inner = weft_dims__product(x->dim, (int32_t)axis + 1, x->rank);
    int64_t outer = weft_dims__product(x->dim, 0, (int32_t)axis);
    if (s->blocked)
        s->blocks = scale->rank == x->rank ? scale->dim[axis] : 0;
    if (s->blocked ? s->blocks < 1 || (s->len + s->block - 1) / s->block != s->blocks ||
                         s->n != outer * s->blocks * s->inner
                   : s->n != s->len)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the scale does not fit");
    return WEFT_ERR_OK;
}

static int64_t scale_index(const scales *s, int64_t i)
{
    if (s->n == 1)
        return 0;
    int64_t along = i / s->inner % s->len;
    if (!s->blocked)
        return along;
    return (i / (s->inner * s->len) * s->blocks + along / s->block) * s->inner + i % s->inner;
}

/* A number as `dtype` holds it. */
static float round_to(weft_dtype dtype, float x)
{
    return dtype == WEFT_DTYPE_F16    ? weft_f16_to_f32(weft_f16_from_f32(x))
           : dtype == WEFT_DTYPE_BF16 ? weft_bf16_to_f32(weft_bf16_from_f32(x))
                                      : x;
}

/* To floats of 8 bits and fewer; like ONNX's reference and onnxruntime, a zero point only counts
 * for those of fewer. */
static void quantize_to_float(weft_eval_ctx *cx, const scales *s, const float *scale, int64_t at,
                              int64_t len, const float *x)
{
    const weft_tensor *zero = weft_eval__in(cx, 2), *out = &cx->out[0];
    bool saturate = weft_attrs_int(cx->attrs, WEFT_ATTR_SATURATE, 1) != 0;
    bool shifts = zero != NULL && weft_dtype_bits(out->dtype) < 8;
    weft_dtype precision = weft_attrs_dtype(cx->attrs, WEFT_ATTR_PRECISION, WEFT_DTYPE_F32);
    for (int64_t i = 0; i < len; i++) {
        int64_t k = scale_index(s, at + i);
        float y = round_to(precision, x[i] / scale[k]);
        if (shifts)
            y += (float)weft_tensor_get_f64(zero, k);
        ((uint8_t *)out->data)[at + i] = weft_narrow_from_f64(out->dtype, (double)y, saturate);
    }
}

/* In f32, as ONNX defines the operator: the rounding of the quotient decides ties. With
 * `zero_first` the zero point is added before rounding, as in com.microsoft's QLinearAdd and
 * QLinearMul. */
weft_err weft_eval_quantize(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *zero = weft_eval__in(cx, 2), *out = &cx->out[0];
    weft_dtype precision = weft_attrs_dtype(cx->attrs, WEFT_ATTR_PRECISION, WEFT_DTYPE_F32);
    scales s;
    WEFT_TRY(find_scales(cx, &s));
    const float *scale = weft_eval__f32(cx, cx->in[1]);
    bool to_float = weft_dtype_is_float(out->dtype);
    const int64_t *z = zero != NULL && !to_float ? weft_eval__i64(cx, zero) : NULL;
    bool early = weft_attrs_int(cx->attrs, WEFT_ATTR_ZERO_FIRST, 0) != 0;
    float buf[WEFT_MAP_BLOCK];
    int64_t y[WEFT_MAP_BLOCK], n = weft_tensor_numel(x);
    for (int64_t at = 0; at < n; at += WEFT_MAP_BLOCK) {
        int64_t len = n - at < WEFT_MAP_BLOCK ? n - at : WEFT_MAP_BLOCK;
        weft_eval__load_f32(x, at, 1, len, buf);
        if (to_float) {
            quantize_to_float(cx, &s, scale, at, len, buf);
            continue;
        }
        for (int64_t i = 0; i < len; i++) {
            int64_t k = scale_index(&s, at + i);
            double shift = z != NULL ? (double)z[k] : 0;
            float quotient = round_to(precision, buf[i] / scale[k]);
            y[i] =
                weft_quantize__saturate(out->dtype, early ? (double)rintf(quotient + (float)shift)
                                                          : (double)rintf(quotient) + shift);
        }
        weft_eval__store_i64(out, at, 1, len, y);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_dequantize(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *zero = weft_eval__in(cx, 2), *out = &cx->out[0];
    scales s;
    WEFT_TRY(find_scales(cx, &s));
    const double *scale = weft_eval__f64(cx, cx->in[1]);
    const double *z = zero != NULL ? weft_eval__f64(cx, zero) : NULL;
    int64_t n = weft_tensor_numel(x);
    double buf[WEFT_MAP_BLOCK], y[WEFT_MAP_BLOCK];
    for (int64_t at = 0; at < n; at += WEFT_MAP_BLOCK) {
        int64_t len = n - at < WEFT_MAP_BLOCK ? n - at : WEFT_MAP_BLOCK;
        weft_eval__load_f64(x, at, 1, len, buf);
        for (int64_t i = 0; i < len; i++) {
            int64_t k = scale_index(&s, at + i);
            y[i] = (buf[i] - (z != NULL ? z[k] : 0)) * scale[k];
        }
        weft_eval__store_f64(out, at, 1, len, y);
    }
    return WEFT_ERR_OK;
}

void weft_quantize_by_range(float lo, float hi, float *out_scale, float *out_zero)
{
    *out_scale = hi > lo ? (hi - lo) / 255.0f : 1;
    *out_zero = fmaxf(fminf(rintf(-lo / *out_scale), 255), 0);
}

/* Of n elements; NaN has no place in the range. */
static void find_range(const float *x, int64_t n, float *out_scale, float *out_zero)
{
    float lo = 0, hi = 0;
    for (int64_t i = 0; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    weft_quantize_by_range(lo, hi, out_scale, out_zero);
}

static uint8_t to_u8(float x, float scale, float zero)
{
    return (uint8_t)weft_quantize__saturate(WEFT_DTYPE_U8, (double)rintf(x / scale) + (double)zero);
}

void weft_quantize__by_range(float *y, const float *x, int64_t n)
{
    float scale, zero;
    find_range(x, n, &scale, &zero);
    for (int64_t i = 0; i < n; i++)
        y[i] = ((float)to_u8(x[i], scale, zero) - zero) * scale;
}

weft_err weft_eval_dynamic_quantize(weft_eval_ctx *cx)
{
    const weft_tensor *out = weft_eval__out(cx, 0), *scale_out = weft_eval__out(cx, 1);
    const weft_tensor *zero_out = weft_eval__out(cx, 2);
    const float *x = weft_eval__f32(cx, cx->in[0]);
    int64_t n = weft_tensor_numel(cx->in[0]);
    float scale, zero;
    find_range(x, n, &scale, &zero);
    for (int64_t i = 0; out != NULL && i < n; i++)
        ((uint8_t *)out->data)[i] = to_u8(x[i], scale, zero);
    if (scale_out != NULL)
        weft_tensor_set_f64(scale_out, 0, (double)scale);
    if (zero_out != NULL)
        weft_tensor_set_f64(zero_out, 0, (double)zero);
    return WEFT_ERR_OK;
}
