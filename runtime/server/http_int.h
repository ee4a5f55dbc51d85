/* Shared by the files of the HTTP transport, from the bottom up: http_exchange.c (body and answer
 * of one exchange), http_routes.c (what it asks for), http.c (daemons and event loop).
 *
 * An exchange lives from the first header of a request to the last byte of its answer. */
#ifndef WEFT_RUNTIME_SERVER_HTTP_INT_H
#define WEFT_RUNTIME_SERVER_HTTP_INT_H

#include "runtime/server/oip_int.h"

#include <microhttpd.h>
#include <stdio.h>

struct weft_http {
    const weft_serve_options *options;
    weft_router *router;
    weft_loop *loop;
    struct MHD_Daemon *api, *metrics;
    weft_metrics_meters *meters; /* of the GPUs that are served on */
    uint64_t max_body;
    uint64_t held_bytes, held_max; /* of bodies, over all exchanges */
    uint32_t n_reading;            /* exchanges whose body is not whole yet */
    uint32_t n_active;             /* exchanges whose body is whole, until the answer is sent */
    uint64_t read_ns;              /* when the last bytes of a body arrived */
    uint64_t polled_ns;            /* when MHD_run was last called without an event */
    bool resumed;                  /* a connection was resumed; MHD_run has to be called */
};

typedef struct http_exchange {
    weft_http *http;
    struct MHD_Connection *connection; /* NULL: the client is gone */
    char *body;
    size_t len, cap;
    bool routed;
    bool waiting; /* the request belongs to the router */
    weft_oip_infer *infer;
    unsigned status; /* 0: not decided */
    char *reply;     /* body of the answer, owned; NULL: `error` is the answer */
    size_t reply_len, json_len;
    const char *reply_type;
    bool accept_encoding;
    char error[WEFT_REQUEST_MESSAGE_MAX];
} http_exchange;

/* -- One exchange (http_exchange.c) --------------------------------------------------------- */

/* Appends to the body. false: too large, too many bytes are held, or out of memory; the exchange
 * has its error then. */
bool weft_http__add_body(http_exchange *x, const char *data, size_t len);
void weft_http__drop_body(http_exchange *x);
/* Decompresses the whole body where Content-Encoding asks for it; false: the exchange has its
 * error. */
bool weft_http__decode_body(http_exchange *x);
void weft_http__fail(http_exchange *x, unsigned status, const char *fmt, ...) WEFT_PRINTF(3, 4);
/* Takes ownership of `text`; NULL is answered as "out of memory". */
void weft_http__reply(http_exchange *x, unsigned status, char *text, const char *type);
/* Queues the answer at the connection. */
enum MHD_Result weft_http__send(http_exchange *x);
void weft_http__free_exchange(http_exchange *x);

/* -- Routes (http_routes.c) ----------------------------------------------------------------- */

/* Finds the handler of method and path, which answers the exchange or hands it to the router
 * (`waiting` is set then). */
void weft_http__route(http_exchange *x, const char *method, const char *url);

#endif
