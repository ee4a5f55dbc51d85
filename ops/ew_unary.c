/* Element-wise operators of one operand, with their parameters as attributes.
 *
 * One row of FUNCTIONS is a formula in T (float or double) of x and the parameters p[0], p[1]; the
 * few operators that integers know have a second body. */
#include "ops/op_int.h"

#include <float.h>
#include <string.h>
#include <tgmath.h>

/* -- Formulas ------------------------------------------------------------------------------- */

#define K(x) ((T)(x))

#define SIGMOID(x) (K(1) / (K(1) + exp(-(x))))
/* log(1 + e^x) without overflow. */
#define SOFTPLUS(x) ((x) > 0 ? (x) + log1p(exp(-(x))) : log1p(exp(x)))
#define SQRT1_2     0.70710678118654752440
#define SQRT2_PI    0.79788456080286535588

/* x within 0 .. 1; NaN stays. */
#define CLAMP01(x) ((x) < 0 ? 0 : (x) > 1 ? 1 : (x))

/* F(ENUM, name, formula) */
#define FUNCTIONS(F)                                                              \
    F(ABS, abs, fabs(x))                                                          \
    F(NEG, neg, -x)                                                               \
    F(SIGN, sign, x > 0 ? 1 : x < 0 ? -1 : x)                                     \
    F(CEIL, ceil, ceil(x))                                                        \
    F(FLOOR, floor, floor(x))                                                     \
    F(ROUND, round, rint(x))                                                      \
    F(SQRT, sqrt, sqrt(x))                                                        \
    F(RSQRT, rsqrt, 1 / sqrt(x))                                                  \
    F(RECIPROCAL, reciprocal, 1 / x)                                              \
    F(SQUARE, square, x *x)                                                       \
    F(EXP, exp, exp(x))                                                           \
    F(LOG, log, log(x))                                                           \
    F(SIN, sin, sin(x))                                                           \
    F(COS, cos, cos(x))                                                           \
    F(TAN, tan, tan(x))                                                           \
    F(ASIN, asin, asin(x))                                                        \
    F(ACOS, acos, acos(x))                                                        \
    F(ATAN, atan, atan(x))                                                        \
    F(SINH, sinh, sinh(x))                                                        \
    F(COSH, cosh, cosh(x))                                                        \
    F(TANH, tanh, tanh(x))                                                        \
    F(ASINH, asinh, asinh(x))                                                     \
    F(ACOSH, acosh, acosh(x))                                                     \
    F(ATANH, atanh, atanh(x))                                                     \
    F(ERF, erf, erf(x))                                                           \
    F(SIGMOID, sigmoid, SIGMOID(x))                                               \
    F(RELU, relu, x < 0 ? 0 : x)                                                  \
    F(SILU, silu, x *SIGMOID(x))                                                  \
    F(SOFTPLUS, softplus, SOFTPLUS(x))                                            \
    F(SOFTSIGN, softsign, x / (1 + fabs(x)))                                      \
    F(HARD_SWISH, hard_swish, x *fmax(K(0), fmin(K(1), x *K(1.0F / 6) + K(0.5)))) \
    F(MISH, mish, x *tanh(SOFTPLUS(x)))                                           \
    F(GELU, gelu, K(0.5) * x * (1 + erf(x * K(SQRT1_2))))                         \
    F(ELU, elu, x < 0 ? p[0] * expm1(x) : x)                                      \
    F(CELU, celu, x < 0 ? p[0] * expm1(x / p[0]) : x)                             \
    F(SELU, selu, p[1] * (x > 0 ? x : p[0] * expm1(x)))                           \
    F(LEAKY_RELU, leaky_relu, x < 0 ? p[0] * x : x)                               \
    F(THRESHOLDED_RELU, thresholded_relu, x > p[0] ? x : 0)                       \
    F(HARD_SIGMOID, hard_sigmoid, CLAMP01(p[0] * x + p[1]))                       \
    F(SHRINK, shrink, x<-p[1] ? x + p[0] : x> p[1] ? x - p[0] : 0)

/* G(ENUM, name, formula) on 64-bit integers. */
#define INT_FUNCTIONS(G)                                    \
    G(ABS, abs, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)     \
    G(NEG, neg, (int64_t)(0 - (uint64_t)x))                 \
    G(SIGN, sign, (x > 0) - (x < 0))                        \
    G(RELU, relu, x < 0 ? 0 : x)                            \
    G(SQUARE, square, (int64_t)((uint64_t)x * (uint64_t)x)) \
    G(NOT, not, x == 0)                                     \
    G(BITWISE_NOT, bitwise_not, ~x)

#define DEFINE(name, type, member, expr)                                                        \
    static void name##_##member(const void *state, const type *const *in, type *out, int64_t n) \
    {                                                                                           \
        typedef type T;                                                                         \
        const double *param = state;                                                            \
        const T p[2] = {(T)param[0], (T)param[1]};                                              \
        (void)p;                                                                                \
        for (int64_t i = 0; i < n; i++) {                                                       \
            T x = in[0][i];                                                                     \
            out[i] = (T)(expr);                                                                 \
        }                                                                                       \
    }

#define F(id, name, expr)          \
    DEFINE(name, float, f32, expr) \
    DEFINE(name, double, f64, expr)
FUNCTIONS(F)
F(NONE, gelu_tanh, K(0.5) * x * (1 + tanh(K(SQRT2_PI) * (x + K(0.044715) * x * x * x))))
#undef F
#define G(id, name, expr) DEFINE(name, int64_t, i64, expr)
INT_FUNCTIONS(G)
G(NONE, not_zero, x != 0)
#undef G

/* -- The table ------------------------------------------------------------------------------ */

typedef struct unary {
    weft_eval_map_f32 f32;
    weft_eval_map_f64 f64;
} unary;

static const unary functions[WEFT_OP_COUNT] = {
#define F(id, name, expr) [WEFT_OP_##id] = {name##_f32, name##_f64},
    FUNCTIONS(F)
#undef F
};

static const weft_eval_map_i64 int_functions[WEFT_OP_COUNT] = {
#define G(id, name, expr) [WEFT_OP_##id] = name##_i64,
    INT_FUNCTIONS(G)
#undef G
};

/* Attributes p[0] and p[1] with ONNX's defaults, which are of type float. */
static const struct {
    uint16_t key[2];
    double otherwise[2];
} params[WEFT_OP_COUNT] = {
    [WEFT_OP_ELU] = {{WEFT_ATTR_ALPHA}, {1.0}},
    [WEFT_OP_CELU] = {{WEFT_ATTR_ALPHA}, {1.0}},
    [WEFT_OP_SELU] = {{WEFT_ATTR_ALPHA, WEFT_ATTR_GAMMA},
                      {1.67326319217681884765625, 1.05070102214813232421875}},
    [WEFT_OP_LEAKY_RELU] = {{WEFT_ATTR_ALPHA}, {0.01F}},
    [WEFT_OP_THRESHOLDED_RELU] = {{WEFT_ATTR_ALPHA}, {1.0}},
    [WEFT_OP_HARD_SIGMOID] = {{WEFT_ATTR_ALPHA, WEFT_ATTR_BETA}, {0.2F, 0.5}},
    [WEFT_OP_SHRINK] = {{WEFT_ATTR_BIAS, WEFT_ATTR_LAMBD}, {0.0, 0.5}},
};

uint32_t weft_unary_params(weft_op_id id, weft_attrs attrs, double param[2])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < 2; i++) {
        param[i] =
            weft_attrs_float(attrs, (weft_attr_key)params[id].key[i], params[id].otherwise[i]);
        n += params[id].key[i] != 0;
    }
    return n;
}

/* -- Entries -------------------------------------------------------------------------------- */

static bool is_tanh(weft_attrs attrs)
{
    return strcmp(weft_attrs_str(attrs, WEFT_ATTR_APPROXIMATE, "none"), "tanh") == 0;
}

weft_err weft_infer_unary(weft_infer_ctx *cx)
{
    weft_op_id id = cx->op->id;
    uint32_t ok = functions[id].f32 != NULL ? WEFT_M_FLOAT : 0;
    if (id == WEFT_OP_NOT)
        ok = WEFT_M_BOOL;
    else if (int_functions[id] != NULL || id == WEFT_OP_SHRINK)
        ok |= WEFT_M_INT;
    WEFT_TRY(weft_infer__dtype(cx, 0, ok));
    if (id == WEFT_OP_GELU && !is_tanh(cx->attrs) &&
        strcmp(weft_attrs_str(cx->attrs, WEFT_ATTR_APPROXIMATE, "none"), "none") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "no approximation \"%s\"",
                         weft_attrs_str(cx->attrs, WEFT_ATTR_APPROXIMATE, ""));
    weft_infer__copy(cx, 0, 0);
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_err weft_eval_unary(weft_eval_ctx *cx)
{
    static const unary gelu_tanh = {gelu_tanh_f32, gelu_tanh_f64};
    weft_op_id id = cx->op->id;
    const weft_tensor *out = &cx->out[0];
    double param[2];
    weft_unary_params(id, cx->attrs, param);
    const unary *f = id == WEFT_OP_GELU && is_tanh(cx->attrs) ? &gelu_tanh : &functions[id];
    weft_arith arith = weft_eval__arith(out->dtype);
    if (arith == WEFT_ARITH_F32 && f->f32 != NULL)
        return weft_eval__map_f32(cx, out, cx->in, 1, f->f32, param);
    if (arith == WEFT_ARITH_F64 && f->f64 != NULL)
        return weft_eval__map_f64(cx, out, cx->in, 1, f->f64, param);
    if (arith == WEFT_ARITH_I64 || arith == WEFT_ARITH_U64) {
        /* u64 has no negative values. */
        if (arith == WEFT_ARITH_U64 && (id == WEFT_OP_ABS || id == WEFT_OP_RELU))
            return weft_eval_identity(cx);
        if (arith == WEFT_ARITH_U64 && id == WEFT_OP_SIGN)
            return weft_eval__map_i64(cx, out, cx->in, 1, not_zero_i64, param);
        if (int_functions[id] != NULL)
            return weft_eval__map_i64(cx, out, cx->in, 1, int_functions[id], param);
        if (id == WEFT_OP_SHRINK)
            return weft_eval__map_f64(cx, out, cx->in, 1, f->f64, param);
    }
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand cannot be %s", weft_dtype_name(out->dtype));
}

/* -- Clip ----------------------------------------------------------------------------------- */

weft_err weft_infer_clip(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    for (uint32_t i = 1; i < 3; i++) {
        if (!weft_infer__has(cx, i))
            continue;
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        WEFT_TRY(weft_infer__agree(cx, weft_ttype_numel(cx->pool, &cx->in[i].type), 1,
                                   "elements of a bound"));
    }
    weft_infer__copy(cx, 0, 0);
    return WEFT_ERR_OK;
}

double weft_clip_limit(weft_dtype dtype)
{
    switch (dtype) {
    case WEFT_DTYPE_F64:
        return DBL_MAX;
    case WEFT_DTYPE_F16:
        return 65504;
    case WEFT_DTYPE_BF16:
        return 0x1.fep127;
    default:
        return (double)FLT_MAX;
    }
}

typedef struct bounds {
    double lo, hi;
    int64_t ilo, ihi;
} bounds;

#define DEFINE_CLIP(name, type, lo_member, hi_member)                                \
    static void name(const void *state, const type *const *in, type *out, int64_t n) \
    {                                                                                \
        const bounds *b = state;                                                     \
        const type lo = (type)b->lo_member, hi = (type)b->hi_member;                 \
        for (int64_t i = 0; i < n; i++) {                                            \
            type x = in[0][i] < lo ? lo : in[0][i];                                  \
            out[i] = x > hi ? hi : x;                                                \
        }                                                                            \
    }

DEFINE_CLIP(clip_f32, float, lo, hi)
DEFINE_CLIP(clip_f64, double, lo, hi)
DEFINE_CLIP(clip_i64, int64_t, ilo, ihi)

static void clip_u64(const void *state, const int64_t *const *in, int64_t *out, int64_t n)
{
    const bounds *b = state;
    const uint64_t lo = (uint64_t)b->ilo, hi = (uint64_t)b->ihi;
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)in[0][i] < lo ? lo : (uint64_t)in[0][i];
        out[i] = (int64_t)(x > hi ? hi : x);
    }
}

static void read_bound(weft_eval_ctx *cx, uint32_t in, weft_attr_key key, double *f, int64_t *i)
{
    const weft_tensor *t = weft_eval__in(cx, in);
    const weft_attr *a = weft_attrs_find(cx->attrs, key);
    if (a != NULL) {
        *f = weft_attrs_float(cx->attrs, key, *f);
        *i = a->kind == WEFT_KIND_INT ? a->u.i : (int64_t)fmax(-9e18, fmin(9e18, *f));
    } else if (t != NULL && weft_tensor_numel(t) == 1) {
        weft_eval__load_f64(t, 0, 1, 1, f);
        weft_eval__load_i64(t, 0, 1, 1, i);
    }
}

weft_err weft_eval_clip(weft_eval_ctx *cx)
{
    const weft_tensor *out = &cx->out[0];
    weft_arith arith = weft_eval__arith(out->dtype);
    double limit = weft_clip_limit((weft_dtype)out->dtype);
    bounds b = {-limit, limit, INT64_MIN, INT64_MAX};
    if (arith == WEFT_ARITH_U64) {
        b.ilo = 0;
        b.ihi = -1;
    }
    read_bound(cx, 1, WEFT_ATTR_MIN, &b.lo, &b.ilo);
    read_bound(cx, 2, WEFT_ATTR_MAX, &b.hi, &b.ihi);
    if (arith == WEFT_ARITH_F32)
        return weft_eval__map_f32(cx, out, cx->in, 1, clip_f32, &b);
    if (arith == WEFT_ARITH_F64)
        return weft_eval__map_f64(cx, out, cx->in, 1, clip_f64, &b);
    return weft_eval__map_i64(cx, out, cx->in, 1, arith == WEFT_ARITH_U64 ? clip_u64 : clip_i64,
                              &b);
}

/* -- Tests of floats ------------------------------------------------------------------------ */

weft_err weft_infer_test(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_FLOAT));
    weft_infer__copy(cx, 0, 0);
    cx->out[0].dtype = WEFT_DTYPE_BOOL;
    return WEFT_ERR_OK;
}

/* state: three bools, whether NaN, -inf and inf count. */
static void test_f64(const void *state, const double *const *in, double *out, int64_t n)
{
    const bool *want = state;
    for (int64_t i = 0; i < n; i++) {
        double x = in[0][i];
        out[i] = (want[0] && x != x) || (want[1] && x == -INFINITY) || (want[2] && x == INFINITY);
    }
}

weft_err weft_eval_test(weft_eval_ctx *cx)
{
    bool inf = cx->op->id == WEFT_OP_IS_INF;
    bool want[3] = {!inf, inf && weft_attrs_int(cx->attrs, WEFT_ATTR_DETECT_NEGATIVE, 1) != 0,
                    inf && weft_attrs_int(cx->attrs, WEFT_ATTR_DETECT_POSITIVE, 1) != 0};
    return weft_eval__map_f64(cx, &cx->out[0], cx->in, 1, test_f64, want);
}
