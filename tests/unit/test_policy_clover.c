/* CLOVER: its objective, its graph and its search. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/policies/clover_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static weft_option option[1];

/* Variants of accuracy 100 (base), 96 (A) and 98 (B), which take 4, 0.4 and 1.2 J per request on
 * every size; C_base is 1000, as in the example of the paper. */
static weft_clover make_world(const weft_mig_shape *shape, double carbon)
{
    static const double accuracy[] = {100, 96, 98}, energy[] = {4, 0.4, 1.2};
    weft_clover c = {.shape = shape,
                     .devices = 2,
                     .n_variant = 3,
                     .rate_per_s = 100,
                     .carbon_g_per_kwh = carbon,
                     .lambda = 0.1,
                     .base_accuracy = 100,
                     .base_carbon = 1000};
    option[0].peak_per_s = 100;
    for (uint32_t v = 0; v < 3; v++) {
        c.accuracy[v] = accuracy[v];
        for (uint32_t z = 0; z < shape->n; z++) {
            c.option[v][z] = &option[0];
            c.energy_j[v][z] = energy[v];
        }
    }
    return c;
}

static void test_clover__objective_is_the_papers(void **state)
{
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
    weft_clover_config a = {0}, b = {0};
    (void)state;
    a.n[1][0] = b.n[2][0] = 1;
    weft_clover c = make_world(&shape, 500);
    assert_true(fabs(weft_clover__score(&c, &a).f - 4.4) < 1e-9);
    assert_true(fabs(weft_clover__score(&c, &b).f - 2.2) < 1e-9);
    c = make_world(&shape, 100);
    assert_true(fabs(weft_clover__score(&c, &a).f - 6.0) < 1e-9);
    assert_true(fabs(weft_clover__score(&c, &b).f - 7.0) < 1e-9);
}

static void test_clover__a_violation_always_costs(void **state)
{
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
    weft_clover c = make_world(&shape, 2000); /* f is negative for the base variant */
    weft_clover_config x = {0};
    double last = -INFINITY;
    (void)state;
    x.n[0][0] = 1;
    for (double rate = 100; rate < 1000; rate += 50) {
        c.rate_per_s = rate;
        weft_clover_score s = weft_clover__score(&c, &x);
        assert_true(s.f < 0 && s.h > last);
        assert_true(s.feasible == (rate <= 100));
        last = s.h;
    }
    c.rate_per_s = 100;
    c.least_accuracy = 100.5;
    assert_false(weft_clover__score(&c, &x).feasible);
    memset(&x, 0, sizeof x);
    assert_false(weft_clover__score(&c, &x).feasible);
}

static void test_clover__neighbours_are_near_and_legal(void **state)
{
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
    weft_clover c = make_world(&shape, 200);
    weft_clover_config x, y, z;
    uint64_t seed = 11;
    uint32_t far[5] = {0};
    (void)state;
    assert_true(weft_clover__base(&c, &x));
    z = x;
    for (int i = 0; i < 20000; i++) {
        assert_true(weft_clover__neighbour(&c, &x, &seed, &y));
        uint32_t d = weft_clover__distance(&c, &x, &y);
        assert_true(d >= 1 && d <= 4 && weft_clover__fits(&c, &y));
        assert_int_equal(weft_clover__distance(&c, &y, &x), d);
        assert_true(weft_clover__distance(&c, &z, &y) <= weft_clover__distance(&c, &z, &x) + d);
        far[d]++;
        x = y;
    }
    for (int d = 1; d <= 4; d++)
        assert_true(far[d] > 100);
}

static void test_clover__search_finds_the_oracle(void **state)
{
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
    (void)state;
    for (double carbon = 20; carbon < 900; carbon *= 1.5) {
        weft_clover c = make_world(&shape, carbon);
        weft_clover_config base, oracle, x, again;
        c.rate_per_s = 1000;
        for (uint32_t v = 0; v < 3; v++)
            for (uint32_t z = 0; z < shape.n; z++) /* small instances take less energy */
                c.energy_j[v][z] *= 1 + 0.1 * shape.type->mig[z].gpcs;
        assert_true(weft_clover__oracle(&c, &oracle));
        if (!weft_clover__base(&c, &base))
            memset(&base, 0, sizeof base);
        x = again = base;
        assert_true(weft_clover__anneal(&c, 3, 20000, 2000, &x));
        assert_true(weft_clover__score(&c, &x).f >= weft_clover__score(&c, &oracle).f - 1e-9);
        assert_true(weft_clover__anneal(&c, 3, 20000, 2000, &again));
        assert_memory_equal(&x, &again, sizeof x);
    }
}

/* An app with two variants that differ in accuracy and energy. */
static void test_clover__app_gets_its_rate_and_accuracy(void **state)
{
    weft_profile_point point[2][2] = {0};
    weft_demand demand[2] = {{.model = "large"}, {.model = "small"}};
    weft_set_variant variant[] = {{"large", 80}, {"small", 70}};
    weft_fleet_device device = {.type = "a100-80", .count = 8, .mig = true};
    weft_fleet fleet = {.device = &device, .n_device = 1};
    weft_demands demands = {demand, 2};
    weft_set_app app = {
        .name = "task", .rate_per_s = 900, .slo_us = 50000, .variant = variant, .n_variant = 2};
    weft_problem problem = {.demands = &demands,
                            .fleet = &fleet,
                            .goal = WEFT_GOAL_CARBON,
                            .app = &app,
                            .n_app = 1,
                            .carbon_g_per_kwh = 800,
                            .options = "lambda=0.9"};
    static const char *const slice[] = {"1g.10gb", "7g.80gb"};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    (void)state;
    for (int m = 0; m < 2; m++) {
        for (int s = 0; s < 2; s++) {
            weft_profile_point *p = &point[m][s];
            p->batch = 8;
            p->procs = 1;
            p->cost.time_us = (m ? 4000 : 16000) * (s ? 0.3 : 1);
            p->cost.energy_j = (m ? 0.4 : 1.6) * (s ? 2 : 1);
            snprintf(p->device, sizeof p->device, "a100-80");
            snprintf(p->slice, sizeof p->slice, "%s", slice[s]);
            snprintf(p->cost.source, sizeof p->cost.source, "measured");
        }
        demand[m].profile = (weft_profile){.point = point[m], .n = 2};
    }
    const weft_policy *clover = weft_policy_find("clover");
    assert_int_equal(weft_plan_make(clover, NULL, &problem, arena, diag, &plan), WEFT_ERR_OK);
    for (size_t i = 0; i < plan.n; i++)
        assert_string_equal(plan.at[i].model, "small");
    /* The mixture reaches a given accuracy; weft_plan_make has checked the plan. */
    app.accuracy = 74;
    assert_int_equal(weft_plan_make(clover, NULL, &problem, arena, diag, &plan), WEFT_ERR_OK);
    double rate[2] = {0};
    for (size_t i = 0; i < plan.n; i++)
        rate[strcmp(plan.at[i].model, "small") == 0] += plan.at[i].rate_per_s;
    assert_true(fabs(rate[0] + rate[1] - 900) < 1e-6 && rate[0] >= 0.4 * 900 - 1e-6 && rate[1] > 0);
    /* Other policies take the best variant. */
    problem.options = NULL;
    assert_int_equal(weft_plan_make(weft_policy_find("parva"), NULL, &problem, arena, diag, &plan),
                     WEFT_ERR_OK);
    for (size_t i = 0; i < plan.n; i++)
        assert_string_equal(plan.at[i].model, "large");
    app.accuracy = 81;
    assert_int_equal(weft_plan_make(clover, NULL, &problem, arena, diag, &plan), WEFT_ERR_INPUT);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clover__objective_is_the_papers),
        cmocka_unit_test(test_clover__a_violation_always_costs),
        cmocka_unit_test(test_clover__neighbours_are_near_and_legal),
        cmocka_unit_test(test_clover__search_finds_the_oracle),
        cmocka_unit_test(test_clover__app_gets_its_rate_and_accuracy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
