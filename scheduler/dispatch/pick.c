/* Which variant of an app answers a request.
 *
 * INFaaS (Romero et al., USENIX ATC'21, section 4.1): among the variants that run and satisfy what
 * the request needs, the one with the least load; of equally loaded ones the most accurate, then
 * the cheapest, then the first. Load is the predicted time until a batch with the request starts,
 * so that a variant that is overloaded or slowed down by others is passed over by its forecast, not
 * by a state. If none is in time, the one that is done first; if none is accurate and cheap enough,
 * none, or the nearest one where the request says that this will do.
 *
 * An app may ask for a mean accuracy of its answers, not of each: a variant below the mean is
 * eligible as long as earlier answers above it pay for it. An answer above the mean earns when it
 * is given, since its request may be refused or dropped; one below costs when its variant is
 * chosen, and what it costs is given back if there is no answer. So the mean holds at any moment,
 * whatever is dropped. What answers pay is limited, so that a quiet night of accurate answers does
 * not make the morning inaccurate. */
#include "scheduler/scheduler.h"

#include <math.h>

static const double credit_answers = 100; /* that the credit can pay for, at most */
static const double slack = 1e-9;

static bool is_enough(const weft_pick_variant *v, const weft_pick_query *q)
{
    double above = v->accuracy - q->mean.least;
    bool mean = above >= -slack || q->mean.credit + above >= -slack;
    return mean && v->accuracy >= q->min_accuracy && (q->max_cost <= 0 || v->cost <= q->max_cost);
}

static bool is_in_time(const weft_pick_variant *v, const weft_pick_query *q)
{
    return q->latency_us <= 0 || v->finish_us <= q->latency_us;
}

/* Whether a is preferred to b, which satisfies the request as well. */
static bool is_better(const weft_pick_variant *a, const weft_pick_variant *b)
{
    if (fabs(a->wait_us - b->wait_us) > slack)
        return a->wait_us < b->wait_us;
    if (a->accuracy != b->accuracy)
        return a->accuracy > b->accuracy;
    return a->cost < b->cost;
}

/* Sum of the relative amounts by which it misses what the request needs. */
static double shortfall(const weft_pick_variant *v, const weft_pick_query *q)
{
    double least = fmax(q->min_accuracy, q->mean.least - fmax(q->mean.credit, 0));
    double sum = least > 0 ? fmax(0, least - v->accuracy) / least : 0;
    if (q->max_cost > 0)
        sum += fmax(0, v->cost - q->max_cost) / q->max_cost;
    if (q->latency_us > 0)
        sum += fmax(0, v->finish_us - q->latency_us) / q->latency_us;
    return sum;
}

weft_pick weft_pick_choose(const weft_pick_variant *variant, uint32_t n,
                           const weft_pick_query *query)
{
    uint32_t best = UINT32_MAX, first = UINT32_MAX, near = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const weft_pick_variant *v = &variant[i];
        if (!v->ready)
            continue;
        if (near == UINT32_MAX || shortfall(v, query) < shortfall(&variant[near], query))
            near = i;
        if (!is_enough(v, query))
            continue;
        if (first == UINT32_MAX || v->finish_us < variant[first].finish_us)
            first = i;
        if (is_in_time(v, query) && (best == UINT32_MAX || is_better(v, &variant[best])))
            best = i;
    }
    if (best != UINT32_MAX)
        return (weft_pick){best, WEFT_PICK_ACTIVE};
    if (first != UINT32_MAX)
        return (weft_pick){first, WEFT_PICK_LATE};
    if (near != UINT32_MAX && query->best_effort)
        return (weft_pick){near, WEFT_PICK_NEAREST};
    return (weft_pick){near, WEFT_PICK_NONE};
}

void weft_pick_begin(weft_pick_mean *mean, double accuracy)
{
    mean->credit += fmin(accuracy - mean->least, 0);
}

void weft_pick_end(weft_pick_mean *mean, double accuracy, bool answered)
{
    double above = accuracy - mean->least;
    double limit = credit_answers * fmax(mean->most - mean->least, 0);
    mean->credit = fmin(mean->credit + (answered ? fmax(above, 0) : fmax(-above, 0)), limit);
}

const char *weft_pick_reason_name(weft_pick_reason reason)
{
    static const char *const names[] = {[WEFT_PICK_ACTIVE] = "active",
                                        [WEFT_PICK_LATE] = "late",
                                        [WEFT_PICK_NEAREST] = "nearest",
                                        [WEFT_PICK_NONE] = "none"};
    return names[reason];
}
