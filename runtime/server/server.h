/* The door of runtime/server: a server of the Open Inference Protocol over HTTP and gRPC, as one
 * router process and one worker process for each slice. */
#ifndef WEFT_RUNTIME_SERVER_SERVER_H
#define WEFT_RUNTIME_SERVER_SERVER_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdbool.h>
#include <stdint.h>

/* A slice: what one worker process gets. Zero-initialised: the defaults. */
typedef struct weft_serve_slice {
    const uint32_t *cpu; /* CPU set; NULL: inherited */
    uint32_t n_cpu;
    const char *const *model; /* models that this slice serves; n_model 0: all */
    const uint32_t *batch;    /* by model of `model`: rows of a batch at most, 0: of the largest
                               * bucket;    NULL: no limits */
    uint32_t n_model;
    const char *name;       /* for messages and metrics: "gpu 0, 1g.18gb at slot 4"; NULL: none */
    const char *gpu;        /* UUID of the whole GPU; NULL: no GPU */
    const char *mig;        /* UUID of the MIG instance on it; NULL: none */
    const char *const *env; /* environment of the worker: "NAME=value" sets, "NAME" unsets */
    uint32_t n_env;
    uint32_t sm_first, n_sm;  /* see weft_engine_options */
    uint64_t mem_limit_bytes; /* see weft_engine_options */
    uint64_t plan_bytes;      /* memory that the plan assumes, for messages; 0: unknown */
} weft_serve_slice;

/* Events written to standard error; ACCESS: a line for each request. */
typedef enum weft_log_level {
    WEFT_LOG_ERROR,
    WEFT_LOG_WARN,
    WEFT_LOG_INFO,
    WEFT_LOG_ACCESS
} weft_log_level;

/* Where a transport listens. */
typedef struct weft_serve_port {
    int port;         /* 0: any free one; < 0: off */
    const char *path; /* of a UNIX socket instead; NULL: none */
    bool is_private;  /* a UNIX socket for the server's user only */
} weft_serve_port;

/* APIs that need a header: "GROUP,GROUP:HEADER=VALUE" or "...=@FILE". */
enum { WEFT_RESTRICTIONS_MAX = 9 };
typedef struct weft_serve_restrictions {
    const char *text[WEFT_RESTRICTIONS_MAX];
    uint32_t n;
} weft_serve_restrictions;

/* Values of worker_memory. AUTO: by what a worker holds when its models are prepared. */
#define WEFT_MEMORY_AUTO      ((uint64_t)0)
#define WEFT_MEMORY_UNLIMITED UINT64_MAX

/* Which requests are refused when they would be answered too late. */
typedef enum weft_admission_mode {
    WEFT_ADMISSION_MODEL, /* those with a client's timeout, and those of models that ask for it */
    WEFT_ADMISSION_SLO,   /* and those of all models with an SLO */
    WEFT_ADMISSION_NONE
} weft_admission_mode;

struct weft_plan;

/* How slices change in steps, because some can be made only when others have ended: GPUs. No two of
 * its functions run at a time; `prepare` runs beside the loop. */
typedef struct weft_serve_steps {
    /* Finds the steps from what runs to a plan, at least one. *out: slices of the plan, of which
     * models and batches count. INPUT, NODEV: this machine cannot have them. */
    weft_err (*plan)(void *user, const struct weft_plan *plan, weft_arena *arena, weft_diag *diag,
                     const weft_serve_slice **out, uint32_t *out_n, uint32_t *out_n_step);
    /* The same to what ran when the change began. */
    weft_err (*back)(void *user, uint32_t *out_n_step);
    /* Makes what the slices that run after step k need, and tells them; they live in `arena`. What
     * runs before the step is not touched. */
    weft_err (*prepare)(void *user, uint32_t k, weft_arena *arena, weft_diag *diag,
                        const weft_serve_slice **out, uint32_t *out_n);
    /* These run, and no others. */
    void (*reached)(void *user, uint32_t k);
    /* What runs, as a plan. */
    weft_err (*tell)(void *user, weft_arena *arena, struct weft_plan *out);
} weft_serve_steps;

/* The control socket (control_socket.c). Zeroed: none. */
typedef struct weft_serve_control {
    const char *path; /* a UNIX socket of mode 0600 */
    /* Makes the slices of another plan, which live in `arena`. NULL: plans are refused. */
    weft_err (*make_slices)(void *user, const struct weft_plan *plan, weft_arena *arena,
                            weft_diag *diag, const weft_serve_slice **out, uint32_t *out_n);
    const weft_serve_steps *steps; /* plans come into force in steps; NULL: at once */
    void *user;
} weft_serve_control;

/* A bundle to serve. Zero-initialised: the defaults. */
typedef struct weft_serve_bundle {
    const char *path;
    const char *folder;       /* `path` lies below, without symbolic links; NULL: anywhere */
    const char *version;      /* of its models: a decimal number; NULL: as in the bundle, or "1" */
    bool has_weight;          /* false: 1 */
    double weight;            /* part of the requests for a model that name no version */
    const char *const *model; /* serve only these; n_model 0: all */
    const double *model_weight; /* by model of `model`; NULL: `weight` of each */
    uint32_t n_model;
    /* Of a state that is restored: the contents that the file must have (0: any); and whether
     * models that no slice names are served on every slice. */
    uint64_t identity;
    bool spreads;
} weft_serve_bundle;

/* A repository of models that are compiled when they are to be served. Its functions run beside the
 * loop, each by one thread at a time. */
typedef struct weft_serve_source {
    /* Makes a bundle with the versions of a model that are to be served; *out_path is freed.
     * `config`: JSON of the configuration in place of the repository's; NULL: none. NULL: the
     * repository has bundles. */
    weft_err (*make)(void *user, const char *model, const char *config, weft_diag *diag,
                     char **out_path);
    /* Calls `found` for each model that is new, has changed, or is gone; those for which it returns
     * false are found again. */
    weft_err (*look)(void *user, bool (*found)(void *to, const char *model, bool gone), void *to,
                     weft_diag *diag);
    void (*stop)(void *user); /* ends what goes on; any thread */
    double poll_s;            /* between two looks; 0: none */
    void *user;
} weft_serve_source;

/* Whether the text can be a version: a decimal number of at most 18 digits from 1 on. */
bool weft_serve_is_version(const char *text);

typedef struct weft_serve_options {
    const weft_serve_bundle *bundle;
    uint32_t n_bundle;
    const char *exe;     /* program to run as `exe --worker` for each slice: this one */
    const char *address; /* IPv4, IPv6 or a name; NULL: 127.0.0.1 */
    weft_serve_port http, grpc, metrics;
    weft_serve_port health; /* for probes, answered by a thread of its own */
    /* PEM files for TLS over HTTP and gRPC (not the metrics port): certificate chain, its key, and
     * the authority of client certificates, which are required then. NULL: none. */
    const char *tls_cert, *tls_key, *tls_ca;
    const char *api_keys; /* file of keys and their rights; NULL: none are needed */
    weft_serve_restrictions http_restricted, grpc_restricted;
    uint32_t max_connections;      /* of each transport; 0: as many as the descriptors allow */
    uint32_t max_peer_connections; /* of one address; 0: a quarter, loopback without a limit */
    const weft_serve_slice *slice; /* n_slice 0: one slice with all CPUs */
    uint32_t n_slice;
    weft_serve_control control;
    bool plans_ahead;          /* plans may name models that no bundle has yet */
    const char *server_name;   /* in the server's metadata; NULL: weft */
    const char *shared_memory; /* keys of shared memory that clients may use begin so; NULL: none */
    const char *repository;    /* folder that clients may load from; NULL: they may not */
    weft_serve_source source;  /* of a repository of models that are not compiled */
    const char *adapters;      /* folder that clients may load adapters from; NULL: they may not */
    uint64_t adapter_memory;   /* bytes of factors that a worker keeps in memory; 0: 1 GiB */
    const char *state;         /* folder that keeps what is served over restarts; NULL: none */
    uint64_t max_request_bytes; /* 0: 64 MiB */
    uint64_t worker_memory;     /* bytes that a worker without a GPU may allocate, or below */
    weft_admission_mode admission;
    bool always_together; /* requests of several models or lengths, whatever the measured times */
    bool compute_each;    /* also requests whose inputs are equal */
    double max_queue_delay_us; /* time that a batch may wait for more requests; 0: none */
    double request_timeout_s;  /* 0: 30 */
    double drain_timeout_s;    /* 0: 30 */
    double start_timeout_s;    /* time for a worker to prepare its models; 0: 300 */
    double stall_timeout_s; /* a worker that shows no sign of life for so long gets no requests; 0:
                             * 0.3 */
    bool keep_canary;  /* a version that does worse than those with more weight keeps its weight */
    bool trust_bundle; /* map the file itself: nobody overwrites or truncates it */
    /* Every bundle that is loaded needs a signature BUNDLE.sig by a key of this file; NULL: none.
     */
    const char *require_signature;
    bool log_json; /* events as JSON, not text */
    weft_log_level log_level;
    bool nv_metrics;        /* also Triton's metric names */
    const char *trace_file; /* spans of requests as lines of OTLP/JSON; NULL: none */
    double trace_rate;      /* part of the requests without a trace of their own that get spans */
    /* Called once, when a worker is ready for every model, with the ports as bound
     * (-1: off, or a UNIX socket). */
    void (*on_ready)(void *user, int http_port, int grpc_port, int metrics_port, int health_port);
    void *user;
} weft_serve_options;

/* The plan in the state of a folder, as JSON, in `arena`; NULL: it has none. */
WEFT_MUST_USE weft_err weft_serve_plan_of_state(const char *folder, weft_arena *arena,
                                                weft_diag *diag, const char **out);

/* Serves until SIGTERM or SIGINT, then drains: refuses new requests, answers those accepted, ends
 * the workers. Handles the signals of the process while it runs. */
WEFT_MUST_USE weft_err weft_serve(const weft_serve_options *options, weft_diag *diag);

/* Exit codes of a worker process. LOST: its device was lost. UNREADABLE: a page of the bundle could
 * not be read. STARVED: there was no memory for a message. */
enum {
    WEFT_WORKER_FAILED = 1,
    WEFT_WORKER_MISUSED,
    WEFT_WORKER_LOST,
    WEFT_WORKER_UNREADABLE,
    WEFT_WORKER_STARVED
};

/* The main function of a worker process: serves one slice over the socket that it inherited.
 * Returns the exit code. */
int weft_worker_main(int argc, char **argv);

/* -- Signatures of bundles (signature.c) ------------------------------------------------------ */

enum { WEFT_SIGNATURE_TEXT = 107 }; /* bytes of a signature file, with NUL */

/* The text of the signature file of a bundle, by a private key (PEM, Ed25519). */
WEFT_MUST_USE weft_err weft_signature_make(const char *path, const char *key_path, weft_diag *diag,
                                           char *out);
/* INPUT: `signature_fd` is no signature of the bytes of `fd` by one of the public keys. `path` is
 * for messages. */
WEFT_MUST_USE weft_err weft_signature_check(int fd, int signature_fd, const char *path,
                                            const char *keys_path, weft_diag *diag);
/* The file of the signature of a bundle: beside it, where links lead to; owned by the caller
 * (free). NULL: out of memory. */
char *weft_signature_path(const char *path);
/* weft_signature_check with that file or, strictly below `folder` if that is not NULL, PATH.sig.
 * INPUT: there is none. */
WEFT_MUST_USE weft_err weft_signature_require(int fd, const char *folder, const char *path,
                                              const char *keys_path, weft_diag *diag);

#endif
