/* The CUDA driver on the doubles: results compared with the CPU driver; messages and clean-up when
 * calls fail, memory runs out, images are invalid, or the device differs from the one compiled for.
 *
 *   test_drv_cuda SMALL.cpu SMALL.gpu [MORE.cpu MORE.gpu]...   all tests
 *   test_drv_cuda --only NAME SMALL.cpu SMALL.gpu              one, in its own environment */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "drv_world.h"

static char **bundles; /* cpu, gpu, cpu, gpu... */
static int n_bundles;

/* -- Results ----------------------------------------------------------------------------------- */

static void compare_all(void)
{
    uint32_t n_joint = 0;
    for (int i = 0; i < n_bundles; i += 2) {
        subject s;
        tolerance = strstr(bundles[i], "f16.") ? 2e-2 : 1e-4;
        need(open_subject(&s, bundles[i], NULL, &whole));
        const weft_bundle *b = weft_engine_bundle(s.engine);
        uint32_t n = b->n_program + b->n_joint;
        n_joint += b->n_joint;
        for (uint32_t k = 0; k < n; k++)
            compare_model(bundles[i], bundles[i + 1], b->program[k].name, &whole, 4);
        close_subject(&s);
    }
    tolerance = 1e-4;
    assert_true(n_bundles == 2 || n_joint >= 7);
}

static void test_drv_cuda__equals_the_cpu(void **state)
{
    (void)state;
    compare_all();
}

/* Bundles of the real NVRTC: a later device takes their PTX, which the double interprets. */
static void test_drv_cuda__interprets_ptx(void **state)
{
    (void)state;
    setenv("WEFT_DOUBLE_ARCH", "100", 1);
    setenv("WEFT_DOUBLE_PTX_RACES", "1", 1);
    compare_all();
    unsetenv("WEFT_DOUBLE_PTX_RACES");
}

/* Runs nodes of graphs in the order of their launches instead of the reverse order. */
static void test_drv_cuda__does_not_depend_on_the_order(void **state)
{
    (void)state;
    setenv("WEFT_DOUBLE_ORDER", "first", 1);
    compare_model(bundles[0], bundles[1], NULL, &whole, 6);
}

static void test_drv_cuda__runs_on_partitions(void **state)
{
    (void)state;
    const weft_engine_options part = {.threads = 1, .sm_first = 16, .n_sm = 20};
    for (int i = 0; i < n_bundles; i += 2) {
        tolerance = strstr(bundles[i], "f16.") ? 2e-2 : 1e-4;
        compare_model(bundles[i], bundles[i + 1], NULL, &part, 2);
    }
    tolerance = 1e-4;
    const weft_engine_options beyond = {.threads = 1, .sm_first = 120, .n_sm = 20};
    subject s;
    assert_int_not_equal(open_subject(&s, bundles[1], NULL, &beyond), WEFT_ERR_OK);
    assert_true(is_said("multiprocessors 120 to 139 are requested"));
    sound();
}

static void test_drv_cuda__refuses_fewer_groups_than_promised(void **state)
{
    (void)state;
    const weft_engine_options part = {.threads = 1, .sm_first = 16, .n_sm = 20};
    subject s;
    setenv("WEFT_DOUBLE_GROUPS", "3", 1);
    assert_int_equal(open_subject(&s, bundles[1], NULL, &part), WEFT_ERR_NODEV);
    unsetenv("WEFT_DOUBLE_GROUPS");
    assert_true(is_said("the driver returned only 3 groups of 8"));
    sound();
}

static void test_drv_cuda__compiles_ptx_for_later_devices(void **state)
{
    (void)state;
    setenv("WEFT_DOUBLE_ARCH", "100", 1);
    compare_model(bundles[0], bundles[1], NULL, &whole, 2);
}

static void check_times(void)
{
    subject gpu, cpu;
    uint32_t n;
    need(open_subject(&cpu, bundles[0], NULL, &whole));
    need(open_subject(&gpu, bundles[1], NULL, &whole));
    weft_session_profile(gpu.session, true);
    for (int i = 0; i < 3; i++)
        compare(&gpu, &cpu, 2);
    const weft_launch_time *t = weft_session_times(gpu.session, &n);
    assert_true(n > 3);
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += t[i].time_us;
    assert_true(sum > 0);
    weft_session_profile(gpu.session, false);
    compare(&gpu, &cpu, 2);
    double us = -1;
    need(weft_session_time_device(gpu.session, 3, diag, &us));
    assert_true(us > 0);
    compare(&gpu, &cpu, 3); /* other addresses or sizes */
    weft_session_profile(gpu.session, true);
    compare(&gpu, &cpu, 2);
    assert_int_equal(weft_session_time_device(cpu.session, 3, diag, &us), WEFT_ERR_UNSUP);
    close_subject(&gpu);
    close_subject(&cpu);
    sound();
}

static void test_drv_cuda__tells_times(void **state)
{
    (void)state;
    check_times();
}

/* Two sessions of one engine on two threads. */
static void *run_often(void *arg)
{
    subject *s = arg;
    const weft_bundle_program *p = weft_session_program(s->session);
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    weft_diag *own = weft_diag_create();
    uint32_t n = make_inputs(p, 2, in);
    intptr_t failed = 0;
    for (int i = 0; i < 20; i++)
        failed += weft_session_run(s->session, in, n, own, out, p->n_output) != WEFT_ERR_OK;
    free_inputs(in, n);
    weft_diag_destroy(own);
    return (void *)failed; // NOLINT: a count
}

static void run_two(const weft_engine_options *options)
{
    subject s, other;
    need(open_subject(&s, bundles[1], NULL, options));
    other.engine = s.engine;
    need(weft_session_open(s.engine, weft_session_program(s.session)->name, diag, &other.session));
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, run_often, &other), 0);
    assert_null(run_often(&s));
    pthread_join(thread, &failed);
    assert_null(failed);
    weft_session_close(other.session);
    close_subject(&s);
    sound();
}

static void test_drv_cuda__runs_sessions_at_the_same_time(void **state)
{
    (void)state;
    const weft_engine_options part = {.threads = 1, .n_sm = 16};
    run_two(&whole);
    run_two(&part);
}

/* -- Failing calls ----------------------------------------------------------------------------- */

/* Opens, runs at two sizes, closes. */
static weft_err run_all(bool profile)
{
    subject s;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    weft_err err = open_subject(&s, bundles[1], NULL, &whole);
    if (err != WEFT_ERR_OK)
        return err;
    const weft_bundle_program *p = weft_session_program(s.session);
    weft_session_profile(s.session, profile);
    for (int64_t batch = 1; err == WEFT_ERR_OK && batch <= 2; batch++) {
        uint32_t n = make_inputs(p, batch, in);
        err = weft_session_run(s.session, in, n, diag, out, p->n_output);
        free_inputs(in, n);
    }
    close_subject(&s);
    return err;
}

static void clear_diag(void)
{
    weft_diag_destroy(diag);
    diag = weft_diag_create();
    assert_non_null(diag);
}

/* Makes each single call fail with `code` in turn. There must be an error with a message, unless
 * the call does not matter; nothing may leak, and nothing may be used after its end. Returns the
 * number of calls. */
static unsigned fail_each(const char *call, unsigned code, bool profile, unsigned *out_failed)
{
    unsigned n = 0, failed = 0, calls = 8;
    if (strcmp(call, "*") == 0) {
        d.reset();
        need(run_all(profile));
        calls = d.calls();
    }
    while (n < calls) {
        char text[96];
        n++;
        snprintf(text, sizeof text, "%s:%u=%u", call, n, code);
        setenv("WEFT_DOUBLE_FAIL", text, 1);
        d.reset();
        d.lt_reset();
        clear_diag();
        weft_err err = run_all(profile);
        if (err != WEFT_ERR_OK) {
            failed++;
            if (weft_diag_count(diag) == 0 && err != WEFT_ERR_NOMEM)
                fail_msg("%s: error %d without a message", text, (int)err);
        }
        const char *found;
        if (d.mistakes(&found) || d.lt_mistakes(&found) || d.dnn_mistakes(&found))
            fail_msg("%s: %s", text, found);
    }
    unsetenv("WEFT_DOUBLE_FAIL");
    *out_failed = failed;
    return n;
}

static void test_drv_cuda__survives_each_failing_call(void **state)
{
    (void)state;
    static const unsigned codes[] = {WEFT_CUDA_ERROR_UNKNOWN, WEFT_CUDA_ERROR_LAUNCH_FAILED,
                                     WEFT_CUDA_ERROR_INVALID_VALUE};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        unsigned failed, n = fail_each("*", codes[i], false, &failed);
        /* A failing clean-up call may go unnoticed, others may not. */
        assert_true(n > 60);
        assert_true(failed > n / 2);
    }
}

static void fail_profiles(const char *const *calls, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned failed;
        fail_each(calls[i], WEFT_CUDA_ERROR_UNKNOWN, true, &failed);
        assert_true(failed > 0);
    }
}

static void test_drv_cuda__survives_failing_calls_of_profiles(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuEventCreate", "cuEventElapsedTime", "cuGraphAddNode",
                                        "cuGraphInstantiateWithFlags", "cuGraphLaunch"};
    fail_profiles(calls, sizeof calls / sizeof *calls);
}

static void test_drv_cuda__survives_failing_products(void **state)
{
    (void)state;
#define CUBLASLT_SYM(result, name, args) #name,
    static const char *const calls[] = {
#include "runtime/cuda/cublaslt_syms.def"
    };
#undef CUBLASLT_SYM
    static const unsigned codes[] = {WEFT_CUBLAS_STATUS_ALLOC_FAILED,
                                     WEFT_CUBLAS_STATUS_INTERNAL_ERROR,
                                     WEFT_CUBLAS_STATUS_NOT_SUPPORTED};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
            unsigned failed;
            fail_each(calls[i], codes[k], false, &failed);
            /* A stored algorithm is only checked, and there is none here. */
            if (!strstr(calls[i], "Destroy") && strstr(calls[i], "cublasLtM") &&
                !strstr(calls[i], "AlgoCheck"))
                assert_true(failed > 0);
        }
    }
}

static double sum_of_times(const char *cupti)
{
    subject s;
    uint32_t n;
    double sum = 0;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    setenv("WEFT_DOUBLE_CUPTI", cupti, 1);
    need(open_subject(&s, bundles[1], NULL, &whole));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n_in = make_inputs(p, 2, in);
    weft_session_profile(s.session, true);
    for (int i = 0; i < 3; i++)
        need(weft_session_run(s.session, in, n_in, diag, out, p->n_output));
    const weft_launch_time *t = weft_session_times(s.session, &n);
    for (uint32_t i = 0; i < n; i++)
        sum += t[i].time_us;
    unsetenv("WEFT_DOUBLE_CUPTI");
    free_inputs(in, n_in);
    close_subject(&s);
    sound();
    return sum;
}

static void compare_profiled(const char *cupti)
{
    subject gpu, cpu;
    setenv("WEFT_DOUBLE_CUPTI", cupti, 1);
    need(open_subject(&cpu, bundles[0], NULL, &whole));
    need(open_subject(&gpu, bundles[1], NULL, &whole));
    weft_session_profile(gpu.session, true);
    for (int64_t batch = 1; batch <= 3; batch++)
        compare(&gpu, &cpu, batch);
    unsetenv("WEFT_DOUBLE_CUPTI");
    close_subject(&gpu);
    close_subject(&cpu);
    sound();
}

/* CUPTI reports the time of the work alone; events include the following event, 1 us in the double.
 * If a record is missing or comes in a later trace, the times of the events are used. */
static void test_drv_cuda__tells_times_by_cupti(void **state)
{
    (void)state;
    static const char *const hows[] = {"1", "forgets", "late"};
    double events = sum_of_times(""), cupti = sum_of_times("1");
    assert_true(cupti > 0 && cupti + 3 < events);
    assert_true(fabs(sum_of_times("forgets") - events) < 1);
    assert_true(fabs(sum_of_times("late") - events) < 1);
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++)
        compare_profiled(hows[i]);
    setenv("WEFT_DOUBLE_CUPTI", "1", 1);
    static const char *const calls[] = {"cuLaunchKernel", "cublasLtMatmul", "cuStreamSynchronize"};
    fail_profiles(calls, sizeof calls / sizeof *calls);
    unsigned failed;
#define CUPTI_SYM(name, args) fail_each(#name, 999, true, &failed), assert_int_equal(failed, 0);
#include "runtime/cuda/cupti_syms.def"
#undef CUPTI_SYM
    unsetenv("WEFT_DOUBLE_CUPTI");
}

static void test_drv_cuda__tells_when_memory_ends(void **state)
{
    (void)state;
    unsigned failed;
    fail_each("cuMemAlloc", WEFT_CUDA_ERROR_OUT_OF_MEMORY, false, &failed);
    assert_true(failed >= 2);
    /* Without pinned memory, pageable memory is used. */
    fail_each("cuMemHostAlloc", WEFT_CUDA_ERROR_OUT_OF_MEMORY, false, &failed);
    assert_int_equal(failed, 0);
    /* The device is too small: the message names the needed and the available memory. */
    static const char *const sizes[] = {"1000", "16000", "19000"};
    for (size_t i = 0; i < 3; i++) {
        setenv("WEFT_DOUBLE_MEM", sizes[i], 1);
        d.reset();
        clear_diag();
        assert_int_equal(run_all(false), WEFT_ERR_NOMEM);
        if (!is_said(sizes[i])) {
            say();
            fail_msg("a device of %s bytes: its size is not told", sizes[i]);
        }
        sound();
    }
}

/* A client of MPS has a part of the multiprocessors, and a memory limit that the device's figures
 * do not include. */
static void test_drv_cuda__obeys_limits_of_mps(void **state)
{
    (void)state;
    subject s;
    const weft_engine_options much = {.threads = 1, .n_sm = 100};
    setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "40", 1);
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=16M", 1);
    d.reset();
    compare_model(bundles[0], bundles[1], NULL, &whole, 2);
    assert_int_not_equal(open_subject(&s, bundles[1], NULL, &much), WEFT_ERR_OK);
    assert_true(is_said("multiprocessors 0 to 99 are requested, the GPU has 6 groups of 8"));
    setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=0M", 1);
    d.reset();
    assert_int_equal(run_all(false), WEFT_ERR_NOMEM);
    assert_true(is_said("weights of the model take"));
    assert_true(is_said("bytes are free, MPS limits this process to 0=0M"));
    unsetenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    unsetenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    sound();
}

/* A run writes no more memory than planned, and no less than the outputs. */
static void test_drv_cuda__measures_what_a_run_writes(void **state)
{
    (void)state;
    for (int i = 1; i < n_bundles; i += 2) {
        subject s;
        weft_tensor in[PORTS_MAX], out[PORTS_MAX];
        weft_session_memory m;
        need(open_subject(&s, bundles[i], NULL, &whole));
        const weft_bundle_program *p = weft_session_program(s.session);
        uint32_t n = make_inputs(p, 1, in);
        need(weft_session_measure_memory(s.session, in, n, diag, &m));
        assert_true((m.planned || p->batch_symbol == UINT32_MAX) && m.packed_bytes > 0);
        assert_true(m.touched_bytes > 0 && m.touched_bytes <= m.high_bytes);
        assert_true(m.high_bytes <= m.arena_bytes && m.arena_bytes <= m.total_bytes);
        uint64_t bytes = 0;
        need(weft_session_run(s.session, in, n, diag, out, p->n_output));
        for (uint32_t k = 0; k < p->n_output; k++)
            bytes += weft_tensor_bytes(&out[k]);
        assert_true(m.touched_bytes >= bytes);
        free_inputs(in, n);
        close_subject(&s);
        sound();
    }
}

/* -- Bad devices, bad images ------------------------------------------------------------------- */

static void test_drv_cuda__tells_when_the_device_is_lost(void **state)
{
    (void)state;
    subject s;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    need(open_subject(&s, bundles[1], NULL, &whole));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n = make_inputs(p, 1, in);
    need(weft_session_run(s.session, in, n, diag, out, p->n_output));
    assert_null(weft_engine_lost(s.engine));
    setenv("WEFT_DOUBLE_FAIL", "cuGraphLaunch:2=214", 1);
    assert_int_equal(weft_session_run(s.session, in, n, diag, out, p->n_output), WEFT_ERR_NODEV);
    assert_true(is_said("ECC_UNCORRECTABLE"));
    assert_non_null(weft_engine_lost(s.engine));
    /* The error is permanent. */
    assert_int_not_equal(weft_session_run(s.session, in, n, diag, out, p->n_output), WEFT_ERR_OK);
    free_inputs(in, n);
    close_subject(&s);
    sound();
}

/* cuBLASLt meets the fault first and has no status for it. */
static void test_drv_cuda__tells_that_a_product_lost_the_device(void **state)
{
    (void)state;
    subject s;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    /* Synchronisations: two of the weights, after the fill, after the failure. */
    setenv("WEFT_DOUBLE_FAIL", "cublasLtMatmul:1=13,cuStreamSynchronize:4=700", 1);
    d.reset();
    need(open_subject(&s, bundles[1], NULL, &whole));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n = make_inputs(p, 1, in);
    assert_int_equal(weft_session_run(s.session, in, n, diag, out, p->n_output), WEFT_ERR_NODEV);
    assert_true(is_said("ILLEGAL_ADDRESS"));
    assert_non_null(weft_engine_lost(s.engine));
    free_inputs(in, n);
    close_subject(&s);
    sound();
}

static void test_drv_cuda__refuses_other_devices(void **state)
{
    (void)state;
    subject s;
    setenv("WEFT_DOUBLE_ARCH", "80", 1);
    assert_int_equal(open_subject(&s, bundles[1], NULL, &whole), WEFT_ERR_NODEV);
    assert_true(is_said("this GPU is sm_80"));
    unsetenv("WEFT_DOUBLE_ARCH");
    d.reset();
    const weft_engine_options second = {.threads = 1, .gpu = 1};
    assert_int_equal(open_subject(&s, bundles[1], NULL, &second), WEFT_ERR_NODEV);
    assert_true(is_said("GPU 1 is requested; GPUs visible to this process: 1"));
    setenv("WEFT_DOUBLE_DEVICES", "0", 1);
    d.reset();
    assert_int_equal(open_subject(&s, bundles[1], NULL, &whole), WEFT_ERR_NODEV);
    assert_true(is_said("finds no GPU"));
    sound();
}

static void refuse_image(const char *fail, const char *said)
{
    setenv("WEFT_DOUBLE_FAIL", fail, 1);
    d.reset();
    clear_diag();
    assert_int_not_equal(run_all(false), WEFT_ERR_OK);
    if (!is_said(said)) {
        say();
        fail_msg("%s: not said: %s", fail, said);
    }
    sound();
}

static void test_drv_cuda__refuses_images_that_the_driver_refuses(void **state)
{
    (void)state;
    refuse_image("cuLibraryLoadData:1=200", "the driver rejects it");
    refuse_image("cuLibraryLoadData:1=209", "the driver rejects it");
    refuse_image("cuLibraryLoadData:1=222", "needs a newer CUDA than the driver");
    refuse_image("cuLibraryGetKernel:1=500", "has no kernel");
}

/* A bundle with one changed byte in its code. */
static void test_drv_cuda__refuses_images_with_changed_bytes(void **state)
{
    (void)state;
    weft_bundle *b;
    subject s;
    need(weft_bundle_open(bundles[1], diag, &b));
    size_t at = (size_t)(b->image[0].data - b->file.at) + b->image[0].bytes / 2;
    char path[] = "/tmp/weft-doubles-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "wb");
    for (size_t i = 0; i < b->file.len; i++)
        fputc((b->file.at)[i] ^ (i == at), f);
    fclose(f);
    weft_bundle_close(b);
    weft_err err = open_subject(&s, path, NULL, &whole);
    if (err == WEFT_ERR_OK) {
        weft_tensor in[PORTS_MAX], out[PORTS_MAX];
        const weft_bundle_program *p = weft_session_program(s.session);
        uint32_t n = make_inputs(p, 1, in);
        err = weft_session_run(s.session, in, n, diag, out, p->n_output);
        free_inputs(in, n);
        close_subject(&s);
    }
    remove(path);
    assert_int_equal(err, WEFT_ERR_INPUT);
    assert_true(is_said("does not have its checksum"));
    sound();
}

/* -- Other driver versions: a process each, because the driver is loaded once ----------------- */

/* WEFT_DOUBLE_DRIVER=11080 */
static void test_drv_cuda__refuses_old_drivers(void **state)
{
    (void)state;
    subject s;
    assert_int_equal(open_subject(&s, bundles[1], NULL, &whole), WEFT_ERR_NODEV);
    assert_true(is_said("the CUDA driver is too old: it supports CUDA 11.8, CUDA 12.0 is needed"));
}

/* WEFT_DOUBLE_ABSENT=cuMemAlloc */
static void test_drv_cuda__refuses_drivers_that_lack_functions(void **state)
{
    (void)state;
    subject s;
    assert_int_equal(open_subject(&s, bundles[1], NULL, &whole), WEFT_ERR_NODEV);
    assert_true(is_said("lacks cuMemAlloc"));
}

/* WEFT_DOUBLE_DRIVER=12000: no graphs, no partitions. */
static void test_drv_cuda__runs_without_graphs(void **state)
{
    (void)state;
    subject s;
    compare_model(bundles[0], bundles[1], NULL, &whole, 6);
    const weft_engine_options part = {.threads = 1, .n_sm = 16};
    assert_int_equal(open_subject(&s, bundles[1], NULL, &part), WEFT_ERR_NODEV);
    assert_true(is_said("partitions of multiprocessors need"));
    unsigned failed;
    fail_each("*", WEFT_CUDA_ERROR_UNKNOWN, false, &failed);
    check_times();
    static const char *const calls[] = {"cuEventCreate", "cuEventRecord", "cuEventElapsedTime",
                                        "cuLaunchKernel", "cuMemsetD8Async"};
    fail_profiles(calls, sizeof calls / sizeof *calls);
}

/* LD_LIBRARY_PATH without doubles, on a machine without CUDA. */
static void test_drv_cuda__says_that_there_is_no_driver(void **state)
{
    (void)state;
    subject s;
    diag = weft_diag_create();
    weft_err err = open_subject(&s, bundles[1], NULL, &whole);
    if (err == WEFT_ERR_OK) {
        close_subject(&s);
        print_message("this machine has a GPU\n");
        skip();
    }
    assert_int_equal(err, WEFT_ERR_NODEV);
    assert_true(is_said("libcuda.so.1") || is_said("cuInit") || is_said("finds no GPU"));
    weft_diag_destroy(diag);
}

static int load_all(void **state)
{
    (void)state;
    doubles_open_all(&d);
    return 0;
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(test_drv_cuda__##name, start, end)
    const struct CMUnitTest tests[] = {
        T(equals_the_cpu),
        T(does_not_depend_on_the_order),
        T(runs_on_partitions),
        T(refuses_fewer_groups_than_promised),
        T(compiles_ptx_for_later_devices),
        T(tells_times),
        T(tells_times_by_cupti),
        T(runs_sessions_at_the_same_time),
        T(survives_each_failing_call),
        T(survives_failing_calls_of_profiles),
        T(survives_failing_products),
        T(tells_when_memory_ends),
        T(obeys_limits_of_mps),
        T(measures_what_a_run_writes),
        T(tells_when_the_device_is_lost),
        T(tells_that_a_product_lost_the_device),
        T(refuses_other_devices),
        T(refuses_images_that_the_driver_refuses),
        T(refuses_images_with_changed_bytes),
    };
    const struct CMUnitTest alone[] = {
        T(refuses_old_drivers),
        T(refuses_drivers_that_lack_functions),
        T(runs_without_graphs),
        T(interprets_ptx),
    };
    const struct CMUnitTest bare[] = {
        cmocka_unit_test(test_drv_cuda__says_that_there_is_no_driver),
    };
    int first = argc > 2 && strcmp(argv[1], "--only") == 0 ? 3 : 1;
    bundles = argv + first;
    n_bundles = argc - first;
    if (n_bundles < 2 || n_bundles % 2)
        return 2;
    if (access(bundles[1], R_OK) != 0) {
        printf("%s was not compiled\n", bundles[1]);
        return 77;
    }
    if (first == 1)
        return cmocka_run_group_tests(tests, load_all, NULL);
    if (strcmp(argv[2], "says_that_there_is_no_driver") == 0)
        return cmocka_run_group_tests(bare, NULL, NULL);
    cmocka_set_test_filter(argv[2]);
    int failed = cmocka_run_group_tests(alone, load_all, NULL);
    return failed ? failed : cmocka_run_group_tests(tests, load_all, NULL);
}
