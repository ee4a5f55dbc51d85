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
static const char *element(const math *a, uint32_t i)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    const char *name = weft_arena_printf(arena, "x%u", i);
    weft_cuda__in(a->k, name, i);
    return weft_arena_printf(arena, "%s[%s]", name, weft_cuda__index(a->k, i, "at"));
}

/* The same, converted to the type of the arithmetic. */
static const char *number(const math *a, uint32_t i)
{
    return weft_arena_printf(weft_cuda__arena(a->cu), "convert<%s>(%s)", a->arith, element(a, i));
}

static const char *constant(const math *a, double x)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    return isfinite(x) ? weft_arena_printf(arena, "(%s)%.17g", a->arith, x)
                       : weft_cuda__f32_text(a->cu, (float)x);
}

/* -- Expressions ------------------------------------------------------------------------------- */

static const char *unary(const math *a, weft_op_id id)
{
    weft_arena *arena = weft_cuda__arena(a->cu);
    double param[2];
    uint32_t n = weft_unary_params(id, a->attrs, param);
    bool by_tanh = id == WEFT_OP_GELU &&
                   strcmp(weft_attrs_str(a->attrs, WEFT_ATTR_APPROXIMATE, "none"), "tanh") == 0;
    const char *x = number(a, 0);
    for (uint32_t i = 0; i < n; i++)
        x = weft_arena_printf(arena, "%s, %s", x, constant(a, param[i]));
    return weft_arena_printf(arena, "math_%s%s(%s)", a->name, by_tanh ? "_tanh" : "", x);
}

/* Left fold: op(op(x0, x1), x2)... */
static const char *fold(const math *a, const char *function, uint32_t n)
{
    const char *all = number(a, 0);
    for (uint32_t i = 1; i < n; i++)
        all = weft_arena_printf(weft_cuda__arena(a->cu), "math_%s(%s, %s)", function, all,
                                number(a, i));
    return all;
}

static const char *where(const math *a)
{
    const char *x[3];
    for (uint32_t i = 0; i < 3; i++)
        x[i] = element(a, i);
    return weft_arena_printf(weft_cuda__arena(a->cu), "%s ? %s : %s", x[0], x[1], x[2]);
}

/* Bounds are attributes or operands of one element; floats have bounds without any. */
static const char *clip(const math *a)
{
    static const weft_attr_key key[] = {WEFT_ATTR_MIN, WEFT_ATTR_MAX};
    weft_arena *arena = weft_cuda__arena(a->cu);
    weft_dtype dtype = (weft_dtype)weft_cuda__in_type(a->cu, 0)->dtype;
    const char *x = number(a, 0);
    for (uint32_t i = 0; i < 2; i++) {
        const weft_attr *given = weft_attrs_find(a->attrs, key[i]);
        const char *bound = NULL;
        if (given && given->kind == WEFT_KIND_INT)
            bound = weft_arena_printf(arena, "(%s)%lldll", a->arith, (long long)given->u.i);
        else if (given)
            bound = constant(a, weft_attrs_float(a->attrs, key[i], 0));
        else if (weft_cuda__in_type(a->cu, i + 1))
            bound = number(a, i + 1);
        else if (weft_dtype_is_float(dtype))
            bound = constant(a, i ? weft_clip_limit(dtype) : -weft_clip_limit(dtype));
        if (bound)
            x = weft_arena_printf(arena, "math_%s(%s, %s)", i ? "at_most" : "at_least", x, bound);
    }
    return x;
}

static const char *is_inf(const math *a)
{
    return weft_arena_printf(weft_cuda__arena(a->cu), "math_is_inf(%s, %d, %d)", number(a, 0),
                             weft_attrs_int(a->attrs, WEFT_ATTR_DETECT_NEGATIVE, 1) != 0,
                             weft_attrs_int(a->attrs, WEFT_ATTR_DETECT_POSITIVE, 1) != 0);
}

static const char *bit_shift(math *a, uint32_t n)
{
    bool left = strcmp(weft_attrs_str(a->attrs, WEFT_ATTR_DIRECTION, "LEFT"), "LEFT") == 0;
    bool is_signed =
        weft_dtype_get_class((weft_dtype)weft_cuda__in_type(a->cu, 0)->dtype) == WEFT_CLASS_SIGNED;
    a->arith = is_signed && !left ? "i64" : "u64";
    return fold(a, left ? "shift_left" : is_signed ? "shift_right_signed" : "shift_right", n);
}

static const char *express(math *a, weft_op_id id, uint32_t n)
{
    bool whole = !weft_dtype_is_float((weft_dtype)weft_cuda__in_type(a->cu, 0)->dtype);
    switch (id) {
    case WEFT_OP_WHERE:
        return where(a);
    case WEFT_OP_CLIP:
        return clip(a);
    case WEFT_OP_IS_INF:
        return is_inf(a);
    case WEFT_OP_BIT_SHIFT:
        return bit_shift(a, n);
    case WEFT_OP_POW: /* an integer to the power of a float is computed in f64 */
        if (whole)
            a->arith = weft_dtype_is_float((weft_dtype)weft_cuda__in_type(a->cu, 1)->dtype) ? "f64"
                                                                                            : "i64";
        return fold(a, "pow", n);
    case WEFT_OP_MOD:
        return fold(a, weft_attrs_int(a->attrs, WEFT_ATTR_FMOD, 0) ? "fmod" : "mod", n);
    case WEFT_OP_BITWISE_AND:
    case WEFT_OP_BITWISE_OR:
    case WEFT_OP_BITWISE_XOR:
        return fold(a, a->name + strlen("bitwise_"), n);
    case WEFT_OP_MEAN:
        return weft_arena_printf(weft_cuda__arena(a->cu), "%s / (%s)%u", fold(a, "add", n),
                                 a->arith, n);
    case WEFT_OP_SUM:
        return fold(a, "add", n);
    default:
        if (id == WEFT_OP_SHRINK && whole)
            a->arith = "f64";
        return n == 1 && id != WEFT_OP_MIN && id != WEFT_OP_MAX ? unary(a, id)
                                                                : fold(a, a->name, n);
    }
}

weft_err weft_cuda_emit_math(weft_cuda *cu, weft_node n)
{
    weft_module *m = weft_cuda__module(cu);
    const weft_ttype *x = weft_cuda__in_type(cu, 0), *y = weft_cuda__out_type(cu, 0);
    uint32_t n_in = weft_node_in_count(m, n);
    math a = {.cu = cu, .attrs = weft_cuda__attrs(cu), .name = weft_node_opdef(m, n)->name};
    if (n_in > NUMBERS)
        return weft_cuda__unsup(cu, "%u operands, at most %d", n_in, NUMBERS);
    a.arith = weft_cuda__arith((weft_dtype)x->dtype);
    a.k = weft_cuda__kernel(cu, a.name, THREADS);
    weft_cuda__include(a.k, "math.cuh");
    weft_cuda__out(a.k, "y", 0);
    weft_cuda__each(a.k, y->dim, y->rank);
    weft_buf_printf(weft_cuda__body(a.k), "    y[at] = convert<%s>(%s);\n",
                    weft_dtype_name((weft_dtype)y->dtype), express(&a, weft_node_op(m, n), n_in));
    weft_cuda__launch(a.k, weft_cuda__packs(cu, weft_cuda__numel(cu, y), 1, THREADS), 1, 1, 0);
    return WEFT_ERR_OK;
}
