/* Test double of libcudnn.so.9: the part of the backend API that convolutions with residual, bias
 * and ReLU, pooling and attention need. Checks each attribute (that the descriptor has it, its
 * type, count and descriptors), that descriptors are finalised before they are used and not changed
 * afterwards, the shapes, and what a plan is executed with; computes the result on the host when
 * libcuda_double runs it.
 *
 * Its engines, as the heuristic lists them: one that computes in tiles (Winograd), one that is
 * compiled at run time, one on tensor cores that needs a workspace, one on plain units; and, as
 * fallback, one without notes but that NaN is kept. Pooling and attention have the one that is
 * compiled, for which it needs a driver. */
#include "libcudnn_double.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_double_library = "libcudnn";

#define CUDNN_SYM(result, name, args) WEFT_EXPORT result name args;
#include "runtime/cuda/cudnn_syms.def"
#undef CUDNN_SYM

enum { VERSION = 91900, COUNT_MAX = 8, OPS_MAX = 9, WORKSPACE_ALIGN = 16 };

/* -- Engines -------------------------------------------------------------------------------- */

static const engine engines[] = {
    {.index = 15, .numerical = {5, 6}, .n_numerical = 2, .workspace = 512, .time_us = 2},
    {.index = 5, .behavior = {0}, .n_behavior = 1, .time_us = 2},
    {.index = 26, .numerical = {0}, .n_numerical = 1, .workspace = 4096, .time_us = 3},
    {.index = 11, .time_us = 6},
    {.index = 0, .numerical = {9}, .n_numerical = 1, .time_us = 9},
};

enum { ENGINES = sizeof engines / sizeof *engines, LISTED = ENGINES - 1, COMPILED = 1 };

static const engine *find_engine(int64_t index)
{
    for (int i = 0; i < ENGINES; i++)
        if (engines[i].index == index)
            return &engines[i];
    return NULL;
}

/* -- Objects -------------------------------------------------------------------------------- */

static object *all;

void weft_double_library_reset(void)
{
    for (object *o = all, *next; o; o = next) {
        next = o->next;
        for (int i = 0; i < o->n_attr; i++)
            free(o->attr[i].value);
        free(o);
    }
    all = NULL;
}

static weft_cudnn_status enter(const char *call)
{
    weft_double_lock();
    return weft_double_fail(call);
}

static weft_cudnn_status leave(weft_cudnn_status s, const char *call)
{
    weft_double_log("%s = %u", call, s);
    weft_double_unlock();
    return s;
}

static object *find(const void *handle)
{
    object *o = all;
    while (o && o != handle)
        o = o->next;
    return o && !o->dead ? o : NULL;
}

static object *get(const void *handle, bool is_handle, const char *call)
{
    object *o = find(handle);
    if (o && (o->type == HANDLE) == is_handle)
        return o;
    weft_double_mistake("%s: %p is no %s, or was destroyed", call, handle,
                        is_handle ? "handle" : "descriptor");
    return NULL;
}

static object *add(unsigned type)
{
    object *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->type = type;
    o->next = all;
    all = o;
    return o;
}

/* -- Attributes ----------------------------------------------------------------------------- */

/* What a descriptor can be given. `of`: the type of a descriptor that is the value. */
typedef struct row {
    unsigned desc, name, type;
    int64_t least, most; /* elements; least 0: optional */
    unsigned of;
} row;

#define R(desc, name, type, least, most)                                        \
    {                                                                           \
        D(desc), WEFT_CUDNN_ATTR_##name, WEFT_CUDNN_TYPE_##type, least, most, 0 \
    }
#define P(desc, name, least, most, of)                                                          \
    {                                                                                           \
        D(desc), WEFT_CUDNN_ATTR_##name, WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR, least, most, D(of) \
    }

static const row rows[] = {
    R(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, 1),
    R(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, 1),
    R(TENSOR, TENSOR_DIMENSIONS, INT64, 4, 5),
    R(TENSOR, TENSOR_STRIDES, INT64, 4, 5),
    R(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, 1),
    R(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 0, 1),
    R(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 0, 1),
    R(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, 1),
    R(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, 1),
    R(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, 1),
    R(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, 3),
    R(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, 3),
    R(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, 3),
    R(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, 3),
    R(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_ALPHA, DOUBLE, 1, 1),
    R(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_BETA, DOUBLE, 1, 1),
    P(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 1, 1, CONVOLUTION),
    P(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_X, 1, 1, TENSOR),
    P(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_W, 1, 1, TENSOR),
    P(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_Y, 1, 1, TENSOR),
    R(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, 1),
    R(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, 1),
    P(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, 1, 1, POINTWISE),
    P(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, 1, 1, TENSOR),
    P(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, 0, 1, TENSOR),
    P(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, 1, 1, TENSOR),
    R(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, 1),
    P(OPERATION_MATMUL, OPERATION_MATMUL_DESC, 1, 1, MATMUL),
    P(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, 1, 1, TENSOR),
    P(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, 1, 1, TENSOR),
    P(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, 1, 1, TENSOR),
    R(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, 1),
    R(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, 1),
    P(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, 1, 1, REDUCTION),
    P(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, 1, 1, TENSOR),
    P(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, 1, 1, TENSOR),
    R(RESAMPLE, RESAMPLE_MODE, RESAMPLE_MODE, 1, 1),
    R(RESAMPLE, RESAMPLE_COMP_TYPE, DATA_TYPE, 1, 1),
    R(RESAMPLE, RESAMPLE_NAN_PROPAGATION, NAN_PROPOGATION, 0, 1),
    R(RESAMPLE, RESAMPLE_PADDING_MODE, PADDING_MODE, 1, 1),
    R(RESAMPLE, RESAMPLE_SPATIAL_DIMS, INT64, 1, 1),
    R(RESAMPLE, RESAMPLE_WINDOW_DIMS, FRACTION, 2, 3),
    R(RESAMPLE, RESAMPLE_PRE_PADDINGS, FRACTION, 2, 3),
    R(RESAMPLE, RESAMPLE_POST_PADDINGS, FRACTION, 2, 3),
    R(RESAMPLE, RESAMPLE_STRIDES, FRACTION, 2, 3),
    P(OPERATION_RESAMPLE_FWD, OPERATION_RESAMPLE_FWD_DESC, 1, 1, RESAMPLE),
    P(OPERATION_RESAMPLE_FWD, OPERATION_RESAMPLE_FWD_XDESC, 1, 1, TENSOR),
    P(OPERATION_RESAMPLE_FWD, OPERATION_RESAMPLE_FWD_YDESC, 1, 1, TENSOR),
    P(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_QDESC, 1, 1, TENSOR),
    P(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_KDESC, 1, 1, TENSOR),
    P(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_VDESC, 1, 1, TENSOR),
    P(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_ODESC, 1, 1, TENSOR),
    P(OPERATION_SDPA_FWD, OPERATION_SDPA_FWD_SCALEDESC, 1, 1, TENSOR),
    P(OPERATIONGRAPH, OPERATIONGRAPH_OPS, 1, OPS_MAX, OPERATIONGRAPH),
    R(DEVICEPROP, DEVICEPROP_HANDLE, HANDLE, 0, 1),
    R(DEVICEPROP, DEVICEPROP_JSON_REPRESENTATION, CHAR, 0, 1 << 16),
    R(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, 1),
    P(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, 1, 1, OPERATIONGRAPH),
    P(ENGINEHEUR, ENGINEHEUR_DEVICEPROP, 0, 1, DEVICEPROP),
    R(ENGINEHEUR, ENGINEHEUR_SM_COUNT_TARGET, INT32, 0, 1),
    P(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, 0, 1, ENGINECFG),
    P(EXECUTION_PLAN, EXECUTION_PLAN_DEVICEPROP, 0, 1, DEVICEPROP),
    R(EXECUTION_PLAN, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, 0, 1 << 16),
    R(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 1, COUNT_MAX),
    R(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 1, COUNT_MAX),
    R(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 0, 1),
};

enum { ROWS = sizeof rows / sizeof *rows };

static size_t size_of(unsigned type)
{
    switch (type) {
    case WEFT_CUDNN_TYPE_BOOLEAN:
    case WEFT_CUDNN_TYPE_CHAR:
        return 1;
    case WEFT_CUDNN_TYPE_FRACTION:
        return 16;
    case WEFT_CUDNN_TYPE_INT64:
    case WEFT_CUDNN_TYPE_DOUBLE:
    case WEFT_CUDNN_TYPE_VOID_PTR:
    case WEFT_CUDNN_TYPE_HANDLE:
    case WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

static const row *find_row(unsigned desc, unsigned name)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].desc == desc && rows[i].name == name)
            return &rows[i];
    return NULL;
}

/* The descriptors that are a value exist, are finalised and of the type that the row asks for. */
static bool check_values(const row *r, int64_t n, const void *value, const char *call)
{
    for (int64_t i = 0; i < n; i++) {
        void *p;
        memcpy(&p, (const char *)value + 8 * i, 8);
        object *o = get(p, r->type == WEFT_CUDNN_TYPE_HANDLE, call);
        if (!o)
            return false;
        bool right = r->name == WEFT_CUDNN_ATTR_OPERATIONGRAPH_OPS ? weft_dnn_is_operation(o->type)
                                                                   : o->type == r->of;
        if (r->type == WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR && (!right || !o->final)) {
            weft_double_mistake("%s: attribute %u: a descriptor of type %u%s", call, r->name,
                                o->type, o->final ? "" : ", not finalised");
            return false;
        }
    }
    return true;
}

static bool check_set(const object *o, const row *r, unsigned name, unsigned type, int64_t n,
                      const void *value, const char *call)
{
    if (!r || r->type != type || n < (r->least ? r->least : 1) || n > r->most || !value)
        weft_double_mistake("%s: descriptor of type %u: attribute %u, type %u, %lld values", call,
                            o->type, name, type, (long long)n);
    else if (o->final)
        weft_double_mistake("%s: attribute %u is set after the descriptor was finalised", call,
                            name);
    else if (weft_dnn_attr(o, name))
        weft_double_mistake("%s: attribute %u is set twice", call, name);
    else
        return type != WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR && type != WEFT_CUDNN_TYPE_HANDLE
                   ? true
                   : check_values(r, n, value, call);
    return false;
}

/* -- Handles and descriptors ---------------------------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return weft_double_number("CUDNN", VERSION);
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    snprintf(message, max_size, "an error of the double");
}

static weft_double_enqueue_fn find_enqueue(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    weft_double_enqueue_fn fn = NULL;
    void *p = cuda ? dlsym(cuda, "weft_double_enqueue") : NULL;
    memcpy(&fn, &p, sizeof fn);
    if (cuda)
        dlclose(cuda);
    return fn;
}

weft_cudnn_status cudnnCreate(weft_cudnn_handle *handle)
{
    weft_cudnn_status s = enter("cudnnCreate");
    if (!s && !find_enqueue())
        s = WEFT_CUDNN_STATUS_NOT_INITIALIZED;
    object *o = s ? NULL : add(HANDLE);
    if (o)
        *handle = (weft_cudnn_handle)(void *)o;
    else if (!s)
        s = WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    return leave(s, "cudnnCreate");
}

/* The handle must be destroyed last. */
weft_cudnn_status cudnnDestroy(weft_cudnn_handle handle)
{
    weft_cudnn_status s = enter("cudnnDestroy");
    object *o = get(handle, true, "cudnnDestroy");
    if (o)
        o->dead = true;
    else if (!s)
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    for (object *x = all; o && x; x = x->next) {
        if (x->dead || x->type == HANDLE)
            continue;
        weft_double_mistake("cudnnDestroy: a descriptor of type %u still exists", x->type);
        x->dead = true;
    }
    return leave(s, "cudnnDestroy");
}

weft_cudnn_status cudnnSetStream(weft_cudnn_handle handle, weft_cu_stream stream)
{
    weft_cudnn_status s = enter("cudnnSetStream");
    object *o = s ? NULL : get(handle, true, "cudnnSetStream");
    if (o)
        o->stream = stream;
    else if (!s)
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    return leave(s, "cudnnSetStream");
}

weft_cudnn_status cudnnBackendCreateDescriptor(unsigned type, weft_cudnn_desc *desc)
{
    const char *call = "cudnnBackendCreateDescriptor";
    weft_cudnn_status s = enter(call);
    bool known = type == D(ENGINE) || type == D(ENGINECFG);
    for (int i = 0; i < ROWS; i++)
        known = known || rows[i].desc == type;
    if (!s && !known)
        s = WEFT_CUDNN_STATUS_NOT_SUPPORTED;
    object *o = s ? NULL : add(type);
    if (o)
        *desc = o;
    else if (!s)
        s = WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    return leave(s, call);
}

/* Whether a descriptor that exists and is finalised has `o` as a value. */
static bool is_used(const object *o)
{
    for (const object *x = all; x; x = x->next)
        for (int i = 0; !x->dead && x->final && i < x->n_attr; i++) {
            const row *r = find_row(x->type, x->attr[i].name);
            for (int64_t k = 0; r->type == WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR && k < x->attr[i].n;
                 k++)
                if (weft_dnn_desc(x, x->attr[i].name, k) == o)
                    return true;
        }
    return false;
}

weft_cudnn_status cudnnBackendDestroyDescriptor(weft_cudnn_desc desc)
{
    const char *call = "cudnnBackendDestroyDescriptor";
    weft_cudnn_status s = enter(call);
    object *o = get(desc, false, call);
    if (o && is_used(o))
        weft_double_mistake("%s: another descriptor uses this one, of type %u", call, o->type);
    if (o)
        o->dead = true;
    else if (!s)
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    return leave(s, call);
}

weft_cudnn_status cudnnBackendSetAttribute(weft_cudnn_desc desc, unsigned name, unsigned type,
                                           int64_t n, const void *value)
{
    const char *call = "cudnnBackendSetAttribute";
    weft_cudnn_status s = enter(call);
    object *o = s ? NULL : get(desc, false, call);
    if (!s && (!o || !check_set(o, find_row(o->type, name), name, type, n, value, call)))
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    char *copy = s ? NULL : malloc((size_t)n * size_of(type) + 1);
    if (copy) {
        memcpy(copy, value, (size_t)n * size_of(type));
        copy[(size_t)n * size_of(type)] = 0;
        o->attr[o->n_attr++] = (attr){name, n, copy};
    } else if (!s) {
        s = WEFT_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    }
    return leave(s, call);
}

static weft_cudnn_status read_device(object *o)
{
    static const char *const keys[] = {
        "multiProcessorCount", "warpSize",    "maxThreadsPerSM", "maxSharedMemoryPerBlockOptin",
        "memoryBusWidth",      "maxGridSize", "deviceName"};
    const attr *json = weft_dnn_attr(o, WEFT_CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    bool handle = weft_dnn_attr(o, WEFT_CUDNN_ATTR_DEVICEPROP_HANDLE) != NULL;
    o->arch = (int)weft_double_number("ARCH", 90);
    if (handle == (json != NULL)) {
        weft_dnn_refuse("a device is one of a handle, or one of JSON");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    if (handle)
        return WEFT_CUDNN_STATUS_SUCCESS;
    const char *arch = strstr(json->value, "\"deviceVer\":");
    for (size_t i = 0; arch && i < sizeof keys / sizeof *keys; i++)
        if (!strstr(json->value, keys[i]))
            arch = NULL;
    if (!arch) {
        weft_dnn_refuse("a device lacks a property");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    o->arch = atoi(arch + strlen("\"deviceVer\":")) / 10;
    return WEFT_CUDNN_STATUS_SUCCESS;
}

/* WEFT_DOUBLE_ABSENT: "conv", "pool", "attention": no engine supports the graph. */
static weft_cudnn_status read_heuristic(object *o)
{
    unsigned mode = weft_dnn_enum(o, WEFT_CUDNN_ATTR_ENGINEHEUR_MODE);
    if (!weft_dnn_attr(o, WEFT_CUDNN_ATTR_ENGINEHEUR_DEVICEPROP) ||
        (mode != WEFT_CUDNN_HEUR_MODE_A && mode != WEFT_CUDNN_HEUR_MODE_FALLBACK)) {
        weft_dnn_refuse("a heuristic without a device, or of another mode");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    o->conv = weft_dnn_desc(o, WEFT_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0)->conv;
    unsigned kind = o->conv.kind;
    if (weft_double_listed("ABSENT", kind == WEFT_CONV_KIND_CONV        ? "conv"
                                     : kind == WEFT_CONV_KIND_ATTENTION ? "attention"
                                                                        : "pool"))
        return WEFT_CUDNN_STATUS_NOT_SUPPORTED;
    return kind != WEFT_CONV_KIND_CONV && !find_enqueue()
               ? WEFT_CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING
               : WEFT_CUDNN_STATUS_SUCCESS;
}

/* -- Plans and their text --------------------------------------------------------------------- */

static void put_plan(const object *o, char text[WEFT_CONV_TEXT])
{
    snprintf(text, WEFT_CONV_TEXT, "{\"cudnnVersion\":%zu,\"arch\":%d,\"engineId\":%lld,",
             cudnnGetVersion(), o->arch, (long long)o->engine->index);
    weft_conv_print(&o->conv, text);
}

static weft_cudnn_status read_text(object *o, const char *text)
{
    o->engine = find_engine(weft_conv_number(text, "\"engineId\""));
    if (!o->engine || !weft_conv_parse(text, &o->conv)) {
        weft_dnn_refuse("cuDNN would crash: the text of a plan is none");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    if (weft_conv_number(text, "\"cudnnVersion\"") != (int64_t)cudnnGetVersion()) {
        weft_dnn_refuse("the text of a plan is of another version");
        return WEFT_CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH;
    }
    return weft_conv_number(text, "\"arch\"") == o->arch
               ? WEFT_CUDNN_STATUS_SUCCESS
               : WEFT_CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;
}

static weft_cudnn_status read_plan(object *o)
{
    const object *config = weft_dnn_desc(o, WEFT_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const object *device = weft_dnn_desc(o, WEFT_CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, 0);
    const attr *json = weft_dnn_attr(o, WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    if (!device || (json != NULL) == (config != NULL)) {
        weft_dnn_refuse(device ? "a plan is made of a configuration, or of a text"
                               : "cuDNN would crash: a plan without a device");
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    o->arch = device->arch;
    if (json)
        return read_text(o, json->value);
    o->conv = config->conv;
    o->engine = config->engine;
    return WEFT_CUDNN_STATUS_SUCCESS;
}

static bool check_pack(const object *o)
{
    int64_t n = weft_dnn_count(o, WEFT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    if (n != weft_dnn_count(o, WEFT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
        return weft_dnn_refuse("a pack has as many addresses as ids");
    return true;
}

static weft_cudnn_status finalise(object *o)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].desc == o->type && rows[i].least > 0 && !weft_dnn_attr(o, rows[i].name)) {
            weft_double_mistake("cudnnBackendFinalize: a descriptor of type %u lacks attribute %u",
                                o->type, rows[i].name);
            return WEFT_CUDNN_STATUS_BAD_PARAM;
        }
    switch (o->type) {
    case D(VARIANT_PACK):
        return check_pack(o) ? WEFT_CUDNN_STATUS_SUCCESS : WEFT_CUDNN_STATUS_BAD_PARAM;
    case D(OPERATIONGRAPH):
        return weft_dnn_read_graph(o);
    case D(DEVICEPROP):
        return read_device(o);
    case D(ENGINEHEUR):
        return read_heuristic(o);
    case D(EXECUTION_PLAN):
        return read_plan(o);
    default:
        return weft_dnn_check(o) ? WEFT_CUDNN_STATUS_SUCCESS : WEFT_CUDNN_STATUS_BAD_PARAM;
    }
}

weft_cudnn_status cudnnBackendFinalize(weft_cudnn_desc desc)
{
    const char *call = "cudnnBackendFinalize";
    weft_cudnn_status s = enter(call);
    object *o = s ? NULL : get(desc, false, call);
    if (!s && !o)
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    if (!s && o->final)
        weft_double_mistake("%s: a descriptor of type %u is finalised twice", call, o->type);
    if (!s)
        s = finalise(o);
    if (!s)
        o->final = true;
    return leave(s, call);
}

/* -- Answers -------------------------------------------------------------------------------- */

static weft_cudnn_status put(const void *from, int64_t n, size_t size, int64_t room, int64_t *out_n,
                             void *value)
{
    *out_n = n;
    int64_t take = n < room ? n : room;
    if (take > 0 && value)
        memcpy(value, from, (size_t)take * size);
    return WEFT_CUDNN_STATUS_SUCCESS;
}

/* Fills configurations that the caller created. */
static weft_cudnn_status put_configs(const object *heuristic, int64_t room, int64_t *n, void *value,
                                     const char *call)
{
    bool listed =
        weft_dnn_enum(heuristic, WEFT_CUDNN_ATTR_ENGINEHEUR_MODE) == WEFT_CUDNN_HEUR_MODE_A;
    int from = listed ? 0 : LISTED, count = listed ? LISTED : ENGINES - LISTED;
    if (heuristic->conv.kind != WEFT_CONV_KIND_CONV) {
        from = COMPILED;
        count = listed;
    }
    *n = count;
    for (int i = 0; i < count && i < room; i++) {
        void *p;
        memcpy(&p, (char *)value + 8 * i, 8);
        object *config = get(p, false, call);
        if (!config || config->type != D(ENGINECFG) || config->final) {
            weft_double_mistake("%s: results are put into configurations that are not finalised",
                                call);
            return WEFT_CUDNN_STATUS_BAD_PARAM;
        }
        config->conv = heuristic->conv;
        config->engine = &engines[from + i];
        config->final = true;
    }
    *n = room && room < count ? room : count;
    return WEFT_CUDNN_STATUS_SUCCESS;
}

static weft_cudnn_status put_engine(const object *config, int64_t room, int64_t *n, void *value,
                                    const char *call)
{
    void *p = NULL;
    if (room == 1)
        memcpy(&p, value, 8);
    object *to = get(p, false, call);
    if (!to || to->type != D(ENGINE))
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    to->engine = config->engine;
    to->final = true;
    *n = 1;
    return WEFT_CUDNN_STATUS_SUCCESS;
}

static weft_cudnn_status answer(const object *o, unsigned name, unsigned type, int64_t room,
                                int64_t *n, void *value, const char *call)
{
    char text[WEFT_CONV_TEXT];
    switch (name) {
    case WEFT_CUDNN_ATTR_ENGINEHEUR_RESULTS:
        if (o->type == D(ENGINEHEUR) && type == WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR)
            return put_configs(o, room, n, value, call);
        break;
    case WEFT_CUDNN_ATTR_ENGINECFG_ENGINE:
        if (o->type == D(ENGINECFG) && type == WEFT_CUDNN_TYPE_BACKEND_DESCRIPTOR)
            return put_engine(o, room, n, value, call);
        break;
    case WEFT_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        if (o->type == D(ENGINE) && type == WEFT_CUDNN_TYPE_NUMERICAL_NOTE)
            return put(o->engine->numerical, o->engine->n_numerical, 4, room, n, value);
        break;
    case WEFT_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        if (o->type == D(ENGINE) && type == WEFT_CUDNN_TYPE_BEHAVIOR_NOTE)
            return put(o->engine->behavior, o->engine->n_behavior, 4, room, n, value);
        break;
    case WEFT_CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        if (o->type == D(EXECUTION_PLAN) && type == WEFT_CUDNN_TYPE_INT64)
            return put(&o->engine->workspace, 1, 8, room, n, value);
        break;
    case WEFT_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
        if (o->type != D(EXECUTION_PLAN) || type != WEFT_CUDNN_TYPE_CHAR)
            break;
        put_plan(o, text);
        return put(text, (int64_t)strlen(text), 1, room, n, value);
    default:
        break;
    }
    weft_double_mistake("%s: descriptor of type %u: attribute %u, type %u", call, o->type, name,
                        type);
    return WEFT_CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
}

weft_cudnn_status cudnnBackendGetAttribute(weft_cudnn_desc const desc, unsigned name, unsigned type,
                                           int64_t room, int64_t *n, void *value)
{
    const char *call = "cudnnBackendGetAttribute";
    weft_cudnn_status s = enter(call);
    object *o = s ? NULL : get(desc, false, call);
    if (!s && (!o || !n))
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    if (!s && !o->final) {
        weft_double_mistake("%s: the descriptor of type %u is not finalised", call, o->type);
        s = WEFT_CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    if (!s)
        s = answer(o, name, type, room, n, value, call);
    return leave(s, call);
}

/* -- Execution ------------------------------------------------------------------------------ */

/* Puts the addresses of the pack into the tensors, and reads a value of the host: all of them, and
 * no other. */
static bool take_pack(weft_conv *c, const object *pack, const char *call)
{
    weft_conv_tensor scale = {.id = c->scale_id, .align = sizeof(float)};
    weft_conv_tensor *const tensor[] = {&c->x, &c->w, &c->y, &c->z, &c->bias, &scale};
    int64_t n = weft_dnn_count(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), taken = 0;
    int64_t wanted = 0;
    for (size_t t = 0; t < sizeof tensor / sizeof *tensor; t++) {
        wanted += tensor[t]->id != 0;
        for (int64_t i = 0; tensor[t]->id && i < n; i++)
            if (weft_dnn_int64(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i) == tensor[t]->id) {
                tensor[t]->at =
                    (void *)weft_dnn_desc(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
                taken++;
            }
        if (tensor[t]->id &&
            (!tensor[t]->at || (uintptr_t)tensor[t]->at % (size_t)tensor[t]->align)) {
            weft_double_mistake("%s: tensor %zu is at %p, it must be aligned to %lld", call, t,
                                tensor[t]->at, (long long)tensor[t]->align);
            return false;
        }
    }
    if (scale.at && c->scale_on_host)
        memcpy(&c->scale, scale.at, sizeof c->scale);
    c->scale_at = c->scale_on_host ? NULL : scale.at;
    if (taken == wanted && n == wanted)
        return true;
    weft_double_mistake("%s: %lld addresses, the plan has %lld tensors", call, (long long)n,
                        (long long)wanted);
    return false;
}

static weft_cudnn_status enqueue(const object *handle, const object *plan, const object *pack,
                                 const char *call)
{
    weft_double_enqueue_fn fn = find_enqueue();
    weft_conv c = plan->conv;
    void *workspace = weft_dnn_desc(pack, WEFT_CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    if (!take_pack(&c, pack, call))
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    if (plan->engine->workspace && (!workspace || (uintptr_t)workspace % WORKSPACE_ALIGN)) {
        weft_double_mistake("%s: the plan needs a workspace, it gets %p", call, workspace);
        return WEFT_CUDNN_STATUS_BAD_PARAM;
    }
    if (!fn)
        return WEFT_CUDNN_STATUS_NOT_INITIALIZED;
    c.time_us = plan->engine->time_us;
    weft_double_span read[5], write[2];
    size_t n_read = 0, n_write = 0;
    const weft_conv_tensor *const from[] = {&c.x, &c.w, &c.z, &c.bias};
    for (int i = 0; i < 4; i++)
        if (from[i]->id)
            read[n_read++] = (weft_double_span){(uintptr_t)from[i]->at, weft_conv_span(from[i])};
    if (c.scale_at)
        read[n_read++] = (weft_double_span){(uintptr_t)c.scale_at, sizeof c.scale};
    write[n_write++] = (weft_double_span){(uintptr_t)c.y.at, weft_conv_span(&c.y)};
    if (plan->engine->workspace)
        write[n_write++] =
            (weft_double_span){(uintptr_t)workspace, (size_t)plan->engine->workspace};
    return fn(handle->stream, call, weft_conv_run, &c, sizeof c, read, n_read, write, n_write)
               ? WEFT_CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER
               : WEFT_CUDNN_STATUS_SUCCESS;
}

weft_cudnn_status cudnnBackendExecute(weft_cudnn_handle handle, weft_cudnn_desc plan,
                                      weft_cudnn_desc pack)
{
    const char *call = "cudnnBackendExecute";
    weft_cudnn_status s = enter(call);
    object *h = s ? NULL : get(handle, true, call), *p = s ? NULL : get(plan, false, call);
    object *v = s ? NULL : get(pack, false, call);
    if (!s && (!h || !p || !v || p->type != D(EXECUTION_PLAN) || v->type != D(VARIANT_PACK)))
        s = WEFT_CUDNN_STATUS_BAD_PARAM;
    if (!s && (!p->final || !v->final)) {
        weft_double_mistake("%s: the plan or the pack is not finalised", call);
        s = WEFT_CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    }
    if (!s)
        s = enqueue(h, p, v, call);
    return leave(s, call);
}
