/* Part of the folder's door, included by scheduler.h: plans as configuration of other systems, and
 * the way there from what runs. */
#ifndef WEFT_SCHEDULER_EXPORT_H
#define WEFT_SCHEDULER_EXPORT_H

#include "base/arena.h"
#include "base/diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weft_demands;
struct weft_fleet;
struct weft_plan;
struct weft_placement;

/* -- Export --------------------------------------------------------------------------------- */

/* Paths are paths on the nodes. NULL or 0: the default in brackets. */
typedef struct weft_export_options {
    const struct weft_demands *demands; /* of the plan file, for the SLOs */
    const char *bundle;                 /* [/srv/weft/models.weft] */
    const char *weft;                   /* the program [/usr/bin/weft] */
    const char *config;                 /* folder of the exported plans [/etc/weft] */
    const char *image;                  /* container image [weft:latest] */
    const char *claim;                  /* volume claim that contains the bundle [weft-models] */
    const char *bundle_image; /* image that contains the bundle, by digest; NULL: `claim` does */
    /* Store from which workers get the bundle before they start, and its digest, sha256:HEX; NULL:
     * the bundle gets there in another way. With it `bundle` is [/srv/weft/HEX.weft], of 16 digits,
     * and there is no claim unless `claim` names one. */
    const char *store, *digest;
    /* Folder with tls.crt and tls.key, by which workers speak TLS, and ca.crt, by which the front
     * verifies that their certificates are for `name`; NULL: no TLS. For systemd, Slurm, HAProxy.
     */
    const char *worker_tls;
    const char *queue;      /* Kueue's queue of the workers; NULL: none */
    bool in_place;          /* an update ends a worker before it starts the next */
    const char *name;       /* prefix of all names, a DNS label [weft] */
    uint32_t port;          /* HTTP port of the first worker of a node [8000] */
    uint32_t gpus_per_node; /* [8] */
    /* Lines "NODE ADDRESS": where the workers of a node listen [its name]. `nodes` is the text of
     * the file that messages call nodes_path. */
    const char *nodes, *nodes_path;
    bool some_nodes; /* the file may have nodes that the plan has not */
    /* Options of sbatch, KEY=VALUE, for all jobs. */
    const char *const *sbatch;
    size_t n_sbatch;
    /* Of a front: */
    const char *bind;      /* address and HTTP port; gRPC has the next one, metrics the one after
                              that [*:8080] */
    const char *socket;    /* its run-time API [/run/haproxy/admin.sock] */
    const char *front_tls; /* file with certificate and key; NULL: no TLS */
    uint64_t buffer_bytes; /* requests that fit are sent again if a worker fails [128 KiB] */
    bool published;        /* workers have no addresses until a file says them at run time */
    bool least;            /* to the worker with the fewest requests for its weight, not in turn */
} weft_export_options;

typedef struct weft_export_file {
    const char *path; /* relative to the output folder */
    const char *text;
    size_t len;
    bool executable;
} weft_export_file;

typedef struct weft_exporter {
    const char *name;
    const char *brief;
    weft_err (*run)(const struct weft_plan *plan, const weft_export_options *options,
                    weft_arena *arena, weft_diag *diag, const weft_export_file **out,
                    size_t *out_n);
} weft_exporter;

const weft_exporter *weft_exporter_find(const char *name);
const weft_exporter *weft_exporter_at(size_t i); /* NULL past the last */

/* -- Reconciling ---------------------------------------------------------------------------- */

typedef struct weft_reconcile_options {
    weft_export_options how;                 /* as for the export that runs */
    const struct weft_demands *from_demands; /* of the old plan; NULL: those of the export */
    const struct weft_problem *problem; /* goal, prices, and the fleet, whose devices that no plan
                                         * uses may run copies; fleet NULL: those of the larger
                                         * plan */
    const weft_exporter *engine;        /* kubernetes, slurm or systemd */
    const weft_exporter *front; /* haproxy (Slurm, systemd), gateway (Kubernetes); NULL: none */
    /* Workers that run; NULL: all of the old plan. */
    const char *const *running;
    size_t n_running;
    const char *lost; /* a node that failed: nothing starts there; NULL: none */
    bool roll;        /* the bundle is another: workers that stay start again with it */
    double move_s;    /* to start a worker, for the price of a move */
    bool dip;         /* if there is no other way, capacity falls below what is needed */
} weft_reconcile_options;

/* A worker that starts or ends. */
typedef struct weft_reconcile_worker {
    const char *name, *node, *group;
    uint32_t gpu;
    const struct weft_placement *const *at;
    uint32_t n;
    bool temporary; /* it is in neither plan */
} weft_reconcile_worker;

/* Some workers start; when they are ready, traffic goes by `plan`; then others end. */
typedef struct weft_reconcile_stage {
    const weft_reconcile_worker *start, *stop;
    uint32_t n_start, n_stop;
    bool rolls; /* Kubernetes: the workers of one group start again, the cluster says in which order
                 */
    const struct weft_plan *plan;
} weft_reconcile_stage;

/* A model of which less is left than needed, at the end of a stage. */
typedef struct weft_reconcile_dip {
    const char *model;
    uint32_t stage;
    double needed_per_s, left_per_s;
} weft_reconcile_dip;

typedef struct weft_reconciliation {
    const struct weft_plan *plan; /* the new one, with the locations of its placements */
    const weft_reconcile_stage *stage;
    size_t n_stage;
    const weft_reconcile_dip *dip;
    size_t n_dip;
    uint32_t n_kept, n_start, n_stop; /* workers, copies included */
    uint32_t n_temporary;
    uint32_t n_least; /* workers that start at least, wherever the others are */
    const char *unit; /* of price and saving: "$", "gCO2", "devices" */
    double price;     /* of all starts */
    double saving;    /* of an hour of the new plan */
    const weft_export_file *file;
    size_t n_file;
    const char *script; /* commands for a shell, for a file beside the others */
} weft_reconciliation;

/* The least change from the workers of one plan to those of another, in an order in which no model
 * has less capacity at any time than the least of: the rates of the new plan, what runs, and what
 * the new plan gives it. INFEASIBLE: there is no such order on these devices. */
WEFT_MUST_USE weft_err weft_reconcile(const struct weft_plan *from, const struct weft_plan *to,
                                      const weft_reconcile_options *options, weft_arena *arena,
                                      weft_diag *diag, weft_reconciliation *out);
/* What is left of a plan without a node, with the locations that its export has. INPUT: no
 * placement is on such a node. */
WEFT_MUST_USE weft_err weft_reconcile_without(const struct weft_plan *from,
                                              const weft_export_options *options, const char *node,
                                              weft_arena *arena, weft_diag *diag,
                                              struct weft_plan *out);

#endif
