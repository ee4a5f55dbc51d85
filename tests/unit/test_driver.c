/* Conformance of drivers: the same programs on every row of drivers.def. Drivers whose devices have
 * memory of their own run only bundles compiled for them, so they are tested elsewhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/driver_int.h"

#include <string.h>

/* relu(x @ w + b) @ w, with x [n, 4], w [4, 4], b [4]; the second matmul is also an output. */
typedef struct fixture {
    weft_arena *arena;
    weft_diag *diag;
    weft_bundle bundle;
    weft_bundle_program program;
    weft_bundle_value value[5];
    weft_bundle_weight weight[2];
    weft_bundle_launch launch[2];
    weft_bundle_port input[1], output[2];
    weft_bundle_symbol symbol[1];
    uint32_t operand[2][3], result[2];
    weft_attr epilogue;
    const char *steps[1];
    _Alignas(64) float w[16];
    _Alignas(64) float b[16];
} fixture;

static void set_value(fixture *f, uint32_t v, uint32_t weight, weft_dim rows, uint32_t rank)
{
    f->value[v - 1] = (weft_bundle_value){.type = {.dtype = WEFT_DTYPE_F32, .rank = (uint8_t)rank},
                                          .weight = weight};
    f->value[v - 1].type.dim[0] = rows;
    if (rank == 2)
        f->value[v - 1].type.dim[1] = 4;
}

static void init_fixture(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->arena = weft_arena_create(0);
    f->diag = weft_diag_create();
    weft_dimpool *pool = weft_dimpool_create(f->arena);
    weft_dim n = weft_dim_symbol(pool, "n", 1, 64);
    for (int i = 0; i < 16; i++)
        f->w[i] = (float)(i % 5) - 2.0f;
    for (int i = 0; i < 4; i++)
        f->b[i] = (float)i * 0.5f;
    f->weight[0] =
        (weft_bundle_weight){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {4, 4}, .name = "w"};
    f->weight[0].data = (const uint8_t *)f->w;
    f->weight[0].bytes = sizeof f->w;
    f->weight[1] =
        (weft_bundle_weight){.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {4}, .name = "b"};
    f->weight[1].data = (const uint8_t *)f->b;
    f->weight[1].bytes = 16;
    set_value(f, 1, 0, n, 2);
    set_value(f, 2, 1, 4, 2);
    set_value(f, 3, 2, 4, 1);
    set_value(f, 4, 0, n, 2);
    set_value(f, 5, 0, n, 2);
    f->steps[0] = "relu acc";
    f->epilogue = (weft_attr){.key = WEFT_ATTR_EPILOGUE, .kind = WEFT_KIND_STRS, .n = 1};
    f->epilogue.u.strs = f->steps;
    memcpy(f->operand, (uint32_t[2][3]){{1, 2, 3}, {4, 2, 0}}, sizeof f->operand);
    memcpy(f->result, (uint32_t[2]){4, 5}, sizeof f->result);
    for (int i = 0; i < 2; i++)
        f->launch[i] = (weft_bundle_launch){.op = WEFT_OP_MATMUL,
                                            .in = f->operand[i],
                                            .n_in = i ? 2 : 3,
                                            .out = &f->result[i],
                                            .n_out = 1,
                                            .attrs = {&f->epilogue, i ? 0 : 1},
                                            .item = "gemm"};
    f->input[0] = (weft_bundle_port){.name = "x", .value = 1};
    f->output[0] = (weft_bundle_port){.name = "y", .value = 4};
    f->output[1] = (weft_bundle_port){.name = "z", .value = 5};
    f->symbol[0] = (weft_bundle_symbol){.name = "n", .lo = 1, .hi = 64};
    f->program = (weft_bundle_program){.name = "m",
                                       .dims = pool,
                                       .symbol = f->symbol,
                                       .n_symbol = 1,
                                       .value = f->value,
                                       .n_value = 5,
                                       .launch = f->launch,
                                       .n_launch = 2,
                                       .input = f->input,
                                       .n_input = 1,
                                       .output = f->output,
                                       .n_output = 2};
    f->bundle =
        (weft_bundle){.weight = f->weight, .n_weight = 2, .program = &f->program, .n_program = 1};
}

static void finish_fixture(fixture *f)
{
    weft_diag_destroy(f->diag);
    weft_arena_destroy(f->arena);
}

static void run_once(fixture *f, weft_session *session, int64_t n)
{
    _Alignas(64) float x[64 * 4];
    float y[4], z[4];
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {n, 4}, .data = x}, out[2];
    for (int64_t i = 0; i < n * 4; i++)
        x[i] = (float)(i % 7) - 3.0f;
    assert_int_equal(weft_session_run(session, &in, 1, f->diag, out, 2), WEFT_ERR_OK);
    for (int64_t r = 0; r < n; r++) {
        for (int c = 0; c < 4; c++) {
            y[c] = f->b[c];
            for (int k = 0; k < 4; k++)
                y[c] += x[r * 4 + k] * f->w[k * 4 + c];
            y[c] = y[c] > 0 ? y[c] : 0;
        }
        for (int c = 0; c < 4; c++) {
            z[c] = 0;
            for (int k = 0; k < 4; k++)
                z[c] += y[k] * f->w[k * 4 + c];
            assert_true(((float *)out[0].data)[r * 4 + c] == y[c]);
            assert_true(((float *)out[1].data)[r * 4 + c] == z[c]);
        }
    }
}

static void test_driver__answers_at_every_size(void **state)
{
    (void)state;
    for (size_t d = 0; weft_driver_at(d); d++) {
        fixture f;
        if (weft_driver_at(d)->device_ops)
            continue;
        weft_engine *engine;
        weft_session *session;
        init_fixture(&f);
        weft_engine_options options = {.driver = weft_driver_name(weft_driver_at(d)), .threads = 1};
        assert_int_equal(weft_engine_open_bundle(&f.bundle, &options, f.diag, &engine), 0);
        assert_int_equal(weft_session_open(engine, "m", f.diag, &session), 0);
        for (int64_t n = 1; n <= 64; n += 3)
            run_once(&f, session, n);
        run_once(&f, session, 1);
        weft_session_close(session);
        assert_int_equal(engine->mem_bytes, 0);
        weft_engine_close(engine);
        finish_fixture(&f);
    }
}

static void test_driver__sessions_share_an_engine(void **state)
{
    (void)state;
    for (size_t d = 0; weft_driver_at(d); d++) {
        fixture f;
        if (weft_driver_at(d)->device_ops)
            continue;
        weft_engine *engine;
        weft_session *session[2];
        init_fixture(&f);
        weft_engine_options options = {.driver = weft_driver_name(weft_driver_at(d)), .threads = 1};
        assert_int_equal(weft_engine_open_bundle(&f.bundle, &options, f.diag, &engine), 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(weft_session_open(engine, "m", f.diag, &session[i]), 0);
        run_once(&f, session[0], 8);
        run_once(&f, session[1], 8);
        weft_session_close(session[0]);
        run_once(&f, session[1], 8);
        weft_session_close(session[1]);
        weft_engine_close(engine);
        finish_fixture(&f);
    }
}

typedef struct worker {
    fixture f; /* its own diagnostics; the engine has the bundle of the first */
    weft_engine *engine;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    weft_session *session;
    if (weft_session_open(w->engine, "m", w->f.diag, &session) != WEFT_ERR_OK)
        return NULL;
    for (int64_t n = 1; n <= 40; n++)
        run_once(&w->f, session, n);
    weft_session_close(session);
    return w;
}

static void test_driver__sessions_run_beside_each_other(void **state)
{
    (void)state;
    for (size_t d = 0; weft_driver_at(d); d++) {
        if (weft_driver_at(d)->device_ops)
            continue;
        static worker w[3];
        pthread_t thread[3];
        weft_engine *engine;
        for (int i = 0; i < 3; i++)
            init_fixture(&w[i].f);
        weft_engine_options options = {.driver = weft_driver_name(weft_driver_at(d)), .threads = 1};
        assert_int_equal(weft_engine_open_bundle(&w[0].f.bundle, &options, w[0].f.diag, &engine),
                         0);
        for (int i = 0; i < 3; i++) {
            w[i].engine = engine;
            assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            void *done;
            assert_int_equal(pthread_join(thread[i], &done), 0);
            assert_non_null(done);
        }
        weft_engine_close(engine);
        for (int i = 0; i < 3; i++)
            finish_fixture(&w[i].f);
    }
}

static void test_driver__names_are_unique(void **state)
{
    (void)state;
    for (size_t d = 0; weft_driver_at(d); d++) {
        assert_ptr_equal(weft_driver_find(weft_driver_name(weft_driver_at(d))), weft_driver_at(d));
        assert_true(strlen(weft_driver_brief(weft_driver_at(d))) > 0);
    }
    assert_null(weft_driver_find("no such driver"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_driver__answers_at_every_size),
        cmocka_unit_test(test_driver__sessions_share_an_engine),
        cmocka_unit_test(test_driver__sessions_run_beside_each_other),
        cmocka_unit_test(test_driver__names_are_unique),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
