/* Sessions: sizes within the bounds, dynamic shapes, memory limits, and refused inputs. */
#include "tests/support/session_world.h"

static void test_session__any_batch_inside_the_range(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    weft_dim batch = weft_dim_symbol(w.pool, "batch", 1, 40);
    w.symbol[0] = (weft_bundle_symbol){.name = "batch", .lo = 1, .hi = 40};
    w.program.n_symbol = 1;
    int64_t xd[2] = {batch, 8}, wd[2] = {8, 4}, yd[2] = {batch, 4}, one[2] = {1, 8};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, one));
    w.value[x - 1].type.dim[0] = batch;
    (void)xd;
    uint32_t in[2] = {x, add_weight(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, wd))};
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, yd);
    add_launch(&w, WEFT_OP_MATMUL, (weft_attrs){0}, in, 2, y);
    add_output(&w, y);
    add_output(&w, x);
    open_world(&w, 1);
    for (int64_t n = 0; n <= 41; n++) {
        int64_t d[2] = {n, 8};
        weft_tensor t = make_tensor(&w, WEFT_DTYPE_F32, 2, d), got[2], dims = t;
        dims.data = NULL;
        weft_err ready = weft_session_prepare(w.session, &dims, 1, w.diag);
        weft_err err = weft_session_run(w.session, &t, 1, w.diag, got, 2);
        assert_int_equal(ready, err);
        assert_int_equal(err, n == 0 || n == 41 ? WEFT_ERR_INPUT : WEFT_ERR_OK);
        if (err)
            continue;
        assert_int_equal(got[0].dim[0], n);
        assert_memory_equal(got[1].data, t.data, weft_tensor_bytes(&t));
        assert_ptr_not_equal(got[1].data, t.data);
        const float *a = t.data, *b = (const float *)w.weight[0].data, *c = got[0].data;
        for (int64_t i = 0; i < n * 4; i++) {
            double s = 0;
            for (int64_t k = 0; k < 8; k++)
                s += (double)a[i / 4 * 8 + k] * b[k * 4 + i % 4];
            assert_true(fabs(s - c[i]) < 1e-5);
        }
    }
    finish_world(&w);
}

/* Rows of 2^18 floats, x -> relu -> sigmoid: a launch of more than four rows exceeds the 8 MiB up
 * to which a batch runs as a whole. */
static void test_session__large_batches_run_in_slices(void **state)
{
    (void)state;
    enum { ROW = 1 << 18 };
    static const struct {
        int64_t batch, rows;
    } row[] = {{1, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 4}, {3, 0}, {9, 4}};
    world w;
    init_world(&w);
    weft_dim batch = weft_dim_symbol(w.pool, "batch", 1, 40);
    w.symbol[0] = (weft_bundle_symbol){.name = "batch", .lo = 1, .hi = 40};
    w.program.n_symbol = 1;
    w.program.batch_symbol = 0;
    int64_t one[2] = {1, ROW}, d[2] = {batch, ROW};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, one));
    w.value[x - 1].type.dim[0] = batch;
    uint32_t a = add_value(&w, WEFT_DTYPE_F32, 0, 2, d), y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
    add_launch(&w, WEFT_OP_RELU, (weft_attrs){0}, &x, 1, a);
    add_launch(&w, WEFT_OP_SIGMOID, (weft_attrs){0}, &a, 1, y);
    add_output(&w, y);
    add_output(&w, x);
    add_output(&w, a);
    open_world(&w, 1);
    for (size_t r = 0; r < sizeof row / sizeof row[0]; r++) {
        uint32_t n;
        weft_session_memory memory;
        int64_t n_el = row[r].batch * ROW, dim[2] = {row[r].batch, ROW};
        weft_tensor t = make_tensor(&w, WEFT_DTYPE_F32, 2, dim), got[3], dims = t;
        float *in = t.data;
        for (int64_t i = 0; i < n_el; i++)
            in[i] = (float)((i * 7 + i / ROW) % 1001 - 500) / 100;
        in[n_el - 1] = NAN;
        dims.data = NULL;
        weft_session_skip(w.session, r % 2 ? 4 : 0);
        assert_int_equal(weft_session_prepare(w.session, &dims, 1, w.diag), WEFT_ERR_OK);
        weft_session_profile(w.session, true);
        assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, got, 3), WEFT_ERR_OK);
        weft_session_get_memory(w.session, &memory);
        assert_int_equal(memory.rows, row[r].rows);
        assert_true(memory.arena_bytes >= (uint64_t)(row[r].rows ? row[r].rows : 1) * ROW * 4);
        assert_true(weft_session_times(w.session, &n)[1].time_us > 0);
        assert_int_equal(got[0].dim[0], row[r].batch);
        assert_memory_equal(got[1].data, in, weft_tensor_bytes(&t));
        assert_int_equal(weft_tensor_numel(&got[2]), r % 2 ? 0 : n_el);
        const float *b = got[0].data, *relu = got[2].data;
        for (int64_t i = 0; i < n_el; i++) {
            float want = in[i] > 0 ? in[i] : 0;
            assert_true(i == n_el - 1 ? isnan(b[i]) : fabsf(b[i] - 1 / (1 + expf(-want))) < 1e-5f);
            assert_true(r % 2 || (i == n_el - 1 ? isnan(relu[i]) : relu[i] == want));
        }
    }
    finish_world(&w);
}

/* x -> relu -> (exp, sigmoid): what only an unwanted output needs does not run. */
static void test_session__skips_what_nobody_asks_for(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {3, 5};
    weft_tensor got[3];
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d)), v[3];
    static const weft_op_id op[3] = {WEFT_OP_RELU, WEFT_OP_EXP, WEFT_OP_SIGMOID};
    for (int i = 0; i < 3; i++) {
        v[i] = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
        add_launch(&w, op[i], (weft_attrs){0}, i == 0 ? &x : &v[0], 1, v[i]);
    }
    add_output(&w, v[1]);
    add_output(&w, v[2]);
    add_output(&w, x);
    open_world(&w, 1);
    /* By mask: which launches run. */
    static const struct {
        uint64_t skip;
        bool runs[3];
    } row[] = {{0, {true, true, true}},           {1, {true, false, true}},
               {2, {true, true, false}},          {3, {false, false, false}},
               {7, {false, false, false}},        {4, {true, true, true}},
               {~UINT64_C(7), {true, true, true}}};
    const float *in = w.in[0].data;
    for (size_t r = 0; r < sizeof row / sizeof row[0]; r++) {
        uint32_t n;
        weft_session_skip(w.session, row[r].skip);
        weft_session_profile(w.session, true);
        assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, got, 3), WEFT_ERR_OK);
        const weft_launch_time *time = weft_session_times(w.session, &n);
        assert_int_equal(n, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(time[i].time_us > 0, row[r].runs[i]);
            if (row[r].skip >> i & 1) {
                assert_int_equal(got[i].dtype, WEFT_DTYPE_F32);
                assert_int_equal(weft_tensor_numel(&got[i]), 0);
                continue;
            }
            const float *y = got[i].data;
            for (int k = 0; k < 15; k++) {
                float a = in[k] > 0 ? in[k] : 0;
                float want = i == 0 ? expf(a) : i == 1 ? 1 / (1 + expf(-a)) : in[k];
                assert_true(fabsf(y[k] - want) < 1e-5f);
            }
        }
    }
    finish_world(&w);
}

static void test_session__shapes_that_data_tells(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t xd[1] = {9};
    weft_tensor x = make_tensor(&w, WEFT_DTYPE_F32, 1, xd), got;
    for (int i = 0; i < 9; i++)
        ((float *)x.data)[i] = i % 3 ? (float)i : 0.0f;
    uint32_t vx = add_input(&w, x);
    int64_t d[2] = {1, weft_dim_fresh(w.pool)}, e[2] = {d[1], 1};
    uint32_t nz = add_value(&w, WEFT_DTYPE_I64, 0, 2, d);
    uint32_t tr = add_value(&w, WEFT_DTYPE_I64, 0, 2, e);
    add_launch(&w, WEFT_OP_NON_ZERO, (weft_attrs){0}, &vx, 1, nz);
    add_launch(&w, WEFT_OP_TRANSPOSE, (weft_attrs){0}, &nz, 1, tr);
    add_output(&w, tr);
    open_world(&w, 1);
    for (int round = 0; round < 3; round++) {
        weft_err err = weft_session_run(w.session, &x, 1, w.diag, &got, 1);
        explain(&w);
        assert_int_equal(err, WEFT_ERR_OK);
        assert_int_equal(got.dim[0], 6 - round);
        assert_int_equal(got.dim[1], 1);
        assert_int_equal(((int64_t *)got.data)[0], round == 2 ? 4 : 1 + round);
        ((float *)x.data)[1 + round] = 0;
    }
    finish_world(&w);
}

/* c2 = [x', a], c3 = [x', a, b], with x' = 2x, a = -x, b = relu(x); nested: c4 = [c3, a']. */
static void test_session__joins_without_copies(void **state)
{
    (void)state;
    for (int64_t images = 1; images <= 2; images++) {
        world w;
        init_world(&w);
        int64_t d[3] = {images, 16, 5}, d2[3] = {images, 32, 5}, d3[3] = {images, 48, 5};
        int64_t d4[3] = {images, 64, 5};
        static const char *const attrs[5][3] = {{"steps", "t:add i0 i0", NULL},
                                                {"steps", "t:neg i0", NULL},
                                                {"steps", "t:relu i0", NULL},
                                                {"axis", "i:1", NULL},
                                                {"steps", "t:abs i0", NULL}};
        uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 3, d)), v[4], c[3];
        for (int i = 0; i < 4; i++) {
            v[i] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d);
            add_launch(&w, WEFT_OP_EW, parse_attrs(&w, attrs[i < 3 ? i : 4]), &x, 1, v[i]);
        }
        weft_attrs axis = parse_attrs(&w, attrs[3]);
        c[0] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d2);
        add_launch(&w, WEFT_OP_CONCAT, axis, v, 2, c[0]);
        c[1] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d3);
        add_launch(&w, WEFT_OP_CONCAT, axis, v, 3, c[1]);
        uint32_t last[2] = {c[1], v[3]};
        c[2] = add_value(&w, WEFT_DTYPE_F32, 0, 3, d4);
        add_launch(&w, WEFT_OP_CONCAT, axis, last, 2, c[2]);
        for (int i = 0; i < 3; i++)
            add_output(&w, c[i]);
        open_world(&w, 1);
        weft_tensor out[3];
        weft_session_profile(w.session, true);
        assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, out, 3), WEFT_ERR_OK);
        const float *in = w.in[0].data;
        for (int o = 0; o < 3; o++)
            for (int64_t i = 0; i < weft_tensor_numel(&out[o]); i++) {
                int64_t part = i / 80 % (o + 2), image = i / 80 / (o + 2);
                float f = in[image * 80 + i % 80];
                float want = part == 0   ? f + f
                             : part == 1 ? -f
                             : part == 2 ? fmaxf(f, 0)
                                         : fabsf(f);
                assert_true(((float *)out[o].data)[i] == want);
            }
        uint32_t n;
        const weft_launch_time *time = weft_session_times(w.session, &n);
        for (uint32_t i = 4; i < 7; i++)
            assert_string_equal(time[i].variant, images == 1 ? "joined" : "move");
        finish_world(&w);
    }
}

static void test_session__memory_limit_holds(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {1000, 1000};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d));
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
    const char *attrs[] = {"steps", "t:relu i0", NULL};
    add_launch(&w, WEFT_OP_EW, parse_attrs(&w, attrs), &x, 1, y);
    add_output(&w, y);
    weft_engine_options options = {.threads = 1, .mem_limit_bytes = 1000000};
    weft_tensor got;
    assert_int_equal(weft_engine_open_bundle(&w.bundle, &options, w.diag, &w.engine), 0);
    assert_int_equal(weft_session_open(w.engine, "m", w.diag, &w.session), 0);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_NOMEM);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_NOMEM);
    finish_world(&w);
}

/* Two sessions share one arena: the limit applies to the larger of them, not to their sum. */
static void test_session__shared_memory_counts_once(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        world w;
        init_world(&w);
        int64_t d[2] = {100, 1000};
        uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d));
        uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
        const char *attrs[] = {"steps", "t:neg i0", NULL};
        add_launch(&w, WEFT_OP_EW, parse_attrs(&w, attrs), &x, 1, y);
        add_output(&w, y);
        weft_engine_options options = {
            .threads = 1, .mem_limit_bytes = 600000, .share_memory = shared};
        weft_session *second = NULL;
        weft_tensor got;
        assert_int_equal(weft_engine_open_bundle(&w.bundle, &options, w.diag, &w.engine), 0);
        assert_int_equal(weft_session_open(w.engine, "m", w.diag, &w.session), 0);
        assert_int_equal(weft_session_open(w.engine, "m", w.diag, &second), 0);
        for (int round = 0; round < 2; round++) {
            assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), 0);
            assert_int_equal(weft_session_run(second, w.in, 1, w.diag, &got, 1),
                             shared ? WEFT_ERR_OK : WEFT_ERR_NOMEM);
        }
        const float *in = w.in[0].data, *out = got.data;
        for (int64_t i = 0; i < 100 * 1000; i++)
            assert_true(!shared || out[i] == -in[i]);
        weft_session_close(second);
        assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), 0);
        finish_world(&w);
    }
}

/* Launches that agree in all but their addresses have one kernel, in all sessions that share their
 * memory; those by another weight have another. */
static void test_session__equal_launches_share_a_kernel(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        world w;
        init_world(&w);
        int64_t d[2] = {3, 8}, wd[2] = {8, 8};
        uint32_t in[2] = {add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d))}, v[2];
        for (int k = 0; k < 2; k++)
            v[k] = add_weight(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, wd));
        for (int k = 0; k < 4; k++) {
            in[1] = v[k / 2];
            uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
            add_launch(&w, WEFT_OP_MATMUL, (weft_attrs){0}, in, 2, y);
            add_output(&w, y);
        }
        weft_engine_options options = {.threads = 1, .share_memory = shared};
        weft_session *second = NULL;
        weft_tensor got[4];
        assert_int_equal(weft_engine_open_bundle(&w.bundle, &options, w.diag, &w.engine), 0);
        assert_int_equal(weft_session_open(w.engine, "m", w.diag, &w.session), 0);
        assert_int_equal(weft_session_open(w.engine, "m", w.diag, &second), 0);
        for (int round = 0; round < 4; round++) {
            weft_session *s = round % 2 ? second : w.session;
            assert_int_equal(weft_session_run(s, w.in, 1, w.diag, got, 4), 0);
            assert_int_equal(w.engine->kernels.n, shared ? 2 : 0);
            for (int64_t i = 0; i < 4 * 24; i++) {
                const float *a = w.in[0].data, *b = (const float *)w.weight[i / 48].data;
                double sum = 0;
                for (int64_t j = 0; j < 8; j++)
                    sum += (double)a[i % 24 / 8 * 8 + j] * b[j * 8 + i % 8];
                assert_true(fabs(sum - ((const float *)got[i / 24].data)[i % 24]) < 1e-5);
            }
        }
        weft_session_close(second);
        assert_int_equal(w.engine->kernels.n, shared ? 2 : 0);
        weft_session_close(w.session);
        w.session = NULL;
        assert_int_equal(w.engine->kernels.n, 0);
        finish_world(&w);
    }
}

static void test_session__refuses_wrong_inputs(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {3, 4}, wrong[2] = {3, 5};
    uint32_t x = add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d));
    add_output(&w, x);
    open_world(&w, 1);
    weft_tensor got, t = make_tensor(&w, WEFT_DTYPE_F32, 2, wrong);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    t = make_tensor(&w, WEFT_DTYPE_F32, 1, d);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    t = make_tensor(&w, WEFT_DTYPE_I64, 2, d);
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 0, w.diag, &got, 1), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 0), WEFT_ERR_INPUT);
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_OK);
    char odd[12 * 4 + 1];
    memcpy(odd + 1, w.in[0].data, sizeof odd - 1);
    t = w.in[0];
    t.data = odd + 1;
    assert_int_equal(weft_session_run(w.session, &t, 1, w.diag, &got, 1), WEFT_ERR_OK);
    assert_memory_equal(got.data, w.in[0].data, 48);
    finish_world(&w);
}

static void test_session__wrong_checksum_is_refused(void **state)
{
    (void)state;
    world w;
    init_world(&w);
    int64_t d[2] = {8, 8};
    uint32_t in[2] = {add_input(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d)),
                      add_weight(&w, make_tensor(&w, WEFT_DTYPE_F32, 2, d))};
    uint32_t y = add_value(&w, WEFT_DTYPE_F32, 0, 2, d);
    add_launch(&w, WEFT_OP_MATMUL, (weft_attrs){0}, in, 2, y);
    add_output(&w, y);
    static const uint8_t byte;
    w.bundle.file = (weft_file){.at = &byte, .len = 1}; /* as if it came from a file */
    w.weight[0].checksum ^= 1;
    open_world(&w, 1);
    weft_tensor got;
    assert_int_equal(weft_session_run(w.session, w.in, 1, w.diag, &got, 1), WEFT_ERR_INPUT);
    finish_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__any_batch_inside_the_range),
        cmocka_unit_test(test_session__large_batches_run_in_slices),
        cmocka_unit_test(test_session__skips_what_nobody_asks_for),
        cmocka_unit_test(test_session__shapes_that_data_tells),
        cmocka_unit_test(test_session__joins_without_copies),
        cmocka_unit_test(test_session__memory_limit_holds),
        cmocka_unit_test(test_session__shared_memory_counts_once),
        cmocka_unit_test(test_session__equal_launches_share_a_kernel),
        cmocka_unit_test(test_session__refuses_wrong_inputs),
        cmocka_unit_test(test_session__wrong_checksum_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
