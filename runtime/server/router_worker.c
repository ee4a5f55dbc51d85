/* The router's side of a worker: its process, and messages to and from it without ever blocking. */
#include "runtime/server/router_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS_MAX = 4096, SOCKET_BUFFER_BYTES = 4 << 20 };
static const uint64_t first_backoff_ns = 10000000, longest_backoff_ns = 5000000000u;
static const uint64_t stop_grace_ns = 3000000000u;

/* -- Process -------------------------------------------------------------------------------- */

static void forget_buffers(router_worker *w)
{
    free(w->tx_tensor);
    free(w->tx);
    free(w->rx_tensor);
    free(w->rx_payload);
    w->tx_tensor = NULL;
    w->tx = NULL;
    w->rx_tensor = NULL;
    w->rx_payload = NULL;
    w->n_tx = w->at_tx = 0;
    w->rx_got = 0;
    w->tx_blocked = false;
}

/* Its socket is closed: it ends by itself, and leaves its GPU in order. */
static bool has_ended(const router_worker *w, uint64_t grace_ns)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    uint64_t until_ns = weft_clock__now_ns() + grace_ns;
    siginfo_t info = {0};
    while (grace_ns && weft_clock__now_ns() < until_ns) {
        if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid)
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* Takes note of how the process ended; false: it has not. */
static bool reap(router_worker *w, int options)
{
    int status = 0;
    pid_t ended = 0;
    if (w->pid == 0)
        return true;
    while ((ended = waitpid(w->pid, &status, options)) < 0 && errno == EINTR)
        ;
    if (ended == 0)
        return false;
    /* It said so, or had no time to. */
    w->lost = w->says_lost || (WIFEXITED(status) && WEXITSTATUS(status) == WEFT_WORKER_LOST);
    w->losses += w->lost;
    w->pid = 0;
    return true;
}

/* What a process has of a GPU can take seconds to be taken from it: that is not waited for here. */
static void end_process(router_worker *w, uint64_t grace_ns)
{
    if (w->fd >= 0) {
        weft_loop__unwatch(w->router->loop, w->fd);
        close(w->fd);
    }
    if (w->pid > 0 && !has_ended(w, grace_ns))
        kill(w->pid, SIGKILL);
    w->lost = w->says_lost;
    w->fd = -1;
    forget_buffers(w);
}

static void wait_for_restart(router_worker *w)
{
    w->backoff_ns = w->backoff_ns ? w->backoff_ns * 2 : first_backoff_ns;
    if (w->backoff_ns > longest_backoff_ns)
        w->backoff_ns = longest_backoff_ns;
    w->state = WORKER_WAITING;
    w->start_ns = weft_clock__now_ns() + w->backoff_ns;
}

static void take_back_batch(weft_router *router, const router_batch *batch)
{
    for (uint32_t i = batch->n; i-- > 0;) {
        weft_request *r = batch->request[i];
        r->attempts++;
        if (!r->abandoned && r->attempts < ATTEMPTS_MAX) {
            weft_batch__push(&router->model[batch->model], r, true);
            continue;
        }
        weft_router__set_answer(r, r->abandoned ? WEFT_ANSWER_UNAVAILABLE : WEFT_ANSWER_INTERNAL,
                                "%d workers ended while running this request", ATTEMPTS_MAX);
        weft_router__finish(router, r);
    }
}

/* What the dead worker ran goes back into its queues. It gets nothing new meanwhile. */
static void take_back(router_worker *w)
{
    uint32_t n = w->n_part;
    w->n_part = 0;
    for (uint32_t k = 0; k < n; k++)
        take_back_batch(w->router, &w->part[k]);
}

/* The worker's last words, with the name of its slice. */
static void hear(router_worker *w, const char *text, size_t len)
{
    const char *slice = w->slice->name ? w->slice->name : "";
    w->spoke = true;
    snprintf(w->why, sizeof w->why, "%s%s%.*s", slice, *slice ? ": " : "",
             (int)(len < 400 ? len : 400), text);
}

/* It has prepared what it was told to, or could not, and is free again. */
static void end_preparing(router_worker *w, bool done)
{
    if (w->prepares && w->tx_tensor)
        weft_joint__prepared(w->joint, (uint32_t)(w - w->router->worker), w->tx_tensor, done);
    w->prepares = false;
}

void weft_worker__fail(router_worker *w)
{
    static const char silent[] = "a worker ended while it prepared its models";
    bool was_starting = w->state == WORKER_STARTING, was_busy = w->state == WORKER_BUSY;
    if (was_starting && !w->spoke)
        hear(w, silent, strlen(silent));
    if (was_starting && w->router->failure[0] == '\0')
        snprintf(w->router->failure, sizeof w->router->failure, "%s", w->why);
    end_preparing(w, false);
    end_process(w, 0);
    w->router->restarts++;
    w->restarts++;
    wait_for_restart(w);
    if (was_busy)
        take_back(w);
}

void weft_worker__expire(router_worker *w)
{
    char text[96];
    snprintf(text, sizeof text, "a worker was not ready within %g s",
             (double)w->router->start_timeout_ns * 1e-9);
    if (w->state == WORKER_STARTING)
        hear(w, text, strlen(text));
    weft_worker__fail(w);
}

void weft_worker__stop(router_worker *w)
{
    end_process(w, w->slice->gpu ? stop_grace_ns : 0);
    (void)reap(w, 0);
    w->state = WORKER_WAITING;
    w->start_ns = UINT64_MAX;
}

static void set_environment(const weft_serve_slice *slice)
{
    for (uint32_t i = 0; i < slice->n_env; i++) {
        if (strchr(slice->env[i], '='))
            putenv((char *)slice->env[i]);
        else
            unsetenv(slice->env[i]);
    }
}

/* argv of the worker: EXE --worker FD BUNDLE CPU,CPU|- SM,SMS,BYTES MODEL... */
static void run_child(const router_worker *w, int fd)
{
    static char fd_text[16], cpus[8192], part[64];
    static char *argv[ARGS_MAX];
    const weft_serve_slice *slice = w->slice;
    const weft_bundle *bundle = w->router->bundle;
    size_t at = 0, n = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(fd_text, sizeof fd_text, "%d", fd);
    fcntl(fd, F_SETFD, 0);
    for (uint32_t i = 0; i < slice->n_cpu && at + 16 < sizeof cpus; i++)
        at += (size_t)snprintf(cpus + at, sizeof cpus - at, "%s%u", i ? "," : "", slice->cpu[i]);
    argv[n++] = (char *)w->router->options->exe;
    argv[n++] = (char *)"--worker";
    argv[n++] = fd_text;
    argv[n++] = (char *)w->router->options->bundle;
    argv[n++] = slice->n_cpu ? cpus : (char *)"-";
    snprintf(part, sizeof part, "%u,%u,%llu", slice->sm_first, slice->n_sm,
             (unsigned long long)slice->mem_limit_bytes);
    argv[n++] = part;
    for (uint32_t i = 0; i < bundle->n_program && n + 1 < ARGS_MAX; i++)
        if (w->serves[i])
            argv[n++] = (char *)bundle->program[i].name;
    argv[n] = NULL;
    /* libgomp reads this when it is loaded. A worker shares its CPUs with the router and with other
     * processes: threads that spin for long at each barrier would take the time that the others
     * need to get there. */
    setenv("GOMP_SPINCOUNT", "1000", 0);
    set_environment(slice);
    execv(argv[0], argv);
    _exit(127);
}

static void on_event(void *user, uint32_t events);

void weft_worker__start(router_worker *w)
{
    int pair[2];
    if (!reap(w, WNOHANG)) {
        w->start_ns = weft_clock__now_ns() + first_backoff_ns;
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        wait_for_restart(w);
        return;
    }
    int size = SOCKET_BUFFER_BYTES;
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        run_child(w, pair[1]);
    close(pair[1]);
    if (pid < 0 || !weft_loop__watch(w->router->loop, pair[0], EPOLLIN, on_event, w)) {
        close(pair[0]);
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        wait_for_restart(w);
        return;
    }
    w->pid = pid;
    w->fd = pair[0];
    w->state = WORKER_STARTING;
    w->ready_by_ns = weft_clock__now_ns() + w->router->start_timeout_ns;
    w->spoke = w->says_lost = false;
}

/* -- Sending -------------------------------------------------------------------------------- */

/* Sends what it can; false: the worker is gone. */
static bool push_out(router_worker *w)
{
    while (w->at_tx < w->n_tx) {
        uint32_t n = w->n_tx - w->at_tx;
        ssize_t sent = writev(w->fd, w->tx + w->at_tx, n > 64 ? 64 : (int)n);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!w->tx_blocked)
                weft_loop__change(w->router->loop, w->fd, EPOLLIN | EPOLLOUT);
            w->tx_blocked = true;
            return true;
        }
        if (sent < 0)
            return false;
        for (size_t left = (size_t)sent; w->at_tx < w->n_tx;) {
            struct iovec *v = &w->tx[w->at_tx];
            size_t took = left < v->iov_len ? left : v->iov_len;
            v->iov_base = (char *)v->iov_base + took;
            v->iov_len -= took;
            left -= took;
            if (v->iov_len > 0)
                break;
            w->at_tx++;
        }
    }
    if (w->tx_blocked)
        weft_loop__change(w->router->loop, w->fd, EPOLLIN);
    w->tx_blocked = false;
    return true;
}

/* One input of a batch: its rows one request after the other, then the last row again for what is
 * filled up. `empty`: what it is without requests, in a joint program. */
static void add_input(router_worker *w, const router_batch *b, const weft_bundle_program *p,
                      uint32_t i, const weft_wire_tensor *empty, weft_wire_tensor *t)
{
    if (b->n == 0) {
        *t = *empty;
        return;
    }
    const weft_tensor *last = &b->request[b->n - 1]->in[i];
    bool batched = p->batch_symbol < p->n_symbol;
    *t = (weft_wire_tensor){.dtype = last->dtype, .rank = last->rank};
    memcpy(t->dim, last->dim, sizeof t->dim);
    if (batched)
        t->dim[0] = b->padded_rows;
    for (uint32_t k = 0; k < b->n; k++) {
        const weft_tensor *part = &b->request[k]->in[i];
        w->tx[w->n_tx++] =
            (struct iovec){.iov_base = part->data, .iov_len = weft_tensor_bytes(part)};
        w->tx_head.payload_bytes += weft_tensor_bytes(part);
    }
    size_t row = batched && last->dim[0] > 0 ? weft_tensor_bytes(last) / (size_t)last->dim[0] : 0;
    for (int64_t k = b->rows; k < b->padded_rows; k++) {
        char *from = (char *)last->data + row * (size_t)(last->dim[0] - 1);
        w->tx[w->n_tx++] = (struct iovec){.iov_base = from, .iov_len = row};
        w->tx_head.payload_bytes += row;
    }
}

/* Inputs of all batches, and room for their chunks. */
static void count_chunks(const router_worker *w, uint32_t *out_inputs, size_t *out_chunks)
{
    *out_inputs = 0;
    *out_chunks = 2;
    for (uint32_t k = 0; k < w->n_part; k++) {
        const router_batch *b = &w->part[k];
        uint32_t n_input = w->router->model[b->model].program->n_input;
        size_t filled = (size_t)(b->padded_rows > b->rows ? b->padded_rows - b->rows : 0);
        *out_inputs += n_input;
        *out_chunks += n_input * (b->n + filled);
    }
}

void weft_worker__send(router_worker *w)
{
    const weft_bundle *bundle = w->router->bundle;
    uint32_t n_input, at = 0;
    size_t n_chunk;
    forget_buffers(w);
    w->state = WORKER_BUSY;
    count_chunks(w, &n_input, &n_chunk);
    w->tx_tensor = calloc(n_input + 1, sizeof *w->tx_tensor);
    w->tx = calloc(n_chunk, sizeof *w->tx);
    if (!w->tx_tensor || !w->tx) {
        weft_worker__fail(w);
        return;
    }
    w->tx_head = (weft_wire_head){
        .magic = WEFT_WIRE_MAGIC,
        .kind = WEFT_WIRE_RUN,
        .id = w->batch_id,
        .model = w->joint ? (uint32_t)(w->joint->program - bundle->program) : w->part[0].model,
        .n_tensor = n_input};
    w->tx[w->n_tx++] = (struct iovec){.iov_base = &w->tx_head, .iov_len = sizeof w->tx_head};
    w->tx[w->n_tx++] =
        (struct iovec){.iov_base = w->tx_tensor, .iov_len = n_input * sizeof *w->tx_tensor};
    for (uint32_t k = 0; k < w->n_part; k++) {
        const weft_bundle_program *p = w->router->model[w->part[k].model].program;
        for (uint32_t i = 0; i < p->n_input; i++, at++)
            add_input(w, &w->part[k], p, i, w->joint ? &w->joint->empty[at] : NULL,
                      &w->tx_tensor[at]);
    }
    if (!push_out(w))
        weft_worker__fail(w);
}

void weft_worker__prepare(router_worker *w, router_joint *joint, const joint_size *size)
{
    uint32_t n = joint->program->n_input;
    forget_buffers(w);
    w->state = WORKER_BUSY;
    w->batch_id = ++w->router->next_id;
    w->ready_by_ns = weft_clock__now_ns() + w->router->start_timeout_ns;
    w->prepares = true;
    w->joint = joint;
    w->n_part = 0;
    w->tx_tensor = calloc(n + 1, sizeof *w->tx_tensor);
    w->tx = calloc(2, sizeof *w->tx);
    if (!w->tx_tensor || !w->tx) {
        weft_worker__fail(w);
        return;
    }
    memcpy(w->tx_tensor, size->in, n * sizeof *w->tx_tensor);
    w->tx_head = (weft_wire_head){.magic = WEFT_WIRE_MAGIC,
                                  .kind = WEFT_WIRE_PREPARE,
                                  .id = w->batch_id,
                                  .model = (uint32_t)(joint->program - w->router->bundle->program),
                                  .n_tensor = n};
    w->tx[w->n_tx++] = (struct iovec){.iov_base = &w->tx_head, .iov_len = sizeof w->tx_head};
    w->tx[w->n_tx++] =
        (struct iovec){.iov_base = w->tx_tensor, .iov_len = n * sizeof *w->tx_tensor};
    if (!push_out(w))
        weft_worker__fail(w);
}

/* -- Receiving ------------------------------------------------------------------------------ */

/* The part of a message that comes next: where it goes and how much is missing; false when the
 * message is whole. */
static bool next_part(router_worker *w, void **out_at, size_t *out_len)
{
    uint64_t head = sizeof w->rx_head, got = w->rx_got;
    if (got < head) {
        *out_at = (char *)&w->rx_head + got;
        *out_len = head - got;
        return true;
    }
    uint64_t tensors = w->rx_head.n_tensor * sizeof *w->rx_tensor;
    got -= head;
    if (got < tensors) {
        *out_at = (char *)w->rx_tensor + got;
        *out_len = tensors - got;
        return true;
    }
    got -= tensors;
    *out_at = w->rx_payload + got;
    *out_len = w->rx_head.payload_bytes - got;
    return got < w->rx_head.payload_bytes;
}

/* Room for what the head announces. false: nonsense, or no memory. */
static bool make_room(router_worker *w)
{
    if (w->rx_got != sizeof w->rx_head)
        return true;
    if (!weft_wire__head_valid(&w->rx_head))
        return false;
    w->rx_tensor = calloc(w->rx_head.n_tensor + 1, sizeof *w->rx_tensor);
    w->rx_payload = malloc(w->rx_head.payload_bytes + 1);
    return w->rx_tensor && w->rx_payload;
}

/* Hands the outputs to the batches: those of one after those of the other. */
static void give_outputs(router_worker *w)
{
    const uint8_t *payload = w->rx_payload;
    const weft_wire_tensor *t = w->rx_tensor;
    uint32_t left = w->rx_head.n_tensor;
    uint64_t now_ns = weft_clock__now_ns();
    for (uint32_t k = 0; k < w->n_part; k++) {
        router_model *model = &w->router->model[w->part[k].model];
        uint32_t n = model->program->n_output;
        /* An answer of another number of tensors fits nobody. */
        bool fits = w->joint ? w->rx_head.n_tensor == w->joint->program->n_output : true;
        n = fits && n <= left ? n : 0;
        if (w->part[k].n > 0) {
            weft_batch__give(model, &w->part[k], t, w->joint ? n : w->rx_head.n_tensor, payload);
            weft_batch__count(model, &w->part[k], &w->rx_head, now_ns);
        }
        for (uint32_t i = 0; i < n; i++)
            payload +=
                (size_t)weft_numel(t[i].dim, t[i].rank) * weft_dtype_size((weft_dtype)t[i].dtype);
        t += n;
        left -= n;
    }
}

/* A batch that failed as a whole may have one bad request: with `apart` each gets its own verdict.
 */
static void finish_batch(weft_router *router, const router_batch *batch, bool apart)
{
    for (uint32_t i = 0; i < batch->n; i++) {
        weft_request *r = batch->request[i];
        if (apart && r->answer == WEFT_ANSWER_INVALID && !r->abandoned) {
            r->attempts++;
            weft_batch__push(&router->model[batch->model], r, true);
        } else {
            weft_router__finish(router, r);
        }
    }
}

static void answer_batch(router_worker *w)
{
    weft_router *router = w->router;
    uint32_t n_part = w->n_part, n_request = 0;
    router_batch *part = w->part;
    weft_answer answer =
        w->rx_head.err == WEFT_ERR_INPUT ? WEFT_ANSWER_INVALID : WEFT_ANSWER_INTERNAL;
    if (w->rx_head.err == WEFT_ERR_OK)
        give_outputs(w);
    router->joint_executions += w->joint && w->rx_head.err == WEFT_ERR_OK;
    w->rx_payload[w->rx_head.payload_bytes] = '\0';
    for (uint32_t k = 0; k < n_part; k++) {
        n_request += part[k].n;
        for (uint32_t i = 0; i < part[k].n && w->rx_head.err != WEFT_ERR_OK; i++)
            weft_router__set_answer(part[k].request[i], answer, "%s", (char *)w->rx_payload);
    }
    bool apart = w->rx_head.err != WEFT_ERR_OK && answer == WEFT_ANSWER_INVALID && n_request > 1;
    w->part = w->done;
    w->done = part;
    w->n_part = 0;
    w->state = WORKER_IDLE;
    w->backoff_ns = 0;
    forget_buffers(w);
    /* The next batch goes out before the answers are written: the worker is what is scarce. */
    weft_router__dispatch(router);
    for (uint32_t k = 0; k < n_part; k++)
        finish_batch(router, &part[k], apart);
    if (apart)
        weft_router__dispatch(router);
}

/* A whole message. false: it makes no sense now. */
static bool take_message(router_worker *w)
{
    const weft_wire_head *h = &w->rx_head;
    switch (h->kind) {
    case WEFT_WIRE_READY:
        if (w->state != WORKER_STARTING)
            return false;
        w->state = WORKER_IDLE;
        weft_joint__restarted(w->router, (uint32_t)(w - w->router->worker));
        w->lost = false;
        w->why[0] = '\0';
        forget_buffers(w);
        weft_router__dispatch(w->router);
        return true;
    case WEFT_WIRE_FAILED:
    case WEFT_WIRE_LOST:
        hear(w, (const char *)w->rx_payload, h->payload_bytes);
        if (h->err == WEFT_ERR_NOMEM && w->slice->plan_bytes)
            snprintf(w->why + strlen(w->why), sizeof w->why - strlen(w->why),
                     "; the plan counts on %llu bytes here",
                     (unsigned long long)w->slice->plan_bytes);
        w->says_lost = h->kind == WEFT_WIRE_LOST || h->err == WEFT_ERR_NODEV;
        return false;
    case WEFT_WIRE_DONE:
        if (w->state != WORKER_BUSY || h->id != w->batch_id ||
            (h->err == WEFT_ERR_OK &&
             !weft_wire__tensors_valid(w->rx_tensor, h->n_tensor, h->payload_bytes)))
            return false;
        if (!w->prepares) {
            answer_batch(w);
            return true;
        }
        end_preparing(w, h->err == WEFT_ERR_OK);
        w->state = WORKER_IDLE;
        forget_buffers(w);
        weft_router__dispatch(w->router);
        return true;
    default:
        return false;
    }
}

static void on_event(void *user, uint32_t events)
{
    router_worker *w = user;
    if ((events & EPOLLOUT) && !push_out(w)) {
        weft_worker__fail(w);
        return;
    }
    for (;;) {
        void *at = NULL;
        size_t len = 0;
        int fd = w->fd;
        if (!next_part(w, &at, &len)) {
            if (!take_message(w)) {
                weft_worker__fail(w);
                return;
            }
            if (w->fd != fd)
                return;
            continue;
        }
        ssize_t got = read(w->fd, at, len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            weft_worker__fail(w);
            return;
        }
        w->rx_got += (uint64_t)got;
        if (!make_room(w)) {
            weft_worker__fail(w);
            return;
        }
    }
}
