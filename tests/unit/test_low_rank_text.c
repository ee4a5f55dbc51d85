/* low_rank_matmul from text through a bundle to answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "codegen/codegen.h"
#include "runtime/runtime.h"
#include "tests/support/rand.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char text[] =
    "wir 1 plan\n"
    "symbol ?b = [0, 8]\n"
    "symbol ?c = [0, 8]\n"
    "weight $w : f32[20,12] = random 1\n"
    "weight $bias : f32[20] = random 2\n"
    "weight $u0 : f32[12,3] = random 3\n"
    "weight $v0 : f32[3,20] = random 4\n"
    "weight $u2 : f32[12,2] = random 5\n"
    "weight $v2 : f32[2,20] = random 6\n"
    "graph @m (%x : f32[?b + ?c + 2,12], %b : f32[?b], %c : f32[?c]) {\n"
    "  symbol ?b \"b\"\n"
    "  symbol ?c \"c\"\n"
    "  %1 : f32[?b + ?c + 2,12] = ew %x {steps = [\"relu i0\"]}\n"
    "  %2 : f32[?b + ?c + 2,20] = low_rank_matmul %1, $w, $bias, $u0, $v0, _, _, $u2, $v2, $bias "
    "{epilogue = [\"mul acc i9\", \"tanh acc\"], starts = dims[0, ?b, ?b + ?c], trans_b = 1}\n"
    "  return \"y\" %2\n"
    "}\n";

static void fill(weft_tensor *t, uint64_t seed)
{
    for (int64_t i = 0; i < weft_tensor_numel(t); i++) {
        ((float *)t->data)[i] = rand_signed(&seed);
    }
}

static void compare_once(weft_module *m, weft_session *session, weft_arena *arena, int64_t b,
                         int64_t c)
{
    float x[18 * 12], ignored[8] = {0};
    weft_tensor in[] = {{.dtype = WEFT_DTYPE_F32, .rank = 2, .dim = {b + c + 2, 12}, .data = x},
                        {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {b}, .data = ignored},
                        {.dtype = WEFT_DTYPE_F32, .rank = 1, .dim = {c}, .data = ignored}};
    weft_tensor got, want;
    fill(&in[0], (uint32_t)(100 + 10 * b + c));
    assert_int_equal(weft_graph_eval(weft_graph_at(m, 0), in, 3, arena, NULL, &want, 1), 0);
    assert_int_equal(weft_session_run(session, in, 3, NULL, &got, 1), 0);
    assert_int_equal(weft_tensor_numel(&got), (b + c + 2) * 20);
    for (int64_t i = 0; i < weft_tensor_numel(&got); i++)
        assert_true(fabsf(((float *)got.data)[i] - ((float *)want.data)[i]) < 1e-5f);
}

static void test_low_rank_text__is_read_back_and_its_bundle_runs(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL, *again = NULL;
    weft_bundle bundle;
    weft_engine *engine = NULL;
    weft_session *session = NULL;
    weft_buf first = {0}, second = {0};
    char path[64];
    assert_int_equal(weft_module_parse(text, strlen(text), "m.wir", NULL, diag, &m), 0);
    assert_int_equal(weft_module_verify(m, diag), 0);
    weft_module_print(m, &first);
    assert_int_equal(weft_module_parse(first.at, first.len, "m.wir", NULL, diag, &again), 0);
    weft_module_print(again, &second);
    assert_string_equal(first.at, second.at);
    assert_int_equal(
        weft_codegen_bundle(again, weft_backend_find("cpu"), NULL, NULL, arena, diag, &bundle), 0);
    snprintf(path, sizeof path, "low-rank-%ld.weft", (long)getpid());
    assert_int_equal(weft_bundle_write(&bundle, path, diag), 0);
    assert_int_equal(weft_engine_open(path, NULL, diag, &engine), 0);
    assert_int_equal(weft_session_open(engine, "m", diag, &session), 0);
    for (int64_t b = 0; b <= 8; b += 2)
        for (int64_t c = 0; c <= 8; c += 4)
            compare_once(m, session, arena, b, c);
    weft_session_close(session);
    weft_engine_close(engine);
    remove(path);
    weft_buf_finish(&first);
    weft_buf_finish(&second);
    weft_module_destroy(again);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_low_rank_text__is_read_back_and_its_bundle_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
