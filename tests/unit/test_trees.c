/* Trees: their tables match the features of this build, no prediction is below the floor, slices
 * follow their device, and only measured families and devices are called learned. */
#include "estimator/models/trees_int.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/* Finds features that were added, removed or moved without new tables. */
static void test_trees__tables_have_the_features_of_this_build(void **state)
{
    (void)state;
    for (int family = 0; family < WEFT_FAMILY_COUNT; family++) {
        size_t n = weft_features__count((weft_family)family);
        assert_true(n > 0 && n <= WEFT_FEATURES_MAX);
        for (size_t i = 0; i < n; i++) {
            const char *name = weft_trees__feature((weft_family)family, i);
            assert_non_null(name);
            assert_string_equal(name, weft_features__name((weft_family)family, i));
        }
        assert_null(weft_trees__feature((weft_family)family, n));
        assert_null(weft_features__name((weft_family)family, n));
    }
}

/* A random kernel of any family and size. */
static weft_kernel random_kernel(uint64_t *seed, int which)
{
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F16, WEFT_DTYPE_BF16};
    weft_dtype dtype = dtypes[(which / 5) % 3];
    double a = rand_size(seed, 1, 1e5), b = rand_size(seed, 1, 1e5), c = rand_size(seed, 1, 2000);
    weft_conv_shape conv = {.images = rand_size(seed, 1, 200),
                            .in_channels = c,
                            .out_channels = rand_size(seed, 1, 2000),
                            .groups = 1,
                            .in_h = 56,
                            .in_w = 56,
                            .out_h = 56,
                            .out_w = 56,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .stride_h = 1,
                            .stride_w = 1,
                            .pad_h = 1,
                            .pad_w = 1};
    switch (which % 5) {
    case 0:
        return weft_kernel_make_gemm(dtype, 1, a, b, c, true);
    case 1:
        return weft_kernel_make_gemm(dtype, rand_size(seed, 2, 4096), c, c, 64, false);
    case 2:
        return weft_kernel_make_conv(dtype, &conv);
    case 3:
        return weft_kernel_make_attention(dtype, 8, 12, c, c, 64);
    default:
        return weft_kernel_make_rows(which % 2 ? WEFT_KERNEL_SOFTMAX : WEFT_KERNEL_EW, "gelu",
                                     dtype, 1, a, c);
    }
}

static void test_trees__no_time_is_below_the_floor(void **state)
{
    uint64_t seed = 11;
    (void)state;
    for (size_t g = 0; weft_gpu_at(g); g++) {
        weft_slice s;
        assert_int_equal(weft_slice_make(weft_gpu_at(g)->name, "", NULL, &s), WEFT_ERR_OK);
        for (int i = 0; i < 300; i++) {
            weft_kernel k = random_kernel(&seed, i);
            for (int exact = 0; exact < 2; exact++) {
                if (!weft_model_trees.supports(&k, &s, exact))
                    continue;
                weft_timing t = weft_model_trees.predict(&k, &s, exact);
                assert_true(isfinite(t.time_us));
                assert_true(t.time_us >= weft_peak__floor_us(&k, &s, exact));
                assert_true(t.units >= 1 && t.units <= s.units);
                assert_true(t.expected_error > 0 && t.expected_error <= 1);
            }
        }
    }
}

static void test_trees__larger_share_is_never_slower(void **state)
{
    uint64_t seed = 12;
    (void)state;
    for (int i = 0; i < 150; i++) {
        weft_kernel k = random_kernel(&seed, i);
        double before_us = INFINITY;
        for (int percent = 10; percent <= 100; percent += 10) {
            char name[8];
            weft_slice s;
            snprintf(name, sizeof name, "%d%%", percent);
            assert_int_equal(weft_slice_make("a100-80", name, NULL, &s), WEFT_ERR_OK);
            if (!weft_model_trees.supports(&k, &s, true))
                continue;
            double time_us = weft_model_trees.predict(&k, &s, true).time_us;
            assert_true(time_us <= before_us * (1 + 1e-9));
            before_us = time_us;
        }
    }
}

static void test_trees__learned_is_what_was_measured(void **state)
{
    static const struct {
        const char *gpu, *slice;
        weft_dtype dtype;
        bool exact, learned;
    } cases[] = {
        {"h200", "", WEFT_DTYPE_BF16, false, true},     {"h200", "", WEFT_DTYPE_F16, false, true},
        {"h200", "", WEFT_DTYPE_F32, false, false},     {"h200", "", WEFT_DTYPE_F32, true, false},
        {"h100", "", WEFT_DTYPE_F32, true, true},       {"v100", "", WEFT_DTYPE_F32, true, true},
        {"v100", "", WEFT_DTYPE_F16, true, false},      {"l4", "", WEFT_DTYPE_BF16, false, false},
        {"h200", "50%", WEFT_DTYPE_BF16, false, false}, {"h200", "", WEFT_DTYPE_I8, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_slice s;
        weft_kernel k = weft_kernel_make_gemm(cases[i].dtype, 1, 512, 1024, 1024, true);
        weft_estimate_options options = {.exact_f32 = cases[i].exact};
        weft_cost cost;
        const char *model;
        assert_int_equal(weft_slice_make(cases[i].gpu, cases[i].slice, NULL, &s), WEFT_ERR_OK);
        assert_int_equal(weft_estimate_kernel(&k, &s, &options, NULL, &cost, &model), WEFT_ERR_OK);
        assert_string_equal(model, "trees");
        assert_string_equal(cost.source, cases[i].learned ? "learned" : "analytic");
        assert_true(cases[i].learned ? cost.expected_error < 0.1 : cost.expected_error > 0.1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees__tables_have_the_features_of_this_build),
        cmocka_unit_test(test_trees__no_time_is_below_the_floor),
        cmocka_unit_test(test_trees__larger_share_is_never_slower),
        cmocka_unit_test(test_trees__learned_is_what_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
