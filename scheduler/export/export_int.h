/* Shared by the exporters: nodes, workers and groups (export_workers.c), addresses
 * (export_addresses.c), routes of a front (export_routes.c), common files (export_files.c), and a
 * YAML writer (export_yaml.c). */
#ifndef WEFT_SCHEDULER_EXPORT_EXPORT_INT_H
#define WEFT_SCHEDULER_EXPORT_EXPORT_INT_H

#include "scheduler/input/input.h"

#include "base/str.h"

#include <yaml.h>

enum { WEFT_EXPORT_NAME_MAX = 32, WEFT_EXPORT_LABEL_MAX = 63, WEFT_EXPORT_ADDRESS_MAX = 253 };
enum { WEFT_EXPORT_MODEL_LABEL_MAX = 40 }; /* of the key of a label */
enum { WEFT_EXPORT_GPU_CPUS = 2 };         /* CPUs that a GPU's worker asks for */

/* A process of `weft serve`: it serves all slices of a CPU, or one slice of a GPU. */
typedef struct export_worker {
    const char *name;      /* DNS label: prefix, device, slice */
    uint32_t node, device; /* index of its node; number of its device in the plan */
    uint32_t gpu;          /* index among the GPUs of the node */
    weft_fleet_slice_kind kind;
    const char *type, *slice;
    uint32_t percent;  /* of an MPS share */
    uint32_t nth;      /* number among the instances of its MIG profile on the GPU, by start slot */
    uint32_t cores;    /* of all slices of a CPU */
    uint32_t clients;  /* processes on the slice */
    int32_t mig_start; /* -1 without MIG */
    const weft_placement **at;
    uint32_t n;         /* placements */
    const char **model; /* of all placements, families as their models; each once */
    size_t n_model;
    uint32_t group;      /* index; the workers of a group are replicas of each other */
    uint32_t port;       /* HTTP; gRPC is port + 1, metrics port + 2 */
    weft_location where; /* as the plan says */
    const char *plan;    /* the worker's part of the plan, as JSON */
} export_worker;

/* Up to gpus_per_node devices of one type, split in one way. */
typedef struct export_node {
    const char *name;    /* DNS label */
    const char *address; /* where its workers listen: of --nodes, else its name */
    const char *type;
    weft_fleet_slice_kind kind;
    uint32_t n_gpu;
    uint32_t first, n; /* its workers are worker[first .. first + n) */
} export_node;

typedef struct export_group {
    uint32_t first, n; /* index of its first worker; number of workers */
    const char *name;
} export_group;

typedef struct export_ctx {
    const weft_plan *plan;
    weft_export_options o; /* without NULL or 0: defaults are filled in */
    weft_arena *arena;
    weft_diag *diag;
    const char *front_host; /* of o.bind, without brackets; "*": all addresses */
    uint32_t front_port;    /* HTTP port of o.bind */
    export_worker *worker;  /* sorted by node */
    uint32_t n_worker;
    export_node *node;
    uint32_t n_node;
    export_group *group;
    uint32_t n_group;
    const char **model; /* sorted names, each once */
    uint32_t n_model;
    WEFT_VEC(weft_export_file) files;
} export_ctx;

#define EXPORTER(id, name, brief) weft_err weft_export__##id(export_ctx *ctx);
#include "scheduler/export/exporters.def"
#undef EXPORTER

/* Fills in the defaults of the options, and makes workers, nodes, groups and the list of models
 * from the plan. INPUT: the options or the plan cannot be exported. */
weft_err weft_export__prepare(export_ctx *ctx);
/* The least index of a GPU of a node that is at least `from`; UINT32_MAX: none. A plan that says
 * where its devices are may leave some out. */
uint32_t weft_export__next_gpu(const export_ctx *ctx, const export_node *node, uint32_t from);
/* Whether two workers do the same: equal models, batches and processes on the same kind of slice.
 */
bool weft_export__same_work(const export_worker *a, const export_worker *b);

/* -- Addresses (export_addresses.c) ------------------------------------------------------------ */

/* Letters, digits and -_./:@ only, at most `max`, beginning with a letter, a digit or '/'. */
bool weft_export__is_plain(const char *text, size_t max);
/* An error about `item`: TEXT 'VALUE'. */
weft_err weft_export__fail(const export_ctx *ctx, const char *item, const char *text,
                           const char *value);
bool weft_export__is_ip(const char *text);
bool weft_export__is_host_name(const char *text);
/* The addresses of all nodes, from o.nodes. INPUT: a line is wrong, or a node is missing. */
weft_err weft_export__find_addresses(export_ctx *ctx);
/* The address of a node, which the plan need not have: of o.nodes, else its name. */
const char *weft_export__address_of(const export_ctx *ctx, const char *node);
/* INPUT: two nodes have one address, on which the ports of their workers are the same. */
weft_err weft_export__check_distinct(const export_ctx *ctx);
weft_err weft_export__check_front(export_ctx *ctx);
/* INPUT: a node or the front has a name in place of an address of IPv4 or IPv6. */
weft_err weft_export__check_ips(const export_ctx *ctx);
/* An address of IPv6 in brackets, others as they are. */
const char *weft_export__host_of(weft_arena *arena, const char *address);
weft_err weft_export__check_sbatch(const export_ctx *ctx);

/* -- Routes of a front (export_routes.c) ------------------------------------------------------ */

typedef struct export_part {
    const char *model;
    double rate_per_s;
} export_part;

typedef struct export_share {
    uint32_t model, worker; /* indices */
    double rate_per_s, capacity_per_s;
    uint32_t weight;
} export_share;

/* The workers that serve a model. */
typedef struct export_route {
    const char *model;
    export_share *at;
    uint32_t n;
} export_route;

/* NULL: the plan file has no demand of the model. */
const weft_demand *weft_export__demand(const export_ctx *ctx, const char *model);
/* The models of a placement; those of a family have parts of its rate in proportion to their own
 * rates. Returns their number. */
size_t weft_export__parts(const export_ctx *ctx, const weft_placement *p, export_part **out);
/* Integer weights from 1 to weight_max with shares as near to those of the rates as such weights
 * can be. Returns the largest relative error of a share. */
double weft_export__weigh(const double *rate, size_t n, uint32_t weight_max, uint32_t *out_weight);
/* The same for what serves a model. Warns of shares that are over 5 % off. */
void weft_export__weigh_model(const export_ctx *ctx, const char *model, const double *rate,
                              size_t n, uint32_t weight_max, uint32_t *out_weight);
/* Sets the weights of a route, from 1 to weight_max, by its rates. */
void weft_export__weigh_route(const export_ctx *ctx, export_route *route, uint32_t weight_max);
/* Connections of a front to a worker for one model over one transport: those of all its models,
 * over both, stay below what the worker takes of one address. */
uint32_t weft_export__connections_of(const export_worker *worker);
/* A route for each model, in the order of ctx->model, without weights. */
export_route *weft_export__routes(export_ctx *ctx);

/* -- Common files (export_files.c) ------------------------------------------------------------ */

/* The scripts of this folder, as text (cmake/embed.cmake); the last has no name. */
typedef struct export_script {
    const char *name, *text;
} export_script;
extern const export_script weft_export__scripts[];

const char *weft_export__script(const char *name);
/* Adds a file to the export; `text` is copied, `path` is not. */
void weft_export__add(export_ctx *ctx, const char *path, const char *text, bool executable);
/* For a node with MIG instances, adds a script that finds the instance of each worker by GPU,
 * profile and number, and writes it to CONFIG/devices/WORKER.env. */
void weft_export__add_devices(export_ctx *ctx, const export_node *node, const char *path);
/* Converts a text to a lower-case DNS label of at most `max` bytes. Invalid characters become '-';
 * a label that differs from the text ends in a hash of the text, so that labels stay unique. */
const char *weft_export__label(weft_arena *arena, const char *text, size_t max);
/* Limit of the memory of a worker, MiB. 0: none, because the plan does not know, or for GPUs, whose
 * drivers take memory of the host that no plan knows. */
uint64_t weft_export__memory_mib(const export_worker *w);
/* Memory that a worker asks for, MiB: on CPUs its limit, on GPUs memory of the host. 0: unknown. */
uint64_t weft_export__request_mib(const export_worker *w);
/* Port of the URL of a store; 0: it is no http:// or https:// with a host and at most a port. */
uint32_t weft_export__store_port(const char *url);
/* The command that gets the bundle from the store; with --store. */
const char *weft_export__pull(const export_ctx *ctx);
/* Folder of the bundle. */
const char *weft_export__bundle_folder(const export_ctx *ctx);
/* "PROGRAM serve BUNDLE PLAN --address A --http P --grpc P --metrics P" */
const char *weft_export__command(const export_ctx *ctx, const export_worker *w,
                                 const char *address);

/* -- YAML writer (export_yaml.c) -------------------------------------------------------------- */

typedef struct weft_export_yaml {
    yaml_emitter_t emitter;
    weft_buf buf;
    bool open, failed;
    int depth;
} weft_export_yaml;

void weft_export_yaml__begin(weft_export_yaml *y);
/* Ends all documents and returns the text, owned by the caller (free); NULL: out of memory. */
char *weft_export_yaml__finish(weft_export_yaml *y);
void weft_export_yaml__document(weft_export_yaml *y);
void weft_export_yaml__map(weft_export_yaml *y);
void weft_export_yaml__seq(weft_export_yaml *y);
void weft_export_yaml__end_map(weft_export_yaml *y);
void weft_export_yaml__end_seq(weft_export_yaml *y);
void weft_export_yaml__text(weft_export_yaml *y, const char *text); /* quoted if necessary */
void weft_export_yaml__number(weft_export_yaml *y, int64_t number);
void weft_export_yaml__bool(weft_export_yaml *y, bool value);
/* key: value */
void weft_export_yaml__put(weft_export_yaml *y, const char *key, const char *text);
void weft_export_yaml__put_number(weft_export_yaml *y, const char *key, int64_t number);
void weft_export_yaml__put_bool(weft_export_yaml *y, const char *key, bool value);
/* key: { or key: [ */
void weft_export_yaml__open_map(weft_export_yaml *y, const char *key);
void weft_export_yaml__open_seq(weft_export_yaml *y, const char *key);

#endif
