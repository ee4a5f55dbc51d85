/* base/csv.h. */
#include "base/csv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    weft_diag *diag;
    weft_csv *csv;
} fixture;

static int setup(void **state)
{
    fixture *fx = calloc(1, sizeof *fx);
    fx->diag = weft_diag_create();
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    weft_csv_destroy(fx->csv);
    weft_diag_destroy(fx->diag);
    free(fx);
    return 0;
}

static void open_text(fixture *fx, const char *text, size_t len, weft_csv_limits limits)
{
    weft_csv_destroy(fx->csv);
    fx->csv = weft_csv_create(text, len, (weft_where){.file = "a.csv", .item = "m"}, limits);
    assert_non_null(fx->csv);
}

/* The next row is the fields of `want`, separated by '|', and starts on `line`. */
static void expect_row(fixture *fx, const char *want, uint32_t line)
{
    bool more = false;
    char got[256] = "";
    assert_int_equal(weft_csv_next(fx->csv, fx->diag, &more), WEFT_ERR_OK);
    assert_true(more);
    for (size_t i = 0; i < fx->csv->n_field; i++) {
        strcat(got, i ? "|" : "");
        strcat(got, fx->csv->field[i]);
    }
    assert_string_equal(got, want);
    assert_int_equal(fx->csv->where.line, line);
}

static void expect_end(fixture *fx)
{
    for (int i = 0; i < 2; i++) {
        bool more = true;
        assert_int_equal(weft_csv_next(fx->csv, fx->diag, &more), WEFT_ERR_OK);
        assert_false(more);
    }
}

static void expect_refusal(fixture *fx, weft_csv_limits limits, const char *text, size_t len,
                           const char *message)
{
    bool more;
    char got[256];
    weft_err err = WEFT_ERR_OK;
    open_text(fx, text, len, limits);
    weft_diag_clear(fx->diag);
    do
        err = weft_csv_next(fx->csv, fx->diag, &more);
    while (err == WEFT_ERR_OK && more);
    assert_int_equal(err, WEFT_ERR_INPUT);
    weft_diag_format(weft_diag_at(fx->diag, 0), got, sizeof got);
    assert_string_equal(got, message);
}

static const char sample[] = "\xef\xbb\xbf"
                             "a,b c,\r\n"
                             "# a comment, \"\n"
                             "\n\r\n"
                             "\"x,\"\"y\"\"\",\"two\r\nlines\",z\n"
                             ",\n"
                             "\"\"\n"
                             "last\r";

static void expect_sample(fixture *fx)
{
    expect_row(fx, "a|b c|", 1);
    assert_int_equal(fx->csv->raw_len, 6);
    assert_memory_equal(fx->csv->raw, "a,b c,", 6);
    expect_row(fx, "x,\"y\"|two\r\nlines|z", 5);
    assert_memory_equal(fx->csv->raw, "\"x,\"\"y\"\"\",\"two\r\nlines\",z", fx->csv->raw_len);
    expect_row(fx, "|", 7);
    expect_row(fx, "", 8);
    expect_row(fx, "last", 9);
    expect_end(fx);
}

static void test_csv__reads_rows(void **state)
{
    fixture *fx = *state;
    open_text(fx, sample, sizeof sample - 1, (weft_csv_limits){0});
    expect_sample(fx);
    open_text(fx, "", 0, (weft_csv_limits){0});
    expect_end(fx);
    open_text(fx, "#", 1, (weft_csv_limits){0});
    expect_end(fx);
}

static void test_csv__reads_a_descriptor(void **state)
{
    fixture *fx = *state;
    int end[2];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(write(end[1], sample, sizeof sample - 1), sizeof sample - 1);
    close(end[1]);
    fx->csv = weft_csv_create_fd(end[0], (weft_where){.file = "-"}, (weft_csv_limits){0});
    expect_sample(fx);
    close(end[0]);
}

/* Rows that do not fit one read, and more bytes than the reader holds. */
static void test_csv__streams(void **state)
{
    fixture *fx = *state;
    FILE *f = tmpfile();
    for (int i = 0; i < 40000; i++)
        fprintf(f, "%d,%0*d\n", i, i % 40 + 1, 7);
    fflush(f);
    rewind(f);
    fx->csv = weft_csv_create_fd(fileno(f), (weft_where){0}, (weft_csv_limits){64, 2});
    for (int i = 0; i < 40000; i++) {
        bool more = false;
        assert_int_equal(weft_csv_next(fx->csv, fx->diag, &more), WEFT_ERR_OK);
        assert_true(more && fx->csv->n_field == 2);
        assert_int_equal(atoi(fx->csv->field[0]), i);
        assert_int_equal(strlen(fx->csv->field[1]), (size_t)(i % 40 + 1));
        assert_int_equal(fx->csv->where.line, (uint32_t)i + 1);
    }
    expect_end(fx);
    fclose(f);
}

#define REFUSE(fx, limits, text, message) \
    expect_refusal(fx, (weft_csv_limits)limits, text, sizeof(text) - 1, message)

#define LIMITS(bytes, fields) \
    {                         \
        bytes, fields         \
    }

static void test_csv__refuses(void **state)
{
    fixture *fx = *state;
    REFUSE(fx, LIMITS(0, 0), "a\nb,\"c\nd", "a.csv:2: m: column 2: the quote does not end");
    REFUSE(fx, LIMITS(0, 0), "a,\"b\" c", "a.csv:1: m: column 2: text behind the closing quote");
    REFUSE(fx, LIMITS(0, 0), "a\"b",
           "a.csv:1: m: column 1: a quote inside a field that does not start with one");
    REFUSE(fx, LIMITS(0, 0), "a\nb\0c\n", "a.csv:2: m: the row holds a NUL byte");
    REFUSE(fx, LIMITS(4, 0), "abcd\nabcde", "a.csv:2: m: the row is longer than 4 bytes");
    REFUSE(fx, LIMITS(0, 2), "a,b\n\n,,", "a.csv:3: m: more than 2 columns");
}

static void test_csv__descriptor_that_cannot_be_read(void **state)
{
    fixture *fx = *state;
    bool more;
    fx->csv = weft_csv_create_fd(1 << 20, (weft_where){.file = "f"}, (weft_csv_limits){0});
    assert_int_equal(weft_csv_next(fx->csv, fx->diag, &more), WEFT_ERR_IO);
}

/* What is put reads back. */
static void test_csv__puts(void **state)
{
    fixture *fx = *state;
    static const char *const fields[] = {"plain", "a,b", "\"q\"", "two\nlines", "cr\r", ""};
    weft_buf buf = {0};
    bool more = false;
    for (size_t i = 0; i < 6; i++) {
        weft_buf_puts(&buf, i ? "," : "");
        weft_csv_put(&buf, fields[i]);
    }
    open_text(fx, buf.at, buf.len, (weft_csv_limits){0});
    assert_int_equal(weft_csv_next(fx->csv, fx->diag, &more), WEFT_ERR_OK);
    assert_true(more && fx->csv->n_field == 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(fx->csv->field[i], fields[i]);
    weft_buf_finish(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_csv__reads_rows, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv__reads_a_descriptor, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv__streams, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv__refuses, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv__descriptor_that_cannot_be_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv__puts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
