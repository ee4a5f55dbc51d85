/* Plans as lists of segments (one model on one slice), and a local search over them: empty some
 * devices, place what was on them elsewhere, keep what is better. Works for every way of splitting
 * that the builder knows: whole devices, MIG, MPS, shares of instances, CPU slices, models in turn.
 *
 * One try. One to three devices are emptied: first those in use least, then any. What their models
 * still need, after the slices they keep are filled, is placed again, large needs first, each in
 * the cheapest way that fits what is open: a slice that carries all of the rest, else the slice
 * with the best ratio of capacity to price (or the largest) and on with the rest; where slices may
 * be shared, in turn with other models. On a fleet of one kind a try may use one device less than
 * the best plan; on others the price decides. Equal plans are taken when their devices are fuller,
 * so that the emptiest one gets emptier.
 *
 * A try rebuilds the builder: O(segments). Choices of a try come from a linear congruence of the
 * seed.
 */
#include "scheduler/policies/policies_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum { EMPTIED_MAX = 3, NEEDS_MAX = 1024, SHARES_TRIED_MAX = 512 };

/* -- Lists ------------------------------------------------------------------------------------- */

static bool same_slice(const weft_segment *a, const weft_segment *b)
{
    return a->device == b->device && a->slice_id == b->slice_id;
}

static int compare_segments(const void *a, const void *b)
{
    const weft_segment *p = a, *q = b;
    if (p->device != q->device)
        return p->device < q->device ? -1 : 1;
    if (p->slice_id != q->slice_id)
        return p->slice_id < q->slice_id ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

/* Sums over the devices; segments are sorted. */
static void sum_up(weft_segments *list)
{
    list->devices = 0;
    list->cost_per_hour = list->goodput_per_s = list->fullness = 0;
    for (uint32_t i = 0; i < list->n;) {
        uint32_t end = i;
        double weight = 0;
        for (; end < list->n && list->at[end].device == list->at[i].device; end++) {
            bool first = end == i || !same_slice(&list->at[end - 1], &list->at[end]);
            weight += first ? list->at[end].option->spec.weight : 0;
            list->goodput_per_s += list->at[end].rate_per_s;
        }
        list->fullness += weight * weight;
        list->cost_per_hour += weft_fleet__price(list->at[i].option->row);
        list->devices++;
        i = end;
    }
}

/* Segments of one slice keep their order. */
void weft_ruin_recreate__sort(weft_segments *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        list->at[i].rank = i;
    for (uint32_t i = 1; i < list->n; i++)
        if (compare_segments(&list->at[i - 1], &list->at[i]) > 0) {
            qsort(list->at, list->n, sizeof *list->at, compare_segments);
            return;
        }
}

weft_segments weft_ruin_recreate__list(const weft_builder *builder)
{
    weft_segments list = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < builder->slices.len; i++)
        n += builder->slices.at[i].members.len;
    list.at = weft_arena_array(builder->arena, n, sizeof *list.at);
    for (uint32_t i = 0; i < builder->slices.len; i++) {
        const weft_builder_slice *slice = &builder->slices.at[i];
        bool cores = slice->spec.kind == WEFT_SLICE_CORES;
        for (uint32_t j = 0; j < slice->members.len; j++)
            list.at[list.n++] =
                (weft_segment){.device = slice->device,
                               .slice_id = slice->id,
                               .demand = slice->members.at[j].demand,
                               .start = cores ? (int32_t)slice->id : slice->mig_start,
                               .option = slice->members.at[j].option,
                               .rate_per_s = slice->members.at[j].rate_per_s};
    }
    weft_ruin_recreate__sort(&list);
    sum_up(&list);
    return list;
}

bool weft_ruin_recreate__read(const weft_builder *builder, const weft_plan *plan,
                              weft_segments *out)
{
    weft_segments list = {.at = weft_arena_array(builder->arena, plan->n, sizeof *list.at)};
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        uint32_t demand = weft_builder__find_demand(builder, p->model);
        const weft_shape *shape = weft_option_table__shape(&builder->table, p->type, p->slice);
        const weft_option *option =
            demand == NONE || !shape
                ? NULL
                : weft_option_table__option(&builder->table, demand,
                                            (uint32_t)(shape - builder->table.shape), p->batch,
                                            p->procs);
        if (!option)
            return false;
        bool cores = option->spec.kind == WEFT_SLICE_CORES;
        list.at[list.n++] = (weft_segment){.device = p->device,
                                           .slice_id = p->slice_id,
                                           .demand = demand,
                                           .start = cores ? (int32_t)p->slice_id : p->mig_start,
                                           .option = option,
                                           .rate_per_s = p->rate_per_s};
    }
    weft_ruin_recreate__sort(&list);
    sum_up(&list);
    *out = list;
    return true;
}

/* -- On the builder ------------------------------------------------------------------------------
 */

/* Puts segments [from, to) of one slice; `rate`: by segment. */
static bool put_slice(weft_builder *builder, uint32_t device, const weft_segment *segment,
                      uint32_t n, const double *rate)
{
    const weft_option *option[64];
    if (n > 64 || !weft_builder__put(builder, device, segment[0].start, segment[0].demand,
                                     segment[0].option, rate[0]))
        return false;
    uint32_t slice = builder->slices.len - 1;
    option[0] = segment[0].option;
    for (uint32_t i = 1; i < n; i++) {
        option[i] = segment[i].option;
        if (!weft_builder__join(builder, slice, segment[i].demand, rate[i], option))
            return false;
    }
    return true;
}

/* Puts all segments but those with rate -1 (all of a slice, or none). */
static bool put_segments(weft_builder *builder, const weft_segments *list, const double *rate)
{
    weft_builder__undo(builder, 0);
    for (uint32_t i = 0; i < list->n;) {
        uint32_t device = NONE, named = list->at[i].device;
        while (i < list->n && list->at[i].device == named) {
            uint32_t end = i + 1;
            while (end < list->n && same_slice(&list->at[i], &list->at[end]))
                end++;
            if (rate[i] >= 0) {
                const weft_option *o = list->at[i].option;
                if (device == NONE)
                    device = weft_builder__open(builder, o->row, o->spec.kind);
                if (device == NONE || !put_slice(builder, device, &list->at[i], end - i, &rate[i]))
                    return false;
            }
            i = end;
        }
    }
    return true;
}

bool weft_ruin_recreate__put(weft_builder *builder, const weft_segments *segments)
{
    double *rate = weft_arena_array(builder->arena, segments->n, sizeof *rate);
    for (uint32_t i = 0; i < segments->n; i++)
        rate[i] = segments->at[i].rate_per_s;
    return put_segments(builder, segments, rate);
}

/* -- Adding ------------------------------------------------------------------------------------ */

static double cost_of(const weft_option *o)
{
    double price = weft_fleet__price(o->row);
    return o->spec.weight * (price > 0 ? price : 1);
}

/* Carriers of the rest first: the cheapest, then the fastest. The others by ratio or capacity. */
static bool is_before(const weft_option *a, const weft_option *b, double rest, bool bulk)
{
    bool a_carries = a->peak_per_s >= rest, b_carries = b->peak_per_s >= rest;
    double x, y;
    if (bulk && a_carries != b_carries) {
        /* A carrier of little use next to the best ratio is no better than another slice. */
        x = cost_of(a) / fmin(a->peak_per_s, rest);
        y = cost_of(b) / fmin(b->peak_per_s, rest);
        if (x != y)
            return x < y;
    }
    if (a_carries != b_carries)
        return a_carries;
    x = a_carries ? cost_of(a) : bulk ? cost_of(a) / a->peak_per_s : -a->peak_per_s;
    y = b_carries ? cost_of(b) : bulk ? cost_of(b) / b->peak_per_s : -b->peak_per_s;
    return x != y ? x < y : a->exec_us < b->exec_us;
}

/* The best option of one shape for the rest: the fastest that carries it, else the strongest. */
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

/* One slice for as much as it carries; false: none has a place. */
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

/* -- The local search -------------------------------------------------------------------------- */

typedef struct attempt {
    weft_builder *builder;
    weft_segments *best;
    bool may_miss;      /* goal goodput: what finds no place is not carried */
    double *rate;       /* by segment; -1: taken away */
    double *carried;    /* by demand, scratch */
    double *need;       /* by demand: of what is taken away */
    uint32_t *segments; /* by demand: segments left */
    uint32_t *list;     /* demands with a need */
    double *weight;     /* by device: part in use */
    uint32_t *by_use;   /* devices, least used first */
} attempt;

bool weft_ruin_recreate__is_better(weft_goal goal, const weft_segments *a, const weft_segments *b)
{
    if (goal == WEFT_GOAL_GOODPUT) {
        if (a->goodput_per_s > b->goodput_per_s * (1 + 1e-9))
            return true;
        if (a->goodput_per_s < b->goodput_per_s * (1 - 1e-9))
            return false;
    }
    if (a->cost_per_hour < b->cost_per_hour * (1 - 1e-9))
        return true;
    return a->cost_per_hour <= b->cost_per_hour * (1 + 1e-9) && a->devices < b->devices;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void order_devices(attempt *a)
{
    uint32_t n = a->best->devices;
    memset(a->weight, 0, n * sizeof *a->weight);
    uint32_t device = 0;
    for (uint32_t i = 0; i < a->best->n; i++) {
        const weft_segment *p = &a->best->at[i];
        bool first = i == 0 || !same_slice(p - 1, p);
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

/* Takes the segments of the chosen devices away and fills what their models keep. */
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
        bool lone =
            (i == 0 || !same_slice(p - 1, p)) && (i + 1 == a->best->n || !same_slice(p, p + 1));
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

/* With the goal goodput, what is not carried yet is needed too. */
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

/* Part of a device that the need takes; with the goal goodput, what a device carries of it. */
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

/* What was taken away finds other places; large needs first, or the other way round. */
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
    /* The first round empties one after the other, least used first. */
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
                                 uint64_t seed, weft_segments *best)
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
        if (best->n > room) { /* never more devices than segments */
            room = best->n + 64;
            a.rate = weft_arena_array(arena, room, sizeof *a.rate);
            a.weight = weft_arena_array(arena, room, sizeof *a.weight);
            a.by_use = weft_arena_array(arena, room, sizeof *a.by_use);
        }
        order_devices(&a);
        uint32_t n_chosen = choose_devices(&a, try, &seed, chosen);
        uint32_t n = empty_devices(&a, chosen, n_chosen);
        n = a.may_miss ? add_missed(&a, n) : n;
        /* Every other round may only reshape, so that the next ones find gaps. */
        bool strict = !a.may_miss && try / EMPTIED_MAX % 2 == 0;
        if (one_kind)
            fleet[0].count = a.may_miss ? count : strict ? best->devices - 1 : best->devices;
        bool ok = put_segments(builder, best, a.rate) && place_again(&a, n, try % 4 < 2, &seed);
        if (!ok)
            continue;
        weft_segments next = weft_ruin_recreate__list(builder);
        bool same = !(next.goodput_per_s < best->goodput_per_s * (1 - 1e-9)) &&
                    next.devices <= best->devices &&
                    next.cost_per_hour <= best->cost_per_hour * (1 + 1e-9) &&
                    next.fullness > best->fullness * (1 + 1e-9);
        if (!weft_ruin_recreate__is_better(builder->problem->goal, &next, best) && !same)
            continue;
        *best = next;
    }
    fleet[0].count = count;
}
