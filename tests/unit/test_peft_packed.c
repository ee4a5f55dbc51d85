/* Packed adapters: what was written is read, and every damaged byte is found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/adapter/adapter.h"
#include "tests/support/fixture.h"
#include "tests/support/rand.h"

enum { MODULES_MAX = 5, VALUES = 24 * 40 };

static void check_part(const weft_adapter_part *got, const weft_peft_module *m, const char *site)
{
    const weft_adapter_factors *f = &got->factors;
    assert_string_equal(got->site, site);
    assert_true(f->rank == m->rank && f->k == m->k && f->n == m->n);
    assert_memory_equal(f->a, m->a, (size_t)(m->rank * m->k) * sizeof(float));
    assert_memory_equal(f->b, m->b, (size_t)(m->rank * m->n) * sizeof(float));
}

static void test_peft_packed__damage_is_found(void **state)
{
    (void)state;
    static const char *const sites[] = {"layer.0.query", "layer.0.key", "v", "dense", "out"};
    static float values[2 * MODULES_MAX][VALUES];
    for (uint64_t round = 0; round < RAND_ROUNDS(40); round++) {
        uint64_t seed = 70 + round;
        weft_peft_module module[MODULES_MAX];
        weft_peft peft = {.module = module, .n = 1 + rand_below(&seed, MODULES_MAX)};
        for (uint32_t i = 0; i < peft.n; i++) {
            for (int k = 0; k < VALUES; k++) {
                values[2 * i][k] = (float)rand_below(&seed, 1000);
                values[2 * i + 1][k] = (float)rand_below(&seed, 1000);
            }
            module[i] = (weft_peft_module){.path = sites[i],
                                           .rank = 1 + rand_below(&seed, 24),
                                           .k = 1 + rand_below(&seed, 40),
                                           .n = 1 + rand_below(&seed, 40),
                                           .a = values[2 * i],
                                           .b = values[2 * i + 1]};
        }
        uint8_t *bytes = NULL;
        size_t len = 0;
        weft_packed_adapter got;
        assert_int_equal(weft_peft_pack(&peft, sites, &bytes, &len), WEFT_ERR_OK);
        assert_int_equal(weft_peft_packed_length(bytes), len);
        assert_true(weft_peft_unpack(bytes, len, arena, &got));
        assert_int_equal(got.n, peft.n);
        assert_true(weft_hash128_eq(got.identity, weft_peft_identity(&peft)));
        for (uint32_t i = 0; i < peft.n; i++)
            check_part(&got.part[i], &module[i], sites[i]);
        values[0][0] += 1;
        assert_false(weft_hash128_eq(got.identity, weft_peft_identity(&peft)));
        assert_false(weft_peft_unpack(bytes, len - 1, arena, &got));
        for (int k = 0; k < 50; k++) {
            size_t at = WEFT_PACKED_HEAD + rand_below(&seed, (uint32_t)(len - WEFT_PACKED_HEAD));
            uint8_t bit = (uint8_t)(1u << rand_below(&seed, 8));
            bytes[at] ^= bit;
            assert_false(weft_peft_unpack(bytes, len, arena, &got));
            bytes[at] ^= bit;
        }
        bytes[0] ^= 1;
        assert_int_equal(weft_peft_packed_length(bytes), 0);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_peft_packed__damage_is_found, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
