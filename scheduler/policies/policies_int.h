/* What the policies share: their parameters, solutions, and the local search over them. */
#ifndef WEFT_SCHEDULER_POLICIES_POLICIES_INT_H
#define WEFT_SCHEDULER_POLICIES_POLICIES_INT_H

#include "scheduler/mig/mig.h"
#include "scheduler/plan/plan.h"
#include "scheduler/policies/policies.h"

/* Value of the parameter `key` ("key=number" in the options of a problem, which weft_policy_check
 * has passed); `otherwise` if it is absent. (parameters.c) */
double weft_parameter__number(const weft_problem *problem, const char *key, double otherwise);

/* -- Solutions: a plan as a list of segments (solution.c) ------------------------------------- */

/* One model on one slice (ParvaGPU's word). */
typedef struct weft_segment {
    uint32_t device, slice_id, demand;
    uint32_t rank; /* position before sorting: segments of one slice keep their order */
    int32_t start; /* MIG slot or index of the CPU slice, -1: neither */
    const weft_option *option;
    double rate_per_s;
} weft_segment;

/* A plan as local search sees it. Sorted by device, slice and rank. */
typedef struct weft_solution {
    weft_segment *at;
    uint32_t n, devices;
    double cost_per_hour, goodput_per_s;
    double fullness; /* sum over devices of the square of the part in use */
} weft_solution;

bool weft_solution__share_slice(const weft_segment *a, const weft_segment *b);
/* Sorts; the sums stay as they are. */
void weft_solution__sort(weft_solution *list);
/* One placement with its option of a builder; false: the builder does not have such an option. */
bool weft_solution__read_placement(const weft_builder *builder, const weft_placement *placement,
                                   weft_segment *out);
/* The segments of a plan with the options of a builder; false: the builder does not have one of the
 * options. */
bool weft_solution__read(const weft_builder *builder, const weft_plan *plan, weft_solution *out);
/* The segments on a builder. */
weft_solution weft_solution__list(const weft_builder *builder);
/* Empties the builder and puts the segments on it; false: one does not fit. */
bool weft_solution__put(weft_builder *builder, const weft_solution *list);
/* The same with other rates, by segment. -1: the segment is left out; this holds for all segments
 * of a slice or for none. */
bool weft_solution__put_rates(weft_builder *builder, const weft_solution *list,
                              const double *rate_per_s);
/* Whether `a` is better for the goal: more is carried, or it is cheaper, or it has fewer devices.
 */
bool weft_solution__is_better(weft_goal goal, const weft_solution *a, const weft_solution *b);

/* -- Ruin and recreate (ruin_recreate.c) ------------------------------------------------------ */

enum { WEFT_RUIN_RECREATE_CHOICES_MAX = 64 };

/* Greedy insertion of `rate_per_s` of a demand: takes the best-ranked option that finds a place
 * until the whole rate is carried; a rest that finds no slice of its own shares one. `bulk`: where
 * no option carries the rest alone, the best ratio of capacity to cost comes first, else the
 * largest capacity. */
bool weft_ruin_recreate__add(weft_builder *builder, uint32_t demand, double rate_per_s, bool bulk);
/* The order in which weft_ruin_recreate__add tries: one option of each shape. Returns how many. */
uint32_t weft_ruin_recreate__rank(const weft_builder *builder, uint32_t demand, double rest,
                                  bool bulk,
                                  const weft_option *out[WEFT_RUIN_RECREATE_CHOICES_MAX]);
/* Local search from *best, `tries` tries; *best becomes the best solution found. `fleet`: the rows
 * of the builder's fleet, whose counts are lowered during a try. */
void weft_ruin_recreate__improve(weft_builder *builder, weft_fleet_device *fleet, uint32_t tries,
                                 uint64_t seed, weft_solution *best);

/* -- Packing of MPS shares (share_packing.c) -------------------------------------------------- */

/* Moves the MPS shares of a solution to fewer devices where the builder allows it. */
void weft_shares__pack(weft_builder *builder, weft_solution *list);

/* -- Incremental repair (incremental_repair.c) ------------------------------------------------ */

/* The plan in force with the changes that the demands ask for. false: the plan has slices that are
 * not dedicated to one model, or the changes do not fit. */
bool weft_incremental_repair__change(const weft_builder *builder, const weft_plan *previous,
                                     weft_plan *out);

/* -- The previous plan (previous_plan.c) ------------------------------------------------------ */

/* Puts the plan in force on the builder with the changes that the demands and the fleet ask for;
 * false: they do not fit. */
bool weft_previous__repair(weft_builder *builder, const weft_plan *previous);
/* Segments of `to` without an equal one in `from`: workers that have to be started. */
uint32_t weft_previous__count_moves(weft_arena *arena, const weft_plan *from, const weft_plan *to);

#endif
