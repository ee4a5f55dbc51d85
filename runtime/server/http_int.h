/* Shared by the files of the HTTP transport, from the bottom up: http1_parse.c and http1_body.c
 * (syntax), http_exchange.c (body and answer of one
 * exchange), http_routes.c (what it asks for), http_connection.c (states of a connection), http.c
 * (ports, limits, drain).
 *
 * An exchange lives from the head of a request to the last byte of its answer; longer than its
 * connection if the client leaves while the router has the request. */
#ifndef WEFT_RUNTIME_SERVER_HTTP_INT_H
#define WEFT_RUNTIME_SERVER_HTTP_INT_H

#include "runtime/server/access_int.h"
#include "runtime/server/deployment_int.h"
#include "runtime/server/http1_parse.h"
#include "runtime/server/oip_int.h"

#include <stdio.h>

typedef struct http_connection http_connection;
typedef struct http_exchange http_exchange;

/* -- Ports and connections ------------------------------------------------------------------ */

/* States of a connection; each has a list, in the order in which it was entered. */
typedef enum http_state {
    HTTP_IDLE,     /* between requests */
    HTTP_HEAD,     /* a part of a head has arrived */
    HTTP_BODY,     /* the head is whole, the body is not */
    HTTP_RUNNING,  /* the router has the request */
    HTTP_SENDING,  /* the answer is being sent */
    HTTP_LINGERING /* closed for sending; what the client still sends is dropped */
} http_state;

enum { HTTP_STATES = HTTP_LINGERING + 1 };

/* Ports are bits, so that a route can be of several. RESERVED: see weft_http__is_reserved. */
enum { HTTP_API = 1, HTTP_METRICS = 2, HTTP_RESERVED = 4 };

typedef struct http_port {
    weft_http *http;
    unsigned kind; /* HTTP_API or HTTP_METRICS */
    weft_listener listener;
    weft_tls *tls;     /* NULL: none */
    uint32_t n, limit; /* connections; a few more are accepted for health routes */
    struct {
        http_connection *first, *last;
        uint32_t n;
    } list[HTTP_STATES];
} http_port;

typedef struct http_counts {
#define COUNT(field, name, help) uint64_t field;
#include "runtime/server/http_counts.def"
#undef COUNT
} http_counts;

/* Scrapers may take so much of the loop's time at once. */
enum { HTTP_SCRAPES_BURST_NS = 50000000 };

/* What scrapes of metrics cost. */
typedef struct http_scrapes {
    uint64_t at_ns, spent_ns; /* spent_ns: as a bucket that leaks */
    char *last;               /* text of the last one, when it was one too many; NULL: none */
} http_scrapes;

/* The page for people (http_page.c), with counts of earlier views. */
typedef struct weft_http_page weft_http_page;
weft_http_page *weft_http__open_page(void); /* NULL: out of memory */
void weft_http__close_page(weft_http_page *page);
/* Appends the next part of the page, and moves the place. false: it is whole, or there is no memory
 * (out->failed). */
bool weft_http__write_page(weft_http_page *page, const weft_router *router, weft_list_place *at,
                           weft_buf *out);

struct weft_http {
    const weft_serve_options *options;
    weft_front front;
    weft_router *router;
    weft_loop *loop;
    http_port api, metrics;
    weft_peers peers;
    weft_offload *offload;       /* for JSON and compressed bodies that are not small; NULL: none */
    weft_offload *heavy;         /* for those that take long, so that others do not wait for them */
    weft_metrics_meters *meters; /* of the GPUs that are served on */
    http_scrapes scrapes;
    weft_http_page *page;
    uint64_t max_body;
    uint64_t held_bytes, held_max; /* of bodies, tensors and answers, over all exchanges */
    uint64_t read_ns;              /* when the last bytes of a body arrived */
    /* Closes slow clients until `bytes` more can be held, as far as possible. May be NULL. */
    void (*relieve)(weft_http *http, uint64_t bytes);
    http_connection *runnable, *last_runnable; /* have more to do than one turn allows */
    uint32_t n_runnable;
    char scratch[HTTP1_HEAD_MAX]; /* bytes just received */
    char path[HTTP1_HEAD_MAX];    /* decoded segments, while a head is routed */
    char date[64];                /* header field, of second date_s */
    int64_t date_s;
    http_counts counts;
};

/* -- One exchange (http_exchange.c) --------------------------------------------------------- */

typedef struct http_route http_route;

typedef enum http_list_kind {
    HTTP_LIST_STATS,
    HTTP_LIST_INDEX,
    HTTP_LIST_METRICS,
    HTTP_LIST_PAGE
} http_list_kind;

/* An answer that is written in parts (http_lists.c). */
typedef struct http_list {
    weft_listing listing;
    http_list_kind kind;
    bool only_ready; /* of the index */
    weft_list_place at;
    weft_buf text;
} http_list;

struct http_exchange {
    weft_http *http;
    weft_peer *peer; /* with a reference; NULL: none */
    /* Called when the router has answered. NULL: the client is gone. */
    void (*resume)(http_exchange *x);
    void *connection;
    http1_method method;
    weft_presented presented;
    weft_origin origin;
    const http_route *route; /* NULL: none was found, the exchange has its error */
    char *name;              /* what "?" of the route names; owned; NULL: nothing */
    weft_operation_wait operation;
    http_list list;
    uint32_t model;     /* of the route, held; UINT32_MAX: none */
    bool any_version;   /* the path names none */
    char *adapter;      /* that the path names; NULL: none */
    bool in_use;        /* weft_router__begin_use */
    uint64_t announced; /* bytes of the body; 0: unknown */
    char *body;
    size_t len, cap;
    bool compressed;             /* gzip or deflate */
    char *plain;                 /* the body decompressed so far */
    size_t plain_len, plain_max; /* plain_max counts as held while it is decompressed */
    bool has_json_len;
    uint64_t given_json_len; /* Inference-Header-Content-Length */
    bool waiting;            /* the request belongs to the router, or to `job` */
    bool offloaded;          /* to `job` */
    weft_job job;
    weft_answer answer;   /* of `job`, which read the request */
    weft_model_ref reads; /* the model of `infer` */
    weft_oip_infer *infer;
    unsigned status; /* 0: not decided */
    char *reply;     /* body of the answer, owned; NULL: `error` is the answer */
    size_t reply_len, json_len;
    size_t charged; /* bytes of the answer that count as held */
    size_t decoded; /* bytes of tensors, read or to be written, that count as held */
    const char *reply_type;
    const char *allow; /* methods of the path, for 405 */
    const char *field; /* a further header field, with its end of line; NULL: none */
    char retry[40];    /* Retry-After, for `field` */
    bool accept_encoding;
    char error[WEFT_REQUEST_MESSAGE_MAX];
};

/* Appends to the body. false: too large, too many bytes are held, or out of memory; the exchange
 * has its error then. */
bool weft_http__add_body(http_exchange *x, const char *data, size_t len);
/* Makes room behind the body, at least one byte and at most `len`; *out_room tells how much. Bytes
 * written there are added to x->len by the caller. Fails as weft_http__add_body. */
bool weft_http__body_room(http_exchange *x, uint64_t len, size_t *out_room);
void weft_http__drop_body(http_exchange *x);
/* The request was read: counts its tensors, and frees the body if none of them is in it. false: too
 * many bytes are held; the exchange has its error. */
bool weft_http__hold_inputs(http_exchange *x);
/* The exchange has its error: frees the request that was read, if any, and the body. */
void weft_http__drop_infer(http_exchange *x);
/* The router has answered: counts the outputs instead, and frees inputs and body. false: as above.
 */
bool weft_http__hold_outputs(http_exchange *x);
/* Decompression of a whole body. weft_http__begin_decode sets aside the bytes that it may take, at
 * most `limit`; false: the exchange has its error. weft_http__decode may run on any thread; false:
 * it has more than that limit, and is to be begun again. weft_http__end_decode replaces the body;
 * false: the exchange has its error. */
bool weft_http__begin_decode(http_exchange *x, size_t limit);
bool weft_http__decode(http_exchange *x);
bool weft_http__end_decode(http_exchange *x);
/* The status of an answer of the router. */
unsigned weft_http__status_of(weft_answer answer);
void weft_http__fail(http_exchange *x, unsigned status, const char *fmt, ...) WEFT_PRINTF(3, 4);
void weft_http__fail_size(http_exchange *x);
/* Takes ownership of `text`; NULL is answered as "out of memory". */
void weft_http__reply(http_exchange *x, unsigned status, char *text, const char *type);
/* Completes the answer and writes its head into `out`; returns its length. `option`: of the header
 * Connection, "" for none. */
size_t weft_http__write_head(http_exchange *x, const char *option, char *out, size_t size);
void weft_http__free_exchange(http_exchange *x);
/* The model is not needed for a request any more. */
void weft_http__end_use(http_exchange *x);

/* Bodies of routes other than inference are read on the loop's thread: none has more; that of a
 * load, which may have a configuration, HTTP_LOAD_BYTES. */
enum { HTTP_PARAMETERS_BYTES = 4 << 10, HTTP_LOAD_BYTES = 64 << 10 };

/* -- Routes (http_routes.c) ----------------------------------------------------------------- */

/* Finds the route of the path, and its model, if the request may use them; the exchange has its
 * error otherwise. `x->method` and `x->presented` are set. */
void weft_http__find_route(http_exchange *x, unsigned port, const char *path, size_t len);
/* Whether connections above the limit may ask for it: health. */
bool weft_http__is_reserved(const http_route *route);
/* Answers the exchange by its route, or hands it to the router (`waiting` is set then). */
void weft_http__run(http_exchange *x);
/* A line of the access log for an exchange that is answered; inferences have theirs by the router.
 */
void weft_http__log(const http_exchange *x);
/* -- Long lists (http_lists.c) -- */
/* Answers with a list, now or later: the exchange waits then. */
void weft_http__begin_list(http_exchange *x, http_list_kind kind, bool only_ready);
/* -- The model repository (http_repository.c) -- */
/* Loads or unloads model x->name; the exchange waits for the end. */
void weft_http__change_model(http_exchange *x, bool loads);
/* Lists settings of log or traces, after a change of the body where `changes` (http_settings.c). */
void weft_http__settings(http_exchange *x, bool of_log, bool changes);
void weft_http__list_models(http_exchange *x);
/* Regions of shared memory (http_regions.c): x->name, or all where the path names none. */
void weft_http__list_regions(http_exchange *x);
void weft_http__register_region(http_exchange *x);
void weft_http__unregister_regions(http_exchange *x);

/* The client of a waiting exchange is gone: it is freed, now or later. */
void weft_http__abandon(http_exchange *x);

/* -- Connections (http_connection.c) -------------------------------------------------------- */

/* Takes over a new socket. */
void weft_http__add_connection(http_port *port, int fd, weft_peer *peer);
/* Closes the connection that is least missed. false: there is none that may be closed. */
bool weft_http__evict(http_port *port);
/* See weft_http.relieve. */
void weft_http__evict_slow(weft_http *http, uint64_t bytes);
/* Lets connections go on that had more to do. */
void weft_http__run_runnable(weft_http *http);
void weft_http__close_all(http_port *port);

/* -- Metrics (http_metrics.c) --------------------------------------------------------------- */

void weft_http__write_metrics(const weft_http *http, weft_buf *out);

#endif
