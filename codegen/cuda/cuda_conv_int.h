/* Private to emitters of convolutions (emit_conv.c, emit_int8.c): sizes as numbers and as text. */
#ifndef WEFT_CODEGEN_CUDA_CUDA_CONV_INT_H
#define WEFT_CODEGEN_CUDA_CUDA_CONV_INT_H

#include "codegen/cuda/cuda_int.h"

enum { WEFT_CUDA_SPATIAL = 3 };

/* A convolution with three spatial dims; leading ones are 1 if there are fewer. */
typedef struct weft_cuda_conv {
    weft_dtype dtype; /* of the input */
    int64_t kernel[WEFT_CUDA_SPATIAL], stride[WEFT_CUDA_SPATIAL], dilation[WEFT_CUDA_SPATIAL];
    weft_dim pad[WEFT_CUDA_SPATIAL], in[WEFT_CUDA_SPATIAL], out[WEFT_CUDA_SPATIAL];
    weft_dim images, pixels; /* pixels of an image of the result */
    weft_dim columns;        /* columns of the GEMM */
    int64_t group, c, m;     /* groups; input and output channels per group */
    bool last;               /* images, result and weights have channels innermost */
} weft_cuda_conv;

/* Reads the node, whose weights are operand `w`; `transposed`: weights are [input channels, output
 * channels per group, ...]. `columns` becomes the pixels of an image. */
WEFT_MUST_USE weft_err weft_cuda__read_conv(weft_cuda *cu, uint32_t w, bool transposed,
                                            weft_cuda_conv *out);
/* Whether each group has one input channel, and few enough taps for a thread. */
bool weft_cuda__is_depthwise(const weft_cuda_conv *p);
/* Whether windows are single pixels with channels innermost: images are then the left factor of a
 * product, which weft_cuda__emit_pixels emits. */
bool weft_cuda__is_product(const weft_cuda_conv *p);
WEFT_MUST_USE weft_err weft_cuda__emit_pixels(weft_cuda *cu, const weft_cuda_conv *p);
/* Emits kernels for images with channels innermost: depthwise convolutions, and all others. */
WEFT_MUST_USE weft_err weft_cuda__emit_conv_last(weft_cuda *cu, weft_cuda_conv *p);
/* Adds the parameters x, w and bias, or declares that there is no bias. */
void weft_cuda__add_conv_operands(weft_cuda_kernel *k, const weft_cuda_conv *p);
bool weft_cuda__has_bias(const weft_cuda *cu);
/* Prints `const conv_shape s = {...};` (conv_shape.cuh). If `shared`, all but the kernel size and
 * what is 1 are parameters, so that several convolutions share a kernel. A size that is that of the
 * dim before is the same parameter: of square images the kernel needs fewer registers. */
void weft_cuda__print_conv(weft_cuda_kernel *k, const weft_cuda_conv *p, bool shared);

#endif
