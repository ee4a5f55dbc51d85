/* The simulator: a plan, a stream of requests and a virtual clock.
 *
 * A discrete-event simulation. Time is in whole nanoseconds; the clock jumps from one event to the
 * next one. Events at one time go in a fixed order: ends of buckets and changes of the plan, then
 * timers (ends of batches, flushes, slices that open, slices that close), then arrivals.
 *
 *   simulate_accounts.c    what is counted
 *   simulate_report.c      the counts as a report
 *   simulate_serving.c     queues, batches, routing, timers
 *   simulate_world.c       slices and processes made from placements
 *   simulate_transition.c  from one plan to the next one while requests flow
 *   simulate_replan.c      later plans, and the policy that is called over time
 *   simulate.c             options, the event loop
 *
 * Each file uses those above it. The execution of a batch takes the time that the profile has for
 * its size (measured with all processes of the slice busy); without a profile, the time that the
 * plan's capacity implies. */
#include "scheduler/simulate/simulate_int.h"

/* -- Events ----------------------------------------------------------------------------------- */

enum { PROGRESS_EVENTS = 4096 };

static weft_err run(sim_world *w, weft_arrivals *arrivals)
{
    weft_arrival next = {.time_ns = sim_never_ns};
    bool more;
    WEFT_TRY(weft_arrivals_next(arrivals, &next, &more));
    for (;;) {
        int64_t arrival_ns = more ? next.time_ns : sim_never_ns;
        int64_t timer_ns = w->n_timer ? w->timer[0].time_ns : sim_never_ns;
        int64_t t = arrival_ns < timer_ns ? arrival_ns : timer_ns;
        if (t > w->end_ns)
            t = w->end_ns;
        if (t >= sim_never_ns)
            return WEFT_ERR_OK;
        int64_t boundary_ns = weft_sim__next_boundary(w), plan_ns = weft_sim__next_plan(w);
        int64_t tick_ns = boundary_ns < plan_ns ? boundary_ns : plan_ns;
        if (tick_ns <= t) {
            w->now_ns = tick_ns;
            WEFT_TRY(weft_sim__pass_boundary(w));
            WEFT_TRY(weft_sim__replan(w));
            continue;
        }
        w->now_ns = t;
        if (t >= w->end_ns)
            return WEFT_ERR_OK;
        if (w->events++ % PROGRESS_EVENTS == 0 && w->o->progress)
            w->o->progress((double)t * 1e-9, w->o->duration_s);
        if (timer_ns <= arrival_ns) {
            weft_sim__fire(w);
            continue;
        }
        if (next.service >= w->n_service)
            return weft_diag_error(w->diag, WEFT_ERR_BUG, (weft_where){0},
                                   "request for an unknown service");
        weft_sim__arrive(w, &next);
        WEFT_TRY(weft_arrivals_next(arrivals, &next, &more));
    }
}

/* -- Options ---------------------------------------------------------------------------------- */

static weft_err check_options(const weft_sim_options *o, weft_diag *diag)
{
    const double seconds[] = {o->duration_s, o->warmup_s, o->bucket_s, o->period_s,
                              o->timeout_s,  o->start_s,  o->mig_s,    o->queue_delay_us / 1e6};
    const weft_where where = {0};
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
        if (!(seconds[i] >= 0 && seconds[i] <= 1e9) || (seconds[i] > 0 && seconds[i] < 1e-9))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "a time of %g s: must be 0, or from 1e-9 to 1e9 s", seconds[i]);
    if (o->duration_s > 0 && o->warmup_s >= o->duration_s)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "warm-up of %g s must be shorter than the %g s that are simulated",
                               o->warmup_s, o->duration_s);
    bool live = o->control.up_s > 0;
    if (o->policy && !((live ? o->control.poll_s : o->period_s) > 0))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "a policy needs a period");
    if (o->policy && (live ? o->control.poll_s : o->period_s) < 1e-3)
        return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                               "a policy every %g s: the period must be at least 1 ms",
                               o->period_s);
    for (size_t i = 0; i < o->n_later; i++)
        if (!(o->later[i].at_s >= (i ? o->later[i - 1].at_s : 0) && o->later[i].at_s <= 1e9))
            return weft_diag_error(diag, WEFT_ERR_INPUT, where,
                                   "plan %zu comes at %g s: plans must be in the order of time",
                                   i + 1, o->later[i].at_s);
    if (o->carbon && !(o->carbon->n > 0 && o->carbon->period_s > 0))
        return weft_diag_error(diag, WEFT_ERR_INPUT, where, "carbon intensity is empty");
    return WEFT_ERR_OK;
}

/* -- A run ------------------------------------------------------------------------------------ */

static weft_err simulate(sim_world *w, weft_arrivals *arrivals, weft_sim_report *out)
{
    WEFT_TRY(weft_sim__init_services(w));
    WEFT_TRY(weft_sim__begin(w, w->o->plan));
    weft_sim__open_accounts(w);
    WEFT_TRY(weft_sim__init_plans(w));
    WEFT_TRY(run(w, arrivals));
    weft_sim__expire(w);
    weft_sim__drop_unserved(w);
    weft_sim__account_devices(w);
    weft_sim__report(w, out);
    return WEFT_ERR_OK;
}

weft_err weft_simulate(const weft_sim_options *options, weft_arrivals *arrivals, weft_arena *arena,
                       weft_diag *diag, weft_sim_report *out)
{
    const weft_sim_options *o = options;
    WEFT_TRY(check_options(o, diag));
    sim_world *w = weft_arena_array(arena, 1, sizeof *w);
    *w = (sim_world){.o = o,
                     .arena = arena,
                     .diag = diag,
                     .factor = weft_map_create(arena),
                     .warm_ns = (int64_t)(o->warmup_s * 1e9),
                     .end_ns = o->duration_s > 0 ? (int64_t)(o->duration_s * 1e9) : sim_never_ns,
                     .timeout_ns = (int64_t)((o->timeout_s > 0 ? o->timeout_s : 30) * 1e9),
                     .queue_max = o->queue_max ? o->queue_max : 4096,
                     .fill = o->close == WEFT_SIM_CLOSE_FILL ||
                             (o->close == WEFT_SIM_CLOSE_DEFAULT && o->router != WEFT_SIM_PULL)};
    weft_err err = simulate(w, arrivals, out);
    weft_controller_destroy(w->controller);
    return err;
}
