/* base/tensor.h: counts and converting access. */
#include "base/tensor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

static void test_tensor__numel_is_checked(void **state)
{
    (void)state;
    assert_int_equal(weft_numel(NULL, 0), 1);
    assert_int_equal(weft_numel((int64_t[]){2, 3, 4}, 3), 24);
    assert_int_equal(weft_numel((int64_t[]){2, -1, 4}, 3), -1);
    assert_int_equal(weft_numel((int64_t[]){0, -1}, 2), -1);
    assert_int_equal(weft_numel((int64_t[]){INT64_MAX, INT64_MAX, 0}, 3), 0);
    assert_int_equal(weft_numel((int64_t[]){INT64_MAX, 2}, 2), -1);
    assert_int_equal(weft_numel((int64_t[]){WEFT_NUMEL_MAX, 1}, 2), WEFT_NUMEL_MAX);
    assert_int_equal(weft_numel((int64_t[]){WEFT_NUMEL_MAX + 1}, 1), -1);
    assert_int_equal(weft_numel((int64_t[]){(int64_t)1 << 32, (int64_t)1 << 32}, 2), -1);
    weft_tensor t = {.dtype = WEFT_DTYPE_F16, .rank = 2, .dim = {3, 5}};
    assert_int_equal(weft_tensor_bytes(&t), 30);
}

static void test_tensor__set_saturates_and_get_reads_back(void **state)
{
    (void)state;
    static const struct {
        weft_dtype dtype;
        double lo, hi;
    } row[] = {{WEFT_DTYPE_I8, -128, 127},
               {WEFT_DTYPE_I16, -32768, 32767},
               {WEFT_DTYPE_I32, -2147483648.0, 2147483647.0},
               {WEFT_DTYPE_U8, 0, 255},
               {WEFT_DTYPE_U16, 0, 65535},
               {WEFT_DTYPE_U32, 0, 4294967295.0},
               {WEFT_DTYPE_I64, -0x1p63, 0x1p63},
               {WEFT_DTYPE_U64, 0, 0x1p64}};
    uint64_t data[2];
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        weft_tensor t = {.dtype = row[i].dtype, .rank = 1, .dim = {2}, .data = data};
        weft_tensor_set_f64(&t, 1, 1e300);
        assert_true(weft_tensor_get_f64(&t, 1) == row[i].hi);
        weft_tensor_set_f64(&t, 1, -INFINITY);
        assert_true(weft_tensor_get_f64(&t, 1) == row[i].lo);
        weft_tensor_set_f64(&t, 1, NAN);
        assert_true(weft_tensor_get_f64(&t, 1) == 0);
        weft_tensor_set_f64(&t, 1, 42.9);
        assert_int_equal(weft_tensor_get_i64(&t, 1), 42);
        weft_tensor_set_i64(&t, 0, -1);
        assert_int_equal(weft_tensor_get_i64(&t, 0), row[i].lo < 0 ? -1 : 0);
        assert_int_equal(weft_tensor_get_i64(&t, 1), 42);
    }
    weft_tensor t = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {2}, .data = data};
    weft_tensor_set_i64(&t, 0, INT64_MAX);
    assert_int_equal(weft_tensor_get_i64(&t, 0), INT64_MAX);
    t.dtype = WEFT_DTYPE_U64;
    weft_tensor_set_f64(&t, 0, 1e19);
    assert_int_equal(weft_tensor_get_i64(&t, 0), INT64_MAX);
    assert_true(weft_tensor_get_f64(&t, 0) == 1e19);
}

static void test_tensor__floats_round_once(void **state)
{
    (void)state;
    double data[1];
    weft_tensor t = {.dtype = WEFT_DTYPE_F16, .rank = 0, .data = data};
    /* Just above the middle of 1 and the next half: a float in between would round it to the tie.
     */
    weft_tensor_set_f64(&t, 0, 1 + 0x1p-11 + 0x1p-40);
    assert_true(weft_tensor_get_f64(&t, 0) == 1 + 0x1p-10);
    weft_tensor_set_f64(&t, 0, -1 - 0x1p-11 + 0x1p-40);
    assert_true(weft_tensor_get_f64(&t, 0) == -1);
    weft_tensor_set_f64(&t, 0, 1e300);
    assert_true(isinf(weft_tensor_get_f64(&t, 0)));
    weft_tensor_set_f64(&t, 0, NAN);
    assert_true(isnan(weft_tensor_get_f64(&t, 0)));
    assert_int_equal(weft_tensor_get_i64(&t, 0), 0);
    t.dtype = WEFT_DTYPE_BF16;
    weft_tensor_set_f64(&t, 0, 1 + 0x1p-8 + 0x1p-40);
    assert_true(weft_tensor_get_f64(&t, 0) == 1 + 0x1p-7);
    t.dtype = WEFT_DTYPE_F32;
    weft_tensor_set_i64(&t, 0, 16777217);
    assert_int_equal(weft_tensor_get_i64(&t, 0), 16777216);
    t.dtype = WEFT_DTYPE_F64;
    weft_tensor_set_f64(&t, 0, -1e300);
    assert_int_equal(weft_tensor_get_i64(&t, 0), INT64_MIN);
    t.dtype = WEFT_DTYPE_BOOL;
    weft_tensor_set_f64(&t, 0, 0.25);
    assert_int_equal(weft_tensor_get_i64(&t, 0), 1);
    assert_true(weft_tensor_get_f64(&t, 0) == 1);
    t.dtype = WEFT_DTYPE_NONE;
    weft_tensor_set_f64(&t, 0, 3);
    assert_true(weft_tensor_get_f64(&t, 0) == 0);
}

static void test_tensor__reads_at_any_address(void **state)
{
    (void)state;
    unsigned char bytes[24] = {0};
    const float f[2] = {1.5f, -2};
    const int64_t i[2] = {-3, INT64_MAX};
    weft_tensor t = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = bytes + 1};
    memcpy(bytes + 1, f, sizeof f);
    assert_true(weft_tensor_get_f64(&t, 1) == -2);
    t.dtype = WEFT_DTYPE_I64;
    memcpy(bytes + 1, i, sizeof i);
    assert_int_equal(weft_tensor_get_i64(&t, 0), -3);
    assert_int_equal(weft_tensor_get_i64(&t, 1), INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor__numel_is_checked),
        cmocka_unit_test(test_tensor__set_saturates_and_get_reads_back),
        cmocka_unit_test(test_tensor__floats_round_once),
        cmocka_unit_test(test_tensor__reads_at_any_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
