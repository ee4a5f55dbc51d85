/* Best-fit decreasing: each model gets the cheapest slice that carries its rate, on the device
 * where it leaves the least room.
 *
 * Source: the greedy best-fit baseline of gpulet (S. Choi et al., Serving heterogeneous machine
 * learning models on multi-GPU servers with spatio-temporal sharing, USENIX ATC'22).
 *
 * World of the paper. GPUs of one type, split into MPS shares. Each model takes the least share
 * that carries its rate, on the GPU with enough free share and the least left. No time sharing.
 * A load above a whole GPU is split into whole GPUs and a rest.
 *
 * Changes.
 * - World: a share is any slice that the fleet allows and the profile has: MIG instance, MPS
 *   share, whole device, CPU slice. Slices of different device types compare by price times
 *   their part of the device (by the part alone where a price is not known). A device is split
 *   in one way only.
 * - Order: the models by descending need, then by name, as in bin packing. Need is the rate
 *   times the least part of a device that one request per second takes, over the options within
 *   the SLO.
 * - Choice: among the options that carry the rest of the rate the cheapest one with a place,
 *   then the smallest batch (lowest latency). If there is none, the option with the highest
 *   capacity, and the loop goes on with the rest.
 * - Time sharing: a rest for which no slice has a place shares the slice that stays least busy.
 *   The number of devices is then fixed, so the load is spread. The paper has no such step, and
 *   refuses.
 * - Never worse than whole devices: if the exclusive plan is cheaper, or the only one, it is
 *   returned.
 *
 * Parameters: none. Complexity: O(models * options * devices). */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>

/* Demands with the largest need of devices come first. */
static double less_need(const weft_builder *builder, uint32_t demand)
{
    return -weft_builder__need(builder, demand) * builder->demands->at[demand].rate_per_s;
}

/* Options in the order of preference: those that carry `rest`, by cost, then by execution time;
 * then the others by descending capacity. */
typedef struct ranked {
    const weft_option *option;
    double cost;
    bool carries;
    uint32_t rank;
} ranked;

static int compare_ranked(const void *a, const void *b)
{
    const ranked *p = a, *q = b;
    if (p->carries != q->carries)
        return p->carries ? -1 : 1;
    if (!p->carries && p->option->peak_per_s != q->option->peak_per_s)
        return p->option->peak_per_s > q->option->peak_per_s ? -1 : 1;
    if (p->cost != q->cost)
        return p->cost < q->cost ? -1 : 1;
    if (p->option->exec_us != q->option->exec_us)
        return p->option->exec_us < q->option->exec_us ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Adds one slice for as much of *rest as it carries; false: no option has a place. */
static bool take_slice(weft_builder *builder, uint32_t demand, double *rest)
{
    uint32_t n = builder->n_option[demand];
    ranked *list = weft_arena_array(builder->arena, n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        const weft_option *o = &builder->option[demand][i];
        list[i] =
            (ranked){.option = o, .cost = o->cost, .carries = o->peak_per_s >= *rest, .rank = i};
    }
    qsort(list, n, sizeof *list, compare_ranked);
    for (uint32_t i = 0; i < n; i++) {
        const weft_option *o = list[i].option;
        double part = o->peak_per_s < *rest ? o->peak_per_s : *rest;
        if (!weft_builder__add(builder, demand, o, part, true))
            continue;
        *rest -= part;
        return true;
    }
    return false;
}

static bool share_slice(weft_builder *builder, uint32_t demand, double rest)
{
    uint32_t best = UINT32_MAX;
    double least = 0, occupancy;
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        if (!weft_builder__share(builder, i, demand, rest, false, &occupancy))
            continue;
        if (best == UINT32_MAX || occupancy < least * (1 - 1e-9)) {
            best = i;
            least = occupancy;
        }
    }
    return best != UINT32_MAX && weft_builder__share(builder, best, demand, rest, true, &occupancy);
}

static weft_err place_greedy(const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                             weft_plan *out)
{
    const weft_demands *demands = problem->demands;
    weft_builder builder;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    const uint32_t *order = weft_builder__sort(&builder, less_need);
    for (size_t i = 0; i < demands->n; i++) {
        uint32_t demand = order[i];
        double rate = demands->at[demand].rate_per_s, rest = rate;
        do {
            if (take_slice(&builder, demand, &rest))
                continue;
            if (!share_slice(&builder, demand, rest) && problem->goal != WEFT_GOAL_GOODPUT)
                return weft_builder__full(&builder, demand, rest);
            rest = 0; /* goal goodput: a rest without a place is not carried */
        } while (rest > rate * 1e-9);
    }
    weft_builder__finish(&builder, "bestfit", out);
    return WEFT_ERR_OK;
}

/* Goal goodput: the plan that carries more. Else, or if both carry the same: the cheaper one, then
 * the one with fewer devices. */
static bool is_better(const weft_plan *a, const weft_plan *b, weft_goal goal)
{
    double more = a->goodput_per_s - b->goodput_per_s;
    if (goal == WEFT_GOAL_GOODPUT && fabs(more) > 1e-9 * b->goodput_per_s)
        return more > 0;
    if (a->cost_per_hour != b->cost_per_hour)
        return a->cost_per_hour < b->cost_per_hour;
    return a->gpus < b->gpus;
}

static weft_err place_bestfit(void *state, const weft_problem *problem, weft_arena *arena,
                              weft_diag *diag, weft_plan *out)
{
    (void)state;
    weft_plan greedy, exclusive;
    weft_err err = weft_policy_exclusive.place(NULL, problem, arena, NULL, &exclusive);
    bool has_exclusive = err == WEFT_ERR_OK;
    err = place_greedy(problem, arena, has_exclusive ? NULL : diag, &greedy);
    if (err != WEFT_ERR_OK && !has_exclusive)
        return err;
    bool take = err != WEFT_ERR_OK;
    if (has_exclusive && !take)
        take = is_better(&exclusive, &greedy, problem->goal);
    *out = take ? exclusive : greedy;
    out->policy = "bestfit";
    return WEFT_ERR_OK;
}

const weft_policy weft_policy_bestfit = {
    .name = "bestfit",
    .brief = "cheapest slice that carries each model, fullest device first",
    .cite = "greedy best fit baseline of gpulet, ATC'22",
    .splits =
        WEFT_SPLIT_WHOLE | WEFT_SPLIT_MIG | WEFT_SPLIT_MPS | WEFT_SPLIT_CORES | WEFT_SPLIT_TIME,
    .many_models = true,
    .place = place_bestfit,
};
