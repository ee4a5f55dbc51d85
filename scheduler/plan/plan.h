/* Door of plan/: what other rooms use besides the functions on plans that scheduler.h declares. */
#ifndef WEFT_SCHEDULER_PLAN_PLAN_H
#define WEFT_SCHEDULER_PLAN_PLAN_H

#include "scheduler/scheduler.h"

enum { WEFT_PLAN_PLACEMENTS_MAX = 1 << 20 };

/* Indices of the placements, sorted by device, slice and model. Lives in `arena`. */
uint32_t *weft_plan__order(const weft_plan *plan, weft_arena *arena);

/* Orders placements by everything but device and rate; 0: they are equal. */
int weft_placement__compare(const weft_placement *p, const weft_placement *q);

/* Devices' worth of work at the assigned rates: compute share times the part of the time in which
 * it is used. */
double weft_plan__busy(const weft_plan *plan);

#endif
