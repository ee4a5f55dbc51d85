/* Test double of libcuda.so.1: streams and events. Work stays pending in its stream until the
 * caller waits for it. */
#include "libcuda_double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define W weft_cuda__world

/* Recently executed work. Work of another stream that could run at the same time must not access
 * the same bytes. */
enum { RECENT_MAX = 512 };

typedef struct recent {
    unsigned stream;
    char what[64];
    uint64_t enqueued, known; /* clock when the caller learned of its end; 0: not yet */
    weft_spans read, write;
} recent;

static recent recents[RECENT_MAX];
static size_t n_recent;

static void drop_recents(size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(recents[i].read.at);
        free(recents[i].write.at);
    }
    memmove(recents, recents + n, (n_recent - n) * sizeof *recents);
    n_recent -= n;
}

static void tell_if_together(const recent *a, const recent *b)
{
    if (a->stream == b->stream || (a->known && a->known < b->enqueued) ||
        (b->known && b->known < a->enqueued))
        return;
    uintptr_t at = weft_spans__meet(&a->write, &b->write);
    if (!at)
        at = weft_spans__meet(&a->write, &b->read);
    if (!at)
        at = weft_spans__meet(&a->read, &b->write);
    if (at)
        weft_double_mistake("%s on stream %u and %s on stream %u may run at the same time and both "
                            "access %p",
                            a->what, a->stream, b->what, b->stream, (void *)at);
}

/* -- Work ------------------------------------------------------------------------------------- */

void weft_work__free(weft_work *w)
{
    free(w->arg);
    free(w->staged);
    free(w->data);
    free(w->read.at);
    free(w->write.at);
    w->arg = w->staged = NULL;
    w->data = NULL;
    w->read = w->write = (weft_spans){0};
}

static void *copy_of(const void *data, size_t bytes, bool *ok)
{
    if (!data)
        return NULL;
    void *p = malloc(bytes ? bytes : 1);
    if (p)
        memcpy(p, data, bytes);
    else
        *ok = false;
    return p;
}

bool weft_work__copy(weft_work *out, const weft_work *w)
{
    bool ok = true;
    *out = *w;
    out->arg = copy_of(w->arg, w->kernel ? 16 * (size_t)w->kernel->of->n_param : 0, &ok);
    out->staged = copy_of(w->staged, w->bytes, &ok);
    out->data = copy_of(w->data, w->bytes, &ok);
    out->read.at = copy_of(w->read.at, w->read.n * sizeof *w->read.at, &ok);
    out->write.at = copy_of(w->write.at, w->write.n * sizeof *w->write.at, &ok);
    out->read.room = w->read.n;
    out->write.room = w->write.n;
    return ok;
}

static bool check_copy(const weft_work *w)
{
    const void *side[2] = {w->dst, w->staged ? NULL : w->src};
    for (int i = 0; i < 2; i++) {
        uintptr_t p = (uintptr_t)side[i];
        bool ok = !p || (weft_memory__is_device(p) ? weft_memory__check(w->what, p, w->bytes)
                                                   : weft_memory__check_host(w->what, p, w->bytes));
        if (!ok)
            return false;
    }
    return true;
}

static bool check_spans(const weft_work *w, const weft_spans *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!weft_memory__check(w->what, s->at[i].at, s->at[i].bytes))
            return false;
    return true;
}

static weft_cu_result run_work(weft_work *w)
{
    W.now_us += 1;
    switch (w->kind) {
    case WEFT_WORK_EMPTY:
        return 0;
    case WEFT_WORK_KERNEL:
        return weft_kernel__run(w);
    case WEFT_WORK_COPY:
        if (!check_copy(w))
            return WEFT_CUDA_ERROR_ILLEGAL_ADDRESS;
        memmove(w->dst, w->staged ? w->staged : w->src, w->bytes);
        W.now_us += (double)w->bytes / 1e4;
        return 0;
    case WEFT_WORK_SET:
        if (!check_copy(w))
            return WEFT_CUDA_ERROR_ILLEGAL_ADDRESS;
        memset(w->dst, w->value, w->bytes);
        W.now_us += (double)w->bytes / 1e6;
        return 0;
    case WEFT_WORK_CALL:
        if (!check_spans(w, &w->read) || !check_spans(w, &w->write))
            return WEFT_CUDA_ERROR_ILLEGAL_ADDRESS;
        W.now_us += w->run(w->data);
        return 0;
    case WEFT_WORK_EVENT:
        w->event->at_us = W.now_us;
        w->event->pending = false;
        return 0;
    case WEFT_WORK_GRAPH:
        return weft_exec__run(w->exec, &w->read, &w->write);
    }
    return 0;
}

static const weft_double_tracer *tracer;

WEFT_EXPORT void weft_double_trace(const weft_double_tracer *who);

void weft_double_trace(const weft_double_tracer *who)
{
    tracer = who;
}

weft_cu_result weft_work__run(weft_work *w)
{
    double from_us = W.now_us;
    weft_cu_result r = run_work(w);
    bool is_work = w->kind == WEFT_WORK_KERNEL || w->kind == WEFT_WORK_CALL ||
                   w->kind == WEFT_WORK_COPY || w->kind == WEFT_WORK_SET;
    if (tracer && w->call && is_work)
        tracer->ran(w->call,
                    w->kind == WEFT_WORK_COPY  ? WEFT_DOUBLE_RAN_COPY
                    : w->kind == WEFT_WORK_SET ? WEFT_DOUBLE_RAN_SET
                                               : WEFT_DOUBLE_RAN_KERNEL,
                    from_us, W.now_us);
    return r;
}

/* -- Queues ----------------------------------------------------------------------------------- */

weft_cu_result weft_stream__enqueue(weft_cuda_stream *s, weft_work *w)
{
    if (s->capture) {
        weft_cuda_node *n;
        w->ctx = s->green ? s->green->ctx : W.device[s->o.device].primary;
        weft_cu_result r = weft_graph__add(s->capture, s->after, s->n_after, w, &n);
        if (r)
            return r;
        weft_cuda_node **after = realloc(s->after, sizeof *after);
        if (!after)
            return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        after[0] = n;
        s->after = after;
        s->n_after = 1;
        return 0;
    }
    weft_work *copy = malloc(sizeof *copy);
    if (!copy) {
        weft_work__free(w);
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    }
    *copy = *w;
    copy->next = NULL;
    copy->enqueued = ++W.enqueued;
    copy->call = (uint32_t)copy->enqueued;
    if (tracer)
        tracer->called(copy->call);
    *s->last = copy;
    s->last = &copy->next;
    return 0;
}

/* Takes ownership of the work's lists of accesses. */
static void remember(const weft_cuda_stream *s, weft_work *w)
{
    if (n_recent == RECENT_MAX)
        drop_recents(RECENT_MAX / 4);
    recent *now = &recents[n_recent++];
    *now = (recent){.stream = s->o.serial, .enqueued = w->enqueued};
    memcpy(now->what, w->what, sizeof now->what);
    now->read = w->read;
    now->write = w->write;
    w->read = w->write = (weft_spans){0};
    weft_spans__sort(&now->read);
    weft_spans__sort(&now->write);
    for (size_t i = 0; i + 1 < n_recent; i++)
        tell_if_together(&recents[i], now);
}

/* No work is pending on any stream, so everything executed so far is ordered before all later work.
 */
static bool is_quiet(void)
{
    for (weft_object *o = W.object; o; o = o->next)
        if (o->kind == WEFT_STREAM && !o->dead && ((weft_cuda_stream *)o)->first)
            return false;
    return true;
}

weft_cu_result weft_stream__finish(weft_cuda_stream *s)
{
    weft_cu_result r = W.sticky;
    for (weft_work *w = s->first, *next; w; w = next) {
        next = w->next;
        if (!r)
            r = weft_work__run(w);
        if (!r && w->kind != WEFT_WORK_EVENT)
            remember(s, w);
        weft_work__free(w);
        free(w);
    }
    s->first = NULL;
    s->last = &s->first;
    if (r && !W.sticky)
        W.sticky = r;
    uint64_t now = ++W.enqueued;
    for (size_t i = 0; i < n_recent; i++)
        if (recents[i].stream == s->o.serial && !recents[i].known)
            recents[i].known = now;
    if (is_quiet())
        drop_recents(n_recent);
    return r;
}

weft_cu_result weft_stream__finish_all(void)
{
    weft_cu_result r = 0;
    for (weft_object *o = W.object; o; o = o->next) {
        if (o->kind != WEFT_STREAM || o->dead)
            continue;
        weft_cu_result ran = weft_stream__finish((weft_cuda_stream *)o);
        r = r ? r : ran;
    }
    return r;
}

bool weft_stream__uses(const weft_object *used)
{
    for (weft_object *o = W.object; o; o = o->next) {
        if (o->kind != WEFT_STREAM || o->dead)
            continue;
        for (weft_work *w = ((weft_cuda_stream *)o)->first; w; w = w->next)
            if ((weft_object *)w->event == used || (weft_object *)w->exec == used ||
                (w->kernel && (weft_object *)w->kernel->library == used))
                return true;
    }
    return false;
}

void weft_stream__reset(void)
{
    drop_recents(n_recent);
}

bool weft_stream__is_captured(weft_cuda_stream *s, const char *call)
{
    if (!s->capture)
        return false;
    weft_double_mistake("%s: stream %u is being captured", call, s->o.serial);
    s->broken = true;
    return true;
}

/* -- Calls ------------------------------------------------------------------------------------ */

static void end_stream(weft_object *o)
{
    weft_cuda_stream *s = (weft_cuda_stream *)o;
    for (weft_work *w = s->first, *next; w; w = next) {
        next = w->next;
        weft_work__free(w);
        free(w);
    }
    free(s->after);
    s->first = NULL;
    s->after = NULL;
}

static weft_cu_result make_stream(weft_cu_stream *out, weft_cuda_green *green, int device)
{
    weft_cuda_stream *s = weft_cuda__make(WEFT_STREAM, sizeof *s, end_stream);
    if (!s)
        return WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    s->o.device = device;
    s->last = &s->first;
    s->green = green;
    *out = (weft_cu_stream)s;
    return 0;
}

/* Streams that synchronise with the default stream are a mistake. */
static weft_cu_result check_flags(unsigned flags, const char *call)
{
    if (flags == WEFT_CU_STREAM_NON_BLOCKING)
        return 0;
    weft_double_mistake("%s: flags %u, not CU_STREAM_NON_BLOCKING", call, flags);
    return WEFT_CUDA_ERROR_INVALID_VALUE;
}

weft_cu_result cuStreamCreate(weft_cu_stream *out, unsigned flags)
{
    weft_cu_result r = weft_cuda__enter("cuStreamCreate", WEFT_IN_CONTEXT);
    if (!r)
        r = check_flags(flags, "cuStreamCreate");
    if (!r)
        r = make_stream(out, weft_cuda__current()->green, weft_cuda__ordinal());
    return weft_cuda__leave(r, "cuStreamCreate", "%u", flags);
}

weft_cu_result cuGreenCtxStreamCreate(weft_cu_stream *out, weft_cu_green_ctx ctx, unsigned flags,
                                      int priority)
{
    const char *call = "cuGreenCtxStreamCreate";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    weft_cuda_green *g = r ? NULL : weft_cuda__get(ctx, WEFT_GREEN, call);
    if (!r && !g)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r)
        r = check_flags(flags, call);
    if (!r)
        r = make_stream(out, g, g->o.device);
    return weft_cuda__leave(r, call, "%u, %u, %d", g ? g->o.serial : 0, flags, priority);
}

/* Pending work is executed first. */
weft_cu_result cuStreamDestroy(weft_cu_stream stream)
{
    weft_cu_result r = weft_cuda__enter("cuStreamDestroy", WEFT_AFTER_INIT);
    weft_cuda_stream *s = weft_cuda__get(stream, WEFT_STREAM, "cuStreamDestroy");
    if (s) {
        if (s->capture) {
            weft_double_mistake("cuStreamDestroy: stream %u is being captured", s->o.serial);
            s->capture->capturing--;
        }
        weft_cu_result ran = weft_stream__finish(s);
        r = r ? r : ran;
        weft_cuda__kill(&s->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, "cuStreamDestroy", "%u", s ? s->o.serial : 0);
}

weft_cu_result cuStreamSynchronize(weft_cu_stream stream)
{
    const char *call = "cuStreamSynchronize";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && !s)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r && weft_stream__is_captured(s, call))
        r = WEFT_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!r)
        r = weft_stream__finish(s);
    return weft_cuda__leave(r, call, "%u", s ? s->o.serial : 0);
}

weft_cu_result cuEventCreate(weft_cu_event *out, unsigned flags)
{
    weft_cu_result r = weft_cuda__enter("cuEventCreate", WEFT_IN_CONTEXT);
    weft_cuda_event *e = r ? NULL : weft_cuda__make(WEFT_EVENT, sizeof *e, NULL);
    if (e)
        *out = (weft_cu_event)e;
    else if (!r)
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    return weft_cuda__leave(r, "cuEventCreate", "%u", flags);
}

weft_cu_result cuEventRecord(weft_cu_event event, weft_cu_stream stream)
{
    const char *call = "cuEventRecord";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_event *e = r ? NULL : weft_cuda__get(event, WEFT_EVENT, call);
    weft_cuda_stream *s = r ? NULL : weft_cuda__get(stream, WEFT_STREAM, call);
    if (!r && (!e || !s))
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    if (!r && weft_stream__is_captured(s, call))
        r = WEFT_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!r) {
        weft_work w = {.kind = WEFT_WORK_EVENT, .event = e, .what = "event"};
        e->recorded = e->pending = true;
        r = weft_stream__enqueue(s, &w);
    }
    return weft_cuda__leave(r, call, "%u, stream %u", e ? e->o.serial : 0, s ? s->o.serial : 0);
}

weft_cu_result cuEventElapsedTime(float *milliseconds, weft_cu_event start, weft_cu_event end)
{
    const char *call = "cuEventElapsedTime";
    weft_cu_result r = weft_cuda__enter(call, WEFT_IN_CONTEXT);
    weft_cuda_event *a = r ? NULL : weft_cuda__get(start, WEFT_EVENT, call);
    weft_cuda_event *b = r ? NULL : weft_cuda__get(end, WEFT_EVENT, call);
    if (!r && (!a || !b || !a->recorded || !b->recorded)) {
        weft_double_mistake("%s: an event was never recorded", call);
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    if (!r && (a->pending || b->pending)) {
        weft_double_mistake("%s: an event is not complete yet", call);
        r = WEFT_CUDA_ERROR_NOT_READY;
    }
    if (!r)
        *milliseconds = (float)((b->at_us - a->at_us) / 1000);
    return weft_cuda__leave(r, call, "%u, %u", a ? a->o.serial : 0, b ? b->o.serial : 0);
}

weft_cu_result cuEventDestroy(weft_cu_event event)
{
    weft_cu_result r = weft_cuda__enter("cuEventDestroy", WEFT_AFTER_INIT);
    weft_cuda_event *e = weft_cuda__get(event, WEFT_EVENT, "cuEventDestroy");
    if (e) {
        if (weft_stream__uses(&e->o))
            weft_stream__finish_all();
        weft_cuda__kill(&e->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, "cuEventDestroy", "%u", e ? e->o.serial : 0);
}

/* -- For libcublaslt_double ------------------------------------------------------------------ */

WEFT_EXPORT unsigned weft_double_enqueue(void *stream, const char *what, double (*run)(void *data),
                                         const void *data, size_t bytes,
                                         const weft_double_span *read, size_t n_read,
                                         const weft_double_span *write, size_t n_write);

unsigned weft_double_enqueue(void *stream, const char *what, double (*run)(void *data),
                             const void *data, size_t bytes, const weft_double_span *read,
                             size_t n_read, const weft_double_span *write, size_t n_write)
{
    weft_double_lock();
    weft_cu_result r = W.sticky;
    weft_cuda_ctx *ctx = weft_cuda__current();
    weft_cuda_stream *s = weft_cuda__get(stream, WEFT_STREAM, what);
    if (!r && (!ctx || ctx->o.dead)) {
        weft_double_mistake("%s without a context on this thread", what);
        r = WEFT_CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!r && !s)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    weft_work w = {.kind = WEFT_WORK_CALL, .run = run, .bytes = bytes};
    snprintf(w.what, sizeof w.what, "%s", what);
    for (size_t i = 0; i < n_read; i++)
        weft_spans__add(&w.read, read[i].at, read[i].bytes);
    for (size_t i = 0; i < n_write; i++)
        weft_spans__add(&w.write, write[i].at, write[i].bytes);
    if (!r && (!check_spans(&w, &w.read) || !check_spans(&w, &w.write)))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    bool ok = true;
    w.data = copy_of(data, bytes, &ok);
    if (!r && !ok)
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    if (r)
        weft_work__free(&w);
    else
        r = weft_stream__enqueue(s, &w);
    weft_double_unlock();
    return r;
}
