/* MIG-serving: configurations worked out by hand, and the published scenarios of ParvaGPU. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "tests/support/data_dir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MODELS = 11, SCENARIOS = 6, POINTS = 8 };

typedef struct small {
    weft_demand demand[3];
    weft_profile_point point[3][POINTS];
} small;

/* 100/s per compute slot, less than in proportion on large instances. */
static void make_small(small *s, const double *rate_per_s, size_t n)
{
    static const struct {
        const char *slice;
        double per_s;
    } slices[] = {
        {"1g.10gb", 100}, {"2g.20gb", 200}, {"3g.40gb", 290}, {"4g.40gb", 370}, {"7g.80gb", 600}};
    static const char *const name[3] = {"a", "b", "c"};
    memset(s, 0, sizeof *s);
    for (size_t m = 0; m < n; m++) {
        s->demand[m] = (weft_demand){.model = name[m],
                                     .slo_us = 1e6,
                                     .rate_per_s = rate_per_s[m],
                                     .profile = {.point = s->point[m], .n = 5}};
        for (size_t i = 0; i < 5; i++) {
            weft_profile_point *p = &s->point[m][i];
            *p = (weft_profile_point){.device = "a100-80", .share = 0.5, .batch = 1, .procs = 1};
            strcpy(p->slice, slices[i].slice);
            p->cost.time_us = 1e6 / slices[i].per_s;
        }
    }
}

static weft_err plan_with(const weft_demand *demand, size_t n, uint32_t gpus, weft_rules rules,
                          weft_goal goal, weft_arena *arena, weft_plan *plan)
{
    weft_fleet_device device = {.type = "a100-80", .count = gpus, .mig = true};
    weft_fleet fleet = {.file = "fleet", .device = &device, .n_device = 1};
    weft_demands demands = {demand, n};
    weft_problem problem = {.demands = &demands, .fleet = &fleet, .rules = rules, .goal = goal};
    weft_diag *diag = weft_diag_create();
    weft_err err =
        weft_plan_make(weft_policy_find("mig-serving"), NULL, &problem, arena, diag, plan);
    if (err != WEFT_ERR_OK && err != WEFT_ERR_INFEASIBLE)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_diag_destroy(diag);
    return err;
}

/* 700/s as seven 1g fill a device without loss; at the end, three models share one device. */
static void test_mig_serving__fills_devices(void **state)
{
    static const double rate[3] = {1400, 0, 0}, mixed[3] = {300, 200, 200};
    small *s = malloc(sizeof *s);
    weft_plan plan;
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    make_small(s, rate, 1);
    assert_int_equal(plan_with(s->demand, 1, 9, (weft_rules){0}, WEFT_GOAL_COST, arena, &plan),
                     WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 2);
    make_small(s, mixed, 3);
    assert_int_equal(plan_with(s->demand, 3, 9, (weft_rules){0}, WEFT_GOAL_COST, arena, &plan),
                     WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 1);
    make_small(s, rate, 3); /* two models without a rate */
    assert_int_equal(plan_with(s->demand, 3, 9, (weft_rules){0}, WEFT_GOAL_COST, arena, &plan),
                     WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 3);
    assert_int_equal(plan_with(s->demand, 3, 1, (weft_rules){0}, WEFT_GOAL_COST, arena, &plan),
                     WEFT_ERR_INFEASIBLE);
    assert_int_equal(plan_with(s->demand, 3, 1, (weft_rules){0}, WEFT_GOAL_GOODPUT, arena, &plan),
                     WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 1);
    assert_int_equal(plan.n, 2); /* at most two models on a device before the end phase */
    weft_arena_destroy(arena);
    free(s);
}

static bool read_table(const char *name, double out[SCENARIOS][MODELS])
{
    char path[512], line[1024];
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    for (size_t r = 0; r < SCENARIOS && fgets(line, sizeof line, f); r++) {
        char *at = line;
        for (size_t c = 0; c < MODELS; c++) {
            char *field = strsep(&at, ",\r\n");
            out[r][c] = field && strcmp(field, "N/A") != 0 ? strtod(field, NULL) : 0;
        }
    }
    fclose(f);
    return true;
}

/* At least the optimum with one process, 2 3 5 7 13 17 devices, and at most half as many more. */
static void test_mig_serving__parvagpu_scenarios(void **state)
{
    static const uint32_t optimum[SCENARIOS] = {2, 3, 5, 7, 13, 17};
    static const char *const model[MODELS] = {
        "bert",      "densenet121", "densenet169", "densenet201", "inceptionv3", "mobilenetv2",
        "resnet101", "resnet152",   "resnet50",    "vgg16",       "vgg19"};
    double rate[SCENARIOS][MODELS], slo_ms[SCENARIOS][MODELS];
    weft_profile profile[MODELS];
    (void)state;
    if (!read_table("parvagpu/SLO/SLO_req_rate.csv", rate) ||
        !read_table("parvagpu/SLO/SLO_latency.csv", slo_ms)) {
        print_message("no measurements in the folder parvagpu (WEFT_DATA)\n");
        skip();
    }
    weft_arena *arena = weft_arena_create(0);
    for (size_t m = 0; m < MODELS; m++) {
        char name[64], path[512];
        snprintf(name, sizeof name, "parvagpu/profiles/%s.csv", model[m]);
        assert_true(weft_data_path(name, path, sizeof path));
        assert_int_equal(weft_profile_load(path, "parvagpu", model[m], arena, NULL, &profile[m]),
                         WEFT_ERR_OK);
    }
    weft_rules rules = {.latency = WEFT_RULE_HALF09, .whole_ms = true};
    for (size_t r = 0; r < SCENARIOS; r++) {
        weft_demand demand[MODELS];
        weft_plan plan;
        size_t n = 0;
        for (size_t m = 0; m < MODELS; m++)
            if (rate[r][m] > 0)
                demand[n++] = (weft_demand){.model = model[m],
                                            .slo_us = slo_ms[r][m] * 1e3,
                                            .rate_per_s = rate[r][m],
                                            .profile = profile[m]};
        assert_int_equal(plan_with(demand, n, 200, rules, WEFT_GOAL_COST, arena, &plan),
                         WEFT_ERR_OK);
        print_message("S%zu: %u devices\n", r + 1, plan.gpus);
        assert_true(plan.gpus >= optimum[r] && plan.gpus * 2 <= optimum[r] * 3);
        for (size_t i = 0; i < plan.n; i++)
            assert_int_equal(plan.at[i].procs, 1);
    }
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mig_serving__fills_devices),
        cmocka_unit_test(test_mig_serving__parvagpu_scenarios),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
