/* Reductions over any axes, argmax and argmin, cumulative sums. Floats are accumulated in f32; f64, and
 * sums under a root or logarithm, in f64; integers in 64 bits. */
#ifndef WEFT_REDUCE_CUH
#define WEFT_REDUCE_CUH
#include "prelude.cuh"

template <class T> struct accumulator {
    typedef i64 type;
};
template <> struct accumulator<u64> {
    typedef u64 type;
};
template <> struct accumulator<f32> {
    typedef f32 type;
};
template <> struct accumulator<f16> {
    typedef f32 type;
};
template <> struct accumulator<bf16> {
    typedef f32 type;
};
template <> struct accumulator<f64> {
    typedef f64 type;
};

/* Values of the accumulator below and above every value of T. */
template <class T, class A> struct extreme {
    __device__ static A least()
    {
        return (T)-1 < (T)0 ? (A) - ((i64)1 << (sizeof(T) * 8 - 2)) * 2 : (A)0;
    }
    __device__ static A most()
    {
        return (T)-1 < (T)0 ? (A)(((i64)1 << (sizeof(T) * 8 - 2)) - 1) * 2 + 1 : (A)(T)-1;
    }
};
template <class A> struct extreme_float {
    __device__ static A least()
    {
        return -infinity();
    }
    __device__ static A most()
    {
        return infinity();
    }
};
template <> struct extreme<f32, f32> : extreme_float<f32> {
};
template <> struct extreme<f16, f32> : extreme_float<f32> {
};
template <> struct extreme<bf16, f32> : extreme_float<f32> {
};
template <> struct extreme<f64, f64> : extreme_float<f64> {
};
template <> struct extreme<bool, i64> {
    __device__ static i64 least()
    {
        return 0;
    }
    __device__ static i64 most()
    {
        return 1;
    }
};

template <class A> __device__ inline A magnitude(A x)
{
    return x < 0 ? -x : x;
}

/* A reduction: initial value, accumulate an element, join two accumulators, final value. op_max and
 * op_min propagate NaN. */
struct fold_sum {
    template <class T, class A> __device__ static A start() { return 0; }
    template <class A> __device__ static A take(A a, A x) { return a + x; }
    template <class A> __device__ static A of(A a, A b) { return a + b; }
    template <class A> __device__ static A end(A a, size_t) { return a; }
};
struct fold_mean : fold_sum {
    template <class A> __device__ static A end(A a, size_t n) { return n > 0 ? a / (A)n : a; }
};
struct fold_l1 : fold_sum {
    template <class A> __device__ static A take(A a, A x) { return a + magnitude(x); }
};
struct fold_sum_square : fold_sum {
    template <class A> __device__ static A take(A a, A x) { return a + x * x; }
};
struct fold_l2 : fold_sum_square {
    template <class A> __device__ static A end(A a, size_t) { return (A)sqrt((f64)a); }
    __device__ static f32 end(f32 a, size_t) { return sqrtf(a); }
};
struct fold_log_sum : fold_sum {
    template <class A> __device__ static A end(A a, size_t) { return (A)log((f64)a); }
    __device__ static f32 end(f32 a, size_t) { return logf(a); }
};
struct fold_prod {
    template <class T, class A> __device__ static A start() { return 1; }
    template <class A> __device__ static A take(A a, A x) { return a * x; }
    template <class A> __device__ static A of(A a, A b) { return a * b; }
    template <class A> __device__ static A end(A a, size_t) { return a; }
};
struct fold_max : op_max {
    template <class T, class A> __device__ static A start() { return extreme<T, A>::least(); }
    template <class A> __device__ static A take(A a, A x) { return of(a, x); }
    template <class A> __device__ static A end(A a, size_t) { return a; }
};
struct fold_min : op_min {
    template <class T, class A> __device__ static A start() { return extreme<T, A>::most(); }
    template <class A> __device__ static A take(A a, A x) { return of(a, x); }
    template <class A> __device__ static A end(A a, size_t) { return a; }
};
/* (sum |x|^P)^(1/P) */
template <int P> struct fold_lp : fold_sum {
    template <class A> __device__ static A take(A a, A x)
    {
        return a + (P == 1 ? magnitude(x) : P == 2 ? x * x : (A)powf(magnitude((f32)x), (f32)P));
    }
    template <class A> __device__ static A end(A a, size_t)
    {
        return P == 1 ? a : P == 2 ? (A)sqrtf((f32)a) : (A)powf((f32)a, 1.0f / P);
    }
};

/* Reduces over THREADS threads: 1, a warp or a block. The first one has the result. */
template <int THREADS, class K, class A> __device__ inline A group_reduce(A x)
{
    if constexpr (THREADS == 1)
        return x;
    else
        return block_reduce<THREADS, K>(x);
}

/* y[o] = reduction K of x[base(o) + step(r)], r < count. A: accumulator type; `at` provides base and
 * step. */
template <int THREADS, class K, class A, class T, class F>
__device__ inline void reduce(const T *x, T *y, size_t n, size_t count, F at)
{
    size_t o = (size_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    if (o >= n)
        return;
    size_t base = at.base(o);
    A acc = K::template start<T, A>();
    for (size_t r = threadIdx.x % THREADS; r < count; r += THREADS)
        acc = K::take(acc, convert<A>(x[base + at.step(r)]));
    acc = group_reduce<THREADS, K>(acc);
    if (threadIdx.x % THREADS == 0)
        y[o] = convert<T>(K::end(acc, count));
}

/* log(sum(exp(x))), with the maximum subtracted unless it is infinite: inf - inf would be NaN. */
template <int THREADS, class A, class T, class F>
__device__ inline void reduce_log_sum_exp(const T *x, T *y, size_t n, size_t count, F at)
{
    size_t o = (size_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    if (o >= n)
        return;
    size_t base = at.base(o);
    A top = -infinity(), sum = 0;
    for (size_t r = threadIdx.x % THREADS; r < count; r += THREADS)
        top = op_max::of(top, convert<A>(x[base + at.step(r)]));
    top = group_reduce<THREADS, op_max>(top);
    if (top == (A)infinity() || top == -(A)infinity())
        top = 0;
    for (size_t r = threadIdx.x % THREADS; r < count; r += THREADS)
        sum += (A)exp(convert<A>(x[base + at.step(r)]) - top);
    sum = group_reduce<THREADS, op_sum>(sum);
    if (threadIdx.x % THREADS == 0)
        y[o] = convert<T>((A)log(sum) + top);
}

/* -- Positions -------------------------------------------------------------------------------- */

/* The position of the best element of each lane, one warp per lane. NaN is not better than any element
 * before it; nothing is better than a NaN at the front. */
template <bool LEAST, bool LAST, class A, class T>
__device__ inline void arg_best(const T *x, i64 *y, size_t lanes, size_t len, size_t step)
{
    size_t lane = (size_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (lane >= lanes)
        return;
    x += lane / step * len * step + lane % step;
    A best = 0;
    i64 where = -1;
    for (size_t i = threadIdx.x % 32; i < len; i += 32) {
        A e = convert<A>(x[i * step]);
        bool better = e == e && (where < 0 || (LEAST ? e < best : e > best) || (LAST && e == best));
        best = better ? e : best;
        where = better ? (i64)i : where;
    }
#pragma unroll
    for (int k = 16; k > 0; k >>= 1) {
        A e = __shfl_xor_sync(WARP_ALL, best, k);
        i64 i = __shfl_xor_sync(WARP_ALL, where, k);
        bool better = i >= 0 && (where < 0 || (LEAST ? e < best : e > best) ||
                                 (e == best && (LAST ? i > where : i < where)));
        best = better ? e : best;
        where = better ? i : where;
    }
    A first = convert<A>(x[0]);
    if (threadIdx.x % 32 == 0)
        y[lane] = first == first ? where : 0;
}

/* -- Running sums ----------------------------------------------------------------------------- */

template <class A, class T>
__device__ inline void cum_sum(const T *x, T *y, size_t lanes, size_t len, size_t step,
                               bool exclusive, bool reverse)
{
    size_t lane = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes)
        return;
    size_t base = lane / step * len * step + lane % step;
    A sum = 0;
    for (size_t k = 0; k < len; k++) {
        size_t at = base + (reverse ? len - 1 - k : k) * step;
        A now = convert<A>(x[at]);
        y[at] = convert<T>(exclusive ? sum : sum + now);
        sum += now;
    }
}

#endif
