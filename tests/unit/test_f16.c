/* base/f16.h: all 65,536 halves, and rounding against arithmetic on doubles. */
#include "base/f16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The value of a half by its definition. */
static double define_f16(uint16_t h)
{
    int exp = h >> 10 & 31, mant = h & 1023;
    double x = exp == 0 ? ldexp(mant, -24) : ldexp(1024 + mant, exp - 25);
    return h & 0x8000 ? -x : x;
}

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static void test_f16__every_half_widens_and_narrows_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = weft_f16_to_f32((uint16_t)h);
        if ((h & 0x7c00) == 0x7c00) {
            assert_true(h & 0x3ff ? isnan(f) : isinf(f));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(weft_f16_from_f32(f), h & 0x3ff ? h | 0x200 : h);
        } else {
            assert_true((double)f == define_f16((uint16_t)h));
            assert_int_equal(signbit(f) != 0, h >> 15);
            assert_int_equal(weft_f16_from_f32(f), h);
        }
        float b = weft_bf16_to_f32((uint16_t)h);
        assert_int_equal(bits_of(b), h << 16);
        if (isnan(b))
            assert_true(isnan(weft_bf16_to_f32(weft_bf16_from_f32(b))));
        else
            assert_int_equal(weft_bf16_from_f32(b), h);
    }
}

static void test_f16__ties_go_to_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7bff; h++) {
        double lo = define_f16((uint16_t)h), hi = define_f16((uint16_t)(h + 1));
        float mid = (float)((lo + hi) / 2);
        assert_int_equal(weft_f16_from_f32(mid), h & 1 ? h + 1 : h);
        assert_int_equal(weft_f16_from_f32(nextafterf(mid, 0)), h);
        assert_int_equal(weft_f16_from_f32(nextafterf(mid, 1e6f)), h + 1);
        assert_int_equal(weft_f16_from_f32(-mid), 0x8000 | (h & 1 ? h + 1 : h));
    }
    assert_int_equal(weft_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(weft_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(weft_f16_from_f32(1e30f), 0x7c00);
    assert_int_equal(weft_f16_from_f32(-1e-30f), 0x8000);
    for (uint32_t h = 0; h < 0x7f7f; h++) {
        uint32_t mid = h << 16 | 0x8000, above = mid + 1, below = mid - 1;
        float f[3];
        memcpy(&f[0], &mid, 4);
        memcpy(&f[1], &above, 4);
        memcpy(&f[2], &below, 4);
        assert_int_equal(weft_bf16_from_f32(f[0]), h & 1 ? h + 1 : h);
        assert_int_equal(weft_bf16_from_f32(f[1]), h + 1);
        assert_int_equal(weft_bf16_from_f32(f[2]), h);
    }
}

static void test_f16__arrays_agree_with_single_values(void **state)
{
    (void)state;
    enum { N = 65536 + 7 };
    uint16_t *half = malloc(N * sizeof *half), *back = malloc(N * sizeof *back);
    float *wide = malloc(N * sizeof *wide);
    for (uint32_t i = 0; i < N; i++)
        half[i] = (uint16_t)i;
    weft_f16_to_f32_array(half, wide, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(bits_of(wide[i]), bits_of(weft_f16_to_f32(half[i])));
    weft_f16_from_f32_array(wide, back, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(back[i], weft_f16_from_f32(wide[i]));
    weft_bf16_to_f32_array(half, wide, N);
    weft_bf16_from_f32_array(wide, back, N);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(bits_of(wide[i]), (uint32_t)half[i] << 16);
        assert_int_equal(back[i], weft_bf16_from_f32(wide[i]));
    }
    weft_f16_to_f32_array(half, wide, 0);
    uint8_t *odd = malloc(2 * N + 1);
    memcpy(odd + 1, half, 2 * N);
    weft_f16_to_f32_array(odd + 1, wide, N);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(bits_of(wide[i]), bits_of(weft_f16_to_f32(half[i])));
    free(odd);
    free(half);
    free(back);
    free(wide);
}

static void test_f16__tf32_keeps_ten_bits(void **state)
{
    (void)state;
    static const float want[][2] = {
        {1, 1},
        {-60000, -60000},
        {1 + 0x1p-10f, 1 + 0x1p-10f},
        {1 + 0x1p-11f, 1}, /* ties go to even */
        {1 + 0x1p-10f + 0x1p-11f, 1 + 0x1p-9f},
        {1 + 0x1p-11f + 0x1p-23f, 1 + 0x1p-10f},
        {-2 + 0x1p-23f, -2}, /* into the exponent */
        {0x1.fffp127f, INFINITY},
        {0x1p-149f, 0},
        {-INFINITY, -INFINITY},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(weft_tf32_from_f32(want[i][0]) == want[i][1]);
    assert_true(isnan(weft_tf32_from_f32(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f16__every_half_widens_and_narrows_back),
        cmocka_unit_test(test_f16__ties_go_to_even),
        cmocka_unit_test(test_f16__tf32_keeps_ten_bits),
        cmocka_unit_test(test_f16__arrays_agree_with_single_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
