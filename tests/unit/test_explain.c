/* Reports on plans: derived fields against policies and the checker, metrics against numbers
 * computed by hand, plan diffs, explanations against a search of all points, pictures.
 * Work is measured in calls of the policy, not in time. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
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

enum { MODELS = 8 };

static void make_scene(scene *sc, uint64_t seed)
{
    static const char *const slices[] = {"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb",
                                         "30%",     "60%",     ""};
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        double work = (double)(200 + rand_next(&seed) % 3000);
        double slo_us = (double)(20000 + rand_next(&seed) % 60000);
        scene_add_model(sc, NULL, slo_us, (double)(100 + rand_next(&seed) % 12000));
        for (size_t s = 0; s < sizeof slices / sizeof slices[0]; s++)
            for (uint32_t batch = 1; batch <= 16; batch *= 4)
                scene_add_point(sc, m, "h100", slices[s], batch,
                                work * (1 + 0.3 * batch) / (double)(s + 1), 1 << 28)
                    ->cost.energy_j = 0.1 * batch;
    }
    scene_add_device(
        sc, (weft_fleet_device){
                .type = "h100", .count = 12, .mig = true, .mps = true, .price_per_hour = 2});
}

static weft_err plan_for(const scene *sc, const char *policy, weft_arena *arena, weft_plan *out)
{
    return weft_plan_make(weft_policy_find(policy), NULL, &sc->problem, arena, NULL, out);
}

/* -- Completion and measures ------------------------------------------------------------------ */

/* The fields that a policy sets equal those derived from its choices. */
static void test_explain__completion_agrees_with_policies(void **state)
{
    static const char *const policies[] = {"bestfit", "exclusive"};
    scene *sc = malloc(sizeof *sc);
    uint32_t seen = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        weft_arena *arena = weft_arena_create(0);
        make_scene(sc, seed);
        for (size_t i = 0; i < 2; i++) {
            weft_plan plan, bare;
            char *a, *b;
            if (plan_for(sc, policies[i], arena, &plan) != WEFT_ERR_OK)
                continue;
            bare = plan;
            bare.at = weft_arena_array(arena, plan.n, sizeof *bare.at);
            for (size_t k = 0; k < plan.n; k++) {
                const weft_placement *p = &plan.at[k];
                bare.at[k] = (weft_placement){.model = p->model,
                                              .device = p->device,
                                              .type = p->type,
                                              .slice = p->slice,
                                              .slice_id = p->slice_id,
                                              .mig_start = p->mig_start,
                                              .batch = p->batch,
                                              .procs = p->procs,
                                              .rate_per_s = p->rate_per_s};
            }
            weft_plan_derive(&bare, &sc->problem, arena);
            /* The sums are computed in another order. */
            assert_true(fabs(bare.power_w - plan.power_w) <= 1e-9 * plan.power_w);
            bare.power_w = plan.power_w;
            assert_int_equal(weft_plan_to_json(&plan, &sc->demands, &a), WEFT_ERR_OK);
            assert_int_equal(weft_plan_to_json(&bare, &sc->demands, &b), WEFT_ERR_OK);
            assert_string_equal(a, b);
            assert_int_equal(weft_plan_check(&bare, &sc->problem, NULL), WEFT_ERR_OK);
            free(a);
            free(b);
            seen++;
        }
        weft_arena_destroy(arena);
    }
    assert_true(seen > 50);
    free(sc);
}

/* A 3g (3/7 of the device) is half busy, a 2g (2/7) fully: slack 1 - (1.5 + 2)/5, 2/7 unused. */
static void test_explain__measures_are_worked_out(void **state)
{
    weft_profile_point points[] = {
        {.device = "h100",
         .slice = "3g.40gb",
         .batch = 1,
         .procs = 1,
         .cost = {.time_us = 1000, .energy_j = 0.5, .source = "measured"}},
        {.device = "h100",
         .slice = "2g.20gb",
         .batch = 1,
         .procs = 1,
         .cost = {.time_us = 2000, .energy_j = 0.5, .source = "measured"}},
    };
    weft_demand demand[] = {
        {.model = "a", .rate_per_s = 500, .profile = {.point = points, .n = 2}},
        {.model = "b", .rate_per_s = 500, .profile = {.point = points, .n = 2}}};
    weft_placement at[] = {{.model = "a",
                            .type = "h100",
                            .slice = "3g.40gb",
                            .mig_start = 4,
                            .batch = 1,
                            .procs = 1,
                            .rate_per_s = 500},
                           {.model = "b",
                            .type = "h100",
                            .slice = "2g.20gb",
                            .slice_id = 1,
                            .batch = 1,
                            .procs = 1,
                            .rate_per_s = 500}};
    weft_demands demands = {demand, 2};
    weft_fleet_device row = {.type = "h100", .count = 1, .mig = true, .price_per_hour = 7};
    weft_fleet fleet = {.file = "f", .device = &row, .n_device = 1};
    weft_problem problem = {.demands = &demands, .fleet = &fleet, .carbon_g_per_kwh = 200};
    weft_plan plan = {.policy = "hand", .at = at, .n = 2};
    weft_arena *arena = weft_arena_create(0);
    weft_plan_metrics m;
    (void)state;
    weft_plan_derive(&plan, &problem, arena);
    weft_plan_measure(&plan, &problem, arena, &m);
    assert_int_equal(weft_plan_check(&plan, &problem, NULL), WEFT_ERR_OK);
    assert_true(fabs(m.internal_slack - 0.3) < 1e-9);
    assert_true(fabs(m.external_fragmentation - 2.0 / 7) < 1e-9);
    assert_true(m.gap == 0 && plan.proven);
    /* 1000/s * 0.5 J = 500 W; 0.5 kW * 200 g/kWh = 100 g/h. */
    assert_true(fabs(plan.power_w - 500) < 1e-9 && fabs(m.carbon_g_per_h - 100) < 1e-9);
    /* Best: 3/7 of a device for 1000/s; a device costs $7. */
    assert_true(fabs(m.cost_bound - 7) < 1e-9);
    /* Time sharing on the 3g: each model takes 500 * 1 ms per second, so it is never idle. */
    at[1] = (weft_placement){.model = "b",
                             .type = "h100",
                             .slice = "3g.40gb",
                             .mig_start = 4,
                             .batch = 1,
                             .procs = 1,
                             .rate_per_s = 500};
    weft_plan_derive(&plan, &problem, arena);
    weft_plan_measure(&plan, &problem, arena, &m);
    assert_true(fabs(m.internal_slack) < 1e-9);
    weft_arena_destroy(arena);
}

/* -- Plan diff -------------------------------------------------------------------------------- */

static size_t count_moves(const weft_plan *before, const weft_plan *after, weft_arena *arena)
{
    const weft_plan_move *move;
    size_t n;
    weft_plan_diff(before, after, arena, &move, &n);
    for (size_t i = 0; i < n; i++) {
        assert_true(move[i].from || move[i].to);
        assert_true(!move[i].from || strcmp(move[i].from->model, move[i].model) == 0);
        assert_true(!move[i].to || strcmp(move[i].to->model, move[i].model) == 0);
        assert_true(i == 0 || strcmp(move[i - 1].model, move[i].model) <= 0);
    }
    return n;
}

static void test_explain__numbers_of_devices_are_no_moves(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        weft_arena *arena = weft_arena_create(0);
        weft_plan plan, other;
        make_scene(sc, seed);
        if (plan_for(sc, "bestfit", arena, &plan) == WEFT_ERR_OK) {
            assert_int_equal(count_moves(&plan, &plan, arena), 0);
            /* The same plan with devices in reverse order and other rates has an empty diff. */
            other = plan;
            other.at = weft_arena_array(arena, plan.n, sizeof *other.at);
            for (size_t i = 0; i < plan.n; i++) {
                other.at[i] = plan.at[plan.n - 1 - i];
                other.at[i].device = plan.gpus - 1 - other.at[i].device;
                other.at[i].rate_per_s /= 2;
            }
            assert_int_equal(count_moves(&plan, &other, arena), 0);
            /* A placement with another batch is one change, whatever the device numbers. */
            other.at[0].batch++;
            assert_int_equal(count_moves(&plan, &other, arena), 1);
            assert_int_equal(count_moves(&other, &plan, arena), 1);
            /* All placements end, or all start. */
            weft_plan none = {.policy = "none"};
            assert_int_equal(count_moves(&plan, &none, arena), plan.n);
            assert_int_equal(count_moves(&none, &plan, arena), plan.n);
        }
        weft_arena_destroy(arena);
    }
    free(sc);
}

/* -- Explanations ----------------------------------------------------------------------------- */

static const weft_policy *counted;
static uint32_t calls;

static weft_err place_counted(void *state, const weft_problem *problem, weft_arena *arena,
                              weft_diag *diag, weft_plan *out)
{
    calls++;
    return counted->place(state, problem, arena, diag, out);
}

/* Every slice of the profile is listed once, legal ones in order; every stated saving holds; the
 * policy runs at most 24 times. */
static void test_explain__tells_every_slice_and_true_changes(void **state)
{
    scene *sc = malloc(sizeof *sc);
    uint32_t changes = 0;
    (void)state;
    counted = weft_policy_find("bestfit");
    weft_policy policy = *counted;
    policy.place = place_counted;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        weft_arena *arena = weft_arena_create(0);
        weft_plan plan, again;
        weft_explanation e;
        make_scene(sc, seed);
        size_t m = seed % MODELS;
        if (plan_for(sc, "bestfit", arena, &plan) != WEFT_ERR_OK) {
            weft_arena_destroy(arena);
            continue;
        }
        calls = 0;
        assert_int_equal(
            weft_plan_explain(&plan, &sc->problem, &policy, sc->name[m], arena, NULL, &e),
            WEFT_ERR_OK);
        assert_true(calls <= 24);
        assert_int_equal(e.n_option, 7);
        bool chosen = false;
        for (size_t i = 0; i < e.n_option; i++) {
            assert_non_null(e.option[i].reason);
            chosen = chosen || e.option[i].verdict == WEFT_VERDICT_CHOSEN;
            if (i > 0 && e.option[i].verdict <= WEFT_VERDICT_NO_ROOM)
                assert_true(e.option[i - 1].per_device_per_s >= e.option[i].per_device_per_s);
            double least = INFINITY; /* of all batches: a slice is refused only if none is legal */
            for (size_t k = 0; k < sc->demand[m].profile.n; k++)
                if (strcmp(sc->point[m][k].slice, e.option[i].slice) == 0)
                    least = fmin(least, sc->point[m][k].cost.time_us);
            if (e.option[i].verdict == WEFT_VERDICT_SLO)
                assert_true(2 * least > sc->demand[m].slo_us);
            else
                assert_true(2 * least <= sc->demand[m].slo_us);
        }
        assert_true(chosen && e.n_place > 0);
        for (size_t i = 0; i < e.n_change; i++) {
            const weft_explain_change *c = &e.change[i];
            weft_demand saved = sc->demand[m];
            if (c->slice)
                continue;
            changes++;
            if (c->what == WEFT_CHANGE_SLO)
                sc->demand[m].slo_us = c->to;
            else
                sc->demand[m].rate_per_s = c->to;
            assert_int_equal(plan_for(sc, "bestfit", arena, &again), WEFT_ERR_OK);
            assert_int_equal(again.gpus, c->gpus);
            assert_true(again.cost_per_hour == c->cost_per_hour);
            assert_true(again.cost_per_hour < plan.cost_per_hour);
            sc->demand[m] = saved;
        }
        weft_arena_destroy(arena);
    }
    print_message("%u changes\n", changes);
    assert_true(changes > 10);
    free(sc);
}

/* Twice the speed for four times the price comes second, with that reason. */
static void test_explain__options_compare_by_price(void **state)
{
    weft_profile_point points[] = {
        {.device = "h100", .batch = 1, .procs = 1, .cost = {.time_us = 1000, .source = "measured"}},
        {.device = "t4", .batch = 1, .procs = 1, .cost = {.time_us = 2000, .source = "measured"}},
    };
    weft_demand demand = {.model = "a", .rate_per_s = 100, .profile = {.point = points, .n = 2}};
    weft_demands demands = {&demand, 1};
    weft_fleet_device rows[] = {{.type = "h100", .count = 1, .price_per_hour = 4},
                                {.type = "t4", .count = 1, .price_per_hour = 1}};
    weft_fleet fleet = {.file = "f", .device = rows, .n_device = 2};
    weft_problem problem = {.demands = &demands, .fleet = &fleet};
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    weft_explanation e;
    (void)state;
    assert_int_equal(
        weft_plan_make(weft_policy_find("bestfit"), NULL, &problem, arena, NULL, &plan),
        WEFT_ERR_OK);
    assert_int_equal(weft_plan_explain(&plan, &problem, NULL, "a", arena, NULL, &e), WEFT_ERR_OK);
    assert_int_equal(e.n_option, 2);
    assert_string_equal(e.option[0].type, "t4");
    assert_int_equal(e.option[0].verdict, WEFT_VERDICT_CHOSEN);
    assert_true(e.option[0].per_dollar == 500.0 * 3600);
    assert_non_null(strstr(e.option[1].reason, "50.0 % less for its price than t4 whole"));
    weft_arena_destroy(arena);
}

static void test_explain__unknown_models_are_refused(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    weft_explanation e;
    (void)state;
    make_scene(sc, 1);
    assert_int_equal(plan_for(sc, "bestfit", arena, &plan), WEFT_ERR_OK);
    assert_int_equal(weft_plan_explain(&plan, &sc->problem, NULL, "zz", arena, NULL, &e),
                     WEFT_ERR_INPUT);
    plan.n = 0;
    assert_int_equal(weft_plan_explain(&plan, &sc->problem, NULL, "m0", arena, NULL, &e),
                     WEFT_ERR_INPUT);
    weft_arena_destroy(arena);
    free(sc);
}

/* -- Pictures --------------------------------------------------------------------------------- */

static void test_explain__terminal_picture(void **state)
{
    weft_placement at[] = {
        {.model = "aa", .type = "h100", .slice = "3g.40gb", .mig_start = 4, .procs = 2},
        {.model = "bb",
         .type = "h100",
         .slice = "1g.10gb/50%",
         .mig_start = 0,
         .slice_id = 1,
         .procs = 1},
        {.model = "cc",
         .device = 1,
         .type = "h100",
         .slice = "50%",
         .mig_start = -1,
         .procs = 1,
         .share = 0.5},
        {.model = "dd",
         .device = 1,
         .type = "h100",
         .slice = "50%",
         .mig_start = -1,
         .procs = 1,
         .share = 0.5},
        {.model = "cc",
         .device = 2,
         .type = "h100",
         .slice = "50%",
         .mig_start = -1,
         .procs = 1,
         .share = 0.5},
        {.model = "dd",
         .device = 2,
         .type = "h100",
         .slice = "50%",
         .mig_start = -1,
         .procs = 1,
         .share = 0.5},
    };
    weft_plan plan = {.policy = "hand", .at = at, .n = 6, .gpus = 3};
    weft_draw_options options = {.width = 88};
    char *text;
    (void)state;
    assert_int_equal(weft_plan_draw_text(&plan, &options, &text), WEFT_ERR_OK);
    assert_string_equal(text, "h100 0                  "
                              "[bb]............................[aa x2                         ]\n"
                              "h100 1-2                "
                              "[cc+dd                         ]................................\n"
                              "3 devices, 4 models; . free\n");
    free(text);
    options.color = true;
    assert_int_equal(weft_plan_draw_text(&plan, &options, &text), WEFT_ERR_OK);
    assert_non_null(strstr(text, "\033[48;5;"));
    free(text);
}

static void test_explain__svg_escapes_texts(void **state)
{
    weft_placement at[] = {{.model = "a",
                            .type = "<\"&\001>",
                            .slice = "]]>",
                            .mig_start = -1,
                            .procs = 1,
                            .share = 1}};
    weft_plan plan = {.policy = "<script>", .at = at, .n = 1, .gpus = 1};
    char *svg;
    (void)state;
    assert_int_equal(weft_plan_draw_svg(&plan, &(weft_draw_options){0}, &svg), WEFT_ERR_OK);
    assert_null(strstr(svg, "<script>"));
    assert_non_null(strstr(svg, "&lt;script&gt;: 1 device, "));
    assert_non_null(strstr(svg, "&lt;&quot;&amp;?&gt; 0</text>"));
    assert_non_null(strstr(svg, "]]&gt;"));
    free(svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_explain__completion_agrees_with_policies),
        cmocka_unit_test(test_explain__measures_are_worked_out),
        cmocka_unit_test(test_explain__numbers_of_devices_are_no_moves),
        cmocka_unit_test(test_explain__tells_every_slice_and_true_changes),
        cmocka_unit_test(test_explain__options_compare_by_price),
        cmocka_unit_test(test_explain__unknown_models_are_refused),
        cmocka_unit_test(test_explain__terminal_picture),
        cmocka_unit_test(test_explain__svg_escapes_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
