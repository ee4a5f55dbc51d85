/* Checked arithmetic and numbers with units. Text is checked by hand before the C library reads
 * it, because strtod takes blanks, hexadecimal, "infinity" and the locale's decimal point. */
#include "base/num.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weft_i64_add(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b)
        return false;
    *out = a + b;
    return true;
}

bool weft_i64_mul(int64_t a, int64_t b, int64_t *out)
{
    if (a > 0) {
        if (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
            return false;
    } else if (a < 0) {
        if (b > 0 ? a < INT64_MIN / b : b != 0 && b < INT64_MAX / a)
            return false;
    }
    *out = a * b;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool weft_parse_i64(const char *s, int64_t *out)
{
    bool minus = *s == '-';
    s += minus;
    if (!is_digit(*s))
        return false;
    int64_t x = 0; /* the negative of the value: INT64_MIN has no positive counterpart */
    for (; is_digit(*s); s++) {
        int64_t ten;
        if (!weft_i64_mul(x, 10, &ten) || !weft_i64_add(ten, '0' - *s, &x))
            return false;
    }
    if (*s || (!minus && x == INT64_MIN))
        return false;
    *out = minus ? x : -x;
    return true;
}

/* Length of the decimal number at the start of s; 0: none. */
static size_t scan_decimal(const char *s)
{
    const char *p = s;
    if (*p == '-')
        p++;
    const char *digits = p;
    while (is_digit(*p))
        p++;
    size_t n = (size_t)(p - digits);
    if (*p == '.') {
        const char *frac = ++p;
        while (is_digit(*p))
            p++;
        n += (size_t)(p - frac);
    }
    if (n == 0)
        return 0;
    if (*p == 'e' || *p == 'E') {
        const char *e = p + 1;
        if (*e == '-' || *e == '+')
            e++;
        if (is_digit(*e)) {
            while (is_digit(*e))
                e++;
            p = e;
        }
    }
    return (size_t)(p - s);
}

/* Reads the finite number at the start of s. Returns its length; 0: none, or over the range. */
static size_t read_decimal(const char *s, double *out)
{
    size_t len = scan_decimal(s);
    if (len == 0)
        return 0;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c)
        return 0;
    char *end;
    double x = strtod_l(s, &end, c);
    freelocale(c);
    if (end != s + len || !isfinite(x))
        return 0;
    *out = x;
    return len;
}

bool weft_parse_f64(const char *s, double *out)
{
    double x;
    if (strcmp(s, "nan") == 0)
        x = (double)NAN;
    else if (strcmp(s, "inf") == 0)
        x = (double)INFINITY;
    else if (strcmp(s, "-inf") == 0)
        x = -(double)INFINITY;
    else {
        size_t len = read_decimal(s, &x);
        if (len == 0 || s[len])
            return false;
    }
    *out = x;
    return true;
}

typedef struct unit {
    const char *text;
    double scale;
} unit;

/* A number, not negative, followed by exactly one of the units. */
static bool parse_unit(const char *s, const unit *units, size_t n, double *out)
{
    double x;
    size_t len = read_decimal(s, &x);
    if (len == 0 || s[0] == '-')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(s + len, units[i].text) == 0) {
            x *= units[i].scale;
            if (!isfinite(x))
                return false;
            *out = x;
            return true;
        }
    }
    return false;
}

bool weft_parse_duration_us(const char *s, double *out)
{
    static const unit units[] = {{"ns", 1e-3}, {"us", 1},     {"ms", 1e3},
                                 {"s", 1e6},   {"min", 60e6}, {"h", 3600e6}};
    return parse_unit(s, units, sizeof units / sizeof units[0], out);
}

bool weft_parse_rate_per_s(const char *s, double *out)
{
    static const unit units[] = {{"/s", 1}, {"/min", 60}, {"/h", 3600}};
    double x;
    size_t len = read_decimal(s, &x);
    if (len == 0 || s[0] == '-')
        return false;
    /* Divided, not multiplied by 1/60: "60/min" is exactly 1. */
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(s + len, units[i].text) == 0) {
            *out = x / units[i].scale;
            return true;
        }
    }
    return false;
}

bool weft_parse_percent(const char *s, double *out)
{
    double x;
    size_t len = read_decimal(s, &x);
    if (len == 0 || s[0] == '-' || strcmp(s + len, "%") != 0)
        return false;
    *out = x / 100;
    return true;
}

bool weft_parse_bytes(const char *s, uint64_t *out)
{
    static const struct {
        const char *text;
        uint64_t scale;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"kB", 1000},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"KiB", (uint64_t)1 << 10},
                 {"MiB", (uint64_t)1 << 20},
                 {"GiB", (uint64_t)1 << 30},
                 {"TiB", (uint64_t)1 << 40}};
    uint64_t whole = 0;
    const char *p = s;
    if (!is_digit(*p))
        return false;
    for (; is_digit(*p); p++) {
        if (!weft_size_mul(whole, 10, &whole) ||
            !weft_size_add(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    }
    /* Integers are exact; a fraction of a unit is read as a double; bytes have no fraction. */
    double x = 0;
    bool fraction = *p == '.';
    if (fraction) {
        size_t len = read_decimal(s, &x);
        if (len == 0)
            return false;
        p = s + len;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(p, units[i].text) != 0)
            continue;
        if (!fraction)
            return weft_size_mul(whole, units[i].scale, out);
        x *= (double)units[i].scale;
        if (units[i].scale == 1 || !(x < 0x1p53))
            return false;
        *out = (uint64_t)x;
        return true;
    }
    return false;
}
