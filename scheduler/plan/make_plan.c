/* Runs a policy on a problem, and checks the resulting plan.
 *
 * Policies know no families. Which families run as joint programs is decided around them, by
 * coordinate descent: starting with none, each family in turn replaces those that it overlaps, and
 * stays if the policy's plan gets better. So a family is used exactly where it saves devices or
 * money, or where it leaves the devices less busy, under that policy's own rules; a better plan
 * that needs two changes at once is not found. */
#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include <string.h>

enum { TRIES_MAX = 64 };

typedef struct choice {
    const weft_policy *policy;
    const weft_problem *problem;
    weft_arena *arena;
    const weft_family **chosen; /* of the plan `best` */
    size_t n;
    bool found;
    weft_plan best;
} choice;

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

static bool is_better(const weft_plan *a, const weft_plan *b, weft_goal goal)
{
    int order = goal == WEFT_GOAL_GOODPUT  ? compare(b->goodput_per_s, a->goodput_per_s)
                : goal == WEFT_GOAL_CARBON ? compare(a->power_w, b->power_w)
                                           : 0;
    order = order ? order : compare(a->cost_per_hour, b->cost_per_hour);
    order = order ? order : compare(a->gpus, b->gpus);
    return (order ? order : compare(weft_plan__busy(a), weft_plan__busy(b))) < 0;
}

/* Plans with these families, and keeps them if the plan is the best so far. */
static bool try_families(choice *c, const weft_family **chosen, size_t n)
{
    const weft_policy *policy = c->policy;
    weft_problem grouped;
    weft_plan plan = {0};
    void *state = policy->state_size > 0 ? weft_arena_array(c->arena, 1, policy->state_size) : NULL;
    weft_diag *unheard = weft_diag_create();
    weft_families__group(c->problem, chosen, n, c->arena, &grouped);
    weft_err err =
        unheard ? policy->place(state, &grouped, c->arena, unheard, &plan) : WEFT_ERR_NOMEM;
    weft_diag_destroy(unheard);
    if (err != WEFT_ERR_OK || (c->found && !is_better(&plan, &c->best, c->problem->goal)))
        return false;
    c->found = true;
    c->best = plan;
    c->chosen = chosen;
    c->n = n;
    return true;
}

/* The chosen families with `f` instead of those that it overlaps; NULL: it is one of them. */
static const weft_family **add_family(const choice *c, const weft_family *f, size_t *n)
{
    const weft_family **list = weft_arena_array(c->arena, c->n + 1, sizeof *list);
    *n = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (c->chosen[i] == f)
            return NULL;
        if (!weft_families__overlap(c->chosen[i], f))
            list[(*n)++] = c->chosen[i];
    }
    list[(*n)++] = f;
    return list;
}

/* The problem with the families that the policy's plan is best with. */
static void choose_families(const weft_policy *policy, const weft_problem *problem,
                            weft_arena *arena, weft_problem *out)
{
    choice c = {.policy = policy, .problem = problem, .arena = arena};
    size_t n = problem->n_family, since = 0;
    try_families(&c, NULL, 0);
    for (uint32_t tries = 0; since < n && tries < TRIES_MAX; tries++, since++) {
        const weft_family *f = &problem->family[tries % n];
        size_t n_list;
        const weft_family **list =
            weft_family__is_usable(problem, f, arena) ? add_family(&c, f, &n_list) : NULL;
        if (list && try_families(&c, list, n_list))
            since = 0;
    }
    weft_families__group(problem, c.chosen, c.n, arena, out);
}

weft_err weft_plan_decide(const weft_policy *policy, void *state, const weft_problem *problem,
                          weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    weft_problem asked;
    bool assign = !(policy->splits & WEFT_SPLIT_VARIANTS);
    WEFT_TRY(weft_apps__resolve(problem, assign, arena, diag, &asked));
    if (asked.n_family > 0)
        choose_families(policy, &asked, arena, &asked);
    if (!state && policy->state_size > 0)
        state = weft_arena_array(arena, 1, policy->state_size);
    WEFT_TRY(policy->place(state, &asked, arena, diag, out));
    /* The bound is one of plans with the same families; others may need fewer devices. */
    out->proven = out->proven && (problem->n_family == 0 || out->gpus <= 1);
    return WEFT_ERR_OK;
}

weft_err weft_plan_make(const weft_policy *policy, void *state, const weft_problem *problem,
                        weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    weft_plan plan = {0};
    WEFT_TRY(weft_plan_decide(policy, state, problem, arena, diag, &plan));
    if (weft_plan_check(&plan, problem, diag) != WEFT_ERR_OK)
        return weft_diag_error(diag, WEFT_ERR_BUG, (weft_where){0},
                               "the plan of policy %s does not pass the checker", policy->name);
    *out = plan;
    return WEFT_ERR_OK;
}
