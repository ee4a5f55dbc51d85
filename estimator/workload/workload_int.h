/* What the files of workload/ share: a graph at known sizes. */
#ifndef WEFT_ESTIMATOR_WORKLOAD_WORKLOAD_INT_H
#define WEFT_ESTIMATOR_WORKLOAD_WORKLOAD_INT_H

#include "estimator/workload/workload.h"

/* A graph and the values of all symbols of its module; -1: no value is given. */
typedef struct weft_sizes {
    weft_module *m;
    weft_graph *g;
    weft_arena *arena;
    weft_diag *diag;
    int64_t *value;
    uint32_t n_value;
} weft_sizes;

void weft_sizes__begin(weft_graph *g, const int64_t *symbol, weft_arena *arena, weft_diag *diag,
                       weft_sizes *out);
/* false: a dimension is not known. */
bool weft_sizes__eval(const weft_sizes *s, const weft_ttype *type, int64_t *dim);

/* Fills the bytes of the workload. */
WEFT_MUST_USE weft_err weft_workload__count_memory(const weft_sizes *s, const int64_t *symbol,
                                                   const weft_estimate_options *options,
                                                   weft_workload *out);
/* Fills reuse_bytes of the kernels: the stack distance of their weights. */
void weft_workload__find_reuse(const weft_sizes *s, const weft_estimate_options *options,
                               weft_workload *out);

#endif
