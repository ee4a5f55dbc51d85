/* base/narrow.h: small floats and integers, against a search over all codes. */
#include "base/narrow.h"
#include "base/tensor.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

static const weft_dtype floats[] = {WEFT_DTYPE_F8E4M3FN,   WEFT_DTYPE_F8E4M3FNUZ, WEFT_DTYPE_F8E5M2,
                                    WEFT_DTYPE_F8E5M2FNUZ, WEFT_DTYPE_F6E2M3,     WEFT_DTYPE_F6E3M2,
                                    WEFT_DTYPE_F4E2M1};
enum { N_FLOATS = sizeof floats / sizeof floats[0] };

static unsigned codes_of(weft_dtype dtype)
{
    return 1u << weft_dtype_bits(dtype);
}

/* Values that the formats' specifications list. */
static void test_narrow__known_values(void **state)
{
    (void)state;
    static const struct {
        weft_dtype dtype;
        uint8_t code;
        double value;
    } known[] = {
        {WEFT_DTYPE_F8E4M3FN, 0x7e, 448},
        {WEFT_DTYPE_F8E4M3FN, 0x08, 0x1p-6},
        {WEFT_DTYPE_F8E4M3FN, 0x01, 0x1p-9},
        {WEFT_DTYPE_F8E4M3FN, 0xb8, -1},
        {WEFT_DTYPE_F8E4M3FNUZ, 0x7f, 240},
        {WEFT_DTYPE_F8E4M3FNUZ, 0x01, 0x1p-10},
        {WEFT_DTYPE_F8E5M2, 0x7b, 57344},
        {WEFT_DTYPE_F8E5M2, 0x7c, (double)INFINITY},
        {WEFT_DTYPE_F8E5M2, 0xfc, -(double)INFINITY},
        {WEFT_DTYPE_F8E5M2, 0x01, 0x1p-16},
        {WEFT_DTYPE_F8E5M2FNUZ, 0x7f, 57344},
        {WEFT_DTYPE_F8E5M2FNUZ, 0x01, 0x1p-17},
        {WEFT_DTYPE_F8E8M0, 0x7f, 1},
        {WEFT_DTYPE_F8E8M0, 0x00, 0x1p-127},
        {WEFT_DTYPE_F8E8M0, 0xfe, 0x1p127},
        {WEFT_DTYPE_F6E2M3, 0x1f, 7.5},
        {WEFT_DTYPE_F6E2M3, 0x01, 0.125},
        {WEFT_DTYPE_F6E3M2, 0x1f, 28},
        {WEFT_DTYPE_F6E3M2, 0x01, 0.0625},
        {WEFT_DTYPE_F4E2M1, 0x7, 6},
        {WEFT_DTYPE_F4E2M1, 0x1, 0.5},
        {WEFT_DTYPE_F4E2M1, 0xd, -3},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(weft_narrow_to_f64(known[i].dtype, known[i].code) == known[i].value);
    static const struct {
        weft_dtype dtype;
        uint8_t code;
    } nans[] = {{WEFT_DTYPE_F8E4M3FN, 0x7f},   {WEFT_DTYPE_F8E4M3FN, 0xff},
                {WEFT_DTYPE_F8E4M3FNUZ, 0x80}, {WEFT_DTYPE_F8E5M2, 0x7d},
                {WEFT_DTYPE_F8E5M2, 0xff},     {WEFT_DTYPE_F8E5M2FNUZ, 0x80},
                {WEFT_DTYPE_F8E8M0, 0xff}};
    for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++)
        assert_true(isnan(weft_narrow_to_f64(nans[i].dtype, nans[i].code)));
}

/* The nearest finite value, of two the one with an even code; beyond the largest: saturated. */
static uint8_t search(weft_dtype dtype, double x)
{
    unsigned best = 0;
    double error = (double)INFINITY;
    for (unsigned code = 0; code < codes_of(dtype); code++) {
        double y = weft_narrow_to_f64(dtype, (uint8_t)code);
        if (!isfinite(y) || (y != 0 && (signbit(y) != 0) != (signbit(x) != 0)))
            continue;
        double e = fabs(y - x);
        if (e < error || (e == error && code % 2 == 0)) {
            best = code;
            error = e;
        }
    }
    return (uint8_t)best;
}

static void check_nearest(weft_dtype dtype, double x)
{
    uint8_t want = search(dtype, x), got = weft_narrow_from_f64(dtype, x, true);
    double a = weft_narrow_to_f64(dtype, got), b = weft_narrow_to_f64(dtype, want);
    if (got != want && !(a == 0 && b == 0))
        fail_msg("%s: %a became %a, expected %a", weft_dtype_name(dtype), x, a, b);
}

static void test_narrow__rounds_to_nearest_even(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (size_t k = 0; k < N_FLOATS; k++) {
        weft_dtype d = floats[k];
        double before = 0;
        for (unsigned code = 0; code < codes_of(d) / 2; code++) {
            double x = weft_narrow_to_f64(d, (uint8_t)code);
            if (!isfinite(x))
                break;
            assert_int_equal(weft_narrow_from_f64(d, x, false), code);
            double middle = (before + x) / 2; /* ties, and numbers beside them */
            check_nearest(d, middle);
            check_nearest(d, nextafter(middle, 1e9));
            check_nearest(d, -nextafter(middle, 0));
            before = x;
        }
        for (int i = 0; i < 2000; i++)
            check_nearest(d, ldexp(rand_unit(&seed) - 0.5, (int)(rand_unit(&seed) * 40) - 20));
    }
}

static void test_narrow__out_of_range(void **state)
{
    (void)state;
    const double inf = (double)INFINITY, big = 1e6;
    static const struct {
        weft_dtype dtype;
        uint8_t most, beyond; /* saturated, and not */
    } cases[] = {{WEFT_DTYPE_F8E4M3FN, 0x7e, 0x7f}, {WEFT_DTYPE_F8E4M3FNUZ, 0x7f, 0x80},
                 {WEFT_DTYPE_F8E5M2, 0x7b, 0x7c},   {WEFT_DTYPE_F8E5M2FNUZ, 0x7f, 0x80},
                 {WEFT_DTYPE_F6E2M3, 0x1f, 0x1f},   {WEFT_DTYPE_F6E3M2, 0x1f, 0x1f},
                 {WEFT_DTYPE_F4E2M1, 0x07, 0x07}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_dtype d = cases[i].dtype;
        uint8_t sign = (uint8_t)(codes_of(d) / 2);
        assert_int_equal(weft_narrow_from_f64(d, big, true), cases[i].most);
        assert_int_equal(weft_narrow_from_f64(d, -inf, true), cases[i].most | sign);
        assert_int_equal(weft_narrow_from_f64(d, inf, false), cases[i].beyond);
        assert_int_equal(weft_narrow_from_f64(d, -big, false), cases[i].beyond | sign);
        double nan = weft_narrow_to_f64(d, weft_narrow_from_f64(d, (double)NAN, true));
        assert_true(weft_dtype_bits(d) == 8 ? isnan(nan) : nan == 0 && signbit(nan));
    }
    /* 464 is in the middle of 448 and what would be 480, whose code is odd. */
    assert_int_equal(weft_narrow_from_f64(WEFT_DTYPE_F8E4M3FN, 464, false), 0x7e);
    assert_int_equal(weft_narrow_from_f64(WEFT_DTYPE_F8E4M3FN, 465, false), 0x7f);
    assert_int_equal(weft_narrow_from_f64(WEFT_DTYPE_F8E4M3FNUZ, -1e-9, true), 0);
    assert_int_equal(weft_narrow_from_f64(WEFT_DTYPE_F8E4M3FN, -1e-9, true), 0x80);
}

static void test_narrow__powers_of_two(void **state)
{
    (void)state;
    static const struct {
        double x;
        uint8_t up, down, nearest, strict; /* strict: nearest without saturation */
    } cases[] = {
        {1, 127, 127, 127, 127},
        {1.25, 128, 127, 127, 127},
        {1.5, 128, 127, 128, 128},
        {1.75, 128, 127, 128, 128},
        {0, 0, 0, 0, 255},
        {1e-60, 0, 0, 0, 255},
        {0x1p-127, 0, 0, 0, 0},
        {1e60, 254, 254, 254, 255},
        {0x1p127, 254, 254, 254, 254},
        {-1, 255, 255, 255, 255},
        {(double)INFINITY, 254, 254, 254, 255},
        {(double)NAN, 255, 255, 255, 255},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double x = cases[i].x;
        assert_int_equal(weft_e8m0_from_f64(x, true, WEFT_E8M0_UP), cases[i].up);
        assert_int_equal(weft_e8m0_from_f64(x, true, WEFT_E8M0_DOWN), cases[i].down);
        assert_int_equal(weft_e8m0_from_f64(x, true, WEFT_E8M0_NEAREST), cases[i].nearest);
        assert_int_equal(weft_e8m0_from_f64(x, false, WEFT_E8M0_NEAREST), cases[i].strict);
    }
}

static void test_narrow__integers(void **state)
{
    (void)state;
    assert_int_equal(weft_narrow_to_int(WEFT_DTYPE_I4, 0x0f), -1);
    assert_int_equal(weft_narrow_to_int(WEFT_DTYPE_I4, 0xf7), 7);
    assert_int_equal(weft_narrow_to_int(WEFT_DTYPE_U4, 0xff), 15);
    assert_int_equal(weft_narrow_to_int(WEFT_DTYPE_I2, 2), -2);
    assert_int_equal(weft_narrow_to_int(WEFT_DTYPE_U2, 7), 3);
    assert_int_equal(weft_narrow_from_int(WEFT_DTYPE_I4, -9), 7);
    assert_int_equal((int8_t)weft_narrow_from_int(WEFT_DTYPE_I4, 8), -8);
    uint8_t room[4] = {0};
    weft_tensor t = {.dtype = WEFT_DTYPE_I4, .rank = 1, .dim = {4}, .data = room};
    weft_tensor_set_i64(&t, 0, 100); /* saturates */
    weft_tensor_set_f64(&t, 1, -3.7);
    assert_int_equal(weft_tensor_get_i64(&t, 0), 7);
    assert_int_equal(weft_tensor_get_i64(&t, 1), -3);
}

static void test_narrow__unpack(void **state)
{
    (void)state;
    const uint8_t four[2] = {0x21, 0x0f}, two[1] = {0xe4}, six[3] = {0x41, 0x30, 0x10};
    uint8_t out[4];
    weft_narrow_unpack(WEFT_DTYPE_U4, four, 3, out);
    assert_memory_equal(out, ((uint8_t[]){1, 2, 15}), 3);
    weft_narrow_unpack(WEFT_DTYPE_I4, four, 3, out);
    assert_memory_equal(out, ((int8_t[]){1, 2, -1}), 3);
    weft_narrow_unpack(WEFT_DTYPE_U2, two, 4, out);
    assert_memory_equal(out, ((uint8_t[]){0, 1, 2, 3}), 4);
    weft_narrow_unpack(WEFT_DTYPE_F6E2M3, six, 4, out);
    assert_memory_equal(out, ((uint8_t[]){1, 1, 3, 4}), 4);
    assert_int_equal(weft_narrow_packed_bytes(WEFT_DTYPE_I4, 5), 3);
    assert_int_equal(weft_narrow_packed_bytes(WEFT_DTYPE_F6E2M3, 5), 4);
    assert_int_equal(weft_narrow_packed_bytes(WEFT_DTYPE_U2, 0), 0);
    assert_int_equal(weft_narrow_packed_bytes(WEFT_DTYPE_F64, 3), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_narrow__known_values),
        cmocka_unit_test(test_narrow__rounds_to_nearest_even),
        cmocka_unit_test(test_narrow__out_of_range),
        cmocka_unit_test(test_narrow__powers_of_two),
        cmocka_unit_test(test_narrow__integers),
        cmocka_unit_test(test_narrow__unpack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
