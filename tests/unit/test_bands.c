/* 90 % bands of estimates, and times that never fall when a batch grows. */
#include "base/device_type.h"
#include "estimator/estimator.h"
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

static weft_slice slice_of(const char *gpu, const char *name)
{
    weft_slice s;
    assert_int_equal(weft_slice_make(gpu, name, NULL, &s), WEFT_ERR_OK);
    return s;
}

static weft_cost cost_of(const weft_kernel *k, const weft_slice *s, bool exact_f32)
{
    const weft_estimate_options options = {.exact_f32 = exact_f32};
    weft_cost c;
    assert_int_equal(weft_estimate_kernel(k, s, &options, NULL, &c, NULL), WEFT_ERR_OK);
    return c;
}

/* p95 over p5. */
static double width(const weft_kernel *k, const char *gpu, const char *name)
{
    weft_slice s = slice_of(gpu, name);
    weft_cost c = cost_of(k, &s, false);
    assert_true(c.time_p5_us > 0 && c.time_p5_us <= c.time_us && c.time_us <= c.time_p95_us);
    return c.time_p95_us / c.time_p5_us;
}

/* -- Width ------------------------------------------------------------------------------------ */

static void test_bands__widen_with_distance(void **state)
{
    (void)state;
    weft_kernel bf16 = weft_kernel_make_gemm(WEFT_DTYPE_BF16, 1, 512, 4096, 4096, true);
    weft_kernel f16 = weft_kernel_make_gemm(WEFT_DTYPE_F16, 1, 512, 4096, 4096, true);
    weft_kernel tf32 = weft_kernel_make_gemm(WEFT_DTYPE_F32, 1, 512, 4096, 4096, true);
    weft_kernel huge = weft_kernel_make_gemm(WEFT_DTYPE_BF16, 1, 4e6, 4096, 4096, true);
    double seen = width(&bf16, "h100", "");
    assert_true(seen > 1.05 && seen < 3);
    assert_true(width(&bf16, "gh200", "") >= seen);                         /* same architecture */
    assert_true(width(&bf16, "rtx-4090", "") >= width(&bf16, "l40s", ""));  /* same architecture */
    assert_true(width(&bf16, "a10", "") > 1.2 * width(&bf16, "gh200", "")); /* new */
    assert_true(width(&bf16, "h100", "1g.10gb") >= seen);
    assert_true(width(&f16, "h100", "") >= seen);
    assert_true(width(&tf32, "h100", "") > seen);
    assert_true(width(&huge, "h100", "") > 1.1 * seen);
}

/* Types of 8 and 4 bits are kinds of their own: a band of a device is that of the type measured on
 * it. */
static void test_bands__know_the_type(void **state)
{
    (void)state;
    weft_kernel fp8 = weft_kernel_make_gemm(WEFT_DTYPE_F8E4M3FN, 1, 512, 4096, 4096, true);
    weft_kernel e5m2 = weft_kernel_make_gemm(WEFT_DTYPE_F8E5M2, 1, 512, 4096, 4096, true);
    weft_kernel i8 = weft_kernel_make_gemm(WEFT_DTYPE_I8, 1, 512, 4096, 4096, true);
    weft_kernel nvfp4 = weft_kernel_make_gemm(WEFT_DTYPE_F4E2M1, 1, 8192, 16384, 16384, true);
    double seen = width(&fp8, "h100", "");
    assert_true(width(&e5m2, "h100", "") >= seen);
    assert_true(width(&i8, "h100", "") > seen);
    assert_true(width(&fp8, "b200", "") > seen); /* measured there: nvfp4 alone */
    assert_true(width(&nvfp4, "rtx-pro-6000", "") > width(&nvfp4, "b200", ""));
}

/* Libraries differ in their attention: knowing whose it is narrows the band, and Weft's own was not
 * measured. */
static void test_bands__know_the_launcher(void **state)
{
    (void)state;
    weft_kernel k = weft_kernel_make_attention(WEFT_DTYPE_BF16, 8, 12, 512, 512, 64);
    double any = width(&k, "h100", "");
    k.launcher = WEFT_LAUNCHER_VLLM;
    assert_true(width(&k, "h100", "") < any);
    k.launcher = WEFT_LAUNCHER_SGLANG;
    assert_true(width(&k, "h100", "") == any);
    k.launcher = WEFT_LAUNCHER_WEFT;
    assert_true(width(&k, "h100", "") > any);
    k = weft_kernel_make_gemm(WEFT_DTYPE_BF16, 1, 512, 4096, 4096, true);
    any = width(&k, "h100", "");
    k.launcher = WEFT_LAUNCHER_TRTLLM; /* of GEMMs they do not */
    assert_true(width(&k, "h100", "") == any);
}

static void test_bands__hold_the_estimate_on_every_device(void **state)
{
    static const weft_dtype types[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F16, WEFT_DTYPE_BF16};
    uint64_t seed = 11;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++)
        for (int n = 0; n < 40; n++) {
            weft_dtype type = types[n % 3];
            double a = floor(exp2(rand_unit(&seed) * 12)), b = floor(exp2(rand_unit(&seed) * 12));
            const weft_kernel k[] = {
                weft_kernel_make_gemm(type, 1, a, b, 1024, true),
                weft_kernel_make_rows(WEFT_KERNEL_EW, "add", type, 2, a, b),
                weft_kernel_make_rows(WEFT_KERNEL_REDUCE, NULL, type, 1, a, b),
                weft_kernel_make_attention(type, 1 + floor(a / 512), 8, b, b, 64)};
            for (size_t j = 0; j < sizeof k / sizeof k[0]; j++)
                assert_true(width(&k[j], weft_gpu_at(i)->name, "") > 1.05);
        }
}

static void test_bands__explain_says_what_widened(void **state)
{
    weft_kernel k = weft_kernel_make_gemm(WEFT_DTYPE_BF16, 1, 512, 4096, 4096, true);
    weft_kernel_reason why;
    weft_slice seen = slice_of("h100", ""), unknown = slice_of("a10", ""),
               cpu = slice_of("cpu", "");
    (void)state;
    weft_estimate_explain(&k, &seen, NULL, 25, &why);
    assert_null(why.widened);
    weft_estimate_explain(&k, &unknown, NULL, 25, &why);
    assert_string_equal(why.widened, "device not measured");
    weft_estimate_explain(&k, &cpu, NULL, 25, &why);
    assert_non_null(strstr(why.widened, "weft calibrate"));
}

/* -- Rows ------------------------------------------------------------------------------------- */

/* The largest fall of the time from one number of rows to the next, 1 to 256; 0: it never falls. */
static double largest_fall(const weft_slice *s, weft_dtype type, double n, double k, bool is_weight,
                           bool exact)
{
    double last = 0, fall = 0;
    for (double m = 1; m <= 256; m++) {
        weft_kernel kernel = weft_kernel_make_gemm(type, 1, m, n, k, is_weight);
        double time_us = cost_of(&kernel, s, exact).time_us;
        fall = fmax(fall, last > 0 ? 1 - time_us / last : 0);
        last = time_us;
    }
    return fall;
}

/* Largest fall over random products, of values and with weights. */
static double worst_fall(const char *gpu, const char *slice, bool exact_f32)
{
    weft_slice s = slice_of(gpu, slice);
    uint64_t seed = 5;
    double worst = 0;
    for (int r = 0; r < 8; r++) {
        double n = 8 * floor(1 + exp2(rand_unit(&seed) * 9));
        double k = 8 * floor(1 + exp2(rand_unit(&seed) * 9));
        weft_dtype type = r % 2 ? WEFT_DTYPE_F16 : WEFT_DTYPE_F32;
        for (int is_weight = 0; is_weight < 2; is_weight++)
            worst = fmax(worst, largest_fall(&s, type, n, k, is_weight, exact_f32));
    }
    if (worst > 0)
        print_message("%s %s: time falls by up to %.2g %%\n", gpu, slice, 100 * worst);
    return worst;
}

/* By construction: trees may only grow with rows, and so does the wave model. */
static void test_bands__time_does_not_fall_with_rows(void **state)
{
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++)
        if (!weft_gpu_at(i)->is_cpu)
            assert_true(worst_fall(weft_gpu_at(i)->name, "", i % 2) <= 1e-9);
}

/* The time of a slice is that of the device times a ratio of the wave model. */
static void test_bands__time_falls_little_in_slices(void **state)
{
    static const char *const slices[][2] = {{"h100", "1g.10gb"}, {"h200", "3g.71gb"},
                                            {"a100-80", "30%"},  {"l4", "40%"},
                                            {"t4", "70%"},       {"a30", "1g.6gb"}};
    (void)state;
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++)
        assert_true(worst_fall(slices[i][0], slices[i][1], i % 2) <= 0.02);
}

/* -- Coverage --------------------------------------------------------------------------------- */

/* A row of tests/regress/left_out.csv (scripts/leave_out.py). */
typedef struct left_out {
    char family[32], how[16], launcher[16], text[512];
    double mape, inside, wave, roofline;
} left_out;

enum { LEFT_OUT_MAX = 256 };

/* The column `name` of a line; false: it has none. */
static bool read_field(const char *header, const char *line, const char *name, char *out,
                       size_t size)
{
    size_t len = strlen(name);
    while (strncmp(header, name, len) != 0 || !strchr(",\n", header[len])) {
        header = strchr(header, ',');
        line = strchr(line, ',');
        if (!header || !line)
            return false;
        header++;
        line++;
    }
    snprintf(out, size, "%.*s", (int)strcspn(line, ",\n"), line);
    return true;
}

static double read_percent(const char *header, const char *line, const char *name)
{
    char text[32];
    assert_true(read_field(header, line, name, text, sizeof text));
    return atof(text);
}

static size_t read_left_out(left_out *out)
{
    char header[sizeof out->text] = "", line[sizeof header];
    size_t n = 0;
    FILE *f = fopen(WEFT_SOURCE_DIR "/tests/regress/left_out.csv", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        left_out *r = &out[n];
        if (line[0] == '#')
            continue;
        if (!header[0]) {
            memcpy(header, line, sizeof line);
            continue;
        }
        assert_true(n++ < LEFT_OUT_MAX);
        memcpy(r->text, line, sizeof line);
        assert_true(read_field(header, line, "family", r->family, sizeof r->family));
        assert_true(read_field(header, line, "left_out", r->how, sizeof r->how));
        assert_true(read_field(header, line, "launcher", r->launcher, sizeof r->launcher));
        r->mape = read_percent(header, line, "mape");
        r->inside = read_percent(header, line, "inside");
        r->wave = read_percent(header, line, "wave");
        r->roofline = read_percent(header, line, "roofline");
    }
    fclose(f);
    assert_true(n >= 25);
    return n;
}

/* The recorded coverage on campaigns that were left out entirely. */
static void test_bands__cover_campaigns_left_out(void **state)
{
    static left_out row[LEFT_OUT_MAX];
    (void)state;
    for (size_t i = 0, n = read_left_out(row); i < n; i++)
        if (!(row[i].inside >= 85))
            fail_msg("under 85 %%: %s", row[i].text);
}

/* On campaigns, devices and shapes left out, the mean error of a family is at most that of either
 * analytic model. */
static void test_bands__no_family_is_worse_than_its_baselines(void **state)
{
    static left_out row[LEFT_OUT_MAX];
    size_t n = read_left_out(row);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        double mape = 0, wave = 0, roofline = 0;
        for (size_t k = 0; k < n; k++)
            if (strcmp(row[k].family, row[i].family) == 0 && strcmp(row[k].how, row[i].how) == 0 &&
                strcmp(row[k].launcher, row[i].launcher) == 0 && !strstr(row[k].text, "/vidur")) {
                mape += row[k].mape;
                wave += row[k].wave;
                roofline += row[k].roofline;
            }
        if (mape > wave || mape > roofline)
            fail_msg("worse than its baselines: %s", row[i].text);
    }
}

/* Nor is that of a single device that was left out larger than that of the wave model, or of the
 * roofline where there is no wave model. */
static void test_bands__no_device_is_worse_than_the_analytic_model(void **state)
{
    static left_out row[LEFT_OUT_MAX];
    size_t n = read_left_out(row);
    (void)state;
    for (size_t i = 0; i < n; i++)
        if (strcmp(row[i].how, "device") == 0 && row[i].mape > row[i].wave)
            fail_msg("worse than the analytic model: %s", row[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bands__widen_with_distance),
        cmocka_unit_test(test_bands__know_the_type),
        cmocka_unit_test(test_bands__know_the_launcher),
        cmocka_unit_test(test_bands__hold_the_estimate_on_every_device),
        cmocka_unit_test(test_bands__explain_says_what_widened),
        cmocka_unit_test(test_bands__time_does_not_fall_with_rows),
        cmocka_unit_test(test_bands__time_falls_little_in_slices),
        cmocka_unit_test(test_bands__cover_campaigns_left_out),
        cmocka_unit_test(test_bands__no_family_is_worse_than_its_baselines),
        cmocka_unit_test(test_bands__no_device_is_worse_than_the_analytic_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
