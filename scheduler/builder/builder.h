/* Door of builder/: the load formulas, the option table with its bounds, and the plan builder. */
#ifndef WEFT_SCHEDULER_BUILDER_BUILDER_H
#define WEFT_SCHEDULER_BUILDER_BUILDER_H

#include "scheduler/input/input.h"

/* -- Load formulas (slo.c states them) -------------------------------------------------------- */

/* Where the numbers of one placement come from. */
typedef struct weft_slo_load_in {
    const weft_rules *rules;
    const weft_demand *demand;
    const weft_profile_point *point;
    double exec_us;    /* of the point, with co-runners present */
    double slowdown;   /* by co-runners, in exec_us already; 0 means 1 */
    double cycle_us;   /* sum of exec_us over all placements of the slice */
    bool alone;        /* the only placement of its slice */
    double rate_per_s; /* requests assigned */
} weft_slo_load_in;

typedef struct weft_slo_load {
    double capacity_per_s, latency_us;
} weft_slo_load;

/* true when the numbers of a point can be used at all: finite and positive time. */
bool weft_point__usable(const weft_profile_point *point);
/* SLO of a demand under the rules, us; 0: none. */
double weft_rules__slo_us(const weft_rules *rules, const weft_demand *demand);
/* Least SLO, us, under which a batch may take so long. */
double weft_rules__least_slo_us(const weft_rules *rules, double exec_us);
/* Whether a batch may take so long. */
bool weft_rules__allow(const weft_rules *rules, const weft_demand *demand, double exec_us);
/* Whether so many processes of one model may share a slice. */
bool weft_rules__allow_procs(const weft_rules *rules, uint32_t procs);
weft_slo_load weft_slo__load(const weft_slo_load_in *in);
/* Requests per second of the point alone on its slice. */
double weft_point__peak_per_s(const weft_profile_point *point, double exec_us);
/* Bytes of one placement; 0: not known. */
uint64_t weft_point__mem_bytes(const weft_profile_point *point);
/* Power of what is executed: the sum of rate / batch * joules. Not known as soon as one profile
 * point that carries load has no energy. */
typedef struct weft_power {
    double watts;
    bool unknown;
} weft_power;

void weft_power__add(weft_power *power, const weft_profile_point *point, double rate_per_s);
double weft_power__watts(const weft_power *power); /* 0: not known */

/* What a point asks of the parts of a device that shares have in common, 0..1 (slo.c). */
typedef struct weft_pressure {
    double l2, dram;
} weft_pressure;

weft_pressure weft_point__pressure(const weft_fleet_device *row, const weft_profile_point *point);
bool weft_interference__any(const weft_interference *coeff);
/* Factor >= 1 on the time of `own` beside `others`, the sum of what runs at the same time. */
double weft_interference__factor(const weft_interference *coeff, weft_pressure own,
                                 weft_pressure others);
/* Numbers out of range: INPUT. */
WEFT_MUST_USE weft_err weft_rules__check(const weft_rules *rules, weft_diag *diag);

/* -- The option table: what each demand can run on (option_table.c)
 * ------------------------------------------- */

/* One slice of one fleet row. Shapes are in canonical order: fleet row, then name. */
typedef struct weft_shape {
    const char *device, *slice;
    const weft_fleet_device *row; /* NULL: not in the fleet */
    bool allowed;                 /* the row can have such slices */
    const char *why;              /* not allowed: the reason */
    weft_fleet_slice spec;        /* memory without the reserve of the rules */
} weft_shape;

/* One way to run a model: a slice, a batch and what follows from them. */
typedef struct weft_option {
    const weft_fleet_device *row;
    weft_fleet_slice spec;
    const weft_profile_point *point;
    uint32_t shape; /* index into the option table's shapes */
    double exec_us, peak_per_s;
    uint64_t mem_bytes; /* of all processes */
    weft_pressure use;
} weft_option;

/* The options of one demand on one shape: option[first .. first + n), by batch, then processes. */
typedef struct weft_choice {
    uint32_t shape, first, n;
} weft_choice;

/* A profile point and its time by the rules, by shape, processes, batch. */
typedef struct weft_timed_point {
    const weft_profile_point *point;
    uint32_t shape;
    double exec_us;
} weft_timed_point;

/* Lists are by demand. Options are those within the SLO, the rules and the memory. */
typedef struct weft_option_table {
    const weft_problem *problem;
    const weft_shape *shape;
    uint32_t n_shape;
    const weft_timed_point **timed;
    uint32_t *n_timed;
    const weft_option **option;
    uint32_t *n_option;
    const weft_choice **choice;
    uint32_t *n_choice;
    const uint32_t *slot; /* hash table of shapes */
    uint32_t n_slot;
} weft_option_table;

/* Never fails (memory: unwinds). */
void weft_option_table__build(const weft_problem *problem, weft_arena *arena,
                              weft_option_table *out);
/* The shape of a device type and slice that some profile names; NULL: none does. O(1). */
const weft_shape *weft_option_table__shape(const weft_option_table *table, const char *device,
                                           const char *slice);
/* A slice of the fleet as the rules see it, whether a profile names it or not; false: *why. */
bool weft_option_table__spec(const weft_option_table *table, const char *device, const char *slice,
                             weft_fleet_slice *out, const char **why);
/* The usable point of a demand; NULL: none. O(log n). */
const weft_timed_point *weft_option_table__find(const weft_option_table *table, uint32_t demand,
                                                const weft_shape *shape, uint32_t batch,
                                                uint32_t procs);
/* The options of a demand on a shape; n 0: none. O(log n). */
weft_choice weft_option_table__choice(const weft_option_table *table, uint32_t demand,
                                      uint32_t shape);
/* The option of that batch and so many processes; NULL: none. O(log n). */
const weft_option *weft_option_table__option(const weft_option_table *table, uint32_t demand,
                                             uint32_t shape, uint32_t batch, uint32_t procs);
/* Whether the fleet, the rules, the memory and the SLO allow a point, asked in this order:
 * POSSIBLE, or the first that does not. */
weft_verdict weft_option_table__judge(const weft_option_table *table, uint32_t demand,
                                      const weft_timed_point *timed);
/* INFEASIBLE: why a demand has no option, and what would give it one. */
weft_err weft_option_table__refuse(const weft_option_table *table, uint32_t demand,
                                   weft_diag *diag);
/* Devices that any plan within the rules needs (bound.c). */
double weft_option_table__lower_bound(const weft_option_table *table);
/* Dollars an hour that any plan within the rules costs; 0 where a price is not known. */
double weft_option_table__cost_bound(const weft_option_table *table);

/* -- The builder: a plan being built ------------------------------------------------------------
 */

typedef struct weft_member {
    uint32_t demand;
    const weft_option *option;
    double rate_per_s;
} weft_member;

typedef struct weft_builder_slice {
    uint32_t device, id;
    int32_t mig_start; /* -1 without MIG */
    weft_fleet_slice spec;
    uint32_t shape;
    uint32_t before; /* the slice put on the device before this one; UINT32_MAX: none */
    WEFT_VEC(weft_member) members;
} weft_builder_slice;

/* A MIG instance that is split into MPS shares. */
typedef struct weft_builder_instance {
    const weft_mig_profile *mig; /* NULL: no such instance starts at this slot */
    uint32_t percent, clients, n_share;
    uint64_t mem_bytes;
} weft_builder_instance;

typedef struct weft_builder_device {
    const weft_fleet_device *row;
    weft_fleet_slice_kind kind; /* of its slices */
    uint32_t nth;               /* among the devices of its row */
    uint32_t n_slice;
    uint32_t last;                   /* slice put last; UINT32_MAX: none */
    uint32_t mig_taken;              /* memory slots */
    uint32_t gpcs;                   /* of its instances */
    uint32_t percent;                /* of MPS shares */
    uint32_t clients;                /* processes, without CPU */
    uint64_t mem_bytes;              /* of shares without MIG, of CPU slices */
    bool *cores_taken;               /* CPU: by slice index */
    weft_builder_instance *instance; /* by start slot; NULL: none is split */
} weft_builder_device;

struct weft_pool;

typedef struct weft_undo_record {
    enum { WEFT_UNDO_OPEN, WEFT_UNDO_PUT, WEFT_UNDO_JOIN } kind;
    uint32_t slice;
    uint32_t n_saved; /* members saved for it */
} weft_undo_record;

typedef struct weft_builder {
    const weft_problem *problem;
    const weft_demands *demands;
    const weft_fleet *fleet;
    weft_arena *arena;
    weft_diag *diag;
    weft_option_table table;
    weft_demand_index index;
    const uint32_t *order;      /* of the index: demands by name */
    const weft_option **option; /* of the option table: by demand */
    uint32_t *n_option;         /* of the option table: by demand */
    uint32_t *opened;           /* by fleet row: devices open */
    WEFT_VEC(weft_builder_device) devices;
    WEFT_VEC(weft_builder_slice) slices;
    struct weft_pool *pool; /* devices by what is free on them (device_pool.c) */
    WEFT_VEC(weft_undo_record) log;
    WEFT_VEC(weft_member) saved; /* members before joins in the log */
} weft_builder;

/* Lists the options of every demand. INFEASIBLE with its reason when a model has none at all;
 * with the goal goodput such a model is left out (n_option 0). */
WEFT_MUST_USE weft_err weft_builder__init(weft_builder *builder, const weft_problem *problem,
                                          weft_arena *arena, weft_diag *diag);
/* Whether weft_builder__add would find a device (without interference, which depends on rates). */
bool weft_builder__has_place(const weft_builder *builder, const weft_option *option);
/* Adds a slice for `option`: on the open device with room and least left (best true), on the first
 * (best false), or on a new one. false: no room, or the rate is too high for it. The new slice is
 * the last of builder->slices. */
bool weft_builder__add(weft_builder *builder, uint32_t demand, const weft_option *option,
                       double rate_per_s, bool best);
/* Opens an empty device for slices of one kind; UINT32_MAX: the fleet has no more of them. Devices
 * that stay empty are not in the plan. */
uint32_t weft_builder__open(weft_builder *builder, const weft_fleet_device *row,
                            weft_fleet_slice_kind kind);
/* Adds a slice on that device. `mig_start`: start slot of a MIG instance (of a share: of its
 * instance, which is made if it is not there), index of a CPU slice; -1: any that is free. false,
 * and nothing changed, without room or when the option cannot carry the rate. */
bool weft_builder__put(weft_builder *builder, uint32_t device, int32_t mig_start, uint32_t demand,
                       const weft_option *option, double rate_per_s);
/* Puts a model beside those on a slice, in turn. option[i]: for the i-th member, the last: for the
 * newcomer; all of the slice's shape with one process. false, and nothing changed, when SLOs, rates
 * or the memory do not allow it. */
bool weft_builder__join(weft_builder *builder, uint32_t slice, uint32_t demand, double rate_per_s,
                        const weft_option *const *option);
/* The same, choosing the batches of all anew. *occupancy: part of the time that the slice is busy;
 * commit false: only tells. */
bool weft_builder__share(weft_builder *builder, uint32_t slice, uint32_t demand, double rate_per_s,
                         bool commit, double *occupancy);
/* Whether models on other slices slow this one down. */
bool weft_builder__has_neighbours(const weft_fleet_slice *spec);
/* Number of the demand of this name; UINT32_MAX: there is none. */
uint32_t weft_builder__find_demand(const weft_builder *builder, const char *model);
/* What was done since the mark is undone; slices and devices made since are gone. */
uint32_t weft_builder__mark(const weft_builder *builder);
void weft_builder__undo(weft_builder *builder, uint32_t mark);
/* INFEASIBLE: the fleet has no place for the rest of a model. */
weft_err weft_builder__full(weft_builder *builder, uint32_t demand, double rest_per_s);
/* Any number of times; the builder can go on. */
void weft_builder__finish(const weft_builder *builder, const char *policy, weft_plan *out);

#endif
