/* Control flow: an If whose condition is known becomes its branch; names of enclosing graphs. */
#include "tests/support/onnx_subject.h"

static void put_bool(weft_buf *graph, const char *name, bool x)
{
    char byte = x;
    onnx_put_tensor_raw(graph, ONNX_INITIALISER, name, ONNX_BOOL, "", &byte, 1);
}

static void put_ints(weft_buf *graph, const char *name, const char *dims, const int64_t *x,
                     size_t n)
{
    onnx_put_tensor_raw(graph, ONNX_INITIALISER, name, ONNX_INT64, dims, x, n * sizeof *x);
}

/* A branch of one node. */
static weft_buf branch(const char *op, const char *in, const char *out)
{
    weft_buf g = {0};
    onnx_put_node(&g, op, in, out, NULL);
    onnx_put_value(&g, ONNX_OUTPUT, out, ONNX_FLOAT, NULL);
    return g;
}

/* A branch whose output is a name of the graph around it. */
static weft_buf pass(const char *name)
{
    weft_buf g = {0};
    onnx_put_value(&g, ONNX_OUTPUT, name, ONNX_FLOAT, NULL);
    return g;
}

static void put_if(weft_buf *graph, const char *cond, const char *out, weft_buf *yes, weft_buf *no)
{
    weft_buf attrs = {0};
    onnx_put_attr_graph(&attrs, "then_branch", yes);
    onnx_put_attr_graph(&attrs, "else_branch", no);
    onnx_put_node(graph, "If", cond, out, &attrs);
}

static const float some[2] = {-1.0F, 2.0F};

/* y for x = (-1, 2). */
static void check_y(subject s, float a, float b)
{
    float x[2] = {some[0], some[1]};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = x};
    check_values(&s, &in, 1, (float[]){a, b}, 2);
}

static void test_onnx_flow__takes_the_branch(void **state)
{
    (void)state;
    for (int yes = 0; yes < 2; yes++) {
        weft_buf g = {0}, then = branch("Neg", "x", "y"), other = branch("Abs", "x", "y");
        put_ends(&g, "2", "2");
        put_bool(&g, "c", yes);
        /* The branches' results have the name of the node's result. */
        put_if(&g, "c", "y", &then, &other);
        check_y(import(&g, 17), 1.0F, yes ? -2.0F : 2.0F);
    }
}

static void test_onnx_flow__other_branch_is_not_read(void **state)
{
    (void)state;
    weft_buf g = {0}, then = branch("Neg", "x", "a"), other = branch("NoSuchOperator", "x", "b");
    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    put_if(&g, "c", "y", &then, &other);
    check_y(import(&g, 17), 1.0F, -2.0F);
}

/* squeeze(dim) of an unknown size, as torch exports it: If(Shape[1] == 1) {Squeeze} else {x}. */
static subject import_squeeze(const char *dims, int64_t rank)
{
    int64_t one = 1;
    weft_buf g = {0}, then = branch("Squeeze", "x,axes", "a"), other = pass("x"), axis = {0};
    onnx_put_value(&g, ONNX_INPUT, "x", ONNX_FLOAT, dims);
    onnx_put_value(&g, ONNX_OUTPUT, "y", ONNX_FLOAT, NULL);
    put_ints(&g, "axes", "1", &one, 1);
    put_ints(&g, "one", "", &one, 1);
    onnx_put_node(&g, "Shape", "x", "shape", NULL);
    onnx_put_attr_int(&axis, "axis", 0);
    onnx_put_node(&g, "Gather", "shape,one", "size", &axis);
    onnx_put_node(&g, "Equal", "size,one", "c", NULL);
    put_if(&g, "c", "y", &then, &other);
    subject s = import(&g, 17);
    if (s.err == WEFT_ERR_OK)
        assert_int_equal(weft_val_ttype(s.m, weft_graph_output(s.g, 0))->rank, rank);
    return s;
}

static void test_onnx_flow__sizes_decide(void **state)
{
    (void)state;
    const struct {
        const char *dims;
        int64_t rank;
    } some_dims[] = {{"2,1", 1}, {"2,3", 2}, {"n,1", 1}, {"n,7", 2}};
    for (size_t i = 0; i < sizeof some_dims / sizeof *some_dims; i++) {
        subject s = import_squeeze(some_dims[i].dims, some_dims[i].rank);
        check_ok(&s);
        release(&s);
    }
}

/* With a size that is not known the branch that squeezes is taken, and the size must be 1. */
static void test_onnx_flow__sizes_are_required(void **state)
{
    (void)state;
    subject s = import_squeeze("m,n", 1);
    check_ok(&s);
    assert_int_equal(weft_graph_count(s.m), 1);
    const weft_graph_require *equal = NULL;
    for (uint32_t i = 0; i < weft_graph_require_count(s.g); i++)
        if (strstr(weft_graph_require_at(s.g, i)->what, "If: compiled for sizes"))
            equal = weft_graph_require_at(s.g, i);
    assert_non_null(equal);
    int64_t symbol[2] = {3, 1};
    const weft_dimpool *dims = weft_module_dims(s.m);
    assert_null(weft_graph_find_broken(s.g, dims, symbol, 2));
    symbol[1] = 2;
    assert_non_null(weft_graph_find_broken(s.g, dims, symbol, 2));
    release(&s);
}

/* The condition is computed from numbers that only running the nodes tells: 2.5 > 1.5. */
static void test_onnx_flow__computed_condition(void **state)
{
    (void)state;
    float low = 1.5F, high = 2.5F;
    weft_buf g = {0}, then = branch("Neg", "x", "a"), other = branch("Abs", "x", "b");
    put_ends(&g, "2", "2");
    onnx_put_tensor_raw(&g, ONNX_INITIALISER, "low", ONNX_FLOAT, "1", &low, sizeof low);
    onnx_put_tensor_raw(&g, ONNX_INITIALISER, "high", ONNX_FLOAT, "1", &high, sizeof high);
    onnx_put_node(&g, "Greater", "high,low", "c", NULL);
    put_if(&g, "c", "y", &then, &other);
    check_y(import(&g, 17), 1.0F, -2.0F);
}

/* Names of the outermost graph in a branch of a branch; initialisers of branches; nodes of the file
 * in an order that puts the If before what its branch reads. */
static void test_onnx_flow__names_of_all_levels(void **state)
{
    (void)state;
    float two[2] = {2.0F, 3.0F};
    weft_buf g = {0}, inner = {0}, inner_else = pass("x"), outer = {0}, outer_else = pass("x");
    onnx_put_node(&inner, "Mul", "neg,k", "t", NULL);
    onnx_put_node(&inner, "Add", "t,m", "r", NULL);
    onnx_put_value(&inner, ONNX_OUTPUT, "r", ONNX_FLOAT, NULL);
    onnx_put_tensor_raw(&outer, ONNX_INITIALISER, "k", ONNX_FLOAT, "2", two, sizeof two);
    put_bool(&outer, "d", true);
    onnx_put_node(&outer, "Abs", "x", "m", NULL);
    put_if(&outer, "d", "s", &inner, &inner_else);
    onnx_put_value(&outer, ONNX_OUTPUT, "s", ONNX_FLOAT, NULL);
    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    put_if(&g, "c", "y", &outer, &outer_else);
    onnx_put_node(&g, "Neg", "x", "neg", NULL);
    check_y(import(&g, 17), 3.0F, -4.0F);
}

/* An initialiser of the outer graph that only a branch reads, and one that is its output. */
static void test_onnx_flow__initialiser_as_output(void **state)
{
    (void)state;
    float two[2] = {5.0F, 6.0F};
    weft_buf g = {0}, then = pass("w"), other = branch("Abs", "x", "b");
    put_ends(&g, "2", "2");
    onnx_put_tensor_raw(&g, ONNX_INITIALISER, "w", ONNX_FLOAT, "2", two, sizeof two);
    put_bool(&g, "c", true);
    put_if(&g, "c", "v", &then, &other);
    onnx_put_node(&g, "Add", "v,x", "y", NULL);
    check_y(import(&g, 17), 4.0F, 8.0F);
}

static void test_onnx_flow__fixed_input(void **state)
{
    (void)state;
    double rate = 16000;
    int64_t want = 16000;
    weft_buf g = {0}, model = {0}, then = branch("Neg", "x", "a"), other = branch("Abs", "x", "b");
    put_ends(&g, "2", "2");
    onnx_put_value(&g, ONNX_INPUT, "sr", ONNX_INT64, "");
    put_ints(&g, "want", "", &want, 1);
    onnx_put_node(&g, "Equal", "sr,want", "c", NULL);
    put_if(&g, "c", "y", &then, &other);
    onnx_put_model(&model, &g, 17);
    weft_import_value value = {.name = "sr", .x = &rate, .n = 1};
    subject s = import_with(&model, &(weft_import_options){.value = &value, .n_value = 1});
    check_ok(&s);
    assert_int_equal(weft_graph_input_count(s.g), 1);
    check_y(s, 1.0F, -2.0F);
}

static subject fix(const char *name, const double *x, size_t n, bool list)
{
    weft_buf g = {0}, model = {0};
    put_ends(&g, "2", "2");
    onnx_put_value(&g, ONNX_INPUT, "i", ONNX_INT32, "3");
    onnx_put_node(&g, "Neg", "x", "y", NULL);
    onnx_put_model(&model, &g, 17);
    weft_import_value value = {.name = name, .x = x, .n = n, .is_list = list};
    return import_with(&model, &(weft_import_options){.value = &value, .n_value = 1});
}

static void test_onnx_flow__wrong_values(void **state)
{
    (void)state;
    double x[4] = {1, 2, 3, 0.5};
    subject s = fix("i", x, 3, true);
    check_ok(&s);
    release(&s);
    check_fails(fix("j", x, 1, false), WEFT_ERR_INPUT, "no input \"j\"");
    check_fails(fix("i", x, 2, true), WEFT_ERR_INPUT, "does not have its shape");
    check_fails(fix("i", x + 3, 1, false), WEFT_ERR_INPUT, "no value of type i32");
}

static void test_onnx_flow__refuses_wrong_graphs(void **state)
{
    (void)state;
    weft_buf g = {0}, then = branch("Neg", "nowhere", "a"), other = pass("x");
    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    put_if(&g, "c", "y", &then, &other);
    check_fails(import(&g, 17), WEFT_ERR_INPUT, "\"nowhere\" is no result");

    weft_buf two = branch("Neg", "x", "a"), attrs = {0};
    onnx_put_value(&two, ONNX_OUTPUT, "x", ONNX_FLOAT, NULL);
    other = pass("x");
    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    put_if(&g, "c", "y", &two, &other);
    check_fails(import(&g, 17), WEFT_ERR_INPUT, "2 outputs, expected 1");

    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    onnx_put_node(&g, "If", "c", "y", &attrs);
    check_fails(import(&g, 17), WEFT_ERR_INPUT, "holds no graph");

    /* A branch that reads the result of its own If. */
    then = branch("Neg", "z", "a");
    other = pass("x");
    put_ends(&g, "2", "2");
    put_bool(&g, "c", true);
    put_if(&g, "c", "y", &then, &other);
    onnx_put_node(&g, "Abs", "y", "z", NULL);
    check_fails(import(&g, 17), WEFT_ERR_INPUT, "on a cycle");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_flow__takes_the_branch),
        cmocka_unit_test(test_onnx_flow__other_branch_is_not_read),
        cmocka_unit_test(test_onnx_flow__sizes_decide),
        cmocka_unit_test(test_onnx_flow__sizes_are_required),
        cmocka_unit_test(test_onnx_flow__computed_condition),
        cmocka_unit_test(test_onnx_flow__names_of_all_levels),
        cmocka_unit_test(test_onnx_flow__initialiser_as_output),
        cmocka_unit_test(test_onnx_flow__fixed_input),
        cmocka_unit_test(test_onnx_flow__wrong_values),
        cmocka_unit_test(test_onnx_flow__refuses_wrong_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
