/* codegen/codegen.h: each graph becomes a program; programs share weights by content. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/codegen.h"

#include <string.h>

static weft_diag *diag;
static weft_arena *arena;
static weft_module *m;
static weft_bundle b;

static int set_up(void **state)
{
    (void)state;
    diag = weft_diag_create();
    arena = weft_arena_create(0);
    m = NULL;
    return diag && arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return 0;
}

static weft_err generate(const char *text, const char *backend, const weft_codegen_model *model)
{
    if (weft_module_parse(text, strlen(text), "test.wir", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    return weft_codegen_bundle(m, weft_backend_find(backend), model, NULL, arena, diag, &b);
}

static const char siblings[] =
    "wir 1 plan\n"
    "symbol ?unused = [1, 5]\n"
    "symbol ?b = [1, 8]\n"
    "symbol ?n.b = [2, 64]\n"
    "weight $w : f32[4,4] = random 7\n"
    "weight $h \"head\" : f32[4,4] = random 8\n"
    "weight $w_again \"twin\" : f32[4,4] = random 7\n"
    "weight $flat : f32[16] = random 7\n"
    "graph @m (%x : f32[?b,4]) {\n"
    "  symbol ?b \"batch size\"\n"
    "  %1 : f32[?b,4] = matmul %x, $h loc \"m.onnx\" \"MatMul_0\"\n"
    "  %2 : f32[?b,4] = matmul %1, $w, _, %1 {epilogue = [\"add acc i3\"]}\n"
    "  return \"y\" %2, \"c\" $flat, \"x\" %x\n"
    "  bucket {?b = 2} arena 64 {\n"
    "    %1 offset 0 bytes 32 live 0..1\n"
    "  }\n"
    "}\n"
    "graph @n (%x : f32[?n.b,4]) {\n"
    "  symbol ?n.b \"b\"\n"
    "  %1 : f32[?n.b,4] = matmul %x, $w_again\n"
    "  return \"y\" %1, \"again\" $w_again\n"
    "}\n";

static void test_codegen__numbers_values_in_order(void **state)
{
    (void)state;
    assert_int_equal(generate(siblings, "null", NULL), WEFT_ERR_OK);
    const weft_bundle_program *p = &b.program[0];
    assert_string_equal(p->name, "m");
    assert_int_equal(p->n_value, 6); /* x, h, %1, w, %2, flat */
    assert_int_equal(p->input[0].value, 1);
    assert_int_equal(p->launch[0].in[0], 1);
    assert_int_equal(p->launch[0].in[1], 2);
    assert_int_equal(p->launch[0].out[0], 3);
    assert_string_equal(p->launch[0].item, "MatMul_0");
    assert_int_equal(p->launch[1].n_in, 4);
    assert_int_equal(p->launch[1].in[2], 0);
    assert_int_equal(p->launch[1].in[3], 3);
    assert_string_equal(p->launch[1].item, "");
    assert_int_equal(p->output[0].value, 5);
    assert_int_equal(p->output[1].value, 6);
    assert_int_equal(p->output[2].value, 1);
    assert_int_equal(p->bucket[0].symbol[0], 2);
    assert_int_equal(p->bucket[0].buffer[0].value, 3);
}

static void test_codegen__shares_weights_by_content_and_type(void **state)
{
    (void)state;
    assert_int_equal(generate(siblings, "null", NULL), WEFT_ERR_OK);
    assert_int_equal(b.n_weight, 3);
    /* In order of first use, called by it. */
    assert_string_equal(b.weight[0].name, "m:head");
    assert_string_equal(b.weight[1].name, "m:w");
    assert_string_equal(b.weight[2].name, "m:flat");
    assert_int_equal(b.weight[0].n_users, 1);
    assert_int_equal(b.weight[1].n_users, 2);
    assert_int_equal(b.weight[2].n_users, 1);
    assert_int_equal(b.program[1].value[b.program[1].launch[0].in[1] - 1].weight, 2);
    assert_int_equal(b.program[1].output[1].value, b.program[1].launch[0].in[1]);
}

static const char dims[] = "wir 1 plan\n"
                           "symbol ?b = [1, 8]\n"
                           "symbol ?n.b = [2, 64]\n"
                           "symbol ?n.b2 = [3, inf]\n"
                           "symbol ?d0 data\n"
                           "symbol ?d7 data\n"
                           "graph @m (%i : i64[4]) {\n"
                           "  %1 : i64[1,?d0] = non_zero %i\n"
                           "  return \"y\" %1\n"
                           "}\n"
                           "graph @n (%x : f32[?n.b,?n.b2], %i : i64[4]) {\n"
                           "  symbol ?n.b \"past + 1\"\n"
                           "  symbol ?n.b2 \"past * 1\"\n"
                           "  %1 : i64[1,?d7] = non_zero %i\n"
                           "  %2 : f32[?n.b * ?n.b2] = view %x {shape = dims[?n.b * ?n.b2]}\n"
                           "  %3 : f32[?n.b,max(?n.b2, ?d7) - floordiv(?n.b2, 3)] = expand %x "
                           "{shape = dims[-1, max(?n.b2, "
                           "?d7) - floordiv(?n.b2, 3)]}\n"
                           "  return \"y\" %1, \"z\" %2, \"u\" %3\n"
                           "}\n";

static const char *print(const weft_bundle_program *p, weft_dim d)
{
    static char text[200];
    weft_buf buf = {0};
    weft_dim_print(p->dims, d, &buf);
    strncpy(text, buf.at, sizeof text - 1);
    weft_buf_finish(&buf);
    return text;
}

static void test_codegen__gives_each_program_dims_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(generate(dims, "null", NULL), WEFT_ERR_OK);
    const weft_bundle_program *p = &b.program[1];
    assert_int_equal(weft_dim_symbol_count(b.program[0].dims), 1);
    assert_int_equal(weft_dim_symbol_count(p->dims), 3);
    assert_int_equal(p->n_symbol, 2);
    assert_string_equal(p->symbol[0].name, "past + 1");
    assert_string_equal(p->symbol[1].name, "past * 1");
    assert_int_equal(p->symbol[0].lo, 2);
    assert_int_equal(p->symbol[0].hi, 64);
    int64_t lo, hi;
    weft_dim_symbol_range(p->dims, 1, &lo, &hi);
    assert_int_equal(lo, 3);
    assert_true(weft_dim_symbol_is_data(p->dims, 2));
    const weft_ttype *t = &p->value[p->output[2].value - 1].type;
    assert_int_equal(weft_dim_as_symbol(p->dims, t->dim[0]), 0);
    assert_string_equal(print(p, t->dim[1]),
                        "floordiv(?past___1.2, 3) * -1 + max(?d0, ?past___1.2)");
    const weft_attr *shape = weft_attrs_find(p->launch[2].attrs, WEFT_ATTR_SHAPE);
    assert_int_equal(shape->u.dims[0], -1);
    assert_true(shape->u.dims[1] == t->dim[1]);
}

static void test_codegen__the_cpu_takes_what_can_be_evaluated(void **state)
{
    (void)state;
    static const char text[] = "wir 1 kernel\n"
                               "graph @m (%x : f32[2]) {\n"
                               "  %1 : f32[2] = relu %x loc \"m.onnx\" \"Relu_7\"\n"
                               "  return \"y\" %1\n"
                               "}\n";
    assert_int_equal(generate(text, "cpu", NULL), WEFT_ERR_OK);
    assert_string_equal(b.target, "cpu");
}

static bool refuse_all(const weft_module *module, weft_node n, const char **why)
{
    (void)module;
    (void)n;
    *why = "not today";
    return false;
}

static void test_codegen__refuses_by_node_and_operator(void **state)
{
    (void)state;
    static const weft_backend lazy = {.name = "lazy", .supports = refuse_all};
    assert_int_equal(generate(siblings, "null", NULL), WEFT_ERR_OK);
    weft_bundle other;
    assert_int_equal(weft_codegen_bundle(m, &lazy, NULL, NULL, arena, diag, &other),
                     WEFT_ERR_UNSUP);
    assert_int_equal(weft_diag_count(diag), 3);
    char text[200];
    weft_diag_format(weft_diag_at(diag, 0), text, sizeof text);
    assert_string_equal(text, "m.onnx:MatMul_0: matmul: not today");
}

static void test_codegen__takes_what_is_known_of_models(void **state)
{
    (void)state;
    static const weft_profile_point point = {.device = "cpu", .batch = 3};
    weft_codegen_model model[2] = {{.slo_us = 5},
                                   {.rate_per_s = 7, .profile = {.point = &point, .n = 1}}};
    assert_int_equal(generate(siblings, "null", model), WEFT_ERR_OK);
    assert_true(b.program[0].slo_us == 5 && b.program[1].rate_per_s == 7);
    assert_int_equal(b.program[0].profile.n, 0);
    assert_int_equal(b.program[1].profile.point[0].batch, 3);
    assert_null(b.plan_json);
}

static void test_codegen__out_of_memory_is_an_error(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    arena = weft_arena_create(1000);
    assert_int_equal(generate(siblings, "null", NULL), WEFT_ERR_NOMEM);
}

static void test_codegen__backends_have_unique_names(void **state)
{
    (void)state;
    size_t n = 0;
    for (; weft_backend_at(n); n++) {
        assert_ptr_equal(weft_backend_find(weft_backend_at(n)->name), weft_backend_at(n));
        assert_true(*weft_backend_at(n)->brief);
    }
    assert_true(n >= 2);
    assert_null(weft_backend_find("no such backend"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_codegen__##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_values_in_order),
        TEST(shares_weights_by_content_and_type),
        TEST(gives_each_program_dims_of_its_own),
        TEST(the_cpu_takes_what_can_be_evaluated),
        TEST(refuses_by_node_and_operator),
        TEST(takes_what_is_known_of_models),
        TEST(out_of_memory_is_an_error),
        TEST(backends_have_unique_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
