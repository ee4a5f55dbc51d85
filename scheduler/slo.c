/* The load formulas: what a placement can serve, and how long a request may take. Policies and the
 * checker both use these; tests hold them against numbers worked out by hand.
 *
 * A slice executes its placements in turn, one batch each, and skips those without work.
 *
 *   exec     longest measured or estimated time of this batch size or a smaller one on the same
 *            slice with as many processes: a batch may be closed early, and time is not always
 *            monotone in the batch
 *   cycle    sum of exec over the placements of the slice
 *   capacity alone: the measured throughput, else batch * procs / exec;
 *            shared: batch / cycle (a shared slice has one process a model)
 *   fill     (batch - 1) / rate, the time in which the batch of the oldest request fills; 0 without
 *            an SLO or a rate, where the server closes a batch as soon as the slice is free
 *   flush    slo - exec - guard, guard = 5 % of the SLO: then the server closes the batch anyway
 *   wait     alone: min(fill, flush); shared: 0, the batch closes when its turn comes
 *   latency  max(wait, cycle) + exec <= slo
 *
 * A request that arrives just after a batch was closed waits for that batch (alone: cycle = exec)
 * or for a whole round (shared), then for its own execution. This is the rule `exact` with the
 * batch in execution counted, so it implies 2 exec <= slo. The rules of the literature ask the same
 * of slices with one model, more strictly: `half` exec < slo / 2, `half09` exec < 0.9 slo / 2, with
 * the time of the very batch for exec (smaller batches are not looked at). */
#include "scheduler/scheduler_int.h"

#include <math.h>
#include <string.h>

static const double flush_guard = 0.05;

const weft_profile_point *weft_profile__find(const weft_profile *profile, const char *device,
                                             const char *slice, uint32_t batch, uint32_t procs)
{
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        if (p->batch == batch && p->procs == procs && strcmp(p->slice, slice) == 0 &&
            strcmp(p->device, device) == 0)
            return p;
    }
    return NULL;
}

bool weft_profile__usable(const weft_profile_point *point)
{
    return point->batch > 0 && point->procs > 0 && isfinite(point->cost.time_us) &&
           point->cost.time_us > 0 && isfinite(point->throughput_per_s) &&
           point->throughput_per_s >= 0;
}

/* -- Rules ------------------------------------------------------------------------------------ */

static const char *const rule_name[] = {
    [WEFT_RULE_EXACT] = "exact", [WEFT_RULE_HALF] = "half", [WEFT_RULE_HALF09] = "half09"};

enum { RULE_COUNT = sizeof rule_name / sizeof rule_name[0] };

const char *weft_latency_rule_name(weft_latency_rule rule)
{
    return rule_name[rule];
}

bool weft_latency_rule_parse(const char *text, weft_latency_rule *out)
{
    for (int i = 0; i < RULE_COUNT; i++)
        if (strcmp(text, rule_name[i]) == 0) {
            *out = (weft_latency_rule)i;
            return true;
        }
    return false;
}

double weft_rules__slo_us(const weft_rules *rules, const weft_demand *demand)
{
    return rules->whole_ms ? floor(demand->slo_us / 1e3) * 1e3 : demand->slo_us;
}

bool weft_rules__allow(const weft_rules *rules, const weft_demand *demand, double exec_us)
{
    double slo_us = weft_rules__slo_us(rules, demand);
    if (!(demand->slo_us > 0))
        return true;
    switch (rules->latency) {
    case WEFT_RULE_HALF:
        return exec_us < slo_us / 2;
    case WEFT_RULE_HALF09:
        return exec_us < 0.9 * slo_us / 2;
    default:
        return 2 * exec_us <= slo_us;
    }
}

bool weft_rules__allow_procs(const weft_rules *rules, uint32_t procs)
{
    return rules->procs_max == 0 || procs <= rules->procs_max;
}

/* -- Loads ------------------------------------------------------------------------------------ */

double weft_load__exec_us(const weft_rules *rules, const weft_profile *profile,
                          const weft_profile_point *point)
{
    double exec_us = point->cost.time_us;
    if (rules->latency != WEFT_RULE_EXACT)
        return exec_us;
    for (size_t i = 0; i < profile->n; i++) {
        const weft_profile_point *p = &profile->point[i];
        if (p->batch < point->batch && p->procs == point->procs && p->cost.time_us > exec_us &&
            strcmp(p->slice, point->slice) == 0 && strcmp(p->device, point->device) == 0)
            exec_us = p->cost.time_us;
    }
    return exec_us;
}

double weft_load__peak_per_s(const weft_profile_point *point, double exec_us)
{
    if (point->throughput_per_s > 0)
        return point->throughput_per_s;
    return (double)point->batch * point->procs * 1e6 / exec_us;
}

weft_load weft_load__compute(const weft_load_in *in)
{
    const weft_profile_point *p = in->point;
    double slo_us = weft_rules__slo_us(in->rules, in->demand);
    double wait_us = 0;
    if (!in->alone)
        return (weft_load){.capacity_per_s = p->batch * 1e6 / in->cycle_us,
                           .latency_us = in->cycle_us + in->exec_us};
    if (slo_us > 0 && in->rate_per_s > 0) {
        double fill_us = (p->batch - 1) * 1e6 / in->rate_per_s;
        double flush_us = slo_us - in->exec_us - flush_guard * slo_us;
        wait_us = fmax(0, fmin(fill_us, flush_us));
    }
    return (weft_load){.capacity_per_s = weft_load__peak_per_s(p, in->exec_us),
                       .latency_us = fmax(wait_us, in->exec_us) + in->exec_us};
}

uint64_t weft_load__mem(const weft_profile_point *point)
{
    if (point->cost.mreq_bytes > UINT64_MAX / point->procs)
        return UINT64_MAX;
    return point->cost.mreq_bytes * point->procs;
}

/* Least part of a device that serves one request a second of this model within its SLO, over all
 * slices and batches of the fleet; 0 when none does. */
static double least_weight(const weft_demand *demand, const weft_problem *problem)
{
    const weft_fleet *fleet = problem->fleet;
    double least = 0;
    for (size_t i = 0; i < demand->profile.n; i++) {
        const weft_profile_point *p = &demand->profile.point[i];
        const weft_fleet_device *row = weft_fleet__row(fleet, p->device);
        weft_slice_spec spec;
        const char *why;
        if (!row || !weft_profile__usable(p) || !weft_slice__resolve(row, p->slice, &spec, &why))
            continue;
        double exec_us = weft_load__exec_us(&problem->rules, &demand->profile, p);
        if (!weft_rules__allow(&problem->rules, demand, exec_us) ||
            !weft_rules__allow_procs(&problem->rules, p->procs))
            continue;
        /* Shared, a point serves batch / exec in its part of the time, whatever was measured. */
        double peak =
            fmax(weft_load__peak_per_s(p, exec_us), (double)p->batch * p->procs * 1e6 / exec_us);
        double weight = spec.weight / peak;
        if (least == 0 || weight < least)
            least = weight;
    }
    return least;
}

double weft_plan__lower_bound(const weft_problem *problem)
{
    const weft_demands *demands = problem->demands;
    double sum = 0;
    for (size_t i = 0; i < demands->n; i++)
        sum += demands->at[i].rate_per_s * least_weight(&demands->at[i], problem);
    double bound = ceil(sum * (1 - 1e-9) - 1e-9);
    return demands->n > 0 ? fmax(1, bound) : 0;
}

static int find_same_name(const weft_demands *demands, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (strcmp(demands->at[j].model, demands->at[i].model) == 0)
            return 1;
    return 0;
}

weft_err weft_demands__check(const weft_demands *demands, weft_diag *diag)
{
    for (size_t i = 0; i < demands->n; i++) {
        const weft_demand *d = &demands->at[i];
        weft_where where = {.item = d->model};
        if (!weft_model_name_valid(d->model))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "model name is not usable");
        if (find_same_name(demands, i))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where, "model appears twice");
        if (!isfinite(d->slo_us) || d->slo_us < 0 || !isfinite(d->rate_per_s) || d->rate_per_s < 0)
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "slo %g us and rate %g/s must be numbers from 0", d->slo_us,
                                   d->rate_per_s);
    }
    return WEFT_ERR_OK;
}
