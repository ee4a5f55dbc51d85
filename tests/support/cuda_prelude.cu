/* Kernels of tests/unit/test_cuda_prelude.c. */
#include "prelude.cuh"
#include "mma.cuh"

/* Conversions. */
extern "C" __global__ void __launch_bounds__(256)
from_half(const f16 *x, const bf16 *b, f32 *y, f32 *z)
{
    u32 i = blockIdx.x * 256 + threadIdx.x;
    y[i] = convert<f32>(x[i]);
    z[i] = convert<f32>(b[i]);
}

extern "C" __global__ void __launch_bounds__(256)
to_half(const f32 *x, f16 *y, bf16 *z, int n)
{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) {
        y[i] = convert<f16>(x[i]);
        z[i] = convert<bf16>(x[i]);
    }
}

extern "C" __global__ void __launch_bounds__(32)
to_whole(const f32 *x, i8 *a, u8 *b, i32 *c, i64 *d, u64 *e, bool *f, int n)
{
    int i = threadIdx.x;
    if (i < n) {
        a[i] = convert<i8>(x[i]);
        b[i] = convert<u8>(x[i]);
        c[i] = convert<i32>(x[i]);
        d[i] = convert<i64>(x[i]);
        e[i] = convert<u64>(x[i]);
        f[i] = convert<bool>(x[i]);
    }
}

/* Steps: result s * n + i. */
#define X x[i]
#define Y y[i]
#define Z z[i]
#define S(name, ...) out[s++ * n + i] = step_##name(__VA_ARGS__);
extern "C" __global__ void __launch_bounds__(64)
steps(const f32 *x, const f32 *y, const f32 *z, f32 *out, int n)
{
    for (int i = threadIdx.x; i < n; i += 64) {
        int s = 0;
        S(add, X, Y) S(sub, X, Y) S(mul, X, Y) S(div, X, Y) S(pow, X, Y) S(min, X, Y)
        S(max, X, Y) S(relu, X) S(clip, X, Y, Z) S(sigmoid, X) S(tanh, X) S(gelu, X)
        S(gelu_tanh, X) S(silu, X) S(erf, X) S(exp, X) S(log, X) S(sqrt, X) S(rsqrt, X)
        S(reciprocal, X) S(abs, X) S(neg, X) S(square, X) S(leaky_relu, X, Y) S(elu, X, Y)
        S(hard_sigmoid, X, Y, Z) S(hard_swish, X) S(softplus, X) S(where, X, Y, Z)
        S(identity, X) S(quantize_u8, X, Y, Z) S(quantize_i8, X, Y, Z) S(dequantize, X, Y, Z)
    }
}

/* Packs of 4: y[i] = 2 x[i]. */
extern "C" __global__ void __launch_bounds__(32)
twice(const f16 *x, f16 *y, int n)
{
    for (int i = 4 * threadIdx.x; i < n; i += 128) {
        f32 v[4] = {0, 0, 0, 0};
        load_pack(v, x, i, n - i);
        for (int j = 0; j < 4; j++)
            v[j] *= 2;
        store_pack(y, i, v, n - i);
    }
}

/* Two reductions behind each other. */
extern "C" __global__ void __launch_bounds__(128)
reduce(const f32 *x, f32 *y)
{
    f32 v = x[blockIdx.x * 128 + threadIdx.x];
    f32 sum = block_reduce<128, op_sum>(v), top = block_reduce<128, op_max>(v);
    y[blockIdx.x * 128 + threadIdx.x] = sum + 1000 * top;
}

/* d[16][8] = a[16][16] b[16][8], b also given transposed. */
template <class T> __device__ void product(const T *a, const T *b, const T *bt, f32 *d)
{
    __shared__ __align__(16) T sa[16 * 16], sb[16 * 8], st[8 * 16];
    int l = threadIdx.x, g = l / 4, t = l % 4;
    copy_async(sa + 8 * l, a + 8 * l, 16);
    copy_async((l < 16 ? sb : st) + 8 * (l % 16), (l < 16 ? b : bt) + 8 * (l % 16), 16);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    u32 fa[4], f1[4], f2[4];
    load_matrices<false>(fa, sa + (l % 16) * 16 + l / 16 * 8);
    load_matrices<true>(f1, sb + (l % 16) * 8);
    load_matrices<false>(f2, st + (l % 8) * 16 + l / 8 % 2 * 8);
    f32 p[4] = {0, 0, 0, 0}, q[4] = {0, 0, 0, 0};
    u32 b1[2] = {f1[0], f1[1]}, b2[2] = {f2[0], f2[1]};
    mma(p, fa, b1, T());
    mma(q, fa, b2, T());
    for (int i = 0; i < 4; i++) {
        int at = (g + i / 2 * 8) * 8 + 2 * t + i % 2;
        d[at] = p[i];
        d[128 + at] = q[i];
    }
}

extern "C" __global__ void __launch_bounds__(32)
product_f16(const f16 *a, const f16 *b, const f16 *bt, f32 *d)
{
    product(a, b, bt, d);
}

extern "C" __global__ void __launch_bounds__(32)
product_bf16(const bf16 *a, const bf16 *b, const bf16 *bt, f32 *d)
{
    product(a, b, bt, d);
}

/* Mistakes. */
extern "C" __global__ void __launch_bounds__(64)
no_barrier(const f32 *x, f32 *y)
{
    __shared__ f32 s[64];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[63 - threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(64)
some_wait(const f32 *x, f32 *y)
{
    if (threadIdx.x < 32)
        __syncthreads();
    y[threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(64)
too_far(const f32 *x, f32 *y)
{
    y[threadIdx.x] = x[threadIdx.x + 1024];
}

extern "C" __global__ void __launch_bounds__(64)
half_a_warp(const f32 *x, f32 *y)
{
    f32 v = x[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v = warp_reduce<op_sum>(v);
    y[threadIdx.x] = v;
}

extern "C" __global__ void __launch_bounds__(32)
no_wait(const f16 *x, f16 *y)
{
    __shared__ __align__(16) f16 s[256];
    copy_async(s + 8 * threadIdx.x, x + 8 * threadIdx.x, 16);
    copy_commit();
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
