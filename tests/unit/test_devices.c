/* Device tables are consistent, and no estimate of any kernel exceeds the device's peaks. */
#include "base/device_type.h"
#include "base/diag.h"
#include "estimator/device/device.h"
#include "estimator/models/models.h"
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

/* -- Tables ----------------------------------------------------------------------------------- */

static void test_devices__all_that_are_promised_are_there(void **state)
{
    static const char *const names[] = {"k80",  "v100", "t4",   "a100-40", "a100-80", "a30", "l4",
                                        "l40s", "h100", "h200", "b200",    "mi300x",  "cpu"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_non_null(weft_device_type_find(names[i]));
        assert_non_null(weft_gpu_find(names[i]));
        assert_true(weft_device_type_find(names[i])->source[0] != 0);
    }
}

static void test_devices__cpus_are_cores_of_sockets(void **state)
{
    size_t n = 0;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        const weft_gpu *g = weft_gpu_at(i);
        weft_slice one, many;
        assert_int_equal(g->is_cpu, weft_device_type_is_cpu(g->name));
        if (!g->is_cpu)
            continue;
        assert_true(g->capability == 0 && g->bf16_gflops >= g->f32_gflops);
        assert_true(g->all_gbps > g->bandwidth_gbps && g->i8_gflops >= 2 * g->f32_gflops);
        assert_int_equal(weft_slice_make(g->name, "", NULL, &one), WEFT_ERR_OK);
        assert_int_equal(weft_slice_make(g->name, "64core", NULL, &many), WEFT_ERR_OK);
        assert_true(one.bandwidth_gbps == g->bandwidth_gbps && many.bandwidth_gbps == g->all_gbps);
        n++;
    }
    assert_true(n >= 11);
    assert_false(weft_device_type_is_cpu("cpu-none"));
}

/* MIG instances fit into the device, start at allowed slots, and have a part of it. */
static void check_mig(const weft_device_type *type, const weft_mig_profile *mig)
{
    assert_true(mig->gpcs >= 1 && mig->gpcs <= mig->of_gpcs && mig->starts != 0);
    assert_true(mig->sms > 0 && mig->sms <= type->sms);
    assert_true(fabs(mig->share - (double)mig->sms / type->sms) < 1e-12);
    assert_true(mig->slots >= 1 && mig->slots <= type->mig_slots);
    for (uint32_t s = 0; s < 32; s++)
        if (mig->starts & 1u << s)
            assert_true(s + mig->slots <= type->mig_slots);
    assert_true(mig->mem_bytes > 0);
    /* At most the memory of its slots, with a margin for formatting. */
    double part = (double)mig->slots / type->mig_slots;
    assert_true((double)mig->mem_bytes <= 1.02 * part * (double)type->mem_bytes);
}

static void test_devices__mig_profiles_are_parts(void **state)
{
    size_t with_mig = 0;
    (void)state;
    for (size_t i = 0; weft_device_type_at(i); i++) {
        const weft_device_type *type = weft_device_type_at(i);
        assert_true((type->n_mig > 0) == (type->mig_slots > 0));
        with_mig += type->n_mig > 0;
        for (size_t k = 0; k < type->n_mig; k++) {
            check_mig(type, &type->mig[k]);
            for (size_t j = 0; j < k; j++)
                assert_true(strcmp(type->mig[j].name, type->mig[k].name) != 0);
        }
    }
    assert_int_equal(with_mig, 7);
}

/* Peaks equal SMs times clock times the rate of the generation, where that is known. */
static void test_devices__rates_follow_from_the_clock(void **state)
{
    static const struct {
        const char *name;
        double lanes; /* f32 multiply-adds of an SM in a clock */
    } rows[] = {{"k80", 192}, {"p100", 64},    {"v100", 64},    {"v100-pcie-32", 64}, {"t4", 64},
                {"a30", 64},  {"a100-40", 64}, {"a100-80", 64}, {"a10", 128},         {"a10g", 128},
                {"l4", 128},  {"l40s", 128},   {"b200", 128},   {"mi300x", 128}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const weft_gpu *g = weft_gpu_find(rows[i].name);
        double gflops =
            2 * rows[i].lanes * weft_device_type_find(rows[i].name)->sms * g->clock_mhz / 1e3;
        if (fabs(gflops / g->f32_gflops - 1) > 0.03)
            fail_msg("%s: %g and %g GFLOP/s", rows[i].name, gflops, g->f32_gflops);
        assert_true(g->base_mhz <= g->clock_mhz);
    }
}

static void test_devices__units_are_those_of_the_generation(void **state)
{
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        const weft_gpu *g = weft_gpu_at(i);
        if (g->capability == 0)
            continue;
        assert_true((g->f16_gflops > 0) == (g->capability >= 60));
        assert_true((g->i8_gflops > 0) == (g->capability >= 70));
        assert_true((g->bf16_gflops > 0) == (g->capability >= 80));
        assert_true((g->tf32_gflops > 0) == (g->capability >= 80));
        assert_true((g->f8_gflops > 0) == (g->capability >= 89));
        assert_true((g->f4_gflops > 0) == (g->capability >= 100));
        assert_true(g->f4_gflops == 0 || g->f4_gflops >= 1.99 * g->f8_gflops);
        assert_true(g->f8_gflops == 0 || g->f8_gflops >= 1.99 * g->f16_gflops);
    }
}

/* What no measurement covers is told by wide bands; devices without MPS have no shares. */
static void test_devices__others_are_for_placement_only(void **state)
{
    weft_conv_shape conv = {.images = 8,
                            .in_channels = 64,
                            .out_channels = 64,
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
    const weft_kernel kernel[] = {
        weft_kernel_make_gemm(WEFT_DTYPE_F16, 1, 512, 4096, 4096, true),
        weft_kernel_make_conv(WEFT_DTYPE_F16, &conv),
        weft_kernel_make_attention(WEFT_DTYPE_F16, 8, 12, 512, 512, 64),
        weft_kernel_make_rows(WEFT_KERNEL_EW, "relu", WEFT_DTYPE_F16, 1, 4096, 1024)};
    weft_slice s;
    (void)state;
    assert_int_equal(weft_slice_make("mi300x", "40%", NULL, &s), WEFT_ERR_INPUT);
    assert_int_equal(weft_slice_make("mi300x", "", NULL, &s), WEFT_ERR_OK);
    for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++) {
        weft_cost cost;
        const char *model;
        assert_int_equal(weft_estimate_kernel(&kernel[i], &s, NULL, NULL, &cost, &model),
                         WEFT_ERR_OK);
        assert_string_not_equal(model, "trees");
        assert_string_equal(cost.source, "analytic");
        assert_true(cost.time_p95_us > 2 * cost.time_us && cost.time_p5_us < cost.time_us / 2);
    }
}

/* -- Physics ---------------------------------------------------------------------------------- */

static weft_conv_shape draw_conv(uint64_t *seed)
{
    double size = rand_size(seed, 1, 300), taps = fmin(size, rand_size(seed, 1, 8)),
           stride = rand_size(seed, 1, 4);
    double result = floor((size - taps) / stride) + 1;
    double groups = rand_size(seed, 1, 3) > 1 ? rand_size(seed, 1, 512) : 1;
    return (weft_conv_shape){.images = rand_size(seed, 1, 300),
                             .in_channels = groups * rand_size(seed, 1, 600),
                             .out_channels = groups * rand_size(seed, 1, 600),
                             .groups = groups,
                             .in_h = size,
                             .in_w = size,
                             .out_h = result,
                             .out_w = result,
                             .kernel_h = taps,
                             .kernel_w = taps,
                             .stride_h = stride,
                             .stride_w = stride};
}

/* Every kind and type, sizes from 1 to far above those in use. */
static weft_kernel draw_kernel(uint64_t *seed, weft_kernel_kind kind, weft_dtype dtype)
{
    static const char *const functions[] = {NULL, "relu", "gelu", "add", "tanh", "layer_norm"};
    const char *fn = functions[(size_t)rand_size(seed, 1, 7) - 1];
    weft_conv_shape c;
    switch (kind) {
    case WEFT_KERNEL_GEMM:
        return weft_kernel_make_gemm(dtype, rand_size(seed, 1, 1e3), rand_size(seed, 1, 1e6),
                                     rand_size(seed, 1, 1e6), rand_size(seed, 1, 1e6),
                                     rand_size(seed, 1, 3) > 1);
    case WEFT_KERNEL_CONV:
        c = draw_conv(seed);
        return weft_kernel_make_conv(dtype, &c);
    case WEFT_KERNEL_DEPTHWISE:
        c = draw_conv(seed);
        c.groups = c.in_channels = c.out_channels = rand_size(seed, 2, 4000);
        return weft_kernel_make_conv(dtype, &c);
    case WEFT_KERNEL_ATTENTION:
        return weft_kernel_make_attention(dtype, rand_size(seed, 1, 300), rand_size(seed, 1, 100),
                                          rand_size(seed, 1, 1e5), rand_size(seed, 1, 1e5),
                                          rand_size(seed, 1, 512));
    default:
        return weft_kernel_make_rows(kind, fn, dtype, rand_size(seed, 1, 4),
                                     rand_size(seed, 1, 1e7), rand_size(seed, 1, 1e5));
    }
}

/* Flops of the definition over executed flops: the kernel's flop_saving, and on plain units up to 4
 * for a 3 x 3 convolution, for which a library may use Winograd's F(4x4,3x3). */
static double find_saving(const weft_slice *s, const weft_kernel *k, double flops_per_us)
{
    const weft_conv_shape *c = &k->conv;
    double saving = fmax(1, k->flop_saving);
    double plain = (k->dtype == WEFT_DTYPE_F64 ? s->gpu->f64_gflops : s->gpu->f32_gflops) * 1e3;
    if (k->kind == WEFT_KERNEL_CONV && c->kernel_h == 3 && c->kernel_w == 3 && c->stride_h == 1 &&
        c->stride_w == 1 && c->groups == 1 && flops_per_us <= plain * s->share * (1 + 1e-9))
        saving = fmax(saving, 4);
    return saving;
}

static bool is_possible(const weft_slice *s, const weft_kernel *k, bool exact, const weft_cost *c)
{
    const double over = 1 + 1e-9;
    double parts = s->gpu->is_cpu ? s->units : s->share;
    double us = c->time_us * over, peak = weft_peak__flops_per_us(s, k, exact);
    double all = k->work.bytes_read + k->work.bytes_written + k->work.weight_bytes;
    double memory = weft_traffic__memory_bytes(s, k), watts = c->energy_j / (c->time_us * 1e-6);
    return isfinite(c->time_us) && c->time_us >= s->gpu->launch_us &&
           k->work.flops / find_saving(s, k, peak) <= us * peak &&
           memory <= us * s->bandwidth_gbps * 1e3 &&
           all - memory <= us * fmax(s->cache_gbps, s->bandwidth_gbps) * 1e3 &&
           c->bandwidth_gbps >= 0 && c->bandwidth_gbps <= s->bandwidth_gbps * over && c->creq > 0 &&
           c->creq <= s->share * over && watts <= s->gpu->power_w * parts * over &&
           watts >= s->gpu->idle_w * parts / over && c->expected_error > 0 &&
           isfinite(c->expected_error);
}

static void test_devices__no_estimate_is_above_the_device(void **state)
{
    static const char *const slices[] = {"",        "1%",      "35%",     "1g.5gb",  "1g.10gb",
                                         "2g.20gb", "3g.40gb", "7g.80gb", "1g.6gb",  "4g.24gb",
                                         "1g.45gb", "3g.90gb", "1g.18gb", "3g.71gb", "3g.40gb/50%",
                                         "2core",   "64core"};
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32,  WEFT_DTYPE_F64, WEFT_DTYPE_F16,
                                        WEFT_DTYPE_BF16, WEFT_DTYPE_I8,  WEFT_DTYPE_I32,
                                        WEFT_DTYPE_I64,  WEFT_DTYPE_BOOL};
    uint64_t seed = 31;
    size_t n = 0;
    (void)state;
    for (size_t g = 0; weft_gpu_at(g); g++)
        for (size_t j = 0; j < sizeof slices / sizeof slices[0]; j++) {
            weft_slice s;
            if (weft_slice_make(weft_gpu_at(g)->name, slices[j], NULL, &s) != WEFT_ERR_OK)
                continue;
            for (int kind = 0; kind < WEFT_KERNEL_COUNT; kind++)
                for (size_t d = 0; d < 6 * sizeof dtypes / sizeof dtypes[0]; d++) {
                    weft_kernel k = draw_kernel(&seed, (weft_kernel_kind)kind,
                                                dtypes[d % (sizeof dtypes / sizeof dtypes[0])]);
                    weft_estimate_options o = {.exact_f32 = d % 2};
                    if (kind == WEFT_KERNEL_CONV && d % 3 == 0)
                        k.flop_saving = 2;
                    weft_cost c;
                    const char *model;
                    assert_int_equal(weft_estimate_kernel(&k, &s, &o, NULL, &c, &model),
                                     WEFT_ERR_OK);
                    if (!is_possible(&s, &k, o.exact_f32, &c))
                        fail_msg("%s %s, %s %s: %g flops, %g bytes in %g us by %s", s.gpu->name,
                                 s.name, weft_kernel_kind_name(k.kind), weft_dtype_name(k.dtype),
                                 k.work.flops,
                                 k.work.bytes_read + k.work.bytes_written + k.work.weight_bytes,
                                 c.time_us, model);
                    n++;
                }
        }
    print_message("%zu kernels\n", n);
    assert_true(n > 30000);
}

/* Messages name the wrong value and the right ones. */
static void test_devices__refusals_say_why(void **state)
{
    static const char *const wrong[][3] = {
        {"k20", "", "k20"},           {"", "", "weft list gpus"},  {"h200", "1g.10gb", "1g.10gb"},
        {"t4", "1g.10gb", "MIG"},     {"a30", "1g.5gb", "1g.5gb"}, {"l4", "120%", "120%"},
        {"b200", "1g.23gb/0%", "0%"}, {"cpu", "0core", "1core"}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weft_diag *diag = weft_diag_create();
        weft_slice s;
        assert_int_equal(weft_slice_make(wrong[i][0], wrong[i][1], diag, &s), WEFT_ERR_INPUT);
        assert_int_equal(weft_diag_count(diag), 1);
        if (!strstr(weft_diag_at(diag, 0)->text, wrong[i][2]))
            fail_msg("%s: no '%s'", weft_diag_at(diag, 0)->text, wrong[i][2]);
        weft_diag_destroy(diag);
    }
}

/* An MPS share beside busy neighbours has its proportional part of bandwidth and cache; its other
 * fields do not change. */
static void test_devices__crowded_shares_have_their_part(void **state)
{
    static const char *const whole[] = {"", "3g.71gb"}, *const share[] = {"40%", "3g.71gb/40%"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_slice all, alone, crowded;
        assert_int_equal(weft_slice_make("h200", whole[i], NULL, &all), WEFT_ERR_OK);
        assert_int_equal(weft_slice_make("h200", share[i], NULL, &alone), WEFT_ERR_OK);
        crowded = alone;
        weft_slice_crowd(&crowded);
        double part = (double)alone.units / all.units;
        assert_true(fabs(crowded.bandwidth_gbps - part * all.bandwidth_gbps) < 1e-9);
        assert_true(fabs(crowded.cache_gbps - part * all.cache_gbps) < 1e-9);
        assert_true(crowded.bandwidth_gbps < alone.bandwidth_gbps);
        assert_true(crowded.cache_bytes < all.cache_bytes && crowded.units == alone.units);
        alone = all;
        weft_slice_crowd(&all);
        assert_memory_equal(&alone, &all, sizeof all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices__crowded_shares_have_their_part),
        cmocka_unit_test(test_devices__all_that_are_promised_are_there),
        cmocka_unit_test(test_devices__cpus_are_cores_of_sockets),
        cmocka_unit_test(test_devices__mig_profiles_are_parts),
        cmocka_unit_test(test_devices__rates_follow_from_the_clock),
        cmocka_unit_test(test_devices__units_are_those_of_the_generation),
        cmocka_unit_test(test_devices__others_are_for_placement_only),
        cmocka_unit_test(test_devices__no_estimate_is_above_the_device),
        cmocka_unit_test(test_devices__refusals_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
