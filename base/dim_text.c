/* Text of dims. The printer writes sums of products and needs no parentheses; the reader also
 * takes parentheses and unary minus. It fails, instead of inventing a symbol, where a result is
 * over a limit. */
#include "base/dim_int.h"

#include "base/num.h"

#include <string.h>

enum { NESTING_MAX = 32 };

/* -- Printing --------------------------------------------------------------------------------- */

static void print_atom(const weft_dimpool *pool, const weft_dimatom *atom, weft_buf *out)
{
    static const char *const function[] = {
        [DIM_FLOORDIV] = "floordiv(", [DIM_MAX] = "max(", [DIM_MIN] = "min("};
    if (atom->kind == DIM_SYMBOL) {
        weft_buf_putc(out, '?');
        weft_buf_puts(out, pool->symbols.at[atom->symbol].name);
        return;
    }
    weft_buf_puts(out, function[atom->kind]);
    weft_dim_print(pool, atom->a, out);
    weft_buf_puts(out, ", ");
    weft_dim_print(pool, atom->b, out);
    weft_buf_putc(out, ')');
}

void weft_dim_print(const weft_dimpool *pool, weft_dim d, weft_buf *out)
{
    if (weft_dim_is_const(d)) {
        weft_buf_printf(out, "%lld", (long long)d);
        return;
    }
    const weft_dimexpr *e = weft_dim__expr(pool, d);
    for (uint32_t i = 0; i < e->n; i++) {
        const weft_dimterm *t = &e->term[i];
        int64_t coef = t->coef;
        /* The first term keeps its sign: "?a * -1 + ?b". */
        if (i > 0) {
            weft_buf_puts(out, coef < 0 ? " - " : " + ");
            coef = coef < 0 ? -coef : coef;
        }
        for (uint32_t j = 0; j < t->n; j++) {
            if (j > 0)
                weft_buf_puts(out, " * ");
            print_atom(pool, &pool->atoms.at[t->atom[j]], out);
        }
        if (t->n == 0)
            weft_buf_printf(out, "%lld", (long long)coef);
        else if (coef != 1)
            weft_buf_printf(out, " * %lld", (long long)coef);
    }
}

/* -- Reading ---------------------------------------------------------------------------------- */

typedef struct reader {
    weft_dimpool *pool;
    const char *at;
    int depth;
} reader;

static void skip_blanks(reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

/* Takes `c`, with blanks before it; without it, nothing. */
static bool take(reader *r, char c)
{
    const char *before = r->at;
    skip_blanks(r);
    if (*r->at == c) {
        r->at++;
        return true;
    }
    r->at = before;
    return false;
}

static bool read_sum(reader *r, weft_dim *out);

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '.'));
}

static bool read_symbol(reader *r, weft_dim *out)
{
    const char *start = r->at;
    while (is_name_char(*r->at, r->at == start))
        r->at++;
    if (r->at == start)
        return false;
    *out = weft_dim__name_symbol(r->pool, start, (size_t)(r->at - start));
    return true;
}

static bool read_number(reader *r, bool minus, weft_dim *out)
{
    int64_t x = 0;
    for (; *r->at >= '0' && *r->at <= '9'; r->at++) {
        int64_t digit = *r->at - '0';
        if (!weft_i64_mul(x, 10, &x) || !weft_i64_add(x, minus ? -digit : digit, &x))
            return false;
    }
    *out = x;
    return weft_dim_is_const(x);
}

static bool read_call(reader *r, weft_dim *out)
{
    static const struct {
        const char *name;
        weft_dimkind kind;
    } functions[] = {{"floordiv", DIM_FLOORDIV}, {"max", DIM_MAX}, {"min", DIM_MIN}};
    const char *start = r->at;
    while (is_name_char(*r->at, r->at == start))
        r->at++;
    size_t len = (size_t)(r->at - start);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (strlen(functions[i].name) != len || memcmp(functions[i].name, start, len) != 0)
            continue;
        weft_dim a, b;
        if (!take(r, '(') || !read_sum(r, &a) || !take(r, ',') || !read_sum(r, &b) || !take(r, ')'))
            return false;
        if (functions[i].kind == DIM_FLOORDIV)
            return weft_dim__floordiv(r->pool, a, b, out);
        return weft_dim__extremum(r->pool, functions[i].kind, a, b, out);
    }
    return false;
}

static bool read_factor(reader *r, weft_dim *out)
{
    skip_blanks(r);
    bool minus = false;
    for (; *r->at == '-'; r->at++)
        minus = !minus;
    if (*r->at >= '0' && *r->at <= '9')
        return read_number(r, minus, out);
    weft_dim x;
    bool ok;
    if (*r->at == '?') {
        r->at++;
        ok = read_symbol(r, &x);
    } else if (*r->at == '(') {
        r->at++;
        ok = read_sum(r, &x) && take(r, ')');
    } else {
        ok = read_call(r, &x);
    }
    if (!ok)
        return false;
    if (minus)
        return weft_dim__mul(r->pool, x, -1, out);
    *out = x;
    return true;
}

static bool read_product(reader *r, weft_dim *out)
{
    weft_dim x, y;
    if (!read_factor(r, &x))
        return false;
    while (take(r, '*'))
        if (!read_factor(r, &y) || !weft_dim__mul(r->pool, x, y, &x))
            return false;
    *out = x;
    return true;
}

static bool read_sum(reader *r, weft_dim *out)
{
    if (++r->depth > NESTING_MAX)
        return false;
    weft_dim x, y;
    if (!read_product(r, &x))
        return false;
    for (;;) {
        int64_t sign = take(r, '+') ? 1 : take(r, '-') ? -1 : 0;
        if (!sign)
            break;
        if (!read_product(r, &y) || !weft_dim__add(r->pool, x, y, sign, &x))
            return false;
    }
    r->depth--;
    *out = x;
    return true;
}

size_t weft_dim_parse(weft_dimpool *pool, const char *s, weft_dim *out)
{
    reader r = {.pool = pool, .at = s};
    weft_dim x;
    if (!read_sum(&r, &x))
        return 0;
    *out = x;
    return (size_t)(r.at - s);
}
