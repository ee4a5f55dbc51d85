/* From the head of a request to an exchange: what its fields say, its route, and every check that
 * needs no body. */
#include "runtime/server/http_conn_int.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static http_exchange *create(http_connection *c)
{
    http_exchange *x = calloc(1, sizeof *x);
    if (!x)
        return NULL;
    *x = (http_exchange){.http = c->http, .peer = c->peer, .connection = c, .model = UINT32_MAX};
    if (x->peer)
        x->peer->n_ref++;
    return x;
}

/* Content-Encoding: one coding. */
static void take_encoding(http_exchange *x, const char *value, size_t len)
{
    static const char *const packed[] = {"gzip", "deflate"};
    if (len == 8 && strncasecmp(value, "identity", 8) == 0)
        return;
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
        x->compressed =
            x->compressed || (len == strlen(packed[i]) && strncasecmp(value, packed[i], len) == 0);
    if (x->compressed)
        return;
    weft_http__fail(x, 501, "content encoding '%.*s' is not supported", len < 32 ? (int)len : 32,
                    value);
    x->accept_encoding = true;
}

/* Inference-Header-Content-Length: digits. */
static void take_json_len(http_exchange *x, const char *value, size_t len)
{
    uint64_t n = 0;
    bool ok = len > 0 && len < 19;
    for (size_t i = 0; ok && i < len; i++) {
        ok = value[i] >= '0' && value[i] <= '9';
        n = n * 10 + (uint64_t)(value[i] - '0');
    }
    x->has_json_len = true;
    x->given_json_len = n;
    if (!ok)
        weft_http__fail(x, 400, "wrong Inference-Header-Content-Length");
}

/* What the head shows of the client. */
static void take_presented(http_connection *c, weft_presented *p)
{
    const weft_access *access = c->http->front.access;
    const http1_head *h = &c->head;
    if (!access || c->port->kind != HTTP_API)
        return;
    p->certificate = weft_stream__client(&c->stream);
    for (uint32_t i = 0; i < h->n_field; i++)
        weft_access__take_header(access, WEFT_OVER_HTTP, p, c->in + h->field[i].name.at,
                                 h->field[i].name.len, c->in + h->field[i].value.at,
                                 h->field[i].value.len);
}

/* Where the request comes from, if anybody wants to know. */
static void take_origin(http_connection *c, http_exchange *x)
{
    const weft_front *front = &c->http->front;
    const http1_head *h = &c->head;
    if (c->port->kind != HTTP_API || !weft_spans__is_on(front->spans))
        return;
    weft_origin__begin(&x->origin, "http", c->stream.fd,
                       weft_access__key_name(front->access, &x->presented));
    for (uint32_t i = 0; i < h->n_field; i++)
        if (weft_http1__is_field(h, c->in, i, "traceparent"))
            weft_origin__take_parent(&x->origin, c->in + h->field[i].value.at,
                                     h->field[i].value.len);
    weft_origin__decide(&x->origin, front->spans);
}

http_exchange *weft_http__begin_exchange(http_connection *c)
{
    const http1_head *h = &c->head;
    const char *in = c->in;
    http1_span v;
    http_exchange *x = create(c);
    if (!x)
        return NULL;
    x->method = h->method;
    x->announced = h->chunked ? 0 : h->length;
    if (h->asterisk) {
        x->allow = "GET, HEAD, POST, OPTIONS";
        weft_http__reply(x, 200, strdup("{}"), "application/json");
        return x;
    }
    take_presented(c, &x->presented);
    take_origin(c, x);
    weft_http__find_route(x, c->port->kind, in + h->path.at, h->path.len);
    if (c->reserved && c->port->n > c->port->limit && !weft_http__is_reserved(x->route)) {
        c->http->counts.refused++;
        weft_http__fail(x, 503, "too many connections");
    } else if (x->announced > c->http->max_body)
        weft_http__fail_size(x);
    if (x->status)
        return x;
    if (weft_http1__field(h, in, "content-encoding", &v))
        take_encoding(x, in + v.at, v.len);
    if (!x->status && weft_http1__field(h, in, "inference-header-content-length", &v))
        take_json_len(x, in + v.at, v.len);
    return x;
}

http_exchange *weft_http__begin_error(http_connection *c, unsigned status, const char *text)
{
    http_exchange *x = create(c);
    if (x)
        weft_http__fail(x, status, "%s", text);
    return x;
}
