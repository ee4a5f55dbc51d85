/* Estimated gains of joint programs at the sizes for which their memory was planned. */
#include "tools/compiler/merge_report.h"

#include <string.h>

static weft_err expect_bucket(weft_graph *joint, const weft_bucket *bucket, const weft_slice *slice,
                              weft_arena *arena, weft_tool_expectation *out)
{
    weft_dimpool *pool = weft_module_dims(weft_graph_module(joint));
    uint32_t n = weft_dim_symbol_count(pool), batch = UINT32_MAX;
    int64_t *value = weft_arena_array(arena, (size_t)n + 1, sizeof *value);
    weft_graph *first = weft_graph_find(weft_graph_module(joint), weft_graph_part(joint, 0)->model);
    weft_joint_estimate e;
    memset(value, -1, n * sizeof *value);
    for (uint32_t i = 0; i < bucket->n_symbol; i++) {
        uint32_t at = weft_dim_as_symbol(pool, weft_graph_symbol_dim(joint, i));
        if (at < n)
            value[at] = bucket->symbol[i];
    }
    if (first && weft_graph_batch_symbol(first) != UINT32_MAX)
        batch =
            weft_dim_as_symbol(pool, weft_graph_symbol_dim(first, weft_graph_batch_symbol(first)));
    WEFT_TRY(weft_estimate_joint(joint, value, n, slice, arena, NULL, &e));
    *out = (weft_tool_expectation){.joint = weft_graph_name(joint),
                                   .batch = batch < n ? value[batch] : 1,
                                   .apart_us = e.apart_us,
                                   .joint_us = e.joint.total.time_us};
    return WEFT_ERR_OK;
}

void weft_tool_expect_joint(const weft_module *m, const weft_pass_options *options,
                            weft_arena *arena, weft_tool_expectations *out)
{
    weft_slice slice;
    if (weft_merge_slice(options, &slice) != WEFT_ERR_OK)
        return;
    for (uint32_t i = 0; i < weft_graph_count(m); i++) {
        weft_graph *g = weft_graph_at(m, i);
        for (uint32_t b = 0;
             weft_graph_part_count(g) && !weft_graph_is_packed(g) && b < weft_graph_bucket_count(g);
             b++) {
            weft_tool_expectation one;
            if (expect_bucket(g, weft_graph_bucket(g, b), &slice, arena, &one) == WEFT_ERR_OK)
                WEFT_VEC_PUSH(arena, out, one);
        }
    }
}
