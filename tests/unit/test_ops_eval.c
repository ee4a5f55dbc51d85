/* Reference implementations: arithmetic of each element type, GEMMs, windows, norms, reductions,
 * quantisation. Expected numbers are NumPy's and ONNX's definitions worked out by hand. */
#include "ops/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

enum { MOST = 64 };

/* A tensor with its numbers as doubles; `data` is filled by make. */
typedef struct value {
    weft_dtype dtype;
    int32_t rank;
    int64_t dim[5];
    double x[MOST];
} value;

static weft_tensor make(const value *v, void *room)
{
    weft_tensor t = {.dtype = v->dtype, .rank = v->rank, .data = room};
    memcpy(t.dim, v->dim, sizeof v->dim);
    for (int64_t i = 0; i < weft_tensor_numel(&t); i++)
        weft_tensor_set_f64(&t, i, v->x[i]);
    return t;
}

static weft_err run(weft_op_id op, const value *in, uint32_t n_in, const weft_attr *attr,
                    uint32_t n_attr, weft_tensor *out, uint32_t n_out)
{
    static double room[5][MOST];
    weft_tensor tensor[5];
    const weft_tensor *at[5] = {NULL};
    for (uint32_t i = 0; i < n_in; i++) {
        tensor[i] = make(&in[i], room[i]);
        at[i] = in[i].dtype != WEFT_DTYPE_NONE ? &tensor[i] : NULL;
    }
    weft_arena *scratch = weft_arena_create(0);
    weft_eval_ctx cx = {.op = weft_op_get(op),
                        .attrs = {attr, n_attr},
                        .in = at,
                        .n_in = n_in,
                        .out = out,
                        .n_out = n_out,
                        .scratch = scratch};
    weft_err err = weft_op_eval(&cx);
    weft_arena_destroy(scratch);
    return err;
}

/* Runs `op` and compares with `want` to 1e-5 relative. */
static void check(weft_op_id op, const value *in, uint32_t n_in, const weft_attr *attr,
                  uint32_t n_attr, const value *want)
{
    double room[MOST];
    weft_tensor out = {.dtype = want->dtype, .rank = want->rank, .data = room};
    memcpy(out.dim, want->dim, sizeof want->dim);
    assert_int_equal(run(op, in, n_in, attr, n_attr, &out, 1), WEFT_ERR_OK);
    for (int64_t i = 0; i < weft_tensor_numel(&out); i++) {
        double y = weft_tensor_get_f64(&out, i), w = want->x[i];
        if (!(y == w || (isnan(y) && isnan(w)) || fabs(y - w) <= 1e-5 * fabs(w) + 1e-6))
            fail_msg("%s: element %d is %g, not %g", weft_op_get(op)->name, (int)i, y, w);
    }
}

#define VEC(type, n, ...)          \
    {                              \
        WEFT_DTYPE_##type, 1, {n}, \
        {                          \
            __VA_ARGS__            \
        }                          \
    }
#define MAT(type, r, c, ...)          \
    {                                 \
        WEFT_DTYPE_##type, 2, {r, c}, \
        {                             \
            __VA_ARGS__               \
        }                             \
    }
#define INT(k, v)                                                     \
    {                                                                 \
        .key = WEFT_ATTR_##k, .kind = WEFT_KIND_INT, .u = {.i = (v) } \
    }
#define FLT(k, v)                                                       \
    {                                                                   \
        .key = WEFT_ATTR_##k, .kind = WEFT_KIND_FLOAT, .u = {.f = (v) } \
    }
#define INTS(k, v, count)                                                               \
    {                                                                                   \
        .key = WEFT_ATTR_##k, .kind = WEFT_KIND_INTS, .n = (count), .u = {.ints = (v) } \
    }
#define TYPE(v)                                                                       \
    {                                                                                 \
        .key = WEFT_ATTR_TO, .kind = WEFT_KIND_DTYPE, .u = {.dtype = WEFT_DTYPE_##v } \
    }
#define CHECK2(op, a, b, w) check(WEFT_OP_##op, (const value[]){a, b}, 2, NULL, 0, &(const value)w)

/* -- Arithmetic ----------------------------------------------------------------------------- */

static void test_ops_eval__integers_wrap_and_truncate(void **state)
{
    (void)state;
    const value a = VEC(I8, 4, 100, -100, 7, -7), b = VEC(I8, 4, 100, 100, 2, 2);
    CHECK2(ADD, a, b, VEC(I8, 4, -56, 0, 9, -5));
    CHECK2(DIV, a, b, VEC(I8, 4, 1, -1, 3, -3));
    CHECK2(MUL, a, b, VEC(I8, 4, 16, -16, 14, -14));
    const value u = VEC(U8, 2, 3, 250), v = VEC(U8, 2, 5, 10);
    CHECK2(SUB, u, v, VEC(U8, 2, 254, 240));
    const value zero = VEC(I32, 2, 5, INT32_MIN), by = VEC(I32, 2, 0, -1);
    CHECK2(DIV, zero, by, VEC(I32, 2, 0, INT32_MIN));
}

static void test_ops_eval__mod_takes_the_sign_of_the_divisor_or_of_c(void **state)
{
    (void)state;
    const value a = VEC(I64, 4, 7, -7, 7, -7), b = VEC(I64, 4, 3, 3, -3, -3);
    CHECK2(MOD, a, b, VEC(I64, 4, 1, 2, -2, -1));
    const weft_attr c = INT(FMOD, 1);
    const value want = VEC(I64, 4, 1, -1, 1, -1);
    check(WEFT_OP_MOD, (const value[]){a, b}, 2, &c, 1, &want);
}

static void test_ops_eval__powers_of_integers_are_exact(void **state)
{
    (void)state;
    const value a = VEC(I64, 5, 3, 2, -2, 5, 2), b = VEC(I64, 5, 20, 40, 3, 0, -1);
    CHECK2(POW, a, b, VEC(I64, 5, 3486784401, 1099511627776, -8, 1, 0));
    const value f = VEC(F32, 2, 2, 9), half = VEC(F32, 1, 0.5);
    CHECK2(POW, f, half, VEC(F32, 2, 1.41421356, 3));
}

static void test_ops_eval__halves_compute_in_single_precision(void **state)
{
    (void)state;
    const value a = VEC(F16, 2, 2048, 1), b = VEC(F16, 2, 1, 0.00048828125);
    CHECK2(ADD, a, b, VEC(F16, 2, 2048, 1));
    const value c = VEC(BF16, 1, 3), d = VEC(BF16, 1, 7);
    CHECK2(MUL, c, d, VEC(BF16, 1, 21));
}

static void test_ops_eval__comparisons_know_unsigned_and_nan(void **state)
{
    (void)state;
    const value a = VEC(U64, 2, 18446744073709549568.0, 1), b = VEC(U64, 2, 1, 2);
    CHECK2(GREATER, a, b, VEC(BOOL, 2, 1, 0));
    const value x = VEC(F32, 2, NAN, 1), y = VEC(F32, 2, NAN, 1);
    CHECK2(EQUAL, x, y, VEC(BOOL, 2, 0, 1));
    const value z = VEC(F32, 2, 1, NAN);
    CHECK2(MAX, x, z, VEC(F32, 2, NAN, NAN));
}

static void test_ops_eval__casts_saturate_from_floats_and_wrap_from_integers(void **state)
{
    (void)state;
    const value f = VEC(F32, 5, 3.9, -3.9, 300, -300, NAN);
    const weft_attr i8 = TYPE(I8), b = TYPE(BOOL), i64 = TYPE(I64);
    check(WEFT_OP_CAST, &f, 1, &i8, 1, &(const value)VEC(I8, 5, 3, -3, 127, -128, 0));
    check(WEFT_OP_CAST, &f, 1, &b, 1, &(const value)VEC(BOOL, 5, 1, 1, 1, 1, 1));
    const value n = VEC(I32, 2, 300, -1);
    check(WEFT_OP_CAST, &n, 1, &i8, 1, &(const value)VEC(I8, 2, 44, -1));
    check(WEFT_OP_CAST, &n, 1, &i64, 1, &(const value)VEC(I64, 2, 300, -1));
}

static void test_ops_eval__unary_functions_match_their_formulas(void **state)
{
    (void)state;
    const value x = VEC(F32, 3, -1, 0.5, 2.5);
    check(WEFT_OP_ROUND, &x, 1, NULL, 0, &(const value)VEC(F32, 3, -1, 0, 2));
    check(WEFT_OP_GELU, &x, 1, NULL, 0,
          &(const value)VEC(F32, 3, -0.1586553, 0.3457312, 2.4844757));
    check(WEFT_OP_HARD_SIGMOID, &x, 1, NULL, 0, &(const value)VEC(F32, 3, 0.3, 0.6, 1));
    check(WEFT_OP_SELU, &x, 1, NULL, 0,
          &(const value)VEC(F32, 3, -1.1113307, 0.5253505, 2.6267526));
    const weft_attr clip[] = {FLT(MAX, 2), FLT(MIN, 0)};
    check(WEFT_OP_CLIP, &x, 1, clip, 2, &(const value)VEC(F32, 3, 0, 0.5, 2));
    const value n = VEC(I16, 2, -32768, 5);
    check(WEFT_OP_ABS, &n, 1, NULL, 0, &(const value)VEC(I16, 2, -32768, 5));
}

/* -- GEMMs and windows ---------------------------------------------------------------------- */

static void test_ops_eval__gemms_transpose_and_broadcast(void **state)
{
    (void)state;
    const value a = MAT(F32, 2, 3, 1, 2, 3, 4, 5, 6), b = MAT(F32, 2, 3, 1, 0, 1, 0, 1, 0);
    const weft_attr trans = INT(TRANS_B, 1);
    check(WEFT_OP_MATMUL, (const value[]){a, b}, 2, &trans, 1,
          &(const value)MAT(F32, 2, 2, 4, 2, 10, 5));
    const value c = VEC(F32, 2, 1, -1);
    const weft_attr gemm[] = {FLT(ALPHA, 2), FLT(BETA, 10), INT(TRANSB, 1)};
    check(WEFT_OP_GEMM, (const value[]){a, b, c}, 3, gemm, 3,
          &(const value)MAT(F32, 2, 2, 18, -6, 30, 0));
    const value v = VEC(I64, 3, 1, 1, 1), big = MAT(I64, 3, 1, 1ll << 40, 1, 2);
    check(WEFT_OP_MATMUL, (const value[]){v, big}, 2, NULL, 0,
          &(const value)VEC(I64, 1, 1099511627779));
}

static void test_ops_eval__attention_weighs_values_by_head(void **state)
{
    (void)state;
    /* One fused value: two positions, columns q0 q1 k0 k1 v0 v1; heads of one column. */
    const value qkv = {WEFT_DTYPE_F32, 3, {1, 2, 6}, {1, 0, 0, 0, 10, 20, 0, 1, 1, 0, 30, 40}};
    const value mask = MAT(BOOL, 2, 2, 1, 0, 1, 1);
    const weft_attr attr[] = {INT(HEAD_DIM, 1), INT(HEADS, 2), INT(K_OFFSET, 2), INT(V_OFFSET, 4)};
    const value want = {WEFT_DTYPE_F32, 3, {1, 2, 2}, {10, 20, 20, 30}};
    check(WEFT_OP_ATTENTION, (const value[]){qkv, qkv, qkv, mask}, 4, attr, 4, &want);
    const double w = 1 / (1 + exp(-1.0)); /* scores 0 and 1 */
    const value open = {WEFT_DTYPE_F32, 3, {1, 2, 2}, {10 + 20 * w, 30, 20, 30}};
    check(WEFT_OP_ATTENTION, (const value[]){qkv, qkv, qkv}, 3, attr, 4, &open);
}

static void test_ops_eval__convolution_pads_strides_and_groups(void **state)
{
    (void)state;
    const value x = {WEFT_DTYPE_F32, 3, {1, 2, 4}, {1, 2, 3, 4, 10, 20, 30, 40}};
    const value w = {WEFT_DTYPE_F32, 3, {2, 1, 3}, {1, 1, 1, 1, 0, -1}};
    const value bias = VEC(F32, 2, 0.5, 0);
    const int64_t pads[] = {1, 1}, two[] = {2};
    const weft_attr attr[] = {INT(GROUP, 2), INTS(PADS, pads, 2), INTS(STRIDES, two, 1)};
    const value want = {WEFT_DTYPE_F32, 3, {1, 2, 2}, {3.5, 9.5, -20, -20}};
    check(WEFT_OP_CONV, (const value[]){x, w, bias}, 3, attr, 3, &want);
    const value up = {WEFT_DTYPE_F32, 3, {1, 1, 2}, {1, 2}};
    const value k = {WEFT_DTYPE_F32, 3, {1, 1, 3}, {1, 10, 100}};
    const weft_attr stride = INTS(STRIDES, two, 1);
    const value grown = {WEFT_DTYPE_F32, 3, {1, 1, 5}, {1, 10, 102, 20, 200}};
    check(WEFT_OP_CONV_TRANSPOSE, (const value[]){up, k}, 2, &stride, 1, &grown);
}

static void test_ops_eval__pools_count_padding_only_on_demand(void **state)
{
    (void)state;
    const value x = {WEFT_DTYPE_F32, 3, {1, 1, 4}, {4, 2, 8, 6}};
    const int64_t pads[] = {1, 1}, two[] = {2}, three[] = {3};
    weft_attr attr[] = {INT(COUNT_INCLUDE_PAD, 0), INTS(KERNEL_SHAPE, three, 1),
                        INTS(PADS, pads, 2), INTS(STRIDES, two, 1)};
    value want = {WEFT_DTYPE_F32, 3, {1, 1, 2}, {3, 16.0 / 3}};
    check(WEFT_OP_AVERAGE_POOL, &x, 1, attr, 4, &want);
    attr[0].u.i = 1;
    want.x[0] = 2;
    check(WEFT_OP_AVERAGE_POOL, &x, 1, attr, 4, &want);
    double y[2];
    int64_t idx[2];
    weft_tensor out[] = {{WEFT_DTYPE_F32, 3, {1, 1, 2}, y}, {WEFT_DTYPE_I64, 3, {1, 1, 2}, idx}};
    assert_int_equal(run(WEFT_OP_MAX_POOL, &x, 1, attr + 1, 3, out, 2), WEFT_ERR_OK);
    assert_true(weft_tensor_get_f64(&out[0], 0) == 4 && weft_tensor_get_f64(&out[0], 1) == 8);
    assert_true(idx[0] == 0 && idx[1] == 2);
}

/* -- Norms and reductions ------------------------------------------------------------------- */

static void test_ops_eval__norms_centre_and_scale(void **state)
{
    (void)state;
    const value x = MAT(F32, 2, 2, 1, 3, 10, 30), scale = VEC(F32, 2, 1, 2),
                bias = VEC(F32, 2, 0, 1);
    const weft_attr eps = FLT(EPSILON, 0);
    check(WEFT_OP_LAYER_NORM, (const value[]){x, scale, bias}, 3, &eps, 1,
          &(const value)MAT(F32, 2, 2, -1, 3, -1, 3));
    const value mean = VEC(F32, 2, 1, 0), var = VEC(F32, 2, 4, 9);
    check(WEFT_OP_BATCH_NORM, (const value[]){x, scale, bias, mean, var}, 5, &eps, 1,
          &(const value)MAT(F32, 2, 2, 0, 3, 4.5, 21));
    const weft_attr axis = INT(AXIS, 0);
    check(WEFT_OP_SOFTMAX, &x, 1, &axis, 1,
          &(const value)MAT(F32, 2, 2, 1.2339458e-4, 1.8795288e-12, 0.9998766, 1));
    check(WEFT_OP_HARDMAX, &x, 1, NULL, 0, &(const value)MAT(F32, 2, 2, 0, 1, 0, 1));
}

static void test_ops_eval__reductions_over_any_axes(void **state)
{
    (void)state;
    const value x = {WEFT_DTYPE_F32, 3, {2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}};
    const int64_t outer[] = {0, 2}, middle[] = {-2};
    const weft_attr a[] = {INTS(AXES, outer, 2), INT(KEEPDIMS, 0)};
    const weft_attr b[] = {INTS(AXES, middle, 1), INT(KEEPDIMS, 1)};
    check(WEFT_OP_REDUCE_SUM, &x, 1, a, 2, &(const value)VEC(F32, 2, 14, 22));
    check(WEFT_OP_REDUCE_MAX, &x, 1, a, 2, &(const value)VEC(F32, 2, 6, 8));
    const value want = {WEFT_DTYPE_F32, 3, {2, 1, 2}, {2, 3, 6, 7}};
    check(WEFT_OP_REDUCE_MEAN, &x, 1, b, 2, &want);
    const value whole = {
        WEFT_DTYPE_F32,
        3,
        {1, 1, 1},
        {log(exp(1) + exp(2) + exp(3) + exp(4) + exp(5) + exp(6) + exp(7) + exp(8))}};
    check(WEFT_OP_REDUCE_LOG_SUM_EXP, &x, 1, NULL, 0, &whole);
}

static void test_ops_eval__reductions_of_nothing_give_the_neutral_element(void **state)
{
    (void)state;
    const value x = MAT(I32, 0, 2, 0);
    const int64_t first[] = {0};
    const weft_attr a[] = {INTS(AXES, first, 1), INT(KEEPDIMS, 0)};
    check(WEFT_OP_REDUCE_SUM, &x, 1, a, 2, &(const value)VEC(I32, 2, 0, 0));
    check(WEFT_OP_REDUCE_PROD, &x, 1, a, 2, &(const value)VEC(I32, 2, 1, 1));
    check(WEFT_OP_REDUCE_MAX, &x, 1, a, 2, &(const value)VEC(I32, 2, INT32_MIN, INT32_MIN));
}

static void test_ops_eval__positions_and_running_sums(void **state)
{
    (void)state;
    const value x = MAT(I32, 2, 3, 1, 5, 5, 4, 2, 4);
    const weft_attr a[] = {INT(AXIS, 1), INT(KEEPDIMS, 0), INT(SELECT_LAST_INDEX, 1)};
    check(WEFT_OP_ARG_MAX, &x, 1, a, 2, &(const value)VEC(I64, 2, 1, 0));
    check(WEFT_OP_ARG_MAX, &x, 1, a, 3, &(const value)VEC(I64, 2, 2, 2));
    const weft_attr run_on[] = {INT(AXIS, 1), INT(EXCLUSIVE, 1), INT(REVERSE, 1)};
    check(WEFT_OP_CUM_SUM, &x, 1, run_on, 1, &(const value)MAT(I32, 2, 3, 1, 6, 11, 4, 6, 10));
    check(WEFT_OP_CUM_SUM, &x, 1, run_on, 3, &(const value)MAT(I32, 2, 3, 10, 5, 0, 6, 4, 0));
}

/* -- Quantisation --------------------------------------------------------------------------- */

static void test_ops_eval__quantisation_rounds_half_to_even_and_saturates(void **state)
{
    (void)state;
    const value x = VEC(F32, 5, 1, 3, 5, 1000, -1000), scale = VEC(F32, 1, 2),
                zero = VEC(U8, 1, 10);
    const value in[] = {x, scale, zero};
    check(WEFT_OP_QUANTIZE_LINEAR, in, 3, NULL, 0, &(const value)VEC(U8, 5, 10, 12, 12, 255, 0));
    const value q = VEC(I8, 2, -128, 127), z = VEC(I8, 1, -1);
    check(WEFT_OP_DEQUANTIZE_LINEAR, (const value[]){q, scale, z}, 3, NULL, 0,
          &(const value)VEC(F32, 2, -254, 256));
}

static void test_ops_eval__shapes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    double room[MOST];
    const value a = VEC(F32, 3, 1, 2, 3), b = VEC(F32, 2, 1, 2);
    weft_tensor out = {WEFT_DTYPE_F32, 1, {3}, room};
    assert_int_equal(run(WEFT_OP_ADD, (const value[]){a, b}, 2, NULL, 0, &out, 1), WEFT_ERR_INPUT);
    assert_int_equal(run(WEFT_OP_MATMUL, (const value[]){a, b}, 2, NULL, 0, &out, 1),
                     WEFT_ERR_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_eval__integers_wrap_and_truncate),
        cmocka_unit_test(test_ops_eval__mod_takes_the_sign_of_the_divisor_or_of_c),
        cmocka_unit_test(test_ops_eval__powers_of_integers_are_exact),
        cmocka_unit_test(test_ops_eval__halves_compute_in_single_precision),
        cmocka_unit_test(test_ops_eval__comparisons_know_unsigned_and_nan),
        cmocka_unit_test(test_ops_eval__casts_saturate_from_floats_and_wrap_from_integers),
        cmocka_unit_test(test_ops_eval__unary_functions_match_their_formulas),
        cmocka_unit_test(test_ops_eval__gemms_transpose_and_broadcast),
        cmocka_unit_test(test_ops_eval__attention_weighs_values_by_head),
        cmocka_unit_test(test_ops_eval__convolution_pads_strides_and_groups),
        cmocka_unit_test(test_ops_eval__pools_count_padding_only_on_demand),
        cmocka_unit_test(test_ops_eval__norms_centre_and_scale),
        cmocka_unit_test(test_ops_eval__reductions_over_any_axes),
        cmocka_unit_test(test_ops_eval__reductions_of_nothing_give_the_neutral_element),
        cmocka_unit_test(test_ops_eval__positions_and_running_sums),
        cmocka_unit_test(test_ops_eval__quantisation_rounds_half_to_even_and_saturates),
        cmocka_unit_test(test_ops_eval__shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
