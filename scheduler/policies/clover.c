/* The objective of CLOVER: section "Optimization" of the paper (SC'23), with a corrected
 * penalty.
 *
 *   dAcc    = 100 (A - A_base) / A_base
 *   dCarbon = 100 (C_base - E ci) / C_base,  C_base = E_base * 250 gCO2/kWh
 *   f       = lambda dCarbon + (1 - lambda) dAcc
 *   h       = -f + 100 max(0, rate / capacity - 1) + 100 max(0, least / A - 1)
 *
 * A and E are accuracy and energy of a request; each instance gets requests in proportion to its
 * capacity. The paper multiplies -f by min(1, L_tail / p95), which for f < 0 rewards a
 * violation; here a violation always costs. The option of an instance keeps the SLO by itself,
 * so only the capacity can be violated. PUE cancels out. */
#include "scheduler/policies/clover_int.h"

#include <math.h>
#include <string.h>

static const double penalty = 100;

bool weft_clover__fits(const weft_clover *c, const weft_clover_config *x)
{
    uint64_t count[WEFT_MIG_PROFILES_MAX] = {0};
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++) {
            if (x->n[v][z] > 0 && !c->option[v][z])
                return false;
            count[z] += x->n[v][z];
        }
    return weft_mig__devices(c->shape, count) <= c->devices;
}

weft_clover_score weft_clover__score(const weft_clover *c, const weft_clover_config *x)
{
    weft_clover_score s = {0};
    double energy = 0, accuracy = 0;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++) {
            if (x->n[v][z] == 0 || !c->option[v][z])
                continue;
            double peak = x->n[v][z] * c->option[v][z]->peak_per_s;
            s.capacity_per_s += peak;
            energy += peak * c->energy_j[v][z];
            accuracy += peak * c->accuracy[v];
        }
    if (!(s.capacity_per_s > 0)) {
        s.f = -INFINITY;
        s.h = INFINITY;
        return s;
    }
    s.energy_j = energy / s.capacity_per_s;
    s.accuracy = accuracy / s.capacity_per_s;
    double carbon = c->base_carbon > 0
                        ? 100 * (c->base_carbon - s.energy_j * c->carbon_g_per_kwh) / c->base_carbon
                        : 0;
    double accurate =
        c->base_accuracy > 0 ? 100 * (s.accuracy - c->base_accuracy) / c->base_accuracy : 0;
    s.f = c->lambda * carbon + (1 - c->lambda) * accurate;
    double short_of = fmax(0, c->rate_per_s / s.capacity_per_s - 1);
    double wrong = s.accuracy > 0 ? fmax(0, c->least_accuracy / s.accuracy - 1) : 0;
    s.h = -s.f + penalty * (short_of + wrong);
    s.feasible = short_of <= 1e-9 && wrong <= 1e-9;
    return s;
}

uint32_t weft_clover__distance(const weft_clover *c, const weft_clover_config *x,
                               const weft_clover_config *y)
{
    uint32_t sum = 0;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++)
            sum += x->n[v][z] > y->n[v][z] ? x->n[v][z] - y->n[v][z] : y->n[v][z] - x->n[v][z];
    return sum;
}

/* -- Reference schemes ------------------------------------------------------------------------ */

static bool carries(const weft_clover *c, const weft_clover_config *x)
{
    return weft_clover__fits(c, x) && weft_clover__score(c, x).feasible;
}

/* Fills GPUs with instances of one size that run one variant, until the rate is carried. */
static bool fill(const weft_clover *c, uint32_t v, uint32_t z, weft_clover_config *out)
{
    memset(out, 0, sizeof *out);
    if (!c->option[v][z])
        return false;
    double count = fmax(1, ceil(c->rate_per_s / c->option[v][z]->peak_per_s * (1 - 1e-12)));
    if (count > 1e6)
        return false;
    out->n[v][z] = (uint32_t)count;
    return carries(c, out);
}

/* The largest size on which a variant runs; n: there is none. */
static uint32_t largest_size(const weft_clover *c, uint32_t v)
{
    uint32_t best = c->shape->n;
    for (uint32_t z = 0; z < c->shape->n; z++)
        if (c->option[v][z] &&
            (best == c->shape->n || c->shape->type->mig[z].gpcs > c->shape->type->mig[best].gpcs))
            best = z;
    return best;
}

bool weft_clover__base(const weft_clover *c, weft_clover_config *out)
{
    uint32_t best = c->n_variant;
    for (uint32_t v = 0; v < c->n_variant; v++)
        if (largest_size(c, v) < c->shape->n &&
            (best == c->n_variant || c->accuracy[v] > c->accuracy[best]))
            best = v;
    return best < c->n_variant && fill(c, best, largest_size(c, best), out);
}

bool weft_clover__co2opt(const weft_clover *c, weft_clover_config *out)
{
    weft_clover_config x;
    double least = INFINITY;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++) {
            if (!c->option[v][z] || c->energy_j[v][z] >= least || !fill(c, v, z, &x))
                continue;
            least = c->energy_j[v][z];
            *out = x;
        }
    return least < INFINITY;
}

void weft_clover__start(const weft_clover *c, weft_clover_config *x)
{
    weft_clover_config one;
    double h = weft_clover__fits(c, x) ? weft_clover__score(c, x).h : INFINITY;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++) {
            if (!fill(c, v, z, &one) || weft_clover__score(c, &one).h >= h)
                continue;
            h = weft_clover__score(c, &one).h;
            *x = one;
        }
}

/* -- Oracle ----------------------------------------------------------------------------------- */

/* State of the enumeration of all assignments of variants to the instances of one multiset. */
typedef struct oracle {
    const weft_clover *c;
    const weft_mig_count *set;
    weft_clover_config x, best; /* x: of one GPU; best: of all GPUs */
    double f;
    bool found;
} oracle;

static void try_mixture(oracle *o)
{
    weft_clover_config all = {0};
    for (uint32_t v = 0; v < o->c->n_variant; v++)
        for (uint32_t z = 0; z < o->c->shape->n; z++)
            all.n[v][z] = o->x.n[v][z] * o->c->devices;
    weft_clover_score s = weft_clover__score(o->c, &all);
    if (!s.feasible || (o->found && s.f <= o->f))
        return;
    o->found = true;
    o->f = s.f;
    o->best = all;
}

/* Assigns variants from v on to `left` instances of size z; instances may stay empty. */
static void assign(oracle *o, uint32_t z, uint32_t v, uint32_t left)
{
    while (z < o->c->shape->n && v == o->c->n_variant) {
        z++;
        v = 0;
        left = z < o->c->shape->n ? o->set->of[z] : 0;
    }
    if (z == o->c->shape->n) {
        try_mixture(o);
        return;
    }
    for (uint32_t k = 0; k <= left && (k == 0 || o->c->option[v][z]); k++) {
        o->x.n[v][z] = k;
        assign(o, z, v + 1, left - k);
    }
    o->x.n[v][z] = 0;
}

bool weft_clover__oracle(const weft_clover *c, weft_clover_config *out)
{
    enum { SETS_MAX = 512 };
    weft_mig_count set[SETS_MAX];
    size_t n = weft_mig__multisets(c->shape, true, set, SETS_MAX);
    oracle o = {.c = c};
    for (size_t i = 0; i < n && i < SETS_MAX; i++) {
        o.set = &set[i];
        assign(&o, 0, 0, set[i].of[0]);
    }
    if (o.found)
        *out = o.best;
    return o.found;
}
