/* Sizes of convolutions of images [n, c, d, h, w]; missing spatial dims are 1. */
#ifndef WEFT_CONV_SHAPE_CUH
#define WEFT_CONV_SHAPE_CUH

#include "prelude.cuh"

/* The sizes of a convolution: compile-time constants where the shape is known. */
struct conv_shape {
    int kd, kh, kw;    /* kernel */
    int sd, sh, sw;    /* strides */
    int dd, dh, dw;    /* dilations */
    int pd, ph, pw;    /* padding in front */
    int id, ih, iw;    /* input */
    int od, oh, ow;    /* output */
    int images, group; /* groups */
    int c, m;          /* input and output channels per group */
    int columns;       /* pixels of all images, or of one if each image has its own GEMM */

    __device__ int in_pixels() const
    {
        return id * ih * iw;
    }
    __device__ int out_pixels() const
    {
        return od * oh * ow;
    }
    __device__ int taps() const
    {
        return kd * kh * kw;
    }
    __device__ int depth() const
    {
        return c * taps();
    }
};

#endif
