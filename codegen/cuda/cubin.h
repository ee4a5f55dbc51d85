/* What a cubin says of its kernels: registers, static shared memory, local memory. */
#ifndef WEFT_CODEGEN_CUDA_CUBIN_H
#define WEFT_CODEGEN_CUDA_CUBIN_H

#include "ir/bundle.h"

/* Of kernel `name`; what the image does not tell stays 0. Shared memory is what the kernel
 * declares, the same for every architecture. Any bytes may be given. */
void weft_cubin_resource(const uint8_t *image, size_t bytes, const char *name,
                         weft_bundle_resource *out);

#endif
