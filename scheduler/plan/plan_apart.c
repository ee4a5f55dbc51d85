/* Plans whose models keep their rates when a failure domain is lost, by any policy.
 *
 * The domains of the level in question (nodes, racks or zones) are dealt out to sides, and the
 * policy plans each side as a problem of its own, with the part of the rates that the side gets:
 *
 * - a model that has to survive the loss of a domain gets r / (k - 1) on each of k sides: without
 * any one of them the others carry r. A domain is in one side only. k is what needs the fewest
 * slices of the model's best kind: 2 for small models, more for large ones, whose spare capacity is
 * then 1 / (k - 1) of their rate
 * - a model that only has to be in two domains gets r / 2 on each of two sides
 * - any other is on one side, or (second try) in parts on all of them
 *
 * Large models choose first, the side whose devices have the least load so far. The number of sides
 * is tried (2, 3, 4, 6, 8; of many models 2, 4, 8): the best plan stays. Afterwards each model's
 * rate is divided over all its placements in proportion, and each device gets a place of its side,
 * devices that are split in one way together on nodes as far as there are enough.
 *
 * With a plan in force that has places, a side gets what it has on the devices of the side as its
 * own plan in force, with the rates that its side had to carry, models stay on their sides before
 * loads count, and devices that keep work keep their place. With another number of sides most of it
 * would move, so that plans of all numbers of sides are compared with their moves priced as in
 * policy_weft.c.
 *
 * The bounds of the plan are those without failures. Not the least plan: sides are fixed before the
 * policy plans, and a model that rounds up does so on each of its sides. For the same reason a
 * refusal does not show that there is no plan, unless there is none without failures; families,
 * which are placed apart, might make one possible. */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include "base/hash.h"
#include "base/map.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES_MAX = 8, MANY_MODELS = 200 };

typedef struct apart {
    const weft_policy *policy;
    const weft_problem *problem;
    weft_arena *arena;
    weft_diag *diag;
    weft_domain level;
    weft_option_table table;
    weft_demand_index index;
} apart;

/* -- What is asked for ------------------------------------------------------------------------- */

static weft_domain larger(weft_domain a, weft_domain b)
{
    return a > b ? a : b;
}

weft_domain weft_plan__apart(const weft_problem *problem)
{
    weft_domain level = problem->rules.survive;
    for (size_t i = 0; i < problem->demands->n; i++)
        level = larger(level, problem->demands->at[i].spread);
    return level;
}

static weft_err refuse(const apart *a, const char *why)
{
    return weft_diag_error(a->diag, WEFT_ERR_UNSUP, (weft_where){.item = a->policy->name},
                           "cannot plan for failures of a %s: %s", weft_domain_name(a->level), why);
}

static weft_err check_problem(const apart *a)
{
    const weft_problem *p = a->problem;
    uint32_t most = 0;
    for (size_t i = 0; i < p->fleet->n_device; i++) {
        const weft_fleet_device *row = &p->fleet->device[i];
        uint32_t per = row->per_domain[a->level];
        if (!per)
            return weft_diag_error(a->diag, WEFT_ERR_INPUT,
                                   (weft_where){.file = p->fleet->file, .item = row->type},
                                   "the fleet does not say how many devices a %s has (per_%s)",
                                   weft_domain_name(a->level), weft_domain_name(a->level));
        most = row->count > per ? most + 1 : most;
    }
    if (a->policy->state_size > 0)
        return refuse(a, "it keeps a state from plan to plan");
    if (p->n_app > 0)
        return refuse(a, "it chooses the variants of apps itself");
    if (p->goal != WEFT_GOAL_COST)
        return refuse(a, "every rate has to be served, which the goal does not ask for");
    if (weft_interference__any(&p->rules.interference))
        return refuse(a, "interference after a failure is not known");
    if (most == 0)
        return weft_diag_error(a->diag, WEFT_ERR_INFEASIBLE, (weft_where){.file = p->fleet->file},
                               "no device type is in more than one %s", weft_domain_name(a->level));
    return WEFT_ERR_OK;
}

/* -- Sides of a model -------------------------------------------------------------------------- */

/* Requests per second of the slice of a demand that needs the least of a device for each. */
static double best_capacity(const apart *a, uint32_t d, double *need)
{
    double best = 0;
    *need = HUGE_VAL;
    for (uint32_t i = 0; i < a->table.n_option[d]; i++) {
        const weft_option *o = &a->table.option[d][i];
        if (o->peak_per_s > 0 && o->spec.weight / o->peak_per_s < *need) {
            *need = o->spec.weight / o->peak_per_s;
            best = o->peak_per_s;
        }
    }
    return best;
}

/* How many of n sides a demand is on. */
static uint32_t count_sides(const apart *a, const weft_demand *d, double capacity, uint32_t n)
{
    if (a->problem->rules.survive == WEFT_DOMAIN_NONE)
        return d->spread == WEFT_DOMAIN_NONE ? 1 : 2;
    uint32_t best = 2;
    double least = HUGE_VAL;
    for (uint32_t k = 2; k <= n; k++) {
        double slices = capacity > 0 ? k * fmax(1, ceil(d->rate_per_s / (k - 1) / capacity)) : k;
        if (slices < least) {
            least = slices;
            best = k;
        }
    }
    return best;
}

/* A place of a fleet: device `index` of a row. */
typedef struct place {
    const weft_fleet_device *row; /* NULL: none */
    uint32_t index;
} place;

typedef struct side {
    weft_demand *demand;
    weft_demands demands;
    weft_fleet fleet;
    double devices;
    double load; /* of its devices; HUGE_VAL: it has none */
    weft_plan plan;
    weft_plan kept;  /* what the plan in force has here; its devices have numbers of their own */
    place *kept_at;  /* of its devices */
    uint32_t n_kept; /* devices */
    bool *has;       /* demands that it serves */
} side;

/* -- The plan in force ------------------------------------------------------------------------- */

/* Where a placement of the plan in force is: by the name of its node. */
static place find_place(const apart *a, const weft_placement *p)
{
    const weft_fleet_device *row = weft_fleet__row(a->problem->fleet, p->type);
    size_t len = strlen(p->type);
    int64_t node;
    uint32_t per_node = row ? row->per_domain[WEFT_DOMAIN_NODE] : 0;
    if (!row || !p->where.node || strncmp(p->where.node, p->type, len) != 0 ||
        p->where.node[len] != '-' || !weft_parse_i64(p->where.node + len + 1, &node) || node < 0 ||
        node >= row->count || p->where.gpu >= per_node) /* it may be a plan of another fleet */
        return (place){0};
    uint64_t index = (uint64_t)node * per_node + p->where.gpu;
    return index < row->count ? (place){row, (uint32_t)index} : (place){0};
}

/* Of a device that was lost: n, which is none. */
static uint32_t side_of(const apart *a, const weft_fleet_device *row, uint32_t i, uint32_t n)
{
    return weft_fleet__is_lost(row, i) ? n : i / row->per_domain[a->level] % n;
}

/* A plan says what each placement carries while nothing has failed; a side was planned for what it
 * carries without another side. */
static void raise_kept(const apart *a, side *s, uint32_t n)
{
    for (uint32_t j = 0; j < n; j++)
        for (size_t i = 0; i < s[j].kept.n; i++) {
            weft_placement *p = &s[j].kept.at[i];
            uint32_t d = weft_demands__find(&a->index, p->model), k = 0;
            for (uint32_t of = 0; of < n; of++)
                k += s[of].has[d];
            if (k > 1)
                p->rate_per_s *= k / (k - 1.0);
        }
}

/* Deals the plan in force to the sides. Where it says that two devices are one, the first is. */
static void deal_kept(const apart *a, side *s, uint32_t n)
{
    const weft_plan *all = a->problem->previous;
    uint32_t *number = weft_arena_array(a->arena, (size_t)all->gpus + 1, sizeof *number);
    weft_map *taken = weft_map_create(a->arena);
    for (uint32_t j = 0; j < n; j++) {
        s[j].kept = *all;
        s[j].kept.n = 0;
        s[j].kept.rules.survive = WEFT_DOMAIN_NONE; /* as those of a side's problem */
        s[j].kept.at = weft_arena_array(a->arena, all->n + 1, sizeof *s[j].kept.at);
        s[j].kept_at = weft_arena_array(a->arena, (size_t)all->gpus + 1, sizeof *s[j].kept_at);
        s[j].has = weft_arena_array(a->arena, a->problem->demands->n + 1, sizeof *s[j].has);
    }
    for (size_t i = 0; i < all->n; i++) {
        weft_placement p = all->at[i];
        place at = find_place(a, &p);
        uint32_t d = weft_demands__find(&a->index, p.model);
        uint32_t j = at.row ? side_of(a, at.row, at.index, n) : n;
        if (j >= n || d == UINT32_MAX || p.device >= all->gpus) /* lost, or no longer asked for */
            continue;
        if (!number[p.device]) {
            uint64_t key = (uint64_t)(at.row - a->problem->fleet->device) << 32 | at.index, unused;
            if (weft_map_get(taken, key, &unused))
                continue;
            weft_map_put(taken, key, 1);
            s[j].kept_at[s[j].n_kept] = at;
            number[p.device] = ++s[j].n_kept;
        }
        const place *own = &s[j].kept_at[number[p.device] - 1];
        if (own->row != at.row || own->index != at.index) /* it says of a device that it is two */
            continue;
        p.device = number[p.device] - 1;
        s[j].has[d] = true;
        s[j].kept.at[s[j].kept.n++] = p;
    }
    for (uint32_t j = 0; j < n; j++)
        s[j].kept.gpus = s[j].n_kept;
    if (all->rules.survive != WEFT_DOMAIN_NONE)
        raise_kept(a, s, n);
}

/* What a placement does, and on which device. */
static uint64_t key_of(const weft_placement *p)
{
    const uint32_t where[] = {p->device, (uint32_t)p->mig_start};
    uint64_t key = weft_hash64(where, sizeof where, 0);
    key = weft_hash64(p->slice, strlen(p->slice), key);
    return weft_hash64(p->model, strlen(p->model), key);
}

/* Whether a demand goes to side x rather than y: where it is, else where there is less load. */
static bool is_before(const side *x, const side *y, uint32_t d)
{
    bool x_has = x->has && x->has[d], y_has = y->has && y->has[d];
    return x_has != y_has ? x_has : x->load < y->load;
}

/* -- Demands --------------------------------------------------------------------------------- */

/* What a demand takes. */
typedef struct need {
    uint32_t demand;
    uint32_t rank;   /* in the order of names */
    double capacity; /* of its best slice, per second */
    double part;     /* of a device for a request per second there; HUGE_VAL: it has no slice */
    double devices;  /* a whole slice at least */
} need;

static int compare_needs(const void *x, const void *y)
{
    const need *p = x, *q = y;
    if (p->devices != q->devices)
        return p->devices > q->devices ? -1 : 1;
    return (p->rank > q->rank) - (p->rank < q->rank);
}

static need *list_needs(const apart *a)
{
    const weft_demands *all = a->problem->demands;
    need *list = weft_arena_array(a->arena, all->n + 1, sizeof *list);
    for (uint32_t i = 0; i < all->n; i++) {
        need *one = &list[i];
        *one = (need){.demand = a->index.by_name[i], .rank = i};
        one->capacity = best_capacity(a, one->demand, &one->part);
        if (isfinite(one->part))
            one->devices = fmax(all->at[one->demand].rate_per_s, one->capacity) * one->part;
    }
    if (all->n > 0)
        qsort(list, all->n, sizeof *list, compare_needs);
    return list;
}

static void give(const apart *a, const need *one, double rate_per_s, side *s)
{
    weft_demand part = a->problem->demands->at[one->demand];
    part.rate_per_s = rate_per_s;
    if (isfinite(one->part))
        s->load += fmax(rate_per_s, one->capacity) * one->part / s->devices;
    s->demand[s->demands.n++] = part;
}

/* Gives k of n sides a rate each, those with the least load. */
static void give_sides(const apart *a, const need *one, uint32_t k, double rate_per_s, side *s,
                       uint32_t n)
{
    bool taken[SIDES_MAX] = {false};
    for (; k > 0; k--) {
        uint32_t least = n;
        for (uint32_t j = 0; j < n; j++)
            if (!taken[j] && (least == n || is_before(&s[j], &s[least], one->demand)))
                least = j;
        taken[least] = true;
        give(a, one, rate_per_s, &s[least]);
    }
}

/* `wide`: a model that needs several slices is on all sides, if it need not survive. */
static void deal_demands(const apart *a, bool wide, side *s, uint32_t n)
{
    const need *list = list_needs(a);
    bool survives = a->problem->rules.survive != WEFT_DOMAIN_NONE;
    double devices = 0;
    for (uint32_t j = 0; j < n; j++) {
        devices += s[j].devices;
        s[j].load = s[j].devices > 0 ? 0 : HUGE_VAL;
        wide = wide && s[j].devices > 0;
    }
    for (size_t i = 0; i < a->problem->demands->n; i++) {
        const need *one = &list[i];
        const weft_demand *d = &a->problem->demands->at[one->demand];
        if (wide && !survives && d->rate_per_s > one->capacity) {
            for (uint32_t j = 0; j < n; j++)
                give(a, one, d->rate_per_s * s[j].devices / devices, &s[j]);
            continue;
        }
        uint32_t k = count_sides(a, d, one->capacity, n);
        give_sides(a, one, k, d->rate_per_s / (survives ? k - 1 : k), s, n);
    }
}

/* -- Places ------------------------------------------------------------------------------------ */

static void deal_devices(const apart *a, side *s, uint32_t n)
{
    const weft_fleet *fleet = a->problem->fleet;
    for (uint32_t j = 0; j < n; j++) {
        weft_fleet_device *row = weft_arena_array(a->arena, fleet->n_device, sizeof *row);
        s[j].fleet = (weft_fleet){.file = fleet->file, .device = row};
        for (size_t r = 0; r < fleet->n_device; r++) {
            weft_fleet_device one = fleet->device[r];
            one.count = 0;
            for (uint32_t i = 0; i < fleet->device[r].count; i++)
                one.count += side_of(a, &fleet->device[r], i, n) == j;
            s[j].devices += one.count;
            if (one.count > 0)
                row[s[j].fleet.n_device++] = one;
        }
    }
}

/* A device of a side's plan. */
typedef struct placed {
    uint32_t device;
    int kind; /* how it is split */
    const weft_fleet_device *row;
    bool stays; /* where the plan in force has it */
    weft_location where;
} placed;

static int order_placed(const void *x, const void *y)
{
    const placed *p = x, *q = y;
    int order = strcmp(p->row->type, q->row->type);
    if (order)
        return order;
    if (p->stays != q->stays)
        return p->stays ? -1 : 1;
    if (p->kind != q->kind)
        return p->kind < q->kind ? -1 : 1;
    return (p->device > q->device) - (p->device < q->device);
}

static int kind_of(const weft_placement *p)
{
    return p->mig_start >= 0 ? 2 : strchr(p->slice, '%') ? 1 : 0;
}

/* Free devices of a side in a row. */
typedef struct free_places {
    const apart *a;
    const weft_fleet_device *row;
    const bool *taken;
    uint32_t side, n_side;
} free_places;

static bool is_free(const free_places *f, uint32_t i)
{
    return side_of(f->a, f->row, i, f->n_side) == f->side && !f->taken[i];
}

static uint32_t next_free(const free_places *f, uint32_t at)
{
    while (at < f->row->count && !is_free(f, at))
        at++;
    return at;
}

/* Gives the devices of one type places of side j; those that stay are the first, and have them. */
static void place_type(const apart *a, const side *s, placed *d, uint32_t n_d, uint32_t j,
                       uint32_t n)
{
    const weft_fleet_device *row = d->row;
    uint32_t at = 0, per_node = row->per_domain[WEFT_DOMAIN_NODE], first = 0;
    bool *taken = weft_arena_array(a->arena, (size_t)row->count + 1, sizeof *taken);
    const free_places f = {.a = a, .row = row, .taken = taken, .side = j, .n_side = n};
    for (; first < n_d && d[first].stays; first++) {
        uint32_t index = s->kept_at[d[first].device].index;
        d[first].where = weft_fleet__location(row, index, a->arena);
        taken[index] = true;
    }
    d += first;
    n_d -= first;
    for (uint32_t i = 0; i < n_d; i++) {
        at = next_free(&f, at);
        if (i > 0 && d[i].kind != d[i - 1].kind && at % per_node != 0) {
            uint32_t skip = at + per_node - at % per_node, left = 0;
            for (uint32_t k = skip; k < row->count; k++)
                left += is_free(&f, k);
            at = left >= n_d - i ? next_free(&f, skip) : at;
        }
        d[i].where = weft_fleet__location(row, at++, a->arena);
    }
}

/* Adds the placements of side j to a plan, behind `n_device` devices. Returns their number with
 * those of the side. */
static uint32_t add_side(const apart *a, const side *s, uint32_t j, uint32_t n, uint32_t n_device,
                         weft_plan *out)
{
    uint32_t gpus = 0;
    for (size_t i = 0; i < s->plan.n; i++)
        gpus = s->plan.at[i].device + 1 > gpus ? s->plan.at[i].device + 1 : gpus;
    placed *d = weft_arena_array(a->arena, gpus + 1, sizeof *d);
    weft_location *where = weft_arena_array(a->arena, gpus + 1, sizeof *where);
    weft_map *kept = weft_map_create(a->arena);
    uint64_t unused;
    for (size_t i = 0; i < s->plan.n; i++) {
        const weft_placement *p = &s->plan.at[i];
        d[p->device] = (placed){.device = p->device,
                                .kind = kind_of(p),
                                .row = weft_fleet__row(a->problem->fleet, p->type)};
    }
    for (size_t i = 0; i < s->kept.n; i++)
        weft_map_put(kept, key_of(&s->kept.at[i]), 1);
    for (size_t i = 0; i < s->plan.n; i++) {
        placed *at = &d[s->plan.at[i].device];
        if (at->device < s->n_kept && s->kept_at[at->device].row == at->row &&
            weft_map_get(kept, key_of(&s->plan.at[i]), &unused))
            at->stays = true;
    }
    if (gpus > 0)
        qsort(d, gpus, sizeof *d, order_placed);
    for (uint32_t i = 0, end; i < gpus; i = end) {
        for (end = i; end < gpus && d[end].row == d[i].row;)
            end++;
        place_type(a, s, &d[i], end - i, j, n);
    }
    for (uint32_t i = 0; i < gpus; i++)
        where[d[i].device] = d[i].where;
    for (size_t i = 0; i < s->plan.n; i++) {
        weft_placement p = s->plan.at[i];
        p.where = where[p.device];
        p.device += n_device;
        out->at[out->n++] = p;
    }
    return n_device + gpus;
}

/* -- Plans ------------------------------------------------------------------------------------- */

/* Divides the rate of each model over its placements as its sides have it. */
static void scale_rates(const apart *a, weft_plan *plan)
{
    double *sum = weft_arena_array(a->arena, a->problem->demands->n + 1, sizeof *sum);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < plan->n; i++) {
            weft_placement *p = &plan->at[i];
            uint32_t d = weft_demands__find(&a->index, p->model);
            double rate = a->problem->demands->at[d].rate_per_s;
            if (pass == 0)
                sum[d] += p->rate_per_s;
            else
                p->rate_per_s = sum[d] > 0 ? p->rate_per_s / sum[d] * rate : 0;
        }
}

/* keep: what is in force stays as far as it can. */
static weft_err plan_sides(const apart *a, uint32_t n, bool wide, bool keep, weft_diag *diag,
                           weft_plan *out)
{
    side s[SIDES_MAX] = {0};
    size_t n_placed = 0;
    for (uint32_t j = 0; j < n; j++) {
        s[j].demand = weft_arena_array(a->arena, a->problem->demands->n + 1, sizeof *s[j].demand);
        s[j].demands.at = s[j].demand;
    }
    if (keep)
        deal_kept(a, s, n);
    deal_devices(a, s, n);
    deal_demands(a, wide, s, n);
    for (uint32_t j = 0; j < n; j++) {
        weft_problem part = *a->problem;
        part.demands = &s[j].demands;
        part.fleet = &s[j].fleet;
        part.n_family = 0;
        part.previous = s[j].kept.n > 0 ? &s[j].kept : NULL;
        part.rules.survive = WEFT_DOMAIN_NONE;
        if (s[j].demands.n > 0)
            WEFT_TRY(a->policy->place(NULL, &part, a->arena, diag, &s[j].plan));
        n_placed += s[j].plan.n;
    }
    weft_plan plan = {.policy = a->policy->name,
                      .rules = a->problem->rules,
                      .goal = a->problem->goal,
                      .at = weft_arena_array(a->arena, n_placed + 1, sizeof *plan.at)};
    for (uint32_t j = 0, devices = 0; j < n; j++)
        devices = add_side(a, &s[j], j, n, devices, &plan);
    scale_rates(a, &plan);
    weft_plan_derive(&plan, a->problem, a->arena);
    *out = plan;
    return WEFT_ERR_OK;
}

/* The refusal of two sides, after that of the whole problem without failures if there is one. */
static weft_err refuse_apart(const apart *a, weft_plan *out)
{
    weft_problem whole = *a->problem;
    weft_demand *demand = weft_arena_array(a->arena, whole.demands->n + 1, sizeof *demand);
    weft_demands demands = {demand, whole.demands->n};
    for (size_t i = 0; i < demands.n; i++) {
        demand[i] = whole.demands->at[i];
        demand[i].spread = WEFT_DOMAIN_NONE;
    }
    whole.demands = &demands;
    whole.n_family = 0;
    whole.previous = NULL;
    whole.rules.survive = WEFT_DOMAIN_NONE;
    weft_err err = a->policy->place(NULL, &whole, a->arena, a->diag, out);
    if (err == WEFT_ERR_INFEASIBLE && a->problem->n_family > 0)
        weft_diag_note(a->diag, (weft_where){0},
                       "families run apart in plans for failures; it does not show that there is "
                       "no plan");
    if (err != WEFT_ERR_OK)
        return err;
    err = plan_sides(a, 2, false, false, a->diag, out);
    if (err == WEFT_ERR_INFEASIBLE)
        weft_diag_note(a->diag, (weft_where){0},
                       "this is one of two parts of the %ss, which are planned alone; it does not "
                       "show that there is no plan",
                       weft_domain_name(a->level));
    return err;
}

/* What a placement does, and where. */
static uint64_t key_at(const weft_placement *p)
{
    weft_placement one = *p;
    const char *node = p->where.node ? p->where.node : "";
    one.device = p->where.gpu;
    return weft_hash64(node, strlen(node), key_of(&one) + weft_hash_mix(p->batch, p->procs));
}

/* Placements of a plan that do not run where it has them. */
static size_t count_starts(const apart *a, const weft_plan *plan)
{
    const weft_plan *previous = a->problem->previous;
    weft_map *running = weft_map_create(a->arena);
    size_t n_start = 0;
    for (size_t i = 0; i < previous->n; i++) {
        uint64_t key = key_at(&previous->at[i]), n = 0;
        (void)weft_map_get(running, key, &n);
        weft_map_put(running, key, n + 1);
    }
    for (size_t i = 0; i < plan->n; i++) {
        uint64_t key = key_at(&plan->at[i]), n = 0;
        if (weft_map_get(running, key, &n) && n > 0)
            weft_map_put(running, key, n - 1);
        else
            n_start++;
    }
    return n_start;
}

/* Devices' worth of a plan and of what starts for it. */
static double price_of(const apart *a, const weft_plan *plan)
{
    const weft_plan *previous = a->problem->previous;
    double device_per_hour = previous->gpus > 0 ? previous->cost_per_hour / previous->gpus : 0;
    double devices = device_per_hour > 0 && plan->cost_per_hour > 0
                         ? plan->cost_per_hour / device_per_hour
                         : plan->gpus;
    return devices + WEFT_PLAN_MOVE_DEVICES * (double)count_starts(a, plan);
}

static bool is_better(const apart *a, const weft_plan *plan, const weft_plan *than)
{
    const weft_plan *previous = a->problem->previous;
    if (previous && previous->n > 0 && previous->at[0].where.node) {
        double saved = price_of(a, than) - price_of(a, plan);
        if (fabs(saved) > 1e-6)
            return saved > 0;
    }
    return weft_plan__is_better(plan, than, a->problem->goal);
}

/* The best plan of all numbers of sides, if one is found. NOMEM. */
static weft_err try_sides(const apart *a, uint32_t most, bool keep, bool *found, weft_plan *out)
{
    static const uint32_t sides[] = {2, 3, 4, 6, 8};
    const weft_problem *problem = a->problem;
    for (size_t i = 0; i < 2 * (sizeof sides / sizeof sides[0]); i++) {
        weft_plan plan;
        uint32_t n = sides[i / 2];
        bool wide = i % 2 > 0;
        if (n > most || (problem->demands->n > MANY_MODELS && n % 3 == 0) ||
            (wide && problem->rules.survive != WEFT_DOMAIN_NONE))
            continue;
        weft_diag *unheard = weft_diag_create();
        weft_err err = unheard ? plan_sides(a, n, wide, keep, unheard, &plan) : WEFT_ERR_NOMEM;
        weft_diag_destroy(unheard);
        if (err == WEFT_ERR_NOMEM)
            return err;
        if (err != WEFT_ERR_OK || (*found && !is_better(a, &plan, out)))
            continue;
        *found = true;
        *out = plan;
    }
    return WEFT_ERR_OK;
}

weft_err weft_plan__decide_apart(const weft_policy *policy, const weft_problem *problem,
                                 weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    apart a = {.policy = policy,
               .problem = problem,
               .arena = arena,
               .diag = diag,
               .level = weft_plan__apart(problem),
               .index = weft_demands__index(problem->demands, arena)};
    uint32_t most = 0;
    bool found = false;
    WEFT_TRY(check_problem(&a));
    weft_option_table__build(problem, arena, &a.table);
    for (size_t i = 0; i < problem->fleet->n_device; i++) {
        const weft_fleet_device *row = &problem->fleet->device[i];
        uint32_t per = row->per_domain[a.level], n = (row->count + per - 1) / per;
        most = n > most ? n : most;
    }
    if (problem->previous)
        WEFT_TRY(try_sides(&a, most, true, &found, out));
    if (!found) /* all anew: what stays on a side can be too much for it */
        WEFT_TRY(try_sides(&a, most, false, &found, out));
    return found ? WEFT_ERR_OK : refuse_apart(&a, out);
}
