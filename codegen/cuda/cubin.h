/* Reads the resources of kernels from a cubin: registers, static shared memory, local memory. */
#ifndef WEFT_CODEGEN_CUDA_CUBIN_H
#define WEFT_CODEGEN_CUDA_CUBIN_H

#include "ir/bundle.h"

/* Reads the resources of kernel `name`; a resource that the image does not state stays 0. Shared
 * memory is the amount that the kernel declares, equal for all architectures. The image may hold
 * arbitrary bytes. */
void weft_cubin_resource(const uint8_t *image, size_t bytes, const char *name,
                         weft_bundle_resource *out);

#endif
