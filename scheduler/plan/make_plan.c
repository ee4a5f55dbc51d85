/* Runs a policy on a problem, and checks the resulting plan.
 *
 * Policies know no families. Which families run as joint programs is decided around them: all sets
 * of families without common models are tried if they are few. Otherwise by coordinate descent,
 * from no family and from as many as possible: each family in turn replaces those that it overlaps,
 * or is left out, and the change stays if the policy's plan gets better; a better plan that needs
 * two changes at once is not found then. So a family is used exactly where it saves devices or
 * money, or where it leaves the devices less busy, under that policy's own rules. */
#include "scheduler/input/input.h"
#include "scheduler/plan/plan.h"

#include <string.h>

/* Plans that are made to choose families: fewer for large problems, of which each takes longer. */
enum { TRIES_MAX = 64, TRIES_MIN = 8, TRIES_DEMANDS = 4096 };

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

/* The families of the problem that can be chosen, and a choice of them while it is made. */
typedef struct usable {
    const weft_family **at;
    const weft_family **taken;
    size_t n, n_taken;
    uint32_t tries; /* that are left */
} usable;

static usable find_usable(const weft_problem *problem, weft_arena *arena)
{
    usable u = {.tries = (uint32_t)(TRIES_DEMANDS / (problem->demands->n + 1))};
    u.tries = u.tries > TRIES_MAX ? TRIES_MAX : u.tries < TRIES_MIN ? TRIES_MIN : u.tries;
    u.at = weft_arena_array(arena, problem->n_family + 1, sizeof *u.at);
    u.taken = weft_arena_array(arena, problem->n_family + 1, sizeof *u.taken);
    for (size_t i = 0; i < problem->n_family; i++)
        if (weft_family__is_usable(problem, &problem->family[i], arena))
            u.at[u.n++] = &problem->family[i];
    return u;
}

static bool fits_taken(const usable *u, const weft_family *f)
{
    for (size_t i = 0; i < u->n_taken; i++)
        if (weft_families__overlap(u->taken[i], f))
            return false;
    return true;
}

static bool try_taken(choice *c, usable *u)
{
    const weft_family **list = weft_arena_array(c->arena, u->n_taken + 1, sizeof *list);
    if (u->n_taken > 0)
        memcpy(list, u->taken, u->n_taken * sizeof *list);
    u->tries--;
    return try_families(c, list, u->n_taken);
}

/* Calls `c` (NULL: nobody) with each set of families from the i-th on, beside those taken. Returns
 * how many there are, or a number above u->tries. */
static uint32_t try_sets(choice *c, usable *u, size_t i)
{
    if (i == u->n) {
        if (c)
            try_taken(c, u);
        return 1;
    }
    uint32_t sets = try_sets(c, u, i + 1);
    if ((c || sets <= u->tries) && fits_taken(u, u->at[i])) {
        u->taken[u->n_taken++] = u->at[i];
        sets += try_sets(c, u, i + 1);
        u->n_taken--;
    }
    return sets;
}

/* Takes the best choice without `f` if it has it, else with `f` instead of those that it overlaps.
 */
static void flip(const choice *c, usable *u, const weft_family *f)
{
    bool had = false;
    u->n_taken = 0;
    for (size_t i = 0; i < c->n; i++) {
        had = had || c->chosen[i] == f;
        if (!weft_families__overlap(c->chosen[i], f))
            u->taken[u->n_taken++] = c->chosen[i];
    }
    if (!had)
        u->taken[u->n_taken++] = f;
}

static void descend(choice *c, usable *u)
{
    try_taken(c, u);
    for (size_t i = 0; i < u->n; i++)
        if (fits_taken(u, u->at[i]))
            u->taken[u->n_taken++] = u->at[i];
    try_taken(c, u);
    for (size_t i = 0, since = 0; since < u->n && u->tries > 0; i = (i + 1) % u->n, since++) {
        flip(c, u, u->at[i]);
        if (try_taken(c, u))
            since = 0;
    }
}

/* The problem with the families that the policy's plan is best with. */
static void choose_families(const weft_policy *policy, const weft_problem *problem,
                            weft_arena *arena, weft_problem *out)
{
    choice c = {.policy = policy, .problem = problem, .arena = arena};
    usable u = find_usable(problem, arena);
    if (u.n < u.tries && try_sets(NULL, &u, 0) <= u.tries)
        try_sets(&c, &u, 0);
    else
        descend(&c, &u);
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
