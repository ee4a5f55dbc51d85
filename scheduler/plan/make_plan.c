/* Runs a policy on a problem, and checks the resulting plan. */
#include "scheduler/input/input.h"

weft_err weft_plan_decide(const weft_policy *policy, void *state, const weft_problem *problem,
                          weft_arena *arena, weft_diag *diag, weft_plan *out)
{
    weft_problem asked;
    bool assign = !(policy->splits & WEFT_SPLIT_VARIANTS);
    WEFT_TRY(weft_apps__resolve(problem, assign, arena, diag, &asked));
    if (!state && policy->state_size > 0)
        state = weft_arena_array(arena, 1, policy->state_size);
    return policy->place(state, &asked, arena, diag, out);
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
