/* The Open Inference Protocol as HTTP bodies, without the transport: reading requests (oip_read.c),
 * writing answers (oip_write.c), and metrics (metrics.c, metrics_gpu.c). */
#ifndef WEFT_RUNTIME_SERVER_OIP_INT_H
#define WEFT_RUNTIME_SERVER_OIP_INT_H

#include "base/str.h"
#include "runtime/server/serve_int.h"

struct json_t;

/* An output that the client asks for. */
typedef struct weft_oip_output {
    uint32_t at;      /* index among the program's outputs */
    uint32_t n_class; /* see classes.h; 0: the tensor itself */
    bool binary;
} weft_oip_output;

/* An infer request read from a body, and the form of its answer. */
typedef struct weft_oip_infer {
    weft_request *request;
    const weft_bundle_program *program;
    const char *version;
    char *id;        /* owned; NULL: none */
    bool *has_input; /* by input */
    void **in_data;  /* by input: owned heap data; NULL: the tensor refers to the body */
    weft_oip_output *output;
    uint32_t n_output;
} weft_oip_infer;

/* Reads a body: `json_len` bytes of JSON, then binary tensors. Binary tensors refer to `body`,
 * which must outlive the request; inputs in shared memory are loaded later (regions.h). false: the
 * error is in *out_answer and `message` (WEFT_REQUEST_MESSAGE_MAX bytes). */
bool weft_oip__read_infer(const weft_model_ref *model, weft_regions *regions, char *body,
                          size_t len, size_t json_len, weft_answer *out_answer, char *message,
                          weft_oip_infer **out);
/* Reads a raw binary request: the body is the data of the only input, batch 1; all outputs are
 * binary. */
bool weft_oip__read_raw(const weft_model_ref *model, char *body, size_t len,
                        weft_answer *out_answer, char *message, weft_oip_infer **out);
void weft_oip__destroy_infer(weft_oip_infer *infer);
/* Writes the body of the answer. *out_json_len: length of its JSON, the whole body when no output
 * is binary. false: out of memory, or values that JSON cannot represent; the error is in
 * *out_answer and `message`. */
bool weft_oip__write_infer(const weft_oip_infer *infer, weft_buf *out, size_t *out_json_len,
                           weft_answer *out_answer, char *message);

/* JSON texts, owned by the caller (free); NULL when out of memory. */
char *weft_oip__server_metadata(const weft_front *front);
/* `detailed`: with the status of each worker whose slice has a name. */
char *weft_oip__server_ready(const weft_router *router, bool ready, bool detailed);
char *weft_oip__model_metadata(const weft_router *router, uint32_t model);
/* `why` of it tells what its workers do when it is not ready. */
char *weft_oip__model_ready(const weft_router *router, uint32_t model, bool ready);
char *weft_oip__model_config(const weft_bundle_program *program);

struct weft_setting;
char *weft_oip__settings(const struct weft_setting *list, size_t n);

struct weft_repository_scan;

/* Where a long list goes on. Zeroed: at its start. */
typedef struct weft_list_place {
    uint32_t part, model;
    struct weft_repository_scan *files; /* owned; NULL: not there yet */
} weft_list_place;

/* Models to list. */
typedef struct weft_oip_filter {
    uint32_t model;       /* UINT32_MAX: all */
    bool any_version;     /* all versions of the model */
    bool only_ready;      /* of the index: models that are ready */
    const char *patterns; /* of names that the client may know of; NULL: all */
} weft_oip_filter;

bool weft_oip__is_listed(const weft_router *router, const weft_oip_filter *filter, uint32_t model);
/* Appends the next part of the statistics, from model *at on, which it moves. false: they are
 * whole, or there is no memory (out->failed). */
bool weft_oip__write_stats(const weft_router *router, const weft_oip_filter *filter, uint32_t *at,
                           weft_buf *out);
/* An entry of the index of models. */
typedef struct weft_index_entry {
    const char *model, *version; /* until the next entry is asked for */
    const char *state, *reason;
} weft_index_entry;

typedef enum weft_index_step {
    WEFT_INDEX_ENTRY,
    WEFT_INDEX_NOTHING, /* at this place */
    WEFT_INDEX_END,
    WEFT_INDEX_NOMEM
} weft_index_step;

/* Looks at the next place of the index: models of the router, then bundles of the folder that are
 * not loaded; `folder` may be NULL. */
weft_index_step weft_oip__next_entry(const weft_router *router, const weft_oip_filter *filter,
                                     const char *folder, weft_list_place *at,
                                     weft_index_entry *out);
/* Appends the next part of the index. false: it is whole, or there is no memory (out->failed). */
bool weft_oip__write_index(const weft_router *router, const weft_oip_filter *filter,
                           const char *folder, weft_list_place *at, weft_buf *out);
char *weft_oip__error(const char *text);

/* A dim of a shape in metadata: -1 when it varies. */
int64_t weft_oip__shown_dim(weft_dim dim);
const char *const *weft_oip__extensions(const weft_regions *regions, size_t *out_n);

/* Appends the next part of the metrics of models and server in Prometheus text format 0.0.4, and
 * moves the place; nv_names: also under Triton's names. false: they are whole. */
bool weft_metrics__write_part(const weft_router *router, bool nv_names, weft_list_place *at,
                              weft_buf *out);

/* Meters of the GPUs and MIG instances that workers are on, also of later plans (metrics_gpu.c). */
typedef struct weft_metrics_meters weft_metrics_meters;
/* NULL: out of memory. */
weft_metrics_meters *weft_metrics__open_meters(const weft_router *router);
void weft_metrics__close_meters(weft_metrics_meters *meters); /* NULL is allowed */
/* Reads the meters, and writes metrics of GPUs, MIG instances and the workers on them; nothing when
 * no slice has a GPU. */
void weft_metrics__write_gpus(weft_metrics_meters *meters, const weft_router *router, bool nv_names,
                              weft_buf *out);

#endif
