/* gpulet: knees, required shares, splits and neighbours worked out by hand. */
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

enum { SHARES = 6, BATCH = 4 };

static const uint32_t percent[SHARES] = {20, 40, 50, 60, 80, 100};

static void start_scene(scene *sc)
{
    scene_start(sc);
    scene_add_device(sc, (weft_fleet_device){.type = "v100", .count = 9, .mps = true});
}

/* A model with one batch of 4 and these throughputs, by share. */
static void add_model(scene *sc, const char *name, const double peak_per_s[SHARES], double creq,
                      double slo_us, double rate_per_s)
{
    size_t m = scene_add_model(sc, name, slo_us, rate_per_s);
    for (size_t s = 0; s < SHARES; s++)
        scene_add_share(sc, m, "v100", percent[s], BATCH, BATCH * 1e6 / peak_per_s[s], 1e6)
            ->cost.creq = creq;
}

static weft_plan plan_of(const scene *sc, weft_arena *arena)
{
    weft_plan plan = {0};
    make_plan("gpulet", NULL, &sc->problem, arena, &plan);
    return plan;
}

static void expect_place(const weft_plan *plan, size_t i, uint32_t device, const char *slice,
                         double rate_per_s)
{
    assert_true(i < plan->n);
    assert_int_equal(plan->at[i].device, device);
    assert_string_equal(plan->at[i].slice, slice);
    assert_true(fabs(plan->at[i].rate_per_s - rate_per_s) < 1e-6);
}

/* With the shares scaled to 0 .. 1, T is 0 .45 .425 .35 .175 0 above the diagonal: the knee is at
 * 40 %. */
static const double bent[SHARES] = {100, 380, 420, 440, 470, 500};
static const double straight[SHARES] = {100, 200, 250, 300, 400, 500};

/* 400/s need 50 %, so the knee is taken: 380/s on 40 %. The rest of 20/s gets the other gpulet,
 * which is free, and uses all of it. */
static void test_gpulet__knee_and_the_rest_on_the_other_glet(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    start_scene(sc);
    add_model(sc, "a", bent, 0.1, 100e3, 400);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(plan.n, 2);
    expect_place(&plan, 0, 0, "40%", 380);
    expect_place(&plan, 1, 0, "60%", 20);
    weft_arena_destroy(arena);
    free(sc);
}

/* A throughput in proportion to the share has its knee at the first share, by the order of
 * shares. */
static void test_gpulet__a_straight_line_takes_the_smallest_share(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    start_scene(sc);
    add_model(sc, "a", straight, 0.1, 100e3, 450);
    weft_plan plan = plan_of(sc, arena);
    /* 100/s on 20 %; then 350/s fit the 80 % beside it. */
    assert_int_equal(plan.n, 2);
    expect_place(&plan, 0, 0, "20%", 100);
    expect_place(&plan, 1, 0, "80%", 350);
    weft_arena_destroy(arena);
    free(sc);
}

/* At 90/s a batch of 4 is collected in 44.4 ms and takes 40 ms on 20 %, 84.4 ms together. Under a
 * shorter SLO the next share is needed, although 2 * 40 ms would keep the SLO. */
static void test_gpulet__required_share_leaves_time_to_collect(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    start_scene(sc);
    add_model(sc, "a", bent, 0.1, 84.5e3, 90);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(plan.n, 1);
    expect_place(&plan, 0, 0, "20%", 90);
    sc->demand[0].slo_us = 84.4e3;
    plan = plan_of(sc, arena);
    assert_int_equal(plan.n, 1);
    expect_place(&plan, 0, 0, "40%", 90);
    weft_arena_destroy(arena);
    free(sc);
}

static void test_gpulet__rate_is_split_over_glets_of_several_gpus(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    start_scene(sc);
    add_model(sc, "a", bent, 0.1, 100e3, 1500);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(plan.gpus, 2);
    assert_int_equal(plan.n, 4);
    expect_place(&plan, 0, 0, "40%", 380);
    expect_place(&plan, 1, 0, "60%", 440);
    expect_place(&plan, 2, 1, "40%", 380);
    expect_place(&plan, 3, 1, "60%", 300);
    /* A fixed fleet of one device carries what it can; with the goal cost it refuses and names the
     * model. */
    sc->device[0].count = 1;
    sc->problem.goal = WEFT_GOAL_GOODPUT;
    plan = plan_of(sc, arena);
    assert_true(fabs(plan.goodput_per_s - 820) < 1e-6);
    sc->problem.goal = WEFT_GOAL_COST;
    weft_diag *diag = weft_diag_create();
    assert_int_equal(
        weft_plan_make(weft_policy_find("gpulet"), NULL, &sc->problem, arena, diag, &plan),
        WEFT_ERR_INFEASIBLE);
    assert_string_equal(weft_diag_at(diag, 0)->item, "a");
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    free(sc);
}

/* Two models that take 40 and 45 ms on every share, too long for time sharing under 100 ms. A model
 * beside one that uses a part u of the L2 takes 1 + u / 2 times as long. */
static weft_plan plan_neighbours(scene *sc, double use_a, double use_b, bool interfere,
                                 weft_arena *arena)
{
    static const double flat_a[SHARES] = {100, 100, 100, 100, 100, 100};
    double flat_b[SHARES];
    for (size_t i = 0; i < SHARES; i++)
        flat_b[i] = BATCH * 1e6 / 45e3;
    start_scene(sc);
    add_model(sc, "a", flat_a, use_a, 100e3, 20);
    add_model(sc, "b", flat_b, use_b, 100e3, 50);
    if (interfere)
        sc->problem.rules.interference = (weft_interference){.c = {0, 0.5, 0, 0, 1}};
    return plan_of(sc, arena);
}

static void test_gpulet__both_sides_keep_their_slo_beside_each_other(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    assert_int_equal(plan_neighbours(sc, 0.8, 0.8, false, arena).gpus, 1);
    assert_int_equal(plan_neighbours(sc, 0.1, 0.1, true, arena).gpus, 1);
    /* The newcomer b would keep its SLO, but a, which is there already, would take 2 * 40 * 1.4
     * ms. */
    assert_int_equal(plan_neighbours(sc, 0.1, 0.8, true, arena).gpus, 2);
    /* a would keep its SLO, but b would take 2 * 45 * 1.4 ms. */
    assert_int_equal(plan_neighbours(sc, 0.8, 0.1, true, arena).gpus, 2);
    weft_arena_destroy(arena);
    free(sc);
}

/* A rest that would not saturate a gpulet shares a used one in time, if the round allows it. */
static void test_gpulet__a_rest_shares_a_used_glet(void **state)
{
    static const double flat[SHARES] = {400, 400, 400, 400, 400, 400};
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    start_scene(sc);
    add_model(sc, "a", flat, 0.1, 100e3, 20);
    add_model(sc, "b", flat, 0.1, 100e3, 50);
    weft_plan plan = plan_of(sc, arena);
    assert_int_equal(plan.n, 2);
    assert_int_equal(plan.gpus, 1);
    assert_int_equal(plan.at[0].slice_id, plan.at[1].slice_id);
    assert_string_equal(plan.at[0].slice, "20%");
    /* b would have a round of 20 ms and 10 ms of its own: under 30 ms it needs a gpulet for
     * itself. */
    sc->demand[1].slo_us = 29e3;
    plan = plan_of(sc, arena);
    assert_int_equal(plan.gpus, 1);
    assert_int_not_equal(plan.at[0].slice_id, plan.at[1].slice_id);
    weft_arena_destroy(arena);
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpulet__knee_and_the_rest_on_the_other_glet),
        cmocka_unit_test(test_gpulet__a_straight_line_takes_the_smallest_share),
        cmocka_unit_test(test_gpulet__required_share_leaves_time_to_collect),
        cmocka_unit_test(test_gpulet__rate_is_split_over_glets_of_several_gpus),
        cmocka_unit_test(test_gpulet__both_sides_keep_their_slo_beside_each_other),
        cmocka_unit_test(test_gpulet__a_rest_shares_a_used_glet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
