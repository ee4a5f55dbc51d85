/* base/slice_name.h. */
#include "base/slice_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void expect(const char *name, const char *profile, double share, uint32_t percent)
{
    weft_slice_name got;
    assert_true(weft_slicename_parse(name, &got));
    assert_string_equal(got.profile, profile);
    assert_true(got.share == share);
    assert_int_equal(got.percent, percent);
}

static void test_slice_name__parts(void **state)
{
    (void)state;
    expect("", "", 0, 0);
    expect("3g.40gb", "3g.40gb", 0, 0);
    expect("1g.5gb+me", "1g.5gb+me", 0, 0);
    expect("40%", "", 0.4, 40);
    expect("100%", "", 1, 100);
    expect("12.5%", "", 0.125, 0);
    expect("3g.40gb/50%", "3g.40gb", 0.5, 50);
}

static void test_slice_name__refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "0%", "101%",     "-1%",        "x%",
        "%",  "3g.40gb/", "3g.40gb/50", "3g.40gb/0%",
        "/",  "/50%",     "1g/2g/50%",  "a name of more than 31 characters"};
    weft_slice_name got = {.percent = 7};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_false(weft_slicename_parse(names[i], &got));
    assert_int_equal(got.percent, 7);
}

static void test_slice_name__cores(void **state)
{
    (void)state;
    static const char *const names[] = {"",       "core",    "0core", "-1core",
                                        "2cores", "1.5core", "9core"};
    uint32_t cores = 0;
    assert_true(weft_slicename_cores("8core", 8, &cores));
    assert_int_equal(cores, 8);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_false(weft_slicename_cores(names[i], 8, &cores));
    assert_int_equal(cores, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_name__parts),
        cmocka_unit_test(test_slice_name__refused),
        cmocka_unit_test(test_slice_name__cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
