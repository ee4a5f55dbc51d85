/* Memory of the CUDA driver: weights, activations, pinned host memory; queues. */
#include "runtime/cuda/drv_cuda_int.h"

#include "base/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Alignment of weights, for vector loads and cuBLASLt's fastest kernels. */
enum { WEIGHT_ALIGN = 256 };

/* Bytes of each half of the staging buffer for weights. */
enum { STAGE_BYTES = 4 << 20 };

/* -- Activations ---------------------------------------------------------------------------- */

static weft_err fill_zero(weft_cudev *g, weft_cu_deviceptr at, uint64_t bytes, weft_diag *diag)
{
    pthread_mutex_lock(&g->lock);
    weft_err err = weft_cudev__check(g, g->cu->cuMemsetD8Async(at, 0, bytes, g->load),
                                     "cuMemsetD8Async", diag);
    if (err == WEFT_ERR_OK)
        err =
            weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load), "cuStreamSynchronize", diag);
    pthread_mutex_unlock(&g->lock);
    return err;
}

weft_err weft_cudev__alloc(weft_engine *e, uint64_t bytes, weft_diag *diag, void **out)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cu_deviceptr at = 0;
    WEFT_TRY(weft_cudev__check(g, g->cu->cuMemAlloc(&at, bytes), "cuMemAlloc", diag));
    weft_err err = fill_zero(g, at, bytes, diag);
    if (err != WEFT_ERR_OK) {
        (void)g->cu->cuMemFree(at);
        return err;
    }
    g->arena_bytes += bytes;
    *out = (void *)(uintptr_t)at;
    return WEFT_ERR_OK;
}

void weft_cudev__free(weft_engine *e, void *data, uint64_t bytes)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev__enter(g);
    (void)g->cu->cuMemFree((weft_cu_deviceptr)(uintptr_t)data);
    g->arena_bytes -= bytes;
}

void weft_cudev__note_memory(weft_engine *e, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    size_t left = 0, total = 0;
    if (g->cu->cuMemGetInfo(&left, &total) != WEFT_CUDA_SUCCESS)
        return;
    /* The device's figures do not include the limit set by MPS. */
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    weft_diag_note(diag, (weft_where){.file = g->name},
                   "%llu of %llu bytes are free%s%s; this engine has %llu of weights and %llu of "
                   "activations",
                   (unsigned long long)left, (unsigned long long)total,
                   limit ? ", MPS limits this process to " : "", limit ? limit : "",
                   (unsigned long long)g->weight_bytes, (unsigned long long)g->arena_bytes);
}

/* -- Weights -------------------------------------------------------------------------------- */

static weft_err copy_to(weft_cudev *g, weft_cu_deviceptr at, const void *from, uint64_t bytes,
                        weft_diag *diag)
{
    if (bytes == 0)
        return WEFT_ERR_OK;
    return weft_cudev__check(g, g->cu->cuMemcpyHtoDAsync(at, from, bytes, g->load),
                             "cuMemcpyHtoDAsync", diag);
}

static weft_err finish_copies(weft_cudev *g, weft_diag *diag)
{
    return weft_cudev__check(g, g->cu->cuStreamSynchronize(g->load), "cuStreamSynchronize", diag);
}

/* Pinned memory through which weights go to consecutive device addresses: one half is filled while
 * the other one is copied. The bundle's own pages are pageable. */
typedef struct stage {
    weft_cudev *gpu;
    uint8_t *half[2];
    unsigned turn; /* the half that is being filled */
    uint64_t filled;
    weft_cu_deviceptr to;
} stage;

static weft_err send_half(stage *s, weft_diag *diag)
{
    /* The other half must be free before the next bytes are written into it. */
    WEFT_TRY(finish_copies(s->gpu, diag));
    WEFT_TRY(copy_to(s->gpu, s->to, s->half[s->turn], s->filled, diag));
    s->to += s->filled;
    s->filled = 0;
    s->turn ^= 1;
    return WEFT_ERR_OK;
}

/* Appends `bytes` bytes, then zeros up to `room`. */
static weft_err put_bytes(stage *s, const uint8_t *from, uint64_t bytes, uint64_t room,
                          weft_diag *diag)
{
    for (uint64_t at = 0; at < room;) {
        uint64_t free_bytes = STAGE_BYTES - s->filled, left = at < bytes ? bytes - at : 0;
        uint8_t *to = s->half[s->turn] + s->filled;
        uint64_t n = left ? left : room - at;
        n = n < free_bytes ? n : free_bytes;
        if (left)
            memcpy(to, from + at, n);
        else
            memset(to, 0, n);
        at += n;
        s->filled += n;
        if (s->filled == STAGE_BYTES)
            WEFT_TRY(send_half(s, diag));
    }
    return WEFT_ERR_OK;
}

/* Copies the weights that are not loaded yet to consecutive addresses from `at` on; `pinned`: two
 * halves of staging memory, or NULL if pinning fails (weft_cudev__host_alloc). */
static weft_err upload(weft_engine *e, const uint32_t *weight, uint32_t n, weft_cu_deviceptr at,
                       uint8_t *pinned, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    stage s = {.gpu = g, .half = {pinned, pinned ? pinned + STAGE_BYTES : NULL}, .to = at};
    for (uint32_t i = 0; i < n; i++) {
        const weft_bundle_weight *w = &e->bundle->weight[weight[i] - 1];
        if (g->weight[weight[i]])
            continue;
        uint64_t room = weft_align_up(w->bytes, WEIGHT_ALIGN);
        if (pinned)
            WEFT_TRY(put_bytes(&s, w->data, w->bytes, room, diag));
        else
            WEFT_TRY(copy_to(g, at, w->data, w->bytes, diag));
        at += room;
    }
    if (pinned)
        WEFT_TRY(send_half(&s, diag));
    return finish_copies(g, diag);
}

static weft_err upload_pinned(weft_engine *e, const uint32_t *weight, uint32_t n,
                              weft_cu_deviceptr at, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    void *pinned = NULL;
    if (g->cu->cuMemHostAlloc(&pinned, 2 * (size_t)STAGE_BYTES, WEFT_CU_MEMHOSTALLOC_PORTABLE) !=
        WEFT_CUDA_SUCCESS)
        pinned = NULL;
    weft_err err = upload(e, weight, n, at, pinned, diag);
    if (pinned) {
        /* After an error a copy may still read the buffer. */
        if (err != WEFT_ERR_OK)
            (void)g->cu->cuStreamSynchronize(g->load);
        (void)g->cu->cuMemFreeHost(pinned);
    }
    return err;
}

static weft_err take_chunk(weft_engine *e, uint64_t bytes, weft_diag *diag, weft_cudev_chunk **out)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk)
        return WEFT_ERR_NOMEM;
    chunk->bytes = bytes;
    weft_err err = weft_engine__take(e, bytes, diag);
    if (err != WEFT_ERR_OK) {
        free(chunk);
        return err;
    }
    err = weft_cudev__check(g, g->cu->cuMemAlloc(&chunk->at, bytes), "cuMemAlloc", diag);
    if (err != WEFT_ERR_OK) {
        weft_engine__give(e, bytes);
        free(chunk);
        if (err == WEFT_ERR_NOMEM) {
            weft_diag_note(diag, (weft_where){0}, "weights of the model take %llu bytes",
                           (unsigned long long)bytes);
            weft_cudev__note_memory(e, diag);
        }
        return err;
    }
    *out = chunk;
    return WEFT_ERR_OK;
}

static void drop_chunk(weft_engine *e, weft_cudev_chunk *chunk)
{
    (void)weft_cudev__of(e)->cu->cuMemFree(chunk->at);
    weft_engine__give(e, chunk->bytes);
    free(chunk);
}

static weft_err load_weights(weft_engine *e, const uint32_t *weight, uint32_t n, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_chunk *chunk;
    uint64_t bytes = 0;
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (g->weight[weight[i]])
            continue;
        any = true;
        bytes += weft_align_up(e->bundle->weight[weight[i] - 1].bytes, WEIGHT_ALIGN);
    }
    if (!any)
        return WEFT_ERR_OK;
    WEFT_TRY(take_chunk(e, bytes ? bytes : WEIGHT_ALIGN, diag, &chunk));
    weft_err err = upload_pinned(e, weight, n, chunk->at, diag);
    if (err != WEFT_ERR_OK) {
        drop_chunk(e, chunk);
        return err;
    }
    weft_cu_deviceptr at = chunk->at;
    for (uint32_t i = 0; i < n; i++) {
        if (g->weight[weight[i]])
            continue;
        g->weight[weight[i]] = at;
        at += weft_align_up(e->bundle->weight[weight[i] - 1].bytes, WEIGHT_ALIGN);
    }
    chunk->next = g->chunk;
    g->chunk = chunk;
    g->weight_bytes += chunk->bytes;
    return WEFT_ERR_OK;
}

weft_err weft_cudev__load_weights(weft_engine *e, const uint32_t *weight, uint32_t n,
                                  weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    pthread_mutex_lock(&g->lock);
    weft_err err = load_weights(e, weight, n, diag);
    pthread_mutex_unlock(&g->lock);
    return err;
}

void *weft_cudev__weight(weft_engine *e, uint32_t weight)
{
    weft_cudev *g = weft_cudev__of(e);
    pthread_mutex_lock(&g->lock);
    weft_cu_deviceptr at = g->weight[weight];
    pthread_mutex_unlock(&g->lock);
    return (void *)(uintptr_t)at;
}

uint64_t weft_cudev__weight_bytes(weft_engine *e)
{
    return weft_cudev__of(e)->weight_bytes;
}

void weft_cudev__free_weights(weft_engine *e)
{
    weft_cudev *g = weft_cudev__of(e);
    while (g->chunk) {
        weft_cudev_chunk *next = g->chunk->next;
        drop_chunk(e, g->chunk);
        g->chunk = next;
    }
}

/* -- Memory of the host --------------------------------------------------------------------- */

/* Precedes each allocation. */
typedef struct host_header {
    _Alignas(64) bool pinned;
} host_header;

/* Pinned memory, so that the driver copies without a staging buffer; pageable memory where pinning
 * fails (confidential computing, a limit on locked memory). */
weft_err weft_cudev__host_alloc(weft_engine *e, uint64_t bytes, void **out)
{
    weft_cudev *g = weft_cudev__of(e);
    uint64_t room;
    if (!weft_size_add(bytes, 2 * sizeof(host_header), &room) || room > SIZE_MAX / 2)
        return WEFT_ERR_NOMEM;
    room = weft_align_up(room, sizeof(host_header));
    void *at = NULL;
    bool pinned =
        g->cu->cuMemHostAlloc(&at, room, WEFT_CU_MEMHOSTALLOC_PORTABLE) == WEFT_CUDA_SUCCESS;
    if (!pinned)
        at = aligned_alloc(sizeof(host_header), room);
    if (!at)
        return WEFT_ERR_NOMEM;
    host_header *header = at;
    header->pinned = pinned;
    *out = header + 1;
    return WEFT_ERR_OK;
}

void weft_cudev__host_free(weft_engine *e, void *data, uint64_t bytes)
{
    weft_cudev *g = weft_cudev__of(e);
    host_header *header = (host_header *)data - 1;
    (void)bytes;
    weft_cudev__enter(g);
    if (header->pinned)
        (void)g->cu->cuMemFreeHost(header);
    else
        free(header);
}

/* -- Queues --------------------------------------------------------------------------------- */

weft_err weft_cudev__open_stream(weft_cudev *g, weft_diag *diag, weft_cu_stream *out)
{
    if (!g->green)
        return weft_cudev__check(g, g->cu->cuStreamCreate(out, WEFT_CU_STREAM_NON_BLOCKING),
                                 "cuStreamCreate", diag);
    pthread_mutex_lock(&g->lock);
    weft_err err = weft_cudev__check(
        g, g->cu->cuGreenCtxStreamCreate(out, g->green, WEFT_CU_STREAM_NON_BLOCKING, 0),
        "cuGreenCtxStreamCreate", diag);
    pthread_mutex_unlock(&g->lock);
    return err;
}

weft_err weft_cudev__open_queue(weft_engine *e, weft_diag *diag, void **out)
{
    weft_cudev_queue *q = calloc(1, sizeof *q);
    if (!q)
        return WEFT_ERR_NOMEM;
    weft_err err = weft_cudev__open_stream(weft_cudev__of(e), diag, &q->stream);
    if (err != WEFT_ERR_OK) {
        free(q);
        return err;
    }
    *out = q;
    return WEFT_ERR_OK;
}

void weft_cudev__close_queue(weft_engine *e, void *queue)
{
    weft_cudev *g = weft_cudev__of(e);
    weft_cudev_queue *q = queue;
    weft_cudev__enter(g);
    for (uint32_t i = 0; i < q->n_event; i++)
        (void)g->cu->cuEventDestroy(q->event[i]);
    (void)g->cu->cuStreamDestroy(q->stream);
    free(q->event);
    free(q);
}

weft_err weft_cudev__copy_in(weft_engine *e, void *queue, void *to, const void *from,
                             uint64_t bytes, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_cudev_queue *q = queue;
    return weft_cudev__check(
        g, g->cu->cuMemcpyHtoDAsync((weft_cu_deviceptr)(uintptr_t)to, from, bytes, q->stream),
        "cuMemcpyHtoDAsync", diag);
}

weft_err weft_cudev__copy_out(weft_engine *e, void *queue, void *to, const void *from,
                              uint64_t bytes, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_cudev_queue *q = queue;
    return weft_cudev__check(
        g, g->cu->cuMemcpyDtoHAsync(to, (weft_cu_deviceptr)(uintptr_t)from, bytes, q->stream),
        "cuMemcpyDtoHAsync", diag);
}

weft_err weft_cudev__wait(weft_engine *e, void *queue, weft_diag *diag)
{
    weft_cudev *g = weft_cudev__of(e);
    const weft_cudev_queue *q = queue;
    return weft_cudev__check(g, g->cu->cuStreamSynchronize(q->stream), "cuStreamSynchronize", diag);
}
