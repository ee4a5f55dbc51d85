/* The operator table, attribute keys and layouts are consistent, and every entry checks its row. */
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

static bool has_attr(const weft_op *op, uint16_t key)
{
    for (int i = 0; i < WEFT_OP_ATTR_MAX && op->attrs[i].key != WEFT_ATTR_NONE; i++)
        if (op->attrs[i].key == key)
            return true;
    return false;
}

static void test_ops_table__rows_are_complete(void **state)
{
    (void)state;
    for (int i = 1; i < WEFT_OP_COUNT; i++) {
        const weft_op *op = weft_op_get((weft_op_id)i);
        assert_non_null(op->name);
        assert_true(op->name[0] >= 'a' && op->name[0] <= 'z');
        assert_non_null(op->infer);
        assert_true(op->in_min <= op->in_max);
        assert_true(op->out_min >= 1 && op->out_min <= op->out_max);
        assert_int_equal(weft_op_find(op->name), i);
    }
    assert_int_equal(weft_op_find("no_such_operator"), WEFT_OP_NONE);
    assert_int_equal(weft_op_find(NULL), WEFT_OP_NONE);
}

static void test_ops_table__attributes_of_a_row_are_unique(void **state)
{
    (void)state;
    for (int i = 1; i < WEFT_OP_COUNT; i++) {
        const weft_op *op = weft_op_get((weft_op_id)i);
        for (int k = 0; k < WEFT_OP_ATTR_MAX && op->attrs[k].key != WEFT_ATTR_NONE; k++) {
            assert_true(op->attrs[k].key < WEFT_ATTR_COUNT);
            assert_true(op->attrs[k].kind != WEFT_KIND_NONE);
            for (int j = 0; j < k; j++)
                assert_true(op->attrs[j].key != op->attrs[k].key);
        }
        for (int k = 0; k < WEFT_OP_PARAM_MAX && op->params[k].key != WEFT_ATTR_NONE; k++) {
            assert_true(op->params[k].key < WEFT_ATTR_COUNT);
            assert_true(op->params[k].in < op->in_max);
            assert_false(has_attr(op, op->params[k].key));
            for (int j = 0; j < k; j++)
                assert_true(op->params[j].in != op->params[k].in);
        }
    }
}

static void test_ops_table__attribute_keys_read_back(void **state)
{
    (void)state;
    for (int i = 1; i < WEFT_ATTR_COUNT; i++)
        assert_int_equal(weft_attr_key_parse(weft_attr_key_name((weft_attr_key)i)), i);
    assert_int_equal(weft_attr_key_parse("no_such_key"), WEFT_ATTR_NONE);
}

static void test_ops_table__layouts_read_back_and_have_sizes(void **state)
{
    (void)state;
    weft_layout layout;
    for (int i = 0; i < WEFT_LAYOUT_COUNT; i++) {
        assert_true(weft_layout_parse(weft_layout_name((weft_layout)i), &layout));
        assert_int_equal(layout, i);
    }
    assert_false(weft_layout_parse("nowhere", &layout));
    const int64_t dim[] = {2, 3, 5, 7}, huge[] = {1ll << 40, 1ll << 40};
    uint64_t bytes;
    assert_true(weft_layout_bytes(WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, dim, 4, &bytes));
    assert_int_equal(bytes, 2 * 3 * 5 * 7 * 4);
    assert_true(weft_layout_bytes(WEFT_DTYPE_F32, WEFT_LAYOUT_C16, dim, 4, &bytes));
    assert_int_equal(bytes, 2 * 16 * 5 * 7 * 4);
    assert_false(weft_layout_bytes(WEFT_DTYPE_F32, WEFT_LAYOUT_PLAIN, huge, 2, &bytes));
}

/* -- Checks of the entries ------------------------------------------------------------------ */

static weft_err infer(weft_op_id op, const weft_operand *in, uint32_t n_in, weft_attrs attrs,
                      weft_ttype *out)
{
    weft_arena *arena = weft_arena_create(0);
    weft_infer_ctx cx = {.op = weft_op_get(op),
                         .attrs = attrs,
                         .pool = weft_dimpool_create(arena),
                         .arena = arena,
                         .in = in,
                         .n_in = n_in,
                         .out = out,
                         .n_out = 1};
    memset(out, 0, sizeof *out);
    weft_err err = weft_op_infer(&cx);
    weft_arena_destroy(arena);
    return err;
}

static const weft_operand square = {true, {WEFT_DTYPE_F32, 0, 2, {4, 4}}, NULL, 0, NULL};

static void test_ops_table__counts_and_attributes_are_checked(void **state)
{
    (void)state;
    weft_ttype out;
    const weft_operand two[] = {square, square};
    const weft_attr axis = {.key = WEFT_ATTR_AXIS, .kind = WEFT_KIND_INT, .u = {.i = 0}};
    const weft_attr text = {.key = WEFT_ATTR_AXIS, .kind = WEFT_KIND_STR, .u = {.s = "x"}};
    const weft_attrs none = {NULL, 0};
    assert_int_equal(infer(WEFT_OP_ADD, two, 2, none, &out), WEFT_ERR_OK);
    assert_int_equal(infer(WEFT_OP_ADD, two, 1, none, &out), WEFT_ERR_INPUT);
    assert_int_equal(infer(WEFT_OP_RELU, two, 2, none, &out), WEFT_ERR_INPUT);
    assert_int_equal(infer(WEFT_OP_RELU, two, 1, (weft_attrs){&axis, 1}, &out), WEFT_ERR_UNSUP);
    assert_int_equal(infer(WEFT_OP_SOFTMAX, two, 1, (weft_attrs){&axis, 1}, &out), WEFT_ERR_OK);
    assert_int_equal(infer(WEFT_OP_SOFTMAX, two, 1, (weft_attrs){&text, 1}, &out), WEFT_ERR_INPUT);
    assert_int_equal(infer(WEFT_OP_CAST, two, 1, none, &out), WEFT_ERR_INPUT);
    assert_int_equal(infer(WEFT_OP_NONE, two, 1, none, &out), WEFT_ERR_BUG);
    const weft_operand missing[] = {square, {0}};
    assert_int_equal(infer(WEFT_OP_ADD, missing, 2, none, &out), WEFT_ERR_INPUT);
}

static void test_ops_table__layout_is_passed_on_or_refused(void **state)
{
    (void)state;
    weft_ttype out;
    weft_operand x = {true, {WEFT_DTYPE_F32, WEFT_LAYOUT_NHWC, 4, {1, 8, 6, 6}}, NULL, 0, NULL};
    const weft_attr c16 = {.key = WEFT_ATTR_LAYOUT, .kind = WEFT_KIND_STR, .u = {.s = "c16"}};
    assert_int_equal(infer(WEFT_OP_GLOBAL_AVERAGE_POOL, &x, 1, (weft_attrs){NULL, 0}, &out),
                     WEFT_ERR_OK);
    assert_int_equal(out.layout, WEFT_LAYOUT_NHWC);
    assert_int_equal(infer(WEFT_OP_REORDER, &x, 1, (weft_attrs){&c16, 1}, &out), WEFT_ERR_OK);
    assert_int_equal(out.layout, WEFT_LAYOUT_C16);
    assert_int_equal(infer(WEFT_OP_SOFTMAX, &x, 1, (weft_attrs){NULL, 0}, &out), WEFT_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_table__rows_are_complete),
        cmocka_unit_test(test_ops_table__attributes_of_a_row_are_unique),
        cmocka_unit_test(test_ops_table__attribute_keys_read_back),
        cmocka_unit_test(test_ops_table__layouts_read_back_and_have_sizes),
        cmocka_unit_test(test_ops_table__counts_and_attributes_are_checked),
        cmocka_unit_test(test_ops_table__layout_is_passed_on_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
