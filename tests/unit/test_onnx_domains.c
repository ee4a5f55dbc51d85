/* Operators of other domains than the default one: look-up by domain, name and version. */
#include "tests/support/onnx_subject.h"

/* y = op(x) in a model that imports `version` of the domain (0: not at all). */
static subject import_one(const char *domain, int64_t version, const char *op, weft_buf *attrs)
{
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "2", "2");
    onnx_put_node_in(&graph, 1, domain, op, "x", "y", attrs);
    onnx_put_model(&model, &graph, 17);
    if (version)
        onnx_put_opset(&model, 8, domain, version);
    return import_with(&model, NULL);
}

static void check_one(subject s, const float *wanted)
{
    float x[2] = {-1.0F, 2.0F};
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = x};
    check_values(&s, &in, 1, wanted, 2);
}

static weft_buf scaler(float offset, float scale)
{
    weft_buf attrs = {0};
    onnx_put_attr_floats(&attrs, "offset", &offset, 1);
    onnx_put_attr_floats(&attrs, "scale", &scale, 1);
    return attrs;
}

static void test_onnx_domains__tables_are_sorted(void **state)
{
    (void)state;
    int first, last;
    const char *before = "", *domain, *domain_before = "";
    size_t i = 0, n_domain = 1;
    for (const char *name; (name = weft_import_op_at(i, &domain, &first, &last)) != NULL; i++) {
        bool same = strcmp(domain, domain_before) == 0;
        assert_true(!same || strcmp(before, name) <= 0);
        assert_true(first >= 1 && first <= last);
        n_domain += !same;
        before = name;
        domain_before = domain;
    }
    assert_true(i > 100);
    assert_int_equal(n_domain, 4);
}

static void test_onnx_domains__by_name_and_version(void **state)
{
    (void)state;
    weft_buf attrs = scaler(1.0F, 3.0F);
    check_one(import_one("ai.onnx.ml", 1, "Scaler", &attrs), (float[]){-6.0F, 3.0F});
    attrs = scaler(1.0F, 3.0F);
    check_one(import_one("ai.onnx.ml", 5, "Scaler", &attrs), (float[]){-6.0F, 3.0F});
    /* onnxruntime reads files that import the default domain only. */
    check_one(import_one("com.microsoft", 0, "Gelu", NULL), (float[]){-0.1586553F, 1.9544997F});
    attrs = scaler(1.0F, 3.0F);
    check_fails(import_one("ai.onnx.ml", 99, "Scaler", &attrs), WEFT_ERR_UNSUP,
                "operator ai.onnx.ml:Scaler of opset 99 is not supported");
}

static void test_onnx_domains__are_apart(void **state)
{
    (void)state;
    check_fails(import_one("ai.onnx.ml", 1, "Relu", NULL), WEFT_ERR_UNSUP,
                "operator ai.onnx.ml:Relu is not supported");
    check_fails(import_one("", 0, "Scaler", NULL), WEFT_ERR_UNSUP,
                "operator Scaler is not supported");
    check_fails(import_one("org.example", 3, "Relu", NULL), WEFT_ERR_UNSUP,
                "operator org.example:Relu is not supported: the domain is unknown");
}

static void test_onnx_domains__messages_name_the_domain(void **state)
{
    (void)state;
    weft_buf attrs = scaler(1.0F, 3.0F);
    onnx_put_attr_int(&attrs, "mood", 1);
    check_fails(import_one("ai.onnx.ml", 1, "Scaler", &attrs), WEFT_ERR_UNSUP,
                "ai.onnx.ml:Scaler: attribute \"mood\" is not supported");
    float three[3] = {1.0F, 2.0F, 3.0F};
    onnx_put_attr_floats(&attrs, "offset", three, 3);
    check_fails(import_one("ai.onnx.ml", 1, "Scaler", &attrs), WEFT_ERR_INPUT,
                "\"offset\" has 3 numbers");
    onnx_put_attr_int(&attrs, "offset", 3);
    check_fails(import_one("ai.onnx.ml", 1, "Scaler", &attrs), WEFT_ERR_INPUT,
                "\"offset\" holds int, not floats");
}

static void test_onnx_domains__versions_contradict(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "2", "2");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_model(&model, &graph, 17);
    onnx_put_opset(&model, 8, "ai.onnx.ml", 1);
    onnx_put_opset(&model, 8, "ai.onnx.ml", 3);
    check_fails(import_with(&model, NULL), WEFT_ERR_INPUT, "imports opsets 1 and 3");
}

/* A function without an import of the domain has the model's. */
static void test_onnx_domains__in_functions(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0}, body = {0}, attrs = scaler(0.0F, 2.0F);
    put_ends(&graph, "2", "2");
    onnx_put_node_in(&graph, 1, "local", "Twice", "x", "y", NULL);
    onnx_put_node_in(&body, 7, "ai.onnx.ml", "Scaler", "a", "b", &attrs);
    onnx_put_model(&model, &graph, 17);
    onnx_put_opset(&model, 8, "ai.onnx.ml", 1);
    onnx_put_function(&model, "local", "Twice", "a", "b", "", &body);
    check_one(import_with(&model, NULL), (float[]){-2.0F, 4.0F});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_domains__tables_are_sorted),
        cmocka_unit_test(test_onnx_domains__by_name_and_version),
        cmocka_unit_test(test_onnx_domains__are_apart),
        cmocka_unit_test(test_onnx_domains__messages_name_the_domain),
        cmocka_unit_test(test_onnx_domains__versions_contradict),
        cmocka_unit_test(test_onnx_domains__in_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
