/* A connection of the HTTP transport, shared by http_connection.c and the files below it:
 * http_limits.c (lists by state, rates, deadlines) and http_begin.c (from a head to an exchange).
 */
#ifndef WEFT_RUNTIME_SERVER_HTTP_CONN_INT_H
#define WEFT_RUNTIME_SERVER_HTTP_CONN_INT_H

#include "runtime/server/http_int.h"

struct http_connection {
    weft_http *http;
    http_port *port;
    weft_peer *peer; /* with a reference; NULL: out of memory when it was accepted */
    weft_stream stream;
    http_state state;
    http_connection *prev, *next; /* in the list of the state */
    http_connection *next_runnable;
    weft_timer timer;
    uint64_t since_ns; /* in this state */
    uint32_t events;   /* that the loop watches */
    bool advancing;    /* a function of this connection is running */
    bool closing;
    bool reserved; /* accepted above the limit, for health routes */
    bool runnable; /* in the list of the transport */
    bool served;   /* a request was answered */
    bool ends;     /* the answer is the last */
    bool lingers;  /* it is closed only when the client has, or after a while */

    /* Bytes that were received and not used: `in` points into `kept`, or while the connection is
     * advancing into the buffer that all share. */
    const char *in;
    size_t in_len;
    char *kept; /* HTTP1_HEAD_MAX bytes; NULL: no byte is kept */

    http1_head head;
    http1_chunks chunks;
    uint64_t left;    /* bytes of a body with Content-Length that have not arrived */
    http_exchange *x; /* NULL: no request is under way */

    char out[768]; /* head of the answer */
    size_t out_len;
    size_t sent; /* bytes of head and body together */

    /* Progress, in either direction. */
    uint64_t moved;       /* bytes since the last check of the timer */
    uint64_t recent;      /* bytes since recent_ns */
    uint64_t recent_ns;   /* start of a second */
    uint64_t bytes_per_s; /* of the second before */
    uint64_t lingered;    /* bytes dropped */
};

/* -- Lists, rates, deadlines (http_limits.c) ------------------------------------------------- */

/* Adds a connection to the list of its state, or takes it out. */
void weft_http__link(http_connection *c);
void weft_http__unlink(http_connection *c);
/* Moves it to another state, with the deadline of that state. */
void weft_http__enter(http_connection *c, http_state state);
/* Counts bytes received or sent. */
void weft_http__count_bytes(http_connection *c, size_t n);
/* Called when the deadline of the state has passed. Whether the client has made enough progress to
 * go on; then the deadline is moved. */
bool weft_http__is_fast_enough(http_connection *c);
/* The connection of the port that is least missed; NULL: none may be closed. */
http_connection *weft_http__least_missed(const http_port *port);
/* The slowest client that sends or takes a body and holds so many bytes; NULL: none is slow. */
http_connection *weft_http__slowest(const http_port *port, uint64_t bytes);

/* -- From a head to an exchange (http_begin.c) ------------------------------------------------ */

/* For the head that was read: finds the route and checks what can be checked before the body.
 * NULL: out of memory. */
http_exchange *weft_http__begin_exchange(http_connection *c);
/* An exchange that is answered with an error before its head was whole. NULL: out of memory. */
http_exchange *weft_http__begin_error(http_connection *c, unsigned status, const char *text);

#endif
