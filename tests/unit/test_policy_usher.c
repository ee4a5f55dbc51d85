/* USHER: exact pairing, a pruned search with the cost of exhaustive search, placement worked out by
 * hand. */
#include "scheduler/policies/usher_int.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/scene.h"

static double pick(uint64_t *seed, double lo, double hi)
{
    return lo + (hi - lo) * (double)(rand_next(seed) % 100001) / 100000;
}

/* -- Pairing ---------------------------------------------------------------------------------- */

static double brute_force(const double *d, uint32_t n, uint32_t used)
{
    double best = INFINITY;
    uint32_t i = 0;
    while (i < n && used & 1u << i)
        i++;
    if (i == n)
        return 0;
    for (uint32_t j = i + 1; j < n; j++)
        if (!(used & 1u << j))
            best = fmin(best, fabs(d[i] + d[j]) + brute_force(d, n, used | 1u << i | 1u << j));
    return best;
}

static void test_usher__pairing_is_exact(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        double d[10] = {0};
        uint32_t mate[10], n = 1 + rand_next(&seed) % 8, even = n + n % 2;
        weft_arena *arena = weft_arena_create(0);
        for (uint32_t i = 0; i < n; i++)
            d[i] = round % 3 ? pick(&seed, -90, 90) : (double)(rand_next(&seed) % 5) - 2;
        weft_usher__pair(d, n, mate, arena);
        double sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(mate[mate[i]], i);
            if (mate[i] >= i)
                sum += fabs(mate[i] == i ? d[i] : d[i] + d[mate[i]]);
        }
        assert_true(fabs(sum - brute_force(d, even, 0)) < 1e-9);
        weft_arena_destroy(arena);
    }
}

/* -- Scenes ----------------------------------------------------------------------------------- */

/* n models without profiles; count_a devices of type a, count_b of type b (NULL: none). */
static void start_scene(scene *sc, size_t n, const char *a, uint32_t count_a, const char *b,
                        uint32_t count_b)
{
    scene_start(sc);
    for (size_t m = 0; m < n; m++)
        scene_add_model(sc, NULL, 0, 0);
    scene_add_device(sc, (weft_fleet_device){.type = a, .count = count_a, .mps = true});
    if (b)
        scene_add_device(sc, (weft_fleet_device){.type = b, .count = count_b, .mps = true});
}

/* Models of random size; their needs of compute and memory are independent. */
static void random_scene(scene *sc, uint64_t *seed, size_t n, bool two, uint32_t count)
{
    static const uint32_t share[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};
    start_scene(sc, n, "v100", count, two ? "t4" : NULL, count);
    for (size_t m = 0; m < n; m++) {
        double work = pick(seed, 500, 4000), memory = pick(seed, 2e8, 7e9);
        double creq = pick(seed, 0.02, 0.9);
        for (uint32_t type = 0; type < (two ? 2 : 1); type++)
            for (uint32_t batch = 4; batch <= 16; batch *= 2)
                for (uint32_t s = 0; s < sizeof share / sizeof share[0]; s++) {
                    double part = fmin(1, share[s] / 100.0 / creq);
                    weft_profile_point *p =
                        scene_add_share(sc, m, type ? "t4" : "v100", share[s], batch,
                                        work * (1 + batch * (type ? 0.9 : 0.5)) / part,
                                        memory * (1 + batch / 32.0));
                    p->cost.creq = fmin(1, creq * (0.6 + batch / 24.0));
                }
        sc->demand[m].slo_us = work * pick(seed, 30, 90);
        sc->demand[m].rate_per_s = pick(seed, 0.2, 4) * 4e6 / work;
    }
}

static weft_err plan_with(const scene *sc, const char *options, weft_goal goal, weft_arena *arena,
                          weft_plan *out)
{
    weft_problem problem = sc->problem;
    problem.options = options;
    problem.goal = goal;
    *out = (weft_plan){0};
    weft_diag *diag = weft_diag_create();
    weft_err err = weft_plan_make(weft_policy_find("usher"), NULL, &problem, arena, diag, out);
    if (err != WEFT_ERR_OK && err != WEFT_ERR_INFEASIBLE)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_diag_destroy(diag);
    return err;
}

/* -- The search ------------------------------------------------------------------------------- */

/* The search without pruning is the loop of the paper. There are at most four models, one group, so
 * that a tie cannot change what a later group finds. */
static void compare_searches(weft_goal goal, bool two, uint32_t count, uint32_t rounds)
{
    scene *sc = malloc(sizeof *sc);
    uint32_t placed = 0, refused = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        uint64_t seed = round * 7919 + 17;
        weft_plan pruned, full;
        random_scene(sc, &seed, 1 + rand_next(&seed) % 4, two, count);
        weft_arena *arena = weft_arena_create(0);
        weft_err a = plan_with(sc, "degree=3", goal, arena, &pruned);
        weft_err b = plan_with(sc, "degree=3,full=1", goal, arena, &full);
        assert_int_equal(a, b);
        if (a == WEFT_ERR_OK) {
            placed++;
            if (fabs(pruned.goodput_per_s - full.goodput_per_s) > 1e-6 * full.goodput_per_s ||
                fabs(pruned.cost_per_hour - full.cost_per_hour) > 1e-9)
                fail_msg("round %u: pruned %.9g/s $%g, all combinations %.9g/s $%g", round,
                         pruned.goodput_per_s, pruned.cost_per_hour, full.goodput_per_s,
                         full.cost_per_hour);
        } else {
            refused++;
        }
        weft_arena_destroy(arena);
    }
    print_message("%u placed, %u refused\n", placed, refused);
    assert_true(placed >= rounds / 3);
    free(sc);
}

static void test_usher__pruned_search_costs_what_the_full_one_costs(void **state)
{
    (void)state;
    compare_searches(WEFT_GOAL_COST, false, 200, 120);
    compare_searches(WEFT_GOAL_COST, true, 200, 60);
    compare_searches(WEFT_GOAL_COST, false, 6, 60);
}

static void test_usher__pruned_search_carries_what_the_full_one_carries(void **state)
{
    (void)state;
    compare_searches(WEFT_GOAL_GOODPUT, false, 3, 60);
    compare_searches(WEFT_GOAL_GOODPUT, true, 2, 40);
    compare_searches(WEFT_GOAL_GOODPUT, false, 40, 60);
}

/* Effort 1: only the first combinations of each group, and the plan is still legal. More effort
 * helps on average; a single plan may be worse, because groups are placed one after the other. */
static void test_usher__effort_limits_the_search(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint32_t sum_little = 0, sum_more = 0;
    (void)state;
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t seed = round * 31 + 7;
        weft_plan little, more;
        random_scene(sc, &seed, 12, false, 400);
        weft_arena *arena = weft_arena_create(0);
        sc->problem.effort = 1;
        assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &little), WEFT_ERR_OK);
        sc->problem.effort = 0;
        assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &more), WEFT_ERR_OK);
        sum_little += little.gpus;
        sum_more += more.gpus;
        weft_arena_destroy(arena);
    }
    print_message("%u devices with little effort, %u with more\n", sum_little, sum_more);
    assert_true(sum_more < sum_little);
    free(sc);
}

static void test_usher__says_what_it_searched(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint64_t seed = 3;
    double groups, all, dropped, cut, placed;
    (void)state;
    random_scene(sc, &seed, 8, false, 400);
    weft_problem problem = sc->problem;
    problem.options = "stats=1";
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_plan plan;
    assert_int_equal(weft_plan_make(weft_policy_find("usher"), NULL, &problem, arena, diag, &plan),
                     WEFT_ERR_OK);
    const weft_message *msg = weft_diag_at(diag, weft_diag_count(diag) - 1);
    assert_int_equal(msg->severity, WEFT_SEV_NOTE);
    assert_int_equal(sscanf(msg->text,
                            "%lf groups, %lf combinations: %lf dropped, %lf cut by the bound, %lf",
                            &groups, &all, &dropped, &cut, &placed),
                     5);
    assert_true(groups == 2 && all == 2 * pow(18, 4));
    assert_true(dropped + cut + placed == all && placed < all / 10 && placed >= 2);
    problem.options = "nothing=1";
    assert_int_equal(weft_plan_make(weft_policy_find("usher"), NULL, &problem, arena, diag, &plan),
                     WEFT_ERR_INPUT);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(sc);
}

/* -- Placement -------------------------------------------------------------------------------- */

/* Two models that need compute, two that need memory; each alone leaves most of the other resource
 * free. */
static void make_opposites(scene *sc, uint32_t count)
{
    start_scene(sc, 4, "v100", count, NULL, 0);
    for (size_t m = 0; m < 4; m++) {
        bool compute = m < 2;
        for (uint32_t percent = 10; percent <= 100; percent += 10) {
            weft_profile_point *p =
                scene_add_share(sc, m, "v100", percent, 4, 10e3, compute ? 1.5e9 : 12e9);
            p->cost.creq = compute ? 0.78 : 0.18;
        }
        sc->demand[m].slo_us = 100e3;
        sc->demand[m].rate_per_s = 390;
    }
}

/* 80 % + 20 % of the compute and 10 % + 73 % of the memory fit together: one pair on a device, two
 * devices; models of one kind alone need a device each. */
static void test_usher__pairs_compute_with_memory(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    (void)state;
    make_opposites(sc, 20);
    weft_arena *arena = weft_arena_create(0);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &plan), WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 2);
    for (size_t i = 0; i < plan.n; i += 2) {
        assert_int_equal(plan.at[i].device, plan.at[i + 1].device);
        assert_true(strcmp(plan.at[i].slice, plan.at[i + 1].slice) != 0);
        assert_true(plan.at[i].share + plan.at[i + 1].share == 1);
    }
    /* A device carries at most one model of each kind. */
    make_opposites(sc, 1);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &plan), WEFT_ERR_INFEASIBLE);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_GOODPUT, arena, &plan), WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 1);
    assert_true(fabs(plan.goodput_per_s - 780) < 1e-3);
    weft_arena_destroy(arena);
    free(sc);
}

/* Replicas divide the requirement by the replication degree. */
static void test_usher__replicas_carry_what_one_cannot(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    (void)state;
    start_scene(sc, 1, "v100", 20, NULL, 0);
    for (uint32_t percent = 10; percent <= 100; percent += 10)
        scene_add_share(sc, 0, "v100", percent, 4, 10e3, 1e9)->cost.creq = 0.4;
    sc->demand[0].slo_us = 100e3;
    sc->demand[0].rate_per_s = 1990; /* 5 replicas of 400/s at 40 %: two on a device */
    weft_arena *arena = weft_arena_create(0);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &plan), WEFT_ERR_OK);
    assert_int_equal(plan.n, 5);
    assert_int_equal(plan.gpus, 3);
    for (size_t i = 0; i < plan.n; i++) {
        assert_string_equal(plan.at[i].slice, "40%");
        assert_true(fabs(plan.at[i].rate_per_s - 398) < 1e-6);
    }
    /* Without MPS shares, USHER is exclusive placement. */
    sc->device[0].mps = false;
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &plan), WEFT_ERR_OK);
    assert_int_equal(plan.gpus, 5);
    weft_arena_destroy(arena);
    free(sc);
}

static void test_usher__ablations_and_waiting(void **state)
{
    static const char *const options[] = {"alternate=0", "divide=0", "sort=0",
                                          "alternate=0,divide=0,sort=0", "eps=0.5"};
    scene *sc = malloc(sizeof *sc);
    uint32_t waiting = 0;
    (void)state;
    for (uint32_t round = 0; round < 20; round++) {
        uint64_t seed = round * 101 + 1;
        weft_plan plan;
        random_scene(sc, &seed, 10, round % 2, 400);
        weft_arena *arena = weft_arena_create(0);
        for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
            assert_int_equal(plan_with(sc, options[i], WEFT_GOAL_COST, arena, &plan), WEFT_ERR_OK);
        waiting += plan_with(sc, "wait=1", WEFT_GOAL_COST, arena, &plan) == WEFT_ERR_OK;
        weft_arena_destroy(arena);
    }
    assert_true(waiting > 0);
    free(sc);
}

/* The plan in force stays while rates change little; otherwise a new one is made. */
static void test_usher__keeps_a_plan_until_the_trigger(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint64_t seed = 19;
    weft_plan first, next, fresh;
    (void)state;
    random_scene(sc, &seed, 9, true, 400);
    for (size_t m = 0; m < 9; m++)
        sc->demand[m].rate_per_s = fmin(sc->demand[m].rate_per_s, 3000 + 100 * (double)m);
    weft_arena *arena = weft_arena_create(0);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &first), WEFT_ERR_OK);
    sc->problem.previous = &first;
    for (size_t m = 0; m < 9; m++)
        sc->demand[m].rate_per_s *= m % 2 ? 0.95 : 0.98;
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &next), WEFT_ERR_OK);
    assert_int_equal(next.n, first.n);
    for (size_t i = 0; i < next.n; i++) {
        assert_string_equal(next.at[i].model, first.at[i].model);
        assert_string_equal(next.at[i].slice, first.at[i].slice);
        assert_int_equal(next.at[i].device, first.at[i].device);
        assert_int_equal(next.at[i].batch, first.at[i].batch);
    }
    /* Half of one rate: the plan is the same as without a previous one. */
    sc->demand[3].rate_per_s *= 0.5;
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &next), WEFT_ERR_OK);
    assert_int_equal(plan_with(sc, "trigger=0", WEFT_GOAL_COST, arena, &fresh), WEFT_ERR_OK);
    assert_true(next.n == fresh.n && next.cost_per_hour == fresh.cost_per_hour);
    /* One model less, and one that the fleet cannot have any more. */
    sc->demands.n = 8;
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &next), WEFT_ERR_OK);
    sc->demands.n = 9;
    sc->device[0].mps = sc->device[1].mps = false;
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &next), WEFT_ERR_OK);
    for (size_t i = 0; i < next.n; i++)
        assert_string_equal(next.at[i].slice, "");
    weft_arena_destroy(arena);
    free(sc);
}

/* 6000 devices: a placement works on classes of equal devices, so it is as fast as on six. */
static void test_usher__thousands_of_devices(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint64_t seed = 11;
    weft_plan plan;
    (void)state;
    random_scene(sc, &seed, 20, false, 6000);
    for (size_t m = 0; m < 20; m++)
        sc->demand[m].rate_per_s *= 100;
    weft_arena *arena = weft_arena_create(0);
    assert_int_equal(plan_with(sc, NULL, WEFT_GOAL_COST, arena, &plan), WEFT_ERR_OK);
    print_message("%u devices, %zu replicas\n", plan.gpus, plan.n);
    assert_true(plan.gpus > 2000 && plan.gpus <= 6000);
    weft_arena_destroy(arena);
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usher__pairing_is_exact),
        cmocka_unit_test(test_usher__pruned_search_costs_what_the_full_one_costs),
        cmocka_unit_test(test_usher__pruned_search_carries_what_the_full_one_carries),
        cmocka_unit_test(test_usher__effort_limits_the_search),
        cmocka_unit_test(test_usher__says_what_it_searched),
        cmocka_unit_test(test_usher__pairs_compute_with_memory),
        cmocka_unit_test(test_usher__replicas_carry_what_one_cannot),
        cmocka_unit_test(test_usher__ablations_and_waiting),
        cmocka_unit_test(test_usher__keeps_a_plan_until_the_trigger),
        cmocka_unit_test(test_usher__thousands_of_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
