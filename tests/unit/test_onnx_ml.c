/* Operators of ai.onnx.ml in the importer: trees, tables, labels of strings. */
#include "tests/support/onnx_subject.h"

static const char *const domain = "ai.onnx.ml";

static void put_strings(weft_buf *node, const char *name, const char *list)
{
    weft_buf a = {0};
    onnx_put_str(&a, 1, name);
    onnx_put_list(&a, 9, list);
    onnx_put_int(&a, 20, 8);
    onnx_put_msg(node, 5, &a);
}

static void put_floats(weft_buf *node, const char *name, size_t n, const float *x)
{
    onnx_put_attr_floats(node, name, x, n);
}

/* One operator from x [2, 2] to y (and z). */
static subject import_one(const char *op, const char *out, weft_buf *attrs)
{
    weft_buf graph = {0}, model = {0};
    onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "2,2");
    for (const char *o = out; *o; o += 1 + (o[1] == ',')) {
        char name[2] = {*o, 0};
        onnx_put_value(&graph, ONNX_OUTPUT, name, 0, NULL);
    }
    onnx_put_node_in(&graph, 1, domain, op, "x", out, attrs);
    onnx_put_model(&model, &graph, 17);
    onnx_put_opset(&model, 8, domain, 3);
    return import_with(&model, NULL);
}

/* x[0] <= 0.5 ? 10 : (x[1] <= 1.5 ? 20 : 30), with these children and features. */
static weft_buf tree_with(const char *yes, const char *no, const char *features, const char *modes)
{
    weft_buf a = {0};
    onnx_put_attr_ints(&a, "nodes_treeids", "0,0,0,0,0");
    onnx_put_attr_ints(&a, "nodes_nodeids", "0,1,2,3,4");
    onnx_put_attr_ints(&a, "nodes_truenodeids", yes);
    onnx_put_attr_ints(&a, "nodes_falsenodeids", no);
    onnx_put_attr_ints(&a, "nodes_featureids", features);
    put_strings(&a, "nodes_modes", modes);
    put_floats(&a, "nodes_values", 5, (float[]){0.5F, 0, 1.5F, 0, 0});
    onnx_put_attr_ints(&a, "target_treeids", "0,0,0");
    onnx_put_attr_ints(&a, "target_nodeids", "1,3,4");
    onnx_put_attr_ints(&a, "target_ids", "0,0,0");
    put_floats(&a, "target_weights", 3, (float[]){10, 20, 30});
    return a;
}

static const char *const plain_modes = "BRANCH_LEQ,LEAF,BRANCH_LEQ,LEAF,LEAF";

static void check_two(subject s, float a, float b)
{
    float x[4] = {0.5F, 9, 1, 2};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {2, 2}, .data = x};
    check_values(&s, &in, 1, (float[]){a, b}, 2);
}

static void test_onnx_ml__tree(void **state)
{
    (void)state;
    weft_buf a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,1,0,0", plain_modes);
    check_two(import_one("TreeEnsembleRegressor", "y", &a), 10, 30);
    a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,1,0,0", "BRANCH_LT,LEAF,BRANCH_GTE,LEAF,LEAF");
    check_two(import_one("TreeEnsembleRegressor", "y", &a), 20, 20);
}

static void test_onnx_ml__tree_mistakes(void **state)
{
    (void)state;
    weft_buf a = tree_with("2,0,0,0,0", "2,0,4,0,0", "0,0,1,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "on a cycle");
    a = tree_with("1,0,2,0,0", "2,0,4,0,0", "0,0,1,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "on a cycle");
    a = tree_with("1,0,7,0,0", "2,0,4,0,0", "0,0,1,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT,
                "tree 0 has no node 7");
    a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,2,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "tests feature 2");
    a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,-1,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "tests feature -1");
    a = tree_with("1,0,3,0,0", "2,0,4,0", "0,0,1,0,0", plain_modes);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT,
                "\"nodes_falsenodeids\" has 4 elements, expected 5");
    a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,1,0,0", "BRANCH,LEAF,LEAF,LEAF,LEAF");
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "mode \"BRANCH\"");
    a = tree_with("1,0,3,0,0", "2,0,4,0,0", "0,0,1,0,0", plain_modes);
    onnx_put_attr_int(&a, "n_targets", 0);
    check_fails(import_one("TreeEnsembleRegressor", "y", &a), WEFT_ERR_INPUT, "0 targets");
}

static weft_buf linear(const char *strings)
{
    weft_buf a = {0};
    put_floats(&a, "coefficients", 4, (float[]){1, 0, 0, 1});
    put_floats(&a, "intercepts", 2, (float[]){0, 0});
    put_strings(&a, "classlabels_strings", strings);
    return a;
}

/* Labels of strings are left out; scores are not. */
static void test_onnx_ml__labels_of_strings(void **state)
{
    (void)state;
    weft_buf a = linear("cat,dog");
    subject s = import_one("LinearClassifier", "y,z", &a);
    check_ok(&s);
    assert_true(says(&s, "output \"y\" is a tensor of strings: it is left out"));
    assert_int_equal(weft_graph_output_count(s.g), 1);
    release(&s);
    a = linear("cat,dog");
    check_fails(import_one("LinearClassifier", "y", &a), WEFT_ERR_UNSUP,
                "all outputs are tensors of strings");
}

/* A node that only moves labels of strings gives labels of strings; others are refused. */
static void test_onnx_ml__strings_move(void **state)
{
    (void)state;
    static const char *const next[2] = {"Identity", "Equal"};
    for (int i = 0; i < 2; i++) {
        weft_buf graph = {0}, model = {0}, a = linear("cat,dog");
        onnx_put_value(&graph, ONNX_INPUT, "x", ONNX_FLOAT, "2,2");
        onnx_put_value(&graph, ONNX_OUTPUT, "l", 0, NULL);
        onnx_put_value(&graph, ONNX_OUTPUT, "z", 0, NULL);
        onnx_put_node_in(&graph, 1, domain, "LinearClassifier", "x", "y,z", &a);
        onnx_put_node(&graph, next[i], i ? "y,y" : "y", "l", NULL);
        onnx_put_model(&model, &graph, 17);
        subject s = import_with(&model, NULL);
        assert_int_equal(s.err, i ? WEFT_ERR_UNSUP : WEFT_ERR_OK);
        assert_true(says(&s, i ? "operator Equal on a tensor of strings" : "\"l\" is a tensor of"));
        release(&s);
    }
}

static void test_onnx_ml__encoders_refuse_strings(void **state)
{
    (void)state;
    weft_buf a = {0};
    put_strings(&a, "cats_strings", "a,b");
    check_fails(import_one("OneHotEncoder", "y", &a), WEFT_ERR_UNSUP, "categories of integers");
    put_strings(&a, "keys_strings", "a,b");
    onnx_put_attr_ints(&a, "values_int64s", "1,2");
    check_fails(import_one("LabelEncoder", "y", &a), WEFT_ERR_UNSUP, "strings as keys");
    check_fails(import_one("DictVectorizer", "y", NULL), WEFT_ERR_UNSUP,
                "ai.onnx.ml:DictVectorizer: strings and maps");
}

/* Keys in any order; the first of equal keys counts. */
static void test_onnx_ml__label_encoder(void **state)
{
    (void)state;
    weft_buf a = {0};
    put_floats(&a, "keys_floats", 4, (float[]){9, 0.5F, 1, 9});
    put_floats(&a, "values_floats", 4, (float[]){90, 5, 10, 99});
    onnx_put_attr_float(&a, "default_float", -7);
    subject s = import_one("LabelEncoder", "y", &a);
    float x[4] = {0.5F, 9, 1, 2};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {2, 2}, .data = x};
    check_values(&s, &in, 1, (float[]){5, 90, 10, -7}, 4);
}

/* zeros = 0: a category that the encoder does not know is an error when the model runs. */
static void test_onnx_ml__unknown_category(void **state)
{
    (void)state;
    float x[4] = {1, 2, 2, 1}, bad[4] = {1, 2, 3, 1};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {2, 2}, .data = x}, out;
    weft_buf a = {0};
    onnx_put_attr_ints(&a, "cats_int64s", "1,2");
    onnx_put_attr_int(&a, "zeros", 0);
    subject s = import_one("OneHotEncoder", "y", &a);
    check_ok(&s);
    weft_arena *arena = weft_arena_create(0);
    assert_int_equal(weft_graph_eval(s.g, &in, 1, arena, s.diag, &out, 1), WEFT_ERR_OK);
    assert_float_equal(weft_tensor_get_f64(&out, 3), 1, 0);
    in.data = bad;
    assert_int_equal(weft_graph_eval(s.g, &in, 1, arena, s.diag, &out, 1), WEFT_ERR_INPUT);
    assert_true(says(&s, "3 is not among the 2 keys"));
    weft_arena_destroy(arena);
    release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_ml__tree),
        cmocka_unit_test(test_onnx_ml__tree_mistakes),
        cmocka_unit_test(test_onnx_ml__labels_of_strings),
        cmocka_unit_test(test_onnx_ml__strings_move),
        cmocka_unit_test(test_onnx_ml__encoders_refuse_strings),
        cmocka_unit_test(test_onnx_ml__label_encoder),
        cmocka_unit_test(test_onnx_ml__unknown_category),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
