/* Plans of cuDNN for convolutions, pooling and attention (cudnn_graph.c).
 *
 * The library's heuristics list configurations of engines for a graph and a device, the best first;
 * a plan is made of the first that is acceptable.
 *
 * The properties of a device that is not here are a text of JSON. Its keys are those that cuDNN
 * 9.19 writes, and `memoryBusWidth`, which 9.28 asks for. Rates of clocks are of the order of the
 * real ones: the plans of cuDNN 9.19 depend on capability and multiprocessors. */
#include "runtime/cuda/cudnn_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONFIGS_MAX = 64, /* configurations that are tried */
    NOTES_MAX = 16,
    WORKSPACE_SMALL = 32 << 20
};

static void keep_reason(weft_cudnn_device *d, weft_cudnn_status status)
{
    char text[sizeof d->why] = "";
    d->lib->api.cudnnGetLastErrorString(text, sizeof text - 1);
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        snprintf(d->why, sizeof d->why, "no engine is acceptable");
    else
        snprintf(d->why, sizeof d->why, "status %u%s%.200s", status, *text ? ": " : "", text);
}

/* -- Devices -------------------------------------------------------------------------------- */

static bool make_device(weft_cudnn_device *d, unsigned name, unsigned type, int64_t n,
                        const void *value)
{
    const weft_cudnn_api *dnn = &d->lib->api;
    weft_cudnn_status status =
        dnn->cudnnBackendCreateDescriptor(WEFT_CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &d->desc);
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        status = dnn->cudnnBackendSetAttribute(d->desc, name, type, n, value);
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        status = dnn->cudnnBackendFinalize(d->desc);
    if (status == WEFT_CUDNN_STATUS_SUCCESS)
        return true;
    keep_reason(d, status);
    weft_cudnn__forget(d);
    return false;
}

bool weft_cudnn__see(weft_cudnn_device *d, const weft_libcudnn *lib, weft_cudnn_handle handle)
{
    *d = (weft_cudnn_device){.lib = lib};
    return make_device(d, WEFT_CUDNN_ATTR_DEVICEPROP_HANDLE, WEFT_CUDNN_TYPE_HANDLE, 1, &handle);
}

bool weft_cudnn__imagine(weft_cudnn_device *d, const weft_libcudnn *lib, const weft_sm_limits *sm,
                         uint32_t sms, uint64_t mem_bytes)
{
    char text[1024];
    *d = (weft_cudnn_device){.lib = lib};
    int n = snprintf(
        text, sizeof text,
        "{\"deviceVer\":%u,\"multiProcessorCount\":%u,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%u,"
        "\"maxSharedMemoryPerSM\":%u,\"reservedSharedMemoryPerBlock\":%u,"
        "\"maxRegistersPerSM\":%u,\"maxCtasPerSM\":%u,\"maxThreadsPerBlock\":1024,"
        "\"maxThreadsPerSM\":%u,\"regsPerBlock\":65536,\"totalGlobalMem\":%llu,"
        "\"smClockRateKHz\":1755000,\"memClockRateKHz\":2619000,\"memoryBusWidth\":5120,"
        "\"l2CacheSize\":%u,\"maxBlockSize\":[1024,1024,64],"
        "\"maxGridSize\":[2147483647,65535,65535],\"supportCoopLaunch\":1,\"pciDeviceId\":0,"
        "\"isTccDriver\":0,\"cudaDeviceId\":0,\"driverVer\":13000,\"deviceName\":\"sm_%u\"}",
        sm->capability * 10, sms, sm->opt_in_bytes, sm->shared_bytes, sm->reserved_bytes, sm->regs,
        sm->blocks, sm->threads, (unsigned long long)mem_bytes, 50u << 20, sm->capability);
    return make_device(d, WEFT_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, WEFT_CUDNN_TYPE_CHAR,
                       n + 1, text);
}

void weft_cudnn__forget(weft_cudnn_device *d)
{
    if (d->desc)
        (void)d->lib->api.cudnnBackendDestroyDescriptor(d->desc);
    d->desc = NULL;
}

/* -- Choosing ------------------------------------------------------------------------------- */

/* Notes of the engine; -1: the library does not tell. */
static int64_t read_notes(weft_cudnn_plan *p, weft_cudnn_desc engine, unsigned name, unsigned type,
                          unsigned note[NOTES_MAX])
{
    int64_t n = -1;
    bool told = p->dnn->cudnnBackendGetAttribute(engine, name, type, NOTES_MAX, &n, note) ==
                WEFT_CUDNN_STATUS_SUCCESS;
    return told && n <= NOTES_MAX ? n : -1;
}

/* Whether an engine may be used: TF32 only where it is allowed; none that rounds inputs or sums
 * further, whose results vary between runs, or that computes in tiles (Winograd, FFT), which spread
 * NaN and infinities. */
static bool is_exact_enough(weft_cudnn_plan *p, weft_cudnn_desc engine, const weft_conv_key *conv)
{
    unsigned note[NOTES_MAX];
    bool exact = conv->dtype == WEFT_DTYPE_F32 && !(conv->flags & WEFT_CONV_TF32);
    int64_t n = read_notes(p, engine, WEFT_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                           WEFT_CUDNN_TYPE_NUMERICAL_NOTE, note);
    for (int64_t i = 0; i < n; i++)
        if (note[i] != WEFT_CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP &&
            (note[i] != WEFT_CUDNN_NUMERICAL_NOTE_TENSOR_CORE || exact))
            return false;
    return n >= 0;
}

static bool is_compiled(weft_cudnn_plan *p, weft_cudnn_desc engine)
{
    unsigned note[NOTES_MAX];
    int64_t n = read_notes(p, engine, WEFT_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                           WEFT_CUDNN_TYPE_BEHAVIOR_NOTE, note);
    for (int64_t i = 0; i < n; i++)
        if (note[i] == WEFT_CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    return n >= 0;
}

static bool is_acceptable(weft_cudnn_plan *p, weft_cudnn_desc config, const weft_conv_key *conv)
{
    int64_t n = 0;
    weft_cudnn_desc engine = weft_cudnn__make(p, WEFT_CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    return engine &&
           p->dnn->cudnnBackendGetAttribute(config, WEFT_CUDNN_ATTR_ENGINECFG_ENGINE,
                                            WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                            &engine) == WEFT_CUDNN_STATUS_SUCCESS &&
           is_exact_enough(p, engine, conv) &&
           (weft_conv_is_late(conv->flags) || is_compiled(p, engine));
}

static uint64_t product(const int64_t *dim, int n)
{
    uint64_t all = 1;
    for (int i = 0; i < n; i++)
        all *= (uint64_t)dim[i];
    return all;
}

/* Most bytes of workspace: an engine may convert its operands to another layout there. */
static uint64_t workspace_room(const weft_conv_key *conv)
{
    const int64_t *d = conv->dim;
    uint64_t images = (uint64_t)d[WEFT_CONV_IMAGES], channels = (uint64_t)d[WEFT_CONV_CHANNELS];
    uint64_t features = (uint64_t)d[WEFT_CONV_FEATURES];
    uint64_t elements = images * channels * product(d + WEFT_CONV_IN, 3) +
                        images * features * product(d + WEFT_CONV_OUT, 3) +
                        features * channels * product(d + WEFT_CONV_KERNEL, 3);
    if (conv->flags & WEFT_CONV_ATTENTION)
        elements =
            (uint64_t)(d[WEFT_ATTENTION_BATCH] * d[WEFT_ATTENTION_HEADS]) *
            (uint64_t)(d[WEFT_ATTENTION_HEAD] * (d[WEFT_ATTENTION_ROWS] + d[WEFT_ATTENTION_KEYS])) *
            2;
    return 2 * elements * weft_dtype_size((weft_dtype)conv->dtype) + WORKSPACE_SMALL;
}

/* Makes the plan of a configuration, which becomes its own; on failure both are destroyed. */
static bool take_config(weft_cudnn_plan *p, const weft_cudnn_device *d, weft_cudnn_desc config,
                        const weft_conv_key *conv)
{
    uint32_t before = p->n_made;
    p->made[p->n_made++] = config;
    if (is_acceptable(p, config, conv)) {
        p->desc = weft_cudnn__make(p, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        weft_cudnn__set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        weft_cudnn__set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, d->desc);
        weft_cudnn__finalise(p, p->desc);
        if (p->status == WEFT_CUDNN_STATUS_SUCCESS &&
            weft_cudnn__workspace(p) <= workspace_room(conv))
            return true;
    }
    weft_cudnn__back_to(p, before);
    p->desc = NULL;
    return false;
}

/* Tries the configurations that the heuristic of `mode` lists. The one taken becomes the plan's. */
static bool try_mode(weft_cudnn_plan *p, const weft_cudnn_device *d, weft_cudnn_desc graph,
                     unsigned mode, const weft_conv_key *conv)
{
    weft_cudnn_desc config[CONFIGS_MAX];
    int64_t n = 0, made = 0, got = 0;
    bool found = false;
    weft_cudnn_desc h = weft_cudnn__make(p, WEFT_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    weft_cudnn__set(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_MODE, WEFT_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    weft_cudnn__set_desc(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    weft_cudnn__set_desc(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, d->desc);
    if (d->sm_target)
        weft_cudnn__set(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, WEFT_CUDNN_TYPE_INT32, 1,
                        &d->sm_target);
    weft_cudnn__finalise(p, h);
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        weft_cudnn__note(p, p->dnn->cudnnBackendGetAttribute(h, WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                             WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                                             &n, NULL));
    n = n > CONFIGS_MAX ? CONFIGS_MAX : n;
    while (p->status == WEFT_CUDNN_STATUS_SUCCESS && made < n)
        if (weft_cudnn__note(p, p->dnn->cudnnBackendCreateDescriptor(
                                    WEFT_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[made])))
            made++;
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS && n > 0)
        weft_cudnn__note(p, p->dnn->cudnnBackendGetAttribute(h, WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                             WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, n,
                                                             &got, config));
    int64_t i = 0;
    while (p->status == WEFT_CUDNN_STATUS_SUCCESS && i < got && p->n_made < WEFT_CUDNN_MADE_MAX &&
           !found)
        found = take_config(p, d, config[i++], conv);
    for (; i < made; i++)
        (void)p->dnn->cudnnBackendDestroyDescriptor(config[i]);
    return found;
}

static bool has_empty(const weft_conv_key *conv)
{
    bool attention = (conv->flags & WEFT_CONV_ATTENTION) != 0;
    bool any = false;
    for (int i = 0; i < WEFT_CONV_DIMS; i++) {
        bool counts =
            attention ? i < WEFT_ATTENTION_STEP : i < WEFT_CONV_PAD || i >= WEFT_CONV_KERNEL;
        any = any || (counts && conv->dim[i] < 1);
    }
    return any;
}

/* Whether rows of attention start at addresses that are not aligned: cuDNN 9.19 makes plans for
 * them all the same, with loads that may fault. */
static bool has_odd_rows(const weft_conv_key *conv)
{
    int64_t size = (int64_t)weft_dtype_size((weft_dtype)conv->dtype);
    bool odd = false;
    for (int i = 0; conv->flags & WEFT_CONV_ATTENTION && i < 4; i++)
        odd = odd || conv->dim[WEFT_ATTENTION_STEP + i] * size % WEFT_CUDNN_ALIGN != 0;
    return odd;
}

weft_cudnn_plan *weft_cudnn__choose(weft_cudnn_device *d, const weft_conv_key *conv)
{
    static const unsigned mode[] = {WEFT_CUDNN_HEUR_MODE_A, WEFT_CUDNN_HEUR_MODE_FALLBACK};
    if (has_empty(conv)) {
        snprintf(d->why, sizeof d->why, "a size is 0");
        return NULL;
    }
    if (has_odd_rows(conv)) {
        snprintf(d->why, sizeof d->why, "rows are not aligned to %d bytes", WEFT_CUDNN_ALIGN);
        return NULL;
    }
    weft_cudnn_plan *p = weft_cudnn__open(&d->lib->api);
    if (!p)
        return NULL;
    weft_cudnn_desc graph = weft_cudnn__graph(p, conv);
    uint32_t before = p->n_made;
    for (size_t i = 0; p->status == WEFT_CUDNN_STATUS_SUCCESS && i < 2; i++) {
        if (try_mode(p, d, graph, mode[i], conv))
            return p;
        if (i == 0)
            weft_cudnn__back_to(p, before);
    }
    keep_reason(d, p->status);
    weft_cudnn__drop(p);
    return NULL;
}

/* -- Plans ---------------------------------------------------------------------------------- */

weft_cudnn_plan *weft_cudnn__restore(weft_cudnn_device *d, const char *json)
{
    weft_cudnn_plan *p = weft_cudnn__open(&d->lib->api);
    if (!p)
        return NULL;
    p->desc = weft_cudnn__make(p, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    weft_cudnn__set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, d->desc);
    weft_cudnn__set(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                    WEFT_CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    weft_cudnn__finalise(p, p->desc);
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        return p;
    keep_reason(d, p->status);
    weft_cudnn__drop(p);
    return NULL;
}

char *weft_cudnn__text(const weft_cudnn_plan *plan)
{
    int64_t n = 0, got = 0;
    const weft_cudnn_api *dnn = plan->dnn;
    unsigned name = WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (dnn->cudnnBackendGetAttribute(plan->desc, name, WEFT_CUDNN_TYPE_CHAR, 0, &n, NULL) !=
            WEFT_CUDNN_STATUS_SUCCESS ||
        n <= 0)
        return NULL;
    char *text = calloc(1, (size_t)n + 1);
    if (text && dnn->cudnnBackendGetAttribute(plan->desc, name, WEFT_CUDNN_TYPE_CHAR, n, &got,
                                              text) == WEFT_CUDNN_STATUS_SUCCESS)
        return text;
    free(text);
    return NULL;
}

uint64_t weft_cudnn__workspace(const weft_cudnn_plan *plan)
{
    int64_t bytes = 0, n = 0;
    weft_cudnn_status status = plan->dnn->cudnnBackendGetAttribute(
        plan->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, WEFT_CUDNN_TYPE_INT64, 1, &n,
        &bytes);
    return status == WEFT_CUDNN_STATUS_SUCCESS && n == 1 && bytes >= 0 ? (uint64_t)bytes
                                                                       : UINT64_MAX;
}

/* -- Running -------------------------------------------------------------------------------- */

weft_cudnn_status weft_cudnn__run(const weft_cudnn_plan *plan, weft_cudnn_handle handle,
                                  void *const at[WEFT_CUDNN_TENSORS], void *workspace)
{
    const weft_cudnn_api *dnn = plan->dnn;
    int64_t id[WEFT_CUDNN_TENSORS], n = 0;
    void *address[WEFT_CUDNN_TENSORS];
    weft_cudnn_desc pack = NULL;
    for (int i = 0; i < WEFT_CUDNN_TENSORS; i++)
        if (at[i]) {
            id[n] = i + 1;
            address[n++] = at[i];
        }
    weft_cudnn_status s =
        dnn->cudnnBackendCreateDescriptor(WEFT_CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (s != WEFT_CUDNN_STATUS_SUCCESS)
        return s;
    s = dnn->cudnnBackendSetAttribute(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                      WEFT_CUDNN_TYPE_INT64, n, id);
    if (s == WEFT_CUDNN_STATUS_SUCCESS)
        s = dnn->cudnnBackendSetAttribute(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          WEFT_CUDNN_TYPE_VOID_PTR, n, address);
    if (s == WEFT_CUDNN_STATUS_SUCCESS)
        s = dnn->cudnnBackendSetAttribute(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          WEFT_CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (s == WEFT_CUDNN_STATUS_SUCCESS)
        s = dnn->cudnnBackendFinalize(pack);
    if (s == WEFT_CUDNN_STATUS_SUCCESS)
        s = dnn->cudnnBackendExecute(handle, plan->desc, pack);
    (void)dnn->cudnnBackendDestroyDescriptor(pack);
    return s;
}
