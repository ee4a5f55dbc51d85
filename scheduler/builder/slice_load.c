/* Loads of the slices of a plan under construction, interference between slices included, and
 * whether every model is served at its rate and within its SLO. slo.c has the formulas. */
#include "scheduler/builder/builder_int.h"

#include <math.h>

static const double slack = 1e-9; /* relative, below the tolerance of the checker */

bool weft_builder__has_neighbours(const weft_fleet_slice *spec)
{
    return spec->kind == WEFT_SLICE_MPS || weft_fleet_slice__is_nested(spec);
}

/* Whether slices a and b of one device run at the same time on the same compute units. */
static bool are_neighbours(const weft_builder_slice *a, const weft_builder_slice *b)
{
    return a != b && weft_builder__has_neighbours(&a->spec) &&
           weft_builder__has_neighbours(&b->spec) &&
           (a->spec.kind == WEFT_SLICE_MPS || a->mig_start == b->mig_start);
}

weft_pressure weft_builder__pressure(const weft_builder_slice *slice)
{
    weft_pressure most = {0};
    for (uint32_t i = 0; i < slice->members.len; i++)
        most = weft_pressure__larger(most, slice->members.at[i].option->use);
    return most;
}

/* Sum of the pressures of the neighbours of a slice. A time-shared slice counts with the maximum of
 * its members, since one of them runs at a time. */
static weft_pressure_sum sum_neighbours(const weft_builder *builder,
                                        const weft_builder_slice *slice)
{
    weft_pressure_sum sum = {0};
    for (uint32_t i = builder->devices.at[slice->device].last; i != UINT32_MAX;
         i = builder->slices.at[i].before) {
        const weft_builder_slice *other = &builder->slices.at[i];
        if (!are_neighbours(slice, other))
            continue;
        weft_interference__add(&builder->problem->rules.interference, weft_builder__pressure(other),
                               &sum);
    }
    return sum;
}

static double slowdown_of(const weft_builder *builder, const weft_builder_slice *slice,
                          const weft_member *member)
{
    const weft_interference *coeff = &builder->problem->rules.interference;
    if (!weft_builder__has_neighbours(&slice->spec) || !weft_interference__any(coeff))
        return 1;
    weft_pressure_sum others = sum_neighbours(builder, slice);
    return weft_interference__factor(coeff, member->option->use, &others);
}

double weft_builder__cycle_us(const weft_builder *builder, const weft_builder_slice *slice)
{
    double cycle_us = 0;
    for (uint32_t i = 0; i < slice->members.len; i++)
        cycle_us += slice->members.at[i].option->exec_us *
                    slowdown_of(builder, slice, &slice->members.at[i]);
    return cycle_us;
}

weft_slo_load weft_builder__load(const weft_builder *builder, const weft_builder_slice *slice,
                                 const weft_member *member, double cycle_us)
{
    double slowdown = slowdown_of(builder, slice, member);
    weft_slo_load_in in = {.rules = &builder->problem->rules,
                           .demand = &builder->demands->at[member->demand],
                           .point = member->option->point,
                           .exec_us = member->option->exec_us * slowdown,
                           .slowdown = slowdown,
                           .cycle_us = cycle_us,
                           .alone = slice->members.len == 1,
                           .rate_per_s = member->rate_per_s};
    return weft_slo__load(&in);
}

/* Whether every member of the slice itself is served at its rate and within its SLO. */
static bool keeps_slos(const weft_builder *builder, const weft_builder_slice *slice)
{
    const weft_rules *rules = &builder->problem->rules;
    double cycle_us = weft_builder__cycle_us(builder, slice);
    for (uint32_t i = 0; i < slice->members.len; i++) {
        const weft_member *m = &slice->members.at[i];
        const weft_demand *demand = &builder->demands->at[m->demand];
        weft_slo_load load = weft_builder__load(builder, slice, m, cycle_us);
        double exec_us = m->option->exec_us * slowdown_of(builder, slice, m);
        if (m->rate_per_s > load.capacity_per_s * (1 + slack) ||
            !weft_rules__allow(rules, demand, exec_us))
            return false;
        if (demand->slo_us > 0 && load.latency_us > weft_rules__slo_us(rules, demand) * (1 + slack))
            return false;
    }
    return true;
}

bool weft_builder__keeps_slos(const weft_builder *builder, uint32_t index)
{
    const weft_builder_slice *slice = &builder->slices.at[index];
    if (!keeps_slos(builder, slice))
        return false;
    if (!weft_builder__has_neighbours(&slice->spec) ||
        !weft_interference__any(&builder->problem->rules.interference))
        return true;
    for (uint32_t i = builder->devices.at[slice->device].last; i != UINT32_MAX;
         i = builder->slices.at[i].before)
        if (are_neighbours(slice, &builder->slices.at[i]) &&
            !keeps_slos(builder, &builder->slices.at[i]))
            return false;
    return true;
}
