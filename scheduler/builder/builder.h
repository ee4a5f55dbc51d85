/* Door of builder/: the load formulas and SLO rules (slo.c), the option table (option_table.c) with
 * lower bounds on plans (bound.c), and the plan builder (plan_builder.c). */
#ifndef WEFT_SCHEDULER_BUILDER_BUILDER_H
#define WEFT_SCHEDULER_BUILDER_BUILDER_H

#include "scheduler/input/input.h"

/* -- Load formulas (slo.c) -------------------------------------------------------------------- */

/* What capacity and latency of one placement depend on. */
typedef struct weft_slo_load_in {
    const weft_rules *rules;
    const weft_demand *demand;
    const weft_profile_point *point;
    double exec_us;    /* execution time of a batch, interference included */
    double slowdown;   /* factor of interference that exec_us includes; 0: 1 */
    double cycle_us;   /* sum of exec_us over all placements of the slice */
    bool alone;        /* whether this is the only placement of its slice */
    double rate_per_s; /* of the requests assigned to the placement */
} weft_slo_load_in;

typedef struct weft_slo_load {
    double capacity_per_s, latency_us;
    double exec_us; /* of a full batch, rule `queue` only; else 0 */
} weft_slo_load;

/* Whether the numbers of a point are in range: positive batch and processes, finite positive time,
 * finite throughput. */
bool weft_point__usable(const weft_profile_point *point);
/* The SLO of a demand as the rules round it, less the host cost, us; 0 or less with an SLO: no
 * batch keeps it. Whether there is one, demand->slo_us > 0 tells. */
double weft_rules__slo_us(const weft_rules *rules, const weft_demand *demand);
/* The least SLO, us, under which the rules allow a batch that executes for exec_us. */
double weft_rules__least_slo_us(const weft_rules *rules, const weft_demand *demand, double exec_us);
/* The factor, at least 1, by which the confidence of the rules lengthens the times of a point. */
double weft_rules__margin(const weft_rules *rules, const weft_profile_point *point);
bool weft_rules__equal(const weft_rules *a, const weft_rules *b);
/* Whether the latency rule allows a batch of this demand to execute for exec_us. */
bool weft_rules__allow(const weft_rules *rules, const weft_demand *demand, double exec_us);
/* Whether the rules allow this number of processes of one model on a slice. */
bool weft_rules__allow_procs(const weft_rules *rules, uint32_t procs);
weft_slo_load weft_slo__load(const weft_slo_load_in *in);
/* Requests per second that the rules allow a point that has its slice to itself. */
double weft_slo__capacity_per_s(const weft_rules *rules, const weft_demand *demand,
                                const weft_profile_point *point, double exec_us);
/* The same on a shared slice with a round of cycle_us. */
double weft_slo__turn_per_s(const weft_rules *rules, const weft_demand *demand,
                            const weft_profile_point *point, double exec_us, double cycle_us);
/* Memory of all processes of the point, saturating; 0: not known. */
uint64_t weft_point__mem_bytes(const weft_profile_point *point);

/* Power of the executed batches: the sum of rate / batch * energy of a batch. */
typedef struct weft_power {
    double watts;
    bool unknown; /* some point with a rate has no energy */
} weft_power;

void weft_power__add(weft_power *power, const weft_profile_point *point, double rate_per_s);
double weft_power__watts(const weft_power *power); /* 0: not known */

/* -- Interference (interference.c) ---------------------------------------------------------- */

/* Utilisation, 0..1, of the resources that the MPS shares of a device have in common. */
typedef struct weft_pressure {
    double l2, dram;
    const weft_usehist *use; /* over time; may be NULL or zeroes: not known */
} weft_pressure;

/* Levels of the summed bandwidth, in steps of WEFT_USEHIST_LEVELS - 1 a device; the last one
 * stands for all above. */
enum { WEFT_PRESSURE_LEVELS = 4 * (WEFT_USEHIST_LEVELS - 1) + 1 };

/* Of several runs at the same time. Starts as zeroes. */
typedef struct weft_pressure_sum {
    double l2, dram;
    double band[WEFT_PRESSURE_LEVELS]; /* part of the time at each level of bandwidth, up to top */
    int top;
} weft_pressure_sum;

weft_pressure weft_point__pressure(const weft_fleet_device *row, const weft_profile_point *point);
/* Of models in turn on one slice: the larger of each. */
weft_pressure weft_pressure__larger(weft_pressure a, weft_pressure b);
/* Whether there is any. */
bool weft_interference__any(const weft_interference *coeff);
bool weft_interference__equal(const weft_interference *a, const weft_interference *b);
void weft_interference__add(const weft_interference *coeff, weft_pressure use,
                            weft_pressure_sum *sum);
/* The factor, at least 1, by which co-runners slow a model of pressure `own` down. */
double weft_interference__factor(const weft_interference *coeff, weft_pressure own,
                                 const weft_pressure_sum *others);

/* -- Rules (slo.c) ---------------------------------------------------------------------------- */

/* INPUT: a number is out of range. */
WEFT_MUST_USE weft_err weft_rules__check(const weft_rules *rules, weft_diag *diag);

/* -- Batch service of random arrivals (queue_capacity.c, queue_chain.c) ----------------------- */

/* A server that takes up to `batch` waiting requests at a time, in closed form. */
typedef struct weft_queue {
    uint32_t batch, procs;
    double exec_us;   /* from the start of a full batch to its answers */
    double period_us; /* between the starts of full batches: exec / procs, or a shared round */
    double quantile;  /* of the requests that keep the SLO, above 0 and below 1 */
} weft_queue;

double weft_queue__peak_per_s(const weft_queue *q);
/* The largest rate of Poisson arrivals at which the quantile keeps the SLO; 0: none, or a number is
 * out of range. SLO HUGE_VAL: none. */
double weft_queue__rate_per_s(const weft_queue *q, double slo_us);
/* The quantile of the latency at a rate, at least two executions; HUGE_VAL at or above the peak. */
double weft_queue__latency_us(const weft_queue *q, double rate_per_s);

/* The same server with the time of each batch size, for the exact procedure. */
typedef struct weft_queue_chain {
    const double *exec_us; /* [k - 1]: time of k requests, not decreasing */
    uint32_t batch, procs;
} weft_queue_chain;

/* The share of requests answered later than slo_us. 1 at or above the peak, or if a number is out
 * of range. */
double weft_queue_chain__late(const weft_queue_chain *in, double rate_per_s, double slo_us);
/* The largest rate with at most 1 - quantile late. */
double weft_queue_chain__rate_per_s(const weft_queue_chain *in, double slo_us, double quantile);

/* -- Option table (option_table.c) ------------------------------------------------------------ */

/* A device type and a slice name that some profile names. Shapes are sorted by fleet row, then by
 * slice name. */
typedef struct weft_shape {
    const char *device, *slice;
    const weft_fleet_device *row; /* NULL: the fleet has no such device */
    bool allowed;                 /* whether the row can have such slices */
    const char *why;              /* the reason when it cannot */
    weft_fleet_slice spec;        /* its memory is less by the reserve of the rules */
} weft_shape;

/* One way to run a model within SLO, rules and memory: a slice, a batch, a number of processes. */
typedef struct weft_option {
    const weft_fleet_device *row;
    weft_fleet_slice spec;
    const weft_profile_point *point;
    uint32_t shape; /* index into the shapes of the option table */
    uint32_t demand;
    double exec_us, peak_per_s;
    double price_per_hour; /* of the device; 0: not known */
    double cost;        /* weight of the slice times the price, or times 1 where it is not known */
    uint64_t mem_bytes; /* of all processes */
    weft_pressure use;
} weft_option;

/* The options of one demand on one shape: option[first .. first + n), sorted by batch, then by
 * processes. */
typedef struct weft_choice {
    uint32_t shape, first, n;
} weft_choice;

/* A profile point with its execution time under the latency rule. Timed points are sorted by shape,
 * processes and batch. */
typedef struct weft_timed_point {
    const weft_profile_point *point;
    uint32_t shape;
    double exec_us;
} weft_timed_point;

/* What each demand can run on. Lists with two levels are indexed by demand first. */
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
    const uint32_t *slot; /* hash table: index of a shape + 1, 0: free */
    uint32_t n_slot;
} weft_option_table;

/* The table refers to the problem and lives in `arena`, which unwinds when memory is exhausted. */
void weft_option_table__build(const weft_problem *problem, weft_arena *arena,
                              weft_option_table *out);
/* The shape of a device type and slice; NULL: no profile names them. O(1). */
const weft_shape *weft_option_table__shape(const weft_option_table *table, const char *device,
                                           const char *slice);
/* Resolves a slice of the fleet, memory reserve subtracted, whether a profile names it or not.
 * false: the fleet cannot have it; *why tells the reason. */
bool weft_option_table__spec(const weft_option_table *table, const char *device, const char *slice,
                             weft_fleet_slice *out, const char **why);
/* The point of a demand for this shape, batch and processes; NULL: none, or none that is usable.
 * O(log n). */
const weft_timed_point *weft_option_table__find(const weft_option_table *table, uint32_t demand,
                                                const weft_shape *shape, uint32_t batch,
                                                uint32_t procs);
/* The options of a demand on a shape; n 0: none. O(log n). */
weft_choice weft_option_table__choice(const weft_option_table *table, uint32_t demand,
                                      uint32_t shape);
/* The option of a demand for this shape, batch and processes; NULL: none. O(log n). */
const weft_option *weft_option_table__option(const weft_option_table *table, uint32_t demand,
                                             uint32_t shape, uint32_t batch, uint32_t procs);
/* The option of a demand that a placement is; NULL: none. O(log n). */
const weft_option *weft_option_table__placed(const weft_option_table *table, uint32_t demand,
                                             const weft_placement *p);
/* Checks a point against the fleet, the rules, the memory and the SLO in this order. POSSIBLE, or
 * the first that fails. */
weft_verdict weft_option_table__judge(const weft_option_table *table, uint32_t demand,
                                      const weft_timed_point *timed);
/* Reports why a demand has no option, and what would give it one. Always INFEASIBLE. */
weft_err weft_option_table__refuse(const weft_option_table *table, uint32_t demand,
                                   weft_diag *diag);
/* Lower bounds on any plan within the rules (bound.c): devices, and dollars an hour. A device whose
 * price is not known counts as free. */
double weft_option_table__lower_bound(const weft_option_table *table);
double weft_option_table__cost_bound(const weft_option_table *table);
/* Sets both bounds of a plan with known devices and price, and whether it is proven. */
void weft_option_table__bound_plan(const weft_option_table *table, weft_plan *plan);
/* Raises the bounds (never above the plan itself), and decides again whether it is proven. */
void weft_option_table__raise_bounds(weft_plan *plan, double devices, double cost_per_hour);

/* -- Plan builder (plan_builder.c, time_sharing.c) -------------------------------------------- */

/* A model on a slice. */
typedef struct weft_member {
    uint32_t demand;
    const weft_option *option;
    double rate_per_s;
} weft_member;

typedef struct weft_builder_slice {
    uint32_t device, id;
    int32_t mig_start; /* first memory slot of the MIG instance; -1 without MIG */
    weft_fleet_slice spec;
    uint32_t shape;
    uint32_t before; /* the slice added to the same device before this one; UINT32_MAX: none */
    WEFT_VEC(weft_member) members;
} weft_builder_slice;

/* A MIG instance that is split into MPS shares, and what its shares occupy together. */
typedef struct weft_builder_instance {
    const weft_mig_profile *mig; /* NULL: no such instance starts at this slot */
    uint32_t percent, clients, n_share;
    uint32_t demand; /* of its first share; of all under the rule `isolated` */
    uint64_t mem_bytes;
} weft_builder_instance;

/* A device in use, and what its slices occupy together. */

typedef struct weft_builder_device {
    const weft_fleet_device *row;
    weft_fleet_slice_kind kind; /* of its slices */
    uint32_t nth;               /* number among the devices of its row */
    uint32_t n_slice;
    uint32_t last;                   /* slice added last; UINT32_MAX: none */
    uint32_t mig_taken;              /* bit s: memory slot s belongs to an instance */
    uint32_t gpcs;                   /* of its instances */
    uint32_t percent;                /* of MPS shares of the device */
    uint32_t clients;                /* processes; GPUs only */
    uint64_t mem_bytes;              /* of MPS shares of the device, or of CPU slices */
    bool *cores_taken;               /* CPU only: by slice index */
    weft_builder_instance *instance; /* by start slot; NULL: no instance is split */
} weft_builder_device;

struct weft_pool;

/* What weft_builder__undo has to revert: a device opened, a slice added, a model joined. */
typedef struct weft_undo_record {
    enum { WEFT_UNDO_OPEN, WEFT_UNDO_PUT, WEFT_UNDO_JOIN } kind;
    uint32_t slice;
    uint32_t n_saved; /* JOIN: members that the slice had before, on top of `saved` */
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
    struct weft_pool *pool; /* finds devices by free room (device_pool.c) */
    WEFT_VEC(weft_undo_record) log;
    WEFT_VEC(weft_member) saved; /* stack of the members that slices had before joins in the log */
} weft_builder;

/* Builds the option table. INFEASIBLE, with a message for each: a model has no option. Under the
 * goal goodput such a model is no error; it has n_option 0. The builder lives in `arena`. */
WEFT_MUST_USE weft_err weft_builder__init(weft_builder *builder, const weft_problem *problem,
                                          weft_arena *arena, weft_diag *diag);
/* Whether weft_builder__add would find a device, interference ignored (it depends on rates). */
bool weft_builder__has_place(const weft_builder *builder, const weft_option *option);
/* Adds a slice for `option` with one model on it: by best fit (`best`) or by first fit on the open
 * devices, else on a new device. The slice becomes the last of builder->slices. false, and nothing
 * changed: no room, or the option cannot carry the rate. */
bool weft_builder__add(weft_builder *builder, uint32_t demand, const weft_option *option,
                       double rate_per_s, bool best);
/* Opens a device for slices of one kind and returns its index; UINT32_MAX: all devices of the row
 * are open. The plan leaves out devices that stay empty. */
uint32_t weft_builder__open(weft_builder *builder, const weft_fleet_device *row,
                            weft_fleet_slice_kind kind);
/* Adds a slice with one model on it to a given device. `mig_start`: the start slot of the MIG
 * instance (for a share: of its instance, which is created if needed), or the index of the CPU
 * slice; -1: any free one. false, and nothing changed: no room, or the option cannot carry the
 * rate. */
bool weft_builder__put(weft_builder *builder, uint32_t device, int32_t mig_start, uint32_t demand,
                       const weft_option *option, double rate_per_s);
/* Adds a model to a slice that others use, by time sharing. option[i] becomes the option of the
 * i-th member, the last one that of the new model; all have the shape of the slice and one process.
 * false, and nothing changed: some SLO, a rate or the memory does not allow it. */
bool weft_builder__join(weft_builder *builder, uint32_t slice, uint32_t demand, double rate_per_s,
                        const weft_option *const *option);
/* The same, with batches chosen by the builder for all members. *occupancy: the part of the time in
 * which the slice then executes. `commit` false: the slice is left unchanged. */
bool weft_builder__share(weft_builder *builder, uint32_t slice, uint32_t demand, double rate_per_s,
                         bool commit, double *occupancy);
/* Whether slices of this kind run at the same time on the same compute units and slow each other
 * down: MPS shares, of a device or of an instance. */
bool weft_builder__has_neighbours(const weft_fleet_slice *spec);
/* What the models of a slice use, which run in turn. */
weft_pressure weft_builder__pressure(const weft_builder_slice *slice);
/* Index of the demand of this name; UINT32_MAX: none. */
uint32_t weft_builder__find_demand(const weft_builder *builder, const char *model);
/* Reverts everything since the mark; indices of slices and devices added since become invalid. */
uint32_t weft_builder__mark(const weft_builder *builder);
void weft_builder__undo(weft_builder *builder, uint32_t mark);
/* Reports that the fleet has no place for the rest of a model's rate, and how many slices would
 * carry it. Always INFEASIBLE. */
weft_err weft_builder__full(weft_builder *builder, uint32_t demand, double rest_per_s);

/* The demands by ascending `key`, equal ones by name. Lives in the builder's arena.
 * (demand_order.c) */
uint32_t *weft_builder__sort(const weft_builder *builder,
                             double (*key)(const weft_builder *builder, uint32_t demand));
/* Least devices' worth of a slice for each request a second of a demand; 0: it has no option. */
double weft_builder__need(const weft_builder *builder, uint32_t demand);
/* Makes a plan of what was built, with a copy of its texts in the builder's arena. The builder
 * stays usable. */
void weft_builder__finish(const weft_builder *builder, const char *policy, weft_plan *out);

/* The start slot that one more MIG instance takes on a device with the slots `taken`; -1: none is
 * free. */
int32_t weft_pool__mig_start(const weft_mig_profile *mig, uint32_t taken);

#endif
