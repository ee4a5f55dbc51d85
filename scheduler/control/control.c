/* The controller: decides from counts when a policy is asked for a new plan, and whether that plan
 * comes into force.
 *
 *   observation -> rates -> a cause? -> policy -> checker -> gain against moves -> trial -> change
 *
 * Causes, in this order: requests that miss their SLO, a rate that rose or fell, carbon intensity,
 * the period. Each call takes the rates then observed as the new reference, so that one step of the
 * load calls the policy once. One change at a time: none is decided while the last one is not over.
 *
 * A plan is needed if the plan in force cannot carry the rates; it then comes into force at once if
 * it carries more. Any other plan only saves: hold_s must have passed, and the saving must pay for
 * the moves within payback_s, or within the mean time between changes where that is shorter (an
 * exponential mean, weight 1/2), so that a load that swings gets fewer changes. A trial from the
 * present queues must then not be worse than the plan in force.
 *
 * Requests that miss their SLO although the rates are as planned mean that the profile promises too
 * much: the rate of such a service is planned higher by a fifth each time, at most doubled, and
 * lower again by a tenth at each period without misses.
 *
 * With up_s 0 the controller is that of the published policies: called every period, rates of the
 * last period, each plan comes into force. */
#include "scheduler/control/control_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MISSES_REQUESTS_MIN = 300 };
static const double boost_step = 1.2, boost_max = 2, boost_decay = 0.9;
static const double enough = 1 - 1e-6; /* of what is wanted; rounding of sums */
static const double more = 1.002;      /* a plan carries more than another one */
static const double miss_sigma = 3;
/* Good answers of a trial that may be lost by a plan that is needed, or by one that only saves. */
static const double needed_loss = 0.02, saving_loss = 0.005;

struct weft_controller {
    weft_control_options o;
    const weft_problem *problem;
    weft_arena *arena;      /* of the controller */
    weft_arena *plan_arena; /* has the plan in force; NULL: it is the first one */
    weft_arena *last_arena; /* has the plan before it, for undo */
    const weft_plan *plan, *last_plan;
    void *state, *state_before; /* of the policy */
    control_service *service;   /* demands in order, then apps */
    uint32_t n_demand, n_service;
    const control_service **by_name;
    control_sample *now, *before, *called;
    control_sample *changed; /* counts that misses are judged from */
    control_history history;
    int64_t now_ns, called_ns, changed_ns;
    int64_t
        settled_ns; /* a change was not over, or misses were found; they are counted from here */
    bool started;
    double horizon_s;     /* mean time between changes */
    double carbon_called; /* intensity at the last call */
    bool by_carbon;       /* it is what calls the policy now */
    weft_buf text;
};

static bool is_live(const weft_controller *c)
{
    return c->o.up_s > 0;
}

/* -- Creation --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const control_service *const *p = a, *const *q = b;
    return strcmp((*p)->name, (*q)->name);
}

static void init_services(weft_controller *c)
{
    const weft_problem *p = c->problem;
    c->n_demand = (uint32_t)p->demands->n;
    c->n_service = (uint32_t)(p->demands->n + p->n_app);
    size_t n = c->n_service + 1;
    c->service = weft_arena_array(c->arena, n, sizeof *c->service);
    c->by_name = weft_arena_array(c->arena, n, sizeof *c->by_name);
    c->now = weft_arena_array(c->arena, n, sizeof *c->now);
    c->before = weft_arena_array(c->arena, n, sizeof *c->before);
    c->called = weft_arena_array(c->arena, n, sizeof *c->called);
    c->changed = weft_arena_array(c->arena, n, sizeof *c->changed);
    for (uint32_t i = 0; i < c->n_service; i++) {
        bool app = i >= c->n_demand;
        const weft_set_app *a = app ? &p->app[i - c->n_demand] : NULL;
        c->service[i] =
            (control_service){.name = app ? a->name : p->demands->at[i].model,
                              .app = app,
                              .asked_per_s = app ? a->rate_per_s : p->demands->at[i].rate_per_s,
                              .boost = 1};
        c->by_name[i] = &c->service[i];
    }
    qsort(c->by_name, c->n_service, sizeof(const control_service *), by_name);
}

/* NULL: the problem has no such model or app. */
static const control_service *find(const weft_controller *c, const char *name)
{
    const control_service key = {.name = name}, *at = &key;
    control_service *const *found =
        bsearch(&at, c->by_name, c->n_service, sizeof(const control_service *), by_name);
    return found ? *found : NULL;
}

bool weft_controller_knows(const weft_controller *c, const char *name)
{
    return find(c, name) != NULL;
}

weft_err weft_controller_create(const weft_control_options *options, const weft_problem *problem,
                                const weft_plan *start, weft_controller **out)
{
    weft_controller *c = calloc(1, sizeof *c);
    if (!c || !(c->arena = weft_arena_create(0))) {
        free(c);
        return WEFT_ERR_NOMEM;
    }
    c->o = *options;
    c->problem = problem;
    c->plan = start;
    c->horizon_s = options->payback_s;
    c->carbon_called = problem->carbon_g_per_kwh;
    c->state = weft_arena_array(c->arena, 1, options->policy->state_size);
    c->state_before = weft_arena_array(c->arena, 1, options->policy->state_size);
    init_services(c);
    weft_control__init_history(&c->history, &c->o, c->n_service, c->arena);
    *out = c;
    return WEFT_ERR_OK;
}

void weft_controller_destroy(weft_controller *c)
{
    if (!c)
        return;
    weft_arena_destroy(c->plan_arena);
    weft_arena_destroy(c->last_arena);
    weft_buf_finish(&c->text);
    weft_arena_destroy(c->arena);
    free(c);
}

void weft_controller_replace(weft_controller *c, const weft_plan *plan)
{
    weft_arena_destroy(c->last_arena);
    c->last_arena = c->plan_arena;
    c->last_plan = NULL;
    c->plan_arena = NULL;
    c->plan = plan;
}

void weft_controller_undo(weft_controller *c)
{
    if (!c->last_plan)
        return; /* done already, or the plan is not the controller's */
    weft_arena_destroy(c->plan_arena);
    c->plan = c->last_plan;
    c->plan_arena = c->last_arena;
    c->last_plan = NULL;
    c->last_arena = NULL;
}

/* -- Counts ----------------------------------------------------------------------------------- */

static void count(weft_controller *c, const weft_observation *o)
{
    memcpy(c->now, c->before, c->n_service * sizeof *c->now);
    for (size_t i = 0; i < o->n; i++) {
        const control_service *found = find(c, o->at[i].name);
        if (!found)
            continue;
        size_t k = (size_t)(found - c->service);
        c->now[k] = (control_sample){o->at[i].arrivals, o->at[i].answered, o->at[i].missed};
        c->service[k].queue = o->at[i].queue;
    }
}

static bool went_back(const weft_controller *c)
{
    for (uint32_t i = 0; i < c->n_service; i++)
        if (c->now[i].arrivals < c->before[i].arrivals ||
            c->now[i].answered < c->before[i].answered || c->now[i].missed < c->before[i].missed)
            return true;
    return false;
}

/* Takes the counts of an observation. Counts or a clock that went back, and a gap in which nothing
 * was observed, begin a new history. */
static void take(weft_controller *c, const weft_observation *o)
{
    count(c, o);
    int64_t gap_ns = (int64_t)(fmax(c->o.up_s, c->o.poll_s) * 8e9);
    bool gap = is_live(c) && o->now_ns - c->now_ns > gap_ns;
    if (!c->started || went_back(c) || o->now_ns < c->now_ns || gap) {
        weft_control__forget(&c->history);
        if (c->started || is_live(c)) {
            memcpy(c->called, c->now, c->n_service * sizeof *c->now);
            memcpy(c->changed, c->now, c->n_service * sizeof *c->now);
            c->called_ns = o->now_ns;
        }
        if (!c->started || o->now_ns < c->now_ns)
            c->changed_ns = o->now_ns;
        c->settled_ns = o->now_ns;
        c->started = true;
    }
    memcpy(c->before, c->now, c->n_service * sizeof *c->now);
    c->now_ns = o->now_ns;
    if (!is_live(c))
        return;
    weft_control__estimate(&c->history, &c->o, c->now_ns, c->now, c->service);
    weft_control__record(&c->history, c->now_ns, c->now);
}

/* -- Causes ----------------------------------------------------------------------------------- */

static double since_s(const weft_controller *c, int64_t from_ns)
{
    return (double)(c->now_ns - from_ns) / 1e9;
}

static bool may_save(const weft_controller *c)
{
    return since_s(c, c->changed_ns) >= c->o.hold_s;
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Judged from requests of the last down_s, and since the last change or boost. */
static bool find_misses(weft_controller *c)
{
    bool found = false;
    int64_t age_ns;
    if (!(c->o.miss_share > 0) || since_s(c, c->settled_ns) < 2 * c->o.up_s)
        return false;
    const control_sample *recent =
        weft_control__look_back(&c->history, c->now_ns, (int64_t)(c->o.down_s * 1e9), &age_ns);
    for (uint32_t i = 0; recent && i < c->n_service; i++) {
        control_service *s = &c->service[i];
        uint64_t missed = c->now[i].missed - max_of(c->changed[i].missed, recent[i].missed);
        uint64_t n = c->now[i].arrivals - max_of(c->changed[i].arrivals, recent[i].arrivals);
        double limit = c->o.miss_share * (double)n;
        if (n < MISSES_REQUESTS_MIN || (double)missed <= limit ||
            weft_control__sigma(missed, limit) <= miss_sigma)
            continue;
        weft_buf_printf(&c->text, "%s%s misses the SLO of %.1f %% of %llu requests",
                        found ? ", " : "misses: ", s->name,
                        100 * fmin(1, (double)missed / (double)n), (unsigned long long)n);
        /* A rate above the planned one explains them. */
        if (!(s->up_per_s > s->asked_per_s * (1 + c->o.rate_change)))
            s->boost = fmin(boost_max, s->boost * boost_step);
        found = true;
    }
    if (found)
        memcpy(c->changed, c->now, c->n_service * sizeof *c->now);
    return found;
}

static bool find_change(weft_controller *c)
{
    bool found = false;
    if (!(c->o.rate_change > 0))
        return false;
    for (uint32_t i = 0; i < c->n_service; i++) {
        const control_service *s = &c->service[i];
        bool up = s->up_per_s > s->asked_per_s * (1 + c->o.rate_change);
        bool down = s->down_per_s < s->asked_per_s * (1 - c->o.rate_change) &&
                    s->down_sigma < -c->o.sigma && may_save(c);
        if (!up && !down)
            continue;
        weft_buf_printf(&c->text, "%s%s %.4g/s -> %.4g/s",
                        found             ? ", "
                        : c->text.len > 0 ? "; rate: "
                                          : "rate: ",
                        s->name, s->asked_per_s, up ? s->up_per_s : s->down_per_s);
        if (up)
            weft_buf_printf(&c->text, " (%llu in %.3g s, %.1f sigma)", (unsigned long long)s->n_up,
                            s->up_s, s->up_sigma);
        else
            weft_buf_printf(&c->text, " (over %.3g s, %.1f sigma)", c->o.down_s, s->down_sigma);
        found = true;
    }
    return found;
}

static bool find_carbon(weft_controller *c, double now)
{
    double old = c->carbon_called;
    if (!(c->o.carbon_change > 0) || !(now > 0) || !may_save(c) ||
        (old > 0 && fabs(now / old - 1) <= c->o.carbon_change))
        return false;
    weft_buf_printf(&c->text, "carbon: %.4g -> %.4g g/kWh", old, now);
    return true;
}

static bool find_period(weft_controller *c)
{
    if (!is_live(c))
        return true; /* observed once a period */
    if (!(c->o.period_s > 0) || since_s(c, c->called_ns) < c->o.period_s || !may_save(c))
        return false;
    for (uint32_t i = 0; i < c->n_service; i++)
        c->service[i].boost = fmax(1, c->service[i].boost * boost_decay);
    weft_buf_printf(&c->text, "period: %.4g s since the last call", since_s(c, c->called_ns));
    return true;
}

/* -- The call --------------------------------------------------------------------------------- */

static double rate_of(const weft_controller *c, uint32_t i)
{
    const control_service *s = &c->service[i];
    if (is_live(c))
        return fmax(s->down_per_s, s->up_per_s);
    return (double)(c->now[i].arrivals - c->called[i].arrivals) / c->o.period_s;
}

/* The problem with the rates observed, which become the reference. */
static weft_problem *make_problem(weft_controller *c, const weft_observation *o, weft_arena *arena)
{
    double headroom = c->o.headroom > 0 ? c->o.headroom : 1;
    weft_problem *problem = weft_arena_array(arena, 1, sizeof *problem);
    weft_demands *demands = weft_arena_array(arena, 1, sizeof *demands);
    weft_demand *d = weft_arena_array(arena, c->n_demand + 1, sizeof *d);
    weft_set_app *app = weft_arena_array(arena, c->problem->n_app + 1, sizeof *app);
    *problem = *c->problem;
    for (uint32_t i = 0; i < c->n_service; i++) {
        control_service *s = &c->service[i];
        double rate = rate_of(c, i), planned = headroom * s->boost * rate;
        s->asked_per_s = rate;
        if (!s->app) {
            d[i] = c->problem->demands->at[i];
            d[i].rate_per_s = planned;
        } else {
            app[i - c->n_demand] = c->problem->app[i - c->n_demand];
            app[i - c->n_demand].rate_per_s = planned;
        }
    }
    *demands = (weft_demands){d, c->n_demand};
    problem->demands = demands;
    problem->app = app;
    problem->previous = c->plan;
    problem->now_s = (double)c->now_ns / 1e9;
    if (o->carbon_g_per_kwh > 0)
        problem->carbon_g_per_kwh = o->carbon_g_per_kwh;
    memcpy(c->called, c->now, c->n_service * sizeof *c->now);
    c->called_ns = c->now_ns;
    c->carbon_called = o->carbon_g_per_kwh;
    return problem;
}

/* The same rates times a part, for the same policy. */
static weft_problem scaled(const weft_problem *problem, double part, weft_arena *arena)
{
    weft_problem out = *problem;
    weft_demands *demands = weft_arena_array(arena, 1, sizeof *demands);
    weft_demand *d = weft_arena_array(arena, problem->demands->n + 1, sizeof *d);
    weft_set_app *app = weft_arena_array(arena, problem->n_app + 1, sizeof *app);
    for (size_t i = 0; i < problem->demands->n; i++) {
        d[i] = problem->demands->at[i];
        d[i].rate_per_s *= part;
    }
    for (size_t i = 0; i < problem->n_app; i++) {
        app[i] = problem->app[i];
        app[i].rate_per_s *= part;
    }
    *demands = (weft_demands){d, problem->demands->n};
    out.demands = demands;
    out.app = app;
    return out;
}

/* Asks for less: for a part of every rate, so that no model is left out, then for what the fleet
 * can carry at most. *made: the problem that has a plan. */
static weft_err ask_for_less(weft_controller *c, const weft_problem *problem, weft_arena *arena,
                             weft_diag *diag, weft_plan *plan, weft_problem *made)
{
    static const double parts[] = {0.85, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 1};
    enum { N = sizeof parts / sizeof parts[0] };
    size_t size = c->o.policy->state_size;
    weft_err err = WEFT_ERR_INFEASIBLE;
    for (size_t i = 0; i < N && err == WEFT_ERR_INFEASIBLE; i++) {
        weft_diag_clear(diag);
        memcpy(c->state, c->state_before, size);
        *made = scaled(problem, parts[i], arena);
        if (i == N - 1)
            made->goal = WEFT_GOAL_GOODPUT;
        err = weft_plan_make(c->o.policy, c->state, made, arena, diag, plan);
        if (err == WEFT_ERR_OK && i < N - 1)
            weft_buf_printf(&c->text, ", planned for %g %% of each rate", 100 * parts[i]);
        else if (err == WEFT_ERR_OK)
            weft_buf_puts(&c->text, ", planned for the most that can be carried");
    }
    return err;
}

/* Calls the policy; without a plan for all rates, for less. *made: the problem that has a plan. */
static weft_err call_policy(weft_controller *c, const weft_problem *problem, weft_arena *arena,
                            weft_diag *diag, weft_plan *plan, weft_problem *made)
{
    weft_diag *own = weft_diag_create();
    if (!own)
        return WEFT_ERR_NOMEM;
    *made = *problem;
    memcpy(c->state_before, c->state, c->o.policy->state_size);
    weft_err err = weft_plan_make(c->o.policy, c->state, problem, arena, own, plan);
    if (err == WEFT_ERR_INFEASIBLE && c->o.as_much && problem->goal != WEFT_GOAL_GOODPUT) {
        if (weft_diag_count(own) > 0)
            weft_buf_printf(&c->text, "; no plan carries all (%s: %s)",
                            weft_diag_at(own, 0)->item ? weft_diag_at(own, 0)->item : "set",
                            weft_diag_at(own, 0)->text);
        err = ask_for_less(c, problem, arena, own, plan, made);
    }
    const weft_message *m = weft_diag_count(own) > 0 ? weft_diag_at(own, 0) : NULL;
    if (err == WEFT_ERR_INFEASIBLE)
        weft_buf_printf(&c->text, "%s%s finds no plan%s%s%s%s", c->text.len ? "; " : "",
                        c->o.policy->name, m ? ": " : "", m && m->item ? m->item : "",
                        m && m->item ? ": " : "", m ? m->text : "");
    else if (err != WEFT_ERR_OK && m)
        (void)weft_diag_error(diag, err, (weft_where){.item = m->item}, "policy %s at %g s: %s",
                              c->o.policy->name, problem->now_s, m->text);
    weft_diag_destroy(own);
    return err;
}

/* -- The choice ------------------------------------------------------------------------------- */

static weft_err run_trial(weft_controller *c, const weft_trial *trial, weft_arena *arena,
                          weft_trial_result *out)
{
    weft_diag *own = weft_diag_create();
    weft_err err = own ? c->o.try_plan(trial, arena, own, out) : WEFT_ERR_NOMEM;
    if (err != WEFT_ERR_OK && own && weft_diag_count(own) > 0)
        weft_buf_printf(&c->text, "; trial: %s", weft_diag_at(own, 0)->text);
    weft_diag_destroy(own);
    return err;
}

/* Whether the trial allows the new plan. */
static bool try_plans(weft_controller *c, const weft_problem *problem, const weft_plan *next,
                      double change_s, bool needed, weft_arena *arena)
{
    if (!c->o.try_plan || !(c->o.try_s > 0))
        return true;
    uint64_t *queue = weft_arena_array(arena, c->n_service + 1, sizeof *queue);
    for (uint32_t i = 0; i < c->n_service; i++)
        queue[i] = c->service[i].queue;
    weft_trial trial = {.now = c->plan,
                        .problem = problem,
                        .queue = queue,
                        .start_s = c->o.move_s,
                        .mig_s = c->o.mig_s,
                        .seconds = c->o.try_s + 5 * change_s};
    weft_trial_result stay = {0}, go = {0};
    if (run_trial(c, &trial, arena, &stay) != WEFT_ERR_OK)
        return needed;
    trial.next = next;
    if (run_trial(c, &trial, arena, &go) != WEFT_ERR_OK)
        return false;
    double n = fmax(1, (double)go.requests), of = fmax(1, (double)stay.requests);
    double good = (double)go.good / n, was = (double)stay.good / of;
    weft_buf_printf(&c->text, "; trial of %.3g s: %.1f %% in time, %.1f %% with the plan in force",
                    go.seconds, 100 * good, 100 * was);
    return good >= was - (needed ? needed_loss : saving_loss);
}

/* Whether the new plan comes into force. */
static bool choose(weft_controller *c, const weft_problem *problem, const weft_plan *next,
                   weft_arena *arena)
{
    control_choice x;
    weft_control__compare(c->plan, next, problem, &c->o, arena, &x);
    weft_buf_printf(&c->text,
                    "; wanted %.4g/s, carried %.4g/s -> %.4g/s, %u -> %u devices, %u moves",
                    x.wanted_per_s, x.now_per_s, x.next_per_s, c->plan->gpus, next->gpus, x.moves);
    weft_plan_tell_course(&x.course, c->o.move_s, c->o.mig_s, &c->text);
    const char *lost = weft_control__find_lost(c->plan, next, problem);
    if (lost)
        return weft_buf_printf(&c->text, ": leaves %s without a slice", lost), false;
    if (x.moves == 0)
        return weft_buf_puts(&c->text, ": the same placements"), false;
    bool short_of = x.now_per_s < x.wanted_per_s * enough;
    bool needed = short_of && x.next_per_s > x.now_per_s * more;
    if (short_of && !needed && x.next_per_s < x.now_per_s * enough)
        return weft_buf_puts(&c->text, ": carries less"), false;
    /* A policy that chooses variants weighs carbon against accuracy, which has no price. */
    bool weighs = c->by_carbon && (c->o.policy->splits & WEFT_SPLIT_VARIANTS);
    if (!needed && !weighs && c->o.payback_s > 0) {
        double horizon_s = fmin(c->o.payback_s, c->horizon_s);
        weft_buf_printf(&c->text, "; saves %.4g %s/h, moves cost %.4g %s, counted over %.4g s",
                        x.saving, x.unit, x.price, x.unit, horizon_s);
        if (!may_save(c))
            return weft_buf_printf(&c->text, ": too soon, %.3g s after the last change",
                                   since_s(c, c->changed_ns)),
                   false;
        if (!(x.saving * horizon_s / 3600 > x.price))
            return weft_buf_puts(&c->text, ": not worth its moves"), false;
    }
    if (!try_plans(c, problem, next, fmax(c->o.move_s, x.change_s), needed, arena))
        return weft_buf_puts(&c->text, ": the trial is worse"), false;
    weft_buf_puts(&c->text, needed   ? ": changed, because it is needed"
                            : weighs ? ": changed, as the policy weighs carbon against accuracy"
                                     : ": changed, to save");
    return true;
}

static void put_into_force(weft_controller *c, weft_arena *arena, const weft_plan *plan)
{
    weft_arena_destroy(c->last_arena);
    c->last_arena = c->plan_arena;
    c->last_plan = c->plan;
    c->plan_arena = arena;
    c->plan = plan;
    if (c->o.payback_s > 0)
        c->horizon_s = fmin(c->o.payback_s, (c->horizon_s + since_s(c, c->changed_ns)) / 2);
    c->changed_ns = c->now_ns;
    memcpy(c->changed, c->now, c->n_service * sizeof *c->now);
}

static weft_err decide(weft_controller *c, const weft_observation *o, weft_diag *diag,
                       weft_decision *out)
{
    weft_arena *arena = weft_arena_create(0);
    if (!arena)
        return WEFT_ERR_NOMEM;
    weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
    weft_problem *problem = make_problem(c, o, arena), made;
    weft_err err = call_policy(c, problem, arena, diag, plan, &made);
    if (err == WEFT_ERR_OK && (!is_live(c) || choose(c, problem, plan, arena))) {
        put_into_force(c, arena, plan);
        *out =
            (weft_decision){.action = WEFT_CONTROL_CHANGE, .plan = plan, .demands = made.demands};
        return WEFT_ERR_OK;
    }
    weft_arena_destroy(arena);
    out->action = err == WEFT_ERR_OK ? WEFT_CONTROL_KEEP : WEFT_CONTROL_NONE;
    return err == WEFT_ERR_INFEASIBLE ? WEFT_ERR_OK : err;
}

weft_err weft_controller_observe(weft_controller *c, const weft_observation *o, weft_diag *diag,
                                 weft_decision *out)
{
    weft_buf_finish(&c->text);
    c->text = (weft_buf){0};
    take(c, o);
    *out = (weft_decision){.action = WEFT_CONTROL_WAIT, .plan = c->plan};
    weft_err err = WEFT_ERR_OK;
    bool busy = is_live(c) && o->changing;
    if (is_live(c) && (busy || since_s(c, c->settled_ns) < 2 * c->o.up_s)) {
        memcpy(c->changed, c->now, c->n_service * sizeof *c->now);
        c->settled_ns = busy ? c->now_ns : c->settled_ns;
    }
    bool missed = !busy && find_misses(c), moved = !busy && find_change(c);
    if (!busy && o->asked && !missed && !moved)
        weft_buf_puts(&c->text, "asked for");
    c->by_carbon = !busy && !missed && !moved && !o->asked && find_carbon(c, o->carbon_g_per_kwh);
    if (missed || moved || (!busy && o->asked) || c->by_carbon || (!busy && find_period(c)))
        err = decide(c, o, diag, out);
    out->plan = c->plan;
    out->text = c->text.at ? c->text.at : "";
    return err;
}
