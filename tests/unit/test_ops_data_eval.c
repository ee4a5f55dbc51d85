/* Evaluation of the operators that move, pick, resample and recur. Numbers that are not obvious
 * were taken from onnxruntime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/ops_case.h"

#define VALUES(out, dims, ...) expect_values(out, dims, (const double[]){__VA_ARGS__})

/* 0, 1, 2, ... as operand 0. */
static void count_up(weft_dtype dtype, const char *dims)
{
    weft_dim dim[WEFT_RANK_MAX];
    uint32_t rank = dims_of(dims, dim);
    int64_t n = weft_numel(dim, (int32_t)rank);
    weft_tensor t = {.dtype = dtype, .rank = 1, .dim = {n}};
    t.data = weft_arena_alloc(cs->arena, weft_tensor_bytes(&t));
    for (int64_t i = 0; i < n; i++)
        weft_tensor_set_i64(&t, i, i);
    operand_data(0, dtype, dims, t.data);
}

static void ints(uint32_t in, const char *dims, const int64_t *list)
{
    operand_data(in, WEFT_DTYPE_I64, dims, list);
}

/* -- Movement ------------------------------------------------------------------------------- */

/* Every permutation of a tensor that is large enough for the blocked loops, for all element sizes.
 */
static void test_transpose__moves_every_element(void **state)
{
    (void)state;
    static const char *const perms[] = {"0, 1, 2", "0, 2, 1", "1, 0, 2",
                                        "1, 2, 0", "2, 0, 1", "2, 1, 0"};
    static const weft_dtype dtypes[] = {WEFT_DTYPE_U16, WEFT_DTYPE_F32, WEFT_DTYPE_I64,
                                        WEFT_DTYPE_U8};
    static const int64_t dim[3] = {3, 37, 70}, stride[3] = {37 * 70, 70, 1};
    for (size_t p = 0; p < 6; p++)
        for (size_t d = 0; d < 4; d++) {
            again();
            count_up(dtypes[d], "3, 37, 70");
            attr_ints(WEFT_ATTR_PERM, perms[p]);
            eval(WEFT_OP_TRANSPOSE, 1);
            weft_dim perm[3];
            dims_of(perms[p], perm);
            int64_t i = 0;
            for (int64_t a = 0; a < dim[perm[0]]; a++)
                for (int64_t b = 0; b < dim[perm[1]]; b++)
                    for (int64_t c = 0; c < dim[perm[2]]; c++) {
                        int64_t from =
                            a * stride[perm[0]] + b * stride[perm[1]] + c * stride[perm[2]];
                        assert_int_equal(weft_tensor_get_i64(&cs->result[0], i++),
                                         weft_tensor_get_i64(&cs->tensor[0], from));
                    }
        }
}

static void test_expand_tile__repeat(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "2, 1");
    ints(1, "3", (int64_t[]){2, 1, 3});
    eval(WEFT_OP_EXPAND, 1);
    VALUES(0, "2, 2, 3", 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1);
    again();
    count_up(WEFT_DTYPE_I8, "1, 2");
    ints(1, "2", (int64_t[]){2, 2});
    eval(WEFT_OP_TILE, 1);
    VALUES(0, "2, 4", 0, 1, 0, 1, 0, 1, 0, 1);
    ints(1, "2", (int64_t[]){0, 2});
    eval(WEFT_OP_TILE, 1);
    expect_dims(0, "0, 4");
}

static void test_concat_split__along_an_inner_axis(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "2, 2");
    operand_data(1, WEFT_DTYPE_F32, "2, 1", (float[]){8, 9});
    attr_int(WEFT_ATTR_AXIS, -1);
    eval(WEFT_OP_CONCAT, 1);
    VALUES(0, "2, 3", 0, 1, 8, 2, 3, 9);
    again();
    count_up(WEFT_DTYPE_F32, "2, 3");
    ints(1, "2", (int64_t[]){1, 2});
    attr_int(WEFT_ATTR_AXIS, 1);
    eval(WEFT_OP_SPLIT, 2);
    VALUES(0, "2, 1", 0, 3);
    VALUES(1, "2, 2", 1, 2, 4, 5);
}

static void test_slice__forwards_and_backwards(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "3, 4");
    ints(1, "2", (int64_t[]){-1, INT64_MAX});
    ints(2, "2", (int64_t[]){INT64_MIN, 0});
    ints(3, "2", (int64_t[]){0, 1});
    ints(4, "2", (int64_t[]){-2, -1});
    eval(WEFT_OP_SLICE, 1);
    VALUES(0, "2, 3", 11, 10, 9, 3, 2, 1);
    ints(1, "2", (int64_t[]){5, -100});
    ints(2, "2", (int64_t[]){9, 100});
    ints(4, "2", (int64_t[]){1, 3});
    eval(WEFT_OP_SLICE, 1);
    expect_dims(0, "0, 2");
}

static void test_pad__modes(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "3", (float[]){1, 2, 3});
    ints(1, "2", (int64_t[]){2, 3});
    operand_data(2, WEFT_DTYPE_F32, "", (float[]){9});
    eval(WEFT_OP_PAD, 1);
    VALUES(0, "8", 9, 9, 1, 2, 3, 9, 9, 9);
    attr_str(WEFT_ATTR_MODE, "reflect");
    eval(WEFT_OP_PAD, 1);
    VALUES(0, "8", 3, 2, 1, 2, 3, 2, 1, 2);
    cs->attr[0].u.s = "edge";
    eval(WEFT_OP_PAD, 1);
    VALUES(0, "8", 1, 1, 1, 2, 3, 3, 3, 3);
    cs->attr[0].u.s = "wrap";
    eval(WEFT_OP_PAD, 1);
    VALUES(0, "8", 2, 3, 1, 2, 3, 1, 2, 3);
    cs->attr[0].u.s = "constant";
    ints(1, "2", (int64_t[]){-1, 1});
    eval(WEFT_OP_PAD, 1);
    VALUES(0, "3", 2, 3, 9);
}

static void test_depth_to_space__both_orders(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "1, 8, 1, 1");
    attr_int(WEFT_ATTR_BLOCKSIZE, 2);
    eval(WEFT_OP_DEPTH_TO_SPACE, 1);
    VALUES(0, "1, 2, 2, 2", 0, 2, 4, 6, 1, 3, 5, 7);
    attr_str(WEFT_ATTR_MODE, "CRD");
    eval(WEFT_OP_DEPTH_TO_SPACE, 1);
    VALUES(0, "1, 2, 2, 2", 0, 1, 2, 3, 4, 5, 6, 7);
}

static void test_trilu__keeps_one_side(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "3, 3");
    ints(1, "", (int64_t[]){1});
    eval(WEFT_OP_TRILU, 1);
    VALUES(0, "3, 3", 0, 1, 2, 0, 0, 5, 0, 0, 0);
    attr_int(WEFT_ATTR_UPPER, 0);
    ints(1, "", (int64_t[]){INT64_MIN});
    eval(WEFT_OP_TRILU, 1);
    VALUES(0, "3, 3", 0, 0, 0, 0, 0, 0, 0, 0, 0);
}

/* -- Indices -------------------------------------------------------------------------------- */

static void test_gather__checks_indices(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "2, 3");
    ints(1, "2", (int64_t[]){-1, 0});
    attr_int(WEFT_ATTR_AXIS, 1);
    eval(WEFT_OP_GATHER, 1);
    VALUES(0, "2, 2", 2, 0, 5, 3);
    ints(1, "2", (int64_t[]){0, 3});
    assert_int_equal(try_eval(WEFT_OP_GATHER, 1), WEFT_ERR_INPUT);
    ints(1, "2", (int64_t[]){0, INT64_MIN});
    assert_int_equal(try_eval(WEFT_OP_GATHER, 1), WEFT_ERR_INPUT);
}

static void test_gather_elements__and_nd(void **state)
{
    (void)state;
    count_up(WEFT_DTYPE_F32, "2, 3");
    ints(1, "1, 2", (int64_t[]){1, -2});
    eval(WEFT_OP_GATHER_ELEMENTS, 1);
    VALUES(0, "1, 2", 3, 1);
    ints(1, "2, 2", (int64_t[]){1, 2, 0, -1});
    eval(WEFT_OP_GATHER_ND, 1);
    VALUES(0, "2", 5, 2);
    ints(1, "2, 1", (int64_t[]){2, 0});
    attr_int(WEFT_ATTR_BATCH_DIMS, 1);
    eval(WEFT_OP_GATHER_ND, 1);
    VALUES(0, "2", 2, 3);
}

static void test_scatter__reduces(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_I32, "4", (int32_t[]){1, 2, 3, 4});
    ints(1, "3, 1", (int64_t[]){0, 0, -1});
    operand_data(2, WEFT_DTYPE_I32, "3", (int32_t[]){10, 20, -5});
    eval(WEFT_OP_SCATTER_ND, 1);
    VALUES(0, "4", 20, 2, 3, -5);
    attr_str(WEFT_ATTR_REDUCTION, "add");
    eval(WEFT_OP_SCATTER_ND, 1);
    VALUES(0, "4", 31, 2, 3, -1);
    cs->attr[0].u.s = "max";
    eval(WEFT_OP_SCATTER_ND, 1);
    VALUES(0, "4", 20, 2, 3, 4);
    ints(1, "3, 1", (int64_t[]){0, 0, 4});
    assert_int_equal(try_eval(WEFT_OP_SCATTER_ND, 1), WEFT_ERR_INPUT);
    again();
    operand_data(0, WEFT_DTYPE_F32, "2, 2", (float[]){1, 2, 3, 4});
    ints(1, "1, 2", (int64_t[]){1, 0});
    operand_data(2, WEFT_DTYPE_F32, "1, 2", (float[]){8, 9});
    eval(WEFT_OP_SCATTER_ELEMENTS, 1);
    VALUES(0, "2, 2", 1, 9, 8, 4);
}

/* -- Selection ------------------------------------------------------------------------------ */

static void test_top_k__is_stable(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "2, 4", (float[]){1, 3, 3, 2, -1, -4, 0, -1});
    ints(1, "1", (int64_t[]){3});
    eval(WEFT_OP_TOP_K, 2);
    VALUES(0, "2, 3", 3, 3, 2, 0, -1, -1);
    VALUES(1, "2, 3", 1, 2, 3, 2, 0, 3);
    attr_int(WEFT_ATTR_LARGEST, 0);
    eval(WEFT_OP_TOP_K, 2);
    VALUES(1, "2, 3", 0, 3, 1, 1, 0, 3);
    again();
    operand_data(0, WEFT_DTYPE_U64, "2", (uint64_t[]){UINT64_MAX, 1});
    ints(1, "1", (int64_t[]){1});
    eval(WEFT_OP_TOP_K, 2);
    VALUES(1, "1", 0);
}

static void test_unique__groups(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "6", (float[]){2, 1, 1, 3, 4, 3});
    eval(WEFT_OP_UNIQUE, 4);
    VALUES(0, "4", 1, 2, 3, 4);
    VALUES(1, "4", 1, 0, 3, 4);
    VALUES(2, "6", 1, 0, 0, 2, 3, 2);
    VALUES(3, "4", 2, 1, 2, 1);
    attr_int(WEFT_ATTR_SORTED, 0);
    eval(WEFT_OP_UNIQUE, 4);
    VALUES(0, "4", 2, 1, 3, 4);
    VALUES(2, "6", 0, 1, 1, 2, 3, 2);
}

static void test_non_zero__and_compress(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "2, 2", (float[]){1, 0, -0.0f, 4});
    eval(WEFT_OP_NON_ZERO, 1);
    VALUES(0, "2, 2", 0, 1, 0, 1);
    operand_data(1, WEFT_DTYPE_BOOL, "2", (uint8_t[]){0, 1});
    attr_int(WEFT_ATTR_AXIS, 1);
    eval(WEFT_OP_COMPRESS, 1);
    VALUES(0, "2, 1", 0, 4);
}

static void test_non_max_suppression__drops_overlaps(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "1, 3, 4",
                 (float[]){0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, 10, 1, 11});
    operand_data(1, WEFT_DTYPE_F32, "1, 1, 3", (float[]){0.9f, 0.75f, 0.6f});
    ints(2, "", (int64_t[]){3});
    operand_data(3, WEFT_DTYPE_F32, "", (float[]){0.5f});
    operand_data(4, WEFT_DTYPE_F32, "", (float[]){0});
    eval(WEFT_OP_NON_MAX_SUPPRESSION, 1);
    VALUES(0, "2, 3", 0, 0, 0, 0, 0, 2);
}

/* -- Resampling ----------------------------------------------------------------------------- */

static void test_resize__modes(void **state)
{
    (void)state;
    static const double scales[] = {1, 1, 2, 1.5};
    count_up(WEFT_DTYPE_F32, "1, 1, 2, 4");
    attr_floats(WEFT_ATTR_SCALES, scales, 4);
    attr_str(WEFT_ATTR_MODE, "nearest");
    eval(WEFT_OP_RESIZE, 1);
    VALUES(0, "1, 1, 4, 6", 0, 0, 1, 2, 2, 3, 0, 0, 1, 2, 2, 3, 4, 4, 5, 6, 6, 7, 4, 4, 5, 6, 6, 7);
    weft_attr *mode = &cs->attr[cs->attr[0].key == WEFT_ATTR_MODE ? 0 : 1];
    mode->u.s = "linear";
    eval(WEFT_OP_RESIZE, 1);
    VALUES(0, "1, 1, 4, 6", 0, 0.5, 1.166667, 1.833333, 2.5, 3, 1, 1.5, 2.166667, 2.833333, 3.5, 4,
           3, 3.5, 4.166667, 4.833333, 5.5, 6, 4, 4.5, 5.166667, 5.833333, 6.5, 7);
    mode->u.s = "cubic";
    eval(WEFT_OP_RESIZE, 1);
    VALUES(0, "1, 1, 4, 6", -0.508681, -0.015625, 0.791089, 1.365163, 2.171875, 2.664931, 0.819445,
           1.3125, 2.119215, 2.693288, 3.5, 3.993056, 3.006946, 3.5, 4.306715, 4.880788, 5.6875,
           6.180556, 4.335072, 4.828125, 5.634841, 6.208913, 7.015625, 7.508681);
    again();
    count_up(WEFT_DTYPE_F32, "1, 1, 2, 4");
    ints(3, "4", (int64_t[]){1, 1, 3, 3});
    attr_str(WEFT_ATTR_MODE, "linear");
    attr_str(WEFT_ATTR_COORDINATE_TRANSFORMATION_MODE, "align_corners");
    eval(WEFT_OP_RESIZE, 1);
    VALUES(0, "1, 1, 3, 3", 0, 1.5, 3, 2, 3.5, 5, 4, 5.5, 7);
}

static void test_grid_sample__modes(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *padding;
        double want[3];
    } rows[] = {
        {"linear", "zeros", {0, 5.1, 0.42}},
        {"linear", "border", {0, 5.1, 7}},
        {"nearest", "zeros", {0, 6, 0}},
        {"nearest", "reflection", {0, 6, 7}},
        {"cubic", "zeros", {-0.11025, 5.767681, 0.390842}},
        {"cubic", "border", {-0.11025, 5.160002, 7.438748}},
        {"cubic", "reflection", {-0.1575, 5.160002, 7.787499}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        again();
        count_up(WEFT_DTYPE_F32, "1, 1, 2, 4");
        operand_data(1, WEFT_DTYPE_F32, "1, 1, 3, 2",
                     (float[]){-0.9f, -0.5f, 0.2f, 0.3f, 1.2f, 0.9f});
        attr_str(WEFT_ATTR_MODE, rows[i].mode);
        attr_str(WEFT_ATTR_PADDING_MODE, rows[i].padding);
        eval(WEFT_OP_GRID_SAMPLE, 1);
        expect_values(0, "1, 1, 1, 3", rows[i].want);
    }
}

/* -- Recurrent layers ----------------------------------------------------------------------- */

/* Small numbers with a pattern. */
static void pattern(uint32_t in, const char *dims, int64_t k)
{
    weft_dim dim[WEFT_RANK_MAX];
    uint32_t rank = dims_of(dims, dim);
    float list[128];
    int64_t n = weft_numel(dim, (int32_t)rank);
    for (int64_t i = 0; i < n; i++)
        list[i] = (float)(i * k % 11 - 5) / 8;
    operand_data(in, WEFT_DTYPE_F32, dims, list);
}

static void test_gru__both_directions(void **state)
{
    (void)state;
    pattern(0, "3, 2, 2", 3);
    pattern(1, "2, 6, 2", 5);
    pattern(2, "2, 6, 2", 7);
    pattern(3, "2, 12", 2);
    operand_data(4, WEFT_DTYPE_I32, "2", (int32_t[]){3, 2});
    attr_str(WEFT_ATTR_DIRECTION, "bidirectional");
    eval(WEFT_OP_GRU, 2);
    VALUES(0, "3, 2, 2, 2", 0.464784, 0.056758, 0.442884, -0.186858, 0.307792, -0.508287, 0.003995,
           -0.55664, 0.581864, -0.007292, 0.441066, -0.267803, 0.223741, -0.442603, -0.026152,
           -0.357016, 0.574571, -0.057605, 0, 0, 0.120718, -0.293698, 0, 0);
    VALUES(1, "2, 2, 2", 0.574571, -0.057605, 0.441066, -0.267803, 0.307792, -0.508287, 0.003995,
           -0.55664);
    attr_int(WEFT_ATTR_LINEAR_BEFORE_RESET, 1);
    eval(WEFT_OP_GRU, 2);
    VALUES(1, "2, 2, 2", 0.409104, 0.121571, 0.283372, -0.082874, 0.539007, -0.503346, 0.209845,
           -0.529224);
}

static void test_lstm__peepholes_clip_and_functions(void **state)
{
    (void)state;
    static const char *const acts[] = {"HardSigmoid", "Softsign", "Tanh"};
    pattern(0, "3, 2, 2", 3);
    pattern(1, "1, 8, 2", 5);
    pattern(2, "1, 8, 2", 7);
    pattern(3, "1, 16", 2);
    operand_data(4, WEFT_DTYPE_I32, "2", (int32_t[]){1, 3});
    pattern(7, "1, 6", 4);
    attr_str(WEFT_ATTR_DIRECTION, "reverse");
    attr_strs(WEFT_ATTR_ACTIVATIONS, acts, 3);
    add_attr(WEFT_ATTR_CLIP, WEFT_KIND_FLOAT)->u.f = 0.5;
    eval(WEFT_OP_LSTM, 3);
    VALUES(0, "3, 1, 2, 2", -0.077001, 0.011681, -0.030742, 0.064673, 0, 0, -0.03244, 0.029428, 0,
           0, -0.079529, -0.049347);
    VALUES(2, "1, 2, 2", -0.151042, 0.029212, -0.055415, 0.163114);
}

/* -- The rest ------------------------------------------------------------------------------- */

static void test_dft__and_back(void **state)
{
    (void)state;
    enum { N = 24 };
    float x[2 * N];
    for (int i = 0; i < 2 * N; i++)
        x[i] = (float)(i * i % 17) - 8;
    operand_data(0, WEFT_DTYPE_F32, "1, 24, 2", x);
    attr_int(WEFT_ATTR_AXIS, 1);
    eval(WEFT_OP_DFT, 1);
    float spectrum[2 * N];
    memcpy(spectrum, cs->result[0].data, sizeof spectrum);
    operand_data(0, WEFT_DTYPE_F32, "1, 24, 2", spectrum);
    attr_int(WEFT_ATTR_INVERSE, 1);
    eval(WEFT_OP_DFT, 1);
    for (int i = 0; i < 2 * N; i++)
        assert_float_equal(((float *)cs->result[0].data)[i], x[i], 1e-4);
}

static void test_nll_loss__ignores(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "2, 2", (float[]){-1, -2, -3, -4});
    ints(1, "2", (int64_t[]){1, -1});
    attr_int(WEFT_ATTR_IGNORE_INDEX, -1);
    eval(WEFT_OP_NLL_LOSS, 1);
    VALUES(0, "", 2);
    ints(1, "2", (int64_t[]){1, 2});
    assert_int_equal(try_eval(WEFT_OP_NLL_LOSS, 1), WEFT_ERR_INPUT);
}

static void test_det__of_a_batch(void **state)
{
    (void)state;
    operand_data(0, WEFT_DTYPE_F32, "2, 2, 2", (float[]){0, 2, 3, 4, 1, 2, 2, 4});
    eval(WEFT_OP_DET, 1);
    VALUES(0, "2", -6, 0);
}

int main(void)
{
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, case_set_up, case_tear_down)
    const struct CMUnitTest tests[] = {
        CASE(test_transpose__moves_every_element),
        CASE(test_expand_tile__repeat),
        CASE(test_concat_split__along_an_inner_axis),
        CASE(test_slice__forwards_and_backwards),
        CASE(test_pad__modes),
        CASE(test_depth_to_space__both_orders),
        CASE(test_trilu__keeps_one_side),
        CASE(test_gather__checks_indices),
        CASE(test_gather_elements__and_nd),
        CASE(test_scatter__reduces),
        CASE(test_top_k__is_stable),
        CASE(test_unique__groups),
        CASE(test_non_zero__and_compress),
        CASE(test_non_max_suppression__drops_overlaps),
        CASE(test_resize__modes),
        CASE(test_grid_sample__modes),
        CASE(test_gru__both_directions),
        CASE(test_lstm__peepholes_clip_and_functions),
        CASE(test_dft__and_back),
        CASE(test_nll_loss__ignores),
        CASE(test_det__of_a_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
