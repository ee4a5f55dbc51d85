/* Whether a new version of a model does worse than the ones that serve beside it.
 *
 * Fisher's exact test, one-sided: with as many bad requests in total, how often would chance give
 * the new version at least as many? It holds for few bad requests, where the normal approximation
 * of two proportions would alarm at the first one. The test is repeated while requests come in, so
 * the chance of a false alarm is spread over the looks: look k (from 0) may spend 0.05 / ((k + 1)
 * (k + 2)), which sums up to 0.05 (alpha spending: Lan and DeMets, Biometrika 1983). */
#include "scheduler/scheduler.h"

#include <math.h>

static const double false_alarms = 0.05;

enum { FIRST_LOOK = 100, LOOKS_MAX = 40 };

uint64_t weft_canary_look_at(uint32_t look)
{
    return look < LOOKS_MAX ? (uint64_t)FIRST_LOOK << look : UINT64_MAX;
}

static double log_choose(double n, double k)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/* P(X >= a.bad) of the hypergeometric distribution. */
static double tail(const weft_canary_counts *a, const weft_canary_counts *b)
{
    double bad = (double)(a->bad + b->bad), n = (double)a->requests;
    double all = n + (double)b->requests, x = (double)a->bad, sum = 0;
    double term = exp(log_choose(bad, x) + log_choose(all - bad, n - x) - log_choose(all, n));
    for (; x <= bad && x <= n && term > 0; x++) {
        sum += term;
        term *= (bad - x) * (n - x) / ((x + 1) * (all - bad - n + x + 1));
        if (term < 1e-12 * sum)
            break;
    }
    return sum;
}

bool weft_canary_is_worse(const weft_canary_counts *canary, const weft_canary_counts *others,
                          uint32_t look)
{
    if (canary->requests < FIRST_LOOK || others->requests < FIRST_LOOK ||
        canary->bad > canary->requests || others->bad > others->requests)
        return false;
    bool higher = (double)canary->bad * (double)others->requests >
                  (double)others->bad * (double)canary->requests;
    return higher && tail(canary, others) <= false_alarms / ((look + 1.0) * (look + 2.0));
}
