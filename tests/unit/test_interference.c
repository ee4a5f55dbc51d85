/* Interference by use over time: cases worked out by hand, and every combination of moments of
 * random histograms. */
#include "scheduler/builder/builder.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { RUNS_MAX = 4, TOP = WEFT_USEHIST_LEVELS - 1 };

static const weft_interference over_time = {.over_time = true};

static double factor(const weft_pressure *run, int n)
{
    weft_pressure_sum others = {0};
    for (int i = 1; i < n; i++)
        weft_interference__add(&over_time, run[i], &others);
    return weft_interference__factor(&over_time, run[0], &others);
}

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-9))
        fail_msg("%.9g, should be %.9g", got, want);
}

/* A run that reads at full speed for a part of the time, and computes for the rest. */
static weft_usehist reads(int part)
{
    weft_usehist use = {{{0}}};
    use.part[0][TOP] = (uint8_t)part;
    use.part[TOP][0] = (uint8_t)(WEFT_USEHIST_WHOLE - part);
    return use;
}

static void test_interference__by_hand(void **state)
{
    (void)state;
    const weft_usehist all = reads(255), none = reads(0), some = reads(51);
    const weft_pressure reader = {.use = &all}, computer = {.use = &none}, fifth = {.use = &some};
    expect(factor((weft_pressure[]){reader}, 1), 1);
    expect(factor((weft_pressure[]){reader, reader}, 2), 2);
    expect(factor((weft_pressure[]){reader, reader, reader}, 3), 3);
    expect(factor((weft_pressure[]){reader, computer}, 2), 1);
    expect(factor((weft_pressure[]){computer, reader}, 2), 1);
    expect(factor((weft_pressure[]){computer, reader, reader}, 3), 1);
    expect(factor((weft_pressure[]){fifth, fifth}, 2), 1 + 0.2 * 0.2);
    expect(factor((weft_pressure[]){reader, fifth}, 2), 1.2);
}

/* Four means of a seventh do not conflict; the runs do. */
static void test_interference__the_mean_tells_less(void **state)
{
    (void)state;
    const weft_usehist some = reads(36);
    const weft_pressure seen = {.use = &some}, mean = {.dram = 1.0 / TOP};
    expect(factor((weft_pressure[]){mean, mean, mean, mean}, 4), 1);
    assert_true(factor((weft_pressure[]){seen, seen, seen, seen}, 4) > 1.05);
    const weft_interference by_mean = {.over_time = true, .mean = true};
    const weft_pressure fifth = {.dram = 0.2, .use = &some};
    weft_pressure_sum others = {0};
    weft_interference__add(&by_mean, fifth, &others);
    expect(weft_interference__factor(&by_mean, fifth, &others), 1);
    /* A run of which nothing is known counts as one that reads all the time. */
    expect(factor((weft_pressure[]){mean, {.l2 = 0.5}}, 2), 1 + 1.0 / TOP);
}

/* More than four devices' worth of neighbours count as four. */
static void test_interference__has_a_limit(void **state)
{
    (void)state;
    const weft_usehist all = reads(255);
    weft_pressure run[40];
    for (int i = 0; i < 40; i++)
        run[i] = (weft_pressure){.use = &all};
    expect(factor(run, 5), 5);
    expect(factor(run, 40), 5);
}

static weft_usehist random_use(uint64_t *seed)
{
    weft_usehist use;
    weft_usehist_time sum = {{{0}}};
    for (int i = 0; i < 4; i++)
        weft_usehist_add(&sum, rand_unit(seed), rand_unit(seed), 1 + rand_below(seed, 9));
    assert_true(weft_usehist_make(&sum, &use));
    return use;
}

/* The sum over all combinations of levels of run k and the ones behind it. */
static double enumerate(double level[][WEFT_USEHIST_LEVELS], int k, int n, int sum, int own)
{
    double all = 0;
    if (k == n)
        return own == 0 && sum > TOP ? 1 : fmax(1, (double)sum / TOP);
    for (int i = 0; i < WEFT_USEHIST_LEVELS; i++)
        if (level[k][i] > 0)
            all += level[k][i] * enumerate(level, k + 1, n, sum + i, k == 0 ? i : own);
    return all;
}

static void test_interference__is_the_mean_over_all_moments(void **state)
{
    (void)state;
    uint64_t seed = 5;
    for (int round = 0; round < RAND_ROUNDS(200); round++) {
        int n = 2 + (int)rand_below(&seed, RUNS_MAX - 1);
        weft_usehist use[RUNS_MAX];
        weft_pressure run[RUNS_MAX];
        double level[RUNS_MAX][WEFT_USEHIST_LEVELS];
        for (int i = 0; i < n; i++) {
            use[i] = random_use(&seed);
            run[i] = (weft_pressure){.use = &use[i]};
            weft_usehist_levels(&use[i], WEFT_USEHIST_BANDWIDTH, level[i]);
        }
        expect(factor(run, n), enumerate(level, 0, n, 0, 0));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interference__by_hand),
        cmocka_unit_test(test_interference__the_mean_tells_less),
        cmocka_unit_test(test_interference__has_a_limit),
        cmocka_unit_test(test_interference__is_the_mean_over_all_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
