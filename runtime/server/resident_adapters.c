/* The adapters that a worker has in memory. Those of the store are mapped when a batch needs them,
 * and checked against what the router wrote; those of the bundle are mapped with it. When they have
 * more bytes than the budget, the pages of the least recently used go back to their file. */
#include "runtime/server/live_int.h"

#include "runtime/adapter/adapter.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each takes a mapping, of which a process may have 65,530 (vm.max_map_count). */
enum { RESIDENT_MAX = 16384 };

typedef struct resident {
    weft_session *session;
    uint64_t number;
    uint64_t bytes, used; /* when it was used last, in batches */
    void *map;            /* NULL: of the bundle */
} resident;

struct weft_resident {
    int fd;
    uint64_t budget, bytes, now;
    resident *at; /* by number and session */
    uint32_t n, room;
};

weft_resident *weft_resident__create(int fd, uint64_t budget_bytes)
{
    weft_resident *r = calloc(1, sizeof *r);
    if (r)
        *r = (weft_resident){.fd = fd, .budget = budget_bytes};
    return r;
}

static void unmap(const weft_resident *r, const resident *x)
{
    if (!x->map)
        return;
    munmap(x->map, (size_t)x->bytes);
    /* Its pages leave the memory unless another worker has them mapped. */
    (void)posix_fadvise(r->fd, (off_t)x->number, (off_t)x->bytes, POSIX_FADV_DONTNEED);
}

void weft_resident__destroy(weft_resident *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->n; i++)
        if (r->at[i].map)
            munmap(r->at[i].map, (size_t)r->at[i].bytes);
    if (r->fd >= 0)
        close(r->fd);
    free(r->at);
    free(r);
}

/* -- The list --------------------------------------------------------------------------------- */

static bool is_before(const resident *a, uint64_t number, const weft_session *session)
{
    return a->number != number ? a->number < number : (uintptr_t)a->session < (uintptr_t)session;
}

static uint32_t find_place(const weft_resident *r, uint64_t number, const weft_session *session)
{
    uint32_t from = 0, to = r->n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (is_before(&r->at[middle], number, session))
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static void evict(weft_resident *r, uint32_t at)
{
    resident x = r->at[at];
    weft_session_forget_adapter(x.session, x.number);
    unmap(r, &x);
    r->bytes -= x.bytes;
    r->n--;
    memmove(&r->at[at], &r->at[at + 1], (r->n - at) * sizeof *r->at);
}

/* Makes room for so many bytes, without what the present batch needs. */
static void make_room(weft_resident *r, uint64_t bytes)
{
    while (r->n > 0 &&
           (r->n >= RESIDENT_MAX || bytes > r->budget || r->bytes > r->budget - bytes)) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < r->n; i++)
            if (r->at[i].used < r->at[oldest].used)
                oldest = i;
        if (r->at[oldest].used == r->now)
            return;
        evict(r, oldest);
    }
}

static weft_err add(weft_resident *r, const resident *x)
{
    if (r->n == r->room) {
        uint32_t room = r->room ? 2 * r->room : 16;
        resident *more = realloc(r->at, room * sizeof *more);
        if (!more)
            return WEFT_ERR_NOMEM;
        r->at = more;
        r->room = room;
    }
    uint32_t at = find_place(r, x->number, x->session);
    memmove(&r->at[at + 1], &r->at[at], (r->n - at) * sizeof *r->at);
    r->at[at] = *x;
    r->n++;
    r->bytes += x->bytes;
    return WEFT_ERR_OK;
}

/* -- Adapters of the store -------------------------------------------------------------------- */

static weft_err give(const resident *x, weft_arena *arena, weft_diag *diag)
{
    weft_packed_adapter packed;
    if (!weft_peft_unpack(x->map, (size_t)x->bytes, arena, &packed))
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0},
                               "the adapter is not as it was loaded: its file cannot be read");
    return weft_session_add_adapter(x->session, x->number, packed.part, packed.n, diag);
}

static weft_err give_guarded(const resident *x, weft_diag *diag)
{
    weft_arena *arena = weft_arena_create(0);
    weft_err err;
    jmp_buf env;
    if (!arena)
        return WEFT_ERR_NOMEM;
    weft_arena_guard(arena, &env);
    if (setjmp(env))
        err = WEFT_ERR_NOMEM;
    else
        err = give(x, arena, diag);
    weft_arena_guard(arena, NULL);
    weft_arena_destroy(arena);
    return err;
}

static weft_err bring_from_store(weft_resident *r, weft_session *session, uint64_t number,
                                 weft_diag *diag)
{
    uint8_t head[WEFT_PACKED_HEAD];
    resident x = {.session = session, .number = number, .used = r->now};
    x.bytes = r->fd >= 0 && pread(r->fd, head, sizeof head, (off_t)number) == sizeof head
                  ? weft_peft_packed_length(head)
                  : 0;
    if (x.bytes == 0)
        return weft_diag_error(diag, WEFT_ERR_IO, (weft_where){0},
                               "the adapter's factors cannot be read");
    make_room(r, x.bytes);
    x.map = mmap(NULL, (size_t)x.bytes, PROT_READ, MAP_SHARED, r->fd, (off_t)number);
    if (x.map == MAP_FAILED)
        return WEFT_ERR_NOMEM;
    weft_err err = give_guarded(&x, diag);
    if (err == WEFT_ERR_OK)
        err = add(r, &x);
    if (err != WEFT_ERR_OK) {
        weft_session_forget_adapter(session, number);
        unmap(r, &x);
    }
    return err;
}

/* -- A batch ---------------------------------------------------------------------------------- */

static weft_err bring(weft_resident *r, weft_session *session, const weft_bundle *b,
                      uint64_t number, weft_diag *diag)
{
    if (number > UINT32_MAX)
        return bring_from_store(r, session, number, diag);
    if (number > b->n_adapter)
        return WEFT_ERR_OK; /* the session refuses it */
    const resident x = {.session = session,
                        .number = number,
                        .bytes = weft_bundle_adapter_bytes(b, &b->adapter[number - 1]),
                        .used = r->now};
    make_room(r, x.bytes);
    return add(r, &x);
}

weft_err weft_resident__need(weft_resident *r, weft_session *session, const weft_bundle *bundle,
                             const uint64_t *number, uint32_t n, weft_diag *diag,
                             uint32_t *out_read)
{
    r->now++;
    *out_read = 0;
    /* First those that are there, so that they are not evicted for the others. */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = find_place(r, number[i], session);
        if (at < r->n && r->at[at].number == number[i] && r->at[at].session == session)
            r->at[at].used = r->now;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = find_place(r, number[i], session);
        if (number[i] == 0 ||
            (at < r->n && r->at[at].number == number[i] && r->at[at].session == session))
            continue;
        WEFT_TRY(bring(r, session, bundle, number[i], diag));
        ++*out_read;
    }
    return WEFT_ERR_OK;
}
