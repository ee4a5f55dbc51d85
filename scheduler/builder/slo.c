/* The load formulas: how many requests a placement can serve, and the worst-case latency of one.
 * The plan builder and the checker use the same formulas.
 *
 * A slice executes its placements round robin, one batch each, and skips placements without work.
 *
 *   exec     the longest time of this batch size or any smaller one, measured or estimated on the
 *            same slice with the same number of processes: the server may close a batch early, and
 *            time is not always monotone in the batch
 *   cycle    sum of exec over the placements of the slice
 *   capacity alone: the measured throughput, else batch * procs / exec;
 *            shared: batch / cycle, and in its part of the time, exec / cycle, no more than the
 *            measured throughput (a shared slice has one process for each model)
 *   fill     (batch - 1) / rate, the time from the oldest request of a batch until the batch is
 *            full; 0 without an SLO or a rate, since the server then closes a batch as soon as the
 *            slice is free
 *   flush    slo - exec - guard, guard = 5 % of the SLO: the server closes the batch at this time
 *   wait     alone: min(fill, flush); shared: 0, since the batch closes at its turn
 *   latency  max(wait, cycle) + exec <= slo
 *
 * A request that arrives just after a batch was closed waits for that batch (alone: cycle = exec)
 * or for a whole round (shared), then for its own execution. This is the latency rule `exact`; it
 * implies 2 exec <= slo. The rules of the literature are stricter for slices with one model: `half`
 * is exec < slo / 2, `half09` is exec < 0.9 slo / 2, where exec is the time of this batch size
 * only. On a shared slice they apply in addition to the rule above.
 *
 * The rule `queue` holds `exact` too, and limits the capacity to the largest rate of random
 * arrivals at which a quantile of the requests keeps the SLO (queue_capacity.c):
 *
 *   slo      less the host cost of a request, the larger of rules and profile
 *   period   between full batches: batch / capacity, as if all models of a shared slice had work
 *            in every round
 *   poisson  capacity = the closed form of exec, period and slo; latency = the quantile
 *   bursty   that capacity over the peak-to-mean ratio, since bursts outlast SLOs (a burst shorter
 *            than the SLO needs less)
 *   constant capacity and latency of `exact`, without waiting to fill a batch
 *
 * With a confidence p, plans are made on that quantile of each time. A point with a 90 % band has
 * its logarithm as a normal one whose 95 % quantile is that of the band: the time is multiplied by
 * (time_p95 / time)^(z(p) / z(0.95)). Without a band, by 1 + error * sqrt(pi / 2) * z(p): the error
 * is a mean absolute one, taken as that of a normal distribution. This holds for all rules. */
#include "scheduler/builder/builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double flush_guard = 0.05;

bool weft_point__usable(const weft_profile_point *point)
{
    return point->batch > 0 && point->procs > 0 && isfinite(point->cost.time_us) &&
           point->cost.time_us > 0 && isfinite(point->throughput_per_s) &&
           point->throughput_per_s >= 0;
}

/* -- Rules ------------------------------------------------------------------------------------ */

static const char *const rule_name[] = {
    [WEFT_RULE_EXACT] = "exact",
    [WEFT_RULE_HALF] = "half",
    [WEFT_RULE_HALF09] = "half09",
    [WEFT_RULE_QUEUE] = "queue",
};

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

static const char *const arrivals_name[] = {[WEFT_ARRIVE_POISSON] = "poisson",
                                            [WEFT_ARRIVE_BURSTY] = "bursty",
                                            [WEFT_ARRIVE_CONSTANT] = "constant"};

enum { ARRIVALS_COUNT = sizeof arrivals_name / sizeof arrivals_name[0] };

const char *weft_arrival_kind_name(weft_arrival_kind kind)
{
    return arrivals_name[kind];
}

bool weft_arrival_kind_parse(const char *text, weft_arrival_kind *out)
{
    for (int i = 0; i < ARRIVALS_COUNT; i++)
        if (strcmp(text, arrivals_name[i]) == 0) {
            *out = (weft_arrival_kind)i;
            return true;
        }
    return false;
}

static double host_us(const weft_rules *rules, const weft_demand *demand)
{
    return rules->latency == WEFT_RULE_QUEUE ? fmax(rules->host_us, demand->profile.host_us) : 0;
}

double weft_rules__slo_us(const weft_rules *rules, const weft_demand *demand)
{
    double slo_us = rules->whole_ms ? floor(demand->slo_us / 1e3) * 1e3 : demand->slo_us;
    return demand->slo_us > 0 ? slo_us - host_us(rules, demand) : slo_us;
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

double weft_rules__least_slo_us(const weft_rules *rules, const weft_demand *demand, double exec_us)
{
    static const double above = 1 + 1e-9; /* `half` and `half09` are strict inequalities */
    double slo_us = 2 * exec_us + host_us(rules, demand);
    if (rules->latency == WEFT_RULE_HALF)
        slo_us *= above;
    if (rules->latency == WEFT_RULE_HALF09)
        slo_us = slo_us / 0.9 * above;
    return rules->whole_ms ? ceil(slo_us / 1e3) * 1e3 : slo_us;
}

weft_err weft_rules__check(const weft_rules *rules, weft_diag *diag)
{
    if (!(rules->mem_reserve >= 0 && rules->mem_reserve < 1))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "rules: the memory reserve must be at least 0 and below 1, not %g",
                               rules->mem_reserve);
    if (!(rules->confidence == 0 || (rules->confidence >= 0.5 && rules->confidence < 1)))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "rules: the confidence must be at least 0.5 and below 1, not %g",
                               rules->confidence);
    if (!(rules->quantile == 0 || (rules->quantile >= 0.5 && rules->quantile < 1)))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "rules: the quantile must be at least 0.5 and below 1, not %g",
                               rules->quantile);
    if (!(rules->burst == 0 || (rules->burst >= 1 && isfinite(rules->burst))) ||
        !(rules->host_us >= 0 && isfinite(rules->host_us)))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                               "rules: the burst ratio must be at least 1 and the host cost at "
                               "least 0, not %g and %g us",
                               rules->burst, rules->host_us);
    for (size_t i = 0; i < sizeof rules->interference.c / sizeof rules->interference.c[0]; i++)
        if (!(fabs(rules->interference.c[i]) <= WEFT_INTERFERENCE_MAX))
            return weft_diag_error(
                diag, WEFT_ERR_INPUT, (weft_where){0},
                "rules: a coefficient of interference must be at most %d, not %g",
                WEFT_INTERFERENCE_MAX, rules->interference.c[i]);
    return WEFT_ERR_OK;
}

/* The number of standard deviations that a normal variable stays below with probability p. */
static double normal_quantile(double p)
{
    double lo = 0, hi = 9;
    for (int i = 0; i < 60; i++) {
        double z = lo + (hi - lo) / 2;
        if (erfc(-z / sqrt(2)) / 2 < p)
            lo = z;
        else
            hi = z;
    }
    return lo;
}

double weft_rules__margin(const weft_rules *rules, const weft_profile_point *point)
{
    static const double z95 = 1.6448536;
    double error = point->cost.expected_error, p95_us = point->cost.time_p95_us;
    if (rules->confidence == 0)
        return 1;
    if (p95_us > point->cost.time_us)
        return pow(p95_us / point->cost.time_us, normal_quantile(rules->confidence) / z95);
    if (!(error > 0))
        return 1;
    return 1 + error * sqrt(acos(-1) / 2) * normal_quantile(rules->confidence);
}

bool weft_rules__equal(const weft_rules *a, const weft_rules *b)
{
    return a->latency == b->latency && a->whole_ms == b->whole_ms && a->procs_max == b->procs_max &&
           a->isolated == b->isolated && a->oversubscribe == b->oversubscribe &&
           a->mem_reserve == b->mem_reserve && a->confidence == b->confidence &&
           a->arrivals == b->arrivals && a->quantile == b->quantile && a->burst == b->burst &&
           a->host_us == b->host_us && a->survive == b->survive &&
           weft_interference__equal(&a->interference, &b->interference);
}

bool weft_rules__allow_procs(const weft_rules *rules, uint32_t procs)
{
    return rules->procs_max == 0 || procs <= rules->procs_max;
}

/* -- Loads ------------------------------------------------------------------------------------ */

/* Requests per second of a point that always executes full batches. */
static double busy_per_s(const weft_slo_load_in *in)
{
    const weft_profile_point *p = in->point;
    /* Throughput was measured without co-runners. */
    if (p->throughput_per_s > 0)
        return p->throughput_per_s / (in->slowdown > 1 ? in->slowdown : 1) /
               weft_rules__margin(in->rules, p);
    return (double)p->batch * p->procs * 1e6 / in->exec_us;
}

/* Requests per second of a point that executes a full batch in each round of a shared slice. */
static double turn_per_s(const weft_slo_load_in *in)
{
    double full_per_s = in->point->batch * 1e6 / in->cycle_us;
    if (!(in->point->throughput_per_s > 0))
        return full_per_s;
    return fmin(full_per_s, busy_per_s(in) * in->exec_us / in->cycle_us);
}

/* Peak rate over mean rate of the arrivals. */
static double burst_of(const weft_rules *rules)
{
    enum { FACTOR = 5 };
    static const double share = 0.1; /* the defaults of weft_arrivals_options */
    if (rules->arrivals != WEFT_ARRIVE_BURSTY)
        return 1;
    return rules->burst > 0 ? rules->burst : FACTOR / (1 - share + FACTOR * share);
}

/* Load under the rule `queue`. */
static weft_slo_load queue_load(const weft_slo_load_in *in)
{
    const weft_profile_point *p = in->point;
    const weft_rules *rules = in->rules;
    double slo_us = weft_rules__slo_us(rules, in->demand), burst = burst_of(rules);
    double period_us = p->batch * 1e6 / (in->alone ? busy_per_s(in) : turn_per_s(in));
    weft_queue q = {.batch = p->batch,
                    .procs = in->alone ? p->procs : 1,
                    .exec_us = in->exec_us,
                    .period_us = period_us,
                    .quantile = rules->quantile > 0 ? rules->quantile : 0.99};
    weft_slo_load load = {.exec_us = in->alone ? period_us * p->procs : in->exec_us};
    double worst_us = fmax(period_us, in->exec_us) + in->exec_us;
    load.capacity_per_s = weft_queue__peak_per_s(&q);
    load.latency_us = worst_us;
    if (!(in->demand->slo_us > 0) || rules->arrivals == WEFT_ARRIVE_CONSTANT)
        return load;
    load.capacity_per_s = weft_queue__rate_per_s(&q, slo_us) / burst;
    load.latency_us = fmax(worst_us, weft_queue__latency_us(&q, in->rate_per_s * burst));
    return load;
}

weft_slo_load weft_slo__load(const weft_slo_load_in *in)
{
    const weft_profile_point *p = in->point;
    double slo_us = weft_rules__slo_us(in->rules, in->demand);
    double wait_us = 0;
    if (in->rules->latency == WEFT_RULE_QUEUE)
        return queue_load(in);
    if (!in->alone)
        return (weft_slo_load){.capacity_per_s = turn_per_s(in),
                               .latency_us = in->cycle_us + in->exec_us};
    if (slo_us > 0 && in->rate_per_s > 0) {
        double fill_us = (p->batch - 1) * 1e6 / in->rate_per_s;
        double flush_us = slo_us - in->exec_us - flush_guard * slo_us;
        wait_us = fmax(0, fmin(fill_us, flush_us));
    }
    return (weft_slo_load){.capacity_per_s = busy_per_s(in),
                           .latency_us = fmax(wait_us, in->exec_us) + in->exec_us};
}

double weft_slo__capacity_per_s(const weft_rules *rules, const weft_demand *demand,
                                const weft_profile_point *point, double exec_us)
{
    weft_slo_load_in in = {.rules = rules,
                           .demand = demand,
                           .point = point,
                           .exec_us = exec_us,
                           .cycle_us = exec_us,
                           .alone = true};
    return weft_slo__load(&in).capacity_per_s;
}

double weft_slo__turn_per_s(const weft_rules *rules, const weft_demand *demand,
                            const weft_profile_point *point, double exec_us, double cycle_us)
{
    weft_slo_load_in in = {
        .rules = rules, .demand = demand, .point = point, .exec_us = exec_us, .cycle_us = cycle_us};
    return weft_slo__load(&in).capacity_per_s;
}

uint64_t weft_point__mem_bytes(const weft_profile_point *point)
{
    if (point->cost.mreq_bytes > UINT64_MAX / point->procs)
        return UINT64_MAX;
    return point->cost.mreq_bytes * point->procs;
}

void weft_power__add(weft_power *power, const weft_profile_point *point, double rate_per_s)
{
    if (rate_per_s > 0 && !(point->cost.energy_j > 0))
        power->unknown = true;
    power->watts += rate_per_s / point->batch * point->cost.energy_j;
}

double weft_power__watts(const weft_power *power)
{
    return power->unknown ? 0 : power->watts;
}
