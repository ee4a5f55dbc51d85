/* From one plan to the next: the steps in which slices start and end (plan/plan_course.c). A part
 * of the door of scheduler/. */
#ifndef WEFT_SCHEDULER_COURSE_H
#define WEFT_SCHEDULER_COURSE_H

#include "base/str.h"
#include "scheduler/scheduler.h"

/* A device on which nothing of a plan runs. */
typedef struct weft_plan_spare {
    uint32_t device;
    const char *type;
    bool is_mig; /* split by MIG */
} weft_plan_spare;

/* Slices start; when they are ready, others end. */
typedef struct weft_plan_step {
    const weft_plan *plan;    /* what runs when the step is over */
    uint32_t n_start, n_stop; /* slices */
    uint32_t n_mig;           /* of those that start: on new MIG instances */
} weft_plan_step;

/* A model of which less is left than needed, from the end of a step on. */
typedef struct weft_plan_dip {
    const char *model;
    uint32_t step;
    double needed_per_s, left_per_s;
    uint32_t device; /* where others have to end first */
    const char *type;
} weft_plan_dip;

/* Copies the names in a placement into the arena, so that it may outlive its plan; but not those of
 * its place in a cluster. */
void weft_placement_own(weft_placement *p, weft_arena *arena);

#define WEFT_STEP_NONE UINT32_MAX

/* A slice that runs for the time of the change only. */
typedef struct weft_plan_copy {
    const weft_placement *at; /* the placements on it */
    uint32_t n;
    uint32_t begins, ends; /* steps */
} weft_plan_copy;

typedef struct weft_plan_course {
    const weft_plan_step *step;
    uint32_t n_step; /* 0: the plans have the same slices */
    /* By placement of the new plan, and of the old one: the step in which it begins, ends; NONE: it
     * stays. */
    const uint32_t *begins, *ends;
    const weft_plan_dip *dip;
    uint32_t n_dip;
    const weft_plan_copy *copy;
    uint32_t n_copy;
} weft_plan_course;

/* The numbers of the devices of `after` as those of `before` that they are: the ones with the same
 * or most slices, then spare ones of the type, then others that the new plan leaves, then new
 * numbers. The result lives in `arena`. */
weft_plan weft_plan_settle(const weft_plan *before, const weft_plan *after,
                           const weft_plan_spare *spare, size_t n_spare, weft_arena *arena);
/* The steps from one plan to the next one on the same devices, in which no model has less capacity
 * at any time than the least of: the rates of the new plan, what runs, and what the new plan gives
 * it; dips are what cannot be avoided. The result lives in `arena`. */
void weft_plan_find_course(const weft_plan *before, const weft_plan *after,
                           const weft_plan_spare *spare, size_t n_spare, weft_arena *arena,
                           weft_plan_course *out);

/* The same with the devices of a fleet that the old plan leaves as spare ones (NULL: none). Returns
 * the new plan, settled on the devices of the old one. */
weft_plan weft_plan_find_changes(const weft_plan *before, const weft_plan *after,
                                 const weft_fleet *fleet, weft_arena *arena, weft_plan_course *out);
/* Time from the begin of a step to when its slices serve. */
double weft_plan_step_s(const weft_plan_step *step, double move_s, double mig_s);
/* Adds " in 2 steps, 1 new MIG instance; ..." to a text: what is more than one step of starts and
 * ends, and the dips. */
void weft_plan_tell_course(const weft_plan_course *course, double move_s, double mig_s,
                           weft_buf *out);

#endif
