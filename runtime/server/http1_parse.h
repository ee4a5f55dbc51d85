/* Syntax of HTTP/1.1 requests (RFC 9112, RFC 9110) without I/O: heads, chunked bodies, paths.
 *
 * Everything that proxies are known to read in different ways is refused, so that no proxy in front
 * of the server can see other requests than the server does. The result of each reader depends on
 * the bytes only, not on how they were split on the way. Not thread-safe, no global state. */
#ifndef WEFT_RUNTIME_SERVER_HTTP1_PARSE_H
#define WEFT_RUNTIME_SERVER_HTTP1_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP1_HEAD_MAX = 16384,      /* bytes of a head with its empty line, above: 431 */
    HTTP1_LINE_MAX = 8192,       /* bytes of a request line, above: 414 */
    HTTP1_FIELDS_MAX = 64,       /* header fields, above: 431 */
    HTTP1_EXTENSION_MAX = 256,   /* bytes of the extensions of one chunk */
    HTTP1_TRAILER_MAX = 4096,    /* bytes of all trailers */
    HTTP1_OVERHEAD_FREE = 16384, /* bytes of chunk framing that need no data, see http1_chunks */
    HTTP1_SEGMENTS_MAX = 8
};

/* Methods that the server knows; all others are answered 501. */
typedef enum http1_method {
    HTTP1_GET,
    HTTP1_HEAD,
    HTTP1_POST,
    HTTP1_PUT,
    HTTP1_DELETE,
    HTTP1_PATCH,
    HTTP1_OPTIONS,
    HTTP1_TRACE
} http1_method;

typedef enum http1_result { HTTP1_MORE, HTTP1_DONE, HTTP1_BAD } http1_result;

/* -- Heads ---------------------------------------------------------------------------------- */

/* Bytes of the head. */
typedef struct http1_span {
    uint32_t at, len;
} http1_span;

/* Zero-initialised before the first call. The fields of the first group are valid after DONE. */
typedef struct http1_head {
    http1_method method;
    http1_span path; /* decoded by weft_http1__split_path; "": the root */
    bool asterisk;   /* the target is "*" (OPTIONS) */
    uint8_t minor;   /* of the version: 0 or 1 */
    bool keep_alive;
    bool expects_continue;
    bool chunked;    /* the body is chunked; else it has `length` bytes */
    uint64_t length; /* at most INT64_MAX */
    uint32_t size;   /* of the head */
    struct {
        http1_span name, value;
    } field[HTTP1_FIELDS_MAX];
    uint32_t n_field;

    /* After BAD: the answer. The connection cannot be used any more. */
    unsigned status;
    const char *error;

    /* For the reader only. */
    uint32_t scan, line; /* next byte; first byte of its line */
    bool after_cr, begun, skipped_line;
} http1_head;

/* Reads a head from the `len` bytes that have arrived since the last request. After MORE it is
 * called again with the same bytes (which may have moved) and further ones behind them. */
http1_result weft_http1__read_head(http1_head *head, const char *at, size_t len);

/* Value of a field, without blanks around it; `name` in lower case. false: absent. The first one
 * where a field stands several times. */
bool weft_http1__field(const http1_head *head, const char *at, const char *name, http1_span *out);

/* Whether field i has this name, given in lower case. */
bool weft_http1__is_field(const http1_head *head, const char *at, uint32_t i, const char *name);

bool weft_http1__is_token(char c); /* of a name (RFC 9110, 5.6.2) */
/* Neither the end of a line nor a control character other than TAB. */
bool weft_http1__is_text(char c);

/* -- Chunked bodies ------------------------------------------------------------------------- */

/* Zero-initialised, with `limit` set. Framing may take HTTP1_OVERHEAD_FREE bytes and then as many
 * as the data: a body of one-byte chunks would cost six times what it brings. */
typedef struct http1_chunks {
    uint64_t limit;    /* bytes of data of the body */
    uint64_t n_data;   /* announced by the chunks so far */
    uint64_t overhead; /* bytes of framing so far */
    uint64_t left;     /* of the chunk */
    uint32_t state, n_digit, n_extension, n_trailer;
    unsigned status; /* after BAD */
    const char *error;
} http1_chunks;

/* Reads up to the end of the next piece of data. *out_used: bytes read; *out_data, *out_len: the
 * piece, empty if there is none. MORE with all bytes used: more are needed. */
http1_result weft_http1__read_chunk(http1_chunks *chunks, const char *at, size_t len,
                                    size_t *out_used, const char **out_data, size_t *out_len);

/* -- Paths ---------------------------------------------------------------------------------- */

typedef struct http1_path {
    const char *at[HTTP1_SEGMENTS_MAX];
    size_t len[HTTP1_SEGMENTS_MAX];
    uint32_t n; /* HTTP1_SEGMENTS_MAX + 1: more */
} http1_path;

/* Splits a raw path at its slashes, then decodes each segment once, into `text` (of `len` bytes).
 * Refused, because a proxy may see another path: encoded slashes, backslashes, control characters,
 * dot segments, empty segments except one at the end. Returns NULL, or why it is refused. */
const char *weft_http1__split_path(const char *raw, size_t len, char *text, http1_path *out);

#endif
