/* Messages of the worker's wire: heads, and the sum of the tensors' bytes beside exact arithmetic.
 * A message composed by weft_wire__begin must be valid, and own its bytes after weft_wire__own.
 *
 * The input: a head, then heads of tensors, as they lie in memory; a first byte of 1 repairs the
 * head's fixed fields so that the rest is reached, 2 composes a message. */
#include "runtime/server/serve_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TENSORS_MAX = 32, LARGE = 1 << 30 };

__extension__ typedef unsigned __int128 exact;

/* Bytes of a tensor; false: it is none, or it has so many that no payload does. */
static bool count_exactly(const weft_wire_tensor *t, exact *out)
{
    size_t element = weft_dtype_size((weft_dtype)t->dtype);
    exact n = element;
    if (element == 0 || t->rank < 0 || t->rank > WEFT_RANK_MAX)
        return false;
    bool none = false, huge = false;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return false;
        none = none || t->dim[i] == 0;
        if (!none && !huge)
            n *= (exact)t->dim[i];
        huge = huge || n >> 64;
    }
    *out = none ? 0 : n;
    return none || !huge;
}

static void check_tensors(const weft_wire_head *head, const weft_wire_tensor *tensor, uint32_t n)
{
    exact total = 0, bytes = 0;
    bool sound = true;
    for (uint32_t i = 0; i < n && sound; i++) {
        sound = count_exactly(&tensor[i], &bytes);
        total += bytes;
    }
    bool want = sound && total == head->payload_bytes;
    bool got = weft_wire__tensors_valid(tensor, n, head->payload_bytes);
    if (got && !want)
        abort();
    /* Larger ones may be refused: no payload has so many bytes. */
    if (!got && want && total < LARGE && total != 0)
        abort();
}

static void compose(const uint8_t *data, size_t size)
{
    weft_wire_out out;
    size_t n = size ? data[0] % 8u : 0, at = 1;
    if (!weft_wire__begin(&out, WEFT_WIRE_RUN, (uint32_t)n, n))
        return;
    char *copy = malloc(size + 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    for (size_t i = 0; i < n && at < size; i++) {
        size_t len = data[at] % (size - at + 1);
        weft_wire__add_chunk(&out, copy + at, len);
        out.tensor[i] =
            (weft_wire_tensor){.dtype = WEFT_DTYPE_U8, .rank = 1, .dim = {(int64_t)len}};
        at += len + 1;
    }
    for (size_t i = 0; i < n; i++)
        if (out.tensor[i].dtype == 0)
            out.tensor[i] = (weft_wire_tensor){.dtype = WEFT_DTYPE_U8, .rank = 1};
    if (!weft_wire__head_valid(&out.head) ||
        !weft_wire__tensors_valid(out.tensor, (uint32_t)n, out.head.payload_bytes))
        abort();
    if (weft_wire__own(&out)) {
        uint64_t total = 0;
        memset(copy, 0xdd, size); /* what was added is not needed any more */
        for (uint32_t i = 2; i < out.n_iov; i++)
            total += out.iov[i].iov_len;
        if (total != out.head.payload_bytes)
            abort();
    }
    weft_wire__free(&out);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_wire_head head;
    if (size < 1)
        return 0;
    if (data[0] == 2) {
        compose(data + 1, size - 1);
        return 0;
    }
    if (size < 1 + sizeof head)
        return 0;
    memcpy(&head, data + 1, sizeof head);
    if (data[0] == 1) {
        head.magic = WEFT_WIRE_MAGIC;
        head.kind = WEFT_WIRE_READY + head.kind % 6;
        head.err %= WEFT_ERR_COUNT;
        head.n_tensor %= TENSORS_MAX;
    }
    size_t n = (size - 1 - sizeof head) / sizeof(weft_wire_tensor);
    bool valid = weft_wire__head_valid(&head);
    if (valid && (head.magic != WEFT_WIRE_MAGIC || head.n_tensor > WEFT_WIRE_TENSORS_MAX))
        abort();
    if (!valid || head.n_tensor > n)
        return 0;
    weft_wire_tensor *tensor = calloc(head.n_tensor + 1u, sizeof *tensor);
    if (!tensor)
        return 0;
    memcpy(tensor, data + 1 + sizeof head, head.n_tensor * sizeof *tensor);
    check_tensors(&head, tensor, head.n_tensor);
    free(tensor);
    return 0;
}
