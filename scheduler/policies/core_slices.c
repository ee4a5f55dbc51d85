/* Slices of CPUs for policies whose papers know GPUs only.
 *
 * The slices of a CPU are those of the fleet file: they have their sizes and cannot be divided, as
 * MIG instances have theirs, and one model, or models in turn, run on each. So a policy keeps its
 * rule for the size and the batch that a model gets, and its order; places are the first free slice
 * of that size, and what its paper does to cut a device has no counterpart. A policy is asked so if
 * the fleet has CPUs only; of a mixed fleet it uses the GPUs, as before. */
#include "scheduler/policies/core_slices.h"

#include <math.h>
#include <stdlib.h>

static const double slack = 1e-9;

bool weft_cores__only(const weft_fleet *fleet)
{
    for (size_t i = 0; i < fleet->n_device; i++)
        if (fleet->device[i].cores == 0 && fleet->device[i].count > 0)
            return false;
    return fleet->n_device > 0;
}

/* -- As a geometry ---------------------------------------------------------------------------- */

/* Size k of the row's slices, ascending; 0: there are fewer. */
static uint32_t size_at(const weft_fleet_device *row, uint32_t k)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i <= k; i++) {
        uint32_t next = row->n_slice == 0 && row->cores > last ? row->cores : 0;
        for (size_t j = 0; j < row->n_slice; j++)
            if (row->slice_cores[j] > last && (next == 0 || row->slice_cores[j] < next))
                next = row->slice_cores[j];
        last = next;
        if (last == 0)
            break;
    }
    return last;
}

static uint32_t count_of(const weft_fleet_device *row, uint32_t cores)
{
    uint32_t n = row->n_slice == 0;
    for (size_t j = 0; j < row->n_slice; j++)
        n += row->slice_cores[j] == cores;
    return n;
}

/* Slices of the row that are free. */
static uint32_t free_of(const weft_builder *builder, const weft_fleet_device *row, uint32_t cores)
{
    uint32_t n = count_of(row, cores) * row->count;
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *s = &builder->slices.at[i];
        n -= builder->devices.at[s->device].row == row && s->spec.cores == cores;
    }
    return n;
}

weft_mig_shape weft_cores__shape(const weft_builder *builder, const weft_fleet_device *row,
                                 uint32_t reserve)
{
    weft_device_type *type = weft_arena_alloc(builder->arena, sizeof *type);
    weft_mig_profile *size = weft_arena_array(builder->arena, WEFT_MIG_PROFILES_MAX, sizeof *size);
    weft_mig_shape shape = {.type = type};
    uint32_t sum = 0;
    *type = (weft_device_type){.name = row->type, .mig = size};
    for (uint32_t i = 0, cores; shape.n < WEFT_MIG_PROFILES_MAX; i++) {
        cores = size_at(row, i);
        if (cores == 0)
            break;
        uint32_t k = shape.n, n = free_of(builder, row, cores);
        if (n == 0)
            continue;
        size[k] = (weft_mig_profile){
            .name = weft_arena_printf(builder->arena, "%ucore", (unsigned)cores), .gpcs = cores};
        shape.weight[k][k] = 1;
        shape.cap[k] = n;
        sum += n;
        shape.n++;
    }
    if (sum <= reserve)
        shape.n = 0;
    type->n_mig = shape.n;
    for (uint32_t k = 0; k < shape.n; k++) {
        shape.weight[shape.n][k] = 1;
        shape.order[k] = shape.n - 1 - k;
    }
    shape.cap[shape.n] = sum - reserve;
    shape.n_facet = shape.n > 0 ? shape.n + 1 : 0;
    return shape;
}

weft_mig_best weft_cores__best(const weft_builder *builder, const weft_mig_shape *shape,
                               const weft_fleet_device *row, uint32_t demand)
{
    weft_mig_best best = {{NULL}, {0}};
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        for (uint32_t k = 0; k < shape->n && o->row == row; k++)
            if (o->spec.kind == WEFT_SLICE_CORES && o->spec.cores == shape->type->mig[k].gpcs &&
                o->peak_per_s > best.per_s[k]) {
                best.per_s[k] = o->peak_per_s;
                best.option[k] = o;
            }
    }
    return best;
}

/* -- First fit -------------------------------------------------------------------------------- */

/* Joins the slice that is then fullest. */
static bool share_slice(weft_builder *builder, uint32_t demand, double rest_per_s)
{
    uint32_t best = UINT32_MAX;
    double most = -1, occupancy;
    for (uint32_t i = 0; i < builder->slices.len; i++)
        if (weft_builder__share(builder, i, demand, rest_per_s, false, &occupancy) &&
            occupancy > most + slack) {
            best = i;
            most = occupancy;
        }
    return best != UINT32_MAX &&
           weft_builder__share(builder, best, demand, rest_per_s, true, &occupancy);
}

/* The option that the rule prefers among those that find a place. */
static const weft_option *find_option(weft_builder *builder, uint32_t demand, double rest_per_s,
                                      const weft_cores_rule *rule)
{
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < builder->n_option[demand]; i++) {
        const weft_option *o = &builder->option[demand][i];
        uint32_t mark = weft_builder__mark(builder);
        if (o->spec.kind != WEFT_SLICE_CORES ||
            (best && !rule->is_better(builder, demand, o, best, rest_per_s)) ||
            !weft_builder__add(builder, demand, o, fmin(rest_per_s, o->peak_per_s), true))
            continue;
        weft_builder__undo(builder, mark);
        best = o;
    }
    return best;
}

static bool place_some(weft_builder *builder, uint32_t demand, const weft_cores_rule *rule,
                       double *rest)
{
    const weft_option *o = find_option(builder, demand, *rest, rule);
    double part = o ? fmin(*rest, o->peak_per_s) : *rest;
    bool saturates = o && o->peak_per_s <= *rest * (1 + slack);
    /* A rest that would not fill a slice of its own shares one in time first. */
    if (rule->in_turn && !saturates && share_slice(builder, demand, *rest)) {
        *rest = 0;
        return true;
    }
    if (!o || !weft_builder__add(builder, demand, o, part, true))
        return false;
    *rest -= part;
    return true;
}

weft_err weft_cores__place(weft_builder *builder, const weft_cores_rule *rule)
{
    uint32_t n = (uint32_t)builder->demands->n;
    bool drop = builder->problem->goal == WEFT_GOAL_GOODPUT;
    const uint32_t *order = weft_builder__sort(builder, rule->weight);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t demand = order[i];
        double rate = builder->demands->at[demand].rate_per_s, rest = rate;
        do {
            if (place_some(builder, demand, rule, &rest))
                continue;
            if (!drop)
                return weft_builder__full(builder, demand, rest);
            break;
        } while (rest > rate * slack);
    }
    return WEFT_ERR_OK;
}
