/* Normalisation and softmax. A warp or a block computes a contiguous row, in registers if it fits; one
 * thread computes a lane across rows. The variance takes two passes, because E[x^2] - E[x]^2 cancels
 * when the mean is far from 0. */
#ifndef WEFT_NORM_CUH
#define WEFT_NORM_CUH
#include "prelude.cuh"

/* The row of a group of THREADS threads; a block may have several groups. */
template <int THREADS> __device__ inline size_t group_row()
{
    return (size_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
}

/* y = affine((x - mean) / sqrt(variance + eps)) for rows of at most THREADS * N * ITEMS elements.
 * affine(v, row, at, left) scales the elements from `at` on. mean_out and inv_out may be NULL. */
template <int THREADS, int N, int ITEMS, class T, class A>
__device__ inline void norm_rows(const T *x, T *y, size_t rows, int len, f32 eps, A affine,
                                 f32 *mean_out, f32 *inv_out)
{
    size_t row = group_row<THREADS>();
    int lane = threadIdx.x % THREADS;
    if (row >= rows)
        return;
    f32 v[ITEMS][N], sum = 0, var = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int at = (i * THREADS + lane) * N;
#pragma unroll
        for (int n = 0; n < N; n++)
            v[i][n] = 0;
        if (at < len)
            load_pack<N>(v[i], x + row * len, at, len - at);
#pragma unroll
        for (int n = 0; n < N; n++)
            sum += v[i][n];
    }
    f32 mean = block_reduce<THREADS, op_sum>(sum) / len;
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            v[i][n] -= mean;
            if ((i * THREADS + lane) * N + n < len)
                var += v[i][n] * v[i][n];
        }
    f32 inv = 1 / sqrtf(block_reduce<THREADS, op_sum>(var) / len + eps);
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int at = (i * THREADS + lane) * N;
#pragma unroll
        for (int n = 0; n < N; n++)
            v[i][n] *= inv;
        if (at < len) {
            affine(v[i], row, at, len - at);
            store_pack<N>(y + row * len, at, v[i], len - at);
        }
    }
    if (lane == 0 && mean_out)
        mean_out[row] = mean;
    if (lane == 0 && inv_out)
        inv_out[row] = inv;
}

/* The same for rows of any length, one block per row; rows are read three times. */
template <int THREADS, int N, class T, class A>
__device__ inline void norm_long(const T *x, T *y, int len, f32 eps, A affine, f32 *mean_out,
                                 f32 *inv_out)
{
    size_t row = blockIdx.x;
    f32 sum = 0, var = 0;
    x += row * len;
    y += row * len;
    for (int at = threadIdx.x; at < len; at += THREADS)
        sum += convert<f32>(x[at]);
    f32 mean = block_reduce<THREADS, op_sum>(sum) / len;
    for (int at = threadIdx.x; at < len; at += THREADS) {
        f32 d = convert<f32>(x[at]) - mean;
        var += d * d;
    }
    f32 inv = 1 / sqrtf(block_reduce<THREADS, op_sum>(var) / len + eps);
    for (int at = threadIdx.x * N; at < len; at += THREADS * N) {
        f32 v[N] = {};
        load_pack<N>(v, x, at, len - at);
#pragma unroll
        for (int n = 0; n < N; n++)
            v[n] = (v[n] - mean) * inv;
        affine(v, row, at, len - at);
        store_pack<N>(y, at, v, len - at);
    }
    if (threadIdx.x == 0 && mean_out)
        mean_out[row] = mean;
    if (threadIdx.x == 0 && inv_out)
        inv_out[row] = inv;
}

/* y = x * a + b for each channel, a = scale / sqrt(var + eps), b = bias - mean * a. */
template <class T, class S, class M>
__device__ inline void batch_norm(const T *x, const S *scale, const S *bias, const M *mean,
                                  const M *var, T *y, size_t n, size_t channels, size_t plane,
                                  f32 eps)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n)
        return;
    size_t c = at / plane % channels;
    f32 a = convert<f32>(scale[c]) / sqrtf(convert<f32>(var[c]) + eps);
    f32 b = convert<f32>(bias[c]) - convert<f32>(mean[c]) * a;
    y[at] = convert<T>(convert<f32>(x[at]) * a + b);
}

/* -- Softmax ---------------------------------------------------------------------------------- */

/* If the maximum is infinite or NaN, x - max is NaN where the reference has NaN. */
template <bool LOG, int THREADS, int N, int ITEMS, class T>
__device__ inline void softmax_rows(const T *x, T *y, size_t rows, int len)
{
    size_t row = group_row<THREADS>();
    int lane = threadIdx.x % THREADS;
    if (row >= rows)
        return;
    f32 v[ITEMS][N], top = -infinity(), sum = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int at = (i * THREADS + lane) * N;
#pragma unroll
        for (int n = 0; n < N; n++)
            v[i][n] = -infinity();
        if (at < len)
            load_pack<N>(v[i], x + row * len, at, len - at);
#pragma unroll
        for (int n = 0; n < N; n++)
            top = op_max::of(top, v[i][n]);
    }
    top = block_reduce<THREADS, op_max>(top);
#pragma unroll
    for (int i = 0; i < ITEMS; i++)
#pragma unroll
        for (int n = 0; n < N; n++) {
            f32 e = (i * THREADS + lane) * N + n < len ? expf(v[i][n] - top) : 0;
            sum += e;
            v[i][n] = LOG ? v[i][n] : e;
        }
    sum = block_reduce<THREADS, op_sum>(sum);
    f32 shift = LOG ? logf(sum) : 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        int at = (i * THREADS + lane) * N;
#pragma unroll
        for (int n = 0; n < N; n++)
            v[i][n] = LOG ? v[i][n] - top - shift : v[i][n] / sum;
        if (at < len)
            store_pack<N>(y + row * len, at, v[i], len - at);
    }
}

/* Softmax of rows of any length, one block per row. */
template <bool LOG, int THREADS, class T>
__device__ inline void softmax_long(const T *x, T *y, int len)
{
    f32 top = -infinity(), sum = 0;
    x += (size_t)blockIdx.x * len;
    y += (size_t)blockIdx.x * len;
    for (int at = threadIdx.x; at < len; at += THREADS)
        top = op_max::of(top, convert<f32>(x[at]));
    top = block_reduce<THREADS, op_max>(top);
    for (int at = threadIdx.x; at < len; at += THREADS)
        sum += expf(convert<f32>(x[at]) - top);
    sum = block_reduce<THREADS, op_sum>(sum);
    f32 shift = LOG ? logf(sum) : 0;
    for (int at = threadIdx.x; at < len; at += THREADS) {
        f32 e = convert<f32>(x[at]);
        y[at] = convert<T>(LOG ? e - top - shift : expf(e - top) / sum);
    }
}

/* -- Lanes: one thread for elements that are `step` apart -------------------------------------- */

/* The offset of the thread's lane; false if there are no more lanes. */
__device__ inline bool find_lane(size_t lanes, size_t len, size_t step, size_t &at)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    at = i / step * len * step + i % step;
    return i < lanes;
}

template <bool LOG, class T>
__device__ inline void softmax_lanes(const T *x, T *y, size_t lanes, size_t len, size_t step)
{
    size_t at;
    if (!find_lane(lanes, len, step, at))
        return;
    f32 top = -infinity(), sum = 0;
    for (size_t i = 0; i < len; i++)
        top = op_max::of(top, convert<f32>(x[at + i * step]));
    for (size_t i = 0; i < len; i++)
        sum += expf(convert<f32>(x[at + i * step]) - top);
    f32 shift = LOG ? logf(sum) : 0;
    for (size_t i = 0; i < len; i++) {
        f32 e = convert<f32>(x[at + i * step]);
        y[at + i * step] = convert<T>(LOG ? e - top - shift : expf(e - top) / sum);
    }
}

/* 1 at the first maximum, else 0; NaN is greater than every element before it. */
template <class T>
__device__ inline void hardmax_lanes(const T *x, T *y, size_t lanes, size_t len, size_t step)
{
    size_t at, best = 0;
    if (!find_lane(lanes, len, step, at))
        return;
    f32 top = -infinity();
    for (size_t i = 0; i < len; i++) {
        f32 e = convert<f32>(x[at + i * step]);
        if (e > top || e != e) {
            top = e;
            best = i;
        }
    }
    for (size_t i = 0; i < len; i++)
        y[at + i * step] = convert<T>(i == best ? 1.0f : 0.0f);
}

/* x / |x|_P, P 1 or 2; a lane of norm 0 is unchanged. */
template <int P, class T>
__device__ inline void lp_norm_lanes(const T *x, T *y, size_t lanes, size_t len, size_t step)
{
    size_t at;
    if (!find_lane(lanes, len, step, at))
        return;
    f32 norm = 0;
    for (size_t i = 0; i < len; i++) {
        f32 e = convert<f32>(x[at + i * step]);
        norm += P == 1 ? fabsf(e) : e * e;
    }
    norm = P == 1 ? norm : sqrtf(norm);
    for (size_t i = 0; i < len; i++) {
        f32 e = convert<f32>(x[at + i * step]);
        y[at + i * step] = convert<T>(norm != 0 ? e / norm : e);
    }
}

/* x / (bias + alpha_size * sum of squares of `size` channels around it) ^ beta. */
template <class T>
__device__ inline void lrn(const T *x, T *y, size_t n, int channels, size_t plane, int size,
                           f32 alpha_size, f32 beta, f32 bias)
{
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= n)
        return;
    int c = (int)(at / plane % channels), before = (size - 1) / 2, after = size - 1 - before;
    int lo = c > before ? -before : -c;
    int hi = after < channels - 1 - c ? after : channels - 1 - c;
    f32 sum = 0;
    for (int k = lo; k <= hi; k++) {
        f32 e = convert<f32>(x[at + (i64)k * (i64)plane]);
        sum += e * e;
    }
    y[at] = convert<T>(convert<f32>(x[at]) / powf(bias + alpha_size * sum, beta));
}

#endif
