/* The derived fields of a plan, those that follow from its choices and the problem; and ParvaGPU's
 * metrics of a plan. */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

/* -- Placements in order ---------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b, void *plan)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const weft_placement *p = (weft_placement *)plan + i, *q = (weft_placement *)plan + j;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->slice_id != q->slice_id)
        return p->slice_id < q->slice_id ? -1 : 1;
    int order = strcmp(p->model, q->model);
    return order ? order : (i > j) - (i < j);
}

uint32_t *weft_plan__order(const weft_plan *plan, weft_arena *arena)
{
    uint32_t *order = weft_arena_array(arena, plan->n, sizeof *order);
    for (size_t i = 0; i < plan->n; i++)
        order[i] = (uint32_t)i;
    if (plan->n > 0)
        qsort_r(order, plan->n, sizeof *order, compare_places, plan->at);
    return order;
}

/* -- Derived fields --------------------------------------------------------------------------- */

typedef struct derivation {
    weft_plan *plan;
    const weft_problem *problem;
    weft_option_table table;
    const weft_timed_point **timed; /* by placement */
    uint32_t *demand;               /* by placement */
    double *slowdown;               /* by placement: by its neighbours */
} derivation;

/* Resolves the slice of a placement into *spec; NULL: the fleet has no such slice. */
static const weft_fleet_slice *spec_of(const derivation *c, const weft_placement *p,
                                       weft_fleet_slice *spec)
{
    const char *why;
    return weft_option_table__spec(&c->table, p->type, p->slice, spec, &why) ? spec : NULL;
}

static bool is_among(const weft_fleet_slice *spec)
{
    return spec && (spec->kind == WEFT_SLICE_MPS || weft_fleet_slice__is_nested(spec));
}

/* A slice of the device: placements order[from .. to). */
typedef struct slice_use {
    size_t from, to;
    bool among; /* other slices run on its compute units: those with the same start slot */
    int32_t start;
    weft_pressure use;
} slice_use;

static slice_use look_at_slice(const derivation *c, const uint32_t *order, size_t from, size_t to)
{
    const weft_placement *first = &c->plan->at[order[from]];
    const weft_fleet_device *row = weft_fleet__row(c->problem->fleet, first->type);
    weft_fleet_slice room;
    slice_use s = {.from = from,
                   .to = from,
                   .among = is_among(spec_of(c, first, &room)),
                   .start = first->mig_start};
    for (; s.to < to && c->plan->at[order[s.to]].slice_id == first->slice_id; s.to++)
        if (c->timed[order[s.to]])
            s.use = weft_pressure__larger(s.use,
                                          weft_point__pressure(row, c->timed[order[s.to]]->point));
    return s;
}

/* How much its neighbours slow each placement of one device, order[from .. to), down. */
static void find_slowdowns(derivation *c, const uint32_t *order, size_t from, size_t to)
{
    const weft_interference *coeff = &c->problem->rules.interference;
    const weft_fleet_device *row =
        weft_fleet__row(c->problem->fleet, c->plan->at[order[from]].type);
    for (size_t i = from; i < to;) {
        slice_use own = look_at_slice(c, order, i, to);
        weft_pressure_sum others = {0};
        for (size_t k = from; k < to && own.among;) {
            slice_use other = look_at_slice(c, order, k, to);
            if (k != i && other.among && other.start == own.start)
                weft_interference__add(coeff, other.use, &others);
            k = other.to;
        }
        for (; i < own.to; i++)
            if (own.among && c->timed[order[i]])
                c->slowdown[order[i]] = weft_interference__factor(
                    coeff, weft_point__pressure(row, c->timed[order[i]]->point), &others);
    }
}

/* Derives the fields of the placements order[from .. to), which are on one slice. */
static void derive_slice(derivation *c, const uint32_t *order, size_t from, size_t to)
{
    double cycle_us = 0;
    for (size_t i = from; i < to; i++)
        if (c->timed[order[i]])
            cycle_us += c->timed[order[i]]->exec_us * c->slowdown[order[i]];
    for (size_t i = from; i < to; i++) {
        weft_placement *p = &c->plan->at[order[i]];
        weft_fleet_slice room;
        const weft_fleet_slice *spec = spec_of(c, p, &room);
        const weft_timed_point *timed = c->timed[order[i]];
        p->share = spec ? spec->share : 0;
        p->source = timed ? timed->point->cost.source : "";
        if (!timed)
            continue;
        double slowdown = c->slowdown[order[i]];
        weft_slo_load_in in = {.rules = &c->plan->rules,
                               .demand = &c->problem->demands->at[c->demand[order[i]]],
                               .point = timed->point,
                               .exec_us = timed->exec_us * slowdown,
                               .slowdown = slowdown,
                               .cycle_us = cycle_us,
                               .alone = to - from == 1,
                               .rate_per_s = p->rate_per_s};
        weft_slo_load load = weft_slo__load(&in);
        p->capacity_per_s = load.capacity_per_s;
        p->latency_us = load.latency_us;
        p->exec_us = load.exec_us;
        p->mem_bytes = weft_point__mem_bytes(timed->point);
        p->expected_error = timed->point->cost.expected_error;
    }
}

static void derive_device(derivation *c, const uint32_t *order, size_t from, size_t to)
{
    const weft_placement *p = c->plan->at;
    const weft_fleet_device *row = weft_fleet__row(c->problem->fleet, p[order[from]].type);
    c->plan->gpus++;
    c->plan->cost_per_hour += row ? weft_fleet__price(row) : 0;
    if (weft_interference__any(&c->problem->rules.interference))
        find_slowdowns(c, order, from, to);
    for (size_t i = from; i < to;) {
        size_t end = i;
        while (end < to && p[order[end]].slice_id == p[order[i]].slice_id)
            end++;
        derive_slice(c, order, i, end);
        i = end;
    }
}

void weft_plan_derive(weft_plan *plan, const weft_problem *problem, weft_arena *arena)
{
    weft_problem judged;
    weft_families_of_plan(plan, problem, arena, &judged);
    judged.rules = plan->rules;
    judged.goal = plan->goal;
    derivation c = {.plan = plan, .problem = &judged};
    weft_power power = {0};
    weft_demand_index index = weft_demands__index(judged.demands, arena);
    uint32_t *order = weft_plan__order(plan, arena);
    weft_option_table__build(&judged, arena, &c.table);
    c.timed = weft_arena_array(arena, plan->n, sizeof *c.timed);
    c.demand = weft_arena_array(arena, plan->n, sizeof *c.demand);
    c.slowdown = weft_arena_array(arena, plan->n, sizeof *c.slowdown);
    plan->gpus = 0;
    plan->cost_per_hour = plan->goodput_per_s = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        c.demand[i] = weft_demands__find(&index, p->model);
        c.slowdown[i] = 1;
        if (c.demand[i] != NONE)
            c.timed[i] = weft_option_table__find(
                &c.table, c.demand[i], weft_option_table__shape(&c.table, p->type, p->slice),
                p->batch, p->procs);
        if (c.timed[i])
            weft_power__add(&power, c.timed[i]->point, p->rate_per_s);
        plan->goodput_per_s += p->rate_per_s;
    }
    for (size_t i = 0; i < plan->n;) {
        size_t end = i;
        while (end < plan->n && plan->at[order[end]].device == plan->at[order[i]].device)
            end++;
        derive_device(&c, order, i, end);
        i = end;
    }
    plan->power_w = weft_power__watts(&power);
    weft_option_table__bound_plan(&c.table, plan);
}

/* -- Metrics ---------------------------------------------------------------------------------- */

/* Part of the time in which the slice executes this placement. On a shared slice the capacity is
 * batch / cycle and the latency is cycle + exec (slo.c), from which exec follows. */
static double busy_part(const weft_placement *p, bool shared)
{
    if (p->exec_us > 0)
        return p->rate_per_s * p->exec_us / ((double)p->batch * p->procs * 1e6);
    if (!(p->capacity_per_s > 0))
        return 0;
    if (!shared)
        return p->rate_per_s / p->capacity_per_s;
    double exec_us = p->latency_us - p->batch * 1e6 / p->capacity_per_s;
    return p->rate_per_s / p->batch * exec_us / 1e6;
}

double weft_plan_gap(const weft_plan *plan)
{
    if (plan->proven)
        return 0;
    if (plan->cost_per_hour > 0)
        return plan->cost_bound > 0 ? fmax(0, plan->cost_per_hour / plan->cost_bound - 1)
                                    : HUGE_VAL;
    return plan->lower_bound > 0 ? fmax(0, plan->gpus / plan->lower_bound - 1) : HUGE_VAL;
}

void weft_plan_measure(const weft_plan *plan, const weft_problem *problem, weft_arena *arena,
                       weft_plan_metrics *out)
{
    weft_plan_metrics m = {0};
    weft_option_table table;
    weft_problem judged;
    double parts = 0, busy = 0;
    uint32_t *order = weft_plan__order(plan, arena);
    weft_families_of_plan(plan, problem, arena, &judged);
    judged.rules = plan->rules;
    judged.goal = plan->goal;
    weft_option_table__build(&judged, arena, &table);
    for (size_t i = 0; i < plan->n;) {
        const weft_placement *first = &plan->at[order[i]];
        const weft_shape *shape = weft_option_table__shape(&table, first->type, first->slice);
        double part = shape && shape->allowed ? shape->spec.weight : 0, use = 0;
        size_t from = i;
        while (i < plan->n && plan->at[order[i]].device == first->device &&
               plan->at[order[i]].slice_id == first->slice_id)
            i++;
        for (size_t k = from; k < i; k++)
            use += busy_part(&plan->at[order[k]], i - from > 1);
        parts += part;
        busy += part * fmin(1, use);
    }
    m.internal_slack = parts > 0 ? 1 - busy / parts : 0;
    m.external_fragmentation = plan->gpus > 0 ? fmax(0, 1 - parts / plan->gpus) : 0;
    /* The table's bound is one of plans with the same families. */
    m.cost_bound = plan->cost_bound;
    if (problem->n_family == 0 && judged.demands == problem->demands)
        m.cost_bound = fmax(m.cost_bound, weft_option_table__cost_bound(&table));
    m.gap = weft_plan_gap(plan);
    m.carbon_g_per_h = plan->power_w / 1e3 * problem->carbon_g_per_kwh;
    *out = m;
}
