/* Door of plan/: what policies and the simulation use beside scheduler.h. */
#ifndef WEFT_SCHEDULER_PLAN_PLAN_H
#define WEFT_SCHEDULER_PLAN_PLAN_H

#include "scheduler/scheduler.h"

enum { WEFT_PLAN_PLACEMENTS_MAX = 1 << 20 };

/* Placements by device, slice, model. */
uint32_t *weft_plan__order(const weft_plan *plan, weft_arena *arena);

#endif
