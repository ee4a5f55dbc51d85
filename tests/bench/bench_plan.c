/* How long policies think, on ParvaGPU's profiles.
 *
 *   bench_plan [--growth] [--policies a,b,...]
 *
 * Prints for scenario S5 once and ten times (11 and 110 services): devices, bound, milliseconds of
 * CPU time for the decision (best of several runs, without the checker). ParvaGPU's own program
 * takes 0.6 to 1.4 ms and 5.3 to 7.4 ms on a 2-core machine (reference: scheduling, section 11.4).
 * --growth: random sets of 10, 100 and 1,000 models at up to 15 M requests a second together on
 * 10,000 devices: milliseconds, and peak resident memory of the process so far; then the change of
 * one rate with the previous plan given. */
#include "../support/parvagpu_sets.h"

#include "base/arena.h"
#include "base/diag.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double peak_mb(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)use.ru_maxrss / 1024;
}

/* Least CPU time of `runs` decisions; false: the policy finds no plan. *out is allocated from
 * `arena`. */
static bool time_plan(const weft_policy *policy, const weft_problem *problem, int runs,
                      weft_arena *arena, weft_plan *out, double *out_ms)
{
    for (int i = 0; i < runs; i++) {
        weft_arena *own = i + 1 == runs ? arena : weft_arena_create(0);
        void *state = policy->state_size ? calloc(1, policy->state_size) : NULL;
        double start = now_ms();
        weft_err err = policy->place(state, problem, own, NULL, out);
        double took = now_ms() - start;
        free(state);
        if (i + 1 < runs)
            weft_arena_destroy(own);
        if (err != WEFT_ERR_OK)
            return false;
        *out_ms = i == 0 || took < *out_ms ? took : *out_ms;
    }
    return true;
}

static bool is_wanted(const char *list, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && memcmp(at, name, len) == 0)
            return true;
    return !list;
}

static void print_line(const char *set, const char *policy, const char *mode,
                       const weft_problem *problem, const weft_policy *p, int runs)
{
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    double ms;
    if (time_plan(p, problem, runs, arena, &plan, &ms))
        printf("%-8s %-20s %-6s %5u devices, bound %5.0f, %9.3f ms\n", set, policy, mode, plan.gpus,
               plan.lower_bound, ms);
    else
        printf("%-8s %-20s %-6s no plan\n", set, policy, mode);
    fflush(stdout);
    weft_arena_destroy(arena);
}

static void bench_scenarios(const parvagpu_data *data, const char *policies)
{
    for (uint32_t times = 1; times <= 10; times *= 10) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        parvagpu_scenario(data, 4, times, 3, arena, &set);
        for (size_t i = 0; weft_policy_at(i); i++) {
            const weft_policy *p = weft_policy_at(i);
            if (!is_wanted(policies, p->name))
                continue;
            const char *name = times == 1 ? "S5" : "S5 x 10";
            set.problem.effort = 0;
            print_line(name, p->name, "", &set.problem, p, 3);
            set.problem.effort = 1;
            if (strcmp(p->name, "weft") == 0)
                print_line(name, p->name, "fast", &set.problem, p, 20);
        }
        weft_arena_destroy(arena);
    }
}

static void bench_growth(const parvagpu_data *data)
{
    const weft_policy *weft = weft_policy_find("weft");
    for (uint32_t n = 10; n <= 1000; n *= 10) {
        weft_arena *arena = weft_arena_create(0), *other = weft_arena_create(0);
        parvagpu_set set;
        weft_plan plan, next;
        double ms, sum = 0;
        parvagpu_random(data, 1, n, 20, 3, arena, &set);
        weft_demand *demand = (weft_demand *)set.demands.at;
        for (uint32_t i = 0; i < n; i++)
            sum += demand[i].rate_per_s;
        for (uint32_t i = 0; i < n; i++) {
            demand[i].rate_per_s *= 15e3 * n / sum;
            demand[i].slo_us *= 4;
        }
        set.problem.effort = 1;
        if (!time_plan(weft, &set.problem, 3, arena, &plan, &ms)) {
            printf("%u models: no plan\n", n);
            continue;
        }
        printf(
            "%4u models, %8.0f requests/s: %5u devices, bound %5.0f, %zu segments, %8.2f ms, peak "
            "%.0f MB\n",
            n, 15e3 * n, plan.gpus, plan.lower_bound, plan.n, ms, peak_mb());
        set.problem.previous = &plan;
        demand[n / 2].rate_per_s *= 1.3;
        if (time_plan(weft, &set.problem, 5, other, &next, &ms))
            printf("            one rate x 1.3:           %5u devices, bound %5.0f, %zu segments, "
                   "%8.2f ms\n",
                   next.gpus, next.lower_bound, next.n, ms);
        weft_arena_destroy(other);
        weft_arena_destroy(arena);
    }
}

int main(int argc, char **argv)
{
    static parvagpu_data data;
    const char *policies = NULL;
    bool growth = false;
    weft_arena *arena = weft_arena_create(0);
    for (int i = 1; i < argc; i++) {
        growth = growth || strcmp(argv[i], "--growth") == 0;
        if (strcmp(argv[i], "--policies") == 0 && i + 1 < argc)
            policies = argv[++i];
    }
    if (!parvagpu_load(arena, &data)) {
        printf("no parvagpu folder in WEFT_DATA\n");
        return 77;
    }
    if (growth)
        bench_growth(&data);
    else
        bench_scenarios(&data, policies);
    weft_arena_destroy(arena);
    return 0;
}
