/* The CUDA driver on the doubles: copies, fills, and the choice of algorithms for GEMMs.
 * test_drv_gemms FOLDER: the folder of the bundles of compile.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "drv_world.h"
#include "runtime/driver_int.h"

static const char *folder;

static const char *bundle_path(const char *name)
{
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s.weft", folder, name);
    return path[turn];
}

/* -- Copies and fills ------------------------------------------------------------------------- */

/* From x [n, 4]: y [n, 4], the first half of x, then zeros, through scratch memory; and z = x
 * transpose(x) by a GEMM. */
typedef struct made {
    weft_arena *arena;
    weft_bundle bundle;
    weft_bundle_program program;
    weft_bundle_value value[3];
    weft_bundle_launch launch[2];
    weft_bundle_port input, output[2];
    weft_bundle_symbol symbol;
    weft_bundle_command command[4];
    weft_bundle_arg move[3][2];
    weft_bundle_gemm gemm;
    uint32_t operand[2], result[2];
    weft_attr attr[2];
    const char *text[1], *arch[1];
} made;

static void make_commands(made *m, weft_dim n)
{
    weft_dimpool *pool = m->program.dims;
    weft_bundle_arg x = {.kind = WEFT_COMMAND_ARG_IN}, y = {.kind = WEFT_COMMAND_ARG_OUT};
    weft_bundle_arg scratch = {.kind = WEFT_COMMAND_ARG_SCRATCH};
    weft_dim bytes = weft_dim_mul(pool, n, 16);
    m->move[0][0] = m->move[1][0] = m->move[2][1] = scratch;
    m->move[1][1] = x;
    m->move[2][0] = y;
    m->gemm = (weft_bundle_gemm){.dtype = WEFT_DTYPE_F32,
                                 .trans_b = true,
                                 .m = n,
                                 .n = n,
                                 .k = 4,
                                 .batch = 1,
                                 .a = x,
                                 .b = {.kind = WEFT_COMMAND_ARG_IN, .index = 1},
                                 .d = y,
                                 .lda = 4,
                                 .ldb = 4,
                                 .ldc = n,
                                 .ldd = n,
                                 .alpha = 1};
    m->command[0] = (weft_bundle_command){
        .kind = WEFT_COMMAND_FILL, .arg = m->move[0], .n_arg = 1, .bytes = bytes};
    m->command[1] = (weft_bundle_command){.kind = WEFT_COMMAND_COPY,
                                          .arg = m->move[1],
                                          .n_arg = 2,
                                          .bytes = weft_dim_mul(pool, n, 8)};
    m->command[2] = (weft_bundle_command){
        .kind = WEFT_COMMAND_COPY, .arg = m->move[2], .n_arg = 2, .bytes = bytes};
    m->command[3] = (weft_bundle_command){.kind = WEFT_COMMAND_GEMM, .gemm = &m->gemm};
    m->launch[0].command = m->command;
    m->launch[0].n_command = 3;
    m->launch[0].scratch_bytes = bytes;
    m->launch[1].command = &m->command[3];
    m->launch[1].n_command = 1;
}

static void make_bundle(made *m)
{
    memset(m, 0, sizeof *m);
    m->arena = weft_arena_create(0);
    m->program.dims = weft_dimpool_create(m->arena);
    weft_dim n = weft_dim_symbol(m->program.dims, "n", 1, 64);
    for (int v = 0; v < 3; v++) {
        m->value[v].type = (weft_ttype){.dtype = WEFT_DTYPE_F32, .rank = 2};
        m->value[v].type.dim[0] = n;
        m->value[v].type.dim[1] = v < 2 ? 4 : n;
    }
    m->operand[0] = m->operand[1] = 1;
    m->result[0] = 2;
    m->result[1] = 3;
    m->text[0] = "relu i0";
    m->attr[0] = (weft_attr){.key = WEFT_ATTR_STEPS, .kind = WEFT_KIND_STRS, .n = 1};
    m->attr[0].u.strs = m->text;
    m->attr[1] = (weft_attr){.key = WEFT_ATTR_TRANS_B, .kind = WEFT_KIND_INT, .u.i = 1};
    for (uint32_t i = 0; i < 2; i++)
        m->launch[i] = (weft_bundle_launch){.op = i ? WEFT_OP_MATMUL : WEFT_OP_EW,
                                            .in = m->operand,
                                            .n_in = 1 + i,
                                            .out = &m->result[i],
                                            .n_out = 1,
                                            .attrs = {&m->attr[i], 1},
                                            .item = "node"};
    make_commands(m, n);
    m->input = (weft_bundle_port){.name = "x", .value = 1};
    m->output[0] = (weft_bundle_port){.name = "y", .value = 2};
    m->output[1] = (weft_bundle_port){.name = "z", .value = 3};
    m->symbol = (weft_bundle_symbol){.name = "n", .lo = 1, .hi = 64};
    m->program.name = "m";
    m->program.symbol = &m->symbol;
    m->program.n_symbol = 1;
    m->program.batch_symbol = UINT32_MAX;
    m->program.value = m->value;
    m->program.n_value = 3;
    m->program.launch = m->launch;
    m->program.n_launch = 2;
    m->program.input = &m->input;
    m->program.n_input = 1;
    m->program.output = m->output;
    m->program.n_output = 2;
    m->arch[0] = "sm_90";
    m->bundle = (weft_bundle){
        .target = "sm_90", .program = &m->program, .n_program = 1, .arch = m->arch, .n_arch = 1};
}

static void run_made(weft_session *session, int64_t n)
{
    float data[64 * 4];
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {n, 4}, .data = data}, out[2];
    for (int64_t i = 0; i < 4 * n; i++)
        data[i] = rand_signed(&seed);
    need(weft_session_run(session, &in, 1, diag, out, 2));
    const float *y = out[0].data, *z = out[1].data;
    for (int64_t i = 0; i < 4 * n; i++)
        assert_true(y[i] == (i < 2 * n ? data[i] : 0));
    for (int64_t i = 0; i < n * n; i++) {
        float sum = 0;
        for (int64_t k = 0; k < 4; k++)
            sum += data[i / n * 4 + k] * data[i % n * 4 + k];
        assert_true(fabsf(z[i] - sum) <= 1e-5f);
    }
}

/* On the whole device and on a partition, where all nodes of a graph must be in one context. */
static void test_drv_gemms__copies_and_fills(void **state)
{
    (void)state;
    const weft_engine_options options[] = {{.driver = "cuda"}, {.driver = "cuda", .n_sm = 16}};
    made m;
    make_bundle(&m);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        weft_engine *engine;
        weft_session *session;
        need(weft_engine_open_bundle(&m.bundle, &options[i], diag, &engine));
        need(weft_session_open(engine, "m", diag, &session));
        run_made(session, 5);
        run_made(session, 64);
        run_made(session, 5);
        weft_session_close(session);
        weft_engine_close(engine);
        sound();
    }
    weft_arena_destroy(m.arena);
}

/* -- Epilogues -------------------------------------------------------------------------------- */

/* An epilogue that the library lacks is applied by a kernel after the GEMM. */
static void test_drv_gemms__are_finished_without_epilogues(void **state)
{
    (void)state;
    tolerance = 2e-2;
    compare_model(bundle_path("odd.f16.cpu"), bundle_path("odd.f16.gpu"), NULL, &whole, 5);
    setenv("WEFT_DOUBLE_ABSENT", "epilogue", 1);
    compare_model(bundle_path("odd.f16.cpu"), bundle_path("odd.f16.gpu"), NULL, &whole, 5);
    /* Without such a kernel the error names what is missing. */
    subject s;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    need(open_subject(&s, bundle_path("small.gpu"), NULL, &whole));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n = make_inputs(p, 1, in);
    assert_int_equal(weft_session_run(s.session, in, n, diag, out, p->n_output), WEFT_ERR_UNSUP);
    assert_true(is_said("has no algorithm for a GEMM of 1 x 40 x 24 in f32 with bias and relu"));
    unsetenv("WEFT_DOUBLE_ABSENT");
    free_inputs(in, n);
    close_subject(&s);
    tolerance = 1e-4;
    sound();
}

/* -- Measured algorithms ---------------------------------------------------------------------- */

/* Writes the bundle with the measured algorithms to a file. */
static const char *tuned_path(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/tuned.weft", folder);
    return path;
}

static void write_tuned(const weft_bundle_tuning *tuning, uint32_t n)
{
    weft_bundle *b;
    need(weft_bundle_open(bundle_path("small.gpu"), diag, &b));
    weft_bundle copy = *b;
    copy.tuning = tuning;
    copy.n_tuning = n;
    need(weft_bundle_write(&copy, tuned_path(), diag));
    weft_bundle_close(b);
}

static void measure(weft_arena *arena, weft_bundle_tuning *out)
{
    weft_bundle *b;
    need(weft_bundle_open(bundle_path("small.gpu"), diag, &b));
    need(weft_tune_gemms(b, &whole, arena, diag, out));
    weft_bundle_close(b);
    sound();
}

/* Whether the heuristic is called for each GEMM: the call is made to fail. */
static bool asks(const weft_engine_options *options)
{
    subject s;
    weft_tensor in[PORTS_MAX], out[PORTS_MAX];
    setenv("WEFT_DOUBLE_ABSENT", "guess", 1);
    need(open_subject(&s, tuned_path(), NULL, options));
    const weft_bundle_program *p = weft_session_program(s.session);
    uint32_t n = make_inputs(p, 1, in);
    weft_err err = weft_session_run(s.session, in, n, diag, out, p->n_output);
    unsetenv("WEFT_DOUBLE_ABSENT");
    free_inputs(in, n);
    close_subject(&s);
    sound();
    assert_true(err == WEFT_ERR_OK || err == WEFT_ERR_UNSUP);
    return err == WEFT_ERR_UNSUP;
}

static void test_drv_gemms__use_what_was_measured(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_bundle_tuning t;
    measure(arena, &t);
    assert_string_equal(t.device, "NVIDIA H200");
    assert_int_equal(t.sms, 132);
    assert_int_equal(t.version, 130100);
    /* Three GEMMs per bucket. In the double the second algorithm takes 3 us, the first 5, plus a
     * small time per call. */
    assert_true(t.n_algo >= 3);
    for (uint32_t i = 0; i < t.n_algo; i++)
        assert_true(t.algo[i].time_us > 3 && t.algo[i].time_us < 5);
    write_tuned(&t, 1);
    assert_false(asks(&whole));
    compare_model(bundle_path("small.cpu"), tuned_path(), NULL, &whole, 6);
    weft_arena_destroy(arena);
}

static void test_drv_gemms__are_asked_for_elsewhere(void **state)
{
    (void)state;
    const weft_engine_options part = {.threads = 1, .n_sm = 16};
    weft_arena *arena = weft_arena_create(0);
    weft_bundle_tuning t;
    measure(arena, &t);
    write_tuned(&t, 1);
    assert_true(asks(&part));
    setenv("WEFT_DOUBLE_NAME", "NVIDIA H100", 1);
    d.reset();
    assert_true(asks(&whole));
    unsetenv("WEFT_DOUBLE_NAME");
    d.reset();
    assert_false(asks(&whole));
    t.version++;
    write_tuned(&t, 1);
    assert_true(asks(&whole));
    compare_model(bundle_path("small.cpu"), tuned_path(), NULL, &whole, 2);
    weft_arena_destroy(arena);
}

/* A stored algorithm that the library's check rejects is not used. */
static void test_drv_gemms__are_asked_for_when_refused(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_bundle_tuning t;
    measure(arena, &t);
    weft_bundle_algo *algo = weft_arena_array(arena, t.n_algo, sizeof *algo);
    for (uint32_t i = 0; i < t.n_algo; i++) {
        algo[i] = t.algo[i];
        memset(algo[i].bytes, 0x5a, sizeof algo[i].bytes);
    }
    t.algo = algo;
    write_tuned(&t, 1);
    assert_true(asks(&whole));
    compare_model(bundle_path("small.cpu"), tuned_path(), NULL, &whole, 2);
    weft_arena_destroy(arena);
}

/* Each call fails in turn while GEMMs are measured. */
static void test_drv_gemms__survive_failing_calls_of_measuring(void **state)
{
    (void)state;
    static const char *const calls[] = {"cuMemAlloc",          "cuMemsetD8Async",
                                        "cuEventCreate",       "cuEventRecord",
                                        "cuStreamSynchronize", "cuEventElapsedTime"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        unsigned failed = 0;
        for (unsigned n = 1; n <= 6; n++) {
            weft_arena *arena = weft_arena_create(0);
            weft_bundle_tuning t;
            weft_bundle *b;
            char text[64];
            snprintf(text, sizeof text, "%s:%u=999", calls[i], n);
            need(weft_bundle_open(bundle_path("small.gpu"), diag, &b));
            setenv("WEFT_DOUBLE_FAIL", text, 1);
            d.reset();
            d.lt_reset();
            failed += weft_tune_gemms(b, &whole, arena, diag, &t) != WEFT_ERR_OK;
            unsetenv("WEFT_DOUBLE_FAIL");
            weft_bundle_close(b);
            weft_arena_destroy(arena);
            sound();
        }
        assert_true(failed > 0);
    }
}

/* Two tunings for one GPU, or an invalid algorithm. */
static void test_drv_gemms__damaged_measurements_are_refused(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_bundle_tuning t[2];
    weft_bundle *b;
    measure(arena, &t[0]);
    t[1] = t[0];
    write_tuned(t, 2);
    assert_int_equal(weft_bundle_open(tuned_path(), diag, &b), WEFT_ERR_INPUT);
    assert_true(is_said("algorithms for NVIDIA H200 are given twice"));
    t[1].sms = 64;
    write_tuned(t, 2);
    need(weft_bundle_open(tuned_path(), diag, &b));
    assert_int_equal(b->n_tuning, 2);
    assert_int_equal(b->tuning[1].n_algo, t[0].n_algo);
    assert_memory_equal(&b->tuning[1].algo[0], &t[0].algo[0], sizeof t[0].algo[0]);
    weft_bundle_close(b);
    weft_bundle_algo bad = t[0].algo[0];
    bad.gemm.flags = WEFT_GEMM_FLAGS;
    t[1].algo = &bad;
    t[1].n_algo = 1;
    write_tuned(t, 2);
    assert_int_equal(weft_bundle_open(tuned_path(), diag, &b), WEFT_ERR_INPUT);
    assert_true(is_said("algorithm 0 for NVIDIA H200 is wrong"));
    weft_arena_destroy(arena);
}

static int load_all(void **state)
{
    (void)state;
    doubles_open_all(&d);
    return 0;
}

int main(int argc, char **argv)
{
#define T(name) cmocka_unit_test_setup_teardown(test_drv_gemms__##name, start, end)
    const struct CMUnitTest tests[] = {
        T(copies_and_fills),
        T(are_finished_without_epilogues),
        T(use_what_was_measured),
        T(are_asked_for_elsewhere),
        T(are_asked_for_when_refused),
        T(survive_failing_calls_of_measuring),
        T(damaged_measurements_are_refused),
    };
    if (argc != 2)
        return 2;
    folder = argv[1];
    if (access(bundle_path("small.gpu"), R_OK) != 0) {
        printf("%s was not compiled\n", bundle_path("small.gpu"));
        return 77;
    }
    int failed = cmocka_run_group_tests(tests, load_all, NULL);
    remove(tuned_path());
    return failed;
}
