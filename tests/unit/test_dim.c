/* base/dim.h: canonical form, divisions, bounds and text of symbolic dims. */
#include "base/dim.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_arena *arena;
static weft_dimpool *pool;
static weft_dim s, t, u; /* in [1, 128], [0, 1000], unbounded */

static int set_up(void **state)
{
    (void)state;
    arena = weft_arena_create(0);
    pool = weft_dimpool_create(arena);
    s = weft_dim_symbol(pool, "s", 1, 128);
    t = weft_dim_symbol(pool, "t", 0, 1000);
    u = weft_dim_symbol(pool, "u", 0, INT64_MAX);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    weft_arena_destroy(arena);
    return 0;
}

/* The dim of a text that is wholly an expression. */
static weft_dim dim(const char *text)
{
    weft_dim d = 0;
    assert_int_equal(weft_dim_parse(pool, text, &d), strlen(text));
    return d;
}

static void expect_print(weft_dim d, const char *text)
{
    weft_buf buf = {0};
    weft_dim_print(pool, d, &buf);
    assert_string_equal(buf.at, text);
    weft_buf_finish(&buf);
}

static void expect_same(const char *a, const char *b)
{
    if (dim(a) == dim(b))
        return;
    expect_print(dim(a), b); /* fails, and shows what it is */
    assert_true(dim(a) == dim(b));
}

static void test_dim__sums_and_products_are_canonical(void **state)
{
    (void)state;
    expect_same("?s + ?t", "?t + ?s");
    expect_same("(?s + ?t) * (?s - ?t)", "?s * ?s - ?t * ?t");
    expect_same("?s * 768 - ?s * 767", "?s");
    expect_same("?s - ?s + 5", "5");
    expect_same("-(?s - 3)", "3 - ?s");
    expect_same("2 * (3 + 4)", "14");
    assert_true(weft_dim_mul(pool, s, 0) == 0);
    assert_true(weft_dim_sub(pool, weft_dim_add(pool, s, t), t) == s);
    expect_print(dim("768 * ?s"), "?s * 768");
    expect_print(dim("1 + ?s"), "?s + 1");
    expect_print(dim("?u * ?s * 2 - ?t - 7"), "?s * ?u * 2 - ?t - 7");
    expect_print(dim("?t - ?s"), "?s * -1 + ?t");
    expect_print(dim("-4"), "-4");
}

static void test_dim__divisions_are_simplified(void **state)
{
    (void)state;
    expect_same("floordiv(?s * ?t * 768, ?s * 12)", "?t * 64");
    expect_same("floordiv(2 * ?s + 1, 2)", "?s");
    expect_same("floordiv(2 * ?s + 3, 2)", "?s + 1");
    expect_same("floordiv(2 * ?s - 1, 2)", "?s - 1");
    expect_same("floordiv(5 * ?s, 2)", "2 * ?s + floordiv(?s, 2)");
    expect_same("floordiv(?s - 1, 2) + 1", "floordiv(?s + 1, 2)");
    expect_same("floordiv(4 * ?s + 3, 6)", "floordiv(2 * ?s + 1, 3)");
    expect_same("floordiv(?s, -2)", "floordiv(-?s, 2)");
    expect_same("floordiv(floordiv(?s + 1, 2) + 1, 2)", "floordiv(?s + 3, 4)");
    expect_same("floordiv(?s * ?t + ?t, ?s + 1)", "?t");
    expect_same("floordiv(768 * ?t * (?s + ?u), (?s + ?u) * 12)", "64 * ?t");
    expect_same("floordiv(?s * ?t + 5, ?t)", "?s + floordiv(5, ?t)");
    expect_same("floordiv(?s * ?u, ?t * ?u)", "floordiv(?s, ?t)");
    expect_same("floordiv(?s, 200)", "0"); /* s is at most 128 */
    expect_same("floordiv(-7, 2)", "-4");
    expect_same("floordiv(7, -2)", "-4");
    expect_same("floordiv(0, ?s)", "0");
    expect_same("floordiv(?s, ?s)", "1");
    expect_print(dim("floordiv(?u, 2) * ?s"), "?s * floordiv(?u, 2)");
    expect_print(dim("floordiv(?u - 1, 2) + 1"), "floordiv(?u + 1, 2)");
    weft_dim q;
    assert_true(weft_dim_div_exact(pool, dim("?s * ?t * 6"), dim("?t * 2"), &q));
    assert_true(q == dim("?s * 3"));
    assert_false(weft_dim_div_exact(pool, dim("?s * 6 + 1"), 2, &q));
    assert_false(weft_dim_div_exact(pool, dim("?s * 3"), 2, &q));
    assert_false(weft_dim_div_exact(pool, s, 0, &q));
    assert_false(weft_dim_div_exact(pool, 7, 2, &q));
    assert_false(weft_dim_div_exact(pool, 6, s, &q));
    assert_true(weft_dim_div_exact(pool, 0, s, &q) && q == 0);
    assert_true(weft_dim_div_exact(pool, 6, -2, &q) && q == -3);
}

static void test_dim__extrema_are_decided_where_bounds_allow(void **state)
{
    (void)state;
    expect_same("max(3, 5)", "5");
    expect_same("min(3, -5)", "-5");
    expect_same("max(?t, ?t)", "?t");
    expect_same("max(?s, 1)", "?s");
    expect_same("max(?t, 0)", "?t");
    expect_same("min(?s, 128)", "?s");
    expect_same("max(?s, 500)", "500");
    expect_same("max(?u, ?u + 1)", "?u + 1");
    expect_same("min(?t + ?u, ?u)", "?u");
    expect_same("max(?t, ?u)", "max(?u, ?t)");
    expect_same("max(max(?s, ?t), ?u)", "max(?t, max(?u, ?s))");
    expect_same("max(max(?t, ?u), ?t)", "max(?t, ?u)");
    expect_same("max(max(?t, 3), 7)", "max(?t, 7)");
    expect_print(dim("max(7, ?t)"), "max(?t, 7)");
}

static void test_dim__bounds_and_values(void **state)
{
    (void)state;
    int64_t lo, hi, x = 0;
    weft_dim_bounds(pool, dim("?s * 2 - ?t"), &lo, &hi);
    assert_int_equal(lo, 2 - 1000);
    assert_int_equal(hi, 256);
    weft_dim_bounds(pool, dim("floordiv(?t + 1, 2)"), &lo, &hi);
    assert_int_equal(lo, 0);
    assert_int_equal(hi, 500);
    weft_dim_bounds(pool, dim("?u - 100"), &lo, &hi);
    assert_int_equal(lo, -100);
    assert_int_equal(hi, INT64_MAX / 4); /* no bound less something is no bound */
    weft_dim_bounds(pool, dim("?u * ?u * ?u * -3"), &lo, &hi);
    assert_int_equal(lo, -(INT64_MAX / 4));
    assert_int_equal(hi, 0);
    weft_dim_bounds(pool, -5, &lo, &hi);
    assert_true(lo == -5 && hi == -5);
    int64_t value[] = {5, 7, -1};
    assert_true(weft_dim_eval(pool, dim("?s * ?t - floordiv(?t, 2) + max(?s, ?t)"), value, 3, &x));
    assert_int_equal(x, 35 - 3 + 7);
    assert_false(weft_dim_eval(pool, dim("?s + ?u"), value, 3, &x));
    assert_false(weft_dim_eval(pool, t, value, 1, &x));
    value[2] = (int64_t)1 << 40;
    assert_false(weft_dim_eval(pool, dim("?u * ?u"), value, 3, &x));
    value[1] = 0;
    assert_false(weft_dim_eval(pool, dim("floordiv(?s, ?t)"), value, 3, &x));
    assert_true(weft_dim_eval(pool, 12, NULL, 0, &x) && x == 12);
}

static void test_dim__symbols_have_names_bounds_and_origin(void **state)
{
    (void)state;
    int64_t lo, hi;
    assert_int_equal(weft_dim_symbol_count(pool), 3);
    assert_true(weft_dim_symbol(pool, "s", 10, 1000) == s);
    weft_dim_symbol_range(pool, 0, &lo, &hi);
    assert_true(lo == 10 && hi == 128);
    weft_dim_symbol(pool, "s", 500, 600); /* nothing in common: no effect */
    weft_dim_symbol_range(pool, 0, &lo, &hi);
    assert_true(lo == 10 && hi == 128);
    weft_dim_symbol(pool, "neg", -5, INT64_MAX);
    weft_dim_symbol_range(pool, 3, &lo, &hi);
    assert_true(lo == 0 && hi == INT64_MAX / 4);
    expect_print(weft_dim_symbol(pool, "batch size/2", 0, 9), "?batch_size_2");
    expect_print(weft_dim_symbol(pool, "3rd", 0, 9), "?_3rd");
    expect_print(weft_dim_symbol(pool, "", 0, 9), "?_");
    expect_print(weft_dim_symbol(pool, "onnx.d.1", 0, 9), "?onnx.d.1");
    assert_int_equal(weft_dim_as_symbol(pool, t), 1);
    assert_int_equal(weft_dim_as_symbol(pool, weft_dim_add(pool, t, 1)), UINT32_MAX);
    assert_int_equal(weft_dim_as_symbol(pool, 4), UINT32_MAX);
    weft_dim_symbol(pool, "d1", 0, 5);
    weft_dim a = weft_dim_fresh(pool), b = weft_dim_fresh(pool);
    expect_print(a, "?d0");
    expect_print(b, "?d2");
    assert_true(weft_dim_is_data(pool, weft_dim_max(pool, weft_dim_floordiv(pool, a, 3), t)));
    assert_false(weft_dim_is_data(pool, dim("max(?t, ?d1)")));
    assert_true(weft_dim_declare_data(pool, "d1") == dim("?d1"));
    assert_true(weft_dim_is_data(pool, dim("max(?t, ?d1)")));
    assert_false(weft_dim_is_data(pool, 7));
}

static void test_dim__failures_become_fresh_symbols(void **state)
{
    (void)state;
    expect_print(weft_dim_floordiv(pool, s, 0), "?d0");
    expect_print(weft_dim_mul(pool, INT64_MAX, 2), "?d1");
    expect_print(weft_dim_add(pool, INT64_MAX, 1), "?d2");
    expect_print(weft_dim_mul(pool, weft_dim_mul(pool, s, INT64_MAX), 2), "?d3");
    expect_print(weft_dim_sub(pool, WEFT_DIM_CONST_MIN + 1, 5), "?d4");
    weft_dim power = s;
    for (int i = 0; i < 40; i++)
        power = weft_dim_mul(pool, power, t);
    assert_true(weft_dim_is_data(pool, power));
    /* (a + b + ...) * (c + d + ...) of 20 terms each has 400. */
    weft_dim wide = 0, other = 0;
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "w%d", i);
        wide = weft_dim_add(pool, wide, weft_dim_symbol(pool, name, 0, 9));
        snprintf(name, sizeof name, "v%d", i);
        other = weft_dim_add(pool, other, weft_dim_symbol(pool, name, 0, 9));
    }
    assert_false(weft_dim_is_data(pool, wide));
    assert_int_not_equal(weft_dim_as_symbol(pool, weft_dim_mul(pool, wide, other)), UINT32_MAX);
    /* Deep and doubling expressions stay small. */
    weft_dim deep = t;
    for (int i = 0; i < 2000; i++)
        deep = weft_dim_max(pool, weft_dim_floordiv(pool, weft_dim_mul(pool, deep, u), 3),
                            weft_dim_sub(pool, weft_dim_floordiv(pool, deep, 5), u));
    int64_t lo, hi;
    weft_dim_bounds(pool, deep, &lo, &hi);
    assert_true(lo <= hi);
}

static void test_dim__hostile_text_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        " ",
                                        "?",
                                        "?1",
                                        "s",
                                        "+",
                                        "1 +",
                                        "?s *",
                                        "(",
                                        "()",
                                        "(1",
                                        "floordiv",
                                        "floordiv(1)",
                                        "floordiv(1, 0)",
                                        "floordiv(?s, 0)",
                                        "floordiv(1, 2",
                                        "max(1 2)",
                                        "mod(1, 2)",
                                        "?s + + 1",
                                        "9223372036854775808",
                                        "-9223372036854775808",
                                        "9223372036854775807 + 1",
                                        "?s * 9223372036854775807 * 2",
                                        "4611686018427387904 * 4",
                                        "99999999999999999999999999",

                                        ", 1",
                                        "]"};
    weft_dim d = 77;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(weft_dim_parse(pool, wrong[i], &d), 0);
    assert_int_equal(d, 77);
    char nested[20001];
    memset(nested, '(', 10000);
    nested[10000] = '\0';
    assert_int_equal(weft_dim_parse(pool, nested, &d), 0);
    memset(nested, '-', 20000);
    memcpy(nested + 19998, "-7", 3);
    assert_int_equal(weft_dim_parse(pool, nested, &d), 20000);
    assert_int_equal(d, -7);
    char ok[100] = "";
    memset(ok, '(', 31);
    strcpy(ok + 31, "5)))))))))))))))))))))))))))))))");
    assert_int_equal(weft_dim_parse(pool, ok, &d), 63);
    assert_int_equal(d, 5);
}

static void test_dim__reader_stops_behind_the_expression(void **state)
{
    (void)state;
    weft_dim d;
    assert_int_equal(weft_dim_parse(pool, "?s, ?t]", &d), 2);
    assert_int_equal(weft_dim_parse(pool, " ?s + 1 ]", &d), 7);
    assert_true(d == weft_dim_add(pool, s, 1));
    assert_int_equal(weft_dim_parse(pool, "12x", &d), 2);
    assert_int_equal(weft_dim_parse(pool, "?s\n+ 1", &d), 2);
    assert_int_equal(weft_dim_parse(pool, "?brand.new_1", &d), 12);
    int64_t lo, hi;
    weft_dim_bounds(pool, d, &lo, &hi);
    assert_true(lo == 0 && hi == INT64_MAX / 4);
    assert_false(weft_dim_is_data(pool, d));
}

/* -- Random expressions ----------------------------------------------------------------------- */

enum { N_SYMBOLS = 4, N_POINTS = 12 };
static const char *const names[N_SYMBOLS] = {"b", "h", "w", "s"};
static const int64_t lows[N_SYMBOLS] = {1, 0, 3, 0}, highs[N_SYMBOLS] = {8, 300, 3, INT64_MAX};

typedef struct sample {
    weft_dim d;
    int64_t value[N_POINTS];
    bool known[N_POINTS]; /* small enough, and no division by zero */
} sample;

static uint64_t seed;
static int64_t point[N_POINTS][N_SYMBOLS];

static int64_t pick(int64_t n)
{
    return (int64_t)rand_next(&seed) % n;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

/* One expression, built both as a dim and, at every point, as a number. */
static sample make_sample(weft_dimpool *p, int depth)
{
    sample r;
    int op = depth == 0 ? (int)pick(2) : 2 + (int)pick(6);
    if (op < 2) {
        int64_t c = pick(5) == 0 ? pick(2000) - 1000 : pick(13) - 4;
        int64_t i = pick(N_SYMBOLS);
        r.d = op ? c : weft_dim_symbol(p, names[i], lows[i], highs[i]);
        for (int k = 0; k < N_POINTS; k++) {
            r.value[k] = op ? c : point[k][i];
            r.known[k] = true;
        }
        return r;
    }
    sample a = make_sample(p, depth - 1 - (int)pick(depth)),
           b = make_sample(p, depth - 1 - (int)pick(depth));
    r.d = op == 2   ? weft_dim_add(p, a.d, b.d)
          : op == 3 ? weft_dim_sub(p, a.d, b.d)
          : op == 4 ? weft_dim_mul(p, a.d, b.d)
          : op == 5 ? weft_dim_max(p, a.d, b.d)
          : op == 6 ? weft_dim_min(p, a.d, b.d)
                    : weft_dim_floordiv(p, a.d, b.d);
    for (int k = 0; k < N_POINTS; k++) {
        int64_t x = a.value[k], y = b.value[k];
        r.value[k] = 0;
        r.known[k] = a.known[k] && b.known[k] && llabs(x) < 1 << 20 && llabs(y) < 1 << 20 &&
                     (op != 7 || y != 0);
        if (r.known[k])
            r.value[k] = op == 2   ? x + y
                         : op == 3 ? x - y
                         : op == 4 ? x * y
                         : op == 5 ? (x > y ? x : y)
                         : op == 6 ? (x < y ? x : y)
                                   : floor_div(x, y);
    }
    return r;
}

static void check_sample(weft_dimpool *p, const sample *r)
{
    int64_t lo, hi, x;
    weft_dim_bounds(p, r->d, &lo, &hi);
    for (int k = 0; k < N_POINTS; k++) {
        int64_t value[64];
        for (uint32_t i = 0; i < 64; i++)
            value[i] = -1;
        for (uint32_t i = 0; i < weft_dim_symbol_count(p) && i < 64; i++)
            for (int j = 0; j < N_SYMBOLS; j++)
                if (strcmp(weft_dim_symbol_name(p, i), names[j]) == 0)
                    value[i] = point[k][j];
        /* A point where a cancelled division had no value may still have one here. */
        if (!r->known[k] || !weft_dim_eval(p, r->d, value, 64, &x))
            continue;
        assert_int_equal(x, r->value[k]);
        assert_true(lo <= x && x <= hi);
    }
}

static void test_dim__random_expressions_keep_their_value_and_text(void **state)
{
    (void)state;
    seed = 2024;
    weft_buf text = {0}, again = {0};
    int evaluated = 0;
    for (int round = 0; round < 20000; round++) {
        weft_arena_mark mark = weft_arena_get_mark(arena);
        weft_dimpool *p = weft_dimpool_create(arena), *q = weft_dimpool_create(arena);
        for (int k = 0; k < N_POINTS; k++)
            for (int i = 0; i < N_SYMBOLS; i++) {
                int64_t hi = highs[i] > 500 ? 500 : highs[i];
                point[k][i] = k == 0 ? lows[i] : k == 1 ? hi : lows[i] + pick(hi - lows[i] + 1);
            }
        sample r = make_sample(p, 1 + (int)pick(5));
        check_sample(p, &r);
        evaluated += r.known[0];
        text.len = again.len = 0;
        weft_dim_print(p, r.d, &text);
        weft_dim back;
        assert_int_equal(weft_dim_parse(p, text.at, &back), text.len);
        if (back != r.d) {
            weft_dim_print(p, back, &again);
            assert_string_equal(text.at, again.at);
        }
        assert_true(back == r.d);
        /* In another pool, whose symbols come in another order. */
        for (int i = N_SYMBOLS; i-- > 0;)
            weft_dim_symbol(q, names[i], lows[i], highs[i]);
        assert_int_equal(weft_dim_parse(q, text.at, &back), text.len);
        weft_dim_print(q, back, &again);
        assert_string_equal(text.at, again.at);
        weft_arena_reset(arena, mark);
    }
    assert_true(evaluated > 5000);
    weft_buf_finish(&text);
    weft_buf_finish(&again);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(test_dim__sums_and_products_are_canonical),
        T(test_dim__divisions_are_simplified),
        T(test_dim__extrema_are_decided_where_bounds_allow),
        T(test_dim__bounds_and_values),
        T(test_dim__symbols_have_names_bounds_and_origin),
        T(test_dim__failures_become_fresh_symbols),
        T(test_dim__hostile_text_is_refused),
        T(test_dim__reader_stops_behind_the_expression),
        T(test_dim__random_expressions_keep_their_value_and_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
