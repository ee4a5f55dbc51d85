/* Steps: reading them, their meaning, and running them in `ew` and as an epilogue. */
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

static weft_err parse(const char *text, weft_step *out)
{
    const char *const all[] = {"identity i0", text};
    weft_step step[2];
    weft_err err = weft_steps_parse(all, 2, 3, NULL, (weft_where){0}, step);
    *out = step[1];
    return err;
}

static void test_ops_steps__every_row_reads_and_knows_its_arguments(void **state)
{
    (void)state;
    static const char *const args[] = {"", " i0", " i0 acc", " i0 s0 #-1.5"};
    for (int i = 0; i < WEFT_STEP_COUNT; i++) {
        char text[80];
        weft_step step;
        uint32_t n = weft_step_n_args((weft_step_op)i);
        assert_true(n >= 1 && n <= WEFT_STEP_ARGS_MAX);
        strcpy(text, weft_step_name((weft_step_op)i));
        strcat(text, args[n]);
        assert_int_equal(parse(text, &step), WEFT_ERR_OK);
        assert_int_equal(step.op, i);
        assert_int_equal(step.n_args, n);
    }
}

static void test_ops_steps__arguments_read_by_kind(void **state)
{
    (void)state;
    weft_step step;
    assert_int_equal(parse("clip s0 #-inf #6", &step), WEFT_ERR_OK);
    assert_int_equal(step.arg[0].kind, WEFT_ARG_STEP);
    assert_true(isinf(step.arg[1].number) && step.arg[1].number < 0);
    assert_true(step.arg[2].number == 6.0f);
    assert_int_equal(parse("where i2 acc i1", &step), WEFT_ERR_OK);
    assert_int_equal(step.arg[0].idx, 2);
    assert_int_equal(step.arg[1].kind, WEFT_ARG_ACC);
}

static void test_ops_steps__wrong_text_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "",          "add",          "add i0",     "add i0 i3",
        "add i0 s1", "add i0 i1 i2", "nope i0",    "relu x0",
        "relu #",    "relu #1x",     "relu i-1",   "relu accu",
        "relu i",    "relu s",       "relu #nan0", "relu i99999999999999999999"};
    weft_step step;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(parse(wrong[i], &step), WEFT_ERR_INPUT);
    const char *many[WEFT_STEPS_MAX + 1];
    for (int i = 0; i <= WEFT_STEPS_MAX; i++)
        many[i] = "relu i0";
    weft_step room[WEFT_STEPS_MAX];
    assert_int_equal(weft_steps_parse(many, WEFT_STEPS_MAX + 1, 1, NULL, (weft_where){0}, room),
                     WEFT_ERR_INPUT);
}

static void test_ops_steps__scalars_mean_what_their_names_say(void **state)
{
    (void)state;
    const float x[3] = {-2.0f, 0.5f, 3.0f};
    assert_true(weft_step_apply(WEFT_STEP_RELU, x) == 0);
    assert_true(weft_step_apply(WEFT_STEP_CLIP, x) == 0.5f);
    assert_true(weft_step_apply(WEFT_STEP_LEAKY_RELU, x) == -1.0f);
    assert_true(weft_step_apply(WEFT_STEP_WHERE, x) == 0.5f);
    assert_true(fabsf(weft_step_apply(WEFT_STEP_GELU, x) - -0.04550026f) < 1e-6f);
    assert_true(fabsf(weft_step_apply(WEFT_STEP_GELU_TANH, x) - -0.04540231f) < 1e-6f);
    assert_true(fabsf(weft_step_apply(WEFT_STEP_SILU, x) - -0.23840584f) < 1e-6f);
    assert_true(fabsf(weft_step_apply(WEFT_STEP_ELU, x) - 0.5f * (expf(-2) - 1)) < 1e-6f);
    assert_true(fabsf(weft_step_apply(WEFT_STEP_SOFTPLUS, x) - 0.126928f) < 1e-6f);
    assert_true(isfinite(weft_step_apply(WEFT_STEP_SOFTPLUS, (const float[]){200, 0, 0})));
    const float nan[2] = {NAN, 1};
    assert_true(isnan(weft_step_apply(WEFT_STEP_MAX, nan)));
}

/* -- Running -------------------------------------------------------------------------------- */

static weft_tensor tensor(float *data, int32_t rank, int64_t a, int64_t b)
{
    return (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = rank, .dim = {a, b}, .data = data};
}

static weft_err eval(weft_op_id op, const weft_attr *attr, const weft_tensor *const *in,
                     uint32_t n_in, weft_tensor *out)
{
    weft_arena *scratch = weft_arena_create(0);
    weft_eval_ctx cx = {.op = weft_op_get(op),
                        .attrs = {attr, 1},
                        .in = in,
                        .n_in = n_in,
                        .out = out,
                        .n_out = 1,
                        .scratch = scratch};
    weft_err err = weft_op_eval(&cx);
    weft_arena_destroy(scratch);
    return err;
}

static void test_ops_steps__ew_broadcasts_its_operands(void **state)
{
    (void)state;
    static const char *const text[] = {"mul i0 i1", "add s0 i2", "relu acc", "sub acc #1"};
    const weft_attr steps = {
        .key = WEFT_ATTR_STEPS, .kind = WEFT_KIND_STRS, .n = 4, .u = {.strs = text}};
    float a[] = {1, 2, 3, 4, 5, 6}, row[] = {1, -1, 2}, col[] = {10, -10}, y[6];
    const weft_tensor ta = tensor(a, 2, 2, 3), tr = tensor(row, 1, 3, 0), tc = tensor(col, 2, 2, 1);
    const weft_tensor *const in[] = {&ta, &tr, &tc};
    weft_tensor out = tensor(y, 2, 2, 3);
    assert_int_equal(eval(WEFT_OP_EW, &steps, in, 3, &out), WEFT_ERR_OK);
    const float want[] = {10, 7, 15, -1, -1, 1};
    assert_memory_equal(y, want, sizeof y);
}

static void test_ops_steps__epilogue_starts_from_the_gemm(void **state)
{
    (void)state;
    static const char *const text[] = {"add acc i3", "relu acc"};
    const weft_attr epilogue = {
        .key = WEFT_ATTR_EPILOGUE, .kind = WEFT_KIND_STRS, .n = 2, .u = {.strs = text}};
    float a[] = {1, 2, 3, 4}, b[] = {1, 0, 0, 1}, bias[] = {1, -1}, r[] = {0, 0, -100, 0}, y[4];
    const weft_tensor ta = tensor(a, 2, 2, 2), tb = tensor(b, 2, 2, 2), ti = tensor(bias, 1, 2, 0);
    const weft_tensor tr = tensor(r, 2, 2, 2);
    const weft_tensor *const in[] = {&ta, &tb, &ti, &tr};
    weft_tensor out = tensor(y, 2, 2, 2);
    assert_int_equal(eval(WEFT_OP_MATMUL, &epilogue, in, 4, &out), WEFT_ERR_OK);
    const float want[] = {2, 1, 0, 3};
    assert_memory_equal(y, want, sizeof y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_steps__every_row_reads_and_knows_its_arguments),
        cmocka_unit_test(test_ops_steps__arguments_read_by_kind),
        cmocka_unit_test(test_ops_steps__wrong_text_is_refused),
        cmocka_unit_test(test_ops_steps__scalars_mean_what_their_names_say),
        cmocka_unit_test(test_ops_steps__ew_broadcasts_its_operands),
        cmocka_unit_test(test_ops_steps__epilogue_starts_from_the_gemm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
