/* Byte buffers on the heap, number text that does not depend on the locale, and interned names. */
#include "base/str.h"

#include "base/hash.h"
#include "base/map.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- Buffer --------------------------------------------------------------------------------- */

void weft_buf_finish(weft_buf *buf)
{
    free(buf->at);
    memset(buf, 0, sizeof *buf);
}

char *weft_buf_keep(weft_buf *buf, weft_arena *arena)
{
    jmp_buf env;
    jmp_buf *before = weft_arena_guard(arena, &env);
    if (setjmp(env)) {
        weft_arena_guard(arena, before);
        weft_buf_finish(buf);
        weft_arena_exhaust(arena);
    }
    if (buf->failed)
        weft_arena_exhaust(arena);
    char *copy = weft_arena_strndup(arena, buf->at ? buf->at : "", buf->len);
    weft_arena_guard(arena, before);
    weft_buf_finish(buf);
    return copy;
}

/* Room for `len` more bytes and the NUL. */
static bool reserve(weft_buf *buf, size_t len)
{
    if (buf->failed)
        return false;
    if (len < buf->cap && buf->len < buf->cap - len)
        return true;
    size_t need = buf->len + len + 1;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < need && cap <= SIZE_MAX / 2)
        cap *= 2;
    char *at = len < SIZE_MAX / 4 && cap >= need ? realloc(buf->at, cap) : NULL;
    if (!at) {
        buf->failed = true;
        return false;
    }
    buf->at = at;
    buf->cap = cap;
    return true;
}

void weft_buf_add(weft_buf *buf, const void *bytes, size_t len)
{
    if (!reserve(buf, len))
        return;
    if (len)
        memcpy(buf->at + buf->len, bytes, len);
    buf->len += len;
    buf->at[buf->len] = '\0';
}

void weft_buf_puts(weft_buf *buf, const char *s)
{
    weft_buf_add(buf, s, strlen(s));
}

void weft_buf_putc(weft_buf *buf, char c)
{
    weft_buf_add(buf, &c, 1);
}

void weft_buf_printf(weft_buf *buf, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    size_t room = buf->cap - buf->len;
    int len = vsnprintf(buf->at ? buf->at + buf->len : NULL, room, fmt, ap);
    va_end(ap);
    if (len < 0) {
        buf->failed = true;
    } else if (reserve(buf, (size_t)len)) {
        if ((size_t)len >= room)
            vsnprintf(buf->at + buf->len, (size_t)len + 1, fmt, again);
        buf->len += (size_t)len;
    }
    if (buf->at)
        buf->at[buf->len] = '\0';
    va_end(again);
}

void weft_buf_put_u64(weft_buf *buf, uint64_t x)
{
    char text[20];
    size_t at = sizeof text;
    do
        text[--at] = (char)('0' + x % 10);
    while (x /= 10);
    weft_buf_add(buf, text + at, sizeof text - at);
}

void weft_buf_put_i64(weft_buf *buf, int64_t x)
{
    if (x < 0)
        weft_buf_putc(buf, '-');
    weft_buf_put_u64(buf, x < 0 ? -(uint64_t)x : (uint64_t)x);
}

/* -- Numbers -------------------------------------------------------------------------------- */

/* Whether `x`, which is between two floats, is as far from both: rounding a decimal to double and
 * then to float could then differ from rounding it once. */
static bool is_between_floats(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x1fffffff) == 0x10000000;
}

/* `digits` x 10^power, correctly rounded where both are exact in double (Clinger, "How to read
 * floating point numbers accurately", 1990). */
static double read_back(double digits, int power)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    return power < 0 ? digits / tens[-power] : digits * tens[power];
}

/* Decimal digits without zeros at the end, the first times 10^exponent, as "%g" writes them for a
 * precision above the exponent. */
static void put_digits(weft_buf *buf, bool negative, uint64_t digits, int n, int exponent)
{
    char text[48], digit[20];
    size_t at = 0;
    for (; n > 1 && digits % 10 == 0; n--)
        digits /= 10;
    for (int i = n; i-- > 0; digits /= 10)
        digit[i] = (char)('0' + digits % 10);
    if (negative)
        text[at++] = '-';
    int point = exponent < -4 ? 1 : exponent + 1; /* digits before the point */
    for (int i = point; i <= 0; i++) {
        text[at++] = '0';
        if (i == point)
            text[at++] = '.';
    }
    for (int i = 0; i < n || i < point; i++) {
        if (i == point && i > 0)
            text[at++] = '.';
        text[at++] = i < n ? digit[i] : '0';
    }
    if (exponent < -4) {
        text[at++] = 'e';
        text[at++] = '-';
        text[at++] = (char)('0' - exponent / 10);
        text[at++] = (char)('0' - exponent % 10);
    }
    weft_buf_add(buf, text, at);
}

/* As put_shortest, for numbers whose decimals are exact in double. false: not one of these. */
static bool put_exact(weft_buf *buf, double x, bool is_f32, int least, int most)
{
    double a = fabs(x);
    if (!(a >= 1e-7 && a < 1e6))
        return false;
    int exponent = (int)floor(log10(a));
    for (int n = least; n <= (most < 15 ? most : 15); n++) {
        int power = exponent - n + 1; /* of the last digit; at least -21 */
        double digits = nearbyint(power < 0 ? read_back(a, -power) : read_back(a, power));
        if (power > 0 || digits < read_back(1, n - 1) || digits >= read_back(1, n))
            return false;
        double back = read_back(digits, power);
        if (is_f32 && is_between_floats(back))
            return false;
        if (is_f32 ? (float)back != (float)a : back != a)
            continue;
        put_digits(buf, x < 0, (uint64_t)digits, n, exponent);
        return true;
    }
    return false;
}

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void open_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* The text with the fewest digits in [least, most] that reads back as `x`. It is the shortest of
 * all if `least` is the number of digits that the type preserves (FLT_DIG, DBL_DIG). */
static void put_shortest(weft_buf *buf, double x, bool is_f32, int least, int most)
{
    if (isnan(x)) {
        weft_buf_puts(buf, "nan");
        return;
    }
    if (isinf(x)) {
        weft_buf_puts(buf, x < 0 ? "-inf" : "inf");
        return;
    }
    if (put_exact(buf, x, is_f32, least, most))
        return;
    pthread_once(&c_locale_once, open_c_locale);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;
    char text[40];
    for (int digits = least; digits <= most; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (is_f32 ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x)
            break;
    }
    if (c_locale)
        uselocale(before);
    weft_buf_puts(buf, text);
}

void weft_buf_put_f32(weft_buf *buf, float x)
{
    /* Subnormal numbers keep fewer digits than FLT_DIG. */
    put_shortest(buf, (double)x, true, fabsf(x) < FLT_MIN ? 1 : FLT_DIG, FLT_DECIMAL_DIG);
}

void weft_buf_put_f64(weft_buf *buf, double x)
{
    put_shortest(buf, x, false, fabs(x) < DBL_MIN ? 1 : DBL_DIG, DBL_DECIMAL_DIG);
}

void weft_buf_put_quoted(weft_buf *buf, const char *s, size_t len)
{
    static const char hex[] = "0123456789abcdef";
    weft_buf_putc(buf, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            char pair[2] = {'\\', (char)c};
            weft_buf_add(buf, pair, 2);
        } else if (c == '\n') {
            weft_buf_add(buf, "\\n", 2);
        } else if (c == '\t') {
            weft_buf_add(buf, "\\t", 2);
        } else if (c < 0x20 || c >= 0x7f) {
            char code[4] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
            weft_buf_add(buf, code, 4);
        } else {
            weft_buf_putc(buf, (char)c);
        }
    }
    weft_buf_putc(buf, '"');
}

void weft_buf_put_xml(weft_buf *buf, const char *s)
{
    for (size_t n; *s; s += n > 0 ? n : 1) {
        n = weft_utf8_size(s, 4);
        if (*s == '&')
            weft_buf_puts(buf, "&amp;");
        else if (*s == '<')
            weft_buf_puts(buf, "&lt;");
        else if (*s == '>')
            weft_buf_puts(buf, "&gt;");
        else if (*s == '"')
            weft_buf_puts(buf, "&quot;");
        else if (n == 0 || (unsigned char)*s < 0x20 || *s == 0x7f)
            weft_buf_putc(buf, '?');
        else
            weft_buf_add(buf, s, n);
    }
}

size_t weft_utf8_size(const char *s, size_t len)
{
    const unsigned char *at = (const unsigned char *)s;
    if (len == 0 || *at < 0x80)
        return len > 0;
    size_t n = *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
    if (n == 0 || n > len)
        return 0;
    /* The bounds of the second byte exclude overlong forms, surrogates and what is above U+10FFFF.
     */
    unsigned low = *at == 0xe0 ? 0xa0 : *at == 0xf0 ? 0x90 : 0x80;
    unsigned high = *at == 0xed ? 0x9f : *at == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool weft_utf8_is_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = weft_utf8_size(s + i, len - i);
        if (n == 0 || s[i] == '\0')
            return false;
    }
    return true;
}

int weft_str_order(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* -- Interned names --------------------------------------------------------------------------- */

typedef struct name {
    const char *text;
    size_t len;
    uint32_t same_hash; /* an older name; 0: none */
} name;

struct weft_names {
    weft_arena *arena;
    WEFT_VEC(name) names;
    weft_map *newest; /* hash of a name to the newest name with it */
};

weft_names *weft_names_create(weft_arena *arena)
{
    weft_names *names = weft_arena_alloc(arena, sizeof *names);
    name none = {"", 0, 0};
    names->arena = arena;
    names->newest = weft_map_create(arena);
    WEFT_VEC_PUSH(arena, &names->names, none);
    return names;
}

static uint32_t find_name(const weft_names *names, const char *s, size_t len, uint64_t hash)
{
    uint64_t id = 0;
    weft_map_get(names->newest, hash, &id);
    for (; id; id = names->names.at[id].same_hash) {
        const name *n = &names->names.at[id];
        if (n->len == len && memcmp(n->text, s, len) == 0)
            break;
    }
    return (uint32_t)id;
}

uint32_t weft_names_add(weft_names *names, const char *s, size_t len)
{
    if (len == 0)
        return 0;
    uint64_t hash = weft_hash64(s, len, 0), newest = 0;
    uint32_t id = find_name(names, s, len, hash);
    if (id)
        return id;
    weft_map_get(names->newest, hash, &newest);
    name n = {weft_arena_strndup(names->arena, s, len), len, (uint32_t)newest};
    WEFT_VEC_PUSH(names->arena, &names->names, n);
    id = names->names.len - 1;
    weft_map_put(names->newest, hash, id);
    return id;
}

uint32_t weft_names_find(const weft_names *names, const char *s, size_t len)
{
    return len == 0 ? 0 : find_name(names, s, len, weft_hash64(s, len, 0));
}

const char *weft_names_text(const weft_names *names, uint32_t id)
{
    return id < names->names.len ? names->names.at[id].text : "";
}
