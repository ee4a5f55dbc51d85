/* From a whole message to a call: messages in the forms gzip and deflate are unpacked, those that
 * become small at once, others beside the loop. */
#include "runtime/server/grpc_int.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 1024 };

/* Keeps the id of an inference, which an error is to name. */
static void keep_id(weft_grpc_call *call, const uint8_t *message, size_t len)
{
    weft_grpc_names names;
    if (!weft_grpc__scan_names(message, len, &names) && names.id.len <= ID_MAX)
        call->id = strndup(names.id.at, names.id.len);
}

/* `message` is plain. */
static void start(const weft_grpc_method *method, weft_grpc_call *call, uint8_t *message,
                  size_t len)
{
    if (call->talks)
        keep_id(call, message, len);
    if (call->offload && len > WEFT_GRPC_INLINE_BYTES && weft_grpc__is_infer(method)) {
        weft_grpc__offload_infer(call, message, len);
        return;
    }
    weft_grpc__start_call(method, call, message, len);
    free(message);
}

static size_t most_of(const weft_grpc_call *call)
{
    return weft_zip__most(call->n_bytes, call->unpacked_max);
}

/* Replaces the bytes of the call by what they unpack to, or sets its error. false: they unpack to
 * more than `limit`, which is less than what they may. Any thread. */
static bool unpack(weft_grpc_call *call, size_t limit)
{
    char *plain = NULL;
    size_t len = 0, most = most_of(call);
    weft_zip_result result =
        weft_zip__unpack(call->bytes, call->n_bytes, limit < most ? limit : most, &plain, &len);
    if (result == WEFT_ZIP_TOO_LARGE && limit < most)
        return false;
    free(call->bytes);
    call->bytes = (uint8_t *)plain;
    call->n_bytes = len;
    call->status = WEFT_GRPC_OK;
    call->text[0] = '\0';
    if (result == WEFT_ZIP_NOMEM)
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "out of memory");
    else if (result == WEFT_ZIP_DAMAGED)
        weft_grpc__fail_call(call, WEFT_GRPC_INVALID_ARGUMENT, "the compressed message is damaged");
    else if (result == WEFT_ZIP_TOO_LARGE)
        weft_grpc__fail_call(call, WEFT_GRPC_RESOURCE_EXHAUSTED,
                             "the message has more than %zu bytes when it is unpacked", most);
    return true;
}

/* The bytes are unpacked, or the call has its error. */
static void go_on(weft_grpc_call *call)
{
    uint8_t *plain = call->bytes;
    call->bytes = NULL;
    if (call->status == WEFT_GRPC_OK && weft_grpc__hold_bytes(call, call->n_bytes)) {
        start(call->method, call, plain, call->n_bytes);
        return;
    }
    weft_offload__free(call->offload, plain, call->n_bytes);
    call->reply(call);
}

static weft_grpc_call *call_of(weft_job *job)
{
    return (weft_grpc_call *)((char *)job - offsetof(weft_grpc_call, job));
}

static void run_unpack(weft_job *job)
{
    (void)unpack(call_of(job), SIZE_MAX);
}

static void done_unpack(weft_job *job)
{
    weft_grpc_call *call = call_of(job);
    call->offloaded = false;
    call->job = (weft_job){0};
    if (call->cancelled)
        weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the client is gone");
    go_on(call);
}

void weft_grpc__begin_call(const weft_grpc_method *method, weft_grpc_call *call, uint8_t *message,
                           size_t len)
{
    call->method = method;
    call->unpacked_max = weft_grpc__message_max(method, call->unpacked_max);
    if (call->form == WEFT_ZIP_NONE || len == 0) {
        start(method, call, message, len);
        return;
    }
    call->bytes = message;
    call->n_bytes = len;
    size_t most = most_of(call), limit = call->offload ? (size_t)WEFT_GRPC_INLINE_BYTES : most;
    limit = limit < most ? limit : most;
    if (!weft_grpc__hold_bytes(call, len + limit) || unpack(call, limit) ||
        !weft_grpc__hold_bytes(call, len + most)) {
        go_on(call);
        return;
    }
    /* Of a job that is not begun because the server ends. */
    weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the server is shutting down");
    weft_grpc__run_beside(call, most, run_unpack, done_unpack);
}
