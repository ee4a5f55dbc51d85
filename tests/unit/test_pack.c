/* base/pack.h: live blocks are disjoint, and the total is near the lower bound. */
#include "base/pack.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

static uint64_t find_peak(const weft_block *b, size_t n)
{
    uint64_t peak = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t live = 0; /* some block begins where the most bytes are live */
        for (size_t j = 0; j < n; j++)
            if (b[j].first <= b[i].first && b[j].last >= b[i].first)
                live += b[j].size;
        peak = live > peak ? live : peak;
    }
    return peak;
}

static void check_plan(const weft_block *b, size_t n, uint64_t align, uint64_t total)
{
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b[i].offset % align, 0);
        if (b[i].size == 0)
            continue;
        end = b[i].offset + b[i].size > end ? b[i].offset + b[i].size : end;
        for (size_t j = 0; j < i; j++) {
            if (b[j].size == 0 || b[j].first > b[i].last || b[j].last < b[i].first)
                continue;
            assert_true(b[j].offset + b[j].size <= b[i].offset ||
                        b[i].offset + b[i].size <= b[j].offset);
        }
    }
    assert_int_equal(end, total);
    assert_true(total >= find_peak(b, n));
}

static void test_pack__random_blocks_never_overlap(void **state)
{
    (void)state;
    enum { N_MAX = 200 };
    weft_block b[N_MAX];
    uint64_t seed = 1;
    static const uint64_t aligns[] = {1, 7, 64, 4096};
    for (int round = 0; round < 600; round++) {
        size_t n = rand_next(&seed) % N_MAX;
        uint64_t align = aligns[round % 4];
        uint32_t steps = 1 + (uint32_t)(rand_next(&seed) % 100);
        uint32_t longest = 1 + (uint32_t)(rand_next(&seed) % steps);
        for (size_t i = 0; i < n; i++) {
            b[i].size = rand_next(&seed) % 5 == 0 ? 0 : rand_next(&seed) % 3000;
            b[i].first = (uint32_t)(rand_next(&seed) % steps);
            b[i].last = b[i].first + (uint32_t)(rand_next(&seed) % longest);
            b[i].offset = 12345;
        }
        uint64_t total;
        assert_int_equal(weft_pack_blocks(b, n, align, &total), WEFT_ERR_OK);
        check_plan(b, n, align, total);
    }
}

static void test_pack__chain_takes_two_blocks(void **state)
{
    (void)state;
    weft_block b[50];
    for (uint32_t i = 0; i < 50; i++)
        b[i] = (weft_block){.size = 1000, .first = i, .last = i + 1};
    uint64_t total;
    assert_int_equal(weft_pack_blocks(b, 50, 8, &total), WEFT_ERR_OK);
    assert_int_equal(total, 2000);
}

static void test_pack__smallest_gap_is_taken(void **state)
{
    (void)state;
    /* Long blocks at 0, 900 and 1500 leave gaps of 300 and 100 while the short ones are dead. */
    weft_block b[] = {{.size = 600, .first = 0, .last = 9}, {.size = 300, .first = 0, .last = 4},
                      {.size = 500, .first = 0, .last = 9}, {.size = 100, .first = 0, .last = 4},
                      {.size = 400, .first = 0, .last = 9}, {.size = 90, .first = 5, .last = 9}};
    uint64_t total;
    assert_int_equal(weft_pack_blocks(b, 6, 1, &total), WEFT_ERR_OK);
    check_plan(b, 6, 1, total);
    assert_int_equal(total, 1900);
}

static void test_pack__refuses_overflow(void **state)
{
    (void)state;
    weft_block b[] = {{.size = UINT64_MAX - 10, .first = 0, .last = 1},
                      {.size = 100, .first = 1, .last = 2}};
    uint64_t total = 1;
    assert_int_equal(weft_pack_blocks(b, 2, 1, &total), WEFT_ERR_NOMEM);
    assert_int_equal(weft_pack_blocks(b, 2, 4096, &total), WEFT_ERR_NOMEM);
    assert_int_equal(total, 1);
    b[0].first = 5;
    assert_int_equal(weft_pack_blocks(b, 1, 1, &total), WEFT_ERR_BUG);
    assert_int_equal(weft_pack_blocks(NULL, 0, 64, &total), WEFT_ERR_OK);
    assert_int_equal(total, 0);
}

static void test_pack__ten_thousand_blocks(void **state)
{
    (void)state;
    enum { N = 10000 };
    weft_block *b = calloc(N, sizeof *b);
    uint64_t seed = 5, total;
    for (size_t i = 0; i < N; i++) {
        b[i].size = 1 + rand_next(&seed) % 100000;
        b[i].first = (uint32_t)(rand_next(&seed) % N);
        b[i].last = b[i].first + (uint32_t)(rand_next(&seed) % 40);
    }
    assert_int_equal(weft_pack_blocks(b, N, 64, &total), WEFT_ERR_OK);
    check_plan(b, N, 64, total);
    assert_true(total < find_peak(b, N) * 5 / 4);
    free(b);
}

static void test_pack__around_leaves_what_lies(void **state)
{
    (void)state;
    enum { N = 60 };
    weft_block fixed[N], both[2 * N];
    uint64_t seed = 3, total;
    for (int round = 0; round < 200; round++) {
        size_t n = 1 + rand_next(&seed) % (N - 1);
        for (size_t i = 0; i < 2 * n; i++) {
            uint32_t first = (uint32_t)(rand_next(&seed) % 40);
            both[i] = (weft_block){.size = rand_next(&seed) % 5000,
                                   .first = first,
                                   .last = first + (uint32_t)(rand_next(&seed) % 9)};
        }
        assert_int_equal(weft_pack_blocks(both, n, 64, &total), WEFT_ERR_OK);
        for (size_t i = 0; i < n; i++)
            fixed[i] = both[i];
        assert_int_equal(weft_pack_around(fixed, n, both + n, n, 64, &total), WEFT_ERR_OK);
        check_plan(both, 2 * n, 64, total);
    }
    assert_int_equal(weft_pack_around(fixed, 1, NULL, 0, 64, &total), WEFT_ERR_OK);
    assert_int_equal(total, fixed[0].offset + fixed[0].size);
    fixed[0] = (weft_block){.size = 2, .offset = UINT64_MAX - 1};
    assert_int_equal(weft_pack_around(fixed, 1, NULL, 0, 64, &total), WEFT_ERR_NOMEM);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__random_blocks_never_overlap),
        cmocka_unit_test(test_pack__chain_takes_two_blocks),
        cmocka_unit_test(test_pack__smallest_gap_is_taken),
        cmocka_unit_test(test_pack__refuses_overflow),
        cmocka_unit_test(test_pack__around_leaves_what_lies),
        cmocka_unit_test(test_pack__ten_thousand_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
