/* The option table against a linear search of all rows, and the plan builder: explicit places, time
 * sharing, shares of instances, undo, and fleets of ten thousand devices. The checker accepts every
 * plan that is built. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "scheduler/builder/builder.h"
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

enum { MODELS = 6 };

/* A point that uses a fifth of the compute and 300 GB/s. */
static void add_point(scene *sc, size_t m, const char *device, const char *slice, uint32_t batch,
                      uint32_t procs, double time_us, uint64_t mem_bytes)
{
    weft_profile_point *p =
        scene_add_point(sc, m, device, slice, batch, time_us, (double)mem_bytes);
    p->procs = procs;
    p->cost.creq = 0.2;
    p->cost.bandwidth_gbps = 300;
}

static const char *const slices[] = {"",    "1g.10gb", "2g.20gb",     "3g.40gb",     "4g.40gb",
                                     "20%", "50%",     "3g.40gb/50%", "3g.40gb/30%", "7g.80gb"};

enum { SLICES = sizeof slices / sizeof slices[0] };

static void make_scene(scene *sc, uint64_t *seed)
{
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, NULL, 50000, 10);
        for (size_t s = 0; s < SLICES; s++)
            for (uint32_t batch = 1; batch <= 8; batch *= 2)
                for (uint32_t procs = 1; procs <= 2; procs++)
                    add_point(sc, m, s % 2 && s < 4 ? "a100-80" : "h100", slices[s], batch, procs,
                              (double)(500 + rand_next(seed) % 9000), rand_next(seed) % 12 << 30);
    }
    scene_add_device(
        sc, (weft_fleet_device){
                .type = "h100", .count = 4, .mig = true, .mps = true, .bandwidth_gbps = 3000});
    scene_add_device(sc,
                     (weft_fleet_device){.type = "a100-80", .count = 3, .mig = true, .mps = true});
}

/* -- The option table ------------------------------------------------------------------------- */

static void test_option_table__finds_what_a_search_of_all_rows_finds(void **state)
{
    scene *sc = malloc(sizeof *sc);
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t random = seed;
        weft_arena *arena = weft_arena_create(0);
        weft_option_table table;
        make_scene(sc, &random);
        weft_option_table__build(&sc->problem, arena, &table);
        for (uint32_t d = 0; d < MODELS; d++)
            for (size_t i = 0; i < sc->demand[d].profile.n; i++) {
                const weft_profile_point *p = &sc->point[d][i];
                double longest = p->cost.time_us;
                for (size_t j = 0; j < sc->demand[d].profile.n; j++) {
                    const weft_profile_point *q = &sc->point[d][j];
                    if (strcmp(q->device, p->device) == 0 && strcmp(q->slice, p->slice) == 0 &&
                        q->procs == p->procs && q->batch < p->batch)
                        longest = fmax(longest, q->cost.time_us);
                }
                const weft_shape *shape = weft_option_table__shape(&table, p->device, p->slice);
                const weft_timed_point *timed =
                    weft_option_table__find(&table, d, shape, p->batch, p->procs);
                assert_non_null(timed);
                assert_ptr_equal(timed->point, p);
                assert_true(timed->exec_us == longest);
                assert_null(weft_option_table__find(&table, d, shape, p->batch + 100, p->procs));
                uint32_t at = (uint32_t)(shape - table.shape);
                const weft_option *o = weft_option_table__option(&table, d, at, p->batch, p->procs);
                bool fits = 2 * longest <= 50000 && shape->allowed &&
                            (!shape->spec.mem_bytes ||
                             p->cost.mreq_bytes * p->procs <= shape->spec.mem_bytes);
                assert_true(fits == (o != NULL));
                assert_true(!o || o->point == p);
            }
        assert_null(weft_option_table__shape(&table, "h100", "nothing"));
        assert_null(weft_option_table__find(&table, 0, NULL, 1, 1));
        weft_arena_destroy(arena);
    }
    free(sc);
}

static void test_option_table__choices_cover_the_options(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    uint64_t seed = 5;
    weft_option_table table;
    (void)state;
    make_scene(sc, &seed);
    weft_option_table__build(&sc->problem, arena, &table);
    for (uint32_t d = 0; d < MODELS; d++) {
        uint32_t sum = 0;
        for (uint32_t i = 0; i < table.n_choice[d]; i++) {
            const weft_choice *c = &table.choice[d][i];
            assert_int_equal(c->first, sum);
            assert_true(i == 0 || table.choice[d][i - 1].shape < c->shape);
            sum += c->n;
            for (uint32_t j = c->first; j < c->first + c->n; j++)
                assert_int_equal(table.option[d][j].shape, c->shape);
            assert_int_equal(weft_option_table__choice(&table, d, c->shape).n, c->n);
        }
        assert_int_equal(sum, table.n_option[d]);
    }
    weft_arena_destroy(arena);
    free(sc);
}

/* -- Bounds ----------------------------------------------------------------------------------- */

/* 150/s on slices of 1/7 (20/s), 2/7 (50/s) and 3/7 (70/s): the fractional bound is
 * 150 * (2/7) / 50 = 0.857 devices, whole slices need 2 + 2 + 2 of 7 GPCs. Two such models need
 * 12/7, so two devices; three need 18/7. */
static void test_option_table__bound_of_whole_slices(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    scene_start(sc);
    scene_add_device(
        sc, (weft_fleet_device){.type = "a100-80", .count = 9, .mig = true, .price_per_hour = 7});
    for (size_t n = 1; n <= 3; n++) {
        weft_option_table table;
        size_t m = scene_add_model(sc, NULL, 0, 150);
        add_point(sc, m, "a100-80", "1g.10gb", 1, 1, 50000, 0);
        add_point(sc, m, "a100-80", "2g.20gb", 1, 1, 20000, 0);
        add_point(sc, m, "a100-80", "3g.40gb", 1, 1, 1e6 / 70, 0);
        sc->problem = (weft_problem){.demands = &sc->demands, .fleet = &sc->fleet};
        weft_option_table__build(&sc->problem, arena, &table);
        assert_true(weft_option_table__lower_bound(&table) == ceil((double)n * 6 / 7));
        assert_true(fabs(weft_option_table__cost_bound(&table) - 7 * ceil((double)n * 6 / 7)) <
                    1e-9);
        sc->problem.rules.isolated = true;
        sc->demand[0].rate_per_s = 151; /* one more request needs one more GPC */
        weft_option_table__build(&sc->problem, arena, &table);
        assert_true(weft_option_table__lower_bound(&table) == ceil((double)(n * 6 + 1) / 7));
        sc->demand[0].rate_per_s = 150;
        sc->problem.goal = WEFT_GOAL_GOODPUT;
        assert_true(weft_option_table__lower_bound(&table) == 0);
    }
    weft_arena_destroy(arena);
    free(sc);
}

/* Ten models that take a hundredth of the time each, and 18 GiB on a small slice or 20 GiB on a
 * large one: 180 GiB need three devices of 80 GiB, and four if 30 % of these stay free. A model
 * without a rate may have no place. */
static void test_option_table__bound_by_memory(void **state)
{
    static const double gib = 1024.0 * 1024 * 1024;
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_option_table table;
    (void)state;
    scene_start(sc);
    scene_add_device(
        sc, (weft_fleet_device){.type = "a100-80", .count = 9, .mps = true, .price_per_hour = 7});
    for (size_t m = 0; m < 10; m++) {
        scene_add_model(sc, NULL, 0, 10);
        scene_add_share(sc, m, "a100-80", 50, 1, 1000, 18 * gib);
        scene_add_share(sc, m, "a100-80", 100, 1, 500, 20 * gib);
    }
    sc->problem = (weft_problem){.demands = &sc->demands, .fleet = &sc->fleet};
    weft_option_table__build(&sc->problem, arena, &table);
    assert_true(weft_option_table__lower_bound(&table) == 3);
    assert_true(fabs(weft_option_table__cost_bound(&table) - 21) < 1e-9);
    sc->problem.rules.mem_reserve = 0.2;
    weft_option_table__build(&sc->problem, arena, &table);
    assert_true(weft_option_table__lower_bound(&table) == 3);
    sc->problem.rules.mem_reserve = 0.3;
    weft_option_table__build(&sc->problem, arena, &table);
    assert_true(weft_option_table__lower_bound(&table) == 4);
    for (size_t m = 0; m < 9; m++)
        sc->demand[m].rate_per_s = 0;
    assert_true(weft_option_table__lower_bound(&table) == 1);
    weft_arena_destroy(arena);
    free(sc);
}

/* A small batch with a wide band may take longer than a large one without: exec is the longest
 * after the margins. */
static void test_option_table__margins_of_smaller_batches_count(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_option_table table;
    (void)state;
    scene_start(sc);
    scene_add_device(sc, (weft_fleet_device){.type = "a100-80", .count = 1});
    scene_add_model(sc, NULL, 100000, 10);
    scene_add_point(sc, 0, "a100-80", "", 1, 4000, 1)->cost.time_p95_us = 9000;
    scene_add_point(sc, 0, "a100-80", "", 2, 5000, 1)->cost.time_p95_us = 5000;
    sc->problem.rules.confidence = 0.95;
    weft_option_table__build(&sc->problem, arena, &table);
    assert_int_equal(table.n_option[0], 2);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(fabs(table.option[0][i].exec_us - 9000) < 1e-3);
    sc->problem.rules.latency = WEFT_RULE_HALF;
    weft_option_table__build(&sc->problem, arena, &table);
    assert_true(fabs(table.option[0][1].exec_us - 5000) < 1e-3);
    weft_arena_destroy(arena);
    free(sc);
}

/* No set of instances of a device has more memory than the device table says. */
static void test_option_table__instances_fit_the_memory(void **state)
{
    (void)state;
    for (size_t i = 0; weft_device_type_at(i); i++) {
        const weft_device_type *t = weft_device_type_at(i);
        for (size_t k = 0; k < t->n_mig; k++)
            assert_true((double)t->mig[k].mem_bytes * (t->mig_slots / t->mig[k].slots) <=
                        (double)t->mem_bytes);
    }
}

/* -- The builder ------------------------------------------------------------------------------ */

static const weft_option *option_of(const weft_builder *builder, uint32_t demand,
                                    const char *device, const char *slice, uint32_t batch)
{
    const weft_shape *shape = weft_option_table__shape(&builder->table, device, slice);
    const weft_option *o = weft_option_table__option(
        &builder->table, demand, (uint32_t)(shape - builder->table.shape), batch, 1);
    assert_non_null(o);
    return o;
}

static void make_easy(scene *sc)
{
    scene_start(sc);
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, NULL, 50000, 10);
        for (size_t s = 0; s < SLICES; s++)
            add_point(sc, m, "h100", slices[s], 4, 1, 5000, 1 << 20);
    }
    scene_add_device(sc, (weft_fleet_device){.type = "h100", .count = 2, .mig = true, .mps = true});
}

static void test_option_table__builder_puts_where_told(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_builder builder;
    weft_plan plan;
    (void)state;
    make_easy(sc);
    assert_int_equal(weft_builder__init(&builder, &sc->problem, arena, diag), WEFT_ERR_OK);
    const weft_fleet_device *row = &sc->device[0];
    uint32_t first = weft_builder__open(&builder, row, WEFT_SLICE_MIG);
    uint32_t second = weft_builder__open(&builder, row, WEFT_SLICE_MIG);
    assert_int_equal(weft_builder__open(&builder, row, WEFT_SLICE_MPS), UINT32_MAX);
    assert_true(weft_builder__put(&builder, second, 0, 0,
                                  option_of(&builder, 0, "h100", "3g.40gb", 4), 10));
    /* Refused: slots taken, illegal start, out of range, another kind, rate too high, no such
     * device. */
    const weft_option *one = option_of(&builder, 1, "h100", "1g.10gb", 4);
    assert_false(weft_builder__put(&builder, second, 3, 1, one, 10));
    assert_false(weft_builder__put(&builder, second, 7, 1, one, 10));
    assert_false(weft_builder__put(&builder, second, 40, 1, one, 10));
    assert_false(
        weft_builder__put(&builder, second, -1, 1, option_of(&builder, 1, "h100", "50%", 4), 1));
    assert_false(weft_builder__put(&builder, second, 4, 1, one, 801));
    assert_false(weft_builder__put(&builder, 2, 4, 1, one, 10));
    assert_true(weft_builder__put(&builder, second, -1, 1, one, 10));
    assert_int_equal(builder.slices.at[1].mig_start, 4);
    /* Two shares of 50 % go into one instance; a third one has no room in it. */
    const weft_option *half = option_of(&builder, 2, "h100", "3g.40gb/50%", 4);
    assert_true(weft_builder__put(&builder, first, 4, 2, half, 10));
    assert_true(weft_builder__put(&builder, first, -1, 3,
                                  option_of(&builder, 3, "h100", "3g.40gb/30%", 4), 10));
    assert_int_equal(builder.slices.at[3].mig_start, 4);
    assert_false(weft_builder__put(&builder, first, 4, 4, half, 10));
    assert_true(
        weft_builder__add(&builder, 4, option_of(&builder, 4, "h100", "3g.40gb/50%", 4), 10, true));
    assert_int_equal(builder.slices.at[4].mig_start, 0);
    /* A model time-shares the slice with a given batch, but not with itself. */
    const weft_option *both[] = {option_of(&builder, 1, "h100", "1g.10gb", 4),
                                 option_of(&builder, 5, "h100", "1g.10gb", 4)};
    assert_false(weft_builder__join(&builder, 1, 1, 10, both));
    assert_true(weft_builder__join(&builder, 1, 5, 10, both));
    weft_builder__finish(&builder, "hand", &plan);
    assert_int_equal(plan.gpus, 2);
    assert_int_equal(plan.n, 6);
    if (weft_plan_check(&plan, &sc->problem, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(sc);
}

static void test_option_table__empty_devices_are_not_in_the_plan(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_arena *arena = weft_arena_create(0);
    weft_builder builder;
    weft_plan plan;
    (void)state;
    make_easy(sc);
    sc->demands.n = 1;
    assert_int_equal(weft_builder__init(&builder, &sc->problem, arena, NULL), WEFT_ERR_OK);
    (void)weft_builder__open(&builder, &sc->device[0], WEFT_SLICE_WHOLE);
    uint32_t second = weft_builder__open(&builder, &sc->device[0], WEFT_SLICE_MPS);
    assert_true(
        weft_builder__put(&builder, second, -1, 0, option_of(&builder, 0, "h100", "20%", 4), 10));
    weft_builder__finish(&builder, "hand", &plan);
    assert_int_equal(plan.gpus, 1);
    assert_int_equal(plan.at[0].device, 0);
    assert_int_equal(weft_plan_check(&plan, &sc->problem, NULL), WEFT_ERR_OK);
    weft_arena_destroy(arena);
    free(sc);
}

static char *board_text(const weft_builder *builder)
{
    weft_plan plan;
    char *text = NULL;
    weft_builder__finish(builder, "random", &plan);
    assert_int_equal(weft_plan_to_json(&plan, builder->demands, &text), WEFT_ERR_OK);
    return text;
}

/* One random change, with low rates so that many models fit. */
static void change_builder(weft_builder *builder, uint64_t *seed)
{
    uint32_t d = (uint32_t)(rand_next(seed) % MODELS), occupied = builder->slices.len;
    if (builder->n_option[d] == 0)
        return;
    const weft_option *o = &builder->option[d][rand_next(seed) % builder->n_option[d]];
    double rate = (double)(rand_next(seed) % 100) / 10, busy;
    switch (rand_next(seed) % 5) {
    case 0:
        (void)weft_builder__open(builder, o->row, o->spec.kind);
        break;
    case 1:
        if (occupied > 0)
            (void)weft_builder__share(builder, (uint32_t)(rand_next(seed) % occupied), d, rate,
                                      rand_next(seed) % 2, &busy);
        break;
    case 2:
        if (builder->devices.len > 0)
            (void)weft_builder__put(builder, (uint32_t)(rand_next(seed) % builder->devices.len),
                                    (int32_t)(rand_next(seed) % 10) - 1, d, o, rate);
        break;
    default:
        (void)weft_builder__add(builder, d, o, rate, rand_next(seed) % 2);
    }
}

/* Every plan that random changes build is legal (under the goal goodput, with the rates that were
 * placed as demands), and undo restores the builder exactly: the plan is byte-identical, and so is
 * the plan after the same further changes. */
static void test_option_table__random_plans_are_legal_and_undo(void **state)
{
    scene *sc = malloc(sizeof *sc);
    weft_diag *diag = weft_diag_create();
    uint32_t placed = 0;
    (void)state;
    for (uint64_t round = 1; round <= 400; round++) {
        uint64_t seed = round * 7919, again;
        weft_arena *arena = weft_arena_create(0);
        weft_builder builder;
        weft_plan plan;
        make_scene(sc, &seed);
        sc->problem.goal = WEFT_GOAL_GOODPUT;
        sc->problem.rules.isolated = round % 5 == 0;
        sc->problem.rules.oversubscribe = round % 7 == 0;
        sc->problem.rules.mem_reserve = round % 3 ? 0 : 0.1;
        if (round % 2)
            sc->problem.rules.interference = (weft_interference){.c = {0.3, 0.5, 0.2, 0.9, 0.8}};
        sc->problem.rules.interference.over_time = round % 4 == 0;
        for (size_t m = 0; m < MODELS; m++)
            sc->demand[m].rate_per_s = 1e6;
        assert_int_equal(weft_builder__init(&builder, &sc->problem, arena, diag), WEFT_ERR_OK);
        for (int i = 0; i < 20; i++)
            change_builder(&builder, &seed);
        char *before = board_text(&builder);
        uint32_t mark = weft_builder__mark(&builder);
        again = seed;
        for (int i = 0; i < 30; i++)
            change_builder(&builder, &seed);
        char *after = board_text(&builder);
        weft_builder__undo(&builder, mark);
        char *undone = board_text(&builder);
        assert_string_equal(before, undone);
        for (int i = 0; i < 30; i++)
            change_builder(&builder, &again);
        char *redone = board_text(&builder);
        assert_string_equal(after, redone);
        weft_builder__finish(&builder, "random", &plan);
        weft_diag_clear(diag);
        placed += (uint32_t)plan.n;
        if (weft_plan_check(&plan, &sc->problem, diag) != WEFT_ERR_OK)
            fail_msg("round %llu: %s", (unsigned long long)round, weft_diag_at(diag, 0)->text);
        free(before);
        free(after);
        free(undone);
        free(redone);
        weft_arena_destroy(arena);
    }
    assert_true(placed > 4000);
    weft_diag_destroy(diag);
    free(sc);
}

/* -- Scale ------------------------------------------------------------------------------------ */

enum { BIG_MODELS = 1000, BIG_DEVICES = 10000 };

typedef struct big {
    char name[BIG_MODELS][8];
    weft_profile_point point[BIG_MODELS][5];
    weft_demand demand[BIG_MODELS];
} big;

/* A thousand models on ten thousand devices with seven slices each: time and memory stay small. */
static void test_option_table__ten_thousand_devices(void **state)
{
    static const char *const names[] = {"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"};
    big *b = calloc(1, sizeof *b);
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_builder builder;
    weft_plan plan;
    (void)state;
    for (size_t m = 0; m < BIG_MODELS; m++) {
        snprintf(b->name[m], sizeof b->name[m], "m%04zu", m);
        for (size_t s = 0; s < 5; s++) {
            weft_profile_point *p = &b->point[m][s];
            *p = (weft_profile_point){.device = "a100-80", .batch = 4, .procs = 1};
            snprintf(p->slice, sizeof p->slice, "%s", names[s]);
            snprintf(p->cost.source, sizeof p->cost.source, "measured");
            p->cost.time_us = 4000 / (double)(s + 1);
        }
        b->demand[m] = (weft_demand){.model = b->name[m],
                                     .slo_us = 50000,
                                     .rate_per_s = 70000,
                                     .profile = {.point = b->point[m], .n = 5}};
    }
    weft_demands demands = {b->demand, BIG_MODELS};
    weft_fleet_device row = {.type = "a100-80", .count = BIG_DEVICES, .mig = true};
    weft_fleet fleet = {.file = "fleet", .device = &row, .n_device = 1};
    weft_problem problem = {.demands = &demands, .fleet = &fleet};
    assert_int_equal(weft_builder__init(&builder, &problem, arena, diag), WEFT_ERR_OK);
    for (uint32_t i = 0; i < 70; i++)
        for (uint32_t d = 0; d < BIG_MODELS; d++)
            assert_true(weft_builder__add(&builder, d, &builder.option[d][0], 1000, i % 2));
    assert_false(weft_builder__add(&builder, 0, &builder.option[0][0], 1, true));
    weft_builder__finish(&builder, "hand", &plan);
    assert_int_equal(plan.gpus, BIG_DEVICES);
    assert_int_equal(plan.n, 70000);
    if (weft_plan_check(&plan, &problem, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    assert_true(weft_arena_used(arena) < (size_t)200 << 20);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_option_table__finds_what_a_search_of_all_rows_finds),
        cmocka_unit_test(test_option_table__choices_cover_the_options),
        cmocka_unit_test(test_option_table__bound_of_whole_slices),
        cmocka_unit_test(test_option_table__bound_by_memory),
        cmocka_unit_test(test_option_table__margins_of_smaller_batches_count),
        cmocka_unit_test(test_option_table__instances_fit_the_memory),
        cmocka_unit_test(test_option_table__builder_puts_where_told),
        cmocka_unit_test(test_option_table__empty_devices_are_not_in_the_plan),
        cmocka_unit_test(test_option_table__random_plans_are_legal_and_undo),
        cmocka_unit_test(test_option_table__ten_thousand_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
