/* Epilogues as oneDNN post-ops. A chain in which every step uses the value of the previous step
 * exactly once becomes post-ops; any other chain is computed by an element-wise pass over the
 * result.
 *
 * oneDNN 2.6 generates code for element-wise post-ops once per algorithm: a second post-op of the
 * same algorithm is computed with the parameters of the first. So neighbouring steps are composed
 * (linear after linear, clip after clip), and a chain that still has one algorithm with two sets of
 * parameters is not fused where the library has this defect (weft_dnnl__post_ops_are_sound). */
#include "runtime/cpu/cpu_dnnl_int.h"

#include <math.h>
#include <string.h>

enum { NEAR_FLOATS = 4 << 20 };

/* -- Single steps --------------------------------------------------------------------------- */

static bool number(const weft_step *s, uint32_t k, float *out)
{
    *out = s->arg[k].number;
    return k < s->n_args && s->arg[k].kind == WEFT_ARG_NUMBER;
}

static bool append(dnnl_epilogue *e, dnnl_alg_kind_t alg, float alpha, float beta)
{
    weft_dnnl_post post = {.kind = dnnl_eltwise, .alg = alg, .alpha = alpha, .beta = beta};
    return e->attr.n_post < 2 * DNNL_EPILOGUE_MAX && weft_dnnl__append(&e->attr, post) &&
           weft_dnnl__post_ops_are_sound(&e->attr);
}

/* The last post-op if it is of algorithm `alg`; otherwise NULL. */
static weft_dnnl_post *last_of(dnnl_epilogue *e, dnnl_alg_kind_t alg)
{
    weft_dnnl_post *last = e->attr.n_post ? &e->attr.post[e->attr.n_post - 1] : NULL;
    return last && last->kind == dnnl_eltwise && last->alg == alg ? last : NULL;
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
    weft_dnnl_post *last = last_of(e, dnnl_eltwise_linear);
    if (!last)
        return append(e, dnnl_eltwise_linear, alpha, beta);
    double shift = (double)last->beta * alpha + beta;
    if (!is_exact_factor(last->alpha * alpha, last->alpha, alpha) || !isfinite(shift))
        return false;
    last->alpha *= alpha;
    last->beta = (float)shift;
    return weft_dnnl__post_ops_are_sound(&e->attr);
}

/* min(max(x, low), high); after another clip both limits of the first are clipped by the second. */
static bool append_clip(dnnl_epilogue *e, float low, float high)
{
    weft_dnnl_post *last = last_of(e, dnnl_eltwise_clip);
    if (!last)
        return append(e, dnnl_eltwise_clip, low, high);
    if (!(last->alpha <= last->beta && low <= high))
        return false;
    last->alpha = fminf(fmaxf(last->alpha, low), high);
    last->beta = fminf(fmaxf(last->beta, low), high);
    return weft_dnnl__post_ops_are_sound(&e->attr);
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
 * dims are collapsed), or a scalar. NULL: none of these. */
static const weft_dnnl_md *operand_md(const weft_prep *p, weft_dnnl_scope *scope, uint32_t in,
                                      bool collapsed)
{
    if (in >= p->n_in || !p->in[in].present || p->in[in].tensor.dtype != WEFT_DTYPE_F32)
        return NULL;
    const weft_slot *x = &p->in[in], *dst = &p->out[0];
    int32_t rank = dst->tensor.rank, shift = rank - x->tensor.rank;
    int64_t n = weft_slot_numel(x);
    int32_t channel = dst->layout == WEFT_LAYOUT_PLAIN && collapsed ? rank - 1 : 1;
    dnnl_dims_t dims;

    if (shift < 0 || rank < 1)
        return NULL;
    if (weft_slot_same_dims(x, dst) && x->layout == dst->layout) {
        /* One element an image: oneDNN's GEMM convolution takes that of the first for all. */
        if (!collapsed)
            return n == 1 || n != dst->tensor.dim[0] ? weft_dnnl__md(scope, x) : NULL;
        dims[0] = weft_slot_count(x, 0, rank - 1);
        dims[1] = x->tensor.dim[rank - 1];
        return weft_dnnl__md_plain(scope, 2, dims);
    }
    if (x->layout != WEFT_LAYOUT_PLAIN)
        return NULL;
    int32_t dst_rank = collapsed ? 2 : rank;
    for (int32_t d = 0; d < dst_rank; d++)
        dims[d] = 1;
    if (n != 1) {
        if (channel < shift || channel >= rank || x->tensor.dim[channel - shift] != n ||
            dst->tensor.dim[channel] != n)
            return NULL;
        dims[collapsed ? 1 : channel] = n;
    }
    return weft_dnnl__md_plain(scope, dst_rank, dims);
}

static bool append_binary(weft_prep *p, weft_dnnl_scope *scope, dnnl_epilogue *e,
                          dnnl_alg_kind_t alg, uint32_t in, bool collapsed)
{
    uint32_t i = e->n_operand;
    weft_dnnl_post post = {.kind = dnnl_binary, .alg = alg};
    if (i == DNNL_EPILOGUE_MAX)
        return false;
    post.md = operand_md(p, scope, in, collapsed);
    e->operand[i] = in;
    e->position[i] = e->attr.n_post;
    if (!post.md || !weft_dnnl__append(&e->attr, post))
        return false;
    e->n_operand++;
    return true;
}

static bool append_operand(weft_prep *p, weft_dnnl_scope *scope, dnnl_epilogue *e,
                           const weft_step *s, uint32_t acc, bool collapsed)
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
    return append_binary(p, scope, e, alg, s->arg[1 - acc].idx, collapsed);
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

/* Whether a post-op may lose NaN. The element-wise algorithms listed here keep it
 * (tests/conform/special_values.py); the logistic function loses it in some implementations. */
static bool loses_nan(const weft_dnnl_post *post)
{
    if (post->kind == dnnl_binary)
        return post->alg == dnnl_binary_min || post->alg == dnnl_binary_max;
    if (post->kind != dnnl_eltwise)
        return false;
    switch ((int)post->alg) {
    case dnnl_eltwise_linear:
    case dnnl_eltwise_abs:
    case dnnl_eltwise_square:
    case dnnl_eltwise_sqrt:
    case dnnl_eltwise_elu:
    case dnnl_eltwise_tanh:
    case dnnl_eltwise_gelu_erf:
    case dnnl_eltwise_gelu_tanh:
    case dnnl_eltwise_swish:
    case dnnl_eltwise_hardswish:
        return false;
    case dnnl_eltwise_relu:
        return post->alpha == 0;
    default:
        return true;
    }
}

/* Whether the steps may make NaN or infinities of sums of products of tame numbers: one product
 * more stays in range. */
static bool leaves_range(const dnnl_epilogue *e)
{
    uint32_t products = 0;
    for (uint32_t i = 0; i < e->n_step; i++) {
        const weft_step *s = &e->step[i];
        bool bounded = s->op == WEFT_STEP_CLIP || s->op == WEFT_STEP_MIN || s->op == WEFT_STEP_MAX;
        for (uint32_t k = 0; k < s->n_args && !bounded; k++)
            if (s->arg[k].kind == WEFT_ARG_NUMBER && !(fabsf(s->arg[k].number) < WEFT_TAME_MOST))
                return true;
        products += s->op == WEFT_STEP_MUL;
        if (s->op == WEFT_STEP_DIV || s->op == WEFT_STEP_EXP || s->op == WEFT_STEP_SQRT ||
            s->op == WEFT_STEP_SQUARE || s->op == WEFT_STEP_GELU_TANH)
            return true;
    }
    return products > 1;
}

static bool epilogue_loses_nan(const dnnl_epilogue *e)
{
    for (uint32_t i = 0; i < e->attr.n_post; i++)
        if (loses_nan(&e->attr.post[i]))
            return true;
    return false;
}

static bool fuse(weft_prep *p, weft_dnnl_scope *scope, dnnl_epilogue *e, bool collapsed)
{
    for (uint32_t i = 0; i < e->n_step; i++) {
        const weft_step *s = &e->step[i];
        uint32_t acc = 0;
        if (!find_acc(s, i, &acc))
            return false;
        bool done = acc == 0 && append_unary(e, s);
        if (!done && s->n_args == 2)
            done = append_linear(e, s, acc) || append_operand(p, scope, e, s, acc, collapsed);
        if (!done)
            return false;
    }
    return !weft_cpu__keeps_nan(p) || !epilogue_loses_nan(e);
}

static void reset(dnnl_epilogue *e)
{
    e->n_operand = 0;
    e->attr = (weft_dnnl_attr){0};
    if (e->onto)
        (void)weft_dnnl__append(&e->attr, (weft_dnnl_post){.kind = dnnl_sum, .alpha = 1.0f});
}

weft_err weft_dnnl__epilogue(weft_prep *p, weft_dnnl_scope *scope, dnnl_epilogue *e, bool collapsed,
                             const weft_step *front, uint32_t n_front)
{
    const weft_attr *steps = weft_attrs_find(p->attrs, WEFT_ATTR_EPILOGUE);
    reset(e);
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
    e->fused = fuse(p, scope, e, collapsed);
    if (!e->fused)
        reset(e);
    return WEFT_ERR_OK;
}

/* oneDNN's gelu and silu take twice the time of ours, which pays as long as the result is in the
 * cache. */
bool weft_dnnl__is_costly(const dnnl_epilogue *e, int64_t n)
{
    for (uint32_t i = 0; i < e->n_step && e->fused && n <= NEAR_FLOATS; i++)
        switch (e->step[i].op) {
        case WEFT_STEP_GELU:
        case WEFT_STEP_GELU_TANH:
        case WEFT_STEP_SILU:
            return true;
        default:
            break;
        }
    return false;
}

void weft_dnnl__unfuse(dnnl_epilogue *e)
{
    e->fused = e->n_step == 0;
    reset(e);
}

/* The unused lanes of the result (cpu_nan.c). */
static void watch_lanes(const weft_prep *p, dnnl_kernel *k)
{
    weft_cpu_lanes lanes = weft_cpu__lanes(&p->out[0]);
    if (lanes.unused == 0)
        return;
    if (weft_cpu__keeps_nan(p)) {
        k->lanes = lanes;
        k->out = p->n_in;
    } else {
        k->loses_nan = true;
    }
}

bool weft_dnnl__bind_epilogue(weft_prep *p, dnnl_kernel *k, dnnl_call *s, const dnnl_epilogue *e)
{
    watch_lanes(p, k);
    k->loses_nan = k->loses_nan || epilogue_loses_nan(e);
    k->tame.always = k->tame.always || e->onto || leaves_range(e);
    for (uint32_t i = 0; i < e->n_operand; i++)
        if (!weft_dnnl__bind(k, s,
                             DNNL_ARG_ATTR_MULTIPLE_POST_OP((int)e->position[i]) | DNNL_ARG_SRC_1,
                             e->attr.post[e->position[i]].md, e->operand[i], 0))
            return false;
    if (e->fused || e->n_step == 0)
        return true;
    return weft_cpu__ew_create(p, e->step, e->n_step, true, &k->ew) == WEFT_ERR_OK && k->ew;
}
