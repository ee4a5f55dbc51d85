/* weft_hazard__edges against its definition: an item follows every item that it conflicts with and
 * no other, and no edge is implied by others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/kernel/kernel.h"
#include "tests/support/rand.h"

#include <stdlib.h>
#include <string.h>

enum { N = 60, TOUCH = 4 };

typedef struct problem {
    weft_touch touch[N * TOUCH];
    uint32_t first[N + 1];
    uint32_t n;
} problem;

static void make(problem *p, uint64_t seed, uint32_t room)
{
    p->n = N;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t at = p->first[i], n = rand_next(&seed) % (TOUCH + 1);
        for (uint32_t k = 0; k < n; k++) {
            uint64_t begin = rand_next(&seed) % room;
            p->touch[at++] =
                (weft_touch){begin, begin + rand_next(&seed) % 8, (uint8_t)(rand_next(&seed) % 4)};
        }
        p->first[i + 1] = at;
    }
}

static bool conflict(const problem *p, uint32_t a, uint32_t b)
{
    for (uint32_t i = p->first[a]; i < p->first[a + 1]; i++)
        for (uint32_t k = p->first[b]; k < p->first[b + 1]; k++) {
            const weft_touch *x = &p->touch[i], *y = &p->touch[k];
            bool meet = x->begin < y->end && y->begin < x->end && x->access && y->access;
            if (meet && x->begin < x->end && y->begin < y->end &&
                ((x->access | y->access) & WEFT_ACCESS_WRITE))
                return true;
        }
    return false;
}

static void check(const problem *p)
{
    static bool want[N][N], have[N][N];
    uint32_t *edge, *first;
    memset(want, 0, sizeof want);
    memset(have, 0, sizeof have);
    assert_int_equal(weft_hazard__edges(p->touch, p->first, p->n, &edge, &first), WEFT_ERR_OK);
    for (uint32_t i = 0; i < p->n; i++) {
        for (uint32_t d = 0; d < i; d++)
            if (conflict(p, d, i)) {
                want[i][d] = true;
                for (uint32_t e = 0; e < d; e++)
                    want[i][e] = want[i][e] || want[d][e];
            }
        for (uint32_t k = first[i]; k < first[i + 1]; k++) {
            uint32_t d = edge[k];
            assert_true(d < i);
            assert_true(conflict(p, d, i));
            have[i][d] = true;
            for (uint32_t e = 0; e < d; e++)
                have[i][e] = have[i][e] || have[d][e];
        }
        for (uint32_t k = first[i]; k < first[i + 1]; k++)
            for (uint32_t o = first[i]; o < first[i + 1]; o++)
                assert_false(have[edge[o]][edge[k]]);
    }
    assert_memory_equal(want, have, sizeof want);
    free(edge);
    free(first);
}

static void test_hazard__orders_conflicts_and_nothing_else(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        problem p = {0};
        make(&p, seed, seed % 3 ? 40 : 400);
        check(&p);
    }
}

/* x; then y and z, both computed from x; then y + z, written over x. */
static void test_hazard__branches_are_apart(void **state)
{
    (void)state;
    const weft_touch touch[] = {{0, 64, WEFT_ACCESS_WRITE},    {0, 64, WEFT_ACCESS_READ},
                                {64, 128, WEFT_ACCESS_WRITE},  {0, 64, WEFT_ACCESS_READ},
                                {128, 192, WEFT_ACCESS_WRITE}, {64, 192, WEFT_ACCESS_READ},
                                {0, 64, WEFT_ACCESS_WRITE}};
    const uint32_t first[] = {0, 1, 3, 5, 7};
    uint32_t *edge, *at;
    assert_int_equal(weft_hazard__edges(touch, first, 4, &edge, &at), WEFT_ERR_OK);
    const uint32_t want_at[] = {0, 0, 1, 2, 4}, want[] = {0, 0, 2, 1};
    assert_memory_equal(at, want_at, sizeof want_at);
    assert_memory_equal(edge, want, sizeof want);
    free(edge);
    free(at);
}

static void test_hazard__nothing_is_fine(void **state)
{
    (void)state;
    uint32_t first = 0, *edge, *at;
    assert_int_equal(weft_hazard__edges(NULL, &first, 0, &edge, &at), WEFT_ERR_OK);
    assert_int_equal(at[0], 0);
    free(edge);
    free(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hazard__orders_conflicts_and_nothing_else),
        cmocka_unit_test(test_hazard__branches_are_apart),
        cmocka_unit_test(test_hazard__nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
