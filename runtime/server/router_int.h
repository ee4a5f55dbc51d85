/* Shared by the router's files, from the bottom up:
 *
 *   request.c           a request and its answer
 *   equal_inputs.c      requests whose inputs are equal
 *   batch.c             queues of models; requests that run together, as messages
 *   admission.c         which requests can be answered in time
 *   worker_channel.c    messages through the memory shared with a worker
 *   worker_process.c    process and socket of a worker; reports by events, knows no requests
 *   router_gain.c       whether running together is faster, by measured times
 *   router_joint.c      which models of a joint program run together
 *   router_heads.c      requests to several heads of a model about one input
 *   router_apps.c       which variant of an app answers a request
 *   router_models.c     bundles, their models, versions and weights
 *   router_status.c     questions about the router
 *   router_place.c      which worker serves which models
 *   router_ahead.c      the next batch of a worker that runs a short one
 *   router.c            hands queued requests to idle workers
 *   router_change.c     new workers beside the old ones, for another plan
 *
 * Everything runs on the loop's thread. */
#ifndef WEFT_RUNTIME_SERVER_ROUTER_INT_H
#define WEFT_RUNTIME_SERVER_ROUTER_INT_H

#include "runtime/server/live_int.h"
#include "runtime/server/serve_int.h"
#include "scheduler/scheduler.h"

#include <sys/types.h>

enum { QUEUE_MAX = 4096, BATCH_REQUESTS_MAX = 256, ATTEMPTS_MAX = 3, WORKER_WHY_MAX = 640 };
/* Parts of a joint program; size combinations of it that are tracked: as many as a session keeps
 * prepared. */
enum { JOINT_PARTS_MAX = 64, JOINT_KEPT_MAX = 16 };

/* -- Requests (request.c) ------------------------------------------------------------------- */

void weft_request__set_answer(weft_request *request, weft_answer answer, const char *fmt, ...)
    WEFT_PRINTF(3, 4);

/* -- Queues and batches (batch.c) ----------------------------------------------------------- */

/* Time from sending a batch of this bucket to its answer. */
typedef struct batch_time {
    int64_t rows;
    weft_batch_time took;
    double least_ns;
    bool first; /* measured once */
} batch_time;

enum { BATCH_TIMES_MAX = 64 };

typedef struct router_bundle router_bundle;

/* A place for a model: zeroed while it is free. */
typedef struct router_model {
    const weft_bundle_program *program; /* NULL: the place is free */
    const weft_bundle_program *packed;  /* for sequences of different lengths; NULL: none */
    const weft_bundle_program *family;  /* the same for several models; NULL: none */
    const weft_bundle_program *heads;   /* a model that gives its answers and those of others to one
                                         * input; NULL: none */
    router_bundle *bundle;
    char version[WEFT_VERSION_MAX];
    bool wanted;  /* it is to have workers */
    bool shown;   /* requests find it */
    bool planned; /* the plan that comes into force in steps names it */
    bool awaited; /* the change under way gives it a worker, and may take the one it has before */
    double weight, credit;            /* of the version; smooth weighted round robin */
    uint32_t n_held, n_use;           /* weft_router__hold, weft_router__begin_use */
    weft_request *head, *tail;        /* queue, in the order in which requests are due */
    double virtual_ns;                /* time of workers that it has had, from where it began */
    batch_time time[BATCH_TIMES_MAX]; /* ascending */
    uint32_t n_time;
    uint32_t n_queued;
    /* Rows of a batch at most, on any worker: of the largest bucket, or what the plan allows; 1
     * when the model cannot be batched. */
    int64_t largest_bucket;
    weft_model_stats stats;
    weft_offered own;       /* without requests to apps */
    weft_offered by_weight; /* of these, requests that named no version */
    const weft_live *live;  /* adapters of the router; NULL: none can be loaded */
    struct router_app *app; /* NULL: it is a model. An app has no queue and no workers */
    bool shares_equal;      /* requests with equal inputs are computed once */
    size_t row_bytes;       /* of an answer, for one row: the most so far */
} router_model;

/* Requests of one model that run together. */
typedef struct router_batch {
    uint32_t model;
    weft_request *request[BATCH_REQUESTS_MAX];  /* NULL: answered or moved before the batch was */
    int64_t request_rows[BATCH_REQUESTS_MAX];   /* that it adds to the run */
    int64_t request_length[BATCH_REQUESTS_MAX]; /* of its sequences, in a packed batch */
    int64_t request_row[BATCH_REQUESTS_MAX];    /* of the run: its first, in a batch not packed */
    /* Its inputs are those of another one, whose rows are its own: of the one before it, and it
     * adds none; or, in a batch of which all are equal, of one in the batch of another model. */
    bool is_equal[BATCH_REQUESTS_MAX];
    uint32_t n;
    int64_t equal_rows; /* of such requests */
    /* Adapters of requests that were taken out while the batch runs: its message has their
     * numbers, so that they keep their place in the store until the batch ends. */
    weft_live_adapter *left[BATCH_REQUESTS_MAX];
    uint32_t n_left;
    int64_t rows, padded_rows;
    int64_t packed_rows; /* of the bucket of a packed batch */
    uint64_t sent_ns;
    uint64_t ahead_ns; /* sent ahead: when; sent_ns is when the batch before was answered */
} router_batch;

/* -- Equal inputs (equal_inputs.c) -- */

/* What one turn of the loop is not too long for: bytes of inputs that are compared, and of answers
 * that are copied. */
enum { EQUAL_SLOTS = 2 * BATCH_REQUESTS_MAX, EQUAL_BYTES_MAX = 4 << 20 };

typedef struct equal_slot {
    const weft_bundle_program *program;
    weft_request *request; /* NULL: the slot is free */
} equal_slot;

/* Requests by their inputs. Valid while they stay where they are. */
typedef struct equal_table {
    equal_slot at[EQUAL_SLOTS]; /* not set while it is empty: most batches compare nothing */
    uint32_t n;
    size_t compared; /* bytes of inputs, at most EQUAL_BYTES_MAX */
} equal_table;

/* Whether equal inputs give equal answers: no operator of the program is random. */
bool weft_equal__is_repeatable(const weft_bundle *bundle, const weft_bundle_program *program);
/* An empty table, whose turn has compared so many bytes. */
void weft_equal__begin(equal_table *table, size_t compared);
/* The request in the table, to the program `of` (NULL: to any), whose inputs, matched by name, and
 * adapter are those of this one. NULL: none, or the request is to be computed by itself. */
weft_request *weft_equal__find(equal_table *table, const weft_bundle_program *of,
                               const router_model *model, weft_request *request);
/* Nothing is added that is to be computed by itself, and nothing beyond BATCH_REQUESTS_MAX. */
void weft_equal__add(equal_table *table, const router_model *model, weft_request *request);

/* The number of the model's adapter; 0: it has none of this name. *out_live: NULL: it is one of the
 * bundle. */
uint64_t weft_batch__find_adapter(const router_model *model, const char *name, size_t len,
                                  weft_live_adapter **out_live);
/* Checks the inputs of a request, sets its `rows` and its adapter. false: its answer is set. */
bool weft_batch__admit(const router_model *model, weft_request *request);
/* Inserts into the queue: before those that are due later, and of equal ones before those that
 * arrived later, which is where a request stood before it was taken. */
void weft_batch__push(router_model *model, weft_request *request);
void weft_batch__remove(router_model *model, weft_request *request);
/* Whether the queue, which is not empty, may be sent now: false while waiting up to delay_us (at
 * most a quarter of the model's SLO) may bring a fuller batch. */
bool weft_batch__is_due(const router_model *model, double delay_us, uint64_t now_ns);
/* Rows of the bucket at which a batch of so many rows runs. */
int64_t weft_batch__padded(const router_model *model, int64_t rows);
/* Rows of the bucket that the requests at the head of the queue will run at. 0: the first request
 * runs alone, or the queue is empty. *compared: that of an equal_table, in and out. */
int64_t weft_batch__waiting(const router_model *model, size_t *compared);
/* Moves requests of equal shapes from the queue, which is not empty, into `batch`, oldest first: up
 * to `most` rows, or a single larger request. */
void weft_batch__take(router_model *model, int64_t most, router_batch *batch);
/* A request of the batch, by `table`, with inputs equal to those of this one, which is to the model
 * and not in the batch; `of`: as of weft_equal__find. NULL: none, or the batch has no room for it.
 */
weft_request *weft_batch__find_equal(const router_batch *batch, const router_model *model,
                                     equal_table *table, const weft_bundle_program *of,
                                     weft_request *request);
/* Moves the request, which is not in a queue, into the batch: behind `as`, one of the batch with
 * equal inputs, or, NULL, at the end and into the table. */
void weft_batch__add(router_batch *batch, const router_model *model, equal_table *table,
                     const weft_request *as, weft_request *request);
/* Moves the requests of a batch back to where they stood. */
void weft_batch__put_back(router_model *model, router_batch *batch);
/* The request leaves the batch while its message is at a worker. */
void weft_batch__keep_adapter(router_batch *batch, const weft_request *request);
/* The worker has answered the batch, or is gone. */
void weft_batch__end(router_batch *batch);
/* Outputs that no request of the batch asks for. */
uint64_t weft_batch__skipped(const router_batch *batch);
/* One input of a batch of the program: the rows of its requests, then its last row once for each
 * row of padding. `empty`: the input when the batch has no requests. */
void weft_batch__compose_input(const router_batch *batch, const weft_bundle_program *program,
                               uint32_t input, const weft_wire_tensor *empty,
                               weft_wire_tensor *out_tensor, weft_wire_out *out);
/* Composes the inputs of the batches, one part after the other, into a message of kind RUN.
 * `model`: all of the router's. `empty`: inputs of the joint program's parts without requests;
 * NULL: one batch of one model. The data stays with the requests. false: out of memory. */
bool weft_batch__compose(const router_model *model, const router_batch *batch, uint32_t n_batch,
                         const weft_wire_tensor *empty, weft_wire_out *out);
/* Gives a worker's outputs to the requests of the batch and sets their answers. `owner`: what
 * `payload` is in, for requests to refer to instead of copying; NULL: they copy. */
void weft_batch__give(router_model *model, router_batch *batch, const weft_wire_tensor *tensor,
                      uint32_t n_tensor, const uint8_t *payload, weft_payload *owner);
/* Adds the times of an answered request to the statistics of its model, or of an app. */
void weft_batch__count_times(weft_model_stats *stats, const weft_request *request);
/* The same with a request that ends, `took_ns` after its arrival, whatever its answer. */
void weft_batch__count_end(weft_model_stats *stats, const weft_request *request, uint64_t took_ns);
/* How long the worker had an answered batch. */
uint64_t weft_batch__took_ns(const router_batch *batch, const weft_wire_head *head,
                             uint64_t now_ns);
/* Adds an answered batch to the statistics of its model and requests. */
void weft_batch__count(router_model *model, const router_batch *batch, const weft_wire_head *head,
                       uint64_t now_ns);

/* -- Admission (admission.c) ------------------------------------------------------------------ */

/* Adds the time of an answered batch of a bucket. */
void weft_admission__learn(router_model *model, int64_t rows, uint64_t took_ns);
/* Expected time of a batch with so many rows. 0: not known. */
uint64_t weft_admission__batch_ns(const router_model *model, int64_t rows);
/* The least time that a batch of so many rows has taken, since the server started. */
uint64_t weft_admission__least_ns(const router_model *model, int64_t rows);
/* Sets when the request, which has arrived, is due, and whether that is a promise. */
void weft_admission__promise(const weft_router *router, weft_request *request);
/* Whether the queue of one model goes before that of another; neither is empty. */
bool weft_admission__goes_first(const router_model *a, const router_model *b, uint64_t now_ns);
/* Before a request is put into the queue: a model that was idle has saved nothing. */
void weft_admission__enter(const weft_router *router, router_model *model);
/* The model gets a worker for a batch of so many rows. */
void weft_admission__charge(weft_router *router, router_model *model, int64_t rows);
/* The queue of a model, for decisions. Valid until the queue changes. */
weft_line weft_admission__line(const router_model *model);
/* When a request for the model that is due then would be answered. */
weft_forecast weft_admission__forecast(const weft_router *router, uint32_t model, uint64_t due_ns,
                                       int64_t rows, uint64_t now_ns);
/* Whether the request can be answered before it is due, as far as is known. false: by how much it
 * would be late. */
bool weft_admission__can_meet(const weft_router *router, const weft_request *request,
                              uint64_t now_ns, uint64_t *out_late_ns);

/* What to do with the queue, which is not empty, before a batch of at most `most` rows is taken. */
weft_line_choice weft_admission__choose(const router_model *model, int64_t most, uint64_t now_ns);

/* -- Processes of workers (worker_process.c) ------------------------------------------------ */

typedef enum worker_state {
    WORKER_WAITING,  /* no process; starts at start_ns */
    WORKER_STARTING, /* the process prepares its models */
    WORKER_IDLE,
    WORKER_BUSY /* a message was sent, its answer has not come */
} worker_state;

/* What a process reports. `user` is the process's. */
typedef struct worker_events {
    /* The process has prepared its models; it is idle. May send. */
    void (*on_ready)(void *user);
    /* The answer to the message sent last. The pointers are valid during the call, which may not
     * send. After an error the payload is its text, NUL-terminated. */
    void (*on_answer)(void *user, const weft_wire_head *head, const weft_wire_tensor *tensor,
                      const uint8_t *payload);
    /* After on_answer: the process is idle, or runs the message that was sent ahead. May send. */
    void (*on_idle)(void *user);
    /* The process ended or was killed, and waits for its restart; its `why` is set when it was
     * `starting`. The answer to a message that was sent will not come. */
    void (*on_end)(void *user, bool starting);
} worker_events;

typedef struct worker_process {
    /* Set by the owner, constant. */
    const worker_events *events;
    void *user;
    weft_loop *loop;
    const weft_serve_options *options;
    const weft_serve_slice *slice;
    const weft_bundle *bundle;
    const char *bundle_path; /* for messages */
    const bool *serves;      /* by model of the bundle */
    int adapters_fd;         /* weft_live__fd */
    uint64_t start_timeout_ns, stall_timeout_ns;
    int bundle_fd;
    weft_pulse *pulse; /* NULL: not watched */
    int pulse_fd;
    weft_channel *channel; /* NULL: all messages go over the socket */
    int channel_fd;
    size_t to_worker, to_router; /* sizes of its boxes */
    uint32_t outputs_max;        /* of an answer in the channel: room in channel_tensor */
    weft_wire_tensor *channel_tensor;
    weft_look look; /* for answers */

    worker_state state;
    pid_t pid; /* 0: none that has not been waited for */
    int fd;    /* -1: no process */
    uint64_t start_ns, backoff_ns;
    uint64_t ready_by_ns; /* STARTING: after this time the process counts as hung */
    uint64_t ready_ns;    /* when it became ready; 0: it is not */
    /* The pulse: its last value, when it changed and when it was looked at; stall_ns: since when it
     * counts as missed, 0: it does not. */
    uint64_t beats, beat_ns, checked_ns, stall_ns;
    uint64_t continued_ns; /* when it was continued after a signal stopped it; 0: never */
    bool stopped;          /* ended for good */
    uint64_t kill_ns;      /* after this time a process that was let go is killed */
    uint64_t restarts;
    uint64_t losses;          /* restarts because the device was lost */
    bool lost;                /* the device was lost when the process before this one ended */
    bool reported;            /* this process has reported why it ends */
    bool reports_lost;        /* it has reported that its device is lost */
    char why[WORKER_WHY_MAX]; /* last report; "": none, or a process became ready since */
    weft_wire_out tx;
    bool tx_blocked;   /* the socket took a part of it; the rest waits for EPOLLOUT */
    bool tx_shared;    /* it went through the channel */
    uint32_t n_bell;   /* messages of kind BELL since the last answer */
    uint64_t tx_ns;    /* when it was sent */
    uint64_t moved_ns; /* when the socket last took some of it */
    uint64_t ahead_id; /* of a message that was sent after it, before its answer; 0: none */
    uint64_t early_ns; /* when the answer to that message was there first; 0: it is not */
    /* Message being received. */
    weft_wire_head rx_head;
    weft_wire_tensor *rx_tensor;
    weft_payload *rx_payload;
    uint64_t rx_got; /* bytes of head, tensors and payload together */
} worker_process;

/* Starts the process. It stays WAITING when that is not possible now. */
void weft_worker__start(worker_process *worker);
/* Sends a message to an idle process and frees it when it is answered. May call on_end. */
void weft_worker__send(worker_process *worker, const weft_wire_out *message);
/* Whether the process is taking a large message, of which some is left. */
bool weft_worker__is_taking(const worker_process *worker, uint64_t now_ns);
/* Whether a busy process takes another message before it has answered. */
bool weft_worker__takes_ahead(const worker_process *worker);
/* Sends it, and frees it. May call on_end. false: it is too large. */
bool weft_worker__send_ahead(worker_process *worker, weft_wire_out *message);
/* Kills the process; on_end is called. */
void weft_worker__fail(worker_process *worker);
/* The same for a process that took too long to prepare its models or to answer, or that is stalled.
 */
void weft_worker__expire(worker_process *worker);
/* Looks at the pulse: sets `stall_ns`, continues a stopped process. false: it is to be ended. */
bool weft_worker__check_pulse(worker_process *worker, uint64_t now_ns);
/* Ends the process for good; no event. */
void weft_worker__stop(worker_process *worker);
/* The same without waiting: closes its socket, so that it releases its GPU by itself, and kills it
 * if it has none or that takes too long; to be called again until it returns true: the process has
 * ended. The kernel takes long to end one with much memory. */
bool weft_worker__let_go(worker_process *worker);

/* Whether an answer is to come through the channel. */
bool weft_worker__awaits(const worker_process *worker);
/* Handles an answer in the channel. false: there is none. */
bool weft_worker__take(worker_process *worker);

/* -- Channels of workers (worker_channel.c) ------------------------------------------------- */

/* Makes the memory to share with the process; without it all messages go over the socket. */
void weft_worker__open_channel(worker_process *worker);
void weft_worker__close_channel(worker_process *worker);
/* Sends `tx` through the channel; out_failed: the bell could not be rung. false: it has to go over
 * the socket. */
bool weft_worker__share(worker_process *worker, bool *out_failed);
/* The same for `message`, while `tx` is not answered. false: it does not fit. */
bool weft_worker__share_ahead(worker_process *worker, const weft_wire_out *message,
                              bool *out_failed);
/* Whether the answer in the channel is that to the message sent ahead. */
bool weft_worker__is_early(const worker_process *worker);
/* Reads the answer in the channel: its tensors are in channel_tensor. false: malformed. */
bool weft_worker__read_answer(worker_process *worker, weft_wire_head *head,
                              const uint8_t **out_payload);

/* -- Answers in shared memory (router_look.c) ----------------------------------------------- */

/* Takes what has come for any worker of the router. */
bool weft_router__take_shared(void *router);
/* Makes the channels the source of the router's loop. */
void weft_router__watch_channels(weft_router *router);

/* -- Packed batches (router_packed.c) ------------------------------------------------------- */

/* The packed program of a model, or that of its family; NULL: there is none. */
const weft_bundle_program *weft_batch__find_packed(const weft_bundle *bundle, uint32_t model,
                                                   bool family);
/* The smallest bucket of at least `rows` rows; 0: none. */
int64_t weft_batch__packed_bucket(const weft_bundle_program *packed, int64_t rows);
/* Numbers in the array of places of a run. */
size_t weft_batch__count_places(const weft_bundle_program *packed);
/* Takes requests with at most `most` sequences from the head of the queue. false: none, because
 * they are of one length. */
bool weft_batch__take_packed(const weft_bundle_program *packed, router_model *model, int64_t most,
                             router_batch *batch);
struct joint_query;
/* Takes requests of the models of a family, one batch for each part: first of the model that has to
 * run, then as they are due. false: none, because no second model has requests that are due, or the
 * first request does not fit. `model`: all of the router's. */
bool weft_batch__take_family(const weft_bundle_program *family, const struct joint_query *query,
                             router_model *model, router_batch *batch);
/* The message that runs the batches, one for each part; `places` must stay until it is sent. false:
 * out of memory. */
bool weft_batch__compose_packed(const weft_bundle_program *packed, const router_batch *batch,
                                int64_t *places, weft_wire_out *out);
/* As weft_batch__give, for the batches of all parts. */
void weft_batch__give_packed(const weft_bundle_program *packed, router_batch *batch,
                             const weft_wire_tensor *tensor, uint32_t n_tensor,
                             const uint8_t *payload);

/* -- Measured times (router_gain.c) ----------------------------------------------------------- */

enum { GAIN_SIZES = 64 };

/* Running means of runs of nearly equal sizes. */
typedef struct gain_time {
    double size, time_ns;
    uint32_t n; /* of these runs, up to a limit */
} gain_time;

/* What was chosen at a size. */
typedef struct gain_choice {
    bool apart;
    uint32_t n, since; /* choices, up to a limit; since the last trial of the other way */
} gain_choice;

/* What is known of a program on a worker; the choices are of programs of several models or lengths.
 */
typedef struct router_gain {
    gain_time time[GAIN_SIZES];
    gain_choice choice[GAIN_SIZES];
    double gain; /* running mean of the time apart by that together; 0: not known */
    uint64_t n_apart, n_trial;
} router_gain;

/* A run of this size, in elements or rows, took so long. */
void weft_gain__learn(router_gain *gain, int64_t size, double took_ns);
/* The expected time of a run; 0: not known. */
double weft_gain__time(const router_gain *gain, int64_t size);
/* Whether requests run together by this program, at this size. `apart_ns`: what they would take
 * apart; 0: not known. */
bool weft_gain__choose(router_gain *gain, int64_t size, double apart_ns);

/* -- Joint programs (router_joint.c) -------------------------------------------------------- */

/* Size of one part of a joint program. */
typedef struct joint_part {
    int64_t rows;   /* 0: the part is left empty */
    uint64_t shape; /* hash of the other dims of its inputs */
} joint_part;

/* A combination of sizes of all parts, with its counter of Misra and Gries. */
typedef struct joint_size {
    joint_part *part;
    weft_wire_tensor *in; /* of all parts: dtype and dims */
    bool *ready;          /* by worker: has prepared it */
    bool is_bucket;       /* of the program: prepared whenever a worker starts */
    bool failed;          /* a worker could not prepare it: never selected */
    uint32_t uses;
} joint_size;

typedef struct router_joint {
    const weft_bundle_program *program;
    uint32_t first;          /* the router's model that is model 0 of the bundle */
    weft_wire_tensor *empty; /* inputs of parts without rows; NULL: the program is not used */
    joint_size kept[JOINT_KEPT_MAX];
    uint32_t n_kept, n_worker;
} router_joint;

/* A worker as the router sees it, and what it runs or prepares: a batch of one model or, by a joint
 * program, one batch for each part, some of them without requests. */
typedef struct router_worker {
    weft_router *router;
    router_bundle *bundle; /* NULL: none, the place has retired */
    worker_process process;
    bool *serves;                      /* by model of the router; only models of its bundle */
    int64_t *most;                     /* by model: rows of a batch at most */
    router_joint *joint;               /* NULL: one model's own program, or its packed one */
    const weft_bundle_program *packed; /* of the model or its family; NULL: not packed */
    const weft_bundle_program *heads;  /* whose heads the batches are for; NULL: not so */
    router_gain *gain;      /* by program of the bundle; NULL: it has no joint ones; owned */
    int64_t size;           /* of the run, for its measured time; 0: that is not needed */
    int64_t *places;        /* positions, starts and parts of the packed batch */
    bool prepares;          /* prepares the sizes `prepare_in` of the joint program; no batch */
    uint64_t prepare_by_ns; /* after this time it counts as hung */
    weft_wire_tensor *prepare_in;
    router_batch *part;
    uint32_t n_part;        /* 0: no batch */
    router_batch *ahead;    /* as many as `part`; the first was sent behind it */
    uint32_t n_ahead;       /* 0 or 1 */
    bool separate;          /* the answered batch failed: each request is to run alone */
    bool broken;            /* its message lost data: it is to be ended */
    bool outgoing;          /* not needed after the change: retires when nothing needs it */
    bool retiring;          /* gets no more batches, and ends after the present one */
    bool retired;           /* has ended for good: the place is free, and serves no model */
    router_batch *answered; /* as many as `part`: filled in turn with it */
    uint32_t n_answered;    /* of them are being answered */
} router_worker;

/* What the selection of a joint program reads. */
typedef struct joint_query {
    const router_model *model; /* all of the router's */
    const router_worker *worker;
    uint32_t n_worker;
    uint32_t at;     /* the idle worker to find work for */
    uint32_t must;   /* model that has to run */
    double delay_us; /* see weft_batch__is_due */
    uint64_t now_ns;
} joint_query;

/* What the worker has measured of a program of its bundle, which has joint ones. */
router_gain *weft_gain__of(const router_worker *worker, const weft_bundle_program *program);
/* Elements of the first input of so many rows like the request's, as the model runs them. */
int64_t weft_gain__size(const router_model *model, const weft_request *request, int64_t rows);
/* Whether the packed batch that the worker has, or the sizes that were selected of its joint
 * program, should run; sets the worker's `size`. */
bool weft_gain__keeps_packed(const weft_router *router, router_worker *worker);
bool weft_gain__keeps_joint(const weft_router *router, router_worker *worker,
                            const joint_part *part);
/* The same for the batches of heads that it has. */
bool weft_gain__keeps_heads(const weft_router *router, router_worker *worker);

/* -- Heads (router_heads.c) ------------------------------------------------------------------- */

/* The program with most heads, one of them the model, by which a batch of the model may run. NULL:
 * none. */
const weft_bundle_program *weft_heads__find(const weft_bundle *bundle, uint32_t model);
/* Takes a batch of the model that must run, and requests to other heads of the program with equal
 * inputs: a batch for each head. false: there are none, and nothing is taken. `model`: all of the
 * router's. */
bool weft_batch__take_heads(const weft_bundle_program *program, const joint_query *query,
                            router_model *model, int64_t most, router_batch *batch);
/* As weft_batch__compose. */
bool weft_batch__compose_heads(const weft_bundle_program *program, const router_model *model,
                               const router_batch *batch, weft_wire_out *out);

/* The joint programs of a bundle. */
typedef struct joint_set {
    router_joint *at;
    uint32_t n;
} joint_set;

/* On an error the set is to be destroyed as well. */
WEFT_MUST_USE weft_err weft_joint__create(const weft_bundle *bundle, uint32_t first,
                                          uint32_t n_worker, joint_set *out);
void weft_joint__destroy(joint_set *set);
/* Whether requests of the model may run with those of another on this worker: they are due, the
 * worker serves the model, and no other idle worker does. */
bool weft_joint__can_join(const joint_query *query, uint32_t model);
/* The joint program that should run the model together with others whose requests are due and that
 * no other idle worker serves; `out`: the size of each part. NULL: the model runs by itself. */
router_joint *weft_joint__find(joint_set *set, const joint_query *query, joint_part *out);
/* Selects the sizes to send to `worker`, of those `waiting`, part `must` among them, and counts the
 * combination. false: part `must` runs by its own program. */
bool weft_joint__select(router_joint *joint, const joint_part *waiting, uint32_t must,
                        uint32_t worker, joint_part *out);
/* The most used combination that an idle worker has not prepared. NULL: none. */
const joint_size *weft_joint__unprepared(joint_set *set, const router_worker *worker, uint32_t at,
                                         router_joint **out_joint);
/* The worker has prepared the combination with these inputs; or, !done, it could not. */
void weft_joint__set_prepared(router_joint *joint, uint32_t worker, const weft_wire_tensor *in,
                              bool done);
/* A worker that has just started has prepared only the buckets of programs whose models it all
 * serves. */
void weft_joint__reset_worker(joint_set *set, const router_worker *worker, uint32_t at);

/* -- Apps (router_apps.c) ------------------------------------------------------------------- */

/* Makes the app of a place whose program and bundle are set. NULL: no memory. */
struct router_app *weft_served_app__create(const weft_bundle *bundle, const weft_bundle_app *app);
void weft_served_app__destroy(struct router_app *app); /* NULL is allowed */
/* Whether its variants take the same requests; else a warning has said so. */
bool weft_served_app__is_servable(const struct router_app *app);
/* Whether something holds for a variant of the app. */
bool weft_served_app__any(const weft_router *router, uint32_t model,
                          bool (*holds)(const weft_router *router, uint32_t variant));
/* Sets the variant as the request's model. false: its answer is set. */
bool weft_served_app__choose(weft_router *router, weft_request *request);
/* Whether some variant is ready and goes on to be served when the change under way is over. */
bool weft_served_app__stays(const weft_router *router, uint32_t app);
/* Whether the model only answers requests to apps, each of which has another variant that holds. */
bool weft_served_app__can_lose(const weft_router *router, uint32_t model,
                               bool (*holds)(const weft_router *router, uint32_t variant));
/* Counts a request that ends. */
void weft_served_app__count(weft_router *router, const weft_request *request, uint64_t took_ns);

/* -- Batches sent ahead (router_ahead.c) ---------------------------------------------------- */

/* Sends a batch of the model to busy workers, for when they have answered, where that delays
 * nobody.
 */
void weft_router__send_ahead(weft_router *router, uint32_t model);
/* The worker has answered: what was sent ahead is what it runs. */
void weft_router__advance(router_worker *w, uint64_t now_ns);
/* Batches that the worker has not answered, that sent ahead included. */
uint32_t weft_router__count_batches(const router_worker *w);
router_batch *weft_router__batch(const router_worker *w, uint32_t i);
/* Whether the worker may have begun batch i: one sent ahead is begun after the one before was
 * answered, and the answer may not have been taken yet. */
bool weft_router__has_begun(const router_worker *w, uint32_t i);

/* -- Router (router.c) ---------------------------------------------------------------------- */

/* The slices of a plan. */
typedef struct router_slices {
    const weft_serve_slice *at;
    uint32_t n;
} router_slices;

struct weft_router {
    weft_spans *spans; /* NULL: none */
    weft_live *live;   /* adapters; NULL: none can be loaded */
    const weft_serve_options *options;
    weft_loop *loop;
    weft_offload *offload;        /* frees bundles; NULL: the loop does */
    const worker_events *events;  /* of all workers */
    router_bundle *bundles;       /* a list */
    router_model *model;          /* places; those of a bundle stand side by side */
    uint32_t *key;                /* by place: weft_router__set_key */
    uint32_t n_model, model_room; /* places in use at some time; all places */
    router_worker *worker;
    uint32_t n_worker, worker_room; /* places in use at some time; all places */
    struct router_change *change;   /* NULL: the plan cannot change */
    uint64_t next_id, restarts, joint_executions, joint_rows, packed_executions, heads_executions;
    uint64_t adapter_reads; /* times that a worker did not have an adapter in memory */
    uint64_t next_scan_ns, timeout_ns;
    uint32_t n_pending;   /* accepted, not answered */
    router_slices slices; /* in force */
    bool *shares;         /* by model: scratch of admission.c */
    weft_line *line;      /* the same */
    double virtual_ns;    /* of the model that got a worker last, when it did */
    bool leaving, draining;
    weft_loop_source source; /* answers in shared memory */
    char failure[WORKER_WHY_MAX];
};

/* -- Bundles (router_models.c) -------------------------------------------------------------- */

/* A bundle that is open. Its program k is model first + k of the router. */
struct router_bundle {
    char *path; /* owned; as it was named */
    char *file; /* owned; the absolute path, when it was opened */
    int fd;     /* its bytes do not change; every worker maps it */
    weft_bundle *bundle;
    uint64_t *memory; /* by model of the bundle: weft_bundle_count_memory; owned */
    uint32_t first;
    joint_set joints;
    bool spreads; /* models that no slice names are served on every slice */
    weft_job job; /* frees it beside the loop */
    router_bundle *next;
};

/* Gives the models of the bundle places: wanted and not shown. On success the bundle belongs to the
 * router. */
WEFT_MUST_USE weft_err weft_router__add_bundle(weft_router *router, router_bundle *bundle,
                                               const weft_serve_bundle *as, weft_diag *diag);
/* Has requests find its wanted models. INPUT: another bundle has one under the same version. */
WEFT_MUST_USE weft_err weft_router__show(weft_router *router, router_bundle *bundle,
                                         weft_diag *diag);
/* Sets the key of the model's name. Requests are looked up by keys first: with many models their
 * names would fill the cache. */
void weft_router__set_key(weft_router *router, uint32_t model);
/* Frees the places of its models, and the bundle. */
void weft_router__remove_bundle(weft_router *router, router_bundle *bundle);
/* Removes bundles whose models are neither wanted nor held, and that have no worker. Whether some
 * are left that are not wanted. */
bool weft_router__remove_unused(weft_router *router);

/* -- Workers and their models (router_place.c) ---------------------------------------------- */

/* Makes a worker of the place: its process starts in the loop's next round. On an error the place
 * is to be closed. */
WEFT_MUST_USE weft_err weft_router__open_worker(weft_router *router, router_worker *w,
                                                const router_slices *slices, uint32_t slice,
                                                router_bundle *bundle, weft_diag *diag);
void weft_router__close_worker(router_worker *w);
/* Whether the model is placed on slice i: by its name or, when no slice names it, on all slices
 * if its bundle spreads. */
bool weft_router__is_placed(const weft_router *router, const router_slices *slices, uint32_t i,
                            uint32_t model);
/* Whether a slice names the model. */
bool weft_router__names(const router_slices *slices, const char *model);
/* Whether a wanted model of the bundle is placed on slice i. */
bool weft_router__has_place(const weft_router *router, const router_slices *slices, uint32_t i,
                            const router_bundle *bundle);
/* INPUT: no bundle has a model that a slice names, unless `known` has a slice that names it, too;
 * or a bundle lacks the bucket of a planned batch. */
WEFT_MUST_USE weft_err weft_router__check_slices(const weft_router *router,
                                                 const router_slices *slices,
                                                 const router_slices *known, weft_diag *diag);
/* Sets which models a worker serves, and in what batches, from slice i. What it has served and is
 * not wanted any more it goes on to serve. */
void weft_router__set_served(weft_router *router, router_worker *worker,
                             const router_slices *slices, uint32_t i);
/* Sets the largest batch of each model to that of its workers. */
void weft_router__limit_batches(weft_router *router);
/* The slice of a worker that has none of its own: all CPUs. */
extern const weft_serve_slice weft_router__whole;

#endif
