/* Plans of `weft` under each latency rule, replayed with random arrivals: devices, and the requests
 * that miss their SLO. Recomputes queue_capacity_plans.csv, and fails when a plan needs more
 * devices than recorded, or when a plan of the rule `queue` made for the arrivals that are replayed
 * has a model with over 1.2 % of its requests late (1 % and the noise of a run).
 *
 *   S1..S6     ParvaGPU's scenarios, p3: at most three processes on an instance, p5: five
 *   R001..012  random sets of the same profiles, models isolated as in the scenarios
 *   T001..006  random sets with several models on one slice allowed
 *
 * late: of all requests, worst: of the worst model, in per cent, over the seeds. `--seeds N`
 * replays more of them, `--bless` rewrites the table. */
#include "../support/parvagpu_sets.h"

#include "base/arena.h"
#include "base/diag.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { ROWS_MAX = 400, REQUESTS = 150000, MODELS_MAX = 64 };

static const double tolerance = 1.2, burst_s = 1; /* per cent; mean length of a burst */

typedef struct row {
    char set[16], rule[16], arrivals[16];
    unsigned devices;
    double late, worst;
} row;

static row recorded[ROWS_MAX], made[ROWS_MAX];
static size_t n_recorded, n_made;
static int failures;
static unsigned seeds = 2;

static void read_table(const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    while (n_recorded < ROWS_MAX && fgets(line, sizeof line, f)) {
        row *r = &recorded[n_recorded];
        n_recorded += sscanf(line, "%15[^,],%15[^,],%15[^,],%u,%lf,%lf", r->set, r->rule,
                             r->arrivals, &r->devices, &r->late, &r->worst) == 6;
    }
    fclose(f);
}

static int write_table(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    fprintf(f, "# regress_queue_capacity_plans --bless\nset,rule,arrivals,devices,late,worst\n");
    for (size_t i = 0; i < n_made; i++)
        fprintf(f, "%s,%s,%s,%u,%.2f,%.2f\n", made[i].set, made[i].rule, made[i].arrivals,
                made[i].devices, made[i].late, made[i].worst);
    return fclose(f) != 0;
}

/* Requests of each service that one run counts, and those that missed their SLO. */
static void replay(const weft_plan *plan, const weft_problem *problem, weft_arrival_kind kind,
                   uint64_t seed, double *n, double *missed)
{
    weft_arena *arena = weft_arena_create(0);
    const weft_service *service;
    weft_sim_report report;
    weft_arrivals *arrivals = NULL;
    size_t n_service;
    double sum = 0;
    weft_sim_services(problem, arena, &service, &n_service);
    for (size_t i = 0; i < n_service; i++)
        sum += service[i].rate_per_s;
    weft_arrivals_options generate = {
        .kind = kind, .duration_s = fmax(20, 2 + REQUESTS / sum), .seed = seed, .burst_s = burst_s};
    weft_sim_options options = {.plan = plan,
                                .problem = problem,
                                .router = WEFT_SIM_SHARES,
                                .close = WEFT_SIM_CLOSE_IDLE,
                                .warmup_s = 2,
                                .timeout_s = 1000,
                                .queue_max = 1 << 20};
    if (weft_arrivals_generate(&generate, service, n_service, arena, NULL, &arrivals) !=
            WEFT_ERR_OK ||
        weft_simulate(&options, arrivals, arena, NULL, &report) != WEFT_ERR_OK) {
        fprintf(stderr, "a run failed\n");
        failures++;
    } else {
        for (size_t i = 0; i < report.n_service && i < MODELS_MAX; i++) {
            const weft_sim_counts *c = &report.service[i].count;
            n[i] += (double)c->requests;
            missed[i] += (double)(c->late + c->dropped);
        }
    }
    weft_arrivals_close(arrivals);
    weft_arena_destroy(arena);
}

static void judge(row *r, const weft_plan *plan, const weft_problem *problem,
                  weft_arrival_kind kind)
{
    double n[MODELS_MAX] = {0}, missed[MODELS_MAX] = {0}, all = 0, late = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        replay(plan, problem, kind, seed, n, missed);
    for (size_t i = 0; i < MODELS_MAX; i++) {
        all += n[i];
        late += missed[i];
        if (n[i] > 0)
            r->worst = fmax(r->worst, 100 * missed[i] / n[i]);
    }
    r->late = all > 0 ? 100 * late / all : 0;
}

static void compare_row(const row *r)
{
    for (size_t i = 0; i < n_recorded; i++) {
        const row *old = &recorded[i];
        if (strcmp(old->set, r->set) == 0 && strcmp(old->rule, r->rule) == 0 &&
            strcmp(old->arrivals, r->arrivals) == 0 && r->devices > old->devices) {
            fprintf(stderr, "%s %s: %u devices, recorded are %u\n", r->set, r->rule, r->devices,
                    old->devices);
            failures++;
        }
    }
}

/* A plan under a rule, replayed with the arrivals. */
static void run(const char *name, const weft_problem *problem, weft_rules rules,
                weft_arrival_kind kind)
{
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_problem own = *problem;
    weft_plan plan;
    row r = {.devices = 0};
    own.rules = rules;
    snprintf(r.set, sizeof r.set, "%s", name);
    snprintf(r.rule, sizeof r.rule, "%s", weft_latency_rule_name(rules.latency));
    snprintf(r.arrivals, sizeof r.arrivals, "%s", weft_arrival_kind_name(kind));
    weft_err err = weft_plan_make(weft_policy_find("weft"), NULL, &own, arena, diag, &plan);
    if (err == WEFT_ERR_OK) {
        r.devices = plan.gpus;
        judge(&r, &plan, &own, kind);
    } else {
        fprintf(stderr, "%s %s: %s\n", name, r.rule, weft_diag_at(diag, 0)->text);
        failures += err != WEFT_ERR_INFEASIBLE;
    }
    if (rules.latency == WEFT_RULE_QUEUE && kind == WEFT_ARRIVE_POISSON && r.worst > tolerance) {
        fprintf(stderr, "%s: %.2f %% of the requests of a model are late\n", name, r.worst);
        failures++;
    }
    printf("%-6s %-7s %-8s %3u devices, late %.2f %%, worst model %.2f %%\n", r.set, r.rule,
           r.arrivals, r.devices, r.late, r.worst);
    fflush(stdout);
    compare_row(&r);
    if (n_made < ROWS_MAX)
        made[n_made++] = r;
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
}

static void run_rules(const char *name, const weft_problem *problem, bool bursts)
{
    static const weft_latency_rule rule[] = {WEFT_RULE_HALF, WEFT_RULE_HALF09, WEFT_RULE_EXACT,
                                             WEFT_RULE_QUEUE};
    for (size_t i = 0; i < sizeof rule / sizeof rule[0]; i++) {
        weft_rules rules = problem->rules;
        rules.latency = rule[i];
        run(name, problem, rules, WEFT_ARRIVE_POISSON);
        rules.arrivals = WEFT_ARRIVE_BURSTY;
        if (bursts)
            run(name, problem, rules, WEFT_ARRIVE_BURSTY);
    }
}

static void run_sets(const parvagpu_data *data)
{
    char name[16];
    for (uint32_t procs = 3; procs <= 5; procs += 2)
        for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            parvagpu_scenario(data, s, 1, procs, arena, &set);
            snprintf(name, sizeof name, "S%zu-p%u", s + 1, procs);
            run_rules(name, &set.problem, true);
            weft_arena_destroy(arena);
        }
    for (unsigned i = 1; i <= 18; i++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        bool shared = i > 12;
        parvagpu_random(data, i, 0, 0.5, 3, arena, &set);
        set.problem.rules.isolated = !shared;
        snprintf(name, sizeof name, "%c%03u", shared ? 'T' : 'R', shared ? i - 12 : i);
        run_rules(name, &set.problem, false);
        weft_arena_destroy(arena);
    }
}

int main(int argc, char **argv)
{
    static parvagpu_data data;
    const char *path = WEFT_SOURCE_DIR "/tests/regress/queue_capacity_plans.csv";
    bool bless = false;
    weft_arena *arena = weft_arena_create(0);
    for (int i = 1; i < argc; i++) {
        bless = bless || strcmp(argv[i], "--bless") == 0;
        if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc)
            seeds = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    if (!arena || !parvagpu_load(arena, &data)) {
        printf("no parvagpu folder in WEFT_DATA\n");
        weft_arena_destroy(arena);
        return 77;
    }
    if (!bless)
        read_table(path);
    run_sets(&data);
    weft_arena_destroy(arena);
    if (bless && failures == 0)
        return write_table(path);
    return failures != 0;
}
