/* weft_reload: files are read again when they have changed, and not while they are being written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/serve_int.h"
#include "tests/support/fixture.h"

static weft_err count_load(void *user, weft_diag *messages)
{
    (void)messages;
    ++*(int *)user;
    return WEFT_ERR_OK;
}

static void test_reload__reads_what_has_settled(void **state)
{
    int n = 0;
    (void)state;
    write_text("one");
    weft_loop *loop = weft_loop__create();
    weft_reload *reload = weft_reload__create(loop);
    weft_reloaded files = {
        .name = "test", .path = {temp_path}, .n_path = 1, .load = count_load, .user = &n};
    assert_non_null(reload);
    weft_reload__look(&files);
    weft_reload__add(reload, &files);
    assert_false(weft_reload__check(reload));

    /* Each look finds more of the file: it is read when one finds nothing new. */
    write_text("one two");
    assert_true(weft_reload__check(reload));
    write_text("one two three");
    assert_true(weft_reload__check(reload));
    assert_int_equal(n, 0);
    assert_false(weft_reload__check(reload));
    assert_int_equal(n, 1);
    assert_false(weft_reload__check(reload));
    assert_int_equal(n, 1);

    /* At once when asked to; what changes behind that is found. */
    write_text("four");
    weft_reload__all(reload);
    assert_int_equal(n, 2);
    assert_false(weft_reload__check(reload));
    assert_int_equal(n, 2);
    unlink(temp_path);
    assert_true(weft_reload__check(reload));
    assert_false(weft_reload__check(reload));
    assert_int_equal(n, 3);

    /* One that never settles is read all the same. */
    char text[] = "aaaaaaaaaaaaaaaaaaaa";
    for (int i = 1; i <= 20; i++) {
        write_text(&text[20 - i]);
        assert_true(weft_reload__check(reload));
        assert_int_equal(n, 3 + i / 10);
    }

    weft_reload__destroy(reload);
    weft_loop__destroy(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reload__reads_what_has_settled, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
