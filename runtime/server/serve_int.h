/* Inside the server: the event loop, requests, the router and its workers, and what transports
 * (HTTP, gRPC) see of them.
 *
 *   client -> http.c / grpc.c -> oip.c -> router.c -> wire -> worker.c -> session
 *
 * The router is one thread: everything in this header is single-thread but weft_worker_main, which
 * runs in processes of its own. */
#ifndef WEFT_RUNTIME_SERVER_SERVE_INT_H
#define WEFT_RUNTIME_SERVER_SERVE_INT_H

#include "runtime/runtime.h"
#include "runtime/server/server.h"

#include <stdbool.h>
#include <sys/uio.h>

uint64_t weft_clock__now_ns(void);  /* monotonic */
uint64_t weft_clock__wall_ms(void); /* since the epoch */

/* -- Event loop (loop.c) -------------------------------------------------------------------- */

typedef struct weft_loop weft_loop;
/* `events` as of epoll: EPOLLIN, EPOLLOUT, ... */
typedef void weft_loop_fn(void *user, uint32_t events);
/* Called before each wait: returns how long it may take at most, ns; UINT64_MAX: any time. */
typedef uint64_t weft_loop_idle_fn(void *user);

enum { WEFT_LOOP_IDLE_MAX = 8 };

weft_loop *weft_loop__create(void);
void weft_loop__destroy(weft_loop *loop);
/* false: out of memory or refused by the system. One watch a descriptor. */
bool weft_loop__watch(weft_loop *loop, int fd, uint32_t events, weft_loop_fn *fn, void *user);
bool weft_loop__change(weft_loop *loop, int fd, uint32_t events);
/* To be called before the descriptor is closed; events already fetched for it are dropped. */
void weft_loop__unwatch(weft_loop *loop, int fd);
bool weft_loop__idle(weft_loop *loop, weft_loop_idle_fn *fn, void *user);
/* One round: waits and calls. false: the system refused. */
bool weft_loop__turn(weft_loop *loop);

/* -- Requests ------------------------------------------------------------------------------- */

enum { WEFT_REQUEST_MESSAGE_MAX = 256 };

typedef enum weft_answer {
    WEFT_ANSWER_OK,
    WEFT_ANSWER_INVALID,     /* 400, INVALID_ARGUMENT */
    WEFT_ANSWER_NOT_FOUND,   /* 404, NOT_FOUND */
    WEFT_ANSWER_UNSUPPORTED, /* 501, UNIMPLEMENTED */
    WEFT_ANSWER_UNAVAILABLE, /* 503, UNAVAILABLE: queue full, draining, deadline passed */
    WEFT_ANSWER_INTERNAL     /* 500, INTERNAL */
} weft_answer;

/* One inference. Made by a transport, owned by it again when `done` is called. */
typedef struct weft_request {
    uint32_t model;      /* program of the bundle */
    weft_tensor *in;     /* in the program's order; data lives as long as the request */
    uint64_t timeout_us; /* from the client, 0: the server's */
    /* Called exactly once, on the loop's thread, possibly inside weft_router__submit. */
    void (*done)(struct weft_request *request);
    void *user;

    /* The answer, set when done is called. */
    weft_answer answer;
    char message[WEFT_REQUEST_MESSAGE_MAX]; /* of an error; names no path */
    weft_tensor *out;                       /* in the program's order; data in `out_data` */
    uint8_t *out_data;
    uint64_t queue_ns, compute_input_ns, compute_infer_ns, compute_output_ns;

    /* The router's own. */
    struct weft_request *next, *prev; /* in its model's queue */
    uint64_t arrived_ns, deadline_ns;
    int64_t rows;      /* along the batch symbol; 1 when the model cannot be batched */
    uint32_t attempts; /* times a worker died with it */
    bool queued, abandoned;
} weft_request;

/* For a program's ports; NULL when out of memory. */
weft_request *weft_request__create(const weft_bundle *bundle, uint32_t model);
void weft_request__destroy(weft_request *request);

/* -- Statistics ----------------------------------------------------------------------------- */

typedef struct weft_duration {
    uint64_t count, ns;
} weft_duration;

enum { WEFT_BATCH_STATS_MAX = 64 };

typedef struct weft_batch_stat {
    uint64_t batch;
    weft_duration compute_input, compute_infer, compute_output;
} weft_batch_stat;

typedef struct weft_model_stats {
    uint64_t last_inference_ms; /* since the epoch */
    uint64_t inference_count;   /* rows */
    uint64_t execution_count;   /* batches */
    weft_duration success, fail, queue, compute_input, compute_infer, compute_output;
    uint64_t rejected;                           /* of fail: queue full, draining or too late */
    uint64_t pending;                            /* requests accepted and not yet answered */
    weft_batch_stat batch[WEFT_BATCH_STATS_MAX]; /* ascending; sizes behind the last are dropped */
    uint32_t n_batch;
} weft_model_stats;

/* Rows of the largest bucket (batch.c); 0: the model cannot be batched. */
int64_t weft_batch__largest(const weft_bundle_program *program);

/* -- Router (router.c) ---------------------------------------------------------------------- */

typedef struct weft_router weft_router;

WEFT_MUST_USE weft_err weft_router__create(const weft_serve_options *options, weft_loop *loop,
                                           weft_diag *diag, weft_router **out);
void weft_router__destroy(weft_router *router);
const weft_bundle *weft_router__bundle(const weft_router *router);
/* UINT32_MAX: no such model. */
uint32_t weft_router__find(const weft_router *router, const char *name, size_t len);
/* Some worker serves the model. */
bool weft_router__is_ready(const weft_router *router, uint32_t model);
bool weft_router__all_ready(const weft_router *router);
/* A worker could not prepare its models: the text says why. NULL: none. */
const char *weft_router__failure(const weft_router *router);
const weft_model_stats *weft_router__stats(const weft_router *router, uint32_t model);
uint32_t weft_router__worker_count(const weft_router *router);
/* What a worker's slice is and how it is. */
typedef struct weft_worker_status {
    const char *name, *gpu, *mig; /* as of the options; NULL: none */
    bool ready;
    bool lost;         /* the device was, when the worker ended last */
    const char *why;   /* the worker said when it ended last; "": nothing */
    uint64_t restarts; /* of the worker */
    uint64_t losses;   /* of them: because the device was lost */
} weft_worker_status;
weft_worker_status weft_router__worker_status(const weft_router *router, uint32_t worker);
uint64_t weft_router__restarts(const weft_router *router);
uint64_t weft_router__joint_executions(const weft_router *router);

/* Takes the request until `done`. Checks types and dims against the program first. */
void weft_router__submit(weft_router *router, weft_request *request);
/* The client is gone: no one wants the answer. `done` is still called, once. */
void weft_router__abandon(weft_router *router, weft_request *request);
/* No new requests from now on. */
void weft_router__drain(weft_router *router);
bool weft_router__is_draining(const weft_router *router);
/* Nothing is queued or running. */
bool weft_router__is_idle(const weft_router *router);
/* Answers everything that is left with UNAVAILABLE. */
void weft_router__give_up(weft_router *router);

/* -- Transports ----------------------------------------------------------------------------- */

typedef struct weft_http weft_http;
typedef struct weft_grpc weft_grpc;

/* Listens on address:port (0: any free one). */
WEFT_MUST_USE weft_err weft_http__create(const weft_serve_options *options, weft_router *router,
                                         weft_loop *loop, weft_diag *diag, weft_http **out);
int weft_http__port(const weft_http *http);         /* -1: off */
int weft_http__metrics_port(const weft_http *http); /* -1: off */
/* No new connections; those open are answered and closed. */
void weft_http__drain(weft_http *http);
bool weft_http__is_idle(const weft_http *http); /* no request is being answered */
void weft_http__destroy(weft_http *http);

WEFT_MUST_USE weft_err weft_grpc__create(const weft_serve_options *options, weft_router *router,
                                         weft_loop *loop, weft_diag *diag, weft_grpc **out);
int weft_grpc__port(const weft_grpc *grpc);
void weft_grpc__drain(weft_grpc *grpc);
bool weft_grpc__is_idle(const weft_grpc *grpc);
void weft_grpc__destroy(weft_grpc *grpc);

/* -- Wire between router and worker (wire.c) ------------------------------------------------ */

enum { WEFT_WIRE_TENSORS_MAX = 4096 };

typedef enum weft_wire_kind {
    WEFT_WIRE_READY = 1, /* worker: sessions are open and warm */
    WEFT_WIRE_FAILED,    /* worker: cannot serve; text is the payload */
    WEFT_WIRE_RUN,       /* router: inputs of one batch */
    WEFT_WIRE_DONE,      /* worker: outputs, or an error with its text */
    WEFT_WIRE_LOST,      /* worker: the device is gone, and so am I; text is the payload */
    WEFT_WIRE_PREPARE    /* router: dims alone; a batch of them may come. Answer: DONE */
} weft_wire_kind;

/* Fixed size, native byte order (both ends are this program), followed by n_tensor tensor heads
 * and the bytes of the tensors, one after the other. */
typedef struct weft_wire_head {
    uint32_t magic, kind;
    uint64_t id;
    uint32_t model, n_tensor;
    uint32_t err; /* weft_err */
    uint32_t pad;
    uint64_t payload_bytes;
    uint64_t input_ns, infer_ns, output_ns;
} weft_wire_head;

typedef struct weft_wire_tensor {
    uint32_t dtype;
    int32_t rank;
    int64_t dim[WEFT_RANK_MAX];
} weft_wire_tensor;

#define WEFT_WIRE_MAGIC 0x57454654u

bool weft_wire__head_valid(const weft_wire_head *head);
/* Checks each tensor, and that their bytes add up to `payload_bytes`. */
bool weft_wire__tensors_valid(const weft_wire_tensor *tensor, uint32_t n, uint64_t payload_bytes);

/* A message to a worker: head, tensor heads, then the payload in chunks that are not copied. */
typedef struct weft_wire_out {
    weft_wire_head head;      /* n_tensor and payload_bytes are kept up to date */
    weft_wire_tensor *tensor; /* head.n_tensor */
    struct iovec *iov;        /* the first two are for the heads */
    uint32_t n_iov, at_iov;   /* those before at_iov are sent */
} weft_wire_out;

/* For n_tensor tensors and at most n_chunk chunks of payload. false: out of memory. */
bool weft_wire__begin(weft_wire_out *out, weft_wire_kind kind, uint32_t n_tensor, size_t n_chunk);
void weft_wire__add_chunk(weft_wire_out *out, const void *at, size_t len);
void weft_wire__free(weft_wire_out *out);

#endif
