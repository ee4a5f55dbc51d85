/* The Open Inference Protocol as data: what HTTP bodies say, whatever carries them (oip*.c). */
#ifndef WEFT_RUNTIME_SERVER_OIP_INT_H
#define WEFT_RUNTIME_SERVER_OIP_INT_H

#include "base/str.h"
#include "runtime/server/serve_int.h"

struct json_t;

/* An output that the client wants. */
typedef struct weft_oip_output {
    uint32_t at; /* of the program */
    bool binary;
} weft_oip_output;

/* An infer request as read from a body, and what the answer to it must look like. */
typedef struct weft_oip_infer {
    weft_request *request;
    const weft_bundle_program *program;
    char *id;        /* owned; NULL: none was given */
    bool *has_input; /* by input */
    void **in_data;  /* by input: owned heap data, NULL where the tensor lies in the body */
    weft_oip_output *output;
    uint32_t n_output;
} weft_oip_infer;

/* Reads a body: `json_len` bytes of JSON, then binary tensors. Binary tensors stay in `body`, which
 * must live as long as the request. false: *out_answer and `message` say why. */
bool weft_oip__read_infer(const weft_bundle *bundle, uint32_t model, char *body, size_t len,
                          size_t json_len, weft_answer *out_answer, char *message,
                          weft_oip_infer **out);
/* A raw binary request: one input, batch 1, the body its data, all outputs binary. */
bool weft_oip__read_raw(const weft_bundle *bundle, uint32_t model, char *body, size_t len,
                        weft_answer *out_answer, char *message, weft_oip_infer **out);
void weft_oip__destroy_infer(weft_oip_infer *infer);
/* The answer's body; *out_json_len is the length of its JSON, and equals the whole where nothing is
 * binary. false: out of memory, or a type JSON cannot carry (*out_answer, message). */
bool weft_oip__write_infer(const weft_oip_infer *infer, weft_buf *out, size_t *out_json_len,
                           weft_answer *out_answer, char *message);

/* JSON texts, owned by the caller (free); NULL when out of memory. */
char *weft_oip__server_metadata(void);
/* With the state of each slice that has a name. */
char *weft_oip__server_ready(const weft_router *router, bool ready);
char *weft_oip__model_metadata(const weft_bundle_program *program);
char *weft_oip__model_ready(const weft_bundle_program *program, bool ready);
char *weft_oip__model_config(const weft_bundle_program *program);
char *weft_oip__model_stats(const weft_router *router, uint32_t model); /* UINT32_MAX: all */
char *weft_oip__repository_index(const weft_router *router);
char *weft_oip__error(const char *text);

/* Shape for metadata: -1 where a dimension varies. */
int64_t weft_oip__shown_dim(weft_dim dim);
const char *const *weft_oip__extensions(size_t *out_n);

/* JSON nesting, strings skipped: deeper than this is refused before it is parsed. */
enum { WEFT_OIP_DEPTH_MAX = 100 };

/* Our own metrics, and Triton's names where asked for: Prometheus text format 0.0.4. */
void weft_metrics__write(const weft_router *router, bool nv_names, weft_buf *out);

/* Those of the GPUs that are served on, and of the slices there (metrics_gpu.c). NULL when out of
 * memory. */
typedef struct weft_metrics_meters weft_metrics_meters;
weft_metrics_meters *weft_metrics__open_meters(const weft_serve_options *options);
void weft_metrics__close_meters(weft_metrics_meters *meters); /* NULL is fine */
/* Reads the GPUs. */
void weft_metrics__write_gpus(weft_metrics_meters *meters, const weft_router *router, bool nv_names,
                              weft_buf *out);

#endif
