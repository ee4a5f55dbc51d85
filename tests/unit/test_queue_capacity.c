/* Batch service of random arrivals: the exact chain against M/D/1 and a small simulation, the
 * closed form against the chain, and numbers out of range. */
#include "scheduler/builder/builder.h"

#include "../support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { BATCH_MAX = 256, REQUESTS = 400000 };

static const double full_us = 1000;

/* e(k) / e(B) = alpha + (1 - alpha) k / B. */
static void fill_times(double *exec_us, uint32_t batch, double alpha)
{
    for (uint32_t k = 1; k <= batch; k++)
        exec_us[k - 1] = full_us * (alpha + (1 - alpha) * k / batch);
}

/* M/D/1: P(wait <= t) = (1 - rho) sum over j <= t / e of (-r (t - j e))^j exp(r (t - j e)) / j!
 * (A. K. Erlang, 1909). */
static double md1_late(double rate_per_us, double e, double slo_us)
{
    double t = slo_us - e, sum = 0;
    for (uint32_t j = 0; j * e <= t; j++) {
        double x = rate_per_us * (t - j * e);
        sum += pow(-x, j) * exp(x) / tgamma(j + 1.0);
    }
    return 1 - (1 - rate_per_us * e) * sum;
}

static void test_queue_chain__is_md1_for_batch_one(void **state)
{
    static const double load[] = {0.1, 0.3, 0.5, 0.7}, slo[] = {2.1, 3, 4.5, 6};
    weft_queue_chain chain = {.exec_us = &full_us, .batch = 1, .procs = 1};
    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            double want = md1_late(load[i] / full_us, full_us, slo[k] * full_us);
            double got = weft_queue_chain__late(&chain, load[i] * 1e6 / full_us, slo[k] * full_us);
            assert_true(fabs(got - want) < 0.02 * want + 2e-4);
        }
}

/* One process takes min(waiting, batch) requests whenever it is idle. */
static double simulate_late(const weft_queue_chain *in, double rate_per_s, double slo_us,
                            uint64_t seed)
{
    double *at = malloc(REQUESTS * sizeof *at), now = 0, free_at = 0;
    uint32_t late = 0;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        double u = (double)(rand_next(&seed) % 1000000 + 1) / 1000001;
        at[i] = now += -log(u) * 1e6 / rate_per_s;
    }
    for (uint32_t i = 0; i < REQUESTS;) {
        double start = fmax(free_at, at[i]);
        uint32_t n = 1;
        while (n < in->batch && i + n < REQUESTS && at[i + n] <= start)
            n++;
        free_at = start + in->exec_us[n - 1];
        for (uint32_t k = 0; k < n; k++)
            late += free_at - at[i + k] > slo_us;
        i += n;
    }
    free(at);
    return (double)late / REQUESTS;
}

/* The late share changes by a factor of some per cent of load, so loads are compared: at 3 % less
 * than the capacity of the chain at most 1 % are late in the simulation, at 3 % more at least. */
static void test_queue_chain__agrees_with_simulation(void **state)
{
    static const struct {
        uint32_t batch;
        double alpha, slo;
    } cases[] = {{1, 0.5, 3},   {2, 0.1, 2.1}, {4, 0.5, 3},
                 {4, 0.9, 2.5}, {8, 0.5, 2.3}, {16, 0.3, 3}};
    double exec_us[BATCH_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fill_times(exec_us, cases[i].batch, cases[i].alpha);
        weft_queue_chain chain = {.exec_us = exec_us, .batch = cases[i].batch, .procs = 1};
        double slo_us = cases[i].slo * full_us;
        double rate = weft_queue_chain__rate_per_s(&chain, slo_us, 0.99);
        assert_true(rate > 0);
        assert_true(simulate_late(&chain, rate * 0.97, slo_us, 7 + i) < 0.01);
        assert_true(simulate_late(&chain, rate * 1.03, slo_us, 7 + i) > 0.01);
    }
}

static void test_queue_capacity__is_safe_and_close(void **state)
{
    static const double alpha[] = {0.1, 0.5, 0.9}, slo[] = {2.1, 2.5, 3, 4};
    double exec_us[BATCH_MAX];
    (void)state;
    for (uint32_t batch = 1; batch <= 16; batch *= 2)
        for (size_t i = 0; i < 12; i++) {
            fill_times(exec_us, batch, alpha[i % 3]);
            weft_queue_chain chain = {.exec_us = exec_us, .batch = batch, .procs = 1};
            weft_queue q = {batch, 1, full_us, full_us, 0.99};
            double slo_us = slo[i / 3] * full_us, peak = weft_queue__peak_per_s(&q);
            double exact = weft_queue_chain__rate_per_s(&chain, slo_us, 0.99);
            double closed = weft_queue__rate_per_s(&q, slo_us);
            assert_true(closed <= exact + 0.004 * peak);
            assert_true(slo[i / 3] < 3 || closed >= exact - 0.09 * peak);
            assert_true(closed > 0.1 * peak);
        }
}

/* The latency at the capacity without its margin is the SLO, and both rise with what they depend
 * on. */
static void test_queue_capacity__latency_is_the_inverse(void **state)
{
    (void)state;
    for (uint32_t batch = 1; batch <= 128; batch *= 2) {
        double before = 0;
        for (double slo = 2.05; slo < 40; slo *= 1.3) {
            weft_queue q = {batch, 1, full_us, full_us, 0.99};
            double rate = weft_queue__rate_per_s(&q, slo * full_us);
            double latency = weft_queue__latency_us(&q, rate);
            assert_true(rate > before && rate < weft_queue__peak_per_s(&q));
            assert_true(latency < slo * full_us);
            latency = weft_queue__latency_us(&q, rate / 0.995);
            assert_true(fabs(latency - slo * full_us) < 1e-4 * slo * full_us);
            assert_true(weft_queue__latency_us(&q, rate * 0.9) <= latency);
            before = rate;
        }
    }
}

static void test_queue_capacity__numbers_out_of_range(void **state)
{
    weft_queue q = {8, 1, full_us, full_us, 0.99}, bad = q;
    double times[2] = {1, NAN};
    weft_queue_chain chain = {.exec_us = times, .batch = 2, .procs = 1};
    (void)state;
    assert_true(weft_queue__rate_per_s(&q, 1.9 * full_us) == 0);
    assert_true(weft_queue__rate_per_s(&q, NAN) == 0);
    assert_true(weft_queue__rate_per_s(&q, -1) == 0);
    assert_true(weft_queue__rate_per_s(&q, HUGE_VAL) > 0.99 * weft_queue__peak_per_s(&q));
    assert_true(weft_queue__rate_per_s(&q, 1e15) <= weft_queue__peak_per_s(&q));
    assert_true(weft_queue__latency_us(&q, 0) == 2 * full_us);
    assert_true(isinf(weft_queue__latency_us(&q, weft_queue__peak_per_s(&q))));
    assert_true(isinf(weft_queue__latency_us(&q, NAN)));
    bad.exec_us = NAN;
    assert_true(weft_queue__rate_per_s(&bad, 3 * full_us) == 0);
    bad = q;
    bad.batch = 0;
    assert_true(weft_queue__rate_per_s(&bad, 3 * full_us) == 0);
    bad = q;
    bad.batch = 1 << 20;
    assert_true(weft_queue__rate_per_s(&bad, 3 * full_us) > 0.99 * weft_queue__peak_per_s(&bad));
    assert_true(weft_queue_chain__late(&chain, 10, 100) == 1);
    times[1] = 2;
    assert_true(weft_queue_chain__late(&chain, 0, 100) == 0);
    assert_true(weft_queue_chain__late(&chain, 1e6, 100) == 1); /* at the peak */
    assert_true(weft_queue_chain__late(&chain, NAN, 100) == 1);
    assert_true(weft_queue_chain__rate_per_s(&chain, 0.5, 0.99) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_chain__is_md1_for_batch_one),
        cmocka_unit_test(test_queue_chain__agrees_with_simulation),
        cmocka_unit_test(test_queue_capacity__is_safe_and_close),
        cmocka_unit_test(test_queue_capacity__latency_is_the_inverse),
        cmocka_unit_test(test_queue_capacity__numbers_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
