/* From messages to graphs: names, order, dims, functions, and the forms of older opsets. */
#include "tests/support/onnx_subject.h"

/* -- Names and dims --------------------------------------------------------------------------- */

static void test_onnx_import__symbols(void **state)
{
    (void)state;
    weft_buf graph = {0};
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "batch,seq,-1,?,8");
    onnx_put_value(&graph, ONNX_INPUT, "z", ONNX_FLOAT, "batch,1,1,1,1");
    onnx_put_node(&graph, "Add", "x,z", "y", NULL);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_FLOAT, "batch,seq,a,b,8");
    subject s = import(&graph, 17);
    check_ok(&s);
    assert_string_equal(weft_graph_name(s.g), "net-1");
    assert_int_equal(weft_graph_symbol_count(s.g), 4);
    assert_string_equal(weft_graph_symbol_name(s.g, 0), "batch");
    assert_string_equal(weft_graph_symbol_name(s.g, 2), "x_2");
    assert_string_equal(weft_graph_symbol_name(s.g, 3), "x_3");
    const weft_ttype *y = weft_val_ttype(s.m, weft_graph_output(s.g, 0));
    const weft_ttype *x = weft_val_ttype(s.m, weft_graph_input(s.g, 0));
    assert_memory_equal(x, y, sizeof *x);
    assert_int_equal(weft_module_verify(s.m, s.diag), WEFT_ERR_OK);
    release(&s);
}

static void test_onnx_import__bounds_of_symbols(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "batch,seq,one", "batch,seq,one");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    weft_buf again = {0};
    weft_buf_add(&again, model.at, model.len);
    weft_import_dim dim[3] = {{"seq", 2, 128}, {"batch", 1, 8}, {"one", 1, 1}};
    weft_import_options options = {.graph_name = "net", .dim = dim, .n_dim = 3};
    subject s = import_with(&model, &options);
    check_ok(&s);
    int64_t lo, hi;
    const weft_ttype *x = weft_val_ttype(s.m, weft_graph_input(s.g, 0));
    weft_dim_bounds(weft_module_dims(s.m), x->dim[1], &lo, &hi);
    assert_int_equal(lo, 2);
    assert_int_equal(hi, 128);
    assert_int_equal(x->dim[2], 1);
    assert_string_equal(weft_graph_name(s.g), "net");
    release(&s);
    dim[0] = (weft_import_dim){"sequence", 2, 128};
    s = import_with(&again, &options);
    check_fails(s, WEFT_ERR_INPUT, "no symbolic dimension \"sequence\"");
}

static void test_onnx_import__names_of_graphs(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "4", "4");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    weft_module *m = weft_module_create(0);
    weft_graph *g;
    weft_import_options named = {.graph_name = "a"};
    const uint8_t *at = (const uint8_t *)model.at;
    assert_int_equal(weft_import_onnx_bytes(m, at, model.len, NULL, "a/9 b.onnx", NULL, NULL, &g),
                     WEFT_ERR_OK);
    assert_string_equal(weft_graph_name(g), "m9_b");
    assert_int_equal(weft_import_onnx_bytes(m, at, model.len, NULL, "9 b.onnx", NULL, NULL, &g),
                     WEFT_ERR_OK);
    assert_string_equal(weft_graph_name(g), "m9_b_2");
    assert_int_equal(weft_import_onnx_bytes(m, at, model.len, NULL, "x", &named, NULL, &g),
                     WEFT_ERR_OK);
    assert_int_equal(weft_import_onnx_bytes(m, at, model.len, NULL, "x", &named, NULL, &g),
                     WEFT_ERR_INPUT);
    weft_module_destroy(m);
    weft_buf_finish(&model);
}

static void test_onnx_import__initialiser_that_is_also_an_input(void **state)
{
    (void)state;
    weft_buf graph = {0};
    float w[2] = {10, 20};
    put_ends(&graph, "2", "2");
    onnx_put_value(&graph, ONNX_INPUT, "w", ONNX_FLOAT, "2");
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "w", ONNX_FLOAT, "2", w, sizeof w);
    onnx_put_node(&graph, "Add", "x,w", "y", NULL);
    subject s = import(&graph, 17);
    check_ok(&s);
    assert_int_equal(weft_graph_input_count(s.g), 1);
    float x[2] = {1, 2};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = x};
    check_values(&s, &in, 1, (float[]){11, 22}, 2);
}

static void test_onnx_import__inputs_need_types(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, NULL, "2");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "without a shape");
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_STRING, "2");
    onnx_put_value(&graph, ONNX_OUTPUT, "x", ONNX_STRING, "2");
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "(string)");
    onnx_put_value(&graph, ONNX_INPUT, "x", 0, "2");
    onnx_put_value(&graph, ONNX_OUTPUT, "x", 0, "2");
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "data type 0");
    put_ends(&graph, "1,1,1,1,1,1,1,1,1", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "rank 9");
    put_ends(&graph, "4294967296,4294967296,4294967296", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "too many elements");
    put_ends(&graph, "9223372036854775807", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "too many elements");
}

/* -- Order and wiring ------------------------------------------------------------------------- */

static void test_onnx_import__nodes_are_sorted(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Neg", "b", "y", NULL);
    onnx_put_node(&graph, "Exp", "a", "b", NULL);
    onnx_put_node(&graph, "Relu", "x", "a", NULL);
    subject s = import(&graph, 17);
    float x[1] = {-3};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {1}, .data = x};
    check_values(&s, &in, 1, (float[]){-1}, 1);
}

static void test_onnx_import__long_chain_backwards(void **state)
{
    (void)state;
    enum { N = 100000 };
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    for (int i = N; i > 0; i--) {
        char in[16], out[16];
        snprintf(in, sizeof in, i > 1 ? "v%d" : "x", i - 1);
        snprintf(out, sizeof out, i < N ? "v%d" : "y", i);
        onnx_put_node(&graph, "Relu", in, out, NULL);
    }
    subject s = import(&graph, 17);
    check_ok(&s);
    assert_int_equal(weft_graph_node_count(s.g), N);
    release(&s);
}

static void test_onnx_import__cycles(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Add", "x,b", "a", NULL);
    onnx_put_node(&graph, "Relu", "a", "b", NULL);
    onnx_put_node(&graph, "Relu", "b", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "are on a cycle");
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Add", "x,y", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "\"y\" and \"y\" are on a cycle");
}

static void test_onnx_import__names_are_single(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_node(&graph, "Neg", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "result \"y\" is also the result of node");
    put_ends(&graph, "1", "x");
    onnx_put_node(&graph, "Relu", "x", "x", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "is also an input");
    put_ends(&graph, "1", "1");
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "1");
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "input \"x\" is defined twice");
    put_ends(&graph, "1", "1");
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_FLOAT, "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "output \"y\" is defined twice");
    put_ends(&graph, "1", "1");
    for (int i = 0; i < 2; i++)
        onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "w", ONNX_FLOAT, "1", "0123", 4);
    onnx_put_node(&graph, "Add", "x,w", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "initialiser \"w\" is defined twice");
}

static void test_onnx_import__missing_names(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Add", "x,gone", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "operand \"gone\"");
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Relu", "x", "z", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "output \"y\" is the result of no node");
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "1");
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "no outputs");
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Add", "x,", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "Add");
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Add", "", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "Add: 0 inputs");
}

static void test_onnx_import__output_types(void **state)
{
    (void)state;
    weft_buf graph = {0};
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "1");
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_INT64, "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "declared as int64, the nodes give f32");
    put_ends(&graph, "1", "1,1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    subject s = import(&graph, 17);
    check_ok(&s);
    assert_true(says(&s, "declared with rank 2"));
    release(&s);
}

/* -- Refusals --------------------------------------------------------------------------------- */

static void test_onnx_import__collects_refused_operators(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "SequenceMap", "x", "a", NULL);
    onnx_put_node(&graph, "Relu", "a", "b", NULL);
    onnx_put_node(&graph, "ImageDecoder", "b", "c", NULL);
    onnx_put_node(&graph, "SequenceMap", "c", "d", NULL);
    onnx_put_node_in(&graph, 1, "ai.onnx.ml", "Dictionary", "d", "e", NULL);
    onnx_put_node_in(&graph, 1, "com.microsoft", "Nothing", "e", "y", NULL);
    subject s = import(&graph, 17);
    assert_int_equal(s.err, WEFT_ERR_UNSUP);
    assert_int_equal(weft_diag_count(s.diag), 4);
    assert_true(says(&s, "operator SequenceMap is"));
    assert_true(says(&s, "operator ImageDecoder is not supported: decode images before"));
    assert_true(says(&s, "operator ai.onnx.ml:Dictionary is"));
    assert_true(says(&s, "operator com.microsoft:Nothing is"));
    release(&s);
}

static void test_onnx_import__unknown_attributes(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    put_ends(&graph, "1", "1");
    onnx_put_attr_int(&attrs, "novelty", 1);
    onnx_put_node(&graph, "Relu", "x", "y", &attrs);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "Relu: attribute \"novelty\"");
    put_ends(&graph, "1", "1");
    onnx_put_attr_str(&attrs, "alpha", "1");
    onnx_put_node(&graph, "Elu", "x", "y", &attrs);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "\"alpha\" holds string, not float");
    put_ends(&graph, "1", "1");
    onnx_put_attr_float(&attrs, "alpha", 1);
    onnx_put_attr_float(&attrs, "alpha", 2);
    onnx_put_node(&graph, "Elu", "x", "y", &attrs);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "\"alpha\" is repeated");
    put_ends(&graph, "1", "1");
    onnx_put_attr_ref(&attrs, "alpha", "beta", 1);
    onnx_put_node(&graph, "Elu", "x", "y", &attrs);
    check_fails(import(&graph, 17), WEFT_ERR_INPUT, "outside of one");
}

static void test_onnx_import__opsets_of_operators(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Mish", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "operator Mish of opset 17");
    weft_buf model = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_int(&model, 1, 8);
    onnx_put_opset(&model, 8, "com.microsoft", 1);
    onnx_put_msg(&model, 7, &graph);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "default domain");
    put_ends(&graph, "1", "1");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_opset(&model, 8, "ai.onnx", 16);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "opsets 17 and 16");
}

static void test_onnx_import__too_many_symbols(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "1", "1");
    for (int i = 0; i < 1100; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        onnx_put_value(&graph, ONNX_INPUT, name, ONNX_FLOAT, name);
    }
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    check_fails(import(&graph, 17), WEFT_ERR_UNSUP, "more than 1024 symbolic dimensions");
}

/* Whatever the limit, running out of memory is an error value. */
static void test_onnx_import__memory_limits(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "a,b", "a,b");
    for (int i = 0; i < 100; i++) {
        char in[16], out[16];
        snprintf(in, sizeof in, i > 0 ? "v%d" : "x", i - 1);
        snprintf(out, sizeof out, i < 99 ? "v%d" : "y", i);
        onnx_put_node(&graph, "Relu", in, out, NULL);
    }
    onnx_put_model(&model, &graph, 17);
    int n_fail = 0, n_ok = 0;
    for (size_t limit = 1000; limit < 120000; limit += 500) {
        weft_module *m = weft_module_create(limit);
        weft_graph *g;
        if (!m)
            continue;
        weft_err err = weft_import_onnx_bytes(m, (const uint8_t *)model.at, model.len, NULL, NULL,
                                              NULL, NULL, &g);
        assert_true(err == WEFT_ERR_OK || err == WEFT_ERR_NOMEM);
        n_fail += err != WEFT_ERR_OK;
        n_ok += err == WEFT_ERR_OK;
        weft_module_destroy(m);
    }
    assert_true(n_fail > 0 && n_ok > 0);
    weft_buf_finish(&model);
}

/* -- Functions -------------------------------------------------------------------------------- */

/* model.double(x) = x + x; model.quad(x) = double(double(x)) */
static void test_onnx_import__functions(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "quad", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_node_in(&body, 7, "", "Add", "a,a", "b", NULL);
    onnx_put_function(&model, "mine", "double", "a", "b", "", &body);
    onnx_put_node_in(&body, 7, "mine", "double", "b", "a", NULL);
    onnx_put_node_in(&body, 7, "mine", "double", "x", "b", NULL);
    onnx_put_function(&model, "mine", "quad", "x", "a", "", &body);
    subject s = import_with(&model, NULL);
    float x[1] = {1.5f};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {1}, .data = x};
    check_values(&s, &in, 1, (float[]){6}, 1);
}

static void put_elu_function(weft_buf *model, bool has_default)
{
    weft_buf body = {0}, attrs = {0}, f = {0};
    onnx_put_attr_ref(&attrs, "alpha", "slope", 1);
    onnx_put_node_in(&body, 7, "", "Elu", "a", "b", &attrs);
    onnx_put_str(&f, 1, "myelu");
    onnx_put_str(&f, 4, "a");
    onnx_put_str(&f, 5, "b");
    weft_buf_add(&f, body.at, body.len);
    weft_buf_finish(&body);
    onnx_put_opset(&f, 9, "", 17);
    onnx_put_str(&f, 10, "mine");
    if (has_default) {
        weft_buf a = {0};
        onnx_put_str(&a, 1, "slope");
        onnx_put_float(&a, 2, 3.0f);
        onnx_put_int(&a, 20, 1);
        onnx_put_msg(&f, 11, &a);
    } else {
        onnx_put_str(&f, 6, "slope");
    }
    onnx_put_msg(model, ONNX_FUNCTION, &f);
}

static void test_onnx_import__function_attributes(void **state)
{
    (void)state;
    static const struct {
        bool has_default, is_given;
        float alpha;
    } cases[] = {
        {false, false, 1.0f}, {true, false, 3.0f}, {true, true, 2.0f}, {false, true, 2.0f}};
    for (size_t i = 0; i < 4; i++) {
        weft_buf graph = {0}, model = {0}, attrs = {0};
        put_ends(&graph, "1", "1");
        if (cases[i].is_given)
            onnx_put_attr_float(&attrs, "slope", 2.0f);
        onnx_put_node_in(&graph, 1, "mine", "myelu", "x", "y", &attrs);
        onnx_put_model(&model, &graph, 17);
        put_elu_function(&model, cases[i].has_default);
        subject s = import_with(&model, NULL);
        float x[1] = {-100.0f};
        weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {1}, .data = x};
        check_values(&s, &in, 1, (float[]){-cases[i].alpha}, 1);
    }
}

static void test_onnx_import__function_cycles(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "ping", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_node_in(&body, 7, "mine", "pong", "a", "b", NULL);
    onnx_put_function(&model, "mine", "ping", "a", "b", "", &body);
    onnx_put_node_in(&body, 7, "mine", "ping", "a", "b", NULL);
    onnx_put_function(&model, "mine", "pong", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "function \"ping\" calls itself");
}

/* f0 calls f1 twice, f1 calls f2 twice, ...: 2^60 calls from a small file. */
static void test_onnx_import__function_explosion(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f0", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    for (int i = 0; i < 60; i++) {
        char name[16], next[16];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(next, sizeof next, "f%d", i + 1);
        onnx_put_node_in(&body, 7, "mine", next, "a", "c", NULL);
        onnx_put_node_in(&body, 7, "mine", next, "c", "b", NULL);
        onnx_put_function(&model, "mine", name, "a", "b", "", &body);
    }
    onnx_put_node_in(&body, 7, "", "Identity", "a", "b", NULL);
    onnx_put_function(&model, "mine", "f60", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_NOMEM, "1000000 nodes");
}

static void test_onnx_import__function_depth(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f0", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    for (int i = 0; i < 100; i++) {
        char name[16], next[16];
        snprintf(name, sizeof name, "f%d", i);
        snprintf(next, sizeof next, "f%d", i + 1);
        onnx_put_node_in(&body, 7, "mine", next, "a", "b", NULL);
        onnx_put_function(&model, "mine", name, "a", "b", "", &body);
    }
    onnx_put_node_in(&body, 7, "", "Identity", "a", "b", NULL);
    onnx_put_function(&model, "mine", "f100", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "more than 64 deep");
}

static void test_onnx_import__function_mistakes(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0};
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f", "x,x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_node_in(&body, 7, "", "Identity", "a", "b", NULL);
    onnx_put_function(&model, "mine", "f", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "2 inputs and 1 outputs");
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_node_in(&body, 7, "", "Identity", "a", "c", NULL);
    onnx_put_function(&model, "mine", "f", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "output \"b\" is never computed");
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    for (int i = 0; i < 2; i++) {
        onnx_put_node_in(&body, 7, "", "Identity", "a", "b", NULL);
        onnx_put_function(&model, "mine", "f", "a", "b", "", &body);
    }
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "defined twice");
    /* Names of the caller are not seen inside. */
    put_ends(&graph, "1", "1");
    onnx_put_node_in(&graph, 1, "mine", "f", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_node_in(&body, 7, "", "Identity", "x", "b", NULL);
    onnx_put_function(&model, "mine", "f", "a", "b", "", &body);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "operand \"x\"");
}

/* -- Forms of older opsets -------------------------------------------------------------------- */

static weft_tensor f32_tensor(float *x, int32_t rank, int64_t d0, int64_t d1, int64_t d2)
{
    return (weft_tensor){.dtype = WEFT_DTYPE_F32, .rank = rank, .dim = {d0, d1, d2}, .data = x};
}

static void test_onnx_opset__constants(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    put_ends(&graph, "2", "2");
    onnx_put_attr_float(&attrs, "value_float", 2.5f);
    onnx_put_node(&graph, "Constant", "", "c", &attrs);
    onnx_put_node(&graph, "Mul", "x,c", "y", NULL);
    subject s = import(&graph, 13);
    assert_int_equal(weft_graph_node_count(s.g), 1);
    float x[2] = {1, 2};
    weft_tensor in = f32_tensor(x, 1, 2, 0, 0);
    check_values(&s, &in, 1, (float[]){2.5f, 5}, 2);
    put_ends(&graph, "2", "2");
    onnx_put_attr_str(&attrs, "value_string", "text");
    onnx_put_node(&graph, "Constant", "", "c", &attrs);
    onnx_put_node(&graph, "Mul", "x,c", "y", NULL);
    check_fails(import(&graph, 13), WEFT_ERR_UNSUP, "value_string");
}

/* Softmax of [2, 2, 2] at axis 1 of opset 11: each half of four elements sums to one. */
static void test_onnx_opset__softmax_of_halves(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "n,2,2", "n,2,2");
    onnx_put_node(&graph, "Softmax", "x", "y", NULL);
    subject s = import(&graph, 11);
    float x[4] = {0, 0, 0, 0};
    weft_tensor in = f32_tensor(x, 3, 1, 2, 2);
    check_values(&s, &in, 1, (float[]){0.25f, 0.25f, 0.25f, 0.25f}, 4);
    put_ends(&graph, "n,2,2", "n,2,2");
    onnx_put_node(&graph, "Softmax", "x", "y", NULL);
    s = import(&graph, 13);
    check_values(&s, &in, 1, (float[]){0.5f, 0.5f, 0.5f, 0.5f}, 4);
}

static void test_onnx_opset__old_broadcast(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    float w[2] = {10, 20};
    put_ends(&graph, "1,2,2", "1,2,2");
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "w", ONNX_FLOAT, "2", w, sizeof w);
    onnx_put_attr_int(&attrs, "broadcast", 1);
    onnx_put_attr_int(&attrs, "axis", 1);
    onnx_put_node(&graph, "Add", "x,w", "y", &attrs);
    subject s = import(&graph, 6);
    float x[4] = {1, 2, 3, 4};
    weft_tensor in = f32_tensor(x, 3, 1, 2, 2);
    check_values(&s, &in, 1, (float[]){11, 12, 23, 24}, 4);
}

static void test_onnx_opset__squeeze_and_reduce(void **state)
{
    (void)state;
    for (int opset = 11; opset <= 18; opset += 7) {
        weft_buf graph = {0}, attrs = {0}, more = {0};
        int64_t axis = 1;
        put_ends(&graph, "n,1,2", "n");
        onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "one", ONNX_INT64, "1", &axis, sizeof axis);
        onnx_put_attr_int(&more, "keepdims", 0);
        if (opset == 11) {
            onnx_put_attr_ints(&attrs, "axes", "1");
            onnx_put_attr_ints(&more, "axes", "1");
        }
        onnx_put_node(&graph, "Squeeze", opset == 11 ? "x" : "x,one", "a", &attrs);
        onnx_put_node(&graph, "ReduceMax", opset == 11 ? "a" : "a,one", "y", &more);
        subject s = import(&graph, opset);
        float x[4] = {1, 2, 4, 3};
        weft_tensor in = f32_tensor(x, 3, 2, 1, 2);
        check_values(&s, &in, 1, (float[]){2, 4}, 2);
    }
}

static void test_onnx_opset__slice_pad_clip(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    put_ends(&graph, "4", "4");
    onnx_put_attr_ints(&attrs, "starts", "1");
    onnx_put_attr_ints(&attrs, "ends", "9223372036854775807");
    onnx_put_node(&graph, "Slice", "x", "a", &attrs);
    onnx_put_attr_ints(&attrs, "pads", "1,0");
    onnx_put_attr_float(&attrs, "value", 7);
    onnx_put_node(&graph, "Pad", "a", "b", &attrs);
    onnx_put_attr_float(&attrs, "max", 6);
    onnx_put_node(&graph, "Clip", "b", "y", &attrs);
    subject s = import(&graph, 9);
    float x[4] = {1, 2, 3, 8};
    weft_tensor in = f32_tensor(x, 1, 4, 0, 0);
    check_values(&s, &in, 1, (float[]){6, 2, 3, 6}, 4);
}

static void test_onnx_opset__split(void **state)
{
    (void)state;
    for (int opset = 11; opset <= 13; opset++) {
        weft_buf graph = {0}, attrs = {0};
        put_ends(&graph, "6", "2");
        if (opset == 12)
            onnx_put_attr_ints(&attrs, "split", "2,2,2");
        onnx_put_node(&graph, "Split", "x", ",y,", &attrs);
        subject s = import(&graph, opset);
        float x[6] = {1, 2, 3, 4, 5, 6};
        weft_tensor in = f32_tensor(x, 1, 6, 0, 0);
        check_values(&s, &in, 1, (float[]){3, 4}, 2);
    }
}

static void test_onnx_opset__dropout(void **state)
{
    (void)state;
    weft_buf graph = {0};
    put_ends(&graph, "2", "2");
    onnx_put_node(&graph, "Dropout", "x", "y", NULL);
    subject s = import(&graph, 13);
    float x[2] = {1, 2};
    weft_tensor in = f32_tensor(x, 1, 2, 0, 0);
    check_values(&s, &in, 1, x, 2);
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "2");
    onnx_put_node(&graph, "Dropout", "x", "z,y", NULL);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_BOOL, "2");
    s = import(&graph, 13);
    check_values(&s, &in, 1, (float[]){1, 1}, 2);
    put_ends(&graph, "2", "2"); /* before opset 10 the mask has the operand's type */
    onnx_put_node(&graph, "Dropout", "x", "z,y", NULL);
    s = import(&graph, 9);
    check_values(&s, &in, 1, (float[]){0, 0}, 2);
    put_ends(&graph, "2", "2");
    onnx_put_value(&graph, ONNX_INPUT, "t", ONNX_BOOL, "");
    onnx_put_node(&graph, "Dropout", "x,,t", "y", NULL);
    check_fails(import(&graph, 13), WEFT_ERR_UNSUP, "ratio that is not constant");
}

static void test_onnx_opset__constant_of_shape(void **state)
{
    (void)state;
    weft_buf graph = {0};
    int64_t shape = 2, value = INT64_MAX;
    weft_buf attr = {0}, node = {0};
    onnx_put_str(&attr, 1, "value");
    onnx_put_tensor_raw(&attr, 5, "", ONNX_INT64, "1", &value, sizeof value);
    onnx_put_int(&attr, 20, 4);
    onnx_put_msg(&node, 5, &attr);
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "s", ONNX_INT64, "1", &shape, sizeof shape);
    onnx_put_node(&graph, "ConstantOfShape", "s", "y", &node);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_INT64, "2");
    subject s = import(&graph, 13);
    check_ok(&s);
    weft_arena *arena = weft_arena_create(0);
    weft_tensor out;
    assert_int_equal(weft_graph_eval(s.g, NULL, 0, arena, s.diag, &out, 1), WEFT_ERR_OK);
    assert_true(weft_tensor_get_i64(&out, 1) == INT64_MAX);
    weft_arena_destroy(arena);
    release(&s);
}

static void test_onnx_opset__cast_by_name(void **state)
{
    (void)state;
    weft_buf graph = {0}, attrs = {0};
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_INT32, "1");
    onnx_put_attr_str(&attrs, "to", "FLOAT");
    onnx_put_node(&graph, "Cast", "x", "y", &attrs);
    onnx_put_value(&graph, ONNX_OUTPUT, "y", ONNX_FLOAT, "1");
    subject s = import(&graph, 5);
    int32_t x[1] = {7};
    weft_tensor in = {.dtype = WEFT_DTYPE_I32, .rank = 1, .dim = {1}, .data = x};
    check_values(&s, &in, 1, (float[]){7}, 1);
}

static void test_onnx_opset__center_crop_pad(void **state)
{
    (void)state;
    weft_buf graph = {0};
    int64_t shape[2] = {2, 4};
    put_ends(&graph, "5,1", "2,4");
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "s", ONNX_INT64, "2", shape, sizeof shape);
    onnx_put_node(&graph, "CenterCropPad", "x,s", "y", NULL);
    subject s = import(&graph, 18);
    float x[5] = {1, 2, 3, 4, 5};
    weft_tensor in = f32_tensor(x, 2, 5, 1, 0);
    check_values(&s, &in, 1, (float[]){0, 2, 0, 0, 0, 3, 0, 0}, 8);
    /* The shape is an input. */
    onnx_put_value(&graph, ONNX_INPUT, "s", ONNX_INT64, "2");
    put_ends(&graph, "5,1", "2,4");
    onnx_put_node(&graph, "CenterCropPad", "x,s", "y", NULL);
    s = import(&graph, 18);
    weft_tensor both[2] = {{.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {2}, .data = shape}, in};
    check_values(&s, both, 2, (float[]){0, 2, 0, 0, 0, 3, 0, 0}, 8);
}

/* Scale and bias of one element a group, and then a channel. */
static void test_onnx_opset__group_norm(void **state)
{
    (void)state;
    for (int opset = 18; opset <= 21; opset += 3) {
        weft_buf graph = {0}, attrs = {0};
        float scale[4] = {1, 2, 0, 0}, bias[4] = {10, 20, 0, 0};
        if (opset == 21) {
            memcpy(scale, (float[]){1, 1, 2, 2}, sizeof scale);
            memcpy(bias, (float[]){10, 10, 20, 20}, sizeof bias);
        }
        size_t len = opset == 21 ? 16 : 8;
        const char *dims = opset == 21 ? "4" : "2";
        put_ends(&graph, "1,4,1", "1,4,1");
        onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "s", ONNX_FLOAT, dims, scale, len);
        onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "b", ONNX_FLOAT, dims, bias, len);
        onnx_put_attr_int(&attrs, "num_groups", 2);
        onnx_put_attr_float(&attrs, "epsilon", 0);
        onnx_put_node(&graph, "GroupNormalization", "x,s,b", "y", &attrs);
        subject s = import(&graph, opset);
        float x[4] = {-3, 3, 1, 2};
        weft_tensor in = f32_tensor(x, 3, 1, 4, 1);
        check_values(&s, &in, 1, (float[]){9, 11, 18, 22}, 4);
    }
}

/* y = squeeze(x [frames, 1, batch, 4]) without axes. The model works for sizes that are not 1, or
 * for batch 1 because only then y has the rank that the file declares. */
static void test_onnx_import__squeeze_of_symbols(void **state)
{
    (void)state;
    weft_import_dim many = {"batch", 1, 8};
    const struct {
        const char *declared;
        const weft_import_dim *given;
        uint32_t rank, n_symbol;
    } cases[] = {
        {"frames,batch,4", NULL, 3, 2}, /* as the nodes give it */
        {"frames,4", NULL, 2, 1},
        {NULL, NULL, 3, 2},        /* the file does not say */
        {"4", NULL, 3, 2},         /* not the rank at batch 1 */
        {"frames,4", &many, 3, 2}, /* what the user gives stays */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_buf graph = {0}, model = {0};
        put_ends(&graph, "frames,1,batch,4", cases[i].declared);
        onnx_put_node(&graph, "Squeeze", "x", "y", NULL);
        onnx_put_model(&model, &graph, i % 2 ? 17 : 9);
        weft_import_options options = {.dim = cases[i].given, .n_dim = cases[i].given != NULL};
        subject s = import_with(&model, &options);
        check_ok(&s);
        assert_int_equal(weft_val_ttype(s.m, weft_graph_output(s.g, 0))->rank, cases[i].rank);
        assert_int_equal(weft_graph_symbol_count(s.g), cases[i].n_symbol);
        assert_int_equal(says(&s, "compiled for batch = 1: a Squeeze without axes"),
                         cases[i].n_symbol < 2);
        assert_int_equal(weft_graph_count(s.m), 1);
        release(&s);
    }
}

/* The shapes that exporters compute: Shape, Gather, Unsqueeze, Concat, Reshape stay symbolic. */
static void test_onnx_import__shape_chains(void **state)
{
    (void)state;
    weft_buf graph = {0};
    int64_t zero = 0, minus = -1;
    put_ends(&graph, "batch,seq,4", "batch,rest");
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "zero", ONNX_INT64, "", &zero, sizeof zero);
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "axes", ONNX_INT64, "1", &zero, sizeof zero);
    onnx_put_tensor_raw(&graph, ONNX_INITIALISER, "m1", ONNX_INT64, "1", &minus, sizeof minus);
    onnx_put_node(&graph, "Shape", "x", "s", NULL);
    onnx_put_node(&graph, "Gather", "s,zero", "b", NULL);
    onnx_put_node(&graph, "Unsqueeze", "b,axes", "b1", NULL);
    weft_buf attrs = {0};
    onnx_put_attr_int(&attrs, "axis", 0);
    onnx_put_node(&graph, "Concat", "b1,m1", "t", &attrs);
    onnx_put_node(&graph, "Reshape", "x,t", "y", NULL);
    subject s = import(&graph, 17);
    check_ok(&s);
    weft_dimpool *pool = weft_module_dims(s.m);
    const weft_ttype *x = weft_val_ttype(s.m, weft_graph_input(s.g, 0));
    const weft_ttype *y = weft_val_ttype(s.m, weft_graph_output(s.g, 0));
    assert_int_equal(y->rank, 2);
    assert_true(y->dim[0] == x->dim[0]);
    assert_true(y->dim[1] == weft_dim_mul(pool, x->dim[1], 4));
    weft_buf text = {0};
    assert_non_null(strstr(text_of(&s, &text), "reshape"));
    weft_buf_finish(&text);
    release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_import__symbols),
        cmocka_unit_test(test_onnx_import__bounds_of_symbols),
        cmocka_unit_test(test_onnx_import__names_of_graphs),
        cmocka_unit_test(test_onnx_import__initialiser_that_is_also_an_input),
        cmocka_unit_test(test_onnx_import__inputs_need_types),
        cmocka_unit_test(test_onnx_import__nodes_are_sorted),
        cmocka_unit_test(test_onnx_import__long_chain_backwards),
        cmocka_unit_test(test_onnx_import__cycles),
        cmocka_unit_test(test_onnx_import__names_are_single),
        cmocka_unit_test(test_onnx_import__missing_names),
        cmocka_unit_test(test_onnx_import__output_types),
        cmocka_unit_test(test_onnx_import__collects_refused_operators),
        cmocka_unit_test(test_onnx_import__unknown_attributes),
        cmocka_unit_test(test_onnx_import__opsets_of_operators),
        cmocka_unit_test(test_onnx_import__too_many_symbols),
        cmocka_unit_test(test_onnx_import__memory_limits),
        cmocka_unit_test(test_onnx_import__functions),
        cmocka_unit_test(test_onnx_import__function_attributes),
        cmocka_unit_test(test_onnx_import__function_cycles),
        cmocka_unit_test(test_onnx_import__function_explosion),
        cmocka_unit_test(test_onnx_import__function_depth),
        cmocka_unit_test(test_onnx_import__function_mistakes),
        cmocka_unit_test(test_onnx_opset__constants),
        cmocka_unit_test(test_onnx_opset__softmax_of_halves),
        cmocka_unit_test(test_onnx_opset__old_broadcast),
        cmocka_unit_test(test_onnx_opset__squeeze_and_reduce),
        cmocka_unit_test(test_onnx_opset__slice_pad_clip),
        cmocka_unit_test(test_onnx_opset__split),
        cmocka_unit_test(test_onnx_opset__dropout),
        cmocka_unit_test(test_onnx_opset__constant_of_shape),
        cmocka_unit_test(test_onnx_opset__cast_by_name),
        cmocka_unit_test(test_onnx_opset__center_crop_pad),
        cmocka_unit_test(test_onnx_opset__group_norm),
        cmocka_unit_test(test_onnx_import__shape_chains),
        cmocka_unit_test(test_onnx_import__squeeze_of_symbols),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
