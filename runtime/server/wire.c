/* The messages between router and worker: checks. Both ends are this program, but a worker that
 * went wrong must not take the router with it. */
#include "base/num.h"
#include "runtime/server/serve_int.h"

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
