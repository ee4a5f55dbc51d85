/* Generated requests: rates, gaps and bursts against their formulas; services do not depend on each
 * other. */
#include "scheduler/simulate/arrivals_int.h"

#include "base/diag.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static weft_arrivals *generate(weft_arrivals_options o, const weft_service *service, size_t n)
{
    weft_arrivals *a = NULL;
    assert_int_equal(weft_arrivals_generate(&o, service, n, arena, diag, &a), WEFT_ERR_OK);
    return a;
}

static bool next(weft_arrivals *a, weft_arrival *out)
{
    bool more;
    assert_int_equal(weft_arrivals_next(a, out, &more), WEFT_ERR_OK);
    return more;
}

static void test_arrivals__logarithm_and_exponential_are_exact(void **state)
{
    uint64_t seed = 1;
    (void)state;
    for (int i = 0; i < 200000; i++) {
        (void)rand_next(&seed);
        double u = ((double)(seed >> 12) + 0.5) * 0x1p-52;
        double x = ldexp(u, (int)(seed % 80) - 40);
        assert_true(fabs(weft_num__ln(x) - log(x)) <= 1e-15 * fabs(log(x)) + 1e-16);
        double e = -u * 60;
        assert_true(fabs(weft_num__exp(e) - exp(e)) <= 2e-15 * exp(e));
    }
    assert_true(weft_num__exp(0) == 1 && weft_num__exp(-1000) == 0);
}

static void test_arrivals__constant_has_no_drift(void **state)
{
    const weft_service service = {"m", 3};
    weft_arrivals *a = generate(
        (weft_arrivals_options){.kind = WEFT_ARRIVE_CONSTANT, .duration_s = 100000}, &service, 1);
    weft_arrival r = {0};
    uint64_t n = 0;
    (void)state;
    for (; next(a, &r); n++)
        assert_true(fabs((double)r.time_ns - ((double)n + 0.5) * 1e9 / 3) <= 1);
    assert_int_equal(n, 300000);
}

/* Mean and variance of the gaps, and the Kolmogorov distance to their distribution. */
static void test_arrivals__poisson_gaps_are_exponential(void **state)
{
    const weft_service service = {"m", 1000};
    weft_arrivals *a =
        generate((weft_arrivals_options){.duration_s = 1000, .seed = 3}, &service, 1);
    double sum = 0, square = 0, below[20] = {0};
    int64_t last = 0;
    weft_arrival r;
    uint64_t n = 0;
    (void)state;
    for (; next(a, &r); n++) {
        double gap = (double)(r.time_ns - last) / 1e6;
        last = r.time_ns;
        sum += gap;
        square += gap * gap;
        for (int k = 0; k < 20; k++)
            below[k] += gap < (k + 1) * 0.2;
    }
    double mean = sum / (double)n;
    assert_true(n > 996000 && n < 1004000);
    assert_true(fabs(square / (double)n - mean * mean - 1) < 0.01);
    for (int k = 0; k < 20; k++)
        assert_true(fabs(below[k] / (double)n - (1 - exp(-(k + 1) * 0.2))) < 0.003);
}

/* Mean rate, and the index of dispersion of counts in long windows (arrivals.c has the formula). */
static void test_arrivals__bursts_have_their_dispersion(void **state)
{
    const weft_service service = {"m", 200};
    weft_arrivals *a = generate((weft_arrivals_options){.kind = WEFT_ARRIVE_BURSTY,
                                                        .duration_s = 200000,
                                                        .seed = 5,
                                                        .burst_factor = 6,
                                                        .burst_share = 0.2,
                                                        .burst_s = 0.5},
                                &service, 1);
    enum { WINDOWS = 4000 };
    static double count[WINDOWS];
    weft_arrival r;
    double sum = 0, square = 0;
    (void)state;
    while (next(a, &r))
        count[r.time_ns / 50000000000]++;
    for (int i = 0; i < WINDOWS; i++) {
        sum += count[i];
        square += count[i] * count[i];
    }
    double mean = sum / WINDOWS, idc = (square / WINDOWS - mean * mean) / mean;
    double calm = 200 / (1 - 0.2 + 0.2 * 6), burst = 6 * calm, s1 = 1 / 2.0, s2 = 1 / 0.5;
    double want = 1 + 2 * (burst - calm) * (burst - calm) * s1 * s2 /
                          ((s1 + s2) * (s1 + s2) * (calm * s2 + burst * s1));
    assert_true(fabs(mean / 50 - 200) < 2);
    assert_true(fabs(idc / want - 1) < 0.08);
}

static void test_arrivals__a_service_keeps_its_own(void **state)
{
    const weft_service both[] = {{"a", 50}, {"b", 70}}, one = {"b", 70};
    weft_arrivals_options o = {.duration_s = 100, .seed = 9};
    weft_arrivals *x = generate(o, both, 2), *y = generate(o, &one, 1);
    weft_arrival r, s;
    int64_t last = 0;
    uint64_t n = 0;
    (void)state;
    while (next(x, &r)) {
        assert_true(r.time_ns >= last);
        last = r.time_ns;
        if (r.service == 0)
            continue;
        assert_true(next(y, &s));
        assert_int_equal(r.time_ns, s.time_ns);
        n++;
    }
    assert_false(next(y, &s));
    assert_true(n > 6500);
}

static void test_arrivals__refuses_absurd_options(void **state)
{
    static const weft_arrivals_options wrong[] = {
        {.duration_s = 0},
        {.duration_s = -1},
        {.duration_s = 1e10},
        {.duration_s = NAN},
        {.duration_s = 1, .burst_share = 1},
        {.duration_s = 1, .burst_factor = -2},
        {.duration_s = 1, .burst_s = INFINITY},
    };
    const weft_service ok = {"m", 1};
    weft_arrivals *a;
    weft_arrival r;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(weft_arrivals_generate(&wrong[i], &ok, 1, arena, diag, &a),
                         WEFT_ERR_INPUT);
    const double rates[] = {-1, 1e10, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        const weft_service bad = {"m", rates[i]};
        assert_int_equal(weft_arrivals_generate(&(weft_arrivals_options){.duration_s = 1}, &bad, 1,
                                                arena, diag, &a),
                         WEFT_ERR_INPUT);
    }
    /* A rate of zero, and a rate so small that no request comes. */
    const weft_service rare[] = {{"m", 0}, {"n", 1e-300}};
    a = generate((weft_arrivals_options){.duration_s = 1e9}, rare, 2);
    assert_false(next(a, &r));
}

static void test_arrivals__another_speed_keeps_the_order(void **state)
{
    const weft_service two[] = {{"m", 300}, {"n", 200}};
    const weft_arrivals_options o = {.duration_s = 20, .seed = 5};
    weft_arrivals *plain = generate(o, two, 2), *fast = generate(o, two, 2);
    weft_arrival a, b;
    size_t n = 0;
    (void)state;
    weft_arrivals_speed(fast, 4, arena, &fast);
    while (next(plain, &a)) {
        assert_true(next(fast, &b));
        assert_int_equal(a.service, b.service);
        assert_true(llabs(b.time_ns * 4 - a.time_ns) <= 2);
        n++;
    }
    assert_true(n > 9000);
    assert_false(next(fast, &b));
    weft_arrivals_close(fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_arrivals__logarithm_and_exponential_are_exact, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__constant_has_no_drift, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__poisson_gaps_are_exponential, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__bursts_have_their_dispersion, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__a_service_keeps_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__refuses_absurd_options, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_arrivals__another_speed_keeps_the_order, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
