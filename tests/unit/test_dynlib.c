/* base/dynlib.h: libraries that are there, that are not, and that lack functions. */
#include "base/dynlib.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

typedef struct table {
    double (*cos)(double);
    double (*no_such_function)(double);
    int (*nor_this)(void);
} table;

static const weft_dynlib_symbol symbols[] = {
    {"cos", offsetof(table, cos), true},
    {"no_such_function", offsetof(table, no_such_function), false},
    {"nor_this", offsetof(table, nor_this), true},
};

static weft_diag *diag;

static int set_up(void **state)
{
    (void)state;
    diag = weft_diag_create();
    return diag ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_diag_destroy(diag);
    return 0;
}

static bool is_said(const char *text)
{
    for (size_t i = 0; i < weft_diag_count(diag); i++)
        if (strstr(weft_diag_at(diag, i)->text, text))
            return true;
    return false;
}

static void test_dynlib__opens_the_first_that_is_there(void **state)
{
    (void)state;
    static const char *const names[] = {"libnone.so.9", "libm.so.6", "libc.so.6"};
    weft_dynlib *lib = NULL;
    assert_int_equal(weft_dynlib_open("mathematics", names, 3, diag, &lib), WEFT_ERR_OK);
    assert_string_equal(weft_dynlib_name(lib), "libm.so.6");
    assert_int_equal(weft_diag_count(diag), 0);
    table t = {0};
    assert_int_equal(weft_dynlib_resolve(lib, symbols, 2, &t, diag), WEFT_ERR_OK);
    assert_true(t.cos(0) == 1);
    assert_null(t.no_such_function);
    weft_dynlib_close(lib);
}

static void test_dynlib__says_all_that_it_looked_for(void **state)
{
    (void)state;
    static const char *const names[] = {"libnone.so.9", "/no/such/folder/libnone.so"};
    weft_dynlib *lib = NULL;
    assert_int_equal(weft_dynlib_open("the driver", names, 2, diag, &lib), WEFT_ERR_NODEV);
    assert_null(lib);
    assert_int_equal(weft_diag_count(diag), 1);
    assert_true(is_said("the driver is not here: looked for libnone.so.9, /no/such/folder/"));
    weft_dynlib_close(NULL);
}

static void test_dynlib__says_why_a_file_is_no_library(void **state)
{
    (void)state;
    static const char *const names[] = {WEFT_SOURCE_DIR "/README.md"};
    weft_dynlib *lib = NULL;
    assert_int_equal(weft_dynlib_open("the driver", names, 1, diag, &lib), WEFT_ERR_NODEV);
    assert_int_equal(weft_diag_count(diag), 2);
    assert_true(is_said("README.md: "));
}

static void test_dynlib__names_what_is_missing(void **state)
{
    (void)state;
    static const char *const names[] = {"libm.so.6"};
    weft_dynlib *lib = NULL;
    assert_int_equal(weft_dynlib_open("mathematics", names, 1, diag, &lib), WEFT_ERR_OK);
    table t = {0};
    assert_int_equal(weft_dynlib_resolve(lib, symbols, 3, &t, diag), WEFT_ERR_NODEV);
    assert_true(is_said("it lacks nor_this"));
    assert_false(is_said("no_such_function"));
    assert_null(t.nor_this);
    weft_dynlib_close(lib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dynlib__opens_the_first_that_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_dynlib__says_all_that_it_looked_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_dynlib__says_why_a_file_is_no_library, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_dynlib__names_what_is_missing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
