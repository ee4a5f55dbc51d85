/* Test double of libcuda.so.1: device memory and pinned host memory. Every allocation is followed
 * by an inaccessible page, and addresses are never reused. */
#include "libcuda_double.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIGN = 256 };
#define ROOM WEFT_MEMORY_ROOM
static const size_t FILL_MAX = (size_t)64 << 20;

typedef struct block {
    uintptr_t at;
    size_t bytes, pages; /* pages: bytes of accessible pages, up to the end of the block */
    int device;
    bool live;
} block;

/* A range of addresses from which blocks are allocated upwards. */
typedef struct room {
    uintptr_t from, next;
    block *b;
    size_t n, n_room;
} room;

static room rooms[2]; /* of the devices, of the host */
enum { DEVICE, HOST };

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

static block *cut(room *r, size_t bytes)
{
    if (bytes > ROOM / 2)
        return NULL;
    if (!r->from) {
        void *p = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        r->from = r->next = (uintptr_t)p;
    }
    size_t whole = round_up(bytes, ALIGN), pages = round_up(whole, PAGE);
    if (r->next + pages + PAGE > r->from + ROOM)
        return NULL;
    if (r->n == r->n_room) {
        size_t n = r->n_room ? 2 * r->n_room : 64;
        block *b = realloc(r->b, n * sizeof *b);
        if (!b)
            return NULL;
        r->b = b;
        r->n_room = n;
    }
    if (mprotect((void *)r->next, pages, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    block *b = &r->b[r->n++];
    *b = (block){.at = r->next + pages - whole, .bytes = bytes, .pages = pages, .live = true};
    r->next += pages + PAGE;
    memset((void *)b->at, 0xff, bytes < FILL_MAX ? bytes : FILL_MAX);
    return b;
}

static void drop(block *b)
{
    uintptr_t end = b->at + round_up(b->bytes, ALIGN);
    b->live = false;
    mprotect((void *)(end - b->pages), b->pages, PROT_NONE);
    madvise((void *)(end - b->pages), b->pages, MADV_DONTNEED);
}

/* The last block that starts at or before the address. */
static block *find(const room *r, uintptr_t at)
{
    size_t lo = 0, hi = r->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (r->b[mid].at <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? &r->b[lo - 1] : NULL;
}

static bool is_in(const room *r, uintptr_t at)
{
    return r->from && at >= r->from && at < r->from + ROOM;
}

bool weft_memory__is_device(uintptr_t at)
{
    return is_in(&rooms[DEVICE], at);
}

bool weft_memory__is_pinned(uintptr_t at)
{
    return is_in(&rooms[HOST], at);
}

void weft_memory__bounds(uintptr_t *from, uintptr_t *to)
{
    *from = rooms[DEVICE].from;
    *to = rooms[DEVICE].next;
}

size_t weft_memory__live(weft_double_span *out, size_t n)
{
    const room *r = &rooms[DEVICE];
    size_t found = 0;
    for (size_t i = 0; i < r->n && found < n; i++)
        if (r->b[i].live)
            out[found++] = (weft_double_span){r->b[i].at, r->b[i].bytes};
    return found;
}

static bool check(const room *r, const char *what, uintptr_t at, size_t bytes)
{
    const block *b = is_in(r, at) ? find(r, at) : NULL;
    if (!b) {
        weft_double_mistake("%s: %p is not a device address", what, (void *)at);
        return false;
    }
    size_t offset = at - b->at;
    if (!b->live) {
        weft_double_mistake("%s: %zu bytes at %p: the %zu bytes at %p were freed before", what,
                            bytes, (void *)at, b->bytes, (void *)b->at);
        return false;
    }
    if (offset > b->bytes || bytes > b->bytes - offset) {
        weft_double_mistake("%s: %zu bytes at %p are not inside the %zu bytes at %p", what, bytes,
                            (void *)at, b->bytes, (void *)b->at);
        return false;
    }
    return true;
}

bool weft_memory__check(const char *what, uintptr_t at, size_t bytes)
{
    return check(&rooms[DEVICE], what, at, bytes);
}

bool weft_memory__block(uintptr_t at, uintptr_t *from, uintptr_t *to)
{
    const block *b = is_in(&rooms[DEVICE], at) ? find(&rooms[DEVICE], at) : NULL;
    if (!b || !b->live || at >= b->at + b->bytes)
        return false;
    *from = b->at;
    *to = b->at + b->bytes;
    return true;
}

bool weft_memory__check_host(const char *what, uintptr_t at, size_t bytes)
{
    if (is_in(&rooms[DEVICE], at)) {
        weft_double_mistake("%s: %p is a device address, not a host address", what, (void *)at);
        return false;
    }
    return !is_in(&rooms[HOST], at) || check(&rooms[HOST], what, at, bytes);
}

void weft_memory__end(int device)
{
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < rooms[i].n; k++) {
            block *b = &rooms[i].b[k];
            if (!b->live || b->device != device)
                continue;
            weft_double_mistake("device %d is released, %zu bytes of %s at %p were not freed",
                                device, b->bytes, i == DEVICE ? "its memory" : "pinned memory",
                                (void *)b->at);
            drop(b);
        }
    }
    weft_cuda__world.device[device].used_bytes = 0;
}

void weft_memory__reset(void)
{
    for (int i = 0; i < 2; i++) {
        if (rooms[i].from)
            munmap((void *)rooms[i].from, ROOM);
        free(rooms[i].b);
        rooms[i] = (room){0};
    }
}

/* -- Calls ------------------------------------------------------------------------------------ */

weft_cu_result cuMemGetInfo(size_t *free_bytes, size_t *total)
{
    weft_cu_result r = weft_cuda__enter("cuMemGetInfo", WEFT_IN_CONTEXT);
    if (!r) {
        const weft_cuda_device *d = weft_cuda__device();
        *total = d->mem_bytes;
        *free_bytes = d->mem_bytes - d->used_bytes;
    }
    return weft_cuda__leave(r, "cuMemGetInfo", " ");
}

weft_cu_result cuMemAlloc(weft_cu_deviceptr *out, size_t bytes)
{
    weft_cu_result r = weft_cuda__enter("cuMemAlloc", WEFT_IN_CONTEXT);
    weft_cuda_device *d = r ? NULL : weft_cuda__device();
    block *b = NULL;
    if (!r && bytes == 0) {
        weft_double_mistake("cuMemAlloc of 0 bytes");
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    if (!r && (bytes > d->mem_bytes - d->used_bytes || d->used_bytes >= d->limit_bytes ||
               bytes > d->limit_bytes - d->used_bytes))
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (!r && !(b = cut(&rooms[DEVICE], bytes)))
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (b) {
        b->device = weft_cuda__ordinal();
        d->used_bytes += bytes;
        *out = b->at;
    }
    return weft_cuda__leave(r, "cuMemAlloc", "%zu", bytes);
}

/* Waits for the device, as NVIDIA's function does. */
weft_cu_result cuMemFree(weft_cu_deviceptr at)
{
    weft_cu_result r = weft_cuda__enter("cuMemFree", WEFT_IN_CONTEXT);
    block *b = find(&rooms[DEVICE], (uintptr_t)at);
    if (at == 0) {
        b = NULL; /* freeing NULL is allowed */
    } else if (!b || b->at != at || !b->live) {
        weft_double_mistake("cuMemFree: %p %s", (void *)(uintptr_t)at,
                            b && b->at == at ? "was freed before" : "was not allocated");
        r = r ? r : WEFT_CUDA_ERROR_INVALID_VALUE;
        b = NULL;
    }
    if (b) {
        weft_cu_result ran = weft_stream__finish_all();
        r = r ? r : ran;
        weft_cuda__world.device[b->device].used_bytes -= b->bytes;
        drop(b);
    }
    return weft_cuda__leave(r, "cuMemFree", "%zu bytes", b ? b->bytes : 0);
}

weft_cu_result cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    weft_cu_result r = weft_cuda__enter("cuMemHostAlloc", WEFT_IN_CONTEXT);
    block *b = NULL;
    if (!r && bytes == 0) {
        weft_double_mistake("cuMemHostAlloc of 0 bytes");
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    if (!r && !(b = cut(&rooms[HOST], bytes)))
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (b) {
        b->device = weft_cuda__ordinal();
        *out = (void *)b->at;
    }
    return weft_cuda__leave(r, "cuMemHostAlloc", "%zu, %u", bytes, flags);
}

weft_cu_result cuMemFreeHost(void *at)
{
    weft_cu_result r = weft_cuda__enter("cuMemFreeHost", WEFT_IN_CONTEXT);
    block *b = find(&rooms[HOST], (uintptr_t)at);
    if (!b || b->at != (uintptr_t)at || !b->live) {
        weft_double_mistake("cuMemFreeHost: %p %s", at,
                            b && b->at == (uintptr_t)at ? "was freed before" : "was not allocated");
        r = r ? r : WEFT_CUDA_ERROR_INVALID_VALUE;
    } else {
        weft_cu_result ran = weft_stream__finish_all();
        r = r ? r : ran;
        drop(b);
    }
    return weft_cuda__leave(r, "cuMemFreeHost", " ");
}

/* -- Copies ----------------------------------------------------------------------------------- */

static weft_work copy_work(void *dst, const void *src, size_t bytes, const char *what)
{
    weft_work w = {.kind = WEFT_WORK_COPY, .dst = dst, .src = src, .bytes = bytes};
    strncpy(w.what, what, sizeof w.what - 1);
    weft_spans__add(&w.write, (uintptr_t)dst, bytes);
    weft_spans__add(&w.read, (uintptr_t)src, bytes);
    return w;
}

weft_cu_result cuMemcpyHtoDAsync(weft_cu_deviceptr dst, const void *src, size_t bytes,
                                 weft_cu_stream stream)
{
    const char *call = "cuMemcpyHtoDAsync";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && (!s || !weft_memory__check(call, (uintptr_t)dst, bytes) ||
               !weft_memory__check_host(call, (uintptr_t)src, bytes)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r) {
        weft_work w = copy_work((void *)(uintptr_t)dst, src, bytes, call);
        if (!weft_memory__is_pinned((uintptr_t)src)) {
            w.staged = malloc(bytes ? bytes : 1);
            if (w.staged)
                memcpy(w.staged, src, bytes);
            else
                r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (r)
            weft_work__free(&w);
        else
            r = weft_stream__enqueue(s, &w);
    }
    return weft_cuda__leave(r, call, "%zu, stream %u", bytes, s ? s->o.serial : 0);
}

/* A copy to pageable memory is synchronous. */
weft_cu_result cuMemcpyDtoHAsync(void *dst, weft_cu_deviceptr src, size_t bytes,
                                 weft_cu_stream stream)
{
    const char *call = "cuMemcpyDtoHAsync";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && (!s || !weft_memory__check(call, (uintptr_t)src, bytes) ||
               !weft_memory__check_host(call, (uintptr_t)dst, bytes)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r) {
        weft_work w = copy_work(dst, (const void *)(uintptr_t)src, bytes, call);
        r = weft_stream__enqueue(s, &w);
        if (!r && !weft_memory__is_pinned((uintptr_t)dst) && !s->capture)
            r = weft_stream__finish(s);
    }
    return weft_cuda__leave(r, call, "%zu, stream %u", bytes, s ? s->o.serial : 0);
}

weft_cu_result cuMemcpyDtoDAsync(weft_cu_deviceptr dst, weft_cu_deviceptr src, size_t bytes,
                                 weft_cu_stream stream)
{
    const char *call = "cuMemcpyDtoDAsync";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && (!s || !weft_memory__check(call, (uintptr_t)dst, bytes) ||
               !weft_memory__check(call, (uintptr_t)src, bytes)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r && (dst < src ? src - dst : dst - src) < bytes && dst != src) {
        weft_double_mistake("%s: source and destination overlap", call);
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    }
    if (!r) {
        weft_work w = copy_work((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes, call);
        r = weft_stream__enqueue(s, &w);
    }
    return weft_cuda__leave(r, call, "%zu, stream %u", bytes, s ? s->o.serial : 0);
}

weft_cu_result cuMemsetD8Async(weft_cu_deviceptr dst, unsigned char value, size_t n,
                               weft_cu_stream stream)
{
    const char *call = "cuMemsetD8Async";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && (!s || !weft_memory__check(call, (uintptr_t)dst, n)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r) {
        weft_work w = {.kind = WEFT_WORK_SET,
                       .dst = (void *)(uintptr_t)dst,
                       .bytes = n,
                       .value = value,
                       .what = "cuMemsetD8Async"};
        weft_spans__add(&w.write, (uintptr_t)dst, n);
        r = weft_stream__enqueue(s, &w);
    }
    return weft_cuda__leave(r, call, "%u, %zu, stream %u", value, n, s ? s->o.serial : 0);
}
