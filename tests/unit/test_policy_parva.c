/* ParvaGPU: triplets and counts of the published scenarios, other MIG geometries, and a change of
 * one service. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/policies/policies_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/make_plan.h"
#include "tests/support/parvagpu_data.h"

/* -- Published numbers ------------------------------------------------------------------------ */

static void test_policy_parva__golden_triplets(void **state)
{
    static const struct {
        const char *model;
        size_t scenario;
        double per_s[5];
        uint32_t batch[5], procs[5];
    } golden[] = {
        {"bert",
         4,
         {151.346, 287.466, 442.128, 512.697, 684.324},
         {64, 128, 128, 128, 128},
         {2, 2, 3, 3, 3}},
        {"inceptionv3",
         4,
         {575.154, 1146.579, 1861.659, 2259.096, 3714.459},
         {16, 16, 32, 32, 64},
         {2, 3, 3, 3, 3}},
        {"resnet50",
         4,
         {358.277, 738.306, 1359.900, 1498.581, 2671.352},
         {8, 16, 16, 8, 32},
         {1, 1, 2, 3, 2}},
        {"mobilenetv2",
         1,
         {771.152, 1572.694, 2702.637, 3105.210, 4748.223},
         {4, 16, 8, 8, 16},
         {2, 2, 3, 3, 3}},
    };
    static const uint32_t gpcs[5] = {1, 2, 3, 4, 7};
    (void)state;
    need_data();
    for (size_t g = 0; g < sizeof golden / sizeof golden[0]; g++) {
        weft_arena *arena = weft_arena_create(0);
        weft_builder builder;
        parvagpu_set set;
        weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
        parvagpu_scenario(&data, golden[g].scenario, 1, 3, arena, &set);
        assert_int_equal(weft_builder__init(&builder, &set.problem, arena, NULL), WEFT_ERR_OK);
        for (uint32_t d = 0; d < set.demands.n; d++) {
            if (strcmp(set.demands.at[d].model, golden[g].model) != 0)
                continue;
            weft_mig_best best = weft_mig__best(&builder, &shape, &data.device, d, 0);
            for (size_t i = 0; i < 5; i++)
                for (uint32_t p = 0; p < shape.n; p++) {
                    const weft_mig_profile *mig = &shape.type->mig[p];
                    if (mig->gpcs != gpcs[i] || (mig->gpcs == 1 && mig->slots == 2))
                        continue;
                    assert_float_equal(best.per_s[p], golden[g].per_s[i], 6e-4);
                    assert_int_equal(best.option[p]->point->batch, golden[g].batch[i]);
                    assert_int_equal(best.option[p]->point->procs, golden[g].procs[i]);
                }
        }
        weft_arena_destroy(arena);
    }
}

static void test_policy_parva__published_counts(void **state)
{
    static const struct {
        const char *policy;
        uint32_t procs, gpus[PARVAGPU_SCENARIOS];
    } published[] = {
        {"parva", 5, {2, 3, 5, 7, 13, 16}},
        {"parva", 3, {2, 3, 5, 7, 13, 17}},
        {"parva-single", 5, {2, 3, 5, 7, 14, 18}},
        {"parva-unoptimised", 3, {2, 3, 8, 11, 22, 29}},
    };
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            weft_plan plan;
            parvagpu_scenario(&data, s, 1, published[i].procs, arena, &set);
            make_plan(published[i].policy, NULL, &set.problem, arena, &plan);
            assert_int_equal(plan.gpus, published[i].gpus[s]);
            weft_arena_destroy(arena);
        }
}

/* Plans for k-fold scenarios: as many GPUs as the published program, or one more because placements
 * are legal. */
static void test_policy_parva__multiples_of_s5(void **state)
{
    static const uint32_t times[] = {2, 4, 6, 8, 10}, published[] = {25, 50, 75, 101, 126};
    (void)state;
    need_data();
    for (size_t i = 0; i < 5; i++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan plan;
        parvagpu_scenario(&data, 4, times[i], 5, arena, &set);
        make_plan("parva", NULL, &set.problem, arena, &plan);
        print_message("S5 x %u: %u\n", times[i], plan.gpus);
        assert_in_range(plan.gpus, published[i] - 1, published[i] + 1);
        weft_arena_destroy(arena);
    }
}

/* -- Change of one service -------------------------------------------------------------------- */

static void test_policy_parva__change_of_one_service(void **state)
{
    uint32_t still = 0, runs = 0;
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= 60; seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, same, after;
        parvagpu_random(&data, seed, 0, 0.8, 3, arena, &set);
        for (size_t i = 0; i < set.demands.n; i++)
            ((weft_demand *)set.demands.at)[i].slo_us *= 4;
        make_plan("parva", NULL, &set.problem, arena, &before);
        set.problem.previous = &before;
        make_plan("parva", NULL, &set.problem, arena, &same);
        assert_int_equal(same.gpus, before.gpus);
        assert_int_equal(count_moved(&before, &same, ""), 0);
        weft_demand *one = (weft_demand *)&set.demands.at[seed % set.demands.n];
        one->rate_per_s *= seed % 2 ? 1.5 : 0.3;
        make_plan("parva", NULL, &set.problem, arena, &after);
        /* No segment moves unless that saves a device (section 4.4). */
        uint32_t moved = count_moved(&before, &after, one->model);
        runs++;
        still += moved == 0;
        weft_arena_destroy(arena);
    }
    print_message("%u of %u changes moved no other service\n", still, runs);
    assert_true(still * 2 > runs);
}

/* -- Other geometries ------------------------------------------------------------------------- */

/* Two services on an A30: 1g carries 10/s, 2g 22/s, 4g 40/s. */
static void test_policy_parva__four_slices(void **state)
{
    static const struct {
        const char *slice;
        double per_s;
    } slice[] = {{"1g.6gb", 10}, {"2g.12gb", 22}, {"4g.24gb", 40}};
    weft_profile_point point[3];
    weft_demand demand[2];
    weft_demands demands = {demand, 2};
    weft_fleet_device a30 = {.type = "a30", .count = 8, .mig = true};
    weft_fleet fleet = {.file = "fleet", .device = &a30, .n_device = 1};
    weft_problem problem = {.demands = &demands, .fleet = &fleet};
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    (void)state;
    memset(point, 0, sizeof point);
    for (size_t i = 0; i < 3; i++) {
        snprintf(point[i].device, sizeof point[i].device, "a30");
        snprintf(point[i].slice, sizeof point[i].slice, "%s", slice[i].slice);
        point[i].batch = point[i].procs = 1;
        point[i].throughput_per_s = slice[i].per_s;
        point[i].cost.time_us = 1e6 / slice[i].per_s;
    }
    for (size_t i = 0; i < 2; i++)
        demand[i] = (weft_demand){.model = i ? "b" : "a",
                                  .slo_us = 1e6,
                                  .rate_per_s = i ? 52 : 30,
                                  .profile = {.point = point, .n = 3}};
    /* a: 2g and 1g; b: two 2g and a 1g: eight memory slots, two devices. */
    make_plan("parva", NULL, &problem, arena, &plan);
    assert_int_equal(plan.gpus, 2);
    assert_int_equal(plan.n, 5);
    demand[0].rate_per_s = 44; /* an exact multiple: two segments, not three */
    make_plan("parva", NULL, &problem, arena, &plan);
    assert_int_equal(plan.n, 5);
    demand[0].rate_per_s = 1000;
    assert_int_equal(weft_plan_make(weft_policy_find("parva"), NULL, &problem, arena, NULL, &plan),
                     WEFT_ERR_INFEASIBLE);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_parva__golden_triplets),
        cmocka_unit_test(test_policy_parva__published_counts),
        cmocka_unit_test(test_policy_parva__multiples_of_s5),
        cmocka_unit_test(test_policy_parva__change_of_one_service),
        cmocka_unit_test(test_policy_parva__four_slices),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    release_data();
    return failed;
}
