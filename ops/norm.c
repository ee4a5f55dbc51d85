/* Normalisations and softmax: mean and variance over a set of elements, computed in f64.
 *
 * Most are one shape of loop: lanes of `len` elements, each `step` apart. */
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- Inference and work --------------------------------------------------------------------- */

weft_err weft_infer_float_same(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    if (cx->op->id == WEFT_OP_LRN) {
        int64_t size = weft_attrs_int(cx->attrs, WEFT_ATTR_SIZE, 1);
        WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
        if (size < 1 || size > INT32_MAX)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "window of %lld channels", (long long)size);
    }
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_err weft_infer_axis_same(weft_infer_ctx *cx)
{
    uint32_t axis;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    weft_infer__copy(cx, 0, 0);
    if (cx->in[0].type.rank == 0)
        return WEFT_ERR_OK;
    return weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), cx->in[0].type.rank,
                            &axis);
}

static weft_err check_channels(weft_infer_ctx *cx, uint32_t first, uint32_t last)
{
    const weft_ttype *x = &cx->in[0].type;
    for (uint32_t i = first; i <= last; i++) {
        WEFT_TRY(weft_infer__rank(cx, i, 1, 1));
        WEFT_TRY(
            weft_infer__agree(cx, cx->in[i].type.dim[0], x->rank > 1 ? x->dim[1] : 1, "channels"));
    }
    return WEFT_ERR_OK;
}

weft_err weft_infer_batch_norm(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(check_channels(cx, 1, 4));
    weft_infer__copy(cx, 0, 0);
    bool training = weft_attrs_int(cx->attrs, WEFT_ATTR_TRAINING_MODE, 0) != 0;
    if (cx->n_out > 1 && !training)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%u results without `training_mode`", cx->n_out);
    for (uint32_t i = 1; i < cx->n_out; i++)
        weft_infer__copy(cx, i, i + 2);
    return WEFT_ERR_OK;
}

weft_err weft_infer_instance_norm(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    WEFT_TRY(check_channels(cx, 1, 2));
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

/* Scale and bias have an element per channel (opset 21) or per group (opset 18). */
weft_err weft_infer_group_norm(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    int64_t groups = weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_GROUPS, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__rank(cx, 0, 2, WEFT_RANK_MAX));
    if (groups < 1 || (weft_dim_is_const(x->dim[1]) && x->dim[1] % groups != 0))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "%lld groups of %s channels", (long long)groups,
                         weft_infer__text(cx, x->dim[1]));
    for (uint32_t i = 1; i < 3; i++) {
        WEFT_TRY(weft_infer__rank(cx, i, 1, 1));
        if (cx->in[i].type.dim[0] != groups)
            WEFT_TRY(weft_infer__agree(cx, cx->in[i].type.dim[0], x->dim[1], "channels"));
    }
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

weft_err weft_infer_layer_norm(weft_infer_ctx *cx)
{
    const weft_ttype *x = &cx->in[0].type;
    uint32_t axis;
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    WEFT_TRY(weft_infer__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis));
    for (uint32_t i = 1; i < 3; i++) {
        if (!weft_infer__has(cx, i))
            continue;
        weft_ttype part = {.rank = (uint8_t)(x->rank - axis)}, wide;
        memcpy(part.dim, x->dim + axis, part.rank * sizeof *part.dim);
        WEFT_TRY(weft_infer__broadcast(cx, &part, &cx->in[i].type, &wide));
        if (wide.rank != part.rank)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u has rank %u, %u dims are normalised",
                             i, cx->in[i].type.rank, part.rank);
        for (uint32_t k = 0; k < part.rank; k++)
            WEFT_TRY(weft_infer__agree(cx, wide.dim[k], part.dim[k], "scale and input"));
    }
    weft_infer__copy(cx, 0, 0);
    if (cx->op->id == WEFT_OP_RMS_NORM) {
        WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_FLOAT));
        cx->out[0].dtype = cx->in[1].type.dtype;
    }
    for (uint32_t i = 1; i < cx->n_out; i++) {
        weft_ttype *out = weft_infer__out(cx, i, WEFT_DTYPE_F32, x->rank);
        for (uint32_t k = 0; k < x->rank; k++)
            out->dim[k] = k < axis ? x->dim[k] : 1;
    }
    return WEFT_ERR_OK;
}

/* About eight operations per element: sum, square, shift, scale. */
weft_work weft_work_norm(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 8 * weft_work__numel(&cx->in[0]));
}

weft_work weft_work_lrn(const weft_work_ctx *cx)
{
    double size = (double)weft_attrs_int(cx->attrs, WEFT_ATTR_SIZE, 1);
    return weft_work__bytes(cx, (2 * size + 4) * weft_work__numel(&cx->in[0]));
}

/* -- Lanes ---------------------------------------------------------------------------------- */

typedef struct stats {
    double mean, var;
} stats;

static stats measure(const double *x, int64_t n)
{
    stats s = {0, 0};
    for (int64_t i = 0; i < n; i++)
        s.mean += x[i];
    s.mean /= (double)n;
    for (int64_t i = 0; i < n; i++)
        s.var += (x[i] - s.mean) * (x[i] - s.mean);
    s.var /= (double)n;
    return s;
}

static double *scratch_f64(weft_eval_ctx *cx, int64_t n)
{
    return weft_arena_array(cx->scratch, (size_t)n + 1, sizeof(double));
}

/* -- Batch, instance and group -------------------------------------------------------------- */

/* Mean and variance of channel c over the batch. */
static stats measure_channel(const weft_tensor *x, int64_t c, int64_t channels, int64_t plane,
                             double *buf)
{
    int64_t batch = x->dim[0];
    for (int64_t b = 0; b < batch; b++)
        weft_eval__load_f64(x, (b * channels + c) * plane, 1, plane, buf + b * plane);
    return measure(buf, batch * plane);
}

weft_err weft_eval_batch_norm(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    double eps = weft_attrs_float(cx->attrs, WEFT_ATTR_EPSILON, 1e-5);
    double momentum = weft_attrs_float(cx->attrs, WEFT_ATTR_MOMENTUM, 0.9);
    bool training = weft_attrs_int(cx->attrs, WEFT_ATTR_TRAINING_MODE, 0) != 0;
    int64_t channels = x->rank > 1 ? x->dim[1] : 1, batch = x->rank > 0 ? x->dim[0] : 1;
    int64_t plane = x->rank > 2 ? weft_dims__product(x->dim, 2, x->rank) : 1;
    const double *param[5];
    for (uint32_t i = 1; i < 5; i++) {
        if (weft_tensor_numel(cx->in[i]) != channels)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u does not fit", i);
        param[i] = weft_eval__f64(cx, cx->in[i]);
    }
    double *buf = scratch_f64(cx, training ? batch * plane : plane);
    for (int64_t c = 0; c < channels; c++) {
        stats s = {param[3][c], param[4][c]};
        if (training) {
            stats now = measure_channel(x, c, channels, plane, buf);
            const weft_tensor *mean = weft_eval__out(cx, 1), *var = weft_eval__out(cx, 2);
            if (mean != NULL)
                weft_tensor_set_f64(mean, c, s.mean * momentum + now.mean * (1 - momentum));
            if (var != NULL)
                weft_tensor_set_f64(var, c, s.var * momentum + now.var * (1 - momentum));
            s = now;
        }
        double a = param[1][c] / sqrt(s.var + eps), b = param[2][c] - s.mean * a;
        for (int64_t n = 0; n < batch; n++) {
            int64_t at = (n * channels + c) * plane;
            weft_eval__load_f64(x, at, 1, plane, buf);
            for (int64_t i = 0; i < plane; i++)
                buf[i] = buf[i] * a + b;
            weft_eval__store_f64(out, at, 1, plane, buf);
        }
    }
    return WEFT_ERR_OK;
}

/* Each sample's channels in `groups` groups; scale and bias of `n_scale` elements. */
static weft_err normalise_groups(weft_eval_ctx *cx, int64_t groups)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    double eps = weft_attrs_float(cx->attrs, WEFT_ATTR_EPSILON, 1e-5);
    int64_t channels = x->rank > 1 ? x->dim[1] : 0, n_scale = weft_tensor_numel(cx->in[1]);
    if (groups < 1 || channels % groups != 0 || (n_scale != channels && n_scale != groups) ||
        weft_tensor_numel(cx->in[2]) != n_scale)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale or bias does not fit");
    const double *scale = weft_eval__f64(cx, cx->in[1]), *bias = weft_eval__f64(cx, cx->in[2]);
    int64_t plane = weft_dims__product(x->dim, 2, x->rank), per = channels / groups;
    int64_t len = per * plane;
    double *buf = scratch_f64(cx, len);
    for (int64_t g = 0; g < x->dim[0] * groups && len > 0; g++) {
        weft_eval__load_f64(x, g * len, 1, len, buf);
        stats s = measure(buf, len);
        double inv = 1 / sqrt(s.var + eps);
        for (int64_t i = 0; i < len; i++) {
            int64_t c = n_scale == channels ? g % groups * per + i / plane : g % groups;
            buf[i] = (buf[i] - s.mean) * inv * scale[c] + bias[c];
        }
        weft_eval__store_f64(out, g * len, 1, len, buf);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_instance_norm(weft_eval_ctx *cx)
{
    return normalise_groups(cx, cx->in[0]->rank > 1 ? cx->in[0]->dim[1] : 1);
}

weft_err weft_eval_group_norm(weft_eval_ctx *cx)
{
    return normalise_groups(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_NUM_GROUPS, 1));
}

/* -- Layer ---------------------------------------------------------------------------------- */

/* `t` broadcast to the normalised dims of x, as `n` doubles; NULL when it does not fit. */
static const double *expand(weft_eval_ctx *cx, const weft_tensor *t, const weft_tensor *x,
                            uint32_t axis, int64_t n)
{
    if (weft_tensor_numel(t) == n)
        return weft_eval__f64(cx, t);
    weft_tensor part = {.dtype = WEFT_DTYPE_F64, .rank = x->rank - (int32_t)axis};
    memcpy(part.dim, x->dim + axis, (size_t)part.rank * sizeof *part.dim);
    double *all = scratch_f64(cx, n);
    const double *src = weft_eval__f64(cx, t);
    weft_iter it;
    if (!weft_iter__broadcast(&it, &part, &t, 1))
        return NULL;
    for (int64_t at = 0; !it.done; weft_iter__next(&it))
        for (int64_t i = 0; i < it.inner; i++)
            all[at++] = src[it.at[0] + i * it.inner_stride[0]];
    return all;
}

/* Of the mean square, without the mean: rms_norm. */
static stats measure_square(const double *x, int64_t n)
{
    stats s = {0, 0};
    for (int64_t i = 0; i < n; i++)
        s.var += x[i] * x[i];
    s.var /= (double)n;
    return s;
}

weft_err weft_eval_layer_norm(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0], *bias_in = weft_eval__in(cx, 2);
    double eps = weft_attrs_float(cx->attrs, WEFT_ATTR_EPSILON, 1e-5);
    uint32_t axis;
    WEFT_TRY(weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis));
    int64_t len = weft_dims__product(x->dim, (int32_t)axis, x->rank);
    int64_t lanes = weft_dims__product(x->dim, 0, (int32_t)axis);
    const double *scale = expand(cx, cx->in[1], x, axis, len);
    const double *bias = bias_in != NULL ? expand(cx, bias_in, x, axis, len) : NULL;
    if (scale == NULL || (bias == NULL && bias_in != NULL))
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "scale or bias does not fit");
    const weft_tensor *mean = weft_eval__out(cx, 1), *inv_std = weft_eval__out(cx, 2);
    double *buf = scratch_f64(cx, len);
    for (int64_t lane = 0; lane < lanes && len > 0; lane++) {
        weft_eval__load_f64(x, lane * len, 1, len, buf);
        stats s = cx->op->id == WEFT_OP_RMS_NORM ? measure_square(buf, len) : measure(buf, len);
        double inv = 1 / sqrt(s.var + eps);
        for (int64_t i = 0; i < len; i++)
            buf[i] = (buf[i] - s.mean) * inv * scale[i] + (bias != NULL ? bias[i] : 0);
        weft_eval__store_f64(out, lane * len, 1, len, buf);
        if (mean != NULL)
            weft_tensor_set_f64(mean, lane, s.mean);
        if (inv_std != NULL)
            weft_tensor_set_f64(inv_std, lane, inv);
    }
    return WEFT_ERR_OK;
}

/* Over any set of axes (default batch and space); ONNX adds its epsilon to the deviation. */
weft_err weft_eval_mean_variance_norm(weft_eval_ctx *cx)
{
    static const int64_t usual[] = {0, 2, 3};
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    uint32_t n_axes;
    const int64_t *axes = weft_attrs_ints(cx->attrs, WEFT_ATTR_AXES, &n_axes);
    if (axes == NULL) {
        axes = usual;
        n_axes = 3;
    }
    bool over[WEFT_RANK_MAX] = {false};
    for (uint32_t i = 0; i < n_axes; i++) {
        uint32_t axis;
        WEFT_TRY(weft_eval__axis(cx, axes[i], x->rank, &axis));
        over[axis] = true;
    }
    int64_t group[WEFT_RANK_MAX], groups = 1, n = weft_tensor_numel(x), at = 0;
    for (int32_t i = x->rank - 1; i >= 0; i--) {
        group[i] = over[i] ? 0 : groups;
        groups *= over[i] ? 1 : x->dim[i];
    }
    double *sum = scratch_f64(cx, groups), *square = scratch_f64(cx, groups);
    const double *v = weft_eval__f64(cx, x);
    double *y = scratch_f64(cx, n), count = groups > 0 ? (double)n / (double)groups : 1;
    int64_t *of = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *of);
    int64_t idx[WEFT_RANK_MAX] = {0};
    for (; at < n; at++) {
        for (int32_t i = 0; i < x->rank; i++)
            of[at] += idx[i] * group[i];
        sum[of[at]] += v[at];
        (void)weft_index__next(idx, x->dim, x->rank);
    }
    for (at = 0; at < n; at++) {
        double d = v[at] - sum[of[at]] / count;
        square[of[at]] += d * d;
    }
    for (at = 0; at < n; at++)
        y[at] = (v[at] - sum[of[at]] / count) / (sqrt(square[of[at]] / count) + 1e-9);
    weft_eval__store_f64(out, 0, 1, n, y);
    return WEFT_ERR_OK;
}

/* -- Along one axis ------------------------------------------------------------------------- */

static void softmax_lane(weft_op_id id, bool single, double *x, int64_t n)
{
    double top = -INFINITY, sum = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > top || x[i] != x[i]) {
            top = x[i];
            best = i;
        }
    }
    if (id == WEFT_OP_HARDMAX) {
        for (int64_t i = 0; i < n; i++)
            x[i] = i == best;
        return;
    }
    if (id == WEFT_OP_LOG_SOFTMAX) {
        for (int64_t i = 0; i < n; i++)
            sum += exp(x[i] - top);
        /* Not x - (top + log(sum)): a large top would swallow the logarithm. */
        for (int64_t i = 0; i < n; i++)
            x[i] = x[i] - top - log(sum);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        x[i] = single ? (double)expf((float)(x[i] - top)) : exp(x[i] - top);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* A lane of norm 0 is left unchanged. */
static void lp_lane(int64_t p, double *x, int64_t n)
{
    double norm = 0;
    for (int64_t i = 0; i < n; i++)
        norm += p == 1 ? fabs(x[i]) : x[i] * x[i];
    norm = p == 1 ? norm : sqrt(norm);
    for (int64_t i = 0; i < n && norm != 0; i++)
        x[i] /= norm;
}

static weft_err eval_lanes(weft_eval_ctx *cx, int64_t p)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    weft_op_id id = cx->op->id;
    uint32_t axis = 0;
    int64_t len = 1, step = 1, outer = 1;
    if (x->rank > 0) {
        WEFT_TRY(
            weft_eval__axis(cx, weft_attrs_int(cx->attrs, WEFT_ATTR_AXIS, -1), x->rank, &axis));
        len = x->dim[axis];
        step = weft_dims__product(x->dim, (int32_t)axis + 1, x->rank);
        outer = weft_dims__product(x->dim, 0, (int32_t)axis);
    }
    double *buf = scratch_f64(cx, len);
    for (int64_t lane = 0; lane < outer * step; lane++) {
        int64_t at = lane / step * len * step + lane % step;
        weft_eval__load_f64(x, at, step, len, buf);
        if (p != 0)
            lp_lane(p, buf, len);
        else
            softmax_lane(id, out->dtype != WEFT_DTYPE_F64, buf, len);
        weft_eval__store_f64(out, at, step, len, buf);
    }
    return WEFT_ERR_OK;
}

weft_err weft_eval_softmax(weft_eval_ctx *cx)
{
    return eval_lanes(cx, 0);
}

weft_err weft_eval_lp_norm(weft_eval_ctx *cx)
{
    int64_t p = weft_attrs_int(cx->attrs, WEFT_ATTR_P, 2);
    if (p != 1 && p != 2)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "p = %lld", (long long)p);
    return eval_lanes(cx, p);
}

/* Local response normalisation over a window of channels. */
weft_err weft_eval_lrn(weft_eval_ctx *cx)
{
    const weft_tensor *x = cx->in[0], *out = &cx->out[0];
    double alpha = weft_attrs_float(cx->attrs, WEFT_ATTR_ALPHA, 1e-4);
    double beta = weft_attrs_float(cx->attrs, WEFT_ATTR_BETA, 0.75);
    double bias = weft_attrs_float(cx->attrs, WEFT_ATTR_BIAS, 1);
    int64_t size = weft_attrs_int(cx->attrs, WEFT_ATTR_SIZE, 1);
    if (size < 1 || size > INT32_MAX || x->rank < 2)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "window of %lld channels", (long long)size);
    int64_t channels = x->dim[1], plane = weft_dims__product(x->dim, 2, x->rank);
    int64_t before = (size - 1) / 2, after = size - 1 - before;
    double *lane = scratch_f64(cx, channels), *y = scratch_f64(cx, channels);
    for (int64_t i = 0; i < x->dim[0] * plane; i++) {
        int64_t at = i / plane * channels * plane + i % plane;
        weft_eval__load_f64(x, at, plane, channels, lane);
        for (int64_t c = 0; c < channels; c++) {
            int64_t lo = c > before ? c - before : 0;
            int64_t hi = after < channels - 1 - c ? c + after : channels - 1;
            double sum = 0;
            for (int64_t k = lo; k <= hi; k++)
                sum += lane[k] * lane[k];
            y[c] = lane[c] / pow(bias + alpha / (double)size * sum, beta);
        }
        weft_eval__store_f64(out, at, plane, channels, y);
    }
    return WEFT_ERR_OK;
}
