/* gRPC streams: headers and one message in, one message or an error out, over nghttp2's callbacks.
 *
 * The buffer of a message grows with the bytes received, up to the announced length. The bytes of
 * all streams are limited together to HELD_MESSAGES_MAX messages of maximum size. Both directions
 * have a deadline of 30 s plus the time of the message at 256 KiB/s. */
#include "runtime/server/grpc_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES_MAX = 16384, HEADER_OVERHEAD_BYTES = 32 };
#define LONGEST_US ((uint64_t)1 << 50) /* of a timeout: 35 years */

static const uint64_t settings_ns = 10000000000u; /* for the client to acknowledge the server's */

/* Streams that the server resets for faults of the client: so many at once, then per second. */
enum { RESETS_MAX = 1000, RESETS_PER_S = 100 };

static void free_stream(grpc_stream *s)
{
    weft_grpc__set_held(&s->share, 0);
    weft_peers__release(&s->share.grpc->peers, s->share.peer);
    weft_offload__free(s->share.grpc->offload, s->message, s->cap);
    weft_offload__free(s->share.grpc->offload, s->call.message, s->call.len);
    free(s);
}

static void count_running(grpc_stream *s, int change)
{
    s->share.grpc->n_running += (uint32_t)change;
    if (s->connection)
        s->connection->n_running += (uint32_t)change;
}

/* A request is whole, or its answer is sent. */
static void note_progress(grpc_connection *c)
{
    c->moved = 0;
    c->moved_ns = weft_clock__now_ns();
}

void weft_grpc__drop_stream(grpc_stream *s)
{
    grpc_connection *c = s->connection;
    *(s->prev ? &s->prev->next : &c->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    c->n_stream--;
    c->n_running -= s->state == GRPC_RUNNING;
    if (s->state == GRPC_TALKING)
        weft_grpc__drop_talk(s);
    weft_grpc__end_wait(s);
    s->connection = NULL;
    if (s->state == GRPC_RUNNING)
        weft_grpc__cancel_call(&s->call); /* frees the stream, now or later */
    else
        free_stream(s);
}

/* -- Answers -------------------------------------------------------------------------------- */

static nghttp2_nv text_header(const char *name, const char *value)
{
    return weft_grpc__field(name, value, strlen(value));
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *buf, size_t cap,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    grpc_stream *s = source->ptr;
    size_t left = s->call.len - s->sent, n = left < cap ? left : cap;
    (void)user;
    memcpy(buf, s->call.message + s->sent, n);
    s->sent += n;
    s->connection->moved += n;
    weft_grpc__wait(s);
    if (s->sent < s->call.len)
        return (ssize_t)n;
    nghttp2_nv trailer = text_header("grpc-status", "0");
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (nghttp2_submit_trailer(session, id, &trailer, 1) != 0)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return (ssize_t)n;
}

/* `http` other than "200": the request is not gRPC and gets only this HTTP status. */
static void send_answer(grpc_stream *s, const char *http)
{
    const weft_grpc_call *call = &s->call;
    nghttp2_session *session = s->connection->session;
    bool ok = call->status == WEFT_GRPC_OK, is_grpc = strcmp(http, "200") == 0;
    char status[12], text[WEFT_GRPC_ESCAPED_MAX];
    nghttp2_nv nv[6];
    size_t n = 0;
    snprintf(status, sizeof status, "%d", (int)call->status);
    nv[n++] = text_header(":status", http);
    if (is_grpc) {
        nv[n++] = text_header("content-type", "application/grpc");
        nv[n++] = text_header("grpc-accept-encoding", WEFT_GRPC_ENCODINGS);
    }
    if (is_grpc && ok && call->form != WEFT_ZIP_NONE)
        nv[n++] = text_header("grpc-encoding", weft_zip__name(call->form));
    if (is_grpc && !ok) {
        nv[n++] = text_header("grpc-status", status);
        nv[n++] = weft_grpc__field("grpc-message", text, weft_grpc__escape(call->text, text));
    }
    nghttp2_data_provider data = {.source = {.ptr = s}, .read_callback = read_answer};
    weft_grpc__log_call(call, s->method);
    s->state = GRPC_SENDING;
    s->deadline_ns = weft_grpc__deadline(call->len);
    if (nghttp2_submit_response(session, s->id, nv, n, ok ? &data : NULL) != 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_INTERNAL_ERROR);
    weft_grpc__wait(s);
    weft_grpc__mark_dirty(s->connection);
}

static void drop_message(grpc_stream *s)
{
    weft_offload__free(s->share.grpc->offload, s->message, s->cap);
    s->message = NULL;
    s->have = s->cap = 0;
}

static void refuse(grpc_stream *s, const char *http, weft_grpc_status status, const char *text)
{
    drop_message(s);
    weft_grpc__set_held(&s->share, 0);
    weft_grpc__fail_call(&s->call, status, "%s", text);
    send_answer(s, http);
}

void weft_grpc__refuse_stream(grpc_stream *s, weft_grpc_status status, const char *text)
{
    refuse(s, "200", status, text);
}

static bool on_hold(weft_grpc_call *call, size_t bytes)
{
    grpc_stream *s = call->user;
    if (!weft_grpc__may_hold(&s->share, bytes))
        return false;
    weft_grpc__set_held(&s->share, bytes);
    return true;
}

static void on_reply(weft_grpc_call *call)
{
    grpc_stream *s = call->user;
    count_running(s, -1);
    s->state = GRPC_SENDING;
    if (!s->connection) {
        free_stream(s);
        return;
    }
    weft_grpc__set_held(&s->share, call->len);
    send_answer(s, "200");
}

/* -- Headers -------------------------------------------------------------------------------- */

static bool is(const uint8_t *at, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(at, text, len) == 0;
}

/* At most years, so that times to come do not wrap; never 0: "0m" is a deadline that has passed. */
static uint64_t in_us(uint64_t n, uint64_t unit_ns)
{
    uint64_t us = unit_ns < 1000 ? n * unit_ns / 1000 : n * (unit_ns / 1000);
    return (us < LONGEST_US ? us : LONGEST_US) + 1;
}

/* Parses "100m": at most 8 digits and a unit. Returns us; 0: malformed. */
static uint64_t parse_timeout(const uint8_t *at, size_t len)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {{'H', 3600000000000u}, {'M', 60000000000u}, {'S', 1000000000u},
                 {'m', 1000000u},       {'u', 1000u},        {'n', 1u}};
    uint64_t n = 0;
    if (len < 2 || len > 9)
        return 0;
    for (size_t i = 0; i + 1 < len; i++) {
        if (at[i] < '0' || at[i] > '9')
            return 0;
        n = n * 10 + (uint64_t)(at[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (at[len - 1] == (uint8_t)units[i].unit)
            return in_us(n, units[i].ns);
    return 0;
}

static bool is_grpc_type(const uint8_t *at, size_t len)
{
    static const char type[] = "application/grpc";
    size_t n = sizeof type - 1;
    return len >= n && memcmp(at, type, n) == 0 &&
           (len == n || at[n] == ';' || is(at + n, len - n, "+proto"));
}

static void take_encoding(grpc_stream *s, const uint8_t *value, size_t len)
{
    s->has_encoding = !is(value, len, "identity");
    s->form = WEFT_ZIP_NONE;
    for (weft_zip_form f = WEFT_ZIP_GZIP; f <= WEFT_ZIP_DEFLATE; f++)
        if (is(value, len, weft_zip__name(f)))
            s->form = f;
}

static void take_header(grpc_stream *s, const uint8_t *name, size_t name_len, const uint8_t *value,
                        size_t len)
{
    if (is(name, name_len, ":method"))
        s->is_post = is(value, len, "POST");
    else if (is(name, name_len, ":path"))
        s->method = weft_grpc__find_method((const char *)value, len);
    else if (is(name, name_len, "content-type"))
        s->is_grpc = is_grpc_type(value, len);
    else if (is(name, name_len, "grpc-encoding"))
        take_encoding(s, value, len);
    else if (is(name, name_len, "triton_grpc_error"))
        s->talk.errors_end = is(value, len, "true");
    else if (is(name, name_len, "grpc-timeout")) {
        s->call.timeout_us = parse_timeout(value, len);
        s->timeout_wrong = s->call.timeout_us == 0;
    } else if (is(name, name_len, "traceparent"))
        weft_origin__take_parent(&s->call.origin, (const char *)value, len);
    else
        weft_access__take_header(s->call.access, WEFT_OVER_GRPC, &s->call.presented,
                                 (const char *)name, name_len, (const char *)value, len);
}

/* The gate in front of all methods: may refuse the call. */
static void admit(grpc_stream *s)
{
    char text[WEFT_REQUEST_MESSAGE_MAX];
    weft_admission got = weft_access__admit(s->call.access, WEFT_OVER_GRPC, &s->call.presented,
                                            weft_grpc__group_of(s->method), text);
    if (got != WEFT_ADMISSION_ADMITTED)
        refuse(s, "200", (weft_grpc_status)weft_admission__grpc(got), text);
}

/* Where the call comes from, if anybody wants to know; the fields of a parent are kept. */
static void take_origin(grpc_stream *s)
{
    const weft_front *front = &s->share.grpc->front;
    const weft_origin parent = s->call.origin;
    if (!weft_spans__is_on(front->spans))
        return;
    weft_origin__begin(&s->call.origin, "grpc", s->connection->stream.fd,
                       weft_access__key_name(front->access, &s->call.presented));
    s->call.origin.has_parent = parent.has_parent;
    s->call.origin.context = parent.context;
    weft_origin__decide(&s->call.origin, front->spans);
}

static void end_headers(grpc_stream *s)
{
    take_origin(s);
    s->state = GRPC_RECEIVING;
    if (s->header_bytes > HEADER_BYTES_MAX)
        refuse(s, "200", WEFT_GRPC_RESOURCE_EXHAUSTED, "the headers are too large");
    else if (!s->is_post)
        refuse(s, "405", WEFT_GRPC_UNIMPLEMENTED, "");
    else if (!s->is_grpc)
        refuse(s, "415", WEFT_GRPC_UNIMPLEMENTED, "");
    else if (!s->method)
        refuse(s, "200", WEFT_GRPC_UNIMPLEMENTED, "unknown method");
    else if (s->timeout_wrong)
        refuse(s, "200", WEFT_GRPC_INVALID_ARGUMENT, "grpc-timeout is malformed");
    else
        admit(s);
    if (s->state == GRPC_RECEIVING && weft_grpc__talks(s->method))
        weft_grpc__open_talk(s);
}

/* -- Messages ------------------------------------------------------------------------------- */

/* The message that arrives, or the whole stream, is refused. */
static void refuse_message(grpc_stream *s, weft_grpc_status status, const char *text)
{
    if (s->state == GRPC_TALKING)
        weft_grpc__end_talk(s, status, text, false);
    else
        refuse(s, "200", status, text);
}

/* Reads the prefix, which is whole. false: the message is refused. */
static bool begin_message(grpc_stream *s)
{
    uint32_t len = 0;
    char text[64];
    for (int i = 1; i < WEFT_GRPC_PREFIX_BYTES; i++)
        len = len << 8 | s->prefix[i];
    s->len = len;
    s->deadline_ns = weft_grpc__deadline(s->len);
    size_t most = weft_grpc__message_max(s->method, s->share.grpc->max_message);
    snprintf(text, sizeof text, "the message is larger than %zu bytes", most);
    if (s->prefix[0] > 1)
        refuse_message(s, WEFT_GRPC_INVALID_ARGUMENT, "the message has wrong flags");
    else if (s->prefix[0] == 1 && !s->has_encoding)
        refuse_message(s, WEFT_GRPC_INTERNAL,
                       "the message is compressed, grpc-encoding is not set");
    else if (s->prefix[0] == 1 && s->form == WEFT_ZIP_NONE)
        refuse_message(s, WEFT_GRPC_UNIMPLEMENTED,
                       "messages may be compressed by gzip and deflate only");
    else if (s->len > most)
        refuse_message(s, WEFT_GRPC_RESOURCE_EXHAUSTED, text);
    else
        return true;
    return false;
}

static bool grow_message(grpc_stream *s, size_t need)
{
    size_t cap = s->cap ? s->cap : 4096;
    while (cap < need)
        cap *= 2;
    cap = cap < s->len ? cap : s->len;
    if (!weft_grpc__may_hold(&s->share, cap)) {
        refuse_message(s, WEFT_GRPC_UNAVAILABLE, "the server holds too many requests");
        return false;
    }
    uint8_t *message = realloc(s->message, cap);
    if (!message) {
        refuse_message(s, WEFT_GRPC_UNAVAILABLE, "out of memory");
        return false;
    }
    s->message = message;
    s->cap = cap;
    weft_grpc__set_held(&s->share, cap);
    return true;
}

/* Whether bytes of the stream are still of interest. */
static bool takes_data(const grpc_stream *s)
{
    return s->state == GRPC_RECEIVING || (s->state == GRPC_TALKING && !s->talk.no_more);
}

/* Takes bytes of the prefix or the message, and returns how many. */
static size_t take_data(grpc_stream *s, const uint8_t *data, size_t len)
{
    if (s->n_prefix < WEFT_GRPC_PREFIX_BYTES) {
        if (s->state == GRPC_TALKING && s->n_prefix == 0)
            s->deadline_ns = weft_grpc__deadline(0); /* until its length is known */
        s->prefix[s->n_prefix++] = *data;
        if (s->n_prefix == WEFT_GRPC_PREFIX_BYTES)
            (void)begin_message(s);
        return 1;
    }
    size_t n = len < s->len - s->have ? len : s->len - s->have;
    if (s->have + n > s->cap && !grow_message(s, s->have + n))
        return n;
    memcpy(s->message + s->have, data, n);
    s->have += n;
    s->connection->moved += n;
    return n;
}

static void add_data(grpc_stream *s, const uint8_t *data, size_t len)
{
    if (s->waits)
        weft_grpc__wait(s);
    while (len > 0 && takes_data(s)) {
        bool whole = s->n_prefix == WEFT_GRPC_PREFIX_BYTES && s->have == s->len;
        if (whole) {
            refuse(s, "200", WEFT_GRPC_INVALID_ARGUMENT, "more data than the one message");
            return;
        }
        size_t n = take_data(s, data, len);
        data += n;
        len -= n;
        if (s->state == GRPC_TALKING && !s->talk.no_more && s->n_prefix == WEFT_GRPC_PREFIX_BYTES &&
            s->have == s->len)
            weft_grpc__take_message(s);
    }
}

static void end_request(grpc_stream *s)
{
    if (s->state == GRPC_TALKING)
        weft_grpc__finish_talk(s);
    if (s->state != GRPC_RECEIVING)
        return; /* it was refused */
    if (s->n_prefix < WEFT_GRPC_PREFIX_BYTES || s->have < s->len) {
        refuse(s, "200", WEFT_GRPC_INVALID_ARGUMENT, "the request ends before its message");
        return;
    }
    uint8_t *message = s->message;
    s->message = NULL; /* the stream may be answered or freed inside weft_grpc__begin_call */
    s->state = GRPC_RUNNING;
    weft_grpc__end_wait(s);
    s->call.form = s->prefix[0] ? s->form : WEFT_ZIP_NONE;
    count_running(s, 1);
    note_progress(s->connection);
    weft_grpc__begin_call(s->method, &s->call, message, s->len);
}

/* -- Callbacks ------------------------------------------------------------------------------ */

static grpc_stream *stream_of(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    grpc_connection *c = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    grpc_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    *s = (grpc_stream){.share = {.grpc = c->grpc, .peer = c->peer},
                       .connection = c,
                       .id = frame->hd.stream_id,
                       .deadline_ns = weft_grpc__deadline(0),
                       .next = c->streams};
    s->call = (weft_grpc_call){.router = c->grpc->router,
                               .spans = c->grpc->front.spans,
                               .regions = c->grpc->front.regions,
                               .server_name = c->grpc->front.server_name,
                               .listings = c->grpc->front.listings,
                               .deployment = c->grpc->front.deployment,
                               .repository = c->grpc->options->repository,
                               .access = c->grpc->front.access,
                               .unpacked_max = c->grpc->max_message,
                               .decoded_max = 2 * c->grpc->max_message + (1 << 20),
                               .offload = c->grpc->offload,
                               .heavy = c->grpc->heavy,
                               .reply = on_reply,
                               .hold = on_hold,
                               .user = s};
    if (s->call.access)
        s->call.presented.certificate = weft_stream__client(&c->stream);
    if (nghttp2_session_set_stream_user_data(session, s->id, s) != 0) {
        free(s);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    c->peer->n_ref++;
    if (c->streams)
        c->streams->prev = s;
    c->streams = s;
    c->n_stream++;
    weft_grpc__wait(s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    grpc_stream *s = stream_of(session, frame->hd.stream_id);
    (void)flags;
    (void)user;
    if (!s || s->state != GRPC_HEADERS)
        return 0; /* trailers are ignored */
    s->header_bytes += name_len + len + HEADER_OVERHEAD_BYTES;
    take_header(s, name, name_len, value, len);
    /* Larger than HEADER_BYTES_MAX is answered with an error, much larger resets the stream. */
    return s->header_bytes > 4 * HEADER_BYTES_MAX ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* Running calls are answered; requests that are not whole are refused. nghttp2 ignores new streams
 * after GOAWAY, which tells clients that they may retry elsewhere. */
void weft_grpc__leave(grpc_connection *c)
{
    if (c->leaving)
        return;
    c->leaving = true;
    c->grpc->n_leaving++;
    for (grpc_stream *s = c->streams; s; s = s->next)
        if (s->state == GRPC_RECEIVING)
            weft_grpc__refuse_stream(s, WEFT_GRPC_UNAVAILABLE, "the server is shutting down");
        else if (s->state == GRPC_TALKING && !s->talk.no_more)
            weft_grpc__end_talk(s, WEFT_GRPC_UNAVAILABLE, "the server is shutting down", true);
        else if (s->state == GRPC_HEADERS)
            nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, s->id, NGHTTP2_REFUSED_STREAM);
    nghttp2_submit_goaway(c->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(c->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    weft_grpc__mark_dirty(c);
}

/* What a frame tells of the connection. */
static void note_frame(grpc_connection *c, const nghttp2_frame *frame)
{
    bool acknowledges = frame->hd.flags & NGHTTP2_FLAG_ACK;
    if (c->hello_deadline_ns) {
        c->hello_deadline_ns = 0;
        c->settings_deadline_ns = weft_clock__now_ns() + settings_ns;
    }
    if (frame->hd.type == NGHTTP2_SETTINGS && acknowledges)
        c->settings_deadline_ns = 0;
    if (frame->hd.type == NGHTTP2_PING && acknowledges && c->grpc->leave_by_ns)
        weft_grpc__leave(c);
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    grpc_connection *c = user;
    note_frame(c, frame);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    grpc_stream *s = stream_of(session, frame->hd.stream_id);
    if (!s)
        return 0;
    if (s->state == GRPC_HEADERS && frame->hd.type == NGHTTP2_HEADERS)
        end_headers(s);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        end_request(s);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t len, void *user)
{
    grpc_stream *s = stream_of(session, id);
    (void)flags;
    (void)user;
    if (s)
        add_data(s, data, len);
    return 0;
}

/* Counts a stream that the server resets. Clients that make it do so again and again, as those that
 * do it themselves, have requests run for nothing: they are sent away. */
static void count_reset(nghttp2_session *session, grpc_connection *c)
{
    uint64_t now_ns = weft_clock__now_ns();
    double leaked = (double)(now_ns - c->resets_ns) * 1e-9 * RESETS_PER_S;
    c->resets = (c->resets > leaked ? c->resets - leaked : 0) + 1;
    c->resets_ns = now_ns;
    if (c->resets > RESETS_MAX)
        (void)nghttp2_session_terminate_session(session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    static const uint8_t mark[8] = "leaving";
    grpc_connection *c = user;
    if (frame->hd.type == NGHTTP2_GOAWAY && c->grpc->leave_by_ns && !c->leaving &&
        nghttp2_submit_ping(session, NGHTTP2_FLAG_NONE, mark) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR)
        count_reset(session, c);
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    /* The answer was sent before the request was whole: the client need not send the rest. */
    if (ends && nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    grpc_stream *s = stream_of(session, id);
    (void)code;
    (void)user;
    if (s) {
        nghttp2_session_set_stream_user_data(session, id, NULL);
        note_progress(s->connection);
        weft_grpc__drop_stream(s);
    }
    return 0;
}

void weft_grpc__set_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
}
