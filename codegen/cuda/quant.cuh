/* Linear quantisation (ops/quant.c) in f32; quotients are rounded half to even. */
#ifndef WEFT_QUANT_CUH
#define WEFT_QUANT_CUH
#include "prelude.cuh"

template <class T> __device__ inline T quantized(f32 x, f32 scale, f32 zero)
{
    const f32 y = rintf(x / scale) + zero;
    return convert<T>(y == y ? y : -1e30f);
}

/* The zero point is added before rounding. */
template <class T> __device__ inline T quantized_sum(f32 x, f32 scale, f32 zero)
{
    const f32 y = rintf(x / scale + zero);
    return convert<T>(y == y ? y : -1e30f);
}

/* In f64: 32-bit differences times f32 exceed the precision of f32. */
template <class T, class From, class Zero>
__device__ inline T dequantized(From x, f64 scale, Zero zero)
{
    return convert<T>((f64)((i64)x - (i64)zero) * scale);
}

/* -- Scale and zero point of the data itself --------------------------------------------------- */

/* Ignores NaN. */
struct lesser {
    __device__ static f32 of(f32 a, f32 b)
    {
        return b < a ? b : a;
    }
};
struct greater {
    __device__ static f32 of(f32 a, f32 b)
    {
        return b > a ? b : a;
    }
};

/* Minimum and maximum of x and 0: each block stores those of its part in range[block] and
 * range[BLOCKS + block]. */
template <int THREADS, int BLOCKS>
__device__ inline void find_range(const f32 *x, size_t n, f32 *range)
{
    f32 lo = 0, hi = 0;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += (size_t)BLOCKS * THREADS) {
        lo = lesser::of(lo, x[i]);
        hi = greater::of(hi, x[i]);
    }
    lo = block_reduce<THREADS, lesser>(lo);
    hi = block_reduce<THREADS, greater>(hi);
    if (threadIdx.x == 0) {
        range[blockIdx.x] = lo;
        range[BLOCKS + blockIdx.x] = hi;
    }
}

/* The scale and the zero point of u8 for the range [lo, hi], which contains 0. */
__device__ inline u8 scale_of_range(f32 lo, f32 hi, f32 *step)
{
    *step = hi > lo ? (hi - lo) / 255.0f : 1;
    return lo == -infinity() ? 255 : quantized<u8>(-lo, *step, 0);
}

/* Computes y, *scale and *zero of n elements, one element per thread; a NULL result is skipped. The
 * number of parts equals THREADS. */
template <int THREADS>
__device__ inline void quantize_range(const f32 *x, size_t n, const f32 *range, u8 *y, f32 *scale,
                                      u8 *zero)
{
    f32 lo = block_reduce<THREADS, lesser>(range[threadIdx.x]);
    f32 hi = block_reduce<THREADS, greater>(range[THREADS + threadIdx.x]);
    f32 step;
    u8 at_zero = scale_of_range(lo, hi, &step);
    size_t at = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (y && at < n)
        y[at] = quantized<u8>(x[at], step, (f32)at_zero);
    if (scale && at == 0)
        *scale = step;
    if (zero && at == 0)
        *zero = at_zero;
}

#endif
