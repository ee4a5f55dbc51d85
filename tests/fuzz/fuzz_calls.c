/* Calls of gRPC behind HTTP/2, from the method to the answer. First byte of the input: the method
 * and, for inferences that are accepted, whether they are answered, given up or cancelled; then the
 * message. Checked: each call is answered once, by a message of the method's type or an error with
 * a text. */
#include "runtime/server/deployment_int.h"
#include "runtime/server/grpc_int.h"
#include "tests/support/oip_router.h"

#include "grpc_health.pb-c.h"
#include "grpc_reflection.pb-c.h"
#include "grpc_service.pb-c.h"

#include <stdlib.h>

enum { DECODED_MAX_BYTES = 8 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SERVICE "/inference.GRPCInferenceService/"

static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
} methods[] = {
    {SERVICE "ModelInfer", &inference__model_infer_response__descriptor},
    {SERVICE "ServerLive", &inference__server_live_response__descriptor},
    {SERVICE "ServerReady", &inference__server_ready_response__descriptor},
    {SERVICE "ModelReady", &inference__model_ready_response__descriptor},
    {SERVICE "ServerMetadata", &inference__server_metadata_response__descriptor},
    {SERVICE "ModelMetadata", &inference__model_metadata_response__descriptor},
    {SERVICE "ModelConfig", &inference__model_config_response__descriptor},
    {SERVICE "ModelStatistics", &inference__model_statistics_response__descriptor},
    {SERVICE "RepositoryIndex", &inference__repository_index_response__descriptor},
    {SERVICE "RepositoryModelLoad", &inference__repository_model_load_response__descriptor},
    {SERVICE "RepositoryModelUnload", &inference__repository_model_unload_response__descriptor},
    {"/grpc.health.v1.Health/Check", &grpc__health__v1__health_check_response__descriptor},
    {SERVICE "TraceSetting", &inference__trace_setting_response__descriptor},
    {SERVICE "LogSettings", &inference__log_settings_response__descriptor},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
     &grpc__reflection__v1__server_reflection_response__descriptor}};

enum { METHODS = sizeof methods / sizeof methods[0] };

static int n_replies;

static void on_reply(weft_grpc_call *call)
{
    (void)call;
    n_replies++;
}

static void check_answer(const weft_grpc_call *call, const ProtobufCMessageDescriptor *type)
{
    if (n_replies != 1 || call->infer || call->list || call->holds)
        abort();
    if (call->status != WEFT_GRPC_OK) {
        if (!call->text[0])
            abort();
        return;
    }
    if (call->len < WEFT_GRPC_PREFIX_BYTES)
        abort();
    ProtobufCMessage *m = protobuf_c_message_unpack(type, NULL, call->len - WEFT_GRPC_PREFIX_BYTES,
                                                    call->message + WEFT_GRPC_PREFIX_BYTES);
    if (!m)
        abort();
    protobuf_c_message_free_unpacked(m, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static oip_subject subject;
    static oip_router front;
    static weft_deployment *deployment; /* without a repository */
    if (size == 0)
        return 0;
    if (!subject.arena)
        oip_subject_open(&subject);
    oip_router_open(&front, &subject);
    if (!deployment &&
        weft_deployment__open(&front.options, NULL, &front.options, &deployment) != WEFT_ERR_OK)
        abort();
    uint32_t at = data[0] % METHODS, end = data[0] / METHODS % 3;
    const weft_grpc_method *method =
        weft_grpc__find_method(methods[at].path, strlen(methods[at].path));
    weft_grpc_call call = {.router = &front.router,
                           .deployment = deployment,
                           .decoded_max = DECODED_MAX_BYTES,
                           .reply = on_reply};
    n_replies = 0;
    weft_grpc__start_call(method, &call, data + 1, size - 1);
    if (n_replies == 0 && end == 0)
        oip_router_answer(&front);
    else if (n_replies == 0 && end == 1)
        weft_router__give_up(&front.router);
    else if (n_replies == 0)
        weft_grpc__cancel_call(&call);
    check_answer(&call, methods[at].answer);
    free(call.message);
    return 0;
}
