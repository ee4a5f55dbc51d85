/* Lower bounds on the devices and the dollars of any plan within the rules.
 *
 * Fractional bound. Each option takes a part of its device, `weight`, and the weights on a device
 * sum to at most 1. An option serves at most its peak; on a time-shared slice, batch / exec in its
 * part of the time. A model with rate r therefore takes at least r * min(weight / peak) devices.
 * The bound is the sum over the models, rounded up.
 *
 * Knapsack bound. A model takes dedicated slices as wholes. On a time-shared slice each model has
 * one process, and the sum of r * exec / batch over its models is at most 1; so a request per
 * second on such slices takes at least min(weight * exec / batch) over the points with one process.
 * The most that weight g carries on dedicated slices is an unbounded knapsack, best(g) = max over
 * options of best(g - weight) + peak. The bound of a model is the minimum over g of g plus the
 * weight that the rest r - best(g) takes on time-shared slices; under the rule `isolated` the rest
 * must be 0. On MIG alone this is the minimum of GPCs for each service, and the bound is
 * ceil(sum of min GPCs / 7): the exact form of ParvaGPU's problem.
 *
 * Memory bound. A model with a rate has at least one process, and all processes of a device share
 * its memory: the sum of min(memory / memory of the device) over the models. Many small models are
 * bounded by it.
 *
 * Under the goal goodput no request has to be served, so the bounds are 0. Oversubscribed MPS
 * shares take no part of a device except one of its 48 MPS clients for each process. */
#include "scheduler/builder/builder.h"

#include <math.h>

/* Weights are multiples of 1/UNITS of a device, so that percentages, sevenths and quarters are
 * integers. */
enum { UNITS = 700, KNAPSACK_MAX = 1 << 16, KNAPSACK_STEPS_MAX = 1 << 18 };

static double weight_of(const weft_rules *rules, const weft_option *o)
{
    bool shares = o->spec.kind == WEFT_SLICE_MPS || weft_fleet_slice__is_nested(&o->spec);
    if (rules->oversubscribe && shares)
        return fmin(o->spec.weight, (double)o->point->procs / WEFT_MPS_CLIENTS_MAX);
    return o->spec.weight;
}

/* Requests per second of a point on a time-shared slice, for all of its time; 0: the point cannot
 * share a slice. */
static double turn_of(const weft_rules *rules, const weft_option *o)
{
    return rules->isolated || o->point->procs != 1 ? 0 : o->point->batch * 1e6 / o->exec_us;
}

static double peak_of(const weft_rules *rules, const weft_option *o)
{
    return fmax(o->peak_per_s, turn_of(rules, o));
}

/* Least weight for a request per second on time-shared slices; HUGE_VAL: no option can share. */
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

/* Least weight / peak over the options, times the price of the device if `priced`; 0: no option. */
static double least_ratio(const weft_option_table *table, uint32_t demand, bool priced)
{
    const weft_rules *rules = &table->problem->rules;
    double least = 0;
    for (uint32_t i = 0; i < table->n_option[demand]; i++) {
        const weft_option *o = &table->option[demand][i];
        double ratio = weight_of(rules, o) / peak_of(rules, o);
        if (priced)
            ratio *= o->price_per_hour;
        if (i == 0 || ratio < least)
            least = ratio;
    }
    return least;
}

/* Least part of a device's memory that a model with a rate takes, times the price of the device if
 * `priced`. */
static double least_memory(const weft_option_table *table, uint32_t demand, bool priced)
{
    double least = HUGE_VAL;
    if (!(table->problem->demands->at[demand].rate_per_s > 0))
        return 0;
    for (uint32_t i = 0; i < table->n_option[demand] && least > 0; i++) {
        const weft_option *o = &table->option[demand][i];
        const weft_device_type *type = weft_device_type_find(o->row->type);
        /* The fleet may state less memory than MIG instances have together. */
        double has = fmax((double)weft_fleet__mem(o->row), type ? (double)type->mem_bytes : 0);
        has *= 1 - table->problem->rules.mem_reserve;
        double part = has > 0 ? (double)o->mem_bytes / has : 0;
        least = fmin(least, priced ? part * o->price_per_hour : part);
    }
    return isfinite(least) ? least : 0;
}

/* -- Knapsack --------------------------------------------------------------------------------- */

typedef struct item {
    uint32_t units;
    double peak;
} item;

/* The items of the knapsack: the best peak of each weight. Returns their number; 0: some weight is
 * not an integer number of units. */
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

/* The knapsack bound of a demand in devices; `fraction`, its fractional bound, when the knapsack is
 * too large. */
static double bound_demand(const weft_option_table *table, uint32_t demand, double fraction,
                           weft_arena *arena)
{
    item items[UNITS];
    double rate = table->problem->demands->at[demand].rate_per_s * (1 - 1e-9);
    uint32_t n = list_items(table, demand, items), unit = 0;
    for (uint32_t i = 0; i < n; i++)
        unit = gcd(unit, items[i].units);
    if (n == 0 || !(fraction < 1e6))
        return fraction;
    /* The weight never exceeds the fractional bound by more than one slice of the best ratio. */
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

/* Rounds up, but not because of floating-point error. */
static double round_up(double x)
{
    return ceil(x * (1 - 1e-9) - 1e-9);
}

double weft_option_table__lower_bound(const weft_option_table *table)
{
    const weft_demands *demands = table->problem->demands;
    weft_arena *arena = weft_arena_create(0);
    jmp_buf env;
    volatile double sum = 0, memory = 0;
    volatile uint32_t d = 0;
    if (table->problem->goal == WEFT_GOAL_GOODPUT || demands->n == 0) {
        weft_arena_destroy(arena);
        return 0;
    }
    /* Without memory for the knapsack the result is the fractional bound. */
    volatile bool whole = arena != NULL;
    if (arena && setjmp(env) != 0)
        whole = false;
    else if (arena)
        (void)weft_arena_guard(arena, &env);
    for (; d < demands->n; d++) {
        double part = demands->at[d].rate_per_s * least_ratio(table, d, false);
        if (whole) {
            weft_arena_mark mark = weft_arena_get_mark(arena);
            part = bound_demand(table, d, part, arena);
            weft_arena_reset(arena, mark);
        }
        sum += part;
        memory += least_memory(table, d, false);
    }
    weft_arena_destroy(arena);
    return fmax(1, round_up(fmax(sum, memory)));
}

/* Least price of a device of the fleet. */
static double least_price(const weft_fleet *fleet)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < fleet->n_device; i++)
        least = fmin(least, weft_fleet__price(&fleet->device[i]));
    return fleet->n_device > 0 ? least : 0;
}

static double bound_cost(const weft_option_table *table, double devices)
{
    const weft_demands *demands = table->problem->demands;
    double sum = 0, memory = 0;
    for (uint32_t d = 0; d < demands->n && table->problem->goal != WEFT_GOAL_GOODPUT; d++) {
        sum += demands->at[d].rate_per_s * least_ratio(table, d, true);
        memory += least_memory(table, d, true);
    }
    /* The sums depend on the order of the models in their last digits. */
    return fmax(floor(fmax(sum, memory) * 1e6) / 1e6, devices * least_price(table->problem->fleet));
}

double weft_option_table__cost_bound(const weft_option_table *table)
{
    return bound_cost(table, weft_option_table__lower_bound(table));
}

/* -- Bounds of a plan ------------------------------------------------------------------------- */

void weft_option_table__raise_bounds(weft_plan *plan, double devices, double cost_per_hour)
{
    plan->lower_bound = fmin(fmax(plan->lower_bound, devices), plan->gpus);
    plan->cost_bound = fmin(fmax(plan->cost_bound, cost_per_hour), plan->cost_per_hour);
    plan->proven = plan->cost_per_hour > 0 ? plan->cost_per_hour <= plan->cost_bound * (1 + 1e-8)
                                           : plan->gpus <= plan->lower_bound;
}

void weft_option_table__bound_plan(const weft_option_table *table, weft_plan *plan)
{
    double devices = weft_option_table__lower_bound(table);
    plan->lower_bound = plan->cost_bound = 0;
    weft_option_table__raise_bounds(plan, devices, bound_cost(table, devices));
}
