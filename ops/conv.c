/* Convolution and its transpose: inference and work. The loops are in conv_eval.c. */
#include "ops/quant_int.h"
#include "ops/window_int.h"

#include <string.h>

/* -- Convolution ---------------------------------------------------------------------------- */

/* Constant spatial sizes of a weight [m, c, k...]. */
static weft_err kernel_of(weft_infer_ctx *cx, const weft_ttype *w, int64_t *out)
{
    for (uint32_t i = 2; i < w->rank; i++) {
        if (!weft_dim_is_const(w->dim[i]))
            return WEFT_FAIL(cx, WEFT_ERR_UNSUP,
                             "weight with the symbolic dimension %s" WEFT_REMEDY,
                             weft_infer__text(cx, w->dim[i]));
        out[i - 2] = w->dim[i];
    }
    return WEFT_ERR_OK;
}

/* The type of weights as [m, c, k...]; with `trans_w` they are [m, k..., c]. */
static weft_ttype weights_of(const weft_infer_ctx *cx, uint32_t iw)
{
    weft_ttype w = cx->in[iw].type;
    if (weft_attrs_int(cx->attrs, WEFT_ATTR_TRANS_W, 0) != 0) {
        memcpy(w.dim + 2, cx->in[iw].type.dim + 1, (w.rank - 2u) * sizeof w.dim[0]);
        w.dim[1] = cx->in[iw].type.dim[w.rank - 1];
    }
    return w;
}

static weft_err infer_conv_dims(weft_infer_ctx *cx, uint32_t iw, weft_ttype *out)
{
    const weft_ttype *x = &cx->in[0].type;
    WEFT_TRY(weft_infer__rank(cx, 0, 3, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, iw, x->rank, x->rank));
    const weft_ttype like = weights_of(cx, iw), *w = &like;
    int64_t kernel[WEFT_RANK_MAX];
    weft_window win;
    WEFT_TRY(kernel_of(cx, w, kernel));
    const char *wrong = weft_window__read(cx->attrs, x->rank - 2u, kernel, &win);
    if (wrong != NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    int64_t group = weft_attrs_int(cx->attrs, WEFT_ATTR_GROUP, 1);
    if (group < 1 || group > INT32_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld groups", (long long)group);
    if (weft_dim_is_const(x->dim[1]) && weft_dim_is_const(w->dim[1]) &&
        (w->dim[1] > INT32_MAX || x->dim[1] != w->dim[1] * group))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT,
                         "weight has %lld input channels in %lld groups, the input has %lld",
                         (long long)w->dim[1], (long long)group, (long long)x->dim[1]);
    if (weft_dim_is_const(w->dim[0]) && w->dim[0] % group != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld output channels in %lld groups",
                         (long long)w->dim[0], (long long)group);
    out->rank = x->rank;
    out->dim[0] = x->dim[0];
    out->dim[1] = w->dim[0];
    return weft_window__sizes(cx, &win, x, out);
}

static weft_err check_bias(weft_infer_ctx *cx, uint32_t in, weft_dim channels)
{
    if (!weft_infer__has(cx, in))
        return WEFT_ERR_OK;
    WEFT_TRY(weft_infer__rank(cx, in, 1, 1));
    return weft_infer__agree(cx, cx->in[in].type.dim[0], channels, "bias and output channels");
}

weft_err weft_infer_conv(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(infer_conv_dims(cx, 1, out));
    WEFT_TRY(check_bias(cx, 2, out->dim[1]));
    if (cx->n_in > 3 && weft_attrs_find(cx->attrs, WEFT_ATTR_EPILOGUE) == NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u operands without an epilogue", cx->n_in);
    return weft_steps__infer(cx, WEFT_ATTR_EPILOGUE, true, out);
}

/* Two offsets for each tap of the filter at each place, and a factor in the mask. */
weft_err weft_infer_deform_conv(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    int64_t groups = weft_attrs_int(cx->attrs, WEFT_ATTR_OFFSET_GROUP, 1);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__rank(cx, 0, 4, 4));
    WEFT_TRY(infer_conv_dims(cx, 1, out));
    WEFT_TRY(check_bias(cx, 3, out->dim[1]));
    const weft_ttype *w = &cx->in[1].type;
    if (groups < 1 || groups > INT16_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld groups of offsets", (long long)groups);
    weft_dim taps = weft_dim_mul(cx->pool, weft_dim_mul(cx->pool, w->dim[2], w->dim[3]), groups);
    for (uint32_t i = 2; i < 5; i += 2) {
        if (!weft_infer__has(cx, i))
            continue;
        const weft_ttype *t = &cx->in[i].type;
        WEFT_TRY(weft_infer__rank(cx, i, 4, 4));
        WEFT_TRY(weft_infer__agree(cx, t->dim[0], out->dim[0], "images of the offsets"));
        WEFT_TRY(weft_infer__agree(cx, t->dim[1], weft_dim_mul(cx->pool, taps, i == 2 ? 2 : 1),
                                   "offsets and filter"));
        for (uint32_t d = 2; d < 4; d++)
            WEFT_TRY(weft_infer__agree(cx, t->dim[d], out->dim[d], "offsets and result"));
    }
    for (uint32_t i = 1; i < 5; i++)
        if (weft_infer__has(cx, i))
            WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
    return WEFT_ERR_OK;
}

weft_err weft_infer_conv_integer(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_I32, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_BYTE));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_BYTE));
    return infer_conv_dims(cx, 1, out);
}

weft_err weft_infer_qlinear_conv(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_NONE, 0);
    WEFT_TRY(infer_conv_dims(cx, 3, out));
    return weft_qlinear__infer(cx, out->dim[1], out);
}

static weft_work conv_work(const weft_work_ctx *cx, const weft_work_operand *w, double extra)
{
    double per = 2;
    for (uint32_t i = 1; i < w->rank; i++)
        per *= (double)w->dim[i];
    return weft_work__bytes(cx, (per + extra) * weft_work__numel(&cx->out[0]));
}

weft_work weft_work_conv(const weft_work_ctx *cx)
{
    double extra = weft_steps__flops(cx->attrs, WEFT_ATTR_EPILOGUE);
    if (cx->n_in > 2 && cx->in[2].present)
        extra += 1;
    return conv_work(cx, &cx->in[1], extra);
}

weft_work weft_work_qlinear_conv(const weft_work_ctx *cx)
{
    return conv_work(cx, &cx->in[3], 3 + weft_steps__flops(cx->attrs, WEFT_ATTR_EPILOGUE));
}

/* -- Transposed convolution ----------------------------------------------------------------- */

/* Adds `output_padding`, which is not part of the window. */
static weft_err read_output_padding(weft_infer_ctx *cx, uint32_t n, int64_t *out)
{
    uint32_t len;
    const int64_t *list = weft_attrs_ints(cx->attrs, WEFT_ATTR_OUTPUT_PADDING, &len);
    for (uint32_t i = 0; i < n; i++) {
        if (list != NULL && (len != n || list[i] < 0 || list[i] > INT32_MAX))
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`output_padding` does not fit");
        out[i] = list != NULL ? list[i] : 0;
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_conv_transpose(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type, *w = &cx->in[1].type;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    WEFT_TRY(weft_infer__rank(cx, 0, 3, WEFT_RANK_MAX));
    WEFT_TRY(weft_infer__rank(cx, 1, x->rank, x->rank));
    int64_t kernel[WEFT_RANK_MAX], extra[WEFT_RANK_MAX];
    weft_window win;
    WEFT_TRY(kernel_of(cx, w, kernel));
    const char *wrong = weft_window__read(cx->attrs, x->rank - 2u, kernel, &win);
    if (wrong != NULL)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%s", wrong);
    WEFT_TRY(read_output_padding(cx, win.n, extra));
    WEFT_TRY(weft_infer__agree(cx, x->dim[1], w->dim[0], "channels of input and weight"));
    int64_t group = weft_attrs_int(cx->attrs, WEFT_ATTR_GROUP, 1);
    if (group < 1 || group > INT32_MAX || (weft_dim_is_const(x->dim[1]) && x->dim[1] % group != 0))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld groups of %s channels", (long long)group,
                         weft_infer__text(cx, x->dim[1]));
    uint32_t n_shape;
    const int64_t *shape = weft_attrs_ints(cx->attrs, WEFT_ATTR_OUTPUT_SHAPE, &n_shape);
    if (shape != NULL && n_shape != win.n)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "`output_shape` does not fit");
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)x->dtype, x->rank);
    out->dim[0] = x->dim[0];
    out->dim[1] = weft_dim_mul(cx->pool, w->dim[1], group);
    for (uint32_t i = 0; i < win.n; i++) {
        weft_dim in = x->dim[2 + i];
        int64_t reach = (win.kernel[i] - 1) * win.dilation[i] + 1;
        int64_t whole = reach + extra[i] - win.stride[i];
        weft_dim grown = weft_dim_mul(cx->pool, in, win.stride[i]);
        if (shape != NULL)
            out->dim[2 + i] = shape[i];
        else if (win.auto_pad >= WEFT_PAD_SAME_UPPER)
            /* No padding makes a result larger, as in onnxruntime. */
            out->dim[2 + i] = weft_dim_add(cx->pool, grown, whole < 0 ? whole : 0);
        else
            out->dim[2 + i] = weft_dim_add(cx->pool, grown, whole - win.pad_lo[i] - win.pad_hi[i]);
    }
    return check_bias(cx, 2, out->dim[1]);
}

weft_work weft_work_conv_transpose(const weft_work_ctx *cx)
{
    double per = 2;
    const weft_work_operand *w = &cx->in[1];
    for (uint32_t i = 1; i < w->rank; i++)
        per *= (double)w->dim[i];
    return weft_work__bytes(cx, per * weft_work__numel(&cx->in[0]));
}
