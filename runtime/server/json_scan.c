/* Reading JSON in place: json_scan.h. */
#include "runtime/server/json_scan.h"

#include "base/str.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool fail(weft_json *j, const char *error)
{
    if (!j->error)
        j->error = error;
    return false;
}

static void skip_space(weft_json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\r' || *j->at == '\t'))
        j->at++;
}

char weft_json__peek(weft_json *j)
{
    skip_space(j);
    if (j->at == j->end)
        return 0;
    char c = *j->at;
    if (c == '-' || (c >= '0' && c <= '9'))
        return '0';
    return c && strchr("{[\"tfn", c) ? c : 0;
}

/* -- Strings -------------------------------------------------------------------------------- */

typedef struct sink {
    char *out;
    size_t size, len;
} sink;

static void put(sink *s, char c)
{
    if (s->len + 1 < s->size)
        s->out[s->len] = c;
    s->len++;
}

static void put_code(sink *s, uint32_t c)
{
    if (c < 0x80) {
        put(s, (char)c);
    } else if (c < 0x800) {
        put(s, (char)(0xc0 | c >> 6));
        put(s, (char)(0x80 | (c & 0x3f)));
    } else if (c < 0x10000) {
        put(s, (char)(0xe0 | c >> 12));
        put(s, (char)(0x80 | (c >> 6 & 0x3f)));
        put(s, (char)(0x80 | (c & 0x3f)));
    } else {
        put(s, (char)(0xf0 | c >> 18));
        put(s, (char)(0x80 | (c >> 12 & 0x3f)));
        put(s, (char)(0x80 | (c >> 6 & 0x3f)));
        put(s, (char)(0x80 | (c & 0x3f)));
    }
}

/* Four hexadecimal digits; -1: they are not. */
static int32_t read_hex(weft_json *j)
{
    int32_t value = 0;
    if (j->end - j->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = *j->at++;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* After "\u". */
static bool read_unicode(weft_json *j, sink *s)
{
    int32_t high = read_hex(j), low;
    if (high <= 0)
        return fail(j, high ? "a wrong \\u escape" : "a string holds NUL");
    if (high >= 0xd800 && high <= 0xdbff) {
        if (j->end - j->at < 6 || j->at[0] != '\\' || j->at[1] != 'u')
            return fail(j, "half a surrogate pair");
        j->at += 2;
        low = read_hex(j);
        if (low < 0xdc00 || low > 0xdfff)
            return fail(j, "half a surrogate pair");
        put_code(s, 0x10000 + ((uint32_t)(high - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
        return true;
    }
    if (high >= 0xdc00 && high <= 0xdfff)
        return fail(j, "half a surrogate pair");
    put_code(s, (uint32_t)high);
    return true;
}

/* After the backslash. */
static bool read_escape(weft_json *j, sink *s)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (j->at == j->end)
        return fail(j, "a string without end");
    char c = *j->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (c == 'u')
        return read_unicode(j, s);
    if (!known)
        return fail(j, "an unknown escape");
    put(s, to[known - from]);
    return true;
}

/* A character of more than one byte. */
static bool read_utf8(weft_json *j, sink *s)
{
    size_t n = weft_utf8_size(j->at, (size_t)(j->end - j->at));
    if (n == 0)
        return fail(j, "a string is not UTF-8");
    for (size_t i = 0; i < n; i++)
        put(s, *j->at++);
    return true;
}

bool weft_json__string(weft_json *j, char *out, size_t size, size_t *out_len)
{
    sink s = {.out = out, .size = size};
    skip_space(j);
    if (j->at == j->end || *j->at != '"')
        return fail(j, "a string is expected");
    j->at++;
    for (;;) {
        if (j->at == j->end)
            return fail(j, "a string without end");
        uint8_t c = (uint8_t)*j->at;
        if (c < 0x20)
            return fail(j, "a control character in a string");
        if (c >= 0x80) {
            if (!read_utf8(j, &s))
                return false;
            continue;
        }
        j->at++;
        if (c == '"')
            break;
        if (c == '\\') {
            if (!read_escape(j, &s))
                return false;
            continue;
        }
        put(&s, (char)c);
    }
    if (size)
        out[s.len < size ? s.len : size - 1] = '\0';
    *out_len = s.len;
    return true;
}

/* -- Numbers -------------------------------------------------------------------------------- */

static bool is_digit(const weft_json *j)
{
    return j->at < j->end && *j->at >= '0' && *j->at <= '9';
}

/* Digits after the first: the 20th significant one and those behind it only move the exponent. */
static void take_digit(weft_json_number *n, uint32_t *count, char c, bool fraction)
{
    if (*count == 0 && c == '0') {
        n->exponent -= fraction; /* a leading zero */
        return;
    }
    if (*count < 19) {
        n->digits = n->digits * 10 + (uint64_t)(c - '0');
        n->exponent -= fraction;
        (*count)++;
        return;
    }
    n->whole = n->whole && c == '0';
    n->exponent += !fraction;
}

static bool read_exponent(weft_json *j, weft_json_number *n)
{
    int32_t e = 0;
    bool negative = false;
    j->at++;
    if (j->at < j->end && (*j->at == '+' || *j->at == '-'))
        negative = *j->at++ == '-';
    if (!is_digit(j))
        return fail(j, "an exponent without digits");
    for (; is_digit(j); j->at++)
        e = e < 100000 ? e * 10 + (*j->at - '0') : e;
    n->exponent += negative ? -e : e;
    n->is_integer = false;
    return true;
}

bool weft_json__number(weft_json *j, weft_json_number *out)
{
    weft_json_number n = {.is_integer = true, .whole = true};
    uint32_t count = 0;
    skip_space(j);
    n.text = j->at;
    if (j->at < j->end && *j->at == '-') {
        n.negative = true;
        j->at++;
    }
    if (!is_digit(j))
        return fail(j, "a number without digits");
    bool zero = *j->at == '0';
    for (; is_digit(j); j->at++)
        take_digit(&n, &count, *j->at, false);
    if (zero && j->at - n.text > 1 + n.negative)
        return fail(j, "a number with a leading zero");
    if (j->at < j->end && *j->at == '.') {
        j->at++;
        n.is_integer = false;
        if (!is_digit(j))
            return fail(j, "a fraction without digits");
        for (; is_digit(j); j->at++)
            take_digit(&n, &count, *j->at, true);
    }
    if (j->at < j->end && (*j->at == 'e' || *j->at == 'E') && !read_exponent(j, &n))
        return false;
    n.len = (size_t)(j->at - n.text);
    if (n.len > WEFT_JSON_NUMBER_MAX)
        return fail(j, "a number is too long");
    *out = n;
    return true;
}

/* The value with 64 significant bits, at most half a unit in the last place wrong, where one
 * operation on exact operands gives it (W. D. Clinger, How to read floating point numbers
 * accurately, 1990). 10^27 = 2^27 * 5^27 has 63 significant bits. false: it does not. */
static bool to_extended(const weft_json_number *n, long double *out)
{
#if LDBL_MANT_DIG == 64
    static const long double ten[] = {1e0L,  1e1L,  1e2L,  1e3L,  1e4L,  1e5L,  1e6L,
                                      1e7L,  1e8L,  1e9L,  1e10L, 1e11L, 1e12L, 1e13L,
                                      1e14L, 1e15L, 1e16L, 1e17L, 1e18L, 1e19L, 1e20L,
                                      1e21L, 1e22L, 1e23L, 1e24L, 1e25L, 1e26L, 1e27L};
    if (!n->whole || n->exponent < -27 || n->exponent > 27)
        return false;
    *out = n->exponent < 0 ? (long double)n->digits / ten[-n->exponent]
                           : (long double)n->digits * ten[n->exponent];
    return true;
#else
    (void)n;
    (void)out;
    return false;
#endif
}

/* Whether rounding `x` to `bits` significant bits is certain: x is not so near to the middle of two
 * neighbours that its own error could decide. */
static bool rounds_surely(long double x, int bits)
{
    uint64_t mantissa;
    memcpy(&mantissa, &x, sizeof mantissa); /* of the 80-bit format: its low 64 bits */
    uint64_t below = (uint64_t)1 << (64 - bits), rest = mantissa & (below - 1), middle = below / 2;
    return rest + 1 < middle || rest > middle + 1;
}

/* A copy of the number's text for the C library. */
static void copy_text(const weft_json_number *n, char text[WEFT_JSON_NUMBER_MAX + 1])
{
    memcpy(text, n->text, n->len);
    text[n->len] = '\0';
}

bool weft_json__as_f64(const weft_json_number *n, double *out)
{
    long double x;
    char text[WEFT_JSON_NUMBER_MAX + 1];
    if (n->digits == 0) {
        *out = n->negative ? -0.0 : 0.0;
        return true;
    }
    if (to_extended(n, &x) && rounds_surely(x, DBL_MANT_DIG)) {
        *out = (double)(n->negative ? -x : x);
        return true;
    }
    copy_text(n, text);
    *out = strtod(text, NULL);
    return isfinite(*out);
}

bool weft_json__as_f32(const weft_json_number *n, float *out)
{
    long double x;
    char text[WEFT_JSON_NUMBER_MAX + 1];
    if (n->digits == 0) {
        *out = n->negative ? -0.0F : 0.0F;
        return true;
    }
    if (to_extended(n, &x) && x >= 2 * FLT_MIN && x <= FLT_MAX / 2 &&
        rounds_surely(x, FLT_MANT_DIG)) {
        *out = (float)(n->negative ? -x : x);
        return true;
    }
    copy_text(n, text);
    *out = strtof(text, NULL);
    return isfinite(*out);
}

bool weft_json__as_u64(const weft_json_number *n, uint64_t *out)
{
    uint64_t value = 0;
    if (!n->is_integer || (n->negative && n->digits))
        return false;
    for (const char *c = n->text + n->negative; c < n->text + n->len; c++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return false;
    *out = value;
    return true;
}

bool weft_json__as_i64(const weft_json_number *n, int64_t *out)
{
    uint64_t value = n->digits;
    bool fits =
        n->is_integer && n->whole && n->exponent == 0 && value <= (uint64_t)INT64_MAX + n->negative;
    *out = n->negative ? (int64_t)-value : (int64_t)value;
    return fits;
}

/* -- Structure ------------------------------------------------------------------------------ */

bool weft_json__enter(weft_json *j, char bracket)
{
    skip_space(j);
    if (j->at == j->end || *j->at != bracket)
        return fail(j, bracket == '{' ? "an object is expected" : "an array is expected");
    if (j->depth == WEFT_JSON_DEPTH_MAX)
        return fail(j, "values are nested too deep");
    j->at++;
    j->depth++;
    return true;
}

bool weft_json__next(weft_json *j, char closing, bool *first)
{
    skip_space(j);
    if (j->at == j->end)
        return fail(j, "the text ends inside a value");
    if (*j->at == closing) {
        j->at++;
        j->depth--;
        return false;
    }
    if (*first) {
        *first = false;
        return true;
    }
    if (*j->at != ',')
        return fail(j, "a comma or a closing bracket is expected");
    j->at++;
    skip_space(j);
    if (j->at < j->end && *j->at == closing)
        return fail(j, "a comma before a closing bracket");
    return true;
}

bool weft_json__key(weft_json *j, char *out, size_t size, size_t *out_len)
{
    if (!weft_json__string(j, out, size, out_len))
        return false;
    skip_space(j);
    if (j->at == j->end || *j->at != ':')
        return fail(j, "a colon is expected");
    j->at++;
    return true;
}

static bool read_word(weft_json *j, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(j->end - j->at) < len || memcmp(j->at, word, len) != 0)
        return fail(j, "a value is expected");
    j->at += len;
    return true;
}

/* A value that is no array and no object. */
static bool skip_scalar(weft_json *j)
{
    weft_json_number number;
    size_t len;
    switch (weft_json__peek(j)) {
    case '"':
        return weft_json__string(j, NULL, 0, &len);
    case 't':
        return read_word(j, "true");
    case 'f':
        return read_word(j, "false");
    case 'n':
        return read_word(j, "null");
    case '0':
        return weft_json__number(j, &number);
    default:
        return fail(j, j->at == j->end ? "the text ends inside a value" : "a value is expected");
    }
}

bool weft_json__skip(weft_json *j)
{
    struct {
        char closing;
        bool first;
    } open[WEFT_JSON_DEPTH_MAX];
    size_t depth = 0, len;
    for (;;) {
        char c = weft_json__peek(j);
        if (c == '{' || c == '[') {
            if (!weft_json__enter(j, c))
                return false;
            open[depth].closing = c == '{' ? '}' : ']';
            open[depth++].first = true;
        } else if (!skip_scalar(j)) {
            return false;
        }
        /* The end of this value may be the end of those around it. */
        while (depth > 0 && !weft_json__next(j, open[depth - 1].closing, &open[depth - 1].first)) {
            if (j->error)
                return false;
            depth--;
        }
        if (depth == 0)
            return true;
        if (open[depth - 1].closing == '}' && !weft_json__key(j, NULL, 0, &len))
            return false;
    }
}
