/* Energy: within the limits of the device, and the model against measured power (miso). */
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

/* Power of a kernel that uses a part of the memory bandwidth and keeps a part of the units busy. */
static double find_watts(const weft_slice *s, double busy, double memory)
{
    const double time_us = 1e4;
    weft_kernel k = {.kind = WEFT_KERNEL_EW, .dtype = WEFT_DTYPE_F32};
    k.work.weight_bytes = memory * s->bandwidth_gbps * 1e3 * time_us;
    weft_usage u = {.sm_active = busy * s->share};
    return weft_energy__kernel_j(&k, s, false, time_us, &u) / (time_us * 1e-6);
}

static void test_energy__is_between_idle_and_full(void **state)
{
    weft_slice s;
    (void)state;
    for (size_t i = 0; weft_gpu_at(i); i++) {
        const weft_gpu *g = weft_gpu_at(i);
        assert_int_equal(weft_slice_make(g->name, "", NULL, &s), WEFT_ERR_OK);
        assert_true(fabs(find_watts(&s, 0, 0) / g->idle_w - 1) < 1e-12);
        assert_true(find_watts(&s, 1, 1) > 0.9 * g->power_w);
        assert_true(find_watts(&s, 1, 2) <= g->power_w * (1 + 1e-12));
        double before = 0;
        for (double x = 0; x <= 1; x += 0.1) {
            double watts = find_watts(&s, x, x);
            assert_true(watts >= before);
            before = watts;
            assert_true(find_watts(&s, x, 0) < find_watts(&s, 1, x) + 1e-9);
        }
    }
}

/* The idle powers of the slices of a device add up to that of the device. */
static void test_energy__slices_share_the_idle_power(void **state)
{
    weft_slice whole, small, large;
    (void)state;
    assert_int_equal(weft_slice_make("h200", "", NULL, &whole), WEFT_ERR_OK);
    assert_int_equal(weft_slice_make("h200", "1g.18gb", NULL, &small), WEFT_ERR_OK);
    assert_int_equal(weft_slice_make("h200", "4g.71gb", NULL, &large), WEFT_ERR_OK);
    assert_true(fabs(weft_energy__idle_w(&whole) - whole.gpu->idle_w) < 1e-9);
    assert_true(fabs(weft_energy__idle_w(&large) / weft_energy__idle_w(&small) - 4) < 1e-9);
    assert_int_equal(weft_slice_make("cpu", "2core", NULL, &small), WEFT_ERR_OK);
    assert_true(fabs(weft_energy__idle_w(&small) - 2 * small.gpu->idle_w) < 1e-12);
}

/* -- Measurements ----------------------------------------------------------------------------- */

enum { POINTS_MAX = 8, TEXT_MAX = 512 };

typedef struct series {
    int batch[POINTS_MAX];
    double value[POINTS_MAX];
    int n;
} series;

/* {"64": 94.19, "128": 111.04} */
static bool read_series(const char *what, const char *model, series *out)
{
    char name[128], path[1024], text[TEXT_MAX];
    snprintf(name, sizeof name, "miso/util_collection/%s_%s.json", what, model);
    if (!weft_data_path(name, path, sizeof path))
        return false;
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t len = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[len] = 0;
    out->n = 0;
    for (char *at = strchr(text, '"'); at && out->n < POINTS_MAX; at = strchr(at, '"')) {
        assert_int_equal(sscanf(at, "\"%d\": %lf", &out->batch[out->n], &out->value[out->n]), 2);
        out->n++;
        at = strchr(at, ':');
    }
    return true;
}

/* Board power of training jobs on an A100 of 250 W; idle power is that of its idle job. */
static void test_energy__power_is_as_measured(void **state)
{
    static const char *const models[] = {"resnet",   "bert",        "mobilenet", "transformer",
                                         "cyclegan", "deepspeech2", "embedding", "gnn"};
    static const double board_w = 250;
    series idle, power, busy, memory;
    weft_slice s;
    double sum = 0;
    int n = 0;
    (void)state;
    if (!read_series("power", "dummy", &idle)) {
        print_message("no measurements in the folder miso (WEFT_DATA)\n");
        skip();
    }
    double idle_w = idle.value[0];
    assert_int_equal(weft_slice_make("a100-40", "", NULL, &s), WEFT_ERR_OK);
    /* The table's idle power is the same part of the board's power. */
    assert_true(fabs(s.gpu->idle_w / s.gpu->power_w - idle_w / board_w) < 0.02);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        assert_true(read_series("power", models[m], &power));
        assert_true(read_series("util_sm", models[m], &busy));
        assert_true(read_series("util_mem", models[m], &memory));
        for (int i = 0; i < power.n; i++) {
            double watts = find_watts(&s, busy.value[i] / 100, memory.value[i] / 100);
            double level = (watts - s.gpu->idle_w) / (s.gpu->power_w - s.gpu->idle_w);
            sum += fabs((idle_w + (board_w - idle_w) * level) / power.value[i] - 1);
            n++;
        }
    }
    print_message("%d jobs: mean error of the power %.1f %%\n", n, 100 * sum / n);
    assert_int_equal(n, 32);
    assert_true(sum / n < 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy__is_between_idle_and_full),
        cmocka_unit_test(test_energy__slices_share_the_idle_power),
        cmocka_unit_test(test_energy__power_is_as_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
