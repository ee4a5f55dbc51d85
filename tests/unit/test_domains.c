/* Plans for failures: random problems, every policy; what is left without each node, rack or zone
 * is counted here from the names in the plan. Policies that cannot refuse by name, and the checker
 * finds what is wrong with a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <cmocka.h>

#include "tests/support/make_plan.h"
#include "tests/support/fixture.h"
#include "tests/support/rand.h"
#include "tests/support/scene.h"

enum { MODELS = 7 };

static void make_scene(scene *sc, uint64_t *seed)
{
    static const char *const slices[] = {"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"};
    static const double part[] = {1.0 / 7, 2.0 / 7, 3.0 / 7, 1};
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, NULL, 60000 + 200000 * rand_unit(seed), rand_size(seed, 5, 2500));
        double work_us = 2000 + 7000 * rand_unit(seed);
        for (int s = 0; s < 4; s++)
            for (uint32_t b = 1; b <= 8; b *= 4)
                scene_add_point(sc, m, "h100", slices[s], b, work_us * b / pow(part[s], 0.8) / 4,
                                1e9);
    }
    scene_add_device(
        sc,
        (weft_fleet_device){.type = "h100", .count = 64, .mig = true, .per_domain = {0, 4, 8, 16}});
}

static const char *name_at(const weft_placement *p, weft_domain level)
{
    return level == WEFT_DOMAIN_NODE   ? p->where.node
           : level == WEFT_DOMAIN_RACK ? p->where.rack
                                       : p->where.zone;
}

/* The least capacity of a model without any one domain. */
static double least_left(const weft_plan *plan, const char *model, weft_domain level)
{
    double least = HUGE_VAL;
    for (size_t i = 0; i < plan->n; i++) {
        double left = 0;
        for (size_t k = 0; k < plan->n; k++)
            if (strcmp(plan->at[k].model, model) == 0 &&
                strcmp(name_at(&plan->at[k], level), name_at(&plan->at[i], level)) != 0)
                left += plan->at[k].capacity_per_s;
        least = fmin(least, left);
    }
    return least;
}

static void test_domains__every_rate_survives_any_loss(void **state)
{
    static const char *const policies[] = {"bestfit", "parva", "weft"};
    scene *sc = malloc(sizeof *sc);
    double ratio[WEFT_DOMAINS] = {0};
    (void)state;
    for (int round = 0; round < RAND_ROUNDS(24); round++)
        for (int level = WEFT_DOMAIN_NODE; level < WEFT_DOMAINS; level++) {
            weft_plan plan, without;
            uint64_t seed = (uint64_t)(91 + round);
            make_scene(sc, &seed);
            make_plan(policies[round % 3], NULL, &sc->problem, arena, &without);
            sc->problem.rules.survive = (weft_domain)level;
            make_plan(policies[round % 3], NULL, &sc->problem, arena, &plan);
            for (int m = 0; m < MODELS; m++)
                assert_true(least_left(&plan, sc->name[m], (weft_domain)level) >=
                            sc->demand[m].rate_per_s * (1 - 1e-6));
            ratio[level] += (double)plan.gpus / without.gpus / RAND_ROUNDS(24);
        }
    print_message("devices of plans that survive, over those that do not: node %.2f, rack %.2f, "
                  "zone %.2f\n",
                  ratio[WEFT_DOMAIN_NODE], ratio[WEFT_DOMAIN_RACK], ratio[WEFT_DOMAIN_ZONE]);
    free(sc);
}

static void test_domains__models_are_spread(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    uint64_t seed = 4;
    (void)state;
    make_scene(sc, &seed);
    sc->demand[2].spread = WEFT_DOMAIN_ZONE;
    sc->demand[5].spread = WEFT_DOMAIN_NODE;
    make_plan("weft", NULL, &sc->problem, arena, &plan);
    assert_true(least_left(&plan, sc->name[2], WEFT_DOMAIN_ZONE) > 0);
    assert_true(least_left(&plan, sc->name[5], WEFT_DOMAIN_NODE) > 0);
    /* A plan of the same problem without the wish breaks it. */
    sc->demand[2].spread = sc->demand[5].spread = WEFT_DOMAIN_NONE;
    make_plan("weft", NULL, &sc->problem, arena, &plan);
    sc->demand[2].spread = WEFT_DOMAIN_ZONE;
    assert_int_equal(weft_plan_check(&plan, &sc->problem, diag), WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "spread: "));
    free(sc);
}

static void test_domains__checker_finds_wrong_places(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    uint64_t seed = 5;
    (void)state;
    make_scene(sc, &seed);
    sc->problem.rules.survive = WEFT_DOMAIN_RACK;
    make_plan("bestfit", NULL, &sc->problem, arena, &plan);
    const weft_location right = plan.at[0].where;
    const weft_location wrong[] = {
        {.node = "h100-99", .gpu = 0, .rack = right.rack, .zone = right.zone},
        {.node = right.node, .gpu = 7, .rack = right.rack, .zone = right.zone},
        {.node = right.node, .gpu = right.gpu, .rack = "x", .zone = right.zone},
        plan.at[plan.n - 1].where};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weft_diag *own = weft_diag_create();
        plan.at[0].where = wrong[i];
        assert_int_equal(weft_plan_check(&plan, &sc->problem, own), WEFT_ERR_INPUT);
        assert_non_null(strstr(weft_diag_at(own, 0)->text, "place: "));
        weft_diag_destroy(own);
    }
    plan.at[0].where = right;
    plan.at[0].where.rack = NULL;
    assert_int_equal(weft_plan_check(&plan, &sc->problem, diag), WEFT_ERR_INPUT);
    free(sc);
}

/* One model takes more than the devices of one side, another one has to be in two nodes: the first
 * is on both, too. What does not fit in two parts of the nodes is refused without the claim that
 * there is no plan; what does not fit at all, with it, unless there are families. */
static void test_domains__large_models_beside_spread_ones(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    (void)state;
    scene_start(sc);
    scene_add_device(sc, (weft_fleet_device){.type = "a100-80",
                                             .count = 4,
                                             .price_per_hour = 1,
                                             .per_domain = {[WEFT_DOMAIN_NODE] = 1}});
    for (size_t m = 0; m < 2; m++) {
        scene_add_model(sc, NULL, 50000, m == 0 ? 250 : 10);
        scene_add_point(sc, m, "a100-80", "", 1, 10000, 1e9);
    }
    sc->demand[1].spread = WEFT_DOMAIN_NODE;
    make_plan("weft", NULL, &sc->problem, arena, &plan);
    assert_int_equal(plan.gpus, 4);
    assert_true(least_left(&plan, sc->name[1], WEFT_DOMAIN_NODE) > 0);
    const weft_family family = {.name = "f"};
    for (size_t i = 0; i < 3; i++) {
        weft_diag *own = weft_diag_create();
        if (i == 0)
            sc->problem.rules.survive = WEFT_DOMAIN_NODE;
        else if (i == 1)
            sc->demand[0].rate_per_s = 900;
        else /* joint programs take less, and are not tried */
            sc->problem.family = &family, sc->problem.n_family = 1;
        assert_int_equal(
            weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, own, &plan),
            WEFT_ERR_INFEASIBLE);
        bool open = false;
        for (size_t k = 0; k < weft_diag_count(own); k++)
            open = open || strstr(weft_diag_at(own, k)->text, "does not show");
        assert_int_equal(open, i != 1);
        weft_diag_destroy(own);
    }
    free(sc);
}

static void test_domains__who_cannot_says_so(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_plan plan;
    uint64_t seed = 6;
    (void)state;
    make_scene(sc, &seed);
    sc->problem.rules.survive = WEFT_DOMAIN_NODE;
    for (size_t i = 0; weft_policy_at(i); i++) {
        weft_diag *own = weft_diag_create();
        const weft_policy *policy = weft_policy_at(i);
        weft_err err = weft_plan_make(policy, NULL, &sc->problem, arena, own, &plan);
        assert_true(err == WEFT_ERR_OK || err == WEFT_ERR_UNSUP || err == WEFT_ERR_INFEASIBLE);
        if (err == WEFT_ERR_UNSUP)
            assert_string_equal(weft_diag_at(own, 0)->item, policy->name);
        assert_int_equal(err == WEFT_ERR_UNSUP, policy->state_size > 0);
        weft_diag_destroy(own);
    }
    sc->problem.goal = WEFT_GOAL_GOODPUT;
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, diag, &plan),
        WEFT_ERR_UNSUP);
    sc->problem.goal = WEFT_GOAL_COST;
    sc->device[0].per_domain[WEFT_DOMAIN_NODE] = 0;
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, diag, &plan),
        WEFT_ERR_INPUT);
    sc->device[0].per_domain[WEFT_DOMAIN_NODE] = 64;
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, arena, diag, &plan),
        WEFT_ERR_INFEASIBLE);
    free(sc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_domains__every_rate_survives_any_loss, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_domains__models_are_spread, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_domains__checker_finds_wrong_places, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_domains__large_models_beside_spread_ones, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_domains__who_cannot_says_so, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
