/* Aligning models. On random graphs that use equal, similar and different weights in crossed
 * orders: every node is in exactly one column, the nodes of a column differ only in what its kind
 * allows, and the order of the columns is a topological order of all models, so contracting them
 * makes no cycle. */
#include "passes/merge/align.h"
#include "base/diag.h"
#include "base/str.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MODELS_MAX = 6, WEIGHTS = 5, WIDTH = 8, ROUNDS = 1500 };

typedef struct world {
    weft_module *m;
    weft_diag *diag;
    weft_arena *scratch;
    weft_passctx cx;
    weft_graph *model[32];
    uint32_t n_model;
} world;

static void open_world(world *w, weft_buf *text)
{
    *w = (world){.diag = weft_diag_create(), .scratch = weft_arena_create(0)};
    assert_false(text->failed);
    if (weft_module_parse(text->at, text->len, "text", NULL, w->diag, &w->m) != WEFT_ERR_OK)
        fail_msg("%s in\n%s", weft_diag_at(w->diag, 0)->text, text->at);
    static const weft_pass_options options = {.assignment = &weft_assignment_igraph};
    w->cx = (weft_passctx){.options = &options, .scratch = w->scratch, .diag = w->diag};
    w->n_model = weft_graph_count(w->m);
    for (uint32_t i = 0; i < w->n_model; i++)
        w->model[i] = weft_graph_at(w->m, i);
    weft_buf_finish(text);
}

static void close_world(world *w)
{
    weft_module_destroy(w->m);
    weft_arena_destroy(w->scratch);
    weft_diag_destroy(w->diag);
}

static void print_head(weft_buf *text, uint32_t n_model)
{
    weft_buf_printf(text, "wir 1 kernel\n");
    for (uint32_t i = 0; i < n_model; i++)
        weft_buf_printf(text, "symbol ?b%u = [1, 8]\n", i);
}

/* -- What must hold --------------------------------------------------------------------------- */

static void expect_alike(const world *w, const weft_column *c)
{
    weft_node first = {0};
    bool equal = true, shape = true;
    for (uint32_t i = 0; i < w->n_model; i++) {
        weft_node n = c->node[i];
        if (!n.i)
            continue;
        first = first.i ? first : n;
        assert_int_equal(weft_node_op(w->m, n), weft_node_op(w->m, first));
        assert_int_equal(weft_node_in_count(w->m, n), weft_node_in_count(w->m, first));
        for (uint32_t k = 0; k < weft_node_in_count(w->m, n); k++) {
            weft_val v = weft_node_in(w->m, n, k), u = weft_node_in(w->m, first, k);
            if (weft_val_get_kind(w->m, v) != WEFT_VAL_WEIGHT)
                continue;
            equal = equal && u.i == v.i;
            shape = shape && memcmp(weft_val_ttype(w->m, u), weft_val_ttype(w->m, v),
                                    sizeof(weft_ttype)) == 0;
        }
    }
    assert_int_equal(c->kind, equal   ? WEFT_COLUMN_EQUAL
                              : shape ? WEFT_COLUMN_SHAPE
                                      : WEFT_COLUMN_SIZE);
}

/* Checks the whole contract of columns; returns the number of pairs of nodes that share a column.
 */
static uint32_t expect_sound(world *w, const weft_columns *c)
{
    uint32_t n_val = weft_val_count(w->m) + 1, joined = 0, total = 0, nodes = 0;
    uint32_t *owner = calloc(n_val, sizeof *owner); /* by value: column + 1 */
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t n = 0;
        for (uint32_t k = 0; k < w->n_model; k++) {
            weft_node node = c->at[i].node[k];
            if (!node.i)
                continue;
            n++;
            for (uint32_t r = 0; r < weft_node_out_count(w->m, node); r++) {
                assert_int_equal(owner[weft_node_out(w->m, node, r).i], 0);
                owner[weft_node_out(w->m, node, r).i] = i + 1;
            }
        }
        assert_true(n > 0);
        assert_int_equal(n, c->at[i].n);
        joined += n - 1;
        total += n;
        expect_alike(w, &c->at[i]);
    }
    for (uint32_t k = 0; k < w->n_model; k++)
        nodes += weft_graph_node_count(w->model[k]);
    assert_int_equal(total, nodes);
    /* No column needs a value that the same or a later column makes: in a cycle some column would.
     */
    for (uint32_t i = 0; i < c->n; i++)
        for (uint32_t k = 0; k < w->n_model; k++) {
            weft_node node = c->at[i].node[k];
            for (uint32_t a = 0; node.i && a < weft_node_in_count(w->m, node); a++)
                assert_true(owner[weft_node_in(w->m, node, a).i] <= i);
        }
    free(owner);
    return joined;
}

/* -- Random models ---------------------------------------------------------------------------- */

/* Nodes on values of [b,8]: sums, activations, and GEMMs by one of WEIGHTS shared weights, by a
 * weight of the model's own of the same shape, or through a hidden layer of another width. */
static void add_random(weft_buf *text, uint32_t model, uint64_t *seed)
{
    uint32_t n = 3 + (uint32_t)(rand_next(seed) % 20), at = 1;
    uint32_t value[64] = {0}, n_value = 1; /* values with 8 columns */
    weft_buf_printf(text, "graph @m%u (%%0 : f32[?b%u,8]) {\n  symbol ?b%u \"batch\"\n", model,
                    model, model);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t back = (uint32_t)(rand_next(seed) % 3 ? rand_next(seed) % n_value : 0);
        uint32_t x = value[n_value - 1 - back], y = value[rand_next(seed) % n_value];
        uint32_t which = (uint32_t)(rand_next(seed) % WEIGHTS);
        uint32_t wide = 8 + 4 * (uint32_t)(rand_next(seed) % 3);
        switch (rand_next(seed) % 6) {
        case 0:
            weft_buf_printf(text,
                            "  %%%u : f32[?b%u,8] = ew %%%u, %%%u {steps = [\"add i0 i1\"]}\n", at,
                            model, x, y);
            break;
        case 1:
            weft_buf_printf(text, "  %%%u : f32[?b%u,8] = ew %%%u {steps = [\"tanh i0\"]}\n", at,
                            model, x);
            break;
        case 2:
            weft_buf_printf(text, "  %%%u : f32[?b%u,8] = matmul %%%u, $own%u_%u\n", at, model, x,
                            model, which);
            break;
        case 3:
            weft_buf_printf(text, "  %%%u : f32[?b%u,%u] = matmul %%%u, $up%u\n", at, model, wide,
                            x, wide);
            weft_buf_printf(text, "  %%%u : f32[?b%u,8] = matmul %%%u, $down%u\n", at + 1, model,
                            at, wide);
            at++;
            break;
        default:
            weft_buf_printf(text, "  %%%u : f32[?b%u,8] = matmul %%%u, $w%u\n", at, model, x,
                            which);
        }
        value[n_value++] = at++;
    }
    weft_buf_printf(text, "  return \"y\" %%%u\n}\n", at - 1);
}

static void make_random(weft_buf *text, uint64_t seed)
{
    uint32_t n_model = 2 + (uint32_t)(rand_next(&seed) % (MODELS_MAX - 1));
    print_head(text, n_model);
    for (int i = 0; i < WEIGHTS; i++)
        weft_buf_printf(text, "weight $w%d : f32[8,8] = random %d\n", i, i + 1);
    for (uint32_t k = 0; k < n_model; k++)
        for (int i = 0; i < WEIGHTS; i++)
            weft_buf_printf(text, "weight $own%u_%d : f32[8,8] = random %u\n", k, i,
                            100 + 10 * k + (uint32_t)i);
    for (int wide = 8; wide <= 16; wide += 4)
        weft_buf_printf(text,
                        "weight $up%d : f32[8,%d] = random %d\n"
                        "weight $down%d : f32[%d,8] = random %d\n",
                        wide, wide, 50 + wide, wide, wide, 70 + wide);
    for (uint32_t k = 0; k < n_model; k++)
        add_random(text, k, &seed);
}

static void test_align__random_models_make_no_cycle(void **state)
{
    uint64_t wide = 0, equal = 0;
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(ROUNDS); round++) {
        weft_buf text = {0};
        world w;
        make_random(&text, round * 7919);
        open_world(&w, &text);
        weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
        uint32_t n = expect_sound(&w, &c);
        weft_columns again = weft_merge__match(&w.cx, w.model, w.n_model);
        assert_int_equal(again.n, c.n);
        for (uint32_t i = 0; i < c.n; i++)
            assert_memory_equal(again.at[i].node, c.at[i].node, w.n_model * sizeof(weft_node));
        weft_columns parted = weft_merge__split(&w.cx, &c);
        uint32_t n_equal = expect_sound(&w, &parted);
        for (uint32_t i = 0; i < parted.n; i++)
            assert_int_equal(parted.at[i].kind, WEFT_COLUMN_EQUAL);
        assert_true(n_equal <= n);
        wide += n;
        equal += n_equal;
        close_world(&w);
    }
    print_message("%llu nodes joined, %llu of equal weights\n", (unsigned long long)wide,
                  (unsigned long long)equal);
    assert_true(wide > 20 * RAND_ROUNDS(ROUNDS) && equal > 10 * RAND_ROUNDS(ROUNDS) &&
                wide > equal);
}

/* Every subset of the stages gives sound columns, and leaving any stage out finds fewer pairs. */
static void test_align__every_step_counts(void **state)
{
    static const uint32_t all = 15;
    uint64_t wide[16] = {0}, equal[16] = {0};
    (void)state;
    for (uint64_t round = 1; round <= RAND_ROUNDS(200); round++)
        for (uint32_t without = 0; without <= all; without++) {
            weft_buf text = {0};
            const weft_pass_options options = {.match_without = without,
                                               .assignment = &weft_assignment_igraph};
            world w;
            make_random(&text, round * 104729);
            open_world(&w, &text);
            w.cx.options = &options;
            weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
            wide[without] += expect_sound(&w, &c);
            weft_columns parted = weft_merge__split(&w.cx, &c);
            equal[without] += expect_sound(&w, &parted);
            close_world(&w);
        }
    print_message("without      joined  of equal weights\n");
    for (uint32_t i = 0; i <= all; i++)
        print_message("%s%s%s%s %8llu %8llu\n", i & WEFT_MATCH_ANCHORS ? "a" : "-",
                      i & WEFT_MATCH_CROSSED ? "c" : "-", i & WEFT_MATCH_BETWEEN ? "b" : "-",
                      i & WEFT_MATCH_REST ? "r" : "-", (unsigned long long)wide[i],
                      (unsigned long long)equal[i]);
    assert_int_equal(wide[all], 0);
    for (uint32_t step = 1; step < all; step *= 2)
        assert_true(wide[all - step] > 0);
    /* Anchors in order are also found by the next stage; they are a stage of their own for speed.
     */
    assert_true(equal[0] > equal[WEFT_MATCH_CROSSED]);
    assert_true(equal[0] > equal[WEFT_MATCH_ANCHORS | WEFT_MATCH_CROSSED]);
    assert_true(wide[0] > wide[WEFT_MATCH_BETWEEN] && wide[0] > wide[WEFT_MATCH_REST]);
}

/* -- Crossed orders --------------------------------------------------------------------------- */

/* Branches from the input, each a GEMM with a different weight and a tanh, summed in the order of
 * their text; order[i]: the branch at position i. */
static void add_branches(weft_buf *text, uint32_t model, const uint32_t *order, uint32_t n,
                         const char *prefix)
{
    uint32_t at = 1;
    weft_buf_printf(text, "graph @m%u (%%0 : f32[?b%u,8]) {\n  symbol ?b%u \"batch\"\n", model,
                    model, model);
    for (uint32_t i = 0; i < n; i++) {
        weft_buf_printf(text, "  %%%u : f32[?b%u,%u] = matmul %%0, $%s%u\n", at, model,
                        8 + 8 * order[i], prefix, order[i]);
        weft_buf_printf(text, "  %%%u : f32[?b%u,%u] = ew %%%u {steps = [\"tanh i0\"]}\n", at + 1,
                        model, 8 + 8 * order[i], at);
        at += 2;
    }
    weft_buf_printf(text, "  return");
    for (uint32_t i = 0; i < n; i++)
        weft_buf_printf(text, "%s \"y%u\" %%%u", i ? "," : "", i, 2 + 2 * i);
    weft_buf_printf(text, "\n}\n");
}

/* Independent branches correspond even if they are written in the opposite order. */
static void test_align__branches_in_any_order_correspond(void **state)
{
    static const uint32_t forth[] = {0, 1, 2, 3, 4, 5, 6, 7}, back[] = {7, 3, 6, 5, 0, 4, 2, 1};
    (void)state;
    for (int equal = 0; equal < 2; equal++) {
        weft_buf text = {0};
        world w;
        print_head(&text, 2);
        for (uint32_t i = 0; i < 8; i++)
            weft_buf_printf(&text,
                            "weight $w%u : f32[8,%u] = random %u\n"
                            "weight $v%u : f32[8,%u] = random %u\n",
                            i, 8 + 8 * i, i + 1, i, 8 + 8 * i, i + 21);
        add_branches(&text, 0, forth, 8, "w");
        add_branches(&text, 1, back, 8, equal ? "w" : "v");
        open_world(&w, &text);
        weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
        assert_int_equal(expect_sound(&w, &c), 16);
        for (uint32_t i = 0; i < c.n; i++)
            assert_int_equal(c.at[i].kind, !equal && weft_merge__is_gemm(w.m, c.at[i].node[0])
                                               ? WEFT_COLUMN_SHAPE
                                               : WEFT_COLUMN_EQUAL);
        close_world(&w);
    }
}

/* A chain of GEMMs by weights 0 to n - 1 and the same in reverse: at most one pair can be matched.
 * In three models with cyclic orders only all three matches together would make a cycle. */
static void test_align__crossed_chains_are_refused(void **state)
{
    static const uint32_t order[][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    weft_buf text = {0};
    world w;
    (void)state;
    print_head(&text, 4);
    for (uint32_t i = 0; i < 3; i++)
        weft_buf_printf(&text, "weight $w%u : f32[8,8] = random %u\n", i, i + 1);
    for (uint32_t k = 0; k < 4; k++) {
        weft_buf_printf(&text, "graph @m%u (%%0 : f32[?b%u,8]) {\n  symbol ?b%u \"batch\"\n", k, k,
                        k);
        for (uint32_t i = 0; i < 3; i++)
            weft_buf_printf(&text, "  %%%u : f32[?b%u,8] = matmul %%%u, $w%u\n", i + 1, k, i,
                            order[k][i]);
        weft_buf_printf(&text, "  return \"y\" %%3\n}\n");
    }
    open_world(&w, &text);
    weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
    expect_sound(&w, &c);
    weft_columns parted = weft_merge__split(&w.cx, &c);
    uint32_t joined = expect_sound(&w, &parted);
    /* m0 and m1 share 1, 2; m0, m1 and m2 then share 2; and so on: never all nine. */
    assert_true(joined >= 4 && joined < 9);
    close_world(&w);
}

/* -- Limits ----------------------------------------------------------------------------------- */

/* Two models of thousands of GEMMs of one shape with different weights, in opposite orders: more
 * pairs than the limits allow. The alignment still ends and is sound. */
static void test_align__huge_unlike_models_end(void **state)
{
    enum { N = 9000 };
    weft_buf text = {0};
    world w;
    (void)state;
    print_head(&text, 2);
    for (uint32_t i = 0; i < 64; i++)
        weft_buf_printf(&text,
                        "weight $p%u : f32[8,8] = random %u\nweight $q%u : f32[8,8] = random %u\n",
                        i, i + 1, i, i + 101);
    for (uint32_t k = 0; k < 2; k++) {
        weft_buf_printf(&text, "graph @m%u (%%0 : f32[?b%u,8]) {\n  symbol ?b%u \"batch\"\n", k, k,
                        k);
        for (uint32_t i = 1; i <= N; i++)
            weft_buf_printf(&text, "  %%%u : f32[?b%u,8] = matmul %%%u, $%c%u\n", i, k, i / 2,
                            k ? 'q' : 'p', k ? (N - i) % 64 : i % 61);
        weft_buf_printf(&text, "  return \"y\" %%%u\n}\n", N);
    }
    open_world(&w, &text);
    weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
    expect_sound(&w, &c);
    close_world(&w);
}

static void test_align__empty_and_scalar_weights(void **state)
{
    static const char text[] = "wir 1 kernel\nsymbol ?b0 = [1, 8]\nsymbol ?b1 = [1, 8]\n"
                               "weight $e : f32[8,0] = random 1\nweight $f : f32[8,0] = random 2\n"
                               "weight $s : f32[] = random 3\nweight $t : f32[] = random 4\n"
                               "graph @m0 (%0 : f32[?b0,8]) {\n  symbol ?b0 \"batch\"\n"
                               "  %1 : f32[?b0,0] = matmul %0, $e\n"
                               "  %2 : f32[?b0,8] = ew %0, $s {steps = [\"mul i0 i1\"]}\n"
                               "  return \"y\" %1, \"z\" %2\n}\n"
                               "graph @m1 (%0 : f32[?b1,8]) {\n  symbol ?b1 \"batch\"\n"
                               "  %1 : f32[?b1,0] = matmul %0, $f\n"
                               "  %2 : f32[?b1,8] = ew %0, $t {steps = [\"mul i0 i1\"]}\n"
                               "  return \"y\" %1, \"z\" %2\n}\n";
    weft_buf buf = {0};
    world w;
    (void)state;
    weft_buf_puts(&buf, text);
    open_world(&w, &buf);
    weft_columns c = weft_merge__match(&w.cx, w.model, w.n_model);
    assert_int_equal(expect_sound(&w, &c), 2);
    weft_columns parted = weft_merge__split(&w.cx, &c);
    assert_true(expect_sound(&w, &parted) <= 2);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_align__random_models_make_no_cycle),
        cmocka_unit_test(test_align__every_step_counts),
        cmocka_unit_test(test_align__branches_in_any_order_correspond),
        cmocka_unit_test(test_align__crossed_chains_are_refused),
        cmocka_unit_test(test_align__huge_unlike_models_end),
        cmocka_unit_test(test_align__empty_and_scalar_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
