/* Part of cpu_vec_body.h: the steps of element-wise programs on floats. */

/* The pointers and scalars (ARGS) are read before the loop: as far as the compiler knows, a store
 * of results may change them. */
#define STEP(name, expr)                                                   \
    static void step_##name(float *dst, const float *const *arg, size_t n) \
    {                                                                      \
        size_t i = 0;                                                      \
        ARGS;                                                              \
        for (; i + LANES <= n; i += LANES) {                               \
            LOAD(load(at[k] + i))                                          \
            store(dst + i, expr);                                          \
        }                                                                  \
        if (i < n) {                                                       \
            LOAD(load_part(at[k] + i, n - i, 1.0f))                        \
            store_part(dst + i, expr, n - i);                              \
        }                                                                  \
    }
#define GET(var, idx, from) \
    vf var;                 \
    {                       \
        enum { k = idx };   \
        var = from;         \
    }
#define ARGS       const float *const at[] = {arg[0]}
#define LOAD(from) GET(x, 0, from)
STEP(relu, max_v(x, splat(0.0f)))
STEP(sigmoid, sigmoid_v(x))
STEP(tanh, tanh_v(x))
STEP(gelu, 0.5f * x * (1.0f + erf_v(x * 0.707106781f)))
STEP(gelu_tanh, gelu_tanh_v(x))
STEP(silu, x / (1.0f + exp_v(-x)))
STEP(erf, erf_v(x))
STEP(exp, exp_v(x))
STEP(log, log_v(x))
STEP(sqrt, sqrt_v(x))
STEP(rsqrt, 1.0f / sqrt_v(x))
STEP(reciprocal, 1.0f / x)
STEP(abs, abs_v(x))
STEP(neg, -x)
STEP(square, x *x)
STEP(hard_swish, x *min_v(max_v(x *(1.0f / 6.0f) + 0.5f, splat(0.0f)), splat(1.0f)))
STEP(softplus, softplus_v(x))
STEP(identity, x)
#undef ARGS
#undef LOAD
#define ARGS const float *const at[] = {arg[0], arg[1]}
#define LOAD(from)  \
    GET(x, 0, from) \
    GET(y, 1, from)
STEP(add, x + y)
STEP(sub, x - y)
STEP(mul, x *y)
STEP(div, x / y)
STEP(min, pick(y == y, min_v(x, y), y))
STEP(max, pick(y == y, max_v(x, y), y))
STEP(leaky_relu, pick(x < 0.0f, x *y, x))
STEP(elu, pick(x < 0.0f, y *(exp_v(x) - 1.0f), x))
#undef ARGS
#undef LOAD
#define ARGS const float *const at[] = {arg[0], arg[1], arg[2]}
#define LOAD(from)  \
    GET(x, 0, from) \
    GET(y, 1, from) \
    GET(z, 2, from)
STEP(clip, min_v(max_v(x, y), z))
STEP(hard_sigmoid, min_v(max_v(x *y + z, splat(0.0f)), splat(1.0f)))
STEP(where, pick(x != 0.0f, y, z))
STEP(quantize_u8, quantize_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_i8, quantize_v(x, y, z, -128.0f, 127.0f))
STEP(dequantize, (x - z) * y)
STEP(multiply_add, x *y + z)
STEP(multiply_add_relu, max_v(x *y + z, splat(0.0f)))
#undef ARGS
#undef LOAD
/* As above, with one scale and one zero point for all elements. */
#define ARGS                            \
    const float *const at[] = {arg[0]}; \
    const vf y = splat(*arg[1]);        \
    const vf z = splat(*arg[2])
#define LOAD(from) GET(x, 0, from)
STEP(quantize_u8_by, quantize_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_i8_by, quantize_v(x, y, z, -128.0f, 127.0f))
STEP(quantize_sum_u8_by, quantize_sum_v(x, y, z, 0.0f, 255.0f))
STEP(quantize_sum_i8_by, quantize_sum_v(x, y, z, -128.0f, 127.0f))
STEP(dequantize_by, (x - z) * y)
STEP(round_trip_u8_by, (quantize_v(x, y, z, 0.0f, 255.0f) - z) * y)
STEP(round_trip_i8_by, (quantize_v(x, y, z, -128.0f, 127.0f) - z) * y)
#undef ARGS
#define ARGS                            \
    const float *const at[] = {arg[0]}; \
    const vf y = splat(*arg[1])
STEP(add_by, x + y)
STEP(sub_by, x - y)
STEP(mul_by, x *y)
STEP(div_by, x / y)
#undef ARGS
#undef LOAD

static void step_pow(float *dst, const float *const *arg, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = arg[1][i] == 2.0f   ? arg[0][i] * arg[0][i]
                 : arg[1][i] == 3.0f ? arg[0][i] * arg[0][i] * arg[0][i]
                                     : powf(arg[0][i], arg[1][i]);
}
