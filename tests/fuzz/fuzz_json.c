/* Data of infer requests in JSON, beside a plain reading: strtof, strtoll, and jansson.
 *
 * The input is a recipe: its bytes choose the model, white space, nesting and spelling of numbers.
 * A request that follows the grammar must be read as the oracle reads each number, or be refused if
 * one is out of range. Every 16th recipe also replaces a byte of the text: then jansson must accept
 * what the reader accepts. */
#include "tests/support/oip_subject.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VALUES_MAX = 64, DIGITS_MAX = 40 };

typedef struct recipe {
    const uint8_t *at, *end;
} recipe;

typedef struct made {
    weft_buf text;
    bool is_int, fits; /* fits: every value is one of the type */
    float f32[VALUES_MAX];
    int64_t i64[VALUES_MAX];
    uint32_t n;
} made;

static unsigned take(recipe *r, unsigned n)
{
    return r->at < r->end ? *r->at++ % n : 0;
}

static void put_space(recipe *r, weft_buf *out)
{
    static const char *const spaces[] = {"", "", "", "", " ", "\n", "\t\r", "  "};
    weft_buf_puts(out, spaces[take(r, 8)]);
}

static void put_digits(recipe *r, weft_buf *out, bool leading)
{
    unsigned n = 1 + take(r, 4) * take(r, DIGITS_MAX / 4);
    for (unsigned i = 0; i < n; i++) {
        unsigned digit = take(r, 10);
        if (leading && i == 0 && digit == 0)
            n = 1; /* nothing follows a leading zero */
        weft_buf_putc(out, (char)('0' + digit));
    }
}

/* A number by the grammar of RFC 8259, and what C's library reads. */
static void put_number(recipe *r, made *m)
{
    static const char *const known[] = {"-0",
                                        "0",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "9223372036854775808",
                                        "1e39",
                                        "3.4028235e38",
                                        "1e-45",
                                        "7.0064923216240853e-46",
                                        "16777217"};
    size_t from = m->text.len;
    unsigned how = take(r, 16);
    if (how == 0) {
        weft_buf_puts(&m->text, known[take(r, 10)]);
    } else {
        weft_buf_puts(&m->text, how & 1 ? "-" : "");
        put_digits(r, &m->text, true);
        if (how & 2) {
            weft_buf_putc(&m->text, '.');
            put_digits(r, &m->text, false);
        }
        if (how & 4) {
            static const char *const signs[] = {"", "+", "-"};
            weft_buf_printf(&m->text, "%c%s%u", how & 8 ? 'e' : 'E', signs[take(r, 3)],
                            take(r, 60));
        }
    }
    char *end;
    const char *text = m->text.at + from;
    errno = 0;
    if (m->is_int) {
        m->i64[m->n] = strtoll(text, &end, 10);
        m->fits = m->fits && errno == 0 && !*end;
    } else {
        m->f32[m->n] = strtof(text, &end);
        m->fits = m->fits && isfinite(m->f32[m->n]);
    }
    m->n++;
}

static void put_values(recipe *r, made *m, uint32_t n, unsigned depth)
{
    put_space(r, &m->text);
    weft_buf_putc(&m->text, '[');
    for (uint32_t i = 0; i < n; i++) {
        put_space(r, &m->text);
        /* A part of the values in an array of their own. */
        uint32_t part = depth < 3 ? take(r, 4) : 0;
        if (part && part <= n - i) {
            put_values(r, m, part, depth + 1);
            i += part - 1;
        } else {
            put_number(r, m);
        }
        put_space(r, &m->text);
        weft_buf_puts(&m->text, i + 1 < n ? "," : "");
    }
    weft_buf_putc(&m->text, ']');
}

static void make_request(recipe *r, made *m)
{
    uint32_t rows = 1 + take(r, VALUES_MAX / 2);
    bool data_first = take(r, 2);
    weft_buf_puts(&m->text, "{\"inputs\":[{");
    for (int part = 0; part < 2; part++) {
        put_space(r, &m->text);
        if (part == data_first)
            weft_buf_printf(&m->text,
                            m->is_int ? "\"name\":\"n\",\"shape\":[3],\"datatype\":\"INT64\""
                                      : "\"name\":\"image\",\"shape\":[%u,2],"
                                        "\"datatype\":\"FP32\"",
                            rows);
        else {
            weft_buf_puts(&m->text, "\"data\":");
            put_values(r, m, m->is_int ? 3 : 2 * rows, 0);
        }
        weft_buf_puts(&m->text, part == 0 ? "," : "}");
    }
    if (!m->is_int) {
        weft_buf_printf(
            &m->text, ",{\"name\":\"mask\",\"shape\":[%u],\"datatype\":\"BOOL\",\"data\":[", rows);
        for (uint32_t i = 0; i < rows; i++)
            weft_buf_printf(&m->text, "%s%s", i ? "," : "", i % 3 ? "true" : "0");
        weft_buf_puts(&m->text, "]}");
    }
    weft_buf_puts(&m->text, "]}");
}

static void check_values(const made *m, const weft_oip_infer *infer)
{
    const weft_tensor *t = &infer->request->in[0];
    const void *want = m->is_int ? (const void *)m->i64 : m->f32;
    size_t bytes = m->n * (m->is_int ? sizeof m->i64[0] : sizeof m->f32[0]);
    if (weft_tensor_bytes(t) != bytes || memcmp(t->data, want, bytes) != 0)
        abort();
}

static void read_made(const oip_subject *subject, made *m, bool damaged)
{
    weft_oip_infer *infer = NULL;
    weft_answer answer = WEFT_ANSWER_OK;
    char message[WEFT_REQUEST_MESSAGE_MAX] = "";
    char *body = malloc(m->text.len); /* of exactly its size, for the sanitizer */
    if (!body)
        return;
    memcpy(body, m->text.at, m->text.len);
    const uint32_t model = m->is_int ? OIP_FIXED : OIP_BATCHED;
    const weft_model_ref ref = {
        .at = model, .program = &subject->bundle.program[model], .version = "1"};
    bool ok =
        weft_oip__read_infer(&ref, NULL, body, m->text.len, m->text.len, &answer, message, &infer);
    if (!damaged && ok != m->fits)
        abort();
    if (!damaged && ok)
        check_values(m, infer);
    if (damaged && ok) {
        json_error_t error;
        json_t *root = json_loadb(m->text.at, m->text.len, 0, &error);
        /* Its numbers are double and long long; a name of ours may be longer than they. */
        if (!root && json_error_code(&error) != json_error_numeric_overflow)
            abort();
        json_decref(root);
    }
    weft_oip__destroy_infer(infer);
    free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static oip_subject subject;
    recipe r = {data, data + size};
    made m = {.fits = true};
    if (!subject.arena)
        oip_subject_open(&subject);
    unsigned how = take(&r, 16);
    m.is_int = how & 1;
    unsigned place = take(&r, 256) << 8 | take(&r, 256), byte = take(&r, 256);
    make_request(&r, &m);
    if (m.text.failed)
        abort();
    bool damaged = how == 15 || how == 14;
    if (damaged)
        m.text.at[place % m.text.len] = (char)byte;
    read_made(&subject, &m, damaged);
    weft_buf_finish(&m.text);
    return 0;
}
