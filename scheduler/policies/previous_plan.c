/* The previous plan, repaired: what is still within the rules stays, and the rest gets new places.
 *
 * A model whose rate or SLO has changed first uses its slices, gives up those that it no longer
 * needs, and gets places for the rest. If the fleet has fewer devices than the plan, the devices
 * with the fewest segments are given up. */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The segments of the previous plan whose option is still within the rules. */
static weft_solution read_kept(const weft_builder *builder, const weft_plan *previous)
{
    weft_solution list = {.at = weft_arena_array(builder->arena, previous->n, sizeof *list.at)};
    for (size_t i = 0; i < previous->n; i++)
        if (weft_solution__read_placement(builder, &previous->at[i], &list.at[list.n]))
            list.n++;
    weft_solution__sort(&list);
    return list;
}

static bool is_lone(const weft_solution *list, uint32_t i)
{
    const weft_segment *p = &list->at[i];
    return (i == 0 || p[-1].device != p->device || p[-1].slice_id != p->slice_id) &&
           (i + 1 == list->n || p[1].device != p->device || p[1].slice_id != p->slice_id);
}

/* Fits the kept segments to the present rates. A segment alone on its slice is filled or given up;
 * one on a shared slice only gets less. *rest: by demand, the rate without a place among them (-1:
 * no segment is left). */
static void refit(const weft_builder *builder, weft_solution *list, double *rest)
{
    const weft_demands *demands = builder->demands;
    uint32_t n = (uint32_t)demands->n, kept = 0;
    double *carried = weft_arena_array(builder->arena, n, sizeof *carried);
    uint32_t *segments = weft_arena_array(builder->arena, n, sizeof *segments);
    for (uint32_t i = 0; i < list->n; i++)
        carried[list->at[i].demand] += list->at[i].rate_per_s;
    for (uint32_t d = 0; d < n; d++)
        rest[d] = demands->at[d].rate_per_s;
    for (uint32_t i = 0; i < list->n; i++) {
        weft_segment *p = &list->at[i];
        double rate = demands->at[p->demand].rate_per_s, part = p->rate_per_s;
        bool same = fabs(carried[p->demand] - rate) <= 1e-9 * rate;
        if (!same)
            part = fmin(is_lone(list, i) ? p->option->peak_per_s : p->rate_per_s, rest[p->demand]);
        if (part > p->option->peak_per_s)
            part = p->option->peak_per_s;
        if (!same && !(part > rate * 1e-9) && segments[p->demand] > 0)
            continue;
        p->rate_per_s = part;
        rest[p->demand] -= part;
        segments[p->demand]++;
        list->at[kept++] = *p;
    }
    list->n = kept;
    for (uint32_t d = 0; d < n; d++)
        rest[d] = segments[d] > 0 ? fmax(0, rest[d]) : -1;
}

typedef struct load {
    const weft_fleet_device *row;
    uint32_t device, segments;
} load;

/* Devices of one row, those with few segments first. */
static int compare_loads(const void *a, const void *b)
{
    const load *p = a, *q = b;
    if (p->row != q->row)
        return p->row < q->row ? -1 : 1;
    if (p->segments != q->segments)
        return p->segments < q->segments ? -1 : 1;
    return (p->device < q->device) - (p->device > q->device);
}

/* Gives up devices that the fleet no longer has. */
static void drop_devices(const weft_builder *builder, weft_solution *list)
{
    const weft_fleet *fleet = builder->fleet;
    load *loads = weft_arena_array(builder->arena, list->n + 1u, sizeof *loads);
    uint32_t *count = weft_arena_array(builder->arena, fleet->n_device + 1, sizeof *count);
    uint32_t n = 0, kept = 0, most = 0;
    for (uint32_t i = 0; i < list->n; i++) {
        const weft_segment *p = &list->at[i];
        if (i == 0 || p->device != p[-1].device) {
            loads[n++] = (load){p->option->row, p->device, 0};
            count[p->option->row - fleet->device]++;
        }
        loads[n - 1].segments++;
        most = p->device > most ? p->device : most;
    }
    bool *gone = weft_arena_array(builder->arena, most + 1u, sizeof *gone);
    qsort(loads, n, sizeof *loads, compare_loads);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *here = &count[loads[i].row - fleet->device];
        gone[loads[i].device] = *here > loads[i].row->count;
        *here -= gone[loads[i].device];
    }
    for (uint32_t i = 0; i < list->n; i++)
        if (!gone[list->at[i].device])
            list->at[kept++] = list->at[i];
    list->n = kept;
}

bool weft_previous__repair(weft_builder *builder, const weft_plan *previous)
{
    double *rest = weft_arena_array(builder->arena, builder->demands->n, sizeof *rest);
    weft_solution list = read_kept(builder, previous);
    drop_devices(builder, &list);
    refit(builder, &list, rest);
    if (!weft_solution__put(builder, &list))
        return false;
    for (uint32_t s = 0; s < builder->demands->n; s++) {
        uint32_t d = builder->order[s];
        double rate = builder->demands->at[d].rate_per_s;
        bool wants = rest[d] < 0 || rest[d] > rate * 1e-9;
        if (wants && builder->n_option[d] > 0 &&
            !weft_ruin_recreate__add(builder, d, rest[d] < 0 ? rate : rest[d], true) &&
            builder->problem->goal != WEFT_GOAL_GOODPUT)
            return false;
    }
    return true;
}

/* -- Moves ------------------------------------------------------------------------------------ */

static int compare_places(const void *a, const void *b)
{
    return weft_placement__compare(*(const weft_placement *const *)a,
                                   *(const weft_placement *const *)b);
}

static const weft_placement **sort_places(weft_arena *arena, const weft_plan *plan)
{
    const weft_placement **list = weft_arena_array(arena, plan->n + 1, sizeof *list);
    for (size_t i = 0; i < plan->n; i++)
        list[i] = &plan->at[i];
    qsort(list, plan->n, sizeof *list, compare_places);
    return list;
}

uint32_t weft_previous__count_moves(weft_arena *arena, const weft_plan *from, const weft_plan *to)
{
    const weft_placement **a = sort_places(arena, from), **b = sort_places(arena, to);
    uint32_t moves = 0;
    size_t i = 0;
    for (size_t j = 0; j < to->n; j++) {
        while (i < from->n && compare_places(&a[i], &b[j]) < 0)
            i++;
        if (i < from->n && compare_places(&a[i], &b[j]) == 0)
            i++;
        else
            moves++;
    }
    return moves;
}
