/* Fewest devices of one MIG geometry for services that share no instance: exact where the search
 * is wide enough, a heuristic with a bound where not.
 *
 * A service needs a cover: counts of instances that together carry its rate. Packing is no issue of
 * its own: G devices hold all covers iff the sums of their facet weights keep within cap * G
 * (mig_pack.c). What is left is a choice of one cover a service under a handful of budgets:
 *
 *   1. For each service and facet the least weight of any cover (unbounded knapsack). Their sums
 *      give the first lower bound, max over facets of ceil(sum / cap): on compute slots, the
 *      ceil(GPCs / 7) of the literature.
 *   2. For G from the bound upwards: a cover matters only if it stays within its service's least
 *      weights plus the slack that G leaves in all. Enumerate those, keep the minimal ones.
 *   3. Prices for the facets, by multiplicative updates on the relaxation in which budgets are
 *      shared: for any prices, sum over services of the cheapest cover / price of one device's caps
 *      is a lower bound on G too, often a higher one; G jumps to it. The covers picked on the way,
 *      averaged, are a fractional plan.
 *   4. Go through the services, keep the set of reachable sums (above the least ones) that no other
 *      reachable sum beats in every facet. Facets that cannot overrun are dropped. A set left after
 *      the last service is a plan on G devices, and all smaller G are excluded; an empty one
 *      excludes G itself. When a set outgrows `width`, the sums that overshoot the fractional plan
 *      most go, and nothing is excluded any more.
 *
 * The slack is below one device at the first G, so covers are few (2 to 10) and sets are small: the
 * six scenarios of ParvaGPU are solved to proven optimality in well under a millisecond.
 *
 * Loads of many instances: by the pigeonhole argument of the unbounded knapsack, a lightest cover
 * has fewer than w* instances that are not of the best ratio (w*: its weight), so the bulk of a
 * large load is taken in best instances before the knapsack and the enumeration. For the least
 * weights this is exact; for the covers of more than one facet it is a heuristic, and then nothing
 * is excluded but by prices, where such a load counts as if instances could be cut.
 *
 * Deterministic. O(services * (covers + width * covers)) a step of G. */
#include "scheduler/mig/mig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    COVERS_MAX = 48,         /* kept, of one service */
    COVER_NODES_MAX = 20000, /* visited, of one service */
    WIDE = 256,              /* from this width on, no cover is left out */
    SPARE = 4,               /* weight above the least of covers that a narrow search looks at */
    SEGMENTS_MAX = 1 << 24,
    PRICE_ROUNDS = 48,
    STEPS_MAX = 64 /* of G above what is excluded */
};

typedef struct cover {
    weft_mig_counts count;
    uint32_t weight[WEFT_MIG_FACETS_MAX];
} cover;

typedef struct choice {
    weft_mig_counts bulk;
    bool is_bulky;
    bool is_cut;       /* not all covers within the slack are listed */
    double rest_per_s; /* without the bulk */
    uint32_t least[WEFT_MIG_FACETS_MAX];
    uint64_t narrow_limit; /* of compute slots, in a narrow search */
    cover *cover;
    uint32_t n;
    double fraction[WEFT_MIG_FACETS_MAX]; /* weights of the fractional plan, above the least */
} choice;

typedef struct search {
    const weft_mig_search *in;
    const weft_mig_shape *shape;
    choice *choice;
    uint64_t least[WEFT_MIG_FACETS_MAX]; /* sums */
    uint64_t slack[WEFT_MIG_FACETS_MAX]; /* at the G in hand */
    double price[WEFT_MIG_FACETS_MAX];
    uint32_t compute; /* the facet of compute slots */
    bool complete;    /* nothing was left out at the G in hand */
    uint32_t nodes;   /* of one service */
} search;

/* -- Least weights ---------------------------------------------------------------------------- */

static double ratio(const weft_mig_load *load, const weft_mig_shape *shape, uint32_t f, uint32_t p)
{
    return load->per_s[p] / shape->weight[f][p];
}

/* Least weight of a cover in one facet. */
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
    /* carried[g]: most that instances of g weight together carry. */
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

/* false: some load is carried by nothing, or by more instances than we count. */
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

/* Price of one request a second on a profile. */
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

/* Moves prices towards the facets that are used most; `total`: their use. */
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

/* Most instances of a load that are left to the enumeration. */
static uint32_t free_segments(const search *se)
{
    return se->in->width >= WIDE ? 24 : 6;
}

/* Cuts the bulk of large loads into instances in the proportions of the fractional plan in which
 * every load buys at the cheapest profile, over some rounds of prices. */
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

/* Whether covers of more than SPARE compute slots above the least are left out. */
static bool is_narrow(const search *se)
{
    return se->in->width < WIDE && se->slack[se->compute] > SPARE;
}

/* Whether what is left can still be carried within the limits, at the best ratio of what may come
 * after position `at` of the placing order. */
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

/* Large profiles first; depth is the number of profiles. */
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
            left = 0; /* an exact multiple */
        if (!can_end(se, load, c, &next, at, left))
            return;
        if (left > 0)
            list_covers(se, s, &next, at + 1, left);
        else
            keep_cover(se, c, &next);
    }
}

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
        /* A load of nothing still wants one instance. */
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

/* No cover of the service has a lower price; `least`: of those that are listed. */
static double least_price(const search *se, uint32_t s, double least)
{
    const choice *c = &se->choice[s];
    const weft_mig_load *load = &se->in->load[s];
    double apart = price_of(se, c->least); /* each facet at its own least */
    if (!c->is_cut && !is_narrow(se))
        return least;
    if (!c->is_cut)
        return fmin(least, apart + se->price[se->compute] * (SPARE + 1));
    double cut = load->rate_per_s * unit_price(se, load, cheapest_profile(se, load));
    return fmin(least, fmax(apart, cut));
}

/* Every service takes its cheapest cover; the weights are added up in `total`, and the averages
 * of the second half of the rounds in the choices. Returns a lower bound on devices. */
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

/* Best bound found, in devices. */
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

/* -- One cover a service ---------------------------------------------------------------------- */

typedef struct sum {
    uint32_t over[WEFT_MIG_FACETS_MAX]; /* above the least, of the facets that can overrun */
    uint32_t parent, cover;
    double score;
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

/* Facets that some choice of covers can overrun; the others need no look. */
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

/* All extensions of the sums by one service, then those that none beats, at most `width`.
 * `goal`: what the fractional plan has after this service. */
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
    /* By ascending score, so that whatever beats a sum comes before it. */
    qsort(to, n, sizeof *to, compare_sums);
    for (uint32_t i = 0; i < n; i++) {
        bool beaten = false;
        for (uint32_t k = 0; !beaten && k < kept; k++)
            beaten = is_no_heavier(to[k].over, to[i].over, n_tight);
        if (beaten)
            continue;
        if (kept == se->in->width) {
            se->complete = false;
            break;
        }
        to[kept++] = to[i];
    }
    return kept;
}

/* Whether covers on `devices` were found; fills *out then. */
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
    /* The first sum has most room left. */
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
            /* The covers listed are those of plans on at most this many devices. */
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
