/* weft_calibration_fit recovers the constants of a synthetic device and changes no others. */
#include "estimator/estimator.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { N = 800, ALL = (1 << WEFT_CALIBRATION_CONSTANTS) - 2 };

/* Rows of a device whose times are the predicted ones times `scale`, with noise of up to `noise`.
 * Each row is a kernel of one of the `classes`. */
static void make_rows(weft_calibration_row *row, size_t n, const double *scale, unsigned classes,
                      double noise, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        int class = 0;
        row[i] = (weft_calibration_row){.launch_us = 2.5, .shape = i / 2};
        do
            class = 1 + (int)(rand_unit(&seed) * (WEFT_CALIBRATION_CONSTANTS - 1));
        while (!(classes >> class & 1));
        row[i].body_us[class] = exp(rand_unit(&seed) * 7 - 1);
        row[i].measured_us = (row[i].launch_us * scale[0] + row[i].body_us[class] * scale[class]) *
                             (1 + noise * (2 * rand_unit(&seed) - 1));
    }
}

static void fit(const weft_calibration_row *row, size_t n, weft_calibration *out)
{
    weft_diag *diag = weft_diag_create();
    assert_int_equal(weft_calibration_fit(row, n, weft_gpu_find("h100"), diag, out), WEFT_ERR_OK);
    weft_diag_destroy(diag);
}

static void test_calibrate__constants_are_found_again(void **state)
{
    (void)state;
    static const double truth[] = {1.4, 0.8, 1.1, 2.0, 0.7, 1.3, 0.9, 0.6, 1.25};
    weft_calibration_row row[N];
    weft_calibration c;
    make_rows(row, N, truth, ALL, 0.05, 7);
    fit(row, N, &c);
    assert_string_equal(c.gpu, "h100");
    for (int i = 0; i < WEFT_CALIBRATION_CONSTANTS; i++) {
        assert_true(c.fitted[i]);
        if (fabs(c.scale[i] / truth[i] - 1) > 0.06)
            fail_msg("%s: %g, is %g", weft_calibration_name(i), c.scale[i], truth[i]);
    }
    assert_true(c.held_out);
    assert_true(c.error_before > 0.2);
    assert_true(c.error_after < 0.04);
    assert_true(c.error_fitted <= c.error_after);
}

static void test_calibrate__outliers_do_not_decide(void **state)
{
    (void)state;
    static const double truth[] = {1, 1.5, 1, 1, 1, 1, 1, 1, 1};
    weft_calibration_row row[N];
    weft_calibration c;
    make_rows(row, N, truth, 1u << WEFT_CALIBRATION_GEMM, 0.02, 8);
    for (size_t i = 0; i < N; i += 10)
        row[i].measured_us *= 50;
    fit(row, N, &c);
    assert_true(fabs(c.scale[WEFT_CALIBRATION_GEMM] / 1.5 - 1) < 0.06);
}

static void test_calibrate__what_no_row_tells_is_kept(void **state)
{
    (void)state;
    static const double truth[] = {1, 1.5, 3, 3, 3, 3, 3, 3, 3};
    weft_calibration_row row[N];
    weft_calibration c;
    make_rows(row, 40, truth, 1u << WEFT_CALIBRATION_GEMM, 0.02, 9);
    for (size_t i = 0; i < 40; i++)
        row[i].launch_us *= 1e-3; /* nothing that a launch would show in */
    /* Too few convolutions to fit their constant. */
    make_rows(row + 40, WEFT_CALIBRATION_ROWS_MIN - 1, truth, 1u << WEFT_CALIBRATION_CONV, 0, 10);
    for (size_t i = 40; i < 40 + WEFT_CALIBRATION_ROWS_MIN - 1; i++)
        row[i].body_us[WEFT_CALIBRATION_CONV] += 10; /* each says enough */
    fit(row, 40 + WEFT_CALIBRATION_ROWS_MIN - 1, &c);
    assert_true(c.fitted[WEFT_CALIBRATION_GEMM]);
    assert_int_equal(c.rows[WEFT_CALIBRATION_CONV], WEFT_CALIBRATION_ROWS_MIN - 1);
    for (int i = WEFT_CALIBRATION_CONV; i < WEFT_CALIBRATION_CONSTANTS; i++) {
        assert_false(c.fitted[i]);
        assert_true(c.scale[i] == 1);
    }
}

static void test_calibrate__constants_are_bounded(void **state)
{
    (void)state;
    static const double truth[] = {1, 100, 1, 1, 1, 1, 1, 1, 1};
    weft_calibration_row row[N];
    weft_calibration c;
    make_rows(row, N, truth, 1u << WEFT_CALIBRATION_GEMM, 0, 11);
    fit(row, N, &c);
    for (int i = 0; i < WEFT_CALIBRATION_CONSTANTS; i++)
        assert_true(c.scale[i] >= 0.2 - 1e-9 && c.scale[i] <= 5 + 1e-9);
}

static void test_calibrate__few_shapes_hold_nothing_out(void **state)
{
    (void)state;
    static const double truth[] = {1, 1.5, 1, 1, 1, 1, 1, 1, 1};
    weft_calibration_row row[N];
    weft_calibration c;
    make_rows(row, N, truth, 1u << WEFT_CALIBRATION_GEMM, 0, 12);
    for (size_t i = 0; i < N; i++)
        row[i].shape = 3;
    fit(row, N, &c);
    assert_false(c.held_out);
    assert_true(c.error_fitted < c.error_before);
}

static void test_calibrate__same_rows_same_fit(void **state)
{
    (void)state;
    static const double truth[] = {1.2, 0.9, 1.1, 1.3, 0.7, 1.05, 0.8, 1.2, 0.95};
    weft_calibration_row row[N];
    weft_calibration a = {0}, b = {0};
    make_rows(row, N, truth, ALL, 0.3, 13);
    fit(row, N, &a);
    fit(row, N, &b);
    assert_memory_equal(a.scale, b.scale, sizeof a.scale);
    assert_true(a.error_after == b.error_after);
}

static void test_calibrate__refuses_what_is_no_time(void **state)
{
    (void)state;
    static const double wrong[] = {0, -1, NAN, INFINITY, 1e12};
    static const double truth[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    weft_calibration_row row[20];
    weft_calibration c;
    weft_diag *diag = weft_diag_create();
    const weft_gpu *gpu = weft_gpu_find("h100");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        make_rows(row, 20, truth, ALL, 0, 14);
        row[7].measured_us = wrong[i];
        assert_int_equal(weft_calibration_fit(row, 20, gpu, diag, &c), WEFT_ERR_INPUT);
        make_rows(row, 20, truth, ALL, 0, 14);
        row[7].body_us[2] = i ? wrong[i] : -1e-9;
        assert_int_equal(weft_calibration_fit(row, 20, gpu, diag, &c), WEFT_ERR_INPUT);
    }
    make_rows(row, 20, truth, ALL, 0, 14);
    row[7].measured_us = 1e-9;
    assert_int_equal(weft_calibration_fit(row, 20, gpu, diag, &c), WEFT_ERR_INPUT);
    make_rows(row, 20, truth, ALL, 0, 14);
    row[3] = (weft_calibration_row){.measured_us = 1};
    assert_int_equal(weft_calibration_fit(row, 20, gpu, diag, &c), WEFT_ERR_INPUT);
    assert_int_equal(weft_calibration_fit(row, WEFT_CALIBRATION_ROWS_MIN - 1, gpu, diag, &c),
                     WEFT_ERR_INPUT);
    assert_int_equal(weft_calibration_fit(NULL, 0, gpu, diag, &c), WEFT_ERR_INPUT);
    weft_diag_destroy(diag);
}

/* A calibrated estimate changes by its scale, and never exceeds the peaks. */
static void test_calibrate__estimates_follow(void **state)
{
    (void)state;
    weft_slice s;
    weft_diag *diag = weft_diag_create();
    weft_calibration c = {.gpu = "h100", .scale = {1, 2, 1, 1, 1, 1, 1, 1, 1}};
    const weft_estimate_options plain = {0}, with = {.calibration = &c};
    weft_kernel k = weft_kernel_make_gemm(WEFT_DTYPE_F16, 1, 4096, 4096, 4096, true);
    weft_cost a, b;
    assert_int_equal(weft_slice_make("h100", "", diag, &s), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&k, &s, &plain, diag, &a, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&k, &s, &with, diag, &b, NULL), WEFT_ERR_OK);
    double launch_us = s.gpu->launch_us;
    assert_true(fabs((b.time_us - launch_us) / (a.time_us - launch_us) - 2) < 1e-6);
    assert_string_equal(b.source, "calibrated");
    c.scale[WEFT_CALIBRATION_GEMM] = 0.2;
    assert_int_equal(weft_estimate_kernel(&k, &s, &with, diag, &b, NULL), WEFT_ERR_OK);
    assert_true(b.time_us < a.time_us);
    assert_true(k.work.flops / b.time_us * 1e-3 <= s.gpu->f16_gflops * (1 + 1e-9));
    /* The parts of a row that a fit sees add up to the prediction. */
    weft_calibration_row row = {0};
    assert_int_equal(weft_calibration_add_kernel(&k, 3, &s, &with, diag, &row), WEFT_ERR_OK);
    assert_true(fabs(row.launch_us + row.body_us[WEFT_CALIBRATION_GEMM] - 3 * a.time_us) < 1e-6);
    weft_diag_destroy(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calibrate__constants_are_found_again),
        cmocka_unit_test(test_calibrate__outliers_do_not_decide),
        cmocka_unit_test(test_calibrate__what_no_row_tells_is_kept),
        cmocka_unit_test(test_calibrate__constants_are_bounded),
        cmocka_unit_test(test_calibrate__few_shapes_hold_nothing_out),
        cmocka_unit_test(test_calibrate__same_rows_same_fit),
        cmocka_unit_test(test_calibrate__refuses_what_is_no_time),
        cmocka_unit_test(test_calibrate__estimates_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
