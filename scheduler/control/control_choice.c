/* Two plans compared: what they carry, what the new one saves, and what its moves cost. */
#include "scheduler/control/control_int.h"

#include <math.h>
#include <string.h>

/* -- Requests carried -------------------------------------------------------------------------- */

static double min_of(double a, double b)
{
    return a < b ? a : b;
}

/* Capacity of a plan for a model or a family. */
static double capacity_of(const weft_plan *plan, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->at[i].model, name) == 0)
            sum += plan->at[i].capacity_per_s;
    return sum;
}

static bool is_variant(const weft_set_app *app, const char *model)
{
    for (size_t i = 0; i < app->n_variant; i++)
        if (strcmp(app->variant[i].model, model) == 0)
            return true;
    return false;
}

double weft_control__carried(const weft_plan *plan, const weft_problem *named, weft_arena *arena,
                             double *out_wanted)
{
    double carried = 0, wanted = 0;
    weft_problem grouped, *problem = &grouped;
    weft_families_of_plan(plan, named, arena, &grouped);
    double *spare = weft_arena_array(arena, problem->demands->n + 1, sizeof *spare);
    for (size_t i = 0; i < problem->demands->n; i++) {
        const weft_demand *d = &problem->demands->at[i];
        spare[i] = capacity_of(plan, d->model);
        double own = min_of(d->rate_per_s, spare[i]);
        carried += own;
        wanted += d->rate_per_s;
        spare[i] -= own;
    }
    for (size_t a = 0; a < problem->n_app; a++) {
        double rest = problem->app[a].rate_per_s;
        wanted += rest;
        for (size_t i = 0; i < problem->demands->n && rest > 0; i++) {
            if (!is_variant(&problem->app[a], problem->demands->at[i].model))
                continue;
            double part = min_of(rest, spare[i]);
            carried += part;
            spare[i] -= part;
            rest -= part;
        }
    }
    *out_wanted = wanted;
    return carried;
}

/* -- Costs ------------------------------------------------------------------------------------- */

/* What the change costs: each slice while it starts, and copies as long as they run. */
static double price_of(const weft_plan *next, const weft_plan_course *course,
                       const weft_problem *problem, const weft_control_options *o, const char *unit)
{
    double sum = 0;
    for (size_t i = 0; i < next->n; i++)
        if (course->begins[i] != WEFT_STEP_NONE)
            sum += weft_plan__slice_price(
                next, &next->at[i], problem, unit,
                weft_plan_step_s(&course->step[course->begins[i]], o->move_s, o->mig_s));
    for (uint32_t i = 0; i < course->n_copy; i++) {
        const weft_plan_copy *copy = &course->copy[i];
        double seconds = 0;
        for (uint32_t k = copy->begins; k <= copy->ends && k < course->n_step; k++)
            seconds += weft_plan_step_s(&course->step[k], o->move_s, o->mig_s);
        for (uint32_t k = 0; k < copy->n; k++)
            sum += weft_plan__slice_price(next, &copy->at[k], problem, unit, seconds);
    }
    return sum;
}

void weft_control__compare(const weft_plan *now, const weft_plan *next, const weft_problem *problem,
                           const weft_control_options *options, weft_arena *arena,
                           control_choice *out)
{
    const weft_plan_move *move;
    size_t n;
    weft_plan_diff(now, next, arena, &move, &n);
    *out = (control_choice){.moves = (uint32_t)n};
    out->now_per_s = weft_control__carried(now, problem, arena, &out->wanted_per_s);
    out->next_per_s = weft_control__carried(next, problem, arena, &out->wanted_per_s);
    out->unit = weft_plan__unit(now, next, problem);
    out->saving =
        weft_plan__price(now, problem, out->unit) - weft_plan__price(next, problem, out->unit);
    const weft_plan settled =
        weft_plan_find_changes(now, next, problem->fleet, arena, &out->course);
    for (uint32_t k = 0; k < out->course.n_step; k++)
        out->change_s += weft_plan_step_s(&out->course.step[k], options->move_s, options->mig_s);
    out->price = price_of(&settled, &out->course, problem, options, out->unit);
}

static bool places(const weft_plan *plan, const char *model)
{
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->at[i].model, model) == 0 || weft_family_has(plan->at[i].model, model))
            return true;
    return false;
}

const char *weft_control__find_lost(const weft_plan *now, const weft_plan *next,
                                    const weft_problem *problem)
{
    for (size_t i = 0; i < problem->demands->n; i++) {
        const char *model = problem->demands->at[i].model;
        bool variant = false;
        for (size_t a = 0; a < problem->n_app && !variant; a++)
            variant = is_variant(&problem->app[a], model);
        if (!variant && places(now, model) && !places(next, model))
            return model;
    }
    return NULL;
}
