/* What the exporters share: nodes, workers, names that every system takes, and YAML. */
#ifndef WEFT_SCHEDULER_EXPORT_EXPORT_INT_H
#define WEFT_SCHEDULER_EXPORT_EXPORT_INT_H

#include "scheduler/input/input.h"

#include "base/str.h"

#include <yaml.h>

enum { WEFT_EXPORT_NAME_MAX = 32, WEFT_EXPORT_LABEL_MAX = 63 };

/* A process that `weft serve` runs: all slices of a CPU, or one slice of a GPU. */
typedef struct export_worker {
    const char *name;      /* DNS label: prefix, device, slice */
    uint32_t node, device; /* device: of the plan */
    uint32_t gpu;          /* index among the GPUs of its node */
    weft_fleet_slice_kind kind;
    const char *type, *slice;
    uint32_t percent;  /* of an MPS share */
    uint32_t nth;      /* among the instances of this MIG profile on its GPU, by start slot */
    uint32_t cores;    /* of a CPU's slices together */
    uint32_t clients;  /* MPS clients it wants: more than one process, or a share */
    int32_t mig_start; /* -1 without MIG */
    const weft_placement **at;
    uint32_t n;
    uint32_t group;   /* workers of a group are replicas of each other */
    uint32_t port;    /* HTTP; +1 gRPC, +2 metrics */
    const char *plan; /* its part of the plan, as JSON */
} export_worker;

/* Up to gpus_per_node devices of one type, split in one way. */
typedef struct export_node {
    const char *name; /* DNS label */
    const char *type;
    weft_fleet_slice_kind kind;
    uint32_t n_gpu;
    uint32_t first, n; /* workers */
} export_node;

typedef struct export_group {
    uint32_t first, n; /* a worker of it; how many there are */
    const char *name;
} export_group;

typedef struct export_ctx {
    const weft_plan *plan;
    weft_export_options o; /* defaults filled in */
    weft_arena *arena;
    weft_diag *diag;
    export_worker *worker; /* by node */
    uint32_t n_worker;
    export_node *node;
    uint32_t n_node;
    export_group *group;
    uint32_t n_group;
    const char **model; /* names, each once, sorted */
    uint32_t n_model;
    WEFT_VEC(weft_export_file) files;
} export_ctx;

#define EXPORTER(id, name, brief) weft_err weft_export__##id(export_ctx *ctx);
#include "scheduler/export/exporters.def"
#undef EXPORTER

/* Fills in the defaults of the options, the workers with their parts of the plan, nodes, groups and
 * models (export_workers.c). INPUT: options or a plan that cannot be exported. */
weft_err weft_export__prepare(export_ctx *ctx);

/* -- What exporters have in common (export_files.c) ------------------------------------------- */

/* A file of the export; text is copied, `path` is not. */
void weft_export__add(export_ctx *ctx, const char *path, const char *text, bool executable);
/* A script for a node of MIG instances that writes the device of each worker to
 * CONFIG/devices/WORKER.env, by GPU, profile and number; nothing for other nodes. */
void weft_export__add_devices(export_ctx *ctx, const export_node *node, const char *path);
/* A lower-case DNS label of at most `max` bytes that is unique for `text`: characters that have no
 * place become '-', and then, or when it is cut, a hash follows. */
const char *weft_export__label(weft_arena *arena, const char *text, size_t max);
/* "PROGRAM serve BUNDLE PLAN --address A --http P --grpc P --metrics P" */
const char *weft_export__command(const export_ctx *ctx, const export_worker *w,
                                 const char *address);

/* -- YAML (export_yaml.c), by libyaml's emitter -------------------------------------------------
 */

typedef struct weft_export_yaml {
    yaml_emitter_t emitter;
    weft_buf buf;
    bool open, failed;
    int depth;
} weft_export_yaml;

void weft_export_yaml__begin(weft_export_yaml *y);
/* Ends everything; NULL on failure. Owned by the caller (free). */
char *weft_export_yaml__finish(weft_export_yaml *y);
void weft_export_yaml__document(weft_export_yaml *y);
void weft_export_yaml__map(weft_export_yaml *y);
void weft_export_yaml__seq(weft_export_yaml *y);
void weft_export_yaml__end_map(weft_export_yaml *y);
void weft_export_yaml__end_seq(weft_export_yaml *y);
void weft_export_yaml__text(weft_export_yaml *y, const char *text); /* quoted where it must be */
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
