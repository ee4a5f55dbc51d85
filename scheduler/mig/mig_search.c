/* The fewest devices of one MIG geometry for services that share no instance. Exact if the search
 * is wide enough for the problem, else a heuristic with a lower bound.
 *
 * A cover of a service is a count of instances of each profile that together serve its rate. G
 * devices hold the covers of all services if and only if, for each facet (mig_pack.c), the sum of
 * the weights of the covers is at most cap * G. So the problem is a multiple-choice knapsack with
 * several constraints: choose one cover for each service. G is the least for which that succeeds:
 *
 *   1. Compute the least weight of any cover for each service and facet (unbounded knapsack). Their
 *      sums give a lower bound on G, the maximum over facets of ceil(sum / cap); for the facet of
 *      GPCs this is the bound ceil(GPCs / 7) of the literature.
 *   2. For each G from the bound upwards, list the covers of each service that matter: in no facet
 *      is the weight above the least weight plus the slack, which is cap * G minus the sum of the
 *      least weights. Keep those that no other cover dominates.
 *   3. Compute Lagrange multipliers ("prices") for the facets by multiplicative updates. For any
 *      prices, the sum of the prices of the cheapest covers over the price of one device is a lower
 *      bound on G, often higher than that of step 1; G continues there. The average over the rounds
 *      of the cheapest covers is a fractional solution.
 *   4. Dynamic program over the services. A state is the sum of the weights of the covers chosen so
 *      far, above the least weights; dominated states are dropped, as are facets that cannot exceed
 *      their slack. A state after the last service is a solution on G devices. If there is none, G
 *      is infeasible. If there are more than `width` states, those that exceed the fractional
 *      solution most are dropped, and the step proves nothing.
 *
 * At the first G the slack is less than one device, so there are few covers (2 to 10) and few
 * states: the six scenarios of ParvaGPU are solved to proven optimality in well under 1 ms.
 *
 * Large rates. By the pigeonhole argument for the unbounded knapsack, a lightest cover has fewer
 * than w* instances of other profiles than the one with the best ratio of rate to weight (w*: the
 * weight of that profile). So most of a large rate, its bulk, is assigned to instances before the
 * knapsack and the enumeration. That is exact for the least weight in one facet. For covers under
 * several facets it is a heuristic; G is then excluded by prices only, with the instances of such a
 * service taken as divisible.
 *
 * Deterministic. O(services * (covers + width * covers)) for each G. */
#include "scheduler/mig/mig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COVERS_MAX = 48,         /* for each service */
    COVER_NODES_MAX = 20000, /* nodes of the enumeration of covers, for each service */
    WIDE = 256,              /* a search of at least this width considers every cover */
    SPARE = 4, /* a narrower one only covers of at most this many GPCs above the least */
    SEGMENTS_MAX = 1 << 24,
    PRICE_ROUNDS = 48,
    STEPS_MAX = 64 /* values of G that are tried without proof that smaller ones are infeasible */
};

typedef struct cover {
    weft_mig_counts count;
    uint32_t weight[WEFT_MIG_FACETS_MAX];
} cover;

/* The covers of one service. */
typedef struct choice {
    weft_mig_counts bulk; /* instances that every cover contains */
    bool is_bulky;        /* whether there is a bulk */
    bool is_cut;          /* whether covers within the slack may be missing */
    double rest_per_s;    /* the rate that the bulk does not serve */
    uint32_t least[WEFT_MIG_FACETS_MAX];
    uint64_t narrow_limit; /* GPCs of a cover in a narrow search */
    cover *cover;
    uint32_t n;
    double fraction[WEFT_MIG_FACETS_MAX]; /* weights in the fractional solution, above the least */
} choice;

typedef struct search {
    const weft_mig_search *in;
    const weft_mig_shape *shape;
    choice *choice;                      /* by service */
    uint64_t least[WEFT_MIG_FACETS_MAX]; /* sums over the services */
    uint64_t slack[WEFT_MIG_FACETS_MAX]; /* at the current G */
    double price[WEFT_MIG_FACETS_MAX];
    uint32_t compute; /* the facet of GPCs */
    bool complete;    /* whether no cover or state was left out at the current G */
    uint32_t nodes;   /* of the enumeration for the current service */
} search;

/* -- Least weights ---------------------------------------------------------------------------- */

/* Rate per weight of a profile in one facet. */
static double ratio(const weft_mig_load *load, const weft_mig_shape *shape, uint32_t f, uint32_t p)
{
    return load->per_s[p] / shape->weight[f][p];
}

/* The least weight in one facet of a cover for `rate`: unbounded knapsack, after the bulk is
 * assigned to the profile with the best ratio. */
static uint32_t least_weight(const search *se, const weft_mig_load *load, double rate, uint32_t f)
{
    const weft_mig_shape *shape = se->shape;
    uint32_t best = UINT32_MAX, heaviest = 1, bulk = 0;
    double most = 0, rest = rate;
    for (uint32_t p = 0; p < shape->n; p++) {
        if (!(load->per_s[p] > 0))
            continue;
        if (shape->weight[f][p] == 0)
            return 0;
        most = fmax(most, load->per_s[p]);
        heaviest = shape->weight[f][p] > heaviest ? shape->weight[f][p] : heaviest;
        if (best == UINT32_MAX || ratio(load, shape, f, p) > ratio(load, shape, f, best))
            best = p;
    }
    double spare = heaviest * most;
    if (rest > spare) {
        bulk = (uint32_t)((rest - spare) / load->per_s[best]);
        rest -= bulk * load->per_s[best];
    }
    /* carried[g]: the highest rate that instances of total weight g serve. */
    uint32_t cells = 8 * WEFT_MIG_PROFILES_MAX * heaviest + 64;
    weft_arena_mark mark = weft_arena_get_mark(se->in->arena);
    double *carried = weft_arena_array(se->in->arena, cells, sizeof *carried);
    uint32_t g = 0;
    do {
        g++;
        for (uint32_t p = 0; p < shape->n; p++) {
            uint32_t w = shape->weight[f][p];
            if (load->per_s[p] > 0)
                carried[g] = fmax(carried[g], w >= g ? load->per_s[p] * (w == g)
                                                     : carried[g - w] + load->per_s[p]);
        }
        carried[g] = fmax(carried[g], carried[g - 1]);
    } while (carried[g] < rest * (1 - 1e-12) && g + 1 < cells);
    weft_arena_reset(se->in->arena, mark);
    return g + bulk * shape->weight[f][best];
}

/* false: some service has no usable profile, or needs SEGMENTS_MAX instances or more. */
static bool check_loads(search *se)
{
    for (uint32_t s = 0; s < se->in->n; s++) {
        const weft_mig_load *load = &se->in->load[s];
        double least = 0;
        for (uint32_t p = 0; p < se->shape->n; p++)
            if (load->per_s[p] > 0)
                least = least > 0 ? fmin(least, load->per_s[p]) : load->per_s[p];
        if (!(least > 0) || !(load->rate_per_s / least < SEGMENTS_MAX))
            return false;
        se->choice[s].rest_per_s = load->rate_per_s;
    }
    return true;
}

/* -- The bulk of large loads ------------------------------------------------------------------ */

/* Price of a request per second on a profile. */
static double unit_price(const search *se, const weft_mig_load *load, uint32_t p)
{
    double sum = 0;
    for (uint32_t f = 0; f < se->shape->n_facet; f++)
        sum += se->price[f] * se->shape->weight[f][p];
    return sum / load->per_s[p];
}

static uint32_t cheapest_profile(const search *se, const weft_mig_load *load)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t p = 0; p < se->shape->n; p++)
        if (load->per_s[p] > 0 &&
            (best == UINT32_MAX || unit_price(se, load, p) < unit_price(se, load, best)))
            best = p;
    return best;
}

/* Raises the prices of facets whose use, `total`, is above that of `devices` devices, and lowers
 * the others; later rounds take smaller steps. */
static void adjust_prices(search *se, const double *total, double devices, uint32_t round)
{
    for (uint32_t f = 0; f < se->shape->n_facet; f++) {
        double load = total[f] / (se->shape->cap[f] * devices);
        se->price[f] *= fmin(2, fmax(0.5, 1 + 8 * (load - 1) / (1 + round / 8.0)));
        se->price[f] = fmin(1, fmax(1e-6, se->price[f]));
    }
}

static void reset_prices(search *se)
{
    for (uint32_t f = 0; f < se->shape->n_facet; f++)
        se->price[f] = 1.0 / se->shape->cap[f];
}

/* About how many instances of each service are left to the enumeration. */
static uint32_t free_segments(const search *se)
{
    return se->in->width >= WIDE ? 24 : 6;
}

/* Assigns the bulk of large rates to instances. The proportions are those of a fractional solution:
 * in each round of prices every service takes its cheapest profile, and the second half of the
 * rounds is averaged. */
static void take_bulk(search *se)
{
    uint32_t n = se->in->n, large = 0;
    double(*part)[WEFT_MIG_PROFILES_MAX] = weft_arena_array(se->in->arena, n, sizeof *part);
    reset_prices(se);
    for (uint32_t round = 0; round < 2 * PRICE_ROUNDS; round++) {
        double total[WEFT_MIG_FACETS_MAX] = {0}, devices = 0;
        for (uint32_t s = 0; s < n; s++) {
            const weft_mig_load *load = &se->in->load[s];
            uint32_t p = cheapest_profile(se, load);
            double segments = load->rate_per_s / load->per_s[p];
            if (round >= PRICE_ROUNDS)
                part[s][p] += 1.0 / PRICE_ROUNDS;
            for (uint32_t f = 0; f < se->shape->n_facet; f++)
                total[f] += segments * se->shape->weight[f][p];
            large += segments > 2 * free_segments(se);
        }
        if (large == 0)
            return;
        for (uint32_t f = 0; f < se->shape->n_facet; f++)
            devices = fmax(devices, total[f] / se->shape->cap[f]);
        adjust_prices(se, total, devices * 0.98, round);
    }
    for (uint32_t s = 0; s < n; s++) {
        const weft_mig_load *load = &se->in->load[s];
        choice *c = &se->choice[s];
        double most = 0;
        for (uint32_t p = 0; p < se->shape->n; p++)
            most = part[s][p] > 0 ? fmax(most, load->per_s[p]) : most;
        double bulk = load->rate_per_s - free_segments(se) * most;
        for (uint32_t p = 0; bulk > free_segments(se) * most && p < se->shape->n; p++) {
            if (!(part[s][p] > 0))
                continue;
            c->bulk.of[p] = (uint32_t)(bulk * part[s][p] / load->per_s[p]);
            c->rest_per_s -= c->bulk.of[p] * load->per_s[p];
            c->is_bulky = c->is_bulky || c->bulk.of[p] > 0;
        }
    }
}

/* Computes the least weights (step 1), and returns their lower bound on devices. */
static uint64_t first_bound(search *se)
{
    uint64_t bound = 1;
    for (uint32_t f = 0; f < se->shape->n_facet; f++) {
        for (uint32_t s = 0; s < se->in->n; s++) {
            se->choice[s].least[f] =
                least_weight(se, &se->in->load[s], se->in->load[s].rate_per_s, f);
            se->least[f] += se->choice[s].least[f];
        }
        for (uint32_t s = 0; f == se->compute && s < se->in->n; s++) {
            choice *c = &se->choice[s];
            c->narrow_limit = SPARE + least_weight(se, &se->in->load[s], c->rest_per_s, f);
            for (uint32_t p = 0; p < se->shape->n; p++)
                c->narrow_limit += c->bulk.of[p] * se->shape->weight[f][p];
        }
        uint64_t need = (se->least[f] + se->shape->cap[f] - 1) / se->shape->cap[f];
        bound = need > bound ? need : bound;
    }
    return bound;
}

/* -- Covers ----------------------------------------------------------------------------------- */

static bool is_no_heavier(const uint32_t *a, const uint32_t *b, uint32_t n)
{
    for (uint32_t f = 0; f < n; f++)
        if (a[f] > b[f])
            return false;
    return true;
}

/* Adds a cover unless another one dominates it, and removes those that it dominates. */
static void keep_cover(search *se, choice *c, const cover *one)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n; i++)
        if (is_no_heavier(c->cover[i].weight, one->weight, se->shape->n_facet))
            return;
    for (uint32_t i = 0; i < c->n; i++)
        if (!is_no_heavier(one->weight, c->cover[i].weight, se->shape->n_facet))
            c->cover[kept++] = c->cover[i];
    c->n = kept;
    if (c->n == COVERS_MAX)
        c->is_cut = true;
    else
        c->cover[c->n++] = *one;
}

/* Whether covers with more than SPARE GPCs above the least are left out. */
static bool is_narrow(const search *se)
{
    return se->in->width < WIDE && se->slack[se->compute] > SPARE;
}

/* Whether the rate `rest` may still be served within the weight limits: a relaxation in which each
 * facet uses the best ratio of the profiles from position `at` of the placing order on. */
static bool can_end(const search *se, const weft_mig_load *load, const choice *c, const cover *part,
                    uint32_t at, double rest)
{
    for (uint32_t f = 0; f < se->shape->n_facet; f++) {
        bool narrow = f == se->compute && is_narrow(se);
        uint64_t limit = narrow ? c->narrow_limit : c->least[f] + se->slack[f];
        double best = 0;
        bool is_free = false;
        if (part->weight[f] > limit)
            return false;
        for (uint32_t i = at; i < se->shape->n; i++) {
            uint32_t p = se->shape->order[i];
            is_free = is_free || (load->per_s[p] > 0 && se->shape->weight[f][p] == 0);
            if (load->per_s[p] > 0 && se->shape->weight[f][p] > 0)
                best = fmax(best, ratio(load, se->shape, f, p));
        }
        if (rest > 0 && !is_free && part->weight[f] + rest / best * (1 - 1e-9) > (double)limit)
            return false;
    }
    return true;
}

static void add_segments(const search *se, cover *c, uint32_t p, uint32_t n)
{
    c->count.of[p] += n;
    for (uint32_t f = 0; f < se->shape->n_facet; f++)
        c->weight[f] += n * se->shape->weight[f][p];
}

/* Lists the covers that extend `part` by profiles from position `at` of the placing order on:
 * branch and bound, with a depth of the number of profiles. */
static void list_covers(search *se, uint32_t s, const cover *part, uint32_t at, double rest)
{
    const weft_mig_load *load = &se->in->load[s];
    choice *c = &se->choice[s];
    if (++se->nodes > COVER_NODES_MAX) {
        c->is_cut = true;
        return;
    }
    if (!can_end(se, load, c, part, at, rest))
        return;
    if (!(rest > 0)) {
        keep_cover(se, c, part);
        return;
    }
    if (at == se->shape->n)
        return;
    uint32_t p = se->shape->order[at];
    list_covers(se, s, part, at + 1, rest);
    if (!(load->per_s[p] > 0))
        return;
    cover next = *part;
    for (double left = rest; left > 0;) {
        add_segments(se, &next, p, 1);
        left -= load->per_s[p];
        if (left < load->rate_per_s * 1e-12)
            left = 0; /* the rate is an exact multiple, up to rounding */
        if (!can_end(se, load, c, &next, at, left))
            return;
        if (left > 0)
            list_covers(se, s, &next, at + 1, left);
        else
            keep_cover(se, c, &next);
    }
}

/* false: some service has no cover within the slack. */
static bool list_all_covers(search *se)
{
    for (uint32_t s = 0; s < se->in->n; s++) {
        choice *c = &se->choice[s];
        cover base = {{{0}}, {0}};
        c->n = 0;
        c->is_cut = c->is_bulky;
        se->nodes = 0;
        for (uint32_t p = 0; p < se->shape->n; p++)
            add_segments(se, &base, p, c->bulk.of[p]);
        /* A service without requests still gets one instance. */
        double rest = c->rest_per_s;
        if (!(rest > 0))
            for (uint32_t p = 0; p < se->shape->n; p++)
                if (se->in->load[s].per_s[p] > 0)
                    rest = rest > 0 ? fmin(rest, se->in->load[s].per_s[p] / 2)
                                    : se->in->load[s].per_s[p] / 2;
        list_covers(se, s, &base, 0, rest);
        se->complete = se->complete && !c->is_cut && !is_narrow(se);
        if (c->n == 0)
            return false;
    }
    return true;
}

/* -- Prices ----------------------------------------------------------------------------------- */

static double price_of(const search *se, const uint32_t *weight)
{
    double sum = 0;
    for (uint32_t f = 0; f < se->shape->n_facet; f++)
        sum += se->price[f] * weight[f];
    return sum;
}

/* A lower bound on the price of any cover of the service; `least`: the price of the cheapest cover
 * that is listed. */
static double least_price(const search *se, uint32_t s, double least)
{
    const choice *c = &se->choice[s];
    const weft_mig_load *load = &se->in->load[s];
    double apart = price_of(se, c->least); /* with the least weight in each facet separately */
    if (!c->is_cut && !is_narrow(se))
        return least;
    if (!c->is_cut)
        return fmin(least, apart + se->price[se->compute] * (SPARE + 1));
    double cut = load->rate_per_s * unit_price(se, load, cheapest_profile(se, load));
    return fmin(least, fmax(apart, cut));
}

/* Every service takes its cheapest cover. Adds the weights to `total` and, with `average`, to the
 * fractional solution. Returns the lower bound on devices that the prices give. */
static double buy_covers(search *se, bool average, double *total)
{
    double sum = 0, caps = 0;
    for (uint32_t s = 0; s < se->in->n; s++) {
        choice *c = &se->choice[s];
        uint32_t pick = 0;
        double least = 0;
        for (uint32_t i = 0; i < c->n; i++) {
            double price = price_of(se, c->cover[i].weight);
            if (i == 0 || price < least) {
                least = price;
                pick = i;
            }
        }
        sum += least_price(se, s, least);
        for (uint32_t f = 0; f < se->shape->n_facet; f++) {
            uint32_t weight = c->cover[pick].weight[f];
            total[f] += weight;
            if (average)
                c->fraction[f] += (double)(weight - c->least[f]) * 2 / PRICE_ROUNDS;
        }
    }
    for (uint32_t f = 0; f < se->shape->n_facet; f++)
        caps += se->price[f] * se->shape->cap[f];
    return sum / caps;
}

/* Computes prices and the fractional solution (step 3); returns the best lower bound on devices. */
static double find_prices(search *se, uint64_t devices)
{
    double bound = 0, best[WEFT_MIG_FACETS_MAX] = {0};
    for (uint32_t s = 0; s < se->in->n; s++)
        memset(se->choice[s].fraction, 0, sizeof se->choice[s].fraction);
    reset_prices(se);
    for (uint32_t round = 0; round < PRICE_ROUNDS; round++) {
        double total[WEFT_MIG_FACETS_MAX] = {0};
        double here = buy_covers(se, round >= PRICE_ROUNDS / 2, total);
        if (here > bound) {
            bound = here;
            memcpy(best, se->price, sizeof best);
        }
        adjust_prices(se, total, (double)devices, round);
    }
    memcpy(se->price, best, sizeof best);
    return bound;
}

/* -- Dynamic program -------------------------------------------------------------------------- */

/* A state: the weights of the covers chosen so far. */
typedef struct sum {
    uint32_t over[WEFT_MIG_FACETS_MAX]; /* above the least weights; tight facets only */
    uint32_t parent, cover;             /* the state before, and the cover chosen last */
    double score;                       /* excess over the fractional solution; lower is better */
} sum;

static int compare_sums(const void *a, const void *b)
{
    const sum *p = a, *q = b;
    if (p->score != q->score)
        return p->score < q->score ? -1 : 1;
    int order = memcmp(p->over, q->over, sizeof p->over);
    if (order)
        return order;
    if (p->parent != q->parent)
        return p->parent < q->parent ? -1 : 1;
    return (p->cover > q->cover) - (p->cover < q->cover);
}

/* Lists the tight facets, those in which some choice of covers exceeds the slack. */
static uint32_t list_tight(const search *se, uint32_t *tight)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < se->shape->n_facet; f++) {
        uint64_t most = 0;
        for (uint32_t s = 0; s < se->in->n; s++) {
            uint32_t over = 0;
            for (uint32_t i = 0; i < se->choice[s].n; i++) {
                uint32_t w = se->choice[s].cover[i].weight[f] - se->choice[s].least[f];
                over = w > over ? w : over;
            }
            most += over;
        }
        if (most > se->slack[f])
            tight[n++] = f;
    }
    return n;
}

/* Extends every state by every cover of service s, and keeps the states that are not dominated, at
 * most `width`. `goal`: the weights of the fractional solution up to this service. */
static uint32_t extend(search *se, uint32_t s, const uint32_t *tight, uint32_t n_tight,
                       const double *goal, const sum *from, uint32_t n_from, sum *to)
{
    const choice *c = &se->choice[s];
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < n_from; i++)
        for (uint32_t k = 0; k < c->n; k++) {
            sum next = {.parent = i, .cover = k};
            bool fits = true;
            for (uint32_t j = 0; fits && j < n_tight; j++) {
                uint32_t f = tight[j];
                next.over[j] = from[i].over[j] + c->cover[k].weight[f] - c->least[f];
                fits = next.over[j] <= se->slack[f];
                double price = se->price[f], above = next.over[j] - goal[f];
                next.score += price * (next.over[j] * 0.05 + (above > 0 ? above : 0));
            }
            if (fits)
                to[n++] = next;
        }
    /* A state never has a higher score than the states that it dominates, so it comes first. */
    qsort(to, n, sizeof *to, compare_sums);
    for (uint32_t i = 0; i < n; i++) {
        bool dominated = false;
        for (uint32_t k = 0; !dominated && k < kept; k++)
            dominated = is_no_heavier(to[k].over, to[i].over, n_tight);
        if (dominated)
            continue;
        if (kept == se->in->width) {
            se->complete = false;
            break;
        }
        to[kept++] = to[i];
    }
    return kept;
}

/* Runs the dynamic program (step 4); true: out->count is a solution at the current G. */
static bool choose_covers(search *se, weft_mig_found *out)
{
    weft_arena *arena = se->in->arena;
    uint32_t tight[WEFT_MIG_FACETS_MAX], n_tight = list_tight(se, tight), n = se->in->n;
    sum **layer = weft_arena_array(arena, n + 1, sizeof *layer);
    sum *scratch = weft_arena_array(arena, (size_t)se->in->width * COVERS_MAX, sizeof *scratch);
    double goal[WEFT_MIG_FACETS_MAX] = {0};
    uint32_t n_sum = 1;
    layer[0] = weft_arena_array(arena, 1, sizeof **layer);
    for (uint32_t s = 0; s < n; s++) {
        for (uint32_t f = 0; f < se->shape->n_facet; f++)
            goal[f] += se->choice[s].fraction[f];
        n_sum = extend(se, s, tight, n_tight, goal, layer[s], n_sum, scratch);
        if (n_sum == 0)
            return false;
        layer[s + 1] = weft_arena_array(arena, n_sum, sizeof **layer);
        memcpy(layer[s + 1], scratch, n_sum * sizeof *scratch);
    }
    /* Traces the state with the best score back. */
    uint32_t at = 0;
    for (uint32_t s = n; s-- > 0;) {
        const sum *one = &layer[s + 1][at];
        out->count[s] = se->choice[s].cover[one->cover].count;
        at = one->parent;
    }
    return true;
}

/* -- The search ------------------------------------------------------------------------------- */

static void raise_bound(weft_mig_found *found, uint64_t bound)
{
    found->bound = bound > found->bound ? bound : found->bound;
}

bool weft_mig__search(const weft_mig_search *in, weft_mig_found *out)
{
    search se = {.in = in, .shape = in->shape};
    weft_mig_found found = {.count = weft_arena_array(in->arena, in->n, sizeof *found.count)};
    se.choice = weft_arena_array(in->arena, in->n, sizeof *se.choice);
    if (!check_loads(&se))
        return false;
    for (uint32_t f = 0; f < se.shape->n_facet; f++)
        if (se.shape->cap[f] == se.shape->type->mig[0].of_gpcs)
            se.compute = f;
    for (uint32_t s = 0; s < in->n; s++)
        se.choice[s].cover = weft_arena_array(in->arena, COVERS_MAX, sizeof(cover));
    take_bulk(&se);
    found.bound = first_bound(&se);
    uint64_t first = found.bound, next, tries = 0;
    for (uint64_t devices = first; tries < STEPS_MAX; devices = next) {
        weft_arena_mark mark = weft_arena_get_mark(in->arena);
        for (uint32_t f = 0; f < se.shape->n_facet; f++)
            se.slack[f] = se.shape->cap[f] * devices - se.least[f];
        se.complete = true;
        next = devices + 1;
        bool covered = list_all_covers(&se);
        if (covered) {
            double bound = ceil(find_prices(&se, devices) * (1 - 1e-9) - 1e-9);
            if (bound > (double)devices)
                next = (uint64_t)bound;
            /* The covers are complete for plans on at most `devices` devices, so the prices prove
             * no more than devices + 1. */
            raise_bound(&found, bound < (double)devices + 1 ? (uint64_t)bound : devices + 1);
        }
        if (covered && next == devices + 1 && choose_covers(&se, &found)) {
            found.devices = devices;
            *out = found;
            return true;
        }
        if (se.complete)
            raise_bound(&found, devices + 1);
        else if (next == devices + 1)
            next += tries++ * devices / 4000;
        weft_arena_reset(in->arena, mark);
    }
    return false;
}
