/* The parser of the text form: what lex.c, parse.c and parse_data.c share. */
#ifndef WEFT_IR_PARSE_INT_H
#define WEFT_IR_PARSE_INT_H

#include "ir/ir_int.h"

typedef enum weft_token_kind {
    WEFT_TOKEN_END,
    WEFT_TOKEN_WORD,   /* conv, f32, _ */
    WEFT_TOKEN_VALUE,  /* %x: the name without its sigil, as in the next three */
    WEFT_TOKEN_WEIGHT, /* $w */
    WEFT_TOKEN_GRAPH,  /* @main, @"odd name" */
    WEFT_TOKEN_SYMBOL, /* ?b */
    WEFT_TOKEN_INT,
    WEFT_TOKEN_FLOAT,
    WEFT_TOKEN_STRING,
    WEFT_TOKEN_PUNCT /* one character, or ".." */
} weft_token_kind;

typedef struct weft_token {
    weft_token_kind kind;
    const char *at; /* in the text */
    size_t len;
    const char *s; /* name, decoded string, or number; ends with NUL */
    size_t s_len;
    uint32_t line;
} weft_token;

typedef struct weft_parser {
    const char *at; /* behind the current token; the text ends with NUL */
    uint32_t line;
    weft_token tok;
    weft_module *m;
    weft_arena *scratch;
    weft_diag *diag;
    const char *file, *dir;
    uint32_t file_id;      /* of the text, for locations */
    uint64_t weight_bytes; /* still allowed */
    uint32_t nodes;        /* so far */
    weft_names *names;     /* interns names; keys of the maps */
    weft_map *symbols;     /* name to symbol, as dim */
    weft_map *weights;     /* name to weight */
    weft_map *vals;        /* name to value of the current graph */
    weft_graph *g;
} weft_parser;

/* -- Tokens ----------------------------------------------------------------------------------- */

/* Reads the next token into p->tok. */
WEFT_MUST_USE weft_err weft_parser__next(weft_parser *p);
/* "expected WHAT, found `...`" at the current token. */
weft_err weft_parser__expected(const weft_parser *p, const char *what);
weft_err weft_parser__fail(const weft_parser *p, const char *fmt, ...) WEFT_PRINTF(2, 3);
bool weft_parser__is_punct(const weft_parser *p, char c);
bool weft_parser__is_word(const weft_parser *p, const char *word);
/* Takes the punctuation or word, or fails. */
WEFT_MUST_USE weft_err weft_parser__punct(weft_parser *p, char c);
WEFT_MUST_USE weft_err weft_parser__word(weft_parser *p, const char *word);
WEFT_MUST_USE weft_err weft_parser__u64(weft_parser *p, uint64_t limit, const char *what,
                                        uint64_t *out);
WEFT_MUST_USE weft_err weft_parser__i64(weft_parser *p, int64_t *out);
/* A string without NUL inside. */
WEFT_MUST_USE weft_err weft_parser__string(weft_parser *p, const char **out);
/* Is the current token a number, or the words inf and nan? */
bool weft_parser__is_float(const weft_parser *p);
WEFT_MUST_USE weft_err weft_parser__f64(weft_parser *p, double *out);
/* The dims of a list whose '[' is the current token, ']' included. At most `max`. */
WEFT_MUST_USE weft_err weft_parser__dims(weft_parser *p, uint32_t max, const weft_dim **out,
                                         uint32_t *out_n);

/* -- Parts ------------------------------------------------------------------------------------ */

WEFT_MUST_USE weft_err weft_parser__type(weft_parser *p, weft_type *out);
/* `weight` and what follows it. */
WEFT_MUST_USE weft_err weft_parser__weight(weft_parser *p);

#endif
