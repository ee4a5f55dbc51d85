/* The table of multiprocessor limits: rows, and finding them by name. */
#include "base/sm_limits.h"

#include "estimator/estimator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void test_sm_limits__rows_rise_and_are_whole(void **state)
{
    uint32_t before = 0;
    (void)state;
    for (size_t i = 0; weft_sm_limits_at(i); i++) {
        const weft_sm_limits *sm = weft_sm_limits_at(i);
        assert_true(sm->capability > before);
        before = sm->capability;
        assert_ptr_equal(weft_sm_limits_find(sm->capability), sm);
        assert_true(sm->source && sm->source[0]);
        assert_true(sm->threads % 32 == 0 && sm->threads >= 1024);
        assert_true(sm->blocks > 0 && sm->regs >= 65536 && sm->parts > 0 && sm->thread_regs > 0);
        assert_true(sm->opt_in_bytes >= 48 << 10 && sm->shared_unit > 0);
        assert_true(sm->opt_in_bytes + sm->reserved_bytes <= sm->shared_bytes);
        for (size_t k = 1; k < 12 && sm->carveouts[k]; k++)
            assert_true(sm->carveouts[k] > sm->carveouts[k - 1] &&
                        sm->carveouts[k] << 10 <= sm->shared_bytes);
    }
}

static void test_sm_limits__are_known_for_every_gpu(void **state)
{
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++)
        if (weft_gpu_at(i)->capability)
            assert_non_null(weft_sm_limits_find(weft_gpu_at(i)->capability));
}

static void test_sm_limits__are_found_by_name(void **state)
{
    static const char *const wrong[] = {"", "sm_", "sm_9", "sm_090", "sm_90a", "sm_9000", "90"};
    (void)state;
    assert_int_equal(weft_sm_limits_named("sm_90", 5)->capability, 90);
    assert_int_equal(weft_sm_limits_named("sm_121,sm_90", 6)->capability, 121);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_null(weft_sm_limits_named(wrong[i], strlen(wrong[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sm_limits__rows_rise_and_are_whole),
        cmocka_unit_test(test_sm_limits__are_known_for_every_gpu),
        cmocka_unit_test(test_sm_limits__are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
