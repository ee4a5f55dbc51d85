/* Streams of messages both ways: each message is a call of its own, answered when it is done, so
 * answers may come in another order than messages; they carry the id of theirs.
 *
 * A part is a message with its call. It runs (list `running`), then its answer waits to be sent
 * (list `ready`), then it is freed. When the client leaves, parts that run become orphans (stream
 * NULL) until the router calls `done`. */
#include "runtime/server/grpc_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a stream. Answers that wait have a limit of their own because a client need not take them;
 * those that run are limited by reading no more (grpc.c). */
enum { READY_MAX = 4096 };

/* -- Parts ---------------------------------------------------------------------------------- */

static void free_part(grpc_part *part)
{
    weft_grpc__set_held(&part->share, 0);
    weft_peers__release(&part->share.grpc->peers, part->share.peer);
    weft_offload__free(part->share.grpc->offload, part->call.message, part->call.len);
    free(part->call.id);
    free(part);
}

static void link_part(grpc_stream *s, grpc_part *part)
{
    part->next = s->talk.running;
    if (part->next)
        part->next->prev = part;
    s->talk.running = part;
    s->talk.n_running++;
    s->share.grpc->n_running++;
    s->connection->n_running++;
    s->connection->n_part++;
    weft_grpc__end_wait(s);
}

/* Takes a part out of those that run; it still counts for the transport. */
static void unlink_part(grpc_stream *s, grpc_part *part)
{
    *(part->prev ? &part->prev->next : &s->talk.running) = part->next;
    if (part->next)
        part->next->prev = part->prev;
    part->next = part->prev = NULL;
    s->talk.n_running--;
    s->connection->n_running--;
    s->connection->n_part--;
}

/* What a part with so many bytes of message or answer counts as: many have only a few. */
static size_t with_part(size_t bytes)
{
    return bytes + sizeof(grpc_part);
}

static bool on_hold(weft_grpc_call *call, size_t bytes)
{
    grpc_part *part = call->user;
    if (!weft_grpc__may_hold(&part->share, with_part(bytes)))
        return false;
    weft_grpc__set_held(&part->share, with_part(bytes));
    return true;
}

/* nghttp2 asks for answers again. */
static void wake(grpc_stream *s)
{
    if (s->talk.sleeps)
        nghttp2_session_resume_data(s->connection->session, s->id);
    s->talk.sleeps = false;
    weft_grpc__mark_dirty(s->connection);
}

static void queue_answer(grpc_stream *s, grpc_part *part)
{
    grpc_talk *t = &s->talk;
    if (!t->ready)
        t->send_by_ns = weft_grpc__deadline(part->call.len);
    *(t->ready ? &t->last_ready->next : &t->ready) = part;
    t->last_ready = part;
    t->n_ready++;
    wake(s);
    if (t->n_ready > READY_MAX)
        weft_grpc__end_talk(s, WEFT_GRPC_RESOURCE_EXHAUSTED, "too many answers are not taken",
                            false);
}

static void on_reply(weft_grpc_call *call)
{
    grpc_part *part = call->user;
    grpc_stream *s = part->stream;
    part->share.grpc->n_running--;
    weft_grpc__log_call(call, call->method);
    if (!s) {
        free_part(part);
        return;
    }
    unlink_part(s, part);
    if (s->talk.n_running == 0)
        weft_grpc__wait(s);
    bool failed = call->status != WEFT_GRPC_OK;
    if (failed && weft_grpc__is_infer(s->method) && !s->talk.errors_end)
        failed = !weft_grpc__write_error(call->id ? call->id : "", call->text, &call->message,
                                         &call->len);
    weft_grpc__set_held(&part->share, with_part(call->len));
    if (!failed) {
        queue_answer(s, part);
        return;
    }
    weft_grpc__end_talk(s, call->status, call->text, false);
    free_part(part);
}

/* -- Messages ------------------------------------------------------------------------------- */

static grpc_part *make_part(grpc_stream *s)
{
    uint64_t now_ns = weft_clock__now_ns();
    grpc_part *part = calloc(1, sizeof *part);
    if (!part)
        return NULL;
    *part = (grpc_part){.call = s->call, .stream = s, .share = s->share};
    part->share.peer->n_ref++;
    s->share.held = 0; /* it is the part's now */
    weft_grpc__set_held(&part->share, with_part(part->share.held));
    part->call.talks = weft_grpc__is_infer(s->method);
    part->call.form = s->prefix[0] ? s->form : WEFT_ZIP_NONE;
    part->call.reply = on_reply;
    part->call.hold = on_hold;
    part->call.user = part;
    part->call.origin.received_ns = now_ns;
    if (s->talk.until_ns != UINT64_MAX)
        part->call.timeout_us =
            s->talk.until_ns > now_ns ? (s->talk.until_ns - now_ns) / 1000 + 1 : 1;
    return part;
}

/* Whether the key may make one more request; the first was admitted with the headers. */
static bool is_admitted(grpc_stream *s)
{
    char text[WEFT_REQUEST_MESSAGE_MAX];
    weft_admission got = WEFT_ADMISSION_ADMITTED;
    if (!s->talk.admitted)
        got = weft_access__admit(s->call.access, WEFT_OVER_GRPC, &s->call.presented,
                                 weft_grpc__group_of(s->method), text);
    s->talk.admitted = false;
    if (got != WEFT_ADMISSION_ADMITTED)
        weft_grpc__end_talk(s, (weft_grpc_status)weft_admission__grpc(got), text, true);
    return got == WEFT_ADMISSION_ADMITTED;
}

void weft_grpc__take_message(grpc_stream *s)
{
    if (!is_admitted(s))
        return;
    if (!weft_grpc__may_hold(&s->share, with_part(s->share.held))) {
        weft_grpc__end_talk(s, WEFT_GRPC_UNAVAILABLE, "the server holds too many requests", false);
        return;
    }
    grpc_part *part = make_part(s);
    if (!part) {
        weft_grpc__end_talk(s, WEFT_GRPC_UNAVAILABLE, "out of memory", false);
        return;
    }
    uint8_t *message = s->message;
    size_t len = s->len;
    s->message = NULL;
    s->n_prefix = 0;
    s->len = s->have = s->cap = 0;
    link_part(s, part);
    weft_grpc__begin_call(s->method, &part->call, message, len);
}

/* -- Answers -------------------------------------------------------------------------------- */

static bool is_over(const grpc_stream *s)
{
    return s->talk.no_more && s->talk.n_running == 0 && !s->talk.ready;
}

/* Copies of the first answer, which is freed when all of it is taken. */
static size_t take_answer(grpc_stream *s, uint8_t *to, size_t room)
{
    grpc_talk *t = &s->talk;
    grpc_part *part = t->ready;
    size_t left = part->call.len - part->sent, n = left < room ? left : room;
    memcpy(to, part->call.message + part->sent, n);
    part->sent += n;
    s->connection->moved += n;
    if (s->waits)
        weft_grpc__wait(s);
    if (part->sent < part->call.len)
        return n;
    t->ready = part->next;
    t->n_ready--;
    if (t->ready)
        t->send_by_ns = weft_grpc__deadline(t->ready->call.len);
    free_part(part);
    return n;
}

static bool submit_trailers(const grpc_stream *s, nghttp2_session *session)
{
    char status[12], text[WEFT_GRPC_ESCAPED_MAX];
    int len = snprintf(status, sizeof status, "%d", (int)s->call.status);
    const nghttp2_nv trailer[] = {
        weft_grpc__field("grpc-status", status, (size_t)len),
        weft_grpc__field("grpc-message", text, weft_grpc__escape(s->call.text, text))};
    size_t n = s->call.status == WEFT_GRPC_OK ? 1 : 2;
    return nghttp2_submit_trailer(session, s->id, trailer, n) == 0;
}

static ssize_t read_answers(nghttp2_session *session, int32_t id, uint8_t *buf, size_t cap,
                            uint32_t *flags, nghttp2_data_source *source, void *user)
{
    grpc_stream *s = source->ptr;
    size_t n = 0;
    (void)id;
    (void)user;
    while (n < cap && s->talk.ready)
        n += take_answer(s, buf + n, cap - n);
    if (n > 0)
        return (ssize_t)n;
    if (!is_over(s)) {
        s->talk.sleeps = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    s->talk.trailed = true;
    s->talk.send_by_ns = weft_grpc__deadline(0);
    return submit_trailers(s, session) ? 0 : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

/* -- The stream ----------------------------------------------------------------------------- */

void weft_grpc__open_talk(grpc_stream *s)
{
    nghttp2_session *session = s->connection->session;
    const char *form = weft_zip__name(s->form);
    const nghttp2_nv nv[] = {
        weft_grpc__field(":status", "200", 3),
        weft_grpc__field("content-type", "application/grpc", strlen("application/grpc")),
        weft_grpc__field("grpc-accept-encoding", WEFT_GRPC_ENCODINGS, strlen(WEFT_GRPC_ENCODINGS)),
        weft_grpc__field("grpc-encoding", form, strlen(form))};
    nghttp2_data_provider data = {.source = {.ptr = s}, .read_callback = read_answers};
    uint64_t timeout_us = s->call.timeout_us;
    s->state = GRPC_TALKING;
    s->talk.admitted = true;
    s->talk.until_ns = timeout_us ? weft_clock__now_ns() + timeout_us * 1000 : UINT64_MAX;
    if (nghttp2_submit_response(session, s->id, nv, sizeof nv / sizeof nv[0], &data) != 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
    weft_grpc__mark_dirty(s->connection);
}

void weft_grpc__finish_talk(grpc_stream *s)
{
    if (s->talk.no_more)
        return;
    if (s->n_prefix > 0) {
        weft_grpc__end_talk(s, WEFT_GRPC_INVALID_ARGUMENT, "the request ends before its message",
                            true);
        return;
    }
    s->talk.no_more = true;
    wake(s);
}

static void orphan_running(grpc_stream *s)
{
    for (grpc_part *part; (part = s->talk.running);) {
        unlink_part(s, part);
        part->stream = NULL;
        weft_grpc__cancel_call(&part->call); /* frees the part, now or later */
    }
}

void weft_grpc__end_talk(grpc_stream *s, weft_grpc_status status, const char *text, bool waits)
{
    if (s->call.status == WEFT_GRPC_OK)
        weft_grpc__fail_call(&s->call, status, "%s", text);
    s->talk.no_more = true;
    weft_offload__free(s->share.grpc->offload, s->message, s->cap);
    s->message = NULL;
    s->n_prefix = 0;
    s->len = s->have = s->cap = 0;
    weft_grpc__set_held(&s->share, 0);
    if (!waits)
        orphan_running(s);
    if (s->talk.n_running == 0)
        weft_grpc__wait(s);
    wake(s);
}

void weft_grpc__drop_talk(grpc_stream *s)
{
    orphan_running(s);
    for (grpc_part *part; (part = s->talk.ready);) {
        s->talk.ready = part->next;
        free_part(part);
    }
}

uint64_t weft_grpc__talk_deadline(const grpc_stream *s)
{
    uint64_t at = s->talk.until_ns;
    if (s->n_prefix > 0 && s->deadline_ns < at)
        at = s->deadline_ns;
    if ((s->talk.ready || s->talk.trailed) && s->talk.send_by_ns < at)
        at = s->talk.send_by_ns;
    return at;
}

void weft_grpc__expire_talk(grpc_stream *s, uint64_t now_ns)
{
    bool stuck = (s->talk.ready || s->talk.trailed) && s->talk.send_by_ns <= now_ns;
    if (stuck)
        nghttp2_submit_rst_stream(s->connection->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_CANCEL);
    else if (s->talk.until_ns <= now_ns)
        weft_grpc__end_talk(s, WEFT_GRPC_DEADLINE_EXCEEDED, "the time of the stream is over",
                            false);
    else
        weft_grpc__end_talk(s, WEFT_GRPC_DEADLINE_EXCEEDED, "the request arrives too slowly",
                            false);
    s->talk.until_ns = s->talk.until_ns <= now_ns ? UINT64_MAX : s->talk.until_ns;
}
