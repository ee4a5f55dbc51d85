/* How many requests a second a batch server answers in time, when they arrive at random.
 *
 * A slice takes up to B waiting requests at once, every `o` when it is loaded (alone: the time of a
 * batch over the number of processes; shared: a round over all models), and answers them `e` later.
 * With Poisson arrivals at rate r, let rho = r o / B.
 *
 * Decay. The requests left behind by a long row of full batches have the tail z^-n, where z > 1 is
 * the root of z^B = exp(r o (z - 1)) (N. T. J. Bailey, On queueing processes with bulk service,
 * JRSS B 16, 1954). With y = ln z this is explicit in y:
 *
 *   rho = y / (exp(y) - 1)            the load
 *   x = B y                           the decay over one `o`, since theta = r (z - 1) per time
 *
 * Tail. A request waits for the batch in execution (uniform over its time o) and for full batches
 * ahead (exponential, decay theta). With n = (SLO - e) / o >= 1:
 *
 *   P(late) = K exp(-x (n - 1)) (1 - exp(-x)) / x,   K = rho (1 - rho) / (rho z - 1)
 *
 * K makes the form the Cramer-Lundberg asymptote of M/D/1 for B = 1, and tends to 1 in heavy
 * traffic. The capacity is the largest rate with P(late) <= 1 - quantile; one root in y.
 *
 * Accuracy, against queue_chain.c in parts of the peak, one process: never more than 0.002 too
 * high; B = 1 at most 0.02 too low; B > 1 close where e(k) hardly depends on k, else too low, by up
 * to 0.08 for SLO / e = 3, 0.04 for 4 and 0.3 for 2.1, since partial batches are faster than e.
 * Processes of one slice clump while the formula staggers them: capacities with several processes
 * are scaled down. queue_chain.c is exact for one process. */
#include "scheduler/builder/builder.h"

#include <math.h>

enum { STEPS_MAX = 80 };

static const double y_max = 600;       /* rho is then 0 */
static const double margin = 0.995;    /* of a capacity, so that its latency is below the SLO */
static const double of_several = 0.99; /* several processes on a slice clump */
static const double enough = 1e-6;     /* relative, of P(late); far below the margin */

static double load_of(double y)
{
    return y < 1e-6 ? 1 - y / 2 : y / expm1(y);
}

/* ln of the share of requests that wait longer than n batches for their own to start. */
static double log_tail(double y, double batch, double n)
{
    double x = batch * y, rho = load_of(y), log_k;
    if (y < 1e-3) /* the quotient loses its digits: series of K */
        log_k = log1p(-y * 5 / 6);
    else
        log_k = log(rho) + log((1 - rho) / (y / -expm1(-y) - 1));
    double log_residual = x < 1e-9 ? -x / 2 : log(-expm1(-x) / x);
    return log_k - x * (n - 1) + log_residual;
}

/* The root of f(y) = log_tail - level, which falls from above 0: a bracket, then false position
 * with halving (Illinois). */
static double find_decay(double batch, double n, double level)
{
    double lo = 0, f_lo = -level, hi = fmin(y_max, -level / (batch * n)), f_hi;
    while ((f_hi = log_tail(hi, batch, n) - level) > 0 && hi < y_max) {
        lo = hi;
        f_lo = f_hi;
        hi = fmin(y_max, 2 * hi);
    }
    if (f_hi > 0)
        return y_max;
    int side = 0;
    for (int i = 0; i < STEPS_MAX && hi - lo > 1e-12 * hi; i++) {
        double y = (lo * f_hi - hi * f_lo) / (f_hi - f_lo);
        if (!(y > lo && y < hi))
            y = lo + (hi - lo) / 2;
        double f = log_tail(y, batch, n) - level;
        if (fabs(f) < enough)
            return y;
        if (f > 0) {
            lo = y;
            f_lo = f;
            f_hi = side > 0 ? f_hi / 2 : f_hi;
            side = 1;
        } else {
            hi = y;
            f_hi = f;
            f_lo = side < 0 ? f_lo / 2 : f_lo;
            side = -1;
        }
    }
    return hi;
}

/* The inverse of load_of, 0 < rho < 1. ln(load_of) falls and is concave, so that Newton's steps
 * from the right of the root stay there. */
static double decay_of_load(double rho)
{
    double y = 1;
    while (load_of(y) > rho && y < y_max)
        y *= 2;
    for (int i = 0; i < STEPS_MAX; i++) {
        double ex = expm1(y), step = (log(y / ex) - log(rho)) / (1 / y - (ex + 1) / ex);
        if (!(step > 1e-15 * y))
            break;
        y = fmax(y - step, y / 16);
    }
    return y;
}

static bool is_usable(const weft_queue *q)
{
    return q->batch > 0 && q->procs > 0 && isfinite(q->exec_us) && q->exec_us > 0 &&
           isfinite(q->period_us) && q->period_us > 0 && q->quantile > 0 && q->quantile < 1;
}

double weft_queue__peak_per_s(const weft_queue *q)
{
    return q->batch * 1e6 / q->period_us;
}

static double loaded_peak(const weft_queue *q)
{
    return weft_queue__peak_per_s(q) * (q->procs > 1 ? of_several : 1);
}

double weft_queue__rate_per_s(const weft_queue *q, double slo_us)
{
    if (!is_usable(q) || isnan(slo_us))
        return 0;
    double peak = loaded_peak(q) * margin;
    double n = (slo_us - q->exec_us) / q->period_us;
    if (isinf(slo_us))
        return peak;
    if (!(n >= 1 - 1e-9)) /* not even the batch in execution and the own one fit */
        return 0;
    return peak * load_of(find_decay(q->batch, fmax(1, n), log1p(-q->quantile)));
}

double weft_queue__latency_us(const weft_queue *q, double rate_per_s)
{
    if (!is_usable(q) || !(rate_per_s >= 0))
        return HUGE_VAL;
    double peak = loaded_peak(q);
    double rho = rate_per_s / peak, n = 1;
    if (rho >= 1)
        return HUGE_VAL;
    if (rho > 1e-9) {
        double y = decay_of_load(rho), x = q->batch * y;
        n = fmax(1, 1 + (log_tail(y, q->batch, 1) - log1p(-q->quantile)) / x);
    }
    return fmax(q->exec_us + n * q->period_us, 2 * q->exec_us);
}
