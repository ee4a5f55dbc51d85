/* Convolutions of images [n, c, d, h, w]; missing spatial dims are 1.
 *
 * conv: implicit GEMM of weights [m, c * kd * kh * kw] and the windows of the input, which are read in
 * place: rows are output channels of a group, columns are the pixels of all images. For windows of one
 * pixel the input itself is the matrix.
 *
 * conv_depthwise: one input channel per group; a thread computes several neighbouring pixels of a row.
 *
 * conv_transposed: a thread gathers the inputs that contribute to one element. */
#ifndef WEFT_CONV_CUH
#define WEFT_CONV_CUH

#include "conv_shape.cuh"
#include "gemm.cuh"

/* The windows of the pixels from `from` on (over all images) as rows of a source (gemm.cuh). The depth
 * index is (channel, position in the kernel), as in weights. A thread loads groups of eight depth
 * indices of one pixel. EIGHTS: the depth is a multiple of eight. NEAR: 17 channels of an image have fewer
 * than 2^31 elements. */
template <class T, int ROWS, int THREADS, bool EIGHTS, bool NEAR> struct windows {
    static const bool ALONG_K = true;
    typedef half_tile<ROWS, MMA_DEPTH> tile;
    static const int TOGETHER = THREADS / ROWS; /* threads per pixel */
    static const int GROUPS = MMA_DEPTH / 8 / TOGETHER;
    static const int EACH = FMA_DEPTH / TOGETHER;
    static const int BITS = 32;

    const T *x; /* first channel of the group in the pixel's image */
    const conv_shape &s;
    int depth, z0, y0, x0;
    bool inside;
    /* Of kernels of at most BITS taps: bit t is set if tap t of the window is inside the image. */
    u32 valid;
    pack<T, 8> kept[GROUPS];
    f32 kept_f32[EACH];

    __device__ windows(const T *input, const conv_shape &s, int group, int from, int depth)
        : s(s), depth(depth)
    {
        int pixel = from + threadIdx.x % ROWS, each = s.out_pixels();
        inside = pixel < s.columns;
        int image = inside ? pixel / each : 0, p = pixel % each;
        x = input + ((size_t)image * s.group + group) * s.c * s.in_pixels();
        x0 = p % s.ow * s.sw - s.pw;
        y0 = p / s.ow % s.oh * s.sh - s.ph;
        z0 = p / s.ow / s.oh * s.sd - s.pd;
        valid = 0;
        if (NEAR && inside && s.taps() <= BITS)
            for (int t = 0; t < s.taps(); t++)
                valid |= (u32)is_here(t / (s.kw * s.kh), t / s.kw % s.kh, t % s.kw) << t;
    }

    __device__ bool is_here(int kz, int ky, int kx) const
    {
        return (u32)(z0 + kz * s.dd) < (u32)s.id && (u32)(y0 + ky * s.dh) < (u32)s.ih &&
               (u32)(x0 + kx * s.dw) < (u32)s.iw;
    }

    /* Reads N elements from depth k on. */
    template <int N, class C> __device__ void read(C (&to)[N], int k) const
    {
        if (NEAR && s.taps() <= BITS)
            read_taps(to, k);
        else
            read_any(to, k);
    }

    /* The place moves from tap to tap by one of four steps, in 32 bits: it is less than N + 1 channels
     * from the first element's, and not negative where it is read. `rest` has the bits of the taps left. */
    template <int N, class C> __device__ void read_taps(C (&to)[N], int k) const
    {
        const u32 row = (u32)s.dh * s.iw - (u32)(s.kw - 1) * s.dw;
        const u32 plane = row + ((u32)s.dd * s.ih - (u32)s.kh * s.dh) * s.iw;
        const u32 channel = plane + ((u32)s.id - (u32)s.kd * s.dd) * s.ih * s.iw;
        const bool ends_within = !(EIGHTS && N <= 8);
        const int tap = k % s.taps(), left = depth - k;
        const u32 all = left > 0 ? valid : 0;
        const T *from = x + (size_t)(k / s.taps()) * s.in_pixels();
        int kx = tap % s.kw, ky = tap / s.kw % s.kh, kz = tap / (s.kw * s.kh);
        u32 rest = all >> tap, at = ((u32)(z0 + kz * s.dd) * s.ih + y0 + ky * s.dh) * s.iw + x0 + kx * s.dw;
#pragma unroll
        for (int i = 0; i < N; i++) {
            bool here = rest & 1 && !(ends_within && i >= left);
            to[i] = convert<C>(0.0f);
            if (here)
                to[i] = convert<C>(from[at]);
            u32 step = s.dw;
            rest >>= 1;
            if (++kx == s.kw) {
                kx = 0;
                step = row;
                if (++ky == s.kh) {
                    ky = 0;
                    step = plane;
                    if (++kz == s.kd) {
                        kz = 0;
                        step = channel;
                        rest = all;
                    }
                }
            }
            at += step;
        }
    }

    template <int N, class C> __device__ void read_any(C (&to)[N], int k) const
    {
        int kx = k % s.kw, ky = k / s.kw % s.kh, kz = k / (s.kw * s.kh) % s.kd;
        int channel = k / (s.kw * s.kh * s.kd);
#pragma unroll
        for (int i = 0; i < N; i++) {
            int iz = z0 + kz * s.dd, iy = y0 + ky * s.dh, ix = x0 + kx * s.dw;
            if (inside && k + i < depth && is_here(kz, ky, kx))
                to[i] = convert<C>(x[((size_t)(channel * s.id + iz) * s.ih + iy) * s.iw + ix]);
            else
                to[i] = convert<C>(0.0f);
            if (++kx == s.kw) {
                kx = 0;
                if (++ky == s.kh) {
                    ky = 0;
                    if (++kz == s.kd) {
                        kz = 0;
                        channel++;
                    }
                }
            }
        }
    }

    __device__ void fetch(T *, int k0)
    {
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            read(kept[i].at, k0 + (i * TOGETHER + threadIdx.x / ROWS) * 8);
    }

    __device__ void store(T *to)
    {
#pragma unroll
        for (int i = 0; i < GROUPS; i++)
            *(pack<T, 8> *)(to + tile::at(threadIdx.x % ROWS, i * TOGETHER + threadIdx.x / ROWS)) =
                kept[i];
    }

    __device__ void fetch_f32(int k0)
    {
        read(kept_f32, k0 + threadIdx.x / ROWS * EACH);
    }

    template <int LD> __device__ void store_f32(f32 *to)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            to[(threadIdx.x / ROWS * EACH + i) * LD + threadIdx.x % ROWS] = kept_f32[i];
    }
};

/* y[image][channel][pixel] = post(acc + bias[channel], index in y, channel). */
template <class Y, class B, class Post> struct conv_out {
    Y *y;
    const B *bias;
    Post post;
    int row0, col0, first, m, channels, pixels, columns;
    bool even; /* a pair of pixels that starts at an even one is in one image and aligned */

    __device__ conv_out(Y *y, const B *bias, const Post &post, const conv_shape &s, int group,
                        int row0, int col0)
        : y(y), bias(bias), post(post), row0(row0), col0(col0), first(group * s.m), m(s.m),
          channels(s.group * s.m), pixels(s.out_pixels()), columns(s.columns),
          even(is_aligned<Y, 2>(y) && s.out_pixels() % 2 == 0)
    {
    }

    __device__ size_t index(int channel, int col) const
    {
        return ((size_t)(col / pixels) * channels + channel) * pixels + col % pixels;
    }

    __device__ void pair(int row, int col, f32 lo, f32 hi) const
    {
        row += row0;
        col += col0;
        if (row >= m || col >= columns)
            return;
        int channel = first + row;
        if (bias) {
            f32 b = to_f32(bias[channel]);
            lo += b;
            hi += b;
        }
        size_t at = index(channel, col);
        if (even) {
            pack<Y, 2> p;
            p.at[0] = convert<Y>(post(lo, at, channel));
            p.at[1] = convert<Y>(post(hi, at + 1, channel));
            *(pack<Y, 2> *)(y + at) = p;
            return;
        }
        y[at] = convert<Y>(post(lo, at, channel));
        if (col + 1 < columns) {
            at = index(channel, col + 1);
            y[at] = convert<Y>(post(hi, at, channel));
        }
    }
};

/* y = post(y) for n elements in planes of `pixels`, four per thread: the pass after a library's
 * convolution. */
template <class T, class Post>
__device__ inline void finish_planes(T *y, size_t n, u32 pixels, u32 channels, const Post &post)
{
    size_t at = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * 4;
    if (at >= n)
        return;
    int left = n - at < 4 ? (int)(n - at) : 4;
    f32 v[4] = {0, 0, 0, 0};
    load_pack(v, y, at, left);
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < left)
            v[i] = post(v[i], at + i, (int)((at + i) / pixels % channels));
    store_pack(y, at, v, left);
}

/* each as in gemm. EIGHTS: the depth is a multiple of eight and weights are aligned. NEAR as in windows.
 * The batch index of the place is the group. */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32,
          bool EIGHTS, bool NEAR, class Y, class Post>
__device__ inline void conv(const T *x, const T *w, const T *bias, Y *y, const conv_shape &s,
                            int each, const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const gemm_place place(s.m, s.columns, BM, BN);
    const depth_part part(s.depth(), each);
    int group = (int)place.batch;
    matrix<T, true, BM, THREADS, EIGHTS> left(w + (size_t)group * s.m * s.depth(), s.depth(),
                                               place.row, s.m, part.end);
    windows<T, BN, THREADS, EIGHTS, NEAR> right(x, s, group, place.col, part.end);
    conv_out<Y, T, Post> out(y, bias, post, s, group, place.row, place.col);
    product<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>(left, right, part.begin, part.end, out);
}

/* Kernel 1, stride 1, no padding: images are matrices. The batch index of the place is (image, group).
 */
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TF32,
          bool EIGHTS, bool, class Y, class Post>
__device__ inline void conv_pointwise(const T *x, const T *w, const T *bias, Y *y,
                                      const conv_shape &s, int each, const Post &post)
{
    const int THREADS = WARPS_M * WARPS_N * 32;
    const gemm_place place(s.m, s.columns, BM, BN);
    const depth_part part(s.c, each);
    int group = (int)(place.batch % s.group), image = (int)(place.batch / s.group);
    matrix<T, true, BM, THREADS, EIGHTS> left(w + (size_t)group * s.m * s.c, s.c, place.row, s.m,
                                               part.end);
    matrix<T, false, BN, THREADS> right(x + place.batch * s.c * s.in_pixels(), s.in_pixels(),
                                        place.col, s.out_pixels(), part.end);
    size_t skip = (size_t)image * s.group * s.m * s.out_pixels();
    struct later {
        Post post;
        size_t skip;
        __device__ f32 operator()(f32 acc, size_t at, int c) const
        {
            return post(acc, skip + at, c);
        }
    };
    conv_out<Y, T, later> out(y + skip, bias, later{post, skip}, s, group, place.row, place.col);
    product<T, BM, BN, WARPS_M, WARPS_N, STAGES, TF32>(left, right, part.begin, part.end, out);
}

/* One input channel per group (s.c is 1), at most two spatial dims; each thread computes PER
 * neighbours of an output row. */
template <int KH, int KW, int SW, int DW, int PER, class T, class Post>
__device__ inline void conv_depthwise(const T *x, const T *w, const T *bias, T *y,
                                      const conv_shape &s, const Post &post)
{
    const int SPAN = (PER - 1) * SW + (KW - 1) * DW + 1;
    u32 across = (u32)((s.ow + PER - 1) / PER), channels = (u32)(s.group * s.m);
    size_t id = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    int ox = (int)(id % across) * PER, oy = (int)(id / across % (u32)s.oh);
    size_t plane = id / ((size_t)across * s.oh), image = plane / channels;
    if (image >= (size_t)s.images)
        return;
    int channel = (int)(plane % channels);
    x += (image * s.group + channel / s.m) * s.in_pixels();
    w += (size_t)channel * KH * KW;
    f32 acc[PER] = {};
    int y0 = oy * s.sh - s.ph, x0 = ox * SW - s.pw;
#pragma unroll
    for (int ky = 0; ky < KH; ky++) {
        int iy = y0 + ky * s.dh;
        bool inside = (u32)iy < (u32)s.ih;
        f32 row[SPAN]; /* padding is multiplied, too: zero times infinity is NaN */
#pragma unroll
        for (int i = 0; i < SPAN; i++)
            row[i] = inside && (u32)(x0 + i) < (u32)s.iw
                         ? to_f32(x[(size_t)iy * s.iw + x0 + i])
                         : 0.0f;
#pragma unroll
        for (int kx = 0; kx < KW; kx++) {
            f32 f = to_f32(w[ky * KW + kx]);
#pragma unroll
            for (int i = 0; i < PER; i++)
                acc[i] += f * row[i * SW + kx * DW];
        }
    }
    size_t at = (plane * s.oh + oy) * s.ow + ox;
    f32 b = bias ? to_f32(bias[channel]) : 0.0f;
#pragma unroll
    for (int i = 0; i < PER; i++)
        if (ox + i < s.ow)
            y[at + i] = convert<T>(post(acc[i] + b, at + i, channel));
}

/* Weights [group * c, m, kd, kh, kw]; `pd` to `pw` are cropped from the front of the result. */
template <class T>
__device__ inline void conv_transposed(const T *x, const T *w, const T *bias, T *y,
                                       const conv_shape &s)
{
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    u32 pixels = (u32)s.out_pixels(), channels = (u32)(s.group * s.m);
    int pixel = (int)(at % pixels), channel = (int)(at / pixels % channels);
    size_t image = at / pixels / channels;
    if (image >= (size_t)s.images)
        return;
    int ox = pixel % s.ow + s.pw, oy = pixel / s.ow % s.oh + s.ph, oz = pixel / s.ow / s.oh + s.pd;
    int group = channel / s.m, taps = s.kd * s.kh * s.kw;
    x += (image * s.group + group) * s.c * s.in_pixels();
    w += ((size_t)group * s.c * s.m + channel % s.m) * taps;
    f32 acc = 0;
    for (int kz = 0; kz < s.kd; kz++) {
        int iz = oz - kz * s.dd;
        if (iz < 0 || iz % s.sd || iz / s.sd >= s.id)
            continue;
        for (int ky = 0; ky < s.kh; ky++) {
            int iy = oy - ky * s.dh;
            if (iy < 0 || iy % s.sh || iy / s.sh >= s.ih)
                continue;
            for (int kx = 0; kx < s.kw; kx++) {
                int ix = ox - kx * s.dw;
                if (ix < 0 || ix % s.sw || ix / s.sw >= s.iw)
                    continue;
                size_t from = ((size_t)(iz / s.sd) * s.ih + iy / s.sh) * s.iw + ix / s.sw;
                int tap = (kz * s.kh + ky) * s.kw + kx;
                for (int c = 0; c < s.c; c++)
                    acc += to_f32(x[from + (size_t)c * s.in_pixels()]) *
                           to_f32(w[(size_t)c * s.m * taps + tap]);
            }
        }
    }
    y[at] = convert<T>(acc + (bias ? to_f32(bias[channel]) : 0.0f));
}

#endif
