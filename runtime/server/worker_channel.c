/* Batches and answers through the memory that a worker shares with the router (channel.c): what
 * fits goes that way, everything else over the socket (worker_process.c). */
#include "base/num.h"
#include "runtime/server/router_int.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Boxes have room for the batches of the buckets, within these sizes; to copy the largest takes the
 * loop about 1 ms. */
enum { BOX_MIN_BYTES = 64 << 10, BOX_MAX_BYTES = 4 << 20 };

/* -- Life ----------------------------------------------------------------------------------- */

/* Bytes of the ports at the sizes of a bucket; 0 where they depend on data. */
static size_t bucket_bytes(const weft_bundle_program *p, const weft_bundle_port *port, uint32_t n,
                           const int64_t *symbol)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        const weft_ttype *t = &p->value[port[i].value - 1].type;
        uint64_t bytes = weft_dtype_size((weft_dtype)t->dtype);
        for (int32_t k = 0; k < t->rank; k++) {
            int64_t dim = 0;
            if (!weft_dim_eval(p->dims, t->dim[k], symbol, p->n_symbol, &dim) || dim < 0 ||
                !weft_size_mul(bytes, (uint64_t)dim, &bytes))
                return 0;
        }
        if (!weft_size_add(total, bytes + WEFT_WIRE_ALIGN, &total))
            return 0;
    }
    return (size_t)total;
}

/* The adapters of as many rows as most batches have. */
enum { ADAPTERS_BYTES = 1024 };

static size_t larger_box(size_t a, size_t b)
{
    return b > BOX_MAX_BYTES ? BOX_MAX_BYTES : b > a ? b : a;
}

void weft_worker__open_channel(worker_process *w)
{
    const weft_bundle *b = w->bundle;
    w->to_worker = w->to_router = BOX_MIN_BYTES;
    for (uint32_t i = 0; i < b->n_program + b->n_joint; i++) {
        const weft_bundle_program *p = &b->program[i];
        size_t heads = sizeof(weft_wire_head) + WEFT_WIRE_ALIGN;
        size_t in = heads + (p->n_input + (size_t)1) * sizeof(weft_wire_tensor) + ADAPTERS_BYTES,
               out = heads + p->n_output * sizeof(weft_wire_tensor);
        w->outputs_max = p->n_output > w->outputs_max ? p->n_output : w->outputs_max;
        bool served = i >= b->n_program || w->serves[i];
        for (uint32_t k = 0; served && k < p->n_bucket; k++) {
            const int64_t *symbol = p->bucket[k].symbol;
            w->to_worker =
                larger_box(w->to_worker, in + bucket_bytes(p, p->input, p->n_input, symbol));
            w->to_router =
                larger_box(w->to_router, out + bucket_bytes(p, p->output, p->n_output, symbol));
        }
    }
    w->channel_tensor = calloc((size_t)w->outputs_max + 1, sizeof *w->channel_tensor);
    if (w->channel_tensor)
        w->channel = weft_channel__create(w->to_worker, w->to_router, &w->channel_fd);
}

void weft_worker__close_channel(worker_process *w)
{
    weft_channel__destroy(w->channel);
    if (w->channel_fd >= 0)
        close(w->channel_fd);
    free(w->channel_tensor);
}

/* -- Messages ------------------------------------------------------------------------------- */

bool weft_worker__share_ahead(worker_process *w, const weft_wire_out *message, bool *out_failed)
{
    static const weft_wire_head bell = {.magic = WEFT_WIRE_MAGIC, .kind = WEFT_WIRE_BELL};
    size_t room = 0;
    uint8_t *box = w->channel ? weft_channel__room(w->channel, &room) : NULL;
    if (!box || message->head.kind != WEFT_WIRE_RUN ||
        !weft_wire__write(message, box, room, WEFT_WIRE_ALIGN))
        return false;
    /* The socket has at most older bells: it takes this one whole. */
    *out_failed = weft_channel__post(w->channel) &&
                  send(w->fd, &bell, sizeof bell, MSG_NOSIGNAL) != (ssize_t)sizeof bell;
    return true;
}

bool weft_worker__share(worker_process *w, bool *out_failed)
{
    uint64_t now_ns = weft_clock__now_ns();
    if (!weft_worker__share_ahead(w, &w->tx, out_failed))
        return false;
    w->tx_shared = true;
    w->tx.at_iov = w->tx.n_iov;
    w->tx_ns = now_ns;
    return true;
}

bool weft_worker__is_early(const worker_process *w)
{
    weft_wire_head head;
    size_t room = 0;
    memcpy(&head, weft_channel__peek(w->channel, &room), sizeof head);
    return w->ahead_id && head.id == w->ahead_id;
}

bool weft_worker__read_answer(worker_process *w, weft_wire_head *head, const uint8_t **out_payload)
{
    size_t room = 0, at = 0;
    const uint8_t *box = weft_channel__take(w->channel, &room);
    if (!weft_wire__read(box, room, 1, head, w->channel_tensor, w->outputs_max, &at) ||
        head->kind != WEFT_WIRE_DONE || head->err != WEFT_ERR_OK)
        return false;
    *out_payload = box + at;
    weft_look__found(&w->look, weft_clock__now_ns() - w->tx_ns);
    return true;
}
