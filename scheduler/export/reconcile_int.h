/* What the files of reconciliation share: which devices of two plans are the same
 * (reconcile_match.c), workers that change places for it (reconcile_exchange.c), the workers of
 * both plans on these devices (reconcile_units.c), the order in which they change
 * (reconcile_order.c), and the commands that do it (reconcile_commands.c). */
#ifndef WEFT_SCHEDULER_EXPORT_RECONCILE_INT_H
#define WEFT_SCHEDULER_EXPORT_RECONCILE_INT_H

#include "scheduler/export/export_int.h"

typedef enum change_state { CHANGE_WAITS, CHANGE_RUNS, CHANGE_ENDED } change_state;

/* Of one model. */
typedef struct change_part {
    uint32_t model;
    double rate_per_s, capacity_per_s;
} change_part;

/* A worker of either plan, or a copy that runs for the time of the change. */
typedef struct change_unit {
    const export_worker *worker; /* what it does; of a copy: its original */
    weft_location where;
    const char *group;
    uint32_t place, next; /* its device; the next unit there, UINT32_MAX: none */
    change_part *part;
    uint32_t n_part;
    uint32_t mig_mask;
    uint32_t copy_of; /* UINT32_MAX: it is no copy */
    bool stays;       /* it is in the new plan, and has its bundle */
    bool copied;      /* it has or had a copy */
    change_state state;
} change_unit;

/* A device. */
typedef struct change_place {
    const char *type;
    weft_fleet_slice_kind kind; /* of the first plan that uses it */
    weft_location where;        /* without worker and port */
    uint32_t first;             /* its units */
    bool matched;               /* a device of the new plan is there */
} change_place;

typedef struct change_node {
    const char *name, *type;
    weft_fleet_slice_kind kind;
    uint64_t gpus; /* bit k: there is a place with index k */
    WEFT_VEC(uint32_t) ports;
} change_node;

/* Devices of one type that no plan uses. */
typedef struct change_spare {
    const char *type;
    uint32_t n;
} change_spare;

typedef struct change {
    const weft_reconcile_options *o;
    weft_arena *arena;
    weft_diag *diag;
    const export_ctx *from, *to;
    const uint32_t *match; /* of weft_change__match */
    bool restarts;         /* with the bundle of a new plan, all workers are others */
    const char **model;
    uint32_t n_model;
    double *capacity, *needed; /* by model: of what runs; what it must not fall below */
    WEFT_VEC(change_unit) unit;
    WEFT_VEC(change_place) place;
    WEFT_VEC(change_node) node;
    WEFT_VEC(change_spare) spare;
    WEFT_VEC(weft_reconcile_stage) stage;
    WEFT_VEC(weft_reconcile_dip) dip;
    uint32_t n_temporary;
} change;

/* By worker of the new plan: a worker of the old one on the device that its device is; UINT32_MAX:
 * on none (reconcile_match.c). */
uint32_t *weft_change__match(const change *c);
/* The new plan with workers exchanged between equal slices, so that more of them stay; its workers
 * have other models, and are as many in the same order. Adds to `match` what they have in common.
 * NULL: nothing is exchanged. */
const weft_plan *weft_change__exchange(const change *c, uint32_t *match);

/* Fills everything up to `spare` from both plans. `located`: the placements of the new plan, which
 * get their locations; *out_least: workers that start at least. INFEASIBLE: the new plan has more
 * devices than there are. */
weft_err weft_change__begin(change *c, weft_placement *located, uint32_t *out_least);

/* What the MPS shares of a device occupy together. */
typedef struct change_shares {
    uint64_t percent, clients, mem_bytes;
} change_shares;

void weft_change__add_shares(change_shares *sum, const export_worker *w);
/* Whether they fit on a device of the type, of whose memory the part `reserve` stays free. */
bool weft_change__fit_shares(const change *c, const change_shares *sum, const char *type,
                             double reserve);

/* Workers that start at least; before the first of them has (reconcile_bound.c). */
uint32_t weft_change__least_starts(const change *c);

enum { CHANGE_ASSIGNED_MAX = 256 }; /* devices of a type; more are not assigned in O(n^3) */

/* A matching of n rows and n columns with the largest sum of weights. weight[i * (n + 1) + k]: of
 * row i and column k, both from 1. Returns the row of each column. */
uint32_t *weft_change__assign(const int32_t *weight, uint32_t n, weft_arena *arena);

/* A place on a device that no plan uses; UINT32_MAX: the fleet has no more of the type. */
uint32_t weft_change__take_spare(change *c, const char *type, weft_fleet_slice_kind kind);
/* Adds a copy of a unit at a place, with a name and a port of its own. */
void weft_change__add_copy(change *c, uint32_t unit, uint32_t place);

/* A plan of some units, by place. */
weft_plan *weft_change__plan(change *c, bool (*takes)(const change_unit *u));

/* Fills the stages and the dips. INFEASIBLE: capacity would fall below what is needed. */
weft_err weft_change__order(change *c);

/* Adds the stages in which the groups that both plans have get a new bundle, one after another.
 * INFEASIBLE: a group has no room for one more worker, or with `in_place` cannot do without one. */
weft_err weft_change__roll_groups(change *c);

/* Whether the engine counts workers by group, and not each by its name. */
bool weft_change__counts(const weft_exporter *exporter);
/* The files that the stages need, and their commands as a script. */
weft_err weft_change__commands(change *c, weft_reconciliation *r);

#endif
