/* Shared by the policies: their parameters, and plans as lists of segments. */
#ifndef WEFT_SCHEDULER_POLICIES_POLICIES_INT_H
#define WEFT_SCHEDULER_POLICIES_POLICIES_INT_H

#include "scheduler/mig/mig.h"
#include "scheduler/plan/plan.h"
#include "scheduler/policies/policies.h"

/* -- Parameters (parameters.c)
 * ---------------------------------------------------------------------- */

/* Value of "key=number" in the options of a problem; `otherwise` when absent. false, and an INPUT
 * message, for a key not in `keys` (NULL-terminated) or what is no number. */
bool weft_parameter__number(const weft_problem *problem, const char *const *keys, const char *key,
                            double otherwise, weft_diag *diag, double *out);

/* -- Plans as lists, rebuilt and improved on a builder (ruin_recreate.c)
 * ------------------------------------
 */

typedef struct weft_segment {
    uint32_t device, slice_id, demand, rank;
    int32_t start; /* MIG slot or CPU slice, -1: none */
    const weft_option *option;
    double rate_per_s;
} weft_segment;

/* In the order of devices and slices. */
typedef struct weft_segments {
    weft_segment *at;
    uint32_t n, devices;
    double cost_per_hour, goodput_per_s;
    double fullness; /* sum of squares of the parts of devices in use */
} weft_segments;

/* The segments of a plan by the options of a builder; false: the plan has what the builder does
 * not.
 */
bool weft_ruin_recreate__read(const weft_builder *builder, const weft_plan *plan,
                              weft_segments *out);
void weft_ruin_recreate__sort(weft_segments *list);
/* An empty builder with these segments put; false: one does not fit. */
bool weft_ruin_recreate__put(weft_builder *builder, const weft_segments *segments);
/* Places `rate` of a demand: on slices that carry it, cheapest first, or in turn with others.
 * `bulk`: slices for what no slice carries alone are those of the best ratio, else the largest. */
bool weft_ruin_recreate__add(weft_builder *builder, uint32_t demand, double rate_per_s, bool bulk);
enum { WEFT_RUIN_RECREATE_CHOICES_MAX = 64 };
/* One option of each shape for the rest of a rate, in the order in which weft_ruin_recreate__add
 * asks. */
uint32_t weft_ruin_recreate__rank(const weft_builder *builder, uint32_t demand, double rest,
                                  bool bulk,
                                  const weft_option *out[WEFT_RUIN_RECREATE_CHOICES_MAX]);
/* The plan in force with the changes that the demands ask for; false: not a plan of dedicated
 * slices, or it does not fit (incremental_repair.c). */
bool weft_incremental_repair__change(const weft_builder *builder, const weft_plan *previous,
                                     weft_plan *out);
/* Empties devices and finds other places for what was on them, `tries` times, keeping what is
 * better for the goal. `fleet`: rows of the builder's fleet, whose counts it may lower meanwhile.
 */
void weft_ruin_recreate__improve(weft_builder *builder, weft_fleet_device *fleet, uint32_t tries,
                                 uint64_t seed, weft_segments *best);
/* Better for the goal: more carried, or cheaper, or fewer devices. */
bool weft_ruin_recreate__is_better(weft_goal goal, const weft_segments *a, const weft_segments *b);
/* What is on the builder. */
weft_segments weft_ruin_recreate__list(const weft_builder *builder);

#endif
