/* Use of the compute units: invariants of every kernel, cases computed by hand, and launches
 * against recorded ones (neusight). */
#include "estimator/device/device.h"
#include "estimator/models/models.h"

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

static weft_kernel draw_kernel(uint64_t *seed)
{
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F16, WEFT_DTYPE_BF16,
                                        WEFT_DTYPE_F64, WEFT_DTYPE_I8};
    weft_dtype dtype = dtypes[(size_t)rand_size(seed, 1, 6) % 5];
    weft_kernel_kind kind = (weft_kernel_kind)((int)rand_size(seed, 1, WEFT_KERNEL_COUNT + 1) - 1);
    double m = rand_size(seed, 1, 1e6), n = rand_size(seed, 1, 1e5), k = rand_size(seed, 1, 1e5);
    if (kind == WEFT_KERNEL_GEMM || kind == WEFT_KERNEL_CONV)
        return weft_kernel_make_gemm(dtype, rand_size(seed, 1, 1e3), m, n, k, true);
    if (kind == WEFT_KERNEL_ATTENTION)
        return weft_kernel_make_attention(dtype, rand_size(seed, 1, 64), 16, n, n, 64);
    return weft_kernel_make_rows(kind, NULL, dtype, 2, m, n);
}

static const char *const slice_names[] = {"",        "10%",     "50%",     "1g.10gb",
                                          "3g.40gb", "7g.80gb", "1g.18gb", "1g.6gb"};

/* -- What holds for every kernel -------------------------------------------------------------- */

static void check_usage(const weft_slice *s, const weft_usage *u)
{
    const double slack = 1e-9;
    assert_true(u->sm_need >= 1.0 / s->all_units - slack);
    assert_true(u->sm_need <= u->sm_peak + slack && u->sm_peak <= s->share + slack);
    assert_true(u->occ_theory > 0 && u->occ_theory <= 1);
    assert_true(u->occ_active > 0 && u->occ_active <= u->occ_theory + slack);
    assert_true(u->sm_active >= 0 && u->sm_active <= u->sm_peak + slack);
    assert_true(u->occ_elapsed <= u->occ_active + slack && u->occ_elapsed <= u->sm_active + slack);
    assert_true(u->occ_elapsed >= 0);
    assert_true(u->launch.blocks >= 1 && u->launch.threads >= 32 && u->launch.threads <= 1024);
}

static void test_usage__holds_together(void **state)
{
    uint64_t seed = 17;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        if (weft_gpu_at(i)->capability == 0)
            continue;
        for (size_t j = 0; j < sizeof slice_names / sizeof slice_names[0]; j++) {
            weft_slice s;
            if (weft_slice_make(weft_gpu_at(i)->name, slice_names[j], NULL, &s) != WEFT_ERR_OK)
                continue;
            for (int round = 0; round < 300; round++) {
                weft_kernel k = draw_kernel(&seed);
                double time_us = rand_size(&seed, 1, 1e5), need = rand_size(&seed, 1, 400) - 1;
                weft_usage u = weft_usage__find(&k, &s, round % 2, time_us, need);
                check_usage(&s, &u);
            }
        }
    }
}

/* Every guessed launch fits every device. */
static void test_usage__launches_fit(void **state)
{
    uint64_t seed = 23;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        weft_slice s;
        assert_int_equal(weft_slice_make(weft_gpu_at(i)->name, "", NULL, &s), WEFT_ERR_OK);
        if (s.gpu->capability == 0)
            continue;
        for (int round = 0; round < 500; round++) {
            weft_kernel k = draw_kernel(&seed);
            weft_launch l = weft_usage__launch(&k, &s, round % 2);
            weft_thread_block b = {.threads = l.threads,
                                   .regs = l.regs,
                                   .dynamic_bytes = l.shared_bytes,
                                   .dynamic_max_bytes = l.shared_bytes,
                                   .opt_in = true};
            weft_occupancy o;
            assert_int_equal(weft_occupancy_find(s.gpu->capability, &b, NULL, &o), WEFT_ERR_OK);
            if (o.blocks == 0)
                fail_msg("%s: %u threads, %u registers, %u bytes", s.gpu->name, l.threads, l.regs,
                         l.shared_bytes);
        }
    }
}

/* -- Known cases ------------------------------------------------------------------------------ */

/* By hand: 132 SMs of 64 warps; blocks of 128 threads with 32 registers: 16 blocks an SM. */
static void test_usage__is_that_of_the_formulas(void **state)
{
    weft_slice s;
    weft_usage u;
    (void)state;
    assert_int_equal(weft_slice_make("h200", "", NULL, &s), WEFT_ERR_OK);
    double launch = s.gpu->launch_us;
    weft_kernel k = weft_kernel_make_rows(WEFT_KERNEL_EW, "add", WEFT_DTYPE_F32, 2, 1, 512 * 33);
    u = weft_usage__find(&k, &s, false, 2 * launch, 0);
    assert_true(u.launch.blocks == 33 && u.launch.threads == 128);
    assert_true(u.sm_peak == 33.0 / 132 && u.occ_theory == 1);
    /* One wave holds 16 * 132 blocks: 33 blocks need 33 / 16 SMs, rounded up to 3. */
    assert_true(fabs(u.sm_need - 3.0 / 132) < 1e-12);
    assert_true(fabs(u.occ_active - 4.0 / 64) < 1e-12); /* one block of 4 warps on each */
    assert_true(fabs(u.sm_active - 33.0 / 132 / 2) < 1e-12);
    assert_true(fabs(u.occ_elapsed - 33.0 * 4 / (64 * 132) / 2) < 1e-12);
    /* Two waves: 2112 blocks, and a tail of 1. */
    k = weft_kernel_make_rows(WEFT_KERNEL_EW, "add", WEFT_DTYPE_F32, 2, 1, 512.0 * 2113);
    u = weft_usage__find(&k, &s, false, 1e9, 0);
    assert_true(u.sm_peak == 1);
    assert_true(fabs(u.sm_need - ceil(2113.0 / 32) / 132) < 1e-12);
    assert_true(fabs(u.sm_active / (133.0 / 264) - 1) < 1e-6);
    assert_true(fabs(u.occ_elapsed / (2113.0 * 4 / (64 * 264)) - 1) < 1e-6);
    /* The need of the time model is used if it is known, up to the number of blocks. */
    u = weft_usage__find(&k, &s, false, 1e9, 40);
    assert_true(fabs(u.sm_need - 40.0 / 132) < 1e-12);
    k = weft_kernel_make_rows(WEFT_KERNEL_EW, "add", WEFT_DTYPE_F32, 2, 1, 512 * 7);
    u = weft_usage__find(&k, &s, false, 1e9, 40);
    assert_true(fabs(u.sm_need - 7.0 / 132) < 1e-12);
    /* The launch takes the whole time. */
    u = weft_usage__find(&k, &s, false, launch, 0);
    assert_true(u.sm_active == 0 && u.occ_elapsed == 0);
}

static void test_usage__of_a_cpu_is_its_cores(void **state)
{
    weft_slice s;
    (void)state;
    assert_int_equal(weft_slice_make("cpu", "4core", NULL, &s), WEFT_ERR_OK);
    weft_kernel k = weft_kernel_make_gemm(WEFT_DTYPE_F32, 1, 64, 64, 64, true);
    weft_usage u = weft_usage__find(&k, &s, false, 10, 2);
    assert_true(u.sm_need == 0.5 && u.sm_peak == 1 && u.occ_theory == 0 && u.occ_active == 0);
    assert_true(u.launch.blocks == 0);
}

/* On a whole device a kernel never needs fewer units than on a part of it. */
static void test_usage__peak_grows_with_the_slice(void **state)
{
    uint64_t seed = 29;
    (void)state;
    for (int round = 0; round < 300; round++) {
        weft_kernel k = draw_kernel(&seed);
        double before = 0;
        if (k.kind == WEFT_KERNEL_GEMM)
            continue; /* another tile may do better there */
        for (int percent = 10; percent <= 100; percent += 10) {
            char name[8];
            weft_slice s;
            snprintf(name, sizeof name, "%d%%", percent);
            assert_int_equal(weft_slice_make("a100-80", name, NULL, &s), WEFT_ERR_OK);
            weft_usage u = weft_usage__find(&k, &s, false, 100, 0);
            assert_true(u.sm_peak >= before);
            before = u.sm_peak;
        }
    }
}

/* -- Recorded launches ------------------------------------------------------------------------ */

enum { LINE_MAX_BYTES = 256, FIELDS_MAX = 16 };

typedef struct tally {
    int n, twice;       /* rows; within a factor of 2 */
    double exact, peak; /* equal; sum of |sm_peak - recorded| */
} tally;

static int split_line(char *line, char **field)
{
    int n = 0;
    line[strcspn(line, "\n")] = 0;
    for (char *at = line; at && n < FIELDS_MAX;)
        field[n++] = strsep(&at, ",");
    return n;
}

static bool find_device(const char *name, weft_slice *out)
{
    static const char *const names[][2] = {{"V100-PCIE-32GB", "v100-pcie-32"},
                                           {"A100-PCIE-40GB", "a100-40"},
                                           {"A100-PCIE-80GB", "a100-80"},
                                           {"H100-SXM-80GB", "h100"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i][0], name) == 0)
            return weft_slice_make(names[i][1], "", NULL, out) == WEFT_ERR_OK;
    return false;
}

/* In the linear and bmm rows of the set the result is m x k and n is the summed dimension: the
 * recorded grids show it; the flops are the same. */
static bool make_recorded(const char *file, char **f, weft_kernel *out)
{
    if (strcmp(file, "linear.csv") == 0 || strcmp(file, "bmm.csv") == 0) {
        *out = weft_kernel_make_gemm(WEFT_DTYPE_F32, atof(f[7]), atof(f[8]), atof(f[10]),
                                     atof(f[9]), file[0] == 'l');
    } else if (strcmp(file, "conv.csv") == 0) {
        double taps = atof(f[10]), size = atof(f[11]), stride = atof(f[12]), pad = atof(f[13]);
        double result = floor((size + 2 * pad - taps) / stride) + 1;
        weft_conv_shape c = {.images = atof(f[7]),
                             .in_channels = atof(f[8]),
                             .out_channels = atof(f[9]),
                             .groups = 1,
                             .in_h = size,
                             .in_w = size,
                             .out_h = result,
                             .out_w = result,
                             .kernel_h = taps,
                             .kernel_w = taps,
                             .stride_h = stride,
                             .stride_w = stride,
                             .pad_h = pad,
                             .pad_w = pad};
        *out = weft_kernel_make_conv(WEFT_DTYPE_F32, &c);
    } else {
        weft_kernel_kind kind = strcmp(f[2], "ln") == 0        ? WEFT_KERNEL_NORM
                                : strcmp(f[2], "softmax") == 0 ? WEFT_KERNEL_SOFTMAX
                                                               : WEFT_KERNEL_EW;
        *out = weft_kernel_make_rows(kind, f[2], WEFT_DTYPE_F32, 1, atof(f[7]), atof(f[8]));
    }
    return true;
}

static bool compare_file(const char *file, const char *wanted_split, tally *out)
{
    char name[64], path[1024], line[LINE_MAX_BYTES], *f[FIELDS_MAX];
    snprintf(name, sizeof name, "neusight/%s", file);
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *in = fopen(path, "r");
    if (!in)
        return false;
    *out = (tally){0};
    while (fgets(line, sizeof line, in)) {
        weft_slice s;
        weft_kernel k;
        if (split_line(line, f) < 9 || strcmp(f[1], wanted_split) != 0 || !find_device(f[0], &s))
            continue;
        assert_true(make_recorded(file, f, &k));
        double blocks = weft_usage__launch(&k, &s, true).blocks, real = atof(f[5]);
        out->n++;
        out->exact += blocks == real;
        out->twice += blocks <= 2 * real && real <= 2 * blocks;
        out->peak += fabs(fmin(blocks, s.units) - fmin(real, s.units)) / s.units;
    }
    fclose(in);
    return true;
}

static void test_usage__launches_are_like_recorded_ones(void **state)
{
    static const struct {
        const char *file, *split;
        double twice, peak; /* at least, at most */
    } sets[] = {{"linear.csv", "test", 0.75, 0.02},
                {"bmm.csv", "test", 0.70, 0.03},
                {"vector_ops.csv", "test", 0.90, 0.01},
                {"conv.csv", "train", 0.65, 0.04}};
    (void)state;
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        tally t;
        if (!compare_file(sets[i].file, sets[i].split, &t)) {
            print_message("no measurements in the folder neusight (WEFT_DATA)\n");
            skip();
        }
        print_message("%-15s %5d launches: blocks equal %.0f %%, within twice %.0f %%, sm_peak off "
                      "by %.1f %% of the device\n",
                      sets[i].file, t.n, 100 * t.exact / t.n, 100.0 * t.twice / t.n,
                      100 * t.peak / t.n);
        assert_true(t.n > 1000);
        assert_true((double)t.twice / t.n >= sets[i].twice && t.peak / t.n <= sets[i].peak);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage__holds_together),
        cmocka_unit_test(test_usage__launches_fit),
        cmocka_unit_test(test_usage__is_that_of_the_formulas),
        cmocka_unit_test(test_usage__of_a_cpu_is_its_cores),
        cmocka_unit_test(test_usage__peak_grows_with_the_slice),
        cmocka_unit_test(test_usage__launches_are_like_recorded_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
