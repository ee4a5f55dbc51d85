/* Tables, slices, kernels and graphs of the estimator, and tests/regress/estimate.csv. */
#include "base/arena.h"
#include "base/device_type.h"
#include "base/diag.h"
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

/* -- Tables and slices ------------------------------------------------------------------------ */

static void test_estimator__gpu_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        const weft_gpu *g = weft_gpu_at(i);
        assert_ptr_equal(weft_gpu_find(g->name), g);
        assert_non_null(weft_device_type_find(g->name));
        assert_true(g->f32_gflops > 0 && g->bandwidth_gbps > 0 && g->launch_us > 0);
        assert_true(g->cache_gbps >= g->bandwidth_gbps && g->cache_bytes > 0);
        assert_true(g->power_w > g->idle_w && g->idle_w > 0);
        assert_true(g->source && g->source[0]);
    }
    for (size_t i = 0; weft_device_type_at(i); i++)
        assert_non_null(weft_gpu_find(weft_device_type_at(i)->name));
    assert_null(weft_gpu_find("k20"));
}

static void test_estimator__slices_are_parts(void **state)
{
    weft_slice s;
    (void)state;
    assert_int_equal(weft_slice_make("h200", "", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 132 && s.share == 1 && s.bandwidth_gbps == 4800);
    assert_int_equal(weft_slice_make("h200", "1g.35gb", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 26 && s.share == 26.0 / 132 && s.bandwidth_gbps == 1200);
    assert_int_equal(weft_slice_make("h200", "40%", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 52 && s.bandwidth_gbps > 0.7 * 4800 && s.bandwidth_gbps < 4800);
    assert_int_equal(weft_slice_make("h200", "3g.71gb/50%", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 30 && s.bandwidth_gbps < 2400 && s.cache_bytes == 30u << 20);
    assert_int_equal(weft_slice_make("h200", "0.1%", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 1);
    assert_int_equal(weft_slice_make("cpu", "", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 1 && s.bandwidth_gbps == 56);
    assert_string_equal(s.name, "1core");
    assert_int_equal(weft_slice_make("cpu", "2core", NULL, &s), WEFT_ERR_OK);
    assert_true(s.units == 2 && fabs(s.bandwidth_gbps - 66) < 1e-9);
}

static void test_estimator__refuses_unknown_slices(void **state)
{
    static const char *const wrong[][2] = {
        {"k20", ""},
        {"h200", "1g.10gb"},
        {"h200", "0%"},
        {"h200", "101%"},
        {"h200", "3g.71gb/"},
        {"h200", "/40%"},
        {"h200", "40%/40%"},
        {"h200", "3g.71gb/0%"},
        {"h200", "3g.71gb/40%/40%"},
        {"h200", "-5%"},
        {"t4", "1g.10gb"},
        {"h200", "nan%"},
        {"cpu", "40%"},
        {"cpu", "0core"},
        {"cpu", "core"},
        {"cpu", "5000core"},
        {"h200", "2core"},
        {"h200", "11111111111111111111111111111111111111111111111111"},
    };
    weft_slice s;
    (void)state;
    weft_diag *diag = weft_diag_create();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        weft_diag_clear(diag);
        assert_int_equal(weft_slice_make(wrong[i][0], wrong[i][1], diag, &s), WEFT_ERR_INPUT);
        assert_int_equal(weft_diag_count(diag), 1);
    }
    weft_diag_destroy(diag);
}

/* -- Kernels ---------------------------------------------------------------------------------- */

static weft_kernel make_gemm(weft_dtype dtype, double b, double m, double n, double k)
{
    double size = (double)weft_dtype_size(dtype);
    return (weft_kernel){.kind = WEFT_KERNEL_GEMM,
                         .dtype = dtype,
                         .work = {.flops = 2 * b * m * n * k,
                                  .bytes_read = b * m * k * size,
                                  .bytes_written = b * m * n * size,
                                  .weight_bytes = b * k * n * size},
                         .batch = b,
                         .m = m,
                         .n = n,
                         .k = k};
}

static weft_kernel make_simple(weft_dtype dtype, double elements, double flops_each)
{
    double size = (double)weft_dtype_size(dtype);
    return (weft_kernel){.kind = WEFT_KERNEL_EW,
                         .dtype = dtype,
                         .work = {.flops = elements * flops_each,
                                  .bytes_read = elements * size,
                                  .bytes_written = elements * size}};
}

static const char *const slice_names[] = {"",        "20%",     "50%",     "1g.5gb",  "1g.10gb",
                                          "2g.20gb", "3g.40gb", "7g.80gb", "1g.18gb", "3g.71gb",
                                          "1core",   "2core",   "7core"};

static double peak_gflops(const weft_gpu *g)
{
    double peak = g->f64_gflops;
    const double rates[] = {g->f32_gflops, g->tf32_gflops, g->f16_gflops, g->bf16_gflops,
                            g->i8_gflops};
    for (size_t i = 0; i < 5; i++)
        peak = fmax(peak, rates[i]);
    return peak;
}

static void check_cost(const weft_slice *s, const weft_kernel *k, const weft_cost *c)
{
    double parts = s->gpu->is_cpu ? s->units : s->share;
    double us = c->time_us * (1 + 1e-9);
    assert_true(isfinite(c->time_us) && c->time_us >= s->gpu->launch_us);
    assert_true(c->creq > 0 && c->creq <= s->share);
    assert_true(c->bandwidth_gbps >= 0 && c->bandwidth_gbps <= s->bandwidth_gbps);
    assert_true(k->work.flops <= us * peak_gflops(s->gpu) * parts * 1e3);
    assert_true(k->work.weight_bytes <= us * s->bandwidth_gbps * 1e3);
    assert_true(c->energy_j > 0);
    double watts = c->energy_j / (c->time_us * 1e-6);
    assert_true(watts <= s->gpu->power_w * parts * (1 + 1e-9));
    assert_true(watts >= s->gpu->idle_w * parts * (1 - 1e-9));
    assert_true(c->expected_error > 0 && c->expected_error <= 1);
    assert_true(strcmp(c->source, "analytic") == 0 ||
                (strcmp(c->source, "learned") == 0 && s->units == s->all_units));
}

/* Random kernels of any size on any slice: no prediction exceeds the device's peaks or is NaN. */
static void test_estimator__stays_within_physics(void **state)
{
    static const weft_dtype dtypes[] = {WEFT_DTYPE_F32, WEFT_DTYPE_F16, WEFT_DTYPE_BF16,
                                        WEFT_DTYPE_F64, WEFT_DTYPE_I8,  WEFT_DTYPE_I64};
    uint64_t seed = 42;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        for (size_t j = 0; j < sizeof slice_names / sizeof slice_names[0]; j++) {
            weft_slice s;
            if (weft_slice_make(weft_gpu_at(i)->name, slice_names[j], NULL, &s) != WEFT_ERR_OK)
                continue;
            for (size_t round = 0; round < 200; round++) {
                weft_dtype dtype = dtypes[round % 6];
                weft_kernel k =
                    round % 4 == 0
                        ? make_simple(dtype, rand_size(&seed, 1, 1e9), rand_size(&seed, 1, 50))
                        : make_gemm(dtype, rand_size(&seed, 1, 64), rand_size(&seed, 1, 1e5),
                                    rand_size(&seed, 1, 1e5), rand_size(&seed, 1, 1e5));
                weft_cost c;
                assert_int_equal(weft_estimate_kernel(&k, &s, NULL, NULL, &c, NULL), WEFT_ERR_OK);
                check_cost(&s, &k, &c);
            }
        }
    }
}

/* Convolutions may run by an algorithm that needs fewer flops, by at most the factor of the known
 * algorithms, whatever rate the device's fastest units have. */
static void test_estimator__convolutions_stay_above_the_floor(void **state)
{
    static const char *const parts[] = {"", "1%", "30%", "1g.10gb", "4core"};
    uint64_t seed = 11;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        for (size_t j = 0; j < sizeof parts / sizeof parts[0]; j++) {
            weft_slice s;
            if (weft_slice_make(weft_gpu_at(i)->name, parts[j], NULL, &s) != WEFT_ERR_OK)
                continue;
            for (size_t round = 0; round < 100; round++) {
                double side = rand_size(&seed, 2, 256), taps = round % 2 ? 3 : 1;
                weft_conv_shape shape = {.images = rand_size(&seed, 1, 64),
                                         .in_channels = rand_size(&seed, 1, 1024),
                                         .out_channels = rand_size(&seed, 1, 1024),
                                         .groups = 1};
                shape.in_h = shape.in_w = shape.out_h = shape.out_w = side;
                shape.kernel_h = shape.kernel_w = taps;
                shape.stride_h = shape.stride_w = 1;
                weft_kernel k = weft_kernel_make_conv(WEFT_DTYPE_F32, &shape);
                weft_estimate_options how = {.exact_f32 = round % 3 == 0};
                weft_cost c;
                weft_features f;
                assert_int_equal(weft_estimate_kernel(&k, &s, &how, NULL, &c, NULL), WEFT_ERR_OK);
                weft_features_find(&k, &s, &how, &f);
                assert_true(c.time_us >= f.floor_us * (1 - 1e-9));
            }
        }
    }
}

static void test_estimator__larger_share_is_never_slower(void **state)
{
    uint64_t seed = 7;
    (void)state;
    for (int round = 0; round < 300; round++) {
        weft_kernel k = make_gemm(WEFT_DTYPE_F16, 1, rand_size(&seed, 1, 1e4),
                                  rand_size(&seed, 1, 1e4), rand_size(&seed, 1, 1e4));
        double before = INFINITY;
        for (int percent = 5; percent <= 100; percent += 5) {
            char name[8];
            weft_slice s;
            weft_cost c;
            snprintf(name, sizeof name, "%d%%", percent);
            assert_int_equal(weft_slice_make("h100", name, NULL, &s), WEFT_ERR_OK);
            assert_int_equal(weft_estimate_kernel(&k, &s, NULL, NULL, &c, NULL), WEFT_ERR_OK);
            assert_true(c.time_us <= before * (1 + 1e-9));
            before = c.time_us;
        }
    }
}

static void test_estimator__small_kernels_need_few_units(void **state)
{
    weft_slice s;
    weft_cost small, large;
    weft_kernel one = make_gemm(WEFT_DTYPE_F16, 1, 32, 32, 32);
    weft_kernel all = make_gemm(WEFT_DTYPE_F16, 1, 8192, 8192, 8192);
    (void)state;
    assert_int_equal(weft_slice_make("h200", "", NULL, &s), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&one, &s, NULL, NULL, &small, NULL), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_kernel(&all, &s, NULL, NULL, &large, NULL), WEFT_ERR_OK);
    assert_true(small.creq <= 2.0 / 132);
    assert_true(large.creq > 0.9);
}

static void test_estimator__refuses_what_is_no_kernel(void **state)
{
    weft_slice s;
    weft_cost c;
    (void)state;
    assert_int_equal(weft_slice_make("h200", "", NULL, &s), WEFT_ERR_OK);
    weft_kernel k = make_gemm(WEFT_DTYPE_F16, 1, 32, 32, 32);
    k.work.flops = (double)NAN;
    assert_int_equal(weft_estimate_kernel(&k, &s, NULL, NULL, &c, NULL), WEFT_ERR_INPUT);
    k = make_gemm(WEFT_DTYPE_F16, 1, 32, 32, 32);
    k.m = -1;
    assert_int_equal(weft_estimate_kernel(&k, &s, NULL, NULL, &c, NULL), WEFT_ERR_INPUT);
    k.m = (double)INFINITY;
    assert_int_equal(weft_estimate_kernel(&k, &s, NULL, NULL, &c, NULL), WEFT_ERR_INPUT);
    k.m = 32;
    weft_estimate_options o = {.model = "nothing"};
    assert_int_equal(weft_estimate_kernel(&k, &s, &o, NULL, &c, NULL), WEFT_ERR_UNSUP);
}

/* -- Graphs ----------------------------------------------------------------------------------- */

static const char graph_text[] = "wir 1 kernel\n"
                                 "symbol ?b = [1, 64]\n"
                                 "weight $w : f32[256,512] = random 1\n"
                                 "\n"
                                 "graph @g (%x : f32[?b,256]) {\n"
                                 "  symbol ?b \"b\"\n"
                                 "  %y : f32[?b,512] = matmul %x, $w\n"
                                 "  %z : f32[?b,512] = ew %y {steps = [\"relu i0\"]}\n"
                                 "  return \"z\" %z\n"
                                 "}\n";

static weft_module *parse_graph(weft_diag *diag, const char *text)
{
    weft_module *m = NULL;
    if (weft_module_parse(text, strlen(text), "text", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_count(diag) ? weft_diag_at(diag, 0)->text : "no message");
    return m;
}

static void test_estimator__graph_is_the_sum_of_its_kernels(void **state)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = parse_graph(diag, graph_text);
    weft_graph *g = weft_graph_at(m, 0);
    weft_slice s;
    weft_estimate e;
    int64_t symbol[4] = {0};
    (void)state;
    assert_int_equal(weft_slice_make("h100", "", diag, &s), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_symbols(g, 8, diag, symbol), WEFT_ERR_OK);
    assert_int_equal(symbol[0], 8);
    assert_int_equal(weft_estimate_graph(g, symbol, &s, NULL, arena, diag, &e), WEFT_ERR_OK);
    assert_int_equal(e.n, 2);
    assert_true(e.kernel[0].kernel.m == 8 && e.kernel[0].kernel.n == 512);
    assert_true(fabs(e.kernel[0].kernel.k - 256) < 1);
    assert_true(fabs(e.total.time_us - e.kernel[0].cost.time_us - e.kernel[1].cost.time_us) < 1e-9);
    assert_int_equal(e.weight_bytes, 256 * 512 * 4);
    assert_int_equal(e.io_bytes, 8 * 256 * 4);
    assert_int_equal(e.arena_bytes, 2 * 8 * 512 * 4); /* the output too */
    assert_int_equal(e.workspace_bytes, 32 << 20);
    assert_int_equal(e.total.mreq_bytes, e.weight_bytes + e.io_bytes + e.arena_bytes +
                                             e.workspace_bytes + e.context_bytes);
    weft_estimate_options o = {.arena_bytes = 12345};
    assert_int_equal(weft_estimate_graph(g, symbol, &s, &o, arena, diag, &e), WEFT_ERR_OK);
    assert_int_equal(e.arena_bytes, 12345);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

static void test_estimator__batch_must_fit_the_graph(void **state)
{
    weft_diag *diag = weft_diag_create();
    weft_module *m = parse_graph(diag, graph_text);
    weft_module *fixed = parse_graph(diag, "wir 1 kernel\n"
                                           "\n"
                                           "graph @g (%x : f32[2,256]) {\n"
                                           "  %z : f32[2,256] = ew %x {steps = [\"relu i0\"]}\n"
                                           "  return \"z\" %z\n"
                                           "}\n");
    int64_t symbol[4];
    (void)state;
    assert_int_equal(weft_estimate_symbols(weft_graph_at(m, 0), 65, diag, symbol), WEFT_ERR_INPUT);
    assert_int_equal(weft_estimate_symbols(weft_graph_at(fixed, 0), 1, diag, symbol), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_symbols(weft_graph_at(fixed, 0), 2, diag, symbol),
                     WEFT_ERR_UNSUP);
    weft_module_destroy(m);
    weft_module_destroy(fixed);
    weft_diag_destroy(diag);
}

static void test_estimator__profile_covers_slices_and_batches(void **state)
{
    static const uint32_t batch[] = {1, 4, 16};
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = parse_graph(diag, graph_text);
    weft_slice s[2];
    weft_profile p;
    (void)state;
    assert_int_equal(weft_slice_make("cpu", "1core", diag, &s[0]), WEFT_ERR_OK);
    assert_int_equal(weft_slice_make("h200", "1g.18gb", diag, &s[1]), WEFT_ERR_OK);
    assert_int_equal(
        weft_estimate_profile(weft_graph_at(m, 0), s, 2, batch, 3, NULL, 0, NULL, arena, diag, &p),
        WEFT_ERR_OK);
    assert_int_equal(p.n, 6);
    assert_string_equal(p.point[5].device, "h200");
    assert_string_equal(p.point[5].slice, "1g.18gb");
    assert_int_equal(p.point[5].batch, 16);
    assert_int_equal(p.point[5].procs, 1);
    assert_true(p.point[2].cost.time_us > p.point[0].cost.time_us);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
}

/* -- The table of predictions ----------------------------------------------------------------- */

enum { LINE_MAX_BYTES = 512, FIELDS = 13, KNOWN_FIELDS = 9 };

/* The expected line: its first nine fields, then the current prediction. *error gets the relative
 * error if the line has a measured time, else it is unchanged. */
static void predict_line(const char *line, char *out, size_t size, double *error)
{
    char copy[LINE_MAX_BYTES], *field[FIELDS], *at = copy;
    snprintf(copy, sizeof copy, "%s", line);
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        field[i] = strsep(&at, ",");
        assert_non_null(field[i]);
    }
    weft_slice s;
    assert_int_equal(weft_slice_make(field[0], field[1], NULL, &s), WEFT_ERR_OK);
    weft_dtype dtype = weft_dtype_parse(field[3]);
    double b = atof(field[4]), m = atof(field[5]), n = atof(field[6]), k = atof(field[7]);
    weft_kernel kernel = strcmp(field[2], "gemm") == 0 ? make_gemm(dtype, b, m, n, k)
                                                       : make_simple(dtype, b * m * n, k);
    weft_cost c;
    const char *model;
    assert_int_equal(weft_estimate_kernel(&kernel, &s, NULL, NULL, &c, &model), WEFT_ERR_OK);
    if (field[8][0])
        *error = fabs(c.time_us / atof(field[8]) - 1);
    snprintf(out, size, "%s,%s,%s,%s,%s,%s,%s,%s,%s,%.6g,%.4g,%.4g,%s", field[0], field[1],
             field[2], field[3], field[4], field[5], field[6], field[7], field[8], c.time_us,
             c.creq, c.energy_j, model);
}

/* WEFT_BLESS=1 rewrites the file. */
static void test_estimator__predictions_are_as_recorded(void **state)
{
    char path[1024], line[LINE_MAX_BYTES], now[LINE_MAX_BYTES];
    double sum = 0;
    int rows = 0, measured = 0, changed = 0;
    (void)state;
    snprintf(path, sizeof path, "%s/tests/regress/estimate.csv", WEFT_SOURCE_DIR);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *text = NULL;
    size_t text_len = 0;
    FILE *blessed = open_memstream(&text, &text_len);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        snprintf(now, sizeof now, "%s", line);
        if (line[0] != '#' && strncmp(line, "device,", 7) != 0) {
            double error = -1;
            predict_line(line, now, sizeof now, &error);
            rows++;
            sum += error >= 0 ? error : 0;
            measured += error >= 0;
        }
        if (strcmp(line, now) != 0 && changed++ < 5)
            print_message("recorded: %s\nnow:      %s\n", line, now);
        fprintf(blessed, "%s\n", now);
    }
    fclose(f);
    fclose(blessed);
    print_message("%d rows, %d measured, mean error %.1f %%\n", rows, measured,
                  100 * sum / measured);
    if (getenv("WEFT_BLESS") && changed > 0) {
        f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(text, 1, text_len, f), text_len);
        fclose(f);
        changed = 0;
    }
    free(text);
    assert_true(rows > 100 && measured > 30);
    assert_true(sum / measured < 0.20);
    assert_int_equal(changed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimator__gpu_table_is_sound),
        cmocka_unit_test(test_estimator__slices_are_parts),
        cmocka_unit_test(test_estimator__refuses_unknown_slices),
        cmocka_unit_test(test_estimator__stays_within_physics),
        cmocka_unit_test(test_estimator__convolutions_stay_above_the_floor),
        cmocka_unit_test(test_estimator__larger_share_is_never_slower),
        cmocka_unit_test(test_estimator__small_kernels_need_few_units),
        cmocka_unit_test(test_estimator__refuses_what_is_no_kernel),
        cmocka_unit_test(test_estimator__graph_is_the_sum_of_its_kernels),
        cmocka_unit_test(test_estimator__batch_must_fit_the_graph),
        cmocka_unit_test(test_estimator__profile_covers_slices_and_batches),
        cmocka_unit_test(test_estimator__predictions_are_as_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
