/* base/use_histogram.h. */
#include "base/use_histogram.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const double rounding = 0.5 * WEFT_USEHIST_CELLS / WEFT_USEHIST_WHOLE;

static double next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 33) / 2147483648.0;
}

static void test_use_histogram__keeps_means(void **state)
{
    (void)state;
    uint64_t seed = 7;
    for (int run = 0; run < 200; run++) {
        weft_usehist_time sum = {{{0}}}, twice = {{{0}}};
        weft_usehist one, two;
        double compute = 0, bandwidth = 0, all = 0;
        for (int i = 0; i < 40; i++) {
            double u = next(&seed), v = next(&seed), time = next(&seed) * 100 + 0.01;
            weft_usehist_add(&sum, u, v, time);
            for (int k = 0; k < 2; k++)
                weft_usehist_add(&twice, u, v, time);
            compute += u * time;
            bandwidth += v * time;
            all += time;
        }
        assert_true(weft_usehist_make(&sum, &one) && weft_usehist_make(&twice, &two));
        assert_true(weft_usehist_is_known(&one));
        assert_memory_equal(&one, &two, sizeof one);
        assert_true(fabs(weft_usehist_mean(&one, WEFT_USEHIST_COMPUTE) - compute / all) < rounding);
        assert_true(fabs(weft_usehist_mean(&one, WEFT_USEHIST_BANDWIDTH) - bandwidth / all) <
                    rounding);
    }
}

static weft_usehist of_text(const char *text)
{
    weft_usehist use = {{{0}}};
    assert_true(weft_usehist_parse(text, &use));
    return use;
}

static void test_use_histogram__quantiles(void **state)
{
    (void)state;
    weft_usehist use = of_text("00:102 31:102 70:51"); /* 40 %, 40 %, 20 % of the time */
    assert_true(weft_usehist_quantile(&use, WEFT_USEHIST_COMPUTE, 0.3) == 0);
    assert_true(weft_usehist_quantile(&use, WEFT_USEHIST_COMPUTE, 0.8) == 3.0 / 7);
    assert_true(weft_usehist_quantile(&use, WEFT_USEHIST_COMPUTE, 0.9) == 1);
    assert_true(weft_usehist_quantile(&use, WEFT_USEHIST_COMPUTE, 1) == 1);
    assert_true(weft_usehist_quantile(&use, WEFT_USEHIST_BANDWIDTH, 1) == 1.0 / 7);
    assert_true(fabs(weft_usehist_above(&use, WEFT_USEHIST_COMPUTE, 3.0 / 7) - 0.2 * 4 / 7) <
                1e-12);
}

/* Beside sampling both runs at independent times. */
static void test_use_histogram__conflict(void **state)
{
    (void)state;
    weft_usehist a = of_text("00:100 72:55 36:100"), b = of_text("25:200 71:55");
    for (int kind = 0; kind < 2; kind++) {
        double expected = 0;
        for (int i = 0; i < 64; i++)
            for (int j = 0; j < 64; j++) {
                int u = kind == WEFT_USEHIST_COMPUTE ? i / 8 : i % 8;
                int v = kind == WEFT_USEHIST_COMPUTE ? j / 8 : j % 8;
                expected += (double)a.part[i / 8][i % 8] * b.part[j / 8][j % 8] / 255 / 255 *
                            fmax(0, (u + v - 7) / 7.0);
            }
        assert_true(expected > 0.01);
        assert_true(fabs(weft_usehist_conflict(&a, &b, kind) - expected) < 1e-12);
        assert_true(fabs(weft_usehist_conflict(&b, &a, kind) - expected) < 1e-12);
    }
    weft_usehist low = of_text("33:200 20:55"), high = of_text("44:255");
    assert_true(weft_usehist_conflict(&low, &high, WEFT_USEHIST_COMPUTE) == 0);
    assert_true(weft_usehist_conflict(&low, &high, WEFT_USEHIST_BANDWIDTH) == 0);
}

static void test_use_histogram__text(void **state)
{
    (void)state;
    static const char *const bad[] = {"",       "00:254",  "00:256",        "80:255",
                                      "0:255",  "00:0255", "00:100 00:155", "00:255 11:0",
                                      "00 255", "00:255x", "00:-1",         " 00:255"};
    weft_usehist use = of_text("00:1 07:2 70:3 77:249"), kept = use;
    char text[WEFT_USEHIST_TEXT_MAX];
    weft_usehist_format(&use, text);
    assert_string_equal(text, "00:1 07:2 70:3 77:249");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (weft_usehist_parse(bad[i], &use))
            fail_msg("'%s' was taken", bad[i]);
    assert_memory_equal(&use, &kept, sizeof use);
    weft_usehist_time all = {{{0}}};
    for (int i = 0; i < WEFT_USEHIST_CELLS; i++)
        all.at[i / 8][i % 8] = 1;
    assert_true(weft_usehist_make(&all, &use));
    weft_usehist_format(&use, text);
    assert_true(weft_usehist_parse(text, &kept));
    assert_memory_equal(&use, &kept, sizeof use);
}

static void test_use_histogram__no_time(void **state)
{
    (void)state;
    weft_usehist_time sum = {{{0}}};
    weft_usehist use;
    weft_usehist_add(&sum, 0.5, 0.5, 0);
    weft_usehist_add(&sum, 0.5, 0.5, -1);
    weft_usehist_add(&sum, 0.5, 0.5, NAN);
    assert_false(weft_usehist_make(&sum, &use));
    weft_usehist_add(&sum, NAN, 2, 1);
    assert_true(weft_usehist_make(&sum, &use));
    assert_int_equal(use.part[0][7], 255);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_use_histogram__keeps_means),
        cmocka_unit_test(test_use_histogram__quantiles),
        cmocka_unit_test(test_use_histogram__conflict),
        cmocka_unit_test(test_use_histogram__text),
        cmocka_unit_test(test_use_histogram__no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
