/* weft simulate: requests against a plan, in virtual time. */
#include "estimator/estimator.h"
#include "frontend/frontend.h"
#include "tools/profile/pipeline.h"
#include "tools/profile/profiles.h"

#include "base/file.h"
#include "base/num.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PLAN_BYTES_MAX = 256 << 20, THEN_MAX = 256 };

typedef struct options {
    const char *plan, *set, *fleet, *trace, *carbon, *over_time;
    const char *then_plan[THEN_MAX];
    weft_sim_step step[THEN_MAX];
    size_t n_step;
    bool json, arrivals_given;
    double speed;
    weft_arrivals_options arrivals;
    weft_sim_options sim;
    const char *policy_options;
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

/* Measured where the set has a profile; estimated where there is a fleet to estimate for; else
 * none, and the times come from the plan. */
static weft_err profile_model(options *o, const inputs *in, const weft_set_model *model,
                              weft_arena *arena, weft_diag *diag, weft_profile *out)
{
    const weft_slice *slice = NULL;
    size_t n_slice = 0;
    bool found = false;
    if (model->profile || o->fleet)
        WEFT_TRY(weft_tool_recorded_profile(&in->set, model, arena, diag, &found, out));
    if (found || !o->fleet)
        return WEFT_ERR_OK;
    WEFT_TRY(weft_tool_fleet_slices(&in->fleet, arena, diag, &slice, &n_slice));
    weft_err err =
        weft_tool_profile_model(&o->pipeline, model, slice, n_slice, NULL, arena, diag, out);
    weft_tool_progress(NULL);
    return err;
}

/* Models of the set, with its SLOs and rates, in place of those that the plan names. */
static weft_err read_set(options *o, weft_arena *arena, weft_diag *diag, inputs *in)
{
    WEFT_TRY(weft_set_load(o->set, arena, diag, &in->set));
    weft_demand *demand = weft_arena_array(arena, in->set.n_model + 1, sizeof *demand);
    for (size_t i = 0; i < in->set.n_model; i++) {
        const weft_set_model *model = &in->set.model[i];
        demand[i] = (weft_demand){
            .model = model->name, .slo_us = model->slo_us, .rate_per_s = model->rate_per_s};
        WEFT_TRY(profile_model(o, in, model, arena, diag, &demand[i].profile));
    }
    in->demands = (weft_demands){demand, in->set.n_model};
    in->problem.app = in->set.app;
    in->problem.n_app = in->set.n_app;
    return WEFT_ERR_OK;
}

/* The estimator knows what a device draws; a CPU's numbers are those of one core. */
static void find_power(options *o, inputs *in, weft_arena *arena)
{
    size_t n = 0;
    for (size_t i = 0; weft_gpu_at(i); i++)
        n++;
    weft_sim_power *power = weft_arena_array(arena, n + 1, sizeof *power);
    for (size_t i = 0; i < n; i++) {
        const weft_gpu *gpu = weft_gpu_at(i);
        double units = 1;
        if (strcmp(gpu->name, "cpu") == 0) {
            units = 0;
            for (size_t k = 0; k < in->fleet.n_device; k++)
                if (strcmp(in->fleet.device[k].type, "cpu") == 0)
                    units = in->fleet.device[k].cores;
        }
        if (gpu->power_w > 0 && units > 0)
            power[o->sim.n_power++] =
                (weft_sim_power){gpu->name, gpu->idle_w * units, gpu->power_w * units};
    }
    in->power = power;
    o->sim.power = power;
}

static weft_err load_inputs(options *o, weft_arena *arena, weft_diag *diag, inputs *in)
{
    WEFT_TRY(read_plan(o->plan, arena, diag, &in->plan, &in->demands));
    if (o->fleet) {
        WEFT_TRY(weft_fleet_load(o->fleet, arena, diag, &in->fleet));
        in->problem.fleet = &in->fleet;
    }
    if (o->set)
        WEFT_TRY(read_set(o, arena, diag, in));
    for (size_t i = 0; i < o->n_step; i++) {
        weft_plan *plan = weft_arena_array(arena, 1, sizeof *plan);
        WEFT_TRY(read_plan(o->then_plan[i], arena, diag, plan, NULL));
        o->step[i].plan = plan;
    }
    if (o->carbon) {
        WEFT_TRY(weft_carbon_load(o->carbon, arena, diag, &in->carbon));
        o->sim.carbon = &in->carbon;
    }
    find_power(o, in, arena);
    in->problem.demands = &in->demands;
    in->problem.rules = in->plan.rules;
    in->problem.goal = in->plan.goal;
    in->problem.options = o->policy_options;
    in->problem.seed = o->arrivals.seed;
    o->sim.plan = &in->plan;
    o->sim.problem = &in->problem;
    o->sim.step = o->step;
    o->sim.n_step = o->n_step;
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
    printf("%.6g s, utilisation %.1f%%, %.6g device hours, $%.4g", r->simulated_s, 100 * r->busy,
           r->device_s / 3600, r->cost);
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

static weft_err run_options(options *o, weft_arena *arena, weft_diag *diag)
{
    inputs in = {0};
    weft_sim_report report;
    weft_arrivals *arrivals = NULL;
    WEFT_TRY(load_inputs(o, arena, diag, &in));
    WEFT_TRY(open_arrivals(o, &in, arena, diag, &arrivals));
    weft_err err = weft_simulate(&o->sim, arrivals, arena, diag, &report);
    weft_arrivals_close(arrivals);
    WEFT_TRY(err);
    return write_report(o, &report, diag);
}

/* -- The verb --------------------------------------------------------------------------------- */

enum {
    OPT_SET = 1,
    OPT_FLEET,
    OPT_TRACE,
    OPT_ARRIVALS,
    OPT_DURATION,
    OPT_SEED,
    OPT_SCALE,
    OPT_BURST_FACTOR,
    OPT_BURST_SHARE,
    OPT_BURST_LENGTH,
    OPT_WARMUP,
    OPT_BUCKET,
    OPT_OVER_TIME,
    OPT_ROUTER,
    OPT_CLOSE,
    OPT_DELAY,
    OPT_TIMEOUT,
    OPT_QUEUE,
    OPT_THEN,
    OPT_START,
    OPT_MIG,
    OPT_POLICY,
    OPT_PERIOD,
    OPT_HEADROOM,
    OPT_PARAM,
    OPT_CARBON,
    OPT_PUE,
    OPT_FORMAT
};

static int wrong(const char *option, const char *needs)
{
    return weft_tool_usage(&weft_verb_simulate, "%s needs %s, not '%s'", option, needs, optarg);
}

static int take_seconds(const char *option, double *out)
{
    double us;
    if (!weft_parse_duration_us(optarg, &us) || us > 1e15)
        return wrong(option, "a duration like 60s or 200ms");
    *out = us / 1e6;
    return 0;
}

static int take_number(const char *option, double lo, double hi, double *out)
{
    double x;
    if (!weft_parse_f64(optarg, &x) || !(x >= lo && x <= hi))
        return wrong(option, "a number in its range");
    *out = x;
    return 0;
}

static int take_word(const char *option, const char *const *word, int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (word[i] && strcmp(optarg, word[i]) == 0) {
            *out = i;
            return 0;
        }
    return wrong(option, "another word; see --help");
}

/* "90s=plan2.json" */
static int take_then(options *o)
{
    char *equal = strchr(optarg, '=');
    double us;
    if (!equal || o->n_step == THEN_MAX)
        return wrong("--then", "TIME=PLAN.json, at most 256 times");
    *equal = 0;
    bool ok = weft_parse_duration_us(optarg, &us) && us <= 1e15;
    *equal = '=';
    if (!ok)
        return wrong("--then", "a time like 90s=plan.json");
    o->then_plan[o->n_step] = equal + 1;
    o->step[o->n_step++].at_s = us / 1e6;
    return 0;
}

static int take_whole(const char *option, int64_t hi, uint64_t *out)
{
    int64_t x;
    if (!weft_parse_i64(optarg, &x) || x < 0 || x > hi)
        return wrong(option, "a whole number in its range");
    *out = (uint64_t)x;
    return 0;
}

static int take_model(options *o, int opt)
{
    static const char *const router[] = {"pull", "shares", "least"};
    static const char *const closing[] = {NULL, "idle", "fill"};
    uint64_t whole;
    double seconds;
    int word = 0, code;
    switch (opt) {
    case OPT_ROUTER:
        code = take_word("--router", router, 3, &word);
        o->sim.router = (weft_sim_router)word;
        return code;
    case OPT_CLOSE:
        code = take_word("--close", closing, 3, &word);
        o->sim.close = (weft_sim_close)word;
        return code;
    case OPT_DELAY:
        code = take_seconds("--max-queue-delay", &seconds);
        if (!code)
            o->sim.queue_delay_us = seconds * 1e6;
        return code;
    case OPT_TIMEOUT:
        return take_seconds("--timeout", &o->sim.timeout_s);
    case OPT_QUEUE:
        code = take_whole("--queue", 1 << 24, &whole);
        if (!code)
            o->sim.queue_max = (uint32_t)whole;
        return code;
    case OPT_THEN:
        return take_then(o);
    case OPT_START:
        return take_seconds("--start", &o->sim.start_s);
    case OPT_MIG:
        return take_seconds("--mig", &o->sim.mig_s);
    case OPT_POLICY:
        o->sim.policy = weft_policy_find(optarg);
        return o->sim.policy ? 0 : wrong("--policy", "a name that `weft list policies` gives");
    case OPT_PERIOD:
        return take_seconds("--period", &o->sim.period_s);
    case OPT_HEADROOM:
        return take_number("--headroom", 0.1, 100, &o->sim.headroom);
    case OPT_PARAM:
        o->policy_options = optarg;
        return 0;
    case OPT_CARBON:
        o->carbon = optarg;
        return 0;
    case OPT_PUE:
        return take_number("--pue", 1, 10, &o->sim.pue);
    default:
        return weft_tool_usage(&weft_verb_simulate, "wrong option");
    }
}

static int take(options *o, int opt)
{
    switch (opt) {
    case OPT_SET:
        o->set = optarg;
        return 0;
    case OPT_FLEET:
        o->fleet = optarg;
        return 0;
    case OPT_TRACE:
        o->trace = optarg;
        return 0;
    case OPT_ARRIVALS:
        o->arrivals_given = true;
        return weft_arrival_kind_parse(optarg, &o->arrivals.kind)
                   ? 0
                   : wrong("--arrivals", "poisson, bursty or constant");
    case OPT_DURATION:
        return take_seconds("--duration", &o->arrivals.duration_s);
    case OPT_SEED:
        return take_whole("--seed", INT64_MAX, &o->arrivals.seed);
    case OPT_SCALE:
        return take_number("--scale", 0, 1e6, &o->speed);
    case OPT_BURST_FACTOR:
        return take_number("--burst-factor", 1, 1e6, &o->arrivals.burst_factor);
    case OPT_BURST_SHARE:
        return take_number("--burst-share", 1e-6, 0.999, &o->arrivals.burst_share);
    case OPT_BURST_LENGTH:
        return take_seconds("--burst-length", &o->arrivals.burst_s);
    case OPT_WARMUP:
        return take_seconds("--warmup", &o->sim.warmup_s);
    case OPT_BUCKET:
        return take_seconds("--bucket", &o->sim.bucket_s);
    case OPT_OVER_TIME:
        o->over_time = optarg;
        return 0;
    case OPT_FORMAT:
        return weft_tool_parse_format(optarg, &o->json) ? 0 : wrong("--format", "text or json");
    default:
        return take_model(o, opt);
    }
}

static int check(options *o)
{
    if (o->trace && o->arrivals_given)
        return weft_tool_usage(&weft_verb_simulate, "--trace and --arrivals exclude each other");
    if (o->sim.policy && (!o->set || !o->fleet))
        return weft_tool_usage(&weft_verb_simulate,
                               "--policy needs --set (profiles) and --fleet (devices)");
    if (o->sim.policy && !(o->sim.period_s > 0))
        return weft_tool_usage(&weft_verb_simulate, "--policy needs a --period");
    if (o->over_time && !(o->sim.bucket_s > 0))
        return weft_tool_usage(&weft_verb_simulate, "--over-time needs --bucket");
    if (o->over_time && o->json && strcmp(o->over_time, "-") == 0)
        return weft_tool_usage(&weft_verb_simulate,
                               "--over-time - and --format json both want standard output");
    bool duration = o->arrivals.duration_s > 0;
    if (!duration)
        o->arrivals.duration_s = 60;
    /* A trace runs to its end unless told otherwise. */
    if (duration || !o->trace)
        o->sim.duration_s = o->arrivals.duration_s;
    return -1;
}

static int parse(int argc, char **argv, options *o)
{
    static const struct option longs[] = {
        {"set", required_argument, NULL, OPT_SET},
        {"fleet", required_argument, NULL, OPT_FLEET},
        {"trace", required_argument, NULL, OPT_TRACE},
        {"arrivals", required_argument, NULL, OPT_ARRIVALS},
        {"duration", required_argument, NULL, OPT_DURATION},
        {"seed", required_argument, NULL, OPT_SEED},
        {"scale", required_argument, NULL, OPT_SCALE},
        {"burst-factor", required_argument, NULL, OPT_BURST_FACTOR},
        {"burst-share", required_argument, NULL, OPT_BURST_SHARE},
        {"burst-length", required_argument, NULL, OPT_BURST_LENGTH},
        {"warmup", required_argument, NULL, OPT_WARMUP},
        {"bucket", required_argument, NULL, OPT_BUCKET},
        {"over-time", required_argument, NULL, OPT_OVER_TIME},
        {"router", required_argument, NULL, OPT_ROUTER},
        {"close", required_argument, NULL, OPT_CLOSE},
        {"max-queue-delay", required_argument, NULL, OPT_DELAY},
        {"timeout", required_argument, NULL, OPT_TIMEOUT},
        {"queue", required_argument, NULL, OPT_QUEUE},
        {"then", required_argument, NULL, OPT_THEN},
        {"start", required_argument, NULL, OPT_START},
        {"mig", required_argument, NULL, OPT_MIG},
        {"policy", required_argument, NULL, OPT_POLICY},
        {"period", required_argument, NULL, OPT_PERIOD},
        {"headroom", required_argument, NULL, OPT_HEADROOM},
        {"policy-options", required_argument, NULL, OPT_PARAM},
        {"carbon", required_argument, NULL, OPT_CARBON},
        {"pue", required_argument, NULL, OPT_PUE},
        {"format", required_argument, NULL, OPT_FORMAT},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    int opt;
    optind = 1;
    while ((opt = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        if (opt == 'h')
            return weft_tool_help(&weft_verb_simulate);
        int code = take(o, opt);
        if (code)
            return code;
    }
    if (argc - optind != 1)
        return weft_tool_usage(&weft_verb_simulate, "name one plan");
    o->plan = argv[optind];
    return check(o);
}

static int run_simulate(int argc, char **argv)
{
    static options o;
    o = (options){.speed = 1,
                  .arrivals = {.seed = 1},
                  .sim = {.start_s = 2, .mig_s = 5},
                  .pipeline = {.run = {.verify = WEFT_VERIFY_OFF}}};
    int code = parse(argc, argv, &o);
    if (code >= 0)
        return code;
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_err err = diag && arena ? run_options(&o, arena, diag) : WEFT_ERR_NOMEM;
    weft_tool_progress(NULL);
    code = weft_tool_report(diag, err);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return code;
}

const weft_verb weft_verb_simulate = {
    .name = "simulate",
    .usage =
        "usage: weft simulate PLAN.json [OPTIONS]\n"
        "Serves requests by the plan in virtual time: goodput, SLO violations, latencies, use,\n"
        "energy, carbon and cost. Equal inputs and seeds give equal bytes.\n\n"
        "      --set SET.yaml       models with profiles, SLOs and rates (default: the plan's\n"
        "                           models; times then follow from the plan's capacities)\n"
        "      --fleet FLEET.yaml   prices, and devices for --policy\n"
        "      --trace FILE         requests from a CSV ('-': standard input)\n"
        "      --arrivals KIND      poisson (default), bursty, constant, at the rates\n"
        "      --duration T         60s; of a trace: to its end\n"
        "      --seed N             1\n"
        "      --scale X            multiply the rates\n"
        "      --burst-factor X     rate in a burst over that between bursts (5)\n"
        "      --burst-share X      part of the time that is burst (0.1)\n"
        "      --burst-length T     mean length of a burst (1s)\n"
        "      --warmup T           serve but do not count what comes before (0s)\n"
        "      --bucket T           also report over time, in steps of T\n"
        "      --over-time FILE     that report as CSV ('-': standard output)\n"
        "      --router R           pull (default: as the server does), shares (by the plan's\n"
        "                           rates), least (loaded)\n"
        "      --close WHEN         a batch leaves when a worker is idle, or when it may not wait\n"
        "                           to fill any longer: idle (default of pull), fill\n"
        "      --max-queue-delay T  wait this long for a fuller batch (0s)\n"
        "      --timeout T          drop what has waited for so long (30s)\n"
        "      --queue N            requests that may wait in one queue (4096)\n"
        "      --then T=PLAN.json   from then on this plan; may be repeated\n"
        "      --start T            to start a worker (2s)\n"
        "      --mig T              to make a MIG instance anew, on top (5s)\n"
        "      --policy NAME        ask this policy for a plan every --period, with the rates "
        "seen\n"
        "      --period T           such as 20s\n"
        "      --headroom X         tell it those rates times X (1)\n"
        "      --policy-options K=V,...  parameters of the policy\n"
        "      --carbon FILE        grid intensity, hourly CSV\n"
        "      --pue X              power use of the site over that of its devices (1)\n"
        "      --format text|json   what is printed\n",
    .run = run_simulate,
};
