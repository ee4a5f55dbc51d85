/* Runs a policy on a problem, and checks the resulting plan.
 *
 * Policies know no families. Which families run as joint programs is decided around them: all sets
 * of families without common models are tried if they are few. Otherwise by coordinate descent,
 * from no family and from as many as possible: each family in turn replaces those that it overlaps,
 * or is left out, and the change stays if the policy's plan gets better; a better plan that needs
 * two changes at once is not found then. So a family is used exactly where it saves devices or
 * money, or where it leaves the devices less busy, under that policy's own rules.
 *
 * The bounds of a plan hold for the families that it places. Where all sets were tried, the least
 * bound of any set holds for every plan; else none is known. */
#include "scheduler/builder/builder.h"
#include "scheduler/plan/plan.h"

#include <math.h>
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
    double device_bound, cost_bound; /* the least of all sets that were tried */
} choice;

/* Lowers the bounds to those of one set of families: its plan's, or, if it has none, those of any
 * plan. */
static void lower_bounds(choice *c, const weft_problem *grouped, const weft_plan *plan)
{
    double devices = 0, cost_per_hour = 0;
    weft_option_table table;
    if (plan) {
        devices = plan->lower_bound;
        cost_per_hour = plan->cost_bound;
    } else {
        weft_option_table__build(grouped, c->arena, &table);
        for (size_t d = 0; d < grouped->demands->n; d++)
            if (table.n_option[d] == 0 && grouped->goal != WEFT_GOAL_GOODPUT)
                return; /* no plan has this set */
        devices = weft_option_table__lower_bound(&table);
        cost_per_hour = weft_option_table__cost_bound(&table);
    }
    c->device_bound = fmin(c->device_bound, devices);
    c->cost_bound = fmin(c->cost_bound, cost_per_hour);
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
    lower_bounds(c, &grouped, err == WEFT_ERR_OK ? &plan : NULL);
    if (err != WEFT_ERR_OK ||
        (c->found && !weft_plan__is_better(&plan, &c->best, c->problem->goal)))
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
static void choose_families(choice *c, weft_problem *out)
{
    usable u = find_usable(c->problem, c->arena);
    c->device_bound = c->cost_bound = HUGE_VAL;
    if (u.n < u.tries && try_sets(NULL, &u, 0) <= u.tries) {
        try_sets(c, &u, 0);
    } else {
        descend(c, &u);
        c->device_bound = c->cost_bound = 0;
    }
    weft_families__group(c->problem, c->chosen, c->n, c->arena, out);
}

weft_err weft_plan_decide(const weft_policy *policy, void *state, const weft_problem *problem,
                          weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    weft_problem asked, grouped;
    bool assign = !(policy->splits & WEFT_SPLIT_VARIANTS);
    WEFT_TRY(weft_policy_check(policy, problem->options, diag));
    WEFT_TRY(weft_apps__resolve(problem, assign, arena, diag, &asked));
    if (weft_plan__apart(&asked) != WEFT_DOMAIN_NONE)
        return weft_plan__decide_apart(policy, &asked, arena, diag, out);
    choice c = {.policy = policy, .problem = &asked, .arena = arena};
    grouped = asked;
    if (asked.n_family > 0)
        choose_families(&c, &grouped);
    if (!state && policy->state_size > 0)
        state = weft_arena_array(arena, 1, policy->state_size);
    WEFT_TRY(policy->place(state, &grouped, arena, diag, out));
    if (asked.n_family > 0) {
        out->lower_bound = fmin(out->lower_bound, c.device_bound);
        out->cost_bound = fmin(out->cost_bound, c.cost_bound);
        weft_option_table__raise_bounds(out, 0, 0);
    }
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
