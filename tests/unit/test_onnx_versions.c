/* Which version of an operator an opset means, and gates on IR versions and opsets. */
#include "frontend/onnx_int.h"
#include "tests/support/onnx_subject.h"

static void test_onnx_versions__largest_not_above(void **state)
{
    (void)state;
    assert_int_equal(weft_onnx__since("Add", 1), 1);
    assert_int_equal(weft_onnx__since("Add", 6), 6);
    assert_int_equal(weft_onnx__since("Add", 12), 7);
    assert_int_equal(weft_onnx__since("Add", 28), 14);
    assert_int_equal(weft_onnx__since("Acosh", 8), 0);
    assert_int_equal(weft_onnx__since("Xor", 28), 7);
    assert_int_equal(weft_onnx__since("NoSuchOperator", 28), 0);
}

/* An operator that newer opsets leave alone is accepted without a list of those opsets. */
static void test_onnx_versions__read(void **state)
{
    (void)state;
    assert_true(weft_onnx__is_read("Add", 28));
    assert_true(weft_onnx__is_read("Add", 1000));
    assert_false(weft_onnx__is_read("ImageDecoder", 20));
    assert_true(weft_onnx__is_read("ImageDecoder", 19)); /* not there yet: refused by its row */
    assert_true(weft_onnx__is_read("NoSuchOperator", 28));
}

/* Each operator that has a row is in the table, and no version is newer than the newest opset. */
static void test_onnx_versions__cover_the_rows(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int version[16];
    } known[] = {
#define V(operator_name, newest_read, ...) {#operator_name, {newest_read, __VA_ARGS__}},
#include "frontend/onnx_versions.def"
#undef V
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        assert_true(i == 0 || strcmp(known[i - 1].name, known[i].name) < 0);
        for (size_t k = 1; known[i].version[k]; k++) {
            assert_true(known[i].version[k] <= WEFT_ONNX_OPSET_LAST);
            assert_true(k == 1 || known[i].version[k - 1] < known[i].version[k]);
            assert_int_equal(weft_onnx__since(known[i].name, known[i].version[k]),
                             known[i].version[k]);
        }
    }
    int first, last;
    const char *domain;
    for (size_t i = 0; weft_import_op_at(i, &domain, &first, &last); i++) {
        const char *name = weft_import_op_at(i, &domain, &first, &last);
        if (*domain || weft_onnx__since(name, WEFT_ONNX_OPSET_LAST) == 0)
            continue; /* an operator that exporters write into the default domain */
        if (weft_onnx__since(name, first) == 0 || !weft_onnx__is_read(name, first))
            fail_msg("%s: opset %d is not a version that has been read", name, first);
    }
}

static subject import_version(int64_t ir, int64_t opset)
{
    weft_buf graph = {0}, model = {0};
    put_ends(&graph, "2", "2");
    onnx_put_node(&graph, "Relu", "x", "y", NULL);
    onnx_put_int(&model, 1, ir);
    onnx_put_msg(&model, 7, &graph);
    onnx_put_opset(&model, 8, "", opset);
    return import_with(&model, NULL);
}

static void test_onnx_versions__gates(void **state)
{
    (void)state;
    static const struct {
        int64_t ir, opset;
        const char *refused; /* NULL: accepted */
    } cases[] = {
        {3, 8, NULL},
        {14, 28, NULL},
        {10, 28, NULL},
        {2, 8, "ONNX IR version 2 is not supported: 3 to 14 are"},
        {15, 28, "ONNX IR version 15 is not supported: 3 to 14 are"},
        {14, 29, "opset 29 is not supported: 1 to 28 are (export with opset 28)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        subject s = import_version(cases[i].ir, cases[i].opset);
        if (cases[i].refused)
            check_fails(s, WEFT_ERR_UNSUP, cases[i].refused);
        else
            check_values(
                &s,
                &(weft_tensor){
                    .dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {2}, .data = (float[]){-1.0F, 2.0F}},
                1, (float[]){0.0F, 2.0F}, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_versions__largest_not_above),
        cmocka_unit_test(test_onnx_versions__read),
        cmocka_unit_test(test_onnx_versions__cover_the_rows),
        cmocka_unit_test(test_onnx_versions__gates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
