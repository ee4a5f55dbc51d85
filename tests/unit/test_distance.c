/* Edit distance of graphs, against all mappings of small graphs. */
#include "passes/merge/distance.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { NODES = 6, EDGES = 2 * NODES, ROUNDS = 3000 };

typedef struct drawing {
    uint32_t n, label[NODES], first[NODES + 1], from[EDGES];
} drawing;

static void draw(uint64_t *seed, drawing *d)
{
    d->n = (uint32_t)(rand_next(seed) % (NODES + 1));
    for (uint32_t i = 0; i < d->n; i++) {
        d->label[i] = (uint32_t)(rand_next(seed) % 3);
        d->first[i + 1] = d->first[i] + (uint32_t)(rand_next(seed) % 3);
        for (uint32_t k = d->first[i]; k < d->first[i + 1]; k++)
            d->from[k] = (uint32_t)(rand_next(seed) % (i + 1));
    }
}

/* A graph that is a few edits from the other. */
static void change(uint64_t *seed, const drawing *from, drawing *to)
{
    *to = *from;
    for (uint32_t n = (uint32_t)(rand_next(seed) % 3); n > 0 && to->n > 0; n--) {
        uint32_t i = (uint32_t)(rand_next(seed) % to->n);
        if (rand_next(seed) % 2)
            to->label[i] = (uint32_t)(rand_next(seed) % 3);
        for (uint32_t k = to->first[i]; k < to->first[i + 1]; k++)
            to->from[k] = (uint32_t)(rand_next(seed) % (i + 1));
    }
}

static weft_plain_graph plain(const drawing *d)
{
    return (weft_plain_graph){d->n, d->label, d->first, d->from};
}

/* Whether operand `place` of node `to` is made by node `from`. */
static bool has_edge(const drawing *d, uint32_t from, uint32_t to, uint32_t place)
{
    uint32_t k = d->first[to] + place;
    return k < d->first[to + 1] && d->from[k] == from + 1;
}

/* Counts the edits of a complete mapping one by one; map[i] is a node of b, or NODES. */
static uint32_t count_edits(const drawing *a, const drawing *b, const uint32_t *map)
{
    uint32_t edits = 0, back[NODES];
    for (uint32_t v = 0; v < NODES; v++)
        back[v] = NODES;
    for (uint32_t i = 0; i < a->n; i++)
        if (map[i] < NODES)
            back[map[i]] = i;
        else
            edits++;
    for (uint32_t v = 0; v < b->n; v++)
        edits += back[v] == NODES;
    for (uint32_t place = 0; place < 2; place++) {
        for (uint32_t i = 0; i < a->n; i++)
            for (uint32_t j = 0; j < a->n; j++)
                edits += has_edge(a, i, j, place) &&
                         !(map[i] < NODES && map[j] < NODES && has_edge(b, map[i], map[j], place));
        for (uint32_t i = 0; i < b->n; i++)
            for (uint32_t j = 0; j < b->n; j++)
                edits += has_edge(b, i, j, place) && !(back[i] < NODES && back[j] < NODES &&
                                                       has_edge(a, back[i], back[j], place));
    }
    return edits;
}

static uint32_t try_all(const drawing *a, const drawing *b, uint32_t i, uint32_t *map,
                        uint32_t used)
{
    if (i == a->n || i == NODES)
        return count_edits(a, b, map);
    map[i] = NODES;
    uint32_t best = try_all(a, b, i + 1, map, used);
    for (uint32_t v = 0; v < b->n; v++) {
        if (used >> v & 1 || a->label[i] != b->label[v])
            continue;
        map[i] = v;
        uint32_t edits = try_all(a, b, i + 1, map, used | 1u << v);
        best = edits < best ? edits : best;
    }
    return best;
}

static weft_within ask(const weft_plain_graph *a, const weft_plain_graph *b, uint32_t limit,
                       uint32_t steps, weft_arena *arena)
{
    return weft_distance__within(a, b, limit, &steps, arena);
}

static void test_distance__all_mappings(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    uint64_t seed = 1;
    uint32_t by_labels = 0, cut = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        drawing d = {0}, e = {0};
        uint32_t map[NODES];
        draw(&seed, &d);
        if (round % 2)
            change(&seed, &d, &e);
        else
            draw(&seed, &e);
        weft_plain_graph a = plain(&d), b = plain(&e);
        uint32_t best = try_all(&d, &e, 0, map, 0);
        assert_int_equal(ask(&a, &b, best, UINT32_MAX, arena), WEFT_WITHIN_YES);
        assert_int_equal(ask(&b, &a, best, UINT32_MAX, arena), WEFT_WITHIN_YES);
        if (best == 0)
            continue;
        assert_int_equal(ask(&a, &b, best - 1, UINT32_MAX, arena), WEFT_WITHIN_NO);
        by_labels += ask(&a, &b, best - 1, 0, arena) == WEFT_WITHIN_NO;
        assert_int_not_equal(ask(&a, &b, best, 0, arena), WEFT_WITHIN_NO);
        for (uint32_t steps = 1; steps < 8; steps++) {
            assert_int_not_equal(ask(&a, &b, best, steps, arena), WEFT_WITHIN_NO);
            assert_int_not_equal(ask(&a, &b, best - 1, steps, arena), WEFT_WITHIN_YES);
            cut += ask(&a, &b, best - 1, steps, arena) == WEFT_WITHIN_UNKNOWN;
        }
    }
    print_message("%u of %d told by labels alone\n", by_labels, ROUNDS);
    assert_true(by_labels > ROUNDS / 10 && cut > 0);
    weft_arena_destroy(arena);
}

/* For graphs that are too large to be searched only the bound decides. */
static void test_distance__large_graphs(void **state)
{
    enum { MANY = 1000 };
    static uint32_t label[MANY], first[MANY + 1], from[MANY], other[MANY];
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        first[i + 1] = i + 1;
        from[i] = i;
        other[i] = i % 2;
    }
    weft_plain_graph a = {MANY, label, first, from}, b = {MANY, other, first, from};
    assert_int_equal(weft_distance__size(&a), 2 * MANY - 1);
    assert_int_equal(ask(&a, &a, 10, 1000, arena), WEFT_WITHIN_UNKNOWN);
    assert_int_equal(ask(&a, &b, 900, 1000, arena), WEFT_WITHIN_NO);
    assert_int_equal(ask(&a, &b, 4 * MANY, 0, arena), WEFT_WITHIN_YES);
    weft_arena_destroy(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance__all_mappings),
        cmocka_unit_test(test_distance__large_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
