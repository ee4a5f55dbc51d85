/* weft_json__*: numbers against the C library, texts against jansson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/json_scan.h"
#include "tests/support/rand.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 100000, TEXTS = 200000 };

static weft_json over(const char *text)
{
    return (weft_json){.at = text, .end = text + strlen(text)};
}

static void check_number(const char *text)
{
    weft_json_number n;
    weft_json j = over(text);
    double d = 0, want_d = strtod(text, NULL);
    float f = 0, want_f = strtof(text, NULL);
    if (!weft_json__number(&j, &n) || j.at != j.end)
        fail_msg("%s is not read", text);
    bool got_d = weft_json__as_f64(&n, &d), got_f = weft_json__as_f32(&n, &f);
    if (got_d != (isfinite(want_d) != 0) || (got_d && memcmp(&d, &want_d, sizeof d) != 0))
        fail_msg("%s: %.17g, not %.17g", text, d, want_d);
    if (got_f != (isfinite(want_f) != 0) || (got_f && memcmp(&f, &want_f, sizeof f) != 0))
        fail_msg("%s: %.9g, not %.9g", text, (double)f, (double)want_f);
}

static void test_json__numbers_are_rounded_correctly(void **state)
{
    uint64_t seed = 1;
    char text[128];
    (void)state;
    for (uint32_t i = 0; i < NUMBERS; i++) {
        uint64_t bits =
            (uint64_t)rand_below(&seed, UINT32_MAX) << 32 | rand_below(&seed, UINT32_MAX);
        uint32_t half = (uint32_t)bits;
        double d;
        float f;
        memcpy(&d, &bits, sizeof d);
        memcpy(&f, &half, sizeof f);
        double x = i % 3 == 0 ? d : i % 3 == 1 ? (double)f : (double)f * (1 + 1e-9);
        if (!isfinite(x))
            continue;
        int precision = (int)rand_below(&seed, 22);
        snprintf(text, sizeof text, "%.*g", precision, x);
        if (strchr(text, '+'))
            memmove(strchr(text, '+'), strchr(text, '+') + 1, strlen(strchr(text, '+')));
        check_number(text);
        snprintf(text, sizeof text, "%.*f", precision, (double)(int32_t)half / 65536);
        check_number(text);
        /* The middle of two floats, and its neighbours. */
        float next = nextafterf(f, INFINITY);
        if (isfinite(next) && fabsf(f) > 1e-30F && fabsf(f) < 1e30F) {
            double middle = ((double)f + (double)next) / 2;
            snprintf(text, sizeof text, "%.*g", 17 + (int)rand_below(&seed, 20), middle);
            if (strchr(text, '+'))
                memmove(strchr(text, '+'), strchr(text, '+') + 1, strlen(strchr(text, '+')));
            check_number(text);
        }
    }
    static const char *const edges[] = {"0",
                                        "-0",
                                        "0.0",
                                        "-0.0e9",
                                        "1e400",
                                        "-1e400",
                                        "1e-400",
                                        "3.4028235e38",
                                        "3.4028236e38",
                                        "3.40282356779733e38",
                                        "1.7976931348623157e308",
                                        "1.7976931348623159e308",
                                        "4.9e-324",
                                        "2.4703282292062327e-324",
                                        "1.401298464324817e-45",
                                        "7.006492321624085e-46",
                                        "9007199254740993",
                                        "9007199254740993.0000000000000000001",
                                        "16777217",
                                        "16777217.0000001",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "9999999999999999999",
                                        "99999999999999999999",
                                        "0.000000000000000000000000000000000000000000001",
                                        "100000000000000000000000000000000000000",
                                        "1e2147483647",
                                        "1e-2147483648",
                                        "1.00000005960464477539062500",
                                        "1.00000005960464477539062501"};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        check_number(edges[i]);
}

static void test_json__integers_have_their_range(void **state)
{
    static const struct {
        const char *text;
        bool is_i64, is_u64;
    } cases[] = {{"0", true, true},
                 {"-0", true, true},
                 {"-1", true, false},
                 {"100", true, true},
                 {"9223372036854775807", true, true},
                 {"9223372036854775808", false, true},
                 {"-9223372036854775808", true, false},
                 {"-9223372036854775809", false, false},
                 {"18446744073709551615", false, true},
                 {"18446744073709551616", false, false},
                 {"100000000000000000000", false, false},
                 {"1.0", false, false},
                 {"1e3", false, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_json_number n;
        weft_json j = over(cases[i].text);
        int64_t a = 1;
        uint64_t b = 1;
        assert_true(weft_json__number(&j, &n));
        assert_int_equal(weft_json__as_i64(&n, &a), cases[i].is_i64);
        assert_int_equal(weft_json__as_u64(&n, &b), cases[i].is_u64);
        if (cases[i].is_i64)
            assert_true(a == strtoll(cases[i].text, NULL, 10));
        if (cases[i].is_u64)
            assert_true(b == strtoull(cases[i].text, NULL, 10) ||
                        (b == 0 && cases[i].text[0] == '-'));
    }
}

/* Appends a part to a text of at most 250 bytes. */
static void add(char *text, const char *part)
{
    if (strlen(text) + strlen(part) < 250)
        strcat(text, part);
}

static void add_value(uint64_t *seed, char *text, int depth)
{
    static const char *const scalars[] = {
        "1", "0", "-0.5", "2e1", "-1.5E-7", "3e+2", "true", "false", "null", " 7 ", "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"", "\"\xc3\xa9\"", "\"\\n\\\"\"",
        /* wrong */
        "01", "1.", "+1", "nul", "\"\\ud83d\"", "\"\\x\"", "\"\xc3\"", "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"", "\"\\u0000\"", "\"\t\"", "", ",", "]"};
    uint32_t n_scalar = rand_below(seed, 8) ? 14 : sizeof scalars / sizeof scalars[0];
    uint32_t n = rand_below(seed, 4), kind = depth < 5 ? rand_below(seed, 3) : 0;
    if (kind == 0) {
        add(text, scalars[rand_below(seed, n_scalar)]);
        return;
    }
    add(text, kind == 1 ? "[" : "{ ");
    for (uint32_t i = 0; i < n; i++) {
        static const char *const keys[] = {"\"a\":", "\"b\" : ", "\"c\":", "\"d\":"};
        add(text, i ? "," : "");
        add(text, kind == 2 ? keys[i] : "");
        add_value(seed, text, depth + 1);
    }
    add(text, kind == 1 ? "]" : "}");
}

/* A text that is JSON, or nearly. */
static size_t make_text(uint64_t *seed, char *text)
{
    text[0] = '\0';
    add_value(seed, text, 0);
    size_t len = strlen(text);
    if (len && rand_below(seed, 3) == 0)
        text[rand_below(seed, (uint32_t)len)] = (char)(1 + rand_below(seed, 255));
    return len;
}

static void test_json__accepts_what_jansson_accepts(void **state)
{
    uint64_t seed = 7;
    char text[256];
    uint32_t n_accepted = 0;
    (void)state;
    for (uint32_t i = 0; i < TEXTS; i++) {
        size_t len = make_text(&seed, text);
        json_error_t error;
        json_t *tree = json_loadb(text, len, JSON_DECODE_ANY, &error);
        weft_json j = {.at = text, .end = text + len};
        bool ok = weft_json__skip(&j);
        weft_json__peek(&j);
        ok = ok && j.at == j.end;
        if (ok != (tree != NULL))
            fail_msg("%s: %s, jansson: %s", text, j.error ? j.error : "accepted",
                     tree ? "accepted" : error.text);
        n_accepted += ok;
        json_decref(tree);
    }
    assert_true(n_accepted > TEXTS / 4);
}

static void test_json__decodes_strings(void **state)
{
    static const char text[] = "\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"";
    char out[64], small[4];
    size_t len, whole;
    weft_json j = over(text);
    (void)state;
    assert_true(weft_json__string(&j, out, sizeof out, &len));
    json_t *tree = json_loadb(text, strlen(text), JSON_DECODE_ANY, NULL);
    assert_string_equal(out, json_string_value(tree));
    assert_int_equal(len, json_string_length(tree));
    json_decref(tree);
    j = over(text);
    assert_true(weft_json__string(&j, small, sizeof small, &whole));
    assert_int_equal(whole, len);
    assert_string_equal(small, "a\"\\");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__numbers_are_rounded_correctly),
        cmocka_unit_test(test_json__integers_have_their_range),
        cmocka_unit_test(test_json__accepts_what_jansson_accepts),
        cmocka_unit_test(test_json__decodes_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
