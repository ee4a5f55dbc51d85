/* Compute need over time: sweeps against brute force, and starts of kernels in graphs with
 * joins. */
#include "estimator/estimator.h"
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

enum { MANY = 60, ROUNDS = 300 };

static uint64_t seed = 1;

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-9 * fmax(1, fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* -- Brute force ------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Brute force: tests every interval in every period between two neighbouring end points. */
static weft_creq brute_force(const weft_interval *iv, size_t n)
{
    static double at[2 * MANY], need[2 * MANY], len[2 * MANY];
    weft_creq c = {0};
    size_t parts = 0;
    for (size_t i = 0; i < n; i++) {
        at[2 * i] = iv[i].start_us;
        at[2 * i + 1] = iv[i].end_us;
    }
    qsort(at, 2 * n, sizeof *at, by_value);
    for (size_t i = 0; i + 1 < 2 * n; i++) {
        if (at[i + 1] <= at[i])
            continue;
        double sum = 0;
        for (size_t k = 0; k < n; k++)
            if (iv[k].start_us <= at[i] && iv[k].end_us > at[i])
                sum += iv[k].need;
        need[parts] = fmin(1, sum);
        len[parts] = at[i + 1] - at[i];
        c.span_us += len[parts];
        c.mean += need[parts] * len[parts];
        c.max = fmax(c.max, need[parts]);
        parts++;
    }
    c.mean /= c.span_us;
    /* The smallest need that is not exceeded for 95 % of the time. */
    c.p95 = INFINITY;
    for (size_t i = 0; i < parts; i++) {
        double below_us = 0;
        for (size_t k = 0; k < parts; k++)
            below_us += need[k] <= need[i] + 1e-12 ? len[k] : 0;
        if (below_us >= 0.95 * c.span_us)
            c.p95 = fmin(c.p95, need[i]);
    }
    for (size_t i = 0; i < parts; i++)
        for (int b = 0; b < WEFT_CREQ_BINS; b++)
            if ((need[i] > (double)b / WEFT_CREQ_BINS + 1e-9 || b == 0) &&
                need[i] <= (double)(b + 1) / WEFT_CREQ_BINS + 1e-9)
                c.bin[b] += len[i] / c.span_us;
    return c;
}

static void assert_same(const weft_creq *a, const weft_creq *b)
{
    assert_near(a->max, b->max);
    assert_near(a->mean, b->mean);
    assert_near(a->p95, b->p95);
    assert_near(a->span_us, b->span_us);
    for (int i = 0; i < WEFT_CREQ_BINS; i++)
        assert_near(a->bin[i], b->bin[i]);
}

static void test_timeline__sweep_is_brute_force(void **state)
{
    weft_arena *arena = weft_arena_create(0);
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        weft_interval iv[MANY];
        size_t n = 1 + rand_below(&seed, MANY);
        for (size_t i = 0; i < n; i++) {
            double start = rand_below(&seed, 40); /* many ends fall together */
            iv[i] = (weft_interval){start, start + 1 + rand_below(&seed, 20),
                                    (1 + rand_below(&seed, 64)) / 256.0};
        }
        /* No gaps from time 0 on, as for the kernels of a graph. */
        iv[0].start_us = 0;
        iv[0].end_us = 64;
        weft_creq got, want = brute_force(iv, n);
        weft_creq_sweep(iv, n, arena, &got);
        assert_same(&got, &want);
    }
    weft_arena_destroy(arena);
}

/* -- By hand ---------------------------------------------------------------------------------- */

static void test_timeline__touching_kernels_do_not_add_up(void **state)
{
    const weft_interval iv[] = {{0, 10, 0.5}, {10, 20, 0.75}, {20, 20, 1.0}};
    weft_arena *arena = weft_arena_create(0);
    weft_creq c;
    (void)state;
    weft_creq_sweep(iv, 3, arena, &c);
    assert_near(c.max, 0.75);
    assert_near(c.mean, 0.625);
    assert_near(c.p95, 0.75);
    assert_near(c.span_us, 20);
    assert_near(c.bin[9], 0.5);  /* (0.45, 0.50] */
    assert_near(c.bin[14], 0.5); /* (0.70, 0.75] */
    weft_creq_sweep(iv, 0, arena, &c);
    assert_near(c.max, 0);
    assert_near(c.span_us, 0);
    weft_arena_destroy(arena);
}

static void test_timeline__never_more_than_the_device(void **state)
{
    const weft_interval iv[] = {{0, 10, 0.75}, {5, 10, 0.75}};
    weft_arena *arena = weft_arena_create(0);
    weft_creq c;
    (void)state;
    weft_creq_sweep(iv, 2, arena, &c);
    assert_near(c.max, 1);
    assert_near(c.mean, 0.875);
    weft_arena_destroy(arena);
}

/* A long kernel beside short ones: USHER's groups contain only kernels that start together. */
static void test_timeline__usher_misses_what_starts_apart(void **state)
{
    const weft_interval iv[] = {{0, 100, 0.25}, {0.5, 10, 0.125}, {50, 60, 0.5}, {80, 90, 0.25}};
    weft_arena *arena = weft_arena_create(0);
    weft_creq c;
    (void)state;
    weft_creq_sweep(iv, 4, arena, &c);
    assert_near(c.max, 0.75);
    assert_near(weft_creq_usher(iv, 4, 1, arena), 0.5);
    assert_near(weft_creq_usher(iv, 4, 0, arena), 0.5);
    assert_near(weft_creq_usher(iv, 2, 1, arena), 0.375);
    assert_near(weft_creq_usher(iv, 2, 0.1, arena), 0.25);
    weft_arena_destroy(arena);
}

/* -- Graphs ----------------------------------------------------------------------------------- */

static weft_module *parse(const char *text)
{
    weft_diag *diag = weft_diag_create();
    weft_module *m = NULL;
    if (weft_module_parse(text, strlen(text), "text", NULL, diag, &m) != WEFT_ERR_OK)
        fail_msg("%s", weft_diag_at(diag, 0)->text);
    weft_diag_destroy(diag);
    return m;
}

static weft_estimate estimate(weft_module *m, weft_arena *arena)
{
    weft_diag *diag = weft_diag_create();
    weft_slice slice;
    weft_estimate e;
    int64_t symbol[4] = {0};
    weft_graph *g = weft_graph_at(m, 0);
    assert_int_equal(weft_slice_make("a100-80", "", diag, &slice), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_symbols(g, 1, diag, symbol), WEFT_ERR_OK);
    assert_int_equal(weft_estimate_graph(g, symbol, &slice, NULL, arena, diag, &e), WEFT_ERR_OK);
    weft_diag_destroy(diag);
    return e;
}

/* A short branch, a long branch with a view at its end, and a join. */
static void test_timeline__join_waits_for_the_longest_branch(void **state)
{
    weft_module *m = parse("wir 1 kernel\n"
                           "graph @g (%x : f32[1,1048576]) {\n"
                           "  %a : f32[1,1048576] = ew %x {steps = [\"relu i0\"]}\n"
                           "  %b : f32[1,1048576] = ew %x {steps = [\"exp i0\"]}\n"
                           "  %c : f32[1,1048576] = ew %b {steps = [\"neg i0\"]}\n"
                           "  %d : f32[1048576] = view %c {shape = dims[1048576]}\n"
                           "  %e : f32[1,1048576] = ew %a, %d {steps = [\"add i0 i1\"]}\n"
                           "  return \"e\" %e\n"
                           "}\n");
    weft_arena *arena = weft_arena_create(0);
    weft_estimate e = estimate(m, arena);
    (void)state;
    assert_int_equal(e.n, 4);
    const weft_kernel_cost *k = e.kernel;
    assert_near(k[0].start_us, 0);
    assert_near(k[1].start_us, 0);
    assert_near(k[2].start_us, k[1].cost.time_us);
    assert_near(k[3].start_us, k[1].cost.time_us + k[2].cost.time_us);
    assert_true(k[3].start_us > k[0].end_us);
    assert_near(e.creq.span_us, k[3].end_us);
    assert_near(e.total.time_us, k[0].cost.time_us + e.creq.span_us);
    assert_true(e.creq.max > k[1].cost.creq && e.creq.mean < e.creq.max);
    weft_module_destroy(m);
    weft_arena_destroy(arena);
}

/* Random graphs: starts by relaxation of all edges until nothing changes, needs by brute force. */
static void test_timeline__random_graphs(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        uint32_t a[MANY], b[MANY], n = 2 + rand_below(&seed, MANY - 2);
        char text[MANY * 120 + 200];
        size_t len =
            (size_t)snprintf(text, sizeof text, "wir 1 kernel\ngraph @g (%%v0 : f32[1,65536]) {\n");
        for (uint32_t i = 1; i <= n; i++) {
            a[i - 1] = rand_below(&seed, i);
            b[i - 1] = rand_below(&seed, i);
            len +=
                (size_t)snprintf(text + len, sizeof text - len,
                                 "  %%v%u : f32[1,65536] = ew %%v%u, %%v%u {steps = "
                                 "[\"add i0 i1\"%s]}\n",
                                 i, a[i - 1], b[i - 1], rand_below(&seed, 2) ? ", \"exp s0\"" : "");
        }
        snprintf(text + len, sizeof text - len, "  return \"y\" %%v%u\n}\n", n);
        weft_module *m = parse(text);
        weft_arena *arena = weft_arena_create(0);
        weft_estimate e = estimate(m, arena);
        assert_int_equal(e.n, n);
        double end[MANY + 1] = {0};
        weft_interval iv[MANY];
        for (bool moved = true; moved;) {
            moved = false;
            for (uint32_t i = n; i > 0; i--) {
                double start = fmax(end[a[i - 1]], end[b[i - 1]]);
                double now = start + e.kernel[i - 1].cost.time_us;
                moved = moved || now != end[i];
                end[i] = now;
            }
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_near(e.kernel[i].end_us, end[i + 1]);
            iv[i] =
                (weft_interval){e.kernel[i].start_us, e.kernel[i].end_us, e.kernel[i].cost.creq};
        }
        weft_creq want = brute_force(iv, n);
        assert_near(e.creq.max, want.max);
        assert_near(e.creq.mean, want.mean);
        assert_near(e.creq.span_us, want.span_us);
        weft_module_destroy(m);
        weft_arena_destroy(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline__sweep_is_brute_force),
        cmocka_unit_test(test_timeline__touching_kernels_do_not_add_up),
        cmocka_unit_test(test_timeline__never_more_than_the_device),
        cmocka_unit_test(test_timeline__usher_misses_what_starts_apart),
        cmocka_unit_test(test_timeline__join_waits_for_the_longest_branch),
        cmocka_unit_test(test_timeline__random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
