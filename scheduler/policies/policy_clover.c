/* CLOVER: mixtures of model variants on MIG instances of several sizes, which follow the carbon
 * intensity of the grid.
 *
 * Source: B. Li et al., Clover: toward sustainable AI with carbon-aware machine learning
 * inference service, SC'23.
 *
 * World of the paper. One application on n GPUs; variants that differ in accuracy and energy;
 * one variant on each MIG instance; requests spread over the instances. A mixture says how many
 * instances of which size run which variant. When the carbon intensity has changed, simulated
 * annealing over the configuration graph searches a new one. clover.c has the objective (with
 * the sign of its penalty corrected), clover_search.c the search.
 *
 * Changes.
 * - An app of the set with a rate is such an application. A model with a rate of its own is one
 *   with a single variant, for which only the sizes of the instances are chosen. n is the number
 *   of GPUs that BASE needs: the most accurate variant on the largest instances.
 * - The search starts at the mixture in force (first at BASE), or at one variant on instances of
 *   one size if that is better. It runs when the carbon intensity differs by more than 5 % from
 *   that of the last search, and when the mixture in force no longer carries the rate or misses
 *   the accuracy; otherwise the mixture stays. These are the triggers of the paper; its program
 *   compares with the mean of the trace.
 * - One type of GPU is used: the first type of the fleet that may be split by MIG and runs a
 *   variant.
 * - The slices of a CPU are instances of sizes that the fleet file gives (core_slices.c).
 * - The paper measures latency and energy of each new mixture on GPUs; here both come from
 *   profiles.
 * - An unknown intensity is taken as the paper's reference, 250 gCO2/kWh.
 *
 * Parameters: lambda=0.1 (weight of carbon against accuracy), trigger=0.05, patience=2000
 * (evaluations in a row without a better mixture; the paper stops after 5, because its
 * evaluations are measurements). effort: evaluations (20000).
 * Complexity: O(effort * variants * sizes) for each application. */
#include "scheduler/policies/clover_int.h"
#include "scheduler/policies/core_slices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double reference_carbon = 250; /* gCO2/kWh */
enum { DEFAULT_EFFORT = 20000 };

/* What the policy remembers between calls. */
typedef struct memory {
    double carbon_g_per_kwh, lambda; /* of the last search */
} memory;

/* One application: an app, or a model with a rate of its own. */
typedef struct task {
    const char *name;
    uint32_t demand[WEFT_CLOVER_VARIANTS_MAX];
    double accuracy[WEFT_CLOVER_VARIANTS_MAX];
    uint32_t n;
    double rate_per_s, least_accuracy;
} task;

typedef struct run {
    weft_builder *builder;
    const weft_fleet_device *row;
    weft_mig_shape shape;
    double lambda, trigger, patience;
    uint32_t behind; /* applications that are still to be placed */
    bool keep;       /* the mixture in force may be kept */
    uint64_t effort;
} run;

static int compare_tasks(const void *a, const void *b)
{
    return strcmp(((const task *)a)->name, ((const task *)b)->name);
}

/* -- Tasks ------------------------------------------------------------------------------------ */

static weft_err list_tasks(const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                           task **out, size_t *out_n)
{
    const weft_demands *demands = problem->demands;
    const uint32_t *app_of;
    size_t n = 0;
    task *list = weft_arena_array(arena, demands->n + problem->n_app + 1, sizeof *list);
    weft_demand_index index = weft_demands__index(demands, arena);
    WEFT_TRY(weft_apps__index(problem, arena, diag, &app_of));
    for (uint32_t i = 0; i < demands->n; i++) {
        const weft_demand *d = &demands->at[i];
        if (!app_of[i] || d->rate_per_s > 0)
            list[n++] = (task){.name = d->model,
                               .demand = {i},
                               .accuracy = {100},
                               .n = 1,
                               .rate_per_s = d->rate_per_s};
    }
    for (size_t a = 0; a < problem->n_app; a++) {
        const weft_set_app *app = &problem->app[a];
        task t = {
            .name = app->name, .rate_per_s = app->rate_per_s, .least_accuracy = app->accuracy};
        if (!weft_app__is_asked(app))
            continue;
        if (app->n_variant > WEFT_CLOVER_VARIANTS_MAX)
            return weft_diag_error(diag, WEFT_ERR_UNSUP, (weft_where){.item = app->name},
                                   "clover: %zu variants, at most %d", app->n_variant,
                                   WEFT_CLOVER_VARIANTS_MAX);
        for (size_t k = 0; k < app->n_variant; k++) {
            t.demand[t.n] = weft_demands__find(&index, app->variant[k].model);
            t.accuracy[t.n++] = app->variant[k].accuracy;
        }
        list[n++] = t;
    }
    if (n > 0)
        qsort(list, n, sizeof *list, compare_tasks);
    *out = list;
    *out_n = n;
    return WEFT_ERR_OK;
}

/* -- One application -------------------------------------------------------------------------- */

/* The variants on the instance sizes of a row; false: no variant runs on any. */
static bool describe(const run *r, const task *t, weft_clover *c)
{
    const weft_problem *problem = r->builder->problem;
    bool any = false;
    *c = (weft_clover){.shape = &r->shape,
                       .n_variant = t->n,
                       .rate_per_s = t->rate_per_s,
                       .lambda = r->lambda,
                       .least_accuracy = t->least_accuracy,
                       .carbon_g_per_kwh = problem->carbon_g_per_kwh > 0 ? problem->carbon_g_per_kwh
                                                                         : reference_carbon};
    for (uint32_t v = 0; v < t->n; v++) {
        weft_mig_best best = r->row->cores > 0
                                 ? weft_cores__best(r->builder, &r->shape, r->row, t->demand[v])
                                 : weft_mig__best(r->builder, &r->shape, r->row, t->demand[v], 0);
        c->accuracy[v] = t->accuracy[v];
        for (uint32_t z = 0; z < r->shape.n; z++) {
            const weft_option *o = c->option[v][z] = best.option[z];
            any = any || o;
            c->energy_j[v][z] = o ? o->point->cost.energy_j / o->point->batch : 0;
        }
    }
    return any;
}

/* The first row of the fleet with an instance size that runs a variant. */
static bool find_row(run *r, const task *t, weft_clover *c)
{
    for (size_t i = 0; i < r->builder->fleet->n_device; i++) {
        r->row = &r->builder->fleet->device[i];
        const weft_device_type *type = weft_device_type_find(r->row->type);
        bool cpu = r->row->cores > 0;
        if (!type || (!r->row->mig && !cpu))
            continue;
        r->shape = cpu ? weft_cores__shape(r->builder, r->row, r->behind) : weft_mig__shape(type);
        if (r->shape.n > 0 && describe(r, t, c))
            return true;
    }
    return false;
}

static uint64_t count_devices(const weft_clover *c, const weft_clover_config *x)
{
    uint64_t count[WEFT_MIG_PROFILES_MAX] = {0};
    for (uint32_t v = 0; v < c->n_variant; v++)
        for (uint32_t z = 0; z < c->shape->n; z++)
            count[z] += x->n[v][z];
    return weft_mig__devices(c->shape, count);
}

/* The mixture of this application in the plan in force; false: the plan has none. */
static bool read_previous(const run *r, const task *t, const weft_clover *c,
                          weft_clover_config *out)
{
    const weft_plan *plan = r->builder->problem->previous;
    bool any = false;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; plan && i < plan->n; i++) {
        const weft_placement *p = &plan->at[i];
        for (uint32_t v = 0; v < t->n; v++)
            for (uint32_t z = 0; z < c->shape->n; z++) {
                if (!c->option[v][z] || strcmp(p->type, r->row->type) != 0 ||
                    strcmp(p->slice, c->shape->type->mig[z].name) != 0 ||
                    strcmp(p->model, r->builder->demands->at[t->demand[v]].model) != 0)
                    continue;
                out->n[v][z]++;
                any = true;
            }
    }
    return any;
}

/* Chooses the mixture of an application, on at most `left` GPUs. */
static bool choose(const run *r, const task *t, weft_clover *c, uint32_t left,
                   weft_clover_config *out)
{
    weft_clover_config base, previous;
    c->devices = left;
    bool has_base = weft_clover__base(c, &base);
    bool has_start = has_base || weft_clover__co2opt(c, &base);
    weft_clover_score s = weft_clover__score(c, &base);
    if (has_base) {
        c->devices = (uint32_t)count_devices(c, &base);
        c->base_accuracy = s.accuracy;
        c->base_carbon = s.energy_j * reference_carbon;
    }
    bool has_previous = read_previous(r, t, c, &previous) && weft_clover__fits(c, &previous);
    if (has_previous && r->keep && weft_clover__score(c, &previous).feasible) {
        *out = previous;
        return true;
    }
    if (!has_previous && !has_start)
        return weft_clover__random(c, r->builder->problem->seed, r->effort, out);
    *out = has_previous ? previous : base;
    weft_clover__start(c, out);
    return weft_clover__anneal(c, r->builder->problem->seed, r->effort, (uint64_t)r->patience, out);
}

/* Puts the instances on the builder, large ones first, each with its part of the rate. */
static bool put(run *r, const task *t, const weft_clover *c, const weft_clover_config *x)
{
    double capacity = weft_clover__score(c, x).capacity_per_s;
    for (uint32_t i = 0; i < c->shape->n; i++) {
        uint32_t z = c->shape->order[i];
        for (uint32_t v = 0; v < c->n_variant; v++)
            for (uint32_t k = 0; k < x->n[v][z]; k++) {
                const weft_option *o = c->option[v][z];
                double part = fmin(o->peak_per_s, t->rate_per_s * o->peak_per_s / capacity);
                if (!weft_builder__add(r->builder, t->demand[v], o, part, false))
                    return false;
            }
    }
    return true;
}

static weft_err place_task(run *r, const task *t)
{
    weft_clover c;
    weft_clover_config x;
    bool drop = r->builder->problem->goal == WEFT_GOAL_GOODPUT;
    const char *model = r->builder->demands->at[t->demand[0]].model;
    if (!find_row(r, t, &c))
        return drop ? WEFT_ERR_OK
                    : weft_diag_error(r->builder->diag, WEFT_ERR_INFEASIBLE,
                                      (weft_where){.item = model},
                                      "clover places on MIG instances and CPU slices only, and "
                                      "the model meets its SLO on none that it was profiled on; "
                                      "allow mig, add such a profile, or relax the SLO");
    /* Applications do not share a GPU, but they do a CPU, whose shape counts free slices. */
    uint32_t opened = r->builder->opened[r->row - r->builder->fleet->device];
    uint32_t left = r->row->cores > 0 ? 1 : r->row->count - opened;
    uint32_t mark = weft_builder__mark(r->builder);
    if (left > 0 && choose(r, t, &c, left, &x) && put(r, t, &c, &x))
        return WEFT_ERR_OK;
    weft_builder__undo(r->builder, mark);
    return drop ? WEFT_ERR_OK : weft_builder__full(r->builder, t->demand[0], t->rate_per_s);
}

static bool read_options(const weft_problem *problem, weft_diag *diag, run *r)
{
    r->lambda = weft_parameter__number(problem, "lambda", 0.1);
    r->trigger = weft_parameter__number(problem, "trigger", 0.05);
    r->patience = weft_parameter__number(problem, "patience", 2000);
    bool ok = r->lambda >= 0 && r->lambda <= 1 && r->trigger >= 0 && r->patience >= 1 &&
              r->patience <= 1e9;
    if (!ok)
        (void)weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0},
                              "clover: lambda is 0 to 1, trigger from 0, patience 1 to 1e9");
    return ok;
}

static weft_err place_clover(void *state, const weft_problem *problem, weft_arena *arena,
                             weft_diag *diag, weft_plan *out)
{
    weft_builder builder;
    memory *last = state;
    run r = {.builder = &builder, .effort = problem->effort ? problem->effort : DEFAULT_EFFORT};
    task *list;
    size_t n;
    if (!read_options(problem, diag, &r))
        return WEFT_ERR_INPUT;
    WEFT_TRY(weft_builder__init(&builder, problem, arena, diag));
    WEFT_TRY(list_tasks(problem, arena, diag, &list, &n));
    double carbon = problem->carbon_g_per_kwh > 0 ? problem->carbon_g_per_kwh : reference_carbon;
    r.keep = last->carbon_g_per_kwh > 0 && last->lambda == r.lambda &&
             fabs(carbon - last->carbon_g_per_kwh) <= r.trigger * last->carbon_g_per_kwh;
    for (size_t i = 0; i < n; i++) {
        r.behind = (uint32_t)(n - 1 - i);
        WEFT_TRY(place_task(&r, &list[i]));
    }
    if (!r.keep)
        *last = (memory){carbon, r.lambda};
    weft_builder__finish(&builder, "clover", out);
    return WEFT_ERR_OK;
}

static const char *const parameters[] = {"lambda", "trigger", "patience", NULL};

const weft_policy weft_policy_clover = {
    .name = "clover",
    .brief = "mixtures of variants on MIG instances with least carbon",
    .cite = "Clover, SC'23",
    .parameters = parameters,
    .splits = WEFT_SPLIT_MIG | WEFT_SPLIT_CORES | WEFT_SPLIT_VARIANTS,
    .state_size = sizeof(memory),
    .place = place_clover,
};
