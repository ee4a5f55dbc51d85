/* iGniter: shares worked out by hand, with and without interference. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/make_plan.h"
#include "tests/support/scene.h"

enum { MODELS = 4 };

/* Batches 1, 2, 4, 8 on shares of 10 .. 90 % and 100 %: time = (1 + batch) / 2 ms / share. */
static void make_scene(scene *sc, const double *rate_per_s, size_t n)
{
    static const char *const name[MODELS] = {"a", "b", "c", "d"};
    scene_start(sc);
    for (size_t m = 0; m < n; m++) {
        scene_add_model(sc, name[m], 100e3, rate_per_s[m]);
        for (uint32_t percent = 10; percent <= 100; percent += 10)
            for (uint32_t batch = 1; batch <= 8; batch *= 2) {
                double time_us = 1e3 * (1 + batch) / 2 * 100 / percent;
                scene_add_share(sc, m, "v100", percent, batch, time_us, 1e6)->cost.creq =
                    percent / 100.0;
            }
    }
    scene_add_device(sc, (weft_fleet_device){.type = "v100", .count = 8, .mps = true});
}

static weft_plan plan_of(const scene *sc, weft_arena *arena)
{
    weft_plan plan = {0};
    make_plan("igniter", NULL, &sc->problem, arena, &plan);
    return plan;
}

static uint32_t percent_of(const weft_plan *plan, const char *model)
{
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->at[i].model, model) == 0)
            return (uint32_t)lround(plan->at[i].share * 100);
    return 0;
}

/* Batch 8 on a share p serves 8 / 4.5 ms * p: 1777/s on 100 %; 1000/s need 60 %, 700/s need 40
 * %. */
static void test_igniter__least_share_first_fit_by_size(void **state)
{
    static const double rate[MODELS] = {1000, 700, 1000, 170};
    scene *sc = malloc(sizeof *sc);
    (void)state;
    make_scene(sc, rate, 4);
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(percent_of(&plan, "a"), 60);
    assert_int_equal(percent_of(&plan, "b"), 40);
    assert_int_equal(percent_of(&plan, "c"), 60);
    assert_int_equal(percent_of(&plan, "d"), 10);
    assert_int_equal(plan.gpus, 2);
    /* d asks for 170/s of at most 177/s: the largest batch; 90/s need batch 1 only. */
    for (size_t i = 0; i < plan.n; i++)
        if (strcmp(plan.at[i].model, "d") == 0)
            assert_int_equal(plan.at[i].batch, 8);
    sc->demand[3].rate_per_s = 90;
    plan = plan_of(sc, arena);
    for (size_t i = 0; i < plan.n; i++)
        if (strcmp(plan.at[i].model, "d") == 0)
            assert_int_equal(plan.at[i].batch, 1);
    weft_arena_destroy(arena);
    free(sc);
}

/* A neighbour on 40 % adds 0.5 * 0.4 = 20 % of time: 1000/s beside 700/s need more than 60 % + 40
 * %, so they get two devices; alone they need no extra share. */
static void test_igniter__neighbours_cost_share(void **state)
{
    static const double rate[MODELS] = {600, 300};
    scene *sc = malloc(sizeof *sc);
    (void)state;
    make_scene(sc, rate, 2);
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(percent_of(&plan, "a"), 40);
    assert_int_equal(percent_of(&plan, "b"), 20);
    assert_int_equal(plan.gpus, 1);
    /* a beside b: 1 + 0.7 * share of b = 1.14, 600 * 1.14 = 684 needs 40 %. b beside a: 1.28, 384
     * needs 30 %; then a: 1.21, 726 needs 50 %; then b: 1.35, 405 still 30 %. */
    sc->problem.rules.interference.c[1] = 0.7;
    sc->problem.rules.interference.c[4] = 1;
    plan = plan_of(sc, arena);
    assert_int_equal(plan.gpus, 1);
    assert_int_equal(percent_of(&plan, "a"), 50);
    assert_int_equal(percent_of(&plan, "b"), 30);
    /* So much interference that no two shares below 100 % together suffice. */
    sc->problem.rules.interference.c[1] = 5;
    plan = plan_of(sc, arena);
    assert_int_equal(plan.gpus, 2);
    assert_int_equal(percent_of(&plan, "a"), 40);
    weft_arena_destroy(arena);
    free(sc);
}

static void test_igniter__does_not_split_a_model(void **state)
{
    static const double rate[MODELS] = {4000, 300};
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    (void)state;
    make_scene(sc, rate, 2);
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    assert_int_equal(
        weft_plan_make(weft_policy_find("igniter"), NULL, &sc->problem, arena, diag, &plan),
        WEFT_ERR_INFEASIBLE);
    assert_string_equal(weft_diag_at(diag, 0)->item, "a");
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "3 services"));
    sc->problem.goal = WEFT_GOAL_GOODPUT;
    plan = plan_of(sc, arena);
    assert_true(fabs(plan.goodput_per_s - (8 / 4.5e-3 + 300)) < 1e-6);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_igniter__least_share_first_fit_by_size),
        cmocka_unit_test(test_igniter__neighbours_cost_share),
        cmocka_unit_test(test_igniter__does_not_split_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
