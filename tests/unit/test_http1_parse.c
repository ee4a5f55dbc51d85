/* The parser of HTTP/1.1: framing that programs disagree about, limits, paths; and that no split of
 * the bytes changes what is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/http1_drive.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *name, *answers, *bytes;
    size_t len;
} vectors[] = {
#define VECTOR(name, answers, bytes) {name, answers, bytes, sizeof(bytes) - 1},
#include "tests/support/http1_vectors.def"
#undef VECTOR
};

enum { N_VECTORS = sizeof vectors / sizeof vectors[0] };

/* -- Reading -------------------------------------------------------------------------------- */

/* What is read of bytes that arrive in pieces of `piece` bytes, the first one `first` bytes long.
 * In a block of exactly its size, so that a sanitizer detects reads past it. */
static char *drive(const char *bytes, size_t len, size_t first, size_t piece)
{
    http1_drive d = {0};
    size_t arrived = first < len ? first : len;
    char *block = malloc(len ? len : 1);
    assert_non_null(block);
    memcpy(block, bytes, len);
    d.at = block;
    for (;;) {
        http1_drive_feed(&d, block + arrived);
        if (arrived == len || d.ended)
            break;
        arrived = len - arrived < piece ? len : arrived + piece;
    }
    free(block);
    weft_buf_puts(&d.out, "");
    assert_false(d.out.failed);
    return d.out.at;
}

/* The statuses of the answers: 200 for each request, and that of the error. */
static void answers_of(const char *text, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *bad = strstr(line, " body=bad\n");
        if (bad && bad < end)
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s%d", n ? " " : "",
                              line[1] == ' ' ? 200 : atoi(line));
    }
}

static void check(const char *bytes, size_t len, const char *want, const char *name)
{
    char got[64];
    char *whole = drive(bytes, len, len, len);
    answers_of(whole, got, sizeof got);
    if (strcmp(got, want) != 0)
        fail_msg("%s: '%s' instead of '%s': %s", name, got, want, whole);
    for (size_t first = 0; first <= len; first++)
        for (int single = 0; single < 2; single++) {
            char *split = drive(bytes, len, first, single ? 1 : len);
            if (strcmp(split, whole) != 0)
                fail_msg("%s: split at %zu: '%s' instead of '%s'", name, first, split, whole);
            free(split);
        }
    free(whole);
}

static void check_text(const char *text, const char *want)
{
    check(text, strlen(text), want, text);
}

/* -- Cases ---------------------------------------------------------------------------------- */

static void test_http1_parse__vectors(void **state)
{
    (void)state;
    assert_int_equal(N_VECTORS, 50);
    for (size_t i = 0; i < N_VECTORS; i++)
        check(vectors[i].bytes, vectors[i].len, vectors[i].answers, vectors[i].name);
}

static void test_http1_parse__heads(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fields, *want;
    } cases[] = {
        {"GET / HTTP/1.1", "Host:\r\n", "200"},
        {"GET / HTTP/1.1", "host: [::1]:8000\r\n", "200"},
        {"GET / HTTP/1.1", "Host: a b\r\n", "400"},
        {"GET / HTTP/1.1", "Host: a/b\r\n", "400"},
        {"GET / HTTP/1.1", "Host: a@b\r\n", "400"},
        {"GET / HTTP/1.0", "", "200"},
        {"GET / HTTP/1.2", "Host: x\r\n", "200"},
        {"GET / HTTP/0.9", "Host: x\r\n", "505"},
        {"GET / HTTP/1.", "Host: x\r\n", "505"},
        {"GET / HTTX/1.1", "Host: x\r\n", "400"},
        {"GET / http/1.1", "Host: x\r\n", "400"},
        {"GET / HTTP/1.1 ", "Host: x\r\n", "400"},
        {" GET / HTTP/1.1", "Host: x\r\n", "400"},
        {"G\tT / HTTP/1.1", "Host: x\r\n", "400"},
        {"FETCH / HTTP/1.1", "Host: x\r\n", "501"},
        {"CONNECT a:1 HTTP/1.1", "Host: x\r\n", "501"},
        {"OPTIONS * HTTP/1.1", "Host: x\r\n", "200"},
        {"GET * HTTP/1.1", "Host: x\r\n", "400"},
        {"GET a HTTP/1.1", "Host: x\r\n", "400"},
        {"GET http:///a HTTP/1.1", "Host: x\r\n", "400"},
        {"GET http://u@h/a HTTP/1.1", "Host: x\r\n", "400"},
        {"GET ftp://h/a HTTP/1.1", "Host: x\r\n", "400"},
        {"GET HTTPS://h:1?q HTTP/1.1", "Host: x\r\n", "200"},
        {"GET /a#b HTTP/1.1", "Host: x\r\n", "400"},
        {"GET /a\\b HTTP/1.1", "Host: x\r\n", "400"},
        {"GET /a\"b HTTP/1.1", "Host: x\r\n", "400"},
        {"GET / HTTP/1.1", "Host: x\r\nX-A: b\x7f\r\n", "400"},
        {"GET / HTTP/1.1", "Host: x\r\nX-A: b\x1b\r\n", "400"},
        {"GET / HTTP/1.1", "Host: x\r\nX-A: \xc3\xa9\tb \r\n", "200"},
        {"GET / HTTP/1.1", "Host: x\r\nX\xc3: a\r\n", "400"},
        {"GET / HTTP/1.1", "Host: x\r\nX(a: b\r\n", "400"},
        {"GET / HTTP/1.1", "Host: x\r\nExpect: 100-Continue\r\n", "200"},
        {"GET / HTTP/1.1", "Host: x\r\nExpect: more\r\n", "417"},
        {"GET / HTTP/1.0", "Expect: more\r\n", "200"},
        {"GET / HTTP/1.1", "Host: x\r\nAuthorization: a\r\nauthorization: a\r\n", "400"},
        {"POST / HTTP/1.1", "Host: x\r\nContent-Length: 9223372036854775808\r\n", "400"},
        {"POST / HTTP/1.1", "Host: x\r\nContent-Length: 00\r\n", "200"},
        {"POST / HTTP/1.1", "Host: x\r\nContent-Length: 0 0\r\n", "400"},
        {"POST / HTTP/1.1", "Host: x\r\nTransfer-Encoding:\r\n", "501"},
        {"POST / HTTP/1.1", "Host: x\r\nTransfer-Encoding: chunked,\r\n", "501"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "%s\r\n%s\r\n", cases[i].line, cases[i].fields);
        check_text(text, cases[i].want);
    }
}

/* Which connections are kept: three requests in a row. */
static void test_http1_parse__keep_alive(void **state)
{
    (void)state;
    static const struct {
        const char *version, *fields;
        bool keep;
    } cases[] = {
        {"1.1", "", true},
        {"1.1", "Connection: close\r\n", false},
        {"1.1", "Connection: te ,\tCLOSE\r\n", false},
        {"1.1", "Connection: te\r\nConnection: close\r\n", false},
        {"1.1", "Connection: closed, xclose\r\n", true},
        {"1.0", "", false},
        {"1.0", "Connection: Keep-Alive\r\n", true},
        {"1.0", "Connection: keep-alive, close\r\n", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024];
        size_t n = 0;
        for (int k = 0; k < 3; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, "GET /%d HTTP/%s\r\nHost: x\r\n%s\r\n",
                                  k, cases[i].version, cases[i].fields);
        check_text(text, cases[i].keep ? "200 200 200" : "200");
    }
}

static void test_http1_parse__chunks(void **state)
{
    (void)state;
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"0\r\n\r\n", "200"},
        {"5\r\nhello\r\n0005;a=\"b c\"\r\nworld\r\n0\r\nX-A: b\r\nY:\r\n\r\n", "200"},
        {"A\r\n0123456789\r\na;x\r\n0123456789\r\n00\r\n\r\n", "200"},
        {"\r\n", "400"},
        {";a\r\n", "400"},
        {"g\r\n", "400"},
        {"-1\r\n", "400"},
        {"+1\r\na\r\n0\r\n\r\n", "400"},
        {" 1\r\na\r\n0\r\n\r\n", "400"},
        {"1\ra\r\n0\r\n\r\n", "400"},
        {"1;\x01\r\na\r\n0\r\n\r\n", "400"},
        {"2\r\na\r\n\r\n0\r\n\r\n", "400"},
        {"00000000000000001\r\na\r\n0\r\n\r\n", "400"},
        {"100001\r\n", "413"},
        {"ffffffffffffffff\r\n", "413"},
        {"1\r\na\r\nffffffffffffffff\r\n", "413"},
        {"0\r\n: b\r\n\r\n", "400"},
        {"0\r\nX-A\r\n\r\n", "400"},
        {"0\r\n X-A: b\r\n\r\n", "400"},
        {"0\r\nX-A: b\n\r\n", "400"},
        {"0\r\n\rx", "400"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n%s",
                 cases[i].body);
        check_text(text, cases[i].want);
    }
}

/* Head, then `n` times the piece, then the tail: the answer of each limit at its edge. */
static void check_limit(const char *head, const char *piece, size_t n, const char *tail,
                        const char *want)
{
    weft_buf text = {0};
    char got[64];
    weft_buf_puts(&text, head);
    for (size_t i = 0; i < n; i++)
        weft_buf_puts(&text, piece);
    weft_buf_puts(&text, tail);
    for (size_t step = 1; step <= text.len; step = step * 7 + 1) {
        char *read = drive(text.at, text.len, step, step);
        answers_of(read, got, sizeof got);
        if (strcmp(got, want) != 0)
            fail_msg("%zu times %s: '%s' instead of '%s'", n, piece, got, want);
        free(read);
    }
    weft_buf_finish(&text);
}

static void test_http1_parse__limits(void **state)
{
    (void)state;
    static const char host[] = "GET / HTTP/1.1\r\nHost: x\r\n";
    static const char chunked[] =
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    char field[256];
    size_t line = HTTP1_LINE_MAX - strlen("GET / HTTP/1.1");
    check_limit("GET /", "a", line, " HTTP/1.1\r\nHost: x\r\n\r\n", "200");
    check_limit("GET /", "a", line + 1, " HTTP/1.1\r\nHost: x\r\n\r\n", "414");
    check_limit("GET /", "a", 100000, "", "414");
    check_limit(host, "A: b\r\n", HTTP1_FIELDS_MAX - 1, "\r\n", "200");
    check_limit(host, "A: b\r\n", HTTP1_FIELDS_MAX, "\r\n", "431");
    snprintf(field, sizeof field, "%sA: ", host);
    size_t rest = HTTP1_HEAD_MAX - strlen(field) - strlen("\r\n\r\n");
    check_limit(field, "b", rest, "\r\n\r\n", "200");
    check_limit(field, "b", rest + 1, "\r\n\r\n", "431");
    check_limit(field, "b", 100000, "", "431");
    snprintf(field, sizeof field, "%s1;", chunked);
    check_limit(field, "a", HTTP1_EXTENSION_MAX, "\r\nb\r\n0\r\n\r\n", "200");
    check_limit(field, "a", HTTP1_EXTENSION_MAX + 1, "\r\nb\r\n0\r\n\r\n", "400");
    snprintf(field, sizeof field, "%s0\r\nA:", chunked);
    rest = HTTP1_TRAILER_MAX - strlen("A:\r\r");
    check_limit(field, "b", rest, "\r\n\r\n", "200");
    check_limit(field, "b", rest + 1, "\r\n\r\n", "431");
    /* Chunks of one byte are framing for the most part; chunks of ten are not. */
    check_limit(chunked, "1\r\na\r\n", 1000, "0\r\n\r\n", "200");
    check_limit(chunked, "1\r\na\r\n", 10000, "0\r\n\r\n", "400");
    check_limit(chunked, "a\r\n0123456789\r\n", 10000, "0\r\n\r\n", "200");
}

/* -- Paths ---------------------------------------------------------------------------------- */

/* The segments joined by '|'; "!" for a refused path. */
static void check_path(const char *raw, const char *want)
{
    char *text = malloc(strlen(raw) + 1), got[256] = "";
    http1_path p;
    size_t n = 0;
    assert_non_null(text);
    const char *why = weft_http1__split_path(raw, strlen(raw), text, &p);
    for (uint32_t i = 0; !why && i < p.n && i < HTTP1_SEGMENTS_MAX; i++)
        n += (size_t)snprintf(got + n, sizeof got - n, "%s%.*s", i ? "|" : "", (int)p.len[i],
                              p.at[i]);
    if (strcmp(why ? "!" : got, want) != 0)
        fail_msg("%s: '%s' instead of '%s'", raw, why ? why : got, want);
    free(text);
}

static void test_http1_parse__paths(void **state)
{
    (void)state;
    check_path("", "");
    check_path("/", "");
    check_path("/v2", "v2");
    check_path("/v2/models/a/infer", "v2|models|a|infer");
    check_path("/v2/models/%25%40%c3%A9%7e", "v2|models|%@\xc3\xa9~");
    check_path("/%252F", "%2F"); /* decoded once */
    check_path("/.../..a/a..", "...|..a|a..");
    check_path("/1/2/3/4/5/6/7/8/9", "1|2|3|4|5|6|7|8");
    static const char *const bad[] = {"//",      "/v2//a", "/v2//", "//v2",    "/.",     "/..",
                                      "/a/../b", "/a/./b", "/%2e",  "/.%2E/a", "/a%2fb", "/a%2F",
                                      "/a%5Cb",  "/%00",   "/a%0d", "/a%7f",   "/a%",    "/a%4",
                                      "/a%4g",   "/a%%41", "/a%-1", "/a% 1",   "/%",     "/v2/",
                                      "/%61",    "/%5a",   "/%39",  "/a%2d",   "/a%5f",  "/a%2eb"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_path(bad[i], "!");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http1_parse__vectors),    cmocka_unit_test(test_http1_parse__heads),
        cmocka_unit_test(test_http1_parse__keep_alive), cmocka_unit_test(test_http1_parse__chunks),
        cmocka_unit_test(test_http1_parse__limits),     cmocka_unit_test(test_http1_parse__paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
