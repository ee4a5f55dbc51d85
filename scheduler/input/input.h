/* Door of input/: slice names of a fleet resolved to numbers, demands by name, and apps. The
 * functions that read files are declared in scheduler.h. */
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

/* A slice of one fleet row: its name, and the numbers that the name stands for. */
typedef struct weft_fleet_slice {
    weft_fleet_slice_kind kind; /* "3g.40gb/50%", an MPS share of a MIG instance, is MIG */
    char name[WEFT_SLICE_NAME_MAX];
    double share;       /* part of the device's compute units, 0..1 */
    double weight;      /* part of the device, 0..1; legal slices of one device sum to at most 1 */
    uint64_t mem_bytes; /* usable; for a share of an instance: of the instance; 0: no limit known */
    uint32_t cores;     /* CPU only */
    uint32_t percent;   /* MPS share of the device (MPS) or of the instance (MIG); 0: no share */
    const weft_mig_profile *mig; /* NULL without MIG */
} weft_fleet_slice;

/* Whether the slice is an MPS share inside a MIG instance. */
bool weft_fleet_slice__is_nested(const weft_fleet_slice *spec);

/* MPS clients that a MIG instance accepts: WEFT_MPS_CLIENTS_MAX in proportion to its GPCs. */
uint32_t weft_fleet__mig_clients_max(const weft_mig_profile *mig);
/* The row of a device type; NULL: the fleet has none. */
const weft_fleet_device *weft_fleet__row(const weft_fleet *fleet, const char *type);
/* Memory in bytes and price in dollars an hour of one device: those of the row, else those of the
 * device table; 0: neither has them. */
uint64_t weft_fleet__mem(const weft_fleet_device *row);
double weft_fleet__price(const weft_fleet_device *row);
/* Resolves a slice name on devices of a row. false: the row cannot have such a slice; *why, a
 * static text, tells the reason. */
bool weft_fleet_slice__resolve(const weft_fleet_device *row, const char *name,
                               weft_fleet_slice *out, const char **why);

/* -- Locations -------------------------------------------------------------------------------- */

enum {
    WEFT_LOCATION_NAME_MAX = 63,
    WEFT_LOCATION_GPU_MAX = 1023,
    WEFT_LOCATION_PORT_MAX = 65533 /* the next two are the worker's, too */
};

/* Whether a text can name a node, a rack, a zone or a worker: lower-case letters, digits, '-' and
 * '.', beginning with a letter. */
bool weft_location__is_name(const char *text);
/* The name of a location's domain; NULL: none. */
const char *weft_location__domain(const weft_location *at, weft_domain level);
/* Where the i-th device of a row is; zeroes: the fleet does not say. The texts live in the arena.
 */
weft_location weft_fleet__location(const weft_fleet_device *row, uint32_t i, weft_arena *arena);
/* Whether the i-th device of a row is on a node that failed; how many are. */
bool weft_fleet__is_lost(const weft_fleet_device *row, uint32_t i);
uint32_t weft_fleet__count_lost(const weft_fleet_device *row);
/* Whether a device of the row is there. */
bool weft_fleet__has_location(const weft_fleet_device *row, const weft_location *at,
                              weft_arena *arena);

/* -- Demands (demands.c) ---------------------------------------------------------------------- */

/* INPUT: a model appears twice, a name is not usable, or a rate or SLO is negative or not finite.
 */
WEFT_MUST_USE weft_err weft_demands__check(const weft_demands *demands, weft_diag *diag);

/* Finds demands by model name in O(log n). Lives in the arena; the demands must outlive it. */
typedef struct weft_demand_index {
    const weft_demands *demands;
    const uint32_t *by_name; /* indices of the demands in the order of their names */
} weft_demand_index;

weft_demand_index weft_demands__index(const weft_demands *demands, weft_arena *arena);
/* Index of the demand of a model; UINT32_MAX: none. */
uint32_t weft_demands__find(const weft_demand_index *index, const char *model);

/* -- Apps (apps.c) ---------------------------------------------------------------------------- */

/* Whether the app has a rate of its own. */
bool weft_app__is_asked(const weft_set_app *app);
/* Index of the most accurate variant; among equals the first by name. */
uint32_t weft_app__best_variant(const weft_set_app *app);
/* *out, by demand: 1 + index of the app with a rate that the model is a variant of; 0: none. INPUT:
 * a variant is no model or belongs to two apps with rates, a number is not usable, or no variant
 * is as accurate as its app requires. */
WEFT_MUST_USE weft_err weft_apps__index(const weft_problem *problem, weft_arena *arena,
                                        weft_diag *diag, const uint32_t **out);
/* Copies the problem with demands in which a variant has the tighter of its own SLO and its app's.
 * `assign`: the best variant also gets the rate of its app, variants without a rate are left out,
 * and the copy has no apps any more. */
WEFT_MUST_USE weft_err weft_apps__resolve(const weft_problem *problem, bool assign,
                                          weft_arena *arena, weft_diag *diag, weft_problem *out);

/* -- Families (families.c) -------------------------------------------------------------------- */

/* The problem in which each chosen family is one demand. Chosen families have no common model. The
 * result has no families to choose. */
void weft_families__group(const weft_problem *problem, const weft_family *const *chosen, size_t n,
                          weft_arena *arena, weft_problem *out);
/* Whether a family of the problem can be chosen: the problem has all its models, none of them a
 * variant of an app, it has a profile, and no earlier family has its name. */
bool weft_family__is_usable(const weft_problem *problem, const weft_family *family,
                            weft_arena *arena);
bool weft_families__overlap(const weft_family *a, const weft_family *b);

#endif
