/* Messages between router and worker: checks, and composition of those that the router sends. Both
 * ends are this program; the checks keep a worker with corrupted memory from harming the router. */
#include "base/num.h"
#include "runtime/server/serve_int.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PAYLOAD_MAX_GIB = 64 };

/* Whether tensors follow the head, and their data; to prepare sizes there are none. */
static bool has_tensors(const weft_wire_head *head)
{
    return head->kind == WEFT_WIRE_RUN || head->kind == WEFT_WIRE_PREPARE ||
           (head->kind == WEFT_WIRE_DONE && head->err == WEFT_ERR_OK);
}

bool weft_wire__head_valid(const weft_wire_head *head)
{
    if (!has_tensors(head) && (head->n_tensor || head->payload_bytes > WEFT_WIRE_TEXT_MAX))
        return false;
    return head->magic == WEFT_WIRE_MAGIC && head->kind >= WEFT_WIRE_READY &&
           head->kind <= WEFT_WIRE_BELL && head->n_tensor <= WEFT_WIRE_TENSORS_MAX &&
           head->err < WEFT_ERR_COUNT && head->payload_bytes <= (uint64_t)PAYLOAD_MAX_GIB << 30;
}

bool weft_wire__tensors_valid(const weft_wire_tensor *tensor, uint32_t n, uint64_t payload_bytes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = 0;
        if (tensor[i].rank < 0 || tensor[i].rank > WEFT_RANK_MAX ||
            weft_dtype_size((weft_dtype)tensor[i].dtype) == 0)
            return false;
        int64_t numel = weft_numel(tensor[i].dim, tensor[i].rank);
        if (numel < 0 ||
            !weft_size_mul((uint64_t)numel, weft_dtype_size((weft_dtype)tensor[i].dtype), &bytes) ||
            !weft_size_add(total, bytes, &total))
            return false;
    }
    return total == payload_bytes;
}

bool weft_wire__begin(weft_wire_out *out, weft_wire_kind kind, uint32_t n_tensor, size_t n_chunk)
{
    *out = (weft_wire_out){.head = {.magic = WEFT_WIRE_MAGIC, .kind = kind, .n_tensor = n_tensor},
                           .n_iov = 2};
    out->tensor = calloc((size_t)n_tensor + 1, sizeof *out->tensor);
    out->iov = calloc(n_chunk + out->n_iov, sizeof *out->iov);
    if (out->tensor && out->iov)
        return true;
    weft_wire__free(out);
    return false;
}

void weft_wire__add_chunk(weft_wire_out *out, const void *at, size_t len)
{
    out->iov[out->n_iov++] = (struct iovec){.iov_base = (void *)at, .iov_len = len};
    out->head.payload_bytes += len;
}

void weft_wire__advance(weft_wire_out *out, size_t sent)
{
    while (out->at_iov < out->n_iov) {
        struct iovec *v = &out->iov[out->at_iov];
        size_t took = sent < v->iov_len ? sent : v->iov_len;
        v->iov_base = (char *)v->iov_base + took;
        v->iov_len -= took;
        sent -= took;
        if (v->iov_len > 0)
            return;
        out->at_iov++;
    }
}

bool weft_wire__own(weft_wire_out *out)
{
    size_t total = 0, at = 0;
    uint32_t first = out->at_iov > 2 ? out->at_iov : 2; /* before: the heads */
    if (out->own || first >= out->n_iov)
        return true;
    for (uint32_t i = first; i < out->n_iov; i++)
        total += out->iov[i].iov_len;
    out->own = malloc(total + 1);
    if (!out->own)
        return false;
    for (uint32_t i = first; i < out->n_iov; i++) {
        memcpy(out->own + at, out->iov[i].iov_base, out->iov[i].iov_len);
        out->iov[i].iov_base = out->own + at;
        at += out->iov[i].iov_len;
    }
    return true;
}

void weft_wire__free(weft_wire_out *out)
{
    free(out->own);
    free(out->tensor);
    free(out->iov);
    *out = (weft_wire_out){0};
}

/* -- Messages in shared memory -------------------------------------------------------------- */

size_t weft_wire__align(size_t at)
{
    return (at + WEFT_WIRE_ALIGN - 1) / WEFT_WIRE_ALIGN * WEFT_WIRE_ALIGN;
}

static size_t tensor_bytes(const weft_wire_tensor *t)
{
    return (size_t)weft_numel(t->dim, t->rank) * weft_dtype_size((weft_dtype)t->dtype);
}

bool weft_wire__write(const weft_wire_out *out, uint8_t *box, size_t box_bytes, size_t align)
{
    uint32_t n = out->head.n_tensor, chunk = 2;
    size_t heads = sizeof out->head + n * sizeof *out->tensor, at = weft_wire__align(heads);
    if (at > box_bytes || out->head.payload_bytes > box_bytes - at ||
        (size_t)n * WEFT_WIRE_ALIGN > box_bytes - at - out->head.payload_bytes)
        return false;
    memcpy(box, &out->head, sizeof out->head);
    memcpy(box + sizeof out->head, out->tensor, n * sizeof *out->tensor);
    for (uint32_t i = 0; i < n; i++) {
        size_t end = at + tensor_bytes(&out->tensor[i]);
        for (; at < end && chunk < out->n_iov; chunk++) {
            memcpy(box + at, out->iov[chunk].iov_base, out->iov[chunk].iov_len);
            at += out->iov[chunk].iov_len;
        }
        if (align > 1)
            at = weft_wire__align(at);
    }
    return true;
}

bool weft_wire__read(const uint8_t *box, size_t box_bytes, size_t align, weft_wire_head *head,
                     weft_wire_tensor *tensor, uint32_t n_max, size_t *out_at)
{
    if (box_bytes < sizeof *head)
        return false;
    memcpy(head, box, sizeof *head);
    atomic_signal_fence(memory_order_seq_cst); /* nothing is read twice */
    if (!weft_wire__head_valid(head) || head->n_tensor > n_max)
        return false;
    size_t heads = sizeof *head + head->n_tensor * sizeof *tensor, at = weft_wire__align(heads);
    if (at > box_bytes)
        return false;
    memcpy(tensor, box + sizeof *head, head->n_tensor * sizeof *tensor);
    atomic_signal_fence(memory_order_seq_cst);
    /* The sum of the tensors' bytes does not overflow, and each is at most the sum. */
    if (!weft_wire__tensors_valid(tensor, head->n_tensor, head->payload_bytes) ||
        head->payload_bytes > box_bytes - at)
        return false;
    *out_at = at;
    for (uint32_t i = 0; i < head->n_tensor; i++) {
        size_t bytes = tensor_bytes(&tensor[i]), gap = (align - bytes % align) % align;
        if (bytes > box_bytes - at)
            return false;
        at += bytes;
        if (i + 1 < head->n_tensor && gap > box_bytes - at)
            return false;
        at += gap;
    }
    return true;
}
