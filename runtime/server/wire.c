/* Messages between router and worker: checks, and composition of those that the router sends. Both
 * ends are this program; the checks keep a worker with corrupted memory from harming the router. */
#include "base/num.h"
#include "runtime/server/serve_int.h"

#include <stdlib.h>
#include <string.h>

enum { PAYLOAD_MAX_GIB = 64 };

bool weft_wire__head_valid(const weft_wire_head *head)
{
    return head->magic == WEFT_WIRE_MAGIC && head->kind >= WEFT_WIRE_READY &&
           head->kind <= WEFT_WIRE_PREPARE && head->n_tensor <= WEFT_WIRE_TENSORS_MAX &&
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
