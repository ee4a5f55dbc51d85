/* Weft's own policy: exact search for MIG, integer programs for small sets on any fleet, local
 * search for everything else, and a portfolio of the other policies, so that its plan is never
 * worse than theirs.
 *
 * Sources: the exact form of ParvaGPU's problem (mig_search.c) for MIG; ruin and recreate (G.
 * Schrimpf et al., Record breaking optimization results using the ruin and recreate principle,
 * J. Comput. Phys. 159, 2000) for the rest; the plans of all other policies as starting points.
 *
 * World. Whatever the fleet allows and the profiles have: devices of several types and prices,
 * whole, split by MIG, by MPS or by both, several models in turn on one slice. A device is split
 * in one way, except for MPS inside MIG. A model with the profile of a merge group is one demand
 * like any other.
 *
 * A new plan:
 *   1. Up to 64 models: for each type with MIG the fewest devices of it for all models without
 *      sharing, by a narrow beam search (mig_search.c).
 *   2. Goal cost: column generation (cover_program.c). Its value is a bound, and it gives a plan.
 *      Over 150 models that replaces steps 3 to 5.
 *   3. If more is open up to the bounds (0.2 % of the devices where models are isolated on one
 *      type, else 2 % of the price): step 1 with a wider beam and, up to 64 models and 100
 *      devices and with a solver, by an integer program (mig_program.c).
 *   4. Two greedy plans over everything that the fleet allows (ruin_recreate.c), and the plans of
 *      the other policies: of all of them up to 128 models, beyond that of those that are fast
 *      enough (many_models, many_segments).
 *   5. The best two plans: MPS shares packed on fewer devices (share_packing.c), then ruin and
 *      recreate.
 *   6. Goal cost, at most 64 models, and the plan not proven yet: an integer program over
 *      everything that the fleet allows (fleet_program.c) looks for a better plan, and raises the
 *      lower bounds. It also decides, for goal carbon too, whether there is a plan where the steps
 *      before found none; if it does not, the message says that there may be one.
 *      It is left out for a plan of over 100 devices at most 2 % above its bound.
 *   7. The best plan by the goal: most goodput, then fewest dollars, then fewest devices.
 * On a fleet of one type, a plan at the lower bound ends the search at once. With the default
 * effort the plan is never worse than that of any policy that ran in step 4. The lower bound is
 * raised by what the search of step 1 excludes, if that search covers all plans: one type, MIG
 * only, models isolated.
 *
 * With a previous plan, all placements that are still within the rules stay. A model whose rate
 * or SLO has changed first uses its slices, gives up those that it no longer needs, and gets
 * places for the rest as in step 4 (incremental_repair.c if all slices are dedicated, else on
 * the builder). Small sets get a new plan, too, and plans by local search from the repaired one,
 * which move few segments. The cheapest plan is taken when each segment that is not where it was
 * costs `move` devices. Larger sets keep the repaired plan, with bounds by column generation.
 *
 * Goal goodput: the most that the fleet carries, best ratio of requests to devices first. Goal
 * carbon: the plan with the least power of all that were made, if the profiles have energy.
 *
 * Effort. 1: fast mode, step 1, or a greedy plan without MIG. 0: the default, 240 tries in step
 * 5. Else: that many tries, over 240 with a wider beam and always with step 6.
 *
 * Parameters: move=0.02 (devices that a moved segment costs), others=1 (0: without the other
 * policies). Complexity: mig_search.c and ruin_recreate.c state theirs. A try costs O(segments), so
 * large sets get fewer tries. */
#include "scheduler/policies/fleet_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

enum {
    WIDTH_FAST = 16,
    WIDTH_WIDE = 512,
    WORK_MAX = 60000,   /* models times width in step 3 */
    MANY_MODELS = 64,   /* above: without step 1 */
    LARGE_MODELS = 150, /* above: without steps 3 to 5 */
    TRIES = 240,
    SOLVER_MODELS_MAX = 64, /* in step 3: on larger sets the solver finds nothing in its nodes */
    SOLVER_NODES = 2000,
    PUTS_MAX = 400000,          /* segments put on the builder by all tries of one plan */
    OTHERS_SEGMENTS_MAX = 5000, /* above: only policies with many_segments in step 4 */
    OTHERS_MODELS_MAX = 128,    /* above: only policies with many_models in step 4 */
    SOLVER_DEVICES_MAX = 100,   /* above: no integer program for what is near its bound */
    MOVE_SEEDS = 4,          /* local searches from the repaired plan, for each number of tries */
    THOROUGH_MODELS_MAX = 48 /* above: no new plan if there is a previous one */
};

static const double gap_done = 0.002; /* of the devices: no step 3 for isolated models */
static const double near_part = 0.02; /* of the price: no step 3 in other worlds */

typedef struct weft_run {
    weft_problem problem; /* with a copy of the fleet, whose counts the search lowers */
    weft_fleet fleet;
    weft_fleet_device *row;
    weft_builder *builder;
    weft_arena *arena;
    weft_diag *diag;
    bool fast, others;
    double move;
    uint32_t tries, width, nodes;
    /* Results. */
    weft_solution start[2]; /* the best two plans */
    uint32_t n_start;
    weft_plan other; /* the best plan of another policy, if it cannot be read as a solution */
    bool has_other;
    uint64_t bound;                  /* lower bound by the search of step 1; 0: none */
    double cost_bound, device_bound; /* by column generation; 0: none */
    bool excluded;                   /* the integer program has shown that there is no plan */
} weft_run;

static void consider(weft_run *run, const weft_solution *list)
{
    weft_goal goal = run->problem.goal;
    uint32_t at = run->n_start;
    while (at > 0 && weft_solution__is_better(goal, list, &run->start[at - 1]))
        at--;
    if (at >= 2)
        return;
    if (at == 0)
        run->start[1] = run->start[0];
    run->start[at] = *list;
    run->n_start += run->n_start < 2;
}

/* -- 1 and 3: MIG without sharing ------------------------------------------------------------- */

/* Whether every plan within the rules is one that this search covers. */
static bool is_whole_world(const weft_run *run, const weft_fleet_device *row)
{
    const weft_builder *builder = run->builder;
    if (!run->problem.rules.isolated || run->fleet.n_device != 1)
        return false;
    for (uint32_t d = 0; d < builder->demands->n; d++)
        for (uint32_t i = 0; i < builder->n_option[d]; i++) {
            const weft_option *o = &builder->option[d][i];
            if (o->row != row || o->spec.kind != WEFT_SLICE_MIG || o->spec.percent != 0)
                return false;
        }
    return true;
}

typedef struct mig_plan {
    weft_mig_shape shape;
    const weft_fleet_device *row;
    weft_mig_best *best; /* by position */
    weft_mig_load *load; /* by position */
} mig_plan;

/* The best options and the loads of all models on a row; false: some model runs on no MIG instance
 * of it. */
static bool load_services(weft_run *run, const weft_fleet_device *row, mig_plan *out)
{
    const weft_builder *builder = run->builder;
    uint32_t n = (uint32_t)builder->demands->n;
    *out = (mig_plan){.shape = weft_mig__shape(weft_device_type_find(row->type)), .row = row};
    out->best = weft_arena_array(run->arena, n, sizeof *out->best);
    out->load = weft_arena_array(run->arena, n, sizeof *out->load);
    if (out->shape.n == 0)
        return false;
    for (uint32_t s = 0; s < n; s++) {
        uint32_t demand = builder->order[s];
        bool any = false;
        out->best[s] = weft_mig__best(builder, &out->shape, row, demand, 0);
        out->load[s].rate_per_s = builder->demands->at[demand].rate_per_s;
        for (uint32_t p = 0; p < out->shape.n; p++) {
            out->load[s].per_s[p] = out->best[s].per_s[p];
            any = any || out->best[s].per_s[p] > 0;
        }
        if (!any)
            return false;
    }
    return true;
}

/* A solution from counts of instances: instances get places, and the places get models by name. */
static weft_solution list_segments(weft_run *run, const mig_plan *mp, const weft_mig_found *found)
{
    const weft_builder *builder = run->builder;
    uint32_t n = (uint32_t)builder->demands->n, total = 0, *taken = NULL;
    uint64_t count[WEFT_MIG_PROFILES_MAX] = {0}, next[WEFT_MIG_PROFILES_MAX] = {0};
    weft_mig_place *place[WEFT_MIG_PROFILES_MAX];
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t p = 0; p < mp->shape.n; p++) {
            count[p] += found->count[s].of[p];
            total += found->count[s].of[p];
        }
    weft_solution list = {.at = weft_arena_array(run->arena, total, sizeof *list.at)};
    list.devices = weft_mig__place(&mp->shape, count, 0, &taken, run->arena, place);
    for (uint32_t s = 0; s < n; s++) {
        double peak = 0, rate = mp->load[s].rate_per_s;
        for (uint32_t p = 0; p < mp->shape.n; p++)
            peak += found->count[s].of[p] * mp->load[s].per_s[p];
        for (uint32_t p = 0; p < mp->shape.n; p++)
            for (uint32_t k = 0; k < found->count[s].of[p]; k++) {
                const weft_mig_place *at = &place[p][next[p]++];
                list.at[list.n++] =
                    (weft_segment){.device = at->device,
                                   .slice_id = (uint32_t)at->start,
                                   .demand = builder->order[s],
                                   .start = at->start,
                                   .option = mp->best[s].option[p],
                                   .rate_per_s = mp->load[s].per_s[p] * fmin(1, rate / peak)};
            }
    }
    return list;
}

/* Whether a better plan is worth a search: on sets of hundreds of devices, longer searches have
 * never saved one of the last few. */
static bool has_gap(const weft_mig_found *found)
{
    return (double)(found->devices - found->bound) > gap_done * (double)found->bound;
}

static void try_mig(weft_run *run, const weft_fleet_device *row, bool wide)
{
    mig_plan mp;
    weft_mig_found found, next;
    if (!row->mig || !load_services(run, row, &mp))
        return;
    weft_mig_search in = {.shape = &mp.shape,
                          .load = mp.load,
                          .n = (uint32_t)run->builder->demands->n,
                          .width = WIDTH_FAST,
                          .arena = run->arena};
    if (!weft_mig__search(&in, &found))
        return;
    uint64_t narrow_devices = found.devices;
    in.width = run->width > WORK_MAX / in.n ? WORK_MAX / in.n : run->width;
    if (in.width <= WIDTH_FAST)
        in.width = WIDTH_FAST;
    if (wide && has_gap(&found) && in.width > WIDTH_FAST && weft_mig__search(&in, &next)) {
        uint64_t bound = found.bound > next.bound ? found.bound : next.bound;
        found = next.devices < found.devices ? next : found;
        found.bound = bound;
    }
    /* A gap to the lower bound is left to the solver, if there is one. */
    if (wide && has_gap(&found) && run->problem.solver && in.n <= SOLVER_MODELS_MAX &&
        (found.devices <= SOLVER_DEVICES_MAX || run->problem.effort > TRIES))
        (void)weft_mig__solve(&in, run->problem.solver, found.devices - 1, run->nodes, &found);
    if (is_whole_world(run, row))
        run->bound = found.bound;
    bool known = wide && in.n <= MANY_MODELS && found.devices == narrow_devices; /* by step 1 */
    if (found.devices > row->count || known)
        return;
    weft_solution list = list_segments(run, &mp, &found);
    weft_solution__sort(&list);
    if (weft_solution__put(run->builder, &list)) {
        list = weft_solution__list(run->builder);
        consider(run, &list);
    }
}

/* -- 4: greedy -------------------------------------------------------------------------------- */

/* Demands with the largest need of devices come first; with the goal goodput, those of which a
 * device carries most. */
static double less_need(const weft_builder *builder, uint32_t demand)
{
    double each = weft_builder__need(builder, demand);
    if (builder->problem->goal != WEFT_GOAL_GOODPUT)
        return -each * builder->demands->at[demand].rate_per_s;
    return each > 0 ? -1 / each : 0;
}

static bool try_greedy(weft_run *run, bool bulk)
{
    weft_builder *builder = run->builder;
    const uint32_t *order = weft_builder__sort(builder, less_need);
    weft_builder__undo(builder, 0);
    for (uint32_t i = 0; i < builder->demands->n; i++) {
        uint32_t d = order[i];
        if (builder->n_option[d] > 0 &&
            !weft_ruin_recreate__add(builder, d, builder->demands->at[d].rate_per_s, bulk) &&
            run->problem.goal != WEFT_GOAL_GOODPUT)
            return false;
    }
    weft_solution segments = weft_solution__list(builder);
    consider(run, &segments);
    return true;
}

static void try_greedy_plans(weft_run *run)
{
    (void)try_greedy(run, true);
    (void)try_greedy(run, false);
}

/* -- 4: the other policies -------------------------------------------------------------------- */

static bool is_plan_better(weft_goal goal, const weft_plan *a, const weft_plan *b)
{
    weft_solution p = {
        .devices = a->gpus, .cost_per_hour = a->cost_per_hour, .goodput_per_s = a->goodput_per_s};
    weft_solution q = {
        .devices = b->gpus, .cost_per_hour = b->cost_per_hour, .goodput_per_s = b->goodput_per_s};
    if (goal == WEFT_GOAL_CARBON && a->power_w > 0 && b->power_w > 0) {
        if (a->power_w < b->power_w * (1 - 1e-9))
            return true;
        if (a->power_w > b->power_w * (1 + 1e-9))
            return false;
    }
    return weft_solution__is_better(goal, &p, &q);
}

/* Estimate of the least number of segments of any plan; *most: the demand with most of them. */
static double count_segments(const weft_builder *builder, uint32_t *most)
{
    double sum = 0, largest = -1;
    for (uint32_t s = 0; s < builder->demands->n; s++) {
        uint32_t d = builder->order[s];
        double peak = 0;
        for (uint32_t i = 0; i < builder->n_option[d]; i++)
            peak = fmax(peak, builder->option[d][i].peak_per_s);
        double segments = peak > 0 ? builder->demands->at[d].rate_per_s / peak : 0;
        if (segments > largest) {
            largest = segments;
            *most = d;
        }
        sum += segments;
    }
    return sum;
}

/* The time of most other policies grows faster with the number of segments than that of this
 * one. */
static bool is_large(const weft_run *run)
{
    uint32_t most;
    return count_segments(run->builder, &most) > OTHERS_SEGMENTS_MAX;
}

/* All rows of the table. weft_policy_at would make a ring: policy_table.c refers to this file. */
static const weft_policy *const policies[] = {
#define POLICY(name) &weft_policy_##name,
#include "scheduler/policies/policies.def"
#undef POLICY
};

static void try_others(weft_run *run)
{
    bool all = run->problem.demands->n <= OTHERS_MODELS_MAX, large = is_large(run);
    weft_problem problem = run->problem;
    problem.options = NULL;
    problem.effort = 0;
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const weft_policy *policy = policies[i];
        weft_plan plan;
        if (policy == &weft_policy_weft || (!all && !policy->many_models) ||
            (large && !policy->many_segments))
            continue;
        void *state =
            policy->state_size ? weft_arena_array(run->arena, 1, policy->state_size) : NULL;
        if (policy->place(state, &problem, run->arena, NULL, &plan) != WEFT_ERR_OK)
            continue;
        weft_solution list;
        if (weft_solution__read(run->builder, &plan, &list))
            consider(run, &list);
        if (!run->has_other || is_plan_better(problem.goal, &plan, &run->other))
            run->other = plan;
        run->has_other = true;
    }
}

/* -- 2 and 5 to 7: a new plan ------------------------------------------------------------------ */

static weft_plan finish(weft_run *run)
{
    weft_plan plan;
    weft_builder__finish(run->builder, "weft", &plan);
    if (run->problem.goal != WEFT_GOAL_GOODPUT)
        weft_option_table__raise_bounds(&plan, (double)run->bound,
                                        (double)run->bound * weft_fleet__price(&run->row[0]));
    weft_option_table__raise_bounds(&plan, run->device_bound, run->cost_bound);
    return plan;
}

/* Whether a plan may be dearer than the best one by more than `part`. On a fleet of several types a
 * plan at its bound is open, too: another one of its price may have fewer devices. */
static bool is_open(const weft_run *run, const weft_solution *list, double part)
{
    if (run->problem.goal != WEFT_GOAL_COST)
        return true;
    if (run->fleet.n_device != 1)
        return part == 0 || !(run->cost_bound > 0) ||
               list->cost_per_hour > run->cost_bound * (1 + part);
    double bound = fmax(weft_option_table__lower_bound(&run->builder->table),
                        fmax((double)run->bound, run->device_bound));
    return list->devices > bound * (1 + part);
}

static bool is_best_open(const weft_run *run, double part)
{
    return run->n_start == 0 || is_open(run, &run->start[0], part);
}

/* INFEASIBLE if the lower bound exceeds the fleet; the message names the model that needs most. */
static weft_err refuse_excess(weft_run *run)
{
    uint64_t devices = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < run->fleet.n_device; i++)
        devices += run->row[i].count;
    double bound = weft_option_table__lower_bound(&run->builder->table);
    if (run->problem.goal == WEFT_GOAL_GOODPUT || bound <= (double)devices)
        return WEFT_ERR_OK;
    (void)count_segments(run->builder, &most);
    const weft_demand *d = &run->builder->demands->at[most];
    return weft_diag_error(run->diag, WEFT_ERR_INFEASIBLE, (weft_where){.item = d->model},
                           "the fleet has no place left for %.6g/s: at least %.6g devices are "
                           "needed in all, it has %llu",
                           d->rate_per_s, bound, (unsigned long long)devices);
}

/* Whether the integer program may be worth its time beside this plan. */
static bool may_gain(const weft_run *run, const weft_plan *plan)
{
    return run->problem.effort > TRIES || plan->gpus <= SOLVER_DEVICES_MAX ||
           weft_plan_gap(plan) > near_part;
}

/* Looks for a better plan than `plan` (if `found`) by the integer program, and raises its bounds;
 * whether there is a plan now. */
static bool plan_exactly(weft_run *run, bool found, weft_plan *plan)
{
    weft_solution best = {0};
    bool wanted = found ? run->problem.goal == WEFT_GOAL_COST && !run->fast && !plan->proven &&
                              may_gain(run, plan)
                        : run->problem.goal != WEFT_GOAL_GOODPUT;
    if (!wanted || !run->problem.solver)
        return found;
    if (found)
        best = (weft_solution){.devices = plan->gpus, .cost_per_hour = plan->cost_per_hour};
    weft_fleet_found exact =
        weft_wholefleet__solve(run->builder, run->problem.solver, found ? &best : NULL, run->nodes);
    if (exact.better) {
        weft_plan next = finish(run);
        *plan = next;
        found = true;
    }
    run->excluded = !found && exact.proven;
    if (found)
        weft_option_table__raise_bounds(plan, exact.device_bound,
                                        exact.proven ? plan->cost_per_hour : exact.cost_bound);
    return found;
}

/* A plan and a bound by column generation, goal cost only. true: the set is large, and there is a
 * plan. */
static bool try_covers(weft_run *run)
{
    if (run->problem.goal != WEFT_GOAL_COST || !run->problem.solver || run->problem.demands->n == 0)
        return false;
    weft_portions list = weft_covers__solve(run->builder, run->problem.solver, false,
                                            &run->cost_bound, &run->device_bound);
    uint32_t orders = run->problem.rules.isolated ? 1 : WEFT_PORTIONS_ORDERS;
    for (uint32_t i = 0; list.at.len > 0 && i < orders; i++)
        if (weft_portions__place(run->builder, run->row, &list, (weft_portions_order)i)) {
            weft_solution segments = weft_solution__list(run->builder);
            consider(run, &segments);
        }
    return run->n_start > 0 && run->builder->demands->n > LARGE_MODELS;
}

/* Steps 1 to 3, and the greedy plans. true: nothing else is tried. */
static bool make_starts(weft_run *run)
{
    bool many = !run->fast && run->builder->demands->n > MANY_MODELS;
    for (uint32_t i = 0; !many && i < run->fleet.n_device; i++)
        try_mig(run, &run->row[i], false);
    if (!many && (run->fast ? run->n_start == 0 : is_best_open(run, 0)))
        try_greedy_plans(run);
    if (run->fast || !is_best_open(run, 0))
        return !is_best_open(run, 0);
    bool large = try_covers(run);
    bool alone = run->problem.rules.isolated && run->fleet.n_device == 1;
    bool wide = is_best_open(run, alone ? gap_done : near_part) && (alone || !large);
    for (uint32_t i = 0; wide && i < run->fleet.n_device; i++)
        try_mig(run, &run->row[i], true);
    if (many && !large && is_best_open(run, 0))
        try_greedy_plans(run);
    return large || !is_best_open(run, 0);
}

/* INFEASIBLE: no plan was found. */
static weft_err plan_anew(weft_run *run, weft_plan *out)
{
    bool found = false, done = make_starts(run);
    bool large = done && run->builder->demands->n > LARGE_MODELS;
    if (!done && !run->fast && run->others)
        try_others(run);
    weft_plan best = {0};
    for (uint32_t i = 0; i < run->n_start; i++) {
        weft_solution *list = &run->start[i];
        if (run->problem.goal != WEFT_GOAL_GOODPUT && is_open(run, list, 0))
            weft_shares__pack(run->builder, list);
        uint32_t tries = run->fast || large || !is_open(run, list, 0) ? 0 : run->tries;
        if (tries > PUTS_MAX / (list->n + 1))
            tries = PUTS_MAX / (list->n + 1);
        weft_ruin_recreate__improve(run->builder, run->row, tries, run->problem.seed + i, list);
        if (!weft_solution__put(run->builder, list))
            continue;
        weft_plan plan = finish(run);
        if (!found || is_plan_better(run->problem.goal, &plan, &best))
            best = plan;
        found = true;
        if (!is_open(run, list, 0))
            break;
    }
    if (run->has_other && (!found || is_plan_better(run->problem.goal, &run->other, &best))) {
        best = run->other;
        best.policy = "weft";
        found = true;
    }
    if (!plan_exactly(run, found, &best))
        return WEFT_ERR_INFEASIBLE;
    *out = best;
    return WEFT_ERR_OK;
}

/* -- A previous plan -------------------------------------------------------------------------- */

/* The previous plan, repaired; false: it no longer fits. */
static bool plan_from_previous(weft_run *run, weft_plan *out)
{
    if (weft_incremental_repair__change(run->builder, run->problem.previous, out))
        return true;
    if (!weft_previous__repair(run->builder, run->problem.previous))
        return false;
    *out = finish(run);
    return true;
}

/* Whether a plan is better than another one when each moved segment costs `move` devices. */
static bool costs_less(const weft_run *run, const weft_plan *a, const weft_plan *b)
{
    const weft_plan *previous = run->problem.previous;
    double more = weft_previous__count_moves(run->arena, previous, a);
    double less = weft_previous__count_moves(run->arena, previous, b);
    double saved = (double)b->gpus - a->gpus;
    if (b->gpus > 0 && b->cost_per_hour > 0)
        saved = (b->cost_per_hour - a->cost_per_hour) / (b->cost_per_hour / b->gpus);
    return saved > run->move * (more - less) + 1e-9;
}

/* Between the repaired plan and a new one: local search from the repaired plan, which empties few
 * devices at a time, first by few tries, then by more. Returns the best plan of these with moves
 * priced. Nothing is searched if the repaired plan is as cheap as the new one. */
static weft_plan move_less(weft_run *run, const weft_plan *kept, const weft_plan *fresh)
{
    static const uint32_t part[] = {24, 8, 2};
    weft_plan best = *kept;
    weft_solution start;
    bool may_save =
        kept->gpus > fresh->gpus || kept->cost_per_hour > fresh->cost_per_hour * (1 + 1e-9);
    if (run->problem.goal != WEFT_GOAL_COST || !may_save ||
        !weft_solution__read(run->builder, kept, &start))
        return best;
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++)
        for (uint64_t seed = 0; seed < MOVE_SEEDS; seed++) {
            weft_solution list = start;
            weft_ruin_recreate__improve(run->builder, run->row, run->tries / part[i] + 1,
                                        run->problem.seed + seed, &list);
            if (!weft_solution__put(run->builder, &list))
                continue;
            weft_plan plan = finish(run);
            if (costs_less(run, &plan, &best))
                best = plan;
        }
    return best;
}

/* Raises the bounds of a repaired plan that no new one is made beside. */
static void bound_kept(weft_run *run, weft_plan *kept)
{
    if (run->fast || kept->proven || run->problem.goal != WEFT_GOAL_COST || !run->problem.solver)
        return;
    (void)weft_covers__solve(run->builder, run->problem.solver, true, &run->cost_bound,
                             &run->device_bound);
    weft_option_table__raise_bounds(kept, run->device_bound, run->cost_bound);
}

/* -- The policy ------------------------------------------------------------------------------- */

static weft_err start_run(const weft_problem *problem, weft_arena *arena, weft_diag *diag,
                          weft_run *run)
{
    *run = (weft_run){.problem = *problem, .arena = arena, .diag = diag};
    run->move = weft_parameter__number(problem, "move", WEFT_PLAN_MOVE_DEVICES);
    run->others = weft_parameter__number(problem, "others", 1) > 0;
    run->fast = problem->effort == 1;
    run->tries = problem->effort > 1 ? (uint32_t)fmin((double)problem->effort, 1e6) : TRIES;
    run->width =
        problem->effort > TRIES ? (uint32_t)fmin(2.0 * (double)problem->effort, 16384) : WIDTH_WIDE;
    run->nodes = problem->effort > SOLVER_NODES ? (uint32_t)fmin((double)problem->effort, 1e8)
                                                : SOLVER_NODES;
    run->row = weft_arena_array(arena, problem->fleet->n_device, sizeof *run->row);
    memcpy(run->row, problem->fleet->device, problem->fleet->n_device * sizeof *run->row);
    run->fleet = *problem->fleet;
    run->fleet.device = run->row;
    run->problem.fleet = &run->fleet;
    run->builder = weft_arena_alloc(arena, sizeof *run->builder);
    return weft_builder__init(run->builder, &run->problem, arena, diag);
}

static weft_err place_weft(void *state, const weft_problem *problem, weft_arena *arena,
                           weft_diag *diag, weft_plan *out)
{
    weft_run *run = weft_arena_alloc(arena, sizeof *run);
    weft_plan kept, fresh;
    (void)state;
    WEFT_TRY(start_run(problem, arena, diag, run));
    bool has_kept = problem->previous && problem->previous->n > 0 && plan_from_previous(run, &kept);
    if (has_kept && (run->fast || problem->demands->n > THOROUGH_MODELS_MAX)) {
        bound_kept(run, &kept);
        *out = kept;
        return WEFT_ERR_OK;
    }
    if (!has_kept)
        WEFT_TRY(refuse_excess(run));
    weft_err err = plan_anew(run, &fresh);
    if (err != WEFT_ERR_OK && !has_kept) {
        /* The message of bestfit says what is missing. */
        err = weft_policy_bestfit.place(NULL, &run->problem, arena, diag, out);
        out->policy = "weft";
        if (err == WEFT_ERR_INFEASIBLE && !run->excluded)
            weft_diag_note(diag, (weft_where){0},
                           "no plan was found, which does not show that there is none; a higher "
                           "--effort than %u searches longer",
                           run->nodes);
        return err;
    }
    if (has_kept && err == WEFT_ERR_OK) {
        kept = move_less(run, &kept, &fresh);
        bool carries_more = fresh.goodput_per_s > kept.goodput_per_s * (1 + 1e-6);
        weft_option_table__raise_bounds(&kept, fresh.lower_bound, fresh.cost_bound);
        if (!carries_more && !costs_less(run, &fresh, &kept))
            fresh = kept;
    }
    *out = has_kept && err != WEFT_ERR_OK ? kept : fresh;
    return WEFT_ERR_OK;
}

static const char *const parameters[] = {"move", "others", NULL};

const weft_policy weft_policy_weft = {
    .name = "weft",
    .brief = "integer programs, and local search from the best of all policies",
    .cite = "this project; exact form of ParvaGPU's problem, ruin and recreate",
    .parameters = parameters,
    .splits =
        WEFT_SPLIT_WHOLE | WEFT_SPLIT_MIG | WEFT_SPLIT_MPS | WEFT_SPLIT_CORES | WEFT_SPLIT_TIME,
    .place = place_weft,
};
