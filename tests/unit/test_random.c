/* Sequences of the pseudo-random generators: those of the published reference programs. */
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* First words of splitmix64.c (S. Vigna) for seed 1234567. */
static void test_random__splitmix64(void **state)
{
    (void)state;
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u, 4593380528125082431u,
                                    16408922859458223821u};
    uint64_t s = 1234567;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(weft_rand_split(&s) == want[i]);
}

/* First words of xoshiro256starstar.c (D. Blackman, S. Vigna) for the state 1, 2, 3, 4. */
static void test_random__xoshiro(void **state)
{
    (void)state;
    static const uint64_t want[] = {11520, 0, 1509978240, 1215971899390074240u};
    weft_rand r = {{1, 2, 3, 4}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_true(weft_rand_next(&r) == want[i]);
}

/* Known answers of Random123 (kat_vectors): philox4x32 10. */
static void test_random__philox(void **state)
{
    (void)state;
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu},
        {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0xa4093822u, 0x299f31d0u, 0xd16cfe09u,
         0x94fdccebu, 0x5001e420u, 0x24126ea1u}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        weft_rand_philox(known[i], known[i] + 4, out);
        for (int k = 0; k < 4; k++)
            assert_int_equal(out[k], known[i][6 + k]);
    }
}

static void test_random__lcg(void **state)
{
    (void)state;
    uint64_t s = 0;
    assert_true(weft_rand_lcg(&s) == 1442695040888963407u);
    assert_true(weft_rand_lcg(&s) == 1876011003808476466u);
}

static void test_random__seeds_and_units(void **state)
{
    (void)state;
    weft_rand a, b, other;
    weft_rand_seed(&a, 7);
    weft_rand_seed(&b, 7);
    weft_rand_seed(&other, 8);
    uint64_t differ = 0;
    double sum = 0;
    for (int i = 0; i < 10000; i++) {
        double x = weft_rand_unit(&a);
        assert_true(x == weft_rand_unit(&b));
        assert_true(x > 0 && x < 1);
        differ += x != weft_rand_unit(&other);
        sum += x;
    }
    assert_true(differ > 9990);
    assert_true(sum > 4900 && sum < 5100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random__splitmix64),      cmocka_unit_test(test_random__xoshiro),
        cmocka_unit_test(test_random__philox),          cmocka_unit_test(test_random__lcg),
        cmocka_unit_test(test_random__seeds_and_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
