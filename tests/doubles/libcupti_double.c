/* Test double of libcupti.so.13: records of the work that libcuda_double executed on streams, with
 * the external correlation ids of its calls. WEFT_DOUBLE_CUPTI=1 enables it; otherwise CUPTI is not
 * supported. "forgets" drops every third record of work; "late" delivers at each flush the records
 * of the flush before. */
#include "double.h"

#include "runtime/cuda/cupti_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_double_library = "libcupti";

#define CUPTI_SYM(name, args) WEFT_EXPORT weft_cupti_result name args;
#include "runtime/cuda/cupti_syms.def"
#undef CUPTI_SYM

enum { KINDS_MAX = 64, STACK_MAX = 16, RECORDS_MAX = 4096, ROOM = 128 };

/* Records of one size, unlike a real buffer, where each kind has its own. */
typedef struct record {
    size_t bytes;
    unsigned char at[ROOM];
} record;

static struct {
    weft_cupti_request request;
    weft_cupti_complete complete;
    bool enabled[KINDS_MAX];
    record record[RECORDS_MAX];
    size_t n, n_flushed; /* records present at the last flush */
    unsigned works;
} C;

static _Thread_local uint64_t stack[STACK_MAX];
static _Thread_local unsigned depth;

void weft_double_library_reset(void)
{
    memset(&C, 0, sizeof C);
}

static weft_cupti_result enter(const char *call)
{
    weft_double_lock();
    weft_cupti_result r = weft_double_fail(call);
    return r || weft_double_text("CUPTI") ? r : WEFT_CUPTI_ERROR_NOT_SUPPORTED;
}

static weft_cupti_result leave(weft_cupti_result r, const char *call)
{
    weft_double_log("%s = %u", call, r);
    weft_double_unlock();
    return r;
}

/* -- From libcuda_double ---------------------------------------------------------------------- */

static void put(const void *at, size_t bytes, unsigned kind)
{
    if (!C.enabled[kind] || C.n == RECORDS_MAX)
        return;
    C.record[C.n].bytes = bytes;
    memcpy(C.record[C.n++].at, at, bytes);
}

static void on_called(uint32_t call)
{
    weft_cupti_external x = {.kind = WEFT_CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
                             .externalKind = WEFT_CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
                             .correlationId = call};
    if (depth == 0 || !C.enabled[WEFT_CUPTI_ACTIVITY_KIND_DRIVER])
        return;
    x.externalId = stack[depth - 1];
    put(&x, sizeof x, x.kind);
}

static void on_ran(uint32_t call, int kind, double from_us, double to_us)
{
    weft_cupti_kernel k = {.kind = WEFT_CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                           .start = (uint64_t)(from_us * 1e3),
                           .end = (uint64_t)(to_us * 1e3),
                           .correlationId = call};
    weft_cupti_move m = {.kind = kind == WEFT_DOUBLE_RAN_COPY ? WEFT_CUPTI_ACTIVITY_KIND_MEMCPY
                                                              : WEFT_CUPTI_ACTIVITY_KIND_MEMSET,
                         .start = k.start,
                         .end = k.end,
                         .correlationId = call};
    const char *how = weft_double_text("CUPTI");
    if (how && strcmp(how, "forgets") == 0 && ++C.works % 3 == 0)
        return;
    if (kind == WEFT_DOUBLE_RAN_KERNEL)
        put(&k, sizeof k, k.kind);
    else
        put(&m, sizeof m, m.kind);
}

static void listen(void)
{
    static const weft_double_tracer tracer = {on_called, on_ran};
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    weft_double_trace_fn fn = NULL;
    void *p = cuda ? dlsym(cuda, "weft_double_trace") : NULL;
    memcpy(&fn, &p, sizeof fn);
    if (fn)
        fn(&tracer);
    if (cuda)
        dlclose(cuda);
}

/* -- Calls ------------------------------------------------------------------------------------ */

weft_cupti_result cuptiActivityRegisterCallbacks(weft_cupti_request request,
                                                 weft_cupti_complete complete)
{
    weft_cupti_result r = enter("cuptiActivityRegisterCallbacks");
    if (!r) {
        C.request = request;
        C.complete = complete;
        listen();
    }
    return leave(r, "cuptiActivityRegisterCallbacks");
}

static weft_cupti_result set_enabled(const char *call, unsigned kind, bool on)
{
    weft_cupti_result r = enter(call);
    if (!r && (kind >= KINDS_MAX || !C.complete))
        weft_double_mistake("%s: kind %u, callbacks %s", call, kind,
                            C.complete ? "are registered" : "are not registered");
    else if (kind < KINDS_MAX && (!r || !on))
        C.enabled[kind] = on;
    return leave(r, call);
}

weft_cupti_result cuptiActivityEnable(unsigned kind)
{
    return set_enabled("cuptiActivityEnable", kind, true);
}

weft_cupti_result cuptiActivityDisable(unsigned kind)
{
    return set_enabled("cuptiActivityDisable", kind, false);
}

weft_cupti_result cuptiActivityPushExternalCorrelationId(unsigned kind, uint64_t id)
{
    const char *call = "cuptiActivityPushExternalCorrelationId";
    weft_cupti_result r = enter(call);
    if (!r && (kind != WEFT_CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == STACK_MAX))
        weft_double_mistake("%s: kind %u, %u correlation ids are pushed", call, kind, depth);
    else if (!r)
        stack[depth++] = id;
    return leave(r, call);
}

weft_cupti_result cuptiActivityPopExternalCorrelationId(unsigned kind, uint64_t *last)
{
    const char *call = "cuptiActivityPopExternalCorrelationId";
    weft_cupti_result r = enter(call);
    (void)kind;
    if (depth == 0)
        weft_double_mistake("%s: no correlation id is pushed", call);
    else
        *last = stack[--depth];
    return leave(r, call);
}

/* Delivers the newest record first: the order is not specified. */
weft_cupti_result cuptiActivityFlushAll(uint32_t flags)
{
    weft_cupti_result r = enter("cuptiActivityFlushAll");
    const char *how = weft_double_text("CUPTI");
    size_t told = how && strcmp(how, "late") == 0 ? C.n_flushed : C.n, left = told;
    (void)flags;
    while (!r && left) {
        uint8_t *buffer = NULL;
        size_t bytes = 0, most = 0, used = 0;
        C.request(&buffer, &bytes, &most);
        if (!buffer)
            break;
        for (; left && used + sizeof(record) <= bytes; used += sizeof(record))
            memcpy(buffer + used, &C.record[--left], sizeof(record));
        C.complete(NULL, 0, buffer, bytes, used);
    }
    C.n -= told;
    memmove(C.record, C.record + told, C.n * sizeof *C.record);
    C.n_flushed = C.n;
    return leave(r, "cuptiActivityFlushAll");
}

weft_cupti_result cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid_bytes,
                                             weft_cupti_activity **out)
{
    const size_t skip = offsetof(record, at);
    size_t next = *out ? (size_t)((uint8_t *)*out - buffer) - skip + sizeof(record) : 0;
    if (next + sizeof(record) > valid_bytes)
        return WEFT_CUPTI_ERROR_MAX_LIMIT_REACHED;
    *out = (weft_cupti_activity *)(buffer + next + skip);
    return WEFT_CUPTI_SUCCESS;
}
