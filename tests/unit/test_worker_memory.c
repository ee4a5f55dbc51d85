/* weft_worker__auto_memory: what a worker may allocate without an option. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/serve_int.h"

static const uint64_t mib = 1 << 20, gib = 1 << 30;

static void test_worker_memory__stays_in_its_group(void **state)
{
    (void)state;
    assert_int_equal(weft_worker__auto_memory(100 * mib, 0), 2 * gib + 200 * mib);
    assert_int_equal(weft_worker__auto_memory(100 * mib, 64 * gib), 2 * gib + 200 * mib);
    assert_int_equal(weft_worker__auto_memory(100 * mib, gib), 768 * mib);
    /* A worker that holds more than that is not stopped at once. */
    assert_int_equal(weft_worker__auto_memory(800 * mib, gib), 1000 * mib);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_worker_memory__stays_in_its_group)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
