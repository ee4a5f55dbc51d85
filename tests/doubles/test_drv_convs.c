/* Convolutions of the CUDA driver on the doubles: whether cuDNN computes them, from which plan, and
 * what is done without it. test_drv_convs FOLDER: the folder of the bundles of compile.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/sm_limits.h"
#include "drv_world.h"
#include "runtime/cuda/cudnn_plan.h"

static const char *folder;

static const char *bundle_path(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s.weft", folder, name);
    return path[turn];
}

/* -- Whole networks --------------------------------------------------------------------------- */

/* Number of launches of a model (NULL: the first) whose kernel is cuDNN's after a run at this
 * batch.
 */
static uint32_t count_of_model(const char *bundle, const char *model, int64_t batch)
{
    subject s;
    uint32_t n = 0, count = 0;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    need(open_subject(&s, bundle_path(bundle), model, &whole));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n_in = make_inputs(p, batch, in);
    weft_session_profile(s.session, true);
    need(weft_session_run(s.session, in, n_in, diag, out, p->n_output));
    const weft_launch_time *t = weft_session_times(s.session, &n);
    for (uint32_t i = 0; i < n; i++)
        count += strcmp(t[i].variant, "cudnn") == 0;
    free_inputs(in, n_in);
    close_subject(&s);
    sound();
    return count;
}

static uint32_t count_cudnn(int64_t batch)
{
    return count_of_model("convs.gpu", NULL, batch);
}

static void compare_convs(void)
{
    compare_model(bundle_path("convs.cpu"), bundle_path("convs.gpu"), NULL, &whole, 4);
}

/* All convolutions but the depthwise one and two that are products. */
enum { FOR_CUDNN = 6 };

/* Of sizes that were planned, and of others, whose plans are found when they run. */
static void test_drv_convs__run_on_cudnn(void **state)
{
    (void)state;
    assert_int_equal(count_cudnn(1), FOR_CUDNN);
    assert_int_equal(count_cudnn(3), FOR_CUDNN);
    compare_convs();
}

static void test_drv_convs__run_without_cudnn(void **state)
{
    (void)state;
    setenv("WEFT_DOUBLE_FAIL", "cudnnCreate:1=1001,cudnnCreate:2=1001", 1);
    assert_int_equal(count_cudnn(2), 0);
    d.dnn_reset();
    compare_convs();
}

/* Heuristics are not asked for what was planned by this version (WEFT_DOUBLE_CUDNN: by another);
 * where they have no engine, our own kernels run. */
static void test_drv_convs__use_their_plans(void **state)
{
    (void)state;
    setenv("WEFT_DOUBLE_ABSENT", "conv", 1);
    assert_int_equal(count_cudnn(2), getenv("WEFT_DOUBLE_CUDNN") ? 0 : FOR_CUDNN);
    assert_int_equal(count_cudnn(3), 0);
    compare_convs();
    unsetenv("WEFT_DOUBLE_ABSENT");
}

static void test_drv_convs__run_on_partitions(void **state)
{
    (void)state;
    const weft_engine_options part = {.threads = 1, .sm_first = 16, .n_sm = 32};
    compare_model(bundle_path("convs.cpu"), bundle_path("convs.gpu"), NULL, &part, 2);
}

/* -- Attention and pooling -------------------------------------------------------------------- */

/* All but attention with heads of 12 columns or rows of 52, and all pooling; with and without
 * cuDNN.
 */
static void test_drv_convs__run_attention_and_pooling(void **state)
{
    (void)state;
    static const char *const absent[] = {"", "attention", "pool"};
    for (int i = 0; i < 3; i++) {
        setenv("WEFT_DOUBLE_ABSENT", absent[i], 1);
        for (int half = 0; half < 2; half++) {
            const char *gpu = half ? "heads.bf16.gpu" : "heads.f16.gpu";
            tolerance = half ? 2e-2 : 3e-3;
            assert_int_equal(count_of_model(gpu, "heads", 2), i == 1 ? 0 : 3);
            assert_int_equal(count_of_model(gpu, "pools", 2), i == 2 ? 1 : 6);
            compare_model(bundle_path("heads.cpu"), bundle_path(gpu), "heads", &whole, 3);
            compare_model(bundle_path("heads.cpu"), bundle_path(gpu), "pools", &whole, 3);
        }
    }
    unsetenv("WEFT_DOUBLE_ABSENT");
    tolerance = 1e-4;
}

/* NaN stays where it is: cuDNN's maximum skips it unless it is told not to. */
static void test_drv_convs__pooling_keeps_nan(void **state)
{
    (void)state;
    subject cpu, gpu;
    weft_tensor in[PORTS_MAX], want[PORTS_MAX], got[PORTS_MAX];
    need(open_subject(&cpu, bundle_path("heads.cpu"), "pools", &whole));
    need(open_subject(&gpu, bundle_path("heads.f16.gpu"), "pools", &whole));
    const weft_bundle_program *p = weft_session_program(cpu.session);
    uint32_t n_in = make_inputs(p, 1, in);
    ((float *)in[0].data)[4 * 8 + 3] = NAN;
    need(weft_session_run(cpu.session, in, n_in, diag, want, p->n_output));
    need(weft_session_run(gpu.session, in, n_in, diag, got, p->n_output));
    for (uint32_t i = 0; i < p->n_output; i++) {
        int64_t n = weft_tensor_numel(&want[i]), found = 0;
        for (int64_t k = 0; k < n; k++) {
            bool is_nan = isnan(weft_tensor_get_f64(&want[i], k));
            if (isnan(weft_tensor_get_f64(&got[i], k)) != is_nan)
                fail_msg("output %u: element %lld", i, (long long)k);
            found += is_nan;
        }
        assert_in_range(found, 1, n - 1);
    }
    free_inputs(in, n_in);
    close_subject(&cpu);
    close_subject(&gpu);
}

/* -- Failing calls ---------------------------------------------------------------------------- */

/* One run with the n-th call failing: the right answer, or an error. false: an error. */
static bool run_failing(const char *call, unsigned n, unsigned code, const weft_tensor *in,
                        uint32_t n_in, const weft_tensor *want, uint32_t n_out)
{
    char text[96];
    subject s;
    weft_tensor out[PORTS_MAX];
    snprintf(text, sizeof text, "%s:%u=%u", call, n, code);
    d.reset();
    d.dnn_reset();
    setenv("WEFT_DOUBLE_FAIL", text, 1);
    weft_err err = open_subject(&s, bundle_path("convs.gpu"), NULL, &whole);
    if (err == WEFT_ERR_OK)
        err = weft_session_run(s.session, in, n_in, diag, out, n_out);
    for (uint32_t i = 0; err == WEFT_ERR_OK && i < n_out; i++)
        if (!(difference(&out[i], &want[i]) <= tolerance))
            fail_msg("%s: another answer", text);
    close_subject(&s);
    unsetenv("WEFT_DOUBLE_FAIL");
    const char *found;
    if (d.mistakes(&found) || d.dnn_mistakes(&found))
        fail_msg("%s: %s", text, found);
    if (err != WEFT_ERR_OK && weft_diag_count(diag) == 0)
        fail_msg("%s: an error without a message", text);
    weft_diag_clear(diag);
    return err == WEFT_ERR_OK;
}

static void test_drv_convs__survive_failing_calls(void **state)
{
    (void)state;
#define CUDNN_SYM(result, name, args) #name,
    static const char *const calls[] = {
#include "runtime/cuda/cudnn_syms.def"
    };
#undef CUDNN_SYM
    static const unsigned codes[] = {WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                     WEFT_CUDNN_STATUS_NOT_SUPPORTED,
                                     WEFT_CUDNN_STATUS_EXECUTION_FAILED};
    subject cpu;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    need(open_subject(&cpu, bundle_path("convs.cpu"), NULL, &whole));
    const weft_bundle_program *p = weft_session_program(cpu.session);
    uint32_t n_in = make_inputs(p, 3, in), failed = 0;
    need(weft_session_run(cpu.session, in, n_in, diag, out, p->n_output));
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (unsigned n = 1, before = 0, next; n < 2000; next = n + before, before = n, n = next)
            failed += !run_failing(calls[i], n, codes[n % 3], in, n_in, out, p->n_output);
    assert_true(failed > 0);
    free_inputs(in, n_in);
    close_subject(&cpu);
}

/* -- Plans without a device ------------------------------------------------------------------- */

static const weft_conv_key a_conv = {
    .dim = {[WEFT_CONV_IMAGES] = 8,   [WEFT_CONV_CHANNELS] = 64,    [WEFT_CONV_FEATURES] = 64,
            [WEFT_CONV_GROUPS] = 1,   [WEFT_CONV_IN] = 1,           [WEFT_CONV_IN + 1] = 56,
            [WEFT_CONV_IN + 2] = 56,  [WEFT_CONV_OUT] = 1,          [WEFT_CONV_OUT + 1] = 56,
            [WEFT_CONV_OUT + 2] = 56, [WEFT_CONV_PAD + 1] = 1,      [WEFT_CONV_PAD + 2] = 1,
            [WEFT_CONV_KERNEL] = 1,   [WEFT_CONV_KERNEL + 1] = 3,   [WEFT_CONV_KERNEL + 2] = 3,
            [WEFT_CONV_STRIDE] = 1,   [WEFT_CONV_STRIDE + 1] = 1,   [WEFT_CONV_STRIDE + 2] = 1,
            [WEFT_CONV_DILATION] = 1, [WEFT_CONV_DILATION + 1] = 1, [WEFT_CONV_DILATION + 2] = 1},
    .dtype = WEFT_DTYPE_F32,
    .flags = WEFT_CONV_BIAS | WEFT_CONV_Z | WEFT_CONV_RELU};

/* The engine of the plan that is chosen; -1: none. */
static int engine_of(weft_cudnn_device *device, const weft_conv_key *conv)
{
    int engine = -1;
    weft_cudnn_plan *plan = weft_cudnn__choose(device, conv);
    char *text = plan ? weft_cudnn__text(plan) : NULL;
    const char *at = text ? strstr(text, "\"engineId\":") : NULL;
    if (at)
        engine = atoi(at + strlen("\"engineId\":"));
    weft_cudnn_plan *again = text ? weft_cudnn__restore(device, text) : NULL;
    assert_true((plan == NULL) == (again == NULL));
    weft_cudnn__drop(again);
    weft_cudnn__drop(plan);
    free(text);
    return engine;
}

/* In the double, 26 has tensor cores, 11 has not, and those before both round or are compiled when
 * they run. */
static void test_drv_convs__are_planned_without_a_device(void **state)
{
    (void)state;
    const weft_libcudnn *lib;
    weft_cudnn_device device;
    weft_conv_key conv = a_conv;
    need(weft_libcudnn__get(diag, &lib));
    assert_true(weft_cudnn__imagine(&device, lib, weft_sm_limits_find(80), 108, 1ull << 36));
    assert_int_equal(engine_of(&device, &conv), 11);
    conv.flags |= WEFT_CONV_TF32;
    assert_int_equal(engine_of(&device, &conv), 26);
    conv.flags = 0;
    conv.dtype = WEFT_DTYPE_F16;
    assert_int_equal(engine_of(&device, &conv), 26);
    conv.dim[WEFT_CONV_CHANNELS] = 0;
    assert_int_equal(engine_of(&device, &conv), -1);
    weft_conv_key attention = {.dim = {2, 4, 8, 8, 64, 768, 768, 768, 256},
                               .dtype = WEFT_DTYPE_F16,
                               .flags = WEFT_CONV_ATTENTION | WEFT_CONV_Z};
    assert_int_equal(engine_of(&device, &attention), 5);
    attention.dim[WEFT_ATTENTION_HEAD] = 60;
    assert_int_equal(engine_of(&device, &attention), -1);
    weft_cudnn__forget(&device);
    sound();
}

static int load_all(void **state)
{
    (void)state;
    doubles_load(&d);
    return 0;
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(test_drv_convs__##name, start, end)
    const struct CMUnitTest tests[] = {
        T(run_on_cudnn),
        T(run_without_cudnn),
        T(use_their_plans),
        T(run_on_partitions),
        T(survive_failing_calls),
        T(are_planned_without_a_device),
        T(run_attention_and_pooling),
        T(pooling_keeps_nan),
    };
    if (argc != 2)
        return 2;
    folder = argv[1];
    if (access(bundle_path("convs.gpu"), R_OK) != 0) {
        printf("%s was not compiled\n", bundle_path("convs.gpu"));
        return 77;
    }
    return cmocka_run_group_tests(tests, load_all, NULL);
}
