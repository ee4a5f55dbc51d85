/* base/dtype.h and base/err.h: tables. */
#include "base/dtype.h"
#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

static void test_dtype__names_read_back(void **state)
{
    (void)state;
    for (int i = WEFT_DTYPE_NONE + 1; i < WEFT_DTYPE_COUNT; i++) {
        weft_dtype d = (weft_dtype)i;
        assert_int_equal(weft_dtype_parse(weft_dtype_name(d)), d);
        assert_int_equal(weft_dtype_from_oip(weft_dtype_oip_name(d)), d);
        if (d == WEFT_DTYPE_BF16 || weft_dtype_is_narrow(d))
            assert_string_equal(weft_dtype_npy_name(d), "");
        else
            assert_int_equal(weft_dtype_from_npy(weft_dtype_npy_name(d)), d);
        assert_int_equal(weft_dtype_size(d), (weft_dtype_bits(d) + 7) / 8);
        assert_true(weft_dtype_bits(d) > 0 && weft_dtype_bits(d) <= 64);
        assert_int_not_equal(weft_dtype_get_class(d), WEFT_CLASS_NONE);
    }
    assert_int_equal(weft_dtype_parse("f31"), WEFT_DTYPE_NONE);
    assert_int_equal(weft_dtype_parse("none"), WEFT_DTYPE_NONE);
    assert_int_equal(weft_dtype_from_oip(""), WEFT_DTYPE_NONE);
    assert_int_equal(weft_dtype_from_npy(""), WEFT_DTYPE_NONE);
    assert_int_equal(weft_dtype_from_oip("BYTES"), WEFT_DTYPE_NONE);
}

static void test_dtype__out_of_range_is_none(void **state)
{
    (void)state;
    assert_int_equal(weft_dtype_size((weft_dtype)1000), 0);
    assert_int_equal(weft_dtype_size(WEFT_DTYPE_COUNT), 0);
    assert_string_equal(weft_dtype_name((weft_dtype)-1), "none");
    assert_true(weft_dtype_is_float(WEFT_DTYPE_BF16));
    assert_true(weft_dtype_is_int(WEFT_DTYPE_U64));
    assert_false(weft_dtype_is_int(WEFT_DTYPE_BOOL));
}

static void test_dtype__errors_have_names_and_texts(void **state)
{
    (void)state;
    for (int i = 0; i < WEFT_ERR_COUNT; i++) {
        assert_string_not_equal(weft_err_name((weft_err)i), "unknown");
        assert_true(strlen(weft_err_text((weft_err)i)) > 0);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(weft_err_name((weft_err)i), weft_err_name((weft_err)j));
    }
    assert_string_equal(weft_err_name(WEFT_ERR_INFEASIBLE), "infeasible");
    assert_string_equal(weft_err_name((weft_err)99), "unknown");
    assert_string_equal(weft_err_text((weft_err)99), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype__names_read_back),
        cmocka_unit_test(test_dtype__out_of_range_is_none),
        cmocka_unit_test(test_dtype__errors_have_names_and_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
