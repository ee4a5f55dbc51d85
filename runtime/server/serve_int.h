/* Shared by the server's files: event loop, requests, router, transports (HTTP, gRPC), and the
 * messages between router and workers. README.md has the whole picture.
 *
 *   client -> http.c or grpc.c -> oip_read.c or grpc_infer.c -> router.c -> wire -> worker.c
 *
 * The router process has one thread: nothing in this header is thread-safe. */
#ifndef WEFT_RUNTIME_SERVER_SERVE_INT_H
#define WEFT_RUNTIME_SERVER_SERVE_INT_H

#include "base/str.h"
#include "runtime/runtime.h"
#include "runtime/server/server.h"
#include "runtime/server/spans_int.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

uint64_t weft_clock__now_ns(void);  /* monotonic, since an unspecified start */
uint64_t weft_clock__wall_ms(void); /* since the Unix epoch */
void weft_clock__pause(void);       /* tells the CPU that a loop waits */

/* -- Log (log.c) ---------------------------------------------------------------------------- */

typedef struct weft_log_field {
    const char *key;
    const char *text; /* NULL: the value is `number` */
    double number;
} weft_log_field;

/* Events of higher levels are not written; default: text, WARN. */
void weft_log__configure(bool json, weft_log_level level);
void weft_log__set_level(weft_log_level level);
bool weft_log__is_on(weft_log_level level);
/* A text in quotes, cut, in ASCII: JSON's escapes. */
void weft_log__put_text(weft_buf *out, const char *text);
/* One line on standard error; never waits. */
void weft_log__write(weft_log_level level, const char *event, const weft_log_field *field,
                     size_t n);
#define WEFT_LOG(level, event, ...)                                          \
    weft_log__write((level), (event), (const weft_log_field[]){__VA_ARGS__}, \
                    sizeof((const weft_log_field[]){__VA_ARGS__}) / sizeof(weft_log_field))

/* -- Event loop (loop.c) -------------------------------------------------------------------- */

typedef struct weft_loop weft_loop;
/* `events`: EPOLLIN, EPOLLOUT, ... of epoll. */
typedef void weft_loop_fn(void *user, uint32_t events);
/* Called before each wait; returns the longest time to wait, ns (UINT64_MAX: no limit). */
typedef uint64_t weft_loop_idle_fn(void *user);

enum { WEFT_LOOP_IDLE_MAX = 8 };

weft_loop *weft_loop__create(void);
void weft_loop__destroy(weft_loop *loop);
/* Calls `fn` for these events of a descriptor, which must not be watched yet. false: out of memory,
 * or refused by the kernel. */
bool weft_loop__watch(weft_loop *loop, int fd, uint32_t events, weft_loop_fn *fn, void *user);
bool weft_loop__change(weft_loop *loop, int fd, uint32_t events);
/* Muted, a descriptor has only events that tell of the end. */
void weft_loop__mute(weft_loop *loop, int fd, bool muted);
/* Calls the function of a descriptor as for these events. */
void weft_loop__deliver(weft_loop *loop, int fd, uint32_t events);
/* Must be called before the descriptor is closed. Events already fetched for it are dropped. */
void weft_loop__unwatch(weft_loop *loop, int fd);
bool weft_loop__idle(weft_loop *loop, weft_loop_idle_fn *fn, void *user);

/* What comes through shared memory, without a descriptor. */
typedef struct weft_loop_source {
    /* Handles what has come. false: nothing had. */
    bool (*take)(void *user);
    /* Before the loop sleeps: what comes from now on must wake it by a descriptor. false: something
     * has come. */
    bool (*sleep)(void *user);
    /* The loop is awake. */
    void (*wake)(void *user);
    /* How long to look for it before the loop sleeps, ns; `missed`: it did not come. */
    uint64_t (*look)(void *user);
    void (*missed)(void *user);
    void *user;
} weft_loop_source;

/* The loop has one source. */
void weft_loop__source(weft_loop *loop, const weft_loop_source *source);
/* One round: calls the timers that are due and the idle functions, waits, calls the functions of
 * the events. false: epoll_wait failed, see errno. */
bool weft_loop__turn(weft_loop *loop);
/* Whether the events of this round have taken so long already (1 ms) that each further one is to do
 * its smallest part only: shares of single connections would add up. */
bool weft_loop__is_late(const weft_loop *loop);

/* A timer, embedded in what it is for. `fn` and `user` are set by the owner. */
typedef struct weft_timer {
    void (*fn)(void *user);
    void *user;
    uint64_t at_ns;   /* time to call `fn` */
    uint64_t heap_ns; /* its key in the heap, at most at_ns */
    uint32_t place;   /* 0: not set */
} weft_timer;

/* Sets or moves the timer to a time of weft_clock__now_ns. false: out of memory, only if it was not
 * set. A timer that was called is not set any more. */
bool weft_timer__set(weft_loop *loop, weft_timer *timer, uint64_t at_ns);
void weft_timer__cancel(weft_loop *loop, weft_timer *timer);

/* -- Work beside the loop (offload.c) ------------------------------------------------------- */

typedef struct weft_offload weft_offload;

typedef struct weft_job {
    void (*run)(struct weft_job *job);  /* on the other thread */
    void (*done)(struct weft_job *job); /* on the loop's thread, afterwards; NULL: not called */
    struct weft_job *next;
} weft_job;

/* `nice`: by how much its thread gives way to others (nice(2)). NULL: out of memory or descriptors.
 */
weft_offload *weft_offload__create(weft_loop *loop, int nice);
/* `done` is called exactly once; `run` before, unless weft_offload__destroy comes first. */
void weft_offload__submit(weft_offload *offload, weft_job *job);
/* Frees heap memory of that many bytes, on the other thread where that takes long. `offload` may be
 * NULL. */
void weft_offload__free(weft_offload *offload, void *at, size_t bytes);
void weft_offload__destroy(weft_offload *offload);

/* -- Listening sockets (listen.c) ----------------------------------------------------------- */

enum { WEFT_LISTEN_MAX = 8 };

/* Sockets for one port on all addresses of a name, or one UNIX socket. */
typedef struct weft_listener {
    weft_loop *loop;
    weft_loop_fn *fn; /* called while connections wait */
    void *user;
    int fd[WEFT_LISTEN_MAX];
    uint32_t n;
    int port;         /* -1: none, or a UNIX socket */
    const char *path; /* of a UNIX socket; NULL: none */
    dev_t dev;        /* of that socket */
    ino_t ino;
    weft_timer pause;
} weft_listener;

/* Listens and calls `fn` from then on; port `where` is not off. `address`: IPv4, IPv6 or a name;
 * NULL: 127.0.0.1. A zeroed listener is closed. On an error the listener is to be closed. */
WEFT_MUST_USE weft_err weft_listener__open(weft_listener *listener, weft_loop *loop,
                                           const char *address, const weft_serve_port *where,
                                           weft_loop_fn *fn, void *user, weft_diag *diag);
void weft_listener__close(weft_listener *listener);
/* The next connection, non-blocking. -1: none is waiting, or none can be accepted now; the listener
 * pauses in the second case, *out_full is set then. `peer` may be NULL. */
int weft_listener__accept(weft_listener *listener, struct sockaddr_storage *peer, bool *out_full);
/* Calls `fn` no more for a tenth of a second. */
void weft_listener__pause(weft_listener *listener);

bool weft_listen__is_on(const weft_serve_port *where);

/* Connections that each transport may hold, so that descriptors stay free for n_worker workers and
 * their restarts. Raises the soft limit of descriptors first; fails if it is too low. */
WEFT_MUST_USE weft_err weft_listen__connections(const weft_serve_options *options,
                                                uint32_t n_worker, weft_diag *diag, uint32_t *out);

/* -- Files that are read again (reload.c) --------------------------------------------------- */

enum { WEFT_RELOAD_FILES_MAX = 3 };

/* Files that belong together, embedded in what is read from them. */
typedef struct weft_reloaded {
    const char *name; /* for the log and metrics */
    const char *path[WEFT_RELOAD_FILES_MAX];
    uint32_t n_path;
    /* On an error what was read before stays in use. */
    weft_err (*load)(void *user, weft_diag *diag);
    void *user;

    uint64_t seen[WEFT_RELOAD_FILES_MAX]; /* hash of what tells one file from another */
    uint32_t n_change; /* the last looks in a row that found another than the one before */
    uint64_t n_load, n_failed;
    struct weft_reloaded *next;
} weft_reloaded;

typedef struct weft_reload weft_reload;
/* Looks for changed files every 10 s, and a second after a change. NULL: out of memory. */
weft_reload *weft_reload__create(weft_loop *loop);
void weft_reload__destroy(weft_reload *reload);
/* Before the files are read for the first time: what changes from now on is seen. */
void weft_reload__look(weft_reloaded *files);
/* From now on. NULL is allowed as `reload`: they are never read again. */
void weft_reload__add(weft_reload *reload, weft_reloaded *files);
/* One look: reads what has changed since an earlier one, and not since the last or for ten in a
 * row. true: something has changed since the last. */
bool weft_reload__check(weft_reload *reload);
/* Reads all files again, changed or not. */
void weft_reload__all(weft_reload *reload);
void weft_reload__write_metrics(const weft_reload *reload, weft_buf *out);

/* -- Service manager (notify.c) ------------------------------------------------------------- */

typedef struct weft_notify weft_notify;
/* Of the environment, whose variables are removed. *out: NULL where there is no manager, which is
 * allowed below. */
WEFT_MUST_USE weft_err weft_notify__create(weft_loop *loop, weft_diag *diag, weft_notify **out);
void weft_notify__destroy(weft_notify *notify);
/* Assignments such as "READY=1", one a line. Never waits. */
void weft_notify__send(weft_notify *notify, const char *state);
/* Then READY=1 follows. */
void weft_notify__reloading(weft_notify *notify);

/* -- Health beside the loop (health.c) ------------------------------------------------------ */

enum { WEFT_HEALTH_PROBES_MAX = 16 /* at once */ };

typedef struct weft_health weft_health;
/* Answers on a port with a thread of its own: live while the last beat is at most patience_ns old.
 * *out: NULL where the port is off, which is allowed below. */
WEFT_MUST_USE weft_err weft_health__create(const char *address, const weft_serve_port *where,
                                           uint64_t patience_ns, weft_diag *diag,
                                           weft_health **out);
int weft_health__port(const weft_health *health); /* -1: off */
/* From any thread. */
void weft_health__beat(weft_health *health, bool ready);
void weft_health__destroy(weft_health *health);

/* -- Clients by address (peers.c) ----------------------------------------------------------- */

/* A client's address: IPv4, the /64 of IPv6, or all clients of a UNIX socket. */
typedef struct weft_peer {
    struct weft_peer *next; /* in its bucket */
    uint8_t key[16];
    uint32_t n_ref; /* connections and exchanges */
    uint32_t n_connection;
    uint64_t held_bytes;
    bool exempt; /* loopback and UNIX sockets: often a proxy, which stands for many clients */
    /* Its streams that wait in weft_handshakes. */
    struct weft_stream *newest, *oldest;
    struct weft_peer *next_shaking, *prev_shaking;
    uint32_t n_shaking;
    bool took_newest;
} weft_peer;

typedef struct weft_peers {
    weft_peer **bucket;
    uint64_t seed;
} weft_peers;

bool weft_peers__open(weft_peers *peers);
void weft_peers__close(weft_peers *peers);
/* The peer of an address, with a reference. NULL: out of memory. */
weft_peer *weft_peers__find(weft_peers *peers, const struct sockaddr_storage *address);
void weft_peers__release(weft_peers *peers, weft_peer *peer); /* NULL is allowed */
/* Whether a new connection of the address is one too many, of `limit` for all addresses; `option`:
 * of max_peer_connections. */
bool weft_peers__is_full(const weft_peer *peer, uint32_t option, uint32_t limit);
/* Whether the address, exempt or not, has more than its share of handshakes that wait. */
bool weft_peers__floods(const weft_peer *peer, uint32_t limit);

/* -- Byte streams (tls.c) ------------------------------------------------------------------- */

/* Certificates and rules of TLS for one protocol. */
typedef struct weft_tls weft_tls;

/* `protocol`: names of ALPN with a blank between them; `connections`: the most that there can be at
 * once. *out: NULL where the options name no files.
 * The files are read again when `reload` says so; open connections keep what they began with. */
WEFT_MUST_USE weft_err weft_tls__create(const weft_serve_options *options, const char *protocol,
                                        uint32_t connections, weft_loop *loop, weft_reload *reload,
                                        weft_diag *diag, weft_tls **out);
void weft_tls__destroy(weft_tls *tls); /* NULL is allowed */
/* Goes on with handshakes that wait, for a short time; called once a turn of the loop. NULL is
 * allowed. */
void weft_tls__begin_turn(weft_tls *tls);
/* Whether the loop may not sleep. NULL is allowed. */
bool weft_tls__has_waiting(const weft_tls *tls);
void weft_tls__write_metrics(const weft_tls *tls, weft_buf *out);

/* Where the reading of a client's first records is. */
typedef struct weft_hello_scan {
    uint8_t record[5], message[4]; /* heads, of which there are so many bytes: */
    uint8_t n_record, n_message;
    uint32_t record_left, message_left; /* bytes */
} weft_hello_scan;

/* A connected socket, with TLS or without. */
typedef struct weft_stream {
    int fd;
    weft_peer *peer;
    struct weft_stream *newer, *older; /* of the peer, while it waits in weft_handshakes */
    bool waits, chosen;                /* chosen: its handshake may go on in this turn */
    struct ssl_st *ssl;                /* NULL: without */
    weft_tls *tls;
    char *client; /* name of the client's certificate, owned; "": it has none */
    bool failed;
    bool ended; /* the client has said that it sends no more */
    weft_hello_scan hello;
    uint32_t n_read;        /* of the handshake */
    uint64_t shaken, taken; /* bytes of the handshake; bytes that reads returned */
    /* With TLS: the last read waits until the socket can be written, and the reverse. */
    bool read_wants_write, write_wants_read;
} weft_stream;

/* Takes over the socket unless it fails (out of memory). `tls` may be NULL. With TLS the stream
 * keeps its place from the first read on, and the loop watches the socket. */
bool weft_stream__open(weft_stream *stream, weft_tls *tls, int fd, weft_peer *peer);
void weft_stream__close(weft_stream *stream);
/* As recv and sendmsg on a non-blocking socket. A read takes few records of TLS: the rest is in the
 * socket or, with room for less than 32 KiB, also inside OpenSSL. A write that is repeated must
 * begin with the same bytes. */
ssize_t weft_stream__read(weft_stream *stream, void *to, size_t len);
ssize_t weft_stream__write(weft_stream *stream, const struct iovec *part, int n_part);
/* Whether bytes, or the end, can be read although the socket may be empty. */
bool weft_stream__has_pending(const weft_stream *stream);
/* Whether nothing of a handshake has been written: a client that closes now cannot complete it. */
bool weft_stream__is_fresh(const weft_stream *stream);
/* Nothing more will be written. */
void weft_stream__end(weft_stream *stream);
/* The first URI or DNS name of the client's certificate, once the handshake is over; NULL: none. */
const char *weft_stream__client(weft_stream *stream);

/* -- Requests ------------------------------------------------------------------------------- */

enum { WEFT_REQUEST_MESSAGE_MAX = 256 };

typedef enum weft_answer {
    WEFT_ANSWER_OK,
    WEFT_ANSWER_INVALID,     /* 400, INVALID_ARGUMENT */
    WEFT_ANSWER_NOT_FOUND,   /* 404, NOT_FOUND */
    WEFT_ANSWER_UNSUPPORTED, /* 501, UNIMPLEMENTED */
    WEFT_ANSWER_UNAVAILABLE, /* 503, UNAVAILABLE: draining, deadline passed */
    WEFT_ANSWER_OVERLOADED,  /* 503, RESOURCE_EXHAUSTED: queue full, or it would be late */
    WEFT_ANSWER_INTERNAL     /* 500, INTERNAL */
} weft_answer;

/* Writes why into `text` (WEFT_REQUEST_MESSAGE_MAX bytes); returns the answer. */
weft_answer weft_answer__refuse(weft_answer answer, char *text, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

enum { WEFT_VERSION_MAX = 20 /* with the NUL */ };

/* A model of the router: a program of a bundle, under a version. It stays what it is while it is
 * held (weft_router__hold). */
typedef struct weft_model_ref {
    uint32_t at;
    const weft_bundle_program *program;
    const char *version;
} weft_model_ref;

/* What a request to an app needs, beside its inputs; zeroed: what the app asks for. */
typedef struct weft_app_need {
    double latency_us, min_accuracy, max_cost; /* 0: not given */
    bool best_effort;
} weft_app_need;

/* The variant that answers a request to an app. */
typedef struct weft_app_choice {
    uint32_t app;       /* as a model of the router */
    uint32_t variant;   /* in the app's list */
    const char *name;   /* of the model; NULL: the request names no app, or none was chosen */
    const char *reason; /* weft_pick_reason_name */
    double accuracy, cost, predicted_us;
} weft_app_choice;

enum { WEFT_CHOICE_PARAMETERS = 5 };

/* A parameter of an answer: a text, or a number where `text` is NULL. */
typedef struct weft_choice_parameter {
    const char *key, *text;
    double number;
} weft_choice_parameter;

/* What the answer to a request to an app tells: which variant gave it, and why. */
void weft_request__list_choice(const weft_app_choice *choice,
                               weft_choice_parameter out[WEFT_CHOICE_PARAMETERS]);

/* Shared memory of clients, and the tensors of a request in it (regions.h). */
typedef struct weft_regions weft_regions;
typedef struct weft_region_uses weft_region_uses;

/* Bytes of outputs; requests that ran together may share them. */
typedef struct weft_payload weft_payload;

/* With one reference. NULL: out of memory. */
weft_payload *weft_payload__create(size_t bytes);
uint8_t *weft_payload__at(weft_payload *payload);
weft_payload *weft_payload__hold(weft_payload *payload);
/* On any thread; NULL is allowed. `offload`: gives back large memory beside the loop; NULL: at
 * once. */
void weft_payload__release(weft_payload *payload, weft_offload *offload);

/* One inference. Created by a transport; belongs to the router from weft_router__submit until the
 * router calls `done`, then to the transport again. */
typedef struct weft_request {
    uint32_t model;      /* of the router; an app, until the variant is chosen */
    weft_tensor *in;     /* in the program's order; their data outlives the request */
    uint64_t timeout_us; /* given by the client; 0: the server's */
    const char *id;      /* given by the client; borrowed until `done` returns; NULL: none */
    char adapter[WEFT_ADAPTER_NAME_MAX + 1]; /* name; "": none */
    weft_app_need need;
    weft_app_choice chosen;
    weft_origin origin;
    bool by_weight;            /* its client named no version: weft_router__choose did */
    weft_region_uses *regions; /* owned; NULL: no tensor is in shared memory */
    uint64_t skip; /* outputs that are not asked for, bit i for output i; `out` is empty there */
    /* Called exactly once, on the loop's thread, possibly inside weft_router__submit. */
    void (*done)(struct weft_request *request);
    void *user;

    /* The answer, set before `done` is called. */
    weft_answer answer;
    char message[WEFT_REQUEST_MESSAGE_MAX]; /* of an error; contains no path */
    weft_tensor *out;                       /* in the program's order; their data is `outputs` */
    weft_payload *outputs;                  /* with a reference; NULL: none */
    uint64_t queue_ns, compute_input_ns, compute_infer_ns, compute_output_ns;
    uint64_t retry_after_ns; /* OVERLOADED: when the same request might be in time */
    int64_t batch_rows;      /* of the batch in which it ran, with padding; 0: it did not */

    /* For the router only. */
    struct weft_request *next, *prev; /* in the queue of the model */
    uint64_t arrived_ns, deadline_ns; /* it is answered at its deadline at the latest */
    uint64_t due_ns;                  /* order in the queue */
    bool promised;                    /* an answer after due_ns is worth nothing */
    int64_t rows;        /* value of the batch symbol; 1 when the model cannot be batched */
    uint64_t adapter_at; /* number of the adapter, see weft_session_adapt; 0: none */
    struct weft_live_adapter *live; /* with a reference; NULL: none, or one of the bundle */
    uint32_t attempts;              /* workers that died or failed while running it */
    uint64_t sample; /* hash of some bytes of the inputs (equal_inputs.c), where it is known */
    bool is_sampled;
    bool queued;
    bool ending; /* its answer is set, and `done` is called next */
    bool left;   /* its client is gone, it ends with its batch */
    bool moved;  /* taken from a worker that was slow or did not answer */
} weft_request;

/* With arrays for the inputs and outputs of the model. NULL: out of memory. */
weft_request *weft_request__create(const weft_model_ref *model);
void weft_request__destroy(weft_request *request);
/* The adapter that answers. false: that is no name of one, or another one was named before. */
bool weft_request__set_adapter(weft_request *request, const char *name, size_t len);
/* None of the model's outputs is asked for, as long as weft_request__ask adds none; a new request
 * asks for all. */
void weft_request__ask_none(weft_request *request, uint32_t n_output);
void weft_request__ask(weft_request *request, uint32_t output);
bool weft_request__asks(const weft_request *request, uint32_t output);

/* -- Statistics ----------------------------------------------------------------------------- */

typedef struct weft_duration {
    uint64_t count, ns;
} weft_duration;

/* How many durations lie up to each boundary, and above the one before; the last count is of those
 * above all boundaries. */
enum { WEFT_HISTOGRAM_MAX = 18 };

typedef struct weft_histogram {
    double bound_s[WEFT_HISTOGRAM_MAX]; /* n, ascending */
    uint64_t count[WEFT_HISTOGRAM_MAX + 1];
    uint64_t sum_ns;
    uint32_t n;
} weft_histogram;

/* Boundaries from 0.5 ms to 10 s and, for an SLO above 0, at a half, one and two times of it. */
void weft_histogram__init(weft_histogram *histogram, double slo_us);
void weft_histogram__add(weft_histogram *histogram, uint64_t ns);

enum { WEFT_BATCH_STATS_MAX = 64 };

typedef struct weft_batch_stat {
    uint64_t batch;
    weft_duration compute_input, compute_infer, compute_output;
} weft_batch_stat;

typedef struct weft_model_stats {
    uint64_t last_inference_ms; /* since the Unix epoch */
    uint64_t inference_count;   /* rows */
    uint64_t execution_count;   /* batches */
    weft_duration success, fail, queue, compute_input, compute_infer, compute_output;
    uint64_t rejected; /* of `fail`: queue full, would be late, draining, or deadline passed */
    uint64_t refused, dropped;       /* of `rejected`: would be late, on arrival and in the queue */
    uint64_t equal;                  /* requests that ran as rows of another one */
    uint64_t pending;                /* requests accepted and not yet answered */
    weft_histogram duration, queued; /* of `success`: from arrival to answer; in the queue */
    weft_batch_stat batch[WEFT_BATCH_STATS_MAX]; /* ascending; further sizes are not counted */
    uint32_t n_batch;
} weft_model_stats;

/* Rows of the largest bucket (batch.c). 0: the model cannot be batched. */
int64_t weft_batch__largest(const weft_bundle_program *program);

/* -- Router (router.c, router_status.c) ----------------------------------------------------- */

typedef struct weft_router weft_router;

WEFT_MUST_USE weft_err weft_router__create(const weft_serve_options *options, weft_loop *loop,
                                           weft_diag *diag, weft_router **out);
void weft_router__destroy(weft_router *router);
/* Spans of requests are written there; NULL: nowhere. */
void weft_router__set_spans(weft_router *router, weft_spans *spans);
/* Whether some worker is to serve the model: a plan may place a part of a bundle here. */
bool weft_router__serves(const weft_router *router, uint32_t model);
/* The adapters that are loaded; NULL: none can be. */
struct weft_live *weft_router__live(const weft_router *router);
/* Times that a worker did not have an adapter in memory. */
uint64_t weft_router__adapter_reads(const weft_router *router);
/* A bundle and the index in it of the model's program. */
const weft_bundle *weft_router__bundle_of(const weft_router *router, uint32_t model,
                                          uint32_t *out_program);
/* -- Models, bundles and versions (router_models.c) -- */

/* Places of models: not all of them are in use. */
uint32_t weft_router__model_count(const weft_router *router);
/* Whether requests find the model. */
bool weft_router__is_shown(const weft_router *router, uint32_t model);
weft_model_ref weft_router__model(const weft_router *router, uint32_t model);
double weft_router__weight(const weft_router *router, uint32_t model);
void weft_router__set_weight(weft_router *router, uint32_t model, double weight);
/* Memory that a worker needs for the model, shared weights included; 0: of an app. */
uint64_t weft_router__memory_bytes(const weft_router *router, uint32_t model);
/* What the model's bundle is for: "CPU" or "GPU". */
const char *weft_router__memory_kind(const weft_router *router, uint32_t model);
/* Of the model's bundle: its path, as it was named, and absolute; its contents; see
 * weft_serve_bundle. */
const char *weft_router__bundle_path(const weft_router *router, uint32_t model);
const char *weft_router__bundle_file(const weft_router *router, uint32_t model);
uint64_t weft_router__identity(const weft_router *router, uint32_t model);
bool weft_router__spreads(const weft_router *router, uint32_t model);
/* A model that is served, by name and version; version_len 0: the version of the largest weight,
 * and of equal ones the latest. UINT32_MAX: none. */
/* A name may be BASE@ADAPTER: that of a model that has this adapter. */
enum { WEFT_ADAPTER_MARK = '@' };
/* The adapter in a name of the model; NULL: the name has none, or is another model's. *out_named:
 * whether it is this one's. */
const char *weft_router__adapter_in(const weft_bundle_program *program, const char *name,
                                    size_t len, bool *out_named);
uint32_t weft_router__find(const weft_router *router, const char *name, size_t len,
                           const char *version, size_t version_len);
/* The versions of the model that are served, in ascending order: `after` UINT32_MAX: the first.
 * UINT32_MAX: no further one. */
uint32_t weft_router__next_version(const weft_router *router, uint32_t model, uint32_t after);
/* Whether all versions of the model that have a weight are ready; without one: this version. */
bool weft_router__versions_ready(const weft_router *router, uint32_t model);
/* The version of the model that gets the next request that names none, by the weights. */
uint32_t weft_router__choose(weft_router *router, uint32_t model);
/* Until the release the model stays what it is, though no request may find it any more. */
void weft_router__hold(weft_router *router, uint32_t model);
void weft_router__release(weft_router *router, uint32_t model);
/* Until the end the model also has workers: a request for it is read, queued or runs. */
void weft_router__begin_use(weft_router *router, uint32_t model);
void weft_router__end_use(weft_router *router, uint32_t model);

/* -- Apps (router_apps.c): models that have variants instead of workers -- */

bool weft_router__is_app(const weft_router *router, uint32_t model);
/* By model: its own requests, without those to apps. By app: all. */
typedef struct weft_offered {
    uint64_t arrivals, answered, late, refused, failed;
} weft_offered;
weft_offered weft_router__offered(const weft_router *router, uint32_t model);
/* Of the requests that came to this version of a model by its weight. */
weft_offered weft_router__offered_by_weight(const weft_router *router, uint32_t model);
/* What was chosen of each variant of an app. */
typedef struct weft_app_counts {
    const char *variant;
    double accuracy;
    weft_offered count;
} weft_app_counts;
uint32_t weft_router__app_variants(const weft_router *router, uint32_t app);
weft_app_counts weft_router__app_counts(const weft_router *router, uint32_t app, uint32_t variant);

/* Whether some worker that serves the model has prepared it. */
bool weft_router__is_ready(const weft_router *router, uint32_t model);
/* Whether this holds for all models that are served. */
bool weft_router__all_ready(const weft_router *router);
/* Writes into `out` why the model is not ready, for each of its workers; "" when it is. */
void weft_router__explain(const weft_router *router, uint32_t model, char *out, size_t size);
/* Why a worker could not prepare its models; NULL: no worker failed to. */
const char *weft_router__failure(const weft_router *router);
const weft_model_stats *weft_router__stats(const weft_router *router, uint32_t model);
/* Places of workers that have been in use: those of retired workers are counted. */
uint32_t weft_router__worker_count(const weft_router *router);
/* Workers that have not retired; and how many there may be while the plan changes. */
uint32_t weft_router__live_workers(const weft_router *router);
uint32_t weft_router__worker_room(const weft_router *router);
/* A worker and its slice. */
typedef struct weft_worker_status {
    const char *name, *gpu, *mig; /* of the slice, see weft_serve_slice; NULL: none */
    bool ready;
    bool lost;         /* the worker ended last because its device was lost */
    const char *why;   /* why the worker ended last; "": not reported, or it is ready again */
    uint64_t restarts; /* of the worker */
    uint64_t losses;   /* restarts because the device was lost */
    bool retired;      /* ended for good; only `name` is set */
    bool retiring;
    int64_t pid; /* 0: no process */
    const char *state;
    const weft_serve_slice *slice;
    const char *bundle; /* path, as it was named */
} weft_worker_status;
weft_worker_status weft_router__worker_status(const weft_router *router, uint32_t worker);
uint64_t weft_router__restarts(const weft_router *router);
/* Runs of several models at once, and the rows of their requests. */
uint64_t weft_router__joint_executions(const weft_router *router);
uint64_t weft_router__joint_rows(const weft_router *router);
uint64_t weft_router__packed_executions(const weft_router *router);
uint64_t weft_router__heads_executions(const weft_router *router);
/* What the times of a program that runs several models or lengths at once decided, on a worker
 * (router_gain.c). */
typedef struct weft_together {
    const char *program;
    uint32_t worker;        /* number */
    double gain;            /* time apart by that together; 0: not known */
    uint64_t apart, trials; /* choices to run apart; choices of the other way, to measure it */
} weft_together;
/* The i-th such program; false: there are fewer. */
bool weft_router__together(const weft_router *router, uint32_t i, weft_together *out);

/* Checks the types and dims of the request and queues it, or ends it with an error: `done` may be
 * called inside. */
void weft_router__submit(weft_router *router, weft_request *request);
/* The client is gone, so the answer is not needed. `done` is called inside or, of a request that
 * ends together with the one whose `done` abandons it, behind that one's; or when its batch ends,
 * if that is large and on its way to the worker. */
void weft_router__abandon(weft_router *router, weft_request *request);
/* The server is about to end: nothing is ready any more. Requests are still taken. */
void weft_router__leave(weft_router *router);
/* Refuses requests submitted from now on. */
void weft_router__drain(weft_router *router);
/* Either was called. */
bool weft_router__is_draining(const weft_router *router);
/* Whether no request is queued or running. */
bool weft_router__is_idle(const weft_router *router);
uint32_t weft_router__queued(const weft_router *router, uint32_t model);

/* -- Bundles (router_models.c) -------------------------------------------------------------- */

/* A bundle that is open. */
struct router_bundle;
/* Opens and checks a bundle, with its signature if the options require one; may run on any
 * thread. */
WEFT_MUST_USE weft_err weft_router__read_bundle(const weft_serve_bundle *from,
                                                const weft_serve_options *options, weft_diag *diag,
                                                struct router_bundle **out);
/* NULL is allowed. The kernel takes long to free a large one: beside the loop, where that is
 * possible. */
void weft_router__free_bundle(const weft_router *router, struct router_bundle *bundle);
/* They are freed by its thread from now on; NULL: at once. */
void weft_router__free_beside(weft_router *router, weft_offload *offload);

/* -- Changes (router_change.c) -------------------------------------------------------------- */

enum { WEFT_PAST_CHANGES_MAX = 16, WEFT_CHANGE_ERROR_MAX = 640 };

/* A change that is over. */
typedef struct weft_past_change {
    uint64_t generation; /* of the plan that it was to bring into force */
    bool ok;
    char error[WEFT_CHANGE_ERROR_MAX];
    double took_s;
    uint64_t ended_ms;  /* since the Unix epoch */
    uint32_t n_started; /* workers that were new */
} weft_past_change;

typedef struct weft_change_status {
    uint64_t generation; /* of the plan in force or, while `changing`, of that to come */
    bool changing;
    bool in_steps;                /* the change has steps */
    bool is_back;                 /* a step failed, and the others lead back */
    uint32_t n_step;              /* of a change in steps: those that are over */
    uint32_t n_past;              /* at most WEFT_PAST_CHANGES_MAX */
    const weft_past_change *past; /* the last one first; borrowed until the next one is over */
} weft_change_status;

/* Brings other slices into force: workers that both have stay; new ones start beside the old ones,
 * which end when all new ones are ready and their batches are done. If a new worker ends before it
 * is ready, or start_timeout_s pass, the new ones end and the old ones stay. Takes the arena, which
 * has the slices, on success. INPUT: a change is under way; a model is not in the bundle; a model
 * that is served would have no slice. NOMEM: too many workers. */
WEFT_MUST_USE weft_err weft_router__change(weft_router *router, const weft_serve_slice *slice,
                                           uint32_t n, weft_arena *arena, weft_diag *diag);
/* The same in steps, where workers can start only when others have ended. `last`: the slices of the
 * last step, of which only models and batches count; they are not kept. The change is under way
 * from then on, and waits for its first step. */
WEFT_MUST_USE weft_err weft_router__begin_steps(weft_router *router, const weft_serve_slice *last,
                                                uint32_t n, weft_diag *diag);
/* Begins the next step: in on_step, or later. Takes the arena on success; on an error the change
 * waits for a step as before. */
WEFT_MUST_USE weft_err weft_router__begin_step(weft_router *router, const weft_serve_slice *slice,
                                               uint32_t n, bool last, weft_arena *arena,
                                               weft_diag *diag);
/* The change has failed: further steps lead back. */
void weft_router__turn_back(weft_router *router, const char *why);
/* There are no further steps: what runs is in force. `why`: is added to the error; NULL: nothing.
 */
void weft_router__end_steps(weft_router *router, const char *why);
weft_change_status weft_router__change_status(const weft_router *router);
/* Serves the models of a bundle as well, in place of those that have the same names and version;
 * `alone`: in place of all versions of them. The same way: the switch comes when all new workers
 * are ready. Takes the bundle, also on an error. */
WEFT_MUST_USE weft_err weft_router__load(weft_router *router, struct router_bundle *bundle,
                                         const weft_serve_bundle *as, bool alone, weft_diag *diag);
/* No longer serves the models of a bundle (path), or the model of this name; version NULL: all
 * versions of it. */
WEFT_MUST_USE weft_err weft_router__unload(weft_router *router, const char *path, const char *name,
                                           const char *version, weft_diag *diag);
/* `on_end` is called when a change is over; `on_step` when a step but the last is, or has failed.
 */
WEFT_MUST_USE weft_err weft_router__on_change(weft_router *router,
                                              void (*on_end)(void *user, bool ok),
                                              void (*on_step)(void *user), void *user);
/* While a change is held it does not come into force, though its workers are ready. */
void weft_router__hold_change(weft_router *router, bool held);
/* Undoes the change that is under way, unless it is in force. */
void weft_router__cancel_change(weft_router *router, const char *why);
/* Whether requests find the model when the change that is under way is over. */
bool weft_router__is_coming(const weft_router *router, uint32_t model);
/* Ends a change where it is; before the router is destroyed. */
void weft_router__end_changes(weft_router *router);

/* -- Control socket (control_socket.c) ------------------------------------------------------ */

typedef struct weft_ctl weft_ctl;
struct weft_deployment; /* deployment_int.h */

/* NULL when the options have none. */
WEFT_MUST_USE weft_err weft_ctl__create(const weft_serve_options *options, weft_router *router,
                                        struct weft_deployment *deployment, weft_loop *loop,
                                        weft_diag *diag, weft_ctl **out);
void weft_ctl__destroy(weft_ctl *control);
/* Ends all requests with UNAVAILABLE; kills the workers that run some. */
void weft_router__give_up(weft_router *router);

/* -- Handshakes that wait (handshakes.c) ---------------------------------------------------- */

/* Zeroed: none. */
typedef struct weft_handshakes {
    weft_peer *first, *last; /* in the order of their turns */
} weft_handshakes;

/* Nothing, if it waits already; leaving, if it does not. */
void weft_handshakes__add(weft_handshakes *handshakes, weft_stream *stream);
void weft_handshakes__leave(weft_handshakes *handshakes, weft_stream *stream);
/* The next one, which waits no longer; NULL: none. */
weft_stream *weft_handshakes__take(weft_handshakes *handshakes);

/* -- Transports ----------------------------------------------------------------------------- */

/* An answer that is written in parts of well below a millisecond (listing.c). */
typedef struct weft_listing {
    bool (*write)(struct weft_listing *listing); /* the next part; false: the list is whole */
    /* It is whole; not called when weft_listing__begin has told so. */
    void (*done)(struct weft_listing *listing);
    struct weft_listing *next;
    bool waits;        /* under way */
    uint64_t spent_ns; /* on writing it */
} weft_listing;

typedef struct weft_listings weft_listings;

/* Before the transports, whose idle functions send what it completes. NULL: out of memory. */
weft_listings *weft_listing__open(weft_loop *loop);
void weft_listing__close(weft_listings *all); /* NULL is allowed */
/* true: the list is whole; false: `done` will be called. `all` NULL: it is written at once. */
bool weft_listing__begin(weft_listings *all, weft_listing *listing);
/* Nobody waits for it any more; allowed at any time. */
void weft_listing__leave(weft_listings *all, weft_listing *listing);

/* What both transports share. Zeroed: none. */
typedef struct weft_front {
    weft_listings *listings;
    struct weft_access *access;
    struct weft_deployment *deployment;
    weft_reload *reload;
    weft_spans *spans;
    weft_regions *regions;   /* NULL: clients may not use shared memory */
    const char *server_name; /* in the server's metadata; NULL: weft */
} weft_front;

/* What both transports tell of models, in Triton's words where its clients read them. Length and
 * bytes of the name follow. */
#define WEFT_UNKNOWN_MODEL  "Request for unknown model: '%.*s' is not found"
#define WEFT_SERVE_PLATFORM "onnx_weft"

typedef struct weft_http weft_http;
typedef struct weft_grpc weft_grpc;

/* Listens on the address and ports of the options. */
WEFT_MUST_USE weft_err weft_http__create(const weft_serve_options *options, const weft_front *front,
                                         weft_router *router, weft_loop *loop, weft_diag *diag,
                                         weft_http **out);
int weft_http__port(const weft_http *http);         /* -1: off */
int weft_http__metrics_port(const weft_http *http); /* -1: off */
/* Accepts no new connections; closes each open one after its answers. */
void weft_http__drain(weft_http *http);
bool weft_http__is_idle(const weft_http *http); /* no request is being read or answered */
void weft_http__destroy(weft_http *http);

WEFT_MUST_USE weft_err weft_grpc__create(const weft_serve_options *options, const weft_front *front,
                                         weft_router *router, weft_loop *loop, weft_diag *diag,
                                         weft_grpc **out);
int weft_grpc__port(const weft_grpc *grpc);
/* Accepts no new connections, and tells clients to begin no new calls. Those that are on their way
 * are answered until clients have had the time to hear of it. */
void weft_grpc__drain(weft_grpc *grpc);
/* Whether that is so: no new calls are taken. */
bool weft_grpc__is_closed(const weft_grpc *grpc);
bool weft_grpc__is_idle(const weft_grpc *grpc);
void weft_grpc__destroy(weft_grpc *grpc);

/* -- Pulse of a worker (pulse.c) ------------------------------------------------------------ */

typedef struct weft_pulse weft_pulse;

/* Shared memory for one worker; *out_fd is for weft_pulse__start in its process. NULL: errno. */
weft_pulse *weft_pulse__create(int *out_fd);
void weft_pulse__destroy(weft_pulse *pulse);
/* For a new process. */
void weft_pulse__reset(weft_pulse *pulse);
/* Counts up 40 times a second while the process runs. 0: it has not begun. */
uint64_t weft_pulse__beats(const weft_pulse *pulse);
/* In the worker: begins to count; closes the descriptor. */
bool weft_pulse__start(int fd);

/* -- Memory of a worker (worker_memory.c) --------------------------------------------------- */

/* In the worker, before anything is loaded: applies worker_memory of the options where it is a
 * number. Returns the limit, 0: none. */
uint64_t weft_worker__limit_memory(uint64_t bytes);
/* When its models are prepared: the limit for WEFT_MEMORY_AUTO; 0: none. */
uint64_t weft_worker__limit_memory_by_use(uint64_t bytes);
/* The same for a worker that holds so many bytes, in a control group of so many; 0: it has no
 * limit.
 */
uint64_t weft_worker__auto_memory(uint64_t held, uint64_t group);

/* -- Wire between router and worker (wire.c) ------------------------------------------------ */

enum { WEFT_WIRE_TENSORS_MAX = 4096, WEFT_WIRE_TEXT_MAX = 64 << 10 };

typedef enum weft_wire_kind {
    /* Worker: sessions are open, buckets are prepared; `id`: identity of its bundle. */
    WEFT_WIRE_READY = 1,
    WEFT_WIRE_FAILED,  /* worker: cannot serve and exits; payload: text */
    WEFT_WIRE_RUN,     /* router: inputs of one batch. Answer: DONE or LOST */
    WEFT_WIRE_DONE,    /* worker: outputs; or, err set, payload: text */
    WEFT_WIRE_LOST,    /* worker: its device is lost and it exits; payload: text */
    WEFT_WIRE_PREPARE, /* router: dims without data, to prepare for. Answer: DONE */
    WEFT_WIRE_BELL     /* both: look into the shared memory (channel.c) */
} weft_wire_kind;

/* Of fixed size, in native byte order (both ends are this program); followed by n_tensor tensor
 * heads, then by the data of the tensors without gaps. */
typedef struct weft_wire_head {
    uint32_t magic, kind;
    uint64_t id;
    uint32_t model, n_tensor;
    uint32_t err; /* weft_err */
    /* RUN: the last tensor, u64[rows], tells the adapter of each row: weft_session_adapt. DONE: how
     * many of them were not in memory. */
    uint32_t adapted;
    uint64_t payload_bytes;
    uint64_t input_ns, infer_ns, output_ns;
    uint64_t skip; /* outputs that nobody asks for: weft_session_skip */
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
    uint8_t *own;             /* copies of chunks, after weft_wire__own */
} weft_wire_out;

/* For n_tensor tensors and at most n_chunk chunks of payload. false: out of memory. */
bool weft_wire__begin(weft_wire_out *out, weft_wire_kind kind, uint32_t n_tensor, size_t n_chunk);
void weft_wire__add_chunk(weft_wire_out *out, const void *at, size_t len);
/* The next `sent` bytes are sent. */
void weft_wire__advance(weft_wire_out *out, size_t sent);
/* Copies the payload that is not sent yet: the chunks may be freed. false: out of memory. */
bool weft_wire__own(weft_wire_out *out);
void weft_wire__free(weft_wire_out *out);

/* -- Messages in shared memory (wire.c) ----------------------------------------------------- */

/* The same as on the socket, but the data begins at a multiple of WEFT_WIRE_ALIGN bytes; in
 * messages to a worker that of each tensor does. */
enum { WEFT_WIRE_ALIGN = 64 };

/* Writes a whole message. `align`: of each tensor's data, 1 or WEFT_WIRE_ALIGN. false: it does not
 * fit. */
bool weft_wire__write(const weft_wire_out *out, uint8_t *box, size_t box_bytes, size_t align);
/* Where the data of the next tensor starts. */
size_t weft_wire__align(size_t at);
/* Reads head and tensor heads, at most n_max of them, into private memory and checks only these:
 * the other end may change the box at any time. *out_at: offset of the first tensor's data; all
 * data lies in the box. false: malformed. */
bool weft_wire__read(const uint8_t *box, size_t box_bytes, size_t align, weft_wire_head *head,
                     weft_wire_tensor *tensor, uint32_t n_max, size_t *out_at);

/* -- Looking for messages (look.c) ---------------------------------------------------------- */

/* Zero-initialised; of one thread. */
typedef struct weft_look {
    uint64_t usual_ns; /* moving mean of the time that messages took */
    uint32_t pause;    /* messages to sleep for at once */
    uint32_t misses;
    uint32_t n_cpu;
    long losses;
} weft_look;

/* How long to look for the next message; 0: sleep at once. */
uint64_t weft_look__limit(weft_look *look);
/* A message came after so long, however it was waited for. */
void weft_look__found(weft_look *look, uint64_t waited_ns);
/* It did not come while the thread looked. */
void weft_look__missed(weft_look *look);

/* -- Memory shared by router and worker (channel.c) ----------------------------------------- */

typedef struct weft_channel weft_channel;
typedef enum weft_channel_end { WEFT_CHANNEL_ROUTER, WEFT_CHANNEL_WORKER } weft_channel_end;

/* With boxes for messages to the worker and for its answers; *out_fd is for weft_channel__open
 * in its process, with the same sizes. NULL: errno. */
weft_channel *weft_channel__create(size_t to_worker, size_t to_router, int *out_fd);
/* In the worker; closes the descriptor. NULL: errno. */
weft_channel *weft_channel__open(int fd, size_t to_worker, size_t to_router);
void weft_channel__destroy(weft_channel *channel); /* NULL is allowed */
/* For a new process; the one before has ended. */
void weft_channel__reset(weft_channel *channel);

/* How many messages may be under way in each direction. */
uint32_t weft_channel__boxes(const weft_channel *channel);
/* The box that this end writes next; free while fewer messages are under way. */
uint8_t *weft_channel__room(const weft_channel *channel, size_t *out_bytes);
/* The box has a message. true: the other end sleeps and has to be sent a BELL. */
bool weft_channel__post(weft_channel *channel);
/* Whether a message for this end has not been taken. */
bool weft_channel__has(const weft_channel *channel);
/* The box with the next message; see weft_wire__read. */
const uint8_t *weft_channel__peek(const weft_channel *channel, size_t *out_bytes);
/* The same; the message counts as taken. */
const uint8_t *weft_channel__take(weft_channel *channel, size_t *out_bytes);
/* This end is about to sleep: messages posted from now on ring the bell. false: one has come. */
bool weft_channel__sleep(weft_channel *channel);
void weft_channel__wake(weft_channel *channel);

#endif
