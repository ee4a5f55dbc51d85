/* The share of late answers of a batch server under Poisson arrivals, exactly for one process.
 *
 * One first-in-first-out queue; an idle process takes min(waiting, B) requests at once. The state
 * is the age w of the oldest waiting request when a batch starts. The requests behind it are a
 * Poisson process on (0, w), independent of the past, so that w is a Markov chain. From w, with
 * k = 1 + Poisson(r w) requests waiting and o(k) = e(k) / processes until the next start:
 *
 *   k <= B  all are taken; s ~ Exp(r) until the next arrival; w' = o(k) - s, or 0 if s >= o(k)
 *   k > B   the oldest left behind came x ~ Erlang(B, r) after the head, x < w; w' = w - x + o(B)
 *
 * Late requests of a batch of m from w: those that came in the first y = w - (SLO - e(m)), the
 * head first. P(late) is their mean over the mean size of a batch.
 *
 * The chain runs on a grid whose step divides o(B); cells are centred on multiples of the step and
 * the last one absorbs. Several processes count as one that is as many times faster: exact for one,
 * 0.5 to 3 % of the rate too high for 2 to 8.
 *
 * Cost: O(cells * (cells + B)) a step, some hundred steps near saturation. */
#include "scheduler/builder/builder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS_OF_BATCH = 32, CELLS_MAX = 600, STEPS_MAX = 2000, BISECTIONS = 40 };

typedef struct chain {
    const weft_queue_chain *in;
    double rate;   /* requests a us */
    double slo_us; /* us */
    double step;   /* us */
    uint32_t n;    /* cells */
    uint32_t full; /* cells of o(B) */
    double *take;  /* [cell * B + k - 1]: probability that all k <= B are taken */
    double *left;  /* [j]: Erlang(B) distribution at (j + 1/2) steps */
    double *bound; /* [j]: the same at j steps */
    double *now, *next;
} chain;

static double poisson(double mean, uint32_t k)
{
    if (!(mean > 0))
        return k == 0;
    return exp(k * log(mean) - mean - lgamma(k + 1.0));
}

/* P(Poisson(mean) >= k). */
static double poisson_above(double mean, uint32_t k)
{
    double below = 0;
    for (uint32_t i = 0; i < k; i++)
        below += poisson(mean, i);
    return fmax(0, 1 - below);
}

static double occupied_us(const chain *c, uint32_t k)
{
    return c->in->exec_us[k - 1] / c->in->procs;
}

static bool make_chain(chain *c)
{
    uint32_t batch = c->in->batch;
    double full_us = occupied_us(c, batch), reach = 1.5 * c->slo_us + 2 * full_us;
    c->full = CELLS_OF_BATCH;
    while (c->full > 4 && reach / (full_us / c->full) > CELLS_MAX)
        c->full /= 2;
    c->step = full_us / c->full;
    c->n = (uint32_t)fmin(CELLS_MAX, ceil(reach / c->step)) + c->full + 1;
    double *block = calloc((size_t)c->n * (batch + 4), sizeof *block);
    if (!block)
        return false;
    c->take = block;
    c->left = block + (size_t)c->n * batch;
    c->bound = c->left + c->n;
    c->now = c->bound + c->n;
    c->next = c->now + c->n;
    for (uint32_t i = 0; i < c->n; i++) {
        double below = 0, half = c->rate * c->step * (i + 0.5);
        for (uint32_t k = 0; k < batch; k++) {
            below += c->take[(size_t)i * batch + k] = poisson(c->rate * c->step * i, k);
            c->left[i] += poisson(half, k);
        }
        c->bound[i] = fmax(0, 1 - below);
        c->left[i] = fmax(0, 1 - c->left[i]);
    }
    return true;
}

/* One step of the chain from `now` to `next`; returns the L1 change. */
static double advance(chain *c)
{
    uint32_t batch = c->in->batch, last = c->n - 1;
    memset(c->next, 0, c->n * sizeof *c->next);
    for (uint32_t k = 1; k <= batch; k++) {
        double all = 0, below = 0, o = occupied_us(c, k);
        for (uint32_t i = 0; i < c->n; i++)
            all += c->now[i] * c->take[(size_t)i * batch + k - 1];
        for (uint32_t i = 0; i < c->n && below < 1; i++) {
            double up_to = exp(-c->rate * fmax(0, o - (i + 0.5) * c->step));
            c->next[i] += all * (up_to - below);
            below = up_to;
        }
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (!(c->now[i] > 0))
            continue;
        double before = 0;
        for (uint32_t j = 0; j <= i; j++) {
            double up_to = j < i ? c->left[j] : c->bound[i];
            uint32_t to = i - j + c->full;
            c->next[to < last ? to : last] += c->now[i] * (up_to - before);
            before = up_to;
        }
    }
    double change = 0;
    for (uint32_t i = 0; i < c->n; i++)
        change += fabs(c->next[i] - c->now[i]);
    double *t = c->now;
    c->now = c->next;
    c->next = t;
    return change;
}

/* Mean number of late requests of a batch that starts with head age w and leaves some behind. */
static double late_of_full(const chain *c, double w, double y)
{
    uint32_t batch = c->in->batch;
    double sum = poisson_above(c->rate * w, batch); /* the head */
    double above = 0;                               /* P(C >= batch - a), a rising */
    double rest = c->rate * fmax(0, w - y);
    above = poisson_above(rest, batch);
    double counted = 0; /* P(A < batch) */
    for (uint32_t a = 0; a < batch; a++) {
        double p = poisson(c->rate * y, a);
        sum += p * above * fmin(a, batch - 1);
        counted += p;
        above = fmin(1, above + poisson(rest, batch - a - 1));
    }
    return sum + fmax(0, 1 - counted) * (batch - 1);
}

static double late_share(const chain *c)
{
    uint32_t batch = c->in->batch;
    double late = 0, taken = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        double w = i * c->step, all = 0;
        if (!(c->now[i] > 0))
            continue;
        for (uint32_t k = 1; k <= batch; k++) {
            double p = c->now[i] * c->take[(size_t)i * batch + k - 1];
            double y = w - (c->slo_us - c->in->exec_us[k - 1]);
            all += c->take[(size_t)i * batch + k - 1];
            taken += p * k;
            if (y > 0)
                late += p * (1 + (k - 1) * (w > 0 ? fmin(1, y / w) : 0));
        }
        double y = w - (c->slo_us - c->in->exec_us[batch - 1]);
        taken += c->now[i] * fmax(0, 1 - all) * batch;
        if (y > 0)
            late += c->now[i] * late_of_full(c, w, fmin(y, w));
    }
    return taken > 0 ? fmin(1, late / taken) : 0;
}

static bool is_usable(const weft_queue_chain *in)
{
    if (in->batch == 0 || in->procs == 0)
        return false;
    for (uint32_t k = 0; k < in->batch; k++)
        if (!isfinite(in->exec_us[k]) || !(in->exec_us[k] > 0))
            return false;
    return true;
}

double weft_queue_chain__late(const weft_queue_chain *in, double rate_per_s, double slo_us)
{
    if (!is_usable(in) || !(slo_us > 0) || !(rate_per_s >= 0) || !isfinite(slo_us))
        return isinf(slo_us) && slo_us > 0 ? 0 : 1;
    double peak = in->batch * in->procs * 1e6 / in->exec_us[in->batch - 1];
    if (rate_per_s >= peak)
        return 1;
    chain c = {.in = in, .rate = rate_per_s / 1e6, .slo_us = slo_us};
    if (!make_chain(&c))
        return 1;
    double *block = c.take;
    c.now[0] = 1;
    for (int i = 0; i < STEPS_MAX && advance(&c) > 1e-7; i++)
        ;
    double share = late_share(&c);
    free(block);
    return share;
}

double weft_queue_chain__rate_per_s(const weft_queue_chain *in, double slo_us, double quantile)
{
    if (!is_usable(in) || !(quantile > 0 && quantile < 1))
        return 0;
    double lo = 0, hi = in->batch * in->procs * 1e6 / in->exec_us[in->batch - 1];
    if (weft_queue_chain__late(in, hi * 1e-6, slo_us) > 1 - quantile)
        return 0;
    for (int i = 0; i < BISECTIONS && hi - lo > 1e-3 * hi; i++) {
        double r = lo + (hi - lo) / 2;
        if (weft_queue_chain__late(in, r, slo_us) <= 1 - quantile)
            lo = r;
        else
            hi = r;
    }
    return lo;
}
