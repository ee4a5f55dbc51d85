/* weft replay: requests that leave at planned times, whatever the answers do. */
#ifndef WEFT_TOOLS_REPLAY_H
#define WEFT_TOOLS_REPLAY_H

#include "base/log_bins.h"
#include "base/str.h"
#include "scheduler/scheduler.h"
#include "tools/common/ports.h"

#include <jansson.h>
#include <sys/socket.h>

/* -- Answers (replay_answer.c) ---------------------------------------------------------------- */

enum { WEFT_REPLAY_HEAD_MAX = 16384 };

typedef enum weft_replay_read {
    WEFT_REPLAY_MORE,
    WEFT_REPLAY_DONE,
    WEFT_REPLAY_BAD
} weft_replay_read;

/* The head of an answer. */
typedef struct weft_replay_head {
    uint32_t status;
    bool close;      /* the server closes the connection */
    uint64_t length; /* of the body */
    size_t size;     /* of the head with its empty line */
    const char *why; /* after BAD */
} weft_replay_head;

/* Reads the head of an HTTP/1 answer from all bytes that came so far. Strict: CRLF, exactly one
 * Content-Length, no Transfer-Encoding, no interim answers. */
weft_replay_read weft_replay_read_head(const char *at, size_t len, weft_replay_head *out);

/* -- Counts (replay_counts.c) ----------------------------------------------------------------- */

/* Why a request has no answer with status 200. */
typedef enum weft_replay_fault {
    WEFT_REPLAY_REFUSED, /* status 429 or 503 */
    WEFT_REPLAY_CONNECT, /* no connection */
    WEFT_REPLAY_CLOSED,  /* the connection ended before the answer did */
    WEFT_REPLAY_TIMEOUT,
    WEFT_REPLAY_STATUS,   /* any other status */
    WEFT_REPLAY_PROTOCOL, /* not an answer of HTTP/1.1 */
    WEFT_REPLAY_FAULTS
} weft_replay_fault;

const char *weft_replay_fault_name(weft_replay_fault fault);

/* Times of one kind. */
typedef struct weft_replay_times {
    uint64_t n;
    double sum_ns;
    int64_t max_ns;
    uint64_t *bin; /* WEFT_LOG_FINE_N; NULL: none yet */
} weft_replay_times;

void weft_replay_add_time(weft_arena *arena, weft_replay_times *t, int64_t ns);
void weft_replay_add_times(weft_arena *arena, weft_replay_times *to, const weft_replay_times *from);
/* Nearest rank, in us; 0 without times. */
double weft_replay_percentile_us(const weft_replay_times *t, double part);

/* What a server's statistics say of the answers it gave: time in the queue and in the model. */
typedef struct weft_replay_inside {
    uint64_t n;
    double ns;
} weft_replay_inside;

typedef struct weft_replay_service {
    const char *name;
    bool app;
    double slo_us;
    weft_buf *message; /* requests as bytes, used in turn; none: it cannot be asked */
    uint32_t n_message, next_message;
    const char *why_none;
    weft_sim_counts count;
    uint64_t fault[WEFT_REPLAY_FAULTS];
    weft_replay_times latency; /* of answers, from the planned time */
    weft_replay_times sent;    /* of answers, from when they were sent */
    weft_replay_inside inside; /* of answers, in the server */
    weft_sim_counts bucket;
    uint32_t *coarse; /* of the time bucket: WEFT_LOG_COARSE_N */
} weft_replay_service;

typedef struct weft_replay_report {
    weft_replay_service *service;
    size_t n_service;
    int64_t warm_ns, bucket_ns, end_ns; /* bucket_ns 0: none */
    weft_replay_times lag;              /* how late the generator was */
    weft_replay_times wait;             /* from then to the time of sending: for a connection */
    uint64_t opened, most_open;         /* connections */
    WEFT_VEC(weft_sim_bucket) bucket;
} weft_replay_report;

/* A request that was planned for `planned_ns`. */
void weft_replay_count_request(weft_replay_report *r, uint32_t service, int64_t planned_ns);
void weft_replay_count_answer(weft_arena *arena, weft_replay_report *r, uint32_t service,
                              int64_t planned_ns, int64_t sent_ns, int64_t now_ns);
void weft_replay_count_fault(weft_replay_report *r, uint32_t service, int64_t planned_ns,
                             weft_replay_fault fault);
/* Closes the time buckets that end by now; with `last`, the one that has begun, too. */
void weft_replay_close_buckets(weft_arena *arena, weft_replay_report *r, int64_t now_ns, bool last);

/* -- Report (replay_report.c) ----------------------------------------------------------------- */

/* As text; `simulated`, the JSON of weft simulate, is compared with it unless NULL. */
void weft_replay_print(weft_arena *arena, const weft_replay_report *r, const json_t *simulated);
WEFT_MUST_USE weft_err weft_replay_to_json(weft_arena *arena, const weft_replay_report *r,
                                           const json_t *simulated, char **out);
WEFT_MUST_USE weft_err weft_replay_read_simulation(const char *path, weft_diag *diag, json_t **out);

/* -- The server (replay_models.c) ------------------------------------------------------------- */

typedef struct weft_replay_target {
    const char *text; /* as given */
    const char *host; /* for the Host field */
    struct sockaddr_storage address;
    socklen_t address_len;
    const char *key; /* for the Authorization field; NULL: none */
} weft_replay_target;

/* HOST:PORT, http://HOST:PORT or unix:PATH. */
WEFT_MUST_USE weft_err weft_replay_resolve(const char *text, weft_arena *arena, weft_diag *diag,
                                           weft_replay_target *out);
/* Asks the server for the inputs of each service and makes its requests: random, or from files. */
WEFT_MUST_USE weft_err weft_replay_make_messages(const weft_replay_target *to,
                                                 const weft_tool_bindings *input, uint64_t seed,
                                                 weft_arena *arena, weft_diag *diag,
                                                 weft_replay_report *r);

/* Adds what the server's statistics say now, times `sign`, to what is known of each service. A
 * server without statistics adds nothing. */
WEFT_MUST_USE weft_err weft_replay_add_inside(const weft_replay_target *to, int sign,
                                              weft_diag *diag, weft_replay_report *r);

/* -- Sending (replay_run.c) ------------------------------------------------------------------- */

typedef struct weft_replay_run_options {
    uint32_t connections, connections_max;
    int64_t timeout_ns, duration_ns; /* duration_ns 0: to the end of the arrivals */
} weft_replay_run_options;

WEFT_MUST_USE weft_err weft_replay_run(const weft_replay_target *to,
                                       const weft_replay_run_options *o, weft_arrivals *arrivals,
                                       weft_arena *arena, weft_diag *diag, weft_replay_report *r);

#endif
