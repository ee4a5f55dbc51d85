/* base/num.h: checked arithmetic, numbers with units. */
#include "base/num.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

static void test_num__checked_arithmetic_at_the_edges(void **state)
{
    (void)state;
    static const int64_t edge[] = {
        INT64_MIN,  INT64_MIN + 1, INT64_MIN / 2, -3037000500,   -2,       -1, 0, 1, 2,
        3037000499, 3037000500,    INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
    enum { N = sizeof edge / sizeof edge[0] };
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            int64_t x = 99;
            long double sum = (long double)edge[i] + (long double)edge[j];
            bool fits = sum >= -0x1p63L && sum < 0x1p63L;
            assert_int_equal(weft_i64_add(edge[i], edge[j], &x), fits);
            assert_int_equal(x, fits ? (int64_t)((uint64_t)edge[i] + (uint64_t)edge[j]) : 99);
            x = 99;
            long double product = (long double)edge[i] * (long double)edge[j];
            fits = product >= -0x1p63L && product < 0x1p63L;
            assert_int_equal(weft_i64_mul(edge[i], edge[j], &x), fits);
            assert_int_equal(x, fits ? (int64_t)((uint64_t)edge[i] * (uint64_t)edge[j]) : 99);
        }
    }
    uint64_t u = 5;
    assert_false(weft_size_mul((uint64_t)1 << 32, (uint64_t)1 << 32, &u));
    assert_false(weft_size_add(UINT64_MAX, 1, &u));
    assert_int_equal(u, 5);
    assert_int_equal(weft_align_up(17, 16), 32);
}

static void test_num__integers_are_read_strictly(void **state)
{
    (void)state;
    int64_t x = 0;
    assert_true(weft_parse_i64("-9223372036854775808", &x) && x == INT64_MIN);
    assert_true(weft_parse_i64("9223372036854775807", &x) && x == INT64_MAX);
    assert_true(weft_parse_i64("007", &x) && x == 7);
    static const char *const wrong[] = {"",
                                        "-",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1.0",
                                        "0x10",
                                        "--1",
                                        "1e3",
                                        "9223372036854775808",
                                        "-9223372036854775809",
                                        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(weft_parse_i64(wrong[i], &x));
    assert_int_equal(x, 7);
}

static void test_num__floats_are_read_strictly(void **state)
{
    (void)state;
    double x = 0;
    assert_true(weft_parse_f64("1.5", &x) && x == 1.5);
    assert_true(weft_parse_f64("-.5e-3", &x) && x == -.5e-3);
    assert_true(weft_parse_f64("3.", &x) && x == 3);
    assert_true(weft_parse_f64("5e-324", &x) && x == 5e-324);
    assert_true(weft_parse_f64("-inf", &x) && isinf(x) && x < 0);
    assert_true(weft_parse_f64("nan", &x) && isnan(x));
    x = 2;
    static const char *const wrong[] = {"",      ".",     "-",   "e5", "1e",  "1e+",
                                        "0x1p3", " 1",    "1 ",  "+1", "1,5", "infinity",
                                        "1e999", "1.5.2", "INF", "1f"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(weft_parse_f64(wrong[i], &x));
    assert_true(x == 2);
}

static void test_num__units(void **state)
{
    (void)state;
    double x;
    uint64_t n = 0;
    assert_true(weft_parse_duration_us("108ms", &x) && x == 108000);
    assert_true(weft_parse_duration_us("1.5s", &x) && x == 1.5e6);
    assert_true(weft_parse_duration_us("250us", &x) && x == 250);
    assert_true(weft_parse_duration_us("2min", &x) && x == 120e6);
    assert_false(weft_parse_duration_us("5", &x) || weft_parse_duration_us("-5ms", &x) ||
                 weft_parse_duration_us("5 ms", &x) || weft_parse_duration_us("ms", &x) ||
                 weft_parse_duration_us("infs", &x) || weft_parse_duration_us("1e308h", &x));
    assert_true(weft_parse_rate_per_s("829/s", &x) && x == 829);
    assert_true(weft_parse_rate_per_s("60/min", &x) && x == 1);
    assert_false(weft_parse_rate_per_s("829", &x) || weft_parse_rate_per_s("-1/s", &x));
    assert_true(weft_parse_percent("40%", &x) && x == 0.4);
    assert_false(weft_parse_percent("40", &x) || weft_parse_percent("40%%", &x) ||
                 weft_parse_percent("nan%", &x));
    assert_true(weft_parse_bytes("64MiB", &n) && n == 64u << 20);
    assert_true(weft_parse_bytes("1.5GB", &n) && n == 1500000000);
    assert_true(weft_parse_bytes("4096", &n) && n == 4096);
    assert_true(weft_parse_bytes("18446744073709551615", &n) && n == UINT64_MAX);
    assert_true(weft_parse_bytes("0.5kB", &n) && n == 500);
    static const char *const wrong[] = {"",
                                        "-1",
                                        "1 MB",
                                        "MB",
                                        "18446744073709551616",
                                        "99999999TiB",
                                        "1.5",
                                        "0.5B",
                                        "16777216.5TiB",
                                        "1e3MB",
                                        "1mb"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(weft_parse_bytes(wrong[i], &n));
    assert_int_equal(n, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_num__checked_arithmetic_at_the_edges),
        cmocka_unit_test(test_num__integers_are_read_strictly),
        cmocka_unit_test(test_num__floats_are_read_strictly),
        cmocka_unit_test(test_num__units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
