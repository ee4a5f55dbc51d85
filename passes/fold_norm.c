/* fold-norm: folds batch normalisation into the convolution before it.
 *
 *     y = s * (conv(x, w) + b - mean) + bias,  s = scale / sqrt(var + epsilon)
 *   ==>
 *     y = conv(x, w * s per output channel, (b - mean) * s + bias)
 *
 * The scaled weight is a new weight; models that shared w and have equal statistics share it again
 * after dedup. A norm that does not follow a convolution becomes `mul` and `add` by per-channel
 * weights, which later passes fuse. Computed in double, stored in f32. O(elements of the weights).
 */
#include "passes/passes_int.h"

#include <math.h>
#include <string.h>

/* Per-channel affine form of an inference batch norm: y = x * scale[c] + shift[c]. */
typedef struct affine {
    double *scale, *shift;
    int64_t n;
} affine;

static bool read_channel(weft_passctx *cx, const weft_module *m, weft_val v, int64_t n,
                         double **out)
{
    if (!v.i || weft_val_get_kind(m, v) != WEFT_VAL_WEIGHT)
        return false;
    weft_tensor t = weft_weight_tensor(m, weft_val_weight(m, v));
    if (weft_tensor_numel(&t) != n || !weft_dtype_is_float(t.dtype))
        return false;
    *out = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof **out);
    for (int64_t i = 0; i < n; i++)
        (*out)[i] = weft_tensor_get_f64(&t, i);
    return true;
}

static bool read_affine(weft_passctx *cx, weft_graph *g, weft_node n, affine *out)
{
    const weft_module *m = weft_graph_module(g);
    const weft_ttype *type = weft_val_ttype(m, weft_node_in(m, n, 0));
    weft_attrs attrs = weft_node_attrs(m, n);
    double *bias, *mean, *var;
    if (type->rank < 2 || !weft_dim_is_const(type->dim[1]) || type->dim[1] < 1 ||
        type->dtype != WEFT_DTYPE_F32 || weft_attrs_int(attrs, WEFT_ATTR_TRAINING_MODE, 0))
        return false;
    for (uint32_t i = 1; i < weft_node_out_count(m, n); i++)
        if (weft_val_use_count(m, weft_node_out(m, n, i)) ||
            weft_val_is_output(g, weft_node_out(m, n, i)))
            return false;
    out->n = type->dim[1];
    if (!read_channel(cx, m, weft_node_in(m, n, 1), out->n, &out->scale) ||
        !read_channel(cx, m, weft_node_in(m, n, 2), out->n, &bias) ||
        !read_channel(cx, m, weft_node_in(m, n, 3), out->n, &mean) ||
        !read_channel(cx, m, weft_node_in(m, n, 4), out->n, &var))
        return false;
    double epsilon = (float)weft_attrs_float(attrs, WEFT_ATTR_EPSILON, 1e-5);
    out->shift = bias;
    for (int64_t c = 0; c < out->n; c++) {
        out->scale[c] /= sqrt(var[c] + epsilon);
        out->shift[c] -= mean[c] * out->scale[c];
    }
    return true;
}

/* -- Into a convolution --------------------------------------------------------------------- */

/* The convolution with constant f32 weights whose result only the norm uses; none otherwise. */
static weft_node foldable_conv(const weft_graph *g, weft_node norm)
{
    const weft_module *m = weft_graph_module(g);
    weft_val x = weft_node_in(m, norm, 0);
    weft_node conv = weft_val_node(m, x);
    if (!conv.i || weft_node_op(m, conv) != WEFT_OP_CONV ||
        weft_rewrite__sole_user(g, x).i != norm.i)
        return (weft_node){0};
    weft_val w = weft_node_in(m, conv, 1), b = weft_node_in(m, conv, 2);
    if (weft_val_get_kind(m, w) != WEFT_VAL_WEIGHT ||
        weft_val_ttype(m, w)->dtype != WEFT_DTYPE_F32 ||
        (b.i && weft_val_get_kind(m, b) != WEFT_VAL_WEIGHT) ||
        weft_attrs_find(weft_node_attrs(m, conv), WEFT_ATTR_EPILOGUE))
        return (weft_node){0};
    return conv;
}

static weft_val scaled_weight(weft_passctx *cx, weft_module *m, weft_val w, const affine *a)
{
    weft_tensor t = weft_weight_tensor(m, weft_val_weight(m, w));
    int64_t n = weft_tensor_numel(&t), per_channel = n / a->n;
    float *y = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *y);
    memcpy(y, t.data, (size_t)n * sizeof *y); /* a mapped span may be unaligned */
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(y[i] * a->scale[i / per_channel]);
    return weft_rewrite__constant(m, WEFT_DTYPE_F32, t.dim, (uint32_t)t.rank, y,
                                  weft_weight_get(m, weft_val_weight(m, w))->name);
}

static weft_val shifted_bias(weft_passctx *cx, weft_module *m, weft_val b, const affine *a)
{
    float *y = weft_arena_array(cx->scratch, (size_t)a->n + 1, sizeof *y);
    weft_tensor t = {0};
    if (b.i)
        t = weft_weight_tensor(m, weft_val_weight(m, b));
    for (int64_t c = 0; c < a->n; c++)
        y[c] = (float)((b.i ? weft_tensor_get_f64(&t, c) : 0) * a->scale[c] + a->shift[c]);
    return weft_rewrite__constant(m, WEFT_DTYPE_F32, &a->n, 1, y, "norm_bias");
}

static bool fold_into_conv(weft_passctx *cx, weft_graph *g, weft_node norm, weft_node conv,
                           const affine *a)
{
    weft_module *m = weft_graph_module(g);
    const weft_ttype *w = weft_val_ttype(m, weft_node_in(m, conv, 1));
    if (w->dim[0] != a->n || !weft_rewrite__allow(cx))
        return false;
    weft_arena_mark mark = weft_arena_get_mark(cx->scratch);
    weft_val bias = shifted_bias(cx, m, weft_node_in(m, conv, 2), a);
    weft_node_set_in(m, conv, 1, scaled_weight(cx, m, weft_node_in(m, conv, 1), a));
    weft_node_grow_in(m, conv, 2, bias);
    weft_arena_reset(cx->scratch, mark);
    weft_rewrite__replace_result(g, norm, 0, weft_node_out(m, conv, 0));
    weft_node_remove(g, norm);
    return true;
}

/* -- Alone ---------------------------------------------------------------------------------- */

static weft_val channel_weight(weft_passctx *cx, weft_module *m, const double *x, int64_t n,
                               uint32_t rank, const char *name)
{
    float *y = weft_arena_array(cx->scratch, (size_t)n + 1, sizeof *y);
    int64_t dim[WEFT_RANK_MAX] = {n, 1, 1, 1, 1, 1, 1, 1};
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return weft_rewrite__constant(m, WEFT_DTYPE_F32, dim, rank - 1, y, name);
}

static weft_err to_mul_add(weft_passctx *cx, weft_graph *g, weft_node norm, const affine *a,
                           bool *changed)
{
    weft_module *m = weft_graph_module(g);
    uint32_t rank = weft_val_ttype(m, weft_node_in(m, norm, 0))->rank;
    if (!weft_rewrite__allow(cx))
        return WEFT_ERR_OK;
    weft_loc loc = weft_node_loc(m, norm);
    weft_val scaled, shifted;
    weft_val mul[2] = {weft_node_in(m, norm, 0),
                       channel_weight(cx, m, a->scale, a->n, rank, "norm_scale")};
    WEFT_TRY(weft_rewrite__emit(cx, g, norm, WEFT_OP_MUL, mul, 2, NULL, 0, loc, &scaled));
    weft_val add[2] = {scaled, channel_weight(cx, m, a->shift, a->n, rank, "norm_shift")};
    WEFT_TRY(weft_rewrite__emit(cx, g, norm, WEFT_OP_ADD, add, 2, NULL, 0, loc, &shifted));
    weft_rewrite__replace_result(g, norm, 0, shifted);
    weft_node_remove(g, norm);
    *changed = true;
    return WEFT_ERR_OK;
}

static weft_err run(weft_passctx *cx, weft_module *m, bool *changed)
{
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        WEFT_FOREACH_NODE (m, g, n) {
            affine a;
            if (weft_node_op(m, n) != WEFT_OP_BATCH_NORM || !read_affine(cx, g, n, &a))
                continue;
            weft_node conv = foldable_conv(g, n);
            if (conv.i && fold_into_conv(cx, g, n, conv, &a))
                *changed = true;
            else
                WEFT_TRY(to_mul_add(cx, g, n, &a, changed));
        }
    }
    return WEFT_ERR_OK;
}

const weft_pass weft_pass_fold_norm = {
    .name = "fold-norm",
    .brief = "batch normalisation into the convolution before it",
    .from = WEFT_STAGE_GRAPH,
    .to = WEFT_STAGE_GRAPH,
    .needs = WEFT_FACT_TYPES | WEFT_FACT_CONTENTS,
    .run = run,
};
