/* Element-wise operators that are not steps, for all element types. Arithmetic is that of the reference
 * (ops/ew.c, ops/ew_unary.c): f32 for floats of at most 32 bits, f64, i64 for integers and bool, u64
 * for u64. Operator NAME is math_NAME(x, ...). */
#ifndef WEFT_MATH_CUH
#define WEFT_MATH_CUH
#include "prelude.cuh"

#define WEFT_UNARY(name, expr)                             \
    template <class C> __device__ inline C math_##name(C x) \
    {                                                      \
        return (C)(expr);                                  \
    }
#define WEFT_UNARY_OF(name, params, expr)                          \
    template <class C> __device__ inline C math_##name params \
    {                                                              \
        return (C)(expr);                                          \
    }
#define WEFT_BINARY(name, expr)                                  \
    template <class C> __device__ inline C math_##name(C a, C b) \
    {                                                            \
        return (C)(expr);                                        \
    }
#define WEFT_TEST(name, expr)                                       \
    template <class C> __device__ inline bool math_##name(C a, C b) \
    {                                                               \
        return expr;                                                \
    }
/* Integers wrap. */
#define WEFT_WRAPPED(name, op)                              \
    template <class C> __device__ inline C math_##name(C a, C b) \
    {                                                       \
        return a op b;                                      \
    }                                                       \
    __device__ inline i64 math_##name(i64 a, i64 b)         \
    {                                                       \
        return (i64)((u64)a op (u64)b);                     \
    }

/* -- One operand ------------------------------------------------------------------------------ */

WEFT_UNARY(abs, fabs(x))
__device__ inline i64 math_abs(i64 x) { return x < 0 ? (i64)(0 - (u64)x) : x; }
__device__ inline u64 math_abs(u64 x) { return x; }
WEFT_UNARY(neg, -x)
__device__ inline i64 math_neg(i64 x) { return (i64)(0 - (u64)x); }
WEFT_UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : x)
WEFT_UNARY(ceil, ceil(x))
WEFT_UNARY(floor, floor(x))
WEFT_UNARY(round, rint(x))
WEFT_UNARY(sqrt, sqrt(x))
WEFT_UNARY(rsqrt, 1 / sqrt(x))
WEFT_UNARY(reciprocal, 1 / x)
WEFT_UNARY(square, x *x)
__device__ inline i64 math_square(i64 x) { return (i64)((u64)x * (u64)x); }
WEFT_UNARY(exp, exp(x))
WEFT_UNARY(log, log(x))
WEFT_UNARY(sin, sin(x))
WEFT_UNARY(cos, cos(x))
WEFT_UNARY(tan, tan(x))
WEFT_UNARY(asin, asin(x))
WEFT_UNARY(acos, acos(x))
WEFT_UNARY(atan, atan(x))
WEFT_UNARY(sinh, sinh(x))
WEFT_UNARY(cosh, cosh(x))
WEFT_UNARY(tanh, tanh(x))
WEFT_UNARY(asinh, asinh(x))
WEFT_UNARY(acosh, acosh(x))
WEFT_UNARY(atanh, atanh(x))
WEFT_UNARY(erf, erf(x))
WEFT_UNARY(sigmoid, 1 / (1 + exp(-x)))
WEFT_UNARY(relu, x < 0 ? 0 : x)
WEFT_UNARY(silu, x *math_sigmoid(x))
WEFT_UNARY(softplus, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
WEFT_UNARY(softsign, x / (1 + fabs(x)))
WEFT_UNARY(hard_swish, x *clamp01(x / 6 + (C)0.5))
WEFT_UNARY(mish, x *tanh(math_softplus(x)))
WEFT_UNARY(gelu, (C)0.5 * x * (1 + erf(x * (C)0.70710678118654752440)))
WEFT_UNARY(gelu_tanh,
           (C)0.5 * x * (1 + tanh((C)0.79788456080286535588 * (x + (C)0.044715 * x * x * x))))
WEFT_UNARY(not, x == 0)
WEFT_UNARY(bitwise_not, ~x)

WEFT_UNARY_OF(elu, (C x, C p), x < 0 ? p * expm1(x) : x)
WEFT_UNARY_OF(celu, (C x, C p), x < 0 ? p * expm1(x / p) : x)
WEFT_UNARY_OF(selu, (C x, C p, C q), q * (x > 0 ? x : p * expm1(x)))
WEFT_UNARY_OF(leaky_relu, (C x, C p), x < 0 ? p * x : x)
WEFT_UNARY_OF(thresholded_relu, (C x, C p), x > p ? x : 0)
WEFT_UNARY_OF(hard_sigmoid, (C x, C p, C q), clamp01(p * x + q))
WEFT_UNARY_OF(shrink, (C x, C p, C q), x < -q ? x + p : x > q ? x - p : 0)

template <class C> __device__ inline bool math_is_nan(C x)
{
    return x != x;
}
/* negative, positive: whether this infinity counts. */
template <class C> __device__ inline bool math_is_inf(C x, bool negative, bool positive)
{
    return (negative && x == -(C)infinity()) || (positive && x == (C)infinity());
}

/* -- Two operands ----------------------------------------------------------------------------- */

WEFT_WRAPPED(add, +)
WEFT_WRAPPED(sub, -)
WEFT_WRAPPED(mul, *)
WEFT_BINARY(div, a / b)
/* Division by zero gives 0. */
__device__ inline i64 math_div(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? math_neg(a) : a / b; }
__device__ inline u64 math_div(u64 a, u64 b) { return b == 0 ? 0 : a / b; }

/* fmod has the sign of the dividend, mod that of the divisor. */
WEFT_BINARY(fmod, fmod(a, b))
__device__ inline i64 math_fmod(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
__device__ inline u64 math_fmod(u64 a, u64 b) { return b == 0 ? 0 : a % b; }
template <class C> __device__ inline C math_mod(C a, C b)
{
    C r = math_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

WEFT_BINARY(prelu, a < 0 ? math_mul(a, b) : a)
WEFT_BINARY(min, a < b || a != a ? a : b)
WEFT_BINARY(max, a > b || a != a ? a : b)
WEFT_TEST(equal, a == b)
WEFT_TEST(greater, a > b)
WEFT_TEST(less, a < b)
WEFT_TEST(greater_or_equal, a >= b)
WEFT_TEST(less_or_equal, a <= b)
WEFT_BINARY(and, a &b)
WEFT_BINARY(or, a | b)
WEFT_BINARY(xor, a ^ b)
WEFT_BINARY(shift_left, b < 64 ? a << b : 0)
WEFT_BINARY(shift_right, b < 64 ? a >> b : 0)
WEFT_BINARY(shift_right_signed, b >= 0 && b < 64 ? a >> b : a < 0 ? -1 : 0)
WEFT_BINARY(pow, b == 2 ? a * a : pow(a, b))
__device__ inline i64 math_pow(i64 a, i64 b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
    i64 r = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1)
            r = math_mul(r, a);
        a = math_mul(a, a);
    }
    return r;
}

WEFT_BINARY(at_least, a < b ? b : a)
WEFT_BINARY(at_most, a > b ? b : a)

#endif
