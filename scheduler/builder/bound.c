/* Bounds: devices, and dollars, that any plan within the rules needs.
 *
 * Every option takes a part of its device (`weight`; the parts on one device never exceed 1) and
 * carries at most its peak, or batch / exec in its part of the time of a shared slice. So a
 * model with rate r takes at least r * min(weight / peak) devices; the sum over models, rounded up,
 * is the fractional bound.
 *
 * Slices of its own a model takes whole, and a slice in turn with others has one process a model
 * and at most all of its time: sum over its models of r * exec / batch <= 1. So of what whole
 * slices leave of r, each request a second takes at least min(weight * exec / batch) over points
 * with one process (nothing may be left with the rule `isolated`). The least weight that carries r
 * in whole slices is a knapsack, best(g) = max over options of best(g - weight) + peak, least g
 * with best(g) >= r. In units of MIG compute slots this is `min GPCs` (reference: exact form of
 * ParvaGPU's problem), and the bound is ceil(sum of min GPCs / 7).
 *
 * With the goal goodput nothing has to be carried, and the bounds are 0. Oversubscribed MPS shares
 * take no part of a device but one of its 48 clients a process. */
#include "scheduler/builder/builder.h"

#include <math.h>

/* Weights as multiples of 1/UNITS of a device: percentages, sevenths and quarters are whole. */
enum { UNITS = 700, KNAPSACK_MAX = 1 << 16, KNAPSACK_STEPS_MAX = 1 << 18 };

static double weight_of(const weft_rules *rules, const weft_option *o)
{
    bool shares = o->spec.kind == WEFT_SLICE_MPS || weft_fleet_slice__is_nested(&o->spec);
    if (rules->oversubscribe && shares)
        return fmin(o->spec.weight, (double)o->point->procs / WEFT_MPS_CLIENTS_MAX);
    return o->spec.weight;
}

/* In turn with other models a point serves batch / exec in its part of the time, whatever was
 * measured; such slices have one process a model. 0: not in turn. */
static double turn_of(const weft_rules *rules, const weft_option *o)
{
    return rules->isolated || o->point->procs != 1 ? 0 : o->point->batch * 1e6 / o->exec_us;
}

static double peak_of(const weft_rules *rules, const weft_option *o)
{
    return fmax(o->peak_per_s, turn_of(rules, o));
}

/* Least part of a device for a request a second in turn with others; HUGE_VAL: not possible. */
static double least_turn(const weft_option_table *table, uint32_t demand)
{
    const weft_rules *rules = &table->problem->rules;
    double least = HUGE_VAL;
    for (uint32_t i = 0; i < table->n_option[demand]; i++) {
        const weft_option *o = &table->option[demand][i];
        if (turn_of(rules, o) > 0)
            least = fmin(least, weight_of(rules, o) / turn_of(rules, o));
    }
    return least;
}

/* Least of weight / peak, times a price or not, over the options; 0: no option. */
static double least_ratio(const weft_option_table *table, uint32_t demand, bool priced)
{
    const weft_rules *rules = &table->problem->rules;
    double least = 0;
    for (uint32_t i = 0; i < table->n_option[demand]; i++) {
        const weft_option *o = &table->option[demand][i];
        double ratio = weight_of(rules, o) / peak_of(rules, o);
        if (priced)
            ratio *= weft_fleet__price(o->row);
        if (i == 0 || ratio < least)
            least = ratio;
    }
    return least;
}

/* -- Whole slices ----------------------------------------------------------------------------- */

typedef struct item {
    uint32_t units;
    double peak;
} item;

/* The best peak of each weight; n 0 when a weight is no whole number of units. */
static uint32_t list_items(const weft_option_table *table, uint32_t demand, item *out)
{
    const weft_rules *rules = &table->problem->rules;
    double best[UNITS + 1] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n_option[demand]; i++) {
        const weft_option *o = &table->option[demand][i];
        double units = weight_of(rules, o) * UNITS, whole = round(units);
        if (fabs(units - whole) > 1e-6 || whole < 1 || whole > UNITS)
            return 0;
        best[(uint32_t)whole] = fmax(best[(uint32_t)whole], o->peak_per_s);
    }
    for (uint32_t u = 1; u <= UNITS; u++)
        if (best[u] > 0)
            out[n++] = (item){u, best[u]};
    return n;
}

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Least part of devices, in whole slices and in turns, that carries the rate; at least `fraction`.
 */
static double least_slices(const weft_option_table *table, uint32_t demand, double fraction,
                           weft_arena *arena)
{
    item items[UNITS];
    double rate = table->problem->demands->at[demand].rate_per_s * (1 - 1e-9);
    uint32_t n = list_items(table, demand, items), unit = 0;
    for (uint32_t i = 0; i < n; i++)
        unit = gcd(unit, items[i].units);
    if (n == 0 || !(fraction < 1e6))
        return fraction;
    /* One more of the slice with the best ratio always carries the rest. */
    double top = (fraction + 1) * UNITS / unit + 1;
    if (top > KNAPSACK_MAX || top * n > KNAPSACK_STEPS_MAX)
        return fraction;
    double *best = weft_arena_array(arena, (size_t)top + 1, sizeof *best);
    double turn = least_turn(table, demand), least = HUGE_VAL;
    for (uint32_t g = 0; g <= (uint32_t)top; g++) {
        for (uint32_t i = 0; i < n; i++)
            if (items[i].units / unit <= g)
                best[g] = fmax(best[g], best[g - items[i].units / unit] + items[i].peak);
        if (g > 0)
            best[g] = fmax(best[g], best[g - 1]);
        /* What the whole slices leave is carried in turn with others, where that may be. */
        double left = rate - best[g], here = (double)g * unit / UNITS;
        if (left > 0 || (g == 0 && turn == HUGE_VAL)) {
            least = fmin(least, here + left * turn);
            continue;
        }
        return fmax(fraction, fmin(least, here));
    }
    return fraction;
}

/* -- Bounds ----------------------------------------------------------------------------------- */

/* A whole number from below, against rounding. */
static double round_up(double x)
{
    return ceil(x * (1 - 1e-9) - 1e-9);
}

double weft_option_table__lower_bound(const weft_option_table *table)
{
    const weft_demands *demands = table->problem->demands;
    weft_arena *arena = weft_arena_create(0);
    jmp_buf env;
    volatile double sum = 0;
    volatile uint32_t d = 0;
    if (table->problem->goal == WEFT_GOAL_GOODPUT || demands->n == 0) {
        weft_arena_destroy(arena);
        return 0;
    }
    /* Without memory for the knapsack the fractional bound has to do. */
    volatile bool whole = arena != NULL;
    if (arena && setjmp(env) != 0)
        whole = false;
    else if (arena)
        (void)weft_arena_guard(arena, &env);
    for (; d < demands->n; d++) {
        double part = demands->at[d].rate_per_s * least_ratio(table, d, false);
        if (whole) {
            weft_arena_mark mark = weft_arena_get_mark(arena);
            part = least_slices(table, d, part, arena);
            weft_arena_reset(arena, mark);
        }
        sum += part;
    }
    weft_arena_destroy(arena);
    return fmax(1, round_up(sum));
}

double weft_option_table__cost_bound(const weft_option_table *table)
{
    const weft_demands *demands = table->problem->demands;
    double sum = 0;
    for (uint32_t d = 0; d < demands->n && table->problem->goal != WEFT_GOAL_GOODPUT; d++)
        sum += demands->at[d].rate_per_s * least_ratio(table, d, true);
    return sum;
}
