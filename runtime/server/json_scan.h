/* Reading JSON (RFC 8259) in place, without a tree: a cursor over a text that is whole in memory.
 * Strict: UTF-8 is checked, no number is NaN or infinite, no string holds NUL, nesting is bounded.
 * Nothing is allocated. */
#ifndef WEFT_RUNTIME_SERVER_JSON_SCAN_H
#define WEFT_RUNTIME_SERVER_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest nesting, and longest number in characters. */
enum { WEFT_JSON_DEPTH_MAX = 100, WEFT_JSON_NUMBER_MAX = 800 };

typedef struct weft_json {
    const char *at, *end;
    const char *error; /* what is wrong at `at`; NULL: nothing so far */
    int depth;         /* brackets that are open */
} weft_json;

/* Kind of the next value, without reading it: '{', '[', '"', 't', 'f', 'n', '0' for a number, or 0
 * at the end and for what begins no value. Skips white space. */
char weft_json__peek(weft_json *json);
/* Reads any value. */
bool weft_json__skip(weft_json *json);
/* Reads a string; `out` gets its first size - 1 bytes decoded and a NUL, *out_len its whole length.
 */
bool weft_json__string(weft_json *json, char *out, size_t size, size_t *out_len);
/* Reads the opening bracket '{' or '['. */
bool weft_json__enter(weft_json *json, char bracket);
/* After weft_json__enter, and after each element: whether another follows; reads the comma. At the
 * end, or on an error: false; the closing bracket is read. */
bool weft_json__next(weft_json *json, char closing, bool *first);
/* The next member's key as weft_json__string, and its colon. */
bool weft_json__key(weft_json *json, char *out, size_t size, size_t *out_len);

/* A number. */
typedef struct weft_json_number {
    const char *text; /* in the JSON, `len` characters */
    size_t len;
    uint64_t digits;           /* its significant digits, up to 19, as an integer */
    int32_t exponent;          /* of ten, for `digits` */
    bool negative, is_integer; /* is_integer: neither '.' nor exponent */
    bool whole;                /* `digits` has all significant digits */
} weft_json_number;

bool weft_json__number(weft_json *json, weft_json_number *out);
/* Correctly rounded (to nearest, ties to even). false: out of range. */
bool weft_json__as_f64(const weft_json_number *number, double *out);
bool weft_json__as_f32(const weft_json_number *number, float *out);
/* false: not an integer, or out of range. */
bool weft_json__as_i64(const weft_json_number *number, int64_t *out);
bool weft_json__as_u64(const weft_json_number *number, uint64_t *out);

#endif
