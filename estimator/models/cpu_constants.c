/* The fitted constants of the CPU model (model_cpu.c defines each and says how it was fitted), and
 * the part of a weight that the last-level cache has lost, which depends on them alone. */
#include "estimator/models/models.h"

#include <math.h>

const weft_model_cpu_constants weft_model__cpu_fitted = {
    .call_us = 0.2292,
    .loop_us = 0.09538,
    .cold_us = 0.4328,
    .enter_us = 0.7118,
    .gemm_eff = 0.9651,
    .gemm_rows = 0.987,
    .cache_eff = 0.6816,
    .near_eff = 0.9682,
    .near_bytes = 6.009e+05,
    .memory_eff = 0.945,
    .overlap = 0.7241,
    .overlap_rows = 1.456,
    .kept = 0.5566,
    .lost = 1.333,
    .conv_eff = 0.9612,
    .conv_rows = 17.43,
    .winograd_eff = 0.476,
    .head_us = 0.1154,
    .query_us = 0.06988,
    .attention_eff = 0.5621,
    .ew_eff = 0.6931,
    .norm_eff = 0.3172,
    .pool_eff = 0.4398,
    .reduce_eff = 0.7976,
    .move_eff = 0.6391,
    .depthwise_eff = 0.4083,
    .act_kept = 0.25,
    .act_lost = 0.75,
    .act_eff = 0.4,
    .low_rank_us = 0.053,
    .low_rank_eff = 0.346,
    .low_rank_cache_eff = 0.7,
    .low_rank_result_eff = 0.36,
    .element_eff = 0.01,
};

double weft_model__cpu_missed(const weft_model_cpu_constants *c, const weft_slice *slice,
                              double reuse_bytes)
{
    if (!(reuse_bytes > 0))
        return 1;
    double at = log(reuse_bytes / (double)slice->cache_bytes), kept = log(c->kept);
    return fmin(1, fmax(0, (at - kept) / (log(c->lost) - kept)));
}
