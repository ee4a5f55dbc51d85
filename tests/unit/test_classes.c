/* Classes of an output beside a sort of the whole row: equal values, NaN, infinities, labels, rows
 * of a batch, integers that no double tells apart; limits of their text. */
#include "runtime/server/classes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/rand.h"

enum { MOST = 64 };

static const float *row;

static int by_value(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    bool nan_x = isnan(row[x]), nan_y = isnan(row[y]);
    if (nan_x != nan_y)
        return nan_x ? 1 : -1;
    if (!nan_x && row[x] != row[y])
        return row[x] > row[y] ? -1 : 1;
    return x - y;
}

/* Of a model with batches up to 8. */
static const int64_t batch_sizes[] = {8};
static const weft_bundle_symbol batch_symbol = {"b", 1, 8};
static const weft_bundle_bucket batch_bucket = {.symbol = batch_sizes};

static weft_bundle_program batched(const weft_bundle_port *port)
{
    return (weft_bundle_program){.name = "m",
                                 .output = port,
                                 .n_output = 1,
                                 .symbol = &batch_symbol,
                                 .n_symbol = 1,
                                 .bucket = &batch_bucket,
                                 .n_bucket = 1};
}

static void check_texts(const weft_classes *got, const char *const *want, size_t n)
{
    const char *s = got->text;
    assert_int_equal(got->n, n);
    for (size_t i = 0; i < n; i++, s += strlen(s) + 1)
        assert_string_equal(s, want[i]);
    assert_int_equal(s - got->text, got->len);
}

static void test_classes__are_the_first_of_a_sort(void **state)
{
    (void)state;
    static const char *const label[] = {"zero", "", "two"};
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0, 1e30f};
    const weft_bundle_port port = {.name = "y", .value = 1, .label = label, .n_label = 3};
    const weft_bundle_program p = {.name = "m", .output = &port, .n_output = 1};
    uint64_t seed = 17;
    for (int round = 0; round < 500; round++) {
        float x[MOST];
        int order[MOST], n = 1 + (int)rand_below(&seed, MOST);
        uint32_t most = 1 + rand_below(&seed, MOST);
        char message[WEFT_REQUEST_MESSAGE_MAX], want[64];
        for (int i = 0; i < n; i++) {
            x[i] = (float)rand_below(&seed, 12) - 6; /* many are equal */
            if (rand_below(&seed, 8) == 0)
                x[i] = odd[rand_below(&seed, sizeof odd / sizeof odd[0])];
            order[i] = i;
        }
        row = x;
        qsort(order, (size_t)n, sizeof *order, by_value);
        const weft_tensor t = {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {n}, .data = x};
        weft_classes got;
        size_t room = WEFT_CLASSES_BYTES_MAX;
        assert_int_equal(weft_classes__list(&p, 0, &t, most, &room, &got, message), WEFT_ANSWER_OK);
        assert_int_equal(room, WEFT_CLASSES_BYTES_MAX - got.len);
        assert_int_equal(got.rank, 1);
        assert_int_equal(got.n, (int)most < n ? (int)most : n);
        assert_int_equal(got.dim[0], got.n);
        weft_buf packed = {0};
        weft_classes__pack(&got, &packed);
        assert_int_equal(packed.len, weft_classes__bytes(&got));
        const char *s = got.text, *at = packed.at;
        for (size_t i = 0; i < got.n; i++, s += strlen(s) + 1) {
            const char *name = order[i] < 3 ? label[order[i]] : "";
            snprintf(want, sizeof want, "%f:%d%s%s", (double)x[order[i]], order[i],
                     *name ? ":" : "", name);
            assert_string_equal(s, want);
            assert_int_equal((unsigned char)at[0], strlen(want));
            assert_memory_equal(at + 4, want, strlen(want));
            at += 4 + strlen(want);
        }
        weft_buf_finish(&packed);
        weft_classes__finish(&got);
    }
}

/* Rows of no element, and no rows. */
static void test_classes__of_nothing(void **state)
{
    (void)state;
    const weft_bundle_port port = {.name = "y", .value = 1};
    const weft_bundle_program p = {.name = "m", .output = &port, .n_output = 1};
    char message[WEFT_REQUEST_MESSAGE_MAX];
    const weft_tensor t = {.dtype = WEFT_DTYPE_I8, .rank = 2, .dim = {0, 3}};
    weft_classes got;
    size_t room = 0;
    assert_int_equal(weft_classes__list(&p, 0, &t, 2, &room, &got, message), WEFT_ANSWER_OK);
    assert_int_equal(got.n, 0);
    assert_int_equal(weft_classes__bytes(&got), 0);
    weft_classes__finish(&got);
}

/* Each row of a batch has its own, also of more than two axes. */
static void test_classes__of_rows(void **state)
{
    (void)state;
    static const char *const label[] = {"a", "b"};
    static const char *const want[] = {"9:1:b", "4:3", "8:0:a", "7:2", "6:3", "5:2"};
    int32_t x[] = {-1, 9, 3, 4, 8, -9, 7, 0, 1, 2, 5, 6};
    const weft_bundle_port port = {.name = "y", .value = 1, .label = label, .n_label = 2};
    const weft_bundle_program p = batched(&port);
    const weft_tensor shapes[] = {
        {.dtype = WEFT_DTYPE_I32, .rank = 2, .dim = {3, 4}, .data = x},
        {.dtype = WEFT_DTYPE_I32, .rank = 3, .dim = {3, 2, 2}, .data = x}};
    char message[WEFT_REQUEST_MESSAGE_MAX];
    for (int i = 0; i < 2; i++) {
        weft_classes got;
        size_t room = WEFT_CLASSES_BYTES_MAX;
        assert_int_equal(weft_classes__list(&p, 0, &shapes[i], 2, &room, &got, message),
                         WEFT_ANSWER_OK);
        assert_int_equal(got.rank, 2);
        assert_int_equal(got.dim[0], 3);
        assert_int_equal(got.dim[1], 2);
        check_texts(&got, want, 6);
        weft_classes__finish(&got);
        /* More classes than a row has elements. */
        room = WEFT_CLASSES_BYTES_MAX;
        assert_int_equal(weft_classes__list(&p, 0, &shapes[i], 9, &room, &got, message),
                         WEFT_ANSWER_OK);
        assert_int_equal(got.dim[0], 3);
        assert_int_equal(got.dim[1], 4);
        weft_classes__finish(&got);
        assert_int_equal(weft_classes__work(&p, &shapes[i], 2), sizeof x + 64 * 6);
        assert_int_equal(weft_classes__work(&p, &shapes[i], 9), sizeof x + 64 * 12);
    }
}

/* Integers beyond 2^53, and beyond 2^63 without a sign. */
static void test_classes__of_large_integers(void **state)
{
    (void)state;
    int64_t i[] = {(1LL << 53) + 0, (1LL << 53) + 1,
                   INT64_MIN,       INT64_MAX - 1,
                   INT64_MAX,       -1,
                   INT64_MIN + 1,   0};
    static const char *const want_i[] = {"9223372036854775807:4",
                                         "9223372036854775806:3",
                                         "9007199254740993:1",
                                         "9007199254740992:0",
                                         "0:7",
                                         "-1:5",
                                         "-9223372036854775807:6",
                                         "-9223372036854775808:2"};
    uint64_t u[] = {(1ULL << 53), (1ULL << 53) + 1, UINT64_MAX - 1, UINT64_MAX, 1ULL << 63, 0};
    static const char *const want_u[] = {"18446744073709551615:3", "18446744073709551614:2",
                                         "9223372036854775808:4",  "9007199254740993:1",
                                         "9007199254740992:0",     "0:5"};
    const weft_bundle_port port = {.name = "y", .value = 1};
    const weft_bundle_program p = {.name = "m", .output = &port, .n_output = 1};
    const weft_tensor of_i = {.dtype = WEFT_DTYPE_I64, .rank = 1, .dim = {8}, .data = i};
    const weft_tensor of_u = {.dtype = WEFT_DTYPE_U64, .rank = 1, .dim = {6}, .data = u};
    char message[WEFT_REQUEST_MESSAGE_MAX];
    size_t room = WEFT_CLASSES_BYTES_MAX;
    weft_classes got;
    assert_int_equal(weft_classes__list(&p, 0, &of_i, 8, &room, &got, message), WEFT_ANSWER_OK);
    check_texts(&got, want_i, 8);
    weft_classes__finish(&got);
    assert_int_equal(weft_classes__list(&p, 0, &of_i, 1, &room, &got, message), WEFT_ANSWER_OK);
    check_texts(&got, want_i, 1);
    weft_classes__finish(&got);
    assert_int_equal(weft_classes__list(&p, 0, &of_u, 6, &room, &got, message), WEFT_ANSWER_OK);
    check_texts(&got, want_u, 6);
    weft_classes__finish(&got);
}

/* The text of all outputs of a request has a limit: 1e300 is printed with 308 bytes. */
static void test_classes__of_long_text(void **state)
{
    (void)state;
    enum { ROWS = 8, ELEMENTS = 16 };
    static double x[ROWS * ELEMENTS];
    const weft_bundle_port port = {.name = "y", .value = 1};
    const weft_bundle_program p = batched(&port);
    const weft_tensor t = {.dtype = WEFT_DTYPE_F64, .rank = 2, .dim = {ROWS, ELEMENTS}, .data = x};
    char message[WEFT_REQUEST_MESSAGE_MAX];
    weft_classes got;
    for (int i = 0; i < ROWS * ELEMENTS; i++)
        x[i] = 1e300;
    size_t room = WEFT_CLASSES_BYTES_MAX;
    assert_int_equal(weft_classes__list(&p, 0, &t, ELEMENTS, &room, &got, message), WEFT_ANSWER_OK);
    size_t len = got.len;
    assert_true(len > (size_t)ROWS * ELEMENTS * 300);
    weft_classes__finish(&got);
    room = 2 * len; /* two outputs, and no third */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft_classes__list(&p, 0, &t, ELEMENTS, &room, &got, message),
                         WEFT_ANSWER_OK);
        weft_classes__finish(&got);
    }
    assert_int_equal(room, 0);
    assert_int_equal(weft_classes__list(&p, 0, &t, ELEMENTS, &room, &got, message),
                     WEFT_ANSWER_INVALID);
    assert_non_null(strstr(message, "'y'"));
    assert_non_null(strstr(message, "at most 16 MiB"));
    assert_null(got.text);
    room = len - 1;
    assert_int_equal(weft_classes__list(&p, 0, &t, ELEMENTS, &room, &got, message),
                     WEFT_ANSWER_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes__are_the_first_of_a_sort),
        cmocka_unit_test(test_classes__of_nothing),
        cmocka_unit_test(test_classes__of_rows),
        cmocka_unit_test(test_classes__of_large_integers),
        cmocka_unit_test(test_classes__of_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
