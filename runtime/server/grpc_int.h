/* Shared by the files of the gRPC transport.
 *
 *   bytes -> grpc.c (connections) -> grpc_stream.c (HTTP/2 streams, one message each way)
 *         -> grpc_calls.c (methods) -> grpc_infer.c (ModelInfer) -> grpc_message.c (protobuf)
 *
 * A stream embeds its call. When the client leaves while the request of the call belongs to the
 * router, the stream stays as an orphan (connection NULL) until the router calls `done`. */
#ifndef WEFT_RUNTIME_SERVER_GRPC_INT_H
#define WEFT_RUNTIME_SERVER_GRPC_INT_H

#include "runtime/server/access_int.h"
#include "runtime/server/deployment_int.h"
#include "runtime/server/serve_int.h"

#include <nghttp2/nghttp2.h>

/* -- Calls ---------------------------------------------------------------------------------- */

/* The codes of google.rpc.Code that are used. */
typedef enum weft_grpc_status {
    WEFT_GRPC_OK = 0,
    WEFT_GRPC_INVALID_ARGUMENT = 3,
    WEFT_GRPC_DEADLINE_EXCEEDED = 4,
    WEFT_GRPC_NOT_FOUND = 5,
    WEFT_GRPC_PERMISSION_DENIED = 7,
    WEFT_GRPC_RESOURCE_EXHAUSTED = 8,
    WEFT_GRPC_UNIMPLEMENTED = 12,
    WEFT_GRPC_INTERNAL = 13,
    WEFT_GRPC_UNAVAILABLE = 14,
    WEFT_GRPC_UNAUTHENTICATED = 16
} weft_grpc_status;

/* Compression flag and length before every message. */
enum { WEFT_GRPC_PREFIX_BYTES = 5 };

typedef struct weft_grpc_infer weft_grpc_infer;
typedef struct weft_grpc_list weft_grpc_list;
typedef struct weft_grpc_method weft_grpc_method;

typedef struct weft_grpc_call {
    weft_router *router;
    weft_access *access; /* NULL: an open gate */
    weft_deployment *deployment;
    const char *repository;        /* folder that clients may load from; NULL: they may not */
    weft_operation_wait operation; /* that the call waits for */
    weft_listings *listings;       /* NULL: lists are written at once */
    weft_grpc_list *list;          /* while it is written, owned */
    weft_presented presented;
    weft_origin origin;
    uint64_t timeout_us; /* header grpc-timeout; 0: none */
    size_t decoded_max;  /* limit for the memory of the decoded request, bytes */
    /* Called once, possibly inside weft_grpc__start_call or weft_grpc__cancel_call. */
    void (*reply)(struct weft_grpc_call *call);
    /* Counts so many bytes as held by the call, instead of those before. false: too many bytes are
     * held. NULL: nobody counts. */
    bool (*hold)(struct weft_grpc_call *call, size_t bytes);
    void *user;

    /* The answer. */
    weft_grpc_status status;
    char text[WEFT_REQUEST_MESSAGE_MAX]; /* of an error */
    uint8_t *message;                    /* with its prefix; owned, freed by free() */
    size_t len;

    weft_model_ref reads;   /* of ModelInfer */
    bool holds;             /* `reads` is held, and in use */
    bool by_weight;         /* the message names no version */
    bool submitted;         /* its request was given to the router, which logs it */
    weft_grpc_infer *infer; /* while its request belongs to the router */

    /* While a large message is read beside the loop. */
    weft_offload *offload; /* NULL: all messages are read at once */
    weft_job job;
    uint8_t *bytes; /* owned */
    size_t n_bytes;
    weft_answer answer;
    bool offloaded, cancelled;
} weft_grpc_call;

/* `path`: value of the header ":path". NULL: no such method. */
const weft_grpc_method *weft_grpc__find_method(const char *path, size_t len);
const char *weft_grpc__path_of(const weft_grpc_method *method);
weft_api_group weft_grpc__group_of(const weft_grpc_method *method);
/* Messages of ModelInfer above this size are read beside the loop. */
enum { WEFT_GRPC_INLINE_BYTES = 256 << 10 };
/* The same as weft_grpc__start_call for a large message of ModelInfer, which it takes. */
void weft_grpc__offload_infer(weft_grpc_call *call, uint8_t *message, size_t len);
bool weft_grpc__is_infer(const weft_grpc_method *method);
/* `message`: without prefix; not used after the function returns. */
void weft_grpc__start_call(const weft_grpc_method *method, weft_grpc_call *call,
                           const uint8_t *message, size_t len);
/* The client is gone, so the answer is not needed; `reply` is still called. Allowed only between
 * weft_grpc__start_call and `reply`. */
void weft_grpc__cancel_call(weft_grpc_call *call);
void weft_grpc__fail_call(weft_grpc_call *call, weft_grpc_status status, const char *fmt, ...)
    WEFT_PRINTF(3, 4);
weft_grpc_status weft_grpc__status_of(weft_answer answer);
void weft_grpc__run_infer(weft_grpc_call *call, const uint8_t *message, size_t len);

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;
/* Methods of the model repository (grpc_repository.c). true: the call waits; false: it has its
 * error.
 */
bool weft_grpc__load_model(weft_grpc_call *call, const struct ProtobufCMessage *in);
bool weft_grpc__unload_model(weft_grpc_call *call, const struct ProtobufCMessage *in);
/* Lists of models (grpc_lists.c). `model` UINT32_MAX: all. true: the call waits; false: it has its
 * answer or error. */
bool weft_grpc__list_statistics(weft_grpc_call *call, uint32_t model, bool any_version);
bool weft_grpc__list_index(weft_grpc_call *call, bool only_ready);
/* The list of the call, if it has one, is not needed any more. */
void weft_grpc__drop_list(weft_grpc_call *call);
/* The first bytes of a message of `len` bytes, these included. false: longer than 4 GiB. */
bool weft_grpc__put_prefix(uint8_t *message, size_t len);
/* Packs with a prefix. false: out of memory, or longer than 4 GiB. */
bool weft_grpc__pack(const struct ProtobufCMessage *message, uint8_t **out, size_t *out_len);
/* Bounds what a ModelInferRequest repeats (grpc_scan.c), in one pass and without memory. NULL: it
 * may be decoded; else what is wrong with it. */
const char *weft_grpc__scan_infer(const uint8_t *message, size_t len);
/* Bytes of a message, without a NUL. */
typedef struct weft_grpc_name {
    const char *at;
    size_t len;
} weft_grpc_name;

/* The model and version that a ModelInferRequest names, found without decoding it; "" where it
 * names none. NULL: found; else what is wrong with the message. */
const char *weft_grpc__scan_model(const uint8_t *message, size_t len, weft_grpc_name *out_name,
                                  weft_grpc_name *out_version);
/* *out_bytes: what the decoded message takes. NULL: malformed or, *out_too_large set, larger than
 * decoded_max when decoded. The result is freed by protobuf_c_message_free_unpacked(message, NULL).
 */
struct ProtobufCMessage *weft_grpc__unpack(const struct ProtobufCMessageDescriptor *type,
                                           const uint8_t *bytes, size_t len, size_t decoded_max,
                                           size_t *out_bytes, bool *out_too_large);

/* -- ModelInfer (grpc_infer.c) -------------------------------------------------------------- */

/* A ModelInfer request. The data of its tensors is in the decoded message `in`. */
struct weft_grpc_infer {
    struct Inference__ModelInferRequest *in;
    const weft_bundle_program *program;
    const char *version;
    uint32_t n_input; /* of the program, which may be gone when the request is freed */
    weft_request *request;
    bool *has_input;
    void **converted; /* by input: data that was converted, owned; NULL: none */
    size_t decoded;   /* bytes of `in` and of what was converted */
    uint32_t *output; /* outputs of the program, in the order of the answer */
    uint32_t n_output;
    weft_job job; /* frees it beside the loop */
};

/* Reads a message that names this model. false: the error is in *out_answer and `text`
 * (WEFT_REQUEST_MESSAGE_MAX bytes). */
bool weft_grpc__read_infer(const weft_model_ref *model, const uint8_t *message, size_t len,
                           size_t decoded_max, weft_answer *out_answer, char *text,
                           weft_grpc_infer **out);
/* Packs the answer with its prefix. false: out of memory, or longer than 4 GiB. */
bool weft_grpc__write_infer(const weft_grpc_infer *infer, uint8_t **out, size_t *out_len);
void weft_grpc__destroy_infer(weft_grpc_infer *infer);

/* -- Streams and connections ---------------------------------------------------------------- */

typedef struct grpc_stream grpc_stream;
typedef struct grpc_connection grpc_connection;

struct weft_grpc {
    const weft_serve_options *options;
    weft_front front;
    weft_router *router;
    weft_loop *loop;
    weft_listener listener;
    weft_tls *tls; /* NULL: none */
    uint32_t max_connections;
    weft_peers peers;
    weft_offload *offload; /* for large messages */
    uint64_t leave_by_ns;  /* draining: all calls are refused after this time; 0: not draining */
    uint32_t n_leaving;    /* connections that begin no more calls */
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    uint8_t *in, *out; /* buffers shared by all connections */
    size_t max_message;
    size_t held_bytes, held_max;           /* of messages in both directions, over all streams */
    grpc_connection *connections, *oldest; /* from the one used last to the one used first */
    grpc_connection *dirty;
    uint32_t n_connection, n_closing;
    uint32_t n_running; /* calls whose request belongs to the router, orphans included */
    uint64_t next_scan_ns;
};

struct grpc_connection {
    weft_grpc *grpc;
    weft_peer *peer; /* with a reference */
    weft_stream stream;
    nghttp2_session *session;
    uint8_t *rest; /* output that the socket did not take yet */
    size_t rest_len, rest_at;
    uint64_t rest_ns; /* when the socket last took some of the rest */
    grpc_stream *streams;
    uint32_t n_stream, n_running;
    uint64_t hello_deadline_ns;    /* for the first HTTP/2 frame; 0: it has arrived */
    uint64_t settings_deadline_ns; /* for the acknowledgement of the server's; 0: not awaited */
    bool leaving;                  /* was told the last stream that is answered */
    /* Bytes of messages, either way, since the last request became whole or was answered. */
    uint64_t moved, moved_ns;
    /* Streams that the server reset, as a bucket that leaks. */
    double resets;
    uint64_t resets_ns;
    uint32_t events; /* watched */
    bool is_dirty, closing;
    grpc_connection *next, *prev, *next_dirty;
};

typedef enum grpc_state {
    GRPC_HEADERS,   /* headers are incomplete */
    GRPC_RECEIVING, /* the message is incomplete */
    GRPC_RUNNING,   /* the call was started */
    GRPC_SENDING    /* the answer is being sent */
} grpc_state;

struct grpc_stream {
    weft_grpc *grpc;
    grpc_connection *connection; /* NULL: orphan */
    int32_t id;
    grpc_state state;
    uint64_t deadline_ns; /* for receiving, later for sending */
    const weft_grpc_method *method;
    size_t header_bytes;
    bool is_post, is_grpc, has_encoding, timeout_wrong;
    uint8_t prefix[WEFT_GRPC_PREFIX_BYTES];
    uint32_t n_prefix;
    uint8_t *message;
    size_t len, cap, have; /* len: from the prefix; have: received */
    size_t held;           /* share of grpc->held_bytes and peer->held_bytes */
    weft_peer *peer;       /* with a reference */
    weft_grpc_call call;
    size_t sent; /* bytes of call.message */
    grpc_stream *next, *prev;
};

/* Sets nghttp2's callbacks for streams. */
void weft_grpc__set_callbacks(nghttp2_session_callbacks *callbacks);
/* Removes the stream from its connection: the client reset it or the connection is closed. */
void weft_grpc__drop_stream(grpc_stream *stream);
/* Answers with an error before the whole request was received. */
void weft_grpc__refuse_stream(grpc_stream *stream, weft_grpc_status status, const char *text);
/* While draining, the client has heard of it: calls that begin from now on are not answered, and
 * those that are not whole are refused. */
void weft_grpc__leave(grpc_connection *connection);
/* Has the output of the connection written before the loop waits. */
void weft_grpc__mark_dirty(grpc_connection *connection);

#endif
