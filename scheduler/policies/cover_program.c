/* Large sets: a bound on the price of any plan, and a plan near it, by column generation.
 *
 * A cover is a way to serve one demand: slices of its own whose peaks carry its rate, and where
 * models may share slices, a part of one more slice. The master problem chooses covers and devices:
 *
 *   minimise  sum value y  over the patterns of devices (slice_patterns.c)
 *   subject to  sum of the covers of a demand >= 1                  for each demand
 *               slots of the patterns - slices of the covers >= 0   for each kind of slot
 *               sum y <= count                                      for each row of the fleet
 *
 * It is solved as a linear program over the covers found so far. Its dual values are prices of
 * slots, at which each demand buys its cheapest covers (an integer knapsack, by depth-first
 * search); these enter the master, until no demand finds a cheaper one (P. C. Gilmore and R. E.
 * Gomory, A linear programming approach to the cutting-stock problem, Oper. Res. 9, 1961).
 *
 * Blocks. Prices are cheap to answer, the linear program is not: its time grows faster than the
 * number of its rows. Over BLOCKS_MAX demands, several share one row, and a column has a cover for
 * each of them, bought at the same prices. That needs a few more rounds and no other bound. At the
 * end the blocks that the solution divides are replaced by their demands, each with all covers that
 * it has bought, and the program is solved again.
 *
 * Bound. At any prices under which the slots of no device are worth more than the device (and a
 * surcharge s, of which each device that the fleet has is charged), a plan costs at least what the
 * demands pay: the sum of their cheapest covers less the sum of count * s. The prices of the solver
 * are made to fit exactly, so that its rounding errors do not matter. Memory and processes that
 * MPS shares and CPU slices have in common are ignored, which only lowers the bound.
 *
 * A slice in turn serves at most batch / exec for its part of the time, at batches that leave the
 * SLO room for a batch of the quickest other model. A round takes at most SLO - exec, so that a
 * batch takes at least exec / (SLO - exec) of the time: a small rest of a rate can only have small
 * batches. The part of the time for a request never rises with the rate, so that one slice in turn
 * is no dearer than several.
 *
 * Plan. A basic solution of the master has at most as many divided demands as there are slots and
 * rows, so nearly all demands have one cover. Each takes the one with the largest part;
 * portion_packing.c places the slices. These covers have slices of their own only; parts of shared
 * slices enter for the bound, afterwards. */
#include "scheduler/policies/fleet_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
    ITEMS_MAX = 64,    /* kinds of slices of a demand */
    KEPT_MAX = 6,      /* covers of a demand that one pricing keeps */
    VISITS_MAX = 3000, /* of one search of covers */
    ROUNDS_MAX = 12,   /* master problems */
    BLOCKS_MAX = 1000, /* rows for demands in a master problem */
    DIVISIONS_MAX = 3  /* of blocks */
};

static const double least_part = 1e-5;   /* as in fleet_program.c */
static const double near_best = 0.01;    /* covers this much dearer than the best are kept */
static const double enough = 1e-4;       /* relative gap of the master to the bound */
static const double refused_factor = 20; /* value of a demand that is not served, over a bound */

/* A batch of a demand that shares a slice in turn. */
typedef struct turn_batch {
    double per_s; /* bound on what it serves for all time of the slice */
    double least; /* part of the time that it takes at least: longer rounds would miss the SLO */
} turn_batch;

/* A demand on one kind of slice. */
typedef struct item {
    const weft_option *option; /* with the highest peak */
    uint32_t slot, n_turn;
    double peak_per_s;
    const turn_batch *turn;
    double turn_per_s; /* the most of its batches in turn; 0: it cannot share */
    double price;      /* of the slot at present */
} item;

typedef struct cover_part {
    uint32_t item, n;
} cover_part;

typedef struct cover {
    uint32_t n;
    const cover_part *has;
    uint32_t turn;            /* item that is used in turn; NONE: none */
    double part;              /* of its slice */
    const struct cover *next; /* of the same demand */
} cover;

/* A cover for each demand of a block. */
typedef struct block_cover {
    uint32_t block;
    const cover *const *of;
} block_cover;

typedef struct master {
    weft_builder *builder;
    const weft_solver *solver;
    weft_slice_columns columns;
    weft_slice_patterns patterns;
    item *items;
    uint32_t *first;    /* by demand: its first item; one more than there are demands */
    double unit, least; /* as in fleet_program.c */
    double *slot_price; /* by slot */
    double *surcharge;  /* by fleet row */
    uint32_t n_block;
    uint32_t *block; /* by block: its first demand in the order; one more than there are blocks */
    double *paid;    /* by block: its dual value; HUGE_VAL: none yet */
    const cover **covers; /* by demand: all that were bought */
    WEFT_VEC(block_cover) bought;
    double *used;         /* by column: its part in the last solution, */
    uint32_t n_used;      /* which had this many columns */
    struct search *found; /* of the demands of one block */
    double bound, value;  /* objectives: best bound, last master */
    bool turns;           /* whether covers may have parts of shared slices */
} master;

static double value_of(const master *m, const weft_fleet_device *row)
{
    return m->unit > 0 ? weft_fleet__price(row) / m->unit + m->least : 1;
}

/* -- Items ------------------------------------------------------------------------------------ */

/* The shortest time of a batch with one process on each shape, over the demands, and over all but
 * the first of these. */
typedef struct shortest {
    uint32_t demand;
    double us, other_us;
} shortest;

static shortest *find_shortest(const weft_builder *builder)
{
    shortest *list = weft_arena_array(builder->arena, builder->table.n_shape, sizeof *list);
    for (uint32_t i = 0; i < builder->table.n_shape; i++)
        list[i] = (shortest){NONE, HUGE_VAL, HUGE_VAL};
    for (uint32_t s = 0; s < builder->demands->n; s++) {
        uint32_t d = builder->order[s];
        for (uint32_t i = 0; i < builder->n_option[d]; i++) {
            const weft_option *o = &builder->option[d][i];
            shortest *at = &list[o->shape];
            if (o->point->procs != 1)
                continue;
            if (at->demand == d) {
                at->us = fmin(at->us, o->exec_us);
            } else if (o->exec_us < at->us) {
                *at = (shortest){d, o->exec_us, at->us};
            } else {
                at->other_us = fmin(at->other_us, o->exec_us);
            }
        }
    }
    return list;
}

/* Requests per second of an option for all time of a slice that it shares; 0: it cannot share.
 * Longer rounds than the shortest one serve no more for the same part of the time. */
static double turn_rate(const weft_builder *builder, uint32_t demand, const weft_option *o,
                        const shortest *list)
{
    const weft_rules *rules = &builder->problem->rules;
    const weft_demand *d = &builder->demands->at[demand];
    const shortest *at = &list[o->shape];
    double other_us = at->demand == demand ? at->other_us : at->us;
    double cycle_us = o->exec_us + other_us;
    if (rules->isolated || o->point->procs != 1 || !isfinite(other_us) ||
        (d->slo_us > 0 && cycle_us + o->exec_us > weft_rules__slo_us(rules, d) * (1 + 1e-9)))
        return 0;
    return weft_slo__turn_per_s(rules, d, o->point, o->exec_us, cycle_us) * cycle_us / o->exec_us;
}

/* Part of the time of a slice in turn that a batch takes at least. */
static double least_part_of(const weft_builder *builder, uint32_t demand, const weft_option *o)
{
    const weft_demand *d = &builder->demands->at[demand];
    double round_us = weft_rules__slo_us(&builder->problem->rules, d) - o->exec_us;
    return d->slo_us > 0 ? o->exec_us / round_us * (1 - 1e-9) : 0;
}

/* One item, and one column, for each demand and shape. */
static void list_items(master *m)
{
    const weft_builder *builder = m->builder;
    uint32_t n_demand = (uint32_t)builder->demands->n, n = 0;
    const shortest *quick = find_shortest(builder);
    for (uint32_t d = 0; d < n_demand; d++)
        n += builder->table.n_choice[d];
    m->items = weft_arena_array(builder->arena, n + 1, sizeof *m->items);
    m->first = weft_arena_array(builder->arena, n_demand + 1, sizeof *m->first);
    m->columns.complete = true;
    n = 0;
    for (uint32_t d = 0; d < n_demand; d++) {
        m->first[d] = n;
        for (uint32_t c = 0; c < builder->table.n_choice[d]; c++) {
            const weft_choice *all = &builder->table.choice[d][c];
            item *at = &m->items[n++];
            turn_batch *batch = weft_arena_array(builder->arena, all->n, sizeof *batch);
            *at = (item){.turn = batch};
            for (uint32_t i = 0; i < all->n; i++) {
                const weft_option *o = &builder->option[d][all->first + i];
                double turn_per_s = turn_rate(builder, d, o, quick);
                if (turn_per_s > 0)
                    batch[at->n_turn++] = (turn_batch){turn_per_s, least_part_of(builder, d, o)};
                at->turn_per_s = fmax(at->turn_per_s, turn_per_s);
                if (!at->option || o->peak_per_s > at->peak_per_s) {
                    at->option = o;
                    at->peak_per_s = o->peak_per_s;
                }
            }
            weft_turn *turn = weft_arena_array(builder->arena, 1, sizeof *turn);
            *turn = (weft_turn){d, at->option, at->peak_per_s};
            weft_slice_column column = {.shape = all->shape, .n = 1, .turn = turn};
            WEFT_VEC_PUSH(builder->arena, &m->columns.at, column);
        }
    }
    m->first[n_demand] = n;
}

/* false: the patterns do not cover the problem. */
static bool list_slots(master *m)
{
    weft_patterns__list(m->builder, &m->columns, &m->patterns);
    if (!m->patterns.complete || m->builder->problem->rules.oversubscribe ||
        m->columns.at.len != m->first[m->builder->demands->n])
        return false;
    for (uint32_t i = 0; i < m->columns.at.len; i++)
        m->items[i].slot = m->columns.at.at[i].slot;
    return true;
}

/* -- Prices ----------------------------------------------------------------------------------- */

static double sum_of(const master *m, const weft_slice_pattern *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += p->has[i].n * m->slot_price[p->has[i].slot];
    return sum;
}

/* Lowers prices until no pattern is worth more than what it takes: devices first, then the shares
 * of instances. */
static void fit_prices(master *m)
{
    uint32_t n_slot = m->patterns.slots.len;
    double *over = weft_arena_array(m->builder->arena, n_slot, sizeof *over);
    for (uint32_t nested = 0; nested < 2; nested++) {
        for (uint32_t i = 0; i < n_slot; i++)
            over[i] = 1;
        for (uint32_t k = 0; k < m->patterns.at.len; k++) {
            const weft_slice_pattern *p = &m->patterns.at.at[k];
            if ((p->inside != NONE) != (nested > 0))
                continue;
            double sum = sum_of(m, p);
            double limit =
                nested ? m->slot_price[p->inside]
                       : value_of(m, p->row) + m->surcharge[p->row - m->builder->fleet->device];
            for (uint32_t i = 0; sum > limit && i < p->n; i++)
                over[p->has[i].slot] = fmax(over[p->has[i].slot], sum / limit);
        }
        for (uint32_t i = 0; i < n_slot; i++)
            m->slot_price[i] = isfinite(over[i]) ? m->slot_price[i] / over[i] : 0;
    }
}

/* The first prices: parts of the device. */
static void start_prices(master *m)
{
    for (uint32_t i = 0; i < m->columns.at.len; i++) {
        const weft_option *o = m->items[i].option;
        m->slot_price[m->items[i].slot] = value_of(m, o->row) * o->spec.weight;
    }
    for (uint32_t i = 0; i < m->patterns.slots.len; i++) {
        const weft_slot_kind *k = &m->patterns.slots.at[i];
        if (!(m->slot_price[i] > 0) && k->mig)
            m->slot_price[i] = value_of(m, k->row) * k->mig->gpcs / k->mig->of_gpcs;
    }
    fit_prices(m);
}

/* -- Covers of one demand --------------------------------------------------------------------- */

typedef struct search {
    const master *m;
    const item *items;
    uint32_t order[ITEMS_MAX], n;     /* items by ascending price for a request */
    uint32_t turn[ITEMS_MAX], n_turn; /* items in turn, by ascending price for a request */
    double turn_ratio;                /* the least of these prices; HUGE_VAL: none */
    uint32_t count[ITEMS_MAX];        /* by place in the order */
    uint32_t visits;
    double cut; /* least bound of what was not searched */
    /* Results, by ascending cost. */
    uint32_t n_kept, most_kept;
    double cost[KEPT_MAX], part[KEPT_MAX]; /* part: of a slice in turn, 0: none */
    uint32_t kept_turn[KEPT_MAX], kept[KEPT_MAX][ITEMS_MAX];
} search;

static double ratio_of(const item *at)
{
    return at->price / at->peak_per_s;
}

static double turn_ratio_of(const item *at)
{
    return at->price / at->turn_per_s;
}

/* Least part of a slice in turn that serves a rate. */
static double turn_part(const item *at, double per_s)
{
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < at->n_turn; i++)
        least = fmin(least, fmax(per_s / at->turn[i].per_s, at->turn[i].least));
    return least;
}

/* `turn`: item of which a part is used; NONE: none. */
static void keep_cover(search *s, double cost, uint32_t turn, double part)
{
    uint32_t at = s->n_kept;
    double most = s->n_kept > 0 ? s->cost[0] * (1 + near_best) : HUGE_VAL;
    if (cost > most || (s->n_kept == s->most_kept && cost >= s->cost[s->n_kept - 1]))
        return;
    if (s->n_kept == s->most_kept)
        at = s->n_kept - 1;
    for (; at > 0 && s->cost[at - 1] > cost; at--) {
        s->cost[at] = s->cost[at - 1];
        s->part[at] = s->part[at - 1];
        s->kept_turn[at] = s->kept_turn[at - 1];
        memcpy(s->kept[at], s->kept[at - 1], sizeof s->kept[at]);
    }
    s->n_kept += s->n_kept < s->most_kept;
    s->cost[at] = cost;
    s->part[at] = part;
    s->kept_turn[at] = turn;
    memset(s->kept[at], 0, sizeof s->kept[at]);
    for (uint32_t i = 0; i < s->n; i++)
        s->kept[at][s->order[i]] = s->count[i];
}

/* Whether nothing at least this dear is wanted. */
static bool is_hopeless(const search *s, double bound)
{
    if (s->n_kept == 0)
        return false;
    double most = s->n_kept == s->most_kept ? s->cost[s->n_kept - 1] : s->cost[0] * (1 + near_best);
    return bound >= fmax(s->cost[0], fmin(most, s->cost[0] * (1 + near_best))) * (1 - 1e-9);
}

/* The cheapest cover whose rest is served in turn. */
static void keep_in_turn(search *s, double cost, double left)
{
    double least = HUGE_VAL, part = 0;
    uint32_t turn = NONE;
    for (uint32_t i = 0; i < s->n_turn; i++) {
        const item *own = &s->items[s->turn[i]];
        if (turn_ratio_of(own) * left >= least || is_hopeless(s, cost + turn_ratio_of(own) * left))
            break;
        double here = turn_part(own, left);
        if (own->price * here < least) {
            least = own->price * here;
            part = here;
            turn = s->turn[i];
        }
    }
    if (turn != NONE)
        keep_cover(s, cost + least, turn, part);
}

static void extend(search *s, uint32_t at, double left, double cost)
{
    if (left <= 0) {
        keep_cover(s, cost, NONE, 0);
        return;
    }
    keep_in_turn(s, cost, left);
    if (at == s->n)
        return;
    const item *own = &s->items[s->order[at]];
    double rest_ratio = at + 1 < s->n ? ratio_of(&s->items[s->order[at + 1]]) : HUGE_VAL;
    rest_ratio = fmin(rest_ratio, s->turn_ratio);
    uint32_t most = (uint32_t)fmin(ceil(left / own->peak_per_s * (1 - 1e-12)), 1e9);
    for (uint32_t n = most + 1; n-- > 0;) {
        double rest = left - n * own->peak_per_s, here = cost + n * own->price;
        double bound = here + (rest > 0 ? rest * rest_ratio : 0);
        if (is_hopeless(s, bound) || (rest > 0 && !isfinite(rest_ratio))) {
            if (n < most)
                break; /* fewer of the cheapest only make it dearer */
            continue;
        }
        if (s->visits++ >= VISITS_MAX) {
            /* Fewer may be cheaper than the number that carries more than is left. */
            s->cut = fmin(s->cut, rest < 0 ? cost + left * ratio_of(own) : bound);
            break;
        }
        s->count[at] = n;
        extend(s, at + 1, n == most ? fmin(rest, 0) : rest, here);
    }
    s->count[at] = 0;
}

/* Adds an item to a list by ascending ratio. */
static void insert_item(const search *s, uint32_t *list, uint32_t *n, uint32_t item_at,
                        double (*ratio)(const item *at))
{
    uint32_t at = (*n)++;
    for (; at > 0 && ratio(&s->items[item_at]) < ratio(&s->items[list[at - 1]]); at--)
        list[at] = list[at - 1];
    list[at] = item_at;
}

/* The cheapest covers of a demand at the present prices. Returns a lower bound on the price of any;
 * HUGE_VAL: there is none. */
static double find_covers(const master *m, uint32_t demand, uint32_t most_kept, search *s)
{
    uint32_t n = m->first[demand + 1] - m->first[demand];
    double rate = m->builder->demands->at[demand].rate_per_s * (1 - 1e-9);
    *s = (search){.m = m,
                  .items = m->items + m->first[demand],
                  .turn_ratio = HUGE_VAL,
                  .cut = HUGE_VAL,
                  .most_kept = most_kept};
    for (uint32_t i = 0; i < n; i++) {
        if (m->turns && s->items[i].turn_per_s > 0)
            insert_item(s, s->turn, &s->n_turn, i, turn_ratio_of);
        if (s->items[i].peak_per_s > 0)
            insert_item(s, s->order, &s->n, i, ratio_of);
    }
    if (s->n_turn > 0)
        s->turn_ratio = turn_ratio_of(&s->items[s->turn[0]]);
    if (rate > 0) {
        extend(s, 0, rate, 0);
    } else {
        keep_in_turn(s, 0, 0);
        for (uint32_t i = 0; i < s->n; i++) {
            s->count[i] = 1;
            keep_cover(s, s->items[s->order[i]].price, NONE, 0);
            s->count[i] = 0;
        }
    }
    return fmin(s->n_kept > 0 ? s->cost[0] : HUGE_VAL, s->cut);
}

/* The k-th cover that a search has found; an equal one that the demand has bought before, if there
 * is one: then *fresh is false. */
static const cover *buy_cover(master *m, uint32_t demand, const search *s, uint32_t k, bool *fresh)
{
    cover c = {.turn = s->kept_turn[k], .part = s->part[k], .next = m->covers[demand]};
    cover_part has[ITEMS_MAX];
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        if (s->kept[k][i] > 0)
            has[c.n++] = (cover_part){i, s->kept[k][i]};
    *fresh = false;
    for (const cover *old = m->covers[demand]; old; old = old->next)
        if (old->n == c.n && old->turn == c.turn && old->part == c.part &&
            memcmp(old->has, has, c.n * sizeof *has) == 0)
            return old;
    *fresh = true;
    cover_part *copy = weft_arena_array(m->builder->arena, c.n + 1, sizeof *copy);
    memcpy(copy, has, c.n * sizeof *copy);
    c.has = copy;
    cover *made = weft_arena_alloc(m->builder->arena, sizeof *made);
    *made = c;
    m->covers[demand] = made;
    return made;
}

/* Adds the columns of a block that would improve the master, from the searches of its demands: the
 * k-th has the k-th cover of each, or its last. Returns how many. */
static uint32_t buy_columns(master *m, uint32_t block, const search *found)
{
    const uint32_t *demand = &m->builder->order[m->block[block]];
    uint32_t n = m->block[block + 1] - m->block[block], most = 0, added = 0;
    for (uint32_t i = 0; i < n; i++)
        most = found[i].n_kept > most ? found[i].n_kept : most;
    for (uint32_t k = 0; k < most; k++) {
        double cost = 0;
        bool any_fresh = false;
        for (uint32_t i = 0; i < n; i++)
            cost += found[i].cost[k < found[i].n_kept ? k : found[i].n_kept - 1];
        if (!(cost < m->paid[block] * (1 - 1e-7)))
            continue;
        const cover **of = weft_arena_array(m->builder->arena, n, sizeof *of);
        for (uint32_t i = 0; i < n; i++) {
            bool fresh;
            uint32_t own = k < found[i].n_kept ? k : found[i].n_kept - 1;
            of[i] = buy_cover(m, demand[i], &found[i], own, &fresh);
            any_fresh = any_fresh || fresh;
        }
        if (n == 1 && !any_fresh)
            continue; /* each cover of a lone demand is a column */
        block_cover c = {block, of};
        WEFT_VEC_PUSH(m->builder->arena, &m->bought, c);
        added++;
    }
    return added;
}

/* Raises the bound by the present prices, and adds columns that would improve the master. Returns
 * how many; NONE: a demand has no cover. */
static uint32_t price_covers(master *m, uint32_t most_kept)
{
    uint32_t added = 0;
    double sum = 0;
    fit_prices(m);
    for (uint32_t i = 0; i < m->columns.at.len; i++)
        m->items[i].price = m->slot_price[m->items[i].slot];
    for (uint32_t b = 0; b < m->n_block; b++) {
        uint32_t n = m->block[b + 1] - m->block[b];
        for (uint32_t i = 0; i < n; i++) {
            sum += find_covers(m, m->builder->order[m->block[b] + i], most_kept, &m->found[i]);
            if (m->found[i].n_kept == 0)
                return NONE;
        }
        added += buy_columns(m, b, m->found);
    }
    for (size_t i = 0; i < m->builder->fleet->n_device; i++)
        sum -= m->builder->fleet->device[i].count * m->surcharge[i];
    m->bound = fmax(m->bound, sum);
    return added;
}

/* -- The master problem ----------------------------------------------------------------------- */

typedef struct matrix {
    weft_program p;
    uint32_t n_entry;
    uint32_t *start, *row;
    double *coeff, *cost, *upper, *row_lo, *row_hi, *x, *dual;
} matrix;

static void add_entry(matrix *a, uint32_t row, double coeff)
{
    a->row[a->n_entry] = row;
    a->coeff[a->n_entry++] = coeff;
}

/* No less than the slots that a column names. */
static uint32_t count_most(const master *m, const block_cover *c)
{
    uint32_t n = 0, n_slot = m->patterns.slots.len;
    for (uint32_t i = 0; i < m->block[c->block + 1] - m->block[c->block] && n < n_slot; i++)
        n += c->of[i]->n + 1;
    return n < n_slot ? n : n_slot;
}

/* `used`: slots whose sum is not 0, in the order in which they came. */
static void add_slots(double *sum, uint32_t *used, uint32_t *n_used, uint32_t slot, double n)
{
    if (sum[slot] == 0 && n > 0)
        used[(*n_used)++] = slot;
    sum[slot] += n;
}

static void size_matrix(const master *m, uint32_t n_col, uint32_t n_row, matrix *a)
{
    weft_arena *arena = m->builder->arena;
    size_t entries = m->n_block;
    for (uint32_t i = 0; i < m->bought.len; i++)
        entries += count_most(m, &m->bought.at[i]) + 1u;
    for (uint32_t k = 0; k < m->patterns.at.len; k++)
        entries += m->patterns.at.at[k].n + 2u;
    *a = (matrix){.start = weft_arena_array(arena, n_col + 1u, sizeof *a->start),
                  .row = weft_arena_array(arena, entries, sizeof *a->row),
                  .coeff = weft_arena_array(arena, entries, sizeof *a->coeff),
                  .cost = weft_arena_array(arena, n_col, sizeof *a->cost),
                  .upper = weft_arena_array(arena, n_col, sizeof *a->upper),
                  .row_lo = weft_arena_array(arena, n_row, sizeof *a->row_lo),
                  .row_hi = weft_arena_array(arena, n_row, sizeof *a->row_hi),
                  .x = weft_arena_array(arena, n_col, sizeof *a->x),
                  .dual = weft_arena_array(arena, n_row, sizeof *a->dual)};
}

static void add_columns(const master *m, uint32_t slot_row, matrix *a)
{
    uint32_t n_slot = m->patterns.slots.len, n_used;
    double *sum = weft_arena_array(m->builder->arena, n_slot, sizeof *sum);
    uint32_t *used = weft_arena_array(m->builder->arena, n_slot + 1u, sizeof *used);
    for (uint32_t k = 0; k < m->bought.len; k++) {
        const block_cover *c = &m->bought.at[k];
        a->start[k] = a->n_entry;
        a->upper[k] = HUGE_VAL; /* else part of the dual value of its row is that of this limit */
        add_entry(a, c->block, 1);
        n_used = 0;
        for (uint32_t i = m->block[c->block]; i < m->block[c->block + 1]; i++) {
            const cover *one = c->of[i - m->block[c->block]];
            const item *items = m->items + m->first[m->builder->order[i]];
            for (uint32_t j = 0; j < one->n; j++)
                add_slots(sum, used, &n_used, items[one->has[j].item].slot, one->has[j].n);
            if (one->turn != NONE)
                add_slots(sum, used, &n_used, items[one->turn].slot, one->part);
        }
        for (uint32_t i = 0; i < n_used; i++) {
            add_entry(a, slot_row + used[i], -sum[used[i]]);
            sum[used[i]] = 0;
        }
    }
}

static void add_devices(const master *m, uint32_t slot_row, uint32_t row_row, matrix *a)
{
    for (uint32_t k = 0; k < m->patterns.at.len; k++) {
        const weft_slice_pattern *p = &m->patterns.at.at[k];
        uint32_t col = m->bought.len + k;
        a->start[col] = a->n_entry;
        for (uint32_t i = 0; i < p->n; i++)
            add_entry(a, slot_row + p->has[i].slot, p->has[i].n);
        a->upper[col] = HUGE_VAL;
        if (p->inside != NONE) {
            add_entry(a, slot_row + p->inside, -1);
            continue;
        }
        a->cost[col] = value_of(m, p->row);
        add_entry(a, row_row + (uint32_t)(p->row - m->builder->fleet->device), 1);
    }
}

/* `refused`: value of a block that is not served; 0: all must be. */
static void make_matrix(const master *m, double refused, matrix *a)
{
    const weft_fleet *fleet = m->builder->fleet;
    uint32_t n_block = m->n_block, slot_row = n_block;
    uint32_t row_row = slot_row + m->patterns.slots.len;
    uint32_t n_row = row_row + (uint32_t)fleet->n_device;
    uint32_t own = m->bought.len + m->patterns.at.len;
    uint32_t n_col = own + (refused > 0 ? n_block : 0);
    size_matrix(m, n_col, n_row, a);
    add_columns(m, slot_row, a);
    add_devices(m, slot_row, row_row, a);
    for (uint32_t col = own; col < n_col; col++) {
        a->start[col] = a->n_entry;
        a->upper[col] = HUGE_VAL;
        a->cost[col] = refused;
        add_entry(a, col - own, 1);
    }
    a->start[n_col] = a->n_entry;
    for (uint32_t r = 0; r < n_row; r++) {
        a->row_lo[r] = r < n_block ? 1 : r < row_row ? 0 : -HUGE_VAL;
        a->row_hi[r] = r < row_row ? HUGE_VAL : fleet->device[r - row_row].count;
    }
    a->p = (weft_program){.n_col = n_col,
                          .n_row = n_row,
                          .cost = a->cost,
                          .upper = a->upper,
                          .row_lo = a->row_lo,
                          .row_hi = a->row_hi,
                          .start = a->start,
                          .row = a->row,
                          .coeff = a->coeff};
}

/* Solves the linear program, and reads its prices. */
static bool solve_master(master *m, double refused)
{
    uint32_t n_block = m->n_block, n_slot = m->patterns.slots.len;
    matrix a;
    bool found = false;
    make_matrix(m, refused, &a);
    a.p.relaxed = true;
    a.p.dual = a.dual;
    if (m->solver->solve(&a.p, a.x, &found, &m->value) != WEFT_ERR_OK || !found)
        return false;
    m->used = a.x;
    m->n_used = m->bought.len;
    memcpy(m->paid, a.dual, n_block * sizeof *m->paid);
    for (uint32_t i = 0; i < n_slot; i++)
        m->slot_price[i] = fmax(0, a.dual[n_block + i]);
    for (size_t i = 0; i < m->builder->fleet->n_device; i++)
        m->surcharge[i] = fmax(0, -a.dual[n_block + n_slot + i]);
    return true;
}

/* -- The plan --------------------------------------------------------------------------------- */

/* By block: its column with the largest part; NULL: none. *divided, if given: by block, whether it
 * uses several. */
static const block_cover **choose_columns(const master *m, bool *divided)
{
    const block_cover **list = weft_arena_array(m->builder->arena, m->n_block, sizeof *list);
    double *most = weft_arena_array(m->builder->arena, m->n_block, sizeof *most);
    for (uint32_t k = 0; k < m->n_used; k++) {
        const block_cover *c = &m->bought.at[k];
        if (divided && m->used[k] > 1e-6 && most[c->block] > 1e-6)
            divided[c->block] = true;
        if (m->used[k] > most[c->block] + 1e-9) {
            list[c->block] = c;
            most[c->block] = m->used[k];
        }
    }
    return list;
}

/* By demand. */
static const cover **choose_covers(const master *m)
{
    const cover **list = weft_arena_array(m->builder->arena, m->builder->demands->n, sizeof *list);
    const block_cover **chosen = choose_columns(m, NULL);
    for (uint32_t b = 0; b < m->n_block; b++)
        for (uint32_t i = m->block[b]; chosen[b] && i < m->block[b + 1]; i++)
            list[m->builder->order[i]] = chosen[b]->of[i - m->block[b]];
    return list;
}

/* The slices that the chosen covers say, by demand, and what each carries: all but the last of a
 * demand are full. */
static weft_portions list_portions(const master *m, const cover *const *chosen)
{
    weft_builder *builder = m->builder;
    weft_portions list = {0};
    for (uint32_t s = 0; s < builder->demands->n; s++) {
        uint32_t demand = builder->order[s];
        const cover *c = chosen[demand];
        double left = builder->demands->at[demand].rate_per_s;
        for (uint32_t i = 0; c && i < c->n; i++)
            for (uint32_t k = 0; k < c->has[i].n; k++) {
                const item *at = &m->items[m->first[demand] + c->has[i].item];
                double part = fmin(at->peak_per_s, left);
                if ((i > 0 || k > 0) && !(part > left * 1e-9))
                    break;
                left -= part;
                weft_portion portion = {demand, at->option, part};
                WEFT_VEC_PUSH(builder->arena, &list.at, portion);
            }
    }
    return list;
}

/* -- Column generation ------------------------------------------------------------------------ */

static void read_bounds(const master *m, double *cost_bound, double *device_bound)
{
    const weft_fleet *fleet = m->builder->fleet;
    double cheapest = HUGE_VAL, dearest = 0, bound = m->bound * (1 - 1e-9);
    for (size_t i = 0; i < fleet->n_device; i++) {
        cheapest = fmin(cheapest, weft_fleet__price(&fleet->device[i]));
        dearest = fmax(dearest, weft_fleet__price(&fleet->device[i]));
    }
    *cost_bound = *device_bound = 0;
    if (m->unit > 0 && cheapest > 0)
        *cost_bound = bound / (1 / m->unit + m->least / cheapest);
    if (cheapest == dearest) {
        *device_bound = ceil(bound / value_of(m, &fleet->device[0]) - 1e-6);
        *cost_bound = *device_bound * cheapest;
    }
}

/* Equal numbers of demands that follow each other in the order. */
static void make_blocks(master *m)
{
    uint32_t n = (uint32_t)m->builder->demands->n, each = (n + BLOCKS_MAX - 1) / BLOCKS_MAX;
    weft_arena *arena = m->builder->arena;
    m->block = weft_arena_array(arena, n + 1u, sizeof *m->block);
    m->paid = weft_arena_array(arena, n, sizeof *m->paid);
    m->covers = weft_arena_array(arena, n, sizeof *m->covers);
    m->found = weft_arena_array(arena, each, sizeof *m->found);
    m->n_block = (n + each - 1) / each;
    for (uint32_t b = 0; b <= m->n_block; b++)
        m->block[b] = b * each < n ? b * each : n;
}

/* Makes a block of each demand of the blocks that use several columns. false: there are none with
 * several demands. */
static bool divide_blocks(master *m)
{
    weft_arena *arena = m->builder->arena;
    bool *divided = weft_arena_array(arena, m->n_block, sizeof *divided), any = false;
    uint32_t *old = weft_arena_array(arena, m->n_block + 1u, sizeof *old);
    uint32_t *place = weft_arena_array(arena, m->n_block, sizeof *place), n = 0;
    (void)choose_columns(m, divided);
    memcpy(old, m->block, (m->n_block + 1u) * sizeof *old);
    for (uint32_t b = 0; b < m->n_block; b++) {
        divided[b] = divided[b] && old[b + 1] - old[b] > 1;
        any = any || divided[b];
        place[b] = n;
        m->block[n++] = old[b];
        for (uint32_t i = old[b] + 1; divided[b] && i < old[b + 1]; i++)
            m->block[n++] = i;
    }
    uint32_t n_old = m->n_block, kept = 0;
    m->block[n] = old[n_old];
    m->n_block = n;
    for (uint32_t k = 0; k < m->bought.len; k++) {
        block_cover c = m->bought.at[k];
        if (divided[c.block])
            continue;
        c.block = place[c.block];
        m->bought.at[kept++] = c;
    }
    m->bought.len = kept;
    for (uint32_t b = 0; b < n_old; b++)
        for (uint32_t i = old[b]; divided[b] && i < old[b + 1]; i++)
            for (const cover *one = m->covers[m->builder->order[i]]; one; one = one->next) {
                const cover **of = weft_arena_array(arena, 1, sizeof *of);
                block_cover c = {place[b] + i - old[b], of};
                of[0] = one;
                WEFT_VEC_PUSH(arena, &m->bought, c);
            }
    return any;
}

/* By demand, its cover, after blocks have been divided until the solution divides none with several
 * demands. */
static const cover **settle_blocks(master *m)
{
    const cover **chosen = choose_covers(m);
    for (uint32_t i = 0; i < DIVISIONS_MAX && divide_blocks(m) && solve_master(m, 0); i++)
        chosen = choose_covers(m);
    return chosen;
}

static bool start_master(weft_builder *builder, const weft_solver *solver, master *m)
{
    const weft_fleet *fleet = builder->fleet;
    double sum = 0, count = 0;
    *m = (master){.builder = builder, .solver = solver};
    for (size_t i = 0; i < fleet->n_device; i++) {
        sum += weft_fleet__price(&fleet->device[i]);
        count += fleet->device[i].count;
    }
    m->unit = fleet->n_device > 0 ? sum / (double)fleet->n_device : 0;
    m->least = count <= 1e4 ? least_part : 0;
    for (uint32_t d = 0; d < builder->demands->n; d++)
        if (builder->table.n_choice[d] > ITEMS_MAX)
            return false;
    list_items(m);
    if (builder->demands->n == 0 || !list_slots(m))
        return false;
    m->slot_price = weft_arena_array(builder->arena, m->patterns.slots.len, sizeof *m->slot_price);
    m->surcharge = weft_arena_array(builder->arena, fleet->n_device, sizeof *m->surcharge);
    make_blocks(m);
    start_prices(m);
    return true;
}

/* Rounds of master and prices; false: a demand has no cover. */
static bool generate(master *m, uint32_t rounds)
{
    for (uint32_t b = 0; b < m->n_block; b++)
        m->paid[b] = HUGE_VAL;
    uint32_t added = price_covers(m, KEPT_MAX);
    if (added == NONE)
        return false;
    double refused = m->bound * refused_factor;
    for (uint32_t i = 0; i < rounds && added > 0 && solve_master(m, refused); i++) {
        added = price_covers(m, 2);
        if (m->value <= m->bound * (1 + enough))
            break;
    }
    return true;
}

weft_portions weft_covers__solve(weft_builder *builder, const weft_solver *solver, bool bound_only,
                                 double *cost_bound, double *device_bound)
{
    master *m = weft_arena_array(builder->arena, 1, sizeof *m);
    bool isolated = builder->problem->rules.isolated;
    weft_portions list = {0};
    *cost_bound = *device_bound = 0;
    if (!start_master(builder, solver, m))
        return list;
    if ((isolated || !bound_only) && generate(m, ROUNDS_MAX) && m->used && !bound_only)
        list = list_portions(m, settle_blocks(m));
    if (!isolated) {
        m->turns = true;
        m->bound = 0;
        if (!generate(m, ROUNDS_MAX))
            m->bound = 0;
    }
    read_bounds(m, cost_bound, device_bound);
    return list;
}
