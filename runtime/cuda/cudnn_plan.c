/* Plans of cuDNN for convolutions, through its backend API.
 *
 * A convolution becomes a graph of operations,
 *
 *     conv(x, w) -> add z -> add bias -> ReLU
 *
 * in this order, because cuDNN has compiled kernels for it and none for the bias before z, nor for
 * z or ReLU without a bias. Values between the operations are virtual and f32. The library's
 * heuristics list configurations of engines for the graph and a device, the best first; a plan is
 * made of the first that is acceptable.
 *
 * The properties of a device that is not here are a text of JSON. Its keys are those that cuDNN
 * 9.19 writes, and `memoryBusWidth`, which 9.28 asks for. Rates of clocks are of the order of the
 * real ones: the plans of cuDNN 9.19 depend on capability and multiprocessors. */
#include "runtime/cuda/cudnn_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MADE_MAX = 32,    /* descriptors of a plan and of the graph that it is made of */
    CONFIGS_MAX = 64, /* configurations that are tried */
    NOTES_MAX = 16,
    RANK_MAX = 5,
    WORKSPACE_SMALL = 32 << 20
};

/* Owns all descriptors that were made for it, because cuDNN does not say which of them may be
 * destroyed before it. */
struct weft_cudnn_plan {
    const weft_cudnn_api *dnn;
    weft_cudnn_desc made[MADE_MAX];
    uint32_t n_made;
    weft_cudnn_status status; /* of the first call that failed */
    weft_cudnn_desc desc;     /* one of `made` */
};

/* -- Descriptors ---------------------------------------------------------------------------- */

static weft_cudnn_plan *open_plan(const weft_cudnn_device *d)
{
    weft_cudnn_plan *p = calloc(1, sizeof *p);
    if (p)
        p->dnn = &d->lib->api;
    return p;
}

void weft_cudnn__drop(weft_cudnn_plan *plan)
{
    if (!plan)
        return;
    while (plan->n_made > 0)
        (void)plan->dnn->cudnnBackendDestroyDescriptor(plan->made[--plan->n_made]);
    free(plan);
}

static bool note(weft_cudnn_plan *p, weft_cudnn_status status)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        p->status = status;
    return status == WEFT_CUDNN_STATUS_SUCCESS;
}

/* After an error all calls do nothing. */
static weft_cudnn_desc make(weft_cudnn_plan *p, unsigned type)
{
    weft_cudnn_desc desc = NULL;
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS &&
        note(p, p->n_made < MADE_MAX ? p->dnn->cudnnBackendCreateDescriptor(type, &desc)
                                     : WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED))
        p->made[p->n_made++] = desc;
    return desc;
}

static void set(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name, unsigned type, int64_t n,
                const void *value)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        note(p, p->dnn->cudnnBackendSetAttribute(desc, name, type, n, value));
}

static void set_desc(weft_cudnn_plan *p, weft_cudnn_desc desc, unsigned name, weft_cudnn_desc value)
{
    set(p, desc, name, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finalise(weft_cudnn_plan *p, weft_cudnn_desc desc)
{
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        note(p, p->dnn->cudnnBackendFinalize(desc));
}

/* Destroys the descriptors from `n` on. */
static void back_to(weft_cudnn_plan *p, uint32_t n)
{
    while (p->n_made > n)
        (void)p->dnn->cudnnBackendDestroyDescriptor(p->made[--p->n_made]);
    p->status = WEFT_CUDNN_STATUS_SUCCESS;
}

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

/* -- The graph ------------------------------------------------------------------------------ */

/* Unique ids of the tensors in memory are their numbers + 1; of the virtual ones, from VIRTUAL on.
 */
enum { VIRTUAL = 100 };

typedef struct builder {
    weft_cudnn_plan *p;
    const weft_conv_key *conv;
    unsigned type;     /* of data in memory */
    int rank, spatial; /* 4 and 2, or 5 and 3 */
    int64_t result[RANK_MAX];
    uint32_t n_virtual;
} builder;

static unsigned data_type(uint32_t dtype)
{
    return dtype == WEFT_DTYPE_F32   ? WEFT_CUDNN_DATA_FLOAT
           : dtype == WEFT_DTYPE_F16 ? WEFT_CUDNN_DATA_HALF
                                     : WEFT_CUDNN_DATA_BFLOAT16;
}

/* Dims are in the order n, c, d, h, w; strides say where the channels are in memory. */
static void find_strides(const builder *g, const int64_t *dim, int64_t *stride)
{
    bool last = (g->conv->flags & WEFT_CONV_LAST) != 0;
    int64_t below = last ? dim[1] : 1;
    for (int i = g->rank - 1; i > 1; i--) {
        stride[i] = below;
        below *= dim[i];
    }
    stride[1] = last ? 1 : below;
    stride[0] = last ? below : below * dim[1];
}

static weft_cudnn_desc make_tensor(builder *g, int64_t id, unsigned type, const int64_t *dim)
{
    int64_t stride[RANK_MAX], align = WEFT_CUDNN_ALIGN;
    bool is_virtual = id >= VIRTUAL;
    find_strides(g, dim, stride);
    weft_cudnn_desc t = make(g->p, WEFT_CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_UNIQUE_ID, WEFT_CUDNN_TYPE_INT64, 1, &id);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_DATA_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_DIMENSIONS, WEFT_CUDNN_TYPE_INT64, g->rank, dim);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_STRIDES, WEFT_CUDNN_TYPE_INT64, g->rank, stride);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, WEFT_CUDNN_TYPE_INT64, 1, &align);
    set(g->p, t, WEFT_CUDNN_ATTR_TENSOR_IS_VIRTUAL, WEFT_CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finalise(g->p, t);
    return t;
}

/* The tensor `which` of [outer, inner, spatial...]. */
static weft_cudnn_desc make_operand(builder *g, int which, int64_t outer, int64_t inner,
                                    const int64_t *three)
{
    int64_t dim[RANK_MAX] = {outer, inner};
    for (int i = 0; i < g->spatial; i++)
        dim[2 + i] = three ? three[3 - g->spatial + i] : 1;
    return make_tensor(g, which + 1, g->type, dim);
}

/* The result of an operation: y of the last, otherwise a virtual value. */
static weft_cudnn_desc make_result(builder *g, bool last)
{
    return last ? make_tensor(g, WEFT_CUDNN_Y + 1, g->type, g->result)
                : make_tensor(g, VIRTUAL + g->n_virtual++, WEFT_CUDNN_DATA_FLOAT, g->result);
}

static weft_cudnn_desc make_geometry(builder *g)
{
    const int64_t *d = g->conv->dim;
    int64_t n = g->spatial, behind[3];
    int skip = 3 - g->spatial;
    unsigned type = WEFT_CUDNN_DATA_FLOAT, mode = WEFT_CUDNN_CROSS_CORRELATION;
    for (int i = skip; i < 3; i++) {
        int64_t reach = (d[WEFT_CONV_KERNEL + i] - 1) * d[WEFT_CONV_DILATION + i] + 1;
        int64_t last = (d[WEFT_CONV_OUT + i] - 1) * d[WEFT_CONV_STRIDE + i] + reach;
        int64_t room = last - d[WEFT_CONV_PAD + i] - d[WEFT_CONV_IN + i];
        behind[i - skip] = room > 0 ? room : 0;
    }
    weft_cudnn_desc c = make(g->p, WEFT_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_CONV_MODE, WEFT_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, WEFT_CUDNN_TYPE_INT64, 1, &n);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_DILATIONS, WEFT_CUDNN_TYPE_INT64, n,
        d + WEFT_CONV_DILATION + skip);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, WEFT_CUDNN_TYPE_INT64, n,
        d + WEFT_CONV_STRIDE + skip);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, WEFT_CUDNN_TYPE_INT64, n,
        d + WEFT_CONV_PAD + skip);
    set(g->p, c, WEFT_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, WEFT_CUDNN_TYPE_INT64, n, behind);
    finalise(g->p, c);
    return c;
}

static weft_cudnn_desc make_convolution(builder *g, weft_cudnn_desc y)
{
    const int64_t *d = g->conv->dim;
    double one = 1, zero = 0;
    weft_cudnn_desc x =
        make_operand(g, WEFT_CUDNN_X, d[WEFT_CONV_IMAGES], d[WEFT_CONV_CHANNELS], d + WEFT_CONV_IN);
    weft_cudnn_desc w =
        make_operand(g, WEFT_CUDNN_W, d[WEFT_CONV_FEATURES],
                     d[WEFT_CONV_CHANNELS] / d[WEFT_CONV_GROUPS], d + WEFT_CONV_KERNEL);
    weft_cudnn_desc c = make_geometry(g);
    weft_cudnn_desc o = make(g->p, WEFT_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, WEFT_CUDNN_TYPE_DOUBLE, 1,
        &one);
    set(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, WEFT_CUDNN_TYPE_DOUBLE, 1,
        &zero);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, c);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    finalise(g->p, o);
    return o;
}

/* b: NULL for a function of x alone. */
static weft_cudnn_desc make_pointwise(builder *g, unsigned mode, weft_cudnn_desc x,
                                      weft_cudnn_desc b, weft_cudnn_desc y)
{
    unsigned type = WEFT_CUDNN_DATA_FLOAT;
    weft_cudnn_desc f = make(g->p, WEFT_CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g->p, f, WEFT_CUDNN_ATTR_POINTWISE_MODE, WEFT_CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g->p, f, WEFT_CUDNN_ATTR_POINTWISE_MATH_PREC, WEFT_CUDNN_TYPE_DATA_TYPE, 1, &type);
    finalise(g->p, f);
    weft_cudnn_desc o = make(g->p, WEFT_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, f);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_desc(g->p, o, WEFT_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finalise(g->p, o);
    return o;
}

static weft_cudnn_desc make_graph(weft_cudnn_plan *p, const weft_conv_key *conv)
{
    const int64_t *d = conv->dim;
    uint32_t flags = conv->flags;
    bool deep = d[WEFT_CONV_IN] != 1 || d[WEFT_CONV_KERNEL] != 1 || d[WEFT_CONV_OUT] != 1;
    builder g = {.p = p, .conv = conv, .type = data_type(conv->dtype), .rank = deep ? 5 : 4};
    weft_cudnn_desc op[4], at;
    int64_t n = 0, features = d[WEFT_CONV_FEATURES];
    g.spatial = g.rank - 2;
    g.result[0] = d[WEFT_CONV_IMAGES];
    g.result[1] = features;
    memcpy(g.result + 2, d + WEFT_CONV_OUT + 3 - g.spatial, (size_t)g.spatial * sizeof *d);
    bool last = !(flags & (WEFT_CONV_Z | WEFT_CONV_BIAS | WEFT_CONV_RELU));
    weft_cudnn_desc value = make_result(&g, last);
    op[n++] = make_convolution(&g, value);
    if (flags & WEFT_CONV_Z) {
        weft_cudnn_desc z =
            make_operand(&g, WEFT_CUDNN_Z, g.result[0], features, d + WEFT_CONV_OUT);
        at = make_result(&g, false);
        op[n++] = make_pointwise(&g, WEFT_CUDNN_POINTWISE_ADD, value, z, at);
        value = at;
    }
    if (flags & WEFT_CONV_BIAS) {
        weft_cudnn_desc bias = make_operand(&g, WEFT_CUDNN_BIAS, 1, features, NULL);
        at = make_result(&g, !(flags & WEFT_CONV_RELU));
        op[n++] = make_pointwise(&g, WEFT_CUDNN_POINTWISE_ADD, value, bias, at);
        value = at;
    }
    if (flags & WEFT_CONV_RELU)
        op[n++] =
            make_pointwise(&g, WEFT_CUDNN_POINTWISE_RELU_FWD, value, NULL, make_result(&g, true));
    weft_cudnn_desc out = make(p, WEFT_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(p, out, WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, n, op);
    finalise(p, out);
    return out;
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
    weft_cudnn_desc engine = make(p, WEFT_CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    return engine &&
           p->dnn->cudnnBackendGetAttribute(config, WEFT_CUDNN_ATTR_ENGINECFG_ENGINE,
                                            WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                            &engine) == WEFT_CUDNN_STATUS_SUCCESS &&
           is_exact_enough(p, engine, conv) && is_compiled(p, engine);
}

/* Most bytes of workspace: an engine may convert its operands to another layout there. */
static uint64_t workspace_room(const weft_conv_key *conv)
{
    const int64_t *d = conv->dim;
    uint64_t in = (uint64_t)d[WEFT_CONV_IMAGES] * (uint64_t)d[WEFT_CONV_CHANNELS];
    uint64_t out = (uint64_t)d[WEFT_CONV_IMAGES] * (uint64_t)d[WEFT_CONV_FEATURES];
    uint64_t w = (uint64_t)d[WEFT_CONV_FEATURES] * (uint64_t)d[WEFT_CONV_CHANNELS];
    for (int i = 0; i < 3; i++) {
        in *= (uint64_t)d[WEFT_CONV_IN + i];
        out *= (uint64_t)d[WEFT_CONV_OUT + i];
        w *= (uint64_t)d[WEFT_CONV_KERNEL + i];
    }
    return 2 * (in + out + w) * weft_dtype_size((weft_dtype)conv->dtype) + WORKSPACE_SMALL;
}

/* Makes the plan of a configuration, which becomes its own; on failure both are destroyed. */
static bool take_config(weft_cudnn_plan *p, const weft_cudnn_device *d, weft_cudnn_desc config,
                        const weft_conv_key *conv)
{
    uint32_t before = p->n_made;
    p->made[p->n_made++] = config;
    if (is_acceptable(p, config, conv)) {
        p->desc = make(p, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
        set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
        set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, d->desc);
        finalise(p, p->desc);
        if (p->status == WEFT_CUDNN_STATUS_SUCCESS &&
            weft_cudnn__workspace(p) <= workspace_room(conv))
            return true;
    }
    back_to(p, before);
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
    weft_cudnn_desc h = make(p, WEFT_CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_MODE, WEFT_CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_desc(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_desc(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, d->desc);
    if (d->sm_target)
        set(p, h, WEFT_CUDNN_ATTR_ENGINEHEUR_SM_COUNT_TARGET, WEFT_CUDNN_TYPE_INT32, 1,
            &d->sm_target);
    finalise(p, h);
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS)
        note(p, p->dnn->cudnnBackendGetAttribute(h, WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL));
    n = n > CONFIGS_MAX ? CONFIGS_MAX : n;
    while (p->status == WEFT_CUDNN_STATUS_SUCCESS && made < n)
        if (note(p, p->dnn->cudnnBackendCreateDescriptor(WEFT_CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                                                         &config[made])))
            made++;
    if (p->status == WEFT_CUDNN_STATUS_SUCCESS && n > 0)
        note(p,
             p->dnn->cudnnBackendGetAttribute(h, WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &got, config));
    int64_t i = 0;
    while (p->status == WEFT_CUDNN_STATUS_SUCCESS && i < got && p->n_made < MADE_MAX && !found)
        found = take_config(p, d, config[i++], conv);
    for (; i < made; i++)
        (void)p->dnn->cudnnBackendDestroyDescriptor(config[i]);
    return found;
}

weft_cudnn_plan *weft_cudnn__choose(weft_cudnn_device *d, const weft_conv_key *conv)
{
    static const unsigned mode[] = {WEFT_CUDNN_HEUR_MODE_A, WEFT_CUDNN_HEUR_MODE_FALLBACK};
    for (int i = 0; i < WEFT_CONV_DIMS; i++)
        if (conv->dim[i] < 1 && (i < WEFT_CONV_PAD || i >= WEFT_CONV_KERNEL)) {
            snprintf(d->why, sizeof d->why, "a size is 0");
            return NULL;
        }
    weft_cudnn_plan *p = open_plan(d);
    if (!p)
        return NULL;
    weft_cudnn_desc graph = make_graph(p, conv);
    uint32_t before = p->n_made;
    for (size_t i = 0; p->status == WEFT_CUDNN_STATUS_SUCCESS && i < 2; i++) {
        if (try_mode(p, d, graph, mode[i], conv))
            return p;
        if (i == 0)
            back_to(p, before);
    }
    keep_reason(d, p->status);
    weft_cudnn__drop(p);
    return NULL;
}

/* -- Plans ---------------------------------------------------------------------------------- */

weft_cudnn_plan *weft_cudnn__restore(weft_cudnn_device *d, const char *json)
{
    weft_cudnn_plan *p = open_plan(d);
    if (!p)
        return NULL;
    p->desc = make(p, WEFT_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set_desc(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, d->desc);
    set(p, p->desc, WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, WEFT_CUDNN_TYPE_CHAR,
        (int64_t)strlen(json), json);
    finalise(p, p->desc);
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
                                  uint32_t flags, void *const at[WEFT_CUDNN_TENSORS],
                                  void *workspace)
{
    const weft_cudnn_api *dnn = plan->dnn;
    int64_t id[WEFT_CUDNN_TENSORS], n = 0;
    void *address[WEFT_CUDNN_TENSORS];
    weft_cudnn_desc pack = NULL;
    for (int i = 0; i < WEFT_CUDNN_TENSORS; i++) {
        if ((i == WEFT_CUDNN_Z && !(flags & WEFT_CONV_Z)) ||
            (i == WEFT_CUDNN_BIAS && !(flags & WEFT_CONV_BIAS)))
            continue;
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
