/* Triton's model configurations: the text format, what is read of it, and errors with their line.
 */
#include "scheduler/input/model_config.h"
#include "scheduler/input/pbtxt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static weft_err parse(const char *text, weft_pbtxt *out)
{
    weft_diag_clear(diag);
    return weft_pbtxt__parse(text, strlen(text), "config.pbtxt", arena, diag, out);
}

static weft_err read_config(const char *text, weft_model_config *out)
{
    weft_diag_clear(diag);
    return weft_set__parse_config(text, strlen(text), "config.pbtxt", arena, diag, out);
}

/* Reading fails, and the first message contains this text and has this line. */
static void expect_refusal(const char *text, uint32_t line, const char *message)
{
    weft_model_config config;
    if (read_config(text, &config) != WEFT_ERR_INPUT)
        fail_msg("not refused: %s", text);
    const weft_message *m = weft_diag_at(diag, 0);
    if (!strstr(m->text, message) || m->line != line)
        fail_msg("line %u: '%s', expected line %u: '%s'", m->line, m->text, line, message);
}

/* Message i is a warning that contains this text and has this line. */
static void expect_warning(size_t i, uint32_t line, const char *message)
{
    assert_true(i < weft_diag_count(diag));
    const weft_message *m = weft_diag_at(diag, i);
    assert_int_equal(m->severity, WEFT_SEV_WARNING);
    if (!strstr(m->text, message) || m->line != line)
        fail_msg("line %u: '%s', expected line %u: '%s'", m->line, m->text, line, message);
}

/* -- The text format -------------------------------------------------------------------------- */

static void test_pbtxt__every_form_is_read(void **state)
{
    (void)state;
    weft_pbtxt root;
    assert_int_equal(parse("# head\n"
                           "a: 'x' \"y\\n\\x41\\101\\'\"   # strings side by side\n"
                           "b: [1, -2,3]; c: - 4, d { e: WORD f < g: true > }\n"
                           "h: { } h [ { i: 1 }, { } ] k: []",
                           &root),
                     WEFT_ERR_OK);
    assert_int_equal(root.n_field, 9);
    assert_string_equal(root.field[0].text, "xy\nAA'");
    assert_true(root.field[0].is_quoted);
    assert_int_equal(root.field[0].line, 2);
    assert_string_equal(root.field[2].text, "-2");
    assert_string_equal(root.field[2].name, "b");
    assert_string_equal(root.field[4].text, "-4");
    assert_true(root.field[5].is_message);
    assert_string_equal(root.field[5].field[1].field[0].text, "true");
    assert_int_equal(root.field[6].n_field, 0);
    assert_string_equal(root.field[7].field[0].name, "i");
    assert_true(root.field[8].is_message);
}

static void test_pbtxt__wrong_text_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "a",         "a:",         "a: {",     "a { b: 1", "}",          "a: [1",     "a: [1 2]",
        "a: [[1]]",  "a: \"x",     "a: 'x\n'", "a: '\\q'", "a: '\\0'",   "1: 2",      "a 1",
        "a: '\\xg'", "a { b: 1 >", "a: ,",     "[a.b]: 1", "a: 1 b: \"", "a: '\\400'"};
    weft_pbtxt root;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (parse(wrong[i], &root) != WEFT_ERR_INPUT)
            fail_msg("not refused: %s", wrong[i]);
    char deep[64] = "";
    for (int i = 0; i < 17; i++)
        strcat(deep, "a{");
    assert_int_equal(parse(deep, &root), WEFT_ERR_INPUT);
    assert_non_null(strstr(weft_diag_at(diag, 0)->text, "more than 16 levels"));
}

/* -- Configurations --------------------------------------------------------------------------- */

static void test_model_config__ports_and_batches(void **state)
{
    (void)state;
    weft_model_config c;
    assert_int_equal(
        read_config("name: \"m\" platform: \"onnxruntime_onnx\" max_batch_size: 20\n"
                    "input [{ name: \"x\" data_type: TYPE_FP32 dims: [3, -1] },\n"
                    "       { name: \"n\" data_type: TYPE_INT64 dims: 1 reshape { shape: [] } }]\n"
                    "output { name: \"y\" data_type: TYPE_BOOL dims: [] }\n"
                    "dynamic_batching { preferred_batch_size: [4, 12, 30] }",
                    &c),
        WEFT_ERR_OK);
    assert_int_equal(weft_diag_count(diag), 0);
    assert_int_equal(c.ports.n_input, 2);
    const weft_set_port *x = &c.ports.input[0], *n = &c.ports.input[1];
    assert_int_equal(x->dtype, WEFT_DTYPE_F32);
    assert_int_equal(x->n_dim, 3); /* with the batch */
    assert_int_equal(x->dim[0], -1);
    assert_int_equal(x->dim[1], 3);
    assert_null(x->inner_dim);
    assert_int_equal(n->n_dim, 2);
    assert_int_equal(n->n_inner_dim, 1);
    assert_int_equal(n->inner_dim[0], -1);
    assert_int_equal(c.ports.output[0].n_dim, 1);
    static const int64_t batch[] = {1, 2, 4, 8, 12, 16, 20};
    assert_int_equal(c.ports.n_batch, 7);
    assert_memory_equal(c.ports.batch, batch, sizeof batch);
}

static void test_model_config__policies(void **state)
{
    (void)state;
    weft_model_config c;
    assert_int_equal(read_config("version_policy { latest { num_versions: 3 } }", &c), WEFT_ERR_OK);
    assert_int_equal(c.policy, WEFT_VERSIONS_LATEST);
    assert_int_equal(c.n_latest, 3);
    assert_int_equal(read_config("version_policy: { all: {} }", &c), WEFT_ERR_OK);
    assert_int_equal(c.policy, WEFT_VERSIONS_ALL);
    assert_int_equal(read_config("version_policy { specific { versions: [7, 2] } }", &c),
                     WEFT_ERR_OK);
    assert_int_equal(c.policy, WEFT_VERSIONS_SPECIFIC);
    assert_int_equal(c.n_version, 2);
    assert_int_equal(c.version[0], 7);
    expect_refusal("version_policy { all {} latest {} }", 1, "one of latest, all and specific");
}

static void test_model_config__ensembles(void **state)
{
    (void)state;
    weft_model_config c;
    assert_int_equal(
        read_config("ensemble_scheduling { step [ { model_name: \"a\" model_version: 2\n"
                    "input_map { key: \"x\" value: \"IN\" }\n"
                    "output_map { key: \"y\" value: \"T\" } } ] }",
                    &c),
        WEFT_ERR_OK);
    assert_true(c.is_ensemble);
    assert_int_equal(c.n_step, 1);
    assert_int_equal(c.step[0].version, 2);
    assert_string_equal(c.step[0].input[0].port, "x");
    assert_string_equal(c.step[0].output[0].tensor, "T");
    expect_refusal("ensemble_scheduling { step { model_name: \"a\" } }", 1,
                   "output_map is missing");
}

static void test_model_config__the_rest_is_named(void **state)
{
    (void)state;
    weft_model_config c;
    assert_int_equal(
        read_config("optimization { graph { level: 1 } }\n"
                    "parameters { key: \"a\" }\n"
                    "parameters { key: \"b\" }\n"
                    "model_warmup { name: \"w\" }\n"
                    "instance_group { count: 4 kind: KIND_GPU gpus: [0] }\n"
                    "dynamic_batching { max_queue_delay_microseconds: 100 }\n"
                    "input { name: \"x\" data_type: TYPE_FP32 dims: 1 optional: true }",
                    &c),
        WEFT_ERR_OK);
    assert_int_equal(weft_diag_count(diag), 6);
    expect_warning(0, 1, "optimization has no counterpart");
    expect_warning(1, 2, "parameters has no counterpart");
    expect_warning(2, 5, "one instance on each slice");
    expect_warning(3, 5, "instance_group.gpus has no counterpart");
    expect_warning(4, 6, "--max-queue-delay 100us");
    expect_warning(5, 7, "optional has no counterpart");
}

static void test_model_config__wrong_values_are_refused(void **state)
{
    (void)state;
    expect_refusal("\nmax_batch_size: -1", 2, "-1 is not from 0");
    expect_refusal("max_batch_size: \"8\"", 1, "a whole number is expected");
    expect_refusal("name: m", 1, "a string is expected");
    expect_refusal("name: \"a\"\nname: \"b\"", 2, "name is given twice");
    expect_refusal("input { name: \"x\" }", 1, "data_type is missing");
    expect_refusal("input { name: \"x\"\ndata_type: TYPE_STRING }", 2, "'TYPE_STRING' is not supp");
    expect_refusal("input { data_type: TYPE_FP32 name: \"x\" dims: [1,1,1,1,1,1,1,1] }", 1,
                   "more than 7 numbers");
    expect_refusal("input: 3", 1, "a message in braces is expected");
    expect_refusal("default_model_filename: \"../x\"", 1, "is not the name of a file");
    expect_refusal("input { name: \"x\" data_type: TYPE_FP32 }\n"
                   "input { name: \"x\" data_type: TYPE_FP32 }",
                   2, "'x' is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pbtxt__every_form_is_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pbtxt__wrong_text_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_config__ports_and_batches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_config__policies, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_config__ensembles, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_config__the_rest_is_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_model_config__wrong_values_are_refused, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
