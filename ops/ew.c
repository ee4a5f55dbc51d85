/* Element-wise operators of two and more operands: arithmetic, comparison, logic, selection.
 *
 * Every function is one row of a table with a body for each arithmetic (f32, f64, signed,
 * unsigned); the driver in op_map.c does broadcasting and conversion. */
#include "ops/op_int.h"

#include <math.h>
#include <string.h>

/* -- Inference ------------------------------------------------------------------------------ */

weft_err weft_infer_arith(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    *out = cx->in[0].type;
    if (cx->n_in > WEFT_ITER_MAX)
        return WEFT_FAIL(cx, WEFT_ERR_UNSUP, "%u operands, at most %d", cx->n_in, WEFT_ITER_MAX);
    for (uint32_t i = 1; i < cx->n_in; i++) {
        if (!cx->in[i].present)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
        WEFT_TRY(weft_infer__same_dtype(cx, 0, i));
        WEFT_TRY(weft_infer__broadcast(cx, out, &cx->in[i].type, out));
    }
    uint32_t ok = WEFT_M_NUM;
    switch (cx->op->id) {
    case WEFT_OP_BITWISE_AND:
    case WEFT_OP_BITWISE_OR:
    case WEFT_OP_BITWISE_XOR:
    case WEFT_OP_BIT_SHIFT:
        ok = WEFT_M_INT;
        break;
    default:
        break;
    }
    WEFT_TRY(weft_infer__dtype(cx, 0, ok));
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_err weft_infer_pow(weft_infer_ctx *cx)
{
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[0].type.dtype, 0);
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_NUM));
    WEFT_TRY(weft_infer__dtype(cx, 1, WEFT_M_NUM));
    WEFT_TRY(weft_infer__broadcast(cx, &cx->in[0].type, &cx->in[1].type, out));
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_err weft_infer_compare(weft_infer_ctx *cx)
{
    weft_op_id id = cx->op->id;
    bool logic = id == WEFT_OP_AND || id == WEFT_OP_OR || id == WEFT_OP_XOR;
    weft_ttype *out = weft_infer__out(cx, 0, WEFT_DTYPE_BOOL, 0);
    WEFT_TRY(weft_infer__same_dtype(cx, 0, 1));
    if (logic || id != WEFT_OP_EQUAL)
        WEFT_TRY(weft_infer__dtype(cx, 0, logic ? WEFT_M_BOOL : WEFT_M_NUM));
    WEFT_TRY(weft_infer__broadcast(cx, &cx->in[0].type, &cx->in[1].type, out));
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_err weft_infer_where(weft_infer_ctx *cx)
{
    WEFT_TRY(weft_infer__dtype(cx, 0, WEFT_M_BOOL));
    WEFT_TRY(weft_infer__same_dtype(cx, 1, 2));
    weft_ttype *out = weft_infer__out(cx, 0, (weft_dtype)cx->in[1].type.dtype, 0);
    WEFT_TRY(weft_infer__broadcast(cx, &cx->in[1].type, &cx->in[2].type, out));
    WEFT_TRY(weft_infer__broadcast(cx, out, &cx->in[0].type, out));
    weft_content__fold(cx);
    return WEFT_ERR_OK;
}

weft_work weft_work_ew(const weft_work_ctx *cx)
{
    double per = 1;
    if (cx->op->id == WEFT_OP_EW)
        per = weft_steps__flops(cx->attrs, WEFT_ATTR_STEPS);
    else if (cx->n_in > 2)
        per = cx->n_in - 1;
    return weft_work__bytes(cx, per * weft_work__numel(&cx->out[0]));
}

weft_work weft_work_copy(const weft_work_ctx *cx)
{
    return weft_work__bytes(cx, 0);
}

weft_work weft_work_view(const weft_work_ctx *cx)
{
    (void)cx;
    return (weft_work){0};
}

/* -- Functions of two operands -------------------------------------------------------------- */

typedef struct binary {
    weft_eval_map_f32 f32;
    weft_eval_map_f64 f64;
    weft_eval_map_i64 i64, u64;
} binary;

static int64_t wrap_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t wrap_sub(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

static int64_t wrap_mul(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

/* Truncates; a divisor of -1 is a case of its own because INT64_MIN / -1 traps. */
static int64_t div_i64(int64_t a, int64_t b)
{
    return b == 0 ? 0 : b == -1 ? wrap_sub(0, a) : a / b;
}

static uint64_t div_u64(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a / b;
}

/* The sign of the divisor, as in Python. */
static int64_t mod_i64(int64_t a, int64_t b)
{
    if (b == 0 || b == -1)
        return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t rem_i64(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static uint64_t mod_u64(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : a % b;
}

static double mod_floor(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* NaN if an operand is NaN, as in NumPy. */
#define MIN_F(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX_F(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

#define BODY(name, ctype, T, expr)                                                     \
    static void name(const void *state, const ctype *const *in, ctype *out, int64_t n) \
    {                                                                                  \
        (void)state;                                                                   \
        for (int64_t i = 0; i < n; i++) {                                              \
            T a = (T)in[0][i], b = (T)in[1][i];                                        \
            (void)b;                                                                   \
            out[i] = (ctype)(expr);                                                    \
        }                                                                              \
    }

/* F(ENUM, name, float expression, signed, unsigned) */
#define FUNCTIONS(F)                                                  \
    F(ADD, add, a + b, wrap_add(a, b), a + b)                         \
    F(SUB, sub, a - b, wrap_sub(a, b), a - b)                         \
    F(MUL, mul, a *b, wrap_mul(a, b), a *b)                           \
    F(DIV, div, a / b, div_i64(a, b), div_u64(a, b))                  \
    F(MOD, mod, mod_floor(a, b), mod_i64(a, b), mod_u64(a, b))        \
    F(PRELU, prelu, a < 0 ? a * b : a, a < 0 ? wrap_mul(a, b) : a, a) \
    F(MIN, min, MIN_F(a, b), a < b ? a : b, a < b ? a : b)            \
    F(MAX, max, MAX_F(a, b), a > b ? a : b, a > b ? a : b)            \
    F(EQUAL, equal, a == b, a == b, a == b)                           \
    F(GREATER, greater, a > b, a > b, a > b)                          \
    F(LESS, less, a < b, a < b, a < b)                                \
    F(GREATER_OR_EQUAL, greater_or_equal, a >= b, a >= b, a >= b)     \
    F(LESS_OR_EQUAL, less_or_equal, a <= b, a <= b, a <= b)

/* Without a float body. */
#define BIT_FUNCTIONS(F)              \
    F(AND, and, a &b)                 \
    F(OR, or, a | b)                  \
    F(XOR, xor, a ^ b)                \
    F(BITWISE_AND, bitwise_and, a &b) \
    F(BITWISE_OR, bitwise_or, a | b)  \
    F(BITWISE_XOR, bitwise_xor, a ^ b)

#define F(id, name, ef, ei, eu)                 \
    BODY(do_##name##_f32, float, float, ef)     \
    BODY(do_##name##_f64, double, double, ef)   \
    BODY(do_##name##_i64, int64_t, int64_t, ei) \
    BODY(do_##name##_u64, int64_t, uint64_t, eu)
FUNCTIONS(F)
#undef F
#define F(id, name, e) BODY(do_##name##_i64, int64_t, int64_t, e)
BIT_FUNCTIONS(F)
#undef F
BODY(fmod_f32, float, float, fmodf(a, b))
BODY(fmod_f64, double, double, fmod(a, b))
BODY(fmod_i64, int64_t, int64_t, rem_i64(a, b))

static const binary functions[WEFT_OP_COUNT] = {
#define F(id, name, ef, ei, eu) \
    [WEFT_OP_##id] = {do_##name##_f32, do_##name##_f64, do_##name##_i64, do_##name##_u64},
    FUNCTIONS(F)
#undef F
#define F(id, name, e) [WEFT_OP_##id] = {NULL, NULL, do_##name##_i64, do_##name##_i64},
        BIT_FUNCTIONS(F)
#undef F
};

/* The arithmetic is that of the operands; results of comparisons are bool. */
static weft_err run_binary(weft_eval_ctx *cx, const binary *f, const weft_tensor *out,
                           const weft_tensor *a, const weft_tensor *b)
{
    const weft_tensor *in[2] = {a, b};
    weft_eval_map_i64 whole = f->i64;
    switch (weft_eval__arith(a->dtype)) {
    case WEFT_ARITH_F32:
        if (f->f32 != NULL)
            return weft_eval__map_f32(cx, out, in, 2, f->f32, NULL);
        break;
    case WEFT_ARITH_F64:
        if (f->f64 != NULL)
            return weft_eval__map_f64(cx, out, in, 2, f->f64, NULL);
        break;
    case WEFT_ARITH_U64:
        whole = f->u64;
        /* fall through */
    case WEFT_ARITH_I64:
        return weft_eval__map_i64(cx, out, in, 2, whole, NULL);
    }
    return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand cannot be %s", weft_dtype_name(a->dtype));
}

weft_err weft_eval_binary(weft_eval_ctx *cx)
{
    static const binary c_mod = {fmod_f32, fmod_f64, fmod_i64, do_mod_u64};
    const binary *f = &functions[cx->op->id];
    if (cx->op->id == WEFT_OP_MOD && weft_attrs_int(cx->attrs, WEFT_ATTR_FMOD, 0) != 0)
        f = &c_mod;
    return run_binary(cx, f, &cx->out[0], cx->in[0], cx->in[1]);
}

/* -- Any number of operands ----------------------------------------------------------------- */

typedef struct fold {
    const binary *f;
    int32_t n;
    bool mean;
} fold;

#define DEFINE_FOLD(name, T, member)                                           \
    static void name(const void *state, const T *const *in, T *out, int64_t n) \
    {                                                                          \
        const fold *s = state;                                                 \
        memcpy(out, in[0], (size_t)n * sizeof *out);                           \
        for (int32_t j = 1; j < s->n; j++) {                                   \
            const T *arg[2] = {out, in[j]};                                    \
            s->f->member(NULL, arg, out, n);                                   \
        }                                                                      \
        for (int64_t i = 0; s->mean && i < n; i++)                             \
            out[i] /= (T)s->n;                                                 \
    }

DEFINE_FOLD(fold_f32, float, f32)
DEFINE_FOLD(fold_f64, double, f64)
DEFINE_FOLD(fold_i64, int64_t, i64)
DEFINE_FOLD(fold_u64, int64_t, u64)

weft_err weft_eval_variadic(weft_eval_ctx *cx)
{
    weft_op_id id = cx->op->id;
    bool mean = id == WEFT_OP_MEAN;
    fold s = {&functions[mean || id == WEFT_OP_SUM ? WEFT_OP_ADD : id], (int32_t)cx->n_in, mean};
    for (uint32_t i = 0; i < cx->n_in; i++)
        if (cx->in[i] == NULL)
            return WEFT_FAIL(cx, WEFT_ERR_INPUT, "operand %u is missing", i);
    switch (weft_eval__arith(cx->out[0].dtype)) {
    case WEFT_ARITH_F32:
        return weft_eval__map_f32(cx, &cx->out[0], cx->in, s.n, fold_f32, &s);
    case WEFT_ARITH_F64:
        return weft_eval__map_f64(cx, &cx->out[0], cx->in, s.n, fold_f64, &s);
    case WEFT_ARITH_I64:
        return weft_eval__map_i64(cx, &cx->out[0], cx->in, s.n, fold_i64, &s);
    case WEFT_ARITH_U64:
        break;
    }
    return weft_eval__map_i64(cx, &cx->out[0], cx->in, s.n, fold_u64, &s);
}

/* -- Powers, shifts, selection -------------------------------------------------------------- */

static int64_t pow_i64(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
    int64_t r = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1)
            r = wrap_mul(r, a);
        a = wrap_mul(a, a);
    }
    return r;
}

BODY(pow_f32, float, float, b == 2 ? a * a : powf(a, b))
BODY(pow_f64, double, double, b == 2 ? a * a : pow(a, b))
BODY(pow_i64_map, int64_t, int64_t, pow_i64(a, b))

/* The type of the base determines the arithmetic; integers to fractional powers compute in f64. */
weft_err weft_eval_pow(weft_eval_ctx *cx)
{
    bool whole = !weft_dtype_is_float(cx->in[0]->dtype);
    bool whole_exponent = !weft_dtype_is_float(cx->in[1]->dtype);
    if (whole && whole_exponent)
        return weft_eval__map_i64(cx, &cx->out[0], cx->in, 2, pow_i64_map, NULL);
    if (whole || cx->in[0]->dtype == WEFT_DTYPE_F64)
        return weft_eval__map_f64(cx, &cx->out[0], cx->in, 2, pow_f64, NULL);
    return weft_eval__map_f32(cx, &cx->out[0], cx->in, 2, pow_f32, NULL);
}

/* A negative shift is a large unsigned one. Bits behind the type's width are cut off when a result
 * is stored; a signed operand is extended by its sign, so that bits from behind move in. */
BODY(shift_left, int64_t, uint64_t, b < 64 ? a << b : 0)
BODY(shift_right, int64_t, uint64_t, b < 64 ? a >> b : 0)
BODY(shift_right_signed, int64_t, int64_t, b >= 0 && b < 64 ? a >> b : a < 0 ? -1 : 0)

weft_err weft_eval_bit_shift(weft_eval_ctx *cx)
{
    const char *to = weft_attrs_str(cx->attrs, WEFT_ATTR_DIRECTION, "");
    if (strcmp(to, "LEFT") != 0 && strcmp(to, "RIGHT") != 0)
        return WEFT_FAIL(cx, WEFT_ERR_INPUT, "no direction \"%s\"", to);
    bool is_signed = weft_dtype_get_class(cx->out[0].dtype) == WEFT_CLASS_SIGNED;
    weft_eval_map_i64 right = is_signed ? shift_right_signed : shift_right;
    return weft_eval__map_i64(cx, &cx->out[0], cx->in, 2, to[0] == 'L' ? shift_left : right, NULL);
}

#define DEFINE_WHERE(name, T)                                                  \
    static void name(const void *state, const T *const *in, T *out, int64_t n) \
    {                                                                          \
        (void)state;                                                           \
        for (int64_t i = 0; i < n; i++)                                        \
            out[i] = in[0][i] != 0 ? in[1][i] : in[2][i];                      \
    }

DEFINE_WHERE(where_f32, float)
DEFINE_WHERE(where_f64, double)
DEFINE_WHERE(where_i64, int64_t)

weft_err weft_eval_where(weft_eval_ctx *cx)
{
    switch (weft_eval__arith(cx->out[0].dtype)) {
    case WEFT_ARITH_F32:
        return weft_eval__map_f32(cx, &cx->out[0], cx->in, 3, where_f32, NULL);
    case WEFT_ARITH_F64:
        return weft_eval__map_f64(cx, &cx->out[0], cx->in, 3, where_f64, NULL);
    default:
        return weft_eval__map_i64(cx, &cx->out[0], cx->in, 3, where_i64, NULL);
    }
}
