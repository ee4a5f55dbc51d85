#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/ir_int.h"

#include <stdlib.h>
#include <string.h>

static weft_err parse(const char *text, uint64_t limit, weft_diag *diag, weft_module **out)
{
    return weft_module__parse(text, strlen(text), "t.wir", NULL, limit, diag, out);
}

/* The generator is part of the format. */
static void test_random__is_splitmix64(void **state)
{
    (void)state;
    float f[3];
    int64_t i[3];
    uint8_t b[3];
    weft_weight__generate(WEFT_DTYPE_F32, 7, 3, f);
    weft_weight__generate(WEFT_DTYPE_I64, 7, 3, i);
    weft_weight__generate(WEFT_DTYPE_BOOL, 7, 3, b);
    /* First outputs of splitmix64 from 7. */
    const uint64_t x[] = {0x63cbe1e459320dd7u, 0x044c3cd7f43c661cu, 0xe6984080bab12a02u};
    for (int k = 0; k < 3; k++) {
        assert_true(f[k] == (float)((double)(x[k] >> 40) * 0x1p-24 - 0.5));
        assert_int_equal(i[k], x[k] >> 61);
        assert_int_equal(b[k], x[k] >> 63);
    }
}

static void test_print__is_a_fixed_point_of_every_graph_made_by_hand(void **state)
{
    (void)state;
    weft_module *m = weft_module_create(0), *again = NULL;
    weft_graph *g = weft_graph_create(m, "a graph \"quoted\"");
    weft_dim dim[] = {weft_graph_symbol(g, "n-batch", 1, 4), weft_dim_fresh(weft_module_dims(m))};
    weft_type type = weft_type_make(m, WEFT_DTYPE_F32, dim, 2);
    weft_val x = weft_graph_add_input(g, "input:0", type);
    uint8_t data[400] = {1, 2, 3};
    weft_dim hundred = 100;
    weft_weight_info info = {
        .type = weft_type_make(m, WEFT_DTYPE_F32, &hundred, 1), .data = data, .bytes = sizeof data};
    weft_val w = weft_weight_val(m, weft_weight_add(m, &info));
    weft_val in[] = {x, w, {0}};
    weft_type none[] = {type, {0}};
    weft_attr attr = WEFT_ATTR_OF_FLOAT(EPSILON, 1e-5);
    weft_node_spec spec = {.op = WEFT_OP_ADD,
                           .in = in,
                           .n_in = 3,
                           .out = none,
                           .n_out = 2,
                           .attr = &attr,
                           .n_attr = 1,
                           .loc = {weft_module_name_file(m, "a.onnx"), "Add:1", 3}};
    weft_node n = weft_node_append(g, &spec);
    weft_graph_add_output(g, "out put", weft_node_out(m, n, 0));
    weft_buf first = {0}, second = {0};
    weft_module_print(m, &first);
    assert_int_equal(parse(first.at, 1 << 20, NULL, &again), WEFT_ERR_OK);
    weft_module_print(again, &second);
    assert_string_equal(first.at, second.at);
    assert_non_null(strstr(first.at, "base64"));
    assert_string_equal(weft_graph_input_name(weft_graph_at(again, 0), 0), "input:0");
    weft_module_destroy(m);
    weft_module_destroy(again);
    weft_buf_finish(&first);
    weft_buf_finish(&second);
}

static void test_parse__limits_weights_in_sum(void **state)
{
    (void)state;
    static const char text[] = "wir 1 graph\n"
                               "weight $a : i8[600] = splat 1\n"
                               "weight $b : i8[600] = splat 1\n";
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    assert_int_equal(parse(text, 1000, diag, &m), WEFT_ERR_INPUT);
    assert_int_equal(weft_diag_at(diag, 0)->line, 3);
    assert_int_equal(parse(text, 1200, diag, &m), WEFT_ERR_OK);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
}

static void test_parse__refuses_nul_and_every_prefix(void **state)
{
    (void)state;
    static const char text[] =
        "wir 1 plan\n"
        "symbol ?b = [1, 8]\n"
        "weight $w \"x\" : f32[2] = dense [1.0, -inf]\n"
        "graph @g (%x : f32[?b,2]) {\n"
        "  symbol ?b \"b\"\n"
        "  %1 : f32[?b,2] = add %x, $w {axis = 1, pads = [1, 2]} loc \"f\" 3\n"
        "  return \"y\" %1\n"
        "  bucket {?b = 1} arena 0 {\n"
        "  }\n"
        "}";
    weft_module *m = NULL;
    size_t len = strlen(text), ok = 0;
    for (size_t i = 0; i <= len; i++) {
        /* A copy of exactly the size of the text, so that a sanitizer detects reads past it. */
        char *copy = malloc(i ? i : 1);
        memcpy(copy, text, i);
        weft_err err = weft_module__parse(copy, i, "t.wir", NULL, 1 << 20, NULL, &m);
        free(copy);
        if (err == WEFT_ERR_OK) {
            ok++;
            weft_module_destroy(m);
        }
    }
    /* The whole text, and prefixes that end after a complete statement before a graph. */
    assert_true(ok >= 1 && ok < 20);
    assert_int_equal(weft_module__parse("wir 1 graph\0", 12, NULL, NULL, 0, NULL, &m),
                     WEFT_ERR_INPUT);
}

static void test_parse__reads_weights_of_files(void **state)
{
    (void)state;
    static const char text[] = "wir 1 graph\n"
                               "weight $a : u8[100] = file \"ir.h\" offset 3\n"
                               "graph @g () {\n"
                               "  return \"a\" $a\n"
                               "}\n";
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    assert_int_equal(parse(text, 1 << 20, diag, &m), WEFT_ERR_INPUT);
    assert_int_equal(
        weft_module_parse(text, strlen(text), "t.wir", WEFT_SOURCE_DIR "/ir", diag, &m),
        WEFT_ERR_OK);
    const weft_weight_info *info = weft_weight_get(m, (weft_weight){1});
    assert_memory_equal(info->data, "The IR: several models", 22);
    weft_buf print = {0};
    weft_module_print(m, &print);
    assert_non_null(strstr(print.at, "file \"ir.h\" offset 3"));
    weft_buf_finish(&print);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random__is_splitmix64),
        cmocka_unit_test(test_print__is_a_fixed_point_of_every_graph_made_by_hand),
        cmocka_unit_test(test_parse__limits_weights_in_sum),
        cmocka_unit_test(test_parse__refuses_nul_and_every_prefix),
        cmocka_unit_test(test_parse__reads_weights_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
