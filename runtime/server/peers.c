/* What each client address holds: a hash table with chains, seeded so that no client can choose
 * addresses of one chain. */
#include "base/hash.h"
#include "runtime/server/serve_int.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    BUCKETS = 4096,
    PEER_SHARE = 4 /* one address may have a quarter of the connections */
};

bool weft_peers__open(weft_peers *peers)
{
    peers->bucket = calloc(BUCKETS, sizeof *peers->bucket);
    /* Without random bytes (early at boot) addresses of one chain could be chosen; chains are
     * bounded by the number of connections. */
    if (getrandom(&peers->seed, sizeof peers->seed, GRND_NONBLOCK) != sizeof peers->seed)
        peers->seed = weft_clock__now_ns();
    return peers->bucket;
}

void weft_peers__close(weft_peers *peers)
{
    free(peers->bucket);
    peers->bucket = NULL;
}

/* An IPv4 address is mapped into IPv6; of IPv6, one client has a /64. UNIX sockets: zeros. */
static bool key_of(const struct sockaddr_storage *address, uint8_t key[16])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, loopback[16] = {[15] = 1};
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
    memset(key, 0, 16);
    if (address->ss_family == AF_INET) {
        memcpy(key, mapped, 12);
        memcpy(key + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->ss_family == AF_INET6)
        memcpy(key, &six->sin6_addr, 16);
    else
        return true;
    if (memcmp(key, mapped, 12) == 0)
        return key[12] == 127;
    bool exempt = memcmp(key, loopback, 16) == 0;
    memset(key + 8, 0, 8);
    return exempt;
}

static weft_peer **bucket_of(const weft_peers *peers, const uint8_t key[16])
{
    return &peers->bucket[weft_hash64(key, 16, peers->seed) % BUCKETS];
}

weft_peer *weft_peers__find(weft_peers *peers, const struct sockaddr_storage *address)
{
    uint8_t key[16];
    bool exempt = key_of(address, key);
    weft_peer **bucket = bucket_of(peers, key), *p = *bucket;
    while (p && memcmp(p->key, key, sizeof key) != 0)
        p = p->next;
    if (!p) {
        p = calloc(1, sizeof *p);
        if (!p)
            return NULL;
        *p = (weft_peer){.next = *bucket, .exempt = exempt};
        memcpy(p->key, key, sizeof key);
        *bucket = p;
    }
    p->n_ref++;
    return p;
}

void weft_peers__release(weft_peers *peers, weft_peer *peer)
{
    if (!peer || --peer->n_ref)
        return;
    weft_peer **at = bucket_of(peers, peer->key);
    while (*at != peer)
        at = &(*at)->next;
    *at = peer->next;
    free(peer);
}

bool weft_peers__is_full(const weft_peer *peer, uint32_t option, uint32_t limit)
{
    uint32_t share = option ? option : peer->exempt ? UINT32_MAX : limit / PEER_SHARE;
    return peer->n_connection >= share;
}

bool weft_peers__floods(const weft_peer *peer, uint32_t limit)
{
    return peer->n_shaking > limit / PEER_SHARE + 1;
}
