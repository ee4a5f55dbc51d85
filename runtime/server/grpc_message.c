/* gRPC messages: protobuf in and out within a memory limit, answers packed in the form of their
 * messages, bytes that a call holds, and its status. */
#include "runtime/server/grpc_int.h"

#include <protobuf-c/protobuf-c.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    MALLOC_OVERHEAD = 16, /* of glibc: a header, and rounding */
    HEAVY_BYTES = 1 << 20 /* of work that takes more than about 1 ms */
};

/* Bytes that one decoded message may still allocate. */
typedef struct budget {
    size_t left;
    bool exceeded;
} budget;

static void *take(void *user, size_t size)
{
    budget *b = user;
    size = (size ? size : 1) + MALLOC_OVERHEAD;
    if (size > b->left) {
        b->exceeded = true;
        return NULL;
    }
    b->left -= size;
    return malloc(size - MALLOC_OVERHEAD);
}

static void give(void *user, void *memory)
{
    (void)user;
    free(memory);
}

ProtobufCMessage *weft_grpc__unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                                    size_t len, size_t decoded_max, size_t *out_bytes,
                                    const char **out_wrong)
{
    budget b = {.left = decoded_max};
    ProtobufCAllocator allocator = {.alloc = take, .free = give, .allocator_data = &b};
    static const uint8_t none = 0;
    if (!weft_grpc__has_text(type, bytes, len)) {
        *out_wrong = "has a string that is not UTF-8 or holds NUL";
        return NULL;
    }
    ProtobufCMessage *m = protobuf_c_message_unpack(type, &allocator, len, bytes ? bytes : &none);
    *out_bytes = decoded_max - b.left;
    *out_wrong = m ? NULL : b.exceeded ? "takes too much memory" : "is malformed";
    return m;
}

bool weft_grpc__put_prefix(uint8_t *message, size_t len)
{
    size_t rest = len - WEFT_GRPC_PREFIX_BYTES;
    message[0] = 0;
    for (int i = 0; i < 4; i++)
        message[1 + i] = (uint8_t)(rest >> (24 - 8 * i));
    return rest <= UINT32_MAX;
}

bool weft_grpc__pack(const ProtobufCMessage *message, uint8_t **out, size_t *out_len)
{
    size_t len = protobuf_c_message_get_packed_size(message) + WEFT_GRPC_PREFIX_BYTES;
    uint8_t *at = malloc(len);
    if (!at || !weft_grpc__put_prefix(at, len)) {
        free(at);
        return false;
    }
    protobuf_c_message_pack(message, at + WEFT_GRPC_PREFIX_BYTES);
    *out = at;
    *out_len = len;
    return true;
}

void weft_grpc__fail_call(weft_grpc_call *call, weft_grpc_status status, const char *fmt, ...)
{
    va_list ap;
    call->status = status;
    va_start(ap, fmt);
    vsnprintf(call->text, sizeof call->text, fmt, ap);
    va_end(ap);
}

void weft_grpc__pack_answer(weft_grpc_call *call)
{
    uint8_t *packed;
    size_t len;
    if (call->form == WEFT_ZIP_NONE ||
        !weft_zip__pack(call->form, call->message + WEFT_GRPC_PREFIX_BYTES,
                        call->len - WEFT_GRPC_PREFIX_BYTES, WEFT_GRPC_PREFIX_BYTES, &packed, &len))
        return;
    (void)weft_grpc__put_prefix(packed, len); /* shorter than one that fits */
    packed[0] = 1;
    free(call->message);
    call->message = packed;
    call->len = len;
}

void weft_grpc__run_beside(weft_grpc_call *call, size_t bytes, void (*run)(weft_job *),
                           void (*done)(weft_job *))
{
    call->offloaded = true;
    call->job = (weft_job){.run = run, .done = done};
    weft_offload__submit(bytes > HEAVY_BYTES ? call->heavy : call->offload, &call->job);
}

bool weft_grpc__hold_bytes(weft_grpc_call *call, size_t bytes)
{
    if (!call->hold || call->hold(call, bytes))
        return true;
    weft_grpc__fail_call(call, WEFT_GRPC_UNAVAILABLE, "the server holds too many requests");
    return false;
}

weft_grpc_status weft_grpc__status_of(weft_answer answer)
{
    switch (answer) {
    case WEFT_ANSWER_OK:
        return WEFT_GRPC_OK;
    case WEFT_ANSWER_INVALID:
        return WEFT_GRPC_INVALID_ARGUMENT;
    case WEFT_ANSWER_NOT_FOUND:
        return WEFT_GRPC_NOT_FOUND;
    case WEFT_ANSWER_UNSUPPORTED:
        return WEFT_GRPC_UNIMPLEMENTED;
    case WEFT_ANSWER_UNAVAILABLE:
        return WEFT_GRPC_UNAVAILABLE;
    case WEFT_ANSWER_OVERLOADED:
        return WEFT_GRPC_RESOURCE_EXHAUSTED;
    case WEFT_ANSWER_INTERNAL:
        break;
    }
    return WEFT_GRPC_INTERNAL;
}
