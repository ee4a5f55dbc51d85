/* MIG geometry: constants of the devices with 7 GPCs by enumeration, the closed form against
 * exhaustive packing for every geometry of the device table, and placing. */
#include "base/arena.h"
#include "scheduler/mig/mig.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The a100-80 without its double memory profile: 1g 2g 3g 4g 7g. */
static weft_mig_profile plain_mig[5];
static weft_device_type plain_type;

static const weft_device_type *make_plain(void)
{
    const weft_device_type *type = weft_device_type_find("a100-80");
    size_t n = 0;
    for (size_t i = 0; i < type->n_mig; i++)
        if (!(type->mig[i].gpcs == 1 && type->mig[i].slots == 2))
            plain_mig[n++] = type->mig[i];
    assert_int_equal(n, 5);
    plain_type = *type;
    plain_type.mig = plain_mig;
    plain_type.n_mig = n;
    return &plain_type;
}

/* -- Constants -------------------------------------------------------------------------------- */

typedef struct layouts {
    uint32_t sets, maximal;
    weft_mig_count multiset[WEFT_MIG_SETS_MAX];
    size_t n;
} layouts;

/* Visits every set of (profile, start) with disjoint slots once. */
static void visit(const weft_device_type *type, int32_t from, uint32_t taken, weft_mig_count *count,
                  layouts *out)
{
    bool maximal = true;
    for (size_t p = 0; p < type->n_mig; p++)
        for (int32_t s = 0; s < 8; s++)
            if (type->mig[p].starts & 1u << s &&
                !(taken & weft_device_type_mig_slots(&type->mig[p], s)))
                maximal = false;
    out->sets++;
    if (maximal) {
        size_t at = 0;
        out->maximal++;
        while (at < out->n && memcmp(&out->multiset[at], count, sizeof *count) != 0)
            at++;
        out->multiset[at] = *count;
        out->n += at == out->n;
    }
    for (int32_t s = from; s < 8; s++)
        for (size_t p = 0; p < type->n_mig; p++) {
            uint32_t range = weft_device_type_mig_slots(&type->mig[p], s);
            if (!(type->mig[p].starts & 1u << s) || taken & range)
                continue;
            count->of[p]++;
            visit(type, s + 1, taken | range, count, out);
            count->of[p]--;
        }
}

static void test_mig_pack__constants_of_seven_slices(void **state)
{
    const weft_device_type *type = make_plain();
    weft_mig_shape shape = weft_mig__shape(type);
    weft_mig_count count = {{0}}, set[WEFT_MIG_SETS_MAX];
    layouts found = {0};
    (void)state;
    visit(type, 0, 0, &count, &found);
    assert_int_equal(found.sets, 298);
    assert_int_equal(found.maximal, 19);
    assert_int_equal(found.n, 14);
    assert_int_equal(weft_mig__multisets(&shape, false, set, WEFT_MIG_SETS_MAX), 38);
    assert_int_equal(weft_mig__multisets(&shape, true, set, WEFT_MIG_SETS_MAX), 12);
    static const uint8_t expect[12][5] = {{0, 0, 0, 0, 1}, {0, 0, 1, 1, 0}, {1, 1, 0, 1, 0},
                                          {3, 0, 0, 1, 0}, {0, 0, 2, 0, 0}, {0, 2, 1, 0, 0},
                                          {2, 1, 1, 0, 0}, {4, 0, 1, 0, 0}, {1, 3, 0, 0, 0},
                                          {3, 2, 0, 0, 0}, {5, 1, 0, 0, 0}, {7, 0, 0, 0, 0}};
    for (size_t i = 0; i < 12; i++) {
        bool seen = false;
        for (size_t j = 0; j < 12; j++)
            seen = seen || memcmp(set[j].of, expect[i], 5) == 0;
        if (!seen)
            fail_msg("multiset %zu is missing", i);
    }
}

/* -- The closed test -------------------------------------------------------------------------- */

/* The test with halves of mig_pack.c, for n = {n1, n2, n3, n4, n7}. */
static uint64_t reference_devices(const uint64_t *n)
{
    for (int64_t G = 0;; G++) {
        int64_t g = G - (int64_t)n[4];
        if (g < 0)
            continue;
        int64_t x = (int64_t)n[2] < g ? (int64_t)n[2] : g;
        int64_t a = g - (int64_t)n[3] - ((int64_t)n[2] - x), c = g - x;
        if (a >= 0 && (int64_t)n[1] <= 2 * a + c && (int64_t)(n[0] + 2 * n[1]) <= 4 * a + 3 * c)
            return (uint64_t)G;
    }
}

enum { VECTORS_MAX = 40000 };

/* Fewest devices for every count up to `most` by dynamic programming: one device with some maximal
 * multiset, plus the fewest for the rest. */
static uint32_t check_exhaustively(const weft_device_type *type, const uint32_t *most)
{
    static uint8_t fewest[VECTORS_MAX];
    weft_mig_shape shape = weft_mig__shape(type);
    weft_mig_count set[WEFT_MIG_SETS_MAX];
    size_t n_set = weft_mig__multisets(&shape, true, set, WEFT_MIG_SETS_MAX);
    uint32_t step[WEFT_MIG_PROFILES_MAX], total = 1;
    for (uint32_t p = 0; p < shape.n; p++) {
        step[p] = total;
        total *= most[p] + 1;
    }
    assert_true(total <= VECTORS_MAX);
    for (uint32_t v = 0; v < total; v++) {
        uint64_t count[WEFT_MIG_PROFILES_MAX] = {0};
        for (uint32_t p = 0; p < shape.n; p++)
            count[p] = v / step[p] % (most[p] + 1);
        fewest[v] = v ? UINT8_MAX : 0;
        for (size_t c = 0; v && c < n_set; c++) {
            uint32_t left = 0;
            for (uint32_t p = 0; p < shape.n; p++)
                left += step[p] * (uint32_t)(count[p] > set[c].of[p] ? count[p] - set[c].of[p] : 0);
            if (left != v && fewest[left] + 1 < fewest[v])
                fewest[v] = fewest[left] + 1;
        }
        if (weft_mig__devices(&shape, count) != fewest[v])
            fail_msg("%s vector %u: closed test says %llu, packing needs %u", type->name, v,
                     (unsigned long long)weft_mig__devices(&shape, count), fewest[v]);
        if (shape.n == 5)
            assert_int_equal(reference_devices(count), fewest[v]);
    }
    return total;
}

static void test_mig_pack__closed_test_is_exhaustive_packing(void **state)
{
    static const uint32_t plain[5] = {8, 6, 5, 3, 1};
    (void)state;
    assert_int_equal(check_exhaustively(make_plain(), plain), 3024);
    uint32_t geometries = 0;
    for (size_t i = 0; weft_device_type_at(i); i++) {
        const weft_device_type *type = weft_device_type_at(i);
        uint32_t most[WEFT_MIG_PROFILES_MAX];
        if (type->n_mig == 0)
            continue;
        for (size_t p = 0; p < type->n_mig; p++)
            most[p] = type->mig[p].slots == 1 ? 8 : type->mig[p].slots == 2 ? 5 : 3;
        check_exhaustively(type, most);
        geometries++;
    }
    assert_true(geometries >= 6);
}

/* -- Placing ---------------------------------------------------------------------------------- */

/* Places random counts: starts are legal, no instances overlap, and the number of devices is that
 * of the closed form. */
static void test_mig_pack__places_what_it_counts(void **state)
{
    uint64_t seed = 4711;
    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        size_t i = rand_next(&seed) % 64;
        const weft_device_type *type = weft_device_type_at(i);
        if (!type || type->n_mig == 0)
            continue;
        weft_arena *arena = weft_arena_create(0);
        weft_mig_shape shape = weft_mig__shape(type);
        weft_mig_place *place[WEFT_MIG_PROFILES_MAX];
        uint64_t count[WEFT_MIG_PROFILES_MAX] = {0};
        uint32_t *taken = NULL, used[256] = {0};
        for (uint32_t p = 0; p < shape.n; p++)
            count[p] = rand_next(&seed) % 12;
        uint32_t n = weft_mig__place(&shape, count, 0, &taken, arena, place);
        assert_int_equal(n, weft_mig__devices(&shape, count));
        for (uint32_t p = 0; p < shape.n; p++)
            for (uint64_t k = 0; k < count[p]; k++) {
                const weft_mig_place *at = &place[p][k];
                uint32_t range = weft_device_type_mig_slots(&type->mig[p], at->start);
                assert_true(at->device < n && at->start >= 0);
                assert_true(type->mig[p].starts & 1u << at->start);
                assert_false(used[at->device] & range);
                used[at->device] |= range;
            }
        for (uint32_t d = 0; d < n; d++)
            assert_int_equal(used[d], taken[d]);
        weft_arena_destroy(arena);
    }
}

/* Places instances beside others, which do not move. */
static void test_mig_pack__fills_gaps_first(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    weft_mig_shape shape = weft_mig__shape(make_plain());
    uint32_t *taken = weft_arena_array(arena, 2, sizeof *taken);
    weft_mig_place *place[WEFT_MIG_PROFILES_MAX];
    (void)state;
    taken[0] = 0x0f; /* a 4g: right half free */
    taken[1] = 0xf3; /* 2g at 0 and 3g at 4: slots 2 and 3 free */
    uint64_t count[5] = {0, 1, 1, 0, 0};
    assert_int_equal(weft_mig__place(&shape, count, 2, &taken, arena, place), 2);
    assert_int_equal(place[2][0].device, 0);
    assert_int_equal(place[2][0].start, 4);
    assert_int_equal(place[1][0].device, 1);
    assert_int_equal(place[1][0].start, 2);
    uint64_t more[5] = {0, 0, 0, 0, 1};
    assert_int_equal(weft_mig__place(&shape, more, 2, &taken, arena, place), 3);
    assert_int_equal(place[4][0].device, 2);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mig_pack__constants_of_seven_slices),
        cmocka_unit_test(test_mig_pack__closed_test_is_exhaustive_packing),
        cmocka_unit_test(test_mig_pack__places_what_it_counts),
        cmocka_unit_test(test_mig_pack__fills_gaps_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
