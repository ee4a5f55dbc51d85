/* What streams of one message and of many have in common: deadlines, bytes that count as held, the
 * line of those that wait for their clients, header fields, the access log. */
#include "runtime/server/grpc_int.h"

#include <string.h>

enum {
    SLOWEST_BYTES_PER_S = 256 << 10,
    WAITING_MAX = 16384,                  /* streams, of all connections: 1.5 KiB each */
    WAITING_IN_TURN_MAX = 4 * WAITING_MAX /* before answers are written */
};

static const uint64_t grace_ns = 30000000000u;

void weft_grpc__mark_dirty(grpc_connection *c)
{
    if (c->is_dirty)
        return;
    c->is_dirty = true;
    c->next_dirty = c->grpc->dirty;
    c->grpc->dirty = c;
}

uint64_t weft_grpc__deadline(size_t bytes)
{
    return weft_clock__now_ns() + grace_ns + (uint64_t)bytes / SLOWEST_BYTES_PER_S * 1000000000u;
}

void weft_grpc__set_held(grpc_share *s, size_t bytes)
{
    s->grpc->held_bytes = s->grpc->held_bytes - s->held + bytes;
    s->peer->held_bytes = s->peer->held_bytes - s->held + bytes;
    s->held = bytes;
}

/* One address may hold a quarter. More than all that, an answer, only where there is little else.
 */
bool weft_grpc__may_hold(const grpc_share *s, size_t bytes)
{
    const weft_grpc *grpc = s->grpc;
    size_t others = grpc->held_bytes - s->held, of_peer = s->peer->held_bytes - s->held,
           quarter = grpc->held_max / 4;
    if (bytes <= s->held || (others <= quarter && (s->peer->exempt || of_peer == 0)))
        return true;
    return (s->peer->exempt || of_peer + bytes <= quarter) && others + bytes <= grpc->held_max;
}

/* -- Streams that wait for their clients ---------------------------------------------------- */

void weft_grpc__end_wait(grpc_stream *s)
{
    weft_grpc *grpc = s->share.grpc;
    if (!s->waits)
        return;
    *(s->waits_before ? &s->waits_before->waits_behind : &grpc->waiting) = s->waits_behind;
    *(s->waits_behind ? &s->waits_behind->waits_before : &grpc->last_waiting) = s->waits_before;
    s->waits = false;
    grpc->n_waiting--;
}

/* Honest clients send a message, and take an answer, long before so many others begin. */
static void drop_first(weft_grpc *grpc)
{
    grpc_stream *s = grpc->waiting;
    weft_grpc__end_wait(s);
    s->is_dropped = true;
    nghttp2_submit_rst_stream(s->connection->session, NGHTTP2_FLAG_NONE, s->id,
                              NGHTTP2_ENHANCE_YOUR_CALM);
    weft_grpc__mark_dirty(s->connection);
}

void weft_grpc__wait(grpc_stream *s)
{
    weft_grpc *grpc = s->share.grpc;
    if (s->is_dropped || (s->waits && grpc->last_waiting == s))
        return;
    weft_grpc__end_wait(s);
    s->waits = true;
    s->waits_behind = NULL;
    s->waits_before = grpc->last_waiting;
    *(s->waits_before ? &s->waits_before->waits_behind : &grpc->waiting) = s;
    grpc->last_waiting = s;
    grpc->n_waiting++;
    if (grpc->n_waiting > WAITING_IN_TURN_MAX)
        drop_first(grpc);
}

void weft_grpc__drop_waiting(weft_grpc *grpc)
{
    while (grpc->n_waiting > WAITING_MAX)
        drop_first(grpc);
}

/* -- Header fields and log ------------------------------------------------------------------ */

size_t weft_grpc__escape(const char *text, char out[WEFT_GRPC_ESCAPED_MAX])
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (; *text && n + 3 <= WEFT_GRPC_ESCAPED_MAX; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c <= 0x7e && c != '%') {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%';
        out[n++] = hex[c >> 4];
        out[n++] = hex[c & 15];
    }
    return n;
}

nghttp2_nv weft_grpc__field(const char *name, const char *value, size_t len)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = len,
                        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

void weft_grpc__log_call(const weft_grpc_call *call, const weft_grpc_method *method)
{
    char trace[2 * WEFT_TRACE_ID_BYTES + 1];
    const weft_origin *o = &call->origin;
    if (!o->known || call->submitted || !weft_log__is_on(WEFT_LOG_ACCESS))
        return;
    weft_spans__put_hex(o->context.trace, sizeof o->context.trace, trace);
    WEFT_LOG(
        WEFT_LOG_ACCESS, "grpc",
        {.key = "method", .text = method ? weft_grpc__path_of(method) : ""},
        {.key = "status", .number = call->status}, {.key = "trace", .text = trace},
        {.key = "peer", .text = o->peer}, {.key = "key", .text = o->key},
        {.key = "why", .text = call->text},
        {.key = "total_us", .number = (double)((weft_clock__now_ns() - o->received_ns) / 1000)});
}
