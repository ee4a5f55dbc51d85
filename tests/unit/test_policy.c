/* Policies: all plans of all policies pass the checker, equal demands give equal plans, and demands
 * that cannot be placed are refused with a reason. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "tests/support/data_dir.h"
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

enum { MODELS_MAX = 12 };

static uint32_t cores[3]; /* slices of the CPUs in a scene */

static double pick(uint64_t *seed, double lo, double hi)
{
    return lo * pow(hi / lo, (double)(rand_next(seed) % 100001) / 100000);
}

/* A model of random speed on all slices of the devices below; its times are not always monotone. */
static void add_model(scene *sc, uint64_t *seed)
{
    static const struct {
        const char *device, *slice;
        double share;
    } slices[] = {
        {"cpu", "1core", 0.01},
        {"cpu", "2core", 0.02},
        {"h100", "1g.10gb", 0.12},
        {"h100", "3g.40gb", 0.45},
        {"h100", "", 1},
        {"h100", "20%", 0.2},
        {"h100", "60%", 0.6},
        {"h100", "3g.40gb/50%", 0.22},
        {"h100", "3g.40gb/30%", 0.13},
        {"h100", "1g.10gb/60%", 0.07},
        {"a100-80", "2g.20gb", 0.2},
        {"a100-80", "", 0.7},
    };
    double work = pick(seed, 100, 20000), bytes = pick(seed, 1e7, 2e10);
    size_t m = scene_add_model(sc, NULL, 0, 0);
    for (size_t s = 0; s < sizeof slices / sizeof slices[0]; s++)
        for (uint32_t batch = 1; batch <= 16; batch *= 4) {
            uint32_t procs_max = 1 + (rand_next(seed) % 4 == 0);
            for (uint32_t procs = 1; procs <= procs_max; procs++) {
                weft_profile_point *p = scene_add_point(
                    sc, m, slices[s].device, slices[s].slice, batch,
                    work * (1 + 0.4 * batch) * procs / slices[s].share * pick(seed, 0.7, 1.4) / 10,
                    bytes * (1 + batch / 16.0));
                p->share = slices[s].share;
                p->procs = procs;
            }
        }
    if (rand_next(seed) % 8)
        sc->demand[m].slo_us = work * pick(seed, 2, 1000);
    if (rand_next(seed) % 8)
        sc->demand[m].rate_per_s = pick(seed, 0.1, 20000);
}

static void make_scene(scene *sc, uint64_t *seed)
{
    scene_start(sc);
    size_t n = 1 + rand_next(seed) % MODELS_MAX;
    for (size_t m = 0; m < n; m++)
        add_model(sc, seed);
    if (rand_next(seed) % 2) {
        static const uint32_t cuts[3][2] = {{1, 1}, {1, 2}, {2, 2}};
        memcpy(cores, cuts[rand_next(seed) % 3], sizeof cuts[0]);
        scene_add_device(sc, (weft_fleet_device){.type = "cpu",
                                                 .count = 1 + rand_next(seed) % 3,
                                                 .cores = 4,
                                                 .slice_cores = cores,
                                                 .n_slice = 2,
                                                 .mem_bytes = (uint64_t)16 << 30});
    }
    if (rand_next(seed) % 4)
        scene_add_device(sc, (weft_fleet_device){.type = "h100",
                                                 .count = 1 + rand_next(seed) % 20,
                                                 .mig = rand_next(seed) % 2,
                                                 .mps = rand_next(seed) % 2});
    if (sc->fleet.n_device == 0 || rand_next(seed) % 2)
        scene_add_device(sc, (weft_fleet_device){.type = "a100-80",
                                                 .count = 1 + rand_next(seed) % 20,
                                                 .mig = rand_next(seed) % 2});
}

static void fail_with(const weft_diag *diag, const char *what, uint64_t seed)
{
    for (size_t i = 0; i < weft_diag_count(diag) && i < 5; i++)
        print_error("%s: %s\n", weft_diag_at(diag, i)->item ? weft_diag_at(diag, i)->item : "",
                    weft_diag_at(diag, i)->text);
    fail_msg("%s, seed %llu", what, (unsigned long long)seed);
}

/* weft_plan_make checks the plan; plans that are read back from text are checked here. */
static void test_policy__every_plan_passes_the_checker(void **state)
{
    weft_diag *diag = weft_diag_create();
    scene *sc = malloc(sizeof *sc);
    uint32_t placed = 0, refused = 0;
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(600); round++) {
        uint64_t seed = round * 7919;
        make_scene(sc, &seed);
        for (size_t i = 0; weft_policy_at(i); i++) {
            weft_arena *arena = weft_arena_create(0);
            weft_plan plan, back;
            char *text;
            weft_diag_clear(diag);
            weft_err err =
                weft_plan_make(weft_policy_at(i), NULL, &sc->problem, arena, diag, &plan);
            if (err == WEFT_ERR_INFEASIBLE) {
                const weft_message *msg = weft_diag_at(diag, 0);
                if (weft_diag_count(diag) == 0 || !msg->item || msg->item[0] != 'm')
                    fail_with(diag, "refusal names no model", round);
                refused++;
            } else if (err != WEFT_ERR_OK) {
                fail_with(diag, weft_policy_at(i)->name, round);
            } else {
                placed++;
                assert_true(plan.gpus >= plan.lower_bound);
                assert_int_equal(weft_plan_to_json(&plan, &sc->demands, &text), WEFT_ERR_OK);
                err = weft_plan_from_json(text, strlen(text), "p", arena, diag, &back);
                if (err == WEFT_ERR_OK)
                    err = weft_plan_check(&back, &sc->problem, diag);
                if (err != WEFT_ERR_OK)
                    fail_with(diag, "plan read back", round);
                free(text);
            }
            weft_arena_destroy(arena);
        }
    }
    print_message("%u plans, %u refusals\n", placed, refused);
    assert_true(placed > RAND_ROUNDS(1000) && refused > RAND_ROUNDS(100));
    free(sc);
    weft_diag_destroy(diag);
}

static char *plan_text(const weft_policy *policy, const weft_problem *problem)
{
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    char *text = NULL;
    if (weft_plan_make(policy, NULL, problem, arena, NULL, &plan) == WEFT_ERR_OK)
        assert_int_equal(weft_plan_to_json(&plan, problem->demands, &text), WEFT_ERR_OK);
    weft_arena_destroy(arena);
    return text;
}

static void test_policy__order_of_input_does_not_matter(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(100); round++) {
        uint64_t seed = round * 104729;
        make_scene(sc, &seed);
        for (size_t i = 0; weft_policy_at(i); i++) {
            char *first = plan_text(weft_policy_at(i), &sc->problem);
            for (size_t j = sc->demands.n; j-- > 1;) {
                size_t k = rand_next(&seed) % (j + 1);
                weft_demand swap = sc->demand[j];
                sc->demand[j] = sc->demand[k];
                sc->demand[k] = swap;
            }
            for (size_t m = 0; m < sc->demands.n; m++)
                for (size_t j = sc->demand[m].profile.n; j-- > 1;) {
                    weft_profile_point *p = (weft_profile_point *)sc->demand[m].profile.point;
                    size_t k = rand_next(&seed) % (j + 1);
                    weft_profile_point swap = p[j];
                    p[j] = p[k];
                    p[k] = swap;
                }
            char *second = plan_text(weft_policy_at(i), &sc->problem);
            assert_true(!first == !second);
            if (first)
                assert_string_equal(first, second);
            free(first);
            free(second);
        }
    }
    free(sc);
}

/* -- Small cases ------------------------------------------------------------------------------ */

static void expect_infeasible(const scene *sc, const char *item, const char *text)
{
    const uint32_t in_turn = WEFT_SPLIT_CORES | WEFT_SPLIT_TIME;
    for (size_t i = 0; weft_policy_at(i); i++) {
        if ((weft_policy_at(i)->splits & in_turn) != in_turn)
            continue;
        weft_arena *arena = weft_arena_create(0);
        weft_diag *diag = weft_diag_create();
        weft_plan plan;
        weft_err err = weft_plan_make(weft_policy_at(i), NULL, &sc->problem, arena, diag, &plan);
        assert_int_equal(err, WEFT_ERR_INFEASIBLE);
        assert_string_equal(weft_diag_at(diag, 0)->item, item);
        if (!strstr(weft_diag_at(diag, 0)->text, text))
            fail_msg("'%s' is not in '%s'", text, weft_diag_at(diag, 0)->text);
        weft_arena_destroy(arena);
        weft_diag_destroy(diag);
    }
}

/* Three models on a machine with two CPU slices. */
static void make_small(scene *sc)
{
    scene_start(sc);
    for (size_t m = 0; m < 3; m++) {
        scene_add_model(sc, NULL, 20000, 50);
        scene_add_point(sc, m, "cpu", "1core", 1, 1000, 1e6)->share = 0.5;
        scene_add_point(sc, m, "cpu", "1core", 4, 3000, 1e6)->share = 0.5;
    }
    cores[0] = cores[1] = 1;
    scene_add_device(
        sc, (weft_fleet_device){
                .type = "cpu", .count = 1, .cores = 2, .slice_cores = cores, .n_slice = 2});
}

static void test_policy__more_models_than_slices(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    make_small(sc);
    for (size_t i = 0; weft_policy_at(i); i++) {
        if (!(weft_policy_at(i)->splits & WEFT_SPLIT_CORES))
            continue;
        weft_arena *arena = weft_arena_create(0);
        weft_plan plan;
        bool in_turn = weft_policy_at(i)->splits & WEFT_SPLIT_TIME;
        weft_err err = weft_plan_make(weft_policy_at(i), NULL, &sc->problem, arena, NULL, &plan);
        assert_int_equal(err, in_turn ? WEFT_ERR_OK : WEFT_ERR_INFEASIBLE);
        if (in_turn) {
            assert_int_equal(plan.n, 3);
            assert_int_equal(plan.gpus, 1);
        }
        weft_arena_destroy(arena);
    }
    free(sc);
}

/* Two models have a slice each by every policy that knows CPUs, and a third slice stays free. */
static void test_policy__slices_of_a_cpu(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    scene_start(sc);
    for (size_t m = 0; m < 2; m++) {
        scene_add_model(sc, NULL, 20000, m ? 1500 : 900);
        scene_add_point(sc, m, "cpu", "1core", 1, 1000, 1e6)->share = 0.25;
        scene_add_point(sc, m, "cpu", "1core", 4, 3000, 1e6)->share = 0.25;
        scene_add_point(sc, m, "cpu", "2core", 4, 1800, 1e6)->share = 0.5;
    }
    cores[0] = cores[1] = 1;
    cores[2] = 2;
    scene_add_device(
        sc, (weft_fleet_device){
                .type = "cpu", .count = 1, .cores = 4, .slice_cores = cores, .n_slice = 3});
    for (size_t i = 0; weft_policy_at(i); i++) {
        if (!(weft_policy_at(i)->splits & WEFT_SPLIT_CORES))
            continue;
        weft_arena *arena = weft_arena_create(0);
        weft_plan plan;
        if (weft_plan_make(weft_policy_at(i), NULL, &sc->problem, arena, NULL, &plan))
            fail_msg("%s finds no plan", weft_policy_at(i)->name);
        assert_true(plan.n >= 2 && plan.n <= 3);
        weft_arena_destroy(arena);
    }
    free(sc);
}

static void test_policy__infeasible_names_model_and_remedy(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    make_small(sc);
    sc->demand[1].slo_us = 1500;
    expect_infeasible(sc, "m1", "lowest latency on any slice is 2 ms");
    make_small(sc);
    sc->demand[2].rate_per_s = 5000;
    expect_infeasible(sc, "m2", "no place left");
    make_small(sc);
    sc->device[0].mem_bytes = 100;
    expect_infeasible(sc, "m0", "needs 1000000 bytes of memory, the largest slice has 100");
    make_small(sc);
    sc->device[0].type = "t4";
    expect_infeasible(sc, "m0", "no profile for any device");
    make_small(sc);
    cores[0] = cores[1] = 2;
    sc->device[0].cores = 4;
    expect_infeasible(sc, "m0", "no profile point is on a slice");
    free(sc);
}

static void test_policy__bestfit_is_never_dearer_than_exclusive(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(300); round++) {
        uint64_t seed = round * 15485863;
        weft_arena *arena = weft_arena_create(0);
        weft_plan exclusive, best;
        make_scene(sc, &seed);
        if (weft_plan_make(weft_policy_find("exclusive"), NULL, &sc->problem, arena, NULL,
                           &exclusive) == WEFT_ERR_OK) {
            assert_int_equal(
                weft_plan_make(weft_policy_find("bestfit"), NULL, &sc->problem, arena, NULL, &best),
                WEFT_ERR_OK);
            assert_true(best.cost_per_hour <= exclusive.cost_per_hour + 1e-9);
        }
        weft_arena_destroy(arena);
    }
    free(sc);
}

/* Whether `a` costs more, or the same with more devices; with the goal goodput: carries less. */
static bool is_worse(const weft_plan *a, const weft_plan *b)
{
    if (a->goal == WEFT_GOAL_GOODPUT && a->goodput_per_s < b->goodput_per_s * (1 - 1e-6))
        return true;
    if (a->goal == WEFT_GOAL_GOODPUT && a->goodput_per_s > b->goodput_per_s * (1 + 1e-6))
        return false;
    return a->cost_per_hour > b->cost_per_hour * (1 + 1e-6) ||
           (a->cost_per_hour > b->cost_per_hour * (1 - 1e-6) && a->gpus > b->gpus);
}

static void test_policy__weft_is_never_worse_than_another(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_diag *diag = weft_diag_create();
    uint32_t better = 0, equal = 0;
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(150); round++) {
        uint64_t seed = round * 32452843;
        weft_arena *arena = weft_arena_create(0);
        weft_plan own, plan;
        make_scene(sc, &seed);
        sc->problem.goal = round % 3 == 0 ? WEFT_GOAL_GOODPUT : WEFT_GOAL_COST;
        weft_diag_clear(diag);
        weft_err err =
            weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, diag, &own);
        if (err != WEFT_ERR_OK && err != WEFT_ERR_INFEASIBLE)
            fail_with(diag, "weft", round);
        bool best = true;
        for (size_t i = 0; weft_policy_at(i); i++) {
            if (strcmp(weft_policy_at(i)->name, "weft") == 0 ||
                weft_plan_make(weft_policy_at(i), NULL, &sc->problem, arena, NULL, &plan))
                continue;
            if (err != WEFT_ERR_OK || is_worse(&own, &plan))
                fail_msg("round %llu: %s has %u devices at %g for %g/s, weft %u at %g for %g/s",
                         (unsigned long long)round, weft_policy_at(i)->name, plan.gpus,
                         plan.cost_per_hour, plan.goodput_per_s, own.gpus, own.cost_per_hour,
                         own.goodput_per_s);
            best = best && is_worse(&plan, &own);
        }
        better += err == WEFT_ERR_OK && best;
        equal += err == WEFT_ERR_OK && !best;
        weft_arena_destroy(arena);
    }
    print_message("better than all others in %u of %u scenes\n", better, better + equal);
    assert_true(better > RAND_ROUNDS(15));
    weft_diag_destroy(diag);
    free(sc);
}

/* With the goal goodput no plan is refused. What is carried is legal, at most the demand, and all
 * of the demand if all can be carried. */
static void test_policy__goodput_carries_what_it_can(void **state)
{
    static const char *const policies[] = {"exclusive", "bestfit"};
    scene *sc = malloc(sizeof *sc);
    weft_diag *diag = weft_diag_create();
    uint32_t partial = 0;
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(250); round++) {
        uint64_t seed = round * 32452843;
        weft_arena *arena = weft_arena_create(0);
        double carried[2];
        make_scene(sc, &seed);
        for (size_t i = 0; i < 2; i++) {
            weft_plan plan, all;
            double asked = 0;
            for (size_t m = 0; m < sc->demands.n; m++)
                asked += sc->demand[m].rate_per_s;
            sc->problem.goal = WEFT_GOAL_GOODPUT;
            weft_diag_clear(diag);
            if (weft_plan_make(weft_policy_find(policies[i]), NULL, &sc->problem, arena, diag,
                               &plan) != WEFT_ERR_OK)
                fail_with(diag, policies[i], round);
            assert_true(plan.goodput_per_s <= asked * (1 + 1e-6));
            sc->problem.goal = WEFT_GOAL_COST;
            if (weft_plan_make(weft_policy_find(policies[i]), NULL, &sc->problem, arena, NULL,
                               &all) == WEFT_ERR_OK)
                assert_true(plan.goodput_per_s >= asked * (1 - 1e-6));
            partial += plan.goodput_per_s < asked * (1 - 1e-6);
            carried[i] = plan.goodput_per_s;
        }
        assert_true(carried[1] >= carried[0] * (1 - 1e-6));
        weft_arena_destroy(arena);
    }
    assert_true(partial > RAND_ROUNDS(40));
    weft_diag_destroy(diag);
    free(sc);
}

static void test_policy__table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; weft_policy_at(i); i++) {
        const weft_policy *p = weft_policy_at(i);
        assert_ptr_equal(weft_policy_find(p->name), p);
        assert_true(p->brief && p->cite && p->place);
        if (p->alias)
            assert_ptr_equal(weft_policy_find(p->alias), p);
    }
    assert_string_equal(weft_policy_find("fifo")->name, "exclusive");
    assert_null(weft_policy_find("nothing"));
}

/* -- Measured scenarios ----------------------------------------------------------------------- */

static const char *const parvagpu_model[] = {
    "bert",      "densenet121", "densenet169", "densenet201", "inceptionv3", "mobilenetv2",
    "resnet101", "resnet152",   "resnet50",    "vgg16",       "vgg19"};

enum { PARVAGPU_MODELS = 11, PARVAGPU_ROWS = 6 };

/* Reads rows of numbers and N/A (0). */
static void read_table(const char *folder, const char *name,
                       double out[PARVAGPU_ROWS][PARVAGPU_MODELS])
{
    char path[600], line[1024];
    snprintf(path, sizeof path, "%s/SLO/%s", folder, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (size_t r = 0; r < PARVAGPU_ROWS; r++) {
        assert_non_null(fgets(line, sizeof line, f));
        char *at = line;
        for (size_t c = 0; c < PARVAGPU_MODELS; c++) {
            char *field = strsep(&at, ",\r\n");
            assert_non_null(field);
            out[r][c] = strcmp(field, "N/A") == 0 ? 0 : strtod(field, NULL);
        }
    }
    fclose(f);
}

/* The six scenarios published with ParvaGPU, on A100 80 GB. Best fit needs at least the optimum (2
 * 3 5 7 12 15) and at most as many devices as exclusive placement. */
static void test_policy__parvagpu_scenarios(void **state)
{
    static const double optimum[PARVAGPU_ROWS] = {2, 3, 5, 7, 12, 15};
    char folder[400];
    double rate[PARVAGPU_ROWS][PARVAGPU_MODELS], slo[PARVAGPU_ROWS][PARVAGPU_MODELS];
    weft_profile profile[PARVAGPU_MODELS];
    (void)state;
    if (!weft_data_path("parvagpu", folder, sizeof folder)) {
        print_message("no parvagpu/ in the data folder (WEFT_DATA)\n");
        skip();
    }
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    read_table(folder, "SLO_req_rate.csv", rate);
    read_table(folder, "SLO_latency.csv", slo);
    for (size_t m = 0; m < PARVAGPU_MODELS; m++) {
        char path[600];
        snprintf(path, sizeof path, "%s/profiles/%s.csv", folder, parvagpu_model[m]);
        if (weft_profile_load(path, "parvagpu", parvagpu_model[m], arena, diag, &profile[m]))
            fail_with(diag, "profile", m);
    }
    weft_fleet_device a100 = {.type = "a100-80", .count = 200, .mig = true};
    weft_fleet fleet = {.file = "fleet", .device = &a100, .n_device = 1};
    for (size_t r = 0; r < PARVAGPU_ROWS; r++) {
        weft_demand demand[PARVAGPU_MODELS];
        weft_demands demands = {demand, 0};
        weft_problem problem = {.demands = &demands, .fleet = &fleet};
        uint32_t gpus[2];
        for (size_t m = 0; m < PARVAGPU_MODELS; m++)
            if (rate[r][m] > 0)
                demand[demands.n++] = (weft_demand){.model = parvagpu_model[m],
                                                    .slo_us = slo[r][m] * 1000,
                                                    .rate_per_s = rate[r][m],
                                                    .profile = profile[m]};
        for (size_t i = 0; i < 2; i++) {
            weft_plan plan;
            const weft_policy *policy = weft_policy_find(i ? "bestfit" : "exclusive");
            if (weft_plan_make(policy, NULL, &problem, arena, diag, &plan))
                fail_with(diag, policy->name, r);
            gpus[i] = plan.gpus;
            print_message("S%zu %-8s %2u devices, bound %.0f\n", r + 1, policy->name, plan.gpus,
                          plan.lower_bound);
            assert_true(plan.lower_bound <= optimum[r]);
        }
        assert_true(gpus[1] <= gpus[0] && gpus[1] >= optimum[r]);
    }
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy__every_plan_passes_the_checker),
        cmocka_unit_test(test_policy__order_of_input_does_not_matter),
        cmocka_unit_test(test_policy__more_models_than_slices),
        cmocka_unit_test(test_policy__slices_of_a_cpu),
        cmocka_unit_test(test_policy__infeasible_names_model_and_remedy),
        cmocka_unit_test(test_policy__bestfit_is_never_dearer_than_exclusive),
        cmocka_unit_test(test_policy__weft_is_never_worse_than_another),
        cmocka_unit_test(test_policy__goodput_carries_what_it_can),
        cmocka_unit_test(test_policy__table_is_sound),
        cmocka_unit_test(test_policy__parvagpu_scenarios),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
