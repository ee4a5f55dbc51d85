/* Squishy bin packing: the worked example of its paper, and the measured batches of Nexus, where
 * time is not monotone in the batch. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "tests/support/data_dir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { BATCHES_MAX = 256 };

typedef struct model {
    weft_profile_point point[BATCHES_MAX];
    weft_demand demand;
} model;

static void add_batch(model *m, uint32_t batch, double time_us)
{
    weft_profile_point *p = &m->point[m->demand.profile.n++];
    m->demand.profile.point = m->point;
    *p = (weft_profile_point){.device = "v100", .share = 1, .batch = batch, .procs = 1};
    p->cost.time_us = time_us;
}

static weft_plan plan_on(weft_arena *arena, const weft_demand *demand, size_t n,
                         weft_latency_rule rule, weft_goal goal, uint32_t gpus)
{
    weft_fleet_device device = {.type = "v100", .count = gpus};
    weft_fleet fleet = {.file = "fleet", .device = &device, .n_device = 1};
    weft_demands demands = {demand, n};
    weft_problem problem = {
        .demands = &demands, .fleet = &fleet, .rules = {.latency = rule}, .goal = goal};
    weft_diag *diag = weft_diag_create();
    weft_plan plan = {0};
    if (weft_plan_make(weft_policy_find("sbp"), NULL, &problem, arena, diag, &plan))
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_diag_destroy(diag);
    return plan;
}

/* Nexus (SOSP'19), section 4: A at 64/s under 200 ms runs batch 8 in rounds of 125 ms. This leaves
 * 50 ms, enough for a batch of 4 of B, and too little for C. */
static void test_sbp__example_of_the_paper(void **state)
{
    static const double time_ms[3][3] = {{50, 75, 100}, {50, 90, 125}, {60, 95, 125}};
    static const double slo_ms[3] = {200, 250, 250}, rate[3] = {64, 32, 32};
    static const char *const name[3] = {"a", "b", "c"};
    model *m = calloc(3, sizeof *m);
    weft_demand demand[3];
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        m[i].demand =
            (weft_demand){.model = name[i], .slo_us = slo_ms[i] * 1e3, .rate_per_s = rate[i]};
        for (size_t k = 0; k < 3; k++)
            add_batch(&m[i], 4u << k, time_ms[i][k] * 1e3);
        demand[i] = m[i].demand;
    }
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan = plan_on(arena, demand, 3, WEFT_RULE_EXACT, WEFT_GOAL_COST, 9);
    assert_int_equal(plan.gpus, 2);
    assert_int_equal(plan.n, 3);
    assert_string_equal(plan.at[0].model, "a");
    assert_int_equal(plan.at[0].batch, 8);
    assert_string_equal(plan.at[1].model, "b");
    assert_int_equal(plan.at[1].batch, 4);
    assert_int_equal(plan.at[1].device, plan.at[0].device);
    assert_int_equal(plan.at[1].slice_id, plan.at[0].slice_id);
    assert_string_equal(plan.at[2].model, "c");
    assert_int_equal(plan.at[2].device, 1);
    weft_arena_destroy(arena);
    free(m);
}

/* A saturated device serves nothing else: 160/s of A are one device, 3 x 160 + 64 are three and one
 * for the residue. */
static void test_sbp__saturated_devices_and_a_residue(void **state)
{
    model *m = calloc(1, sizeof *m);
    (void)state;
    m->demand = (weft_demand){.model = "a", .slo_us = 200e3, .rate_per_s = 3 * 160 + 64};
    add_batch(m, 4, 50e3);
    add_batch(m, 8, 75e3);
    add_batch(m, 16, 100e3);
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan = plan_on(arena, &m->demand, 1, WEFT_RULE_EXACT, WEFT_GOAL_COST, 9);
    assert_int_equal(plan.gpus, 4);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(plan.at[i].batch, 16);
    assert_int_equal(plan.at[3].batch, 8);
    /* A fixed fleet carries what it can. */
    plan = plan_on(arena, &m->demand, 1, WEFT_RULE_EXACT, WEFT_GOAL_GOODPUT, 2);
    assert_int_equal(plan.gpus, 2);
    assert_true(fabs(plan.goodput_per_s - 320) < 1e-6);
    weft_arena_destroy(arena);
    free(m);
}

static bool read_nexus(const char *file, model *out)
{
    char path[512], line[256];
    double time_us, std_us, bytes;
    unsigned batch;
    if (!weft_data_path(file, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool forward = false;
    while (fgets(line, sizeof line, f)) {
        forward = strncmp(line, "Forward", 7) == 0 ||
                  (forward && strncmp(line, "Pre", 3) != 0 && strncmp(line, "Post", 4) != 0);
        if (forward && out->demand.profile.n < BATCHES_MAX &&
            sscanf(line, "%u,%lf,%lf,%lf", &batch, &time_us, &std_us, &bytes) == 4)
            add_batch(out, batch, time_us);
    }
    fclose(f);
    return out->demand.profile.n > 0;
}

/* Highest throughput of a batch with 2 e <= limit, by exhaustive search. */
static double saturated(const model *m, double limit_us)
{
    double best = 0;
    for (size_t i = 0; i < m->demand.profile.n; i++)
        if (m->point[i].cost.time_us < limit_us / 2)
            best = fmax(best, m->point[i].batch * 1e6 / m->point[i].cost.time_us);
    return best;
}

/* On a curve with 35 falling steps, a search for the largest feasible batch misses the best one. */
static void test_sbp__exact_over_measured_batches(void **state)
{
    model *m = calloc(1, sizeof *m);
    size_t falls = 0, other = 0;
    (void)state;
    if (!read_nexus("nexus/caffe_vgg16.txt", m)) {
        print_message("no measurements in the folder nexus (WEFT_DATA)\n");
        free(m);
        skip();
    }
    assert_int_equal(m->demand.profile.n, 174);
    for (size_t i = 1; i < m->demand.profile.n; i++)
        falls += m->point[i].cost.time_us < m->point[i - 1].cost.time_us;
    assert_int_equal(falls, 35);
    m->demand.model = "vgg16";
    for (double slo_ms = 60; slo_ms < 1200; slo_ms *= 1.07) {
        weft_arena *arena = weft_arena_create(0);
        double peak = saturated(m, slo_ms * 1e3);
        m->demand.slo_us = slo_ms * 1e3;
        m->demand.rate_per_s = peak * 5;
        weft_plan plan = plan_on(arena, &m->demand, 1, WEFT_RULE_HALF, WEFT_GOAL_COST, 50);
        assert_int_equal(plan.gpus, 5);
        assert_true(fabs(plan.at[0].capacity_per_s - peak) < 1e-6 * peak);
        uint32_t largest = 0;
        for (size_t i = 0; i < m->demand.profile.n; i++)
            if (m->point[i].cost.time_us < slo_ms * 1e3 / 2)
                largest = m->point[i].batch;
        other += plan.at[0].batch != largest;
        m->demand.rate_per_s = peak * 5.01;
        plan = plan_on(arena, &m->demand, 1, WEFT_RULE_HALF, WEFT_GOAL_COST, 50);
        assert_int_equal(plan.gpus, 6);
        weft_arena_destroy(arena);
    }
    print_message("the largest batch was not the best for %zu SLOs\n", other);
    assert_true(other > 0);
    free(m);
}

/* The four measured models at low rates: at most one device for each model, and fewer when the
 * rates are low enough to share. */
static void test_sbp__measured_models_share_devices(void **state)
{
    static const char *const file[4] = {"nexus/caffe_vgg16.txt", "nexus/caffe_vgg_face.txt",
                                        "nexus/caffe_vgg_s.txt", "nexus/darknet_yolo9000.txt"};
    static const char *const name[4] = {"vgg16", "vgg_face", "vgg_s", "yolo9000"};
    model *m = calloc(4, sizeof *m);
    weft_demand demand[4];
    (void)state;
    for (size_t i = 0; i < 4; i++)
        if (!read_nexus(file[i], &m[i])) {
            print_message("no measurements in the folder nexus (WEFT_DATA)\n");
            free(m);
            skip();
        }
    uint32_t before = 0;
    for (double load = 0.02; load < 0.9; load *= 1.5) {
        weft_arena *arena = weft_arena_create(0);
        for (size_t i = 0; i < 4; i++) {
            demand[i] = m[i].demand;
            demand[i].model = name[i];
            demand[i].slo_us = 800e3;
            demand[i].rate_per_s = load * saturated(&m[i], 800e3);
        }
        weft_plan plan = plan_on(arena, demand, 4, WEFT_RULE_HALF, WEFT_GOAL_COST, 9);
        print_message("load %.3f: %u devices\n", load, plan.gpus);
        assert_true(plan.gpus >= before && plan.gpus <= 4);
        assert_true(plan.gpus >= ceil(4 * load));
        assert_true(load > 0.1 || plan.gpus == 1);
        before = plan.gpus;
        weft_arena_destroy(arena);
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sbp__example_of_the_paper),
        cmocka_unit_test(test_sbp__saturated_devices_and_a_residue),
        cmocka_unit_test(test_sbp__exact_over_measured_batches),
        cmocka_unit_test(test_sbp__measured_models_share_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
