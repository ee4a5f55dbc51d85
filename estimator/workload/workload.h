/* What the rest of estimator/ knows of workloads beside the public part (estimator.h). */
#ifndef WEFT_ESTIMATOR_WORKLOAD_WORKLOAD_H
#define WEFT_ESTIMATOR_WORKLOAD_WORKLOAD_H

#include "estimator/estimator.h"

/* A convolution of 3 x 3 filters at stride 1 in one group, for which libraries have fast algorithms
 * (Winograd, FFT) beside the implicit GEMM. */
bool weft_kernel__is_fast_conv(const weft_kernel *kernel);

/* Fills the bytes of the estimate. */
void weft_workload__sum_memory(const weft_workload *work, const weft_slice *slice,
                               weft_estimate *out);
/* Fills start_us and end_us of the kernels, and the need of the graph over time. */
void weft_workload__schedule(const weft_workload *work, weft_kernel_cost *kernel,
                             weft_arena *scratch, weft_creq *out);

#endif
