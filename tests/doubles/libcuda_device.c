/* Test double of libcuda.so.1: symbol look-up, devices, contexts, partitions, handles. */
#include "libcuda_double.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_double_library = "libcuda";

weft_cuda_world weft_cuda__world;
#define W weft_cuda__world

static _Thread_local weft_cuda_ctx *current;
static _Thread_local unsigned current_age;
static unsigned age; /* number of resets: older contexts of threads are invalid */

WEFT_EXPORT weft_cu_result cuGetProcAddress_v2(const char *symbol, void **out, int version,
                                               uint64_t flags, unsigned *status);

/* -- Objects ---------------------------------------------------------------------------------- */

static const char *const kind_names[WEFT_KINDS] = {
    "context", "stream", "event",      "library",    "kernel",
    "graph",   "node",   "executable", "descriptor", "green context"};

void *weft_cuda__make(weft_kind kind, size_t bytes, void (*destroy)(weft_object *o))
{
    weft_object *o = calloc(1, bytes);
    if (!o)
        return NULL;
    o->kind = kind;
    o->serial = ++W.serial[kind];
    o->device = weft_cuda__ordinal();
    o->destroy = destroy;
    o->next = W.object;
    W.object = o;
    return o;
}

void *weft_cuda__get(const void *handle, weft_kind kind, const char *call)
{
    weft_object *o = W.object;
    while (o && o != handle)
        o = o->next;
    if (!o)
        weft_double_mistake("%s: %p is not a %s", call, handle, kind_names[kind]);
    else if (o->kind != kind)
        weft_double_mistake("%s: %s %u is not a %s", call, kind_names[o->kind], o->serial,
                            kind_names[kind]);
    else if (o->dead)
        weft_double_mistake("%s: %s %u was destroyed before", call, kind_names[kind], o->serial);
    else
        return o;
    return NULL;
}

void weft_cuda__kill(weft_object *o)
{
    if (o->dead)
        return;
    o->dead = true;
    if (o->destroy)
        o->destroy(o);
}

/* -- Devices ---------------------------------------------------------------------------------- */

/* As in the MPS documentation: a process with 40 % of the threads sees 40 % of the multiprocessors;
 * "0=6G,1=512M" limits its memory on devices 0 and 1. */
static void limit_device(weft_cuda_device *d, int ordinal)
{
    const char *percent = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const char *limit = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    if (percent)
        d->sms = (int)(d->sms * atof(percent) / 100 + 0.5);
    d->limit_bytes = UINT64_MAX;
    for (const char *at = limit; at && *at; at += strcspn(at, ","), at += *at == ',') {
        int device;
        unsigned long long n;
        char unit;
        if (sscanf(at, "%d=%llu%c", &device, &n, &unit) == 3 && device == ordinal)
            d->limit_bytes = n << (unit == 'G' ? 30 : 20);
    }
}

/* UUIDs are those of libnvml_double; the fastest GPU comes first. */
static void make_devices(void)
{
    int fastest = (int)weft_double_number("FASTEST", 0) % 10;
    W.n_device = (int)weft_double_number("DEVICES", 1);
    if (W.n_device > WEFT_DEVICES_MAX)
        W.n_device = WEFT_DEVICES_MAX;
    int cc = (int)weft_double_number("ARCH", 90);
    for (int i = 0; i < W.n_device; i++) {
        weft_cuda_device *d = &W.device[i];
        *d = (weft_cuda_device){.major = cc / 10, .minor = cc % 10};
        const char *name = weft_double_text("NAME");
        snprintf(d->name, sizeof d->name, "%s", name ? name : "NVIDIA H200");
        d->uuid[15] = (unsigned char)(i == 0 ? fastest : i <= fastest ? i - 1 : i);
        d->sms = (int)weft_double_number("SMS", 132);
        d->mem_bytes = weft_double_number("MEM", (uint64_t)140 << 30);
        limit_device(d, i);
        d->smallest_group = d->major >= 9 ? 8 : d->major == 8 ? 4 : 2;
    }
}

static int driver_version(void)
{
    return (int)weft_double_number("DRIVER", WEFT_DOUBLE_VERSION);
}

/* -- Calls ------------------------------------------------------------------------------------ */

weft_cuda_ctx *weft_cuda__current(void)
{
    return current_age == age ? current : NULL;
}

int weft_cuda__ordinal(void)
{
    weft_cuda_ctx *ctx = weft_cuda__current();
    return ctx ? ctx->o.device : 0;
}

weft_cuda_device *weft_cuda__device(void)
{
    return &W.device[weft_cuda__ordinal()];
}

static bool is_sticky(weft_cu_result r)
{
    return (r >= WEFT_CUDA_ERROR_ILLEGAL_ADDRESS && r <= WEFT_CUDA_ERROR_LAUNCH_FAILED &&
            r != WEFT_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) ||
           r == WEFT_CUDA_ERROR_ECC_UNCORRECTABLE || r == WEFT_CUDA_ERROR_NVLINK_UNCORRECTABLE ||
           r == WEFT_CUDA_ERROR_DEVICE_UNAVAILABLE || r == WEFT_CUDA_ERROR_CONTAINED ||
           r == WEFT_CUDA_ERROR_MPS_CLIENT_TERMINATED;
}

weft_cu_result weft_cuda__enter(const char *call, int needs)
{
    weft_double_lock();
    weft_cu_result r = weft_double_fail(call);
    if (!r && W.sticky)
        r = W.sticky;
    if (r)
        return r;
    if (needs >= WEFT_AFTER_INIT && !W.init) {
        weft_double_mistake("%s before cuInit", call);
        return WEFT_CUDA_ERROR_NOT_INITIALIZED;
    }
    if (needs >= WEFT_IN_CONTEXT) {
        weft_cuda_ctx *ctx = weft_cuda__current();
        if (!ctx || ctx->o.dead) {
            weft_double_mistake("%s without a context on this thread%s", call,
                                ctx ? ": it was destroyed" : "");
            return WEFT_CUDA_ERROR_INVALID_CONTEXT;
        }
    }
    return 0;
}

weft_cu_result weft_cuda__leave(weft_cu_result r, const char *call, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    weft_double_log("%s(%s) = %u", call, text, r);
    if (is_sticky(r) && !W.sticky)
        W.sticky = r;
    weft_double_unlock();
    return r;
}

void weft_double_library_reset(void)
{
    weft_stream__reset();
    for (weft_object *o = W.object; o; o = o->next)
        weft_cuda__kill(o);
    for (weft_object *o = W.object, *next; o; o = next) {
        next = o->next;
        free(o);
    }
    weft_memory__reset();
    weft_watch__reset();
    W = (weft_cuda_world){0};
    age++;
}

/* -- Look-up ---------------------------------------------------------------------------------- */

weft_cu_result cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags,
                                   unsigned *status)
{
    static const struct {
        const char *name;
        int version;
        void (*fn)(void);
    } all[] = {
#define CUDA_SYM(name, version, need, args) {#name, version, (void (*)(void))name},
#include "runtime/cuda/cuda_syms.def"
#undef CUDA_SYM
    };
    (void)flags;
    weft_double_lock();
    *out = NULL;
    unsigned found = WEFT_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    weft_cu_result r = 0;
    if (version > driver_version())
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; !r && i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, symbol) != 0)
            continue;
        if (weft_double_listed("ABSENT", symbol) || !all[i].fn)
            break;
        if (version < all[i].version) {
            found = WEFT_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            break;
        }
        found = WEFT_CU_GET_PROC_ADDRESS_SUCCESS;
        memcpy(out, &all[i].fn, sizeof *out);
    }
    if (status)
        *status = found;
    weft_double_log("cuGetProcAddress(%s, %d) = %u", symbol, version, r);
    weft_double_unlock();
    return r;
}

weft_cu_result cuInit(unsigned flags)
{
    weft_cu_result r = weft_cuda__enter("cuInit", WEFT_ANY_TIME);
    if (!r && flags)
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r && !W.init) {
        make_devices();
        if (W.n_device == 0)
            r = WEFT_CUDA_ERROR_NO_DEVICE;
        W.init = !r;
    }
    return weft_cuda__leave(r, "cuInit", "%u", flags);
}

weft_cu_result cuDriverGetVersion(int *version)
{
    weft_cu_result r = weft_cuda__enter("cuDriverGetVersion", WEFT_ANY_TIME);
    if (!r)
        *version = driver_version();
    return weft_cuda__leave(r, "cuDriverGetVersion", " ");
}

static const struct {
    weft_cu_result code;
    const char *name;
} results[] = {
#define X(name, value) {value, #name},
    WEFT_CU_RESULTS(X)
#undef X
};

static weft_cu_result find_error(weft_cu_result error, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i].code == error)
            *text = results[i].name;
    return *text ? 0 : WEFT_CUDA_ERROR_INVALID_VALUE;
}

weft_cu_result cuGetErrorName(weft_cu_result error, const char **text)
{
    return find_error(error, text);
}

weft_cu_result cuGetErrorString(weft_cu_result error, const char **text)
{
    return find_error(error, text);
}

/* -- Devices ---------------------------------------------------------------------------------- */

static weft_cu_result check_device(weft_cu_device device, const char *call)
{
    if (device >= 0 && device < W.n_device)
        return 0;
    weft_double_mistake("%s: device %d does not exist", call, device);
    return WEFT_CUDA_ERROR_INVALID_DEVICE;
}

weft_cu_result cuDeviceGetCount(int *count)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceGetCount", WEFT_AFTER_INIT);
    if (!r)
        *count = W.n_device;
    return weft_cuda__leave(r, "cuDeviceGetCount", " ");
}

/* A wrong ordinal returns an error but is no mistake: users pass it. */
weft_cu_result cuDeviceGet(weft_cu_device *device, int ordinal)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceGet", WEFT_AFTER_INIT);
    if (!r && (ordinal < 0 || ordinal >= W.n_device))
        r = WEFT_CUDA_ERROR_INVALID_DEVICE;
    if (!r)
        *device = ordinal;
    return weft_cuda__leave(r, "cuDeviceGet", "%d", ordinal);
}

weft_cu_result cuDeviceGetName(char *name, int len, weft_cu_device device)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceGetName", WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, "cuDeviceGetName");
    if (!r)
        snprintf(name, (size_t)len, "%s", W.device[device].name);
    return weft_cuda__leave(r, "cuDeviceGetName", "%d", device);
}

weft_cu_result cuDeviceGetUuid(weft_cu_uuid *uuid, weft_cu_device device)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceGetUuid", WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, "cuDeviceGetUuid");
    if (!r)
        memcpy(uuid->bytes, W.device[device].uuid, 16);
    return weft_cuda__leave(r, "cuDeviceGetUuid", "%d", device);
}

weft_cu_result cuDeviceGetAttribute(int *value, unsigned attribute, weft_cu_device device)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceGetAttribute", WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, "cuDeviceGetAttribute");
    if (!r) {
        const weft_cuda_device *d = &W.device[device];
        switch (attribute) {
        case WEFT_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            *value = d->sms;
            break;
        case WEFT_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            *value = d->major;
            break;
        case WEFT_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            *value = d->minor;
            break;
        case WEFT_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
            *value = d->major >= 9 ? 232448 : d->major == 8 ? 101376 : 65536;
            break;
        default:
            weft_double_mistake("cuDeviceGetAttribute: attribute %u is unknown", attribute);
            r = WEFT_CUDA_ERROR_INVALID_VALUE;
        }
    }
    return weft_cuda__leave(r, "cuDeviceGetAttribute", "%u, %d", attribute, device);
}

weft_cu_result cuDeviceTotalMem(size_t *bytes, weft_cu_device device)
{
    weft_cu_result r = weft_cuda__enter("cuDeviceTotalMem", WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, "cuDeviceTotalMem");
    if (!r)
        *bytes = W.device[device].mem_bytes;
    return weft_cuda__leave(r, "cuDeviceTotalMem", "%d", device);
}

/* -- Contexts --------------------------------------------------------------------------------- */

weft_cu_result cuDevicePrimaryCtxRetain(weft_cu_context *ctx, weft_cu_device device)
{
    const char *call = "cuDevicePrimaryCtxRetain";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, call);
    if (!r) {
        weft_cuda_device *d = &W.device[device];
        if (d->retained == 0)
            d->primary = weft_cuda__make(WEFT_CONTEXT, sizeof *d->primary, NULL);
        if (d->primary) {
            d->retained++;
            d->primary->o.device = device;
            *ctx = (weft_cu_context)d->primary;
        } else {
            r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return weft_cuda__leave(r, call, "%d", device);
}

/* Reports what is left when the last user releases the device. */
static void tell_leaks(int device)
{
    for (weft_object *o = W.object; o; o = o->next) {
        if (o->dead || o->device != device)
            continue;
        /* Kernels end with their library, nodes with their graph, contexts with their owner.
         * Descriptors are never destroyed. */
        if (o->kind != WEFT_KERNEL && o->kind != WEFT_NODE && o->kind != WEFT_CONTEXT &&
            o->kind != WEFT_DESC)
            weft_double_mistake("device %d is released, %s %u was not destroyed", device,
                                kind_names[o->kind], o->serial);
        weft_cuda__kill(o);
    }
}

weft_cu_result cuDevicePrimaryCtxRelease(weft_cu_device device)
{
    const char *call = "cuDevicePrimaryCtxRelease";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    if (check_device(device, call)) {
        r = r ? r : WEFT_CUDA_ERROR_INVALID_DEVICE;
    } else if (W.device[device].retained == 0) {
        weft_double_mistake("%s: device %d is not retained", call, device);
        r = r ? r : WEFT_CUDA_ERROR_INVALID_CONTEXT;
    } else if (--W.device[device].retained == 0) {
        tell_leaks(device);
        weft_memory__end(device);
        weft_cuda__kill(&W.device[device].primary->o);
    }
    return weft_cuda__leave(r, call, "%d", device);
}

/* A green context may be current on one thread at a time. */
weft_cu_result cuCtxSetCurrent(weft_cu_context ctx)
{
    weft_cu_result r = weft_cuda__enter("cuCtxSetCurrent", WEFT_AFTER_INIT);
    weft_cuda_ctx *c = NULL, *old = weft_cuda__current();
    if (!r && ctx && !(c = weft_cuda__get(ctx, WEFT_CONTEXT, "cuCtxSetCurrent")))
        r = WEFT_CUDA_ERROR_INVALID_CONTEXT;
    if (!r && c && c != old && c->taken)
        weft_double_mistake("cuCtxSetCurrent: green context %u is current on another thread",
                            c->green->o.serial);
    if (!r) {
        if (old)
            old->taken = false;
        if (c)
            c->taken = c->green != NULL;
        current = c;
        current_age = age;
    }
    return weft_cuda__leave(r, "cuCtxSetCurrent", "%u", c ? c->o.serial : 0);
}

/* -- Partitions of the SMs -------------------------------------------------------------------- */

/* Stored in `internal` of a resource: marks it as ours, with its device and its split. */
typedef struct mark {
    char magic[8];
    int device;
    unsigned split; /* 0: the whole device */
} mark;

static bool read_mark(const weft_cu_resource *r, mark *out)
{
    memcpy(out, r->internal, sizeof *out);
    return memcmp(out->magic, "resource", 8) == 0 && r->type == WEFT_CU_DEV_RESOURCE_TYPE_SM;
}

static void fill_resource(weft_cu_resource *r, int device, unsigned split, unsigned sms)
{
    mark m = {.device = device, .split = split};
    memcpy(m.magic, "resource", 8);
    memset(r, 0, sizeof *r);
    r->type = WEFT_CU_DEV_RESOURCE_TYPE_SM;
    memcpy(r->internal, &m, sizeof m);
    r->u.sm.smCount = sms;
    r->u.sm.minSmPartitionSize = W.device[device].smallest_group;
    r->u.sm.smCoscheduledAlignment = W.device[device].smallest_group;
}

weft_cu_result cuDeviceGetDevResource(weft_cu_device device, weft_cu_resource *out, unsigned type)
{
    const char *call = "cuDeviceGetDevResource";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, call);
    if (!r && type != WEFT_CU_DEV_RESOURCE_TYPE_SM)
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r)
        fill_resource(out, device, 0, (unsigned)W.device[device].sms);
    return weft_cuda__leave(r, call, "%d, %u", device, type);
}

weft_cu_result cuDevSmResourceSplitByCount(weft_cu_resource *group, unsigned *n_group,
                                           const weft_cu_resource *from, weft_cu_resource *rest,
                                           unsigned flags, unsigned sm_min)
{
    static unsigned splits;
    const char *call = "cuDevSmResourceSplitByCount";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    mark m;
    if (!r && (!read_mark(from, &m) || m.split)) {
        weft_double_mistake("%s: not the SMs of a device", call);
        r = WEFT_CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    if (!r && (sm_min > from->u.sm.smCount || flags))
        r = WEFT_CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!r) {
        unsigned least = from->u.sm.minSmPartitionSize, total = from->u.sm.smCount;
        unsigned size = sm_min < least ? least : (sm_min + least - 1) / least * least;
        unsigned n = size ? total / size : 0;
        if (group) {
            unsigned room = *n_group;
            unsigned most = (unsigned)weft_double_number("GROUPS", room);
            room = most < room ? most : room;
            n = n < room ? n : room;
            splits++;
            for (unsigned i = 0; i < n; i++)
                fill_resource(&group[i], m.device, splits, size);
            if (rest)
                fill_resource(rest, m.device, splits, total - n * size);
        }
        *n_group = n;
    }
    return weft_cuda__leave(r, call, "%u, %u", n_group ? *n_group : 0, sm_min);
}

weft_cu_result cuDevResourceGenerateDesc(weft_cu_resource_desc *out, weft_cu_resource *resource,
                                         unsigned n)
{
    const char *call = "cuDevResourceGenerateDesc";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    unsigned sms = 0;
    mark first = {0};
    for (unsigned i = 0; !r && i < n; i++) {
        mark m;
        if (!read_mark(&resource[i], &m) || (i && m.split != first.split)) {
            weft_double_mistake("%s: resource %u is not of the same split as the first", call, i);
            r = WEFT_CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        }
        if (i == 0)
            first = m;
        sms += resource[i].u.sm.smCount;
    }
    if (!r && n == 0)
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    weft_cuda_desc *d = r ? NULL : weft_cuda__make(WEFT_DESC, sizeof *d, NULL);
    if (d) {
        d->sms = sms;
        d->o.device = first.device;
        *out = (weft_cu_resource_desc)d;
    } else if (!r) {
        r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
    }
    return weft_cuda__leave(r, call, "%u SMs", sms);
}

weft_cu_result cuGreenCtxCreate(weft_cu_green_ctx *out, weft_cu_resource_desc desc,
                                weft_cu_device device, unsigned flags)
{
    const char *call = "cuGreenCtxCreate";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    if (!r)
        r = check_device(device, call);
    weft_cuda_desc *d = r ? NULL : weft_cuda__get(desc, WEFT_DESC, call);
    if (!r && (!d || d->o.device != device || flags != WEFT_CU_GREEN_CTX_DEFAULT_STREAM))
        r = WEFT_CUDA_ERROR_INVALID_VALUE;
    if (!r) {
        weft_cuda_green *g = weft_cuda__make(WEFT_GREEN, sizeof *g, NULL);
        weft_cuda_ctx *c = g ? weft_cuda__make(WEFT_CONTEXT, sizeof *c, NULL) : NULL;
        if (!c) {
            r = WEFT_CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            g->sms = d->sms;
            g->ctx = c;
            c->green = g;
            g->o.device = c->o.device = device;
            *out = (weft_cu_green_ctx)g;
        }
    }
    return weft_cuda__leave(r, call, "%d, %u SMs", device, d ? d->sms : 0);
}

weft_cu_result cuGreenCtxDestroy(weft_cu_green_ctx ctx)
{
    const char *call = "cuGreenCtxDestroy";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    weft_cuda_green *g = weft_cuda__get(ctx, WEFT_GREEN, call);
    for (weft_object *o = W.object; g && o; o = o->next) {
        if (o->kind == WEFT_STREAM && !o->dead && ((weft_cuda_stream *)o)->green == g)
            weft_double_mistake("%s: stream %u of green context %u still exists", call, o->serial,
                                g->o.serial);
    }
    if (g) {
        weft_cuda__kill(&g->ctx->o);
        weft_cuda__kill(&g->o);
    } else if (!r) {
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    }
    return weft_cuda__leave(r, call, "%u", g ? g->o.serial : 0);
}

weft_cu_result cuCtxFromGreenCtx(weft_cu_context *out, weft_cu_green_ctx ctx)
{
    const char *call = "cuCtxFromGreenCtx";
    weft_cu_result r = weft_cuda__enter(call, WEFT_AFTER_INIT);
    weft_cuda_green *g = r ? NULL : weft_cuda__get(ctx, WEFT_GREEN, call);
    if (g)
        *out = (weft_cu_context)g->ctx;
    else if (!r)
        r = WEFT_CUDA_ERROR_INVALID_HANDLE;
    return weft_cuda__leave(r, call, "%u", g ? g->o.serial : 0);
}
