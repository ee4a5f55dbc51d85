/* low_rank_matmul and patched_matmul: their types on symbolic dims, what they refuse, their work,
 * their results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/low_rank_case.h"
#include "tests/support/ops_case.h"

/* -- Types ---------------------------------------------------------------------------------- */

/* Three segments of ?b, ?c and 2 rows; the second has w as it is. */
static void make_problem(void)
{
    again();
    operand(0, WEFT_DTYPE_F32, "?b + ?c + 2, 8");
    operand(1, WEFT_DTYPE_F32, "8, 5");
    operand(3, WEFT_DTYPE_F32, "8, 2");
    operand(4, WEFT_DTYPE_F32, "2, 5");
    operand(7, WEFT_DTYPE_F32, "8, 3");
    operand(8, WEFT_DTYPE_F32, "3, 5");
    attr_dims(WEFT_ATTR_STARTS, "0, ?b, ?b + ?c");
}

/* With another list of first rows, operand `at` of another shape (NULL: omitted), and a step. */
static void refuse_with(const char *starts, uint32_t at, const char *dims, const char *step,
                        const char *why)
{
    make_problem();
    cs->n_attr = 0;
    attr_dims(WEFT_ATTR_STARTS, starts);
    if (dims)
        operand(at, WEFT_DTYPE_F32, dims);
    else
        cs->in[at].present = false;
    if (step)
        attr_strs(WEFT_ATTR_EPILOGUE, &step, 1);
    refuse(WEFT_OP_LOW_RANK_MATMUL, WEFT_ERR_INPUT, why);
}

static void test_low_rank__rows_of_all_segments_stay_symbolic(void **state)
{
    (void)state;
    make_problem();
    infer(WEFT_OP_LOW_RANK_MATMUL, 1);
    expect_dims(0, "?b + ?c + 2, 5");
    cs->n_in = 5; /* the last two have w as it is */
    infer(WEFT_OP_LOW_RANK_MATMUL, 1);
    operand(9, WEFT_DTYPE_F32, "?b + ?c + 2, 5");
    attr_strs(WEFT_ATTR_EPILOGUE, &(const char *){"add acc i9"}, 1);
    infer(WEFT_OP_LOW_RANK_MATMUL, 1);
    expect_dims(0, "?b + ?c + 2, 5");
}

static void test_low_rank__refuses_segments_that_are_none(void **state)
{
    (void)state;
    char many[2 * WEFT_LOW_RANK_SEGMENTS + 2] = "0";
    for (size_t i = 0; i < WEFT_LOW_RANK_SEGMENTS; i++)
        strcat(many, ",0");
    refuse_with("1, ?b, ?b", 2, NULL, NULL, "the first segment starts at row 1, expected 0");
    refuse_with("0, ?b, ?b - 1", 2, NULL, NULL, "segment 1 is row ?b up to row ?b - 1");
    refuse_with("0, ?b, ?b + ?c + 3", 2, NULL, NULL,
                "segment 2 is row ?b + ?c + 3 up to row ?b + ?c + 2");
    refuse_with("", 2, NULL, NULL, "0 segments, expected 1 to 24");
    refuse_with(many, 2, NULL, NULL, "25 segments, expected 1 to 24");
}

static void test_low_rank__refuses_operands_that_do_not_fit(void **state)
{
    (void)state;
    const char *starts = "0, ?b, ?b + ?c", *add = "add acc i9";
    refuse_with(starts, 8, NULL, NULL, "operands 7 and 8: one is missing");
    refuse_with(starts, 8, "4, 5", NULL, "ranks of u and v: 3 and 4 differ");
    refuse_with(starts, 7, "9, 3", NULL, "rows of u and inner dimension: 9 and 8 differ");
    refuse_with(starts, 8, "3, 6", NULL, "columns of v and of the result: 6 and 5 differ");
    refuse_with(starts, 0, "2, ?b, 8", NULL, "operand 0 has rank 3, expected 2");
    refuse_with(starts, 9, "1, 5", NULL, "10 operands without an epilogue");
    refuse_with(starts, 9, "1, 7", add, "dimensions 5 and 7 do not broadcast");
}

static void test_low_rank__patches_are_three_vectors(void **state)
{
    (void)state;
    static const struct {
        weft_dtype tap;
        const char *value, *taps, *first, *why;
    } row[] = {{WEFT_DTYPE_I32, "7", "7", "6", NULL},
               {WEFT_DTYPE_I32, "7", "6", "6", "elements and their taps: 7 and 6 differ"},
               {WEFT_DTYPE_I32, "7", "7", "5", "features and one: 5 and 6 differ"},
               {WEFT_DTYPE_I32, "7, 1", "7", "6", "operand 3 has rank 2, expected 1"},
               {WEFT_DTYPE_I64, "7", "7", "6", "operand 4 cannot be i64"},
               {WEFT_DTYPE_I32, "7", "7", NULL, "operands 3 to 5: 1 of them are missing"}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        again();
        operand(0, WEFT_DTYPE_F32, "?b, 8");
        operand(1, WEFT_DTYPE_F32, "8, 5");
        operand(3, WEFT_DTYPE_F32, row[i].value);
        operand(4, row[i].tap, row[i].taps);
        if (row[i].first)
            operand(5, WEFT_DTYPE_I32, row[i].first);
        attr_dims(WEFT_ATTR_STARTS, "0");
        if (row[i].why)
            refuse(WEFT_OP_PATCHED_MATMUL, WEFT_ERR_INPUT, row[i].why);
        else
            infer(WEFT_OP_PATCHED_MATMUL, 1);
    }
}

static void test_low_rank__refuses_other_types_of_element(void **state)
{
    (void)state;
    make_problem();
    operand(3, WEFT_DTYPE_F16, "8, 2");
    refuse(WEFT_OP_LOW_RANK_MATMUL, WEFT_ERR_INPUT, "operand 0 is f32, operand 3 is f16");
    make_problem();
    for (uint32_t i = 0; i < cs->n_in; i++)
        cs->in[i].type.dtype = WEFT_DTYPE_F64;
    refuse(WEFT_OP_LOW_RANK_MATMUL, WEFT_ERR_INPUT, "operand 0 cannot be f64");
}

/* -- Results -------------------------------------------------------------------------------- */

static weft_err eval_case(low_rank_case *c, weft_tensor *out, weft_diag *diag)
{
    *out = (weft_tensor){.dtype = c->dtype, .rank = 2, .dim = {c->rows, c->n}};
    out->data = weft_arena_alloc(c->arena, weft_tensor_bytes(out) + 1);
    weft_eval_ctx cx = {.op = weft_op_get(c->op),
                        .attrs = c->attrs,
                        .in = c->operand,
                        .n_in = c->n_operand,
                        .out = out,
                        .n_out = 1,
                        .scratch = c->arena,
                        .diag = diag};
    return weft_op_eval(&cx);
}

static void test_low_rank__reference_agrees_with_the_definition(void **state)
{
    (void)state;
    static const struct {
        weft_dtype dtype;
        double tolerance;
    } row[] = {{WEFT_DTYPE_F32, 2e-6}, {WEFT_DTYPE_F16, 1e-3}, {WEFT_DTYPE_BF16, 8e-3}};
    for (uint32_t seed = 0; seed < 144; seed++)
        for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
            weft_arena *arena = weft_arena_create(0);
            low_rank_case c;
            weft_tensor got;
            low_rank_make(&c, seed % 2 ? WEFT_OP_PATCHED_MATMUL : WEFT_OP_LOW_RANK_MATMUL, arena,
                          seed, row[i].dtype, 1 + seed / 2 % WEFT_LOW_RANK_SEGMENTS, seed % 5);
            assert_int_equal(eval_case(&c, &got, NULL), WEFT_ERR_OK);
            double error = low_rank_error(&c, &got);
            if (!(error <= row[i].tolerance))
                fail_msg("seed %u: error %g", seed, error);
            weft_arena_destroy(arena);
        }
}

static void test_low_rank__reference_refuses_segments_behind_the_rows(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    low_rank_case c;
    weft_tensor got;
    low_rank_make(&c, WEFT_OP_LOW_RANK_MATMUL, arena, 1, WEFT_DTYPE_F32, 4, 3);
    c.start[3] = c.rows + 1;
    assert_int_equal(eval_case(&c, &got, NULL), WEFT_ERR_INPUT);
    weft_arena_destroy(arena);
}

static void test_low_rank__reference_refuses_what_is_no_sparse_matrix(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    low_rank_case c;
    weft_tensor got;
    uint32_t seed = 0, at = weft_patch_value(0);
    do {
        low_rank_make(&c, WEFT_OP_PATCHED_MATMUL, arena, seed++, WEFT_DTYPE_F32, 1, 3);
    } while (!c.operand[at] || weft_tensor_numel(c.operand[at]) < 2 || c.n < 2);
    int32_t *tap = c.tensor[at + 1].data, *first = c.tensor[at + 2].data;
    int32_t *broken[] = {&tap[0], &tap[1], &first[0], &first[1], &first[c.n]};
    int32_t by[] = {-1, (int32_t)c.k, 1, INT32_MAX, first[c.n] + 1};
    assert_int_equal(eval_case(&c, &got, NULL), WEFT_ERR_OK);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        int32_t good = *broken[i];
        *broken[i] = by[i];
        assert_int_equal(eval_case(&c, &got, NULL), WEFT_ERR_INPUT);
        *broken[i] = good;
    }
    assert_int_equal(eval_case(&c, &got, NULL), WEFT_ERR_OK);
    weft_arena_destroy(arena);
}

/* -- Work ----------------------------------------------------------------------------------- */

static void test_low_rank__work_counts_the_low_rank_gemms_of_each_segment(void **state)
{
    (void)state;
    const weft_dim start[] = {0, 3, 3};
    const weft_attr attr = {
        .key = WEFT_ATTR_STARTS, .kind = WEFT_KIND_DIMS, .n = 3, .u = {.dims = start}};
    weft_work_operand in[7] = {{0}}, out = {true, false, WEFT_DTYPE_F32, 2, {10, 16}};
    in[0] = (weft_work_operand){true, false, WEFT_DTYPE_F32, 2, {10, 8}};
    in[1] = (weft_work_operand){true, true, WEFT_DTYPE_F32, 2, {8, 16}};
    in[3] = (weft_work_operand){true, true, WEFT_DTYPE_F32, 2, {8, 2}};
    in[4] = (weft_work_operand){true, true, WEFT_DTYPE_F32, 2, {2, 16}};
    in[5] = (weft_work_operand){true, true, WEFT_DTYPE_F32, 2, {8, 5}};
    in[6] = (weft_work_operand){true, true, WEFT_DTYPE_F32, 2, {5, 16}};
    weft_work_ctx cx = {weft_op_get(WEFT_OP_LOW_RANK_MATMUL), {&attr, 1}, in, &out, 7, 1};
    weft_work w = weft_op_work(&cx);
    assert_true(w.flops == 2.0 * 10 * 8 * 16 + 2.0 * 3 * 2 * (8 + 16)); /* segment 1 is empty */
    assert_true(w.weight_bytes == 4.0 * (8 * 16 + 7 * (8 + 16)));
    assert_true(w.bytes_read == 4.0 * 10 * 8 && w.bytes_written == 4.0 * 10 * 16);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, case_set_up, case_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_low_rank__rows_of_all_segments_stay_symbolic),
        TEST(test_low_rank__refuses_segments_that_are_none),
        TEST(test_low_rank__refuses_operands_that_do_not_fit),
        TEST(test_low_rank__patches_are_three_vectors),
        TEST(test_low_rank__refuses_other_types_of_element),
        TEST(test_low_rank__reference_agrees_with_the_definition),
        TEST(test_low_rank__reference_refuses_segments_behind_the_rows),
        TEST(test_low_rank__reference_refuses_what_is_no_sparse_matrix),
        TEST(test_low_rank__work_counts_the_low_rank_gemms_of_each_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
