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
    const char *plan_text;  /* is read instead of the file `plan`; NULL: the file is */
    const uint32_t *device; /* devices of the plan to serve; n_device 0: all */
    size_t n_device;
    bool start_mps;       /* start private daemons for MPS shares; false: use the one that runs */
    bool green;           /* shares are SM partitions (green contexts) instead of MPS percentages */
    bool reconfigure_mig; /* create the MIG instances of the plan */
} weft_slices_options;

/* An MPS daemon of a GPU or MIG instance, by its UUID. */
typedef struct weft_slice_daemon {
    char uuid[WEFT_MACHINE_NAME_MAX];
    weft_mps *mps;
} weft_slice_daemon;

typedef struct weft_slice_daemons {
    weft_slice_daemon at[WEFT_SLICES_MAX];
    uint32_t n;
} weft_slice_daemons;

typedef struct weft_gpu_slices weft_gpu_slices;

typedef struct weft_slices {
    const weft_slices_options *options;
    weft_serve_slice at[WEFT_SLICES_MAX];
    uint32_t n;
    weft_slice_daemons daemons;
    weft_gpu_slices *gpus;             /* what changes slices of GPUs; NULL: they are of CPUs */
    uint32_t cpu[WEFT_SLICE_CPUS_MAX]; /* CPUs that this process may use */
    uint32_t n_cpu;
} weft_slices;

/* Makes the slices. Strings live in `arena`, the rest in `out`. weft_tool_end_slices must be
 * called even after an error. */
WEFT_MUST_USE weft_err weft_slices_make(const weft_slices_options *options, weft_arena *arena,
                                        weft_diag *diag, weft_slices *out);
/* The slices of another plan, before anything runs on the present ones, or of CPUs. They live in
 * `arena`. */
WEFT_MUST_USE weft_err weft_slices_remake(weft_slices *slices, const weft_plan *plan,
                                          weft_arena *arena, weft_diag *diag,
                                          const weft_serve_slice **out, uint32_t *out_n);
/* How slices of GPUs change while they are served on; its functions take the weft_slices. */
extern const weft_serve_steps weft_slices_steps;
/* Stops the daemons. */
void weft_slices_end(weft_slices *slices, weft_diag *diag);

/* -- Between slice_groups.c, serve_gpus.c, serve_gpu_change.c and serve_slices.c ------------ */

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

/* The groups of a plan, by device and slice. */
WEFT_MUST_USE weft_err weft_slices__group(const weft_slices_options *options, const weft_plan *plan,
                                          weft_arena *arena, weft_diag *diag,
                                          weft_slice_groups *out);

/* A device of the plan, and the GPU that it is mapped to. */
typedef struct weft_slice_target {
    uint32_t device;
    const weft_slice_group *group; /* its first group */
    uint32_t n;
    const weft_machine_gpu *gpu; /* NULL: none yet */
} weft_slice_target;

enum { WEFT_SLICE_GPUS_MAX = 64 };

typedef struct weft_slice_mapper {
    const weft_slices_options *options;
    const weft_plan *plan;
    weft_machine machine;
    weft_slice_target target[WEFT_SLICE_GPUS_MAX];
    uint32_t n_target;
    bool prefers; /* devices have the numbers of the GPUs that are tried first */
    weft_arena *arena;
    weft_diag *diag;
    weft_where where; /* the plan file */
    weft_slices *out;
    weft_slice_daemons *daemons;
} weft_slice_mapper;

/* Fills targets with the GPUs of m->machine. */
WEFT_MUST_USE weft_err weft_slices__match(weft_slice_mapper *m, const weft_slice_groups *groups);
/* The same where the numbers of devices are those of GPUs. */
WEFT_MUST_USE weft_err weft_slices__take(weft_slice_mapper *m, const weft_slice_groups *groups);
/* Makes the MIG instances of a target; `all`: and destroys the others on its GPU. */
WEFT_MUST_USE weft_err weft_slices__make_instances(weft_slice_mapper *m,
                                                   const weft_slice_target *target, bool all);
/* Makes the slices in m->out, and daemons. */
WEFT_MUST_USE weft_err weft_slices__add(weft_slice_mapper *m);

/* Makes the slices of a plan on the GPUs of this machine (serve_gpu_change.c). */
WEFT_MUST_USE weft_err weft_slices__on_gpus(const weft_slices_options *options,
                                            const weft_plan *plan, const weft_slice_groups *groups,
                                            weft_arena *arena, weft_diag *diag, weft_slices *out);
void weft_slices__end(weft_gpu_slices *gpus); /* NULL is allowed */

#endif
