/* Contention: the queue against its limits and against measurements (parvagpu: 1 to 5 processes of
 * a model in a MIG instance), and the two published models. */
#include "base/diag.h"
#include "estimator/estimator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/data_dir.h"
#include "tests/support/rand.h"

static weft_contender draw_demand(uint64_t *seed)
{
    return (weft_contender){.time_us = 10 + 1e5 * rand_unit(seed),
                            .busy = rand_unit(seed),
                            .cache = rand_unit(seed),
                            .memory = rand_unit(seed),
                            .launches = floor(500 * rand_unit(seed))};
}

/* -- Processes of one model ------------------------------------------------------------------- */

static void test_contention__processes_share_what_there_is(void **state)
{
    uint64_t seed = 5;
    (void)state;
    for (int i = 0; i < 2000; i++) {
        weft_contender d = draw_demand(&seed);
        double before = 0, latency, rate, alone = 1e6 / d.time_us;
        for (uint32_t p = 1; p <= 48; p++) {
            assert_int_equal(weft_contention_procs(&d, p, NULL, &latency, &rate), WEFT_ERR_OK);
            assert_true(rate >= before * (1 - 1e-12));         /* more never deliver less... */
            assert_true(rate <= alone * p * (1 + 1e-12));      /* ... nor more than p alone... */
            assert_true(rate * d.busy <= alone * (1 + 1e-12)); /* ... nor than the bottleneck */
            assert_true(latency >= d.time_us * (1 - 1e-12));
            assert_true(fabs(latency * rate / 1e6 - p) < 1e-6 * p); /* Little's law */
            before = rate;
        }
        assert_int_equal(weft_contention_procs(&d, 1, NULL, &latency, &rate), WEFT_ERR_OK);
        assert_true(fabs(latency / d.time_us - 1) < 1e-12);
    }
}

static void test_contention__refuses_what_is_no_demand(void **state)
{
    const weft_contender wrong[] = {{.time_us = 0},
                                    {.time_us = -1},
                                    {.time_us = (double)INFINITY},
                                    {.time_us = (double)NAN},
                                    {.time_us = 1, .busy = 1.5},
                                    {.time_us = 1, .memory = (double)NAN},
                                    {.time_us = 1, .cache = -0.1},
                                    {.time_us = 1, .launches = -1}};
    weft_contender good = {.time_us = 1}, many[WEFT_CONTENTION_MAX + 1];
    double a, b, f[WEFT_CONTENTION_MAX + 1];
    (void)state;
    weft_diag *diag = weft_diag_create();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(weft_contention_procs(&wrong[i], 2, diag, &a, &b), WEFT_ERR_INPUT);
        assert_int_equal(
            weft_contention_factors(WEFT_CONTENTION_QUEUE, &wrong[i], 1, false, diag, f),
            WEFT_ERR_INPUT);
    }
    assert_int_equal(weft_contention_procs(&good, 0, diag, &a, &b), WEFT_ERR_INPUT);
    assert_int_equal(weft_contention_procs(&good, 1025, diag, &a, &b), WEFT_ERR_INPUT);
    for (size_t i = 0; i <= WEFT_CONTENTION_MAX; i++)
        many[i] = good;
    assert_int_equal(weft_contention_factors(WEFT_CONTENTION_QUEUE, many, WEFT_CONTENTION_MAX + 1,
                                             false, diag, f),
                     WEFT_ERR_INPUT);
    assert_int_equal(weft_contention_factors(WEFT_CONTENTION_QUEUE, many, 0, false, diag, f),
                     WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(diag, weft_diag_count(diag) - 1)->text, "0 models"));
    weft_diag_destroy(diag);
}

/* -- Different models ------------------------------------------------------------------------- */

static void test_contention__equal_models_are_processes_of_one(void **state)
{
    uint64_t seed = 9;
    (void)state;
    for (int i = 0; i < 200; i++) {
        weft_contender same[WEFT_CONTENTION_MAX];
        double factor[WEFT_CONTENTION_MAX], latency, rate;
        same[0] = draw_demand(&seed);
        for (uint32_t n = 1; n <= WEFT_CONTENTION_MAX; n++) {
            same[n - 1] = same[0];
            assert_int_equal(
                weft_contention_factors(WEFT_CONTENTION_QUEUE, same, n, false, NULL, factor),
                WEFT_ERR_OK);
            assert_int_equal(weft_contention_procs(same, n, NULL, &latency, &rate), WEFT_ERR_OK);
            for (uint32_t k = 0; k < n; k++)
                assert_true(fabs(factor[k] * same[0].time_us / latency - 1) < 1e-9);
        }
    }
}

/* For every form: factors are finite and at least 1, and 1 for a model alone. One more neighbour
 * never reduces a factor, except with two stations, where it may delay a third model at the other
 * station. */
static void test_contention__factors_grow_with_neighbours(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (int form = WEFT_CONTENTION_QUEUE; form <= WEFT_CONTENTION_IGNITER; form++)
        for (int i = 0; i < 300; i++) {
            weft_contender d[WEFT_CONTENTION_MAX];
            double before[WEFT_CONTENTION_MAX] = {0}, factor[WEFT_CONTENTION_MAX];
            for (uint32_t n = 1; n <= WEFT_CONTENTION_MAX; n++) {
                d[n - 1] = draw_demand(&seed);
                bool own = i % 2;
                assert_int_equal(
                    weft_contention_factors((weft_contention)form, d, n, own, NULL, factor),
                    WEFT_ERR_OK);
                if (n == 1)
                    assert_true(factor[0] == 1);
                for (uint32_t k = 0; k < n; k++) {
                    assert_true(isfinite(factor[k]) && factor[k] >= 1);
                    assert_true(own || factor[k] >= before[k] * (1 - 1e-9));
                    before[k] = factor[k];
                }
            }
        }
}

static void test_contention__who_takes_nothing_harms_nobody(void **state)
{
    weft_contender d[2] = {{.time_us = 100, .busy = 0.9, .cache = 0.3, .memory = 0.6},
                           {.time_us = 50}};
    double f[2];
    (void)state;
    assert_int_equal(weft_contention_factors(WEFT_CONTENTION_QUEUE, d, 2, false, NULL, f),
                     WEFT_ERR_OK);
    assert_true(f[0] == 1 && f[1] == 1);
    d[1] = d[0];
    assert_int_equal(weft_contention_factors(WEFT_CONTENTION_QUEUE, d, 2, false, NULL, f),
                     WEFT_ERR_OK);
    assert_true(fabs(f[0] - 1.81) < 1e-9); /* 0.1 + 0.9 * (1 + 0.9) */
    assert_int_equal(weft_contention_factors(WEFT_CONTENTION_QUEUE, d, 2, true, NULL, f),
                     WEFT_ERR_OK);
    assert_true(f[0] > 1 && f[0] < 1.81);
}

/* -- Measurements ----------------------------------------------------------------------------- */

enum { BATCHES = 9, SLICES = 8, PROCS = 5, ERRORS_MAX = 4000 };

typedef struct profile {
    double per_s[SLICES][BATCHES][PROCS + 1]; /* of all processes; 0: not measured */
} profile;

static bool read_profile(const char *model, profile *out)
{
    char path[1024], name[128], line[256];
    snprintf(name, sizeof name, "parvagpu/profiles/%s.csv", model);
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    memset(out, 0, sizeof *out);
    while (fgets(line, sizeof line, f)) {
        unsigned slice, batch, procs;
        double per_s, latency;
        if (sscanf(line, "%u,%u,%u,%lf,%lf", &slice, &batch, &procs, &per_s, &latency) != 5)
            continue;
        assert_true(slice < SLICES && procs <= PROCS && batch <= 256);
        out->per_s[slice][(int)round(log2(batch))][procs] = per_s * procs;
    }
    fclose(f);
    return true;
}

/* The `busy` for which the queue gives this gain of `procs` processes; the gain falls with
 * `busy`. */
static double find_busy(double gain, uint32_t procs)
{
    double lo = 0, hi = 1, latency, rate;
    for (int i = 0; i < 60; i++) {
        weft_contender d = {.time_us = 1e6, .busy = (lo + hi) / 2};
        assert_int_equal(weft_contention_procs(&d, procs, NULL, &latency, &rate), WEFT_ERR_OK);
        *(rate > gain ? &lo : &hi) = d.busy;
    }
    return (lo + hi) / 2;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The queue without the estimator: `busy` follows from the gain of 5 processes (or of the largest
 * number measured), and predicts the gains of 2 to 4. */
static void test_contention__queue_has_the_shape_of_measurements(void **state)
{
    static const char *const models[] = {"bert",        "densenet121", "densenet169", "densenet201",
                                         "inceptionv3", "mobilenetv2", "resnet101",   "resnet152",
                                         "resnet50",    "vgg16",       "vgg19"};
    double error[ERRORS_MAX], sum = 0;
    size_t n = 0;
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        profile p;
        if (!read_profile(models[m], &p)) {
            print_message("no measurements in the folder parvagpu (WEFT_DATA)\n");
            skip();
        }
        for (int s = 0; s < SLICES; s++)
            for (int b = 0; b < BATCHES; b++) {
                const double *x = p.per_s[s][b];
                uint32_t last = PROCS;
                while (last > 2 && x[last] == 0)
                    last--;
                if (x[1] == 0 || last < 3)
                    continue;
                weft_contender d = {.time_us = 1e6, .busy = find_busy(x[last] / x[1], last)};
                for (uint32_t k = 2; k < last; k++) {
                    double latency, rate;
                    assert_int_equal(weft_contention_procs(&d, k, NULL, &latency, &rate),
                                     WEFT_ERR_OK);
                    assert_true(n < ERRORS_MAX);
                    error[n] = fabs(rate / (x[k] / x[1]) - 1);
                    sum += error[n++];
                }
            }
    }
    qsort(error, n, sizeof error[0], compare_doubles);
    print_message("%zu gains: median error %.1f %%, mean %.1f %%\n", n, 100 * error[n / 2],
                  100 * sum / (double)n);
    assert_true(n > 900);
    assert_true(error[n / 2] < 0.03 && sum / (double)n < 0.05);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_contention__processes_share_what_there_is),
        cmocka_unit_test(test_contention__refuses_what_is_no_demand),
        cmocka_unit_test(test_contention__equal_models_are_processes_of_one),
        cmocka_unit_test(test_contention__factors_grow_with_neighbours),
        cmocka_unit_test(test_contention__who_takes_nothing_harms_nobody),
        cmocka_unit_test(test_contention__queue_has_the_shape_of_measurements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
