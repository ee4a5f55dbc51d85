/* The search of CLOVER: simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) over
 * configurations.
 *
 * A neighbour has a graph edit distance of 1 to 4: one instance more or less (1), another
 * variant on one or two instances (2, 4), another size of one instance (2), one instance split
 * into two or three, or the reverse (3, 4). Neighbours are constructed; the paper's program
 * draws random configurations until one is near enough.
 * Acceptance: if h' <= h, else with probability exp(-(h' - h) / T). T starts at 1 and decreases
 * by 0.05 with each evaluation down to 0.1. An evaluation is arithmetic here, and a minute on
 * GPUs in the paper. So patience is a parameter, and the search ends with hill climbing from the
 * best mixture: at T = 0.1 annealing would pass over gains of less than a tenth of a percentage
 * point. */
#include "scheduler/policies/clover_int.h"

#include "base/random.h"

#include <math.h>
#include <string.h>

enum { TRIES_MAX = 64 };
static const double start_heat = 1, cooling = 0.05, least_heat = 0.1;

static uint32_t below(uint64_t *seed, uint32_t n)
{
    return (uint32_t)(weft_rand_split(seed) % n);
}

/* Picks one of all instances with equal probability; false: there is none. */
static bool pick_instance(const weft_clover *c, const weft_clover_config *x, uint64_t *seed,
                          uint32_t *out_v, uint32_t *out_z)
{
    uint64_t total = 0;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++)
            total += x->n[v][z];
    if (total == 0)
        return false;
    uint64_t at = weft_rand_split(seed) % total;
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++) {
            if (at < x->n[v][z]) {
                *out_v = v;
                *out_z = z;
                return true;
            }
            at -= x->n[v][z];
        }
    return false;
}

/* Picks a random variant that runs on a size; false: there is none. */
static bool pick_variant(const weft_clover *c, uint32_t z, uint64_t *seed, uint32_t *out)
{
    uint32_t start = below(seed, c->n_variant);
    for (uint32_t i = 0; i < c->n_variant; i++) {
        *out = (start + i) % c->n_variant;
        if (c->option[*out][z])
            return true;
    }
    return false;
}

static bool change_variant(const weft_clover *c, weft_clover_config *x, uint64_t *seed)
{
    uint32_t v, z, w;
    if (!pick_instance(c, x, seed, &v, &z) || !pick_variant(c, z, seed, &w))
        return false;
    x->n[v][z]--;
    x->n[w][z]++;
    return true;
}

static bool change_size(const weft_clover *c, weft_clover_config *x, uint64_t *seed)
{
    uint32_t v, z, y = below(seed, c->shape->n);
    if (!pick_instance(c, x, seed, &v, &z) || !c->option[v][y])
        return false;
    x->n[v][z]--;
    x->n[v][y]++;
    return true;
}

static bool add_instance(const weft_clover *c, weft_clover_config *x, uint64_t *seed)
{
    uint32_t w, y = below(seed, c->shape->n);
    if (!pick_variant(c, y, seed, &w))
        return false;
    x->n[w][y]++;
    return true;
}

/* Splits one instance into n_new of random sizes with the same compute slots together, each with
 * any variant. */
static bool split(const weft_clover *c, weft_clover_config *x, uint64_t *seed, uint32_t n_new)
{
    uint32_t v, z, left;
    if (!pick_instance(c, x, seed, &v, &z))
        return false;
    left = c->shape->type->mig[z].gpcs;
    x->n[v][z]--;
    for (uint32_t i = 0; i < n_new; i++) {
        uint32_t y = below(seed, c->shape->n), w, gpcs = c->shape->type->mig[y].gpcs;
        if (gpcs > left || (i + 1 == n_new && gpcs != left) || !pick_variant(c, y, seed, &w))
            return false;
        left -= gpcs;
        x->n[w][y]++;
    }
    return true;
}

/* The reverse: n_old instances become one. */
static bool unite(const weft_clover *c, weft_clover_config *x, uint64_t *seed, uint32_t n_old)
{
    uint32_t sum = 0, v, z, y = below(seed, c->shape->n), w;
    for (uint32_t i = 0; i < n_old; i++) {
        if (!pick_instance(c, x, seed, &v, &z))
            return false;
        sum += c->shape->type->mig[z].gpcs;
        x->n[v][z]--;
    }
    if (c->shape->type->mig[y].gpcs != sum || !pick_variant(c, y, seed, &w))
        return false;
    x->n[w][y]++;
    return true;
}

static bool mutate(const weft_clover *c, weft_clover_config *x, uint64_t *seed)
{
    uint32_t v, z;
    switch (below(seed, 8)) {
    case 0:
        return add_instance(c, x, seed);
    case 1:
        if (!pick_instance(c, x, seed, &v, &z))
            return false;
        x->n[v][z]--;
        return true;
    case 2:
        return change_size(c, x, seed);
    case 3:
        return split(c, x, seed, 2);
    case 4:
        return split(c, x, seed, 3);
    case 5:
        return unite(c, x, seed, 2 + below(seed, 2));
    case 6:
        return change_variant(c, x, seed) && change_variant(c, x, seed);
    default:
        return change_variant(c, x, seed);
    }
}

bool weft_clover__neighbour(const weft_clover *c, const weft_clover_config *x, uint64_t *seed,
                            weft_clover_config *out)
{
    for (int i = 0; i < TRIES_MAX; i++) {
        *out = *x;
        if (!mutate(c, out, seed))
            continue;
        uint32_t distance = weft_clover__distance(c, x, out);
        if (distance >= 1 && distance <= 4 && weft_clover__fits(c, out))
            return true;
    }
    return false;
}

bool weft_clover__random(const weft_clover *c, uint64_t seed, uint64_t effort,
                         weft_clover_config *out)
{
    double best = -INFINITY;
    for (uint64_t i = 0; i < effort; i++) {
        weft_clover_config x = {0}, more;
        uint32_t want = 1 + below(&seed, 7 * (c->devices ? c->devices : 1));
        for (uint32_t k = 0; k < want; k++) {
            more = x;
            if (add_instance(c, &more, &seed) && weft_clover__fits(c, &more))
                x = more;
        }
        weft_clover_score s = weft_clover__score(c, &x);
        if (s.feasible && s.f > best) {
            best = s.f;
            *out = x;
        }
    }
    return best > -INFINITY;
}

bool weft_clover__anneal(const weft_clover *c, uint64_t seed, uint64_t effort, uint64_t patience,
                         weft_clover_config *x)
{
    weft_clover_config now = *x, best = *x, next;
    weft_clover_score s = weft_clover__score(c, x);
    bool found = s.feasible && weft_clover__fits(c, x);
    double h = s.h, best_f = found ? s.f : -INFINITY, heat = start_heat;
    for (uint64_t i = 0, idle = 0; i < effort && idle < patience; i++, idle++) {
        if (!weft_clover__neighbour(c, &now, &seed, &next))
            break;
        s = weft_clover__score(c, &next);
        double chance = (double)(weft_rand_split(&seed) >> 11) * 0x1p-53;
        /* Hill climbing in the second half of the patience: from the best configuration, accepting
         * only better feasible ones. */
        bool cold = idle >= patience / 2 && found;
        if (idle == patience / 2 && found) {
            now = best;
            h = -best_f;
        } else if (cold ? s.feasible && s.h <= h : s.h <= h || chance < exp(-(s.h - h) / heat)) {
            now = next;
            h = s.h;
        }
        if (s.feasible && s.f > best_f + 1e-12) {
            best_f = s.f;
            best = next;
            found = true;
            idle = 0;
        }
        heat = fmax(least_heat, heat - cooling);
    }
    if (found)
        *x = best;
    return found;
}
