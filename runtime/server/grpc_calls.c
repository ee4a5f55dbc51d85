/* The gRPC methods, a row for each: its request type and the function that builds the answer in an
 * arena. ModelInfer is in grpc_infer.c. */
#include "runtime/server/grpc_int.h"
#include "runtime/server/oip_int.h"

#include "grpc_health.pb-c.h"
#include "grpc_reflection.pb-c.h"
#include "grpc_service.pb-c.h"

#include <stdlib.h>
#include <string.h>

enum { ARENA_MAX_BYTES = 64 << 20 };

/* Not const because protobuf-c's structs are not; packing does not write to them. */
static char platform[] = WEFT_SERVE_PLATFORM;

/* -- Models --------------------------------------------------------------------------------- */

/* UINT32_MAX: no such model or version, or none that the client may know of. */
static uint32_t find_model(const weft_grpc_call *call, const char *name, const char *version)
{
    const char *patterns = weft_access__models(call->access, &call->presented);
    uint32_t at = weft_router__find(call->router, name, strlen(name), version, strlen(version));
    if (at != UINT32_MAX && patterns &&
        !weft_key__names_model(patterns,
                               weft_bundle_served(weft_router__model(call->router, at).program)))
        return UINT32_MAX;
    return at;
}

static uint32_t find_or_fail(weft_grpc_call *call, const char *name, const char *version)
{
    uint32_t at = find_model(call, name, version);
    if (at == UINT32_MAX)
        weft_grpc__fail_call(call, WEFT_GRPC_NOT_FOUND, WEFT_UNKNOWN_MODEL "%s%.16s",
                             (int)strnlen(name, 64), name, version[0] ? ", version " : "", version);
    return at;
}

static int64_t *list_shape(weft_arena *arena, const weft_bundle_program *p,
                           const weft_bundle_port *port, uint32_t skip, size_t *out_n)
{
    const weft_ttype *type = &p->value[port->value - 1].type;
    uint32_t rank = (uint32_t)type->rank;
    int64_t *shape = weft_arena_array(arena, rank + 1, sizeof *shape);
    *out_n = 0;
    for (uint32_t i = skip; i < rank; i++)
        shape[(*out_n)++] = weft_oip__shown_dim(type->dim[i]);
    return shape;
}

static weft_dtype dtype_of(const weft_bundle_program *p, const weft_bundle_port *port)
{
    return (weft_dtype)p->value[port->value - 1].type.dtype;
}

/* -- Metadata ------------------------------------------------------------------------------- */

static Inference__ModelMetadataResponse__TensorMetadata **list_tensors(weft_arena *arena,
                                                                       const weft_bundle_program *p,
                                                                       const weft_bundle_port *port,
                                                                       uint32_t n)
{
    Inference__ModelMetadataResponse__TensorMetadata **list =
        weft_arena_array(arena, n + 1, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = weft_arena_alloc(arena, sizeof *list[i]);
        inference__model_metadata_response__tensor_metadata__init(list[i]);
        list[i]->name = (char *)port[i].name;
        list[i]->datatype = (char *)weft_dtype_oip_name(dtype_of(p, &port[i]));
        list[i]->shape = list_shape(arena, p, &port[i], 0, &list[i]->n_shape);
    }
    return list;
}

static ProtobufCMessage *model_metadata(weft_grpc_call *call, weft_arena *arena,
                                        const ProtobufCMessage *in)
{
    const Inference__ModelMetadataRequest *request = (const void *)in;
    uint32_t at = find_or_fail(call, request->name, request->version);
    if (at == UINT32_MAX)
        return NULL;
    const weft_bundle_program *p = weft_router__model(call->router, at).program;
    Inference__ModelMetadataResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__model_metadata_response__init(r);
    r->name = (char *)weft_bundle_served(p);
    r->versions =
        weft_arena_array(arena, weft_router__model_count(call->router) + 1, sizeof *r->versions);
    for (uint32_t i = UINT32_MAX;
         (i = weft_router__next_version(call->router, at, i)) != UINT32_MAX;)
        r->versions[r->n_versions++] = (char *)weft_router__model(call->router, i).version;
    r->platform = platform;
    r->n_inputs = p->n_input;
    r->inputs = list_tensors(arena, p, p->input, p->n_input);
    r->n_outputs = p->n_output;
    r->outputs = list_tensors(arena, p, p->output, p->n_output);
    return &r->base;
}

static Inference__DataType config_type(weft_dtype dtype)
{
    static const Inference__DataType type[WEFT_DTYPE_COUNT] = {
        [WEFT_DTYPE_F32] = INFERENCE__DATA_TYPE__TYPE_FP32,
        [WEFT_DTYPE_F64] = INFERENCE__DATA_TYPE__TYPE_FP64,
        [WEFT_DTYPE_F16] = INFERENCE__DATA_TYPE__TYPE_FP16,
        [WEFT_DTYPE_BF16] = INFERENCE__DATA_TYPE__TYPE_BF16,
        [WEFT_DTYPE_I8] = INFERENCE__DATA_TYPE__TYPE_INT8,
        [WEFT_DTYPE_I16] = INFERENCE__DATA_TYPE__TYPE_INT16,
        [WEFT_DTYPE_I32] = INFERENCE__DATA_TYPE__TYPE_INT32,
        [WEFT_DTYPE_I64] = INFERENCE__DATA_TYPE__TYPE_INT64,
        [WEFT_DTYPE_U8] = INFERENCE__DATA_TYPE__TYPE_UINT8,
        [WEFT_DTYPE_U16] = INFERENCE__DATA_TYPE__TYPE_UINT16,
        [WEFT_DTYPE_U32] = INFERENCE__DATA_TYPE__TYPE_UINT32,
        [WEFT_DTYPE_U64] = INFERENCE__DATA_TYPE__TYPE_UINT64,
        [WEFT_DTYPE_BOOL] = INFERENCE__DATA_TYPE__TYPE_BOOL};
    return dtype < WEFT_DTYPE_COUNT ? type[dtype] : INFERENCE__DATA_TYPE__TYPE_INVALID;
}

static Inference__ModelInput **list_inputs(weft_arena *arena, const weft_bundle_program *p,
                                           uint32_t skip)
{
    Inference__ModelInput **list = weft_arena_array(arena, p->n_input + 1, sizeof *list);
    for (uint32_t i = 0; i < p->n_input; i++) {
        list[i] = weft_arena_alloc(arena, sizeof *list[i]);
        inference__model_input__init(list[i]);
        list[i]->name = (char *)p->input[i].name;
        list[i]->data_type = config_type(dtype_of(p, &p->input[i]));
        list[i]->dims = list_shape(arena, p, &p->input[i], skip, &list[i]->n_dims);
        if (p->input[i].format && *p->input[i].format)
            list[i]->format = strcmp(p->input[i].format, "NCHW") == 0
                                  ? INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NCHW
                                  : INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NHWC;
    }
    return list;
}

static Inference__ModelOutput **list_outputs(weft_arena *arena, const weft_bundle_program *p,
                                             uint32_t skip)
{
    Inference__ModelOutput **list = weft_arena_array(arena, p->n_output + 1, sizeof *list);
    for (uint32_t i = 0; i < p->n_output; i++) {
        list[i] = weft_arena_alloc(arena, sizeof *list[i]);
        inference__model_output__init(list[i]);
        list[i]->name = (char *)p->output[i].name;
        list[i]->data_type = config_type(dtype_of(p, &p->output[i]));
        list[i]->dims = list_shape(arena, p, &p->output[i], skip, &list[i]->n_dims);
    }
    return list;
}

static ProtobufCMessage *model_config(weft_grpc_call *call, weft_arena *arena,
                                      const ProtobufCMessage *in)
{
    const Inference__ModelConfigRequest *request = (const void *)in;
    static char backend[] = "weft";
    uint32_t at = find_or_fail(call, request->name, request->version);
    if (at == UINT32_MAX)
        return NULL;
    const weft_bundle_program *p = weft_router__model(call->router, at).program;
    Inference__ModelConfigResponse *r = weft_arena_alloc(arena, sizeof *r);
    Inference__ModelConfig *config = weft_arena_alloc(arena, sizeof *config);
    inference__model_config_response__init(r);
    inference__model_config__init(config);
    int64_t max_batch = weft_batch__largest(p);
    uint32_t skip = max_batch > 0;
    r->config = config;
    config->name = (char *)weft_bundle_served(p);
    config->platform = platform;
    config->backend = backend;
    config->max_batch_size = max_batch > INT32_MAX ? INT32_MAX : (int32_t)max_batch;
    config->n_input = p->n_input;
    config->input = list_inputs(arena, p, skip);
    config->n_output = p->n_output;
    config->output = list_outputs(arena, p, skip);
    return &r->base;
}

static ProtobufCMessage *server_metadata(weft_grpc_call *call, weft_arena *arena,
                                         const ProtobufCMessage *in)
{
    static char name[] = "weft", version[] = WEFT_VERSION;
    Inference__ServerMetadataResponse *r = weft_arena_alloc(arena, sizeof *r);
    (void)in;
    inference__server_metadata_response__init(r);
    const char *const *extensions = weft_oip__extensions(call->regions, &r->n_extensions);
    r->name = call->server_name ? (char *)call->server_name : name;
    r->version = version;
    r->extensions = weft_arena_array(arena, r->n_extensions, sizeof *r->extensions);
    for (size_t i = 0; i < r->n_extensions; i++)
        r->extensions[i] = (char *)extensions[i];
    return &r->base;
}

/* -- Health --------------------------------------------------------------------------------- */

static bool is_server_ready(const weft_router *router)
{
    return !weft_router__is_draining(router) && weft_router__all_ready(router);
}

static ProtobufCMessage *server_live(weft_grpc_call *call, weft_arena *arena,
                                     const ProtobufCMessage *in)
{
    Inference__ServerLiveResponse *r = weft_arena_alloc(arena, sizeof *r);
    (void)call;
    (void)in;
    inference__server_live_response__init(r);
    r->live = true;
    return &r->base;
}

static ProtobufCMessage *server_ready(weft_grpc_call *call, weft_arena *arena,
                                      const ProtobufCMessage *in)
{
    Inference__ServerReadyResponse *r = weft_arena_alloc(arena, sizeof *r);
    (void)in;
    inference__server_ready_response__init(r);
    r->ready = is_server_ready(call->router);
    return &r->base;
}

/* An unknown model is not ready, which is not an error: as in Triton. */
static ProtobufCMessage *model_ready(weft_grpc_call *call, weft_arena *arena,
                                     const ProtobufCMessage *in)
{
    const Inference__ModelReadyRequest *request = (const void *)in;
    Inference__ModelReadyResponse *r = weft_arena_alloc(arena, sizeof *r);
    inference__model_ready_response__init(r);
    uint32_t at = find_model(call, request->name, request->version);
    r->ready = at != UINT32_MAX && !weft_router__is_draining(call->router) &&
               (request->version[0] ? weft_router__is_ready(call->router, at)
                                    : weft_router__versions_ready(call->router, at));
    return &r->base;
}

static ProtobufCMessage *health_check(weft_grpc_call *call, weft_arena *arena,
                                      const ProtobufCMessage *in)
{
    const Grpc__Health__V1__HealthCheckRequest *request = (const void *)in;
    Grpc__Health__V1__HealthCheckResponse *r = weft_arena_alloc(arena, sizeof *r);
    grpc__health__v1__health_check_response__init(r);
    if (request->service[0] && strcmp(request->service, "inference.GRPCInferenceService") != 0) {
        weft_grpc__fail_call(call, WEFT_GRPC_NOT_FOUND, "unknown service '%.64s'",
                             request->service);
        return NULL;
    }
    r->status = is_server_ready(call->router)
                    ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                    : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    return &r->base;
}

/* -- Lists ---------------------------------------------------------------------------------- */

static bool model_statistics(weft_grpc_call *call, const ProtobufCMessage *in)
{
    const Inference__ModelStatisticsRequest *request = (const void *)in;
    uint32_t model = UINT32_MAX;
    if (request->name[0]) {
        model = find_or_fail(call, request->name, request->version);
        if (model == UINT32_MAX)
            return false;
    }
    return weft_grpc__list_statistics(call, model, !request->version[0]);
}

static bool repository_index(weft_grpc_call *call, const ProtobufCMessage *in)
{
    const Inference__RepositoryIndexRequest *request = (const void *)in;
    return weft_grpc__list_index(call, request->ready);
}

/* -- Methods -------------------------------------------------------------------------------- */

/* Builds the answer; it refers to the arena and to data that outlives the call. NULL: the call has
 * its error. */
typedef ProtobufCMessage *method_fn(weft_grpc_call *call, weft_arena *arena,
                                    const ProtobufCMessage *in);

/* true: the call is answered later; false: it has its answer or error. */
typedef bool begin_fn(weft_grpc_call *call, const ProtobufCMessage *in);

struct weft_grpc_method {
    const char *path;
    weft_api_group group;
    const ProtobufCMessageDescriptor *request;
    method_fn *run;  /* NULL: ModelInfer, ModelStreamInfer, or `begin` */
    begin_fn *begin; /* of a method that is answered later */
    bool talks;      /* a stream of messages both ways */
    size_t most;     /* bytes of a message, unless of inference; 0: WEFT_GRPC_PARAMETERS_BYTES */
};

#define SERVICE "/inference.GRPCInferenceService/"

#define REFLECTION(version) "/grpc.reflection." version ".ServerReflection/ServerReflectionInfo"

static const weft_grpc_method methods[] = {
    {.path = SERVICE "ModelInfer",
     .group = WEFT_API_INFERENCE,
     .request = &inference__model_infer_request__descriptor},
    {.path = SERVICE "ModelStreamInfer",
     .group = WEFT_API_INFERENCE,
     .request = &inference__model_infer_request__descriptor,
     .talks = true},
    {.path = SERVICE "ServerLive",
     .group = WEFT_API_HEALTH,
     .request = &inference__server_live_request__descriptor,
     .run = server_live},
    {.path = SERVICE "ServerReady",
     .group = WEFT_API_HEALTH,
     .request = &inference__server_ready_request__descriptor,
     .run = server_ready},
    {.path = SERVICE "ModelReady",
     .group = WEFT_API_HEALTH,
     .request = &inference__model_ready_request__descriptor,
     .run = model_ready},
    {.path = SERVICE "ServerMetadata",
     .group = WEFT_API_METADATA,
     .request = &inference__server_metadata_request__descriptor,
     .run = server_metadata},
    {.path = SERVICE "ModelMetadata",
     .group = WEFT_API_METADATA,
     .request = &inference__model_metadata_request__descriptor,
     .run = model_metadata},
    {.path = SERVICE "ModelConfig",
     .group = WEFT_API_MODEL_CONFIG,
     .request = &inference__model_config_request__descriptor,
     .run = model_config},
    {.path = SERVICE "ModelStatistics",
     .group = WEFT_API_STATISTICS,
     .request = &inference__model_statistics_request__descriptor,
     .begin = model_statistics},
    {.path = SERVICE "RepositoryIndex",
     .group = WEFT_API_MODEL_REPOSITORY,
     .request = &inference__repository_index_request__descriptor,
     .begin = repository_index},
    {.path = SERVICE "RepositoryModelLoad",
     .group = WEFT_API_MODEL_REPOSITORY,
     .request = &inference__repository_model_load_request__descriptor,
     .begin = weft_grpc__load_model,
     .most = WEFT_GRPC_LOAD_BYTES},
    {.path = SERVICE "RepositoryModelUnload",
     .group = WEFT_API_MODEL_REPOSITORY,
     .request = &inference__repository_model_unload_request__descriptor,
     .begin = weft_grpc__unload_model},
    {.path = SERVICE "SystemSharedMemoryStatus",
     .group = WEFT_API_SHARED_MEMORY,
     .request = &inference__system_shared_memory_status_request__descriptor,
     .run = weft_grpc__list_regions},
    {.path = SERVICE "SystemSharedMemoryRegister",
     .group = WEFT_API_SHARED_MEMORY,
     .request = &inference__system_shared_memory_register_request__descriptor,
     .run = weft_grpc__register_region},
    {.path = SERVICE "SystemSharedMemoryUnregister",
     .group = WEFT_API_SHARED_MEMORY,
     .request = &inference__system_shared_memory_unregister_request__descriptor,
     .run = weft_grpc__unregister_regions},
    {.path = SERVICE "CudaSharedMemoryStatus",
     .group = WEFT_API_SHARED_MEMORY,
     .request = &inference__cuda_shared_memory_status_request__descriptor,
     .run = weft_grpc__list_no_regions},
    {.path = SERVICE "CudaSharedMemoryUnregister",
     .group = WEFT_API_SHARED_MEMORY,
     .request = &inference__cuda_shared_memory_unregister_request__descriptor,
     .run = weft_grpc__unregister_nothing},
    {.path = SERVICE "TraceSetting",
     .group = WEFT_API_TRACE,
     .request = &inference__trace_setting_request__descriptor,
     .run = weft_grpc__trace_setting},
    {.path = SERVICE "LogSettings",
     .group = WEFT_API_LOGGING,
     .request = &inference__log_settings_request__descriptor,
     .run = weft_grpc__log_settings},
    {.path = "/grpc.health.v1.Health/Check",
     .group = WEFT_API_HEALTH,
     .request = &grpc__health__v1__health_check_request__descriptor,
     .run = health_check},
    {.path = REFLECTION("v1"),
     .group = WEFT_API_METADATA,
     .request = &grpc__reflection__v1__server_reflection_request__descriptor,
     .run = weft_grpc__reflect,
     .talks = true},
    {.path = REFLECTION("v1alpha"),
     .group = WEFT_API_METADATA,
     .request = &grpc__reflection__v1__server_reflection_request__descriptor,
     .run = weft_grpc__reflect,
     .talks = true},
};

bool weft_grpc__talks(const weft_grpc_method *method)
{
    return method->talks;
}

const weft_grpc_method *weft_grpc__find_method(const char *path, size_t len)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strlen(methods[i].path) == len && memcmp(methods[i].path, path, len) == 0)
            return &methods[i];
    return NULL;
}

const char *weft_grpc__path_of(const weft_grpc_method *method)
{
    return method->path;
}

weft_api_group weft_grpc__group_of(const weft_grpc_method *method)
{
    return method->group;
}

/* A function of its own, so that no local variable changes between setjmp and longjmp. */
static void run_method(const weft_grpc_method *method, weft_grpc_call *call, weft_arena *arena,
                       const ProtobufCMessage *in)
{
    jmp_buf env;
    if (setjmp(env) != 0) {
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
        return;
    }
    weft_arena_guard(arena, &env);
    const ProtobufCMessage *answer = method->run(call, arena, in);
    if (answer && !weft_grpc__pack(answer, &call->message, &call->len))
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
}

void weft_grpc__start_call(const weft_grpc_method *method, weft_grpc_call *call,
                           const uint8_t *message, size_t len)
{
    if (weft_grpc__is_infer(method)) {
        weft_grpc__run_infer(call, message, len);
        return;
    }
    bool waits = false;
    const char *wrong;
    size_t decoded;
    ProtobufCMessage *in =
        weft_grpc__unpack(method->request, message, len, call->decoded_max, &decoded, &wrong);
    weft_arena *arena = weft_arena_create(ARENA_MAX_BYTES);
    if (!in)
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "the message %s", wrong);
    else if (!arena)
        weft_grpc__fail_call(call, WEFT_GRPC_INTERNAL, "out of memory");
    else if (method->begin)
        waits = method->begin(call, in);
    else
        run_method(method, call, arena, in);
    weft_arena_destroy(arena);
    if (in)
        protobuf_c_message_free_unpacked(in, NULL);
    if (!waits)
        call->reply(call);
}

bool weft_grpc__is_infer(const weft_grpc_method *method)
{
    return !method->run && !method->begin;
}

size_t weft_grpc__message_max(const weft_grpc_method *method, size_t infer_max)
{
    size_t most = method->most ? method->most : (size_t)WEFT_GRPC_PARAMETERS_BYTES;
    return !weft_grpc__is_infer(method) && infer_max > most ? most : infer_max;
}

void weft_grpc__cancel_call(weft_grpc_call *call)
{
    if (call->offloaded) {
        call->cancelled = true; /* it ends when it is back */
        return;
    }
    if (call->operation.operation || call->list) {
        weft_deployment__forget(&call->operation);
        weft_grpc__drop_list(call);
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the client is gone");
        call->reply(call);
        return;
    }
    weft_router__abandon(call->router, call->infer->request);
}
