/* Plans that come over time: those of the options (`later`), and those of a policy that is called
 * every period.
 *
 * The policy is called as a server would call it, with its state, the rates that were observed in
 * the last period and the plan in force. If it refuses, the plan stays in force. */
#include "scheduler/simulate/simulate_int.h"

#include <string.h>

/* The demands and the apps of the problem, with the rates of the last period times the headroom. */
static void observe(sim_world *w, weft_arena *arena, weft_problem *problem, weft_demands *demands)
{
    const weft_problem *named = w->o->problem;
    double headroom = w->o->headroom > 0 ? w->o->headroom : 1;
    weft_demand *d = weft_arena_array(arena, named->demands->n + 1, sizeof *d);
    weft_set_app *app = weft_arena_array(arena, named->n_app + 1, sizeof *app);
    for (size_t i = 0; i < named->demands->n; i++) {
        d[i] = named->demands->at[i];
        d[i].rate_per_s = headroom * (double)w->service[weft_sim__find_model(w, d[i].model)].seen /
                          w->o->period_s;
    }
    for (size_t i = 0; i < named->n_app; i++) {
        app[i] = named->app[i];
        for (uint32_t k = w->n_model; k < w->n_service; k++)
            if (strcmp(w->service[k].name, app[i].name) == 0)
                app[i].rate_per_s = headroom * (double)w->service[k].seen / w->o->period_s;
    }
    for (uint32_t i = 0; i < w->n_service; i++)
        w->service[i].seen = 0;
    *demands = (weft_demands){d, named->demands->n};
    problem->demands = demands;
    problem->app = app;
}

static weft_err call_policy(sim_world *w)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_err err = WEFT_ERR_NOMEM;
    if (arena && diag) {
        weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
        weft_problem problem = *w->o->problem;
        weft_demands demands;
        observe(w, arena, &problem, &demands);
        problem.previous = w->plan;
        problem.now_s = (double)w->now_ns / 1e9;
        problem.carbon_g_per_kwh = weft_sim__intensity(w, w->now_ns);
        err = weft_plan_make(w->o->policy, w->policy_state, &problem, arena, diag, plan);
        if (err == WEFT_ERR_OK)
            err = weft_sim__switch(w, plan, w->o->policy->name);
        else if (weft_diag_count(diag) > 0 && err != WEFT_ERR_INFEASIBLE)
            (void)weft_diag_error(w->diag, err, (weft_where){.item = weft_diag_at(diag, 0)->item},
                                  "policy %s at %g s: %s", w->o->policy->name, problem.now_s,
                                  weft_diag_at(diag, 0)->text);
    }
    weft_diag_destroy(diag);
    if (err == WEFT_ERR_OK) {
        weft_arena_destroy(w->plan_arena);
        w->plan_arena = arena;
        return WEFT_ERR_OK;
    }
    weft_arena_destroy(arena);
    if (err != WEFT_ERR_INFEASIBLE)
        return err;
    weft_sim_change change = {.at_s = (double)w->now_ns / 1e9,
                              .policy = w->o->policy->name,
                              .gpus = w->plan->gpus,
                              .ready_s = (double)w->now_ns / 1e9,
                              .refused = true};
    WEFT_VEC_PUSH(w->arena, &w->change, change);
    return WEFT_ERR_OK;
}

void weft_sim__init_plans(sim_world *w)
{
    const weft_sim_options *o = w->o;
    w->next_period_ns = w->next_later_ns = sim_never_ns;
    if (o->policy) {
        w->next_period_ns = (int64_t)(o->period_s * 1e9);
        w->policy_state = weft_arena_array(w->arena, 1, o->policy->state_size);
    }
    if (o->n_later > 0)
        w->next_later_ns = (int64_t)(o->later[0].at_s * 1e9);
}

int64_t weft_sim__next_plan(const sim_world *w)
{
    return w->next_later_ns < w->next_period_ns ? w->next_later_ns : w->next_period_ns;
}

weft_err weft_sim__replan(sim_world *w)
{
    const weft_sim_options *o = w->o;
    while (w->now_ns >= w->next_later_ns) {
        WEFT_TRY(weft_sim__switch(w, o->later[w->next_later++].plan, "plan"));
        w->next_later_ns = w->next_later < o->n_later
                               ? (int64_t)(o->later[w->next_later].at_s * 1e9)
                               : sim_never_ns;
    }
    if (w->now_ns < w->next_period_ns)
        return WEFT_ERR_OK;
    if (++w->calls > 1000000)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "over 1000000 calls of the policy: make the period longer");
    w->next_period_ns += (int64_t)(o->period_s * 1e9);
    return call_policy(w);
}
