/* Epilogues as oneDNN post-ops. A chain in which every step uses the value of the previous step
 * exactly once becomes post-ops; any other chain is computed by an element-wise pass over the
 * result.
 *
 * oneDNN 2.6 generates code for element-wise post-ops once per algorithm: a second post-op of the
 * same algorithm is computed with the parameters of the first. So neighbouring steps are composed
 * (linear after linear, clip after clip), and a chain that still has one algorithm with two sets of
 * parameters is not fused. weft_dnnl__add refuses any primitive that breaks this rule. */
#include "runtime/cpu/cpu_dnnl_int.h"

#include <math.h>
#include <string.h>

/* -- Single steps --------------------------------------------------------------------------- */

static bool number(const weft_step *s, uint32_t k, float *out)
{
    *out = s->arg[k].number;
    return k < s->n_args && s->arg[k].kind == WEFT_ARG_NUMBER;
}

static bool append(dnnl_epilogue *e, dnnl_alg_kind_t alg, float alpha, float beta)
{
    return dnnl_post_ops_len(e->ops) < 2 * DNNL_EPILOGUE_MAX &&
           dnnl_post_ops_append_eltwise(e->ops, 1.0f, alg, alpha, beta) == dnnl_success &&
           weft_dnnl__post_ops_are_sound(e->ops);
}

/* Whether the last post-op is of algorithm `alg`; its parameters. */
static bool last_is(const dnnl_epilogue *e, dnnl_alg_kind_t alg, float *alpha, float *beta)
{
    int n = dnnl_post_ops_len(e->ops);
    dnnl_alg_kind_t found;
    float scale;
    return n > 0 && dnnl_post_ops_get_kind(e->ops, n - 1) == dnnl_eltwise &&
           dnnl_post_ops_get_params_eltwise(e->ops, n - 1, &scale, &found, alpha, beta) ==
               dnnl_success &&
           found == alg;
}

/* Replaces the last post-op. oneDNN has no call for this, so all others are copied. */
static bool replace_last(dnnl_epilogue *e, dnnl_alg_kind_t alg, float alpha, float beta)
{
    dnnl_post_ops_t ops;
    int n = dnnl_post_ops_len(e->ops) - 1;
    if (dnnl_post_ops_create(&ops) != dnnl_success)
        return false;
    bool done = true;
    for (int i = 0; i < n && done; i++)
        done = weft_dnnl__copy_post_op(e->ops, i, ops);
    done = done && dnnl_post_ops_append_eltwise(ops, 1.0f, alg, alpha, beta) == dnnl_success &&
           weft_dnnl__post_ops_are_sound(ops);
    dnnl_post_ops_destroy(done ? e->ops : ops);
    if (done)
        e->ops = ops;
    return done;
}

/* Whether the f32 product of a and b is exact up to normal rounding: no overflow or underflow, and
 * 0 only if a or b is 0. */
static bool is_exact_factor(float product, float a, float b)
{
    return isnormal(product) || (product == 0 && (a == 0 || b == 0));
}

/* x * alpha + beta; after another linear step  (x*a + b)*c + d ==> x*(a*c) + (b*c + d). */
static bool append_scale_shift(dnnl_epilogue *e, float alpha, float beta)
{
    float a, b;
    if (!last_is(e, dnnl_eltwise_linear, &a, &b))
        return append(e, dnnl_eltwise_linear, alpha, beta);
    double shift = (double)b * alpha + beta;
    return is_exact_factor(a * alpha, a, alpha) && isfinite(shift) &&
           replace_last(e, dnnl_eltwise_linear, a * alpha, (float)shift);
}

/* min(max(x, low), high); after another clip both limits of the first are clipped by the second. */
static bool append_clip(dnnl_epilogue *e, float low, float high)
{
    float a, b;
    if (!last_is(e, dnnl_eltwise_clip, &a, &b))
        return append(e, dnnl_eltwise_clip, low, high);
    return a <= b && low <= high &&
           replace_last(e, dnnl_eltwise_clip, fminf(fmaxf(a, low), high),
                        fminf(fmaxf(b, low), high));
}

/* Steps whose arguments are the accumulator (argument 0) and numbers. */
static bool append_unary(dnnl_epilogue *e, const weft_step *s)
{
    float a, b;
    switch (s->op) {
    case WEFT_STEP_RELU:
        return append(e, dnnl_eltwise_relu, 0, 0);
    case WEFT_STEP_LEAKY_RELU:
        return number(s, 1, &a) && append(e, dnnl_eltwise_relu, a, 0);
    case WEFT_STEP_ELU:
        return number(s, 1, &a) && append(e, dnnl_eltwise_elu, a, 0);
    case WEFT_STEP_CLIP:
        return number(s, 1, &a) && number(s, 2, &b) && append_clip(e, a, b);
    case WEFT_STEP_SIGMOID:
        return append(e, dnnl_eltwise_logistic, 0, 0);
    case WEFT_STEP_TANH:
        return append(e, dnnl_eltwise_tanh, 0, 0);
    case WEFT_STEP_GELU:
        return append(e, dnnl_eltwise_gelu_erf, 0, 0);
    case WEFT_STEP_GELU_TANH:
        return append(e, dnnl_eltwise_gelu_tanh, 0, 0);
    case WEFT_STEP_SILU:
        return append(e, dnnl_eltwise_swish, 1, 0);
    case WEFT_STEP_HARD_SWISH:
        return append(e, dnnl_eltwise_hardswish, 0, 0);
    case WEFT_STEP_HARD_SIGMOID:
        return number(s, 1, &a) && number(s, 2, &b) && append_scale_shift(e, a, b) &&
               append_clip(e, 0, 1);
    case WEFT_STEP_EXP:
        return append(e, dnnl_eltwise_exp, 0, 0);
    case WEFT_STEP_SQRT:
        return append(e, dnnl_eltwise_sqrt, 0, 0);
    case WEFT_STEP_ABS:
        return append(e, dnnl_eltwise_abs, 0, 0);
    case WEFT_STEP_SQUARE:
        return append(e, dnnl_eltwise_square, 0, 0);
    case WEFT_STEP_NEG:
        return append_scale_shift(e, -1, 0);
    case WEFT_STEP_IDENTITY:
        return true;
    default:
        return false;
    }
}

/* Steps whose arguments are the accumulator (argument `acc`) and one number. */
static bool append_linear(dnnl_epilogue *e, const weft_step *s, uint32_t acc)
{
    float x;
    if (!number(s, 1 - acc, &x))
        return false;
    switch (s->op) {
    case WEFT_STEP_ADD:
        return append_scale_shift(e, 1, x);
    case WEFT_STEP_SUB:
        return acc == 0 ? append_scale_shift(e, 1, -x) : append_scale_shift(e, -1, x);
    case WEFT_STEP_MUL:
        return append_scale_shift(e, x, 0);
    case WEFT_STEP_DIV:
        return acc == 0 && x != 0 && append_scale_shift(e, 1 / x, 0);
    default:
        return false;
    }
}

/* Describes the operand to the primitive: full, one value per channel (dim 1, or the last dim when
 * dims are collapsed), or a scalar. */
static bool operand_md(const weft_prep *p, uint32_t in, bool collapsed, dnnl_memory_desc_t *out)
{
    if (in >= p->n_in || !p->in[in].present || p->in[in].tensor.dtype != WEFT_DTYPE_F32)
        return false;
    const weft_slot *x = &p->in[in], *dst = &p->out[0];
    int32_t rank = dst->tensor.rank, shift = rank - x->tensor.rank;
    int64_t n = weft_slot_numel(x);
    int32_t channel = dst->layout == WEFT_LAYOUT_PLAIN && collapsed ? rank - 1 : 1;
    dnnl_dims_t dims;

    if (shift < 0 || rank < 1)
        return false;
    if (weft_slot_same_dims(x, dst) && x->layout == dst->layout) {
        if (!collapsed)
            return weft_dnnl__md(x, out);
        dims[0] = weft_slot_count(x, 0, rank - 1);
        dims[1] = x->tensor.dim[rank - 1];
        return dnnl_memory_desc_init_by_tag(out, 2, dims, dnnl_f32, dnnl_ab) == dnnl_success;
    }
    if (x->layout != WEFT_LAYOUT_PLAIN)
        return false;
    int32_t dst_rank = collapsed ? 2 : rank;
    for (int32_t d = 0; d < dst_rank; d++)
        dims[d] = 1;
    if (n != 1) {
        if (channel < shift || channel >= rank || x->tensor.dim[channel - shift] != n ||
            dst->tensor.dim[channel] != n)
            return false;
        dims[collapsed ? 1 : channel] = n;
    }
    return dnnl_memory_desc_init_by_tag(out, dst_rank, dims, dnnl_f32,
                                        weft_dnnl__tag(WEFT_LAYOUT_PLAIN, dst_rank)) ==
           dnnl_success;
}

static bool append_binary(weft_prep *p, dnnl_epilogue *e, dnnl_alg_kind_t alg, uint32_t in,
                          bool collapsed)
{
    uint32_t i = e->n_operand;
    if (i == DNNL_EPILOGUE_MAX || !operand_md(p, in, collapsed, &e->md[i]))
        return false;
    e->operand[i] = in;
    e->position[i] = (uint32_t)dnnl_post_ops_len(e->ops);
    if (dnnl_post_ops_append_binary(e->ops, alg, &e->md[i]) != dnnl_success)
        return false;
    e->n_operand++;
    return true;
}

static bool append_operand(weft_prep *p, dnnl_epilogue *e, const weft_step *s, uint32_t acc,
                           bool collapsed)
{
    dnnl_alg_kind_t alg;
    if (s->arg[1 - acc].kind != WEFT_ARG_INPUT)
        return false;
    switch (s->op) {
    case WEFT_STEP_ADD:
        alg = dnnl_binary_add;
        break;
    case WEFT_STEP_MUL:
        alg = dnnl_binary_mul;
        break;
    case WEFT_STEP_MIN:
        alg = dnnl_binary_min;
        break;
    case WEFT_STEP_MAX:
        alg = dnnl_binary_max;
        break;
    case WEFT_STEP_SUB:
    case WEFT_STEP_DIV:
        if (acc != 0)
            return false;
        alg = s->op == WEFT_STEP_SUB ? dnnl_binary_sub : dnnl_binary_div;
        break;
    default:
        return false;
    }
    return append_binary(p, e, alg, s->arg[1 - acc].idx, collapsed);
}

/* -- Chains --------------------------------------------------------------------------------- */

/* The argument of step i that is the previous value; false unless there is exactly one. */
static bool find_acc(const weft_step *s, uint32_t i, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_args; k++) {
        bool before = s->arg[k].kind == WEFT_ARG_ACC ||
                      (s->arg[k].kind == WEFT_ARG_STEP && i > 0 && s->arg[k].idx == i - 1);
        if (!before && s->arg[k].kind == WEFT_ARG_STEP)
            return false;
        if (before) {
            *out = k;
            n++;
        }
    }
    return n == 1;
}

static bool fuse(weft_prep *p, dnnl_epilogue *e, bool collapsed)
{
    for (uint32_t i = 0; i < e->n_step; i++) {
        const weft_step *s = &e->step[i];
        uint32_t acc = 0;
        if (!find_acc(s, i, &acc))
            return false;
        bool done = acc == 0 && append_unary(e, s);
        if (!done && s->n_args == 2)
            done = append_linear(e, s, acc) || append_operand(p, e, s, acc, collapsed);
        if (!done)
            return false;
    }
    return true;
}

static bool reset(dnnl_epilogue *e)
{
    weft_dnnl__epilogue_finish(e);
    e->n_operand = 0;
    return dnnl_post_ops_create(&e->ops) == dnnl_success &&
           dnnl_primitive_attr_create(&e->attr) == dnnl_success &&
           dnnl_primitive_attr_set_scratchpad_mode(e->attr, dnnl_scratchpad_mode_user) ==
               dnnl_success &&
           (!e->onto || dnnl_post_ops_append_sum(e->ops, 1.0f) == dnnl_success);
}

weft_err weft_dnnl__epilogue(weft_prep *p, dnnl_epilogue *e, bool collapsed, const weft_step *front,
                             uint32_t n_front)
{
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_EPILOGUE);
    if (!reset(e))
        return WEFT_ERR_NOMEM;
    e->n_step = n_front;
    if (n_front)
        memcpy(e->step, front, n_front * sizeof *front);
    if (steps && steps->kind == WEFT_KIND_STRS && steps->n > 0) {
        if (steps->n + n_front > WEFT_STEPS_MAX)
            return weft_diag_error(p->diag, WEFT_ERR_UNSUP, p->where,
                                   "an epilogue of %u steps is too long", steps->n);
        WEFT_TRY(weft_steps_parse(steps->u.strs, steps->n, p->n_in, p->diag, p->where,
                                  e->step + n_front));
        e->n_step += steps->n;
        for (uint32_t i = n_front; i < e->n_step; i++)
            for (uint32_t k = 0; k < e->step[i].n_args; k++)
                if (e->step[i].arg[k].kind == WEFT_ARG_STEP)
                    e->step[i].arg[k].idx += n_front;
    }
    e->fused = fuse(p, e, collapsed);
    if (!e->fused && !reset(e))
        return WEFT_ERR_NOMEM;
    return WEFT_ERR_OK;
}

void weft_dnnl__unfuse(dnnl_epilogue *e)
{
    e->fused = e->n_step == 0;
    (void)reset(e);
}

void weft_dnnl__epilogue_finish(dnnl_epilogue *e)
{
    if (e->ops)
        dnnl_post_ops_destroy(e->ops);
    if (e->attr)
        dnnl_primitive_attr_destroy(e->attr);
    e->ops = NULL;
    e->attr = NULL;
}

bool weft_dnnl__bind_epilogue(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const dnnl_epilogue *e)
{
    for (uint32_t i = 0; i < e->n_operand; i++)
        if (!weft_dnnl__bind(k, s,
                             DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)e->position[i]) | DNNL_ARG_SRC_1,
                             &e->md[i], e->operand[i], 0))
            return false;
    if (e->fused || e->n_step == 0)
        return true;
    return weft_cpu__ew_create(p, e->step, e->n_step, true, &k->ew) == WEFT_ERR_OK && k->ew;
}
