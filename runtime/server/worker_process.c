/* The router's end of a worker: its process, and messages to and from it over a socket that never
 * blocks. Reports to its owner by worker_events.
 *
 * A process that ends is started again after a pause that doubles from 10 ms to 60 s; the pause
 * starts anew after a process that was ready for longer than 0.1 s and two of its pauses.
 *
 * A process whose pulse stands still (pulse.c) gets no messages; if it was stopped by a signal it
 * is continued, once; and it is killed when its pulse does not come back. on_ready, on_idle and
 * on_end are called last, when the state is consistent: inside, the owner may send to this process
 * or make it fail. */
#include "runtime/server/router_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    ARGS_MAX = 4096,
    SOCKET_BUFFER_BYTES = 4 << 20,
    REPORT_MAX = 400,
    PARTS_MAX = 64,
    ADAPTER_BYTES = 1 << 30, /* that a worker keeps in memory */
    BELLS_MAX = 4,           /* between two answers: one is due, and one may be late */
    TURN_BYTES = 256 << 10,  /* of a message, in one turn of the loop, either way */
    COPIED_MAX = 1 << 20     /* bytes of a message that are copied when their owner leaves */
};
static const uint64_t first_backoff_ns = 10000000, longest_backoff_ns = 60000000000u;
static const uint64_t stop_grace_ns = 3000000000u, well_ns = 100000000u;
/* A stopped process is continued after its pulse was missed for so long. One without pulse is
 * killed so long after it was continued, or after it was stopped again, or, not stopped by a
 * signal, missed.
 */
static const uint64_t continue_after_ns = 500000000u, continued_grace_ns = 1000000000u,
                      stopped_grace_ns = 400000000u, stall_grace_ns = 5000000000u;
/* An answer to the message sent ahead may be there for so long before that which goes before it,
 * over the socket. */
static const uint64_t early_grace_ns = 1000000000u;
/* A process that takes a message takes some of it in so long. */
static const uint64_t taking_ns = 50000000u;
/* The router was not running for so long: the pulse was not missed. */
static const uint64_t router_pause_ns = 200000000u;

/* -- End ------------------------------------------------------------------------------------ */

/* The message being received. */
static void free_rx(worker_process *w)
{
    free(w->rx_tensor);
    weft_payload__release(w->rx_payload, NULL);
    w->rx_tensor = NULL;
    w->rx_payload = NULL;
    w->rx_got = 0;
}

static void free_messages(worker_process *w)
{
    weft_wire__free(&w->tx);
    free_rx(w);
    w->tx_blocked = w->tx_shared = false;
    w->ahead_id = w->early_ns = 0;
}

/* Waits up to grace_ns for the process to end; its socket is closed, so that it ends by itself and
 * releases its GPU in order. */
static bool has_ended(const worker_process *w, uint64_t grace_ns)
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

/* Sets `why` to the report of a process that ends, after the name of its slice. */
static void note_report(worker_process *w, const char *text, size_t len)
{
    const char *slice = w->slice->name ? w->slice->name : "";
    w->reported = true;
    snprintf(w->why, sizeof w->why, "%s%s%.*s", slice, *slice ? ": " : "",
             (int)(len < REPORT_MAX ? len : REPORT_MAX), text);
}

/* Sets `why` from the exit status of a process that has not told why, and logs the end. */
static void note_status(worker_process *w, int status, const struct rusage *used)
{
    char text[96];
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "signal %d (SIG%s)", WTERMSIG(status),
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    else if (WEXITSTATUS(status) == WEFT_WORKER_UNREADABLE)
        snprintf(text, sizeof text, "a page of the bundle cannot be read");
    else if (WEXITSTATUS(status) == WEFT_WORKER_STARVED)
        snprintf(text, sizeof text, "no memory for a message within its limit");
    else
        snprintf(text, sizeof text, "exit code %d", WEXITSTATUS(status));
    if (!w->reported)
        note_report(w, text, strlen(text));
    if (w->stopped)
        return;
    WEFT_LOG(WEFT_LOG_WARN, "worker_ended", {.key = "pid", .number = (double)w->pid},
             {.key = "status", .text = text}, {.key = "why", .text = w->why},
             {.key = "peak_bytes", .number = (double)used->ru_maxrss * 1024},
             {.key = "restarts", .number = (double)w->restarts},
             {.key = "pause_s", .number = (double)w->backoff_ns * 1e-9});
}

/* Collects the exit status of the process. false: it has not ended. */
static bool reap(worker_process *w, int options)
{
    int status = 0;
    struct rusage used = {0};
    pid_t ended = 0;
    if (w->pid == 0)
        return true;
    while ((ended = wait4(w->pid, &status, options, &used)) < 0 && errno == EINTR)
        ;
    if (ended == 0)
        return false;
    /* The exit code tells of a lost device when the process ended before it could report it. */
    w->lost = w->reports_lost || (WIFEXITED(status) && WEXITSTATUS(status) == WEFT_WORKER_LOST);
    w->losses += w->lost;
    note_status(w, status, &used);
    w->pid = 0;
    return true;
}

static void close_socket(worker_process *w)
{
    if (w->fd >= 0) {
        weft_loop__unwatch(w->loop, w->fd);
        close(w->fd);
    }
    w->fd = -1;
}

/* Closes the socket and kills the process. The GPU driver can take seconds to end a killed process:
 * it is reaped by weft_worker__start, which need not wait. */
static void end_process(worker_process *w, uint64_t grace_ns)
{
    close_socket(w);
    if (w->pid > 0 && !has_ended(w, grace_ns))
        kill(w->pid, SIGKILL);
    w->lost = w->reports_lost;
    free_messages(w);
}

static void wait_for_restart(worker_process *w)
{
    uint64_t was_ready_ns = w->ready_ns ? weft_clock__now_ns() - w->ready_ns : 0;
    if (was_ready_ns > well_ns && was_ready_ns > 2 * w->backoff_ns)
        w->backoff_ns = 0;
    w->ready_ns = 0;
    w->backoff_ns = w->backoff_ns ? w->backoff_ns * 2 : first_backoff_ns;
    if (w->backoff_ns > longest_backoff_ns)
        w->backoff_ns = longest_backoff_ns;
    w->state = WORKER_WAITING;
    w->start_ns = weft_clock__now_ns() + w->backoff_ns;
}

void weft_worker__fail(worker_process *w)
{
    static const char silent[] = "a worker ended while it prepared its models";
    bool starting = w->state == WORKER_STARTING;
    if (starting && !w->reported)
        note_report(w, silent, strlen(silent));
    end_process(w, 0);
    w->restarts++;
    wait_for_restart(w);
    w->events->on_end(w->user, starting);
}

static void note_expiry(worker_process *w)
{
    char text[96];
    if (w->stall_ns)
        snprintf(text, sizeof text, "the worker showed no sign of life and was ended");
    else if (w->state == WORKER_STARTING)
        snprintf(text, sizeof text, "a worker was not ready within %g s",
                 (double)w->start_timeout_ns * 1e-9);
    else
        snprintf(text, sizeof text, "the worker took too long and was ended");
    note_report(w, text, strlen(text));
}

void weft_worker__expire(worker_process *w)
{
    note_expiry(w);
    weft_worker__fail(w);
}

/* -- Pulse ---------------------------------------------------------------------------------- */

/* Whether a signal stopped the process: state T of /proc/PID/stat, "PID (NAME) T ...". */
static bool is_stopped(pid_t pid)
{
    char path[48], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

static void end_stall(worker_process *w, uint64_t now_ns)
{
    if (w->stall_ns)
        WEFT_LOG(WEFT_LOG_WARN, "worker_answers_again", {.key = "pid", .number = (double)w->pid},
                 {.key = "stall_s", .number = (double)(now_ns - w->stall_ns) * 1e-9});
    w->stall_ns = 0;
}

bool weft_worker__check_pulse(worker_process *w, uint64_t now_ns)
{
    uint64_t beats = w->pulse ? weft_pulse__beats(w->pulse) : 0;
    bool paused = w->checked_ns + router_pause_ns + w->stall_timeout_ns < now_ns;
    w->checked_ns = now_ns;
    if (w->fd < 0 || beats == 0 || beats != w->beats || paused) {
        w->beats = beats;
        w->beat_ns = now_ns;
        end_stall(w, now_ns);
        return true;
    }
    if (w->stall_ns == 0 && w->beat_ns + w->stall_timeout_ns < now_ns) {
        w->stall_ns = now_ns;
        WEFT_LOG(WEFT_LOG_WARN, "worker_stalled", {.key = "pid", .number = (double)w->pid});
    }
    if (w->stall_ns == 0)
        return true;
    if (w->stall_ns + continue_after_ns < now_ns && !w->continued_ns && is_stopped(w->pid)) {
        w->continued_ns = now_ns;
        kill(w->pid, SIGCONT);
        WEFT_LOG(WEFT_LOG_WARN, "worker_continued", {.key = "pid", .number = (double)w->pid});
    }
    uint64_t until_ns = w->continued_ns > w->stall_ns ? w->continued_ns + continued_grace_ns
                        : w->continued_ns             ? w->stall_ns + stopped_grace_ns
                                                      : w->stall_ns + stall_grace_ns;
    return now_ns < until_ns;
}

void weft_worker__stop(worker_process *w)
{
    w->stopped = true;
    end_process(w, w->slice->gpu ? stop_grace_ns : 0);
    (void)reap(w, 0);
    w->state = WORKER_WAITING;
    w->start_ns = UINT64_MAX;
}

bool weft_worker__let_go(worker_process *w)
{
    uint64_t now_ns = weft_clock__now_ns();
    if (!w->stopped) {
        w->stopped = true;
        close_socket(w);
        free_messages(w);
        w->state = WORKER_WAITING;
        w->start_ns = UINT64_MAX;
        w->kill_ns = now_ns + (w->slice->gpu ? stop_grace_ns : 0);
    }
    if (reap(w, WNOHANG))
        return true;
    if (now_ns >= w->kill_ns)
        kill(w->pid, SIGKILL);
    return false;
}

/* -- Start ---------------------------------------------------------------------------------- */

static void set_environment(const weft_serve_slice *slice)
{
    for (uint32_t i = 0; i < slice->n_env; i++) {
        if (strchr(slice->env[i], '='))
            putenv((char *)slice->env[i]);
        else
            unsetenv(slice->env[i]);
    }
}

/* Runs in the child process: executes the worker, with the arguments that worker.c describes. */
static void run_child(const worker_process *w, int fd)
{
    static char fd_text[3][16], cpus[8192], share[96], channel[64], adapters[64];
    const int fds[] = {fd, w->bundle_fd, w->pulse_fd};
    static char *argv[ARGS_MAX];
    const weft_serve_slice *slice = w->slice;
    const weft_bundle *bundle = w->bundle;
    size_t at = 0, n = 0;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint32_t i = 0; i < slice->n_cpu && at + 16 < sizeof cpus; i++)
        at += (size_t)snprintf(cpus + at, sizeof cpus - at, "%s%u", i ? "," : "", slice->cpu[i]);
    argv[n++] = (char *)w->options->exe;
    argv[n++] = (char *)"--worker";
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        fcntl(fds[i], F_SETFD, 0);
        snprintf(fd_text[i], sizeof fd_text[i], "%d", fds[i]);
        argv[n++] = fd_text[i];
    }
    if (w->channel)
        fcntl(w->channel_fd, F_SETFD, 0);
    snprintf(channel, sizeof channel, "%d,%zu,%zu", w->channel ? w->channel_fd : -1, w->to_worker,
             w->to_router);
    argv[n++] = channel;
    argv[n++] = (char *)w->bundle_path;
    argv[n++] = slice->n_cpu ? cpus : (char *)"-";
    /* The driver of a GPU maps memory of the device as private memory of the process. */
    uint64_t memory = slice->gpu ? WEFT_MEMORY_UNLIMITED : w->options->worker_memory;
    snprintf(share, sizeof share, "%u,%u,%llu,%llu", slice->sm_first, slice->n_sm,
             (unsigned long long)slice->mem_limit_bytes, (unsigned long long)memory);
    argv[n++] = share;
    if (w->adapters_fd >= 0)
        fcntl(w->adapters_fd, F_SETFD, 0);
    uint64_t budget = w->options->adapter_memory;
    snprintf(adapters, sizeof adapters, "%d,%llu", w->adapters_fd,
             (unsigned long long)(budget ? budget : ADAPTER_BYTES));
    argv[n++] = adapters;
    for (uint32_t i = 0; i < bundle->n_program && n + 1 < ARGS_MAX; i++)
        if (w->serves[i])
            argv[n++] = (char *)bundle->program[i].name;
    argv[n] = NULL;
    set_environment(slice);
    execv(argv[0], argv);
    _exit(127);
}

static void on_event(void *user, uint32_t events);

void weft_worker__start(worker_process *w)
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
    if (w->pulse)
        weft_pulse__reset(w->pulse);
    if (w->channel)
        weft_channel__reset(w->channel);
    for (int i = 0; i < 2; i++)
        setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    pid_t pid = fork();
    if (pid == 0)
        run_child(w, pair[1]);
    close(pair[1]);
    if (pid < 0 || !weft_loop__watch(w->loop, pair[0], EPOLLIN, on_event, w)) {
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
    w->checked_ns = weft_clock__now_ns();
    w->ready_by_ns = w->checked_ns + w->start_timeout_ns;
    w->reported = w->reports_lost = false;
    w->stall_ns = w->continued_ns = 0;
    w->n_bell = 0;
}

/* -- Sending -------------------------------------------------------------------------------- */

/* The next parts of a message, at most `most` bytes; returns their number. */
static int next_parts(const weft_wire_out *tx, size_t most, struct iovec part[PARTS_MAX])
{
    int n = 0;
    for (uint32_t i = tx->at_iov; i < tx->n_iov && n < PARTS_MAX && most > 0; i++, n++) {
        part[n] = tx->iov[i];
        part[n].iov_len = part[n].iov_len < most ? part[n].iov_len : most;
        most -= part[n].iov_len;
    }
    return n;
}

/* Writes what the socket takes, but only a part of a large message in one turn of the loop. false:
 * the process is gone. */
static bool write_out(worker_process *w)
{
    weft_wire_out *tx = &w->tx;
    struct iovec part[PARTS_MAX];
    size_t left = TURN_BYTES;
    bool full = false;
    while (tx->at_iov < tx->n_iov && left > 0 && !full) {
        ssize_t sent = writev(w->fd, part, next_parts(tx, left, part));
        full = sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
        if (sent < 0 && errno != EINTR && !full)
            return false;
        if (sent < 0)
            continue;
        weft_wire__advance(tx, (size_t)sent);
        left -= (size_t)sent;
        w->moved_ns = weft_clock__now_ns();
    }
    bool more = tx->at_iov < tx->n_iov;
    if (more != w->tx_blocked)
        weft_loop__change(w->loop, w->fd, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
    w->tx_blocked = more;
    return true;
}

void weft_worker__send(worker_process *w, const weft_wire_out *message)
{
    free_messages(w);
    w->state = WORKER_BUSY;
    w->tx = *message;
    bool failed = false;
    if (weft_worker__share(w, &failed)) {
        if (failed)
            weft_worker__fail(w);
        return;
    }
    w->tx.iov[0] = (struct iovec){.iov_base = &w->tx.head, .iov_len = sizeof w->tx.head};
    w->tx.iov[1] = (struct iovec){.iov_base = w->tx.tensor,
                                  .iov_len = w->tx.head.n_tensor * sizeof *w->tx.tensor};
    if (!write_out(w))
        weft_worker__fail(w);
}

bool weft_worker__is_taking(const worker_process *w, uint64_t now_ns)
{
    size_t left = 0;
    for (uint32_t i = w->tx.at_iov; w->tx_blocked && i < w->tx.n_iov; i++)
        left += w->tx.iov[i].iov_len;
    return left > COPIED_MAX && now_ns - w->moved_ns < taking_ns;
}

bool weft_worker__takes_ahead(const worker_process *w)
{
    return weft_worker__awaits(w) && w->ahead_id == 0 && weft_channel__boxes(w->channel) > 1;
}

bool weft_worker__send_ahead(worker_process *w, weft_wire_out *message)
{
    bool failed = false, fits = weft_worker__share_ahead(w, message, &failed);
    if (fits)
        w->ahead_id = message->head.id;
    weft_wire__free(message);
    if (failed)
        weft_worker__fail(w);
    return fits;
}

/* -- Receiving ------------------------------------------------------------------------------ */

/* The section of the message (head, tensor heads, payload) that is incomplete: where its next bytes
 * go and how many are missing. false: the message is whole. */
static bool next_section(worker_process *w, void **out_at, size_t *out_len)
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
    *out_at = w->rx_payload ? weft_payload__at(w->rx_payload) + got : NULL;
    *out_len = w->rx_head.payload_bytes - got;
    return got < w->rx_head.payload_bytes;
}

/* Once the head is whole: allocates what it announces. false: malformed, not awaited, or out of
 * memory. */
static bool make_room(worker_process *w)
{
    const weft_wire_head *h = &w->rx_head;
    if (w->rx_got != sizeof w->rx_head)
        return true;
    bool awaited = h->kind == WEFT_WIRE_DONE && w->state == WORKER_BUSY && h->id == w->tx.head.id;
    if (!weft_wire__head_valid(h) ||
        (!awaited && (h->n_tensor || h->payload_bytes > WEFT_WIRE_TEXT_MAX)))
        return false;
    w->rx_tensor = calloc(w->rx_head.n_tensor + 1, sizeof *w->rx_tensor);
    w->rx_payload = weft_payload__create(w->rx_head.payload_bytes + 1);
    return w->rx_tensor && w->rx_payload;
}

static void take_ready(worker_process *w)
{
    w->state = WORKER_IDLE;
    w->ready_ns = weft_clock__now_ns();
    WEFT_LOG(WEFT_LOG_INFO, "worker_ready", {.key = "pid", .number = (double)w->pid},
             {.key = "slice", .text = w->slice->name ? w->slice->name : ""});
    w->lost = false;
    w->why[0] = '\0';
    free_messages(w);
    w->events->on_ready(w->user);
}

static void take_report(worker_process *w)
{
    const weft_wire_head *h = &w->rx_head;
    note_report(w, (const char *)weft_payload__at(w->rx_payload), h->payload_bytes);
    if (h->err == WEFT_ERR_NOMEM && w->slice->plan_bytes)
        snprintf(w->why + strlen(w->why), sizeof w->why - strlen(w->why),
                 "; the plan counts on %llu bytes here", (unsigned long long)w->slice->plan_bytes);
    w->reports_lost = h->kind == WEFT_WIRE_LOST || h->err == WEFT_ERR_NODEV;
}

static void end_answer(worker_process *w)
{
    uint64_t next_id = w->ahead_id;
    w->state = next_id ? WORKER_BUSY : WORKER_IDLE;
    w->n_bell = 0;
    free_messages(w);
    if (next_id) {
        w->tx.head.id = next_id;
        w->tx_shared = true;
        w->tx_ns = weft_clock__now_ns();
    }
    w->events->on_idle(w->user);
}

static void take_answer(worker_process *w)
{
    uint8_t *payload = weft_payload__at(w->rx_payload);
    payload[w->rx_head.payload_bytes] = '\0';
    w->events->on_answer(w->user, &w->rx_head, w->rx_tensor, payload);
    end_answer(w);
}

/* Handles a whole message. false: the process ends, or sent what does not fit its state. */
static bool take_message(worker_process *w)
{
    const weft_wire_head *h = &w->rx_head;
    switch (h->kind) {
    case WEFT_WIRE_READY:
        if (w->state != WORKER_STARTING || h->id != w->bundle->identity)
            return false;
        if (weft_clock__now_ns() > w->ready_by_ns) {
            note_expiry(w);
            return false;
        }
        take_ready(w);
        return true;
    case WEFT_WIRE_FAILED:
    case WEFT_WIRE_LOST:
        take_report(w);
        return false;
    case WEFT_WIRE_DONE:
        if (w->state != WORKER_BUSY || h->id != w->tx.head.id ||
            (h->err == WEFT_ERR_OK &&
             !weft_wire__tensors_valid(w->rx_tensor, h->n_tensor, h->payload_bytes)))
            return false;
        take_answer(w);
        return true;
    case WEFT_WIRE_BELL:
        if (h->payload_bytes || ++w->n_bell > BELLS_MAX)
            return false;
        free_rx(w);
        return true;
    default:
        return false;
    }
}

/* -- Channel -------------------------------------------------------------------------------- */

bool weft_worker__awaits(const worker_process *w)
{
    return w->state == WORKER_BUSY && w->tx_shared;
}

/* Whether the answer in the channel has to wait for another, which comes over the socket. */
static bool waits(worker_process *w)
{
    uint64_t now_ns = weft_clock__now_ns();
    if (!weft_worker__is_early(w))
        return false;
    w->early_ns = w->early_ns ? w->early_ns : now_ns;
    return now_ns - w->early_ns < early_grace_ns;
}

bool weft_worker__take(worker_process *w)
{
    weft_wire_head head;
    const uint8_t *payload;
    if (!w->channel || w->fd < 0 || !weft_channel__has(w->channel) || (w->ahead_id && waits(w)))
        return false;
    if (!weft_worker__read_answer(w, &head, &payload) || !weft_worker__awaits(w) ||
        head.id != w->tx.head.id) {
        weft_worker__fail(w);
        return true;
    }
    w->events->on_answer(w->user, &head, w->channel_tensor, payload);
    end_answer(w);
    return true;
}

/* -- Socket --------------------------------------------------------------------------------- */

static void on_event(void *user, uint32_t events)
{
    worker_process *w = user;
    if ((events & EPOLLOUT) && !write_out(w)) {
        weft_worker__fail(w);
        return;
    }
    for (size_t left = TURN_BYTES;;) {
        void *at = NULL;
        size_t len = 0;
        int fd = w->fd;
        if (!next_section(w, &at, &len)) {
            if (!take_message(w)) {
                weft_worker__fail(w);
                return;
            }
            if (w->fd != fd)
                return; /* it failed inside an event */
            continue;
        }
        if (left == 0)
            return; /* the rest in the next turn */
        ssize_t got = read(w->fd, at, len < left ? len : left);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (got <= 0) {
            weft_worker__fail(w);
            return;
        }
        w->rx_got += (uint64_t)got;
        left -= (size_t)got;
        if (!make_room(w)) {
            weft_worker__fail(w);
            return;
        }
    }
}
