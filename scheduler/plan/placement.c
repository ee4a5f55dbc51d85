/* The plan checker. It trusts no number of a plan: it recomputes all of them from demands, fleet
 * and device table, and compares.
 *
 * Each violation is one error whose text starts with the name of the violated rule:
 *
 * - structure: models and device types exist; every model is placed; devices are numbered 0..n-1
 * and have one type each; placements with one slice id agree on the slice; no model is on a slice
 *   twice
 * - fleet: the plan uses at most as many devices of a type as the fleet has
 * - slice: the device can have the slice; a device is split in one way only; a whole device is one
 *   slice; CPU slices are those of the fleet, by index
 * - mig: the start slot is legal, and instances do not overlap; shares with one start slot belong
 * to one instance
 * - mps: the shares of a device or an instance sum to at most 100 % unless the rules have
 *   `oversubscribe`; a device has at most 48 processes, an instance its part of them
 * - profile: the problem has the profile point, its numbers are usable, and the plan states its
 *   source and error
 * - memory: the sum over a slice is at most its usable memory without the reserve of the rules; so
 *   is the sum over an instance with shares, and over a device without MIG. A point with 0 bytes,
 *   not known, always fits
 * - rate: the rates of a model sum to what it requires, and none exceeds the capacity of its
 *   placement; the variants of an app serve its rate in addition to their own
 * - accuracy: the mean over the variants of an app, weighted by requests, is at least what the app
 *   requires
 * - latency: the latency rule of slo.c holds
 * - interference: rate and latency also hold with the slow-down by all neighbours. Reported only
 *   where the rule holds without neighbours
 * - place, spread, survive: locations are those of the fleet, and failures of domains leave enough
 *   (check_domains.c)
 * - isolation: if the rules require it, no two models share a slice or an instance
 * - objective: devices, cost, goodput, power, lower bound and the numbers of each placement are the
 *   computed ones
 *
 * O(p log p) for p placements. */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double tolerance = 1e-6;
#define NONE UINT32_MAX

typedef struct check {
    const weft_plan *plan;
    const weft_problem *problem;
    const weft_demands *demands;
    const weft_fleet *fleet;
    weft_arena *arena;
    weft_diag *diag;
    weft_option_table table;        /* under the rules of the plan */
    const weft_timed_point **timed; /* by placement; NULL: no such point */
    uint32_t *order;                /* placements by device, slice, model */
    uint32_t *demand_of;            /* by placement; NONE: unknown model */
    double *rate_sum;               /* by demand */
    const uint32_t *app_of;         /* by demand: 1 + its app with a rate; NULL: there are none */
    uint32_t *uses;                 /* by demand: number of its placements */
    uint32_t *type_count;           /* by fleet row: devices in use */
    double cost_per_hour;
    weft_power power;
    bool has_families; /* of the problem or the plan */
    uint32_t violations;
} check;

/* What slices occupy together that run at the same time on the same compute units: all MPS shares
 * of a device, or all shares of one MIG instance. */
typedef struct domain {
    const weft_mig_profile *mig; /* of the instance; NULL: the device */
    uint64_t percent, clients, mem_bytes;
    uint64_t mem_limit; /* 0: none */
    const char *model;  /* one of its models */
    uint32_t n_model;   /* number of different models; 2: two or more */
} domain;

enum { STARTS_MAX = 32 }; /* bits of weft_mig_profile.starts */

/* What the slices of a device that were checked so far occupy. */
typedef struct device_state {
    const weft_fleet_device *row;
    uint32_t n_slice, n_whole, n_mig, n_mps, n_cores;
    uint32_t mig_taken; /* memory slots */
    uint64_t clients;
    domain shares;               /* of MPS shares of the device; memory of CPU slices, too */
    domain instance[STARTS_MAX]; /* of split instances, by start slot */
} device_state;

/* One slice: placements [from, to) in order. */
typedef struct slice_state {
    size_t from, to;
    bool allowed;
    weft_fleet_slice spec;
    domain *among;     /* of which it is part; NULL: no other slice runs on its compute units */
    weft_pressure use; /* maximum over its placements */
    weft_pressure_sum others; /* of the slices beside it */
} slice_state;

static void report(check *c, const char *model, const char *fmt, ...) WEFT_PRINTF(3, 4);

static void report(check *c, const char *model, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->violations++;
    (void)weft_diag_error(c->diag, WEFT_ERR_INPUT, (weft_where){.item = model}, "%s", text);
}

/* Whether two numbers are equal up to the tolerance; false for NaN. */
static bool near(double a, double b)
{
    return fabs(a - b) <= tolerance * fmax(1e-9, fmax(fabs(a), fabs(b)));
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* -- Order and look-up ------------------------------------------------------------------------ */

static void sort_all(check *c)
{
    size_t n = c->plan->n, m = c->demands->n;
    c->demand_of = weft_arena_array(c->arena, n, sizeof *c->demand_of);
    c->rate_sum = weft_arena_array(c->arena, m, sizeof *c->rate_sum);
    c->uses = weft_arena_array(c->arena, m, sizeof *c->uses);
    c->type_count = weft_arena_array(c->arena, c->fleet->n_device, sizeof *c->type_count);
    weft_demand_index index = weft_demands__index(c->demands, c->arena);
    c->timed = weft_arena_array(c->arena, n, sizeof *c->timed);
    for (size_t i = 0; i < n; i++) {
        const weft_placement *p = &c->plan->at[i];
        c->demand_of[i] = weft_demands__find(&index, p->model);
        if (c->demand_of[i] != NONE)
            c->timed[i] = weft_option_table__find(
                &c->table, c->demand_of[i], weft_option_table__shape(&c->table, p->type, p->slice),
                p->batch, p->procs);
    }
    c->order = weft_plan__order(c->plan, c->arena);
}

static const weft_placement *at(const check *c, size_t i)
{
    return &c->plan->at[c->order[i]];
}

/* -- One placement ---------------------------------------------------------------------------- */

/* The profile point of the i-th placement in order; NULL: none. */
static const weft_timed_point *point_at(const check *c, size_t i)
{
    return c->timed[c->order[i]];
}

static const weft_demand *demand_at(const check *c, size_t i)
{
    return &c->demands->at[c->demand_of[c->order[i]]];
}

/* Checks rate and latency of a placement, without interference and then with it. */
static void check_load(check *c, size_t i, const weft_slo_load_in *in, double alone_cycle_us)
{
    const weft_placement *p = at(c, i);
    const weft_rules *rules = &c->plan->rules;
    double slo_us = weft_rules__slo_us(rules, in->demand);
    weft_slo_load_in without = *in;
    without.exec_us = point_at(c, i)->exec_us;
    without.cycle_us = alone_cycle_us;
    without.slowdown = 1;
    for (int with = 0; with < 2; with++) {
        const weft_slo_load_in *now = with ? in : &without;
        weft_slo_load load = weft_slo__load(now);
        bool slow = !(p->rate_per_s <= load.capacity_per_s * (1 + tolerance));
        bool late = in->demand->slo_us > 0 && (!(load.latency_us <= slo_us * (1 + tolerance)) ||
                                               !weft_rules__allow(rules, in->demand, now->exec_us));
        if (slow)
            report(c, p->model, "%s: device %u slice %u is assigned %.9g/s, can serve %.9g/s",
                   with ? "interference" : "rate", p->device, p->slice_id, p->rate_per_s,
                   load.capacity_per_s);
        if (late)
            report(c, p->model,
                   "%s: device %u slice %u has a latency of %.9g us, the SLO is %.9g us (%s)",
                   with ? "interference" : "latency", p->device, p->slice_id, load.latency_us,
                   slo_us, weft_latency_rule_name(rules->latency));
        if (slow || late || !(in->slowdown > 1))
            return;
    }
}

/* Compares the numbers that the plan states of a placement with the computed ones. */
static void check_stated(check *c, size_t i, const weft_slo_load_in *in)
{
    const weft_placement *p = at(c, i);
    const weft_profile_point *point = in->point;
    weft_slo_load load = weft_slo__load(in);
    if (!near(p->capacity_per_s, load.capacity_per_s))
        report(c, p->model, "objective: capacity %.9g/s is stated, %.9g/s is computed",
               p->capacity_per_s, load.capacity_per_s);
    if (!near(p->latency_us, load.latency_us))
        report(c, p->model, "objective: latency %.9g us is stated, %.9g us is computed",
               p->latency_us, load.latency_us);
    if (!near(p->exec_us, load.exec_us))
        report(c, p->model, "objective: execution of %.9g us is stated, %.9g us is computed",
               p->exec_us, load.exec_us);
    if (p->mem_bytes != weft_point__mem_bytes(point))
        report(c, p->model, "objective: %llu bytes are stated, %llu are computed",
               (unsigned long long)p->mem_bytes, (unsigned long long)weft_point__mem_bytes(point));
    if (!p->source || strcmp(p->source, point->cost.source) != 0 ||
        !near(p->expected_error, point->cost.expected_error))
        report(c, p->model,
               "profile: source %s with an error of %.3g is stated, it is %s with %.3g",
               p->source ? p->source : "nothing", p->expected_error, point->cost.source,
               point->cost.expected_error);
}

/* Checks of one placement that do not depend on its slice, and its part of the sums. */
static void check_placement(check *c, size_t i)
{
    const weft_placement *p = at(c, i);
    uint32_t d = c->demand_of[c->order[i]];
    if (d == NONE) {
        report(c, p->model, "structure: the set has no such model");
        return;
    }
    c->uses[d]++;
    if (!isfinite(p->rate_per_s) || p->rate_per_s < 0)
        report(c, p->model, "rate: %g/s is not a rate", p->rate_per_s);
    c->rate_sum[d] += p->rate_per_s;
    if (!point_at(c, i))
        report(c, p->model, "profile: no point for %s slice '%s', batch %u, %u processes", p->type,
               p->slice, p->batch, p->procs);
    else
        weft_power__add(&c->power, point_at(c, i)->point, p->rate_per_s);
    if (!weft_rules__allow_procs(&c->plan->rules, p->procs))
        report(c, p->model, "mps: %u processes of one model on a slice, the rules allow %u",
               p->procs, c->plan->rules.procs_max);
}

/* -- One slice -------------------------------------------------------------------------------- */

/* Checks the memory slots of an instance, and takes them. */
static void check_start(check *c, const weft_placement *p, const weft_fleet_slice *spec,
                        device_state *state)
{
    const weft_device_type *type = weft_device_type_find(p->type);
    uint32_t range = weft_device_type_mig_slots(spec->mig, p->mig_start);
    if (range >> type->mig_slots)
        report(c, p->model, "mig: %s at slot %d extends beyond the device", p->slice, p->mig_start);
    if (range & state->mig_taken)
        report(c, p->model, "mig: %s at slot %d of device %u overlaps another instance", p->slice,
               p->mig_start, p->device);
    state->mig_taken |= range;
}

static void check_mig(check *c, const weft_placement *p, slice_state *slice, device_state *state)
{
    const weft_fleet_slice *spec = &slice->spec;
    if (p->mig_start < 0 || p->mig_start >= STARTS_MAX ||
        !(spec->mig->starts & 1u << p->mig_start)) {
        report(c, p->model, "mig: %s cannot start at slot %d", p->slice, p->mig_start);
        return;
    }
    domain *instance = &state->instance[p->mig_start];
    if (!weft_fleet_slice__is_nested(spec)) {
        check_start(c, p, spec, state);
        return;
    }
    if (!instance->mig)
        check_start(c, p, spec, state);
    else if (instance->mig != spec->mig)
        report(c, p->model, "mig: %s and a share of %s both start at slot %d of device %u",
               p->slice, instance->mig->name, p->mig_start, p->device);
    instance->mig = spec->mig;
    slice->among = instance;
}

static void check_cores(check *c, const weft_placement *p, const weft_fleet_slice *spec,
                        const weft_fleet_device *row)
{
    uint32_t n = row->n_slice ? (uint32_t)row->n_slice : 1, cores = 0;
    if (p->slice_id < n)
        cores = row->n_slice ? row->slice_cores[p->slice_id] : row->cores;
    if (cores != spec->cores)
        report(c, p->model, "slice: slice %u of the cpu has %u cores, not %u", p->slice_id, cores,
               spec->cores);
}

/* Counts a slice in the state of its device, and runs the checks of its kind. */
static void check_kind(check *c, const weft_placement *p, slice_state *slice, device_state *state)
{
    switch (slice->spec.kind) {
    case WEFT_SLICE_MIG:
        state->n_mig++;
        check_mig(c, p, slice, state);
        break;
    case WEFT_SLICE_WHOLE:
        state->n_whole++;
        break;
    case WEFT_SLICE_MPS:
        state->n_mps++;
        slice->among = &state->shares;
        break;
    case WEFT_SLICE_CORES:
        state->n_cores++;
        check_cores(c, p, &slice->spec, state->row);
        break;
    }
    if (slice->spec.kind != WEFT_SLICE_MIG && p->mig_start != -1)
        report(c, p->model, "mig: slot %d on a slice that is not a MIG instance", p->mig_start);
}

/* Adds a slice with this many processes and bytes to its domain. */
static void count_domain(domain *d, const slice_state *slice, const weft_placement *first,
                         uint64_t clients, uint64_t mem_bytes)
{
    d->percent += slice->spec.percent;
    d->clients = add_saturating(d->clients, clients);
    d->mem_bytes = add_saturating(d->mem_bytes, mem_bytes);
    d->mem_limit = slice->spec.mem_bytes;
    if (d->n_model == 0 || (d->n_model == 1 && strcmp(d->model, first->model) != 0))
        d->n_model++;
    d->model = d->n_model == 1 ? first->model : d->model;
}

/* Checks a slice except for its loads, which depend on all slices of the device. */
static void check_slice(check *c, slice_state *slice, device_state *state)
{
    const weft_placement *first = at(c, slice->from);
    uint64_t mem_bytes = 0, clients = 0;
    bool shared = slice->to - slice->from > 1;
    const char *why;
    slice->allowed =
        weft_option_table__spec(&c->table, first->type, first->slice, &slice->spec, &why);
    if (!slice->allowed)
        report(c, first->model, "slice: '%s' of %s: %s", first->slice, first->type, why);
    state->n_slice++;
    for (size_t i = slice->from; i < slice->to; i++) {
        const weft_placement *p = at(c, i);
        const weft_timed_point *timed = point_at(c, i);
        if (strcmp(p->slice, first->slice) != 0 || p->mig_start != first->mig_start)
            report(c, p->model, "structure: device %u slice %u is stated as two slices", p->device,
                   p->slice_id);
        if (i > slice->from && strcmp(p->model, at(c, i - 1)->model) == 0)
            report(c, p->model, "structure: twice on device %u slice %u", p->device, p->slice_id);
        if (slice->allowed && !near(p->share, slice->spec.share))
            report(c, p->model, "objective: share %.9g is stated, %.9g is computed", p->share,
                   slice->spec.share);
        if (shared && p->procs != 1)
            report(c, p->model, "slice: %u processes on a shared slice, must be 1", p->procs);
        clients = shared ? 1 : p->procs; /* one process executes all models of a shared slice */
        if (!timed)
            continue;
        slice->use =
            weft_pressure__larger(slice->use, weft_point__pressure(state->row, timed->point));
        mem_bytes = add_saturating(mem_bytes, weft_point__mem_bytes(timed->point));
    }
    if (shared && c->plan->rules.isolated)
        report(c, first->model, "isolation: %zu models on device %u slice %u",
               slice->to - slice->from, first->device, first->slice_id);
    if (!slice->allowed)
        return;
    check_kind(c, first, slice, state);
    if (slice->spec.kind != WEFT_SLICE_CORES)
        state->clients = add_saturating(state->clients, clients);
    if (slice->spec.mig && clients > weft_fleet__mig_clients_max(slice->spec.mig))
        report(c, first->model, "mps: %llu processes on one %s, at most %u",
               (unsigned long long)clients, first->slice,
               weft_fleet__mig_clients_max(slice->spec.mig));
    if (slice->spec.mem_bytes && mem_bytes > slice->spec.mem_bytes)
        report(c, first->model, "memory: device %u slice %u needs %llu bytes, has %llu",
               first->device, first->slice_id, (unsigned long long)mem_bytes,
               (unsigned long long)slice->spec.mem_bytes);
    if (slice->among)
        count_domain(slice->among, slice, first, clients, mem_bytes);
    else if (slice->spec.kind == WEFT_SLICE_CORES)
        count_domain(&state->shares, slice, first, 0, mem_bytes);
}

/* -- Loads of a slice ------------------------------------------------------------------------- */

/* Sums up what runs beside slice `own` of the n slices of a device. */
static void sum_others(const check *c, slice_state *slice, size_t n, size_t own)
{
    const weft_interference *coeff = &c->problem->rules.interference;
    for (size_t i = 0; i < n && slice[own].among && weft_interference__any(coeff); i++)
        if (i != own && slice[i].among == slice[own].among)
            weft_interference__add(coeff, slice[i].use, &slice[own].others);
}

/* The factor by which the neighbours of a slice slow its i-th placement down. */
static double slowdown_of(const check *c, const slice_state *slice, size_t i,
                          const device_state *state)
{
    const weft_interference *coeff = &c->problem->rules.interference;
    if (!slice->among || !weft_interference__any(coeff))
        return 1;
    return weft_interference__factor(coeff, weft_point__pressure(state->row, point_at(c, i)->point),
                                     &slice->others);
}

static void check_loads(check *c, const slice_state *slice, const device_state *state)
{
    double cycle_us = 0, alone_cycle_us = 0;
    for (size_t i = slice->from; i < slice->to; i++) {
        if (!point_at(c, i))
            continue;
        alone_cycle_us += point_at(c, i)->exec_us;
        cycle_us += point_at(c, i)->exec_us * slowdown_of(c, slice, i, state);
    }
    for (size_t i = slice->from; i < slice->to; i++) {
        if (!point_at(c, i))
            continue;
        double slowdown = slowdown_of(c, slice, i, state);
        weft_slo_load_in in = {.rules = &c->plan->rules,
                               .demand = demand_at(c, i),
                               .point = point_at(c, i)->point,
                               .exec_us = point_at(c, i)->exec_us * slowdown,
                               .slowdown = slowdown,
                               .cycle_us = cycle_us,
                               .alone = slice->to - slice->from == 1,
                               .rate_per_s = at(c, i)->rate_per_s};
        check_load(c, i, &in, alone_cycle_us);
        check_stated(c, i, &in);
    }
}

/* -- One device ------------------------------------------------------------------------------- */

static void check_domain(check *c, const weft_placement *p, const domain *d, const char *what)
{
    if (d->percent > 100 && !c->plan->rules.oversubscribe)
        report(c, p->model, "mps: shares of %s %u sum to %llu %%", what, p->device,
               (unsigned long long)d->percent);
    if (d->mig && d->clients > weft_fleet__mig_clients_max(d->mig))
        report(c, p->model, "mps: %llu processes on one %s, at most %u",
               (unsigned long long)d->clients, d->mig->name, weft_fleet__mig_clients_max(d->mig));
    if (d->mem_limit && d->mem_bytes > d->mem_limit)
        report(c, p->model, "memory: %s %u needs %llu bytes, has %llu", what, p->device,
               (unsigned long long)d->mem_bytes, (unsigned long long)d->mem_limit);
    if (d->mig && d->n_model > 1 && c->plan->rules.isolated)
        report(c, p->model, "isolation: more than one model on %s %u", what, p->device);
}

static void check_device_end(check *c, const weft_placement *p, const device_state *state)
{
    uint32_t kinds =
        (state->n_whole > 0) + (state->n_mig > 0) + (state->n_mps > 0) + (state->n_cores > 0);
    if (kinds > 1)
        report(c, p->model, "slice: device %u is split in more than one way", p->device);
    if (state->n_whole > 1)
        report(c, p->model, "slice: device %u is used as a whole by %u slices", p->device,
               state->n_whole);
    if (state->clients > WEFT_MPS_CLIENTS_MAX)
        report(c, p->model, "mps: %llu processes on device %u, at most 48",
               (unsigned long long)state->clients, p->device);
    check_domain(c, p, &state->shares, "device");
    for (size_t i = 0; i < STARTS_MAX; i++)
        if (state->instance[i].mig)
            check_domain(c, p, &state->instance[i], "an instance of device");
}

/* Checks the placements [from, to) in order, which are on one device. */
static void check_device(check *c, size_t from, size_t to)
{
    const weft_placement *first = at(c, from);
    device_state state = {.row = weft_fleet__row(c->fleet, first->type)};
    for (size_t i = from; i < to; i++) {
        if (strcmp(at(c, i)->type, first->type) != 0)
            report(c, at(c, i)->model, "structure: device %u is both %s and %s", first->device,
                   first->type, at(c, i)->type);
        check_placement(c, i);
    }
    if (!state.row) {
        report(c, first->model, "fleet: has no device of type '%s'", first->type);
        return;
    }
    c->type_count[state.row - c->fleet->device]++;
    c->cost_per_hour += weft_fleet__price(state.row);
    weft_arena_mark mark = weft_arena_get_mark(c->arena);
    slice_state *slice = weft_arena_array(c->arena, to - from, sizeof *slice);
    size_t n = 0;
    for (size_t i = from; i < to; n++) {
        slice[n] = (slice_state){.from = i, .to = i + 1};
        while (slice[n].to < to && at(c, slice[n].to)->slice_id == at(c, i)->slice_id)
            slice[n].to++;
        check_slice(c, &slice[n], &state);
        i = slice[n].to;
    }
    for (size_t i = 0; i < n; i++) {
        sum_others(c, slice, n, i);
        check_loads(c, &slice[i], &state);
    }
    weft_arena_reset(c->arena, mark);
    check_device_end(c, first, &state);
}

/* -- The plan --------------------------------------------------------------------------------- */

/* The variants of an app serve its rate in any mixture that is accurate enough. */
static void check_app(check *c, const weft_set_app *app)
{
    double rate = 0, sum = 0, weight = 0;
    weft_demand_index index = weft_demands__index(c->demands, c->arena);
    for (size_t i = 0; i < app->n_variant; i++) {
        uint32_t d = weft_demands__find(&index, app->variant[i].model);
        if (d == NONE)
            continue;
        double more = c->rate_sum[d] - c->demands->at[d].rate_per_s;
        rate += more;
        weight += fmax(0, more);
        sum += fmax(0, more) * app->variant[i].accuracy;
    }
    bool right = c->plan->goal == WEFT_GOAL_GOODPUT
                     ? rate <= app->rate_per_s * (1 + tolerance)
                     : fabs(rate - app->rate_per_s) <= tolerance * app->rate_per_s;
    if (!right)
        report(c, app->name, "rate: its variants are assigned %.9g/s for it, it requires %.9g/s",
               rate, app->rate_per_s);
    if (weight > 0 && sum / weight < app->accuracy * (1 - tolerance))
        report(c, app->name, "accuracy: the mean is %.9g, it requires %.9g", sum / weight,
               app->accuracy);
}

/* A variant of an app with a rate serves at least its own rate. */
static void check_variant(check *c, size_t i)
{
    const weft_demand *d = &c->demands->at[i];
    if (c->plan->goal != WEFT_GOAL_GOODPUT && d->rate_per_s > 0 &&
        !(c->rate_sum[i] >= d->rate_per_s * (1 - tolerance)))
        report(c, d->model, "rate: %.9g/s are assigned, %.9g/s are required", c->rate_sum[i],
               d->rate_per_s);
}

static void check_totals(check *c, uint32_t n_device)
{
    const weft_plan *plan = c->plan;
    double bound = weft_option_table__lower_bound(&c->table), goodput = 0;
    for (size_t i = 0; i < c->fleet->n_device; i++)
        if (c->type_count[i] > c->fleet->device[i].count)
            report(c, NULL, "fleet: %u devices of type %s are in use, it has %u", c->type_count[i],
                   c->fleet->device[i].type, c->fleet->device[i].count);
    for (size_t i = 0; i < c->demands->n; i++) {
        const weft_demand *d = &c->demands->at[i];
        goodput += c->rate_sum[i];
        if (c->app_of && c->app_of[i])
            check_variant(c, i);
        else if (c->uses[i] == 0 && plan->goal != WEFT_GOAL_GOODPUT)
            report(c, d->model, "structure: the model has no placement");
        else if (plan->goal == WEFT_GOAL_GOODPUT
                     ? !(c->rate_sum[i] <= d->rate_per_s * (1 + tolerance))
                     : !(fabs(c->rate_sum[i] - d->rate_per_s) <= tolerance * d->rate_per_s))
            report(c, d->model, "rate: %.9g/s are assigned, %.9g/s are required", c->rate_sum[i],
                   d->rate_per_s);
    }
    for (size_t i = 0; c->app_of && i < c->problem->n_app; i++)
        if (weft_app__is_asked(&c->problem->app[i]))
            check_app(c, &c->problem->app[i]);
    if (plan->gpus != n_device)
        report(c, NULL, "objective: %u devices are stated, %u are in use", plan->gpus, n_device);
    if (!near(plan->cost_per_hour, c->cost_per_hour))
        report(c, NULL, "objective: cost %.9g is stated, %.9g is computed", plan->cost_per_hour,
               c->cost_per_hour);
    if (!near(plan->goodput_per_s, goodput))
        report(c, NULL, "objective: goodput %.9g/s is stated, %.9g/s is computed",
               plan->goodput_per_s, goodput);
    if (!near(plan->power_w, weft_power__watts(&c->power)))
        report(c, NULL, "objective: %.9g W are stated, %.9g W are computed", plan->power_w,
               weft_power__watts(&c->power));
    if (plan->proven && plan->cost_per_hour > 0 &&
        !(plan->cost_per_hour <= plan->cost_bound * (1 + tolerance)))
        report(c, NULL, "objective: cost %.9g is stated to be the least, the bound is %.9g",
               plan->cost_per_hour, plan->cost_bound);
    if (plan->proven && !(plan->cost_per_hour > 0) && plan->gpus > plan->lower_bound)
        report(c, NULL, "objective: %u devices are stated to be the fewest, the bound is %.9g",
               plan->gpus, plan->lower_bound);
    if (!(plan->cost_bound >= 0) || plan->cost_bound > c->cost_per_hour * (1 + tolerance))
        report(c, NULL, "objective: cost bound %.9g is stated, the plan costs %.9g",
               plan->cost_bound, c->cost_per_hour);
    /* A policy may have proved a higher bound than the one computed here, which holds only for the
     * families that the plan places. */
    if (c->has_families)
        bound = 0;
    if (!(plan->lower_bound >= bound * (1 - tolerance)) || plan->lower_bound > plan->gpus)
        report(c, NULL, "objective: lower bound %.9g is stated, it must be %.9g to %u",
               plan->lower_bound, bound, plan->gpus);
}

static void check_plan(check *c)
{
    uint32_t n_device = 0;
    sort_all(c);
    for (size_t i = 0; i < c->plan->n;) {
        size_t end = i + 1;
        while (end < c->plan->n && at(c, end)->device == at(c, i)->device)
            end++;
        if (at(c, i)->device != n_device)
            report(c, at(c, i)->model, "structure: device %u follows %u devices in use",
                   at(c, i)->device, n_device);
        n_device++;
        check_device(c, i, end);
        i = end;
    }
    check_totals(c, n_device);
    c->violations += weft_plan__check_domains(c->plan, c->problem, c->arena, c->diag);
}

weft_err weft_plan_check(const weft_plan *plan, const weft_problem *problem, weft_diag *diag)
{
    WEFT_TRY(weft_demands__check(problem->demands, diag));
    WEFT_TRY(weft_rules__check(&plan->rules, diag));
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
    jmp_buf env;
    /* A plan is checked under the rules that it states, not those of the problem. */
    weft_problem judged = *problem;
    judged.rules = plan->rules;
    judged.goal = plan->goal;
    check c = {
        .plan = plan, .problem = &judged, .fleet = problem->fleet, .arena = arena, .diag = diag};
    weft_err err;
    if (setjmp(env) != 0) {
        err = weft_diag_error(diag, WEFT_ERR_NOMEM, (weft_where){0}, "out of memory");
    } else {
        weft_arena_guard(arena, &env);
        weft_families_of_plan(plan, &judged, arena, &judged);
        c.has_families = problem->n_family > 0 || judged.demands != problem->demands;
        const weft_demands *grouped = judged.demands;
        err = weft_apps__resolve(&judged, false, arena, diag, &judged);
        if (err == WEFT_ERR_OK && judged.demands != grouped)
            err = weft_apps__index(&judged, arena, diag, &c.app_of);
        c.demands = judged.demands;
        if (err == WEFT_ERR_OK) {
            weft_option_table__build(&judged, arena, &c.table);
            check_plan(&c);
            err = c.violations ? WEFT_ERR_INPUT : WEFT_ERR_OK;
        }
    }
    weft_arena_destroy(arena);
    return err;
}
