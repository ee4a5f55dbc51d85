/* Which connections may go on: deadlines of each state, progress of slow clients, and which
 * connection is closed when there are too many or when they hold too many bytes.
 *
 * A request that is queued or running is never ended for the sake of others. */
#include "runtime/server/http_conn_int.h"

enum {
    RATE_MIN_PER_S = 16 << 10, /* bytes, of a body or an answer */
    SLOW_PER_S = 256 << 10,    /* above, a connection is never closed for others */
    CHECK_S = 5,
    IDLE_SEEN_MAX = 16,
    IN_USE_S = 10 /* since the last answer */
};

static const uint64_t second_ns = 1000000000u;

/* -- Lists ---------------------------------------------------------------------------------- */

void weft_http__link(http_connection *c)
{
    http_port *p = c->port;
    c->next = NULL;
    c->prev = p->list[c->state].last;
    *(c->prev ? &c->prev->next : &p->list[c->state].first) = c;
    p->list[c->state].last = c;
    p->list[c->state].n++;
}

void weft_http__unlink(http_connection *c)
{
    http_port *p = c->port;
    *(c->prev ? &c->prev->next : &p->list[c->state].first) = c->next;
    *(c->next ? &c->next->prev : &p->list[c->state].last) = c->prev;
    p->list[c->state].n--;
}

/* -- Deadlines ------------------------------------------------------------------------------ */

/* A head has this long from its first byte, the first one from the start of the connection; a body
 * or an answer until its rate is checked. */
/* 0: for ever, the router has deadlines of its own. */
static uint64_t patience_s(http_state state)
{
    static const uint64_t s[HTTP_STATES] = {
        [HTTP_IDLE] = 75,   [HTTP_HEAD] = 10,    [HTTP_BODY] = 10,
        [HTTP_RUNNING] = 0, [HTTP_SENDING] = 10, [HTTP_LINGERING] = 2};
    return s[state];
}

void weft_http__enter(http_connection *c, http_state state)
{
    bool first_head = state == HTTP_HEAD && !c->served;
    weft_http__unlink(c);
    c->state = state;
    weft_http__link(c);
    c->since_ns = weft_clock__now_ns();
    c->moved = c->recent = c->bytes_per_s = 0;
    c->recent_ns = c->since_ns;
    uint64_t patience_ns = patience_s(state) * second_ns;
    uint64_t at_ns = patience_ns ? c->since_ns + patience_ns : UINT64_MAX;
    if (!first_head && !weft_timer__set(c->http->loop, &c->timer, at_ns))
        c->closing = true;
}

/* The rates of whole seconds; of seconds without bytes when it is asked for. */
static void end_second(http_connection *c, uint64_t now_ns)
{
    if (now_ns - c->recent_ns < second_ns)
        return;
    c->bytes_per_s = (uint64_t)((double)c->recent * 1e9 / (double)(now_ns - c->recent_ns));
    c->recent = 0;
    c->recent_ns = now_ns;
}

void weft_http__count_bytes(http_connection *c, size_t n)
{
    end_second(c, weft_clock__now_ns());
    c->moved += n;
    c->recent += n;
}

bool weft_http__is_fast_enough(http_connection *c)
{
    uint64_t least = (uint64_t)RATE_MIN_PER_S * CHECK_S, now_ns = weft_clock__now_ns();
    if ((c->state != HTTP_BODY && c->state != HTTP_SENDING) || c->moved < least)
        return false;
    c->moved = 0;
    return weft_timer__set(c->http->loop, &c->timer, now_ns + CHECK_S * second_ns);
}

/* -- Who is closed -------------------------------------------------------------------------- */

static uint64_t rate_of(http_connection *c, uint64_t now_ns)
{
    end_second(c, now_ns);
    return c->bytes_per_s;
}

/* The slowest of a state, among those that had a second to show their rate. */
static http_connection *slowest_in(const http_port *port, http_state state, uint64_t bytes)
{
    http_connection *slowest = NULL;
    uint64_t least = SLOW_PER_S, now_ns = weft_clock__now_ns();
    for (http_connection *c = port->list[state].first; c; c = c->next) {
        if (c->closing || c->advancing || now_ns - c->since_ns < second_ns ||
            c->x->cap + c->x->charged < bytes)
            continue;
        uint64_t rate = rate_of(c, now_ns);
        if (rate < least) {
            least = rate;
            slowest = c;
        }
    }
    return slowest;
}

static http_connection *oldest_in(const http_port *port, http_state state)
{
    http_connection *c = port->list[state].first;
    while (c && (c->closing || c->advancing))
        c = c->next;
    return c;
}

http_connection *weft_http__slowest(const http_port *port, uint64_t bytes)
{
    http_connection *body = slowest_in(port, HTTP_BODY, bytes);
    return body ? body : slowest_in(port, HTTP_SENDING, bytes);
}

/* The longest idle, except those that have just been opened: their request is on the way. The
 * oldest are looked at only, so that a flood of them costs nothing. */
static http_connection *idle_in(const http_port *port, uint64_t now_ns)
{
    http_connection *c = oldest_in(port, HTTP_IDLE);
    for (int i = 0; c && i < IDLE_SEEN_MAX; i++, c = c->next)
        if (!c->closing && !c->advancing &&
            now_ns - c->since_ns > (c->served ? IN_USE_S : 1) * second_ns)
            return c;
    return NULL;
}

http_connection *weft_http__least_missed(const http_port *port)
{
    uint64_t now_ns = weft_clock__now_ns();
    http_connection *lingering = oldest_in(port, HTTP_LINGERING);
    http_connection *head = oldest_in(port, HTTP_HEAD), *idle = idle_in(port, now_ns);
    if (lingering)
        return lingering;
    /* Nearly all heads arrive whole: one that is not after a second comes from an attacker or over
     * a broken line. */
    if (head && now_ns - head->since_ns > second_ns)
        return head;
    if (idle || head)
        return idle ? idle : head;
    idle = oldest_in(port, HTTP_IDLE);
    return idle ? idle : weft_http__slowest(port, 0);
}
