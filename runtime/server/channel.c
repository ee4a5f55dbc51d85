/* Memory that router and worker share for the messages of one worker: boxes for each direction,
 * with room for one message each, written in turn. The writer counts its messages; the reader has
 * taken all when its own count has caught up. There are never more batches without an answer than
 * boxes, so a box is never written while it is read. Small boxes are two for each direction: the
 * worker then finds the next batch when it has written an answer.
 *
 * A reader that finds nothing may look for a while, and then sleeps at the socket: it says so in
 * `sleeps`, looks once more, and waits. A writer that finds `sleeps` set sends a message of kind
 * BELL. All four accesses are sequentially consistent, so that either the writer sees the flag or
 * the reader the message. A bell that comes late tells nothing and is ignored.
 *
 * The other end may write into this memory at any time, whatever the protocol says: readers copy
 * what they check (weft_wire__read). The size is sealed, so that it cannot raise SIGBUS. */
#include "runtime/server/serve_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, PAIR_MAX_BYTES = 256 << 10 };

typedef struct lane {
    alignas(LINE) _Atomic uint32_t posted;
    alignas(LINE) _Atomic uint32_t sleeps; /* the reader */
} lane;

typedef struct shared {
    lane lane[2]; /* by its reader */
} shared;

struct weft_channel {
    weft_channel_end end;
    shared *at;
    size_t box_bytes[2]; /* by its reader, multiples of PAGE */
    uint32_t n_box;      /* for each reader */
    uint32_t posted, taken;
};

static size_t round_up(size_t n)
{
    return (n + PAGE - 1) / PAGE * PAGE;
}

/* Boxes for each reader: a power of two, so that counts may overflow. */
static uint32_t count_boxes(size_t to_worker, size_t to_router)
{
    return to_worker <= PAIR_MAX_BYTES && to_router <= PAIR_MAX_BYTES ? 2 : 1;
}

static size_t total_bytes(size_t to_worker, size_t to_router)
{
    return PAGE + count_boxes(to_worker, to_router) * (round_up(to_worker) + round_up(to_router));
}

static weft_channel *map(int fd, weft_channel_end end, size_t to_worker, size_t to_router)
{
    weft_channel *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    c->end = end;
    c->box_bytes[WEFT_CHANNEL_WORKER] = round_up(to_worker);
    c->box_bytes[WEFT_CHANNEL_ROUTER] = round_up(to_router);
    c->n_box = count_boxes(to_worker, to_router);
    c->at = mmap(NULL, total_bytes(to_worker, to_router), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_POPULATE, fd, 0);
    if (c->at != MAP_FAILED)
        return c;
    free(c);
    return NULL;
}

weft_channel *weft_channel__create(size_t to_worker, size_t to_router, int *out_fd)
{
    size_t bytes = total_bytes(to_worker, to_router);
    weft_channel *c = NULL;
    int fd = memfd_create("weft-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    *out_fd = fd;
    /* Allocated now: a page that cannot be had later would raise SIGBUS. */
    if (fd >= 0 && (errno = posix_fallocate(fd, 0, (off_t)bytes)) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        c = map(fd, WEFT_CHANNEL_ROUTER, to_worker, to_router);
    if (!c && fd >= 0) {
        close(fd);
        *out_fd = -1;
    }
    return c;
}

weft_channel *weft_channel__open(int fd, size_t to_worker, size_t to_router)
{
    weft_channel *c = map(fd, WEFT_CHANNEL_WORKER, to_worker, to_router);
    close(fd);
    return c;
}

void weft_channel__destroy(weft_channel *c)
{
    if (!c)
        return;
    munmap(c->at, PAGE + c->n_box * (c->box_bytes[0] + c->box_bytes[1]));
    free(c);
}

void weft_channel__reset(weft_channel *c)
{
    for (int i = 0; i < 2; i++) {
        atomic_store(&c->at->lane[i].posted, 0);
        atomic_store(&c->at->lane[i].sleeps, 0);
    }
    c->posted = c->taken = 0;
}

/* The box of message `number` to a reader. */
static uint8_t *box_of(const weft_channel *c, weft_channel_end reader, uint32_t number)
{
    size_t before = reader == WEFT_CHANNEL_ROUTER ? c->n_box * c->box_bytes[!reader] : 0;
    return (uint8_t *)c->at + PAGE + before + number % c->n_box * c->box_bytes[reader];
}

uint32_t weft_channel__boxes(const weft_channel *c)
{
    return c->n_box;
}

uint8_t *weft_channel__room(const weft_channel *c, size_t *out_bytes)
{
    *out_bytes = c->box_bytes[!c->end];
    return box_of(c, !c->end, c->posted);
}

bool weft_channel__post(weft_channel *c)
{
    lane *to = &c->at->lane[!c->end];
    atomic_store(&to->posted, ++c->posted);
    return atomic_load(&to->sleeps) != 0 && atomic_exchange(&to->sleeps, 0) != 0;
}

bool weft_channel__has(const weft_channel *c)
{
    return atomic_load_explicit(&c->at->lane[c->end].posted, memory_order_acquire) != c->taken;
}

const uint8_t *weft_channel__peek(const weft_channel *c, size_t *out_bytes)
{
    *out_bytes = c->box_bytes[c->end];
    return box_of(c, c->end, c->taken);
}

const uint8_t *weft_channel__take(weft_channel *c, size_t *out_bytes)
{
    const uint8_t *box = weft_channel__peek(c, out_bytes);
    c->taken++;
    return box;
}

bool weft_channel__sleep(weft_channel *c)
{
    atomic_store(&c->at->lane[c->end].sleeps, 1);
    return atomic_load(&c->at->lane[c->end].posted) == c->taken;
}

void weft_channel__wake(weft_channel *c)
{
    atomic_store_explicit(&c->at->lane[c->end].sleeps, 0, memory_order_relaxed);
}
