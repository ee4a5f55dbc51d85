/* The policy weft on more models than its integer programs take: column generation by blocks of
 * models, models in turn by the length of their rounds, shares packed as vectors. */
#include "base/arena.h"
#include "scheduler/builder/builder.h"
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
#include "tests/support/rand.h"
#include "tests/support/scene.h"

typedef struct crowd {
    weft_demand *demand;
    weft_demands demands;
    weft_fleet_device device;
    weft_fleet fleet;
    weft_problem problem;
} crowd;

static crowd *make_crowd(weft_arena *arena, uint32_t n, weft_fleet_device device)
{
    crowd *c = weft_arena_alloc(arena, sizeof *c);
    *c = (crowd){.demand = weft_arena_array(arena, n, sizeof *c->demand), .device = device};
    c->demands = (weft_demands){c->demand, n};
    c->fleet = (weft_fleet){.file = "fleet", .device = &c->device, .n_device = 1};
    c->problem =
        (weft_problem){.demands = &c->demands, .fleet = &c->fleet, .solver = &weft_solver_cbc};
    return c;
}

static void set_point(weft_profile_point *p, const char *device, const char *slice, uint32_t batch,
                      double time_us)
{
    *p = (weft_profile_point){.batch = batch, .procs = 1};
    snprintf(p->device, sizeof p->device, "%s", device);
    snprintf(p->slice, sizeof p->slice, "%s", slice);
    snprintf(p->cost.source, sizeof p->cost.source, "measured");
    p->cost.time_us = time_us;
}

/* 2,300 isolated models on MIG, in blocks of three: the plan is within 0.2 % of the bound. */
static void test_many_models__blocks(void **state)
{
    static const char *const slice[] = {"1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"};
    static const double speed[] = {1, 1.9, 2.7, 3.5, 5.5};
    enum { MODELS = 2300, SLICES = 5, KINDS = 7 };
    uint64_t seed = 5;
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    crowd *c = make_crowd(
        arena, MODELS,
        (weft_fleet_device){.type = "a100-80", .count = 40000, .mig = true, .price_per_hour = 3});
    (void)state;
    c->problem.rules.isolated = true;
    weft_profile_point(*point)[SLICES] = weft_arena_array(arena, KINDS, sizeof *point);
    for (size_t k = 0; k < KINDS; k++)
        for (size_t i = 0; i < SLICES; i++)
            set_point(&point[k][i], "a100-80", slice[i], 4,
                      (3000.0 + 2500.0 * (double)k) / (speed[i] + 0.1 * (double)(k % 3)));
    for (uint32_t d = 0; d < MODELS; d++) {
        size_t k = rand_next(&seed) % KINDS;
        c->demand[d] = (weft_demand){.model = weft_arena_printf(arena, "m%04u", d),
                                     .slo_us = 8000.0 + (double)(rand_next(&seed) % 60000),
                                     .rate_per_s = 20.0 + (double)(rand_next(&seed) % 5000),
                                     .profile = {.point = point[k], .n = SLICES}};
    }
    make_plan("weft", NULL, &c->problem, arena, &plan);
    print_message("%u devices, bound %.0f\n", plan.gpus, plan.lower_bound);
    assert_in_range(plan.gpus, (uint32_t)plan.lower_bound, (uint32_t)(plan.lower_bound * 1.002));
    weft_arena_destroy(arena);
}

/* Batches of 1 ms on whole devices, few requests: 200 models allow rounds of 10 ms, so that ten
 * share a device, and 200 allow 40 ms. */
static void test_many_models__rounds(void **state)
{
    enum { MODELS = 400 };
    uint64_t seed = 3;
    weft_arena *arena = weft_arena_create(0);
    weft_plan plan;
    weft_profile_point point;
    crowd *c = make_crowd(arena, MODELS, (weft_fleet_device){.type = "h100", .count = 1000});
    (void)state;
    set_point(&point, "h100", "", 1, 1000);
    for (uint32_t d = 0; d < MODELS; d++)
        c->demand[d] = (weft_demand){.model = weft_arena_printf(arena, "m%04u", d),
                                     .slo_us = rand_next(&seed) % 1000 + (d % 2 ? 11000 : 41000),
                                     .rate_per_s = 1 + (double)(rand_next(&seed) % 20),
                                     .profile = {.point = &point, .n = 1}};
    make_plan("weft", NULL, &c->problem, arena, &plan);
    print_message("%u devices, bound %.0f\n", plan.gpus, plan.lower_bound);
    assert_int_equal(plan.gpus, 25);
    assert_true(plan.lower_bound >= 24 && plan.lower_bound <= 25);
    weft_arena_destroy(arena);
}

/* Four shares of 40 % with 10 GB and four of 10 % with 30 GB, each kind on devices of its own: two
 * of each fill a device. */
static void test_many_models__shares_as_vectors(void **state)
{
    enum { MODELS = 8 };
    static const double gb = 1e9;
    weft_arena *arena = weft_arena_create(0);
    weft_builder *builder = weft_arena_alloc(arena, sizeof *builder);
    scene *sc = malloc(sizeof *sc);
    weft_segment segment[MODELS];
    (void)state;
    scene_start(sc);
    scene_add_device(sc, (weft_fleet_device){.type = "a100-80", .count = 9, .mps = true});
    for (size_t m = 0; m < MODELS; m++) {
        scene_add_model(sc, NULL, 0, 10);
        scene_add_share(sc, m, "a100-80", m < 4 ? 40 : 10, 1, 1000, (m < 4 ? 10 : 30) * gb);
    }
    assert_int_equal(weft_builder__init(builder, &sc->problem, arena, NULL), WEFT_ERR_OK);
    for (uint32_t m = 0; m < MODELS; m++)
        segment[m] = (weft_segment){.device = m / 2,
                                    .slice_id = m % 2,
                                    .demand = m,
                                    .start = -1,
                                    .option = &builder->option[m][0],
                                    .rate_per_s = 10};
    weft_solution list = {.at = segment, .n = MODELS};
    assert_true(weft_solution__put(builder, &list));
    list = weft_solution__list(builder);
    assert_int_equal(list.devices, 4);
    weft_shares__pack(builder, &list);
    assert_int_equal(list.devices, 2);
    assert_int_equal(list.n, MODELS);
    /* Two devices are the bound: nothing moves. */
    uint32_t first = list.at[0].device;
    weft_segment *at = list.at;
    weft_shares__pack(builder, &list);
    assert_true(list.at == at && list.at[0].device == first);
    free(sc);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_models__blocks),
        cmocka_unit_test(test_many_models__rounds),
        cmocka_unit_test(test_many_models__shares_as_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
