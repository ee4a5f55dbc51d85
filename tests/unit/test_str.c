/* base/str.h: buffers, number text, interned names. */
#include "base/escape.h"
#include "base/shorten.h"
#include "base/str.h"
#include "tests/support/rand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_str__buffer_collects(void **state)
{
    (void)state;
    weft_buf buf = {0};
    weft_buf_finish(&buf);
    weft_buf_add(&buf, "", 0);
    assert_string_equal(buf.at, "");
    weft_buf_puts(&buf, "ab");
    weft_buf_putc(&buf, 'c');
    for (int i = 0; i < 1000; i++)
        weft_buf_printf(&buf, "%d,", i);
    assert_int_equal(buf.len, 3 + 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(buf.at[buf.len], 0);
    assert_int_equal(strlen(buf.at), buf.len);
    assert_false(buf.failed);
    weft_buf_finish(&buf);
    assert_null(buf.at);
    weft_buf_printf(&buf, "%s", "first use is a printf");
    assert_string_equal(buf.at, "first use is a printf");
    weft_buf_finish(&buf);
}

static void expect_f32(float x, const char *text)
{
    weft_buf buf = {0};
    weft_buf_put_f32(&buf, x);
    assert_string_equal(buf.at, text);
    weft_buf_finish(&buf);
}

static void test_str__floats_are_shortest(void **state)
{
    (void)state;
    expect_f32(1.5f, "1.5");
    expect_f32(0.1f, "0.1");
    expect_f32(-0.0f, "-0");
    expect_f32(1e-12f, "1e-12");
    expect_f32(16777216.0f, "16777216");
    expect_f32(1e-45f, "1e-45");
    expect_f32(FLT_MAX, "3.4028235e+38");
    expect_f32(INFINITY, "inf");
    expect_f32(-INFINITY, "-inf");
    expect_f32(-NAN, "nan");
    weft_buf buf = {0};
    weft_buf_put_f64(&buf, 0.1);
    weft_buf_putc(&buf, ' ');
    weft_buf_put_f64(&buf, 5e-324);
    assert_string_equal(buf.at, "0.1 5e-324");
    weft_buf_finish(&buf);
}

static void test_str__floats_read_back(void **state)
{
    (void)state;
    uint64_t seed = 12345;
    weft_buf buf = {0};
    for (int i = 0; i < 20000; i++) {
        (void)rand_next(&seed);
        uint32_t u = (uint32_t)(seed >> 32);
        float f;
        double d;
        memcpy(&f, &u, sizeof f);
        memcpy(&d, &seed, sizeof d);
        buf.len = 0;
        weft_buf_put_f32(&buf, f);
        assert_true(isnan(f) || strtof(buf.at, NULL) == f);
        buf.len = 0;
        weft_buf_put_f64(&buf, d);
        assert_true(isnan(d) || strtod(buf.at, NULL) == d);
    }
    weft_buf_finish(&buf);
}

/* The fewest digits that read back, by printing with more and more of them. */
static void print_shortest(char text[40], double x, bool is_f32)
{
    for (int digits = is_f32 ? FLT_DIG : DBL_DIG; digits <= DBL_DECIMAL_DIG; digits++) {
        snprintf(text, 40, "%.*g", digits, x);
        if (is_f32 ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x)
            return;
    }
}

/* Numbers of usual sizes are printed by other means than the rest. */
static void test_str__usual_floats_are_shortest(void **state)
{
    (void)state;
    uint64_t seed = 99;
    weft_buf buf = {0};
    char text[40];
    for (int i = 0; i < 200000; i++) {
        static const double scales[] = {1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e7};
        double x = ((double)rand_next(&seed) / 1e9 - 1) * scales[rand_below(&seed, 7)];
        if (rand_below(&seed, 2)) /* few digits */
            x = (double)(int64_t)(x * 1000) / 1000;
        buf.len = 0;
        weft_buf_put_f32(&buf, (float)x);
        print_shortest(text, (double)(float)x, true);
        assert_string_equal(buf.at, text);
        buf.len = 0;
        weft_buf_put_f64(&buf, x);
        print_shortest(text, x, false);
        assert_string_equal(buf.at, text);
        buf.len = 0;
        weft_buf_put_i64(&buf, (int64_t)(x * 1e12));
        snprintf(text, sizeof text, "%lld", (long long)(x * 1e12));
        assert_string_equal(buf.at, text);
    }
    buf.len = 0;
    weft_buf_put_i64(&buf, INT64_MIN);
    weft_buf_put_u64(&buf, UINT64_MAX);
    assert_string_equal(buf.at, "-922337203685477580818446744073709551615");
    weft_buf_finish(&buf);
}

static void test_str__quoted_escapes(void **state)
{
    (void)state;
    weft_buf buf = {0};
    weft_buf_put_quoted(&buf, "a\"b\\c\nd\te\0f\x7f\xc3", 13);
    assert_string_equal(buf.at, "\"a\\\"b\\\\c\\nd\\te\\x00f\\x7f\\xc3\"");
    weft_buf_finish(&buf);
}

static void test_str__xml_is_escaped(void **state)
{
    (void)state;
    weft_buf buf = {0};
    weft_buf_put_xml(&buf, "a<b>\"&\x01\x7f\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_string_equal(buf.at, "a&lt;b&gt;&quot;&amp;??\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80");
    buf.len = 0;
    weft_buf_put_xml(&buf, "\x80z\xc3z\xe2\x82"); /* cut */
    assert_string_equal(buf.at, "?z?z??");
    weft_buf_finish(&buf);
}

static void test_str__names_are_interned(void **state)
{
    (void)state;
    weft_arena *arena = weft_arena_create(0);
    weft_names *names = weft_names_create(arena);
    assert_int_equal(weft_names_add(names, "", 0), 0);
    assert_string_equal(weft_names_text(names, 0), "");
    assert_int_equal(weft_names_find(names, "n1", 2), 0);
    char text[16];
    for (uint32_t i = 1; i < 5000; i++) {
        size_t len = (size_t)snprintf(text, sizeof text, "n%u", i);
        assert_int_equal(weft_names_add(names, text, len), i);
    }
    for (uint32_t i = 1; i < 5000; i++) {
        size_t len = (size_t)snprintf(text, sizeof text, "n%u", i);
        assert_int_equal(weft_names_add(names, text, len), i);
        assert_int_equal(weft_names_find(names, text, len), i);
        assert_string_equal(weft_names_text(names, i), text);
    }
    assert_int_equal(weft_names_find(names, "n5000", 5), 0);
    assert_string_equal(weft_names_text(names, 5000), "");
    uint32_t with_nul = weft_names_add(names, "a\0b", 3);
    assert_int_not_equal(with_nul, weft_names_add(names, "a\0c", 3));
    weft_arena_destroy(arena);
}

static void test_str__controls_are_escaped(void **state)
{
    (void)state;
    static const char *const text[][2] = {
        {"", ""},
        {"plain \xc3\xa4 \xe2\x82\xac", "plain \xc3\xa4 \xe2\x82\xac"},
        {"a\x1b[2J\r\nb\x7f", "a\\x1b[2J\\x0d\\x0ab\\x7f"},
        {"\xc2\x9b"
         "2J\xc2\xa0\xc2",
         "\\xc2\\x9b"
         "2J\xc2\xa0\xc2"},
    };
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        char out[64];
        assert_int_equal(weft_escape_controls(text[i][0], out, sizeof out), strlen(text[i][1]));
        assert_string_equal(out, text[i][1]);
    }
    char cut[6];
    assert_int_equal(weft_escape_controls("ab\x1b", cut, sizeof cut), 6);
    assert_string_equal(cut, "ab\\x1");
}

static void test_str__utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
    } of[] = {{"a\xff", 1},
              {"\x7f", 1},
              {"\xc2\x80", 2},
              {"\xdf\xbf", 2},
              {"\xe0\xa0\x80", 3},
              {"\xed\x9f\xbf", 3},
              {"\xef\xbf\xbd", 3},
              {"\xf0\x90\x80\x80", 4},
              {"\xf4\x8f\xbf\xbf", 4},
              {"\x80", 0},
              {"\xc0\x80", 0},
              {"\xc1\xbf", 0},
              {"\xc2", 0},
              {"\xc2z", 0},
              {"\xe0\x9f\xbf", 0},
              {"\xed\xa0\x80", 0},
              {"\xe2\x82", 0},
              {"\xf0\x8f\xbf\xbf", 0},
              {"\xf4\x90\x80\x80", 0},
              {"\xf5\x80\x80\x80", 0}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        size_t len = strlen(of[i].text);
        assert_int_equal(weft_utf8_size(of[i].text, len), of[i].size);
        assert_int_equal(weft_utf8_size(of[i].text, 4), of[i].size);
        assert_int_equal(weft_utf8_is_text(of[i].text, len), of[i].size == len);
        for (size_t cut = 1; cut < of[i].size; cut++)
            assert_int_equal(weft_utf8_size(of[i].text, cut), 0);
    }
    assert_int_equal(weft_utf8_size("", 0), 0);
    assert_true(weft_utf8_is_text("", 0));
    assert_false(weft_utf8_is_text("a\0b", 3));
}

static void test_str__long_names_lose_their_middle(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t most;
        const char *want;
    } of[] = {{"digits", 6, "digits"},
              {"digits-7", 6, "dig\u2026-7"},
              {"\u00e9\u00e8\u00ea\u00eb", 3, "\u00e9\u2026\u00eb"},
              {"abc", 1, "\u2026"},
              {"abc", 0, ""},
              {"\xff\xfe\xfd", 2, "\xff\u2026"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        weft_buf buf = {0};
        weft_buf_put_short(&buf, of[i].text, of[i].most);
        assert_string_equal(buf.at ? buf.at : "", of[i].want);
        weft_buf_finish(&buf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_str__buffer_collects),
        cmocka_unit_test(test_str__floats_are_shortest),
        cmocka_unit_test(test_str__floats_read_back),
        cmocka_unit_test(test_str__usual_floats_are_shortest),
        cmocka_unit_test(test_str__quoted_escapes),
        cmocka_unit_test(test_str__xml_is_escaped),
        cmocka_unit_test(test_str__controls_are_escaped),
        cmocka_unit_test(test_str__utf8),
        cmocka_unit_test(test_str__long_names_lose_their_middle),
        cmocka_unit_test(test_str__names_are_interned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
