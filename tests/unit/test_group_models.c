/* Which models are merged with which: families of siblings, in any number and order. */
#include "passes/merge/merge.h"
#include "base/diag.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MODELS_MAX = 128, SIDE = 16 };

typedef struct world {
    weft_module *m;
    weft_diag *diag;
    weft_arena *scratch;
    weft_pass_options options;
    weft_passctx cx;
    weft_buf weights, graphs, symbols;
    weft_graph *model[MODELS_MAX];
    uint32_t n, group_of[MODELS_MAX]; /* 0: not found */
    weft_model_groups groups;
} world;

static void open_world(world *w)
{
    *w = (world){.diag = weft_diag_create(), .scratch = weft_arena_create(0)};
}

static void add_weight(world *w, const char *name, uint32_t cols, uint32_t seed)
{
    weft_buf_printf(&w->weights, "weight $%s : f32[%d,%u] = random %u\n", name, SIDE, cols, seed);
}

/* The weight that add_text_weight makes of `seed`, with one element in `every` changed (0: none).
 */
static void add_text_weight(world *w, const char *name, uint32_t seed, uint32_t every)
{
    weft_buf_printf(&w->weights, "weight $%s : f32[%d,%d] = dense [", name, SIDE, SIDE);
    for (uint32_t i = 0; i < SIDE * SIDE; i++) {
        uint32_t x = (i + 1) * 2654435761u * (seed + 1);
        weft_buf_printf(&w->weights, "%s%d", i ? ", " : "",
                        (int)(x >> 16 & 1023) - 512 + (every && i % every == 0 ? 7 : 0));
    }
    weft_buf_puts(&w->weights, "]\n");
}

/* A chain of GEMMs by the named weights, each followed by an activation; the last has `cols`
 * columns. */
static void add_chain(world *w, const char *const *weight, const char *const *act,
                      uint32_t n_weight, uint32_t cols)
{
    uint32_t at = 0, id = w->n++;
    weft_buf_printf(&w->symbols, "symbol ?b%u = [1, 8]\n", id);
    weft_buf_printf(&w->graphs, "graph @m%u (%%0 : f32[?b%u,%d]) {\n  symbol ?b%u \"batch\"\n", id,
                    id, SIDE, id);
    for (uint32_t i = 0; i < n_weight; i++) {
        uint32_t n = i + 1 == n_weight ? cols : SIDE;
        weft_buf_printf(&w->graphs, "  %%%u : f32[?b%u,%u] = matmul %%%u, $%s\n", at + 1, id, n, at,
                        weight[i]);
        weft_buf_printf(&w->graphs, "  %%%u : f32[?b%u,%u] = ew %%%u {steps = [\"%s i0\"]}\n",
                        at + 2, id, n, at + 1, act[i]);
        at += 2;
    }
    weft_buf_printf(&w->graphs, "  return \"y\" %%%u\n}\n", at);
}

static void add_model(world *w, const char *const *weight, uint32_t n_weight, uint32_t cols,
                      const char *act)
{
    const char *const all[] = {act, act, act, act, act, act, act, act, act};
    assert_true(n_weight <= sizeof all / sizeof all[0]);
    add_chain(w, weight, all, n_weight, cols);
}

static void find_groups(world *w)
{
    weft_buf text = {0};
    weft_buf_printf(&text, "wir 1 kernel\n%s%s%s", w->symbols.at, w->weights.at, w->graphs.at);
    assert_false(text.failed || w->symbols.failed || w->weights.failed || w->graphs.failed);
    if (weft_module_parse(text.at, text.len, "text", NULL, w->diag, &w->m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(w->diag, 0)->text);
    weft_buf_finish(&text);
    w->options.assignment = &weft_assignment_igraph;
    w->cx = (weft_passctx){.options = &w->options, .scratch = w->scratch, .diag = w->diag};
    for (uint32_t i = 0; i < w->n; i++)
        w->model[i] = weft_graph_at(w->m, i);
    w->groups = weft_merge__group_models(&w->cx, w->model, w->n);
    uint32_t total = 0;
    for (uint32_t i = 0; i < w->groups.n; i++) {
        assert_in_range(w->groups.at[i].n, 1, WEFT_MERGE_MODELS_MAX);
        for (uint32_t k = 0; k < w->groups.at[i].n; k++, total++)
            for (uint32_t j = 0; j < w->n; j++)
                if (w->groups.at[i].model[k] == w->model[j]) {
                    assert_int_equal(w->group_of[j], 0);
                    w->group_of[j] = i + 1;
                }
    }
    assert_int_equal(total, w->n);
}

static void close_world(world *w)
{
    weft_buf_finish(&w->weights);
    weft_buf_finish(&w->graphs);
    weft_buf_finish(&w->symbols);
    weft_module_destroy(w->m);
    weft_arena_destroy(w->scratch);
    weft_diag_destroy(w->diag);
}

/* Models of two families, alternating, each model with a head of its own: two groups. */
static void test_group__families_in_turn(void **state)
{
    static world w;
    (void)state;
    open_world(&w);
    add_weight(&w, "a", SIDE, 1);
    add_weight(&w, "b", SIDE, 2);
    for (uint32_t i = 0; i < 10; i++) {
        char head[16];
        snprintf(head, sizeof head, "h%u", i);
        add_weight(&w, head, 2 + i / 2, 10 + i);
        const char *const weight[] = {i % 2 ? "a" : "b", head};
        add_model(&w, weight, 2, 2 + i / 2, i % 2 ? "tanh" : "relu");
    }
    find_groups(&w);
    assert_int_equal(w.groups.n, 2);
    for (uint32_t i = 0; i < w.n; i++)
        assert_int_equal(w.group_of[i], 1 + i % 2);
    close_world(&w);
}

/* Models of one architecture: independently trained models are not grouped; a model with a small
 * change in every weight is grouped with its origin. */
static void test_group__one_architecture(void **state)
{
    static world w;
    (void)state;
    open_world(&w);
    for (uint32_t i = 0; i < 6; i++) {
        char a[16], b[16];
        snprintf(a, sizeof a, "a%u", i);
        snprintf(b, sizeof b, "b%u", i);
        add_text_weight(&w, a, i % 2, i / 2 ? 3 + i : 0);
        add_text_weight(&w, b, 20 + i, 0);
        const char *const weight[] = {a, b};
        add_model(&w, weight, 2, SIDE, "tanh");
    }
    find_groups(&w);
    assert_int_equal(w.groups.n, 2);
    for (uint32_t i = 0; i < w.n; i++)
        assert_int_equal(w.group_of[i], 1 + i % 2);
    close_world(&w);
}

/* One more layer and small changes of weights: within the distance. Another activation in every
 * layer: not, because half of the nodes differ. Models that share a weight are grouped in any case.
 */
static void test_group__other_architectures(void **state)
{
    static const char *const weight[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    static const char *const moved[] = {"a1", "b1", "c1", "d1", "e1", "f1", "g1", "h1", "x"};
    static const char *const again[] = {"x2", "a2", "y2", "h"};
    static world w;
    (void)state;
    open_world(&w);
    for (uint32_t i = 0; i < 8; i++) {
        add_text_weight(&w, weight[i], i, 0);
        add_text_weight(&w, moved[i], i, 5);
    }
    add_weight(&w, "x", SIDE, 30);
    add_weight(&w, "x2", SIDE, 31);
    add_text_weight(&w, "a2", 0, 7);
    add_weight(&w, "y2", SIDE, 32);
    add_model(&w, weight, 8, SIDE, "tanh");
    add_model(&w, moved, 9, SIDE, "tanh");
    add_model(&w, moved, 8, SIDE, "relu"); /* grouped with m1 by its weights */
    add_model(&w, again, 3, SIDE, "relu");
    add_model(&w, again, 4, SIDE, "sqrt"); /* grouped with m0 by `h`, with m3 by all others */
    find_groups(&w);
    assert_int_equal(w.groups.n, 1);
    close_world(&w);

    open_world(&w);
    for (uint32_t i = 0; i < 8; i++) {
        add_text_weight(&w, weight[i], i, 0);
        add_text_weight(&w, moved[i], i, 5);
    }
    add_weight(&w, "x", SIDE, 30);
    add_weight(&w, "x2", SIDE, 31);
    add_text_weight(&w, "a2", 0, 7);
    add_weight(&w, "y2", SIDE, 32);
    add_model(&w, weight, 8, SIDE, "tanh");
    add_model(&w, moved, 8, SIDE, "relu");
    add_model(&w, again, 3, SIDE, "tanh");
    find_groups(&w);
    assert_int_equal(w.groups.n, 3);
    close_world(&w);
}

/* 60 siblings: groups of 20, each of the siblings that share most. */
static void test_group__more_than_fit_in_one(void **state)
{
    static world w;
    (void)state;
    open_world(&w);
    add_weight(&w, "base", SIDE, 1);
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "mid%u", i);
        add_weight(&w, name, SIDE, 2 + i);
    }
    for (uint32_t i = 0; i < 60; i++) {
        char head[16], mid[16];
        snprintf(head, sizeof head, "h%u", i);
        snprintf(mid, sizeof mid, "mid%u", i % 3);
        add_weight(&w, head, 4, 10 + i);
        const char *const weight[] = {"base", mid, head};
        add_model(&w, weight, 3, 4, "tanh");
    }
    find_groups(&w);
    assert_int_equal(w.groups.n, 3);
    for (uint32_t i = 0; i < w.n; i++) {
        assert_int_equal(w.groups.at[i % 3].n, 20);
        assert_int_equal(w.group_of[i], 1 + i % 3);
    }
    close_world(&w);
}

/* Two layers in the opposite order. No alignment in order matches both, but few edits turn one
 * model into the other: GEMMs change places with the nodes that follow them. */
static void test_group__layers_in_another_order(void **state)
{
    static const char *const first[] = {"a", "b"}, *const second[] = {"c", "d"};
    static const char *const act[] = {"tanh", "relu"}, *const turned[] = {"relu", "tanh"},
                             *const other[] = {"sqrt", "exp"};
    static world w;
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_world(&w);
        for (uint32_t i = 0; i < 4; i++) {
            const char name[] = {(char)('a' + i), 0};
            add_text_weight(&w, name, 0, i ? 4 + i : 0);
        }
        add_chain(&w, first, act, 2, SIDE);
        add_chain(&w, second, k ? other : turned, 2, SIDE);
        find_groups(&w);
        assert_int_equal(w.groups.n, k ? 2 : 1);
        close_world(&w);
    }
}

/* A strategy that is asked for by name is also tried on independently trained models, but not on
 * models of different architectures. */
static void test_group__asked_for(void **state)
{
    static const char *const first[] = {"a", "b"}, *const second[] = {"c", "d"},
                             *const third[] = {"e"};
    static world w;
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_world(&w);
        for (uint32_t i = 0; i < 5; i++) {
            const char name[] = {(char)('a' + i), 0};
            add_text_weight(&w, name, i, 0);
        }
        add_model(&w, first, 2, SIDE, "tanh");
        add_model(&w, second, 2, SIDE, "tanh");
        add_model(&w, third, 1, SIDE, "relu");
        w.options.merge = k ? WEFT_MERGE_STRATEGY : WEFT_MERGE_AUTO;
        find_groups(&w);
        assert_int_equal(w.group_of[0] == w.group_of[1], k);
        assert_int_equal(w.groups.n, k ? 2 : 3);
        close_world(&w);
    }
}

static void test_group__none_and_one(void **state)
{
    static world w;
    (void)state;
    open_world(&w);
    add_weight(&w, "a", SIDE, 1);
    const char *const weight[] = {"a"};
    add_model(&w, weight, 1, SIDE, "tanh");
    find_groups(&w);
    assert_int_equal(w.groups.n, 1);
    assert_int_equal(weft_merge__group_models(&w.cx, w.model, 0).n, 0);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group__families_in_turn),
        cmocka_unit_test(test_group__one_architecture),
        cmocka_unit_test(test_group__other_architectures),
        cmocka_unit_test(test_group__more_than_fit_in_one),
        cmocka_unit_test(test_group__layers_in_another_order),
        cmocka_unit_test(test_group__asked_for),
        cmocka_unit_test(test_group__none_and_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
