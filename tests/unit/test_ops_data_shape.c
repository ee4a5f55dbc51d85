/* Inference of the operators that move elements: symbolic dimensions and contents. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/ops_case.h"

static void symbol(const char *name, int64_t lo, int64_t hi)
{
    weft_dim_symbol(cs->pool, name, lo, hi);
}

static void test_shape__gives_symbols_as_content(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, ?s, 768");
    infer(WEFT_OP_SHAPE, 1);
    expect_dims(0, "3");
    expect_content(0, "?b, ?s, 768");
    attr_int(WEFT_ATTR_START, -2);
    attr_int(WEFT_ATTR_END, 2);
    infer(WEFT_OP_SHAPE, 1);
    expect_content(0, "?s");
    again();
    operand(0, WEFT_DTYPE_F32, "?b, ?s, 768");
    infer(WEFT_OP_SIZE, 1);
    expect_dims(0, "");
    expect_content(0, "?b * ?s * 768");
}

static void test_reshape__resolves_holes_and_zeros(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, ?s, 768");
    operand_content(1, "4", "?b, ?s, 12, 64");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b, ?s, 12, 64");
    operand_content(1, "3", "0, -1, 768");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b, ?s, 768");
    operand_content(1, "2", "?b * ?s, 768");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b * ?s, 768");
    operand_content(1, "2", "-1, 64");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b * ?s * 12, 64");
    operand_content(1, "4", "?b, -1, 12, 64");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b, ?s, 12, 64");
}

static void test_reshape__takes_the_attribute(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 512, 1, 1");
    attr_dims(WEFT_ATTR_SHAPE, "?b, -1");
    infer(WEFT_OP_RESHAPE, 1);
    expect_dims(0, "?b, 512");
}

static void test_reshape__keeps_content(void **state)
{
    (void)state;
    operand_content(0, "2, 2", "?a, 1, 2, ?b");
    attr_dims(WEFT_ATTR_SHAPE, "-1");
    infer(WEFT_OP_RESHAPE, 1);
    expect_content(0, "?a, 1, 2, ?b");
}

static void test_reshape__refuses_what_does_not_fit(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "2, 3");
    operand_content(1, "2", "4, -1");
    refuse(WEFT_OP_RESHAPE, WEFT_ERR_INPUT, "6 elements are no multiple of 4");
    operand_content(1, "2", "-1, -1");
    refuse(WEFT_OP_RESHAPE, WEFT_ERR_INPUT, "entry 1 is -1");
    operand_content(1, "3", "2, 3, 0");
    refuse(WEFT_OP_RESHAPE, WEFT_ERR_INPUT, "entry 2 is 0");
    operand_content(1, "2", "2, 4");
    refuse(WEFT_OP_RESHAPE, WEFT_ERR_INPUT, "number of elements");
    operand(1, WEFT_DTYPE_I64, "?n");
    refuse(WEFT_OP_RESHAPE, WEFT_ERR_UNSUP, "rank");
}

static void test_reshape__of_unknown_shape_is_fresh(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "2, 3");
    operand(1, WEFT_DTYPE_I64, "3");
    infer(WEFT_OP_RESHAPE, 1);
    assert_int_equal(cs->out[0].rank, 3);
    for (int d = 0; d < 3; d++)
        assert_true(weft_dim_is_data(cs->pool, cs->out[0].dim[d]));
}

static void test_flatten__multiplies(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 512, 7, 7");
    infer(WEFT_OP_FLATTEN, 1);
    expect_dims(0, "?b, 25088");
    attr_int(WEFT_ATTR_AXIS, 0);
    infer(WEFT_OP_FLATTEN, 1);
    expect_dims(0, "1, ?b * 25088");
}

static void test_squeeze__and_unsqueeze(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 1, 3, 1");
    infer(WEFT_OP_SQUEEZE, 1);
    expect_dims(0, "?b, 3");
    attr_dims(WEFT_ATTR_AXES, "-1");
    infer(WEFT_OP_SQUEEZE, 1);
    expect_dims(0, "?b, 1, 3");
    again();
    operand(0, WEFT_DTYPE_F32, "?b, 3");
    attr_dims(WEFT_ATTR_AXES, "-1, 1");
    infer(WEFT_OP_UNSQUEEZE, 1);
    expect_dims(0, "?b, 1, 3, 1");
    again();
    operand_content(0, "", "?b + 1");
    attr_dims(WEFT_ATTR_AXES, "0");
    infer(WEFT_OP_UNSQUEEZE, 1);
    expect_content(0, "?b + 1");
    again();
    operand(0, WEFT_DTYPE_F32, "2, 3");
    attr_dims(WEFT_ATTR_AXES, "0");
    refuse(WEFT_OP_SQUEEZE, WEFT_ERR_INPUT, "dimension 0 is 2, not 1");
    refuse(WEFT_OP_TRANSPOSE, WEFT_ERR_UNSUP, "no attribute");
}

static void test_expand__broadcasts_both_ways(void **state)
{
    (void)state;
    symbol("s", 2, 512);
    operand(0, WEFT_DTYPE_F32, "1, 1, ?s");
    operand_content(1, "4", "?b, 1, ?s, ?s");
    infer(WEFT_OP_EXPAND, 1);
    expect_dims(0, "?b, 1, ?s, ?s");
    operand(0, WEFT_DTYPE_F32, "3, 1");
    operand_content(1, "1", "4");
    infer(WEFT_OP_EXPAND, 1);
    expect_dims(0, "3, 4");
    operand_content(1, "2", "2, 4");
    assert_int_equal(try_infer(WEFT_OP_EXPAND, 1), WEFT_ERR_INPUT);
}

static void test_tile__multiplies(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 3");
    operand_content(1, "2", "2, ?n");
    infer(WEFT_OP_TILE, 1);
    expect_dims(0, "?b * 2, ?n * 3");
}

static void test_concat__joins_contents(void **state)
{
    (void)state;
    operand_content(0, "1", "?b");
    operand_content(1, "2", "-1, 768");
    attr_int(WEFT_ATTR_AXIS, 0);
    infer(WEFT_OP_CONCAT, 1);
    expect_dims(0, "3");
    expect_content(0, "?b, -1, 768");
    again();
    operand(0, WEFT_DTYPE_F32, "?b, ?s, 4");
    operand(1, WEFT_DTYPE_F32, "?b, 1, 4");
    attr_int(WEFT_ATTR_AXIS, 1);
    infer(WEFT_OP_CONCAT, 1);
    expect_dims(0, "?b, ?s + 1, 4");
    operand(1, WEFT_DTYPE_F32, "?b, 1, 5");
    refuse(WEFT_OP_CONCAT, WEFT_ERR_INPUT, "4");
}

static void test_split__divides(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 7");
    attr_int(WEFT_ATTR_AXIS, 1);
    infer(WEFT_OP_SPLIT, 3);
    expect_dims(0, "?b, 3");
    expect_dims(2, "?b, 1");
    operand(0, WEFT_DTYPE_F32, "?b, ?h * 3");
    infer(WEFT_OP_SPLIT, 3);
    expect_dims(0, "?b, ?h");
    expect_dims(2, "?b, ?h");
    again();
    operand_content(0, "3", "?a, ?b, 4");
    operand_content(1, "2", "2, 1");
    infer(WEFT_OP_SPLIT, 2);
    expect_content(0, "?a, ?b");
    expect_content(1, "4");
    operand_content(1, "2", "2, 2");
    assert_int_equal(try_infer(WEFT_OP_SPLIT, 2), WEFT_ERR_INPUT);
}

static void test_slice__with_symbols(void **state)
{
    (void)state;
    symbol("s", 1, 512);
    operand(0, WEFT_DTYPE_F32, "1, 512");
    operand_content(1, "1", "0");
    operand_content(2, "1", "?s");
    operand_content(3, "1", "1");
    infer(WEFT_OP_SLICE, 1);
    expect_dims(0, "1, ?s");
    operand_content(2, "1", "?long");
    infer(WEFT_OP_SLICE, 1);
    expect_dims(0, "1, min(512, ?long)");
    operand(0, WEFT_DTYPE_F32, "?b, ?s");
    operand_content(1, "1", "-1");
    operand_content(2, "1", "9223372036854775807");
    infer(WEFT_OP_SLICE, 1);
    expect_dims(0, "?b, 1");
    operand_content(1, "1", "0");
    operand_content(2, "1", "-1");
    infer(WEFT_OP_SLICE, 1);
    expect_dims(0, "?b, ?s - 1");
    operand_content(2, "1", "9223372036854775807");
    operand_content(4, "1", "2");
    infer(WEFT_OP_SLICE, 1);
    expect_dims(0, "?b, floordiv(?s + 1, 2)");
}

static void test_slice__of_contents(void **state)
{
    (void)state;
    operand_content(0, "4", "?a, ?b, 3, 4");
    attr_ints(WEFT_ATTR_STARTS, "-1");
    attr_ints(WEFT_ATTR_ENDS, "-9000000000000000000");
    attr_ints(WEFT_ATTR_STEPS, "-1");
    infer(WEFT_OP_SLICE, 1);
    expect_content(0, "4, 3, ?b, ?a");
    again();
    operand_content(0, "4", "?a, ?b, 3, 4");
    attr_ints(WEFT_ATTR_STARTS, "2");
    attr_ints(WEFT_ATTR_ENDS, "9000000000000000000");
    infer(WEFT_OP_SLICE, 1);
    expect_content(0, "3, 4");
}

static void test_slice__with_open_bounds_is_fresh(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 8");
    operand(1, WEFT_DTYPE_I64, "1");
    operand(2, WEFT_DTYPE_I64, "1");
    operand_content(3, "1", "1");
    infer(WEFT_OP_SLICE, 1);
    assert_true(weft_dim_is_data(cs->pool, cs->out[0].dim[1]));
    assert_false(weft_dim_is_data(cs->pool, cs->out[0].dim[0]));
}

static void test_gather__picks_from_shapes(void **state)
{
    (void)state;
    int64_t one = 1;
    operand_content(0, "3", "?b, ?s, 768");
    operand_data(1, WEFT_DTYPE_I64, "", &one);
    infer(WEFT_OP_GATHER, 1);
    expect_dims(0, "");
    expect_content(0, "?s");
    again();
    operand(0, WEFT_DTYPE_F32, "30522, 768");
    operand(1, WEFT_DTYPE_I64, "?b, ?s");
    infer(WEFT_OP_GATHER, 1);
    expect_dims(0, "?b, ?s, 768");
    again();
    operand(0, WEFT_DTYPE_F32, "?b, ?c, 4");
    operand(1, WEFT_DTYPE_I64, "?n, 2");
    infer(WEFT_OP_GATHER_ND, 1);
    expect_dims(0, "?n, 4");
}

static void test_transpose__of_content(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, ?s, 12, 64");
    attr_ints(WEFT_ATTR_PERM, "0, 2, 1, 3");
    infer(WEFT_OP_TRANSPOSE, 1);
    expect_dims(0, "?b, 12, ?s, 64");
    again();
    operand_content(0, "2, 2", "1, ?a, 3, ?b");
    infer(WEFT_OP_TRANSPOSE, 1);
    expect_content(0, "1, 3, ?a, ?b");
    attr_ints(WEFT_ATTR_PERM, "0, 0");
    refuse(WEFT_OP_TRANSPOSE, WEFT_ERR_INPUT, "permutation");
}

static void test_range__counts_symbols(void **state)
{
    (void)state;
    operand_content(0, "", "0");
    operand_content(1, "", "?s");
    operand_content(2, "", "1");
    infer(WEFT_OP_RANGE, 1);
    expect_dims(0, "?s");
    operand_content(0, "", "?s");
    operand_content(1, "", "?s + 3");
    infer(WEFT_OP_RANGE, 1);
    expect_dims(0, "3");
    expect_content(0, "?s, ?s + 1, ?s + 2");
    operand_content(2, "", "0");
    refuse(WEFT_OP_RANGE, WEFT_ERR_INPUT, "step is 0");
}

static void test_constant_of_shape__has_content(void **state)
{
    (void)state;
    operand_content(0, "1", "3");
    add_attr(WEFT_ATTR_DTYPE, WEFT_KIND_DTYPE)->u.dtype = WEFT_DTYPE_I64;
    attr_int(WEFT_ATTR_VALUE, -7);
    infer(WEFT_OP_CONSTANT_OF_SHAPE, 1);
    expect_content(0, "-7, -7, -7");
    operand_content(0, "2", "?b, 3");
    infer(WEFT_OP_CONSTANT_OF_SHAPE, 1);
    expect_dims(0, "?b, 3");
}

static void test_pad__adds(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, ?s");
    operand_content(1, "4", "0, 1, 0, 64 - ?s");
    infer(WEFT_OP_PAD, 1);
    expect_dims(0, "?b, 65");
    operand_content(1, "2", "1, -2");
    operand_content(3, "1", "-1");
    infer(WEFT_OP_PAD, 1);
    expect_dims(0, "?b, ?s - 1");
}

static void test_resize__scales_and_sizes(void **state)
{
    (void)state;
    static const double twice[] = {1, 1, 2, 2}, half[] = {1, 1, 0.5, 1.5};
    operand(0, WEFT_DTYPE_F32, "?b, 3, ?h, ?w");
    attr_floats(WEFT_ATTR_SCALES, twice, 4);
    infer(WEFT_OP_RESIZE, 1);
    expect_dims(0, "?b, 3, ?h * 2, ?w * 2");
    cs->n_attr = 0;
    attr_floats(WEFT_ATTR_SCALES, half, 4);
    infer(WEFT_OP_RESIZE, 1);
    expect_dims(0, "?b, 3, floordiv(?h, 2), floordiv(?w * 3, 2)");
    cs->n_attr = 0;
    operand_content(3, "4", "?b, 3, ?h + 1, 7");
    infer(WEFT_OP_RESIZE, 1);
    expect_dims(0, "?b, 3, ?h + 1, 7");
}

static void test_select__is_fresh_without_data(void **state)
{
    (void)state;
    static const float x[4] = {0, 1, 0, 2};
    operand(0, WEFT_DTYPE_F32, "2, 2");
    infer(WEFT_OP_NON_ZERO, 1);
    assert_int_equal(cs->out[0].dim[0], 2);
    assert_true(weft_dim_is_data(cs->pool, cs->out[0].dim[1]));
    operand_data(0, WEFT_DTYPE_F32, "2, 2", x);
    infer(WEFT_OP_NON_ZERO, 1);
    expect_dims(0, "2, 2");
    infer(WEFT_OP_UNIQUE, 4);
    expect_dims(0, "3");
    expect_dims(2, "4");
}

static void test_top_k__with_symbolic_k(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?b, 100");
    operand_content(1, "1", "?k");
    infer(WEFT_OP_TOP_K, 2);
    expect_dims(0, "?b, ?k");
    assert_int_equal(cs->out[1].dtype, WEFT_DTYPE_I64);
    operand_content(1, "1", "101");
    assert_int_equal(try_infer(WEFT_OP_TOP_K, 2), WEFT_ERR_INPUT);
}

static void test_lstm__dims(void **state)
{
    (void)state;
    operand(0, WEFT_DTYPE_F32, "?t, ?b, 10");
    operand(1, WEFT_DTYPE_F32, "2, 80, 10");
    operand(2, WEFT_DTYPE_F32, "2, 80, 20");
    attr_str(WEFT_ATTR_DIRECTION, "bidirectional");
    infer(WEFT_OP_LSTM, 3);
    expect_dims(0, "?t, 2, ?b, 20");
    expect_dims(1, "2, ?b, 20");
    operand(1, WEFT_DTYPE_F32, "2, 60, 10");
    assert_int_equal(try_infer(WEFT_OP_LSTM, 3), WEFT_ERR_INPUT);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, case_set_up, case_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_shape__gives_symbols_as_content),
        CASE(test_reshape__resolves_holes_and_zeros),
        CASE(test_reshape__takes_the_attribute),
        CASE(test_reshape__keeps_content),
        CASE(test_reshape__refuses_what_does_not_fit),
        CASE(test_reshape__of_unknown_shape_is_fresh),
        CASE(test_flatten__multiplies),
        CASE(test_squeeze__and_unsqueeze),
        CASE(test_expand__broadcasts_both_ways),
        CASE(test_tile__multiplies),
        CASE(test_concat__joins_contents),
        CASE(test_split__divides),
        CASE(test_slice__with_symbols),
        CASE(test_slice__of_contents),
        CASE(test_slice__with_open_bounds_is_fresh),
        CASE(test_gather__picks_from_shapes),
        CASE(test_transpose__of_content),
        CASE(test_range__counts_symbols),
        CASE(test_constant_of_shape__has_content),
        CASE(test_pad__adds),
        CASE(test_resize__scales_and_sizes),
        CASE(test_select__is_fresh_without_data),
        CASE(test_top_k__with_symbolic_k),
        CASE(test_lstm__dims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
