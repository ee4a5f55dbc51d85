/* Hooks of onnx_ops_ml.def: operators of classic machine learning that are expanded into others.
 * Operands of any number type are computed in f32, as the operators' results are. */
#include "frontend/onnx_int.h"

/* x as f32. */
static weft_err to_f32(weft_onnx_call *c, weft_val x, weft_val *out)
{
    *out = x;
    if (weft_onnx__type(c, x)->dtype == WEFT_DTYPE_F32)
        return WEFT_ERR_OK;
    weft_attr to = WEFT_ATTR_OF_DTYPE(TO, WEFT_DTYPE_F32);
    return weft_onnx__emit(c, WEFT_OP_CAST, &x, 1, &to, 1, out, 1);
}

/* The only operand as f32. */
static weft_err only_operand(weft_onnx_call *c, weft_val *out)
{
    if (c->n_in != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected 1", c->n_in);
    return to_f32(c, c->in[0], out);
}

/* scaler(x) ==> (x - offset) * scale, one number or one of each feature */
weft_err weft_onnx_hook_ml_scaler(weft_onnx_call *c)
{
    static const struct {
        const char *name;
        weft_op_id op;
    } part[2] = {{"offset", WEFT_OP_SUB}, {"scale", WEFT_OP_MUL}};
    weft_val v[2];
    WEFT_TRY(only_operand(c, &v[0]));
    const weft_ttype *x = weft_onnx__type(c, v[0]);
    for (int i = 0; i < 2; i++) {
        const float *f;
        uint32_t n;
        WEFT_TRY(weft_onnx__get_floats(c, part[i].name, &f, &n));
        bool fits = n == 1 || (x->rank > 0 && x->dim[x->rank - 1] == (weft_dim)n);
        if (!fits || n == 0)
            return weft_onnx__fail(c, WEFT_ERR_INPUT,
                                   "attribute \"%s\" has %u numbers, expected 1 or one a feature",
                                   part[i].name, n);
        v[1] = weft_onnx__const(c, WEFT_DTYPE_F32, &(int64_t){n}, n > 1, f);
        WEFT_TRY(weft_onnx__emit(c, part[i].op, v, 2, NULL, 0, &v[0], 1));
    }
    c->out[0] = v[0];
    return weft_onnx__map_attrs(c, WEFT_OP_SUB);
}
