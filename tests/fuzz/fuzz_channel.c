/* Memory shared by router and worker (channel.c), whose content the other end chooses: boxes and
 * lanes of both directions. A message that weft_wire__read accepts lies in its box, its head and
 * tensor heads are valid copies, and a copy of it reads the same; what weft_wire__write wrote is
 * read as it was written; the ends agree on which messages have come.
 *
 * The input: a byte of options, sizes of the boxes, then steps. A step is a byte that says what
 * happens and which end does it, followed by its operands; bytes that are missing are 0. */
#include "runtime/server/serve_int.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BOX_MIN = 64, TENSORS_MAX = 8, STEPS_MAX = 64, PAGE = 4096 };

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

typedef struct world {
    weft_channel *end[2];
    uint8_t *message; /* as the writer has it, or NULL: the box was damaged since */
    size_t message_bytes;
    bool posted[2]; /* by reader */
} world;

static uint32_t next(input *in, size_t bytes)
{
    uint32_t n = 0;
    for (size_t i = 0; i < bytes && in->left > 0; i++, in->left--)
        n = n << 8 | *in->at++;
    return n;
}

static void need(bool what)
{
    if (!what)
        abort();
}

/* A worker reads messages whose tensors are aligned, a router those without gaps. */
static size_t align_of(weft_channel_end reader)
{
    return reader == WEFT_CHANNEL_WORKER ? WEFT_WIRE_ALIGN : 1;
}

/* -- Steps ---------------------------------------------------------------------------------- */

/* Writes a message of U8 tensors whose data are bytes of the input. */
static void write_message(world *w, input *in, weft_channel_end by)
{
    weft_wire_out out;
    size_t room = 0;
    uint8_t *box = weft_channel__room(w->end[by], &room);
    uint32_t n = next(in, 1) % (TENSORS_MAX + 1);
    need(weft_wire__begin(&out, WEFT_WIRE_RUN, n, n));
    for (uint32_t i = 0; i < n; i++) {
        size_t len = next(in, 2);
        len %= in->left + 1; /* of what is left now */
        out.tensor[i] =
            (weft_wire_tensor){.dtype = WEFT_DTYPE_U8, .rank = 1, .dim = {(int64_t)len}};
        weft_wire__add_chunk(&out, in->at, len);
        in->at += len;
        in->left -= len;
    }
    if (weft_wire__write(&out, box, room, align_of(!by))) {
        weft_wire_head head;
        weft_wire_tensor tensor[TENSORS_MAX];
        size_t at = 0;
        need(weft_wire__read(box, room, align_of(!by), &head, tensor, TENSORS_MAX, &at));
        need(memcmp(&head, &out.head, sizeof head) == 0);
        need(memcmp(tensor, out.tensor, n * sizeof *tensor) == 0);
        for (uint32_t i = 0; i < n; i++) {
            need(memcmp(box + at, out.iov[2 + i].iov_base, out.iov[2 + i].iov_len) == 0);
            at += out.iov[2 + i].iov_len;
            at = align_of(!by) > 1 ? weft_wire__align(at) : at;
        }
    }
    weft_wire__free(&out);
}

/* Puts a head and tensor heads there that are nearly valid. */
static void forge_heads(world *w, input *in, weft_channel_end by)
{
    size_t room = 0;
    uint8_t *box = weft_channel__room(w->end[by], &room);
    weft_wire_head head = {.magic = WEFT_WIRE_MAGIC, .kind = next(in, 1) % 9};
    head.n_tensor = next(in, 1) % (TENSORS_MAX + 2);
    for (uint32_t i = 0; i < head.n_tensor; i++) {
        weft_wire_tensor t = {.dtype = next(in, 1) % (WEFT_DTYPE_COUNT + 1),
                              .rank = (int32_t)(next(in, 1) % (WEFT_RANK_MAX + 3)) - 1};
        uint64_t bytes = weft_dtype_size((weft_dtype)t.dtype);
        for (int32_t k = 0; k < t.rank && k < WEFT_RANK_MAX; k++) {
            uint32_t scale = next(in, 1);
            t.dim[k] = (int64_t)((uint64_t)(scale & 31u) << (scale >> 5) * 9u);
            bytes *= (uint64_t)t.dim[k];
        }
        head.payload_bytes += bytes;
        size_t at = sizeof head + i * sizeof t;
        if (at + sizeof t <= room)
            memcpy(box + at, &t, sizeof t);
    }
    head.payload_bytes += (uint64_t)(next(in, 1) & 1u) * next(in, 4);
    memcpy(box, &head, sizeof head);
}

/* Writes anywhere in the memory, also into the lanes, as an end with corrupted memory could. */
static void scribble(world *w, input *in, weft_channel_end by)
{
    size_t room = 0;
    uint8_t *box = weft_channel__room(w->end[by], &room);
    uint32_t at = next(in, 2), n = next(in, 1) % 16;
    uint8_t *memory = next(in, 1) % 4 == 0 && by == WEFT_CHANNEL_ROUTER ? box - PAGE : box;
    for (uint32_t i = 0; i < n; i++)
        memory[(at + i) % room] = (uint8_t)next(in, 1);
}

static void read_message(world *w, input *in, weft_channel_end by)
{
    weft_wire_head head, again;
    size_t room = 0, at = 0, second_at = 0, n_max = next(in, 1) % (TENSORS_MAX + 1);
    const uint8_t *next_box = weft_channel__peek(w->end[by], &room);
    const uint8_t *box = weft_channel__take(w->end[by], &room);
    need(box == next_box);
    /* Of exactly n_max: what is written beyond is found by the sanitizers. */
    weft_wire_tensor *tensor = calloc(n_max + 1, sizeof *tensor);
    weft_wire_tensor *second = calloc(n_max + 1, sizeof *second);
    size_t used = next(in, 1) % 2 ? room : next(in, 2) % (room + 1);
    uint8_t *exact = malloc(used + 1);
    need(tensor && second && exact);
    memcpy(exact, box, used);
    bool ok = weft_wire__read(box, used, align_of(by), &head, tensor, (uint32_t)n_max, &at);
    need(weft_wire__read(exact, used, align_of(by), &again, second, (uint32_t)n_max, &second_at) ==
         ok);
    if (ok) {
        need(at == second_at && memcmp(&head, &again, sizeof head) == 0);
        need(weft_wire__head_valid(&head) && head.n_tensor <= n_max);
        need(weft_wire__tensors_valid(tensor, head.n_tensor, head.payload_bytes));
        for (uint32_t i = 0; i < head.n_tensor; i++) {
            size_t bytes = (size_t)weft_numel(tensor[i].dim, tensor[i].rank) *
                           weft_dtype_size((weft_dtype)tensor[i].dtype);
            need(at <= used && bytes <= used - at);
            at += bytes;
            if (i + 1 < head.n_tensor && by == WEFT_CHANNEL_WORKER)
                at = weft_wire__align(at);
        }
    }
    free(tensor);
    free(second);
    free(exact);
}

static void step(world *w, input *in)
{
    uint32_t what = next(in, 1);
    weft_channel_end by = what & 1u ? WEFT_CHANNEL_WORKER : WEFT_CHANNEL_ROUTER;
    switch (what / 2 % 7) {
    case 0:
        write_message(w, in, by);
        break;
    case 1:
        forge_heads(w, in, by);
        break;
    case 2:
        scribble(w, in, by);
        break;
    case 3:
        read_message(w, in, by);
        break;
    case 4:
        weft_channel__post(w->end[by]);
        break;
    case 5:
        /* After it says that it sleeps, the next message rings, unless the memory changes. */
        if (weft_channel__sleep(w->end[by])) {
            need(weft_channel__post(w->end[!by]));
            need(weft_channel__has(w->end[by]));
        }
        weft_channel__wake(w->end[by]);
        break;
    default:
        weft_channel__reset(w->end[WEFT_CHANNEL_ROUTER]);
        need(!weft_channel__has(w->end[WEFT_CHANNEL_ROUTER]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data, size};
    size_t to_worker = BOX_MIN + next(&in, 2) % (2 * PAGE);
    size_t to_router = BOX_MIN + next(&in, 2) % (2 * PAGE);
    int fd = -1;
    world w = {0};
    w.end[WEFT_CHANNEL_ROUTER] = weft_channel__create(to_worker, to_router, &fd);
    if (!w.end[WEFT_CHANNEL_ROUTER])
        return 0;
    int other = dup(fd);
    close(fd);
    w.end[WEFT_CHANNEL_WORKER] = weft_channel__open(other, to_worker, to_router);
    for (int i = 0; i < STEPS_MAX && w.end[WEFT_CHANNEL_WORKER] && in.left > 0; i++)
        step(&w, &in);
    weft_channel__destroy(w.end[WEFT_CHANNEL_WORKER]);
    weft_channel__destroy(w.end[WEFT_CHANNEL_ROUTER]);
    return 0;
}
