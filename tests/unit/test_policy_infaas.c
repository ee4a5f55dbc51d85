/* INFaaS: states, greedy scaling against the integer program, and when the policy scales down. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/policies/infaas_int.h"
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

#include "tests/support/make_plan.h"
#include "tests/support/scene.h"

static void test_infaas__states(void **state)
{
    weft_infaas_seen seen = {.peak_per_s = 105, .load_per_s = 50, .profile_us = 10};
    (void)state;
    assert_int_equal(weft_infaas__state(&seen), WEFT_INFAAS_INACTIVE);
    seen.loaded = true;
    seen.latency_us = 12;
    assert_int_equal(weft_infaas__state(&seen), WEFT_INFAAS_ACTIVE);
    seen.latency_us = 12.1;
    assert_int_equal(weft_infaas__state(&seen), WEFT_INFAAS_INTERFERED);
    /* At its peak an instance is slow without interference. */
    seen.load_per_s = 100.1;
    assert_int_equal(weft_infaas__state(&seen), WEFT_INFAAS_OVERLOADED);
    seen.load_per_s = 99.9;
    seen.latency_us = 10;
    assert_int_equal(weft_infaas__state(&seen), WEFT_INFAAS_ACTIVE);
}

/* -- Scaling ---------------------------------------------------------------------------------- */

enum { VARIANTS = 4 };

static void make_task(uint64_t *seed, weft_infaas_variant *variant, weft_infaas_task *task)
{
    for (uint32_t v = 0; v < VARIANTS; v++)
        variant[v] = (weft_infaas_variant){.arch = v / 2,
                                           .weight = 1,
                                           .cost = 1 + (double)(rand_next(seed) % 40) / 10,
                                           .peak_per_s = 20 + (double)(rand_next(seed) % 200),
                                           .load_s = 1 + (double)(rand_next(seed) % 10),
                                           .running = rand_next(seed) % 3};
    *task = (weft_infaas_task){.load_per_s = 1 + (double)(rand_next(seed) % 900),
                               .lambda = (double)(rand_next(seed) % 3) / 10,
                               .variant = variant,
                               .n = VARIANTS,
                               .n_row = 1};
}

/* Least cost of the integer program, by trying all counts. */
static double brute_force(const weft_infaas_task *task)
{
    enum { MOST = 60 };
    double best = INFINITY;
    uint32_t count[VARIANTS];
    for (count[0] = 0; count[0] < MOST; count[0]++)
        for (count[1] = 0; count[1] < MOST; count[1]++)
            for (count[2] = 0; count[2] < MOST; count[2]++) {
                double rest = weft_infaas_headroom * task->load_per_s;
                for (int v = 0; v < 3; v++)
                    rest -= count[v] * task->variant[v].peak_per_s;
                count[3] = rest > 0 ? (uint32_t)ceil(rest / task->variant[3].peak_per_s - 1e-9) : 0;
                double cost = weft_infaas__cost(task, count);
                best = fmin(best, cost);
                /* More of the last variant pays only if it runs already and costs nothing to keep;
                 * never, because each instance costs. */
                if (rest <= 0)
                    break;
            }
    return best;
}

static void test_infaas__greedy_costs_no_less_than_the_program(void **state)
{
    uint64_t seed = 5;
    const uint32_t rounds = RAND_ROUNDS(150);
    uint32_t dearer = 0, ups = 0;
    (void)state;
    for (uint32_t round = 0; round < rounds; round++) {
        weft_arena *arena = weft_arena_create(0);
        weft_infaas_variant variant[VARIANTS];
        weft_infaas_task task;
        weft_infaas_up way[64];
        uint32_t count[VARIANTS], greedy[VARIANTS];
        make_task(&seed, variant, &task);
        assert_true(weft_infaas__solve(&task, &weft_solver_cbc, arena, 2000, count));
        double least = weft_infaas__cost(&task, count), capacity = 0;
        if (round < RAND_ROUNDS(25))
            assert_true(fabs(least - brute_force(&task)) < 1e-6);
        for (int v = 0; v < VARIANTS; v++) {
            capacity += count[v] * variant[v].peak_per_s;
            greedy[v] = variant[v].running;
        }
        assert_true(capacity >= 1.05 * task.load_per_s * (1 - 1e-6));
        if (weft_infaas__need(&task) > 0) {
            assert_true(weft_infaas__ups(&task, false, way, 64) > 0);
            if (way[0].drop != UINT32_MAX)
                greedy[way[0].drop] = 0;
            greedy[way[0].add] += way[0].n;
            assert_true(fabs(weft_infaas__cost(&task, greedy) - way[0].cost) < 1e-6);
            capacity = 0;
            for (int v = 0; v < VARIANTS; v++)
                capacity += greedy[v] * variant[v].peak_per_s;
            assert_true(capacity >= 1.05 * task.load_per_s * (1 - 1e-6));
            ups++;
        }
        assert_true(weft_infaas__cost(&task, greedy) >= least - 1e-6);
        dearer += weft_infaas__cost(&task, greedy) > least + 1e-6;
        weft_arena_destroy(arena);
    }
    print_message("%u of %u scaled up, %u dearer than the program\n", ups, rounds, dearer);
    assert_true(ups > rounds / 3 && dearer > rounds / 8);
}

static void test_infaas__program_keeps_to_the_devices(void **state)
{
    weft_infaas_variant variant[] = {
        {.row = 0, .weight = 1, .cost = 1, .peak_per_s = 100, .load_s = 1},
        {.row = 1, .weight = 0.5, .cost = 5, .peak_per_s = 100, .load_s = 1}};
    const double free[] = {2, 1};
    weft_infaas_task task = {
        .load_per_s = 300, .variant = variant, .n = 2, .free = free, .n_row = 2};
    uint32_t count[2];
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    assert_true(weft_infaas__solve(&task, &weft_solver_cbc, arena, 100, count));
    assert_int_equal(count[0], 2);
    assert_int_equal(count[1], 2);
    task.load_per_s = 500;
    assert_false(weft_infaas__solve(&task, &weft_solver_cbc, arena, 100, count));
    weft_arena_destroy(arena);
}

static void test_infaas__steps_by_hand(void **state)
{
    /* Two batches of one model and another model; 100/s are carried, 400/s are demanded. */
    weft_infaas_variant variant[] = {
        {.arch = 0, .cost = 1, .peak_per_s = 100, .load_s = 2, .running = 1},
        {.arch = 0, .cost = 2, .peak_per_s = 450, .load_s = 3},
        {.arch = 1, .cost = 0.1, .peak_per_s = 1000, .load_s = 2}};
    weft_infaas_task task = {.load_per_s = 400, .variant = variant, .n = 3};
    weft_infaas_up way[16];
    weft_infaas_down down;
    (void)state;
    /* Four more instances of what runs, or one of the larger variant in its place; the other model
     * is not considered. */
    assert_int_equal(weft_infaas__ups(&task, false, way, 16), 2);
    assert_int_equal(way[0].add, 1);
    assert_int_equal(way[0].n, 1);
    assert_int_equal(way[0].drop, 0);
    assert_true(fabs(way[0].cost - 1) < 1e-12);
    assert_int_equal(way[1].add, 0);
    assert_int_equal(way[1].n, 4);
    assert_int_equal(weft_infaas__ups(&task, true, way, 16), 4);
    assert_int_equal(way[0].add, 2);
    /* 85/s: no instance can go, but the smaller variant can replace the larger one. */
    variant[0].running = 0;
    variant[1].running = 1;
    variant[2].cost = 9;
    task.load_per_s = 85;
    assert_true(weft_infaas__down(&task, &down));
    assert_int_equal(down.drop, 1);
    assert_int_equal(down.add, 0);
    assert_int_equal(weft_infaas__slots(&variant[1], 1), 3);
    assert_int_equal(weft_infaas__slots(&variant[1], 10), 1);
    task.load_per_s = 96; /* 1.05 * 96 > 100 */
    assert_false(weft_infaas__down(&task, &down));
}

static void test_infaas__workers_are_added_and_drained(void **state)
{
    weft_infaas_worker w[5] = {
        {.use = 0.9}, {.use = 0.85}, {.use = 0.81}, {.use = 0.9}, {.use = 0.8}};
    (void)state;
    assert_int_equal(weft_infaas__workers(w, 5), 0);
    w[4].use = 0.82;
    assert_int_equal(weft_infaas__workers(w, 5), 1);
    for (int i = 0; i < 5; i++)
        w[i] = (weft_infaas_worker){.overloaded = i < 4};
    assert_int_equal(weft_infaas__workers(w, 5), 0); /* 80 % is not more than 80 % */
    w[4].overloaded = true;
    assert_int_equal(weft_infaas__workers(w, 5), 1);
    for (int i = 0; i < 5; i++)
        w[i] = (weft_infaas_worker){.interfered = i > 0, .empty_s = i < 2 ? 60 : 59};
    assert_int_equal(weft_infaas__workers(w, 5), -2);
    w[0].interfered = true;
    assert_int_equal(weft_infaas__workers(w, 5), 1);
}

/* -- The policy ------------------------------------------------------------------------------- */

enum { MODELS = 3 };

static weft_set_variant variant[MODELS];
static weft_set_app app; /* of which the models are variants */

/* Models a, b, c of accuracy 70, 76, 80 on MIG instances, shares and whole devices; a is the
 * fastest. Loading takes 2 s, and bytes / 8e9. */
static void make_scene(scene *sc, bool mig, bool mps)
{
    static const struct {
        const char *slice;
        double speed;
    } slice[] = {{"1g.10gb", 1}, {"3g.40gb", 3}, {"", 7}, {"20%", 1.4}, {"50%", 3.5}};
    static const char *const name[MODELS] = {"a", "b", "c"};
    static const double accuracy[MODELS] = {70, 76, 80};
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, name[m], 0, 0);
        for (size_t s = 0; s < sizeof slice / sizeof slice[0]; s++) {
            weft_profile_point *p =
                scene_add_point(sc, m, "a100-80", slice[s].slice, 8,
                                20000.0 * (double)(m + 1) / slice[s].speed, 1e9);
            p->share = 0.1;
            p->cost.creq = 0.5;
        }
        variant[m] = (weft_set_variant){sc->name[m], accuracy[m]};
    }
    scene_add_device(sc,
                     (weft_fleet_device){.type = "a100-80", .count = 30, .mig = mig, .mps = mps});
    app = (weft_set_app){.name = "task",
                         .rate_per_s = 1000,
                         .slo_us = 200000,
                         .variant = variant,
                         .n_variant = MODELS};
    sc->problem.app = &app;
    sc->problem.n_app = 1;
    sc->problem.solver = &weft_solver_cbc;
}

static weft_plan plan_of(const scene *sc, void *memory, weft_arena *arena)
{
    weft_plan plan = {0};
    make_plan("infaas", memory, &sc->problem, arena, &plan);
    return plan;
}

static double capacity_of(const weft_plan *plan)
{
    double sum = 0;
    for (size_t i = 0; i < plan->n; i++)
        sum += plan->at[i].capacity_per_s;
    return sum;
}

static void test_infaas__accuracy_of_the_app_holds_for_every_answer(void **state)
{
    static const char *const expected[] = {"a", "b", "c"};
    static const double least[] = {0, 75, 80};
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    for (int i = 0; i < 3; i++) {
        make_scene(sc, true, false);
        app.accuracy = least[i];
        weft_plan plan = plan_of(sc, NULL, arena);
        assert_true(plan.n > 0 && capacity_of(&plan) >= 1050 * (1 - 1e-6));
        for (size_t k = 0; k < plan.n; k++)
            assert_string_equal(plan.at[k].model, expected[i]);
    }
    weft_arena_destroy(arena);
    free(sc);
}

/* A load that has fallen is followed after the 2 slots that loading takes; a load that rises again
 * in this time restarts the count. */
static void test_infaas__scales_down_after_the_time_to_load(void **state)
{
    static const double load[] = {1000, 300, 300, 1000, 300, 300, 300, 300};
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    void *memory = weft_arena_array(arena, 1, weft_policy_find("infaas")->state_size);
    weft_plan plan = {0};
    size_t n[8];
    (void)state;
    make_scene(sc, true, false);
    sc->problem.options = "start=2.1"; /* and 1e9 bytes: 3 slots */
    for (int i = 0; i < 8; i++) {
        weft_plan before = plan;
        sc->problem.previous = i > 0 ? &before : NULL;
        sc->problem.now_s = i;
        app.rate_per_s = load[i];
        plan = plan_of(sc, memory, arena);
        n[i] = plan.n;
        assert_true(capacity_of(&plan) >= 1.05 * load[i] * (1 - 1e-6));
    }
    for (int i = 1; i < 6; i++)
        assert_int_equal(n[i], n[0]);
    assert_true(n[6] < n[0]);
    /* Without a state nothing is removed; the integer program does not wait. */
    weft_plan before = plan;
    sc->problem.previous = &before;
    app.rate_per_s = 10;
    plan = plan_of(sc, NULL, arena);
    assert_int_equal(plan.n, before.n);
    sc->problem.options = "exact=1";
    plan = plan_of(sc, NULL, arena);
    assert_int_equal(plan.n, 1);
    weft_arena_destroy(arena);
    free(sc);
}

/* Random loads in sequence, on all ways to split: the plans are legal, and instances that stay keep
 * their places. */
static void test_infaas__plans_follow_random_loads(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint64_t seed = 23;
    uint32_t moved = 0, kept = 0;
    (void)state;
    for (int round = 0; round < RAND_ROUNDS(60); round++) {
        weft_arena *arena = weft_arena_create(0);
        void *memory = weft_arena_array(arena, 1, weft_policy_find("infaas")->state_size);
        weft_plan plan = {0};
        make_scene(sc, round % 2, round % 3 == 0);
        app.accuracy = round % 4 ? 0 : 75;
        sc->problem.options = round % 5 == 0 ? "exact=1" : NULL;
        if (round % 6 == 0)
            sc->problem.rules.interference = (weft_interference){.c = {0.3, 0.6, 0, 0, 0.7}};
        for (int i = 0; i < 12; i++) {
            weft_plan before = plan;
            const weft_plan_move *move;
            size_t n_move;
            sc->problem.previous = i > 0 ? &before : NULL;
            sc->problem.now_s = i * (1 + round % 3);
            app.rate_per_s = 1 + (double)(rand_next(&seed) % 6000);
            sc->demand[0].rate_per_s = rand_next(&seed) % 2 ? 500 : 0;
            plan = plan_of(sc, memory, arena);
            assert_true(capacity_of(&plan) * (round % 6 ? 1 : 1.3) >=
                        1.05 * (app.rate_per_s + sc->demand[0].rate_per_s) * (1 - 1e-6));
            weft_plan_diff(&before, &plan, arena, &move, &n_move);
            moved += (uint32_t)n_move;
            kept += (uint32_t)plan.n;
        }
        weft_arena_destroy(arena);
    }
    print_message("%u moved, %u instances\n", moved, kept);
    assert_true(moved < kept);
    free(sc);
}

/* The policy `weft`, which does not choose variants, runs this one: rates count once. */
static void test_infaas__weft_may_ask_it(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    (void)state;
    make_scene(sc, true, true);
    for (int m = 0; m < MODELS; m++)
        sc->demand[m].rate_per_s = 100;
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, NULL, &plan),
        WEFT_ERR_OK);
    assert_true(fabs(plan.goodput_per_s - 1300) < 1e-3);
    sc->problem.options = "exact=1";
    sc->problem.solver = NULL;
    assert_int_equal(
        weft_plan_make(weft_policy_find("infaas"), NULL, &sc->problem, arena, NULL, &plan),
        WEFT_ERR_UNSUP);
    weft_arena_destroy(arena);
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_infaas__states),
        cmocka_unit_test(test_infaas__greedy_costs_no_less_than_the_program),
        cmocka_unit_test(test_infaas__program_keeps_to_the_devices),
        cmocka_unit_test(test_infaas__steps_by_hand),
        cmocka_unit_test(test_infaas__workers_are_added_and_drained),
        cmocka_unit_test(test_infaas__accuracy_of_the_app_holds_for_every_answer),
        cmocka_unit_test(test_infaas__scales_down_after_the_time_to_load),
        cmocka_unit_test(test_infaas__plans_follow_random_loads),
        cmocka_unit_test(test_infaas__weft_may_ask_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
