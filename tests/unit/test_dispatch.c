/* What a router decides: the choice of a variant against the definition, the credit of accuracy,
 * and queues whose batches have no sizes. Queues in time: test_admission.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "scheduler/scheduler.h"
#include "tests/support/rand.h"

#include <math.h>
#include <string.h>

enum { VARIANTS = 6 };

static double part(uint64_t *seed, uint32_t steps)
{
    return (double)(rand_next(seed) % steps);
}

/* The definition: no other variant that qualifies is preferred. */
static void check_pick(const weft_pick_variant *v, const weft_pick_query *q, weft_pick p)
{
    bool enough[VARIANTS], any_enough = false, any_ready = false, any_in_time = false;
    for (uint32_t i = 0; i < VARIANTS; i++) {
        bool mean = v[i].accuracy >= q->mean.least || //
                    q->mean.credit + v[i].accuracy >= q->mean.least;
        enough[i] = v[i].ready && mean && v[i].accuracy >= q->min_accuracy &&
                    (q->max_cost <= 0 || v[i].cost <= q->max_cost);
        any_ready = any_ready || v[i].ready;
        any_enough = any_enough || enough[i];
        any_in_time =
            any_in_time || (enough[i] && (q->latency_us <= 0 || v[i].finish_us <= q->latency_us));
    }
    if (!any_ready) {
        assert_int_equal(p.variant, UINT32_MAX);
        assert_int_equal(p.reason, WEFT_PICK_NONE);
        return;
    }
    assert_true(p.variant < VARIANTS && v[p.variant].ready);
    assert_int_equal(p.reason, any_in_time      ? WEFT_PICK_ACTIVE
                               : any_enough     ? WEFT_PICK_LATE
                               : q->best_effort ? WEFT_PICK_NEAREST
                                                : WEFT_PICK_NONE);
    const weft_pick_variant *at = &v[p.variant];
    for (uint32_t i = 0; i < VARIANTS && any_enough; i++) {
        if (!enough[i])
            continue;
        if (p.reason == WEFT_PICK_LATE) {
            assert_true(at->finish_us <= v[i].finish_us);
            continue;
        }
        if (q->latency_us > 0 && v[i].finish_us > q->latency_us)
            continue;
        assert_true(at->wait_us <= v[i].wait_us);
        if (v[i].wait_us <= at->wait_us) {
            assert_true(at->accuracy >= v[i].accuracy);
            assert_true(at->accuracy > v[i].accuracy || at->cost <= v[i].cost);
        }
    }
    if (any_enough)
        assert_true(enough[p.variant]);
}

static void test_pick__follows_its_definition(void **state)
{
    uint32_t seen[4] = {0};
    uint64_t seed = 17;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        weft_pick_variant v[VARIANTS];
        for (int i = 0; i < VARIANTS; i++) {
            double wait_us = part(&seed, 3) * 1000;
            v[i] = (weft_pick_variant){.accuracy = 60 + part(&seed, 8),
                                       .wait_us = wait_us,
                                       .finish_us = wait_us + 1 + part(&seed, 3000),
                                       .cost = part(&seed, 4),
                                       .ready = rand_next(&seed) % 3 > 0};
        }
        const weft_pick_query q = {.min_accuracy = rand_next(&seed) % 2 ? 60 + part(&seed, 10) : 0,
                                   .latency_us = rand_next(&seed) % 2 ? part(&seed, 4000) : 0,
                                   .max_cost = rand_next(&seed) % 2 ? part(&seed, 4) : 0,
                                   .mean.least = rand_next(&seed) % 2 ? 58 + part(&seed, 10) : 0,
                                   .mean.credit = part(&seed, 7) - 3,
                                   .best_effort = rand_next(&seed) % 2};
        weft_pick p = weft_pick_choose(v, VARIANTS, &q);
        check_pick(v, &q, p);
        seen[p.reason]++;
    }
    for (int i = 0; i < 4; i++)
        assert_true(seen[i] > 200);
}

/* Requests to an app that have a variant and no answer yet; those to the accurate variants are
 * refused or dropped more often. */
typedef struct waiting {
    double accuracy[64];
    uint32_t n;
} waiting;

/* Whatever is free when, and whatever is dropped: at no moment is the mean of the answers below the
 * one asked for. */
static void test_pick__mean_accuracy_holds(void **state)
{
    static const double accuracy[] = {60, 69.8, 76.1, 80};
    uint64_t seed = 3;
    (void)state;
    for (int round = 0; round < 50; round++) {
        weft_pick_mean mean = {.least = 60 + part(&seed, 200) / 10, .most = 80};
        waiting wait = {.n = 0};
        double sum = 0, low = 0;
        uint32_t n = 0, chosen = 0, dropped = 0;
        for (int i = 0; i < 8000; i++) {
            weft_pick_variant v[4];
            for (int k = 0; k < 4; k++)
                v[k] = (weft_pick_variant){.accuracy = accuracy[k],
                                           .wait_us = part(&seed, 4),
                                           .finish_us = 10,
                                           .ready = rand_next(&seed) % 4 > 0};
            const weft_pick_query q = {.mean = mean};
            weft_pick p = weft_pick_choose(v, 4, &q);
            if (p.reason != WEFT_PICK_NONE && wait.n < 64) {
                wait.accuracy[wait.n++] = accuracy[p.variant];
                weft_pick_begin(&mean, accuracy[p.variant]);
                chosen++;
            }
            if (wait.n == 0 || rand_next(&seed) % 2)
                continue;
            uint32_t at = (uint32_t)(rand_next(&seed) % wait.n);
            double got = wait.accuracy[at];
            bool answered = rand_next(&seed) % (got > 70 ? 3 : 8) > 0;
            wait.accuracy[at] = wait.accuracy[--wait.n];
            weft_pick_end(&mean, got, answered);
            assert_true(mean.credit <= 100 * (80 - mean.least) + 1e-9);
            dropped += !answered;
            if (!answered)
                continue;
            sum += got;
            low += got < mean.least;
            n++;
            assert_true(sum / n >= mean.least - 1e-6);
        }
        assert_true(n > 1000 && dropped > 200 && chosen > 2000);
        assert_true(mean.least > 79 || mean.least <= 60 || low > 0);
    }
}

/* -- When a request is due -------------------------------------------------------------------- */

static void test_line__the_host_cost_is_taken_off_the_slo(void **state)
{
    (void)state;
    assert_int_equal(weft_line_due_ns(5, 100, 0), 100005);
    assert_int_equal(weft_line_due_ns(5, 100, 30), 70005);
    assert_int_equal(weft_line_due_ns(5, 100, 100), 5);
    assert_int_equal(weft_line_due_ns(5, 100, 1e9), 5); /* never before it arrived */
    assert_int_equal(weft_line_due_ns(5, 0, 0), 1000000005);
    assert_int_equal(weft_line_due_ns(5, HUGE_VAL, 1000), 999000005);
}

/* -- New versions ----------------------------------------------------------------------------- */

static double binomial(uint64_t n, uint64_t k)
{
    double x = 1;
    for (uint64_t i = 0; i < k; i++)
        x = x * (double)(n - i) / (double)(i + 1);
    return x;
}

/* Fisher's exact test by enumeration: at look 0 it may spend 0.025, at look 2 1/240. */
static void test_canary__is_fishers_exact_test(void **state)
{
    uint32_t worse = 0;
    (void)state;
    for (uint64_t bad = 0; bad <= 12; bad++)
        for (uint64_t other = 0; other <= 12; other++) {
            const weft_canary_counts a = {120, bad}, b = {300, other};
            double p = 0;
            for (uint64_t x = bad; x <= bad + other; x++)
                p += binomial(bad + other, x) * binomial(420 - bad - other, 120 - x) /
                     binomial(420, 120);
            bool higher = (double)bad / 120 > (double)other / 300;
            assert_int_equal(weft_canary_is_worse(&a, &b, 0), higher && p <= 0.025);
            assert_int_equal(weft_canary_is_worse(&a, &b, 2), higher && p <= 0.05 / 12);
            worse += higher && p <= 0.025;
        }
    assert_in_range(worse, 20, 140);
    const weft_canary_counts few = {99, 99}, good = {1000, 0}, none = {99, 0}, all = {100, 100};
    assert_false(weft_canary_is_worse(&few, &good, 0));
    assert_false(weft_canary_is_worse(&all, &none, 0));
    assert_true(weft_canary_is_worse(&all, &good, 30));
}

/* Part of 2,000 versions that are aborted within 3,200 requests. */
static double aborted(double own, double others, uint64_t *seed)
{
    uint32_t n = 0;
    for (int run = 0; run < 2000; run++) {
        weft_canary_counts a = {0, 0}, b = {0, 0};
        for (uint32_t look = 0; a.requests < 3200;) {
            a.requests++;
            a.bad += rand_unit(seed) < own;
            for (int k = 0; k < 3; k++, b.requests++)
                b.bad += rand_unit(seed) < others;
            if (a.requests < weft_canary_look_at(look))
                continue;
            if (weft_canary_is_worse(&a, &b, look++)) {
                n++;
                break;
            }
        }
    }
    return n / 2000.0;
}

static void test_canary__false_alarms_and_power(void **state)
{
    uint64_t seed = 4;
    (void)state;
    assert_true(aborted(0.01, 0.01, &seed) <= 0.05);
    assert_true(aborted(0.2, 0.2, &seed) <= 0.05);
    assert_true(aborted(0.01, 0.05, &seed) <= 0.001); /* better than the others */
    assert_true(aborted(0.05, 0.01, &seed) > 0.99);
    assert_true(aborted(0.02, 0, &seed) > 0.99);
}

/* -- A queue whose model has one size of batches ---------------------------------------------- */

typedef struct queue {
    weft_waiting at[4];
    int n;
} queue;

static const void *next(const void *of, const void *at, weft_waiting *out)
{
    const queue *q = of;
    const weft_waiting *r = at ? (const weft_waiting *)at + 1 : q->at;
    if (r == q->at + q->n)
        return NULL;
    *out = *r;
    return r;
}

static weft_batch_time time_of(const void *of, int64_t rows)
{
    (void)of;
    return (weft_batch_time){1e7 * (double)rows, 0};
}

static void test_line__without_sizes(void **state)
{
    const uint64_t ms = 1000000;
    const queue q = {{{.due_ns = 5 * ms, .rows = 1, .promised = true},
                      {.due_ns = 50 * ms, .rows = 1, .promised = true}},
                     2};
    const weft_line line = {.of = &q, .next = next, .time = time_of, .most_rows = 1};
    const weft_crew none = {.n = 0}, busy = {.n = 1, .soonest_ns = 3e6};
    (void)state;
    weft_line_choice c = weft_line_choose(&line, 1, 0);
    assert_int_equal(c.drop, 1);
    assert_int_equal(c.most, 1);
    const weft_waiting last = {.due_ns = 60 * ms, .rows = 1};
    weft_forecast f = weft_line_forecast(&line, NULL, 0, &last, &busy, 0);
    assert_true(f.known && !f.at_once && f.start_ns == 23e6 && f.finish_ns == 33e6);
    assert_true(weft_forecast_late_ns(&f, 30 * ms, 0) == 4e6); /* and 1 ms of margin */
    assert_true(weft_forecast_late_ns(&f, 60 * ms, 0) == 0);
    f = weft_line_forecast(&line, NULL, 0, &last, &none, 0);
    assert_false(f.known);
    assert_true(weft_forecast_late_ns(&f, 1, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line__the_host_cost_is_taken_off_the_slo),
        cmocka_unit_test(test_canary__is_fishers_exact_test),
        cmocka_unit_test(test_canary__false_alarms_and_power),
        cmocka_unit_test(test_pick__follows_its_definition),
        cmocka_unit_test(test_pick__mean_accuracy_holds),
        cmocka_unit_test(test_line__without_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
