/* Where a request comes from and which trace it belongs to, for the access log and for spans.
 *
 * Spans are written as lines of OTLP/JSON (opentelemetry-proto, ExportTraceServiceRequest), which
 * OpenTelemetry's collector reads (otlpjsonfile). */
#ifndef WEFT_RUNTIME_SERVER_SPANS_INT_H
#define WEFT_RUNTIME_SERVER_SPANS_INT_H

#include "base/diag.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEFT_TRACE_ID_BYTES = 16, WEFT_SPAN_ID_BYTES = 8, WEFT_PEER_TEXT_MAX = 64 };

/* W3C Trace Context, level 1. */
typedef struct weft_span_context {
    uint8_t trace[WEFT_TRACE_ID_BYTES];
    uint8_t parent[WEFT_SPAN_ID_BYTES];
    bool sampled;
} weft_span_context;

/* Reads the header traceparent. false: malformed, or all zero. */
bool weft_spans__parse(const char *text, size_t len, weft_span_context *out);

/* Of one request. Zeroed: neither logged nor traced. */
typedef struct weft_origin {
    bool known;
    bool has_parent; /* context.parent is the caller's span */
    bool spans;      /* its spans are written */
    uint32_t n_parent;
    weft_span_context context;
    const char *over; /* "http" or "grpc" */
    char peer[WEFT_PEER_TEXT_MAX];
    char key[WEFT_PEER_TEXT_MAX]; /* name of its key, cut; "": none */
    uint64_t received_ns;         /* when its head had arrived */
} weft_origin;

/* Ids, and the file of spans. */
typedef struct weft_spans weft_spans;
struct weft_request;
struct weft_serve_options;

/* Opens the file of the options, if they name one. */
WEFT_MUST_USE weft_err weft_spans__create(const struct weft_serve_options *options, weft_diag *diag,
                                          weft_spans **out);
/* Writes what is left. */
void weft_spans__destroy(weft_spans *spans);
/* Opens the file again by its name: it may have been renamed. */
void weft_spans__reopen(weft_spans *spans);
/* Whether anybody wants to know of requests: the access log, or the file of spans. */
bool weft_spans__is_on(const weft_spans *spans);

/* Which requests get spans: none, or those of a caller that does so, and this part of the others.
 */
typedef struct weft_spans_rate {
    bool on;
    double rate;
} weft_spans_rate;
/* NULL is allowed: nothing has spans. */
weft_spans_rate weft_spans__rate(const weft_spans *spans);
/* As the options have it. */
weft_spans_rate weft_spans__first_rate(const weft_spans *spans);
void weft_spans__set_rate(weft_spans *spans, weft_spans_rate rate);

/* Only where weft_spans__is_on: begins with the socket of the client; `key` may be "". Then
 * weft_origin__take_parent is called for each traceparent, and weft_origin__decide at last. */
void weft_origin__begin(weft_origin *origin, const char *over, int fd, const char *key);
void weft_origin__take_parent(weft_origin *origin, const char *text, size_t len);
/* Gives a trace to a request that has none, and decides whether its spans are written: as the
 * caller has, else at the rate of the options. */
void weft_origin__decide(weft_origin *origin, weft_spans *spans);

/* Hands the spans of an answered request to the thread that writes them; never waits. */
void weft_spans__write(weft_spans *spans, const struct weft_request *request, const char *model,
                       uint64_t now_ns);
void weft_spans__write_metrics(weft_spans *spans, weft_buf *out);
void weft_spans__put_hex(const uint8_t *bytes, size_t n, char *out); /* 2 n + 1 bytes */

#endif
