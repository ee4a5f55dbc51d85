/* The search for the fewest devices: equal to brute force, with a correct bound, monotone, and with
 * few states for large sets. */
#include "base/arena.h"
#include "scheduler/mig/mig.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SERVICES_MAX = 1000 };

static double pick(uint64_t *seed, double lo, double hi)
{
    return lo + (hi - lo) * (double)(rand_next(seed) % 100001) / 100000;
}

/* Random loads: throughput roughly proportional to GPCs, some profiles not usable, rates of up to
 * `most` whole devices. */
static void make_loads(const weft_mig_shape *shape, uint64_t *seed, uint32_t n, double most,
                       weft_mig_load *load)
{
    for (uint32_t s = 0; s < n; s++) {
        double unit = pick(seed, 50, 500);
        bool any = false;
        load[s] = (weft_mig_load){.per_s = {0}};
        while (!any)
            for (uint32_t p = 0; p < shape->n; p++) {
                const weft_mig_profile *mig = &shape->type->mig[p];
                bool usable = rand_next(seed) % 6 != 0;
                load[s].per_s[p] = usable ? unit * mig->gpcs * pick(seed, 0.7, 1.2) *
                                                (mig->slots > mig->gpcs ? pick(seed, 1, 1.3) : 1)
                                          : 0;
                any = any || usable;
            }
        load[s].rate_per_s = rand_next(seed) % 12 == 0 ? 0 : unit * 7 * pick(seed, 0.01, most);
        if (rand_next(seed) % 10 == 0)
            for (uint32_t p = 0; p < shape->n; p++)
                if (load[s].per_s[p] > 0)
                    load[s].rate_per_s = 2 * load[s].per_s[p]; /* an exact multiple */
    }
}

static bool carries(const weft_mig_shape *shape, const weft_mig_load *load,
                    const weft_mig_counts *count)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t p = 0; p < shape->n; p++) {
        sum += load->per_s[p] * count->of[p];
        n += load->per_s[p] > 0 ? count->of[p] : 0;
    }
    return n > 0 && sum >= load->rate_per_s * (1 - 1e-9);
}

/* -- Brute force ------------------------------------------------------------------------------ */

typedef struct brute {
    const weft_mig_shape *shape;
    const weft_mig_load *load;
    uint32_t n;
    uint64_t best;
    weft_mig_counts cover[6][4096];
    uint32_t n_cover[6];
} brute;

/* Tries all covers of a service in which no instance can be left out. */
static void list_covers(brute *b, uint32_t s, weft_mig_counts *count, uint32_t p)
{
    if (carries(b->shape, &b->load[s], count)) {
        for (uint32_t q = 0; q < b->shape->n; q++) {
            weft_mig_counts less = *count;
            if (less.of[q]-- > 0 && carries(b->shape, &b->load[s], &less))
                return;
        }
        assert_true(b->n_cover[s] < 4096);
        b->cover[s][b->n_cover[s]++] = *count;
        return;
    }
    for (uint32_t q = p; q < b->shape->n; q++) {
        if (!(b->load[s].per_s[q] > 0))
            continue;
        count->of[q]++;
        list_covers(b, s, count, q);
        count->of[q]--;
    }
}

static void try_all(brute *b, uint32_t s, uint64_t *total)
{
    if (weft_mig__devices(b->shape, total) >= b->best)
        return;
    if (s == b->n || s >= 6) {
        b->best = weft_mig__devices(b->shape, total);
        return;
    }
    for (uint32_t i = 0; i < b->n_cover[s]; i++) {
        for (uint32_t p = 0; p < b->shape->n; p++)
            total[p] += b->cover[s][i].of[p];
        try_all(b, s + 1, total);
        for (uint32_t p = 0; p < b->shape->n; p++)
            total[p] -= b->cover[s][i].of[p];
    }
}

static void check_found(const weft_mig_search *in, const weft_mig_found *found)
{
    uint64_t total[WEFT_MIG_PROFILES_MAX] = {0};
    for (uint32_t s = 0; s < in->n; s++) {
        assert_true(carries(in->shape, &in->load[s], &found->count[s]));
        for (uint32_t p = 0; p < in->shape->n; p++)
            total[p] += found->count[s].of[p];
    }
    assert_true(weft_mig__devices(in->shape, total) <= found->devices);
    assert_true(found->bound <= found->devices);
}

static void test_mig_search__equals_brute_force(void **state)
{
    static const char *const types[] = {"a100-80", "h200", "a30"};
    brute *b = malloc(sizeof *b);
    uint64_t seed = 20240611;
    (void)state;
    for (uint32_t round = 0; round < RAND_ROUNDS(600); round++) {
        weft_arena *arena = weft_arena_create(0);
        weft_mig_shape shape = weft_mig__shape(weft_device_type_find(types[round % 3]));
        weft_mig_load load[6];
        weft_mig_counts none = {{0}};
        uint64_t total[WEFT_MIG_PROFILES_MAX] = {0};
        weft_mig_search in = {.shape = &shape,
                              .load = load,
                              .n = 1 + (uint32_t)rand_next(&seed) % 6,
                              .width = 4096,
                              .arena = arena};
        weft_mig_found found, narrow;
        make_loads(&shape, &seed, in.n, in.n > 4 ? 0.5 : 0.9, load);
        *b = (brute){.shape = &shape, .load = load, .n = in.n, .best = UINT64_MAX};
        for (uint32_t s = 0; s < in.n; s++)
            list_covers(b, s, &none, 0);
        try_all(b, 0, total);
        assert_true(weft_mig__search(&in, &found));
        check_found(&in, &found);
        if (found.devices != b->best || found.bound != b->best)
            fail_msg("round %u: %llu devices, bound %llu, brute force %llu", round,
                     (unsigned long long)found.devices, (unsigned long long)found.bound,
                     (unsigned long long)b->best);
        in.width = 4;
        assert_true(weft_mig__search(&in, &narrow));
        check_found(&in, &narrow);
        assert_true(narrow.bound <= b->best && narrow.devices >= b->best);
        weft_arena_destroy(arena);
    }
    free(b);
}

/* Fewer requests or faster instances never need more devices. */
static void test_mig_search__is_monotone(void **state)
{
    uint64_t seed = 77;
    (void)state;
    for (uint32_t round = 0; round < RAND_ROUNDS(300); round++) {
        weft_arena *arena = weft_arena_create(0);
        weft_mig_shape shape = weft_mig__shape(weft_device_type_find("h100"));
        weft_mig_load load[12];
        weft_mig_search in = {
            .shape = &shape, .load = load, .n = 12, .width = 4096, .arena = arena};
        weft_mig_found before, after;
        make_loads(&shape, &seed, in.n, 1.5, load);
        assert_true(weft_mig__search(&in, &before));
        uint32_t s = (uint32_t)rand_next(&seed) % in.n;
        uint32_t p = (uint32_t)rand_next(&seed) % shape.n;
        if (round % 2)
            load[s].rate_per_s *= pick(&seed, 0, 1);
        else
            load[s].per_s[p] = load[s].per_s[p] * pick(&seed, 1, 2) + 1;
        assert_true(weft_mig__search(&in, &after));
        assert_true(before.devices == before.bound && after.devices == after.bound);
        assert_true(after.devices <= before.devices);
        weft_arena_destroy(arena);
    }
}

/* For large rates the result is within 2 % of the bound. */
static void test_mig_search__large_loads_stay_near_the_bound(void **state)
{
    weft_mig_load *load = malloc(SERVICES_MAX * sizeof *load);
    uint64_t seed = 5;
    (void)state;
    for (uint32_t round = 0; round < RAND_ROUNDS(4); round++) {
        weft_arena *arena = weft_arena_create(0);
        weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
        weft_mig_search in = {
            .shape = &shape, .load = load, .n = SERVICES_MAX, .width = 16, .arena = arena};
        weft_mig_found found;
        make_loads(&shape, &seed, in.n, round % 2 ? 20 : 1, load);
        assert_true(weft_mig__search(&in, &found));
        check_found(&in, &found);
        print_message("%llu devices, bound %llu\n", (unsigned long long)found.devices,
                      (unsigned long long)found.bound);
        assert_true((double)found.devices <= 1.02 * (double)found.bound + 1);
        weft_arena_destroy(arena);
    }
    free(load);
}

/* Two exact methods with nothing in common but the geometry: the search, and CBC on the integer
 * program over maximal multisets. */
static void test_mig_search__equals_the_integer_program(void **state)
{
    static const char *const types[] = {"a100-80", "h100", "a30"};
    uint64_t seed = 911;
    (void)state;
    for (uint32_t round = 0; round < RAND_ROUNDS(40); round++) {
        weft_arena *arena = weft_arena_create(0);
        weft_mig_shape shape = weft_mig__shape(weft_device_type_find(types[round % 3]));
        weft_mig_load load[10];
        weft_mig_search in = {.shape = &shape,
                              .load = load,
                              .n = 2 + (uint32_t)rand_next(&seed) % 9,
                              .width = 4096,
                              .arena = arena};
        weft_mig_found found, solved = {0};
        make_loads(&shape, &seed, in.n, 1.2, load);
        assert_true(weft_mig__search(&in, &found));
        assert_int_equal(found.devices, found.bound);
        solved.bound = 1;
        assert_true(weft_mig__solve(&in, &weft_solver_cbc, found.devices + 2, 100000, &solved));
        check_found(&in, &solved);
        assert_int_equal(solved.devices, found.devices);
        assert_int_equal(solved.bound, found.devices);
        /* The solver also proves that one device less is infeasible. */
        solved.bound = 1;
        assert_false(weft_mig__solve(&in, &weft_solver_cbc, found.devices - 1, 100000, &solved));
        assert_int_equal(solved.bound, found.devices > 1 ? found.devices : 1);
        weft_arena_destroy(arena);
    }
}

static void test_mig_search__refuses_what_nothing_carries(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    weft_mig_shape shape = weft_mig__shape(weft_device_type_find("a100-80"));
    weft_mig_load load[2] = {{.rate_per_s = 10, .per_s = {100}}, {.rate_per_s = 10}};
    weft_mig_search in = {.shape = &shape, .load = load, .n = 2, .width = 16, .arena = arena};
    weft_mig_found found;
    (void)state;
    assert_false(weft_mig__search(&in, &found));
    load[1] = (weft_mig_load){.rate_per_s = 1e300, .per_s = {100}};
    assert_false(weft_mig__search(&in, &found));
    load[1].rate_per_s = 350;
    assert_true(weft_mig__search(&in, &found));
    assert_int_equal(found.devices, 1);
    assert_int_equal(found.count[1].of[0], 4);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mig_search__equals_brute_force),
        cmocka_unit_test(test_mig_search__is_monotone),
        cmocka_unit_test(test_mig_search__large_loads_stay_near_the_bound),
        cmocka_unit_test(test_mig_search__equals_the_integer_program),
        cmocka_unit_test(test_mig_search__refuses_what_nothing_carries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
