/* INFaaS's decisions, apart from placing: states of instances, the choice for a query, and how many
 * instances of which variant an application should have. Shared by infaas.c (scaling),
 * infaas_pick.c (queries) and policy_infaas.c. All pure functions of their arguments. */
#ifndef WEFT_SCHEDULER_POLICIES_INFAAS_INT_H
#define WEFT_SCHEDULER_POLICIES_INFAAS_INT_H

#include "scheduler/policies/policies_int.h"

extern const double weft_infaas_headroom;   /* 1.05: capacity over load that scaling keeps */
extern const double weft_infaas_interfered; /* 1.2: latency over that of the profile */

/* -- States of an instance (reference: scheduling, 7.1) ---------------------------------------- */

typedef enum weft_infaas_state {
    WEFT_INFAAS_INACTIVE, /* not loaded */
    WEFT_INFAAS_ACTIVE,
    WEFT_INFAAS_OVERLOADED, /* at its peak */
    WEFT_INFAAS_INTERFERED  /* slower than its profile, below its peak */
} weft_infaas_state;

typedef struct weft_infaas_seen {
    bool loaded;
    double load_per_s, peak_per_s;
    double latency_us, profile_us; /* mean of the last window, and what the profile says */
} weft_infaas_seen;

weft_infaas_state weft_infaas__state(const weft_infaas_seen *seen);

/* -- Scaling of one application (7.3 to 7.5) ----------------------------------------------------
 */

typedef struct weft_infaas_variant {
    uint32_t arch; /* model; an upgrade stays within one */
    uint32_t row;  /* kind of device */
    double weight; /* part of a device that an instance takes */
    double cost;   /* of an instance, dollars an hour (or its weight where prices are not known) */
    double peak_per_s; /* Q */
    double load_s;     /* time to load it */
    uint32_t running;  /* N */
} weft_infaas_variant;

typedef struct weft_infaas_task {
    double load_per_s;
    double lambda; /* weight of loading: cost * lambda * load_s for each instance started */
    const weft_infaas_variant *variant;
    uint32_t n;
    const double *free; /* by row: devices' worth left beside what runs; NULL: no limit */
    uint32_t n_row;
} weft_infaas_task;

/* One way to scale up: `n` more of `add`, and none of `drop` any more (UINT32_MAX: it is kept). */
typedef struct weft_infaas_up {
    uint32_t add, n, drop;
    double cost; /* in the terms of the program */
} weft_infaas_up;

/* One way to scale down: one instance less of `drop`, one more of `add` (UINT32_MAX: none). */
typedef struct weft_infaas_down {
    uint32_t drop, add;
    double saved;
} weft_infaas_down;

double weft_infaas__capacity(const weft_infaas_task *task);
/* What is missing of headroom * load; <= 0: nothing. */
double weft_infaas__need(const weft_infaas_task *task);
/* All ways to cover the need, the cheapest first; out has 2 n + n * n entries at most: `cap`. Of an
 * application that runs already: more of what runs, and upgrades within an architecture; `any`, or
 * when nothing runs: more of every variant. */
uint32_t weft_infaas__ups(const weft_infaas_task *task, bool any, weft_infaas_up *out,
                          uint32_t cap);
/* The step down that saves most and leaves the headroom; false: there is none. */
bool weft_infaas__down(const weft_infaas_task *task, weft_infaas_down *out);
/* Slots of scaling down to wait for: the load time of a variant. */
uint32_t weft_infaas__slots(const weft_infaas_variant *variant, double slot_s);
/* What the program minimises, of a change from `running` to `count`. */
double weft_infaas__cost(const weft_infaas_task *task, const uint32_t *count);
/* The integer program (7.3): instances of each variant. false: no counts within the limits carry
 * it, or the solver gave up. */
bool weft_infaas__solve(const weft_infaas_task *task, const weft_solver *solver, weft_arena *arena,
                        uint32_t nodes_max, uint32_t *count);

/* -- Workers of one kind (7.6) ------------------------------------------------------------------
 */

typedef struct weft_infaas_worker {
    double use; /* 0..1 */
    bool interfered, overloaded;
    double empty_s; /* nothing on it for so long */
} weft_infaas_worker;

/* Workers to add (positive: one), or to drain (negative: so many that were empty for 60 s). */
int32_t weft_infaas__workers(const weft_infaas_worker *worker, uint32_t n);

/* -- The choice for a query (7.2) ---------------------------------------------------------------
 */

typedef struct weft_infaas_pick weft_infaas_pick;

typedef struct weft_infaas_offer {
    const char *name;
    double accuracy, latency_us, load_us;
    uint32_t hardware; /* kind of worker */
} weft_infaas_offer;

typedef enum weft_infaas_answer {
    WEFT_INFAAS_RUNS,    /* variant and worker: send the query there */
    WEFT_INFAAS_LOAD,    /* variant and worker: load it there first */
    WEFT_INFAAS_CLOSEST, /* no variant does: this one comes nearest */
} weft_infaas_answer;

typedef struct weft_infaas_choice {
    weft_infaas_answer answer;
    uint32_t variant, worker; /* worker UINT32_MAX: none of its hardware */
} weft_infaas_choice;

/* An index of variants without instances, on workers of these kinds of hardware without load. */
weft_infaas_pick *weft_infaas__index(const weft_infaas_offer *offer, uint32_t n,
                                     const uint32_t *hardware, uint32_t n_worker,
                                     weft_arena *arena);
/* An instance of a variant on a worker is in this state under this load; INACTIVE: not there.
 * O(log n). */
void weft_infaas__set_instance(weft_infaas_pick *pick, uint32_t variant, uint32_t worker,
                               weft_infaas_state state, double load);
void weft_infaas__set_worker(weft_infaas_pick *pick, uint32_t worker, double use); /* O(log n) */
/* O(log n) where few variants are accurate enough and too slow; never more than O(n). */
weft_infaas_choice weft_infaas__choose(const weft_infaas_pick *pick, double accuracy,
                                       double latency_us);

#endif
