/* Request traces: every layout, streams of any length, and errors with their line. */
#include "base/arena.h"
#include "base/diag.h"
#include "base/str.h"
#include "scheduler/scheduler.h"
#include "tests/support/data_dir.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tests/support/fixture.h"

static const weft_service two[] = {{"vgg", 1}, {"bert", 1}};
static weft_arrivals *opened[8]; /* by the test; closed by close_all */
static size_t n_opened;

static int close_all(void **state)
{
    while (n_opened > 0)
        weft_arrivals_close(opened[--n_opened]);
    return tear_down(state);
}

static weft_arrivals *open_bytes(const char *text, size_t len, size_t n)
{
    weft_arrivals *a = NULL;
    assert_int_equal(weft_trace_open_text(text, len, "t.csv", two, n, 1, arena, diag, &a),
                     WEFT_ERR_OK);
    assert_true(n_opened < sizeof opened / sizeof *opened);
    opened[n_opened++] = a;
    return a;
}

static weft_arrivals *open_text(const char *text, size_t n)
{
    return open_bytes(text, strlen(text), n);
}

static bool next(weft_arrivals *a, weft_arrival *out)
{
    bool more;
    assert_int_equal(weft_arrivals_next(a, out, &more), WEFT_ERR_OK);
    return more;
}

static void test_trace__reads_times_and_gaps(void **state)
{
    weft_arrivals *a =
        open_text("# made by hand\r\ntime_s,model\r\n0,vgg\r\n\r\n0.25,bert\r\n1e1,vgg", 2);
    weft_arrival r;
    (void)state;
    assert_true(next(a, &r) && r.time_ns == 0 && r.service == 0);
    assert_true(next(a, &r) && r.time_ns == 250000000 && r.service == 1);
    assert_true(next(a, &r) && r.time_ns == 10000000000 && r.service == 0);
    assert_false(next(a, &r));
    assert_false(next(a, &r));
    a = open_text("gap_s\n0.1\n0.2\n0\n", 1);
    for (int i = 0; i < 3; i++)
        assert_true(next(a, &r));
    assert_int_equal(r.time_ns, 300000000);
    assert_false(next(a, &r));
}

/* All counted requests come, inside their period, in order, and spread evenly. */
static void test_trace__places_counts_in_their_period(void **state)
{
    static const char *const texts[] = {
        "minute,model,count\n1,vgg,3000\n1,bert,10\n1,vgg,1000\n5,bert,7\n",
        "minute,vgg,bert\n0,0,0\n1,4000,10\n5,0,7\n"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        weft_arrivals *a = open_text(texts[i], 2);
        weft_arrival r;
        int64_t last = 0;
        uint32_t n[2][6] = {{0}}, half = 0;
        double sum = 0;
        while (next(a, &r)) {
            assert_true(r.time_ns >= last);
            last = r.time_ns;
            n[r.service][r.time_ns / 60000000000]++;
            if (r.service == 0) {
                sum += (double)r.time_ns / 6e10 - 1;
                half += r.time_ns < 90000000000;
            }
        }
        assert_true(n[0][1] == 4000 && n[1][1] == 10 && n[1][5] == 7);
        assert_true(fabs(sum / 4000 - 0.5) < 0.02);
        assert_true(half > 1850 && half < 2150);
    }
}

static void test_trace__refuses_with_the_line(void **state)
{
    static const struct {
        const char *text, *message;
        uint32_t line;
    } cases[] = {
        {"", "trace is empty", 0},
        {"# only\n\n", "trace is empty", 2},
        {"when,model\n0,vgg\n", "header starts with 'when'", 1},
        {"0.5\n", "header starts with", 1},
        {"time_s\n0\n", "'model' is needed", 1},
        {"time_s,model\n0,vgg\n0,other\n", "'other' is not in the plan", 3},
        {"time_s,model\n2,vgg\n1,vgg\n", "before that of the row above", 3},
        {"time_s,model\n-1,vgg\n", "number of seconds", 2},
        {"time_s,model\nnan,vgg\n", "number of seconds", 2},
        {"time_s,model\n1.6e9,vgg\n", "over 1e9", 2},
        {"time_s,model\n1 ,vgg\n", "number of seconds", 2},
        {"time_s,model\n1\n", "1 fields, the header has 2", 2},
        {"gap_s,model\n9e8,vgg\n9e8,vgg\n", "add up", 3},
        {"minute,model,count\n0,vgg,-1\n", "whole number", 2},
        {"minute,model,count\n0,vgg,1.5\n", "whole number", 2},
        {"minute,model,count\n0,vgg,2000000000\n", "whole number", 2},
        {"minute,model,count\n0,vgg,999999999\n0,vgg,2\n", "over 1000000000", 3},
        {"minute,model,count\n99999999,vgg,1\n", "whole number", 2},
        {"minute,model,count\n1,vgg,0\n0,vgg,1\n", "period 0 comes after 1", 3},
        {"minute,vgg\n1,0\n1,1\n", "period 1 comes after 1", 3},
        {"minute,vgg,vgg\n1,0\n", "appears twice", 1},
        {"minute,vgg,who\n1,0\n", "'who' is not in the plan", 1},
        {"second,vgg\n1,\n", "whole number", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_arrivals *a = NULL;
        weft_arrival r;
        bool more = true;
        weft_diag_clear(diag);
        weft_err err = weft_trace_open_text(cases[i].text, strlen(cases[i].text), "t.csv", two, 2,
                                            1, arena, diag, &a);
        while (err == WEFT_ERR_OK && more)
            err = weft_arrivals_next(a, &r, &more);
        assert_int_equal(err, WEFT_ERR_INPUT);
        const weft_message *msg = weft_diag_at(diag, 0);
        if (!strstr(msg->text, cases[i].message) || msg->line != cases[i].line)
            fail_msg("'%s' at line %u, expected '%s' at %u", msg->text, msg->line, cases[i].message,
                     cases[i].line);
        weft_arrivals_close(a);
    }
}

/* Lines of every length around the size of a read, and a line that is too long. */
static void test_trace__streams_long_lines(void **state)
{
    weft_buf buf = {0};
    weft_arrivals *a;
    weft_arrival r;
    bool more;
    uint64_t n = 0;
    (void)state;
    weft_buf_puts(&buf, "time_s,model\n");
    for (uint32_t i = 0; i < 50000; i++) {
        for (uint32_t k = 0; k < i % 7; k++)
            weft_buf_putc(&buf, '#');
        if (i % 7)
            weft_buf_putc(&buf, '\n');
        weft_buf_printf(&buf, "%u.%03u,%s\n", i / 1000, i % 1000, i % 3 ? "vgg" : "bert");
    }
    a = open_bytes(buf.at, buf.len, 2);
    size_t used = weft_arena_used(arena);
    while (next(a, &r)) {
        assert_int_equal(r.time_ns, (int64_t)n * 1000000);
        assert_int_equal(r.service, n % 3 ? 0 : 1);
        n++;
    }
    assert_int_equal(n, 50000);
    assert_int_equal(weft_arena_used(arena), used);
    buf.len = 0;
    weft_buf_puts(&buf, "time_s,model\n");
    for (uint32_t i = 0; i < 300000; i++)
        weft_buf_putc(&buf, '0');
    a = open_bytes(buf.at, buf.len, 2);
    assert_int_equal(weft_arrivals_next(a, &r, &more), WEFT_ERR_INPUT);
    weft_buf_finish(&buf);
}

/* orion/inter_arrival_times.json: 6240 gaps with a mean of 0.048 s, read as a trace of gaps. */
static void test_trace__replays_published_gaps(void **state)
{
    char path[4096];
    (void)state;
    if (!weft_data_path("orion/inter_arrival_times.json", path, sizeof path)) {
        print_message("skipped: no orion/ in the data folder (WEFT_DATA)\n");
        skip();
    }
    json_t *list = json_load_file(path, 0, NULL);
    weft_buf buf = {0};
    double sum = 0;
    size_t i;
    json_t *gap;
    weft_buf_puts(&buf, "gap_s\n");
    json_array_foreach(list, i, gap)
    {
        sum += json_number_value(gap);
        weft_buf_printf(&buf, "%.9g\n", json_number_value(gap));
    }
    assert_int_equal(json_array_size(list), 6240);
    weft_arrivals *a = open_bytes(buf.at, buf.len, 1);
    weft_arrival r = {0};
    uint64_t n = 0;
    while (next(a, &r))
        n++;
    assert_int_equal(n, 6240);
    assert_true(fabs((double)r.time_ns / 1e9 - sum) < 1e-6);
    json_decref(list);
    weft_buf_finish(&buf);
}

static void test_trace__reads_published_carbon(void **state)
{
    char path[4096];
    weft_carbon c;
    (void)state;
    if (!weft_data_path("clover/carbon_ciso_march.csv", path, sizeof path)) {
        print_message("skipped: no clover/ in the data folder (WEFT_DATA)\n");
        skip();
    }
    assert_int_equal(weft_carbon_load(path, arena, diag, &c), WEFT_ERR_OK);
    assert_int_equal(c.n, 49);
    assert_true(c.g_per_kwh[0] == 124.57 && c.g_per_kwh[1] == 135.6 && c.period_s == 3600);
    if (!weft_data_path("clover_sustainability/UK-ESO.csv", path, sizeof path))
        skip();
    assert_int_equal(weft_carbon_load(path, arena, diag, &c), WEFT_ERR_OK);
    /* 8760 hours of 2021; 8732 have a row, and some of these have no value. */
    assert_int_equal(c.n, 8760);
    assert_true(c.g_per_kwh[0] == 184 && c.g_per_kwh[1] == 182);
    for (size_t i = 0; i < c.n; i++)
        assert_true(c.g_per_kwh[i] > 0 && c.g_per_kwh[i] < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_trace__reads_times_and_gaps, set_up, close_all),
        cmocka_unit_test_setup_teardown(test_trace__places_counts_in_their_period, set_up,
                                        close_all),
        cmocka_unit_test_setup_teardown(test_trace__refuses_with_the_line, set_up, close_all),
        cmocka_unit_test_setup_teardown(test_trace__streams_long_lines, set_up, close_all),
        cmocka_unit_test_setup_teardown(test_trace__replays_published_gaps, set_up, close_all),
        cmocka_unit_test_setup_teardown(test_trace__reads_published_carbon, set_up, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
