/* Ruin and recreate (G. Schrimpf et al., J. Comput. Phys. 159, 2000): local search over
 * solutions.
 *
 * It works for all ways of splitting devices that the builder knows: whole devices, MIG, MPS,
 * MPS inside MIG, CPU slices, several models in turn.
 *
 * One try.
 * - Ruin: one to three devices are emptied; in the first rounds the least used ones, then random
 *   ones.
 * - Recreate: the slices that the affected models keep are filled. The rest is inserted
 *   greedily, the largest need first or in random order. An insertion takes the cheapest option
 *   with a place that carries the whole rest; if none does, the option with the best ratio of
 *   capacity to price (or the largest capacity), and the loop goes on with what remains; where
 *   slices may be shared, the rest joins other models.
 * - Accept: a better solution, or an equal one whose devices are fuller (the sum of squares is
 *   greater), so that the emptiest device becomes emptier. On a fleet of one type a try may be
 *   limited to one device less than the best solution; on other fleets the price decides.
 *
 * Complexity: a try rebuilds the builder, O(segments). The random choices come from the seed. */
#include "scheduler/policies/policies_int.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { EMPTIED_MAX = 3, NEEDS_MAX = 1024, SHARES_TRIED_MAX = 512 };

/* -- Adding ----------------------------------------------------------------------------------- */

/* Options that carry the rest come first: the cheapest, then the fastest. The others follow by
 * ratio of capacity to price, or by capacity. */
static bool is_before(const weft_option *a, const weft_option *b, double rest, bool bulk)
{
    bool a_carries = a->peak_per_s >= rest, b_carries = b->peak_per_s >= rest;
    double x, y;
    if (bulk && a_carries != b_carries) {
        /* An option that carries the rest is compared by its ratio, too: much of its capacity may
         * stay unused. */
        x = a->cost / fmin(a->peak_per_s, rest);
        y = b->cost / fmin(b->peak_per_s, rest);
        if (x != y)
            return x < y;
    }
    if (a_carries != b_carries)
        return a_carries;
    x = a_carries ? a->cost : bulk ? a->cost / a->peak_per_s : -a->peak_per_s;
    y = b_carries ? b->cost : bulk ? b->cost / b->peak_per_s : -b->peak_per_s;
    return x != y ? x < y : a->exec_us < b->exec_us;
}

/* The best option of one shape for the rest: the fastest that carries it, else the one with the
 * highest capacity. */
static const weft_option *best_of_choice(const weft_option *option, uint32_t n, double rest)
{
    const weft_option *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const weft_option *o = &option[i];
        bool carries = o->peak_per_s >= rest;
        if (!best || (best->peak_per_s >= rest ? carries && o->exec_us < best->exec_us
                                               : o->peak_per_s > best->peak_per_s))
            best = o;
    }
    return best;
}

static bool share_some_slice(weft_builder *builder, uint32_t demand, double rest)
{
    uint32_t best = NONE;
    double most = 0, occupancy;
    if (builder->problem->rules.isolated)
        return false;
    for (uint32_t i = 0; i < builder->slices.len && i < SHARES_TRIED_MAX; i++)
        if (weft_builder__share(builder, i, demand, rest, false, &occupancy) &&
            (best == NONE || occupancy > most * (1 + 1e-9))) {
            best = i;
            most = occupancy;
        }
    return best != NONE && weft_builder__share(builder, best, demand, rest, true, &occupancy);
}

uint32_t weft_ruin_recreate__rank(const weft_builder *builder, uint32_t demand, double rest,
                                  bool bulk, const weft_option *out[WEFT_RUIN_RECREATE_CHOICES_MAX])
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < builder->table.n_choice[demand] && n < WEFT_RUIN_RECREATE_CHOICES_MAX;
         c++) {
        const weft_choice *choice = &builder->table.choice[demand][c];
        const weft_option *o =
            best_of_choice(&builder->table.option[demand][choice->first], choice->n, rest);
        uint32_t at = n++;
        for (; at > 0 && is_before(o, out[at - 1], rest, bulk); at--)
            out[at] = out[at - 1];
        out[at] = o;
    }
    return n;
}

/* Adds one slice for as much of *rest as it carries; false: no option has a place. */
static bool take_slice(weft_builder *builder, uint32_t demand, double *rest, bool bulk)
{
    const weft_option *list[WEFT_RUIN_RECREATE_CHOICES_MAX];
    uint32_t n = weft_ruin_recreate__rank(builder, demand, *rest, bulk, list);
    for (uint32_t i = 0; i < n; i++) {
        double part = fmin(list[i]->peak_per_s, *rest);
        if (!weft_builder__add(builder, demand, list[i], part, true))
            continue;
        *rest -= part;
        return true;
    }
    return false;
}

bool weft_ruin_recreate__add(weft_builder *builder, uint32_t demand, double rate_per_s, bool bulk)
{
    double rest = rate_per_s;
    do {
        if (take_slice(builder, demand, &rest, bulk))
            continue;
        if (!share_some_slice(builder, demand, rest))
            return false;
        rest = 0;
    } while (rest > rate_per_s * 1e-9);
    return true;
}

/* -- The local search ------------------------------------------------------------------------- */

typedef struct attempt {
    weft_builder *builder;
    weft_solution *best;
    bool may_miss;      /* goal goodput: a rest without a place is not carried */
    double *rate;       /* by segment; -1: removed */
    double *carried;    /* by demand, scratch */
    double *need;       /* by demand: rate of the removed segments */
    uint32_t *segments; /* by demand: segments that remain */
    uint32_t *list;     /* demands with a need */
    double *weight;     /* by device: part in use */
    uint32_t *by_use;   /* devices, least used first */
} attempt;

static uint64_t next_random(uint64_t *seed)
{
    return weft_rand_lcg(seed) >> 33;
}

static void order_devices(attempt *a)
{
    uint32_t n = a->best->devices;
    memset(a->weight, 0, n * sizeof *a->weight);
    uint32_t device = 0;
    for (uint32_t i = 0; i < a->best->n; i++) {
        const weft_segment *p = &a->best->at[i];
        bool first = i == 0 || !weft_solution__share_slice(p - 1, p);
        device += i > 0 && p->device != p[-1].device;
        a->weight[device] += first ? p->option->spec.weight : 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && a->weight[i] < a->weight[a->by_use[at - 1]] - 1e-9; at--)
            a->by_use[at] = a->by_use[at - 1];
        a->by_use[at] = i;
    }
}

/* Removes the segments of the chosen devices, and fills the segments that their models keep.
 * Returns the number of demands in a->list. */
static uint32_t empty_devices(attempt *a, const uint32_t *chosen, uint32_t n_chosen)
{
    uint32_t device = 0, n = 0;
    uint32_t demands = (uint32_t)a->builder->demands->n;
    memset(a->need, 0, demands * sizeof *a->need);
    memset(a->segments, 0, demands * sizeof *a->segments);
    for (uint32_t i = 0; i < a->best->n; i++) {
        const weft_segment *p = &a->best->at[i];
        bool taken = false;
        device += i > 0 && p->device != p[-1].device;
        for (uint32_t k = 0; k < n_chosen; k++)
            taken = taken || device == chosen[k];
        a->rate[i] = taken ? -1 : p->rate_per_s;
        a->need[p->demand] += taken ? p->rate_per_s : 0;
        a->segments[p->demand] += !taken;
        if (taken) {
            uint32_t k = 0;
            while (k < n && a->list[k] != p->demand)
                k++;
            a->list[k] = p->demand;
            n += k == n;
        }
    }
    for (uint32_t i = 0; i < a->best->n; i++) {
        const weft_segment *p = &a->best->at[i];
        bool lone = (i == 0 || !weft_solution__share_slice(p - 1, p)) &&
                    (i + 1 == a->best->n || !weft_solution__share_slice(p, p + 1));
        if (a->rate[i] < 0 || !lone || !(a->need[p->demand] > 0))
            continue;
        double more = fmin(a->need[p->demand], p->option->peak_per_s - a->rate[i]);
        if (more > 0) {
            a->rate[i] += more;
            a->need[p->demand] -= more;
        }
    }
    return n;
}

/* With the goal goodput, what the solution did not carry before is inserted, too. */
static uint32_t add_missed(attempt *a, uint32_t n)
{
    const weft_demands *demands = a->builder->demands;
    double *carried = a->carried;
    memset(carried, 0, demands->n * sizeof *carried);
    for (uint32_t i = 0; i < a->best->n; i++)
        carried[a->best->at[i].demand] += fmax(0, a->rate[i]);
    for (uint32_t k = 0; k < demands->n && n < NEEDS_MAX; k++) {
        uint32_t demand = a->builder->order[k];
        bool listed = a->need[demand] > 0;
        double missed = demands->at[demand].rate_per_s - carried[demand];
        a->need[demand] = fmax(0, missed);
        if (!listed && a->builder->n_option[demand] > 0 &&
            missed > demands->at[demand].rate_per_s * 1e-9)
            a->list[n++] = demand;
    }
    return n;
}

/* The part of a device that the need takes; with the goal goodput, what a device carries of the
 * demand. */
static double need_of(const attempt *a, uint32_t demand)
{
    double least = 0;
    for (uint32_t i = 0; i < a->builder->n_option[demand]; i++) {
        const weft_option *o = &a->builder->option[demand][i];
        double weight = o->spec.weight / o->peak_per_s;
        least = i == 0 || weight < least ? weight : least;
    }
    return a->may_miss && least > 0 ? 1 / least : least * a->need[demand];
}

/* Recreate: inserts the needs, the largest first or in random order. */
static bool place_again(attempt *a, uint32_t n, bool bulk, uint64_t *seed)
{
    double key[NEEDS_MAX];
    if (n > NEEDS_MAX)
        return false;
    bool shuffle = next_random(seed) % 3 == 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t demand = a->list[i], at = i;
        double here = shuffle ? (double)next_random(seed) : need_of(a, demand);
        for (; at > 0 &&
               (here > key[at - 1] || (here == key[at - 1] &&
                                       strcmp(a->builder->demands->at[demand].model,
                                              a->builder->demands->at[a->list[at - 1]].model) < 0));
             at--) {
            key[at] = key[at - 1];
            a->list[at] = a->list[at - 1];
        }
        key[at] = here;
        a->list[at] = demand;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t demand = a->list[i];
        double rate = a->builder->demands->at[demand].rate_per_s;
        if (a->need[demand] <= rate * 1e-9 && a->segments[demand] > 0)
            continue;
        if (!weft_ruin_recreate__add(a->builder, demand, a->need[demand], bulk) && !a->may_miss)
            return false;
    }
    return true;
}

static uint32_t choose_devices(const attempt *a, uint32_t try, uint64_t *seed, uint32_t *chosen)
{
    uint32_t n = a->best->devices, want = 1 + try % EMPTIED_MAX;
    want = want < n ? want : n;
    /* the first rounds empty the devices one after the other, the least used first */
    chosen[0] = a->by_use[try / EMPTIED_MAX < n ? try / EMPTIED_MAX : next_random(seed) % n];
    for (uint32_t k = 1; k < want; k++) {
        bool again = true;
        while (again) {
            chosen[k] = a->by_use[next_random(seed) % n];
            again = false;
            for (uint32_t j = 0; j < k; j++)
                again = again || chosen[j] == chosen[k];
        }
    }
    return want;
}

void weft_ruin_recreate__improve(weft_builder *builder, weft_fleet_device *fleet, uint32_t tries,
                                 uint64_t seed, weft_solution *best)
{
    uint32_t room = 0, demands = (uint32_t)builder->demands->n;
    weft_arena *arena = builder->arena;
    attempt a = {.builder = builder, .best = best};
    a.may_miss = builder->problem->goal == WEFT_GOAL_GOODPUT;
    a.need = weft_arena_array(arena, demands, sizeof *a.need);
    a.carried = weft_arena_array(arena, demands, sizeof *a.carried);
    a.segments = weft_arena_array(arena, demands, sizeof *a.segments);
    a.list = weft_arena_array(arena, demands + 1, sizeof *a.list);
    bool one_kind = builder->fleet->n_device == 1;
    uint32_t count = fleet[0].count;
    for (uint32_t try = 0; try < tries && best->devices > 0; try++) {
        uint32_t chosen[EMPTIED_MAX];
        if (best->n > room) { /* there are never more devices than segments */
            room = best->n + 64;
            a.rate = weft_arena_array(arena, room, sizeof *a.rate);
            a.weight = weft_arena_array(arena, room, sizeof *a.weight);
            a.by_use = weft_arena_array(arena, room, sizeof *a.by_use);
        }
        order_devices(&a);
        uint32_t n_chosen = choose_devices(&a, try, &seed, chosen);
        uint32_t n = empty_devices(&a, chosen, n_chosen);
        n = a.may_miss ? add_missed(&a, n) : n;
        /* Every second round may keep the number of devices: it reshapes the solution, and the next
         * rounds may find gaps. */
        bool strict = !a.may_miss && try / EMPTIED_MAX % 2 == 0;
        if (one_kind)
            fleet[0].count = a.may_miss ? count : strict ? best->devices - 1 : best->devices;
        bool ok = weft_solution__put_rates(builder, best, a.rate) &&
                  place_again(&a, n, try % 4 < 2, &seed);
        if (!ok)
            continue;
        weft_solution next = weft_solution__list(builder);
        bool same = !(next.goodput_per_s < best->goodput_per_s * (1 - 1e-9)) &&
                    next.devices <= best->devices &&
                    next.cost_per_hour <= best->cost_per_hour * (1 + 1e-9) &&
                    next.fullness > best->fullness * (1 + 1e-9);
        if (!weft_solution__is_better(builder->problem->goal, &next, best) && !same)
            continue;
        *best = next;
    }
    fleet[0].count = count;
}
