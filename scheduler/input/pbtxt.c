/* The text format of protobuf (https://protobuf.dev/reference/protobuf/textformat-spec), as far as
 * files without extensions and Any need it:
 *
 *   message = { field [","|";"] }
 *   field   = name (":" value | [":"] (message-value | list))
 *   value   = scalar | message-value | list
 *   list    = "[" [value {"," value}] "]"      of values that are no lists
 *   message-value = "{" message "}" | "<" message ">"
 *   scalar  = string {string} | ["-"] number-or-word
 *
 * The text is untrusted: depth, number of fields and length of the file are bounded. What a number
 * or word means is the reader's business. */
#include "scheduler/input/pbtxt.h"

#include <ctype.h>
#include <string.h>

enum { DEPTH_MAX = 16, FIELDS_MAX = 1 << 13 };

typedef struct parser {
    const char *at, *end;
    uint32_t line;
    uint32_t n_field;
    int depth;
    const char *file;
    weft_arena *arena;
    weft_diag *diag;
} parser;

typedef WEFT_VEC(weft_pbtxt) field_list;

#define FAIL(p, ...)                                                                               \
    weft_diag_error((p)->diag, WEFT_ERR_INPUT, (weft_where){.file = (p)->file, .line = (p)->line}, \
                    __VA_ARGS__)

/* -- Tokens ----------------------------------------------------------------------------------- */

static void skip_space(parser *p)
{
    for (; p->at < p->end; p->at++) {
        if (*p->at == '\n')
            p->line++;
        else if (*p->at == '#') {
            const char *newline = memchr(p->at, '\n', (size_t)(p->end - p->at));
            p->at = (newline ? newline : p->end) - 1; /* the newline is read next */
        } else if (!strchr(" \t\r\v\f", *p->at) || !*p->at)
            return;
    }
}

/* The next character that is no space; 0: the end. */
static char peek(parser *p)
{
    skip_space(p);
    return p->at < p->end ? *p->at : '\0';
}

static bool take(parser *p, char c)
{
    if (peek(p) != c)
        return false;
    p->at++;
    return true;
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '+' || c == '-';
}

/* What stands there, for messages. */
static const char *shown(parser *p)
{
    char c = peek(p);
    if (p->at == p->end)
        return "the end of the file";
    return isprint((unsigned char)c) ? weft_arena_printf(p->arena, "'%c'", c)
                                     : weft_arena_printf(p->arena, "byte %u", (unsigned char)c);
}

/* -- Strings ---------------------------------------------------------------------------------- */

/* Digits of a base at p->at, at most `most`. */
static unsigned read_digits(parser *p, unsigned base, int most)
{
    unsigned x = 0;
    for (; most > 0 && p->at < p->end; most--, p->at++) {
        char c = *p->at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : base;
        if (digit >= base)
            break;
        x = x * base + digit;
    }
    return x;
}

/* Behind a backslash; 256 and above: no such escape. */
static unsigned read_escape(parser *p)
{
    static const char from[] = "abfnrtv\\'\"?", to[] = "\a\b\f\n\r\t\v\\'\"?";
    char c = p->at < p->end ? *p->at : '\0';
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        p->at++;
        return (unsigned char)to[known - from];
    }
    if (c >= '0' && c <= '7')
        return read_digits(p, 8, 3);
    const char *digits = p->at + 1;
    if ((c != 'x' && c != 'X') || digits >= p->end || !isxdigit((unsigned char)*digits))
        return 256;
    p->at = digits;
    return read_digits(p, 16, 2);
}

/* One string from its opening quote on; appends to out[*len], which has room for it. */
static weft_err read_string(parser *p, char *out, size_t *len)
{
    char quote = *p->at++;
    while (p->at < p->end && *p->at != quote && *p->at != '\n') {
        unsigned c = (unsigned char)*p->at++;
        if (c == '\\')
            c = read_escape(p);
        if (c == 0 || c > 255)
            return FAIL(p, c ? "unknown escape in a string" : "zero byte in a string");
        out[(*len)++] = (char)c;
    }
    if (p->at == p->end || *p->at != quote)
        return FAIL(p, "a string is not closed on its line");
    p->at++;
    return WEFT_ERR_OK;
}

/* Strings side by side are one. */
static weft_err read_strings(parser *p, weft_pbtxt *out)
{
    size_t len = 0, room = 0;
    char *text = NULL;
    for (char c = peek(p); c == '"' || c == '\''; c = peek(p)) {
        const char *close = p->at + 1;
        while (close < p->end && *close != '\n')
            close++;
        size_t most = len + (size_t)(close - p->at); /* of this line */
        text = weft_arena_grow(p->arena, text, room, most + 1);
        room = most + 1;
        WEFT_TRY(read_string(p, text, &len));
    }
    text[len] = '\0';
    out->text = text;
    out->is_quoted = true;
    return WEFT_ERR_OK;
}

/* -- Fields ----------------------------------------------------------------------------------- */

static weft_err read_fields(parser *p, char close, weft_pbtxt *out);

static weft_err read_message(parser *p, weft_pbtxt *out)
{
    char close = *p->at == '{' ? '}' : '>';
    if (++p->depth > DEPTH_MAX)
        return FAIL(p, "messages are nested more than %d levels deep", DEPTH_MAX);
    p->at++;
    WEFT_TRY(read_fields(p, close, out));
    p->depth--;
    return WEFT_ERR_OK;
}

static weft_err read_value(parser *p, const char *name, field_list *list)
{
    char c = peek(p);
    weft_pbtxt field = {.name = name, .line = p->line};
    if (++p->n_field > FIELDS_MAX)
        return FAIL(p, "more than %d values", FIELDS_MAX);
    if (c == '{' || c == '<') {
        WEFT_TRY(read_message(p, &field));
    } else if (c == '"' || c == '\'') {
        WEFT_TRY(read_strings(p, &field));
    } else {
        bool negative = take(p, '-');
        peek(p);
        const char *start = p->at;
        while (p->at < p->end && is_word(*p->at))
            p->at++;
        if (p->at == start)
            return FAIL(p, "%s: a value is expected, not %s", name, shown(p));
        field.text =
            weft_arena_printf(p->arena, "%s%.*s", negative ? "-" : "", (int)(p->at - start), start);
    }
    WEFT_VEC_PUSH(p->arena, list, field);
    return WEFT_ERR_OK;
}

static weft_err read_list(parser *p, const char *name, field_list *list)
{
    p->at++;
    if (take(p, ']'))
        return WEFT_ERR_OK;
    do {
        if (peek(p) == '[')
            return FAIL(p, "%s: a list in a list", name);
        WEFT_TRY(read_value(p, name, list));
    } while (take(p, ','));
    return take(p, ']') ? WEFT_ERR_OK
                        : FAIL(p, "%s: ',' or ']' is expected, not %s", name, shown(p));
}

static weft_err read_field(parser *p, field_list *list)
{
    const char *start = p->at;
    while (p->at < p->end && (isalnum((unsigned char)*p->at) || *p->at == '_'))
        p->at++;
    if (p->at == start || isdigit((unsigned char)*start))
        return FAIL(p, "the name of a field is expected, not %s", shown(p));
    const char *name = weft_arena_strndup(p->arena, start, (size_t)(p->at - start));
    bool colon = take(p, ':');
    char c = peek(p);
    if (!colon && c != '{' && c != '<' && c != '[')
        return FAIL(p, "':' or '{' is expected behind '%.64s', not %s", name, shown(p));
    return c == '[' ? read_list(p, name, list) : read_value(p, name, list);
}

/* Up to the character that closes the message; 0: the end of the file. */
static weft_err read_fields(parser *p, char close, weft_pbtxt *out)
{
    field_list list = {0};
    while (peek(p) != close || (!close && p->at < p->end)) {
        if (p->at == p->end)
            return FAIL(p, "'%c' is missing at the end of the file", close);
        WEFT_TRY(read_field(p, &list));
        if (!take(p, ','))
            take(p, ';');
    }
    p->at += close != '\0';
    out->is_message = true;
    out->field = list.at;
    out->n_field = list.len;
    return WEFT_ERR_OK;
}

weft_err weft_pbtxt__parse(const char *text, size_t len, const char *file, weft_arena *arena,
                           weft_diag *diag, weft_pbtxt *out)
{
    parser p = {
        .at = text, .end = text + len, .line = 1, .file = file, .arena = arena, .diag = diag};
    *out = (weft_pbtxt){.name = "", .line = 1};
    return read_fields(&p, '\0', out);
}
