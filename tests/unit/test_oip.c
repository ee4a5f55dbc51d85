/* weft_oip__read_*: tensors read from bodies, and refusal of malformed bodies with a reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/json_scan.h"
#include "tests/support/oip_subject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct subject {
    oip_subject model;
    weft_answer answer;
    char message[WEFT_REQUEST_MESSAGE_MAX];
} subject;

static int set_up(void **state)
{
    static subject s;
    oip_subject_open(&s.model);
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    subject *s = *state;
    weft_arena_destroy(s->model.arena);
    return 0;
}

/* The body is the end of its own heap block, so that a sanitizer detects reads past it. */
static weft_oip_infer *read(subject *s, uint32_t model, const char *json, const void *binary,
                            size_t n_binary, char **out_body)
{
    size_t len = strlen(json);
    weft_oip_infer *infer = NULL;
    char *body = malloc(len + n_binary + 1);
    assert_non_null(body);
    memcpy(body, json, len);
    if (n_binary)
        memcpy(body + len, binary, n_binary);
    *out_body = realloc(body, len + n_binary ? len + n_binary : 1);
    s->message[0] = '\0';
    const weft_model_ref ref = {
        .at = model, .program = &s->model.bundle.program[model], .version = "1"};
    bool ok = weft_oip__read_infer(&ref, NULL, *out_body, len + n_binary, len, &s->answer,
                                   s->message, &infer);
    assert_true(ok == (infer != NULL));
    return infer;
}

static void refuse(subject *s, uint32_t model, const char *json, const void *binary,
                   size_t n_binary, weft_answer answer, const char *word)
{
    char *body;
    if (read(s, model, json, binary, n_binary, &body))
        fail_msg("accepted: %s", json);
    if (s->answer != answer || !strstr(s->message, word))
        fail_msg("answer %d, %s: %s", (int)s->answer, s->message, json);
    free(body);
}

#define N(shape, type, rest) \
    "{\"inputs\":[{\"name\":\"n\",\"shape\":" shape ",\"datatype\":\"" type "\"," rest "}]}"

static void test_oip__reads_json_flat_and_nested(void **state)
{
    static const char *const texts[] = {
        "{\"id\":\"q\",\"parameters\":{\"timeout\":77},\"inputs\":["
        "{\"name\":\"image\",\"shape\":[2,2],\"datatype\":\"FP32\",\"data\":[1,2.5,-3,4e0]},"
        "{\"name\":\"mask\",\"shape\":[2],\"datatype\":\"BOOL\",\"data\":[true,0]}]}",
        "{\"inputs\":[{\"data\":[false,1],\"shape\":[2],\"datatype\":\"BOOL\",\"name\":\"mask\"},"
        "{\"name\":\"image\",\"shape\":[2,2],\"datatype\":\"FP32\",\"data\":[[1,2.5],[-3,4]]}],"
        "\"parameters\":{\"binary_data_output\":true},\"outputs\":[{\"name\":\"z\"},"
        "{\"name\":\"y\",\"parameters\":{\"binary_data\":false}}],\"id\":\"q\"}"};
    for (int i = 0; i < 2; i++) {
        char *body;
        weft_oip_infer *infer = read(*state, 0, texts[i], NULL, 0, &body);
        assert_non_null(infer);
        const float *image = infer->request->in[0].data;
        const uint8_t *mask = infer->request->in[1].data;
        assert_true(image[0] == 1 && image[1] == 2.5f && image[2] == -3 && image[3] == 4);
        assert_true(mask[0] == (i == 0) && mask[1] == (i == 1));
        assert_string_equal(infer->id, "q");
        assert_int_equal(infer->request->timeout_us, i == 0 ? 77 : 0);
        assert_int_equal(infer->n_output, 2);
        assert_int_equal(infer->output[0].at, i);
        assert_int_equal(infer->output[0].binary, i);
        assert_false(infer->output[1].binary);
        weft_oip__destroy_infer(infer);
        free(body);
    }
}

static void test_oip__reads_binary_at_any_alignment(void **state)
{
    const float image[2] = {7, -8};
    char bytes[9];
    memcpy(bytes, image, 8);
    bytes[8] = 1;
    for (int pad = 0; pad < 8; pad++) {
        char json[400], *body;
        snprintf(json, sizeof json,
                 "{\"id\":\"%.*s\",\"inputs\":[{\"name\":\"image\",\"shape\":[1,2],\"datatype\":"
                 "\"FP32\",\"parameters\":{\"binary_data_size\":8}},{\"name\":\"mask\",\"shape\":"
                 "[1],\"datatype\":\"BOOL\",\"parameters\":{\"binary_data_size\":1}}]}",
                 pad, "12345678");
        weft_oip_infer *infer = read(*state, 0, json, bytes, 9, &body);
        assert_non_null(infer);
        assert_int_equal((uintptr_t)infer->request->in[0].data % 8, 0);
        assert_memory_equal(infer->request->in[0].data, image, 8);
        assert_int_equal(*(uint8_t *)infer->request->in[1].data, 1);
        weft_oip__destroy_infer(infer);
        free(body);
    }
}

static void test_oip__refuses_wrong_inputs(void **state)
{
    static const struct {
        const char *json, *word;
        weft_answer answer;
    } bad[] = {
        {"", "JSON", WEFT_ANSWER_INVALID},
        {"null", "", WEFT_ANSWER_INVALID},
        {"[]", "object", WEFT_ANSWER_INVALID},
        {"{}", "inputs", WEFT_ANSWER_INVALID},
        {"{\"inputs\":[[]]}", "object", WEFT_ANSWER_INVALID},
        {"{\"inputs\":[]}", "missing", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2]"), "2", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3,4]"), "more", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3.5]"), "INT64", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,true]"), "INT64", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,9223372036854775808]"), "INT64", WEFT_ANSWER_INVALID},
        {N("[3]", "UINT8", "\"data\":[1,2,256]"), "UINT8", WEFT_ANSWER_INVALID},
        {N("[3]", "INT8", "\"data\":[1,2,-129]"), "INT8", WEFT_ANSWER_INVALID},
        {N("[3]", "INT16", "\"data\":[1,2,32768]"), "INT16", WEFT_ANSWER_INVALID},
        {N("[3]", "UINT16", "\"data\":[1,2,-1]"), "UINT16", WEFT_ANSWER_INVALID},
        {N("[3]", "INT32", "\"data\":[1,2,2147483648]"), "INT32", WEFT_ANSWER_INVALID},
        {N("[3]", "UINT32", "\"data\":[1,2,4294967296]"), "UINT32", WEFT_ANSWER_INVALID},
        {N("[3]", "UINT64", "\"data\":[1,2,-1]"), "UINT64", WEFT_ANSWER_INVALID},
        {N("[3]", "FP16", "\"data\":[1,2,3]"), "binary", WEFT_ANSWER_INVALID},
        {N("[3]", "BF16", "\"data\":[1,2,3]"), "binary", WEFT_ANSWER_INVALID},
        {N("[3]", "BYTES", "\"data\":[1,2,3]"), "BYTES", WEFT_ANSWER_UNSUPPORTED},
        {N("[3]", "int64", "\"data\":[1,2,3]"), "int64", WEFT_ANSWER_INVALID},
        {N("[3]", "", "\"data\":[1,2,3]"), "datatype", WEFT_ANSWER_INVALID},
        {N("[-3]", "INT64", "\"data\":[1,2,3]"), "dimension", WEFT_ANSWER_INVALID},
        {N("[3.0]", "INT64", "\"data\":[1,2,3]"), "dimension", WEFT_ANSWER_INVALID},
        {N("[[3]]", "INT64", "\"data\":[1,2,3]"), "dimension", WEFT_ANSWER_INVALID},
        {N("{}", "INT64", "\"data\":[1,2,3]"), "shape", WEFT_ANSWER_INVALID},
        {N("[1,1,1,1,1,1,1,1,3]", "INT64", "\"data\":[1,2,3]"), "shape", WEFT_ANSWER_INVALID},
        {N("[4294967296,4294967296]", "INT64", "\"data\":[]"), "large", WEFT_ANSWER_INVALID},
        {N("[4611686018427387904,8]", "INT64", "\"data\":[]"), "large", WEFT_ANSWER_INVALID},
        {N("[100000000000]", "INT64", "\"data\":[]"), "less", WEFT_ANSWER_INVALID},
        {N("[9223372036854775807,0]", "INT64", "\"data\":[1]"), "", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":{}"), "data", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,{}]"), "INT64", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"parameters\":{\"binary_data_size\":24}"), "ends",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"parameters\":{\"binary_data_size\":0}"), "24", WEFT_ANSWER_INVALID},
        {N("[0]", "INT64", "\"parameters\":{\"binary_data_size\":-1}"), "size",
         WEFT_ANSWER_INVALID},
        {N("[100000000000]", "INT64", "\"parameters\":{\"binary_data_size\":800000000000}"), "ends",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"parameters\":{\"binary_data_size\":\"24\"}"), "size",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"parameters\":[]"), "object", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3],\"data\":[1,2,3]"), "twice", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3],\"da\\u0074a\":[1,2,3]"), "twice",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3],\"shape\":[3]"), "twice", WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3],\"parameters\":{\"binary_data_size\":24}"), "both",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"data\":[1,2,3],\"x\":NaN"), "JSON", WEFT_ANSWER_INVALID},
        {"{\"id\":7,\"inputs\":[]}", "'id'", WEFT_ANSWER_INVALID},
        {"{\"parameters\":{\"timeout\":\"1\"},\"inputs\":[]}", "timeout", WEFT_ANSWER_INVALID},
        {"{\"parameters\":{\"timeout\":-1},\"inputs\":[]}", "timeout", WEFT_ANSWER_INVALID},
        {"{\"parameters\":{\"binary_data_output\":1},\"inputs\":[]}", "binary_data_output",
         WEFT_ANSWER_INVALID},
        {N("[3]", "INT64", "\"parameters\":{\"shared_memory_region\":\"a\"}"), "shared",
         WEFT_ANSWER_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        refuse(*state, 1, bad[i].json, NULL, 0, bad[i].answer, bad[i].word);
    refuse(*state, 1, N("[3]", "INT64", "\"data\":[1,2,3]"), "x", 1, WEFT_ANSWER_INVALID, "follow");
}

static void test_oip__bounds_the_depth(void **state)
{
    char json[600];
    for (int depth = 90; depth < 120; depth++) {
        const char *const around[][3] = {
            {"{\"x\":", "}", "no inputs"},
            {"{\"inputs\":[{\"name\":\"n\",\"datatype\":\"INT64\",\"shape\":[3],\"data\":", "}]}",
             "shape says"}};
        for (int i = 0; i < 2; i++) {
            size_t n = (size_t)sprintf(json, "%s", around[i][0]);
            memset(json + n, '[', (size_t)depth);
            memset(json + n + depth, ']', (size_t)depth);
            strcpy(json + n + 2 * depth, around[i][1]);
            refuse(*state, 1, json, NULL, 0, WEFT_ANSWER_INVALID,
                   depth + (i ? 3 : 1) > WEFT_JSON_DEPTH_MAX ? "deep" : around[i][2]);
        }
    }
    /* Brackets in strings do not nest; escaped quotes do not end a string. */
    char text[600] = "{\"id\":\"\\\"";
    memset(text + strlen(text), '[', 300);
    strcat(text, "\\\\\",\"inputs\":[]}");
    refuse(*state, 1, text, NULL, 0, WEFT_ANSWER_INVALID, "missing");
}

static bool read_raw(subject *s, uint32_t model, size_t len, int64_t *out_dim)
{
    char *body = calloc(1, len + 1);
    weft_oip_infer *infer = NULL;
    const weft_model_ref ref = {
        .at = model, .program = &s->model.bundle.program[model], .version = "1"};
    bool ok = weft_oip__read_raw(&ref, len ? body : NULL, len, &s->answer, s->message, &infer);
    if (ok) {
        memcpy(out_dim, infer->request->in[0].dim, 3 * sizeof *out_dim);
        assert_true(infer->output[0].binary);
    }
    weft_oip__destroy_infer(infer);
    free(body);
    return ok;
}

static void test_oip__guesses_the_shape_of_raw_bodies(void **state)
{
    int64_t dim[3];
    assert_false(read_raw(*state, 0, 8, dim)); /* two inputs */
    assert_true(read_raw(*state, 1, 24, dim)); /* dim 0 is not the batch dim */
    assert_int_equal(dim[0], 3);
    for (size_t len = 0; len < 24; len++)
        assert_false(read_raw(*state, 1, len, dim));
    for (size_t len = 0; len < 64; len++) {
        bool ok = read_raw(*state, 2, len, dim);
        assert_int_equal(ok, len % 4 == 0);
        if (ok)
            assert_true(dim[0] == 1 && dim[1] == (int64_t)len / 4 && dim[2] == 2);
    }
}

static void test_oip__writes_errors_as_json(void **state)
{
    static const char *const texts[][2] = {
        {"a\"b\\c\n", "{\"error\":\"a\\\"b\\\\c\\u000a\"}"},
        {"\xe2\x82\xac \xf0\x9f\x98\x80", "{\"error\":\"\xe2\x82\xac \xf0\x9f\x98\x80\"}"},
        {"cut \xe2\x82", "{\"error\":\"cut \\ufffd\\ufffd\"}"},
        {"\xff\xc0\xaf\xed\xa0\x80", "{\"error\":\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"}"},
        {"\xf4\x90\x80\x80", "{\"error\":\"\\ufffd\\ufffd\\ufffd\\ufffd\"}"}};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *got = weft_oip__error(texts[i][0]);
        assert_string_equal(got, texts[i][1]);
        free(got);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_oip__##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_json_flat_and_nested),
        TEST(reads_binary_at_any_alignment),
        TEST(refuses_wrong_inputs),
        TEST(bounds_the_depth),
        TEST(guesses_the_shape_of_raw_bodies),
        TEST(writes_errors_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
