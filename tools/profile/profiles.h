/* Profiles of models for the verbs: lists of slices, estimated profiles, recorded profiles. */
#ifndef WEFT_TOOLS_PROFILES_H
#define WEFT_TOOLS_PROFILES_H

#include "estimator/estimator.h"
#include "scheduler/scheduler.h"
#include "tools/common/tools.h"
#include "tools/profile/pipeline.h"

/* Lists the distinct slices that a fleet may have; MPS shares beside others that use their parts of
 * the bandwidth. */
WEFT_MUST_USE weft_err weft_tool_fleet_slices(const weft_fleet *fleet, weft_arena *arena,
                                              weft_diag *diag, const weft_slice **out,
                                              size_t *out_n);

/* Lists every way to use one device: whole, each MIG profile, MPS shares in steps of 10 %; for a
 * CPU 1, 2 and 4 cores. */
WEFT_MUST_USE weft_err weft_tool_gpu_slices(const char *gpu, weft_arena *arena, weft_diag *diag,
                                            const weft_slice **out, size_t *out_n);

/* Zero-initialised: the defaults. */
typedef struct weft_tool_profile_options {
    const weft_calibration *calibration; /* used for the device that it names; NULL: none */
    bool exact_f32;                      /* GEMMs of f32 are not computed as TF32 */
} weft_tool_profile_options;

/* The profile of a plan-stage graph over the batches of its buckets and, on GPUs, one to three
 * processes. A graph that cannot be estimated gives a warning and an empty profile. The graph has
 * been lowered for devices of that kind (weft_tool_pipeline_lower). Options: NULL is the defaults.
 */
WEFT_MUST_USE weft_err weft_tool_profile_graph(weft_graph *g, const weft_slice *slice,
                                               size_t n_slice,
                                               const weft_tool_profile_options *options,
                                               weft_arena *arena, weft_diag *diag,
                                               weft_profile *out);
/* The profile of a joint graph. `model`: the profiles of its models, in order; a point's batch
 * counts the requests of all models, equally many of each. A point has the time of the models one
 * after the other where that is shorter, since a server may choose it, and always the memory of the
 * joint graph. */
WEFT_MUST_USE weft_err weft_tool_profile_joint(weft_graph *joint, const weft_profile *const *model,
                                               const weft_slice *slice, size_t n_slice,
                                               const weft_tool_profile_options *options,
                                               weft_arena *arena, weft_diag *diag,
                                               weft_profile *out);
/* The profile of a model of a set, lowered for each kind of device among the slices. `pipeline` has
 * the options of the passes. */
WEFT_MUST_USE weft_err weft_tool_profile_model(const weft_tool_pipeline *pipeline,
                                               const weft_set_model *model, const weft_slice *slice,
                                               size_t n_slice,
                                               const weft_tool_profile_options *options,
                                               weft_arena *arena, weft_diag *diag,
                                               weft_profile *out);
/* Where the profiles of a set come from. */
typedef struct weft_tool_profile_sources {
    const char *bundle; /* has those of all models; NULL: as the set says */
    const weft_tool_pipeline *pipeline;
    /* Models without a recorded profile are estimated for these. None: they get no points. */
    const weft_slice *slice;
    size_t n_slice;
    const weft_tool_profile_options *options; /* NULL: the defaults */
} weft_tool_profile_sources;

/* The profile of each model of a set, in order: recorded in its `profile` (a CSV or a bundle) or in
 * a bundle as its `file`, else estimated. Models may share the points of one profile. */
WEFT_MUST_USE weft_err weft_tool_set_profiles(const weft_set *set,
                                              const weft_tool_profile_sources *from,
                                              weft_arena *arena, weft_diag *diag,
                                              weft_profile *out);
/* Adds the families of a bundle: its joint programs that have a profile and whose models are all in
 * the set. */
typedef WEFT_VEC(weft_family) weft_tool_families;
WEFT_MUST_USE weft_err weft_tool_bundle_families(const weft_set *set, const char *path,
                                                 weft_arena *arena, weft_diag *diag,
                                                 weft_tool_families *out);
/* The same for every bundle that the set names. */
WEFT_MUST_USE weft_err weft_tool_set_families(const weft_set *set, weft_arena *arena,
                                              weft_diag *diag, weft_tool_families *out);

#endif
