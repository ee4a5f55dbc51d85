/* Drives the parser of HTTP/1.1 over bytes that arrive in pieces, as a connection does, and writes
 * what it finds as text: a line for each request, its fields and body included.
 *
 *   GET /path 1.1 keep fields=2 body=30:1f2e...
 *   400 the error */
#ifndef WEFT_TESTS_HTTP1_DRIVE_H
#define WEFT_TESTS_HTTP1_DRIVE_H

#include "base/hash.h"
#include "base/str.h"
#include "runtime/server/http1_parse.h"

#include <string.h>

typedef struct http1_drive {
    const char *at; /* of the request under way; the bytes before are used */
    size_t len;     /* that have arrived */
    http1_head head;
    http1_chunks chunks;
    uint64_t left;
    uint64_t sum, n_body; /* hash and length of the body so far */
    bool in_body, ended;
    weft_buf out;
} http1_drive;

enum { HTTP1_DRIVE_BODY_MAX = 1 << 20 };

static inline void http1_drive_fail(http1_drive *d, unsigned status, const char *error)
{
    weft_buf_printf(&d->out, "%s%u %s\n", d->in_body ? " body=bad\n" : "", status, error);
    d->ended = true;
}

static inline void http1_drive_put_body(http1_drive *d, const char *at, size_t len)
{
    for (size_t i = 0; i < len; i++)
        d->sum = weft_hash_mix(d->sum, (uint8_t)at[i]);
    d->n_body += len;
}

static inline void http1_drive_end_request(http1_drive *d)
{
    weft_buf_printf(&d->out, " body=%llu:%llx\n", (unsigned long long)d->n_body,
                    (unsigned long long)d->sum);
    d->ended = !d->head.keep_alive;
    d->head = (http1_head){0};
    d->in_body = false;
}

static inline void http1_drive_begin(http1_drive *d)
{
    const http1_head *h = &d->head;
    char text[HTTP1_HEAD_MAX];
    http1_path path;
    uint64_t fields = 0;
    for (uint32_t i = 0; i < h->n_field; i++) {
        fields = weft_hash64(d->at + h->field[i].name.at, h->field[i].name.len, fields);
        fields = weft_hash64(d->at + h->field[i].value.at, h->field[i].value.len, fields);
    }
    weft_buf_printf(&d->out, "%d %.*s 1.%d%s%s fields=%u:%llx", (int)h->method, (int)h->path.len,
                    d->at + h->path.at, h->minor, h->keep_alive ? " keep" : "",
                    h->expects_continue ? " continue" : "", h->n_field, (unsigned long long)fields);
    const char *why = weft_http1__split_path(d->at + h->path.at, h->path.len, text, &path);
    weft_buf_puts(&d->out, why ? " bad path" : "");
    for (uint32_t i = 0; !why && i < path.n && i < HTTP1_SEGMENTS_MAX; i++)
        weft_buf_printf(&d->out, " [%llx]",
                        (unsigned long long)weft_hash64(path.at[i], path.len[i], 0));
    d->in_body = true;
    d->left = h->length;
    d->sum = d->n_body = 0;
    d->chunks = (http1_chunks){.limit = HTTP1_DRIVE_BODY_MAX};
    d->at += h->size;
    d->len -= h->size;
}

/* Takes one step. false: more bytes are needed, or the connection ended. */
static inline bool http1_drive_step(http1_drive *d)
{
    size_t used = 0, len = 0;
    const char *data = NULL;
    http1_result result;
    if (!d->in_body) {
        result = d->len ? weft_http1__read_head(&d->head, d->at, d->len) : HTTP1_MORE;
        if (result == HTTP1_DONE)
            http1_drive_begin(d);
        else if (result == HTTP1_BAD)
            http1_drive_fail(d, d->head.status, d->head.error);
        return result == HTTP1_DONE;
    }
    if (!d->head.chunked) {
        used = d->len < d->left ? d->len : (size_t)d->left;
        http1_drive_put_body(d, d->at, used);
        d->left -= used;
        result = d->left ? HTTP1_MORE : HTTP1_DONE;
    } else {
        result = weft_http1__read_chunk(&d->chunks, d->at, d->len, &used, &data, &len);
        http1_drive_put_body(d, data, len);
    }
    d->at += used;
    d->len -= used;
    if (result == HTTP1_DONE)
        http1_drive_end_request(d);
    else if (result == HTTP1_BAD)
        http1_drive_fail(d, d->chunks.status, d->chunks.error);
    return !d->ended && (result == HTTP1_DONE || used > 0);
}

/* Bytes up to `end` have arrived. */
static inline void http1_drive_feed(http1_drive *d, const char *end)
{
    d->len = (size_t)(end - d->at);
    while (!d->ended && http1_drive_step(d))
        ;
}

#endif
