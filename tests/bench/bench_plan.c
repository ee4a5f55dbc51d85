/* How long policies think, on ParvaGPU's profiles.
 *
 *   bench_plan [--growth | --scale [--models N] [--seed N] [--worlds a,b,...] [--effort N]]
 *              [--policies a,b,...]
 *
 * Prints for scenario S5 once and ten times (11 and 110 services): devices, bound, milliseconds of
 * CPU time for the decision (best of several runs, without the checker). ParvaGPU's own program
 * takes 0.6 to 1.4 ms and 5.3 to 7.4 ms on a 2-core machine (reference: scheduling, section 11.4).
 * --growth: random sets of 10, 100 and 1,000 models at up to 15 M requests a second together on
 * 10,000 devices: milliseconds, and peak resident memory of the process so far; then the change of
 * one rate with the previous plan given.
 * --scale: sets of 10, 100, 1,000 and 10,000 models (or --models) with random SLOs and rates that
 * need about eight devices a model, with the default effort, in four worlds: `isolated` (A100 split
 * by MIG, a slice for each model), `shared` (the same, several models in turn on a slice allowed),
 * `mixed` (A100 and H100 split by MIG and whole L4, with list prices, in turn allowed; the times of
 * the other types are those of the A100 divided by 1.9 and 0.45) and `small` (models of at most 40
 * requests a second on H100 split by MIG or MPS, in turn allowed; a share has the times of the
 * instance with as many GPCs, and the model takes 0.5 to 1.5 GB). Then one rate doubled with the
 * previous plan given. Moved: pieces of the new plan that were not there before. */
#include "../support/parvagpu_sets.h"

#include "base/arena.h"
#include "base/diag.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double ms_of(struct timeval t)
{
    return (double)t.tv_sec * 1e3 + (double)t.tv_usec / 1e3;
}

/* CPU time of this thread and of the solver's processes. */
static double now_ms(void)
{
    struct timespec t;
    struct rusage use;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    getrusage(RUSAGE_CHILDREN, &use);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6 + ms_of(use.ru_utime) +
           ms_of(use.ru_stime);
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

/* -- Scale ------------------------------------------------------------------------------------ */

enum { SCALE_TYPES = 3, SCALE_WORLDS = 4 };

static const char *const scale_world[SCALE_WORLDS] = {"isolated", "shared", "mixed", "small"};

static const struct {
    const char *type, *slice[7]; /* by GPCs - 1; NULL: the type has no such slice */
    double speed;
} scale_type[SCALE_TYPES] = {
    {"a100-80", {"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", NULL, NULL, "7g.80gb"}, 1},
    {"h100", {"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", NULL, NULL, "7g.80gb"}, 1.9},
    {"l4", {NULL, NULL, NULL, NULL, NULL, NULL, ""}, 0.45}};

/* The profile measured on the A100, on all types. */
static weft_profile spread_profile(const weft_profile *one, weft_arena *arena)
{
    weft_profile_point *point = weft_arena_array(arena, one->n * SCALE_TYPES, sizeof *point);
    size_t n = 0;
    for (size_t t = 0; t < SCALE_TYPES; t++)
        for (size_t i = 0; i < one->n; i++) {
            const char *slice = scale_type[t].slice[one->point[i].slice[0] - '1'];
            if (!slice)
                continue;
            point[n] = one->point[i];
            snprintf(point[n].device, sizeof point[n].device, "%s", scale_type[t].type);
            snprintf(point[n].slice, sizeof point[n].slice, "%s", slice);
            point[n].cost.time_us /= scale_type[t].speed;
            point[n++].throughput_per_s *= scale_type[t].speed;
        }
    return (weft_profile){.point = point, .n = n};
}

/* MIG instances of an H100, and MPS shares for those of them that one process was measured on. */
static weft_profile small_profile(const weft_profile *one, size_t model, weft_arena *arena)
{
    static const char *const share[] = {"15%", "30%", "45%", "60%", NULL, NULL, "100%"};
    weft_profile_point *point = weft_arena_array(arena, one->n * 2, sizeof *point);
    size_t n = 0;
    for (size_t i = 0; i < one->n; i++) {
        size_t gpcs = (size_t)(one->point[i].slice[0] - '1');
        const char *slice[] = {scale_type[1].slice[gpcs], share[gpcs]};
        for (size_t k = 0; k < 1u + (one->point[i].procs == 1); k++) {
            weft_profile_point *p = &point[n++];
            *p = one->point[i];
            snprintf(p->device, sizeof p->device, "h100");
            snprintf(p->slice, sizeof p->slice, "%s", slice[k]);
            p->cost.time_us /= scale_type[1].speed;
            p->throughput_per_s *= scale_type[1].speed;
            p->cost.mreq_bytes = 500000000 + 100000000 * model;
        }
    }
    return (weft_profile){.point = point, .n = n};
}

static void make_world(const parvagpu_data *data, const char *world, uint32_t n, uint64_t seed,
                       weft_arena *arena, parvagpu_set *set, weft_fleet *fleet,
                       weft_fleet_device *device)
{
    double sum = 0;
    bool mixed = strcmp(world, "mixed") == 0, small = strcmp(world, "small") == 0;
    weft_profile profile[PARVAGPU_SET_MODELS];
    for (size_t m = 0; m < PARVAGPU_SET_MODELS; m++)
        profile[m] = mixed   ? spread_profile(&data->profile[m], arena)
                     : small ? small_profile(&data->profile[m], m, arena)
                             : data->profile[m];
    parvagpu_random(data, seed, n, 20, 3, arena, set);
    weft_demand *demand = (weft_demand *)set->demands.at;
    for (uint32_t i = 0; i < n; i++) {
        size_t m = 0;
        while (strncmp(demand[i].model, parvagpu_set_model[m], strlen(parvagpu_set_model[m])) != 0)
            m++;
        sum += demand[i].rate_per_s / data->peak_per_s[m];
        demand[i].profile = profile[m];
        if (small)
            demand[i].rate_per_s *= 2 / data->peak_per_s[m];
    }
    for (uint32_t i = 0; i < n && !small; i++)
        demand[i].rate_per_s *= 6.5 * n / sum;
    for (size_t t = 0; t < SCALE_TYPES; t++)
        device[t] = (weft_fleet_device){.type = scale_type[small ? 1 : t].type,
                                        .count = (n > 1000 ? n * 10 : 10000) / (mixed ? 3 : 1),
                                        .mig = small || t < 2,
                                        .mps = small};
    *fleet = (weft_fleet){.file = "fleet", .device = device, .n_device = mixed ? SCALE_TYPES : 1};
    set->problem.fleet = fleet;
    set->problem.rules.isolated = strcmp(world, "isolated") == 0;
    set->problem.solver = &weft_solver_cbc;
}

static uint32_t count_moved(const weft_plan *before, const weft_plan *after, weft_arena *arena)
{
    const weft_plan_move *move;
    size_t n;
    uint32_t moved = 0;
    weft_plan_diff(before, after, arena, &move, &n);
    for (size_t i = 0; i < n; i++)
        moved += move[i].to != NULL;
    return moved;
}

static void bench_scale_one(const parvagpu_data *data, const char *world, uint32_t n,
                            uint64_t effort, uint64_t seed)
{
    const weft_policy *weft = weft_policy_find("weft");
    weft_arena *arena = weft_arena_create(0), *other = weft_arena_create(0);
    weft_fleet_device device[SCALE_TYPES];
    weft_fleet fleet;
    parvagpu_set set;
    weft_plan plan, next;
    double ms;
    make_world(data, world, n, seed, arena, &set, &fleet, device);
    set.problem.effort = effort;
    if (!time_plan(weft, &set.problem, 1, arena, &plan, &ms)) {
        printf("%-8s %5u models: no plan\n", world, n);
    } else {
        printf(
            "%-8s %5u full        %5u devices, bound %5.0f, $%9.2f/h, gap %.3f %%, %6zu segments, "
            "%9.2f ms, peak %.0f MB\n",
            world, n, plan.gpus, plan.lower_bound, plan.cost_per_hour, weft_plan_gap(&plan) * 100,
            plan.n, ms, peak_mb());
        set.problem.previous = &plan;
        ((weft_demand *)set.demands.at)[n / 2].rate_per_s *= 2;
        if (time_plan(weft, &set.problem, 1, other, &next, &ms))
            printf("%-8s %5u incremental %5u devices, bound %5.0f, $%9.2f/h, gap %.3f %%, %6u "
                   "moved,    "
                   "%9.2f ms, peak %.0f MB\n",
                   world, n, next.gpus, next.lower_bound, next.cost_per_hour,
                   weft_plan_gap(&next) * 100, count_moved(&plan, &next, other), ms, peak_mb());
    }
    fflush(stdout);
    weft_arena_destroy(other);
    weft_arena_destroy(arena);
}

static void bench_scale(const parvagpu_data *data, const char *worlds, uint32_t only,
                        uint64_t effort, uint64_t seed)
{
    for (size_t w = 0; w < SCALE_WORLDS; w++)
        for (uint32_t n = only ? only : 10; n <= 10000 && is_wanted(worlds, scale_world[w]);
             n *= 10) {
            bench_scale_one(data, scale_world[w], n, effort, seed);
            if (only)
                break;
        }
}

int main(int argc, char **argv)
{
    static parvagpu_data data;
    const char *policies = NULL;
    const char *worlds = NULL;
    bool growth = false, scale = false;
    uint32_t models = 0;
    uint64_t effort = 0, seed = 7;
    weft_arena *arena = weft_arena_create(0);
    for (int i = 1; i < argc; i++) {
        growth = growth || strcmp(argv[i], "--growth") == 0;
        scale = scale || strcmp(argv[i], "--scale") == 0;
        if (strcmp(argv[i], "--policies") == 0 && i + 1 < argc)
            policies = argv[++i];
        else if (strcmp(argv[i], "--worlds") == 0 && i + 1 < argc)
            worlds = argv[++i];
        else if (strcmp(argv[i], "--models") == 0 && i + 1 < argc)
            models = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--effort") == 0 && i + 1 < argc)
            effort = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
    }
    if (!parvagpu_load(arena, &data)) {
        printf("no parvagpu folder in WEFT_DATA\n");
        return 77;
    }
    if (scale)
        bench_scale(&data, worlds, models, effort, seed);
    else if (growth)
        bench_growth(&data);
    else
        bench_scenarios(&data, policies);
    weft_arena_destroy(arena);
    return 0;
}
