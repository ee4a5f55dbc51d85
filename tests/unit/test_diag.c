/* base/diag.h: the list of messages and its text. */
#include "base/diag.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

static void expect_text(const weft_message *msg, const char *text)
{
    char buf[200];
    assert_int_equal(weft_diag_format(msg, buf, sizeof buf), strlen(text));
    assert_string_equal(buf, text);
}

static void test_diag__formats_where_and_what(void **state)
{
    (void)state;
    weft_diag *diag = weft_diag_create();
    char file[] = "net.onnx";
    weft_where where = {.file = file, .item = "Conv_12"};
    assert_int_equal(weft_diag_error(diag, WEFT_ERR_UNSUP, where, "conv: rank %d", 7),
                     WEFT_ERR_UNSUP);
    file[0] = 'x'; /* it was copied */
    weft_diag_warn(diag, (weft_where){.file = "a.wir", .line = 3}, "odd");
    weft_diag_note(diag, (weft_where){.file = "a.wir", .line = 3, .item = "%x"}, "see");
    weft_diag_warn(diag, (weft_where){0}, "plain");
    weft_diag_warn(diag, (weft_where){.item = "key"}, "unknown");
    weft_diag_warn(diag, (weft_where){.file = "f"}, "empty");
    assert_int_equal(weft_diag_count(diag), 6);
    assert_int_equal(weft_diag_at(diag, 0)->err, WEFT_ERR_UNSUP);
    assert_int_equal(weft_diag_at(diag, 0)->severity, WEFT_SEV_ERROR);
    assert_int_equal(weft_diag_at(diag, 1)->err, WEFT_ERR_OK);
    assert_int_equal(weft_diag_at(diag, 2)->severity, WEFT_SEV_NOTE);
    expect_text(weft_diag_at(diag, 0), "net.onnx:Conv_12: conv: rank 7");
    expect_text(weft_diag_at(diag, 1), "a.wir:3: odd");
    expect_text(weft_diag_at(diag, 2), "a.wir:3: %x: see");
    expect_text(weft_diag_at(diag, 3), "plain");
    expect_text(weft_diag_at(diag, 4), "key: unknown");
    expect_text(weft_diag_at(diag, 5), "f: empty");
    char cut[6];
    assert_int_equal(weft_diag_format(weft_diag_at(diag, 3), cut, sizeof cut - 2), 5);
    assert_string_equal(cut, "pla");
    assert_int_equal(weft_diag_format(weft_diag_at(diag, 3), NULL, 0), 5);
    assert_null(weft_diag_at(diag, 6));
    weft_diag_clear(diag);
    assert_int_equal(weft_diag_count(diag), 0);
    weft_diag_destroy(diag);
    weft_diag_destroy(NULL);
    assert_int_equal(weft_diag_error(NULL, WEFT_ERR_IO, where, "dropped"), WEFT_ERR_IO);
}

static void test_diag__escapes_what_files_hold(void **state)
{
    (void)state;
    weft_diag *diag = weft_diag_create();
    weft_where where = {.file = "a\nb", .item = "\x1b[2J"};
    weft_diag_error(diag, WEFT_ERR_INPUT, where, "no '%s'", "x\rerror: y");
    expect_text(weft_diag_at(diag, 0), "a\\x0ab:\\x1b[2J: no 'x\\x0derror: y'");
    weft_diag_destroy(diag);
}

static void test_diag__keeps_a_hundred_and_counts_the_rest(void **state)
{
    (void)state;
    weft_diag *diag = weft_diag_create();
    for (int i = 0; i < 130; i++)
        weft_diag_warn(diag, (weft_where){0}, "%d", i);
    assert_int_equal(weft_diag_count(diag), 101);
    expect_text(weft_diag_at(diag, 99), "99");
    expect_text(weft_diag_at(diag, 100), "30 more messages");
    /* An error is never lost to warnings. */
    weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "bad");
    assert_int_equal(weft_diag_count(diag), 101);
    expect_text(weft_diag_at(diag, 98), "98");
    expect_text(weft_diag_at(diag, 99), "bad");
    expect_text(weft_diag_at(diag, 100), "31 more messages");
    for (int i = 0; i < 130; i++)
        weft_diag_error(diag, WEFT_ERR_INPUT, (weft_where){0}, "e%d", i);
    expect_text(weft_diag_at(diag, 0), "bad");
    expect_text(weft_diag_at(diag, 99), "e98");
    expect_text(weft_diag_at(diag, 100), "161 more messages");
    weft_diag_destroy(diag);
}

/* What a function is given that found no memory for a list. */
static void test_diag__has_nothing_without_memory(void **state)
{
    (void)state;
    assert_int_equal(weft_diag_error(NULL, WEFT_ERR_INPUT, (weft_where){0}, "bad"), WEFT_ERR_INPUT);
    assert_int_equal(weft_diag_count(NULL), 0);
    assert_null(weft_diag_at(NULL, 0));
    weft_diag_clear(NULL);
    weft_diag_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diag__formats_where_and_what),
        cmocka_unit_test(test_diag__escapes_what_files_hold),
        cmocka_unit_test(test_diag__keeps_a_hundred_and_counts_the_rest),
        cmocka_unit_test(test_diag__has_nothing_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
