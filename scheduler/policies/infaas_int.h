/* The decisions of INFaaS, apart from placement: states of instances, and the number of instances
 * of each variant. Shared by infaas.c and policy_infaas.c. Pure functions of their arguments. The
 * choice of a variant for a query is dispatch/pick.c. */
#ifndef WEFT_SCHEDULER_POLICIES_INFAAS_INT_H
#define WEFT_SCHEDULER_POLICIES_INFAAS_INT_H

#include "scheduler/policies/policies_int.h"

extern const double weft_infaas_headroom;   /* 1.05: capacity over load that scaling keeps */
extern const double weft_infaas_interfered; /* 1.2: latency over that of the profile at which an
                                               instance is Interfered */

/* -- States of an instance -------------------------------------------------------------------- */

typedef enum weft_infaas_state {
    WEFT_INFAAS_INACTIVE, /* not loaded */
    WEFT_INFAAS_ACTIVE,
    WEFT_INFAAS_OVERLOADED, /* at its peak */
    WEFT_INFAAS_INTERFERED  /* slower than its profile, below its peak */
} weft_infaas_state;

typedef struct weft_infaas_seen {
    bool loaded;
    double load_per_s, peak_per_s;
    double latency_us, profile_us; /* latency_us: mean of the last window */
} weft_infaas_seen;

weft_infaas_state weft_infaas__state(const weft_infaas_seen *seen);

/* -- Scaling of one application --------------------------------------------------------------- */

typedef struct weft_infaas_variant {
    uint32_t arch;     /* architecture: a model; an upgrade stays within one */
    uint32_t row;      /* kind of device */
    double weight;     /* part of a device that an instance takes */
    double cost;       /* of an instance: dollars an hour, or its weight if a price is not known */
    double peak_per_s; /* Q of the paper */
    double load_s;     /* time to load it */
    uint32_t running;  /* N of the paper */
} weft_infaas_variant;

typedef struct weft_infaas_task {
    double load_per_s;
    double lambda; /* weight of loading: each started instance adds cost * lambda * load_s */
    const weft_infaas_variant *variant;
    uint32_t n;
    const double *free; /* by row: devices that are free, in fractions; NULL: no limit */
    uint32_t n_row;
} weft_infaas_task;

/* One way to scale up: `n` more instances of `add`, and none of `drop` (UINT32_MAX: `drop` is no
 * variant). */
typedef struct weft_infaas_up {
    uint32_t add, n, drop;
    double cost; /* in the objective of the integer program */
} weft_infaas_up;

/* One way to scale down: one instance of `drop` less, one of `add` more (UINT32_MAX: none). */
typedef struct weft_infaas_down {
    uint32_t drop, add;
    double saved;
} weft_infaas_down;

double weft_infaas__capacity(const weft_infaas_task *task);
/* Capacity that is missing for the headroom; <= 0: none. */
double weft_infaas__need(const weft_infaas_task *task);
/* All ways to cover the need, the cheapest first; at most `cap`, of 2 n + n^2 possible ones. For an
 * application that runs: replication of its variants, and upgrades within an architecture. With
 * `any`, or if no variant runs: more instances of each variant. */
uint32_t weft_infaas__ups(const weft_infaas_task *task, bool any, weft_infaas_up *out,
                          uint32_t cap);
/* The way to scale down that saves most and keeps the headroom; false: there is none. */
bool weft_infaas__down(const weft_infaas_task *task, weft_infaas_down *out);
/* Slots that scaling down waits for: the load time of a variant. */
uint32_t weft_infaas__slots(const weft_infaas_variant *variant, double slot_s);
/* The objective of the integer program for a change from `running` to `count`. */
double weft_infaas__cost(const weft_infaas_task *task, const uint32_t *count);
/* Solves the integer program: instances of each variant. false: no counts within the limits carry
 * the load, or the solver gave up. */
bool weft_infaas__solve(const weft_infaas_task *task, const weft_solver *solver, weft_arena *arena,
                        uint32_t nodes_max, uint32_t *count);

/* -- Workers of one kind ---------------------------------------------------------------------- */

typedef struct weft_infaas_worker {
    double use; /* 0..1 */
    bool interfered, overloaded;
    double empty_s; /* duration for which it has had no instance */
} weft_infaas_worker;

/* Workers to add (1), or to drain (negative: the number of those that were empty for 60 s). */
int32_t weft_infaas__workers(const weft_infaas_worker *worker, uint32_t n);

#endif
