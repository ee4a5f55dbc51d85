/* The pace of batches in the simulator, beside their integral over the neighbours' load. */
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
#include <string.h>
#include <cmocka.h>

enum { SLICES_MAX = 5 };

/* A request of its own for each slice of a device. */
typedef struct scene {
    size_t n;
    double share[SLICES_MAX], idle_us[SLICES_MAX], busy_us[SLICES_MAX], at_us[SLICES_MAX];
    bool mig;
    double energy_j;
    double dram[SLICES_MAX]; /* part of the bandwidth that it takes */
    weft_interference interference;
} scene;

typedef struct answers {
    double end_us[SLICES_MAX]; /* of the model of slice i, which is service i */
    double joules;
} answers;

static void note(void *user, uint32_t replica, uint32_t service, int64_t arrived_ns,
                 int64_t started_ns, int64_t answered_ns)
{
    (void)replica;
    assert_true(started_ns == arrived_ns);
    ((answers *)user)->end_us[service] = (double)answered_ns / 1e3;
}

static answers simulate(const scene *s)
{
    static const char *const name[SLICES_MAX] = {"a", "b", "c", "d", "e"};
    answers out = {0};
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_demand demand[SLICES_MAX];
    weft_profile_point point[SLICES_MAX];
    weft_placement placement[SLICES_MAX];
    char slice[SLICES_MAX][16], trace[400] = "time_s,model\n";
    bool done[SLICES_MAX] = {false};
    for (size_t i = 0; i < s->n; i++) {
        snprintf(slice[i], sizeof slice[i], "%s", "1g.10gb");
        if (!s->mig)
            snprintf(slice[i], sizeof slice[i], "%.0f%%", 100 * s->share[i]);
        point[i] = (weft_profile_point){.device = "h100",
                                        .share = s->share[i],
                                        .batch = 1,
                                        .procs = 1,
                                        .idle_us = s->idle_us[i],
                                        .cost = {.time_us = s->busy_us[i],
                                                 .bandwidth_gbps = 2000 * s->dram[i],
                                                 .energy_j = s->energy_j}};
        memcpy(point[i].slice, slice[i], sizeof slice[i]);
        demand[i] = (weft_demand){.model = name[i], .rate_per_s = 1, .profile = {&point[i], 1, 0}};
        placement[i] = (weft_placement){.model = name[i],
                                        .type = "h100",
                                        .slice = slice[i],
                                        .mig_start = s->mig ? (int32_t)i : -1,
                                        .slice_id = (uint32_t)i,
                                        .share = s->share[i],
                                        .batch = 1,
                                        .procs = 1,
                                        .rate_per_s = 1,
                                        .capacity_per_s = 1};
    }
    for (size_t k = 0; k < s->n; k++) { /* in the order of time */
        size_t first = SLICES_MAX;
        for (size_t i = 0; i < s->n; i++)
            if (!done[i] && (first == SLICES_MAX || s->at_us[i] < s->at_us[first]))
                first = i;
        done[first] = true;
        size_t len = strlen(trace);
        snprintf(trace + len, sizeof trace - len, "%.9f,%s\n", s->at_us[first] / 1e6, name[first]);
    }
    const weft_demands demands = {demand, s->n};
    const weft_fleet_device device = {
        .type = "h100", .count = 1, .mig = s->mig, .mps = !s->mig, .bandwidth_gbps = 2000};
    const weft_fleet fleet = {"fleet", &device, 1};
    const weft_problem problem = {
        .demands = &demands, .fleet = &fleet, .rules = {.interference = s->interference}};
    const weft_plan plan = {.policy = "test", .at = placement, .n = s->n, .gpus = 1};
    const weft_sim_power power = {"h100", 0, 100};
    const weft_sim_options options = {.plan = &plan,
                                      .problem = &problem,
                                      .power = &power,
                                      .n_power = 1,
                                      .on_answer = note,
                                      .user = &out};
    const weft_service *service;
    weft_arrivals *arrivals;
    weft_sim_report report;
    size_t n;
    weft_sim_services(&problem, arena, &service, &n);
    assert_int_equal(
        weft_trace_open_text(trace, strlen(trace), "t", service, n, 1, arena, diag, &arrivals),
        WEFT_ERR_OK);
    assert_int_equal(weft_simulate(&options, arrivals, arena, diag, &report), WEFT_ERR_OK);
    assert_int_equal(report.total.count.answered, s->n);
    out.joules = report.energy_j;
    weft_arrivals_close(arrivals);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    return out;
}

static void expect_ends(const scene *s, const double *want)
{
    answers got = simulate(s);
    for (size_t i = 0; i < s->n; i++)
        if (!(fabs(got.end_us[i] - want[i]) < 0.05))
            fail_msg("slice %zu ends at %.3f us, not %.3f", i, got.end_us[i], want[i]);
}

/* a has half of its work done when b comes, the rest takes twice as long. b has then as much done
 * as a had left, and goes on alone. */
static void test_simulate_pace__two_halves(void **state)
{
    (void)state;
    const scene s = {.n = 2,
                     .share = {0.5, 0.5},
                     .idle_us = {1000, 1000},
                     .busy_us = {2000, 2000},
                     .at_us = {0, 500}};
    expect_ends(&s, (double[]){1500, 2000});
    scene alone = s;
    alone.at_us[1] = 5000;
    expect_ends(&alone, (double[]){1000, 6000});
}

/* By coefficients each goes on at its own time, times 1 and the bandwidth of what runs beside it. a
 * has half done when b comes, and goes on 1.25 times as slowly; b runs 1.5 times as slowly until
 * then. Times on an idle device do not count. */
static void test_simulate_pace__interference(void **state)
{
    (void)state;
    scene s = {.n = 2,
               .share = {0.5, 0.5},
               .idle_us = {100, 100},
               .busy_us = {1000, 1000},
               .at_us = {0, 500},
               .dram = {0.5, 0.25},
               .interference = {.c = {0, 0, 0, 1, 1}}};
    expect_ends(&s, (double[]){1125, 1125 + 1000 * (1 - 625.0 / 1500)});
    s.mig = true; /* none between instances */
    expect_ends(&s, (double[]){1000, 1500});
    /* Three: 0.5 + 0.25 beside c. */
    s = (scene){.n = 3,
                .share = {0.3, 0.3, 0.4},
                .busy_us = {4000, 4000, 1000},
                .at_us = {0, 0, 100},
                .dram = {0.5, 0.25},
                .interference = {.c = {0, 0, 0, 1, 1}}};
    expect_ends(&s, (double[]){5000, 5000 + 4000 * (1 - 5000 / 6000.0), 1850});
}

/* A neighbour with half of the rest of the device costs half. */
static void test_simulate_pace__a_part_of_the_rest(void **state)
{
    (void)state;
    const scene s = {.n = 2,
                     .share = {0.6, 0.2},
                     .idle_us = {1000, 100000},
                     .busy_us = {2000, 100000},
                     .at_us = {0, 0}};
    expect_ends(&s, (double[]){1500, 100000});
}

/* MIG instances do not slow each other down, and without idle_us nothing does. */
static void test_simulate_pace__apart(void **state)
{
    (void)state;
    scene s = {.n = 2,
               .share = {0.125, 0.125},
               .idle_us = {1000, 1000},
               .busy_us = {2000, 3000},
               .at_us = {0, 100},
               .mig = true};
    expect_ends(&s, (double[]){2000, 3100});
    s.mig = false;
    memset(s.idle_us, 0, sizeof s.idle_us);
    expect_ends(&s, (double[]){2000, 3100});
}

/* What a slice has left goes down by time over pace, from one start or end to the next. */
static void integrate(const scene *s, double *end_us)
{
    double left[SLICES_MAX], now = 0;
    bool done[SLICES_MAX] = {false};
    for (size_t i = 0; i < s->n; i++)
        left[i] = 1;
    for (size_t rest = s->n; rest > 0;) {
        double pace[SLICES_MAX] = {0}, next = HUGE_VAL;
        size_t ends = SLICES_MAX;
        for (size_t i = 0; i < s->n; i++) {
            double beside = 0;
            for (size_t k = 0; k < s->n; k++)
                if (k != i && !done[k] && s->at_us[k] <= now)
                    beside += s->share[k];
            double load = beside / (1 - s->share[i]);
            pace[i] = s->idle_us[i] + (s->busy_us[i] - s->idle_us[i]) * (load < 1 ? load : 1);
            if (!done[i] && s->at_us[i] <= now && now + left[i] * pace[i] < next) {
                next = now + left[i] * pace[i];
                ends = i;
            }
        }
        for (size_t i = 0; i < s->n; i++)
            if (s->at_us[i] > now && s->at_us[i] < next) {
                next = s->at_us[i];
                ends = SLICES_MAX;
            }
        for (size_t i = 0; i < s->n; i++)
            if (!done[i] && s->at_us[i] <= now)
                left[i] -= (next - now) / pace[i];
        now = next;
        if (ends < SLICES_MAX) {
            end_us[ends] = now;
            done[ends] = true;
            rest--;
        }
    }
}

static void test_simulate_pace__is_the_integral_over_the_load(void **state)
{
    (void)state;
    uint64_t seed = 20;
    for (int round = 0; round < RAND_ROUNDS(300); round++) {
        scene s = {.n = 2 + rand_below(&seed, SLICES_MAX - 1)};
        double want[SLICES_MAX];
        for (size_t i = 0; i < s.n; i++) {
            s.share[i] = (double)(5 + rand_below(&seed, 90 / (uint32_t)s.n)) / 100;
            s.idle_us[i] = 100 + rand_below(&seed, 10000);
            s.busy_us[i] = s.idle_us[i] + rand_below(&seed, 20000);
            s.at_us[i] = rand_below(&seed, 15000) + 0.1 * (double)i;
        }
        integrate(&s, want);
        expect_ends(&s, want);
    }
}

/* The energy of a batch is that of the profile at any pace. */
static void test_simulate_pace__energy_is_that_of_the_work(void **state)
{
    (void)state;
    const scene s = {.n = 3,
                     .share = {0.3, 0.3, 0.4},
                     .idle_us = {1000, 2000, 500},
                     .busy_us = {3000, 2500, 4000},
                     .at_us = {0, 700, 1100},
                     .energy_j = 2};
    answers got = simulate(&s);
    assert_true(fabs(got.joules - 6) < 1e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simulate_pace__two_halves),
        cmocka_unit_test(test_simulate_pace__interference),
        cmocka_unit_test(test_simulate_pace__a_part_of_the_rest),
        cmocka_unit_test(test_simulate_pace__apart),
        cmocka_unit_test(test_simulate_pace__is_the_integral_over_the_load),
        cmocka_unit_test(test_simulate_pace__energy_is_that_of_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
