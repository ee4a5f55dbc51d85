/* The slices of this machine that `weft serve` uses: CPU slices from the command line, or the
 * slices of a plan on CPUs or GPUs. */
#ifndef WEFT_TOOLS_SERVE_SLICES_H
#define WEFT_TOOLS_SERVE_SLICES_H

#include "runtime/machine/machine.h"
#include "runtime/server/server.h"
#include "scheduler/scheduler.h"

enum { WEFT_SLICES_MAX = 256, WEFT_SLICE_CPUS_MAX = 1024 };

typedef struct weft_slices_options {
    const int64_t *cores; /* sizes of CPU slices, without a plan */
    size_t n_cores;
    const char *plan;
    const uint32_t *device; /* devices of the plan to serve; n_device 0: all */
    size_t n_device;
    bool start_mps;       /* start private daemons for MPS shares; false: use the one that runs */
    bool green;           /* shares are SM partitions (green contexts) instead of MPS percentages */
    bool reconfigure_mig; /* create the MIG instances of the plan */
} weft_slices_options;

typedef struct weft_slices {
    weft_serve_slice at[WEFT_SLICES_MAX];
    uint32_t n;
    weft_mps *mps[WEFT_SLICES_MAX];
    uint32_t n_mps;
    uint32_t cpu[WEFT_SLICE_CPUS_MAX]; /* CPUs that this process may use */
    uint32_t n_cpu;
} weft_slices;

/* Makes the slices. Strings live in `arena`, the rest in `out`. weft_tool_end_slices must be
 * called even after an error. */
WEFT_MUST_USE weft_err weft_slices_make(const weft_slices_options *options, weft_arena *arena,
                                        weft_diag *diag, weft_slices *out);
/* The slices of another plan, for a server that runs: CPU slices only. They live in `arena`. */
WEFT_MUST_USE weft_err weft_slices_remake(const weft_slices_options *options, const weft_plan *plan,
                                          weft_arena *arena, weft_diag *diag,
                                          const weft_serve_slice **out, uint32_t *out_n);
/* Stops the daemons. */
void weft_slices_end(weft_slices *slices, weft_diag *diag);

/* -- Between serve_slices.c and serve_gpus.c ------------------------------------------------ */

/* A slice of the plan, with all placements on it. */
typedef struct weft_slice_group {
    uint32_t device, slice_id;
    const weft_placement *first;
    const char **model;
    uint32_t *batch; /* by model: as planned */
    uint32_t n_model, procs;
    uint64_t mem_bytes; /* sum over its models; 0: one is unknown */
} weft_slice_group;

typedef WEFT_VEC(weft_slice_group) weft_slice_groups;

WEFT_MUST_USE weft_err weft_slices__on_gpus(const weft_slices_options *options,
                                            const weft_plan *plan, const weft_slice_groups *groups,
                                            weft_arena *arena, weft_diag *diag, weft_slices *out);

#endif
