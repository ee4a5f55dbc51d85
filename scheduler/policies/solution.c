/* Solutions: plans as lists of segments, read from a plan or from a plan builder, and put on a
 * builder again. */
#include "scheduler/policies/policies_int.h"

#include <stdlib.h>

#define NONE UINT32_MAX

/* -- Lists ------------------------------------------------------------------------------------ */

bool weft_solution__share_slice(const weft_segment *a, const weft_segment *b)
{
    return a->device == b->device && a->slice_id == b->slice_id;
}

static int compare_segments(const void *a, const void *b)
{
    const weft_segment *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->slice_id != q->slice_id)
        return p->slice_id < q->slice_id ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Computes the sums over the devices; the segments are sorted. */
static void sum_up(weft_solution *list)
{
    list->devices = 0;
    list->cost_per_hour = list->goodput_per_s = list->fullness = 0;
    for (uint32_t i = 0; i < list->n;) {
        uint32_t end = i;
        double weight = 0;
        for (; end < list->n && list->at[end].device == list->at[i].device; end++) {
            bool first =
                end == i || !weft_solution__share_slice(&list->at[end - 1], &list->at[end]);
            weight += first ? list->at[end].option->spec.weight : 0;
            list->goodput_per_s += list->at[end].rate_per_s;
        }
        list->fullness += weight * weight;
        list->cost_per_hour += list->at[i].option->price_per_hour;
        list->devices++;
        i = end;
    }
}

void weft_solution__sort(weft_solution *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        list->at[i].rank = i;
    for (uint32_t i = 1; i < list->n; i++)
        if (compare_segments(&list->at[i - 1], &list->at[i]) > 0) {
            qsort(list->at, list->n, sizeof *list->at, compare_segments);
            return;
        }
}

weft_solution weft_solution__list(const weft_builder *builder)
{
    weft_solution list = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < builder->slices.len; i++)
        n += builder->slices.at[i].members.len;
    list.at = weft_arena_array(builder->arena, n, sizeof *list.at);
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *slice = &builder->slices.at[i];
        bool cores = slice->spec.kind == WEFT_SLICE_CORES;
        for (uint32_t j = 0; j < slice->members.len; j++)
            list.at[list.n++] =
                (weft_segment){.device = slice->device,
                               .slice_id = slice->id,
                               .demand = slice->members.at[j].demand,
                               .start = cores ? (int32_t)slice->id : slice->mig_start,
                               .option = slice->members.at[j].option,
                               .rate_per_s = slice->members.at[j].rate_per_s};
    }
    weft_solution__sort(&list);
    sum_up(&list);
    return list;
}

bool weft_solution__read_placement(const weft_builder *builder, const weft_placement *placement,
                                   weft_segment *out)
{
    const weft_placement *p = placement;
    uint32_t demand = weft_builder__find_demand(builder, p->model);
    const weft_option *option =
        demand == NONE ? NULL : weft_option_table__placed(&builder->table, demand, p);
    if (!option)
        return false;
    bool cores = option->spec.kind == WEFT_SLICE_CORES;
    *out = (weft_segment){.device = p->device,
                          .slice_id = p->slice_id,
                          .demand = demand,
                          .start = cores ? (int32_t)p->slice_id : p->mig_start,
                          .option = option,
                          .rate_per_s = p->rate_per_s};
    return true;
}

bool weft_solution__read(const weft_builder *builder, const weft_plan *plan, weft_solution *out)
{
    weft_solution list = {.at = weft_arena_array(builder->arena, plan->n, sizeof *list.at)};
    for (size_t i = 0; i < plan->n; i++)
        if (!weft_solution__read_placement(builder, &plan->at[i], &list.at[list.n++]))
            return false;
    weft_solution__sort(&list);
    sum_up(&list);
    *out = list;
    return true;
}

/* -- On the builder --------------------------------------------------------------------------- */

/* Puts the n segments of one slice, with these rates. */
static bool put_slice(weft_builder *builder, uint32_t device, const weft_segment *segment,
                      uint32_t n, const double *rate)
{
    const weft_option *option[64];
    if (n > 64 || !weft_builder__put(builder, device, segment[0].start, segment[0].demand,
                                     segment[0].option, rate[0]))
        return false;
    uint32_t slice = builder->slices.len - 1;
    option[0] = segment[0].option;
    for (uint32_t i = 1; i < n; i++) {
        option[i] = segment[i].option;
        if (!weft_builder__join(builder, slice, segment[i].demand, rate[i], option))
            return false;
    }
    return true;
}

bool weft_solution__put_rates(weft_builder *builder, const weft_solution *list, const double *rate)
{
    weft_builder__undo(builder, 0);
    for (uint32_t i = 0; i < list->n;) {
        uint32_t device = NONE, named = list->at[i].device;
        while (i < list->n && list->at[i].device == named) {
            uint32_t end = i + 1;
            while (end < list->n && weft_solution__share_slice(&list->at[i], &list->at[end]))
                end++;
            if (rate[i] >= 0) {
                const weft_option *o = list->at[i].option;
                if (device == NONE)
                    device = weft_builder__open(builder, o->row, o->spec.kind);
                if (device == NONE || !put_slice(builder, device, &list->at[i], end - i, &rate[i]))
                    return false;
            }
            i = end;
        }
    }
    return true;
}

bool weft_solution__put(weft_builder *builder, const weft_solution *segments)
{
    double *rate = weft_arena_array(builder->arena, segments->n, sizeof *rate);
    for (uint32_t i = 0; i < segments->n; i++)
        rate[i] = segments->at[i].rate_per_s;
    return weft_solution__put_rates(builder, segments, rate);
}

bool weft_solution__is_better(weft_goal goal, const weft_solution *a, const weft_solution *b)
{
    if (goal == WEFT_GOAL_GOODPUT) {
        if (a->goodput_per_s > b->goodput_per_s * (1 + 1e-9))
            return true;
        if (a->goodput_per_s < b->goodput_per_s * (1 - 1e-9))
            return false;
    }
    if (a->cost_per_hour < b->cost_per_hour * (1 - 1e-9))
        return true;
    return a->cost_per_hour <= b->cost_per_hour * (1 + 1e-9) && a->devices < b->devices;
}
