/* Inside the gRPC transport.
 *
 *   bytes -> grpc.c (connections) -> grpc_stream.c (HTTP/2 streams, one message each way)
 *         -> grpc_calls.c (methods) -> grpc_infer.c (ModelInfer)
 *
 * A stream embeds its call. When the client leaves while the router has the call, the stream stays
 * as an orphan (connection NULL) until the router is done with it. */
#ifndef WEFT_RUNTIME_SERVER_GRPC_INT_H
#define WEFT_RUNTIME_SERVER_GRPC_INT_H

#include "runtime/server/serve_int.h"

#include <nghttp2/nghttp2.h>

/* -- Calls ---------------------------------------------------------------------------------- */

/* Codes of google.rpc that we give. */
typedef enum weft_grpc_status {
    WEFT_GRPC_OK = 0,
    WEFT_GRPC_INVALID_ARGUMENT = 3,
    WEFT_GRPC_DEADLINE_EXCEEDED = 4,
    WEFT_GRPC_NOT_FOUND = 5,
    WEFT_GRPC_RESOURCE_EXHAUSTED = 8,
    WEFT_GRPC_UNIMPLEMENTED = 12,
    WEFT_GRPC_INTERNAL = 13,
    WEFT_GRPC_UNAVAILABLE = 14
} weft_grpc_status;

/* Flag and length before every message. */
enum { WEFT_GRPC_PREFIX_BYTES = 5 };

typedef struct weft_grpc_infer weft_grpc_infer;
typedef struct weft_grpc_method weft_grpc_method;

typedef struct weft_grpc_call {
    weft_router *router;
    uint64_t timeout_us; /* of the header grpc-timeout, 0: none */
    size_t decoded_max;  /* bytes that the decoded request may take */
    /* Called once, possibly inside weft_grpc__start_call or weft_grpc__cancel_call. */
    void (*reply)(struct weft_grpc_call *call);
    void *user;

    /* The answer. */
    weft_grpc_status status;
    char text[WEFT_REQUEST_MESSAGE_MAX]; /* of an error */
    uint8_t *message;                    /* with its prefix; owned: free() */
    size_t len;

    weft_grpc_infer *infer; /* while the router has it */
} weft_grpc_call;

/* `path` as in ":path"; NULL: no such method. */
const weft_grpc_method *weft_grpc__find_method(const char *path, size_t len);
/* `message` is without prefix and needed no longer than this call. */
void weft_grpc__start_call(const weft_grpc_method *method, weft_grpc_call *call,
                           const uint8_t *message, size_t len);
/* No one wants the answer; `reply` is still called. Only between start and reply. */
void weft_grpc__cancel_call(weft_grpc_call *call);
void weft_grpc__fail_call(weft_grpc_call *call, weft_grpc_status status, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
weft_grpc_status weft_grpc__status_of(weft_answer answer);
void weft_grpc__run_infer(weft_grpc_call *call, const uint8_t *message, size_t len);

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;
/* Packs with a prefix; false: out of memory, or longer than a message can be. */
bool weft_grpc__pack(const struct ProtobufCMessage *message, uint8_t **out, size_t *out_len);
/* NULL: malformed, or *out_too_large. Freed by protobuf_c_message_free_unpacked(message, NULL). */
struct ProtobufCMessage *weft_grpc__unpack(const struct ProtobufCMessageDescriptor *type,
                                           const uint8_t *bytes, size_t len, size_t decoded_max,
                                           bool *out_too_large);

/* -- ModelInfer as data --------------------------------------------------------------------- */

/* The tensors of the request lie in the decoded message: both live as long as `infer`. */
struct weft_grpc_infer {
    struct Inference__ModelInferRequest *in;
    const weft_bundle_program *program;
    weft_request *request;
    bool *has_input;
    void **converted; /* by input: data that had to be converted, or NULL */
    uint32_t *output; /* of the program, in the order of the answer */
    uint32_t n_output;
};

/* false: *out_answer and `text` (WEFT_REQUEST_MESSAGE_MAX) say why. */
bool weft_grpc__read_infer(const weft_bundle *bundle, const uint8_t *message, size_t len,
                           size_t decoded_max, weft_answer *out_answer, char *text,
                           weft_grpc_infer **out);
/* The answer with its prefix; false: out of memory, or too large for a message. */
bool weft_grpc__write_infer(const weft_grpc_infer *infer, uint8_t **out, size_t *out_len);
void weft_grpc__destroy_infer(weft_grpc_infer *infer);

/* -- Streams and connections ---------------------------------------------------------------- */

typedef struct grpc_stream grpc_stream;
typedef struct grpc_connection grpc_connection;

struct weft_grpc {
    const weft_serve_options *options;
    weft_router *router;
    weft_loop *loop;
    int fd, port; /* listening; -1 */
    bool draining, accept_paused;
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    uint8_t *in, *out; /* buffers that connections use in turn */
    size_t max_message;
    size_t held_bytes, held_max; /* of messages, in and out, over all streams */
    grpc_connection *connections, *dirty;
    uint32_t n_connection;
    uint32_t n_running; /* calls that the router has, orphans too */
    uint64_t next_scan_ns;
};

struct grpc_connection {
    weft_grpc *grpc;
    int fd;
    nghttp2_session *session;
    uint8_t *rest; /* what the socket did not take yet */
    size_t rest_len, rest_at;
    grpc_stream *streams;
    uint32_t n_stream;
    uint64_t hello_deadline_ns; /* 0: it spoke HTTP/2 */
    uint64_t used_ns;
    uint32_t events; /* watched */
    bool is_dirty, closing;
    grpc_connection *next, *prev, *next_dirty;
};

typedef enum grpc_state {
    GRPC_HEADERS,   /* not all of them came */
    GRPC_RECEIVING, /* the message */
    GRPC_RUNNING,   /* the call */
    GRPC_SENDING    /* the answer */
} grpc_state;

struct grpc_stream {
    weft_grpc *grpc;
    grpc_connection *connection; /* NULL: orphan */
    int32_t id;
    grpc_state state;
    uint64_t deadline_ns; /* of receiving, of sending */
    const weft_grpc_method *method;
    size_t header_bytes;
    bool is_post, is_grpc, has_encoding, timeout_wrong;
    uint8_t prefix[WEFT_GRPC_PREFIX_BYTES];
    uint32_t n_prefix;
    uint8_t *message;
    size_t len, cap, have; /* len is announced by the prefix */
    size_t held;           /* counted in grpc->held_bytes */
    weft_grpc_call call;
    size_t sent; /* of call.message */
    grpc_stream *next, *prev;
};

/* Sets the stream callbacks. */
void weft_grpc__set_callbacks(nghttp2_session_callbacks *callbacks);
/* The client, or the connection, is gone. */
void weft_grpc__drop_stream(grpc_stream *stream);
/* Answers with an error what has not come in whole. */
void weft_grpc__refuse_stream(grpc_stream *stream, weft_grpc_status status, const char *text);
/* Its output will be written before the loop waits again. */
void weft_grpc__mark_dirty(grpc_connection *connection);

#endif
