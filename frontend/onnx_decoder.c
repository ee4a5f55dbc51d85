/* Hooks of layers of language models that are expanded: gated activations, the causal convolution
 * of state-space models. */
#include "frontend/onnx_build.h"

#include <string.h>

/* x * sigmoid(alpha * x) */
static weft_val swish(weft_onnx_build *b, weft_val x, double alpha)
{
    if (alpha == 1)
        return weft_onnx__make1(b, WEFT_OP_SILU, x);
    weft_val scale = weft_onnx__scalar(b, (weft_dtype)weft_onnx__of(b, x)->dtype, alpha);
    weft_val gate = weft_onnx__make2(b, WEFT_OP_MUL, x, scale);
    return weft_onnx__make2(b, WEFT_OP_MUL, x, weft_onnx__make1(b, WEFT_OP_SIGMOID, gate));
}

/* Swish(x), SwiGLU(a, b) ==> swish(x), swish(a) * b */
weft_err weft_onnx_hook_swish(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    bool gated = strcmp(c->op_type, "SwiGLU") == 0;
    double alpha;
    WEFT_TRY(weft_onnx__get_float(c, "alpha", 1, &alpha));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    if (c->n_in != (gated ? 2 : 1) || c->n_out != 1 || !c->in[0].i)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs, expected %d", c->n_in, gated ? 2 : 1);
    const weft_ttype *x = weft_onnx__type(c, c->in[0]),
                     *y = gated ? weft_onnx__type(c, c->in[1]) : x;
    for (uint32_t i = 0; i < x->rank; i++)
        if (y->rank != x->rank || (weft_dim_is_const(x->dim[i]) && weft_dim_is_const(y->dim[i]) &&
                                   x->dim[i] != y->dim[i]))
            return weft_onnx__fail(c, WEFT_ERR_INPUT, "inputs of different shapes");
    c->out[0] = swish(&b, c->in[0], alpha);
    if (gated)
        c->out[0] = weft_onnx__make2(&b, WEFT_OP_MUL, c->out[0], c->in[1]);
    return b.err;
}

enum { INPUT, WEIGHT, BIAS, STATE };

/* The state, or zeros of its shape. */
static weft_val make_state(weft_onnx_build *b, const weft_val *in, weft_dim length)
{
    if (in[STATE].i)
        return in[STATE];
    const weft_ttype *x = weft_onnx__of(b, in[INPUT]);
    const weft_dim dim[3] = {x->dim[0], x->dim[1], length};
    const weft_attr shape = WEFT_ATTR_OF_DIMS(SHAPE, dim, 3);
    weft_val zero = weft_onnx__scalar(b, (weft_dtype)x->dtype, 0);
    return weft_onnx__make(b, WEFT_OP_EXPAND, &zero, 1, &shape, 1);
}

/* CausalConvWithState ==> conv(concat(state, x)), one filter a channel, and the last k - 1 columns
 */
weft_err weft_onnx_hook_causal_conv(weft_onnx_call *c)
{
    weft_onnx_build b = {.c = c};
    const char *activation;
    weft_val in[4] = {{0}};
    WEFT_TRY(weft_onnx__get_str(c, "activation", "none", &activation));
    WEFT_TRY(weft_onnx__map_attrs(c, WEFT_OP_IDENTITY));
    bool gated = strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0;
    if (!gated && strcmp(activation, "none") != 0)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "activation \"%s\"", activation);
    if (c->n_in < 2 || c->n_in > 4 || c->n_out > 2)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "%u inputs and %u outputs, expected 2 to 4 and 2",
                               c->n_in, c->n_out);
    memcpy(in, c->in, c->n_in * sizeof *in);
    const weft_ttype *x = weft_onnx__of(&b, in[INPUT]), *w = weft_onnx__of(&b, in[WEIGHT]);
    if (x->rank != 3 || w->rank != 3 || !weft_dim_is_const(w->dim[0]) ||
        !weft_dim_is_const(w->dim[2]) || w->dim[2] < 1 || w->dim[1] != 1)
        return weft_onnx__fail(c, WEFT_ERR_INPUT, "ranks %u and %u, or filters of unknown size",
                               x->rank, w->rank);
    int64_t channels = w->dim[0], before = w->dim[2] - 1;
    weft_dim length = x->dim[2];
    const weft_val parts[2] = {make_state(&b, in, before), in[INPUT]};
    weft_val all = weft_onnx__concat(&b, parts, 2, 2);
    const weft_val conv[3] = {all, in[WEIGHT], in[BIAS]};
    const weft_attr group = WEFT_ATTR_OF_INT(GROUP, channels);
    c->out[0] = weft_onnx__make(&b, WEFT_OP_CONV, conv, 3, &group, 1);
    if (gated)
        c->out[0] = swish(&b, c->out[0], 1);
    if (c->n_out > 1)
        c->out[1] = weft_onnx__slice(&b, all, 2, length, weft_onnx__plus(&b, length, before));
    return b.err;
}

/* chunk_size only steers how implementations split the work. */
weft_err weft_onnx_hook_linear_attention(weft_onnx_call *c)
{
    weft_onnx__ignore(c, "chunk_size");
    return weft_onnx_hook_plain(c);
}
