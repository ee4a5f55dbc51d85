/* Door of plan/: what other rooms use besides the functions on plans that scheduler.h declares. */
#ifndef WEFT_SCHEDULER_PLAN_PLAN_H
#define WEFT_SCHEDULER_PLAN_PLAN_H

#include "scheduler/scheduler.h"

enum { WEFT_PLAN_PLACEMENTS_MAX = 1 << 20 };

/* Indices of the placements, sorted by device, slice and model. Lives in `arena`. */
uint32_t *weft_plan__order(const weft_plan *plan, weft_arena *arena);

/* Orders placements by everything but device and rate; 0: they are equal. */
int weft_placement__compare(const weft_placement *p, const weft_placement *q);

/* By placement of `after`: the device of `before` that its device is, as the difference of both
 * plans counts them; UINT32_MAX: none. */
uint32_t *weft_plan__match(const weft_plan *before, const weft_plan *after, weft_arena *arena);

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
