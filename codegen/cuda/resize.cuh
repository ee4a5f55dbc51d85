/* Resampling: along each axis an element of the result is one element of the operand, or a weighted
 * sum of several. Coordinates are computed in single precision, as in other implementations, because
 * their last bit decides which element is nearest (ops/resize.c). */
#ifndef WEFT_RESIZE_CUH
#define WEFT_RESIZE_CUH
#include "prelude.cuh"

/* One axis: lengths, scale and, for crops, the region. */
struct resize_axis {
    int n_in, n_out;
    f32 scale, start, end;
};

/* Coordinate transformations from the result to the operand. */
enum resize_coords {
    HALF_PIXEL,
    ALIGN_CORNERS,
    ASYMMETRIC,
    HALF_PIXEL_NN,
    PYTORCH_HALF_PIXEL,
    HALF_PIXEL_SYMMETRIC,
    CROP_AND_RESIZE
};

/* The coordinate in the operand of element j of the result. */
template <resize_coords COORDS> __device__ inline f32 resize_place(const resize_axis &a, int j)
{
    f32 x = (f32)j, n_in = (f32)a.n_in, n_out = n_in * a.scale;
    if (COORDS == ALIGN_CORNERS)
        return n_out == 1 || a.n_out == 1 ? 0 : x * (n_in - 1) / (n_out - 1);
    if (COORDS == ASYMMETRIC)
        return x / a.scale;
    if (COORDS == HALF_PIXEL_NN)
        return (x + 0.5f) / a.scale;
    if (COORDS == PYTORCH_HALF_PIXEL && a.n_out == 1)
        return 0;
    if (COORDS == CROP_AND_RESIZE)
        return a.n_out > 1
                   ? a.start * (n_in - 1) + x * (a.end - a.start) * (n_in - 1) / ((f32)a.n_out - 1)
                   : 0.5f * (a.start + a.end) * (n_in - 1);
    f32 at = (x + 0.5f) / a.scale - 0.5f;
    if (COORDS == HALF_PIXEL_SYMMETRIC)
        at += n_in / 2 * (1 - (f32)a.n_out / n_out);
    return at;
}

/* Clamps to 0 .. n - 1; NaN gives 0. */
__device__ inline int resize_clamp(f32 x, int n)
{
    return !(x > 0) ? 0 : x >= (f32)(n - 1) ? n - 1 : (int)x;
}

/* Whether a coordinate is outside of the operand, for crops. */
__device__ inline bool resize_outside(f32 x, int n)
{
    return x < 0 || x > (f32)(n - 1);
}

/* 'f'loor, 'c'eil, or nearest with halves rounded 'u'p or 'd'own. */
template <char MODE> __device__ inline int resize_nearest(f32 x, int n)
{
    f32 lo = floorf(x), hi = ceilf(x);
    f32 at = MODE == 'f'   ? lo
             : MODE == 'c' ? hi
             : MODE == 'u' ? (x - lo >= 0.5f ? lo + 1 : lo)
                           : (hi - x >= 0.5f ? hi - 1 : hi);
    return resize_clamp(at, n);
}

/* TAPS 2: linear; 4: cubic with coefficient a. */
template <int TAPS, bool EXCLUDE_OUTSIDE> struct resize_taps {
    int index[TAPS];
    f32 weight[TAPS];

    __device__ resize_taps(f32 x, int n, f32 a)
    {
        f32 first = ceilf(x) - TAPS / 2, sum = 0;
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            f32 at = first + (f32)k, d = fabsf(at - x), w;
            if (TAPS == 2)
                w = d < 1 ? 1 - d : 0;
            else
                w = d <= 1  ? ((a + 2) * d - (a + 3)) * d * d + 1
                    : d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
                            : 0;
            if (EXCLUDE_OUTSIDE && (at < 0 || at >= (f32)n))
                w = 0;
            index[k] = resize_clamp(at, n);
            weight[k] = w;
            sum += w;
        }
#pragma unroll
        for (int k = 0; k < TAPS; k++)
            weight[k] = sum != 0 ? weight[k] / sum : weight[k];
    }
};

#endif
