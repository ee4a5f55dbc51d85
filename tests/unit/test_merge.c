/* merge-models on random sets of graphs that use their weights in any order: the joint graph is
 * legal, has the models' inputs and outputs, and gives their answers. */
#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"
#include "ir/ir.h"
#include "passes/passes.h"
#include "tests/support/rand.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { WIDTH = 8, WEIGHTS = 6, NODES_MAX = 14, MODELS_MAX = 4 };

/* A graph of GEMMs by shared weights, activations, normalisations and sums on values of [b, s, 8].
 * Each node takes any earlier values, so that there are branches, joins and every order of weights.
 */
static void add_graph(weft_buf *text, int model, bool rows, uint64_t *seed)
{
    uint32_t n = 2 + rand_next(seed) % NODES_MAX;
    char type[64];
    snprintf(type, sizeof type, rows ? "f32[?b%d,?s%d,8]" : "f32[?b%d,8]", model, model);
    weft_buf_printf(text, "graph @m%d (%%0 : %s) {\n  symbol ?b%d \"batch\"\n", model, type, model);
    if (rows)
        weft_buf_printf(text, "  symbol ?s%d \"seq\"\n", model);
    for (uint32_t i = 1; i <= n; i++) {
        uint32_t x = (uint32_t)(rand_next(seed) % i), y = (uint32_t)(rand_next(seed) % i);
        uint32_t w = (uint32_t)(rand_next(seed) % WEIGHTS);
        x = rand_next(seed) % 2 ? i - 1 : x;
        weft_buf_printf(text, "  %%%u : %s = ", i, type);
        switch (rand_next(seed) % 6) {
        case 0:
            weft_buf_printf(text, "ew %%%u, %%%u {steps = [\"add i0 i1\"]}\n", x, y);
            break;
        case 1:
            weft_buf_printf(text, "ew %%%u {steps = [\"tanh i0\"]}\n", x);
            break;
        case 2:
            weft_buf_printf(text, "layer_norm %%%u, $n {axis = %d, epsilon = 1e-05}\n", x,
                            rand_next(seed) % 2 ? -1
                            : rows              ? 2
                                                : 1);
            break;
        case 3:
            weft_buf_printf(text, "matmul %%%u, $w%u, $n, %%%u {epilogue = [\"add i3 acc\"]}\n", x,
                            w, y);
            break;
        default:
            weft_buf_printf(text, "matmul %%%u, $w%u\n", x, w);
        }
    }
    weft_buf_printf(text, "  return \"y\" %%%u, \"z\" %%%u\n}\n", n,
                    (uint32_t)(1 + rand_next(seed) % n));
}

static weft_module *make_module(int n_model, uint64_t *seed, weft_diag *diag)
{
    weft_buf text = {0};
    weft_module *m = NULL;
    bool rows = rand_next(seed) % 2;
    weft_buf_printf(&text, "wir 1 kernel\n");
    for (int i = 0; i < n_model; i++) {
        weft_buf_printf(&text, "symbol ?b%d = [1, 8]\n", i);
        if (rows)
            weft_buf_printf(&text, "symbol ?s%d = [1, 4]\n", i);
    }
    for (int i = 0; i < WEIGHTS; i++)
        weft_buf_printf(&text, "weight $w%d : f32[8,8] = random %d\n", i, i + 1);
    weft_buf_printf(&text, "weight $n : f32[8] = random 99\n");
    for (int i = 0; i < n_model; i++)
        add_graph(&text, i, rows, seed);
    assert_false(text.failed);
    if (weft_module_parse(text.at, text.len, "random", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s in\n%s", weft_diag_at(diag, 0)->text, text.at);
    weft_buf_finish(&text);
    return m;
}

static void merge(weft_module *m, weft_merge how, weft_diag *diag)
{
    const weft_pass *pass = weft_pass_find("merge-models");
    const weft_run_options run = {.pass = {.merge = how, .assignment = &weft_assignment_igraph},
                                  .verify = WEFT_VERIFY_EACH};
    if (weft_passes_run(m, &pass, 1, &run, diag) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
}

static weft_tensor make_input(const weft_graph *g, weft_arena *arena, uint64_t *seed)
{
    const weft_ttype *t = weft_val_ttype(weft_graph_module(g), weft_graph_input(g, 0));
    weft_tensor in = {.dtype = WEFT_DTYPE_F32, .rank = t->rank};
    in.dim[0] = 1 + (int64_t)(rand_next(seed) % 5);
    in.dim[1] = t->rank == 3 ? 1 + (int64_t)(rand_next(seed) % 4) : WIDTH;
    in.dim[2] = t->rank == 3 ? WIDTH : 0;
    in.data = weft_arena_alloc(arena, weft_tensor_bytes(&in) + 1);
    for (int64_t i = 0; i < weft_tensor_numel(&in); i++)
        weft_tensor_set_f64(&in, i, (double)(rand_next(seed) % 2001) / 1000 - 1);
    return in;
}

static void expect_same(const weft_tensor *a, const weft_tensor *b, uint64_t round)
{
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
    for (int64_t i = 0; i < weft_tensor_numel(a); i++) {
        double x = weft_tensor_get_f64(a, i), y = weft_tensor_get_f64(b, i);
        if (!(fabs(x - y) <= 1e-5 * fmax(1, fabs(x))))
            fail_msg("round %llu: %g is %g", (unsigned long long)round, y, x);
    }
}

/* Evaluates the models and the joint graph on the same inputs. */
static void compare(weft_module *m, const weft_graph *joint, weft_diag *diag, uint64_t *seed,
                    uint64_t round)
{
    weft_arena *arena = weft_arena_create(0);
    weft_tensor in[MODELS_MAX], apart[2 * MODELS_MAX], out[2 * MODELS_MAX];
    uint32_t n = weft_graph_part_count(joint);
    for (uint32_t i = 0; i < n; i++) {
        const weft_part *part = weft_graph_part(joint, i);
        weft_graph *g = weft_graph_find(m, part->model);
        assert_true(part->n_in == 1 && part->n_out == 2);
        in[i] = make_input(g, arena, seed);
        assert_int_equal(weft_graph_eval(g, &in[i], 1, arena, diag, &apart[2 * i], 2), WEFT_ERR_OK);
    }
    if (weft_graph_eval((weft_graph *)(uintptr_t)joint, in, n, arena, diag, out, 2 * n) !=
        WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    for (uint32_t i = 0; i < 2 * n; i++)
        expect_same(&apart[i], &out[i], round);
    weft_arena_destroy(arena);
}

static uint32_t count_nodes(const weft_module *m, const weft_graph *g, weft_op_id op)
{
    uint32_t n = 0;
    WEFT_FOREACH_NODE (m, g, node)
        n += weft_node_op(m, node) == op;
    return n;
}

/* The joint graph has the models' own nodes only, which keeps every bit. */
static void expect_copies(weft_module *m, const weft_graph *joint)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < weft_graph_part_count(joint); k++)
        n += weft_graph_node_count(weft_graph_find(m, weft_graph_part(joint, k)->model));
    assert_int_equal(weft_graph_node_count(joint), n);
}

static void test_merge__random_models_keep_their_answers(void **state)
{
    weft_diag *diag = weft_diag_create();
    uint64_t joints = 0, saved = 0;
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(1000); round++) {
        uint64_t seed = round * 7919;
        int n_model = 2 + (int)(rand_next(&seed) % (MODELS_MAX - 1));
        weft_module *m = make_module(n_model, &seed, diag);
        merge(m, round % 5 ? WEFT_MERGE_AUTO : WEFT_MERGE_EXACT, diag);
        for (uint32_t i = (uint32_t)n_model; i < weft_graph_count(m); i++) {
            const weft_graph *joint = weft_graph_at(m, i);
            uint32_t apart = 0, together = count_nodes(m, joint, WEFT_OP_MATMUL);
            for (uint32_t k = 0; k < weft_graph_part_count(joint); k++)
                apart += count_nodes(m, weft_graph_find(m, weft_graph_part(joint, k)->model),
                                     WEFT_OP_MATMUL);
            assert_true(round % 5 ? together < apart : together == apart);
            if (round % 5 == 0)
                expect_copies(m, joint);
            joints++;
            saved += apart - together;
            compare(m, joint, diag, &seed, round);
        }
        weft_module_destroy(m);
    }
    print_message("%llu joint graphs, %llu GEMMs saved\n", (unsigned long long)joints,
                  (unsigned long long)saved);
    assert_true(joints > RAND_ROUNDS(700) && saved > RAND_ROUNDS(1000));
    weft_diag_destroy(diag);
}

/* a1 before a2 in one model, a2 before a1 in the other: at most one pair can be joined. */
static void test_merge__opposite_orders_make_no_cycle(void **state)
{
    static const char text[] = "wir 1 kernel\n"
                               "symbol ?b = [1, 8]\nsymbol ?c = [1, 8]\n"
                               "weight $p : f32[8,8] = random 1\n"
                               "weight $q : f32[8,8] = random 2\n"
                               "graph @m0 (%0 : f32[?b,8]) {\n  symbol ?b \"batch\"\n"
                               "  %1 : f32[?b,8] = matmul %0, $p\n"
                               "  %2 : f32[?b,8] = matmul %1, $q\n"
                               "  return \"y\" %2, \"z\" %1\n}\n"
                               "graph @m1 (%0 : f32[?c,8]) {\n  symbol ?c \"batch\"\n"
                               "  %1 : f32[?c,8] = matmul %0, $q\n"
                               "  %2 : f32[?c,8] = matmul %1, $p\n"
                               "  return \"y\" %2, \"z\" %1\n}\n";
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    uint64_t seed = 1;
    (void)state;
    assert_int_equal(weft_module_parse(text, strlen(text), "text", NULL, diag, &m), WEFT_ERR_OK);
    merge(m, WEFT_MERGE_AUTO, diag);
    assert_int_equal(weft_graph_count(m), 3);
    assert_int_equal(count_nodes(m, weft_graph_at(m, 2), WEFT_OP_MATMUL), 3);
    compare(m, weft_graph_at(m, 2), diag, &seed, 0);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
}

/* Models with nothing in common but the name of a symbol, and a model that cannot be batched, are
 * not merged. */
static void test_merge__leaves_alone_what_has_nothing_in_common(void **state)
{
    static const char text[] = "wir 1 kernel\n"
                               "symbol ?b = [1, 8]\nsymbol ?c = [1, 8]\n"
                               "weight $p : f32[8,8] = random 1\n"
                               "weight $q : f32[8,8] = random 2\n"
                               "graph @m0 (%0 : f32[?b,8]) {\n  symbol ?b \"batch\"\n"
                               "  %1 : f32[?b,8] = matmul %0, $p\n  return \"y\" %1\n}\n"
                               "graph @m1 (%0 : f32[?c,8]) {\n  symbol ?c \"batch\"\n"
                               "  %1 : f32[?c,8] = matmul %0, $q\n  return \"y\" %1\n}\n"
                               "graph @m2 (%0 : f32[8,8]) {\n"
                               "  %1 : f32[8,8] = matmul %0, $q\n  return \"y\" %1\n}\n";
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    (void)state;
    assert_int_equal(weft_module_parse(text, strlen(text), "text", NULL, diag, &m), WEFT_ERR_OK);
    merge(m, WEFT_MERGE_AUTO, diag);
    assert_int_equal(weft_graph_count(m), 3);
    merge(m, WEFT_MERGE_EXACT, diag);
    assert_int_equal(weft_graph_count(m), 3);
    weft_module_destroy(m);
    weft_diag_destroy(diag);
}

/* Without an assignment solver several models are refused, and one model is not. */
static void test_merge__needs_a_solver_for_several_models(void **state)
{
    static const char model[] = "graph @m%d (%%0 : f32[?b,8]) {\n  symbol ?b \"batch\"\n"
                                "  %%1 : f32[?b,8] = matmul %%0, $p\n  return \"y\" %%1\n}\n";
    const weft_run_options run = {.pass = {.merge = WEFT_MERGE_AUTO}};
    const weft_pass *pass = weft_pass_find("merge-models");
    (void)state;
    for (int n = 1; n <= 2; n++) {
        weft_buf text = {0};
        weft_diag *diag = weft_diag_create();
        weft_module *m = NULL;
        weft_buf_puts(&text, "wir 1 kernel\nsymbol ?b = [1, 8]\n"
                             "weight $p : f32[8,8] = random 1\n");
        for (int i = 0; i < n; i++)
            weft_buf_printf(&text, model, i);
        assert_int_equal(weft_module_parse(text.at, text.len, "text", NULL, diag, &m), WEFT_ERR_OK);
        assert_int_equal(weft_passes_run(m, &pass, 1, &run, diag),
                         n == 1 ? WEFT_ERR_OK : WEFT_ERR_UNSUP);
        if (n == 2)
            assert_non_null(strstr(weft_diag_at(diag, 0)->text, "`weft compile`"));
        weft_module_destroy(m);
        weft_diag_destroy(diag);
        weft_buf_finish(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge__random_models_keep_their_answers),
        cmocka_unit_test(test_merge__opposite_orders_make_no_cycle),
        cmocka_unit_test(test_merge__leaves_alone_what_has_nothing_in_common),
        cmocka_unit_test(test_merge__needs_a_solver_for_several_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
