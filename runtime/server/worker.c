/* A worker: the process of one slice. Opens the bundle, prepares its models, then runs the batches
 * that arrive over the socket, one at a time, until the router closes it. Run as
 *
 *   EXE --worker FD BUNDLE_FD PULSE_FD NAME CPU,CPU|- FIRST_SM,N_SM,BYTES MODEL...
 *
 * NAME: of the bundle, for messages. N_SM 0: all SMs; BYTES: memory limit, 0: none. */
#include "base/str.h"
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CPUS_MAX = 1024 };

typedef struct worker {
    int fd;
    weft_engine *engine;
    weft_session **session; /* by program, joint programs included; NULL: not served */
    uint8_t *payload;
    size_t payload_cap;
    bool lost; /* the device is lost */
    weft_diag *diag;
} worker;

/* -- Socket --------------------------------------------------------------------------------- */

static bool read_all(int fd, void *at, size_t len)
{
    for (char *to = at; len > 0;) {
        ssize_t n = read(fd, to, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        len -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *at, size_t len)
{
    for (const char *from = at; len > 0;) {
        ssize_t n = write(fd, from, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        from += n;
        len -= (size_t)n;
    }
    return true;
}

static bool send_text(int fd, weft_wire_head head, const char *text)
{
    head.magic = WEFT_WIRE_MAGIC;
    head.n_tensor = 0;
    head.payload_bytes = strlen(text);
    return write_all(fd, &head, sizeof head) && write_all(fd, text, head.payload_bytes);
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
    head.err = err;
    bool ok = send_text(w->fd, head, text.at ? text.at : weft_err_text(err));
    weft_buf_finish(&text);
    return ok;
}

/* -- Batches -------------------------------------------------------------------------------- */

static bool send_outputs(worker *w, weft_wire_head head, const weft_tensor *out, uint32_t n)
{
    weft_wire_tensor *t = calloc(n + 1, sizeof *t);
    if (!t)
        return false;
    head.n_tensor = n;
    head.payload_bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        t[i] = (weft_wire_tensor){.dtype = out[i].dtype, .rank = out[i].rank};
        memcpy(t[i].dim, out[i].dim, sizeof t[i].dim);
        head.payload_bytes += weft_tensor_bytes(&out[i]);
    }
    bool ok = write_all(w->fd, &head, sizeof head) && write_all(w->fd, t, n * sizeof *t);
    for (uint32_t i = 0; i < n && ok; i++)
        ok = write_all(w->fd, out[i].data, weft_tensor_bytes(&out[i]));
    free(t);
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
            return false;
        w->payload_cap = total;
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        in[i].data = w->payload + at;
        if (!read_all(w->fd, in[i].data, weft_tensor_bytes(&in[i])))
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
    return s && head->n_tensor == weft_session_program(s)->n_input ? s : NULL;
}

/* Prepares the session for inputs of the message's dims. false: the router is gone, or its message
 * is malformed. */
static bool prepare_sizes(worker *w, weft_wire_head head)
{
    weft_session *session = find_session(w, &head);
    weft_wire_tensor *t = calloc(head.n_tensor + 1, sizeof *t);
    weft_tensor *in = calloc(head.n_tensor + 1, sizeof *in);
    bool ok = session && t && in && head.payload_bytes == 0 &&
              read_all(w->fd, t, head.n_tensor * sizeof *t);
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

/* Runs the batch of the message. false: the router is gone, its message is malformed, or the device
 * is lost. */
static bool run_batch(worker *w, weft_wire_head head)
{
    weft_session *session = find_session(w, &head);
    if (!session)
        return false;
    uint32_t n_out = weft_session_program(session)->n_output;
    weft_wire_tensor *t = calloc(head.n_tensor + 1, sizeof *t);
    weft_tensor *in = calloc(head.n_tensor + 1, sizeof *in), *out = calloc(n_out + 1, sizeof *out);
    bool ok = t && in && out && read_all(w->fd, t, head.n_tensor * sizeof *t) &&
              weft_wire__tensors_valid(t, head.n_tensor, head.payload_bytes) &&
              read_inputs(w, t, head.n_tensor, in);
    if (ok) {
        uint64_t start_ns = weft_clock__now_ns();
        weft_diag_clear(w->diag);
        weft_err err = weft_session_run(session, in, head.n_tensor, w->diag, out, n_out);
        head.kind = WEFT_WIRE_DONE;
        head.infer_ns = weft_clock__now_ns() - start_ns;
        /* After a device error this process can run nothing: the router gives the batch to another.
         */
        const char *lost = err == WEFT_ERR_OK ? NULL : weft_engine_lost(w->engine);
        w->lost = lost != NULL;
        if (lost)
            head.kind = WEFT_WIRE_LOST;
        ok = err == WEFT_ERR_OK ? send_outputs(w, head, out, n_out)
             : lost             ? (send_text(w->fd, head, lost), false)
                                : send_error(w, head, err);
    }
    free(t);
    free(in);
    free(out);
    return ok;
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

static weft_err open_program(worker *w, const weft_bundle_program *p)
{
    weft_session **session = &w->session[p - weft_engine_bundle(w->engine)->program];
    WEFT_TRY(weft_session_open(w->engine, p->name, w->diag, session));
    for (uint32_t b = 0; b < p->n_bucket; b++)
        WEFT_TRY(weft_session_warm(*session, b, w->diag));
    return WEFT_ERR_OK;
}

/* Opens the joint programs of which this worker serves every model. */
static weft_err open_joint(worker *w)
{
    const weft_bundle *bundle = weft_engine_bundle(w->engine);
    for (uint32_t i = 0; i < bundle->n_joint; i++) {
        const weft_bundle_program *p = &bundle->program[bundle->n_program + i];
        bool all = true;
        for (uint32_t k = 0; k < p->n_part; k++)
            all = all && w->session[p->part[k].program];
        if (all)
            WEFT_TRY(open_program(w, p));
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
            return weft_diag_error(w->diag, WEFT_ERR_INPUT, (weft_where){0}, "no model '%s'",
                                   model[i]);
        WEFT_TRY(open_program(w, p));
    }
    return open_joint(w);
}

/* The arguments after "--worker". */
enum { ARG_SOCKET = 2, ARG_BUNDLE, ARG_PULSE, ARG_NAME, ARG_CPUS, ARG_SHARE, ARG_MODELS };

static weft_err prepare(worker *w, char **argv, int argc)
{
    static uint32_t cpu[CPUS_MAX];
    weft_engine_options options = {
        .cpu = cpu, .n_cpu = parse_cpus(argv[ARG_CPUS], cpu), .share_memory = true};
    unsigned long long limit = 0;
    if (sscanf(argv[ARG_SHARE], "%u,%u,%llu", &options.sm_first, &options.n_sm, &limit) != 3)
        return WEFT_ERR_BUG;
    options.mem_limit_bytes = limit;
    int bundle = atoi(argv[ARG_BUNDLE]);
    weft_err err = weft_engine_open_fd(bundle, argv[ARG_NAME], &options, w->diag, &w->engine);
    close(bundle);
    WEFT_TRY(err);
    return open_models(w, argc - ARG_MODELS, argv + ARG_MODELS);
}

static void serve_batches(worker *w)
{
    weft_wire_head head;
    bool ok = true;
    while (ok && read_all(w->fd, &head, sizeof head) && weft_wire__head_valid(&head))
        ok = head.kind == WEFT_WIRE_RUN       ? run_batch(w, head)
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
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
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
    weft_engine_close(w.engine);
    weft_diag_destroy(w.diag);
    free(w.payload);
    if (w.lost || err == WEFT_ERR_NODEV)
        return WEFT_WORKER_LOST;
    return err == WEFT_ERR_OK ? 0 : WEFT_WORKER_FAILED;
}
