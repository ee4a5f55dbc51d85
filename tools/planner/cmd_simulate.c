/* weft simulate: serves requests by a plan in virtual time. */
#include "estimator/estimator.h"
#include "frontend/frontend.h"
#include "tools/planner/cmd_plan.h"

#include "base/file.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAN_BYTES_MAX = 256 << 20, THEN_MAX = 256 };

typedef struct options {
    const char *plan, *set, *fleet, *prices, *trace, *carbon, *over_time;
    const char *then_plan[THEN_MAX], *lost[THEN_MAX]; /* of each later plan one of both */
    weft_sim_later later[THEN_MAX];
    size_t n_later;
    bool json, arrivals_given;
    weft_tool_interference interference;
    double speed, faster, queue_delay_s; /* speed: of rates; faster: of time */
    weft_arrivals_options arrivals;
    weft_sim_options sim;
    const char *policy_options, *control;
    weft_tool_pipeline pipeline;
} options;

typedef struct inputs {
    weft_plan plan;
    weft_set set;
    weft_fleet fleet;
    weft_demands demands;
    weft_problem problem;
    weft_carbon carbon;
    weft_sim_power *power;
    const weft_service *service;
    size_t n_service;
} inputs;

/* -- Inputs ----------------------------------------------------------------------------------- */

static weft_err read_plan(const char *path, weft_arena *arena, weft_diag *diag, weft_plan *out,
                          weft_demands *out_demands)
{
    char *text = NULL;
    size_t len = 0;
    WEFT_TRY(weft_file_read(path, PLAN_BYTES_MAX, diag, &text, &len));
    weft_err err = weft_plan_from_json(text, len, path, arena, diag, out);
    if (err == WEFT_ERR_OK && out_demands)
        err = weft_plan_demands_from_json(text, len, path, arena, diag, out_demands);
    free(text);
    return err;
}

/* Replaces the models of the plan by those of the set, with its SLOs and rates. */
static weft_err read_set(options *o, weft_arena *arena, weft_diag *diag, inputs *in)
{
    WEFT_TRY(weft_set_load(o->set, arena, diag, &in->set));
    weft_demand *demand = weft_arena_array(arena, in->set.n_model + 1, sizeof *demand);
    weft_profile *profile = weft_arena_array(arena, in->set.n_model + 1, sizeof *profile);
    weft_tool_profile_sources from = {.pipeline = &o->pipeline};
    if (o->fleet) /* else the times follow from the plan */
        WEFT_TRY(weft_tool_fleet_slices(&in->fleet, arena, diag, &from.slice, &from.n_slice));
    WEFT_TRY(weft_tool_set_profiles(&in->set, &from, arena, diag, profile));
    for (size_t i = 0; i < in->set.n_model; i++)
        demand[i] = weft_demand_of(
            &in->set.model[i],
            weft_interference_times(&profile[i], &in->problem.rules.interference, arena));
    in->demands = (weft_demands){demand, in->set.n_model};
    in->problem.app = in->set.app;
    in->problem.n_app = in->set.n_app;
    return WEFT_ERR_OK;
}

/* Power of each device by the estimator's tables. The CPU's numbers are those of one core. */
static void find_power(options *o, inputs *in, weft_arena *arena)
{
    size_t n = 0;
    for (size_t i = 0; weft_gpu_at(i); i++)
        n++;
    weft_sim_power *power = weft_arena_array(arena, n + 1, sizeof *power);
    for (size_t i = 0; i < n; i++) {
        const weft_gpu *gpu = weft_gpu_at(i);
        double units = 1;
        if (gpu->is_cpu) {
            units = 0;
            for (size_t k = 0; k < in->fleet.n_device; k++)
                if (strcmp(in->fleet.device[k].type, gpu->name) == 0)
                    units = in->fleet.device[k].cores;
        }
        if (gpu->power_w > 0 && units > 0)
            power[o->sim.n_power++] =
                (weft_sim_power){gpu->name, gpu->idle_w * units, gpu->power_w * units};
    }
    in->power = power;
    o->sim.power = power;
}

static bool is_there(const weft_location *at, const char *name)
{
    const char *domain[] = {at->node, at->rack, at->zone};
    for (size_t i = 0; i < sizeof domain / sizeof domain[0]; i++)
        if (domain[i] && strcmp(domain[i], name) == 0)
            return true;
    return false;
}

/* What is left of a plan without a failure domain. */
static weft_err lose(const weft_plan *plan, const char *name, weft_arena *arena, weft_diag *diag,
                     weft_plan *out)
{
    weft_plan rest = *plan;
    rest.at = weft_arena_array(arena, plan->n + 1, sizeof *rest.at);
    rest.n = 0;
    for (size_t i = 0; i < plan->n; i++)
        if (!is_there(&plan->at[i].where, name))
            rest.at[rest.n++] = plan->at[i];
    if (rest.n == plan->n)
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.item = name},
                               "the plan has no such node, rack or zone");
    *out = rest;
    return WEFT_ERR_OK;
}

static weft_err load_inputs(options *o, weft_arena *arena, weft_diag *diag, inputs *in)
{
    WEFT_TRY(read_plan(o->plan, arena, diag, &in->plan, &in->demands));
    in->problem.rules = in->plan.rules;
    if (o->interference.given)
        in->problem.rules.interference = o->interference.coeff;
    if (o->fleet) {
        weft_tool_prices prices;
        WEFT_TRY(weft_tool_prices_load(o->prices, arena, diag, &prices));
        WEFT_TRY(weft_tool_fleet_load(o->fleet, &prices, arena, diag, &in->fleet));
        in->problem.fleet = &in->fleet;
    }
    if (o->set)
        WEFT_TRY(read_set(o, arena, diag, in));
    for (size_t i = 0; i < o->n_later; i++) {
        weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
        if (o->lost[i])
            WEFT_TRY(lose(i ? o->later[i - 1].plan : &in->plan, o->lost[i], arena, diag, plan));
        else
            WEFT_TRY(read_plan(o->then_plan[i], arena, diag, plan, NULL));
        o->later[i].plan = plan;
    }
    if (o->carbon) {
        WEFT_TRY(weft_carbon_load(o->carbon, arena, diag, &in->carbon));
        o->sim.carbon = &in->carbon;
    }
    find_power(o, in, arena);
    in->problem.demands = &in->demands;
    in->problem.goal = in->plan.goal;
    in->problem.options = o->policy_options;
    in->problem.seed = o->arrivals.seed;
    in->problem.solver = &weft_solver_cbc;
    o->sim.plan = &in->plan;
    if (o->control)
        WEFT_TRY(weft_control_parse(o->control, diag, &o->sim.control));
    o->sim.control.try_plan = weft_sim_try;
    weft_families_of_plan(&in->plan, &in->problem, arena, &in->problem);
    o->sim.problem = &in->problem;
    o->sim.later = o->later;
    o->sim.n_later = o->n_later;
    weft_sim_services(&in->problem, arena, &in->service, &in->n_service);
    return WEFT_ERR_OK;
}

static weft_err open_arrivals(options *o, const inputs *in, weft_arena *arena, weft_diag *diag,
                              weft_arrivals **out)
{
    double sum = 0;
    if (o->trace)
        return weft_trace_open(o->trace, in->service, in->n_service, o->arrivals.seed, arena, diag,
                               out);
    weft_service *scaled = weft_arena_array(arena, in->n_service + 1, sizeof *scaled);
    for (size_t i = 0; i < in->n_service; i++) {
        scaled[i] = in->service[i];
        scaled[i].rate_per_s *= o->speed;
        sum += scaled[i].rate_per_s;
    }
    if (!(sum > 0))
        return weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){.file = o->plan},
                               "no model has a rate: give a --trace, or a --set with rates");
    return weft_arrivals_generate(&o->arrivals, scaled, in->n_service, arena, diag, out);
}

/* -- Printing --------------------------------------------------------------------------------- */

static void print_service(const weft_sim_service *s, double seconds)
{
    const weft_sim_counts *c = &s->count;
    double bad = c->requests ? 100.0 * (double)(c->late + c->dropped) / (double)c->requests : 0;
    printf("%-24s %10llu %11.1f %8.3f%% %8llu %9.3f %9.3f %9.3f %9.3f", s->name ? s->name : "all",
           (unsigned long long)c->requests, seconds > 0 ? (double)c->good / seconds : 0, bad,
           (unsigned long long)c->dropped, s->mean_us / 1e3, s->p50_us / 1e3, s->p95_us / 1e3,
           s->p99_us / 1e3);
    if (s->name && s->slo_us > 0)
        printf(" %9.3f", s->slo_us / 1e3);
    if (s->app)
        printf("  accuracy %.4g", s->accuracy);
    putchar('\n');
}

static void print_report(const weft_sim_report *r)
{
    printf("%.6g s, utilisation %.1f%%, %.6g device hours", r->simulated_s, 100 * r->busy,
           r->device_s / 3600);
    if (r->cost > 0) /* else no device has a price */
        printf(", $%.4g", r->cost);
    if (r->has_energy)
        printf(", %.6g kJ", r->energy_j / 1e3);
    if (r->has_carbon)
        printf(", %.6g gCO2", r->carbon_g);
    printf("\n%-24s %10s %11s %9s %8s %9s %9s %9s %9s %9s\n", "model", "requests", "good/s",
           "violated", "dropped", "mean ms", "p50", "p95", "p99", "SLO");
    for (size_t i = 0; i < r->n_service; i++)
        if (r->service[i].count.requests > 0)
            print_service(&r->service[i], r->simulated_s);
    print_service(&r->total, r->simulated_s);
    for (size_t i = 0; i < r->n_slice; i++) {
        const weft_sim_slice *s = &r->slice[i];
        char where[WEFT_SLICE_NAME_MAX + 16];
        if (s->mig_start >= 0)
            snprintf(where, sizeof where, "%s@%d", s->slice, s->mig_start);
        else
            snprintf(where, sizeof where, "%s", s->slice[0] ? s->slice : "whole");
        printf("  %s %u %-14s busy %5.1f%%  %s\n", s->type, s->device, where, 100 * s->busy,
               s->models);
    }
    for (size_t i = 0; i < r->n_change; i++) {
        const weft_sim_change *c = &r->change[i];
        if (c->refused)
            printf("at %.6g s: %s finds no plan\n", c->at_s, c->policy);
        else if (c->started + c->stopped > 0)
            printf("at %.6g s: %s: %u kept, %u started, %u stopped, %u devices, ready at %.6g s\n",
                   c->at_s, c->policy, c->kept, c->started, c->stopped, c->gpus, c->ready_s);
        if (c->why[0])
            printf("    %s\n", c->why);
    }
}

static weft_err write_report(const options *o, const weft_sim_report *report, weft_diag *diag)
{
    char *text = NULL;
    weft_err err = WEFT_ERR_OK;
    if (o->over_time) {
        WEFT_TRY(weft_sim_to_csv(report, &text));
        err = weft_file_write(o->over_time, text, strlen(text), diag);
        free(text);
        WEFT_TRY(err);
    }
    if (!o->json) {
        if (!o->over_time || strcmp(o->over_time, "-") != 0)
            print_report(report);
        return WEFT_ERR_OK;
    }
    WEFT_TRY(weft_sim_to_json(report, &text));
    puts(text);
    free(text);
    return WEFT_ERR_OK;
}

static void show_time(double now_s, double duration_s)
{
    weft_tool_advance(now_s, duration_s, "s of the trace");
}

static weft_err run_options(options *o, weft_arena *arena, weft_diag *diag)
{
    inputs in = {0};
    weft_sim_report report;
    weft_arrivals *arrivals = NULL;
    WEFT_TRY(load_inputs(o, arena, diag, &in));
    WEFT_TRY(open_arrivals(o, &in, arena, diag, &arrivals));
    if (o->faster != 1)
        weft_arrivals_speed(arrivals, o->faster, arena, &arrivals);
    weft_tool_progress("simulating");
    o->sim.progress = show_time;
    weft_err err = weft_simulate(&o->sim, arrivals, arena, diag, &report);
    weft_tool_progress(NULL);
    weft_arrivals_close(arrivals);
    WEFT_TRY(err);
    return write_report(o, &report, diag);
}

/* -- The verb --------------------------------------------------------------------------------- */

/* Returns the index of a word of the list. */
static int find_word(const char *const *word, int n, const char *arg)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word[i], arg) == 0)
            return i;
    return 0;
}

static int take_router(void *at, const weft_verb *verb, char *arg)
{
    static const char *const word[] = {"pull", "shares", "least"};
    (void)verb;
    *(weft_sim_router *)at = (weft_sim_router)find_word(word, 3, arg);
    return 0;
}

static int take_closing(void *at, const weft_verb *verb, char *arg)
{
    static const char *const word[] = {"", "idle",
                                       "fill"}; /* the first is the default of the router */
    (void)verb;
    *(weft_sim_close *)at = (weft_sim_close)find_word(word, 3, arg);
    return 0;
}

static int take_admission(void *at, const weft_verb *verb, char *arg)
{
    static const char *const word[] = {"model", "slo", "none"};
    (void)verb;
    *(weft_sim_admission *)at = (weft_sim_admission)find_word(word, 3, arg);
    return 0;
}

static int take_arrivals(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    (void)verb;
    o->arrivals_given = true;
    weft_arrival_kind_parse(arg, &o->arrivals.kind);
    return 0;
}

static int take_policy(void *at, const weft_verb *verb, char *arg)
{
    const weft_policy *policy = weft_policy_find(arg);
    *(const weft_policy **)at = policy;
    if (policy)
        return 0;
    return weft_tool_no_policy(verb, arg);
}

/* "90s=VALUE" of a later plan; NULL: it is something else. */
static const char *add_later(options *o, char *arg)
{
    char *equals = strchr(arg, '=');
    double us = 0;
    if (equals)
        *equals = '\0';
    bool ok = equals && o->n_later < THEN_MAX && weft_parse_duration_us(arg, &us) && us <= 1e15;
    if (equals)
        *equals = '=';
    if (!ok)
        return NULL;
    o->later[o->n_later++].at_s = us / 1e6;
    return equals + 1;
}

static int take_then(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    const char *plan = add_later(o, arg);
    if (!plan)
        return weft_tool_usage(verb, "--then takes TIME=PLAN.json, at most %d times, not '%s'",
                               THEN_MAX, arg);
    o->then_plan[o->n_later - 1] = plan;
    return 0;
}

static int take_lose(void *at, const weft_verb *verb, char *arg)
{
    options *o = at;
    const char *name = add_later(o, arg);
    if (!name)
        return weft_tool_usage(verb, "--lose takes TIME=NAME, at most %d times, not '%s'", THEN_MAX,
                               arg);
    o->lost[o->n_later - 1] = name;
    return 0;
}

#define OPTIONS_OF_simulate
#define OPTIONS options
#include "tools/common/option_rows.h"

static int check(options *o)
{
    if (o->trace && o->arrivals_given)
        return weft_tool_usage(&weft_verb_simulate, "--trace and --arrivals exclude each other");
    if (o->sim.policy && (!o->set || !o->fleet))
        return weft_tool_usage(&weft_verb_simulate,
                               "--policy needs --set (profiles) and --fleet (devices)");
    if (o->prices && !o->fleet)
        return weft_tool_usage(&weft_verb_simulate, "--prices needs --fleet");
    if (o->control && !o->sim.policy)
        return weft_tool_usage(&weft_verb_simulate, "--control needs a --policy");
    if (o->sim.policy && !o->control && !(o->sim.period_s > 0))
        return weft_tool_usage(&weft_verb_simulate, "--policy needs a --period");
    if (o->over_time && !(o->sim.bucket_s > 0))
        return weft_tool_usage(&weft_verb_simulate, "--over-time needs --bucket");
    if (o->over_time && o->json && strcmp(o->over_time, "-") == 0)
        return weft_tool_usage(&weft_verb_simulate,
                               "--over-time - and --format json both want standard output");
    bool duration = o->arrivals.duration_s > 0;
    if (!duration)
        o->arrivals.duration_s = 60;
    /* a trace runs to its end unless --duration says otherwise */
    if (duration || !o->trace)
        o->sim.duration_s = o->arrivals.duration_s;
    return -1;
}

static int parse(int argc, char **argv, options *o)
{
    int code = weft_options_parse_one(&weft_verb_simulate, argc, argv, o, "plan", &o->plan);
    if (code >= 0)
        return code;
    o->sim.queue_delay_us = o->queue_delay_s * 1e6;
    return check(o);
}

static int run_simulate(int argc, char **argv)
{
    static options o;
    o = (options){.speed = 1,
                  .faster = 1,
                  .arrivals = {.seed = 1},
                  .sim = {.start_s = 2, .mig_s = 5},
                  .pipeline = {.run = {.verify = WEFT_VERIFY_OFF}}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? run_options(&o, arena, diag) : WEFT_ERR_NOMEM;
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_simulate = {.name = "simulate", .row = rows, .run = run_simulate};
