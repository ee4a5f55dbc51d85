/* Heads of answers, and what weft replay counts. The files under test are not in a library that
 * tests link: they are part of this program. */
#include "tools/server/replay_answer.c"
#include "tools/server/replay_counts.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static weft_replay_read read_text(const char *text, weft_replay_head *out)
{
    return weft_replay_read_head(text, strlen(text), out);
}

static void test_replay__reads_heads(void **state)
{
    weft_replay_head h;
    const char *text = "HTTP/1.1 503 Busy\r\ncontent-LENGTH:  12 \r\nConnection: close\r\n\r\nbody";
    (void)state;
    assert_int_equal(read_text(text, &h), WEFT_REPLAY_DONE);
    assert_int_equal(h.status, 503);
    assert_int_equal(h.length, 12);
    assert_true(h.close);
    assert_int_equal(h.size, strlen(text) - 4);
    /* Every part of it asks for more. */
    for (size_t n = 0; n < h.size; n++) {
        weft_replay_head part;
        assert_int_equal(weft_replay_read_head(text, n, &part), WEFT_REPLAY_MORE);
    }
    assert_int_equal(read_text("HTTP/1.0 200\r\nContent-Length: 0\r\n\r\n", &h), WEFT_REPLAY_DONE);
    assert_true(h.close);
}

static void test_replay__refuses_wrong_heads(void **state)
{
    static const char *const wrong[] = {
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 999 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\nb\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 1\r\n\r\n",
        "\r\n\r\n",
    };
    weft_replay_head h;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(read_text(wrong[i], &h), WEFT_REPLAY_BAD);
        assert_non_null(h.why);
    }
    static char large[WEFT_REPLAY_HEAD_MAX + 1];
    memset(large, 'a', sizeof large);
    assert_int_equal(weft_replay_read_head(large, WEFT_REPLAY_HEAD_MAX - 1, &h), WEFT_REPLAY_MORE);
    assert_int_equal(weft_replay_read_head(large, WEFT_REPLAY_HEAD_MAX, &h), WEFT_REPLAY_BAD);
}

static void test_replay__counts(void **state)
{
    weft_replay_service s = {.name = "m", .slo_us = 10000};
    weft_replay_report r = {
        .service = &s, .n_service = 1, .warm_ns = 1000000000, .bucket_ns = 1000000000};
    (void)state;
    weft_replay_count_request(&r, 0, 5); /* of the warm-up */
    weft_replay_count_answer(arena, &r, 0, 5, 5, 6);
    for (int64_t i = 1; i <= 1000; i++) {
        int64_t at = 1000000000 + i * 1000000;
        weft_replay_count_request(&r, 0, at);
        weft_replay_count_answer(arena, &r, 0, at, at + 1000, at + i * 20000);
    }
    weft_replay_count_request(&r, 0, 2100000000);
    weft_replay_close_buckets(arena, &r, 2500000000, false);
    weft_replay_count_fault(&r, 0, 2100000000, WEFT_REPLAY_REFUSED);
    weft_replay_close_buckets(arena, &r, 2500000000, true);
    assert_int_equal(s.count.requests, 1001);
    assert_int_equal(s.count.answered, 1000);
    assert_int_equal(s.count.good, 500); /* 20 us to 10 ms of at most 20 ms */
    assert_int_equal(s.count.late, 500);
    assert_int_equal(s.count.dropped, 1);
    assert_int_equal(s.fault[WEFT_REPLAY_REFUSED], 1);
    double p50 = weft_replay_percentile_us(&s.latency, 0.5);
    double p99 = weft_replay_percentile_us(&s.latency, 0.99);
    assert_true(p50 > 10000 * 0.996 && p50 < 10000 * 1.004);
    assert_true(p99 > 19800 * 0.996 && p99 < 19800 * 1.004);
    assert_int_equal(r.bucket.len, 2);
    assert_int_equal(r.bucket.at[0].count[0].requests + r.bucket.at[1].count[0].requests, 1001);
    assert_true(r.bucket.at[1].length_s == 0.5);
    assert_int_equal(r.bucket.at[1].count[0].dropped, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replay__reads_heads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replay__refuses_wrong_heads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replay__counts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
