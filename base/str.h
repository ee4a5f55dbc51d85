/* Strings: a growing byte buffer and interned names. Single-thread. */
#ifndef WEFT_BASE_STR_H
#define WEFT_BASE_STR_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

/* -- Buffer on the heap ------------------------------------------------------------------- */

/* Zero-initialisable. On exhaustion `failed` is set and further text is dropped. `at` is always
 * NUL-terminated once anything was added. */
typedef struct weft_buf {
    char *at;
    size_t len, cap;
    bool failed;
} weft_buf;

void weft_buf_finish(weft_buf *buf);
/* Moves the text to the arena and finishes the buffer; unwinds, without a leak, if the buffer
 * failed or there is no memory. */
char *weft_buf_keep(weft_buf *buf, weft_arena *arena);
void weft_buf_add(weft_buf *buf, const void *bytes, size_t len);
void weft_buf_puts(weft_buf *buf, const char *s);
void weft_buf_putc(weft_buf *buf, char c);
void weft_buf_printf(weft_buf *buf, const char *fmt, ...) WEFT_PRINTF(2, 3);
void weft_buf_put_u64(weft_buf *buf, uint64_t x);
void weft_buf_put_i64(weft_buf *buf, int64_t x);
/* The shortest decimal text that reads back as the same float ("1.5", "1e-12", "inf", "nan"). */
void weft_buf_put_f32(weft_buf *buf, float x);
void weft_buf_put_f64(weft_buf *buf, double x);
/* "..." with \" \\ \n \t \xHH escapes; bytes that are not printable ASCII are escaped. */
void weft_buf_put_quoted(weft_buf *buf, const char *s, size_t len);
/* As text of XML and HTML, also in quotes: markup is escaped; control characters, which XML
 * forbids, and characters of UTF-8 that are cut become '?'. */
void weft_buf_put_xml(weft_buf *buf, const char *s);

/* -- UTF-8 (RFC 3629) ---------------------------------------------------------------------- */

/* Bytes of the character at `s`, of which there are `len`; 0: cut, or no UTF-8 (overlong forms and
 * surrogates are none). A NUL is a character and ends a sequence: for text that ends in one, `len`
 * may be 4 everywhere in it. */
size_t weft_utf8_size(const char *s, size_t len);
/* Whether all bytes are UTF-8 and none is NUL. */
bool weft_utf8_is_text(const char *s, size_t len);

/* Order of bytes, for qsort() and bsearch() of an array of strings. */
int weft_str_order(const void *a, const void *b);

/* -- Interned names ----------------------------------------------------------------------- */

/* Name 0 is the empty string. */
typedef struct weft_names weft_names;
/* Lives in `arena`. */
weft_names *weft_names_create(weft_arena *arena);
uint32_t weft_names_add(weft_names *names, const char *s, size_t len);
/* 0 when absent. */
uint32_t weft_names_find(const weft_names *names, const char *s, size_t len);
const char *weft_names_text(const weft_names *names, uint32_t id);

#endif
