/* Door of input/: slices of a fleet as numbers, demands by name, apps. What reads files is declared
 * in scheduler.h. */
#ifndef WEFT_SCHEDULER_INPUT_INPUT_H
#define WEFT_SCHEDULER_INPUT_INPUT_H

#include "scheduler/scheduler.h"

/* -- Fleet slices ----------------------------------------------------------------------------- */

typedef enum weft_fleet_slice_kind {
    WEFT_SLICE_WHOLE,
    WEFT_SLICE_MIG,
    WEFT_SLICE_MPS,
    WEFT_SLICE_CORES
} weft_fleet_slice_kind;

enum {
    WEFT_MPS_CLIENTS_MAX = 48, /* per device, NVIDIA MIG user guide */
    WEFT_FLEET_COUNT_MAX = 65536,
    WEFT_FLEET_CORES_MAX = 4096,
};

/* A slice name of a fleet row, as numbers. */
typedef struct weft_fleet_slice {
    weft_fleet_slice_kind kind; /* MIG for "3g.40gb/50%" too: an MPS share of an instance */
    char name[WEFT_SLICE_NAME_MAX];
    double share;       /* of the device's compute units */
    double weight;      /* of the device; the weights on one device never exceed 1 together */
    uint64_t mem_bytes; /* usable, of the whole instance for its shares; 0: not known, no limit */
    uint32_t cores;
    uint32_t percent; /* of the device (MPS) or of the instance (MIG); 0: no share */
    const weft_mig_profile *mig;
} weft_fleet_slice;

/* An MPS share inside a MIG instance. */
bool weft_fleet_slice__is_nested(const weft_fleet_slice *spec);

/* MPS processes that a MIG instance can hold, in proportion to its compute slots. */
uint32_t weft_fleet__mig_clients_max(const weft_mig_profile *mig);
/* The row of `fleet` of a device type; NULL: none. */
const weft_fleet_device *weft_fleet__row(const weft_fleet *fleet, const char *type);
uint64_t weft_fleet__mem(const weft_fleet_device *row);
double weft_fleet__price(const weft_fleet_device *row);
/* false, and a reason in *why, when the row cannot have such a slice. */
bool weft_fleet_slice__resolve(const weft_fleet_device *row, const char *name,
                               weft_fleet_slice *out, const char **why);

/* -- Demands (demands.c)
 * ---------------------------------------------------------------------------- */

/* Duplicate models, bad numbers: INPUT. */
WEFT_MUST_USE weft_err weft_demands__check(const weft_demands *demands, weft_diag *diag);

typedef struct weft_demand_index {
    const weft_demands *demands;
    const uint32_t *by_name;
} weft_demand_index;

weft_demand_index weft_demands__index(const weft_demands *demands, weft_arena *arena);
uint32_t weft_demands__find(const weft_demand_index *index, const char *model); /* UINT32_MAX */

/* -- Apps (apps.c) ---------------------------------------------------------------------------- */

bool weft_app__is_asked(const weft_set_app *app); /* has a rate of its own */
uint32_t weft_app__best_variant(const weft_set_app *app);
/* By demand: 1 + the app with a rate that it is a variant of, 0: none. INPUT: apps contradict. */
WEFT_MUST_USE weft_err weft_apps__index(const weft_problem *problem, weft_arena *arena,
                                        weft_diag *diag, const uint32_t **out);
/* The problem with the SLOs of apps in those of their variants and, with `assign`, their rates in
 * that of the best variant. */
WEFT_MUST_USE weft_err weft_apps__resolve(const weft_problem *problem, bool assign,
                                          weft_arena *arena, weft_diag *diag, weft_problem *out);

#endif
