/* Who may do what: keys and client certificates with their rights, and APIs that a header restricts
 * (Triton's --http-restricted-api). One gate stands in front of the routes of HTTP and the methods
 * of gRPC: each names its API group, and a model that a key has no right to looks like one that
 * does not exist.
 *
 * Single-thread, on the loop. */
#ifndef WEFT_RUNTIME_SERVER_ACCESS_INT_H
#define WEFT_RUNTIME_SERVER_ACCESS_INT_H

#include "runtime/server/server.h"

#include <stddef.h>

typedef enum weft_api_group {
#define GROUP(name, text) WEFT_API_##name,
#include "runtime/server/api_groups.def"
#undef GROUP
    WEFT_API_GROUPS
} weft_api_group;

/* The group of a name; WEFT_API_GROUPS: none has it. */
weft_api_group weft_api__find_group(const char *name, size_t len);

/* -- Key files (key_file.c) ----------------------------------------------------------------- */

/* A line: NAME SHA256|certificate|none MODELS GROUPS [RATE]. MODELS: patterns with * and ?,
 * separated by commas; GROUPS: names separated by commas, or *; RATE: requests per second. */
enum {
    WEFT_KEYS_MAX = 4096,
    WEFT_KEY_NAME_MAX = 128,
    WEFT_KEY_BYTES = 32, /* of a SHA-256 */
    WEFT_KEY_FILE_MAX = 4 << 20
};

typedef enum weft_key_kind {
    WEFT_KEY_SECRET,      /* whoever knows the key */
    WEFT_KEY_CERTIFICATE, /* whoever has a client certificate of this name */
    WEFT_KEY_NONE         /* requests without a key */
} weft_key_kind;

typedef struct weft_key {
    const char *name;
    weft_key_kind kind;
    uint8_t sha256[WEFT_KEY_BYTES]; /* SECRET */
    const char *models;             /* patterns */
    uint32_t groups;                /* bits by weft_api_group */
    double rate_per_s;              /* 0: no limit */
} weft_key;

typedef struct weft_key_file {
    weft_key *key;
    uint32_t n;
    char *text; /* that the keys refer to */
} weft_key_file;

/* Takes ownership of `text` (heap, NUL behind it), also on an error. `path` is for messages. */
WEFT_MUST_USE weft_err weft_key_file__parse(char *text, size_t len, const char *path,
                                            weft_diag *diag, weft_key_file *out);
/* Refuses files that others than root and the user of the process can read or replace. */
WEFT_MUST_USE weft_err weft_key_file__read(const char *path, weft_diag *diag, weft_key_file *out);
void weft_key_file__finish(weft_key_file *file); /* zeroed is allowed */
/* Whether one of the patterns is the model's. */
bool weft_key__names_model(const char *patterns, const char *model);
/* Whether a name of a client certificate can be the name of a key. */
bool weft_key__is_name(const char *name, size_t len);
/* Reads a secret file, with the same checks and without the end of its line: `text` is owned. */
WEFT_MUST_USE weft_err weft_key_file__read_secret(const char *path, uint64_t limit_bytes,
                                                  weft_diag *diag, char **out, size_t *out_len);

/* -- The gate (access.c) -------------------------------------------------------------------- */

typedef enum weft_transport { WEFT_OVER_HTTP, WEFT_OVER_GRPC } weft_transport;

typedef enum weft_admission {
#define ADMISSION(name, http, grpc, field, text) WEFT_ADMISSION_##name,
#include "runtime/server/admissions.def"
#undef ADMISSION
} weft_admission;

/* What a request shows of its sender. Zero-initialised, then filled by weft_access__take_header. */
typedef struct weft_presented {
    bool has_key;
    bool conflict; /* two different keys */
    uint8_t sha256[WEFT_KEY_BYTES];
    const char *certificate; /* name of the client's certificate; NULL: none. Borrowed */
    uint32_t fits;           /* bits by restriction: its header has the right value */
} weft_presented;

typedef struct weft_access weft_access;

struct weft_router;

/* Reads the key file and the restrictions of the options. *out: NULL where there are none: a NULL
 * gate is open. */
WEFT_MUST_USE weft_err weft_access__create(const weft_serve_options *options,
                                           const struct weft_router *router, weft_diag *diag,
                                           weft_access **out);
void weft_access__destroy(weft_access *access);
/* Reads the key file again. On an error the keys stay as they are. */
WEFT_MUST_USE weft_err weft_access__reload(weft_access *access, weft_diag *diag);

/* Called for each header of a request. */
void weft_access__take_header(const weft_access *access, weft_transport over,
                              weft_presented *presented, const char *name, size_t name_len,
                              const char *value, size_t len);
/* Whether the request may use the group; counts it towards the rate of its key. `text`
 * (WEFT_REQUEST_MESSAGE_MAX bytes) gets the error. */
weft_admission weft_access__admit(weft_access *access, weft_transport over,
                                  const weft_presented *presented, weft_api_group group,
                                  char *text);
unsigned weft_admission__http(weft_admission admission);
int weft_admission__grpc(weft_admission admission);
/* Header field of the HTTP answer, with its end of line; "": none. */
const char *weft_admission__field(weft_admission admission);

/* Patterns of the models that the request may know of (weft_key__names_model). NULL: all. Valid
 * until the keys are read again, which is never inside a callback of a transport. */
const char *weft_access__models(const weft_access *access, const weft_presented *presented);
/* Name of the request's key; "": none. Valid as long. */
const char *weft_access__key_name(const weft_access *access, const weft_presented *presented);

#endif
