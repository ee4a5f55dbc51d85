/* weft_graph_batch_symbol: a batch symbol is found if and only if requests do not mix. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

/* The batch of a graph with the inputs, nodes and outputs of `body`; weights and symbols are given:
 * the answer as text, so that a failure shows the graph. */
static bool is_batchable(const char *inputs, const char *nodes, const char *outputs)
{
    char text[3000];
    snprintf(text, sizeof text,
             "wir 1 graph\n"
             "symbol ?b = [1, inf]\n"
             "symbol ?s = [1, inf]\n"
             "weight $w : f32[4,4] = random 1\n"
             "weight $v : f32[4] = random 2\n"
             "weight $k : f32[3,2,1,1] = random 3\n"
             "weight $table : f32[100,4] = random 4\n"
             "weight $lw : f32[1,4,4] = random 5\n"
             "weight $lr : f32[1,4,1] = random 6\n"
             "weight $zero : i64[1] = dense [0]\n"
             "weight $one : i64[1] = dense [1]\n"
             "weight $two : i64[] = dense [2]\n"
             "graph @g (%s) {\n"
             "  symbol ?s \"seq\"\n"
             "  symbol ?b \"batch\"\n"
             "%s"
             "  return %s\n"
             "}\n",
             inputs, nodes, outputs);
    weft_module *m = NULL;
    weft_diag *diag = weft_diag_create();
    if (weft_module_parse(text, strlen(text), "test.wir", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s in\n%s", weft_diag_at(diag, 0)->text, text);
    uint32_t symbol = weft_graph_batch_symbol(weft_graph_at(m, 0));
    if (symbol != 1 && symbol != UINT32_MAX)
        fail_msg("symbol %u of\n%s", symbol, text);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return symbol == 1;
}

/* One node on %x : f32[?b,?s,4] with a result of this type. */
static bool keeps(const char *type, const char *node)
{
    char text[400];
    snprintf(text, sizeof text, "  %%1 : %s = %s\n", type, node);
    return is_batchable("%x : f32[?b,?s,4]", text, "\"y\" %1");
}

static void test_batch_symbol__is_dim_0_of_all_inputs_and_outputs(void **state)
{
    (void)state;
    assert_true(is_batchable("%x : f32[?b,4], %y : i64[?b]", "", "\"x\" %x, \"y\" %y"));
    assert_false(is_batchable("%x : f32[?b,4], %y : i64[?s]", "", "\"x\" %x"));
    assert_false(is_batchable("%x : f32[?b,4], %y : f32[]", "", "\"x\" %x"));
    assert_false(is_batchable("%x : f32[?b,?b]", "", "\"x\" %x"));
    assert_false(is_batchable("%x : f32[?b * 2]", "", "\"x\" %x"));
    assert_false(is_batchable("%x : f32[4]", "", "\"x\" %x"));
    assert_false(is_batchable("%x : f32[?b,4]", "", "\"x\" %x, \"w\" $w"));
    assert_false(is_batchable("", "", "\"w\" $w"));
}

static void test_batch_symbol__goes_through_element_wise_operators(void **state)
{
    (void)state;
    assert_true(keeps("f32[?b,?s,4]", "add %x, $v"));
    assert_true(keeps("f32[?b,?s,4]", "where %x, %x, $w"));
    assert_true(keeps("f32[?b,?s,4]", "ew %x, $v {steps = [\"mul i0 i1\", \"relu s0\"]}"));
    assert_true(is_batchable("%x : f32[?b,4], %y : f32[?b,1]", "  %1 : f32[?b,4] = mul %x, %y\n",
                             "\"y\" %1"));
    /* [b, 4] + [1, b, 4] adds every pair of requests. */
    assert_false(is_batchable("%x : f32[?b,4], %y : f32[?b,?s,4]",
                              "  %1 : f32[?b,?b,4] = add %x, %y\n", "\"y\" %1"));
}

static void test_batch_symbol__goes_through_layers(void **state)
{
    (void)state;
    assert_true(keeps("f32[?b,?s,4]", "matmul %x, $w"));
    assert_true(keeps("f32[?b,?s,?s]", "matmul %x, %x {trans_b = 1}"));
    assert_true(keeps("f32[?b,?s,4]", "softmax %x"));
    assert_true(keeps("f32[?b,?s,4]", "layer_norm %x, $v, $v {axis = -1}"));
    assert_true(keeps("f32[?b,?s,4]", "layer_norm %x, $v, $v {axis = 1}"));
    assert_true(keeps("f32[?b,?s,4]", "attention %x, %x, %x {heads = 2, head_dim = 2}"));
    assert_true(keeps("f32[?b,1,4]", "reduce_mean %x {axes = dims[1]}"));
    assert_true(keeps("f32[?b,4]", "reduce_sum %x, $one {keepdims = 0}"));
    assert_true(keeps("i64[?b,?s,1]", "arg_max %x {axis = 2}"));
    assert_true(is_batchable("%x : f32[?b,2,8,8]",
                             "  %1 : f32[?b,3,8,8] = conv %x, $k, _\n"
                             "  %2 : f32[?b,3,8,8] = conv %x, $k, _, %1 {epilogue = [\"add acc "
                             "i3\"]}\n",
                             "\"y\" %2"));
    assert_true(is_batchable("%x : f32[?b,4]", "  %1 : f32[?b,4] = gemm %x, $w, $v\n", "\"y\" %1"));
}

static void test_batch_symbol__stops_where_requests_mix(void **state)
{
    (void)state;
    assert_false(keeps("f32[?b,?s,4]", "softmax %x {axis = 0}"));
    assert_false(keeps("f32[?b,?s,4]", "layer_norm %x, $v, $v {axis = 0}"));
    assert_false(keeps("f32[1,?s,4]", "reduce_mean %x {axes = dims[0]}"));
    assert_false(keeps("f32[1,1,1]", "reduce_mean %x"));
    assert_false(keeps("f32[?b,?s,4]", "cum_sum %x, $zero"));
    assert_true(keeps("f32[?b,?s,4]", "cum_sum %x, $one"));
    assert_false(keeps("f32[?b,?s,4]", "slice %x {starts = dims[0], ends = dims[?b], axes = "
                                       "dims[0], steps = dims[-1]}"));
    assert_false(keeps("f32[?b,?s,4]", "slice %x {starts = dims[0], ends = dims[?b]}"));
    assert_true(
        keeps("f32[?b,1,4]", "slice %x {starts = dims[0], ends = dims[1], axes = dims[1]}"));
    assert_false(keeps("f32[?b,?s,4]", "pad %x {pads = dims[1, 0, 0, -1, 0, 0]}"));
    assert_true(keeps("f32[?b,?s + 1,4]", "pad %x {pads = dims[0, 1, 0, 0, 0, 0]}"));
    assert_false(keeps("f32[?s,?b,4]", "transpose %x {perm = [1, 0, 2]}"));
    assert_false(keeps("f32[?b * 2,?s,4]", "concat %x, %x {axis = 0}"));
    assert_true(keeps("f32[?b,?s * 2,4]", "concat %x, %x {axis = 1}"));
    assert_false(keeps("f32[?b,?s,4]", "gather %x, $zero {axis = 0}"));
    assert_false(is_batchable("%x : f32[?b,4]", "  %1 : f32[?b,?b] = matmul %x, %x {trans_b = 1}\n",
                              "\"y\" %1"));
    assert_false(is_batchable("%x : f32[?b,4]",
                              "  %1 : i64[2] = shape %x\n"
                              "  %2 : i64[?b,4] = expand %1, %1\n",
                              "\"y\" %2"));
    assert_false(is_batchable("%x : f32[?b]",
                              "  %1 : f32[?b] = range {start = dims[0], limit = dims[?b], delta = "
                              "dims[1], dtype = f32}\n"
                              "  %2 : f32[?b] = add %x, %1\n",
                              "\"y\" %2"));
    assert_false(is_batchable("%x : f32[?b,4]", "  %1 : i64[2,?b] = non_zero %x\n", "\"y\" %1"));
}

static void test_batch_symbol__follows_reshapes_and_transposes(void **state)
{
    (void)state;
    /* To rows and back, as exporters do for Gemm. */
    assert_true(is_batchable("%x : f32[?b,?s,4]",
                             "  %1 : f32[?b * ?s,4] = reshape %x {shape = dims[?b * ?s, 4]}\n"
                             "  %2 : f32[?b * ?s,4] = gemm %1, $w\n"
                             "  %3 : f32[?b,?s,4] = reshape %2 {shape = dims[?b, ?s, 4]}\n",
                             "\"y\" %3"));
    /* To heads and back. */
    assert_true(is_batchable("%x : f32[?b,?s,4]",
                             "  %1 : f32[?b,?s,2,2] = reshape %x {shape = dims[?b, ?s, 2, 2]}\n"
                             "  %2 : f32[2,?b,?s,2] = transpose %1 {perm = [2, 0, 1, 3]}\n"
                             "  %3 : f32[2,?b,?s,?s] = matmul %2, %2 {trans_b = 1}\n"
                             "  %4 : f32[?b,2,?s,?s] = transpose %3 {perm = [1, 0, 2, 3]}\n"
                             "  %5 : f32[?b,?s * ?s * 2] = flatten %4\n",
                             "\"y\" %5"));
    /* A reshape that merges the batch with an axis before it mixes. */
    assert_false(is_batchable("%x : f32[?b,?s,4]",
                              "  %1 : f32[?s,?b,4] = transpose %x {perm = [1, 0, 2]}\n"
                              "  %2 : f32[?b,?s,4] = reshape %1 {shape = dims[?b, ?s, 4]}\n",
                              "\"y\" %2"));
    assert_false(is_batchable("%x : f32[?b,?s,4]",
                              "  %1 : f32[?b * ?s,4] = reshape %x {shape = dims[?b * ?s, 4]}\n"
                              "  %2 : f32[?s,?b,4] = reshape %1 {shape = dims[?s, ?b, 4]}\n"
                              "  %3 : f32[?b,?s,4] = transpose %2 {perm = [1, 0, 2]}\n",
                              "\"y\" %3"));
}

static void test_batch_symbol__follows_the_batch_between_other_dims(void **state)
{
    static const char heads[] =
        "  %1 : f32[?s,?b,4] = transpose %x {perm = [1, 0, 2]}\n"
        "  %2 : f32[?s,?b * 2,2] = reshape %1 {shape = dims[?s, ?b * 2, 2]}\n"
        "  %3 : f32[?b * 2,?s,2] = transpose %2 {perm = [1, 0, 2]}\n"
        "  %4 : f32[?b * 2,?s,?s] = matmul %3, %3 {trans_b = 1}\n"
        "  %5 : f32[?b * 2,?s,2] = matmul %4, %3\n"
        "  %6 : f32[?s,?b * 2,2] = transpose %5 {perm = [1, 0, 2]}\n"
        "  %7 : f32[?b * ?s,4] = reshape %6 {shape = dims[?s * ?b, 4]}\n"
        "  %8 : f32[?b * ?s,4] = gemm %7, $w, $v\n";
    static const struct {
        const char *nodes;
        bool batched;
    } end[] = {
        /* As nn.MultiheadAttention does. */
        {"  %9 : f32[?s,?b,4] = reshape %8 {shape = dims[?s, ?b, 4]}\n"
         "  %10 : f32[?b,?s,4] = transpose %9 {perm = [1, 0, 2]}\n",
         true},
        /* The rows of a request are not next to each other. */
        {"  %10 : f32[?b,?s,4] = reshape %8 {shape = dims[?b, ?s, 4]}\n", false},
        /* Rows in another order than those of x. */
        {"  %9 : f32[?b * ?s,4] = reshape %x {shape = dims[?b * ?s, 4]}\n"
         "  %11 : f32[?b * ?s,4] = add %8, %9\n"
         "  %10 : f32[?b,?s,4] = reshape %11 {shape = dims[?b, ?s, 4]}\n",
         false},
        {"  %9 : f32[?b * ?s,4] = reshape %1 {shape = dims[?b * ?s, 4]}\n"
         "  %11 : f32[?b * ?s,4] = add %8, %9\n"
         "  %12 : f32[?s,?b,4] = reshape %11 {shape = dims[?s, ?b, 4]}\n"
         "  %10 : f32[?b,?s,4] = transpose %12 {perm = [1, 0, 2]}\n",
         true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof end / sizeof end[0]; i++) {
        char text[2000];
        snprintf(text, sizeof text, "%s%s", heads, end[i].nodes);
        assert_int_equal(is_batchable("%x : f32[?b,?s,4]", text, "\"y\" %10"), end[i].batched);
    }
}

static void test_batch_symbol__takes_constants_along_the_batch(void **state)
{
    (void)state;
    /* Zeros where nothing is masked; [b * 2] of the fill and of the mask are the same indices. */
    static const char mask[] =
        "  %1 : f32[?b,2,?s] = expand %m {shape = dims[?b, 2, ?s]}\n"
        "  %2 : f32[?b * 2,?s] = reshape %1 {shape = dims[?b * 2, ?s]}\n"
        "  %3 : f32[?b * 2,?s] = constant_of_shape {dtype = f32, shape = dims[?b * 2, ?s], value = "
        "0.0}\n"
        "  %4 : f32[?b * 2,?s] = add %3, %2\n"
        "  %5 : f32[?b,2,?s] = reshape %4 {shape = dims[?b, 2, ?s]}\n";
    assert_true(is_batchable("%m : f32[?b,1,?s]", mask, "\"y\" %5"));
    /* Not a constant: each request would get its own element. */
    assert_false(is_batchable("%x : f32[?b,4]",
                              "  %1 : f32[?b] = range {start = dims[0], limit = dims[?b], delta = "
                              "dims[1], dtype = f32}\n"
                              "  %2 : f32[?b,1] = reshape %1 {shape = dims[?b, 1]}\n"
                              "  %3 : f32[?b,4] = expand %2 {shape = dims[?b, 4]}\n"
                              "  %4 : f32[?b,4] = add %x, %3\n",
                              "\"y\" %4"));
}

static void test_batch_symbol__takes_tables_and_masks(void **state)
{
    (void)state;
    assert_true(is_batchable("%x : i64[?b,?s]",
                             "  %1 : f32[?b,?s,4] = gather $table, %x {axis = 0}\n"
                             "  %2 : i64[?s] = range {start = dims[0], limit = dims[?s], delta = "
                             "dims[1], dtype = i64}\n"
                             "  %3 : f32[?s,4] = gather $table, %2\n"
                             "  %4 : f32[?b,?s,4] = add %1, %3\n"
                             "  %5 : f32[?b,4] = gather %4, $two {axis = 1}\n",
                             "\"y\" %5"));
    assert_true(is_batchable("%x : f32[?b,?s,4]",
                             "  %1 : f32[?b,1,4] = expand $v {shape = dims[?b, 1, 4]}\n"
                             "  %2 : f32[?b,?s + 1,4] = concat %1, %x {axis = 1}\n",
                             "\"y\" %2"));
    assert_true(is_batchable("%q : f32[?b,?s,4], %m : f32[?b,1,1,?s]",
                             "  %1 : f32[?b,?s,4] = attention %q, %q, %q, %m {heads = 2, head_dim "
                             "= 2}\n",
                             "\"y\" %1"));
}

static void test_batch_symbol__goes_through_recurrent_layers(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[900];
        snprintf(text, sizeof text,
                 "  %%1 : f32[?s,?b,4] = transpose %%x {perm = [1, 0, 2]}\n"
                 "  %%2 : f32[1,?b,1] = expand $v {shape = dims[1, ?b, 1]}\n"
                 "  %s%%4 : f32[1,?b,1]%s = lstm %%1, $lw, $lr, _, _, %%2, %%2 {hidden_size = 1}\n"
                 "  %%6 : f32[?b,1] = reshape %%4 {shape = dims[?b, 1]}\n",
                 i ? "_, " : "%3 : f32[?s,1,?b,1], ", i ? ", _" : ", %5 : f32[1,?b,1]");
        assert_true(is_batchable("%x : f32[?b,?s,4]", text, "\"y\" %6"));
    }
    assert_false(is_batchable("%x : f32[?b,?s,4]",
                              "  _, %2 : f32[1,?s,1] = lstm %x, $lw, $lr {hidden_size = 1}\n",
                              "\"y\" %2"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batch_symbol__is_dim_0_of_all_inputs_and_outputs),
        cmocka_unit_test(test_batch_symbol__goes_through_element_wise_operators),
        cmocka_unit_test(test_batch_symbol__goes_through_layers),
        cmocka_unit_test(test_batch_symbol__stops_where_requests_mix),
        cmocka_unit_test(test_batch_symbol__follows_reshapes_and_transposes),
        cmocka_unit_test(test_batch_symbol__follows_the_batch_between_other_dims),
        cmocka_unit_test(test_batch_symbol__takes_constants_along_the_batch),
        cmocka_unit_test(test_batch_symbol__takes_tables_and_masks),
        cmocka_unit_test(test_batch_symbol__goes_through_recurrent_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
