/* What a plan costs an hour and what it costs to start a slice of it, so that a change can be
 * weighed against what it saves: in carbon or dollars where both plans have them, else in devices.
 */
#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include "base/slice_name.h"

#include <math.h>
#include <string.h>

/* Of the whole device of a placement, dollars an hour. A fleet says how many cores a CPU has;
 * without one its slice does, of which `share` is the part. */
static double price_of(const weft_problem *problem, const weft_placement *p, double share)
{
    const weft_fleet_device *row = problem->fleet ? weft_fleet__row(problem->fleet, p->type) : NULL;
    const weft_device_type *known = weft_device_type_find(p->type);
    uint32_t cores;
    if (row)
        return weft_fleet__price(row);
    if (!known || !weft_device_type_is_cpu(p->type))
        return known ? known->price_per_hour : 0;
    return weft_slicename_cores(p->slice, WEFT_FLEET_CORES_MAX, &cores)
               ? known->price_per_hour * cores / share
               : 0;
}

const char *weft_plan__unit(const weft_plan *now, const weft_plan *next,
                            const weft_problem *problem)
{
    if (problem->goal == WEFT_GOAL_CARBON && problem->carbon_g_per_kwh > 0 && now->power_w > 0 &&
        next->power_w > 0)
        return "gCO2";
    return now->cost_per_hour > 0 && next->cost_per_hour > 0 ? "$" : "devices";
}

double weft_plan__price(const weft_plan *plan, const weft_problem *problem, const char *unit)
{
    if (strcmp(unit, "gCO2") == 0)
        return plan->power_w * problem->carbon_g_per_kwh / 1e3;
    return strcmp(unit, "$") == 0 ? plan->cost_per_hour : plan->gpus;
}

double weft_plan__slice_price(const weft_plan *next, const weft_placement *p,
                              const weft_problem *problem, const char *unit, double seconds)
{
    double share = p->share > 0 ? fmin(p->share, 1) : 1, hours = share * seconds / 3600;
    if (strcmp(unit, "gCO2") == 0)
        return hours * weft_plan__price(next, problem, unit) / fmax(1, next->gpus);
    return strcmp(unit, "$") == 0 ? hours * price_of(problem, p, share) : hours;
}

double weft_plan__busy(const weft_plan *plan)
{
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        sum += p->capacity_per_s > 0 ? p->share * p->rate_per_s / p->capacity_per_s : 0;
    }
    return sum;
}

/* -1, 0, 1; numbers that differ by rounding only are equal. */
static int compare(double a, double b)
{
    double room = 1e-6 * (a > b ? a : b);
    return a < b - room ? -1 : a > b + room;
}

bool weft_plan__is_better(const weft_plan *a, const weft_plan *b, weft_goal goal)
{
    int order = goal == WEFT_GOAL_GOODPUT  ? compare(b->goodput_per_s, a->goodput_per_s)
                : goal == WEFT_GOAL_CARBON ? compare(a->power_w, b->power_w)
                                           : 0;
    order = order ? order : compare(a->cost_per_hour, b->cost_per_hour);
    order = order ? order : compare(a->gpus, b->gpus);
    return (order ? order : compare(weft_plan__busy(a), weft_plan__busy(b))) < 0;
}
