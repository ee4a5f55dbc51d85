/* Door of plan/: what other rooms use besides the functions on plans that scheduler.h declares. */
#ifndef WEFT_SCHEDULER_PLAN_PLAN_H
#define WEFT_SCHEDULER_PLAN_PLAN_H

#include "scheduler/scheduler.h"

enum { WEFT_PLAN_PLACEMENTS_MAX = 1 << 20 };

/* Indices of the placements, sorted by device, slice and model. Lives in `arena`. */
uint32_t *weft_plan__order(const weft_plan *plan, weft_arena *arena);

/* Orders placements by everything but device and rate; 0: they are equal. */
int weft_placement__compare(const weft_placement *p, const weft_placement *q);

/* Devices that each moved segment of a plan in force costs where plans are compared. */
#define WEFT_PLAN_MOVE_DEVICES 0.02

/* Whether a plan is better than another for a goal, then by cost, devices and load. */
bool weft_plan__is_better(const weft_plan *a, const weft_plan *b, weft_goal goal);

/* The largest failure domain that rules or demands ask about; NONE: none. */
weft_domain weft_plan__apart(const weft_problem *problem);
/* A plan by a policy for such a problem, whose apps are resolved (plan_apart.c). UNSUP: the policy
 * cannot. */
WEFT_MUST_USE weft_err weft_plan__decide_apart(const weft_policy *policy,
                                               const weft_problem *problem, weft_arena *arena,
                                               weft_diag *diag, weft_plan *out);

/* Whether it matters on which of two equal slices a worker is: devices have places, models are to
 * be in several failure domains, or neighbours slow each other down. demands NULL: not known. */
bool weft_plan__is_fixed(const weft_plan *plan, const weft_demands *demands);

/* A model over the failure domains of one kind. */
typedef struct weft_domain_use {
    uint32_t n;        /* domains that have it */
    bool nowhere;      /* some placement is in none */
    const char *worst; /* the domain with most of its capacity */
    double rate_per_s, capacity_per_s;
    double left_per_s; /* its capacity without that domain */
} weft_domain_use;

weft_domain_use weft_plan__domain_use(const weft_plan *plan, const char *model, weft_domain level,
                                      weft_arena *arena);
/* Reports what a plan breaks of locations, `spread` and `survive`; returns how much. */
uint32_t weft_plan__check_domains(const weft_plan *plan, const weft_problem *problem,
                                  weft_arena *arena, weft_diag *diag);

/* What plans cost and moves are worth, in the unit of the problem's goal: "gCO2", "$" or "devices"
 * (plan_price.c). */
const char *weft_plan__unit(const weft_plan *now, const weft_plan *next,
                            const weft_problem *problem);
/* Of an hour of the plan. */
double weft_plan__price(const weft_plan *plan, const weft_problem *problem, const char *unit);
/* Of the slice of a placement of `next` for some seconds. */
double weft_plan__slice_price(const weft_plan *next, const weft_placement *p,
                              const weft_problem *problem, const char *unit, double seconds);

/* Devices' worth of work at the assigned rates: compute share times the part of the time in which
 * it is used. */
double weft_plan__busy(const weft_plan *plan);

#endif
