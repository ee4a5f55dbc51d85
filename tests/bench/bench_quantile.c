/* What planning on a quantile of the times costs, and how many requests miss their SLO without it.
 *
 *   regress_whole_models --points | bench_quantile >results/quantile.csv
 *
 * ParvaGPU's scenarios S1..S6 and a hundred random sets of its models are planned by `weft` under
 * the rule queue (Poisson arrivals, 99 % in time), with times as in the profiles and on quantiles
 * of them. The profiles are those of its measurements, taken as predictions; the true times of each
 * service are these times a factor that is drawn from the residuals of the estimator: measured over
 * predicted time of the networks that no constant was fitted to, at up to three processes
 * (standard input). The band of the profile is that of all residuals. Plans serve their demands in
 * the simulator at the true times.
 *
 * A row is the sum over a group of sets: devices, devices at the first confidence, missed requests
 * in percent, services with more than 2 % missed, services. */
#include "base/arena.h"
#include "base/diag.h"
#include "tests/bench/times.h"
#include "tests/support/parvagpu_sets.h"

#include <stdio.h>
#include <stdlib.h>

enum { RESIDUALS_MAX = 4096, RANDOM_SETS = 100, DRAWS = 3, LINE = 256 };
static const double duration_s = 6, warmup_s = 1, missed_most = 0.02;
static const double confidences[] = {0, 0.7, 0.8, 0.9, 0.95};
enum { CONFIDENCES = sizeof confidences / sizeof confidences[0] };

static double residual[RESIDUALS_MAX]; /* true over predicted time, ascending */
static size_t n_residual;

typedef struct sums {
    unsigned devices, services, services_missed, infeasible;
    double requests, missed;
} sums;

/* Lines of regress_whole_models --points: network, slice, batch, processes, latency measured and
 * predicted, throughput measured and predicted. */
static void read_residuals(void)
{
    static const char *const fitted[] = {"bert", "densenet121", "resnet50", "vgg16"};
    char line[LINE], name[32];
    while (fgets(line, sizeof line, stdin) && n_residual < RESIDUALS_MAX) {
        int batch, procs;
        double ms, guess_ms, per_s, guess_per_s;
        bool use = sscanf(line, "%31[^,],%*[^,],%d,%d,%lf,%lf,%lf,%lf", name, &batch, &procs, &ms,
                          &guess_ms, &per_s, &guess_per_s) == 7 &&
                   procs <= 3 && per_s > 0;
        for (size_t i = 0; i < sizeof fitted / sizeof fitted[0]; i++)
            use = use && strcmp(name, fitted[i]) != 0;
        if (use)
            residual[n_residual++] = guess_per_s / per_s;
    }
    sort_times(residual, n_residual);
}

/* The profile with all times multiplied; band: its 95 % quantile over the time. */
static weft_profile scale(const weft_profile *profile, double factor, double band,
                          weft_arena *arena)
{
    weft_profile_point *point = weft_arena_array(arena, profile->n, sizeof *point);
    for (size_t i = 0; i < profile->n; i++) {
        point[i] = profile->point[i];
        point[i].cost.time_us *= factor;
        point[i].cost.time_p95_us = point[i].cost.time_us * band;
        point[i].throughput_per_s /= factor;
    }
    return (weft_profile){.point = point, .n = profile->n};
}

/* The demands of a set with their profiles scaled; a factor of 0 is drawn. */
static weft_demands scale_all(const weft_demands *demands, double factor, double band,
                              uint64_t *seed, weft_arena *arena)
{
    weft_demand *out = weft_arena_array(arena, demands->n, sizeof *out);
    for (size_t i = 0; i < demands->n; i++) {
        double by = factor > 0 ? factor : residual[rand_next(seed) % n_residual];
        out[i] = demands->at[i];
        out[i].profile = scale(&demands->at[i].profile, by, band, arena);
    }
    return (weft_demands){.at = out, .n = demands->n};
}

static void serve(const weft_plan *plan, const weft_problem *problem, uint64_t seed,
                  weft_arena *arena, sums *to)
{
    const weft_service *service;
    size_t n;
    weft_arrivals *arrivals;
    weft_sim_report report;
    weft_diag *diag = weft_diag_create();
    weft_arrivals_options how = {
        .kind = WEFT_ARRIVE_POISSON, .duration_s = duration_s, .seed = seed};
    weft_sim_options options = {
        .plan = plan, .problem = problem, .duration_s = duration_s, .warmup_s = warmup_s};
    weft_sim_services(problem, arena, &service, &n);
    if (weft_arrivals_generate(&how, service, n, arena, diag, &arrivals) != WEFT_ERR_OK ||
        weft_simulate(&options, arrivals, arena, diag, &report) != WEFT_ERR_OK) {
        fprintf(stderr, "%s\n", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "no memory");
        exit(1);
    }
    weft_arrivals_close(arrivals);
    for (size_t i = 0; i < report.n_service; i++) {
        const weft_sim_counts *c = &report.service[i].count;
        double missed = (double)(c->requests - c->good);
        to->requests += (double)c->requests;
        to->missed += missed;
        to->services++;
        to->services_missed += missed > missed_most * (double)c->requests;
    }
    weft_diag_destroy(diag);
}

static void run_set(const parvagpu_set *set, uint64_t seed, sums *to)
{
    double band = residual[n_residual * 95 / 100];
    for (size_t c = 0; c < CONFIDENCES; c++) {
        weft_arena *arena = weft_arena_create(0);
        weft_problem problem = set->problem;
        weft_demands planned = scale_all(&set->demands, 1, band, NULL, arena);
        weft_plan plan;
        problem.demands = &planned;
        problem.rules = (weft_rules){.latency = WEFT_RULE_QUEUE,
                                     .procs_max = 3,
                                     .isolated = true,
                                     .confidence = confidences[c]};
        weft_diag *diag = weft_diag_create();
        if (weft_plan_make(weft_policy_find("weft"), NULL, &problem, arena, diag, &plan) !=
            WEFT_ERR_OK) {
            to[c].infeasible++;
        } else {
            to[c].devices += plan.gpus;
            uint64_t draw = seed;
            for (unsigned i = 0; i < DRAWS; i++) {
                weft_arena_mark mark = weft_arena_get_mark(arena);
                weft_demands truth = scale_all(&set->demands, 0, 1, &draw, arena);
                weft_problem real = problem;
                real.demands = &truth;
                real.rules.confidence = 0;
                serve(&plan, &real, seed + i, arena, &to[c]);
                weft_arena_reset(arena, mark);
            }
        }
        weft_diag_destroy(diag);
        weft_arena_destroy(arena);
    }
}

static void print(const char *name, const sums *of)
{
    for (size_t c = 0; c < CONFIDENCES; c++)
        printf("%s,%g,%u,%.3f,%.2f,%u,%u,%u\n", name, confidences[c], of[c].devices,
               of[0].devices ? (double)of[c].devices / of[0].devices : 0,
               100 * of[c].missed / fmax(1, of[c].requests), of[c].services_missed, of[c].services,
               of[c].infeasible);
    fflush(stdout);
}

int main(void)
{
    static parvagpu_data data;
    weft_arena *arena = weft_arena_create(0);
    read_residuals();
    if (n_residual < 100 || !parvagpu_load(arena, &data)) {
        fprintf(stderr, "needs the points of regress_whole_models on standard input, and "
                        "WEFT_DATA\n");
        return 77;
    }
    printf("# regress_whole_models --points | bench_quantile; %zu residuals, 5 %% %.3f, median "
           "%.3f, 95 %% %.3f\nsets,confidence,devices,devices_part,missed_percent,"
           "services_missed,services,infeasible\n",
           n_residual, residual[n_residual * 5 / 100], residual[n_residual / 2],
           residual[n_residual * 95 / 100]);
    for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
        parvagpu_set set;
        sums of[CONFIDENCES] = {{0}};
        char name[16];
        parvagpu_scenario(&data, s, 1, 3, arena, &set);
        run_set(&set, 1 + s, of);
        snprintf(name, sizeof name, "S%zu", s + 1);
        print(name, of);
    }
    sums of[CONFIDENCES] = {{0}};
    for (unsigned i = 1; i <= RANDOM_SETS; i++) {
        parvagpu_set set;
        parvagpu_random(&data, i, 0, 2, 3, arena, &set);
        run_set(&set, 100 + i, of);
    }
    print("random", of);
    weft_arena_destroy(arena);
    return 0;
}
