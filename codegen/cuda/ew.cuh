/* Element-wise chains and casts. Each thread computes N consecutive elements, 16 bytes of the widest
 * operand. Bound by memory bandwidth. */
#ifndef WEFT_EW_CUH
#define WEFT_EW_CUH
#include "prelude.cuh"

/* y = f(...) for n elements; f(v, at, left) computes the elements from `at` on. */
template <int N, class F, class T> __device__ inline void ew(F f, T *y, size_t n)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= n)
        return;
    int left = n - at < N ? (int)(n - at) : N;
    f32 v[N];
    f(v, at, left);
    store_pack<N>(y, at, v, left);
}

template <int N, class From, class To>
__device__ inline void cast(const From *x, To *y, size_t n)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= n)
        return;
    int left = n - at < N ? (int)(n - at) : N;
    From v[N];
    load_pack<N>(v, x, at, left);
    store_pack<N>(y, at, v, left);
}

#endif
