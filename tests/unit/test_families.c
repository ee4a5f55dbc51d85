/* Families: names, grouped problems, and plans that place several models as one joint program,
 * with every policy. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "scheduler/input/input.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/make_plan.h"
#include "tests/support/scene.h"

enum { MODELS = 6, FAMILIES = 5, PAIRS = MODELS * (MODELS - 1) / 2 };

/* Models m0 to m5 on one type of GPU, and families of them. */
typedef struct world {
    scene scene;
    weft_arena *arena;
    weft_family family[PAIRS];
} world;

static const char *const slices[] = {"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb", ""};

static void open_world(world *w, size_t n_model, double rate, uint32_t gpus)
{
    memset(w, 0, sizeof *w);
    scene_start(&w->scene);
    w->arena = weft_arena_create(0);
    for (size_t m = 0; m < n_model; m++) {
        scene_add_model(&w->scene, NULL, 20000, rate);
        for (size_t s = 0; s < sizeof slices / sizeof slices[0]; s++)
            for (uint32_t batch = 1; batch <= 8; batch *= 2)
                scene_add_point(&w->scene, m, "h100", slices[s], batch,
                                2000 * (1 + 0.2 * batch) / (double)(s + 1), 6ull << 30);
    }
    scene_add_device(
        &w->scene,
        (weft_fleet_device){
            .type = "h100", .count = gpus, .mig = true, .mps = true, .price_per_hour = 2});
}

static void close_world(world *w)
{
    weft_arena_destroy(w->arena);
}

/* Adds the family of n models, every `step`th from the first on: n times each batch of one model in
 * `factor` of the time that they take one after the other. */
static void add_spaced(world *w, size_t first, size_t step, size_t n, double factor)
{
    const weft_demands *d = w->scene.problem.demands;
    const char **model = weft_arena_array(w->arena, n, sizeof *model);
    const weft_profile *from = &d->at[first].profile;
    weft_profile_point *point = weft_arena_array(w->arena, from->n, sizeof *point);
    for (size_t i = 0; i < n; i++)
        model[i] = d->at[first + i * step].model;
    for (size_t i = 0; i < from->n; i++) {
        point[i] = from->point[i];
        point[i].batch *= (uint32_t)n;
        point[i].cost.time_us *= (double)n * factor;
    }
    size_t at = w->scene.problem.n_family++;
    w->family[at] = (weft_family){.name = weft_family_name(model, n, w->arena),
                                  .model = model,
                                  .n = n,
                                  .profile = {.point = point, .n = from->n}};
    w->scene.problem.family = w->family;
}

static void add_family(world *w, size_t first, size_t n, double factor)
{
    add_spaced(w, first, 1, n, factor);
}

static bool places(const weft_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n; i++)
        if (strcmp(plan->at[i].model, name) == 0)
            return true;
    return false;
}

/* -- Names ------------------------------------------------------------------------------------ */

static void test_family__names(void **state)
{
    static const char *const three[] = {"a", "bc", "d.1"};
    weft_arena *arena = weft_arena_create(0);
    const char *const *model;
    (void)state;
    const char *name = weft_family_name(three, 3, arena);
    assert_string_equal(name, "a+bc+d.1");
    assert_int_equal(weft_family_models(name, arena, &model), 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(model[i], three[i]);
    assert_int_equal(weft_family_models("bc", arena, &model), 1);
    assert_string_equal(model[0], "bc");
    assert_true(weft_family_is_name(name) && !weft_family_is_name("bc"));
    assert_true(weft_family_has(name, "a") && weft_family_has(name, "bc"));
    assert_true(weft_family_has(name, "d.1") && weft_family_has("bc", "bc"));
    assert_false(weft_family_has(name, "b") || weft_family_has(name, "c"));
    assert_false(weft_family_has(name, "d") || weft_family_has(name, "a+bc+d.1x"));
    assert_true(weft_family_name_valid(name) && weft_family_name_valid("bc"));
    static const char *const wrong[] = {"", "+", "a+", "+a", "a++b", "a+.b", "a+b c"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(weft_family_name_valid(wrong[i]));
    assert_false(weft_set_name_valid(name));
    weft_arena_destroy(arena);
}

/* -- Grouped problems ------------------------------------------------------------------------- */

static void test_family__a_grouped_demand(void **state)
{
    world w;
    weft_problem grouped;
    (void)state;
    open_world(&w, 4, 100, 2);
    add_family(&w, 1, 2, 0.5);
    weft_demand *d = w.scene.demand;
    d[1].slo_us = 0;
    d[2].slo_us = 7000;
    d[2].rate_per_s = 30;
    d[1].profile.host_us = 400;
    d[2].profile.host_us = 300;
    const weft_family *chosen = &w.family[0];
    weft_families__group(&w.scene.problem, &chosen, 1, w.arena, &grouped);
    assert_int_equal(grouped.demands->n, 3);
    assert_int_equal(grouped.n_family, 0);
    const weft_demand *one = &grouped.demands->at[1];
    assert_string_equal(one->model, w.family[0].name);
    assert_float_equal(one->rate_per_s, 130, 1e-9);
    assert_float_equal(one->slo_us, 7000, 1e-9); /* the tightest; a model without one has none */
    assert_ptr_equal(one->profile.point, w.family[0].profile.point);
    assert_float_equal(one->profile.host_us, 400, 1e-9);
    assert_string_equal(grouped.demands->at[2].model, d[3].model);
    close_world(&w);
}

/* -- Plans ------------------------------------------------------------------------------------ */

/* A family is placed as one where that needs fewer devices, and not where it needs more. */
static void test_family__is_used_where_it_pays(void **state)
{
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        world w;
        weft_plan plan, alone;
        open_world(&w, 3, 4000, 12);
        make_plan("weft", NULL, &w.scene.problem, w.arena, &alone);
        add_family(&w, 0, 3, pays ? 0.4 : 1.5);
        make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
        assert_int_equal(places(&plan, w.family[0].name), pays);
        assert_true(pays ? plan.cost_per_hour < alone.cost_per_hour
                         : plan.cost_per_hour <= alone.cost_per_hour);
        close_world(&w);
    }
}

/* Models whose copies do not fit the memory of the fleet may fit as one. */
static void test_family__fits_where_copies_do_not(void **state)
{
    world w;
    weft_plan plan;
    (void)state;
    open_world(&w, 4, 10, 1);
    scene *sc = &w.scene;
    for (size_t m = 0; m < 4; m++)
        for (size_t i = 0; i < sc->demand[m].profile.n; i++)
            sc->point[m][i].cost.mreq_bytes = 35ull << 30;
    assert_int_equal(
        weft_plan_make(weft_policy_find("weft"), NULL, &sc->problem, w.arena, NULL, &plan),
        WEFT_ERR_INFEASIBLE);
    add_family(&w, 0, 4, 0.5);
    make_plan("weft", NULL, &sc->problem, w.arena, &plan);
    assert_true(places(&plan, w.family[0].name));
    close_world(&w);
}

/* Two families that fit only if both are placed as one. */
static void test_family__two_are_needed(void **state)
{
    (void)state;
    world w;
    weft_plan plan;
    open_world(&w, 4, 10, 1);
    scene *sc = &w.scene;
    for (size_t m = 0; m < 4; m++)
        for (size_t i = 0; i < sc->demand[m].profile.n; i++)
            sc->point[m][i].cost.mreq_bytes = 35ull << 30;
    add_family(&w, 0, 2, 0.5);
    add_family(&w, 2, 2, 0.5);
    make_plan("weft", NULL, &sc->problem, w.arena, &plan);
    assert_true(places(&plan, w.family[0].name) && places(&plan, w.family[1].name));
    close_world(&w);
}

/* The cost of the best plan over all sets of families without common models; HUGE_VAL: none. */
static double find_cheapest(const world *w, const weft_policy *policy)
{
    const weft_problem *p = &w->scene.problem;
    double best = HUGE_VAL;
    for (uint32_t set = 0; set < 1u << p->n_family; set++) {
        const weft_family *chosen[PAIRS];
        size_t n = 0;
        bool legal = true;
        for (size_t i = 0; i < p->n_family; i++) {
            for (size_t k = 0; k < n && set >> i & 1; k++)
                legal = legal && !weft_families__overlap(chosen[k], &p->family[i]);
            if (set >> i & 1)
                chosen[n++] = &p->family[i];
        }
        if (!legal)
            continue;
        weft_problem grouped;
        weft_plan plan;
        weft_families__group(p, chosen, n, w->arena, &grouped);
        if (weft_plan_decide(policy, NULL, &grouped, w->arena, NULL, &plan) == WEFT_ERR_OK &&
            plan.cost_per_hour < best)
            best = plan.cost_per_hour;
    }
    return best;
}

/* Of overlapping families the plan uses at most one for each model. The plan of each policy passes
 * the checker, and is no worse than without families. Bounds hold for all sets of families. */
static void test_family__random_problems(void **state)
{
    uint64_t seed = 7;
    uint32_t used = 0, better = 0, bounded = 0;
    const weft_policy *policy;
    (void)state;
    for (int round = 0; round < 12; round++) {
        world w;
        open_world(&w, MODELS, 200 + (double)(rand_next(&seed) % 3000), 40);
        for (size_t f = 0; f < FAMILIES; f++) {
            size_t first = rand_next(&seed) % (MODELS - 1);
            size_t n = 2 + rand_next(&seed) % (MODELS - first - 1);
            add_family(&w, first, n, 0.3 + (double)(rand_next(&seed) % 100) / 100);
        }
        weft_problem apart = w.scene.problem;
        apart.n_family = 0;
        for (size_t i = 0; (policy = weft_policy_at(i)); i++) {
            weft_plan with, without;
            weft_err a = weft_plan_make(policy, NULL, &w.scene.problem, w.arena, NULL, &with);
            weft_err b = weft_plan_make(policy, NULL, &apart, w.arena, NULL, &without);
            assert_true(a == WEFT_ERR_OK || a == WEFT_ERR_INFEASIBLE);
            assert_true(a == WEFT_ERR_OK || b != WEFT_ERR_OK);
            if (strcmp(policy->name, "weft") == 0) {
                double best = find_cheapest(&w, policy);
                assert_true(a == WEFT_ERR_OK ? with.cost_per_hour <= best * (1 + 1e-9)
                                             : best == HUGE_VAL);
                bounded += a == WEFT_ERR_OK && with.cost_bound > 0.99 * with.cost_per_hour;
                assert_true(a != WEFT_ERR_OK || with.cost_bound <= best * (1 + 1e-9));
            }
            if (a != WEFT_ERR_OK || b != WEFT_ERR_OK)
                continue;
            assert_true(with.cost_per_hour <= without.cost_per_hour * (1 + 1e-9));
            better += with.cost_per_hour < without.cost_per_hour * (1 - 1e-9);
            for (size_t f = 0; f < FAMILIES; f++)
                used += places(&with, w.family[f].name);
        }
        close_world(&w);
    }
    assert_true(used > 50 && better > 10 && bounded > 6);
}

/* More sets of families than are tried: mostly the best is found all the same. */
static void test_family__many_pairs(void **state)
{
    const weft_policy *policy = weft_policy_find("weft");
    uint64_t seed = 11;
    uint32_t best = 0;
    enum { ROUNDS = 8 };
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        world w;
        weft_plan plan;
        open_world(&w, MODELS, 200 + (double)(rand_next(&seed) % 3000), 40);
        for (size_t step = 1; step < MODELS; step++)
            for (size_t first = 0; first + step < MODELS; first++)
                add_spaced(&w, first, step, 2, 0.3 + (double)(rand_next(&seed) % 100) / 100);
        make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
        double least = find_cheapest(&w, policy);
        assert_true(plan.cost_per_hour >= least * (1 - 1e-9));
        assert_true(plan.cost_per_hour <= least * 1.2);
        assert_true(!plan.proven && plan.cost_bound <= least * (1 + 1e-9));
        best += plan.cost_per_hour <= least * (1 + 1e-9);
        close_world(&w);
    }
    assert_true(best >= ROUNDS * 3 / 4);
}

/* A plan that places a family which the problem does not have is refused. */
static void test_family__unknown_ones_are_refused(void **state)
{
    world w;
    weft_plan plan;
    weft_diag *diag = weft_diag_create();
    (void)state;
    open_world(&w, 3, 4000, 12);
    add_family(&w, 0, 3, 0.4);
    make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
    assert_true(places(&plan, w.family[0].name));
    w.scene.problem.n_family = 0;
    assert_int_equal(weft_plan_check(&plan, &w.scene.problem, diag), WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
    close_world(&w);
}

/* Variants of an app stay single: the app chooses among them. */
static void test_family__variants_stay_apart(void **state)
{
    world w;
    weft_plan plan;
    (void)state;
    open_world(&w, 3, 4000, 12);
    add_family(&w, 0, 3, 0.4);
    const weft_set_variant variant[] = {{w.scene.problem.demands->at[0].model, 0.9},
                                        {w.scene.problem.demands->at[1].model, 0.8}};
    const weft_set_app app = {.name = "app", .variant = variant, .n_variant = 2};
    w.scene.problem.app = &app;
    w.scene.problem.n_app = 1;
    make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
    assert_false(places(&plan, w.family[0].name));
    close_world(&w);
}

/* -- Files and reports ------------------------------------------------------------------------ */

static void test_family__plan_files(void **state)
{
    world w;
    weft_plan plan, back;
    char *text = NULL;
    (void)state;
    open_world(&w, 3, 4000, 12);
    add_family(&w, 0, 3, 0.4);
    make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
    assert_int_equal(weft_plan_to_json(&plan, w.scene.problem.demands, &text), WEFT_ERR_OK);
    assert_int_equal(weft_plan_from_json(text, strlen(text), "p", w.arena, NULL, &back),
                     WEFT_ERR_OK);
    assert_int_equal(back.n, plan.n);
    assert_int_equal(weft_plan_check(&back, &w.scene.problem, NULL), WEFT_ERR_OK);
    free(text);
    close_world(&w);
}

/* The explanation of one of the models is that of the family, and says what both ways need. */
static void test_family__is_explained(void **state)
{
    const weft_policy *policy = weft_policy_find("weft");
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        world w;
        weft_plan plan;
        weft_explanation e;
        open_world(&w, 3, 4000, 12);
        add_family(&w, 0, 3, pays ? 0.4 : 1.5);
        make_plan("weft", NULL, &w.scene.problem, w.arena, &plan);
        const char *model = w.family[0].model[1];
        assert_int_equal(
            weft_plan_explain(&plan, &w.scene.problem, policy, model, w.arena, NULL, &e),
            WEFT_ERR_OK);
        assert_string_equal(e.model, pays ? w.family[0].name : model);
        assert_int_equal(e.n_family, 1);
        assert_int_equal(e.family[0].used, pays);
        assert_true(e.family[0].feasible);
        assert_true(e.family[0].cost_per_hour >= plan.cost_per_hour);
        assert_true(e.family[0].busy > e.family[0].busy_now);
        close_world(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_family__names),
        cmocka_unit_test(test_family__a_grouped_demand),
        cmocka_unit_test(test_family__is_used_where_it_pays),
        cmocka_unit_test(test_family__fits_where_copies_do_not),
        cmocka_unit_test(test_family__two_are_needed),
        cmocka_unit_test(test_family__random_problems),
        cmocka_unit_test(test_family__many_pairs),
        cmocka_unit_test(test_family__unknown_ones_are_refused),
        cmocka_unit_test(test_family__variants_stay_apart),
        cmocka_unit_test(test_family__plan_files),
        cmocka_unit_test(test_family__is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
