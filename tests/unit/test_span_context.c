/* weft_spans__parse: W3C Trace Context, level 1. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/server/spans_int.h"

#include <string.h>

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static bool parse(const char *text, weft_span_context *out)
{
    return weft_spans__parse(text, strlen(text), out);
}

static void test_span_context__reads_traceparent(void **state)
{
    static const struct {
        const char *text;
        bool sampled;
    } cases[] = {{"00-" TRACE "-" PARENT "-01", true},
                 {"00-" TRACE "-" PARENT "-00", false},
                 {"00-" TRACE "-" PARENT "-ff", true},
                 {"00-" TRACE "-" PARENT "-02", false},
                 {"01-" TRACE "-" PARENT "-01", true},
                 {"cc-" TRACE "-" PARENT "-01-what-the-future-brings", true},
                 {"00-00000000000000000000000000000001-0000000000000001-00", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_span_context c;
        if (!parse(cases[i].text, &c) || c.sampled != cases[i].sampled)
            fail_msg("%s", cases[i].text);
    }
}

static void test_span_context__writes_what_it_read(void **state)
{
    weft_span_context c;
    char text[2 * WEFT_TRACE_ID_BYTES + 1];
    (void)state;
    assert_true(parse("00-" TRACE "-" PARENT "-01", &c));
    weft_spans__put_hex(c.trace, sizeof c.trace, text);
    assert_string_equal(text, TRACE);
    weft_spans__put_hex(c.parent, sizeof c.parent, text);
    assert_string_equal(text, PARENT);
}

static void test_span_context__refuses(void **state)
{
    static const char *const texts[] = {
        "",
        "00",
        "00-" TRACE "-" PARENT "-0",
        "00-" TRACE "-" PARENT "-01-more",
        "00-" TRACE "-" PARENT "-011",
        "cc-" TRACE "-" PARENT "-01more",
        "cc-" TRACE "-" PARENT "-01.",
        "ff-" TRACE "-" PARENT "-01",
        "0-" TRACE "-" PARENT "-01",
        "00-" TRACE "x" PARENT "-01",
        "00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01",
        "00-0xf7651916cd43dd8448eb211c80319c-" PARENT "-01",
        "00-" TRACE "-b7ad6b716920333 -01",
        "00-00000000000000000000000000000000-" PARENT "-01",
        "00-" TRACE "-0000000000000000-01",
        "00-" TRACE "-" PARENT "-0g",
        "00-" TRACE "-" PARENT "-+1",
        " 00-" TRACE "-" PARENT "-01",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        weft_span_context c;
        if (parse(texts[i], &c))
            fail_msg("accepted: %s", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_span_context__reads_traceparent),
        cmocka_unit_test(test_span_context__writes_what_it_read),
        cmocka_unit_test(test_span_context__refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
