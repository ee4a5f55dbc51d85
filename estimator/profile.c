/* Profiles: the estimate of a graph over slices and batches, as the scheduler reads it. */
#include "estimator/estimator_int.h"

#include <stdio.h>

static void name_point(const weft_slice *slice, uint32_t batch, const weft_cost *cost,
                       weft_profile_point *out)
{
    *out = (weft_profile_point){.share = slice->share, .batch = batch, .procs = 1, .cost = *cost};
    snprintf(out->device, sizeof out->device, "%s", slice->gpu->name);
    snprintf(out->slice, sizeof out->slice, "%s", slice->name);
}

weft_err weft_estimate_profile(weft_graph *g, const weft_slice *slice, size_t n_slice,
                               const uint32_t *batch, size_t n_batch,
                               const weft_estimate_options *options, weft_arena *arena,
                               weft_diag *diag, weft_profile *out)
{
    weft_profile_point *point = weft_arena_array(arena, n_slice * n_batch + 1, sizeof *point);
    int64_t *symbol =
        weft_arena_array(arena, (size_t)weft_graph_symbol_count(g) + 1, sizeof *symbol);
    size_t n = 0;
    for (size_t s = 0; s < n_slice; s++) {
        for (size_t b = 0; b < n_batch; b++) {
            weft_estimate e;
            WEFT_TRY(weft_estimate_symbols(g, batch[b], diag, symbol));
            /* Per-kernel numbers are not kept: what they took is given back. */
            weft_arena_mark mark = weft_arena_get_mark(arena);
            WEFT_TRY(weft_estimate_graph(g, symbol, &slice[s], options, arena, diag, &e));
            weft_arena_reset(arena, mark);
            name_point(&slice[s], batch[b], &e.total, &point[n++]);
        }
    }
    *out = (weft_profile){.point = point, .n = n};
    return WEFT_ERR_OK;
}
