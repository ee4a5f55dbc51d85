/* What the files of scheduler/ share: reading YAML, slices as numbers, the load formulas, and the
 * board on which policies build a plan. */
#ifndef WEFT_SCHEDULER_SCHEDULER_INT_H
#define WEFT_SCHEDULER_SCHEDULER_INT_H

#include "scheduler/scheduler.h"

#include <cyaml/cyaml.h>
#include <yaml.h>

/* -- YAML files ------------------------------------------------------------------------------- */

enum {
    WEFT_YAML_BYTES_MAX = 1 << 20,
    WEFT_YAML_NODES_MAX = 200000,
    WEFT_YAML_DEPTH_MAX = 12,
    WEFT_YAML_BRACKETS_MAX = 64,
    WEFT_YAML_KEYS_MAX = 64, /* of one mapping */
};

/* One document, checked against the limits above: no alias, tag, second document or key twice. The
 * nodes give lines and what a fixed schema cannot (mappings with free keys); weft_yaml__load gives
 * the rest. */
typedef struct weft_yaml {
    const char *file;
    char *text;
    size_t len;
    yaml_document_t doc;
} weft_yaml;

WEFT_MUST_USE weft_err weft_yaml__open(const char *path, weft_diag *diag, weft_yaml *out);
void weft_yaml__close(weft_yaml *yaml);
/* Loads by a libcyaml schema; unknown keys and wrong kinds: INPUT with their line. What is loaded
 * lives in `arena`. */
WEFT_MUST_USE weft_err weft_yaml__load(const weft_yaml *yaml, const cyaml_schema_value_t *schema,
                                       weft_arena *arena, weft_diag *diag, void **out);
/* Value of `key` in a mapping, i-th item of a sequence; NULL when absent or of another kind. */
yaml_node_t *weft_yaml__get(weft_yaml *yaml, const yaml_node_t *map, const char *key);
yaml_node_t *weft_yaml__at(weft_yaml *yaml, const yaml_node_t *seq, size_t i);
uint32_t weft_yaml__line(const yaml_node_t *node); /* from 1; 0 for NULL */

/* -- Slices ----------------------------------------------------------------------------------- */

typedef enum weft_slice_kind {
    WEFT_SLICE_WHOLE,
    WEFT_SLICE_MIG,
    WEFT_SLICE_MPS,
    WEFT_SLICE_CORES
} weft_slice_kind;

enum {
    WEFT_MPS_CLIENTS_MAX = 48, /* per device, NVIDIA MIG user guide */
    WEFT_FLEET_COUNT_MAX = 65536,
    WEFT_FLEET_CORES_MAX = 4096,
    WEFT_PLAN_PLACEMENTS_MAX = 1 << 20,
};

/* A slice name of a fleet row, as numbers. */
typedef struct weft_slice_spec {
    weft_slice_kind kind;
    char name[WEFT_SLICE_NAME_MAX];
    double share;       /* of the device's compute units */
    double weight;      /* of the device; the weights on one device never exceed 1 together */
    uint64_t mem_bytes; /* usable; 0: not known, not limited */
    uint32_t cores, percent;
    const weft_mig_profile *mig;
} weft_slice_spec;

/* MPS processes that a MIG instance can hold, in proportion to its compute slots. */
uint32_t weft_mig__clients_max(const weft_mig_profile *mig);
/* The row of `fleet` of a device type; NULL: none. */
const weft_fleet_device *weft_fleet__row(const weft_fleet *fleet, const char *type);
uint64_t weft_fleet__mem(const weft_fleet_device *row);
double weft_fleet__price(const weft_fleet_device *row);
/* false, and a reason in *why, when the row cannot have such a slice. */
bool weft_slice__resolve(const weft_fleet_device *row, const char *name, weft_slice_spec *out,
                         const char **why);

/* -- Load formulas (slo.c states them) -------------------------------------------------------- */

/* Where the numbers of one placement come from. */
typedef struct weft_load_in {
    const weft_rules *rules;
    const weft_demand *demand;
    const weft_profile_point *point;
    double exec_us;    /* weft_load__exec_us of the point */
    double cycle_us;   /* sum of exec_us over all placements of the slice */
    bool alone;        /* the only placement of its slice */
    double rate_per_s; /* requests assigned */
} weft_load_in;

typedef struct weft_load {
    double capacity_per_s, latency_us;
} weft_load;

/* The point of (device, slice, batch, procs); NULL: none. */
const weft_profile_point *weft_profile__find(const weft_profile *profile, const char *device,
                                             const char *slice, uint32_t batch, uint32_t procs);
/* true when the numbers of a point can be used at all: finite and positive time. */
bool weft_profile__usable(const weft_profile_point *point);
double weft_load__exec_us(const weft_rules *rules, const weft_profile *profile,
                          const weft_profile_point *point);
/* SLO of a demand under the rules, us; 0: none. */
double weft_rules__slo_us(const weft_rules *rules, const weft_demand *demand);
/* Whether a batch alone on its slice may take so long. */
bool weft_rules__allow(const weft_rules *rules, const weft_demand *demand, double exec_us);
/* Whether so many processes of one model may share a slice. */
bool weft_rules__allow_procs(const weft_rules *rules, uint32_t procs);
weft_load weft_load__compute(const weft_load_in *in);
/* Requests per second of the point alone on its slice. */
double weft_load__peak_per_s(const weft_profile_point *point, double exec_us);
/* Bytes of one placement; 0: not known. */
uint64_t weft_load__mem(const weft_profile_point *point);
/* Devices that any plan needs, from the demands alone. */
double weft_plan__lower_bound(const weft_problem *problem);

/* Duplicate models, bad numbers: INPUT. */
WEFT_MUST_USE weft_err weft_demands__check(const weft_demands *demands, weft_diag *diag);

/* -- The board: a plan being built ------------------------------------------------------------ */

/* One way to run a model: a slice, a batch and what follows from them. */
typedef struct weft_option {
    const weft_fleet_device *row;
    weft_slice_spec spec;
    const weft_profile_point *point;
    double exec_us, peak_per_s;
} weft_option;

typedef struct weft_member {
    uint32_t demand;
    const weft_option *option;
    double rate_per_s;
} weft_member;

typedef struct weft_board_slice {
    uint32_t device, id;
    int32_t mig_start; /* -1 without MIG */
    weft_slice_spec spec;
    WEFT_VEC(weft_member) members;
} weft_board_slice;

typedef struct weft_board_device {
    const weft_fleet_device *row;
    weft_slice_kind kind; /* of its slices */
    uint32_t n_slice;
    uint32_t mig_taken; /* memory slots */
    uint32_t percent;   /* of MPS shares */
    uint32_t clients;   /* processes, without CPU */
    uint64_t mem_bytes; /* of shares without MIG */
    double weight;      /* in use, 0..1 */
    bool *cores_taken;  /* CPU: by slice index */
} weft_board_device;

typedef struct weft_board {
    const weft_problem *problem;
    const weft_demands *demands;
    const weft_fleet *fleet;
    weft_arena *arena;
    weft_diag *diag;
    uint32_t *order;            /* demands by name */
    const weft_option **option; /* by demand: options within the SLO, best order per policy */
    uint32_t *n_option;         /* by demand */
    uint32_t *opened;           /* by fleet row: devices in use */
    WEFT_VEC(weft_board_device) devices;
    WEFT_VEC(weft_board_slice) slices;
} weft_board;

/* Lists the options of every demand. INFEASIBLE with its reason when a model has none at all. */
WEFT_MUST_USE weft_err weft_board__init(weft_board *board, const weft_problem *problem,
                                        weft_arena *arena, weft_diag *diag);
/* Whether weft_board__add would find a device. */
bool weft_board__has_place(const weft_board *board, const weft_option *option);
/* Adds a slice for `option`: on the open device with room and least left (best true), on the first
 * (best false), or on a new one. false: no room. */
bool weft_board__add(weft_board *board, uint32_t demand, const weft_option *option,
                     double rate_per_s, bool best);
/* Puts a model beside those on a slice, choosing the batches of all anew; false, and nothing
 * changed, when their SLOs, rates or the memory do not allow it. *occupancy: part of the time that
 * the slice is busy. */
bool weft_board__share(weft_board *board, uint32_t slice, uint32_t demand, double rate_per_s,
                       bool commit, double *occupancy);
/* INFEASIBLE: the fleet has no place for the rest of a model. */
weft_err weft_board__full(weft_board *board, uint32_t demand, double rest_per_s);
void weft_board__finish(const weft_board *board, const char *policy, weft_plan *out);

#endif
