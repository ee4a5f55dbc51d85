/* The controller: scripted observations, and which of them change the plan. */
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

enum { MODELS = 2 };

typedef struct world {
    weft_arena *arena;
    weft_diag *diag;
    weft_demand demand[MODELS];
    weft_demands demands;
    weft_fleet_device device;
    weft_fleet fleet;
    weft_problem problem;
    weft_plan start;
    weft_control_options options;
    weft_controller *c;
    /* The server observed. */
    double now_s, owed[MODELS], carbon;
    weft_control_count count[MODELS];
    bool changing, poisson;
    uint64_t seed;
    double miss; /* part of the requests of model a */
    /* What was decided since `watch`. */
    uint32_t kept, none, changes, up, down, turns; /* turns: from up to down, or back */
    int direction;
    uint32_t gpus;
    char last[2000];
} world;

static uint32_t calls; /* of the policy */

static weft_err count_calls(void *state, const weft_problem *problem, weft_arena *arena,
                            weft_diag *diag, weft_plan *out)
{
    (void)state;
    calls++;
    return weft_policy_find("bestfit")->place(NULL, problem, arena, diag, out);
}

static const weft_policy counted = {.name = "counted",
                                    .splits = WEFT_SPLIT_WHOLE | WEFT_SPLIT_TIME,
                                    .state_size = 8,
                                    .place = count_calls};

static void add_model(world *w, const char *name, double rate_per_s)
{
    static const struct {
        uint32_t batch;
        double time_us;
    } points[] = {{1, 8000}, {8, 20000}};
    weft_profile_point *p = weft_arena_array(w->arena, 2, sizeof *p);
    for (int i = 0; i < 2; i++) {
        p[i] = (weft_profile_point){.batch = points[i].batch, .procs = 1, .share = 1};
        snprintf(p[i].device, sizeof p->device, "h100");
        p[i].cost.time_us = points[i].time_us;
    }
    w->demand[w->demands.n++] = (weft_demand){
        .model = name, .slo_us = 200000, .rate_per_s = rate_per_s, .profile = {.point = p, .n = 2}};
}

static int set_up(void **state)
{
    world *w = calloc(1, sizeof *w);
    w->arena = weft_arena_create(0);
    w->diag = weft_diag_create();
    w->demands.at = w->demand;
    w->device = (weft_fleet_device){.type = "h100", .count = 8, .price_per_hour = 2};
    w->fleet = (weft_fleet){.file = "fleet", .device = &w->device, .n_device = 1};
    w->problem =
        (weft_problem){.demands = &w->demands, .fleet = &w->fleet, .rules = {.isolated = true}};
    add_model(w, "a", 300);
    add_model(w, "b", 300);
    w->options.policy = &counted;
    weft_control_live(&w->options);
    w->now_s = 1000;
    w->seed = 7;
    for (int i = 0; i < MODELS; i++)
        w->count[i].name = w->demand[i].model;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    world *w = *state;
    weft_controller_destroy(w->c);
    weft_arena_destroy(w->arena);
    weft_diag_destroy(w->diag);
    free(w);
    return 0;
}

static void begin(world *w)
{
    assert_int_equal(
        weft_plan_make(w->options.policy, NULL, &w->problem, w->arena, w->diag, &w->start),
        WEFT_ERR_OK);
    assert_int_equal(weft_controller_create(&w->options, &w->problem, &w->start, &w->c),
                     WEFT_ERR_OK);
    w->gpus = w->start.gpus;
    calls = 0;
}

static void watch(world *w)
{
    calls = w->kept = w->none = w->changes = w->up = w->down = w->turns = 0;
}

static weft_decision observe(world *w)
{
    weft_decision d;
    weft_observation o = {.now_ns = (int64_t)(w->now_s * 1e9),
                          .at = w->count,
                          .n = MODELS,
                          .carbon_g_per_kwh = w->carbon,
                          .changing = w->changing};
    assert_int_equal(weft_controller_observe(w->c, &o, w->diag, &d), WEFT_ERR_OK);
    assert_non_null(d.text);
    if (d.action != WEFT_CONTROL_WAIT)
        snprintf(w->last, sizeof w->last, "%s", d.text);
    w->kept += d.action == WEFT_CONTROL_KEEP;
    w->none += d.action == WEFT_CONTROL_NONE;
    if (d.action == WEFT_CONTROL_CHANGE) {
        int direction = (d.plan->gpus > w->gpus) - (d.plan->gpus < w->gpus);
        w->changes++;
        w->turns += direction && direction != w->direction;
        w->direction = direction ? direction : w->direction;
        w->up += d.plan->gpus > w->gpus;
        w->down += d.plan->gpus < w->gpus;
        w->gpus = d.plan->gpus;
        assert_int_equal(weft_plan_check(d.plan,
                                         &(weft_problem){.demands = d.demands,
                                                         .fleet = &w->fleet,
                                                         .rules = w->problem.rules},
                                         w->diag),
                         WEFT_ERR_OK);
    }
    return d;
}

/* Knuth's product of uniform numbers, in parts, as the mean may be large. */
static uint64_t poisson(world *w, double mean)
{
    uint64_t n = 0;
    while (mean > 0) {
        double part = fmin(mean, 50), p = rand_unit(&w->seed);
        for (; p > exp(-part); p *= rand_unit(&w->seed))
            n++;
        mean -= part;
    }
    return n;
}

/* Requests at these rates for a time, with an observation every poll_s. */
static void load(world *w, double a, double b, double seconds)
{
    const double rate[MODELS] = {a, b}, dt = w->options.poll_s;
    for (double t = 0; t < seconds - 1e-9; t += dt) {
        w->now_s += dt;
        for (int i = 0; i < MODELS; i++) {
            uint64_t n = w->poisson ? poisson(w, rate[i] * dt) : 0;
            w->owed[i] += w->poisson ? 0 : rate[i] * dt;
            if (!w->poisson)
                n = (uint64_t)w->owed[i];
            w->owed[i] -= w->poisson ? 0 : (double)n;
            w->count[i].arrivals += n;
            w->count[i].answered += n;
            w->count[i].missed += i == 0 ? (uint64_t)((double)n * w->miss) : 0;
        }
        observe(w);
    }
}

/* -- Steps ------------------------------------------------------------------------------------ */

static void test_control__follows_a_step_up_at_once(void **state)
{
    world *w = *state;
    begin(w);
    load(w, 300, 300, 30);
    assert_int_equal(w->changes, 0);
    watch(w);
    load(w, 900, 300, 4);
    assert_true(w->changes >= 1 && w->up == w->changes);
    assert_true(strstr(w->last, "rate: a ") && strstr(w->last, "sigma") &&
                strstr(w->last, "because it is needed"));
    load(w, 900, 300, 20);
    assert_int_equal(w->gpus, w->start.gpus + 2);
}

static void test_control__follows_a_step_down_after_a_time(void **state)
{
    world *w = *state;
    w->demand[0].rate_per_s = 1500;
    begin(w);
    load(w, 1500, 300, 90);
    assert_int_equal(w->changes, 0);
    watch(w);
    load(w, 300, 300, 50); /* less than down_s */
    assert_int_equal(w->down, 0);
    load(w, 300, 300, 120);
    assert_true(w->down >= 1 && w->up == 0);
    assert_true(strstr(w->last, "$/h") || w->kept > 0);
    assert_int_equal(w->gpus, 2);
}

static void test_control__shifts_from_one_model_to_another(void **state)
{
    world *w = *state;
    w->device.count = 4;
    w->demand[0].rate_per_s = 1000;
    w->demand[1].rate_per_s = 300;
    begin(w);
    assert_int_equal(w->gpus, 4);
    load(w, 1000, 300, 70);
    load(w, 100, 1000, 180);
    assert_true(w->changes >= 1);
    assert_int_equal(w->gpus, 4);
    load(w, 100, 100, 200);
    assert_int_equal(w->gpus, 2);
}

/* -- What must not change the plan ------------------------------------------------------------ */

static void test_control__noise_does_not_call_the_policy(void **state)
{
    world *w = *state;
    w->options.period_s = 0;
    w->poisson = true;
    w->demand[1].rate_per_s = 3;
    begin(w);
    load(w, 300, 3, 3600);
    assert_int_equal(calls, 0);
    assert_int_equal(w->changes, 0);
}

static void test_control__swings_do_not_swing_the_plan(void **state)
{
    world *w = *state;
    w->poisson = true;
    begin(w);
    /* Faster than down_s: the plan stays at the peak. */
    for (int i = 0; i < 20; i++) {
        load(w, 300, 300, 10);
        load(w, 900, 300, 10);
    }
    assert_true(w->up >= 1 && w->up <= 3 && w->down == 0);
    watch(w);
    /* Slower: up and down once in each. */
    for (int i = 0; i < 6; i++) {
        load(w, 300, 300, 100);
        load(w, 900, 300, 100);
    }
    assert_true(w->turns <= 12 && w->changes <= 24);
}

static void test_control__a_burst_adds_and_later_takes_away(void **state)
{
    world *w = *state;
    begin(w);
    load(w, 300, 300, 100);
    watch(w);
    load(w, 2000, 300, 1);
    load(w, 300, 300, 25);
    assert_true(w->changes <= 2 && w->down == 0);
    load(w, 300, 300, 200);
    assert_int_equal(w->gpus, w->start.gpus);
}

static void test_control__one_change_at_a_time(void **state)
{
    world *w = *state;
    begin(w);
    load(w, 300, 300, 30);
    w->changing = true;
    load(w, 1200, 300, 30);
    assert_int_equal(calls, 0);
    w->changing = false;
    load(w, 1200, 300, 2);
    assert_true(w->up == 1);
}

/* -- Clocks and counters ---------------------------------------------------------------------- */

static void test_control__survives_counters_that_go_back(void **state)
{
    world *w = *state;
    w->demand[0].rate_per_s = 900;
    begin(w);
    load(w, 900, 300, 70);
    uint32_t gpus = w->gpus;
    for (int i = 0; i < MODELS; i++) /* the router starts again */
        w->count[i] = (weft_control_count){.name = w->count[i].name};
    watch(w);
    load(w, 900, 300, 120);
    assert_int_equal(w->changes, 0);
    assert_int_equal(w->gpus, gpus);
    /* A start again during a fall: what was not seen for down_s scales nothing down. */
    load(w, 300, 300, 20);
    for (int i = 0; i < MODELS; i++)
        w->count[i] = (weft_control_count){.name = w->count[i].name};
    load(w, 300, 300, 50);
    assert_int_equal(w->down, 0);
    load(w, 300, 300, 100);
    assert_true(w->down >= 1);
}

static void test_control__survives_jumps_of_the_clock(void **state)
{
    world *w = *state;
    begin(w);
    load(w, 300, 300, 70);
    watch(w);
    w->now_s += 3600; /* asleep, nothing came */
    load(w, 300, 300, 50);
    assert_int_equal(w->changes, 0);
    w->now_s -= 4000; /* another clock */
    load(w, 300, 300, 50);
    assert_int_equal(w->changes, 0);
    watch(w);
    load(w, 900, 300, 5);
    assert_true(w->up >= 1);
    /* No time between two observations. */
    observe(w);
    observe(w);
}

static void test_control__ignores_models_that_it_does_not_know(void **state)
{
    world *w = *state;
    begin(w);
    w->count[1].name = "other";
    load(w, 300, 30000, 10);
    assert_int_equal(w->up, 0);
}

/* -- Other causes ----------------------------------------------------------------------------- */

static void test_control__misses_call_the_policy(void **state)
{
    world *w = *state;
    w->demand[0].rate_per_s = 380;
    w->options.period_s = 0;
    begin(w);
    load(w, 380, 300, 30);
    watch(w);
    w->miss = 0.005;
    load(w, 380, 300, 30);
    assert_int_equal(calls, 0);
    w->miss = 0.2;
    load(w, 380, 300, 30);
    assert_true(calls >= 1 && w->up >= 1);
    w->miss = 0;
    watch(w);
    load(w, 380, 300, 30);
    assert_int_equal(w->changes, 0);
}

static void test_control__carbon_calls_the_policy(void **state)
{
    world *w = *state;
    w->options.period_s = 0;
    w->problem.carbon_g_per_kwh = w->carbon = 400;
    begin(w);
    load(w, 300, 300, 60);
    assert_int_equal(calls, 0);
    w->carbon = 415;
    load(w, 300, 300, 10);
    assert_int_equal(calls, 0);
    w->carbon = 440;
    load(w, 300, 300, 10);
    assert_int_equal(calls, 1);
    assert_non_null(strstr(w->last, "carbon: 400 -> 440"));
}

static void test_control__without_a_plan_for_all_carries_what_it_can(void **state)
{
    world *w = *state;
    w->device.count = 3;
    begin(w);
    load(w, 300, 300, 30);
    watch(w);
    load(w, 5000, 300, 60);
    assert_true(w->changes >= 1 && w->changes <= 2 && w->none == 0);
    assert_int_equal(w->gpus, 3);
    weft_controller_destroy(w->c);
    w->options.as_much = false;
    begin(w);
    watch(w);
    load(w, 5000, 300, 60);
    assert_true(w->changes == 0 && w->none >= 1);
    assert_non_null(strstr(w->last, "finds no plan"));
}

static void test_control__undo_goes_back_and_tries_again(void **state)
{
    world *w = *state;
    begin(w);
    load(w, 300, 300, 30);
    load(w, 900, 300, 4);
    assert_true(w->up >= 1);
    weft_controller_undo(w->c);
    w->gpus = w->start.gpus;
    watch(w);
    assert_ptr_equal(observe(w).plan->at, w->start.at);
    weft_controller_undo(w->c);
    load(w, 900, 300, 60);
    assert_true(w->up == 1);
}

/* A trial that always says no, and one that sees what the simulator sees. */
static weft_err refuse(const weft_trial *trial, weft_arena *arena, weft_diag *diag,
                       weft_trial_result *out)
{
    (void)arena, (void)diag;
    *out = (weft_trial_result){.requests = 100, .good = trial->next ? 50 : 100, .seconds = 1};
    return WEFT_ERR_OK;
}

static void test_control__a_trial_decides(void **state)
{
    world *w = *state;
    w->options.try_plan = refuse;
    begin(w);
    load(w, 300, 300, 30);
    load(w, 900, 300, 30);
    assert_int_equal(w->changes, 0);
    assert_true(w->kept >= 1 && strstr(w->last, "the trial is worse"));
    weft_controller_destroy(w->c);
    w->options.try_plan = weft_sim_try;
    begin(w);
    w->count[0].queue = 500;
    load(w, 300, 300, 30);
    load(w, 900, 300, 30);
    assert_true(w->up >= 1 && w->gpus == 4);
}

/* -- The simplest form ------------------------------------------------------------------------ */

static void test_control__zero_options_call_every_period(void **state)
{
    world *w = *state;
    w->options = (weft_control_options){.policy = &counted, .period_s = 10, .poll_s = 10};
    begin(w);
    w->now_s = 0;
    load(w, 300, 300, 10);
    assert_int_equal(calls, 1);
    assert_int_equal(w->changes, 1);
    load(w, 600, 300, 10);
    assert_int_equal(w->gpus, 3);
    load(w, 100, 300, 10);
    assert_int_equal(w->gpus, 2);
    assert_int_equal(calls, 3);
}

static void test_control__reads_options(void **state)
{
    world *w = *state;
    weft_control_options o = {.policy = &counted};
    assert_int_equal(weft_control_parse("live,period=7s,rate=30%,down=2min,sigma=3", w->diag, &o),
                     WEFT_ERR_OK);
    assert_true(o.policy == &counted && o.period_s == 7 && fabs(o.rate_change - 0.3) < 1e-12 &&
                o.down_s == 120 && o.sigma == 3 && o.up_s == 2);
    static const char *const wrong[] = {"lively",        "period",   "period=",    "period=-1s",
                                        "rate=x",        "down=1ms", "misses=2",   "=3",
                                        "up=5s,down=1s", "poll=0s",  "period=1e9s"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weft_control_options before = o;
        if (weft_control_parse(wrong[i], w->diag, &o) != WEFT_ERR_INPUT)
            fail_msg("'%s' is taken", wrong[i]);
        assert_memory_equal(&before, &o, sizeof o);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_control__##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(follows_a_step_up_at_once),
        TEST(follows_a_step_down_after_a_time),
        TEST(shifts_from_one_model_to_another),
        TEST(noise_does_not_call_the_policy),
        TEST(swings_do_not_swing_the_plan),
        TEST(a_burst_adds_and_later_takes_away),
        TEST(one_change_at_a_time),
        TEST(survives_counters_that_go_back),
        TEST(survives_jumps_of_the_clock),
        TEST(ignores_models_that_it_does_not_know),
        TEST(misses_call_the_policy),
        TEST(carbon_calls_the_policy),
        TEST(without_a_plan_for_all_carries_what_it_can),
        TEST(undo_goes_back_and_tries_again),
        TEST(a_trial_decides),
        TEST(zero_options_call_every_period),
        TEST(reads_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
