/* When USHER plans anew: a rate has moved by 500 requests a second (the paper) or by the part
 * `trigger` of itself (added here), or the set of models has changed. Otherwise the plan in force
 * stays, and the new rates are spread over its replicas in the old proportions. */
#include "scheduler/policies/usher_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double slack = 1e-9;
static const double trigger_per_s = 500;

/* Position of a model by name; UINT32_MAX: there is no such model. */
static uint32_t find_model(const weft_builder *builder, const char *name)
{
    size_t lo = 0, hi = builder->demands->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int order = strcmp(name, builder->demands->at[builder->order[mid]].model);
        if (order == 0)
            return (uint32_t)mid;
        if (order < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return UINT32_MAX;
}

static int compare_places(const void *a, const void *b)
{
    const weft_placement *p = *(const weft_placement *const *)a;
    const weft_placement *q = *(const weft_placement *const *)b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    return (p->slice_id > q->slice_id) - (p->slice_id < q->slice_id);
}

/* Whether plan and demands have the same models, and no rate has moved by the trigger. */
static bool is_quiet(const weft_builder *builder, const weft_plan *plan, double trigger,
                     double *was)
{
    uint32_t *uses = weft_arena_array(builder->arena, builder->demands->n, sizeof *uses);
    for (size_t i = 0; i < plan->n; i++) {
        uint32_t m = find_model(builder, plan->at[i].model);
        if (m == UINT32_MAX)
            return false;
        was[m] += plan->at[i].rate_per_s;
        uses[m]++;
    }
    for (uint32_t m = 0; m < builder->demands->n; m++) {
        double rate = builder->demands->at[builder->order[m]].rate_per_s,
               moved = fabs(rate - was[m]);
        if (uses[m] == 0 || moved >= trigger_per_s || moved >= trigger * was[m] + slack ||
            (was[m] == 0 && rate > 0))
            return false;
    }
    return true;
}

/* The option of a placement by the present profile and fleet; NULL: it is no longer one. */
static const weft_option *find_option(const weft_builder *builder, const weft_placement *p,
                                      uint32_t demand)
{
    const weft_shape *shape = weft_option_table__shape(&builder->table, p->type, p->slice);
    if (!shape || !shape->row || !shape->allowed)
        return NULL;
    return weft_option_table__option(&builder->table, demand,
                                     (uint32_t)(shape - builder->table.shape), p->batch, p->procs);
}

/* Puts all placements of the plan, each with its part of the new rate; false: one has no place. */
static bool put_again(weft_builder *builder, const weft_plan *plan, const double *was)
{
    const weft_placement **list = weft_arena_array(builder->arena, plan->n, sizeof *list);
    uint32_t device = UINT32_MAX;
    for (size_t i = 0; i < plan->n; i++)
        list[i] = &plan->at[i];
    if (plan->n > 0)
        qsort(list, plan->n, sizeof *list, compare_places);
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = list[i];
        uint32_t m = find_model(builder, p->model), demand = builder->order[m];
        const weft_option *o = find_option(builder, p, demand);
        double rate = builder->demands->at[demand].rate_per_s;
        if (!o || (o->spec.kind != WEFT_SLICE_WHOLE && o->spec.kind != WEFT_SLICE_MPS))
            return false;
        if (i == 0 || p->device != list[i - 1]->device)
            device = weft_builder__open(builder, o->row, o->spec.kind);
        if (device == UINT32_MAX ||
            !weft_builder__put(builder, device, -1, demand, o,
                               was[m] > 0 ? rate * (p->rate_per_s / was[m]) : 0))
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
