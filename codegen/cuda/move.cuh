/* Copies: each thread computes the source index of its element. T is an unsigned integer of the
 * element's size. */
#ifndef WEFT_MOVE_CUH
#define WEFT_MOVE_CUH
#include "prelude.cuh"

/* y[at] = x[index(at)] for n elements, in vectors of N, which are contiguous in x, too. */
template <int N, class T, class F>
__device__ inline void move(const T *x, T *y, size_t n, F index)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= n)
        return;
    int left = n - at < N ? (int)(n - at) : N;
    T v[N];
    load_pack<N>(v, x, index(at), left);
    store_pack<N>(y, at, v, left);
}

/* Transposes planes of rows x cols, contiguous along the rows in x and along the columns in y, through
 * tiles of shared memory, so that loads and stores both coalesce:
 *
 *     y[yo + row * ys + col] = x[xo + row + col * xs],    rest(plane, &xo, &yo)
 *
 * 256 threads, one block for each tile. */
template <class T, class F>
__device__ inline void transpose(const T *x, T *y, size_t rows, size_t cols, size_t xs, size_t ys,
                                 F rest)
{
    __shared__ T tile[32][33];
    size_t across = (cols + 31) / 32, down = (rows + 31) / 32;
    size_t c0 = blockIdx.x % across * 32, r0 = blockIdx.x / across % down * 32, xo, yo;
    rest(blockIdx.x / across / down, xo, yo);
    int lane = threadIdx.x % 32;
    for (int j = threadIdx.x / 32; j < 32; j += 8)
        if (r0 + lane < rows && c0 + j < cols)
            tile[j][lane] = x[xo + r0 + lane + (c0 + j) * xs];
    __syncthreads();
    for (int j = threadIdx.x / 32; j < 32; j += 8)
        if (r0 + j < rows && c0 + lane < cols)
            y[yo + (r0 + j) * ys + c0 + lane] = tile[lane][j];
}

/* Maps index i, which may be out of range, into an operand of d elements: mode 'e'dge, 'r'eflect or
 * 'w'rap. */
__device__ inline i64 mirror(i64 i, i64 d, char mode)
{
    if (mode == 'e')
        return i < 0 ? 0 : i >= d ? d - 1 : i;
    i64 period = mode == 'w' ? d : d > 1 ? 2 * (d - 1) : 1;
    i %= period;
    i = i < 0 ? i + period : i;
    return i < d ? i : period - i;
}

/* y[at] = x[from] if source(at, from) finds an element, else *value, or 0 without `value`; in vectors
 * of N, of which all elements are inside or all outside. */
template <int N, class T, class F>
__device__ inline void pad(const T *x, T *y, size_t n, F source, const T *value)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N, from = 0;
    if (at >= n)
        return;
    T v[N];
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = value ? *value : (T)0;
    if (source(at, from))
        load_pack<N>(v, x, from, N);
    store_pack<N>(y, at, v, N);
}

/* y[o][i][c] = x[o][index[i]][c] for n elements of y; N divides `inner`. An index out of range
 * gives `absent`, because a launch cannot fail. */
template <int N, class T, class I>
__device__ inline void gather(const T *x, const I *index, T *y, size_t n, size_t count, size_t inner,
                              i64 limit, T absent)
{
    size_t at = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * N;
    if (at >= n)
        return;
    size_t row = at / inner;
    i64 i = index[row % count];
    i += i < 0 ? limit : 0;
    T v[N];
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] = absent;
    if (i >= 0 && i < limit)
        load_pack<N>(v, x, (row / count * limit + i) * inner + at % inner, N);
    store_pack<N>(y, at, v, N);
}

#endif
