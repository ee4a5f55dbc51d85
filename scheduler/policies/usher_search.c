/* Algorithm 1 of USHER for one group: the combination of (batch, replicas) pairs whose placement
 * is cheapest, or carries most.
 *
 * The paper tries all 36^4 combinations of a group of four. Branch and bound here returns the
 * same cost with a fraction of the placements.
 *
 * Bound. The free parts of the open devices cost nothing; the rest of what the replicas of a
 * combination need costs at least its part of the cheapest device that fits:
 *   LB = max over q of (sum over replicas of min_g price_g q_g - sum over open devices of price
 *   free_q)
 * for q = compute, memory, and for each of both again with 1 for more than a half, 1/2 for a
 * half and 0 for less (two items above a half never share a device; an open device has room for
 * one if more than a half is free). With one type of device the bound is rounded up to whole
 * devices.
 * Order. Combinations are visited by ascending bound, in passes whose upper limit grows
 * (iterative deepening); the first cost that is not above the next limit is the least.
 * Pruning. In a pass, a branch ends if its bound, with the least of each model that is still
 * open, is above the limit of the pass or not better than the best cost.
 *
 * For a fixed fleet the bound is on goodput: the most that the pairs can carry and, at a leaf,
 * the most that the free compute and the free memory of the whole fleet can carry (fractional
 * knapsack). Of equal goodput, the bound on cost decides.
 *
 * The first two combinations are guesses, so that there is a plan for any effort. `effort`
 * limits the placements; if it is used up, the best plan so far is returned and the limit is
 * reported. */
#include "scheduler/policies/usher_int.h"

#include <math.h>

enum { NODES_A_PLACEMENT = 64 /* bounds that cost as much as one placement */ };

typedef struct search {
    weft_usher *u;
    const weft_usher_model *model[WEFT_USHER_GROUP];
    double rate[WEFT_USHER_GROUP];
    uint32_t n;
    double rest[WEFT_USHER_GROUP + 1][WEFT_USHER_BOUNDS]; /* least of the models from here on */
    double rest_must[WEFT_USHER_GROUP + 1][WEFT_USHER_BOUNDS];
    double rest_goodput[WEFT_USHER_GROUP + 1];
    double stock; /* price of the devices that are not open, dollars */
    double free_value[WEFT_USHER_BOUNDS], free_part[2]; /* of open devices; of the whole fleet */
    double step;                                        /* least price of a device */
    double beyond, within; /* bounds of this pass: in (beyond, within] */
    bool more;             /* there are combinations beyond this pass */
    const weft_usher_config *at[WEFT_USHER_GROUP], *best_at[WEFT_USHER_GROUP];
    weft_usher_result best;
    bool any;
    uint64_t nodes, placed, limit;
} search;

static double near_zero(double price)
{
    return 1e-9 * price;
}

static bool is_fixed(const search *s)
{
    return s->u->builder->problem->goal == WEFT_GOAL_GOODPUT;
}

/* -- Bounds ----------------------------------------------------------------------------------- */

static double above_half(double part)
{
    return part > 0.5 ? 1 : part == 0.5 ? 0.5 : 0;
}

static void measure_free(search *s)
{
    const weft_usher *u = s->u;
    s->step = INFINITY;
    for (uint32_t i = 0; i < u->classes.len; i++) {
        const weft_usher_class *k = &u->classes.at[i];
        double part[2] = {k->c_free / 100.0, (double)k->m_free / WEFT_USHER_MEM};
        double value = k->count * u->type[k->type].price;
        for (uint32_t q = 0; q < 2; q++) {
            s->free_value[q] += value * part[q];
            s->free_value[q + 2] += value * above_half(part[q]);
            s->free_part[q] += k->count * part[q];
        }
    }
    for (uint32_t g = 0; g < u->n_type; g++) {
        s->step = fmin(s->step, u->type[g].price);
        s->stock += u->type[g].price * (u->type[g].row->count - u->opened[g]);
        for (uint32_t q = 0; q < 2; q++)
            s->free_part[q] += u->type[g].row->count - u->opened[g];
    }
}

static void measure_rest(search *s)
{
    for (uint32_t i = s->n; i-- > 0;) {
        const weft_usher_model *m = s->model[i];
        double most = 0;
        for (uint32_t k = 0; k < m->n_config; k++)
            most = fmax(most, m->config[k].goodput);
        for (uint32_t q = 0; q < WEFT_USHER_BOUNDS; q++) {
            double least = INFINITY, must = INFINITY;
            for (uint32_t k = 0; k < m->n_config; k++) {
                least = fmin(least, m->config[k].least[q]);
                must = fmin(must, m->config[k].must[q]);
            }
            s->rest[i][q] = s->rest[i + 1][q] + least;
            s->rest_must[i][q] = s->rest_must[i + 1][q] + must;
        }
        s->rest_goodput[i] = s->rest_goodput[i + 1] + most;
    }
}

static double bound_of(const search *s, const double *sum, uint32_t level)
{
    double lb = 0;
    for (uint32_t q = 0; q < WEFT_USHER_BOUNDS; q++)
        lb = fmax(lb, sum[q] + s->rest[level][q] - s->free_value[q]);
    if (lb <= near_zero(s->step))
        return 0;
    return s->u->n_type == 1 ? s->step * ceil(lb / s->step - 1e-9) : fmax(lb, s->step);
}

/* Whether the rest of the fleet is too small for the models chosen up to `level` and the least of
 * the others. */
static bool is_too_much(const search *s, uint32_t level)
{
    for (uint32_t q = 0; q < WEFT_USHER_BOUNDS; q++) {
        double sum = s->rest_must[level][q];
        for (uint32_t i = 0; i < level; i++)
            sum += s->at[i]->must[q];
        if (sum - s->free_value[q] > s->stock + near_zero(s->step))
            return true;
    }
    return false;
}

/* The most that the free compute (q 0) or memory (q 1) of the fleet can carry of the
 * combination. */
static double most_with(const search *s, uint32_t q)
{
    double has = s->free_part[q], sum = 0;
    bool taken[WEFT_USHER_GROUP] = {false};
    for (uint32_t round = 0; round < s->n; round++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < s->n; i++)
            if (!taken[i] && (next == UINT32_MAX || s->at[i]->unit[q] < s->at[next]->unit[q]))
                next = i;
        taken[next] = true;
        double wants = s->at[next]->goodput * s->at[next]->unit[q];
        double part = wants <= has ? 1 : has / wants;
        sum += s->at[next]->goodput * part;
        has -= wants * part;
    }
    return sum;
}

/* -- The search ------------------------------------------------------------------------------- */

static bool is_better(const search *s, const weft_usher_result *r)
{
    if (!s->any)
        return true;
    double same = 1e-9 * fmax(r->goodput, s->best.goodput);
    if (!is_fixed(s) && r->complete != s->best.complete)
        return r->complete;
    if ((is_fixed(s) || !r->complete) && fabs(r->goodput - s->best.goodput) > same)
        return r->goodput > s->best.goodput;
    return r->cost < s->best.cost - near_zero(s->step);
}

static void try_combination(search *s)
{
    weft_usher_result r = weft_usher__place(s->u, s->at, s->rate, s->n);
    weft_usher__undo(s->u);
    s->placed++;
    if (!is_better(s, &r))
        return;
    s->best = r;
    s->any = true;
    for (uint32_t i = 0; i < s->n; i++)
        s->best_at[i] = s->at[i];
}

/* Whether, with a fixed fleet, no combination with the choices up to `level` is better than the
 * best. */
static bool is_hopeless(const search *s, const double *sum, double goodput, uint32_t level)
{
    if (!s->any)
        return false;
    double most = goodput + s->rest_goodput[level], same = 1e-9 * most, all = most;
    if (level == s->n)
        most = fmin(most, fmin(most_with(s, 0), most_with(s, 1)));
    if (most < s->best.goodput - same)
        return true;
    /* At most equal goodput: only a lower cost is better. */
    return all <= s->best.goodput + same &&
           bound_of(s, sum, level) >= s->best.cost - near_zero(s->step);
}

/* Whether no combination of this pass has the choices up to `level`. */
static bool is_outside(search *s, const double *sum, double goodput, uint32_t level)
{
    if (s->u->options.full)
        return false;
    if (is_fixed(s))
        return is_hopeless(s, sum, goodput, level);
    double lb = bound_of(s, sum, level);
    if (lb > s->stock && is_too_much(s, level))
        return true;
    if (s->any && s->best.complete && lb >= s->best.cost - near_zero(s->step))
        return true;
    s->more = s->more || lb > s->within;
    return lb > s->within || (level == s->n && lb <= s->beyond);
}

static void descend(search *s, const double *sum, double goodput, uint32_t level)
{
    if (level == s->n || level == WEFT_USHER_GROUP) {
        try_combination(s);
        return;
    }
    const weft_usher_model *m = s->model[level];
    for (uint32_t i = 0; i < m->n_config; i++) {
        double next[WEFT_USHER_BOUNDS];
        if (s->placed >= s->limit || ++s->nodes / NODES_A_PLACEMENT >= s->limit)
            return;
        s->at[level] = &m->config[i];
        for (uint32_t q = 0; q < WEFT_USHER_BOUNDS; q++)
            next[q] = sum[q] + m->config[i].least[q];
        double carried = goodput + m->config[i].goodput;
        if (!is_outside(s, next, carried, level + 1))
            descend(s, next, carried, level + 1);
    }
}

/* Tries two combinations: the best pair of each model by its own bound, and the best pair that
 * carries the rate on any type. */
static void try_first(search *s)
{
    for (uint32_t sure = 0; sure < 2; sure++) {
        for (uint32_t i = 0; i < s->n; i++) {
            const weft_usher_model *m = s->model[i];
            uint32_t k = 0;
            while (sure && k + 1 < m->n_config && !m->config[k].sure)
                k++;
            s->at[i] = &m->config[k];
        }
        try_combination(s);
    }
}

static void run_passes(search *s)
{
    double zero[WEFT_USHER_BOUNDS] = {0}, width = s->step;
    if (!s->u->options.full)
        try_first(s);
    s->beyond = -1;
    s->within = bound_of(s, zero, 0) + near_zero(s->step);
    for (;;) {
        s->more = false;
        descend(s, zero, 0, 0);
        bool done = s->any && s->best.complete && s->best.cost <= s->within;
        if (s->u->options.full || is_fixed(s) || done || !s->more || s->placed >= s->limit ||
            s->nodes / NODES_A_PLACEMENT >= s->limit)
            return;
        s->beyond = s->within;
        s->within += width;
        width *= 2;
    }
}

static void count(search *s)
{
    weft_usher_stats *stats = &s->u->stats;
    double pairs = 1, configs = 1;
    for (uint32_t i = 0; i < s->n; i++) {
        pairs *= s->model[i]->n_pair;
        configs *= s->model[i]->n_config;
    }
    stats->groups++;
    stats->combinations += pairs;
    stats->dropped += pairs - configs;
    stats->cut += fmax(0, configs - (double)s->placed);
    stats->limited += s->placed >= s->limit || s->nodes / NODES_A_PLACEMENT >= s->limit;
}

bool weft_usher__search(weft_usher *u, const uint32_t *group, uint32_t n,
                        const weft_usher_config **config, weft_usher_result *out)
{
    search s = {.u = u, .n = n, .limit = u->options.full ? UINT64_MAX : u->effort};
    for (uint32_t i = 0; i < n; i++) {
        s.model[i] = &u->model[group[i]];
        s.rate[i] = s.model[i]->rate_per_s;
    }
    measure_free(&s);
    measure_rest(&s);
    run_passes(&s);
    count(&s);
    for (uint32_t i = 0; i < n; i++)
        config[i] = s.best_at[i];
    *out = s.best;
    return s.best.enough || is_fixed(&s);
}
