/* Emits element-wise operators that are not steps (math.cuh): integers, f64, comparisons, logic,
 * and rare functions. A thread computes an element; operands are broadcast by index arithmetic. */
#include "codegen/cuda/cuda_int.h"

#include <math.h>
#include <string.h>

enum { THREADS = 256, NUMBERS = 1 << 6 };

/* The current kernel and the type of its arithmetic. */
typedef struct math {
    weft_cuda *cu;
    weft_cuda_kernel *k;
    weft_attrs attrs;
    const char *name, *arith;
} math;

const char *weft_cuda__arith(weft_dtype dtype)
{
    if (weft_dtype_is_float(dtype))
        return dtype == WEFT_DTYPE_F64 ? "f64" : "f32";
    return dtype == WEFT_DTYPE_U64 ? "u64" : "i64";
}

/* Adds operand i to the parameters; returns an expression for its element at index `at`. */
static weft_err element(const math *a, uint32_t i, const char **out)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    const char *name = weft_arena_printf(arena, "x%u", i), *index;
    WEFT_TRY(weft_cuda__index(a->k, i, "at", &index));
    weft_cuda__in(a->k, name, i);
    *out = weft_arena_printf(arena, "%s[%s]", name, index);
    return WEFT_ERR_OK;
}

/* The same, converted to the type of the arithmetic. */
static weft_err number(const math *a, uint32_t i, const char **out)
{
    const char *text;
    WEFT_TRY(element(a, i, &text));
    *out = weft_arena_printf(weft_cuda__arena(a->cu), "convert<%s>(%s)", a->arith, text);
    return WEFT_ERR_OK;
}

static const char *constant(const math *a, double x)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    return isfinite(x) ? weft_arena_printf(arena, "(%s)%.17g", a->arith, x)
                       : weft_cuda__f32_text(a->cu, (float)x);
}

/* -- Expressions ------------------------------------------------------------------------------- */

static weft_err unary(const math *a, weft_op_id id, const char **out)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    double param[2];
    uint32_t n = weft_unary_params(id, a->attrs, param);
    bool by_tanh = id == WEFT_OP_GELU &&
                   strcmp(weft_attrs_str(a->attrs, WEFT_ATTR_APPROXIMATE, "none"), "tanh") == 0;
    const char *x;
    WEFT_TRY(number(a, 0, &x));
    for (uint32_t i = 0; i < n; i++)
        x = weft_arena_printf(arena, "%s, %s", x, constant(a, param[i]));
    *out = weft_arena_printf(arena, "math_%s%s(%s)", a->name, by_tanh ? "_tanh" : "", x);
    return WEFT_ERR_OK;
}

/* Left fold: op(op(x0, x1), x2)... */
static weft_err fold(const math *a, const char *function, uint32_t n, const char **out)
{
    WEFT_TRY(number(a, 0, out));
    for (uint32_t i = 1; i < n; i++) {
        const char *x;
        WEFT_TRY(number(a, i, &x));
        *out = weft_arena_printf(weft_cuda__arena(a->cu), "math_%s(%s, %s)", function, *out, x);
    }
    return WEFT_ERR_OK;
}

static weft_err where(const math *a, const char **out)
{
    const char *x[3];
    for (uint32_t i = 0; i < 3; i++)
        WEFT_TRY(element(a, i, &x[i]));
    *out = weft_arena_printf(weft_cuda__arena(a->cu), "%s ? %s : %s", x[0], x[1], x[2]);
    return WEFT_ERR_OK;
}

/* Bounds are attributes or operands of one element. */
static weft_err clip(const math *a, const char **out)
{
    static const weft_attr_key key[] = {WEFT_ATTR_MIN, WEFT_ATTR_MAX};
    weft_arena *arena = weft_cuda__arena(a->cu);
    WEFT_TRY(number(a, 0, out));
    for (uint32_t i = 0; i < 2; i++) {
        const weft_attr *given = weft_attrs_find(a->attrs, key[i]);
        const char *bound = NULL;
        if (given && given->kind == WEFT_KIND_INT)
            bound = weft_arena_printf(arena, "(%s)%lldll", a->arith, (long long)given->u.i);
        else if (given)
            bound = constant(a, weft_attrs_float(a->attrs, key[i], 0));
        else if (weft_cuda__in_type(a->cu, i + 1))
            WEFT_TRY(number(a, i + 1, &bound));
        if (bound)
            *out = weft_arena_printf(arena, "math_%s(%s, %s)", i ? "at_most" : "at_least", *out,
                                     bound);
    }
    return WEFT_ERR_OK;
}

static weft_err is_inf(const math *a, const char **out)
{
    const char *x;
    WEFT_TRY(number(a, 0, &x));
    *out = weft_arena_printf(weft_cuda__arena(a->cu), "math_is_inf(%s, %d, %d)", x,
                             weft_attrs_int(a->attrs, WEFT_ATTR_DETECT_NEGATIVE, 1) != 0,
                             weft_attrs_int(a->attrs, WEFT_ATTR_DETECT_POSITIVE, 1) != 0);
    return WEFT_ERR_OK;
}

static weft_err bit_shift(math *a, uint32_t n, const char **out)
{
    bool left = strcmp(weft_attrs_str(a->attrs, WEFT_ATTR_DIRECTION, "LEFT"), "LEFT") == 0;
    bool is_signed =
        weft_dtype_get_class((weft_dtype)weft_cuda__in_type(a->cu, 0)->dtype) == WEFT_CLASS_SIGNED;
    a->arith = is_signed && !left ? "i64" : "u64";
    return fold(a, left ? "shift_left" : is_signed ? "shift_right_signed" : "shift_right", n, out);
}

static weft_err express(math *a, weft_op_id id, uint32_t n, const char **out)
{
    bool whole = !weft_dtype_is_float((weft_dtype)weft_cuda__in_type(a->cu, 0)->dtype);
    switch (id) {
    case WEFT_OP_WHERE:
        return where(a, out);
    case WEFT_OP_CLIP:
        return clip(a, out);
    case WEFT_OP_IS_INF:
        return is_inf(a, out);
    case WEFT_OP_BIT_SHIFT:
        return bit_shift(a, n, out);
    case WEFT_OP_POW: /* an integer to the power of a float is computed in f64 */
        if (whole)
            a->arith = weft_dtype_is_float((weft_dtype)weft_cuda__in_type(a->cu, 1)->dtype) ? "f64"
                                                                                            : "i64";
        return fold(a, "pow", n, out);
    case WEFT_OP_MOD:
        return fold(a, weft_attrs_int(a->attrs, WEFT_ATTR_FMOD, 0) ? "fmod" : "mod", n, out);
    case WEFT_OP_BITWISE_AND:
    case WEFT_OP_BITWISE_OR:
    case WEFT_OP_BITWISE_XOR:
        return fold(a, a->name + strlen("bitwise_"), n, out);
    case WEFT_OP_MEAN:
        WEFT_TRY(fold(a, "add", n, out));
        *out = weft_arena_printf(weft_cuda__arena(a->cu), "%s / (%s)%u", *out, a->arith, n);
        return WEFT_ERR_OK;
    case WEFT_OP_SUM:
        return fold(a, "add", n, out);
    default:
        if (id == WEFT_OP_SHRINK && whole)
            a->arith = "f64";
        return n == 1 && id != WEFT_OP_MIN && id != WEFT_OP_MAX ? unary(a, id, out)
                                                                : fold(a, a->name, n, out);
    }
}

weft_err weft_cuda_emit_math(weft_cuda *cu, weft_node n)
{
    weft_module *m = weft_cuda__module(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    uint32_t n_in = weft_node_in_count(m, n);
    math a = {.cu = cu, .attrs = weft_cuda__attrs(cu), .name = weft_node_opdef(m, n)->name};
    const char *value;
    if (n_in > NUMBERS)
        return weft_cuda__unsup(cu, "%u operands, at most %d", n_in, NUMBERS);
    a.arith = weft_cuda__arith((weft_dtype)x->dtype);
    a.k = weft_cuda__kernel(cu, a.name, THREADS);
    weft_cuda__include(a.k, "math.cuh");
    weft_cuda__out(a.k, "y", 0);
    weft_cuda__each(a.k, y->dim, y->rank);
    WEFT_TRY(express(&a, weft_node_op(m, n), n_in, &value));
    weft_buf_printf(weft_cuda__body(a.k), "    y[at] = convert<%s>(%s);\n",
                    weft_dtype_name((weft_dtype)y->dtype), value);
    weft_cuda__launch(a.k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
