/* share-near: weights within the tolerance become one, NaN is equal by bits only, and no element
 * changes by more than the tolerance. */
#include "passes/passes.h"
#include "base/diag.h"
#include "base/str.h"
#include "ir/ir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { N = 16, MODELS = 4 };

/* Models of one GEMM each, with weights of their own; returns the number of distinct weights left.
 */
static uint32_t share(float weight[][N], uint32_t n_model, double tolerance, weft_merge_log *log)
{
    const weft_pass *pass = weft_pass_find("share-near");
    weft_diag *diag = weft_diag_create();
    weft_buf text = {0};
    weft_module *m = NULL;
    uint32_t distinct = 0, of[MODELS];
    weft_buf_puts(&text, "wir 1 kernel\n");
    for (uint32_t i = 0; i < n_model; i++) {
        weft_buf_printf(&text, "symbol ?b%u = [1, 8]\nweight $w%u : f32[4,4] = dense [", i, i);
        for (int k = 0; k < N; k++) {
            weft_buf_puts(&text, k ? ", " : "");
            weft_buf_put_f32(&text, weight[i][k]);
        }
        weft_buf_puts(&text, "]\n");
    }
    for (uint32_t i = 0; i < n_model; i++)
        weft_buf_printf(&text,
                        "graph @m%u (%%0 : f32[?b%u,4]) {\n  symbol ?b%u \"batch\"\n"
                        "  %%1 : f32[?b%u,4] = matmul %%0, $w%u\n  return \"y\" %%1\n}\n",
                        i, i, i, i, i);
    if (weft_module_parse(text.at, text.len, "text", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s in %s", weft_diag_at(diag, 0)->text, text.at);
    const weft_run_options run = {.pass = {.merge_tolerance = tolerance, .merge_log = log},
                                  .verify = WEFT_VERIFY_EACH};
    assert_int_equal(weft_passes_run(m, &pass, 1, &run, diag), WEFT_ERR_OK);
    for (uint32_t i = 0; i < n_model; i++) {
        bool seen = false;
        of[i] = weft_node_in(m, weft_graph_first(weft_graph_at(m, i)), 1).i;
        for (uint32_t k = 0; k < i; k++)
            seen = seen || of[k] == of[i];
        distinct += !seen;
    }
    weft_buf_finish(&text);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    return distinct;
}

static void fill(float *w, float first)
{
    for (int k = 0; k < N; k++)
        w[k] = (float)k;
    w[0] = first;
}

static void test_near__within_the_tolerance(void **state)
{
    float w[2][N];
    weft_arena *arena = weft_arena_create(0);
    weft_merge_log log = {.arena = arena};
    (void)state;
    fill(w[0], 1);
    fill(w[1], 1.25f);
    assert_int_equal(share(w, 2, 0, &log), 2);
    assert_int_equal(share(w, 2, 0.2, &log), 2);
    assert_int_equal(log.near_weights, 0);
    assert_int_equal(share(w, 2, 0.25, &log), 1);
    assert_int_equal(log.near_weights, 1);
    assert_int_equal(log.near_bytes, N * sizeof(float));
    assert_true(log.near_most == 0.25);
    w[1][N - 1] += 1; /* the last element tells */
    assert_int_equal(share(w, 2, 0.25, &log), 2);
    weft_arena_destroy(arena);
}

/* 1, 1.25 and 1.5: the third is near to the second, but that was replaced by the first. */
static void test_near__nothing_drifts(void **state)
{
    float w[4][N];
    (void)state;
    fill(w[0], 1);
    fill(w[1], 1.25f);
    fill(w[2], 1.5f);
    fill(w[3], 1.75f);
    assert_int_equal(share(w, 4, 0.25, NULL), 2);
}

static void test_near__nan_and_infinity_by_bits(void **state)
{
    float w[2][N];
    (void)state;
    for (int what = 0; what < 2; what++) {
        float odd = what ? NAN : INFINITY;
        fill(w[0], odd);
        fill(w[1], 1);
        assert_int_equal(share(w, 2, 1, NULL), 2);
        fill(w[1], -odd); /* text has but one NaN */
        assert_int_equal(share(w, 2, 1, NULL), what ? 1 : 2);
        fill(w[1], odd);
        w[1][1] += 0.5f;
        assert_int_equal(share(w, 2, 1, NULL), 1);
    }
    fill(w[0], 0.0f);
    fill(w[1], -0.0f);
    assert_int_equal(share(w, 2, 1e-30, NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near__within_the_tolerance),
        cmocka_unit_test(test_near__nothing_drifts),
        cmocka_unit_test(test_near__nan_and_infinity_by_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
