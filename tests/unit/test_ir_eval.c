#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/ir.h"

#include <string.h>

static weft_diag *diag;
static weft_arena *arena;

static int set_up(void **state)
{
    (void)state;
    diag = weft_diag_create();
    arena = weft_arena_create(0);
    return diag && arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
    return 0;
}

static weft_module *parse(const char *text)
{
    weft_module *m = NULL;
    weft_err err = weft_module_parse(text, strlen(text), "test.wir", NULL, diag, &m);
    if (err != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    return m;
}

static weft_tensor f32_tensor(float *data, int64_t a, int64_t b)
{
    return (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {a, b}, .data = data};
}

static void expect_message(const char *text)
{
    assert_int_equal(weft_diag_count(diag), 1);
    if (!strstr(weft_diag_at(diag, 0)->text, text))
        fail_msg("got: %s", weft_diag_at(diag, 0)->text);
    weft_diag_clear(diag);
}

static const char two_inputs[] = "wir 1 graph\n"
                                 "symbol ?b = [1, 4]\n"
                                 "weight $w : f32[2,2] = dense [1.0, 2.0, 3.0, 4.0]\n"
                                 "graph @g (%x : f32[?b,2], %y : f32[?b,2]) {\n"
                                 "  %1 : f32[?b,2] = matmul %x, $w\n"
                                 "  %2 : f32[?b,2] = add %1, %y\n"
                                 "  return \"z\" %2, \"x\" %x, \"w\" $w\n"
                                 "}\n";

static void test_graph_eval__computes_outputs(void **state)
{
    (void)state;
    weft_module *m = parse(two_inputs);
    float x[] = {1, 2, 3, 4}, y[] = {10, 20, 30, 40};
    weft_tensor in[] = {f32_tensor(x, 2, 2), f32_tensor(y, 2, 2)}, out[3];
    weft_err err = weft_graph_eval(weft_graph_at(m, 0), in, 2, arena, diag, out, 3);
    assert_int_equal(err, WEFT_ERR_OK);
    const float *z = out[0].data;
    assert_int_equal(out[0].dim[0], 2);
    assert_true(z[0] == 17 && z[1] == 30 && z[2] == 45 && z[3] == 62);
    assert_memory_equal(out[1].data, x, sizeof x);
    assert_int_equal(((const float *)out[2].data)[3], 4);
    weft_module_destroy(m);
}

static void test_graph_eval__checks_inputs(void **state)
{
    (void)state;
    weft_module *m = parse(two_inputs);
    weft_graph *g = weft_graph_at(m, 0);
    float x[20] = {0};
    weft_tensor out[3];
    weft_tensor in[] = {f32_tensor(x, 2, 2), f32_tensor(x, 3, 2)};
    assert_int_equal(weft_graph_eval(g, in, 2, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("input \"y\": dimension 0 is 3, but ?b is 2");
    in[0] = f32_tensor(x, 2, 3);
    assert_int_equal(weft_graph_eval(g, in, 2, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("input \"x\": dimension 1 is 3, should be 2");
    in[0] = f32_tensor(x, 5, 2);
    assert_int_equal(weft_graph_eval(g, in, 2, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("input \"x\": dimension 0 is 5, but ?b must be in 1..4");
    in[0].rank = 1;
    assert_int_equal(weft_graph_eval(g, in, 2, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("input \"x\" has rank 1, should be 2");
    in[0].dtype = WEFT_DTYPE_I32;
    assert_int_equal(weft_graph_eval(g, in, 2, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("input \"x\" is i32, should be f32");
    assert_int_equal(weft_graph_eval(g, in, 1, arena, diag, out, 3), WEFT_ERR_INPUT);
    expect_message("1 inputs given, 2 wanted");
    weft_module_destroy(m);
}

static void test_graph_eval__data_decides_shapes(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "symbol ?d0 data\n"
                           "graph @g (%x : f32[2,2]) {\n"
                           "  %1 : i64[2,?d0] = non_zero %x\n"
                           "  %2 : i64[?d0 * 2] = reshape %1 {shape = dims[?d0 * 2]}\n"
                           "  return \"z\" %2\n"
                           "}\n");
    float x[] = {0, 1, 2, 0};
    weft_tensor in = f32_tensor(x, 2, 2), out;
    weft_err err = weft_graph_eval(weft_graph_at(m, 0), &in, 1, arena, diag, &out, 1);
    assert_int_equal(err, WEFT_ERR_OK);
    const int64_t *z = out.data;
    assert_int_equal(out.dim[0], 4);
    assert_true(z[0] == 0 && z[1] == 1 && z[2] == 1 && z[3] == 0);
    weft_module_destroy(m);
}

static void test_node_eval__folds_weights(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "weight $a : f32[2] = dense [1.0, 2.0]\n"
                           "weight $b : f32[] = dense [3.0]\n"
                           "graph @g (%x : f32[2]) {\n"
                           "  %1 : f32[2] = add $a, $b\n"
                           "  %2 : f32[2] = add %1, %x\n"
                           "  return \"z\" %2\n"
                           "}\n");
    weft_graph *g = weft_graph_at(m, 0);
    weft_tensor out;
    weft_node n = weft_graph_first(g);
    assert_int_equal(weft_node_eval(g, n, diag, &out, 1), WEFT_ERR_OK);
    assert_true(((float *)out.data)[0] == 4 && ((float *)out.data)[1] == 5);
    n = weft_node_next(m, n);
    assert_int_equal(weft_node_eval(g, n, diag, &out, 1), WEFT_ERR_UNSUP);
    expect_message("operand 0 is not constant");
    weft_module_destroy(m);
}

static void test_node_eval__reads_unaligned_weights(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "graph @g (%x : f32[2]) {\n"
                           "  return \"z\" %x\n"
                           "}\n");
    weft_graph *g = weft_graph_at(m, 0);
    uint8_t bytes[9];
    float two[] = {1, -2};
    memcpy(bytes + 1, two, sizeof two);
    weft_type type = weft_val_type(m, weft_graph_input(g, 0));
    weft_weight_info info = {.type = type, .name = "w", .data = bytes + 1, .bytes = sizeof two};
    weft_val w = weft_weight_val(m, weft_weight_add(m, &info));
    weft_node_spec spec = {.op = WEFT_OP_RELU, .in = &w, .n_in = 1, .out = &type, .n_out = 1};
    weft_node n = weft_node_append(g, &spec);
    weft_graph_set_output(g, 0, weft_node_out(m, n, 0));
    weft_tensor out, in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = two};
    assert_int_equal(weft_node_eval(g, n, diag, &out, 1), WEFT_ERR_OK);
    assert_true(((float *)out.data)[0] == 1 && ((float *)out.data)[1] == 0);
    assert_int_equal(weft_graph_eval(g, &in, 1, arena, diag, &out, 1), WEFT_ERR_OK);
    assert_true(((float *)out.data)[0] == 1 && ((float *)out.data)[1] == 0);
    weft_module_destroy(m);
}

/* -- Inference -------------------------------------------------------------------------------- */

static void test_contents__come_from_weights_and_shapes(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "symbol ?b\n"
                           "weight $i : i32[3] = dense [1, -1, 7]\n"
                           "weight $f : f32[1] = dense [1.0]\n"
                           "weight $big : i64[100] = splat 1\n"
                           "graph @g (%x : f32[?b,4]) {\n"
                           "  %1 : i64[2] = shape %x\n"
                           "  %2 : i64[2] = identity %1\n"
                           "  return \"z\" %2, \"a\" $i, \"b\" $f, \"c\" $big\n"
                           "}\n");
    weft_graph *g = weft_graph_at(m, 0);
    weft_contents *c = weft_contents_create(m, arena);
    uint32_t n = 0;
    weft_ttype type;
    const weft_dim *dim = weft_contents_get(c, weft_graph_output(g, 1), &n);
    assert_int_equal(n, 3);
    assert_true(dim[0] == 1 && dim[1] == -1 && dim[2] == 7);
    assert_null(weft_contents_get(c, weft_graph_output(g, 2), &n));
    assert_null(weft_contents_get(c, weft_graph_output(g, 3), &n));
    assert_null(weft_contents_get(c, weft_graph_output(g, 0), &n));
    WEFT_FOREACH_NODE (m, g, node)
        assert_int_equal(weft_node_infer(g, node, c, diag, &type, 1), WEFT_ERR_OK);
    dim = weft_contents_get(c, weft_graph_output(g, 0), &n);
    assert_non_null(dim);
    assert_int_equal(n, 2);
    assert_true(dim[0] == weft_val_ttype(m, weft_graph_input(g, 0))->dim[0] && dim[1] == 4);
    weft_module_destroy(m);
}

static void test_infer__works_without_contents(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "weight $s : i64[2] = dense [2, 3]\n"
                           "graph @g (%x : f32[6]) {\n"
                           "  %1 : f32[2,3] = reshape %x, $s\n"
                           "  return \"z\" %1\n"
                           "}\n");
    weft_graph *g = weft_graph_at(m, 0);
    weft_ttype type;
    weft_node n = weft_graph_first(g);
    assert_int_equal(weft_node_infer(g, n, NULL, diag, &type, 1), WEFT_ERR_OK);
    assert_int_equal(type.rank, 2);
    assert_int_equal(type.dim[1], 3);
    weft_module_destroy(m);
}

static void test_verify__leaves_no_symbols_behind(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "symbol ?d0 data\n"
                           "graph @g (%x : f32[2,2]) {\n"
                           "  %1 : i64[2,?d0] = non_zero %x\n"
                           "  return \"z\" %1\n"
                           "}\n");
    uint32_t n = weft_dim_symbol_count(weft_module_dims(m));
    assert_int_equal(weft_module_verify(m, diag), WEFT_ERR_OK);
    assert_int_equal(weft_dim_symbol_count(weft_module_dims(m)), n);
    weft_module_destroy(m);
}

static void test_verify__weight_bytes(void **state)
{
    (void)state;
    weft_module *m = weft_module_create(0);
    weft_dim dim = 2;
    uint8_t data[8] = {0};
    weft_weight_info info = {
        .type = weft_type_make(m, WEFT_DTYPE_F32, &dim, 1), .name = "w", .data = data, .bytes = 4};
    weft_weight_add(m, &info);
    assert_int_equal(weft_module_verify(m, diag), WEFT_ERR_INPUT);
    expect_message("weight-bytes: 4 bytes, its type needs 8");
    weft_module_destroy(m);
}

static void test_verify__ssa_order(void **state)
{
    (void)state;
    weft_module *m = parse("wir 1 graph\n"
                           "graph @g (%x : f32[2]) {\n"
                           "  %1 : f32[2] = relu %x\n"
                           "  %2 : f32[2] = relu %1\n"
                           "  return \"z\" %2\n"
                           "}\n");
    weft_graph *g = weft_graph_at(m, 0);
    weft_node_move_before(g, weft_graph_last(g), weft_graph_first(g));
    assert_int_equal(weft_module_verify(m, diag), WEFT_ERR_INPUT);
    expect_message("ssa-order: relu: operand 0 (result 0 of relu) is not defined before its use");
    weft_module_destroy(m);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_graph_eval__computes_outputs),
        TEST(test_graph_eval__checks_inputs),
        TEST(test_graph_eval__data_decides_shapes),
        TEST(test_node_eval__folds_weights),
        TEST(test_node_eval__reads_unaligned_weights),
        TEST(test_contents__come_from_weights_and_shapes),
        TEST(test_infer__works_without_contents),
        TEST(test_verify__leaves_no_symbols_behind),
        TEST(test_verify__weight_bytes),
        TEST(test_verify__ssa_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
