/* merge-models with a strategy or stages of aligning left out: they are not used. */
#include "passes/passes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Two models with the same two GEMMs in opposite orders. */
static const char text[] = "wir 1 kernel\n"
                           "symbol ?b = [1, 64]\n"
                           "symbol ?c = [1, 64]\n"
                           "weight $u : f32[512,512] = random 1\n"
                           "weight $d : f32[512,512] = random 2\n"
                           "graph @a (%0 : f32[?b,512]) {\n"
                           "  symbol ?b \"batch\"\n"
                           "  %1 : f32[?b,512] = matmul %0, $u\n"
                           "  %2 : f32[?b,512] = matmul %0, $d\n"
                           "  return \"u\" %1, \"d\" %2\n"
                           "}\n"
                           "graph @b (%0 : f32[?c,512]) {\n"
                           "  symbol ?c \"batch\"\n"
                           "  %1 : f32[?c,512] = matmul %0, $d\n"
                           "  %2 : f32[?c,512] = matmul %0, $u\n"
                           "  return \"d\" %1, \"u\" %2\n"
                           "}\n";

typedef struct counts {
    uint32_t joined, left_out;
} counts;

static counts merge(const weft_pass_options *options)
{
    weft_diag *diag = weft_diag_create();
    weft_arena *arena = weft_arena_create(0);
    weft_module *m = NULL;
    weft_merge_log log = {.arena = arena};
    weft_run_options run = {.pass = *options};
    const weft_pass *pass = weft_pass_find("merge-models");
    counts c = {0};
    run.pass.merge = WEFT_MERGE_AUTO;
    run.pass.assignment = &weft_assignment_igraph;
    run.pass.merge_log = &log;
    assert_int_equal(weft_module_parse(text, sizeof text - 1, "text", NULL, diag, &m), 0);
    assert_int_equal(weft_passes_run(m, &pass, 1, &run, diag), 0);
    for (uint32_t i = 0; i < log.rows.len; i++) {
        c.joined += log.rows.at[i].joined;
        for (uint32_t k = 0; k < log.rows.at[i].n_candidate; k++)
            c.left_out += strcmp(log.rows.at[i].candidate[k].reason, "left out") == 0;
    }
    weft_module_destroy(m);
    weft_arena_destroy(arena);
    weft_diag_destroy(diag);
    return c;
}

static void test_merge_without__strategy(void **state)
{
    (void)state;
    assert_int_equal(merge(&(weft_pass_options){0}).joined, 2);
    counts c =
        merge(&(weft_pass_options){.strategy_without = weft_merge_strategy_find("concatenated")});
    assert_int_equal(c.joined, 0);
    assert_int_equal(c.left_out, 2);
    c = merge(&(weft_pass_options){.strategy_without = weft_merge_strategy_find("low_rank")});
    assert_int_equal(c.joined, 2);
}

/* One GEMM is matched in order; the other crosses it, and two stages can match it. */
static void test_merge_without__steps_of_matching(void **state)
{
    (void)state;
    uint32_t later = WEFT_MATCH_BETWEEN | WEFT_MATCH_REST, all = later | WEFT_MATCH_CROSSED;
    assert_int_equal(merge(&(weft_pass_options){.match_without = WEFT_MATCH_CROSSED}).joined, 2);
    assert_int_equal(merge(&(weft_pass_options){.match_without = later}).joined, 2);
    assert_int_equal(merge(&(weft_pass_options){.match_without = all}).joined, 1);
    assert_int_equal(merge(&(weft_pass_options){.match_without = all | WEFT_MATCH_ANCHORS}).joined,
                     0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_without__strategy),
        cmocka_unit_test(test_merge_without__steps_of_matching),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
