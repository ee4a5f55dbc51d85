/* Copies and conversions of element types.
 *
 * To a float: rounds to nearest even. Float to integer: towards zero, saturating, NaN to 0. Integer
 * to a narrower one: the low bits. To bool: whether it is not zero. To a float of 8 bits or fewer:
 * by the attributes `saturate` and `round_mode`. */
#include "base/narrow.h"
#include "ops/op_int.h"

#include <string.h>

weft_err weft_infer_identity(weft_infer_ctx *cx)
{
    weft_infer__copy(cx, 0, 0);
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_err weft_eval_identity(weft_eval_ctx *cx)
{
    const weft_tensor *in = cx->in[0];
    if (in->dtype != cx->out[0].dtype || weft_tensor_numel(in) != weft_tensor_numel(&cx->out[0]))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result has another size than the operand");
    if (weft_tensor_bytes(in) > 0)
        memcpy(cx->out[0].data, in->data, weft_tensor_bytes(in));
    return WEFT_ERR_OK;
}

static bool find_round_mode(const char *text, weft_e8m0_round *out)
{
    static const char *const name[] = {
        [WEFT_E8M0_UP] = "up", [WEFT_E8M0_DOWN] = "down", [WEFT_E8M0_NEAREST] = "nearest"};
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
        if (strcmp(name[i], text) == 0) {
            *out = (weft_e8m0_round)i;
            return true;
        }
    return false;
}

weft_err weft_infer_cast(weft_infer_ctx *cx)
{
    weft_dtype to = cx->op->id == WEFT_OP_CAST_LIKE
                        ? (weft_dtype)cx->in[1].type.dtype
                        : weft_attrs_dtype(cx->attrs, WEFT_ATTR_TO, WEFT_DTYPE_NONE);
    if (weft_dtype_size(to) == 0)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "unknown element type");
    weft_e8m0_round round;
    const char *mode = weft_attrs_str(cx->attrs, WEFT_ATTR_ROUND_MODE, "up");
    if (!find_round_mode(mode, &round))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "round_mode \"%s\"", mode);
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = (uint8_t)to;
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

/* To a float of 8 bits or fewer. */
static void cast_to_narrow(weft_eval_ctx *cx, const weft_tensor *in, const weft_tensor *out)
{
    bool saturate = weft_attrs_int(cx->attrs, WEFT_ATTR_SATURATE, 1) != 0;
    weft_e8m0_round round = WEFT_E8M0_UP;
    (void)find_round_mode(weft_attrs_str(cx->attrs, WEFT_ATTR_ROUND_MODE, "up"), &round);
    uint8_t *y = out->data;
    double x[WEFT_MAP_BLOCK];
    int64_t n = weft_tensor_numel(in);
    for (int64_t i = 0; i < n; i += WEFT_MAP_BLOCK) {
        int64_t len = n - i < WEFT_MAP_BLOCK ? n - i : WEFT_MAP_BLOCK;
        weft_eval__load_f64(in, i, 1, len, x);
        for (int64_t k = 0; k < len; k++)
            y[i + k] = out->dtype == WEFT_DTYPE_F8E8M0
                           ? weft_e8m0_from_f64(x[k], saturate, round)
                           : weft_narrow_from_f64(out->dtype, x[k], saturate);
    }
}

weft_err weft_eval_cast(weft_eval_ctx *cx)
{
    const weft_tensor *in = cx->in[0], *out = &cx->out[0];
    int64_t n = weft_tensor_numel(in);
    if (n != weft_tensor_numel(out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result has another size than the operand");
    if (in->dtype == out->dtype)
        return weft_eval_identity(cx);
    if (weft_dtype_is_narrow(out->dtype) && weft_dtype_is_float(out->dtype)) {
        cast_to_narrow(cx, in, out);
        return WEFT_ERR_OK;
    }
    weft_arith from = weft_eval__arith(in->dtype), to = weft_eval__arith(out->dtype);
    bool whole = from == WEFT_ARITH_I64 || from == WEFT_ARITH_U64;
    bool to_whole = to == WEFT_ARITH_I64 || to == WEFT_ARITH_U64;
    /* f32 is exact for what it holds and rounds integers once; f64 holds all other floats. */
    bool single = from == WEFT_ARITH_F32 || (whole && to == WEFT_ARITH_F32);
    union {
        float f[WEFT_MAP_BLOCK];
        double d[WEFT_MAP_BLOCK];
        int64_t i[WEFT_MAP_BLOCK];
    } buf;
    for (int64_t i = 0; i < n; i += WEFT_MAP_BLOCK) {
        int64_t len = n - i < WEFT_MAP_BLOCK ? n - i : WEFT_MAP_BLOCK;
        if (whole && to_whole) {
            weft_eval__load_i64(in, i, 1, len, buf.i);
            weft_eval__store_i64(out, i, 1, len, buf.i);
        } else if (single) {
            weft_eval__load_f32(in, i, 1, len, buf.f);
            weft_eval__store_f32(out, i, 1, len, buf.f);
        } else {
            weft_eval__load_f64(in, i, 1, len, buf.d);
            weft_eval__store_f64(out, i, 1, len, buf.d);
        }
    }
    return WEFT_ERR_OK;
}

/* -- bit_cast: the same bits as another type ------------------------------------------------- */

weft_err weft_infer_bit_cast(weft_infer_ctx *cx)
{
    weft_dtype from = (weft_dtype)cx->in[0].type.dtype;
    weft_dtype to = weft_attrs_dtype(cx->attrs, WEFT_ATTR_TO, WEFT_DTYPE_NONE);
    if (weft_dtype_bits(to) == 0 || weft_dtype_bits(from) != weft_dtype_bits(to))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s has %u bits, %s has %u", weft_dtype_name(from),
                         weft_dtype_bits(from), weft_dtype_name(to), weft_dtype_bits(to));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = (uint8_t)to;
    return WEFT_ERR_OK;
}

weft_err weft_eval_bit_cast(weft_eval_ctx *cx)
{
    const weft_tensor *in = cx->in[0], *out = &cx->out[0];
    if (weft_tensor_bytes(in) != weft_tensor_bytes(out))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "the result has another size than the operand");
    size_t n = weft_tensor_bytes(in);
    if (n > 0)
        memcpy(out->data, in->data, n);
    /* Any byte of a bool but 0 is 1. */
    for (size_t i = 0; out->dtype == WEFT_DTYPE_BOOL && i < n; i++)
        ((uint8_t *)out->data)[i] = ((const uint8_t *)in->data)[i] != 0;
    return WEFT_ERR_OK;
}
