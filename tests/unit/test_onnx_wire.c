/* Hostile messages that the wire format allows. */
#include "frontend/frontend.h"
#include "tests/support/onnx_writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct outcome {
    weft_err err;
    char text[400];
} outcome;

static outcome import_bytes(const void *bytes, size_t len)
{
    weft_module *m = weft_module_create((size_t)1 << 30);
    weft_diag *diag = weft_diag_create();
    weft_graph *g = NULL;
    outcome out = {.text = ""};
    out.err = weft_import_onnx_bytes(m, bytes, len, NULL, "t.onnx", NULL, diag, &g);
    if (weft_diag_count(diag))
        weft_diag_format(weft_diag_at(diag, 0), out.text, sizeof out.text);
    weft_diag_destroy(diag);
    weft_module_destroy(m);
    return out;
}

/* Finishes the buffer. */
static outcome import_buf(weft_buf *b)
{
    /* A copy of exactly the size of the message, so that a sanitizer detects reads past it. */
    uint8_t *exact = malloc(b->len ? b->len : 1);
    memcpy(exact, b->at ? b->at : "", b->len);
    outcome out = import_bytes(exact, b->len);
    free(exact);
    weft_buf_finish(b);
    return out;
}

#define assert_text(out, part)                                         \
    do {                                                               \
        if (!strstr((out).text, (part)))                               \
            fail_msg("\"%s\" does not hold \"%s\"", (out).text, part); \
    } while (0)

static void put_relu(weft_buf *graph)
{
    onnx_put_value(graph, ONNX_INPUT, "x", ONNX_FLOAT, "n,4");
    onnx_put_node(graph, "Relu", "x", "y", NULL);
    onnx_put_value(graph, ONNX_OUTPUT, "y", ONNX_FLOAT, "n,4");
}

static void test_onnx_wire__empty_file(void **state)
{
    (void)state;
    outcome out = import_bytes("", 0);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "no ONNX graph");
}

static void test_onnx_wire__truncations(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    onnx_put_model(&model, &graph, 17);
    for (size_t len = 0; len < model.len; len++) {
        uint8_t *part = malloc(len ? len : 1);
        memcpy(part, model.at, len);
        outcome out = import_bytes(part, len);
        assert_int_not_equal(out.err, WEFT_ERR_OK);
        free(part);
    }
    assert_int_equal(import_buf(&model).err, WEFT_ERR_OK);
}

static void test_onnx_wire__corruptions(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    onnx_put_model(&model, &graph, 17);
    for (size_t i = 0; i < model.len; i++) {
        char kept = model.at[i];
        for (int bit = 0; bit < 8; bit++) {
            model.at[i] = (char)(kept ^ (1 << bit));
            (void)import_bytes(model.at, model.len); /* no crash; many are still valid */
        }
        model.at[i] = kept;
    }
    weft_buf_finish(&model);
}

static void test_onnx_wire__varint_too_long(void **state)
{
    (void)state;
    weft_buf b = {0};
    weft_buf_putc(&b, 0x08);
    for (int i = 0; i < 10; i++)
        weft_buf_putc(&b, (char)0x80);
    weft_buf_putc(&b, 1);
    outcome out = import_buf(&b);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "malformed varint");
    /* Ten bytes, the last of which holds more than the 64th bit. */
    weft_buf_add(&b, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11);
    assert_int_equal(import_buf(&b).err, WEFT_ERR_INPUT);
}

static void test_onnx_wire__group_types(void **state)
{
    (void)state;
    for (int type = 3; type <= 7; type++) {
        if (type == 5)
            continue;
        weft_buf b = {0};
        onnx_put_varint(&b, (uint64_t)(100 << 3 | type));
        onnx_put_varint(&b, 1);
        outcome out = import_buf(&b);
        assert_int_equal(out.err, WEFT_ERR_INPUT);
        assert_text(out, type <= 4 ? "groups" : "unknown wire type");
    }
}

static void test_onnx_wire__length_behind_the_end(void **state)
{
    (void)state;
    static const char *const bytes[] = {
        "\x3a\x05\x01", "\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x3a\x80\x80\x80\x80\x10"};
    static const size_t len[] = {3, 11, 6};
    for (int i = 0; i < 3; i++) {
        outcome out = import_bytes(bytes[i], len[i]);
        assert_int_equal(out.err, WEFT_ERR_INPUT);
        assert_text(out, "behind the message");
    }
}

static void test_onnx_wire__field_zero(void **state)
{
    (void)state;
    outcome out = import_bytes("\x00\x01", 2);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "malformed tag");
}

static void test_onnx_wire__nul_in_a_name(void **state)
{
    (void)state;
    weft_buf graph = {0}, node = {0}, model = {0};
    put_relu(&graph);
    onnx_put_bytes(&node, 4, "Re\0lu", 5);
    onnx_put_msg(&graph, 1, &node);
    onnx_put_model(&model, &graph, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "NUL byte");
}

static void test_onnx_wire__names_are_utf8(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                      "a\xc3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        weft_buf graph = {0}, model = {0};
        put_relu(&graph);
        onnx_put_str(&graph, 2, bad[i]);
        onnx_put_model(&model, &graph, 17);
        outcome out = import_buf(&model);
        assert_int_equal(out.err, WEFT_ERR_INPUT);
        assert_text(out, "UTF-8");
    }
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    onnx_put_str(&graph, 2, "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
    onnx_put_model(&model, &graph, 17);
    assert_int_equal(import_buf(&model).err, WEFT_ERR_OK);
}

static void test_onnx_wire__long_name(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    char *name = malloc(70001);
    memset(name, 'a', 70000);
    name[70000] = '\0';
    put_relu(&graph);
    onnx_put_str(&graph, 2, name);
    free(name);
    onnx_put_model(&model, &graph, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "65536");
}

static void test_onnx_wire__two_graphs(void **state)
{
    (void)state;
    weft_buf graph = {0}, second = {0}, model = {0};
    put_relu(&graph);
    put_relu(&second);
    onnx_put_model(&model, &graph, 17);
    onnx_put_msg(&model, 7, &second);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "repeated");
}

/* Subgraphs in subgraphs: GHSA-7w46-vvrh-m8q5. */
static void test_onnx_wire__deep_subgraphs(void **state)
{
    (void)state;
    enum { DEPTH = 2000 };
    weft_buf inner = {0};
    put_relu(&inner);
    for (int i = 0; i < DEPTH; i++) {
        weft_buf attr = {0}, graph = {0};
        onnx_put_str(&attr, 1, "then_branch");
        onnx_put_msg(&attr, 6, &inner);
        onnx_put_int(&attr, 20, 5);
        weft_buf wrapped = {0};
        onnx_put_msg(&wrapped, 5, &attr);
        put_relu(&graph);
        onnx_put_node(&graph, "If", "x", "z", &wrapped);
        inner = graph;
    }
    weft_buf model = {0};
    onnx_put_model(&model, &inner, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_UNSUP);
    assert_text(out, "nested more than 16 deep");
}

static void test_onnx_wire__deep_types(void **state)
{
    (void)state;
    weft_buf type = {0};
    for (int i = 0; i < 2000; i++) {
        weft_buf seq = {0}, outer = {0};
        onnx_put_msg(&seq, 1, &type);
        onnx_put_msg(&outer, 4, &seq);
        type = outer;
    }
    weft_buf value = {0}, graph = {0}, model = {0};
    onnx_put_str(&value, 1, "s");
    onnx_put_msg(&value, 2, &type);
    put_relu(&graph);
    onnx_put_msg(&graph, ONNX_INPUT, &value);
    onnx_put_model(&model, &graph, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_UNSUP);
    assert_text(out, "sequences");
}

static void test_onnx_wire__unknown_fields_are_passed_over(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    onnx_put_int(&graph, 900, 5);
    onnx_put_str(&graph, 901, "\xff\xff");
    onnx_put_float(&graph, 902, 1.0f);
    onnx_put_model(&model, &graph, 17);
    onnx_put_str(&model, 77, "later");
    assert_int_equal(import_buf(&model).err, WEFT_ERR_OK);
}

static void test_onnx_wire__sparse_initialisers(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    onnx_put_str(&graph, 15, "");
    onnx_put_model(&model, &graph, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_INPUT);
    assert_text(out, "initialiser 0 has no name");
}

/* Many messages of two bytes each unpack to much more memory: limits bound it. */
static void test_onnx_wire__too_many_nodes(void **state)
{
    (void)state;
    weft_buf graph = {0}, model = {0};
    put_relu(&graph);
    for (int i = 0; i < 1000001; i++)
        weft_buf_add(&graph, "\x0a\x00", 2);
    onnx_put_model(&model, &graph, 17);
    outcome out = import_buf(&model);
    assert_int_equal(out.err, WEFT_ERR_NOMEM);
    assert_text(out, "1000000");
}

static void test_onnx_wire__versions(void **state)
{
    (void)state;
    static const struct {
        int64_t ir, opset;
        weft_err err;
    } cases[] = {{3, 7, WEFT_ERR_OK},      {14, 28, WEFT_ERR_OK},   {2, 7, WEFT_ERR_UNSUP},
                 {15, 21, WEFT_ERR_UNSUP}, {8, 29, WEFT_ERR_UNSUP}, {8, 0, WEFT_ERR_INPUT},
                 {8, -5, WEFT_ERR_INPUT},  {-1, 17, WEFT_ERR_UNSUP}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_buf graph = {0}, model = {0};
        put_relu(&graph);
        onnx_put_int(&model, 1, cases[i].ir);
        onnx_put_opset(&model, 8, "", cases[i].opset);
        onnx_put_msg(&model, 7, &graph);
        assert_int_equal(import_buf(&model).err, cases[i].err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_onnx_wire__empty_file),
        cmocka_unit_test(test_onnx_wire__truncations),
        cmocka_unit_test(test_onnx_wire__corruptions),
        cmocka_unit_test(test_onnx_wire__varint_too_long),
        cmocka_unit_test(test_onnx_wire__group_types),
        cmocka_unit_test(test_onnx_wire__length_behind_the_end),
        cmocka_unit_test(test_onnx_wire__field_zero),
        cmocka_unit_test(test_onnx_wire__nul_in_a_name),
        cmocka_unit_test(test_onnx_wire__names_are_utf8),
        cmocka_unit_test(test_onnx_wire__long_name),
        cmocka_unit_test(test_onnx_wire__two_graphs),
        cmocka_unit_test(test_onnx_wire__deep_subgraphs),
        cmocka_unit_test(test_onnx_wire__deep_types),
        cmocka_unit_test(test_onnx_wire__unknown_fields_are_passed_over),
        cmocka_unit_test(test_onnx_wire__sparse_initialisers),
        cmocka_unit_test(test_onnx_wire__too_many_nodes),
        cmocka_unit_test(test_onnx_wire__versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
