/* Plans that come over time: those of the options (`later`), and those of a policy.
 *
 * The controller that serves live traffic (scheduler/control) calls the policy and decides which of
 * its plans come into force; here it observes the simulated world. If the policy refuses, the plan
 * stays in force. */
#include "scheduler/simulate/simulate_int.h"

#include <string.h>

static weft_observation observe(sim_world *w)
{
    const weft_sim_change *last = w->change.len ? &w->change.at[w->change.len - 1] : NULL;
    for (uint32_t i = 0; i < w->n_service; i++) {
        const sim_service *s = &w->service[i];
        w->seen[i] = (weft_control_count){.name = s->name,
                                          .arrivals = s->seen,
                                          .answered = s->count.answered,
                                          .missed = s->count.late + s->count.dropped,
                                          .queue = w->queue.at[i].len};
    }
    return (weft_observation){.now_ns = w->now_ns,
                              .at = w->seen,
                              .n = w->n_service,
                              .carbon_g_per_kwh = weft_sim__intensity(w, w->now_ns),
                              .changing = last && (double)w->now_ns / 1e9 < last->ready_s};
}

static weft_err call_controller(sim_world *w)
{
    weft_decision decision;
    weft_observation o = observe(w);
    const char *name = w->o->policy->name;
    WEFT_TRY(weft_controller_observe(w->controller, &o, w->diag, &decision));
    if (decision.action == WEFT_CONTROL_CHANGE) {
        WEFT_TRY(weft_sim__switch(w, decision.plan, name));
        w->change.at[w->change.len - 1].why = weft_arena_strdup(w->arena, decision.text);
    } else if (decision.action == WEFT_CONTROL_NONE) {
        weft_sim_change change = {.at_s = (double)w->now_ns / 1e9,
                                  .policy = name,
                                  .gpus = w->plan->gpus,
                                  .ready_s = (double)w->now_ns / 1e9,
                                  .refused = true,
                                  .why = weft_arena_strdup(w->arena, decision.text)};
        WEFT_VEC_PUSH(w->arena, &w->change, change);
    }
    return WEFT_ERR_OK;
}

weft_err weft_sim__init_plans(sim_world *w)
{
    const weft_sim_options *o = w->o;
    w->next_period_ns = w->next_later_ns = sim_never_ns;
    if (o->n_later > 0)
        w->next_later_ns = (int64_t)(o->later[0].at_s * 1e9);
    if (!o->policy)
        return WEFT_ERR_OK;
    weft_control_options control = o->control;
    control.policy = o->policy;
    control.period_s = o->period_s > 0 ? o->period_s : control.period_s;
    control.headroom = o->headroom > 0 ? o->headroom : control.headroom;
    w->poll_ns = (int64_t)((control.up_s > 0 ? control.poll_s : control.period_s) * 1e9);
    w->next_period_ns = w->poll_ns;
    w->seen = weft_arena_array(w->arena, w->n_service + 1, sizeof *w->seen);
    return weft_controller_create(&control, o->problem, o->plan, &w->controller);
}

int64_t weft_sim__next_plan(const sim_world *w)
{
    return w->next_later_ns < w->next_period_ns ? w->next_later_ns : w->next_period_ns;
}

weft_err weft_sim__replan(sim_world *w)
{
    const weft_sim_options *o = w->o;
    while (w->now_ns >= w->next_later_ns) {
        const weft_plan *plan = o->later[w->next_later++].plan;
        WEFT_TRY(weft_sim__switch(w, plan, "plan"));
        if (w->controller)
            weft_controller_replace(w->controller, plan);
        w->next_later_ns = w->next_later < o->n_later
                               ? (int64_t)(o->later[w->next_later].at_s * 1e9)
                               : sim_never_ns;
    }
    if (w->now_ns < w->next_period_ns)
        return WEFT_ERR_OK;
    if (++w->calls > 1000000)
        return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0},
                               "over 1000000 calls of the policy: make the period longer");
    w->next_period_ns += w->poll_ns;
    return call_controller(w);
}
