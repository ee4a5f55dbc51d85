/* Shared by the files of the gRPC transport.
 *
 *   bytes -> grpc.c (connections) -> grpc_stream.c (HTTP/2 streams, one message each way)
 *         -> grpc_talk.c (streams of messages both ways) -> grpc_begin.c (compressed messages)
 *         -> grpc_calls.c (methods) -> grpc_infer.c (ModelInfer) -> grpc_message.c (protobuf)
 *
 * A stream embeds its call. When the client leaves while the request of the call belongs to the
 * router, the stream stays as an orphan (connection NULL) until the router calls `done`. */
#ifndef WEFT_RUNTIME_SERVER_GRPC_INT_H
#define WEFT_RUNTIME_SERVER_GRPC_INT_H

#include "runtime/server/access_int.h"
#include "runtime/server/deployment_int.h"
#include "runtime/server/zip.h"
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

/* Value of grpc-accept-encoding. */
#define WEFT_GRPC_ENCODINGS "identity,deflate,gzip"

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
    weft_spans *spans;             /* NULL: none */
    weft_regions *regions;         /* NULL: shared memory is off */
    const char *server_name;       /* in the server's metadata; NULL: weft */
    weft_listings *listings;       /* NULL: lists are written at once */
    weft_grpc_list *list;          /* while it is written, owned */
    weft_presented presented;
    weft_origin origin;
    uint64_t timeout_us; /* header grpc-timeout; 0: none */
    size_t unpacked_max; /* bytes of a message that was packed */
    size_t decoded_max;  /* limit for the memory of the decoded request, bytes */
    /* Called once, possibly inside weft_grpc__start_call or weft_grpc__cancel_call. */
    void (*reply)(struct weft_grpc_call *call);
    /* Counts so many bytes as held by the call, instead of those before. false: too many bytes are
     * held. NULL: nobody counts. */
    bool (*hold)(struct weft_grpc_call *call, size_t bytes);
    void *user;

    weft_zip_form form; /* of the message; its answer gets the same where that makes it smaller */
    bool talks;         /* of a stream of messages: the answer is a ModelStreamInferResponse */
    char *id;           /* `talks`: that the message gives; owned by the stream; NULL: none */

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

    /* While a large message is unpacked or read beside the loop. */
    weft_offload *offload; /* NULL: all messages are read at once */
    weft_offload *heavy;   /* for what takes long, so that others do not wait for it */
    weft_job job;
    const weft_grpc_method *method; /* of a message that is unpacked */
    uint8_t *bytes;                 /* owned */
    size_t n_bytes;
    weft_answer answer;
    bool offloaded, cancelled;
} weft_grpc_call;

/* `path`: value of the header ":path". NULL: no such method. */
const weft_grpc_method *weft_grpc__find_method(const char *path, size_t len);
const char *weft_grpc__path_of(const weft_grpc_method *method);
weft_api_group weft_grpc__group_of(const weft_grpc_method *method);
/* Messages of ModelInfer above this size are read beside the loop; those of other methods are read
 * on it and have at most WEFT_GRPC_PARAMETERS_BYTES, or for a load WEFT_GRPC_LOAD_BYTES. */
enum {
    WEFT_GRPC_INLINE_BYTES = 64 << 10,
    WEFT_GRPC_PARAMETERS_BYTES = 4 << 10,
    WEFT_GRPC_LOAD_BYTES = 64 << 10
};
/* Most bytes of a message to the method, where one of ModelInfer has `infer_max`. */
size_t weft_grpc__message_max(const weft_grpc_method *method, size_t infer_max);
/* The same as weft_grpc__start_call for a large message of ModelInfer, which it takes. */
void weft_grpc__offload_infer(weft_grpc_call *call, uint8_t *message, size_t len);
bool weft_grpc__is_infer(const weft_grpc_method *method);
/* Whether its streams carry any number of messages each way. */
bool weft_grpc__talks(const weft_grpc_method *method);
/* Unpacks the message, which it takes, if it is packed (grpc_begin.c), and starts the call, beside
 * the loop where that takes long. `reply` is called as by weft_grpc__start_call. */
void weft_grpc__begin_call(const weft_grpc_method *method, weft_grpc_call *call, uint8_t *message,
                           size_t len);
/* Has the job of the call done beside the loop; `bytes`: of the work. */
void weft_grpc__run_beside(weft_grpc_call *call, size_t bytes, void (*run)(weft_job *),
                           void (*done)(weft_job *));
/* Counts so many bytes as held by the call. false: too many are; the call has its error. */
bool weft_grpc__hold_bytes(weft_grpc_call *call, size_t bytes);
/* Packs the answer of a call whose message was packed. Any thread. */
void weft_grpc__pack_answer(weft_grpc_call *call);
/* Answers that are to be packed, above this size, are written beside the loop. */
enum { WEFT_GRPC_INLINE_PACKED_BYTES = 4 << 10 };
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
/* Answers a request of the reflection (grpc_reflect.c). NULL: the call has its error. */
struct ProtobufCMessage *weft_grpc__reflect(weft_grpc_call *call, weft_arena *arena,
                                            const struct ProtobufCMessage *in);
/* Methods of log and trace settings (grpc_settings.c). */
struct ProtobufCMessage *weft_grpc__log_settings(weft_grpc_call *call, weft_arena *arena,
                                                 const struct ProtobufCMessage *in);
struct ProtobufCMessage *weft_grpc__trace_setting(weft_grpc_call *call, weft_arena *arena,
                                                  const struct ProtobufCMessage *in);
/* Methods of regions of shared memory (grpc_regions.c). */
struct ProtobufCMessage *weft_grpc__list_regions(weft_grpc_call *call, weft_arena *arena,
                                                 const struct ProtobufCMessage *in);
struct ProtobufCMessage *weft_grpc__register_region(weft_grpc_call *call, weft_arena *arena,
                                                    const struct ProtobufCMessage *in);
struct ProtobufCMessage *weft_grpc__unregister_regions(weft_grpc_call *call, weft_arena *arena,
                                                       const struct ProtobufCMessage *in);
struct ProtobufCMessage *weft_grpc__list_no_regions(weft_grpc_call *call, weft_arena *arena,
                                                    const struct ProtobufCMessage *in);
struct ProtobufCMessage *weft_grpc__unregister_nothing(weft_grpc_call *call, weft_arena *arena,
                                                       const struct ProtobufCMessage *in);
/* The first one, made by the build, has descriptors of all messages and services. */
typedef struct weft_grpc_descriptors {
    const char *name, *bytes;
} weft_grpc_descriptors;
extern const weft_grpc_descriptors weft_grpc__descriptors[];
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

/* What a ModelInferRequest names; "" where it names none. */
typedef struct weft_grpc_names {
    weft_grpc_name model, version, id;
} weft_grpc_names;

/* Finds them without decoding the message. NULL: found; else what is wrong with it. */
const char *weft_grpc__scan_names(const uint8_t *message, size_t len, weft_grpc_names *out);
/* Whether every string of the message is UTF-8 without a NUL. */
bool weft_grpc__has_text(const struct ProtobufCMessageDescriptor *type, const uint8_t *message,
                         size_t len);
/* *out_bytes: what the decoded message takes, at most decoded_max. NULL: *out_wrong says what is
 * wrong with the message. The result is freed by protobuf_c_message_free_unpacked(message, NULL).
 */
struct ProtobufCMessage *weft_grpc__unpack(const struct ProtobufCMessageDescriptor *type,
                                           const uint8_t *bytes, size_t len, size_t decoded_max,
                                           size_t *out_bytes, const char **out_wrong);

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
    struct {
        uint32_t at, n_class; /* of the program; see weft_oip_output */
    } * output;               /* in the order of the answer */
    uint32_t n_output;
    weft_job job; /* frees it beside the loop */
};

/* Reads a message that names this model. false: the error is in *out_answer and `text`
 * (WEFT_REQUEST_MESSAGE_MAX bytes). */
bool weft_grpc__read_infer(const weft_model_ref *model, weft_regions *regions,
                           const uint8_t *message, size_t len, size_t decoded_max,
                           weft_answer *out_answer, char *text, weft_grpc_infer **out);
/* Packs the answer with its prefix, as a ModelInferResponse or, `talks`, ModelStreamInferResponse.
 * Else `text` says why not. */
weft_answer weft_grpc__write_infer(const weft_grpc_infer *infer, bool talks, uint8_t **out,
                                   size_t *out_len, char *text);
/* The ModelStreamInferResponse of a request that failed. */
bool weft_grpc__write_error(const char *id, const char *text, uint8_t **out, size_t *out_len);
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
    weft_offload *offload; /* for messages that are not small */
    weft_offload *heavy;   /* for those that take long, so that others do not wait for them */
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
    /* Streams that wait for their clients, from the one that has waited longest (grpc_share.c). */
    grpc_stream *waiting, *last_waiting;
    uint32_t n_waiting;
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
    uint32_t n_part;               /* of those running, messages of streams of messages */
    uint64_t hello_deadline_ns;    /* for the first HTTP/2 frame; 0: it has arrived */
    uint64_t settings_deadline_ns; /* for the acknowledgement of the server's; 0: not awaited */
    bool leaving;                  /* was told the last stream that is answered */
    /* Bytes of messages, either way, since the last request became whole or was answered. */
    uint64_t moved, moved_ns;
    /* Streams that the server reset, as a bucket that leaks. */
    double resets;
    uint64_t resets_ns;
    uint32_t events;     /* watched */
    uint32_t read_bytes; /* at once */
    bool is_dirty, closing;
    grpc_connection *next, *prev, *next_dirty;
};

typedef enum grpc_state {
    GRPC_HEADERS,   /* headers are incomplete */
    GRPC_RECEIVING, /* the message is incomplete */
    GRPC_RUNNING,   /* the call was started */
    GRPC_SENDING,   /* the answer is being sent */
    GRPC_TALKING    /* messages come and go (grpc_talk.c) */
} grpc_state;

/* Bytes that count as held. */
typedef struct grpc_share {
    weft_grpc *grpc;
    weft_peer *peer; /* with a reference */
    size_t held;     /* of grpc->held_bytes and peer->held_bytes */
} grpc_share;

/* A message of a stream of messages, and its answer (grpc_talk.c). */
typedef struct grpc_part {
    weft_grpc_call call;
    grpc_stream *stream; /* NULL: orphan */
    grpc_share share;
    size_t sent; /* bytes of call.message */
    struct grpc_part *next, *prev;
} grpc_part;

typedef struct grpc_talk {
    grpc_part *running;
    grpc_part *ready, *last_ready; /* answers in the order of sending */
    uint32_t n_running, n_ready;
    uint64_t until_ns;    /* deadline of all; UINT64_MAX: none */
    uint64_t send_by_ns;  /* for the first of `ready` */
    bool errors_end;      /* an error of a request ends the stream */
    bool admitted;        /* the next message was admitted with the headers */
    bool no_more;         /* messages are not awaited */
    bool sleeps, trailed; /* nghttp2 waits for an answer; has the trailers */
} grpc_talk;

struct grpc_stream {
    grpc_share share;
    grpc_connection *connection; /* NULL: orphan */
    int32_t id;
    grpc_state state;
    uint64_t deadline_ns; /* for receiving, later for sending */
    const weft_grpc_method *method;
    size_t header_bytes;
    bool is_post, is_grpc, timeout_wrong;
    bool has_encoding;  /* other than identity */
    weft_zip_form form; /* of that encoding; NONE: unknown */
    uint8_t prefix[WEFT_GRPC_PREFIX_BYTES];
    uint32_t n_prefix;
    uint8_t *message;
    size_t len, cap, have; /* len: from the prefix; have: received */
    weft_grpc_call call;   /* TALKING: what its messages have in common, and how it ends */
    size_t sent;           /* bytes of call.message */
    grpc_talk talk;
    grpc_stream *next, *prev;
    grpc_stream *waits_behind, *waits_before; /* in the line of `waiting` */
    bool waits, is_dropped; /* stands in it; was reset because there were too many */
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
/* What both kinds of streams share (grpc_share.c). */

/* Time by which so many bytes are to be moved. */
uint64_t weft_grpc__deadline(size_t bytes);
/* Whether the share may be `bytes` instead of what it is. */
bool weft_grpc__may_hold(const grpc_share *share, size_t bytes);
void weft_grpc__set_held(grpc_share *share, size_t bytes);
/* The stream waits for its client: for more of a message, or for its answer to be taken. It becomes
 * the last in the line. Called again when the client has done something. */
void weft_grpc__wait(grpc_stream *stream);
/* Resets the first ones of a line that is too long. For the end of a turn, when answers have been
 * written: one whose client reads is not reset for those that came in the same turn. */
void weft_grpc__drop_waiting(weft_grpc *grpc);
/* It does not: a message of it runs, or it ends. */
void weft_grpc__end_wait(grpc_stream *stream);
/* Writes the access log of a call that the router does not log. */
void weft_grpc__log_call(const weft_grpc_call *call, const weft_grpc_method *method);
/* Percent-encodes a grpc-message; returns its length. */
enum { WEFT_GRPC_ESCAPED_MAX = 3 * WEFT_REQUEST_MESSAGE_MAX };
size_t weft_grpc__escape(const char *text, char out[WEFT_GRPC_ESCAPED_MAX]);
nghttp2_nv weft_grpc__field(const char *name, const char *value, size_t len);

/* Streams of messages (grpc_talk.c): answers the headers, and awaits messages. */
void weft_grpc__open_talk(grpc_stream *stream);
/* Takes the message of the stream, which is whole. */
void weft_grpc__take_message(grpc_stream *stream);
/* The client sends no more messages. */
void weft_grpc__finish_talk(grpc_stream *stream);
/* Ends the stream with a status behind the answers that are ready, and, `waits`, behind those that
 * are to come. */
void weft_grpc__end_talk(grpc_stream *stream, weft_grpc_status status, const char *text,
                         bool waits);
/* The stream is about to be freed. */
void weft_grpc__drop_talk(grpc_stream *stream);
/* Whether something has waited too long: the client for an answer, or its whole stream. */
uint64_t weft_grpc__talk_deadline(const grpc_stream *stream);
void weft_grpc__expire_talk(grpc_stream *stream, uint64_t now_ns);
/* Has the output of the connection written before the loop waits. */
void weft_grpc__mark_dirty(grpc_connection *connection);

#endif
