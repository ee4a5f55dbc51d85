/* weft_memory_plan_make: its figures equal those of a session that runs. */
#include "tests/support/session_world.h"

static void make_world(world *w, int64_t batch)
{
    init_world(w);
    int64_t image[4] = {batch, 32, 16, 16}, filter[4] = {32, 32, 3, 3}, bias[1] = {32};
    const char *attrs[] = {"kernel_shape", "l:3,3",      "pads", "l:1,1,1,1",
                           "algo",         "s:winograd", NULL};
    const char *steps[] = {"steps", "t:relu i0", NULL};
    uint32_t in[3] = {add_input(w, make_tensor(w, WEFT_DTYPE_F32, 4, image)),
                      add_weight(w, make_tensor(w, WEFT_DTYPE_F32, 4, filter)),
                      add_weight(w, make_tensor(w, WEFT_DTYPE_F32, 1, bias))};
    uint32_t y = add_value(w, WEFT_DTYPE_F32, 0, 4, image);
    add_launch(w, WEFT_OP_CONV, parse_attrs(w, attrs), in, 3, y);
    uint32_t z = add_value(w, WEFT_DTYPE_F32, 0, 4, image);
    add_launch(w, WEFT_OP_EW, parse_attrs(w, steps), &y, 1, z);
    add_output(w, z);
}

static void test_memory_plan__is_what_a_session_takes(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 8; batch += 7) {
        world w;
        weft_memory_plan plan;
        weft_session_memory m;
        weft_engine_options options = {.threads = 1};
        make_world(&w, batch);
        assert_int_equal(
            weft_memory_plan_make(&w.bundle, "m", NULL, &options, 1000000, w.diag, &plan),
            WEFT_ERR_OK);
        open_world(&w, 1);
        assert_int_equal(weft_session_measure_memory(w.session, w.in, 1, w.diag, &m), WEFT_ERR_OK);
        assert_int_equal(plan.arena_bytes, m.arena_bytes);
        assert_int_equal(plan.arena_bytes + plan.scratch_bytes, m.total_bytes);
        assert_int_equal(plan.packed_bytes, m.packed_bytes);
        assert_int_equal(m.touched_bytes, m.arena_bytes);
        assert_int_equal(m.high_bytes, m.arena_bytes);
        assert_int_equal(plan.input_bytes, batch * 32 * 16 * 16 * 4);
        assert_int_equal(plan.n_kernel, 2);
        assert_int_equal(plan.n_conv, 1);
        uint64_t running = plan.file_bytes + plan.packed_bytes + m.total_bytes;
        uint64_t most = running > plan.start_bytes ? running : plan.start_bytes;
        assert_int_equal(plan.peak_bytes, plan.process_bytes + plan.input_bytes + most);
        finish_world(&w);
    }
}

static void test_memory_plan__unknown_model_is_refused(void **state)
{
    (void)state;
    world w;
    weft_memory_plan plan;
    make_world(&w, 1);
    assert_int_equal(weft_memory_plan_make(&w.bundle, "other", NULL, NULL, 0, w.diag, &plan),
                     WEFT_ERR_INPUT);
    finish_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_plan__is_what_a_session_takes),
        cmocka_unit_test(test_memory_plan__unknown_model_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
