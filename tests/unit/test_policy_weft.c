/* Weft's own policy: the optimum of the published scenarios, never worse than another policy, never
 * worse than exclusive placement, few changed placements when one model changes. */
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
#include "tests/support/rand.h"

/* -- Published numbers ------------------------------------------------------------------------ */

static void test_policy_weft__optimum_of_the_scenarios(void **state)
{
    static const uint32_t optimum[2][PARVAGPU_SCENARIOS] = {{2, 3, 5, 7, 12, 16},
                                                            {2, 3, 5, 7, 12, 15}};
    (void)state;
    need_data();
    for (uint32_t five = 0; five < 2; five++)
        for (size_t s = 0; s < PARVAGPU_SCENARIOS; s++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            weft_plan plan;
            parvagpu_scenario(&data, s, 1, five ? 5 : 3, arena, &set);
            make_plan("weft", NULL, &set.problem, arena, &plan);
            assert_int_equal(plan.gpus, optimum[five][s]);
            assert_true(plan.proven && plan.lower_bound == plan.gpus);
            set.problem.effort = 1;
            make_plan("weft", NULL, &set.problem, arena, &plan);
            assert_int_equal(plan.gpus, optimum[five][s]);
            weft_arena_destroy(arena);
        }
}

static void test_policy_weft__multiples_of_s5(void **state)
{
    static const uint32_t times[] = {1, 2, 4, 6, 8, 10}, optimum[] = {12, 24, 47, 71, 94, 118};
    (void)state;
    need_data();
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        for (uint64_t effort = 0; effort < 2; effort++) {
            weft_arena *arena = weft_arena_create(0);
            parvagpu_set set;
            weft_plan plan;
            parvagpu_scenario(&data, 4, times[i], 5, arena, &set);
            set.problem.effort = effort;
            make_plan("weft", NULL, &set.problem, arena, &plan);
            print_message("S5 x %u, effort %llu: %u, bound %.0f\n", times[i],
                          (unsigned long long)effort, plan.gpus, plan.lower_bound);
            if (effort == 0)
                assert_int_equal(plan.gpus, optimum[i]);
            else
                assert_in_range(plan.gpus, optimum[i], optimum[i] + 1);
            weft_arena_destroy(arena);
        }
}

/* -- Properties ------------------------------------------------------------------------------- */

/* Lower bound <= exact <= fast mode <= parva <= whole devices, for isolated models. */
static void test_policy_weft__between_bound_and_exclusive(void **state)
{
    uint32_t proven = 0, below = 0, runs = 0;
    (void)state;
    need_data();
    for (uint64_t seed = 1000; seed < 1000 + RAND_ROUNDS(1000); seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan exact, fast, parva, whole;
        parvagpu_random(&data, seed, 2 + seed % 7, 2, 3, arena, &set);
        for (size_t i = 0; i < set.demands.n; i++)
            ((weft_demand *)set.demands.at)[i].slo_us *= 3;
        make_plan("weft", NULL, &set.problem, arena, &exact);
        make_plan("parva", NULL, &set.problem, arena, &parva);
        make_plan("exclusive", NULL, &set.problem, arena, &whole);
        set.problem.effort = 1;
        make_plan("weft", NULL, &set.problem, arena, &fast);
        assert_true(exact.lower_bound <= exact.gpus && exact.gpus <= fast.gpus);
        assert_true(fast.gpus <= parva.gpus && parva.gpus <= whole.gpus);
        proven += exact.proven;
        below += exact.gpus < parva.gpus;
        runs++;
        weft_arena_destroy(arena);
    }
    print_message("%u of %u proven, %u below parva\n", proven, runs, below);
    assert_int_equal(proven, runs);
}

/* One rate doubled: the plan is hardly dearer than a new one, and few segments are moved. */
static void test_policy_weft__moves_little(void **state)
{
    uint32_t most = 0, moved = 0, devices = 0, fewest = 0;
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= 60; seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, after, fresh;
        const weft_plan_move *move;
        size_t n;
        uint32_t here = 0;
        parvagpu_random(&data, seed, 12, 3, 3, arena, &set);
        make_plan("weft", NULL, &set.problem, arena, &before);
        ((weft_demand *)set.demands.at)[seed % 12].rate_per_s *= 2;
        make_plan("weft", NULL, &set.problem, arena, &fresh);
        set.problem.previous = &before;
        make_plan("weft", NULL, &set.problem, arena, &after);
        weft_plan_diff(&before, &after, arena, &move, &n);
        for (size_t i = 0; i < n; i++)
            here += move[i].to != NULL;
        most = here > most ? here : most;
        moved += here;
        devices += after.gpus;
        fewest += fresh.gpus;
        assert_true(after.gpus >= fresh.gpus);
        weft_arena_destroy(arena);
    }
    print_message("%u moved in all, at most %u; %u devices, new plans %u\n", moved, most, devices,
                  fewest);
    assert_true(most <= 44 && moved <= 330 && devices <= fewest + 2);
}

/* Easier demands never cost more. */
static void test_policy_weft__exact_is_monotone(void **state)
{
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= RAND_ROUNDS(150); seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, after;
        parvagpu_random(&data, seed, 8, 2, 3, arena, &set);
        weft_demand *demand = (weft_demand *)set.demands.at;
        for (size_t i = 0; i < set.demands.n; i++)
            demand[i].slo_us *= 2;
        make_plan("weft", NULL, &set.problem, arena, &before);
        demand[seed % 8].rate_per_s *= 0.7;
        make_plan("weft", NULL, &set.problem, arena, &after);
        assert_true(before.proven && after.proven && after.gpus <= before.gpus);
        before = after;
        demand[(seed + 1) % 8].slo_us *= 1.4;
        make_plan("weft", NULL, &set.problem, arena, &after);
        assert_true(after.proven && after.gpus <= before.gpus);
        /* One more device type never costs more. */
        weft_fleet_device two[2] = {data.device, {.type = "h100", .count = 50, .mig = true}};
        weft_fleet fleet = {.file = "fleet", .device = two, .n_device = 2};
        set.problem.fleet = &fleet;
        make_plan("weft", NULL, &set.problem, arena, &before);
        assert_true(before.cost_per_hour <= after.cost_per_hour * (1 + 1e-9));
        weft_arena_destroy(arena);
    }
}

/* Time sharing never costs a device, and saves some when loads are small. */
static void test_policy_weft__shares_small_loads(void **state)
{
    uint32_t saved = 0;
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= 40; seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan apart, together;
        parvagpu_random(&data, seed, 20, 0.1, 3, arena, &set);
        for (size_t i = 0; i < set.demands.n; i++)
            ((weft_demand *)set.demands.at)[i].slo_us *= 4;
        make_plan("weft", NULL, &set.problem, arena, &apart);
        set.problem.rules.isolated = false;
        make_plan("weft", NULL, &set.problem, arena, &together);
        assert_true(together.gpus <= apart.gpus);
        saved += apart.gpus - together.gpus;
        weft_arena_destroy(arena);
    }
    print_message("%u devices saved in 40 sets\n", saved);
    assert_true(saved >= 20);
}

/* -- Change ----------------------------------------------------------------------------------- */

static void test_policy_weft__unchanged_models_stay(void **state)
{
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= RAND_ROUNDS(100); seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, same, after, anew;
        parvagpu_random(&data, seed, 0, 1, 3, arena, &set);
        weft_demand *demand = (weft_demand *)set.demands.at, *one = &demand[seed % set.demands.n];
        for (size_t i = 0; i < set.demands.n; i++)
            demand[i].slo_us *= 4;
        set.problem.rules.isolated = seed % 2;
        make_plan("weft", NULL, &set.problem, arena, &before);
        set.problem.previous = &before;
        set.problem.effort = 1;
        make_plan("weft", NULL, &set.problem, arena, &same);
        assert_int_equal(count_moved(&before, &same, ""), 0);
        assert_int_equal(same.gpus, before.gpus);
        if (seed % 3 == 0)
            one->slo_us *= 0.4;
        else
            one->rate_per_s *= seed % 3 == 1 ? 1.7 : 0.4;
        make_plan("weft", NULL, &set.problem, arena, &after);
        assert_int_equal(count_moved(&before, &after, one->model), 0);
        /* If changed placements cost nothing: the best plan; if one costs more than a device: none.
         */
        set.problem.effort = 0;
        set.problem.options = "move=0";
        make_plan("weft", NULL, &set.problem, arena, &anew);
        assert_true(anew.gpus <= after.gpus);
        set.problem.options = "move=1000";
        make_plan("weft", NULL, &set.problem, arena, &anew);
        assert_int_equal(count_moved(&before, &anew, one->model), 0);
        weft_arena_destroy(arena);
    }
}

/* Models are added and removed. */
static void test_policy_weft__models_come_and_go(void **state)
{
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= 40; seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, after;
        parvagpu_random(&data, seed, 12, 1, 3, arena, &set);
        for (size_t i = 0; i < 12; i++)
            ((weft_demand *)set.demands.at)[i].slo_us *= 4;
        set.demands.n = 9;
        make_plan("weft", NULL, &set.problem, arena, &before);
        set.problem.previous = &before;
        set.problem.effort = 1;
        set.demands.n = 12;
        make_plan("weft", NULL, &set.problem, arena, &after);
        assert_true(after.gpus >= before.gpus);
        set.demands.at += 6;
        set.demands.n = 6;
        make_plan("weft", NULL, &set.problem, arena, &before);
        assert_true(before.gpus <= after.gpus);
        weft_arena_destroy(arena);
    }
}

/* A device fails of a fleet that has none to spare: few segments move. */
static void test_policy_weft__a_device_fails(void **state)
{
    uint32_t feasible = 0, moved = 0, segments = 0;
    (void)state;
    need_data();
    for (uint64_t seed = 1; seed <= 30; seed++) {
        weft_arena *arena = weft_arena_create(0);
        parvagpu_set set;
        weft_plan before, after;
        weft_fleet_device device = data.device;
        weft_fleet fleet = {.file = "fleet", .device = &device, .n_device = 1};
        parvagpu_random(&data, seed, 60, 3, 3, arena, &set);
        set.problem.fleet = &fleet;
        make_plan("weft", NULL, &set.problem, arena, &before);
        /* Makes room for the segments of the device. */
        ((weft_demand *)set.demands.at)[seed].rate_per_s *= 0.4;
        set.problem.previous = &before;
        device.count = before.gpus - 1;
        weft_err err =
            weft_plan_make(weft_policy_find("weft"), NULL, &set.problem, arena, NULL, &after);
        assert_true(err == WEFT_ERR_OK || err == WEFT_ERR_INFEASIBLE);
        if (err == WEFT_ERR_OK) {
            feasible++;
            moved += count_moved(&before, &after, "");
            segments += (uint32_t)before.n;
        }
        weft_arena_destroy(arena);
    }
    print_message("%u sets, %u of %u segments moved\n", feasible, moved, segments);
    assert_true(feasible >= 10 && moved * 20 < segments);
}

/* Refused at once, or carried as far as the fleet allows. */
static void test_policy_weft__absurd_rates(void **state)
{
    static const double rates[] = {1e9, 1e15, 1e300};
    (void)state;
    need_data();
    for (size_t i = 0; i < 3; i++) {
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        parvagpu_set set;
        weft_plan plan;
        weft_fleet_device device = data.device;
        weft_fleet fleet = {.file = "fleet", .device = &device, .n_device = 1};
        device.count = 300;
        parvagpu_scenario(&data, 4, 1, 3, arena, &set);
        set.problem.fleet = &fleet;
        ((weft_demand *)set.demands.at)[0].rate_per_s = rates[i];
        assert_int_equal(
            weft_plan_make(weft_policy_find("weft"), NULL, &set.problem, arena, diag, &plan),
            WEFT_ERR_INFEASIBLE);
        assert_string_equal(weft_diag_at(diag, 0)->item, "bert");
        set.problem.goal = WEFT_GOAL_GOODPUT;
        make_plan("weft", NULL, &set.problem, arena, &plan);
        assert_int_equal(plan.gpus, 300);
        weft_diag_destroy(diag);
        weft_arena_destroy(arena);
    }
}

static void test_policy_weft__refuses_unknown_options(void **state)
{
    parvagpu_set set;
    weft_plan plan;
    (void)state;
    need_data();
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    parvagpu_scenario(&data, 0, 1, 3, arena, &set);
    set.problem.options = "moves=1";
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &set.problem, arena, diag, &plan),
        WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "moves=1"));
    set.problem.options = "move=cheap";
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &set.problem, arena, diag, &plan),
        WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_weft__optimum_of_the_scenarios),
        cmocka_unit_test(test_policy_weft__multiples_of_s5),
        cmocka_unit_test(test_policy_weft__between_bound_and_exclusive),
        cmocka_unit_test(test_policy_weft__moves_little),
        cmocka_unit_test(test_policy_weft__exact_is_monotone),
        cmocka_unit_test(test_policy_weft__shares_small_loads),
        cmocka_unit_test(test_policy_weft__unchanged_models_stay),
        cmocka_unit_test(test_policy_weft__models_come_and_go),
        cmocka_unit_test(test_policy_weft__a_device_fails),
        cmocka_unit_test(test_policy_weft__absurd_rates),
        cmocka_unit_test(test_policy_weft__refuses_unknown_options),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    release_data();
    return failed;
}
