/* Tokens of the text form. */
#include "base/num.h"
#include "ir/parse_int.h"

#include <stdio.h>
#include <string.h>

enum { NUMBER_MAX = 400, SHOWN_MAX = 40 };

/* -- Errors ----------------------------------------------------------------------------------- */

weft_err weft_parser__fail(const weft_parser *p, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    weft_where where = {p->file, NULL, p->tok.line};
    return weft_diag_error(p->diag, WEFT_ERR_INPUT, where, "%s", text);
}

weft_err weft_parser__expected(const weft_parser *p, const char *what)
{
    if (p->tok.kind == WEFT_TOKEN_END)
        return weft_parser__fail(p, "expected %s, found the end of the text", what);
    int len = (int)(p->tok.len < SHOWN_MAX ? p->tok.len : SHOWN_MAX);
    return weft_parser__fail(p, "expected %s, found `%.*s`", what, len, p->tok.at);
}

/* -- Scanning --------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_blanks(weft_parser *p)
{
    for (;; p->at++) {
        if (*p->at == '#')
            while (*p->at && *p->at != '\n')
                p->at++;
        if (*p->at == '\n')
            p->line++;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            return;
    }
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The token starts at the quote p->at points to. */
static weft_err scan_string(weft_parser *p)
{
    const char *s = p->at + 1;
    size_t len = 0;
    while (s[len] != '"') {
        if (s[len] == '\0' || s[len] == '\n')
            return weft_parser__fail(p, "a string does not end on its line");
        len += s[len] == '\\' && s[len + 1] != '\0' ? 2 : 1;
    }
    char *out = weft_arena_alloc(p->scratch, len + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] != '\\') {
            out[n++] = s[i];
            continue;
        }
        char c = s[++i];
        if (c == 'x') {
            int hi = i + 1 < len ? hex_value(s[i + 1]) : -1;
            int lo = i + 2 < len ? hex_value(s[i + 2]) : -1;
            if (hi < 0 || lo < 0 || hi + lo == 0)
                return weft_parser__fail(p, "\\x needs two hexadecimal digits, not 00");
            out[n++] = (char)(hi * 16 + lo);
            i += 2;
        } else if (c == '"' || c == '\\' || c == 'n' || c == 't') {
            out[n++] = c == 'n' ? '\n' : c == 't' ? '\t' : c;
        } else {
            return weft_parser__fail(p, "unknown escape in a string");
        }
    }
    p->tok.s = out;
    p->tok.s_len = n;
    p->at = s + len + 1;
    return WEFT_ERR_OK;
}

/* Integers and decimals; "0..3" is the tokens 0, "..", 3. */
static weft_err scan_number(weft_parser *p)
{
    const char *s = p->at;
    bool is_float = false;
    s += *s == '-';
    if (strncmp(s, "inf", 3) == 0) {
        s += 3;
        is_float = true;
    } else if (!is_digit(*s)) {
        p->tok.len = 1;
        return weft_parser__expected(p, "a number behind `-`");
    }
    while (is_digit(*s))
        s++;
    if (*s == '.' && is_digit(s[1])) {
        is_float = true;
        for (s++; is_digit(*s);)
            s++;
    }
    if (*s == 'e' && (is_digit(s[1]) || ((s[1] == '-' || s[1] == '+') && is_digit(s[2])))) {
        is_float = true;
        for (s += 2; is_digit(*s);)
            s++;
    }
    p->tok.kind = is_float ? WEFT_TOKEN_FLOAT : WEFT_TOKEN_INT;
    p->tok.s_len = (size_t)(s - p->at);
    if (p->tok.s_len > NUMBER_MAX)
        return weft_parser__fail(p, "a number is over %d characters", NUMBER_MAX);
    p->tok.s = weft_arena_strndup(p->scratch, p->at, p->tok.s_len);
    p->at = s;
    return WEFT_ERR_OK;
}

static weft_err scan_name(weft_parser *p, const char *start)
{
    const char *s = start;
    while (weft_text__is_name(*s))
        s++;
    p->tok.s_len = (size_t)(s - start);
    if (p->tok.s_len == 0) {
        p->tok.len = 1;
        return weft_parser__expected(p, "a name behind the sign");
    }
    p->tok.s = weft_arena_strndup(p->scratch, start, p->tok.s_len);
    p->at = s;
    return WEFT_ERR_OK;
}

static weft_err scan_token(weft_parser *p)
{
    static const char sigils[] = "%$@?";
    static const weft_token_kind kind[] = {WEFT_TOKEN_VALUE, WEFT_TOKEN_WEIGHT, WEFT_TOKEN_GRAPH,
                                           WEFT_TOKEN_SYMBOL};
    char c = *p->at;
    const char *sigil = strchr(sigils, c);
    if (c == '\0') {
        p->tok.kind = WEFT_TOKEN_END;
        return WEFT_ERR_OK;
    }
    if (sigil) {
        p->tok.kind = kind[sigil - sigils];
        if (c != '@' || p->at[1] != '"')
            return scan_name(p, p->at + 1);
        p->at++;
        return scan_string(p);
    }
    if (c == '"') {
        p->tok.kind = WEFT_TOKEN_STRING;
        return scan_string(p);
    }
    if (is_digit(c) || c == '-')
        return scan_number(p);
    if (c != '.' && weft_text__is_name(c)) {
        p->tok.kind = WEFT_TOKEN_WORD;
        return scan_name(p, p->at);
    }
    if (!strchr("=:,(){}[].", c)) {
        p->tok.len = 1;
        return weft_parser__expected(p, "a token");
    }
    p->tok.kind = WEFT_TOKEN_PUNCT;
    p->at += c == '.' && p->at[1] == '.' ? 2 : 1;
    return WEFT_ERR_OK;
}

weft_err weft_parser__next(weft_parser *p)
{
    skip_blanks(p);
    p->tok = (weft_token){.kind = WEFT_TOKEN_PUNCT, .at = p->at, .line = p->line};
    WEFT_TRY(scan_token(p));
    p->tok.len = (size_t)(p->at - p->tok.at);
    return WEFT_ERR_OK;
}

/* -- Expectations ----------------------------------------------------------------------------- */

bool weft_parser__is_punct(const weft_parser *p, char c)
{
    return p->tok.kind == WEFT_TOKEN_PUNCT && p->tok.len == 1 && *p->tok.at == c;
}

bool weft_parser__is_word(const weft_parser *p, const char *word)
{
    return p->tok.kind == WEFT_TOKEN_WORD && strcmp(p->tok.s, word) == 0;
}

weft_err weft_parser__punct(weft_parser *p, char c)
{
    char what[] = {'`', c, '`', '\0'};
    return weft_parser__is_punct(p, c) ? weft_parser__next(p) : weft_parser__expected(p, what);
}

weft_err weft_parser__word(weft_parser *p, const char *word)
{
    if (weft_parser__is_word(p, word))
        return weft_parser__next(p);
    char what[64];
    snprintf(what, sizeof what, "`%s`", word);
    return weft_parser__expected(p, what);
}

weft_err weft_parser__u64(weft_parser *p, uint64_t limit, const char *what, uint64_t *out)
{
    if (p->tok.kind != WEFT_TOKEN_INT || p->tok.s[0] == '-')
        return weft_parser__expected(p, what);
    uint64_t x = 0;
    for (const char *s = p->tok.s; *s; s++)
        if (!weft_size_mul(x, 10, &x) || !weft_size_add(x, (uint64_t)(*s - '0'), &x) || x > limit)
            return weft_parser__fail(p, "%s is over %llu", what, (unsigned long long)limit);
    *out = x;
    return weft_parser__next(p);
}

weft_err weft_parser__i64(weft_parser *p, int64_t *out)
{
    if (p->tok.kind != WEFT_TOKEN_INT)
        return weft_parser__expected(p, "an integer");
    if (!weft_parse_i64(p->tok.s, out))
        return weft_parser__fail(p, "an integer does not fit 64 bits");
    return weft_parser__next(p);
}

weft_err weft_parser__string(weft_parser *p, const char **out)
{
    if (p->tok.kind != WEFT_TOKEN_STRING)
        return weft_parser__expected(p, "a string");
    *out = p->tok.s;
    return weft_parser__next(p);
}

bool weft_parser__is_float(const weft_parser *p)
{
    return p->tok.kind == WEFT_TOKEN_FLOAT || weft_parser__is_word(p, "inf") ||
           weft_parser__is_word(p, "nan");
}

weft_err weft_parser__f64(weft_parser *p, double *out)
{
    if (p->tok.kind != WEFT_TOKEN_INT && !weft_parser__is_float(p))
        return weft_parser__expected(p, "a number");
    if (!weft_parse_f64(p->tok.s, out))
        return weft_parser__fail(p, "a number is out of range");
    return weft_parser__next(p);
}

static void skip_spaces(weft_parser *p)
{
    while (*p->at == ' ' || *p->at == '\t')
        p->at++;
}

/* weft_dim_parse reads dims from characters, so this function bypasses the tokens. */
weft_err weft_parser__dims(weft_parser *p, uint32_t max, const weft_dim **out, uint32_t *out_n)
{
    if (!weft_parser__is_punct(p, '['))
        return weft_parser__expected(p, "`[`");
    WEFT_VEC(weft_dim) dims = {0};
    uint32_t symbols = weft_dim_symbol_count(p->m->dims);
    skip_spaces(p);
    while (*p->at != ']') {
        weft_dim d;
        if (dims.len && *p->at != ',')
            return weft_parser__fail(p, "expected `,` or `]` in a list of dimensions");
        p->at += dims.len ? 1 : 0;
        skip_spaces(p);
        size_t used = weft_dim_parse(p->m->dims, p->at, &d);
        if (!used)
            return weft_parser__fail(p, "expected a dimension");
        if (weft_dim_symbol_count(p->m->dims) != symbols)
            return weft_parser__fail(p, "symbol ?%s is not declared",
                                     weft_dim_symbol_name(p->m->dims, symbols));
        if (dims.len == max)
            return weft_parser__fail(p, "more than %u dimensions", max);
        p->at += used;
        WEFT_VEC_PUSH(p->scratch, &dims, d);
        skip_spaces(p);
    }
    p->at++;
    *out = dims.at;
    *out_n = dims.len;
    return weft_parser__next(p);
}
