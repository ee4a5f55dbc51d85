/* Classes of an output beside a sort of the whole row: equal values, NaN, infinities, labels. */
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
        assert_int_equal(weft_classes__list(&p, 0, &t, most, &got, message), WEFT_ANSWER_OK);
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
    assert_int_equal(weft_classes__list(&p, 0, &t, 2, &got, message), WEFT_ANSWER_OK);
    assert_int_equal(got.n, 0);
    assert_int_equal(weft_classes__bytes(&got), 0);
    weft_classes__finish(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes__are_the_first_of_a_sort),
        cmocka_unit_test(test_classes__of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
