/* One HTTP exchange: the body as it arrives, decoded where it is compressed, and the answer. */
#include "runtime/server/http_int.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

/* -- Body ----------------------------------------------------------------------------------- */

bool weft_http__add_body(http_exchange *x, const char *data, size_t len)
{
    weft_http *http = x->http;
    if (len > http->max_body || x->len > http->max_body - len) {
        weft_http__fail(x, 400, "the request is larger than %llu bytes",
                        (unsigned long long)http->max_body);
        return false;
    }
    if (x->len + len > x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 4096;
        while (cap < x->len + len)
            cap *= 2;
        if (http->held_bytes + (cap - x->cap) > http->held_max) {
            weft_http__fail(x, 503, "too many bytes are held by other requests");
            return false;
        }
        char *body = realloc(x->body, cap);
        if (!body) {
            weft_http__fail(x, 500, "out of memory");
            return false;
        }
        http->held_bytes += cap - x->cap;
        x->body = body;
        x->cap = cap;
    }
    if (len)
        memcpy(x->body + x->len, data, len);
    x->len += len;
    return true;
}

void weft_http__drop_body(http_exchange *x)
{
    x->http->held_bytes -= x->cap;
    free(x->body);
    x->body = NULL;
    x->len = x->cap = 0;
}

/* Content-Encoding gzip or deflate; the size limit applies to the decompressed body as well. */
static bool inflate_body(http_exchange *x)
{
    http_exchange plain = {.http = x->http};
    z_stream z = {.next_in = (Bytef *)x->body, .avail_in = (uInt)x->len};
    char chunk[65536];
    int state = Z_OK;
    if (x->len > UINT32_MAX || inflateInit2(&z, 15 + 32) != Z_OK) {
        weft_http__fail(x, 500, "out of memory");
        return false;
    }
    bool ok = true;
    while (ok && state == Z_OK) {
        z.next_out = (Bytef *)chunk;
        z.avail_out = sizeof chunk;
        state = inflate(&z, Z_NO_FLUSH);
        if (state == Z_OK || state == Z_STREAM_END)
            ok = weft_http__add_body(&plain, chunk, sizeof chunk - z.avail_out);
    }
    inflateEnd(&z);
    if (ok && state == Z_STREAM_END) {
        weft_http__drop_body(x);
        x->body = plain.body;
        x->len = plain.len;
        x->cap = plain.cap;
        return true;
    }
    weft_http__drop_body(&plain);
    if (ok)
        weft_http__fail(x, 400, "the compressed body is damaged");
    else
        weft_http__fail(x, plain.status, "%s", plain.error);
    return false;
}

bool weft_http__decode_body(http_exchange *x)
{
    const char *encoding =
        MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "Content-Encoding");
    if (!encoding || strcasecmp(encoding, "identity") == 0 || x->len == 0)
        return true;
    if (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "deflate") == 0)
        return inflate_body(x);
    weft_http__fail(x, 501, "content encoding '%.32s' is not supported", encoding);
    x->accept_encoding = true;
    return false;
}

/* -- Answer --------------------------------------------------------------------------------- */

void weft_http__fail(http_exchange *x, unsigned status, const char *fmt, ...)
{
    va_list ap;
    x->status = status;
    va_start(ap, fmt);
    vsnprintf(x->error, sizeof x->error, fmt, ap);
    va_end(ap);
}

void weft_http__reply(http_exchange *x, unsigned status, char *text, const char *type)
{
    if (!text) {
        weft_http__fail(x, 500, "out of memory");
        return;
    }
    x->status = status;
    x->reply = text;
    x->reply_len = strlen(text);
    x->reply_type = type;
}

enum MHD_Result weft_http__send(http_exchange *x)
{
    char json_len[24];
    if (!x->reply) {
        x->reply = weft_oip__error(x->error);
        x->reply_len = x->reply ? strlen(x->reply) : 0;
        x->reply_type = "application/json";
        x->json_len = 0;
    }
    struct MHD_Response *r =
        MHD_create_response_from_buffer(x->reply_len, x->reply, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(x->reply);
        x->reply = NULL;
        return MHD_NO;
    }
    x->reply = NULL;
    MHD_add_response_header(r, "Content-Type", x->reply_type);
    if (x->json_len) {
        snprintf(json_len, sizeof json_len, "%zu", x->json_len);
        MHD_add_response_header(r, "Inference-Header-Content-Length", json_len);
    }
    if (x->accept_encoding)
        MHD_add_response_header(r, "Accept-Encoding", "gzip, deflate");
    if (weft_router__is_draining(x->http->router))
        MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result queued = MHD_queue_response(x->connection, x->status, r);
    MHD_destroy_response(r);
    return queued;
}

void weft_http__free_exchange(http_exchange *x)
{
    weft_oip__destroy_infer(x->infer);
    weft_http__drop_body(x);
    free(x->reply);
    free(x);
}
