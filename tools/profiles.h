/* Profiles for the verbs: which slices and batches to estimate, and the estimates. */
#ifndef WEFT_TOOLS_PROFILES_H
#define WEFT_TOOLS_PROFILES_H

#include "estimator/estimator.h"
#include "scheduler/scheduler.h"
#include "tools/tools.h"

/* Distinct slices that a fleet may make. */
WEFT_MUST_USE weft_err weft_tool_fleet_slices(const weft_fleet *fleet, weft_arena *arena,
                                              weft_diag *diag, const weft_slice **out,
                                              size_t *out_n);

/* The profile of a plan-stage graph over the batches of its buckets. A graph that cannot be
 * estimated gives a warning and an empty profile. */
WEFT_MUST_USE weft_err weft_tool_profile_graph(weft_graph *g, const weft_slice *slice,
                                               size_t n_slice, weft_arena *arena, weft_diag *diag,
                                               weft_profile *out);

#endif
