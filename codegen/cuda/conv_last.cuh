/* Convolutions of images [n, d, h, w, c] with channels innermost; missing spatial dims are 1. Weights
 * are [m, kd, kh, kw, c].
 *
 * conv_last: implicit GEMM of the windows of the input, which are read in place, and the weights: rows
 * are the pixels of all images, columns are output channels of a group.
 *
 * conv_depthwise_last: one input channel per group; a thread computes neighbouring channels of
 * neighbouring pixels of a row. */
#ifndef WEFT_CONV_LAST_CUH
#define WEFT_CONV_LAST_CUH

#include "conv_shape.cuh"
#include "gemm.cuh"

/* The windows of the pixels from `from` on (over all images) as rows of a source (gemm.cuh). The depth
 * index is (position in the kernel, channel), as in weights. Tiles are fetched in order, and a thread
 * copies the same group of channels of several pixels, so that it moves from tap to tap once for all of
 * them. WHOLE: the channels of a group of the convolution fill whole copies of 16 bytes. */
template <class T, int ROWS, int THREADS, bool WHOLE> struct windows_last {
    static const bool ALONG_K = true;
    typedef half_tile<ROWS, MMA_DEPTH> tile;
    static const int TOGETHER = 16 / sizeof(T), GROUPS = 4; /* elements of a copy; copies of a row */
    static const int DEPTH = TOGETHER * GROUPS;             /* of a tile */
    static const int EACH = ROWS * GROUPS / THREADS;        /* pixels of a thread */
    static const int BITS = 32;

    const T *x;
    const conv_shape &s;
    int depth, k, tap, c, kz, ky, kx; /* the place of the thread's group */
    i64 shift;                        /* of the place, from the first element of a window */
    i64 first[EACH];                  /* of the window; negative if the window begins outside */
    int z0[EACH], y0[EACH], x0[EACH];
    u32 valid[EACH]; /* of kernels of at most BITS taps: bit t is set if tap t is inside the image */
    bool wide;
    f32 kept[EACH][4];

    __device__ windows_last(const T *input, const conv_shape &s, int group, int from, int begin,
                            int depth)
        : x(input + (size_t)group * s.c), s(s), depth(depth),
          wide(WHOLE && is_aligned<T, TOGETHER>(x) && s.group * s.c % TOGETHER == 0)
    {
        k = begin + (int)threadIdx.x % GROUPS * TOGETHER;
        tap = k / s.c;
        c = k % s.c;
        kx = tap % s.kw;
        ky = tap / s.kw % s.kh;
        kz = tap / s.kw / s.kh;
        shift = shift_of(kz, ky, kx) + c;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int pixel = from + row(i), each = s.out_pixels(), p = pixel % each;
            bool inside = pixel < s.columns;
            int image = inside ? pixel / each : 0;
            x0[i] = p % s.ow * s.sw - s.pw;
            y0[i] = p / s.ow % s.oh * s.sh - s.ph;
            z0[i] = inside ? p / s.ow / s.oh * s.sd - s.pd : -(s.kd * s.dd) - s.id;
            first[i] = (((i64)image * s.id + z0[i]) * s.ih + y0[i]) * s.iw + x0[i];
            first[i] *= s.group * s.c;
            valid[i] = 0;
            if (s.taps() <= BITS)
                for (int t = 0; t < s.taps(); t++)
                    valid[i] |= (u32)is_inside(i, t / (s.kw * s.kh), t / s.kw % s.kh, t % s.kw) << t;
        }
    }

    __device__ static int row(int i)
    {
        return (i * THREADS + (int)threadIdx.x) / GROUPS;
    }

    /* Of channel 0 at tap (z, y, x). */
    __device__ i64 shift_of(int z, int y, int x) const
    {
        return (((i64)z * s.dd * s.ih + y * s.dh) * s.iw + x * s.dw) * (s.group * s.c);
    }

    /* Whether tap (z, y, x) of the window of the thread's pixel i is inside the image. */
    __device__ bool is_inside(int i, int z, int y, int x) const
    {
        return (u32)(z0[i] + z * s.dd) < (u32)s.id && (u32)(y0[i] + y * s.dh) < (u32)s.ih &&
               (u32)(x0[i] + x * s.dw) < (u32)s.iw;
    }

    /* The same for tap t, which is at (z, y, x), of an element at depth `at`. */
    __device__ bool is_here(int i, int at, int t, int z, int y, int x) const
    {
        return at < depth && (s.taps() <= BITS ? (valid[i] >> t & 1) != 0 : is_inside(i, z, y, x));
    }

    __device__ bool is_here(int i) const
    {
        return is_here(i, k, tap, kz, ky, kx);
    }

    /* Moves on by n elements of the depth. */
    __device__ void go(int n)
    {
        k += n;
        c += n;
        shift += n;
        if (c < s.c)
            return;
        while (c >= s.c) {
            c -= s.c;
            tap++;
            if (++kx == s.kw) {
                kx = 0;
                if (++ky == s.kh) {
                    ky = 0;
                    kz++;
                }
            }
        }
        shift = shift_of(kz, ky, kx) + c;
    }

    /* The elements of the thread's group of pixel i, one by one. */
    template <class C, int N> __device__ void gather(C (&to)[N], int i) const
    {
        int t = tap, channel = c, z = kz, y = ky, x = kx;
        i64 from = first[i] + shift;
#pragma unroll
        for (int n = 0; n < N; n++) {
            to[n] = convert<C>(0.0f);
            if (is_here(i, k + n, t, z, y, x))
                to[n] = convert<C>(this->x[from]);
            from++;
            if (++channel == s.c) {
                channel = 0;
                t++;
                if (++x == s.kw) {
                    x = 0;
                    if (++y == s.kh) {
                        y = 0;
                        z++;
                    }
                }
                from = first[i] + shift_of(z, y, x);
            }
        }
    }

    __device__ void fetch(T *to, int)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            T *dst = to + tile::at(row(i), (int)threadIdx.x % GROUPS);
            if (wide) {
                bool here = is_here(i);
                copy_async(dst, here ? x + (first[i] + shift) : x, here ? 16 : 0);
            } else {
                pack<T, TOGETHER> p;
                gather(p.at, i);
                *(pack<T, TOGETHER> *)dst = p;
            }
        }
        go(DEPTH);
    }

    __device__ void store(T *) {}

    __device__ void fetch_f32(int)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (wide) {
                kept[i][0] = kept[i][1] = kept[i][2] = kept[i][3] = 0;
                if (is_here(i))
                    load_pack(kept[i], x + (first[i] + shift), 0, 4);
            } else {
                gather(kept[i], i);
            }
        }
        go(DEPTH);
    }

    template <int LD> __device__ void store_f32(f32 *to)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                to[((int)threadIdx.x % GROUPS * 4 + j) * LD + row(i)] = kept[i][j];
    }
};

/* y[pixel][channel] = post(acc + bias[channel], index in y, channel) for the channels of a group. */
template <class Y, class B, class Post> struct pixels_out {
    Y *y;
    const B *bias;
    Post post;
    int row0, col0, first, rows, m, channels;
    bool even; /* a pair of channels that starts at an even one is aligned */

    __device__ pixels_out(Y *y, const B *bias, const Post &post, const conv_shape &s, int group,
                          int row0, int col0)
        : y(y), bias(bias), post(post), row0(row0), col0(col0), first(group * s.m), rows(s.columns),
          m(s.m), channels(s.group * s.m), even(is_aligned<Y, 2>(y) && s.m % 2 == 0)
    {
    }

    __device__ void pair(int row, int col, f32 lo, f32 hi) const
    {
        row += row0;
        col += col0;
        if (row >= rows || col >= m)
            return;
        int channel = first + col;
        size_t at = (size_t)row * channels + channel;
        bool both = col + 1 < m;
        if (bias) {
            lo += to_f32(bias[channel]);
            hi += both ? to_f32(bias[channel + 1]) : 0.0f;
        }
        if (even) {
            pack<Y, 2> p;
            p.at[0] = convert<Y>(post(lo, at, channel));
            p.at[1] = convert<Y>(post(hi, at + 1, channel + 1));
            *(pack<Y, 2> *)(y + at) = p;
            return;
        }
        y[at] = convert<Y>(post(lo, at, channel));
        if (both)
            y[at + 1] = convert<Y>(post(hi, at + 1, channel + 1));
    }
};

/* each as in gemm. EIGHTS: the depth is a multiple of eight and weights are aligned. WHOLE as in
 * windows_last. The batch index of the place is the group. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32,
          bool EIGHTS, bool WHOLE, class Y, class Post>
__device__ inline void conv_last(const T *x, const T *w, const T *bias, Y *y, const conv_shape &s,
                                 int each, const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const gemm_place place(s.columns, s.m, BM, BN);
    const depth_part part(s.depth(), each);
    int group = (int)place.batch;
    windows_last<T, BM, THREADS, WHOLE> left(x, s, group, place.row, part.begin, part.end);
    matrix<T, true, BN, THREADS, EIGHTS> right(w + (size_t)group * s.m * s.depth(), s.depth(),
                                               place.col, s.m, part.end);
    pixels_out<Y, T, Post> out(y, bias, post, s, group, place.row, place.col);
    product<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>(left, right, part.begin, part.end, out);
}

/* One input channel per group (s.c is 1), at most two spatial dims; each thread computes N channels of
 * PER neighbours of an output row. N is 1, or divides the groups, which then have one channel each. */
template <int KH, int KW, int SW, int DW, int PER, int N, class T, class Post>
__device__ inline void conv_depthwise_last(const T *x, const T *w, const T *bias, T *y,
                                           const conv_shape &s, const Post &post)
{
    const int SPAN = (PER - 1) * SW + (KW - 1) * DW + 1, TAPS = KH * KW;
    u32 across = (u32)((s.ow + PER - 1) / PER), channels = (u32)(s.group * s.m);
    size_t id = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    int channel = (int)(id % (channels / N)) * N;
    size_t place = id / (channels / N);
    int ox = (int)(place % across) * PER, oy = (int)(place / across % (u32)s.oh);
    size_t image = place / across / s.oh;
    if (image >= (size_t)s.images)
        return;
    x += image * s.in_pixels() * s.group + channel / s.m;
    f32 factor[N * TAPS], acc[PER][N] = {};
#pragma unroll
    for (int i = 0; i < N * TAPS; i++)
        factor[i] = to_f32(w[(size_t)channel * TAPS + i]);
    int y0 = oy * s.sh - s.ph, x0 = ox * SW - s.pw;
#pragma unroll
    for (int ky = 0; ky < KH; ky++) {
        int iy = y0 + ky * s.dh;
        bool inside = (u32)iy < (u32)s.ih;
#pragma unroll
        for (int i = 0; i < SPAN; i++) {
            f32 v[N] = {}; /* padding is multiplied, too: zero times infinity is NaN */
            if (inside && (u32)(x0 + i) < (u32)s.iw)
                load_pack(v, x + ((size_t)iy * s.iw + x0 + i) * s.group, 0, N);
#pragma unroll
            for (int p = 0; p < PER; p++) {
                const int from = i - p * SW;
                if (from < 0 || from % DW || from / DW >= KW)
                    continue;
#pragma unroll
                for (int n = 0; n < N; n++)
                    acc[p][n] += factor[n * TAPS + ky * KW + from / DW] * v[n];
            }
        }
    }
#pragma unroll
    for (int p = 0; p < PER; p++) {
        if (ox + p >= s.ow)
            break;
        size_t at = (((image * s.oh + oy) * s.ow) + ox + p) * channels + channel;
#pragma unroll
        for (int n = 0; n < N; n++)
            acc[p][n] = post(acc[p][n] + (bias ? to_f32(bias[channel + n]) : 0.0f), at + n,
                             channel + n);
        store_pack(y, at, acc[p], N);
    }
}

#endif
