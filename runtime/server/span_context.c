/* Trace contexts (W3C Trace Context, level 1) and the origin of a request. */
#include "runtime/server/serve_int.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* "00-" trace id "-" parent id "-" flags, in lower case; later versions may go on with "-". */
enum { TRACE_AT = 3, PARENT_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* false: not hexadecimal. *out_any: some bit is set. */
static bool read_hex(const char *text, size_t n, uint8_t *out, bool *out_any)
{
    *out_any = false;
    for (size_t i = 0; i < n; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
        *out_any = *out_any || out[i];
    }
    return true;
}

bool weft_spans__parse(const char *text, size_t len, weft_span_context *out)
{
    weft_span_context c = {0};
    uint8_t version = 0, flags = 0;
    bool any, any_trace, any_parent;
    if (len < LENGTH || !read_hex(text, 1, &version, &any) || version == 0xff ||
        (version == 0 && len != LENGTH) || (len > LENGTH && text[LENGTH] != '-'))
        return false;
    if (text[TRACE_AT - 1] != '-' || text[PARENT_AT - 1] != '-' || text[FLAGS_AT - 1] != '-' ||
        !read_hex(text + TRACE_AT, sizeof c.trace, c.trace, &any_trace) ||
        !read_hex(text + PARENT_AT, sizeof c.parent, c.parent, &any_parent) ||
        !read_hex(text + FLAGS_AT, 1, &flags, &any) || !any_trace || !any_parent)
        return false;
    c.sampled = flags & 1;
    *out = c;
    return true;
}

void weft_spans__put_hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* "192.0.2.1:8000", "[2001:db8::1]:8000", "unix". */
static void write_peer(int fd, char out[WEFT_PEER_TEXT_MAX])
{
    struct sockaddr_storage at = {0};
    const struct sockaddr_in *four = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&at;
    socklen_t len = sizeof at;
    char text[INET6_ADDRSTRLEN] = "";
    out[0] = '\0';
    if (getpeername(fd, (struct sockaddr *)&at, &len) != 0)
        return;
    if (at.ss_family == AF_INET && inet_ntop(AF_INET, &four->sin_addr, text, sizeof text))
        snprintf(out, WEFT_PEER_TEXT_MAX, "%s:%u", text, ntohs(four->sin_port));
    else if (at.ss_family == AF_INET6 && inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text))
        snprintf(out, WEFT_PEER_TEXT_MAX, "[%s]:%u", text, ntohs(six->sin6_port));
    else if (at.ss_family == AF_UNIX)
        snprintf(out, WEFT_PEER_TEXT_MAX, "unix");
}

void weft_origin__begin(weft_origin *o, const char *over, int fd, const char *key)
{
    *o = (weft_origin){.known = true, .over = over, .received_ns = weft_clock__now_ns()};
    write_peer(fd, o->peer);
    snprintf(o->key, sizeof o->key, "%s", key);
}

void weft_origin__take_parent(weft_origin *o, const char *text, size_t len)
{
    /* Two contradict each other: the trace begins anew. */
    o->has_parent = ++o->n_parent == 1 && weft_spans__parse(text, len, &o->context);
}
