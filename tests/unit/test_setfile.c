/* Set files: values read, and errors with their line. */
#include "base/arena.h"
#include "base/diag.h"
#include "scheduler/scheduler.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static weft_err load(const char *text, weft_set *out)
{
    write_text(text);
    weft_diag_clear(diag);
    return weft_set_load(temp_path, arena, diag, out);
}

/* Loading fails with INPUT, and the first message contains this text and has this line (0: any). */
static void expect_refusal(const char *text, uint32_t line, const char *message)
{
    weft_set set;
    weft_err err = load(text, &set);
    if (err != WEFT_ERR_INPUT)
        fail_msg("got %s for:\n%s", weft_err_name(err), text);
    const weft_message *msg = weft_diag_at(diag, 0);
    if (!strstr(msg->text, message))
        fail_msg("'%s' is not in '%s'", message, msg->text);
    if (line && msg->line != line)
        fail_msg("line %u, not %u: %s", msg->line, line, msg->text);
}

static void test_setfile__reads_all_keys(void **state)
{
    (void)state;
    weft_set set;
    assert_int_equal(load("profile_layout: parvagpu\n"
                          "models:\n"
                          "  - name: resnet50\n"
                          "    file: sub/resnet50.onnx\n"
                          "    slo: 108ms\n"
                          "    rate: 829/s\n"
                          "  - name: bert-base\n"
                          "    file: /models/bert.onnx\n"
                          "    profile: bert.csv\n"
                          "    dims: {seq: [1, 128], batch: 4}\n"
                          "    values: {sr: 16000, at: [1.5, -2]}\n"
                          "apps:\n"
                          "  - name: task\n"
                          "    variants: [{model: resnet50, accuracy: 69.8}, "
                          "{model: bert-base, accuracy: 76}]\n",
                          &set),
                     WEFT_ERR_OK);
    assert_string_equal(set.profile_layout, "parvagpu");
    assert_int_equal(set.n_model, 2);
    const weft_set_model *m = &set.model[0];
    assert_string_equal(m->name, "resnet50");
    char path[64];
    snprintf(path, sizeof path, "%s/sub/resnet50.onnx", temp_folder());
    assert_string_equal(m->file, path);
    assert_null(m->profile);
    assert_true(m->slo_us == 108000 && m->rate_per_s == 829);
    assert_int_equal(m->line, 3);
    m = &set.model[1];
    assert_string_equal(m->file, "/models/bert.onnx");
    snprintf(path, sizeof path, "%s/bert.csv", temp_folder());
    assert_string_equal(m->profile, path);
    assert_true(m->slo_us == 0 && m->rate_per_s == 0);
    assert_int_equal(m->n_dim, 2);
    assert_string_equal(m->dim[0].name, "seq");
    assert_true(m->dim[0].lo == 1 && m->dim[0].hi == 128);
    assert_true(m->dim[1].lo == 4 && m->dim[1].hi == 4);
    assert_int_equal(m->n_value, 2);
    assert_string_equal(m->value[0].name, "sr");
    assert_true(m->value[0].n == 1 && !m->value[0].is_list && m->value[0].x[0] == 16000);
    assert_true(m->value[1].n == 2 && m->value[1].is_list && m->value[1].x[1] == -2);
    assert_int_equal(m->line, 7);
    assert_int_equal(set.n_app, 1);
    assert_int_equal(set.app[0].n_variant, 2);
    assert_true(set.app[0].variant[0].accuracy == 69.8);
}

static void test_setfile__default_layout_is_weft(void **state)
{
    (void)state;
    weft_set set;
    assert_int_equal(load("models: [{name: a, file: a.onnx}]\n", &set), WEFT_ERR_OK);
    assert_string_equal(set.profile_layout, "weft");
    assert_int_equal(set.n_app, 0);
}

static void test_setfile__heads_are_models_of_the_set(void **state)
{
    (void)state;
    weft_set set;
    assert_int_equal(load("models:\n"
                          "  - {name: all, heads: [b, a], slo: 5ms, combine: vote}\n"
                          "  - {name: a, file: a.onnx}\n"
                          "  - {name: b, file: b.onnx}\n",
                          &set),
                     WEFT_ERR_OK);
    assert_true(set.model[0].n_head == 2 && set.model[0].combine == WEFT_COMBINE_VOTE);
    assert_ptr_equal(set.model[0].head[0], &set.model[2]);
    assert_ptr_equal(set.model[0].head[1], &set.model[1]);
    assert_null(set.model[0].file);
    assert_int_equal(set.model[1].n_head, 0);
#define HEADS "models:\n  - {name: a, file: a.onnx}\n  - {name: p, profile: p.csv}\n"
    expect_refusal(HEADS "  - {name: x, heads: [a, c]}\n", 4, "'c' is not a model");
    expect_refusal(HEADS "  - {name: x, heads: [a, p]}\n", 4, "'p' is not a model");
    expect_refusal(HEADS "  - {name: x, heads: [x]}\n", 4, "'x' is not a model");
    expect_refusal(HEADS "  - {name: x, heads: [a, a]}\n", 4, "twice");
    expect_refusal(HEADS "  - {name: x, file: x.onnx, heads: [a]}\n", 4, "'file' and 'heads'");
    expect_refusal(HEADS "  - {name: x, heads: [a], dims: {s: 3}}\n", 4, "those of the heads");
    expect_refusal(HEADS "  - {name: x, heads: []}\n", 0, "");
    expect_refusal(HEADS "  - {name: x, heads: [a], combine: median}\n", 4, "'median' is not mean");
    expect_refusal(HEADS "  - {name: x, file: x.onnx, combine: mean}\n", 4, "with 'heads'");
#undef HEADS
}

#define ONE "models:\n  - name: a\n    file: a.onnx\n"

static void test_setfile__refuses_unknown_keys_with_line(void **state)
{
    (void)state;
    expect_refusal(ONE "    sloo: 3ms\n", 4, "sloo, did you mean slo?");
    expect_refusal(ONE "model: []\n", 0, "model");
    expect_refusal(ONE "apps:\n  - name: x\n    variant: []\n", 0, "variant");
}

static void test_setfile__refuses_missing_keys(void **state)
{
    (void)state;
    expect_refusal("models:\n  - file: a.onnx\n", 0, "name");
    expect_refusal("models:\n  - name: a\n", 2, "neither 'file' nor 'heads' nor 'profile'");
    expect_refusal("apps: []\n", 0, "models");
    expect_refusal("models: []\n", 0, "");
    expect_refusal("", 0, "empty");
    expect_refusal("# only a comment\n", 0, "empty");
}

static void test_setfile__refuses_wrong_values(void **state)
{
    (void)state;
    expect_refusal(ONE "    slo: 108\n", 2, "slo");
    expect_refusal(ONE "    slo: -1ms\n", 2, "slo");
    expect_refusal(ONE "    slo: 0ms\n", 2, "slo");
    expect_refusal(ONE "    rate: nan/s\n", 2, "rate");
    expect_refusal(ONE "    rate: 829\n", 2, "rate");
    expect_refusal(ONE "    values: [1, 2]\n", 4, "values");
    expect_refusal(ONE "    values: {s: x}\n", 4, "values");
    expect_refusal(ONE "    values: {s: [1, [2]]}\n", 4, "values");
    expect_refusal(ONE "    values: {s: inf}\n", 4, "values");
    expect_refusal(ONE "    dims: [1, 2]\n", 4, "dims");
    expect_refusal(ONE "    dims: {s: [2, 1]}\n", 4, "dims");
    expect_refusal(ONE "    dims: {s: [-1, 1]}\n", 4, "dims");
    expect_refusal(ONE "    dims: {s: [1, 2, 3]}\n", 4, "dims");
    expect_refusal(ONE "    dims: {s: x}\n", 4, "dims");
    expect_refusal(ONE "profile_layout: other\n", 4, "profile_layout");
    expect_refusal(ONE "  - name: a\n    file: b.onnx\n", 4, "twice");
    expect_refusal("models:\n  - name: ../a\n    file: b\n", 2, "name");
    expect_refusal(ONE "apps: [{name: x, variants: [{model: b, accuracy: 1}]}]\n", 4,
                   "not a model");
    expect_refusal(ONE "apps: [{name: a, variants: [{model: a, accuracy: 1}]}]\n", 4, "already");
    expect_refusal(ONE "apps: [{name: x, variants: [{model: a, accuracy: .nan}]}]\n", 0, "");
}

static void test_setfile__refuses_hostile_yaml(void **state)
{
    (void)state;
    weft_set set;
    expect_refusal("a: &x [1]\nb: *x\n", 0, "aliases");
    expect_refusal("a: &x [*x]\n", 0, "");
    expect_refusal("models: !!python/object:os.system [ls]\n", 1, "tags");
    expect_refusal(ONE "---\n" ONE, 0, "second document");
    expect_refusal(ONE "    file: b.onnx\n", 4, "twice");
    expect_refusal("? [a, b]\n: c\n", 0, "key");
    expect_refusal("models: [\n", 0, "YAML");
    expect_refusal("models: \"\\0\"\n", 0, "zero byte");
    expect_refusal("plain text\n", 0, "");
    char *deep = malloc(100001);
    memset(deep, '[', 100000);
    deep[100000] = 0;
    assert_int_equal(load(deep, &set), WEFT_ERR_INPUT);
    memcpy(deep, "models: ", 8);
    memset(deep + 8, '[', 20);
    memset(deep + 28, ']', 20);
    deep[48] = 0;
    expect_refusal(deep, 1, "nested");
    /* The largest file that is allowed is refused quickly. */
    char *many = malloc((1 << 20) + 1);
    memset(many, '[', 1 << 20);
    many[1 << 20] = 0;
    expect_refusal(many, 1, "brackets");
    size_t len = (size_t)sprintf(many, "models:\n");
    for (int i = 0; i < 16384; i++)
        len += (size_t)sprintf(many + len, "- {name: m%d, file: f}\n", i);
    assert_int_equal(load(many, &set), WEFT_ERR_OK);
    assert_int_equal(set.n_model, 16384);
    free(many);
    free(deep);
    char *large = malloc((1 << 20) + 2);
    memset(large, '#', (1 << 20) + 1);
    write_bytes(large, (1 << 20) + 1);
    free(large);
    assert_int_not_equal(weft_set_load(temp_path, arena, diag, &set), WEFT_ERR_OK);
}

static void test_setfile__refuses_alias_bomb(void **state)
{
    (void)state;
    char text[2000];
    size_t len = (size_t)snprintf(text, sizeof text, "a0: &a0 [x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 20; i++)
        len +=
            (size_t)snprintf(text + len, sizeof text - len, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n",
                             i, i, i - 1, i - 1, i - 1, i - 1);
    expect_refusal(text, 0, "");
}

static void test_setfile__absent_file_is_io(void **state)
{
    (void)state;
    weft_set set;
    assert_int_equal(weft_set_load("/nonexistent/set.yaml", arena, diag, &set), WEFT_ERR_IO);
}

static void test_setfile__damaged_bytes_never_crash(void **state)
{
    static const char good[] = "models:\n  - {name: a, file: a.onnx, slo: 1ms, dims: {s: [1, 2]}}\n"
                               "apps: [{name: x, variants: [{model: a, accuracy: 1}]}]\n";
    (void)state;
    uint64_t seed = 1;
    char text[sizeof good];
    weft_set set;
    for (int i = 0; i < 3000; i++) {
        memcpy(text, good, sizeof good);
        for (int j = 0; j < 3; j++) {
            size_t at = rand_next(&seed) % (sizeof good - 1);
            text[at] = (char)(seed >> 56);
        }
        write_bytes(text, sizeof good - 1);
        weft_diag_clear(diag);
        weft_err err = weft_set_load(temp_path, arena, diag, &set);
        assert_true(err == WEFT_ERR_OK || weft_diag_count(diag) > 0);
    }
}

static void test_setfile__model_names(void **state)
{
    char longest[130];
    (void)state;
    memset(longest, 'a', sizeof longest);
    longest[128] = 0;
    assert_true(weft_set_name_valid(longest));
    longest[128] = 'a';
    longest[129] = 0;
    assert_false(weft_set_name_valid(longest));
    assert_true(weft_set_name_valid("0a_B.c-d"));
    assert_false(weft_set_name_valid(""));
    assert_false(weft_set_name_valid(NULL));
    assert_false(weft_set_name_valid(".a"));
    assert_false(weft_set_name_valid("a/b"));
    assert_false(weft_set_name_valid("a b"));
    assert_false(weft_set_name_valid("\xc3\xa9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_setfile__reads_all_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__default_layout_is_weft, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__heads_are_models_of_the_set, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__refuses_unknown_keys_with_line, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__refuses_missing_keys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__refuses_wrong_values, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__refuses_hostile_yaml, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__refuses_alias_bomb, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__absent_file_is_io, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_setfile__damaged_bytes_never_crash, set_up, tear_down),
        cmocka_unit_test(test_setfile__model_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
