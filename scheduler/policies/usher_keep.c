/* When USHER plans anew: a rate has moved by 500 requests a second (the paper) or by the part
 * `trigger` of itself (added here), or the set of models has changed. Otherwise the plan in force
 * stays, and the new rates are spread over its replicas in the old proportions. */
#include "scheduler/plan/plan.h"
#include "scheduler/policies/usher_int.h"

#include <math.h>
#include <string.h>

static const double slack = 1e-9;
static const double trigger_per_s = 500;

/* Whether plan and demands have the same models, and no rate has moved by the trigger. */
static bool is_quiet(const weft_builder *builder, const weft_plan *plan, double trigger,
                     double *was)
{
    uint32_t *uses = weft_arena_array(builder->arena, builder->demands->n, sizeof *uses);
    for (size_t i = 0; i < plan->n; i++) {
        uint32_t d = weft_builder__find_demand(builder, plan->at[i].model);
        if (d == UINT32_MAX)
            return false;
        was[d] += plan->at[i].rate_per_s;
        uses[d]++;
    }
    for (uint32_t d = 0; d < builder->demands->n; d++) {
        double rate = builder->demands->at[d].rate_per_s, moved = fabs(rate - was[d]);
        if (uses[d] == 0 || moved >= trigger_per_s || moved >= trigger * was[d] + slack ||
            (was[d] == 0 && rate > 0))
            return false;
    }
    return true;
}

/* Puts all placements of the plan, each with its part of the new rate; false: one has no place. */
static bool put_again(weft_builder *builder, const weft_plan *plan, const double *was)
{
    const uint32_t *order = weft_plan__order(plan, builder->arena);
    uint32_t device = UINT32_MAX;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[order[i]];
        uint32_t demand = weft_builder__find_demand(builder, p->model);
        const weft_option *o = weft_option_table__placed(&builder->table, demand, p);
        double rate = builder->demands->at[demand].rate_per_s;
        if (!o || (o->spec.kind != WEFT_SLICE_WHOLE && o->spec.kind != WEFT_SLICE_MPS))
            return false;
        if (i == 0 || p->device != plan->at[order[i - 1]].device)
            device = weft_builder__open(builder, o->row, o->spec.kind);
        if (device == UINT32_MAX ||
            !weft_builder__put(builder, device, -1, demand, o,
                               was[demand] > 0 ? rate * (p->rate_per_s / was[demand]) : 0))
            return false;
    }
    return true;
}

bool weft_usher__keep(weft_builder *builder, double trigger)
{
    const weft_plan *plan = builder->problem->previous;
    if (!plan || !(trigger > 0) || builder->problem->goal == WEFT_GOAL_GOODPUT ||
        strcmp(plan->policy, "usher") != 0)
        return false;
    uint32_t mark = weft_builder__mark(builder);
    double *was = weft_arena_array(builder->arena, builder->demands->n, sizeof *was);
    if (is_quiet(builder, plan, trigger, was) && put_again(builder, plan, was))
        return true;
    weft_builder__undo(builder, mark);
    return false;
}
