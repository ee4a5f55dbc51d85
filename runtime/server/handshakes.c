/* TLS handshakes that wait for their turn. The first step of one takes the server up to some
 * milliseconds and an attacker nothing, so there can be more of them than the server can do.
 *
 * Addresses take turns. Of one address the newest and the oldest come in turn: a client that comes
 * beside a flood from its own address is answered soon as long as the flood waits for its answers,
 * and everybody is answered in the end. A flood that does not wait for answers would take all
 * connections: tls.c closes the oldest of an address that has more waiting than its share. */
#include "runtime/server/serve_int.h"

static void append_peer(weft_handshakes *h, weft_peer *p)
{
    p->prev_shaking = h->last;
    p->next_shaking = NULL;
    *(h->last ? &h->last->next_shaking : &h->first) = p;
    h->last = p;
}

static void remove_peer(weft_handshakes *h, weft_peer *p)
{
    *(p->prev_shaking ? &p->prev_shaking->next_shaking : &h->first) = p->next_shaking;
    *(p->next_shaking ? &p->next_shaking->prev_shaking : &h->last) = p->prev_shaking;
    p->next_shaking = p->prev_shaking = NULL;
}

void weft_handshakes__add(weft_handshakes *h, weft_stream *s)
{
    weft_peer *p = s->peer;
    if (s->waits)
        return;
    if (!p->newest)
        append_peer(h, p);
    s->newer = NULL;
    s->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = s;
    p->newest = s;
    p->n_shaking++;
    s->waits = true;
}

void weft_handshakes__leave(weft_handshakes *h, weft_stream *s)
{
    weft_peer *p = s->peer;
    if (!s->waits)
        return;
    *(s->newer ? &s->newer->older : &p->newest) = s->older;
    *(s->older ? &s->older->newer : &p->oldest) = s->newer;
    s->newer = s->older = NULL;
    p->n_shaking--;
    s->waits = false;
    if (!p->newest)
        remove_peer(h, p);
}

weft_stream *weft_handshakes__take(weft_handshakes *h)
{
    weft_peer *p = h->first;
    if (!p)
        return NULL;
    weft_stream *s = p->took_newest ? p->oldest : p->newest;
    p->took_newest = !p->took_newest;
    remove_peer(h, p);
    append_peer(h, p);
    weft_handshakes__leave(h, s);
    return s;
}
