/* Inference on symbolic dimensions: broadcasting, windows, contents of shape arithmetic. */
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

typedef struct fixture {
    weft_arena *arena;
    weft_dimpool *pool;
    weft_dim b, s; /* ?b in [1, 64], ?s in [2, unbounded] */
    weft_ttype out[3];
    const weft_dim *content[3];
} fixture;

static int set_up(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    fixture *f = weft_arena_alloc(arena, sizeof *f);
    f->arena = arena;
    f->pool = weft_dimpool_create(arena);
    f->b = weft_dim_symbol(f->pool, "b", 1, 64);
    f->s = weft_dim_symbol(f->pool, "s", 2, INT64_MAX / 4);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    weft_arena_destroy(((fixture *)*state)->arena);
    return 0;
}

static weft_err infer(fixture *f, weft_op_id op, const weft_operand *in, uint32_t n_in,
                      const weft_attr *attr, uint32_t n_attr)
{
    memset(f->out, 0, sizeof f->out);
    memset(f->content, 0, sizeof f->content);
    weft_infer_ctx cx = {.op = weft_op_get(op),
                         .attrs = {attr, n_attr},
                         .pool = f->pool,
                         .arena = f->arena,
                         .in = in,
                         .n_in = n_in,
                         .out = f->out,
                         .out_content = f->content,
                         .n_out = 1};
    return weft_op_infer(&cx);
}

static weft_operand f32(uint32_t rank, weft_dim a, weft_dim b, weft_dim c, weft_dim d)
{
    weft_operand x = {.present = true, .type = {.dtype = WEFT_DTYPE_F32, .rank = (uint8_t)rank}};
    const weft_dim dim[4] = {a, b, c, d};
    memcpy(x.type.dim, dim, rank * sizeof *dim);
    return x;
}

static weft_operand shape_vector(const weft_dim *content, uint32_t n)
{
    weft_operand x = {.present = true,
                      .type = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {n}},
                      .content = content,
                      .n_content = n};
    return x;
}

/* -- Broadcasting --------------------------------------------------------------------------- */

static void test_ops_infer__symbols_broadcast_with_ones_and_themselves(void **state)
{
    fixture *f = *state;
    const weft_operand in[] = {f32(3, f->b, 1, f->s, 0), f32(2, 5, f->s, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_ADD, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_int_equal(f->out[0].rank, 3);
    assert_true(f->out[0].dim[0] == f->b);
    assert_true(f->out[0].dim[1] == 5);
    assert_true(f->out[0].dim[2] == f->s);
}

static void test_ops_infer__a_constant_wins_over_a_symbol(void **state)
{
    fixture *f = *state;
    const weft_operand in[] = {f32(1, f->b, 0, 0, 0), f32(1, 7, 0, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_MUL, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_true(f->out[0].dim[0] == 7);
}

static void test_ops_infer__a_symbol_over_one_wins(void **state)
{
    fixture *f = *state;
    const weft_operand in[] = {f32(1, f->b, 0, 0, 0), f32(1, f->s, 0, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_MUL, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_true(f->out[0].dim[0] == f->s);
}

static void test_ops_infer__constants_that_differ_are_refused(void **state)
{
    fixture *f = *state;
    const weft_operand in[] = {f32(1, 3, 0, 0, 0), f32(1, 4, 0, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_ADD, in, 2, NULL, 0), WEFT_ERR_INPUT);
}

/* -- GEMMs and windows ---------------------------------------------------------------------- */

static void test_ops_infer__matmul_follows_numpy(void **state)
{
    fixture *f = *state;
    const weft_operand a[] = {f32(4, f->b, 12, f->s, 64), f32(4, f->b, 12, f->s, 64)};
    const weft_attr trans = {.key = WEFT_ATTR_TRANS_B, .kind = WEFT_KIND_INT, .u = {.i = 1}};
    assert_int_equal(infer(f, WEFT_OP_MATMUL, a, 2, &trans, 1), WEFT_ERR_OK);
    assert_int_equal(f->out[0].rank, 4);
    assert_true(f->out[0].dim[2] == f->s && f->out[0].dim[3] == f->s);
    assert_int_equal(infer(f, WEFT_OP_MATMUL, a, 2, NULL, 0), WEFT_ERR_OK);
    const weft_operand v[] = {f32(1, 8, 0, 0, 0), f32(2, 8, 5, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_MATMUL, v, 2, NULL, 0), WEFT_ERR_OK);
    assert_int_equal(f->out[0].rank, 1);
    assert_true(f->out[0].dim[0] == 5);
    const weft_operand wrong[] = {f32(2, 4, 7, 0, 0), f32(2, 8, 5, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_MATMUL, wrong, 2, NULL, 0), WEFT_ERR_INPUT);
}

static void test_ops_infer__epilogue_operands_must_fit_the_result(void **state)
{
    fixture *f = *state;
    static const char *const steps[] = {"add acc i3", "relu acc"};
    const weft_attr a = {
        .key = WEFT_ATTR_EPILOGUE, .kind = WEFT_KIND_STRS, .n = 2, .u = {.strs = steps}};
    weft_operand in[] = {f32(2, f->b, 8, 0, 0), f32(2, 8, 5, 0, 0), {0}, f32(2, f->b, 5, 0, 0)};
    assert_int_equal(infer(f, WEFT_OP_MATMUL, in, 4, &a, 1), WEFT_ERR_OK);
    in[3] = f32(2, f->b, 6, 0, 0);
    assert_int_equal(infer(f, WEFT_OP_MATMUL, in, 4, &a, 1), WEFT_ERR_INPUT);
    in[3] = f32(3, 2, f->b, 5, 0);
    assert_int_equal(infer(f, WEFT_OP_MATMUL, in, 4, &a, 1), WEFT_ERR_INPUT);
    assert_int_equal(infer(f, WEFT_OP_MATMUL, in, 3, &a, 1), WEFT_ERR_INPUT);
}

static int64_t value_at(fixture *f, weft_dim d, int64_t b, int64_t s)
{
    const int64_t value[] = {b, s};
    int64_t x = -1;
    assert_true(weft_dim_eval(f->pool, d, value, 2, &x));
    return x;
}

static void test_ops_infer__convolution_sizes_are_floor_divisions(void **state)
{
    fixture *f = *state;
    const weft_operand in[] = {f32(4, f->b, 3, f->s, 224), f32(4, 16, 3, 3, 3)};
    const int64_t two[] = {2, 2}, ones[] = {1, 1, 1, 1};
    const weft_attr attr[] = {
        {.key = WEFT_ATTR_PADS, .kind = WEFT_KIND_INTS, .n = 4, .u = {.ints = ones}},
        {.key = WEFT_ATTR_STRIDES, .kind = WEFT_KIND_INTS, .n = 2, .u = {.ints = two}}};
    assert_int_equal(infer(f, WEFT_OP_CONV, in, 2, attr, 2), WEFT_ERR_OK);
    assert_true(f->out[0].dim[0] == f->b && f->out[0].dim[1] == 16);
    assert_int_equal(value_at(f, f->out[0].dim[2], 1, 224), 112);
    assert_int_equal(value_at(f, f->out[0].dim[2], 1, 7), 4);
    assert_true(f->out[0].dim[3] == 112);
    const weft_operand wrong[] = {f32(4, 1, 4, 9, 9), f32(4, 16, 3, 3, 3)};
    assert_int_equal(infer(f, WEFT_OP_CONV, wrong, 2, NULL, 0), WEFT_ERR_INPUT);
    const weft_operand small[] = {f32(4, 1, 3, 2, 2), f32(4, 16, 3, 3, 3)};
    assert_int_equal(infer(f, WEFT_OP_CONV, small, 2, attr + 1, 1), WEFT_ERR_INPUT);
}

static void test_ops_infer__pooling_with_ceil_drops_windows_in_the_padding(void **state)
{
    fixture *f = *state;
    const int64_t two[] = {2}, pads[] = {1, 1};
    const weft_attr attr[] = {
        {.key = WEFT_ATTR_CEIL_MODE, .kind = WEFT_KIND_INT, .u = {.i = 1}},
        {.key = WEFT_ATTR_KERNEL_SHAPE, .kind = WEFT_KIND_INTS, .n = 1, .u = {.ints = two}},
        {.key = WEFT_ATTR_PADS, .kind = WEFT_KIND_INTS, .n = 2, .u = {.ints = pads}},
        {.key = WEFT_ATTR_STRIDES, .kind = WEFT_KIND_INTS, .n = 1, .u = {.ints = two}}};
    const weft_operand x = f32(3, 1, 1, f->s, 0);
    assert_int_equal(infer(f, WEFT_OP_MAX_POOL, &x, 1, attr, 4), WEFT_ERR_OK);
    /* 5 elements and one before: windows at -1, 1, 3; one at 5 would see padding only. */
    assert_int_equal(value_at(f, f->out[0].dim[2], 1, 5), 3);
    assert_int_equal(value_at(f, f->out[0].dim[2], 1, 6), 4);
}

/* -- Contents ------------------------------------------------------------------------------- */

static void test_ops_infer__shape_arithmetic_folds_symbols(void **state)
{
    fixture *f = *state;
    const weft_dim dims[] = {f->b, f->s, 768}, twelve[] = {12};
    weft_operand in[] = {shape_vector(dims, 3), shape_vector(twelve, 1)};
    assert_int_equal(infer(f, WEFT_OP_MUL, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_non_null(f->content[0]);
    assert_true(f->content[0][0] == weft_dim_mul(f->pool, f->b, 12));
    assert_true(f->content[0][2] == 768 * 12);
    assert_int_equal(infer(f, WEFT_OP_DIV, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_non_null(f->content[0]);
    assert_true(f->content[0][2] == 64);
    const weft_attr keep = {.key = WEFT_ATTR_KEEPDIMS, .kind = WEFT_KIND_INT, .u = {.i = 0}};
    assert_int_equal(infer(f, WEFT_OP_REDUCE_PROD, in, 1, &keep, 1), WEFT_ERR_OK);
    assert_non_null(f->content[0]);
    assert_int_equal(f->out[0].rank, 0);
    assert_int_equal(value_at(f, f->content[0][0], 2, 5), 2 * 5 * 768);
}

static void test_ops_infer__comparisons_decide_only_what_holds_always(void **state)
{
    fixture *f = *state;
    const weft_dim minus[] = {-1, -1}, dims[] = {f->b, f->s}, one[] = {1};
    const weft_operand in[] = {shape_vector(dims, 2), shape_vector(minus, 2)};
    assert_int_equal(infer(f, WEFT_OP_EQUAL, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_non_null(f->content[0]);
    assert_true(f->content[0][0] == 0 && f->content[0][1] == 0);
    const weft_operand open[] = {shape_vector(dims, 2), shape_vector(one, 1)};
    assert_int_equal(infer(f, WEFT_OP_EQUAL, open, 2, NULL, 0), WEFT_ERR_OK);
    assert_null(f->content[0]);
}

static void test_ops_infer__where_picks_by_a_known_condition(void **state)
{
    fixture *f = *state;
    const weft_dim cond[] = {0, 1}, a[] = {f->b, f->s}, b[] = {7, 8};
    weft_operand in[] = {shape_vector(cond, 2), shape_vector(a, 2), shape_vector(b, 2)};
    in[0].type.dtype = WEFT_DTYPE_BOOL;
    assert_int_equal(infer(f, WEFT_OP_WHERE, in, 3, NULL, 0), WEFT_ERR_OK);
    assert_non_null(f->content[0]);
    assert_true(f->content[0][0] == 7 && f->content[0][1] == f->s);
}

static void test_ops_infer__narrow_integers_carry_no_content(void **state)
{
    fixture *f = *state;
    const weft_dim a[] = {200}, b[] = {100};
    weft_operand in[] = {shape_vector(a, 1), shape_vector(b, 1)};
    in[0].type.dtype = in[1].type.dtype = WEFT_DTYPE_U8;
    assert_int_equal(infer(f, WEFT_OP_ADD, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_null(f->content[0]);
}

static void test_ops_infer__axes_come_from_attribute_operand_or_not_at_all(void **state)
{
    fixture *f = *state;
    const weft_dim axis[] = {-1};
    weft_operand in[] = {f32(3, f->b, f->s, 8, 0), shape_vector(axis, 1)};
    assert_int_equal(infer(f, WEFT_OP_REDUCE_MEAN, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_true(f->out[0].rank == 3 && f->out[0].dim[1] == f->s && f->out[0].dim[2] == 1);
    const weft_attr axes = {
        .key = WEFT_ATTR_AXES, .kind = WEFT_KIND_DIMS, .n = 1, .u = {.dims = axis}};
    assert_int_equal(infer(f, WEFT_OP_REDUCE_MEAN, in, 1, &axes, 1), WEFT_ERR_OK);
    assert_true(f->out[0].dim[2] == 1);
    assert_int_equal(infer(f, WEFT_OP_REDUCE_MEAN, in, 1, NULL, 0), WEFT_ERR_OK);
    assert_true(f->out[0].dim[0] == 1 && f->out[0].dim[1] == 1);
    in[1].content = NULL;
    assert_int_equal(infer(f, WEFT_OP_REDUCE_MEAN, in, 2, NULL, 0), WEFT_ERR_OK);
    assert_true(weft_dim_is_data(f->pool, f->out[0].dim[0]));
    const weft_dim far[] = {3};
    in[1] = shape_vector(far, 1);
    assert_int_equal(infer(f, WEFT_OP_REDUCE_MEAN, in, 2, NULL, 0), WEFT_ERR_INPUT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ops_infer__symbols_broadcast_with_ones_and_themselves),
        TEST(test_ops_infer__a_constant_wins_over_a_symbol),
        TEST(test_ops_infer__a_symbol_over_one_wins),
        TEST(test_ops_infer__constants_that_differ_are_refused),
        TEST(test_ops_infer__matmul_follows_numpy),
        TEST(test_ops_infer__epilogue_operands_must_fit_the_result),
        TEST(test_ops_infer__convolution_sizes_are_floor_divisions),
        TEST(test_ops_infer__pooling_with_ceil_drops_windows_in_the_padding),
        TEST(test_ops_infer__shape_arithmetic_folds_symbols),
        TEST(test_ops_infer__comparisons_decide_only_what_holds_always),
        TEST(test_ops_infer__where_picks_by_a_known_condition),
        TEST(test_ops_infer__narrow_integers_carry_no_content),
        TEST(test_ops_infer__axes_come_from_attribute_operand_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
