/* Every policy on one table: ParvaGPU's scenarios, multiples of them, and random sets drawn from
 * the same profiles. Recomputes plan_scenarios.csv; fails when a policy needs more devices than
 * recorded, when `weft` needs more than any other policy on any set, when it misses the optimum of
 * a scenario, or when its mean gap to the bound on the random sets exceeds 3 %.
 *
 *   S1..S6     scenarios, p3: at most three processes on an instance, p5: five
 *   S5x2..10   every service of S5 so many times, p5
 *   R001..200  random sets, p3, models isolated as in the scenarios
 *   T001..050  the same sets with several models on one slice allowed; the bound is fractional
 *
 * devices 0: the policy finds no plan. `plan_scenarios --bless` rewrites the table. */
#include "../support/parvagpu_sets.h"

#include "base/arena.h"
#include "base/diag.h"

#include <errno.h>

enum { ROWS_MAX = 20000, POLICIES_MAX = 64, NAME_MAX_LEN = 48 };

typedef struct row {
    char set[16], policy[NAME_MAX_LEN];
    unsigned devices, bound;
    int proven;
} row;

static row recorded[ROWS_MAX], made[ROWS_MAX];
static size_t n_recorded, n_made;
static int failures;

static void read_table(const char *path)
{
    char line[256];
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    while (n_recorded < ROWS_MAX && fgets(line, sizeof line, f)) {
        row *r = &recorded[n_recorded];
        n_recorded += sscanf(line, "%15[^,],%47[^,],%u,%u,%d", r->set, r->policy, &r->devices,
                             &r->bound, &r->proven) == 5;
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
    fprintf(f, "# regress_plan_scenarios --bless\nset,policy,devices,bound,proven\n");
    for (size_t i = 0; i < n_made; i++)
        fprintf(f, "%s,%s,%u,%u,%d\n", made[i].set, made[i].policy, made[i].devices, made[i].bound,
                made[i].proven);
    return fclose(f) != 0;
}

static void compare_row(const row *r)
{
    for (size_t i = 0; i < n_recorded; i++) {
        const row *old = &recorded[i];
        if (strcmp(old->set, r->set) != 0 || strcmp(old->policy, r->policy) != 0)
            continue;
        bool worse =
            r->devices == 0 ? old->devices != 0 : old->devices != 0 && r->devices > old->devices;
        if (worse) {
            fprintf(stderr, "%s %s: %u devices, recorded are %u\n", r->set, r->policy, r->devices,
                    old->devices);
            failures++;
        }
        return;
    }
}

/* All policies on one set; *gap: of weft to its bound. */
static void run_set(const char *name, const weft_problem *problem, unsigned optimum, double *gap)
{
    unsigned least = 0, own = 0;
    for (size_t i = 0; weft_policy_at(i); i++) {
        const weft_policy *policy = weft_policy_at(i);
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        weft_plan plan;
        row r = {.devices = 0};
        snprintf(r.set, sizeof r.set, "%s", name);
        snprintf(r.policy, sizeof r.policy, "%s", policy->name);
        weft_err err = weft_plan_make(policy, NULL, problem, arena, diag, &plan);
        if (err == WEFT_ERR_OK) {
            r.devices = plan.gpus;
            r.bound = (unsigned)plan.lower_bound;
            r.proven = plan.proven;
        } else if (err != WEFT_ERR_INFEASIBLE) {
            fprintf(stderr, "%s %s: %s\n", name, policy->name, weft_diag_at(diag, 0)->text);
            failures++;
        }
        if (strcmp(policy->name, "weft") == 0) {
            own = r.devices;
            *gap = own ? plan.gpus / plan.lower_bound - 1 : 0;
        } else if (r.devices && (least == 0 || r.devices < least)) {
            least = r.devices;
        }
        if (n_made < ROWS_MAX)
            made[n_made++] = r;
        weft_diag_destroy(diag);
        weft_arena_destroy(arena);
    }
    if (least && (own == 0 || own > least)) {
        fprintf(stderr, "%s: weft needs %u devices, another policy %u\n", name, own, least);
        failures++;
    }
    if (optimum && own != optimum) {
        fprintf(stderr, "%s: weft needs %u devices, the optimum is %u\n", name, own, optimum);
        failures++;
    }
}

static void run_scenarios(const parvagpu_data *data)
{
    static const unsigned optimum[2][PARVAGPU_SCENARIOS] = {{2, 3, 5, 7, 12, 16},
                                                            {2, 3, 5, 7, 12, 15}};
    static const unsigned times[] = {2, 4, 6, 8, 10}, multiple[] = {24, 47, 71, 94, 118};
    char name[16];
    double gap;
    for (unsigned five = 0; five < 2; five++)
        for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            parvagpu_scenario(data, s, 1, five ? 5 : 3, arena, &set);
            snprintf(name, sizeof name, "S%zu-p%d", s + 1, five ? 5 : 3);
            run_set(name, &set.problem, optimum[five][s], &gap);
            weft_arena_destroy(arena);
        }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        parvagpu_scenario(data, 4, times[i], 5, arena, &set);
        snprintf(name, sizeof name, "S5x%u", times[i]);
        run_set(name, &set.problem, multiple[i], &gap);
        weft_arena_destroy(arena);
    }
}

static void run_random(const parvagpu_data *data)
{
    double gap, sum[2] = {0, 0};
    unsigned count[2] = {200, 50};
    for (int shared = 0; shared < 2; shared++)
        for (unsigned i = 1; i <= count[shared]; i++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            char name[16];
            parvagpu_random(data, i, 0, 2, 3, arena, &set);
            set.problem.rules.isolated = !shared;
            snprintf(name, sizeof name, "%c%03u", shared ? 'T' : 'R', i);
            run_set(name, &set.problem, 0, &gap);
            sum[shared] += gap;
            weft_arena_destroy(arena);
        }
    printf("mean gap of weft to its bound: %.2f %% isolated, %.2f %% shared (fractional bound)\n",
           100 * sum[0] / count[0], 100 * sum[1] / count[1]);
    if (sum[0] / count[0] > 0.03) {
        fprintf(stderr, "the mean gap on the random sets exceeds 3 %%\n");
        failures++;
    }
}

static void print_sums(void)
{
    for (size_t i = 0; weft_policy_at(i); i++) {
        const char *policy = weft_policy_at(i)->name;
        unsigned sum = 0, none = 0;
        for (size_t r = 0; r < n_made; r++)
            if (strcmp(made[r].policy, policy) == 0 && made[r].set[0] == 'R') {
                sum += made[r].devices;
                none += made[r].devices == 0;
            }
        printf("%-20s %5u devices on R001..R200, %u without a plan\n", policy, sum, none);
    }
}

int main(int argc, char **argv)
{
    static parvagpu_data data;
    const char *path = WEFT_SOURCE_DIR "/tests/regress/plan_scenarios.csv";
    bool bless = argc > 1 && strcmp(argv[1], "--bless") == 0;
    weft_arena *arena = weft_arena_create(0);
    if (!arena || !parvagpu_load(arena, &data)) {
        printf("no parvagpu folder in WEFT_DATA\n");
        weft_arena_destroy(arena);
        return 77;
    }
    if (!bless)
        read_table(path);
    run_scenarios(&data);
    run_random(&data);
    print_sums();
    for (size_t i = 0; i < n_made; i++)
        compare_row(&made[i]);
    weft_arena_destroy(arena);
    if (bless && failures == 0)
        return write_table(path);
    return failures != 0;
}
