/* Adapters as workers use them: one block of bytes, which is mapped and used where it lies.
 *
 *     head | parts | names of sites | factors, each at a multiple of 64 bytes
 *
 * Offsets are from the start of the block. The bytes are those of a process of this program, in its
 * byte order; the checksum tells whether they are still those that it wrote. */
#include "runtime/adapter/adapter.h"

#include <stdlib.h>
#include <string.h>

static const char magic[8] = "weftlora";

typedef struct packed_head {
    char magic[8];
    weft_hash128 identity;
    uint64_t len;
    uint64_t check; /* of all bytes behind the head */
    uint32_t n;
    uint32_t zero[5];
} packed_head;

_Static_assert(sizeof(packed_head) == WEFT_PACKED_HEAD, "a head of 64 bytes");

typedef struct packed_part {
    uint64_t site, a, b; /* offsets */
    int64_t rank, k, n;
} packed_part;

/* The next multiple of 64. */
static size_t align(size_t at)
{
    return (at + 63) / 64 * 64;
}

static size_t factor_bytes(int64_t rank, int64_t cols)
{
    return (size_t)(rank * cols) * sizeof(float);
}

weft_err weft_peft_pack(const weft_peft *peft, const char *const *site, uint8_t **out,
                        size_t *out_len)
{
    size_t names = sizeof(packed_head) + peft->n * sizeof(packed_part), len = names;
    for (uint32_t i = 0; i < peft->n; i++)
        len += strlen(site[i]) + 1;
    size_t at = align(len);
    for (uint32_t i = 0; i < peft->n; i++) {
        const weft_peft_module *m = &peft->module[i];
        at += align(factor_bytes(m->rank, m->k)) + align(factor_bytes(m->rank, m->n));
    }
    uint8_t *to = calloc(1, at);
    if (!to)
        return WEFT_ERR_NOMEM;
    packed_head head = {.identity = weft_peft_identity(peft), .len = at, .n = peft->n};
    memcpy(head.magic, magic, sizeof magic);
    size_t name_at = names, data_at = align(len);
    for (uint32_t i = 0; i < peft->n; i++) {
        const weft_peft_module *m = &peft->module[i];
        packed_part part = {.site = name_at, .a = data_at, .rank = m->rank, .k = m->k, .n = m->n};
        size_t bytes = strlen(site[i]) + 1;
        memcpy(to + name_at, site[i], bytes);
        name_at += bytes;
        memcpy(to + part.a, m->a, factor_bytes(m->rank, m->k));
        part.b = part.a + align(factor_bytes(m->rank, m->k));
        memcpy(to + part.b, m->b, factor_bytes(m->rank, m->n));
        data_at = part.b + align(factor_bytes(m->rank, m->n));
        memcpy(to + sizeof head + i * sizeof part, &part, sizeof part);
    }
    head.check = weft_hash64(to + sizeof head, at - sizeof head, 0);
    memcpy(to, &head, sizeof head);
    *out = to;
    *out_len = at;
    return WEFT_ERR_OK;
}

uint64_t weft_peft_packed_length(const uint8_t at[WEFT_PACKED_HEAD])
{
    packed_head head;
    memcpy(&head, at, sizeof head);
    return memcmp(head.magic, magic, sizeof magic) == 0 && head.len > sizeof head ? head.len : 0;
}

/* Whether `bytes` bytes from `offset` on lie in the block. */
static bool lies_in(size_t len, uint64_t offset, uint64_t bytes)
{
    return offset <= len && bytes <= len - offset;
}

static bool read_part(const uint8_t *at, size_t len, const packed_part *p, weft_adapter_part *to)
{
    if (p->rank < 1 || p->rank > WEFT_ADAPTER_RANK_MAX || p->k < 1 || p->n < 1 ||
        (uint64_t)p->k > len || (uint64_t)p->n > len || p->site >= len ||
        !memchr(at + p->site, 0, len - p->site) || p->a % 64 || p->b % 64 ||
        !lies_in(len, p->a, factor_bytes(p->rank, p->k)) ||
        !lies_in(len, p->b, factor_bytes(p->rank, p->n)))
        return false;
    *to = (weft_adapter_part){.site = (const char *)(at + p->site),
                              .factors = {.rank = p->rank,
                                          .k = p->k,
                                          .n = p->n,
                                          .a = (const float *)(const void *)(at + p->a),
                                          .b = (const float *)(const void *)(at + p->b)}};
    return true;
}

bool weft_peft_unpack(const uint8_t *at, size_t len, weft_arena *arena, weft_packed_adapter *out)
{
    packed_head head;
    if (len < sizeof head || weft_peft_packed_length(at) != len)
        return false;
    memcpy(&head, at, sizeof head);
    if (head.check != weft_hash64(at + sizeof head, len - sizeof head, 0) ||
        !lies_in(len, sizeof head, (uint64_t)head.n * sizeof(packed_part)))
        return false;
    weft_adapter_part *part = weft_arena_array(arena, (size_t)head.n + 1, sizeof *part);
    for (uint32_t i = 0; i < head.n; i++) {
        packed_part p;
        memcpy(&p, at + sizeof head + i * sizeof p, sizeof p);
        if (!read_part(at, len, &p, &part[i]))
            return false;
    }
    *out = (weft_packed_adapter){.identity = head.identity, .part = part, .n = head.n};
    return true;
}
