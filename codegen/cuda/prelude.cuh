/* Definitions for all kernels: element types, conversions, vector loads and stores, the functions of
 * steps (ops/steps.def), reductions over warps and blocks.
 *
 * No header of the CUDA toolkit is included. The code also compiles as plain C++ after an emulation of
 * the CUDA keywords (__device__, threadIdx, ...), so that tests run kernels on the host. PTX is used
 * only in wrappers in this file and in mma.cuh, under __CUDA_ARCH__, with an equivalent in C++. */
#ifndef WEFT_PRELUDE_CUH
#define WEFT_PRELUDE_CUH

typedef float f32;
typedef double f64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* Stored as bits, because the compiler's half types need headers. */
struct __align__(2) f16 {
    u16 bits;
};
struct __align__(2) bf16 {
    u16 bits;
};

#define WARP_ALL 0xffffffffu

/* Dynamic shared memory of a block as `type *name`, aligned to 16 bytes. */
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(type, name)                           \
    extern __shared__ __align__(16) unsigned char dynamic_[]; \
    type *name = (type *)dynamic_
#endif

/* -- Conversions --------------------------------------------------------------------------- */

__device__ inline f32 infinity()
{
    return __int_as_float(0x7f800000);
}

#ifndef __CUDA_ARCH__
/* Half precision on the host: to f32 exact, from f32 rounded to nearest even. */
inline f32 half_to_f32(u16 h)
{
    u32 sign = (u32)(h & 0x8000u) << 16, exp = (h >> 10) & 31, frac = h & 0x3ffu;
    if (exp == 31)
        return __int_as_float((int)(sign | 0x7f800000u | (frac << 13)));
    if (exp == 0) {
        f32 x = (f32)frac * 5.9604644775390625e-08f; /* 2^-24 */
        return sign ? -x : x;
    }
    return __int_as_float((int)(sign | ((exp + 112) << 23) | (frac << 13)));
}

inline u16 f32_to_half(f32 x)
{
    u32 bits = (u32)__float_as_int(x), sign = (bits >> 16) & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return 0x7fff;
    if (bits >= 0x477ff000u) /* rounds to at least 65536: infinity */
        return (u16)(sign | 0x7c00u);
    if (bits < 0x38800000u) { /* subnormal: the addition rounds to units of 2^-24 */
        f32 y = __int_as_float((int)bits) + 0.5f;
        return (u16)(sign | ((u32)__float_as_int(y) - 0x3f000000u));
    }
    bits += 0xfffu + ((bits >> 13) & 1u);
    return (u16)(sign | ((bits - 0x38000000u) >> 13));
}
#endif

__device__ inline f32 to_f32(f16 x)
{
#ifdef __CUDA_ARCH__
    f32 y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    return half_to_f32(x.bits);
#endif
}

__device__ inline f32 to_f32(bf16 x)
{
    return __int_as_float((int)((u32)x.bits << 16));
}

__device__ inline f16 to_f16(f32 x)
{
    f16 y;
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    y.bits = f32_to_half(x);
#endif
    return y;
}

__device__ inline bf16 to_bf16(f32 x)
{
    bf16 y;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    u32 bits = (u32)__float_as_int(x);
    y.bits = x != x ? 0x7fff : (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
    return y;
}

/* Float to integer: rounds towards zero, saturates, NaN to 0. */
template <class T, class F> __device__ inline T whole(F x, F lo, F hi)
{
    return x != x ? (T)0 : x <= lo ? (T)lo : x >= hi ? (T)hi : (T)x;
}

/* convert<TO>(x): the conversion of operator `cast`. */
template <class To> struct converter {
    /* Between integers: keeps the low bits. */
    template <class From> __device__ static To of(From x)
    {
        return (To)x;
    }
};

/* Real: a type with the bounds, in which f32 is compared. f64 is slow on many GPUs. */
#define WEFT_WHOLE(type, Real, lo, hi)                \
    template <> struct converter<type> {              \
        template <class From>                         \
        __device__ static type of(From x)             \
        {                                             \
            return (type)x;                           \
        }                                             \
        __device__ static type of(f32 x)              \
        {                                             \
            return whole<type, Real>(x, lo, hi);      \
        }                                             \
        __device__ static type of(f64 x)              \
        {                                             \
            return whole<type, f64>(x, lo, hi);       \
        }                                             \
        __device__ static type of(f16 x)              \
        {                                             \
            return of(to_f32(x));                     \
        }                                             \
        __device__ static type of(bf16 x)             \
        {                                             \
            return of(to_f32(x));                     \
        }                                             \
    };

WEFT_WHOLE(i8, f32, -128, 127)
WEFT_WHOLE(i16, f32, -32768, 32767)
WEFT_WHOLE(i32, f64, -2147483648.0, 2147483647.0)
WEFT_WHOLE(u8, f32, 0, 255)
WEFT_WHOLE(u16, f32, 0, 65535)
WEFT_WHOLE(u32, f64, 0, 4294967295.0)

template <> struct converter<i64> {
    template <class From> __device__ static i64 of(From x)
    {
        return (i64)x;
    }
    __device__ static i64 of(f64 x)
    {
        const i64 most = 0x7fffffffffffffffll;
        return x != x ? 0
               : x >= 9223372036854775808.0 ? most
               : x < -9223372036854775808.0 ? -most - 1
                                             : (i64)x;
    }
    __device__ static i64 of(f32 x)
    {
        return of((f64)x);
    }
    __device__ static i64 of(f16 x)
    {
        return of(to_f32(x));
    }
    __device__ static i64 of(bf16 x)
    {
        return of(to_f32(x));
    }
};

template <> struct converter<u64> {
    template <class From> __device__ static u64 of(From x)
    {
        return (u64)x;
    }
    __device__ static u64 of(f64 x)
    {
        return !(x > 0) ? 0 : x >= 18446744073709551616.0 ? 0xffffffffffffffffull : (u64)x;
    }
    __device__ static u64 of(f32 x)
    {
        return of((f64)x);
    }
    __device__ static u64 of(f16 x)
    {
        return of(to_f32(x));
    }
    __device__ static u64 of(bf16 x)
    {
        return of(to_f32(x));
    }
};

template <> struct converter<bool> {
    template <class From> __device__ static bool of(From x)
    {
        return x != 0;
    }
    __device__ static bool of(f16 x)
    {
        return to_f32(x) != 0;
    }
    __device__ static bool of(bf16 x)
    {
        return to_f32(x) != 0;
    }
};

/* of_f16, of_bf16: expressions for those types; a type itself is kept as it is. */
#define WEFT_FLOAT(type, from_f32, of_f16, of_bf16) \
    template <> struct converter<type> {            \
        template <class From>                       \
        __device__ static type of(From x)           \
        {                                           \
            return from_f32((f32)x);                \
        }                                           \
        __device__ static type of(f16 x)            \
        {                                           \
            return of_f16;                          \
        }                                           \
        __device__ static type of(bf16 x)           \
        {                                           \
            return of_bf16;                         \
        }                                           \
    };

WEFT_FLOAT(f32, , to_f32(x), to_f32(x))
WEFT_FLOAT(f16, to_f16, x, to_f16(to_f32(x)))
WEFT_FLOAT(bf16, to_bf16, to_bf16(to_f32(x)), x)

template <> struct converter<f64> {
    template <class From> __device__ static f64 of(From x)
    {
        return (f64)x;
    }
    __device__ static f64 of(f16 x)
    {
        return to_f32(x);
    }
    __device__ static f64 of(bf16 x)
    {
        return to_f32(x);
    }
};

template <class To, class From> __device__ inline To convert(From x)
{
    return converter<To>::of(x);
}

__device__ inline f32 to_f32(f32 x)
{
    return x;
}

/* -- Memory --------------------------------------------------------------------------------- */

/* A vector of N elements, loaded or stored at once; N * sizeof(T) is 2, 4, 8 or 16. */
template <class T, int N> struct __align__(sizeof(T) * N) pack {
    T at[N];
};

template <class T, int N> __device__ inline bool is_aligned(const T *p)
{
    return ((size_t)p & (sizeof(T) * N - 1)) == 0;
}

/* out[i] = x[at + i] converted to C, for i < min(N, left); other elements are unchanged. */
template <int N, class C, class T>
__device__ inline void load_pack(C (&out)[N], const T *x, size_t at, int left)
{
    if (N > 1 && left >= N && is_aligned<T, N>(x + at)) {
        pack<T, N> p = *(const pack<T, N> *)(x + at);
#pragma unroll
        for (int i = 0; i < N; i++)
            out[i] = convert<C>(p.at[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left)
                out[i] = convert<C>(x[at + i]);
    }
}

template <int N, class C, class T>
__device__ inline void store_pack(T *y, size_t at, const C (&in)[N], int left)
{
    if (N > 1 && left >= N && is_aligned<T, N>(y + at)) {
        pack<T, N> p;
#pragma unroll
        for (int i = 0; i < N; i++)
            p.at[i] = convert<T>(in[i]);
        *(pack<T, N> *)(y + at) = p;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left)
                y[at + i] = convert<T>(in[i]);
    }
}

/* -- Steps ------------------------------------------------------------------------------------ */

__device__ inline f32 step_add(f32 x, f32 y) { return x + y; }
__device__ inline f32 step_sub(f32 x, f32 y) { return x - y; }
__device__ inline f32 step_mul(f32 x, f32 y) { return x * y; }
__device__ inline f32 step_div(f32 x, f32 y) { return x / y; }
__device__ inline f32 step_pow(f32 x, f32 y) { return y == 2 ? x * x : powf(x, y); }
__device__ inline f32 step_min(f32 x, f32 y) { return x < y || x != x ? x : y; }
__device__ inline f32 step_max(f32 x, f32 y) { return x > y || x != x ? x : y; }
__device__ inline f32 step_relu(f32 x) { return x < 0 ? 0 : x; }
__device__ inline f32 step_clip(f32 x, f32 lo, f32 hi)
{
    x = x < lo ? lo : x;
    return x > hi ? hi : x;
}
__device__ inline f32 step_sigmoid(f32 x) { return 1 / (1 + expf(-x)); }
__device__ inline f32 step_tanh(f32 x) { return tanhf(x); }
__device__ inline f32 step_gelu(f32 x)
{
    return 0.5f * x * (1 + erff(x * 0.70710678118654752f));
}
__device__ inline f32 step_gelu_tanh(f32 x)
{
    return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
__device__ inline f32 step_silu(f32 x) { return x / (1 + expf(-x)); }
__device__ inline f32 step_erf(f32 x) { return erff(x); }
__device__ inline f32 step_exp(f32 x) { return expf(x); }
__device__ inline f32 step_log(f32 x) { return logf(x); }
__device__ inline f32 step_sqrt(f32 x) { return sqrtf(x); }
__device__ inline f32 step_rsqrt(f32 x) { return 1 / sqrtf(x); }
__device__ inline f32 step_reciprocal(f32 x) { return 1 / x; }
__device__ inline f32 step_abs(f32 x) { return fabsf(x); }
__device__ inline f32 step_neg(f32 x) { return -x; }
__device__ inline f32 step_square(f32 x) { return x * x; }
__device__ inline f32 step_leaky_relu(f32 x, f32 alpha) { return x < 0 ? alpha * x : x; }
__device__ inline f32 step_elu(f32 x, f32 alpha) { return x < 0 ? alpha * expm1f(x) : x; }
/* x within 0 .. 1; NaN stays. */
template <class C> __device__ inline C clamp01(C x) { return x < 0 ? (C)0 : x > 1 ? (C)1 : x; }
__device__ inline f32 step_hard_sigmoid(f32 x, f32 alpha, f32 beta)
{
    return clamp01(alpha * x + beta);
}
__device__ inline f32 step_hard_swish(f32 x) { return x * clamp01(x / 6 + 0.5f); }
__device__ inline f32 step_softplus(f32 x)
{
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}
__device__ inline f32 step_quantize(f32 x, f32 scale, f32 zero, f32 lo, f32 hi)
{
    const f32 y = rintf(x / scale) + zero;
    return y > lo ? (y < hi ? y : hi) : lo;
}
__device__ inline f32 step_quantize_u8(f32 x, f32 scale, f32 zero)
{
    return step_quantize(x, scale, zero, 0, 255);
}
__device__ inline f32 step_quantize_i8(f32 x, f32 scale, f32 zero)
{
    return step_quantize(x, scale, zero, -128, 127);
}
__device__ inline f32 step_dequantize(f32 x, f32 scale, f32 zero) { return (x - zero) * scale; }
__device__ inline f32 step_where(f32 x, f32 a, f32 b) { return x != 0 ? a : b; }
__device__ inline f32 step_identity(f32 x) { return x; }

/* -- Sums and maxima -------------------------------------------------------------------------- */

struct op_sum {
    template <class T> __device__ static T of(T a, T b)
    {
        return a + b;
    }
};

/* NaN in either operand gives NaN. */
struct op_max {
    template <class T> __device__ static T of(T a, T b)
    {
        return a > b || a != a ? a : b;
    }
};
struct op_min {
    template <class T> __device__ static T of(T a, T b)
    {
        return a < b || a != a ? a : b;
    }
};

/* Reduces over the 32 threads of a warp; all threads get the same bits. */
template <class Op, class T> __device__ inline T warp_reduce(T x)
{
#pragma unroll
    for (int lane = 16; lane > 0; lane >>= 1)
        x = Op::of(x, __shfl_xor_sync(WARP_ALL, x, lane));
    return x;
}

/* Reduces over a block of THREADS (a multiple of 32). All threads call it and get the result. */
template <int THREADS, class Op, class T> __device__ inline T block_reduce(T x)
{
    if (THREADS == 32)
        return warp_reduce<Op>(x);
    __shared__ T part[THREADS / 32];
    x = warp_reduce<Op>(x);
    __syncthreads(); /* other threads may still read the previous call's result */
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; i++)
        x = Op::of(x, part[i]);
    return x;
}

#endif
