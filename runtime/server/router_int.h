/* Shared by the router's files: models with their queues, workers with their batch. */
#ifndef WEFT_RUNTIME_SERVER_ROUTER_INT_H
#define WEFT_RUNTIME_SERVER_ROUTER_INT_H

#include "runtime/server/serve_int.h"

#include <sys/types.h>

enum { QUEUE_MAX = 4096, BATCH_REQUESTS_MAX = 256, ATTEMPTS_MAX = 3, WORKER_WORDS_MAX = 640 };
/* Parts of a joint program; combinations of sizes that are sent to it, as many as a session keeps
 * prepared. */
enum { JOINT_PARTS_MAX = 64, JOINT_KEPT_MAX = 16 };

typedef struct router_model {
    const weft_bundle_program *program;
    weft_request *head, *tail; /* in order of arrival */
    uint32_t n_queued;
    int64_t largest_bucket; /* rows; 1 when it cannot be batched */
    weft_model_stats stats;
} router_model;

/* Requests of one model that run together. */
typedef struct router_batch {
    uint32_t model;
    weft_request *request[BATCH_REQUESTS_MAX];
    uint32_t n;
    int64_t rows, padded_rows;
    uint64_t sent_ns;
} router_batch;

/* One part of a joint program: rows, 0: it is left empty; and what else tells its size. */
typedef struct joint_part {
    int64_t rows;
    uint64_t shape;
} joint_part;

/* A combination of sizes of all parts. */
typedef struct joint_size {
    joint_part *part;
    weft_wire_tensor *in; /* of all parts: dims */
    bool *ready;          /* by worker: it has prepared this */
    bool warm;            /* a bucket of the program: prepared when a worker starts */
    bool refused;         /* a worker could not prepare it: it is not run */
    uint32_t uses;
} joint_size;

typedef struct router_joint {
    const weft_bundle_program *program;
    weft_wire_tensor *empty; /* inputs of parts without rows; NULL: the program is not used */
    joint_size kept[JOINT_KEPT_MAX];
    uint32_t n_kept, n_worker;
} router_joint;

typedef enum worker_state {
    WORKER_WAITING,  /* to be started again at start_ns */
    WORKER_STARTING, /* process runs, sessions are being prepared */
    WORKER_IDLE,
    WORKER_BUSY
} worker_state;

typedef struct router_worker {
    weft_router *router;
    const weft_serve_slice *slice;
    bool *serves; /* by model */
    worker_state state;
    pid_t pid; /* 0: none that has not been waited for */
    int fd;
    uint64_t start_ns, backoff_ns;
    uint64_t ready_by_ns; /* STARTING: when it is taken for hung */
    uint64_t restarts, losses;
    bool lost;                  /* its device: since it ended last */
    bool spoke;                 /* this process said why it ends */
    bool says_lost;             /* because of its device */
    char why[WORKER_WORDS_MAX]; /* last words of the one before, until one is ready */
    /* What it runs: a batch of one model, or, by a joint program, one of each of its models, some
     * of them without requests. */
    uint64_t batch_id;
    router_joint *joint; /* NULL: one model's own program */
    bool prepares;       /* no batch: sizes of the joint program */
    router_batch *part;
    uint32_t n_part;
    router_batch *done; /* as many: what was answered, while `part` is filled again */
    /* Being sent. */
    weft_wire_head tx_head;
    weft_wire_tensor *tx_tensor;
    struct iovec *tx;
    uint32_t n_tx, at_tx;
    bool tx_blocked;
    /* Being received. */
    weft_wire_head rx_head;
    weft_wire_tensor *rx_tensor;
    uint8_t *rx_payload;
    uint64_t rx_got; /* bytes of head, tensors and payload together */
} router_worker;

struct weft_router {
    const weft_serve_options *options;
    weft_loop *loop;
    weft_bundle *bundle;
    router_model *model;
    router_joint *joint; /* by joint program */
    router_worker *worker;
    uint32_t n_worker;
    uint64_t next_id, restarts, joint_executions, next_scan_ns, timeout_ns, start_timeout_ns;
    uint32_t n_pending; /* accepted, not answered */
    bool draining;
    char failure[WORKER_WORDS_MAX];
};

/* -- Queues and batches (batch.c) ----------------------------------------------------------- */

/* Checks the request and sets its rows; false: it has been given an answer (not yet done). */
bool weft_batch__admit(weft_router *router, weft_request *request);
/* `again`: to where it stood before it was taken, so that it is not put before older ones. */
void weft_batch__push(router_model *model, weft_request *request, bool again);
void weft_batch__remove(router_model *model, weft_request *request);
/* Rows of the largest bucket that the requests at the head of the queue would fill; the first by
 * itself is filled up to one. 0: it runs alone. */
int64_t weft_batch__waiting(const router_model *model);
/* Fills `batch` from the model's queue: requests that fit together, oldest first, up to `most` rows
 * (the first in any case). */
void weft_batch__take(router_model *model, int64_t most, router_batch *batch);
/* Hands a worker's outputs to the requests of its batch; sets their answers. */
void weft_batch__give(const router_model *model, router_batch *batch,
                      const weft_wire_tensor *tensor, uint32_t n_tensor, const uint8_t *payload);
/* Counts a batch that was answered. */
void weft_batch__count(router_model *model, const router_batch *batch, const weft_wire_head *head,
                       uint64_t now_ns);

/* -- Joint programs (router_joint.c) -------------------------------------------------------- */

WEFT_MUST_USE weft_err weft_joint__create(weft_router *router);
void weft_joint__destroy(weft_router *router);
/* The joint program by which the worker should run the model, and others that have requests too and
 * that no other idle worker could take; `out`: the rows of each part. NULL: the model runs by
 * itself. */
router_joint *weft_joint__find(weft_router *router, const router_worker *worker, uint32_t model,
                               uint64_t now_ns, joint_part *out);
/* What to send of what waits to this worker, part `must` in any case; false: that part by itself.
 * Learns. */
bool weft_joint__choose(router_joint *joint, const joint_part *waiting, uint32_t must,
                        uint32_t worker, joint_part *out);
/* What an idle worker should prepare: the most frequent combination that it has not. NULL: none. */
const joint_size *weft_joint__unready(weft_router *router, const router_worker *worker,
                                      router_joint **out_joint);
/* The worker has prepared what has these inputs; or it cannot, and the combination is not run. */
void weft_joint__prepared(router_joint *joint, uint32_t worker, const weft_wire_tensor *in,
                          bool done);
/* A worker that has just started has prepared the buckets alone. */
void weft_joint__restarted(weft_router *router, uint32_t worker);

/* -- Workers (router_worker.c) -------------------------------------------------------------- */

void weft_worker__start(router_worker *worker);
/* Begins to send the batch that the worker holds. */
void weft_worker__send(router_worker *worker);
/* Has it prepare a combination of sizes, while it has nothing else to do. */
void weft_worker__prepare(router_worker *worker, router_joint *joint, const joint_size *size);
/* Kills the process and takes what it ran back into the queues. */
void weft_worker__fail(router_worker *worker);
/* As that, of one that took too long to prepare its models, or to answer. */
void weft_worker__expire(router_worker *worker);
void weft_worker__stop(router_worker *worker);

/* -- Back into the router (router.c) -------------------------------------------------------- */

void weft_router__set_answer(weft_request *request, weft_answer answer, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
/* Ends a request: counts it, calls done. */
void weft_router__finish(weft_router *router, weft_request *request);
/* May the model's queue be sent now? Not while a configured delay may still bring a fuller batch.
 */
bool weft_router__is_due(const weft_router *router, const router_model *model, uint64_t now_ns);
/* Something became possible: sends batches to idle workers. */
void weft_router__dispatch(weft_router *router);

#endif
