/* Pooling over windows, one thread per result. There are three spatial dims; missing ones have size 1
 * and a window of 1, both compile-time constants. */
#ifndef WEFT_POOL_CUH
#define WEFT_POOL_CUH
#include "prelude.cuh"

struct pool_dim {
    int in, out, kernel, stride, dilation, lo, hi;
};

/* Padding for a result of length `out`: half on each side; an odd element is behind, or in front if
 * `lower`. */
__device__ inline pool_dim pool_same(int in, int out, int kernel, int stride, int dilation,
                                     bool lower)
{
    int total = (out - 1) * stride + (kernel - 1) * dilation + 1 - in;
    total = total < 0 ? 0 : total;
    int lo = lower ? total - total / 2 : total / 2;
    pool_dim d = {in, out, kernel, stride, dilation, lo, total - lo};
    return d;
}

/* Positions [first, end) of the window at `start` are inside; `padded` is their number with padding.
 */
struct pool_span {
    int start, first, end, padded;
};

__device__ inline pool_span pool_place(const pool_dim &d, int o)
{
    pool_span s;
    s.start = o * d.stride - d.lo;
    s.first = s.start >= 0 ? 0 : (-s.start + d.dilation - 1) / d.dilation;
    int end = d.in - s.start <= 0 ? 0 : (d.in - s.start + d.dilation - 1) / d.dilation;
    int padded = (d.in + d.hi - s.start + d.dilation - 1) / d.dilation;
    s.end = end < d.kernel ? end : d.kernel;
    s.padded = padded < d.kernel ? padded : d.kernel;
    return s;
}

template <class A> struct pool_max {
    A acc;
    bool found;
    __device__ pool_max() : acc(-infinity()), found(false)
    {
    }
    /* Accumulates x; returns whether x is the new maximum. NaN is greater than any number. */
    __device__ bool take(A x)
    {
        bool better = !found || x > acc || (x != x && acc == acc);
        acc = better ? x : acc;
        found = true;
        return better;
    }
    __device__ A end(int, f32)
    {
        return acc;
    }
};

template <class A, bool PADDED> struct pool_average {
    A acc;
    __device__ pool_average() : acc(0)
    {
    }
    __device__ bool take(A x)
    {
        acc += x;
        return false;
    }
    __device__ A end(int count, f32 padded)
    {
        A n = PADDED ? (A)padded : (A)count;
        return n > 0 ? acc / n : (A)0;
    }
};

template <class A, int P> struct pool_lp {
    A acc;
    __device__ pool_lp() : acc(0)
    {
    }
    __device__ bool take(A x)
    {
        acc += P == 1 ? (A)fabs(x) : P == 2 ? x * x : (A)pow((A)fabs(x), (A)P);
        return false;
    }
    __device__ A end(int, f32)
    {
        return P == 1 ? acc : P == 2 ? (A)sqrt(acc) : (A)pow(acc, (A)1 / P);
    }
};

/* K accumulates a window. Pixels have `inner` channels innermost, of which a thread computes N, which
 * divides them; planes have one. `where`, if not NULL, gets the linear index of the maximum over all
 * planes of x; by_column: column-major order within a plane. */
template <class K, class A, int N, class T>
__device__ inline void pool(const T *x, T *y, i64 *where, size_t n, size_t inner, pool_dim d0,
                            pool_dim d1, pool_dim d2, bool by_column)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N, pixel = at / inner;
    if (at >= n)
        return;
    pool_span s2 = pool_place(d2, (int)(pixel % d2.out));
    pool_span s1 = pool_place(d1, (int)(pixel / d2.out % d1.out));
    pool_span s0 = pool_place(d0, (int)(pixel / d2.out / d1.out % d0.out));
    size_t plane = pixel / d2.out / d1.out / d0.out;
    x += plane * d0.in * d1.in * d2.in * inner + at % inner;
    K k[N];
    int count = 0;
    i64 best = 0;
    for (int i0 = s0.first; i0 < s0.end; i0++)
        for (int i1 = s1.first; i1 < s1.end; i1++)
            for (int i2 = s2.first; i2 < s2.end; i2++) {
                i64 c0 = s0.start + i0 * d0.dilation, c1 = s1.start + i1 * d1.dilation;
                i64 c2 = s2.start + i2 * d2.dilation;
                A v[N];
                load_pack(v, x, ((c0 * d1.in + c1) * d2.in + c2) * inner, N);
                bool better = false;
#pragma unroll
                for (int j = 0; j < N; j++)
                    better = k[j].take(v[j]);
                if (better && where)
                    best = by_column ? (c2 * d1.in + c1) * d0.in + c0
                                     : (c0 * d1.in + c1) * d2.in + c2;
                count++;
            }
    A v[N];
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] = k[j].end(count, (f32)s0.padded * s1.padded * s2.padded);
    store_pack(y, at, v, N);
    if (where)
        where[at] = (i64)(plane * d0.in * d1.in * d2.in) + best;
}

#endif
