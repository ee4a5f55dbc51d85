/* Products of bytes (ops/qlinear.c). The product itself is a GEMM of i8 with i32 sums by cuBLASLt, or
 * sums of a few rows or of one window by the kernels here. The kernels before it bring both factors into
 * rows of words; the one after it gets from sums of products to the result.
 *
 * u8 becomes i8 by x - 128, its zero point too. Zero points are subtracted after the product:
 *
 *   sum (l - zl)(r - zr) = sum l r - zl sum r - zr sum l + k zl zr
 *
 * where `sum r` and `sum l` are products with a row of ones, which the left or the right factor gets as
 * its last row. Sums wrap around in every step; the result is exact if it fits 32 bits. */
#ifndef WEFT_INT8_CUH
#define WEFT_INT8_CUH

#include "conv_shape.cuh"
#include "quant.cuh"

/* -- Bytes ------------------------------------------------------------------------------------- */

/* The element, or zero point, as it is multiplied. */
__device__ inline i32 centred(u8 x)
{
    return (i32)x - 128;
}
__device__ inline i32 centred(i8 x)
{
    return x;
}

/* Four bytes of T as four i8. */
template <class T> __device__ inline u32 as_signed(u32 word);
template <> __device__ inline u32 as_signed<u8>(u32 word)
{
    return word ^ 0x80808080u;
}
template <> __device__ inline u32 as_signed<i8>(u32 word)
{
    return word;
}

/* The first four of `left` bytes at x as i8; those from `left` on are 0. `whole`: x is a word. */
template <class T> __device__ inline u32 signed_word(const T *x, int left, bool whole)
{
    if (whole && left >= 4)
        return as_signed<T>(*(const u32 *)x);
    u32 word = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left)
            word |= (u32)(u8)centred(x[i]) << (8 * i);
    return word;
}

/* c + a . b of four i8 each. */
__device__ inline i32 dot4(u32 a, u32 b, i32 c)
{
#ifdef __CUDA_ARCH__
    i32 d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
#else
    for (int i = 0; i < 4; i++)
        c += (i32)(i8)(a >> (8 * i)) * (i32)(i8)(b >> (8 * i));
    return c;
#endif
}

/* -- Factors ------------------------------------------------------------------------------------ */

/* Rows of `k` bytes as i8 in rows of `groups` groups of 16 bytes, one group per thread: to[batch][all].
 * Row `ones` is of ones (-1: none); what follows and the ends of rows are zero. */
template <class T>
__device__ inline void pack_rows(const T *x, i8 *to, size_t at, int batch, int rows, int ones, int all,
                                 int k, int groups)
{
    size_t line = at / groups;
    int row = (int)(line % all), c = (int)(at % groups) * 16;
    if (line >= (size_t)batch * all)
        return;
    pack<u32, 4> p = {{0, 0, 0, 0}};
    const T *from = x + (line / all * rows + row) * k + c;
    const bool whole = row < rows && is_aligned<T, 4>(from);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int left = k - c - 4 * i;
        if (row < rows)
            p.at[i] = left > 0 ? signed_word(from + 4 * i, left, whole) : 0;
        else if (row == ones)
            p.at[i] = left >= 4 ? 0x01010101u : left > 0 ? 0x01010101u >> (8 * (4 - left)) : 0;
    }
    *(pack<u32, 4> *)(to + at * 16) = p;
}

#define GATHER_PIXELS 32
#define GATHER_DEPTH  64

/* The windows of all pixels as rows of i8 (im2col), by depth (channel, position in the kernel) as in
 * weights: to[group][all][ld]; padding is `outside`. Row s.columns is of ones, what follows and the
 * ends of rows are zero. Blocks: pixels, depth, groups. A matrix [depth][columns] is an image whose
 * windows have one pixel: its rows are then its columns. */
template <int THREADS, class T>
__device__ inline void gather_windows(const T *x, i8 *to, const conv_shape &s, int all, int ld,
                                      i32 outside)
{
    __shared__ u32 tile[GATHER_PIXELS][GATHER_DEPTH / 4 + 1];
    const int lane = threadIdx.x % GATHER_PIXELS, p0 = blockIdx.x * GATHER_PIXELS;
    const int k0 = blockIdx.y * GATHER_DEPTH, depth = s.depth(), pixel = p0 + lane;
    const bool inside = pixel < s.columns;
    const int each = s.out_pixels(), image = inside ? pixel / each : 0;
    const int p = inside ? pixel % each : 0;
    const int x0 = p % s.ow * s.sw - s.pw, y0 = p / s.ow % s.oh * s.sh - s.ph;
    const int z0 = p / s.ow / s.oh * s.sd - s.pd;
    const T *from = x + ((size_t)image * s.group + blockIdx.z) * s.c * s.in_pixels();
    u8 *line = (u8 *)tile[lane];
    for (int i = threadIdx.x / GATHER_PIXELS; i < GATHER_DEPTH; i += THREADS / GATHER_PIXELS) {
        int k = k0 + i, channel = k / (s.kw * s.kh * s.kd);
        int ix = x0 + k % s.kw * s.dw, iy = y0 + k / s.kw % s.kh * s.dh;
        int iz = z0 + k / (s.kw * s.kh) % s.kd * s.dd;
        i32 v = pixel == s.columns ? 1 : 0;
        if (inside)
            v = (u32)iz < (u32)s.id && (u32)iy < (u32)s.ih && (u32)ix < (u32)s.iw && k < depth
                    ? centred(from[((size_t)(channel * s.id + iz) * s.ih + iy) * s.iw + ix])
                    : outside;
        line[i] = (u8)(k < depth ? v : 0);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < GATHER_PIXELS * GATHER_DEPTH / 4; i += THREADS) {
        int row = i / (GATHER_DEPTH / 4), word = i % (GATHER_DEPTH / 4);
        if (p0 + row < all && k0 + 4 * word < ld)
            ((u32 *)(to + ((size_t)blockIdx.z * all + p0 + row) * ld + k0))[word] = tile[row][word];
    }
}

/* -- Sums ---------------------------------------------------------------------------------------- */

/* The sum with zero points subtracted, of row `row` and column `col` of a product in rows of `ld`. The
 * left factor has `rows` rows and then ones if LEFT, the right one `cols` columns and then ones if RIGHT:
 * without ones the zero point of the other factor is 0. */
template <bool LEFT, bool RIGHT>
__device__ inline i32 subtract_zeros(const i32 *s, size_t ld, size_t row, size_t col, size_t rows,
                                     size_t cols, u32 k, i32 left_zero, i32 right_zero)
{
    u32 sum = (u32)s[row * ld + col];
    if (LEFT)
        sum -= (u32)left_zero * (u32)s[rows * ld + col];
    if (RIGHT)
        sum -= (u32)right_zero * (u32)s[row * ld + cols];
    if (LEFT && RIGHT)
        sum += k * (u32)left_zero * (u32)right_zero;
    return (i32)sum;
}

/* One column for up to ROWS rows by a warp: a[rows][k], b[k] with words along the depth. Every thread
 * gets all sums. */
template <int ROWS, bool RIGHT, class A, class B>
__device__ inline void multiply_rows(i32 (&sum)[ROWS], const A *a, const B *b, int rows, int k,
                                     i32 left_zero, i32 right_zero)
{
    const u32 ones = 0x01010101u;
    const bool whole = k % 4 == 0 && is_aligned<A, 4>(a) && is_aligned<B, 4>(b);
    i32 of_right = 0, of_left[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        sum[r] = of_left[r] = 0;
    for (int c = threadIdx.x % 32 * 4; c < k; c += 128) {
        const u32 y = signed_word(b + c, k - c, whole);
        of_right = dot4(y, ones, of_right);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r >= rows)
                continue;
            const u32 x = signed_word(a + (size_t)r * k + c, k - c, whole);
            sum[r] = dot4(x, y, sum[r]);
            if (RIGHT)
                of_left[r] = dot4(x, ones, of_left[r]);
        }
    }
    of_right = warp_reduce<op_sum>(of_right);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u32 all = (u32)warp_reduce<op_sum>(sum[r]) - (u32)left_zero * (u32)of_right;
        if (RIGHT)
            all -= (u32)right_zero * (u32)warp_reduce<op_sum>(of_left[r]) -
                   (u32)k * (u32)left_zero * (u32)right_zero;
        sum[r] = (i32)all;
    }
}

/* The index of the scale or zero point of row (or column) i of matrix `stack`; n is 1 (one for all),
 * `rows` (one per row), or one per row of every matrix. */
__device__ inline size_t pick(size_t n, size_t rows, size_t stack, size_t i)
{
    return n == 1 ? 0 : n == rows ? i : (stack * rows + i) % n;
}

/* Sum over k of (a - a_zero)(b - b_zero) of a row and a column, whose elements have stride `step`. */
template <class A, class B>
__device__ inline i32 dot(const A *a, const B *b, int k, size_t step, i32 a_zero, i32 b_zero)
{
    u32 sum = 0;
    for (int i = 0; i < k; i++)
        sum += (u32)((centred(a[i]) - a_zero) * (centred(b[i * step]) - b_zero));
    return (i32)sum;
}

/* The sum of one window: pixel `pixel` of image `image`, output channel `channel` of all groups. */
template <class X, class W>
__device__ inline i32 window_sum(const X *x, const W *w, const conv_shape &s, int image, int channel,
                                 int pixel, i32 x_zero, i32 w_zero)
{
    const int x0 = pixel % s.ow * s.sw - s.pw, y0 = pixel / s.ow % s.oh * s.sh - s.ph;
    const int z0 = pixel / s.ow / s.oh * s.sd - s.pd;
    x += ((size_t)image * s.group + channel / s.m) * s.c * s.in_pixels();
    w += (size_t)channel * s.depth();
    u32 sum = 0;
    for (int c = 0; c < s.c; c++)
        for (int kz = 0; kz < s.kd; kz++)
            for (int ky = 0; ky < s.kh; ky++)
                for (int kx = 0; kx < s.kw; kx++, w++) {
                    int iz = z0 + kz * s.dd, iy = y0 + ky * s.dh, ix = x0 + kx * s.dw;
                    if ((u32)iz < (u32)s.id && (u32)iy < (u32)s.ih && (u32)ix < (u32)s.iw)
                        sum += (u32)((centred(x[((size_t)(c * s.id + iz) * s.ih + iy) * s.iw + ix]) -
                                      x_zero) *
                                     (centred(*w) - w_zero));
                }
    return (i32)sum;
}

/* -- Results ------------------------------------------------------------------------------------- */

/* Without contraction to fused operations: their rounding would decide ties otherwise. */
__device__ inline f32 times(f32 x, f32 y)
{
#ifdef __CUDA_ARCH__
    return __fmul_rn(x, y);
#else
    return x * y;
#endif
}
__device__ inline f32 plus(f32 x, f32 y)
{
#ifdef __CUDA_ARCH__
    return __fadd_rn(x, y);
#else
    return x + y;
#endif
}

/* A sum straight to bytes; `scale` is that of the sum over that of the result. */
template <class T> __device__ inline T requantized(f32 sum, f32 scale, f32 zero)
{
    const f32 y = rintf(times(sum, scale)) + zero;
    return convert<T>(y == y ? y : -1e30f);
}

#endif
