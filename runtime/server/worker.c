/* A worker: the process of one slice. Opens the bundle, prepares its models, then runs the batches
 * that arrive over the socket, one at a time, until the router closes it. Run as
 *
 *   EXE --worker FD BUNDLE_FD PULSE_FD CHANNEL_FD,BYTES,BYTES NAME CPU,CPU|-
 * FIRST_SM,N_SM,BYTES,MEMORY STORE_FD,BYTES MODEL...
 *
 * CHANNEL_FD: -1: none; with the sizes of its boxes (weft_channel__open). NAME: of the bundle, for
 * messages. N_SM 0: all SMs; BYTES: limit for arenas, 0: none. MEMORY: worker_memory of
 * weft_serve_options. STORE_FD: of adapters (live_int.h), -1: none; with the memory that adapters
 * may have. */
#include "base/file.h"
#include "base/str.h"
#include "runtime/server/live_int.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS_MAX = 1024, IOV_MOST = 64, LOOKS = 64 /* at the channel, for each at the clock */ };

typedef struct worker {
    int fd;
    weft_channel *channel; /* NULL: none */
    weft_look look;        /* for batches in the channel */
    weft_engine *engine;
    weft_resident *adapters;
    weft_session **session; /* by program, joint programs included; NULL: not served */
    uint8_t *payload;
    size_t payload_cap;
    /* Inputs of a batch in the channel; as many as any program has. */
    weft_wire_tensor *tensor;
    weft_tensor *in;
    uint32_t inputs_max;
    bool lost;             /* the device is lost */
    bool starved;          /* there was no memory for a message */
    uint64_t memory_bytes; /* limit; 0: none */
    weft_diag *diag;
} worker;

/* -- Socket --------------------------------------------------------------------------------- */

static bool send_text(int fd, weft_wire_head head, const char *text)
{
    head.magic = WEFT_WIRE_MAGIC;
    head.n_tensor = 0;
    head.payload_bytes = strnlen(text, WEFT_WIRE_TEXT_MAX);
    return weft_file_put(fd, &head, sizeof head) == 0 &&
           weft_file_put(fd, text, head.payload_bytes) == 0;
}

/* Sends the first error of the diagnostics, with its notes. */
static bool send_error(worker *w, weft_wire_head head, weft_err err)
{
    weft_buf text = {0};
    for (size_t i = 0; i < weft_diag_count(w->diag); i++) {
        const weft_message *m = weft_diag_at(w->diag, i);
        if (i > 0 && m->severity != WEFT_SEV_NOTE)
            break;
        weft_buf_printf(&text, "%s%s", i ? "; " : "", m->text);
    }
    if (err == WEFT_ERR_NOMEM && w->memory_bytes)
        weft_buf_printf(&text, "%s; a worker may allocate %llu bytes (--worker-memory)",
                        text.len ? "" : weft_err_text(err), (unsigned long long)w->memory_bytes);
    head.err = err;
    bool ok = send_text(w->fd, head, text.at ? text.at : weft_err_text(err));
    weft_buf_finish(&text);
    return ok;
}

/* -- Batches -------------------------------------------------------------------------------- */

/* Writes all chunks of a message into the socket. */
static bool write_message(int fd, weft_wire_out *out)
{
    out->iov[0] = (struct iovec){.iov_base = &out->head, .iov_len = sizeof out->head};
    out->iov[1] = (struct iovec){.iov_base = out->tensor,
                                 .iov_len = out->head.n_tensor * sizeof *out->tensor};
    while (out->at_iov < out->n_iov) {
        uint32_t n = out->n_iov - out->at_iov;
        ssize_t sent = writev(fd, out->iov + out->at_iov, n > IOV_MOST ? IOV_MOST : (int)n);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        weft_wire__advance(out, (size_t)sent);
    }
    return true;
}

/* Sends a message through the channel. false: it does not fit. */
static bool share(worker *w, const weft_wire_out *out, bool *out_ok)
{
    static const weft_wire_head bell = {.magic = WEFT_WIRE_MAGIC, .kind = WEFT_WIRE_BELL};
    size_t room = 0;
    uint8_t *box = weft_channel__room(w->channel, &room);
    if (!weft_wire__write(out, box, room, 1))
        return false;
    *out_ok = !weft_channel__post(w->channel) || weft_file_put(w->fd, &bell, sizeof bell) == 0;
    return true;
}

/* `shared`: the batch came through the channel, and so goes the answer if it fits. */
static bool send_outputs(worker *w, weft_wire_head head, const weft_tensor *out, uint32_t n,
                         bool shared)
{
    weft_wire_out message;
    if (!weft_wire__begin(&message, WEFT_WIRE_DONE, n, n))
        return !(w->starved = true);
    head.n_tensor = n;
    head.payload_bytes = 0;
    message.head = head;
    for (uint32_t i = 0; i < n; i++) {
        weft_wire_tensor *t = &message.tensor[i];
        *t = (weft_wire_tensor){.dtype = out[i].dtype, .rank = out[i].rank};
        memcpy(t->dim, out[i].dim, sizeof t->dim);
        if (weft_tensor_bytes(&out[i]) > 0)
            weft_wire__add_chunk(&message, out[i].data, weft_tensor_bytes(&out[i]));
    }
    bool ok = false;
    if (!shared || !share(w, &message, &ok))
        ok = write_message(w->fd, &message);
    weft_wire__free(&message);
    return ok;
}

static void take_dims(const weft_wire_tensor *t, weft_tensor *out)
{
    *out = (weft_tensor){.dtype = (weft_dtype)t->dtype, .rank = t->rank};
    memcpy(out->dim, t->dim, sizeof out->dim);
}

/* Reads the data of the inputs into the payload buffer, each at a multiple of 64 bytes. */
static bool read_inputs(worker *w, const weft_wire_tensor *t, uint32_t n, weft_tensor *in)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        take_dims(&t[i], &in[i]);
        total += (weft_tensor_bytes(&in[i]) + 63) / 64 * 64;
    }
    if (total > w->payload_cap) {
        free(w->payload);
        w->payload_cap = 0;
        w->payload = aligned_alloc(64, total);
        if (!w->payload)
            return !(w->starved = true);
        w->payload_cap = total;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        in[i].data = w->payload + at;
        if (!weft_file_get(w->fd, in[i].data, weft_tensor_bytes(&in[i])))
            return false;
        at += (weft_tensor_bytes(&in[i]) + 63) / 64 * 64;
    }
    return true;
}

/* The session that a message is for; NULL: none, or its number of inputs differs. */
static weft_session *find_session(const worker *w, const weft_wire_head *head)
{
    const weft_bundle *bundle = weft_engine_bundle(w->engine);
    uint32_t n_program = bundle->n_program + bundle->n_joint;
    weft_session *s = head->model < n_program ? w->session[head->model] : NULL;
    return s && head->n_tensor == weft_session_program(s)->n_input + (head->adapted != 0) ? s
                                                                                          : NULL;
}

/* Prepares the session for inputs of the message's dims. false: the router is gone, or its message
 * is malformed. */
static bool prepare_sizes(worker *w, weft_wire_head head)
{
    weft_session *session = find_session(w, &head);
    weft_wire_tensor *t = calloc(head.n_tensor + 1, sizeof *t);
    weft_tensor *in = calloc(head.n_tensor + 1, sizeof *in);
    bool ok = session && t && in && head.payload_bytes == 0 &&
              weft_file_get(w->fd, t, head.n_tensor * sizeof *t);
    for (uint32_t i = 0; ok && i < head.n_tensor; i++) {
        take_dims(&t[i], &in[i]);
        ok = t[i].rank >= 0 && t[i].rank <= WEFT_RANK_MAX;
    }
    if (ok) {
        weft_diag_clear(w->diag);
        weft_err err = weft_session_prepare(session, in, head.n_tensor, w->diag);
        head.kind = WEFT_WIRE_DONE;
        ok = err == WEFT_ERR_OK ? send_text(w->fd, head, "") : send_error(w, head, err);
    }
    free(t);
    free(in);
    return ok;
}

/* The session gets the adapters of the message's rows; head->n_tensor is then that of its inputs,
 * and head->adapted how many adapters were read. */
static weft_err take_adapters(worker *w, weft_session *session, weft_wire_head *head,
                              const weft_tensor *in)
{
    if (!head->adapted)
        return weft_session_adapt(session, NULL, 0, w->diag);
    const weft_tensor *of = &in[--head->n_tensor];
    head->adapted = 0;
    if (of->dtype != WEFT_DTYPE_U64 || of->rank != 1 || of->dim[0] > UINT32_MAX)
        return WEFT_ERR_INPUT;
    uint32_t n = (uint32_t)of->dim[0];
    WEFT_TRY(weft_resident__need(w->adapters, session, weft_engine_bundle(w->engine), of->data, n,
                                 w->diag, &head->adapted));
    return weft_session_adapt(session, of->data, n, w->diag);
}

/* Runs a session on inputs and sends its outputs, or its error. false: the router is gone, or the
 * device is lost. */
static bool run_session(worker *w, weft_session *session, weft_wire_head head,
                        const weft_tensor *in, bool shared)
{
    uint32_t n_out = weft_session_program(session)->n_output;
    weft_tensor *out = calloc(n_out + 1, sizeof *out);
    bool ok = out != NULL;
    if (ok) {
        uint64_t start_ns = weft_clock__now_ns();
        weft_diag_clear(w->diag);
        weft_session_skip(session, head.skip);
        weft_err err = take_adapters(w, session, &head, in);
        if (err == WEFT_ERR_OK)
            err = weft_session_run(session, in, head.n_tensor, w->diag, out, n_out);
        head.kind = WEFT_WIRE_DONE;
        head.infer_ns = weft_clock__now_ns() - start_ns;
        /* After a device error this process can run nothing: the router gives the batch to another.
         */
        const char *lost = err == WEFT_ERR_OK ? NULL : weft_engine_lost(w->engine);
        w->lost = lost != NULL;
        if (lost)
            head.kind = WEFT_WIRE_LOST;
        ok = err == WEFT_ERR_OK ? send_outputs(w, head, out, n_out, shared)
             : lost             ? (send_text(w->fd, head, lost), false)
                                : send_error(w, head, err);
    }
    free(out);
    return ok;
}

/* Runs the batch of a message on the socket. false: the router is gone, its message is malformed,
 * or the device is lost. */
static bool run_batch(worker *w, weft_wire_head head)
{
    weft_session *session = find_session(w, &head);
    if (!session)
        return false;
    weft_wire_tensor *t = calloc(head.n_tensor + 1, sizeof *t);
    weft_tensor *in = calloc(head.n_tensor + 1, sizeof *in);
    bool ok = t && in && weft_file_get(w->fd, t, head.n_tensor * sizeof *t) &&
              weft_wire__tensors_valid(t, head.n_tensor, head.payload_bytes) &&
              read_inputs(w, t, head.n_tensor, in) && run_session(w, session, head, in, false);
    free(t);
    free(in);
    return ok;
}

/* The same for a message in the channel, whose inputs are read where they are. */
static bool run_shared(worker *w)
{
    weft_wire_head head;
    size_t room = 0, at = 0;
    uint8_t *box = (uint8_t *)weft_channel__take(w->channel, &room);
    if (!weft_wire__read(box, room, WEFT_WIRE_ALIGN, &head, w->tensor, w->inputs_max, &at) ||
        head.kind != WEFT_WIRE_RUN)
        return false;
    weft_session *session = find_session(w, &head);
    if (!session)
        return false;
    for (uint32_t i = 0; i < head.n_tensor; i++) {
        take_dims(&w->tensor[i], &w->in[i]);
        w->in[i].data = box + at;
        at = weft_wire__align(at + weft_tensor_bytes(&w->in[i]));
    }
    return run_session(w, session, head, w->in, true);
}

/* -- Life ----------------------------------------------------------------------------------- */

static uint32_t parse_cpus(const char *text, uint32_t *out)
{
    uint32_t n = 0;
    while (*text >= '0' && *text <= '9' && n < CPUS_MAX) {
        char *end;
        out[n++] = (uint32_t)strtoul(text, &end, 10);
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

static uint32_t index_of(const worker *w, const weft_bundle_program *p)
{
    return (uint32_t)(p - weft_engine_bundle(w->engine)->program);
}

static weft_err open_session(worker *w, const weft_bundle_program *p)
{
    return weft_session_open(w->engine, p->name, w->diag, &w->session[index_of(w, p)]);
}

static weft_err open_program(worker *w, const weft_bundle_program *p)
{
    WEFT_TRY(open_session(w, p));
    for (uint32_t b = 0; b < p->n_bucket; b++)
        WEFT_TRY(weft_session_warm(w->session[index_of(w, p)], b, w->diag));
    return WEFT_ERR_OK;
}

/* Opens the joint programs of which this worker serves two models or more. Their buckets have rows
 * for every model: they are prepared where all are served, other sizes when the router asks. */
static weft_err open_joint(worker *w)
{
    const weft_bundle *bundle = weft_engine_bundle(w->engine);
    for (uint32_t i = 0; i < bundle->n_joint; i++) {
        const weft_bundle_program *p = &bundle->program[bundle->n_program + i];
        uint32_t n = 0;
        for (uint32_t k = 0; k < p->n_part; k++)
            n += w->session[p->part[k].program] != NULL;
        if (n == p->n_part)
            WEFT_TRY(open_program(w, p));
        else if (n >= 2)
            WEFT_TRY(open_session(w, p));
    }
    return WEFT_ERR_OK;
}

static weft_err open_models(worker *w, int n_model, char **model)
{
    const weft_bundle *bundle = weft_engine_bundle(w->engine);
    w->session = calloc((size_t)bundle->n_program + bundle->n_joint + 1, sizeof *w->session);
    if (!w->session)
        return WEFT_ERR_NOMEM;
    for (int i = 0; i < n_model; i++) {
        const weft_bundle_program *p = weft_bundle_find(bundle, model[i]);
        if (!p)
            return weft_bundle_refuse_model(bundle, model[i], (weft_where){0}, w->diag);
        WEFT_TRY(open_program(w, p));
    }
    return open_joint(w);
}

/* The arguments after "--worker". */
enum {
    ARG_SOCKET = 2,
    ARG_BUNDLE,
    ARG_PULSE,
    ARG_CHANNEL,
    ARG_NAME,
    ARG_CPUS,
    ARG_SHARE,
    ARG_ADAPTERS,
    ARG_MODELS
};

static weft_err open_channel(worker *w, const char *text)
{
    const weft_bundle *bundle = weft_engine_bundle(w->engine);
    size_t to_worker, to_router;
    int fd;
    if (sscanf(text, "%d,%zu,%zu", &fd, &to_worker, &to_router) != 3)
        return WEFT_ERR_BUG;
    if (fd < 0)
        return WEFT_ERR_OK;
    for (uint32_t i = 0; i < bundle->n_program + bundle->n_joint; i++)
        if (bundle->program[i].n_input > w->inputs_max)
            w->inputs_max = bundle->program[i].n_input;
    w->inputs_max++; /* the adapters of rows */
    w->tensor = calloc((size_t)w->inputs_max + 1, sizeof *w->tensor);
    w->in = calloc((size_t)w->inputs_max + 1, sizeof *w->in);
    w->channel = weft_channel__open(fd, to_worker, to_router);
    return w->tensor && w->in && w->channel ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static weft_err open_adapters(worker *w, const char *text)
{
    unsigned long long budget;
    int fd;
    if (sscanf(text, "%d,%llu", &fd, &budget) != 2)
        return WEFT_ERR_BUG;
    w->adapters = weft_resident__create(fd, budget);
    return w->adapters ? WEFT_ERR_OK : WEFT_ERR_NOMEM;
}

static weft_err prepare(worker *w, char **argv, int argc)
{
    static uint32_t cpu[CPUS_MAX];
    weft_engine_options options = {.cpu = cpu,
                                   .n_cpu = parse_cpus(argv[ARG_CPUS], cpu),
                                   .share_memory = true,
                                   .share_cpus = true};
    unsigned long long limit = 0, memory = 0;
    if (sscanf(argv[ARG_SHARE], "%u,%u,%llu,%llu", &options.sm_first, &options.n_sm, &limit,
               &memory) != 4)
        return WEFT_ERR_BUG;
    w->memory_bytes = weft_worker__limit_memory(memory);
    options.mem_limit_bytes = limit;
    int bundle = atoi(argv[ARG_BUNDLE]);
    weft_err err = weft_engine_open_fd(bundle, argv[ARG_NAME], &options, w->diag, &w->engine);
    close(bundle);
    WEFT_TRY(err);
    WEFT_TRY(open_channel(w, argv[ARG_CHANNEL]));
    WEFT_TRY(open_adapters(w, argv[ARG_ADAPTERS]));
    WEFT_TRY(open_models(w, argc - ARG_MODELS, argv + ARG_MODELS));
    (void)malloc_trim(0); /* what the preparation needed in between */
    if (!w->memory_bytes)
        w->memory_bytes = weft_worker__limit_memory_by_use(memory);
    return WEFT_ERR_OK;
}

/* Looks for a batch in the channel for as long as that is worth it. */
static bool look(worker *w, uint64_t start_ns)
{
    uint64_t look_ns = weft_look__limit(&w->look);
    if (look_ns == 0)
        return false;
    while (weft_clock__now_ns() - start_ns < look_ns)
        for (int i = 0; i < LOOKS; i++) {
            if (weft_channel__has(w->channel))
                return true;
            weft_clock__pause();
        }
    weft_look__missed(&w->look);
    return false;
}

/* Waits for a message: in the channel, or its head from the socket. false: the router is gone. */
static bool wait_message(worker *w, weft_wire_head *head, bool *out_shared)
{
    uint64_t start_ns = weft_clock__now_ns();
    *out_shared = w->channel && (weft_channel__has(w->channel) || look(w, start_ns));
    while (!*out_shared) {
        if (w->channel && !weft_channel__sleep(w->channel)) {
            *out_shared = true;
            break;
        }
        if (!weft_file_get(w->fd, head, sizeof *head) || !weft_wire__head_valid(head))
            return false;
        if (head->kind != WEFT_WIRE_BELL)
            break;
        *out_shared = w->channel && weft_channel__has(w->channel);
    }
    if (w->channel)
        weft_channel__wake(w->channel);
    weft_look__found(&w->look, weft_clock__now_ns() - start_ns);
    return true;
}

static void serve_batches(worker *w)
{
    weft_wire_head head = {0};
    bool ok = true, shared = false;
    while (ok && wait_message(w, &head, &shared))
        ok = shared                           ? run_shared(w)
             : head.kind == WEFT_WIRE_RUN     ? run_batch(w, head)
             : head.kind == WEFT_WIRE_PREPARE ? prepare_sizes(w, head)
                                              : false;
}

/* A page of the bundle cannot be read: its disk failed, or the file was truncated. */
static void on_bus_error(int number)
{
    (void)number;
    _exit(WEFT_WORKER_UNREADABLE);
}

/* Under lack of memory the kernel should end workers, which are started again, and not the router.
 */
static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t done = write(fd, "500", 3);
    (void)done; /* refused: the score stays */
    close(fd);
}

int weft_worker_main(int argc, char **argv)
{
    if (argc < ARG_MODELS)
        return WEFT_WORKER_MISUSED;
    /* Only the router ends its workers, by closing the socket. Signals to the process group are
     * ignored, so that a drain can finish. */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGBUS, on_bus_error);
    offer_to_oom_killer();
    worker w = {.fd = atoi(argv[ARG_SOCKET]), .diag = weft_diag_create()};
    weft_err err = w.diag && weft_pulse__start(atoi(argv[ARG_PULSE])) ? prepare(&w, argv, argc)
                                                                      : WEFT_ERR_NOMEM;
    if (err == WEFT_ERR_OK) {
        uint64_t identity = weft_engine_bundle(w.engine)->identity;
        if (send_text(w.fd, (weft_wire_head){.kind = WEFT_WIRE_READY, .id = identity}, ""))
            serve_batches(&w);
    } else {
        send_error(&w, (weft_wire_head){.kind = WEFT_WIRE_FAILED}, err);
    }
    const weft_bundle *bundle = w.engine ? weft_engine_bundle(w.engine) : NULL;
    for (uint32_t i = 0; w.session && bundle && i < bundle->n_program + bundle->n_joint; i++)
        weft_session_close(w.session[i]);
    free(w.session);
    weft_resident__destroy(w.adapters);
    weft_engine_close(w.engine);
    weft_diag_destroy(w.diag);
    weft_channel__destroy(w.channel);
    free(w.payload);
    free(w.tensor);
    free(w.in);
    if (w.lost || err == WEFT_ERR_NODEV)
        return WEFT_WORKER_LOST;
    if (w.starved)
        return WEFT_WORKER_STARVED;
    return err == WEFT_ERR_OK ? 0 : WEFT_WORKER_FAILED;
}
