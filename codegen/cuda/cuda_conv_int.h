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
} weft_cuda_conv;

/* Reads the node, whose weights are operand `w`; `transposed`: weights are [input channels, output
 * channels per group, ...]. `columns` becomes the pixels of an image. */
WEFT_MUST_USE weft_err weft_cuda__read_conv(weft_cuda *cu, uint32_t w, bool transposed,
                                            weft_cuda_conv *out);
/* Prints `const conv_shape s = {...};` (conv_shape.cuh). If `shared`, sizes are parameters, so that
 * several convolutions share a kernel; kernel size, strides, dilations and padding are always
 * constants. */
void weft_cuda__print_conv(weft_cuda_kernel *k, const weft_cuda_conv *p, bool shared);

#endif
